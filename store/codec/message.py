"""An entry of a topic: framing, checksum and MessageMetadata.

``[ 0x0e02 | u32 n | BrokerEntryMetadata(n) ]? [ 0x0e01 | u32 crc ]? u32 m | MessageMetadata(m) | payload``

The checksum is CRC-32C over everything after itself; old clients and internal writers leave it out. The payload is as
stored: compressed first, then encrypted. Upstream: ``Commands`` and ``PulsarApi.proto`` (Pulsar 2.11 to 5.0). Entries
of transaction logs, schema, cursor and delayed-bucket ledgers are not framed so.
"""

import struct
from collections.abc import Callable

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from msgspec import Struct

from pulsar_admin.store.codec.brokerentry import MAGIC as BROKER_MAGIC
from pulsar_admin.store.codec.brokerentry import BrokerEntry, encode_broker_entry, split_broker_entry
from pulsar_admin.store.codec.buffer import signed
from pulsar_admin.store.codec.protobuf import parse_protobuf, text_of
from pulsar_admin.store.errors import EntryCorrupt
from pulsar_admin.store.names import Position
from pulsar_admin.store.proto import pulsar_api_pb2
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageIdData, MessageMetadata

CHECKSUM_MAGIC = b"\x0e\x01"

_CHECKSUM = struct.Struct(
    ">2s"  # magic
    "I"  # CRC-32C of everything after it
)
_SIZE = struct.Struct(">I")
_SEED_DELAYED = 18
_VARINT = 0

# The runtime takes any buffer, the stubs say bytes.
_parse_publish_time: Callable[[memoryview], pulsar_api_pb2.PublishTime]
_parse_publish_time = pulsar_api_pb2.PublishTime.FromString  # type: ignore[assignment]
_parse_broker: Callable[[memoryview], pulsar_api_pb2.BrokerEntryMetadata]
_parse_broker = pulsar_api_pb2.BrokerEntryMetadata.FromString  # type: ignore[assignment]


class EntryHeader(Struct, frozen=True):
    """A decoded entry; the views stay valid as long as the bytes they were decoded from.

    ``payload`` is still compressed and encrypted; ``headers_and_payload`` is the entry without broker metadata, as a
    consumer receives it. ``checksum`` is None when the entry carries none.
    """

    broker: BrokerEntry | None
    metadata: MessageMetadata
    checksum: int | None
    payload: memoryview
    headers_and_payload: memoryview


def decode_message_entry(payload: bytes | memoryview, where: str, *, verify: bool = True) -> EntryHeader:
    """Return the parts of an entry; raises EntryCorrupt for framing, protobuf, text or (if ``verify``) checksum."""
    broker, rest = split_broker_entry(memoryview(payload), where)
    checksum, start = None, 0
    if rest[:2] == CHECKSUM_MAGIC:
        if len(rest) < _CHECKSUM.size:
            raise _cut(where, _CHECKSUM.size, len(rest))
        checksum, start = _CHECKSUM.unpack_from(rest)[1], _CHECKSUM.size
        if verify and (found := _crc32c(rest[start:])) != checksum:
            raise EntryCorrupt(
                f"{where}: checksum 0x{found:08x}, the entry says 0x{checksum:08x}",
                where=where,
                expected=checksum,
                found=found,
            )
    if len(rest) < start + _SIZE.size:
        raise _cut(where, start + _SIZE.size, len(rest))
    begin = start + _SIZE.size
    end = begin + _SIZE.unpack_from(rest, start)[0]
    if end > len(rest):
        raise _cut(where, end, len(rest))
    metadata = decode_metadata(rest[begin:end], where)
    for text in (metadata.producer_name, metadata.partition_key, metadata.replicated_from, metadata.uuid):
        text_of(text, where, EntryCorrupt)
    for pair in metadata.properties:
        text_of(pair.key, where, EntryCorrupt)
        text_of(pair.value, where, EntryCorrupt)
    for cluster in metadata.replicate_to:
        text_of(cluster, where, EntryCorrupt)
    for key in metadata.encryption_keys:
        text_of(key.key, where, EntryCorrupt)
    return EntryHeader(broker, metadata, checksum, rest[end:], rest)


def decode_entry_times(payload: bytes | memoryview, where: str = "entry") -> tuple[int, int | None]:
    """Return publish time and broker time (None when absent) in ms, nothing else and without a checksum.

    Raises EntryCorrupt.
    """
    view = memoryview(payload)
    offset, broker_ms = 0, None
    try:
        if view[:2] == BROKER_MAGIC:
            offset = 6 + _SIZE.unpack_from(view, 2)[0]
            broker = _parse_broker(view[6:offset])
            if broker.HasField("broker_timestamp"):
                broker_ms = broker.broker_timestamp
        if view[offset : offset + 2] == CHECKSUM_MAGIC:
            offset += 6
        begin = offset + 4
        end = begin + _SIZE.unpack_from(view, offset)[0]
        times = _parse_publish_time(view[begin:end])
    except (struct.error, DecodeError) as cause:
        raise EntryCorrupt(f"{where}: no message: {cause}", where=where) from cause
    if end > len(view) or not times.HasField("publish_time"):
        raise EntryCorrupt(f"{where}: no message: its metadata has no publish time or is cut", where=where)
    return times.publish_time, broker_ms


def decode_metadata(data: bytes | memoryview, where: str) -> MessageMetadata:
    """Return the metadata in bytes that hold nothing else; raises EntryCorrupt."""
    return parse_protobuf(MessageMetadata, data, where, EntryCorrupt)


def encode_message_entry(
    metadata: MessageMetadata, payload: bytes | memoryview, *, broker: BrokerEntry | None = None, checksum: bool = True
) -> bytes:
    """Return an entry of metadata and payload (stored form), with a CRC-32C unless ``checksum`` is false."""
    header = metadata.SerializeToString()
    body = b"".join((_SIZE.pack(len(header)), header, payload))
    front = encode_broker_entry(broker) if broker is not None else b""
    if checksum:
        front += _CHECKSUM.pack(CHECKSUM_MAGIC, _crc32c(body))
    return front + body


def is_batch(metadata: MessageMetadata) -> bool:
    """Whether the payload holds SingleMessageMetadata: the count is present, even as 1."""
    return metadata.HasField("num_messages_in_batch")


def is_marker(metadata: MessageMetadata) -> bool:
    """Whether the entry is a server's marker, which no consumer sees."""
    return metadata.HasField("marker_type")


def is_encrypted(metadata: MessageMetadata) -> bool:
    """Whether the payload is encrypted."""
    return len(metadata.encryption_keys) > 0


def is_chunk(metadata: MessageMetadata) -> bool:
    """Whether the payload is one chunk of a larger message; sizes in the metadata are then those of the whole message."""
    return metadata.num_chunks_from_msg > 1


def message_count(metadata: MessageMetadata) -> int:
    """Messages in the entry: the batch's count, else 1."""
    return metadata.num_messages_in_batch


def transaction_id(metadata: MessageMetadata) -> tuple[int, int] | None:
    """The (most, least) bits of the entry's transaction, or None."""
    if not metadata.HasField("txnid_most_bits") or not metadata.HasField("txnid_least_bits"):
        return None
    return metadata.txnid_most_bits, metadata.txnid_least_bits


def _seed_delayed_ms(metadata: MessageMetadata) -> int | None:
    """The relative delay that the first delayed-delivery proposal put into field 18, or None.

    Field 18 is ``ordering_key`` today; the proposal's varint is told apart by its wire type.
    """
    unknown = UnknownFieldSet(metadata)
    for index in range(len(unknown)):
        field = unknown[index]
        if field.field_number == _SEED_DELAYED and field.wire_type == _VARINT:
            delay: int = field.data
            return delay if delay < 2**63 else delay - 2**64
    return None


def deliver_at_ms(metadata: MessageMetadata) -> int:
    """When a message is to be delivered, ms since 1970; 0: at once. ``delayed_ms`` of the first proposal counts from publishing."""
    if metadata.deliver_at_time:
        return metadata.deliver_at_time
    delay_ms = _seed_delayed_ms(metadata) or 0
    at_ms = metadata.publish_time + delay_ms
    return at_ms if delay_ms > 0 and at_ms < 2**63 else 0


def _crc32c(data: bytes | memoryview) -> int:
    import google_crc32c  # 1 ms, and who reads times alone verifies none

    value: int = google_crc32c.value(bytes(data))
    return value


def _cut(where: str, expected: int, found: int) -> EntryCorrupt:
    return EntryCorrupt(
        f"{where}: the entry has {found} bytes, its framing asks for {expected}",
        where=where,
        expected=expected,
        found=found,
    )


def decode_message_id(data: bytes) -> Position:
    """Return where the message lies, of a batch with its index; raises ValueError.

    ``MessageId.earliest`` is −1:−1, ``MessageId.latest`` the greatest long twice.
    """
    try:
        message_id = MessageIdData.FromString(data)
    except DecodeError as error:
        raise ValueError(f"no message id: {error}") from error
    if not message_id.IsInitialized():
        raise ValueError("no whole message id: it lacks its ledger or its entry")
    return Position(signed(message_id.ledgerId), signed(message_id.entryId), message_id.batch_index)
