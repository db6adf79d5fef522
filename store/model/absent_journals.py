"""Bookies that were imported without any journal: what was acknowledged and not yet in an entry log is in a journal only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from store.codec.ledgermetadata import LedgerState
from store.db.environment import Store, Txn
from store.db.files import iter_logs
from store.errors import StoreError
from store.model.ledgers import count_missing, iter_ledger_ids, read_ledger
from store.wording import counted


@dataclass(frozen=True, slots=True)
class AbsentJournals:
    """The ``current`` directories without a journal, and how many ledgers are open or lack entries."""

    bookies: tuple[str, ...]
    ledgers: int

    def text(self) -> str:
        """Return what may be missing, as a sentence."""
        return (
            f"no journal of {', '.join(self.bookies)}:"
            f" {counted(self.ledgers, 'ledger is open or lacks', 'ledgers are open or lack')} entries,"
            " and what was only in a journal is not here"
        )

    def hint(self) -> str:
        """Return how it comes in."""
        return "copy the bookie's journal files (*.txn) there, then run: pulsar-admin store refresh"


def find_absent_journals(store: Store, txn: Txn) -> AbsentJournals | None:
    """Return which bookies of STORE's sources have no journal; None when all have, or when nothing can have been there only.

    A ledger that is closed and has all its entries lacks nothing, whatever a journal says.
    """
    journals = {str(Path(log.origin).parent) for log in iter_logs(txn) if log.kind == "journal"}
    bookies = [bookie for source in store.info.sources for bookie in source.get("bookies", ())]
    absent = tuple(bookie for bookie in bookies if bookie not in journals)
    ledgers = sum(_may_lack_entries(txn, ledger_id) for ledger_id in iter_ledger_ids(txn)) if absent else 0
    return AbsentJournals(absent, ledgers) if ledgers else None


def _may_lack_entries(txn: Txn, ledger_id: int) -> bool:
    try:
        ledger = read_ledger(txn, ledger_id)
    except StoreError:
        return True  # nobody knows its end
    if ledger.metadata is None:
        return False  # deleted
    return ledger.metadata.state is not LedgerState.CLOSED or count_missing(txn, ledger) > 0
