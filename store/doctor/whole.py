"""What concerns the store as a whole: what a crash cost, leaked ledgers, dead bytes, full disks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import disk_usage

from store.codec.ledgermetadata import LedgerState
from store.db.blocks import Block
from store.db.environment import Store, Txn
from store.db.files import FileMode, iter_logs
from store.doctor.diagnosis import Diagnosis
from store.doctor.findings import diagnosis_of
from store.errors import StoreError
from store.facts.unlisted import Unlisted
from store.facts.vanished import kept_ledgers
from store.model.cursors import Cursor
from store.model.ledgers import find_metadata, find_times
from store.model.topics import Topic
from store.names import FileKind
from store.reports.disk_totals import read_disk_totals
from store.reports.ledgers import iter_orphans
from store.rules.cause import Severity
from store.timespec import shown_time
from store.wording import counted, plural

GIBIBYTE = 1 << 30
LEAKED_BYTES = GIBIBYTE
"""From here on leaked ledgers and dead bytes are a warning."""
FULL = 0.95
"""BookKeeper's diskUsageThreshold: a bookie turns read-only."""
COMPACTED_BELOW = 0.5
"""Pulsar's majorCompactionThreshold of entry logs."""
_LEAKS = {
    "compacted-ledger": "leaked-compacted-ledgers",
    "delayed-index-bucket": "leaked-buckets",
    "schema": "leaked-schema-ledgers",
}
_NAMED = 5


@dataclass(slots=True)
class CrashCost:
    """What nobody closed: counted while topics are looked at."""

    topics: int = 0
    last_write_ms: int = 0
    examples: list[str] = field(default_factory=list)
    subscriptions: list[str] = field(default_factory=list)

    def add(self, txn: Txn, topic: Topic, cursors: Sequence[Cursor]) -> None:
        """Count TOPIC when its last ledger is open, and those of its CURSORS whose ledger is."""
        if topic.ids and _is_open(txn, topic.ids[-1]):
            self.topics += 1
            if len(self.examples) < _NAMED:
                self.examples.append(str(topic.name))
            times = find_times(txn, topic.ids[-1])
            if times is not None and times.sums.end_publish_ms is not None:
                stamped = times.sums.broker_count > 0
                newest = times.sums.broker_max_ms if stamped else times.sums.publish_max_ms
                self.last_write_ms = max(self.last_write_ms, newest)
        self.subscriptions += [
            f"{cursor.name} of {topic.name}"
            for cursor in cursors
            if cursor.info.cursors_ledger_id >= 0 and _is_open(txn, cursor.info.cursors_ledger_id)
        ]

    def diagnoses(self) -> Iterator[Diagnosis]:
        """Yield what was counted."""
        if self.topics:
            last = f"; the last write was at {shown_time(self.last_write_ms)}" if self.last_write_ms else ""
            yield diagnosis_of(
                "not-closed",
                "ledgers",
                f"the last ledger of {counted(self.topics, 'topic')} is open: the cluster was killed, or copied "
                f"while it ran{last}",
                {"topics": self.topics, "lastWrite": self.last_write_ms or None, "examples": self.examples},
            )
        if self.subscriptions:
            count, named = len(self.subscriptions), self.subscriptions[:_NAMED]
            yield diagnosis_of(
                "acknowledgements-not-stored",
                "subscriptions",
                f"{counted(count, 'subscription was', 'subscriptions were')} not closed: what was acknowledged in the "
                f"last minute may come again, to {', '.join(named)}{' …' if count > _NAMED else ''}",
                {"subscriptions": count, "examples": named},
            )


def _is_open(txn: Txn, ledger_id: int) -> bool:
    try:
        metadata = find_metadata(txn, ledger_id)
    except StoreError:
        return False
    return metadata is not None and metadata.state is not LedgerState.CLOSED


def journal_only(store: Store, txn: Txn) -> Iterator[Diagnosis]:
    """Yield the journals that have entries which no entry log has."""
    journals = {log.file_id: log for log in iter_logs(txn) if log.kind == FileKind.JOURNAL}
    counts = {file_id: [0, 0] for file_id in journals}
    if not journals:
        return
    for key, row in txn.items("entries"):
        try:
            parts = list(Block(key, row).iter_parts())
        except StoreError:
            continue  # the index's check tells
        for file_id, records, size_bytes in parts:
            if file_id in counts:
                counts[file_id][0] += records
                counts[file_id][1] += size_bytes
    for file_id, (entries, size_bytes) in counts.items():
        if entries:
            log = journals[file_id]
            yield diagnosis_of(
                "entries-only-in-journal",
                str(log.locate(store.path)),
                f"{counted(entries, 'entry is', 'entries are')} in this journal and in no entry log yet",
                {"bookie": log.bookie or None, "entries": entries, "bytes": size_bytes},
            )


def leaks(store: Store, txn: Txn) -> Iterator[Diagnosis]:
    """Yield the ledgers that nothing references, summed up by what they claim to be."""
    sums: dict[str, list[int]] = {}
    examples: dict[str, list[int]] = {}
    kept = kept_ledgers(txn)
    for orphan in iter_orphans(txn):
        if orphan.ledger_id in kept:
            continue  # it may be the only copy of something: ``store.rules.ledgers`` tells
        if orphan.reason in (Unlisted.NEWER, Unlisted.UNLISTED):
            continue  # ``store.rules.ledgers`` tells
        code = _leak_of(orphan.reason, orphan.claims)
        total = sums.setdefault(code, [0, 0, 0])
        for index, more in enumerate((1, orphan.entries, orphan.size_bytes)):
            total[index] += more
        examples.setdefault(code, [])
        if len(examples[code]) < _NAMED:
            examples[code].append(orphan.ledger_id)
    for code, (ledgers, entries, size_bytes) in sums.items():
        is_free = code in ("ledgers-deleted", "leaked-index")
        what = plural(ledgers, "ledger")
        yield diagnosis_of(
            code,
            f"{what} {', '.join(map(str, examples[code]))}{' …' if ledgers > _NAMED else ''}",
            f"{counted(ledgers, 'ledger')} of {counted(size_bytes, 'byte')}"
            + ("; their metadata is gone" if code == "ledgers-deleted" else " that nothing references"),
            {
                "ledgers": ledgers,
                "entries": entries,
                "bytes": size_bytes,
                "ledgerIds": examples[code],
                "ledgerId": examples[code][0],
            },
            Severity.WARNING if size_bytes >= LEAKED_BYTES and not is_free else Severity.NOTE,
        )


def _leak_of(reason: str, claims: dict[str, str]) -> str:
    if reason == Unlisted.DELETED:
        return "ledgers-deleted"
    if reason == "leaked-index":
        return "leaked-index"
    component = claims.get("component", "")
    if component == "managed-ledger":
        return "leaked-cursor-ledgers" if "pulsar/cursor" in claims else "leaked-topic-ledgers"
    return _LEAKS.get(component, "leaked-ledgers")


def dead_bytes(store: Store, txn: Txn) -> Iterator[Diagnosis]:
    """Yield the dead bytes in entry logs that are too full of living ones for compaction."""
    totals = read_disk_totals(store, txn, 1000)
    kept = [log for log in totals.stuck if log.live_bytes >= COMPACTED_BELOW * log.size_bytes]
    size = sum(log.dead_bytes for log in kept)
    if size:
        worst = kept[0]
        yield diagnosis_of(
            "dead-bytes-kept",
            "entry logs",
            f"{counted(size, 'dead byte')} in {counted(len(kept), 'entry log')} that compaction leaves alone, as "
            f"half or more of"
            f" each lives; {Path(worst.path).name} is kept for {worst.kept_for}",
            {"bytes": size, "logs": len(kept), "worst": worst.path, "keptFor": worst.kept_for},
            Severity.WARNING if size >= 10 * GIBIBYTE else Severity.NOTE,
        )


def full_disks(store: Store, txn: Txn) -> Iterator[Diagnosis]:
    """Yield the disks of files that were imported where they lie, and that are too full for a bookie."""
    folders = {log.locate(store.path).parent for log in iter_logs(txn) if log.mode is FileMode.REFERENCED}
    seen = set()
    for folder in sorted(folders):
        try:
            device, usage = folder.stat().st_dev, disk_usage(folder)
        except OSError:
            continue
        if device not in seen and usage.total and usage.used / usage.total >= FULL:
            seen.add(device)
            yield diagnosis_of(
                "disk-full",
                str(folder),
                f"{usage.used / usage.total:.0%} of the disk is used, {counted(usage.free, 'byte')} free",
                {"used": usage.used, "free": usage.free, "total": usage.total},
            )
