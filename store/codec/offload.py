"""Objects of tiered storage, as the jcloud offloader writes them: a data object of blocks, and its index object.

Upstream (Pulsar 4.0.8): ``OffloadIndexBlockImpl``, ``DataBlockHeaderImpl``, ``BlockAwareSegmentInputStreamImpl``, ``DataBlockUtils``.
Integers are big-endian. The layouts are in docs/formats/offload.md. There is no checksum: what can be checked is that entries follow
each other and that their bytes are those of the ledger's metadata. The index of streaming offload (version 2) is not read.
"""

import re
import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from pulsar_admin.store.codec.buffer import Reader
from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata, decode_offloaded_metadata
from pulsar_admin.store.errors import EntryLogCorrupt, Unsupported

INDEX_MAGIC, INDEX_V2_MAGIC, BLOCK_MAGIC = 0xDE47DE47, 0x3D1FB0BC, 0xFBDBABCB
INDEX_SUFFIX = "-index"
_PADDING = b"\xfe\xdc\xde\xad"
_NAME = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-ledger-(\d+)", re.ASCII)
_INDEX_HEAD = struct.Struct(
    ">I"  # magic
    "i"  #  bytes of the index
    "q"  #  bytes of the data object
    "q"  #  bytes of a block's header
    "i"  #  blocks
    "i"  #  bytes of the ledger's metadata
)
_BLOCK_HEAD = struct.Struct(
    ">I"  # magic
    "q"  #  bytes of this header
    "q"  #  bytes of the block
    "q"  #  id of its first entry
)
_ENTRY_HEAD = struct.Struct(
    ">i"  # bytes of the entry
    "q"  #  its id
)


class ObjectName(NamedTuple):
    """The ledger id and UUID in the name of a data object."""

    uuid: str
    ledger_id: int


class OffloadBlock(NamedTuple):
    """One block of a data object."""

    first_entry_id: int
    part_id: int
    offset: int


class OffloadIndex(NamedTuple):
    """An index object."""

    metadata: LedgerMetadata
    data_bytes: int
    blocks: tuple[OffloadBlock, ...]

    def extent(self, number: int) -> tuple[int, int]:
        """Return the offset of a block and of the bytes after it."""
        following = self.blocks[number + 1].offset if number + 1 < len(self.blocks) else self.data_bytes
        return self.blocks[number].offset, following


def parse_object_name(name: str) -> ObjectName | None:
    """Return the ledger and UUID in the name of a data object, None for any other name."""
    match = _NAME.fullmatch(name)
    return None if match is None else ObjectName(match[1], int(match[2]))


def decode_offload_index(raw: bytes, where: str) -> OffloadIndex:
    """Return a decoded index object; raises EntryLogCorrupt, Unsupported, MetadataCorrupt."""
    reader = Reader(raw, where, EntryLogCorrupt)
    magic, size, data_bytes, header_bytes, count, metadata_bytes = _INDEX_HEAD.unpack(reader.take(_INDEX_HEAD.size))
    if magic == INDEX_V2_MAGIC:
        raise Unsupported(f"{where}: an index of streaming offload, which is not read", where=where)
    if magic != INDEX_MAGIC or size != len(raw) or header_bytes < _BLOCK_HEAD.size or count < 1:
        raise EntryLogCorrupt(
            f"{where}: expected the index of {len(raw)} bytes of offloaded blocks, found {raw[: _INDEX_HEAD.size].hex()}",
            hint=_HINT,
            where=where,
        )
    metadata = decode_offloaded_metadata(reader.take(metadata_bytes), where)
    blocks = tuple(OffloadBlock(reader.i64(), reader.i32(), reader.i64()) for _ in range(min(count, reader.remaining)))
    if reader.remaining or len(blocks) != count:
        raise EntryLogCorrupt(f"{where}: {count} blocks do not fill its {len(raw)} bytes", hint=_HINT, where=where)
    places = [(block.first_entry_id, block.offset) for block in blocks]
    rises = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(places))
    if places[0] != (0, 0) or not rises or places[-1][1] >= data_bytes:
        raise EntryLogCorrupt(f"{where}: its blocks do not follow each other", hint=_HINT, where=where)
    return OffloadIndex(metadata, data_bytes, blocks)


def iter_block_entries(raw: bytes | memoryview, first_entry_id: int, where: str) -> Iterator[memoryview]:
    """Yield the payloads of the entries of a block, whose ids start at ``first_entry_id``; raises EntryLogCorrupt."""
    view = memoryview(raw)
    reader = Reader(view, where, EntryLogCorrupt)
    head = _BLOCK_HEAD.unpack(reader.take(_BLOCK_HEAD.size))
    magic, header_bytes, block_bytes, first = head
    if (magic, block_bytes, first) != (BLOCK_MAGIC, len(view), first_entry_id) or header_bytes < _BLOCK_HEAD.size:
        raise EntryLogCorrupt(
            f"{where}: expected a block of {len(view)} bytes from entry {first_entry_id} on, found {bytes(view[:28]).hex()}",
            hint=_HINT,
            where=where,
        )
    reader.take(header_bytes - _BLOCK_HEAD.size)
    entry_id = first_entry_id
    while reader.remaining >= _ENTRY_HEAD.size and bytes(view[reader.pos : reader.pos + 4]) != _PADDING:
        at = reader.pos
        size, found_id = _ENTRY_HEAD.unpack(reader.take(_ENTRY_HEAD.size))
        if found_id != entry_id or not 0 <= size <= reader.remaining:
            raise EntryLogCorrupt(
                f"{where} + {at:#x}: expected entry {entry_id}, found one of id {found_id} and {size} bytes",
                hint=_HINT,
                where=where,
            )
        yield reader.take(size)
        entry_id += 1
    rest = bytes(reader.take(reader.remaining))
    if rest != (_PADDING * (len(rest) // 4 + 1))[: len(rest)]:
        raise EntryLogCorrupt(
            f"{where} + {len(view) - len(rest):#x}: after entry {entry_id - 1} comes neither another entry nor padding",
            hint=_HINT,
            where=where,
        )


_HINT = "copy the object again"
