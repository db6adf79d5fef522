"""Ledgers whose entries lie in entry logs that their bookie's index no longer names.

Upstream: ``ScanAndCompareGarbageCollector`` takes a deleted ledger out of a bookie's index at once, and its bytes go with their
entry log, often much later (BookKeeper 4.17). Until its journals are replayed an index also lacks what was written last.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from store.codec.ledgermetadata import LedgerMetadata
from store.db.bookies import iter_imported_bookies
from store.db.storeinfo import StoreInfo
from store.errors import StoreError
from store.model.placement import ensemble_bookies

if TYPE_CHECKING:
    from store.recovery.known import Array

Indexed = Mapping[str, "Array"]
"""Bookie id → the ledgers that its index has, ascending."""


def read_indexed(info: StoreInfo) -> dict[str, Array]:
    """Return what the indexes of the imported bookies have; a bookie without one, or with one that cannot be read, is left out."""
    import numpy as np

    from store.recovery.disks import NONE, read_disks

    found = {}
    for bookie in iter_imported_bookies(info):
        with suppress(StoreError, OSError):
            disks = [disk for disk in read_disks(bookie) if disk.storage != NONE]
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
