"""The time wheel: one partition of the index in granularity / tick slots, advanced by the owner of the clock.

A message due at t lies in the slot of floor(t / tick) and is given as soon as the clock reaches that slot's start: never late, early by
less than a tick. At most two windows are in memory, the one at hand and the next. What the wheel is given stays in its source
until the caller takes it out there, so a wheel made anew at any moment goes on without loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from msgspec import Struct, field

from pulsar_admin.store.db.delayed_entries import DelayedRows
from pulsar_admin.store.db.delayed_rules import IndexRules
from pulsar_admin.store.names import LONG_MIN
from pulsar_admin.store.wording import Answer


class WaitingMessages(Protocol):
    """The waiting messages. ``load`` returns those due from ``start_ms`` to ``end_ms`` (excluded), in order."""

    def load(self, start_ms: int, end_ms: int) -> DelayedRows:
        """Return the messages due in that time."""

    def next_time_ms(self, start_ms: int) -> int | None:
        """Return a time between ``start_ms`` and the due time of the first message at or after it; None: no more messages."""


class Dispatch(Answer, frozen=True):
    """The messages of one slot: ``tick_ms`` is its start, ``rows`` in order of (ledger, entry)."""

    tick_ms: int
    rows: DelayedRows


class _Window(Struct):
    """One turn of the wheel: the slots from ``start_ms`` on. ``bounds[i]``: where slot i begins in ``rows``."""

    start_ms: int
    rules: IndexRules
    rows: DelayedRows
    bounds: list[int]
    added: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    slot: int = 0  # the next to give

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
    """Gives messages when they are due. Pure but for its source: the clock is the argument of ``advance``."""

    def __init__(self, rules: IndexRules, source: WaitingMessages) -> None:
        self._rules = rules
        self._source = source
        self._current: _Window | None = None
        self._next: _Window | None = None
        self._overdue: set[tuple[int, int, int]] = set()  # tick, ledger, entry: behind the slot at hand when they came

    @property
    def held(self) -> int:
        """Messages in memory."""
        windows = [window for window in (self._current, self._next) if window is not None]
        added = sum(len(places) for window in windows for places in window.added.values())
        return sum(len(window.rows) for window in windows) + added + len(self._overdue)

    def advance(self, now_ms: int) -> Iterator[Dispatch]:
        """Yield the slots that begin at or before ``now_ms`` and were not yielded yet, in time order, without empty ones.

        The iteration may stop at any point: the next call continues after the last slot yielded. A clock that goes
        back yields nothing.
        """
        while self._current is not None or self._open(None, now_ms):
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
            if not self._open(window, now_ms):
                return

    def _open(self, before: _Window | None, now_ms: int) -> bool:
        """Load the next window that matters; return False if nothing waits up to now and the present window is past."""
        start_ms = LONG_MIN if before is None else before.end_ms
        if before is not None and self._next is not None and self._next.start_ms == before.end_ms:
            self._current, self._next = self._next, None
            return True
        width = self._rules.granularity_ms
        here = now_ms // width * width
        first = self._source.next_time_ms(start_ms)
        first = here if first is None else min(first // width * width, here)
        if before is not None:
            first = max(first, before.end_ms)
        self._current, self._next = self._load(first), None
        return True

    def _load(self, start_ms: int) -> _Window:
        rows = self._source.load(start_ms, start_ms + self._rules.granularity_ms)
        return _Window.of(start_ms, self._rules, rows)

    def add(self, time_ms: int, ledger_id: int, entry_id: int) -> bool:
        """Add a message that became delayed after its partition was loaded; return False if its partition is not
        loaded: it waits in the index.

        A message before the present slot is yielded first at the next advance.
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
