"""Deleting namespaces and tenants, with what a broker removes beside their own nodes.

Upstream: ``NamespacesBase.internalDeleteNamespaceAsync``, ``TenantsBase`` and ``CmdClusters.Delete`` (Pulsar 4.0.8). Quotas of bundles
stay, as there. Entries stay in the bookies' files until these collect their garbage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from store.changes import ending
from store.changes.plan import ChangePart, Plan, Step, delete_step
from store.changes.resources import NodeChange, check_tenant_deletable, plan_nodes
from store.changes.resources import plan_delete_cluster as plan_delete_cluster
from store.db.environment import Txn
from store.db.tree import iter_children, iter_nodes
from store.errors import NamespaceNotFound, Refused
from store.model.bundles import bundle_data_path, local_policies_path
from store.model.managed_nodes import iter_other_ledgers
from store.model.partitions import iter_partitioned
from store.model.reader import EntryReader
from store.model.resources import current_cluster, find_json, list_tenants, tenant_path
from store.model.topics import iter_topics
from store.names import NamespaceName, TopicName, decode_name, shell_word
from store.wording import counted, listed


def plan_delete_namespace(reader: EntryReader, namespace: NamespaceName, now_ms: int, *, force: bool) -> Plan:
    """Plan deleting NAMESPACE, with FORCE also the topics in it; raises NamespaceNotFound, Refused."""
    _check_namespace(reader.txn, namespace)
    if not force:
        _check_empty(reader.txn, namespace)
    return _plan_namespaces(reader, "namespaces delete", [namespace], now_ms)


def plan_delete_tenant(reader: EntryReader, tenant: str, now_ms: int, *, force: bool) -> Plan:
    """Plan deleting TENANT, with FORCE also its namespaces and their topics; raises NamespaceNotFound, Refused."""
    return _plan_tenants(reader, "tenants delete", [tenant], now_ms, force=force)


def plan_delete_all(reader: EntryReader, cluster: str, now_ms: int) -> Plan:
    """Plan deleting CLUSTER and every tenant, namespace and topic that there is; raises ResourceNotFound, Refused."""
    own = plan_delete_cluster(reader.txn, cluster, now_ms)
    data = _plan_tenants(reader, "clusters delete", list_tenants(reader.txn), now_ms, force=True)
    return replace(data, steps=data.steps + own.steps, parts=own.parts + data.parts)


def _plan_tenants(reader: EntryReader, command: str, tenants: Iterable[str], now_ms: int, *, force: bool) -> Plan:
    txn, names = reader.txn, list(tenants)
    namespaces = [one for tenant in names for one in check_tenant_deletable(txn, tenant, force=force)]
    for namespace in namespaces:
        if find_json(txn, namespace.policies_path) is not None:
            _check_namespace(txn, namespace)
    data = _plan_namespaces(reader, command, namespaces, now_ms)
    changes = [NodeChange(f"tenant {tenant}", tenant_path(tenant), None) for tenant in names]
    own = plan_nodes(txn, command, changes, now_ms)
    return replace(data, steps=data.steps + own.steps, parts=own.parts + data.parts)


def _plan_namespaces(reader: EntryReader, command: str, namespaces: Sequence[NamespaceName], now_ms: int) -> Plan:
    txn = reader.txn
    for namespace in namespaces:
        _check_other_ledgers(txn, namespace)
    topics = [topic for namespace in namespaces for topic in iter_topics(txn, namespace)]
    bases = [base for namespace in namespaces for base in _bases(txn, namespace)]
    plan = ending.plan_delete(reader, command, topics, bases, now_ms)
    gone = {step.key for step in plan.steps}
    steps = [step for namespace in namespaces for step in _own_nodes(txn, namespace) if step.key not in gone]
    parts = [_part(txn, namespace, topics) for namespace in namespaces]
    return replace(plan, steps=(*plan.steps, *steps), parts=(*parts, *plan.parts))


def _bases(txn: Txn, namespace: NamespaceName) -> list[TopicName]:
    """Return the topics of NAMESPACE, without partition numbers, that have partitions or a schema."""
    schemas = (TopicName(namespace, decode_name(name)) for name in iter_children(txn, f"/schemas/{namespace}"))
    return list(dict.fromkeys([*iter_partitioned(txn, namespace), *schemas]))


def _own_nodes(txn: Txn, namespace: NamespaceName) -> Iterable[Step]:
    below = (f"/admin/partitioned-topics/{namespace}/", f"{bundle_data_path(namespace)}/")
    paths = [node.path for prefix in below for node in iter_nodes(txn, prefix)]
    own = (namespace.policies_path, local_policies_path(namespace))
    steps = (delete_step(txn, path) for path in (*own, *paths))
    return [step for step in steps if step.before is not None]


def _part(txn: Txn, namespace: NamespaceName, topics: Sequence[TopicName]) -> ChangePart:
    policies = find_json(txn, namespace.policies_path) or {}
    before = {
        "replication_clusters": policies.get("replication_clusters"),
        "topics": sum(topic.namespace == namespace for topic in topics),
    }
    return ChangePart(namespace=str(namespace), before=before)


def _check_other_ledgers(txn: Txn, namespace: NamespaceName) -> None:
    """Raise Refused where NAMESPACE has managed ledgers of a newer Pulsar: what names these elsewhere is not known."""
    others = [str(name) for name in iter_other_ledgers(txn, namespace)]
    if others:
        raise Refused(
            f"{namespace} has {counted(len(others), 'managed ledger')} of a newer Pulsar, which this version does not delete: "
            f"{listed(others, 3)}",
            hint="delete it with a broker of that version",
            namespace=str(namespace),
        )


def _check_namespace(txn: Txn, namespace: NamespaceName) -> None:
    policies = find_json(txn, namespace.policies_path)
    if policies is None:
        raise NamespaceNotFound(f"Namespace {namespace} does not exist.", namespace=str(namespace))
    clusters, own = policies.get("replication_clusters") or [], current_cluster(txn)
    if len(clusters) > 1:
        raise Refused(
            f"Cannot delete the global namespace {namespace}. There are still more than one replication clusters configured.",
            hint=f"keep one with: pulsar-admin namespaces set-clusters {shell_word(namespace)} --clusters CLUSTER",
        )
    if clusters and own is not None and clusters != [own]:
        raise Refused(f"{namespace} is of cluster {clusters[0]}: its own brokers delete it", namespace=str(namespace))


def _check_empty(txn: Txn, namespace: NamespaceName) -> None:
    records = iter_nodes(txn, f"/admin/partitioned-topics/{namespace}/")
    topics = [str(topic) for topic in iter_topics(txn, namespace) if not topic.is_system]
    partitioned = [decode_name(node.path.rpartition("/")[2]) for node in records]
    found = topics + [name for name in partitioned if not TopicName(namespace, name).is_system]
    if found:
        raise Refused(
            "Cannot delete non empty namespace",
            hint=f"it has {listed(found, 3)}; --force deletes them, too",
            namespace=str(namespace),
        )
