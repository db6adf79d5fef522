"""Retention: which ledgers a broker may trim once cursors have moved (pulsar.md §1.9,
``ManagedLedgerImpl.internalTrimLedgers``).

A broker trims the list of ledgers from its start, up to the first ledger that the slowest durable cursor still needs or
retention still keeps, and never the last ledger.
"""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from pulsar_admin.store.codec.policies import Retention
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import Corrupt, LimitExceeded, MetadataCorrupt, Unsupported
from pulsar_admin.store.model.cursors import COMPACTION_CURSOR, iter_cursor_names, read_cursor
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, TopicLedger
from pulsar_admin.store.names import Position, TopicName
from pulsar_admin.store.policies.in_force import read_in_force
from pulsar_admin.store.policies.table import policies_by_name
from pulsar_admin.store.policies.values import value_in_force

UNKNOWN_RETENTION = Retention(-1, -1)
"""The retention assumed for unreadable policies: unlimited, so that no ledger is reported as deletable."""
_MINUTE_MS = 60_000
_MEGABYTE = 1 << 20

Positions = Mapping[str, Position]
"""Cursor name → mark-delete."""


class Freed(Struct, frozen=True):
    """The ``ledgers`` that a broker may delete after a change and could not delete before.

    ``kept_by_retention``: ledgers that no cursor needs and retention keeps. ``blocker``: name and mark-delete position
    of the slowest cursor, which needs the next ledger; None if no cursor needs a ledger: then only the last ledger stays.
    """

    ledgers: tuple[TopicLedger, ...]
    kept_by_retention: tuple[TopicLedger, ...]
    blocker: tuple[str, Position] | None
    retained: tuple[TopicLedger, ...] = ()
    """The ledgers that ``blocker`` needs."""


def read_mark_deletes(reader: EntryReader, topic: Topic) -> dict[str, Position]:
    """Return name → mark-delete position of the durable cursors of ``topic``; an unreadable one counts as at its first
    position, and so does that of compaction if a broker is to create it."""
    positions = {}
    for name in iter_cursor_names(reader.txn, topic.name):
        try:
            positions[name] = read_cursor(reader.txn, reader, topic, name).mark_delete
        except (Corrupt, LimitExceeded, Unsupported):
            positions[name] = topic.first_position
    with suppress(MetadataCorrupt):  # ``retention_of`` then keeps every ledger
        if begins_compaction(reader.txn, topic.name, positions):
            positions[COMPACTION_CURSOR] = topic.first_position
    return positions


def freed_ledgers(reader: EntryReader, topic: Topic, before: Positions, after: Positions, now_ms: int) -> Freed:
    """Return what a broker may delete at ``now_ms`` once the cursors of ``topic`` moved from ``before`` to ``after``.

    Both name all durable cursors.
    """
    retention = retention_of(reader.txn, topic)
    consumed_before, _ = consumed_ledgers(topic, before)
    consumed, blocker = consumed_ledgers(topic, after)
    old = count_released(topic, consumed_before, retention, now_ms)
    new = count_released(topic, consumed, retention, now_ms)
    return Freed(
        topic.ledgers[old:new], topic.ledgers[new:consumed], blocker, topic.ledgers[consumed:] if blocker else ()
    )


def trimmable(reader: EntryReader, topic: Topic, now_ms: int) -> tuple[TopicLedger, ...]:
    """Return the ledgers of ``topic`` that a broker would delete at ``now_ms``: no durable cursor needs them, nor does
    retention."""
    return released_ledgers(topic, read_mark_deletes(reader, topic), retention_of(reader.txn, topic), now_ms)


def begins_compaction(txn: Txn, topic: TopicName, cursors: Collection[str]) -> bool:
    """Whether a broker that loads ``topic`` first creates compaction's cursor, at the topic's beginning; raises MetadataCorrupt.

    It does so if a compaction threshold applies, here also one that is no number, and for a system topic (upstream
    ``preCreateSubscriptionForCompactionIfNeeded``, ``SystemTopic.isCompactionEnabled``).
    """
    if COMPACTION_CURSOR in cursors or topic.is_system:
        return COMPACTION_CURSOR not in cursors and not topic.is_of_transactions
    threshold, _ = value_in_force(txn, topic, policies_by_name()["compaction-threshold"], {})
    return threshold is not None and (not isinstance(threshold, int) or threshold > 0)


def released_ledgers(topic: Topic, positions: Positions, retention: Retention, now_ms: int) -> tuple[TopicLedger, ...]:
    """Return the ledgers of ``topic`` that a broker would delete at ``now_ms`` with its durable cursors at ``positions``."""
    consumed, _ = consumed_ledgers(topic, positions)
    return topic.ledgers[: count_released(topic, consumed, retention, now_ms)]


def retention_of(txn: Txn, topic: Topic) -> Retention:
    """Return the retention in force, by default the broker's; the object ``UNKNOWN_RETENTION`` if policies are damaged.

    Also where the topic's own can be read and its namespace's cannot: whether compaction keeps ledgers is then unknown.
    """
    try:
        return read_in_force(txn, topic.name).applied_retention.retention
    except MetadataCorrupt:
        return UNKNOWN_RETENTION


def consumed_ledgers(topic: Topic, positions: Positions) -> tuple[int, tuple[str, Position] | None]:
    """Return how many of the topic's first ledgers no cursor needs, and (name, position) of the slowest cursor that
    needs the next.

    None instead of the cursor if none needs the rest.
    """
    consumed, slowest = consumed_by(topic.ranks, {name: topic.place(position) for name, position in positions.items()})
    return consumed, None if slowest is None else (slowest, positions[slowest])


def consumed_by(ranks: Sequence[int], places: Mapping[str, int]) -> tuple[int, str | None]:
    """Return ``consumed_ledgers`` for a topic whose ``Topic.ranks`` are ``ranks``, its cursors at ``places`` (see
    ``Topic.place``).

    Of the slowest cursor only the name.
    """
    last = max(len(ranks) - 2, 0)
    if not places:
        return last, None
    place, slowest = min((place, name) for name, place in places.items())
    return min(bisect_right(ranks, place) - 1, last), slowest if place < ranks[-1] else None


def count_released(topic: Topic, consumed: int, retention: Retention, now_ms: int) -> int:
    """Return how many of the first ``consumed`` ledgers retention does not keep: they are old enough, or the rest is
    large enough."""
    ledgers = [(ledger.size_bytes, ledger.info.timestamp_ms) for ledger in topic.ledgers]
    return count_let_go(ledgers, consumed, retention, now_ms)


def count_let_go(ledgers: Sequence[tuple[int, int | None]], consumed: int, retention: Retention, now_ms: int) -> int:
    """Return ``count_released`` for a topic with ``ledgers``: (size in bytes, close time in epoch ms; 0 or None for an
    open one)."""
    rest = sum(size_bytes for size_bytes, _ in ledgers)
    for index, (size_bytes, closed_ms) in enumerate(ledgers[:consumed]):
        age_ms = now_ms - (closed_ms or now_ms)
        expired = retention.time_minutes >= 0 and age_ms > retention.time_minutes * _MINUTE_MS
        rest -= size_bytes
        if not expired and not (retention.size_mb >= 0 and rest >= retention.size_mb * _MEGABYTE):
            return index
    return consumed
