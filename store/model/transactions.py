"""Read model of transactions: the open ones that coordinators and subscriptions record, as a broker recovers them at its start.

Upstream: ``MLTransactionMetadataStore``, ``MLPendingAckStore``, ``TopicTransactionBuffer`` (Pulsar 4.0.8); of segments, whose transactions
are in the metadata store, ``TransactionCoordinatorV5``, ``MetadataTransactionBuffer`` (5.0.1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress

from msgspec import Struct, field

from pulsar_admin.store.codec import transactions
from pulsar_admin.store.codec.message import decode_message_entry, transaction_id
from pulsar_admin.store.codec.policies import decode_json_object
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import WHOLE_METADATA, iter_metadata_damage
from pulsar_admin.store.db.tree import Node, find_node, iter_children, iter_nodes
from pulsar_admin.store.errors import ENTRY_UNREADABLE, MetadataCorrupt, NotFound, NotSeen
from pulsar_admin.store.model.cursors import PENDING_ACK_CURSOR, read_cursor
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, find_pending_ack, read_topic
from pulsar_admin.store.names import (
    EARLIEST,
    SEGMENT,
    TRANSACTION_LOG_PREFIX,
    NamespaceName,
    Position,
    TopicName,
    encode_name,
)

SYSTEM = NamespaceName("pulsar", "system")
ASSIGN = TopicName(SYSTEM, "transaction_coordinator_assign")
_MAX_ID = "max_local_txn_id"
_TXN_COMMIT, _TXN_ABORT = 21, 22
_HEADERS, _OPERATIONS, _SEQUENCES, _ABORTED = "/txn/id", "/txn/op", "/txn/tc-seq", "/txn/segment-state/aborted"


class OpenTransaction(Struct):
    """A transaction that is neither committed nor aborted, with the topics and subscriptions that it touched."""

    txn: transactions.TxnId
    start_ms: int
    timeout_ms: int
    status: str = transactions.OPEN
    partitions: list[str] = field(default_factory=list)
    subscriptions: list[tuple[str, str]] = field(default_factory=list)


class Coordinator(Struct, frozen=True):
    """The state of a coordinator from its log: the highest number assigned, and its open transactions in order."""

    coordinator_id: int
    last_id: int
    open: dict[transactions.TxnId, OpenTransaction]

    @property
    def low_water_mark(self) -> int:
        """All transactions up to this number have ended; 0 if none is open (``MLTransactionMetadataStore.getLowWaterMark``, 4.0.8)."""
        return min((txn.least for txn in self.open), default=1) - 1


def log_topic(coordinator_id: int) -> TopicName:
    """Return the name of the managed ledger of a coordinator's log."""
    return TopicName(SYSTEM, f"{TRANSACTION_LOG_PREFIX}{coordinator_id}")


def coordinator_ids(txn: Txn) -> list[int]:
    """Return the coordinators that have a log, or assigned a number to a transaction of segments."""
    names = iter_children(txn, SYSTEM.managed_ledgers_path)
    numbers = {name.removeprefix(TRANSACTION_LOG_PREFIX) for name in names if name.startswith(TRANSACTION_LOG_PREFIX)}
    numbers.update(iter_children(txn, _SEQUENCES))
    return sorted(int(number) for number in numbers if number.isascii() and number.isdigit())


def read_states(txn: Txn) -> dict[transactions.TxnId, str | None]:
    """Return the state of each transaction of segments that the metadata store still has, None where its node is damaged."""
    states: dict[transactions.TxnId, str | None] = {}
    for node in iter_nodes(txn, f"{_HEADERS}/"):
        with suppress(MetadataCorrupt):  # no transaction has such a name
            id_ = transactions.txn_of_key(node.path.rpartition("/")[2], node.path)
            states[id_] = None
            states[id_], _, _ = transactions.decode_txn_header(node.value, node.path)
    return states


class SegmentStates(Struct, frozen=True):
    """The states of transactions that wrote to a segment, from the metadata store. ``given``: coordinator → the next number it assigns."""

    states: Mapping[transactions.TxnId, str | None]
    aborted: Collection[transactions.TxnId]
    given: Mapping[int, int]

    def of(self, txn: transactions.TxnId) -> str:
        """Return the state of a transaction; raises NotSeen if the metadata store has none.

        A broker forgets a transaction that has ended; it lists an aborted one as long as a segment has entries of it.
        """
        known = transactions.COMMITTED if 0 <= txn.least < self.given.get(txn.most, 0) else None
        state = transactions.ABORTED if txn in self.aborted else self.states.get(txn, known)
        if state is None:
            raise NotSeen(
                f"transaction {txn}: the metadata does not say whether it was committed",
                hint="import metadata that is as new as the ledgers and has the tree /txn",
                transaction=str(txn),
            )
        return state


def read_segment_states(txn: Txn, name: TopicName) -> SegmentStates:
    """Return the states of transactions for the segment ``name``.

    Damaged states are unknown, and so are states without a node if nodes may be lost.
    """
    root, headers = f"{_ABORTED}/{encode_name(str(name))}:", read_states(txn)
    states = dict(headers)
    has_all = not any(one.offset >= WHOLE_METADATA or " /txn/" in one.reason for one in iter_metadata_damage(txn))
    aborted, given = set[transactions.TxnId](), dict[int, int]()
    for node in iter_nodes(txn, root):
        with suppress(MetadataCorrupt):
            aborted.add(transactions.txn_of_key(node.path.removeprefix(root), node.path))
    for key, node in _iter_operation_nodes(txn):
        with suppress(MetadataCorrupt):
            id_ = transactions.txn_of_key(key, node.path)
            if id_ in headers:
                continue
            try:
                operation = transactions.decode_txn_operation(node.value, node.path)
            except MetadataCorrupt:
                states[id_] = None
                continue
            if has_all and operation.subscription is None and operation.segment == str(name):
                aborted.add(id_)  # so a broker takes one without a header
    for number in coordinator_ids(txn) if has_all else ():
        with suppress(MetadataCorrupt):
            given[number] = _next_number(txn, number)
    return SegmentStates(states, aborted, given)


def _next_number(txn: Txn, coordinator_id: int) -> int:
    """Return the number that a coordinator assigns to the next transaction of segments, 0 if it has assigned none; raises
    MetadataCorrupt."""
    node = find_node(txn, f"{_SEQUENCES}/{coordinator_id}")
    if node is None:
        return 0
    following = decode_json_object(node.value, node.path).get("next")
    if type(following) is not int:
        raise MetadataCorrupt(f"{node.path}: no TcSequence", where=node.path, found=node.value[:64].hex())
    return following


def _iter_operation_nodes(txn: Txn) -> Iterator[tuple[str, Node]]:
    """Yield (key of the transaction, node) for each operation of the transactions of segments."""
    for node in iter_nodes(txn, f"{_OPERATIONS}/"):
        key, is_operation, _ = node.path.rpartition("/")[2].partition("-")
        if is_operation:  # else it counts them
            yield key, node


def _iter_operations(txn: Txn) -> Iterator[tuple[transactions.TxnId, transactions.TxnOperation]]:
    """Yield (transaction, operation) for each operation of the transactions of segments, in the order of nodes."""
    for key, node in _iter_operation_nodes(txn):
        yield transactions.txn_of_key(key, node.path), transactions.decode_txn_operation(node.value, node.path)


def _read_of_segments(txn: Txn, coordinator_id: int) -> tuple[int, dict[transactions.TxnId, OpenTransaction]]:
    """Return the newest number that a coordinator assigned to a transaction of segments, and the open transactions."""
    last_id = _next_number(txn, coordinator_id) - 1
    open_: dict[transactions.TxnId, OpenTransaction] = {}
    for node in iter_nodes(txn, f"{_HEADERS}/{coordinator_id}_"):
        id_ = transactions.txn_of_key(node.path.rpartition("/")[2], node.path)
        state, created_ms, timeout_ms = transactions.decode_txn_header(node.value, node.path)
        if state == transactions.OPEN:
            open_[id_] = OpenTransaction(id_, created_ms, timeout_ms)
    for id_, operation in _iter_operations(txn) if open_ else ():
        if id_ not in open_:
            continue
        if operation.subscription is None:
            open_[id_].partitions.append(operation.segment)
        else:
            open_[id_].subscriptions.append((operation.segment, operation.subscription))
    return last_id, open_


def read_coordinator(reader: EntryReader, coordinator_id: int) -> Coordinator:
    """Replay the log of a coordinator; raises NotFound, EntryCorrupt, Unsupported."""
    name = log_topic(coordinator_id)
    last_id, of_segments = _read_of_segments(reader.txn, coordinator_id)
    if find_node(reader.txn, name.path) is None:
        if last_id >= 0 or of_segments:
            return Coordinator(coordinator_id, last_id, of_segments)
        raise NotFound(
            f"Transaction coordinator not found! coordinator id : {coordinator_id}", coordinator=coordinator_id
        )
    topic = read_topic(reader.txn, name)
    stored = topic.managed.properties.get(_MAX_ID, "-1")
    last_id = max(last_id, int(stored) if stored.lstrip("-").isdigit() else -1)
    open_: dict[transactions.TxnId, OpenTransaction] = {}
    for where, payload in _payloads(reader, topic):
        entry = transactions.decode_log_entry(payload, where)
        last_id = max(last_id, entry.txn.least)
        if entry.operation == transactions.NEW:
            open_.setdefault(entry.txn, OpenTransaction(entry.txn, entry.start_ms, entry.timeout_ms))
            continue
        transaction = open_.get(entry.txn)
        if transaction is None:
            continue
        if entry.operation == transactions.ADD_PARTITION:
            transaction.partitions += entry.partitions
        elif entry.operation == transactions.ADD_SUBSCRIPTION:
            transaction.subscriptions += entry.subscriptions
        elif entry.status in (transactions.COMMITTED, transactions.ABORTED):
            del open_[entry.txn]
        else:
            transaction.status = entry.status
    return Coordinator(coordinator_id, last_id, of_segments | open_)


def read_transaction(reader: EntryReader, txn: transactions.TxnId) -> OpenTransaction:
    """Return an open transaction; raises NotFound."""
    if txn.most not in coordinator_ids(reader.txn):
        raise NotFound(f"Transaction coordinator with id {txn.most} not found!", coordinator=txn.most)
    transaction = read_coordinator(reader, txn.most).open.get(txn)
    if transaction is None:
        raise NotFound(f"The transaction with this txdID `{txn}`not found ", transaction=str(txn))
    return transaction


def read_pending_acks(
    reader: EntryReader, name: TopicName, subscription: str, end: Position | None = None
) -> dict[transactions.TxnId, Position | None] | None:
    """Return the open transactions with acknowledgements on a subscription → the position of a cumulative one.

    Read like a broker's replay of the log, which begins after the log's cursor (``MLPendingAckStore``, 4.0.8). ``end``: the entry of the
    log at which it stops, None for after the last one. Returns None if there is no log. Raises EntryCorrupt, MetadataCorrupt, Unsupported.
    """
    open_: dict[transactions.TxnId, Position | None] = {}
    if name.domain == SEGMENT:
        states = read_states(reader.txn)
        for id_, operation in _iter_operations(reader.txn):
            if (operation.segment, operation.subscription) != (str(name), subscription):
                continue
            state = states.get(id_, transactions.ABORTED)
            if state is None:
                raise MetadataCorrupt(f"{_HEADERS}/{id_.most}_{id_.least}: no TxnHeader", transaction=str(id_))
            if state == transactions.OPEN:
                open_[id_] = operation.position if operation.is_cumulative else open_.get(id_)
        return open_ or None
    log = find_pending_ack(reader.txn, name, subscription)
    if log is None:
        return None
    topic, start = read_topic(reader.txn, log), EARLIEST
    if find_node(reader.txn, log.cursor_path(PENDING_ACK_CURSOR)) is not None:
        mark_delete = read_cursor(reader.txn, reader, topic, PENDING_ACK_CURSOR).mark_delete
        start = Position(mark_delete.ledger_id, mark_delete.entry_id + 1)
    for where, payload in _payloads(reader, topic, start, end):
        entry = transactions.decode_pending_ack(payload, where)
        if entry.operation == transactions.ACK:
            open_[entry.txn] = entry.positions[-1] if entry.is_cumulative and entry.positions else open_.get(entry.txn)
        elif entry.operation in (transactions.COMMIT, transactions.ABORT):
            open_.pop(entry.txn, None)
    return open_


def _payloads(
    reader: EntryReader, topic: Topic, start: Position = EARLIEST, end: Position | None = None
) -> Iterator[tuple[str, bytes]]:
    for position in topic.iter_positions(start):
        if end is not None and position >= end:
            return
        yield f"entry {position} of {topic.name}", bytes(reader.read(position.ledger_id, position.entry_id).payload)


class Buffer(Struct):
    """Transactions found in the entries of a topic: open ones with their first entries, aborted ones, and those of unknown state."""

    first: dict[transactions.TxnId, Position] = field(default_factory=dict)
    aborted: set[transactions.TxnId] = field(default_factory=set)
    unknown: dict[transactions.TxnId, NotSeen] = field(default_factory=dict)
    any: bool = False

    def check(self) -> Buffer:
        """Return the buffer itself; raises NotSeen if the state of a transaction is unknown."""
        for error in self.unknown.values():
            raise error
        return self


def read_buffer(reader: EntryReader, name: TopicName) -> Buffer:
    """Return the transactions found in the entries of ``name``, all of which are read. Raises TopicNotFound."""
    buffer = Buffer()
    topic = read_topic(reader.txn, name)
    states = read_segment_states(reader.txn, name) if name.domain == SEGMENT else None
    for position in topic.iter_positions(EARLIEST):
        try:
            payload = reader.read(position.ledger_id, position.entry_id).payload
            metadata = decode_message_entry(payload, f"entry {position}", verify=False).metadata
        except ENTRY_UNREADABLE:
            continue
        ids = transaction_id(metadata)
        if ids is None:
            continue
        buffer.any = True
        txn = transactions.TxnId(*ids)
        if states is not None:  # no marker is in the segment
            try:
                state = states.of(txn)
            except NotSeen as error:
                buffer.unknown[txn] = error
                continue
            if state == transactions.ABORTED:
                buffer.aborted.add(txn)
            elif state == transactions.OPEN:
                buffer.first.setdefault(txn, position)
        elif metadata.marker_type in (_TXN_COMMIT, _TXN_ABORT):
            buffer.first.pop(txn, None)
            if metadata.marker_type == _TXN_ABORT:
                buffer.aborted.add(txn)
        else:
            buffer.first.setdefault(txn, position)
    return buffer
