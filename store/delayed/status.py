"""What a delayed backlog costs: our index, the trackers of real brokers, and what TTL and quotas drop before it is due.

Estimates of the trackers (Pulsar 4.0.8): the bitmap tracker keeps one map entry a trimmed time and ledger, and a bitmap; the priority
queue of older brokers three longs a message; the bucket tracker its bitmaps, and of each bucket one loaded segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from store.codec.delayedindex import Array, DelayedRows
from store.codec.policies import Policies
from store.cursors import Cursor
from store.delayed.backlog import parts_of
from store.delayed.buckets import iter_buckets
from store.delayed.waiting import Waiting
from store.extent import extent_of, pending_intervals
from store.ledgers import EntryReader
from store.names import Position
from store.plans.delayed import EVICTION
from store.policies_in_force import find_message_ttl
from store.scan.delays import due_times
from store.scan.entries import EntryScan
from store.topics import Topic

QUEUE_BYTES = 24  # three longs a message
MAP_NODE_BYTES = 64  # a map entry with its key and value objects
BITMAP_BYTES = 96  # a Roaring64 bitmap of few values: object, key tree, one container
REBUILD_ENTRIES_PER_SECOND = 50_000  # assumed: what one dispatcher reads from bookies
SEGMENT_MESSAGES = 5000


@dataclass(frozen=True, slots=True)
class Tracker:
    """What one kind of tracker needs for a backlog after a restart: memory, and entries to read again."""

    name: str
    memory_bytes: int
    rebuild_entries: int

    @property
    def rebuild_ms(self) -> int:
        """How long reading again takes at the assumed rate."""
        return self.rebuild_entries * 1000 // REBUILD_ENTRIES_PER_SECOND


def estimate_trackers(
    reader: EntryReader, topic: Topic, cursor: Cursor, rows: DelayedRows, tick_ms: int
) -> tuple[Tracker, ...]:
    """Return the trackers of real brokers for what waits: in memory (bitmaps), in memory (queue, before 3.1), buckets."""
    pending = pending_intervals(topic, cursor.state)
    backlog = extent_of(reader.txn, topic, pending).entries
    buckets = [bucket for bucket in iter_buckets(reader, cursor) if bucket.rows is not None]
    held = sum(len(bucket.rows) for bucket in buckets if bucket.rows is not None)
    inside = {ledger for bucket in buckets for ledger in range(bucket.first_ledger_id, bucket.last_ledger_id + 1)}
    outside = sum(last - first + 1 for ledger_id, first, last in parts_of(topic, pending) if ledger_id not in inside)
    loaded = min(held, SEGMENT_MESSAGES * max(len(buckets), 1)) + max(len(rows) - held, 0)
    return (
        Tracker("InMemoryDelayedDeliveryTracker", _bitmap_bytes(rows, tick_ms), backlog),
        Tracker("InMemoryDelayedDeliveryTracker (priority queue)", QUEUE_BYTES * len(rows), backlog),
        Tracker("BucketDelayedDeliveryTracker", QUEUE_BYTES * loaded + 2 * held + BITMAP_BYTES * len(buckets), outside),
    )


def _bitmap_bytes(rows: DelayedRows, tick_ms: int) -> int:
    """Return the memory of trimmed time → ledger → bitmap; times are trimmed by floor(log2(tick)) bits."""
    if not len(rows):
        return 0
    trimmed = rows.times_ms >> (tick_ms.bit_length() - 1)
    order = np.lexsort((rows.ledger_ids, trimmed))
    times, ledgers = trimmed[order], rows.ledger_ids[order]
    new_time = np.append(True, times[1:] != times[:-1])
    cells = int((new_time | np.append(True, ledgers[1:] != ledgers[:-1])).sum())
    return MAP_NODE_BYTES * int(new_time.sum()) + (MAP_NODE_BYTES + BITMAP_BYTES) * cells + 2 * len(rows)


@dataclass(frozen=True, slots=True)
class TtlConflict:
    """Delayed messages that the TTL drops before they are due: how many, and the first few."""

    ttl_seconds: int
    source: str
    messages: int
    first: tuple[Position, ...]


def find_ttl_conflict(reader: EntryReader, topic: Topic, cursor: Cursor, shown: int = 5) -> TtlConflict | None:
    """Return what the TTL in force drops of CURSOR's backlog before it is due; None without a TTL.

    An entry expires when its publish time (broker time where it has one) is more than the TTL ago.
    """
    ttl = find_message_ttl(reader.txn, topic.name)
    if ttl is None or ttl.seconds <= 0:
        return None
    count = 0
    first: list[Position] = []
    for batch in EntryScan(reader, parts_of(topic, pending_intervals(topic, cursor.state)), heads=True).batches():
        due, born = due_times(batch), np.where(batch.rows["broker_ms"] > 0, batch.rows["broker_ms"], 0)
        born = np.where(born > 0, born, batch.rows["publish_ms"])
        dropped = np.flatnonzero(_is_dropped(due, born, ttl.seconds * 1000))
        count += len(dropped)
        first += [
            Position(int(batch.ledger_ids[index]), int(batch.entry_ids[index]))
            for index in dropped[: shown - len(first)]
        ]
    return TtlConflict(ttl.seconds, ttl.source, count, tuple(first))


def _is_dropped(due: Array, born: Array, ttl_ms: int) -> Array:
    # Not born + ttl: a due time near the end of 64 bits, or a TTL of centuries, must not wrap around.
    dropped: Array = (due > 0) & (born >= 0) & (due - born > ttl_ms)
    return dropped


def evicting_quotas(policies: Policies | None) -> tuple[str, ...]:
    """Return the types of backlog quotas that drop delayed messages as any others."""
    quotas = {} if policies is None else policies.backlog_quotas
    return tuple(kind for kind, quota in quotas.items() if quota.policy == EVICTION)


def due_counts(waiting: Waiting, now_ms: int) -> dict[str, int]:
    """Return how many messages are due now, within an hour, two hours and a day, and later."""
    limits = {"now": 0, "within1h": 3_600_000, "within2h": 7_200_000, "within1d": 86_400_000}
    counts: dict[str, Any] = {name: waiting.count_before(now_ms + ahead + 1) for name, ahead in limits.items()}
    return {**counts, "later": waiting.messages - counts["within1d"]}
