"""``nacks add``, ``nacks due`` and ``nacks stats``: negative acks kept in the store for scripts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands.nacks.positions import iter_position_rows
from commands.topics.moving import read_lines
from pulsar_admin.columns import Column
from pulsar_admin.context import App
from pulsar_admin.options import DURATION, POSITION, TOPIC, command, gather, pass_app, subscription_option
from store.cursors import iter_cursor_names, read_cursor
from store.errors import (
    ChangeNotFound,
    EntryNotFound,
    IndexCorrupt,
    InvalidValue,
    NothingMatches,
    Refused,
    StalePlan,
    StoreBusy,
    SubscriptionNotFound,
    TopicNotFound,
)
from store.ledgers import EntryReader, open_reader
from store.meta import Txn
from store.nacks.buckets import due_time
from store.nacks.holes import NackedEntries, hole_intervals
from store.names import Position, TopicName
from store.plans.base import Plan, read_change
from store.plans.nacks import Nacks, plan_add, plan_pop, popped_groups
from store.topics import Topic, expand_topic, read_topic

if TYPE_CHECKING:
    from store.codec.nackrow import TrackerRow
    from store.nacks.kept import KeptGroup

_RETRY_SECONDS = 0.05
_WAIT = click.option(
    "--wait", "wait_ms", type=DURATION, default="0s", show_default=True, help="Wait for another writer so long."
)
DUE_COLUMNS = (
    Column("DUE", "dueTime", "time"),
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("LEDGER", "ledgerId", "number"),
    Column("ENTRY", "entryId", "number"),
)
STATS_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("BITS", "precision_bits", "number"),
    Column("ENTRIES", "entries", "number"),
    Column("DUE", "due_entries", "number"),
    Column("LEDGERS", "ledgers", "number"),
    Column("BUCKETS", "buckets", "number"),
    Column("BITMAPS", "bitmaps", "number"),
    Column("BYTES", "size_bytes", "number"),
    Column("NEXT", "next_deadline_ms", "time"),
    Column("LAST", "last_deadline_ms", "time"),
)


# -- add --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddRequest:
    """What to track, and for how long."""

    delay_ms: int
    positions: tuple[Position, ...]
    from_file: Path | None
    holes: bool
    bits: int | None
    force: bool
    wait_ms: int


@command(
    "add",
    changes=True,
    uses=["now"],
    examples=[
        "pulsar-admin nacks add public/default/plain -s holes --delay 1h --holes",
        "pulsar-admin nacks add public/default/plain -s half --delay 10m 29:20 29:21:3 --bits 10",
    ],
    elsewhere=["pulsar-admin nacks add public/default/plain -s half --delay 10m --from-file positions.jsonl"],
    output="The change: how many entries wait for the subscription, when the first is due, how many are new, and the undo command.",
    errors=[TopicNotFound, SubscriptionNotFound, EntryNotFound, InvalidValue, Refused, StoreBusy, StalePlan],
)
@click.argument("topic", type=TOPIC)
@click.argument("positions", type=POSITION, nargs=-1)
@subscription_option
@click.option("--delay", "delay_ms", type=DURATION, required=True, help="Due so long after now.")
@click.option(
    "--from-file",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="A position a line; - is stdin.",
)
@click.option("--holes", is_flag=True, help="The subscription's own acknowledgement holes.")
@click.option("--bits", type=int, help="Precision bits, 0 to 62 [the subscription's; 8 when it is new].")
@click.option("--force", is_flag=True, help="Also positions and subscriptions that the store does not know.")
@_WAIT
@gather(AddRequest)
@pass_app
def add(app: App, topic: TopicName, subscription: str, options: AddRequest) -> None:
    """Track entries of a subscription that are to be redelivered later.

    They are kept by time bucket and ledger as bitmaps, as PIP-393 does: never due later than asked, and earlier by less than
    2^bits ms. A batch index is dropped. An entry added again with another delay is due both times. --holes: the entries
    between the mark-delete position and the last individually deleted one that are not deleted. Lines of the file are
    LEDGER:ENTRY or what `topics read -o jsonl` and `nacks due` print, with a "delay" of their own where they have one.
    Changes of one subscription are undone latest first.
    """
    lines = _check_sources(options)

    def plan() -> Plan:
        with open_reader(app.store) as reader:
            entries = _gather_entries(app, reader, (topic, subscription), options, lines)
            nacks = [Nacks(name, subscription, groups, options.bits) for name, groups in entries.items()]
            return plan_add(reader.txn, "nacks add", nacks)

    plan_made, report = apply_waiting(app, plan, options.wait_ms)
    app.emit(report if plan_made.steps else _unchanged(plan_made))


def _check_sources(options: AddRequest) -> list[str]:
    """Return the lines of the file; raises a usage error unless there is exactly one source of positions."""
    if bool(options.positions) + (options.from_file is not None) + options.holes != 1:
        raise click.UsageError("name positions, or give --from-file FILE, or --holes", click.get_current_context())
    return [] if options.from_file is None else read_lines(options.from_file)


def _gather_entries(
    app: App, reader: EntryReader, whose: tuple[TopicName, str], options: AddRequest, lines: list[str]
) -> dict[str, Any]:  # Any: see NackedEntries.entries
    name, subscription = whose
    topics = [read_topic(reader.txn, one) for one in expand_topic(reader.txn, name)]
    if not options.force:
        _check_subscription(reader.txn, topics, subscription)
    found = NackedEntries(topics, unknown=options.force)
    due_ms = due_time(options.delay_ms, app.now_ms)
    if options.holes:
        for topic in topics:
            state = read_cursor(reader.txn, reader, topic, subscription).state
            found.add_intervals(topic, hole_intervals(topic, state), due_ms)
    for position in options.positions:
        found.add(position, due_ms)
    for row in iter_position_rows(lines, str(options.from_file), name):
        row_due_ms = due_ms if row.delay_ms is None else due_time(row.delay_ms, app.now_ms)
        for position in row.positions:
            found.add(position, row_due_ms)
    entries = {topic: groups for topic, groups in found.entries.items() if groups}
    return entries or dict(list(found.entries.items())[:1])


def _check_subscription(txn: Txn, topics: Iterable[Topic], subscription: str) -> None:
    for topic in topics:
        if subscription not in iter_cursor_names(txn, topic.name):
            raise SubscriptionNotFound(
                f"topic {topic.name} has no subscription {subscription!r}",
                hint=f"list them with: pulsar-admin topics subscriptions {topic.name}",
                topic=str(topic.name),
                subscription=subscription,
            )


def _unchanged(plan: Plan) -> object:
    preview: Any = plan.preview()  # Any: JSON
    rows = [{**row, "dryRun": False} for row in (preview if isinstance(preview, list) else [preview])]
    return rows[0] if len(rows) == 1 else rows


def apply_waiting(app: App, make_plan: Callable[[], Plan], wait_ms: int) -> tuple[Plan, Any]:  # Any: JSON
    """Make, confirm and apply a plan; while another process writes, make it again for up to WAIT_MS.

    Returns the plan and its report, None when there was nothing to do. Raises StoreBusy, StalePlan.
    """
    last = time.monotonic() + wait_ms / 1000
    while True:
        plan = make_plan()
        app.confirm(plan)
        if not plan.steps:
            return plan, None
        try:
            return plan, app.apply(plan)
        except (StoreBusy, StalePlan):
            if time.monotonic() >= last:
                raise
            time.sleep(_RETRY_SECONDS)


# -- due --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DueRequest:
    """Whose nacks, and what to do with them."""

    topics: tuple[TopicName, ...]
    subscription: str | None
    pop: bool
    popped: int | None
    wait_ms: int


@command(
    "due",
    changes=True,
    uses=["now"],
    examples=[],
    elsewhere=[
        "pulsar-admin nacks due",
        "pulsar-admin nacks due public/default/plain -s holes --pop --wait 30s",
        "pulsar-admin nacks due --popped 17",
    ],
    output="JSON lines, one an entry, in order of time: topic, subscription, position, when it was due and, with --pop, the change.",
    errors=[TopicNotFound, ChangeNotFound, NothingMatches, StoreBusy, StalePlan, IndexCorrupt],
)
@click.argument("topics", type=TOPIC, nargs=-1)
@click.option("-s", "--subscription", help="Of this subscription only.")
@click.option("--pop", is_flag=True, help="Also remove them, as one change that keeps them.")
@click.option("--popped", type=click.IntRange(1), metavar="CHANGE", help="Show again what that change popped.")
@_WAIT
@gather(DueRequest)
@pass_app
def due(app: App, options: DueRequest) -> None:
    """List the kept negative acks that are due, and pop them.

    Whole buckets, of all subscriptions or of those named; what is not due is not read. --pop removes what it lists in the one
    transaction that also records it: when a job is killed before it used its list, `nacks due --popped CHANGE` gives it
    again, and `store undo CHANGE` puts it back. Nothing due is no error.
    """
    if options.popped is not None:
        with app.store.read() as txn:
            _emit_due(app, due_rows(popped_groups(read_change(txn, options.popped)), options.popped))
    elif options.pop:
        _pop(app, options)
    elif app.settings.plan is not None:
        raise click.UsageError("--plan: only with --pop", click.get_current_context())
    else:
        with app.store.read() as txn:
            _emit_due(app, due_rows(_due_groups(app, txn, options), None))


def _pop(app: App, options: DueRequest) -> None:
    groups: list[KeptGroup] = []

    def plan() -> Plan:
        with app.store.read() as txn:
            groups[:] = _due_groups(app, txn, options)
            return plan_pop(txn, groups, app.now_ms)

    _, report = apply_waiting(app, plan, options.wait_ms)
    change = None if report is None else (report[0] if isinstance(report, list) else report)["change"]
    _emit_due(app, due_rows(groups, change))


def _due_groups(app: App, txn: Txn, options: DueRequest) -> Iterator[KeptGroup]:
    from store.nacks.kept import iter_due

    return iter_due(txn, _trackers(txn, options.topics, options.subscription), app.now_ms)


def _trackers(txn: Txn, topics: tuple[TopicName, ...], subscription: str | None) -> list[TrackerRow]:
    """Return the trackers meant; raises TopicNotFound for a topic that neither the trackers nor the store know."""
    from store.nacks.kept import iter_trackers

    found = [row for row in iter_trackers(txn) if subscription in (None, row.subscription)]
    if not topics:
        return found
    names = {str(topic) for topic in topics}
    for topic in topics:
        if not any(row.topic == str(topic) for row in found):
            names |= {str(name) for name in expand_topic(txn, topic)}
    return [row for row in found if row.topic in names]


def due_rows(groups: Iterable[KeptGroup], change: int | None) -> Iterator[dict[str, Any]]:  # Any: JSON
    """Yield one row an entry; CHANGE is the change that popped it."""
    for group in groups:
        head = {"topic": group.topic, "subscription": group.subscription, "ledgerId": group.ledger_id}
        tail: dict[str, Any] = {"dueTime": group.due_ms} | ({} if change is None else {"change": change})
        for entry_id in group.entry_ids:
            yield head | {"entryId": entry_id} | tail


def _emit_due(app: App, rows: Iterable[dict[str, Any]]) -> None:  # Any: JSON
    from pulsar_admin.output import Style, emit_records

    emit_records(app.writer, rows, Style(app.settings.output or "jsonl", app.settings.color, DUE_COLUMNS))


# -- stats ------------------------------------------------------------------------------------------------------------


@command(
    "stats",
    uses=["now"],
    examples=[],
    elsewhere=["pulsar-admin nacks stats", "pulsar-admin nacks stats public/default/plain -s holes -o json"],
    output="One row a subscription: precision, entries waiting and due, ledgers, buckets, bitmaps, bytes, first and last deadline.",
    errors=[TopicNotFound, IndexCorrupt],
)
@click.argument("topics", type=TOPIC, nargs=-1)
@click.option("-s", "--subscription", help="Of this subscription only.")
@pass_app
def stats(app: App, topics: tuple[TopicName, ...], subscription: str | None) -> None:
    """Show how many negative acks are kept for which subscription."""
    from store.nacks.kept import read_stats

    with app.store.read() as txn:
        rows = [read_stats(txn, row, app.now_ms) for row in _trackers(txn, topics, subscription)]
    rows.sort(key=lambda row: (row.topic, row.subscription))
    app.emit_rows(rows, STATS_COLUMNS)
