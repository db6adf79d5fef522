"""Resetting a cursor: to a time, a position, a distance, or where another one stands (pulsar.md §3.5).

A reset clears what was acknowledged one by one and drops LongProperties; ``__compaction`` keeps its properties.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from store.changes.cursors import advanced
from store.codec.cursor import CursorState
from store.codec.message import decode_message_entry, is_batch, message_count
from store.errors import EntryCorrupt, EntryNotFound, LedgerNotFound, MetadataCorrupt, NotSeen
from store.model.cursors import COMPACTION_CURSOR, Cursor
from store.model.extent import extent_of, pending_intervals, subtract
from store.model.reader import EntryReader
from store.model.topics import Topic
from store.names import EARLIEST, LATEST, Position
from store.policies.in_force import find_message_ttl
from store.search.broker_setup import BrokerSetup
from store.search.expiry import broker_through

_WORD_BITS = 64


def reset_state(reader: EntryReader, topic: Topic, cursor: Cursor, target: Position, *, exclude: bool) -> CursorState:
    """Return the state after a reset so that TARGET is the first entry given again (EXCLUDE: the one behind it).

    A position that is not an entry moves to the next one that is; behind the end, to the end. A batch index keeps the messages
    before it acknowledged.
    """
    return replace(start_state(reader, topic, target, exclude=exclude), properties=kept_properties(cursor))


def start_state(reader: EntryReader, topic: Topic, target: Position, *, exclude: bool) -> CursorState:
    """Return the state of a cursor that is to be given TARGET next (EXCLUDE: what comes behind it)."""
    if target == EARLIEST:
        return CursorState(topic.first_position)
    if target == LATEST:
        return CursorState(topic.last_confirmed)
    entry, unacknowledged = start_position(reader, topic, target, exclude=exclude)
    state = CursorState(min(topic.previous(entry), topic.last_confirmed))
    return replace(state, batch_deletes={entry: unacknowledged}) if unacknowledged else state


def start_position(
    reader: EntryReader, topic: Topic, target: Position, *, exclude: bool
) -> tuple[Position, tuple[int, ...]]:
    """Return (entry to start at, words of its batch's unacknowledged messages; empty: all of it).

    An unreadable entry counts as no batch.
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
    """Return how many messages the batch at POSITION holds; 0 when it is not a batch or cannot be read."""
    try:
        payload = reader.read(position.ledger_id, position.entry_id).payload
        metadata = decode_message_entry(payload, f"entry {position}").metadata
    except (EntryNotFound, EntryCorrupt):
        return 0
    return message_count(metadata) if is_batch(metadata) else 0


def bit_words(bits: Iterable[int]) -> tuple[int, ...]:
    """Return the words of a Java BitSet (signed 64-bit, LSB first) with BITS set."""
    words: dict[int, int] = {}
    for bit in bits:
        words[bit // _WORD_BITS] = words.get(bit // _WORD_BITS, 0) | 1 << bit % _WORD_BITS
    signed = (words.get(index, 0) for index in range(max(words, default=-1) + 1))
    return tuple(word - 2**_WORD_BITS if word >= 2 ** (_WORD_BITS - 1) else word for word in signed)


def reset_to_time(topic: Topic, cursor: Cursor, first: Position | None) -> CursorState:
    """Return the state in which FIRST (None: nothing) is the first entry given again."""
    mark_delete = topic.last_confirmed if first is None else topic.previous(first)
    return CursorState(min(mark_delete, topic.last_confirmed), properties=kept_properties(cursor))


def shifted_state(topic: Topic, cursor: Cursor, entries: int) -> CursorState:
    """Return the state ENTRIES further (negative: back), acknowledged ones counted; it stops at both ends of the topic."""
    mark_delete = cursor.mark_delete
    rank = topic.place(mark_delete) + entries
    rank = min(rank, topic.number_of_entries)
    mark_delete = topic.at_rank(rank - 1) if rank > 0 else topic.first_position
    return CursorState(mark_delete, properties=kept_properties(cursor))


def state_of_other(cursor: Cursor, other: Cursor) -> CursorState:
    """Return the state in which CURSOR has been given exactly what OTHER has, acknowledgements one by one included."""
    return replace(other.state, properties=kept_properties(cursor))


def kept_properties(cursor: Cursor) -> Mapping[str, int]:
    """Return the LongProperties that outlive a reset of CURSOR."""
    return cursor.state.properties if cursor.name == COMPACTION_CURSOR else {}


def check_position(topic: Topic, target: Position, otherwise: str) -> None:
    """Raise LedgerNotFound or EntryNotFound unless TARGET is an entry of TOPIC, earliest, latest, or just behind a ledger's end.

    OTHERWISE ends the hint: what to type to move on to the next entry there is.
    """
    if target in (EARLIEST, LATEST):
        return
    ledger = topic.ledger(target.ledger_id)
    if ledger is None:
        raise LedgerNotFound(
            f"{topic.name} has no ledger {target.ledger_id}: {_ledgers_text(topic, target)}",
            hint=f"name an entry that is there, earliest or latest{otherwise}",
            topic=str(topic.name),
            ledgerId=target.ledger_id,
        )
    if not -1 <= target.entry_id <= ledger.entries:
        held = f"has entries 0 to {ledger.entries - 1}" if ledger.entries else "has no entries"
        raise EntryNotFound(
            f"{topic.name} has no entry {target.entry}: ledger {target.ledger_id} {held}",
            hint=f"name an entry that is there, earliest or latest{otherwise}",
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
    """Return what to say of the TTL in force: a broker expires entries that CURSOR, in STATE, is to be given again."""
    if cursor.name == COMPACTION_CURSOR:
        return ()
    try:
        ttl = find_message_ttl(reader.txn, topic.name)
    except MetadataCorrupt as error:
        return (f"whether a TTL skips what is replayed is unknown: {error.message}",)
    if ttl is None or ttl.seconds <= 0:
        return ()
    broker = BrokerSetup(loaded_ms=now_ms)
    try:
        through = broker_through(reader, topic, replace(cursor, state=state), now_ms - ttl.seconds * 1000, broker)
    except NotSeen as error:
        return (f"whether the TTL of {ttl.seconds} s skips what is replayed is not known: {error.message}",)
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
