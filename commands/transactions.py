"""``transactions``: what coordinators, topics and subscriptions know of transactions, spelled as upstream spells it."""

from __future__ import annotations

from typing import Any

from pulsar_admin.context import App
from pulsar_admin.jsonify import to_json
from pulsar_admin.upstream import mirrored
from store.changes.topics import plan_coordinators
from store.codec.javamap import in_hash_map_order
from store.codec.transactions import TxnId
from store.errors import EntryCorrupt, InvalidValue, NotFound, Refused, StalePlan, SubscriptionNotFound, TopicNotFound
from store.model.reader import EntryReader
from store.model.topics import read_topic
from store.model.transactions import (
    coordinator_ids,
    log_topic,
    read_buffer,
    read_coordinator,
    read_transaction,
)
from store.names import TopicName, parse_topic
from store.reports import transactions as reports
from store.reports.internal_stats import read_internal_stats

_ID = {"coordinator_id": "The coordinator's number; default: all."}
_TXN = {"most_sig_bits": "The coordinator's number.", "least_sig_bits": "The transaction's number there."}
_TOPIC = {"topic": "The topic."}
_SUB = {"topic": "The topic.", "sub_name": "The subscription.", "subscription_name": "The subscription."}
_METADATA = {"metadata": "Also each ledger's metadata in BookKeeper."}
_LOW = {"low_water_mark": "Accepted and ignored: a broker keeps these in its memory alone."}
_SNAPSHOT = "__transaction_buffer_snapshot"


@mirrored(
    "transactions coordinators-list",
    examples=["pulsar-admin transactions coordinators-list"],
    output="`0    pulsar://…`, one a line; the URL is that of the cluster: which broker has a coordinator, a store does not know.",
    errors=[NotFound],
)
def coordinators_list(app: App) -> None:
    """List the transaction coordinators."""
    with app.session.read() as txn:
        app.answer_map(reports.coordinators(txn))


@mirrored(
    "transactions coordinator-stats",
    examples=["pulsar-admin transactions coordinator-stats -c 0"],
    output="State, newest number, low water mark and how many are open; without -c a line a coordinator.",
    errors=[NotFound, EntryCorrupt],
    helps=_ID,
)
def coordinator_stats(app: App, coordinator_id: int | None) -> None:
    """Show what a transaction coordinator's log says."""
    with app.session.reader() as reader:
        numbers = coordinator_ids(reader.txn) if coordinator_id is None else [coordinator_id]
        found = {str(number): reports.coordinator_stats(read_coordinator(reader, number)) for number in numbers}
    if coordinator_id is not None:
        app.answer(found[str(coordinator_id)])
    else:
        app.answer_map(
            found if app.settings.output else {k: _java("TransactionCoordinatorStats", v) for k, v in found.items()}
        )


@mirrored(
    "transactions coordinator-internal-stats",
    examples=["pulsar-admin transactions coordinator-internal-stats -c 0"],
    output="The ledgers and cursors of the coordinator's log.",
    errors=[NotFound],
    helps={"coordinator_id": "The coordinator's number.", **_METADATA},
)
def coordinator_internal_stats(app: App, coordinator_id: int, metadata: bool) -> None:
    """Show the managed ledger of a transaction coordinator's log."""
    with app.session.reader() as reader:
        read_coordinator(reader, coordinator_id)
        app.answer({"transactionLogStats": _internal(reader, log_topic(coordinator_id), metadata)})


@mirrored(
    "transactions transaction-metadata",
    examples=(),
    elsewhere=["pulsar-admin transactions transaction-metadata -m 0 -l 17"],
    output="When it was opened, its timeout, the topics it wrote to and the subscriptions it acknowledged on.",
    errors=[NotFound, EntryCorrupt],
    helps=_TXN,
)
def transaction_metadata(app: App, most_sig_bits: int, least_sig_bits: int) -> None:
    """Show an open transaction."""
    with app.session.reader() as reader:
        found = read_transaction(reader, TxnId(most_sig_bits, least_sig_bits))
        app.answer(reports.transaction_metadata(reader, found))


@mirrored(
    "transactions slow-transactions",
    examples=(),
    elsewhere=["pulsar-admin transactions slow-transactions -t 1s"],
    output="An open transaction a line whose timeout is longer than --time.",
    errors=[NotFound, EntryCorrupt],
    helps={**_ID, "time": "Transactions with a longer timeout."},
)
def slow_transactions(app: App, coordinator_id: int | None, time: int) -> None:
    """List the open transactions whose timeout is longer than a given time.

    Like a broker, compares their timeout, not how long they have been open.
    """
    with app.session.reader() as reader:
        numbers = coordinator_ids(reader.txn) if coordinator_id is None else [coordinator_id]
        found = in_hash_map_order(reports.slow_transactions(reader, numbers, time))
    app.answer_map(found if app.settings.output else {key: _java_metadata(value) for key, value in found.items()})


@mirrored(
    "transactions transaction-buffer-stats",
    examples=["pulsar-admin transactions transaction-buffer-stats -t public/default/plain"],
    output="How far committed messages reach, how many transactions are open and were aborted; every entry is read.",
    errors=[TopicNotFound],
    helps={**_TOPIC, **_LOW, "segment_stats": "Accepted and ignored: only snapshots of one message are shown."},
)
def buffer_stats(app: App, topic: str, low_water_mark: bool, segment_stats: bool) -> None:
    """Show what the entries of a topic record about transactions."""
    with app.session.reader() as reader:
        app.answer(reports.buffer_stats(reader, parse_topic(topic)))


@mirrored(
    "transactions transaction-in-buffer-stats",
    examples=["pulsar-admin transactions transaction-in-buffer-stats -t public/default/plain -m 0 -l 1"],
    output="`startPosition` of an open one, and whether it was aborted.",
    errors=[TopicNotFound],
    helps={**_TOPIC, **_TXN},
)
def in_buffer_stats(app: App, topic: str, most_sig_bits: int, least_sig_bits: int) -> None:
    """Show what the entries of a topic record about one transaction."""
    with app.session.reader() as reader:
        buffer = read_buffer(reader, parse_topic(topic))
    app.answer(reports.in_buffer(buffer, TxnId(most_sig_bits, least_sig_bits)))


@mirrored(
    "transactions pending-ack-stats",
    examples=["pulsar-admin transactions pending-ack-stats -t public/default/plain -s half"],
    output="`state` None without such acknowledgements, and how many transactions hold some.",
    errors=[TopicNotFound, SubscriptionNotFound, EntryCorrupt],
    helps={**_SUB, **_LOW},
)
def pending_ack_stats(app: App, topic: str, sub_name: str, low_water_mark: bool) -> None:
    """Show which transactions hold acknowledgements on a subscription."""
    name = parse_topic(topic)
    with app.session.reader() as reader:
        reports.check_subscription(reader.txn, name, sub_name)
        app.answer(reports.pending_ack_stats(reader, name, sub_name))


@mirrored(
    "transactions transaction-in-pending-ack-stats",
    examples=(),
    elsewhere=["pulsar-admin transactions transaction-in-pending-ack-stats -t public/default/plain -s half -m 0 -l 1"],
    output="`cumulativeAckPosition` where it acknowledged cumulatively.",
    errors=[TopicNotFound, SubscriptionNotFound, EntryCorrupt],
    helps={**_SUB, **_TXN},
)
def in_pending_ack_stats(app: App, topic: str, sub_name: str, most_sig_bits: int, least_sig_bits: int) -> None:
    """Show what a subscription records about one transaction."""
    name, txn_id = parse_topic(topic), TxnId(most_sig_bits, least_sig_bits)
    with app.session.reader() as reader:
        reports.check_subscription(reader.txn, name, sub_name)
        app.answer(reports.in_pending_ack(reader, name, sub_name, txn_id))


@mirrored(
    "transactions pending-ack-internal-stats",
    examples=(),
    elsewhere=["pulsar-admin transactions pending-ack-internal-stats -t acme/orders/paid -s billing"],
    output="The ledgers and cursors of the log of a subscription's pending acknowledgements.",
    errors=[TopicNotFound, SubscriptionNotFound],
    helps={**_SUB, **_METADATA},
)
def pending_ack_internal_stats(app: App, topic: str, subscription_name: str, metadata: bool) -> None:
    """Show the managed ledger of the pending acknowledgements of a subscription."""
    name = parse_topic(topic)
    with app.session.reader() as reader:
        reports.check_subscription(reader.txn, name, subscription_name)
        log = name.pending_ack(subscription_name)
        app.answer({"pendingAckLogStats": _internal(reader, log, metadata)})


@mirrored(
    "transactions buffer-snapshot-internal-stats",
    examples=["pulsar-admin transactions buffer-snapshot-internal-stats -t public/default/plain"],
    output="The ledgers and cursors of the namespace's topic of snapshots.",
    errors=[TopicNotFound],
    helps={**_TOPIC, **_METADATA},
)
def snapshot_internal_stats(app: App, topic: str, metadata: bool) -> None:
    """Show the managed ledger of the snapshots of a topic's transactions."""
    name = parse_topic(topic)
    with app.session.reader() as reader:
        read_topic(reader.txn, name)
        stats = _internal(reader, TopicName(name.namespace, _SNAPSHOT), metadata)
    stats["managedLedgerName"] = _SNAPSHOT
    app.answer({"snapshotType": "Single", "singleSnapshotSystemTopicInternalStats": stats})


@mirrored(
    "transactions scale-transactionCoordinators",
    changes=True,
    writes_first=True,
    examples=["pulsar-admin transactions scale-transactionCoordinators -r 16"],
    output="Nothing, like pulsar-admin; the change and its undo command are on stderr.",
    errors=[InvalidValue, Refused, StalePlan],
    helps={"replicas": "How many coordinators there are to be; more than now."},
)
def scale(app: App, replicas: int) -> None:
    """Increase the number of transaction coordinators."""
    app.change(app.session.plan(plan_coordinators, replicas))


def _internal(reader: EntryReader, name: TopicName, metadata: bool) -> dict[str, Any]:  # Any: JSON
    """Return upstream's ``TransactionLogStats`` of the managed ledger NAME."""
    found = to_json(read_internal_stats(reader, name, metadata=metadata, publish_times=False, problems=[]))
    kept = {key: value for key, value in found.items() if key not in ("schemaLedgers", "compactedLedger")}
    return {"managedLedgerName": name.managed_ledger_name, "managedLedgerInternalStats": kept}


def _java(name: str, fields: dict[str, Any]) -> str:  # Any: JSON
    """Return what ``toString`` of a Java record NAME gives."""
    return f"{name}({', '.join(f'{key}={value}' for key, value in fields.items())})"


def _java_map(found: dict[str, str]) -> str:
    return "{" + ", ".join(f"{key}={value}" for key, value in found.items()) + "}"


def _java_metadata(value: dict[str, Any]) -> str:  # Any: JSON
    produced = {
        topic: _java(
            "TransactionInBufferStats",
            {"startPosition": one.get("startPosition", "null"), "aborted": str(one["aborted"]).lower()},
        )
        for topic, one in value["producedPartitions"].items()
    }
    acked = {
        topic: _java_map(
            {
                sub: _java(
                    "TransactionInPendingAckStats", {"cumulativeAckPosition": one.get("cumulativeAckPosition", "null")}
                )
                for sub, one in subs.items()
            }
        )
        for topic, subs in value["ackedPartitions"].items()
    }
    fields = {**value, "producedPartitions": _java_map(produced), "ackedPartitions": _java_map(acked), "owner": "null"}
    return _java("TransactionMetadata", fields)
