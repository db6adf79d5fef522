"""Files → index rows: scanned in this process or by an engine, committed in groups of slices.

A transaction holds the index rows of a group and the catalogue rows that say how far each of its files is indexed.
After any interruption, calling ``index_files`` again with the rows of the catalogue continues after the last group.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.digest import DIGEST_SIZE, DigestType
from pulsar_admin.store.codec.ledgermetadata import decode_digest_type, ledger_id_of_path
from pulsar_admin.store.db import files
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.tree import Node, path_of_key, plain_value
from pulsar_admin.store.engine.memory import own_memory_bytes, slice_bytes
from pulsar_admin.store.engine.slices import SLICE_BYTES, Cut
from pulsar_admin.store.errors import EntryLogCorrupt, SourceChanged, StoreError
from pulsar_admin.store.index.writer import Copies, Indexer
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan.files import FileScan, LedgerDigests, Problem, Slice
from pulsar_admin.store.scan.runs import Runs, pack_runs
from pulsar_admin.store.urls import is_url
from pulsar_admin.store.wording import counted

if TYPE_CHECKING:
    from pulsar_admin.store.engine.operation import Engine
    from pulsar_admin.store.index.scan import EngineScan

Advance = Callable[[int], None]  # told how many more bytes are done

GROUP_BYTES = 1 << 30  # of files in a transaction: as much is scanned again after a kill
GROUP_PACKED_BYTES = 64 << 20  # of runs: what waits in memory for its transaction
GROUP_RUNS = 1 << 17  # where ledgers have few entries these are much larger than their columns


class Scanning(Struct, frozen=True):
    """How files are scanned. ``digests``: (sorted ledger ids, their digest bytes); ``engine`` None: in this process.

    ``vanished`` is called for a file that is gone before it is read, None: that is an error. Entries indexed from it
    before stay. ``is_live``: whether a bookie was writing the file meanwhile; a torn record at the end of such a file
    is a write in progress, not damage.
    """

    digests: LedgerDigests
    verify: bool = True
    advance: Advance = lambda count: None
    engine: Engine | None = None
    vanished: Callable[[files.LogFile], None] | None = None
    is_live: Callable[[files.LogFile], bool] = lambda log: False


class Scanned(Protocol):
    """How far a file has been scanned; fields as in ``FileScan``."""

    problems: list[Problem]
    next_offset: int
    torn: bool
    records: int
    resume_offset: int
    tail_records: int


class _Step(NamedTuple):
    """A scanned part of a log: its number of bytes and its runs; ``scan``: how far the file is scanned after it."""

    log: files.LogFile
    scan: Scanned
    bytes: int
    runs: list[Runs]
    is_done: bool


def ledger_digests(txn: Txn, also: Iterable[Node] = (), but: DigestType | None = None) -> LedgerDigests:
    """Return (sorted ledger ids, their digest bytes) of every ledger whose metadata, in the tree or in ``also``, names a digest type.

    ``but``: a digest type whose ledgers are left out: CRC32C, Pulsar's default, is what a verifying scan tries first
    for unknown ledgers.
    """
    seen = SeenDigests(but)
    rows = ((path_of_key(txn, key), plain_value(row)) for key, row in txn.items("tree", b"/ledgers/"))
    for path, value in chain(rows, ((node.path, node.value) for node in also)):
        ledger_id = ledger_id_of_path(path)
        if ledger_id is not None:
            seen.see(ledger_id, path, value)
    return seen.digests()


class SeenDigests:
    """Collects the digest types of ledgers from their metadata, except for ledgers of one given type."""

    def __init__(self, but: DigestType | None = None) -> None:
        self._left_out = (None, but)
        self._ids, self._sizes = array("q"), array("h")

    def see(self, ledger_id: int, path: str, value: bytes) -> None:
        """Note the digest type in a ledger's metadata; if the metadata is unreadable, the scan finds the type by trying."""
        try:
            digest_type = decode_digest_type(value, path)
        except StoreError:
            return
        if digest_type not in self._left_out:
            self._ids.append(ledger_id)
            self._sizes.append(DIGEST_SIZE[digest_type])

    def digests(self) -> LedgerDigests:
        """Return the digest types seen; for a ledger seen twice the later one counts."""
        order = np.argsort(np.asarray(self._ids), kind="stable")
        ids = np.asarray(self._ids)[order]
        is_last = np.append(ids[1:] != ids[:-1], True)[: len(ids)]
        return LedgerDigests(ids[is_last], np.asarray(self._sizes)[order][is_last])


def index_files(store: Store, logs: Iterable[files.LogFile], how: Scanning) -> dict[int, files.LogFile]:
    """Scan every file from its ``next_offset`` to its size and index the records; return file id → new catalogue row, by id.

    Raises SourceChanged, EntryLogCorrupt (a slice gave no result), DiskFull; what was scanned before is kept.
    """
    group = _Group(store, how)
    try:
        for step in _scan_here(store, logs, how) if how.engine is None else _scan_on(how.engine, store, logs, how):
            group.add(step)
    except (StoreError, KeyboardInterrupt):
        group.commit()
        raise
    group.commit()
    return dict(sorted(group.rows.items()))


class _Group:
    """Scanned records that are not committed yet; ``rows``: file id → the catalogue row committed last."""

    def __init__(self, store: Store, how: Scanning) -> None:
        self._store = store
        self._how = how
        self.rows: dict[int, files.LogFile] = {}
        self._clear()

    def _clear(self) -> None:
        self._files: dict[int, _Step] = {}  # the last step of each
        self._runs: list[tuple[int, Runs]] = []
        self._bytes = self._packed_bytes = self._count = 0

    def add(self, step: _Step) -> None:
        """Add a scanned step; commit if the group becomes large."""
        file_id = step.log.file_id
        self._files[file_id] = step
        self._runs += [(file_id, runs) for runs in step.runs]
        self._bytes += step.bytes
        self._packed_bytes += sum(runs.nbytes for runs in step.runs)
        self._count += sum(len(runs.rows) for runs in step.runs)
        if self._bytes >= GROUP_BYTES or self._packed_bytes >= GROUP_PACKED_BYTES or self._count >= GROUP_RUNS:
            self.commit()

    def commit(self) -> None:
        """Write the group in one transaction. Doing it twice changes nothing."""
        if self._files:
            rows = self._store.write(self._write)
            self.rows |= {row.file_id: row for row in rows}
            self._clear()

    def _write(self, txn: Txn) -> list[files.LogFile]:
        logs = {log.file_id: log for log in files.iter_logs(txn)} | {
            step.log.file_id: step.log for step in self._files.values()
        }
        copies = Copies(self._store.path, logs)
        if copies.several:
            from pulsar_admin.store.index.held_entries import (
                note_copies,  # brings pyroaring: a store of one bookie does without
            )

            note_copies(txn, logs.values())
        journals = [step.log.file_id for step in self._files.values() if step.log.kind == FileKind.JOURNAL]
        indexer = Indexer(txn, journals, copies)
        try:
            for file_id, runs in self._runs:
                indexer.merge(runs, file_id)
        finally:
            copies.close()
        indexer.finish()
        rows = [self._write_row(txn, step) for step in self._files.values()]
        room: dict[int, int] = {}
        for damage in indexer.differing:
            if damage.file_id not in room:
                room[damage.file_id] = files.DAMAGE_MAX - sum(1 for _ in files.iter_damage(txn, damage.file_id))
            room[damage.file_id] -= 1
            if room[damage.file_id] >= 0:
                files.put_damage(txn, damage)
        return rows

    def _write_row(self, txn: Txn, step: _Step) -> files.LogFile:
        problems = step.scan.problems
        before_end = [problem for problem in problems if problem.offset < step.scan.resume_offset]
        if step.is_done and len(before_end) < len(problems) and self._how.is_live(step.log):
            problems = before_end
        row = self._row_of(step, len(problems), len(problems) - len(before_end))
        indexed = self.rows.get(row.file_id, step.log).next_offset
        files.clear_damage(txn, row.file_id, indexed)
        room = max(files.DAMAGE_MAX - sum(1 for _ in files.iter_damage(txn, row.file_id)), 0)
        for one in [problem for problem in problems if problem.offset >= indexed][:room]:
            damage = files.Damage(row.file_id, one.offset, one.length_bytes, one.reason, one.ledger_id, one.entry_id)
            files.put_damage(txn, damage)
        files.put_log(txn, row)
        return row

    def _row_of(self, step: _Step, problems: int, tail_problems: int) -> files.LogFile:
        """Return the catalogue row of the step's file; ``tail_problems`` of all problems are at or after the offset
        where a scan continues."""
        log, scan = step.log, step.scan
        path = log.locate(self._store.path)
        try:
            mark = files.file_fingerprint(path, scan.resume_offset)
        except OSError as error:
            if self._how.vanished is None or not isinstance(error, FileNotFoundError):
                raise SourceChanged(f"{path} cannot be read any more: {error.strerror}", path=str(path)) from error
            mark = log.fingerprint  # the file is gone since it was read
        return replace(
            log,
            # The last record may have been written to its end since the file was catalogued.
            size_bytes=max(log.size_bytes, scan.resume_offset),
            next_offset=scan.resume_offset,
            fingerprint=mark,
            records=log.records - log.tail_records + scan.records,
            problems=log.problems - log.tail_problems + problems,
            torn=scan.torn,
            tail_records=scan.tail_records,
            tail_problems=tail_problems,
            unfinished=not step.is_done,
        )


def part_of(store: Store, log: files.LogFile) -> Slice:
    """Return the part of a file that is still to be scanned."""
    return Slice(log.place(store.path), log.kind, log.next_offset, log.size_bytes)


def _scan_here(store: Store, logs: Iterable[files.LogFile], how: Scanning) -> Iterator[_Step]:
    """Yield a step per batch, file by file; for a file at a URL, a step per slice."""
    for log in logs:
        if is_url(log.place(store.path)):
            from pulsar_admin.store.engine.local import LocalEngine

            yield from _scan_on(LocalEngine(1, own_memory_bytes()), store, [log], how)
            continue
        is_copy = log.mode is files.FileMode.COPIED
        scan = FileScan(part_of(store, log), how.digests, how.verify, leaves_cache=True, is_copy=is_copy)
        before = log.next_offset
        try:
            for batch in scan.batches():
                size, before = max(scan.next_offset - before, 0), max(scan.next_offset, before)
                how.advance(size)
                yield _Step(log, scan, size, [pack_runs(batch, keep_first=log.kind == FileKind.JOURNAL)], False)
        except SourceChanged:
            if not _has_vanished(store, log, how):
                raise
            continue
        how.advance(log.size_bytes - before)
        yield _Step(log, scan, 0, [], True)


def _scan_on(engine: Engine, store: Store, logs: Iterable[files.LogFile], how: Scanning) -> Iterator[_Step]:
    """Yield a step per slice: in order within a file, in any order between files."""
    from pulsar_admin.store.index.scan import (  # bring pyarrow, which a scan in this process does without
        EngineScan,
        ScanRuns,
    )

    listed = {log.file_id: log for log in logs}
    operation = ScanRuns(how.digests, how.verify)
    scans = {log.file_id: EngineScan(part_of(store, log), log.file_id, operation) for log in listed.values()}
    cut = Cut(min(SLICE_BYTES, slice_bytes(engine.memory_bytes)))
    gone: set[int] = set()
    pieces = []
    for file_id, scan in scans.items():
        try:
            pieces += scan.plan(cut)
        except SourceChanged:
            if not _has_vanished(store, listed[file_id], how):
                raise
            gone.add(file_id)
            continue
        if not scan.pieces:
            yield _Step(listed[file_id], scan, 0, [], True)
    for piece, table in engine.run(operation, pieces, lambda piece: how.advance(piece.bytes)):
        if piece.file_id in gone:
            continue
        scan = scans[piece.file_id]
        try:
            for taken, runs in scan.take(piece, table):
                yield _Step(listed[piece.file_id], scan, taken.bytes, runs, scan.missing is None)
        except SourceChanged:  # a slice that begins elsewhere than the one before it ended is read again, here
            if not _has_vanished(store, listed[piece.file_id], how):
                raise
            gone.add(piece.file_id)
    missing = {file_id: scan for file_id, scan in scans.items() if scan.missing and file_id not in gone}
    gone |= {file_id for file_id in missing if _has_vanished(store, listed[file_id], how)}
    engine.failed[:] = [failed for failed in engine.failed if failed.piece.file_id not in gone]
    _check_all(engine, [scan for file_id, scan in missing.items() if file_id not in gone])


def _has_vanished(store: Store, log: files.LogFile, how: Scanning) -> bool:
    """Whether the file of a log is gone and the caller tolerates that; calls ``how.vanished`` then."""
    if how.vanished is None or log.locate(store.path).exists():
        return False
    how.vanished(log)
    return True


def _check_all(engine: Engine, incomplete: list[EngineScan[Runs]]) -> None:
    """Raise EntryLogCorrupt when files have slices without a result."""
    if not incomplete:
        return
    missing = incomplete[0].missing
    assert missing is not None
    reason = next((f": {failed.reason}" for failed in engine.failed if failed.piece == missing), "")
    others = f" (and {counted(len(incomplete) - 1, 'more file')})" if len(incomplete) > 1 else ""
    raise EntryLogCorrupt(
        f"{missing.path}: bytes {missing.start} to {missing.end} could not be scanned{reason}{others}",
        hint="run the same command again: it continues where it stopped",
        path=missing.path,
    )
