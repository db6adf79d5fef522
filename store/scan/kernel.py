"""The one-pass kernel: entry-log records → columns (ids, places, digests, times, counts), compiled by numba.

It knows the happy path only: contiguous records that validate. At anything else it stops and says where; the caller asks
``store.codec.entrylog`` (the reference reader) how to go on. Layouts: docs/formats/entry-log.md, message.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import njit, types
from numba.extending import intrinsic

# Why the kernel stopped.
FULL, END, STRANGE, MORE = (
    0,
    1,
    2,
    3,
)  # rows full · reached the end · no valid record here · record goes on behind the window

# Flag bits of a record.
BAD_DIGEST = 1
UNFRAMED = 2  # payload is no message entry (cursor, schema, transaction log … ledgers)
BATCH = 4
MARKER = 8
ENCRYPTED = 16
CHUNK = 32
TRANSACTION = 64
HAS_BROKER_TIME = 128
UNVERIFIED = 256  # digest not checked: switched off, or a type that cannot be checked here (HMAC, DUMMY)
COMPRESSED = 512
NULL_VALUE = 1024

RECORD = np.dtype(
    [
        ("ledger_id", np.int64),
        ("entry_id", np.int64),
        ("offset", np.int64),  # of the record's size field
        ("publish_ms", np.int64),
        ("broker_ms", np.int64),
        ("deliver_at_ms", np.int64),  # 0 = not delayed
        ("length", np.int64),  # the body's cumulative length field
        ("lac", np.int64),  # last add confirmed as the writer knew it
        ("size", np.int32),  # value of the size field
        ("messages", np.int32),  # field 11; 1 for everything else
        ("digest_bytes", np.int16),
        ("flags", np.int16),
    ]
)


def _crc_tables(polynomial: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the eight tables of slicing-by-8 for a reflected 32-bit POLYNOMIAL."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (polynomial if value & 1 else 0)
        tables[0, byte] = value
    for byte in range(256):
        for row in range(1, 8):
            before = int(tables[row - 1, byte])
            tables[row, byte] = (before >> 8) ^ int(tables[0, before & 0xFF])
    return tables


_CRC32_TABLES = _crc_tables(0xEDB88320)
_CRC32C_TABLES = _crc_tables(0x82F63B78)
_HAS_CRC_INSTRUCTION = bool(get_host_cpu_features().get("sse4.2", False))


@intrinsic
def _crc32c_8(typingctx: Any, crc: Any, word: Any) -> Any:  # Any: numba's typing objects
    """Advance a CRC-32C by eight bytes with the processor's own instruction (SSE 4.2)."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        i64 = ir.IntType(64)
        function = builder.module.globals.get("llvm.x86.sse42.crc32.64.64")
        if function is None:
            function = ir.Function(builder.module, ir.FunctionType(i64, [i64, i64]), "llvm.x86.sse42.crc32.64.64")
        return builder.call(function, arguments)

    return types.uint64(types.uint64, types.uint64), codegen


@intrinsic
def _load_8(typingctx: Any, array: Any, offset: Any) -> Any:  # Any: numba's typing objects
    """Read eight little-endian bytes of a uint8 array at OFFSET, unaligned."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.gep(data, [arguments[1]])
        pointer = builder.bitcast(place, ir.IntType(64).as_pointer())
        return builder.load(pointer, align=1)

    return types.uint64(array, types.int64), codegen


@njit(cache=True, inline="always", boundscheck=False)
def _i32(data, at):
    return np.int32(
        (np.uint32(data[at]) << 24)
        | (np.uint32(data[at + 1]) << 16)
        | (np.uint32(data[at + 2]) << 8)
        | np.uint32(data[at + 3])
    )


@njit(cache=True, inline="always", boundscheck=False)
def _i64(data, at):
    return (np.int64(_i32(data, at)) << 32) | np.int64(np.uint32(_i32(data, at + 4)))


@njit(cache=True, boundscheck=False)
def _crc_bytes(data, start, end, crc, tables):
    """Slicing-by-8 over data[start:end], state in and out (no final inversion)."""
    crc = np.uint32(crc)
    at = start
    while at + 8 <= end:
        word = _load_8(data, at) ^ np.uint64(crc)
        crc = (
            tables[7, word & 0xFF]
            ^ tables[6, (word >> np.uint64(8)) & 0xFF]
            ^ tables[5, (word >> np.uint64(16)) & 0xFF]
            ^ tables[4, (word >> np.uint64(24)) & 0xFF]
            ^ tables[3, (word >> np.uint64(32)) & 0xFF]
            ^ tables[2, (word >> np.uint64(40)) & 0xFF]
            ^ tables[1, (word >> np.uint64(48)) & 0xFF]
            ^ tables[0, (word >> np.uint64(56)) & 0xFF]
        )
        at += 8
    while at < end:
        crc = (crc >> np.uint32(8)) ^ tables[0, (crc ^ np.uint32(data[at])) & np.uint32(0xFF)]
        at += 1
    return crc


if _HAS_CRC_INSTRUCTION:

    @njit(cache=True, boundscheck=False)
    def _crc32c_bytes(data, start, end, crc):
        state = np.uint64(crc)
        at = start
        while at + 8 <= end:
            state = _crc32c_8(state, _load_8(data, at))
            at += 8
        return _crc_bytes(data, at, end, np.uint32(state), _CRC32C_TABLES)

else:

    @njit(cache=True, boundscheck=False)
    def _crc32c_bytes(data, start, end, crc):
        return _crc_bytes(data, start, end, crc, _CRC32C_TABLES)


@njit(cache=True, boundscheck=False)
def _digest_matches(data, body, end, digest_bytes):
    """Whether the digest (4 = CRC-32C, 8 = CRC-32) at body + 32 covers the 32 header bytes and the payload."""
    if body + 32 + digest_bytes > end:
        return False
    start = body + 32 + digest_bytes
    if digest_bytes == 4:
        crc = _crc32c_bytes(data, body, body + 32, np.uint32(0xFFFFFFFF))
        crc = _crc32c_bytes(data, start, end, crc)
        return np.uint32(_i32(data, body + 32)) == (np.uint32(crc) ^ np.uint32(0xFFFFFFFF))
    crc = _crc_bytes(data, body, body + 32, np.uint32(0xFFFFFFFF), _CRC32_TABLES)
    crc = _crc_bytes(data, start, end, crc, _CRC32_TABLES)
    expected = np.uint32(crc) ^ np.uint32(0xFFFFFFFF)
    return _i32(data, body + 32) == 0 and np.uint32(_i32(data, body + 36)) == expected


@njit(cache=True, inline="always", boundscheck=False)
def _varint(data, at, end):
    """Return (value, next offset); next offset −1 when the varint runs past END or is too long."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end and shift < 70:
        byte = np.uint64(data[at])
        at += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < 0x80:
            return value, at
        shift += np.uint64(7)
    return value, np.int64(-1)


@njit(cache=True, boundscheck=False)
def _skip(data, at, end, wire):
    """Return the offset behind a field of wire type WIRE, or −1."""
    if wire == 0:
        _, at = _varint(data, at, end)
        return at
    if wire == 2:
        length, at = _varint(data, at, end)
        if at < 0 or length > np.uint64(end - at):
            return np.int64(-1)
        return at + np.int64(length)
    step = 8 if wire == 1 else 4 if wire == 5 else -1
    return at + step if step > 0 and at + step <= end else np.int64(-1)


@njit(cache=True, boundscheck=False)
def _read_metadata(data, at, end, out):
    """Walk one MessageMetadata into OUT; False when it is no valid protobuf or lacks its required fields."""
    publish = False
    producer = False
    while at < end:
        tag, at = _varint(data, at, end)
        if at < 0:
            return False
        number = tag >> np.uint64(3)
        wire = tag & np.uint64(7)
        if wire == 0:
            value, at = _varint(data, at, end)
            if at < 0:
                return False
            if number == 3:
                out.publish_ms = np.int64(value)
                publish = True
            elif number == 11:
                out.messages = np.int32(value)
                out.flags |= BATCH
            elif number == 19:
                out.deliver_at_ms = np.int64(value)
            elif number == 20:
                out.flags |= MARKER
            elif number == 22:
                out.flags |= TRANSACTION
            elif number == 8 and value != 0:
                out.flags |= COMPRESSED
            elif number == 29:
                out.flags |= CHUNK
            elif number == 25 and value != 0:
                out.flags |= NULL_VALUE
            elif number == 0:
                return False
        else:
            if number == 1 and wire == 2:
                producer = True
            elif number == 13:
                out.flags |= ENCRYPTED
            elif number == 0:
                return False
            at = _skip(data, at, end, wire)
            if at < 0:
                return False
    return publish and producer and at == end


@njit(cache=True, boundscheck=False)
def _read_payload(data, at, end, out):
    """Fill OUT's message columns from the entry payload data[at:end]; sets UNFRAMED when it is no message."""
    out.publish_ms = -1
    out.broker_ms = -1
    out.deliver_at_ms = 0
    out.messages = 1
    framed = False
    if end - at >= 6 and data[at] == 0x0E and data[at + 1] == 0x02:
        size = np.int64(np.uint32(_i32(data, at + 2)))
        stop = at + 6 + size
        if stop <= end:
            place = at + 6
            while place >= 0 and place < stop:
                tag, place = _varint(data, place, stop)
                if place < 0:
                    break
                if tag == 8:
                    value, place = _varint(data, place, stop)
                    if place >= 0:
                        out.broker_ms = np.int64(value)
                        out.flags |= HAS_BROKER_TIME
                else:
                    place = _skip(data, place, stop, tag & np.uint64(7))
            at = stop if place >= 0 else end
    if end - at >= 6 and data[at] == 0x0E and data[at + 1] == 0x01:
        at += 6
    if end - at >= 4:
        size = np.int64(np.uint32(_i32(data, at)))
        if size > 0 and size <= end - at - 4:
            framed = _read_metadata(data, at + 4, at + 4 + size, out)
    if not framed:
        out.flags = (out.flags & (BAD_DIGEST | UNVERIFIED)) | UNFRAMED
        out.publish_ms = -1
        out.broker_ms = -1
        out.deliver_at_ms = 0
        out.messages = 1


@njit(cache=True, boundscheck=False)
def _check_digest(data, body, end, kind, verify, out):
    """Set OUT's digest_bytes and digest flags. KIND: digest bytes of the ledger's metadata, or −1 when unknown."""
    if kind == 0 or kind == 20:
        out.digest_bytes = kind
        out.flags |= UNVERIFIED
        return
    if not verify:
        out.digest_bytes = kind if kind > 0 else (8 if _i32(data, body + 32) == 0 else 4)
        out.flags |= UNVERIFIED
        return
    first = 8 if kind == 8 else 4
    if _digest_matches(data, body, end, first):
        out.digest_bytes = first
        return
    if kind < 0 and _digest_matches(data, body, end, 8):
        out.digest_bytes = 8
        return
    out.digest_bytes = first
    out.flags |= BAD_DIGEST


@njit(cache=True, boundscheck=False)
def _kind_of(ledger_id, known, kinds):
    low, high = 0, known.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if known[middle] < ledger_id:
            low = middle + 1
        else:
            high = middle
    return kinds[low] if low < known.shape[0] and known[low] == ledger_id else np.int16(-1)


@njit(cache=True, boundscheck=False)
def read_body(data, body, size, known, kinds, verify, out):
    """Fill OUT from the entry body data[body:body+size]; False when its ids or counters cannot be an entry's."""
    ledger_id = _i64(data, body)
    entry_id = _i64(data, body + 8)
    lac = _i64(data, body + 16)
    length = _i64(data, body + 24)
    if ledger_id < 0 or entry_id < 0 or lac < -1 or length < 0:
        return False
    out.ledger_id = ledger_id
    out.entry_id = entry_id
    out.lac = lac
    out.length = length
    out.size = size
    out.flags = 0
    kind = _kind_of(ledger_id, known, kinds)
    _check_digest(data, body, body + size, kind, verify, out)
    if out.flags & BAD_DIGEST == 0 and 32 + out.digest_bytes <= size:
        _read_payload(data, body + 32 + out.digest_bytes, body + size, out)
    else:
        out.publish_ms = -1
        out.broker_ms = -1
        out.deliver_at_ms = 0
        out.messages = 1
        out.flags |= UNFRAMED
    return True


@njit(cache=True, boundscheck=False)
def scan_log(window, start, stop, behind, ledgers, verify, out):
    """Read entry-log records from window[start]; return (records, next offset in the window, why it stopped).

    ``window``: uint8, a part of the file; ``stop``: records that begin at or behind it are left; ``behind``: bytes of the file
    behind the window; ``ledgers``: (sorted ledger ids, their digest bytes 4, 8, 20 or 0); ``out``: RECORD rows, offsets relative
    to the window.
    """
    known, kinds = ledgers
    count = 0
    at = start
    here = window.shape[0]
    while at < stop:
        if count == out.shape[0]:
            return count, at, FULL
        if at + 20 > here:
            return count, at, MORE if behind > 0 else STRANGE
        size = np.int64(_i32(window, at))
        if size < 20 or size > here + behind - at - 4:
            return count, at, STRANGE
        special = _i64(window, at + 4) == -1
        if special and _i64(window, at + 12) != -2 and _i64(window, at + 12) != 0:
            return count, at, STRANGE
        if not special and size < 32:
            return count, at, STRANGE
        if at + 4 + size > here:
            return count, at, MORE
        if not special:
            if not read_body(window, at + 4, size, known, kinds, verify, out[count]):
                return count, at, STRANGE
            out[count].offset = at
            count += 1
        at += 4 + size
    return count, at, END


@njit(cache=True, boundscheck=False)
def _is_zero(data, start, end):
    for at in range(start, end):
        if data[at] != 0:
            return False
    return True


@njit(cache=True, boundscheck=False)
def scan_journal(window, start, behind, ledgers, verify, out):
    """Read journal records (docs/formats/journal.md) from window[start]; as ``scan_log``.

    Padding and records that are no entries (master key, fence, explicit LAC) are passed over; a length of 0 is the END.
    """
    known, kinds = ledgers
    count = 0
    at = start
    here = window.shape[0]
    while True:
        if count == out.shape[0]:
            return count, at, FULL
        if at + 8 > here:
            if behind > 0:
                return count, at, MORE
            return count, at, END if _is_zero(window, at, here) else STRANGE
        size = np.int64(_i32(window, at))
        if size == 0:
            return count, at, END
        padding = size == -0x100
        if padding:
            size = np.int64(_i32(window, at + 4)) + 4
        if size < (4 if padding else 16) or size > here + behind - at - 4:
            return count, at, STRANGE
        if at + 4 + size > here:
            return count, at, MORE
        if padding:
            # A wrong length must not swallow records: padding is zeros.
            if not _is_zero(window, at + 8, at + 4 + size):
                return count, at, STRANGE
        elif _i64(window, at + 12) < 0:
            kind = _i64(window, at + 12)
            if kind != -0x1000 and kind != -0x2000 and kind != -0x8000:
                return count, at, STRANGE
        else:
            if size < 32 or not read_body(window, at + 4, size, known, kinds, verify, out[count]):
                return count, at, STRANGE
            out[count].offset = at
            count += 1
        at += 4 + size


@njit(cache=True, boundscheck=False)
def read_bodies(window, offsets, sizes, ledgers, verify, out):
    """Fill OUT from records at known places (offset of the size field); a row that is no entry gets ledger_id −1."""
    known, kinds = ledgers
    for i in range(offsets.shape[0]):
        out[i].ledger_id = -1
        if sizes[i] >= 32 and read_body(window, offsets[i] + 4, sizes[i], known, kinds, verify, out[i]):
            out[i].offset = offsets[i]
