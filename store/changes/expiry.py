"""Expiring messages: the cursor after an age limit or a position, with what goes, what the broker would do, and what never goes."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.changes.cursors import CursorMove, advanced, cleared, ledger_parts
from pulsar_admin.store.changes.plan import BrokerMove, ExpiryDetails, FutureDated, MoveBasis
from pulsar_admin.store.changes.resets import batch_size, bit_words, check_position, start_position
from pulsar_admin.store.codec.cursor import CursorState
from pulsar_admin.store.db.clocks import Clock
from pulsar_admin.store.errors import InvalidValue, NotSeen, Refused
from pulsar_admin.store.model.cursors import Cursor, Extent, extent_of, pending_intervals, subtract
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import EARLIEST, LATEST, Position
from pulsar_admin.store.policies.in_force import MessageTtl
from pulsar_admin.store.search.broker_setup import DEFAULT_BROKER, BrokerSetup
from pulsar_admin.store.search.doubts import find_unseen, text_of_doubts
from pulsar_admin.store.search.expiry import (
    ALL_BEFORE,
    BROKER,
    ExpiryRule,
    broker_through,
    broker_through_position,
    expire_by_time,
)
from pulsar_admin.store.search.pending import PendingSearch, read_future_dated
from pulsar_admin.store.timespec import format_time_ms
from pulsar_admin.store.wording import counted

_OR_BROKER = ", or add --rule broker: it goes by the next entry there is"


class ExpiryRequest(Struct, frozen=True):
    """What to expire: everything older than LIMIT_MS, or up to POSITION (EXCLUDE: it stays). TTL: the policy LIMIT_MS comes from.

    BROKER: whom rule ``broker`` asks, and the comparison of the other one. FORCE: also what drops nothing, and what drops all that
    a copy knows, because it is older than the limit itself.
    """

    now_ms: int
    limit_ms: int | None = None
    position: Position | None = None
    exclude: bool = False
    rule: ExpiryRule = ALL_BEFORE
    clock: Clock = "auto"
    ttl: MessageTtl | None = None
    broker: BrokerSetup = DEFAULT_BROKER
    force: bool = False


def expiry_move(reader: EntryReader, topic: Topic, cursor: Cursor, request: ExpiryRequest) -> CursorMove:
    """Return the move that expires what REQUEST says; raises LedgerNotFound, EntryNotFound, Refused for a bad position."""
    if request.position is not None:
        state, basis, warnings = _by_position(reader, topic, cursor, request)
    else:
        state, basis, warnings = _by_time(reader, topic, cursor, request)
    dropped = subtract(pending_intervals(topic, cursor.state), pending_intervals(topic, state))
    future = read_future_dated(PendingSearch(reader, topic, state, request.clock), request.now_ms)
    held = None
    if future.first is not None:
        extent = Extent(future.entries, future.messages)
        held = FutureDated(extent, future.first, future.latest_ms, tuple(sorted(future.producers)))
    expiry = ExpiryDetails(ledger_parts(reader.txn, topic, dropped), held)
    return CursorMove(topic, cursor, state, basis, expiry, tuple(warnings))


def unchanged_move(topic: Topic, cursor: Cursor, reason: str) -> CursorMove:
    """Return a move that stays where it is and says why."""
    return CursorMove(topic, cursor, cursor.state, warnings=(reason,))


# -- by age -----------------------------------------------------------------------------------------------------------


def _by_time(
    reader: EntryReader, topic: Topic, cursor: Cursor, request: ExpiryRequest
) -> tuple[CursorState, MoveBasis, list[str]]:
    assert request.limit_ms is not None
    in_broker_terms = request.limit_ms < request.now_ms
    if request.rule == BROKER and not in_broker_terms:
        raise InvalidValue(
            "a broker expires by an age above 0: with age 0 it expires nothing, it knows no limit ahead of now"
        )
    search = PendingSearch(reader, topic, cursor.state, request.clock)
    through = expire_by_time(search, cursor, request.limit_ms, request.rule, request.broker)
    state = cursor.state if through is None else advanced(topic, cursor.state, through)
    basis = MoveBasis(request.rule, limit_ms=request.limit_ms)
    if request.ttl is not None:
        basis = replace(basis, ttl_seconds=request.ttl.seconds, ttl_source=request.ttl.source)
    if request.rule == BROKER:
        warnings = _younger_warnings(search, state, request.limit_ms)
        return state, basis, [*warnings, *_search_warnings(search)]
    warnings = []
    through = None
    try:
        if in_broker_terms:
            through = broker_through(reader, topic, cursor, request.limit_ms, request.broker)
    except NotSeen as error:
        warnings.append(error.message)
    else:
        theirs = cursor.state if through is None else advanced(topic, cursor.state, through)
        basis = replace(basis, asked_broker=True, broker=_broker_move(reader, topic, state, theirs))
    warnings += _unseen_warnings(reader, topic, cursor, state, request)
    return state, basis, [*warnings, *_search_warnings(search)]


def _unseen_warnings(
    reader: EntryReader, topic: Topic, cursor: Cursor, state: CursorState, request: ExpiryRequest
) -> list[str]:
    """Return what an expiry drops without a look at its time; raises Refused for it, unless it is forced."""
    assert request.limit_ms is not None
    dropped = subtract(pending_intervals(topic, cursor.state), pending_intervals(topic, state))
    unseen = find_unseen(reader.txn, topic, dropped, request.limit_ms, request.clock)
    if unseen and not request.force:
        raise Refused(
            f"{topic.name}: whether all that {cursor.name} would lose is older than {format_time_ms(request.limit_ms)} is not known: "
            + text_of_doubts(unseen),
            hint="import what has them: pulsar-admin store add bookie ID=DIR,DIR; to drop them all the same: --force",
            topic=str(topic.name),
            subscription=cursor.name,
            ledgers=[doubt.ledger_id for doubt in unseen],
        )
    return [f"{cursor.name} loses {text_of_doubts(unseen)}, whatever their times are"] if unseen else []


def _younger_warnings(search: PendingSearch, state: CursorState, limit_ms: int) -> list[str]:
    young = search.find_first(limit_ms)
    if young is None or young.position > state.mark_delete:
        return []
    return [
        f"the broker's search drops {young.position} of {format_time_ms(young.time_ms)}, which is younger than the limit "
        f"{format_time_ms(limit_ms)}: clocks run backwards here"
    ]


def _search_warnings(search: PendingSearch) -> list[str]:
    warnings = []
    if search.ledgers_without_index:
        ledgers = ", ".join(map(str, search.ledgers_without_index))
        warnings.append(f"no entry of ledgers {ledgers} is here: their times are unknown and hold nothing back")
    if search.unreadable:
        warnings.append(
            counted(search.unreadable, "damaged entry holds nothing back", "damaged entries hold nothing back")
        )
    return warnings


def _broker_move(reader: EntryReader, topic: Topic, ours: CursorState, theirs: CursorState) -> BrokerMove:
    """Return the broker's answer; ``entries``: how many more it drops than we do (below 0: fewer)."""
    left, left_by_broker = pending_intervals(topic, ours), pending_intervals(topic, theirs)
    more = extent_of(reader.txn, topic, subtract(left, left_by_broker)).entries
    fewer = extent_of(reader.txn, topic, subtract(left_by_broker, left)).entries
    return BrokerMove(theirs.mark_delete, ours == theirs, more - fewer)


# -- by position ------------------------------------------------------------------------------------------------------


def _by_position(
    reader: EntryReader, topic: Topic, cursor: Cursor, request: ExpiryRequest
) -> tuple[CursorState, MoveBasis, list[str]]:
    position = request.position
    assert position is not None
    basis = MoveBasis(request.rule, position)
    if position == EARLIEST:
        return cursor.state, basis, []
    if position == LATEST:
        return cleared(topic, cursor.state), basis, []
    if request.rule == BROKER:
        return _broker_state(reader, topic, cursor, request), basis, []
    check_position(topic, position, _OR_BROKER)
    start, unacknowledged = start_position(reader, topic, position, exclude=not request.exclude)
    state = advanced(topic, cursor.state, topic.previous(start))
    if unacknowledged:
        state = with_batch(topic, state, start, unacknowledged)
    try:
        theirs = _broker_state(reader, topic, cursor, request)
    except Refused:
        theirs = cursor.state
    broker = _broker_move(reader, topic, state, theirs)
    return state, replace(basis, asked_broker=True, broker=broker), []


def _broker_state(reader: EntryReader, topic: Topic, cursor: Cursor, request: ExpiryRequest) -> CursorState:
    """Return what upstream's ``calculatePositionAckSet`` and mark-delete make of a position (4.0.8).

    Its exclusion is that of a reset: the entry's successor goes too, of a batch with an index only what is up to that.
    """
    position = request.position
    assert position is not None
    entry, index = position.entry, position.batch_index
    size = batch_size(reader, position) if index >= 0 and topic.is_entry(entry) else 0
    first = index + 1 if request.exclude else index
    inside = 0 < first < size
    if not inside:
        behind = Position(entry.ledger_id, entry.entry_id + 1)
        through = broker_through_position(topic, cursor, behind if request.exclude else entry)
        return cursor.state if through is None else advanced(topic, cursor.state, through)
    state = advanced(topic, cursor.state, topic.previous(entry))
    return with_batch(topic, state, entry, bit_words(range(first, size)))


def with_batch(topic: Topic, state: CursorState, entry: Position, unacknowledged: tuple[int, ...]) -> CursorState:
    """Return STATE with all but the UNACKNOWLEDGED messages (words of a bit set) of the batch at ENTRY acknowledged too."""
    rank = topic.rank(entry)
    if not any(start <= rank < end for start, end in pending_intervals(topic, state)):
        return state
    known = state.batch_deletes.get(entry)
    if known is not None:
        unacknowledged = tuple(mine & theirs for mine, theirs in zip(unacknowledged, known, strict=False))
    if not any(unacknowledged):
        return advanced(topic, state, entry)
    return replace(state, batch_deletes={**state.batch_deletes, entry: unacknowledged})
