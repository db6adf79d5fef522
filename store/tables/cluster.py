"""The name of the cluster that a store comes from, which every row of a table has."""

from __future__ import annotations

from store.db.environment import Txn
from store.errors import InvalidValue, StoreError
from store.model.resources import current_cluster, list_clusters


def find_cluster_name(txn: Txn) -> str | None:
    """Return the cluster that the metadata name: the only one they list, or the one of ``pulsar/system``; None for neither."""
    listed = list_clusters(txn)
    try:
        return listed[0] if len(listed) == 1 else current_cluster(txn)
    except StoreError:  # of a namespace that is damaged: it says nothing
        return None


def cluster_name(txn: Txn, given: str | None) -> str:
    """Return GIVEN, or what the metadata name; raises InvalidValue when they name none, or several."""
    found = find_cluster_name(txn) if given is None else given
    if found:
        return found
    listed = ", ".join(list_clusters(txn))
    raise InvalidValue(
        f"the metadata name several clusters: {listed}" if listed else "the metadata name no cluster",
        hint="say which one this is, or how to call it: --cluster NAME",
    )
