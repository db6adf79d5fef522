"""Entries of the logs of transaction coordinators and of pending acknowledgements: bare protobuf, no message framing.

Upstream: ``PulsarTransactionMetadata.proto``, ``TransactionPendingAck.proto`` (Pulsar 4.0.8). Entries that
``transactionLogBatchedWriteEnabled`` and ``transactionPendingAckBatchedWriteEnabled`` gather are not read.

Transactions of segments are JSON in the metadata store, ``TxnHeader`` and ``TxnOp`` (5.0.1).
"""

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import Message
from msgspec import Struct

from pulsar_admin.store.codec.policies import decode_json_object
from pulsar_admin.store.codec.protobuf import parse_protobuf
from pulsar_admin.store.errors import EntryCorrupt, MetadataCorrupt, Unsupported
from pulsar_admin.store.names import Position
from pulsar_admin.store.proto import transaction_pb2

NEW, ADD_PARTITION, ADD_SUBSCRIPTION, UPDATE = range(4)
OPEN, COMMITTING, COMMITTED, ABORTING, ABORTED = STATUSES = ("OPEN", "COMMITTING", "COMMITTED", "ABORTING", "ABORTED")
ACK, COMMIT, ABORT = 1, 2, 3
_CUMULATIVE = 1
_BATCHED = b"\x0e\x01"


class TxnId(Struct, frozen=True, order=True):
    """A transaction: its coordinator and its number there."""

    most: int
    least: int

    def __str__(self) -> str:
        return f"({self.most},{self.least})"


class TxnOperation(Struct, frozen=True):
    """A transaction's operation on a segment: a write, or acknowledging ``position``, or all up to it, on
    ``subscription``."""

    segment: str
    subscription: str | None
    position: Position
    is_cumulative: bool


def txn_of_key(key: str, where: str) -> TxnId:
    """Return the transaction of a key in the metadata store, such as ``3_0``; raises MetadataCorrupt."""
    most, _, least = key.partition("_")
    try:
        return TxnId(int(most), int(least))
    except ValueError as cause:
        raise MetadataCorrupt(f"{where}: expected COORDINATOR_NUMBER, found {key}", where=where, found=key) from cause


def decode_txn_header(value: bytes, where: str) -> tuple[str, int, int]:
    """Return state, creation and timeout (ms) of a ``TxnHeader``; raises MetadataCorrupt."""
    record = decode_json_object(value, where)
    seconds = [record.get(key) for key in ("createdAt", "timeout")]
    if record.get("state") not in STATUSES or not all(type(one) in (int, float) for one in seconds):
        raise MetadataCorrupt(f"{where}: no TxnHeader", where=where, found=value[:64].hex())
    created_ms, timeout_ms = (round(one * 1_000_000) // 1000 for one in seconds)  # type: ignore[operator]  # numbers
    return record["state"], created_ms, timeout_ms


def decode_txn_operation(value: bytes, where: str) -> TxnOperation:
    """Return a ``TxnOp``; raises MetadataCorrupt."""
    record = decode_json_object(value, where)
    ids: list[Any] = [record.get("ledgerId"), record.get("entryId")]  # Any: JSON
    subscription = record.get("subscription") if record.get("kind") == "ACK" else None
    texts = [record.get("segment"), subscription or ""]
    if (
        record.get("kind") not in ("WRITE", "ACK")
        or not all(type(one) is str for one in texts)
        or not all(type(one) is int for one in ids)
    ):
        raise MetadataCorrupt(f"{where}: no TxnOp", where=where, found=value[:64].hex())
    return TxnOperation(record["segment"], subscription, Position(*ids), record.get("cumulative") is True)


class LogEntry(Struct, frozen=True):
    """One step of a transaction in its coordinator's log; ``status``: the new one. ``subscriptions``: (topic, subscription)."""

    operation: int
    txn: TxnId
    status: str
    partitions: tuple[str, ...] = ()
    subscriptions: tuple[tuple[str, str], ...] = ()
    timeout_ms: int = 0
    start_ms: int = 0


class PendingAckEntry(Struct, frozen=True):
    """One step of a transaction's acknowledgements on a subscription."""

    operation: int
    txn: TxnId
    positions: tuple[Position, ...] = ()
    is_cumulative: bool = False


def decode_log_entry(payload: bytes | memoryview, where: str, *, strict: bool = False) -> LogEntry:
    """Return the entry of a coordinator's log; raises EntryCorrupt, Unsupported.

    With ``strict`` (as of ``parse_protobuf``) also where it lacks what brokers write into every one.
    """
    kind = transaction_pb2.TransactionMetadataEntry
    entry = parse_protobuf(kind, _single(payload, where), where, EntryCorrupt, strict=strict)
    if strict:
        _check_has(entry, ("metadata_op", "txnid_least_bits", "txnid_most_bits"), where)
        # A pending acknowledgement has neither.
        if not (entry.HasField("last_modification_time") or entry.HasField("max_local_txn_id")):
            raise EntryCorrupt(f"{where}: no entry of a coordinator's log", where=where)
    if not 0 <= entry.new_status < len(STATUSES) or not NEW <= entry.metadata_op <= UPDATE:
        raise EntryCorrupt(f"{where}: operation {entry.metadata_op}, status {entry.new_status}", where=where)
    return LogEntry(
        entry.metadata_op,
        TxnId(entry.txnid_most_bits, entry.txnid_least_bits),
        STATUSES[entry.new_status],
        tuple(entry.partitions),
        tuple((one.topic, one.subscription) for one in entry.subscriptions),
        entry.timeout_ms,
        entry.start_time,
    )


def decode_pending_ack(payload: bytes | memoryview, where: str, *, strict: bool = False) -> PendingAckEntry:
    """Return the entry of a log of pending acknowledgements; raises EntryCorrupt, Unsupported; ``strict`` as of ``decode_log_entry``."""
    kind = transaction_pb2.PendingAckMetadataEntry
    entry = parse_protobuf(kind, _single(payload, where), where, EntryCorrupt, strict=strict)
    if strict:
        _check_has(entry, ("pending_ack_op", "txnid_least_bits", "txnid_most_bits"), where)
    return PendingAckEntry(
        entry.pending_ack_op,
        TxnId(entry.txnid_most_bits, entry.txnid_least_bits),
        tuple(Position(one.ledgerId, one.entryId) for one in entry.pending_ack_metadata),
        entry.ack_type == _CUMULATIVE,
    )


def _check_has(found: Message, names: Sequence[str], where: str) -> None:
    if missing := [name for name in names if not found.HasField(name)]:
        raise EntryCorrupt(f"{where}: it lacks {', '.join(missing)}", where=where)


def _single(payload: bytes | memoryview, where: str) -> bytes:
    if bytes(payload[:2]) == _BATCHED:
        raise Unsupported(
            f"{where}: entries gathered by batched writes of the transaction log are not read", where=where
        )
    return bytes(payload)
