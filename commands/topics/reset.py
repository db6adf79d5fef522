"""``topics reset-cursor``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from commands.topics.broker import BROKER_VERSION, MAX_CLOCK_SKEW, warn_of_broker_clock
from commands.topics.moving import check_entries, iter_cursors, read_lines, shown_path, topics_or_file
from commands.topics.resets_file import ResetRow, iter_reset_rows
from pulsar_admin.context import App
from pulsar_admin.numbers import INTEGER
from pulsar_admin.options import POSITION, TIME_OR_AGO, TopicSelection, command, gather, pass_app
from store.changes.cursors import CursorMove, plan_moves
from store.changes.resetting import BROKER, EXACT, ResetRequest, ResetRule, ResetTarget, reset_move
from store.db.clocks import check_clock
from store.errors import (
    EntryNotFound,
    InvalidValue,
    LedgerNotFound,
    NothingMatches,
    Refused,
    StalePlan,
    StoreError,
    SubscriptionNotFound,
    TopicNotFound,
)
from store.model.cursors import Cursor, read_cursor
from store.model.ledgers import EntryReader, open_reader
from store.model.topics import Topic, expand_topic, read_topic
from store.names import EARLIEST, LATEST, Position, TopicName
from store.search.broker_setup import BrokerSetup, BrokerVersion


@dataclass(frozen=True, slots=True)
class ResetOptions:
    """Where to, as typed; a position wins over a time, as in pulsar-admin."""

    time_ms: int | None
    message_id: Position | None
    shift_by: int | None
    to_subscription: str | None
    exclude: bool
    rule: ResetRule
    broker_version: BrokerVersion
    max_clock_skew_ms: int
    force: bool
    from_file: Path | None

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
    uses=["clock", "now"],
    examples=[
        "pulsar-admin topics reset-cursor public/default/plain -s half -m 9:3 --dry-run",
        "pulsar-admin topics reset-cursor public/default/plain -s half -t 2026-11-20T00:00:00Z",
        "pulsar-admin topics reset-cursor public/default/plain -s half --shift-by -100",
        "pulsar-admin topics reset-cursor public/default/plain -s half --to-subscription holes",
        "pulsar-admin topics reset-cursor --all-topics -s reset-me -t 2026-11-20T00:00:00Z",
    ],
    elsewhere=["pulsar-admin topics reset-cursor --from-file changes.jsonl"],
    output="The change: position before and after, what is replayed and what is skipped, and its undo command.",
    errors=[TopicNotFound, SubscriptionNotFound, LedgerNotFound, EntryNotFound, NothingMatches, Refused, StalePlan],
)
@topics_or_file
@click.option("-s", "--subscription", help="The subscription; rows of --from-file may name their own.")
@click.option("-t", "--time", "time_ms", type=TIME_OR_AGO, help="To this time: so long ago (3h), or a point in time.")
@click.option("-m", "--messageId", "message_id", type=POSITION, help="To this position, earliest or latest.")
@click.option("--shift-by", type=INTEGER, metavar="±N", help="N entries further, or with a minus back.")
@click.option("--to-subscription", metavar="OTHER", help="To where OTHER stands, with its acknowledgements.")
@click.option("-e", "--exclude-reset-position", "exclude", is_flag=True, help="Start behind the position, not at it.")
@click.option(
    "--rule",
    type=click.Choice([EXACT, BROKER]),
    default=EXACT,
    show_default=True,
    help="exact: the first entry at or after the time; a position must exist. broker: what a live broker does.",
)
@BROKER_VERSION
@MAX_CLOCK_SKEW
@click.option("--force", is_flag=True, help="Also move the cursors of compaction and deduplication.")
@gather(ResetOptions)
@pass_app
def reset_cursor(app: App, selection: TopicSelection, subscription: str | None, options: ResetOptions) -> None:
    """Move a subscription so that the first entry given again is at a time or a position.

    By time this is the first entry at or after it, exactly (--clock chooses the clock). Individual acknowledgements are
    cleared. Several topics, all partitions, or the rows of a file are one change: all or nothing.
    """
    with open_reader(app.store) as reader:
        if options.from_file is not None:
            moves = list(_moves_of_file(app, reader, subscription, options))
        else:
            moves = list(_moves(app, reader, (selection, subscription), options))
        plan = plan_moves(reader, "topics reset-cursor", moves, app.now_ms)
    app.change(plan)


def _moves(
    app: App, reader: EntryReader, meant: tuple[TopicSelection, str | None], options: ResetOptions
) -> Iterator[CursorMove]:
    selection, subscription = meant
    target = options.target
    if options.time_ms is not None and target.message_id is not None:
        app.warn("--time is left out where --messageId is given, as in pulsar-admin")
    if subscription is None:
        raise click.UsageError("Missing option '-s' / '--subscription'.", click.get_current_context())
    cursors = list(iter_cursors(reader, selection, subscription))
    if target.message_id not in (None, EARLIEST, LATEST) and len(cursors) > 1:
        raise InvalidValue(
            f"Reset-cursor at position is not allowed for {len(cursors)} topics: position {target.message_id} is in one of them",
            hint="name that topic or partition, use -t, or give each its own row with --from-file",
        )
    if target.time_ms is not None:
        check_entries(selection, (topic for topic, _ in cursors))
    for topic, cursor in cursors:
        yield _move(app, reader, topic, cursor, target, options)


def _moves_of_file(
    app: App, reader: EntryReader, subscription: str | None, options: ResetOptions
) -> Iterator[CursorMove]:
    given = (options.time_ms, options.message_id, options.shift_by, options.to_subscription)
    if options.exclude or any(value is not None for value in given):
        raise InvalidValue(
            "with --from-file the rows say where to: leave out -t, -m, -e, --shift-by and --to-subscription"
        )
    assert options.from_file is not None
    name = shown_path(options.from_file)
    seen: dict[tuple[TopicName, str], str] = {}
    for row in iter_reset_rows(read_lines(options.from_file), name, subscription, _parse_time):
        try:
            yield from _moves_of_row(app, reader, row, (options, seen))
        except StoreError as error:
            raise type(error)(f"{row.where}: {error.message}", hint=error.hint, **error.context) from error
    if not seen:
        raise InvalidValue(f"{name} holds no change", hint="one JSON object a line")


def _moves_of_row(
    app: App, reader: EntryReader, row: ResetRow, known: tuple[ResetOptions, dict[tuple[TopicName, str], str]]
) -> Iterator[CursorMove]:
    options, seen = known
    for name in expand_topic(reader.txn, row.topic):
        first = seen.setdefault((name, row.subscription), row.where)
        if first != row.where:
            raise InvalidValue(f"{row.subscription} of {name} is moved by {first} already")
        topic = read_topic(reader.txn, name)
        cursor = read_cursor(reader.txn, reader, topic, row.subscription)
        yield _move(app, reader, topic, cursor, row.target, options)


def _parse_time(text: str) -> int:
    parsed = TIME_OR_AGO.convert(text, None, None)
    assert isinstance(parsed, int)
    return parsed


def _move(
    app: App, reader: EntryReader, topic: Topic, cursor: Cursor, target: ResetTarget, options: ResetOptions
) -> CursorMove:
    by_time = target.time_ms is not None and options.rule == EXACT
    clock = check_clock(app.settings.clock) if by_time else "auto"
    broker = BrokerSetup(options.broker_version, options.max_clock_skew_ms, app.now_ms)
    request = ResetRequest(app.now_ms, options.rule, clock, broker, options.force)
    move = reset_move(reader, topic, cursor, target, request)
    if by_time:
        warn_of_broker_clock(app, reader, topic)
    return move
