"""What of a delayed backlog is due when, and what TTL and quotas drop of it before it is due."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulsar_admin.store.codec.policies import EVICTION
from pulsar_admin.store.delayed.waiting import Waiting
from pulsar_admin.store.policies.in_force import QuotaInForce


def evicting_quotas(quotas: Mapping[str, QuotaInForce]) -> tuple[str, ...]:
    """Return the types of the backlog QUOTAS in force that drop delayed messages as any others."""
    return tuple(kind for kind, found in quotas.items() if found.quota.policy == EVICTION)


def due_counts(waiting: Waiting, now_ms: int) -> dict[str, int]:
    """Return how many messages are due now, within an hour, two hours and a day, and later."""
    limits = {"now": 0, "within1h": 3_600_000, "within2h": 7_200_000, "within1d": 86_400_000}
    counts: dict[str, Any] = {name: waiting.count_before(now_ms + ahead + 1) for name, ahead in limits.items()}
    return {**counts, "later": waiting.messages - counts["within1d"]}
