"""Resetting cursors (to a time, a position, a distance, or another cursor's position), and expiring messages (pulsar.md §3.5).

A reset drops individual acknowledgements and LongProperties; ``__compaction`` keeps its properties. Expiring moves the
cursor past an age limit or a position; its report counts the dropped messages, names the position to which a broker
would move, and messages that never expire.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store import errors
from pulsar_admin.store.changes.cursors import RESET, CursorMove, advanced, cleared, ledger_parts, plan_moves
from pulsar_admin.store.changes.plan import BrokerMove, ExpiryDetails, FutureDated, MoveBasis, Plan, record_json
from pulsar_admin.store.codec.cursor import CursorState
from pulsar_admin.store.codec.message import decode_message_entry, is_batch, message_count
from pulsar_admin.store.codec.strict_values import integer, json_value
from pulsar_admin.store.db.blocks import decode_latest, ledger_key
from pulsar_admin.store.db.clocks import Clock, check_clock
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.facts.backlogs import extent_of_messages
from pulsar_admin.store.model.broken import NO_METADATA, find_broken
from pulsar_admin.store.model.copy_age import AsOf, find_as_of, read_copy_age
from pulsar_admin.store.model.coverage import bring_hint
from pulsar_admin.store.model.cursors import (
    COMPACTION_CURSOR,
    Cursor,
    Extent,
    extent_of,
    is_own,
    iter_ledger_parts,
    pending_intervals,
    read_cursor,
    read_topic_cursor,
    subtract,
    union,
)
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.scalable import in_one_order
from pulsar_admin.store.model.topics import Topic, expand_topic
from pulsar_admin.store.names import EARLIEST, LATEST, LONG_MAX, Position, TopicName, parse_position, parse_topic
from pulsar_admin.store.policies.in_force import MessageTtl, find_message_ttl
from pulsar_admin.store.search.broker import SEARCH_FAILS, BrokerSearch
from pulsar_admin.store.search.broker_setup import DEFAULT_BROKER, BrokerSetup
from pulsar_admin.store.search.by_time import Found, find_first_at_or_after
from pulsar_admin.store.search.doubts import find_doubts, find_unseen, text_of_doubts
from pulsar_admin.store.search.expiry import (
    ALL_BEFORE,
    BROKER,
    Dated,
    ExpiryRule,
    PendingSearch,
    broker_through,
    broker_through_position,
    expire_by_time,
    read_future_dated,
    ttl_through,
)
from pulsar_admin.store.timespec import FromNow, format_age_ms, format_time_ms
from pulsar_admin.store.wording import counted, counted_messages, plural

_WORD_BITS = 64


def reset_state(reader: EntryReader, topic: Topic, cursor: Cursor, target: Position, *, exclude: bool) -> CursorState:
    """Return the state after a reset to ``target``; with ``exclude``, to the entry after it.

    A position that is not an entry moves to the next entry; one after the end, to the end. With a batch index, earlier
    messages of the batch stay acknowledged.
    """
    return replace(start_state(reader, topic, target, exclude=exclude), properties=_kept_properties(cursor))


def start_state(reader: EntryReader, topic: Topic, target: Position, *, exclude: bool) -> CursorState:
    """Return the state of a cursor that delivers ``target`` next; with ``exclude``, the entry after it."""
    if target == EARLIEST:
        return CursorState(topic.first_position)
    if target == LATEST:
        return CursorState(topic.last_confirmed)
    entry, unacknowledged = start_position(reader, topic, target, exclude=exclude)
    # A target after the last entry: a cursor acknowledges nothing that was not written.
    state = CursorState(min(topic.previous(entry), topic.last_confirmed))
    return replace(state, batch_deletes={entry: unacknowledged}) if unacknowledged else state


def start_position(
    reader: EntryReader, topic: Topic, target: Position, *, exclude: bool
) -> tuple[Position, tuple[int, ...]]:
    """Return the first entry to deliver and the bit-set words of its messages to deliver; () means all of them.

    An unreadable entry counts as not batched.
    """
    entry = target.entry
    words: tuple[int, ...] = ()
    if target.batch_index >= 0 and topic.is_entry(entry):
        entry, words = _in_batch(reader, topic, target, exclude)
    elif exclude:
        entry = topic.next_valid(entry)
    return (entry if topic.is_entry(entry) else topic.next_valid(entry)), words


def _in_batch(reader: EntryReader, topic: Topic, target: Position, exclude: bool) -> tuple[Position, tuple[int, ...]]:
    size = batch_size(reader, target)
    acknowledged = target.batch_index + (1 if exclude else 0)
    if (size and acknowledged >= size) or (not size and exclude):
        return topic.next_valid(target.entry), ()
    if not size or not acknowledged:
        return target.entry, ()
    return target.entry, bit_words(range(acknowledged, size))


def batch_size(reader: EntryReader, position: Position) -> int:
    """Return the number of messages in the batch at a position; 0 if the entry is not batched or cannot be read."""
    try:
        payload = reader.read(position.ledger_id, position.entry_id).payload
        metadata = decode_message_entry(payload, f"entry {position}").metadata
    except errors.ENTRY_UNREADABLE:
        return 0
    return message_count(metadata) if is_batch(metadata) else 0


def bit_words(bits: Iterable[int]) -> tuple[int, ...]:
    """Return the words of a Java BitSet (signed 64-bit, LSB first) with the given bits set."""
    words: dict[int, int] = {}
    for bit in bits:
        words[bit // _WORD_BITS] = words.get(bit // _WORD_BITS, 0) | 1 << bit % _WORD_BITS
    signed = (words.get(index, 0) for index in range(max(words, default=-1) + 1))
    return tuple(word - 2**_WORD_BITS if word >= 2 ** (_WORD_BITS - 1) else word for word in signed)


def reset_to_time(topic: Topic, cursor: Cursor, first: Position | None) -> CursorState:
    """Return the state that delivers ``first`` next; with None, one at the end of the topic."""
    mark_delete = topic.last_confirmed if first is None else topic.previous(first)
    return CursorState(min(mark_delete, topic.last_confirmed), properties=_kept_properties(cursor))


def again_state(topic: Topic, cursor: Cursor, first: Position | None, end: Position | None) -> CursorState:
    """Return the state in which the entries from ``first`` up to ``end``, excluded, are delivered again.

    None for either is the topic's end. All other entries stay acknowledged or pending as they are.
    """
    whole = topic.number_of_entries
    start, stop = (whole if place is None else topic.rank(place) for place in (first, end))
    pending = union([*pending_intervals(topic, cursor.state), (start, stop)])
    if pending == pending_intervals(topic, cursor.state):
        return cursor.state
    mark_delete = topic.previous(topic.at_rank(pending[0][0]))
    done = subtract(((pending[0][0], whole),), pending)
    parts = (part for low, high in done for part in iter_ledger_parts(topic, low, high))
    ranges = tuple((Position(ledger_id, low - 1), Position(ledger_id, high)) for ledger_id, low, high in parts)
    batches = {
        entry: words for entry, words in cursor.state.batch_deletes.items() if not start <= topic.rank(entry) < stop
    }
    return replace(cursor.state, mark_delete=mark_delete, ranges=ranges, batch_deletes=batches)


def shifted_state(topic: Topic, cursor: Cursor, entries: int) -> CursorState:
    """Return the state ``entries`` later (negative: earlier), counting acknowledged entries too, within the topic."""
    mark_delete = cursor.mark_delete
    rank = topic.place(mark_delete) + entries
    rank = min(rank, topic.number_of_entries)
    mark_delete = topic.at_rank(rank - 1) if rank > 0 else topic.first_position
    return CursorState(mark_delete, properties=_kept_properties(cursor))


def _kept_properties(cursor: Cursor) -> Mapping[str, int]:
    """Return the LongProperties that a cursor keeps through a reset."""
    return cursor.state.properties if cursor.name == COMPACTION_CURSOR else {}


def check_position(topic: Topic, target: Position, otherwise: str) -> None:
    """Raise LedgerNotFound or EntryNotFound unless ``target`` is an entry, earliest, latest, or just after a ledger's
    end.

    ``otherwise`` is added to the hint: the options that move to the next existing entry.
    """
    if target in (EARLIEST, LATEST):
        return
    ledger = topic.ledger(target.ledger_id)
    if ledger is None:
        raise errors.LedgerNotFound(
            f"{topic.name} has no ledger {target.ledger_id}: {_ledgers_text(topic, target)}",
            hint=f"name an existing entry, earliest or latest{otherwise}",
            topic=str(topic.name),
            ledgerId=target.ledger_id,
        )
    if not -1 <= target.entry_id <= ledger.entries:
        held = f"has entries 0 to {ledger.entries - 1}" if ledger.entries else "has no entries"
        raise errors.EntryNotFound(
            f"{topic.name} has no entry {target.entry}: ledger {target.ledger_id} {held}",
            hint=f"name an existing entry, earliest or latest{otherwise}",
            topic=str(topic.name),
            ledgerId=target.ledger_id,
            entryId=target.entry_id,
        )


def _ledgers_text(topic: Topic, target: Position) -> str:
    if not topic.ids:
        return "it has no ledgers"
    if target.ledger_id < topic.ids[0]:
        return f"what was before ledger {topic.ids[0]} is trimmed"
    return f"its ledgers are {topic.ids[0]} to {topic.ids[-1]}"


# -- what a reset meets -----------------------------------------------------------------------------------------------


def ttl_warnings(reader: EntryReader, topic: Topic, cursor: Cursor, state: CursorState, now_ms: int) -> tuple[str, ...]:
    """Return warnings that the TTL in force would expire entries that a cursor in ``state`` still has to deliver."""
    # Brokers expire nothing of these (``PersistentTopic.checkMessageExpiry``, ``SystemTopic``).
    if is_own(cursor.name) or topic.name.is_system:
        return ()
    try:
        ttl = find_message_ttl(reader.txn, topic.name)
    except errors.MetadataCorrupt as error:
        return (f"whether a TTL skips the replayed messages is unknown: {error.message}",)
    if ttl is None or ttl.seconds <= 0:
        return ()
    broker = BrokerSetup(loaded_ms=now_ms)
    try:
        through = ttl_through(reader, topic, replace(cursor, state=state), now_ms - ttl.seconds * 1000, broker)
    except errors.NotSeen as error:
        return (f"whether the TTL of {ttl.seconds} s skips the replayed messages is unknown: {error.message}",)
    if through is None:
        return ()
    replayed = subtract(pending_intervals(topic, state), pending_intervals(topic, cursor.state))
    left = pending_intervals(topic, advanced(topic, state, through))
    total, gone = (extent_of(reader.txn, topic, part).entries for part in (replayed, subtract(replayed, left)))
    if not gone:
        return ()
    return (
        f"the TTL of {ttl.seconds} s ({ttl.source} policy) skips {gone:,} of the {total:,} replayed entries as soon as a broker "
        f"runs, up to {through}: raise it first",
    )


# -- resetting ---------------------------------------------------------------------------------------------------------
# Where a reset moves a cursor, where a broker would move it, and warnings.
#
# Upstream: ``PersistentTopicsBase.internalResetCursor`` and ``PersistentSubscription.resetCursor`` (pulsar.md §3.5).


ResetRule = Literal["exact", "broker"]
EXACT: ResetRule = "exact"


class ToTime(Struct, frozen=True):
    """A reset to the first entry at or after a time, with ``exclude`` to the one after it.

    With ``until_ms``, only entries before the first one at or after that time are delivered again; all others keep
    their state.
    """

    time_ms: int
    exclude: bool
    until_ms: int | None


class ToPosition(Struct, frozen=True):
    """A reset to a position, with ``exclude`` to the entry (or message of the batch) after it."""

    position: Position
    exclude: bool


class ShiftBy(Struct, frozen=True):
    """A move by this many entries, backwards if below 0."""

    entries: int


class ToSubscription(Struct, frozen=True):
    """A reset to the position of another subscription."""

    name: str


ResetTarget = ToTime | ToPosition | ShiftBy | ToSubscription
"""Where a cursor is reset to."""


def reset_target(
    *,
    time_ms: int | None,
    position: Position | None,
    shift_by: int | None,
    like: str | None,
    exclude: bool,
    until_ms: int | None = None,
) -> ResetTarget:
    """Return the target for the one value that is not None; callers check that it is just one.

    Raises InvalidValue for ``exclude`` without a position or time, and for ``until_ms`` unless it is after a ``time_ms``.
    """
    if until_ms is not None and (time_ms is None or position is not None or exclude or until_ms <= time_ms):
        raise errors.InvalidValue(
            "--until is the end of the messages to redeliver: it needs --time, an earlier time, and no --exclude-reset-position",
            hint="for example: -t 2024-05-01T09:00:00Z --until 2024-05-01T11:00:00Z",
        )
    if position is not None:
        return ToPosition(position, exclude)
    if time_ms is not None:
        return ToTime(time_ms, exclude, until_ms)
    if exclude:
        raise errors.InvalidValue("--exclude-reset-position goes with a time or a position")
    if shift_by is not None:
        return ShiftBy(shift_by)
    assert like is not None
    return ToSubscription(like)


class ResetRequest(Struct, frozen=True):
    """The options of a reset. ``broker``: the broker that rule ``broker`` imitates and rule ``exact`` is compared with.

    ``clock`` determines entries' times with rule ``exact``. ``force``: also move the broker's own cursors, into lost
    ledgers, and to the end if no entry is at or after the time.
    """

    now_ms: int
    rule: ResetRule = EXACT
    clock: str = "auto"
    broker: BrokerSetup = DEFAULT_BROKER
    force: bool = False

    def __post_init__(self) -> None:
        """Raise InvalidValue for an unknown rule, and for a clock that the index does not know."""
        errors.check_choice("rule", self.rule, ResetRule)
        if self.rule == EXACT:
            check_clock(self.clock)

    @property
    def indexed_clock(self) -> Clock:
        """The clock for entries' times: ``auto`` with rule ``broker``, as a broker has no choice of clocks."""
        return "auto" if self.rule == BROKER else check_clock(self.clock)

    def goes_by_clock(self, target: ResetTarget) -> bool:
        """Return whether the position of a reset to ``target`` depends on the clock."""
        return isinstance(target, ToTime) and self.rule == EXACT


class ResetRow(Struct, frozen=True):
    """The reset in one line of a file; ``where`` names the line for error messages."""

    where: str
    topic: TopicName
    subscription: str
    target: ResetTarget


class Reset(Struct, frozen=True):
    """The reset of one cursor to ``target``. ``where``: the line of the file it comes from, "" if none."""

    topic: Topic
    cursor: Cursor
    target: ResetTarget
    where: str = ""


def resets_to(target: ResetTarget, cursors: Iterable[tuple[Topic, Cursor]]) -> Sequence[Reset]:
    """Return the resets of ``cursors`` to ``target``; raises InvalidValue for one position and cursors of several topics."""
    resets = [Reset(topic, cursor, target) for topic, cursor in cursors]
    count = len({reset.topic.name for reset in resets})
    if isinstance(target, ToPosition) and target.position not in (EARLIEST, LATEST) and count > 1:
        raise errors.InvalidValue(
            f"Reset-cursor at position is not allowed for {count} topics: position {target.position} is in one of them",
            hint="name that topic or partition, use -t, or give each its own row with --from-file",
        )
    return resets


def resets_of_rows(reader: EntryReader, rows: Iterable[ResetRow]) -> Iterator[Reset]:
    """Yield the resets of rows, one for each partition of a partitioned topic.

    Raises TopicNotFound, SubscriptionNotFound, and InvalidValue for a cursor in two rows; messages name the row.
    """
    seen: dict[tuple[TopicName, str], str] = {}
    for row in rows:
        with _errors_name(row.where):
            resets = [_reset_of_row(reader, row, name, seen) for name in expand_topic(reader.txn, row.topic)]
        yield from resets


def _reset_of_row(reader: EntryReader, row: ResetRow, name: TopicName, seen: dict[tuple[TopicName, str], str]) -> Reset:
    first = seen.setdefault((name, row.subscription), row.where)
    if first != row.where:
        raise errors.InvalidValue(f"{row.subscription} of {name} is moved by {first} already")
    return Reset(*read_topic_cursor(reader, name, row.subscription), row.target, row.where)


def plan_resets(reader: EntryReader, resets: Iterable[Reset], request: ResetRequest) -> Plan:
    """Return one plan for all resets.

    Raises LedgerNotFound, EntryNotFound (no entry at the position), SubscriptionNotFound, InvalidValue, and Refused
    for a broker's own cursor; messages name the line of the file. Raises NothingMatches as ``_check_resets_meet``.
    """
    listed = list(resets)
    moves = _moves(reader, listed, request)
    if not request.force and any(map(_counts_from_now, listed)):
        check_nows_agree(
            reader,
            moves,
            lambda earlier_ms: _moves(reader, [_earlier(reset, earlier_ms) for reset in listed], request),
            request.now_ms,
        )
    if not request.force:
        missed = [move for move in moves if move.misses]
        if missed:
            met = _met_by_another_segment(reader.txn, moves)
            missed = [move for move in missed if (move.cursor.name, move.topic.name) not in met]
        _check_resets_meet(reader, moves, missed, request.indexed_clock, request.now_ms)
    return plan_moves(reader, RESET, moves, request.now_ms)


def _met_by_another_segment(txn: Txn, moves: Sequence[CursorMove]) -> set[tuple[str, TopicName]]:
    """Return (subscription, segment) of scalable topics of which at least one segment has an entry at or after the time."""
    met = set()
    misses: dict[str, dict[TopicName, bool]] = defaultdict(dict)
    for move in moves:
        misses[move.cursor.name][move.topic.name] = move.misses
    for subscription, of in misses.items():
        for scalable, names in in_one_order(txn, [*of], []):
            if scalable is not None and not all(of[name] for name in names):
                met |= {(subscription, name) for name in names}
    return met


def _moves(reader: EntryReader, resets: Iterable[Reset], request: ResetRequest) -> list[CursorMove]:
    moves = []
    for reset in resets:
        with _errors_name(reset.where):
            moves.append(_move(reader, reset.topic, reset.cursor, reset.target, request))
    return moves


def _earlier(reset: Reset, earlier_ms: int) -> Reset:
    """Return ``reset`` with its times ``earlier_ms`` earlier if they were counted from now, otherwise unchanged."""
    if not _counts_from_now(reset):
        return reset
    assert isinstance(reset.target, ToTime)
    until_ms = reset.target.until_ms
    if isinstance(until_ms, FromNow):
        until_ms = max(until_ms - earlier_ms, 0)
    target = replace(reset.target, time_ms=max(reset.target.time_ms - earlier_ms, 0), until_ms=until_ms)
    return replace(reset, target=target)


def _counts_from_now(reset: Reset) -> bool:
    return isinstance(reset.target, ToTime) and isinstance(reset.target.time_ms, FromNow)


@contextmanager
def _errors_name(where: str) -> Iterator[None]:
    try:
        yield
    except errors.StoreError as error:
        if not where:
            raise
        raise type(error)(f"{where}: {error.message}", hint=error.hint, **error.context) from error


def _move(reader: EntryReader, topic: Topic, cursor: Cursor, target: ResetTarget, request: ResetRequest) -> CursorMove:
    move = _target_move(reader, topic, cursor, target, request)
    move = replace(move, force=request.force)
    move.check()
    if not request.force:
        _check_not_lost(reader, topic, move.state.mark_delete)
    ttl = ttl_warnings(reader, topic, cursor, move.state, request.now_ms)
    basis = move.basis or MoveBasis(request.rule)
    return replace(move, basis=basis, warnings=(*move.warnings, *ttl))


def _check_not_lost(reader: EntryReader, topic: Topic, mark_delete: Position) -> None:
    """Raise Refused if the first entry after ``mark_delete`` is lost."""
    first = topic.next_valid(mark_delete)
    for broken in find_broken(reader.txn, topic):
        if broken.holds(first):
            cure = broken.cure or (broken.reason == NO_METADATA and f"pulsar-admin ledgers restore {broken.ledger_id}")
            raise errors.Refused(
                f"{topic.name}: {first} {broken.fate}: ledger {broken.ledger_id}: {broken.what()}: {broken.broker()}",
                hint=f"to repair it, start with: {cure}; --force resets there anyway"
                if cure
                else f"remove it with: pulsar-admin ledgers forget {broken.ledger_id}; or reset there with --force",
                topic=str(topic.name),
                ledgerId=broken.ledger_id,
            )


def _target_move(
    reader: EntryReader, topic: Topic, cursor: Cursor, target: ResetTarget, request: ResetRequest
) -> CursorMove:
    match target:
        case ToPosition(position, exclude):
            if request.rule == EXACT:
                check_position(topic, position, ", or --rule broker, which takes the next existing entry")
            state = reset_state(reader, topic, cursor, position, exclude=exclude)
            return CursorMove(topic, cursor, state, MoveBasis(request.rule, position), is_set=True)
        case ShiftBy(entries):
            return CursorMove(topic, cursor, shifted_state(topic, cursor, entries))
        case ToSubscription(name):
            other = read_cursor(reader.txn, reader, topic, name)
            return CursorMove(topic, cursor, replace(other.state, properties=_kept_properties(cursor)))
        case ToTime():
            return _time_move(reader, topic, cursor, target, request)


def _time_move(reader: EntryReader, topic: Topic, cursor: Cursor, target: ToTime, request: ResetRequest) -> CursorMove:
    """Return the move to a time by the requested rule; its ``basis`` compares it with a broker's move."""
    if target.until_ms is not None:
        return _again_move(reader, topic, cursor, target, request)
    basis = MoveBasis(request.rule, time_ms=target.time_ms)
    search = BrokerSearch(reader, topic, request.broker)
    warnings: tuple[str, ...] = ()
    if request.rule == BROKER:
        try:
            first: Position | None = search.reset_read_position(target.time_ms)
        except SEARCH_FAILS as error:
            raise type(error)(_failure(error), hint="leave out --rule broker", **error.context) from error
    else:
        clock = request.indexed_clock
        found = find_first_at_or_after(reader, topic, target.time_ms, clock)
        first, warnings = found.position, _unseen_warnings(reader, topic, found, target.time_ms, clock)
        # A broker bisects, which on clocks that run backwards finds another entry: the preview shows the difference.
        try:
            move = _broker_move(topic, cursor, first, search.reset_read_position(target.time_ms))
            basis = replace(basis, broker=move)
        except SEARCH_FAILS as error:
            basis = replace(basis, broker=None)
            warnings += (_failure(error),)
        except errors.NotSeen as error:
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


def _again_move(reader: EntryReader, topic: Topic, cursor: Cursor, target: ToTime, request: ResetRequest) -> CursorMove:
    """Return the move that delivers the entries between two times again, which a broker cannot do."""
    assert target.until_ms is not None
    if request.rule == BROKER:
        raise errors.InvalidValue("--until: a broker resets to one time only", hint="leave out --rule broker")
    clock = request.indexed_clock
    first, end = (
        find_first_at_or_after(reader, topic, time_ms, clock) for time_ms in (target.time_ms, target.until_ms)
    )
    warnings = _unseen_warnings(reader, topic, first, target.time_ms, clock)
    basis = MoveBasis(request.rule, time_ms=target.time_ms, until_ms=target.until_ms)
    state = again_state(topic, cursor, first.position, end.position)
    return CursorMove(topic, cursor, state, basis, warnings=warnings, misses=first.position is None)


def _failure(error: errors.StoreError) -> str:
    return f"a broker answers 500 and moves nothing: {error.message}"


def _unseen_warnings(reader: EntryReader, topic: Topic, found: Found, time_ms: int, clock: str) -> tuple[str, ...]:
    """Return warnings about entries before the found one that cannot be read, may be at or after the time and are not replayed."""
    warnings: list[str] = []
    if found.unreadable:
        damaged = counted(found.unreadable, "damaged entry", "damaged entries")
        are = plural(found.unreadable, "is", "are")
        warnings.append(f"{damaged} that may be at or after that time {are} not replayed")
    end = topic.at_rank(topic.number_of_entries if found.position is None else topic.rank(found.position))
    doubts = find_doubts(reader.txn, topic, end, time_ms, clock, {})
    unseen = [replace(doubt, lost=0) for doubt in doubts if doubt.unseen]
    if unseen:
        warnings.append(
            f"entries at or after that time among {text_of_doubts(unseen)} are not replayed: import them first"
        )
    return tuple(warnings)


def _broker_move(topic: Topic, cursor: Cursor, ours: Position | None, theirs: Position) -> BrokerMove:
    """Return the broker's move; ``entries``: how many more than this toolkit it would redeliver, below 0: fewer."""
    mine, other = (reset_to_time(topic, cursor, first).mark_delete for first in (ours, theirs))
    return BrokerMove(other, mine == other, topic.entries_after(other) - topic.entries_after(mine))


# -- reset rows --------------------------------------------------------------------------------------------------------
# The rows of ``topics reset-cursor --from-file``: one JSON object per change.
#
# ``{"topic": …, "subscription": …}`` and one of ``messageId`` (``"L:E"``, ``"L:E:B"``, earliest, latest, or an object with ledgerId and
# entryId), ``time`` (epoch ms, or any form that -t takes), ``shiftBy`` (entries), ``toSubscription``; ``exclude`` is true or false.


_TARGETS = ("messageId", "time", "shiftBy", "toSubscription")
_KEYS = {"topic", "subscription", "exclude", *_TARGETS}
_IN_PYTHON = {"to": "messageId", "shift_by": "shiftBy", "like": "toSubscription"}


def iter_reset_rows(
    lines: Iterable[str | Mapping[str, object]], name: str, subscription: str | None, parse_time: Callable[[Any], int]
) -> Iterator[ResetRow]:  # Any: a time of any form
    """Yield the rows of a reset file (lines of JSON) or of a Python program (mappings with the parameters of
    ``Cursors.reset``).

    ``subscription`` applies to rows without one. Raises InvalidValue.
    """
    row = None
    for number, line in enumerate(lines, 1):
        if isinstance(line, str) and not line.strip():
            continue
        where = f"{name} line {number}"
        try:
            found = json_value(line) if isinstance(line, str) else line
            if found is line and isinstance(line, Mapping):
                found = {str(_IN_PYTHON.get(key, key)): value for key, value in line.items()}
            row = _row(found, where, subscription, parse_time)
        except ValueError as error:
            raise errors.InvalidValue(f"{where}: {errors.reason_of(error)}", hint=_hint()) from error
        except errors.StoreError as error:
            raise errors.InvalidValue(
                f"{where}: {error.message}", hint=error.hint or _hint(), **error.context
            ) from error
        yield row
    if row is None:
        raise errors.InvalidValue(f"no change in {name}", hint="one JSON object per line")


def _row(
    found: Any, where: str, subscription: str | None, parse_time: Callable[[Any], int]
) -> ResetRow:  # Any: as above
    if not isinstance(found, dict):
        raise errors.InvalidValue("not a JSON object")
    unknown = sorted(set(found) - _KEYS)
    if unknown:
        raise errors.InvalidValue(f"unknown key {unknown[0]!r}")
    name = found.get("subscription", subscription)
    if not isinstance(found.get("topic"), str) or not isinstance(name, str):
        raise errors.InvalidValue("topic and subscription are required strings")
    errors.check_one(**{key: found.get(key) for key in _TARGETS})
    exclude = found.get("exclude", False)
    if type(exclude) is not bool:
        raise errors.InvalidValue("exclude is true or false")
    return ResetRow(where, parse_topic(found["topic"]), name, _target(found, exclude, parse_time))


def _target(found: dict[str, Any], exclude: bool, parse_time: Callable[[Any], int]) -> ResetTarget:  # Any: as above
    message_id, time = found.get("messageId"), found.get("time")
    shift_by, other = found.get("shiftBy"), found.get("toSubscription")
    if other is not None and not isinstance(other, str):
        raise errors.InvalidValue("toSubscription must be a string")
    return reset_target(
        time_ms=None if time is None else _time(time, parse_time),
        position=None if message_id is None else _position(message_id),
        shift_by=None if shift_by is None else integer(shift_by, "shiftBy", -LONG_MAX),
        like=other,
        exclude=exclude,
    )


def _position(value: object) -> Position:
    if isinstance(value, (str, Position)):
        return parse_position(str(value))
    if isinstance(value, dict):
        parts = [value.get("ledgerId"), value.get("entryId"), value.get("batchIndex", -1)]
        ids = [integer(part, "messageId", -1) for part in parts]
        return parse_position(":".join(str(part) for part in (ids if ids[2] >= 0 else ids[:2])))
    raise errors.InvalidValue('messageId is "LEDGER:ENTRY" or an object with ledgerId and entryId')


def _time(value: object, parse_time: Callable[[Any], int]) -> int:  # Any: as above
    if type(value) is int:
        return parse_time(f"@{value}")
    if isinstance(value, (str, datetime, timedelta)):
        return parse_time(value)
    raise errors.InvalidValue("time is epoch milliseconds, or a string that -t takes")


def _hint() -> str:
    return 'a row is for example {"topic":"public/default/orders","subscription":"workers","messageId":"10:4"}'


# -- out of time -------------------------------------------------------------------------------------------------------
# Refusals of what goes by time and meets nothing there: a reset past the newest entry, an expiry before the oldest, one past the copy.
#
# A broker does all three without a word: the first skips the whole backlog, and so does the last on a copy that is a day old.


_SHOWN = 3


def check_has_times(topic: Topic) -> None:
    """Raise NothingMatches for a topic without entries."""
    if not topic.number_of_entries:
        raise errors.NothingMatches(
            f"{topic.name} has no entries, so it has no times",
            hint="list topics and their entries with: pulsar-admin topics stats --all-topics",
            topic=str(topic.name),
        )


def check_now_is_meant(reader: EntryReader, time_ms: int, clock_ms: int) -> None:
    """Raise NothingMatches for a time counted from now if the store is a copy of another time than the clock's."""
    as_of = find_as_of(reader.txn)
    if as_of is not None and isinstance(time_ms, FromNow) and as_of.time_ms != clock_ms:
        earlier_ms = time_ms - (clock_ms - as_of.time_ms)
        raise _which_now(as_of, clock_ms, f"the time is {format_time_ms(time_ms)}", f"{format_time_ms(earlier_ms)}")


def check_nows_agree(
    reader: EntryReader, moves: Sequence[CursorMove], plan: Callable[[int], Sequence[CursorMove]], clock_ms: int
) -> None:
    """Raise NothingMatches if a time counted from the clock's now and from the copy's end gives different positions.

    ``plan`` returns the moves for times that many ms earlier. "2h ago" can mean either, before today or before the copy
    was made, so the user must say which.
    """
    as_of = find_as_of(reader.txn)
    if as_of is None or as_of.time_ms == clock_ms:
        return
    others = plan(clock_ms - as_of.time_ms)
    differing = [(one, other) for one, other in zip(moves, others, strict=True) if one.state != other.state]
    if not differing:
        return
    move, other = differing[0]
    more = f", and {counted(len(differing) - 1, 'other')}" if len(differing) > 1 else ""
    raise _which_now(
        as_of,
        clock_ms,
        f"{move.cursor.name} of {move.topic.name}{more} would get to {move.state.mark_delete}",
        f"to {other.state.mark_delete}",
        topic=str(move.topic.name),
        subscription=move.cursor.name,
    )


def _which_now(as_of: AsOf, clock_ms: int, then: str, otherwise: str, **context: object) -> errors.NothingMatches:
    """Return the error that asks which now is meant; ``then`` and ``otherwise`` are the results by clock and by copy."""
    return errors.NothingMatches(
        f"which time is now? Counted back from the clock, {format_time_ms(clock_ms)}, {then}; from the time of this "
        f"copy, {format_time_ms(as_of.time_ms)} ({as_of.said_by}), {otherwise}",
        hint=f"say it with --now {format_time_ms(as_of.time_ms)}, or with --now now for the clock's",
        **context,
        clock=int(clock_ms),
        asOf=as_of.time_ms,
        nows=[format_time_ms(as_of.time_ms), "now"],
    )


def _newest_entry(reader: EntryReader, topic: Topic, clock: Clock) -> Dated | None:
    """Return the topic's entry with the latest time on ``clock``; None if no entry has one."""
    rows = ((ledger_id, reader.txn.view("times", ledger_key(ledger_id))) for ledger_id in topic.ids)
    latest = max((decode_latest(ledger_id, row, clock) for ledger_id, row in rows if row is not None), default=0)
    newest = find_first_at_or_after(reader, topic, latest, clock) if latest > 0 else None
    if newest is None or newest.position is None or newest.entry_time_ms is None:
        return None
    return Dated(newest.position, newest.entry_time_ms, 0)


def _check_resets_meet(
    reader: EntryReader, moves: Sequence[CursorMove], missed: Sequence[CursorMove], clock: Clock, now_ms: int
) -> None:
    """Raise NothingMatches if a move in ``missed`` (no entry at or after its time) skips anything, or if all moves miss."""
    skipping = [move for move in missed if _gone(reader, move).entries]
    if not missed or (not skipping and len(missed) < len(moves)):
        return
    first, *others = skipping or missed
    assert first.basis is not None
    assert first.basis.time_ms is not None
    time_ms = first.basis.time_ms
    newest = _newest_entry(reader, first.topic, clock)
    gone = _gone(reader, first)
    who = "a broker finds nothing" if first.basis.rule == BROKER else "nothing is"
    text = f"{first.topic.name}: {who} at or after {format_time_ms(time_ms)}"
    if gone.entries:
        text += f": {first.cursor.name} would move to the end and skip {counted_messages(gone.messages, gone.uncounted_entries)}"
    if newest is not None:
        text += f"; the newest entry, {_dated(newest, now_ms)}"
    # What could not be read may be at or after the time.
    text += "".join(f"; {warning}" for warning in first.warnings if not warning.startswith(who))
    if others:
        text += f" (also for {_others(others)})"
    ways = "--force moves to the end anyway"
    if first.basis.rule == BROKER:
        ways = f"omit --rule broker to search exactly; {ways}"
    if newest is not None and isinstance(time_ms, FromNow):
        ways = f"to count back from the newest entry: --now {format_time_ms(newest.time_ms)}; {ways}"
    raise errors.NothingMatches(
        text,
        hint=ways,
        topic=str(first.topic.name),
        subscription=first.cursor.name,
        time=int(time_ms),
        newestPosition=None if newest is None else str(newest.position),
        newestTime=None if newest is None else newest.time_ms,
        skips=record_json(gone),
    )


def check_expiries_meet(
    reader: EntryReader, moves: Sequence[CursorMove], limit_ms: int, clock: Clock, now_ms: int
) -> None:
    """Raise NothingMatches if there is a backlog but nothing to drop, or if a limit counted from now is after the
    copy's end.

    The latter would drop everything in the copy.
    """
    gone = [_gone(reader, move) for move in moves]
    if not any(extent.entries for extent in gone):
        _raise_for_nothing_older(reader, [move for move in moves if _backlog(move)], limit_ms, clock, now_ms)
    elif isinstance(limit_ms, FromNow):
        emptied = [move for move, extent in zip(moves, gone, strict=True) if extent.entries and not _left(move)]
        _check_copy_reaches(reader, emptied, limit_ms, clock, now_ms)


def _raise_for_nothing_older(
    reader: EntryReader, moves: Sequence[CursorMove], limit_ms: int, clock: Clock, now_ms: int
) -> None:
    if not moves:
        return
    first, *others = moves
    search = PendingSearch(reader, first.topic, first.cursor.state, clock)
    oldest = next(search.iter_late(0), None)
    text = f"{first.topic.name}: {first.cursor.name} has nothing to expire before {format_time_ms(limit_ms)}"
    if oldest is not None:
        text += f"; its next entry, {_dated(oldest, now_ms)}"
    if others:
        text += f" (also for {_others(others)})"
    raise errors.NothingMatches(
        text,
        hint="name a later time, another --now, or a position with -p; in scripts, --force changes nothing and continues",
        topic=str(first.topic.name),
        subscription=first.cursor.name,
        limit=int(limit_ms),
        oldestPosition=None if oldest is None else str(oldest.position),
        oldestTime=None if oldest is None else oldest.time_ms,
    )


def _check_copy_reaches(
    reader: EntryReader, emptied: Sequence[CursorMove], limit_ms: int, clock: Clock, now_ms: int
) -> None:
    end_ms = read_copy_age(reader.txn).end_ms
    if not emptied or limit_ms <= end_ms:
        return
    total = sum((_gone(reader, move) for move in emptied), Extent())
    if not total.messages and not total.uncounted_entries:
        return  # nothing but markers of brokers
    newest = max(
        (last.time_ms for move in emptied if (last := _newest_entry(reader, move.topic, clock))), default=end_ms
    )
    raise errors.NothingMatches(
        f"this copy ends at {format_time_ms(end_ms)}, {format_age_ms(now_ms - end_ms)} ago: everything in it is older "
        f"than the limit {format_time_ms(limit_ms)}, and {_others(emptied)} would lose"
        f" {counted_messages(total.messages, total.uncounted_entries)}, the whole backlog",
        hint=f"to count back from the newest entry: --now {format_time_ms(newest)}; --force drops the whole backlog",
        topic=str(emptied[0].topic.name),
        subscription=emptied[0].cursor.name,
        limit=int(limit_ms),
        copyEnd=end_ms,
        expires=record_json(total),
    )


def _dated(entry: Dated, now_ms: int) -> str:
    """Return an entry's position, time and age as text."""
    age_ms = now_ms - entry.time_ms
    old = f"is {format_age_ms(age_ms)} old" if age_ms >= 0 else f"is dated {format_age_ms(-age_ms)} ahead of now"
    return f"{entry.position} of {format_time_ms(entry.time_ms)}, {old}"


def _gone(reader: EntryReader, move: CursorMove) -> Extent:
    """Return the entries, messages and bytes that a move removes from the backlog."""
    before, after = _backlog(move), _left(move)
    return extent_of_messages(reader, move.topic, subtract(before, after))


def _backlog(move: CursorMove) -> tuple[tuple[int, int], ...]:
    return tuple(pending_intervals(move.topic, move.cursor.state))


def _left(move: CursorMove) -> tuple[tuple[int, int], ...]:
    return tuple(pending_intervals(move.topic, move.state))


def _others(moves: Sequence[CursorMove]) -> str:
    """Return the names of the moves' first cursors, and how many more there are, as text."""
    names = [f"{move.cursor.name} of {move.topic.name}" for move in moves[:_SHOWN]]
    more = len(moves) - len(names)
    return ", ".join(names) + (f" and {counted(more, 'other')}" if more else "")


_OR_BROKER = ", or add --rule broker: it takes the next existing entry"


class Before(Struct, frozen=True):
    """Expire everything older than a time; ``ttl``: the policy that gives the time, if one does."""

    time_ms: int
    ttl: MessageTtl | None = None


class UpTo(Struct, frozen=True):
    """Expire everything up to a position; the entry there stays if ``exclude``."""

    position: Position
    exclude: bool = False


class ByTtl(Struct, frozen=True):
    """Expire everything older than the TTL in force for the topic."""


Limit = Before | UpTo | ByTtl
"""The entries that an expiry drops: older than a time, up to a position, or by the TTL in force."""


class ExpiryRequest(Struct, frozen=True):
    """What to expire, and how. ``broker``: the broker that rule ``broker`` imitates and the other rule is compared with.

    ``force``: also accept that nothing is dropped, or everything because the whole copy is older than the limit.
    """

    now_ms: int
    limit: Limit
    rule: ExpiryRule = ALL_BEFORE
    clock: Clock = "auto"
    broker: BrokerSetup = DEFAULT_BROKER
    force: bool = False

    def __post_init__(self) -> None:
        """Raise InvalidValue for an unknown rule or clock, and for a clock with rule ``broker``."""
        errors.check_choice("rule", self.rule, ExpiryRule)
        check_clock(self.clock)
        if self.rule == BROKER and self.clock != "auto":
            raise errors.InvalidValue("--rule broker goes by the broker's own clock: leave out --clock")


def expiry_move(reader: EntryReader, topic: Topic, cursor: Cursor, request: ExpiryRequest) -> CursorMove:
    """Return the move that expires what ``request`` selects; raises LedgerNotFound, EntryNotFound and Refused.

    ``request.limit`` must not be ``ByTtl``: the caller turns a TTL, which differs by topic, into ``Before``.
    """
    limit = request.limit
    if isinstance(limit, UpTo):
        state, basis, warnings = _by_position(reader, topic, cursor, limit, request)
    else:
        assert isinstance(limit, Before)
        state, basis, warnings = _by_time(reader, topic, cursor, limit, request)
    dropped = subtract(pending_intervals(topic, cursor.state), pending_intervals(topic, state))
    future = read_future_dated(PendingSearch(reader, topic, state, request.clock), request.now_ms)
    held = None
    if future.first is not None:
        held = FutureDated(
            future.entries, future.messages, future.first, future.latest_ms, tuple(sorted(future.producers))
        )
    expiry = ExpiryDetails(ledger_parts(reader, topic, dropped), held)
    return CursorMove(topic, cursor, state, basis, expiry, tuple(warnings))


# -- by age -----------------------------------------------------------------------------------------------------------


def _by_time(
    reader: EntryReader, topic: Topic, cursor: Cursor, limit: Before, request: ExpiryRequest
) -> tuple[CursorState, MoveBasis, list[str]]:
    in_broker_terms = limit.time_ms < request.now_ms
    if request.rule == BROKER and not in_broker_terms:
        raise errors.InvalidValue(
            "a broker expires by an age above 0: with age 0 it expires nothing, it knows no limit ahead of now"
        )
    search = PendingSearch(reader, topic, cursor.state, request.clock)
    through = expire_by_time(search, cursor, limit.time_ms, request.rule, request.broker)
    state = cursor.state if through is None else advanced(topic, cursor.state, through)
    basis = MoveBasis(request.rule, limit_ms=limit.time_ms)
    if limit.ttl is not None:
        basis = replace(basis, ttl_seconds=limit.ttl.seconds, ttl_source=limit.ttl.source)
    if request.rule == BROKER:
        warnings = _younger_warnings(search, state, limit.time_ms)
        return state, basis, [*warnings, *_search_warnings(search)]
    warnings = []
    through = None
    try:
        if in_broker_terms:
            through = broker_through(reader, topic, cursor, limit.time_ms, request.broker)
    except errors.NotSeen as error:
        warnings.append(error.message)
    else:
        theirs = cursor.state if through is None else advanced(topic, cursor.state, through)
        basis = replace(basis, broker=_broker_expiry(reader, topic, state, theirs))
    warnings += _unseen_dropped(reader, topic, cursor, state, limit.time_ms, request)
    return state, basis, [*warnings, *_search_warnings(search)]


def _unseen_dropped(
    reader: EntryReader, topic: Topic, cursor: Cursor, state: CursorState, limit_ms: int, request: ExpiryRequest
) -> list[str]:
    """Return a warning about dropped entries whose times cannot be read; raises Refused for them, unless forced."""
    dropped = subtract(pending_intervals(topic, cursor.state), pending_intervals(topic, state))
    unseen = find_unseen(reader.txn, topic, dropped, limit_ms, request.clock)
    if unseen and not request.force:
        bookies = sorted({bookie for doubt in unseen for bookie in doubt.bookies})
        bring = bring_hint(bookies) if bookies else "import it: pulsar-admin store add offload DIR|URL"
        raise errors.Refused(
            f"{topic.name}: whether all that {cursor.name} would lose is older than {format_time_ms(limit_ms)} is not known: "
            + text_of_doubts(unseen),
            hint=f"{bring}; --force drops them anyway",
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
        warnings.append(f"the store has no entry of ledgers {ledgers}: their times are unknown and hold nothing back")
    if search.unreadable:
        warnings.append(
            counted(search.unreadable, "damaged entry holds nothing back", "damaged entries hold nothing back")
        )
    return warnings


def _broker_expiry(reader: EntryReader, topic: Topic, ours: CursorState, theirs: CursorState) -> BrokerMove:
    """Return the broker's move; ``entries``: how many more than this toolkit it drops, below 0: fewer."""
    left, left_by_broker = pending_intervals(topic, ours), pending_intervals(topic, theirs)
    more = extent_of(reader.txn, topic, subtract(left, left_by_broker)).entries
    fewer = extent_of(reader.txn, topic, subtract(left_by_broker, left)).entries
    return BrokerMove(theirs.mark_delete, ours == theirs, more - fewer)


# -- by position ------------------------------------------------------------------------------------------------------


def _by_position(
    reader: EntryReader, topic: Topic, cursor: Cursor, limit: UpTo, request: ExpiryRequest
) -> tuple[CursorState, MoveBasis, list[str]]:
    position = limit.position
    basis = MoveBasis(request.rule, position)
    if position == EARLIEST:
        return cursor.state, basis, []
    if position == LATEST:
        return cleared(topic, cursor.state), basis, []
    if request.rule == BROKER:
        return _broker_state(reader, topic, cursor, limit), basis, []
    check_position(topic, position, _OR_BROKER)
    start, unacknowledged = start_position(reader, topic, position, exclude=not limit.exclude)
    state = advanced(topic, cursor.state, topic.previous(start))
    if unacknowledged:
        state = _with_batch(topic, state, start, unacknowledged)
    try:
        theirs = _broker_state(reader, topic, cursor, limit)
    except errors.Refused:  # a broker refuses positions after the last entry, and moves nothing
        theirs = cursor.state
    broker = _broker_expiry(reader, topic, state, theirs)
    return state, replace(basis, broker=broker), []


def _broker_state(reader: EntryReader, topic: Topic, cursor: Cursor, limit: UpTo) -> CursorState:
    """Return the state after upstream's ``calculatePositionAckSet`` and mark-delete at a position (4.0.8).

    Upstream's exclude works as for a reset: the next entry expires too, or with a batch index only the messages up to it.
    """
    position = limit.position
    entry, index = position.entry, position.batch_index
    size = batch_size(reader, position) if index >= 0 and topic.is_entry(entry) else 0
    first = index + 1 if limit.exclude else index
    inside = 0 < first < size
    if not inside:
        following = Position(entry.ledger_id, entry.entry_id + 1)
        through = broker_through_position(topic, cursor, following if limit.exclude else entry)
        return cursor.state if through is None else advanced(topic, cursor.state, through)
    state = advanced(topic, cursor.state, topic.previous(entry))
    return _with_batch(topic, state, entry, bit_words(range(first, size)))


def _with_batch(topic: Topic, state: CursorState, entry: Position, unacknowledged: tuple[int, ...]) -> CursorState:
    """Return ``state`` with the batch at ``entry`` acknowledged except for the ``unacknowledged`` messages (words of a bit set)."""
    rank = topic.rank(entry)
    if not any(start <= rank < end for start, end in pending_intervals(topic, state)):
        return state
    known = state.batch_deletes.get(entry)
    if known is not None:
        unacknowledged = tuple(mine & theirs for mine, theirs in zip(unacknowledged, known, strict=False))
    if not any(unacknowledged):
        return advanced(topic, state, entry)
    return replace(state, batch_deletes={**state.batch_deletes, entry: unacknowledged})
