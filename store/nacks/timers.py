"""Three ways to redeliver negatively acknowledged entries, as plain state machines in simulated milliseconds.

``IntervalTimer``: upstream before PIP-393 — one time per entry, the last nack's; all of them are looked at every third
of the delay. ``MergedTimer``: PIP-393 as merged (client 4.0.8) — buckets, one timer, armed at the first nack with that
nack's whole delay, so a shorter nack that follows waits for it. ``DeadlineTimer``: the same buckets, the timer always
set for the earliest.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple, Protocol

from store.nacks.backoff import MIN_NACK_DELAY_MS
from store.nacks.sizes import pair_map_bytes
from store.nacks.tracker import NegativeAcksTracker
from store.names import Position

Entry = tuple[int, int]

_PAIR_MAP_IDLE = 0.15
_EPSILON_MS = 1e-6


class Redelivery(NamedTuple):
    """One entry sent again, and the times asked for by the nacks that this answers."""

    entry: Entry
    asked_ms: list[int]


class NackTimer(Protocol):
    """State of one consumer; ``next_fire_ms`` is None while no timer is armed, ``visited`` counts entries looked at."""

    next_fire_ms: float | None
    visited: int

    @property
    def pending(self) -> int:
        """Entries tracked."""
        ...

    def add(self, entry: Entry, now_ms: int, delay_ms: int) -> None:
        """Track ENTRY, nacked at NOW_MS for DELAY_MS."""
        ...

    def fire(self) -> list[Redelivery]:
        """Let the armed timer fire."""
        ...

    @property
    def size_bytes(self) -> int:
        """Memory of the tracked entries."""
        ...


class IntervalTimer:
    """Upstream's first tracker on ConcurrentLongLongPairHashMap, whose slots double and halve."""

    def __init__(self, base_delay_ms: int) -> None:
        self.next_fire_ms: float | None = None
        self.visited = 0
        self._interval_ms = max(base_delay_ms, MIN_NACK_DELAY_MS) / 3
        self._due: dict[Entry, int] = {}
        self._asked: dict[Entry, list[int]] = {}
        self._heap: list[tuple[int, Entry]] = []
        self._slots_bytes = pair_map_bytes(0)

    @property
    def pending(self) -> int:
        return len(self._due)

    @property
    def size_bytes(self) -> int:
        return self._slots_bytes

    def add(self, entry: Entry, now_ms: int, delay_ms: int) -> None:
        due_ms = now_ms + delay_ms
        self._due[entry] = due_ms
        self._asked.setdefault(entry, []).append(due_ms)
        heapq.heappush(self._heap, (due_ms, entry))
        self._slots_bytes = max(self._slots_bytes, pair_map_bytes(len(self._due)))
        if self.next_fire_ms is None:
            self.next_fire_ms = now_ms + self._interval_ms

    def fire(self) -> list[Redelivery]:
        now_ms = self.next_fire_ms or 0.0
        if not self._due:
            self.next_fire_ms = None
            return []
        self.visited += len(self._due)
        redelivered = []
        while self._heap and self._heap[0][0] <= now_ms + _EPSILON_MS:
            due_ms, entry = heapq.heappop(self._heap)
            if self._due.get(entry) == due_ms:
                del self._due[entry]
                redelivered.append(Redelivery(entry, self._asked.pop(entry)))
        while len(self._due) * 32 < _PAIR_MAP_IDLE * self._slots_bytes and self._slots_bytes > pair_map_bytes(0):
            self._slots_bytes //= 2
        self.next_fire_ms = now_ms + self._interval_ms
        return redelivered


class DeadlineTimer:
    """The tracker, with the timer set for its earliest bucket."""

    def __init__(self, precision_bits: int) -> None:
        self.next_fire_ms: float | None = None
        self.visited = 0
        self._tracker = NegativeAcksTracker(precision_bits)
        self._asked: dict[tuple[int, Entry], list[int]] = {}

    @property
    def pending(self) -> int:
        return len(self._asked)

    @property
    def size_bytes(self) -> int:
        return self._tracker.size_bytes

    def add(self, entry: Entry, now_ms: int, delay_ms: int) -> None:
        bucket = self._tracker.add(Position(*entry), delay_ms, now_ms=now_ms)
        self._asked.setdefault((bucket, entry), []).append(now_ms + delay_ms)
        self._arm(now_ms, bucket, delay_ms)

    def fire(self) -> list[Redelivery]:
        now_ms = int(self.next_fire_ms or 0)
        redelivered = []
        for group in self._tracker.due(now_ms):
            for entry_id in group.entry_ids:
                entry = (group.ledger_id, entry_id)
                redelivered.append(Redelivery(entry, self._asked.pop((group.bucket_ms, entry))))
        self.visited += len(redelivered)
        deadline = self._tracker.next_deadline_ms()
        self.next_fire_ms = None if deadline is None else max(deadline, now_ms)
        return redelivered

    def _arm(self, now_ms: int, bucket: int, delay_ms: int) -> None:
        wanted = max(bucket, now_ms)
        if self.next_fire_ms is None or wanted < self.next_fire_ms:
            self.next_fire_ms = wanted


class MergedTimer(DeadlineTimer):
    """The same, armed as upstream does."""

    def _arm(self, now_ms: int, bucket: int, delay_ms: int) -> None:
        if self.next_fire_ms is None:
            self.next_fire_ms = now_ms + delay_ms
