"""Transactions from Python are what a broker 4.0.8 said of the same logs, and what ``transactions`` prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pulsar_admin as pa
from pulsar_admin.jsonify import to_json
from tests.commands.test_transactions import METADATA
from tests.commands.test_transactions import store as path
from tests.conftest import Cli
from tests.worlds import oracle

__all__ = ["path"]
TXN = "tdo/one/txn"


def shown(cli: Cli, store: Path, *words: object) -> Any:  # Any: JSON
    return cli("--store", store, "transactions", *words, "-o", "json").json


def test_coordinators(cli: Cli, path: Path) -> None:
    with pa.open_store(path) as store:
        found = store.transactions()
        stats = found.stats()["0"]
        assert (stats.least_sig_bits, stats.low_water_mark, stats.ongoing_txn_size) == (3, 1, 2)
        assert to_json(found.transaction(0, 2)) == json.loads(METADATA)
        assert sorted(found.open()) == sorted(found.open(timeout_above="5h")) == ["(0,2)", "(0,3)"]
        assert found.open(timeout_above="6h") == {}
        with pytest.raises(pa.NotFound, match=r"`\(0,1\)`not found"):
            found.transaction(0, 1)
        with pytest.raises(pa.NotFound, match="id : 99"):
            found.stats(99)
        answers = found.coordinators(), found.stats(), found.internal_stats(0, metadata=True)
        slow = found.open(coordinator=0, timeout_above="5h")
    assert answers[0] == shown(cli, path, "coordinators-list")
    assert to_json(answers[1]) == shown(cli, path, "coordinator-stats")
    assert to_json(slow) == shown(cli, path, "slow-transactions", "-t", "5h")
    log = shown(cli, path, "coordinator-internal-stats", "-c", 0, "-m")["transactionLogStats"]
    assert answers[2].managed_ledger_name == log["managedLedgerName"]
    assert to_json(answers[2].managed_ledger_internal_stats.ledgers) == log["managedLedgerInternalStats"]["ledgers"]


def test_a_topic_and_a_subscription(cli: Cli, path: Path) -> None:
    with pa.open_store(path) as store:
        for topic in ("public/default/txn-in", "public/default/txn-out"):
            said = oracle("small")["topics"][topic]["stats"]
            stats = store.topic(topic).transactions().stats()
            assert (stats.ongoing_txn_size, stats.total_aborted_transactions) == (
                said["ongoingTxnCount"],
                said["abortedTxnCount"],
            )
        of_topic = store.topic(TXN).transactions()
        acks = store.topic(TXN).cursor("sub").transactions()
        assert (acks.stats().state, acks.stats().ongoing_txn_size) == ("Ready", 1)
        assert acks.transaction(0, 2).cumulative_ack_position is None
        assert acks.internal_stats().managed_ledger_name == "tdo/one/persistent/txn-sub__transaction_pending_ack"
        with pytest.raises(pa.SubscriptionNotFound, match="nosub"):
            store.topic(TXN).cursor("nosub").transactions().stats()
        answers = of_topic.stats(), of_topic.transaction(0, 2), store.topic("plain").transactions().snapshot_stats()
    assert to_json(answers[0]) == shown(cli, path, "transaction-buffer-stats", "-t", TXN)
    assert to_json(answers[1]) == shown(cli, path, "transaction-in-buffer-stats", "-t", TXN, "-m", 0, "-l", 2)
    snapshots = shown(cli, path, "buffer-snapshot-internal-stats", "-t", "plain")
    assert answers[2].managed_ledger_name == snapshots["singleSnapshotSystemTopicInternalStats"]["managedLedgerName"]


def test_scale(cli: Cli, path: Path) -> None:
    with pa.open_store(path, writable=True) as store:
        before = store.transactions().coordinators()
        change = store.apply(store.transactions().scale(32))
        assert (len(before), len(store.transactions().coordinators())) == (1, 32)
        assert change.number is not None
        with pytest.raises(pa.Refused):
            store.transactions().scale(32)
        store.undo(change.number)
        assert store.transactions().coordinators() == before
