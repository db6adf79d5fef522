"""Finds wrong clocks: publish times against the broker's, per producer, and entries at which a topic's time runs backwards.

An *inversion* is an entry whose time is before that of the preceding entry. The entry that shows it is not always the one
at fault: after one message from the future, all correct ones seem late. So the entries at fault are found otherwise: if
the broker stamped an entry, by the distance of its publish time from that stamp; elsewhere by taking out the fewest entries
that must go for the clock to run forward, over windows of ``WINDOW_ENTRIES`` entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec
import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.db.clocks import Clock
from pulsar_admin.store.kernels.columns import HAS_BROKER_TIME, UNFRAMED
from pulsar_admin.store.kernels.producers import longest_forward_run, number_spans
from pulsar_admin.store.model.cursors import iter_ledger_parts
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import LONG_MAX, LONG_MIN
from pulsar_admin.store.scan.entries import EntryScan
from pulsar_admin.store.scan.integer_rows import Sums
from pulsar_admin.store.scan.places import EntryBatch, record_times
from pulsar_admin.store.scan.reducing import Reduction, Reductions, Row
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
    ``blamed``; of those without broker stamps, only those with entries dated after now, and the one with the most.
    ``max_backwards_ms``: how far an entry is at most before the latest earlier time.
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
        """The absolute median offset of the producer's clock."""
        return abs(self.offset_median_ms or 0)


class TopicSkew(Answer, frozen=True):
    """A topic's clocks. ``blame``: the producer with the most wrong entries, None without wrong entries.

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
    return SkewOfTopics(reader, [topic], options).find(0)


class SkewOfTopics:
    """The clocks of several topics, whose entries the reader's engine reads all at once."""

    def __init__(self, reader: EntryReader, topics: Sequence[Topic], options: SkewOptions) -> None:
        self._topics = topics
        self._scans = [
            EntryScan(reader, iter_ledger_parts(topic, 0, topic.number_of_entries), heads=True) for topic in topics
        ]
        self._reduction = SumClocks(options)
        self._reductions = Reductions(reader, self._scans, self._reduction)

    def find(self, index: int) -> TopicSkew:
        """Return the clocks of the topic with this index; raises the errors of reading the topic."""
        row = self._reductions.row(index)
        scan = self._scans[index]
        return self._reduction.answer(row, str(self._topics[index].name), scan.missing, len(scan.unreadable))


SUMS = np.dtype(
    [
        *(
            (name, np.int64)
            for name in ("entries", "messages", "timed", "inversions", "future", "late", "undue", "backwards")
        ),
        ("lowest", np.int64),  # offsets
        ("highest", np.int64),
        ("earliest", np.int64),  # time on the clock of inversions
    ]
)
"""A producer's entries; ``undue``: how many entries without a broker's stamp are dated after now."""
_NOTHING = np.array((0, 0, 0, 0, 0, 0, 0, 0, LONG_MAX, _NONE, LONG_MAX), SUMS)
_EDGES = np.dtype(
    [
        ("without_time", np.int64),
        ("timed", np.int64),  # entries on the clock of inversions; without any what follows says nothing
        ("first_producer", np.int64),
        ("first", np.int64),
        ("last", np.int64),
        ("latest", np.int64),
        ("shift", np.int64),  # bits by which offsets are rounded
    ]
)


class SumClocks(Struct, Reduction, frozen=True):
    """Sums up entries for their producers' clocks. A row: ``names`` of producers; ``sums`` and ``offsets`` (producer, offset, count) by the
    number of a producer in ``names``; ``edges``: the first and last times, to join neighbouring rows; and, until a window is judged,
    producer and publish time of each entry without a broker time.
    """

    options: SkewOptions

    COLUMNS: ClassVar[tuple[str, ...]] = ("names", "sums", "offsets", "edges", "unstamped", "unstamped_ms")
    window_entries: ClassVar[int] = WINDOW_ENTRIES

    def partial(self, batch: EntryBatch) -> Row:
        """Return the row for the entries of a batch."""
        framed = batch.rows["flags"] & UNFRAMED == 0
        edges = np.zeros(1, _EDGES)
        edges["without_time"] = int((~framed).sum())
        batch = batch.take(framed)
        names, producers = _number(batch)
        sums = np.full(len(names), _NOTHING, SUMS)
        rows = batch.rows
        publish, broker = rows["publish_ms"], rows["broker_ms"]
        stamped = rows["flags"] & HAS_BROKER_TIME != 0
        _count(sums, "entries", producers)
        np.add.at(sums["messages"], producers, rows["messages"])
        stamped_producers = producers[stamped]
        _count(sums, "timed", stamped_producers)
        offsets = (publish - broker)[stamped]
        np.minimum.at(sums["lowest"], stamped_producers, offsets)
        np.maximum.at(sums["highest"], stamped_producers, offsets)
        _count(sums, "future", stamped_producers[offsets > self.options.tolerance_ms])
        _count(sums, "late", stamped_producers[offsets < -self.options.tolerance_ms])
        times, on_clock = record_times(rows, self.options.clock)
        _add_inversions(sums, edges, producers[on_clock], times[on_clock])
        table = _OffsetTable()
        table.add(stamped_producers, offsets)
        return _row(names, sums, table, edges, producers[~stamped].astype(np.int32), publish[~stamped])

    def merge(self, rows: Sequence[Row]) -> Row:
        """Return one row for successive ``rows``."""
        numbers: dict[bytes, int] = {}
        known = [
            np.array([numbers.setdefault(name, len(numbers)) for name in _names_of(row)], np.int64) for row in rows
        ]
        sums = np.full(len(numbers), _NOTHING, SUMS)
        edges = np.zeros(1, _EDGES)
        table = _OffsetTable()
        for row, places in zip(rows, known, strict=True):
            _join(sums, edges, places, np.frombuffer(row["sums"], SUMS), np.frombuffer(row["edges"], _EDGES))
            table.join(*_offsets_of(row), places)
        unstamped = [places[np.frombuffer(row["unstamped"], np.int32)] for row, places in zip(rows, known, strict=True)]
        times = [np.frombuffer(row["unstamped_ms"], np.int64) for row in rows]
        nothing = [np.zeros(0, np.int64)]
        producers = np.concatenate(unstamped + nothing).astype(np.int32)
        return _row([*numbers], sums, table, edges, producers, np.concatenate(times + nothing))

    def judge(self, row: Row) -> Row:
        """Return the row with the entries without a broker time counted that are from the future or late, by ``misplaced``."""
        times = np.frombuffer(row["unstamped_ms"], np.int64)
        if not len(times):
            return row
        producers = np.frombuffer(row["unstamped"], np.int32)
        future, late = misplaced(times, self.options.tolerance_ms)
        undue = times > min(self.options.now_ms, LONG_MAX - self.options.tolerance_ms) + self.options.tolerance_ms
        future |= undue
        sums = np.frombuffer(row["sums"], SUMS).copy()
        _count(sums, "undue", producers[undue])
        _count(sums, "future", producers[future])
        _count(sums, "late", producers[late & ~future])
        return {**row, "sums": sums.tobytes(), "unstamped": b"", "unstamped_ms": b""}

    def close(self, row: Row) -> Row:
        """Return the row with one offset per producer: the median."""
        return {**row, "offsets": _medians(_offsets_of(row)[0]).tobytes()}

    def answer(self, row: Row, topic: str, missing: int, unreadable: int) -> TopicSkew:
        """Return the answer from the row of a whole topic."""
        edges = np.frombuffer(row["edges"], _EDGES)[0]
        offsets, shift = _offsets_of(row)
        medians = dict(zip(offsets[:, 0].tolist(), (offsets[:, 1] << shift).tolist(), strict=True))
        sums = np.frombuffer(row["sums"], SUMS)
        rows = [
            _producer(name, dict(zip(SUMS.fields or (), one, strict=True)), medians.get(number))
            for number, (name, one) in enumerate(zip(_names_of(row), sums.tolist(), strict=True))
        ]
        rows.sort(key=lambda row: (-(row.future + row.late), -row.furthest_ms, -row.inversions, row.producer))
        # Without a broker's stamp one wrong clock makes the others look wrong: of these the worst alone is certain.
        rows = [
            replace(row, blamed=row.blamed or (not place and row.future + row.late > 0))
            for place, row in enumerate(rows)
        ]
        without_time = int(edges["without_time"])
        return TopicSkew(
            topic=topic,
            clock=self.options.clock,
            tolerance_ms=self.options.tolerance_ms,
            entries=sum(row.entries for row in rows) + without_time,
            messages=sum(row.messages for row in rows) + without_time,
            broker_times=sum(row.broker_times for row in rows),
            inversions=sum(row.inversions for row in rows),
            max_backwards_ms=max((row.max_backwards_ms for row in rows), default=0),
            future=sum(row.future for row in rows),
            late=sum(row.late for row in rows),
            without_time=without_time,
            missing=missing,
            unreadable=unreadable,
            blame=next((row.producer for row in rows if row.blamed), None),
            producers=tuple(rows),
        )


def _row(names: Sequence[bytes], sums: Array, table: _OffsetTable, edges: Array, producers: Array, times: Array) -> Row:
    edges["shift"] = table.shift
    packed = msgspec.msgpack.encode(names)
    columns = (sums, table.rows(), edges, producers, times)
    return dict(zip(SumClocks.COLUMNS, (packed, *(column.tobytes() for column in columns)), strict=True))


def _names_of(row: Row) -> list[bytes]:
    return msgspec.msgpack.decode(row["names"], type=list[bytes])


def _offsets_of(row: Row) -> tuple[Array, int]:
    return np.frombuffer(row["offsets"], np.int64).reshape(-1, 3), int(np.frombuffer(row["edges"], _EDGES)[0]["shift"])


def _number(batch: EntryBatch) -> tuple[list[bytes], Array]:
    """Return the names of a batch's producers, and for each entry its producer's number among them."""
    spans = batch.producer_spans()
    numbers = np.empty(len(batch), np.int32)
    firsts = np.empty(len(batch), np.int32)
    table = np.full(1 << (2 * len(batch)).bit_length(), -1, np.int32)
    count = number_spans(batch.data, spans, numbers, firsts, table)
    places = spans[firsts[:count]].tolist()
    return [batch.data[start : start + length].tobytes() for start, length in places], numbers.astype(np.int64)


def _count(sums: Array, name: str, producers: Array) -> None:
    sums[name] += np.bincount(producers, minlength=len(sums))


def _add_inversions(sums: Array, edges: Array, producers: Array, times: Array) -> None:
    if not len(times):
        return
    _count(sums, "inversions", producers[1:][times[1:] < times[:-1]])
    latest = np.maximum.accumulate(times)
    np.maximum.at(sums["backwards"], producers, latest - times)
    np.minimum.at(sums["earliest"], producers, times)
    edges["timed"] = len(times)
    edges["first_producer"], edges["first"] = producers[0], times[0]
    edges["last"], edges["latest"] = times[-1], latest[-1]


def _join(sums: Array, edges: Array, places: Array, more: Array, following: Array) -> None:
    """Add ``more`` and ``following``, sums and edges of the next entries. ``places``: their producers' numbers in ``sums``."""
    for name in ("entries", "messages", "timed", "inversions", "future", "late", "undue"):
        sums[name][places] += more[name]
    sums["lowest"][places] = np.minimum(sums["lowest"][places], more["lowest"])
    sums["highest"][places] = np.maximum(sums["highest"][places], more["highest"])
    backwards = np.maximum(sums["backwards"][places], more["backwards"])
    edges["without_time"] += following["without_time"]
    if following["timed"][0] and edges["timed"][0]:
        first = places[following["first_producer"][0]]
        sums["inversions"][first] += following["first"][0] < edges["last"][0]
        earliest = np.minimum(more["earliest"], edges["latest"][0])  # of a producer without a time: not before
        backwards = np.maximum(backwards, edges["latest"][0] - earliest)
    sums["backwards"][places] = backwards
    sums["earliest"][places] = np.minimum(sums["earliest"][places], more["earliest"])
    if following["timed"][0]:
        if not edges["timed"][0]:
            edges["first_producer"], edges["first"] = places[following["first_producer"][0]], following["first"]
            edges["latest"] = following["latest"]
        edges["timed"] += following["timed"]
        edges["last"], edges["latest"] = following["last"], np.maximum(edges["latest"], following["latest"])


def _producer(name: bytes, sums: Mapping[str, int], median_ms: int | None) -> ProducerSkew:
    timed = sums["timed"] > 0
    return ProducerSkew(
        producer=name.decode("utf-8", "backslashreplace"),
        entries=sums["entries"],
        messages=sums["messages"],
        broker_times=sums["timed"],
        offset_min_ms=sums["lowest"] if timed else None,
        offset_median_ms=median_ms,
        offset_max_ms=sums["highest"] if timed else None,
        inversions=sums["inversions"],
        max_backwards_ms=sums["backwards"],
        future=sums["future"],
        late=sums["late"],
        blamed=bool(sums["undue"] or (timed and sums["future"] + sums["late"])),
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
        self.shift = 0

    def add(self, producers: Array, offsets: Array) -> None:
        """Count one of ``offsets`` for each of ``producers``."""
        self._counts.add(producers, offsets >> self.shift, 1)

    def join(self, rows: Array, shift: int, places: Array) -> None:
        """Add the rows of another table, its offsets rounded by ``shift`` bits. ``places``: its producers' numbers in this table."""
        if shift > self.shift:
            self._round(shift - self.shift)
        self._counts.add(places[rows[:, 0]], rows[:, 1] >> (self.shift - shift), rows[:, 2])
        while len(self._counts) > DISTINCT_OFFSETS_MAX and len(self._counts.rows()) > DISTINCT_OFFSETS_MAX:
            self._round(1)

    def _round(self, bits: int) -> None:
        rows = self._counts.rows()
        self.shift += bits
        self._counts.replace(np.column_stack([rows[:, 0], rows[:, 1] >> bits, rows[:, 2]]))

    def rows(self) -> Array:
        """Return (producer, offset, count), in this order."""
        return self._counts.rows()


def _medians(rows: Array) -> Array:
    """Return one of the rows (producer, offset, count) per producer: that with the lower median of the offsets."""
    firsts = np.flatnonzero(np.diff(rows[:, 0], prepend=-1))
    lasts = np.append(firsts[1:], len(rows))
    chosen = []
    for first, last in zip(firsts.tolist(), lasts[: len(firsts)].tolist(), strict=True):
        total = np.cumsum(rows[first:last, 2])
        chosen.append(first + int(np.searchsorted(total, (total[-1] + 1) // 2)))
    return rows[chosen]
