"""An entry of the delayed message index: which messages fall due in which tick. Our own format, docs/formats/delayed-index.md.

An entry holds messages as rows (tick, ledger id, entry id), sorted and different. Three bodies say the same; the writer takes the one
that it expects to be smallest:

- *Roaring*: tick → ledger → portable RoaringBitmap of entry ids. Smallest where many neighbours fall due together.
- *steps*: messages in the order of the topic, each as its distance from the one before, in entries and in ticks; deflated. Smallest
  where messages fall due in about the order in which they were sent (a fixed delay) and few share a tick.
- *packed*: one ascending sequence of numbers (tick, ledger, entry), the distances between them Rice coded. Smallest where due times are
  scattered: it needs about 1.5 + log2(range / messages) bits a message, where bitmaps of one message take 18 bytes.

Everything is little-endian, a CRC-32C of all before it ends the entry.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import google_crc32c
import numpy as np
from pyroaring import BitMap

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.buffer import Reader, encode_varint
from pulsar_admin.store.errors import EntryCorrupt, LimitExceeded, Unsupported
from pulsar_admin.store.wording import Answer

MAGIC = b"\x89PDI"  # no message begins so: as a metadata size it is negative
FORMAT = 1
ROARING, PACKED, STEPS = 0, 1, 2
ENTRY_MESSAGES_MAX = 1 << 18
_KEY_BITS = 62
_HEADER = struct.Struct(
    "<4s"  # magic
    "B"  # format
    "B"  # body: 0 Roaring, 1 packed, 2 steps
    "B"  # packed: low bits stored plainly
    "B"  # ledger table: 0 as it is, 1 deflated
    "q"  # tick in ms
    "q"  # first tick: first due time // tick
    "I"  # messages
    "I"  # ledgers
    "I"  # bytes of the ledger table
    "I"  # largest entry id
)
_CRC = struct.Struct("<I")


class DelayedRows(Answer, frozen=True):
    """Messages by due time: columns of equal length, sorted by (time, ledger, entry), each message once."""

    times_ms: Array
    ledger_ids: Array
    entry_ids: Array

    def __len__(self) -> int:
        return len(self.times_ms)

    def take(self, chosen: Any) -> DelayedRows:
        """Return the rows that a mask, slice or ascending array of indexes selects."""
        return DelayedRows(self.times_ms[chosen], self.ledger_ids[chosen], self.entry_ids[chosen])


def no_rows() -> DelayedRows:
    """Return no messages."""
    return DelayedRows(*(np.zeros(0, np.int64) for _ in range(3)))


def sorted_rows(times_ms: Array, ledger_ids: Array, entry_ids: Array) -> DelayedRows:
    """Return columns in any order as rows in order."""
    columns = (times_ms, ledger_ids, entry_ids)
    if not len(times_ms):
        return no_rows()
    lowest = [int(column.min()) for column in columns]
    bits = [(int(column.max()) - low).bit_length() for column, low in zip(columns, lowest, strict=True)]
    if sum(bits) > _KEY_BITS:
        order = np.lexsort(columns[::-1])
        return DelayedRows(*(column[order] for column in columns))
    # One column of numbers sorts several times as fast as three by index.
    keys = ((times_ms - lowest[0]) << bits[1] | (ledger_ids - lowest[1])) << bits[2] | (entry_ids - lowest[2])
    keys.sort()
    entries = (keys & ((1 << bits[2]) - 1)) + lowest[2]
    keys >>= bits[2]
    return DelayedRows((keys >> bits[1]) + lowest[0], (keys & ((1 << bits[1]) - 1)) + lowest[1], entries)


def join_rows(parts: list[DelayedRows]) -> DelayedRows:
    """Return the rows of all parts in order."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return no_rows()
    columns = zip(*((part.times_ms, part.ledger_ids, part.entry_ids) for part in parts), strict=True)
    return sorted_rows(*(np.concatenate(column) for column in columns))


# -- writing ----------------------------------------------------------------------------------------------------------


def iter_encoded(rows: DelayedRows, tick_ms: int, limit: int = ENTRY_MESSAGES_MAX) -> Iterator[tuple[bytes, int]]:
    """Yield (entry, messages in it): rows, whose times are multiples of ``tick_ms``, in as few entries as the limits allow.

    Raises LimitExceeded for an entry id that no bitmap can hold.
    """
    if not len(rows):
        return
    if int(rows.entry_ids.max()) >= 1 << 32 or int(rows.entry_ids.min()) < 0:
        raise LimitExceeded("an entry id beyond 32 bits: no ledger of Pulsar is that long")
    for start in range(0, len(rows), limit):
        yield from _encode_piece(rows.take(slice(start, start + limit)), tick_ms)


def _encode_piece(rows: DelayedRows, tick_ms: int) -> Iterator[tuple[bytes, int]]:
    ledgers, places = np.unique(rows.ledger_ids, return_inverse=True)
    ticks = rows.times_ms // tick_ms
    width = int(rows.entry_ids.max()) + 1
    span = int(ticks[-1]) - int(ticks[0]) + 1
    universe = span * len(ledgers) * width
    fits = universe.bit_length() <= _KEY_BITS
    if not fits and len(rows) > 1 and not _is_roaring_smaller(rows, ticks, universe):
        middle = len(rows) // 2
        yield from _encode_piece(rows.take(slice(0, middle)), tick_ms)
        yield from _encode_piece(rows.take(slice(middle, None)), tick_ms)
        return
    places = places.reshape(-1)
    offsets = ticks - ticks[0]
    low_bits = 0
    if not fits or _is_roaring_smaller(rows, ticks, universe):
        form, body = ROARING, _roaring_body(offsets, places, rows.entry_ids)
    else:
        form = PACKED
        low_bits, body = _packed_body((offsets * len(ledgers) + places) * width + rows.entry_ids)
    steps = _steps_body(places * width + rows.entry_ids, offsets) if fits else None
    if steps is not None and len(steps) < len(body):
        form, low_bits, body = STEPS, 0, steps
    table = b"".join(map(encode_varint, np.diff(ledgers, prepend=0).tolist()))
    deflated = zlib.compress(table, 6)
    is_smaller = len(deflated) < len(table)
    table = deflated if is_smaller else table
    counts = (len(rows), len(ledgers), len(table), width - 1)
    header = _HEADER.pack(MAGIC, FORMAT, form, low_bits, is_smaller, tick_ms, int(ticks[0]), *counts)
    whole = header + table + body
    yield whole + _CRC.pack(google_crc32c.value(whole)), len(rows)


def _is_roaring_smaller(rows: DelayedRows, ticks: Array, universe: int) -> bool:
    """Whether bitmaps are expected to be smaller, by an estimate from their headers and runs."""
    count = len(rows)
    new_cell = np.append(True, (ticks[1:] != ticks[:-1]) | (rows.ledger_ids[1:] != rows.ledger_ids[:-1]))
    new_run = new_cell | np.append(True, rows.entry_ids[1:] != rows.entry_ids[:-1] + 1)
    cells, runs = int(new_cell.sum()), int(new_run.sum())
    bitmaps = 18 * cells + min(4 * runs, 2 * count)
    return bitmaps < count * (2 + max((universe // count).bit_length() - 1, 0)) // 8


def _roaring_body(ticks: Array, places: Array, entry_ids: Array) -> bytes:
    """Return cells: varints (ticks since the last cell, place in the ledger table, length), then the bitmap."""
    starts = np.flatnonzero(np.append(True, (ticks[1:] != ticks[:-1]) | (places[1:] != places[:-1])))
    parts: list[bytes] = []
    before = 0
    ends = [*starts[1:].tolist(), len(ticks)]
    for start, end in zip(starts.tolist(), ends, strict=True):
        bitmap = BitMap(entry_ids[start:end].astype(np.uint32))
        bitmap.run_optimize()
        raw = bitmap.serialize()
        tick = int(ticks[start])
        parts += [encode_varint(tick - before), encode_varint(int(places[start])), encode_varint(len(raw)), bytes(raw)]
        before = tick
    return b"".join(parts)


def _packed_body(keys: Array) -> tuple[int, bytes]:
    """Return (low bits, body): bit planes of the distances' low bits, lowest first, then the rest in unary: a 1 after that many 0.

    The first distance is from 0.
    """
    steps = np.diff(keys, prepend=0)
    middle = max(int(keys[-1] // len(keys)).bit_length() - 1, 0)
    sizes = {bits: len(keys) * bits + int((steps >> bits).sum()) for bits in range(max(middle - 2, 0), middle + 2)}
    low_bits = min(sizes, key=lambda bits: sizes[bits])
    planes = [np.packbits(((steps >> bit) & 1).astype(bool), bitorder="little").tobytes() for bit in range(low_bits)]
    marks = np.cumsum(steps >> low_bits) + np.arange(len(keys))
    high = np.zeros(int(marks[-1]) + 1, bool)
    high[marks] = True
    return low_bits, b"".join([*planes, np.packbits(high, bitorder="little").tobytes()])


def _steps_body(places: Array, ticks: Array) -> bytes | None:
    """Return a column of distances (u8) and one of steps in ticks (i8), deflated; None if a step does not fit into a byte.

    The place and the tick of the first message come first, as varints.
    """
    order = np.argsort(places, kind="stable")
    forward, along = np.diff(places[order]), np.diff(ticks[order])
    if len(forward) and (int(forward.max()) > 255 or int(np.abs(along).max()) > 127):
        return None
    columns = forward.astype(np.uint8).tobytes() + along.astype(np.int8).tobytes()
    return encode_varint(int(places[order[0]])) + encode_varint(int(ticks[order[0]])) + zlib.compress(columns, 6)


# -- reading ----------------------------------------------------------------------------------------------------------


def decode_entry_rows(payload: bytes | memoryview, where: str) -> tuple[int, DelayedRows]:
    """Return (tick in ms, rows) of an entry; raises EntryCorrupt, and Unsupported for a format of a newer toolkit."""
    data = bytes(payload)
    if len(data) < _HEADER.size + _CRC.size or data[:4] != MAGIC:
        raise _corrupt(where, "no entry of a delayed message index")
    if _CRC.unpack(data[-4:])[0] != google_crc32c.value(data[:-4]):
        raise _corrupt(where, "its checksum is wrong")
    _, written, form, low_bits, deflated, tick_ms, first_tick, *counts = _HEADER.unpack_from(data)
    messages, ledgers, table_bytes, largest = counts
    if written > FORMAT:
        raise Unsupported(
            f"{where}: delayed index of format {written}, this toolkit knows up to {FORMAT}",
            hint="use the toolkit that wrote it, or rebuild it: pulsar-admin delayed build TOPIC --rebuild",
        )
    if (
        form not in (ROARING, PACKED, STEPS)
        or deflated > 1
        or tick_ms <= 0
        or not 0 < ledgers <= messages <= ENTRY_MESSAGES_MAX
    ):
        raise _corrupt(where, "its header contradicts itself")
    rest = data[_HEADER.size : -_CRC.size]
    raw = rest[:table_bytes]
    taken = Reader(_inflated(raw, 10 * ledgers, where) if deflated else raw, where, EntryCorrupt)
    table = np.cumsum(np.array([taken.varint() for _ in range(ledgers)], np.uint64)).astype(np.int64)
    rest = rest[table_bytes:]
    if form == ROARING:
        ticks, places, entry_ids = _read_roaring(rest, ledgers, where)
    elif form == STEPS:
        ticks, places, entry_ids = _read_steps(rest, (messages, ledgers, largest + 1), where)
    else:
        ticks, places, entry_ids = _read_packed(rest, (messages, ledgers, largest + 1, low_bits), where)
    if len(ticks) != messages:
        raise _corrupt(where, f"its header says {messages} messages, it has {len(ticks)}")
    return tick_ms, DelayedRows((ticks + first_tick) * tick_ms, table[places], entry_ids)


def _inflated(raw: bytes, limit: int, where: str) -> bytes:
    """Return inflated bytes, at most ``limit``."""
    try:
        return zlib.decompressobj().decompress(raw, limit)
    except zlib.error as cause:
        raise _corrupt(where, f"it cannot be inflated: {cause}") from cause


def _read_roaring(body: bytes, ledgers: int, where: str) -> tuple[Array, Array, Array]:
    taken = Reader(body, where, EntryCorrupt)
    tick = messages = 0
    cells: list[tuple[int, int, int]] = []
    arrays: list[Array] = []
    while taken.pos < len(body):
        tick += taken.varint()
        place, length = taken.varint(), taken.varint()
        raw = bytes(taken.take(length))
        try:
            bitmap = BitMap.deserialize(raw)
        except (ValueError, IndexError) as cause:
            raise _corrupt(where, f"no RoaringBitmap: {cause}") from cause
        messages += len(bitmap)
        if place >= ledgers or messages > ENTRY_MESSAGES_MAX:
            raise _corrupt(where, "a cell of it contradicts the header")
        arrays.append(np.array(bitmap.to_array(), np.int64))
        cells.append((tick, place, len(bitmap)))
    columns = np.array(cells, np.int64).reshape(-1, 3)
    entry_ids = np.concatenate([*arrays, np.zeros(0, np.int64)])
    return np.repeat(columns[:, 0], columns[:, 2]), np.repeat(columns[:, 1], columns[:, 2]), entry_ids


def _read_packed(body: bytes, shape: tuple[int, int, int, int], where: str) -> tuple[Array, Array, Array]:
    messages, ledgers, width, low_bits = shape
    plane_bytes = (messages + 7) // 8
    if len(body) <= plane_bytes * low_bits or low_bits > _KEY_BITS:
        raise _corrupt(where, "it is too short for its header")
    raw = np.frombuffer(body, np.uint8)
    marks = np.flatnonzero(np.unpackbits(raw[plane_bytes * low_bits :], bitorder="little"))
    if len(marks) != messages:
        raise _corrupt(where, f"its header says {messages} messages, it has {len(marks)}")
    steps = (np.diff(marks, prepend=-1) - 1) << low_bits
    for bit in range(low_bits):
        plane = raw[plane_bytes * bit : plane_bytes * (bit + 1)]
        steps |= np.unpackbits(plane, count=messages, bitorder="little").astype(np.int64) << bit
    cells, entry_ids = np.divmod(np.cumsum(steps), width)
    return cells // ledgers, cells % ledgers, entry_ids


def _read_steps(body: bytes, shape: tuple[int, int, int], where: str) -> tuple[Array, Array, Array]:
    messages, ledgers, width = shape
    taken = Reader(body, where, EntryCorrupt)
    place, tick = taken.varint(), taken.varint()
    columns = np.frombuffer(_inflated(body[taken.pos :], 2 * messages + 1, where), np.uint8)
    if len(columns) != 2 * (messages - 1) or max(place, tick) >> _KEY_BITS:
        raise _corrupt(where, "its steps contradict its header")
    places = place + np.append(0, np.cumsum(columns[: messages - 1].astype(np.int64)))
    ticks = tick + np.append(0, np.cumsum(columns[messages - 1 :].view(np.int8).astype(np.int64)))
    if int(places[-1]) // width >= ledgers or int(ticks.min()) < 0:
        raise _corrupt(where, "its steps lead out of its ledgers")
    order = np.lexsort((places, ticks))
    places = places[order]
    return ticks[order], places // width, places % width


def _corrupt(where: str, what: str) -> EntryCorrupt:
    return EntryCorrupt(
        f"{where}: {what}", hint="rebuild the index: pulsar-admin delayed build TOPIC --rebuild", where=where
    )
