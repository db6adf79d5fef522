"""``store import standalone``: a Pulsar data directory → tree, catalogue, location and time index. The source is only read.

An import commits file by file; when it is stopped the same command goes on behind the last file that was finished.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from store.atomic import copy_file, link_file
from store.catalog import (
    DAMAGE_MAX,
    Damage,
    LogFile,
    fingerprint,
    iter_logs,
    next_file_id,
    put_damage,
    put_log,
)
from store.codec.digest import DIGEST_SIZE, DigestType
from store.codec.entrylog import HEADER_BYTES, decode_header
from store.codec.index import decode_times, ledger_of_key
from store.codec.ledgermetadata import decode_ledger_metadata, ledger_id_of_path
from store.codec.rocksvalue import decode_value
from store.errors import AlreadyExists, MetadataCorrupt, StoreError
from store.index import index_ledger_times, index_records, largest_lacs
from store.meta import Store, Txn, create_store, open_store, read_store_info
from store.owners import index_owners
from store.scan.files import FileScan, LedgerDigests, Slice
from store.sources.layout import StandaloneLayout, read_standalone_layout
from store.sources.rocksdb import locked_by, open_for_reading
from store.tree import Node, iter_nodes, put_node

Advance = Callable[[int], None]  # told how many more bytes are done


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How to import. ``mode``: "referenced", "linked" or "copied" entry logs."""

    mode: str = "referenced"
    verify: bool = True
    now_ms: int = 0


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


def import_standalone(root: Path, path: Path, options: ImportOptions, advance: Advance) -> ImportResult:
    """Import the standalone directory ROOT into a new store at PATH, or finish an import that was stopped there.

    Raises SourceNotFound for anything but a whole standalone directory, AlreadyExists for a finished store.
    """
    started = time.monotonic()
    layout = read_standalone_layout(root)
    _begin(path, layout, options)
    result = ImportResult(str(path), str(layout.root), checksums=options.verify)
    result.source_in_use_by = locked_by(layout.metadata)
    if result.source_in_use_by is not None:
        result.warnings.append(
            f"process {result.source_in_use_by} has {layout.metadata} open: what it writes from now on is not in this store"
        )
    with open_store(path, writable=True, unfinished=True) as store:
        source = _source_fields(layout, options)
        result.nodes, result.undecodable_values = _import_tree(store, layout)
        _import_files(store, layout, options, (result, advance))
        store.write(lambda txn: index_owners(store, txn))
        others = tuple(s for s in store.info.sources if s["path"] != source["path"])
        store.update_info(state="ready", sources=(*others, source))
    result.seconds = time.monotonic() - started
    return result


def source_bytes(root: Path) -> int:
    """Return how many bytes an import of ROOT will scan, for a progress display."""
    layout = read_standalone_layout(root)
    return sum(file.stat().st_size for _, _, file in _files_of(layout))


def _begin(path: Path, layout: StandaloneLayout, options: ImportOptions) -> None:
    if (path / "store.json").exists():
        info = read_store_info(path)
        if info.state == "importing" and info.sources[0]["path"] == str(layout.root.resolve()):
            return
        raise AlreadyExists(
            f"{path} is a store already",
            hint="use `store refresh` to bring it up to date, or name a new directory with --store",
            path=str(path),
        )
    if path.resolve().is_relative_to(layout.root.resolve()):
        raise AlreadyExists(
            f"{path} lies inside the source {layout.root}", hint="name a directory outside it with --store"
        )
    create_store(path, now_ms=options.now_ms, state="importing")
    with open_store(path, writable=True, unfinished=True) as store:
        store.update_info(sources=(_source_fields(layout, options),))


def _source_fields(layout: StandaloneLayout, options: ImportOptions) -> dict[str, Any]:  # Any: JSON
    return {
        "kind": "standalone",
        "path": str(layout.root.resolve()),
        "imported": options.now_ms,
        "mode": options.mode,
        "bookies": [str(bookie.path.resolve()) for bookie in layout.bookies],
    }


# -- metadata ---------------------------------------------------------------------------------------------------------


def iter_source_nodes(metadata: Path) -> Iterator[Node | Damage]:
    """Yield the nodes of the metadata RocksDB, and a Damage (file id 0) for a value that is no node.

    Ephemeral nodes (live brokers, bookies) and the two counters are left out.
    """
    with open_for_reading(metadata) as items:
        for number, (key, raw) in enumerate(items):
            if not key.startswith(b"/"):
                continue
            path = key.decode("utf-8", "surrogateescape")
            try:
                stat, value = decode_value(raw, f"{metadata} {path}")
            except StoreError as error:
                yield Damage(0, number, len(raw), error.message, -1, -1)
                continue
            if not stat.ephemeral:
                yield Node(path, stat, value)


def _import_tree(store: Store, layout: StandaloneLayout) -> tuple[int, int]:
    """Read the metadata store into ``tree``; return (nodes, values that are no nodes)."""

    def work(txn: Txn) -> tuple[int, int]:
        txn.clear("tree")
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


def _files_of(layout: StandaloneLayout) -> Iterator[tuple[str, int, Path]]:
    """Yield (kind, number, path): all entry logs in write order, then the journals, whose copies count only where no log has one."""
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
    for kind, number, file in _files_of(layout):
        origin = str(file.resolve())
        size = file.stat().st_size
        if origin in done:
            log = done[origin]
        else:
            log = _scan_new(store, (kind, number, file), options, digests)
        result.files += 1
        result.bytes += size
        result.records += log.records
        result.problems += log.problems
        advance(size)
    with store.read() as txn:
        result.entries = count_entries(txn)
        result.warnings += [
            f"{log.path}: {log.problems} damaged places" + (", torn tail" if log.torn else "")
            for log in iter_logs(txn)
            if log.problems
        ]


def count_entries(txn: Txn) -> int:
    """Return how many different entries the index holds."""
    return sum(decode_times(ledger_of_key(key), row).sums.entries for key, row in txn.items("times"))


def _scan_new(store: Store, file: tuple[str, int, Path], options: ImportOptions, digests: LedgerDigests) -> LogFile:
    kind, number, path = file
    with open(path, "rb") as opened:
        status = os.fstat(opened.fileno())
        mark = fingerprint(opened.fileno(), status.st_size)
    with store.read() as txn:
        file_id = next_file_id(txn)
    log = LogFile(
        file_id=file_id,
        path=str(_place(store, path, file_id, options.mode)),
        kind=kind,
        log_id=number,
        origin=str(path.resolve()),
        mode=options.mode,
        size_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        fingerprint=mark,
        next_offset=0,
        records=0,
        problems=0,
        torn=False,
        sealed=kind == "entry-log" and _is_sealed(path),
    )
    return scan_into(store, log, digests, verify=options.verify)


def _place(store: Store, path: Path, file_id: int, mode: str) -> Path:
    """Copy or link the file into the store when asked; return the path for the catalogue."""
    if mode == "referenced":
        return path.resolve()
    inside = Path("entries", f"{file_id}-{path.name}")
    target = store.path / inside
    target.unlink(missing_ok=True)  # of an import that was stopped
    (link_file if mode == "linked" else copy_file)(path.resolve(), target)
    return inside


def _is_sealed(path: Path) -> bool:
    with open(path, "rb") as file:
        head = os.pread(file.fileno(), HEADER_BYTES, 0)
    try:
        return 0 < decode_header(head, str(path)).ledgers_map_offset < path.stat().st_size
    except StoreError:
        return False


def scan_into(store: Store, log: LogFile, digests: LedgerDigests, *, verify: bool) -> LogFile:
    """Scan LOG from its ``next_offset`` to its end and index what is found, in one transaction; return the new row."""
    path = log.locate(store.path)

    def work(txn: Txn) -> LogFile:
        scan = FileScan(Slice(str(path), log.kind, log.next_offset, log.size_bytes), digests, verify)  # type: ignore[arg-type]
        lacs: dict[int, int] = {}
        for batch in scan.batches():
            index_records(txn, log.file_id, batch, only_new=log.kind == "journal")
            for ledger_id, lac in largest_lacs(batch).items():
                lacs[ledger_id] = max(lac, lacs.get(ledger_id, -1))
        index_ledger_times(txn, lacs)
        for problem in scan.problems[:DAMAGE_MAX]:
            put_damage(
                txn,
                Damage(
                    log.file_id,
                    problem.offset,
                    problem.length_bytes,
                    problem.reason,
                    problem.ledger_id,
                    problem.entry_id,
                ),
            )
        row = replace(
            log,
            next_offset=scan.next_offset,
            records=log.records + scan.records,
            problems=log.problems + len(scan.problems),
            torn=scan.torn,
        )
        put_log(txn, row)
        return row

    return store.write(work)
