"""Putting bookies into racks (upstream ``BookiesBase``, 4.0.8)."""

from __future__ import annotations

from store.changes.plan import Plan
from store.changes.resources import NodeChange, plan_node
from store.codec.policies import JsonObject
from store.db.environment import Txn
from store.errors import InvalidValue
from store.model.racks import BOOKIE, RACKS_PATH, read_rack, read_racks


def plan_set_rack(txn: Txn, bookie: str, group: str, place: JsonObject, now_ms: int) -> Plan:
    """Plan putting BOOKIE, of whatever group it was, into GROUP at PLACE, its rack and hostname; raises InvalidValue."""
    if not bookie:
        raise InvalidValue("--bookie: it is empty")
    rack = str(place["rack"]).strip()
    if rack in ("", "/"):
        raise InvalidValue("rack name is invalid, it should not be null, empty or '/'")
    if "/" in rack.strip("/"):
        raise InvalidValue(
            "Bookie 'rack' parameter is invalid, When `RackawareEnsemblePlacementPolicy` is enabled, the rack name is not"
            " allowed to contain slash (`/`) except for the beginning and end of the rack name string. When"
            " `RegionawareEnsemblePlacementPolicy` is enabled, the rack name can only contain one slash (`/`) except for the"
            " beginning and end of the rack name string."
        )
    after = _without(read_racks(txn), bookie)
    after[group] = {**after.get(group, {}), bookie: BOOKIE.replace(None, place)}
    return _plan(txn, "bookies set-bookie-rack", bookie, after, now_ms)


def plan_delete_rack(txn: Txn, bookie: str, now_ms: int) -> Plan:
    """Plan taking BOOKIE out of its rack; raises ResourceNotFound."""
    read_rack(txn, bookie)
    after = {group: bookies for group, bookies in _without(read_racks(txn), bookie).items() if bookies}
    return _plan(txn, "bookies delete-bookie-rack", bookie, after, now_ms)


def _without(racks: JsonObject, bookie: str) -> JsonObject:
    return {
        group: {name: place for name, place in bookies.items() if name != bookie} for group, bookies in racks.items()
    }


def _plan(txn: Txn, command: str, bookie: str, after: JsonObject, now_ms: int) -> Plan:
    return plan_node(txn, command, NodeChange(f"rack of bookie {bookie}", RACKS_PATH, after), now_ms)
