"""``transactions``: the records of coordinators, topics and subscriptions about transactions, with upstream's command names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_admin.context import App, Printed, Shown
from pulsar_admin.jsonify import to_json
from pulsar_admin.store import errors
from pulsar_admin.store.codec.java import in_hash_map_order, java_record
from pulsar_admin.store.names import parse_topic
from pulsar_admin.upstream import mirrored

if TYPE_CHECKING:
    from pulsar_admin.api.pending import CursorTransactions, TopicTransactions, Transactions
    from pulsar_admin.store.reports.transactions import LogStats

_ID = {"coordinator_id": "The coordinator's number; default: all."}
_TXN = {"most_sig_bits": "The coordinator's number.", "least_sig_bits": "The transaction's number there."}
_TOPIC = {"topic": "The topic."}
_SUB = {"topic": "The topic.", "sub_name": "The subscription.", "subscription_name": "The subscription."}
_METADATA = {"metadata": "Also each ledger's metadata in BookKeeper."}
_LOW = {"low_water_mark": "Accepted and ignored: a broker keeps these only in its memory."}


def _transactions(app: App) -> Transactions:
    from pulsar_admin.api.pending import Transactions

    return Transactions(app.session)


def _of_topic(app: App, topic: str) -> TopicTransactions:
    return app.topic(parse_topic(topic)).transactions()


def _of_cursor(app: App, topic: str, subscription: str) -> CursorTransactions:
    from pulsar_admin.api.pending import CursorTransactions

    return CursorTransactions(app.session, parse_topic(topic), subscription)


@mirrored(
    "transactions coordinators-list",
    "",
    output="`0    pulsar://…`, one per line; the URL is that of the cluster: which broker has a coordinator, a store does not know.",
    errors=[errors.NotFound],
)
def coordinators_list(app: App) -> Shown:
    """List the transaction coordinators."""
    return Printed(_transactions(app).coordinators(), as_map=str)


@mirrored(
    "transactions coordinator-stats",
    "-c 0",
    output="State, newest number, low water mark and how many are open; without -c a line per coordinator.",
    errors=[errors.NotFound, errors.EntryCorrupt],
    helps=_ID,
)
def coordinator_stats(app: App, coordinator_id: int | None) -> Shown:
    """Show what a transaction coordinator's log says."""
    found = _transactions(app).stats(coordinator_id)
    if coordinator_id is not None:
        return Printed(found[str(coordinator_id)])
    return Printed(found, as_map=lambda stats: java_record("TransactionCoordinatorStats", to_json(stats)))


@mirrored(
    "transactions coordinator-internal-stats",
    "-c 0",
    output="The ledgers and cursors of the coordinator's log.",
    errors=[errors.NotFound],
    helps={"coordinator_id": "The coordinator's number.", **_METADATA},
)
def coordinator_internal_stats(app: App, coordinator_id: int, metadata: bool) -> Shown:
    """Show the managed ledger of a transaction coordinator's log."""
    stats = _transactions(app).internal_stats(coordinator_id, metadata=metadata)
    return Printed({"transactionLogStats": _log(stats)})


@mirrored(
    "transactions transaction-metadata",
    elsewhere=["-m 0 -l 17"],
    output="When it was opened, its timeout, the topics it wrote to and the subscriptions it acknowledged on.",
    errors=[errors.NotFound, errors.EntryCorrupt],
    helps=_TXN,
)
def transaction_metadata(app: App, most_sig_bits: int, least_sig_bits: int) -> Shown:
    """Show an open transaction."""
    return Printed(_transactions(app).transaction(most_sig_bits, least_sig_bits))


@mirrored(
    "transactions slow-transactions",
    elsewhere=["-t 1s"],
    output="One line per open transaction whose timeout is longer than --time.",
    errors=[errors.NotFound, errors.EntryCorrupt],
    helps={**_ID, "time": "Transactions with a longer timeout."},
)
def slow_transactions(app: App, coordinator_id: int | None, time: int) -> Shown:
    """List the open transactions whose timeout is longer than a given time.

    Like a broker, compares their timeout, not how long they have been open.
    """
    transactions = _transactions(app).open(coordinator=coordinator_id, timeout_above=None if time < 0 else time)
    return Printed(in_hash_map_order(transactions), as_map=lambda one: _java_metadata(to_json(one)))


@mirrored(
    "transactions transaction-buffer-stats",
    "-t public/default/plain",
    output="How far committed messages reach, how many transactions are open and were aborted; every entry is read.",
    errors=[errors.TopicNotFound, errors.NotSeen],
    helps={**_TOPIC, **_LOW, "segment_stats": "Accepted and ignored: only snapshots of one message are shown."},
)
def transaction_buffer_stats(app: App, topic: str, low_water_mark: bool, segment_stats: bool) -> Shown:
    """Show what the entries of a topic record about transactions."""
    return Printed(_of_topic(app, topic).stats())


@mirrored(
    "transactions transaction-in-buffer-stats",
    "-t public/default/plain -m 0 -l 1",
    output="`startPosition` if it is open, and whether it was aborted.",
    errors=[errors.TopicNotFound, errors.NotSeen],
    helps={**_TOPIC, **_TXN},
)
def transaction_in_buffer_stats(app: App, topic: str, most_sig_bits: int, least_sig_bits: int) -> Shown:
    """Show what the entries of a topic record about one transaction."""
    return Printed(_of_topic(app, topic).transaction(most_sig_bits, least_sig_bits))


@mirrored(
    "transactions pending-ack-stats",
    "-t public/default/plain -s half",
    output="How many transactions hold acknowledgements, and the log's `state` (None without any).",
    errors=[errors.TopicNotFound, errors.SubscriptionNotFound, errors.EntryCorrupt],
    helps={**_SUB, **_LOW},
)
def pending_ack_stats(app: App, topic: str, sub_name: str, low_water_mark: bool) -> Shown:
    """Show which transactions hold acknowledgements on a subscription."""
    return Printed(_of_cursor(app, topic, sub_name).stats())


@mirrored(
    "transactions transaction-in-pending-ack-stats",
    elsewhere=["-t public/default/plain -s half -m 0 -l 1"],
    output="`cumulativeAckPosition` if it acknowledged cumulatively.",
    errors=[errors.TopicNotFound, errors.SubscriptionNotFound, errors.EntryCorrupt],
    helps={**_SUB, **_TXN},
)
def transaction_in_pending_ack_stats(
    app: App, topic: str, sub_name: str, most_sig_bits: int, least_sig_bits: int
) -> Shown:
    """Show what a subscription records about one transaction."""
    return Printed(_of_cursor(app, topic, sub_name).transaction(most_sig_bits, least_sig_bits))


@mirrored(
    "transactions pending-ack-internal-stats",
    elsewhere=["-t acme/orders/paid -s billing"],
    output="The ledgers and cursors of the log of a subscription's pending acknowledgements.",
    errors=[errors.TopicNotFound, errors.SubscriptionNotFound],
    helps={**_SUB, **_METADATA},
)
def pending_ack_internal_stats(app: App, topic: str, subscription_name: str, metadata: bool) -> Shown:
    """Show the managed ledger of the pending acknowledgements of a subscription."""
    stats = _of_cursor(app, topic, subscription_name).internal_stats(metadata=metadata)
    return Printed({"pendingAckLogStats": _log(stats)})


@mirrored(
    "transactions buffer-snapshot-internal-stats",
    "-t public/default/plain",
    output="The ledgers and cursors of the namespace's topic of snapshots.",
    errors=[errors.TopicNotFound],
    helps={**_TOPIC, **_METADATA},
)
def buffer_snapshot_internal_stats(app: App, topic: str, metadata: bool) -> Shown:
    """Show the managed ledger of the snapshots of a topic's transactions."""
    stats = _log(_of_topic(app, topic).snapshot_stats(metadata=metadata))
    return Printed({"snapshotType": "Single", "singleSnapshotSystemTopicInternalStats": stats})


@mirrored(
    "transactions scale-transactionCoordinators",
    "-r 16",
    changes=True,
    errors=[errors.InvalidValue, errors.Refused, errors.StalePlan],
    helps={"replicas": "The new number of coordinators, larger than the present one."},
)
def scale(app: App, replicas: int) -> None:
    """Increase the number of transaction coordinators."""
    app.change(_transactions(app).scale(replicas))


def _log(found: LogStats) -> dict[str, Any]:  # Any: JSON
    """Return a log's state with the keys of upstream's ``TransactionLogStats``."""
    shown: dict[str, Any] = to_json(found)  # Any: JSON
    for key in ("schemaLedgers", "compactedLedger"):
        shown["managedLedgerInternalStats"].pop(key, None)
    return shown


def _java_metadata(value: dict[str, Any]) -> str:  # Any: JSON
    produced = {
        topic: java_record(
            "TransactionInBufferStats", {"startPosition": one.get("startPosition"), "aborted": one["aborted"]}
        )
        for topic, one in value["producedPartitions"].items()
    }
    acked = {
        topic: {
            sub: java_record(
                "TransactionInPendingAckStats", {"cumulativeAckPosition": one.get("cumulativeAckPosition")}
            )
            for sub, one in subs.items()
        }
        for topic, subs in value["ackedPartitions"].items()
    }
    fields = {**value, "producedPartitions": produced, "ackedPartitions": acked, "owner": None}
    return java_record("TransactionMetadata", fields)
