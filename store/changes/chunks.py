"""What consumers get of a chunked message when a cursor is moved into it: its last chunks alone."""

from __future__ import annotations

from store.codec.cursor import CursorState
from store.facts.chunks import find_cut
from store.model.extent import pending_intervals
from store.model.reader import EntryReader
from store.model.topics import Topic


def chunk_warnings(reader: EntryReader, topic: Topic, state: CursorState) -> tuple[str, ...]:
    """Return what to say of STATE of a cursor of TOPIC where what it gives first is a later chunk of a message."""
    cut = find_cut(reader, topic, pending_intervals(topic, state))
    if cut is None:
        return ()
    begins = "" if cut.first is None else f" that begins at {cut.first}"
    left = cut.total - cut.chunk
    text = f"{cut.position} is chunk {cut.chunk + 1} of {cut.total} of a message{begins}: consumers get its last {left} alone, drop"
    text += f" {'it' if left == 1 else 'them'} and never acknowledge {'it' if left == 1 else 'them'}"
    return (text if cut.first is None else f"{text}; to give all of it again: -m {cut.first}",)
