"""``delayed build``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from commands.delayed.choosing import UNKNOWN_TYPE, delaying, iter_delaying
from pulsar_admin.columns import Column
from pulsar_admin.context import App
from pulsar_admin.options import TopicSelection, command, gather, pass_app
from store.db.environment import Store
from store.errors import DiskFull, IndexCorrupt, StoreBusy, TopicNotFound, Unsupported
from store.model.reader import open_reader
from store.wording import counted

if TYPE_CHECKING:
    from store.delayed.build import BuildResult, Draft, Wanted
    from store.engine.operation import Engine

Json = dict[str, Any]  # Any: JSON values

_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("CURSOR", "cursor", drop=3),
    Column("MESSAGES", "messages", "number"),
    Column("ADDED", "added", "number"),
    Column("REMOVED", "removed", "number"),
    Column("PARTITIONS", "partitions", "number", drop=1),
    Column("BYTES", "bytes", "bytes", drop=2, sums=True),
)


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What to build."""

    subscription: str | None
    rebuild: bool


@dataclass(frozen=True, slots=True)
class _Manner:
    """How to build. ``alone``: one subscription was meant, its error ends the command."""

    engine: Engine | None
    rebuild: bool
    alone: bool


@command(
    "build",
    examples=[
        "pulsar-admin delayed build acme/delayed/reminders",
        "pulsar-admin delayed build --all-topics --rebuild -o jsonl",
        "pulsar-admin delayed build acme/delayed/reminders --dry-run",
    ],
    elsewhere=["pulsar-admin delayed build --all-topics --spark"],
    output="A row a subscription: the index cursor, messages held, added and removed, partitions, bytes at rest.",
    errors=[TopicNotFound, IndexCorrupt, Unsupported, StoreBusy, DiskFull],
    uses=["dry_run", "spark"],
    no_plan="an index is not kept as a plan: it is derived, and built again at any time",
)
@delaying
@click.option("--rebuild", is_flag=True, help="Rebuild the index from scratch.")
@gather(BuildOptions)
@pass_app
def build(app: App, selection: TopicSelection, options: BuildOptions) -> None:
    """Build the index of delayed messages, or bring it up to date.

    Every durable subscription except the broker's own gets an index: the disk does not record whether it is Shared, and
    Exclusive and Failover subscriptions ignore delays. The build continues from the index cursor and removes
    acknowledged messages, in one transaction per subscription. The entries of many subscriptions are read together,
    with --spark on Spark.
    """
    app.emit_rows(list(_build_all(app, selection, options)), _COLUMNS)


def _build_all(app: App, selection: TopicSelection, options: BuildOptions) -> Iterator[Json]:
    from store.delayed.build import Wanted, iter_turns

    with app.session.reader() as reader:
        chosen = [Wanted.of(*one) for one in iter_delaying(app, reader, selection, options.subscription)]
    app.note(UNKNOWN_TYPE)
    with ExitStack() as stack:
        engine = stack.enter_context(app.bulk(sum(wanted.bytes for wanted in chosen)))
        manner = _Manner(engine, options.rebuild, len(chosen) == 1)
        store = app.store
        if not app.settings.dry_run:
            store = stack.enter_context(app.open_for_writing())
        bar = stack.enter_context(app.progress(len(chosen), "subscriptions", "delayed build", resumes=True))
        for turn in iter_turns(chosen):
            for row in _build(app, store, turn, manner):
                bar.advance(1)
                yield row


def _build(app: App, store: Store, turn: list[Wanted], manner: _Manner) -> Iterator[Json]:
    """Read what the subscriptions of TURN lack, all together; then write each in a transaction of its own."""
    from pulsar_admin.jsonify import to_json
    from store.delayed.build import apply_draft, draft_index, finish_draft, read_drafts, result_of
    from store.delayed.runs import open_runs

    commits = 0

    def write(draft: Draft) -> Json:
        nonlocal commits
        dry = app.settings.dry_run
        index = draft.index if dry else apply_draft(store, draft, commits)
        commits += not dry
        result = result_of(draft, index)
        _warn(app, result)
        row: Json = to_json(result)
        return {**row, "dryRun": dry}

    with open_runs() as file:
        with open_reader(store, manner.engine) as reader:
            drafts = list(
                app.each(
                    turn,
                    lambda wanted: draft_index(reader, wanted, app.now_ms, file, rebuild=manner.rebuild),
                    alone=manner.alone,
                )
            )
            read_drafts(drafts)
            drafts = list(app.each(drafts, finish_draft, alone=manner.alone))
        yield from app.each(drafts, write, alone=manner.alone)


def _warn(app: App, result: BuildResult) -> None:
    if result.missing or result.unreadable:
        count = result.missing + result.unreadable
        app.warn(
            f"{result.topic} {result.subscription}: {counted(count, 'waiting entry is', 'waiting entries are')} lost or damaged"
        )
        app.problems(count)
