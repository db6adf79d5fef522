import pytest

from pulsar_admin.store.codec.rocksvalue import NodeStat, decode_counter, decode_value, encode_counter, encode_value
from pulsar_admin.store.codec.wrapper import PLAIN, Kind, Wrapping, unwrap, wrap
from pulsar_admin.store.errors import LimitExceeded, MetadataCorrupt, Unsupported

VECTOR_7 = bytes.fromhex("0a0e080a100518f4032080d095ffbc31 0a04080b2000")
VECTOR_8 = bytes.fromhex("4778 00000004 08011016 f007 0a0e080a100518f4032080d095ffbc310a04080b2000")
KINDS: tuple[Kind, ...] = ("managed-ledger", "cursor")


@pytest.mark.parametrize("kind", KINDS)
def test_vector(kind: Kind) -> None:
    assert unwrap(VECTOR_8, kind, "/path") == (VECTOR_7, Wrapping(1))
    assert unwrap(VECTOR_7, kind, "/path") == (VECTOR_7, PLAIN)
    assert unwrap(b"", kind, "/path") == (b"", PLAIN)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compression", range(5))
def test_every_codec(kind: Kind, compression: int) -> None:
    value = wrap(VECTOR_7 * 100, Wrapping(compression), kind)
    assert (value[:2] == b"\x47\x78") == (compression != 0)
    assert unwrap(value, kind, "/path") == (VECTOR_7 * 100, Wrapping(compression))


def test_a_wrapped_none_is_read_and_written_plain() -> None:
    value = bytes.fromhex("4778 00000004 08001016") + VECTOR_7
    assert unwrap(value, "cursor", "/path") == (VECTOR_7, PLAIN)


@pytest.mark.parametrize("size", range(2, len(VECTOR_8)))
def test_cut_anywhere(size: int) -> None:
    with pytest.raises(MetadataCorrupt, match="/path"):
        unwrap(VECTOR_8[:size], "managed-ledger", "/path")


def test_an_unknown_codec() -> None:
    with pytest.raises(Unsupported):
        unwrap(bytes.fromhex("4778 00000004 08071016 00"), "cursor", "/path")


def test_a_size_beyond_the_limit() -> None:
    with pytest.raises(LimitExceeded):
        unwrap(bytes.fromhex("4778 00000008 080110ffffffff07 00"), "cursor", "/path")


# -- the header of values in RocksDB --------------------------------------------------------------------------------

VECTOR_9 = bytes.fromhex("00000029 00000001 0000000000000000 0000000000000003 0000018bcfe56800 0000018bcfe56800 00")
STAT_9 = NodeStat(version=0, owner=3, created_ms=1700000000000, modified_ms=1700000000000, ephemeral=False)


def test_vector_of_rocksvalue() -> None:
    assert decode_value(VECTOR_9 + b"value", "/path") == (STAT_9, b"value")
    assert encode_value(STAT_9, b"value") == VECTOR_9 + b"value"
    assert decode_value(VECTOR_9, "/path") == (STAT_9, b"")


def test_a_longer_header_is_skipped_by_its_size() -> None:
    grown = b"\x00\x00\x00\x2d" + VECTOR_9[4:] + b"more" + b"value"
    assert decode_value(grown, "/path") == (STAT_9, b"value")


def test_an_unknown_format_version_is_refused() -> None:
    with pytest.raises(Unsupported) as caught:
        decode_value(VECTOR_9[:7] + b"\x02" + VECTOR_9[8:], "/path")
    assert caught.value.context["found"] == 2


@pytest.mark.parametrize("header_size", [0, 40, 42, 2**31 - 1])
def test_a_header_size_that_does_not_fit(header_size: int) -> None:
    with pytest.raises(MetadataCorrupt, match="/path"):
        decode_value(header_size.to_bytes(4, "big") + VECTOR_9[4:], "/path")


@pytest.mark.parametrize("size", range(41))
def test_a_short_value(size: int) -> None:
    with pytest.raises(MetadataCorrupt):
        decode_value(VECTOR_9[:size], "/path")


def test_counters() -> None:
    assert decode_counter(b"\x00\x00\x00\x00\x00\x00\x01\x02", "key") == 258
    assert encode_counter(258) == b"\x00\x00\x00\x00\x00\x00\x01\x02"
    with pytest.raises(MetadataCorrupt):
        decode_counter(b"\x00", "key")
