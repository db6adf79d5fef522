"""Independent vectors for BookKeeper's structures, spelled as bytes, and the settings of property tests.

Made by a script that shares no code with this toolkit; CRC-32C cross-checked with two libraries.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

from hypothesis import settings

from pulsar_admin.store.errors import StoreError

FIXED = settings(derandomize=True, deadline=None, database=None, max_examples=20)
"""The same examples on every machine and every run."""

EMPTY_PASSWORD_KEY = bytes.fromhex("850bf1071c5e3d8c24235676f8816ae0cbe2f14f")


class Known(NamedTuple):
    """One record of the sample log, as the sample's author meant it."""

    offset: int
    size: int
    ledger_id: int
    entry_id: int
    last_add_confirmed: int
    length: int
    payload: bytes
    crc32c: str
    location: int


KNOWN = (
    Known(1024, 37, 1, 0, -1, 1, b"a", "504955ed", 0x0000000100000404),
    Known(1065, 38, 1, 1, 0, 3, b"bb", "f33551fe", 0x000000010000042D),
    Known(1107, 39, 1, 2, 1, 6, b"ccc", "073f8b71", 0x0000000100000457),
    Known(1150, 42, 7, 0, -1, 6, b"pulsar", "75a43fea", 0x0000000100000482),
    Known(1196, 36, 7, 1, 0, 6, b"", "395a7fce", 0x00000001000004B0),
    Known(1236, 40, 7, 2, 1, 10, b"\x00\xff\x0e\x01", "3ecb979c", 0x00000001000004D8),
)

RECORDS = bytes.fromhex(
    """
    00 00 00 25 00 00 00 00  00 00 00 01 00 00 00 00  00 00 00 00 ff ff ff ff  ff ff ff ff 00 00 00 00
    00 00 00 01 50 49 55 ed  61 00 00 00 26 00 00 00  00 00 00 00 01 00 00 00  00 00 00 00 01 00 00 00
    00 00 00 00 00 00 00 00  00 00 00 00 03 f3 35 51  fe 62 62 00 00 00 27 00  00 00 00 00 00 00 01 00
    00 00 00 00 00 00 02 00  00 00 00 00 00 00 01 00  00 00 00 00 00 00 06 07  3f 8b 71 63 63 63 00 00
    00 2a 00 00 00 00 00 00  00 07 00 00 00 00 00 00  00 00 ff ff ff ff ff ff  ff ff 00 00 00 00 00 00
    00 06 75 a4 3f ea 70 75  6c 73 61 72 00 00 00 24  00 00 00 00 00 00 00 07  00 00 00 00 00 00 00 01
    00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 06  39 5a 7f ce 00 00 00 28  00 00 00 00 00 00 00 07
    00 00 00 00 00 00 00 02  00 00 00 00 00 00 00 01  00 00 00 00 00 00 00 0a  3e cb 97 9c 00 ff 0e 01
    """
)
LEDGERS_MAP = bytes.fromhex(
    """
    00 00 00 34 ff ff ff ff  ff ff ff ff ff ff ff ff  ff ff ff fe 00 00 00 02  00 00 00 00 00 00 00 01
    00 00 00 00 00 00 00 7e  00 00 00 00 00 00 00 07  00 00 00 00 00 00 00 82
    """
)
LOG_HEADER = bytes.fromhex("42 4b 4c 4f 00 00 00 01 00 00 00 00 00 00 05 00 00 00 00 02").ljust(1024, b"\0")

SEALED_LOG = LOG_HEADER + RECORDS + LEDGERS_MAP
"""Entry log 1, sealed: ledgers 1 and 7, three entries each."""

DIRECT_LOG = b"".join(
    (
        LOG_HEADER[:8] + struct.pack(">qi", 0x2000, 2).ljust(1016, b"\0"),
        (bytes.fromhex("00 00 0b fc") + b"\xff" * 8).ljust(3072, b"\0"),
        RECORDS.ljust(4096, b"\xf0"),
        LEDGERS_MAP.ljust(4096, b"\xf0"),
        bytes(8192),
    )
)
"""The same log as the direct-I/O logger writes it."""

JOURNAL_V5 = b"".join(
    (
        bytes.fromhex("42 4b 4c 47 00 00 00 05").ljust(512, b"\0"),
        bytes.fromhex(
            """
            00 00 00 28 00 00 00 00  00 00 00 01 ff ff ff ff  ff ff f0 00 00 00 00 14  85 0b f1 07 1c 5e 3d 8c
            24 23 56 76 f8 81 6a e0  cb e2 f1 4f 00 00 00 25  00 00 00 00 00 00 00 01  00 00 00 00 00 00 00 00
            ff ff ff ff ff ff ff ff  00 00 00 00 00 00 00 01  50 49 55 ed 61 00 00 00  10 00 00 00 00 00 00 00
            01 ff ff ff ff ff ff e0  00 ff ff ff 00 00 00 01  8f
            """
        ).ljust(512, b"\0"),
    )
)
"""Journal of version 5 without its preallocated tail: master key, entry 1:0, fence, padding."""

METADATA_V3 = bytes.fromhex(
    """
    42 6f 6f 6b 69 65 4d 65  74 61 64 61 74 61 46 6f  72 6d 61 74 56 65 72 73  69 6f 6e 09 33 0a 68 08
    02 10 02 18 06 20 02 28  03 32 20 0a 0d 31 30 2e  30 2e 30 2e 31 3a 33 31  38 31 0a 0d 31 30 2e 30
    2e 30 2e 32 3a 33 31 38  31 10 00 38 03 42 00 48  02 5a 15 0a 0b 61 70 70  6c 69 63 61 74 69 6f 6e
    12 06 70 75 6c 73 61 72  5a 1b 0a 09 63 6f 6d 70  6f 6e 65 6e 74 12 0e 6d  61 6e 61 67 65 64 2d 6c
    65 64 67 65 72 60 00
    """
)


def refusal(call: Callable[[], object]) -> StoreError | None:
    """The StoreError that CALL ends in, None if it succeeds; every other exception is a failure of the test."""
    try:
        call()
    except StoreError as error:
        return error
    return None


def header_bytes_of(known: Known) -> bytes:
    """The 32 bytes the digest of a sample entry covers in front of its payload."""
    return struct.pack(">qqqq", known.ledger_id, known.entry_id, known.last_add_confirmed, known.length)
