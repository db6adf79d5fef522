"""A cluster whose ZooKeeper is lost: bookies are all there is, its metadata is made of them, and clients read every message again."""

import csv
import shutil
from collections.abc import Iterator
from pathlib import Path

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pytest

from tests.live.chains_recipe import ALONE, made
from tests.live.cluster import Cluster
from tests.live.conftest import run_toolkit
from tests.live.producing import RECEIVE_MS, open_client
from tests.live.test_cluster_back import read_all

pytestmark = pytest.mark.live
NAMED = f"{ALONE}/ordinary-0"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, dict[str, list[int]]]]:
    yield from made(tmp_path_factory.mktemp("bookies-alone"), [ALONE])


def read_topics(cluster: Cluster, namespaces: list[str]) -> dict[str, list[bytes]]:
    """Every message of every topic, by topic."""
    client = open_client(cluster.service_url)
    found = {}
    for namespace in namespaces:
        for name in cluster.get(f"persistent/{namespace}"):
            topic = name.removeprefix("persistent://")
            found[topic] = [text for _, text in read_all(client, topic)]
    client.close()
    return found


def test_bookies_are_all_there_is(filled: tuple[Cluster, dict[str, list[int]]], tmp_path: Path) -> None:
    cluster, topics = filled
    said = read_topics(cluster, [ALONE])
    cluster.stop()
    shutil.rmtree(cluster.zookeeper_data / "version-2")  # it is lost
    store, names, out = tmp_path / "store", tmp_path / "names.csv", tmp_path / "out"
    confs = [word for bookie in cluster.bookies for word in ("--bookie-conf", bookie.configuration)]
    run_toolkit(store, "store", "import", "cluster", *confs)
    run_toolkit(store, "store", "recover", "--level", "C", "--names", names, "--dry-run")
    with names.open(newline="") as file:
        rows = list(csv.DictReader(file))
    group = next(row for row in rows if row["ledger"] == str(topics[NAMED][0]))
    group["name"] = f"persistent://{NAMED}"
    cursor = next(row for row in rows if row["kind"] == "subscription" and row["of"] == group["ledger"])
    cursor["name"] = "worker"
    with names.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    run_toolkit(store, "store", "recover", "--level", "C", "--names", names)
    backlog = run_toolkit(store, "topics", "stats", NAMED)["subscriptions"]["worker"]["msgBacklog"]
    run_toolkit(store, "store", "export", "zookeeper-snapshot", out)
    shutil.copytree(out / "version-2", cluster.zookeeper_data / "version-2")
    cluster.start_zookeeper()
    cluster.start_bookies()
    cluster.start_broker()
    found = read_topics(cluster, [ALONE, "lost-and-found/ledgers"])
    assert found[NAMED] == said[NAMED]
    # Every message once, those of the topic that was deleted too; none in a topic with messages of another one.
    deleted = [b"recreated %d" % number for number in range(40)]
    wanted = sorted([text for texts in said.values() for text in texts] + deleted)
    assert sorted(text for texts in found.values() for text in texts) == wanted
    assert all(len({text.rpartition(b" ")[0] for text in texts}) <= 1 for texts in found.values())
    client = open_client(cluster.service_url)
    consumer = client.subscribe(f"persistent://{NAMED}", "worker", pulsar.ConsumerType.Shared)
    for _ in range(backlog):
        consumer.acknowledge(consumer.receive(RECEIVE_MS))
    with pytest.raises(pulsar.Timeout):
        consumer.receive(200)
    producer = client.create_producer(f"persistent://{NAMED}", batching_enabled=False)
    assert producer.send(b"after").ledger_id() > max(ledger for ids in topics.values() for ledger in ids)
    client.close()
