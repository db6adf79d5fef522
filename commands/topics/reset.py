"""``topics reset-cursor``."""

from __future__ import annotations

from dataclasses import dataclass

import click

from pulsar_admin.context import App
from pulsar_admin.options import (
    POSITION,
    TIME_OR_AGO,
    TopicSelection,
    command,
    gather,
    pass_app,
    subscription_option,
    topics_argument,
)
from store.cursors import read_cursor
from store.errors import InvalidValue, Refused, StalePlan, SubscriptionNotFound, TopicNotFound
from store.ledgers import EntryReader, open_reader
from store.names import Position, TopicName
from store.plans.base import Plan
from store.plans.cursors import CursorMove, check_resettable, plan_moves, reset_state, reset_to_time
from store.search import check_clock, find_first_at_or_after
from store.topics import read_topic, select_topics


@dataclass(frozen=True, slots=True)
class ResetOptions:
    """Where to: a time, or a position (which wins, as in pulsar-admin)."""

    time_ms: int | None
    message_id: Position | None
    exclude: bool
    force: bool


@command(
    "reset-cursor",
    changes=True,
    uses=["clock"],
    examples=[
        "pulsar-admin topics reset-cursor public/default/plain -s half -m 9:3 --dry-run",
        "pulsar-admin topics reset-cursor public/default/plain -s half -t 2026-11-20T00:00:00Z",
    ],
    output="The change: position before and after, what is replayed and what is skipped, and its undo command.",
    errors=[TopicNotFound, SubscriptionNotFound, Refused, StalePlan],
)
@topics_argument
@subscription_option
@click.option("-t", "--time", "time_ms", type=TIME_OR_AGO, help="To this time: so long ago (3h), or a point in time.")
@click.option("-m", "--messageId", "message_id", type=POSITION, help="To this position, earliest or latest.")
@click.option("-e", "--exclude-reset-position", "exclude", is_flag=True, help="Start behind the position, not at it.")
@click.option("--force", is_flag=True, help="Also move the cursor of compaction.")
@gather(ResetOptions)
@pass_app
def reset_cursor(app: App, selection: TopicSelection, subscription: str, options: ResetOptions) -> None:
    """Move a subscription so that the first entry given again is at a time or a position.

    By time this is the first entry at or after it, exactly (--clock chooses the clock). Individual acknowledgements are
    cleared. Several topics are one change: all or nothing.
    """
    if options.time_ms is None and options.message_id is None:
        raise InvalidValue(
            "Either Timestamp (--time) or messageId (--messageId) has to be provided to reset cursor",
            hint="for example: -t 3h, or -m 10:4",
        )
    with open_reader(app.store) as reader:
        names = select_topics(reader.txn, selection.topics, all_topics=selection.all_topics, pattern=selection.pattern)
        moves = [_move(app, reader, name, (subscription, options)) for name in names]
        plan: Plan = plan_moves(reader.txn, "topics reset-cursor", moves, app.now_ms)
    app.confirm(plan)
    app.emit(app.apply(plan))


def _move(app: App, reader: EntryReader, name: TopicName, request: tuple[str, ResetOptions]) -> CursorMove:
    subscription, options = request
    topic = read_topic(reader.txn, name)
    cursor = read_cursor(reader.txn, reader, topic, subscription)
    check_resettable(cursor, force=options.force)
    if options.message_id is not None:
        return CursorMove(
            topic, cursor, reset_state(reader, topic, cursor, options.message_id, exclude=options.exclude)
        )
    assert options.time_ms is not None
    found = find_first_at_or_after(reader, topic, options.time_ms, check_clock(app.settings.clock))
    if found.position is None:
        app.warn(f"{name}: nothing is at or after that time; {subscription} moves to the end")
    if options.exclude and found.position is not None:
        return CursorMove(topic, cursor, reset_state(reader, topic, cursor, found.position, exclude=True))
    return CursorMove(topic, cursor, reset_to_time(topic, cursor, found.position), (("time", options.time_ms),))
