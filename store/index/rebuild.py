"""Rebuilding the location and time index from the files, and comparing it with the existing one.

The index is built in a scratch store first. ``rebuild_index`` then moves it into the store in one transaction: after
any interruption, the store has the old index or the new one. The scratch store stays, and the next rebuild of the same
files continues it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.db.blocks import ledger_key, ledger_of_key
from pulsar_admin.store.db.copies import are_copies_taken_over, has_copies, iter_all_copies, take_copies
from pulsar_admin.store.db.entry_files import FileState, file_state
from pulsar_admin.store.db.environment import Store, Txn, create_store, open_store
from pulsar_admin.store.db.files import (
    METADATA_FILE_ID,
    LogFile,
    clear_damage,
    delete_log,
    iter_damage,
    iter_logs,
    put_damage,
    put_log,
)
from pulsar_admin.store.db.rows import side_by_side
from pulsar_admin.store.db.storeinfo import FORMAT_VERSION, read_store_info
from pulsar_admin.store.errors import DiskFull, SourceChanged, StoreError
from pulsar_admin.store.files import remove_file, remove_tree, scratch_directory
from pulsar_admin.store.index.build import Advance, Scanning, index_files, ledger_digests
from pulsar_admin.store.index.unserved import index_unserved
from pulsar_admin.store.wording import Answer, counted, listed

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from pulsar_admin.store.engine.operation import Engine

DERIVED = ("entries", "times")

_SCRATCH = "rebuild.unfinished"


class Difference(Struct, frozen=True):
    """A row of the index that differs from what the files give: "missing" from the store, "surplus", or "different"."""

    database: str
    key: bytes
    kind: str

    @property
    def ledger_id(self) -> int:
        return ledger_of_key(self.key[:8])


class RebuildResult(Answer, frozen=True):
    """The result of a rebuild of the index. ``changed_rows``: how many rows changed."""

    store: str
    files: int
    bytes: int
    records: int
    problems: int
    rows: int
    changed_rows: int
    checksums: bool
    dry_run: bool = False


def check_files(store: Store, logs: Sequence[LogFile]) -> None:
    """Raise SourceChanged unless every file can be read and is the imported one, which may have grown."""
    states = [(log, file_state(log, store.path, asks=True)) for log in logs]
    lost = [f"{log.locate(store.path)} ({state})" for log, state in states if not state.holds_the_imported]
    hint = "restore them, or continue without them: pulsar-admin store refresh --forget"
    if any(state is FileState.UNREADABLE for _, state in states):
        hint = "look at the permissions and at the disk of those that are unreadable, then repeat the command"
    if lost:
        raise SourceChanged(
            f"{len(lost):,} of {counted(len(states), 'file')} cannot be indexed again: {listed(lost, 3)}",
            hint=hint,
            files=lost,
        )


def build_index(
    txn: Txn, scratch: Store, logs: Sequence[LogFile], *, verify: bool, advance: Advance, engine: Engine | None
) -> None:
    """Index every file of ``logs``, up to its size there, into ``scratch`` under the same file ids; existing rows in ``scratch`` stay.

    The metadata of ``txn`` says how entries are digested. ``engine`` scans the files; None: this process.
    """
    store, digests = txn.store, ledger_digests(txn)
    with scratch.read() as begun:
        there = {log.file_id: log for log in iter_logs(begun)}
    if not there:
        from pulsar_admin.store.index.held_entries import note_copies  # brings pyroaring, which a worker may lack

        scratch.write(lambda txn: note_copies(txn, logs))
    rows = [there.get(log.file_id, _blank(store, log)) for log in logs]
    advance(sum(log.next_offset if log.unfinished else log.size_bytes for log in there.values()))
    index_files(scratch, [row for row in rows if row.unfinished], Scanning(digests, verify, advance, engine))


def _blank(store: Store, log: LogFile) -> LogFile:
    """Return a file's catalogue row as for a scan from its beginning, with an absolute path."""
    return replace(
        log,
        path=str(log.locate(store.path).absolute()),
        next_offset=0,
        records=0,
        problems=0,
        tail_records=0,
        tail_problems=0,
        unfinished=True,
    )


@contextmanager
def open_scratch(path: Path, identity: str = "") -> Iterator[Store]:
    """Open a store for the life of the block, then remove it: an empty one, or the one that an interrupted block with
    the same ``identity`` (not "") left. It is kept if the block is interrupted, unless the disk is full."""
    if not identity or _identity_of(path) != identity:
        _remove_scratch(path)
        create_store(path, now_ms=0, sources=({"identity": identity},))
    try:
        with open_store(path, writable=True) as scratch:
            yield scratch
    except DiskFull:
        _remove_scratch(path)
        raise
    _remove_scratch(path)


def _remove_scratch(path: Path) -> None:
    remove_file(path / "store.json")  # first: half a store is nothing to go on with
    remove_tree(path)


def _identity_of(path: Path) -> str | None:
    """Return the identity of a scratch store, None if there is no such store."""
    try:
        return str(read_store_info(path).sources[0]["identity"])
    except StoreError:
        return None


def _identity(store: Store, logs: Sequence[LogFile], verify: bool) -> str:
    """Return a digest of what must be equal for one rebuild to continue another: options, digest types, files."""
    with store.read() as txn:
        known = [column.tolist() for column in ledger_digests(txn)]
    files = []
    for log in logs:
        status = log.locate(store.path).stat()
        # What a file grew by is left out, also its time of change then.
        changed_ns = status.st_mtime_ns if status.st_size == log.size_bytes else 0
        files.append([log.file_id, log.path, log.kind, log.size_bytes, log.fingerprint, log.next_offset, changed_ns])
    return sha256(json.dumps([FORMAT_VERSION, verify, known, files]).encode()).hexdigest()


def rebuild_index(
    store: Store, *, verify: bool, advance: Advance, logs: Sequence[LogFile] | None = None, engine: Engine | None = None
) -> RebuildResult:
    """Rebuild ``entries``, ``times`` and ``damage`` from the files of the catalogue, or from ``logs``, which then
    become the catalogue. An interrupted rebuild continues when it runs again. Raises SourceChanged, DiskFull."""
    if logs is None:
        logs = read_catalogue(store)
    check_files(store, logs)
    with open_scratch(store.path / _SCRATCH, _identity(store, logs, verify)) as scratch:
        with store.read() as txn:
            build_index(txn, scratch, logs, verify=verify, advance=advance, engine=engine)
        store.back_up()
        with scratch.read() as new:
            paths = {log.file_id: log.path for log in logs}
            changed = store.write(lambda txn: _take_over(store, txn, new, paths))
            rows = sum(new.count(name) for name in DERIVED)
    return _result(store, read_catalogue(store), (rows, changed), verify)


def _result(store: Store, logs: Sequence[LogFile], rows: tuple[int, int], verify: bool) -> RebuildResult:
    return RebuildResult(
        str(store.path),
        len(logs),
        sum(log.size_bytes for log in logs),
        sum(log.records for log in logs),
        sum(log.problems for log in logs),
        *rows,
        verify,
    )


def read_catalogue(store: Store) -> tuple[LogFile, ...]:
    """Return every catalogued file."""
    with store.read() as txn:
        return tuple(iter_logs(txn))


def _take_over(store: Store, txn: Txn, new: Txn, paths: Mapping[int, str]) -> int:
    changed = _count_differences(txn, new)
    take_copies(txn, new)
    for database in DERIVED:
        txn.clear(database)
        for key, value in new.items(database):
            txn.put(database, key, bytes(value))
    for log in list(iter_logs(txn)):
        delete_log(txn, log.file_id)
    for file_id in {damage.file_id for damage in iter_damage(txn)} - {METADATA_FILE_ID}:
        clear_damage(txn, file_id)  # of no catalogued file
    for log in iter_logs(new):
        put_log(txn, replace(log, path=paths[log.file_id]))
    for damage in iter_damage(new):
        put_damage(txn, damage)
    index_unserved(store, txn, verify=True)
    return changed


def _count_differences(txn: Txn, new: Txn) -> int:
    with txn.passing_altered():  # of an altered row the new index has another one
        return sum(1 for _ in differences(txn, new))


def differences(txn: Txn, new: Txn) -> Iterator[Difference]:
    """Yield the rows of ``entries``, ``times`` and ``copies`` that differ between the store's index and the new one, in key order.

    If the location index had covered one bookie's copies, some of its files have fewer rows: the sum over all its
    files is compared then.
    """
    for database in DERIVED:
        yield from _differences(database, txn.items(database), new.items(database))
    if has_copies(new) and has_copies(txn):
        if not are_copies_taken_over(txn):
            yield from _differences("copies", txn.items("copies"), new.items("copies"))
            return
        disks = {log.file_id: log.disk for log in iter_logs(txn)}
        before, after = _held_by_disk(txn, disks), _held_by_disk(new, disks)
        for ledger_id, disk in sorted(before.keys() | after.keys()):
            if before.get((ledger_id, disk)) != after.get((ledger_id, disk)):
                yield Difference("copies", ledger_key(ledger_id), "different")


def _held_by_disk(txn: Txn, disks: Mapping[int, str]) -> dict[tuple[int, str], BitMap64]:
    held: dict[tuple[int, str], BitMap64] = {}
    for ledger_id, file_id, entries in iter_all_copies(txn):
        key = (ledger_id, disks.get(file_id, ""))
        held[key] = held[key] | entries if key in held else entries
    return held


def _differences(
    database: str, old: Iterator[tuple[bytes, bytes]], new: Iterator[tuple[bytes, bytes]]
) -> Iterator[Difference]:
    for key, left, right in side_by_side(old, new):
        if left != right:
            yield Difference(database, key, "surplus" if right is None else "missing" if left is None else "different")


def compare_index(store: Store, *, verify: bool, advance: Advance, engine: Engine | None = None) -> RebuildResult:
    """Return what ``rebuild_index`` would change; the new index is built in a scratch directory and the store is only read."""
    # One transaction: beside a writer, the catalogue of one and the index of another contradict each other.
    with store.read() as txn, scratch_directory() as folder, open_scratch(folder / "scratch") as scratch:
        logs = tuple(iter_logs(txn))
        check_files(store, logs)
        build_index(txn, scratch, logs, verify=verify, advance=advance, engine=engine)
        with scratch.read() as new:
            changed = _count_differences(txn, new)
            new_logs = tuple(iter_logs(new))
            return replace(
                _result(store, new_logs, (sum(new.count(name) for name in DERIVED), changed), verify), dry_run=True
            )
