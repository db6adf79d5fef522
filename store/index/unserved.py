"""Finds entries in files that no start of the bookie serves: in journals before its mark, or in logs without an
index row; rows: ``store.db.unserved``.

This is about the entries that one bookie serves from its own files: another bookie may serve the same entry.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT, ledger_id_of_path, ledger_path
from pulsar_admin.store.db import unserved
from pulsar_admin.store.db.blocks import BLOCK_HEADER, FILES, Block, ledger_key, ledger_of_key
from pulsar_admin.store.db.bookies import Bookie, iter_imported_bookies, iter_present_bookies
from pulsar_admin.store.db.copies import has_copies, iter_copies, iter_copy_keys
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.files import FileMode, LogFile, iter_damage, iter_logs
from pulsar_admin.store.db.tree import has_row, iter_paths
from pulsar_admin.store.errors import IndexCorrupt, StoreError
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.sources.index_places import (
    index_state,
    read_known_ledgers,
    read_located,
    read_misled,
    scanned_logs,
)
from pulsar_admin.store.sources.journals import find_replay_end, iter_entry_ids, iter_replayed_ledgers

if TYPE_CHECKING:
    from pyroaring import BitMap64

    Found = tuple[int, int, BitMap64]
    """Ledger id, file id, entries."""
    Located = Mapping[str, Mapping[int, BitMap64]]
    """Disk → ledger id → entries that the index leads to; ledgers that neither it nor the metadata has are left out."""


def index_unserved(store: Store, txn: Txn, marks: unserved.Marks | None = None, *, verify: bool = False) -> None:
    """Find the entries that no start of their bookie serves, and record them in the store.

    ``verify``: also check every place that an index points to; a bookie with a wrong place is checked again on every
    later call until all are right. ``marks``: read before the files were listed, as a running bookie moves them; None:
    those of the last call, if any.
    """
    marks = unserved.read_journal_marks(txn) if marks is None else marks
    if marks is None:
        return
    unserved.put_journal_marks(txn, marks)
    unserved.put_index_states(txn, _index_states(store))
    logs = {log.file_id: log for log in iter_logs(txn) if log.mode is not FileMode.OWN}
    starts = {log.file_id: _start(log, marks) for log in logs.values() if log.kind == FileKind.JOURNAL}
    ends = {file_id: end for file_id, start in starts.items() if (end := _replay_end(store, logs[file_id], start)) >= 0}
    doubted = frozenset(file_id for file_id, start in starts.items() if start != 0) | ends.keys()
    located, unread, unknown = _located(store, txn, logs.values(), verify=verify)
    if has_copies(txn):
        found = list(_of_copies(txn, logs, starts, doubted, located, unknown))
    else:
        found = [*_of_blocks(txn, starts, ends, doubted), *_off_index(txn, logs, located)]
    by_disk: dict[str, list[Found]] = {}
    for row in found:
        by_disk.setdefault(logs[row[1]].disk, []).append(row)
    left: list[Found] = []
    for disk, rows in by_disk.items():
        journals = [(log, starts[log.file_id]) for log in logs.values() if log.disk == disk and log.file_id in starts]
        left += (row for row in rows if row[0] in unknown.get(disk, ()))
        rows = [row for row in rows if row[0] not in unknown.get(disk, ())]
        with suppress(OSError, StoreError):  # the journal is gone by now: unknown how far a start reads it
            left += _without_replayed(store, rows, journals)
    unserved.put_rows(txn, unserved.UNSERVED, left, kept=unread)


def has_moved(store: Store, txn: Txn, marks: unserved.Marks) -> bool:
    """Whether the marks, or the bookies' indexes, have changed since the last ``index_unserved``."""
    return unserved.read_journal_marks(txn) != marks or unserved.read_index_states(txn) != _index_states(store)


def _index_states(store: Store) -> dict[str, str]:
    states = {}
    for bookie in iter_imported_bookies(store.info):
        with suppress(OSError):  # not at hand
            states[bookie.name] = index_state(bookie)
    return states


def _located(
    store: Store, txn: Txn, logs: Collection[LogFile], *, verify: bool
) -> tuple[Located, set[int], dict[str, set[int]]]:
    """Return disk → ledger → entries to which the index of the disk's bookie points, for each disk whose index was read; the entry
    logs whose rows of an earlier call stay, as their bookie's index cannot be read any more; and disk → ledgers that the bookie
    does not know, so that it serves nothing of them and replays nothing.

    A ledger without metadata counts where the index has it: a recovery may make its metadata.
    Without a journal it is unknown what a start replays. Indexes are read after the files: a running bookie's index
    has every record that was read, or a start would replay it.
    """
    journals = {log.disk for log in logs if log.kind == FileKind.JOURNAL}
    records: dict[str, int] = {}
    for log in logs:
        if log.kind == FileKind.ENTRY_LOG and log.disk in journals:
            records[log.disk] = records.get(log.disk, 0) + log.records
    located_rows = {}
    broken = {log.disk for log in logs if log.kind == FileKind.ENTRY_LOG and log.problems}
    scanned = scanned_logs(logs, iter_damage(txn) if broken else ())
    on_disk: dict[str, list[int]] = {}
    for log in logs:
        if log.kind == FileKind.ENTRY_LOG:
            on_disk.setdefault(log.disk, []).append(log.file_id)
    held = _held_ledgers(
        txn, {file_id: disk for disk, files in on_disk.items() if disk in journals for file_id in files}
    )
    failed: list[Found] = []
    doubted, misled, unread = unserved.read_misled_bookies(txn), set[str](), set[int]()
    unknown: dict[str, set[int]] = {}
    with_rows = unserved.files_with_rows(txn, unserved.UNSERVED) | unserved.files_with_rows(txn, unserved.FAILING)
    for bookie in iter_present_bookies(txn, whole=True):
        if records.get(bookie.bookie_id):
            ids = (ledger_id_of_path(path) for path in iter_paths(txn, f"{LEDGERS_ROOT}/"))
            is_doubted = verify or bookie.bookie_id in doubted
            is_known_wrong = not with_rows.isdisjoint(on_disk[bookie.bookie_id])
            count = -1 if is_doubted or is_known_wrong or bookie.bookie_id in broken else records[bookie.bookie_id]
            failing: dict[int, BitMap64] = {}
            with suppress(OSError, StoreError):  # not at hand, or damaged: nobody knows
                rows = read_located(bookie, (one for one in ids if one is not None), count, scanned, failing)
                if rows is not None:
                    located_rows[bookie.bookie_id] = rows
                    failed += ((one, on_disk[bookie.bookie_id][0], entries) for one, entries in failing.items())
                    for ledger_id, entries in (read_misled(bookie, rows, scanned) if is_doubted else {}).items():
                        misled.add(bookie.bookie_id)
                        rows[ledger_id] -= entries
            if bookie.bookie_id not in located_rows:
                unread.update(on_disk[bookie.bookie_id])
                misled |= doubted & {bookie.bookie_id}
            if lost := _ledgers_without_rows(txn, bookie, held[bookie.bookie_id]):
                located_rows[bookie.bookie_id] = {**located_rows.get(bookie.bookie_id, {}), **lost}
                unknown[bookie.bookie_id] = {*lost}
    unserved.put_misled_bookies(txn, misled)
    unserved.put_rows(txn, unserved.FAILING, failed, kept=unread)
    return located_rows, unread, unknown


def _held_ledgers(txn: Txn, disks: Mapping[int, str]) -> dict[str, Array]:
    """Return disk → ledgers with entries in its entry logs; ``disks``: entry log → disk. In a store of one bookie also
    those with entries in its journals alone."""
    import numpy as np

    held = {disk: array("q") for disk in disks.values()}
    if has_copies(txn):
        for ledger_id, file_id in iter_copy_keys(txn):
            if file_id in disks:
                held[disks[file_id]].append(ledger_id)
    else:
        for key in txn.keys("times", b""):
            with suppress(IndexCorrupt):  # `store check` names it
                for ledgers in held.values():
                    ledgers.append(ledger_of_key(key))
    return {disk: np.unique(np.array(ledgers, np.int64)) for disk, ledgers in held.items()}


def _ledgers_without_rows(txn: Txn, bookie: Bookie, held: Array) -> dict[int, BitMap64]:
    """Return ledger → no entries for those ``held`` ledgers that the metadata has, and that have lost their row in
    `ledgers`: the bookie answers that it has no such ledger, even if `locations` has the entries (upstream
    ``HandleFactoryImpl.getReadOnlyHandle``)."""
    import numpy as np

    with suppress(OSError, StoreError):  # not at hand, or damaged: nobody knows
        known = read_known_ledgers(bookie)
        lost = [] if known is None else np.setdiff1d(held, known).tolist()
        if lost := [one for one in lost if has_row(txn, ledger_path(one))]:
            from pyroaring import BitMap64

            return {one: BitMap64() for one in {*lost}.difference(iter_replayed_ledgers(bookie, []))}
    return {}


def _start(log: LogFile, marks: unserved.Marks) -> int | None:
    """Return the offset from which a start reads a journal: 0 for all of it, None for nothing. Without a known mark, it reads all."""
    journal_id, offset = marks.get(str(Path(log.origin).parent), (0, 0))
    return (offset if log.log_id == journal_id else 0) if log.log_id >= journal_id else None


def _replay_end(store: Store, log: LogFile, start: int | None) -> int:
    """Return where a start's replay of a damaged journal ends, which may be before readable records; −1 if nothing is damaged or known."""
    if start is None or not log.problems:
        return -1
    with suppress(OSError, StoreError):
        return find_replay_end(log.locate(store.path), start)
    return -1


def _of_copies(
    txn: Txn,
    logs: Mapping[int, LogFile],
    starts: Mapping[int, int | None],
    doubted: Collection[int],
    located: Located,
    unknown: Mapping[str, Collection[int]],
) -> Iterator[Found]:
    """Yield, with several bookies, the unserved entries of journals that a start skips in part, and of entry logs."""
    if not doubted and not located:
        return
    suspects = {file_id for file_id, log in logs.items() if log.kind == FileKind.ENTRY_LOG and log.disk in located}
    suspects |= {*doubted}
    for ledger_id in dict.fromkeys(ledger_id for ledger_id, file_id in iter_copy_keys(txn) if file_id in suspects):
        rows = [(file_id, entries) for file_id, entries in iter_copies(txn, ledger_id) if file_id in logs]
        for file_id, entries in rows:
            indexed = located.get(logs[file_id].disk, {}).get(ledger_id)
            if file_id in doubted or (file_id in suspects and indexed is not None):
                for other, served in () if ledger_id in unknown.get(logs[file_id].disk, ()) else rows:
                    if other not in doubted and logs[other].disk == logs[file_id].disk:
                        is_led_to = indexed is None or logs[other].kind != FileKind.ENTRY_LOG
                        entries = entries - (served if indexed is None or is_led_to else served & indexed)
                if entries:
                    yield ledger_id, file_id, entries


def _off_index(txn: Txn, logs: Mapping[int, LogFile], located: Located) -> Iterator[Found]:
    """Yield the entries in entry logs of a store of one bookie to which the bookie's index does not point."""
    if not located:
        return
    from pulsar_admin.store.index.held_entries import HeldEntries, hold  # brings pyroaring, for few stores

    for rows in located.values():
        for ledger_id, indexed in rows.items():
            held = HeldEntries()
            for key, value in txn.items("entries", ledger_key(ledger_id)):
                with suppress(IndexCorrupt):  # `store check` names it
                    hold(held, Block(key, value))
            for _, file_id, entries in held:
                if file_id in logs and logs[file_id].kind == FileKind.ENTRY_LOG and (left := entries - indexed):
                    yield ledger_id, file_id, left


def _of_blocks(
    txn: Txn, starts: Mapping[int, int | None], ends: Mapping[int, int], doubted: Collection[int]
) -> Iterator[Found]:
    """Yield the unserved entries of journals in a store of one bookie: there the store's index names a journal only for
    an entry that is in no entry log."""
    if not doubted:
        return
    entry_ids: dict[tuple[int, int], list[int]] = {}
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
            if start is None or offset < start or 0 <= ends.get(file_id, -1) <= offset:
                entry_ids.setdefault((ledger_of_key(key), file_id), []).append(block.entry_id(index))
    from pyroaring import BitMap64

    for (ledger_id, file_id), entries in entry_ids.items():
        yield ledger_id, file_id, BitMap64(entries)


def _without_replayed(
    store: Store, found: Collection[Found], journals: Collection[tuple[LogFile, int | None]]
) -> list[Found]:
    """Return the entries without those that a start replays from ``journals`` of its bookie, each from its offset on;
    raises OSError."""
    from pyroaring import BitMap64

    replayed: dict[int, BitMap64] = {ledger_id: BitMap64() for ledger_id, _, _ in found}
    for log, start in journals:
        if start is not None:
            for ledger_id, entry_id in iter_entry_ids(log.locate(store.path), start):
                if ledger_id in replayed:
                    replayed[ledger_id].add(entry_id)
    left = ((ledger_id, file_id, entries - replayed[ledger_id]) for ledger_id, file_id, entries in found)
    return [row for row in left if row[2]]
