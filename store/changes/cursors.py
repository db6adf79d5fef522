"""Moving cursors: the state that a broker would leave, as steps and reports (pulsar.md §3.4–3.6).

``advanced`` is every move forward: upstream's mark-delete (``ManagedCursorImpl.setAcknowledgedPosition``, 4.0.8).
The broker's own cursors (compaction, deduplication, transaction logs) move only with ``force``.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.changes import plan
from pulsar_admin.store.codec.cursor import CursorInfo, CursorState, encode_cursor_info
from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import read_node
from pulsar_admin.store.errors import InvalidValue, Refused
from pulsar_admin.store.facts.backlogs import extent_of_messages, find_cut
from pulsar_admin.store.model import cursors
from pulsar_admin.store.model.broken_beside import unseen_position
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import COMPACTED_LEDGER, Topic, lacks_bookies
from pulsar_admin.store.names import PENDING_ACK_SUFFIX, TRANSACTION_LOG_PREFIX, Position, TopicName
from pulsar_admin.store.policies.retention import Freed, freed_ledgers, read_mark_deletes
from pulsar_admin.store.wording import counted


class CursorMove(Struct, frozen=True):
    """One cursor, the ``state`` that it moves to, and details of the move for the report."""

    topic: Topic
    cursor: cursors.Cursor
    state: CursorState
    basis: plan.MoveBasis | None = None
    expiry: plan.ExpiryDetails | None = None
    warnings: tuple[str, ...] = ()
    misses: bool = False
    """Whether no entry is at or after the requested time, so that the cursor moves to the end."""
    force: bool = False
    """Whether to move even one of the broker's own cursors."""
    is_set: bool = False
    """Whether the user gave the position: a damaged stored state is then replaced even if the position stays the same.
    """
    as_broker: bool = False
    """Whether a broker moves its own cursor in the same way, so that no ``force`` is needed."""

    def check(self) -> None:
        """Raise Refused for one of the broker's own cursors, unless the move is forced or a broker makes it too."""
        _check_move(self.topic, self.cursor, self.state, force=self.force or self.as_broker)

    @property
    def is_forced(self) -> bool:
        """Whether the move is allowed only because of ``force``."""
        is_own = self.force and not self.as_broker and is_guarded(self.topic.name, self.cursor.name)
        return is_own and _passes_entries(self.topic, self.cursor.state, self.state)


CLEAR_BACKLOG = plan.ChangeKind("topics clear-backlog", "clear the backlog of {subscription} on {place}")
CLEAR_NAMESPACE = plan.ChangeKind("namespaces clear-backlog", CLEAR_BACKLOG.words)
SKIP = plan.ChangeKind("topics skip", "skip messages of {subscription} on {place}")
RESET = plan.ChangeKind("topics reset-cursor", "reset {cursor} of {place}")


def plan_moves(reader: EntryReader, kind: plan.ChangeKind, moves: Iterable[CursorMove], now_ms: int) -> plan.Plan:
    """Return one plan for all moves. A cursor that is already at its new state is reported and not written.

    Raises Refused for one of the broker's own cursors.
    """
    listed = list(moves)
    for move in listed:
        move.check()
    steps = tuple(_move_step(reader.txn, move, now_ms) for move in listed if _moves(move))
    after = {(move.topic.name, move.cursor.name): move.state.mark_delete for move in listed}
    topics = {move.topic.name: move.topic for move in listed}
    freed = {name: _freed(reader, topic, after, now_ms) for name, topic in topics.items()}
    parts = tuple(_move_part(reader, move, freed[move.topic.name]) for move in listed)
    untouched = frozenset(place for place, move in enumerate(listed) if not _moves(move))
    return plan.Plan(kind, reader.txn.id, steps, parts, untouched=untouched)


def _moves(move: CursorMove) -> bool:
    """Return whether the move writes anything; it also replaces a stored state that is damaged or incomplete."""
    is_stale = move.is_set and (move.cursor.is_incomplete or is_unreadable(move.cursor))
    return move.state != move.cursor.state or move.cursor.ahead is not None or is_stale


def is_unreadable(cursor: cursors.Cursor) -> bool:
    """Return whether the cursor's stored value is damaged, so that its position is unknown."""
    return cursor.source is cursors.CursorSource.UNREADABLE


def _freed(reader: EntryReader, topic: Topic, after: Mapping[tuple[Any, str], Position], now_ms: int) -> Freed:
    before = read_mark_deletes(reader, topic)
    moved = {name: after.get((topic.name, name), position) for name, position in before.items()}
    return freed_ledgers(reader, topic, before, moved, now_ms)


def _move_step(txn: Txn, move: CursorMove, now_ms: int) -> Step:
    """Return the step that writes the whole state into ManagedCursorInfo, without a cursor ledger, as a broker can load it."""
    path = move.topic.name.cursor_path(move.cursor.name)
    node = read_node(txn, path)
    before = move.cursor.info
    info = info_of_state(move.state, before.cursor_properties, before.last_active_ms)
    base = b"" if is_unreadable(move.cursor) else node.value  # a damaged value has no fields that could be kept
    return plan.put_value_step(txn, path, encode_cursor_info(info, base), now_ms)


def info_of_state(
    state: CursorState, cursor_properties: Mapping[str, str], last_active_ms: int | None = None
) -> CursorInfo:
    """Return the ManagedCursorInfo that holds ``state`` inline instead of in a cursor ledger."""
    return CursorInfo(
        cursors_ledger_id=-1,
        mark_delete=state.mark_delete,
        ranges=state.ranges,
        batch_deletes=state.batch_deletes,
        properties=state.properties,
        cursor_properties=cursor_properties,
        last_active_ms=last_active_ms,
    )


# -- reports ----------------------------------------------------------------------------------------------------------


def _move_part(reader: EntryReader, move: CursorMove, freed: Freed) -> plan.CursorPart:
    txn = reader.txn
    before, after = (
        cursors.pending_intervals(move.topic, move.cursor.state),
        cursors.pending_intervals(move.topic, move.state),
    )
    replayed = extent_of_messages(reader, move.topic, cursors.subtract(after, before))
    skipped = extent_of_messages(reader, move.topic, cursors.subtract(before, after))
    is_lost = is_unreadable(move.cursor)
    is_at_end = move.state.mark_delete == move.topic.last_confirmed
    stood = (
        state_json(move.topic, move.cursor.state)
        | ({} if move.cursor.ahead is None else {"storedMarkDeletePosition": str(move.cursor.ahead)})
        | _view_json(move, move.cursor.state)
    )
    return plan.CursorPart(
        topic=str(move.topic.name),
        subscription=move.cursor.name,
        before=None if is_lost else stood,
        after=state_json(move.topic, move.state) | _view_json(move, move.state),
        extent=extent_of_messages(reader, move.topic, after) if is_lost else replayed + skipped,
        replayed=None if is_lost else replayed,
        skipped=None if is_lost else skipped,
        deletable=deletable_of(freed),
        basis=move.basis,
        expiry=move.expiry,
        warnings=(
            *((_guard_text(move.cursor),) if move.is_forced else ()),
            *_source_warnings(move, unseen_position(txn, move.cursor)),
            *(end_warnings(txn, move.topic, "stays in the backlog") if is_at_end else ()),
            *move.warnings,
            *(
                chunk_warnings(reader, move.topic, move.state)
                if move.state.mark_delete != move.cursor.mark_delete
                else ()
            ),
        ),
    )


def _view_json(move: CursorMove, state: CursorState) -> dict[str, int | None]:
    """Return the compacted ledger after the move, as JSON, if the move changes or removes it."""
    before, after = (one.properties.get(COMPACTED_LEDGER) for one in (move.cursor.state, move.state))
    return {} if before == after else {"compactedLedger": state.properties.get(COMPACTED_LEDGER)}


def _source_warnings(move: CursorMove, unseen: str) -> list[str]:
    """Return warnings about the cursor's old position; ``unseen``: ``unseen_position``."""
    cursor = move.cursor
    warnings = []
    if is_unreadable(cursor):
        warnings.append(unreadable_text(cursor))
    elif unseen:
        warnings.append(unseen)
    elif cursor.recoverable is not None:
        warnings.append(
            f"BookKeeper's metadata of the cursor ledger {cursor.info.cursors_ledger_id} is gone: a broker would start {cursor.name} "
            f"at {cursor.mark_delete}; the ledger's entries still say {cursor.recoverable.mark_delete}"
        )
    elif cursor.source is cursors.CursorSource.FALLBACK:
        warnings.append(
            f"the cursor ledger {cursor.info.cursors_ledger_id} is gone or empty: the only known position of "
            f"{cursor.name} is the one from before that ledger was created"
        )
    if cursor.skipped_entries:
        warnings.append(f"the newest {counted(cursor.skipped_entries, 'entry')} of the cursor ledger cannot be read")
    if set(move.state.batch_deletes) - set(cursor.state.batch_deletes):
        warnings.append(
            "brokers before 5.0 do not read acknowledgements inside a batch from metadata: they redeliver that whole batch"
        )
    return warnings


def find_unseen_end(txn: Txn, topic: Topic) -> Refused | None:
    """Return the refusal of what needs the end of ``topic`` if its open ledger may have more entries that are not imported."""
    if not topic.ledgers or not topic.ledgers[-1].is_open or not lacks_bookies(txn):
        return None
    from pulsar_admin.store.model.broken import end_unseen
    from pulsar_admin.store.model.coverage import bring_hint

    first, places = end_unseen(txn, topic.ledgers[-1])
    if not places:
        return None
    ledger_id = topic.ledgers[-1].ledger_id
    text = f"{', '.join(places)}, not imported, may have more of ledger {ledger_id} from entry {first} on"
    return Refused(f"where {topic.name} ends is unknown: {text}", hint=bring_hint(places), topic=str(topic.name))


def end_warnings(txn: Txn, topic: Topic, fate: str) -> tuple[str, ...]:
    """Return the warning that ``topic`` may have more entries after its known end, and their ``fate``; () without any."""
    unseen_end = find_unseen_end(txn, topic)
    return () if unseen_end is None else (f"{unseen_end.message}; that {fate}",)


def unreadable_text(cursor: cursors.Cursor) -> str:
    """Return the sentence about what is lost because the value of ``cursor`` is damaged."""
    return f"the value of {cursor.name} cannot be read: its position, acknowledgements and properties are lost"


def state_json(topic: Topic, state: CursorState) -> dict[str, Any]:  # Any: JSON
    """Return a cursor's position and acknowledgements for a report."""
    return {
        "markDeletePosition": str(state.mark_delete),
        "individuallyDeletedMessages": cursors.range_text(state.ranges),
        "batchIndexAcks": len(state.batch_deletes),
        "backlogEntries": cursors.backlog_entries(topic, state),
    }


def deletable_of(freed: Freed) -> plan.Deletable:
    """Return, for a report, the ledgers that a broker may delete after the change and the cursor that retains the rest."""
    return plan.Deletable(
        tuple(ledger.ledger_id for ledger in freed.ledgers),
        sum(ledger.entries for ledger in freed.ledgers),
        sum(ledger.size_bytes for ledger in freed.ledgers),
        tuple(ledger.ledger_id for ledger in freed.kept_by_retention),
        None if freed.blocker is None else plan.RetainingSubscription(*freed.blocker),
        tuple(ledger.ledger_id for ledger in freed.retained),
    )


def ledger_parts(reader: EntryReader, topic: Topic, intervals: cursors.Intervals) -> tuple[plan.LedgerPart, ...]:
    """Return the entries and bytes in ``intervals``, for each ledger."""
    parts: dict[int, list[tuple[int, int]]] = {}
    for start, end in intervals:
        for ledger_id, first, last in cursors.iter_ledger_parts(topic, start, end):
            rank = topic.rank(Position(ledger_id, first))
            parts.setdefault(ledger_id, []).append((rank, rank + last - first + 1))
    return tuple(
        plan.LedgerPart(ledger_id, extent_of_messages(reader, topic, tuple(some))) for ledger_id, some in parts.items()
    )


# -- forward ----------------------------------------------------------------------------------------------------------


def advanced(topic: Topic, state: CursorState, position: Position) -> CursorState:
    """Return ``state`` after a mark-delete at ``position`` (an entry, or between two entries); it never moves
    backwards.

    Acknowledged ranges that start directly after the position are merged into it. Other ranges and LongProperties stay;
    batch acknowledgements at or before the position are dropped. A position after the last entry means the last entry.
    """
    target = min(position.entry, topic.last_confirmed)
    if target <= state.mark_delete:
        return state
    next_rank = topic.place(target)
    for start, end in cursors.normal_ranges(topic, state):
        if start <= next_rank < end:
            target, next_rank = topic.at_rank(end - 1), end
            break
    ranges = tuple((max(lower, target), upper) for lower, upper in state.ranges if topic.place(upper) > next_rank)
    batches = {entry: words for entry, words in state.batch_deletes.items() if entry > target}
    return replace(state, mark_delete=target, ranges=ranges, batch_deletes=batches)


def skipped(topic: Topic, state: CursorState, count: int) -> CursorState:
    """Return ``state`` after skipping the next ``count`` unacknowledged entries, at most to the end of the topic."""
    left = count
    for start, end in cursors.pending_intervals(topic, state):
        if left <= 0:
            return state
        if left <= end - start:
            return advanced(topic, state, topic.at_rank(start + left - 1))
        left -= end - start
    return state if left == count else advanced(topic, state, topic.last_confirmed)


def cleared(topic: Topic, state: CursorState) -> CursorState:
    """Return ``state`` with the whole topic acknowledged."""
    return advanced(topic, state, topic.last_confirmed)


def plan_clear(
    reader: EntryReader,
    kind: plan.ChangeKind,
    chosen: Iterable[tuple[Topic, cursors.Cursor]],
    now_ms: int,
    *,
    force: bool = False,
) -> plan.Plan:
    """Plan skipping the whole backlog of cursors; raises as ``plan_moves``."""
    moves = [CursorMove(topic, cursor, cleared(topic, cursor.state), force=force) for topic, cursor in chosen]
    return plan_moves(reader, kind, moves, now_ms)


def plan_skip(
    reader: EntryReader, count: int, force: bool, chosen: Iterable[tuple[Topic, cursors.Cursor]], now_ms: int
) -> plan.Plan:
    """Plan skipping the next ``count`` unacknowledged entries of each cursor; raises InvalidValue, and as ``plan_moves``."""
    if count < 0:
        raise InvalidValue(f"skip {count}: a number of entries is 0 or more")
    moves = [CursorMove(topic, cursor, skipped(topic, cursor.state, count), force=force) for topic, cursor in chosen]
    return plan_moves(reader, SKIP, moves, now_ms)


# -- guards ------------------------------------------------------------------------------------------------------------
# What a broker keeps for itself: cursors that no command moves or removes unless it is forced, wherever it is asked for.
#
# Every change of a cursor's position passes ``_check_move``, every removal ``check_removal``. Those of logs of transactions may move over
# no entry, from a ledger that is gone to the beginning of the next one: a broker that starts replays the same, and it cures a log whose
# cursor stands where nothing is any more (apache/pulsar#26368).


_MOVED = {
    cursors.COMPACTION_CURSOR: "marks how far the topic is compacted; if it is moved, readers see other messages",
    cursors.DEDUP_CURSOR: (
        "marks up to where the broker knows its producers' sequence ids; if it is moved, the broker drops or "
        "duplicates messages"
    ),
    cursors.PENDING_ACK_CURSOR: (
        "marks up to where transactions' acknowledgements are settled; if it is moved, a broker loses or repeats some, "
        "or never opens the subscription"
    ),
    cursors.LOG_CURSOR: (
        "marks up to where a coordinator's transactions are over; if it is moved, the coordinator forgets open ones or "
        "repeats old ones"
    ),
}
_REMOVED = {
    cursors.COMPACTION_CURSOR: "without it the compacted view is gone",
    cursors.DEDUP_CURSOR: "without it deduplication forgets",
    cursors.PENDING_ACK_CURSOR: "without it what transactions acknowledged is gone",
    cursors.LOG_CURSOR: "without it open transactions are gone",
}


def is_transaction_log(topic: TopicName) -> bool:
    """Return whether the topic is a transaction log, which a broker does not open as a topic (``BrokerService.createPersistentTopic0``)."""
    local = topic.base.local_name
    return local.endswith(PENDING_ACK_SUFFIX) or (topic.is_system and local.startswith(TRANSACTION_LOG_PREFIX))


def check_ending(topic: TopicName, verb: str, hint: str) -> None:
    """Raise Refused for a transaction log: a broker does not ``verb`` it either."""
    if is_transaction_log(topic):
        raise Refused(
            f"{topic} is a log of a broker's transactions, which no broker would {verb}: records that only it holds would be lost",
            hint=hint,
            topic=str(topic),
        )


def is_guarded(topic: TopicName, cursor: str) -> bool:
    """Return whether ``cursor`` is one of the broker's own: of compaction, deduplication or a transaction log."""
    local = topic.base.local_name
    if cursor == cursors.PENDING_ACK_CURSOR:
        return local.endswith(PENDING_ACK_SUFFIX)
    if cursor == cursors.LOG_CURSOR:
        return topic.is_system and local.startswith(TRANSACTION_LOG_PREFIX)
    return cursor in _MOVED


def _guard_text(cursor: cursors.Cursor) -> str:
    """Return the text about the consequences of moving ``cursor``, one of the broker's own."""
    return f"{cursor.name} of {cursor.topic} {_MOVED[cursor.name]}"


def is_move(before: CursorState, after: CursorState) -> bool:
    """Return whether a change counts as a move of the cursor: not if only properties differ, but also if nothing does."""
    return before == after or replace(before, properties=after.properties) != after


def _passes_entries(topic: Topic, before: CursorState, after: CursorState) -> bool:
    """Return whether the cursor's backlog differs between ``before`` and ``after``."""
    return (
        cursors.pending_intervals(topic, before) != cursors.pending_intervals(topic, after)
        or before.batch_deletes != after.batch_deletes
    )


def _check_move(topic: Topic, cursor: cursors.Cursor, after: CursorState, *, force: bool) -> None:
    """Raise Refused for a move of one of the broker's own cursors, unless ``force``."""
    if force or not is_guarded(topic.name, cursor.name) or not is_move(cursor.state, after):
        return
    if cursor.name in (cursors.PENDING_ACK_CURSOR, cursors.LOG_CURSOR) and not _passes_entries(
        topic, cursor.state, after
    ):
        return
    hint = "add --force to move it anyway, for a plan file to the command that writes it"
    raise Refused(
        _guard_text(cursor),
        hint=hint
        + ("; its properties (CompactedTopicLedger) stay" if cursor.name == cursors.COMPACTION_CURSOR else ""),
        topic=str(cursor.topic),
        subscription=cursor.name,
    )


def check_removal(cursor: cursors.Cursor, *, force: bool) -> None:
    """Raise Refused for removing one of the broker's own cursors, unless ``force``."""
    if is_guarded(cursor.topic, cursor.name) and not force:
        raise Refused(
            f"{cursor.name} of {cursor.topic} is the broker's own: {_REMOVED[cursor.name]}",
            hint="add --force to remove it anyway, for a plan file to the command that writes it",
            topic=str(cursor.topic),
            subscription=cursor.name,
        )


# -- chunks ------------------------------------------------------------------------------------------------------------
# What consumers get of a chunked message when a cursor is moved into it: a part that they drop.


def chunk_warnings(reader: EntryReader, topic: Topic, state: CursorState) -> tuple[str, ...]:
    """Return a warning if the first entry that a cursor in ``state`` would deliver is a later chunk of a message."""
    cut = find_cut(reader, topic, cursors.pending_intervals(topic, state))
    if cut is None:
        return ()
    begins = "" if cut.first is None else f" that begins at {cut.first}"
    left = cut.total - len(cut.acknowledged)
    text = f"{cut.position} is chunk {cut.chunk + 1} of {cut.total} of a message{begins}: consumers get only"
    text += f" {counted(left, 'chunk')} of it, and drop {'it' if left == 1 else 'them'}"
    return (text if cut.whole_from is None else f"{text}; to deliver the whole message again: -m {cut.whole_from}",)
