"""``delayed replay``: the time wheel driven from a start time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from pulsar_admin.columns import time_text
from pulsar_admin.commands.delayed.choosing import delaying, noted
from pulsar_admin.commands.delayed.listing import REPLAY_COLUMNS, message_row
from pulsar_admin.context import App
from pulsar_admin.numbers import NUMBER
from pulsar_admin.options import TIME, AliasedOption, TopicSelection, command, gather, pass_app
from pulsar_admin.progress import Progress
from pulsar_admin.store.errors import DiskFull, IndexCorrupt, InvalidValue, TopicNotFound
from pulsar_admin.store.names import Position

if TYPE_CHECKING:
    from pulsar_admin.store.delayed.waiting import Replayed


class ReplayOptions(Struct, frozen=True):
    """What to replay, and how fast. ``speed``: seconds of due time a second; None: at once."""

    subscription: str | None
    from_ms: int | None
    until_ms: int
    speed: float | None


@command(
    "replay",
    examples=["pulsar-admin delayed replay acme/delayed/reminders -s workers --end-time 2026-11-22T00:00:00Z -o jsonl"],
    elsewhere=[
        "pulsar-admin delayed replay acme/delayed/reminders --start-time 2026-11-21T10:00:00Z --end-time +1d --speed 60"
    ],
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
@pass_app
def replay(app: App, selection: TopicSelection, options: ReplayOptions) -> None:
    """Replay delayed messages in the order in which a broker would dispatch them and, with --speed, at its pace.

    At most two partitions per subscription are in memory. Ctrl-C stops between two ticks and prints how to continue.
    """
    if options.speed is not None and not 0 < options.speed < float("inf"):
        raise InvalidValue(f"--speed {options.speed} must be above 0", hint="1 is real time; without it all at once")
    app.emit_rows(_rows(app, selection, options), REPLAY_COLUMNS)


def _rows(app: App, selection: TopicSelection, options: ReplayOptions) -> Iterator[dict[str, Any]]:  # Any: JSON
    from pulsar_admin.store.delayed.waiting import iter_replay

    with app.session.delayed(selection, options.subscription).waiting() as (_, found):
        waitings = list(noted(app, found))
        total = sum(waiting.count_before(options.until_ms + 1) for waiting in waitings)
        slots = iter_replay(waitings, options.from_ms, options.until_ms)
        with app.progress(total, "messages", "delayed replay") as bar:
            yield from _paced(app, slots, options, bar)


def _paced(
    app: App, slots: Iterator[Replayed], options: ReplayOptions, bar: Progress
) -> Iterator[dict[str, Any]]:  # Any: JSON
    pace: _Pace | None = None
    done_ms: int | None = None
    try:
        for found in slots:
            tick_ms, rows = found.dispatch.tick_ms, found.dispatch.rows
            if options.speed is not None:
                pace = pace or _Pace(tick_ms if options.from_ms is None else options.from_ms, options.speed)
                pace.wait_for(tick_ms)
            for place in zip(rows.ledger_ids.tolist(), rows.entry_ids.tolist(), strict=True):
                yield message_row(found.topic, found.subscription, tick_ms, Position(*place))
            bar.advance(len(rows))
            done_ms = tick_ms
    except KeyboardInterrupt:
        # The tick may belong to several subscriptions: it is given again rather than left out.
        at = options.from_ms if done_ms is None else done_ms
        app.warn("stopped; continue with --start-time " + ("the same" if at is None else time_text(at)))
        raise


class _Pace:
    """Maps due time to the clock."""

    def __init__(self, start_ms: int, speed: float) -> None:
        self._start_ms = start_ms
        self._speed = speed
        self._began = time.monotonic()

    def wait_for(self, tick_ms: int) -> None:
        """Return when TICK_MS has come."""
        due = self._began + (tick_ms - self._start_ms) / 1000 / self._speed
        while (left := due - time.monotonic()) > 0:
            time.sleep(min(left, 3600.0))
