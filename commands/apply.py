"""``apply PLAN``."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import click

from pulsar_admin.context import App
from pulsar_admin.lookup import find_row
from pulsar_admin.options import Command, command, pass_app
from store.changes.intent import Intent
from store.errors import InvalidValue, StalePlan, StoreBusy, UndoConflict


@command(
    "apply",
    changes=True,
    no_plan="PLAN is already a plan",
    examples=[],
    elsewhere=["pulsar-admin apply reset.plan", "pulsar-admin apply reset.plan --dry-run"],
    output="The same as the command that made the plan.",
    errors=[InvalidValue, StalePlan, StoreBusy, UndoConflict],
)
@click.argument("file", metavar="PLAN", type=click.Path(path_type=Path))
@pass_app
def apply(app: App, file: Path) -> None:
    """Apply a plan file, written by --plan FILE of any changing command.

    Refused when the store has changed since the plan was made: make the plan again and review it. The report is
    computed from the steps in the file, not read from it, and steps that no command makes are refused.
    """
    from pulsar_admin.api.changing import current_plan, kept_plan

    plan = kept_plan(file)
    if isinstance(plan, Intent):
        _ask_again(app, plan)
        return
    app.change(current_plan(app.session, plan))


def _ask_again(app: App, intent: Intent) -> None:
    """Run the command that INTENT is of, with the words that it was given, on the state of the store that it was planned on."""
    row = find_row(*intent.command.split()[:2])
    assert row is not None  # otherwise ``kept_plan`` refuses it
    module, _, attribute = row.target.partition(":")
    asked: Command = getattr(import_module(module), attribute)
    if not asked.details.writes_first:
        raise InvalidValue(f"a plan of {intent.command} has steps", hint="make it again and look at it")
    intent.check_store(app.store)
    foreign = InvalidValue(f"the plan was not made by {intent.command}", hint="make it again and look at it")
    app.settings = replace(app.settings, interceptors=intent.interceptors)
    app.intent = intent
    parent = click.get_current_context()
    try:
        # First without acting on the words: --help among them would end the command as if it were done.
        with asked.make_context(intent.command, list(intent.words), parent=parent, resilient_parsing=True) as ctx:
            if asked.own_words(ctx) != intent.words:
                raise foreign
        ctx = asked.make_context(intent.command, list(intent.words), parent=parent)
    except click.UsageError as error:
        raise foreign from error
    with ctx:
        asked.invoke(ctx)
