"""The columns of scanned records and the bits of their flags; importing them does not load the compiled kernels."""

import numpy as np

# Flag bits of a record.
BAD_DIGEST = 1
UNFRAMED = 2  # payload is no message entry (cursor, schema, transaction log … ledgers)
BATCH = 4
MARKER = 8
ENCRYPTED = 16
CHUNK = 32
TRANSACTION = 64
HAS_BROKER_TIME = 128
UNVERIFIED = 256  # digest not checked: switched off, or a type that cannot be checked here (HMAC, DUMMY)
COMPRESSED = 512
NULL_VALUE = 1024

RECORD = np.dtype(
    [
        ("ledger_id", np.int64),
        ("entry_id", np.int64),
        ("offset", np.int64),  # of the record's size field
        ("publish_ms", np.int64),
        ("broker_ms", np.int64),
        ("deliver_at_ms", np.int64),  # 0 = not delayed
        ("length", np.int64),  # the body's cumulative length field
        ("lac", np.int64),  # last add confirmed as the writer knew it
        ("size", np.int32),  # value of the size field
        ("messages", np.int32),  # field 11; 1 for everything else
        ("digest_bytes", np.int16),
        ("flags", np.int16),
    ]
)
