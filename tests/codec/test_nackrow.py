"""Rows of kept negative acks: written by hand from docs/formats/nacks.md, and damaged at every bit."""

import hashlib
import struct

import google_crc32c
import pytest
from pyroaring import BitMap64

from pulsar_admin.store.db import nacks
from pulsar_admin.store.errors import IndexCorrupt, Unsupported

TOPIC = "persistent://public/default/orders"
IDENTITY = hashlib.blake2b(f"{TOPIC}\0workers".encode(), digest_size=8).digest()
KEY = b"\x01" + IDENTITY + struct.pack(">QQ", 1_700_000_000_000, 10)
# One run, 4 to 9: one bitmap of high half 0, cookie 12347 for one container, flag, key 0, 6 values, 1 run: 4, length 6.
BITMAP = struct.pack("<QIHHBHHHHH", 1, 0, 12347, 0, 1, 0, 5, 1, 4, 5)


def sealed(key: bytes, head: bytes, count: int, body: bytes) -> bytes:
    checksum = google_crc32c.value(key + head + bytes(4) + struct.pack("<Q", count) + body)
    return head + struct.pack("<IQ", checksum, count) + body


ROW = sealed(KEY, b"\x01\x00\x00\x00", 6, BITMAP)
TRACKER_KEY = b"\x00" + IDENTITY
TRACKER = sealed(TRACKER_KEY, struct.pack("<BBH", 1, 8, len(TOPIC)), 2, f"{TOPIC}workers".encode())


def test_rows_written_by_hand() -> None:
    assert nacks.tracker_id(TOPIC, "workers") == IDENTITY
    assert nacks.bucket_key(IDENTITY, 1_700_000_000_000, 10) == KEY
    assert nacks.bucket_of_key(KEY) == (IDENTITY, 1_700_000_000_000, 10)
    assert nacks.encode_bucket_row(KEY, BitMap64(range(4, 10))) == ROW
    assert nacks.decode_bucket_row(KEY, ROW) == BitMap64(range(4, 10))
    assert nacks.bucket_row_entries(KEY, ROW) == 6
    row = nacks.TrackerRow(TOPIC, "workers", 8, 2)
    assert (nacks.tracker_key(IDENTITY), nacks.encode_tracker_row(row)) == (TRACKER_KEY, TRACKER)
    assert nacks.decode_tracker_row(TRACKER_KEY, TRACKER) == row


@pytest.mark.parametrize(
    ("key", "row", "decode"), [(KEY, ROW, nacks.decode_bucket_row), (TRACKER_KEY, TRACKER, nacks.decode_tracker_row)]
)
def test_every_bit_counts(key: bytes, row: bytes, decode: object) -> None:
    assert callable(decode)
    for bit in range(len(row) * 8):
        changed = bytearray(row)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises((IndexCorrupt, Unsupported)):
            decode(key, bytes(changed))
    for size in range(len(row)):
        with pytest.raises(IndexCorrupt):
            decode(key, row[:size])
    with pytest.raises(IndexCorrupt):
        decode(key, row + b"\x00")
    with pytest.raises(IndexCorrupt):
        decode(key[:-1] + bytes([key[-1] ^ 1]), row)


@pytest.mark.parametrize(
    ("count", "body"),
    [
        (6, BITMAP + b"\x00"),
        (4, BITMAP),
        (0, struct.pack("<Q", 0)),
        (6, BITMAP[:-1]),
        (1, bytes(BitMap64([2**63]).serialize())),
    ],
    ids=["longer", "other count", "empty", "cut", "beyond 63 bits"],
)
def test_a_right_checksum_is_not_enough(count: int, body: bytes) -> None:
    with pytest.raises(IndexCorrupt):
        nacks.decode_bucket_row(KEY, sealed(KEY, b"\x01\x00\x00\x00", count, body))


def test_a_newer_row() -> None:
    with pytest.raises(Unsupported, match="version 2"):
        nacks.decode_bucket_row(KEY, sealed(KEY, b"\x02\x00\x00\x00", 3, BITMAP))
