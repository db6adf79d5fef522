"""Entries of a topic as columns: places from the location index, bytes read in large runs, headers decoded by the kernel.

Nothing here creates an object per entry. Callers that need more than the kernel decodes work on ``EntryBatch.data`` with the offsets of
the batch (``store.kernels.messages``), and leave the few unusual entries to the ordinary readers.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.db.blocks import Block
from pulsar_admin.store.db.clocks import Clock, block_max, block_min, check_clock
from pulsar_admin.store.db.delayed_entries import DelayedRows
from pulsar_admin.store.errors import EntryCorrupt, EntryLogCorrupt, InvalidValue
from pulsar_admin.store.kernels.compiled import METER
from pulsar_admin.store.model.cursors import Intervals, iter_ledger_parts
from pulsar_admin.store.model.ledgers import iter_blocks, iter_blocks_of
from pulsar_admin.store.model.messages import Window
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import LATEST, LONG_MAX
from pulsar_admin.store.scan.files import LedgerDigests
from pulsar_admin.store.scan.integer_rows import runs_of
from pulsar_admin.store.scan.places import (
    BATCH_BYTES,
    BATCH_ENTRIES,
    EntryBatch,
    Part,
    Places,
    PlacesReader,
    doubtful,
    is_small_part,
    record_times,
    split_places,
)

_TOGETHER_ENTRIES = 1024
"""Entries of small parts of ledgers whose places are made at once."""


class EntryScan(Struct):
    """One run over parts of a topic. After ``batches`` it has the missing (in no file) and the damaged entries."""

    reader: EntryReader
    parts: Iterable[Part]
    heads: bool = False
    batch_bytes: int = BATCH_BYTES
    digests: LedgerDigests | None = None  # how to verify; None: as the index says
    missing: int = 0
    unreadable: list[EntryCorrupt | EntryLogCorrupt] = field(default_factory=list)

    def batches(self) -> Iterator[EntryBatch]:
        """Yield the entries in the order of the parts, in bounded memory."""
        for _, batch in self.placed():
            yield batch

    def placed(self) -> Iterator[tuple[Places, EntryBatch]]:
        """Yield the entries as ``batches`` does where files are read, each batch with the places that it was read from."""
        if self.heads and self.reader.engine is not None:
            from pulsar_admin.store.scan.operations import read_heads  # brings pyarrow

            for places, heads in read_heads(self.reader.engine, self.reader.files, self.groups()):
                if heads is None:
                    yield from ((places, batch) for batch in self.read_here(places))
                else:
                    yield places, self.without_damaged(heads, places)
                self.reader.advance(places.bytes)
            return
        for places in self.groups():
            for batch in self.read_here(places):
                yield places, batch
            self.reader.advance(places.bytes)

    def read_here(self, places: Places) -> Iterator[EntryBatch]:
        """Yield the good entries at these places, read in this process; if the reader records failures, entries in
        unreadable files are skipped."""
        for batch, there in self._at_places().read_present(places):
            yield self.without_damaged(batch, there)

    def groups(self) -> Iterator[Places]:
        """Yield the places of the parts, as many at a time as are read at once."""
        pending: list[Places] = []
        held_bytes = entries = 0
        for places in self._places():
            if pending and held_bytes + places.bytes > 2 * self.batch_bytes:
                yield Places.joined(pending)
                pending, held_bytes, entries = [], 0, 0
            pending.append(places)
            held_bytes += places.bytes
            entries += len(places.sizes)
            if held_bytes >= self.batch_bytes or entries >= BATCH_ENTRIES:
                yield Places.joined(pending)
                pending, held_bytes, entries = [], 0, 0
        if pending:
            yield Places.joined(pending)

    def _places(self) -> Iterator[Places]:
        small: list[
            tuple[Block, int, int]
        ] = []  # of many ledgers together: each by itself would cost more than to read it
        small_entries = small_bytes = 0
        for ledger_id, first, last in self.parts:
            expected = last - first + 1
            if last < LONG_MAX - 1:  # else nobody knows how many there are
                METER.expect(expected)
            for block in iter_blocks_of(self.reader.txn, ledger_id, first, last):
                low, high = block.index_of(first), block.index_of(last + 1)
                if high == 0:
                    break
                if high <= low:
                    continue
                expected -= high - low
                size_bytes = block.header.payload_bytes
                is_small = is_small_part(block, low, high) and size_bytes <= self.batch_bytes
                if small and small_bytes + size_bytes > self.batch_bytes:
                    yield Places.of_small(small)
                    small, small_entries, small_bytes = [], 0, 0
                if is_small:
                    small.append((block, low, high))
                    small_entries, small_bytes = small_entries + high - low, small_bytes + size_bytes
                if small and (not is_small or small_entries >= _TOGETHER_ENTRIES):
                    yield Places.of_small(small)
                    small, small_entries, small_bytes = [], 0, 0
                if not is_small:
                    yield from split_places(Places.of(block, low, high), self.batch_bytes)
            self.missing += expected
        if small:
            yield Places.of_small(small)

    def read_places(self, places: Places) -> EntryBatch:
        """Return the entries at these places as they are on disk, damaged ones included."""
        return self._at_places().read_places(places)

    def _at_places(self) -> PlacesReader:
        return PlacesReader(self.reader.files, self.heads, self.digests, self.reader.failed)

    def without_damaged(self, batch: EntryBatch, places: Places) -> EntryBatch:
        """Remove entries that are no longer those that were imported, and note why."""
        wrong = doubtful(batch, places)
        for index in np.flatnonzero(wrong).tolist():
            place = (int(places.files[index]), int(places.offsets[index]), int(places.sizes[index]))
            try:
                self.reader.read_at(int(batch.ledger_ids[index]), int(batch.entry_ids[index]), place)
            except (EntryCorrupt, EntryLogCorrupt) as error:
                self.unreadable.append(error)
            else:
                wrong[index] = False
        return batch.take(~wrong) if wrong.any() else batch


# -- window ------------------------------------------------------------------------------------------------------------
# The entries of a topic in a window of positions and times, as columns; blocks without such an entry are not read.


class TimeRange(NamedTuple):
    """Times on a clock, half-open, in ms."""

    clock: Clock
    start_ms: int
    end_ms: int


def window_ranks(topic: Topic, window: Window) -> tuple[int, int]:
    """Return the ranks (half-open) of the entries between the window's positions; raises InvalidValue for a batch index."""
    if window.first.batch_index >= 0 or window.last.batch_index >= 0:
        raise InvalidValue("entries are taken whole here", hint="name positions without a batch index")
    first = topic.last_confirmed if window.first == LATEST else window.first
    end = topic.place(window.last)
    return min(topic.rank(first), end), end


def is_within(topic: Topic, rows: DelayedRows, intervals: Intervals) -> Array:
    """Return a mask of the rows whose entries are in intervals of ranks of a topic."""
    ids = np.array([*topic.ids, -1], np.int64)
    places = np.searchsorted(ids[:-1], rows.ledger_ids)
    listed = ids[np.minimum(places, len(ids) - 1)] == rows.ledger_ids
    ranks = np.array(topic.ranks, np.int64)[np.minimum(places, len(topic.ranks) - 1)] + rows.entry_ids
    edges = np.array(intervals, np.int64).reshape(-1)
    inside: Array = listed & (np.searchsorted(edges, ranks, side="right") % 2 == 1)
    return inside


class WindowScan:
    """One run over a window, or over ``parts`` instead of everything between its positions.

    After ``batches`` the scan's counts of missing and damaged entries are complete.
    """

    def __init__(self, reader: EntryReader, topic: Topic, window: Window, parts: Iterable[Part] | None = None) -> None:
        self._window = window
        self._clock: Clock = check_clock(window.clock)
        parts = iter_ledger_parts(topic, *window_ranks(topic, window)) if parts is None else parts
        self.scan = EntryScan(reader, self._pruned(reader, parts) if window.is_timed else parts)
        self._unlisted = 0

    @property
    def missing(self) -> int:
        """Entries between the positions that are in no imported file; their times are not known."""
        return self.scan.missing + self._unlisted

    def batches(self) -> Iterator[EntryBatch]:
        """Yield the entries of the window in topic order."""
        for batch in self.scan.batches():
            chosen = self.chosen(batch)
            if len(chosen):
                yield chosen

    def chosen(self, batch: EntryBatch) -> EntryBatch:
        """Return the entries of a batch whose time is in the window."""
        return batch if self.times is None else within(batch, self.times)

    @property
    def times(self) -> TimeRange | None:
        """The clock, and the half-open range of times that selects entries; None: all."""
        return TimeRange(self._clock, *self._window.times) if self._window.is_timed else None

    def _pruned(self, reader: EntryReader, parts: Iterable[Part]) -> Iterator[Part]:
        """Yield the blocks that may hold an entry of the window; count the entries that no file has."""
        start_ms, end_ms = self._window.times
        for ledger_id, first, last in parts:
            self._unlisted += last - first + 1
            for block in iter_blocks(reader.txn, ledger_id, first):
                low, high = block.index_of(first), block.index_of(last + 1)
                if high == 0:
                    break
                self._unlisted -= high - low
                if high > low and block_max(block, self._clock) >= start_ms and block_min(block, self._clock) < end_ms:
                    # Entries lost inside the block are counted already: name the existing ones, run by run.
                    yield from _runs(block, low, high)


def within(batch: EntryBatch, times: TimeRange) -> EntryBatch:
    """Return the entries of a batch whose time is in one of the ranges."""
    times_ms, known = record_times(batch.rows, times.clock)
    return batch.take(known & (times_ms >= times.start_ms) & (times_ms < times.end_ms))


def _runs(block: Block, low: int, high: int) -> Iterator[Part]:
    """Yield the entries from ``low`` to ``high`` (excluded) of a block as parts without gaps."""
    ids = np.array([block.entry_id(index) for index in (low, high - 1)])
    if ids[1] - ids[0] == high - low - 1:
        yield block.ledger_id, int(ids[0]), int(ids[1])
        return
    ids = np.fromiter((block.entry_id(index) for index in range(low, high)), np.int64, high - low)
    for start, end in runs_of(ids - np.arange(len(ids))):
        yield block.ledger_id, int(ids[start]), int(ids[end - 1])
