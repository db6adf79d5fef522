"""Entries of the logs of transaction coordinators and of pending acknowledgements: bare protobuf, no message framing.

Upstream: ``PulsarTransactionMetadata.proto``, ``TransactionPendingAck.proto`` (Pulsar 4.0.8). Entries that
``transactionLogBatchedWriteEnabled`` and ``transactionPendingAckBatchedWriteEnabled`` gather are not read.
"""

from __future__ import annotations

from msgspec import Struct

from pulsar_admin.store.codec.protobuf import parse_protobuf
from pulsar_admin.store.errors import EntryCorrupt, Unsupported
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


def decode_log_entry(payload: bytes | memoryview, where: str) -> LogEntry:
    """Return the entry of a coordinator's log; raises EntryCorrupt, Unsupported."""
    found = parse_protobuf(transaction_pb2.TransactionMetadataEntry, _single(payload, where), where, EntryCorrupt)
    if not 0 <= found.new_status < len(STATUSES) or not NEW <= found.metadata_op <= UPDATE:
        raise EntryCorrupt(f"{where}: operation {found.metadata_op}, status {found.new_status}", where=where)
    return LogEntry(
        found.metadata_op,
        TxnId(found.txnid_most_bits, found.txnid_least_bits),
        STATUSES[found.new_status],
        tuple(found.partitions),
        tuple((one.topic, one.subscription) for one in found.subscriptions),
        found.timeout_ms,
        found.start_time,
    )


def decode_pending_ack(payload: bytes | memoryview, where: str) -> PendingAckEntry:
    """Return the entry of a log of pending acknowledgements; raises EntryCorrupt, Unsupported."""
    found = parse_protobuf(transaction_pb2.PendingAckMetadataEntry, _single(payload, where), where, EntryCorrupt)
    return PendingAckEntry(
        found.pending_ack_op,
        TxnId(found.txnid_most_bits, found.txnid_least_bits),
        tuple(Position(one.ledgerId, one.entryId) for one in found.pending_ack_metadata),
        found.ack_type == _CUMULATIVE,
    )


def _single(payload: bytes | memoryview, where: str) -> bytes:
    if bytes(payload[:2]) == _BATCHED:
        raise Unsupported(
            f"{where}: entries gathered by batched writes of the transaction log are not read", where=where
        )
    return bytes(payload)
