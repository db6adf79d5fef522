"""Plans and the reports of changes: what would change, what changed, and how to undo it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pulsar_admin.api.session import moment
from store.changes.plan import Change as ChangeRow
from store.changes.plan import Plan as StorePlan
from store.model.extent import Extent
from store.names import Position, parse_position

Json = Mapping[str, Any]  # Any: JSON values


@dataclass(frozen=True, slots=True)
class BrokerMove:
    """Where a broker would move the cursor to. ``entries``: how many more than we; below 0: fewer."""

    mark_delete: Position
    agrees: bool
    entries: int


@dataclass(frozen=True, slots=True)
class Deletable:
    """The ledgers that a broker may delete after the change, and what retains the others."""

    ledgers: tuple[int, ...]
    entries: int
    bytes: int
    kept_by_retention: tuple[int, ...]
    blocked_by: str | None
    """The subscription that retains the rest."""


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """How much of one ledger a change concerns."""

    ledger_id: int
    extent: Extent


@dataclass(frozen=True, slots=True)
class FutureDated:
    """What no age expires, because producers dated it in the future: how much, and the first position."""

    extent: Extent
    first: Position
    latest_time_ms: int
    producers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChangePart:
    """What a change does to one thing: a cursor, the policies of a namespace, the nacks of a subscription …

    ``before`` and ``after`` have the keys of the command line's JSON, positions as text and times in ms; ``before`` is None for
    what is made, ``after`` for what is removed. What a kind of change does not say is None or empty. ``document`` is all of it, as JSON.
    """

    topic: str | None
    subscription: str | None
    namespace: str | None
    before: Json | None
    after: Json | None
    extent: Extent | None
    """What is replayed and skipped together."""
    replayed: Extent | None
    skipped: Extent | None
    deletable: Deletable | None
    broker: BrokerMove | None
    ledgers: tuple[LedgerPart, ...]
    future_dated: FutureDated | None
    warnings: tuple[str, ...]
    document: Json = field(repr=False)


@dataclass(frozen=True, slots=True)
class ChangeReport:
    """What a plan would do (``dry_run``), or what a change did: one part a cursor or other thing that it concerns.

    ``number``: of the change in the audit log, None for a plan and where nothing was to change. As text it is what the command
    line prints.
    """

    number: int | None
    dry_run: bool
    parts: tuple[ChangePart, ...]

    @property
    def replayed(self) -> Extent:
        """What is redelivered, over all parts."""
        return sum((part.replayed for part in self.parts if part.replayed is not None), Extent())

    @property
    def skipped(self) -> Extent:
        """What is not delivered any more, over all parts."""
        return sum((part.skipped for part in self.parts if part.skipped is not None), Extent())

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of all parts."""
        return tuple(dict.fromkeys(text for part in self.parts for text in part.warnings))

    def __str__(self) -> str:
        from pulsar_admin.changes import render_change
        from pulsar_admin.visible import clean_document

        return "\n".join(render_change(clean_document(part.document)) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Plan:
    """A change that is worked out and not made: ``preview`` shows it, ``Store.apply`` makes it.

    It is of the store's state at that moment. When the store changed since, by whatever, ``apply`` raises StalePlan: plan again.
    """

    _plan: StorePlan = field(repr=False)

    @property
    def command(self) -> str:
        """The command line's name of this change, which the audit log shows."""
        return self._plan.command

    @property
    def changes_nothing(self) -> bool:
        """Whether everything is as wanted already; applying it writes nothing."""
        return not self._plan.steps

    @property
    def loses(self) -> str:
        """What ``undo`` cannot bring back, in words; empty: nothing."""
        return self._plan.loses

    def preview(self) -> ChangeReport:
        """Return what applying would do."""
        return report_of(self._plan.preview())

    def save(self, path: Path | str) -> None:
        """Write the plan into the new file PATH, for ``Store.load_plan`` and ``pulsar-admin apply``; raises AlreadyExists."""
        from store.files import write_new_file

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


def plan_of(plan: StorePlan) -> Plan:
    """Return PLAN as callers see it."""
    return Plan(plan)


def steps_of(plan: Plan) -> StorePlan:
    """Return what PLAN writes."""
    return plan._plan


def report_of(shown: object) -> ChangeReport:
    """Return the report that ``store.changes.plan`` shows: a JSON object, or several."""
    documents: list[Any] = shown if isinstance(shown, list) else [shown]  # Any: JSON
    number = next((one["change"] for one in documents if one.get("change") is not None), None)
    is_preview = any(one.get("dryRun") for one in documents)
    return ChangeReport(number, is_preview, tuple(map(part_of, documents)))


def changes_of(rows: Iterable[ChangeRow]) -> tuple[Change, ...]:
    """Return the audit log ROWS."""
    listed = list(rows)
    undone = {row.undoes: row.change for row in listed if row.undoes is not None}
    return tuple(
        Change(
            row.change,
            row.time_ms,
            row.command,
            tuple(map(part_of, row.reports)),
            row.undoes,
            undone.get(row.change),
        )
        for row in listed
    )


def part_of(document: Json) -> ChangePart:
    """Return one report as the declared type."""
    replayed, skipped = document.get("replayed"), document.get("skipped")
    ledgers = document.get("ledgers") or ()
    return ChangePart(
        topic=document.get("topic"),
        subscription=document.get("subscription"),
        namespace=document.get("namespace"),
        before=document.get("before"),
        after=document.get("after"),
        extent=_extent(document) if "entries" in document else None,
        replayed=None if replayed is None else _extent(replayed),
        skipped=None if skipped is None else _extent(skipped),
        deletable=_deletable(document.get("deletable")),
        broker=_broker(document.get("broker")),
        ledgers=tuple(LedgerPart(row["ledgerId"], _extent(row)) for row in ledgers),
        future_dated=_future(document.get("futureDated")),
        warnings=tuple(document.get("warnings", ())),
        document=document,
    )


def _extent(found: Json) -> Extent:
    return Extent(found.get("entries", 0), found.get("messages", 0), found.get("bytes", 0))


def _deletable(found: Json | None) -> Deletable | None:
    if found is None:
        return None
    blocker = found["blockedBy"]
    return Deletable(
        tuple(found["ledgers"]),
        found["entries"],
        found["bytes"],
        tuple(found["keptByRetention"]),
        None if blocker is None else blocker["subscription"],
    )


def _broker(found: Json | None) -> BrokerMove | None:
    if found is None:
        return None
    return BrokerMove(parse_position(found["markDeletePosition"]), found["agrees"], found["entries"])


def _future(found: Json | None) -> FutureDated | None:
    if found is None:
        return None
    return FutureDated(_extent(found), parse_position(found["first"]), found["latestTime"], tuple(found["producers"]))
