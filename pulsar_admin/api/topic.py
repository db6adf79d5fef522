"""A topic: where a time is in it, its messages, its statistics, its cursors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from pulsar_admin.api.session import Place, Session, Time, check_choice, moment, position_of, warn_partial
from store.dump.finding import (
    BROKER,
    FindRule,
    TimeQuestion,
    explain_answer,
    find_as_broker,
    find_by_time,
)
from store.errors import InvalidValue, StoreError
from store.model.cursors import is_subscription, iter_cursor_names
from store.model.ledgers import EntryReader
from store.model.topics import Topic as TopicModel
from store.model.topics import expand_topic, partition_count, read_topic
from store.model.window import Window
from store.names import EARLIEST, LATEST, Position, TopicName
from store.search.broker_setup import BrokerSetup, BrokerVersion, Probe
from store.wording import counted

if TYPE_CHECKING:
    from pulsar_admin.api.compaction import Compaction
    from pulsar_admin.api.cursor import Cursor
    from pulsar_admin.api.delayed import Delayed
    from pulsar_admin.api.messages import Messages
    from pulsar_admin.api.plan import Plan
    from store.reports.internal_stats import InternalStats
    from store.reports.stats import PartitionedTopicStats, TopicStats
    from store.search.explain import BrokerAnswer, Explanation, LedgerVerdict, Neighbour

Clock = Literal["auto", "publish", "broker", "event"]
"""Which time of a message counts: the broker's where the entry carries one, else the publish time (auto); or always one of them."""


@dataclass(frozen=True, slots=True)
class FoundEntry:
    """Where a time is in a topic, and what was read to know it.

    ``position``: None where nothing is at or after the time. ``entry_time_ms``: the entry's own time on the clock.
    ``ledgers_without_index`` and ``unreadable``: ledgers and entries in front of the answer that could hold an earlier one.
    ``probes``: the entries that a broker looked at (rule ``broker``, and with a proof). The rest is the proof that
    ``explain=True`` asks for: ``broker``, what one would answer and why; ``ledgers``, ``neighbours``, ``block``.
    """

    topic: str
    time_ms: int
    clock: str
    rule: str
    position: Position | None
    entry_time_ms: int | None
    entries_read: int
    ledgers_pruned: int
    ledgers_scanned: int
    ledgers_without_index: tuple[int, ...] = ()
    unreadable: int = 0
    probes: tuple[Probe, ...] = ()
    broker: BrokerAnswer | None = None
    ledgers: tuple[LedgerVerdict, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    block: tuple[Position, int] | None = None

    @property
    def entry_time(self) -> datetime | None:
        """The entry's time in UTC; None where it has none, or one that no calendar holds."""
        return moment(self.entry_time_ms)


class Topic:
    """A topic, one partition, or a partitioned topic as a whole. Nothing is read before a method is called."""

    def __init__(self, session: Session, name: TopicName) -> None:
        self._session = session
        self._name = name

    @property
    def name(self) -> str:
        """The full name, ``persistent://tenant/namespace/topic``."""
        return str(self._name)

    def __repr__(self) -> str:
        return f"Topic({self.name!r})"

    def partitions(self) -> tuple[Topic, ...]:
        """Return the partitions of a partitioned topic, none of any other."""
        with self._session.reader() as reader:
            count = partition_count(reader.txn, self._name)
        return tuple(Topic(self._session, self._name.partition(index)) for index in range(count))

    # -- reading ------------------------------------------------------------------------------------------------------

    def find(
        self,
        time: Time,
        *,
        clock: Clock = "auto",
        rule: FindRule = "first-at-or-after",
        batch_index: bool = False,
        explain: bool = False,
        broker_version: BrokerVersion = "4.0",
    ) -> FoundEntry:
        """Return the first entry at or after TIME in topic order, exact on clocks that run backwards.

        RULE ``all-before``: the last entry before it, with nothing younger in front; ``broker``: what a live broker of
        BROKER_VERSION answers. BATCH_INDEX names the message in its batch. EXPLAIN adds the proof, and the broker's answer.
        Raises InvalidValue, TopicNotFound (also for a partitioned topic: ask its partitions), LedgerNotFound where a broker fails.
        """
        check_choice("clock", clock, Clock)
        check_choice("rule", rule, FindRule)
        check_choice("broker version", broker_version, BrokerVersion)
        broker = BrokerSetup(broker_version)
        question = TimeQuestion(self._session.time_ms(time), clock, rule, broker, batch_index)
        with self._session.reader() as reader:
            topic = read_topic(reader.txn, self._name)
            if rule == BROKER:
                return _found_by_broker(reader, topic, question, explain=explain)
            return _found(reader, topic, question, explain=explain)

    def messages(
        self,
        *,
        since: Time | None = None,
        until: Time | None = None,
        start: Place = EARLIEST,
        end: Place = LATEST,
        clock: Clock = "auto",
        key: str | None = None,
        columns: Sequence[str] | None = None,
        subscription: str | None = None,
        limit: int | None = None,
        uncommitted: bool = False,
        markers: bool = False,
    ) -> Messages:
        """Return messages, to be read when they are iterated over: batches taken apart, chunks joined, payloads decompressed.

        Times SINCE (included) and UNTIL (excluded) on CLOCK, positions START and END (both included), one KEY, at most LIMIT.
        COLUMNS: see ``Messages``; what is not named is not decoded. SUBSCRIPTION: only its backlog.
        UNCOMMITTED: also messages of open and aborted transactions; MARKERS: also a broker's own entries. Raises InvalidValue.
        """
        from pulsar_admin.api.messages import COLUMNS, MessageQuery, messages_of

        times = [None if value is None else self._session.time_ms(value) for value in (since, until)]
        window = Window(position_of(start), position_of(end), times[0], times[1], clock, key)
        chosen = COLUMNS if columns is None else tuple(columns)
        query = MessageQuery(window, chosen, subscription, limit, uncommitted, markers)
        return messages_of(self._session, self._name, query)

    def stats(self, *, earliest_time: bool = False) -> TopicStats:
        """Return sizes, backlogs and subscriptions with upstream's names (``backlog_size``, ``subscriptions[name].msg_backlog`` …).

        EARLIEST_TIME: also the publish time of the oldest entry of each backlog. Sizes are bytes. Raises TopicNotFound, MetadataCorrupt.
        """
        from store.reports.stats import StatsOptions, read_topic_stats

        problems: list[StoreError] = []
        with self._session.reader() as reader:
            wanted = StatsOptions(earliest_time=earliest_time)
            found = read_topic_stats(reader, self._name, wanted, problems=problems)
        warn_partial(problems)
        return found

    def last_message_id(self) -> Position:
        """Return the position of the last message, with its index inside a batch; entry −1 for a topic without one.

        The last entry counts whatever it is, also a marker. Raises TopicNotFound, MetadataCorrupt.
        """
        from store.model.entries import read_last_id

        problems: list[StoreError] = []
        with self._session.reader() as reader:
            found = read_last_id(reader, self._name, problems)
        warn_partial(problems)
        return Position(found.ledger_id, found.entry_id, found.batch_index)

    def partitioned_stats(self, *, per_partition: bool = False) -> PartitionedTopicStats:
        """Return the stats of a partitioned topic, summed over its partitions; raises TopicNotFound, MetadataCorrupt."""
        from store.model.partitions import existing_partitions, read_partitioned
        from store.reports.stats import StatsOptions, read_topic_stats, sum_stats

        problems: list[StoreError] = []
        with self._session.reader() as reader:
            partitioned = read_partitioned(reader.txn, self._name)
            parts = {
                str(part): read_topic_stats(reader, part, StatsOptions(), problems=problems)
                for part in existing_partitions(reader.txn, self._name)
            }
        warn_partial(problems)
        return sum_stats(partitioned, parts, per_partition=per_partition)

    def internal_stats(self, *, metadata: bool = False) -> InternalStats:
        """Return ledgers, cursors, schema and compacted ledgers with upstream's names, positions as text.

        METADATA: also each ledger's metadata in BookKeeper. Raises TopicNotFound, MetadataCorrupt.
        """
        from store.reports.internal_stats import read_internal_stats

        problems: list[StoreError] = []
        with self._session.reader() as reader:
            found = read_internal_stats(reader, self._name, metadata=metadata, problems=problems)
        warn_partial(problems)
        return found

    def delayed(self, subscription: str | None = None) -> Delayed:
        """Return the delayed messages that SUBSCRIPTION waits for; None: that one created at the topic's beginning would."""
        from pulsar_admin.api.delayed import Delayed

        return Delayed(self._session, self._name, subscription)

    def compaction(self) -> Compaction:
        """Return the compacted view of the topic."""
        from pulsar_admin.api.compaction import Compaction

        return Compaction(self._session, self._name)

    # -- cursors ------------------------------------------------------------------------------------------------------

    def subscriptions(self) -> tuple[str, ...]:
        """Return the names of the subscriptions, sorted; of a partitioned topic those of any partition. Raises TopicNotFound."""
        with self._session.reader() as reader:
            names = {
                name
                for part in expand_topic(reader.txn, self._name)
                for name in iter_cursor_names(reader.txn, part)
                if is_subscription(name)
            }
        return tuple(sorted(names))

    def cursor(self, name: str) -> Cursor:
        """Return the cursor of the subscription NAME, of a partitioned topic those of all partitions together.

        Whether it is there is seen when it is used: SubscriptionNotFound.
        """
        from pulsar_admin.api.cursor import Cursor

        return Cursor(self._session, self._name, name)

    def create_subscription(
        self,
        name: str,
        *,
        start: Place = LATEST,
        replicated: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> Plan:
        """Plan making a subscription that starts at START, on all partitions.

        Raises AlreadyExists, LedgerNotFound, EntryNotFound, InvalidValue, Refused.
        """
        from pulsar_admin.api.plan import plan_of
        from store.changes.resets import check_position
        from store.changes.subscriptions import NewSubscription, plan_create

        first = position_of(start)
        with self._session.reader() as reader:
            topics = [read_topic(reader.txn, part) for part in expand_topic(reader.txn, self._name)]
            if first not in (EARLIEST, LATEST) and len(topics) > 1:
                raise InvalidValue(f"position {first} is in one of {len(topics)} topics", hint="use earliest or latest")
            for topic in topics:
                check_position(topic, first, "")
            made = NewSubscription(name, first, replicated, dict(properties or {}))
            return plan_of(plan_create(reader, topics, made, self._session.now_ms))


def _found(reader: EntryReader, topic: TopicModel, question: TimeQuestion, *, explain: bool) -> FoundEntry:
    answer = find_by_time(reader, topic, question)
    found = answer.found
    proof = explain_answer(reader, topic, question, found) if explain else None
    warn_partial(_gaps(topic, found.ledgers_without_index, found.unreadable))
    return FoundEntry(
        str(topic.name),
        question.time_ms,
        question.clock,
        question.rule,
        answer.position,
        answer.entry_time_ms,
        found.entries_read,
        found.ledgers_pruned,
        found.ledgers_scanned,
        found.ledgers_without_index,
        found.unreadable,
        () if proof is None else proof.broker.probes,
        *_proof(proof),
    )


def _found_by_broker(reader: EntryReader, topic: TopicModel, question: TimeQuestion, *, explain: bool) -> FoundEntry:
    answer = find_as_broker(reader, topic, question)
    proof = None
    if explain:
        proof = explain_answer(reader, topic, question, find_by_time(reader, topic, question).found)
    return FoundEntry(
        str(topic.name),
        question.time_ms,
        "auto" if answer.compacted_ledger is None else "publish",
        question.rule,
        answer.position,
        answer.entry_time_ms,
        answer.entries_read,
        0,
        len({probe.position.ledger_id for probe in answer.probes}),
        (),
        0,
        answer.probes,
        *_proof(proof),
    )


def _proof(
    proof: Explanation | None,
) -> tuple[BrokerAnswer | None, tuple[LedgerVerdict, ...], tuple[Neighbour, ...], tuple[Position, int] | None]:
    return (None, (), (), None) if proof is None else (proof.broker, proof.ledgers, proof.neighbours, proof.block)


def _gaps(topic: TopicModel, without_index: Sequence[int], unreadable: int) -> list[str]:
    gaps = []
    if without_index:
        ledgers = ", ".join(map(str, without_index))
        gaps.append(f"{topic.name}: no entry of ledgers {ledgers} is in the index: an earlier answer could lie there")
    if unreadable:
        gaps.append(
            f"{topic.name}: {counted(unreadable, 'damaged entry')} passed over: an earlier answer could be there"
        )
    return gaps
