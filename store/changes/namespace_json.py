"""Changing what is stored of a namespace: properties, permissions, allowed clusters, and what one cluster alone knows of it.

Upstream: ``NamespacesBase`` and ``PulsarAuthorizationProvider`` on ``Policies`` and ``LocalPolicies`` (Pulsar 4.0.8). Keys that are
not meant to change stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from pulsar_admin.store.changes.plan import ChangePart, Plan, put_value_step
from pulsar_admin.store.codec.java import hash_order
from pulsar_admin.store.codec.policies import JsonObject, encode_json_object
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import InvalidValue, Refused, ResourceNotFound, TopicNotFound
from pulsar_admin.store.model.resources import (
    DEFAULT_BUNDLES,
    bundles_of,
    find_json,
    local_policies_path,
    read_policies,
    read_tenant,
)
from pulsar_admin.store.names import NamespaceName, TopicName, shell_word

ACTIONS = ("produce", "consume", "functions", "sources", "sinks", "packages")


class JsonJob(Struct, frozen=True):
    """What to do with a JSON object: the command's name, the change, and the keys that reports show."""

    command: str
    change: Callable[[JsonObject], JsonObject]
    keys: Sequence[str]


class Node(Struct, frozen=True):
    """Where a JSON object stands, and what it is, or would be made as."""

    path: str
    found: JsonObject


class Grant(Struct, frozen=True):
    """What a role may do in place of what it might; nothing: it is forgotten."""

    role: str
    actions: Sequence[str] = ()


def plan_policies_json(
    txn: Txn, namespace: NamespaceName, job: JsonJob, now_ms: int, error: str = "Namespace does not exist"
) -> Plan:
    """Plan JOB on the policies of NAMESPACE; raises NamespaceNotFound with the words of ERROR, MetadataCorrupt."""
    found = read_policies(txn, namespace, error)
    return _plan(txn, namespace, job, Node(namespace.policies_path, found), now_ms)


def plan_local_json(txn: Txn, namespace: NamespaceName, job: JsonJob, now_ms: int) -> Plan:
    """Plan JOB on what this cluster alone knows of NAMESPACE, which upstream makes where it is not there. Raises MetadataCorrupt."""
    path = local_policies_path(namespace)
    found = find_json(txn, path)
    if found is None:
        policies = find_json(txn, namespace.policies_path) or {}
        found = {"bundles": policies.get("bundles") or bundles_of(DEFAULT_BUNDLES), "migrated": False}
    return _plan(txn, namespace, job, Node(path, found), now_ms)


def _plan(txn: Txn, namespace: NamespaceName, job: JsonJob, node: Node, now_ms: int) -> Plan:
    after = job.change(node.found)
    before, now = ({key: side.get(key) for key in job.keys} for side in (node.found, after))
    step = put_value_step(txn, node.path, encode_json_object(after), now_ms)
    steps = () if after == find_json(txn, node.path) else (step,)
    return Plan(job.command, txn.id, steps, (ChangePart(namespace=str(namespace), before=before, after=now),))


def put(key: str, value: object) -> Callable[[JsonObject], JsonObject]:
    """Return the change that sets KEY to VALUE; None: removes it."""

    def change(found: JsonObject) -> JsonObject:
        left = {name: one for name, one in found.items() if name != key}
        return left if value is None else {**found, key: value}

    return change


# -- properties -------------------------------------------------------------------------------------------------------


def properties_of(pairs: Sequence[str]) -> dict[str, str]:
    """Return KEY=VALUE texts as upstream's ``parseListKeyValueMap`` does; raises InvalidValue."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InvalidValue(f"Invalid key value pair '{pair}', valid format like 'a=b'.")
        found[key] = value
    return {key: found[key] for key in hash_order(found)}


def plan_properties(
    txn: Txn, command: str, namespace: NamespaceName, change: Callable[[JsonObject], JsonObject], now_ms: int
) -> Plan:
    """Plan CHANGE of the properties of NAMESPACE; raises NamespaceNotFound."""
    job = JsonJob(command, lambda found: {**found, "properties": change(found.get("properties") or {})}, ["properties"])
    return plan_policies_json(txn, namespace, job, now_ms)


# -- permissions ------------------------------------------------------------------------------------------------------


def check_actions(actions: Sequence[str]) -> list[str]:
    """Return ACTIONS, each once, as upstream names them; raises InvalidValue."""
    for action in actions:
        if action not in ACTIONS:
            raise InvalidValue(f"Illegal auth action '{action}'. Possible values: [{', '.join(ACTIONS)}]")
    return [action for action in ACTIONS if action in actions]


def plan_permission(txn: Txn, command: str, namespace: NamespaceName, grant: Grant, now_ms: int) -> Plan:
    """Plan GRANT in NAMESPACE; raises NamespaceNotFound."""

    def change(found: JsonObject) -> JsonObject:
        return _with_auth(found, "namespace_auth", lambda roles: _granted(roles, grant))

    return plan_policies_json(txn, namespace, JsonJob(command, change, ["auth_policies"]), now_ms, _NO_NAMESPACE)


def plan_topic_permission(txn: Txn, command: str, topic: TopicName, grant: Grant, now_ms: int) -> Plan:
    """Plan GRANT on TOPIC; raises TopicNotFound, NamespaceNotFound."""
    _check_topic(txn, topic)
    name = str(topic)

    def of_topics(topics: JsonObject) -> JsonObject:
        roles = _granted(topics.get(name) or {}, grant)
        left = {key: value for key, value in topics.items() if key != name}
        return {**topics, name: roles} if roles else left

    def change(found: JsonObject) -> JsonObject:
        return _with_auth(found, "destination_auth", of_topics)

    return plan_policies_json(txn, topic.namespace, JsonJob(command, change, ["auth_policies"]), now_ms, _NO_NAMESPACE)


_NO_NAMESPACE = "Topic's namespace does not exist"


def _check_topic(txn: Txn, topic: TopicName) -> None:
    if find_node(txn, topic.path) is None and find_node(txn, topic.partitioned_path) is None:
        raise TopicNotFound(f"Topic {topic} not found", topic=str(topic))


def _granted(roles: JsonObject, grant: Grant) -> JsonObject:
    if grant.actions:
        return {**roles, grant.role: list(grant.actions)}
    return {role: actions for role, actions in roles.items() if role != grant.role}


def _with_auth(found: JsonObject, key: str, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
    policies = found.get("auth_policies") or {}
    return {**found, "auth_policies": {**policies, key: change(policies.get(key) or {})}}


def plan_grant_subscription(
    txn: Txn, namespace: NamespaceName, subscription: str, roles: Sequence[str], now_ms: int
) -> Plan:
    """Plan that ROLES alone may use SUBSCRIPTION in NAMESPACE; raises NamespaceNotFound."""

    def change(found: JsonObject) -> JsonObject:
        return _with_auth(found, _SUBSCRIPTIONS, lambda auth: {**auth, subscription: hash_order(roles)})

    job = JsonJob("namespaces grant-subscription-permission", change, ["auth_policies"])
    return plan_policies_json(txn, namespace, job, now_ms, "")


def plan_revoke_subscription(txn: Txn, namespace: NamespaceName, subscription: str, role: str, now_ms: int) -> Plan:
    """Plan taking SUBSCRIPTION from a role; raises NamespaceNotFound, ResourceNotFound where nobody has it."""
    auth = (read_policies(txn, namespace).get("auth_policies") or {}).get(_SUBSCRIPTIONS) or {}
    if subscription not in auth:
        raise ResourceNotFound("couldn't find subscription", subscription=subscription)
    left = [one for one in auth[subscription] if one != role]
    others = {name: roles for name, roles in auth.items() if name != subscription}
    after = {**auth, subscription: left} if left else others
    job = JsonJob(
        "namespaces revoke-subscription-permission",
        lambda found: _with_auth(found, _SUBSCRIPTIONS, lambda _: after),
        ["auth_policies"],
    )
    return plan_policies_json(txn, namespace, job, now_ms)


_SUBSCRIPTIONS = "subscription_auth_roles"


def read_permissions(policies: JsonObject, topic: TopicName | None = None) -> dict[str, list[str]]:
    """Return the actions of each role in the policies of a namespace, with TOPIC also its own; roles as stored."""
    auth: Mapping[str, JsonObject] = policies.get("auth_policies") or {}
    found = {role: list(actions) for role, actions in (auth.get("namespace_auth") or {}).items()}
    if topic is not None:
        for role, actions in ((auth.get("destination_auth") or {}).get(str(topic)) or {}).items():
            found[role] = list(dict.fromkeys([*found.get(role, ()), *actions]))
    return found


def read_topic_permissions(txn: Txn, topic: TopicName) -> dict[str, list[str]]:
    """Return the actions of each role on TOPIC and in its namespace; raises TopicNotFound, NamespaceNotFound, MetadataCorrupt."""
    _check_topic(txn, topic)
    return read_permissions(read_policies(txn, topic.namespace), topic)


def read_subscription_permissions(policies: JsonObject) -> dict[str, list[str]]:
    """Return the roles of each subscription in the policies of a namespace."""
    auth = (policies.get("auth_policies") or {}).get(_SUBSCRIPTIONS) or {}
    return {name: hash_order(auth[name]) for name in hash_order(auth)}


# -- clusters ---------------------------------------------------------------------------------------------------------


def check_tenant_clusters(txn: Txn, namespace: NamespaceName, clusters: Sequence[str]) -> None:
    """Raise Refused where the tenant of NAMESPACE may not use one of CLUSTERS, NamespaceNotFound where there is no tenant."""
    allowed = read_tenant(txn, namespace.tenant).get("allowedClusters") or ()
    for cluster in clusters:
        if cluster not in allowed:
            raise Refused(
                f"Cluster [{cluster}] is not in the list of allowed clusters list for tenant [{namespace.tenant}]",
                hint=f"see: pulsar-admin tenants get {shell_word(namespace.tenant)}",
            )


def with_deleter(policies: JsonObject) -> JsonObject:
    """Return POLICIES with the one cluster that may delete the namespace, which a broker writes beside its clusters."""
    clusters: Sequence[str] = policies.get("replication_clusters") or ()
    allowed: Sequence[str] = policies.get("allowed_clusters") or ()
    left = {key: value for key, value in policies.items() if key != _DELETER}
    return {**left, _DELETER: clusters[0]} if len(clusters) == 1 and len(allowed) < 2 else left


_DELETER = "clusterThatCanDeleteNamespace"


def plan_allowed_clusters(txn: Txn, namespace: NamespaceName, clusters: Sequence[str], now_ms: int) -> Plan:
    """Plan setting the clusters that NAMESPACE may replicate to; raises NamespaceNotFound, Refused."""
    check_tenant_clusters(txn, namespace, hash_order(clusters))
    replicated = read_policies(txn, namespace).get("replication_clusters") or []
    if any(cluster not in clusters for cluster in replicated):
        raise Refused(
            f"Allowed clusters do not contain the replication cluster [{', '.join(hash_order(replicated))}]. Please remove"
            " the replication cluster if the cluster is not allowed for this namespace"
        )

    def change(found: JsonObject) -> JsonObject:
        return with_deleter({**found, "allowed_clusters": hash_order(clusters)})

    job = JsonJob("namespaces set-allowed-clusters", change, ["allowed_clusters"])
    return plan_policies_json(txn, namespace, job, now_ms)
