"""What the broker itself would answer: its probes, its pruning by ledger close time, its two clocks. Pulsar 4.0.8.

Sources: ``OpFindNewest``, ``PersistentMessageFinder``, ``ManagedLedgerImpl.asyncFindPosition``,
``PersistentMessageExpiryMonitor``, ``CompactedTopicImpl`` (pulsar.md §3.2–3.4, §3.7). Probing assumes that time never runs
backwards; where it does, the answer depends on these very probes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from store.compaction import CompactedView, find_compacted_view, read_compacted_entry
from store.cursors import Cursor, normal_ranges
from store.errors import EntryNotFound
from store.extent import subtract
from store.ledgers import EntryReader
from store.names import Position
from store.search import read_entry_time
from store.topics import Topic

CLOCK_SKEW_MARGIN_MS = 60_000
"""``managedLedgerCursorResetLedgerCloseTimestampMaxClockSkewMillis``, 4.0.8's default."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One entry the broker looks at: its time (None: unreadable, which counts as not matching) and whether it matched."""

    position: Position
    time_ms: int | None
    matches: bool


@dataclass(slots=True)
class BrokerSearch:
    """The broker's searches in one topic; ``probes`` lists what the last one looked at, ``pruned`` the range it kept."""

    reader: EntryReader
    topic: Topic
    probes: list[Probe] = field(default_factory=list)
    pruned: tuple[Position | None, Position | None] = (None, None)
    used_compacted_ledger: int | None = None
    _times: dict[Position, int | None] = field(default_factory=dict)

    def message_id_by_time(self, time_ms: int) -> Position:
        """Return what GET messageid/{timestamp} answers; a position behind the last entry when nothing is late enough."""
        self.probes, self.used_compacted_ledger = [], None
        view = find_compacted_view(self.reader, self.topic)
        if view is not None and view.last_entry_id >= 0:
            found = self._find_in_compacted(view, time_ms)
            if found is not None:
                self.used_compacted_ledger = view.ledger_id
                return found
        count = self.topic.number_of_entries
        newest = self._find_newest((0, count - 1), self._earlier_than(time_ms), None)
        if newest is None:
            first = self.topic.first_position
            return Position(first.ledger_id, first.entry_id + 1)
        return self.topic.next_valid(newest)

    def reset_read_position(self, cursor: Cursor, time_ms: int, skew_ms: int = CLOCK_SKEW_MARGIN_MS) -> Position:
        """Return the read position a reset by time leaves: behind the newest earlier entry it finds, or the topic's first."""
        self.probes = []
        start, end = self._prune(time_ms, skew_ms)
        self.pruned = (start, end)
        topic = self.topic
        first_rank = topic.rank(start) if start is not None else 0
        end_rank = topic.rank(end) if end is not None and end < topic.last_confirmed else topic.number_of_entries - 1
        size = end_rank - first_rank + 1
        newest = self._find_newest((first_rank, size), self._earlier_than(time_ms), cursor) if size > 0 else None
        if newest is None:
            return Position(topic.first_position.ledger_id, 0)
        return Position(newest.ledger_id, newest.entry_id + 1)

    def expire_position(self, cursor: Cursor, now_ms: int, ttl_seconds: int) -> Position | None:
        """Return the mark-delete after an expiry by age, None when it stays where it is."""
        self.probes = []
        topic = self.topic
        limit_ms = ttl_seconds * 1000
        if ttl_seconds <= 0:
            return None
        mark_delete = self._expire_whole_ledgers(cursor.mark_delete, now_ms - limit_ms)
        start_rank = topic.place(mark_delete)
        size = topic.number_of_entries - start_rank
        if size > 0:
            newest = self._find_newest((start_rank, size), lambda at: at is not None and now_ms > at + limit_ms, cursor)
            mark_delete = max(mark_delete, newest) if newest is not None else mark_delete
        return mark_delete if mark_delete > cursor.mark_delete else None

    def _expire_whole_ledgers(self, mark_delete: Position, limit_ms: int) -> Position:
        """The fast path: ledgers closed before the limit go without a look at their entries."""
        last = None
        for ledger in self.topic.ledgers:
            if ledger.ledger_id < mark_delete.ledger_id:
                continue
            if not ledger.info.timestamp_ms or ledger.info.timestamp_ms >= limit_ms:
                break
            last = Position(ledger.ledger_id, ledger.entries - 1)
        return mark_delete if last is None else max(mark_delete, min(last, self.topic.last_confirmed))

    def _prune(self, time_ms: int, skew_ms: int) -> tuple[Position | None, Position | None]:
        """Narrow the search by the times at which ledgers were closed (PR 22792, 24219)."""
        start = end = None
        if skew_ms < 0:
            return None, None
        for ledger in self.topic.ledgers:
            closed_ms = ledger.info.timestamp_ms
            if closed_ms is None:
                return None, None
            if closed_ms == 0:
                return start, None
            edge = Position(ledger.ledger_id, ledger.entries - 1)
            if closed_ms <= time_ms - skew_ms:
                start = edge
            elif closed_ms > time_ms + skew_ms:
                end = edge
                break
        return start, end

    def _earlier_than(self, time_ms: int) -> Callable[[int | None], bool]:
        return lambda at: at is not None and at < time_ms

    def _find_newest(
        self, search: tuple[int, int], condition: Callable[[int | None], bool], cursor: Cursor | None
    ) -> Position | None:
        """OpFindNewest from rank START over N entries; with CURSOR it also gives up where that has nothing undeleted left."""
        start, high = search
        low = 0
        if not self._has_more(start, cursor) or not self._probe(start, condition):
            return None
        best = self._at(start)
        if not self._has_more(self._clamp(start + high), cursor):
            return best
        if self._probe(start + high, condition):
            return self._at(start + high)
        while high > low:
            middle = low + max((high - low) // 2, 1)
            if not self._has_more(self._clamp(start + middle), cursor):
                return best
            if self._probe(start + middle, condition):
                best, low = self._at(start + middle), middle
            else:
                high = middle - 1
        return best

    def _clamp(self, rank: int) -> int:
        return min(rank, self.topic.number_of_entries - 1)

    def _at(self, rank: int) -> Position:
        return self.topic.at_rank(self._clamp(rank))

    def _has_more(self, rank: int, cursor: Cursor | None) -> bool:
        end = self.topic.number_of_entries
        if rank >= end:
            return False
        if cursor is None:
            return True
        return bool(subtract(((rank, end),), normal_ranges(self.topic, cursor.state)))

    def _probe(self, rank: int, condition: Callable[[int | None], bool]) -> bool:
        position = self._at(rank)
        if position not in self._times:
            try:
                self._times[position] = read_entry_time(self.reader, position, "auto")
            except EntryNotFound:
                self._times[position] = None
        time_ms = self._times[position]
        matches = condition(time_ms)
        self.probes.append(Probe(position, time_ms, matches))
        return matches

    # -- compacted ledger ---------------------------------------------------------------------------------------------

    def _find_in_compacted(self, view: CompactedView, time_ms: int) -> Position | None:
        """Return what the compacted ledger answers, by publish time; None: the managed ledger is asked."""
        last = read_compacted_entry(self.reader, view, view.last_entry_id)
        last_ms = last.header.metadata.publish_time
        if time_ms == last_ms:
            return last.position
        return find_compacted_by_publish_time(self.reader, view, time_ms) if time_ms < last_ms else None


def find_compacted_by_publish_time(reader: EntryReader, view: CompactedView, time_ms: int) -> Position | None:
    """Return the first compacted entry published at or after TIME_MS as upstream's bisection finds it, or None."""
    low, high, found = 0, view.last_entry_id, None
    while low <= high:
        middle = (low + high) // 2
        entry = read_compacted_entry(reader, view, middle)
        if entry.header.metadata.publish_time >= time_ms:
            found, high = entry.position, middle - 1
        else:
            low = middle + 1
    return found
