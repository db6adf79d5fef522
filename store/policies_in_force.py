"""The policies in force for a topic, as far as metadata holds them: topic policies, then the namespace's (pulsar.md §1.12).

Topic policies of the default backend are messages of ``__change_events`` and are not read here; ``has_policy_events`` says that there
may be some. A broker's own defaults (``ttlDurationDefaultInSeconds``, ``defaultRetention…``) are in no store.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from store.codec.policies import JsonObject, Retention, decode_json_object, decode_policies
from store.errors import MetadataCorrupt
from store.meta import Txn
from store.names import NamespaceName, TopicName, encode_name
from store.topics import iter_topics, read_topic
from store.tree import find_node

POLICY_EVENTS = "__change_events"
TOPIC, GLOBAL_TOPIC, NAMESPACE = "topic", "global-topic", "namespace"
_SCOPES = ((TOPIC, "local"), (GLOBAL_TOPIC, "global"))


@dataclass(frozen=True, slots=True)
class MessageTtl:
    """How long messages live, in seconds (0: for ever), and where that is written: topic, global-topic or namespace."""

    seconds: int
    source: str


@dataclass(frozen=True, slots=True)
class RetentionInForce:
    """How long consumed ledgers are kept, and where that is written."""

    retention: Retention
    source: str


def find_message_ttl(txn: Txn, topic: TopicName) -> MessageTtl | None:
    """Return the TTL in force, None when metadata sets none; raises MetadataCorrupt."""
    for source, policies, path in _topic_policies(txn, topic):
        seconds = policies.get("messageTTLInSeconds")
        if seconds is not None:
            return MessageTtl(_integer(seconds, "messageTTLInSeconds", path), source)
    node = find_node(txn, topic.namespace.policies_path)
    seconds = None if node is None else decode_policies(node.value, node.path).message_ttl_seconds
    return None if seconds is None else MessageTtl(seconds, NAMESPACE)


def find_retention(txn: Txn, topic: TopicName) -> RetentionInForce | None:
    """Return the retention in force, None when metadata sets none; raises MetadataCorrupt."""
    for source, policies, path in _topic_policies(txn, topic):
        found = policies.get("retentionPolicies")
        if isinstance(found, dict):
            minutes, megabytes = (
                _integer(found.get(key, 0), key, path) for key in ("retentionTimeInMinutes", "retentionSizeInMB")
            )
            return RetentionInForce(Retention(minutes, megabytes), source)
    node = find_node(txn, topic.namespace.policies_path)
    retention = None if node is None else decode_policies(node.value, node.path).retention
    return None if retention is None else RetentionInForce(retention, NAMESPACE)


def has_policy_events(txn: Txn, namespace: NamespaceName) -> bool:
    """Whether NAMESPACE keeps topic policies as messages, which outrank its own and are not read."""
    return any(
        topic.base.local_name == POLICY_EVENTS and read_topic(txn, topic).number_of_entries > 0
        for topic in iter_topics(txn, namespace)
    )


def _topic_policies(txn: Txn, topic: TopicName) -> Iterator[tuple[str, JsonObject, str]]:
    """Yield (source, TopicPolicies, path), the one that wins first."""
    name = topic.base
    for source, folder in _SCOPES:
        path = f"/admin/topic-policies/{folder}/{name.namespace}/persistent/{encode_name(name.local_name)}"
        node = find_node(txn, path)
        if node is not None:
            yield source, decode_json_object(node.value, path), path


def _integer(value: object, key: str, where: str) -> int:
    if type(value) is not int:
        raise MetadataCorrupt(f"{where}: {key} is {type(value).__name__}, expected int", where=where, key=key)
    return value
