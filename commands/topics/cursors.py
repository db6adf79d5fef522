"""Changing cursors: ``topics skip``, ``clear-backlog``, ``create-subscription``, ``unsubscribe``, ``reset-cursor``,
``expire``.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.columns import Column, caution, messages_of
from pulsar_admin.commands.ledger_repairs import zookeeper_option
from pulsar_admin.commands.topics.broker import BROKER_VERSION, MAX_CLOCK_SKEW
from pulsar_admin.commands.topics.moving import read_lines, shown_path
from pulsar_admin.context import App, Result
from pulsar_admin.numbers import INTEGER, whole
from pulsar_admin.options import (
    DURATION,
    POSITION,
    TIME_OR_AGO,
    TopicSelection,
    choice_option,
    command,
    flag,
    subscription_option,
    together,
    topics_argument,
)
from pulsar_admin.store.changes.resets import EXACT
from pulsar_admin.store.errors import (
    AlreadyExists,
    EntryNotFound,
    InvalidValue,
    LedgerNotFound,
    NothingMatches,
    Refused,
    StalePlan,
    SubscriptionNotFound,
    TopicNotFound,
)
from pulsar_admin.store.names import Position
from pulsar_admin.store.search.expiry import ALL_BEFORE, BROKER

if TYPE_CHECKING:
    from pulsar_admin.api.cursors import Cursors
    from pulsar_admin.api.plan import Plan


_MOVED = "The change: position before and after, the skipped messages, the ledgers that a broker may then delete, and its undo command."
_FORCE = flag("--force", help="Also move the cursors of compaction and deduplication.")


@command(
    "topics skip",
    changes=True,
    examples=["public/default/plain -s half -n 7"],
    output=_MOVED,
    errors=[TopicNotFound, SubscriptionNotFound, Refused, StalePlan],
)
@topics_argument
@subscription_option
@click.option("-n", "--count", type=whole(), required=True, help="How many entries; a batch is one.")
@_FORCE
def skip(app: App, selection: TopicSelection, subscription: str, count: int, force: bool) -> None:
    """Skip the next entries of a subscription.

    Entries that are already acknowledged do not count, a batch counts as one, and skipping stops after the last entry.
    Several topics are one change; each skips the same number.
    """
    app.change(app.cursors(selection, subscription).skip(count, force=force))


@command(
    "topics clear-backlog",
    aliases=["skip-all"],
    changes=True,
    examples=["public/default/plain -s holes"],
    output=_MOVED,
    errors=[TopicNotFound, SubscriptionNotFound, Refused, StalePlan],
)
@topics_argument
@subscription_option
@_FORCE
def clear_backlog(app: App, selection: TopicSelection, subscription: str, force: bool) -> None:
    """Skip the whole backlog of a subscription.

    Several topics or partitions are one change. The subscription keeps its properties.
    """
    app.change(app.cursors(selection, subscription).clear(force=force))


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise InvalidValue(
                f"{param.get_error_hint(ctx)}: {text!r} is not a KEY=VALUE", hint="for example -p owner=billing"
            )
        pairs[key] = value
    return pairs


@command(
    "topics create-subscription",
    changes=True,
    examples=["public/default/plain -s audit -m earliest", "acme/orders/parts -s audit -p owner=billing --dry-run"],
    output="The change: its position, its backlog, and the undo command.",
    errors=[TopicNotFound, LedgerNotFound, EntryNotFound, AlreadyExists, Refused, StalePlan],
)
@topics_argument
@subscription_option
@click.option(
    "-m", "--messageId", "start", type=POSITION, default="latest", show_default=True, help="The start position."
)
@flag("-r", "--replicated", help="Clusters share its position.")
@click.option(
    "-p",
    "--property",
    "properties",
    multiple=True,
    callback=_pairs,
    metavar="KEY=VALUE",
    help="A property; may be repeated.",
)
def create_subscription(
    app: App, selection: TopicSelection, subscription: str, **made: Any
) -> None:  # Any: of Cursors.create
    """Create a subscription at a position.

    For a partitioned topic it is created on all partitions, for several topics on all or none.
    """
    app.change(app.cursors(selection, subscription).create(**made))


@command(
    "topics unsubscribe",
    changes=True,
    examples=["public/default/plain -s never"],
    output="The change: its position, its backlog, the ledgers that a broker may then delete, and the undo command.",
    errors=[TopicNotFound, SubscriptionNotFound, Refused, StalePlan],
)
@topics_argument
@subscription_option
@flag("-f", "--force", help="Also remove the broker's own cursors, and damaged ones.")
def unsubscribe(app: App, selection: TopicSelection, subscription: str, force: bool) -> None:
    """Remove a subscription.

    For a partitioned topic it is removed from all partitions, for several topics from all or none. Undo restores it as
    it was.
    """
    app.change(app.cursors(selection, subscription).delete(force=force))


Options = dict[str, Any]  # Any: keywords of Cursors.reset

_OF_ROWS = ("to", "time", "until", "shift_by", "like", "as_of", "exclude", "if_unsure", "zookeeper")
_HOW = ("rule", "clock", "broker_version", "max_clock_skew", "force")


@command(
    "topics reset-cursor",
    changes=True,
    uses=["clock", "now"],
    examples=[
        "public/default/plain -s half -m 9:3 --dry-run",
        "public/default/plain -s half -t 2026-11-20T00:00:00Z",
        "public/default/plain -s half -t 2026-11-19T12:10:00Z --until 2026-11-19T13:10:00Z",
        "public/default/plain -s half --shift-by -100",
        "public/default/plain -s half --to-subscription holes",
        "public/default/plain -s half --as-of metadata",
        "--all-topics -s reset-me -t 2026-11-20T00:00:00Z",
    ],
    elsewhere=["--from-file changes.jsonl"],
    output="The change: position before and after, the replayed and the skipped messages, and its undo command.",
    errors=[TopicNotFound, SubscriptionNotFound, LedgerNotFound, EntryNotFound, NothingMatches, Refused, StalePlan],
)
@partial(topics_argument, or_file=True)
@click.option("-s", "--subscription", help="The subscription; rows of --from-file may name their own.")
@click.option("-t", "--time", type=TIME_OR_AGO, help="To this time: an age (3h), or a point in time.")
@click.option(
    "--until",
    type=TIME_OR_AGO,
    metavar="AGO|TIME",
    help="With -t: redeliver only messages before this time; the rest stays as it is.",
)
@click.option("-m", "--messageId", "to", type=POSITION, help="To this position, earliest or latest.")
@click.option("--shift-by", type=INTEGER, metavar="±N", help="N entries forward, or backward if negative.")
@click.option("--to-subscription", "like", metavar="OTHER", help="To the position of OTHER, with its acknowledgements.")
@click.option(
    "--as-of", metavar="TIME|STATE", help="To its position at that time, or in STATE of subscription-history."
)
@choice_option(
    "--if-unsure",
    words=["refuse", "redeliver", "skip", "oldest", "newest"],
    metavar="[refuse|redeliver|skip]",
    help="If --as-of may mean several states: redeliver what any of these had left, or skip what any had acknowledged.",
)
@zookeeper_option
@flag("-e", "--exclude-reset-position", "exclude", help="Start after the position instead of at it.")
@choice_option(
    "--rule",
    words=[EXACT, BROKER],
    help="exact: the first entry at or after the time; a position must exist. broker: what a live broker does.",
)
@BROKER_VERSION
@MAX_CLOCK_SKEW
@flag(
    "--force",
    help="Allow what is otherwise refused: moving to the end, into lost entries, the broker's own cursors or (-m) a "
    "damaged one.",
)
def reset_cursor(
    app: App, selection: TopicSelection, subscription: str | None, from_file: Path | None, **options: Any
) -> None:  # Any: of Cursors.reset
    """Move a subscription so that redelivery starts at a time or a position.

    By time, this is the first entry at or after it, exactly (--clock chooses the clock); if none exists, the reset
    would skip everything and is refused. Individual acknowledgements are cleared, except with --until: then only what
    lies between the two times is delivered again, and everything else keeps the state it had. Several topics, all partitions, or
    the rows of a file are one change: all or nothing.
    """
    options |= {"clock": app.settings.clock, "zookeeper": options.pop("directories")}
    if from_file is not None:
        app.change(_plan_rows(app, from_file, subscription, options))
        return
    _choose_place(app, options)
    if subscription is None:
        raise click.UsageError("Missing option '-s' / '--subscription'.", click.get_current_context())
    app.change(app.cursors(selection, subscription).reset(**options))


def _choose_place(app: App, options: Options) -> None:
    """Check that ``options`` name one target and drop --time beside a position, as CmdTopics 4.0.8 does; raises
    InvalidValue."""
    given = [options[key] is not None for key in ("to", "shift_by", "like", "as_of")]
    given[0] |= options["time"] is not None
    if sum(given) > 1:
        raise InvalidValue("only one of --time or --messageId, --shift-by, --to-subscription and --as-of can be meant")
    if not any(given):
        raise InvalidValue(
            "Either Timestamp (--time) or messageId (--messageId) has to be provided to reset cursor",
            hint="for example: -t 3h, -m 10:4, --shift-by -100, or --to-subscription OTHER",
        )
    if options["to"] is not None and options["time"] is not None:
        options["time"] = None
        app.warn("--time is ignored if --messageId is given, as in pulsar-admin")


def _plan_rows(app: App, path: Path, subscription: str | None, options: Options) -> Plan:
    if any(options[key] not in (None, False, (), "refuse") for key in _OF_ROWS):
        raise InvalidValue(
            "with --from-file the rows have the positions",
            hint="leave out -t, -m, -e, --until, --shift-by, --to-subscription, --as-of, --if-unsure and --zookeeper",
        )
    how = {key: options[key] for key in _HOW}
    return app.api.reset_cursors(read_lines(path), subscription, source=shown_path(path), **how)


_TIME = click.option(
    "-t",
    "--expireTime",
    "before",
    type=TIME_OR_AGO,
    help="Expire messages older than this: an age (3h), or a point in time.",
)
_HOW_TO_EXPIRE = together(
    flag("--ttl", "by_ttl", help="Expire by the TTL in force: topic policy, then namespace."),
    choice_option(
        "--rule",
        words=[ALL_BEFORE, BROKER],
        help="all-before: drops nothing newer than the limit. broker: what a live broker does.",
    ),
    BROKER_VERSION,
    MAX_CLOCK_SKEW,
    click.option(
        "--forecast",
        "forecast_ms",
        type=DURATION,
        help="Change nothing: show what the TTL drops, and when, this far ahead.",
    ),
    click.option("--interval", "interval_ms", type=DURATION, help="Rows of the forecast [default: a 24th of it]."),
    flag(
        "--force",
        help="Also if nothing is older, or if the whole copy is older than the given age and everything is dropped.",
    ),
)


COLUMNS = (
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("FROM", "from", "time", drop=2),
    Column("TO", "to", "time"),
    Column("ENTRIES", "entries", "number", tone=caution, sums=True),
    Column("MESSAGES", messages_of, "number", sums=True),
    Column("BYTES", "bytes", "bytes", drop=1, sums=True),
    Column("MARK-DELETE", "markDeletePosition", drop=3),
)
_OUTPUT = (
    "The change: position before and after, the expired messages per ledger, the ledgers that a broker may then "
    "delete and the cursor that keeps the rest, what a broker would have done if that differs, messages dated in the "
    "future, delayed messages that expire before they are due, and the undo command. With --forecast one row per "
    "interval: the first is already overdue, the last is what remains."
)
_ERRORS = [TopicNotFound, SubscriptionNotFound, LedgerNotFound, EntryNotFound, NothingMatches, Refused, StalePlan]


@command(
    "topics expire",
    aliases=["expire-messages"],
    changes=True,
    uses=["clock", "now", "spark"],
    examples=[
        "public/default/plain -s expire-me -t 2026-11-21T09:23:14Z --dry-run",
        "public/default/plain -s expire-me -p 18:4",
        "acme/iot/skewed -s expire-me -t 2026-11-21T09:30:00Z --rule broker",
        "public/default/plain -s half -t 1h --forecast 24h --now 2026-11-21T10:00:00Z",
    ],
    elsewhere=["--all-topics -s workers --ttl"],
    output=_OUTPUT,
    errors=_ERRORS,
)
@topics_argument
@subscription_option
@_TIME
@click.option("-p", "--position", "to", type=POSITION, help="Expire up to this position, earliest or latest.")
@flag("-e", "--exclude-reset-position", "exclude", help="The position itself stays.")
@_HOW_TO_EXPIRE
def expire(
    app: App, selection: TopicSelection, subscription: str, **options: Any
) -> Result | None:  # Any: of Cursors.expire
    """Expire the messages of a subscription that are older than a limit, or up to a position.

    Drops the entries before the first entry at or after the limit: nothing newer, even if clocks run backwards. Several
    topics or partitions are one change: all or nothing. A limit that would drop nothing is refused.
    """
    return _expire(app, app.cursors(selection, subscription), options)


@command(
    "topics expire-all-subscriptions",
    aliases=["expire-messages-all-subscriptions"],
    changes=True,
    uses=["clock", "now", "spark"],
    examples=[
        "public/default/plain -t 2026-11-21T09:23:14Z --dry-run",
        "--pattern 'public/default/steady*' -t 2026-11-21T09:23:13Z",
    ],
    elsewhere=["--all-topics --ttl"],
    output=_OUTPUT,
    errors=_ERRORS,
)
@topics_argument
@_TIME
@_HOW_TO_EXPIRE
def expire_all_subscriptions(
    app: App, selection: TopicSelection, **options: Any
) -> Result | None:  # Any: of Cursors.expire
    """Expire the messages of every subscription that are older than a limit.

    The cursors of compaction, deduplication and replication are not changed. All subscriptions of all topics are one
    change.
    """
    return _expire(app, app.cursors(selection, None), {"to": None, "exclude": False, **options})


def _expire(app: App, cursors: Cursors, options: dict[str, Any]) -> Result | None:
    _check(**options)
    options["clock"] = app.settings.clock
    ahead_ms, interval_ms = options.pop("forecast_ms"), options.pop("interval_ms")
    if ahead_ms is None:
        app.change(cursors.expire(**options))
        return None
    how = {key: options[key] for key in ("rule", "clock", "broker_version", "max_clock_skew")}
    ttl = None if options["before"] is None else timedelta(milliseconds=app.clock_ms - options["before"])
    interval = None if interval_ms is None else timedelta(milliseconds=interval_ms)
    forecasts = cursors.forecast(timedelta(milliseconds=ahead_ms), ttl=ttl, interval=interval, **how)
    return Result(rows=[row for forecast in forecasts for row in forecast.intervals], columns=COLUMNS)


def _check(
    *,
    before: int | None,
    to: Position | None,
    by_ttl: bool,
    exclude: bool,
    forecast_ms: int | None,
    interval_ms: int | None,
    **how: object,
) -> None:
    """Raise InvalidValue for options of an expiry that exclude each other, or without a limit."""
    if before is not None and to is not None:
        raise InvalidValue("Can't expire message by time and by message position at the same time.")
    if by_ttl and (before is not None or to is not None):
        raise InvalidValue("--ttl takes the limit from the policy in force: leave out --expireTime and --position")
    if forecast_ms is not None and (to is not None or exclude):
        raise InvalidValue("a forecast goes by age: leave out --position and -e")
    if interval_ms is not None and forecast_ms is None:
        raise InvalidValue("--interval needs --forecast")
    if before is None and to is None and not by_ttl and forecast_ms is None:
        raise InvalidValue(
            "Either time (--expireTime) or message position (--position) has to be provided to expire messages",
            hint="for example: -t 3h, -p 10:4, or --ttl for the policy in force",
        )
