"""Bytes that the product reads and never writes: ledger and cursor entries, compacted ledgers, snapshots of delayed-delivery buckets."""

import struct
from collections.abc import Iterable

from pyroaring import BitMap

from pulsar_admin.store.codec.cursor import CursorState
from pulsar_admin.store.codec.delayedbucket import DelayedIndex, SegmentMetadata
from pulsar_admin.store.codec.digest import compute_digest
from pulsar_admin.store.codec.entry import Entry
from pulsar_admin.store.names import Position
from pulsar_admin.store.proto import delayed_bucket_pb2, managed_ledger_pb2
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageIdData

_SIZE = struct.Struct(">I")
_ENTRY_HEADER = struct.Struct(">qqqq")


def encode_entry(entry: Entry, password: bytes = b"") -> bytes:
    """Return the body bytes of ENTRY with its digest computed anew; PASSWORD matters to HMAC only."""
    header = _ENTRY_HEADER.pack(entry.ledger_id, entry.entry_id, entry.last_add_confirmed, entry.length)
    return b"".join((header, compute_digest(entry.digest_type, header, entry.payload, password), entry.payload))


def encode_position_info(state: CursorState) -> bytes:
    """Return STATE as an entry of a cursor ledger, with ranges."""
    message = managed_ledger_pb2.PositionInfo(ledgerId=state.mark_delete.ledger_id, entryId=state.mark_delete.entry_id)
    for lower, upper in state.ranges:
        item = message.individualDeletedMessages.add()
        item.lowerEndpoint.ledgerId, item.lowerEndpoint.entryId = lower.ledger_id, lower.entry_id
        item.upperEndpoint.ledgerId, item.upperEndpoint.entryId = upper.ledger_id, upper.entry_id
    for position, words in state.batch_deletes.items():
        deleted = message.batchedEntryDeletionIndexInfo.add(deleteSet=words)
        deleted.position.ledgerId, deleted.position.entryId = position.ledger_id, position.entry_id
    for name, value in state.properties.items():
        message.properties.add(name=name, value=value)
    return message.SerializeToString()


def encode_compacted_entry(message_id: MessageIdData, headers_and_payload: bytes | memoryview) -> bytes:
    """Return an entry for a compacted ledger."""
    header = message_id.SerializeToString()
    return b"".join((_SIZE.pack(len(header)), header, _SIZE.pack(len(headers_and_payload)), headers_and_payload))


def original_id(position: Position, partition: int = -1) -> MessageIdData:
    """Return the id that the broker writes in front of the entry at POSITION: with its partition, also when −1."""
    return MessageIdData(ledgerId=position.ledger_id, entryId=position.entry_id, partition=partition)


def encode_compacted_to(position: Position) -> bytes:
    """Return the value of ``pulsar/compactedTo`` for the last position that compaction read."""
    return MessageIdData(ledgerId=position.ledger_id, entryId=position.entry_id, batch_size=0).SerializeToString()


def encode_snapshot_metadata(segments: Iterable[SegmentMetadata]) -> bytes:
    """Return entry 0 of a bucket's ledger, bitmaps in the order of their mapping."""
    message = delayed_bucket_pb2.SnapshotMetadata()
    for segment in segments:
        item = message.metadata_list.add(
            max_schedule_timestamp=segment.max_schedule_ms, min_schedule_timestamp=segment.min_schedule_ms
        )
        for ledger_id, bitmap in segment.bitmaps.items():
            item.delayed_index_bit_map.add(key=ledger_id, value=bitmap)
    return message.SerializeToString()


def encode_snapshot_segment(indexes: Iterable[DelayedIndex]) -> bytes:
    """Return an entry i ≥ 1 of a bucket's ledger."""
    message = delayed_bucket_pb2.SnapshotSegment()
    for index in indexes:
        message.indexes.add(timestamp=index.timestamp_ms, ledger_id=index.ledger_id, entry_id=index.entry_id)
    return message.SerializeToString()


def encode_entry_ids(entry_ids: Iterable[int]) -> bytes:
    """Return entry ids as a portable RoaringBitmap."""
    bitmap = BitMap(entry_ids)
    bitmap.run_optimize()
    return bytes(bitmap.serialize())
