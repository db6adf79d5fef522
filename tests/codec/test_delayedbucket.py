from typing import Any

import pytest

from pulsar_admin.store.codec import delayedbucket as codec
from pulsar_admin.store.errors import EntryCorrupt
from tests.encoders import encode_entry_ids, encode_snapshot_metadata, encode_snapshot_segment

# Portable RoaringBitmap of {3, 5}: cookie 12346, one array container: key 0, cardinality − 1, offset 16, the values.
BITMAP = bytes.fromhex("3a300000 01000000 0000 0100 10000000 0300 0500")
METADATA = bytes.fromhex("0a20 0a18 080a 1214") + BITMAP + bytes.fromhex("10d00f 18e807")
SEGMENT = bytes.fromhex("0a07 08e807 100a 1803 0a07 08d00f 100a 1805")


def test_metadata() -> None:
    expected = (codec.SegmentMetadata(1000, 2000, {10: BITMAP}),)
    assert codec.decode_snapshot_metadata(METADATA, "108:0") == expected
    assert encode_snapshot_metadata(expected) == METADATA
    assert set(codec.decode_entry_ids(expected[0].bitmaps[10], "108:0")) == {3, 5}
    assert encode_entry_ids([5, 3]) == BITMAP


def test_segment() -> None:
    expected = (codec.DelayedIndex(1000, 10, 3), codec.DelayedIndex(2000, 10, 5))
    assert codec.decode_snapshot_segment(SEGMENT, "108:1") == expected
    assert encode_snapshot_segment(expected) == SEGMENT


@pytest.mark.parametrize(
    ("decode", "known"), [(codec.decode_snapshot_metadata, METADATA), (codec.decode_snapshot_segment, SEGMENT)]
)
def test_fields_of_later_versions(decode: Any, known: bytes) -> None:
    later = known + b"\x98\x06\x01"  # field 99
    assert decode(later, "108:0") == decode(known, "108:0", strict=True)
    with pytest.raises(EntryCorrupt):
        decode(later, "108:0", strict=True)


def test_keys() -> None:
    assert codec.parse_bucket_key("#pulsar.internal.delayed.bucket_99_105") == (99, 105)
    for other in ("bucket_1_2", "#pulsar.internal.delayed.bucket_1", "#pulsar.internal.delayed.bucket_1_2_3", ""):
        assert codec.parse_bucket_key(other) is None


@pytest.mark.parametrize("bitmap", [b"", b"\0", BITMAP[:-1], BITMAP[:16] + b"\x05\0\x03\0", b"\xff" * 20])
def test_bitmaps_that_are_none(bitmap: bytes) -> None:
    with pytest.raises(EntryCorrupt, match="108:0"):
        codec.decode_entry_ids(bitmap, "108:0")


def test_missing_fields() -> None:
    with pytest.raises(EntryCorrupt, match="timestamp"):
        codec.decode_snapshot_segment(bytes.fromhex("0a04 100a 1803"), "108:1")
    with pytest.raises(EntryCorrupt, match="schedule_timestamp"):
        codec.decode_snapshot_metadata(bytes.fromhex("0a0a 0a06 0801 1202 6162 1001"), "108:0")
