"""The entries of a topic in a window of positions and times, as columns; blocks without such an entry are not read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from store.aliases import Array
from store.db.blocks import Block
from store.db.clocks import Clock, block_max, block_min, check_clock
from store.errors import InvalidValue
from store.frozen import NamedTuple
from store.kernels.records import HAS_BROKER_TIME, UNFRAMED
from store.model.extent import iter_ledger_parts
from store.model.ledgers import iter_blocks
from store.model.reader import EntryReader
from store.model.topics import Topic
from store.model.window import Window
from store.names import LATEST
from store.scan.entries import EntryScan
from store.scan.places import EntryBatch, Part


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


class WindowScan:
    """One run over a window, or over PARTS instead of what lies between its positions.

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
        """Return the entries of BATCH whose time is in the window."""
        return batch if self.times is None else within(batch, self.times)

    @property
    def times(self) -> TimeRange | None:
        """The clock and the times (half-open) that choose entries; None: all of them."""
        return TimeRange(self._clock, *self._window.times) if self._window.is_timed else None

    def _pruned(self, reader: EntryReader, parts: Iterable[Part]) -> Iterator[Part]:
        """Yield the blocks of PARTS that may hold an entry of the window; count what is in none."""
        start_ms, end_ms = self._window.times
        for ledger_id, first, last in parts:
            self._unlisted += last - first + 1
            for block in iter_blocks(reader.txn, ledger_id, first):
                low, high = block.index_of(first), block.index_of(last + 1)
                if high == 0:
                    break
                self._unlisted -= high - low
                if high > low and block_max(block, self._clock) >= start_ms and block_min(block, self._clock) < end_ms:
                    # Entries lost inside the block are counted here already: name what is there, run by run.
                    yield from _runs(block, low, high)


def within(batch: EntryBatch, times: TimeRange) -> EntryBatch:
    """Return the entries of BATCH whose time is one of TIMES."""
    found, known = entry_times(batch, times.clock)
    return batch.take(known & (found >= times.start_ms) & (found < times.end_ms))


def entry_times(batch: EntryBatch, clock: Clock) -> tuple[Array, Array]:
    """Return the times of a batch on CLOCK in ms, and which entries have one."""
    rows = batch.rows
    stamped = rows["flags"] & HAS_BROKER_TIME != 0
    if clock == "broker":
        return rows["broker_ms"], stamped
    times = rows["publish_ms"] if clock == "publish" else np.where(stamped, rows["broker_ms"], rows["publish_ms"])
    return times, rows["flags"] & UNFRAMED == 0


def _runs(block: Block, low: int, high: int) -> Iterator[Part]:
    """Yield the entries LOW to HIGH (excluded) of BLOCK as parts without gaps."""
    ids = np.array([block.entry_id(index) for index in (low, high - 1)])
    if ids[1] - ids[0] == high - low - 1:
        yield block.ledger_id, int(ids[0]), int(ids[1])
        return
    ids = np.fromiter((block.entry_id(index) for index in range(low, high)), np.int64, high - low)
    cuts = np.flatnonzero(ids[1:] != ids[:-1] + 1) + 1
    for start, end in zip(np.append(0, cuts), np.append(cuts, len(ids)), strict=True):
        yield block.ledger_id, int(ids[start]), int(ids[end - 1])
