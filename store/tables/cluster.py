"""The name of the cluster that a store comes from, which every row of a table has."""

from __future__ import annotations

from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import InvalidValue, StoreError
from pulsar_admin.store.model.resources import cluster_path, current_cluster, list_clusters


def find_cluster_name(txn: Txn) -> str | None:
    """Return the cluster that the metadata name: the only one they list, or the one of ``pulsar/system``; None for neither."""
    listed = list_clusters(txn)
    try:
        return listed[0] if len(listed) == 1 else current_cluster(txn)
    except StoreError:  # of a namespace that is damaged: it says nothing
        return None


def cluster_name(txn: Txn, given: str | None) -> str:
    """Return GIVEN, or what the metadata name; raises InvalidValue when they name none, or several, and for what is no name."""
    if given is not None and (not given or any(0xD800 <= ord(sign) <= 0xDFFF for sign in given)):
        raise InvalidValue(f"{given!r} is no name of a cluster", hint="name it in Unicode: --cluster NAME")
    found = find_cluster_name(txn) if given is None else given
    if found:
        return found
    listed = ", ".join(list_clusters(txn))
    raise InvalidValue(
        f"the metadata name several clusters: {listed}" if listed else "the metadata name no cluster",
        hint="say which one this is, or how to call it: --cluster NAME",
    )


def cluster_identity(txn: Txn) -> str:
    """Return what tells the cluster from another of the same name, in a new copy of its metadata, too.

    That is BookKeeper's instance id; without one, when the cluster's node was made; without any, when the store was.
    """
    instance = find_node(txn, f"{LEDGERS_ROOT}/INSTANCEID")
    if instance is not None and instance.value:
        return f"instance {instance.value.decode(errors='replace')}"
    made = [(node.stat.created_ms, name) for name in list_clusters(txn) if (node := find_node(txn, cluster_path(name)))]
    if made:
        created_ms, name = min(made)
        return f"cluster {name} made at {created_ms}"
    return f"store made at {txn.store.info.created_ms}"
