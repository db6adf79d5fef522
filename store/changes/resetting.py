"""Where a reset moves a cursor, with what a broker would do instead and what to be warned of.

Upstream: ``PersistentTopicsBase.internalResetCursor`` and ``PersistentSubscription.resetCursor`` (pulsar.md §3.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from store.changes.cursors import CursorMove, plan_moves
from store.changes.out_of_time import check_nows_agree, check_resets_meet
from store.changes.plan import BrokerMove, MoveBasis, Plan
from store.changes.resets import check_position, reset_state, reset_to_time, shifted_state, state_of_other, ttl_warnings
from store.db.clocks import check_clock
from store.errors import InvalidValue, NotSeen, Refused, StoreError
from store.frozen import frozen
from store.model.broken import find_broken
from store.model.cursors import Cursor, read_cursor
from store.model.reader import EntryReader
from store.model.topics import Topic, expand_topic, read_topic
from store.names import EARLIEST, LATEST, Position, TopicName
from store.search.broker import SEARCH_FAILS, BrokerSearch
from store.search.broker_setup import DEFAULT_BROKER, BrokerSetup
from store.search.by_time import find_first_at_or_after
from store.search.doubts import find_doubts, text_of_doubts
from store.timespec import FromNow

ResetRule = Literal["exact", "broker"]
EXACT: ResetRule = "exact"
BROKER: ResetRule = "broker"


@frozen
class ResetTarget:
    """Where to: exactly one of the four; ``exclude``: start behind it."""

    time_ms: int | None = None
    message_id: Position | None = None
    shift_by: int | None = None
    to_subscription: str | None = None
    exclude: bool = False


@frozen
class ResetRequest:
    """How to get there. ``broker``: whom rule ``broker`` asks, and the exact one is compared with.

    ``clock``: that of a reset to a time by rule ``exact``. ``force``: also move the cursors of compaction and deduplication, into what
    is lost, and to the end where nothing is at or after the time.
    """

    now_ms: int
    rule: ResetRule = EXACT
    clock: str = "auto"
    broker: BrokerSetup = DEFAULT_BROKER
    force: bool = False

    def goes_by_clock(self, target: ResetTarget) -> bool:
        """Whether the clock decides where a reset to TARGET goes."""
        return target.time_ms is not None and self.rule == EXACT


@frozen
class ResetRow:
    """The reset that one line of a file asks for; ``where`` names the line."""

    where: str
    topic: TopicName
    subscription: str
    target: ResetTarget


@frozen
class Reset:
    """One cursor, and where to. ``where``: the line of a file that asks for it, empty for none."""

    topic: Topic
    cursor: Cursor
    target: ResetTarget
    where: str = ""


def resets_to(target: ResetTarget, cursors: Iterable[tuple[Topic, Cursor]]) -> Sequence[Reset]:
    """Return the resets of CURSORS to TARGET; raises InvalidValue for several and a position, which is in one topic alone."""
    resets = [Reset(topic, cursor, target) for topic, cursor in cursors]
    if target.message_id not in (None, EARLIEST, LATEST) and len(resets) > 1:
        raise InvalidValue(
            f"Reset-cursor at position is not allowed for {len(resets)} topics: position {target.message_id} is in one of them",
            hint="name that topic or partition, use -t, or give each its own row with --from-file",
        )
    return resets


def resets_of_rows(reader: EntryReader, rows: Iterable[ResetRow]) -> Iterator[Reset]:
    """Yield what ROWS ask for, partitions of a partitioned topic one each.

    Raises TopicNotFound, SubscriptionNotFound, and InvalidValue for a cursor that two rows move; each names the row.
    """
    seen: dict[tuple[TopicName, str], str] = {}
    for row in rows:
        with _errors_name(row.where):
            resets = [_reset_of_row(reader, row, name, seen) for name in expand_topic(reader.txn, row.topic)]
        yield from resets


def _reset_of_row(reader: EntryReader, row: ResetRow, name: TopicName, seen: dict[tuple[TopicName, str], str]) -> Reset:
    first = seen.setdefault((name, row.subscription), row.where)
    if first != row.where:
        raise InvalidValue(f"{row.subscription} of {name} is moved by {first} already")
    topic = read_topic(reader.txn, name)
    return Reset(topic, read_cursor(reader.txn, reader, topic, row.subscription), row.target, row.where)


def plan_resets(reader: EntryReader, command: str, resets: Iterable[Reset], request: ResetRequest) -> Plan:
    """Return one plan for RESETS, all of them or none.

    Raises LedgerNotFound, EntryNotFound (a position that is not there), SubscriptionNotFound, InvalidValue, and Refused for a
    cursor of the broker's own; each names the line that asks. NothingMatches: see ``check_resets_meet``.
    """
    listed = list(resets)
    moves = _moves(reader, listed, request)
    if not request.force and any(isinstance(reset.target.time_ms, FromNow) for reset in listed):
        check_nows_agree(
            reader,
            moves,
            lambda earlier_ms: _moves(reader, [_earlier(reset, earlier_ms) for reset in listed], request),
            request.now_ms,
        )
    if not request.force:
        clock = "auto" if request.rule == BROKER else check_clock(request.clock)
        check_resets_meet(reader, moves, [move for move in moves if move.misses], clock, request.now_ms)
    return plan_moves(reader, command, moves, request.now_ms)


def _moves(reader: EntryReader, resets: Iterable[Reset], request: ResetRequest) -> list[CursorMove]:
    moves = []
    for reset in resets:
        with _errors_name(reset.where):
            moves.append(_move(reader, reset.topic, reset.cursor, reset.target, request))
    return moves


def _earlier(reset: Reset, earlier_ms: int) -> Reset:
    """Return a reset to a time that is so much earlier, where it was counted from now."""
    time_ms = reset.target.time_ms
    if not isinstance(time_ms, FromNow):
        return reset
    return replace(reset, target=replace(reset.target, time_ms=max(time_ms - earlier_ms, 0)))


@contextmanager
def _errors_name(where: str) -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        if not where:
            raise
        raise type(error)(f"{where}: {error.message}", hint=error.hint, **error.context) from error


def _move(reader: EntryReader, topic: Topic, cursor: Cursor, target: ResetTarget, request: ResetRequest) -> CursorMove:
    move = _target_move(reader, topic, cursor, target, request)
    move = replace(move, force=request.force)
    move.check()
    if not request.force:
        _check_not_lost(reader, topic, move.state.mark_delete)
    if target.exclude and (target.shift_by is not None or target.to_subscription is not None):
        raise InvalidValue("--exclude-reset-position goes with a time or a position")
    ttl = ttl_warnings(reader, topic, cursor, move.state, request.now_ms)
    basis = move.basis or MoveBasis(request.rule)
    return replace(move, basis=basis, warnings=(*move.warnings, *ttl))


def _check_not_lost(reader: EntryReader, topic: Topic, mark_delete: Position) -> None:
    """Raise Refused where the first entry behind MARK_DELETE is lost."""
    first = topic.next_valid(mark_delete)
    for broken in find_broken(reader.txn, topic):
        if broken.holds(first):
            raise Refused(
                f"{topic.name}: {first} {broken.fate}: ledger {broken.ledger_id}: {broken.what()}: {broken.broker()}",
                hint=f"bring it back with: {broken.cure}; or reset there with --force"
                if broken.cure
                else f"take it out with: pulsar-admin ledgers forget {broken.ledger_id}; or reset there with --force",
                topic=str(topic.name),
                ledgerId=broken.ledger_id,
            )


def _target_move(
    reader: EntryReader, topic: Topic, cursor: Cursor, target: ResetTarget, request: ResetRequest
) -> CursorMove:
    if target.message_id is not None:
        if request.rule == EXACT:
            check_position(topic, target.message_id, ", or --rule broker, which takes the next entry there is")
        state = reset_state(reader, topic, cursor, target.message_id, exclude=target.exclude)
        return CursorMove(topic, cursor, state, MoveBasis(request.rule, target.message_id), is_set=True)
    if target.shift_by is not None:
        return CursorMove(topic, cursor, shifted_state(topic, cursor, target.shift_by))
    if target.to_subscription is not None:
        other = read_cursor(reader.txn, reader, topic, target.to_subscription)
        return CursorMove(topic, cursor, state_of_other(cursor, other))
    return _time_move(reader, topic, cursor, target, request)


def _time_move(
    reader: EntryReader, topic: Topic, cursor: Cursor, target: ResetTarget, request: ResetRequest
) -> CursorMove:
    assert target.time_ms is not None
    basis = MoveBasis(request.rule, time_ms=target.time_ms)
    search = BrokerSearch(reader, topic, request.broker)
    warnings: tuple[str, ...] = ()
    if request.rule == BROKER:
        try:
            first: Position | None = search.reset_read_position(target.time_ms)
        except SEARCH_FAILS as error:
            raise type(error)(_failure(error), hint="leave out --rule broker", **error.context) from error
    else:
        clock = check_clock(request.clock)
        first = find_first_at_or_after(reader, topic, target.time_ms, clock).position
        warnings = _unseen_warnings(reader, topic, first, target.time_ms, clock)
        try:
            move = _broker_move(topic, cursor, first, search.reset_read_position(target.time_ms))
            basis = replace(basis, asked_broker=True, broker=move)
        except SEARCH_FAILS as error:
            basis = replace(basis, asked_broker=True)
            warnings += (_failure(error),)
        except NotSeen as error:
            warnings += (error.message,)
    misses = first is None or first > topic.last_confirmed
    if misses:
        who = "a broker finds nothing" if request.rule == BROKER else "nothing is"
        warnings += (f"{who} at or after that time: {cursor.name} moves to the end",)
    if target.exclude and first is not None:
        state = reset_state(reader, topic, cursor, first, exclude=True)
    else:
        state = reset_to_time(topic, cursor, first)
    return CursorMove(topic, cursor, state, basis, warnings=warnings, misses=misses)


def _failure(error: StoreError) -> str:
    return f"a broker answers 500 and moves nothing: {error.message}"


def _unseen_warnings(
    reader: EntryReader, topic: Topic, first: Position | None, time_ms: int, clock: str
) -> tuple[str, ...]:
    """Return what is not seen before FIRST and may be at or after the time: it is not given again."""
    end = topic.at_rank(topic.number_of_entries if first is None else topic.rank(first))
    found = find_doubts(reader.txn, topic, end, time_ms, clock, {})
    unseen = [replace(doubt, lost=0) for doubt in found if doubt.unseen]
    if not unseen:
        return ()
    return (f"what is at or after that time among {text_of_doubts(unseen)} is not replayed: import it first",)


def _broker_move(topic: Topic, cursor: Cursor, ours: Position | None, theirs: Position) -> BrokerMove:
    """Return where a broker would go; ``entries``: how many more than we it would redeliver, below 0: fewer."""
    mine, other = (reset_to_time(topic, cursor, first).mark_delete for first in (ours, theirs))
    return BrokerMove(other, mine == other, topic.entries_after(other) - topic.entries_after(mine))
