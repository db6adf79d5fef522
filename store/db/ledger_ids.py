"""Which ledger ids the imported metadata has given, and which ledgers were shown to be deleted: rows of the database ``state``.

Row ``next-ledger-id``, the number as text: ids from there on were never given, so never deleted. It is read with the tree, in the same
pass, and replaced with it. Absent where the source has none, and in stores of before: then it is not known. Nor is it while
``unfinished-refresh`` is there, which a refresh writes before it takes in files that are newer than the tree, and removes with the tree
that it read.

Row ``ledger-ids-meanwhile``: the same number, read again after the files, where these have entries of such ids: ids up to there were
given while they were read. Absent otherwise.

Row ``deleted-ledgers``, a JSON list of ids: ledgers whose deletion, or that of the node that they say to be of, ZooKeeper's logs or a
change showed where an incident bundle was made. Only stores of bundles have it, as a bundle has neither.
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
    """What a metadata store yields after its nodes: its next ledger id."""

    value: int


def find_next_ledger_id(txn: Txn) -> int | None:
    """Return the metadata's next ledger id, None if it is unknown."""
    row = txn.get("state", _ROW)
    if row is None or not row.isdigit() or txn.get("state", UNFINISHED_REFRESH) is not None:
        return None
    return int(row)


def put_next_ledger_id(txn: Txn, next_id: int | None) -> None:
    """Store the metadata's next ledger id, None: unknown."""
    txn.set("state", _ROW, None if next_id is None else b"%d" % next_id)


def find_given_meanwhile(txn: Txn) -> range:
    """Return the ledger ids that the metadata gave after its tree was read, and before the files were: no node of theirs was read.

    Empty from 0 on if there are none, also where a tree that was read later is already beyond those noted.
    """
    first, row = find_next_ledger_id(txn), txn.get("state", _MEANWHILE)
    if first is None or row is None or not row.isdigit() or int(row) <= first:
        return range(0)
    return range(first, int(row))


def put_given_meanwhile(txn: Txn, next_id: int | None) -> None:
    """Store the next ledger id that the metadata had after the files were read; None: nothing is stored."""
    txn.set("state", _MEANWHILE, None if next_id is None else b"%d" % next_id)


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
