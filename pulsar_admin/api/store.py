"""The store: opening it, what it holds, and making and undoing changes."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from pulsar_admin.api.plan import Change, ChangeReport, Plan, changes_of, plan_of, report_of, steps_of
from pulsar_admin.api.session import Session, Time
from pulsar_admin.api.topic import Topic
from store.changes.plan import apply_plan, check_current, iter_changes, plan_undo
from store.db.environment import open_store as open_store_file
from store.db.tree import iter_children
from store.errors import NotWritable, TopicNotFound
from store.model.topics import check_namespace, expand_topic, iter_namespaces, iter_topics, select_topics
from store.names import parse_namespace, parse_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pulsar_admin.api.ledger import Ledger
    from pulsar_admin.api.namespace import Namespace
    from pulsar_admin.api.spark import SparkTables


def open_store(path: Path | str, *, writable: bool = False, now: Time | None = None) -> Store:
    """Open the store at PATH, to read it, or WRITABLE to apply changes too, which keeps other writers out until it is closed.

    NOW fixes "now" for relative times and ages (else the clock of each call). Close it, or use it in ``with``. Raises
    StoreNotFound, Refused (an import that did not end), StoreBusy (writable, and another process writes), IndexCorrupt.
    """
    opened = open_store_file(Path(path), writable=writable)
    try:
        return Store(Session(opened, now))
    except BaseException:
        opened.close()
        raise


class Store:
    """An open store, from ``open_store``. Each question reads one snapshot, plans stay valid until something is written."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    @property
    def path(self) -> Path:
        """The directory of the store."""
        return self._session.path

    def close(self) -> None:
        """Close it; what was made from it raises Refused then. An iteration that goes on keeps it open until it ends."""
        self._session.close()

    # -- what there is ------------------------------------------------------------------------------------------------

    def topics(self, pattern: str | None = None, *, system: bool = False) -> tuple[str, ...]:
        """Return the names of all topics, partitions one by one, or of those that match PATTERN (a glob, or a namespace).

        Without a pattern, SYSTEM adds system topics.
        """
        with self._session.read() as txn:
            if pattern is None:
                return tuple(str(name) for name in iter_topics(txn) if system or not name.is_system)
            if pattern.removeprefix("persistent://").count("/") == 1:
                return tuple(
                    str(name) for name in iter_topics(txn, parse_namespace(pattern)) if system or not name.is_system
                )
            try:
                return tuple(map(str, select_topics(txn, (), pattern=pattern)))
            except TopicNotFound:
                return ()

    def topic(self, name: str) -> Topic:
        """Return the topic NAME: ``persistent://t/ns/topic``, ``t/ns/topic``, or ``topic`` of public/default.

        Raises TopicNotFound, InvalidValue.
        """
        parsed = parse_topic(name)
        with self._session.read() as txn:
            expand_topic(txn, parsed)
        return Topic(self._session, parsed)

    def namespaces(self, tenant: str | None = None) -> tuple[str, ...]:
        """Return the names of the namespaces, of TENANT or of all."""
        with self._session.read() as txn:
            roots = ("/admin/policies", "/managed-ledgers")
            tenants = {name for root in roots for name in iter_children(txn, root)} if tenant is None else {tenant}
            return tuple(str(name) for one in sorted(tenants) for name in iter_namespaces(txn, one))

    def namespace(self, name: str) -> Namespace:
        """Return the namespace NAME, ``tenant/namespace``; raises NamespaceNotFound, InvalidValue."""
        from pulsar_admin.api.namespace import Namespace

        parsed = parse_namespace(name)
        with self._session.read() as txn:
            check_namespace(txn, parsed)
        return Namespace(self._session, parsed)

    def ledgers(self) -> tuple[int, ...]:
        """Return the ids of all ledgers that the metadata or the entry logs know, ascending."""
        from store.reports.ledgers import iter_all_ledger_ids

        with self._session.read() as txn:
            return tuple(iter_all_ledger_ids(txn))

    def ledger(self, ledger_id: int) -> Ledger:
        """Return the ledger with this id; whether it is there is seen when it is used: LedgerNotFound."""
        from pulsar_admin.api.ledger import Ledger

        return Ledger(self._session, ledger_id)

    def spark(self, session: SparkSession) -> SparkTables:
        """Return the store's messages and entries as data frames of a Spark SESSION, which reads the entry logs themselves."""
        from pulsar_admin.api.spark import SparkTables

        return SparkTables(self._session, session)

    # -- changes ------------------------------------------------------------------------------------------------------

    def apply(self, plan: Plan) -> ChangeReport:
        """Make the change of PLAN in one transaction, with its line in the audit log, and return what it did.

        A plan that changes nothing writes nothing: the report's number is None. Raises StalePlan when the store changed since the
        plan was made, NotWritable when it was opened for reading.
        """
        steps = steps_of(plan)
        with self._session.opened() as store:
            if plan.changes_nothing:
                check_current(store, steps)
                return report_of(steps.unchanged())
            if not store.writable:
                raise NotWritable(
                    f"{self.path} was opened for reading",
                    hint="open it with open_store(…, writable=True)",
                    path=str(self.path),
                )
            return report_of(apply_plan(store, steps, self._session.now_ms))

    def plan_undo(self, number: int) -> Plan:
        """Plan bringing back the exact bytes from before the change NUMBER; raises ChangeNotFound, UndoConflict, Refused."""
        with self._session.read() as txn:
            return plan_of(plan_undo(txn, number))

    def undo(self, number: int) -> ChangeReport:
        """Undo the change NUMBER, as a change that can be undone itself; raises as ``plan_undo`` and ``apply``."""
        return self.apply(self.plan_undo(number))

    def load_plan(self, path: Path | str) -> Plan:
        """Return the plan in the file PATH, its report worked out anew from its steps; raises InvalidValue, StalePlan."""
        from store.changes.files import derive_plan, read_plan

        plan = read_plan(Path(path))
        with self._session.opened() as store:
            check_current(store, plan)
        with self._session.reader() as reader:
            return plan_of(derive_plan(reader, plan, self._session.now_ms))

    def changes(self) -> tuple[Change, ...]:
        """Return the audit log, oldest first."""
        with self._session.read() as txn:
            return changes_of(iter_changes(txn))
