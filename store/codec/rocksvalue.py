"""The header before every node in Pulsar's RocksDB metadata store.

Upstream: ``RocksdbMetadataStore.MetaValue`` (Pulsar 4.0.8), format version 1. The two keys
``__metadata_instanceId_key`` and ``__metadata_sequentialId_key`` hold a bare 8-byte number and no header; callers keep
them apart by name (``decode_counter``).
"""

import struct
from typing import NamedTuple

from pulsar_admin.store.errors import MetadataCorrupt, Unsupported
from pulsar_admin.store.wording import one_line

FORMAT_VERSION = 1
COUNTER_KEYS = (b"__metadata_instanceId_key", b"__metadata_sequentialId_key")

_HEADER = struct.Struct(
    ">i"  # header size     counted from offset 0; may grow, so the value starts there and not at 41
    "i"  # format version   1
    "q"  # node version     0 on create, +1 per update
    "q"  # owner            instance id of the last writer
    "q"  # created          ms
    "q"  # modified         ms
    "?"  # ephemeral
)
_COUNTER = struct.Struct(">q")
_STAT_OFFSET = 8
_USUAL = struct.pack(">ii", _HEADER.size, FORMAT_VERSION)


class NodeStat(NamedTuple):
    """What the metadata store knows about a node besides its value. A tuple, as there may be millions."""

    version: int
    owner: int
    created_ms: int
    modified_ms: int
    ephemeral: bool

    def __repr__(self) -> str:
        return one_line(self)


def decode_value(raw: bytes, where: str) -> tuple[NodeStat, bytes]:
    """Return a node's stat and its value (which may be empty).

    Raises Unsupported for another format version, MetadataCorrupt for a header that does not fit.
    """
    if len(raw) < _HEADER.size:
        raise MetadataCorrupt(
            f"{where}: {len(raw)} bytes are not a metadata node, its header has {_HEADER.size}",
            where=where,
            expected=_HEADER.size,
            found=len(raw),
        )
    header_size, format_version, version, owner, created_ms, modified_ms, ephemeral = _HEADER.unpack_from(raw)
    if format_version != FORMAT_VERSION:
        raise Unsupported(
            f"{where}: metadata format version {format_version}, only {FORMAT_VERSION} is known",
            where=where,
            expected=FORMAT_VERSION,
            found=format_version,
        )
    if not _HEADER.size <= header_size <= len(raw):
        raise MetadataCorrupt(
            f"{where}: header size {header_size} in a value of {len(raw)} bytes", where=where, found=header_size
        )
    return NodeStat(version, owner, created_ms, modified_ms, ephemeral), bytes(raw[header_size:])


def persistent_parts(raw: bytes) -> tuple[bytes, bytes] | None:
    """Return the stat (four i64, as stored) and the value of a persistent node with the usual header, else None.

    For passes over millions of nodes.
    """
    is_usual = raw[:_STAT_OFFSET] == _USUAL and raw[_STAT_OFFSET + 32 : _HEADER.size] == b"\0"
    return (raw[_STAT_OFFSET : _STAT_OFFSET + 32], raw[_HEADER.size :]) if is_usual else None


def encode_value(stat: NodeStat, value: bytes) -> bytes:
    """Return a value after the 41-byte header of its stat."""
    header = _HEADER.pack(
        _HEADER.size, FORMAT_VERSION, stat.version, stat.owner, stat.created_ms, stat.modified_ms, stat.ephemeral
    )
    return header + value


def decode_counter(raw: bytes, where: str) -> int:
    """Return the number under one of COUNTER_KEYS; raises MetadataCorrupt unless it has 8 bytes."""
    if len(raw) != _COUNTER.size:
        raise MetadataCorrupt(f"{where}: {len(raw)} bytes, expected {_COUNTER.size}", where=where, found=len(raw))
    number: int = _COUNTER.unpack(raw)[0]
    return number


def encode_counter(number: int) -> bytes:
    """Return the 8 bytes of a counter."""
    return _COUNTER.pack(number)
