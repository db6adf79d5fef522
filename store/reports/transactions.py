"""The answers of ``transactions``, with upstream's keys (4.0.8). When a broker recovered its state is not known here: 0."""

from __future__ import annotations

from typing import Any

from store.codec.policies import decode_json_object
from store.codec.transactions import OPEN, TxnId
from store.db.environment import Txn
from store.db.tree import find_node
from store.errors import SubscriptionNotFound
from store.model.partitions import read_partitioned
from store.model.reader import EntryReader
from store.model.topics import read_topic
from store.model.transactions import (
    ASSIGN,
    SYSTEM,
    Buffer,
    Coordinator,
    OpenTransaction,
    read_buffer,
    read_coordinator,
    read_pending_acks,
)
from store.names import TopicName, parse_topic, shell_word

Json = dict[str, Any]  # Any: JSON
_CLUSTERS = "/admin/clusters/"


def coordinators(txn: Txn) -> dict[str, str]:
    """Return coordinator id → the URL of the broker's cluster: which broker has it, nobody knows when none runs."""
    node = find_node(txn, SYSTEM.policies_path)
    clusters = [] if node is None else decode_json_object(node.value, node.path).get("replication_clusters") or []
    nodes = (find_node(txn, f"{_CLUSTERS}{cluster}") for cluster in clusters)
    urls = (decode_json_object(node.value, node.path).get("brokerServiceUrl") for node in nodes if node is not None)
    url = next((str(url) for url in urls if url), "")
    return {str(number): url for number in range(read_partitioned(txn, ASSIGN).partitions)}


def coordinator_stats(found: Coordinator) -> Json:
    """Return what ``coordinator-stats`` shows."""
    return {
        "state": "Ready",
        "leastSigBits": found.last_id,
        "lowWaterMark": found.low_water_mark,
        "ongoingTxnSize": len(found.open),
        "recoverStartTime": 0,
        "recoverEndTime": 0,
    }


def in_buffer(buffer: Buffer, txn: TxnId) -> Json:
    """Return what a topic knows of one transaction."""
    first = buffer.first.get(txn)
    return {**({} if first is None else {"startPosition": str(first)}), "aborted": txn in buffer.aborted}


def buffer_stats(reader: EntryReader, name: TopicName) -> Json:
    """Return what ``transaction-buffer-stats`` shows: how far a reader of committed messages gets."""
    topic, buffer = read_topic(reader.txn, name), read_buffer(reader, name)
    first = min(buffer.first.values(), default=None)
    return {
        "state": "Ready" if buffer.any else "NoSnapshot",
        "maxReadPosition": str(topic.last_confirmed if first is None else topic.previous(first)),
        "lastSnapshotTimestamps": 0,
        "ongoingTxnSize": len(buffer.first),
        "recoverStartTime": 0,
        "recoverEndTime": 0,
        "totalAbortedTransactions": len(buffer.aborted),
        "snapshotType": "Single",
    }


def check_subscription(txn: Txn, name: TopicName, subscription: str) -> None:
    """Raise TopicNotFound or SubscriptionNotFound unless NAME has SUBSCRIPTION."""
    read_topic(txn, name)
    if find_node(txn, name.cursor_path(subscription)) is None:
        raise SubscriptionNotFound(
            f"{name} not found subscription : {subscription}",
            hint=f"list them with: pulsar-admin topics subscriptions {shell_word(name)}",
            topic=str(name),
            subscription=subscription,
        )


def pending_ack_stats(reader: EntryReader, name: TopicName, subscription: str) -> Json:
    """Return what ``pending-ack-stats`` shows."""
    found = read_pending_acks(reader, name, subscription)
    state = {"state": "None" if found is None else "Ready", "ongoingTxnSize": len(found or ())}
    return {**state, "recoverStartTime": 0, "recoverEndTime": 0}


def in_pending_ack(reader: EntryReader, name: TopicName, subscription: str, txn: TxnId) -> Json:
    """Return what a subscription knows of one transaction: where it acknowledged all before, if it did."""
    position = (read_pending_acks(reader, name, subscription) or {}).get(txn)
    return {} if position is None else {"cumulativeAckPosition": str(position)}


def transaction_metadata(reader: EntryReader, found: OpenTransaction) -> Json:
    """Return what ``transaction-metadata`` shows of an open transaction."""
    acked: dict[str, Json] = {}
    for topic, subscription in dict.fromkeys(found.subscriptions):
        acked.setdefault(topic, {})[subscription] = in_pending_ack(reader, parse_topic(topic), subscription, found.txn)
    return {
        "txnId": str(found.txn),
        "status": found.status,
        "openTimestamp": found.start_ms,
        "timeoutAt": found.timeout_ms,
        "producedPartitions": {topic: _produced(reader, topic, found.txn) for topic in dict.fromkeys(found.partitions)},
        "ackedPartitions": acked,
    }


def _produced(reader: EntryReader, topic: str, txn: TxnId) -> Json:
    name = parse_topic(topic)
    there = find_node(reader.txn, name.path) is not None
    return in_buffer(read_buffer(reader, name) if there else Buffer(), txn)


def slow_transactions(reader: EntryReader, coordinator_ids: list[int], timeout_ms: int) -> dict[str, Json]:
    """Return the open transactions whose timeout is longer than TIMEOUT_MS, by their ids."""
    found = (one for number in coordinator_ids for one in read_coordinator(reader, number).open.values())
    slow = [one for one in found if one.status == OPEN and one.timeout_ms > timeout_ms]
    return {str(one.txn): transaction_metadata(reader, one) for one in slow}
