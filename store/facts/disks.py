"""Facts of the disks that files were imported from, and of entries that only journals have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shutil import disk_usage
from typing import NamedTuple

from pulsar_admin.store.db.blocks import Block
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import FileMode, LogFile, iter_logs
from pulsar_admin.store.errors import IndexCorrupt
from pulsar_admin.store.facts.file_sums import FileSums
from pulsar_admin.store.names import FileKind


class DiskUsage(NamedTuple):
    """The bytes of a disk."""

    total: int
    used: int
    free: int


def read_disks(root: Path, txn: Txn) -> tuple[tuple[Path, DiskUsage], ...]:
    """Return each disk by the first folder on it that has files which the store at ROOT references; folders that are gone tell nothing."""
    found: dict[int, tuple[Path, DiskUsage]] = {}
    for folder in sorted({log.locate(root).parent for log in iter_logs(txn) if log.mode is FileMode.REFERENCED}):
        try:
            found.setdefault(folder.stat().st_dev, (folder, DiskUsage(*disk_usage(folder))))
        except OSError:
            continue
    return tuple(found.values())


def journal_only(txn: Txn) -> tuple[tuple[LogFile, int, int], ...]:
    """Return the journals that have entries which no entry log has, with how many, and their bytes; raises IndexCorrupt."""
    journals = {log.file_id: log for log in iter_logs(txn) if log.kind == FileKind.JOURNAL}
    kept: Mapping[int, FileSums] | None = txn.memo.get(FileSums)
    if kept is not None:
        found = ((log, kept.get(file_id, FileSums())) for file_id, log in journals.items())
        return tuple((log, one.records, one.live_bytes + one.dead_bytes) for log, one in found if one.records)
    counts = {file_id: [0, 0] for file_id in journals}
    for key, row in txn.items("entries") if journals else ():
        try:
            parts = list(Block(key, row).iter_parts())
        except IndexCorrupt:
            continue  # the rules of the index tell
        for file_id, records, size_bytes in parts:
            if file_id in counts:
                counts[file_id][0] += records
                counts[file_id][1] += size_bytes
    return tuple(
        (journals[file_id], entries, size_bytes) for file_id, (entries, size_bytes) in counts.items() if entries
    )
