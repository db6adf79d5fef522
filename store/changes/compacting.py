"""Compacting a topic: find what stays, write it as a new ledger, put that in the place of the old one as one change."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from store.changes.compaction import LedgerSwap, plan_swap, swap_part
from store.changes.log_writer import LedgerSpec, PayloadColumns, apply_written, write_ledgers
from store.changes.plan import ChangePart, ChangeReport, CompactionDetails, camel_keys
from store.codec.digest import DigestType
from store.compaction.forms import CompactionJob
from store.compaction.keys import keys_for
from store.compaction.phases import Compaction, CompactionRules
from store.compaction.prepare import (
    Prepared,
    SourceOptions,
    loses_trimmed,
    passes_open_transaction,
    prepare,
    view_claims,
)
from store.db.environment import Store
from store.frozen import frozen
from store.model.extent import Extent
from store.model.reader import EntryReader, open_reader
from store.model.topics import Topic, read_topic
from store.names import TopicName
from store.wording import counted

if TYPE_CHECKING:
    from store.engine.operation import Engine

_REDUCED = (
    "without placeholders: no broker writes that, clients of 4.0.8 crash on it and brokers may fail; "
    "--format indexed writes what every version reads"
)


@frozen
class Compactor:
    """Compacts topics of STORE, which is open for writing unless it only previews; scans run on ENGINE.

    ``warn`` is told what the user should know, ``progress`` (total, unit, label) opens what is told how far the work is.
    """

    store: Store
    engine: Engine | None
    now_ms: int
    memory_bytes: int | None
    warn: Callable[[str], None]
    progress: Callable[[int, str, str], AbstractContextManager[Callable[[int], None]]]

    def compact(self, name: TopicName, job: CompactionJob, *, previews: bool) -> ChangeReport:
        """Do JOB on a topic as one change and return its report; PREVIEWS: write nothing.

        Raises TopicNotFound, MetadataCorrupt, EntryCorrupt, StalePlan, DiskFull.
        """
        with open_reader(self.store, self.engine) as reader:
            topic = read_topic(reader.txn, name)
            source = SourceOptions(job.from_start, job.skip_damaged, job.by_key, job.everything, rule=job.rule)
            work = self._phase_one(reader, topic, source, job)
            if work is not None and passes_open_transaction(work[0].source, work[1].result.messages.uncommitted):
                self.warn(
                    f"{name}: a transaction is open of which the broker's snapshots do not tell: compacted up to it"
                )
                work = self._phase_one(reader, topic, replace(source, transactional=True), job)
            if work is None:
                return _unchanged(job, ChangePart(topic=str(name)), previews=previews)
            if loses_trimmed(reader, work[0]):
                old = work[0].old_ledger_id
                self.warn(f"{name}: its first ledgers are trimmed; what only the compacted ledger {old} holds goes")
            return self._finish(reader, *work, job, previews=previews)

    def _phase_one(
        self, reader: EntryReader, topic: Topic, source: SourceOptions, job: CompactionJob
    ) -> tuple[Prepared, Compaction] | None:
        """Find what stays; None where there is nothing to compact."""
        prepared = prepare(reader, topic, source)
        if prepared is None:
            return None
        rules = CompactionRules(job.form, job.retain_null_key, job.everything, keys_for(self.memory_bytes))
        compaction = Compaction(prepared.source, rules, topic.name.partition_index)
        if not job.everything:
            with self.progress(prepared.entries, "entries", f"{topic.name}: phase one") as advance:
                compaction.find_latest(advance)
            count = compaction.result.messages.undecodable
            if count:
                left = "entry cannot be decoded and stays whole", "entries cannot be decoded and stay whole"
                self.warn(f"{topic.name}: {counted(count, *left)}: compare with compaction verify")
        return prepared, compaction

    def _finish(
        self, reader: EntryReader, prepared: Prepared, compaction: Compaction, job: CompactionJob, *, previews: bool
    ) -> ChangeReport:
        """Phase two: measured for a preview and where nothing may have changed, else written."""
        if previews or not prepared.source.parts:
            with self.progress(prepared.entries, "entries", f"{prepared.topic.name}: measuring") as advance:
                compaction.measure(advance)
            swap = _swap(prepared, compaction, None)
            if not compaction.result.is_changed and prepared.view is not None:
                return _unchanged(job, swap_part(replace(swap, ledger_id=swap.old_ledger_id)), previews=previews)
            if previews:
                return plan_swap(reader.txn, job.command, swap, (), self.now_ms).preview()
        return self._write(reader, prepared, compaction, job)

    def _write(
        self, reader: EntryReader, prepared: Prepared, compaction: Compaction, job: CompactionJob
    ) -> ChangeReport:
        spec = LedgerSpec(view_claims(prepared.topic, prepared.horizon), DigestType.CRC32)
        with self.progress(prepared.entries, "entries", f"{prepared.topic.name}: phase two") as advance:
            payloads = (
                found if isinstance(found, bytes) else PayloadColumns(found.data, found.starts, found.sizes)
                for found in compaction.payloads(advance)
            )
            written = write_ledgers(self.store, [(spec, payloads)])
        with written:
            swap = _swap(prepared, compaction, written.ledgers[0].ledger_id)
            plan = plan_swap(reader.txn, job.command, swap, written.steps(reader.txn, self.now_ms), self.now_ms)
            return apply_written(written, plan, self.now_ms)


def _swap(prepared: Prepared, compaction: Compaction, ledger_id: int | None) -> LedgerSwap:
    result = compaction.result
    batches = result.reduced_batches
    warnings = (f"{counted(batches, 'batch is', 'batches are')} {_REDUCED}",) if batches else ()
    kept = result.messages.retained + result.messages.encrypted + result.messages.undecodable
    return LedgerSwap(
        prepared.topic,
        prepared.cursor,
        prepared.horizon,
        ledger_id,
        prepared.old_ledger_id,
        Extent(result.entries_kept, kept, result.bytes_kept),
        _details(prepared, compaction),
        warnings,
    )


def _details(prepared: Prepared, compaction: Compaction) -> CompactionDetails:
    result, latest = compaction.result, compaction.latest
    return CompactionDetails(
        format=compaction.rules.form,
        keys=None if latest is None else latest.keys,
        deleted_keys=None if latest is None else latest.nulls,
        entries_read=result.entries_read,
        bytes_read=result.bytes_read,
        bytes_saved=result.bytes_read - result.bytes_kept,
        payload_bytes={"before": result.message_bytes_read, "after": result.message_bytes_kept},
        messages_by_reason={key: getattr(result.messages, name) for name, key in camel_keys(type(result.messages))},
        damaged=len(prepared.source.damaged) + prepared.source.lost,
    )


def _unchanged(job: CompactionJob, part: ChangePart, *, previews: bool) -> ChangeReport:
    return ChangeReport(None, previews, (part,), command=job.command)
