"""What brokers delete if they start and load every topic while no client connects.

Upstream (Pulsar 4.0.8): ``ManagedLedgerImpl.internalTrimLedgers`` with retention, ``PersistentMessageExpiryMonitor`` with a TTL, and
``PersistentTopic.checkGC``, which deletes unused topics. Loading a topic closes its last ledger and opens a new one, so the previously
last ledger may be deleted as well. System topics are excluded: they expire nothing, and inactivity never deletes them.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import field
from msgspec.structs import replace

from pulsar_admin.store.codec.managedledger import LedgerInfo
from pulsar_admin.store.codec.policies import Retention
from pulsar_admin.store.codec.properties import read_properties
from pulsar_admin.store.db.bookies import iter_imported_bookies
from pulsar_admin.store.errors import InvalidValue, NotSeen, StoreError
from pulsar_admin.store.model.cursors import (
    COMPACTION_CURSOR,
    REPLICATOR_PREFIX,
    Cursor,
    CursorSource,
    backlog_entries,
    is_consumed,
    is_subscription,
    iter_cursor_names,
    read_cursor,
)
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, TopicLedger, iter_topics, read_topic
from pulsar_admin.store.names import TopicName
from pulsar_admin.store.policies.in_force import BROKER, find_message_ttl, find_retention
from pulsar_admin.store.policies.retention import Positions, begins_compaction, released_ledgers
from pulsar_admin.store.policies.table import policies_by_name
from pulsar_admin.store.policies.values import value_in_force
from pulsar_admin.store.search.broker import BrokerSearch
from pulsar_admin.store.search.broker_setup import BrokerSetup
from pulsar_admin.store.wording import Answer

CAUGHT_UP = "delete_when_subscriptions_caught_up"
ROWS_MAX = 1_000
_MINUTE_SECONDS = 60
_NUMBER = re.compile(r"-?\d{1,18}")


class BrokerDefaults(Answer, frozen=True):
    """A broker's behaviour without policies: the settings of ``broker.conf``, by default Pulsar's."""

    retention_minutes: int = 0
    retention_mb: int = 0
    ttl_seconds: int = 0
    deletes_inactive: bool = True
    inactive_mode: str = "delete_when_no_subscriptions"
    inactive_seconds: int = 60


class TopicsDeleted(Answer, frozen=True):
    """Topics that a broker deletes, with the number and payload bytes of their ledgers."""

    topics: int = 0
    ledgers: int = 0
    bytes: int = 0


class TopicForecast(Answer, frozen=True):
    """What a broker deletes of a topic.

    ``trimmed``: ledgers that every cursor has passed; ``expired``: those that cursors pass by a TTL; ``expires``:
    entries that subscriptions lose by it; ``inactive``: the topic itself is deleted, ``after_seconds`` after its
    loading.
    """

    topic: str
    bytes: int
    trimmed_ledgers: int
    trimmed_bytes: int
    expired_ledgers: int
    expired_bytes: int
    expires: int
    inactive: bool
    after_seconds: int | None
    unread_cursors: int

    @property
    def lost_bytes(self) -> int:
        """How many bytes of the topic a broker deletes."""
        return self.bytes if self.inactive else self.trimmed_bytes + self.expired_bytes


class BrokerForecast(Answer, frozen=True):
    """The sums over all topics: ``trimmed`` and ``expired`` of topics that stay, ``inactive`` of topics that are
    deleted. ``percent`` of all bytes.

    ``unread_cursors``: cursors whose own ledgers are not imported; they are assumed to be at the beginning.
    """

    defaults: BrokerDefaults
    topics: int
    bytes: int
    trimmed: TopicsDeleted
    expired: TopicsDeleted
    expires: int = field(name="entriesExpired")
    inactive: TopicsDeleted
    percent: float
    unread_cursors: int
    rows: tuple[TopicForecast, ...]
    problems: tuple[str, ...]


def read_broker_conf(file: Path) -> BrokerDefaults:
    """Return the defaults that a ``broker.conf`` sets; raises SourceNotFound, InvalidValue."""
    settings = read_properties(file, "name a broker.conf", errors="replace")

    def number(key: str, default: int) -> int:
        text = settings.get(key, "").strip() or str(default)
        if not _NUMBER.fullmatch(text):
            raise InvalidValue(f"{file}: {key}={text[:40]} is not a number", path=str(file))
        return int(text)

    plain = BrokerDefaults()
    # Upstream (``ServiceConfiguration``): without a duration of its own, a topic is inactive after one round of the check.
    frequency = number("brokerDeleteInactiveTopicsFrequencySeconds", plain.inactive_seconds)
    return BrokerDefaults(
        number("defaultRetentionTimeInMinutes", plain.retention_minutes),
        number("defaultRetentionSizeInMB", plain.retention_mb),
        number("ttlDurationDefaultInSeconds", plain.ttl_seconds),
        settings.get("brokerDeleteInactiveTopicsEnabled", "true").strip() != "false",
        settings.get("brokerDeleteInactiveTopicsMode", "").strip() or plain.inactive_mode,
        number("brokerDeleteInactiveTopicsMaxInactiveDurationSeconds", frequency),
    )


def read_broker_forecast(reader: EntryReader, now_ms: int, defaults: BrokerDefaults) -> BrokerForecast:
    """Return what brokers with these defaults delete if they load every topic at ``now_ms``."""
    problems: list[str] = []
    count = size = expires = unread = 0
    sums: dict[str, list[int]] = {"trimmed": [0, 0, 0], "expired": [0, 0, 0], "inactive": [0, 0, 0]}
    rows: list[TopicForecast] = []
    for name in iter_topics(reader.txn):
        if name.is_system:
            continue
        try:
            row = _forecast(reader, name, now_ms, defaults)
        except StoreError as error:
            problems.append(f"{name}: {error.message}")
            continue
        count, size, unread = count + 1, size + row.bytes, unread + row.unread_cursors
        if row.inactive:
            _add(sums["inactive"], 1, row.trimmed_ledgers, row.bytes)
        else:
            expires += row.expires
            _add(sums["trimmed"], bool(row.trimmed_ledgers), row.trimmed_ledgers, row.trimmed_bytes)
            _add(sums["expired"], bool(row.expires), row.expired_ledgers, row.expired_bytes)
        if row.inactive or row.trimmed_ledgers or row.expires:
            rows.append(row)
        # Cut only now and then: memory stays bounded without a sort for every topic.
        if len(rows) > 2 * ROWS_MAX:
            rows = _largest(rows)
    lost = sum(total[2] for total in sums.values())
    return BrokerForecast(
        defaults,
        count,
        size,
        TopicsDeleted(*sums["trimmed"]),
        TopicsDeleted(*sums["expired"]),
        expires,
        TopicsDeleted(*sums["inactive"]),
        100 * lost / size if size else 0.0,
        unread,
        tuple(_largest(rows)),
        tuple(problems),
    )


def _add(total: list[int], topics: int, ledgers: int, size: int) -> None:
    total[0] += topics
    total[1] += ledgers
    total[2] += size


def _largest(rows: list[TopicForecast]) -> list[TopicForecast]:
    return sorted(rows, key=lambda row: (-row.lost_bytes, row.topic))[:ROWS_MAX]


def _forecast(reader: EntryReader, name: TopicName, now_ms: int, defaults: BrokerDefaults) -> TopicForecast:
    # A broker that has just loaded a topic closes its last ledger and appends an empty one.
    stored = read_topic(reader.txn, name)
    closed = [
        replace(ledger, info=replace(ledger.info, timestamp_ms=now_ms)) if ledger.is_open else ledger
        for ledger in stored.ledgers
    ]
    new = TopicLedger(LedgerInfo(max(stored.ids, default=-1) + 1), 0, 0, True)
    kept = tuple(ledger for ledger in closed if ledger.entries)
    topic = Topic(stored.name, stored.stat, stored.managed, (*kept, new))
    cursors = {cursor: read_cursor(reader.txn, reader, topic, cursor) for cursor in iter_cursor_names(reader.txn, name)}
    in_force = find_retention(reader.txn, name)
    retention = Retention(defaults.retention_minutes, defaults.retention_mb) if in_force is None else in_force.retention
    positions = {cursor: state.mark_delete for cursor, state in cursors.items()}
    is_new_to_compaction = begins_compaction(reader.txn, name, cursors)
    if is_new_to_compaction:
        positions[COMPACTION_CURSOR] = topic.first_position
    trimmed = released_ledgers(topic, positions, retention, now_ms + 1)
    ttl = find_message_ttl(reader.txn, name)
    ttl_seconds = defaults.ttl_seconds if ttl is None else ttl.seconds
    moved, expires = _expired(reader, topic, cursors, ttl_seconds, now_ms)
    # Ledgers are deleted from the first on, so those deleted even without the TTL come first.
    expired = released_ledgers(topic, {**positions, **moved}, retention, now_ms + 1)[len(trimmed) :]
    after = None if is_new_to_compaction else _inactive_after(reader, topic, cursors, retention, defaults)
    # Without the empty ledger at the end.
    goes = topic.ledgers[:-1] if after is not None else trimmed
    return TopicForecast(
        str(name),
        topic.total_size_bytes,
        len(goes),
        sum(ledger.size_bytes for ledger in goes),
        0 if after is not None else len(expired),
        0 if after is not None else sum(ledger.size_bytes for ledger in expired),
        0 if after is not None else expires,
        after is not None,
        after,
        sum(cursor.source is CursorSource.FALLBACK for cursor in cursors.values()),
    )


def _expired(
    reader: EntryReader, topic: Topic, cursors: Mapping[str, Cursor], ttl_seconds: int, now_ms: int
) -> tuple[Positions, int]:
    """Return the positions to which message expiry moves the cursors, and how many entries they lose."""
    if ttl_seconds <= 0:
        return {}, 0
    moved, lost = {}, 0
    search, limit_ms = BrokerSearch(reader, topic, BrokerSetup(loaded_ms=now_ms)), now_ms - ttl_seconds * 1000
    # A store of metadata alone lacks all entries: none of them is lost.
    is_readable = next(iter_imported_bookies(reader.txn.store.info), None) is not None
    try:
        found = search.ttl_position(limit_ms)
    except NotSeen:
        if search.probes:
            raise
        is_readable = False
    for name, cursor in cursors.items():
        if not is_consumed(name) and not name.startswith(REPLICATOR_PREFIX):
            continue
        # Where no entry can be read: those in ledgers that were closed before the limit are older.
        through = found if is_readable else search.expire_whole_ledgers(cursor.mark_delete, limit_ms)
        if through is not None and through > cursor.mark_delete:
            moved[name] = through
            after = replace(cursor.state, mark_delete=through)
            lost += backlog_entries(topic, cursor.state) - backlog_entries(topic, after)
    return moved, lost


def _inactive_after(
    reader: EntryReader, topic: Topic, cursors: Mapping[str, Cursor], retention: Retention, defaults: BrokerDefaults
) -> int | None:
    """Return after how many seconds from its loading an unused topic is deleted, None if it stays (``checkGC``,
    ``shouldTopicBeRetained``)."""
    value, source = value_in_force(reader.txn, topic.name, policies_by_name()["inactive-topic-policies"], {})
    rule: Mapping[str, Any] = value  # Any: JSON
    if source == BROKER:
        keys = ("inactiveTopicDeleteMode", "maxInactiveDurationSeconds", "deleteWhileInactive")
        rule = dict(
            zip(keys, (defaults.inactive_mode, defaults.inactive_seconds, defaults.deletes_inactive), strict=True)
        )
    subscriptions = [cursor for name, cursor in cursors.items() if is_subscription(name)]
    if rule["inactiveTopicDeleteMode"] == CAUGHT_UP:
        is_used = any(backlog_entries(topic, cursor.state) for cursor in subscriptions)
    else:
        is_used = bool(subscriptions)
    if not rule["deleteWhileInactive"] or is_used or retention.time_minutes < 0:
        return None
    return max(int(rule["maxInactiveDurationSeconds"]), retention.time_minutes * _MINUTE_SECONDS)
