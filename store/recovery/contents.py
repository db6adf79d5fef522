"""What an entry that is not a message is: its kind told from its bytes alone, and the ledgers and topics that it names.

Upstream, Pulsar 4.0.8: ``PositionInfo`` (cursors), ``SchemaStorageFormat.SchemaEntry``, ``RawMessageImpl`` (compacted), delayed-bucket
snapshots, ``TransactionMetadataEntry``, ``PendingAckMetadataEntry``. All but the compacted are bare protobuf without a mark, so an entry
may fit several kinds: a ledger is of the kind that all of its entries fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from msgspec import Struct

from pulsar_admin.store.codec.compactedentry import decode_compacted_entry
from pulsar_admin.store.codec.cursor import decode_position_info
from pulsar_admin.store.codec.delayedbucket import decode_snapshot_metadata, decode_snapshot_segment
from pulsar_admin.store.codec.protobuf import parse_protobuf
from pulsar_admin.store.codec.schema import decode_schema_entry
from pulsar_admin.store.errors import EntryCorrupt, StoreError
from pulsar_admin.store.names import Position
from pulsar_admin.store.proto import delayed_bucket_pb2, managed_ledger_pb2, schema_pb2, transaction_pb2

MESSAGES, CURSOR, SCHEMA, COMPACTED, BUCKET = "messages", "cursor", "schema", "compacted", "delayed-bucket"
TRANSACTIONS, PENDING_ACKS, MIXED, UNKNOWN = "transaction-log", "pending-acks", "mixed", "unknown"

_LIMIT = 1 << 24  # an entry that is not a message and larger than this stays unknown
_FOOTER = b"{"  # of a cursor state in parts (PIP-381): JSON


class Content(Struct, frozen=True):
    """What one entry is, as one of its possible kinds. ``points``: positions of other ledgers' entries that it names.

    ``topic``: a schema's id, a compacted key…: what it says it belongs to. ``txns``: (most, least) → what it says of that transaction.
    """

    kind: str
    points: tuple[Position, ...] = ()
    topic: str = ""
    txns: tuple[tuple[tuple[int, int], tuple[str, ...]], ...] = ()


def read_contents(payload: bytes | memoryview) -> tuple[Content, ...]:
    """Return what PAYLOAD may be, one a kind that it fits; empty: nothing that is known."""
    if not payload or len(payload) > _LIMIT:
        return ()
    found: list[Content] = []
    for read in _READERS:
        try:
            content = read(payload)
        except StoreError:
            continue
        if content is not None:
            found.append(content)
    return tuple(found)


def _strict(kind: type[Any], payload: bytes | memoryview) -> Any:  # Any: a message of KIND
    """Return PAYLOAD as a message of KIND, of which every field is known; raises EntryCorrupt."""
    message = parse_protobuf(kind, payload, "entry", EntryCorrupt)
    if not _is_known(message):
        raise EntryCorrupt("entry: fields that are not known")
    return message


def _is_known(message: Message) -> bool:
    return not len(UnknownFieldSet(message))


def _compacted(payload: bytes | memoryview) -> Content | None:
    if bytes(payload[:3]) != b"\0\0\0":  # the size of a MessageIdData: tens of bytes
        return None
    return Content(COMPACTED, (decode_compacted_entry(payload, "entry").position,))


def _schema(payload: bytes | memoryview) -> Content | None:
    outer = _strict(schema_pb2.SchemaEntry, payload)
    _strict(schema_pb2.SchemaInfo, outer.schema_data)
    entry = decode_schema_entry(payload, "entry")
    points = tuple(one.position for one in entry.index if one.position.ledger_id >= 0)
    return Content(SCHEMA, points, entry.schema_id) if entry.schema_id.count("/") >= 2 else None


def _cursor(payload: bytes | memoryview) -> Content | None:
    if bytes(payload[:1]) == _FOOTER:
        return Content(CURSOR)
    _strict(managed_ledger_pb2.PositionInfo, payload)
    state = decode_position_info(payload, "entry")
    ends = (edge for pair in state.ranges for edge in pair)
    return Content(CURSOR, tuple(_ends((state.mark_delete, *ends, *state.batch_deletes))))


def _ends(positions: Iterable[Position]) -> Iterator[Position]:
    """Yield the first and the last position of each ledger."""
    bounds: dict[int, tuple[int, int]] = {}
    for ledger_id, entry_id, *_ in ((one.ledger_id, one.entry_id) for one in positions):
        low, high = bounds.get(ledger_id, (entry_id, entry_id))
        bounds[ledger_id] = min(low, entry_id), max(high, entry_id)
    for ledger_id, (low, high) in bounds.items():
        yield Position(ledger_id, low)
        if high != low:
            yield Position(ledger_id, high)


def _bucket(payload: bytes | memoryview) -> Content | None:
    try:
        _strict(delayed_bucket_pb2.SnapshotSegment, payload)
        indexes = decode_snapshot_segment(payload, "entry")
        if indexes:
            return Content(BUCKET, tuple(_ends(Position(one.ledger_id, one.entry_id) for one in indexes)))
    except StoreError:
        pass
    _strict(delayed_bucket_pb2.SnapshotMetadata, payload)
    segments = decode_snapshot_metadata(payload, "entry")
    if not segments or not any(one.bitmaps for one in segments):
        return None
    return Content(BUCKET)


def _transaction(payload: bytes | memoryview) -> Content | None:
    entry = _strict(transaction_pb2.TransactionMetadataEntry, payload)
    if not all(entry.HasField(name) for name in ("metadata_op", "txnid_least_bits", "txnid_most_bits")):
        return None
    if not (entry.HasField("last_modification_time") or entry.HasField("max_local_txn_id")):
        return None  # a pending acknowledgement has neither
    says = (*entry.partitions, *(f"{one.topic}\0{one.subscription}" for one in entry.subscriptions))
    return Content(TRANSACTIONS, txns=(((entry.txnid_most_bits, entry.txnid_least_bits), says),))


def _pending_ack(payload: bytes | memoryview) -> Content | None:
    entry = _strict(transaction_pb2.PendingAckMetadataEntry, payload)
    if not all(entry.HasField(name) for name in ("pending_ack_op", "txnid_least_bits", "txnid_most_bits")):
        return None
    points = _ends(Position(one.ledgerId, one.entryId) for one in entry.pending_ack_metadata)
    return Content(PENDING_ACKS, tuple(points), txns=(((entry.txnid_most_bits, entry.txnid_least_bits), ()),))


_READERS: tuple[Callable[[bytes | memoryview], Content | None], ...] = (
    _compacted,
    _schema,
    _cursor,
    _bucket,
    _transaction,
    _pending_ack,
)
