"""``topics list`` and its relatives, ``subscriptions``: names, against the recorded broker."""

from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from pulsar_admin.store.db.tree import tree_key
from pulsar_admin.store.errors import TenantNotFound
from pulsar_admin.store.names import encode_name, in_hash_order, parse_namespace, parse_topic
from tests.conftest import Cli
from tests.stores import imported, put_node, write_rows
from tests.worlds import WORLD_NAMES, asked_topics, oracle


@pytest.mark.parametrize("world", WORLD_NAMES)
def test_lists_equal_the_broker(world: str, cli: Cli) -> None:
    for namespace, answers in oracle(world)["namespaces"].items():
        for command in ("topics list", "namespaces topics"):
            result = cli("--store", imported(world, "clean"), *command.split(), namespace)
            assert (result.exit_code, sorted(result.stdout.splitlines())) == (0, sorted(answers["topics"]))


def test_domains(cli: Cli, demo_store: Path) -> None:
    everything = cli.on(demo_store, "topics list public/default").stdout
    assert cli.on(demo_store, "topics list public/default -td persistent").stdout == everything
    nothing = cli.on(demo_store, "topics list public/default -td non_persistent -o json")
    assert (nothing.exit_code, nothing.json) == (0, [])
    assert cli.on(demo_store, "namespaces topics public/default -m non_persistent").stdout == ""


def test_bundles_share_the_topics_out(cli: Cli, demo_store: Path) -> None:
    """The four bundles of public/default; upstream hashes the full name with CRC-32."""
    everything = cli.on(demo_store, "topics list public/default").stdout.splitlines()
    seen: list[str] = []
    for low, high in ((0, 4), (4, 8), (8, 12), (12, 16)):
        bundle = f"0x{low:x}0000000_0x{high:x}0000000" if high < 16 else f"0x{low:x}0000000_0xffffffff"
        found = cli.on(demo_store, f"topics list public/default -b {bundle}").stdout.splitlines()
        assert sorted(found) == sorted(name for name in everything if low <= crc32(name.encode()) >> 28 < high)
        seen += found
    assert sorted(seen) == sorted(everything)
    assert cli.on(demo_store, "topics list public/default -b 0x00000000_0x80000000").stdout == "", (
        "two bundles are none"
    )


def test_the_order_of_a_hash_map() -> None:
    """As pulsar-admin 4.0.8 listed the topics and the subscriptions of a real broker."""
    topics = (
        "topic-3 topic-2 parts-partition-0 topic-1 delayed parts-partition-1 many empty topic-7 topic-6 topic-5 batch topic-4"
        " plain topic-9 topic-8"
    )
    names = [f"persistent://mirror/one/{name}" for name in topics.split()]
    assert in_hash_order(sorted(names)) == names
    assert in_hash_order(["alpha", "beta", "delta", "eps", "gamma", "ps"]) == [
        "ps",
        "alpha",
        "delta",
        "eps",
        "beta",
        "gamma",
    ]
    assert in_hash_order(["acker", "s/slash:1"]) == ["s/slash:1", "acker"]


def test_partitioned_metadata_of_several(cli: Cli, demo_store: Path) -> None:
    command = ("--store", demo_store, "topics", "get-partitioned-topic-metadata")
    found = cli(*command, "acme/orders/parts", "acme/iot/skewed", "-o", "jsonl").json_lines
    assert [(row["topic"], row["partitions"]) for row in found] == [
        ("persistent://acme/orders/parts", 3),
        ("persistent://acme/iot/skewed", 0),
    ]
    assert len(cli(*command, "--all-topics", "-o", "json").json) == 1
    assert cli(*command, "--pattern", "acme/iot/*").exit_code == 5


@pytest.mark.parametrize("world", WORLD_NAMES)
def test_subscriptions_equal_the_broker(world: str, cli: Cli) -> None:
    store = imported(world, "clean")
    found = cli.rows(store, "topics subscriptions --all-topics")
    by_topic = {row["topic"].removeprefix("persistent://"): row["subscriptions"] for row in found}
    for topic, answers in oracle(world)["topics"].items():
        lines = cli.on(store, f"topics subscriptions {topic}").stdout.splitlines()
        assert sorted(lines) == by_topic[topic] == sorted(answers["subscriptions"])


# -- namespaces -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", WORLD_NAMES)
def test_policies_equal_the_broker(world: str, cli: Cli) -> None:
    for namespace, answers in oracle(world)["namespaces"].items():
        found = cli.json(imported(world, "clean"), f"namespaces policies {namespace}")
        expected = answers["policies"]
        assert found == expected
        assert list(found) == list(expected)


def test_errors_of_namespaces(cli: Cli, demo_store: Path, store: Path) -> None:
    result = cli.on(demo_store, "namespaces list nobody -o json")
    assert (result.exit_code, result.error["code"]) == (5, TenantNotFound.code)
    assert cli.on(demo_store, "namespaces policies acme/none").exit_code == 5
    assert cli.on(demo_store, "namespaces topics acme/none").exit_code == 5
    path = parse_namespace("acme/iot").policies_path
    write_rows(store, lambda txn: txn.delete("tree", tree_key(path)))
    assert cli.on(store, "namespaces topics acme/iot").exit_code == 0
    result = cli.on(store, "namespaces policies acme/iot -o json")
    assert (result.exit_code, "no policies" in result.error["message"]) == (5, True)


# -- topics describe and topics subscriptions --table ---------------------------------------------------------------

NOW = "2026-11-21T12:00:00Z"
Json = Any  # a JSON value


def text_of(position: Json) -> str:
    return f"{position['ledgerId']}:{position['entryId']}"


@pytest.mark.parametrize("world", ["small", "cluster"])
def test_every_topic_has_the_brokers_numbers(world: str, cli: Cli) -> None:
    store = imported(world, "clean")
    found = {
        row["topic"].removeprefix("persistent://"): row
        for row in cli.json(store, f"topics describe --all-topics --now {NOW}")
    }
    compared = 0
    for topic, answers in asked_topics(world).items():
        row, internal = found[topic], answers["internal_stats"]
        assert (row["entries"], row["size"]) == (internal["numberOfEntries"], internal["totalSize"])
        assert text_of(row["lastConfirmed"]) == internal["lastConfirmedEntry"]
        sizes = {one["ledgerId"]: (one["entries"], one["size"]) for one in row["ledgers"]}
        for one in internal["ledgers"][:-1]:
            assert sizes[one["ledgerId"]] == (one["entries"], one["size"])
        if "txn" not in topic and answers["messages"] and not topic.endswith("chunked"):
            times = [message[3] for message in answers["messages"]]
            assert (row["firstPublish"], row["lastPublish"]) == (min(times), max(times))
            assert row["messages"] == len(times)
            compared += 1
        cursors = {encode_name(one["subscription"]): one for one in row["subscriptions"]}
        for name, cursor in internal["cursors"].items():
            if name != "pulsar.dedup":
                assert text_of(cursors[name]["markDelete"]) == cursor["markDeletePosition"]
                assert cursors[name]["ackRanges"] == cursor["totalNonContiguousDeletedMessagesRange"]
    assert compared > 10


def test_an_unreadable_cursor_is_told_and_the_rest_is_shown(cli: Cli, store: Path, damages_stores: None) -> None:
    put_node(store, parse_topic("public/default/plain").cursor_path("half"), b"\xff\xff")
    result = cli.on(store, f"topics describe public/default/plain --now {NOW}").ends(1, "half")
    assert "never" in result.stdout
    assert "\nhalf" not in result.stdout
    assert "the last" not in result.stdout  # all its ledgers are shown
