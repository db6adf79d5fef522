"""``nacks due`` and ``nacks stats``: what is kept for scripts, and what is due of it.

A cron job asks every minute: what only changes need is imported by what changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from pulsar_admin.columns import Column
from pulsar_admin.context import App
from pulsar_admin.numbers import whole
from pulsar_admin.options import TOPIC, command, gather, pass_app
from pulsar_admin.store.errors import (
    ChangeNotFound,
    IndexCorrupt,
    NothingMatches,
    StalePlan,
    StoreBusy,
    TopicNotFound,
)
from pulsar_admin.store.names import TopicName

if TYPE_CHECKING:
    from pulsar_admin.api.nacks import KeptNacks
    from pulsar_admin.store.nacks.kept import KeptGroup

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


class DueRequest(Struct, frozen=True):
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
    nacks = app.session.nacks(options.topics, options.subscription)
    if options.popped is not None:
        _emit_due(app, nacks.due_groups(popped=options.popped), options.popped)
    elif options.pop:
        _pop(app, nacks)
    elif app.settings.plan is not None:
        raise click.UsageError("--plan: only with --pop", click.get_current_context())
    else:
        _emit_due(app, nacks.due_groups())


def _pop(app: App, nacks: KeptNacks) -> None:
    with app.session.read():
        groups, plan = list(nacks.due_groups()), nacks.pop()
    app.confirm(plan)
    (report,) = app.apply(plan)
    _emit_due(app, groups, report.number)


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
    app.emit_rows(app.session.nacks(topics, subscription).stats(), STATS_COLUMNS)
