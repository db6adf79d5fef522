"""The whole store on one screen: what was copied and when, who has most bytes, whose backlog is worst, what keeps disks full.

One pass over all topics and cursors, memory bounded by the names of namespaces and the rows asked for. Bytes of topics are those of
their ledgers as brokers count them (``storageSize``), without copies; bytes of disks are records with every copy.

The same as metrics for monitoring: gauges with units, bounded in number. Names follow Prometheus' conventions: seconds, bytes, the counted
noun. A topic's own rows are those of the largest, of the subscriptions those with most entries left; a metric says how many are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from heapq import heappush, heapreplace
from math import inf
from typing import Generic, TypeVar

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from pulsar_admin.store.db.blocks import NO_MAX, decode_latest, ledger_of_key
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.own_ledgers import find_own_ledgers
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.facts import Unknown
from pulsar_admin.store.facts.file_sums import DiskTotals, read_disk_totals
from pulsar_admin.store.facts.managed_ledgers import OtherSum, other_ledgers, summed
from pulsar_admin.store.facts.numbers import Blocker, TopicNumbers
from pulsar_admin.store.facts.parts import Counting, parts_of, tally_part, tally_topics
from pulsar_admin.store.facts.topics import SubscriptionFacts, TopicFacts
from pulsar_admin.store.facts.trees import UnknownTree, unknown_trees
from pulsar_admin.store.model.copy_age import Now, read_copied_ms
from pulsar_admin.store.model.counts import DiskBytes, TopicCounts, read_disk_bytes
from pulsar_admin.store.model.cursors import backlog_size_bytes, extent_of, read_topic_cursor
from pulsar_admin.store.model.entry_times import read_entry_time
from pulsar_admin.store.model.ledgers import find_block
from pulsar_admin.store.model.nodes import iter_segments
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.resources import find_cluster_name
from pulsar_admin.store.model.topics import iter_all_namespaces, iter_topics, list_all_tenants, read_topic
from pulsar_admin.store.names import NamespaceName, Position, TopicName, parse_topic
from pulsar_admin.store.sources.roots import roots_of_row
from pulsar_admin.store.wording import Answer, Sparse

TOP = 5
Item = TypeVar("Item")


class CopySource(Sparse, frozen=True):
    """Where a part of the store came from. ``bookies``: their ids, or the directories of those that nothing names; ``roots``: where in
    ZooKeeper's tree the cluster is, None where it has the whole tree."""

    kind: str
    path: str
    mode: str
    imported_ms: int
    bookies: tuple[str, ...]
    roots: str | None = None


class NamespaceTotal(Answer, frozen=True):
    """A namespace in numbers: counts as of ``store.model.counts``; entries and bytes include system topics."""

    namespace: str
    topics: int
    system_topics: int
    subscriptions: int
    compactions: int
    entries: int
    bytes: int
    backlog_entries: int


class TopicTotal(Answer, frozen=True):
    """A topic, or one partition, by its size."""

    topic: str
    ledgers: int
    entries: int
    bytes: int
    subscriptions: int


class Backlog(Answer, frozen=True):
    """A subscription's backlog. ``oldest_source``: where the publish time of its first entry comes from: "index" (all entries of its
    block have that time), "entry" (its header), "block" (the header cannot be read: the earliest time of its block, so the entry is not
    older), "" (it is unknown, or the backlog is empty)."""

    topic: str
    subscription: str
    entries: int
    bytes: int
    oldest_position: Position | None
    oldest_publish_ms: int | None = field(name="oldestPublishTime")
    oldest_age_ms: int | None
    oldest_source: str


class FindingsOfCode(Answer, frozen=True):
    """Findings of one code: how many, and the first of them."""

    severity: str
    code: str
    count: int
    where: str
    message: str
    hint: str


Findings = tuple[FindingsOfCode, ...] | None
"""Those of the doctor; None: nothing was checked."""


class Overview(Answer, frozen=True):
    """The answer of ``overview``. ``findings`` None: nothing was checked. ``held``: bytes of topics by the reason of a ``Blocker``.

    ``clock_ms``: when it was read; ``now_ms``: the time at which ages are counted; ``as_of_source``: its source, of ``SAID_BY``,
    "given" or "clock". ``unreadable``: topics and cursors that cannot be read: they count, and no sum of entries or bytes has them;
    ``unknown_trees``: trees of the metadata that no Pulsar known here writes; ``other_ledgers``: managed ledgers that are no topics here,
    summed up.
    """

    SHOWN = ("topics", "subscriptions", "entries", "bytes", "backlog_entries", "findings")

    store: str
    clock_ms: int = field(name="askedAt")
    now_ms: int = field(name="asOf")
    as_of_source: str
    copies: tuple[CopySource, ...]
    copied_ms: int = field(name="copiedAt")
    newest_entry_ms: int | None = field(name="newestEntryTime")
    tenants: int
    namespaces: tuple[NamespaceTotal, ...]
    topics: int
    system_topics: int
    subscriptions: int
    compactions: int
    entries: int
    bytes: int
    backlog_entries: int
    unreadable: int
    largest: tuple[TopicTotal, ...]
    backlogs: tuple[Backlog, ...]
    held: dict[str, int]
    blockers: tuple[Blocker, ...]
    disk: DiskTotals
    disk_bytes: DiskBytes = field(name="diskBytes")
    findings: Findings
    unknown_trees: tuple[UnknownTree, ...]
    other_ledgers: OtherSum = field(name="otherManagedLedgers")

    @property
    def copy_age_ms(self) -> int:
        """Time since the last import or refresh."""
        return self.clock_ms - self.copied_ms

    @property
    def as_of_text(self) -> str:
        """The time that ages are counted at, how old that is, and its source."""
        return Now(self.now_ms, self.as_of_source, self.clock_ms).text()


class Largest(Generic[Item]):
    """The ``count`` items with the largest weights; among equal weights, the first ones."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._heap: list[tuple[int, int, Item]] = []
        self._added = 0
        self.least: float = 0 if count else inf
        """An item of a weight above this is among the largest so far."""

    def add(self, weight: int, item: Item) -> None:
        """Keep an item if its weight is among the largest so far; never if it is 0."""
        self._added -= 1
        if weight > self.least:  # of few
            replace = heappush if len(self._heap) < self._count else heapreplace
            replace(self._heap, (weight, self._added, item))
            self.least = self._heap[0][0] if len(self._heap) == self._count else 0

    def merge(self, later: Largest[Item]) -> None:
        """Add the items of ``later``, which come after these."""
        seen = self.seen
        for weight, added, item in sorted(later._heap, key=lambda row: -row[1]):
            self._added = added - seen + 1
            self.add(weight, item)
        self._added = -(seen + later.seen)

    @property
    def seen(self) -> int:
        """How many items with a weight were added."""
        return -self._added

    def items(self) -> tuple[Item, ...]:
        """Return the kept items, the largest first."""
        return tuple(item for _, _, item in sorted(self._heap, key=lambda row: row[:2], reverse=True))


def read_overview(
    reader: EntryReader,
    now: Now,
    findings: Findings,
    counting: Counting,
    processes: int,
    advance: Callable[[int], None],
) -> Overview:
    """Return the overview of a store at ``now``. ``counting``: its first tally is ``Totals``; if it is not done, topics are counted here.

    ``processes``: how many others count, where there are very many topics (``processes_that_pay``); ``advance`` gets the topics and
    ledgers looked at. A topic or cursor that cannot be read is counted, not raised. Raises IndexCorrupt for rows of the index that cannot.
    """
    txn, store = reader.txn, reader.txn.store
    totals = _count_all(reader, counting, processes, advance)
    namespaces = totals.namespace_totals()
    copies = []
    for source in store.info.sources:
        # A bookie by its id, or by the first of its directories; sources of earlier versions name a directory alone.
        bookies = (
            row.get("id") or str((row.get("ledgers") or [""])[0]) if isinstance(row, dict) else str(row)
            for row in source.get("bookies", ())
        )
        roots = roots_of_row(source)
        copies.append(
            CopySource(
                source["kind"],
                str(source.get("path", "")),
                source.get("mode", ""),
                source.get("imported", 0),
                tuple(bookies),
                None if roots.is_whole else str(roots),
            )
        )
    return Overview(
        store=str(store.path),
        clock_ms=now.clock_ms,
        now_ms=now.time_ms,
        as_of_source=now.source,
        copies=tuple(copies),
        copied_ms=read_copied_ms(txn),
        newest_entry_ms=read_newest_ms(txn),
        tenants=len(list_all_tenants(txn)),
        namespaces=namespaces,
        **{name: sum(getattr(row, name) for row in namespaces) for name in NamespaceTotal.__struct_fields__[1:]},
        unreadable=totals.unreadable,
        largest=totals.largest.items(),
        backlogs=tuple(read_backlog(_facts_of(reader, *names, now.time_ms)) for names in totals.backlogs.items()),
        held=dict(totals.held),
        blockers=totals.blockers.items(),
        disk=read_disk_totals(txn, totals.top, advance),
        disk_bytes=read_disk_bytes(txn),
        findings=findings,
        unknown_trees=unknown_trees(txn),
        other_ledgers=summed(other_ledgers(txn)),
    )


def read_newest_ms(txn: Txn) -> int | None:
    """Return the newest time of an entry that brokers wrote, by their clock where entries carry it; raises IndexCorrupt."""
    own = find_own_ledgers(txn)
    rows = ((ledger_of_key(key), row) for key, row in txn.items("times"))
    theirs = ((ledger_id, row) for ledger_id, row in rows if own is None or not own.first_id <= ledger_id < own.next_id)
    newest = max((decode_latest(ledger_id, row, "auto") for ledger_id, row in theirs), default=NO_MAX)
    return None if newest == NO_MAX else newest


# -- one pass over all topics -----------------------------------------------------------------------------------------


_NONE = TopicCounts()


class _Sums(Struct):
    counts: TopicCounts = _NONE
    entries: int = 0
    bytes: int = 0
    backlog_entries: int = 0


class Totals:
    """The sums of a pass over all topics."""

    def __init__(self, top: int) -> None:
        self.top = top
        self.unreadable = 0
        self.namespaces: dict[NamespaceName, _Sums] = {}
        self.largest: Largest[TopicTotal] = Largest(top)
        self.backlogs: Largest[tuple[str, str]] = Largest(top)
        self.blockers: Largest[Blocker] = Largest(top)
        self.held: Counter[str] = Counter()

    def add(self, numbers: TopicNumbers) -> None:
        """Add a topic with all its cursors; cursors that cannot be read are only counted."""
        self.unreadable += numbers.unreadable
        name, where, size_bytes = numbers.name, numbers.where, numbers.size_bytes
        sums = self.namespaces.get(name.namespace)
        if sums is None:
            sums = self.namespaces[name.namespace] = _Sums()
        sums.counts = sums.counts.of(name, numbers.cursors)
        sums.entries += numbers.entries
        sums.bytes += size_bytes
        if not numbers.entries:
            return
        if size_bytes > self.largest.least:
            self.largest.add(
                size_bytes, TopicTotal(where, numbers.ledgers, numbers.entries, size_bytes, len(numbers.backlogs))
            )
        for subscription, entries in numbers.backlogs:
            sums.backlog_entries += entries
            self.backlogs.add(entries, (where, subscription))
        for blocker in numbers.blockers:
            self.held[blocker.reason] += blocker.bytes
            if blocker.reason != "trim":
                self.blockers.add(blocker.bytes, blocker)

    def add_unreadable(self, name: TopicName, cursors: Iterable[str]) -> None:
        """Add a topic that cannot be read, with the names of its cursors."""
        self.unreadable += 1
        sums = self.namespaces.setdefault(name.namespace, _Sums())
        sums.counts = sums.counts.of(name, cursors)

    def merge(self, later: Totals) -> None:
        """Add the sums of ``later``, whose topics come after these."""
        self.unreadable += later.unreadable
        for namespace, more in later.namespaces.items():
            sums = self.namespaces.setdefault(namespace, _Sums())
            sums.counts += more.counts
            sums.entries += more.entries
            sums.bytes += more.bytes
            sums.backlog_entries += more.backlog_entries
        self.largest.merge(later.largest)
        self.backlogs.merge(later.backlogs)
        self.blockers.merge(later.blockers)
        self.held.update(later.held)

    def namespace_totals(self) -> tuple[NamespaceTotal, ...]:
        """Return the namespaces, those with most bytes first."""
        rows = [
            NamespaceTotal(
                namespace=str(name),
                **asdict(sums.counts),
                entries=sums.entries,
                bytes=sums.bytes,
                backlog_entries=sums.backlog_entries,
            )
            for name, sums in self.namespaces.items()
        ]
        return tuple(sorted(rows, key=lambda row: (-row.bytes, row.namespace)))


def _count_all(reader: EntryReader, counting: Counting, processes: int, advance: Callable[[int], None]) -> Totals:
    """Count all topics, unless ``counting`` is done, and return the totals."""
    txn, tallies, now_ms = reader.txn, counting.tallies, counting.now_ms
    totals = tallies[0]
    assert isinstance(totals, Totals)
    for namespace in iter_all_namespaces(txn):
        totals.namespaces.setdefault(namespace, _Sums())
    if not counting.is_done and processes:
        from pulsar_admin.store.facts.processes import Spread  # of few stores

        parts = parts_of(txn, now_ms, counting)
        with Spread(reader, tally_part, parts, processes) as results:
            for part, tallied in zip(parts, results, strict=True):
                counting.add(tallied)
                advance(part.count(txn))
        counting.end()
    elif not counting.is_done:
        tally_topics(reader, iter_topics(txn), tallies, now_ms, advance)
    tally_topics(reader, iter_segments(txn), tallies, now_ms, advance)
    return totals


# -- the age of a backlog ---------------------------------------------------------------------------------------------


def _facts_of(reader: EntryReader, topic: str, subscription: str, now_ms: int) -> SubscriptionFacts:
    """Return the facts of a subscription; raises TopicNotFound, SubscriptionNotFound, Corrupt."""
    found, cursor = read_topic_cursor(reader, parse_topic(topic), subscription)
    return SubscriptionFacts(TopicFacts(reader, found, now_ms), cursor)


def read_backlog(facts: SubscriptionFacts) -> Backlog:
    """Return the backlog of a subscription, with the age of its first entry; raises the errors of reading its ``facts``."""
    position, mark_delete = facts.oldest, facts.cursor.mark_delete
    oldest_ms, source = (None, "") if position is None else find_publish_ms(facts.of.reader, position)
    return Backlog(
        facts.of.where,
        facts.cursor.name,
        facts.pending_entries,
        backlog_size_bytes(facts.of.topic, mark_delete),
        position,
        oldest_ms,
        None if oldest_ms is None else facts.of.now_ms - oldest_ms,
        source,
    )


def find_publish_ms(reader: EntryReader, position: Position) -> tuple[int | None, str]:
    """Return the publish time of an entry and its source (``Backlog.oldest_source``); None if it is unknown."""
    try:
        block = find_block(reader.txn, position.ledger_id, position.entry_id)
    except StoreError:
        block = None  # `store check` tells
    index = 0 if block is None else block.index_of(position.entry_id)
    if block is None or index >= len(block) or block.entry_id(index) != position.entry_id:
        return None, ""
    header = block.header
    if header.publish_min_ms == header.publish_max_ms and not header.unframed:
        return header.publish_min_ms, "index"
    try:
        time_ms = read_entry_time(reader, position, "publish")
    except StoreError:
        return (header.publish_min_ms, "block") if header.publish_min_ms <= header.publish_max_ms else (None, "")
    return (None, "") if time_ms is None else (time_ms, "entry")


# -- metrics -----------------------------------------------------------------------------------------------------------

PREFIX = "pulsar_offline_"
TOP_ROWS = 1000
Labels = tuple[tuple[str, str], ...]


class MetricSample(Answer, frozen=True):
    """One value of a metric, and the labels that distinguish it from the others."""

    labels: Mapping[str, str]
    value: int | float


class Metric(Answer, frozen=True):
    """A gauge: its name with its unit, its help text, and its values."""

    name: str
    help: str
    samples: tuple[MetricSample, ...]


class Chosen(Struct, frozen=True):
    """Which rows metrics have: at most ``top`` per metric with a topic, of topics that match ``pattern`` (a glob; None: all).

    ``delayed``: also read the headers of the chosen backlogs, and count the delayed messages.
    """

    top: int
    pattern: str | None
    delayed: bool = False


class Rows:
    """The topics and subscriptions that get rows of their own: the largest; empty ones are chosen last."""

    def __init__(self, chosen: Chosen) -> None:
        self.chosen = chosen
        self.subscriptions: Largest[tuple[str, str]] = Largest(chosen.top)
        self.topics: Largest[tuple[str, int]] = Largest(chosen.top)
        self.compacted: Largest[tuple[str, int]] = Largest(chosen.top)

    def add(self, numbers: TopicNumbers) -> None:
        """Add a topic and its subscriptions if its name matches."""
        name = numbers.where
        short = name.removeprefix("persistent://")
        pattern = self.chosen.pattern
        if pattern and not (fnmatchcase(name, pattern) or fnmatchcase(short, pattern)):
            return
        self.topics.add(1 + numbers.size_bytes, (name, numbers.size_bytes))
        for subscription, entries in numbers.backlogs:
            self.subscriptions.add(1 + entries, (name, subscription))
        if numbers.compacted is not None:
            self.compacted.add(1 + numbers.entries - numbers.compacted, (name, numbers.compacted))

    def add_unreadable(self, name: TopicName, cursors: Iterable[str]) -> None:
        """A topic that cannot be read has no rows."""

    def merge(self, later: Rows) -> None:
        """Add the rows of ``later``, whose topics come after these."""
        self.subscriptions.merge(later.subscriptions)
        self.topics.merge(later.topics)
        self.compacted.merge(later.compacted)

    def left_out(self) -> int:
        """Return how many rows match but are not among the largest."""
        return sum(rows.seen - len(rows.items()) for rows in (self.subscriptions, self.topics, self.compacted))


def read_metrics(
    reader: EntryReader,
    now: Now,
    findings: Findings,
    counting: Counting,
    processes: int,
    advance: Callable[[int], None],
) -> tuple[Metric, ...]:
    """Return the metrics of a store at ``now``; ``counting``: with ``Totals`` and ``Rows``; ``advance`` also gets the rows looked at.

    Other parameters and the errors are those of ``read_overview``.
    """
    rows = counting.tallies[1]
    assert isinstance(rows, Rows)
    overview = read_overview(reader, now, findings, counting, processes, advance)
    lag_entries: list[tuple[Labels, int]] = []
    lag_bytes: list[tuple[Labels, int]] = []
    for name, place in rows.compacted.items():
        topic = read_topic(reader.txn, parse_topic(name))
        since = extent_of(reader.txn, topic, ((place, topic.number_of_entries),))
        lag_entries.append(((("topic", name),), since.entries))
        lag_bytes.append(((("topic", name),), since.bytes))
    metrics = (
        *_of_overview(overview),
        _metric("topic_storage_bytes", "Bytes of the topic's ledgers, as brokers count them.", (
            ((("topic", name),), size_bytes) for name, size_bytes in rows.topics.items())),
        *_of_subscriptions(reader, rows, now.time_ms, advance),
        _metric("compaction_lag_entries", "Entries after the last compaction of the topic.", lag_entries),
        _metric("compaction_lag_bytes", "Payload bytes after the last compaction of the topic.", lag_bytes),
        _metric("rows_left_out", "Topics and subscriptions that match and have no rows of their own, see --top.", [((), rows.left_out())]),
    )  # fmt: skip
    cluster = find_cluster_name(reader.txn)
    of_cluster = {} if cluster is None else {"cluster": cluster}
    return tuple(
        replace(metric, samples=tuple(replace(one, labels={**of_cluster, **one.labels}) for one in metric.samples))
        for metric in metrics
    )


def _metric(name: str, text: str, samples: Iterable[tuple[Labels, int | float]]) -> Metric:
    return Metric(PREFIX + name, text, tuple(MetricSample(dict(labels), value) for labels, value in samples))


def _of_overview(found: Overview) -> Iterator[Metric]:
    # -- the copy
    for name, text, time_ms in (
        (
            "copy_age_seconds",
            "Age of the copy when this was written: since the last import or refresh.",
            found.copy_age_ms,
        ),
        ("copy_timestamp_seconds", "When the copy was made or last refreshed.", found.copied_ms),
        ("as_of_timestamp_seconds", "The time that ages and due messages count from.", found.now_ms),
    ):
        yield _metric(name, text, [((), time_ms / 1000)])
    said = "Newest time of an entry in the copy, the broker's if entries have one."
    newest_ms = found.newest_entry_ms
    yield _metric("newest_entry_timestamp_seconds", said, [] if newest_ms is None else [((), newest_ms / 1000)])
    said = "Topics and cursors that cannot be read: no metric of entries or bytes has them."
    yield _metric("unreadable", said, [((), found.unreadable)])

    # -- namespaces
    for name, text, column in (
        ("topics", "Topics of the namespace, partitions counted one by one.", "topics"),
        ("system_topics", "Topics of the namespace that brokers keep for themselves.", "system_topics"),
        ("subscriptions", "Subscriptions of the namespace's topics, without those of compaction.", "subscriptions"),
        ("storage_bytes", "Bytes of the namespace's ledgers, as brokers count them.", "bytes"),
        ("backlog_entries", "Entries not yet acknowledged, of all subscriptions of the namespace.", "backlog_entries"),
    ):
        samples = (((("namespace", row.namespace),), getattr(row, column)) for row in found.namespaces)
        yield _metric(f"namespace_{name}", text, samples)

    # -- disks
    said = "Bytes of topics by what retains them (cursor, retention, retention-unknown, open-ledger); trim: can be deleted."
    held = sorted(found.held.items())
    yield _metric("kept_bytes", said, (((("reason", reason),), size_bytes) for reason, size_bytes in held))
    said = "Bytes of the files of bookies by kind, every copy: leftovers are those of compactions that did not end."
    sizes = found.disk_bytes
    kinds = (("entry-log", sizes.entry_logs), ("journal", sizes.journals), ("leftover", sizes.leftovers))
    yield _metric("disk_bytes", said, (((("kind", kind),), size) for kind, size in kinds if size is not None))
    disk = found.disk
    for name, text, value in (
        ("entry_logs", "Entry logs of the copy.", disk.files),
        ("entry_log_bytes", "Bytes of all entry logs.", disk.size_bytes),
        ("entry_log_live_bytes", "Record bytes of ledgers that have metadata, every copy.", disk.live_bytes),
        ("entry_log_dead_bytes", "Record bytes of ledgers without metadata, every copy.", disk.dead_bytes),
        ("entry_log_stuck_bytes", "Dead bytes in logs that also hold live ledgers: only compaction frees them.", disk.stuck_bytes),
        ("entry_log_freeable_bytes", "Bytes of logs without anything alive, which garbage collection deletes.", disk.freed_bytes),
    ):  # fmt: skip
        yield _metric(name, text, [((), value)])

    # -- findings
    counts = found.findings or ()
    severities = dict.fromkeys(("critical", "warning", "note"), 0) if found.findings is not None else {}
    for row in counts:
        severities[row.severity] = severities.get(row.severity, 0) + row.count
    by_severity = (((("severity", severity),), count) for severity, count in severities.items())
    yield _metric("findings", "Findings of the doctor in the copy, by severity.", by_severity)
    by_code = (((("severity", row.severity), ("code", row.code)), row.count) for row in counts)
    yield _metric("findings_by_code", "Findings of the doctor in the copy, by code.", by_code)


def _of_subscriptions(reader: EntryReader, rows: Rows, now_ms: int, advance: Callable[[int], None]) -> Iterator[Metric]:
    entries, sizes, ages, delayed, due = [], [], [], [], []
    for topic, subscription in rows.subscriptions.items():
        labels = (("topic", topic), ("subscription", subscription))
        facts = _facts_of(reader, topic, subscription, now_ms)
        backlog = read_backlog(facts)
        entries.append((labels, backlog.entries))
        sizes.append((labels, backlog.bytes))
        if not backlog.entries or backlog.oldest_source in ("index", "entry"):
            ages.append((labels, (backlog.oldest_age_ms or 0) / 1000))
        if rows.chosen.delayed:
            with suppress(StoreError):  # of rows that are altered there is no count
                delays = facts.delays
                if not isinstance(delays, Unknown):  # nor of files that are gone
                    delayed.append((labels, 0 if delays is None else delays.not_due.entries))
                    due.append((labels, 0 if delays is None else delays.due))
        advance(1)
    yield _metric("subscription_backlog_entries", "Entries that the subscription has not acknowledged.", entries)
    yield _metric("subscription_backlog_bytes", "Size of the backlog, as brokers estimate it.", sizes)
    yield _metric(
        "subscription_oldest_unacknowledged_age_seconds",
        "Age of the first entry not acknowledged, by its publish time; 0 without one.",
        ages,
    )
    if rows.chosen.delayed:
        yield _metric("subscription_delayed_entries", "Entries of the backlog that wait for their time.", delayed)
        yield _metric("subscription_delayed_due_entries", "Delayed entries of the backlog whose time has come.", due)
