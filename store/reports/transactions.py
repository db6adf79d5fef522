"""The answers of ``transactions``, with upstream's keys (4.0.8). When a broker recovered its state is not known here: 0."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec.structs import replace

from pulsar_admin.store.codec.policies import decode_json_object
from pulsar_admin.store.codec.transactions import OPEN, TxnId
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import StoreError, SubscriptionNotFound
from pulsar_admin.store.facts.transactions import read_pending_ack_log
from pulsar_admin.store.model import transactions
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import find_pending_ack, read_partitioned, read_topic
from pulsar_admin.store.names import SEGMENT, TopicName, parse_topic, shell_word
from pulsar_admin.store.reports.internal_stats import InternalStats, read_internal_stats
from pulsar_admin.store.wording import Answer

_CLUSTERS = "/admin/clusters/"
_SNAPSHOT = "__transaction_buffer_snapshot"


class TransactionState(StrEnum):
    """Whether a topic or subscription has transactions; without any, a topic has no snapshot, and a subscription no log.

    ``INITIALIZING``: a broker that replays the log of a subscription never ends.
    """

    READY = "Ready"
    INITIALIZING = "Initializing"
    NO_SNAPSHOT = "NoSnapshot"
    NONE = "None"


class CoordinatorStats(Answer, frozen=True):
    """What ``coordinator-stats`` shows. ``least_sig_bits``: the newest assigned number; all up to ``low_water_mark`` have ended."""

    state: TransactionState
    least_sig_bits: int
    low_water_mark: int
    ongoing_txn_size: int
    recover_start_time_ms: int = 0
    recover_end_time_ms: int = 0


class BufferStats(Answer, frozen=True, kw_only=True):
    """What ``transaction-buffer-stats`` shows. ``max_read_position``: how far a reader of committed messages gets."""

    state: TransactionState
    max_read_position: str
    last_snapshot_timestamps_ms: int = 0
    ongoing_txn_size: int
    recover_start_time_ms: int = 0
    recover_end_time_ms: int = 0
    total_aborted_transactions: int
    snapshot_type: str = "Single"


class InBuffer(Answer, frozen=True):
    """A topic's state of one transaction. ``start_position``: its first entry while it is open."""

    JSON_OPTIONAL = ("start_position",)

    start_position: str | None
    aborted: bool


class PendingAckStats(Answer, frozen=True):
    """What ``pending-ack-stats`` shows."""

    state: TransactionState
    ongoing_txn_size: int
    recover_start_time_ms: int = 0
    recover_end_time_ms: int = 0


class InPendingAcks(Answer, frozen=True):
    """A subscription's state of one transaction: its cumulatively acknowledged position, if there is one."""

    JSON_OPTIONAL = ("cumulative_ack_position",)

    cumulative_ack_position: str | None


class TransactionMetadata(Answer, frozen=True):
    """What ``transaction-metadata`` shows of an open transaction; ``timeout_at_ms`` is how long it may be open, as upstream has it.

    ``produced_partitions``: by topic; ``acked_partitions``: by topic and subscription.
    """

    txn_id: str
    status: str
    open_timestamp_ms: int
    timeout_at_ms: int
    produced_partitions: Mapping[str, InBuffer]
    acked_partitions: Mapping[str, Mapping[str, InPendingAcks]]


class LogStats(Answer, frozen=True):
    """The managed ledger of a log, with upstream's names."""

    managed_ledger_name: str
    managed_ledger_internal_stats: InternalStats


def coordinators(txn: Txn, problems: list[StoreError]) -> dict[str, str]:
    """Return coordinator id → the URL of the broker's cluster: without running brokers, the coordinator's broker is unknown.

    ``problems`` gets the errors of nodes that cannot be read. Without their number, the coordinators are those that have a log.
    """
    url = ""
    try:
        numbers = [*range(read_partitioned(txn, transactions.ASSIGN).partitions)]
    except StoreError as error:
        problems.append(error)
        numbers = transactions.coordinator_ids(txn)
    try:
        node = find_node(txn, transactions.SYSTEM.policies_path)
        clusters = [] if node is None else decode_json_object(node.value, node.path).get("replication_clusters") or []
        nodes = (find_node(txn, f"{_CLUSTERS}{cluster}") for cluster in clusters)
        urls = (decode_json_object(node.value, node.path).get("brokerServiceUrl") for node in nodes if node is not None)
        url = next((str(url) for url in urls if url), "")
    except StoreError as error:
        problems.append(error)
    return {str(number): url for number in numbers}


def coordinator_stats(reader: EntryReader, number: int | None) -> dict[str, CoordinatorStats]:
    """Return what ``coordinator-stats`` shows of a coordinator (None: of each), by coordinator number."""
    every = {one: transactions.read_coordinator(reader, one) for one in _numbers(reader, number)}
    return {
        str(one): CoordinatorStats(TransactionState.READY, found.last_id, found.low_water_mark, len(found.open))
        for one, found in every.items()
    }


def _numbers(reader: EntryReader, number: int | None) -> list[int]:
    return transactions.coordinator_ids(reader.txn) if number is None else [number]


def coordinator_log(reader: EntryReader, number: int, metadata: bool) -> LogStats:
    """Return the managed ledger of a coordinator's log; raises NotFound, TopicNotFound, MetadataCorrupt."""
    transactions.read_coordinator(reader, number)
    return _log_stats(reader, transactions.log_topic(number), metadata)


def snapshot_log(reader: EntryReader, name: TopicName, metadata: bool) -> LogStats:
    """Return the managed ledger of the snapshots of a topic's namespace; raises TopicNotFound, MetadataCorrupt."""
    read_topic(reader.txn, name)
    return replace(_log_stats(reader, TopicName(name.namespace, _SNAPSHOT), metadata), managed_ledger_name=_SNAPSHOT)


def pending_ack_log(reader: EntryReader, name: TopicName, subscription: str, metadata: bool) -> LogStats:
    """Return the managed ledger of a subscription's pending acknowledgements; raises as ``snapshot_log``, SubscriptionNotFound."""
    _check_subscription(reader.txn, name, subscription)
    log = find_pending_ack(reader.txn, name, subscription) or name.pending_ack(subscription)
    return _log_stats(reader, log, metadata)


def _log_stats(reader: EntryReader, name: TopicName, metadata: bool) -> LogStats:
    stats = read_internal_stats(reader, name, metadata=metadata, publish_times=False, problems=[])
    return LogStats(name.managed_ledger_name, stats)


def in_buffer(reader: EntryReader, name: TopicName, txn: TxnId) -> InBuffer:
    """Return a topic's state of one transaction; raises TopicNotFound, NotSeen."""
    buffer = transactions.read_buffer(reader, name)
    if txn in buffer.unknown:
        raise buffer.unknown[txn]
    first = buffer.first.get(txn)
    return InBuffer(None if first is None else str(first), txn in buffer.aborted)


def buffer_stats(reader: EntryReader, name: TopicName) -> BufferStats:
    """Return what ``transaction-buffer-stats`` shows; raises NotSeen."""
    topic, buffer = read_topic(reader.txn, name), transactions.read_buffer(reader, name).check()
    first = min(buffer.first.values(), default=None)
    return BufferStats(
        state=TransactionState.READY if buffer.any else TransactionState.NO_SNAPSHOT,
        max_read_position=str(topic.last_confirmed if first is None else topic.previous(first)),
        ongoing_txn_size=len(buffer.first),
        total_aborted_transactions=len(buffer.aborted),
    )


def _check_subscription(txn: Txn, name: TopicName, subscription: str) -> None:
    """Raise TopicNotFound or SubscriptionNotFound unless ``name`` has ``subscription``."""
    read_topic(txn, name)
    if find_node(txn, name.cursor_path(subscription)) is None:
        raise SubscriptionNotFound(
            f"{name} not found subscription : {subscription}",
            hint=f"list them with: pulsar-admin topics subscriptions {shell_word(name)}",
            topic=str(name),
            subscription=subscription,
        )


def pending_ack_stats(reader: EntryReader, name: TopicName, subscription: str) -> PendingAckStats:
    """Return what ``pending-ack-stats`` shows; raises TopicNotFound, SubscriptionNotFound."""
    _check_subscription(reader.txn, name, subscription)
    log = read_pending_ack_log(reader, name, subscription)
    if log is None:
        open_ = transactions.read_pending_acks(reader, name, subscription) if name.domain == SEGMENT else None
        return PendingAckStats(TransactionState.READY if open_ else TransactionState.NONE, len(open_ or ()))
    acks = transactions.read_pending_acks(reader, name, subscription, log.replayed_until)
    return PendingAckStats(
        TransactionState.READY if log.is_replayed else TransactionState.INITIALIZING, len(acks or ())
    )


def in_pending_ack(reader: EntryReader, name: TopicName, subscription: str, txn: TxnId) -> InPendingAcks:
    """Return a subscription's state of one transaction; raises TopicNotFound, SubscriptionNotFound."""
    _check_subscription(reader.txn, name, subscription)
    return _acknowledged(reader, name, subscription, txn)


def _acknowledged(reader: EntryReader, name: TopicName, subscription: str, txn: TxnId) -> InPendingAcks:
    position = (transactions.read_pending_acks(reader, name, subscription) or {}).get(txn)
    return InPendingAcks(None if position is None else str(position))


def transaction_metadata(reader: EntryReader, txn: TxnId) -> TransactionMetadata:
    """Return what ``transaction-metadata`` shows of an open transaction; raises NotFound."""
    return _metadata_of(reader, transactions.read_transaction(reader, txn))


def _metadata_of(reader: EntryReader, found: transactions.OpenTransaction) -> TransactionMetadata:
    acked: dict[str, dict[str, InPendingAcks]] = {}
    for topic, subscription in dict.fromkeys(found.subscriptions):
        acked.setdefault(topic, {})[subscription] = _acknowledged(reader, parse_topic(topic), subscription, found.txn)
    produced: dict[str, InBuffer] = {}
    for topic in dict.fromkeys(found.partitions):
        name = parse_topic(topic)
        is_there = find_node(reader.txn, name.path) is not None
        produced[topic] = in_buffer(reader, name, found.txn) if is_there else InBuffer(None, False)
    return TransactionMetadata(str(found.txn), found.status, found.start_ms, found.timeout_ms, produced, acked)


def slow_transactions(reader: EntryReader, number: int | None, timeout_ms: int) -> dict[str, TransactionMetadata]:
    """Return the open transactions of a coordinator (None: of each) whose timeout is longer than ``timeout_ms``, by their ids."""
    coordinators = (transactions.read_coordinator(reader, one) for one in _numbers(reader, number))
    every = (one for coordinator in coordinators for one in coordinator.open.values())
    slow = [one for one in every if one.status == OPEN and one.timeout_ms > timeout_ms]
    return {str(one.txn): _metadata_of(reader, one) for one in slow}
