"""The running command (``App``), which reads and changes its store through the objects of the Python interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from pulsar_admin.later import laters
from pulsar_admin.results import Answer as Answer
from pulsar_admin.results import Bytes as Bytes
from pulsar_admin.results import Lines as Lines
from pulsar_admin.results import Printed as Printed
from pulsar_admin.results import Result as Result
from pulsar_admin.results import Shown as Shown
from pulsar_admin.results import Table as Table
from pulsar_admin.running import INDEX_ANSWERS, Running

if TYPE_CHECKING:
    from pulsar_admin.api import cursors as cursor_api
    from pulsar_admin.api import ledgers as ledger_api
    from pulsar_admin.api import namespaces as namespace_api
    from pulsar_admin.api import pending as pending_api
    from pulsar_admin.api import plan as plan_api
    from pulsar_admin.api import session as session_api
    from pulsar_admin.api import store as store_api
    from pulsar_admin.api import topics as topic_api
    from pulsar_admin.confirm import Plan as Previewed
    from pulsar_admin.store.changes.plan import ChangeReport
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.names import NamespaceName, TopicName, TopicSelection
else:
    cursor_api, ledger_api, namespace_api, pending_api = laters(
        "pulsar_admin.api", "cursors ledgers namespaces pending"
    )
    plan_api, session_api, store_api, topic_api = laters("pulsar_admin.api", "plan session store topics")

FEW_MESSAGES = "so few messages, and those of files that are gone or were cut, are read in this process"
"""Why Spark was asked for and not started."""


class App(Running):
    """One run of one command.

    The store and everything else is opened on first use and closed at the end of the command.
    """

    @cached_property
    def session(self) -> session_api.Session:
        """The session with which the objects of the Python interface are made here."""
        given = self.settings
        return session_api.Session(
            self,
            given.store,
            processes=given.jobs,
            memory_bytes=given.memory_bytes,
            wait_ms=given.wait_ms,
            one_snapshot=True,
        )

    @contextmanager
    def scan(
        self, reader: EntryReader, size_bytes: int, label: str, *, unused: str = INDEX_ANSWERS
    ) -> Iterator[EntryReader]:
        """Open a reader of the same snapshot that scans as ``scanning`` says; all objects use it in the block."""
        with (
            self.scanning(size_bytes, label, [], unused=unused) as how,
            self.session.asked_of(reader.scanning_on(*how)) as scanning,
        ):
            yield scanning

    # -- things of the Python interface; whether they are there is seen when they are used ----------------------------

    @property
    def api(self) -> store_api.Store:
        """The store."""
        return store_api.Store(self.session)

    @property
    def resources(self) -> namespace_api.Resources:
        """Tenants, clusters, bookies, brokers and limits."""
        return namespace_api.Resources(self.session)

    def topic(self, name: TopicName) -> topic_api.Topic:
        """A topic."""
        return topic_api.Topic(self.session, name)

    def namespace(self, name: NamespaceName) -> namespace_api.Namespace:
        """A namespace."""
        return namespace_api.Namespace(self.session, name)

    def cursors(self, selection: TopicSelection, subscription: str | None) -> cursor_api.Cursors:
        """The cursors of a subscription (None: of all) in topics."""
        return cursor_api.Cursors(self.session, selection, subscription)

    def nacks(self, topics: Sequence[TopicName], subscription: str | None) -> pending_api.KeptNacks:
        """The nacks of a subscription (None: of all) in topics (none: in all)."""
        return pending_api.KeptNacks(self.session, topics, subscription)

    def ledger(self, ledger_id: int) -> ledger_api.Ledger:
        """A ledger."""
        return ledger_api.Ledger(self.session, ledger_id)

    def show_preview(self, plan: Previewed) -> None:
        """Show the report of a dry run, and save the plan with ``--plan``."""
        if not isinstance(plan, plan_api.Plan):
            super().show_preview(plan)
            return
        preview = plan_api.shown_by(plan)
        if self.settings.plan is not None:
            plan_api.save_plan(plan, preview, self.settings.plan)
        self.show(*preview)

    def change(self, plan: plan_api.Plan) -> None:
        """Confirm, apply and show a plan; a plan without effect is not added to the audit log."""
        self.confirm(plan)
        self.show(*self.apply(plan))

    def apply(self, plan: plan_api.Plan) -> tuple[ChangeReport, ...]:
        """Apply a plan and return its reports; a plan without steps writes nothing. Raises StalePlan, StoreBusy."""
        return plan_api.apply(self.session, plan)
