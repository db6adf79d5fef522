"""Read model of transactions: what coordinators and subscriptions know of open ones, as a broker that starts recovers it.

Upstream: ``MLTransactionMetadataStore``, ``MLPendingAckStore``, ``TopicTransactionBuffer`` (Pulsar 4.0.8).
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, field

from pulsar_admin.store.codec import transactions
from pulsar_admin.store.codec.message import decode_message_entry, transaction_id
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node, iter_children
from pulsar_admin.store.errors import EntryCorrupt, EntryNotFound, NotFound
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import EARLIEST, TRANSACTION_LOG_PREFIX, NamespaceName, Position, TopicName

SYSTEM = NamespaceName("pulsar", "system")
ASSIGN = TopicName(SYSTEM, "transaction_coordinator_assign")
_MAX_ID = "max_local_txn_id"
_TXN_COMMIT, _TXN_ABORT = 21, 22


class OpenTransaction(Struct):
    """A transaction that is neither committed nor aborted, with the topics and subscriptions that it touched."""

    txn: transactions.TxnId
    start_ms: int
    timeout_ms: int
    status: str = transactions.OPEN
    partitions: list[str] = field(default_factory=list)
    subscriptions: list[tuple[str, str]] = field(default_factory=list)


class Coordinator(Struct, frozen=True):
    """What a coordinator's log says: the highest number given, and its open transactions in their order."""

    coordinator_id: int
    last_id: int
    open: dict[transactions.TxnId, OpenTransaction]

    @property
    def low_water_mark(self) -> int:
        """All transactions up to here are over."""
        return min((txn.least for txn in self.open), default=self.last_id + 1) - 1


def log_topic(coordinator_id: int) -> TopicName:
    """Return the name of the managed ledger of a coordinator's log."""
    return TopicName(SYSTEM, f"{TRANSACTION_LOG_PREFIX}{coordinator_id}")


def coordinator_ids(txn: Txn) -> list[int]:
    """Return the coordinators that have a log."""
    names = iter_children(txn, SYSTEM.managed_ledgers_path)
    numbers = (name.removeprefix(TRANSACTION_LOG_PREFIX) for name in names if name.startswith(TRANSACTION_LOG_PREFIX))
    return sorted(int(number) for number in numbers if number.isascii() and number.isdigit())


def read_coordinator(reader: EntryReader, coordinator_id: int) -> Coordinator:
    """Replay the log of a coordinator; raises NotFound, EntryCorrupt, Unsupported."""
    name = log_topic(coordinator_id)
    if find_node(reader.txn, name.path) is None:
        raise NotFound(
            f"Transaction coordinator not found! coordinator id : {coordinator_id}", coordinator=coordinator_id
        )
    topic = read_topic(reader.txn, name)
    stored = topic.managed.properties.get(_MAX_ID, "-1")
    last_id = int(stored) if stored.lstrip("-").isdigit() else -1
    open_: dict[transactions.TxnId, OpenTransaction] = {}
    for where, payload in _payloads(reader, topic):
        entry = transactions.decode_log_entry(payload, where)
        last_id = max(last_id, entry.txn.least)
        if entry.operation == transactions.NEW:
            open_.setdefault(entry.txn, OpenTransaction(entry.txn, entry.start_ms, entry.timeout_ms))
            continue
        found = open_.get(entry.txn)
        if found is None:
            continue
        if entry.operation == transactions.ADD_PARTITION:
            found.partitions += entry.partitions
        elif entry.operation == transactions.ADD_SUBSCRIPTION:
            found.subscriptions += entry.subscriptions
        elif entry.status in (transactions.COMMITTED, transactions.ABORTED):
            del open_[entry.txn]
        else:
            found.status = entry.status
    return Coordinator(coordinator_id, last_id, open_)


def read_transaction(reader: EntryReader, txn: transactions.TxnId) -> OpenTransaction:
    """Return an open transaction; raises NotFound."""
    if find_node(reader.txn, log_topic(txn.most).path) is None:
        raise NotFound(f"Transaction coordinator with id {txn.most} not found!", coordinator=txn.most)
    found = read_coordinator(reader, txn.most).open.get(txn)
    if found is None:
        raise NotFound(f"The transaction with this txdID `{txn}`not found ", transaction=str(txn))
    return found


def read_pending_acks(
    reader: EntryReader, name: TopicName, subscription: str, end: Position | None = None
) -> dict[transactions.TxnId, Position | None] | None:
    """Return the open transactions with acknowledgements on a subscription → the position of a cumulative one.

    ``end``: the entry of the log at which a replay stops, None for after the last one. Returns None where there is no log of them.
    Raises EntryCorrupt, Unsupported.
    """
    log = name.pending_ack(subscription)
    if find_node(reader.txn, log.path) is None:
        return None
    open_: dict[transactions.TxnId, Position | None] = {}
    for where, payload in _payloads(reader, read_topic(reader.txn, log), end):
        entry = transactions.decode_pending_ack(payload, where)
        if entry.operation == transactions.ACK:
            open_[entry.txn] = entry.positions[-1] if entry.is_cumulative and entry.positions else open_.get(entry.txn)
        elif entry.operation in (transactions.COMMIT, transactions.ABORT):
            open_.pop(entry.txn, None)
    return open_


def _payloads(reader: EntryReader, topic: Topic, end: Position | None = None) -> Iterator[tuple[str, bytes]]:
    for position in topic.iter_positions(EARLIEST):
        if end is not None and position >= end:
            return
        yield f"entry {position} of {topic.name}", bytes(reader.read(position.ledger_id, position.entry_id).payload)


class Buffer(Struct):
    """What the entries of a topic say of transactions: first entries of open ones, and those that were aborted."""

    first: dict[transactions.TxnId, Position] = field(default_factory=dict)
    aborted: set[transactions.TxnId] = field(default_factory=set)
    any: bool = False


def read_buffer(reader: EntryReader, name: TopicName) -> Buffer:
    """Return what the entries of ``name`` say of transactions; every entry is read. Raises TopicNotFound."""
    buffer = Buffer()
    topic = read_topic(reader.txn, name)
    for position in topic.iter_positions(EARLIEST):
        try:
            payload = reader.read(position.ledger_id, position.entry_id).payload
            metadata = decode_message_entry(payload, f"entry {position}", verify=False).metadata
        except (EntryNotFound, EntryCorrupt):
            continue
        found = transaction_id(metadata)
        if found is None:
            continue
        buffer.any = True
        txn = transactions.TxnId(*found)
        if metadata.marker_type in (_TXN_COMMIT, _TXN_ABORT):
            buffer.first.pop(txn, None)
            if metadata.marker_type == _TXN_ABORT:
                buffer.aborted.add(txn)
        else:
            buffer.first.setdefault(txn, position)
    return buffer
