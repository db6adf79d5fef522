"""``topics expire`` and ``topics expire-all-subscriptions``: by age, position or the TTL in force; forecasts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import click

from commands.topics.broker import BROKER_VERSION, MAX_CLOCK_SKEW, warn_of_broker_clock
from commands.topics.moving import check_entries
from pulsar_admin.api.cursors import iter_cursors, read_cursors, read_topics
from pulsar_admin.columns import Column, caution
from pulsar_admin.context import App
from pulsar_admin.options import (
    DURATION,
    POSITION,
    TIME_OR_AGO,
    TopicSelection,
    command,
    gather,
    pass_app,
    subscription_option,
    topics_argument,
)
from store.changes.expiry import ExpiryRequest
from store.changes.plan import Plan
from store.db.clocks import check_clock
from store.delayed.expiries import Cursors, ForecastInterval, forecast_expiries, plan_expiries
from store.errors import (
    EntryNotFound,
    InvalidValue,
    LedgerNotFound,
    NothingMatches,
    Refused,
    StalePlan,
    SubscriptionNotFound,
    TopicNotFound,
)
from store.model.cursors import Cursor, is_consumed, iter_cursor_names
from store.model.reader import EntryReader
from store.model.topics import Topic
from store.names import Position
from store.search.broker_setup import BrokerSetup, BrokerVersion
from store.search.expiry import ALL_BEFORE, BROKER, ExpiryRule

_TIME = click.option(
    "-t",
    "--expireTime",
    "limit_ms",
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


@dataclass(frozen=True, slots=True)
class ExpireOptions:
    """What to expire, as typed."""

    limit_ms: int | None
    by_ttl: bool
    rule: ExpiryRule
    broker_version: BrokerVersion
    max_clock_skew_ms: int
    forecast_ms: int | None
    interval_ms: int | None
    position: Position | None = None
    exclude: bool = False
    force: bool = False

    def check(self) -> None:
        """Raise InvalidValue unless it says one thing."""
        if self.limit_ms is not None and self.position is not None:
            raise InvalidValue("Can't expire message by time and by message position at the same time.")
        if self.by_ttl and (self.limit_ms is not None or self.position is not None):
            raise InvalidValue("--ttl takes the limit from the policy in force: leave out --expireTime and --position")
        if self.forecast_ms is not None and self.position is not None:
            raise InvalidValue("a forecast goes by age: leave out --position")
        if self.interval_ms is not None and self.forecast_ms is None:
            raise InvalidValue("--interval needs --forecast")
        if self.limit_ms is None and self.position is None and not self.by_ttl and self.forecast_ms is None:
            raise InvalidValue(
                "Either time (--expireTime) or message position (--position) has to be provided to expire messages",
                hint="for example: -t 3h, -p 10:4, or --ttl for the policy in force",
            )
        if self.exclude and self.position is None:
            raise InvalidValue("--exclude-reset-position goes with --position")


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
@click.option("-p", "--position", type=POSITION, help="Expire up to this position, earliest or latest.")
@click.option("-e", "--exclude-reset-position", "exclude", is_flag=True, help="The position itself stays.")
@_TTL
@_RULE
@BROKER_VERSION
@MAX_CLOCK_SKEW
@_FORECAST
@_INTERVAL
@_FORCE
@gather(ExpireOptions)
@pass_app
def expire(app: App, selection: TopicSelection, subscription: str, options: ExpireOptions) -> None:
    """Expire the messages of a subscription that are older than a limit, or up to a position.

    Drops the entries before the first entry at or after the limit: nothing newer, even if clocks run backwards. Several
    topics or partitions are one change: all or nothing. A limit that would drop nothing is refused.
    """
    options.check()
    with app.session.scan() as reader:
        cursors = list(iter_cursors(app.session, reader, selection, subscription))
        if options.forecast_ms is None and options.position is None:
            check_entries(selection, (topic for topic, _ in cursors))
        answer = _answer(app, reader, "topics expire", cursors, options)
    _emit(app, answer)


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
@gather(ExpireOptions)
@pass_app
def expire_all_subscriptions(app: App, selection: TopicSelection, options: ExpireOptions) -> None:
    """Expire the messages of every subscription that are older than a limit.

    The cursors of compaction, deduplication and replication are not changed. All subscriptions of all topics are one
    change.
    """
    options.check()
    with app.session.scan() as reader:
        topics = list(read_topics(app.session, reader, selection))
        if options.forecast_ms is None:
            check_entries(selection, topics)
        cursors = list(_iter_subscriptions(app, reader, topics, named=bool(selection.topics)))
        answer = _answer(app, reader, "topics expire-all-subscriptions", cursors, options)
    _emit(app, answer)


def _iter_subscriptions(
    app: App, reader: EntryReader, topics: list[Topic], *, named: bool
) -> Iterator[tuple[Topic, Cursor]]:
    found = False
    for topic in topics:
        names = sorted(iter_cursor_names(reader.txn, topic.name))
        for cursor in read_cursors(app.session, reader, topic, filter(is_consumed, names), named=named):
            found = True
            yield topic, cursor
    if not found:
        raise SubscriptionNotFound("there is no subscription to expire", topics=[str(topic.name) for topic in topics])


def _answer(
    app: App, reader: EntryReader, name: str, cursors: Cursors, options: ExpireOptions
) -> Plan | list[ForecastInterval]:
    if options.position is None:
        for topic in dict.fromkeys(topic for topic, _ in cursors):
            warn_of_broker_clock(app, topic.name)
    request = ExpiryRequest(
        app.now_ms,
        options.limit_ms,
        options.position,
        options.exclude,
        options.rule,
        check_clock(app.settings.clock),
        broker=BrokerSetup(options.broker_version, options.max_clock_skew_ms, app.now_ms),
        force=options.force,
    )
    if options.forecast_ms is None:
        return plan_expiries(reader, name, cursors, request)
    rows: list[ForecastInterval] = []
    for forecast in forecast_expiries(reader, cursors, request, options.forecast_ms, options.interval_ms):
        for text in forecast.warnings:
            app.warn(text)
        rows += forecast.intervals
    return rows


def _emit(app: App, answer: Plan | list[ForecastInterval]) -> None:
    if isinstance(answer, Plan):
        app.change(answer)
    else:
        app.emit_rows(answer, COLUMNS)
