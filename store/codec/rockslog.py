"""Records of RocksDB's log files: write-ahead logs (``NNNNNN.log``) and MANIFEST.

Source: ``db/log_format.h``, ``db/log_reader.cc``, ``db/log_writer.cc`` (RocksDB 7.9, 9.x). A log is a row of blocks of 32 KiB, each a
row of fragments; a record that does not fit into its block goes on in the next ones. The rest of a block, shorter than a header, is
zero.

======  ====  ============================================================================
offset  size  field of a fragment
======  ====  ============================================================================
0       4     masked CRC-32C of type and payload, little-endian
4       2     payload length, little-endian
6       1     type: 1 a whole record, 2 its first fragment, 3 one in the middle, 4 the last
7       n     payload
======  ====  ============================================================================

RocksDB's own reader never ends on some damaged logs (a bit that makes type 4 of 6, in every recovery mode) and passes over a block
that begins with zeros without a word, so a log is read here before it is given one. Recycled and compressed logs, which neither
Pulsar nor BookKeeper writes, begin with another type: ``is_plain_log`` tells.
"""

import struct
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import BinaryIO

import google_crc32c

_HEADER = struct.Struct(
    "<I"  # masked CRC-32C
    "H"  #  payload length
    "B"  #  type
)
BLOCK_BYTES = 1 << 15
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_DAMAGED, _TORN, _ZEROS = -1, -2, -3
_MASK_DELTA = 0xA282EAD8


class Flaw(Enum):
    """Damage in a log, in the place of records."""

    DAMAGED = "damaged"
    TORN = "the log ends within a record"


def iter_log_records(file: BinaryIO) -> Iterator[bytes | Flaw]:
    """Yield the records of a log from its beginning, and a Flaw for each place where something is damaged or missing."""
    begun: list[bytes] = []
    for kind, payload in _iter_fragments(file):
        if kind in (_MIDDLE, _LAST) and begun:
            begun.append(payload)
            if kind == _LAST:
                yield b"".join(begun)
                begun = []
            continue
        if begun or kind not in (_FULL, _FIRST):
            yield Flaw.TORN if kind == _TORN else Flaw.DAMAGED
        begun = [payload] if kind == _FIRST else []
        if kind == _FULL:
            yield payload
    if begun:
        yield Flaw.TORN


def _iter_fragments(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield (type, payload) of every fragment, a negative type for damage; zeros up to the end of the file are its end."""
    start, data_end = 0, -1
    while block := file.read(BLOCK_BYTES):
        for kind, payload in _iter_block(block):
            if kind == _ZEROS and data_end < 0:
                data_end = _end_of_data(file)
            if kind == _ZEROS and start >= data_end:
                return
            yield kind, payload
        start += len(block)


def _iter_block(block: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while len(block) - position >= _HEADER.size:
        end = _end_of_fragment(block, position)
        if end:
            yield block[position + 6], block[position + _HEADER.size : end]
            position = end
        elif any(block[position:]):
            position, is_torn = _next_fragment(block, position)
            yield (_TORN if is_torn else _DAMAGED), b""
        else:
            yield _ZEROS, b""
            position = len(block)
    if len(block) < BLOCK_BYTES and any(block[position:]):
        yield _TORN, b""


def _end_of_fragment(block: bytes, position: int) -> int:
    """Return the end of the fragment at ``position``, 0 without one."""
    if position + _HEADER.size > len(block):
        return 0
    checksum, length, kind = _HEADER.unpack_from(block, position)
    end: int = position + _HEADER.size + length
    if not _FULL <= kind <= _LAST or end > len(block):
        return 0
    return end if checksum == masked_crc(block[position + 6 : end]) else 0


def _next_fragment(block: bytes, position: int) -> tuple[int, bool]:
    """Return where to continue after the damage at ``position``, and whether the log's end cuts a fragment there.

    The damaged length is believed if a fragment follows it. In the log's last block, which no other follows, all
    positions are tried: complete fragments after the damage distinguish it from a cut.
    """
    length: int = _HEADER.unpack_from(block, position)[1]
    following = position + _HEADER.size + length
    if _end_of_fragment(block, following):
        return following, False
    if len(block) == BLOCK_BYTES or following <= len(block):
        return len(block), False
    places = (place for place in range(position + 1, len(block)) if _end_of_fragment(block, place))
    following = next(places, len(block))
    return following, following == len(block)


def _end_of_data(file: BinaryIO) -> int:
    """Return the end of the last block from here on that is not zero, 0 without one; the file's position is kept."""
    position, end = file.tell(), 0
    while block := file.read(BLOCK_BYTES):
        if any(block):
            end = file.tell()
    file.seek(position)
    return end


def masked_crc(data: bytes) -> int:
    """Return the CRC-32C of data in RocksDB's stored form."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def is_plain_log(file: BinaryIO) -> bool:
    """Whether a file, at its beginning, holds records as described here: false if complete ones of another type come first."""
    head = file.read(BLOCK_BYTES)
    file.seek(0)
    if len(head) < _HEADER.size:
        return True
    checksum, length, kind = _HEADER.unpack_from(head)
    if _FULL <= kind <= _LAST:
        return True
    end = _HEADER.size + length
    # A recycled log's fragments name their log in 4 bytes more.
    return all(checksum != masked_crc(head[6:known]) for known in (end, end + 4))


def encode_log(records: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a log of records."""
    left = BLOCK_BYTES
    for record in records:
        position, is_first, is_last = 0, True, False
        while not is_last:
            if left < _HEADER.size:
                yield bytes(left)
                left = BLOCK_BYTES
            part = record[position : position + left - _HEADER.size]
            is_last = position + len(part) == len(record)
            kind = (_FULL if is_last else _FIRST) if is_first else (_LAST if is_last else _MIDDLE)
            yield _HEADER.pack(masked_crc(bytes([kind]) + part), len(part), kind) + part
            position, is_first = position + len(part), False
            left -= _HEADER.size + len(part)


def encode_put(key: bytes, value: bytes) -> bytes:
    """Return a record of a write-ahead log that puts one short pair, with sequence number 1."""
    assert max(len(key), len(value)) < 0x80, "lengths of one byte"
    return struct.pack("<QIBB", 1, 1, 1, len(key)) + key + bytes([len(value)]) + value
