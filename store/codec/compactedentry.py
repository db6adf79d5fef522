"""An entry of a compacted ledger: ``u32 a | MessageIdData(a) | u32 b | entry(b)``.

Upstream: ``RawMessageImpl.serialize`` (Pulsar 2.11 to 4.2). The id is the message's original one; the ids of the
compacted ledger itself only order it. The inner entry is framed as in ``store.codec.message``.
"""

import struct

from msgspec import Struct

from pulsar_admin.store.codec.protobuf import parse_protobuf
from pulsar_admin.store.errors import EntryCorrupt
from pulsar_admin.store.names import Position
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageIdData

_SIZE = struct.Struct(">I")


class CompactedEntry(Struct, frozen=True):
    """The original position (without batch index) and id of an entry, and the entry itself, as a view."""

    position: Position
    message_id: MessageIdData
    headers_and_payload: memoryview


def decode_compacted_entry(payload: bytes | memoryview, where: str) -> CompactedEntry:
    """Return the parts of an entry of a compacted ledger; raises EntryCorrupt."""
    view = memoryview(payload)
    id_begin, id_end = _sized(view, 0, where)
    begin, end = _sized(view, id_end, where)
    if end != len(view):
        raise EntryCorrupt(
            f"{where}: {len(view) - end} bytes after the compacted entry", where=where, expected=end, found=len(view)
        )
    message_id = parse_protobuf(MessageIdData, view[id_begin:id_end], where, EntryCorrupt)
    return CompactedEntry(Position(message_id.ledgerId, message_id.entryId), message_id, view[begin:end])


def encode_compacted_entry(message_id: bytes | memoryview, *entry: bytes | memoryview) -> bytes:
    """Return an entry of a compacted ledger from the original id and the parts of the inner entry."""
    size = sum(map(len, entry))
    return b"".join((_SIZE.pack(len(message_id)), message_id, _SIZE.pack(size), *entry))


def encode_original_id(position: Position, partition: int) -> bytes:
    """Return the id of an entry as compacted ledgers have it."""
    return MessageIdData(
        ledgerId=position.ledger_id, entryId=position.entry_id, partition=partition
    ).SerializeToString()


def decode_original_id(value: bytes | memoryview, where: str) -> Position:
    """Return the position in an entry's original id, or in the ledger's metadata ``pulsar/compactedTo``; raises EntryCorrupt."""
    message_id = parse_protobuf(MessageIdData, value, where, EntryCorrupt)
    return Position(message_id.ledgerId, message_id.entryId)


def _sized(view: memoryview, offset: int, where: str) -> tuple[int, int]:
    """Return begin and end of the part whose 4-byte size is at ``offset``."""
    begin = offset + _SIZE.size
    end = begin + _SIZE.unpack_from(view, offset)[0] if begin <= len(view) else begin
    if end > len(view):
        raise EntryCorrupt(
            f"{where}: compacted entry of {len(view)} bytes, its framing asks for {end}",
            where=where,
            expected=end,
            found=len(view),
        )
    return begin, end
