"""The serialized tracker: bytes worked by hand, and every kind of damage."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from pulsar_admin.store.errors import Corrupt, StoreError, Unsupported
from pulsar_admin.store.nacks.tracker import NegativeAcksTracker
from pulsar_admin.store.names import Position

RUN_OF_256 = "0100000000000000000000003b300000010100ff0001007011ff00"  # ids 70000-70255, as Java wrote it
RUN_OF_ONE = "0100000000000000000000003b30000001000000000100" + "05000000"


def crc32c(data: bytes) -> int:
    """CRC-32C bit by bit (RFC 3720, polynomial 0x1EDC6F41 reflected)."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def serialized(rows: list[tuple[int, int, str]], **fields: Any) -> bytes:
    """The documented form of ROWS (bucket, ledger, bitmap in hex); FIELDS replace single header fields."""
    bitmaps = [bytes.fromhex(raw) for _, _, raw in rows]
    body = b"".join(struct.pack("<q", bucket) for bucket, _, _ in rows)
    body += b"".join(struct.pack("<q", ledger) for _, ledger, _ in rows)
    body += b"".join(struct.pack("<I", len(raw)) for raw in bitmaps)
    body += b"".join(bitmaps)
    values = {"magic": b"PSNACKTR", "version": 1, "bits": 8, "partition": -2, "groups": len(rows)}
    values |= {"entries": 0, "bitmaps": sum(map(len, bitmaps)), "body": crc32c(body)} | fields
    header = struct.pack("<8sHBxiQQQI", *values.values())
    return header + struct.pack("<I", crc32c(header)) + body


ROWS = [(1024, 7, RUN_OF_256), (1024, 9, RUN_OF_ONE), (1280, 7, RUN_OF_ONE)]
GOOD = serialized(ROWS, entries=258)


def tracker() -> NegativeAcksTracker:
    made = NegativeAcksTracker(8)
    made.add_many([7] * 256, range(70_000, 70_256), 1024, now_ms=0)
    made.add(Position(9, 5), 1200, now_ms=3)
    made.add(Position(7, 5), 1200, now_ms=100)
    return made


def test_writes_the_documented_bytes() -> None:
    assert tracker().to_bytes() == GOOD
    assert len(GOOD) == 48 + 3 * 20 + 3 * 27


def test_reads_the_documented_bytes() -> None:
    loaded = NegativeAcksTracker.from_bytes(GOOD)
    found = [(group.bucket_ms, group.ledger_id, list(group.entry_ids)) for group in loaded.due(5000)]
    assert found == [(1024, 7, list(range(70_000, 70_256))), (1024, 9, [5]), (1280, 7, [5])]


def test_every_flipped_bit_is_noticed() -> None:
    for offset in range(len(GOOD)):
        for bit in range(8):
            damaged = bytearray(GOOD)
            damaged[offset] ^= 1 << bit
            with pytest.raises(StoreError):
                NegativeAcksTracker.from_bytes(bytes(damaged))


def test_every_cut_is_noticed() -> None:
    for length in range(len(GOOD)):
        with pytest.raises(Corrupt):
            NegativeAcksTracker.from_bytes(GOOD[:length])
    with pytest.raises(Corrupt):
        NegativeAcksTracker.from_bytes(GOOD + b"\0")


def test_a_newer_version_is_named() -> None:
    with pytest.raises(Unsupported, match="version 2"):
        NegativeAcksTracker.from_bytes(serialized(ROWS, entries=258, version=2))


@pytest.mark.parametrize(
    ("rows", "fields", "what"),
    [
        (ROWS, {"entries": 257}, "its header says 257"),
        (ROWS, {"entries": 258, "bits": 63}, "63 precision bits"),
        (ROWS, {"entries": 258, "bits": 9}, "not a bucket"),
        (ROWS[::-1], {"entries": 258}, "not in order"),
        ([ROWS[0], ROWS[0]], {"entries": 512}, "not in order"),
        ([(-256, 7, RUN_OF_ONE)], {"entries": 1}, "negative"),
        ([(256, -7, RUN_OF_ONE)], {"entries": 1}, "negative"),
        ([(256, 7, RUN_OF_ONE[:-2])], {"entries": 1}, "Roaring"),
        ([(256, 7, "")], {"entries": 0}, "Roaring"),
        ([(256, 7, RUN_OF_256.replace("0100ff000100", "0100fe000100"))], {"entries": 255}, "add up"),
        ([(256, 7, "0000000000000000")], {"entries": 0}, "empty"),
        (ROWS, {"entries": 258, "groups": 2}, "length"),
        (ROWS, {"entries": 258, "groups": 2**60}, "length"),
    ],
)
def test_wrong_content_under_right_checksums(rows: list[Any], fields: dict[str, Any], what: str) -> None:
    with pytest.raises(Corrupt, match=what):
        NegativeAcksTracker.from_bytes(serialized(rows, **fields))


def test_lengths_that_do_not_add_up() -> None:
    raw = bytearray(GOOD)
    raw[48 + 48 : 48 + 52] = struct.pack("<I", 26)
    body = bytes(raw[48:])
    header = bytes(raw[:40]) + struct.pack("<I", crc32c(body))
    with pytest.raises(Corrupt, match="add up"):
        NegativeAcksTracker.from_bytes(header + struct.pack("<I", crc32c(header)) + body)
