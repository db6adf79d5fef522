"""Real brokers' trackers of delayed messages: their bucket snapshots in ledgers (pulsar.md §5.3), the memory and time
that they need after a restart, and whether buckets and this store's index agree with entries and acknowledgements.

Upstream (4.0.8): ``InMemoryDelayedDeliveryTracker``, ``TripleLongPriorityQueue``, ``SegmentedLongArray``,
``BucketDelayedDeliveryTracker``, ``ImmutableBucket``, ``PersistentDispatcherMultipleConsumers``; brokers after 4.0 keep
bitmaps by trimmed time in memory. The size of a queue is exact; that of maps and bitmaps assumes a 64-bit JVM with
compressed pointers. How fast entries are read again depends on bookies and network: ``ENTRIES_PER_SECOND`` is an assumption.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Literal

import numpy as np
from msgspec import Struct, field
from pyroaring import BitMap

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.claims import BUCKET_COMPONENT, BUCKET_CURSOR, BUCKET_TOPIC, COMPONENT
from pulsar_admin.store.codec.delayedbucket import (
    decode_entry_ids,
    decode_snapshot_metadata,
    decode_snapshot_segment,
    parse_bucket_key,
)
from pulsar_admin.store.codec.strict_values import parse_integer
from pulsar_admin.store.db.delayed import find_index
from pulsar_admin.store.db.delayed_entries import DelayedRows, join_rows, sorted_rows
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.delayed.backlog import DelayScan, read_delayed
from pulsar_admin.store.delayed.build import PartitionSource
from pulsar_admin.store.delayed.waiting import Waiting, is_current
from pulsar_admin.store.errors import EntryCorrupt, NotSeen, StoreError
from pulsar_admin.store.model.broken import find_broken
from pulsar_admin.store.model.cursors import (
    Cursor,
    Intervals,
    count_ranks,
    extent_of,
    parts_of,
    pending_intervals,
    subtract,
)
from pulsar_admin.store.model.ledger_owners import custom_text
from pulsar_admin.store.model.ledgers import find_metadata, find_times, iter_ledger_ids
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import LONG_MAX, LONG_MIN, Position, TopicName, shell_word
from pulsar_admin.store.scan.entries import is_within
from pulsar_admin.store.wording import Answer, counted, one_line


class Bucket(Struct, frozen=True):
    """A bucket that a cursor property references.

    ``rows`` None: its ledger cannot be read, for the reason ``problem``; ``is_unseen``: because a bookie was not imported.
    """

    key: str
    first_ledger_id: int
    last_ledger_id: int
    ledger_id: int
    rows: DelayedRows | None
    problem: str = ""
    is_gone: bool = False
    is_unseen: bool = False


def iter_buckets(reader: EntryReader, cursor: Cursor) -> Iterator[Bucket]:
    """Yield the buckets that a cursor's properties reference; one that cannot be read has a ``problem``, nothing is raised."""
    for key, value in sorted(cursor.info.cursor_properties.items()):
        ledgers = parse_bucket_key(key)
        if ledgers is None:
            continue
        ledger_id = parse_integer(value)
        if ledger_id is None or (
            find_metadata(reader.txn, ledger_id) is None and find_times(reader.txn, ledger_id) is None
        ):
            yield Bucket(
                key, *ledgers, -1 if ledger_id is None else ledger_id, None, f"its ledger {value} is gone", True
            )
            continue
        try:
            yield Bucket(key, *ledgers, ledger_id, _read(reader, ledger_id))
        except StoreError as error:
            yield Bucket(
                key, *ledgers, ledger_id, None, error.message, is_unseen=isinstance(error.__cause__ or error, NotSeen)
            )


def _read(reader: EntryReader, ledger_id: int) -> DelayedRows:
    """Return the messages in a bucket's ledger; raises EntryCorrupt if a segment and its metadata list different ones."""
    where = f"bucket ledger {ledger_id}"
    parts = []
    for number, segment in enumerate(decode_snapshot_metadata(reader.read(ledger_id, 0).payload, f"{where}:0"), 1):
        payload = reader.read(ledger_id, number).payload
        rows = decode_snapshot_segment(payload, f"{where}:{number}")
        columns = np.array([(one.timestamp_ms, one.ledger_id, one.entry_id) for one in rows], np.int64).reshape(-1, 3)
        described = {
            (ledger, entry) for ledger, raw in segment.bitmaps.items() for entry in decode_entry_ids(raw, where)
        }
        if {(one.ledger_id, one.entry_id) for one in rows} != described:
            raise EntryCorrupt(f"{where}: segment {number} holds other messages than its metadata says", where=where)
        parts.append(sorted_rows(columns[:, 0], columns[:, 1], columns[:, 2]))
    return join_rows(parts)


def iter_leaked(reader: EntryReader, topics: frozenset[TopicName]) -> Iterator[tuple[int, str, str]]:
    """Yield (ledger id, topic, cursor) of bucket ledgers that no cursor references: a broker failed to delete them."""
    names = {str(topic) for topic in topics} | {topic.path.removeprefix("/managed-ledgers/") for topic in topics}
    for ledger_id in iter_ledger_ids(reader.txn):
        if find_owners(reader.txn, ledger_id):
            continue
        try:
            metadata = find_metadata(reader.txn, ledger_id)
        except StoreError:
            continue
        claims = {} if metadata is None else custom_text(metadata)
        if claims.get(COMPONENT) == BUCKET_COMPONENT.decode() and claims.get(BUCKET_TOPIC) in names:
            yield ledger_id, claims[BUCKET_TOPIC], claims.get(BUCKET_CURSOR, "")


ENTRIES_PER_SECOND = 50_000
_TRIPLE_BYTES, _FIRST_BYTES, _DOUBLED_BYTES, _SEGMENT_BYTES = 24, 16 * 24, 256 * 8, 16 << 20
_MAP_ENTRY_BYTES = 56  # a node of a hash map or sorted map with its boxed long
_BITMAP_BYTES = 120  # RoaringBitmap, RoaringArray, its two arrays of four, one container with its array
_SEGMENT_MESSAGES, _SEGMENT_MS = 5000, 300_000  # of a bucket's snapshot: delayedDeliveryMax…PerBucketSnapshotSegment…


class Tracker(Answer, frozen=True):
    """The cost of one kind of tracker: its memory, and the entries that it reads again after a restart, in ``rebuild_ms``."""

    name: str
    memory_bytes: int
    rebuild_entries: int
    entries_per_second: int
    rebuild_ms: int = field(name="rebuildMs")

    @staticmethod
    def of(name: str, memory_bytes: int, rebuild_entries: int) -> Tracker:
        rebuild_ms = rebuild_entries * 1000 // ENTRIES_PER_SECOND
        return Tracker(name, memory_bytes, rebuild_entries, ENTRIES_PER_SECOND, rebuild_ms)


def estimate_trackers(
    reader: EntryReader, topic: Topic, cursor: Cursor, waiting: Waiting, tick_ms: int
) -> tuple[Tracker, ...]:
    """Return the estimated cost of each kind of tracker for the waiting messages on a broker with this tick."""
    pending = pending_intervals(topic, cursor.state)
    backlog = extent_of(reader.txn, topic, pending).entries
    buckets = list(iter_buckets(reader, cursor))
    held = [bucket.rows.take(is_within(topic, bucket.rows, pending)) for bucket in buckets if bucket.rows is not None]
    # The dispatcher skips what a bucket holds when it reads the backlog again, entry by entry.
    inside = sum(map(len, held))
    outside = max(waiting.messages - inside, 0)
    segments = len(held) + sum(map(bool, held))  # the metadata and one segment of each
    return (
        Tracker.of("InMemoryDelayedDeliveryTracker", queue_bytes(waiting.messages), backlog),
        Tracker.of(
            "InMemoryDelayedDeliveryTracker (bitmaps, after 4.0)",
            bitmap_bytes(waiting.iter_rows(LONG_MIN, LONG_MAX), tick_ms),
            backlog,
        ),
        Tracker.of(
            "BucketDelayedDeliveryTracker", _bucket_bytes(buckets, outside), max(backlog - inside, 0) + segments
        ),
    )


def queue_bytes(messages: int) -> int:
    """Return the memory of a ``TripleLongPriorityQueue`` after ``messages`` were added.

    A message is three longs; the array begins with room for 16 messages, doubles up to 256 longs, grows by half up to a
    segment of 2 M longs (16 MiB), and then by segments.
    """
    capacity = _FIRST_BYTES
    while capacity < messages * _TRIPLE_BYTES:
        if capacity >= _SEGMENT_BYTES:
            return -(-messages * _TRIPLE_BYTES // _SEGMENT_BYTES) * _SEGMENT_BYTES
        longs = capacity // 8
        capacity = min(8 * (longs + (longs if capacity <= _DOUBLED_BYTES else longs // 2)), _SEGMENT_BYTES)
    return capacity


def bitmap_bytes(windows: Iterable[DelayedRows], tick_ms: int) -> int:
    """Return the memory of a map trimmed time → ledger → bitmap, whose times lack their lowest floor(log2(tick)) bits."""
    total = 0
    for rows in windows:
        trimmed = rows.times_ms >> (tick_ms.bit_length() - 1)
        order = np.lexsort((rows.ledger_ids, trimmed))
        times, ledgers = trimmed[order], rows.ledger_ids[order]
        new_time = np.append(True, times[1:] != times[:-1])
        cells = int((new_time | np.append(True, ledgers[1:] != ledgers[:-1])).sum())
        total += _MAP_ENTRY_BYTES * int(new_time.sum()) + (_MAP_ENTRY_BYTES + _BITMAP_BYTES) * cells + 2 * len(rows)
    return total


def _bucket_bytes(buckets: list[Bucket], outside: int) -> int:
    """Return the memory of a ``BucketDelayedDeliveryTracker``: its queue and bitmaps.

    The queue holds the first segment of each sealed bucket and all of the mutable one, which has the ``outside`` messages.
    """
    loaded = bitmaps = 0
    for bucket in buckets:
        rows = bucket.rows
        if rows is None or not len(rows):
            continue
        first = int(np.searchsorted(rows.times_ms, int(rows.times_ms[0]) + _SEGMENT_MS))
        loaded += min(first, _SEGMENT_MESSAGES)
        for ledger_id in np.unique(rows.ledger_ids).tolist():
            bitmap = BitMap(rows.entry_ids[rows.ledger_ids == ledger_id].astype(np.uint32))
            bitmaps += _MAP_ENTRY_BYTES + _BITMAP_BYTES + len(bitmap.serialize())
    return queue_bytes(loaded) + queue_bytes(outside) + bitmaps + 2 * outside


Place = tuple[int, int]
"""(ledger, entry)."""
_ENTRY_BITS = 32  # no ledger of Pulsar is longer


class _Column:
    """A column of numbers that grows in place, as joining pieces at the end would need twice the memory."""

    def __init__(self) -> None:
        self._whole: Array = np.zeros(1 << 16, np.int64)
        self._count = 0

    @property
    def values(self) -> Array:
        """The rows added so far; valid until more are added."""
        return self._whole[: self._count]

    def append(self, more: Array) -> None:
        """Append more rows."""
        end = self._count + len(more)
        if end > len(self._whole):
            self._whole.resize(end + end // 8, refcheck=False)
        self._whole[self._count : end] = more
        self._count = end


class MessagePlaces(Struct, frozen=True):
    """Messages in order of (ledger, entry), 16 bytes each.

    ``keys``: index of the ledger in ``ledger_ids`` << 32 | entry id.
    """

    ledger_ids: Array  # i64, ascending
    keys: Array  # i64, ascending
    times_ms: Array  # i64

    def __len__(self) -> int:
        return len(self.keys)

    @staticmethod
    def of(ledger_ids: Iterable[int], batches: Iterable[DelayedRows]) -> MessagePlaces:
        """Return the messages in ``batches``, which are distinct and all in ``ledger_ids`` (ascending)."""
        ids = np.array(list(ledger_ids), np.int64)
        keys, times = _Column(), _Column()
        for rows in batches:
            keys.append(np.searchsorted(ids, rows.ledger_ids) << _ENTRY_BITS | rows.entry_ids)
            times.append(rows.times_ms)
        if np.any(keys.values[1:] < keys.values[:-1]):
            order = np.argsort(keys.values)
            return MessagePlaces(ids, keys.values[order], times.values[order])
        return MessagePlaces(ids, keys.values, times.values)

    def find(self, rows: DelayedRows) -> Array:
        """Return the index of each row's message, −1 if it is missing."""
        if not len(self):
            return np.full(len(rows), -1, np.int64)
        numbers = np.minimum(np.searchsorted(self.ledger_ids, rows.ledger_ids), len(self.ledger_ids) - 1)
        is_key = (self.ledger_ids[numbers] == rows.ledger_ids) & (rows.entry_ids >> _ENTRY_BITS == 0)
        keys = numbers << _ENTRY_BITS | np.where(is_key, rows.entry_ids, 0)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self) - 1)
        return np.where(is_key & (self.keys[places] == keys), places, -1)

    def between(self, first_ledger_id: int, last_ledger_id: int) -> slice:
        """Return the slice of the messages in the ledgers from first to last, both included."""
        numbers = np.array(
            [
                np.searchsorted(self.ledger_ids, first_ledger_id),
                np.searchsorted(self.ledger_ids, last_ledger_id, "right"),
            ]
        )
        low, high = np.searchsorted(self.keys, numbers << _ENTRY_BITS).tolist()
        return slice(low, high)

    def place(self, index: int) -> Place:
        """Return the (ledger, entry) of the message at an index."""
        key = int(self.keys[index])
        return int(self.ledger_ids[key >> _ENTRY_BITS]), key & ((1 << _ENTRY_BITS) - 1)


def distinct(parts: Iterable[DelayedRows]) -> tuple[Array, Array]:
    """Return the distinct (ledger, entry) rows of ``parts`` in order, and how often each occurs."""
    pairs = [np.stack((rows.ledger_ids, rows.entry_ids), axis=1) for rows in parts]
    whole = np.concatenate([np.zeros((0, 2), np.int64), *pairs])
    whole = whole[np.lexsort((whole[:, 1], whole[:, 0]))]
    firsts = np.flatnonzero(np.append(True, np.any(whole[1:] != whole[:-1], axis=1))[: len(whole)])
    return whole[firsts], np.diff(np.append(firsts, len(whole)))


_SHOWN = 3


class DelayedFinding(Answer, frozen=True):
    """A problem, or a note that is worth knowing."""

    severity: Literal["problem", "note"]
    kind: str
    message: str
    messages: int = 0
    ledger_id: int | None = None


class Verified(Struct):
    """The result for one cursor. ``waiting``: delayed messages in its backlog; ``in_buckets``: those that a bucket
    holds; ``outside``: those that no bucket holds (only in the broker's memory), nor may hold; ``stale``: acknowledged messages still
    in a bucket; ``indexed``: messages in this store's index, None without one."""

    __repr__ = one_line

    topic: str
    subscription: str
    waiting: int
    buckets: int
    in_buckets: int
    outside: int
    stale: int
    indexed: int | None
    findings: list[DelayedFinding] = field(default_factory=list)

    @property
    def problems(self) -> int:
        """How many findings are problems."""
        return sum(one.severity == "problem" for one in self.findings)


def iter_leaked_buckets(reader: EntryReader, topics: frozenset[TopicName]) -> Iterator[Verified]:
    """Yield a result with one finding for each bucket ledger that no cursor references."""
    for ledger_id, topic, cursor in iter_leaked(reader, topics):
        text = f"bucket ledger {ledger_id} is leaked: no cursor points to it"
        finding = DelayedFinding("problem", "bucket-ledger-leaked", text, 0, ledger_id)
        yield Verified(topic, cursor, 0, 0, 0, 0, 0, None, [finding])


def verify_cursor(reader: EntryReader, topic: Topic, cursor: Cursor) -> Verified:
    """Compare a cursor's buckets and index with the topic's entries; needs about 20 bytes of memory per delayed message."""
    pending = pending_intervals(topic, cursor.state)
    scan = DelayScan(reader, parts_of(topic, pending))
    exact = MessagePlaces.of(topic.ids, (rows for _, rows in read_delayed([scan])))
    buckets = list(iter_buckets(reader, cursor))
    parts = [bucket.rows for bucket in buckets if bucket.rows is not None]
    held = np.zeros(len(exact), bool)
    others = []
    for part in parts:
        places = exact.find(part)
        held[places[places >= 0]] = True
        others.append(part.take(places < 0))
    in_buckets, stale = int(held.sum()), len(distinct(others)[0])
    for bucket in buckets:
        if bucket.is_unseen:
            held[exact.between(bucket.first_ledger_id, bucket.last_ledger_id)] = True
    outside = len(exact) - int(held.sum())
    result = Verified(str(topic.name), cursor.name, len(exact), len(buckets), in_buckets, outside, stale, None)
    unseen = _count_unseen(reader, topic, pending) if scan.missing else 0
    lost = scan.missing + scan.unreadable - unseen
    if unseen:
        text = f"{counted(unseen, 'waiting entry', 'waiting entries')} may be on bookies that were not imported"
        result.findings.append(DelayedFinding("note", "waiting-not-seen", text, unseen))
    if lost:
        text = f"{counted(lost, 'waiting entry is', 'waiting entries are')} lost or damaged"
        result.findings.append(DelayedFinding("problem", "entries-lost", text, lost))
    result.findings += _bucket_findings(buckets, exact)
    result.findings += _index_findings(reader, topic, cursor, exact, result)
    return result


def _count_unseen(reader: EntryReader, topic: Topic, pending: Intervals) -> int:
    """Return how many of the entries ``pending`` only bookies may have that were not imported."""
    places = ((topic.rank(Position(one.ledger_id, 0)), one.unseen) for one in find_broken(reader.txn, topic))
    unseen = tuple((rank + first, rank + last + 1) for rank, ranges in places for first, last in ranges)
    return count_ranks(pending) - count_ranks(subtract(pending, unseen))


def _bucket_findings(buckets: list[Bucket], exact: MessagePlaces) -> Iterator[DelayedFinding]:
    for bucket in buckets:
        if bucket.rows is None:
            kind = "bucket-ledger-gone" if bucket.is_gone else "bucket-damaged"
            text = f"{bucket.key}: {bucket.problem}"
            if bucket.is_unseen:
                yield DelayedFinding("note", "bucket-not-seen", text, 0, bucket.ledger_id)
            else:
                yield DelayedFinding("problem", kind, text, 0, bucket.ledger_id)
            continue
        indexes = exact.find(bucket.rows)
        is_here = indexes >= 0
        is_wrong = is_here.copy()
        is_wrong[is_here] = exact.times_ms[indexes[is_here]] != bucket.rows.times_ms[is_here]
        wrong, _ = distinct([bucket.rows.take(is_wrong)])
        if len(wrong):
            they_say = counted(len(wrong), "message has", "messages have") + " another time than in the entries"
            text = f"{bucket.key}: {they_say}: {_text(wrong)}"
            yield DelayedFinding("problem", "bucket-time-differs", text, len(wrong), bucket.ledger_id)
        inside = exact.between(bucket.first_ledger_id, bucket.last_ledger_id)
        held = np.zeros(len(exact), bool)
        held[indexes[is_here]] = True
        absent = inside.start + np.flatnonzero(~held[inside])
        if len(absent):
            listed = _text_of(exact, absent)
            text = f"{bucket.key} holds none of {counted(len(absent), 'delayed message')} of its ledgers: {listed}"
            yield DelayedFinding("note", "in-no-bucket", text, len(absent), bucket.ledger_id)
    places, counts = distinct(bucket.rows for bucket in buckets if bucket.rows is not None)
    doubles = places[counts > 1]
    if len(doubles):
        text = f"{counted(len(doubles), 'message is', 'messages are')} in two buckets: {_text(doubles)}"
        yield DelayedFinding("problem", "double", text, len(doubles))
    firsts = sorted((bucket.first_ledger_id, bucket.last_ledger_id, bucket.key) for bucket in buckets)
    for one, other in pairwise(firsts):
        if other[0] <= one[1]:
            yield DelayedFinding("problem", "buckets-overlap", f"{one[2]} and {other[2]} span the same ledgers")


def _index_findings(
    reader: EntryReader, topic: Topic, cursor: Cursor, exact: MessagePlaces, result: Verified
) -> Iterator[DelayedFinding]:
    again = f"pulsar-admin delayed build {shell_word(topic.name)} -s {shell_word(cursor.name)}"
    try:
        index = find_index(reader.txn, topic.name, cursor.name)
        if index is None:
            return
        result.indexed = index.messages
        compared = _compare(exact, PartitionSource(reader, index), index.rules.tick_ms)
    except StoreError as error:
        yield DelayedFinding("problem", "index-damaged", f"{error.message}; {again} --rebuild")
        return
    if not is_current(topic, cursor, index):
        yield DelayedFinding(
            "note", "index-behind", f"the index lags behind the topic or its acknowledgements: {again}"
        )
        return
    absent = np.flatnonzero(~compared.held)
    surplus = len(compared.wrong), _text(compared.wrong)
    for kind, (count, listed) in (("index-surplus", surplus), ("index-lacks", (len(absent), _text_of(exact, absent)))):
        if count or (compared.has_doubles and kind == "index-surplus"):
            what = f"differs from the topic in {counted(count, 'message')}: {listed}" if count else "has messages twice"
            yield DelayedFinding("problem", kind, f"the index {what}; {again} --rebuild", count)


class _Compared(Struct, frozen=True):
    """An index compared with the topic.

    ``held``: mask of the topic's delayed messages that the index has; ``wrong``: (ledger, entry) of index rows that the
    topic does not have, or not with that time.
    """

    held: Array
    wrong: Array
    has_doubles: bool


def _compare(exact: MessagePlaces, source: PartitionSource, tick_ms: int) -> _Compared:
    """Compare the index in ``source`` with the topic's messages; raises IndexCorrupt.

    Partitions keep the tick that they were built with; ``tick_ms`` is the longest of them.
    """
    held = np.zeros(len(exact), bool)
    inside = 0
    wrong, unknown = [], []
    for rows in source.iter_rows():
        places = exact.find(rows)
        is_here = places >= 0
        here = places[is_here]
        held[here] = True
        inside += len(here)
        early = exact.times_ms[here] - rows.times_ms[is_here]
        is_right = is_here.copy()
        is_right[is_here] = (early >= 0) & (early < tick_ms)
        wrong.append(rows.take(~is_right))
        unknown.append(rows.take(~is_here))
    different = len(distinct(unknown)[0])
    has_doubles = inside != int(held.sum()) or sum(map(len, unknown)) != different
    return _Compared(held, distinct(wrong)[0], has_doubles)


def _text(places: Array) -> str:
    """Return the first of ``places``, sorted (ledger, entry) rows, as text."""
    return _joined([(ledger, entry) for ledger, entry in places[:_SHOWN].tolist()], len(places))


def _text_of(exact: MessagePlaces, chosen: Array) -> str:
    return _joined([exact.place(index) for index in chosen[:_SHOWN].tolist()], len(chosen))


def _joined(shown: list[Place], count: int) -> str:
    return ", ".join(f"{ledger}:{entry}" for ledger, entry in shown) + (" …" if count > _SHOWN else "")
