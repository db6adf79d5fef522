"""``ledgers forget``: what is lost is taken out of whatever references it."""

from __future__ import annotations

import click

from pulsar_admin.context import App
from pulsar_admin.numbers import whole
from pulsar_admin.options import command, pass_app
from store.changes.mending import plan_forget
from store.errors import LedgerNotFound, Refused, StalePlan
from store.model.ledgers import open_reader

_LEDGER_ID = whole()


@command(
    "forget",
    changes=True,
    examples=["pulsar-admin ledgers forget 9 --force --dry-run"],
    output="The change: the ledgers of each topic before and after, what is dropped with them, cursors that were in them.",
    errors=[LedgerNotFound, Refused, StalePlan],
)
@click.argument("ledgers", type=_LEDGER_ID, nargs=-1, required=True)
@click.option("--force", is_flag=True, help="Also a ledger of which nothing is lost.")
@pass_app
def forget(app: App, ledgers: tuple[int, ...], force: bool) -> None:
    """Take lost ledgers out of whatever references them, so that a broker goes on behind them.

    Topics no longer list them, and cursors in them stand in front of the next ledger. A compacted view, a cursor ledger or a
    bucket of delayed messages is left to be made again, and a schema has the versions that are left.
    """
    with open_reader(app.store) as reader:
        plan = plan_forget(reader, ledgers, app.now_ms, force=force)
    app.change(plan)
