"""The running command: what it works with, and its store as the Python interface has it, by which it asks and changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from pulsar_admin.results import Answer as Answer
from pulsar_admin.results import Bytes as Bytes
from pulsar_admin.results import Lines as Lines
from pulsar_admin.results import Printed as Printed
from pulsar_admin.results import Result as Result
from pulsar_admin.results import Shown as Shown
from pulsar_admin.results import Table as Table
from pulsar_admin.running import INDEX_ANSWERS, Running

if TYPE_CHECKING:
    from pulsar_admin.api.cursors import Cursors
    from pulsar_admin.api.ledgers import Ledger
    from pulsar_admin.api.namespaces import Namespace, Resources
    from pulsar_admin.api.pending import KeptNacks
    from pulsar_admin.api.plan import Plan
    from pulsar_admin.api.session import Session
    from pulsar_admin.api.store import Store
    from pulsar_admin.api.topics import Topic
    from pulsar_admin.confirm import Plan as Previewed
    from pulsar_admin.store.changes.plan import ChangeReport
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.names import NamespaceName, TopicName, TopicSelection

FEW_MESSAGES = "so few messages, and those of files that are gone or were cut, are read in this process"
"""Why Spark was asked for and not started."""


class App(Running):
    """One run of one command. Everything is opened when first asked for and closed at the end of the command."""

    @cached_property
    def session(self) -> Session:
        """What the objects of the Python interface work on here."""
        from pulsar_admin.api.session import Session

        given = self.settings
        return Session(
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
        """Open a reader of the same snapshot, which all questions are asked of, that scans as ``scanning`` opens it."""
        with (
            self.scanning(size_bytes, label, [], unused=unused) as how,
            self.session.asked_of(reader.scanning_on(*how)) as scanning,
        ):
            yield scanning

    # -- things of the Python interface; whether they are there is seen when they are used ----------------------------

    @property
    def api(self) -> Store:
        """The store."""
        from pulsar_admin.api.store import Store

        return Store(self.session)

    @property
    def resources(self) -> Resources:
        """Tenants, clusters, bookies, brokers and limits."""
        from pulsar_admin.api.namespaces import Resources

        return Resources(self.session)

    def topic(self, name: TopicName) -> Topic:
        """A topic."""
        from pulsar_admin.api.topics import Topic

        return Topic(self.session, name)

    def namespace(self, name: NamespaceName) -> Namespace:
        """A namespace."""
        from pulsar_admin.api.namespaces import Namespace

        return Namespace(self.session, name)

    def cursors(self, selection: TopicSelection, subscription: str | None) -> Cursors:
        """The cursors of a subscription (None: of all) in topics."""
        from pulsar_admin.api.cursors import Cursors

        return Cursors(self.session, selection, subscription)

    def nacks(self, topics: Sequence[TopicName], subscription: str | None) -> KeptNacks:
        """The nacks of a subscription (None: of all) in topics (none: in all)."""
        from pulsar_admin.api.pending import KeptNacks

        return KeptNacks(self.session, topics, subscription)

    def ledger(self, ledger_id: int) -> Ledger:
        """A ledger."""
        from pulsar_admin.api.ledgers import Ledger

        return Ledger(self.session, ledger_id)

    def show_preview(self, plan: Previewed) -> None:
        """Show what applying a plan would do, and with ``--plan`` save it."""
        from pulsar_admin.api.plan import Plan, save_plan, shown_by

        if not isinstance(plan, Plan):
            super().show_preview(plan)
            return
        preview = shown_by(plan)
        if self.settings.plan is not None:
            save_plan(plan, preview, self.settings.plan)
        self.show(*preview)

    def change(self, plan: Plan) -> None:
        """Confirm, apply and show a plan; a plan without effect is not added to the audit log."""
        self.confirm(plan)
        self.show(*self.apply(plan))

    def apply(self, plan: Plan) -> tuple[ChangeReport, ...]:
        """Apply a plan and return its reports; a plan without steps writes nothing. Raises StalePlan, StoreBusy."""
        from pulsar_admin.api.plan import apply

        return apply(self.session, plan)
