"""Cursors: ManagedCursorInfo (the value under a topic) and PositionInfo (the entries of a cursor ledger).

Upstream: ``MLDataFormats.proto`` and ``ManagedCursorImpl`` (Pulsar 4.0.8 to 5.0; PIP-381 for the footer form).
Ranges are open-closed: (10:2, 10:4] is the entries 3 and 4, a lower entry of −1 means "from the first entry".
Bits of a batch's delete set: SET = the message is still unacknowledged. Words are Java longs, signed.
The state of a cursor is in its ledger when ``cursors_ledger_id`` is not −1; the value's own position is stale then.
"""

from __future__ import annotations

import json
import operator
import re
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import compress, islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar, overload

from msgspec import Struct, field

from pulsar_admin.store.codec.buffer import VARINT, compiled, number_of
from pulsar_admin.store.codec.protobuf import (
    loses_unknown_fields,
    parse_protobuf,
    parse_protobuf_or_text,
    replace_pairs,
    text_of,
    unknown_fields,
)
from pulsar_admin.store.codec.wrapper import PLAIN, Wrapping, unwrap, wrap
from pulsar_admin.store.errors import Corrupt, EntryCorrupt, LimitExceeded, MetadataCorrupt, StoreError, Unsupported
from pulsar_admin.store.names import Position
from pulsar_admin.store.proto import managed_ledger_pb2
from pulsar_admin.store.wording import Answer

if TYPE_CHECKING:
    from pyroaring import BitMap  # few cursors have very many ranges

INTERNAL_PROPERTY_PREFIX = "#pulsar.internal."
NO_CURSOR_LEDGER = -1
RANGES_LIMIT = 2_000_000
STATE_LIMIT_BYTES = 128 * 1024 * 1024


class RangeColumns(Sequence[tuple[Position, Position]]):
    """Very many ranges, kept as bitmaps and converted on access: 200,000 as positions cost ten times as much as
    decoding.

    ``parts``: (ledger id, the entries in its ranges), ledgers ascending. Equal to a tuple of the same ranges.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: Iterable[tuple[int, BitMap]]) -> None:
        self.parts = tuple(parts)

    def __len__(self) -> int:
        return sum(len(bits ^ bits.shift(1)) for _, bits in self.parts) // 2

    def __iter__(self) -> Iterator[tuple[Position, Position]]:
        for ledger_id, edges in self.iter_edges():
            for lower, upper in zip(edges[::2], edges[1::2], strict=True):
                yield Position(ledger_id, lower), Position(ledger_id, upper)

    def iter_edges(self) -> Iterator[tuple[int, list[int]]]:
        """Yield (ledger id, [lower, upper, lower, upper …]): bounds of some ranges of one ledger at a time."""
        for ledger_id, bits in self.parts:
            edges: array[int] = (bits ^ bits.shift(-1)).to_array()
            for start in range(-1 if 0 in bits else 0, len(edges), _EDGES):
                some = edges[max(start, 0) : start + _EDGES].tolist()
                yield ledger_id, some if start >= 0 else [-1, *some]

    @overload
    def __getitem__(self, index: int) -> tuple[Position, Position]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[tuple[Position, Position], ...]: ...
    def __getitem__(self, index: int | slice) -> tuple[Position, Position] | tuple[tuple[Position, Position], ...]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RangeColumns):
            return self.parts == other.parts
        return isinstance(other, tuple) and len(self) == len(other) and tuple(self) == other

    def __hash__(self) -> int:
        return hash(tuple(self))


Ranges = Sequence[tuple[Position, Position]]
BatchDeletes = Mapping[Position, tuple[int, ...]]
_NO_DELETES: BatchDeletes = {}

_StateT = TypeVar("_StateT", managed_ledger_pb2.PositionInfo, managed_ledger_pb2.ManagedCursorInfo)

_PLAIN_FORM = b"\x08"  # the tag of PositionInfo.ledgerId
_VARINT, _LENGTH_DELIMITED = 0, 2
_WIRE_TYPES = {1: _VARINT, 2: _VARINT, 7: _VARINT} | dict.fromkeys((3, 4, 5, 6), _LENGTH_DELIMITED)
_PARTS_LIMIT = 4096
_FEW_RANGES = 64
_EDGES = 8192  # an even number of numbers that stay in the processor's caches
_CHUNK_WORDS = 1024  # of one container of a Roaring bitmap
_CHUNK_BITS = 64 * _CHUNK_WORDS
_FULL = (1 << _CHUNK_BITS) - 1
_NO_RUNS = 12346  # the cookie of Roaring's portable form without runs
_CONTAINER = struct.Struct("<HH")
_ARRAY_ENTRIES = 4096  # fewer are no bitmap
_CHUNKS = 1 << 16  # Roaring's entries have 32 bits
_FLAGS = bytes.maketrans(b"01", b"\0\1")
_RANGE = rb'(?s)"(.)\n(.)\x08(%b)\x10(%b)\x12(.)\x08(%b)\x10(%b)' % ((VARINT,) * 4)
_RANGES = rb'(?:"[^\n]\n.\x08%b\x10%b\x12.\x08%b\x10%b)*' % ((VARINT,) * 4)
_BARE = rb"(?s)\x08(%b)(?:\x10(%b)\x18(%b))?(%b)(?:0%b)?(?:H%b)?" % (*(VARINT,) * 3, _RANGES, *(VARINT,) * 2)
"""A ManagedCursorInfo as brokers write nearly all: no properties, and no batches that are acknowledged in part."""


class CursorState(Answer, frozen=True):
    """The position and acknowledgements of a cursor: the part that changes, in whichever of the two places it is stored."""

    mark_delete: Position
    ranges: Ranges = ()
    batch_deletes: BatchDeletes = field(default_factory=dict)
    properties: Mapping[str, int] = field(default_factory=dict)


class CursorInfo(Struct, frozen=True):
    """A ManagedCursorInfo; ``last_active_ms`` is None when absent."""

    cursors_ledger_id: int
    mark_delete: Position | None = None
    ranges: Ranges = ()
    batch_deletes: BatchDeletes = field(default_factory=dict)
    properties: Mapping[str, int] = field(default_factory=dict)
    cursor_properties: Mapping[str, str] = field(default_factory=dict)
    last_active_ms: int | None = None

    @property
    def is_in_ledger(self) -> bool:
        """Whether the state is in a ledger, which may be ledger 0; the value's own position is stale then."""
        return self.cursors_ledger_id >= 0

    @property
    def shown_properties(self) -> dict[str, str]:
        """The properties of the subscription without the broker's own."""
        return {k: v for k, v in self.cursor_properties.items() if not k.startswith(INTERNAL_PROPERTY_PREFIX)}


def decode_cursor_info(value: bytes, where: str) -> CursorInfo:
    """Return a decoded ManagedCursorInfo; raises MetadataCorrupt, and as ``unwrap``."""
    plain, _ = unwrap(value, "cursor", where)
    kind, error = managed_ledger_pb2.ManagedCursorInfo, MetadataCorrupt
    message, ranges = _parse(plain, _RANGES_OF_INFO, lambda data: parse_protobuf_or_text(kind, data, where, error))
    return _info(message, where, ranges)


def decode_cursor_head(value: bytes, where: str) -> CursorInfo:
    """Return a decoded ManagedCursorInfo without its deletions, which are most of its bytes; raises as ``decode_cursor_info``."""
    return _head(_parse_info(value, where)[0], where)


def decode_cursor_ledger_id(value: bytes, where: str) -> int | None:
    """Return the cursor ledger's id, None for a cursor with properties: for a pass over every cursor.

    Raises as ``decode_cursor_info``, for a cursor without properties.
    """
    message, _ = _parse_info(value, where)
    return None if message.properties or message.cursorProperties else message.cursorsLedgerId


def unknown_cursor_fields(value: bytes, where: str) -> tuple[str, ...]:
    """Return the names of fields of a ManagedCursorInfo that are unknown here; raises as ``decode_cursor_info``."""
    return unknown_fields(_parse_info(value, where)[0])


class PlainCursor(NamedTuple):
    """A cursor's position, (ledger id, entry id), and the ranges acknowledged after it: (ledger id, entry before the first, last entry)."""

    position: tuple[int, int]
    ranges: Sequence[tuple[int, int, int]]


class UsualCursor(NamedTuple):
    """A cursor without unknown fields: its cursor ledger's id, negative if it has none; ``plain``: as
    ``find_plain_cursor`` returns."""

    ledger_id: int
    has_properties: bool
    plain: PlainCursor | None


def find_usual_cursor(value: bytes) -> UsualCursor | None:
    """Return a decoded ManagedCursorInfo, None unless ``decode_cursor_info`` decodes it and knows all its fields."""
    bare = _find_bare_cursor(value)
    if bare is not None:
        return bare
    try:
        message, _ = _parse_info(value, "")
        if loses_unknown_fields(message):
            return None
        has_properties = bool(message.properties or message.cursorProperties)
        if has_properties:
            _head(message, "")
    except StoreError:
        return None
    plain = _plain(message)
    if plain is None:
        for item in message.individualDeletedMessages:
            lower, upper = item.lowerEndpoint, item.upperEndpoint
            if (lower.ledgerId, lower.entryId) > (upper.ledgerId, upper.entryId):
                return None
    return UsualCursor(message.cursorsLedgerId, has_properties, plain)


def find_plain_cursor(value: bytes) -> PlainCursor | None:
    """Return the state of a cursor that is completely in its node; None if it is in a ledger, or a range spans several ledgers.

    Also None if ``decode_cursor_info`` cannot decode it: for a pass over every cursor.
    """
    bare = _find_bare_cursor(value)
    if bare is not None:
        return bare.plain
    try:
        message, _ = _parse_info(value, "")
        if message.properties or message.cursorProperties:
            _head(message, "")
    except StoreError:
        return None
    return _plain(message)


def _find_bare_cursor(value: bytes) -> UsualCursor | None:
    """Return the state in a value that matches ``_BARE``, None for others and for ranges over several ledgers: half the
    cost of decoding the message."""
    match = compiled(_BARE).fullmatch(value)
    if match is None:
        return None
    cursor_ledger_id, ledger_id, entry_id, section = match.groups()
    ranges = list[tuple[int, int, int]]()
    for size, lower_size, lower_id, lower, upper_size, upper_id, upper in compiled(_RANGE).findall(section):
        first, last, id_size = number_of(lower), number_of(upper), len(lower_id) + 2
        if lower_size[0] != id_size + len(lower) or upper_size[0] != id_size + len(upper):
            return None
        if size[0] != lower_size[0] + upper_size[0] + 4 or lower_id != upper_id or first > last:
            return None
        ranges.append((number_of(lower_id), first, last))
    cursors_ledger_id = number_of(cursor_ledger_id)
    if cursors_ledger_id >= 0 or ledger_id is None:
        return UsualCursor(cursors_ledger_id, False, None)
    return UsualCursor(-1, False, PlainCursor((number_of(ledger_id), number_of(entry_id)), ranges or ()))


def _plain(message: managed_ledger_pb2.ManagedCursorInfo) -> PlainCursor | None:
    if message.cursorsLedgerId >= 0 or not message.HasField("markDeleteLedgerId"):
        return None
    position = message.markDeleteLedgerId, message.markDeleteEntryId
    if not message.individualDeletedMessages:
        return PlainCursor(position, ())
    ranges = []
    for item in message.individualDeletedMessages:
        lower, upper = item.lowerEndpoint, item.upperEndpoint
        if lower.ledgerId != upper.ledgerId or lower.entryId > upper.entryId:
            return None
        ranges.append((lower.ledgerId, lower.entryId, upper.entryId))
    return PlainCursor(position, ranges)


def cursor_info_text(value: bytes, where: str) -> str:
    """Return a ManagedCursorInfo in protobuf's text format; raises as ``decode_cursor_info``."""
    return str(_parse_info(value, where)[0])


def encode_cursor_info(info: CursorInfo, base: bytes = b"") -> bytes:
    """Return the value to store in place of ``base``, whose unknown fields and wrapping are kept.

    If nothing changes, ``base`` itself is returned. Raises MetadataCorrupt if ``base`` is not a ManagedCursorInfo.
    """
    message, wrapping = managed_ledger_pb2.ManagedCursorInfo(), PLAIN
    if base:
        message, wrapping = _parse_info(base, "value to replace")
        if _info(message, "value to replace") == info:
            return base
    message.cursorsLedgerId = info.cursors_ledger_id
    if info.mark_delete is None:
        message.ClearField("markDeleteLedgerId")
        message.ClearField("markDeleteEntryId")
    else:
        message.markDeleteLedgerId, message.markDeleteEntryId = info.mark_delete.ledger_id, info.mark_delete.entry_id
    if info.last_active_ms is None:
        message.ClearField("lastActive")
    else:
        message.lastActive = info.last_active_ms
    del message.individualDeletedMessages[:]
    for lower, upper in info.ranges:
        item = message.individualDeletedMessages.add()
        item.lowerEndpoint.ledgerId, item.lowerEndpoint.entryId = lower.ledger_id, lower.entry_id
        item.upperEndpoint.ledgerId, item.upperEndpoint.entryId = upper.ledger_id, upper.entry_id
    del message.batchedEntryDeletionIndexInfo[:]
    for position, words in info.batch_deletes.items():
        deleted = message.batchedEntryDeletionIndexInfo.add()
        deleted.position.ledgerId, deleted.position.entryId = position.ledger_id, position.entry_id
        deleted.deleteSet.extend(words)
    replace_pairs(message.properties, info.properties, "name")
    replace_pairs(message.cursorProperties, info.cursor_properties, "name")
    return wrap(message.SerializeToString(), wrapping, "cursor")


def decode_position_info(payload: bytes | memoryview, where: str, *, strict: bool = False) -> CursorState:
    """Return the state in an entry of a cursor ledger: both range forms are read, ranges win over bitmaps.

    Raises EntryCorrupt, and LimitExceeded for bitmaps that hold more than RANGES_LIMIT ranges. ``strict`` as of
    ``parse_protobuf``.
    """
    kind, error = managed_ledger_pb2.PositionInfo, EntryCorrupt
    message, ranges = _parse(
        bytes(payload), _RANGES_OF_STATE, lambda data: parse_protobuf(kind, data, where, error, strict=strict)
    )
    if message.individualDeletedMessages:
        ranges = _ranges(message.individualDeletedMessages, where, EntryCorrupt)
    elif not ranges:
        ranges = _bitmap_ranges(message.individualDeletedMessageRanges, where)
    return CursorState(
        Position(message.ledgerId, message.entryId),
        ranges,
        _batch_deletes(message.batchedEntryDeletionIndexInfo),
        _long_properties(message.properties, where, EntryCorrupt),
    )


def rename_properties(payload: bytes | memoryview, rename: Callable[[str], str]) -> bytes | None:
    """Return a PositionInfo with its properties renamed and without unknown fields; None for other bytes."""
    try:
        message = parse_protobuf(managed_ledger_pb2.PositionInfo, payload, "entry", EntryCorrupt)
        message.DiscardUnknownFields()
        for pair in message.properties:
            pair.name = rename(text_of(pair.name, "entry", EntryCorrupt))
    except EntryCorrupt:
        return None
    return message.SerializeToString()


def decode_cursor_ledger(payloads_newest_first: Iterable[bytes | memoryview], where: str) -> CursorState | None:
    """Return the state in a cursor ledger, from its entries in descending order; None if it has none.

    The newest entry is the state, or a JSON footer whose parts precede it (PIP-381). Parts without a footer, as a
    crash leaves them, are skipped if together they are the beginning of a PositionInfo. Only as many entries are taken
    from the iterable as are needed. Raises Unsupported for another form, EntryCorrupt for a damaged one.
    """
    entries = iter(payloads_newest_first)
    run: list[bytes] = []  # in rising order; a later part may begin with any byte, also with that of a whole state
    passed_over = False
    for payload in entries:
        data = bytes(payload)
        footer = _footer(data)
        if footer is not None and not run:
            return decode_position_info(_join_parts(entries, footer, where), where)
        run.insert(0, data)
        if footer is not None or not data or len(run) > _PARTS_LIMIT:
            break
        if data[:1] != _PLAIN_FORM:
            continue
        state: CursorState | None = None
        with suppress(EntryCorrupt):
            state = decode_position_info(data, where)
        if state is not None and len(run) == 1:
            return state
        if _is_beginning(run):
            run.clear()
            passed_over = True
        elif state is not None:
            break
    if run:
        first_bytes = run[-1][:16].hex()
        if run[-1][:1] == _PLAIN_FORM:
            raise EntryCorrupt(
                f"{where}: the newest entry is damaged, no PositionInfo: {first_bytes}", where=where, found=first_bytes
            )
        raise Unsupported(
            f"{where}: the newest entry is not a known form of a cursor's state: {first_bytes or 'empty'}",
            where=where,
            found=first_bytes,
        )
    if passed_over:
        raise EntryCorrupt(f"{where}: no complete state, only parts without their footer", where=where)
    return None


def _footer(payload: bytes) -> tuple[int, int] | None:
    """Return the number of parts and their bytes in total, or None if the payload is not a footer."""
    if payload[:1] != b"{":
        return None
    try:
        footer = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    parts, size_bytes = (footer.get("numParts"), footer.get("length")) if isinstance(footer, dict) else (None, None)
    if type(parts) is not int or type(size_bytes) is not int:
        return None
    return parts, size_bytes


def _join_parts(entries: Iterator[bytes | memoryview], footer: tuple[int, int], where: str) -> bytes:
    count, size_bytes = footer
    if size_bytes > STATE_LIMIT_BYTES:
        raise LimitExceeded(
            f"{where}: a cursor state of {size_bytes} bytes, the limit is {STATE_LIMIT_BYTES}",
            where=where,
            limit_bytes=STATE_LIMIT_BYTES,
            found=size_bytes,
        )
    parts: list[bytes] = []
    found_bytes = 0
    while len(parts) < count and found_bytes <= size_bytes and (part := next(entries, None)) is not None:
        parts.append(bytes(part))
        found_bytes += len(part)
    if len(parts) != count or found_bytes != size_bytes:
        raise EntryCorrupt(
            f"{where}: the footer promises {count} parts of {size_bytes} bytes, {len(parts)} parts of {found_bytes} "
            "are there",
            where=where,
            expected=[count, size_bytes],
            found=[len(parts), found_bytes],
        )
    state = b"".join(reversed(parts))
    if state[:1] != _PLAIN_FORM:
        raise Unsupported(
            f"{where}: a cursor state in parts that begins with {state[:4].hex()}", where=where, found=state[:16].hex()
        )
    return state


def _is_beginning(parts: list[bytes]) -> bool:
    """Whether parts together are the beginning of a PositionInfo: its fields in order, only the last of them cut."""
    data = b"".join(parts)
    offset = last_number = 0
    while offset < len(data):
        number, wire_type = data[offset] >> 3, data[offset] & 7
        if _WIRE_TYPES.get(number) != wire_type or number < last_number:
            return False
        value, last_number = 0, number
        for shift in range(0, 70, 7):
            offset += 1
            if offset == len(data):
                return True
            value |= (data[offset] & 0x7F) << shift
            if data[offset] < 0x80:
                break
        else:
            return False
        offset += 1 + (value if wire_type == _LENGTH_DELIMITED else 0)
    return offset > len(data) or len(parts) > 1


def _parse_info(value: bytes, where: str) -> tuple[managed_ledger_pb2.ManagedCursorInfo, Wrapping]:
    plain, wrapping = unwrap(value, "cursor", where)
    return parse_protobuf_or_text(managed_ledger_pb2.ManagedCursorInfo, plain, where, MetadataCorrupt), wrapping


def _info(message: managed_ledger_pb2.ManagedCursorInfo, where: str, ranges: Ranges = ()) -> CursorInfo:
    """Return the cursor in a message; ``ranges``: those taken out of the message because they are very many."""
    return _head(
        message,
        where,
        _ranges(message.individualDeletedMessages, where, MetadataCorrupt)
        if message.individualDeletedMessages
        else ranges,
        _batch_deletes(message.batchedEntryDeletionIndexInfo) if message.batchedEntryDeletionIndexInfo else {},
    )


def _head(
    message: managed_ledger_pb2.ManagedCursorInfo,
    where: str,
    ranges: Ranges = (),
    batch_deletes: BatchDeletes = _NO_DELETES,
) -> CursorInfo:
    """Return the cursor in a message, with these acknowledged ranges and batch deletes instead of the message's."""
    mark_delete = None
    if message.HasField("markDeleteLedgerId"):
        mark_delete = Position(message.markDeleteLedgerId, message.markDeleteEntryId)
    error = MetadataCorrupt
    return CursorInfo(
        message.cursorsLedgerId,
        mark_delete,
        ranges,
        batch_deletes,
        _long_properties(message.properties, where, error) if message.properties else {},
        {text_of(pair.name, where, error): text_of(pair.value, where, error) for pair in message.cursorProperties}
        if message.cursorProperties
        else {},
        last_active_ms=message.lastActive if message.HasField("lastActive") else None,
    )


def _position(message: managed_ledger_pb2.NestedPositionInfo) -> Position:
    return Position(message.ledgerId, message.entryId)


def _ranges(found: Sequence[managed_ledger_pb2.MessageRange], where: str, error: type[Corrupt]) -> Ranges:
    ranges = tuple([(_position(item.lowerEndpoint), _position(item.upperEndpoint)) for item in found])
    for low, high in ranges:
        if low > high:
            raise error(f"{where}: the range ({low}, {high}] ends before it begins", where=where)
    return ranges


def _batch_deletes(
    found: Iterable[managed_ledger_pb2.BatchedEntryDeletionIndexInfo],
) -> dict[Position, tuple[int, ...]]:
    return {_position(item.position): tuple(item.deleteSet) for item in found}


def _long_properties(
    found: Iterable[managed_ledger_pb2.LongProperty], where: str, error: type[Corrupt]
) -> dict[str, int]:
    return {text_of(pair.name, where, error): pair.value for pair in found}


def _bitmap_ranges(found: Iterable[managed_ledger_pb2.LongListMap], where: str) -> Ranges:
    """Return the runs of set bits as open-closed ranges of the ledgers' entries."""
    maps = sorted(found, key=lambda one: one.key)
    few: list[tuple[Position, Position]] = []
    for one in maps:
        edges = _edges(one.values)
        few += [
            (Position(one.key, lower), Position(one.key, upper))
            for lower, upper in zip(edges[::2], edges[1::2], strict=False)
        ]
        if len(few) > _FEW_RANGES:
            break
    else:
        return tuple(few)
    columns = RangeColumns((one.key, _bits(one.values, where)) for one in maps if any(one.values))
    if len(columns) > RANGES_LIMIT:
        raise LimitExceeded(
            f"{where}: more than {RANGES_LIMIT} ranges of deleted entries", where=where, limit=RANGES_LIMIT
        )
    return columns if _ascend([ledger_id for ledger_id, _ in columns.parts]) else tuple(columns)


def _ascend(numbers: Sequence[int]) -> bool:
    return all(map(operator.lt, numbers, islice(numbers, 1, None)))


def _edges(words: Sequence[int]) -> list[int]:
    """Return the bounds of a bitmap's runs of set bits, alternately the index before a run's first bit and that of its
    last; of very many only the first."""
    edges: list[int] = []
    last = 0
    for start in range(0, len(words), _CHUNK_WORDS):
        bits = int.from_bytes(_chunk(words, start), "little")
        # A bit of CHANGES is set where the bit differs from the one before it.
        changes = bits ^ ((bits << 1 | last) & _FULL)
        last = bits >> (_CHUNK_BITS - 1)
        if changes:
            flags = f"{changes:b}".encode()[::-1].translate(_FLAGS)
            edges += compress(range(64 * start - 1, 64 * start - 1 + _CHUNK_BITS), flags)
            if len(edges) > 2 * _FEW_RANGES + 1:  # the last range may go on in the next chunk
                return edges
    if last:
        edges.append(64 * len(words) - 1)
    return edges


def _chunk(words: Sequence[int], start: int) -> bytes:
    """Return a chunk of a bitmap's words as bytes, filled up with zeros."""
    chunk = words[start : start + _CHUNK_WORDS]
    return struct.pack(f"<{len(chunk)}q", *chunk).ljust(_CHUNK_BITS // 8, b"\0")


def _bits(words: Sequence[int], where: str) -> BitMap:
    """Return a bitmap of words as a Roaring bitmap, by copying its chunks into Roaring's portable form.

    That form has no bitmap container for few set bits (https://github.com/RoaringBitmap/RoaringFormatSpec): such a
    chunk is inverted for it, and the result is inverted back.
    """
    from pyroaring import BitMap

    heads, chunks, inverted = [], [], []
    for key, start in enumerate(range(0, len(words), _CHUNK_WORDS)):
        data = _chunk(words, start)
        bits = int.from_bytes(data, "little")
        count = bits.bit_count()
        if not count:
            continue
        if key >= _CHUNKS - 1:
            raise LimitExceeded(f"{where}: deleted entries beyond {64 * start}", where=where, limit=64 * start)
        if count <= _ARRAY_ENTRIES:
            data, count = (bits ^ _FULL).to_bytes(len(data), "little"), _CHUNK_BITS - count
            inverted.append(key * _CHUNK_BITS)
        heads.append(_CONTAINER.pack(key, count - 1))
        chunks.append(data)
    size, first = len(chunks), 8 + 8 * len(chunks)
    offsets = struct.pack(f"<{size}I", *range(first, first + size * _CHUNK_BITS // 8, _CHUNK_BITS // 8))
    found = BitMap.deserialize(b"".join([struct.pack("<II", _NO_RUNS, size), *heads, offsets, *chunks]))
    for start in inverted:
        found.flip_inplace(start, start + _CHUNK_BITS)
    return found


# -- very many ranges as messages --------------------------------------------------------------------------------------


_RANGES_OF_STATE, _RANGES_OF_INFO = b"\x1a", b"\x22"  # the tags of their fields
_MANY_BYTES = 4096
_HEAD = rb"(?:[\x08\x10\x18][\x80-\xff]*[\0-\x7f])*"
_ENDPOINT = rb"(.)(\x08[\x80-\xff]{0,8}[\0-\x7f]\x10)([\x80-\xff]{0,3}[\0-\x7f]|\xff{9}\x01)"
_RANGE_MESSAGE = rb"(?s).(.)\x0a%b\x12%b" % (_ENDPOINT, _ENDPOINT)
_WINDOWS = 16, 4096
_GOES_ON = bytes(128) + b"\1" * 128
_DIGITS = bytes(range(128)) * 2
_SPARSE_BITS = 64


def _parse(data: bytes, tag: bytes, parse: Callable[[bytes], _StateT]) -> tuple[_StateT, Ranges]:
    """Return a parsed message, and its ranges if they are very many: these are not parsed as messages, which costs
    twenty times as much."""
    rest, ranges = _take_ranges(data, tag) if len(data) > _MANY_BYTES else (data, ())
    if ranges:
        with suppress(Corrupt):
            message = parse(rest)
            if not message.individualDeletedMessages:
                return message, ranges
    return parse(data), ()


def _take_ranges(data: bytes, tag: bytes) -> tuple[bytes, Ranges]:
    """Return a message without its ranges (the fields with ``tag``), and the ranges; unchanged and without ranges if
    they are few or not encoded as a broker does."""
    parts: list[tuple[int, array[int]]] = []
    head = re.match(_HEAD, data)
    at = start = head.end() if head else 0
    taken = windows = 0
    window = _WINDOWS[0]
    while data[at : at + 1] == tag:
        if windows > _WINDOWS[0] + taken // _WINDOWS[0]:  # the ranges of many ledgers, a few of each
            return data, ()
        item = compiled(_RANGE_MESSAGE).match(data, at)
        if item is None:
            return data, ()
        outer, lower, ledger, first, upper, same, last = item.groups()
        sizes = len(item[0]) - 2, len(ledger + first), len(same + last)
        ledger_id = sum((byte & 127) << 7 * place for place, byte in enumerate(ledger[1:-1]))
        if (outer + lower + upper != bytes(sizes)) or ledger != same or (parts and parts[-1][0] > ledger_id):
            return data, ()
        columns = _columns(data, item, window)
        if not parts or parts[-1][0] != ledger_id:
            parts.append((ledger_id, columns))
        else:
            parts[-1][1].extend(columns)
        count = len(columns) // 2
        at, taken, windows = at + count * len(item[0]), taken + count, windows + 1
        window = min(4 * window, _WINDOWS[1]) if count == window else _WINDOWS[0]
    if taken <= _FEW_RANGES:
        return data, ()
    filled = [(ledger_id, _filled(edges)) for ledger_id, edges in parts]
    if any(bits is None for _, bits in filled):
        return data, ()
    return data[:start] + data[at:], RangeColumns((ledger_id, bits) for ledger_id, bits in filled if bits is not None)


def _columns(data: bytes, item: re.Match[bytes], most: int) -> array[int]:
    """Return first entry and entry after the last, in turn, of a range and those after it that are in its ledger and
    have its encoded length; ``most``: ranges at most. Equal lengths make each byte position a column, which is decoded
    at once."""
    size = len(item[0])
    window = data[item.start() : item.start() + size * most]
    count = len(window) // size
    spans = [range(item.start(group) - item.start(), item.end(group) - item.start()) for group in (4, 7)]
    varying = {place for span in spans if len(span) < 10 for place in span}
    for place in range(size):
        column = window[place : count * size : size]
        column = column.translate(_GOES_ON) if place in varying else column
        if column != column[:1] * count:
            count -= len(column.lstrip(column[:1]))
    edges = array("I", bytes(8 * count))
    for number, span in enumerate(spans):
        if len(span) == 10:  # −1, before the first entry
            continue
        total = int.from_bytes(b"\1\0\0\0" * count, "little")
        for power, place in enumerate(span):
            lanes = bytearray(4 * count)
            lanes[::4] = window[place : count * size : size].translate(_DIGITS)
            total += int.from_bytes(lanes, "little") << 7 * power
        edges[number::2] = array("I", total.to_bytes(4 * count, "little"))
    return edges


def _filled(edges: array[int]) -> BitMap | None:
    """Return a bitmap of the half-open ranges between pairs of ``edges`` (0 to 1, 2 to 3 …); None unless edges ascend."""
    from pyroaring import BitMap

    bits = BitMap(edges)
    if bits.to_array() != edges:
        return None
    end = edges[-1]
    if end > _SPARSE_BITS * len(edges):
        bits.clear()
        for first, after in zip(edges[::2], edges[1::2], strict=True):
            bits.add_range(first, after)
        return bits
    step = 1
    while step < end:  # a bit becomes whether the number of edges up to it is odd: of 2, of 4, of 8 bits …
        bits ^= bits.shift(step)
        step *= 2
    return bits & BitMap(range(end))
