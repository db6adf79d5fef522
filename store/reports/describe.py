"""A topic on one screen: its size and times, the policies in force and where they are set, schema, compaction, subscriptions, ledgers."""

from collections.abc import Mapping
from typing import Any

from msgspec import field

from pulsar_admin.store.compaction.status import CompactionStatus, read_status
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.facts import Unknown
from pulsar_admin.store.facts.backlogs import extent_of_messages
from pulsar_admin.store.model.compacted_view import find_compaction_cursor
from pulsar_admin.store.model.cursors import extent_of
from pulsar_admin.store.model.publish_times import find_publish_times
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.schemas import live_versions
from pulsar_admin.store.model.topics import Topic, TopicLedger, read_topic
from pulsar_admin.store.names import Position, TopicName
from pulsar_admin.store.policies.in_force import BROKER
from pulsar_admin.store.policies.table import POLICIES
from pulsar_admin.store.policies.values import value_in_force
from pulsar_admin.store.reports.subscriptions import Asked, SubscriptionFacts, iter_facts_of, known_of
from pulsar_admin.store.wording import Answer


class PolicyFacts(Answer, frozen=True):
    """A policy that is set for a topic: its value as upstream prints it, and where it is set (``store.policies.in_force``)."""

    name: str
    value: Any  # Any: a JSON value
    source: str


class ListedLedger(Answer, frozen=True):
    """A ledger of a topic. Publish times are of its messages; ``times_from``: "entries", or stated in its metadata ("field", "property");
    ``closed_ms``: None while it is open."""

    ledger_id: int
    state: str
    entries: int
    size_bytes: int
    begin_publish_ms: int | None = field(name="beginPublishTimestamp")
    end_publish_ms: int | None = field(name="endPublishTimestamp")
    times_from: str | None
    closed_ms: int | None


class SchemaFacts(Answer, frozen=True):
    """The newest schema of a topic, and how many versions there are."""

    version: int
    type: str
    versions: int


class TopicDescription(Answer, frozen=True):
    """A topic or one partition. ``policies``: what the namespace or the topic sets, all else is a broker's default; None where
    they cannot be read. ``uncounted_entries``: entries that are not here, whose messages are in no sum; None for none.

    ``first_publish_ms`` and ``last_publish_ms``: the smallest and largest of its messages. ``schema``, ``compaction``: None without.
    """

    JSON_OPTIONAL = ("uncounted_entries",)

    topic: TopicName
    created_ms: int
    state: str
    entries: int
    messages: int
    uncounted_entries: int | None
    size_bytes: int
    last_confirmed: Position
    first_publish_ms: int | None
    last_publish_ms: int | None
    properties: Mapping[str, str]
    policies: tuple[PolicyFacts, ...] | None
    schema: SchemaFacts | None
    compaction: CompactionStatus | None
    subscriptions: tuple[SubscriptionFacts, ...]
    ledgers: tuple[ListedLedger, ...]


def describe_topic(reader: EntryReader, name: TopicName, asked: Asked, problems: list[StoreError]) -> TopicDescription:
    """Return everything known about a topic, its subscriptions as ``asked``; what cannot be read is left out and goes into ``problems``.

    Raises TopicNotFound, MetadataCorrupt (the topic's own).
    """
    topic = read_topic(reader.txn, name)
    ledgers = tuple(_ledger(reader, topic, ledger) for ledger in topic.ledgers)
    whole = ((0, topic.number_of_entries),)
    is_quick = asked.delayed_ms is None
    extent = extent_of(reader.txn, topic, whole) if is_quick else extent_of_messages(reader, topic, whole)
    return TopicDescription(
        topic=topic.name,
        created_ms=topic.stat.created_ms,
        state="open" if topic.managed.terminated is None else "terminated",
        entries=topic.number_of_entries,
        messages=extent.messages,
        uncounted_entries=extent.uncounted_entries,
        size_bytes=topic.total_size_bytes,
        last_confirmed=topic.last_confirmed,
        first_publish_ms=min(
            (row.begin_publish_ms for row in ledgers if row.begin_publish_ms is not None), default=None
        ),
        last_publish_ms=max((row.end_publish_ms for row in ledgers if row.end_publish_ms is not None), default=None),
        properties=topic.managed.properties,
        policies=known_of(Unknown.unless(lambda: _policies(reader, name)), problems.append),
        schema=known_of(Unknown.unless(lambda: _schema(reader, name)), problems.append),
        compaction=known_of(Unknown.unless(lambda: _compaction(reader, topic)), problems.append),
        subscriptions=tuple(iter_facts_of(reader, topic, asked, problems.append)),
        ledgers=ledgers,
    )


def _policies(reader: EntryReader, name: TopicName) -> tuple[PolicyFacts, ...]:
    policies = [policy for policy in POLICIES if policy.topic is not None]
    in_force = [(policy, *value_in_force(reader.txn, name, policy, {})) for policy in policies]
    return tuple(
        PolicyFacts(policy.name, policy.shown(value), source) for policy, value, source in in_force if source != BROKER
    )


def _schema(reader: EntryReader, name: TopicName) -> SchemaFacts | None:
    versions = live_versions(reader, name)
    return SchemaFacts(versions[-1][0], versions[-1][1].type_name, len(versions)) if versions else None


def _compaction(reader: EntryReader, topic: Topic) -> CompactionStatus | None:
    # Leaked ledgers are those of all topics: `compaction status` looks for them.
    return None if find_compaction_cursor(reader, topic) is None else read_status(reader, topic, ())


def _ledger(reader: EntryReader, topic: Topic, ledger: TopicLedger) -> ListedLedger:
    info = ledger.info
    times = find_publish_times(reader.txn, info)
    state = "open" if ledger.is_open and topic.managed.terminated is None else "closed"
    if info.offloaded:
        state = "offloaded, deleted" if info.bookkeeper_deleted else "offloaded"
    return ListedLedger(
        info.ledger_id,
        state,
        ledger.entries,
        ledger.size_bytes,
        None if times is None else times.begin_ms,
        None if times is None else times.end_ms,
        None if times is None else times.source,
        info.timestamp_ms or None,
    )
