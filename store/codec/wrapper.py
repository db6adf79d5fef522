"""The compression wrapper around ManagedLedgerInfo and ManagedCursorInfo values.

``0x4778 | u32 n | metadata(n) | compressed protobuf``; upstream ``MetaStoreImpl``. A value without the magic is plain
protobuf (which cannot begin so: 0x47 is not a field tag). Pulsar 5.0 wraps by default, 4.x only when configured.
"""

import struct
from typing import Literal

from msgspec import Struct

from pulsar_admin.store.codec import compression
from pulsar_admin.store.codec.protobuf import parse_protobuf
from pulsar_admin.store.errors import MetadataCorrupt
from pulsar_admin.store.proto import managed_ledger_pb2

Kind = Literal["managed-ledger", "cursor"]

MAGIC = b"\x47\x78"

_HEADER = struct.Struct(
    ">2s"  # magic
    "I"  # size of the metadata that follows
)


class Wrapping(Struct, frozen=True):
    """How a value was stored; the compression type NONE means plain protobuf."""

    compression: int = compression.NONE


PLAIN = Wrapping()


def unwrap(value: bytes, kind: Kind, where: str) -> tuple[bytes, Wrapping]:
    """Return the protobuf inside a value and how it was wrapped.

    Raises MetadataCorrupt, LimitExceeded for an absurd size, Unsupported for an unknown codec.
    """
    if value[:2] != MAGIC:
        return value, PLAIN
    if len(value) < _HEADER.size:
        raise MetadataCorrupt(f"{where}: compressed value cut after {len(value)} bytes", where=where)
    size: int = _HEADER.unpack_from(value)[1]
    start = _HEADER.size + size
    if start > len(value):
        raise MetadataCorrupt(
            f"{where}: compression header of {size} bytes in a value of {len(value)}",
            where=where,
            expected=start,
            found=len(value),
        )
    metadata = parse_protobuf(_metadata_of(kind), value[_HEADER.size : start], where, MetadataCorrupt)
    plain = compression.decompress(
        metadata.compressionType, value[start:], metadata.uncompressedSize, where=where, error=MetadataCorrupt
    )
    return bytes(plain), Wrapping(metadata.compressionType)


def wrap(plain: bytes, wrapping: Wrapping, kind: Kind) -> bytes:
    """Return protobuf bytes in a wrapped form: unchanged for NONE, which every broker reads."""
    if wrapping.compression == compression.NONE:
        return plain
    metadata = _metadata_of(kind)(compressionType=wrapping.compression, uncompressedSize=len(plain)).SerializeToString()
    return _HEADER.pack(MAGIC, len(metadata)) + metadata + compression.compress(wrapping.compression, plain)


def _metadata_of(
    kind: Kind,
) -> type[managed_ledger_pb2.ManagedLedgerInfoMetadata] | type[managed_ledger_pb2.ManagedCursorInfoMetadata]:
    is_cursor = kind == "cursor"
    return managed_ledger_pb2.ManagedCursorInfoMetadata if is_cursor else managed_ledger_pb2.ManagedLedgerInfoMetadata
