"""Bytes that the product reads and never writes: entries of compacted ledgers and snapshots of delayed-delivery buckets."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from pyroaring import BitMap

from store.codec.delayedbucket import DelayedIndex, SegmentMetadata
from store.names import Position
from store.proto import delayed_bucket_pb2
from store.proto.pulsar_api_pb2 import MessageIdData

_SIZE = struct.Struct(">I")


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
