"""``store export standalone``."""

from __future__ import annotations

from pathlib import Path

import click

from pulsar_admin.context import App
from pulsar_admin.options import command, pass_app
from store.errors import AlreadyExists, Refused, SourceBusy, StalePlan
from store.model.publish_times import FORMS, Form
from store.transfer.exports import plan_export, run_export


@command(
    "standalone",
    changes=True,
    no_plan="an export is not kept as a plan",
    examples=["pulsar-admin store export standalone exported --dry-run"],
    elsewhere=[
        "pulsar-admin store export standalone exported --annotate",
        "pulsar-admin store export standalone /pulsar/data --in-place --yes",
    ],
    output="Source, target and every metadata node written.",
    errors=[AlreadyExists, SourceBusy, StalePlan, Refused],
)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--in-place", is_flag=True, help="Write the changes into DIRECTORY, which exists.")
@click.option(
    "--annotate",
    type=click.Choice(FORMS),
    is_flag=False,
    flag_value=FORMS[0],
    help="Write the first and last publish time of ledgers as ledger properties, or as the proposal's fields.",
)
@pass_app
def standalone(app: App, directory: Path, in_place: bool, annotate: Form | None) -> None:
    """Write the store's changes into a Pulsar data directory.

    DIRECTORY becomes a copy of the imported one with the changes in it. With --in-place they go into DIRECTORY itself, unless
    a node to be changed is no longer what was imported. Start the broker where the data was made: a bookie's cookie holds
    its path. --annotate adds beginPublishTimestamp and endPublishTimestamp (PIP-345) to closed ledgers of the copy; in place it is a
    change of the store first, as `store annotate` makes it.
    """
    plan = plan_export(app.store, directory, in_place=in_place, annotate=annotate, now_ms=app.now_ms)
    app.confirm(plan)
    with app.open_for_writing() as store:
        app.emit(run_export(store, plan, app.now_ms))
