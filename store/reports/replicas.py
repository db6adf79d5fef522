"""Ledgers with entries on fewer bookies than their write quorum, the worst first."""

from __future__ import annotations

from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.owners import Owner, find_owners
from pulsar_admin.store.errors import LedgerNotFound, StoreError
from pulsar_admin.store.model.coverage import BookieCopies, read_confirmed
from pulsar_admin.store.model.ledgers import iter_ledger_ids, read_ledger
from pulsar_admin.store.wording import Answer


class UnderReplicated(Answer, frozen=True):
    """A ledger with entries on too few bookies; what ``short``, ``lowest``, ``lost`` and ``unknown`` are: ``Coverage``.

    ``bookies``: those that lack, or may lack, entries.
    """

    ledger_id: int
    entries: int
    write_quorum: int
    short: int
    lowest: int
    lost: int
    unknown: int
    bookies: tuple[BookieCopies, ...]
    owners: tuple[Owner, ...]


def find_underreplicated(txn: Txn) -> list[UnderReplicated]:
    """Return the ledgers with entries on too few bookies, or perhaps: those that are lost first, then by how few copies there are."""
    found = (find_shortfall(txn, ledger_id) for ledger_id in iter_ledger_ids(txn))
    return sorted((row for row in found if row is not None), key=_rank)


def _rank(row: UnderReplicated) -> tuple[int, int, int, int, int]:
    return -row.lost, row.lowest if row.short else row.write_quorum, -row.short, -row.unknown, row.ledger_id


def find_shortfall(txn: Txn, ledger_id: int) -> UnderReplicated | None:
    """Return the ledger when entries of it are on too few bookies, or perhaps; None when all are on enough or nobody knows."""
    try:
        ledger = read_ledger(txn, ledger_id)
        coverage = read_confirmed(txn, ledger)
    except (LedgerNotFound, StoreError):
        return None  # `ledgers missing` and `store check` name it
    if ledger.metadata is None or coverage is None or not (coverage.short or coverage.unknown):
        return None
    return UnderReplicated(
        ledger_id,
        ledger.entries,
        ledger.metadata.write_quorum,
        coverage.short,
        coverage.lowest,
        coverage.lost,
        coverage.unknown,
        tuple(row for row in coverage.bookies if row.lacks),
        find_owners(txn, ledger_id),
    )
