"""``topics expire`` and ``topics expire-all-subscriptions``: by age, position or the TTL in force; forecasts."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.columns import Column, caution
from pulsar_admin.commands.topics.broker import BROKER_VERSION, MAX_CLOCK_SKEW
from pulsar_admin.context import App
from pulsar_admin.options import (
    DURATION,
    POSITION,
    TIME_OR_AGO,
    TopicSelection,
    command,
    pass_app,
    subscription_option,
    topics_argument,
)
from pulsar_admin.store.errors import (
    EntryNotFound,
    InvalidValue,
    LedgerNotFound,
    NothingMatches,
    Refused,
    StalePlan,
    SubscriptionNotFound,
    TopicNotFound,
)
from pulsar_admin.store.search.expiry import ALL_BEFORE, BROKER

if TYPE_CHECKING:
    from pulsar_admin.api.cursors import Cursors
    from pulsar_admin.store.names import Position

_TIME = click.option(
    "-t",
    "--expireTime",
    "before",
    type=TIME_OR_AGO,
    help="Expire what is older than this: an age (3h), or a point in time.",
)
_RULE = click.option(
    "--rule",
    type=click.Choice([ALL_BEFORE, BROKER]),
    default=ALL_BEFORE,
    show_default=True,
    help="all-before: drops nothing newer than the limit. broker: what a live broker does.",
)
_TTL = click.option("--ttl", "by_ttl", is_flag=True, help="Expire by the TTL in force: topic policy, then namespace.")
_FORECAST = click.option(
    "--forecast",
    "forecast_ms",
    type=DURATION,
    help="Change nothing: show what the TTL drops, and when, this far ahead.",
)
_INTERVAL = click.option(
    "--interval", "interval_ms", type=DURATION, help="Rows of the forecast [default: a 24th of it]."
)


_FORCE = click.option(
    "--force",
    is_flag=True,
    help="Also if nothing is older, or if the whole copy is older than the given age and everything is dropped.",
)


COLUMNS = (
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("FROM", "from", "time", drop=2),
    Column("TO", "to", "time"),
    Column("ENTRIES", "entries", "number", tone=caution, sums=True),
    Column("MESSAGES", "messages", "number", sums=True),
    Column("BYTES", "bytes", "bytes", drop=1, sums=True),
    Column("MARK-DELETE", "markDeletePosition", drop=3),
)
_OUTPUT = (
    "The change: position before and after, what goes by ledger, which ledgers a broker may then delete and which cursor keeps "
    "the rest, what it would have done itself where that differs, what is dated in the future, which delayed messages go before "
    "they are due, and the undo command. With --forecast one row an interval: the first is overdue already, the last is left after it."
)
_ERRORS = [TopicNotFound, SubscriptionNotFound, LedgerNotFound, EntryNotFound, NothingMatches, Refused, StalePlan]


@command(
    "expire",
    changes=True,
    mirrors=True,
    uses=["clock", "now", "spark"],
    examples=[
        "pulsar-admin topics expire public/default/plain -s expire-me -t 2026-11-21T09:23:14Z --dry-run",
        "pulsar-admin topics expire public/default/plain -s expire-me -p 18:4",
        "pulsar-admin topics expire acme/iot/skewed -s expire-me -t 2026-11-21T09:30:00Z --rule broker",
        "pulsar-admin topics expire public/default/plain -s half -t 1h --forecast 24h --now 2026-11-21T10:00:00Z",
    ],
    elsewhere=["pulsar-admin topics expire --all-topics -s workers --ttl"],
    output=_OUTPUT,
    errors=_ERRORS,
)
@topics_argument
@subscription_option
@_TIME
@click.option("-p", "--position", "to", type=POSITION, help="Expire up to this position, earliest or latest.")
@click.option("-e", "--exclude-reset-position", "exclude", is_flag=True, help="The position itself stays.")
@_TTL
@_RULE
@BROKER_VERSION
@MAX_CLOCK_SKEW
@_FORECAST
@_INTERVAL
@_FORCE
@pass_app
def expire(app: App, selection: TopicSelection, subscription: str, **options: Any) -> None:  # Any: of Cursors.expire
    """Expire the messages of a subscription that are older than a limit, or up to a position.

    Drops the entries before the first entry at or after the limit: nothing newer, even if clocks run backwards. Several
    topics or partitions are one change: all or nothing. A limit that would drop nothing is refused.
    """
    _expire(app, app.session.cursors(selection, subscription), options)


@command(
    "expire-all-subscriptions",
    changes=True,
    mirrors=True,
    uses=["clock", "now", "spark"],
    examples=[
        "pulsar-admin topics expire-all-subscriptions public/default/plain -t 2026-11-21T09:23:14Z --dry-run",
        "pulsar-admin topics expire-all-subscriptions --pattern 'public/default/steady*' -t 2026-11-21T09:23:13Z",
    ],
    elsewhere=["pulsar-admin topics expire-all-subscriptions --all-topics --ttl"],
    output=_OUTPUT,
    errors=_ERRORS,
)
@topics_argument
@_TIME
@_TTL
@_RULE
@BROKER_VERSION
@MAX_CLOCK_SKEW
@_FORECAST
@_INTERVAL
@_FORCE
@pass_app
def expire_all_subscriptions(app: App, selection: TopicSelection, **options: Any) -> None:  # Any: of Cursors.expire
    """Expire the messages of every subscription that are older than a limit.

    The cursors of compaction, deduplication and replication are not changed. All subscriptions of all topics are one
    change.
    """
    _expire(app, app.session.cursors(selection, None), {"to": None, "exclude": False, **options})


def _expire(app: App, cursors: Cursors, options: dict[str, Any]) -> None:
    _check(**options)
    options["clock"] = app.settings.clock
    ahead_ms, interval_ms = options.pop("forecast_ms"), options.pop("interval_ms")
    if ahead_ms is None:
        app.change(cursors.expire(**options))
        return
    how = {key: options[key] for key in ("rule", "clock", "broker_version", "max_clock_skew")}
    ttl = None if options["before"] is None else timedelta(milliseconds=app.clock_ms - options["before"])
    interval = None if interval_ms is None else timedelta(milliseconds=interval_ms)
    found = cursors.forecast(timedelta(milliseconds=ahead_ms), ttl=ttl, interval=interval, **how)
    app.emit_rows([row for forecast in found for row in forecast.intervals], COLUMNS)


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
    """Raise InvalidValue unless the options say one thing."""
    if before is not None and to is not None:
        raise InvalidValue("Can't expire message by time and by message position at the same time.")
    if by_ttl and (before is not None or to is not None):
        raise InvalidValue("--ttl takes the limit from the policy in force: leave out --expireTime and --position")
    if forecast_ms is not None and to is not None:
        raise InvalidValue("a forecast goes by age: leave out --position")
    if interval_ms is not None and forecast_ms is None:
        raise InvalidValue("--interval needs --forecast")
    if before is None and to is None and not by_ttl and forecast_ms is None:
        raise InvalidValue(
            "Either time (--expireTime) or message position (--position) has to be provided to expire messages",
            hint="for example: -t 3h, -p 10:4, or --ttl for the policy in force",
        )
    if exclude and to is None:
        raise InvalidValue("--exclude-reset-position goes with --position")
