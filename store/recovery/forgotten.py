"""Ledgers whose entries lie in entry logs that their bookie's index no longer names.

Upstream: ``ScanAndCompareGarbageCollector`` takes a deleted ledger out of a bookie's index at once, and its bytes go with their
entry log, often much later (BookKeeper 4.17). Until its journals are replayed an index also lacks what was written last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata
from pulsar_admin.store.db.bookies import Bookie, iter_imported_bookies
from pulsar_admin.store.db.copies import has_copies, iter_copies
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.db.storeinfo import StoreInfo
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.ledgers import iter_blocks
from pulsar_admin.store.model.placement import ensemble_bookies
from pulsar_admin.store.names import FileKind

if TYPE_CHECKING:
    from pulsar_admin.store.aliases import Array

Indexed = Mapping[str, "Array"]
"""Bookie id → the ledgers that its index has, ascending."""


def read_indexed(info: StoreInfo) -> dict[str, Array]:
    """Return what the indexes of the imported bookies have; a bookie without one, or with one that cannot be read, is left out."""
    import numpy as np

    from pulsar_admin.store.recovery.disks import IndexKind, read_disks

    found = {}
    for bookie in iter_imported_bookies(info):
        with suppress(StoreError, OSError):
            disks = [disk for disk in read_disks(bookie) if disk.storage is not IndexKind.NONE]
            if disks:
                found[bookie.bookie_id] = np.unique(np.concatenate([disk.ledgers for disk in disks]))
    return found


def find_forgetful(indexed: Indexed, ledger_id: int, metadata: LedgerMetadata) -> list[str]:
    """Return the bookies of a ledger's ensembles whose index does not have it."""
    return [
        bookie for bookie in ensemble_bookies(metadata) if bookie in indexed and not _has(indexed[bookie], ledger_id)
    ]


def _has(ledgers: Array, ledger_id: int) -> bool:
    place = int(ledgers.searchsorted(ledger_id))
    return place < len(ledgers) and int(ledgers[place]) == ledger_id


def find_collected(txn: Txn, ledger_ids: Iterable[int]) -> list[int]:
    """Return those of LEDGER_IDS that no bookie's index has, though entry logs do; none where an index cannot be read."""
    bookies = list(iter_imported_bookies(txn.store.info))
    if not bookies or not all(path.is_dir() for bookie in bookies for path in bookie.directories):
        return []  # the disks are not at hand any more
    indexed = _indexed(bookies)
    if indexed is None:
        return []
    journals = {log.file_id for log in iter_logs(txn) if log.kind == FileKind.JOURNAL}
    left = (one for one in sorted(set(ledger_ids)) if one not in indexed)
    return [one for one in left if (files := set(_files(txn, one))) and files.isdisjoint(journals)]


def _indexed(bookies: Iterable[Bookie]) -> set[int] | None:
    """Return the ledgers that any of BOOKIES has in its index; None where one of them cannot be read, or is not there."""
    from pulsar_admin.store.recovery.disks import IndexKind, read_disks  # numpy

    try:
        disks = [disk for bookie in bookies for disk in read_disks(bookie)]
    except StoreError:
        return None
    if any(disk.storage is IndexKind.NONE or disk.problems for disk in disks):
        return None
    return {ledger_id for disk in disks for ledger_id in disk.ledgers.tolist()}


def _files(txn: Txn, ledger_id: int) -> Iterator[int]:
    if has_copies(txn):
        yield from (file_id for file_id, _ in iter_copies(txn, ledger_id))
        return
    for block in iter_blocks(txn, ledger_id):
        column = block.files()
        yield from (column,) if isinstance(column, int) else column
