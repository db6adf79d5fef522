"""The delayed messages of a subscription by due time, from its index or the topic's entries, and a time wheel over them.

The time wheel holds one partition of the index in granularity / tick slots; its caller advances the clock.

A message due at t is in slot floor(t / tick) and is dispatched as soon as the clock reaches that slot's start: never
late, and early by less than a tick. At most two windows are in memory, the current one and the next. Dispatched
messages stay in the source until the caller removes them there, so a new wheel can continue at any moment without loss.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.db.delayed import Index, find_index
from pulsar_admin.store.db.delayed_entries import DelayedRows, join_rows, no_rows, sorted_rows
from pulsar_admin.store.db.delayed_rules import IndexRules
from pulsar_admin.store.delayed.backlog import DelayScan, intervals_of, read_delayed, read_due_times
from pulsar_admin.store.delayed.build import PartitionSource, rules_of
from pulsar_admin.store.delayed.runs import SortedRuns
from pulsar_admin.store.model.cursors import Cursor, parts_of, pending_intervals, subtract
from pulsar_admin.store.model.messages import check_times
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import LONG_MAX, LONG_MIN
from pulsar_admin.store.scan.integer_rows import RunFile
from pulsar_admin.store.wording import Answer

if TYPE_CHECKING:
    import pyarrow as pa


_TIMES = {"deliver_at", "due_time", "start"}


class WaitingMessages(Protocol):
    """A source of delayed messages by due time."""

    def load(self, start_ms: int, end_ms: int) -> DelayedRows:
        """Return the messages due from ``start_ms`` to ``end_ms`` (excluded), in order."""

    def next_time_ms(self, start_ms: int) -> int | None:
        """Return a time from ``start_ms`` on, at or before the due time of the next message; None if there are no more."""


class Dispatch(Answer, frozen=True):
    """The messages of one slot, which begins at ``tick_ms``; ``rows`` are in order of (ledger, entry)."""

    tick_ms: int
    rows: DelayedRows


class _Window(Struct):
    """The slots of one turn of the wheel, from ``start_ms`` on.

    ``bounds[i]``: the index in ``rows`` where slot i begins.
    """

    start_ms: int
    rules: IndexRules
    rows: DelayedRows
    bounds: list[int]
    added: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    slot: int = 0  # the next to dispatch

    @staticmethod
    def of(start_ms: int, rules: IndexRules, rows: DelayedRows) -> _Window:
        slots = (rows.times_ms - start_ms) // rules.tick_ms
        return _Window(start_ms, rules, rows, np.searchsorted(slots, np.arange(rules.slots + 1)).tolist())

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.rules.granularity_ms

    def slot_of(self, time_ms: int) -> int:
        return (time_ms - self.start_ms) // self.rules.tick_ms

    def take(self, slot: int) -> Dispatch | None:
        rows = self.rows.take(slice(self.bounds[slot], self.bounds[slot + 1]))
        tick_ms = self.start_ms + slot * self.rules.tick_ms
        more = self.added.pop(slot, [])
        if more:
            places = sorted({*zip(rows.ledger_ids.tolist(), rows.entry_ids.tolist(), strict=True), *more})
            columns = np.array(places, np.int64)
            rows = DelayedRows(np.full(len(places), tick_ms), columns[:, 0], columns[:, 1])
        return Dispatch(tick_ms, rows) if len(rows) else None


class TimeWheel:
    """Dispatches messages when they are due. It reads no clock: the time is the argument of ``advance``."""

    def __init__(self, rules: IndexRules, source: WaitingMessages) -> None:
        self._rules = rules
        self._source = source
        self._current: _Window | None = None
        self._next: _Window | None = None
        self._overdue: set[tuple[int, int, int]] = set()  # (tick, ledger, entry) added for a slot that was over already

    @property
    def held(self) -> int:
        """The number of messages in memory."""
        windows = [window for window in (self._current, self._next) if window is not None]
        added = sum(len(places) for window in windows for places in window.added.values())
        return sum(len(window.rows) for window in windows) + added + len(self._overdue)

    def advance(self, now_ms: int) -> Iterator[Dispatch]:
        """Yield the slots that begin at or before ``now_ms`` and were not yielded yet, in time order, without empty ones.

        The caller may stop the iteration anywhere: the next call continues after the last slot yielded. Nothing is
        yielded if the clock goes back.
        """
        if self._current is None:
            self._open(None, now_ms)
        while True:
            window = self._current
            assert window is not None
            while self._overdue:
                tick_ms = min(self._overdue)[0]
                places = sorted(place for place in self._overdue if place[0] == tick_ms)
                self._overdue.difference_update(places)
                columns = np.array(places, np.int64)
                yield Dispatch(tick_ms, DelayedRows(columns[:, 0], columns[:, 1], columns[:, 2]))
            last = min(window.slot_of(now_ms), window.rules.slots - 1)
            while window.slot <= last:
                # Counted before it is handed out: a caller may stop here and go on later.
                window.slot += 1
                dispatch = window.take(window.slot - 1)
                if dispatch is not None:
                    yield dispatch
            if now_ms < window.end_ms:
                # The next window is loaded once half of this one is over: before it is needed.
                if self._next is None and now_ms - window.start_ms >= self._rules.granularity_ms // 2:
                    self._next = self._load(window.end_ms)
                return
            self._open(window, now_ms)

    def _open(self, before: _Window | None, now_ms: int) -> None:
        """Make the next window current: that of the next message after ``before``, at the latest that of ``now_ms``."""
        start_ms = LONG_MIN if before is None else before.end_ms
        if before is not None and self._next is not None and self._next.start_ms == before.end_ms:
            self._current, self._next = self._next, None
            return
        width = self._rules.granularity_ms
        here = now_ms // width * width
        first = self._source.next_time_ms(start_ms)
        first = here if first is None else min(first // width * width, here)
        if before is not None:
            first = max(first, before.end_ms)
        self._current, self._next = self._load(first), None

    def _load(self, start_ms: int) -> _Window:
        rows = self._source.load(start_ms, start_ms + self._rules.granularity_ms)
        return _Window.of(start_ms, self._rules, rows)

    def add(self, time_ms: int, ledger_id: int, entry_id: int) -> bool:
        """Add a message that was published after its partition was loaded.

        Returns False if its partition is not loaded: it is then expected from the source. A message that is due before
        the current slot is yielded first at the next advance.
        """
        current = self._current
        if current is None:
            return False
        window = current if time_ms < current.end_ms else self._next
        if window is None or time_ms >= window.end_ms:
            return False
        slot = window.slot_of(time_ms)
        if slot < window.slot:
            self._overdue.add((time_ms // self._rules.tick_ms * self._rules.tick_ms, ledger_id, entry_id))
        else:
            window.added.setdefault(slot, []).append((ledger_id, entry_id))
        return True


class Load(Struct, frozen=True):
    """A partition of due times, and the number of messages due in it."""

    start_ms: int
    width_ms: int
    messages: int


class Waiting(Struct, frozen=True):
    """The delayed messages of one subscription. ``index``: None if the entries were read instead.

    ``loads``: in time order.
    """

    topic: str
    subscription: str  # "": the topic has no subscription
    rules: IndexRules
    source: WaitingMessages
    loads: tuple[Load, ...]
    index: Index | None = None

    @property
    def messages(self) -> int:
        """The number of delayed messages in the backlog, due or not."""
        return sum(load.messages for load in self.loads)

    def count_before(self, end_ms: int) -> int:
        """Return how many messages are due before ``end_ms``; reads only the partitions that contain ``end_ms``."""
        whole = sum(load.messages for load in self.loads if load.start_ms + load.width_ms <= end_ms)
        cut_through = [load for load in self.loads if load.start_ms < end_ms < load.start_ms + load.width_ms]
        if not cut_through:
            return whole
        start_ms = min(load.start_ms for load in cut_through)
        inside = len(self.source.load(start_ms, end_ms))
        # What other partitions hold of that time is counted in both.
        ends = (load.start_ms + load.width_ms for load in self.loads)
        if any(end > load.start_ms for end, load in zip(ends, self.loads[1:], strict=False)):
            return sum(len(rows) for rows in self.iter_rows(LONG_MIN, end_ms))
        return whole + inside

    def iter_rows(self, start_ms: int, end_ms: int) -> Iterator[DelayedRows]:
        """Yield the messages due from ``start_ms`` to ``end_ms`` (excluded), a window at a time, in order."""
        width = self.rules.granularity_ms
        at = self.source.next_time_ms(start_ms)
        while at is not None and at < end_ms:
            window_end = (at // width + 1) * width
            rows = self.source.load(max(at, start_ms), min(window_end, end_ms))
            if len(rows):
                yield rows
            at = self.source.next_time_ms(window_end)

    def edges(self) -> tuple[int, int] | None:
        """Return when the first and the last message are due, None if nothing waits."""
        if not self.loads:
            return None
        first, last = self.loads[0], max(self.loads, key=lambda load: load.start_ms + load.width_ms)
        early = self.source.load(first.start_ms, first.start_ms + first.width_ms)
        late = self.source.load(last.start_ms, min(last.start_ms + last.width_ms, LONG_MAX))
        return int(early.times_ms[0]), int(late.times_ms[-1])


class AtOnce(Struct):
    """A source whose messages are all due at ``at_ms``, in topic order; it holds 24 bytes per message after the first
    access."""

    waiting: Waiting
    at_ms: int
    _rows: DelayedRows | None = None

    def load(self, start_ms: int, end_ms: int) -> DelayedRows:
        """Return all messages if ``at_ms`` is in the requested time."""
        if not start_ms <= self.at_ms < end_ms:
            return no_rows()
        if self._rows is None:
            rows = join_rows(list(self.waiting.iter_rows(LONG_MIN, LONG_MAX)))
            self._rows = sorted_rows(np.full(len(rows), self.at_ms), rows.ledger_ids, rows.entry_ids)
        return self._rows

    def next_time_ms(self, start_ms: int) -> int | None:
        """Return ``at_ms`` unless ``start_ms`` is later."""
        return self.at_ms if start_ms <= self.at_ms else None


def without_delay(waiting: Waiting, at_ms: int) -> Waiting:
    """Return ``waiting`` for disabled delayed delivery, with all messages due at ``at_ms``."""
    width_ms = waiting.rules.granularity_ms
    load = Load(at_ms // width_ms * width_ms, width_ms, waiting.messages)
    return replace(waiting, source=AtOnce(waiting, at_ms), loads=(load,) if load.messages else ())


def open_waiting(reader: EntryReader, cursors: Iterable[tuple[Topic, Cursor]], file: RunFile) -> Iterator[Waiting]:
    """Yield the delayed messages of each cursor, from its index if that is current, otherwise from the topic's entries.

    Entries are read for all cursors together. ``file`` holds the rows that exceed memory and must stay open while the
    results are used. Raises IndexCorrupt, Unsupported, DiskFull.
    """
    known: list[tuple[Topic, Cursor, Index | DelayScan]] = []
    read: dict[DelayScan, SortedRuns] = {}
    for topic, cursor in cursors:
        index = find_index(reader.txn, topic.name, cursor.name)
        if index is not None and is_current(topic, cursor, index):
            known.append((topic, cursor, index))
        else:
            scan = DelayScan(reader, parts_of(topic, pending_intervals(topic, cursor.state)))
            read[scan] = SortedRuns(file, rules_of(reader.txn, topic))
            known.append((topic, cursor, scan))
    for scan, parts in groupby(read_delayed([*read]), itemgetter(0)):
        for _, rows in parts:
            read[scan].add(rows)
        read[scan].flush()
    for topic, cursor, source in known:
        if isinstance(source, Index):
            loads = tuple(Load(part.start_ms, part.width_ms, part.messages) for part in source.partitions)
            yield Waiting(str(topic.name), cursor.name, source.rules, PartitionSource(reader, source), loads, source)
        else:
            runs = read[source]
            width_ms = runs.rules.granularity_ms
            loads = tuple(Load(start_ms, width_ms, count) for start_ms, count in sorted(runs.counts.items()))
            yield Waiting(str(topic.name), cursor.name, runs.rules, runs, loads)


def due_table(reader: EntryReader, waiting: Waiting, until_ms: int) -> pa.Table:
    """Return the messages due up to ``until_ms``: ``ledger_id``, ``entry_id``, ``deliver_at`` (start of the tick) and
    ``due_time`` (the exact time in the entry, null if it cannot be read).
    """
    rows = join_rows(list(waiting.iter_rows(LONG_MIN, until_ms + 1)))
    exact = read_due_times(reader, rows)
    places = zip(rows.ledger_ids.tolist(), rows.entry_ids.tolist(), strict=True)
    return _table(
        ledger_id=rows.ledger_ids,
        entry_id=rows.entry_ids,
        deliver_at=rows.times_ms,
        due_time=[exact.get(place) for place in places],
    )


def load_table(waiting: Waiting) -> pa.Table:
    """Return the number of messages by due time: ``start``, ``width_ms`` and ``messages`` of each partition."""
    loads = waiting.loads
    return _table(
        start=[load.start_ms for load in loads],
        width_ms=[load.width_ms for load in loads],
        messages=[load.messages for load in loads],
    )


def _table(**columns: Sequence[int | None] | Array) -> pa.Table:
    import pyarrow as pa

    from pulsar_admin.store.scan.typed_values import timestamps

    arrays = {name: pa.array(values, pa.int64()) for name, values in columns.items()}
    return pa.table({name: timestamps(array) if name in _TIMES else array for name, array in arrays.items()})


def is_current(topic: Topic, cursor: Cursor, index: Index) -> bool:
    """Whether an index covers exactly the entries in a cursor's backlog."""
    pending, covered = pending_intervals(topic, cursor.state), intervals_of(topic, index.covered)
    return not subtract(pending, covered) and not subtract(covered, pending)


class Replayed(Answer, frozen=True):
    """The messages that a subscription's wheel dispatches for one slot."""

    topic: str
    subscription: str
    dispatch: Dispatch


class After(Struct, frozen=True):
    """A source without the messages due before ``start_ms``, for continuing a replay."""

    source: WaitingMessages
    start_ms: int

    def load(self, start_ms: int, end_ms: int) -> DelayedRows:
        """Return the messages due in the requested time."""
        return self.source.load(max(start_ms, self.start_ms), max(end_ms, self.start_ms))

    def next_time_ms(self, start_ms: int) -> int | None:
        """Return a time at or before the due time of the next message; None if there are no more."""
        return self.source.next_time_ms(max(start_ms, self.start_ms))


def iter_replay(waitings: Iterable[Waiting], from_ms: int | None, until_ms: int) -> Iterator[Replayed]:
    """Yield every slot due up to ``until_ms``, in time order over all subscriptions.

    Messages due before ``from_ms`` are skipped. Two windows per subscription are in memory. Raises InvalidValue if the
    end is before the start.
    """
    check_times(from_ms, until_ms)
    streams = [_stream(number, waiting, from_ms, until_ms) for number, waiting in enumerate(waitings)]
    for _, _, message in heapq.merge(*streams, key=lambda row: row[:2]):
        yield message


def _stream(number: int, waiting: Waiting, from_ms: int | None, until_ms: int) -> Iterator[tuple[int, int, Replayed]]:
    source = waiting.source if from_ms is None else After(waiting.source, from_ms)
    for dispatch in TimeWheel(waiting.rules, source).advance(until_ms):
        yield dispatch.tick_ms, number, Replayed(waiting.topic, waiting.subscription, dispatch)
