"""What of a delayed backlog is due when, and what TTL and quotas drop of it before it is due."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from store.codec.delayedindex import Array
from store.codec.policies import Policies
from store.cursors import Cursor
from store.delayed.backlog import parts_of
from store.delayed.waiting import Waiting
from store.extent import pending_intervals
from store.ledgers import EntryReader
from store.names import Position
from store.plans.delayed import EVICTION
from store.policies_in_force import find_message_ttl
from store.scan.delays import due_times
from store.scan.entries import EntryScan
from store.topics import Topic


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
