"""The reports of changes: what a plan would change, what was changed, and the number that undoes it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from pulsar_admin.store.changes.plan import ChangePart, parts_of
from pulsar_admin.store.changes.plan import ChangeReport as Report
from pulsar_admin.store.db.audit_log import Change as ChangeRow
from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.timespec import moment
from pulsar_admin.store.wording import bracketed, text_html


class ChangeReport(Report, frozen=True):
    """What a plan would do (``dry_run``), or what a change did; as text it is what the command line prints.

    ``number`` of the change in the audit log; None for a plan, or if there was nothing to change. ``parts``: one for each cursor or
    other changed object.
    """

    def __repr__(self) -> str:
        from pulsar_admin.changes import title_of

        return bracketed(title_of(self))

    def __str__(self) -> str:
        from pulsar_admin.changes import render_change

        return render_change(self)

    def _repr_html_(self) -> str:
        return text_html(str(self))


class Change(Struct, frozen=True):
    """One line of the audit log. ``undoes``, ``undone_by``: numbers of other changes."""

    number: int
    time_ms: int
    command: str
    undoes: int | None
    undone_by: int | None
    _row: ChangeRow

    def __repr__(self) -> str:
        return bracketed(f"change {self.number}: {self.command}")

    @property
    def time(self) -> datetime | None:
        """When it was made, in UTC."""
        return moment(self.time_ms)

    @property
    def reports(self) -> tuple[Mapping[str, Any], ...]:  # Any: JSON
        """The report of the change, as stored."""
        return self._row.reports

    @property
    def parts(self) -> tuple[ChangePart, ...]:
        """What it did to each thing that it concerns; raises IndexCorrupt if the record is malformed."""
        return parts_of(self._row)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The rows of the store that it wrote: ``database``, ``key``, and the bytes ``before`` and ``after``, None: no such row."""
        return self._row.steps


def report_of(report: Report, store: Path | None = None) -> ChangeReport:
    """Return a change's report whose undo command names the store, because Python has no default store."""
    place = "" if store is None else str(store.absolute())
    return ChangeReport(**{**asdict(report), "store": place})


def change_of(row: ChangeRow, undone: Mapping[int, int]) -> Change:
    """Return a row of the audit log; ``undone`` maps a change's number to that of the change that undid it."""
    return Change(row.change, row.time_ms, row.command, row.undoes, undone.get(row.change), row)
