"""The last message of the compacted view (PIP-429 ``getLastMessagePosition``), if possible from entry metadata alone.

The rules in order (pulsar.md §4.6): the last entry after the horizon that a broker gives readers; otherwise the last
entry of the compacted ledger, by field 31 of its metadata or, without it, by the flags in its payload, which must be
decompressed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from pulsar_admin.store.codec.compression import decompress
from pulsar_admin.store.codec.message import EntryHeader, is_batch, is_encrypted
from pulsar_admin.store.compaction.heads import EntryHead, find_topic_end, lacking_is_corrupt, read_compacted_head
from pulsar_admin.store.errors import EntryCorrupt, StoreError
from pulsar_admin.store.model.compacted_view import CompactedView, compacted_where, open_view, read_compacted_entry
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position
from pulsar_admin.store.wording import Answer

if TYPE_CHECKING:
    from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata

BY_INDEXES, BY_FLAGS = "compacted-batch-indexes", "compacted-out-flags"
SINGLE, ENCRYPTED, OPAQUE = "single-message", "encrypted-batch", "opaque-payload"
TOPIC_END, NOTHING = "topic-end", "nothing-remains"
LISTED_MAX = 1000
"""Messages of one batch that are listed as rejected."""
NO_POSITION = Position(-1, -1, 0)
"""Upstream's ``MessagePosition.EARLIEST``: its publish time is 0."""


class Rejected(Answer, frozen=True):
    """A later message or entry (``batch_index`` −1) that does not count as the last message, and why."""

    position: Position
    reason: str


class LastId(Answer, frozen=True):
    """The last message. ``batch_index`` of the position is −1 outside batches and in a batch of one.

    ``rule``: how it was found. ``compacted_entry``: (ledger, entry) of the compacted ledger that decided, None for the
    topic itself. ``verified``: what was checked of that entry: "structure", or "digest" if its payload was read as
    well.
    """

    position: Position
    publish_ms: int
    rule: str
    horizon: Position | None = None
    compacted_entry: tuple[int, int] | None = None
    batch_size: int = 0
    payload_bytes: int = 0
    bytes_read: int = 0
    verified: str = "structure"
    rejected: tuple[Rejected, ...] = ()


def find_last_id(
    reader: EntryReader, topic: Topic, *, verify: bool = False, problems: list[StoreError] | None = None
) -> LastId:
    """Return the last message of a topic's compacted view; ``verify`` also reads and verifies its whole entry.
    ``problems``: as in ``open_view``.

    Raises MetadataCorrupt (the compacted ledger is gone or another topic's) and EntryCorrupt (the entry is damaged or
    lost).
    """
    view = open_view(reader, topic, problems)
    end = find_topic_end(reader, topic, None if view is None else view.horizon)
    passed = tuple(Rejected(entry.position, entry.reason) for entry in end.passed_over)
    if end.head is not None:
        head = end.head
        assert head is not None
        place, metadata = head.position, head.metadata
        if verify:
            reader.read(place.ledger_id, place.entry_id)
        index = metadata.num_messages_in_batch - 1 if is_batch(metadata) else -1
        return LastId(
            Position(place.ledger_id, place.entry_id, index),
            metadata.publish_time,
            TOPIC_END,
            None if view is None else view.horizon,
            batch_size=index + 1,
            payload_bytes=head.payload_bytes,
            bytes_read=head.bytes_read,
            verified="digest" if verify else "structure",
            rejected=passed,
        )
    if view is None:
        return LastId(NO_POSITION, 0, NOTHING, rejected=passed)
    return _of_compacted_ledger(reader, view, passed, verify)


def _of_compacted_ledger(
    reader: EntryReader, view: CompactedView, passed: tuple[Rejected, ...], verify: bool
) -> LastId:
    """Return the last message of the compacted ledger, searching backwards for an entry that still has one."""
    rejected = list(passed)
    for entry_id in range(view.last_entry_id, -1, -1):
        with lacking_is_corrupt():
            head = read_compacted_head(reader, view, entry_id)
            judged = judge_entry(reader, view, entry_id, head)
            if verify:
                read_compacted_entry(reader, view, entry_id)
        rejected += judged.rejected
        if judged.batch_index is not None:
            place = head.position
            return LastId(
                Position(place.ledger_id, place.entry_id, judged.batch_index),
                head.metadata.publish_time,
                judged.rule,
                view.horizon,
                (view.ledger_id, entry_id),
                head.metadata.num_messages_in_batch if is_batch(head.metadata) else 0,
                head.payload_bytes,
                head.bytes_read + judged.bytes_read,
                "digest" if verify or judged.bytes_read else "structure",
                tuple(rejected),
            )
    return LastId(NO_POSITION, 0, NOTHING, view.horizon, rejected=tuple(rejected))


class Judged(Struct, frozen=True):
    """The last message of one compacted entry: its batch index (−1: not a batch, None: no message is left), and the rule."""

    batch_index: int | None
    rule: str
    rejected: tuple[Rejected, ...] = ()
    bytes_read: int = 0


def judge_entry(reader: EntryReader, view: CompactedView, entry_id: int, head: EntryHead) -> Judged:
    """Return the last message of a compacted entry; reads its payload only if the metadata does not suffice.

    Raises EntryCorrupt for indexes that are out of order or range, and for a batch whose number of messages differs
    from the stated one.
    """
    metadata, place = head.metadata, head.position
    count = metadata.num_messages_in_batch
    where = compacted_where(view, entry_id)
    indexes = metadata.compacted_batch_indexes
    if is_batch(metadata):
        check_indexes(indexes, count, where)
    if not is_batch(metadata) or count <= 1:
        return Judged(-1, SINGLE)
    if indexes:
        # At most LISTED_MAX messages that the indexes do not list: a batch may claim billions.
        gaps = (range(low + 1, high) for low, high in pairwise((-1, *indexes, count)))
        return Judged(
            indexes[-1],
            BY_INDEXES,
            tuple(
                Rejected(Position(place.ledger_id, place.entry_id, index), "compacted_batch_indexes does not list it")
                for index in islice(chain.from_iterable(gaps), LISTED_MAX)
            ),
        )
    if is_encrypted(metadata):
        return Judged(count - 1, ENCRYPTED)
    return _judge_payload(read_compacted_entry(reader, view, entry_id).header, place, where)


def check_indexes(indexes: Sequence[int], count: int, where: str) -> Sequence[int]:
    """Return the indexes of a batch, metadata field 31; raises EntryCorrupt unless they ascend and are below ``count``."""
    before = -1
    for index in indexes:
        if not before < index < count:
            fault = "out of range" if not 0 <= index < count else "doubled" if index == before else "not ascending"
            raise EntryCorrupt(
                f"{where}: compacted_batch_indexes {list(indexes)[:16]} of a batch of {count}: {index} is {fault}",
                hint="compact the topic again, or check it with: pulsar-admin compaction verify TOPIC",
                where=where,
                found=list(indexes)[:16],
                messages=count,
            )
        before = index
    return indexes


def _judge_payload(header: EntryHeader, place: Position, where: str) -> Judged:
    """Return the last message that is not flagged ``compacted_out`` in the payload, as compaction before PIP-429 writes it."""
    from pulsar_admin.store.codec.batch import iter_batch, starts_as_batch

    metadata = header.metadata
    count, read = metadata.num_messages_in_batch, len(header.payload)
    plain = _uncompressed(metadata, header.payload, where)
    if plain is None or not starts_as_batch(plain):
        return Judged(count - 1, OPAQUE, bytes_read=read)
    last, rejected = None, []
    for slot in iter_batch(plain, count, where, placeholders=True):
        if slot.metadata.compacted_out:
            kind = "compacted_out, a null value" if slot.metadata.null_value else "compacted_out"
            rejected.append(Rejected(Position(place.ledger_id, place.entry_id, slot.index), kind))
        else:
            last = slot.index
    return Judged(last, BY_FLAGS, tuple(rejected), read)


def _uncompressed(metadata: MessageMetadata, payload: memoryview, where: str) -> bytes | memoryview | None:
    """Return the decompressed payload; None if it does not match its metadata although its checksum is right."""
    try:
        return decompress(metadata.compression, payload, metadata.uncompressed_size, where=where)
    except EntryCorrupt:
        return None
