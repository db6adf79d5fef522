"""Delayed messages of a backlog: which wait for their time, and what a TTL does to them."""

from __future__ import annotations

from store.codec.cursor import CursorState
from store.frozen import frozen
from store.model.cursors import Cursor
from store.model.extent import iter_ledger_parts, pending_intervals
from store.model.reader import EntryReader
from store.model.topics import Topic
from store.names import Position
from store.policies.in_force import find_delivery, find_message_ttl


@frozen
class NotDue:
    """The entries of a backlog that wait for their time: how many, and when the first and the last of them are due.

    ``unread``: entries that could not be read.
    """

    entries: int
    next_due_ms: int | None
    last_due_ms: int | None
    unread: int = 0


@frozen
class TtlConflict:
    """Delayed messages that the TTL drops before they are due: how many, and those due first."""

    ttl_seconds: int
    source: str
    messages: int
    first: tuple[Position, ...]


def find_ttl_conflict(reader: EntryReader, topic: Topic, cursor: Cursor) -> TtlConflict | None:
    """Return what the TTL in force drops of CURSOR's backlog before it is due; None without a TTL.

    An entry expires when its publish time (broker time where it has one) is more than the TTL ago.
    """
    ttl = find_message_ttl(reader.txn, topic.name)
    if ttl is None or ttl.seconds <= 0:
        return None
    from store.search.before_due import expiring_before_due  # numpy

    early = expiring_before_due(reader, topic, cursor, ttl.seconds * 1000)
    return TtlConflict(ttl.seconds, ttl.source, early.messages, tuple(one.position for one in early.first))


def read_not_due(reader: EntryReader, topic: Topic, state: CursorState, now_ms: int) -> NotDue:
    """Return which entries of a backlog are due after NOW_MS; none where delayed delivery is disabled. Reads all headers of it.

    Raises SourceChanged, EntryLogCorrupt, MetadataCorrupt.
    """
    in_force = find_delivery(reader.txn, topic.name)
    intervals = pending_intervals(topic, state)
    if not intervals or (in_force is not None and not in_force.delivery.active):
        return NotDue(0, None, None)
    from store.scan.entries import EntryScan

    scan = EntryScan(
        reader, (part for start, end in intervals for part in iter_ledger_parts(topic, start, end)), heads=True
    )
    entries, edges = 0, []
    for batch in scan.batches():
        due = batch.rows["deliver_at_ms"]
        due = due[due > now_ms]
        if len(due):
            entries += len(due)
            edges += [int(due.min()), int(due.max())]
    return NotDue(entries, min(edges, default=None), max(edges, default=None), scan.missing + len(scan.unreadable))
