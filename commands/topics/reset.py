"""``topics reset-cursor``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from commands.mending import zookeeper_option
from commands.topics.broker import BROKER_VERSION, MAX_CLOCK_SKEW, warn_of_broker_clock
from commands.topics.moving import check_entries, read_lines, shown_path, topics_or_file
from commands.topics.resets_file import iter_reset_rows
from pulsar_admin.api.cursors import iter_cursors
from pulsar_admin.context import App
from pulsar_admin.numbers import INTEGER
from pulsar_admin.options import POSITION, TIME_OR_AGO, TopicSelection, command, gather, pass_app
from store.changes.resetting import (
    BROKER,
    EXACT,
    Reset,
    ResetRequest,
    ResetRow,
    ResetRule,
    ResetTarget,
    plan_resets,
    resets_of_rows,
    resets_to,
)
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
from store.model.reader import EntryReader
from store.names import Position
from store.search.broker_setup import BrokerSetup, BrokerVersion

if TYPE_CHECKING:
    from pulsar_admin.api.plan import Plan
    from store.recovery.as_of import IfUnsure


@dataclass(frozen=True, slots=True)
class ResetOptions:
    """Where to, as typed; a position wins over a time, as in pulsar-admin."""

    time_ms: int | None
    message_id: Position | None
    shift_by: int | None
    to_subscription: str | None
    as_of: str | None
    if_unsure: IfUnsure
    directories: tuple[Path, ...]
    exclude: bool
    rule: ResetRule
    broker_version: BrokerVersion
    max_clock_skew_ms: int
    force: bool
    from_file: Path | None

    @property
    def has_place(self) -> bool:
        """Whether a place is named otherwise than by --as-of."""
        given = (self.time_ms, self.message_id, self.shift_by, self.to_subscription)
        return any(value is not None for value in given)

    @property
    def target(self) -> ResetTarget:
        """The one place meant; raises InvalidValue."""
        time_ms = (
            self.time_ms if self.message_id is None else None
        )  # CmdTopics 4.0.8 looks at --time only without --messageId
        given = [
            time_ms is not None or self.message_id is not None,
            self.shift_by is not None,
            bool(self.to_subscription),
        ]
        if sum(given) > 1:
            raise InvalidValue("only one of --time or --messageId, --shift-by and --to-subscription can be meant")
        if not any(given):
            raise InvalidValue(
                "Either Timestamp (--time) or messageId (--messageId) has to be provided to reset cursor",
                hint="for example: -t 3h, -m 10:4, --shift-by -100, or --to-subscription OTHER",
            )
        return ResetTarget(time_ms, self.message_id, self.shift_by, self.to_subscription, self.exclude)


@command(
    "reset-cursor",
    changes=True,
    mirrors=True,
    uses=["clock", "now"],
    examples=[
        "pulsar-admin topics reset-cursor public/default/plain -s half -m 9:3 --dry-run",
        "pulsar-admin topics reset-cursor public/default/plain -s half -t 2026-11-20T00:00:00Z",
        "pulsar-admin topics reset-cursor public/default/plain -s half --shift-by -100",
        "pulsar-admin topics reset-cursor public/default/plain -s half --to-subscription holes",
        "pulsar-admin topics reset-cursor public/default/plain -s half --as-of metadata",
        "pulsar-admin topics reset-cursor --all-topics -s reset-me -t 2026-11-20T00:00:00Z",
    ],
    elsewhere=["pulsar-admin topics reset-cursor --from-file changes.jsonl"],
    output="The change: position before and after, what is replayed and what is skipped, and its undo command.",
    errors=[TopicNotFound, SubscriptionNotFound, LedgerNotFound, EntryNotFound, NothingMatches, Refused, StalePlan],
)
@topics_or_file
@click.option("-s", "--subscription", help="The subscription; rows of --from-file may name their own.")
@click.option("-t", "--time", "time_ms", type=TIME_OR_AGO, help="To this time: an age (3h), or a point in time.")
@click.option("-m", "--messageId", "message_id", type=POSITION, help="To this position, earliest or latest.")
@click.option("--shift-by", type=INTEGER, metavar="±N", help="N entries forward, or backward if negative.")
@click.option("--to-subscription", metavar="OTHER", help="To where OTHER stands, with its acknowledgements.")
@click.option(
    "--as-of", metavar="TIME|STATE", help="To its position at that time, or in STATE of subscription-history."
)
@click.option(
    "--if-unsure",
    type=click.Choice(["refuse", "oldest", "newest"]),
    default="refuse",
    show_default=True,
    help="Which state to use if --as-of matches several.",
)
@zookeeper_option
@click.option(
    "-e", "--exclude-reset-position", "exclude", is_flag=True, help="Start after the position instead of at it."
)
@click.option(
    "--rule",
    type=click.Choice([EXACT, BROKER]),
    default=EXACT,
    show_default=True,
    help="exact: the first entry at or after the time; a position must exist. broker: what a live broker does.",
)
@BROKER_VERSION
@MAX_CLOCK_SKEW
@click.option(
    "--force",
    is_flag=True,
    help="Also do what is refused otherwise: move to the end, into lost entries, or the broker's own cursors.",
)
@gather(ResetOptions)
@pass_app
def reset_cursor(app: App, selection: TopicSelection, subscription: str | None, options: ResetOptions) -> None:
    """Move a subscription so that redelivery starts at a time or a position.

    By time, this is the first entry at or after it, exactly (--clock chooses the clock); if there is none, the reset
    would skip everything and is refused. Individual acknowledgements are cleared. Several topics, all partitions, or
    the rows of a file are one change: all or nothing.
    """
    if options.as_of is not None:
        app.change(_plan_as_of(app, selection, subscription, options))
        return
    broker = BrokerSetup(options.broker_version, options.max_clock_skew_ms, app.now_ms)
    request = ResetRequest(app.now_ms, options.rule, app.settings.clock, broker, options.force)
    with app.session.reader() as reader:
        resets = _resets(app, reader, selection, subscription, options)
        plan = plan_resets(reader, "topics reset-cursor", _with_clock(app, reader, resets, request), request)
    app.change(plan)


def _plan_as_of(app: App, selection: TopicSelection, subscription: str | None, options: ResetOptions) -> Plan:
    from store.recovery.as_of import is_state_name

    assert options.as_of is not None
    if options.has_place or options.exclude or options.from_file is not None:
        raise InvalidValue("--as-of says where to: leave out -t, -m, -e, --shift-by, --to-subscription and --from-file")
    if subscription is None:
        raise click.UsageError("Missing option '-s' / '--subscription'.", click.get_current_context())
    as_of = options.as_of if is_state_name(options.as_of) else _parse_time(options.as_of)
    cursors, zookeeper = app.session.cursors(selection, subscription), tuple(map(str, options.directories))
    return cursors.reset(as_of=as_of, if_unsure=options.if_unsure, zookeeper=zookeeper, force=options.force)


def _resets(
    app: App, reader: EntryReader, selection: TopicSelection, subscription: str | None, options: ResetOptions
) -> Iterable[Reset]:
    if options.from_file is not None:
        return resets_of_rows(reader, _rows(options.from_file, subscription, options))
    target = options.target
    if options.time_ms is not None and target.message_id is not None:
        app.warn("--time is left out where --messageId is given, as in pulsar-admin")
    if subscription is None:
        raise click.UsageError("Missing option '-s' / '--subscription'.", click.get_current_context())
    resets = resets_to(target, iter_cursors(app.session, reader, selection, subscription))
    if target.time_ms is not None:
        check_entries(selection, (reset.topic for reset in resets))
    return resets


def _rows(path: Path, subscription: str | None, options: ResetOptions) -> Iterator[ResetRow]:
    if options.exclude or options.has_place:
        raise InvalidValue(
            "with --from-file the rows say where to: leave out -t, -m, -e, --shift-by and --to-subscription"
        )
    name = shown_path(path)
    row = None
    for row in iter_reset_rows(read_lines(path), name, subscription, _parse_time):
        yield row
    if row is None:
        raise InvalidValue(f"{name} holds no change", hint="one JSON object a line")


def _parse_time(text: str) -> int:
    parsed = TIME_OR_AGO.convert(text, None, None)
    assert isinstance(parsed, int)
    return parsed


def _with_clock(app: App, reader: EntryReader, resets: Iterable[Reset], request: ResetRequest) -> Iterator[Reset]:
    """Pass RESETS on; warns where the clock asked for is not on all entries."""
    for reset in resets:
        if request.goes_by_clock(reset.target):
            warn_of_broker_clock(app, reset.topic.name)
        yield reset
