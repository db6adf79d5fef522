"""Checks of copies: every entry is on as many bookies as its ledger's write quorum, as far as they were imported."""

from __future__ import annotations

from collections.abc import Iterator

from store.check.finding import Finding, data_problem, note, store_problem
from store.db.copies import check_copies_row, has_copies
from store.db.environment import Txn
from store.db.files import iter_logs
from store.errors import IndexCorrupt
from store.model.coverage import read_disks
from store.model.ledgers import Ledger
from store.model.open_end import read_confirmed, read_open_end, read_shortfalls
from store.wording import counted

_HINT = "see: pulsar-admin ledgers underreplicated"


class Copies:
    """The ledgers whose entries lack copies, and the bookies that nobody imported, as far as the catalogue knows bookies."""

    def __init__(self, txn: Txn) -> None:
        self._txn = txn
        self._is_known = False

    def begin(self) -> Iterator[Finding]:
        """Yield what is wrong with the rows of copies, or that they are not known: no ledger is looked at then."""
        try:
            disks = read_disks(self._txn)
        except IndexCorrupt:
            return  # the catalogue's check tells
        if disks.unknown is not None and not (disks.tells and not has_copies(self._txn)):
            yield note("copies-unknown", "bookies", *disks.unknown)
            return
        self._is_known = True  # of one bookie the index knows enough
        yield from _check_rows(self._txn)

    def check(self, ledger: Ledger) -> Iterator[Finding]:
        """Yield what is wrong with the copies of LEDGER's entries; raises what reading their rows raises."""
        if self._is_known:
            yield from _check_ledger(self._txn, ledger)

    def end(self) -> Iterator[Finding]:
        """Yield the bookies that ledgers need and nobody imported."""
        for bookie, ledgers in sorted(read_shortfalls(self._txn).absent.items()) if self._is_known else ():
            yield note(
                "bookie-not-imported",
                f"bookie {bookie}",
                f"{counted(ledgers, 'ledger has', 'ledgers have')} entries that it should hold; whether it does is not known",
                _HINT,
                bookie=bookie,
                ledgers=ledgers,
            )


def _check_rows(txn: Txn) -> Iterator[Finding]:
    if not has_copies(txn):
        return
    known = {log.file_id for log in iter_logs(txn)}
    for key, value in txn.items("copies"):
        try:
            file_id = check_copies_row(key, value)
        except IndexCorrupt as error:
            yield store_problem("copies-row-damaged", f"copies {key.hex()}", error.message)
            continue
        if file_id not in known:
            yield store_problem("copies-without-file", f"copies of file {file_id}", "no such file is catalogued")


def _check_ledger(txn: Txn, ledger: Ledger) -> Iterator[Finding]:
    where = f"ledger {ledger.ledger_id}"
    coverage = read_confirmed(txn, ledger) if ledger.ledger_id in read_shortfalls(txn).ledgers else None
    if coverage is not None and any(row.imported and (row.missing or row.damaged) for row in coverage.bookies):
        bookies = {row.bookie: row.missing + row.damaged for row in coverage.bookies if row.missing or row.damaged}
        text = coverage.text(ledger.entries)
        if coverage.short > coverage.outside and (any(row.missing for row in coverage.bookies) or coverage.lost):
            yield data_problem("copies-missing", where, text, _HINT, ledgerId=ledger.ledger_id, bookies=bookies)
        elif coverage.short > coverage.outside:
            yield note("copies-damaged", where, text, _HINT, ledgerId=ledger.ledger_id, bookies=bookies)
    end = read_open_end(txn, ledger)
    if end is not None and end.verdict == "damaged":
        yield data_problem(
            "recovery-fails",
            where,
            f"it was never closed, and no bookie has a good record of entry {end.last_entry_id + 1}: its recovery fails there",
            f"see: pulsar-admin ledgers info {ledger.ledger_id}",
            ledgerId=ledger.ledger_id,
        )
