"""Making and undoing changes. What only these methods need is imported in them: a command that reads imports this, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pulsar_admin.api.given import (
    Clock,
    Duration,
    given_flag,
    given_flags,
    given_items,
    given_object,
    given_path,
    given_properties,
    given_text,
    given_texts,
    whole_number,
)
from pulsar_admin.api.plan import Plan, check_planned_on, plan_of, steps_of
from pulsar_admin.api.planner import Planner, read_again
from pulsar_admin.api.session import Session, check_choice
from pulsar_admin.store.errors import IndexCorrupt, InvalidValue
from pulsar_admin.store.model.topics import select_topics
from pulsar_admin.store.names import INT_MAX, INT_MIN, parse_namespace, parse_topic, parse_topics

if TYPE_CHECKING:
    from pulsar_admin.api.reports import Change, ChangeReport
    from pulsar_admin.store.changes.plan import ChangeReport as Report
    from pulsar_admin.store.changes.resets import ResetRule
    from pulsar_admin.store.db.environment import Store as StoreFile
    from pulsar_admin.store.model.publish_times import Form
    from pulsar_admin.store.search.broker_setup import BrokerVersion


class Changes(Planner):
    """The part of ``Store`` that plans changes of it as a whole, makes those of any plan, and undoes them."""

    _session: Session

    def apply(self, plan: Plan) -> ChangeReport:
        """Make the change of PLAN in one transaction, with its line in the audit log, and return what it did.

        A plan that changes nothing writes nothing: the report's number is None. Raises StalePlan when the store changed since the
        plan was made, NotWritable when it was opened for reading.
        """
        from pulsar_admin.api.reports import report_of
        from pulsar_admin.store.changes.plan import WritingPlan, apply_plan, check_current

        steps = steps_of(given_object("plan", plan, Plan))
        if isinstance(steps, WritingPlan):
            with self._session.writing() as store:
                check_planned_on(plan, store)
                return report_of(steps.made(store)[0], self._session.path)
        with self._session.opened() as store:
            if plan.changes_nothing:
                check_current(store, steps)
                return report_of(steps.unchanged())
            self._session.check_writable()
            return report_of(apply_plan(store, steps, self._session.clock_ms), self._session.path)

    def load(
        self,
        dump: Path | str | IO[bytes],
        *,
        topic: str | None = None,
        interceptors: str | None = None,
        keep_ledger_ids: bool = False,
    ) -> Plan:
        """Plan adding the entries of DUMP (``dump`` with level entries) to the end of their topics, or of TOPIC, which are made.

        DUMP may be a stream of JSON lines, which can be read once: to look at the plan, or to apply it.
        Entries keep their bytes, unless INTERCEPTORS (``timestamp,index``) put broker metadata in front as a broker with these would.
        Raises NotFound, InvalidValue, Corrupt, Refused; applying it also DiskFull.
        """
        from pulsar_admin.store.changes.plan import WritingPlan
        from pulsar_admin.store.codec.interceptors import parse_interceptors
        from pulsar_admin.store.dump.load import COMMAND, LoadOptions, apply_load, preview_load
        from pulsar_admin.store.dump.source import EntryDump

        given_flags(keep_ledger_ids=keep_ledger_ids)
        name = None if topic is None else parse_topic(topic)
        chain = None if interceptors is None else parse_interceptors(given_text("interceptors", interceptors))
        options = LoadOptions(name, chain, keep_ledger_ids, self._session.clock_ms)
        if isinstance(dump, (Path, str)):
            source = EntryDump(given_path("dump", dump))
        elif hasattr(dump, "readline"):
            source = EntryDump(Path("-"), dump)
        else:
            raise InvalidValue(f"dump {dump!r} is neither a path nor an open file", value=dump)

        def shown() -> tuple[Report, ...]:
            with self._session.opened() as store:
                return (preview_load(store, source, options),)

        def made(store: StoreFile) -> tuple[Report, ...]:
            with self._session.progress(None, "entries", "load") as advance:
                return (apply_load(store, source, options, advance),)

        with self._session.read() as txn:
            return plan_of(WritingPlan(COMMAND, txn.id, shown, made, digest=source.digest), txn)

    def copy(self, *topics: str, source: Path | str, to: str | None = None) -> Plan:
        """Plan copying TOPICS whole from the store SOURCE, one of them under the name TO: with subscriptions, partitions and schema.

        What is not copied is in the report's warnings. Raises TopicNotFound, StoreNotFound, AlreadyExists, Refused, InvalidValue; applying
        it also DiskFull.
        """
        from pulsar_admin.store.dump.copying import CopyRequest, plan_copy

        names = tuple(map(parse_topic, topics))
        request = CopyRequest(
            given_path("source", source), names, None if to is None else parse_topic(to), self._session.clock_ms
        )
        with self._session.opened() as store, self._session.read() as txn:
            return plan_of(plan_copy(store, request), txn)

    def create_namespace(self, name: str, *, clusters: Sequence[str] = (), bundles: int = 0) -> Plan:
        """Plan making a namespace of CLUSTERS, default: the store's, with so many BUNDLES, 0: four.

        Raises NamespaceNotFound (no such tenant), AlreadyExists, InvalidValue, Refused.
        """
        from pulsar_admin.store.changes.resources import plan_create_namespace

        return self._session.plan_rows(
            plan_create_namespace,
            parse_namespace(name),
            given_texts("clusters", clusters),
            whole_number("bundles", bundles, INT_MIN, INT_MAX),
        )

    def delete_namespace(self, name: str, *, force: bool = False) -> Plan:
        """Plan deleting a namespace, with FORCE also its topics; raises NamespaceNotFound, Refused."""
        from pulsar_admin.store.changes.ending import plan_delete_namespace

        found = parse_namespace(name)
        given_flag("force", force)
        return self._session.plan(lambda reader, now_ms: plan_delete_namespace(reader, found, now_ms, force=force))

    def create_topic(
        self, name: str, *, partitions: int | None = None, properties: Mapping[str, str] | None = None
    ) -> Plan:
        """Plan making a topic, which has no ledger until a broker loads it, with PARTITIONS those, too; None: it has none.

        Raises AlreadyExists, NamespaceNotFound, InvalidValue.
        """
        from pulsar_admin.store.changes.topics import plan_topic

        topic, given = parse_topic(name), given_properties(properties)
        if partitions is not None:
            whole_number("partitions", partitions, INT_MIN, INT_MAX)
        command = "topics create" if partitions is None else "topics create-partitioned-topic"
        return self._session.plan_rows(plan_topic, command, topic, partitions, given)

    def create_shadow_topic(self, name: str, source: str, *, properties: Mapping[str, str] | None = None) -> Plan:
        """Plan making a topic that shows the entries of SOURCE and has subscriptions of its own (PIP-180).

        Raises TopicNotFound, AlreadyExists, NamespaceNotFound, InvalidValue.
        """
        from pulsar_admin.store.changes.topics import plan_shadow

        topic, of = parse_topic(name), parse_topic(source)
        return self._session.plan_rows(plan_shadow, topic, of, given_properties(properties))

    def delete_topics(self, *topics: str, partitioned: bool = False, force: bool = False) -> Plan:
        """Plan deleting TOPICS, or PARTITIONED ones with their partitions: subscriptions, ledgers, schemas and policies go, too.

        FORCE: also where parts of the metadata cannot be read. Raises TopicNotFound, Refused, MetadataCorrupt, InvalidValue.
        """
        from pulsar_admin.store.changes.ending import check_deletable, plan_delete_topics

        given_flag("partitioned", partitioned)
        given_flag("force", force)
        with self._session.reader() as reader:
            check = (
                parse_topic if partitioned else lambda name: check_deletable(reader.txn, parse_topic(name), force=force)
            )
            names = list(self._session.each(topics, check))
            broker, now_ms = self._session.interceptors, self._session.clock_ms
            return plan_of(
                plan_delete_topics(reader, names, now_ms, broker, partitioned=partitioned, force=force), reader.txn
            )

    def reset_cursors(
        self,
        lines: Iterable[str],
        subscription: str | None = None,
        *,
        source: str = "the lines",
        rule: ResetRule = "exact",
        clock: Clock = "auto",
        broker_version: BrokerVersion = "4.0",
        max_clock_skew: Duration = "1m",
        force: bool = False,
    ) -> Plan:
        """Plan the resets that LINES ask for, all or none, one JSON object a line: ``topic``, ``subscription`` (default: SUBSCRIPTION) and
        one of ``messageId``, ``time``, ``shiftBy``, ``toSubscription``; ``exclude``.

        SOURCE: what errors call LINES. The rest is as in ``Cursors.reset``, which says what this raises.
        """
        from pulsar_admin.api.cursors import reset_request, resets_plan
        from pulsar_admin.store.changes.resets import iter_reset_rows, resets_of_rows

        request = reset_request(self._session, rule, clock, broker_version, max_clock_skew, force=force)
        with self._session.reader() as reader:
            texts = (given_text("line", line) for line in given_items("lines", lines))
            rows = iter_reset_rows(texts, source, subscription, partial(self._session.time_ms, changes=True))
            return resets_plan(self._session, reader, resets_of_rows(reader, rows), request)

    def annotate(self, *topics: str, pattern: str | None = None, form: Form = "properties") -> Plan:
        """Plan writing first and last publish time (PIP-345) of closed ledgers of TOPICS (default: all) into their metadata.

        PATTERN: of topics that match this glob. Later searches know the times without the entries. Raises InvalidValue, TopicNotFound,
        MetadataCorrupt, IndexCorrupt.
        """
        from pulsar_admin.store.changes.topics import plan_annotate
        from pulsar_admin.store.model.publish_times import Form

        check_choice("form", form, Form)
        with self._session.read() as txn:
            names = select_topics(txn, parse_topics(topics, pattern))
            return plan_of(plan_annotate(txn, names, form, self._session.clock_ms), txn)

    def plan_undo(self, number: int) -> Plan:
        """Plan bringing back the exact bytes from before the change NUMBER; raises ChangeNotFound, UndoConflict, Refused."""
        from pulsar_admin.store.changes.plan import plan_undo

        return self._session.plan(lambda reader, now_ms: plan_undo(reader.txn, whole_number("change", number)))

    def undo(self, number: int) -> ChangeReport:
        """Undo the change NUMBER, as a change that can be undone itself; raises as ``plan_undo`` and ``apply``."""
        return self.apply(self.plan_undo(number))

    def load_plan(self, path: Path | str) -> Plan:
        """Return the plan in the file PATH, made again; raises NotFound, InvalidValue, and StalePlan where it is another one now."""
        return read_again(self._session, given_path("plan", path))

    def changes(self) -> tuple[Change, ...]:
        """Return the audit log, oldest first."""
        return tuple(self.change_log())

    def change_log(self, *numbers: int) -> Iterator[Change]:
        """Yield the audit log, oldest first, or the changes NUMBERS: raises ChangeNotFound, IndexCorrupt of a damaged record."""
        from pulsar_admin.api.reports import change_of
        from pulsar_admin.store.changes.plan import change_numbers, read_change

        with self._session.read() as txn:
            whole = change_numbers(txn)
            asked = [whole_number("change", number) for number in numbers] or whole
            undone: dict[int, int] = {}
            for number in whole:
                with suppress(IndexCorrupt):  # told where it is listed
                    row = read_change(txn, number)
                    if row.undoes is not None:
                        undone[row.undoes] = row.change
            for row in self._session.each(asked, lambda number: read_change(txn, number)):
                yield change_of(row, undone)
