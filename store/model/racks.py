"""Bookies that there are, and the racks they were put into (upstream ``BookiesRackConfiguration``, 4.0.8)."""

from __future__ import annotations

from pulsar_admin.store.codec.java import hash_order
from pulsar_admin.store.codec.ledgermetadata import COOKIES
from pulsar_admin.store.codec.policies import JsonObject
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import iter_children
from pulsar_admin.store.errors import ResourceNotFound
from pulsar_admin.store.model.resources import Fields, find_json

RACKS_PATH = "/bookies"
BOOKIE = Fields({"rack": None, "hostname": None}, {})


def list_bookies(txn: Txn) -> list[str]:
    """Return the bookies that have a cookie, whether they run or not."""
    return hash_order(iter_children(txn, COOKIES))


def read_racks(txn: Txn) -> JsonObject:
    """Return the bookies of each group, groups in order; raises MetadataCorrupt."""
    return dict(sorted((find_json(txn, RACKS_PATH) or {}).items()))


def read_rack(txn: Txn, bookie: str) -> JsonObject:
    """Return rack and hostname of a bookie; raises ResourceNotFound, MetadataCorrupt."""
    for bookies in read_racks(txn).values():
        if bookie in bookies:
            found: JsonObject = bookies[bookie]
            return found
    raise ResourceNotFound(f"Bookie rack placement configuration not found: {bookie}", bookie=bookie)
