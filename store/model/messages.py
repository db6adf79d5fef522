"""Entries → messages, as a consumer sees them: batches exploded, chunks joined, payloads decompressed, transactions resolved."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha1
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.batch import iter_batch
from pulsar_admin.store.codec.brokerentry import MAGIC as BROKER_MAGIC
from pulsar_admin.store.codec.buffer import signed
from pulsar_admin.store.codec.compression import NONE, decompress
from pulsar_admin.store.codec.message import (
    CHECKSUM_MAGIC,
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
from pulsar_admin.store.codec.transactions import COMMITTED, TxnId
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.errors import (
    EncryptedPayload,
    EntryCorrupt,
    EntryLogCorrupt,
    EntryNotFound,
    InvalidValue,
    LimitExceeded,
    NothingMatches,
    NotSeen,
    NotWritable,
    SourceChanged,
    StoreError,
    Unsupported,
)
from pulsar_admin.store.model.ledgers import find_place
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.redaction import redact, redact_value
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import EARLIEST, LATEST, LONG_MAX, SEGMENT, Position, TopicName, parse_topic, shell_word
from pulsar_admin.store.timespec import shown_time
from pulsar_admin.store.wording import Answer, Sparse, counted, one_line

if TYPE_CHECKING:
    from pulsar_admin.store.codec.value import Value
    from pulsar_admin.store.model.transactions import SegmentStates
    from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata


TXN_COMMIT, TXN_ABORT = 21, 22
_KEPT_JOINED = 1000
"""Messages of chunks that are remembered: a producer sends again what is among its ``maxPendingMessages``, 1000."""
ENTRY_ERRORS = (EntryNotFound, EntryCorrupt, EntryLogCorrupt, LimitExceeded, Unsupported)
"""Errors of a single entry: reading continues after it, and counts it."""


class Message(Answer, frozen=True):
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
    """Options of reading. ``committed`` excludes open and aborted transactions; ``markers`` includes the broker's
    own entries.

    With ``whole``, reading starts at the topic's beginning, so that a chunk without its earlier ones is damage; else
    it is skipped.
    """

    committed: bool = True
    markers: bool = False
    whole: bool = True


class MessageReader:
    """Reads messages of entries; counts what it could not read in ``errors``.

    ``ends``: returns positions that include all commit and abort markers, if the positions to read may lack some.
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
        self._joined: dict[str, None] = {}
        self._outcomes: dict[tuple[int, int], bool] = {}
        self._outcomes_known = False
        self._segments: dict[str, SegmentStates] = {}

    def iter_messages(self, positions: Iterable[Position]) -> Iterator[Message]:
        """Yield the messages of the entries at ``positions``, in order; a joined message comes at its last chunk."""
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
        """Return the decoded entry at ``position``, digest and checksum verified."""
        entry = self.reader.read(position.ledger_id, position.entry_id)
        return decode_message_entry(entry.payload, f"entry {position}")

    def _visible(self, header: EntryHeader, position: Position, ahead: Iterable[Position]) -> Iterator[Message]:
        metadata = header.metadata
        if is_marker(metadata):
            if self.options.markers:
                yield _single(header, position, header.payload)
            return
        transaction = transaction_id(metadata) if self.options.committed else None
        if transaction is not None and not self._is_committed(transaction, position, ahead):
            return
        header = self._opened(header, position)
        if is_chunk(metadata):
            whole = self._join_chunk(header, position)
            if whole is not None:
                yield whole
            return
        yield from explode(header, position)

    def _opened(self, header: EntryHeader, position: Position) -> EntryHeader:
        """Return ``header`` decrypted by the reader's keys; unchanged if the keys do not fit, which is added to ``errors``."""
        try:
            return opened(self.reader, header, position)
        except (EncryptedPayload, EntryCorrupt) as error:
            self.errors.append(error)
            return header

    def _is_committed(self, transaction: tuple[int, int], position: Position, ahead: Iterable[Position]) -> bool:
        """Whether a commit marker for ``transaction`` follows; the first call reads the rest of the topic, once for all transactions.

        For a segment, the metadata store has the state; if it does not, the error is added to ``errors``.
        """
        states = self.segment_states(position)
        if states is not None:
            try:
                return states.of(TxnId(*transaction)) == COMMITTED
            except NotSeen as error:
                self.errors.append(NotSeen(f"entry {position}: {error.message}", hint=error.hint, **error.context))
                return False
        if not self._outcomes_known:
            self._outcomes_known = True
            rest = ahead.rest() if isinstance(ahead, _Ahead) else ()
            for place in self.ends() if self.ends is not None else rest:
                try:
                    metadata = self.read_header(place).metadata
                except ENTRY_ERRORS:
                    continue
                txn_id = transaction_id(metadata)
                if txn_id is not None and metadata.marker_type in (TXN_COMMIT, TXN_ABORT) and is_marker(metadata):
                    self._outcomes[txn_id] = metadata.marker_type == TXN_COMMIT
        return self._outcomes.get(transaction, False)

    def segment_states(self, position: Position) -> SegmentStates | None:
        """Return the known states of the transactions of an entry's segment; None if the entry is in no segment."""
        owners = find_owners(self.reader.txn, position.ledger_id)
        segment = next((one.topic for one in owners if one.topic.startswith(f"{SEGMENT}://")), None)
        if segment is None:
            return None
        # Imported here: few messages are of transactions.
        from pulsar_admin.store.model.transactions import read_segment_states

        if segment not in self._segments:
            self._segments[segment] = read_segment_states(self.reader.txn, parse_topic(segment))
        return self._segments[segment]

    def _join_chunk(self, header: EntryHeader, position: Position) -> Message | None:
        """Keep a chunk; return the whole message when its last one is there."""
        metadata = header.metadata
        if metadata.chunk_id == 0:
            self._chunks[metadata.uuid] = []
            self._joined.pop(metadata.uuid, None)
        elif metadata.uuid in self._joined:
            return None  # sent again after its message was complete: consumers drop it, too
        parts = self._chunks.get(metadata.uuid)
        if parts is None and not self.options.whole:
            return None
        if parts is not None and metadata.chunk_id < len(parts):
            return None  # sent again by its producer: consumers drop it (``ConsumerImpl.processMessageChunk``)
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
        self._joined[metadata.uuid] = None
        if len(self._joined) > _KEPT_JOINED:
            del self._joined[next(iter(self._joined))]
        stored = b"".join(bytes(part.payload) for part in parts)
        whole = replace(parts[-1], chunks=len(parts), payload=stored, first_chunk=parts[0].position)
        if whole.encrypted:
            return whole
        payload = decompress(metadata.compression, stored, metadata.uncompressed_size, where=f"entry {position}")
        return replace(whole, payload=payload)


class _Ahead:
    """An iterator over positions whose rest can be read ahead."""

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
        """Return all positions that were not yielded yet; they will still be yielded."""
        self._kept = [*self._kept, *self._source]
        return self._kept


def located(reader: EntryReader, position: Position, error: StoreError) -> StoreError:
    """Return ``error`` with the file and offset of the entry at ``position`` in its message, where it does not name them."""
    place = find_place(reader.txn, position.ledger_id, position.entry_id)
    if place is None:
        return error
    name, offset = reader.files.name(place[0]), place[1]
    if name in error.message:
        return error
    context = {**error.context, "path": name, "offset": offset}
    return type(error)(f"{error.message} ({name} @ {offset:#x})", hint=error.hint, **context)


def opened(reader: EntryReader, header: EntryHeader, position: Position) -> EntryHeader:
    """Return the entry at ``position`` decrypted where ``reader`` has keys; raises EncryptedPayload, EntryCorrupt, see ``PrivateKeys``."""
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
    plain = decompress(metadata.compression, header.payload, metadata.uncompressed_size, where=where)
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
    """Return message ``index`` of a batch: its own key, properties, times; the entry's producer and publish time."""
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


# -- one message as one row -------------------------------------------------------------------------------------------


class Decoded(NamedTuple):
    """A value, or why it could not be decoded; neither for one that is null, encrypted, or sent without a schema."""

    value: Value = None
    error: str | None = None

    def __repr__(self) -> str:
        return one_line(self)


MARKER_NAMES = {
    10: "REPLICATED_SUBSCRIPTION_SNAPSHOT_REQUEST",
    11: "REPLICATED_SUBSCRIPTION_SNAPSHOT_RESPONSE",
    12: "REPLICATED_SUBSCRIPTION_SNAPSHOT",
    13: "REPLICATED_SUBSCRIPTION_UPDATE",
    20: "TXN_COMMITTING",
    21: "TXN_COMMIT",
    22: "TXN_ABORT",
}


class MessageRow(Sparse, frozen=True):
    """A message. Times in epoch ms, event time 0 = none; ``size`` and ``sha1`` are those of the payload.

    ``ordering_key`` and ``payload`` are base64. From ``payload`` on a key is there only when it says something:
    ``encrypted`` means that size, digest and payload are the entry's stored bytes, ``chunks`` how many entries made the message.
    ``value`` is what the schema makes of the payload, as JSON can say it.
    """

    topic: str
    ledger_id: int
    entry_id: int
    batch_index: int
    publish_time: int
    broker_time: int | None
    event_time: int
    key: str | None
    ordering_key: str | None
    producer: str
    sequence_id: int
    properties: Mapping[str, str]
    size: int
    sha1: str | None
    payload: str | None = None
    broker_index: int | None = None
    deliver_at_time: int | None = None
    encrypted: bool | None = None
    null_value: bool | None = None
    chunks: int | None = None
    marker_type: str | None = None
    transaction: str | None = None
    schema_version: int | None = None
    value: object = None
    value_error: str | None = None


def message_row(
    topic: TopicName, message: Message, *, payload: bool = False, decoded: Decoded | None = None
) -> MessageRow:
    """Return the row of ``message``. ``decoded``: its value, or why it cannot be decoded, if wanted."""
    body = message.payload
    value, error = (None, None) if decoded is None else decoded
    return MessageRow(
        topic=str(topic),
        ledger_id=message.position.ledger_id,
        entry_id=message.position.entry_id,
        batch_index=message.position.batch_index,
        publish_time=signed(message.publish_ms),
        broker_time=None if message.broker_ms is None else signed(message.broker_ms),
        event_time=signed(message.event_ms),
        key=message.key,
        ordering_key=None if message.ordering_key is None else b64encode(message.ordering_key).decode(),
        producer=message.producer,
        sequence_id=signed(message.sequence_id),
        properties=message.properties,
        size=len(body),
        sha1=sha1(body, usedforsecurity=False).hexdigest(),
        payload=b64encode(body).decode() if payload else None,
        broker_index=None if message.broker_index is None else signed(message.broker_index),
        deliver_at_time=message.deliver_at_ms or None,
        encrypted=message.encrypted or None,
        null_value=message.null_value or None,
        chunks=message.chunks if message.chunks > 1 else None,
        marker_type=marker_name(message.marker_type),
        transaction=None if message.transaction is None else f"{message.transaction[0]}:{message.transaction[1]}",
        schema_version=None if decoded is None else message.schema_number,
        value=value,
        value_error=error,
    )


def redacted(row: MessageRow) -> MessageRow:
    """Return ``row`` with SHA-256 and length in place of keys, property values, payload and value, and without the payload's SHA-1."""
    return replace(
        row,
        key=None if row.key is None else redact(row.key),
        ordering_key=None if row.ordering_key is None else redact(b64decode(row.ordering_key)),
        properties={name: redact(value) for name, value in row.properties.items()},
        sha1=None,
        payload=None if row.payload is None else redact(b64decode(row.payload)),
        value=None if row.value is None else redact_value(row.value),
    )


def marker_name(marker_type: int | None) -> str | None:
    """Return upstream's name of a marker (MarkerType), or its number."""
    return None if marker_type is None else MARKER_NAMES.get(marker_type, str(marker_type))


# -- looking at single entries ----------------------------------------------------------------------------------------


class LastMessageId(Sparse, frozen=True):
    """A message id as upstream's REST interface writes it; a batch's has two keys more."""

    ledger_id: int
    entry_id: int
    partition_index: int
    batch_index: int = -1
    batch_size: int = 0
    outstanding_acks_in_same_batch: int | None = None
    original_batch_size: int | None = None


def read_last_id(reader: EntryReader, name: TopicName, problems: list[StoreError]) -> LastMessageId:
    """Return the id of the last message of a topic: entry −1 when it has none; raises TopicNotFound.

    A last entry that cannot be read is reported in ``problems``: then whether it is a batch stays unknown.
    """
    position = read_topic(reader.txn, name).last_confirmed
    plain = LastMessageId(position.ledger_id, position.entry_id, name.partition_index)
    if position.entry_id < 0:
        return plain
    try:
        payload = reader.read(position.ledger_id, position.entry_id).payload
        # Entries of transaction logs are not messages.
        if bytes(payload[:2]) not in (BROKER_MAGIC, CHECKSUM_MAGIC):
            return plain
        metadata = decode_message_entry(payload, f"entry {position}").metadata
    except ENTRY_ERRORS as error:
        problems.append(located(reader, position, error))
        return plain
    if not is_batch(metadata):
        return plain
    last = message_count(metadata) - 1
    return LastMessageId(position.ledger_id, position.entry_id, name.partition_index, last, 0, 0, 0)


def read_message(reader: EntryReader, position: Position) -> Message:
    """Return the first message of the entry at ``position``; raises its damage, with file and offset, or
    EncryptedPayload.

    Raises NothingMatches for a batch from which compaction removed every message.
    """
    try:
        header = opened(reader, MessageReader(reader).read_header(position), position)
        message = next(explode(header, position), None)
    except ENTRY_ERRORS as error:
        raise located(reader, position, error) from error
    if message is None:
        raise NothingMatches(f"entry {position} holds no message: compaction removed them all")
    return message


def as_admin_shows(reader: EntryReader, message: Message) -> Message:
    """Return ``message`` with the properties that upstream's admin client (``TopicsImpl``, 4.0.8) shows.

    For a message in a batch these are the event time and index of the entry, and one map of properties for all
    messages: the entry's, those of every message unless encrypted, and two of the REST interface.
    """
    position = message.position.entry
    if not message.batch_size:
        return message
    shown = reader.txn.memo.get("as admin shows")
    if shown is None or shown[0] != position:
        shown = reader.txn.memo["as admin shows"] = position, _shown_of_batch(reader, position)
    return replace(message, **shown[1])


def _shown_of_batch(reader: EntryReader, position: Position) -> dict[str, object]:
    entry = reader.read(position.ledger_id, position.entry_id)
    header = decode_message_entry(entry.payload, f"entry {position}")
    pairs = {pair.key: pair.value for pair in header.metadata.properties}
    for each in explode(opened(reader, header, position), position):
        pairs |= each.properties
    pairs |= {
        "X-Pulsar-batch-size": str(len(entry.payload) - header.metadata.ByteSize()),
        "X-Pulsar-num-batch-message": str(header.metadata.num_messages_in_batch),
    }
    index = header.broker.index if header.broker else None
    return {"event_ms": header.metadata.event_time, "broker_index": index, "properties": dict(sorted(pairs.items()))}


def find_topic_of(topics: Iterable[Topic], position: Position) -> TopicName:
    """Return the one of ``topics`` that lists the entry at ``position``; raises EntryNotFound in upstream's words."""
    topic = next((topic for topic in topics if topic.is_entry(position)), None)
    if topic is None:
        raise EntryNotFound(
            f"Cannot find any messages based on ledgerId:{position.ledger_id} entryId:{position.entry_id}",
            hint="list a topic's ledgers with: pulsar-admin topics stats-internal TOPIC",
            ledgerId=position.ledger_id,
            entryId=position.entry_id,
        )
    return topic.name


def nth_position(topic: Topic, number: int, *, from_end: bool) -> Position:
    """Return the position of entry ``number`` (1-based) counted from either end, with markers; raises NothingMatches past the other."""
    total = topic.number_of_entries
    number = max(number, 1)
    if number > total:
        raise NothingMatches(
            "Could not examine messages due to the total message is zero"
            if not total
            else f"Could not examine message {number}: {topic.name} has {counted(total, 'entry')}",
            hint=f"see: pulsar-admin topics stats-internal {shell_word(topic.name)}",
            topic=str(topic.name),
        )
    return topic.at_rank(total - number if from_end else number - 1)


# -- which messages of a topic ----------------------------------------------------------------------------------------


EVENT = "event"


def check_times(start_ms: int | None, end_ms: int | None) -> None:
    """Raise InvalidValue if a window of time ends before it starts; None means no bound."""
    if start_ms is not None and end_ms is not None and start_ms > end_ms:
        times = f"{shown_time(start_ms)} to {shown_time(end_ms)}"
        raise InvalidValue(f"the window of time ends before it begins: {times}", hint="swap the two times")


class Window(Struct, frozen=True):
    """Which messages: positions ``first`` to ``last``, times from ``start_ms`` on and before ``end_ms``, on ``clock``; one ``key`` or any.

    A position with a batch index begins or ends inside that batch. ``latest`` as the first is the last entry.
    """

    first: Position = EARLIEST
    last: Position = LATEST
    start_ms: int | None = None
    end_ms: int | None = None
    clock: str = "auto"
    key: str | None = None

    def checked(self) -> Window:
        """Return the window itself; raises InvalidValue if it ends before it begins: start and end are the wrong way round."""
        check_times(self.start_ms, self.end_ms)
        if self.last < self.first != LATEST:
            raise InvalidValue(f"{self.last} is before {self.first}", hint="swap the two positions")
        return self

    @property
    def is_timed(self) -> bool:
        """Whether entries are chosen by their time."""
        return self.clock != EVENT and (self.start_ms is not None or self.end_ms is not None)

    @property
    def by_entry(self) -> Window:
        """The window of the same entries without the conditions that select among their messages."""
        if self.clock == EVENT:
            return Window(self.first.entry, self.last.entry)
        return replace(self, first=self.first.entry, last=self.last.entry, key=None)

    @property
    def chooses(self) -> bool:
        """Whether the window selects messages by their content."""
        return self.key is not None or (self.clock == EVENT and self.times != (-LONG_MAX, LONG_MAX))

    @property
    def times(self) -> tuple[int, int]:
        """The window's times, half-open, ms."""
        return (-LONG_MAX if self.start_ms is None else self.start_ms, LONG_MAX if self.end_ms is None else self.end_ms)

    def holds(self, message: Message) -> bool:
        """Whether ``message``, of an entry in the window, is in it too."""
        if self.key is not None and message.key != self.key:
            return False
        if self.clock == EVENT and (self.start_ms is not None or self.end_ms is not None):
            start_ms, end_ms = self.times
            if not message.event_ms or not start_ms <= signed(message.event_ms) < end_ms:
                return False
        index, entry = message.position.batch_index, message.position.entry
        if index < 0:
            return True
        if entry == self.first.entry and index < self.first.batch_index:
            return False
        return not (entry == self.last.entry and 0 <= self.last.batch_index < index)
