"""``compaction run`` and ``upgrade``: a new compacted ledger in place of the one a topic has."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import click

from commands.compaction.sizes import bytes_of
from commands.topics.answers import selected
from pulsar_admin.columns import Column
from pulsar_admin.context import App
from pulsar_admin.jsonify import camel_case
from pulsar_admin.options import TopicSelection, command, gather, pass_app, topics_argument
from store.compaction.forms import FORMATS, INDEXED, RULE_4_2, RULES
from store.db.environment import Store
from store.errors import EntryCorrupt, MetadataCorrupt, StalePlan, TopicNotFound
from store.model.ledgers import EntryReader, open_reader
from store.model.topics import Topic, read_topic
from store.names import TopicName
from store.wording import counted

if TYPE_CHECKING:
    from store.changes.compaction import LedgerSwap
    from store.changes.report import ChangePart, ChangeReport, CompactionDetails
    from store.compaction.phases import Compaction
    from store.compaction.prepare import Prepared, SourceOptions
    from store.engine.operation import Engine

KEEP, BY_KEY = "keep", "by-key"
_REDUCED = (
    "without placeholders: no broker writes that, clients of 4.0.8 crash on it and brokers may fail; "
    "--format indexed writes what every version reads"
)

_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("CHANGE", "change", "number"),
    Column("HORIZON", lambda row: row["after"] and row["after"]["markDeletePosition"]),
    Column("LEDGER", lambda row: row["after"] and row["after"]["compactedLedger"], "number"),
    Column("ENTRIES", "entries", "number"),
    Column("MESSAGES", "messages", "number"),
    Column("BYTES", "bytes", "number"),
    Column("SAVED", "bytesSaved", "number"),
)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to compact."""

    retain_null_key: bool = False
    form: str = INDEXED
    rule: str = RULE_4_2
    encrypted: str = KEEP
    from_start: bool = False
    skip_damaged: bool = False


@dataclass(frozen=True, slots=True)
class _Job:
    """What to do with each topic. ``everything``: rewrite what is kept, drop nothing (``upgrade``). ``previews``: write nothing."""

    command: str
    options: RunOptions
    everything: bool = False
    previews: bool = False


@command(
    "run",
    changes=True,
    writes_first=True,
    uses=("spark",),
    examples=[
        "pulsar-admin compaction run acme/orders/compacted-single --dry-run",
        "pulsar-admin compaction run acme/orders/compacted-single --format legacy",
    ],
    output="The change: horizon and compacted ledger before and after, keys, messages by reason, bytes, and its undo command.",
    errors=[TopicNotFound, MetadataCorrupt, EntryCorrupt, StalePlan],
)
@topics_argument
@click.option("--retain-null-key", is_flag=True, help="Keep messages without a key; the default drops them.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default=INDEXED,
    show_default=True,
    help="Of batches. indexed: as Pulsar 4.2, indexes of what stays in the metadata and placeholders for the rest. "
    "legacy: as 4.0, placeholders alone. reduced: indexes alone, which clients of 4.0 cannot read.",
)
@click.option(
    "--rule",
    type=click.Choice(RULES),
    default=RULE_4_2,
    show_default=True,
    help="Null values outside batches. 4.2: what says so or is empty. 4.0: what states an uncompressed size of 0.",
)
@click.option(
    "--encrypted",
    type=click.Choice([KEEP, BY_KEY]),
    default=KEEP,
    show_default=True,
    help="Encrypted batches: keep them all, or take each for one message with the entry's key, as 4.0.8 does.",
)
@click.option(
    "--from-start", is_flag=True, help="Read the topic from its first entry, not the compacted ledger so far."
)
@click.option("--skip-damaged", is_flag=True, help="Leave out what cannot be read; older messages may come back.")
@gather(RunOptions)
@pass_app
def run(app: App, selection: TopicSelection, options: RunOptions) -> None:
    """Compact topics: keep the latest message of every key in a new compacted ledger.

    Null values delete their keys. Batches that are encrypted or cannot be decoded stay whole; markers and messages of aborted
    transactions go. Brokers and clients of 4.0 and 4.2 read the default format; docs/howto/compaction.md compares the three.
    """
    _each_topic(app, selection, _Job("compaction run", options))


@command(
    "upgrade",
    changes=True,
    writes_first=True,
    examples=["pulsar-admin compaction upgrade acme/orders/compacted --dry-run"],
    output="The change, with payload bytes before and after.",
    errors=[TopicNotFound, MetadataCorrupt, EntryCorrupt, StalePlan],
)
@topics_argument
@pass_app
def upgrade(app: App, selection: TopicSelection) -> None:
    """Rewrite compacted ledgers as Pulsar 4.2 writes them: the indexes of what stays are in the metadata of every batch."""
    _each_topic(app, selection, _Job("compaction upgrade", RunOptions(), everything=True))


def _each_topic(app: App, selection: TopicSelection, job: _Job) -> None:
    from store.changes.intent import WritingPlan

    with app.store.read() as txn:
        names, txn_id = selected(txn, selection), txn.id
        size_bytes = 0 if job.everything else bytes_of(txn, names)

    def compact(store: Store, job: _Job) -> tuple[ChangeReport, ...]:
        with app.bulk(size_bytes) as engine:
            return tuple(app.each(names, lambda name: _compact(app, store, engine, name, job)))

    preview = replace(job, previews=True)
    plan = WritingPlan(job.command, txn_id, lambda: compact(app.store, preview), lambda store: compact(store, job))
    app.change(plan, _COLUMNS)


def _compact(app: App, store: Store, engine: Engine | None, name: TopicName, job: _Job) -> ChangeReport:
    from store.changes.report import ChangePart
    from store.compaction.prepare import SourceOptions, loses_trimmed, passes_open_transaction

    options = job.options
    with open_reader(store, engine) as reader:
        topic = read_topic(reader.txn, name)
        source = SourceOptions(
            options.from_start, options.skip_damaged, options.encrypted == BY_KEY, job.everything, rule=options.rule
        )
        work = _phase_one(app, reader, topic, source, job)
        if work is not None and passes_open_transaction(work[0].source, work[1].result.messages.uncommitted):
            app.warn(f"{name}: a transaction is open of which the broker's snapshots do not tell: compacted up to it")
            work = _phase_one(app, reader, topic, replace(source, transactional=True), job)
        if work is None:
            return _unchanged(job, ChangePart(topic=str(name)))
        if loses_trimmed(reader, work[0]):
            app.warn(
                f"{name}: its first ledgers are trimmed; what only the compacted ledger {work[0].old_ledger_id} holds goes"
            )
        return _finish(app, store, reader, *work, job)


def _phase_one(
    app: App, reader: EntryReader, topic: Topic, source: SourceOptions, job: _Job
) -> tuple[Prepared, Compaction] | None:
    """Find what stays; None where there is nothing to compact."""
    from store.compaction.keys import keys_for
    from store.compaction.phases import Compaction, CompactionRules
    from store.compaction.prepare import prepare

    prepared = prepare(reader, topic, source)
    if prepared is None:
        return None
    limit_keys = keys_for(app.settings.memory_bytes)
    rules = CompactionRules(job.options.form, job.options.retain_null_key, job.everything, limit_keys)
    compaction = Compaction(prepared.source, rules, topic.name.partition_index)
    if not job.everything:
        with app.progress(prepared.entries, "entries", f"{topic.name}: phase one") as bar:
            compaction.find_latest(bar.advance)
        if compaction.result.messages.undecodable:
            count = compaction.result.messages.undecodable
            left = counted(count, "entry cannot be decoded and stays whole", "entries cannot be decoded and stay whole")
            app.warn(f"{topic.name}: {left}: compare with compaction verify")
    return prepared, compaction


def _finish(
    app: App, store: Store, reader: EntryReader, prepared: Prepared, compaction: Compaction, job: _Job
) -> ChangeReport:
    """Phase two: measured for a dry run and where nothing may have changed, else written."""
    from store.changes.compaction import plan_swap, swap_part

    if job.previews or not prepared.source.parts:
        with app.progress(prepared.entries, "entries", f"{prepared.topic.name}: measuring") as bar:
            compaction.measure(bar.advance)
        swap = _swap(prepared, compaction, None)
        if not compaction.result.is_changed and prepared.view is not None:
            return _unchanged(job, swap_part(replace(swap, ledger_id=swap.old_ledger_id)))
        if job.previews:
            return plan_swap(reader.txn, job.command, swap, (), app.now_ms).preview()
    return _write(app, store, reader, prepared, compaction, job)


def _write(
    app: App, store: Store, reader: EntryReader, prepared: Prepared, compaction: Compaction, job: _Job
) -> ChangeReport:
    from store.changes.compaction import plan_swap
    from store.changes.log_writer import LedgerSpec, PayloadColumns, apply_written, write_ledgers
    from store.codec.digest import DigestType
    from store.compaction.prepare import compacted_claims
    from store.compaction.view import COMPACTED_COMPONENT

    claims = compacted_claims(prepared.topic, prepared.horizon)
    spec = LedgerSpec(COMPACTED_COMPONENT.decode(), claims, DigestType.CRC32)
    with app.progress(prepared.entries, "entries", f"{prepared.topic.name}: phase two") as bar:
        payloads = (
            found if isinstance(found, bytes) else PayloadColumns(found.data, found.starts, found.sizes)
            for found in compaction.payloads(bar.advance)
        )
        written = write_ledgers(store, [(spec, payloads)])
    swap = _swap(prepared, compaction, written.ledgers[0].ledger_id)
    plan = plan_swap(reader.txn, job.command, swap, written.steps(reader.txn, app.now_ms), app.now_ms)
    return apply_written(written, plan, app.now_ms)


def _swap(prepared: Prepared, compaction: Compaction, ledger_id: int | None) -> LedgerSwap:
    from store.changes.compaction import LedgerSwap
    from store.model.extent import Extent

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
    from store.changes.report import CompactionDetails

    result, latest = compaction.result, compaction.latest
    return CompactionDetails(
        format=compaction.rules.form,
        keys=None if latest is None else latest.keys,
        deleted_keys=None if latest is None else latest.nulls,
        entries_read=result.entries_read,
        bytes_read=result.bytes_read,
        bytes_saved=result.bytes_read - result.bytes_kept,
        payload_bytes={"before": result.message_bytes_read, "after": result.message_bytes_kept},
        messages_by_reason={camel_case(name): value for name, value in asdict(result.messages).items()},
        damaged=len(prepared.source.damaged) + prepared.source.lost,
    )


def _unchanged(job: _Job, part: ChangePart) -> ChangeReport:
    from store.changes.report import ChangeReport

    return ChangeReport(None, job.previews, (part,), command=job.command)
