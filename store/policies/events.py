"""Topic policies that a namespace stores as messages of ``__change_events``: the last event of every key (pulsar.md §1.12).

Read as a broker reads them: the compacted view, then the messages after its horizon. Upstream:
``SystemTopicBasedTopicPoliciesService`` (Pulsar 4.0.8). If ``__change_events`` exists, nodes below
``/admin/topic-policies`` are ignored.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from pulsar_admin.store.db.environment import Txn, once
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import MetadataCorrupt, NotSeen, StoreError
from pulsar_admin.store.model.cursors import COMPACTION_CURSOR
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, existing_partitions, lacks_bookies, partition_count, read_topic
from pulsar_admin.store.names import EVENTS, NamespaceName, TopicName

Fields = Mapping[str, Any]  # Any: upstream's TopicPolicies, fields by name


class PolicyEvents(Struct):
    """Topic policies of a namespace: base topic name → fields of ``TopicPolicies``. ``global_``: those for all clusters.

    ``replicate_to``: the clusters in ``replicateTo`` of the newest event that is not global; None if no event names any.
    """

    local: dict[TopicName, Fields] = field(default_factory=dict)
    global_: dict[TopicName, Fields] = field(default_factory=dict)
    replicate_to: tuple[str, ...] | None = None


def event_topics(txn: Txn, namespace: NamespaceName) -> tuple[TopicName, ...]:
    """Return the partitions of a namespace's ``__change_events``, the topic itself if not partitioned, () if it does
    not exist."""
    name = TopicName(namespace, EVENTS)
    if partition_count(txn, name):
        return existing_partitions(txn, name)
    return (name,) if find_node(txn, name.path) is not None else ()


@once
def find_policy_events(txn: Txn, namespace: NamespaceName) -> PolicyEvents | None:
    """Return the topic policies in the events of ``namespace``, None without ``__change_events``; cached for the life
    of ``txn``.

    Raises MetadataCorrupt if an event or the topic's compacted ledger cannot be read: the policies are then unknown.
    """
    names = event_topics(txn, namespace)
    return _read(txn, namespace, names) if names else None


def _read(txn: Txn, namespace: NamespaceName, names: tuple[TopicName, ...]) -> PolicyEvents:
    topics = [read_topic(txn, name) for name in names]
    for topic in topics if lacks_bookies(txn) else ():
        _check_end(txn, topic)
    events = PolicyEvents()
    if not any(topic.number_of_entries or _is_compacted(txn, topic.name) for topic in topics):
        return events
    # Imported here: most questions meet no events.
    from pulsar_admin.store.db.entry_files import EntryFiles

    with EntryFiles(txn.store, txn) as files:
        reader = EntryReader(files, txn)
        for topic in topics:
            try:
                _replay(reader, topic, events)
            except MetadataCorrupt:
                raise
            except StoreError as error:  # also if a file is gone: its content is just as unknown
                raise _unknown(namespace, error) from error
    return events


def _check_end(txn: Txn, topic: Topic) -> None:
    """Raise MetadataCorrupt if an open ledger at the end of ``topic`` may have events on bookies, or in journals, that are not imported."""
    if not topic.ledgers or not topic.ledgers[-1].is_open:
        return
    from pulsar_admin.store.model.broken import find_broken_ledger
    from pulsar_admin.store.model.coverage import bring_hint

    broken = find_broken_ledger(txn, topic, topic.ledgers[-1])
    if broken is not None and broken.bookies and (unseen := broken.not_seen()):
        error = NotSeen(unseen, hint=bring_hint(broken.bookies), bookies=broken.bookies)
        raise _unknown(topic.name.namespace, error) from error


def _is_compacted(txn: Txn, name: TopicName) -> bool:
    """Whether ``name`` was ever compacted: its compacted ledger may then hold events whose own ledgers were trimmed."""
    return find_node(txn, name.cursor_path(COMPACTION_CURSOR)) is not None


def _replay(reader: EntryReader, topic: Topic, events: PolicyEvents) -> None:
    from pulsar_admin.store.codec.policyevent import AvroSchema, builtin_schema, decode_policy_event, topic_of_key
    from pulsar_admin.store.compaction.reading import iter_view
    from pulsar_admin.store.model.compacted_view import open_view
    from pulsar_admin.store.model.schemas import find_schema

    schemas: dict[int | None, AvroSchema] = {}
    problems: list[StoreError] = []
    for message in iter_view(reader, topic, open_view(reader, topic, problems), problems):
        if message.null_value:
            base, is_global = topic_of_key(message.key or "")
            (events.global_ if is_global else events.local).pop(base, None)
            continue
        version = message.schema_number
        if version not in schemas:
            schema = find_schema(reader, topic.name, version)
            schemas[version] = AvroSchema(builtin_schema() if schema is None else schema.definition)
        event = decode_policy_event(message.payload, schemas[version], f"entry {message.position} of {topic.name}")
        if event is not None:
            _apply(events, event)
    if problems:
        raise _unknown(topic.name.namespace, problems[0]) from problems[0]


def _apply(events: PolicyEvents, event: Any) -> None:  # Any: PolicyEvent, imported where events are
    from pulsar_admin.store.codec.policyevent import DELETE, INSERT, UPDATE

    kept = events.global_ if event.is_global else events.local
    if event.action == DELETE:
        kept.pop(event.topic.base, None)
    elif event.action in (INSERT, UPDATE) and event.policies is not None:
        if event.action == UPDATE or event.topic.base not in kept:
            kept[event.topic.base] = event.policies
        if not event.is_global and event.replicate_to:
            events.replicate_to = event.replicate_to


def _unknown(namespace: NamespaceName, error: StoreError) -> MetadataCorrupt:
    return MetadataCorrupt(
        f"the topic policies of {namespace} are unknown: {error.message}", hint=error.hint, namespace=str(namespace)
    )
