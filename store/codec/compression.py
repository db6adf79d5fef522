"""The five codecs of Pulsar's messages and metadata values.

Upstream: ``CompressionCodecProvider``. LZ4 is one raw block, ZLIB a zlib stream (RFC 1950; Java's is flushed and never ended),
ZSTD a standard frame, SNAPPY a raw block. The size before compression lies beside the data, written by a client and unbounded
there. It is compared with a limit, with what the format could at most produce from that many bytes and with the size the data
itself states, before it sizes a buffer; a result of another size is corruption.
"""

import zlib
from collections.abc import Callable
from functools import cache

from pulsar_admin.store.errors import Corrupt, EntryCorrupt, LimitExceeded, Unsupported

NONE, LZ4, ZLIB, ZSTD, SNAPPY = range(5)
NAMES = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")
LIMIT_BYTES = 128 * 1024 * 1024

# The most output that N bytes of input can stand for. LZ4: one length byte adds 255. Snappy: a 3-byte copy of 64.
# ZSTD: a 4-byte block repeats one byte over a whole block of at most 128 KiB. Deflate cannot pass 1032 to 1.
_MAX_RATIO = {LZ4: 255, ZLIB: 1032, ZSTD: 128 * 1024 // 3, SNAPPY: 64}
_MAX_OVERHEAD_BYTES = 64
_LAZY_FROM_BYTES = 1024 * 1024
_SYNC_FLUSH = b"\x00\x00\xff\xff"  # end of what Z_SYNC_FLUSH writes: an empty stored block
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def codec_name(kind: int) -> str:
    """Return upstream's name of a compression type, or the number."""
    return NAMES[kind] if 0 <= kind < len(NAMES) else str(kind)


def compress(kind: int, data: bytes | memoryview) -> bytes:
    """Return compressed data in the form that Pulsar stores; raises Unsupported for any other codec than the five."""
    if kind == NONE:
        return bytes(data)
    if kind == ZLIB:
        return zlib.compress(data)
    if kind not in _MAX_RATIO:
        raise _unknown(kind, "value to write")
    import cramjam

    if kind == LZ4:
        return bytes(cramjam.lz4.compress_block(data, store_size=False))
    if kind == ZSTD:
        return bytes(cramjam.zstd.compress(data))
    return bytes(cramjam.snappy.compress_raw(data))


def decompress(
    kind: int,
    data: bytes | memoryview,
    uncompressed_size_bytes: int,
    *,
    where: str,
    limit_bytes: int = LIMIT_BYTES,
    error: type[Corrupt] = EntryCorrupt,
) -> bytes | memoryview:
    """Return decompressed data; NONE returns it unchanged, whatever size is stated.

    Raises LimitExceeded if the stated size passes the limit, Unsupported for an unknown codec, ``error`` if the data
    does not decompress to exactly the stated size.
    """
    if kind == NONE:
        return data
    if kind not in _MAX_RATIO:
        raise _unknown(kind, where)
    size = uncompressed_size_bytes
    if size > limit_bytes:
        raise LimitExceeded(
            f"{where}: {codec_name(kind)} payload states {size} bytes uncompressed, the limit is {limit_bytes}",
            where=where,
            limit_bytes=limit_bytes,
            found=size,
        )
    most = _MAX_RATIO[kind] * len(data) + _MAX_OVERHEAD_BYTES
    stated = _stated_size_bytes(kind, data)
    if not 0 <= size <= most or stated not in (None, size):
        raise error(
            f"{where}: {len(data)} bytes of {codec_name(kind)} cannot be {size} bytes uncompressed",
            where=where,
            expected=size,
            found=stated,
        )
    if kind == ZLIB:
        return _decompress_zlib(data, size, where, error)
    import mmap

    # Pages of an anonymous map exist once they are written, so a large size that is a lie costs nothing.
    output = memoryview(mmap.mmap(-1, size) if size >= _LAZY_FROM_BYTES else bytearray(size))
    if not fills(kind, data, output):
        raise _mismatch(kind, size, where, error)
    return output


def _unknown(kind: int, where: str) -> Unsupported:
    return Unsupported(f"{where}: compression type {kind} is not known", where=where, found=kind)


def _mismatch(kind: int, size: int, where: str, error: type[Corrupt]) -> Corrupt:
    return error(
        f"{where}: {codec_name(kind)} data does not decompress to {size} bytes",
        hint="the entry is damaged, encrypted or one chunk of a larger message",
        where=where,
        expected=size,
    )


def _decompress_zlib(data: bytes | memoryview, size: int, where: str, error: type[Corrupt]) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data, size + 1)
    except zlib.error as cause:
        raise _mismatch(ZLIB, size, where, error) from cause
    # Java's codec (CompressionCodecZLib) flushes its Deflater and never finishes it: its streams have no Adler-32.
    if len(plain) != size or not (stream.eof or data[-4:] == _SYNC_FLUSH):
        raise _mismatch(ZLIB, size, where, error)
    return plain


def may_fill(kind: int, data: bytes | memoryview, size_bytes: int) -> bool:
    """Whether data of this kind can decompress to ``size_bytes``, within the limit; detects a false huge size before
    memory is allocated."""
    most = _MAX_RATIO.get(kind, 0) * len(data) + _MAX_OVERHEAD_BYTES
    if kind not in _MAX_RATIO or not 0 <= size_bytes <= min(most, LIMIT_BYTES):
        return False
    return size_bytes < _LAZY_FROM_BYTES or _stated_size_bytes(kind, data) in (None, size_bytes)


def fills(kind: int, data: bytes | memoryview, output: memoryview) -> bool:
    """Decompress data into ``output``; return whether it is complete and fills ``output``. Only for a kind and sizes that ``may_fill``."""
    if kind == ZLIB:
        try:
            output[:] = _decompress_zlib(data, len(output), "data", Corrupt)
        except Corrupt:
            return False
        return True
    into, failed = _decoders()
    try:
        return bool(into[kind](data, output) == len(output))
    except failed:
        return False


@cache
def _decoders() -> tuple[dict[int, Callable[..., int]], type[Exception]]:
    import cramjam

    into = {
        LZ4: cramjam.lz4.decompress_block_into,
        ZSTD: cramjam.zstd.decompress_into,
        SNAPPY: cramjam.snappy.decompress_raw_into,
    }
    return into, cramjam.DecompressionError


def _stated_size_bytes(kind: int, data: bytes | memoryview) -> int | None:
    """Return the uncompressed size that the data itself states, where its format has one; None when it has not."""
    if kind == SNAPPY:
        size = 0
        for shift, byte in enumerate(data[:5]):
            size |= (byte & 0x7F) << (7 * shift)
            if byte < 0x80:
                return size
        return None
    if kind == ZSTD and data[:4] == _ZSTD_MAGIC and len(data) > 4:
        # Frame_Content_Size of the frame header (RFC 8878 §3.1.1.1), which may be absent.
        descriptor = data[4]
        size_code, single_segment = descriptor >> 6, descriptor >> 5 & 1
        if size_code == 0 and not single_segment:
            return None
        start = 5 + (not single_segment) + (0, 1, 2, 4)[descriptor & 3]
        width = (1, 2, 4, 8)[size_code]
        size = int.from_bytes(data[start : start + width], "little")
        return size + 256 if width == 2 else size
    return None
