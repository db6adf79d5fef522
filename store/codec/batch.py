"""Batches: N × ( ``u32 s | SingleMessageMetadata(s) | payload(payload_size)`` ), no padding and no trailer.

Upstream: ``Commands.deSerializeSingleMessageInBatch`` and ``RawBatchConverter`` (Pulsar 2.11 to 5.0). Bytes are those
after decryption and decompression. A compacted batch keeps its count and has placeholders (``compacted_out``, no
payload) where messages were dropped; PIP-429 lists the retained indexes beside it, and its text would also allow the
placeholders to be left out. Both forms are read, the form with placeholders is written.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from pulsar_admin.store.codec.protobuf import parse_protobuf, text_of
from pulsar_admin.store.errors import EntryCorrupt
from pulsar_admin.store.proto.pulsar_api_pb2 import SingleMessageMetadata

_SIZE = struct.Struct(">I")


class SingleMessage(Struct):
    """One message of a batch; ``payload`` is a view into the batch."""

    index: int
    metadata: SingleMessageMetadata
    payload: memoryview


def iter_batch(
    uncompressed: bytes | memoryview,
    count: int,
    where: str,
    compacted_indexes: Sequence[int] = (),
    *,
    placeholders: bool = False,
) -> Iterator[SingleMessage]:
    """Yield the messages of a batch, without those that compaction removed unless ``placeholders``.

    The slots are walked to the end of the bytes before the first is yielded: ``count`` slots have the indexes 0 … n−1,
    as many slots as ``compacted_indexes`` (metadata field 31) have those. Raises EntryCorrupt for any other number.
    """
    slots = list(_slots(memoryview(uncompressed), where))
    indexes: Sequence[int] = range(count)
    if slots and len(slots) == len(compacted_indexes) < count:
        indexes = compacted_indexes
        if sorted(set(indexes)) != list(indexes) or indexes[0] < 0 or indexes[-1] >= count:
            raise EntryCorrupt(
                f"{where}: the retained indexes {list(indexes)[:8]} are none of a batch of {count}", where=where
            )
    if len(slots) != len(indexes):
        raise EntryCorrupt(
            f"{where}: a batch of {count} messages holds {len(slots)}", where=where, expected=count, found=len(slots)
        )
    for index, (metadata, payload) in zip(indexes, slots, strict=True):
        if placeholders or not metadata.compacted_out:
            yield SingleMessage(index, metadata, payload)


def starts_as_batch(uncompressed: bytes | memoryview) -> bool:
    """Whether the bytes begin with one whole message of a batch; what custom compaction services write need not."""
    try:
        return next(_slots(memoryview(uncompressed), "payload"), None) is not None
    except EntryCorrupt:
        return False


def encode_batch(messages: Iterable[tuple[SingleMessageMetadata, bytes | memoryview] | SingleMessage]) -> bytes:
    """Return the uncompressed payload of a batch; payload sizes are set from the payloads.

    Messages come in index order without gaps: what compaction took out stays as a placeholder.
    """
    parts: list[bytes | memoryview] = []
    for message in messages:
        metadata, payload = (message.metadata, message.payload) if isinstance(message, SingleMessage) else message
        header = SingleMessageMetadata()
        header.CopyFrom(metadata)
        header.payload_size = len(payload)
        data = header.SerializeToString()
        parts += (_SIZE.pack(len(data)), data, payload)
    return b"".join(parts)


def placeholder() -> tuple[SingleMessageMetadata, bytes]:
    """Return the slot that stands for a message removed by compaction."""
    return SingleMessageMetadata(payload_size=0, compacted_out=True), b""


def _slots(data: memoryview, where: str) -> Iterator[tuple[SingleMessageMetadata, memoryview]]:
    offset = number = 0
    while offset < len(data):
        name = f"{where}: message {number} of the batch"
        begin = offset + _SIZE.size
        end = begin + _SIZE.unpack_from(data, offset)[0] if begin <= len(data) else begin
        if end > len(data):
            raise _cut(name, end, len(data))
        metadata = parse_protobuf(SingleMessageMetadata, data[begin:end], name, EntryCorrupt)
        text_of(metadata.partition_key, name, EntryCorrupt)
        for pair in metadata.properties:
            text_of(pair.key, name, EntryCorrupt)
            text_of(pair.value, name, EntryCorrupt)
        offset = end + metadata.payload_size
        if not end <= offset <= len(data):
            raise _cut(name, offset, len(data))
        yield metadata, data[end:offset]
        number += 1


def _cut(name: str, expected: int, found: int) -> EntryCorrupt:
    return EntryCorrupt(
        f"{name} ends at byte {expected}, the payload has {found}", where=name, expected=expected, found=found
    )
