"""What there is to know of each subscription: where it stands, what is left of it, since when, and which TTL is in force.

Metadata and the last entry of a cursor ledger answer; entries are read only where ``Asked`` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field

from store.codec.cursor import CursorState
from store.errors import MetadataCorrupt, StoreError
from store.facts.delays import NotDue, read_not_due
from store.frozen import frozen
from store.model.cursors import (
    COMPACTION_CURSOR,
    INTERNAL_PROPERTY_PREFIX,
    Cursor,
    backlog_size_bytes,
    is_subscription,
    iter_cursor_names,
    normal_ranges,
    read_cursor,
)
from store.model.extent import extent_of, pending_intervals
from store.model.reader import EntryReader
from store.model.topics import Topic, read_topic
from store.names import Position, TopicName
from store.policies.in_force import MessageTtl, find_message_ttl


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

    ``oldest_position``: the first entry that is not acknowledged, None without a backlog; ``oldest_publish_ms``: None where it was not
    asked for or cannot be read. ``ack_ranges``: ranges acknowledged behind the mark-delete as the cursor stores them (upstream's
    nonContiguousDeletedMessagesRanges), ``acknowledged_entries`` in them; ``ack_holes``: gaps in front of them, ``hole_entries`` in
    these. ``source``: see ``store.model.cursors.Cursor``. ``ttl``: None where nothing in the store sets one. ``delayed``: None where it
    was not asked for, or what says whether delays are enabled cannot be read.
    """

    topic: TopicName
    subscription: str
    mark_delete: Position
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
    ttl = _ttl(reader, topic, fail) if names else None
    for name in names:
        try:
            yield facts_of(reader, topic, read_cursor(reader.txn, reader, topic, name), ttl, asked, fail)
        except StoreError as error:
            fail(error)


def _ttl(reader: EntryReader, topic: Topic, fail: Callable[[StoreError], None]) -> MessageTtl | None:
    try:
        return find_message_ttl(reader.txn, topic.name)
    except MetadataCorrupt as error:
        fail(error)
        return None


def facts_of(
    reader: EntryReader,
    topic: Topic,
    cursor: Cursor,
    ttl: MessageTtl | None,
    asked: Asked,
    fail: Callable[[StoreError], None],
) -> SubscriptionFacts:
    """Return what is known of CURSOR of TOPIC; TTL is the one in force, which compaction's cursor ignores."""
    state = cursor.state
    pending = pending_intervals(topic, state)
    done = normal_ranges(topic, state) if state.ranges else ()
    holes = [end - start for start, end in pending if done and end <= done[-1][0]]
    oldest = topic.at_rank(pending[0][0]) if pending else None
    return SubscriptionFacts(
        topic=topic.name,
        subscription=cursor.name,
        mark_delete=state.mark_delete,
        backlog_entries=sum(end - start for start, end in pending),
        backlog_bytes=backlog_size_bytes(topic, state.mark_delete),
        backlog_messages=extent_of(reader.txn, topic, pending).messages if asked.messages else None,
        oldest_position=oldest,
        oldest_publish_ms=_publish_ms(reader, oldest) if asked.oldest and oldest is not None else None,
        ack_ranges=len(state.ranges),
        acknowledged_entries=sum(end - start for start, end in done),
        ack_holes=len(holes),
        hole_entries=sum(holes),
        delayed=None if asked.delayed_ms is None else _delayed(reader, topic, state, asked.delayed_ms, fail),
        ttl=None if cursor.name == COMPACTION_CURSOR else ttl,
        source=cursor.source,
        cursor_ledger=cursor.info.cursors_ledger_id if cursor.info.cursors_ledger_id >= 0 else None,
        unreadable_states=cursor.skipped_entries,
        properties={
            key: value
            for key, value in cursor.info.cursor_properties.items()
            if not key.startswith(INTERNAL_PROPERTY_PREFIX)
        },
    )


def _delayed(
    reader: EntryReader, topic: Topic, state: CursorState, now_ms: int, fail: Callable[[StoreError], None]
) -> NotDue | None:
    try:
        return read_not_due(reader, topic, state, now_ms)
    except StoreError as error:  # whether delays are enabled is not known: where the cursor stands is
        fail(error)
        return None


def _publish_ms(reader: EntryReader, position: Position) -> int | None:
    from store.search.by_time import read_entry_time  # cold questions about metadata need none of it

    try:
        return read_entry_time(reader, position, "publish")
    except StoreError:
        return None
