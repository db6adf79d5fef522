"""``topics list`` and its relatives, ``subscriptions``: names, against the recorded broker."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from pulsar_admin.store.names import in_hash_order
from tests.conftest import Cli
from tests.stores import imported
from tests.worlds import WORLD_NAMES, oracle


@pytest.mark.parametrize("world", WORLD_NAMES)
def test_lists_equal_the_broker(world: str, cli: Cli) -> None:
    for namespace, answers in oracle(world)["namespaces"].items():
        for command in ("topics list", "namespaces topics"):
            result = cli("--store", imported(world, "clean"), *command.split(), namespace)
            assert (result.exit_code, sorted(result.stdout.splitlines())) == (0, sorted(answers["topics"]))


def test_system_topics(cli: Cli, demo_store: Path) -> None:
    plain = cli("--store", demo_store, "topics", "list", "acme/iot").stdout.splitlines()
    everything = cli("--store", demo_store, "topics", "list", "acme/iot", "-ist").stdout.splitlines()
    assert set(everything) - set(plain) == {
        "persistent://acme/iot/__change_events",
        "persistent://acme/iot/__transaction_buffer_snapshot",
    }
    assert cli("--store", demo_store, "topics", "list", "pulsar/system").stdout == ""
    system = cli("--store", demo_store, "topics", "list", "pulsar/system", "-ist").stdout
    assert "persistent://pulsar/system/__transaction_log_0\n" in system


def test_domains(cli: Cli, demo_store: Path) -> None:
    everything = cli("--store", demo_store, "topics", "list", "public/default").stdout
    assert cli("--store", demo_store, "topics", "list", "public/default", "-td", "persistent").stdout == everything
    nothing = cli("--store", demo_store, "topics", "list", "public/default", "-td", "non_persistent", "-o", "json")
    assert (nothing.exit_code, nothing.json) == (0, [])
    assert cli("--store", demo_store, "namespaces", "topics", "public/default", "-m", "non_persistent").stdout == ""


def test_bundles_share_the_topics_out(cli: Cli, demo_store: Path) -> None:
    """The four bundles of public/default; upstream hashes the full name with CRC-32."""
    everything = cli("--store", demo_store, "topics", "list", "public/default").stdout.splitlines()
    seen: list[str] = []
    for low, high in ((0, 4), (4, 8), (8, 12), (12, 16)):
        bundle = f"0x{low:x}0000000_0x{high:x}0000000" if high < 16 else f"0x{low:x}0000000_0xffffffff"
        found = cli("--store", demo_store, "topics", "list", "public/default", "-b", bundle).stdout.splitlines()
        assert sorted(found) == sorted(name for name in everything if low <= crc32(name.encode()) >> 28 < high)
        seen += found
    assert sorted(seen) == sorted(everything)


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


def test_partitioned_topics(cli: Cli, demo_store: Path) -> None:
    found = cli("--store", demo_store, "topics", "list-partitioned-topics", "acme/orders")
    assert found.stdout == "persistent://acme/orders/parts\n"
    assert cli("--store", demo_store, "topics", "list-partitioned-topics", "public/default").stdout == ""


@pytest.mark.parametrize(
    ("topic", "partitions"), [("acme/orders/parts", 3), ("acme/orders/parts-partition-1", 0), ("acme/iot/skewed", 0)]
)
def test_partitioned_metadata(topic: str, partitions: int, cli: Cli, demo_store: Path) -> None:
    result = cli("--store", demo_store, "topics", "get-partitioned-topic-metadata", topic)
    assert result.stdout == f'{{\n  "partitions" : {partitions},\n  "deleted" : false\n}}\n'


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
    found = cli("--store", store, "topics", "subscriptions", "--all-topics", "-o", "jsonl").json_lines
    by_topic = {row["topic"].removeprefix("persistent://"): row["subscriptions"] for row in found}
    for topic, answers in oracle(world)["topics"].items():
        lines = cli("--store", store, "topics", "subscriptions", topic).stdout.splitlines()
        assert sorted(lines) == by_topic[topic] == sorted(answers["subscriptions"])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("topics", "list", "no/such"), 5),
        (("topics", "list", "nonsense"), 2),
        (("topics", "list", "public/default", "-b", "0x2_0x1"), 2),
        (("topics", "list-partitioned-topics", "no/such"), 5),
        (("topics", "get-partitioned-topic-metadata", "no/such/topic"), 5),
        (("topics", "subscriptions", "no/such/topic"), 5),
        (("topics", "subscriptions"), 2),
        (("topics", "subscriptions", "public/default/plain", "--all-topics"), 2),
    ],
)
def test_errors(arguments: tuple[str, ...], code: int, cli: Cli, demo_store: Path) -> None:
    result = cli("--store", demo_store, *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr
