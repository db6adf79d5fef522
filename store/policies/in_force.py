"""The policies in force for a topic: its own, then its global ones, then its namespace's (pulsar.md §1.12).

Topic policies are messages of ``__change_events`` or, in a namespace without that topic, nodes below ``/admin/topic-policies``.
A store does not contain broker.conf: constants ``BROKER_…`` are the defaults of Pulsar 4.0.8.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from pulsar_admin.store.codec.policies import (
    BacklogQuota,
    DelayedDelivery,
    JsonObject,
    Policies,
    Retention,
    decode_json_object,
    decode_policies,
    decode_topic_policies,
)
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node, tree_key
from pulsar_admin.store.errors import MetadataCorrupt
from pulsar_admin.store.model.cursors import iter_cursor_names
from pulsar_admin.store.names import NamespaceName, TopicName, encode_name
from pulsar_admin.store.policies.events import find_policy_events
from pulsar_admin.store.wording import Answer

TOPIC, GLOBAL_TOPIC, NAMESPACE, BROKER = "topic", "global-topic", "namespace", "broker-default"
BROKER_RETENTION = Retention(0, 0)
"""The default ``defaultRetentionTimeInMinutes`` and ``defaultRetentionSizeInMB`` in broker.conf."""
_Scopes = Iterable[tuple[str, Policies]]
_SCOPES = ((TOPIC, "local"), (GLOBAL_TOPIC, "global"))
_KEPT_ROOTS = 2 * len(_SCOPES)


class MessageTtl(Answer, frozen=True):
    """A message TTL in seconds (0: unlimited), and the ``source`` that sets it: topic, global-topic or namespace."""

    seconds: int
    source: str


class RetentionInForce(Answer, frozen=True):
    """The retention of consumed ledgers, and the ``source`` that sets it."""

    retention: Retention
    source: str


class DeliveryInForce(Answer, frozen=True):
    """The delayed-delivery policy, and the ``source`` that sets it."""

    delivery: DelayedDelivery
    source: str


class QuotaInForce(Answer, frozen=True):
    """A backlog quota, and the ``source`` that sets it."""

    quota: BacklogQuota
    source: str


class PoliciesInForce(Answer, frozen=True):
    """The policies in force for a topic; None: neither topic nor namespace sets it.

    ``backlog_quotas``: by quota type.
    """

    message_ttl: MessageTtl | None
    retention: RetentionInForce | None
    delayed_delivery: DeliveryInForce | None
    backlog_quotas: Mapping[str, QuotaInForce]

    @property
    def applied_retention(self) -> RetentionInForce:
        """The retention in force: the broker's default if neither topic nor namespace sets one."""
        return self.retention or RetentionInForce(BROKER_RETENTION, BROKER)


def read_in_force(txn: Txn, topic: TopicName) -> PoliciesInForce:
    """Return all policies in force for ``topic``; raises MetadataCorrupt."""
    own = [*_iter_topic_policies(txn, topic)]
    if _keeps_its_own(txn, topic):
        return replace(_in_force([*own, *_of_namespace(txn, topic.namespace)]), retention=_retention_of(own))
    if own or not txn.is_snapshot:
        return _in_force([*own, *_of_namespace(txn, topic.namespace)])
    kept: tuple[NamespaceName, PoliciesInForce] | None = txn.memo.get(read_in_force)
    if kept is None or kept[0] != topic.namespace:  # most topics set nothing, and those of a namespace come together
        txn.memo[read_in_force] = kept = topic.namespace, _in_force([*_of_namespace(txn, topic.namespace)])
    return kept[1]


def find_common(txn: Txn, namespace: NamespaceName) -> PoliciesInForce | None:
    """Return the policies in force for all topics of ``namespace``, without broker defaults; None if a topic may set
    its own.

    Raises MetadataCorrupt.
    """
    if _may_set(txn, namespace):
        return None
    return _in_force([*_of_namespace(txn, namespace)])


def _in_force(listed: list[tuple[str, Policies]]) -> PoliciesInForce:
    return PoliciesInForce(_ttl_of(listed), _retention_of(listed), _delivery_of(listed), _quotas_of(listed))


def find_message_ttl(txn: Txn, topic: TopicName) -> MessageTtl | None:
    """Return the TTL in force, None if neither topic nor namespace sets one; raises MetadataCorrupt."""
    return _ttl_of(_iter_policies(txn, topic))


def find_retention(txn: Txn, topic: TopicName) -> RetentionInForce | None:
    """Return the retention in force, None if neither topic nor namespace sets one; raises MetadataCorrupt.

    A system topic has no retention but its own.
    """
    return _retention_of((_iter_topic_policies if _keeps_its_own(txn, topic) else _iter_policies)(txn, topic))


def _keeps_its_own(txn: Txn, topic: TopicName) -> bool:
    """Whether only its own policy says how long a topic retains ledgers: it is a system topic (``BrokerService.getManagedLedgerConfig``,
    4.0.8 to 5.0.1), and has a cursor. Otherwise a broker makes one before it trims the topic: nothing goes at once."""
    return topic.is_system and next(iter(iter_cursor_names(txn, topic)), None) is not None


def find_delivery(txn: Txn, topic: TopicName) -> DeliveryInForce | None:
    """Return the delayed-delivery policy in force, None if neither topic nor namespace sets one; raises
    MetadataCorrupt."""
    return _delivery_of(_iter_policies(txn, topic))


def may_delay(txn: Txn, topic: TopicName) -> bool:
    """Whether a broker may delay messages of ``topic``: yes, unless a readable policy disables delayed delivery."""
    try:
        delivery = find_delivery(txn, topic)
    except MetadataCorrupt:
        return True
    return delivery is None or delivery.delivery.active


def find_quotas(txn: Txn, topic: TopicName) -> dict[str, QuotaInForce]:
    """Return quota type → backlog quota in force, each from the first source that sets the type; raises
    MetadataCorrupt."""
    return _quotas_of(_iter_policies(txn, topic))


def _ttl_of(scopes: _Scopes) -> MessageTtl | None:
    values = ((policies.message_ttl_seconds, source) for source, policies in scopes)
    return next((MessageTtl(seconds, source) for seconds, source in values if seconds is not None), None)


def _retention_of(scopes: _Scopes) -> RetentionInForce | None:
    values = ((policies.retention, source) for source, policies in scopes)
    return next((RetentionInForce(value, source) for value, source in values if value is not None), None)


def _delivery_of(scopes: _Scopes) -> DeliveryInForce | None:
    values = ((policies.delayed_delivery, source) for source, policies in scopes)
    return next((DeliveryInForce(value, source) for value, source in values if value is not None), None)


def _quotas_of(scopes: _Scopes) -> dict[str, QuotaInForce]:
    quotas: dict[str, QuotaInForce] = {}
    for source, policies in scopes:
        for kind, quota in policies.backlog_quotas.items():
            quotas.setdefault(kind, QuotaInForce(quota, source))
    return quotas


def find_topic_policies(txn: Txn, topic: TopicName, *, is_global: bool = False) -> Policies | None:
    """Return the policies of ``topic`` itself, local or (``is_global``) global; None without any.

    Raises MetadataCorrupt.
    """
    wanted = GLOBAL_TOPIC if is_global else TOPIC
    return next((policies for source, policies in _iter_topic_policies(txn, topic) if source == wanted), None)


def iter_own_policies(txn: Txn, namespace: NamespaceName) -> Iterator[tuple[TopicName, Policies]]:
    """Yield (topic, its local policies) for each topic of ``namespace`` that has them in events; raises
    MetadataCorrupt."""
    events = find_policy_events(txn, namespace)
    for name, fields in sorted((events.local if events is not None else {}).items()):
        yield name, decode_topic_policies(fields, f"topic policies of {name}")


def _iter_policies(txn: Txn, topic: TopicName) -> Iterator[tuple[str, Policies]]:
    """Yield (source, policies) in order of precedence."""
    yield from _iter_topic_policies(txn, topic)
    yield from _of_namespace(txn, topic.namespace)


def _of_namespace(txn: Txn, namespace: NamespaceName) -> Iterator[tuple[str, Policies]]:
    kept: tuple[NamespaceName, Policies | None] | None = txn.memo.get(_of_namespace)
    if kept is None or kept[0] != namespace or not txn.is_snapshot:
        node = find_node(txn, namespace.policies_path)
        kept = namespace, None if node is None else decode_policies(node.value, node.path)
        txn.memo[_of_namespace] = kept
    if kept[1] is not None:
        yield NAMESPACE, kept[1]


def _iter_topic_policies(txn: Txn, topic: TopicName) -> Iterator[tuple[str, Policies]]:
    for source, value in iter_stored(txn, topic):
        yield source, decode_topic_policies(value, f"topic policies of {topic.base}")


def iter_stored(txn: Txn, topic: TopicName) -> Iterator[tuple[str, JsonObject]]:
    """Yield (source, stored fields) of the policies of ``topic`` itself, local then global; raises MetadataCorrupt."""
    if _sets_none(txn, topic):
        return
    name = topic.base
    events = None if topic.is_system else find_policy_events(txn, topic.namespace)
    if events is not None:
        for source, kept in ((TOPIC, events.local), (GLOBAL_TOPIC, events.global_)):
            if name in kept:
                yield source, dict(kept[name])
        return
    for source, folder in _SCOPES:
        root = f"/admin/topic-policies/{folder}/{name.namespace}/persistent/"
        if txn.is_snapshot and not _may_have_nodes(txn, root):
            continue
        path = root + encode_name(name.local_name)
        node = find_node(txn, path)
        if node is not None:
            yield source, decode_json_object(node.value, path)


def _sets_none(txn: Txn, topic: TopicName) -> bool:
    """Whether no topic in the namespace of ``topic`` has policies of its own; raises MetadataCorrupt."""
    if topic.is_system or not txn.is_snapshot:
        return False
    kept: tuple[NamespaceName, bool] | None = txn.memo.get(_sets_none)
    if kept is None or kept[0] != topic.namespace:
        txn.memo[_sets_none] = kept = topic.namespace, not _may_set(txn, topic.namespace)
    return kept[1]


def _may_set(txn: Txn, namespace: NamespaceName) -> bool:
    """Whether a topic of ``namespace`` may have policies of its own; raises MetadataCorrupt."""
    events = find_policy_events(txn, namespace)
    if events is not None:
        return bool(events.local or events.global_)
    return any(_may_have_nodes(txn, f"/admin/topic-policies/{folder}/{namespace}/persistent/") for _, folder in _SCOPES)


def _may_have_nodes(txn: Txn, root: str) -> bool:
    """Whether there is a node below ``root``, or an altered row that may hide one; cached, as it is called for every topic."""
    kept: dict[str, bool] = txn.memo.setdefault(_may_have_nodes, {})
    if root not in kept:
        if len(kept) >= _KEPT_ROOTS:
            kept.clear()
        altered: list[bytes] = []
        with txn.passing_altered(altered.append):
            kept[root] = next(txn.keys("tree", tree_key(root)), None) is not None or bool(altered)
    return kept[root]
