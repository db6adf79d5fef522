"""Retention: which ledgers a broker may trim once cursors have moved (pulsar.md §1.9, ``ManagedLedgerImpl.internalTrimLedgers``).

The list of ledgers is trimmed from its head: up to the ledger the slowest durable cursor still needs, as far as retention lets go,
and never the last one listed.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from msgspec import Struct

from pulsar_admin.store.codec.policies import Retention
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import Corrupt, LimitExceeded, MetadataCorrupt, Unsupported
from pulsar_admin.store.model.cursors import iter_cursor_names, read_cursor
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, TopicLedger
from pulsar_admin.store.names import Position
from pulsar_admin.store.policies.in_force import BROKER_RETENTION, find_retention

UNKNOWN_RETENTION = Retention(-1, -1)
"""Of policies that cannot be read: nothing is promised to be deleted."""
_MINUTE_MS = 60_000
_MEGABYTE = 1 << 20

Positions = Mapping[str, Position]
"""Cursor name → mark-delete."""


class Freed(Struct, frozen=True):
    """What a change lets a broker delete, beyond what it could delete before.

    ``kept_by_retention``: ledgers that every cursor has left and retention keeps. ``blocker``: the slowest cursor, which needs the
    next ledger; None without cursors, and when none of them needs anything: what stays then is the last ledger, which always does.
    """

    ledgers: tuple[TopicLedger, ...]
    kept_by_retention: tuple[TopicLedger, ...]
    blocker: tuple[str, Position] | None
    retained: tuple[TopicLedger, ...] = ()
    """The ledgers that ``blocker`` needs."""


def read_mark_deletes(reader: EntryReader, topic: Topic) -> dict[str, Position]:
    """Return where every durable cursor of ``topic`` stands; one that cannot be read counts as standing at the beginning."""
    positions = {}
    for name in iter_cursor_names(reader.txn, topic.name):
        try:
            positions[name] = read_cursor(reader.txn, reader, topic, name).mark_delete
        except (Corrupt, LimitExceeded, Unsupported):
            positions[name] = topic.first_position
    return positions


def freed_ledgers(reader: EntryReader, topic: Topic, before: Positions, after: Positions, now_ms: int) -> Freed:
    """Return what moving the cursors of ``topic`` from ``before`` to ``after`` (all of them, in both) lets a broker delete at
    ``now_ms``."""
    retention = retention_of(reader.txn, topic)
    consumed_before, _ = consumed_ledgers(topic, before)
    consumed, blocker = consumed_ledgers(topic, after)
    old = count_released(topic, consumed_before, retention, now_ms)
    new = count_released(topic, consumed, retention, now_ms)
    return Freed(
        topic.ledgers[old:new], topic.ledgers[new:consumed], blocker, topic.ledgers[consumed:] if blocker else ()
    )


def trimmable(reader: EntryReader, topic: Topic, now_ms: int) -> tuple[TopicLedger, ...]:
    """Return the ledgers of ``topic`` that a broker would delete at ``now_ms``: every durable cursor has left them, retention lets them
    go."""
    return released_ledgers(topic, read_mark_deletes(reader, topic), retention_of(reader.txn, topic), now_ms)


def released_ledgers(topic: Topic, positions: Positions, retention: Retention, now_ms: int) -> tuple[TopicLedger, ...]:
    """Return the ledgers of ``topic`` that a broker would delete at ``now_ms`` with its durable cursors at ``positions``."""
    consumed, _ = consumed_ledgers(topic, positions)
    return topic.ledgers[: count_released(topic, consumed, retention, now_ms)]


def retention_of(txn: Txn, topic: Topic) -> Retention:
    """Return the retention that a broker which sets nothing itself keeps ``topic``'s ledgers by, or the very ``UNKNOWN_RETENTION``."""
    try:
        in_force = find_retention(txn, topic.name)
    except MetadataCorrupt:
        return UNKNOWN_RETENTION
    return BROKER_RETENTION if in_force is None else in_force.retention


def consumed_ledgers(topic: Topic, positions: Positions) -> tuple[int, tuple[str, Position] | None]:
    """Return how many ledgers from the head on no cursor needs, and the slowest cursor that needs the rest."""
    consumed, slowest = consumed_by(topic.ranks, {name: topic.place(position) for name, position in positions.items()})
    return consumed, None if slowest is None else (slowest, positions[slowest])


def consumed_by(ranks: Sequence[int], places: Mapping[str, int]) -> tuple[int, str | None]:
    """Return what ``consumed_ledgers`` does of a topic with ``ranks`` as ``Topic.ranks`` and its cursors at ``places``, as
    ``Topic.place``."""
    last = max(len(ranks) - 2, 0)
    if not places:
        return last, None
    place, slowest = min((place, name) for name, place in places.items())
    return min(bisect_right(ranks, place) - 1, last), slowest if place < ranks[-1] else None


def count_released(topic: Topic, consumed: int, retention: Retention, now_ms: int) -> int:
    """Return how many of the first ``consumed`` ledgers retention lets go: time is over, or the rest is still the size to keep."""
    ledgers = [(ledger.size_bytes, ledger.info.timestamp_ms) for ledger in topic.ledgers]
    return count_let_go(ledgers, consumed, retention, now_ms)


def count_let_go(ledgers: Sequence[tuple[int, int | None]], consumed: int, retention: Retention, now_ms: int) -> int:
    """Return what ``count_released`` does of a topic with ``ledgers``: the size of each in bytes, and when it was closed, 0 or None:
    never."""
    rest = sum(size_bytes for size_bytes, _ in ledgers)
    for index, (size_bytes, closed_ms) in enumerate(ledgers[:consumed]):
        age_ms = now_ms - (closed_ms or now_ms)
        expired = retention.time_minutes >= 0 and age_ms > retention.time_minutes * _MINUTE_MS
        rest -= size_bytes
        if not expired and not (retention.size_mb >= 0 and rest >= retention.size_mb * _MEGABYTE):
            return index
    return consumed
