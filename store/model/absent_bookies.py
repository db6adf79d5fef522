"""Bookies that the metadata names and none of whose disks was imported: what only they hold is not seen, or nobody serves it.

A bookie without a cookie in the metadata does not start (``LegacyCookieValidation``, BookKeeper 4.17): one that ledgers name and that
neither has a cookie nor is here is gone, for clients too. Where the metadata has no cookie at all it tells of none.

Row (database ``state``): ``bookies``, JSON {"imported": [ids], "absent": [ids], "unknown": [ids]}; there where they are known.
``unknown``: imported ones that metadata, which is there, names nowhere, neither in a cookie nor in an ensemble.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

from msgspec import Struct

from pulsar_admin.store.codec.ledgermetadata import COOKIES, decode_members, ledger_id_of_path
from pulsar_admin.store.db.backups import damaged_store
from pulsar_admin.store.db.bookies import iter_imported_bookies
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.tree import iter_children, iter_values
from pulsar_admin.store.errors import StoreError, reason_of
from pulsar_admin.store.names import shell_word
from pulsar_admin.store.wording import counted, listed, plural

_ROW = b"bookies"
_LEDGERS = "/ledgers/"


class AbsentBookies(Struct, frozen=True):
    """Ids of the bookies that are imported, and of those that are not but may run: their entries are not seen."""

    imported: tuple[str, ...]
    absent: tuple[str, ...]

    def counts(self) -> str:
        """Return how many bookies are imported, of how many."""
        return f"{len(self.imported)} of {counted(len(self.imported) + len(self.absent), 'bookie')} imported"

    def text(self) -> str:
        """Return what is not seen, as a sentence."""
        return f"{self.counts()}: entries that only {listed(self.absent, 5)} {plural(len(self.absent), 'has', 'have')} are not seen"

    def hint(self) -> str:
        """Return how they come in."""
        return bring_hint(self.absent[0])


def bring_hint(bookie_id: str) -> str:
    """Return how a bookie that is not imported comes in."""
    return f"bring its disks: pulsar-admin store add bookie {shell_word(bookie_id)}=DIR,DIR"


def find_absent_bookies(txn: Txn) -> AbsentBookies | None:
    """Return which bookies were absent at the last import, refresh or addition; None when none was, or nobody knows."""
    imported, absent, _ = _split(txn)
    return AbsentBookies(imported, absent) if absent else None


def find_gone_bookies(txn: Txn) -> frozenset[str]:
    """Return the bookies that ledgers named at the last import, refresh or addition, without a cookie and not imported."""
    return frozenset(_split(txn)[2])


def absent_in(txn: Txn, members: Iterable[str]) -> tuple[str, ...]:
    """Return those of MEMBERS that may run and are not imported, in their order, each once."""
    absent = _split(txn)[1]
    return tuple(bookie for bookie in dict.fromkeys(members) if bookie in absent)


def _split(txn: Txn) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return (imported, absent, gone)."""
    if _split not in txn.memo:
        kept = _kept(txn)
        imported, named, _ = ((), (), None) if kept is None else kept
        cookies = {*iter_children(txn, COOKIES)} if named else set()
        gone = tuple(bookie for bookie in named if cookies and bookie not in cookies)
        absent = tuple(bookie for bookie in named if bookie not in gone)
        txn.memo[_split] = (imported, absent, gone)
    found: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]] = txn.memo[_split]
    return found


def _kept(txn: Txn) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...] | None] | None:
    """Return (imported, absent, unknown) as the row says, None without one; raises IndexCorrupt."""
    row = txn.get("state", _ROW)
    if row is None:
        return None
    try:
        fields = json.loads(row)
        unknown = fields.get("unknown")
        return _ids(fields["imported"]), _ids(fields["absent"]), None if unknown is None else _ids(unknown)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged_store(txn.store.path, f"the row of bookies is damaged: {reason_of(error)}") from error


def _ids(found: object) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError("it has no list of ids")
    return tuple(found)


def find_unknown_bookies(txn: Txn) -> tuple[str, ...] | None:
    """Return the imported bookies that the metadata names nowhere; None where that is not known, as without metadata."""
    kept = _kept(txn)
    return None if kept is None else kept[2]


def knows_no_bookie(txn: Txn) -> bool:
    """Whether there are imported bookies and metadata, and that names none of them."""
    unknown = find_unknown_bookies(txn)
    return bool(unknown) and set(unknown or ()) == {*_split(txn)[0]}


def members_of(path: str, value: bytes) -> frozenset[str]:
    """Return the bookies in the ensembles of the ledger whose node at PATH has VALUE; none of one that cannot be read: `store check`
    names it."""
    try:
        return decode_members(value, path)
    except StoreError:
        return frozenset()


def index_absent_bookies(
    store: Store, txn: Txn, left_out: Collection[str] = (), members: Collection[str] | None = None
) -> None:
    """Find the absent bookies among those of the cookies and of every ledger's ensembles, and keep them in TXN.

    Where an imported bookie has no id nobody knows which one it is, and nothing is kept. LEFT_OUT: those of
    another cluster; MEMBERS: ``members_of`` all ledgers, None: the tree is read for that.
    """
    ids = [bookie.bookie_id for bookie in iter_imported_bookies(store.info)]
    imported = [bookie_id for bookie_id in ids if bookie_id not in left_out]
    if "" in imported:
        txn.delete("state", _ROW)
        txn.memo.pop(_split, None)
        return
    named = set(iter_children(txn, COOKIES))
    if members is None:
        for path, value in iter_values(txn, _LEDGERS):
            if ledger_id_of_path(path) is not None:
                named |= members_of(path, value)
    else:
        named.update(members)
    fields = {"imported": sorted(imported), "absent": sorted(named.difference(imported))}
    if any(source["kind"] != "bookie" for source in store.info.sources):
        fields["unknown"] = sorted(set(imported) - named)
    txn.put("state", _ROW, json.dumps(fields).encode())
    txn.memo.pop(_split, None)
