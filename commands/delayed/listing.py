"""``delayed due`` and ``delayed histogram``: what falls due when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from pulsar_admin.columns import Column, time_text, zone_name
from pulsar_admin.commands.delayed.choosing import delaying, noted
from pulsar_admin.context import App
from pulsar_admin.options import TIME, AliasedOption, TopicSelection, command, gather, pass_app
from pulsar_admin.pictures import picture_option, require_plot
from pulsar_admin.store.errors import (
    AlreadyExists,
    DiskFull,
    IndexCorrupt,
    InvalidValue,
    MissingComponent,
    TopicNotFound,
)
from pulsar_admin.store.names import LONG_MAX, LONG_MIN, Position
from pulsar_admin.store.timespec import format_duration_ms
from pulsar_admin.visible import clean_document

if TYPE_CHECKING:
    from pulsar_admin.plot import Chart
    from pulsar_admin.store.delayed.waiting import Waiting
    from pulsar_admin.store.model.reader import EntryReader

Json = dict[str, Any]  # Any: JSON values
_COLUMNS_MAX = 60

REPLAY_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("DELIVER AT", "deliverAt", "time"),
    Column("MESSAGE ID", lambda row: f"{row['ledgerId']}:{row['entryId']}"),
)
DUE_COLUMNS = (*REPLAY_COLUMNS, Column("DUE", "dueTime", "time", drop=1))
HISTOGRAM_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("FROM", "start", "time"),
    Column("WIDTH", "width", "duration"),
    Column("MESSAGES", "messages", "number"),
)


@command(
    "due",
    examples=[
        "pulsar-admin delayed due acme/delayed/reminders -s workers --end-time 2026-11-22T00:00:00Z",
        "pulsar-admin delayed due --all-topics --end-time 2100-01-01T00:00:00Z -o jsonl",
    ],
    output="One row per message, in order of dispatch: topic, subscription (null: the topic has none), the tick in which it is "
    "dispatched, the exact time it asks for (dueTime, null where the entry is lost), and its id.",
    errors=[TopicNotFound, InvalidValue, IndexCorrupt, DiskFull],
    uses=["now", "spark"],
)
@delaying
@click.option(
    "--end-time",
    "until_ms",
    cls=AliasedOption,
    aliases=["--until"],
    type=TIME,
    default="now",
    show_default=True,
    help="Messages due up to this time.",
)
@pass_app
def due(app: App, selection: TopicSelection, subscription: str | None, until_ms: int) -> None:
    """List the delayed messages that a broker would dispatch up to a point in time.

    Listed by subscription, from the index if it is current, otherwise from the topic's entries. If the policy in force
    disables delays, everything is due now. Exclusive and Failover subscriptions ignore delays, but the disk does not
    record the type of a subscription.
    """
    with app.session.delayed(selection, subscription).waiting() as (reader, found):
        app.emit_rows((row for waiting in noted(app, found) for row in _due(reader, waiting, until_ms)), DUE_COLUMNS)


def _due(reader: EntryReader, waiting: Waiting, until_ms: int) -> Iterator[Json]:
    from pulsar_admin.store.delayed.backlog import read_due_times

    for rows in waiting.iter_rows(LONG_MIN, min(until_ms + 1, LONG_MAX)):
        exact = read_due_times(reader, rows)
        for time_ms, *place in zip(
            rows.times_ms.tolist(), rows.ledger_ids.tolist(), rows.entry_ids.tolist(), strict=True
        ):
            row = message_row(waiting.topic, waiting.subscription, time_ms, Position(*place))
            yield {**row, "dueTime": exact.get((place[0], place[1]))}


def message_row(topic: str, subscription: str, time_ms: int, position: Position) -> Json:
    """Return one message as a row."""
    return {
        "topic": topic,
        "subscription": subscription or None,
        "deliverAt": time_ms,
        "ledgerId": position.ledger_id,
        "entryId": position.entry_id,
    }


# -- histogram --------------------------------------------------------------------------------------------------------


class HistogramOptions(Struct, frozen=True):
    """What to draw, and where."""

    subscription: str | None
    png: Path | None


@command(
    "histogram",
    examples=[
        "pulsar-admin delayed histogram acme/delayed/reminders -s workers --now 2026-11-21T09:30:00Z",
        "pulsar-admin delayed histogram acme/delayed/reminders -o json",
    ],
    elsewhere=["pulsar-admin delayed histogram --all-topics --png delayed.png"],
    output="A plot; as json how many are due now, in 1 h, 2 h, 1 day and later, and the partitions; else the partitions.",
    errors=[TopicNotFound, IndexCorrupt, AlreadyExists, InvalidValue, DiskFull, MissingComponent],
    uses=["now", "spark"],
)
@delaying
@picture_option("png")
@gather(HistogramOptions)
@pass_app
def histogram(app: App, selection: TopicSelection, options: HistogramOptions) -> None:
    """Plot how many delayed messages fall due when."""
    require_plot(app.settings.output)
    with app.session.delayed(selection, options.subscription).waiting() as (_, found):
        documents = [_document(waiting, app.now_ms) for waiting in noted(app, found)]
    if options.png is not None and documents:
        from pulsar_admin.plot import save_chart

        save_chart(options.png, [_chart(documents)], f"Delayed messages by due time ({zone_name()})")
    _emit(app, documents)


def _emit(app: App, documents: list[Json]) -> None:
    if app.settings.output == "json":
        app.emit(documents[0] if len(documents) == 1 else documents)
    elif app.settings.output in (None, "plain"):
        app.emit(_text(clean_document(documents)))
    else:
        rows = (
            {"topic": document["topic"], "subscription": document["subscription"], **row}
            for document in documents
            for row in document["partitions"]
        )
        app.emit_rows(rows, HISTOGRAM_COLUMNS)


def _document(waiting: Waiting, now_ms: int) -> Json:
    from pulsar_admin.store.delayed.summary import due_counts

    return {
        "topic": waiting.topic,
        "subscription": waiting.subscription or None,
        "messages": waiting.messages,
        "due": due_counts(waiting, now_ms),
        "partitions": [
            {"start": load.start_ms, "width": load.width_ms, "messages": load.messages} for load in waiting.loads
        ],
    }


def _text(documents: list[Json]) -> str:
    if not documents:
        return "No delayed messages are waiting."
    from pulsar_admin.plot import bar_chart

    lines = []
    for document in documents:
        due_by = document["due"]
        whose = document["subscription"] or "(no subscription)"
        lines.append(
            f"{document['topic']} {whose}: {document['messages']:,} delayed messages are waiting; due now "
            f"{due_by['now']:,}, within 1 h {due_by['within1h']:,}, 2 h {due_by['within2h']:,}, "
            f"1 day {due_by['within1d']:,}, later {due_by['later']:,}"
        )
    return "\n".join([*lines, bar_chart(_chart(documents), height=11), f"Times are {zone_name()}."])


def _chart(documents: list[Json]) -> Chart:
    """Return messages by due time, partitions drawn together so that they fit."""
    from pulsar_admin.plot import Chart

    rows = [row for document in documents for row in document["partitions"]]
    first = min(row["start"] for row in rows)
    last = max(row["start"] for row in rows)
    narrow = min(row["width"] for row in rows)
    width = narrow * -(-((last - first) // narrow + 1) // _COLUMNS_MAX)
    counts = [0] * ((last - first) // width + 1)
    for row in rows:
        counts[(row["start"] - first) // width] += row["messages"]
    labels = [time_text(first + index * width)[5:16].replace("T", " ") for index in range(len(counts))]
    return Chart(f"messages per {format_duration_ms(width)}", labels, {"messages": counts}, "messages", bars=True)
