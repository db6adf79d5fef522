"""What consumers get of a chunked message when a cursor is moved into it: its last chunks alone.

Tried on Pulsar 4.0.8 and 4.2.4: the client drops chunks without the first one of their message and never acknowledges them.
"""

from __future__ import annotations

from store.codec.cursor import CursorState
from store.codec.message import EntryHeader, decode_message_entry, is_chunk
from store.errors import StoreError
from store.model.extent import pending_intervals
from store.model.reader import EntryReader
from store.model.topics import Topic
from store.names import Position

_LOOK_BACK = 1_000
"""Entries before a chunk in which the first one of its message is looked for: other producers' may lie between them."""


def chunk_warnings(reader: EntryReader, topic: Topic, state: CursorState) -> tuple[str, ...]:
    """Return what to say of STATE of a cursor of TOPIC where the first entry that it gives is a later chunk of a message."""
    pending = pending_intervals(topic, state)
    header = _header(reader, topic.at_rank(pending[0][0])) if pending else None
    if header is None or not is_chunk(header.metadata) or not header.metadata.chunk_id:
        return ()
    metadata = header.metadata
    at, total = topic.at_rank(pending[0][0]), metadata.num_chunks_from_msg
    first = _first_chunk(reader, topic, pending[0][0], metadata.uuid)
    begins = "" if first is None else f" that begins at {first}"
    left = total - metadata.chunk_id
    text = f"{at} is chunk {metadata.chunk_id + 1} of {total} of a message{begins}: consumers get its last {left} alone, drop"
    text += f" {'it' if left == 1 else 'them'} and never acknowledge {'it' if left == 1 else 'them'}"
    return (text if first is None else f"{text}; to give all of it again: -m {first}",)


def _first_chunk(reader: EntryReader, topic: Topic, rank: int, uuid: str) -> Position | None:
    for before in range(rank - 1, max(rank - _LOOK_BACK, 0) - 1, -1):
        header = _header(reader, topic.at_rank(before))
        if header is not None and header.metadata.uuid == uuid and not header.metadata.chunk_id:
            return topic.at_rank(before)
    return None


def _header(reader: EntryReader, position: Position) -> EntryHeader | None:
    try:
        return decode_message_entry(reader.read(position.ledger_id, position.entry_id).payload, f"entry {position}")
    except StoreError:
        return None  # lost or damaged, which is told of the topic
