"""Kernel of compaction over entries, compiled by numba: framing and metadata as spans and numbers.

It knows well-formed entries; what it cannot read is marked ``STRANGE`` and kept whole. Layouts: docs/formats/message.md,
compacted-ledger.md.
"""
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False, check-untyped-defs=False

from __future__ import annotations

import numpy as np
from numba import njit

from store.kernels.crc import START, crc32c
from store.kernels.records import _i32, _skip, _varint

SINGLE, BATCH, ENCRYPTED_BATCH, CHUNK, MARKER, STRANGE, BROKEN, UNCOMMITTED = range(8)
"""Kinds of entries. STRANGE: no message that can be read; BROKEN: not even a compacted entry; UNCOMMITTED: of a transaction
that was not committed (told by the caller)."""

HAS_TRANSACTION, IN_SCRATCH, HAS_PLAIN_SIZE, BAD_INDEXES, SAYS_NULL, NULLS_AS_4_0 = 1, 2, 4, 8, 16, 32
"""Flags of entries. BAD_INDEXES: field 31 does not ascend within the batch. SAYS_NULL: field 25. NULLS_AS_4_0: told by the caller."""

ENTRY = np.dtype(
    [
        ("ledger_id", np.int64),  # the original position
        ("entry_id", np.int64),
        ("id_start", np.int64),  # the MessageIdData of a compacted entry; 0, 0 for others
        ("id_end", np.int64),
        ("start", np.int64),  # the entry as a topic holds it, broker metadata included
        ("end", np.int64),
        ("front_end", np.int64),  # behind the broker metadata
        ("meta_start", np.int64),
        ("meta_end", np.int64),
        ("key_start", np.int64),
        ("key_length", np.int64),  # −1: no key
        ("plain_start", np.int64),  # the uncompressed payload, in scratch memory with IN_SCRATCH
        ("plain_end", np.int64),
        ("plain_bytes", np.int64),  # field 9, with HAS_PLAIN_SIZE
        ("publish_ms", np.int64),
        ("transaction_most", np.int64),
        ("transaction_least", np.int64),
        ("uuid_start", np.int64),
        ("uuid_length", np.int64),
        ("messages", np.int32),  # field 11, 1 outside batches
        ("codec", np.int32),
        ("chunk_id", np.int32),
        ("chunks", np.int32),
        ("indexes", np.int32),  # how many field 31 lists
        ("last_index", np.int64),  # the last one of them, −1 for none
        ("kind", np.uint8),
        ("flags", np.uint8),
    ]
)


@njit(cache=True, boundscheck=False)
def read_entries(data, begins, ends, compacted, verify, rows):
    """Fill ROWS from the entry payloads data[begins[i]:ends[i]], which are a compacted ledger's if COMPACTED.

    Positions of others are left as they are. VERIFY: an entry whose own CRC-32C is wrong is STRANGE.
    """
    for i in range(begins.shape[0]):
        row = rows[i]
        _clear(row, begins[i], ends[i])
        if compacted and not _read_id(data, row):
            row.kind = BROKEN
        elif not _read_front(data, row, verify) or not _read_metadata(data, row):
            row.kind = STRANGE
        else:
            row.plain_start, row.plain_end = row.meta_end, row.end
            row.kind = _kind(row)


@njit(cache=True, boundscheck=False)
def _clear(row, begin, end):
    row.id_start = row.id_end = 0
    row.start = row.front_end = row.meta_start = row.meta_end = row.plain_start = begin
    row.end = row.plain_end = end
    row.key_start = row.uuid_start = row.uuid_length = 0
    row.key_length = -1
    row.plain_bytes = row.publish_ms = row.transaction_most = row.transaction_least = 0
    row.messages = row.last_index = -1
    row.codec = row.chunk_id = row.chunks = row.indexes = 0
    row.kind = STRANGE
    row.flags = 0


@njit(cache=True, boundscheck=False)
def _read_id(data, row):
    """Read ``u32 a | MessageIdData(a) | u32 b`` of a compacted entry; False when it is none."""
    at, end = row.start, row.end
    if end - at < 8:
        return False
    size = np.int64(_i32(data, at))
    id_start = at + 4
    id_end = id_start + size
    if size < 0 or id_end + 4 > end or np.int64(_i32(data, id_end)) != end - id_end - 4:
        return False
    seen = 0
    place = id_start
    while place < id_end:
        tag, place = _varint(data, place, id_end)
        if place < 0:
            return False
        if tag == 8 or tag == 16:
            value, place = _varint(data, place, id_end)
            if tag == 8:
                row.ledger_id = np.int64(value)
            else:
                row.entry_id = np.int64(value)
            seen |= np.int64(tag)
        else:
            place = _skip(data, place, id_end, tag & 7)
        if place < 0:
            return False
    row.id_start, row.id_end = id_start, id_end
    row.start = row.front_end = id_end + 4
    return seen == 24


@njit(cache=True, boundscheck=False)
def _read_front(data, row, verify):
    """Find the metadata behind broker metadata and checksum; False when the framing or the checksum is wrong."""
    at, end = row.start, row.end
    if end - at >= 6 and data[at] == 0x0E and data[at + 1] == 0x02:
        size = np.int64(_i32(data, at + 2))
        if size < 0 or size > end - at - 6:
            return False
        at += 6 + size
    row.front_end = at
    if end - at >= 6 and data[at] == 0x0E and data[at + 1] == 0x01:
        expected = np.uint32(_i32(data, at + 2))
        at += 6
        if verify and np.uint32(crc32c(data, at, end, START)) ^ START != expected:
            return False
    if end - at < 4:
        return False
    size = np.int64(_i32(data, at))
    if size <= 0 or size > end - at - 4:
        return False
    row.meta_start = at + 4
    row.meta_end = at + 4 + size
    return True


@njit(cache=True, boundscheck=False)
def _read_metadata(data, row):
    """Walk the MessageMetadata; False when it is none or lacks a required field."""
    required = 0
    encrypted = marker = False
    most = least = False
    at, end = row.meta_start, row.meta_end
    while at < end:
        tag, at = _varint(data, at, end)
        if at < 0:
            return False
        number, wire = np.int64(tag) >> 3, np.int64(tag) & 7
        if wire == 0:
            value, at = _varint(data, at, end)
            if at < 0 or number == 0:
                return False
            required |= (1 if number == 2 else 0) | (2 if number == 3 else 0)
            marker |= number == 20
            most |= number == 23
            least |= number == 22
            _take_number(row, number, np.int64(value))
        elif wire == 2:
            length, at = _varint(data, at, end)
            if at < 0 or np.int64(length) < 0 or np.int64(length) > end - at or number == 0:
                return False
            required |= 4 if number == 1 else 0
            encrypted |= number == 13
            _take_bytes(data, row, number, (at, np.int64(length)))
            at += np.int64(length)
        else:
            at = _skip(data, at, end, wire)
            if at < 0 or number == 0:
                return False
    row.flags |= HAS_TRANSACTION if most and least else 0
    row.flags |= BAD_INDEXES if row.indexes > 0 and row.last_index >= row.messages else 0
    row.kind = MARKER if marker else ENCRYPTED_BATCH if encrypted else SINGLE
    return required == 7 and at == end


@njit(cache=True, inline="always", boundscheck=False)
def _take_number(row, number, value):
    if number == 3:
        row.publish_ms = value
    elif number == 8:
        row.codec = value
    elif number == 9:
        row.plain_bytes = value
        row.flags |= HAS_PLAIN_SIZE
    elif number == 11:
        row.messages = value
    elif number == 22:
        row.transaction_least = value
    elif number == 23:
        row.transaction_most = value
    elif number == 25:
        row.flags |= SAYS_NULL if value != 0 else 0
    elif number == 27:
        row.chunks = value
    elif number == 29:
        row.chunk_id = value
    elif number == 31:
        _take_index(row, value)


@njit(cache=True, boundscheck=False)
def _take_index(row, index):
    row.indexes += 1
    if index <= row.last_index:
        row.flags |= BAD_INDEXES
    row.last_index = index


@njit(cache=True, inline="always", boundscheck=False)
def _take_bytes(data, row, number, span):
    at, length = span
    if number == 6:
        row.key_start, row.key_length = at, length
    elif number == 26:
        row.uuid_start, row.uuid_length = at, length
    elif number == 31:  # packed
        place = at
        while 0 <= place < at + length:
            index, place = _varint(data, place, at + length)
            _take_index(row, np.int64(index))


@njit(cache=True, inline="always", boundscheck=False)
def _kind(row):
    """Return the kind of an entry whose ``kind`` so far tells markers and encryption only."""
    if row.kind == MARKER:
        return MARKER
    if row.chunks > 1:
        return CHUNK
    if row.messages == -1:
        return SINGLE
    if row.kind == ENCRYPTED_BATCH:
        return ENCRYPTED_BATCH
    return BATCH if row.messages >= 0 else STRANGE


# -- entries kept whole -----------------------------------------------------------------------------------------------


@njit(cache=True, boundscheck=False)
def frame_whole(data, rows, chosen, partition, out, starts):
    """Write ``u32 a | MessageIdData(a) | u32 b | entry(b)`` of every entry of CHOSEN into OUT; fills STARTS, one more for the end.

    An entry of a compacted ledger keeps the id it has, another gets one with PARTITION.
    """
    at = 0
    for k in range(chosen.shape[0]):
        row = rows[chosen[k]]
        starts[k] = at
        id_start = at + 4
        if row.id_end > row.id_start:
            end = _copy(data, row.id_start, row.id_end, out, id_start)
        else:
            end = _put_number(out, id_start, 8, row.ledger_id)
            end = _put_number(out, end, 16, row.entry_id)
            end = _put_number(out, end, 24, partition)
        _put_u32(out, at, end - id_start)
        _put_u32(out, end, row.end - row.start)
        at = _copy(data, row.start, row.end, out, end + 4)
    starts[chosen.shape[0]] = at


@njit(cache=True, inline="always", boundscheck=False)
def _copy(data, start, end, out, at):
    for i in range(end - start):
        out[at + i] = data[start + i]
    return at + end - start


@njit(cache=True, inline="always", boundscheck=False)
def _put_u32(out, at, value):
    out[at] = value >> 24 & 0xFF
    out[at + 1] = value >> 16 & 0xFF
    out[at + 2] = value >> 8 & 0xFF
    out[at + 3] = value & 0xFF


@njit(cache=True, inline="always", boundscheck=False)
def _put_number(out, at, tag, value):
    """Write TAG and VALUE as varints; a negative one as ten bytes."""
    out[at] = tag
    at += 1
    rest = np.uint64(value)
    while rest >= np.uint64(0x80):
        out[at] = np.uint8(rest & np.uint64(0x7F)) | np.uint8(0x80)
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1
