"""What the disks hold in all, what is dead there, and which entry logs keep dead bytes, in one pass and bounded memory.

A bookie deletes an entry log when no ledger in it has metadata any more (upstream ``GarbageCollectorThread``, BookKeeper 4.17).
``store.reports.usage`` has every file and every topic; this has sums, however many ledgers there are.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from pulsar_admin.store.codec.entrylog import HEADER_BYTES
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.files import LogFile, iter_logs
from pulsar_admin.store.facts.file_sums import FileSums, read_own_sizes, sum_files
from pulsar_admin.store.facts.unlisted import UnlistedLedgers
from pulsar_admin.store.model.ledger_owners import all_owners
from pulsar_admin.store.names import FileKind


class StuckLog(Struct, frozen=True):
    """An entry log that holds dead bytes and cannot go as a whole: ``kept_for`` is who has its largest live ledger."""

    path: str
    size_bytes: int
    dead_bytes: int = field(name="deadBytes")
    live_bytes: int = field(name="liveBytes")
    live_ledgers: int
    kept_for: str


class DiskTotals(Struct, frozen=True):
    """The entry logs of the copy: record bytes that live, and those of ledgers that bookies free, every bookie's copy counted.

    ``freed_bytes``: logs in which nothing lives, which garbage collection deletes; ``stuck``: the logs with the most dead bytes
    beside live ones, which only compaction frees, ``stuck_logs`` and ``stuck_bytes`` of them in all; ``missing_files``: catalogued
    files that are gone, of which the index alone tells.
    """

    files: int = 0
    size_bytes: int = 0
    live_bytes: int = field(default=0, name="liveBytes")
    dead_bytes: int = field(default=0, name="deadBytes")
    freed_logs: int = 0
    freed_bytes: int = field(default=0, name="freedBytes")
    stuck_logs: int = 0
    stuck_bytes: int = field(default=0, name="stuckBytes")
    missing_files: int = 0
    stuck: tuple[StuckLog, ...] = ()


def read_disk_totals(
    store: Store, txn: Txn, top: int, advance: Callable[[int], None] = lambda count: None
) -> DiskTotals:
    """Return the sums of the location index over all entry logs, and the TOP logs that keep most dead bytes; raises IndexCorrupt.

    The index knows one place of an entry: a log of a bookie that holds more copies is counted by its own ledgers map, or read where it
    has none. ADVANCE gets the ledgers counted.
    """
    files = [*iter_logs(txn)]
    sums, unlisted = sum_files(txn, advance), UnlistedLedgers(txn)
    logs = [
        (log, _whole(store, log, sums.get(log.file_id, FileSums()), unlisted))
        for log in files
        if log.kind == FileKind.ENTRY_LOG
    ]
    freed = [log for log, one in logs if not one.live_bytes and one.dead_bytes and log.size_bytes > HEADER_BYTES]
    stuck = sorted(
        ((log, one) for log, one in logs if one.live_bytes and one.dead_bytes), key=lambda pair: -pair[1].dead_bytes
    )
    return DiskTotals(
        files=len(logs),
        size_bytes=sum(log.size_bytes for log, _ in logs),
        live_bytes=sum(one.live_bytes for _, one in logs),
        dead_bytes=sum(one.dead_bytes for _, one in logs),
        freed_logs=len(freed),
        freed_bytes=sum(log.size_bytes for log in freed),
        stuck_logs=len(stuck),
        stuck_bytes=sum(one.dead_bytes for _, one in stuck),
        missing_files=sum(not log.locate(store.path).exists() for log in files),
        stuck=tuple(_stuck_log(txn, log, one, unlisted) for log, one in stuck[:top]),
    )


def _whole(store: Store, log: LogFile, sums: FileSums, unlisted: UnlistedLedgers) -> FileSums:
    """Return the sums of a log, of which the index has SUMS."""
    own = read_own_sizes(store, log, sums.records)
    if own is None:
        return sums
    whole = FileSums()
    for ledger_id, size_bytes in own.items():
        whole.add(ledger_id, size_bytes, lives=not unlisted.is_freed(ledger_id))
    return whole


def _stuck_log(txn: Txn, log: LogFile, sums: FileSums, unlisted: UnlistedLedgers) -> StuckLog:
    _, ledger_id = sums.largest
    indexes = unlisted.indexes
    owners = (indexes[ledger_id],) if ledger_id in indexes else all_owners(txn, ledger_id)
    kept_for = owners[0].topic if owners else f"ledger {ledger_id}, which nothing references"
    return StuckLog(log.path, log.size_bytes, sums.dead_bytes, sums.live_bytes, sums.live_ledgers, kept_for)
