"""Ledgers whose deletion, or that of the node that they say to be of, was shown where an incident bundle was made, by ZooKeeper's logs or
by a change: a bundle has neither.

Row (database ``state``): key ``deleted-ledgers``, value a JSON list of ledger ids. Only stores of bundles have it.
"""

from __future__ import annotations

import json
from collections.abc import Set

from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import IndexCorrupt

ROW = b"deleted-ledgers"


def find_deleted(txn: Txn) -> Set[int]:
    """Return the ids of the ledgers that the store's bundle says were deleted; raises IndexCorrupt for a row that is none."""
    row = txn.get("state", ROW)
    if row is None:
        return frozenset()
    try:
        found = json.loads(row)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(
        type(ledger_id) is int for ledger_id in found
    ):  # a string or a map has items, too
        raise IndexCorrupt(
            "the row of ledgers whose deletion a bundle shows is damaged",
            hint="have the bundle sent again, and import it",
        )
    return frozenset(found)
