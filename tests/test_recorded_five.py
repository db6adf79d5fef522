"""The project's own world of Pulsar 5.0.1 (``tests/live/recording_scalable.py``) against what its broker and its v5 client said."""

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import pulsar_admin
from pulsar_admin.store.codec.scalable import decode_scalable_topic
from pulsar_admin.store.codec.transactions import TxnId
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import METADATA_FILE_ID, Damage, clear_damage, put_damage
from pulsar_admin.store.db.tree import iter_nodes, put_nodes, read_node, tree_key
from pulsar_admin.store.errors import NotSeen
from pulsar_admin.store.model.scalable import iter_by_time
from pulsar_admin.store.model.transactions import read_segment_states
from pulsar_admin.store.names import parse_topic
from tests.conftest import Cli
from tests.stores import copied, imported, put_node, read_rows, write_rows
from tests.test_scalable import known
from tests.versions import answers_of_export, changes, count
from tests.worlds import GOLDEN, oracle

WORLD = "five"
TOPICS = ("acme/five/orders", "acme/five/moved", "acme/five/paid")
PAID = "segment://acme/five/paid/0000-ffff-0"
WHOLE = TOPICS[:2]
"""Topics without transactions."""


def said(topic: str) -> Any:  # Any: JSON
    return oracle(WORLD)["topics"][topic]


def read(cli: Cli, topic: str, state: str = "clean") -> list[Any]:
    line = f"topics read topic://{topic} --value -o jsonl"
    return cli("--store", imported(WORLD, state), *line.split()).json_lines


@pytest.mark.parametrize("topic", WHOLE)
def test_every_message_that_a_v5_consumer_got_is_read_in_the_order_of_its_key(cli: Cli, topic: str) -> None:
    rows = read(cli, topic)
    assert Counter((row["key"], row["value"]) for row in rows) == Counter(
        (row[1], row[2]) for row in said(topic)["rows"]
    )
    of_key = defaultdict(list)
    for row in rows:
        of_key[row["key"]].append(row["value"])
    for values in of_key.values():  # p0 … were sent before the migration, v300 … after it
        assert values == sorted(values, key=lambda value: (value[0] != "p", int(value[1:])))


@pytest.mark.parametrize("few", [0, 10_000])
def test_python_and_a_search_have_the_same_order(cli: Cli, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a few are read one by one; a limit counts over all segments."""
    monkeypatch.setattr("pulsar_admin.store.search.window.SMALL_MESSAGES", few)
    sent = [f"v{number}" for number in range(300)]
    segments = [row["topic"] for row in read(cli, TOPICS[0])]
    with pulsar_admin.open_store(imported(WORLD, "clean")) as store:
        topic = store.topic(f"topic://{TOPICS[0]}")
        assert [row["value"] for row in topic.messages(columns=["value"]).rows()] == sent
        assert [one.payload.decode() for one in topic.messages(columns=["payload"], limit=211).records()] == sent[:211]
        table = topic.messages(columns=["payload", "topic", "properties"]).to_arrow()
        assert [one.decode() for one in table["payload"].to_pylist()] == sent
        assert table["topic"].to_pylist() == segments
        found = store.search(f"topic://{TOPICS[0]}", key_prefix="k", limit=150, columns=["payload"])
        assert [row["payload"].decode() for row in found.rows()] == sent[:150]
    line = f"topics search topic://{TOPICS[0]} --key-prefix k -n 170 --value -o jsonl"
    rows = cli("--store", imported(WORLD, "clean"), *line.split()).json_lines
    assert [row["value"] for row in rows] == sent[:170]


def test_segments_of_a_record_that_cannot_be_read_are_read_one_by_one(cli: Cli, tmp_path: Path) -> None:
    path = copied(WORLD, "clean", tmp_path)
    put_node(path, "/topics/acme/five/orders", b"{")
    rows = read(cli, TOPICS[0])
    segments = list(dict.fromkeys(row["topic"] for row in rows))
    assert len(segments) > 2
    found = cli("--store", path, "topics", "read", *segments, "--value", "-o", "jsonl").ends(1)
    assert found.stderr.count("/topics/acme/five/orders") == 1
    assert [row["value"] for row in found.json_lines] == [
        row["value"] for name in segments for row in rows if row["topic"] == name
    ]
    alone = cli("--store", path, "topics", "read", segments[0], "--value", "-o", "jsonl")
    assert (alone.exit_code, alone.json_lines) == (0, [row for row in rows if row["topic"] == segments[0]])


def test_equal_times_go_by_segment_id_and_a_circle_loses_nothing() -> None:
    names = {number: parse_topic(f"segment://t/n/a/0000-ffff-{number}") for number in range(4)}
    hashes = {"start": 0, "end": 65535}
    for parents, expected in (
        ({}, "a0 b0 c0 d0 a1 b1 c1 d1"),
        ({1: [0], 2: [0], 3: [1, 2]}, "a0 a1 b0 c0 b1 c1 d0 d1"),
        ({0: [1], 1: [0]}, "c0 d0 c1 d1 a0 a1 b0 b1"),
    ):
        rows = {
            str(number): {
                "segmentId": number,
                "hashRange": hashes,
                "state": "ACTIVE",
                "createdAtEpoch": 0,
                "parentIds": parents.get(number, []),
            }
            for number in names
        }
        record = decode_scalable_topic(json.dumps({"segments": rows}).encode(), "/", parse_topic("topic://t/n/a"))
        streams = {name: iter([f"{'abcd'[number]}0", f"{'abcd'[number]}1"]) for number, name in names.items()}
        assert list(iter_by_time(record, streams, lambda item: int(item[1]))) == expected.split()


@pytest.mark.parametrize("topic", WHOLE)
def test_stats_and_cursors_are_those_of_the_broker(cli: Cli, topic: str) -> None:
    found = cli("--store", imported(WORLD, "clean"), "scalable-topics", "stats", topic, "-o", "json").json
    assert known(found) == known(said(topic)["stats"])


def test_what_was_confirmed_before_the_kill_is_there(cli: Cli) -> None:
    numbers = {int(row["value"][1:]) for row in read(cli, TOPICS[0], "crashed")}
    assert set(range(5000, 5000 + oracle(WORLD)["confirmed"])) <= numbers
    assert len(numbers) >= 300 + oracle(WORLD)["confirmed"]


def test_a_5_0_1_served_of_an_export_what_was_left(cli: Cli, tmp_path: Path) -> None:
    """After resets, skips and expiries over segments: see ``tests/live/recording_changes.py``. A stream has each key in its order."""
    path = copied(WORLD, "clean", tmp_path)
    for line in changes()["changes"]:
        assert cli("--store", path, *line.split(), "--yes").exit_code == 0
    assert [(what, ours) for _, what, ours, theirs in answers_of_export(path) if ours != theirs] == []
    (values,) = (values for _, name, values in changes()["read"] if name == "s")
    numbers = [int(value[1:]) for value in values]
    assert sorted(numbers) == list(range(300))
    for key in range(17):
        of_key = [number for number in numbers if number % 17 == key]
        assert of_key == sorted(of_key)


def test_a_reset_by_time_goes_to_the_end_of_segments_that_end_before_it(cli: Cli, tmp_path: Path) -> None:
    """It is refused where that is so of all of them."""
    path, times = copied(WORLD, "clean", tmp_path), sorted(row[3] for row in said(TOPICS[0])["rows"])
    words = ("--store", path, "topics", "reset-cursor", f"topic://{TOPICS[0]}", "-s", "all", "--clock", "publish", "-t")
    cli(*words, f"@{times[-1] + 1}").ends(5, "--force moves to the end")
    assert cli(*words, f"@{times[-1]}").exit_code == 0
    with pulsar_admin.open_store(path) as store:
        left = store.topic(f"topic://{TOPICS[0]}").messages(subscription="all", columns=["publish_time"]).rows()
        assert [int(row["publish_time"].timestamp() * 1000) for row in left] == [
            one for one in times if one >= times[-1]
        ]


# -- transactions of segments -----------------------------------------------------------------------------------------


def test_transactions_of_segments(cli: Cli) -> None:
    store = imported(WORLD, "clean")
    open_ = cli("--store", store, "transactions", "slow-transactions", "-t", "1s", "-o", "json").json
    ((name, found),) = open_.items()
    most, least = name.strip("()").split(",")
    assert found["status"] == "OPEN"
    assert found["timeoutAt"] == 600_000
    assert list(found["producedPartitions"]) == [PAID]
    assert list(found["ackedPartitions"]) == [PAID]
    assert list(found["ackedPartitions"][PAID]) == ["q3"]
    buffer = cli("--store", store, "transactions", "transaction-buffer-stats", "-t", PAID, "-o", "json").json
    assert (buffer["ongoingTxnSize"], buffer["totalAbortedTransactions"]) == (1, 1)
    for subscription, open_acks in (("q1", 0), ("q3", 1)):
        line = f"transactions pending-ack-stats -t {PAID} -s {subscription} -o json"
        assert cli("--store", store, *line.split()).json["ongoingTxnSize"] == open_acks
    why = cli("--store", store, "topics", "why", PAID, "-s", "q1", "-o", "json").stdout
    assert f"transaction-metadata -m {most} -l {least}" in why


def test_what_a_committed_transaction_did_hides_nothing_of_an_open_one(cli: Cli, tmp_path: Path) -> None:
    path, asked = copied(WORLD, "clean", tmp_path), ["transactions", "slow-transactions", "-t", "1s", "-o", "json"]
    before = cli("--store", path, *asked).json
    did = read_rows(path, lambda txn: next(iter_nodes(txn, "/txn/op/3_0-")))
    put_node(path, did.path.replace("/3_0-", "/1_0-"), did.value)
    assert cli("--store", path, *asked).json == before


def test_what_the_metadata_does_not_say_of_a_transaction_is_not_known(cli: Cli, tmp_path: Path) -> None:
    """A broker takes what it has no node of for committed (``MetadataTransactionBuffer``); here nodes may be old or lost."""
    path, name = copied(WORLD, "clean", tmp_path), parse_topic(PAID)

    def state(txn: Txn, number: int) -> str:
        try:
            return read_segment_states(txn, name).of(TxnId(number, 0))
        except NotSeen:
            return "unknown"

    def work(txn: Txn) -> None:
        def states() -> list[str]:
            return [state(txn, number) for number in (1, 2, 3)]

        def change(where: str, value: bytes) -> None:
            put_nodes(txn, [read_node(txn, where)._replace(value=value)])

        assert states() == ["COMMITTED", "ABORTED", "OPEN"]
        change("/txn/id/1_0", b"{")
        assert states() == ["unknown", "ABORTED", "OPEN"]
        txn.delete("tree", tree_key("/txn/id/1_0"))
        assert states() == ["COMMITTED", "ABORTED", "OPEN"]
        lost = Damage(METADATA_FILE_ID, 7, 9, "metadata /txn/segment-state/aborted/x: a value of 3 bytes", -1, -1)
        put_damage(txn, lost)
        assert states() == ["unknown", "ABORTED", "OPEN"]
        clear_damage(txn, METADATA_FILE_ID)
        txn.delete("tree", tree_key("/txn/id/3_0"))
        assert states() == ["COMMITTED", "ABORTED", "ABORTED"]
        did = [node for node in iter_nodes(txn, "/txn/op/3_0-") if b'"WRITE"' in node.value]
        for damaged, expected in ((did[:-1], "ABORTED"), (did, "unknown")):
            put_nodes(txn, [node._replace(value=b"{") for node in damaged])
            assert states() == ["COMMITTED", "ABORTED", expected]
        put_nodes(txn, did)
        for value in (b'{"next":0}', b"{}", b"{"):
            change("/txn/tc-seq/1", value)
            assert states() == ["unknown", "ABORTED", "ABORTED"], value
        for node in [*iter_nodes(txn, "/txn/")]:
            txn.delete("tree", tree_key(node.path))
        assert states() == ["unknown"] * 3

    write_rows(path, work)
    found = cli("--store", path, *f"topics read topic://{TOPICS[2]} --value -o jsonl".split()).ends(1)
    assert {row["value"] for row in found.json_lines} < {row["value"] for row in read(cli, TOPICS[2])}
    assert "transaction (1,0): the metadata does not say whether it was committed" in found.stderr
    stats = cli("--store", path, *f"transactions transaction-buffer-stats -t {PAID}".split())
    assert stats.exit_code == 6
    assert "the metadata does not say" in stats.stderr
    cli.on(path, f"transactions transaction-in-buffer-stats -m 1 -l 0 -t {PAID}").ends(
        6, "transaction (1,0): the metadata"
    )


@pytest.mark.deep
def test_the_table_by_version_is_what_is_counted() -> None:
    lines, differences = count()
    text = (GOLDEN.parent.parent / "docs" / "what-a-store-knows.md").read_text()
    assert "\n".join(lines) in text
    assert Counter(line.split(" ", 3)[0] for line in differences) == {
        "2.11.0": 10,
        "4.0.8": 16,
        "4.2.4": 3,
        "5.0.1": 16,
    }
