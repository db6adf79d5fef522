"""Entries of topics and of compacted ledgers, built with protobuf alone so that the product's own encoders are not the judge."""

import struct
from collections.abc import Sequence
from typing import Any

import cramjam
import google_crc32c
from msgspec import Struct, field

from pulsar_admin.store.proto.pulsar_api_pb2 import MessageIdData, MessageMetadata, SingleMessageMetadata

NONE, LZ4, ZLIB, ZSTD, SNAPPY = range(5)
PUBLISH_MS = 1_700_000_000_000


class Slot(Struct, frozen=True):
    """One message of a batch, or a message alone; ``value`` None: a null value."""

    key: str | None
    value: bytes | None = b""
    compacted_out: bool = False


class Batch(Struct, frozen=True):
    """An entry. ``slots`` of one with ``alone`` is a message outside a batch. ``indexes``: field 31."""

    slots: Sequence[Slot]
    codec: int = NONE
    alone: bool = False
    count: int | None = None  # num_messages_in_batch; None: as many as there are slots
    indexes: Sequence[int] = ()
    encrypted: bool = False
    publish_ms: int = PUBLISH_MS
    payload: bytes | None = None  # stored as it is, instead of the slots
    more: dict[str, Any] = field(default_factory=dict)  # other fields of the metadata


def compress(codec: int, data: bytes) -> bytes:
    import zlib

    if codec == LZ4:
        return bytes(cramjam.lz4.compress_block(data, store_size=False))
    if codec == ZLIB:
        return zlib.compress(data)
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data))
    return bytes(cramjam.snappy.compress_raw(data)) if codec == SNAPPY else data


def slots_payload(slots: Sequence[Slot]) -> bytes:
    parts = []
    for slot in slots:
        value = slot.value or b""
        metadata = SingleMessageMetadata(payload_size=len(value))
        if slot.key is not None:
            metadata.partition_key = slot.key
        if slot.value is None:
            metadata.null_value = True
        if slot.compacted_out:
            metadata.compacted_out = True
        data = metadata.SerializeToString()
        parts += [struct.pack(">I", len(data)), data, value]
    return b"".join(parts)


def entry(batch: Batch, sequence_id: int = 0) -> bytes:
    """Return the entry of a topic."""
    metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=batch.publish_ms)
    if batch.alone:
        slot = batch.slots[0]
        plain = slot.value or b""
        if slot.key is not None:
            metadata.partition_key = slot.key
        if slot.value is None:
            metadata.null_value = True
    else:
        plain = slots_payload(batch.slots)
        metadata.num_messages_in_batch = len(batch.slots) if batch.count is None else batch.count
        if batch.slots and batch.slots[0].key is not None:
            metadata.partition_key = batch.slots[0].key
    if batch.codec:
        metadata.compression = batch.codec  # type: ignore[assignment]
        metadata.uncompressed_size = len(plain)
    if batch.encrypted:
        metadata.encryption_keys.add(key="k", value=b"v")
    metadata.compacted_batch_indexes.extend(batch.indexes)
    for name, value in batch.more.items():
        setattr(metadata, name, value)
    stored = compress(batch.codec, plain) if batch.payload is None else batch.payload
    return framed(metadata, stored)


def framed(metadata: MessageMetadata, payload: bytes) -> bytes:
    header = metadata.SerializeToString()
    body = struct.pack(">I", len(header)) + header + payload
    return b"\x0e\x01" + struct.pack(">I", google_crc32c.value(body)) + body


def compacted(ledger_id: int, entry_id: int, inner: bytes) -> bytes:
    """Return the entry of a compacted ledger."""
    front = MessageIdData(ledgerId=ledger_id, entryId=entry_id, partition=-1).SerializeToString()
    return struct.pack(">I", len(front)) + front + struct.pack(">I", len(inner)) + inner


def split(payload: bytes) -> tuple[bytes, MessageMetadata, bytes]:
    """Return message id bytes, metadata and stored payload of a compacted entry, taken apart by hand."""
    id_size = struct.unpack_from(">I", payload)[0]
    (size,) = struct.unpack_from(">I", payload, 4 + id_size)
    inner = payload[8 + id_size :]
    assert len(inner) == size
    assert inner[:2] == b"\x0e\x01"
    (meta_size,) = struct.unpack_from(">I", inner, 6)
    return payload[4 : 4 + id_size], MessageMetadata.FromString(inner[10 : 10 + meta_size]), inner[10 + meta_size :]


def decompressed(codec: int, data: bytes, size: int) -> bytes:
    """Return the uncompressed payload of SIZE bytes."""
    import zlib

    if codec == 1:
        return bytes(cramjam.lz4.decompress_block(data, output_len=size))
    if codec == 2:
        return zlib.decompressobj().decompress(data)  # Java flushes it and never ends it
    if codec == 3:
        return bytes(cramjam.zstd.decompress(data))
    return bytes(cramjam.snappy.decompress_raw(data)) if codec == 4 else data
