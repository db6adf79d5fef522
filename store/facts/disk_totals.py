"""What the disks hold in all, what is dead there, and which entry logs keep dead bytes, in one pass and bounded memory.

A bookie deletes an entry log when no ledger in it has metadata any more (upstream ``GarbageCollectorThread``, BookKeeper 4.17).
``store.reports.usage`` has every file and every topic; this has sums, however many ledgers there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

from store.codec.entrylog import HEADER_BYTES
from store.db.blocks import Block
from store.db.environment import Store, Txn
from store.db.files import LogFile, iter_logs
from store.facts.unlisted import UnlistedLedgers
from store.frozen import frozen
from store.model.ledger_owners import all_owners
from store.names import FileKind
from store.scan.ledgers_map import read_ledger_sizes


@frozen
class StuckLog:
    """An entry log that holds dead bytes and cannot go as a whole: ``kept_for`` is who has its largest live ledger."""

    path: str
    size_bytes: int
    dead_bytes: int = field(metadata={"json": "deadBytes"})
    live_bytes: int = field(metadata={"json": "liveBytes"})
    live_ledgers: int
    kept_for: str


@frozen
class DiskTotals:
    """The entry logs of the copy: record bytes that live, and those of ledgers that bookies free, every bookie's copy counted.

    ``freed_bytes``: logs in which nothing lives, which garbage collection deletes; ``stuck``: the logs with the most dead bytes
    beside live ones, which only compaction frees, ``stuck_logs`` and ``stuck_bytes`` of them in all; ``missing_files``: catalogued
    files that are gone, of which the index alone tells.
    """

    files: int = 0
    size_bytes: int = 0
    live_bytes: int = field(default=0, metadata={"json": "liveBytes"})
    dead_bytes: int = field(default=0, metadata={"json": "deadBytes"})
    freed_logs: int = 0
    freed_bytes: int = field(default=0, metadata={"json": "freedBytes"})
    stuck_logs: int = 0
    stuck_bytes: int = field(default=0, metadata={"json": "stuckBytes"})
    missing_files: int = 0
    stuck: tuple[StuckLog, ...] = ()


@dataclass(slots=True)
class _File:
    """The sums of one file; ``largest``: (bytes, ledger id) of its largest live ledger."""

    log: LogFile
    records: int = 0
    live_bytes: int = 0
    dead_bytes: int = 0
    live_ledgers: int = 0
    largest: tuple[int, int] = (-1, -1)

    def add(self, ledger_id: int, size_bytes: int, *, lives: bool) -> None:
        if not lives:
            self.dead_bytes += size_bytes
            return
        self.live_bytes += size_bytes
        self.live_ledgers += 1
        self.largest = max(self.largest, (size_bytes, ledger_id))


def read_disk_totals(
    store: Store, txn: Txn, top: int, advance: Callable[[int], None] = lambda count: None
) -> DiskTotals:
    """Return the sums of the location index over all entry logs, and the TOP logs that keep most dead bytes; raises IndexCorrupt.

    The index knows one place of an entry: a log of a bookie that holds more copies is counted by its own ledgers map, or read where it
    has none. ADVANCE gets the ledgers counted.
    """
    files = {log.file_id: _File(log) for log in iter_logs(txn)}
    unlisted = UnlistedLedgers(txn)
    for ledger_id, parts in groupby(iter_parts(txn), key=lambda part: part[0]):
        _add_ledger(files, parts, ledger_id, lives=not unlisted.is_freed(ledger_id))
        advance(1)
    logs = [_whole(store, file, unlisted) for file in files.values() if file.log.kind == FileKind.ENTRY_LOG]
    freed = [file for file in logs if not file.live_bytes and file.dead_bytes and file.log.size_bytes > HEADER_BYTES]
    stuck = sorted((file for file in logs if file.live_bytes and file.dead_bytes), key=lambda file: -file.dead_bytes)
    return DiskTotals(
        files=len(logs),
        size_bytes=sum(file.log.size_bytes for file in logs),
        live_bytes=sum(file.live_bytes for file in logs),
        dead_bytes=sum(file.dead_bytes for file in logs),
        freed_logs=len(freed),
        freed_bytes=sum(file.log.size_bytes for file in freed),
        stuck_logs=len(stuck),
        stuck_bytes=sum(file.dead_bytes for file in stuck),
        missing_files=sum(not file.log.locate(store.path).exists() for file in files.values()),
        stuck=tuple(_stuck_log(txn, file, unlisted) for file in stuck[:top]),
    )


def iter_parts(txn: Txn) -> Iterator[tuple[int, int, int, int]]:
    """Yield (ledger id, file id, records, their bytes with the size fields) of every location block, in the order of ledgers."""
    for key, row in txn.items("entries"):
        block = Block(key, row)
        for part in block.iter_parts():
            yield block.ledger_id, *part


def _add_ledger(
    files: dict[int, _File], parts: Iterator[tuple[int, int, int, int]], ledger_id: int, *, lives: bool
) -> None:
    sizes: dict[int, int] = {}
    for _, file_id, records, size_bytes in parts:
        sizes[file_id] = sizes.get(file_id, 0) + size_bytes
        if file_id in files:
            files[file_id].records += records
    for file_id, size_bytes in sizes.items():
        if file_id in files:  # `store check` tells of the others
            files[file_id].add(ledger_id, size_bytes, lives=lives)


def _whole(store: Store, file: _File, unlisted: UnlistedLedgers) -> _File:
    """Return the sums of a log by its own ledgers map where the index has not all of its records."""
    path = file.log.locate(store.path)
    if file.records == file.log.records or not path.exists():
        return file
    whole = _File(file.log)
    for ledger_id, size_bytes in read_ledger_sizes(path).items():
        whole.add(ledger_id, size_bytes, lives=not unlisted.is_freed(ledger_id))
    return whole


def _stuck_log(txn: Txn, file: _File, unlisted: UnlistedLedgers) -> StuckLog:
    _, ledger_id = file.largest
    indexes = unlisted.indexes
    owners = (indexes[ledger_id],) if ledger_id in indexes else all_owners(txn, ledger_id)
    kept_for = owners[0].topic if owners else f"ledger {ledger_id}, which nothing references"
    log = file.log
    return StuckLog(log.path, log.size_bytes, file.dead_bytes, file.live_bytes, file.live_ledgers, kept_for)
