"""The store: opening, answers, findings, and applying and undoing changes.

Modules that few methods need are imported in these, because commands use this module too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, Unpack

from pulsar_admin import arguments
from pulsar_admin.api.ledgers import Ledger, Recoveries, verdicts_of
from pulsar_admin.api.messages import Columns, Dumps, Messages, WantedMessages, search_of
from pulsar_admin.api.namespaces import Namespace, Resources
from pulsar_admin.api.plan import Plan, plan_of, read_plan_file
from pulsar_admin.api.plan import apply as apply_plan
from pulsar_admin.api.session import Session, session_of
from pulsar_admin.api.topics import Topic, TopicPolicies
from pulsar_admin.api.transfers import Transfers
from pulsar_admin.arguments import Clock, Count, Duration, JavaInt, LedgerId, Rate, Time
from pulsar_admin.broken import incomplete_text, warn_partial
from pulsar_admin.jsonify import stored_json
from pulsar_admin.later import later, laters
from pulsar_admin.store.db.audit_log import change_numbers, read_change, read_undoings
from pulsar_admin.store.db.environment import open_store as open_store_file
from pulsar_admin.store.db.files import catalogued_bytes
from pulsar_admin.store.db.tree import Node, list_children, read_node
from pulsar_admin.store.dump.messages import COLUMNS
from pulsar_admin.store.errors import InvalidValue, StoreError
from pulsar_admin.store.model.cursors import read_truth
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.resources import list_namespaces
from pulsar_admin.store.model.topics import (
    check_namespace,
    check_pattern,
    expand_topic,
    iter_all_namespaces,
    list_topics,
    select_topics,
)
from pulsar_admin.store.names import TopicSelection, parse_namespace, parse_scalable, parse_topic, parse_topics
from pulsar_admin.store.pace import PACE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pulsar_admin import changes as change_reports
    from pulsar_admin.api import cursors as cursor_api
    from pulsar_admin.api import pending
    from pulsar_admin.store.changes import deleting, resets
    from pulsar_admin.store.changes import plan as store_plans
    from pulsar_admin.store.changes import resources as resource_changes
    from pulsar_admin.store.changes import scalable as scalable_changes
    from pulsar_admin.store.changes import topics as topic_changes
    from pulsar_admin.store.codec import encryption
    from pulsar_admin.store.codec import interceptors as chains
    from pulsar_admin.store.doctor import diagnosing
    from pulsar_admin.store.doctor import overview as overviews
    from pulsar_admin.store.doctor import since as comparing
    from pulsar_admin.store.doctor import why as byte_reasons
    from pulsar_admin.store.dump import copying
    from pulsar_admin.store.dump import load as loading
    from pulsar_admin.store.dump import source as dumps
    from pulsar_admin.store.facts import orphans as orphan_facts
    from pulsar_admin.store.facts import vanished
    from pulsar_admin.store.facts.parts import Tally
    from pulsar_admin.store.index.rebuild import RebuildResult
    from pulsar_admin.store.model import coverage
    from pulsar_admin.store.model.broken import Missing
    from pulsar_admin.store.model.publish_times import Form
    from pulsar_admin.store.reports import ledgers as ledger_reports
    from pulsar_admin.store.reports import overview as metric_reports
    from pulsar_admin.store.reports import scalable as scalable_reports
    from pulsar_admin.store.reports import summary as summaries
    from pulsar_admin.store.reports import usage as usages
    from pulsar_admin.store.reports.overview import Overview
    from pulsar_admin.store.reports.verify import LedgerVerdict
    from pulsar_admin.store.rules.finding import Finding
    from pulsar_admin.store.search.broker_setup import BrokerVersion
    from pulsar_admin.store.transfer import cataloguing
    from pulsar_admin.store.transfer import refresh as refreshing
else:
    change_reports = later("pulsar_admin.changes")
    cursor_api, pending = laters("pulsar_admin.api", "cursors pending")
    deleting, store_plans, resets = laters("pulsar_admin.store.changes", "deleting plan resets")
    resource_changes, scalable_changes = laters("pulsar_admin.store.changes", "resources scalable")
    topic_changes = later("pulsar_admin.store.changes.topics")
    encryption, chains = laters("pulsar_admin.store.codec", "encryption interceptors")
    diagnosing, overviews, comparing = laters("pulsar_admin.store.doctor", "diagnosing overview since")
    byte_reasons = later("pulsar_admin.store.doctor.why")
    copying, loading, dumps = laters("pulsar_admin.store.dump", "copying load source")
    orphan_facts, vanished = laters("pulsar_admin.store.facts", "orphans vanished")
    coverage = later("pulsar_admin.store.model.coverage")
    ledger_reports, metric_reports, scalable_reports = laters("pulsar_admin.store.reports", "ledgers overview scalable")
    summaries, usages = laters("pulsar_admin.store.reports", "summary usage")
    cataloguing, refreshing = laters("pulsar_admin.store.transfer", "cataloguing refresh")

Found = TypeVar("Found")


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
    """Open the store at ``path`` for reading, or ``writable`` to apply changes, which excludes other writers until it is closed.

    ``now`` fixes "now" for relative times and ages (default: the clock at each call). Many entries are scanned in this
    process, in ``jobs`` processes (0: one per core), or on the executors of ``spark``, which must see the same paths.
    ``private_keys``, PEM files or directories of them, decrypt payloads, in this process only. Close the store,
    or use it in ``with``. A store imported with ``index=False`` only answers ``export_tables``, all else raises
    Refused. Raises StoreNotFound, Refused (an unfinished import), StoreBusy (writable, while another process writes, or
    open in this process already), IndexCorrupt, InvalidValue, Unsupported (of a later version), MissingComponent.
    """
    keys = encryption.read_private_keys(map(Path, private_keys)) if private_keys else None
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
    """An open store, from ``open_store``. Each answer is read from one snapshot; plans stay valid until something is written."""

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
            return tuple(map(str, self._session.ask(select_topics, TopicSelection(pattern=pattern))))
        if namespace is not None and set(namespace) & set("*?["):
            raise InvalidValue(f"{namespace!r} is a pattern", hint=f"write topics(pattern={namespace!r})")
        name = None if namespace is None else parse_namespace(namespace)
        with self._session.read() as txn:
            return list_topics(txn, name, system=system)

    def topic(self, name: str) -> Topic:
        """Return a topic by full name, ``t/ns/topic``, or ``topic`` of public/default; raises TopicNotFound, InvalidValue."""
        parsed = parse_topic(name)
        self._session.ask(expand_topic, parsed)
        return Topic(self._session, parsed)

    def cursors(self, name: str | None, *topics: str, pattern: str | None = None) -> cursor_api.Cursors:
        """Return the cursors of a subscription, moved as one: in topics, or those of a glob ``pattern``; default: in all that have it.

        ``name`` None: of every subscription but the broker's own. Raises InvalidValue.
        """
        return cursor_api.Cursors(self._session, parse_topics(topics, pattern), name)

    def nacks(self, name: str | None, *topics: str) -> pending.KeptNacks:
        """Return the stored negative acks of a subscription (None: of all) in topics (default: all); raises InvalidValue."""
        return pending.KeptNacks(self._session, tuple(map(parse_topic, topics)), name)

    def transactions(self) -> pending.Transactions:
        """Return the transactions in the coordinators' logs."""
        return pending.Transactions(self._session)

    def topic_policies(self, *topics: str, pattern: str | None = None) -> TopicPolicies:
        """Return the policies of topics, changed as one; default: of all topics, or of those of a glob ``pattern``. Raises InvalidValue."""
        return TopicPolicies(self._session, parse_topics(topics, pattern))

    def namespaces(self, tenant: str | None = None) -> tuple[str, ...]:
        """Return the names of the namespaces, of a tenant or of all; raises TenantNotFound, InvalidValue."""
        with self._session.read() as txn:
            return tuple(map(str, iter_all_namespaces(txn) if tenant is None else list_namespaces(txn, tenant)))

    def namespace(self, name: str) -> Namespace:
        """Return a namespace, ``tenant/namespace``; raises NamespaceNotFound, InvalidValue."""
        parsed = parse_namespace(name)
        self._session.ask(check_namespace, parsed)
        return Namespace(self._session, parsed)

    def ledgers(self) -> tuple[int, ...]:
        """Return the ids of all ledgers in the metadata or the entry logs, ascending."""
        with self._session.read() as txn:
            return tuple(orphan_facts.iter_all_ledger_ids(txn))

    def ledger_rows(self, word: str = "") -> Iterator[ledger_reports.LedgerRow]:
        """Yield state, entries, bytes, publish times in ms and owners of each ledger whose owner's name contains ``word``.

        Unreadable ledgers are left out with a PartialData warning. Raises NothingMatches if there is no such ledger.
        """
        with self._session.read() as txn:
            yield from ledger_reports.iter_ledger_rows(txn, word, self._session.fail)

    def orphans(self) -> tuple[orphan_facts.Orphan, ...]:
        """Return the ledgers that nothing references: why (``reason``), entries, bytes, what they claim to be. Raises IndexCorrupt."""
        with self._session.reader() as reader:
            return tuple(orphan_facts.iter_orphans(reader.txn, vanished.find_vanished(reader).foreign))

    def missing(self, *ledgers: LedgerId) -> tuple[Missing, ...]:
        """Return losses of these ledgers, or of all: referenced ones that do not exist, and ``ranges`` of entry ids that no file has.

        Entries of files that disappeared since the import do not count yet: a PartialData warning names them. Raises
        IndexCorrupt, LedgerNotFound (a named ledger).
        """
        with self._session.read() as txn:
            self._session.partial(cataloguing.iter_gone_texts(txn, ledgers))
            named = self._session.each(ledgers, partial(ledger_reports.read_missing, txn))
            return tuple(row for row in (named if ledgers else ledger_reports.iter_missing(txn)) if row is not None)

    def verify_ledgers(self, *ledgers: LedgerId) -> Iterator[LedgerVerdict]:
        """Yield the problems of ledgers, or of all, after reading every entry: see ``Ledger.verify``; raises LedgerNotFound."""
        return verdicts_of(self._session, ledgers)

    def underreplicated(self) -> tuple[coverage.UnderReplicated, ...]:
        """Return the ledgers with entries that are, or may be, on fewer bookies than their write quorum, the worst first.

        A PartialData warning says when the store does not know on which bookies entries are. Raises IndexCorrupt.
        """
        with self._session.read() as txn:
            unknown = coverage.read_disks(txn).unknown
            ledgers = tuple(coverage.find_underreplicated(txn))
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
        with self._session.reader() as reader:
            node = read_node(reader.txn, path)
            document = stored_json(node)
            if document["structure"] == "ManagedCursorInfo":
                try:
                    document["truth"] = read_truth(reader, node)
                except StoreError as error:
                    self._session.warn([f"the position of this cursor cannot be read: {error.message}"])
                    document["truth"] = None
            return document

    # -- the whole store ----------------------------------------------------------------------------------------------

    def summary(self) -> summaries.StoreSummary:
        """Return what the store holds, in numbers, where it came from, and the state of every file of entries."""
        with self._session.reader() as reader:
            return summaries.read_summary(reader)

    def overview(self, *, top: Count = 5, check: bool | None = None) -> Overview:
        """Return the whole store in numbers: age of the copy, namespaces, the ``top`` topics and backlogs, what occupies disks.

        ``check`` says whether ``findings`` counts the findings of ``doctor`` (else None); default: unless the store is
        large. Raises InvalidValue, IndexCorrupt.
        """
        tallies = (metric_reports.Totals(top),)
        return self._read_checked(tallies, metric_reports.read_overview, check, "topics and ledgers", "overview")

    def metrics(
        self, *, top: Count = 1000, pattern: str | None = None, delayed: bool = False, check: bool | None = None
    ) -> tuple[metric_reports.Metric, ...]:
        """Return the gauges of ``pulsar-admin metrics``, with name, help and samples; ``check`` is that of ``overview``.

        ``top`` limits the rows of each metric with a topic, among topics that match ``pattern``; ``delayed`` reads the
        headers of their backlogs. Raises InvalidValue, TopicNotFound if none matches.
        """
        rows = metric_reports.Rows(metric_reports.Chosen(top, pattern, delayed))
        if pattern is not None:
            self._session.ask(check_pattern, pattern)
        tallies = (metric_reports.Totals(0), rows)
        return self._read_checked(tallies, metric_reports.read_metrics, check, "topics, ledgers and rows", "metrics")

    def _read_checked(
        self, tallies: Sequence[Tally], read: overviews.Read[Found], check: bool | None, unit: str, label: str
    ) -> Found:
        now, processes = self._session.now, self._session.processes
        with self._session.opened() as store, self._session.progress(None, unit, label) as advance:
            return overviews.read_checked(store, now, tallies, read, check=check, advance=advance, processes=processes)

    def usage(self) -> usages.Usage:
        """Return the disk usage in bytes: ``owners`` (topics), ``files`` with dead bytes, ``disks``; raises IndexCorrupt."""
        with self._session.read() as txn:
            return usages.read_usage(txn)

    def why_bytes(self, *topics: str, top: Count | None = None) -> byte_reasons.WhyBytes:
        """Return why bytes of all files, or of topics, are retained: ``totals`` by reason, and ``held``, the ``top`` largest (None: all).

        Each has ``reason`` (``code``, ``sentence``, ``evidence``, ``command``), ``bytes``, ``percent``, ``topic`` and
        ``subscription``. Raises InvalidValue, TopicNotFound, IndexCorrupt.
        """
        with self._session.reader() as reader:
            names = select_topics(reader.txn, parse_topics(topics)) if topics else None
            return byte_reasons.why_bytes(reader, self._session.now_ms, names, top)

    def check(self, *, deep: bool = False, max_rate: Rate | None = None) -> tuple[Finding, ...]:
        """Return problems (``is_problem``) and notes about files, index, audit log, and metadata against ledgers.

        ``deep`` reads every byte, at most ``max_rate`` of them per second, in this process only. Nothing is repaired. Raises InvalidValue.
        """
        with PACE.limited(max_rate):
            return tuple(iter_check(self._session, deep=deep))

    def doctor(
        self, *, deep: bool = False, each: int = 10, codes: Sequence[str] = (), severities: Sequence[str] = ()
    ) -> tuple[Finding, ...]:
        """Return findings, the worst first: ``severity``, ``evidence``, what is at stake, what a ``broker`` does, and how to ``mend`` it.

        ``deep`` reads every byte; ``each`` limits the findings per code, the rest are summed up; ``codes`` and
        ``severities`` filter. Raises InvalidValue.
        """
        options = diagnosing.DoctorOptions(deep, each, codes, severities)
        with _looking(self._session, "doctor", deep=deep) as look:
            store, now_ms, processes = look.reader.txn.store, self._session.now_ms, self._session.processes
            return tuple(diagnosing.diagnose(store, now_ms=now_ms, options=options, look=look, processes=processes))

    def compare_findings(
        self,
        since: Path | str,
        *,
        deep: bool = False,
        each: int = 10,
        codes: Sequence[str] = (),
        severities: Sequence[str] = (),
    ) -> comparing.FindingComparison:
        """Return as ``changes`` which findings of ``doctor`` are new, worse, gone or not seen since an earlier copy; ``unchanged`` counts.

        ``since`` is another store, at its own time, or a file that ``doctor -o json`` wrote; other options are those of
        ``doctor``. Raises InvalidValue, StoreNotFound, IndexCorrupt.
        """
        options, path = diagnosing.DoctorOptions(deep, each, codes, severities), Path(since)
        comparing.check_earlier(path, self._session.path)
        with _looking(self._session, "doctor", deep=deep) as look:
            now_ms, processes = self._session.now_ms, self._session.processes
            return comparing.compare_with(path, look, options, now_ms, processes, self._session.warn)

    def compare_index(self, *, verify: bool = True) -> RebuildResult:
        """Count the rows (``changed_rows``) by which a location and time index made of the files would differ.

        The store stays unchanged. ``verify`` checks digests. Raises SourceChanged, DiskFull.
        """
        return self._make_index(verify=verify, writes=False)

    def rebuild_index(self, *, verify: bool = True) -> RebuildResult:
        """Rebuild the index from the files, and the owners of ledgers from the metadata, and replace the old ones.

        Calling once more continues an interrupted rebuild. Raises NotWritable, SourceChanged, DiskFull.
        """
        return self._make_index(verify=verify, writes=True)

    def _make_index(self, *, verify: bool, writes: bool) -> RebuildResult:
        size_bytes = self._session.ask(catalogued_bytes)
        with (
            self._session.writing() if writes else self._session.opened() as store,
            self._session.engine([], size_bytes) as engine,
            self._session.progress(size_bytes, "bytes", "index", resumes=writes) as advance,
        ):
            return refreshing.remake_index(store, verify=verify, writes=writes, advance=advance, engine=engine)

    def search(self, *topics: str, **wanted: Unpack[WantedMessages]) -> Messages:
        """Return the messages of topics (default: all) that match everything wanted, as ``Topic.search``.

        Unless columns are named, the column ``topic`` says to which topic each belongs. Raises InvalidValue, and when read TopicNotFound.
        """
        wanted.setdefault("columns", ("topic", *COLUMNS))
        return search_of(self._session, lambda txn: select_topics(txn, parse_topics(topics)), wanted)

    # -- making and undoing changes ------------------------------------------------------------------------------------

    def apply(self, plan: Plan) -> change_reports.ChangeReport:
        """Apply a plan in one transaction, with a row in the audit log, and return its report.

        A plan that changes nothing writes nothing: the report's number is None. Raises StalePlan if the store changed since planning,
        NotWritable if it was opened for reading, and Refused for a plan that writes ledgers while an iteration still reads the store.
        """
        path = None if arguments.given_object("plan", plan, Plan).changes_nothing else self._session.path
        return change_reports.report_of(apply_plan(self._session, plan, checked=True)[0], path)

    def load(
        self,
        dump: Path | str | IO[bytes],
        *,
        topic: str | None = None,
        interceptors: str | None = None,
        keep_ledger_ids: bool = False,
    ) -> Plan:
        """Plan appending the entries of a dump (``dump`` with level entries) to their topics, or to ``topic``; missing ones are created.

        ``dump`` may be a stream of JSON lines, which can be read once: to look at the plan, or to apply it. Entries
        keep their bytes, unless ``interceptors`` (``timestamp,index``) add broker metadata as a broker with these
        would. Raises InvalidValue; previewed or applied NotFound, InvalidValue, Corrupt, Refused, and applied DiskFull.
        """
        name = None if topic is None else parse_topic(topic)
        chain = None if interceptors is None else chains.parse_interceptors(interceptors)
        options = loading.LoadOptions(name, chain, keep_ledger_ids, self._session.clock_ms)
        if isinstance(dump, (Path, str)):
            source = dumps.EntryDump(arguments.given_path("dump", dump))
        elif hasattr(dump, "readline"):
            source = dumps.EntryDump(Path("-"), dump)
        else:
            raise InvalidValue(f"dump {dump!r} is neither a path nor an open file", value=dump)
        progress = partial(self._session.progress, None, "entries", "load")
        with self._session.read() as txn:
            return plan_of(loading.plan_load(txn, self._session.opened, source, options, progress), txn)

    def copy(self, *topics: str, source: Path | str, to: str | None = None) -> Plan:
        """Plan copying topics from another store, a single one under the name ``to``: with subscriptions, partitions and schema.

        The report's warnings name data that is not copied. Raises InvalidValue; previewed or applied TopicNotFound,
        StoreNotFound, AlreadyExists, Refused, InvalidValue, and applied DiskFull.
        """
        names, new = tuple(map(parse_topic, topics)), None if to is None else parse_topic(to)
        request = copying.CopyRequest(Path(source), names, new, self._session.clock_ms)
        with self._session.opened() as store, self._session.read() as txn:
            return plan_of(copying.plan_copy(store, request), txn)

    def create_namespace(self, name: str, *, clusters: Sequence[str] = (), bundles: JavaInt = 0) -> Plan:
        """Plan creating a namespace, by default of the store's cluster, with this number of bundles (0: four).

        Raises TenantNotFound, AlreadyExists, InvalidValue, Refused (a cluster that the tenant may not use).
        """
        return self._planned(resource_changes.plan_create_namespace, parse_namespace(name), clusters, bundles)

    def delete_namespace(self, name: str, *, force: bool = False) -> Plan:
        """Plan deleting a namespace, with ``force`` also its topics; raises NamespaceNotFound, Refused."""
        return self._planned(deleting.plan_delete_namespace, parse_namespace(name), force)

    def create_topic(
        self, name: str, *, partitions: JavaInt | None = None, properties: Mapping[str, str] | None = None
    ) -> Plan:
        """Plan creating a topic, with ``partitions`` a partitioned one; it has no ledger until a broker loads it.

        Raises AlreadyExists, NamespaceNotFound, InvalidValue.
        """
        return self._planned(topic_changes.plan_topic, parse_topic(name), partitions, properties or {})

    def scalable_topics(self, namespace: str, *, properties: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """Return the scalable topics of a namespace, ``topic://…``, that have all of ``properties``.

        Raises NamespaceNotFound, InvalidValue, MetadataCorrupt.
        """
        return self._session.ask(scalable_reports.list_scalable, parse_namespace(namespace), properties or {})

    def create_scalable_topic(
        self, name: str, *, segments: JavaInt = 1, properties: Mapping[str, str] | None = None
    ) -> Plan:
        """Plan creating a scalable topic (Pulsar 5.0); its segments have no ledgers until a broker loads them.

        Raises AlreadyExists, NamespaceNotFound, InvalidValue.
        """
        return self._planned(scalable_changes.plan_create_scalable, parse_scalable(name), segments, properties or {})

    def delete_scalable_topic(self, name: str, *, force: bool = False) -> Plan:
        """Plan deleting a scalable topic with its segments, subscriptions, ledgers and schema, with ``force`` also unreadable ones.

        Raises TopicNotFound, Refused, MetadataCorrupt.
        """
        return self._planned(scalable_changes.plan_delete_scalable, parse_scalable(name), force)

    def create_shadow_topic(self, name: str, source: str, *, properties: Mapping[str, str] | None = None) -> Plan:
        """Plan creating a topic that shows the entries of ``source`` and has subscriptions of its own (PIP-180).

        Raises TopicNotFound, AlreadyExists, NamespaceNotFound, InvalidValue.
        """
        return self._planned(topic_changes.plan_shadow, parse_topic(name), parse_topic(source), properties or {})

    def delete_topics(self, *topics: str, partitioned: bool = False, force: bool = False) -> Plan:
        """Plan deleting topics, or ``partitioned`` ones with their partitions; their subscriptions, ledgers, schemas and policies too.

        ``force`` ignores unreadable parts of the metadata. Raises TopicNotFound, Refused, MetadataCorrupt, InvalidValue.
        """
        broker, now_ms = self._session.moment.interceptors, self._session.clock_ms
        with self._session.reader() as reader:
            check = partial(deleting.check_deletable, reader.txn, partitioned=partitioned, force=force)
            names = list(self._session.each(topics, lambda name: check(parse_topic(name))))
            plan = deleting.plan_delete_topics(reader, names, now_ms, broker, partitioned=partitioned, force=force)
            return plan_of(plan, reader.txn)

    def reset_cursors(
        self,
        lines: Iterable[str | Mapping[str, object]],
        subscription: str | None = None,
        *,
        source: str = "lines",
        rule: resets.ResetRule = "exact",
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
        now_ms = self._session.clock_ms
        broker = cursor_api.broker_of(self._session, broker_version, max_clock_skew, now_ms)
        request = resets.ResetRequest(now_ms, rule, clock, broker, force)
        with self._session.reader() as reader:
            given = arguments.given_items("lines", lines)
            rows = resets.iter_reset_rows(given, source, subscription, partial(self._session.time_ms, changes=True))
            return cursor_api.resets_plan(self._session, reader, resets.resets_of_rows(reader, rows), request)

    def annotate(self, *topics: str, pattern: str | None = None, form: Form = "properties") -> Plan:
        """Plan writing first and last publish time (PIP-345) of closed ledgers of topics (default: all) into their metadata.

        ``pattern`` is a glob of topics. Later searches know the times without reading entries. Raises InvalidValue,
        TopicNotFound, MetadataCorrupt, IndexCorrupt.
        """
        with self._session.read() as txn:
            names = select_topics(txn, parse_topics(topics, pattern))
            return plan_of(topic_changes.plan_annotate(txn, names, form, self._session.clock_ms), txn)

    def plan_undo(self, number: int) -> Plan:
        """Plan restoring the exact bytes from before a change; raises ChangeNotFound, UndoConflict, Refused."""
        return self._planned(lambda reader, now_ms: store_plans.plan_undo(reader.txn, number))

    def undo(self, number: int | change_reports.Change | change_reports.ChangeReport) -> change_reports.ChangeReport:
        """Undo the change with this number, or the one that ``apply`` or ``changes`` returned; undoing is a change of its own.

        Raises as ``plan_undo`` and ``apply``, and InvalidValue for a report without a change.
        """
        given = number.number if isinstance(number, (change_reports.Change, change_reports.ChangeReport)) else number
        if given is None:
            raise InvalidValue("nothing was written, so there is nothing to undo")
        return self.apply(self.plan_undo(given))

    def load_plan(self, path: Path | str) -> Plan:
        """Return the plan in a file, computed again; raises NotFound, InvalidValue, and StalePlan if it differs now."""
        return read_plan_file(self._session, Path(path))

    def changes(self) -> tuple[change_reports.Change, ...]:
        """Return the audit log, oldest first."""
        return tuple(self.change_log())

    def change_log(self, *numbers: int) -> Iterator[change_reports.Change]:
        """Yield the audit log, oldest first, or the numbered changes; raises ChangeNotFound, IndexCorrupt for a damaged record."""
        with self._session.read() as txn:
            undone = read_undoings(txn)
            for row in self._session.each(numbers or change_numbers(txn), partial(read_change, txn)):
                yield change_reports.change_of(row, undone)


def iter_check(session: Session, *, deep: bool) -> Iterator[Finding]:
    """Yield what ``Store.check`` returns."""
    with _looking(session, "check", deep=deep) as look:
        yield from diagnosing.check_store(look.reader.txn.store, deep=deep, look=look)


@contextmanager
def _looking(session: Session, label: str, *, deep: bool) -> Iterator[diagnosing.Look]:
    """Open the reader, engine and progress for diagnosing the whole store."""
    with session.opened() as store, open_reader(store) as reader:
        total, unit = diagnosing.extent_of_look(reader.txn, deep=deep)
        with session.engine([], total if deep else 0) as engine, session.progress(total, unit, label) as advance:
            yield diagnosing.Look(reader, engine, advance)
