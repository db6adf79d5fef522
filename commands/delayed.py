"""``delayed``: the index of delayed messages, their due times, replay, and brokers' bucket snapshots."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from pulsar_admin.columns import Column, alarm, caution, time_text, zone_name
from pulsar_admin.context import App, Result, Shown
from pulsar_admin.jsonify import to_json
from pulsar_admin.numbers import NUMBER
from pulsar_admin.options import (
    TIME,
    AliasedOption,
    TopicSelection,
    command,
    flag,
    gather,
    picture_option,
    require_plot,
    together,
    topics_argument,
)
from pulsar_admin.store.errors import (
    AlreadyExists,
    DiskFull,
    IndexCorrupt,
    InvalidValue,
    MetadataCorrupt,
    MissingComponent,
    StoreBusy,
    TopicNotFound,
    Unsupported,
)
from pulsar_admin.store.names import LONG_MAX, LONG_MIN, Position
from pulsar_admin.store.timespec import format_duration_ms
from pulsar_admin.store.wording import counted, plural
from pulsar_admin.visible import clean_document

if TYPE_CHECKING:
    from pulsar_admin.plot import Chart
    from pulsar_admin.store.delayed.waiting import Waiting
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.scan.integer_rows import RunFile


UNKNOWN_TYPE = "whether a subscription is Shared or Key_Shared is not on disk; Exclusive and Failover ignore delays"


delaying = together(
    topics_argument, click.option("-s", "--subscription", help="Only this subscription [every one that may delay].")
)
"""Topics and ``-s/--subscription NAME``, handed over as ``selection`` and ``subscription`` (None: all that may delay)."""


@contextmanager
def waiting_for(
    app: App, selection: TopicSelection, subscription: str | None
) -> Iterator[tuple[EntryReader, Iterator[Waiting]]]:
    """Open a reader and the delayed messages of each selected subscription that has any.

    With --verbose, prints a note about each subscription without an index and about unknown values.
    """
    from pulsar_admin.store.delayed.runs import open_runs

    with app.session.scan() as reader, open_runs() as file:
        yield reader, _iter_waiting(app, reader, selection, subscription, file)


def _iter_waiting(
    app: App, reader: EntryReader, selection: TopicSelection, subscription: str | None, file: RunFile
) -> Iterator[Waiting]:
    from pulsar_admin.store.delayed.build import iter_turns
    from pulsar_admin.store.delayed.summary import check_delivery, open_deliveries

    cursors = app.session.iter_cursors(reader, selection, subscription, unsubscribed=True)
    alone = selection.single is not None
    for turn in iter_turns(cursors, lambda one: one[0].number_of_entries):
        readable = list(app.each(turn, lambda one: check_delivery(reader.txn, *one), alone=alone))
        for delivery in open_deliveries(reader, readable, file, app.now_ms):
            waiting = delivery.waiting
            app.session.warn(delivery.warnings)
            if waiting.messages and waiting.index is None:
                app.note(
                    f"{waiting.topic} {waiting.subscription}: no current index, its entries are read: see delayed build"
                )
            if waiting.messages:
                yield waiting
    app.note(UNKNOWN_TYPE)


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


@command(
    "delayed build",
    examples=["acme/delayed/reminders", "--all-topics --rebuild -o jsonl", "acme/delayed/reminders --dry-run"],
    elsewhere=["--all-topics --spark"],
    output="A row per subscription: the index cursor, messages held, added and removed, partitions, bytes at rest.",
    errors=[TopicNotFound, IndexCorrupt, Unsupported, StoreBusy, DiskFull],
    uses=["dry_run", "spark"],
    no_plan="an index cannot be saved as a plan: it is derived data, and can be rebuilt at any time",
)
@delaying
@flag("--rebuild", help="Rebuild the index from scratch.")
def build(app: App, selection: TopicSelection, subscription: str | None, rebuild: bool) -> Result:
    """Build or update the index of delayed messages.

    Every durable subscription except the broker's own gets an index: the disk does not record whether it is Shared, and
    Exclusive and Failover subscriptions ignore delays. The build continues from the index cursor and removes
    acknowledged messages, in one transaction per subscription. The entries of many subscriptions are read together,
    with --spark on Spark.
    """
    from pulsar_admin.api.pending import build_indexes
    from pulsar_admin.store.delayed.build import WantedIndex

    dry = app.settings.dry_run
    with app.session.reader() as reader:
        cursors = app.session.iter_cursors(reader, selection, subscription, unsubscribed=True)
        chosen = [WantedIndex.of(topic, cursor) for topic, cursor in cursors if cursor.name]
    results = build_indexes(app.session, chosen, rebuild=rebuild, dry_run=dry)
    rows = [{**to_json(result), "dryRun": dry} for result in results]
    app.note(UNKNOWN_TYPE)
    return Result(rows=rows, columns=_COLUMNS)


Json = dict[str, Any]  # Any: JSON values
_COLUMNS_MAX = 60

REPLAY_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("DELIVER AT", "deliverAt", "time"),
    Column("MESSAGE ID", lambda row: f"{row['ledgerId']}:{row['entryId']}"),
)
DUE_COLUMNS = (
    *REPLAY_COLUMNS[:2],
    Column("DELIVER AT", "dueTime", "time"),
    REPLAY_COLUMNS[3],
    Column("TICK", "deliverAt", "time", drop=1),
)
DUE_IN_CSV = (*REPLAY_COLUMNS, Column("DUE", "dueTime", "time"))
"""As scripts know them: the tick is DELIVER AT."""
HISTOGRAM_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("FROM", "start", "time"),
    Column("WIDTH", "width", "duration"),
    Column("MESSAGES", "messages", "number"),
)


@command(
    "delayed due",
    examples=[
        "acme/delayed/reminders -s workers --end-time 2026-11-22T00:00:00Z",
        "--all-topics --end-time 2100-01-01T00:00:00Z -o jsonl",
    ],
    output=(
        "One row per message, in order of dispatch: topic, subscription (null: the topic has none), its delivery time "
        "(DELIVER AT; JSON: dueTime; none if the entry is lost), its id, and the tick in which a broker dispatches it "
        "(TICK; JSON: deliverAt). CSV calls them DUE and DELIVER AT."
    ),
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
def due(app: App, selection: TopicSelection, subscription: str | None, until_ms: int) -> Iterator[Shown]:
    """List the delayed messages that a broker would dispatch up to a point in time.

    Listed by subscription, from the index if it is current, otherwise from the topic's entries. If the policy in force
    disables delays, everything is due now. Exclusive and Failover subscriptions ignore delays, but the disk does not
    record the type of a subscription.
    """
    with waiting_for(app, selection, subscription) as (reader, backlogs):
        yield Result(
            rows=(row for waiting in backlogs for row in _due(reader, waiting, until_ms)),
            columns=DUE_COLUMNS,
            csv=DUE_IN_CSV,
        )


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
    """Return a delayed message as a row."""
    return {
        "topic": topic,
        "subscription": subscription or None,
        "deliverAt": time_ms,
        "ledgerId": position.ledger_id,
        "entryId": position.entry_id,
    }


# -- histogram --------------------------------------------------------------------------------------------------------


@command(
    "delayed histogram",
    examples=["acme/delayed/reminders -s workers --now 2026-11-21T09:30:00Z", "acme/delayed/reminders -o json"],
    elsewhere=["--all-topics --png delayed.png"],
    output="A plot; as json how many are due now, in 1 h, 2 h, 1 day and later, and the partitions; else the partitions.",
    errors=[TopicNotFound, IndexCorrupt, AlreadyExists, InvalidValue, DiskFull, MissingComponent],
    uses=["now", "spark"],
)
@delaying
@picture_option("png")
def histogram(app: App, selection: TopicSelection, subscription: str | None, png: Path | None) -> Result:
    """Plot how many delayed messages fall due when."""
    require_plot(app)
    with waiting_for(app, selection, subscription) as (_, backlogs):
        documents = [_document(waiting, app.now_ms) for waiting in backlogs]
    if png is not None and documents:
        from pulsar_admin.plot import save_charts

        save_charts([png], [_chart(documents)], f"Delayed messages by due time ({zone_name()})")
    return Result(
        documents[0] if len(documents) == 1 else documents,
        rows=(
            {"topic": document["topic"], "subscription": document["subscription"], **row}
            for document in documents
            for row in document["partitions"]
        ),
        columns=HISTOGRAM_COLUMNS,
        screen=lambda _: [_text(clean_document(documents))],
    )


def _document(waiting: Waiting, now_ms: int) -> Json:
    from pulsar_admin.store.delayed.summary import due_counts

    return {
        "topic": waiting.topic,
        "subscription": waiting.subscription or None,
        "messages": waiting.messages,
        "due": due_counts(waiting, now_ms),
        "partitions": to_json(waiting.loads),
    }


def _text(documents: list[Json]) -> str:
    if not documents:
        return "No delayed messages are waiting.\n"
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
    return "\n".join([*lines, bar_chart(_chart(documents)), f"Times are {zone_name()}.\n"])


def _chart(documents: list[Json]) -> Chart:
    """Return the chart of messages by due time, joining neighbouring partitions until they fit."""
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


class ReplayOptions(Struct, frozen=True):
    """The options of a replay. ``speed``: seconds of due time per second; None: as fast as possible."""

    subscription: str | None
    from_ms: int | None
    until_ms: int
    speed: float | None


@command(
    "delayed replay",
    examples=["acme/delayed/reminders -s workers --end-time 2026-11-22T00:00:00Z -o jsonl"],
    elsewhere=["acme/delayed/reminders --start-time 2026-11-21T10:00:00Z --end-time +1d --speed 60"],
    output="One line per message, in order of time over all subscriptions: topic, subscription, tick, message id.",
    errors=[TopicNotFound, InvalidValue, IndexCorrupt, DiskFull],
    uses=["now", "progress", "spark"],
)
@delaying
@click.option(
    "--start-time",
    "from_ms",
    cls=AliasedOption,
    aliases=["--from-time"],
    type=TIME,
    help="Messages due at or after this time [the first message].",
)
@click.option(
    "--end-time",
    "until_ms",
    cls=AliasedOption,
    aliases=["--until"],
    type=TIME,
    required=True,
    help="Messages due up to this time.",
)
@click.option("--speed", type=NUMBER, help="Seconds of due time per second; 1 is real time [no pacing].")
@gather(ReplayOptions)
def replay(app: App, selection: TopicSelection, options: ReplayOptions) -> Result:
    """Replay delayed messages in the order in which a broker would dispatch them and, with --speed, at its pace.

    At most two partitions per subscription are in memory. Ctrl-C stops between two ticks and prints how to continue.
    """
    if options.speed is not None and not 0 < options.speed < float("inf"):
        raise InvalidValue(f"--speed {options.speed} must be above 0", hint="1 is real time; without it all at once")
    return Result(rows=_rows(app, selection, options), columns=REPLAY_COLUMNS)


def _rows(app: App, selection: TopicSelection, options: ReplayOptions) -> Iterator[dict[str, Any]]:  # Any: JSON
    from pulsar_admin.store.delayed.waiting import iter_replay

    with waiting_for(app, selection, options.subscription) as (_, found):
        waitings = list(found)
        total = sum(waiting.count_before(options.until_ms + 1) for waiting in waitings)
        slots = iter_replay(waitings, options.from_ms, options.until_ms)
        with app.progress(total, "messages", "delayed replay") as bar:
            pace: _Pace | None = None
            done_ms: int | None = None
            try:
                for slot in slots:
                    tick_ms, rows = slot.dispatch.tick_ms, slot.dispatch.rows
                    if options.speed is not None:
                        pace = pace or _Pace(tick_ms if options.from_ms is None else options.from_ms, options.speed)
                        pace.wait_for(tick_ms)
                    for place in zip(rows.ledger_ids.tolist(), rows.entry_ids.tolist(), strict=True):
                        yield message_row(slot.topic, slot.subscription, tick_ms, Position(*place))
                    bar.advance(len(rows))
                    done_ms = tick_ms
            except KeyboardInterrupt:
                # The tick may belong to several subscriptions: it is given again rather than left out.
                at = options.from_ms if done_ms is None else done_ms
                app.warn("stopped; continue with --start-time " + ("the same" if at is None else time_text(at)))
                raise


class _Pace:
    """Keeps a replay at the requested speed."""

    def __init__(self, start_ms: int, speed: float) -> None:
        self._start_ms = start_ms
        self._speed = speed
        self._began = time.monotonic()

    def wait_for(self, tick_ms: int) -> None:
        """Sleep until the due time ``tick_ms`` is reached at the replay's speed."""
        due = self._began + (tick_ms - self._start_ms) / 1000 / self._speed
        while (left := due - time.monotonic()) > 0:
            time.sleep(min(left, 3600.0))


_STATUS_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("ACTIVE", lambda row: row.policy["active"], drop=2),
    Column("WAITING", "messages", "number", sums=True),
    Column("DUE NOW", lambda row: row.due["now"], "number", tone=caution, sums=True),
    Column("FIRST", "first_due_ms", "time", drop=6),
    Column("LAST", "last_due_ms", "time", drop=3),
    Column("INDEX CURSOR", lambda row: row.index and row.index.cursor, drop=5),
    Column("LAG", lambda row: row.index and row.index.lag_entries, "number", drop=4, tone=caution),
    Column("BYTES/MESSAGE", lambda row: row.index and row.index.bytes_per_message, "number", drop=1),
    Column(
        "TTL DROPS", lambda row: row.ttl_conflict and row.ttl_conflict.messages, "number", drop=7, tone=alarm, sums=True
    ),
)
_VERIFY_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("WAITING", "waiting", "number"),
    Column("BUCKETS", "buckets", "number", drop=1),
    Column("IN BUCKETS", "in_buckets", "number", drop=2),
    Column("IN NONE", "outside", "number", drop=3),
    Column("STALE", "stale", "number"),
    Column("INDEXED", "indexed", "number"),
    Column("PROBLEMS", "problems", "number"),
)


@command(
    "delayed status",
    examples=["acme/delayed/reminders", "acme/delayed/reminders -s workers -o json"],
    output="Policy, messages that wait, the index and its lag, what real trackers would need, and TTL and quota conflicts.",
    errors=[TopicNotFound, IndexCorrupt, MetadataCorrupt, DiskFull],
    uses=["now", "spark"],
)
@delaying
def status(app: App, selection: TopicSelection, subscription: str | None) -> Result:
    """Show the delayed backlog of subscriptions, its cost, and what a TTL or quota drops before it is due.

    Memory and rebuild time of the brokers' trackers are estimates; docs/howto/delayed-messages.md explains them.
    """
    rows = []
    with app.session.scan() as reader:
        chosen = app.session.iter_cursors(reader, selection, subscription, unsubscribed=True)
        named = [(topic.name, cursor.name) for topic, cursor in chosen]
        for summary in app.each(named, lambda one: app.topic(one[0]).delayed(one[1] or None).status()):
            if (conflict := summary.ttl_conflict) is not None and conflict.messages:
                app.warn(
                    f"{summary.topic} {summary.subscription}: the TTL of {conflict.ttl_seconds} s drops "
                    f"{counted(conflict.messages, 'message')} before {plural(conflict.messages, 'it is', 'they are')} "
                    f"due: {', '.join(map(str, conflict.first))}"
                )
            if summary.subscription or summary.messages:
                rows.append(summary)
    app.note(UNKNOWN_TYPE)
    return Result(rows=rows, columns=_STATUS_COLUMNS)


@command(
    "delayed verify",
    examples=["acme/delayed/reminders", "--all-topics -o json"],
    output="A row per subscription: what waits, what buckets and index hold, findings. Exit code 1 when there is a problem.",
    errors=[TopicNotFound, MetadataCorrupt],
    uses=["spark"],
)
@delaying
def verify(app: App, selection: TopicSelection, subscription: str | None) -> Result:
    """Compare a broker's bucket snapshots and our index with the topic's entries and acknowledgements.

    A message in no bucket is only a note: the bucket of the newest ledgers exists only in the broker's memory, and
    messages that were due when the broker read them need none. Missing or damaged bucket ledgers, duplicates, different
    times and leaked bucket ledgers are problems.
    """
    from pulsar_admin.store.delayed.trackers import iter_leaked_buckets

    with app.session.scan() as reader:
        cursors = app.session.iter_cursors(reader, selection, subscription, unsubscribed=True)
        chosen = [(topic, cursor) for topic, cursor in cursors if cursor.name]
        named = [(topic.name, cursor.name) for topic, cursor in chosen]
        rows = [*app.each(named, lambda one: app.topic(one[0]).delayed(one[1]).verify())]
        rows += iter_leaked_buckets(reader, frozenset(topic.name for topic, _ in chosen))
    for row in rows:
        for finding in row.findings:
            say = app.warn if finding.severity == "problem" else app.note
            say(f"{row.topic} {row.subscription}: {finding.message}")
        app.problems(row.problems)
    return Result(rows=rows, columns=_VERIFY_COLUMNS)
