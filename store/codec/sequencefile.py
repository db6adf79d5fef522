"""Hadoop's SequenceFile (version 6), as far as the file system offloader writes it: the ``data`` of a MapFile per ledger.

Keys are LongWritable (the entry's id, −1: the ledger's metadata), values BytesWritable. Upstream: ``FileSystemManagedLedgerOffloader``
(Pulsar 4.0.8), ``SequenceFile`` and ``WritableUtils`` (Hadoop 3). Whole, by records or by blocks; compressed with zlib
(``DefaultCodec``), which has a checksum. The layout is in docs/formats/offload.md.
"""

import re
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from pulsar_admin.store.codec.buffer import Reader
from pulsar_admin.store.errors import EntryLogCorrupt, Unsupported

METADATA_KEY = -1
_MAGIC, _VERSION = b"SEQ", 6
_KEY, _VALUE = "org.apache.hadoop.io.LongWritable", "org.apache.hadoop.io.BytesWritable"
_ZLIB = "org.apache.hadoop.io.compress.DefaultCodec"
_SYNC = -1
_SYNC_BYTES = 16
_PART_LIMIT_BYTES = 1 << 30
_LONG = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_DIRECTORY = re.compile(r"(\d+)-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.ASCII)
_HINT = "copy the file again"


class MapFileName(NamedTuple):
    """The ledger id and UUID in the name of a ledger's directory."""

    uuid: str
    ledger_id: int


def parse_map_file_name(name: str) -> MapFileName | None:
    """Return the ledger and UUID in the name of a MapFile's directory, None for any other name."""
    match = _DIRECTORY.fullmatch(name)
    return None if match is None else MapFileName(match[2], int(match[1]))


def iter_map_file(raw: bytes | memoryview, where: str) -> Iterator[tuple[int, bytes | memoryview]]:
    """Yield (key, value) of a SequenceFile; raises EntryLogCorrupt, Unsupported for another class or codec."""
    reader = Reader(raw, where, EntryLogCorrupt)
    magic, version = bytes(reader.take(3)), reader.u8()
    if (magic, version) != (_MAGIC, _VERSION):
        raise _corrupt(where, 0, f"expected {_MAGIC!r} version {_VERSION}, found {magic!r} version {version}")
    classes = _text(reader), _text(reader)
    if classes != (_KEY, _VALUE):
        raise Unsupported(f"{where}: keys and values are {classes}, expected {(_KEY, _VALUE)}", where=where)
    compressed, blocks = bool(reader.u8()), bool(reader.u8())
    codec = _text(reader) if compressed else _ZLIB
    if codec != _ZLIB:
        raise Unsupported(f"{where}: compressed with {codec}, only {_ZLIB} is read", where=where)
    for _ in range(2 * max(reader.i32(), 0)):
        _text(reader)
    sync = bytes(reader.take(_SYNC_BYTES))
    while reader.remaining:
        at = reader.pos
        size = reader.i32()
        if size == _SYNC:
            if bytes(reader.take(_SYNC_BYTES)) != sync:
                raise _corrupt(where, at, "the mark between records differs from the one at the beginning")
            if blocks:
                yield from _block(reader, where, at)
        elif blocks:
            raise _corrupt(where, at, "no mark before a block")
        else:
            key_bytes = reader.i32()
            if key_bytes != _LONG.size:
                raise _corrupt(where, at, f"a key of {key_bytes} bytes")
            (key,) = _LONG.unpack(reader.take(key_bytes))
            value = reader.take(size - key_bytes)
            yield (key, _value(_inflated(value, where, at) if compressed else value, where, at))


def _block(reader: Reader, where: str, at: int) -> Iterator[tuple[int, memoryview]]:
    count = _vint(reader)
    _, keys, lengths, values = (_inflated(reader.take(_vint(reader)), where, at) for _ in range(4))
    if len(keys) != _LONG.size * count:
        raise _corrupt(where, at, f"{count} records with {len(keys)} bytes of keys")
    sizes, rest = Reader(lengths, where, EntryLogCorrupt), Reader(values, where, EntryLogCorrupt)
    for (key,) in _LONG.iter_unpack(keys):
        yield key, _value(rest.take(_vint(sizes)), where, at)
    if sizes.remaining or rest.remaining:
        raise _corrupt(where, at, "a block holds more than its records")


def _value(raw: bytes | memoryview, where: str, at: int) -> memoryview:
    view = memoryview(raw)
    if len(view) < _LENGTH.size or _LENGTH.unpack_from(view)[0] != len(view) - _LENGTH.size:
        raise _corrupt(where, at, f"a value of {len(view)} bytes has another length in it")
    return view[_LENGTH.size :]


def _inflated(data: memoryview, where: str, at: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data, _PART_LIMIT_BYTES)
    except zlib.error as error:
        raise _corrupt(where, at, f"zlib: {error}") from error
    if not stream.eof or stream.unused_data:
        raise _corrupt(where, at, f"{len(data)} bytes of zlib do not end with it")
    return plain


def _vint(reader: Reader) -> int:
    """Return a number as ``WritableUtils.writeVInt`` writes it; below 0 none is expected."""
    first = reader.u8()
    first -= 256 if first > 127 else 0
    if first >= -112:
        return first
    size = -112 - first if first >= -120 else -120 - first
    number = int.from_bytes(reader.take(size), "big")
    return number if first >= -120 else ~number


def _text(reader: Reader) -> str:
    return bytes(reader.take(_vint(reader))).decode("utf-8", "replace")


def _corrupt(where: str, at: int, text: str) -> EntryLogCorrupt:
    return EntryLogCorrupt(f"{where} @ {at:#x}: {text}", hint=_HINT, where=where)
