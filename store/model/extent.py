"""How much lies in a part of a topic: entries, messages, bytes, from the location index alone."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from msgspec import Struct

from pulsar_admin.store.codec.cursor import CursorState
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.model.cursors import normal_ranges
from pulsar_admin.store.model.ledgers import find_sums, iter_blocks_of
from pulsar_admin.store.model.topics import Topic

Intervals = tuple[tuple[int, int], ...]
"""Half-open intervals of ranks (``Topic.rank``), ascending, disjoint."""


class Extent(Struct, frozen=True):
    """Entries, messages (batches count their messages; an entry whose bytes are lost counts one) and payload bytes."""

    entries: int = 0
    messages: int = 0
    bytes: int = 0

    def __add__(self, other: Extent) -> Extent:
        return Extent(self.entries + other.entries, self.messages + other.messages, self.bytes + other.bytes)


def pending_intervals(topic: Topic, state: CursorState, ranges: Intervals | None = None) -> Intervals:
    """Return a cursor's backlog: what is behind the mark-delete, without the individually deleted RANGES, where these are at hand."""
    start = topic.place(state.mark_delete)
    pending = []
    done = normal_ranges(topic, state) if ranges is None else ranges
    for hole_start, hole_end in (*done, (topic.number_of_entries, topic.number_of_entries)):
        if start < hole_start:
            pending.append((start, hole_start))
        start = max(start, hole_end)
    return tuple(pending)


def subtract(left: Intervals, right: Intervals) -> Intervals:
    """Return the ranks in LEFT that are not in RIGHT."""
    result = []
    first = 0
    for start, end in left:
        while first < len(right) and right[first][1] <= start:
            first += 1
        index = first
        while index < len(right) and right[index][0] < end:
            if start < right[index][0]:
                result.append((start, right[index][0]))
            start = max(start, right[index][1])
            index += 1
        if start < end:
            result.append((start, end))
    return tuple(result)


def extent_of(txn: Txn, topic: Topic, intervals: Iterable[tuple[int, int]]) -> Extent:
    """Return how much lies in INTERVALS of TOPIC; reads index rows only."""
    entries = messages = size_bytes = 0
    for start, end in intervals:
        for ledger_id, first, last in iter_ledger_parts(topic, start, end):
            found = _ledger_extent(txn, topic, ledger_id, first, last)
            entries, messages, size_bytes = entries + last - first + 1, messages + found[0], size_bytes + found[1]
    return Extent(entries, messages, size_bytes)


def iter_ledger_parts(topic: Topic, start: int, end: int) -> Iterable[tuple[int, int, int]]:
    """Yield (ledger id, first entry, last entry) of the ranks START to END (excluded)."""
    rank = start
    before = topic.ranks
    while rank < end:
        index = bisect_right(before, rank) - 1
        first = rank - before[index]
        last = min(end, before[index + 1]) - before[index] - 1
        yield topic.ids[index], first, last
        rank = before[index] + last + 1


def parts_of(topic: Topic, intervals: Intervals) -> tuple[tuple[int, int, int], ...]:
    """Return INTERVALS of ranks as parts of ledgers: they stay right when the topic loses its first ledgers."""
    return tuple(part for start, end in intervals for part in iter_ledger_parts(topic, start, end))


def _ledger_extent(txn: Txn, topic: Topic, ledger_id: int, first: int, last: int) -> tuple[int, int]:
    """Return messages and bytes of the entries FIRST to LAST of a ledger."""
    entries = last - first + 1
    sums = find_sums(txn, ledger_id)
    if sums is None:
        ledger = topic.ledger(ledger_id)
        whole = ledger is not None and entries == ledger.entries
        return entries, ledger.size_bytes if ledger is not None and whole else 0
    if first <= sums.first_entry and last >= sums.last_entry:
        return sums.messages + entries - sums.entries, sums.payload_bytes
    here, messages, size_bytes = 0, 0, 0
    for block in iter_blocks_of(txn, ledger_id, first, last):
        low, high = block.index_of(first), block.index_of(last + 1)
        if high == 0:
            break
        here += high - low
        if high - low == len(block):
            messages += block.header.messages
            size_bytes += block.header.payload_bytes
            continue
        counts = block.message_counts()
        messages += high - low if isinstance(counts, int) else sum(counts[low:high])
        before = block.payload_before()
        size_bytes += before[high] - before[low]
    return messages + entries - here, size_bytes
