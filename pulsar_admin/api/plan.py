"""Plans: what would change, to be looked at, kept and applied. Imports nothing that changes a store: what reads imports this, too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.errors import InvalidValue, Refused

if TYPE_CHECKING:
    from pulsar_admin.api.reports import ChangeReport
    from pulsar_admin.api.request import Request
    from pulsar_admin.api.session import Session
    from pulsar_admin.store.changes.plan import ChangeReport as Report
    from pulsar_admin.store.changes.plan import Plan as StorePlan
    from pulsar_admin.store.changes.plan import PlanFile, WritingPlan
    from pulsar_admin.store.db.environment import Store as StoreFile
    from pulsar_admin.store.db.environment import Txn


class Plan(Struct, frozen=True):
    """A change that is worked out and not made: ``preview`` shows it, ``Store.apply`` makes it.

    It is of the store's state at that moment. When the store changed since, by whatever, ``apply`` raises StalePlan: plan again.
    """

    _plan: StorePlan | WritingPlan
    _state: str = ""
    """Of the store that it is of."""
    _request: Request | None = None

    def __repr__(self) -> str:
        return f"<plan: {self.command}>"

    @property
    def command(self) -> str:
        """The command line's name of this change, which the audit log shows."""
        return self._plan.command

    @property
    def changes_nothing(self) -> bool:
        """Whether everything is as wanted already; applying it writes nothing. False where only applying it shows that."""
        from pulsar_admin.store.changes.plan import Plan as StorePlan

        return isinstance(self._plan, StorePlan) and not self._plan.steps

    @property
    def loses(self) -> str:
        """What ``undo`` cannot bring back, in words; empty: nothing."""
        return self._plan.loses

    def preview(self) -> ChangeReport:
        """Return what applying would do."""
        from pulsar_admin.api.reports import report_of

        return report_of(shown_by(self)[0])

    def save(self, path: Path | str) -> None:
        """Write the plan into the new file PATH, for ``Store.load_plan`` and ``pulsar-admin apply``.

        Raises AlreadyExists, and Refused for a plan of a stream, which nothing can read again.
        """
        from pulsar_admin.api.given import given_path

        save_plan(self, shown_by(self), given_path("path", path))

    def __str__(self) -> str:
        return str(self.preview())


def plan_of(plan: StorePlan | WritingPlan, txn: Txn) -> Plan:
    """Return PLAN, made on TXN, as callers see it."""
    from pulsar_admin.store.changes.plan import state_of

    return Plan(plan, state_of(txn))


def steps_of(plan: Plan) -> StorePlan | WritingPlan:
    """Return what PLAN writes."""
    return plan._plan


def shown_by(plan: Plan) -> tuple[Report, ...]:
    """Return what applying PLAN would report, a report a change."""
    found = plan._plan.preview()
    return found if isinstance(found, tuple) else (found,)


def check_planned_on(plan: Plan, store: StoreFile) -> None:
    """Raise StalePlan unless STORE is the one that PLAN, which has no steps yet, was made on, in that state."""
    from pulsar_admin.store.changes.plan import check_state

    check_state(store, plan._plan.txn_id, plan._state)


# -- plan files -------------------------------------------------------------------------------------------------------


def save_plan(plan: Plan, reports: tuple[Report, ...], path: Path) -> None:
    """Write PLAN, which shows REPORTS, into the new file PATH; raises as ``Plan.save``."""
    from pulsar_admin.store.files import write_new_file

    try:
        found = _file_of(plan, reports)
    except ValueError as error:
        raise Refused(f"a plan of {plan.command} is not kept: it was made from {error}", hint="apply it") from error
    write_new_file(path, found.dump())


def _file_of(plan: Plan, reports: tuple[Report, ...]) -> PlanFile:
    from pulsar_admin.store.changes.plan import plan_file

    assert plan._request is not None  # each method that plans notes its call
    return plan_file(plan._plan, plan._state, reports, plan._request.as_json())


def read_again(session: Session, path: Path) -> Plan:
    """Return the plan of the file PATH, made again on SESSION; raises NotFound, InvalidValue, and StalePlan where it is another one now."""
    from pulsar_admin.api.request import call_again
    from pulsar_admin.store.changes.plan import WritingPlan, read_plan

    kept = read_plan(path)
    with session.opened() as store:
        kept.check_store(store)
    plan = call_again(session, kept.request, as_then=kept.steps is not None)
    if plan.command != kept.command:
        raise InvalidValue(f"the plan is of {kept.command!r}, and asks for {plan.command}", hint="make it again")
    reports = shown_by(plan)
    kept.check(_file_of(plan, reports))
    steps = plan._plan
    return replace(plan, _plan=replace(steps, shown=lambda: reports)) if isinstance(steps, WritingPlan) else plan
