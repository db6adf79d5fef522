"""Collecting the page's data in one pass over the topics, in bounded memory; entries are read for a few topics only.

Data that the page leaves out is counted: topics beyond ``Limits.topics``, subscriptions beyond ``Limits.strips``,
traffic of all but the largest topics.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.columns import size_text
from pulsar_admin.page.values import Due, Fact, Page, Rest, Share, Standing, TopicRow
from pulsar_admin.store.aliases import Array
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.facts.file_sums import DiskTotals, read_disk_totals
from pulsar_admin.store.facts.topics import SubscriptionFacts, TopicFacts
from pulsar_admin.store.model.counts import DiskBytes, TopicCounts, read_disk_bytes, subscriptions_of
from pulsar_admin.store.model.cursors import backlog_entries, iter_cursor_names, read_topic_cursor
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.resources import list_clusters
from pulsar_admin.store.model.topics import iter_all_topics, read_topic
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.policies.in_force import find_delivery
from pulsar_admin.store.reports.cursor_timeline import delayed_ranks, make_strip
from pulsar_admin.store.reports.overview import Largest, find_publish_ms
from pulsar_admin.store.reports.timeline import Timeline, TimelineOptions, choose_bucket_ms, read_timeline, usual_range
from pulsar_admin.store.rules.finding import Finding

_DUE_BARS_MAX = 120
_SIZE_BITS = 64  # topics with findings come before all others


class Limits(Struct, frozen=True):
    """The most items to show. ``scanned``: the most backlog entries to read for delayed messages."""

    topics: int = 10_000
    strips: int = 40
    traffic: int = 8
    due: int = 8
    scanned: int = 2_000_000


class _Found(Struct):
    """A topic that may be shown. ``oldest``: the first backlog entry of the subscription with the largest backlog."""

    row: TopicRow
    oldest: Position | None
    done_bytes: int

    @property
    def sums(self) -> Rest:
        """The topic's contribution to sums over topics."""
        row = self.row
        return Rest(1, row.entries, row.size_bytes, self.done_bytes, row.backlog_entries)


class _Waits(Struct, frozen=True):
    """A subscription and the due times of its delayed messages."""

    topic: str
    subscription: str
    times: Array


class _Collector:
    def __init__(self, reader: EntryReader, now_ms: int, limits: Limits, findings: Counter[str]) -> None:
        self.reader = reader
        self.now_ms = now_ms
        self.limits = limits
        self.findings = findings
        self.topics: Largest[_Found] = Largest(limits.topics)
        self.namespaces: dict[str, Rest] = defaultdict(Rest)
        self.counts = TopicCounts()
        self.worst: Largest[tuple[str, str]] = Largest(limits.strips)
        self.with_backlog = 0
        self.backlog_entries = 0
        self.busiest: Largest[str] = Largest(limits.traffic)
        self.unread: list[str] = []

    def add_all(self, advance: Callable[[int], None]) -> None:
        for name in iter_all_topics(self.reader.txn):
            try:
                self.add(TopicFacts(self.reader, read_topic(self.reader.txn, name), self.now_ms))
            except StoreError as error:
                self.unread.append(f"{name}: {error.message}")
                self.counts = self.counts.of(name, iter_cursor_names(self.reader.txn, name))
            advance(1)

    def add(self, facts: TopicFacts) -> None:
        topic = facts.topic
        own = subscriptions_of(topic, sorted(facts.cursors, key=lambda cursor: cursor.name))
        backlogs = {cursor.name: backlog_entries(topic, cursor.state) for cursor in own}
        worst = max(own, key=lambda cursor: backlogs[cursor.name], default=None)
        name, entries = str(topic.name), topic.number_of_entries
        row = TopicRow(
            namespace=str(topic.name.namespace),
            name=name.rpartition(f"{topic.name.namespace}/")[2],
            entries=entries,
            size_bytes=topic.total_size_bytes,
            ledgers=len(topic.ledgers),
            subscriptions=len(own),
            backlog_entries=sum(backlogs.values()) and max(backlogs.values()),
            worst=worst.name if worst is not None and backlogs[worst.name] else "",
            findings=self.findings[name],
        )
        # Of the ledgers that no cursor needs; one that cannot be read may need all of them.
        done_bytes = sum(ledger.size_bytes for ledger in topic.ledgers[: facts.consumed[0]])
        oldest = None if worst is None else SubscriptionFacts(facts, worst).oldest
        standing = _Found(row, oldest, done_bytes)
        self.namespaces[row.namespace] += standing.sums
        self.counts = self.counts.of(topic.name, (cursor for cursor, _ in facts.cursor_readings))
        self.unread += [
            f"{name} {cursor}: {error.message}"
            for cursor, error in facts.cursor_readings
            if isinstance(error, StoreError)
        ]
        self.backlog_entries += sum(backlogs.values())
        self.topics.add((row.findings << _SIZE_BITS) + row.size_bytes + 1, standing)
        if entries:
            self.busiest.add(row.size_bytes, name)
            for cursor in own:
                ranges = len(cursor.state.ranges)
                if backlogs[cursor.name] or ranges:
                    self.with_backlog += 1
                    self.worst.add(backlogs[cursor.name] + 1, (name, cursor.name))

    def all(self) -> Rest:
        """Return the sums of all topics."""
        return sum(self.namespaces.values(), Rest())

    def left(self, shown: Iterable[_Found]) -> dict[str, Rest]:
        """Return the sums of topics that are not in ``shown``, by namespace."""
        left = dict(self.namespaces)
        for found in shown:
            left[found.row.namespace] -= found.sums
        return {name: sums for name, sums in left.items() if sums.count}


def collect_page(
    reader: EntryReader,
    findings: Iterable[Finding],
    now_ms: int,
    limits: Limits | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> Page:
    """Return the page's data, with a list of parts that could not be read; ``advance`` is called for each topic."""
    findings = tuple(findings)
    collector = _Collector(reader, now_ms, limits or Limits(), Counter(map(_topic_of, findings)))
    collector.add_all(advance)
    standings, due = _standings(collector)
    traffic = tuple(_traffic(collector))
    rows = collector.topics.items()
    left = collector.left(rows)
    disk = DiskTotals()
    try:
        disk = read_disk_totals(reader.txn, 0)
    except StoreError as error:
        collector.unread.append(f"bytes of entry logs: {error.message}")
    return Page(
        title="Doctor",
        source=str(reader.txn.store.path),
        now_ms=now_ms,
        clusters=tuple(list_clusters(reader.txn)),
        facts=tuple(_facts(collector, due, read_disk_bytes(reader.txn))),
        findings=findings,
        disk=disk,
        shares=tuple(_shares(rows, left)),
        standings=tuple(standings),
        standings_rest=_other_standings(collector, standings),
        traffic=traffic,
        traffic_rest=_other_traffic(collector, traffic),
        due=tuple(_charts_of_due(due, collector.limits.due)),
        due_rest=Rest(
            max(len(due) - collector.limits.due, 0), sum(len(one.times) for one in due[collector.limits.due :])
        ),
        topics=tuple(_with_age(reader, one) for one in rows),
        topics_rest=sum(left.values(), Rest()),
        rest_by_namespace=left,
        unread=tuple(collector.unread),
    )


def _topic_of(finding: Finding) -> str:
    """Return the topic that a finding is about, "" if it is about none."""
    named = finding.evidence.get("topic")
    if isinstance(named, str):
        return named
    _, scheme, name = finding.where.partition("persistent://")
    return f"{scheme}{name.partition(' ')[0]}"


def _other_standings(found: _Collector, standings: Sequence[Standing]) -> Rest:
    shown = sum(standing.strip.backlog_entries for standing in standings)
    return Rest(found.with_backlog - len(standings), backlog_entries=found.backlog_entries - shown)


def _other_traffic(found: _Collector, traffic: Sequence[Timeline]) -> Rest:
    shown = {str(one.topic) for one in traffic}
    rows = [one.row for one in found.topics.items() if f"persistent://{one.row.namespace}/{one.row.name}" in shown]
    everything = found.all()
    return Rest(
        everything.count - len(traffic),
        everything.entries - sum(row.entries for row in rows),
        everything.size_bytes - sum(row.size_bytes for row in rows),
    )


def _with_age(reader: EntryReader, found: _Found) -> TopicRow:
    return replace(found.row, oldest_ms=_publish_ms(reader, found.oldest))


def _publish_ms(reader: EntryReader, position: Position | None) -> int | None:
    return None if position is None else find_publish_ms(reader, position)[0]


def _shares(rows: Iterable[_Found], left: Mapping[str, Rest]) -> Iterator[Share]:
    for one in rows:
        tenant, _, space = one.row.namespace.partition("/")
        if one.row.size_bytes:
            yield Share(tenant, space, one.row.name, one.row.size_bytes, one.done_bytes)
    for namespace, rest in left.items():
        tenant, _, space = namespace.partition("/")
        yield Share(tenant, space, "", rest.size_bytes, rest.done_bytes, rest.count)


# -- what entries are read for --------------------------------------------------------------------------------------------


def _standings(found: _Collector) -> tuple[list[Standing], list[_Waits]]:
    standings, due, scanned = [], [], 0
    for topic_name, name in found.worst.items():
        try:
            topic, cursor = read_topic_cursor(found.reader, parse_topic(topic_name), name)
            facts = SubscriptionFacts(TopicFacts(found.reader, topic, found.now_ms), cursor)
            waits = _delays(facts, found.limits.scanned - scanned)
            strip = make_strip(facts, None if waits is None else waits[0])
        except StoreError as error:
            found.unread.append(f"{topic_name} {name}: {error.message}")
            continue
        scanned += facts.pending_entries
        standings.append(Standing(strip, _publish_ms(found.reader, facts.oldest)))
        if waits is not None and len(waits[1]):
            due.append(_Waits(topic_name, name, waits[1]))
    return standings, sorted(due, key=lambda one: -len(one.times))


def _delays(facts: SubscriptionFacts, most: int) -> tuple[Array, Array] | None:
    """Return ranks and due times of delayed messages; empty if delays are disabled, None for over ``most`` backlog entries."""
    if facts.pending_entries > most:
        return None
    reader, topic = facts.of.reader, facts.of.topic
    in_force = find_delivery(reader.txn, topic.name)
    is_on = in_force is None or in_force.delivery.active
    return delayed_ranks(reader, topic, facts.pending if is_on else (), facts.of.now_ms)


def _charts_of_due(due: Sequence[_Waits], most: int) -> Iterator[Due]:
    if len(due) > 1:
        yield _due("", "", np.concatenate([one.times for one in due]))
    for one in due[:most]:
        yield _due(one.topic, one.subscription, one.times)


def _due(topic: str, subscription: str, times: Array) -> Due:
    low, high = int(times.min()), int(times.max())
    width = choose_bucket_ms(low, high)
    start = low // width * width
    most = min((high - start) // width + 1, _DUE_BARS_MAX)
    counts = np.bincount(np.minimum((times - start) // width, most - 1), minlength=most)
    return Due(topic, subscription, low, start, width, tuple(counts.tolist()))


def _traffic(found: _Collector) -> Iterator[Timeline]:
    for name in found.busiest.items():
        try:
            topic = read_topic(found.reader.txn, parse_topic(name))
            usual = usual_range(found.reader, topic, "auto")
            if usual is None:
                continue
            width = choose_bucket_ms(*usual)
            start = usual[0] // width * width
            end = (usual[1] // width + 1) * width
            yield read_timeline(found.reader, topic, TimelineOptions(width, "auto", start, end))
        except StoreError as error:
            found.unread.append(f"{name}: {error.message}")


# -- the head of the page -------------------------------------------------------------------------------------------------


def _facts(found: _Collector, due: Iterable[_Waits], disk: DiskBytes) -> Iterator[Fact]:
    everything = found.all()
    counts = found.counts
    system = f"and {counts.system_topics:,} of the system; " if counts.system_topics else ""
    yield Fact("Topics", f"{counts.topics:,}", f"{system}{everything.entries:,} entries")
    done = f"{size_text(everything.done_bytes)} needed by no subscription" if everything.done_bytes else ""
    yield Fact("In topics", size_text(everything.size_bytes), done)
    yield Fact("On disks", size_text(disk.total), f"{size_text(disk.journals)} in journals" if disk.journals else "")
    yield Fact("Subscriptions", f"{counts.subscriptions:,}", f"{found.with_backlog:,} with a backlog")
    yield Fact("Backlog", f"{found.backlog_entries:,}", "entries, of all subscriptions")
    yield Fact("Delayed", f"{sum(len(one.times) for one in due):,}", "entries not yet due, of those shown below")
