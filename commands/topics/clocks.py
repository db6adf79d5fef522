"""``topics skew`` and ``topics timeline``: the times of a topic's entries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from pulsar_admin.columns import Column, time_text, zone_name
from pulsar_admin.commands.topics.answers import selected
from pulsar_admin.context import App, Result
from pulsar_admin.jsonify import to_json
from pulsar_admin.options import DURATION, TIME, TopicSelection, command, picture_option, require_plot, topics_argument
from pulsar_admin.store.db.clocks import check_clock
from pulsar_admin.store.errors import AlreadyExists, InvalidValue, LimitExceeded, MissingComponent, TopicNotFound
from pulsar_admin.store.model.topics import scan_bytes
from pulsar_admin.store.names import TopicName
from pulsar_admin.store.timespec import format_duration_ms
from pulsar_admin.store.wording import counted
from pulsar_admin.visible import clean_text

if TYPE_CHECKING:
    from pulsar_admin.plot import Chart
    from pulsar_admin.store.reports.timeline import Timeline

SKEW_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("PRODUCER", "producer"),
    Column("ENTRIES", "entries", "number", drop=5),
    Column("OFFSET MIN", "offsetMin", "offset", drop=6),
    Column("MEDIAN", "offsetMedian", "offset", drop=3),
    Column("MAX", "offsetMax", "offset"),
    Column("INVERSIONS", "inversions", "number", drop=4),
    Column("FUTURE", "futureDated", "number", drop=2),
    Column("LATE", "late", "number", drop=1),
    Column("BLAME", lambda row: "yes" if row["blamed"] else ""),
)
TIMELINE_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("TIME", "time", "time"),
    Column("ENTRIES", "entries", "number", sums=True),
    Column("MESSAGES", "messages", "number", sums=True),
    Column("BYTES", "bytes", "bytes", sums=True),
)


@command(
    "topics skew",
    examples=["acme/iot/skewed", "--pattern 'acme/iot/*' --tolerance 1m -o json"],
    output="One row per producer, those to blame first; offsets are publish minus broker time. In JSON one "
    "object per topic.",
    errors=[TopicNotFound, InvalidValue],
    uses=["clock", "now", "spark"],
)
@topics_argument
@click.option(
    "--tolerance",
    "tolerance_ms",
    type=DURATION,
    default="1s",
    show_default=True,
    help="Offset that still counts as on time.",
)
def skew(app: App, selection: TopicSelection, tolerance_ms: int) -> Result:
    """Find the producers whose clocks are wrong.

    If the broker stamped an entry, its publish time is compared with that stamp. Otherwise an entry is future-dated
    when its publish time is later than that of entries after it (or than now), and late when it is earlier than that of
    entries before it: the fewest entries that must be ignored for time to run forward. An inversion is an entry
    whose time is earlier than that of the entry before it, by publish time unless --clock broker is given.
    """
    from pulsar_admin.api.messages import skews_of

    clock: Literal["broker", "publish"] = "broker" if check_clock(app.settings.clock) == "broker" else "publish"
    tolerance = timedelta(milliseconds=tolerance_ms)
    with app.session.reader() as reader:
        topics = selected(app, reader.txn, selection)
        with app.scan(reader, scan_bytes(reader.txn, topics), "skew"):
            skews = list(skews_of(app.session, topics, tolerance, clock))
    return Result(
        skews[0] if len(topics) == 1 else skews,
        rows=({"topic": one.topic, **to_json(row)} for one in skews for row in one.producers),
        columns=SKEW_COLUMNS,
        documents=("json", "jsonl"),
    )


# -- timeline ---------------------------------------------------------------------------------------------------------


@command(
    "topics timeline",
    examples=["public/default/plain", "acme/orders/parts --bucket 1h -o table"],
    elsewhere=["public/default/plain --bucket 5m --png plain.png"],
    output="A plot of entries, messages and bytes; as table, csv, json or jsonl the counts of every bucket that has any.",
    errors=[TopicNotFound, InvalidValue, LimitExceeded, AlreadyExists, MissingComponent],
    uses=["clock", "spark"],
)
@topics_argument
@click.option("--bucket", "bucket_ms", type=DURATION, help="Width of a bucket [chosen from the data].")
@click.option("--start-time", "start_ms", type=TIME, help="Count entries at or after this time.")
@click.option("--end-time", "end_ms", type=TIME, help="Count entries before this time.")
@picture_option("png")
@picture_option("svg")
def timeline(
    app: App,
    selection: TopicSelection,
    bucket_ms: int | None,
    start_ms: int | None,
    end_ms: int | None,
    png: Path | None,
    svg: Path | None,
) -> Result:
    """Plot how many entries, messages and bytes arrived when.

    --clock says which time counts: auto (broker time where the entry has one, else publish time), publish or broker. Buckets
    begin at multiples of their width since 1970 UTC. Several topics, and the partitions of one, are drawn as one.
    """
    from pulsar_admin.api.messages import timelines_of
    from pulsar_admin.store.reports.timeline import TimelineOptions, choose_bucket_ms

    require_plot(app)
    with app.session.reader() as reader:
        topics = selected(app, reader.txn, selection)
        usual = _usual(app, topics, start_ms, end_ms)
        bucket_ms = bucket_ms or choose_bucket_ms(*(usual or (0, 0)))
        wanted = TimelineOptions(bucket_ms, check_clock(app.settings.clock), start_ms, end_ms)
        with app.scan(reader, scan_bytes(reader.txn, topics), "timeline"):
            timelines = list(timelines_of(app.session, topics, wanted))
    charts = _charts(timelines, usual)
    if charts:
        from pulsar_admin.plot import save_charts

        save_charts((png, svg), charts, f"{_names(timelines)} ({zone_name()}, {timelines[0].clock} clock)")
    return Result(
        timelines[0] if len(timelines) == 1 else timelines,
        rows=({"topic": str(one.topic), **to_json(bucket)} for one in timelines for bucket in one.buckets),
        columns=TIMELINE_COLUMNS,
        screen=lambda _: [_plot(charts, timelines)],
    )


def _usual(app: App, topics: Sequence[TopicName], start_ms: int | None, end_ms: int | None) -> tuple[int, int] | None:
    """Return the range of times to plot: the requested one, by default the one that has nearly all entries."""
    from pulsar_admin.store.reports.timeline import usual_times

    times = app.session.ask_entries(usual_times, topics, check_clock(app.settings.clock))
    if times is None:
        return None
    first = times[0] if start_ms is None else start_ms
    last = times[1] if end_ms is None else end_ms - 1
    return (first, last) if first <= last else None


_COLUMNS_MAX = 240  # columns of a plot; if there are more buckets, several share a column


def _charts(found: Sequence[Timeline], usual: tuple[int, int] | None) -> list[Chart]:
    """Return charts of entries, messages (unless equal to entries) and bytes over the range ``usual``."""
    from pulsar_admin.plot import Chart

    if usual is None or not found:
        return []
    width = found[0].bucket_ms
    first, last = (time_ms // width * width for time_ms in usual)
    width *= -(-((last - first) // width + 1) // _COLUMNS_MAX)
    count = (last - first) // width + 1
    sums = {name: [0] * count for _, name in _AMOUNTS}
    for bucket in (bucket for one in found for bucket in one.buckets if first <= bucket.time_ms <= last):
        for name, column in sums.items():
            column[(bucket.time_ms - first) // width] += getattr(bucket, name)
    labels = _labels([first + index * width for index in range(count)], width)
    if sums["messages"] == sums["entries"]:
        del sums["messages"]
    each = f"per {format_duration_ms(width)}"
    return [Chart(f"{name} {each}", labels, {name: column}, name, bars=True) for name, column in sums.items()]


def _labels(times: list[int], width_ms: int) -> list[str]:
    """Return short labels of times: the day for buckets of days, otherwise the time, with the day if there are several."""
    texts = [time_text(time_ms) for time_ms in times]
    if width_ms % 86_400_000 == 0:
        return [text[:10] for text in texts]
    end = 16 if width_ms % 60_000 == 0 else 19 if width_ms % 1000 == 0 else 23
    start = 11 if texts[0][:10] == texts[-1][:10] else 5 if texts[0][:4] == texts[-1][:4] else 0
    return [text[start:end].replace("T", " ") for text in texts]


def _names(found: Sequence[Timeline]) -> str:
    return str(found[0].topic) if len(found) == 1 else counted(len(found), "topic")


_AMOUNTS = (("entry", "entries"), ("message", "messages"), ("byte", "bytes"))


def _plot(charts: list[Chart], found: Sequence[Timeline]) -> str:
    from pulsar_admin.plot import bar_chart

    total = {name: sum(getattr(one, name) for one in found) for _, name in _AMOUNTS}
    amounts = (counted(total[many], one) for one, many in _AMOUNTS)
    head = f"{clean_text(_names(found))}: {', '.join(amounts)}"
    drawn = [sum(chart.series["entries"]) for chart in charts if "entries" in chart.series]
    left_out = (
        (total["entries"] - int(sum(drawn)), "entry lies outside the plot", "entries lie outside the plot"),
        (sum(one.entries_without_time for one in found), "entry has no time", "entries have no time"),
        (
            sum(one.entries_outside for one in found),
            "entry is outside the times asked for",
            "entries are outside the times asked for",
        ),
    )
    notes = [counted(count, *words) for count, *words in left_out if count > 0]
    clock = f"Times are {zone_name()}, on the {found[0].clock} clock."
    return "\n".join([head, *(bar_chart(chart) for chart in charts), *notes, clock]) + "\n"
