"""Negative acks that a store keeps for a subscription: entries to be redelivered later."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from pulsar_admin.api.given import given_items, whole_number
from pulsar_admin.api.plan import Plan, plan_of
from pulsar_admin.api.session import Place, Session, position_of
from store.db.environment import Txn
from store.errors import InvalidValue
from store.frozen import frozen
from store.model.cursors import read_cursor
from store.model.reader import EntryReader
from store.model.topics import Topic, expand_topic, read_topic
from store.nacks.buckets import due_time
from store.nacks.holes import NackedEntries, hole_intervals
from store.nacks.kept import KeptGroup, KeptStats, find_tracker, iter_due, read_stats
from store.names import Position, TopicName
from store.timespec import moment, parse_duration_ms

Delay = timedelta | str | int
"""So long: a timedelta, ``10m`` and whatever else the command line takes, or milliseconds as an int."""


@frozen
class DueNack:
    """One entry to redeliver. ``due_ms``: when it was due, to the precision of its bucket, never too late."""

    topic: str
    position: Position
    due_ms: int

    @property
    def due_time(self) -> datetime | None:
        """When it was due, in UTC."""
        return moment(self.due_ms)


class Nacks:
    """Negative acks of one subscription, of a partitioned topic those of all partitions; kept by time bucket as PIP-393 does."""

    def __init__(self, session: Session, name: TopicName, subscription: str) -> None:
        self._session = session
        self._name = name
        self._subscription = subscription

    def stats(self) -> tuple[KeptStats, ...]:
        """Return what waits, one object a topic or partition with nacks: entries, how many are due, bytes, deadlines in ms."""
        with self._session.read() as txn:
            names = map(str, expand_topic(txn, self._name))
            trackers = (find_tracker(txn, name, self._subscription) for name in names)
            return tuple(read_stats(txn, row, self._session.now_ms) for row in trackers if row is not None)

    def due(self) -> tuple[DueNack, ...]:
        """Return what is due now, in order of time."""
        with self._session.read() as txn:
            return tuple(
                DueNack(group.topic, position, group.due_ms)
                for group in self._due(txn)
                for position in group.positions()
            )

    def pop(self) -> Plan:
        """Plan removing what is due now; the change keeps it: ``Store.undo`` puts it back. Look at ``due`` first."""
        from store.changes.nacks import plan_pop

        return self._session.plan(lambda reader, now_ms: plan_pop(reader.txn, list(self._due(reader.txn)), now_ms))

    def add(
        self,
        positions: Iterable[Place | tuple[Place, Delay]],
        delay: Delay,
        *,
        precision_bits: int | None = None,
        force: bool = False,
    ) -> Plan:
        """Plan tracking the entries at POSITIONS (batch indexes are dropped), due DELAY after now, and earlier by less than 2^bits ms.

        One of a pair has a delay of its own. FORCE: also what the store does not know. Raises SubscriptionNotFound, EntryNotFound,
        InvalidValue, Refused (another precision while some wait).
        """
        usual_ms, now_ms = due_time(_delay_ms(delay), self._session.now_ms), self._session.now_ms
        with self._session.reader() as reader:
            found = NackedEntries(self._topics(reader, known=not force), unknown=force)
            for one in given_items("positions", positions):
                if isinstance(one, tuple) and not isinstance(one, Position):
                    found.add(position_of(one[0]), due_time(_delay_ms(one[1]), now_ms))
                else:
                    found.add(position_of(one), usual_ms)
            return self._plan(reader, found, precision_bits)

    def add_holes(self, delay: Delay, *, precision_bits: int | None = None) -> Plan:
        """Plan tracking the subscription's own acknowledgement holes: what lies in front of individually deleted entries."""
        due_ms = due_time(_delay_ms(delay), self._session.now_ms)
        with self._session.reader() as reader:
            topics = self._topics(reader)
            found = NackedEntries(topics)
            for topic in topics:
                state = read_cursor(reader.txn, reader, topic, self._subscription).state
                found.add_intervals(topic, hole_intervals(topic, state), due_ms)
            return self._plan(reader, found, precision_bits)

    def _topics(self, reader: EntryReader, *, known: bool = True) -> list[Topic]:
        topics = [read_topic(reader.txn, name) for name in expand_topic(reader.txn, self._name)]
        for topic in topics if known else ():
            read_cursor(reader.txn, reader, topic, self._subscription)  # raises that it is not there
        return topics

    def _plan(self, reader: EntryReader, found: NackedEntries, bits: int | None) -> Plan:
        from store.changes import nacks

        groups = {name: groups for name, groups in found.entries.items() if groups}
        groups = groups or dict([*found.entries.items()][:1])  # whose report says that there is nothing
        rows = [nacks.Nacks(name, self._subscription, of_topic, bits) for name, of_topic in groups.items()]
        return plan_of(nacks.plan_add(reader.txn, "nacks add", rows))

    def _due(self, txn: Txn) -> Iterable[KeptGroup]:
        names = map(str, expand_topic(txn, self._name))
        trackers = [find_tracker(txn, name, self._subscription) for name in names]
        return iter_due(txn, [row for row in trackers if row is not None], self._session.now_ms)


def _delay_ms(delay: Delay) -> int:
    if isinstance(delay, str):
        return parse_duration_ms(delay)
    found = delay // timedelta(milliseconds=1) if isinstance(delay, timedelta) else whole_number("delay", delay)
    if found < 0:
        raise InvalidValue(f"delay {delay!r} is negative")
    return found
