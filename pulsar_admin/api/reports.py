"""The reports of changes: what a plan would change, what was changed, and the number that undoes it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from store.changes.plan import Change as ChangeRow
from store.changes.plan import parts_of
from store.changes.report import ChangePart
from store.changes.report import ChangeReport as Report
from store.frozen import frozen
from store.timespec import moment


class ChangeReport(Report):
    """What a plan would do (``dry_run``), or what a change did; as text it is what the command line prints.

    ``number``: of the change in the audit log, None for a plan and where nothing was to change. ``parts``: one a cursor or other
    thing that it concerns.
    """

    __slots__ = ()

    def __str__(self) -> str:
        from pulsar_admin.changes import render_change

        return render_change(self)


@frozen
class Change:
    """One line of the audit log. ``undoes``, ``undone_by``: numbers of other changes."""

    number: int
    time_ms: int
    command: str
    parts: tuple[ChangePart, ...]
    undoes: int | None
    undone_by: int | None

    @property
    def time(self) -> datetime | None:
        """When it was made, in UTC."""
        return moment(self.time_ms)


def report_of(report: Report) -> ChangeReport:
    """Return REPORT as callers see it."""
    return ChangeReport(
        report.number, report.dry_run, report.parts, report.plan_warnings, report.untouched, report.command
    )


def changes_of(rows: Iterable[ChangeRow]) -> tuple[Change, ...]:
    """Return the audit log ROWS."""
    listed = list(rows)
    undone = {row.undoes: row.change for row in listed if row.undoes is not None}
    return tuple(
        Change(row.change, row.time_ms, row.command, parts_of(row), row.undoes, undone.get(row.change))
        for row in listed
    )
