"""``delayed build``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from commands.delayed.choosing import delaying, iter_delaying
from pulsar_admin.columns import Column
from pulsar_admin.context import App
from pulsar_admin.options import TopicSelection, command, gather, pass_app
from store.errors import DiskFull, IndexCorrupt, StoreBusy, TopicNotFound, Unsupported
from store.ledgers import open_reader
from store.meta import Store, open_store

if TYPE_CHECKING:
    from store.cursors import Cursor
    from store.delayed.build import BuildResult
    from store.names import TopicName

_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("CURSOR", "cursor"),
    Column("MESSAGES", "messages", "number"),
    Column("ADDED", "added", "number"),
    Column("REMOVED", "removed", "number"),
    Column("PARTITIONS", "partitions", "number"),
    Column("BYTES", "bytes", "number"),
)


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What to build."""

    subscription: str | None
    rebuild: bool


@command(
    "build",
    examples=[
        "pulsar-admin delayed build acme/delayed/reminders",
        "pulsar-admin delayed build --all-topics --rebuild -o jsonl",
        "pulsar-admin delayed build acme/delayed/reminders --dry-run",
    ],
    output="A row a subscription: the index cursor, messages held, added and removed, partitions, bytes at rest.",
    errors=[TopicNotFound, IndexCorrupt, Unsupported, StoreBusy, DiskFull],
    uses=["dry_run"],
)
@delaying
@click.option("--rebuild", is_flag=True, help="Make the index anew, whatever there is.")
@gather(BuildOptions)
@pass_app
def build(app: App, selection: TopicSelection, options: BuildOptions) -> None:
    """Build the index of delayed messages, or bring it up to date.

    Every durable subscription but the broker's own gets one: whether it is Shared is not on disk, and Exclusive and Failover
    subscriptions ignore delays. Goes on from the index cursor; acknowledged messages leave; one transaction a subscription.
    """
    app.emit_rows(list(_build_all(app, selection, options)), _COLUMNS)


def _build_all(app: App, selection: TopicSelection, options: BuildOptions) -> Iterator[dict[str, Any]]:  # Any: JSON
    with open_reader(app.store) as reader:
        chosen = [(topic.name, cursor) for topic, cursor in iter_delaying(reader, selection, options.subscription)]
    if app.settings.dry_run:
        yield from app.each(chosen, lambda one: _build(app, app.store, one, options))
        return
    app.close()
    with (
        open_store(app.settings.store, writable=True) as store,
        app.progress(len(chosen), "subscriptions", "delayed build") as bar,
    ):
        for row in app.each(chosen, lambda one: _build(app, store, one, options)):
            bar.advance(1)
            yield row


def _build(app: App, store: Store, chosen: tuple[TopicName, Cursor], options: BuildOptions) -> dict[str, Any]:
    from pulsar_admin.jsonify import to_json
    from store.delayed.build import apply_draft, draft_index, result_of
    from store.topics import read_topic

    name, cursor = chosen
    with open_reader(store) as reader:
        topic = read_topic(reader.txn, name)
        draft = draft_index(reader, topic, cursor, app.now_ms, rebuild=options.rebuild)
    dry = app.settings.dry_run
    result = result_of(draft, draft.index if dry else apply_draft(store, draft))
    _warn(app, result)
    row: dict[str, Any] = to_json(result)
    return {**row, "dryRun": dry}


def _warn(app: App, result: BuildResult) -> None:
    if result.missing or result.unreadable:
        count = result.missing + result.unreadable
        app.warn(f"{result.topic} {result.subscription}: {count} entries that wait are lost or damaged")
        app.problems(count)
