"""Finds wrong clocks: publish times against the broker's, per producer, and entries at which a topic's time runs backwards.

An *inversion* is an entry whose time is before that of the entry in front of it. The entry that shows it is not always the one
at fault: behind one message from the future every honest one looks late. So the entries at fault are found otherwise: where
the broker stamped an entry, by the distance of its publish time from that stamp; elsewhere by taking out the fewest entries
that must go for the clock to run forward, over windows of ``WINDOW_ENTRIES`` entries.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.db.clocks import Clock
from pulsar_admin.store.kernels.producers import longest_forward_run, number_spans
from pulsar_admin.store.kernels.records import HAS_BROKER_TIME, UNFRAMED
from pulsar_admin.store.model.cursors import iter_ledger_parts
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import LONG_MAX, LONG_MIN
from pulsar_admin.store.scan.entries import EntryScan
from pulsar_admin.store.scan.integer_rows import Sums
from pulsar_admin.store.scan.places import EntryBatch
from pulsar_admin.store.wording import Answer

WINDOW_ENTRIES = 1 << 23
DISTINCT_OFFSETS_MAX = 1 << 22
_NONE = LONG_MIN


class SkewOptions(Struct, frozen=True):
    """The clock for inversions, the tolerance for wrong times, and what counts as the future if no broker stamped the entries."""

    clock: Clock = "publish"
    tolerance_ms: int = 1000
    now_ms: int = LONG_MAX


class ProducerSkew(Answer, frozen=True):
    """One producer of a topic. Offsets: publish minus broker time in ms, None if no entry of the producer has a broker time.

    ``future`` and ``late``: entries whose publish time is off by more than the tolerance. A producer with any is
    ``blamed``; of those without broker stamps, only the one with the most. ``max_backwards_ms``: how far an entry is
    at most before the latest earlier time.
    """

    producer: str
    entries: int
    messages: int
    broker_times: int = field(name="entriesWithBrokerTime")
    offset_min_ms: int | None
    offset_median_ms: int | None
    offset_max_ms: int | None
    inversions: int
    max_backwards_ms: int
    future: int = field(name="futureDated")
    late: int
    blamed: bool = False

    @property
    def furthest_ms(self) -> int:
        """How far this producer's clock is off in the middle."""
        return abs(self.offset_median_ms or 0)


class TopicSkew(Answer, frozen=True):
    """A topic's clocks. ``blame``: the producer with the most wrong entries, None if there is none.

    ``inversions`` and ``max_backwards_ms`` are for times on ``clock``.
    """

    topic: str
    clock: Clock
    tolerance_ms: int
    entries: int
    messages: int
    broker_times: int = field(name="entriesWithBrokerTime")
    inversions: int
    max_backwards_ms: int
    future: int = field(name="futureDated")
    late: int
    without_time: int = field(name="entriesWithoutTime")
    missing: int = field(name="missingEntries")
    unreadable: int = field(name="unreadableEntries")
    blame: str | None
    producers: tuple[ProducerSkew, ...]


def read_skew(reader: EntryReader, topic: Topic, options: SkewOptions) -> TopicSkew:
    """Return the clocks of a topic and of each of its producers, the most wrong one first; reads the entries' headers."""
    tally = _Tally(options)
    scan = EntryScan(reader, iter_ledger_parts(topic, 0, topic.number_of_entries), heads=True)
    for batch in scan.batches():
        tally.add(batch)
    return tally.finish(str(topic.name), scan.missing, len(scan.unreadable))


class _Tally:
    """Sums over the batches of one topic, one column element a producer."""

    def __init__(self, options: SkewOptions) -> None:
        self._options = options
        self._names: dict[bytes, int] = {}
        self._sums = {name: np.zeros(0, np.int64) for name in ("entries", "messages", "timed", "inversions")}
        self._sums |= {name: np.zeros(0, np.int64) for name in ("future", "late", "backwards")}
        self._lowest = np.zeros(0, np.int64)
        self._highest = np.zeros(0, np.int64)
        self._offsets = _OffsetTable()
        self._window: list[tuple[Array, Array]] = []
        self._window_entries = 0
        self._last = self._latest = _NONE
        self._without_time = 0

    def add(self, batch: EntryBatch) -> None:
        framed = batch.rows["flags"] & UNFRAMED == 0
        self._without_time += int((~framed).sum())
        batch = batch.take(framed)
        if not len(batch):
            return
        producers = self._number(batch)
        rows = batch.rows
        publish, broker = rows["publish_ms"], rows["broker_ms"]
        stamped = rows["flags"] & HAS_BROKER_TIME != 0
        self._count("entries", producers)
        self._count("messages", producers, rows["messages"])
        self._count("timed", producers[stamped])
        stamped_producers = producers[stamped]
        offsets = (publish - broker)[stamped]
        np.minimum.at(self._lowest, stamped_producers, offsets)
        np.maximum.at(self._highest, stamped_producers, offsets)
        self._offsets.add(stamped_producers, offsets)
        self._count("future", stamped_producers[offsets > self._options.tolerance_ms])
        self._count("late", stamped_producers[offsets < -self._options.tolerance_ms])
        times = {"publish": publish, "broker": broker, "auto": np.where(stamped, broker, publish)}[self._options.clock]
        on_clock = stamped if self._options.clock == "broker" else np.ones(len(rows), bool)
        self._add_inversions(producers[on_clock], times[on_clock])
        unstamped_ms = publish[~stamped]
        self._window.append((producers[~stamped], unstamped_ms))
        self._window_entries += len(unstamped_ms)
        if self._window_entries >= WINDOW_ENTRIES:
            self._judge_window()

    def _number(self, batch: EntryBatch) -> Array:
        """Return the number of each entry's producer; new ones get the next."""
        spans = batch.producer_spans()
        numbers = np.empty(len(batch), np.int32)
        firsts = np.empty(len(batch), np.int32)
        table = np.full(1 << (2 * len(batch)).bit_length(), -1, np.int32)
        count = number_spans(batch.data, spans, numbers, firsts, table)
        places = spans[firsts[:count]].tolist()
        names = [batch.data[start : start + length].tobytes() for start, length in places]
        known = np.array([self._names.setdefault(name, len(self._names)) for name in names], np.int64)
        more = len(self._names) - len(self._lowest)
        for name, column in self._sums.items():
            self._sums[name] = np.append(column, np.zeros(more, np.int64))
        self._lowest = np.append(self._lowest, np.full(more, LONG_MAX, np.int64))
        self._highest = np.append(self._highest, np.full(more, _NONE, np.int64))
        return known[numbers]

    def _count(self, name: str, producers: Array, amounts: Array | None = None) -> None:
        if amounts is None:
            self._sums[name] += np.bincount(producers, minlength=len(self._lowest))
        else:
            np.add.at(self._sums[name], producers, amounts)

    def _add_inversions(self, producers: Array, times: Array) -> None:
        if not len(times):
            return
        before = np.append(self._last, times[:-1])
        latest = np.maximum.accumulate(np.append(self._latest, times))
        self._count("inversions", producers[times < before])
        backwards = np.flatnonzero(
            times < latest[:-1]
        )  # never where nothing came before: its latest is the least number
        np.maximum.at(self._sums["backwards"], producers[backwards], latest[backwards] - times[backwards])
        self._last, self._latest = int(times[-1]), int(latest[-1])

    def _judge_window(self) -> None:
        """Count the entries without a broker's stamp that are too early or too late for their place in the topic."""
        producers = np.concatenate([window[0] for window in self._window] or [np.zeros(0, np.int64)])
        times = np.concatenate([window[1] for window in self._window] or [np.zeros(0, np.int64)])
        self._window, self._window_entries = [], 0
        future, late = misplaced(times, self._options.tolerance_ms)
        if self._options.now_ms < LONG_MAX - self._options.tolerance_ms:
            future |= times > self._options.now_ms + self._options.tolerance_ms
        self._count("future", producers[future])
        self._count("late", producers[late & ~future])

    def finish(self, topic: str, missing: int, unreadable: int) -> TopicSkew:
        self._judge_window()
        medians = self._offsets.medians(len(self._names))
        found = [self._producer(name, number, medians) for name, number in self._names.items()]
        found.sort(key=lambda row: (-(row.future + row.late), -row.furthest_ms, -row.inversions, row.producer))
        # Without a broker's stamp one wrong clock makes the others look wrong: then the worst alone is certain.
        found = [
            replace(row, blamed=row.future + row.late > 0 and (row.broker_times > 0 or place == 0))
            for place, row in enumerate(found)
        ]
        return TopicSkew(
            topic=topic,
            clock=self._options.clock,
            tolerance_ms=self._options.tolerance_ms,
            entries=sum(row.entries for row in found) + self._without_time,
            messages=sum(row.messages for row in found) + self._without_time,
            broker_times=sum(row.broker_times for row in found),
            inversions=sum(row.inversions for row in found),
            max_backwards_ms=max((row.max_backwards_ms for row in found), default=0),
            future=sum(row.future for row in found),
            late=sum(row.late for row in found),
            without_time=self._without_time,
            missing=missing,
            unreadable=unreadable,
            blame=next((row.producer for row in found if row.blamed), None),
            producers=tuple(found),
        )

    def _producer(self, name: bytes, number: int, medians: dict[int, int]) -> ProducerSkew:
        sums = {key: int(column[number]) for key, column in self._sums.items()}
        timed = sums["timed"] > 0
        return ProducerSkew(
            producer=name.decode("utf-8", "backslashreplace"),
            entries=sums["entries"],
            messages=sums["messages"],
            broker_times=sums["timed"],
            offset_min_ms=int(self._lowest[number]) if timed else None,
            offset_median_ms=medians[number] if timed else None,
            offset_max_ms=int(self._highest[number]) if timed else None,
            inversions=sums["inversions"],
            max_backwards_ms=sums["backwards"],
            future=sums["future"],
            late=sums["late"],
        )


def misplaced(times: Array, tolerance_ms: int) -> tuple[Array, Array]:
    """Return two masks of the entries (``times`` in topic order): those from the future, and those that are late.

    An entry is from the future if it is among the fewest that must be removed for the clock to run forward, and its
    time is more than the tolerance after the next entry that stays; it is late if its time is more than the tolerance
    before the entry before it that stays.
    """
    count = len(times)
    kept = np.zeros(count, bool)
    longest_forward_run(times, kept, np.empty(count, np.int32), np.empty(count, np.int32))
    ahead = np.where(kept, times, LONG_MAX)
    ahead = np.minimum.accumulate(ahead[::-1])[::-1]  # the times that stay only grow: the least is the next one
    behind = np.maximum.accumulate(np.where(kept, times, _NONE))
    future = ~kept & (ahead != LONG_MAX) & (times - np.minimum(ahead, times) > tolerance_ms)
    late = ~kept & (behind != _NONE) & (np.maximum(behind, times) - times > tolerance_ms)
    return future, late


class _OffsetTable:
    """How often each producer has each offset: exact medians in bounded memory.

    Past ``DISTINCT_OFFSETS_MAX`` different ones, offsets are rounded down to 2, 4, 8 … ms.
    """

    def __init__(self) -> None:
        self._counts = Sums(2, 1)  # producer, offset >> shift, count
        self._shift = 0

    def add(self, producers: Array, offsets: Array) -> None:
        if not len(producers):
            return
        self._counts.add(producers, offsets >> self._shift, 1)
        while len(self._counts) > DISTINCT_OFFSETS_MAX and len(rows := self._counts.rows()) > DISTINCT_OFFSETS_MAX:
            self._shift += 1
            self._counts.replace(np.column_stack([rows[:, 0], rows[:, 1] >> 1, rows[:, 2]]))

    def medians(self, producers: int) -> dict[int, int]:
        """Return producer → lower median of its offsets, for those that have any."""
        rows = self._counts.rows()
        found: dict[int, int] = {}
        edges = np.searchsorted(rows[:, 0], np.arange(producers + 1))
        for producer, (low, high) in enumerate(pairwise(edges.tolist())):
            if high > low:
                total = np.cumsum(rows[low:high, 2])
                middle = int(np.searchsorted(total, (total[-1] + 1) // 2))
                found[producer] = int(rows[low + middle, 1]) << self._shift
        return found
