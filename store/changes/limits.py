"""Making, changing and deleting resource groups and quotas (upstream ``ResourceGroupsBase`` and ``ResourceQuotasBase``, 4.0.8)."""

from __future__ import annotations

from collections.abc import Mapping

from store.changes.plan import Plan
from store.changes.resources import NodeChange, plan_node
from store.db.environment import Txn
from store.db.tree import iter_nodes
from store.errors import Refused, ResourceNotFound
from store.model.bundles import Bundle
from store.model.limits import GROUP, QUOTA, group_path, quota_path, read_group
from store.model.resources import TENANTS_PATH, find_json


def plan_group(txn: Txn, command: str, name: str, rates: Mapping[str, int | None], now_ms: int) -> Plan:
    """Plan making or changing a resource group: of RATES those that are None stay, −1 where there were none."""
    found = find_json(txn, group_path(name))
    given = {key: value for key, value in rates.items() if value is not None}
    after = GROUP.replace(found, {**(found or {}), **given})
    return plan_node(txn, command, NodeChange(f"resource group {name}", group_path(name), after), now_ms)


def plan_delete_group(txn: Txn, name: str, now_ms: int) -> Plan:
    """Plan deleting a resource group; raises ResourceNotFound, Refused while namespaces are in it."""
    read_group(txn, name)
    paths = (node.path for node in iter_nodes(txn, f"{TENANTS_PATH}/") if node.path.count("/") > 3)
    users = [path for path in paths if (find_json(txn, path) or {}).get("resource_group_name") == name]
    if users:
        names = ", ".join(path.removeprefix(f"{TENANTS_PATH}/") for path in users)
        raise Refused("ResourceGroup is in use", hint=f"by {names}", name=name)
    change = NodeChange(f"resource group {name}", group_path(name), None)
    return plan_node(txn, "resourcegroups delete", change, now_ms)


def plan_quota(txn: Txn, bundle: Bundle | None, quota: Mapping[str, float | bool], now_ms: int) -> Plan:
    """Plan setting the quota of a bundle; None: the default one."""
    path = quota_path(bundle)
    after = QUOTA.replace(find_json(txn, path), quota)
    return plan_node(txn, "resource-quotas set", NodeChange(_quota(bundle), path, after), now_ms)


def plan_reset_quota(txn: Txn, bundle: Bundle, now_ms: int) -> Plan:
    """Plan forgetting the quota of a bundle; raises ResourceNotFound where it has none."""
    path = quota_path(bundle)
    if find_json(txn, path) is None:
        raise ResourceNotFound(f"path {path} not found.", hint="the default quota counts there already", path=path)
    change = NodeChange(_quota(bundle), path, None)
    return plan_node(txn, "resource-quotas reset-namespace-bundle-quota", change, now_ms)


def _quota(bundle: Bundle | None) -> str:
    return "default quota of bundles" if bundle is None else f"quota of bundle {bundle}"
