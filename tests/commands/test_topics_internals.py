"""``stats-internal`` and ``info-internal`` on the command line: shape, cursors after a crash, what is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import Node, put_nodes, read_node, tree_key
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.references import index_owners
from pulsar_admin.store.names import Position, parse_topic
from tests.conftest import Cli
from tests.stores import imported
from tests.worlds import CLUSTER, WORLD_NAMES, oracle

OURS = {"beginPublishTimestamp", "endPublishTimestamp", "publishTimestampsFrom"}


def ask(cli: Cli, store: Path, *arguments: object, exit_code: int = 0) -> Any:
    result = cli("--store", store, "topics", *arguments, "-o", "json")
    assert result.exit_code == exit_code, result.stderr
    return result.json


@pytest.mark.parametrize(
    ("command", "key"), [("stats-internal", "internal_stats"), ("info-internal", "internal_info"), ("stats", "stats")]
)
def test_keys_and_their_order(command: str, key: str, cli: Cli, demo_store: Path) -> None:
    for topic in ("public/default/plain", "acme/orders/compacted", "public/default/avro"):
        expected = oracle("small")["topics"][topic][key]
        found = ask(cli, demo_store, command, topic)
        assert_same_keys(found, expected)


def assert_same_keys(found: Any, expected: Any) -> None:
    if isinstance(found, dict) and isinstance(expected, dict):
        keys = [key for key in found if key not in OURS]
        optional = {
            "ownerBroker",
            "metadata",
            "entries",
            "size",
            "individualDeletedMessages",
            "properties",
            "keySharedMode",
        }
        assert [key for key in keys if key not in optional] == [key for key in expected if key not in optional] or set(
            keys
        ) == set(expected)
        for key in set(found) & set(expected):
            assert_same_keys(found[key], expected[key])
    if isinstance(found, list) and isinstance(expected, list):
        for ours, theirs in zip(found, expected, strict=False):
            assert_same_keys(ours, theirs)


def test_the_stored_metadata_is_printed_as_gson_does(cli: Cli, store: Path) -> None:
    """As pulsar-admin 4.0.8 prints it: two blanks, no blank in front of a colon, ``=`` and ``'`` escaped."""
    topic = parse_topic("public/default/made")
    properties = {"a": "b,c=d", "b": "<it's>"}
    change(store, topic.path, encode_managed_ledger(ManagedLedger((LedgerInfo(97),), properties=properties)))
    text = cli("--store", store, "topics", "info-internal", topic).stdout
    assert text.split('"ledgers": ')[1] == (
        '[\n    {\n      "ledgerId": 97,\n      "timestamp": 0,\n      "isOffloaded": false\n    }\n  ],\n'
        '  "cursors": {},\n  "properties": {\n    "a": "b,c\\u003dd",\n    "b": "\\u003cit\\u0027s\\u003e"\n  }\n}\n'
    )


def test_metadata_only_when_asked(cli: Cli, demo_store: Path) -> None:
    plain = ask(cli, demo_store, "stats-internal", "acme/orders/compacted")
    full = ask(cli, demo_store, "stats-internal", "acme/orders/compacted", "-m")
    assert "metadata" not in plain["ledgers"][0]
    assert full["ledgers"][0]["metadata"].startswith("LedgerMetadata{formatVersion=3, ensembleSize=1, ")
    assert "password=OMITTED" in full["compactedLedger"]["metadata"]


def test_several_topics_are_rows(cli: Cli, demo_store: Path) -> None:
    rows = ask(cli, demo_store, "stats-internal", "acme/orders/parts")
    assert [row["topic"] for row in rows] == [f"persistent://acme/orders/parts-partition-{n}" for n in range(3)]
    everything = ask(cli, demo_store, "stats-internal", "--all-topics")
    assert len(everything) == len(oracle("small")["topics"]) + 1  # and the one with an odd name


def test_partitions(cli: Cli, demo_store: Path) -> None:
    names = [f"persistent://acme/orders/parts-partition-{n}" for n in range(3)]
    internal = ask(cli, demo_store, "partitioned-stats-internal", "acme/orders/parts")
    assert (internal["metadata"], list(internal["partitions"])) == ({"partitions": 3, "deleted": False}, names)
    info = ask(cli, demo_store, "info-internal", "acme/orders/parts")
    assert (info["version"], list(info["partitions"])) == (0, names)
    for name in names:
        assert internal["partitions"][name] == ask(cli, demo_store, "stats-internal", name)
        assert info["partitions"][name] == ask(cli, demo_store, "info-internal", name)
    result = cli("--store", demo_store, "topics", "partitioned-stats-internal", "acme/iot/skewed")
    assert result.exit_code == 5


@pytest.mark.parametrize("world", [*WORLD_NAMES, CLUSTER])
def test_cursors_after_a_crash(world: str, cli: Cli) -> None:
    """The truth is in cursor ledgers: nothing counts as acknowledged that no consumer acknowledged."""
    store = imported(world, "crashed")
    deleted = 0
    for question, acks in oracle(world)["crash"]["acks_sent"].items():
        topic, subscription = question.split(" ")
        cursor = ask(cli, store, "stats-internal", topic)["cursors"][subscription]
        if (world, subscription) == (CLUSTER, "crash-batch"):  # killed before any of its acknowledgements was durable
            assert (cursor["state"], cursor["individuallyDeletedMessages"]) == ("NoLedger", "[]")
            continue
        assert (cursor["state"], cursor["cursorLedger"] >= 0) == ("Open", True)
        assert cursor["cursorLedgerLastEntry"] >= 0
        assert cursor["lastLedgerSwitchTimestamp"].startswith("2026-11-21T")
        sent = {(ledger_id, entry_id) for ledger_id, entry_id, _ in acks}
        ranges = cursor["individuallyDeletedMessages"].strip("[]").removesuffix("]").removeprefix("(").split("],(")
        for lower, upper in (text.split("..") for text in ranges if text):
            (ledger_id, first), (_, last) = (map(int, part.split(":")) for part in (lower, upper))
            for entry_id in range(first + 1, last + 1):
                assert (ledger_id, entry_id) in sent
                deleted += 1
        info = ask(cli, store, "info-internal", topic)["cursors"][subscription]
        assert info["cursorsLedgerId"] == cursor["cursorLedger"]
    assert deleted > 50


def change(store: Path, path: str, value: bytes | None) -> None:
    """Put VALUE at a metadata PATH, or remove the node."""

    def work(txn: Txn) -> None:
        if value is None:
            txn.delete("tree", tree_key(path))
        else:
            put_nodes(txn, [Node(path, NodeStat(7, 1, 1_700_000_000_000, 1_700_000_000_120, False), value)])
        index_owners(opened, txn)

    with open_store(store, writable=True) as opened:
        opened.write(work)


def test_a_lost_cursor_ledger_is_said(cli: Cli, store: Path) -> None:
    topic = parse_topic("public/default/plain")
    info = CursorInfo(999_999, Position(9, 1))
    change(store, topic.cursor_path("half"), encode_cursor_info(info))
    result = cli("--store", store, "topics", "stats-internal", topic)
    assert result.exit_code == 1
    assert "half: its newest state is lost (cursor ledger 999999: no such ledger)" in result.stderr
    cursor = ask(cli, store, "stats-internal", topic, exit_code=1)["cursors"]["half"]
    assert (cursor["markDeletePosition"], cursor["state"], cursor["cursorLedger"]) == ("9:1", "NoLedger", -1)


def test_a_bad_cursor_is_left_out_and_counted(cli: Cli, store: Path) -> None:
    topic = parse_topic("public/default/plain")
    change(store, topic.cursor_path("half"), b"\x08\xff")
    for command in ("stats-internal", "info-internal"):
        found = ask(cli, store, command, topic, exit_code=1)
        assert sorted(found["cursors"]) == ["expire-me", "holes", "never", "reset-me"]
    assert sorted(ask(cli, store, "stats", topic, exit_code=1)["subscriptions"]) == sorted(found["cursors"])


@pytest.mark.usefixtures("damages_stores")
def test_a_lost_compacted_ledger(cli: Cli, store: Path) -> None:
    ledger_id = ask(cli, store, "stats-internal", "acme/orders/compacted")["compactedLedger"]["ledgerId"]
    change(store, ledger_path(ledger_id), None)
    with open_store(store, writable=True) as opened:
        opened.write(lambda txn: txn.delete("times", ledger_id.to_bytes(8, "big")))
    found = ask(cli, store, "stats-internal", "acme/orders/compacted", exit_code=1)
    assert found["compactedLedger"]["ledgerId"] == ledger_id
    assert (found["compactedLedger"]["entries"], found["compactedLedger"]["size"]) == (-1, -1)


def test_offloaded_terminated_and_annotated(cli: Cli, store: Path) -> None:
    """What the recorded worlds lack: offload contexts, ledger properties, PIP-345's own fields, a terminated topic."""
    topic = parse_topic("public/default/made")
    uuid = "00000000-0000-0001-0000-000000000002"
    managed = ManagedLedger(
        (
            LedgerInfo(900, 5, 500, 1_700_000_000_000, True, uuid, {"k": "v"}),
            LedgerInfo(901, 3, 300, 1_700_000_000_500, False, uuid),
        ),
        Position(901, 2),
        {"b": "2", "a": "1"},
    )
    change(store, topic.path, encode_managed_ledger(managed))
    internal = ask(cli, store, "stats-internal", topic, exit_code=1)  # ledger 901 is lost
    assert (internal["state"], internal["lastConfirmedEntry"], internal["totalSize"]) == ("Terminated", "901:2", 800)
    assert [ledger["offloaded"] for ledger in internal["ledgers"]] == [True, False]
    assert internal["ledgers"][0]["properties"] == {"k": "v"}
    assert internal["lastLedgerCreatedTimestamp"] is None
    info = ask(cli, store, "info-internal", topic, exit_code=1)
    offloaded = {"isOffloaded": True, "offloadedContextUuid": uuid}
    assert info == {
        "version": 7,
        "creationDate": "2023-11-14T22:13:20Z",
        "modificationDate": "2023-11-14T22:13:20.12Z",
        "ledgers": [
            {"ledgerId": 900, "entries": 5, "size": 500, "timestamp": 1_700_000_000_000, **offloaded},
            {"ledgerId": 901, "entries": 3, "size": 300, "timestamp": 1_700_000_000_500, **offloaded},
        ],
        "terminatedPosition": {"ledgerId": 901, "entryId": 2},
        "cursors": {},
        "properties": {"a": "1", "b": "2"},
    }
    assert list(info["properties"]) == ["a", "b"]
    assert ask(cli, store, "stats", topic, exit_code=1)["offloadedStorageSize"] == 500


def test_a_topic_never_opened(cli: Cli, store: Path) -> None:
    topic = parse_topic("public/default/made")
    change(store, topic.path, b"")
    internal = ask(cli, store, "stats-internal", topic)
    assert (internal["ledgers"], internal["cursors"], internal["lastConfirmedEntry"]) == ([], {}, "-1:-1")
    assert ask(cli, store, "info-internal", topic)["ledgers"] == []
    assert ask(cli, store, "last-message-id", topic)["entryId"] == -1
    assert ask(cli, store, "get-backlog-size", topic) == 0


def test_a_damaged_topic_is_an_error(cli: Cli, store: Path) -> None:
    path = parse_topic("public/default/plain").path
    with open_store(store) as opened, open_reader(opened) as reader:
        value = read_node(reader.txn, path).value
    change(store, path, value[:-1])
    result = cli("--store", store, "topics", "stats-internal", "public/default/plain", "-o", "json")
    assert (result.exit_code, result.error["code"]) == (6, "metadata-corrupt")
    result = cli("--store", store, "topics", "stats-internal", "--pattern", "public/default/*", "-o", "json")
    assert (result.exit_code, len(result.json), result.error["code"]) == (1, 9, "metadata-corrupt")


@pytest.mark.usefixtures("damages_stores")
def test_a_damaged_time_row_is_an_error(cli: Cli, store: Path) -> None:
    key = (9).to_bytes(8, "big")
    with open_store(store, writable=True) as opened:
        opened.write(lambda txn: txn.put("times", key, b"\x01\x00"))
    result = cli("--store", store, "topics", "stats-internal", "public/default/plain", "--explain", "-o", "json")
    assert (result.exit_code, result.error["code"]) == (6, "index-corrupt")
