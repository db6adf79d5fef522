"""How much arrived when: entries, messages and bytes of a topic, counted in buckets of time.

A block of the location index whose times all lie in one bucket is counted from its sums; only blocks that straddle an edge (or
hold entries without a time, or beyond the topic's end) are looked into. So a timeline of any topic reads little more than the
index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.db.clocks import Clock
from pulsar_admin.store.errors import LimitExceeded
from pulsar_admin.store.model.cursors import iter_ledger_parts
from pulsar_admin.store.model.ledgers import iter_blocks
from pulsar_admin.store.model.messages import check_times
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import LONG_MAX, LONG_MIN, TopicName
from pulsar_admin.store.scan.entries import EntryScan, entry_times
from pulsar_admin.store.scan.integer_rows import Sums
from pulsar_admin.store.scan.places import Part

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
    check_times(options.start_ms, options.end_ms)
    blocks = _Blocks.read(reader, topic, options.clock)
    sums = _TimeSums(options)
    counted = sums.add_blocks(blocks)
    scan = EntryScan(reader, (blocks.parts[index] for index in np.flatnonzero(~counted)), heads=True)
    for batch in scan.batches():
        times, known = entry_times(batch, options.clock)
        sums.without_time += int((~known).sum())
        columns = (times, np.ones(len(batch), np.int64), np.maximum(batch.rows["messages"], 0), batch.payload_bytes)
        sums.add(*(column[known] for column in columns))
    rows = sums.rows()
    entries, messages, size_bytes = rows[:, 1:].sum(axis=0).tolist()
    return Timeline(
        topic.name,
        options.clock,
        options.bucket_ms,
        entries,
        messages,
        size_bytes,
        entries_outside=sums.outside,
        entries_without_time=sums.without_time,
        missing_entries=blocks.missing,
        unreadable_entries=len(scan.unreadable),
        buckets=[Bucket(*row) for row in rows.tolist()],
    )


def usual_range(reader: EntryReader, topic: Topic, clock: Clock) -> tuple[int, int] | None:
    """Return the first and the last usual time of ``topic``, None when no entry has a time; looks at ``SAMPLED_BLOCKS`` blocks.

    Usual is what lies within ten times the middle half of the entries around it: a few messages from far away stretch a topic's
    range a thousandfold, and this one not at all.
    """
    blocks = _Blocks.read(reader, topic, clock)
    chosen = np.unique(np.linspace(0, len(blocks.parts) - 1, min(SAMPLED_BLOCKS, len(blocks.parts))).astype(np.int64))
    found = []
    for batch in EntryScan(reader, (blocks.parts[index] for index in chosen), heads=True).batches():
        times, known = entry_times(batch, clock)
        found.append(times[known])
    times = np.sort(np.concatenate([*found, np.zeros(0, np.int64)]))
    if not len(times):
        return None
    low, high = int(times[len(times) // 4]), int(times[len(times) * 3 // 4])
    reach = 10 * max(high - low, 1)
    usual = times[(times >= low - reach) & (times <= high + reach)]
    return int(usual[0]), int(usual[-1])


def choose_bucket_ms(first_ms: int, last_ms: int) -> int:
    """Return the smallest of ``BUCKET_SIZES_MS`` of which at most ``WANTED_BUCKETS`` cover the time between."""
    span = last_ms - first_ms
    return next((size for size in BUCKET_SIZES_MS if span // size < WANTED_BUCKETS), BUCKET_SIZES_MS[-1])


class _Blocks:
    """The location blocks of a topic as columns: bounds on the clock, sums, and whether all of the block counts."""

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


class _TimeSums:
    """Entries, messages and bytes a bucket."""

    def __init__(self, options: TimelineOptions) -> None:
        self._start = LONG_MIN if options.start_ms is None else options.start_ms
        self._end = LONG_MAX if options.end_ms is None else options.end_ms
        self._bucket_ms = options.bucket_ms
        self._sums = Sums(1, 3)
        self.outside = 0
        self.without_time = 0

    def add_blocks(self, blocks: _Blocks) -> Array:
        """Count the blocks that lie in one bucket, or outside, as a whole; return which were counted."""
        outside = blocks.whole & ((blocks.high < self._start) | (blocks.low >= self._end))
        self.outside += int(blocks.entries[outside].sum())
        inside = blocks.whole & (blocks.low >= self._start) & (blocks.high < self._end)
        inside &= blocks.low // self._bucket_ms == blocks.high // self._bucket_ms
        self.add(*(column[inside] for column in (blocks.low, blocks.entries, blocks.messages, blocks.bytes)))
        counted: Array = outside | inside
        return counted

    def add(self, times: Array, entries: Array, messages: Array, size_bytes: Array) -> None:
        within = (times >= self._start) & (times < self._end)
        self.outside += int(entries[~within].sum())
        buckets = times[within] // self._bucket_ms * self._bucket_ms
        self._sums.add(buckets, entries[within], messages[within], size_bytes[within])
        if len(self._sums) > 2 * BUCKETS_MAX:
            self.rows()

    def rows(self) -> Array:
        """Return rows of (bucket start, entries, messages, bytes) in time order."""
        rows = self._sums.rows()
        if len(rows) > BUCKETS_MAX:
            raise LimitExceeded(
                f"more than {BUCKETS_MAX:,} buckets of {self._bucket_ms} ms have entries",
                hint="give a larger --bucket, or --start-time and --end-time",
            )
        return rows
