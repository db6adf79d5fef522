"""Broker entry metadata, which the broker puts before an entry (PIP-70).

``0x0e02 | u32 n | BrokerEntryMetadata(n)``, only where interceptors are configured, and decided per entry, never per
topic. The entry's checksum does not cover it. Upstream: ``Commands.skipBrokerEntryMetadataIfExist`` and
``AppendIndexMetadataInterceptor``: ``index`` is the index of the LAST message in the entry.
"""

import struct

from msgspec import Struct

from pulsar_admin.store.codec.protobuf import parse_protobuf
from pulsar_admin.store.errors import EntryCorrupt
from pulsar_admin.store.proto import pulsar_api_pb2

MAGIC = b"\x0e\x02"

_HEADER = struct.Struct(
    ">2s"  # magic
    "I"  # size of the BrokerEntryMetadata
)


class BrokerEntry(Struct, frozen=True):
    """When the broker appended an entry (ms) and the index of its last message; each is optional."""

    timestamp_ms: int | None
    index: int | None


def metadata_end(payload: memoryview, where: str) -> int:
    """Return the offset after the broker entry metadata of a payload, 0 if it has none.

    Raises EntryCorrupt if its size passes the end of the payload.
    """
    if payload[:2] != MAGIC:
        return 0
    if len(payload) < _HEADER.size:
        raise EntryCorrupt(f"{where}: broker entry metadata cut after {len(payload)} bytes", where=where)
    size: int = _HEADER.unpack_from(payload)[1]
    end = _HEADER.size + size
    if end > len(payload):
        raise EntryCorrupt(
            f"{where}: broker entry metadata of {size} bytes in an entry of {len(payload)}",
            where=where,
            expected=end,
            found=len(payload),
        )
    return end


def split_broker_entry(payload: memoryview, where: str) -> tuple[BrokerEntry | None, memoryview]:
    """Return the broker's metadata (None when the entry has none) and the rest of the entry.

    Raises EntryCorrupt.
    """
    end = metadata_end(payload, where)
    if not end:
        return None, payload
    metadata = parse_protobuf(pulsar_api_pb2.BrokerEntryMetadata, payload[_HEADER.size : end], where, EntryCorrupt)
    entry = BrokerEntry(
        metadata.broker_timestamp if metadata.HasField("broker_timestamp") else None,
        metadata.index if metadata.HasField("index") else None,
    )
    return entry, payload[end:]


def strip(payload: memoryview, where: str) -> memoryview:
    """Return the entry without broker entry metadata, unparsed; raises EntryCorrupt."""
    return payload[metadata_end(payload, where) :]


def encode_broker_entry(entry: BrokerEntry) -> bytes:
    """Return magic, size and metadata, to precede an entry."""
    metadata = pulsar_api_pb2.BrokerEntryMetadata(broker_timestamp=entry.timestamp_ms, index=entry.index)
    body = metadata.SerializeToString()
    return _HEADER.pack(MAGIC, len(body)) + body
