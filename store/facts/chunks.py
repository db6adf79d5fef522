"""Chunked messages that a cursor cuts: some of their first chunks are acknowledged, or gone.

Tried on Pulsar 4.0.8 and 4.2.4: the client drops chunks without the first one of their message and never acknowledges them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from msgspec import Struct

from pulsar_admin.store.codec.message import EntryHeader, decode_message_entry, is_chunk
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.cursors import Intervals
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position

_LOOK = 1_000
"""Entries among which chunks of one message are looked for: other producers' may lie between them."""


class CutMessage(Struct, frozen=True):
    """A message of ``total`` chunks of which a backlog has those from ``chunk`` (counted from 0) on, at ``position``.

    ``first``: where its first chunk is, None where it is gone or too far away. ``left``: entries at the backlog's beginning that are of
    it; 0 where others are before it.
    """

    position: Position
    chunk: int
    total: int
    producer: str
    first: Position | None
    left: int


def find_cut(reader: EntryReader, topic: Topic, pending: Intervals) -> CutMessage | None:
    """Return the chunked message that the beginning of the backlog ``pending`` of ``topic`` cuts; reads two entries where it cuts none."""
    if not pending:
        return None
    start = pending[0][0]
    edges = (read_header(reader, topic, rank) for rank in (start, start - 1) if rank >= 0)
    if not any(header is not None and is_chunk(header.metadata) for header in edges):
        return None
    begun = set[str]()
    for rank in islice(_ranks(pending), _LOOK):
        header = read_header(reader, topic, rank)
        if header is None or not is_chunk(header.metadata):
            continue
        metadata = header.metadata
        if not metadata.chunk_id:
            begun.add(metadata.uuid)
        elif metadata.uuid not in begun:
            return CutMessage(
                topic.at_rank(rank),
                metadata.chunk_id,
                metadata.num_chunks_from_msg,
                metadata.producer_name,
                _first_chunk(reader, topic, rank, metadata.uuid),
                _left(reader, topic, pending, metadata.uuid),
            )
    return None


def _ranks(pending: Intervals) -> Iterator[int]:
    for start, end in pending:
        yield from range(start, end)


def _left(reader: EntryReader, topic: Topic, pending: Intervals, uuid: str) -> int:
    """Return how many entries at the beginning of ``pending`` are chunks of the message ``uuid``."""
    count = 0
    for rank in _ranks(pending):
        header = read_header(reader, topic, rank)
        if header is None or header.metadata.uuid != uuid:
            break
        count += 1
    return count


def _first_chunk(reader: EntryReader, topic: Topic, rank: int, uuid: str) -> Position | None:
    for before in range(rank - 1, max(rank - _LOOK, 0) - 1, -1):
        header = read_header(reader, topic, before)
        if header is not None and header.metadata.uuid == uuid and not header.metadata.chunk_id:
            return topic.at_rank(before)
    return None


def read_header(reader: EntryReader, topic: Topic, rank: int) -> EntryHeader | None:
    """Return the header of an entry; None of one that is lost or damaged, which is told of the topic, or is no message."""
    position = topic.at_rank(rank)
    try:
        return decode_message_entry(reader.read(position.ledger_id, position.entry_id).payload, f"entry {position}")
    except StoreError:
        return None
