"""``apply PLAN``."""

from __future__ import annotations

from pathlib import Path

import click

from pulsar_admin.context import App
from pulsar_admin.options import command, pass_app
from pulsar_admin.store.errors import InvalidValue, StalePlan, StoreBusy


@command(
    "apply",
    changes=True,
    no_plan="PLAN is already a plan",
    examples=[],
    elsewhere=["pulsar-admin apply reset.plan", "pulsar-admin apply reset.plan --dry-run"],
    output="The same as the command that made the plan.",
    errors=[InvalidValue, StalePlan, StoreBusy],
)
@click.argument("file", metavar="PLAN", type=click.Path(path_type=Path))
@pass_app
def apply(app: App, file: Path) -> None:
    """Apply a plan file, written by --plan FILE of any changing command.

    Makes the plan anew, and refuses it if the store has changed since, if the new plan differs, or if the file was edited:
    write a new plan and review it.
    """
    from pulsar_admin.api.plan import read_again

    app.change(read_again(app.session, file))
