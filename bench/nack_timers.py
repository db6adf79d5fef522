"""Ways to redeliver negatively acknowledged entries, as plain state machines in simulated milliseconds.

``IntervalTimer``: the Java client before PIP-393 — one time per entry, the last nack's; all of them are looked at every third
of the delay. ``MergedTimer``: PIP-393 as merged (Java client 4.0.8) — buckets, one timer, armed at the first nack with that
nack's whole delay, so a shorter nack that follows waits for it. ``CppTimer``: the C++ client 3.7 to 4.2, which Python's and
Node's are made of (lib/NegativeAcksTracker.cc). ``GoTimer``: the Go client 0.15 to 0.21 (pulsar/negative_acks_tracker.go).
``DeadlineTimer``: PIP-393's buckets, the timer always set for the earliest.
"""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple, Protocol

from pulsar_admin.store.nacks.buckets import MIN_NACK_DELAY_MS
from pulsar_admin.store.nacks.sizes import pair_map_bytes
from pulsar_admin.store.nacks.tracker import NegativeAcksTracker
from pulsar_admin.store.names import Position

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
        """Track ``entry``, nacked at ``now_ms`` for ``delay_ms``."""
        ...

    def fire(self) -> list[Redelivery]:
        """Let the armed timer fire."""
        ...

    @property
    def size_bytes(self) -> int | None:
        """Memory of the tracked entries; None: never measured."""
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


class CppTimer:
    """An ordered map by due time, looked at when no nack has come for a third of the delay: each nack arms the timer anew.

    Its precision bits are taken off nanoseconds, so 8 of them are 256 ns: nothing here.
    """

    size_bytes = None

    def __init__(self, base_delay_ms: int) -> None:
        self.next_fire_ms: float | None = None
        self.visited = 0
        self._interval_ms = max(base_delay_ms, MIN_NACK_DELAY_MS) // 3
        self._due: list[tuple[int, Entry]] = []

    @property
    def pending(self) -> int:
        return len(self._due)

    def add(self, entry: Entry, now_ms: int, delay_ms: int) -> None:
        heapq.heappush(self._due, (now_ms + delay_ms, entry))
        self.next_fire_ms = now_ms + self._interval_ms

    def fire(self) -> list[Redelivery]:
        now_ms = self.next_fire_ms or 0.0
        self.next_fire_ms = now_ms + self._interval_ms if self._due else None
        asked: dict[Entry, list[int]] = {}  # one request names an entry once, however many nacks it answers
        while self._due and self._due[0][0] <= now_ms:
            due_ms, entry = heapq.heappop(self._due)
            asked.setdefault(entry, []).append(due_ms)
        self.visited += len(asked)
        return [Redelivery(entry, times) for entry, times in asked.items()]


class GoTimer:
    """Buckets by bits of the millisecond, looked at each third of the delay since the consumer was made (here: since 0).

    Looks that find nothing tracked are not counted as firings. The client (seen with 0.19.0) deletes from the tree it walks, and so
    passes over some buckets until a later look: this is the least it is late.
    """

    size_bytes = None

    def __init__(self, base_delay_ms: int, precision_bits: int) -> None:
        self.next_fire_ms: float | None = None
        self.visited = 0
        self._interval_ms = base_delay_ms / 3
        self._bits = precision_bits
        self._asked: dict[int, dict[Entry, list[int]]] = {}
        self._buckets: list[int] = []

    @property
    def pending(self) -> int:
        return sum(map(len, self._asked.values()))

    def add(self, entry: Entry, now_ms: int, delay_ms: int) -> None:
        bucket = (now_ms + delay_ms) >> self._bits << self._bits
        if bucket not in self._asked:
            heapq.heappush(self._buckets, bucket)
        self._asked.setdefault(bucket, {}).setdefault(entry, []).append(now_ms + delay_ms)
        if self.next_fire_ms is None:
            self.next_fire_ms = (math.floor(now_ms / self._interval_ms) + 1) * self._interval_ms

    def fire(self) -> list[Redelivery]:
        now_ms = self.next_fire_ms or 0.0
        redelivered: list[Redelivery] = []
        while self._buckets and self._buckets[0] <= now_ms + _EPSILON_MS:
            found = self._asked.pop(heapq.heappop(self._buckets))
            redelivered += [Redelivery(entry, times) for entry, times in found.items()]
        self.visited += len(redelivered)
        self.next_fire_ms = now_ms + self._interval_ms if self._buckets else None
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
