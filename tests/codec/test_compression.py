import tracemalloc
import zlib

import pytest

from pulsar_admin.store.codec import compression as codec
from pulsar_admin.store.errors import EntryCorrupt, LimitExceeded, MetadataCorrupt, Unsupported

CODECS = (codec.LZ4, codec.ZLIB, codec.ZSTD, codec.SNAPPY)
HELLO = b"hello hello hello hello"

# Written by hand from the formats: an LZ4 block of literals only; the same as a raw Snappy block; zlib and zstd stored.
STORED = {
    codec.LZ4: b"\xf0\x08" + HELLO,
    codec.ZLIB: b"\x78\x01\x01\x17\x00\xe8\xff" + HELLO + zlib.adler32(HELLO).to_bytes(4, "big"),
    codec.ZSTD: b"\x28\xb5\x2f\xfd\x20\x17" + (1 | len(HELLO) << 3).to_bytes(3, "little") + HELLO,
    codec.SNAPPY: b"\x17\x58" + HELLO,
}


@pytest.mark.parametrize("kind", CODECS)
def test_reads_the_format(kind: int) -> None:
    assert codec.decompress(kind, STORED[kind], len(HELLO), where="10:0") == HELLO
    assert codec.decompress(kind, memoryview(STORED[kind]), len(HELLO), where="10:0") == HELLO


@pytest.mark.parametrize("kind", [codec.NONE, *CODECS])
@pytest.mark.parametrize("data", [b"", b"x", b"ab" * 4000, bytes(range(256)) * 9000], ids=["0", "1", "8 KB", "2.3 MB"])
def test_round_trip(kind: int, data: bytes) -> None:
    assert codec.decompress(kind, codec.compress(kind, data), len(data), where="10:0") == data


def test_java_never_ends_a_zlib_stream() -> None:
    """CompressionCodecZLib deflates with SYNC_FLUSH and calls no finish; a broker's compaction writes such batches too."""
    stream = zlib.compressobj()
    stored = stream.compress(HELLO) + stream.flush(zlib.Z_SYNC_FLUSH)
    assert codec.decompress(codec.ZLIB, stored, len(HELLO), where="10:0") == HELLO
    with pytest.raises(EntryCorrupt):
        codec.decompress(codec.ZLIB, stored, len(HELLO) + 1, where="10:0")
    with pytest.raises(EntryCorrupt):
        codec.decompress(codec.ZLIB, stored[:-1], len(HELLO), where="10:0")


def test_none_ignores_the_stated_size() -> None:
    assert codec.decompress(codec.NONE, b"abc", 0, where="10:0") == b"abc"


@pytest.mark.parametrize("kind", CODECS)
@pytest.mark.parametrize("change", [-1, 1, 1000])
def test_a_size_that_is_wrong(kind: int, change: int) -> None:
    data = b"ab" * 4000
    with pytest.raises(EntryCorrupt, match="10:0"):
        codec.decompress(kind, codec.compress(kind, data), len(data) + change, where="10:0")


@pytest.mark.parametrize("kind", CODECS)
@pytest.mark.parametrize(
    ("data", "size"), [(HELLO, -1), (HELLO, -(2**31)), (HELLO, 100_000_000), (bytes(50_000_000), 100_000)]
)
def test_a_size_that_is_absurd_costs_no_memory(kind: int, data: bytes, size: int) -> None:
    stored = codec.compress(kind, data)
    tracemalloc.start()
    try:
        with pytest.raises(EntryCorrupt):
            codec.decompress(kind, stored, size, where="10:0")
        assert tracemalloc.get_traced_memory()[1] < (1_000_000 if data is HELLO else 3_000_000)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", CODECS)
def test_the_limit(kind: int) -> None:
    bomb = codec.compress(kind, bytes(3_000_000))
    assert len(codec.decompress(kind, bomb, 3_000_000, where="10:0")) == 3_000_000
    with pytest.raises(LimitExceeded) as caught:
        codec.decompress(kind, bomb, 3_000_000, where="10:0", limit_bytes=2_999_999)
    assert caught.value.context["limit_bytes"] == 2_999_999


@pytest.mark.parametrize("kind", CODECS)
def test_cut_data(kind: int) -> None:
    stored = codec.compress(kind, bytes(range(256)))
    for size in range(len(stored)):
        with pytest.raises(EntryCorrupt):
            codec.decompress(kind, stored[:size], 256, where="10:0")


def test_the_error_is_of_the_asked_class() -> None:
    with pytest.raises(MetadataCorrupt):
        codec.decompress(codec.ZSTD, b"nonsense", 8, where="/path", error=MetadataCorrupt)


@pytest.mark.parametrize("kind", [5, -1, 99])
def test_unknown_codecs(kind: int) -> None:
    with pytest.raises(Unsupported):
        codec.decompress(kind, b"data", 4, where="10:0")
    with pytest.raises(Unsupported):
        codec.compress(kind, b"data")
    assert codec.codec_name(kind) == str(kind)


def test_names() -> None:
    assert [codec.codec_name(kind) for kind in (codec.NONE, *CODECS)] == ["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"]


@pytest.mark.parametrize("kind", CODECS)
def test_what_fills_a_buffer_and_what_does_not(kind: int) -> None:
    plain = b"abc" * 500
    stored = codec.compress(kind, plain)
    room = bytearray(b"." * 1502)
    assert codec.fills(kind, memoryview(stored), memoryview(room)[1:1501])
    assert room == b"." + plain + b"."
    for size in (0, 1499, 1501):
        assert not codec.fills(kind, memoryview(stored), memoryview(bytearray(size)))
    assert not codec.fills(kind, memoryview(stored)[:-5], memoryview(bytearray(1500)))
    assert not codec.fills(kind, memoryview(b""), memoryview(bytearray(1500)))
    assert codec.may_fill(kind, stored, 1500)
    assert not codec.may_fill(kind, stored, -1)
    assert not codec.may_fill(kind, bytes(2 * codec.LIMIT_BYTES // 64), codec.LIMIT_BYTES + 1)
    assert not codec.may_fill(kind, bytes(10), codec.LIMIT_BYTES)
    assert not codec.may_fill(9, stored, 1500)


@pytest.mark.parametrize("kind", [codec.ZSTD, codec.SNAPPY])
def test_a_large_lie_gets_no_room_where_the_data_say_their_size(kind: int) -> None:
    stored = codec.compress(kind, bytes(4 << 20))
    assert codec.may_fill(kind, stored, 4 << 20)
    assert not codec.may_fill(kind, stored, (4 << 20) + 1)
