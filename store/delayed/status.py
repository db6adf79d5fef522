"""What of a delayed backlog is due when, and what TTL and quotas drop of it before it is due."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from store.codec.policies import EVICTION
from store.delayed.expiry import expiring_before_due
from store.delayed.waiting import Waiting
from store.frozen import frozen
from store.model.cursors import Cursor
from store.model.reader import EntryReader
from store.model.topics import Topic
from store.names import Position
from store.policies.in_force import QuotaInForce, find_message_ttl


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
    early = expiring_before_due(reader, topic, cursor, ttl.seconds * 1000)
    return TtlConflict(ttl.seconds, ttl.source, early.messages, tuple(one.position for one in early.first))


def evicting_quotas(quotas: Mapping[str, QuotaInForce]) -> tuple[str, ...]:
    """Return the types of the backlog QUOTAS in force that drop delayed messages as any others."""
    return tuple(kind for kind, found in quotas.items() if found.quota.policy == EVICTION)


def due_counts(waiting: Waiting, now_ms: int) -> dict[str, int]:
    """Return how many messages are due now, within an hour, two hours and a day, and later."""
    limits = {"now": 0, "within1h": 3_600_000, "within2h": 7_200_000, "within1d": 86_400_000}
    counts: dict[str, Any] = {name: waiting.count_before(now_ms + ahead + 1) for name, ahead in limits.items()}
    return {**counts, "later": waiting.messages - counts["within1d"]}
