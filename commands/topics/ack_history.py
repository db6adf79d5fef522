"""``topics subscription-history``."""

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from pulsar_admin.columns import Column, time_text
from pulsar_admin.commands.ledger_repairs import zookeeper_option
from pulsar_admin.commands.topics.answers import TOPIC_COLUMN
from pulsar_admin.context import App, Lines, Result, Shown
from pulsar_admin.numbers import whole
from pulsar_admin.options import TopicSelection, command, plot_option, subscription_option, topics_argument
from pulsar_admin.store.errors import MissingComponent, SourceNotFound, SubscriptionNotFound, TopicNotFound
from pulsar_admin.store.model.cursors import range_text
from pulsar_admin.store.recovery.ack_history import AckState, TimeBound

Json = dict[str, Any]  # Any: JSON values

_COLUMNS = (
    TOPIC_COLUMN,
    Column("STATE", "state", "id"),
    Column("NOT BEFORE", "notBeforeTime", "time"),
    Column("NOT AFTER", "notAfterTime", "time"),
    Column("MARK-DELETE", lambda row: row.get("problem") or row["markDeletePosition"]),
    Column("BACKLOG", "backlogEntries", "number"),
    Column("ACKED RANGES", "totalNonContiguousDeletedMessagesRange", "number", drop=3),
    Column("GAPS", "gaps", "number"),
    Column("ACKNOWLEDGED", "acknowledged", "number", drop=2),
    Column("REOPENED", "reopened", "number", drop=1),
)


@command(
    "topics subscription-history",
    examples=[
        "public/default/plain -s half",
        "public/default/plain -s half -o json",
        "public/default/plain -s half --plot",
    ],
    output="One row per state, oldest first, with the times between which it was written; as json with all its ranges.",
    errors=[TopicNotFound, SubscriptionNotFound, SourceNotFound, MissingComponent],
)
@topics_argument
@subscription_option
@click.option("--last", type=whole(1), metavar="N", help="The last N states only.")
@plot_option("Plot backlog and gaps instead.")
@zookeeper_option
def subscription_history(
    app: App, selection: TopicSelection, subscription: str, last: int | None, plot: bool, directories: tuple[Path, ...]
) -> Iterator[Shown]:
    """Show every recorded state of a subscription's acknowledgements.

    The states are the entries of its cursor ledgers and what the metadata says. Entries have no time of their own: a
    state is not older than the publish time of the last acknowledged entry, and not newer than the next metadata; where
    a journal has it, messages before and after it there bound it to parts of a second. `reset-cursor --as-of` restores one.
    """
    with app.session.reader():
        zookeeper = tuple(map(str, directories))
        histories = app.cursors(selection, subscription).histories(zookeeper=zookeeper)
        if last is not None:
            histories = iter(deque(histories, last))
        rows = ({"topic": topic, "subscription": subscription, **_state_row(state)} for topic, state in histories)
        if plot:
            yield Lines(_plot(list(rows)).splitlines(), "PLOT")
        else:
            yield Result(rows=rows, columns=_COLUMNS if selection.single is None else _COLUMNS[1:])


def _state_row(found: AckState) -> Json:
    row: Json = {"state": found.name, "source": found.source}
    row |= _bound("notBefore", found.not_before) | _bound("notAfter", found.not_after)
    if found.state is None:
        return row | {"problem": found.problem or "the subscription was deleted"}
    return row | {
        "markDeletePosition": str(found.state.mark_delete),
        "individuallyDeletedMessages": range_text(found.state.ranges),
        "batchIndexAcks": len(found.state.batch_deletes),
        "properties": dict(found.state.properties),
        "backlogEntries": found.backlog,
        "totalNonContiguousDeletedMessagesRange": len(found.state.ranges),
        "gaps": found.gaps,
        "acknowledged": found.acknowledged,
        "reopened": found.reopened,
    }


def _bound(key: str, bound: TimeBound | None) -> Json:
    return (
        {f"{key}Time": None, f"{key}By": None} if bound is None else {f"{key}Time": bound.time_ms, f"{key}By": bound.by}
    )


def _plot(rows: Sequence[Json]) -> str:
    from pulsar_admin.plot import Chart, line_chart

    shown = [row for row in rows if "gaps" in row]
    if not shown:
        return "No state exists."
    labels = [row["state"] if row["notBeforeTime"] is None else time_text(row["notBeforeTime"])[5:19] for row in shown]
    series = {"backlog": [row["backlogEntries"] for row in shown], "gaps": [row["gaps"] for row in shown]}
    return line_chart(Chart("entries left, by state (times: not before)", labels, series, "entries"))
