"""Rows that the scan's kernels fill: a record of a file, and a run of records within one location block."""

from __future__ import annotations

import numpy as np

# Why the kernel stopped.
FULL, END, STRANGE, MORE = (
    0,
    1,
    2,
    3,
)  # rows full · reached the end · no valid record here · record goes on behind the window

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

RUN = np.dtype(
    [
        ("start", np.int64),
        ("end", np.int64),
        ("ledger_id", np.int64),
        ("block", np.int64),
        ("messages", np.int64),
        ("payload_bytes", np.int64),
        ("publish_min_ms", np.int64),
        ("publish_max_ms", np.int64),
        ("broker_min_ms", np.int64),
        ("broker_max_ms", np.int64),
        ("auto_min_ms", np.int64),
        ("auto_max_ms", np.int64),
        ("broker_count", np.int64),
        ("unframed", np.int64),
        ("others", np.int64),  # records that do not hold exactly one message
        ("max_lac", np.int64),
    ]
)
