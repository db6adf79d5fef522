"""A cursor's backlog, searched by time: the first entry that is young enough, and entries dated in the future.

Only entries after the mark-delete that are not individually deleted count: entries acknowledged long ago, whatever their date,
holds nothing back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress

from msgspec import Struct, field

from pulsar_admin.store.codec.cursor import CursorState
from pulsar_admin.store.codec.message import decode_message_entry
from pulsar_admin.store.db.blocks import BLOCK_BITS, Block
from pulsar_admin.store.db.clocks import Clock, block_max, first_candidate
from pulsar_admin.store.errors import EntryCorrupt
from pulsar_admin.store.model.cursors import Intervals, iter_ledger_parts, pending_intervals
from pulsar_admin.store.model.entry_times import iter_block_times
from pulsar_admin.store.model.ledgers import find_times, iter_blocks
from pulsar_admin.store.model.publish_times import is_stated_earlier
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position

PRODUCERS_SAMPLE = 1_000


class Dated(Struct, frozen=True):
    """An entry, its time, and how many messages it holds."""

    position: Position
    time_ms: int
    messages: int


class PendingSearch(Struct):
    """Searches the pending entries of one cursor by time.

    ``unreadable`` counts late entries whose digest is wrong: they cannot be delivered, so they hold nothing
    back. ``ledgers_without_index``: ledgers with pending entries of which no byte was imported; their times are
    unknown.
    """

    reader: EntryReader
    topic: Topic
    state: CursorState
    clock: Clock
    unreadable: int = 0
    ledgers_without_index: dict[int, None] = field(default_factory=dict)

    @property
    def intervals(self) -> Intervals:
        """The pending entries as intervals of ranks."""
        return pending_intervals(self.topic, self.state)

    def find_first(self, time_ms: int) -> Dated | None:
        """Return the first pending entry whose time is ``time_ms`` or later."""
        for dated in self.iter_late(time_ms):
            try:
                self.reader.read(dated.position.ledger_id, dated.position.entry_id)
            except EntryCorrupt:
                self.unreadable += 1
                continue
            return dated
        return None

    def iter_late(self, time_ms: int) -> Iterator[Dated]:
        """Yield the pending entries whose time is ``time_ms`` or later, in topic order; reads headers, not digests."""
        intervals = self.intervals
        if not intervals:
            return
        starts = [start for start, _ in intervals]
        for block, ranks in self._iter_blocks(intervals, time_ms):
            for place, (entry_id, entry_ms) in enumerate(iter_block_times(self.reader, block, self.clock)):
                rank = ranks.start + entry_id
                if entry_ms is None or entry_ms < time_ms or rank >= ranks.stop:
                    continue
                index = bisect_right(starts, rank) - 1
                if index >= 0 and rank < intervals[index][1]:
                    yield Dated(Position(block.ledger_id, entry_id), entry_ms, block.messages(place))

    def _iter_blocks(self, intervals: Intervals, time_ms: int) -> Iterator[tuple[Block, range]]:
        """Yield the blocks that hold an entry at ``time_ms`` or later, with the ranks of their ledger's entries."""
        parts = iter_ledger_parts(self.topic, intervals[0][0], intervals[-1][1])
        for ledger_id, first, last in parts:
            times = find_times(self.reader.txn, ledger_id)
            if times is None:
                listed = self.topic.ledger(ledger_id)
                if listed is None or not is_stated_earlier(self.reader.txn, self.topic, listed, time_ms, self.clock):
                    self.ledgers_without_index[ledger_id] = None
                continue
            candidate = first_candidate(times, time_ms, self.clock)
            if candidate is None:
                continue
            rank = self.topic.rank(Position(ledger_id, 0))
            for block in iter_blocks(self.reader.txn, ledger_id, max(first, candidate << BLOCK_BITS)):
                if block_max(block, self.clock) >= time_ms:
                    yield block, range(rank, rank + last + 1)


class FutureDated(Struct):
    """Pending entries dated after now, which no TTL reaches: their number, the first with its time, the latest time, and the producers.

    ``producers``: those of the first PRODUCERS_SAMPLE entries.
    """

    entries: int = 0
    messages: int = 0
    first: Position | None = None
    first_ms: int = 0
    latest_ms: int = 0
    producers: set[str] = field(default_factory=set)


def read_future_dated(search: PendingSearch, now_ms: int) -> FutureDated:
    """Return the pending entries dated after ``now_ms``."""
    future = FutureDated()
    for dated in search.iter_late(now_ms + 1):
        if future.entries < PRODUCERS_SAMPLE:
            position = dated.position
            with suppress(EntryCorrupt):
                payload = search.reader.read(position.ledger_id, position.entry_id).payload
                metadata = decode_message_entry(payload, f"entry {position}").metadata
                future.producers.add(str(metadata.producer_name))
        if future.first is None:
            future.first, future.first_ms = dated.position, dated.time_ms
        future.latest_ms = max(future.latest_ms, dated.time_ms)
        future.entries += 1
        future.messages += dated.messages
    return future
