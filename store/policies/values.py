"""The value of a policy: of a namespace, of a topic itself, and in force for a topic (upstream's ``--applied``)."""

from typing import Any

from pulsar_admin.store.codec.policies import decode_namespace_json
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node, iter_children
from pulsar_admin.store.errors import InvalidValue, Refused
from pulsar_admin.store.model.topics import select_topics
from pulsar_admin.store.names import PERSISTENT, NamespaceName, TopicName, TopicSelection, shell_word
from pulsar_admin.store.policies.in_force import BROKER, GLOBAL_TOPIC, NAMESPACE, TOPIC, iter_stored
from pulsar_admin.store.policies.places import Json, Options
from pulsar_admin.store.policies.table import Policy
from pulsar_admin.store.wording import Answer

NOTHING: tuple[Any, ...] = (None, {}, [], "UNDEFINED")
"""Values that count as not set."""


def read_namespace_json(txn: Txn, namespace: NamespaceName) -> Json:
    """Return the stored policies of ``namespace``, {} if it has no node; raises MetadataCorrupt."""
    node = find_node(txn, namespace.policies_path)
    return {} if node is None else decode_namespace_json(node.value, node.path)


def find_cluster(txn: Txn, namespace: NamespaceName) -> str | None:
    """Return the cluster of the store's data: the only registered one, else the only one of ``namespace``; None if unclear."""
    clusters = [name for name in iter_children(txn, "/admin/clusters") if name != "global"]
    if len(clusters) != 1:
        clusters = [str(name) for name in read_namespace_json(txn, namespace).get("replication_clusters") or ()]
    return clusters[0] if len(clusters) == 1 else None


def namespace_value(txn: Txn, namespace: NamespaceName, policy: Policy) -> Any:
    """Return the value that ``namespace`` sets, None without one; raises MetadataCorrupt."""
    if policy.namespace is None:
        return None
    policies = read_namespace_json(txn, namespace)
    return policy.namespace.read(policies, find_cluster(txn, namespace) or "", {})


def own_value(txn: Txn, topic: TopicName, policy: Policy, options: Options) -> Any:
    """Return the value that ``topic`` itself sets, locally or (option ``global_``) globally, None without one.

    Raises MetadataCorrupt.
    """
    if policy.topic is None:
        return None
    wanted = GLOBAL_TOPIC if options.get("global_") else TOPIC
    fields = next((fields for source, fields in iter_stored(txn, topic) if source == wanted), {})
    return policy.topic.read(fields, "", options)


def applied_value(txn: Txn, topic: TopicName, policy: Policy, options: Options) -> Any:
    """Return the value that upstream shows with ``--applied``: ``own_value``, else the namespace's, else the broker's default.

    Without ``--global``, 4.0.8 ignores global topic policies here, though a broker applies them: see
    ``value_in_force``.
    """
    own = own_value(txn, topic, policy, options)
    above = namespace_value(txn, topic.namespace, policy)
    if policy.name == "offload-policies":  # merged member by member; without a driver it is none
        merged = {**(above or {}), **{key: value for key, value in (own or {}).items() if value is not None}}
        return merged if merged.get("managedLedgerOffloadDriver") else None
    return next((value for value in (own, above) if value not in NOTHING), policy.default)


def value_in_force(txn: Txn, topic: TopicName, policy: Policy, options: Options) -> tuple[Any, str]:
    """Return the value that a broker applies, and its source: topic, global-topic, namespace or broker-default."""
    for source, fields in iter_stored(txn, topic):
        value = None if policy.topic is None else policy.topic.read(fields, "", options)
        if value not in NOTHING:
            return value, source
    above = namespace_value(txn, topic.namespace, policy)
    return (above, NAMESPACE) if above not in NOTHING else (policy.default, BROKER)


class PolicyValue(Answer, frozen=True):
    """A topic's value of a policy as the JSON that upstream stores, and the ``source`` that sets it, None if not set."""

    topic: str
    policy: str
    value: Any
    source: str | None


def topics_with_policies(txn: Txn, selection: TopicSelection) -> list[TopicName]:
    """Return the selected topics without partition numbers; raises TopicNotFound, Refused, and InvalidValue for a
    partition."""
    for name in selection.topics:
        if name.domain != PERSISTENT:
            raise Refused(
                f"{name} is no persistent topic: policies of its own are not known here",
                hint=f"those of its namespace apply to it: pulsar-admin namespaces policies {shell_word(name.namespace)}",
                topic=str(name),
            )
        if name != name.base:
            raise InvalidValue("Not allowed to set/get topic policy for a partition", value=str(name))
    chosen = (name for name in select_topics(txn, selection) if name.domain == PERSISTENT)
    return list(dict.fromkeys(name.base for name in chosen))


def sourced_values(txn: Txn, selection: TopicSelection, policy: Policy, options: Options) -> tuple[PolicyValue, ...]:
    """Return the ``sourced_value`` of each selected topic."""
    names = topics_with_policies(txn, selection)
    return tuple(PolicyValue(str(name), policy.name, *sourced_value(txn, name, policy, options)) for name in names)


def answered_values(txn: Txn, selection: TopicSelection, policy: Policy, options: Options) -> tuple[Any, ...]:
    """Return the values of the selected topics as a broker answers: ``own_value``, or ``applied_value`` with ``applied``."""
    read = applied_value if options.get("applied") else own_value
    return tuple(read(txn, name, policy, options) for name in topics_with_policies(txn, selection))


def sourced_value(txn: Txn, topic: TopicName, policy: Policy, options: Options) -> tuple[Any, str | None]:
    """Return (value, source): ``own_value``, or with the option ``applied`` ``value_in_force``; the source is None if
    not set."""
    if options.get("applied"):
        value, source = value_in_force(txn, topic, policy, options)
    else:
        value, source = own_value(txn, topic, policy, options), GLOBAL_TOPIC if options.get("global_") else TOPIC
    return value, None if value in (None, {}) else source
