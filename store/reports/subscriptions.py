"""The facts of each subscription: its position, its backlog, the age of the backlog, and the TTL in force.

Metadata and the last entry of a cursor ledger answer; entries are read only where ``Asked`` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from operator import itemgetter
from typing import TypeVar

from msgspec import Struct, field

from pulsar_admin.store.errors import NotSeen, StoreError
from pulsar_admin.store.facts import Unknown, known
from pulsar_admin.store.facts.backlogs import Contents, NotDue
from pulsar_admin.store.facts.topics import ReadBudget, TopicFacts, read_headers_together
from pulsar_admin.store.facts.topics import SubscriptionFacts as Facts
from pulsar_admin.store.model.broken_beside import unseen_position
from pulsar_admin.store.model.cursors import COMPACTION_CURSOR, backlog_size_bytes, is_subscription
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, expand_topic, partition_count, read_topic
from pulsar_admin.store.names import Position, TopicName
from pulsar_admin.store.policies.in_force import MessageTtl
from pulsar_admin.store.wording import Answer

_Fact = TypeVar("_Fact")


class Asked(Struct, frozen=True):
    """Facts to read beyond metadata: ``messages`` (index rows of the backlog), ``oldest`` (the header of one entry of a subscription), and
    the entries that are due after ``delayed_ms`` (the headers of the whole backlog)."""

    messages: bool = False
    oldest: bool = False
    delayed_ms: int | None = None

    @classmethod
    def of(cls, now_ms: int, *, quick: bool) -> Asked:
        """Return the facts that ``topics describe`` reads at ``now_ms``; ``quick``: none that need entries."""
        return cls(messages=True) if quick else cls(messages=True, oldest=True, delayed_ms=now_ms)


class SubscriptionFacts(Answer, frozen=True):
    """One subscription of one topic or partition.

    ``stored_mark_delete``: the stored position, if that is ahead of the topic: a broker then starts at ``mark_delete``, the topic's end.
    ``uncounted_entries``: those of the backlog that are not here, whose messages are not in ``backlog_messages``; None for none.
    ``oldest_position``: the first entry that is not acknowledged, None without a backlog; ``oldest_publish_ms``: None where it was not
    asked for or cannot be read. ``ack_ranges``: ranges acknowledged after the mark-delete as the cursor stores them (upstream's
    nonContiguousDeletedMessagesRanges), ``acknowledged_entries`` in them; ``ack_holes``: gaps before them, ``hole_entries`` in
    these. ``source``: see ``store.model.cursors.Cursor``. ``ttl``: None where nothing in the store sets one. ``delayed``: None where it
    was not asked for, or what says whether delays are enabled cannot be read.
    """

    JSON_OPTIONAL = ("stored_mark_delete", "uncounted_entries")

    topic: TopicName
    subscription: str
    mark_delete: Position
    stored_mark_delete: Position | None
    backlog_entries: int
    backlog_bytes: int
    backlog_messages: int | None
    uncounted_entries: int | None
    oldest_position: Position | None
    oldest_publish_ms: int | None = field(name="oldestPublishTime")
    ack_ranges: int
    acknowledged_entries: int
    ack_holes: int
    hole_entries: int
    delayed: NotDue | None
    ttl: MessageTtl | None
    source: str
    cursor_ledger: int | None
    unreadable_states: int
    properties: Mapping[str, str]


def read_subscription_facts(
    reader: EntryReader, name: TopicName, asked: Asked, problems: list[StoreError]
) -> tuple[SubscriptionFacts, ...]:
    """Return the facts of every subscription of a topic, or of each partition; raises TopicNotFound. See ``iter_subscription_facts``."""
    return tuple(iter_subscription_facts(reader, expand_topic(reader.txn, name), asked, problems.append))


def iter_subscription_facts(
    reader: EntryReader, topics: Iterable[TopicName], asked: Asked, fail: Callable[[StoreError], None]
) -> Iterator[SubscriptionFacts]:
    """Yield the facts of every subscription of ``topics``, compaction's cursor among them, topic by topic, in name order.

    What cannot be read goes to ``fail``.
    """
    for name in topics:
        try:
            topic = read_topic(reader.txn, name)
        except StoreError as error:
            fail(error)
            continue
        yield from iter_facts_of(reader, topic, asked, fail)


def prepare_facts(reader: EntryReader, topics: Iterable[TopicName], asked: Asked) -> dict[TopicName, TopicFacts]:
    """Return the facts of ``topics``, with everything in ``asked`` read, for ``iter_facts``.

    Small backlogs are read in one scan, at a tenth of the cost of a scan for each. Topics that cannot be read and partitioned topics are
    left out.
    """
    prepared: dict[TopicName, TopicFacts] = {}
    for name in topics:
        with suppress(StoreError):
            if not partition_count(reader.txn, name):
                prepared[name] = _topic_facts(reader, read_topic(reader.txn, name), asked)
    # One fact of all topics after the other: what reads it stays in the processor's caches, which saves a third.
    reads: tuple[Callable[[TopicFacts], object], ...] = (
        lambda facts: facts.cursor_readings,
        lambda facts: [one.pending_entries for one in facts.subscriptions],
        lambda facts: [one.backlog for one in facts.subscriptions if is_subscription(one.cursor.name)],
    )
    # Headers also say how many messages there are.
    for read in reads if asked.messages and asked.delayed_ms is None else reads[:2]:
        for name, facts in [*prepared.items()]:
            try:
                read(facts)
            except StoreError:
                del prepared[name]
    if asked.delayed_ms is None:
        return prepared
    each = (one for facts in prepared.values() for one in facts.subscriptions if is_subscription(one.cursor.name))
    read_headers_together(each, asked.delayed_ms)
    return prepared


def iter_facts_of(
    reader: EntryReader, topic: Topic, asked: Asked, fail: Callable[[StoreError], None]
) -> Iterator[SubscriptionFacts]:
    """Yield the facts of every subscription of ``topic``; see ``iter_subscription_facts``."""
    return iter_facts(_topic_facts(reader, topic, asked), asked, fail)


def _topic_facts(reader: EntryReader, topic: Topic, asked: Asked) -> TopicFacts:
    return TopicFacts(reader, topic, asked.delayed_ms or 0, ReadBudget(unlimited=True))


def iter_facts(found: TopicFacts, asked: Asked, fail: Callable[[StoreError], None]) -> Iterator[SubscriptionFacts]:
    """Yield the facts of every subscription of a topic, then free the facts in ``found``; see ``iter_subscription_facts``."""
    readings = sorted((reading for reading in found.cursor_readings if is_subscription(reading[0])), key=itemgetter(0))
    if readings:
        known_of(found.policies, fail)
    facts = {one.cursor.name: one for one in found.subscriptions}
    for name, cursor in readings:
        if isinstance(cursor, StoreError):
            fail(cursor)
            continue
        try:
            yield _facts_of(facts[name], asked, fail)
        except StoreError as error:
            fail(error)
    found.let_go()


def known_of(fact: _Fact | Unknown, fail: Callable[[StoreError], None]) -> _Fact | None:
    """Return a fact; None if it is unknown, after passing the error that explains it to ``fail``."""
    if not isinstance(fact, Unknown):
        return fact
    if fact.error is not None:
        fail(fact.error)
    return None


def _facts_of(facts: Facts, asked: Asked, fail: Callable[[StoreError], None]) -> SubscriptionFacts:
    cursor, policies = facts.cursor, facts.of.policies
    is_compaction = cursor.name == COMPACTION_CURSOR  # which no TTL expires
    if unseen := unseen_position(facts.of.reader.txn, cursor):
        fail(NotSeen(f"{facts.of.topic.name}: {unseen}"))
    counted = facts.backlog if asked.delayed_ms is None else facts  # without a look at headers: what the index says
    return SubscriptionFacts(
        topic=facts.of.topic.name,
        subscription=cursor.name,
        mark_delete=cursor.mark_delete,
        stored_mark_delete=facts.ahead,
        backlog_entries=facts.pending_entries,
        backlog_bytes=backlog_size_bytes(facts.of.topic, cursor.mark_delete),
        backlog_messages=counted.messages if asked.messages else None,
        uncounted_entries=counted.uncounted_entries if asked.messages else None,
        oldest_position=facts.oldest,
        oldest_publish_ms=_publish_ms(facts) if asked.oldest else None,
        ack_ranges=len(cursor.state.ranges),
        acknowledged_entries=facts.acknowledged_entries,
        ack_holes=len(facts.holes),
        hole_entries=facts.hole_entries,
        delayed=None if asked.delayed_ms is None else known_of(facts.not_due, fail),
        ttl=None if is_compaction or isinstance(policies, Unknown) else policies.message_ttl,
        source=cursor.source,
        cursor_ledger=cursor.info.cursors_ledger_id if cursor.info.is_in_ledger else None,
        unreadable_states=cursor.skipped_entries,
        properties=cursor.info.shown_properties,
    )


def _publish_ms(facts: Facts) -> int | None:
    """Return when the oldest entry of a backlog was published, None where that cannot be read."""
    if facts.oldest is None:
        return None
    headers: Contents | Unknown | None = vars(facts).get("headers")  # where they were read
    contents = known(headers)
    if contents is not None and contents.first_publish_ms is not None:
        return contents.first_publish_ms
    from pulsar_admin.store.model.entry_times import read_entry_time  # cold questions about metadata need none of it

    try:
        return read_entry_time(facts.of.reader, facts.oldest, "publish")
    except StoreError:
        return None
