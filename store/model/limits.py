"""Resource groups, and quotas of bundles (upstream ``ResourceGroup`` and ``ResourceQuota``, 4.0.8)."""

from __future__ import annotations

from pulsar_admin.store.codec.policies import JsonObject
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import iter_children
from pulsar_admin.store.errors import ResourceNotFound
from pulsar_admin.store.model.bundles import Bundle
from pulsar_admin.store.model.resources import Fields, find_json

GROUPS_PATH = "/admin/resourcegroups"
GROUP = Fields(
    dict.fromkeys(("publishRateInMsgs", "publishRateInBytes", "dispatchRateInMsgs", "dispatchRateInBytes"), -1), {}
)
QUOTA = Fields(
    {
        "msgRateIn": 40.0,
        "msgRateOut": 120.0,
        "bandwidthIn": 100000.0,
        "bandwidthOut": 300000.0,
        "memory": 80.0,
        "dynamic": True,
    },
    {},
)
_QUOTAS = "/loadbalance/resource-quota"


def list_groups(txn: Txn) -> list[str]:
    """Return the names of the resource groups in order."""
    return list(iter_children(txn, GROUPS_PATH))


def read_group(txn: Txn, name: str) -> JsonObject:
    """Return a resource group; raises ResourceNotFound, MetadataCorrupt."""
    found = find_json(txn, group_path(name))
    if found is None:
        known = ", ".join(list_groups(txn))
        raise ResourceNotFound("ResourceGroup does not exist", hint=f"there are: {known}" if known else "", name=name)
    return found


def group_path(name: str) -> str:
    """Return the metadata path of a resource group."""
    return f"{GROUPS_PATH}/{name}"


def quota_path(bundle: Bundle | None) -> str:
    """Return the metadata path of the quota of a bundle; None: the default one."""
    return f"{_QUOTAS}/default" if bundle is None else f"{_QUOTAS}/{bundle}"


def read_quota(txn: Txn, bundle: Bundle | None) -> JsonObject:
    """Return the quota in force for a bundle: its own, else the default one, else the built-in one; raises MetadataCorrupt."""
    own = None if bundle is None else find_json(txn, quota_path(bundle))
    return own or find_json(txn, quota_path(None)) or {}
