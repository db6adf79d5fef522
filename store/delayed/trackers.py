"""What real brokers keep of a delayed backlog: buckets in ledgers (pulsar.md §5.3), and what their trackers need after a restart.

Read from Pulsar 4.0.8 (``InMemoryDelayedDeliveryTracker``, ``TripleLongPriorityQueue``, ``SegmentedLongArray``,
``BucketDelayedDeliveryTracker``, ``ImmutableBucket``, ``PersistentDispatcherMultipleConsumers``); brokers after 4.0 keep bitmaps by
trimmed time in memory.
The size of a queue is exact; that of maps and bitmaps assumes a 64-bit JVM with compressed pointers. How fast entries are read
again depends on bookies and network: ``ENTRIES_PER_SECOND`` is an assumption.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from msgspec import Struct, field
from pyroaring import BitMap

from pulsar_admin.store.codec.claims import BUCKET_COMPONENT, BUCKET_CURSOR, BUCKET_TOPIC, COMPONENT
from pulsar_admin.store.codec.delayedbucket import (
    decode_entry_ids,
    decode_snapshot_metadata,
    decode_snapshot_segment,
    parse_bucket_key,
)
from pulsar_admin.store.codec.strict_values import parse_integer
from pulsar_admin.store.db.delayed_entries import DelayedRows, join_rows, sorted_rows
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.delayed.waiting import Waiting
from pulsar_admin.store.errors import EntryCorrupt, StoreError
from pulsar_admin.store.model.cursors import Cursor, extent_of, pending_intervals
from pulsar_admin.store.model.ledger_owners import custom_text
from pulsar_admin.store.model.ledgers import find_metadata, find_times, iter_ledger_ids
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import LONG_MAX, LONG_MIN, TopicName
from pulsar_admin.store.scan.entries import is_within
from pulsar_admin.store.wording import Answer


class Bucket(Struct, frozen=True):
    """A bucket as its pointer names it. ``rows`` None: its ledger cannot be read, ``problem`` says why."""

    key: str
    first_ledger_id: int
    last_ledger_id: int
    ledger_id: int
    rows: DelayedRows | None
    problem: str = ""
    is_gone: bool = False


def iter_buckets(reader: EntryReader, cursor: Cursor) -> Iterator[Bucket]:
    """Yield the buckets to which a cursor's properties point; a problem is a field of its bucket, never raised."""
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
            yield Bucket(key, *ledgers, ledger_id, None, error.message)


def _read(reader: EntryReader, ledger_id: int) -> DelayedRows:
    """Return the messages in a bucket's ledger; raises EntryCorrupt if segment and metadata contradict each other."""
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
    """Yield (ledger id, topic, cursor) of bucket ledgers that no cursor points to: the broker forgot to delete them."""
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
    """The cost of one kind of tracker: memory, and the entries it reads again before it is complete, which takes ``rebuild_ms``."""

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
    """Return estimates of the trackers for the waiting messages, on a broker with this tick. One window at a time is in memory."""
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
    """Return the memory of a ``TripleLongPriorityQueue`` after this many were added.

    Three longs a message; the array begins with 16 messages, doubles up to 256 longs, grows by half up to a segment of 2 M longs
    (16 MiB), and then by segments.
    """
    capacity = _FIRST_BYTES
    while capacity < messages * _TRIPLE_BYTES:
        if capacity >= _SEGMENT_BYTES:
            return -(-messages * _TRIPLE_BYTES // _SEGMENT_BYTES) * _SEGMENT_BYTES
        longs = capacity // 8
        capacity = min(8 * (longs + (longs if capacity <= _DOUBLED_BYTES else longs // 2)), _SEGMENT_BYTES)
    return capacity


def bitmap_bytes(windows: Iterable[DelayedRows], tick_ms: int) -> int:
    """Return the memory of trimmed time → ledger → bitmap; times are trimmed by floor(log2(tick)) bits."""
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
    """Return queue and bitmaps: of the last, mutable bucket all it holds; of each sealed one a segment, and all its bitmaps."""
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
