"""``nacks due`` and ``nacks stats``: what is kept for scripts, and what is due of it.

A cron job asks every minute: what only changes need is imported by what changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.columns import Column
from pulsar_admin.context import App
from pulsar_admin.numbers import whole
from pulsar_admin.options import TOPIC, command, gather, pass_app
from store.errors import (
    ChangeNotFound,
    IndexCorrupt,
    NothingMatches,
    StalePlan,
    StoreBusy,
    TopicNotFound,
)
from store.frozen import frozen
from store.names import TopicName

if TYPE_CHECKING:
    from store.db.environment import Txn
    from store.db.nacks import TrackerRow
    from store.nacks.kept import KeptGroup

DUE_COLUMNS = (
    Column("DUE", "dueTime", "time"),
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("LEDGER", "ledgerId", "id"),
    Column("ENTRY", "entryId", "id"),
)
STATS_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("SUBSCRIPTION", "subscription"),
    Column("BITS", "precision_bits", "id"),
    Column("ENTRIES", "entries", "number", sums=True),
    Column("DUE", "due_entries", "number"),
    Column("LEDGERS", "ledgers", "number", drop=3),
    Column("BUCKETS", "buckets", "number", drop=2),
    Column("BITMAPS", "bitmaps", "number", drop=1),
    Column("BYTES", "size_bytes", "bytes", drop=5, sums=True),
    Column("NEXT", "next_deadline_ms", "time"),
    Column("LAST", "last_deadline_ms", "time", drop=4),
)


# -- due --------------------------------------------------------------------------------------------------------------


@frozen
class DueRequest:
    """Whose nacks, and what to do with them."""

    topics: tuple[TopicName, ...]
    subscription: str | None
    pop: bool
    popped: int | None


@command(
    "due",
    changes=True,
    uses=["now", "wait"],
    examples=[],
    elsewhere=[
        "pulsar-admin nacks due",
        "pulsar-admin nacks due public/default/plain -s holes --pop --wait 30s -o jsonl",
        "pulsar-admin nacks due --popped 17",
    ],
    output="One row an entry, in order of time: topic, subscription, position, when it was due and, with --pop, the change.",
    errors=[TopicNotFound, ChangeNotFound, NothingMatches, StoreBusy, StalePlan, IndexCorrupt],
)
@click.argument("topics", type=TOPIC, nargs=-1)
@click.option("-s", "--subscription", help="Only this subscription.")
@click.option("--pop", is_flag=True, help="Also remove them, in one change that records them.")
@click.option("--popped", type=whole(1), metavar="CHANGE", help="Show again what this change popped.")
@gather(DueRequest)
@pass_app
def due(app: App, options: DueRequest) -> None:
    """List the negative acks that are due, and optionally pop them.

    Whole buckets are listed, of the named subscriptions or all; buckets that are not due are not read. --pop removes
    what it lists in the same transaction that records it: if a job is killed before it used its list, `nacks due
    --popped CHANGE` prints it again, and `store undo CHANGE` puts it back. Nothing being due is not an error.
    """
    if options.popped is not None:
        _show_popped(app, options.popped)
    elif options.pop:
        _pop(app, options)
    elif app.settings.plan is not None:
        raise click.UsageError("--plan: only with --pop", click.get_current_context())
    else:
        with app.session.read() as txn:
            _emit_due(app, _due_groups(app, txn, options))


def _show_popped(app: App, change: int) -> None:
    from store.changes.nacks import popped_groups
    from store.changes.plan import read_change

    with app.session.read() as txn:
        _emit_due(app, popped_groups(read_change(txn, change)), change)


def _pop(app: App, options: DueRequest) -> None:
    from store.changes.nacks import plan_pop

    with app.session.read() as txn:
        groups = list(_due_groups(app, txn, options))
        plan = plan_pop(txn, groups, app.now_ms)
    app.confirm(plan)
    _emit_due(app, groups, app.apply(plan).number)


def _due_groups(app: App, txn: Txn, options: DueRequest) -> Iterator[KeptGroup]:
    from store.nacks.kept import iter_due

    return iter_due(txn, _trackers(txn, options.topics, options.subscription), app.now_ms)


def _trackers(txn: Txn, topics: tuple[TopicName, ...], subscription: str | None) -> list[TrackerRow]:
    """Return the trackers meant; raises TopicNotFound for a topic that neither the trackers nor the store know."""
    from store.nacks.kept import iter_trackers

    found = [row for row in iter_trackers(txn) if subscription in (None, row.subscription)]
    if not topics:
        return found
    # Imported here: a job that names no topic needs no metadata.
    from store.model.topics import expand_topic

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


def _emit_due(app: App, groups: Iterable[KeptGroup], change: int | None = None) -> None:
    columns = DUE_COLUMNS if change is None else (*DUE_COLUMNS, Column("CHANGE", "change", "id"))
    app.emit_rows(due_rows(groups, change), columns)


# -- stats ------------------------------------------------------------------------------------------------------------


@command(
    "stats",
    uses=["now", "wait"],
    examples=[],
    elsewhere=["pulsar-admin nacks stats", "pulsar-admin nacks stats public/default/plain -s holes -o json"],
    output="One row per subscription: precision, entries waiting and due, ledgers, buckets, bitmaps, bytes, first and last deadline.",
    errors=[TopicNotFound, IndexCorrupt],
)
@click.argument("topics", type=TOPIC, nargs=-1)
@click.option("-s", "--subscription", help="Only this subscription.")
@pass_app
def stats(app: App, topics: tuple[TopicName, ...], subscription: str | None) -> None:
    """Count the negative acks kept for each subscription."""
    from store.nacks.kept import read_stats

    with app.session.read() as txn:
        rows = [read_stats(txn, row, app.now_ms) for row in _trackers(txn, topics, subscription)]
    rows.sort(key=lambda row: (row.topic, row.subscription))
    app.emit_rows(rows, STATS_COLUMNS)
