"""Ids for ledgers this toolkit writes: above every id in the source, never reused, and safe for the cluster.

A managed ledger's list is ordered by ledger id, so a ledger that we add must have a smaller id than every ledger the broker adds
later: a reserved range far up would put the broker's next ledger before ours. Ids therefore go on where the cluster's own
sequence stands (RocksDB key ``__metadata_sequentialId_key`` of a standalone, the next id to give), after a gap of
``RESERVED_GAP``: a cluster that goes on running may create that many sequential nodes before its ids meet ours.
``store export`` then has to raise the target's sequence to ``next_id`` (upstream ``RocksdbMetadataStore`` gives the stored value
next), and must refuse a target whose sequence has passed ``first_id``: ``sequence_after_export`` does both.

Row (database ``state``): key ``own-ledgers``, value JSON ``{"first": id, "next": id}``. It moves with the transaction that indexes
the new ledgers, not with the change: undoing a change leaves its ledgers' entries in the index, so their ids stay taken.

Row (database ``state``): key ``placed-ledgers``, value JSON ``{"<ledger id>": [bookie ids]}``: what ``store export bookie`` has put on
bookies, each of which has all entries. The ledger is there as long as its metadata names these bookies.
"""

import json
from itertools import takewhile

from msgspec import Struct

from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT, ledger_id_of_path
from pulsar_admin.store.codec.rocksvalue import COUNTER_KEYS
from pulsar_admin.store.db.blocks import ledger_of_key
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import iter_children
from pulsar_admin.store.errors import StalePlan

RESERVED_GAP = 1 << 16
SEQUENCE_KEY = COUNTER_KEYS[1]
_ROW = b"own-ledgers"
_DAMAGED = b"\x40"  # keys of ids below 0 come after all others
_PLACED_ROW = b"placed-ledgers"
# Directories of the hierarchical managers: ids below 2³¹ − 1 begin with two digits, longer ones with three.
_ID_DIRECTORIES = {*(f"{number:02d}" for number in range(22)), *(f"{number:03d}" for number in range(923))}


class OwnLedgers(Struct, frozen=True):
    """The range of ids that this toolkit has used for its ledgers: from ``first_id`` to ``next_id`` (excluded)."""

    first_id: int
    next_id: int


def find_own_ledgers(txn: Txn) -> OwnLedgers | None:
    """Return the ids given so far, None when this store never wrote a ledger; raises IndexCorrupt."""
    return txn.read_state(_ROW, "own ledger ids", lambda row: OwnLedgers(int(row["first"]), int(row["next"])))


def put_own_ledgers(txn: Txn, own: OwnLedgers) -> None:
    """Record that every id below ``own.next_id`` is taken."""
    txn.put("state", _ROW, json.dumps({"first": own.first_id, "next": own.next_id}).encode())


def find_placed(txn: Txn) -> dict[int, tuple[str, ...]]:
    """Return the bookies that each ledger was put on; raises IndexCorrupt."""
    what = "ledgers put on bookies"
    return (
        txn.read_state(_PLACED_ROW, what, lambda row: {int(key): tuple(map(str, ids)) for key, ids in row.items()})
        or {}
    )


def put_placed(txn: Txn, placed: dict[int, tuple[str, ...]]) -> None:
    """Record which bookies have each of these ledgers completely."""
    whole = {**find_placed(txn), **placed}
    txn.put("state", _PLACED_ROW, json.dumps({str(key): whole[key] for key in sorted(whole)}).encode())


def largest_ledger_id(txn: Txn) -> int:
    """Return the largest ledger id in metadata, references or entries; −1 without any.

    A damaged list of a topic may name an id below 0 or beyond 2⁶², which no cluster gave: it is ignored, and hides no other.
    """
    largest = -1
    for database in ("times", "owners"):
        last = txn.last(database)
        if last is not None and last[0] >= _DAMAGED:
            below = (txn.last(database, bytes([first])) for first in range(_DAMAGED[0] - 1, -1, -1))
            last = next(filter(None, below), None)
        largest = max(largest, -1 if last is None else ledger_of_key(last[0]))
    # Not as far as flat names, "L…", of which there may be millions.
    names = takewhile(lambda name: name < "L", iter_children(txn, LEDGERS_ROOT))
    for prefix in (*(f"{name}/" for name in names if name in _ID_DIRECTORIES), "L"):
        node = txn.last("tree", f"{LEDGERS_ROOT}/{prefix}".encode())
        ledger_id = None if node is None else ledger_id_of_path(node[0].decode("utf-8", "replace"))
        largest = max(largest, -1 if ledger_id is None else ledger_id)
    return largest


def sequence_after_export(own: OwnLedgers, target_sequence: int, where: str) -> int:
    """Return the sequence that a target must have once our ledgers are in it.

    Raises StalePlan if the target may have given one of those ids to a ledger of its own. A sequence that equals
    ``next_id`` was left by an earlier export.
    """
    if target_sequence > own.first_id and target_sequence != own.next_id:
        raise StalePlan(
            f"{where} has moved on: its next ledger id is {target_sequence}, this store wrote ledgers {own.first_id} "
            f"to {own.next_id - 1}",
            hint="import it into another directory (--store NEW) and make the changes there; keep this store, `store log` lists them",
            expected=own.first_id,
            found=target_sequence,
        )
    return max(target_sequence, own.next_id)
