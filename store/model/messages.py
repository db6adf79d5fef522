"""Entries → messages, as a consumer sees them: batches exploded, chunks joined, payloads decompressed, transactions resolved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.batch import iter_batch
from pulsar_admin.store.codec.compression import NONE, decompress
from pulsar_admin.store.codec.message import (
    EntryHeader,
    decode_message_entry,
    deliver_at_ms,
    is_batch,
    is_chunk,
    is_encrypted,
    is_marker,
    message_count,
    transaction_id,
)
from pulsar_admin.store.errors import (
    EncryptedPayload,
    EntryCorrupt,
    EntryLogCorrupt,
    EntryNotFound,
    LimitExceeded,
    NotWritable,
    SourceChanged,
    StoreError,
    Unsupported,
)
from pulsar_admin.store.model.ledgers import find_place
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import Position
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata

TXN_COMMIT, TXN_ABORT = 21, 22
ENTRY_ERRORS = (EntryNotFound, EntryCorrupt, EntryLogCorrupt, LimitExceeded, Unsupported)
"""Errors that concern one entry: reading goes on behind it and counts it."""


class Message(Struct, frozen=True):
    """One message. Times in ms; 0 = no event time, None = no broker time.

    ``payload``: the value as the producer sent it; for an encrypted entry the stored bytes of the whole entry (``encrypted``).
    ``batch_size``: messages of the entry, 0 when it is not a batch. ``marker_type``: set for the broker's own entries.
    """

    position: Position
    publish_ms: int
    broker_ms: int | None
    broker_index: int | None
    event_ms: int
    key: str | None
    ordering_key: bytes | None
    producer: str
    sequence_id: int
    properties: dict[str, str]
    payload: bytes | memoryview
    batch_size: int = 0
    null_value: bool = False
    encrypted: bool = False
    deliver_at_ms: int = 0
    marker_type: int | None = None
    transaction: tuple[int, int] | None = None
    chunks: int = 1
    schema_version: bytes | None = None
    compression: int = NONE
    key_encoded: bool = False  # the key is base64
    first_chunk: Position | None = None  # of a message of several chunks

    @property
    def schema_number(self) -> int | None:
        """The version of the schema (``LongSchemaVersion``); None: sent without one, or a version of another system's own."""
        version = self.schema_version
        return int.from_bytes(version, signed=True) if version is not None and len(version) == 8 else None


class ReadOptions(Struct):
    """What to read. ``committed``: nothing that an open or aborted transaction wrote; ``markers``: the broker's own entries too.

    ``whole``: reading begins where the topic does, so that a chunk without the ones before it is damage; else it is passed over.
    """

    committed: bool = True
    markers: bool = False
    whole: bool = True


class MessageReader:
    """Reads messages of entries; counts what it could not read in ``errors``.

    ``ends``: positions among which the commit and abort markers are, when those read do not hold them all.
    """

    def __init__(
        self,
        reader: EntryReader,
        options: ReadOptions | None = None,
        ends: Callable[[], Iterable[Position]] | None = None,
        errors: list[StoreError] | None = None,
    ) -> None:
        self.reader, self.options, self.ends = reader, options or ReadOptions(), ends
        self.errors: list[StoreError] = [] if errors is None else errors
        self._chunks: dict[str, list[Message]] = {}
        self._outcomes: dict[tuple[int, int], bool] = {}
        self._outcomes_known = False

    def iter_messages(self, positions: Iterable[Position]) -> Iterator[Message]:
        """Yield the messages of the entries at POSITIONS, in order; a joined message comes at its last chunk."""
        listed = _Ahead(positions) if self.options.committed and self.ends is None else positions
        for position in listed:
            try:
                header = self.read_header(position)
                yield from self._visible(header, position, listed)
            except (SourceChanged, NotWritable) as error:  # names the file itself
                self.errors.append(error)
            except ENTRY_ERRORS as error:
                self.errors.append(located(self.reader, position, error))

    def read_header(self, position: Position) -> EntryHeader:
        """Return the decoded entry at POSITION, digest and checksum verified."""
        entry = self.reader.read(position.ledger_id, position.entry_id)
        return decode_message_entry(entry.payload, f"entry {position}")

    def _visible(self, header: EntryHeader, position: Position, ahead: Iterable[Position]) -> Iterator[Message]:
        metadata = header.metadata
        if is_marker(metadata):
            if self.options.markers:
                yield _single(header, position, header.payload)
            return
        transaction = transaction_id(metadata) if self.options.committed else None
        if transaction is not None and not self._is_committed(transaction, ahead):
            return
        header = self._opened(header, position)
        if is_chunk(metadata):
            whole = self._join(header, position)
            if whole is not None:
                yield whole
            return
        yield from explode(header, position)

    def _opened(self, header: EntryHeader, position: Position) -> EntryHeader:
        """Return HEADER decrypted by the reader's keys; as it is where they are not for it, which is an error."""
        try:
            return opened(self.reader, header, position)
        except (EncryptedPayload, EntryCorrupt) as error:
            self.errors.append(error)
            return header

    def _is_committed(self, transaction: tuple[int, int], ahead: Iterable[Position]) -> bool:
        """Whether a commit marker for TRANSACTION follows; reads the rest of the topic once, when the first one comes up."""
        if not self._outcomes_known:
            self._outcomes_known = True
            rest = ahead.rest() if isinstance(ahead, _Ahead) else ()
            for position in self.ends() if self.ends is not None else rest:
                try:
                    metadata = self.read_header(position).metadata
                except ENTRY_ERRORS:
                    continue
                found = transaction_id(metadata)
                if found is not None and metadata.marker_type in (TXN_COMMIT, TXN_ABORT) and is_marker(metadata):
                    self._outcomes[found] = metadata.marker_type == TXN_COMMIT
        return self._outcomes.get(transaction, False)

    def _join(self, header: EntryHeader, position: Position) -> Message | None:
        """Keep a chunk; return the whole message when its last one is there."""
        metadata = header.metadata
        if metadata.chunk_id == 0:
            self._chunks[metadata.uuid] = []
        parts = self._chunks.get(metadata.uuid)
        if parts is None and not self.options.whole:
            return None
        if parts is None or len(parts) != metadata.chunk_id:
            self._chunks.pop(metadata.uuid, None)
            raise EntryCorrupt(
                f"entry {position}: chunk {metadata.chunk_id} of {metadata.uuid} without the ones before it",
                hint="its first chunks were trimmed or are damaged",
            )
        parts.append(_single(header, position, header.payload))
        if len(parts) < metadata.num_chunks_from_msg:
            return None
        del self._chunks[metadata.uuid]
        stored = b"".join(bytes(part.payload) for part in parts)
        whole = replace(parts[-1], chunks=len(parts), payload=stored, first_chunk=parts[0].position)
        if whole.encrypted:
            return whole
        payload = decompress(metadata.compression, stored, metadata.uncompressed_size, where=f"entry {position}")
        return replace(whole, payload=payload)


class _Ahead:
    """An iterable of positions whose rest can be looked at and is given out again."""

    def __init__(self, positions: Iterable[Position]) -> None:
        self._source = iter(positions)
        self._kept: list[Position] = []

    def __iter__(self) -> Iterator[Position]:
        while True:
            if self._kept:
                kept, self._kept = self._kept, []
                yield from kept
                continue
            position = next(self._source, None)
            if position is None:
                return
            yield position

    def rest(self) -> list[Position]:
        """Return everything not given out yet, and keep it to be given out."""
        self._kept = [*self._kept, *self._source]
        return self._kept


def located(reader: EntryReader, position: Position, error: StoreError) -> StoreError:
    """Return ERROR with the file and offset of the entry at POSITION in its message, where it does not name them."""
    place = find_place(reader.txn, position.ledger_id, position.entry_id)
    if place is None:
        return error
    name, offset = reader.files.name(place[0]), place[1]
    if name in error.message:
        return error
    context = {**error.context, "path": name, "offset": offset}
    return type(error)(f"{error.message} ({name} @ {offset:#x})", hint=error.hint, **context)


def opened(reader: EntryReader, header: EntryHeader, position: Position) -> EntryHeader:
    """Return the entry at POSITION decrypted where READER has keys; raises EncryptedPayload, EntryCorrupt, see ``PrivateKeys``."""
    return header if reader.keys is None else reader.keys.opened(header, f"entry {position}")


def explode(header: EntryHeader, position: Position) -> Iterator[Message]:
    """Yield the messages of one entry, without those that compaction took out.

    What cannot be opened alone yields itself with its stored bytes: an encrypted entry, a chunk. Raises EntryCorrupt,
    LimitExceeded, Unsupported.
    """
    metadata = header.metadata
    if is_encrypted(metadata) or is_chunk(metadata):
        yield _single(header, position, header.payload)
        return
    where = f"entry {position}"
    plain: bytes | memoryview = header.payload
    if metadata.compression != NONE:
        plain = decompress(metadata.compression, plain, metadata.uncompressed_size, where=where)
    if not is_batch(metadata):
        yield _single(header, position, plain)
        return
    base = _single(header, position, plain)
    indexes = tuple(metadata.compacted_batch_indexes)
    for slot in iter_batch(plain, message_count(metadata), where, indexes):
        yield _from_batch(base, slot.metadata, slot.payload, slot.index)


def _single(header: EntryHeader, position: Position, payload: bytes | memoryview) -> Message:
    metadata: MessageMetadata = header.metadata
    return Message(
        position=position.entry,
        publish_ms=metadata.publish_time,
        broker_ms=header.broker.timestamp_ms if header.broker else None,
        broker_index=header.broker.index if header.broker else None,
        event_ms=metadata.event_time,
        key=metadata.partition_key if metadata.HasField("partition_key") else None,
        ordering_key=metadata.ordering_key if metadata.HasField("ordering_key") else None,
        producer=metadata.producer_name,
        sequence_id=metadata.sequence_id,
        properties={pair.key: pair.value for pair in metadata.properties},
        payload=payload,
        batch_size=message_count(metadata) if is_batch(metadata) else 0,
        null_value=metadata.null_value,
        encrypted=is_encrypted(metadata),
        deliver_at_ms=deliver_at_ms(metadata),
        marker_type=metadata.marker_type if is_marker(metadata) else None,
        transaction=transaction_id(metadata),
        schema_version=metadata.schema_version if metadata.HasField("schema_version") else None,
        compression=metadata.compression,
        key_encoded=metadata.partition_key_b64_encoded,
    )


def _from_batch(base: Message, metadata: SingleMessageMetadata, payload: memoryview, index: int) -> Message:
    """Return message INDEX of a batch: its own key, properties, times; the entry's producer and publish time."""
    first = base.broker_index
    if first is not None:
        first = first - (base.batch_size - 1) + index  # the entry carries the index of its last message
    return Message(  # half of what ``replace`` takes
        position=Position(base.position.ledger_id, base.position.entry_id, index),
        publish_ms=base.publish_ms,
        broker_ms=base.broker_ms,
        broker_index=first,
        event_ms=metadata.event_time,
        key=metadata.partition_key if metadata.HasField("partition_key") else None,
        ordering_key=metadata.ordering_key if metadata.HasField("ordering_key") else None,
        producer=base.producer,
        sequence_id=metadata.sequence_id if metadata.HasField("sequence_id") else base.sequence_id,
        properties={pair.key: pair.value for pair in metadata.properties},
        payload=payload,
        batch_size=base.batch_size,
        null_value=metadata.null_value,
        encrypted=base.encrypted,
        deliver_at_ms=base.deliver_at_ms,
        marker_type=base.marker_type,
        transaction=base.transaction,
        chunks=base.chunks,
        schema_version=base.schema_version,
        compression=base.compression,
        key_encoded=metadata.partition_key_b64_encoded,
        first_chunk=base.first_chunk,
    )
