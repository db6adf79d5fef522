"""Plans and the reports of changes: what would change, what changed, and how to undo it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from store.changes.intent import WritingPlan
from store.changes.plan import Change as ChangeRow
from store.changes.plan import Plan as StorePlan
from store.changes.plan import parts_of
from store.changes.report import ChangePart
from store.changes.report import ChangeReport as Report
from store.errors import Refused
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


@dataclass(frozen=True, slots=True)
class Plan:
    """A change that is worked out and not made: ``preview`` shows it, ``Store.apply`` makes it.

    It is of the store's state at that moment. When the store changed since, by whatever, ``apply`` raises StalePlan: plan again.
    """

    _plan: StorePlan | WritingPlan = field(repr=False)

    @property
    def command(self) -> str:
        """The command line's name of this change, which the audit log shows."""
        return self._plan.command

    @property
    def changes_nothing(self) -> bool:
        """Whether everything is as wanted already; applying it writes nothing. False where only applying it shows that."""
        return isinstance(self._plan, StorePlan) and not self._plan.steps

    @property
    def loses(self) -> str:
        """What ``undo`` cannot bring back, in words; empty: nothing."""
        return self._plan.loses

    def preview(self) -> ChangeReport:
        """Return what applying would do."""
        found = self._plan.preview()
        return report_of(found[0] if isinstance(found, tuple) else found)

    def save(self, path: Path | str) -> None:
        """Write the plan into the new file PATH, for ``Store.load_plan`` and ``pulsar-admin apply``.

        Raises AlreadyExists, and Refused for a plan that writes ledgers first: policies of topics, loads, splits.
        """
        from store.files import write_new_file

        if not isinstance(self._plan, StorePlan):
            raise Refused(f"a plan of {self.command} is not a list of steps", hint="the command keeps one: --plan FILE")
        write_new_file(Path(path), self._plan.dump())

    def __str__(self) -> str:
        return str(self.preview())


@dataclass(frozen=True, slots=True)
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


def plan_of(plan: StorePlan | WritingPlan) -> Plan:
    """Return PLAN as callers see it."""
    return Plan(plan)


def steps_of(plan: Plan) -> StorePlan | WritingPlan:
    """Return what PLAN writes."""
    return plan._plan


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
        Change(
            row.change,
            row.time_ms,
            row.command,
            parts_of(row),
            row.undoes,
            undone.get(row.change),
        )
        for row in listed
    )
