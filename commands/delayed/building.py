"""``delayed build``."""

from __future__ import annotations

import click
from msgspec import Struct

from pulsar_admin.columns import Column
from pulsar_admin.commands.delayed.choosing import UNKNOWN_TYPE, delaying
from pulsar_admin.context import App
from pulsar_admin.jsonify import to_json
from pulsar_admin.options import TopicSelection, command, gather, pass_app
from pulsar_admin.store.errors import DiskFull, IndexCorrupt, StoreBusy, TopicNotFound, Unsupported

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


class BuildOptions(Struct, frozen=True):
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
    dry = app.settings.dry_run
    found = app.session.delayed(selection, options.subscription).build(rebuild=options.rebuild, dry_run=dry)
    rows = [{**to_json(result), "dryRun": dry} for result in found]
    app.note(UNKNOWN_TYPE)
    app.emit_rows(rows, _COLUMNS)
