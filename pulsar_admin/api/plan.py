"""Plans: what would change, to be looked at, kept and applied. Imports nothing that changes a store: what reads imports this, too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from store.errors import Refused
from store.frozen import field, frozen

if TYPE_CHECKING:
    from pulsar_admin.api.reports import ChangeReport
    from store.changes.intent import WritingPlan
    from store.changes.plan import Plan as StorePlan
    from store.db.environment import Store as StoreFile
    from store.db.environment import Txn


@frozen
class Plan:
    """A change that is worked out and not made: ``preview`` shows it, ``Store.apply`` makes it.

    It is of the store's state at that moment. When the store changed since, by whatever, ``apply`` raises StalePlan: plan again.
    """

    _plan: StorePlan | WritingPlan = field(repr=False)
    _state: str = field(default="", repr=False)
    """Of the store that a plan without steps is of; a step says itself what it replaces."""

    @property
    def command(self) -> str:
        """The command line's name of this change, which the audit log shows."""
        return self._plan.command

    @property
    def changes_nothing(self) -> bool:
        """Whether everything is as wanted already; applying it writes nothing. False where only applying it shows that."""
        from store.changes.plan import Plan as StorePlan

        return isinstance(self._plan, StorePlan) and not self._plan.steps

    @property
    def loses(self) -> str:
        """What ``undo`` cannot bring back, in words; empty: nothing."""
        return self._plan.loses

    def preview(self) -> ChangeReport:
        """Return what applying would do."""
        from pulsar_admin.api.reports import report_of

        found = self._plan.preview()
        return report_of(found[0] if isinstance(found, tuple) else found)

    def save(self, path: Path | str) -> None:
        """Write the plan into the new file PATH, for ``Store.load_plan`` and ``pulsar-admin apply``.

        Raises AlreadyExists, and Refused for a plan that writes ledgers first: policies of topics, loads, splits.
        """
        from pulsar_admin.api.given import given_path
        from store.changes.plan import Plan as StorePlan
        from store.files import write_new_file

        if not isinstance(self._plan, StorePlan):
            raise Refused(f"a plan of {self.command} is not a list of steps", hint="the command keeps one: --plan FILE")
        write_new_file(given_path("path", path), self._plan.dump())

    def __str__(self) -> str:
        return str(self.preview())


def plan_of(plan: StorePlan | WritingPlan, txn: Txn) -> Plan:
    """Return PLAN, made on TXN, as callers see it."""
    from store.changes.intent import WritingPlan, state_of

    return Plan(plan, state_of(txn) if isinstance(plan, WritingPlan) else "")


def steps_of(plan: Plan) -> StorePlan | WritingPlan:
    """Return what PLAN writes."""
    return plan._plan


def check_planned_on(plan: Plan, store: StoreFile) -> None:
    """Raise StalePlan unless STORE is the one that PLAN, which has no steps yet, was made on, in that state."""
    from store.changes.intent import check_state

    check_state(store, plan._plan.txn_id, plan._state)
