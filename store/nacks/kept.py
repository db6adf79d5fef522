"""Read model of the negative acks that a store keeps for scripts: whose they are, what is due, how much waits.

The rows of a subscription lie in the order they become due, so what is due is a range that ends at the first bucket that
is not; nothing behind it is read. Imports no numpy: a cron job asks every minute.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import field

from pulsar_admin.store.db import nacks
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import IndexCorrupt
from pulsar_admin.store.names import Position
from pulsar_admin.store.wording import Answer

if TYPE_CHECKING:
    from pyroaring import BitMap64


class KeptGroup(Answer, frozen=True):
    """The entries of one ledger that are due together, as they are stored under ``key``."""

    topic: str
    subscription: str
    due_ms: int
    ledger_id: int
    entry_ids: BitMap64
    key: bytes
    value: bytes

    @property
    def order(self) -> tuple[int, str, str, int]:
        """What groups are sorted by: when they are due, then topic, subscription and ledger."""
        return self.due_ms, self.topic, self.subscription, self.ledger_id

    def positions(self) -> Iterator[Position]:
        """Yield the entries."""
        for entry_id in self.entry_ids:
            yield Position(self.ledger_id, entry_id)


class KeptStats(Answer, frozen=True):
    """What waits for one subscription; ``buckets`` are times, ``bitmaps`` are pairs of a time and a ledger."""

    topic: str
    subscription: str
    precision_bits: int
    entries: int
    due_entries: int
    ledgers: int
    buckets: int
    bitmaps: int
    size_bytes: int = field(name="bytes")
    next_deadline_ms: int | None
    last_deadline_ms: int | None


def iter_trackers(txn: Txn) -> Iterator[nacks.TrackerRow]:
    """Yield every subscription that nacks are or were kept for; raises IndexCorrupt, Unsupported."""
    for key, value in txn.items("nacks", nacks.TRACKER):
        yield nacks.decode_tracker_row(key, value)


def find_tracker(txn: Txn, topic: str, subscription: str) -> nacks.TrackerRow | None:
    """Return the tracker of a subscription, or None; raises IndexCorrupt, Unsupported."""
    key = nacks.tracker_key(nacks.tracker_id(topic, subscription))
    value = txn.view("nacks", key)
    return None if value is None else nacks.decode_tracker_row(key, value)


def iter_due(txn: Txn, trackers: Iterable[nacks.TrackerRow], now_ms: int) -> Iterator[KeptGroup]:
    """Yield what is due now, in order of (bucket, topic, subscription, ledger); what is not due is not read."""
    return heapq.merge(*(_iter_due(txn, tracker, now_ms) for tracker in trackers), key=lambda group: group.order)


def _iter_due(txn: Txn, tracker: nacks.TrackerRow, now_ms: int) -> Iterator[KeptGroup]:
    for key, value in txn.items("nacks", nacks.bucket_prefix(tracker.id)):
        if nacks.bucket_of_key(key)[1] > now_ms:
            return
        yield group_of(tracker.topic, tracker.subscription, key, bytes(value))


def group_of(topic: str, subscription: str, key: bytes, value: bytes) -> KeptGroup:
    """Return the group in one row; raises IndexCorrupt, Unsupported."""
    _, bucket_ms, ledger_id = nacks.bucket_of_key(key)
    return KeptGroup(topic, subscription, bucket_ms, ledger_id, nacks.decode_bucket_row(key, value), key, value)


def next_deadline_ms(txn: Txn, tracker: nacks.TrackerRow, after_ms: int = -1) -> int | None:
    """Return a tracker's earliest bucket after ``after_ms``, or None."""
    prefix = nacks.bucket_prefix(tracker.id)
    start = prefix + max(after_ms + 1, 0).to_bytes(8, "big")
    for key, _ in txn.items("nacks", prefix, start):
        return nacks.bucket_of_key(key)[1]
    return None


def pending_entries(txn: Txn, tracker: nacks.TrackerRow) -> int:
    """Return how many entries wait, once per bucket; reads the head of every row of the tracker."""
    return sum(
        nacks.bucket_row_entries(key, value) for key, value in txn.items("nacks", nacks.bucket_prefix(tracker.id))
    )


def read_stats(txn: Txn, tracker: nacks.TrackerRow, now_ms: int) -> KeptStats:
    """Return what waits for the subscription of a tracker, from the heads of its rows."""
    ledgers: set[int] = set()
    entries = due = buckets = bitmaps = size = 0
    first: int | None = None
    last: int | None = None
    for key, value in txn.items("nacks", nacks.bucket_prefix(tracker.id)):
        _, bucket_ms, ledger_id = nacks.bucket_of_key(key)
        count = nacks.bucket_row_entries(key, value)
        first = bucket_ms if first is None else first
        buckets += bucket_ms != last
        last = bucket_ms
        ledgers.add(ledger_id)
        bitmaps += 1
        entries += count
        due += count if bucket_ms <= now_ms else 0
        size += len(key) + len(value)
    return KeptStats(
        topic=tracker.topic,
        subscription=tracker.subscription,
        precision_bits=tracker.precision_bits,
        entries=entries,
        due_entries=due,
        ledgers=len(ledgers),
        buckets=buckets,
        bitmaps=bitmaps,
        size_bytes=size,
        next_deadline_ms=first,
        last_deadline_ms=last,
    )


def iter_wrong_rows(txn: Txn) -> Iterator[IndexCorrupt]:
    """Yield what is wrong with the rows of kept nacks: damage, trimmed times that are none, rows of no tracker.

    Raises Unsupported for a newer row.
    """
    trackers: dict[bytes, nacks.TrackerRow] = {}
    for key, value in txn.items("nacks"):
        try:
            if key[:1] == nacks.TRACKER:
                trackers[key[1:]] = nacks.decode_tracker_row(key, value)
                continue
            identity, _, _ = nacks.bucket_of_key(key)
            nacks.decode_bucket_row(key, value)
        except IndexCorrupt as error:
            yield error
            continue
        if identity not in trackers:
            yield IndexCorrupt(
                f"the row of negative acks {key.hex()} belongs to no subscription",
                hint="its tracker row is lost; the changes that wrote it: pulsar-admin store log",
                key=key.hex(),
            )
