"""``store import standalone``: a Pulsar data directory → tree, catalogue, location and time index. The source is only read.

An import commits file by file; when it is stopped the same command goes on behind the last file that was finished.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from store.atomic import copy_file, link_file, remove_file, rename
from store.catalog import (
    DAMAGE_MAX,
    METADATA_FILE_ID,
    Damage,
    LogFile,
    clear_damage,
    file_fingerprint,
    iter_logs,
    next_file_id,
    put_damage,
    put_log,
)
from store.codec.digest import DIGEST_SIZE, DigestType
from store.codec.entrylog import HEADER_BYTES, decode_header
from store.codec.index import decode_times, ledger_of_key
from store.codec.ledgermetadata import decode_ledger_metadata, ledger_id_of_path
from store.errors import AlreadyExists, MetadataCorrupt, StoreError
from store.index import Indexer
from store.meta import Store, Txn, check_new_store, create_store, open_store, read_store_info
from store.owners import index_owners
from store.scan.files import FileScan, LedgerDigests, Problem, Slice
from store.sources.layout import StandaloneLayout, read_standalone_layout
from store.sources.nodes import iter_source_nodes
from store.sources.rocksdb import locked_by
from store.tree import iter_nodes, put_node

if TYPE_CHECKING:
    from store.scan.engine_scan import Engine, EngineScan


Advance = Callable[[int], None]  # told how many more bytes are done
Warn = Callable[[str], None]  # told at once what is also in ``ImportResult.warnings``


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How to import. ``mode``: "referenced", "linked" or "copied" entry logs."""

    mode: str = "referenced"
    verify: bool = True
    now_ms: int = 0
    engine: Engine | None = None  # None: files are scanned in this process


@dataclass(slots=True)
class ImportResult:
    """What an import or refresh found."""

    store: str
    source: str
    nodes: int = 0
    files: int = 0
    bytes: int = 0
    records: int = 0
    entries: int = 0
    problems: int = 0
    undecodable_values: int = 0
    seconds: float = 0.0
    checksums: bool = True
    source_in_use_by: int | None = None
    warnings: list[str] = field(default_factory=list)

    def add(self, log: LogFile) -> None:
        """Count a file that was read."""
        self.files += 1
        self.bytes += log.size_bytes
        self.records += log.records
        self.problems += log.problems
        if log.problems:
            self.warnings.append(f"{log.path}: {log.problems} damaged places" + (", torn tail" if log.torn else ""))


@dataclass(frozen=True, slots=True)
class ImportPreview:
    """What an import would read."""

    store: str
    source: str
    nodes: int
    undecodable_values: int
    files: int
    bytes: int
    source_in_use_by: int | None
    dry_run: bool = True


def preview_standalone(root: Path, path: Path) -> ImportPreview:
    """Return what importing ROOT into PATH would read; raises what ``import_standalone`` raises before it writes."""
    layout = read_standalone_layout(root)
    _check_target(path, layout)
    damaged = [isinstance(item, Damage) for item in iter_source_nodes(layout.metadata)]
    files = [file for _, _, file in files_of(layout)]
    return ImportPreview(
        str(path),
        str(layout.root),
        damaged.count(False),
        damaged.count(True),
        len(files),
        sum(file.stat().st_size for file in files),
        locked_by(layout.metadata),
    )


def import_standalone(
    root: Path, path: Path, options: ImportOptions, advance: Advance, warn: Warn = lambda text: None
) -> ImportResult:
    """Import the standalone directory ROOT into a new store at PATH, or finish an import that was stopped there.

    Raises SourceNotFound for anything but a whole standalone directory, AlreadyExists for a finished store.
    """
    started = time.monotonic()
    layout = read_standalone_layout(root)
    source = _source_fields(layout, options)
    _begin(path, layout, source)
    result = ImportResult(str(path), str(layout.root), checksums=options.verify)
    _note_holder(layout, result, warn)
    with open_store(path, writable=True, unfinished=True) as store:
        result.nodes, result.undecodable_values = import_tree(store, layout)
        _import_files(store, layout, options, (result, advance))
        store.write(lambda txn: index_owners(store, txn))
        store.update_info(state="ready", sources=(source,))
    for text in result.warnings[result.source_in_use_by is not None :]:
        warn(text)
    result.seconds = time.monotonic() - started
    return result


def _note_holder(layout: StandaloneLayout, result: ImportResult, warn: Warn) -> None:
    result.source_in_use_by = holder = locked_by(layout.metadata)
    if holder is not None:
        text = f"process {holder} has {layout.metadata} open: going on, reading only; what it writes from now on is left out"
        result.warnings.append(text)
        warn(text)


def source_bytes(root: Path) -> int:
    """Return how many bytes an import of ROOT will scan, for a progress display."""
    layout = read_standalone_layout(root)
    return sum(file.stat().st_size for _, _, file in files_of(layout))


def _begin(path: Path, layout: StandaloneLayout, source: dict[str, Any]) -> None:  # Any: JSON
    if _check_target(path, layout):
        create_store(path, now_ms=source["imported"], state="importing", sources=(source,))


def _check_target(path: Path, layout: StandaloneLayout) -> bool:
    """Return whether a new store is to be made at PATH (else it is this import, unfinished); raises AlreadyExists."""
    if (path / "store.json").exists():
        info = read_store_info(path)
        if info.state == "importing" and info.sources[0]["path"] == str(layout.root.resolve()):
            return False
        raise AlreadyExists(
            f"{path} is a store already",
            hint="use `store refresh` to bring it up to date, or name a new directory with --store",
            path=str(path),
        )
    if path.resolve().is_relative_to(layout.root.resolve()):
        raise AlreadyExists(
            f"{path} lies inside the source {layout.root}", hint="name a directory outside it with --store"
        )
    check_new_store(path)
    return True


def _source_fields(layout: StandaloneLayout, options: ImportOptions) -> dict[str, Any]:  # Any: JSON
    return {
        "kind": "standalone",
        "path": str(layout.root.resolve()),
        "imported": options.now_ms,
        "mode": options.mode,
        "checksums": options.verify,
        "bookies": [str(bookie.path.resolve()) for bookie in layout.bookies],
    }


# -- metadata ---------------------------------------------------------------------------------------------------------


def import_tree(store: Store, layout: StandaloneLayout) -> tuple[int, int]:
    """Read the metadata store into ``tree``; return (nodes, values that are no nodes)."""

    def work(txn: Txn) -> tuple[int, int]:
        txn.clear("tree")
        clear_damage(txn, METADATA_FILE_ID)
        counts = [0, 0]
        for item in iter_source_nodes(layout.metadata):
            counts[isinstance(item, Damage)] += 1
            if isinstance(item, Damage):
                put_damage(txn, item)
            else:
                put_node(txn, item)
        return counts[0], counts[1]

    return store.write(work)


def ledger_digests(txn: Txn) -> LedgerDigests:
    """Return (sorted ledger ids, their digest bytes) of every ledger whose metadata names a digest type."""
    kinds: dict[int, int] = {}
    for node in iter_nodes(txn, "/ledgers/"):
        ledger_id = ledger_id_of_path(node.path)
        if ledger_id is None:
            continue
        try:
            digest_type = decode_ledger_metadata(node.value, node.path).digest_type
        except MetadataCorrupt:
            continue  # the scan finds its type by trying
        if digest_type is not None:
            kinds[ledger_id] = DIGEST_SIZE[DigestType(digest_type)]
    ids = np.array(sorted(kinds), np.int64)
    return ids, np.array([kinds[ledger_id] for ledger_id in ids.tolist()], np.int16)


# -- entries ----------------------------------------------------------------------------------------------------------


def files_of(layout: StandaloneLayout) -> Iterator[tuple[str, int, Path]]:
    """Yield (kind, number, path): the entry logs in write order, then the journals."""
    for bookie in layout.bookies:
        for number, file in bookie.logs:
            yield "entry-log", number, file
    for bookie in layout.bookies:
        for number, file in bookie.journals:
            yield "journal", number, file


def _import_files(
    store: Store, layout: StandaloneLayout, options: ImportOptions, report: tuple[ImportResult, Advance]
) -> None:
    result, advance = report
    with store.read() as txn:
        digests = ledger_digests(txn)
        done = {log.origin: log for log in iter_logs(txn)}
    for kind, number, file in files_of(layout):
        log = done.get(str(file.resolve()))
        if log is None:
            log = scan_new(store, (kind, number, file), options, digests, advance)
        else:
            advance(log.size_bytes)
        result.add(log)
    with store.read() as txn:
        result.entries = count_entries(txn)


def count_entries(txn: Txn) -> int:
    """Return how many different entries the index holds."""
    return sum(decode_times(ledger_of_key(key), row).sums.entries for key, row in txn.items("times"))


def scan_new(
    store: Store, file: tuple[str, int, Path], options: ImportOptions, digests: LedgerDigests, advance: Advance
) -> LogFile:
    """Catalogue and index FILE (kind, number, path), which the store does not know; return its row."""
    kind, number, path = file
    status = path.stat()
    with store.read() as txn:
        file_id = next_file_id(txn)
    log = LogFile(
        file_id=file_id,
        path=str(place(store, path, file_id, options.mode)),
        kind=kind,
        log_id=number,
        origin=str(path.resolve()),
        mode=options.mode,
        size_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        fingerprint="",
        next_offset=0,
        records=0,
        problems=0,
        torn=False,
        sealed=kind == "entry-log" and is_sealed(path),
    )
    return scan_into(store, log, digests, options.verify, advance, options.engine)


def place(store: Store, path: Path, file_id: int, mode: str) -> Path:
    """Copy or link the file into the store when MODE asks, in place of what is there; return the path for the catalogue."""
    if mode == "referenced":
        return path.resolve()
    inside = Path("entries", f"{file_id}-{path.name}")
    unfinished = store.path / f"{inside}.unfinished"
    remove_file(unfinished)
    if mode == "linked":
        link_file(path.resolve(), unfinished)
    else:
        copy_file(path.resolve(), unfinished)
        status = path.stat()
        os.utime(unfinished, ns=(status.st_atime_ns, status.st_mtime_ns))
    rename(unfinished, store.path / inside)
    remove_file(unfinished)  # renaming onto another name of the same file leaves both
    return inside


def is_sealed(path: Path) -> bool:
    """Whether the entry log's header names a ledgers map."""
    with open(path, "rb") as file:
        head = os.pread(file.fileno(), HEADER_BYTES, 0)
    try:
        return 0 < decode_header(head, str(path)).ledgers_map_offset < path.stat().st_size
    except StoreError:
        return False


def _scan_of(part: Slice, digests: LedgerDigests, verify: bool, engine: Engine | None) -> FileScan | EngineScan:
    if engine is None:
        return FileScan(part, digests, verify)
    from store.scan.engine_scan import EngineScan  # brings pyarrow, which a scan in this process does without

    return EngineScan(engine, part, digests, verify)


def scan_into(
    store: Store, log: LogFile, digests: LedgerDigests, verify: bool, advance: Advance, engine: Engine | None = None
) -> LogFile:
    """Scan LOG from its ``next_offset`` to its end and index what is found, in one transaction; return the new row."""
    path = log.locate(store.path)
    told = log.next_offset

    def work(txn: Txn) -> LogFile:
        nonlocal told
        part = Slice(str(path), log.kind, log.next_offset, log.size_bytes)  # type: ignore[arg-type]
        scan = _scan_of(part, digests, verify, engine)
        index = Indexer(txn, log.file_id, is_journal=log.kind == "journal")
        for batch in scan.batches():
            index.add(batch)
            # On a larger map the work runs again: what was told once is not told twice.
            advance(max(scan.next_offset - told, 0))
            told = max(told, scan.next_offset)
        index.finish()
        clear_damage(txn, log.file_id, log.next_offset)
        for problem in scan.problems[:DAMAGE_MAX]:
            put_damage(txn, _damage(log.file_id, problem))
        row = replace(
            log,
            next_offset=scan.resume_offset,
            fingerprint=file_fingerprint(path, scan.resume_offset),
            records=log.records - log.tail_records + scan.records,
            problems=log.problems - log.tail_problems + len(scan.problems),
            torn=scan.torn,
            tail_records=scan.tail_records,
            tail_problems=scan.tail_problems,
        )
        put_log(txn, row)
        return row

    row = store.write(work)
    advance(log.size_bytes - told)
    return row


def _damage(file_id: int, problem: Problem) -> Damage:
    return Damage(file_id, problem.offset, problem.length_bytes, problem.reason, problem.ledger_id, problem.entry_id)
