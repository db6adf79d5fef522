"""``topics get-backlog-size``, ``topics analyze-backlog``."""

from __future__ import annotations

import click

from pulsar_admin.columns import Column, caution
from pulsar_admin.commands.topics.answers import TOPIC_COLUMN, answer, choose
from pulsar_admin.context import App
from pulsar_admin.options import POSITION, TopicSelection, command, pass_app, subscription_option, topics_argument
from pulsar_admin.store.errors import MetadataCorrupt, SubscriptionNotFound, TopicNotFound
from pulsar_admin.store.names import Position

_SIZE_COLUMNS = (TOPIC_COLUMN, Column("BACKLOG BYTES", "backlogSize", "bytes", tone=caution, sums=True))


@command(
    "get-backlog-size",
    examples=[
        "pulsar-admin topics get-backlog-size public/default/plain",
        "pulsar-admin topics get-backlog-size public/default/plain -m 9:3",
        "pulsar-admin topics get-backlog-size --pattern 'acme/*' -o jsonl",
    ],
    output="Bytes after the position, estimated as the broker does. Several topics: one row each.",
    errors=[TopicNotFound, MetadataCorrupt],
)
@topics_argument
@click.option(
    "-m",
    "--messageId",
    "position",
    type=POSITION,
    default="-1:-1",
    help="Count from after this position [the whole topic].",
)
@pass_app
def get_backlog_size(app: App, selection: TopicSelection, position: Position) -> None:
    """Show how many bytes follow a position."""
    with app.session.read() as txn:
        chosen = choose(app, txn, selection)
        sizes = list(chosen.each(app, lambda name: app.session.topic(name).backlog_size(position)))
    if chosen.several:
        app.emit_rows(({"topic": str(name), "backlogSize": size} for name, size in sizes), _SIZE_COLUMNS)
    else:
        app.emit(sizes[0][1])


_ANALYSIS_COLUMNS = (
    Column("ENTRIES", "entries", "number"),
    Column("MESSAGES", "messages", "number"),
    Column("FIRST", "firstMessageId"),
    Column("LAST", "lastMessageId"),
)


@command(
    "analyze-backlog",
    examples=[
        "pulsar-admin topics analyze-backlog public/default/plain -s holes",
        "pulsar-admin topics analyze-backlog public/default/batched -s batch-holes -p earliest",
    ],
    output="Entries and messages left, first and last of them, with upstream's keys. Nothing is capped: `aborted` is false.",
    errors=[TopicNotFound, SubscriptionNotFound, MetadataCorrupt],
    uses=["spark"],
)
@topics_argument
@subscription_option
@click.option("-p", "--position", type=POSITION, help="Count from here, even before the mark-delete position.")
@pass_app
def analyze(app: App, selection: TopicSelection, subscription: str, position: Position | None) -> None:
    """Count a subscription's backlog.

    Individually deleted entries are left out; acknowledgements inside a batch are not subtracted, as the broker does. An entry
    whose bytes are lost counts as one message and makes the exit code 1.
    """
    with app.bulk():
        answer(app, selection, lambda topic: topic.cursor(subscription).analyze(position), _ANALYSIS_COLUMNS)
