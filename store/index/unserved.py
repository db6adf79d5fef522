"""Which entries lie only in journals that no start reads any more; rows: ``store.db.unserved``.

What is decided is what one bookie serves of its own files: another bookie may serve the same entry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from store.db.blocks import BLOCK_HEADER, FILES, Block, ledger_of_key
from store.db.copies import has_copies, iter_copies, iter_copy_keys
from store.db.environment import Store, Txn
from store.db.files import FileMode, LogFile, iter_logs
from store.db.unserved import Marks, put_journal_marks, put_unserved, read_journal_marks
from store.errors import IndexCorrupt, StoreError
from store.names import FileKind
from store.sources.journals import iter_entry_ids

if TYPE_CHECKING:
    from pyroaring import BitMap64

    Found = tuple[int, int, BitMap64]
    """Ledger id, file id, entries."""


def index_unserved(store: Store, txn: Txn, marks: Marks | None = None) -> None:
    """Find the entries that no start of their bookie serves, and keep them in TXN.

    MARKS: read before the files were listed, as a bookie that runs moves them on; None: those of the last time, where there were any.
    """
    marks = read_journal_marks(txn) if marks is None else marks
    if marks is None:
        return
    put_journal_marks(txn, marks)
    logs = {log.file_id: log for log in iter_logs(txn) if log.mode is not FileMode.OWN}
    starts = {log.file_id: _start(log, marks) for log in logs.values() if log.kind == FileKind.JOURNAL}
    doubted = frozenset(file_id for file_id, start in starts.items() if start != 0)
    found = list(_of_copies(txn, logs, starts, doubted) if has_copies(txn) else _of_blocks(txn, starts, doubted))
    by_disk: dict[str, list[Found]] = {}
    for row in found:
        by_disk.setdefault(logs[row[1]].disk, []).append(row)
    kept: list[Found] = []
    for disk, rows in by_disk.items():
        journals = [(log, starts[log.file_id]) for log in logs.values() if log.disk == disk and log.file_id in starts]
        with suppress(OSError, StoreError):  # a journal that is gone by now: what a start reads of it is not known
            kept += _without_replayed(store, rows, journals)
    put_unserved(txn, kept)


def _start(log: LogFile, marks: Marks) -> int | None:
    """Return from which offset on a start reads a journal: 0 for all of it, None for nothing. Where no mark is known, it reads all."""
    journal_id, offset = marks.get(str(Path(log.origin).parent), (0, 0))
    return (offset if log.log_id == journal_id else 0) if log.log_id >= journal_id else None


def _of_copies(
    txn: Txn, logs: Mapping[int, LogFile], starts: Mapping[int, int | None], doubted: Collection[int]
) -> Iterator[Found]:
    """Yield what journals of which a start reads nothing, or a part, have beside the other files of their bookie."""
    if not doubted:
        return
    for ledger_id in dict.fromkeys(ledger_id for ledger_id, file_id in iter_copy_keys(txn) if file_id in doubted):
        rows = [(file_id, entries) for file_id, entries in iter_copies(txn, ledger_id) if file_id in logs]
        for file_id, entries in rows:
            if file_id in doubted:
                for other, served in rows:
                    if starts.get(other, 0) == 0 and logs[other].disk == logs[file_id].disk:
                        entries = entries - served
                if entries:
                    yield ledger_id, file_id, entries


def _of_blocks(txn: Txn, starts: Mapping[int, int | None], doubted: Collection[int]) -> Iterator[Found]:
    """Yield the same of a store of one bookie: the index names a journal where no entry log has an entry."""
    if not doubted:
        return
    found: dict[tuple[int, int], list[int]] = {}
    for key, value in txn.items("entries"):
        if len(value) < BLOCK_HEADER.size:
            continue
        _, flags, file_id, *_ = BLOCK_HEADER.unpack_from(value)
        if not flags & FILES and file_id not in doubted:
            continue
        try:
            block = Block(key, value)
        except IndexCorrupt:
            continue  # `store check` names it
        for index in range(len(block)):
            file_id, offset, _ = block.place(index)
            start = starts.get(file_id, 0)
            if start is None or offset < start:
                found.setdefault((ledger_of_key(key), file_id), []).append(block.entry_id(index))
    from pyroaring import BitMap64

    for (ledger_id, file_id), entries in found.items():
        yield ledger_id, file_id, BitMap64(entries)


def _without_replayed(
    store: Store, found: Collection[Found], journals: Collection[tuple[LogFile, int | None]]
) -> list[Found]:
    """Return FOUND without what a start reads of the JOURNALS of their bookie, each with the offset from which on; raises OSError."""
    from pyroaring import BitMap64

    replayed: dict[int, BitMap64] = {ledger_id: BitMap64() for ledger_id, _, _ in found}
    for log, start in journals:
        if start is not None:
            for ledger_id, entry_id in iter_entry_ids(log.locate(store.path), start):
                if ledger_id in replayed:
                    replayed[ledger_id].add(entry_id)
    left = ((ledger_id, file_id, entries - replayed[ledger_id]) for ledger_id, file_id, entries in found)
    return [row for row in left if row[2]]
