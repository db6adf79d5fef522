"""Checks of copies: every entry is on as many bookies as its ledger's write quorum, as far as they were imported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from store.check.finding import Finding, data_problem, note, store_problem
from store.db.copies import check_copies_row, has_copies
from store.db.environment import Txn
from store.db.files import iter_logs
from store.errors import IndexCorrupt, StoreError
from store.model.coverage import read_disks
from store.model.ledgers import Ledger, iter_ledger_ids, read_ledger
from store.model.open_end import read_confirmed, read_open_end
from store.wording import counted

_HINT = "see: pulsar-admin ledgers underreplicated"


def check_copies(txn: Txn) -> Iterator[Finding]:
    """Yield the ledgers whose entries lack copies, and the bookies that nobody imported."""
    try:
        disks = read_disks(txn)
    except IndexCorrupt:
        return  # the catalogue's check tells
    if disks.unknown is not None and not (disks.tells and not has_copies(txn)):  # of one bookie the index knows enough
        yield note("copies-unknown", "bookies", *disks.unknown)
        return
    yield from _check_rows(txn)
    absent: Counter[str] = Counter()
    for ledger_id in iter_ledger_ids(txn):
        try:
            yield from _check_ledger(txn, read_ledger(txn, ledger_id), absent)
        except StoreError:
            continue  # it is told of elsewhere: nodes, index, rows of copies
    for bookie, ledgers in sorted(absent.items()):
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


def _check_ledger(txn: Txn, ledger: Ledger, absent: Counter[str]) -> Iterator[Finding]:
    coverage, where = read_confirmed(txn, ledger), f"ledger {ledger.ledger_id}"
    if coverage is None:
        return
    absent.update(row.bookie for row in coverage.bookies if row.expected and not row.imported)
    if coverage.short:
        bookies = {row.bookie: row.missing + row.damaged for row in coverage.bookies if row.missing or row.damaged}
        text = coverage.text(ledger.entries)
        if any(row.missing for row in coverage.bookies) or coverage.lost:
            yield data_problem("copies-missing", where, text, _HINT, ledgerId=ledger.ledger_id, bookies=bookies)
        else:
            yield note("copies-damaged", where, text, _HINT, ledgerId=ledger.ledger_id, bookies=bookies)
    end = read_open_end(txn, ledger)
    if end is not None and end.verdict == "damaged":
        yield data_problem(
            "recovery-fails",
            where,
            f"nobody closed it, and no bookie has a good record of entry {end.last_entry_id + 1}: a recovery fails there",
            "see: pulsar-admin ledgers info",
            ledgerId=ledger.ledger_id,
        )
