"""Read model of partitioned topics: the records that give a name its partitions."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from pulsar_admin.store.codec.policies import PartitionedTopic, decode_partitioned_topic
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node, iter_children
from pulsar_admin.store.errors import TopicNotFound
from pulsar_admin.store.model.topics import iter_namespaces, not_found, read_topic
from pulsar_admin.store.names import NamespaceName, TopicName, decode_name, shell_word

_RECORDS = "/admin/partitioned-topics"


def iter_partitioned(txn: Txn, namespace: NamespaceName | None = None) -> Iterator[TopicName]:
    """Yield the partitioned topics of NAMESPACE (default: all) by their base names, in name order."""
    if namespace is not None:
        children = iter_children(txn, f"{_RECORDS}/{namespace}/persistent")
        yield from sorted(TopicName(namespace, decode_name(child)) for child in children)
        return
    for tenant in iter_children(txn, _RECORDS):
        for found in iter_namespaces(txn, tenant):
            yield from iter_partitioned(txn, found)


def read_partitioned(txn: Txn, name: TopicName) -> PartitionedTopic:
    """Return the partitions of NAME: 0 for a topic without them, and for none at all, as upstream answers.

    Raises MetadataCorrupt.
    """
    node = find_node(txn, name.partitioned_path) if name.partition_index < 0 else None
    return PartitionedTopic(0) if node is None else decode_partitioned_topic(node.value, node.path)


def read_existing(txn: Txn, name: TopicName) -> PartitionedTopic:
    """Return the partitions of NAME, 0 for a topic without; raises TopicNotFound where neither is there, MetadataCorrupt."""
    found = read_partitioned(txn, name)
    if not found.partitions:
        read_topic(txn, name)
    return found


def existing_partitions(txn: Txn, name: TopicName) -> tuple[TopicName, ...]:
    """Return the partitions of NAME that are there: one that was never opened has no metadata."""
    count = read_partitioned(txn, name).partitions
    return tuple(part for part in map(name.partition, range(count)) if find_node(txn, part.path) is not None)


def select_partitioned(txn: Txn, pattern: str | None = None) -> tuple[TopicName, ...]:
    """Return the partitioned topics whose names match a glob (default: all), without system topics.

    Raises TopicNotFound when there is none.
    """
    found = (name for name in iter_partitioned(txn) if not name.is_system)
    matching = tuple(name for name in found if pattern is None or _matches(name, pattern))
    if not matching:
        raise TopicNotFound(
            "no partitioned topic" + (f" matches {pattern!r}" if pattern is not None else " is in the store"),
            hint="list what is there with: pulsar-admin topics list-partitioned-topics TENANT/NAMESPACE",
        )
    return matching


def check_partitioned(txn: Txn, name: TopicName) -> TopicName:
    """Return NAME; raises TopicNotFound unless it is a partitioned topic."""
    if not read_partitioned(txn, name).partitions:
        if find_node(txn, name.path) is None:
            raise not_found(txn, name)
        raise TopicNotFound(
            f"{name} is not a partitioned topic",
            hint=f"list them with: pulsar-admin topics list-partitioned-topics {shell_word(name.namespace)}",
            topic=str(name),
        )
    return name


def _matches(name: TopicName, pattern: str) -> bool:
    return fnmatchcase(str(name), pattern) or fnmatchcase(str(name).removeprefix("persistent://"), pattern)
