"""How much arrived when: entries, messages and bytes of a topic, counted in buckets of time.

A block of the location index whose times all lie in one bucket is counted from its sums; only blocks that straddle an edge (or
hold entries without a time, or beyond the topic's end) are looked into. So a timeline of any topic reads little more than the
index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from msgspec import Struct

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.db.clocks import Clock
from pulsar_admin.store.errors import LimitExceeded, StoreError
from pulsar_admin.store.model.cursors import iter_ledger_parts
from pulsar_admin.store.model.ledgers import iter_blocks
from pulsar_admin.store.model.messages import check_times
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import LONG_MAX, LONG_MIN, TopicName
from pulsar_admin.store.scan.entries import EntryScan
from pulsar_admin.store.scan.integer_rows import Sums
from pulsar_admin.store.scan.places import EntryBatch, Part, record_times
from pulsar_admin.store.scan.reducing import Reduction, Reductions, Row

if TYPE_CHECKING:
    import pyarrow as pa

BUCKETS_MAX = 1_000_000
WANTED_BUCKETS = 60
SAMPLED_BLOCKS = 64
_SECOND = 1000
_MINUTE, _HOUR, _DAY = 60 * _SECOND, 3600 * _SECOND, 86400 * _SECOND
BUCKET_SIZES_MS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(_SECOND * n for n in (1, 2, 5, 10, 15, 30)),
    *(_MINUTE * n for n in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * n for n in (1, 2, 3, 6, 12)),
    *(_DAY * n for n in (1, 2, 7, 14, 28, 91, 182, 364, 3640)),
)
"""Bucket sizes to choose from when none is asked for."""


class TimelineOptions(Struct, frozen=True):
    """What to count: entries from ``start_ms`` on, before ``end_ms``, in buckets of ``bucket_ms`` that begin at its multiples."""

    bucket_ms: int
    clock: Clock = "auto"
    start_ms: int | None = None
    end_ms: int | None = None


class Bucket(NamedTuple):
    """What arrived from ``time_ms`` on, for the width of a bucket."""

    time_ms: int
    entries: int
    messages: int
    bytes: int


class Timeline(Struct, frozen=True):
    """Counts of one topic. ``buckets``: those that have entries, in the order of time; ``entries``, ``messages``, ``bytes``: their sums.

    ``entries_outside``: before the start or after the end asked for; ``entries_without_time``: on no such clock.
    """

    topic: TopicName
    clock: Clock
    bucket_ms: int
    entries: int
    messages: int
    bytes: int
    entries_outside: int
    entries_without_time: int
    missing_entries: int
    unreadable_entries: int
    buckets: Sequence[Bucket]


def read_timeline(reader: EntryReader, topic: Topic, options: TimelineOptions) -> Timeline:
    """Return how much of ``topic`` arrived when; raises LimitExceeded for more than ``BUCKETS_MAX`` buckets, InvalidValue."""
    return TimelineOfTopics(reader, [topic], options).find(0)


class TimelineOfTopics:
    """The timelines of several topics; the reader's engine reads the blocks that must be looked into for all topics at once."""

    def __init__(self, reader: EntryReader, topics: Sequence[Topic], options: TimelineOptions) -> None:
        self._options = options
        self._topics = topics
        self._reduction = SumBuckets(options)
        # What whole blocks add up to, and the entries that lie in no file; or why a topic's blocks cannot be read.
        self._of_blocks: list[tuple[Row, int] | StoreError] = []
        self._scans = []
        for topic in topics:
            parts: list[Part] = []
            try:
                blocks = _Blocks.read(reader, topic, options.clock)
            except StoreError as error:
                self._of_blocks.append(error)
            else:
                row, counted = self._reduction.sum_blocks(blocks)
                self._of_blocks.append((row, blocks.missing))
                parts = [blocks.parts[index] for index in np.flatnonzero(~counted)]
            self._scans.append(EntryScan(reader, parts, heads=True))
        self._reductions = Reductions(reader, self._scans, self._reduction)

    def find(self, index: int) -> Timeline:
        """Return the timeline of the topic with this index; raises LimitExceeded, and the errors of reading the topic."""
        check_times(self._options.start_ms, self._options.end_ms)
        known = self._of_blocks[index]
        if isinstance(known, StoreError):
            raise known
        of_blocks, missing = known
        row = self._reduction.merge([of_blocks, self._reductions.row(index)])
        rows, outside, without_time = _buckets_of(row)
        if len(rows) > BUCKETS_MAX:
            raise LimitExceeded(
                f"more than {BUCKETS_MAX:,} buckets of {self._options.bucket_ms} ms have entries",
                hint="give a larger --bucket, or --start-time and --end-time",
            )
        entries, messages, size_bytes = rows[:, 1:].sum(axis=0).tolist()
        return Timeline(
            self._topics[index].name,
            self._options.clock,
            self._options.bucket_ms,
            entries,
            messages,
            size_bytes,
            entries_outside=outside,
            entries_without_time=without_time,
            missing_entries=missing,
            unreadable_entries=len(self._scans[index].unreadable),
            buckets=[Bucket(*row) for row in rows.tolist()],
        )


def usual_range(reader: EntryReader, topic: Topic, clock: Clock) -> tuple[int, int] | None:
    """Return the first and the last usual time of ``topic``, None when no entry has a time; looks at ``SAMPLED_BLOCKS`` blocks.

    Usual times are at most ten times the interquartile range away from the middle half of the entries: a few messages with far-off times
    can stretch the full range of a topic a thousandfold, but not this one.
    """
    blocks = _Blocks.read(reader, topic, clock)
    chosen = np.unique(np.linspace(0, len(blocks.parts) - 1, min(SAMPLED_BLOCKS, len(blocks.parts))).astype(np.int64))
    sampled = []
    for batch in EntryScan(reader, (blocks.parts[index] for index in chosen), heads=True).batches():
        times, known = record_times(batch.rows, clock)
        sampled.append(times[known])
    times = np.sort(np.concatenate([*sampled, np.zeros(0, np.int64)]))
    if not len(times):
        return None
    low, high = int(times[len(times) // 4]), int(times[len(times) * 3 // 4])
    reach = 10 * max(high - low, 1)
    usual = times[(times >= low - reach) & (times <= high + reach)]
    return int(usual[0]), int(usual[-1])


def usual_times(reader: EntryReader, names: Iterable[TopicName], clock: Clock) -> tuple[int, int] | None:
    """Return the first and last usual time of topics together; None if no entry has one.

    An unreadable topic has none: the later counting reports the error.
    """
    # A sample is not bulk work, and the scan lists again what cannot be read.
    sample = reader.scanning_on(None, failed=[])
    ranges: list[tuple[int, int]] = []
    for name in names:
        with suppress(StoreError):
            ranges += filter(None, [usual_range(sample, read_topic(reader.txn, name), clock)])
    return (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None


def usual_bucket_ms(reader: EntryReader, name: TopicName, clock: Clock) -> int:
    """Return the bucket size chosen for the usual times of a topic."""
    return choose_bucket_ms(*(usual_times(reader, [name], clock) or (0, 0)))


def table_of(timeline: Timeline) -> pa.Table:
    """Return the buckets as columns: ``start`` (timestamp), ``entries``, ``messages``, ``bytes``."""
    import pyarrow as pa

    from pulsar_admin.store.scan.typed_values import timestamps

    start, *counts = (pa.array((row[index] for row in timeline.buckets), pa.int64()) for index in range(4))
    return pa.table([timestamps(start), *counts], ["start", "entries", "messages", "bytes"])


def choose_bucket_ms(first_ms: int, last_ms: int) -> int:
    """Return the smallest of ``BUCKET_SIZES_MS`` of which at most ``WANTED_BUCKETS`` cover the time between."""
    span = last_ms - first_ms
    return next((size for size in BUCKET_SIZES_MS if span // size < WANTED_BUCKETS), BUCKET_SIZES_MS[-1])


class _Blocks:
    """The location blocks of a topic as columns: times on the clock, sums, and whether ``whole`` blocks can be counted by their sums."""

    def __init__(self, rows: list[tuple[int, ...]], parts: list[Part], missing: int) -> None:
        columns = np.array(rows, np.int64).reshape(-1, 6)
        self.low, self.high, self.entries, self.messages, self.bytes = columns[:, :5].T
        self.whole = columns[:, 5] != 0
        self.parts = parts
        self.missing = missing

    @staticmethod
    def read(reader: EntryReader, topic: Topic, clock: Clock) -> _Blocks:
        rows: list[tuple[int, ...]] = []
        parts: list[Part] = []
        missing = 0
        for ledger_id, first, last in iter_ledger_parts(topic, 0, topic.number_of_entries):
            missing += last - first + 1
            for block in iter_blocks(reader.txn, ledger_id, first):
                count = block.index_of(last + 1) - block.index_of(first)
                if count:
                    missing -= count
                    header = block.header
                    low, high = {
                        "publish": (header.publish_min_ms, header.publish_max_ms),
                        "broker": (header.broker_min_ms, header.broker_max_ms),
                        "auto": (header.auto_min_ms, header.auto_max_ms),
                    }[clock]
                    timed = header.broker_count if clock == "broker" else header.entries - header.unframed
                    is_whole = count == header.entries == timed
                    rows.append((low, high, count, header.messages, header.payload_bytes, int(is_whole)))
                    parts.append((ledger_id, block.entry_id(0), min(last, block.entry_id(len(block) - 1))))
        return _Blocks(rows, parts, missing)


class SumBuckets(Struct, Reduction, frozen=True):
    """Counts entries, messages and bytes per bucket of time. A row: ``buckets`` (start and the three counts, in time order; at most one
    more than allowed), ``others`` (entries outside the requested times, and entries without a time).
    """

    options: TimelineOptions

    COLUMNS: ClassVar[tuple[str, ...]] = ("buckets", "others")

    def partial(self, batch: EntryBatch) -> Row:
        """Return the row for the entries of a batch."""
        times, known = record_times(batch.rows, self.options.clock)
        columns = (times, np.ones(len(batch), np.int64), np.maximum(batch.rows["messages"], 0), batch.payload_bytes)
        return self._row([column[known] for column in columns], 0, int((~known).sum()))

    def sum_blocks(self, blocks: _Blocks) -> tuple[Row, Array]:
        """Return the row of the blocks that lie completely in one bucket or outside the range, and a mask of these blocks."""
        start, end = self._times
        outside = blocks.whole & ((blocks.high < start) | (blocks.low >= end))
        inside = blocks.whole & (blocks.low >= start) & (blocks.high < end)
        inside &= blocks.low // self.options.bucket_ms == blocks.high // self.options.bucket_ms
        columns = (blocks.low, blocks.entries, blocks.messages, blocks.bytes)
        row = self._row([column[inside] for column in columns], int(blocks.entries[outside].sum()), 0)
        counted: Array = outside | inside
        return row, counted

    def merge(self, rows: Sequence[Row]) -> Row:
        """Return the sum of ``rows``, which may come in any order."""
        sums = Sums(1, 3)
        others = np.zeros(2, np.int64)
        for row in rows:
            buckets, outside, without_time = _buckets_of(row)
            sums.add(*buckets.T)
            others += (outside, without_time)
        return {"buckets": sums.rows()[: BUCKETS_MAX + 1].tobytes(), "others": others.tobytes()}

    @property
    def _times(self) -> tuple[int, int]:
        start, end = self.options.start_ms, self.options.end_ms
        return LONG_MIN if start is None else start, LONG_MAX if end is None else end

    def _row(self, columns: Sequence[Array], outside: int, without_time: int) -> Row:
        """Return a row from columns of times, entries, messages and bytes, and the counts of entries in no bucket."""
        start, end = self._times
        within = (columns[0] >= start) & (columns[0] < end)
        times, *amounts = (column[within] for column in columns)
        sums = Sums(1, 3)
        sums.add(times // self.options.bucket_ms * self.options.bucket_ms, *amounts)
        others = np.array([outside + int(columns[1][~within].sum()), without_time], np.int64)
        return {"buckets": sums.rows().tobytes(), "others": others.tobytes()}


def _buckets_of(row: Row) -> tuple[Array, int, int]:
    """Return the buckets of a row, entries outside, and entries without a time."""
    outside, without_time = np.frombuffer(row["others"], np.int64).tolist()
    return np.frombuffer(row["buckets"], np.int64).reshape(-1, 4), outside, without_time
