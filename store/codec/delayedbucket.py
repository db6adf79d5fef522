"""Snapshots of delayed-delivery buckets.

Upstream: ``BucketDelayedDeliveryTracker``, ``BookkeeperBucketSnapshotStorage`` (Pulsar 3.0 to 5.0). A cursor property
``#pulsar.internal.delayed.bucket_<first ledger>_<last ledger>`` names the bucket's ledger. Its entry 0 is the
SnapshotMetadata, entry i ≥ 1 the segment that ``metadata[i - 1]`` describes. Bitmaps are portable RoaringBitmaps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from pulsar_admin.store.codec.protobuf import parse_protobuf
from pulsar_admin.store.errors import EntryCorrupt
from pulsar_admin.store.proto import delayed_bucket_pb2

if TYPE_CHECKING:
    from pyroaring import BitMap

_KEY = re.compile(r"#pulsar\.internal\.delayed\.bucket_(\d{1,19})_(\d{1,19})")


class SegmentMetadata(Struct, frozen=True):
    """Describes a segment: its earliest and latest delivery time (ms) and, per ledger, a bitmap of entry ids."""

    min_schedule_ms: int
    max_schedule_ms: int
    bitmaps: Mapping[int, bytes]


class DelayedIndex(Struct, frozen=True):
    """An entry to be delivered at ``timestamp_ms``."""

    timestamp_ms: int
    ledger_id: int
    entry_id: int


def parse_bucket_key(name: str) -> tuple[int, int] | None:
    """Return first and last ledger id of a bucket's cursor property, None for any other property."""
    match = _KEY.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def decode_snapshot_metadata(
    payload: bytes | memoryview, where: str, *, strict: bool = False
) -> tuple[SegmentMetadata, ...]:
    """Return the segments' metadata in entry 0 of a bucket's ledger; raises EntryCorrupt. ``strict`` as of ``parse_protobuf``."""
    message = parse_protobuf(delayed_bucket_pb2.SnapshotMetadata, payload, where, EntryCorrupt, strict=strict)
    return tuple(
        SegmentMetadata(
            item.min_schedule_timestamp,
            item.max_schedule_timestamp,
            {entry.key: entry.value for entry in item.delayed_index_bit_map},
        )
        for item in message.metadata_list
    )


def decode_snapshot_segment(
    payload: bytes | memoryview, where: str, *, strict: bool = False
) -> tuple[DelayedIndex, ...]:
    """Return the indexes of a segment in their stored order, ascending by time; raises EntryCorrupt.

    ``strict`` as of ``parse_protobuf``.
    """
    message = parse_protobuf(delayed_bucket_pb2.SnapshotSegment, payload, where, EntryCorrupt, strict=strict)
    return tuple([DelayedIndex(item.timestamp, item.ledger_id, item.entry_id) for item in message.indexes])


def decode_entry_ids(bitmap: bytes, where: str) -> BitMap:
    """Return the entry ids in one bitmap; raises EntryCorrupt when it is not a portable RoaringBitmap."""
    from pyroaring import BitMap

    try:
        return BitMap.deserialize(bitmap)
    except (ValueError, IndexError) as cause:
        raise EntryCorrupt(f"{where}: no RoaringBitmap: {cause}", where=where, found=bitmap[:16].hex()) from cause
