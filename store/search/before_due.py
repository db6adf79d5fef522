"""Delayed messages that are dropped before they are due: by an expiry, or by a TTL.

Upstream counts a message's age from when it was appended, never from when it is due (pulsar.md §3.5).
"""

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.model.cursors import Cursor, Intervals, parts_of, pending_intervals
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position
from pulsar_admin.store.wording import Answer

FIRST = 5
"""How many are named."""


class Delayed(Struct, frozen=True):
    """A message that is to be delivered at ``due_ms``."""

    position: Position
    due_ms: int


class TooEarly(Struct, frozen=True):
    """Messages that are dropped before they are due: how many, and those due first. ``unread``: entries that could not be read."""

    messages: int
    first: tuple[Delayed, ...]
    unread: int


class TtlConflict(Answer, frozen=True):
    """Delayed messages that the TTL drops before they are due: how many, and those due first."""

    ttl_seconds: int
    source: str
    messages: int
    first: tuple[Position, ...]


def dropped_before_due(reader: EntryReader, topic: Topic, dropped: Intervals, now_ms: int) -> TooEarly:
    """Return the messages among the ranks ``dropped`` that are due after ``now_ms``; raises SourceChanged, EntryLogCorrupt."""
    return _read(reader, topic, dropped, lambda due, born: due > now_ms)


def expiring_before_due(reader: EntryReader, topic: Topic, cursor: Cursor, ttl_ms: int) -> TooEarly:
    """Return the messages of a cursor's backlog that a TTL drops before they are due; raises SourceChanged, EntryLogCorrupt.

    An entry expires when its broker time, or without one its publish time, is more than the TTL ago.
    """
    pending = pending_intervals(topic, cursor.state)
    # Not born + TTL: a due time near the end of 64 bits, or a TTL of centuries, must not wrap around.
    return _read(reader, topic, pending, lambda due, born: (born >= 0) & (due - born > ttl_ms))


def find_ttl_conflict(reader: EntryReader, topic: Topic, cursor: Cursor, seconds: int, source: str) -> TtlConflict:
    """Return ``expiring_before_due`` for a TTL of ``seconds`` that ``source`` sets, with positions instead of messages."""
    early = expiring_before_due(reader, topic, cursor, seconds * 1000)
    return TtlConflict(seconds, source, early.messages, tuple(one.position for one in early.first))


def _read(reader: EntryReader, topic: Topic, intervals: Intervals, chosen: Callable[[Array, Array], Array]) -> TooEarly:
    from pulsar_admin.store.scan.entries import EntryScan

    scan = EntryScan(reader, parts_of(topic, intervals), heads=True)
    count = 0
    first: list[Delayed] = []
    for batch in scan.batches():
        due = batch.rows["deliver_at_ms"]
        born: Array = np.where(batch.rows["broker_ms"] > 0, batch.rows["broker_ms"], batch.rows["publish_ms"])
        indexes = np.flatnonzero((due > 0) & chosen(due, born))
        count += len(indexes)
        earliest = indexes[np.argsort(due[indexes], kind="stable")[:FIRST]]
        first += [
            Delayed(Position(int(batch.ledger_ids[index]), int(batch.entry_ids[index])), int(due[index]))
            for index in earliest
        ]
        first = sorted(first, key=lambda one: (one.due_ms, one.position))[:FIRST]
    return TooEarly(count, tuple(first), scan.missing + len(scan.unreadable))
