"""The bounds-checked reader and the run searches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_admin.store.codec.buffer import Reader, encode_varint, run_end, written_end
from pulsar_admin.store.errors import EntryCorrupt, MetadataCorrupt
from tests.codec.bookkeeper_vectors import FIXED


def _reader(data: bytes) -> Reader:
    return Reader(data, "here", EntryCorrupt)


def test_reads_big_endian_integers_in_order() -> None:
    reader = _reader(bytes.fromhex("ff fffffffd fffffffc fffffffffffffffb 9601"))
    assert reader.u8() == 0xFF
    assert reader.u32() == 0xFFFFFFFD
    assert reader.i32() == -4
    assert reader.i64() == -5
    assert reader.varint() == 150
    assert reader.remaining == 0


def test_take_returns_all_or_says_what_was_missing() -> None:
    reader = _reader(b"abcdef")
    assert bytes(reader.take(4)) == b"abcd"
    assert (reader.pos, reader.remaining) == (4, 2)
    with pytest.raises(EntryCorrupt, match="here @ 0x4: wanted 3 bytes, got 2") as caught:
        reader.take(3)
    assert caught.value.context == {"where": "here", "offset": 4, "wanted": 3, "got": 2}
    assert reader.pos == 4


@pytest.mark.parametrize("n", [-1, 2**31 - 1, 2**63])
def test_absurd_sizes_do_not_allocate(n: int) -> None:
    with pytest.raises(EntryCorrupt):
        _reader(b"abc").take(n)


@pytest.mark.parametrize("data", [b"\x80", b"\xff" * 9, b"\xff" * 9 + b"\x02", b"\xff" * 10 + b"\x01", b""])
def test_varints_beyond_64_bits_or_cut_are_refused(data: bytes) -> None:
    with pytest.raises(MetadataCorrupt):
        Reader(data, "here", MetadataCorrupt).varint()


VARINTS = {0: "00", 127: "7f", 128: "8001", 16_383: "ff7f", 16_384: "808001", 2**64 - 1: f"{'ff' * 9}01"}


@pytest.mark.parametrize(("number", "written"), VARINTS.items())
def test_varints_are_as_short_as_they_can_be(number: int, written: str) -> None:
    assert encode_varint(number).hex() == written
    assert _reader(bytes.fromhex(written)).varint() == number


@FIXED
@given(st.integers(0, 70_000), st.binary(max_size=20), st.sampled_from([0, 0xF0]), st.integers(0, 5))
def test_run_end_and_written_end_equal_brute_force(run: int, rest: bytes, byte: int, start: int) -> None:
    data = bytes([byte]) * run + rest
    start = min(start, len(data))
    differing = [at for at in range(start, len(data)) if data[at] != byte]
    assert run_end(memoryview(data), start, len(data), byte) == (differing[0] if differing else len(data))
    backwards = data[::-1]
    written = [at for at in range(start, len(backwards)) if backwards[at] != 0]
    assert written_end(memoryview(backwards), start, len(backwards)) == (written[-1] + 1 if written else start)
