"""A broker starts on a generated cluster and gives what was asked for: every message, every cursor, times by its own search."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from bench.generate import generate
from tests.conftest import Cli
from tests.live.broker import BASE_SETTINGS, BROKER_METADATA, Broker, free_port
from tests.live.conftest import run_toolkit
from tests.live.distribution import find_distribution
from tests.live.producing import open_client, read_rows

pytestmark = pytest.mark.live

PLAIN, BATCHED, SMALL = "public/default/generated", "acme/made/batched", "public/default/generated-0"
TOPICS = (PLAIN, SMALL, BATCHED, f"{PLAIN}s-partition-0", f"{PLAIN}s-partition-1")
_FILE = f"""
{{"topic":"{BATCHED}","batch":"1..9","codecs":"none,lz4,zlib,zstd,snappy","message-size":"20~400","entries":700}}
{{"topic":"{PLAIN}s","partitions":2,"entries":300,"batch":3,"tombstones":10}}
"""


class Generated(Struct, frozen=True):
    """What was generated, what the broker said of it, and a store imported before the broker started."""

    store: Path
    rows: dict[str, list[list[Any]]]
    times: dict[str, list[tuple[int, Any]]]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Generated]:
    folder = tmp_path_factory.mktemp("generated")
    with Broker(find_distribution(), folder / "pulsar", {**BASE_SETTINGS, **BROKER_METADATA}) as broker:
        (folder / "topics.jsonl").write_text(_FILE)
        options = ["--topic", PLAIN, "--topics", 1, "--from-file", folder / "topics.jsonl", "--entries", 2000]
        options += [
            "--keys",
            40,
            "--producers",
            3,
            "--clocks",
            "steady,slow,jumping",
            "--interceptors",
            "timestamp,index",
        ]
        options += ["--entries-per-ledger", 450, "--log-size-limit", "1M", "--event-time"]
        options += ["--message-size", "16..900", "--bookie-id", f"127.0.0.1:{free_port()}"]
        generate(broker.data, *options)
        run_toolkit(folder / "store", "store", "import", "standalone", broker.data, "--copy")
        broker.start()
        client = open_client(broker.service_url)
        rows = {topic: read_rows(client, topic) for topic in TOPICS}
        client.close()
        times = {topic: list(_times(broker, topic)) for topic in TOPICS}
        broker.stop()
        yield Generated(folder / "store", rows, times)


def _times(broker: Broker, topic: str) -> Iterator[tuple[int, Any]]:
    for time_ms in range(1_700_000_000_000, 1_700_000_002_000, 97):
        answer = broker.get(f"persistent/{topic}/messageid/{time_ms}")
        yield time_ms, (answer["ledgerId"], answer["entryId"])


def test_the_client_reads_every_message(generated: Generated, cli: Cli) -> None:
    keys = ("ledgerId", "entryId", "batchIndex", "publishTime", "sha1", "producer")
    for topic in TOPICS:
        found = cli("--store", generated.store, "topics", "read", topic, "-o", "jsonl").json_lines
        assert [[row[key] for key in keys] for row in found] == generated.rows[topic], topic
        assert len(found) >= 300


def test_the_broker_finds_times_by_the_generated_broker_clock(generated: Generated, cli: Cli) -> None:
    for topic in TOPICS:
        for time_ms, expected in generated.times[topic]:
            words = ("topics", "find-by-time", topic, "--time", f"@{time_ms}", "-o", "json")
            found = cli("--store", generated.store, *words).json["position"]
            if found is not None:
                assert (found["ledgerId"], found["entryId"]) == expected, f"{topic} {time_ms}"
