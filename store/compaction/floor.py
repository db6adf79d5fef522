"""How far a compacted ledger stands for its topic: what the ledger says, its last entry, and what the cursor says.

A broker writes two positions (upstream ``AbstractTwoPhaseCompactor``, 2.11 to 4.2): the cursor's is that of the last entry it read, the
ledger's ``pulsar/compactedTo`` that of the last one it did not take for deleted. Null values, keyless messages and markers at the end lie
between the two. 2.11.0 takes a batch for deleted that has one null value in it: it may still be in the ledger. Positions are
compared by their places in the topic: 4.2 leaves the cursor at (next ledger, −1).
"""

from __future__ import annotations

from functools import partial

from pulsar_admin.store.codec.claims import COMPACTED_TO
from pulsar_admin.store.codec.compactedentry import decode_compacted_to
from pulsar_admin.store.compaction.heads import read_compacted_head
from pulsar_admin.store.compaction.view import CompactedView
from pulsar_admin.store.errors import EntryCorrupt, EntryNotFound
from pulsar_admin.store.model.ledgers import find_metadata
from pulsar_admin.store.model.messages import Message, MessageReader, ReadOptions
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position


def compacted_floor(reader: EntryReader, topic: Topic, view: CompactedView) -> Position:
    """Return the last position that the compacted ledger of VIEW stands for; raises EntryCorrupt.

    This is the horizon, unless the cursor was moved since: what it skipped is still to be compacted, and what the ledger
    holds is not read twice.
    """
    metadata = find_metadata(reader.txn, view.ledger_id)
    raw = None if metadata is None else metadata.custom.get(COMPACTED_TO)
    floor = view.horizon if raw is None else decode_compacted_to(raw, f"ledger {view.ledger_id}, {COMPACTED_TO}")
    try:
        floor = with_last_entry(reader, view, floor)
    except EntryNotFound as error:
        raise EntryCorrupt(error.message, hint=error.hint, **error.context) from error
    skipped = find_skipped(reader, topic, floor, view.horizon)
    end = topic.place(view.horizon) if skipped is None else topic.rank(skipped)
    return topic.at_rank(end - 1) if end > topic.place(floor) else floor


def readable_floor(reader: EntryReader, topic: Topic, view: CompactedView) -> Position:
    """Return ``compacted_floor``; the horizon where the last entry of the compacted ledger cannot be read."""
    try:
        return compacted_floor(reader, topic, view)
    except EntryCorrupt:
        return view.horizon


def with_last_entry(reader: EntryReader, view: CompactedView, floor: Position) -> Position:
    """Return the later of FLOOR and the last entry of VIEW; raises EntryNotFound, EntryCorrupt."""
    if view.last_entry_id < 0:
        return floor
    return max(floor, read_compacted_head(reader, view, view.last_entry_id).position)


def find_skipped(reader: EntryReader, topic: Topic, floor: Position, horizon: Position) -> Position | None:
    """Return the first entry behind FLOOR and up to HORIZON that a compaction would not have taken for deleted, or one unreadable.

    None: readers of the compacted view miss nothing there.
    """
    first = topic.place(floor)
    markers = partial(map, topic.at_rank, range(first, topic.number_of_entries))
    messages = MessageReader(reader, ReadOptions(), markers)
    for place in map(topic.at_rank, range(first, topic.place(horizon))):
        if not all(map(_is_deleted, messages.iter_messages((place,)))) or messages.errors:
            return place
    return None


def _is_deleted(message: Message) -> bool:
    """Whether MESSAGE has no key or a null value."""
    return message.key is None or message.null_value or not len(message.payload)
