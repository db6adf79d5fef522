"""``stats`` and ``partitioned-stats`` on the command line; the fields themselves are compared in test_stats_oracle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pulsar_admin.commands.topics.answers import size_of
from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.codec.logscan import Record, iter_records
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import Node, find_node, put_nodes
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, parse_namespace, parse_topic
from tests.commands.test_topics_internals import ask
from tests.conftest import Cli
from tests.stores import imported
from tests.synthetic import Made, MadeTopic, make_store
from tests.worlds import WORLD_NAMES, oracle, world

START_MS = 1_700_000_000_000


@pytest.mark.parametrize("world", WORLD_NAMES)
def test_earliest_times(world: str, cli: Cli) -> None:
    """-etb: the time of the first entry behind the mark-delete, on the broker's clock where the entry has it."""
    store = imported(world, "clean")
    for topic, answers in oracle(world)["topics"].items():
        found = ask(cli, store, "stats", topic, "-etb", "-gpb")
        publish = {(row[0], row[1]): row[3] for row in answers["messages"]}
        for name, cursor in found["subscriptions"].items():
            expected = answers["stats"]["subscriptions"][name]
            assert cursor["msgBacklog"] == expected["msgBacklog"]
            earliest = cursor["earliestMsgPublishTimeInBacklog"]
            if not cursor["msgBacklog"]:
                assert earliest == -1
            elif world == "nometa":
                internal = ask(cli, store, "stats-internal", topic)["cursors"]
                encoded = {"fail/over:1": "fail%2Fover%3A1"}.get(name, name)
                ledger_id, entry_id = map(int, internal[encoded]["readPosition"].split(":"))
                assert earliest == publish[ledger_id, entry_id]
        assert ask(cli, store, "stats", topic)["earliestMsgPublishTimeInBacklogs"] == 0


def test_earliest_time_of_known_entries(cli: Cli, tmp_path: Path) -> None:
    topic = MadeTopic(
        [[Made(START_MS + 50, START_MS + 1), Made(START_MS + 40)], [Made(START_MS + 30)]],
        cursors={
            "begin": CursorInfo(-1, Position(10, -1)),
            "second": CursorInfo(-1, Position(10, 0)),
            "third": CursorInfo(-1, Position(10, 1)),
            "end": CursorInfo(-1, Position(11, 0)),
        },
    )
    store = make_store(tmp_path / "store", {"public/default/t": topic})
    found = ask(cli, store, "stats", "public/default/t", "-etb")
    times = {name: row["earliestMsgPublishTimeInBacklog"] for name, row in found["subscriptions"].items()}
    assert times == {"begin": START_MS + 1, "second": START_MS + 40, "third": START_MS + 30, "end": -1}
    assert found["earliestMsgPublishTimeInBacklogs"] == START_MS + 1


@pytest.mark.parametrize("world", WORLD_NAMES)
def test_sums_over_partitions(world: str, cli: Cli) -> None:
    store = imported(world, "clean")
    parts = [oracle(world)["topics"][f"acme/orders/parts-partition-{number}"]["stats"] for number in range(3)]
    sums = ask(cli, store, "partitioned-stats", "acme/orders/parts")
    assert sums["storageSize"] == sum(part["storageSize"] for part in parts)
    assert sums["backlogSize"] == sum(part["backlogSize"] for part in parts)
    assert (sums["metadata"]["partitions"], sums["partitions"]) == (3, {})
    each = ask(cli, store, "partitioned-stats", "acme/orders/parts", "--per-partition")["partitions"]
    assert list(each) == [f"persistent://acme/orders/parts-partition-{number}" for number in range(3)]
    assert [part["storageSize"] for part in each.values()] == [part["storageSize"] for part in parts]
    assert each["persistent://acme/orders/parts-partition-1"] == ask(
        cli, store, "stats", "acme/orders/parts-partition-1"
    )


def test_sums_of_subscriptions(cli: Cli, tmp_path: Path) -> None:
    entries = [Made(START_MS + number) for number in range(6)]
    names = ("shared", "only-here")
    topics = {
        f"public/default/p-partition-{number}": MadeTopic(
            [entries[number:]],
            cursors={name: CursorInfo(-1, Position(10 + number, -1)) for name in names[: 2 - number]},
        )
        for number in range(2)
    }
    store = make_store(tmp_path / "store", topics)
    record = Node(parse_topic("public/default/p").partitioned_path, NodeStat(0, 1, 0, 0, False), b'{"partitions":3}')
    with open_store(store, writable=True) as opened:
        opened.write(lambda txn: put_nodes(txn, [record]))
    found = ask(cli, store, "partitioned-stats", "public/default/p", "-etb", "--per-partition")
    assert {name: row["msgBacklog"] for name, row in found["subscriptions"].items()} == {"only-here": 6, "shared": 11}
    assert found["earliestMsgPublishTimeInBacklogs"] == START_MS
    assert len(found["partitions"]) == 2  # the third was never opened


def test_quotas_and_epoch_come_from_what_is_stored(cli: Cli, store: Path) -> None:
    path = parse_namespace("acme/iot").policies_path

    def work(txn: Txn) -> None:
        node = find_node(txn, path)
        quota = {"limit": 7, "limitSize": 1000, "limitTime": 60, "policy": "producer_exception"}
        policies = json.loads(node.value) | {"backlog_quota_map": {"destination_storage": quota, "message_age": quota}}
        put_nodes(txn, [Node(path, node.stat, json.dumps(policies).encode())])

    with open_store(store, writable=True) as opened:
        opened.write(work)
    found = ask(cli, store, "stats", "acme/iot/skewed")
    assert (found["backlogQuotaLimitSize"], found["backlogQuotaLimitTime"]) == (1000, 60)
    assert "topicEpoch" not in found


@pytest.mark.parametrize("command", ["stats", "partitioned-stats", "stats-internal", "info-internal"])
def test_no_such_topic(command: str, cli: Cli, demo_store: Path) -> None:
    result = cli("--store", demo_store, "topics", command, "public/default/none", "-o", "json")
    assert (result.exit_code, result.error["code"], result.stdout) == (5, "topic-not-found", "")


def test_a_scan_reads_as_many_bytes_as_progress_says(demo_store: Path) -> None:
    """The whole of a scan's progress is what the reference reader finds of the topic in the entry logs."""
    name = parse_topic("public/default/plain")
    with open_store(demo_store) as store, open_reader(store) as reader:
        ids = set(read_topic(reader.txn, name).ids)
        expected = size_of(reader, [name])
    logs = [log for log in (world("small") / "clean" / "bookkeeper" / "current").glob("*.log") if log.stat().st_size]
    records = (item for log in logs for item in iter_records(log.read_bytes(), log.name))
    assert expected == sum(item.size for item in records if isinstance(item, Record) and item.ledger_id in ids) > 0


def test_the_flag_of_backlog_sizes_switches_them_off(cli: Cli) -> None:
    """As pulsar-admin 4.0.8 does: its option is on by default, and picocli's flag is the opposite of a default."""
    store = imported("small", "clean")
    assert ask(cli, store, "stats", "public/default/plain")["backlogSize"] >= 0
    without = ask(cli, store, "stats", "public/default/plain", "-sbs")
    assert {row["backlogSize"] for row in without["subscriptions"].values()} == {-1}


def test_what_newer_brokers_say(cli: Cli) -> None:
    """PIP-431, with --explain alone: 4.0 has no such keys. The time is that of the last message its producer sent."""
    store = imported("small", "clean")
    said = cli("--store", store, "topics", "stats", "public/default/plain", "--explain").json
    last = cli("--store", store, "topics", "read", "public/default/plain", "-o", "jsonl").json_lines[-1]
    assert said["lastPublishTimeStamp"] == last["publishTime"]
    assert 1795252800000 < said["topicCreationTimeStamp"] < 1795260000000
    assert "topicCreationTimeStamp" not in cli("--store", store, "topics", "stats", "public/default/plain").json
