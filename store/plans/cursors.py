"""Moving cursors: the state a broker would leave behind, as steps and reports (pulsar.md §3.4–3.6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from store.codec.cursor import CursorInfo, CursorState, encode_cursor_info
from store.codec.message import decode_message_entry, is_batch, message_count
from store.cursors import COMPACTION_CURSOR, Cursor, backlog_entries, range_text
from store.errors import EntryCorrupt, EntryNotFound, Refused
from store.extent import Extent, extent_of, pending_intervals, subtract
from store.ledgers import EntryReader
from store.meta import Txn
from store.names import EARLIEST, LATEST, Position
from store.plans.base import Plan, Report, Step, put_value_step
from store.topics import Topic
from store.tree import read_node

_WORD_BITS = 64


@dataclass(frozen=True, slots=True)
class CursorMove:
    """One cursor and the state it is to have."""

    topic: Topic
    cursor: Cursor
    state: CursorState
    facts: tuple[tuple[str, Any], ...] = ()  # Any: JSON; more for the report


def plan_moves(txn: Txn, command: str, moves: Iterable[CursorMove], now_ms: int, warnings: Iterable[str] = ()) -> Plan:
    """Return one plan for MOVES: all of them or none."""
    steps: list[Step] = []
    reports: list[Report] = []
    for move in moves:
        steps.append(_move_step(txn, move, now_ms))
        reports.append(_move_report(txn, move))
    return Plan(command, txn.id, tuple(steps), tuple(reports), warnings=tuple(warnings))


def _move_step(txn: Txn, move: CursorMove, now_ms: int) -> Step:
    """The whole state goes into ManagedCursorInfo, with no cursor ledger: what a broker reads when it loads the cursor."""
    path = move.topic.name.cursor_path(move.cursor.name)
    node = read_node(txn, path)
    state = move.state
    info = CursorInfo(
        cursors_ledger_id=-1,
        mark_delete=state.mark_delete,
        ranges=state.ranges,
        batch_deletes=state.batch_deletes,
        properties=state.properties,
        cursor_properties=move.cursor.info.cursor_properties,
        last_active_ms=move.cursor.info.last_active_ms,
    )
    return put_value_step(txn, path, encode_cursor_info(info, node.value), now_ms)


def _move_report(txn: Txn, move: CursorMove) -> Report:
    before, after = pending_intervals(move.topic, move.cursor.state), pending_intervals(move.topic, move.state)
    replayed = extent_of(txn, move.topic, subtract(after, before))
    skipped = extent_of(txn, move.topic, subtract(before, after))
    total = replayed + skipped
    return {
        "topic": str(move.topic.name),
        "subscription": move.cursor.name,
        "before": _state_json(move.topic, move.cursor.state),
        "after": _state_json(move.topic, move.state),
        "entries": total.entries,
        "messages": total.messages,
        "bytes": total.bytes,
        "replayed": _extent_json(replayed),
        "skipped": _extent_json(skipped),
        **dict(move.facts),
    }


def _state_json(topic: Topic, state: CursorState) -> dict[str, Any]:  # Any: JSON
    return {
        "markDeletePosition": str(state.mark_delete),
        "individuallyDeletedMessages": range_text(state.ranges),
        "batchIndexAcks": len(state.batch_deletes),
        "backlogEntries": backlog_entries(topic, state),
    }


def _extent_json(extent: Extent) -> dict[str, int]:
    return {"entries": extent.entries, "messages": extent.messages, "bytes": extent.bytes}


# -- reset ------------------------------------------------------------------------------------------------------------


def check_resettable(cursor: Cursor, *, force: bool) -> None:
    """Raise Refused for the compaction cursor unless FORCE: readers of the compacted view would see other data."""
    if cursor.name == COMPACTION_CURSOR and not force:
        raise Refused(
            f"{cursor.name} of {cursor.topic} marks how far the topic is compacted; moved, readers see other messages",
            hint="add --force to move it all the same; its CompactedTopicLedger stays",
            topic=str(cursor.topic),
        )


def reset_state(reader: EntryReader, topic: Topic, cursor: Cursor, target: Position, *, exclude: bool) -> CursorState:
    """Return the state after a reset so that TARGET is the first entry given again (EXCLUDE: the one behind it).

    A position that is no entry moves to the next one that is; behind the end, to the end. A batch index keeps the messages
    before it acknowledged. Individual acknowledgements are cleared; ``__compaction`` keeps its properties.
    """
    properties = cursor.state.properties if cursor.name == COMPACTION_CURSOR else {}
    if target == EARLIEST:
        return CursorState(topic.first_position, properties=properties)
    if target == LATEST:
        return CursorState(topic.last_confirmed, properties=properties)
    entry = target.entry
    acked: tuple[int, ...] = ()
    if target.batch_index >= 0 and topic.is_entry(entry):
        entry, acked = _batch_ack(reader, topic, target, exclude)
    elif exclude:
        entry = topic.next_valid(entry)
    if not topic.is_entry(entry):
        entry = topic.next_valid(entry)
    state = CursorState(topic.previous(entry), properties=properties)
    return replace(state, batch_deletes={entry: acked}) if acked else state


def _batch_ack(reader: EntryReader, topic: Topic, target: Position, exclude: bool) -> tuple[Position, tuple[int, ...]]:
    """Return (entry to start at, its ack set: SET bits are unacknowledged); an unreadable entry counts as no batch."""
    try:
        metadata = decode_message_entry(
            reader.read(target.ledger_id, target.entry_id).payload, f"entry {target}"
        ).metadata
    except (EntryNotFound, EntryCorrupt):
        return (topic.next_valid(target.entry) if exclude else target.entry), ()
    size = message_count(metadata) if is_batch(metadata) else 0
    acked = target.batch_index + (1 if exclude else 0)
    if (size and acked >= size) or (not size and exclude):
        return topic.next_valid(target.entry), ()
    if not size or not acked:
        return target.entry, ()
    return target.entry, bit_words(range(acked, size))


def bit_words(bits: Iterable[int]) -> tuple[int, ...]:
    """Return the words of a Java BitSet (signed 64-bit, LSB first) with BITS set."""
    words: dict[int, int] = {}
    for bit in bits:
        words[bit // _WORD_BITS] = words.get(bit // _WORD_BITS, 0) | 1 << bit % _WORD_BITS
    signed = (words.get(index, 0) for index in range(max(words, default=-1) + 1))
    return tuple(word - 2**_WORD_BITS if word >= 2 ** (_WORD_BITS - 1) else word for word in signed)


def reset_to_time(topic: Topic, cursor: Cursor, first: Position | None) -> CursorState:
    """Return the state in which FIRST (None: nothing) is the first entry given again."""
    properties = cursor.state.properties if cursor.name == COMPACTION_CURSOR else {}
    mark_delete = topic.last_confirmed if first is None else topic.previous(first)
    return CursorState(mark_delete, properties=properties)
