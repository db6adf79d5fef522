"""Read model of scalable topics (Pulsar 5.0): their records, and the segments that have their messages."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_admin.store.codec.scalable import ScalableTopic, decode_scalable_topic
from pulsar_admin.store.db import tree
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import TopicNotFound
from pulsar_admin.store.names import SCALABLE, SCALABLE_TOPICS, NamespaceName, TopicName, decode_name, shell_word


def find_scalable(txn: Txn, name: TopicName) -> ScalableTopic | None:
    """Return the scalable topic of a name, of a segment, or of a topic that was migrated; None without. Raises MetadataCorrupt."""
    node = tree.find_node(txn, name.scalable_path)
    return None if node is None or not node.value else decode_scalable_topic(node.value, node.path, name.whole)


def read_scalable(txn: Txn, name: TopicName) -> ScalableTopic:
    """Return the scalable topic ``name``; raises TopicNotFound, MetadataCorrupt."""
    found = find_scalable(txn, name)
    if found is None:
        raise TopicNotFound(
            f"Scalable topic not found: {name.whole}",
            hint=f"list the existing ones with: pulsar-admin scalable-topics list {shell_word(name.namespace)}",
            topic=str(name),
        )
    return found


def iter_scalable(txn: Txn, namespace: NamespaceName | None = None) -> Iterator[TopicName]:
    """Yield the scalable topics of ``namespace`` (default: all) that have a record, by path; records may be damaged."""
    if namespace is not None:
        root = f"{SCALABLE_TOPICS}/{namespace}"
        for child in tree.iter_children(txn, root):
            node = tree.find_node(txn, f"{root}/{child}")
            if node is not None and node.value:
                yield TopicName(namespace, decode_name(child), SCALABLE)
        return
    for tenant in tree.iter_children(txn, SCALABLE_TOPICS):
        for name in tree.iter_children(txn, f"{SCALABLE_TOPICS}/{tenant}"):
            yield from iter_scalable(txn, NamespaceName(tenant, name))


def expand_scalable(txn: Txn, name: TopicName) -> tuple[TopicName, ...]:
    """Return the managed ledgers that have the messages of the scalable topic ``name``, parents before their children.

    Raises TopicNotFound, MetadataCorrupt.
    """
    return tuple(one.topic for one in read_scalable(txn, name).segments)
