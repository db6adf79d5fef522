"""Disk usage: bytes by topic, by file and by disk, which bytes are dead, and which owners keep a file.

A bookie deletes an entry log when no ledger in it has metadata any more (upstream ``GarbageCollectorThread``, BookKeeper 4.17).
"""

import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from msgspec import field

from pulsar_admin.store.codec.entrylog import HEADER_BYTES
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import LogFile, iter_logs
from pulsar_admin.store.facts.file_sums import LedgerShare, read_file_sizes, read_shares
from pulsar_admin.store.facts.unlisted import Unlisted, UnlistedLedgers
from pulsar_admin.store.model.counts import iter_leftovers
from pulsar_admin.store.model.ledgers import has_node
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.wording import Answer

NOBODY = "(unreferenced)"
GONE = "(ledgers without metadata)"
LEFTOVER, LEFTOVERS = "leftover", "(leftovers of compaction)"
Names = Mapping[int, tuple[str, str]]
"""Ledger id → (topic, kind) of who it belongs to."""
_UNLISTED = {
    Unlisted.DELETED: (GONE, "gone"),
    Unlisted.GONE: (GONE, "gone"),
    Unlisted.NEWER: ("(newer than the metadata)", "newer"),
    Unlisted.UNLISTED: ("(not in the metadata)", "unlisted"),
}
"""Name and kind of ledgers without a node that nothing references."""
_DEAD = _UNLISTED[Unlisted.GONE]
_KEPT_SHOWN = 3


class FileUsage(Answer, frozen=True):
    """One file. ``live_bytes``: records of ledgers that bookies keep; ``dead_bytes``: of ledgers that are deleted, or gone from the
    metadata, the copies of other bookies' entries too; ``other_bytes``: header, ledgers map, damage, unwritten space, and what a journal
    holds that is in a log; all of a file of kind ``leftover``. ``freed``: garbage collection would delete it.
    ``kept_for``: the owners of its largest live ledgers."""

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


class OwnerUsage(Answer, frozen=True):
    """One topic (or what no topic owns): ledgers, entries and record bytes, each entry once; ``disk_bytes``: all its copies."""

    owner: str
    kind: str
    ledgers: int
    entries: int
    bytes: int
    disk_bytes: int = field(name="diskBytes")


class Usage(Answer, frozen=True):
    """The whole store's share of the disks."""

    files: tuple[FileUsage, ...]
    owners: tuple[OwnerUsage, ...]
    disks: tuple[tuple[str, int, int, int], ...]  # (mount device, size, live, dead bytes)


def read_usage(txn: Txn) -> Usage:
    """Sum the bytes of files by file, ledger and owner."""
    shares = read_shares(txn)
    unlisted = UnlistedLedgers(txn)
    sums = tuple(read_file_sizes(txn, shares))
    sizes = {log.file_id: here for log, here in sums}
    ids = set[int]().union(*shares.values(), *sizes.values())
    names: dict[int, tuple[str, str]] = {}
    for ledger_id in ids:
        references = unlisted.owners(ledger_id)
        if references:
            names[ledger_id] = references[0].topic, references[0].kind
        else:
            is_listed = has_node(txn, ledger_id)
            names[ledger_id] = (NOBODY, "orphan") if is_listed else _UNLISTED[unlisted.why(ledger_id)]
    files = tuple(_file_usage(log, here, names) for log, here in sums)
    leftovers = tuple(
        FileUsage(str(left[0]), LEFTOVER, left[1], 0, 0, left[1], 0, 0, freed=False, kept_for=(LEFTOVERS,))
        for left in iter_leftovers(txn.store)
        if left is not None
    )
    by_owner = _owner_usage(shares, sizes, names)
    if leftovers:
        size = sum(file.size_bytes for file in leftovers)
        by_owner.append(OwnerUsage(LEFTOVERS, LEFTOVER, 0, 0, 0, size))
    owners = tuple(sorted(by_owner, key=lambda row: -row.disk_bytes))
    return Usage((*files, *leftovers), owners, _disk_usage(txn, files, leftovers))


def _file_usage(log: LogFile, here: Mapping[int, int], names: Names) -> FileUsage:
    alive = {ledger_id: size for ledger_id, size in here.items() if names[ledger_id] != _DEAD}
    live_bytes, all_bytes = sum(alive.values()), sum(here.values())
    largest = sorted(alive, key=lambda ledger_id: -alive[ledger_id])
    kept = dict.fromkeys(names[ledger_id][0] for ledger_id in largest)
    is_log = log.kind == FileKind.ENTRY_LOG
    return FileUsage(
        path=log.path,
        kind=log.kind,
        size_bytes=log.size_bytes,
        live_bytes=live_bytes,
        dead_bytes=all_bytes - live_bytes,
        other_bytes=log.size_bytes - all_bytes,
        ledgers=len(here),
        live_ledgers=len(alive),
        freed=is_log and not alive and bool(here) and log.size_bytes > HEADER_BYTES,
        kept_for=tuple(kept)[:_KEPT_SHOWN] if is_log else (),
    )


def _owner_usage(
    shares: Mapping[int, Mapping[int, LedgerShare]], sizes: Mapping[int, Mapping[int, int]], names: Names
) -> list[OwnerUsage]:
    on_disk: dict[tuple[str, str], int] = defaultdict(int)
    for here in sizes.values():
        for ledger_id, size_bytes in here.items():
            on_disk[names[ledger_id]] += size_bytes
    sums: dict[tuple[str, str], tuple[set[int], LedgerShare]] = {}
    for ledger_id, share in (item for known in shares.values() for item in known.items()):
        ledgers, total = sums.setdefault(names[ledger_id], (set(), LedgerShare()))
        ledgers.add(ledger_id)
        total.entries += share.entries
        total.bytes += share.bytes
    return [
        OwnerUsage(*name, len(ledgers), total.entries, total.bytes, on_disk[name])
        for name, (ledgers, total) in sums.items()
    ]


def _disk_usage(
    txn: Txn, files: tuple[FileUsage, ...], leftovers: tuple[FileUsage, ...]
) -> tuple[tuple[str, int, int, int], ...]:
    disks: dict[str, list[int]] = {}
    located = [log.locate(txn.store.path) for log in iter_logs(txn)] + [Path(file.path) for file in leftovers]
    for path, file in zip(located, (*files, *leftovers), strict=True):
        device = "gone"
        if path.exists():
            number = os.stat(path).st_dev
            device = f"{os.major(number)}:{os.minor(number)} {path.parent}"
        row = disks.setdefault(device, [0, 0, 0])
        for index, size in enumerate((file.size_bytes, file.live_bytes, file.dead_bytes)):
            row[index] += size
    return tuple((device, *sizes) for device, sizes in disks.items())  # type: ignore[misc]
