"""The columns of entries and messages as a scan of files gives them. Imports no kernel: tables that exist are read without."""

import pyarrow as pa

from pulsar_admin.store.kernels import columns as kernel

TIME = pa.timestamp("us", tz="UTC")
"""The type of times: Spark knows microseconds only."""
FLAGS = {
    "batch": kernel.BATCH,
    "marker": kernel.MARKER,
    "encrypted": kernel.ENCRYPTED,
    "chunk": kernel.CHUNK,
    "transaction": kernel.TRANSACTION,
    "compressed": kernel.COMPRESSED,
    "null_value": kernel.NULL_VALUE,
    "framed": kernel.UNFRAMED,
    "digest_ok": kernel.BAD_DIGEST,
}
INVERTED = {"framed", "digest_ok"}
ENTRY_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("topic", pa.string()),
        ("ledger_id", pa.int64()),
        ("entry_id", pa.int64()),
        ("offset", pa.int64()),
        ("size", pa.int32()),
        ("payload_bytes", pa.int32()),
        ("messages", pa.int32()),
        ("publish_time", TIME),
        ("broker_time", TIME),
        ("deliver_at_time", TIME),
        *((name, pa.bool_()) for name in FLAGS),
    ]
)
MESSAGE_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("topic", pa.string()),
        ("ledger_id", pa.int64()),
        ("entry_id", pa.int64()),
        ("offset", pa.int64()),
        ("batch_index", pa.int32()),
        *((name, TIME) for name in ("publish_time", "broker_time", "event_time", "deliver_at_time")),
        ("key", pa.string()),
        ("ordering_key", pa.binary()),
        ("producer", pa.string()),
        ("sequence_id", pa.int64()),
        ("broker_index", pa.int64()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("size", pa.int64()),
        ("encrypted", pa.bool_()),
        ("null_value", pa.bool_()),
        ("transaction", pa.string()),
        ("schema_version", pa.int64()),
        ("payload", pa.binary()),
        ("value", pa.string()),
        ("value_error", pa.string()),
    ]
)
