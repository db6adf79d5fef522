"""``apply PLAN``."""

from __future__ import annotations

from pathlib import Path

import click

from pulsar_admin.context import App
from pulsar_admin.options import command, pass_app
from pulsar_admin.table import find_row
from store.changes.files import derive_plan, read_plan
from store.changes.plan import check_current
from store.errors import InvalidValue, StalePlan, StoreBusy, UndoConflict
from store.model.ledgers import open_reader


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

    Refused when the store changed since the plan was made: make it again and look at it. What is shown is worked out from the steps
    in the file, not taken from it, and steps that no command makes are refused.
    """
    plan = read_plan(file)
    _check_command(plan.command)
    check_current(app.store, plan)
    with open_reader(app.store) as reader:
        plan = derive_plan(reader, plan, app.now_ms)
    app.change(plan)


def _check_command(command: str) -> None:
    """Refuse a plan of no command there is: the audit log names it."""
    group, name, *_ = [*command.split(), "", ""]
    if find_row(group, name) is None:
        raise InvalidValue(f"the plan is of {command!r}, which is not a command", hint="make it again and look at it")
