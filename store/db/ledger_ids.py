"""Which ledger ids the imported metadata has given, and which ledgers were shown to be deleted: rows of the database ``state``.

Row ``next-ledger-id``, the number as text: this id and higher ones were never allocated, so their ledgers were never
deleted. It is read in the same pass as the tree, and replaced with it. If it is absent (the source has none, or an
older version made the store), the next id is unknown; also while the row ``unfinished-refresh`` exists, which a refresh
writes before it adds files newer than the tree, and removes when it replaces the tree.

Row ``ledger-ids-meanwhile``: the next ledger id as read again after the files, if files have entries of ids from
``next-ledger-id`` on: ids between the two were allocated while files were read. Absent otherwise.

Row ``deleted-ledgers``, a JSON list of ids: ledgers that were deleted, or whose owner's node was, by ZooKeeper's logs
or the audit log of the store from which an incident bundle was made. Only stores of bundles have it, as a bundle has
neither log.
"""

import json
from collections.abc import Set

from msgspec import Struct

from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import IndexCorrupt

UNFINISHED_REFRESH = b"unfinished-refresh"
DELETED = b"deleted-ledgers"
_ROW = b"next-ledger-id"
_MEANWHILE = b"ledger-ids-meanwhile"


class NextLedgerId(Struct, frozen=True):
    """The next ledger id of a metadata store, which reading it yields after the nodes."""

    value: int


def find_next_ledger_id(txn: Txn) -> int | None:
    """Return the metadata's next ledger id, None if it is unknown."""
    row = txn.get("state", _ROW)
    if row is None or not row.isdigit() or txn.get("state", UNFINISHED_REFRESH) is not None:
        return None
    return int(row)


def put_next_ledger_id(txn: Txn, next_id: int | None) -> None:
    """Store the metadata's next ledger id, None: unknown."""
    txn.put_or_delete("state", _ROW, None if next_id is None else b"%d" % next_id)


def find_given_meanwhile(txn: Txn) -> range:
    """Return the ledger ids allocated after the tree and before the files were read, so that the tree lacks their
    nodes.

    ``range(0)`` if there are none, or if a tree read since then includes them.
    """
    first, row = find_next_ledger_id(txn), txn.get("state", _MEANWHILE)
    if first is None or row is None or not row.isdigit() or int(row) <= first:
        return range(0)
    return range(first, int(row))


def put_given_meanwhile(txn: Txn, next_id: int | None) -> None:
    """Store the next ledger id that the metadata had after the files were read; None: nothing is stored."""
    txn.put_or_delete("state", _MEANWHILE, None if next_id is None else b"%d" % next_id)


def find_deleted(txn: Txn) -> Set[int]:
    """Return the ids of the ledgers that the store's bundle says were deleted; raises IndexCorrupt for a damaged row."""
    row = txn.get("state", DELETED)
    if row is None:
        return frozenset()
    try:
        ids = json.loads(row)
    except (ValueError, RecursionError):
        ids = None
    if not isinstance(ids, list) or not all(
        type(ledger_id) is int for ledger_id in ids
    ):  # a string or a map also has items
        raise IndexCorrupt(
            "the row of ledgers whose deletion a bundle shows is damaged",
            hint="have the bundle sent again, and import it",
        )
    return frozenset(ids)
