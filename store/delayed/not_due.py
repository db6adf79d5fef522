"""What ``topics expire`` says of delayed messages: which go before they are due, and which quotas would drop them too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from pulsar_admin.store.changes.cursors import CursorMove
from pulsar_admin.store.changes.plan import DelayLoss, NotDue
from pulsar_admin.store.codec.policies import EVICTION
from pulsar_admin.store.errors import EntryLogCorrupt, MetadataCorrupt, NotWritable, SourceChanged
from pulsar_admin.store.model.cursors import Cursor, Intervals, pending_intervals, subtract
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import TopicName, shell_word
from pulsar_admin.store.policies.in_force import may_delay
from pulsar_admin.store.timespec import format_time_ms
from pulsar_admin.store.wording import counted

if TYPE_CHECKING:
    from pulsar_admin.store.db.environment import Txn
    from pulsar_admin.store.search.before_due import TooEarly

_UNREADABLE = (SourceChanged, EntryLogCorrupt, NotWritable)
LOOKED_AT_MAX = 1_000_000
"""Entries that are looked at where no policy speaks of delays: a second's work; beyond, the user is told."""
_EVICTS = "{}: the backlog quota {} evicts delayed messages as any others"


def with_not_due(reader: EntryReader, move: CursorMove, now_ms: int, ttl_ms: int | None) -> CursorMove:
    """Return MOVE with what it drops before it is due and, with TTL_MS, what that will drop of the rest.

    Reads the heads of these entries, unless delayed delivery is switched off for the topic.
    """
    dropped = subtract(pending_intervals(move.topic, move.cursor.state), pending_intervals(move.topic, move.state))
    delays = DelayLoss()
    warnings: list[str] = []
    if may_delay(reader.txn, move.topic.name):
        from pulsar_admin.store.search.before_due import dropped_before_due

        try:
            too_many = _too_many(reader.txn, move.topic, move.cursor, dropped)
            if too_many:
                warnings.append(too_many)
            elif dropped:
                early = dropped_before_due(reader, move.topic, dropped, now_ms)
                delays = replace(delays, not_due=not_due_of(early))
                warnings += _texts(early, move.cursor.name, "delayed messages go before they are due")
            if ttl_ms is not None:
                found, said = ttl_conflict(reader, move.topic, replace(move.cursor, state=move.state), ttl_ms)
                delays = replace(delays, ttl_conflict=found, checks_ttl=True)
                warnings += said
        except _UNREADABLE as error:
            warnings.append(f"whether delayed messages go before they are due is unknown: {error.message}")
        found_some = delays.not_due is not None or delays.ttl_conflict is not None
        quotas = evicting_quotas(reader.txn, move.topic.name, assumed=found_some)
        delays = replace(delays, evicting_quotas=tuple(quotas), checks_quotas=True)
        warnings += [_EVICTS.format(move.cursor.name, kind) for kind in quotas]
    assert move.expiry is not None
    return replace(move, expiry=replace(move.expiry, delays=delays), warnings=(*move.warnings, *warnings))


def _too_many(txn: Txn, topic: Topic, cursor: Cursor, intervals: Intervals) -> str:
    """Return what to say where INTERVALS are more than is looked at without a policy that delays; empty: they are not."""
    entries = sum(stop - start for start, stop in intervals)
    if entries <= LOOKED_AT_MAX or _policy_delays(txn, topic.name):
        return ""
    return (
        f"{cursor.name}: {entries:,} entries were not looked through for delayed messages: no policy delays here;"
        f" pulsar-admin delayed status {shell_word(topic.name)} tells"
    )


def ttl_conflict(reader: EntryReader, topic: Topic, cursor: Cursor, ttl_ms: int) -> tuple[NotDue | None, list[str]]:
    """Return what a TTL drops of CURSOR's backlog before it is due (None: nothing), and texts of warnings."""
    from pulsar_admin.store.search.before_due import expiring_before_due

    too_many = _too_many(reader.txn, topic, cursor, pending_intervals(topic, cursor.state))
    if too_many:
        return None, [too_many]
    early = expiring_before_due(reader, topic, cursor, ttl_ms)
    seconds = ttl_ms // 1000
    return not_due_of(early), _texts(early, cursor.name, f"a TTL of {seconds} s drops messages before they are due")


def forecast_warnings(reader: EntryReader, topic: Topic, cursor: Cursor, ttl_ms: int) -> list[str]:
    """Return what to say of a forecast for CURSOR: messages that TTL_MS drops before they are due, quotas that evict them."""
    if not may_delay(reader.txn, topic.name):
        return []
    try:
        found, warnings = ttl_conflict(reader, topic, cursor, ttl_ms)
    except _UNREADABLE as error:
        return [f"whether delayed messages go before they are due is unknown: {error.message}"]
    quotas = evicting_quotas(reader.txn, topic.name, assumed=found is not None)
    return [f"{topic.name} {text}" for text in (*warnings, *(_EVICTS.format(cursor.name, kind) for kind in quotas))]


def _policy_delays(txn: Txn, topic: TopicName) -> bool:
    """Whether a policy, not the broker's default, delays messages of TOPIC, or may: one that is damaged."""
    from pulsar_admin.store.policies.in_force import find_delivery

    try:
        return find_delivery(txn, topic) is not None
    except MetadataCorrupt:
        return True


def evicting_quotas(txn: Txn, topic: TopicName, *, assumed: bool) -> list[str]:
    """Return the types of the backlog quotas in force for TOPIC that drop messages, where a policy delays or delays are ASSUMED.

    Empty when policies are damaged.
    """
    from pulsar_admin.store.policies.in_force import find_delivery, find_quotas

    try:
        if not assumed and find_delivery(txn, topic) is None:
            return []
        return [kind for kind, found in find_quotas(txn, topic).items() if found.quota.policy == EVICTION]
    except MetadataCorrupt:
        return []


def not_due_of(early: TooEarly) -> NotDue | None:
    """Return EARLY in a report's terms, None when there is nothing."""
    if not early.messages:
        return None
    return NotDue(early.messages, tuple((one.position, one.due_ms) for one in early.first))


def _texts(early: TooEarly, cursor: str, what: str) -> list[str]:
    texts = []
    if early.messages:
        first = ", ".join(f"{one.position} due {format_time_ms(one.due_ms)}" for one in early.first)
        more = ", …" if early.messages > len(early.first) else ""
        texts.append(f"{cursor}: {what}: {early.messages:,} of them, first {first}{more}")
    if early.unread:
        texts.append(f"{cursor}: {counted(early.unread, 'entry')} cannot be read: whether delayed is unknown")
    return texts
