"""The columns of the tables: one schema per table, the same in Parquet, Iceberg, SQL and on Spark.

Columns that the data source ``pulsar_entries`` also has are of the same name and type there. Times are UTC, sizes
bytes. New columns are only added at the end; in older files they are null.
"""

from collections.abc import Mapping

import pyarrow as pa

from pulsar_admin.store.scan.schemas import ENTRY_SCHEMA, MESSAGE_SCHEMA, TIME

_PROPERTIES = pa.map_(pa.string(), pa.string())
_CLUSTER = [("cluster", pa.string())]
OF_TOPIC = ("tenant", "namespace")
"""The columns of every table with a topic; the namespace with its tenant."""
_RANGE = pa.struct([("ledger_id", pa.int64()), ("first_entry_id", pa.int64()), ("last_entry_id", pa.int64())])
_ENTRIES = [field for field in ENTRY_SCHEMA if field.name not in ("path", "topic")]

TABLES: Mapping[str, pa.Schema] = {
    "topics": pa.schema(
        [
            *_CLUSTER,
            ("topic", pa.string()),  # persistent://tenant/namespace/name; of a partition its own
            ("tenant", pa.string()),
            ("namespace", pa.string()),  # tenant/namespace
            ("partitioned_topic", pa.string()),  # the topic that this is a partition of
            ("partition", pa.int32()),
            ("ledgers", pa.int32()),
            ("entries", pa.int64()),
            ("size", pa.int64()),
            ("subscriptions", pa.int32()),  # as ``store.model.counts`` has them: without compaction's
            ("terminated", pa.bool_()),
            ("properties", _PROPERTIES),
        ]
    ),
    "ledgers": pa.schema(  # by ledger_id
        [
            *_CLUSTER,
            ("topic", pa.string()),  # null: no topic lists it (a cursor's, a compacted or a schema's ledger, an orphan)
            ("ledger_id", pa.int64()),
            ("place", pa.int32()),  # in the topic's list, from 0
            ("state", pa.string()),  # BookKeeper's: OPEN, IN_RECOVERY, CLOSED; null where there is no metadata
            ("entries", pa.int64()),  # as topics stats-internal counts them
            ("size", pa.int64()),
            ("last_entry_id", pa.int64()),
            ("closed_time", TIME),
            ("created_time", TIME),
            ("first_publish_time", TIME),
            ("last_publish_time", TIME),
            ("ensemble", pa.list_(pa.string())),  # of the last segment
            ("ensemble_size", pa.int32()),
            ("write_quorum", pa.int32()),
            ("ack_quorum", pa.int32()),
            ("offloaded", pa.bool_()),
            ("properties", _PROPERTIES),
        ]
    ),
    "cursors": pa.schema(
        [
            *_CLUSTER,
            ("topic", pa.string()),
            ("subscription", pa.string()),
            ("mark_delete_ledger_id", pa.int64()),
            ("mark_delete_entry_id", pa.int64()),
            ("backlog_entries", pa.int64()),
            ("holes", pa.list_(_RANGE)),  # acked_ranges under its name before 0.2, for statements written then
            ("properties", _PROPERTIES),
            ("acked_ranges", pa.list_(_RANGE)),  # acknowledged after the mark-delete position, both ends included
            *((name, pa.string()) for name in OF_TOPIC),
            ("backlog_bytes", pa.int64()),  # payload bytes of the entries that are not acknowledged
            ("oldest_publish_time", TIME),  # of the first of them
        ]
    ),
    "policies": pa.schema(
        [
            *_CLUSTER,
            ("level", pa.string()),  # namespace, topic
            ("name", pa.string()),
            ("policy", pa.string()),
            ("value", pa.string()),  # JSON
        ]
    ),
    "schemas": pa.schema(
        [
            *_CLUSTER,
            ("topic", pa.string()),
            ("version", pa.int64()),
            ("type", pa.string()),
            ("time", TIME),
            ("user", pa.string()),
            ("deleted", pa.bool_()),
            ("data", pa.binary()),
            ("properties", _PROPERTIES),
        ]
    ),
    "entries": pa.schema(  # an entry once, by (ledger_id, entry_id), however many copies of it there are
        [
            *_CLUSTER,
            ("topic", pa.string()),
            *_ENTRIES,
            ("path", pa.string()),  # the file of the copy that ``offset`` is in
            ("bookie", pa.string()),
            ("copies", pa.int16()),
            ("producer", pa.string()),
            ("sequence_id", pa.int64()),
            ("last_add_confirmed", pa.int64()),  # as its writer knew it: says where a ledger ends that was never closed
        ]
    ),
    "messages": pa.schema([*_CLUSTER, *MESSAGE_SCHEMA, *((name, pa.string()) for name in OF_TOPIC)]),
    "nodes": pa.schema(  # metadata as stored, by path: what answers from tables alone are made of
        [
            *_CLUSTER,
            ("path", pa.string()),
            ("value", pa.binary()),
            ("version", pa.int64()),
            ("created_time", TIME),
            ("modified_time", TIME),
            ("owner", pa.int64()),  # session of an ephemeral node, else 0
        ]
    ),
    "rows": pa.schema(  # of the store's small databases and of its times of ledgers, as they are; by (database, key)
        [
            *_CLUSTER,
            ("database", pa.string()),  # of store.tables.rows.KEPT
            ("key", pa.binary()),
            ("value", pa.binary()),
        ]
    ),
    "bodies": pa.schema(  # records that metadata lies in: of cursor ledgers and of schemas
        [
            *_CLUSTER,
            ("ledger_id", pa.int64()),
            ("entry_id", pa.int64()),
            ("path", pa.string()),
            ("offset", pa.int64()),
            ("record", pa.binary()),  # from its size field on
        ]
    ),
}


def known_schema() -> pa.Schema:
    """Return the columns of ``messages`` under the Spark connector's names, after cluster and topic."""
    from pulsar_admin.store.names import parse_topic
    from pulsar_admin.store.scan.typed_values import KnownColumns  # it decodes values: only this table needs it

    return pa.schema([*_CLUSTER, ("topic", pa.string()), *KnownColumns(parse_topic("any"), raw=True).schema])
