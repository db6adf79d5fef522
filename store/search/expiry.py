"""The entries of a cursor's backlog that an age limit drops, exactly or as a broker would (pulsar.md §3.4); forecasts of a TTL.

Only entries after the mark-delete that are not individually deleted count: entries acknowledged long ago, whatever their date, hold
nothing back.
Rule ``all-before`` drops what stands before the first pending entry whose time is the limit or later. Rule ``broker`` is what a
broker does: whole ledgers by the time they were closed, then a binary search that takes clocks to run forward.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.codec.cursor import CursorState
from pulsar_admin.store.codec.message import decode_message_entry
from pulsar_admin.store.db.blocks import BLOCK_BITS, NO_MAX, Block
from pulsar_admin.store.db.clocks import Clock, block_max, block_min, first_candidate
from pulsar_admin.store.errors import EntryCorrupt, InvalidValue, Refused
from pulsar_admin.store.model.cursors import Cursor, Extent, Intervals, extent_of, iter_ledger_parts, pending_intervals
from pulsar_admin.store.model.entry_times import is_doubtful, iter_block_times
from pulsar_admin.store.model.ledgers import find_times, iter_blocks
from pulsar_admin.store.model.publish_times import is_stated_earlier
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position
from pulsar_admin.store.search.broker import BrokerSearch
from pulsar_admin.store.search.broker_setup import DEFAULT_BROKER, BrokerSetup
from pulsar_admin.store.wording import Answer

PRODUCERS_SAMPLE = 1_000


class Dated(Struct, frozen=True):
    """An entry, its time, and how many messages it holds."""

    position: Position
    time_ms: int
    messages: int


class PendingSearch(Struct):
    """Searches the pending entries of one cursor by time.

    ``unreadable`` counts late entries, and those that lost their time, whose digest is wrong: they cannot be delivered, so they hold
    nothing back. ``ledgers_without_index``: ledgers with pending entries of which no byte was imported; their times are
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
        for dated in self._iter_late(time_ms, doubtful=True):
            try:
                self.reader.read(dated.position.ledger_id, dated.position.entry_id)
            except EntryCorrupt:
                self.unreadable += 1
                continue
            if dated.time_ms >= time_ms:
                return dated
        return None

    def iter_late(self, time_ms: int) -> Iterator[Dated]:
        """Yield the pending entries whose time is ``time_ms`` or later, in topic order; reads headers, not digests."""
        return self._iter_late(time_ms, doubtful=False)

    def _iter_late(self, time_ms: int, *, doubtful: bool) -> Iterator[Dated]:
        """Yield them, with ``doubtful`` also those in their blocks that may have lost their time, see ``is_doubtful``."""
        intervals = self.intervals
        if not intervals:
            return
        starts = [start for start, _ in intervals]
        for block, ranks in self._iter_blocks(intervals, time_ms):
            earliest_ms = block_min(block, self.clock)
            for place, (entry_id, found_ms) in enumerate(iter_block_times(self.reader, block, self.clock)):
                rank, entry_ms = ranks.start + entry_id, NO_MAX if found_ms is None else found_ms
                is_wanted = entry_ms >= time_ms or (doubtful and is_doubtful(found_ms, earliest_ms, self.clock))
                if not is_wanted or rank >= ranks.stop:
                    continue
                index = bisect_right(starts, rank) - 1
                if index >= 0 and rank < intervals[index][1]:
                    yield Dated(Position(block.ledger_id, entry_id), entry_ms, block.messages(place))

    def _iter_blocks(self, intervals: Intervals, time_ms: int) -> Iterator[tuple[Block, range]]:
        """Yield the blocks that have an entry at ``time_ms`` or later, with the ranks of their ledger's entries."""
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


ExpiryRule = Literal["all-before", "broker"]
ALL_BEFORE: ExpiryRule = "all-before"
BROKER: ExpiryRule = "broker"
FORECAST_ROWS_MAX = 1_000
FORECAST_INTERVALS = 24
"""Rows of a forecast where no interval is named."""


def expire_by_time(
    search: PendingSearch, cursor: Cursor, limit_ms: int, rule: ExpiryRule, broker: BrokerSetup = DEFAULT_BROKER
) -> Position | None:
    """Return the last entry that is dropped under a rule if everything older than ``limit_ms`` is to expire, None if nothing is.

    ``broker``: the release asked under rule ``broker``.
    """
    if rule == BROKER:
        return broker_through(search.reader, search.topic, cursor, limit_ms, broker)
    topic = search.topic
    pending = search.intervals
    if not pending:
        return None
    kept = search.find_first(limit_ms)
    end = topic.number_of_entries if kept is None else topic.rank(kept.position)
    return topic.at_rank(end - 1) if end > pending[0][0] else None


def broker_through(
    reader: EntryReader, topic: Topic, cursor: Cursor, limit_ms: int, broker: BrokerSetup
) -> Position | None:
    """Return the last entry that a broker drops if everything older than ``limit_ms`` is to expire, None if nothing is.

    Brokers compute limits as now − age in whole seconds; an age of one second at one second past the limit is the
    same.
    """
    if not pending_intervals(topic, cursor.state):
        return None
    return BrokerSearch(reader, topic, broker).expire_position(cursor, limit_ms + 1000, 1)


def ttl_through(
    reader: EntryReader, topic: Topic, cursor: Cursor, limit_ms: int, broker: BrokerSetup
) -> Position | None:
    """Return the last entry that a broker's check of a TTL drops for a cursor, None if nothing is; it takes what is older than
    ``limit_ms``."""
    if not broker.rules.shares_ttl_search:
        return broker_through(reader, topic, cursor, limit_ms, broker)
    if not pending_intervals(topic, cursor.state):
        return None
    through = BrokerSearch(reader, topic, broker).ttl_position(limit_ms)
    return through if through is not None and through > cursor.mark_delete else None


def broker_through_position(topic: Topic, cursor: Cursor, position: Position) -> Position | None:
    """Return the last entry a broker (4.0.8, 4.2.4) drops when asked to expire up to a position, None if nothing is.

    An existing entry counts itself (a broker that loads the topic closes its last ledger first); otherwise the newest
    entry at or before the position counts. Raises Refused, as upstream, for a position after the last entry.
    """
    if topic.is_entry(position):
        return position if position > cursor.mark_delete else None
    if position > topic.last_confirmed:
        raise Refused(
            f"Expire message by position not issued on topic {topic.name} for subscription {cursor.name} due to ongoing message "
            "expiration not finished or invalid message position provided.",
            hint=f"the last entry is {topic.last_confirmed}",
            topic=str(topic.name),
            subscription=cursor.name,
        )
    end = topic.place(position)
    mark_delete = cursor.mark_delete
    start = topic.place(mark_delete)
    return topic.at_rank(end - 1) if end > start else None


# -- forecast ---------------------------------------------------------------------------------------------------------


class ForecastQuestion(Struct, frozen=True):
    """A TTL from ``now_ms`` on: ``horizon_ms`` cut into intervals of ``interval_ms``."""

    now_ms: int
    ttl_ms: int
    horizon_ms: int
    interval_ms: int
    rule: ExpiryRule
    clock: Clock
    broker: BrokerSetup = DEFAULT_BROKER

    def __post_init__(self) -> None:
        if self.horizon_ms <= 0 or self.interval_ms <= 0:
            raise InvalidValue("a forecast looks ahead: its time and its interval must be above 0")
        if -(-self.horizon_ms // self.interval_ms) > FORECAST_ROWS_MAX:
            raise InvalidValue(
                f"the forecast would have more than {FORECAST_ROWS_MAX} intervals", hint="name a longer --interval"
            )


class ForecastRow(Answer, frozen=True):
    """What expires between two times. ``from_ms`` None: already overdue; ``to_ms`` None: what remains after the forecast."""

    from_ms: int | None
    to_ms: int | None
    extent: Extent
    mark_delete: Position


def iter_forecast(
    reader: EntryReader, topic: Topic, cursor: Cursor, question: ForecastQuestion
) -> Iterator[ForecastRow]:
    """Yield what the TTL drops from a cursor's backlog, interval by interval; together the rows are the whole backlog."""
    pending = pending_intervals(topic, cursor.state)
    done = pending[0][0] if pending else 0
    from_ms: int | None = None
    end_ms = question.now_ms + question.horizon_ms
    for to_ms in (*range(question.now_ms, end_ms, question.interval_ms), end_ms):
        search = PendingSearch(reader, topic, cursor.state, question.clock)
        through = expire_by_time(search, cursor, to_ms - question.ttl_ms, question.rule, question.broker)
        end = done
        if through is not None:
            cursor = replace(cursor, state=replace(cursor.state, mark_delete=through))
            end = max(done, topic.place(through))
        yield ForecastRow(from_ms, to_ms, extent_of(reader.txn, topic, _clip(pending, done, end)), cursor.mark_delete)
        from_ms, done = to_ms, end
    rest = _clip(pending, done, topic.number_of_entries)
    yield ForecastRow(from_ms, None, extent_of(reader.txn, topic, rest), topic.last_confirmed)


def _clip(intervals: Intervals, start: int, end: int) -> Intervals:
    """Return the part of ``intervals`` from rank ``start`` to ``end`` (excluded)."""
    return tuple((max(low, start), min(high, end)) for low, high in intervals if low < end and high > start)
