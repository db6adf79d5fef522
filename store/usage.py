"""Who fills the disk: bytes by topic, by file and by disk, what is dead, and why a file is kept.

A bookie deletes an entry log when no ledger in it has metadata any more (upstream ``GarbageCollectorThread``, BookKeeper 4.17).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from store.catalog import LogFile, iter_logs
from store.codec.entrylog import HEADER_BYTES
from store.codec.index import Block
from store.codec.ledgermetadata import ledger_path
from store.delayedindexes import find_index_ledgers
from store.meta import Store, Txn
from store.owners import Owner, find_owners
from store.tree import find_node

NOBODY = "(unreferenced)"
DELETED = "(deleted ledgers)"
Names = Mapping[int, tuple[str, str]]
"""Ledger id → (topic, kind) of who it belongs to."""
_DEAD = (DELETED, "deleted")
_KEPT_SHOWN = 3


@dataclass(frozen=True, slots=True)
class FileUsage:
    """One file. ``live_bytes``: records of ledgers that have metadata or are of a delayed message index; ``dead_bytes``: of deleted
    ones; ``other_bytes``: header, ledgers map, copies that another file or bookie holds, damage, unwritten space. ``freed``:
    garbage collection would delete it, for sure. ``kept_for``: the owners of its largest live ledgers."""

    path: str
    kind: str
    size_bytes: int
    live_bytes: int
    dead_bytes: int
    other_bytes: int
    ledgers: int
    live_ledgers: int
    freed: bool
    kept_for: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OwnerUsage:
    """One topic (or what no topic owns): ledgers, entries and record bytes in all files together."""

    owner: str
    kind: str
    ledgers: int
    entries: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Usage:
    """The whole store's share of the disks."""

    files: tuple[FileUsage, ...]
    owners: tuple[OwnerUsage, ...]
    disks: tuple[tuple[str, int, int, int], ...]  # (mount device, size, live, dead bytes)

    @property
    def freed_bytes(self) -> int:
        """What garbage collection would free by deleting whole entry logs."""
        return sum(file.size_bytes for file in self.files if file.freed)


@dataclass(slots=True)
class _Share:
    entries: int = 0
    bytes: int = 0


def read_usage(store: Store, txn: Txn) -> Usage:
    """Sum the location index by file, ledger and owner; reads no entry log."""
    shares: dict[tuple[int, int], _Share] = defaultdict(_Share)
    for file_id, ledger_id, count, size in _iter_parts(txn):
        share = shares[file_id, ledger_id]
        share.entries += count
        share.bytes += size
    indexes = find_index_ledgers(txn)
    names = {ledger_id: _owner_name(txn, ledger_id, indexes) for _, ledger_id in shares}
    files = tuple(_file_usage(log, shares, names) for log in iter_logs(txn))
    return Usage(files, _owner_usage(shares, names), _disk_usage(store, txn, files))


def _iter_parts(txn: Txn) -> Iterator[tuple[int, int, int, int]]:
    """Yield (file id, ledger id, records, their bytes with the size field) of every location block."""
    for key, row in txn.items("entries"):
        block = Block(key, row)
        for file_id, count, size in block.iter_parts():
            yield file_id, block.ledger_id, count, size


def _file_usage(log: LogFile, shares: dict[tuple[int, int], _Share], names: Names) -> FileUsage:
    here = {ledger_id: share.bytes for (file_id, ledger_id), share in shares.items() if file_id == log.file_id}
    alive = {ledger_id: size for ledger_id, size in here.items() if names[ledger_id] != _DEAD}
    live_bytes, all_bytes = sum(alive.values()), sum(here.values())
    largest = sorted(alive, key=lambda ledger_id: -alive[ledger_id])
    kept = dict.fromkeys(names[ledger_id][0] for ledger_id in largest)
    is_log = log.kind == "entry-log"
    # The index knows one place of an entry: other records may be replicas of what is alive.
    all_known = sum(share.entries for (file_id, _), share in shares.items() if file_id == log.file_id) == log.records
    return FileUsage(
        path=log.path,
        kind=log.kind,
        size_bytes=log.size_bytes,
        live_bytes=live_bytes,
        dead_bytes=all_bytes - live_bytes,
        other_bytes=log.size_bytes - all_bytes,
        ledgers=len(here),
        live_ledgers=len(alive),
        freed=is_log and not alive and all_known and log.size_bytes > HEADER_BYTES,
        kept_for=tuple(kept)[:_KEPT_SHOWN] if is_log else (),
    )


def _owner_name(txn: Txn, ledger_id: int, indexes: Mapping[int, Owner]) -> tuple[str, str]:
    """Return (topic, kind) of the first owner of a ledger."""
    index = indexes.get(ledger_id)
    if index is not None:
        return index.topic, index.kind
    if find_node(txn, ledger_path(ledger_id)) is None:
        return _DEAD
    owners = find_owners(txn, ledger_id)
    return (owners[0].topic, owners[0].kind) if owners else (NOBODY, "orphan")


def _owner_usage(shares: dict[tuple[int, int], _Share], names: Names) -> tuple[OwnerUsage, ...]:
    sums: dict[tuple[str, str], tuple[set[int], _Share]] = {}
    for (_, ledger_id), share in shares.items():
        ledgers, total = sums.setdefault(names[ledger_id], (set(), _Share()))
        ledgers.add(ledger_id)
        total.entries += share.entries
        total.bytes += share.bytes
    rows = (OwnerUsage(*name, len(ledgers), total.entries, total.bytes) for name, (ledgers, total) in sums.items())
    return tuple(sorted(rows, key=lambda row: -row.bytes))


def _disk_usage(store: Store, txn: Txn, files: tuple[FileUsage, ...]) -> tuple[tuple[str, int, int, int], ...]:
    disks: dict[str, list[int]] = {}
    for log, file in zip(iter_logs(txn), files, strict=True):
        path = log.locate(store.path)
        device = "gone"
        if path.exists():
            number = os.stat(path).st_dev
            device = f"{os.major(number)}:{os.minor(number)} {path.parent}"
        row = disks.setdefault(device, [0, 0, 0])
        for index, size in enumerate((file.size_bytes, file.live_bytes, file.dead_bytes)):
            row[index] += size
    return tuple((device, *sizes) for device, sizes in disks.items())  # type: ignore[misc]
