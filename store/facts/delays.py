"""Delayed messages of a backlog: which wait for their time, and what a TTL does to them."""

from __future__ import annotations

from msgspec import Struct

from pulsar_admin.store.model.cursors import Cursor
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position
from pulsar_admin.store.policies.in_force import find_message_ttl


class NotDue(Struct, frozen=True):
    """The entries of a backlog that wait for their time: how many, and when the first and the last of them are due.

    ``unread``: entries that could not be read.
    """

    entries: int
    next_due_ms: int | None
    last_due_ms: int | None
    unread: int = 0


class TtlConflict(Struct, frozen=True):
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
    from pulsar_admin.store.search.before_due import expiring_before_due  # numpy

    early = expiring_before_due(reader, topic, cursor, ttl.seconds * 1000)
    return TtlConflict(ttl.seconds, ttl.source, early.messages, tuple(one.position for one in early.first))
