"""What there is to know of each subscription: where it stands, what is left of it, since when, and which TTL is in force.

Metadata and the last entry of a cursor ledger answer; entries are read only where ``Asked`` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import TypeVar

from store.errors import StoreError
from store.facts import Unknown
from store.facts.delays import NotDue
from store.facts.subscriptions import SubscriptionFacts as Facts
from store.facts.topics import ReadBudget, TopicFacts
from store.frozen import frozen
from store.model.cursors import (
    COMPACTION_CURSOR,
    INTERNAL_PROPERTY_PREFIX,
    backlog_size_bytes,
    is_subscription,
    iter_cursor_names,
    read_cursor,
)
from store.model.reader import EntryReader
from store.model.topics import Topic, read_topic
from store.names import Position, TopicName
from store.policies.in_force import MessageTtl

_Fact = TypeVar("_Fact")


@frozen
class Asked:
    """What to read beyond metadata: MESSAGES (index rows of the backlog), OLDEST (the header of one entry a subscription), and what is
    due after DELAYED_MS (the headers of the whole backlog)."""

    messages: bool = False
    oldest: bool = False
    delayed_ms: int | None = None

    @classmethod
    def of(cls, now_ms: int, *, quick: bool) -> Asked:
        """Return what ``topics describe`` asks at NOW_MS; QUICK: nothing that reads entries."""
        return cls(messages=True) if quick else cls(messages=True, oldest=True, delayed_ms=now_ms)


CHEAP = Asked()


@frozen
class SubscriptionFacts:
    """One subscription of one topic or partition.

    ``stored_mark_delete``: what is stored, where that is ahead of the topic, so that a broker starts at ``mark_delete``, its end.
    ``oldest_position``: the first entry that is not acknowledged, None without a backlog; ``oldest_publish_ms``: None where it was not
    asked for or cannot be read. ``ack_ranges``: ranges acknowledged behind the mark-delete as the cursor stores them (upstream's
    nonContiguousDeletedMessagesRanges), ``acknowledged_entries`` in them; ``ack_holes``: gaps in front of them, ``hole_entries`` in
    these. ``source``: see ``store.model.cursors.Cursor``. ``ttl``: None where nothing in the store sets one. ``delayed``: None where it
    was not asked for, or what says whether delays are enabled cannot be read.
    """

    topic: TopicName
    subscription: str
    mark_delete: Position
    stored_mark_delete: Position | None = field(metadata={"json_optional": True})
    backlog_entries: int
    backlog_bytes: int
    backlog_messages: int | None
    oldest_position: Position | None
    oldest_publish_ms: int | None = field(metadata={"json": "oldestPublishTime"})
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


def iter_subscription_facts(
    reader: EntryReader,
    topics: Iterable[TopicName],
    asked: Asked,
    fail: Callable[[StoreError], None],
) -> Iterator[SubscriptionFacts]:
    """Yield the facts of every subscription of TOPICS, compaction's cursor among them, topic by topic, in name order.

    What cannot be read goes to FAIL.
    """
    for name in topics:
        try:
            topic = read_topic(reader.txn, name)
        except StoreError as error:
            fail(error)
            continue
        yield from iter_facts_of(reader, topic, asked, fail)


def iter_facts_of(
    reader: EntryReader, topic: Topic, asked: Asked, fail: Callable[[StoreError], None]
) -> Iterator[SubscriptionFacts]:
    """Yield the facts of every subscription of TOPIC; see ``iter_subscription_facts``."""
    names = sorted(name for name in iter_cursor_names(reader.txn, topic.name) if is_subscription(name))
    # Without a look at headers, ``messages`` is what the index says.
    budget = ReadBudget(edges_left=0) if asked.delayed_ms is None else ReadBudget(unlimited=True)
    found = TopicFacts(reader, topic, None, asked.delayed_ms or 0, budget)
    if names:
        _known(found.policies, fail)
    for name in names:
        try:
            yield _facts_of(Facts(found, read_cursor(reader.txn, reader, topic, name)), asked, fail)
        except StoreError as error:
            fail(error)


def _known(fact: _Fact | Unknown, fail: Callable[[StoreError], None]) -> _Fact | None:
    """Return FACT; one that is not known is None, and what says so goes to FAIL."""
    if not isinstance(fact, Unknown):
        return fact
    if fact.error is not None:
        fail(fact.error)
    return None


def _facts_of(facts: Facts, asked: Asked, fail: Callable[[StoreError], None]) -> SubscriptionFacts:
    cursor, policies = facts.cursor, facts.of.policies
    is_compaction = cursor.name == COMPACTION_CURSOR  # which no TTL expires
    return SubscriptionFacts(
        topic=facts.of.topic.name,
        subscription=cursor.name,
        mark_delete=cursor.mark_delete,
        stored_mark_delete=facts.ahead,
        backlog_entries=facts.pending_entries,
        backlog_bytes=backlog_size_bytes(facts.of.topic, cursor.mark_delete),
        backlog_messages=facts.messages if asked.messages else None,
        oldest_position=facts.oldest,
        oldest_publish_ms=_publish_ms(facts.of.reader, facts.oldest)
        if asked.oldest and facts.oldest is not None
        else None,
        ack_ranges=len(cursor.state.ranges),
        acknowledged_entries=facts.acknowledged_entries,
        ack_holes=len(facts.holes),
        hole_entries=facts.hole_entries,
        delayed=None if asked.delayed_ms is None else _known(facts.not_due, fail),
        ttl=None if is_compaction or isinstance(policies, Unknown) else policies.message_ttl,
        source=cursor.source,
        cursor_ledger=cursor.info.cursors_ledger_id if cursor.info.cursors_ledger_id >= 0 else None,
        unreadable_states=cursor.skipped_entries,
        properties={
            key: value
            for key, value in cursor.info.cursor_properties.items()
            if not key.startswith(INTERNAL_PROPERTY_PREFIX)
        },
    )


def _publish_ms(reader: EntryReader, position: Position) -> int | None:
    from store.search.by_time import read_entry_time  # cold questions about metadata need none of it

    try:
        return read_entry_time(reader, position, "publish")
    except StoreError:
        return None
