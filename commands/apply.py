"""``apply PLAN``."""

from __future__ import annotations

from pathlib import Path

import click

from pulsar_admin.context import App
from pulsar_admin.options import command, pass_app
from store.errors import InvalidValue, StalePlan, StoreBusy, UndoConflict
from store.plans.base import check_current, read_plan


@command(
    "apply",
    changes=True,
    no_plan="PLAN is one already",
    examples=[],
    elsewhere=["pulsar-admin apply reset.plan", "pulsar-admin apply reset.plan --dry-run"],
    output="The same as the command that made the plan.",
    errors=[InvalidValue, StalePlan, StoreBusy, UndoConflict],
)
@click.argument("file", metavar="PLAN", type=click.Path(path_type=Path))
@pass_app
def apply(app: App, file: Path) -> None:
    """Do what a plan file says, which --plan FILE of any changing command made.

    Refused when the store changed since the plan was made: make it again and look at it.
    """
    plan = read_plan(file)
    check_current(app.store, plan)
    app.confirm(plan)
    app.emit(app.apply(plan))
