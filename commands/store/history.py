"""``store log``, ``undo`` and ``annotate``; ``apply PLAN``."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.columns import Column
from pulsar_admin.context import App, Result, Shown
from pulsar_admin.jsonify import redacted_json
from pulsar_admin.numbers import whole
from pulsar_admin.options import TopicSelection, choice_option, command, flag, redact_properties_option, topics_argument
from pulsar_admin.store import errors
from pulsar_admin.store.model.publish_times import FORMS, Form
from pulsar_admin.typable import typable

if TYPE_CHECKING:
    from pulsar_admin.changes import Change


_COLUMNS = (
    Column("CHANGE", "change", "id"),
    Column("TIME", "time", "time"),
    Column("COMMAND", "command"),
    # A thing that is no topic has its own name.
    Column("TOPICS", lambda row: _names(row, "topic", "namespace", "resource"), "names"),
    Column("SUBSCRIPTIONS", lambda row: _names(row, "subscription"), "names", drop=2),
    Column("ENTRIES", lambda row: _entries(row), "number", drop=1),
    Column("UNDONE BY", "undoneBy", "id"),
)
_LAST = 10


@command(
    "store log",
    elsewhere=["", "17 --steps -o json"],
    output="One row per change, oldest first: when, by which command, what it did to which topics (as text the "
    "first three), and what undid it.",
    errors=[errors.StoreNotFound, errors.ChangeNotFound],
)
@click.argument("changes", metavar="[CHANGE]...", type=whole(1), nargs=-1)
@flag("--steps", help="Also the rows written: database, key, bytes before and after (hex).")
@redact_properties_option
def log(app: App, changes: tuple[int, ...], steps: bool, redact: bool) -> Result:
    """List the changes made to this store, or the given CHANGEs."""
    if redact and steps:
        raise click.UsageError("--redact: --steps are exact bytes")
    rows = (_row(change, steps) for change in app.api.change_log(*changes))
    return Result(rows=map(redacted_json, rows) if redact else rows, columns=_COLUMNS)


def _row(change: Change, steps: bool) -> dict[str, Any]:  # Any: JSON
    from pulsar_admin.store.changes.plan import undo_command

    row: dict[str, Any] = {
        "change": change.number,
        "time": change.time_ms,
        "command": change.command,
        "reports": list(change.reports),
        "undoes": change.undoes,
        "undoneBy": change.undone_by,
        "undo": typable(undo_command(change.number)),
    }
    if steps:
        row["steps"] = change.steps
    return row


def _names(row: dict[str, Any], *keys: str) -> list[str]:  # Any: JSON
    """Return the distinct names in the reports of ``row``: from each report the first of ``keys`` that it has."""
    names = (next((str(report[key]) for key in keys if report.get(key)), "") for report in row["reports"])
    return [*dict.fromkeys(name for name in names if name)]


def _entries(row: dict[str, Any]) -> int | None:  # Any: JSON
    counts = [report["entries"] for report in row["reports"] if isinstance(report.get("entries"), int)]
    return sum(counts) if counts else None


@command(
    "store undo",
    changes=True,
    elsewhere=["17", "17 --dry-run"],
    output="The undoing change: the state before and after it. It can itself be undone.",
    errors=[errors.ChangeNotFound, errors.UndoConflict, errors.StalePlan, errors.StoreBusy, errors.InvalidValue],
)
@click.argument("change", type=whole(1), required=False)
def undo(app: App, change: int | None) -> Iterator[Shown]:
    """Restore the exact bytes from before a change.

    Refused if a later change touched the same rows; the message names that change: undo it first. Without a CHANGE, the
    last changes are listed and nothing is undone (exit code 2).
    """
    if change is not None:
        app.change(app.api.plan_undo(change))
        return
    last = [_row(change, False) for change in deque(app.api.change_log(), _LAST)]
    if not last:
        raise errors.InvalidValue("nothing was changed in this store: there is nothing to undo")
    yield Result(rows=last, columns=_COLUMNS)
    hint = f"for the last one: {last[-1]['undo']} --dry-run"
    raise errors.InvalidValue("name the change to undo", hint=hint, changes=[row["change"] for row in last])


@command(
    "store annotate",
    changes=True,
    examples=["public/default/plain --dry-run", "--all-topics"],
    elsewhere=["--pattern 'acme/*/*' --form fields"],
    output="The change: a row per topic, how many of its ledgers state their publish times, and the undo command.",
    errors=[errors.TopicNotFound, errors.MetadataCorrupt, errors.IndexCorrupt, errors.StalePlan],
)
@topics_argument
@choice_option(
    "--form",
    words=FORMS,
    help="Where: properties of the ledger, which brokers keep; fields 6 and 7 of LedgerInfo, as PIP-345 proposed them.",
)
def annotate(app: App, selection: TopicSelection, form: Form) -> None:
    """Write the first and last publish time (PIP-345) of closed ledgers into their topics' metadata.

    Taken from the index, for every ledger whose entries are all available. Later searches then know the times without
    the entries.
    """
    app.change(app.api.annotate(*map(str, selection.topics), pattern=selection.pattern, form=form))


@command(
    "apply",
    changes=True,
    no_plan="PLAN is already a plan",
    elsewhere=["reset.plan", "reset.plan --dry-run"],
    output="The same as the command that made the plan.",
    errors=[errors.InvalidValue, errors.StalePlan, errors.StoreBusy],
)
@click.argument("file", metavar="PLAN", type=click.Path(path_type=Path))
def apply(app: App, file: Path) -> None:
    """Apply a plan file, written by --plan FILE of any changing command.

    Makes the plan anew, and refuses it if the store has changed since, if the new plan differs, or if the file was edited:
    write a new plan and review it.
    """
    from pulsar_admin.api.plan import read_plan_file

    app.change(read_plan_file(app.session, file))
