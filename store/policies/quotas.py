"""Whether a topic has reached a backlog quota (``PersistentTopic.isSizeBacklogExceeded`` and ``estimatedTimeBasedBacklogQuotaCheck``,
4.0.8): the size is exceeded at the limit or more, the time beyond the limit, and the ledger that is still written has no age.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from pulsar_admin.store.codec.policies import EVICTION, BacklogQuota
from pulsar_admin.store.model.cursors import backlog_size_bytes, is_subscription
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position
from pulsar_admin.store.policies.in_force import QuotaInForce

SIZE, AGE = "destination_storage", "message_age"


class QuotaState(Struct, frozen=True):
    """A backlog quota in force and how much of it is used by ``slowest``, the cursor with the earliest mark-delete position.

    ``used`` and ``limit``: bytes of backlog, or for ``message_age`` milliseconds since the ledger of the backlog's
    first message was closed. ``closed_ms``: that time; None for a size, while that ledger is open, and if no
    subscription has a backlog. ``slowest``: the name of a cursor, "" if the topic has none.
    """

    kind: str
    quota: BacklogQuota
    source: str
    slowest: str
    used: int
    limit: int
    closed_ms: int | None
    is_reached: bool

    @property
    def is_size(self) -> bool:
        """Whether the quota limits bytes rather than the age of the oldest message."""
        return self.kind == SIZE

    @property
    def evicts(self) -> bool:
        """Whether a broker drops messages when the quota is reached; otherwise it rejects producers or makes them wait."""
        return self.quota.policy == EVICTION


def iter_quota_states(
    topic: Topic, mark_deletes: Mapping[str, Position], quotas: Mapping[str, QuotaInForce], now_ms: int
) -> Iterator[QuotaState]:
    """Yield the state of each of ``quotas`` (by type) that has a limit, for the durable cursors of ``topic`` at
    ``mark_deletes``.

    None for a system topic; without a cursor, only that of a limit of 0 bytes that refuses producers. Quotas of broker.conf
    (``backlogQuotaDefaultLimitBytes``) are not in a store.
    """
    if topic.name.is_system:  # upstream's SystemTopic has no quotas
        return
    slowest = min(mark_deletes, key=lambda name: (topic.place(mark_deletes[name]), name), default="")
    at = mark_deletes.get(slowest)
    # Upstream ``PersistentTopic.updateOldPositionInfo``: nothing has an age while no subscription has a backlog.
    has_backlog = any(is_subscription(name) and topic.entries_after(mark) for name, mark in mark_deletes.items())
    for kind, limit_set in quotas.items():
        quota = limit_set.quota
        if at is None:  # a backlog of 0 bytes, with nothing to evict (upstream ``getEstimatedBacklogSize``)
            if kind == SIZE and quota.limit_size_bytes == 0 and quota.policy != EVICTION:
                yield QuotaState(kind, quota, limit_set.source, "", 0, 0, None, True)
        elif kind == SIZE and quota.limit_size_bytes >= 0:
            used, limit = backlog_size_bytes(topic, at), quota.limit_size_bytes
            yield QuotaState(kind, quota, limit_set.source, slowest, used, limit, None, used >= limit)
        elif kind == AGE and quota.limit_time_seconds > 0:
            closed_ms = _closed_ms(topic, at) if has_backlog else None
            used = 0 if closed_ms is None else now_ms - closed_ms
            limit = quota.limit_time_seconds * 1000
            yield QuotaState(kind, quota, limit_set.source, slowest, used, limit, closed_ms, used > limit)


def _closed_ms(topic: Topic, mark_delete: Position) -> int | None:
    """Return when the ledger of the first entry after ``mark_delete`` was closed; None for the topic's last or an open
    ledger."""
    if not topic.ids or mark_delete.ledger_id == topic.ids[-1]:
        return None
    if topic.ledger(mark_delete.ledger_id) is None:  # a lone entry counts as consumed then: upstream goes on from it
        mark_delete = topic.next_valid(mark_delete)
    ledger = topic.ledger(mark_delete.ledger_id)
    if ledger is None or mark_delete.entry_id + 1 >= ledger.entries:
        ledger = topic.ledger(topic.next_valid(mark_delete).ledger_id)
    return None if ledger is None else ledger.info.timestamp_ms or None
