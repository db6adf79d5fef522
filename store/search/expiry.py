"""What an age limit drops, exactly or as a broker would (pulsar.md §3.4); forecasts of a TTL.

Rule ``all-before`` drops what stands before the first pending entry whose time is the limit or later. Rule ``broker`` is what a
broker does: whole ledgers by the time they were closed, then a binary search that takes clocks to run forward.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.db.clocks import Clock
from pulsar_admin.store.errors import InvalidValue, Refused
from pulsar_admin.store.model.cursors import Cursor, Extent, Intervals, extent_of, pending_intervals
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position
from pulsar_admin.store.search.broker import BrokerSearch
from pulsar_admin.store.search.broker_setup import DEFAULT_BROKER, BrokerSetup
from pulsar_admin.store.search.pending import PendingSearch
from pulsar_admin.store.wording import Answer

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
    """Return the part of some ranks from ``start`` to ``end`` (excluded)."""
    return tuple((max(low, start), min(high, end)) for low, high in intervals if low < end and high > start)
