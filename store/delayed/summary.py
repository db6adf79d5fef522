"""Summaries of the delayed messages of subscriptions under the policy in force, and of policies that drop them early."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from pulsar_admin.store.changes.policies import DelayedPolicy, find_rules
from pulsar_admin.store.codec.policies import EVICTION
from pulsar_admin.store.db.delayed import find_index
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.delayed.backlog import intervals_of
from pulsar_admin.store.delayed.trackers import Tracker, estimate_trackers
from pulsar_admin.store.delayed.waiting import Waiting, open_waiting, without_delay
from pulsar_admin.store.model.cursors import Cursor, pending_intervals, subtract
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.policies.in_force import (
    DeliveryInForce,
    QuotaInForce,
    find_delivery,
    find_message_ttl,
    find_quotas,
)
from pulsar_admin.store.scan.integer_rows import RunFile
from pulsar_admin.store.search.before_due import TtlConflict, find_ttl_conflict
from pulsar_admin.store.wording import Answer, counted


def evicting_quotas(quotas: Mapping[str, QuotaInForce]) -> tuple[str, ...]:
    """Return the types of the quotas in force that evict the backlog, delayed messages included."""
    return tuple(kind for kind, limit in quotas.items() if limit.quota.policy == EVICTION)


def due_counts(waiting: Waiting, now_ms: int) -> dict[str, int]:
    """Return how many messages are due ``now``, ``within1h``, ``within2h``, ``within1d`` (each including those before),
    ``later``."""
    limits = {"now": 0, "within1h": 3_600_000, "within2h": 7_200_000, "within1d": 86_400_000}
    counts: dict[str, Any] = {name: waiting.count_before(now_ms + ahead + 1) for name, ahead in limits.items()}
    return {**counts, "later": waiting.messages - counts["within1d"]}


class Delivery(Struct, frozen=True):
    """The delayed messages of a cursor, and the policy in force (None: the broker's default)."""

    topic: Topic
    cursor: Cursor
    waiting: Waiting
    in_force: DeliveryInForce | None
    warnings: tuple[str, ...] = ()


class IndexSummary(Answer, frozen=True):
    """The index of one subscription: the position up to which it was built, its lag, and its size."""

    cursor: str
    lag_entries: int
    current: bool
    messages: int
    partitions: int
    ledgers: int
    size_bytes: int = field(name="bytes")
    bytes_per_message: float | None
    built_ms: int


class DelayedSummary(Answer, frozen=True):
    """The delayed messages in a subscription's backlog. ``due``: see ``due_counts``.

    ``trackers``: estimates of a broker's own trackers; ``ttl_conflict`` and ``evicting_quotas``: policies that drop
    messages before they are due.
    """

    topic: str
    subscription: str | None
    policy: Mapping[str, Any]  # Any: JSON values
    policy_source: str | None
    messages: int
    due: Mapping[str, int]
    first_due_ms: int | None
    last_due_ms: int | None
    index: IndexSummary | None
    trackers: tuple[Tracker, ...]
    ttl_conflict: TtlConflict | None
    evicting_quotas: tuple[str, ...]


def open_deliveries(
    reader: EntryReader, cursors: Sequence[tuple[Topic, Cursor]], file: RunFile, now_ms: int
) -> Iterator[Delivery]:
    """Yield the delayed messages of each cursor under the policy in force; all are due now if the policy disables delays.

    Valid while ``file`` is open.
    """
    for (topic, cursor), waiting in zip(cursors, open_waiting(reader, cursors, file), strict=True):
        in_force = find_delivery(reader.txn, topic.name)
        if in_force is None or in_force.delivery.active or not waiting.messages:
            yield Delivery(topic, cursor, waiting, in_force)
            continue
        warning = (
            f"{topic.name} {cursor.name}: delayed delivery is disabled ({in_force.source} policy): a broker gives all "
            f"{counted(waiting.messages, 'message')} at once"
        )
        yield Delivery(topic, cursor, without_delay(waiting, now_ms), in_force, (warning,))


def check_delivery(txn: Txn, topic: Topic, cursor: Cursor) -> tuple[Topic, Cursor]:
    """Return ``topic`` and ``cursor`` if ``open_deliveries`` can read their policy and index.

    Raises IndexCorrupt, MetadataCorrupt, Unsupported.
    """
    find_delivery(txn, topic.name)
    find_index(txn, topic.name, cursor.name)
    return topic, cursor


def summarize(reader: EntryReader, delivery: Delivery, now_ms: int) -> DelayedSummary:
    """Return the summary of a cursor's delayed messages; raises IndexCorrupt, MetadataCorrupt."""
    topic, cursor, waiting, in_force = delivery.topic, delivery.cursor, delivery.waiting, delivery.in_force
    policy = None if in_force is None else in_force.delivery
    edges = waiting.edges()
    is_delayed = policy is None or policy.active
    tick_ms = policy.tick_time_ms if policy is not None and policy.tick_time_ms > 0 else waiting.rules.tick_ms
    return DelayedSummary(
        topic=str(topic.name),
        subscription=cursor.name or None,
        policy=DelayedPolicy(policy, find_rules(reader.txn, topic.name.namespace)).as_json(),
        policy_source=None if in_force is None else in_force.source,
        messages=waiting.messages,
        due=due_counts(waiting, now_ms),
        first_due_ms=None if edges is None else edges[0],
        last_due_ms=None if edges is None else edges[1],
        index=_index(reader, topic, cursor, waiting),
        trackers=tuple(estimate_trackers(reader, topic, cursor, waiting, tick_ms)),
        ttl_conflict=_conflict(reader, topic, cursor) if is_delayed else None,
        evicting_quotas=evicting_quotas(find_quotas(reader.txn, topic.name)),
    )


def _conflict(reader: EntryReader, topic: Topic, cursor: Cursor) -> TtlConflict | None:
    ttl = find_message_ttl(reader.txn, topic.name)
    if ttl is None or ttl.seconds <= 0:
        return None
    return find_ttl_conflict(reader, topic, cursor, ttl.seconds, ttl.source)


def _index(reader: EntryReader, topic: Topic, cursor: Cursor, waiting: Waiting) -> IndexSummary | None:
    index = find_index(reader.txn, topic.name, cursor.name)
    if index is None:
        return None
    left = subtract(pending_intervals(topic, cursor.state), intervals_of(topic, index.covered))
    return IndexSummary(
        cursor=str(index.cursor),
        lag_entries=sum(end - start for start, end in left),
        current=waiting.index is not None,
        messages=index.messages,
        partitions=len(index.partitions),
        ledgers=len(index.ledger_ids),
        size_bytes=index.bytes,
        bytes_per_message=round(index.bytes / index.messages, 3) if index.messages else None,
        built_ms=index.built_ms,
    )
