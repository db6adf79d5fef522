"""A store as metrics for monitoring: gauges with units, bounded in number.

Names follow Prometheus' conventions: seconds, bytes, the counted noun. A topic's own rows are those of the largest, of the subscriptions
those with most entries left; a metric says how many are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.cursor import CursorState
from pulsar_admin.store.db.environment import Store
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.facts.backlogs import read_contents
from pulsar_admin.store.facts.numbers import TopicNumbers
from pulsar_admin.store.facts.parts import Counting
from pulsar_admin.store.model.cursors import extent_of, pending_intervals, read_cursor
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.resources import find_cluster_name
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import TopicName, parse_topic
from pulsar_admin.store.policies.in_force import find_delivery
from pulsar_admin.store.reports.overview import (
    FindingsOfCode,
    Largest,
    Overview,
    Totals,
    Wanted,
    read_backlog,
    read_overview,
)
from pulsar_admin.store.wording import Answer

PREFIX = "pulsar_offline_"
TOP_ROWS = 1000
Labels = tuple[tuple[str, str], ...]


class MetricSample(Answer, frozen=True):
    """One value and the labels that tell it from the others of its metric."""

    labels: Mapping[str, str]
    value: int | float


class Metric(Answer, frozen=True):
    """A gauge: its name with its unit, what it says, and its values."""

    name: str
    help: str
    samples: tuple[MetricSample, ...]


class Chosen(Struct, frozen=True):
    """Which rows are given: at most ``top`` of each metric with a topic, of topics that match ``pattern`` (a glob; None: all).

    ``delayed``: read the headers of the chosen backlogs, and count what waits for its time.
    """

    top: int = TOP_ROWS
    pattern: str | None = None
    delayed: bool = False


class Rows:
    """The topics and subscriptions that have rows of their own; an empty one weighs least, but also has a row."""

    def __init__(self, chosen: Chosen) -> None:
        self._chosen = chosen
        self.subscriptions: Largest[tuple[str, str]] = Largest(chosen.top)
        self.topics: Largest[tuple[str, int]] = Largest(chosen.top)
        self.compacted: Largest[tuple[str, int]] = Largest(chosen.top)
        self._pattern = chosen.pattern

    def add(self, numbers: TopicNumbers) -> None:
        """Take a topic, if its name matches."""
        name = numbers.where
        short = name.removeprefix("persistent://")
        if self._pattern and not (fnmatchcase(name, self._pattern) or fnmatchcase(short, self._pattern)):
            return
        self.topics.add(1 + numbers.size_bytes, (name, numbers.size_bytes))
        for subscription, entries in numbers.backlogs:
            self.subscriptions.add(1 + entries, (name, subscription))
        if numbers.compacted is not None:
            self.compacted.add(1 + numbers.entries - numbers.compacted, (name, numbers.compacted))

    def add_unreadable(self, name: TopicName, cursors: Iterable[str]) -> None:
        """A topic that cannot be read has no rows."""

    def fresh(self) -> Rows:
        """Return one that takes the same, and has nothing yet."""
        return Rows(self._chosen)

    def merge(self, later: Rows) -> None:
        """Take the rows of ``later``, whose topics come after these."""
        self.subscriptions.merge(later.subscriptions)
        self.topics.merge(later.topics)
        self.compacted.merge(later.compacted)

    def left_out(self) -> int:
        """Return how many rows that match are not among the largest."""
        return sum(rows.seen - len(rows.items()) for rows in (self.subscriptions, self.topics, self.compacted))


def read_metrics(
    store: Store,
    reader: EntryReader,
    wanted: Wanted,
    chosen: Chosen,
    findings: tuple[FindingsOfCode, ...] | None,
    advance: Callable[[int], None],
    counting: Counting | None,
    processes: int,
) -> tuple[Metric, ...]:
    """Return the metrics of ``store``; ``advance`` gets the topics, ledgers and rows looked at. ``counting``: with ``Totals`` and ``Rows``;
    it and ``processes`` are those of ``read_overview``.

    A topic or cursor that cannot be read is counted. Raises IndexCorrupt.
    """
    counting = counting or Counting((Totals(wanted.top), Rows(chosen)), wanted.now_ms)
    rows = counting.tallies[1]
    assert isinstance(rows, Rows)
    overview = read_overview(store, reader, wanted, findings, advance, counting, processes)
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
        *_of_subscriptions(reader, rows, wanted, chosen, advance),
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
    for name, text, field in (
        ("topics", "Topics of the namespace, partitions counted one by one.", "topics"),
        ("system_topics", "Topics of the namespace that brokers keep for themselves.", "system_topics"),
        ("subscriptions", "Subscriptions of the namespace's topics, without those of compaction.", "subscriptions"),
        ("storage_bytes", "Bytes of the namespace's ledgers, as brokers count them.", "bytes"),
        ("backlog_entries", "Entries not yet acknowledged, of all subscriptions of the namespace.", "backlog_entries"),
    ):
        samples = (((("namespace", row.namespace),), getattr(row, field)) for row in found.namespaces)
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


def _of_subscriptions(
    reader: EntryReader, rows: Rows, wanted: Wanted, chosen: Chosen, advance: Callable[[int], None]
) -> Iterator[Metric]:
    entries, sizes, ages, delayed, due = [], [], [], [], []
    for topic, subscription in rows.subscriptions.items():
        labels = (("topic", topic), ("subscription", subscription))
        backlog = read_backlog(reader, topic, subscription, wanted.now_ms)
        entries.append((labels, backlog.entries))
        sizes.append((labels, backlog.bytes))
        if not backlog.entries or backlog.oldest_source in ("index", "entry"):
            ages.append((labels, (backlog.oldest_age_ms or 0) / 1000))
        if chosen.delayed:
            with suppress(StoreError):  # of files that are gone there is no count
                waiting, over = _read_delays(reader, topic, subscription, wanted.now_ms)
                delayed.append((labels, waiting))
                due.append((labels, over))
        advance(1)
    yield _metric("subscription_backlog_entries", "Entries that the subscription has not acknowledged.", entries)
    yield _metric("subscription_backlog_bytes", "Size of the backlog, as brokers estimate it.", sizes)
    yield _metric(
        "subscription_oldest_unacknowledged_age_seconds",
        "Age of the first entry not acknowledged, by its publish time; 0 without one.",
        ages,
    )
    if chosen.delayed:
        yield _metric("subscription_delayed_entries", "Entries of the backlog that wait for their time.", delayed)
        yield _metric("subscription_delayed_due_entries", "Delayed entries of the backlog whose time has come.", due)


def _read_delays(reader: EntryReader, name: str, subscription: str, now_ms: int) -> tuple[int, int]:
    """Return how many entries of a backlog wait for their time, and of how many it has come; none where delays are disabled.

    Entries that cannot be read are in neither. Raises SourceChanged, EntryLogCorrupt, MetadataCorrupt.
    """
    topic = read_topic(reader.txn, parse_topic(name))
    state: CursorState = read_cursor(reader.txn, reader, topic, subscription).state
    in_force = find_delivery(reader.txn, topic.name)
    intervals = pending_intervals(topic, state)
    if not intervals or (in_force is not None and not in_force.delivery.active):
        return 0, 0
    contents = read_contents(reader, topic, intervals, now_ms)
    return contents.not_due.entries, contents.due
