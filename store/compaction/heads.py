"""Entry heads (framing and MessageMetadata without the payload), and the last entry of a topic that readers get.

The payload stays on disk. BookKeeper's digest and the entry's CRC-32C cover it, so neither can be verified. Checked
instead: the record's size and ids against the index, every length in the framing against the record's size, and that
the metadata is a complete MessageMetadata.

Upstream ``PersistentTopic.getLastDispatchablePosition`` (4.0.8): not after the first message of an open transaction,
and neither a marker nor an entry of an aborted transaction.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from pulsar_admin.store.codec.brokerentry import MAGIC as BROKER_MAGIC
from pulsar_admin.store.codec.compactedentry import decode_original_id
from pulsar_admin.store.codec.message import CHECKSUM_MAGIC, decode_metadata, is_marker, transaction_id
from pulsar_admin.store.errors import ENTRY_UNREADABLE, EntryCorrupt, EntryLogCorrupt, EntryNotFound, TopicNotFound
from pulsar_admin.store.model.compacted_view import CompactedView, compacted_where
from pulsar_admin.store.model.ledgers import find_block
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import Position, TopicName

if TYPE_CHECKING:
    from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata

_ENTRY_HEADER_BYTES = 32
_HEAD_BYTES = 1024  # holds the framing and metadata of nearly every entry
_SIZE = struct.Struct(">I")
_RECORD = struct.Struct(
    ">i"  # size of the record behind this field
    "q"  # ledgerId
    "q"  # entryId
)


class EntryHead(Struct, frozen=True):
    """The part of an entry before its payload. ``position`` is the one in the topic; sizes in bytes.

    ``bytes_read``: the bytes read from the file, independent of the payload's size.
    """

    position: Position
    metadata: MessageMetadata
    payload_bytes: int
    bytes_read: int


def read_entry_head(reader: EntryReader, position: Position) -> EntryHead:
    """Return the head of a topic's entry; raises EntryNotFound, EntryCorrupt."""
    data = _Head(reader, position.ledger_id, position.entry_id, f"entry {position}")
    metadata, payload_bytes = _read_message(data, 0)
    return EntryHead(position.entry, metadata, payload_bytes, data.bytes_read)


@contextmanager
def lacking_is_corrupt() -> Iterator[None]:
    """Turn EntryNotFound into EntryCorrupt in the block: compacted ledgers are never trimmed, so an entry cannot be absent."""
    try:
        yield
    except EntryNotFound as error:
        raise EntryCorrupt(error.message, hint=error.hint, **error.context) from error


def read_compacted_head(reader: EntryReader, view: CompactedView, entry_id: int) -> EntryHead:
    """Return the head of an entry of a compacted ledger, at its original position; raises EntryNotFound, EntryCorrupt."""
    data = _Head(reader, view.ledger_id, entry_id, compacted_where(view, entry_id))
    id_bytes = data.u32(0)
    position = decode_original_id(data.take(4, id_bytes), data.where)
    start = 8 + id_bytes
    data.check_end(start + data.u32(4 + id_bytes))
    metadata, payload_bytes = _read_message(data, start)
    return EntryHead(position, metadata, payload_bytes, data.bytes_read)


def _read_message(data: _Head, at: int) -> tuple[MessageMetadata, int]:
    """Return the metadata of the message entry that fills ``data`` from ``at`` on, and how many bytes follow it."""
    if data.take(at, 2) == BROKER_MAGIC:
        at += 6 + data.u32(at + 2)
    if data.take(at, 2) == CHECKSUM_MAGIC:
        at += 6
    size = data.u32(at)
    metadata = decode_metadata(data.take(at + 4, size), data.where)
    return metadata, data.total_bytes - at - 4 - size


class _Head:
    """The payload of one BookKeeper entry, of which only the requested beginning is read."""

    def __init__(self, reader: EntryReader, ledger_id: int, entry_id: int, where: str) -> None:
        block = find_block(reader.txn, ledger_id, entry_id) if entry_id >= 0 else None
        index = 0 if block is None else block.index_of(entry_id)
        if block is None or index >= len(block) or block.entry_id(index) != entry_id:
            reader.read(ledger_id, entry_id)  # raises, and says why
            raise EntryCorrupt(f"{where}: not in the index", where=where)
        self.where = where
        self._reader = reader
        self._entry = ledger_id, entry_id
        self._place = block.place(index)
        size = self._place[2]
        self._skip = 4 + _ENTRY_HEADER_BYTES + block.header.digest_bytes
        self.total_bytes = 4 + size - self._skip
        self.bytes_read = 0
        self._data = memoryview(b"")
        raw = self._read(min(4 + size, self._skip + _HEAD_BYTES))
        expected = (size, ledger_id, entry_id)
        actual = _RECORD.unpack_from(raw) if len(raw) >= _RECORD.size else None
        if actual != expected or self.total_bytes < 0:
            name = self._reader.files.name(self._place[0])
            raise EntryLogCorrupt(
                f"{name} @ {self._place[1]:#x}: expected size, ledger and entry {expected}, found {actual}",
                hint="the file changed since import; run: pulsar-admin store check --deep",
                where=self.where,
            )

    def _read(self, length: int) -> memoryview:
        raw = memoryview(self._reader.read_head(*self._entry, self._place, length))
        self.bytes_read += length
        self._data = raw[self._skip :]
        return raw

    def take(self, at: int, length: int) -> memoryview:
        """Return ``length`` bytes at ``at``; raises EntryCorrupt if the entry ends before."""
        if at + length > self.total_bytes:
            raise EntryCorrupt(
                f"{self.where}: the entry has {self.total_bytes} bytes, its framing asks for {at + length}",
                where=self.where,
                expected=at + length,
                found=self.total_bytes,
            )
        if at + length > len(self._data):
            self._read(self._skip + at + length)
        return self._data[at : at + length]

    def u32(self, at: int) -> int:
        """Return the 4-byte size at ``at``."""
        return int(_SIZE.unpack(self.take(at, 4))[0])

    def check_end(self, end: int) -> None:
        """Raise EntryCorrupt unless the entry ends at ``end``."""
        if end != self.total_bytes:
            raise EntryCorrupt(
                f"{self.where}: the entry has {self.total_bytes} bytes, its framing says {end}",
                where=self.where,
                expected=end,
                found=self.total_bytes,
            )


_TXN_COMMIT = 21  # MarkerType; named here because reading messages costs a command that reads heads only 7 ms
_SNAPSHOTS = ("__transaction_buffer_snapshot", "__transaction_buffer_snapshot_indexes")


class PassedOver(Struct, frozen=True):
    """An entry that readers do not get, and why."""

    position: Position
    reason: str


class TopicEnd(Struct, frozen=True):
    """The last entry of a topic that readers get. ``head`` None: they get nothing after the given floor."""

    head: EntryHead | None
    passed_over: tuple[PassedOver, ...]


class Transactions(Struct, frozen=True):
    """The transactions of some entries: the committed ones, and the first entry of one without a commit or abort marker."""

    committed: frozenset[tuple[int, int]]
    first_open: Position | None


def find_topic_end(
    reader: EntryReader, topic: Topic, floor: Position | None, transactions: Transactions | None = None
) -> TopicEnd:
    """Return the last entry after ``floor`` (None: of the whole topic) that readers get; raises EntryNotFound, EntryCorrupt.

    ``transactions``: those after ``floor``, if known. Finding them costs a pass over the heads after ``floor``; a
    topic without any costs only its last entry.
    """
    passed: list[PassedOver] = []
    if transactions is None and has_transactions(reader, topic.name):
        transactions = read_transactions(reader, topic, floor)
    for rank in range(topic.number_of_entries - 1, rank_after(topic, floor) - 1, -1):
        head = read_entry_head(reader, topic.at_rank(rank))
        if transactions is None and transaction_id(head.metadata) is not None:
            transactions = read_transactions(reader, topic, floor)
        reason = why_unread(head, transactions)
        if not reason:
            return TopicEnd(head, tuple(passed))
        passed.append(PassedOver(head.position, reason))
    return TopicEnd(None, tuple(passed))


def rank_after(topic: Topic, floor: Position | None) -> int:
    """Return the rank of the first entry after ``floor``, 0 for None."""
    return 0 if floor is None else topic.place(floor)


def has_transactions(reader: EntryReader, name: TopicName) -> bool:
    """Whether the namespace has a transaction buffer snapshot of the topic, which its first transactional message creates."""
    return any(str(name) in _iter_keys(reader, TopicName(name.namespace, local)) for local in _SNAPSHOTS)


def _iter_keys(reader: EntryReader, name: TopicName) -> Iterator[str]:
    """Yield the keys of a system topic, whose messages are never batched; none if the topic does not exist."""
    try:
        topic = read_topic(reader.txn, name)
    except TopicNotFound:
        return
    for position in topic.iter_positions(topic.first_position):
        try:
            yield read_entry_head(reader, position).metadata.partition_key
        except ENTRY_UNREADABLE:
            continue  # another snapshot of the same topic follows, or its entries themselves tell


def read_transactions(reader: EntryReader, topic: Topic, floor: Position | None) -> Transactions:
    """Return the transactions in the entries after ``floor``."""
    outcomes: dict[tuple[int, int], bool] = {}
    first: dict[tuple[int, int], Position] = {}
    for rank in range(rank_after(topic, floor), topic.number_of_entries):
        try:
            head = read_entry_head(reader, topic.at_rank(rank))
        except ENTRY_UNREADABLE:
            continue  # a lost entry opens and ends no transaction; reading it reports the loss
        txn_id = transaction_id(head.metadata)
        if txn_id is None:
            continue
        if is_marker(head.metadata):
            outcomes[txn_id] = head.metadata.marker_type == _TXN_COMMIT
        else:
            first.setdefault(txn_id, head.position)
    first_open = min((place for txn_id, place in first.items() if txn_id not in outcomes), default=None)
    return Transactions(frozenset(txn_id for txn_id, committed in outcomes.items() if committed), first_open)


def why_unread(head: EntryHead, transactions: Transactions | None) -> str:
    """Return why readers do not get an entry, "" if they do."""
    first_open = None if transactions is None else transactions.first_open
    if first_open is not None and head.position >= first_open:
        return f"at or after {first_open}, where a transaction is open"
    if is_marker(head.metadata):
        return f"a marker of type {head.metadata.marker_type}"
    txn_id = transaction_id(head.metadata)
    if txn_id is not None and transactions is not None and txn_id not in transactions.committed:
        return f"transaction ({txn_id[0]},{txn_id[1]}) was aborted"
    return ""
