"""The tracker of negative acknowledgements: time bucket → ledger → 64-bit Roaring bitmap of entry ids (PIP-393).

Upstream: NegativeAcksTracker (apache/pulsar PR 23600, 23804; client 4.0.8). A redelivery time without its lower
``precision_bits`` bits is its bucket; a bucket's entries are redelivered together, so never later than requested and
earlier by less than 2 ^ bits ms. Entries, not messages, are tracked: a batch index is dropped, and an entry can be in
several buckets, so that messages of one batch keep their different delays.

The newest rows are live bitmaps beside a heap of their buckets; older ones are sealed (``store/nacks/segments.py``).
Rows from ``add_many`` that hardly share buckets are kept as plain columns until there are enough to seal together, or
one of them is due. Not thread-safe.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from pyroaring import BitMap64

from pulsar_admin.store.db.nacks import DEFAULT_PRECISION_BITS, check_precision_bits, due_time, trim_lower_bits
from pulsar_admin.store.errors import Corrupt, InvalidValue, NotFound
from pulsar_admin.store.files import read_file
from pulsar_admin.store.nacks.bitmaps import Int64s, decode_bitmap, decode_groups
from pulsar_admin.store.nacks.segments import (
    NO_BUCKET,
    Block,
    NackColumns,
    Segment,
    add_times,
    check_column,
    cut_blocks,
    decode_tracker,
    encode_blocks,
    encode_tracker,
    group_rows,
    join_blocks,
    merge_blocks,
)
from pulsar_admin.store.names import LONG_MAX, Position


class DueGroup(NamedTuple):
    """The entries of one ledger that are due in one bucket."""

    bucket_ms: int
    ledger_id: int
    entry_ids: BitMap64


class DueNacks(Struct, frozen=True):
    """The entries of whole buckets. Iterating yields a group for each (bucket, ledger), decoding one bitmap at a time.

    ``partition_index`` is the tracker's (−2 = unknown, as upstream's placeholder).
    """

    partition_index: int
    blocks: Sequence[Block] = ()
    groups: Sequence[DueGroup] = ()

    def __bool__(self) -> bool:
        return bool(self.blocks or self.groups)

    def __iter__(self) -> Iterator[DueGroup]:
        yield from self.groups
        for block in self.blocks:
            ends = np.cumsum(block.lengths, dtype=np.int64).tolist()
            begin = 0
            for bucket, ledger, end in zip(block.buckets.tolist(), block.ledgers.tolist(), ends, strict=True):
                yield DueGroup(bucket, ledger, decode_bitmap(block.bitmaps[begin:end].tobytes()))
                begin = end

    def positions(self) -> Iterator[Position]:
        """Yield the position of every entry, once for each bucket that has it."""
        for group in self:
            for entry_id in group.entry_ids:
                yield Position(group.ledger_id, entry_id)

    def arrays(self) -> tuple[Int64s, Int64s, Int64s]:
        """Return the columns bucket (ms), ledger id and entry id, one row per entry."""
        if self.groups:
            sizes = [len(group.entry_ids) for group in self.groups]
            buckets = np.repeat(np.array([group.bucket_ms for group in self.groups], dtype=np.int64), sizes)
            ledgers = np.repeat(np.array([group.ledger_id for group in self.groups], dtype=np.int64), sizes)
            live = [np.frombuffer(group.entry_ids.to_array(), dtype=np.int64) for group in self.groups]
            return buckets, ledgers, np.concatenate(live)
        parts = [_columns(block) for block in self.blocks] or [_columns(join_blocks(()))]
        buckets, ledgers, entry_ids = (np.concatenate(column) for column in zip(*parts, strict=True))
        return buckets, ledgers, entry_ids

    @property
    def entry_count(self) -> int:
        """The number of entries to redeliver, counted once per bucket."""
        counted = sum(len(_columns(block)[2]) for block in self.blocks)
        return counted + sum(len(group.entry_ids) for group in self.groups)


def _columns(block: Block) -> tuple[Int64s, Int64s, Int64s]:
    starts, entry_ids = decode_groups(block.lengths, block.bitmaps)
    counts = np.diff(starts)
    return np.repeat(block.buckets, counts), np.repeat(block.ledgers, counts), entry_ids


UNKNOWN_PARTITION = -2
"""Upstream's placeholder: the tracker belongs to one consumer and does not store the partition."""

_TAIL_GROUPS = 256  # live bitmaps (about 600 bytes each) before they are sealed
_FAN_IN = 8
_BITMAP_BYTES = 600  # measured: a BitMap64 of one container
_FEW = 16  # below this many, arrays cost more than the loop
_LOOSE_ROWS = 1 << 18  # 6 MB at most; sealed by so many, scattered rows cost a third of what they do by ten thousand
_LOOSE_ROW_BYTES = 24
_SCATTERED = 4  # rows a group on average; fewer are smaller as columns than as bitmaps


class NegativeAcksTracker:
    """Time buckets of negatively acknowledged entries; see the module's docstring."""

    def __init__(
        self, precision_bits: int = DEFAULT_PRECISION_BITS, *, partition_index: int = UNKNOWN_PARTITION
    ) -> None:
        self.precision_bits = check_precision_bits(precision_bits)
        if not UNKNOWN_PARTITION <= partition_index < 2**31:
            raise InvalidValue(f"partition index {partition_index}", hint="-2 is unknown, -1 not partitioned")
        self.partition_index = partition_index
        self._tail: dict[int, dict[int, BitMap64]] = {}
        self._tail_heap: list[int] = []
        self._tail_groups = 0
        self._levels: list[list[Segment]] = []
        self._loose: list[tuple[Int64s, Int64s, Int64s]] = []
        self._loose_rows = 0
        self._loose_first = NO_BUCKET
        self._entry_count: int | None = 0

    def add(self, position: Position, delay_ms: int, *, now_ms: int) -> int:
        """Track one entry and return its bucket (epoch ms); raises InvalidValue without changing anything."""
        bucket = trim_lower_bits(due_time(delay_ms, now_ms), self.precision_bits)
        if not (0 <= position.ledger_id <= LONG_MAX and 0 <= position.entry_id <= LONG_MAX):
            raise InvalidValue(
                f"position {position} is not an entry",
                hint="ledger and entry ids are 0 to 2^63 - 1",
                value=str(position),
            )
        self._put(bucket, position.ledger_id, position.entry_id)
        return bucket

    def add_many(
        self, ledger_ids: npt.ArrayLike, entry_ids: npt.ArrayLike, delays_ms: npt.ArrayLike, *, now_ms: npt.ArrayLike
    ) -> None:
        """Track many entries; ``delays_ms`` and ``now_ms`` are columns, or one number for all entries.

        Raises InvalidValue, without changing anything, for numbers that are not integers from 0 to 2^63 - 1, columns of
        different lengths, and due times beyond 2^63 - 1.
        """
        ledgers, entries = check_column("ledger id", ledger_ids), check_column("entry id", entry_ids)
        due = add_times(check_column("delay", delays_ms), check_column("time", now_ms))
        if ledgers.ndim != 1 or ledgers.shape != entries.shape or due.shape not in ((), ledgers.shape):
            raise InvalidValue("columns of different lengths", hint="give one ledger, entry and delay per entry")
        buckets = np.broadcast_to(due & np.int64(-1 << self.precision_bits), ledgers.shape)
        if len(ledgers) < _FEW:
            for bucket, ledger, entry in zip(buckets.tolist(), ledgers.tolist(), entries.tolist(), strict=True):
                self._put(bucket, ledger, entry)
            return
        if len(ledgers) < _LOOSE_ROWS and _is_scattered(buckets, ledgers):
            self._entry_count = None
            self._loose.append((buckets.copy(), ledgers.copy(), entries.copy()))  # the caller's columns may change
            self._loose_rows += len(buckets)
            self._loose_first = min(self._loose_first, int(buckets.min()))
            if self._loose_rows >= _LOOSE_ROWS:
                self._seal_loose()
            return
        self._append(encode_blocks(*group_rows(buckets, ledgers, entries, self.precision_bits)))

    def due(self, now_ms: int) -> DueNacks:
        """Remove and return every bucket that is due at ``now_ms``; other buckets are not read."""
        now_ms = min(now_ms, LONG_MAX)
        if self._loose_first <= now_ms:
            self._seal_loose()
        blocks: list[Block] = []
        sources = 0
        for level in self._levels:
            for segment in level:
                if segment.head <= now_ms:
                    blocks += segment.pop_until(now_ms)
                    sources += 1
            if sources:
                level[:] = [segment for segment in level if segment.rows]
        groups = self._pop_tail(now_ms)
        if blocks or groups:
            self._entry_count = None
        if not blocks:
            return DueNacks(self.partition_index, groups=groups)
        if groups or sources > 1:
            blocks = merge_blocks([*blocks, *_seal(groups)])
        return DueNacks(self.partition_index, blocks=blocks)

    def next_deadline_ms(self) -> int | None:
        """Return the time of the earliest bucket, for which a timer can be set; None if nothing is tracked."""
        first = min((segment.head for level in self._levels for segment in level), default=NO_BUCKET)
        first = min(first, self._loose_first)
        if self._tail_heap:
            first = min(first, self._tail_heap[0])
        return None if first == NO_BUCKET else first

    def pending(self) -> DueNacks:
        """Return all tracked entries, without removing them."""
        return DueNacks(self.partition_index, blocks=self._merged())

    def __bool__(self) -> bool:
        return bool(self._tail_heap or self._loose) or any(self._levels)

    def __len__(self) -> int:
        """The number of tracked entries, counted once per bucket. Expensive: it merges a copy of all segments."""
        if self._entry_count is None:
            self._entry_count = sum(_count(block) for block in self._merged())
        return self._entry_count

    @property
    def size_bytes(self) -> int:
        """The memory in use: sealed columns and bitmaps, plain columns, and an estimated 600 bytes per live bitmap."""
        sealed = sum(segment.size_bytes for level in self._levels for segment in level)
        return sealed + self._loose_rows * _LOOSE_ROW_BYTES + self._tail_groups * _BITMAP_BYTES

    def to_bytes(self) -> bytes:
        """Return the serialized form (docs/formats/nacks.md); equal content gives equal bytes."""
        rows = join_blocks(self._merged())
        return encode_tracker(
            NackColumns(
                precision_bits=self.precision_bits,
                partition_index=self.partition_index,
                entry_count=len(self),
                buckets=rows.buckets,
                ledgers=rows.ledgers,
                lengths=rows.lengths,
                bitmaps=rows.bitmaps,
            )
        )

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> NegativeAcksTracker:
        """Return the tracker serialized in ``data``, which must not change afterwards because the tracker keeps views
        of it.

        Raises Corrupt for damaged bytes (checksum, order, any bitmap) and Unsupported for a newer version.
        """
        columns = decode_tracker(data)
        tracker = cls(columns.precision_bits, partition_index=columns.partition_index)
        rows = Block(columns.buckets, columns.ledgers, columns.lengths, columns.bitmaps)
        blocks = list(cut_blocks(rows))
        entries = sum(_count(block) for block in blocks)
        if entries != columns.entry_count:
            raise Corrupt(
                f"serialized tracker holds {entries} entries, its header says {columns.entry_count}",
                hint="nothing was loaded",
                expected=columns.entry_count,
                found=entries,
            )
        tracker._append(blocks)
        tracker._entry_count = entries
        return tracker

    @classmethod
    def open(cls, path: Path) -> NegativeAcksTracker:
        """Return the tracker serialized in a file, which is read completely; raises as ``from_bytes``, and NotFound."""
        try:
            data = read_file(path)
        except OSError as error:
            raise NotFound(f"{path}: {error.strerror}", hint="name a serialized tracker", path=str(path)) from error
        return cls.from_bytes(data)

    def _put(self, bucket: int, ledger_id: int, entry_id: int) -> None:
        self._entry_count = None
        ledgers = self._tail.get(bucket)
        if ledgers is None:
            ledgers = self._tail[bucket] = {}
            heapq.heappush(self._tail_heap, bucket)
        bitmap = ledgers.get(ledger_id)
        if bitmap is None:
            bitmap = ledgers[ledger_id] = BitMap64()
            self._tail_groups += 1
        bitmap.add(entry_id)
        if self._tail_groups >= _TAIL_GROUPS:
            self._append(_seal(self._pop_tail(LONG_MAX)))

    def _seal_loose(self) -> None:
        if self._loose:
            buckets, ledgers, entries = (np.concatenate(column) for column in zip(*self._loose, strict=True))
            self._loose, self._loose_rows, self._loose_first = [], 0, NO_BUCKET
            self._append(encode_blocks(*group_rows(buckets, ledgers, entries, self.precision_bits)))

    def _pop_tail(self, now_ms: int) -> list[DueGroup]:
        groups = []
        while self._tail_heap and self._tail_heap[0] <= now_ms:
            bucket = heapq.heappop(self._tail_heap)
            groups += [DueGroup(bucket, ledger, bitmap) for ledger, bitmap in sorted(self._tail.pop(bucket).items())]
        self._tail_groups -= len(groups)
        return groups

    def _append(self, blocks: list[Block]) -> None:
        """Add sorted, non-overlapping blocks as a segment, and merge eight segments of about the same size into one."""
        self._entry_count = None
        while blocks:
            segment = Segment(blocks)
            # Segments of one level differ in size by less than a factor of eight.
            index = max((segment.rows // _TAIL_GROUPS).bit_length() - 1, 0) // 3
            self._levels += [[] for _ in range(len(self._levels), index + 1)]
            level = self._levels[index]
            level.append(segment)
            if len(level) < _FAN_IN:
                return
            blocks = merge_blocks([block for segment in level for block in segment.blocks()])
            level.clear()

    def _merged(self) -> list[Block]:
        """Return all tracked entries as sorted blocks, without removing them."""
        self._seal_loose()
        segments = [segment for level in self._levels for segment in level]
        blocks = [block for segment in segments for block in segment.blocks()]
        live = [
            DueGroup(bucket, ledger, bitmap)
            for bucket, ledgers in sorted(self._tail.items())
            for ledger, bitmap in sorted(ledgers.items())
        ]
        return merge_blocks([*blocks, *_seal(live)]) if live or len(segments) > 1 else blocks


def _is_scattered(buckets: Int64s, ledgers: Int64s) -> bool:
    """Whether few neighbouring rows have the same bucket and ledger."""
    changes = np.count_nonzero((buckets[1:] != buckets[:-1]) | (ledgers[1:] != ledgers[:-1])) + 1
    return int(changes) * _SCATTERED > len(buckets)


def _seal(groups: Sequence[DueGroup]) -> list[Block]:
    """Return the blocks of live groups, which are sorted by bucket and ledger."""
    if not groups:
        return []
    sizes = np.array([0, *(len(group.entry_ids) for group in groups)], dtype=np.int64)
    entry_ids = np.concatenate([np.frombuffer(group.entry_ids.to_array(), dtype=np.int64) for group in groups])
    buckets = np.array([group.bucket_ms for group in groups], dtype=np.int64)
    ledgers = np.array([group.ledger_id for group in groups], dtype=np.int64)
    return encode_blocks(buckets, ledgers, np.cumsum(sizes), entry_ids)


def _count(block: Block) -> int:
    return int(decode_groups(block.lengths, block.bitmaps)[0][-1])
