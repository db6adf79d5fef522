"""The running command: what it works with, and its store as the Python interface has it, by which it asks and changes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from pulsar_admin.results import Result as Result
from pulsar_admin.results import Table as Table
from pulsar_admin.running import Running

if TYPE_CHECKING:
    from pulsar_admin.api.plan import Plan
    from pulsar_admin.command_session import CommandSession
    from pulsar_admin.store.changes.plan import ChangeReport

FEW_MESSAGES = "so few messages are read in this process"
"""Why Spark was asked for and not started."""


class App(Running):
    """One run of one command. Everything is opened when first asked for and closed at the end of the command."""

    @cached_property
    def session(self) -> CommandSession:
        """What the objects of the Python interface work on here."""
        from pulsar_admin.command_session import CommandSession

        return CommandSession(self)

    def change(self, plan: Plan) -> None:
        """Confirm, apply and show PLAN; what changes nothing leaves no line in the audit log."""
        self.confirm(plan)
        self.show(*self.apply(plan))

    def apply(self, plan: Plan) -> tuple[ChangeReport, ...]:
        """Apply PLAN and return its reports; one without steps writes nothing. Raises StalePlan, StoreBusy."""
        from pulsar_admin.api.plan import check_planned_on, steps_of
        from pulsar_admin.store.changes.plan import WritingPlan, apply_plan

        steps = steps_of(plan)
        if not isinstance(steps, WritingPlan) and not steps.steps:
            return (steps.unchanged(),)
        with self.open_for_writing() as store:
            if not isinstance(steps, WritingPlan):
                return (apply_plan(store, steps, self.clock_ms),)
            check_planned_on(plan, store)
            return steps.made(store)
