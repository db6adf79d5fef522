"""Negative acks that a store keeps for a subscription: entries to be redelivered later; and what they cost at every precision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pulsar_admin.api.given import (
    Delay,
    delay_ms,
    given_flag,
    given_items,
    given_number,
    given_object,
    given_text,
    whole_number,
)
from pulsar_admin.api.plan import Plan, plan_of
from pulsar_admin.api.planner import Planner
from pulsar_admin.api.session import Place, Session, position_of
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.nacks.buckets import DEFAULT_PRECISION_BITS
from pulsar_admin.store.nacks.kept import KeptGroup, KeptStats, iter_due, iter_trackers, read_stats
from pulsar_admin.store.names import Position, TopicName
from pulsar_admin.store.timespec import moment
from pulsar_admin.store.wording import Answer

if TYPE_CHECKING:
    from pulsar_admin.store.db.nacks import TrackerRow
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.model.topics import Topic
    from pulsar_admin.store.nacks.holes import NackedEntries, TopicNacks
    from pulsar_admin.store.nacks.sizes import NackLoad, TrackerSizing


class DueNack(Answer, frozen=True):
    """One entry to redeliver. ``due_ms``: when it was due, to the precision of its bucket, never too late."""

    topic: str
    subscription: str
    position: Position
    due_ms: int

    @property
    def due_time(self) -> datetime | None:
        """When it was due, in UTC."""
        return moment(self.due_ms)


class KeptNacks(Planner):
    """Negative acks of one subscription, or of all, in several topics, or in all; kept by time bucket as PIP-393 does.

    Every question raises TopicNotFound for a topic that neither they nor the store know, and IndexCorrupt.
    """

    def __init__(self, session: Session, topics: Sequence[TopicName], subscription: str | None) -> None:
        self._session = session
        self._topics = topics
        self._subscription = None if subscription is None else given_text("subscription", subscription)

    def stats(self) -> tuple[KeptStats, ...]:
        """Return what waits, by topic or partition and subscription: entries, how many are due, bytes, deadlines in ms."""
        with self._session.read() as txn:
            found = (read_stats(txn, row, self._session.clock_ms) for row in self._trackers(txn))
            return tuple(sorted(found, key=lambda stats: (stats.topic, stats.subscription)))

    def due(self, *, popped: int | None = None) -> tuple[DueNack, ...]:
        """Return what is due now, in order of time, or what the change with the number POPPED removed, whosever it was.

        Raises ChangeNotFound, NothingMatches (it popped nothing).
        """
        return tuple(
            DueNack(group.topic, group.subscription, position, group.due_ms)
            for group in self.due_groups(popped=popped)
            for position in group.positions()
        )

    def due_groups(self, *, popped: int | None = None) -> Iterator[KeptGroup]:
        """Yield the same, what is of one ledger and time together: ``entry_ids`` is a bitmap of pyroaring."""
        with self._session.read() as txn:
            if popped is None:
                yield from self._due(txn)
            else:
                from pulsar_admin.store.changes.nacks import popped_groups
                from pulsar_admin.store.changes.plan import read_change

                yield from popped_groups(read_change(txn, whole_number("change", popped)))

    def pop(self) -> Plan:
        """Plan removing what is due now; the change keeps it: ``Store.undo`` puts it back. Look at ``due`` first."""
        from pulsar_admin.store.changes.nacks import plan_pop

        return self._session.plan_rows(lambda txn, now_ms: plan_pop(txn, self._due(txn), now_ms))

    def _due(self, txn: Txn) -> Iterator[KeptGroup]:
        return iter_due(txn, self._trackers(txn), self._session.clock_ms)

    def _trackers(self, txn: Txn) -> list[TrackerRow]:
        found = [row for row in iter_trackers(txn) if self._subscription in (None, row.subscription)]
        names = set(map(str, self._topics))
        if unknown := names - {row.topic for row in found}:
            # Imported here: who names no topic needs no metadata.
            from pulsar_admin.store.model.topics import expand_topic

            parts = (expand_topic(txn, topic) for topic in self._topics if str(topic) in unknown)
            names.update(str(name) for own in parts for name in own)
        return [row for row in found if row.topic in names] if self._topics else found


class Nacks(KeptNacks):
    """Negative acks of one subscription, of a partitioned topic those of all partitions."""

    def __init__(self, session: Session, name: TopicName, subscription: str) -> None:
        super().__init__(session, (name,), subscription)
        self._name = name
        self._subscription: str = subscription

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
        from pulsar_admin.store.nacks.buckets import due_time
        from pulsar_admin.store.nacks.holes import NackedEntries

        usual_ms, now_ms = due_time(delay_ms(delay), self._session.clock_ms), self._session.clock_ms
        given_flag("force", force)
        with self._session.reader() as reader:
            found = NackedEntries(self._read_topics(reader, known=not force), unknown=force)
            for one in given_items("positions", positions):
                if isinstance(one, tuple) and not isinstance(one, Position):
                    found.add(position_of(one[0]), due_time(delay_ms(one[1]), now_ms))
                else:
                    found.add(position_of(one), usual_ms)
            return self._plan(reader, found, precision_bits)

    def add_lines(
        self,
        lines: Iterable[str],
        delay: Delay,
        *,
        source: str = "the lines",
        precision_bits: int | None = None,
        force: bool = False,
    ) -> Plan:
        """Plan the same for LINES: ``LEDGER:ENTRY``, or JSON as of ``topics read`` and ``nacks due``, perhaps with a ``delay`` of its own.

        SOURCE: what errors call LINES. Raises as ``add``.
        """
        from pulsar_admin.store.nacks.buckets import iter_position_rows

        given_flag("force", force)
        texts = (given_text("line", line) for line in given_items("lines", lines))
        rows = iter_position_rows(texts, given_text("source", source), self._name)
        positions = (
            (place, delay if row.delay_ms is None else row.delay_ms) for row in rows for place in row.positions
        )
        return self.add(positions, delay, precision_bits=precision_bits, force=force)

    def add_holes(self, delay: Delay, *, precision_bits: int | None = None) -> Plan:
        """Plan tracking the subscription's own acknowledgement holes: what comes before individually deleted entries."""
        from pulsar_admin.store.model.cursors import read_cursor
        from pulsar_admin.store.nacks.buckets import due_time
        from pulsar_admin.store.nacks.holes import NackedEntries, hole_intervals

        due_ms = due_time(delay_ms(delay), self._session.clock_ms)
        with self._session.reader() as reader:
            topics = self._read_topics(reader)
            found = NackedEntries(topics)
            for topic in topics:
                state = read_cursor(reader.txn, reader, topic, self._subscription).state
                found.add_intervals(topic, hole_intervals(topic, state), due_ms)
            return self._plan(reader, found, precision_bits)

    def _read_topics(self, reader: EntryReader, *, known: bool = True) -> list[Topic]:
        from pulsar_admin.store.model.cursors import read_cursor
        from pulsar_admin.store.model.topics import expand_topic, read_topic

        topics = [read_topic(reader.txn, name) for name in expand_topic(reader.txn, self._name)]
        for topic in topics if known else ():
            read_cursor(reader.txn, reader, topic, self._subscription)  # raises that it is not there
        return topics

    def _plan(self, reader: EntryReader, found: NackedEntries, bits: int | None) -> Plan:
        from pulsar_admin.store.changes import nacks

        groups = {name: groups for name, groups in found.entries.items() if groups}
        groups = groups or dict([*found.entries.items()][:1])  # whose report says that there is nothing
        rows = [nacks.Nacks(name, self._subscription, of_topic, bits) for name, of_topic in groups.items()]
        return plan_of(nacks.plan_add(reader.txn, "nacks add", rows), reader.txn)


class NackSizes(Answer, frozen=True):
    """What a load costs: ``precisions`` has a sizing for each of 0 to 16 bits. ``measured``: the topic that it was taken from."""

    load: NackLoad
    measured: TopicNacks | None
    precisions: tuple[TrackerSizing, ...]

    def recommended_bits(self, precision: Delay | None = None, *, memory_bytes: int = 64 << 20) -> int:
        """Return the bits to take: the most that are early by no more than PRECISION.

        None: the least, from the clients' default up, with which Java's client stays within MEMORY_BYTES.
        """
        most = self.precisions[-1].precision_bits
        if precision is not None:
            return min((delay_ms(precision) + 1).bit_length() - 1, most)
        room = whole_number("memory_bytes", memory_bytes)
        fitting = [sizing.precision_bits for sizing in self.precisions if sizing.java_bytes <= room]
        return next((bits for bits in fitting if bits >= DEFAULT_PRECISION_BITS), most)


def nack_sizes(
    rate: float | None = None,
    delay: Delay = "1m",
    *,
    measured: TopicNacks | None = None,
    batch_size: int | None = None,
    entries_per_ledger: int | None = None,
    acknowledged_every: int = 0,
) -> NackSizes:
    """Return what RATE messages a second that are nacked for DELAY cost, in batches of BATCH_SIZE, 1 by default.

    MEASURED, from ``Topic.measured_nacks``, gives what is None, and where nacks lie. Each ACKNOWLEDGED_EVERY-th entry is left out, 0:
    none. Raises InvalidValue.
    """
    from pulsar_admin.store.nacks.holes import TopicNacks  # here: loads need no store
    from pulsar_admin.store.nacks.sizes import ENTRIES_PER_LEDGER, NackLoad, size_sample, size_table

    found = None if measured is None else given_object("measured", measured, TopicNacks)
    usual = (found.batch_size, found.entries_per_ledger) if found else (1, ENTRIES_PER_LEDGER)
    per_entry = usual[0] if batch_size is None else whole_number("batch_size", batch_size)
    per_ledger = usual[1] if entries_per_ledger is None else whole_number("entries_per_ledger", entries_per_ledger)
    if rate is None:
        if found is None or found.nacked_entries_per_second is None:
            raise InvalidValue("how many nacks a second?", hint="give rate, or measured, of entries of several times")
        rate = found.nacked_entries_per_second * per_entry
    every = whole_number("acknowledged_every", acknowledged_every)
    load = NackLoad(given_number("rate", rate), delay_ms(delay), per_entry, per_ledger, every)
    if found is None:
        return NackSizes(load, None, tuple(size_table(load)))
    return NackSizes(load, found, tuple(size_sample(load, (found.ledger_ids, found.entry_ids), found.times_ms)))
