"""Changes of compacted views: a finished compaction, and attaching a compacted ledger that its topic no longer references.

A compaction moves the ``__compaction`` cursor and its property to a new ledger and deletes the old one. Upstream
acknowledges first and deletes afterwards (``CompactedTopicImpl``, ``AbstractTwoPhaseCompactor``); here both are one
transaction. The old ledger's entries stay on disk, so that undo only has to restore its metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.changes.log_writer import LedgerSpec, apply_written, write_ledgers
from pulsar_admin.store.changes.plan import (
    ChangeKind,
    ChangePart,
    ChangeReport,
    CompactionDetails,
    CompactionPart,
    Plan,
    delete_step,
    put_value_step,
    record_json,
)
from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.ledgermetadata import LedgerState, decode_ledger_metadata, ledger_path
from pulsar_admin.store.compaction.compactor import (
    Compaction,
    CompactionRules,
    Prepared,
    SourceOptions,
    loses_trimmed,
    passes_open_transaction,
    prepare,
    view_claims,
)
from pulsar_admin.store.compaction.forms import CompactionJob
from pulsar_admin.store.compaction.keys import keys_for
from pulsar_admin.store.compaction.status import read_detached
from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.db.tree import decode_node, find_node, tree_key
from pulsar_admin.store.errors import Refused
from pulsar_admin.store.model.broken_beside import unseen_position
from pulsar_admin.store.model.compacted_view import CompactedView, find_compaction_cursor
from pulsar_admin.store.model.cursors import COMPACTION_CURSOR, Cursor, Extent
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.topics import COMPACTED_LEDGER, Topic, read_topic
from pulsar_admin.store.names import Position, TopicName
from pulsar_admin.store.wording import counted

if TYPE_CHECKING:
    from pulsar_admin.store.engine.operation import Engine


class LedgerSwap(Struct, frozen=True):
    """A new compacted ledger for a topic. ``ledger_id``: None in a dry run.

    ``extent``: the ledger's entries and bytes.
    """

    topic: Topic
    cursor: Cursor | None
    horizon: Position
    ledger_id: int | None
    old_ledger_id: int | None
    extent: Extent
    details: CompactionDetails
    warnings: tuple[str, ...] = ()


def _plan_swap(txn: Txn, kind: ChangeKind, swap: LedgerSwap, new_ledger: tuple[Step, ...], now_ms: int) -> Plan:
    """Return the plan of a finished compaction; ``new_ledger`` holds the steps that create the new ledger's
    metadata.

    A dry run has no steps.
    """
    part = _swap_part(swap)
    if swap.ledger_id is None:
        return Plan(kind, txn.id, (), (part,), warnings=swap.warnings)
    steps = [*new_ledger, _cursor_step(txn, swap.topic, swap.cursor, swap.horizon, swap.ledger_id, now_ms)]
    old = swap.old_ledger_id
    warnings = swap.warnings
    if old is not None and find_node(txn, ledger_path(old)) is not None:
        own = ("compacted", str(swap.topic.name))
        others = [owner for owner in find_owners(txn, old) if (owner.kind, owner.topic) != own]
        if others:
            warnings += (f"ledger {old} stays: {others[0].kind} of {others[0].topic} references it too",)
        else:
            steps.append(delete_step(txn, ledger_path(old)))
    return Plan(kind, txn.id, tuple(steps), (part,), warnings=warnings)


def _swap_part(swap: LedgerSwap) -> ChangePart:
    """Return the part of the report that describes ``swap``."""
    mark_delete = None if swap.cursor is None else str(swap.cursor.mark_delete)
    return CompactionPart(
        topic=str(swap.topic.name),
        subscription=COMPACTION_CURSOR,
        before={"markDeletePosition": mark_delete, "compactedLedger": swap.old_ledger_id},
        after={"markDeletePosition": str(swap.horizon), "compactedLedger": swap.ledger_id},
        extent=swap.extent,
        compaction=swap.details,
    )


_ATTACH = ChangeKind("compaction attach", "attach a compacted ledger to {place}")


def plan_attach(reader: EntryReader, name: TopicName, ledger_id: int, now_ms: int) -> Plan:
    """Plan attaching the unreferenced ledger ``ledger_id`` to a topic as its compacted view.

    Raises TopicNotFound, LedgerNotFound, MetadataCorrupt, EntryCorrupt, and Refused if the ledger is incomplete or
    the topic has another view.
    """
    txn = reader.txn
    topic = read_topic(txn, name)
    cursor = find_compaction_cursor(reader, topic)
    named = None if cursor is None else cursor.state.properties.get(COMPACTED_LEDGER)
    if named not in (None, ledger_id) and find_node(txn, ledger_path(named)) is not None:
        raise Refused(
            f"{name} has a compacted view in ledger {named}: ledger {ledger_id} does not replace it",
            hint=f"see both: pulsar-admin ledgers info {named} {ledger_id}",
            topic=str(name),
            ledgerId=ledger_id,
        )
    before = {"markDeletePosition": None if cursor is None else str(cursor.mark_delete), "compactedLedger": named}
    if named == ledger_id:
        part = ChangePart(topic=str(name), subscription=COMPACTION_CURSOR, before=before, after=before)
        return Plan(_ATTACH, txn.id, (), (part,), untouched=frozenset((0,)))
    view = read_detached(reader, topic, ledger_id)
    part = ChangePart(
        topic=str(name),
        subscription=COMPACTION_CURSOR,
        before=before,
        after={"markDeletePosition": str(view.horizon), "compactedLedger": ledger_id},
        warnings=tuple(_attach_warnings(txn, topic, cursor, view)),
    )
    step = _cursor_step(txn, topic, cursor, view.horizon, ledger_id, now_ms)
    return Plan(_ATTACH, txn.id, (step,), (part,))


def _attach_warnings(txn: Txn, topic: Topic, cursor: Cursor | None, view: CompactedView) -> Iterator[str]:
    if cursor is not None and (unseen := unseen_position(txn, cursor)):
        yield f"{unseen}; it may name another compacted ledger"
    if topic.ids and view.horizon.ledger_id < topic.ids[0] and not _is_followed_by(txn, view.horizon, topic.ids[0]):
        yield (
            f"what the topic had between {view.horizon} and {topic.at_rank(0)} is gone: a key that was changed or "
            f"deleted there gets back its value of {view.horizon}"
        )
    ledger, own = (find_node(txn, path) for path in (ledger_path(view.ledger_id), topic.name.path))
    if ledger is not None and own is not None and ledger.stat.created_ms < own.stat.created_ms:
        yield f"ledger {view.ledger_id} is older than the topic's node: it may be of an earlier topic of that name"


def _is_followed_by(txn: Txn, position: Position, ledger_id: int) -> bool:
    """Whether ``ledger_id`` is the next id after ``position``, which is at the end of its ledger, by stored or imported
    metadata."""
    path = ledger_path(position.ledger_id)
    key = tree_key(path)
    row = txn.get("tree", key) or txn.get("base", key)
    if not row or ledger_id != position.ledger_id + 1:
        return False
    metadata = decode_ledger_metadata(decode_node(key, row).value, path)
    return metadata.state is LedgerState.CLOSED and metadata.last_entry_id <= position.entry_id


def _cursor_step(txn: Txn, topic: Topic, cursor: Cursor | None, horizon: Position, ledger_id: int, now_ms: int) -> Step:
    """Return the step that acknowledges everything up to ``horizon`` with the property of the compacted ledger.

    A broker's cumulative acknowledgement leaves the same state.
    """
    path = topic.name.cursor_path(COMPACTION_CURSOR)
    node = find_node(txn, path)
    properties = {} if cursor is None else dict(cursor.state.properties)
    properties[COMPACTED_LEDGER] = ledger_id
    # The position goes into the node: the cursor ledger of the broker's last session still says the old one.
    info = CursorInfo(
        cursors_ledger_id=-1,
        mark_delete=horizon,
        properties=properties,
        cursor_properties={} if cursor is None else cursor.info.cursor_properties,
        last_active_ms=now_ms if cursor is None else cursor.info.last_active_ms,
    )
    return put_value_step(txn, path, encode_cursor_info(info, b"" if node is None else node.value), now_ms)


# -- compacting --------------------------------------------------------------------------------------------------------
# Compacting a topic: find what stays, write it as a new ledger, put that in the place of the old one as one change.


_REDUCED = (
    "without placeholders: no broker writes that, clients of 4.0.8 crash on it and brokers may fail; "
    "--format indexed writes what every version reads"
)


class Compactor(Struct, frozen=True):
    """Compacts topics of a store, which is open for writing unless the compaction is only previewed.

    ``warn`` receives warnings for the user; ``progress`` (total, unit, label) opens a progress bar. Scans run on
    ``engine``.
    """

    store: Store
    engine: Engine | None
    now_ms: int
    memory_bytes: int | None
    warn: Callable[[str], None]
    progress: Callable[[int, str, str], AbstractContextManager[Callable[[int], None]]]

    def compact(self, name: TopicName, job: CompactionJob, *, previews: bool) -> ChangeReport:
        """Compact one topic as one change and return its report; with ``previews`` write nothing.

        Raises TopicNotFound, MetadataCorrupt, EntryCorrupt, StalePlan, DiskFull.
        """
        with open_reader(self.store, self.engine) as reader:
            topic = read_topic(reader.txn, name)
            source = SourceOptions(job.from_start, job.skip_damaged, job.by_key, job.everything, rule=job.rule)
            work = self._phase_one(reader, topic, source, job)
            if work is not None and passes_open_transaction(work[0].source, work[1].result.messages.uncommitted):
                self.warn(f"{name}: compacted up to an open transaction that the broker's snapshots do not contain")
                work = self._phase_one(reader, topic, replace(source, transactional=True), job)
            if work is None:
                return _unchanged(job, ChangePart(topic=str(name)), previews=previews)
            if loses_trimmed(reader, work[0]):
                old = work[0].old_ledger_id
                self.warn(
                    f"{name}: its first ledgers are trimmed; content that only the compacted ledger {old} has is lost"
                )
            cursor = work[0].cursor
            if cursor is not None and (unseen := unseen_position(reader.txn, cursor)):
                self.warn(f"{name}: {unseen}; content that only the compacted ledger that it names has is lost")
            return self._finish(reader, *work, job, previews=previews)

    def _phase_one(
        self, reader: EntryReader, topic: Topic, source: SourceOptions, job: CompactionJob
    ) -> tuple[Prepared, Compaction] | None:
        """Return the input and the compaction that knows which messages it keeps; None if there is nothing to compact."""
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
        """Run phase two and return the report: it only measures for a preview or an unchanged view, otherwise writes
        the ledger."""
        if previews or not prepared.source.parts:
            with self.progress(prepared.entries, "entries", f"{prepared.topic.name}: measuring") as advance:
                compaction.measure(advance)
            swap = _swap(prepared, compaction, None)
            if not compaction.result.is_changed and prepared.view is not None:
                return _unchanged(job, _swap_part(replace(swap, ledger_id=swap.old_ledger_id)), previews=previews)
            if previews:
                return _plan_swap(reader.txn, kind_of(job), swap, (), self.now_ms).preview()
        return self._write(reader, prepared, compaction, job)

    def _write(
        self, reader: EntryReader, prepared: Prepared, compaction: Compaction, job: CompactionJob
    ) -> ChangeReport:
        spec = LedgerSpec(view_claims(prepared.topic, prepared.horizon), DigestType.CRC32)
        with self.progress(prepared.entries, "entries", f"{prepared.topic.name}: phase two") as advance:
            written = write_ledgers(self.store, [(spec, compaction.payloads(advance))])
        with written:
            swap = _swap(prepared, compaction, written.ledgers[0].ledger_id)
            plan = _plan_swap(reader.txn, kind_of(job), swap, written.steps(reader.txn, self.now_ms), self.now_ms)
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
        messages_by_reason=record_json(result.messages),
        damaged=len(prepared.source.damaged) + prepared.source.lost,
    )


def kind_of(job: CompactionJob) -> ChangeKind:
    """Return the kind of change that ``job`` is in the audit log and its report."""
    what = "upgrade the compacted ledger of" if job.everything else "compact"
    return ChangeKind(job.command, f"{what} {{place}}")


def _unchanged(job: CompactionJob, part: ChangePart, *, previews: bool) -> ChangeReport:
    kind = kind_of(job)
    return ChangeReport(kind.command, kind.words, None, previews, (part,))
