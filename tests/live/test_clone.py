"""A recorded cluster of three bookies, cloned into one directory under another name: a standalone boots on it, says the backlogs that
the cluster's broker said, and gives every message."""

from collections.abc import Iterator
from pathlib import Path

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pytest

from tests.live.broker import BASE_SETTINGS, Broker, free_port
from tests.live.conftest import run_toolkit
from tests.live.distribution import find_distribution
from tests.live.producing import RECEIVE_MS, open_client, read_rows
from tests.worlds import asked_topics, world

pytestmark = pytest.mark.live
CLUSTER = world("cluster") / "clean"


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Broker]:
    """Made elsewhere, moved to where it boots, and started."""
    settings = {
        **BASE_SETTINGS,
        "clusterName": "lab",
        "ttlDurationDefaultInSeconds": "0",
        "messageExpiryCheckIntervalInMinutes": "600",
    }
    with Broker(find_distribution(), tmp_path / "pulsar", settings) as broker:
        parts = [word for number in range(3) for word in ("--bookie", CLUSTER / f"bookkeeper{number}")]
        store = tmp_path / "store"
        run_toolkit(store, "store", "import", "cluster", "--zookeeper", CLUSTER / "zookeeper", *parts)
        words = ("--boot-at", broker.data, "--cluster", "standalone=lab", "--bookie-id", f"127.0.0.1:{free_port()}")
        report = run_toolkit(store, "store", "clone", tmp_path / "made", *words)
        assert report["missing"] == {}
        (tmp_path / "made").rename(broker.data)
        broker.start()
        yield broker


def test_a_clone_boots_with_every_backlog_and_message(clone: Broker) -> None:
    assert clone.get("clusters") == ["lab"]
    asked = asked_topics("cluster")
    said, expected = {}, {}
    for topic, answers in asked.items():
        found = clone.get(f"persistent/{topic}/stats")["subscriptions"]
        said[topic] = {name: row["msgBacklog"] for name, row in found.items() if not name.startswith("reader-")}
        expected[topic] = {name: row["msgBacklog"] for name, row in answers["stats"]["subscriptions"].items()}
    assert said == expected
    assert sum(map(len, expected.values())) >= 20

    client = open_client(clone.service_url)
    for topic in ("public/default/plain", "public/default/batched", "acme/orders/parts-partition-0"):
        recorded = [row[:4] for row in asked[topic]["messages"]]
        assert [row[:4] for row in read_rows(client, topic)] == recorded, topic
    consumed = 0
    name, backlog = max(expected["public/default/plain"].items(), key=lambda row: row[1])
    consumer = client.subscribe("persistent://public/default/plain", name)
    for _ in range(backlog):
        consumer.acknowledge(consumer.receive(RECEIVE_MS))
        consumed += 1
    with pytest.raises(pulsar.Timeout):
        consumer.receive(1000)
    producer = client.create_producer("persistent://public/default/plain")
    producer.send(b"of the clone")
    assert consumer.receive(RECEIVE_MS).data() == b"of the clone"
    client.close()
    assert consumed == backlog > 0
