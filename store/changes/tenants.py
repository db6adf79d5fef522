"""Making, changing and deleting tenants, with the checks of upstream's ``TenantsBase`` (4.0.8)."""

from __future__ import annotations

from collections.abc import Sequence

from store.changes.plan import Plan
from store.changes.resources import NodeChange, plan_nodes
from store.codec.java import hash_order
from store.db.environment import Txn
from store.errors import AlreadyExists, InvalidValue, NamespaceNotFound, Refused
from store.model.resources import GLOBAL_CLUSTER, TENANT, find_json, list_clusters, read_tenant, tenant_path
from store.model.topics import iter_namespaces
from store.names import NamespaceName, is_allowed_name


def plan_create(txn: Txn, tenant: str, roles: Sequence[str], clusters: Sequence[str], now_ms: int) -> Plan:
    """Plan making TENANT, without CLUSTERS for all; raises InvalidValue, Refused, AlreadyExists."""
    if not is_allowed_name(tenant):
        raise InvalidValue("Tenant name is not valid", value=tenant)
    allowed = clusters or list_clusters(txn)
    _check_clusters(txn, allowed)
    if find_json(txn, tenant_path(tenant)) is not None:
        raise AlreadyExists("Tenant already exist", tenant=tenant)
    return _plan(txn, "tenants create", tenant, roles, allowed, now_ms)


def plan_update(txn: Txn, tenant: str, roles: Sequence[str], clusters: Sequence[str], now_ms: int) -> Plan:
    """Plan changing TENANT; without ROLES or CLUSTERS these stay. Raises NamespaceNotFound, InvalidValue, Refused."""
    found = read_tenant(txn, tenant)
    if clusters:
        _check_clusters(txn, clusters)
    shown = TENANT.show(found)
    return _plan(
        txn,
        "tenants update",
        tenant,
        roles or shown["adminRoles"],
        clusters or shown["allowedClusters"],
        now_ms,
    )


def check_deletable(txn: Txn, tenant: str, *, force: bool) -> list[NamespaceName]:
    """Return the namespaces that go with TENANT; raises NamespaceNotFound, and Refused where there are some without FORCE."""
    if find_json(txn, tenant_path(tenant)) is None:
        raise NamespaceNotFound("Tenant doesn't exist", tenant=tenant)
    namespaces = list(iter_namespaces(txn, tenant))
    if namespaces and not force:
        names = ", ".join(map(str, namespaces[:3]))
        raise Refused(
            "The tenant still has active namespaces",
            hint=f"delete them first: {names}{', …' if len(namespaces) > 3 else ''}",
            tenant=tenant,
        )
    return namespaces


def _plan(txn: Txn, command: str, tenant: str, roles: Sequence[str], clusters: Sequence[str], now_ms: int) -> Plan:
    path = tenant_path(tenant)
    new = {"adminRoles": hash_order(roles), "allowedClusters": hash_order(clusters)}
    after = TENANT.replace(find_json(txn, path), new)
    return plan_nodes(txn, command, [NodeChange(f"tenant {tenant}", path, after)], now_ms)


def _check_clusters(txn: Txn, clusters: Sequence[str]) -> None:
    if not clusters or any(not cluster.strip() for cluster in clusters):
        raise InvalidValue("Clusters cannot be empty or blank")
    known = list_clusters(txn)
    if any(cluster not in (*known, GLOBAL_CLUSTER) for cluster in clusters):
        raise Refused("Clusters do not exist", hint=f"clusters: {', '.join(sorted(known))}")
