"""Ledgers whose entries still lie in entry logs, and that their bookie's index has forgotten: it collected them as garbage.

Upstream: ``ScanAndCompareGarbageCollector`` deletes the rows of the index at once, an entry log when nothing in it is live
(BookKeeper 4.17). What a journal has besides comes back by itself: a bookie replays it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from store.db.bookies import Bookie, iter_imported_bookies
from store.db.copies import has_copies, iter_copies
from store.db.environment import Txn
from store.db.files import iter_logs
from store.errors import StoreError
from store.model.ledgers import iter_blocks
from store.names import FileKind


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
    from store.recovery.disks import NONE, read_disks  # numpy

    try:
        disks = [disk for bookie in bookies for disk in read_disks(bookie)]
    except StoreError:
        return None
    if any(disk.storage == NONE or disk.problems for disk in disks):
        return None
    return {ledger_id for disk in disks for ledger_id in disk.ledgers.tolist()}


def _files(txn: Txn, ledger_id: int) -> Iterator[int]:
    if has_copies(txn):
        yield from (file_id for file_id, _ in iter_copies(txn, ledger_id))
        return
    for block in iter_blocks(txn, ledger_id):
        column = block.files()
        yield from (column,) if isinstance(column, int) else column
