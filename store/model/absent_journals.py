"""Bookies that were imported without any journal: what was acknowledged and not yet in an entry log is in a journal only."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from pulsar_admin.store.codec.ledgermetadata import LedgerState
from pulsar_admin.store.db.bookies import Bookie, iter_imported_bookies
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.ledgers import count_missing, iter_ledger_ids, read_ledger
from pulsar_admin.store.names import FileKind, shell_word
from pulsar_admin.store.wording import counted


class AbsentJournals(Struct, frozen=True):
    """The directories where journals of bookies that have none would be, and how many ledgers are open or lack entries."""

    bookies: tuple[str, ...]
    ledgers: int

    def text(self) -> str:
        """Return what may be missing, as a sentence."""
        return (
            f"no journal of {', '.join(self.bookies)}:"
            f" {counted(self.ledgers, 'ledger is open or lacks', 'ledgers are open or lack')} entries,"
            " and entries that only a journal had are missing"
        )

    def hint(self) -> str:
        """Return how it comes in."""
        bookie = next((name for name in self.bookies if "/" not in name), "")
        if bookie:
            return f"bring its journal directory: pulsar-admin store add bookie {shell_word(bookie)}=DIR"
        return "copy the bookie's journal files (*.txn) there, then run: pulsar-admin store refresh"


def find_absent_journals(store: Store, txn: Txn) -> AbsentJournals | None:
    """Return which bookies of STORE's sources have no journal; None when all have, or when nothing can have been there only.

    A ledger that is closed and has all its entries lacks nothing, whatever a journal says.
    """
    logs = list(iter_logs(txn))
    journals, disks = {log.disk for log in logs if log.kind == FileKind.JOURNAL}, {log.disk for log in logs}
    # One of which no file is catalogued was left out as another cluster's.
    bookies = (b for b in iter_imported_bookies(store.info, whole=True) if not disks.isdisjoint(_disks(b)))
    absent = tuple(_place(bookie) for bookie in bookies if journals.isdisjoint(_disks(bookie)))
    ledgers = sum(_may_lack_entries(txn, ledger_id) for ledger_id in iter_ledger_ids(txn)) if absent else 0
    return AbsentJournals(absent, ledgers) if ledgers else None


def _disks(bookie: Bookie) -> Iterator[str]:
    """Yield what ``LogFile.disk`` is of the bookie's files."""
    yield bookie.bookie_id
    yield from map(str, bookie.directories)


def _place(bookie: Bookie) -> str:
    """Return where its journals would be."""
    return ", ".join(map(str, bookie.journal_dirs)) or bookie.name


def _may_lack_entries(txn: Txn, ledger_id: int) -> bool:
    try:
        ledger = read_ledger(txn, ledger_id)
    except StoreError:
        return True  # nobody knows its end
    if ledger.metadata is None:
        return False  # deleted
    return ledger.metadata.state is not LedgerState.CLOSED or count_missing(txn, ledger) > 0
