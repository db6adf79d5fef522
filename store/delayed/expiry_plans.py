"""Plans and forecasts of expiring cursors by age, position or the TTL in force, with delayed messages dropped before
they are due.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import field
from msgspec.structs import replace

from pulsar_admin.store import errors
from pulsar_admin.store.changes import resets
from pulsar_admin.store.changes.cursors import CursorMove, is_guarded, plan_moves
from pulsar_admin.store.changes.plan import ChangeKind, DelayLoss, DroppedEarly, DueMessage, Plan
from pulsar_admin.store.codec.policies import EVICTION
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.model.cursors import Cursor, Intervals, is_consumed, pending_intervals, subtract
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import EARLIEST, LATEST, TopicName, shell_word
from pulsar_admin.store.policies.in_force import MessageTtl, find_delivery, find_message_ttl, find_quotas, may_delay
from pulsar_admin.store.search.expiry import FORECAST_INTERVALS, ForecastQuestion, ForecastRow, iter_forecast
from pulsar_admin.store.timespec import FromNow, format_time_ms
from pulsar_admin.store.wording import Answer, counted

if TYPE_CHECKING:
    from pulsar_admin.store.search.before_due import TooEarly


_UNREADABLE = (errors.SourceChanged, errors.EntryLogCorrupt, errors.NotWritable)
LOOKED_AT_MAX = 1_000_000
"""Entries searched for delayed messages if no policy mentions delays, about a second's work; a warning tells of more.
"""
_EVICTS = "{}: the backlog quota {} evicts delayed messages like any others"


def with_not_due(reader: EntryReader, move: CursorMove, now_ms: int, ttl_ms: int | None) -> CursorMove:
    """Return ``move``, an expiry, with the delayed messages that it drops early added to its details and warnings.

    With ``ttl_ms``, also those of the remaining messages that the TTL will drop early. Reads the heads of these
    entries, unless a policy disables delayed delivery for the topic.
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
                conflict, texts = ttl_conflict(reader, move.topic, replace(move.cursor, state=move.state), ttl_ms)
                delays = replace(delays, ttl_conflict=conflict)
                warnings += texts
        except _UNREADABLE as error:
            warnings.append(f"whether delayed messages go before they are due is unknown: {error.message}")
        found_some = bool(delays.not_due or delays.ttl_conflict)
        quotas = find_evicting_quotas(reader.txn, move.topic.name, assumed=found_some)
        delays = replace(delays, evicting_quotas=tuple(quotas))
        warnings += [_EVICTS.format(move.cursor.name, kind) for kind in quotas]
    assert move.expiry is not None
    return replace(move, expiry=replace(move.expiry, delays=delays), warnings=(*move.warnings, *warnings))


def _too_many(txn: Txn, topic: Topic, cursor: Cursor, intervals: Intervals) -> str:
    """Return the warning that the intervals are too long to be searched if no policy mentions delays, otherwise ""."""
    entries = sum(stop - start for start, stop in intervals)
    if entries <= LOOKED_AT_MAX or _policy_delays(txn, topic.name):
        return ""
    return (
        f"{cursor.name}: {entries:,} entries were not searched for delayed messages, because no policy delays "
        f"messages here; pulsar-admin delayed status {shell_word(topic.name)} tells"
    )


def ttl_conflict(
    reader: EntryReader, topic: Topic, cursor: Cursor, ttl_ms: int
) -> tuple[DroppedEarly | None, list[str]]:
    """Return the messages of a cursor's backlog that a TTL drops before they are due (None: none), and warnings."""
    from pulsar_admin.store.search.before_due import expiring_before_due

    too_many = _too_many(reader.txn, topic, cursor, pending_intervals(topic, cursor.state))
    if too_many:
        return None, [too_many]
    early = expiring_before_due(reader, topic, cursor, ttl_ms)
    seconds = ttl_ms // 1000
    return not_due_of(early), _texts(early, cursor.name, f"a TTL of {seconds} s drops messages before they are due")


def forecast_warnings(reader: EntryReader, topic: Topic, cursor: Cursor, ttl_ms: int) -> list[str]:
    """Return warnings for a forecast: messages that the TTL drops before they are due, and quotas that evict them."""
    if not may_delay(reader.txn, topic.name):
        return []
    try:
        conflict, warnings = ttl_conflict(reader, topic, cursor, ttl_ms)
    except _UNREADABLE as error:
        return [f"whether delayed messages go before they are due is unknown: {error.message}"]
    quotas = find_evicting_quotas(reader.txn, topic.name, assumed=conflict is not None)
    return [f"{topic.name} {text}" for text in (*warnings, *(_EVICTS.format(cursor.name, kind) for kind in quotas))]


def _policy_delays(txn: Txn, topic: TopicName) -> bool:
    """Whether a policy for delayed delivery is in force other than the broker's default; a damaged one counts."""
    try:
        return find_delivery(txn, topic) is not None
    except errors.MetadataCorrupt:
        return True


def find_evicting_quotas(txn: Txn, topic: TopicName, *, assumed: bool) -> list[str]:
    """Return the types of the backlog quotas in force that evict messages, [] unless a policy for delays is in force.

    With ``assumed``, delays need no policy. [] if policies are damaged.
    """
    try:
        if not assumed and find_delivery(txn, topic) is None:
            return []
        return [kind for kind, limit in find_quotas(txn, topic).items() if limit.quota.policy == EVICTION]
    except errors.MetadataCorrupt:
        return []


def not_due_of(early: TooEarly) -> DroppedEarly | None:
    """Return the messages as a report has them, None if there are none."""
    if not early.messages:
        return None
    return DroppedEarly(early.messages, tuple(DueMessage(one.position, one.due_ms) for one in early.first))


def _texts(early: TooEarly, cursor: str, what: str) -> list[str]:
    texts = []
    if early.messages:
        first = ", ".join(f"{one.position} due {format_time_ms(one.due_ms)}" for one in early.first)
        more = ", …" if early.messages > len(early.first) else ""
        texts.append(f"{cursor}: {what}: {early.messages:,}, first {first}{more}")
    if early.unread:
        texts.append(f"{cursor}: {counted(early.unread, 'entry')} cannot be read: whether delayed is unknown")
    return texts


Cursors = Sequence[tuple[Topic, Cursor]]


EXPIRE = ChangeKind("topics expire", "expire messages of {subscription} on {place}")
EXPIRE_ALL = ChangeKind("topics expire-all-subscriptions", EXPIRE.words)


def plan_expiries(reader: EntryReader, kind: ChangeKind, cursors: Cursors, request: resets.ExpiryRequest) -> Plan:
    """Return one plan, all or none, for expiring ``cursors`` as requested.

    Raises InvalidValue, NothingMatches (no TTL, or see ``check_expiries_meet``), LedgerNotFound, EntryNotFound, and
    Refused for a cursor of the broker's own.
    """
    for topic, cursor in cursors:
        _check_expirable(topic, cursor.name)
    limit = request.limit
    count = len({topic.name for topic, _ in cursors})
    if isinstance(limit, resets.UpTo) and limit.position not in (EARLIEST, LATEST) and count > 1:
        raise errors.InvalidValue(
            f"Expire message at position is not supported for {count} topics: {limit.position} is in one of them",
            hint="name that topic or partition, or use -t",
        )
    moves = _moves(reader, cursors, request)
    counted_ms = limit.time_ms if isinstance(limit, resets.Before) else request.now_ms
    if not isinstance(limit, resets.UpTo) and not request.force and isinstance(counted_ms, FromNow):
        resets.check_nows_agree(
            reader, moves, lambda earlier_ms: _moves(reader, cursors, _earlier(request, earlier_ms)), request.now_ms
        )
    if isinstance(limit, resets.Before) and not request.force:
        resets.check_expiries_meet(reader, moves, limit.time_ms, request.clock, request.now_ms)
    return plan_moves(reader, kind, moves, request.now_ms)


def _moves(reader: EntryReader, cursors: Cursors, request: resets.ExpiryRequest) -> list[CursorMove]:
    if isinstance(request.limit, resets.ByTtl):
        ttls = _read_ttls(reader, [topic for topic, _ in cursors])
        return [_move_by_ttl(reader, topic, cursor, request, ttls[topic]) for topic, cursor in cursors]
    return [
        with_not_due(reader, resets.expiry_move(reader, topic, cursor, request), request.now_ms, None)
        for topic, cursor in cursors
    ]


def _earlier(request: resets.ExpiryRequest, earlier_ms: int) -> resets.ExpiryRequest:
    """Return the request as it would be ``earlier_ms`` earlier: its now and a time limit are moved."""
    limit = request.limit
    if isinstance(limit, resets.Before):
        limit = replace(limit, time_ms=max(limit.time_ms - earlier_ms, 0))
    return replace(request, now_ms=request.now_ms - earlier_ms, limit=limit)


def _check_expirable(topic: Topic, name: str) -> None:
    if not is_consumed(name) or is_guarded(topic.name, name):
        raise errors.Refused(f"expiry never touches {name}: it is the broker's own cursor", subscription=name)


def _move_by_ttl(
    reader: EntryReader, topic: Topic, cursor: Cursor, request: resets.ExpiryRequest, ttl: MessageTtl | None
) -> CursorMove:
    if ttl is None or ttl.seconds <= 0:
        return CursorMove(topic, cursor, cursor.state, warnings=("no TTL applies",))
    limit = resets.Before(max(request.now_ms - ttl.seconds * 1000, 0), ttl)
    move = resets.expiry_move(reader, topic, cursor, replace(request, limit=limit))
    return with_not_due(reader, move, request.now_ms, ttl.seconds * 1000)


def _read_ttls(reader: EntryReader, topics: Iterable[Topic]) -> dict[Topic, MessageTtl | None]:
    """Return the TTL in force for each topic; raises NothingMatches if no topic has one."""
    ttls = {topic: find_message_ttl(reader.txn, topic.name) for topic in topics}
    if not any(ttl is not None and ttl.seconds > 0 for ttl in ttls.values()):
        raise errors.NothingMatches(
            f"no TTL applies for {next(iter(ttls)).name}" if len(ttls) == 1 else "no TTL applies for any of the topics",
            hint="give the age with -t, for example -t 3d; no store has a broker's own default (ttlDurationDefaultInSeconds)",
        )
    return ttls


# -- forecasts --------------------------------------------------------------------------------------------------------


class ForecastInterval(Answer, frozen=True):
    """A row of a forecast with the command line's keys; ``ttl`` in seconds, ``ttl_source`` None if an age was given.

    ``uncounted_entries``: entries that the store lacks, whose messages and bytes are not counted; None if none.
    """

    JSON_OPTIONAL = ("uncounted_entries",)

    topic: str
    subscription: str
    ttl: int
    ttl_source: str | None
    from_ms: int | None
    to_ms: int | None
    entries: int
    messages: int
    size_bytes: int = field(name="bytes")
    uncounted_entries: int | None
    mark_delete_position: str


class Forecast(Answer, frozen=True):
    """The messages that a TTL will drop from one cursor, by time; ``ttl_source`` None if an age was given instead of a TTL.

    ``warnings`` concern delayed messages.
    """

    topic: TopicName
    subscription: str
    ttl_ms: int
    ttl_source: str | None
    rows: tuple[ForecastRow, ...]
    warnings: tuple[str, ...]

    @property
    def intervals(self) -> Iterator[ForecastInterval]:
        """The rows with topic, subscription and TTL."""
        for row in self.rows:
            yield ForecastInterval(
                str(self.topic),
                self.subscription,
                self.ttl_ms // 1000,
                self.ttl_source,
                row.from_ms,
                row.to_ms,
                row.extent.entries,
                row.extent.messages,
                row.extent.bytes,
                row.extent.uncounted_entries,
                str(row.mark_delete),
            )


def forecast_expiries(
    reader: EntryReader, cursors: Cursors, request: resets.ExpiryRequest, ahead_ms: int, interval_ms: int | None
) -> Iterator[Forecast]:
    """Yield what will expire from each cursor in the next ``ahead_ms``, by the requested age or TTL.

    ``interval_ms``: the time of one row, by default a 24th of ``ahead_ms``. A cursor without a TTL is skipped. Raises
    InvalidValue, NothingMatches (no cursor has a TTL), and Refused for one of the broker's own cursors.
    """
    for topic, cursor in cursors:
        _check_expirable(topic, cursor.name)
    limit = request.limit
    ttls = _read_ttls(reader, [topic for topic, _ in cursors]) if isinstance(limit, resets.ByTtl) else {}
    given_ms = request.now_ms - limit.time_ms if isinstance(limit, resets.Before) else 0
    if isinstance(limit, resets.Before) and given_ms <= 0:
        raise errors.InvalidValue("a forecast needs an age above 0: --expireTime is not in the past")
    width_ms = max(ahead_ms // FORECAST_INTERVALS, 1) if interval_ms is None else interval_ms
    for topic, cursor in cursors:
        ttl = ttls.get(topic)
        ttl_ms = given_ms if ttl is None else ttl.seconds * 1000
        if ttl_ms <= 0:
            continue
        question = ForecastQuestion(
            request.now_ms, ttl_ms, ahead_ms, width_ms, request.rule, request.clock, request.broker
        )
        warnings = tuple(forecast_warnings(reader, topic, cursor, ttl_ms))
        rows = tuple(iter_forecast(reader, topic, cursor, question))
        yield Forecast(topic.name, cursor.name, ttl_ms, None if ttl is None else ttl.source, rows, warnings)
