"""The store: opening, questions, findings, and applying and undoing changes.

Modules that few methods need are imported in them: commands ask here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Unpack

from msgspec.structs import replace

from pulsar_admin import arguments
from pulsar_admin.api.ledgers import Ledger, Recoveries, verdicts_of
from pulsar_admin.api.messages import Columns, Dumps, Messages, WantedMessages, search_of
from pulsar_admin.api.namespaces import Namespace, Resources
from pulsar_admin.api.plan import Plan, check_planned_on, plan_of, read_plan_file, steps_of
from pulsar_admin.api.session import Session, session_of, warn_partial
from pulsar_admin.api.topics import Topic, TopicPolicies
from pulsar_admin.api.transfers import Transfers
from pulsar_admin.arguments import Clock, Count, Duration, JavaInt, LedgerId, Rate, Time
from pulsar_admin.broken import incomplete_text
from pulsar_admin.jsonify import to_json
from pulsar_admin.later import later
from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata
from pulsar_admin.store.db.audit_log import change_numbers, read_change
from pulsar_admin.store.db.environment import Store as StoreFile
from pulsar_admin.store.db.environment import open_store as open_store_file
from pulsar_admin.store.db.files import catalogued_bytes, iter_logs
from pulsar_admin.store.db.storeinfo import check_pages
from pulsar_admin.store.db.tree import Node, list_children, read_node
from pulsar_admin.store.dump.messages import COLUMNS
from pulsar_admin.store.errors import IndexCorrupt, InvalidValue, StoreError, StoreNotFound, check_choice
from pulsar_admin.store.model.cursors import range_text, read_cursor
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.redaction import hide_secrets_in
from pulsar_admin.store.model.resources import list_namespaces
from pulsar_admin.store.model.topics import (
    check_namespace,
    check_pattern,
    count_topics,
    expand_topic,
    iter_all_namespaces,
    iter_topic_texts,
    read_topic,
    select_topics,
)
from pulsar_admin.store.names import TopicSelection, parse_namespace, parse_scalable, parse_topic, parse_topics
from pulsar_admin.store.pace import PACE
from pulsar_admin.store.wording import counted, plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pulsar_admin.api.cursors import Cursors
    from pulsar_admin.api.pending import KeptNacks, Transactions
    from pulsar_admin.changes import Change, ChangeReport
    from pulsar_admin.store.changes import plan as store_plans
    from pulsar_admin.store.changes import topics as topic_changes
    from pulsar_admin.store.changes.plan import ChangeReport as Report
    from pulsar_admin.store.changes.resets import ResetRule
    from pulsar_admin.store.codec.encryption import PrivateKeys
    from pulsar_admin.store.doctor.diagnosing import DoctorOptions
    from pulsar_admin.store.doctor.since import FindingComparison
    from pulsar_admin.store.doctor.why_bytes import WhyBytes
    from pulsar_admin.store.engine.operation import Engine
    from pulsar_admin.store.facts.orphans import Orphan
    from pulsar_admin.store.index.rebuild import RebuildResult
    from pulsar_admin.store.model.broken import Missing
    from pulsar_admin.store.model.coverage import UnderReplicated
    from pulsar_admin.store.model.publish_times import Form
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.reports.ledgers import LedgerRow
    from pulsar_admin.store.reports.metrics import Metric
    from pulsar_admin.store.reports.overview import Overview
    from pulsar_admin.store.reports.summary import StoreSummary
    from pulsar_admin.store.reports.usage import Usage
    from pulsar_admin.store.reports.verify import LedgerVerdict
    from pulsar_admin.store.rules.finding import Finding
    from pulsar_admin.store.search.broker_setup import BrokerVersion
else:
    store_plans = later("pulsar_admin.store.changes.plan")
    topic_changes = later("pulsar_admin.store.changes.topics")


@arguments.checked
def open_store(
    path: Path | str,
    *,
    writable: bool = False,
    now: Time | None = None,
    jobs: int = 1,
    spark: SparkSession | None = None,
    private_keys: Sequence[Path | str] = (),
) -> Store:
    """Open the store at ``path`` for reading, or ``writable`` to apply changes, which excludes other writers until
    it is closed.

    ``now`` fixes "now" for relative times and ages (default: the clock at each call). Many entries are scanned in this
    process, in ``jobs`` processes (0: one per core), or on the executors of ``spark``, which must see the same paths.
    ``private_keys``, PEM files or directories of them, decrypt payloads, in this process only. Close the store,
    or use it in ``with``. A store imported with ``index=False`` only answers ``export_tables``, all else raises
    Refused. Raises StoreNotFound, Refused (an unfinished import), StoreBusy (writable, while another process writes, or
    open in this process already), IndexCorrupt, InvalidValue, Unsupported (of a later version), MissingComponent.
    """
    keys: PrivateKeys | None = None
    if private_keys:
        from pulsar_admin.store.codec.encryption import read_private_keys

        keys = read_private_keys(map(Path, private_keys))
    opened = open_store_file(Path(path), writable=writable, unindexed=True)
    try:
        session = session_of(opened, now, jobs=jobs, spark=spark, keys=keys)
        if text := incomplete_text(opened):
            warn_partial([text])
        return Store(session)
    except BaseException:
        opened.close()
        raise


class Store(Transfers, Recoveries, Resources, Columns, Dumps):
    """An open store, from ``open_store``. Each question reads one snapshot, plans stay valid until something is written."""

    def __init__(self, session: Session) -> None:
        if not isinstance(session, Session):
            raise TypeError("a Store comes from open_store(path)")
        super().__init__(session)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    @property
    def path(self) -> Path:
        """The directory of the store."""
        return self._session.path

    def close(self) -> None:
        """Close the store; objects made from it then raise Refused. A running iteration keeps it open until it ends."""
        self._session.close()

    # -- what there is ------------------------------------------------------------------------------------------------

    def topics(
        self, namespace: str | None = None, *, pattern: str | None = None, system: bool = False
    ) -> tuple[str, ...]:
        """Return the names of all topics, partitions one by one, or of those of a namespace (``tenant/namespace``), or of a pattern.

        A pattern is a glob over whole names, with or without ``persistent://``, and matches no system topic: ``acme/*``. Otherwise
        ``system`` adds the system topics. Raises NamespaceNotFound, TopicNotFound if no topic matches the pattern, InvalidValue.
        """
        if pattern is not None:
            if namespace is not None or system:
                raise InvalidValue("give a pattern alone, without namespace and system")
            with self._session.read() as txn:
                return tuple(map(str, select_topics(txn, TopicSelection(pattern=pattern))))
        with self._session.read() as txn:
            if namespace is None:
                chosen = iter_all_namespaces(txn)
            else:
                if set(namespace) & set("*?["):
                    raise InvalidValue(f"{namespace!r} is a pattern", hint=f"write topics(pattern={namespace!r})")
                name = parse_namespace(namespace)
                check_namespace(txn, name)
                chosen = iter((name,))
            return tuple(name for one in chosen for name in iter_topic_texts(txn, one, system=system))

    def topic(self, name: str) -> Topic:
        """Return a topic: ``persistent://t/ns/topic``, ``t/ns/topic``, or ``topic`` of public/default.

        Raises TopicNotFound, InvalidValue.
        """
        parsed = parse_topic(name)
        with self._session.read() as txn:
            expand_topic(txn, parsed)
        return Topic(self._session, parsed)

    def cursors(self, name: str | None, *topics: str, pattern: str | None = None) -> Cursors:
        """Return the cursors of a subscription in topics, moved as one; default: all topics that have it, or those
        of a glob ``pattern``.

        ``name`` None: of every subscription but the broker's own. Raises InvalidValue.
        """
        from pulsar_admin.api.cursors import Cursors

        return Cursors(self._session, parse_topics(topics, pattern), name)

    def nacks(self, name: str | None, *topics: str) -> KeptNacks:
        """Return the stored negative acks of a subscription (None: of all) in topics (default: all).

        Raises InvalidValue.
        """
        from pulsar_admin.api.pending import KeptNacks

        return KeptNacks(self._session, tuple(map(parse_topic, topics)), name)

    def transactions(self) -> Transactions:
        """Return what the coordinators' logs say of transactions."""
        from pulsar_admin.api.pending import Transactions

        return Transactions(self._session)

    def topic_policies(self, *topics: str, pattern: str | None = None) -> TopicPolicies:
        """Return the policies of topics, changed as one; default: of all topics, or of those of a glob ``pattern``. Raises InvalidValue."""
        return TopicPolicies(self._session, parse_topics(topics, pattern))

    def namespaces(self, tenant: str | None = None) -> tuple[str, ...]:
        """Return the names of the namespaces, of a tenant or of all; raises TenantNotFound, InvalidValue."""
        with self._session.read() as txn:
            if tenant is None:
                return tuple(map(str, iter_all_namespaces(txn)))
            return tuple(map(str, list_namespaces(txn, tenant)))

    def namespace(self, name: str) -> Namespace:
        """Return a namespace, ``tenant/namespace``; raises NamespaceNotFound, InvalidValue."""
        parsed = parse_namespace(name)
        with self._session.read() as txn:
            check_namespace(txn, parsed)
        return Namespace(self._session, parsed)

    def ledgers(self) -> tuple[int, ...]:
        """Return the ids of all ledgers that the metadata or the entry logs know, ascending."""
        from pulsar_admin.store.facts.orphans import iter_all_ledger_ids

        with self._session.read() as txn:
            return tuple(iter_all_ledger_ids(txn))

    def ledger_rows(self, word: str = "") -> Iterator[LedgerRow]:
        """Yield facts of each ledger whose owner's name contains ``word``: state, entries, bytes, publish times in
        ms, owners.

        Unreadable ledgers are left out with a PartialData warning. Raises NothingMatches if no owner's name contains
        ``word``.
        """
        from pulsar_admin.store.reports.ledgers import iter_ledger_rows

        with self._session.read() as txn:
            yield from iter_ledger_rows(txn, word, self._session.fail)

    def orphans(self) -> tuple[Orphan, ...]:
        """Return the ledgers that nothing references: why (``reason``), entries, bytes, what they claim to be. Raises IndexCorrupt."""
        from pulsar_admin.store.facts.orphans import iter_orphans
        from pulsar_admin.store.facts.vanished import find_vanished

        with self._session.reader() as reader:
            return tuple(iter_orphans(reader.txn, find_vanished(reader).foreign))

    def missing(self, *ledgers: LedgerId) -> tuple[Missing, ...]:
        """Return losses of these ledgers, or of all: referenced ledgers that do not exist, and ``ranges`` of entry
        ids that no file has.

        Entries of files that disappeared since the import do not count yet: a PartialData warning names them. Raises
        IndexCorrupt, LedgerNotFound (a named ledger).
        """
        from pulsar_admin.store.reports.ledgers import iter_missing, read_missing
        from pulsar_admin.store.transfer.cataloguing import find_gone

        with self._session.read() as txn:
            self._session.partial(
                f"{path} is gone: its {counted(count, 'entry')} {plural(count, 'is', 'are')} not counted as "
                "missing; to look for copies in other files: pulsar-admin store refresh"
                for path, count in find_gone(txn, ledgers).items()
            )
            rows = self._session.each(ledgers, lambda ledger_id: read_missing(txn, ledger_id))
            return tuple(row for row in (rows if ledgers else iter_missing(txn)) if row is not None)

    def verify_ledgers(self, *ledgers: LedgerId) -> Iterator[LedgerVerdict]:
        """Yield the problems of ledgers, or of all, after reading every entry: see ``Ledger.verify``; raises LedgerNotFound."""
        return verdicts_of(self._session, ledgers)

    def underreplicated(self) -> tuple[UnderReplicated, ...]:
        """Return the ledgers with entries that are, or may be, on fewer bookies than their write quorum, the worst first.

        A PartialData warning says when the store does not know on which bookies entries are. Raises IndexCorrupt.
        """
        from pulsar_admin.store.model.coverage import find_underreplicated, read_disks

        with self._session.read() as txn:
            unknown = read_disks(txn).unknown
            ledgers = tuple(find_underreplicated(txn))
        self._session.partial([] if unknown is None else [": ".join(unknown)])
        return ledgers

    def ledger(self, ledger_id: int) -> Ledger:
        """Return the ledger with this id; raises InvalidValue, and its methods LedgerNotFound."""
        return Ledger(self._session, ledger_id)

    def nodes(self, path: str = "/") -> tuple[str, ...]:
        """Return the names directly below a path, as in Pulsar's metadata store; raises PathNotFound."""
        return self._session.ask(list_children, path)

    def node(self, path: str) -> Node:
        """Return a metadata node: ``value``, its exact bytes, and ``stat``; raises PathNotFound."""
        return self._session.ask(read_node, path)

    def decoded(self, path: str) -> Mapping[str, Any]:  # Any: JSON
        """Return a metadata node as JSON: its stat, times in ms, ``structure`` and ``value``.

        For a cursor also ``truth``, its actual position. Raises PathNotFound, MetadataCorrupt.
        """
        from pulsar_admin.store.model.nodes import decode_structure

        with self._session.reader() as reader:
            node = read_node(reader.txn, path)
            structure, value = decode_structure(node.path, node.value)
            document = {
                "path": node.path,
                "version": node.stat.version,
                "created": node.stat.created_ms,
                "modified": node.stat.modified_ms,
                "bytes": len(node.value),
                "structure": structure,
                "value": _readable(value),
            }
            if structure == "ManagedCursorInfo":
                document["truth"] = _truth(self._session, reader, node)
            return document

    # -- the whole store ----------------------------------------------------------------------------------------------

    def summary(self) -> StoreSummary:
        """Return what the store holds, in numbers, where it came from, and the state of every file of entries."""
        from pulsar_admin.store.reports.summary import read_summary

        with self._session.opened() as store, self._session.reader() as reader:
            return read_summary(store, reader)

    def overview(self, *, top: Count = 5, check: bool | None = None) -> Overview:
        """Return the whole store in numbers: age of the copy, namespaces, the ``top`` topics and backlogs, what
        occupies disks.

        ``check`` says whether ``findings`` counts the findings of ``doctor`` (else None); default: unless the store is
        large. Raises InvalidValue, IndexCorrupt.
        """
        from pulsar_admin.store.doctor.overview import read_checked_overview

        with self._session.opened() as store, self._session.progress(None, "topics and ledgers", "overview") as advance:
            return read_checked_overview(
                store, self._session.now, top, check=check, advance=advance, processes=self._session.processes
            )

    def metrics(
        self, *, top: Count = 1000, pattern: str | None = None, delayed: bool = False, check: bool | None = None
    ) -> tuple[Metric, ...]:
        """Return the gauges of ``pulsar-admin metrics``, with name, help and samples. ``check`` is that of
        ``overview``.

        ``top`` limits the rows of each metric with a topic, among topics that match ``pattern``; ``delayed`` reads the
        headers of their backlogs. Raises InvalidValue, TopicNotFound if none matches.
        """
        from pulsar_admin.store.doctor.overview import read_checked_metrics
        from pulsar_admin.store.reports.metrics import Chosen

        chosen = Chosen(top, pattern, delayed)
        label = "topics, ledgers and rows", "metrics"
        if pattern is not None:
            self._session.ask(check_pattern, pattern)
        with self._session.opened() as store, self._session.progress(None, *label) as advance:
            return read_checked_metrics(
                store, self._session.now, chosen, check=check, advance=advance, processes=self._session.processes
            )

    def usage(self) -> Usage:
        """Return who occupies the disks, in bytes: ``owners`` (topics), ``files`` (with the dead bytes of each),
        ``disks``.

        Raises IndexCorrupt.
        """
        from pulsar_admin.store.reports.usage import read_usage

        with self._session.opened() as store, self._session.read() as txn:
            return read_usage(store, txn)

    def why_bytes(self, *topics: str, top: Count | None = None) -> WhyBytes:
        """Return why bytes are retained, of all files or of topics: ``totals`` by reason, and ``held``, the ``top``
        largest (None: all).

        Each has ``reason`` (``code``, ``sentence``, ``evidence``, ``command``), ``bytes``, ``percent``, ``topic`` and
        ``subscription``. Raises InvalidValue, TopicNotFound, IndexCorrupt.
        """
        from pulsar_admin.store.doctor.why_bytes import why_bytes

        with self._session.opened() as store, self._session.reader() as reader:
            names = [one for topic in topics for one in expand_topic(reader.txn, parse_topic(topic))]
            return why_bytes(store, reader, self._session.now_ms, names if topics else None, top)

    def check(self, *, deep: bool = False, max_rate: Rate | None = None) -> tuple[Finding, ...]:
        """Return problems (``is_problem``) and notes about files, index, audit log, and metadata against ledgers.

        ``deep`` reads every byte, at most ``max_rate`` of them per second, in this process only. Nothing is repaired.
        Raises InvalidValue.
        """
        with PACE.limited(max_rate):
            return tuple(iter_check(self._session, deep=deep))

    def doctor(
        self, *, deep: bool = False, each: int = 10, codes: Sequence[str] = (), severities: Sequence[str] = ()
    ) -> tuple[Finding, ...]:
        """Return findings, the worst first: ``severity``, ``evidence``, what is at stake, what a ``broker`` does,
        and how to ``mend`` it.

        ``deep`` reads every byte; ``each`` limits the findings per code, the rest are summed up; ``codes`` and
        ``severities`` filter. Raises InvalidValue.
        """
        options = _options(deep, each, codes, severities)
        with _looking(self._session, "doctor", deep=deep) as looking:
            return tuple(_diagnose(self._session, options, *looking))

    def compare_findings(
        self,
        since: Path | str,
        *,
        deep: bool = False,
        each: int = 10,
        codes: Sequence[str] = (),
        severities: Sequence[str] = (),
    ) -> FindingComparison:
        """Return which findings of ``doctor`` are new, worse, gone or not seen since an earlier copy (``changes``;
        ``unchanged`` counts).

        ``since`` is another store, at its own time, or a file that ``doctor -o json`` wrote. Other options as
        ``doctor``. Raises InvalidValue, StoreNotFound, IndexCorrupt.
        """
        from pulsar_admin.store.doctor.since import LISTED, compare, read_saved
        from pulsar_admin.store.facts.starts import read_registered

        asked, path = _options(deep, each, codes, severities), Path(since)
        listed = replace(asked, each=max(asked.each, LISTED), severities=())
        hint = "name an earlier copy of this store, or a file that doctor -o json wrote"
        if path.resolve() == self._session.path.resolve():
            raise InvalidValue(f"{path} is this store itself", hint=hint)
        if path.is_dir() and not (path / "store.json").exists():
            raise StoreNotFound(f"{path} is not a store (no store.json there)", hint=hint, path=str(path))
        with _looking(self._session, "doctor", deep=deep) as looking:
            reader, engine, _ = looking
            if path.is_dir():
                before, cluster = _findings_of(path, self._session, listed, engine)
                own = read_registered(reader.txn).instance_id
                if cluster and own and cluster != own:
                    self._session.warn(
                        [
                            f"{path} belongs to another cluster ({cluster}; this store: {own}): nothing that is new or gone shows a change"
                        ]
                    )
            else:
                before = [one for one in read_saved(path) if not asked.codes or one.code in asked.codes]
            now = _diagnose(self._session, listed, *looking)
            is_empty = not reader.txn.store.info.sources
            return compare(before, now, each=asked.each, deep=deep, is_empty=is_empty, severities=asked.severities)

    def compare_index(self, *, verify: bool = True) -> RebuildResult:
        """Rebuild the location and time index from the files in memory and count the rows that differ
        (``changed_rows``).

        The store stays unchanged. ``verify`` checks digests. Raises SourceChanged, DiskFull.
        """
        from pulsar_admin.store.index.rebuild import compare_index

        return self._make_index(compare_index, verify=verify, writes=False)

    def rebuild_index(self, *, verify: bool = True) -> RebuildResult:
        """Rebuild the index from the files, and the owners of ledgers from the metadata, and replace the old ones.

        Calling once more continues an interrupted rebuild. Raises NotWritable, SourceChanged, DiskFull.
        """
        from pulsar_admin.store.index.rebuild import rebuild_index

        return self._make_index(rebuild_index, verify=verify, writes=True)

    def _make_index(self, work: Callable[..., RebuildResult], *, verify: bool, writes: bool) -> RebuildResult:
        from pulsar_admin.store.model.references import count_wrong_owners, index_owners

        with self._session.read() as txn:
            size_bytes = catalogued_bytes(txn)
        with (
            self._session.writing() if writes else self._session.opened() as store,
            self._session.engine([], size_bytes) as engine,
            self._session.progress(size_bytes, "bytes", "index", resumes=writes) as advance,
        ):
            result = work(store, verify=verify, advance=advance, engine=engine)
            with store.read() as txn:
                owners = count_wrong_owners(store, txn)
            if owners and writes:
                store.write(lambda txn: index_owners(store, txn))
            return replace(result, changed_rows=result.changed_rows + owners)

    def search(self, *topics: str, **wanted: Unpack[WantedMessages]) -> Messages:
        """Return the messages of topics (default: all) that match everything wanted, as ``Topic.search``.

        Unless columns are named, the column ``topic`` says to which topic each belongs. Raises InvalidValue, and when
        read TopicNotFound.
        """
        wanted.setdefault("columns", ("topic", *COLUMNS))
        return search_of(self._session, lambda txn: select_topics(txn, parse_topics(topics)), wanted)

    # -- making and undoing changes ------------------------------------------------------------------------------------

    def apply(self, plan: Plan) -> ChangeReport:
        """Apply a plan in one transaction, with a row in the audit log, and return its report.

        A plan that changes nothing writes nothing: the report's number is None. Raises StalePlan if the store changed
        since planning, NotWritable if it was opened for reading, and Refused for a plan that writes ledgers while an
        iteration still reads the store.
        """
        from pulsar_admin.changes import report_of

        steps = steps_of(arguments.given_object("plan", plan, Plan))
        if isinstance(steps, store_plans.WritingPlan):
            with self._session.writing() as store:
                check_planned_on(plan, store)
                return report_of(steps.made(store)[0], self._session.path)
        with self._session.opened() as store:
            if plan.changes_nothing:
                store_plans.check_current(store, steps)
                return report_of(steps.unchanged())
            self._session.check_writable()
            return report_of(store_plans.apply_plan(store, steps, self._session.clock_ms), self._session.path)

    def load(
        self,
        dump: Path | str | IO[bytes],
        *,
        topic: str | None = None,
        interceptors: str | None = None,
        keep_ledger_ids: bool = False,
    ) -> Plan:
        """Plan appending the entries of a dump (``dump`` with level entries) to their topics, or to ``topic``;
        missing ones are created.

        ``dump`` may be a stream of JSON lines, which can be read once: to look at the plan, or to apply it. Entries
        keep their bytes, unless ``interceptors`` (``timestamp,index``) add broker metadata as a broker with these
        would. Raises InvalidValue; previewed or applied NotFound, InvalidValue, Corrupt, Refused, and applied DiskFull.
        """
        from pulsar_admin.store.codec.interceptors import parse_interceptors
        from pulsar_admin.store.dump.load import LOAD, LoadOptions, apply_load, preview_load
        from pulsar_admin.store.dump.source import EntryDump

        name = None if topic is None else parse_topic(topic)
        chain = None if interceptors is None else parse_interceptors(interceptors)
        options = LoadOptions(name, chain, keep_ledger_ids, self._session.clock_ms)
        if isinstance(dump, (Path, str)):
            source = EntryDump(arguments.given_path("dump", dump))
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
            return plan_of(store_plans.WritingPlan(LOAD, txn.id, shown, made, digest=source.digest), txn)

    def copy(self, *topics: str, source: Path | str, to: str | None = None) -> Plan:
        """Plan copying whole topics from another store, a single one under the name ``to``: with subscriptions,
        partitions and schema.

        The report's warnings name data that is not copied. Raises InvalidValue; previewed or applied TopicNotFound,
        StoreNotFound, AlreadyExists, Refused, InvalidValue, and applied DiskFull.
        """
        from pulsar_admin.store.dump.copying import CopyRequest, plan_copy

        names = tuple(map(parse_topic, topics))
        request = CopyRequest(Path(source), names, None if to is None else parse_topic(to), self._session.clock_ms)
        with self._session.opened() as store, self._session.read() as txn:
            return plan_of(plan_copy(store, request), txn)

    def create_namespace(self, name: str, *, clusters: Sequence[str] = (), bundles: JavaInt = 0) -> Plan:
        """Plan creating a namespace, by default of the store's cluster, with this number of bundles (0: four).

        Raises TenantNotFound, AlreadyExists, InvalidValue, Refused (a cluster that the tenant may not use).
        """
        from pulsar_admin.store.changes.resources import plan_create_namespace

        return self._planned(plan_create_namespace, parse_namespace(name), clusters, bundles)

    def delete_namespace(self, name: str, *, force: bool = False) -> Plan:
        """Plan deleting a namespace, with ``force`` also its topics; raises NamespaceNotFound, Refused."""
        from pulsar_admin.store.changes.deleting import plan_delete_namespace

        return self._planned(plan_delete_namespace, parse_namespace(name), force)

    def create_topic(
        self, name: str, *, partitions: JavaInt | None = None, properties: Mapping[str, str] | None = None
    ) -> Plan:
        """Plan creating a topic, with ``partitions`` a partitioned one; it has no ledger until a broker loads it.

        Raises AlreadyExists, NamespaceNotFound, InvalidValue.
        """
        topic, given = parse_topic(name), properties or {}
        return self._planned(topic_changes.plan_topic, topic, partitions, given)

    def scalable_topics(self, namespace: str, *, properties: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """Return the scalable topics of a namespace, ``topic://…``, that have all of ``properties``.

        Raises NamespaceNotFound, InvalidValue, MetadataCorrupt.
        """
        from pulsar_admin.store.reports.scalable import list_scalable

        return self._session.ask(list_scalable, parse_namespace(namespace), properties or {})

    def create_scalable_topic(
        self, name: str, *, segments: JavaInt = 1, properties: Mapping[str, str] | None = None
    ) -> Plan:
        """Plan creating a scalable topic (Pulsar 5.0); its segments have no ledgers until a broker loads them.

        Raises AlreadyExists, NamespaceNotFound, InvalidValue.
        """
        from pulsar_admin.store.changes.scalable import plan_create_scalable

        return self._planned(plan_create_scalable, parse_scalable(name), segments, properties or {})

    def delete_scalable_topic(self, name: str, *, force: bool = False) -> Plan:
        """Plan deleting a scalable topic with its segments, subscriptions, ledgers and schema, with ``force`` also unreadable ones.

        Raises TopicNotFound, Refused, MetadataCorrupt.
        """
        from pulsar_admin.store.changes.scalable import plan_delete_scalable

        return self._planned(plan_delete_scalable, parse_scalable(name), force)

    def create_shadow_topic(self, name: str, source: str, *, properties: Mapping[str, str] | None = None) -> Plan:
        """Plan creating a topic that shows the entries of ``source`` and has subscriptions of its own (PIP-180).

        Raises TopicNotFound, AlreadyExists, NamespaceNotFound, InvalidValue.
        """
        topic, of = parse_topic(name), parse_topic(source)
        return self._planned(topic_changes.plan_shadow, topic, of, properties or {})

    def delete_topics(self, *topics: str, partitioned: bool = False, force: bool = False) -> Plan:
        """Plan deleting topics, or ``partitioned`` ones with their partitions, and their subscriptions, ledgers,
        schemas and policies.

        ``force`` ignores unreadable parts of the metadata. Raises TopicNotFound, Refused, MetadataCorrupt,
        InvalidValue.
        """
        from pulsar_admin.store.changes.deleting import check_deletable, plan_delete_topics

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
        lines: Iterable[str | Mapping[str, object]],
        subscription: str | None = None,
        *,
        source: str = "lines",
        rule: ResetRule = "exact",
        clock: Clock = "auto",
        broker_version: BrokerVersion | None = None,
        max_clock_skew: Duration = "1m",
        force: bool = False,
    ) -> Plan:
        """Plan several resets, all or none: ``{"topic": …, "subscription": …, "to": …}``, or ``time``, ``shift_by`` or ``like`` for ``to``.

        ``exclude`` is that of ``Cursor.reset``; a line without a subscription uses ``subscription``. A line may also be a JSON text as the
        command line reads it: ``messageId``, ``time``, ``shiftBy``, ``toSubscription``. ``source`` names the lines in errors. Other options
        and errors are those of ``Cursors.reset``.
        """
        from pulsar_admin.api.cursors import broker_of, reset_line, resets_plan
        from pulsar_admin.store.changes.resets import ResetRequest, iter_reset_rows, resets_of_rows

        now_ms = self._session.clock_ms
        broker = broker_of(self._session, broker_version, max_clock_skew, now_ms)
        request = ResetRequest(now_ms, rule, clock, broker, force)
        with self._session.reader() as reader:
            texts = (reset_line(self._session, line) for line in arguments.given_items("lines", lines))
            rows = iter_reset_rows(texts, source, subscription, partial(self._session.time_ms, changes=True))
            return resets_plan(self._session, reader, resets_of_rows(reader, rows), request)

    def annotate(self, *topics: str, pattern: str | None = None, form: Form = "properties") -> Plan:
        """Plan writing first and last publish time (PIP-345) of closed ledgers into their metadata, of topics
        (default: all).

        ``pattern`` is a glob of topics. Later searches know the times without reading entries. Raises InvalidValue,
        TopicNotFound, MetadataCorrupt, IndexCorrupt.
        """
        from pulsar_admin.store.model.publish_times import Form

        check_choice("form", form, Form)
        with self._session.read() as txn:
            names = select_topics(txn, parse_topics(topics, pattern))
            return plan_of(topic_changes.plan_annotate(txn, names, form, self._session.clock_ms), txn)

    def plan_undo(self, number: int) -> Plan:
        """Plan restoring the exact bytes from before a change; raises ChangeNotFound, UndoConflict, Refused."""
        return self._planned(lambda reader, now_ms: store_plans.plan_undo(reader.txn, number))

    def undo(self, number: int | Change | ChangeReport) -> ChangeReport:
        """Undo the change with this number, or the one that ``apply`` or ``changes`` returned; undoing is a change of its own.

        Raises as ``plan_undo`` and ``apply``, and InvalidValue for a report without a change.
        """
        from pulsar_admin.changes import Change, ChangeReport

        given = number.number if isinstance(number, Change | ChangeReport) else number
        if given is None:
            raise InvalidValue("nothing was written, so there is nothing to undo")
        return self.apply(self.plan_undo(given))

    def load_plan(self, path: Path | str) -> Plan:
        """Return the plan in a file, made anew; raises NotFound, InvalidValue, and StalePlan if it differs now."""
        return read_plan_file(self._session, Path(path))

    def changes(self) -> tuple[Change, ...]:
        """Return the audit log, oldest first."""
        return tuple(self.change_log())

    def change_log(self, *numbers: int) -> Iterator[Change]:
        """Yield the audit log, oldest first, or the numbered changes; raises ChangeNotFound, IndexCorrupt for a damaged record."""
        from pulsar_admin.changes import change_of

        with self._session.read() as txn:
            whole = change_numbers(txn)
            asked = numbers or whole
            undone: dict[int, int] = {}
            for number in whole:
                with suppress(IndexCorrupt):  # told where it is listed
                    row = read_change(txn, number)
                    if row.undoes is not None:
                        undone[row.undoes] = row.change
            for row in self._session.each(asked, lambda number: read_change(txn, number)):
                yield change_of(row, undone)


def iter_check(session: Session, *, deep: bool) -> Iterator[Finding]:
    """Yield what ``Store.check`` returns."""
    from pulsar_admin.store.doctor.diagnosing import check_store

    with _looking(session, "check", deep=deep) as (reader, engine, advance):
        yield from check_store(reader.txn.store, deep=deep, advance=advance, engine=engine, reader=reader)


def _findings_of(
    path: Path, session: Session, options: DoctorOptions, engine: Engine | None
) -> tuple[list[Finding], str]:
    """Return the findings of the store at a path, at its own time, or if that is unknown at the session's; and its BookKeeper's id."""
    from pulsar_admin.store.doctor.diagnosing import diagnose
    from pulsar_admin.store.facts.starts import read_registered
    from pulsar_admin.store.model.copy_age import find_as_of

    walked = check_pages(path)  # before LMDB reads them: it dies of damage
    with open_store_file(path) as store:
        store.walked = walked
        with store.read() as txn:
            as_of, cluster = find_as_of(txn), read_registered(txn).instance_id
        now_ms = session.now_ms if as_of is None else as_of.time_ms
        return list(diagnose(store, now_ms=now_ms, options=options, engine=engine)), cluster


def _options(deep: bool, each: int, codes: Sequence[str], severities: Sequence[str]) -> DoctorOptions:
    from pulsar_admin.store.doctor.diagnosing import DoctorOptions
    from pulsar_admin.store.rules.table import check_codes

    for severity in severities:
        check_choice("severity", severity, Literal["critical", "warning", "note"])
    return DoctorOptions(deep, arguments.whole_number("each", each, 1), check_codes(codes), tuple(severities))


@contextmanager
def _looking(
    session: Session, label: str, *, deep: bool
) -> Iterator[tuple[EntryReader, Engine | None, Callable[[int], None]]]:
    """Give a reader, an engine for all bytes where they are looked at, and what shows how far a look is."""
    from pulsar_admin.store.engine.slices import Cut, plan_slices

    with session.opened() as store, open_reader(store) as reader:
        txn = reader.txn
        with txn.passing_altered():  # what looks tells of them
            size_bytes = catalogued_bytes(txn) if deep else 0
            what = (size_bytes, "bytes") if deep else (count_topics(txn), "topics")
            logs = [(log.place(session.path), log.file_id, log.size_bytes) for log in iter_logs(txn)] if deep else []
        with session.engine([], size_bytes) as engine, session.progress(*what, label) as advance:
            if deep and engine is not None:
                engine.meet(plan_slices(logs, Cut(slices=1)))
            yield reader, engine, advance


def _diagnose(
    session: Session, options: DoctorOptions, reader: EntryReader, engine: Engine | None, advance: Callable[[int], None]
) -> Iterator[Finding]:
    from pulsar_admin.store.doctor.diagnosing import diagnose

    return diagnose(
        reader.txn.store,
        now_ms=session.now_ms,
        options=options,
        advance=advance,
        engine=engine,
        reader=reader,
        processes=session.processes,
    )


def readable_node(path: str, value: bytes | None) -> dict[str, Any] | None:  # Any: JSON
    """Return a node's value decoded, with secrets hidden; in hexadecimal if it cannot be decoded; None for no value."""
    from pulsar_admin.store.model.nodes import decode_structure

    if value is None:
        return None
    try:
        structure, decoded = decode_structure(path, value)
    except StoreError as error:
        return {"structure": "unreadable", "error": error.message, "value": value.hex()}
    return {"structure": structure, "value": hide_secrets_in(_readable(decoded))}


def _readable(value: object) -> object:
    """Return a value as JSON with names for upstream's numbers, text for custom metadata, and short ranges."""
    from pulsar_admin.store.model.ledger_owners import custom_text

    document = to_json(value)
    if isinstance(value, LedgerMetadata):
        digest = None if value.digest_type is None else value.digest_type.name
        document |= {"state": value.state.name, "digestType": digest, "custom": custom_text(value)}
    elif isinstance(value, CursorInfo):
        document |= {
            "markDelete": None if value.mark_delete is None else str(value.mark_delete),
            "ranges": range_text(value.ranges),
        }
    return document


def _truth(session: Session, reader: EntryReader, node: Node) -> dict[str, Any] | None:  # Any: JSON
    """Return where the cursor really stands, or None (and a warning) when that cannot be read."""
    from pulsar_admin.store.model.nodes import managed_node

    named = managed_node(node.path, node.value)
    assert named is not None
    assert named.cursor is not None
    if named.ledger is None:
        return None
    try:
        cursor = read_cursor(reader.txn, reader, read_topic(reader.txn, named.ledger), named.cursor)
    except StoreError as error:
        session.warn([f"the position of this cursor cannot be read: {error.message}"])
        return None
    return {
        "source": cursor.source,
        "markDeletePosition": str(cursor.mark_delete),
        **({} if cursor.ahead is None else {"storedMarkDeletePosition": str(cursor.ahead)}),
        "individuallyDeletedMessages": range_text(cursor.state.ranges),
        "batchDeletes": {str(position): list(words) for position, words in cursor.state.batch_deletes.items()},
        "properties": dict(cursor.state.properties),
        "skippedEntries": cursor.skipped_entries,
        "recoverableMarkDeletePosition": None if cursor.recoverable is None else str(cursor.recoverable.mark_delete),
    }
