"""A cluster in processes of its own: changes made offline reach its running ZooKeeper, and its brokers; and a cluster goes on when its
ZooKeeper was lost and starts on an exported snapshot."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pytest

from tests.live.broker import wait_until
from tests.live.cluster import Cluster
from tests.live.conftest import run_toolkit
from tests.live.producing import RECEIVE_MS, open_client
from tests.live.recipe import SETTINGS
from tests.live.test_zookeeper import run

pytestmark = pytest.mark.live
TOPICS = ("public/default/one", "public/default/two")  # in different bundles
MESSAGES = 200
SUBSCRIPTION = "worker"
Place = tuple[int, int]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(
        tmp_path_factory.mktemp("back"), {**SETTINGS, "metadataStoreSessionTimeoutMillis": "12000"}
    ) as cluster:
        cluster.start()
        yield cluster


def place(message: pulsar.Message) -> Place:
    found = message.message_id()
    return found.ledger_id(), found.entry_id()


def produce(client: pulsar.Client, topic: str, texts: list[str]) -> list[Place]:
    producer = client.create_producer(f"persistent://{topic}", batching_enabled=False)
    found = [producer.send(text.encode()) for text in texts]
    producer.close()
    return [(one.ledger_id(), one.entry_id()) for one in found]


def read_all(client: pulsar.Client, topic: str) -> list[tuple[Place, bytes]]:
    reader = client.create_reader(f"persistent://{topic}", pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        message = reader.read_next(RECEIVE_MS)
        found.append((place(message), message.data()))
    reader.close()
    return found


def first_of(client: pulsar.Client, topic: str) -> Place:
    """The first message that the subscription gives."""
    consumer = client.subscribe(f"persistent://{topic}", SUBSCRIPTION)
    found = place(consumer.receive(RECEIVE_MS))
    consumer.close()
    return found


def backlog(cluster: Cluster, topic: str) -> int:
    return int(cluster.get(f"persistent/{topic}/stats")["subscriptions"][SUBSCRIPTION]["msgBacklog"])


def import_it(cluster: Cluster, store: Path, metadata: object, code: int = 0) -> None:
    confs = [word for bookie in cluster.bookies for word in ("--bookie-conf", bookie.configuration)]
    run_toolkit(store, "store", "import", "cluster", "--zookeeper", metadata, *confs, code=code)


def reset(store: Path, topic: str, target: Place) -> None:
    run_toolkit(store, "topics", "reset-cursor", topic, "-s", SUBSCRIPTION, "-m", f"{target[0]}:{target[1]}")


def test_changes_reach_brokers_that_go_on(cluster: Cluster, tmp_path: Path) -> None:
    store = tmp_path / "store"
    client = open_client(cluster.service_url)
    sent = {topic: produce(client, topic, [f"{topic} {number}" for number in range(MESSAGES)]) for topic in TOPICS}
    for topic in TOPICS:
        consumer = client.subscribe(
            f"persistent://{topic}", SUBSCRIPTION, initial_position=pulsar.InitialPosition.Earliest
        )
        for _ in range(MESSAGES // 2):
            last = consumer.receive(RECEIVE_MS)
        consumer.acknowledge_cumulative(last)
        wait_until(lambda: backlog(cluster, topic) == MESSAGES // 2, "the acknowledgement")  # noqa: B023
        consumer.close()
    # A cursor's position is in its ledger until the topic is closed, which a broker does when it ends.
    client.close()
    cluster.stop_broker()
    import_it(cluster, store, cluster.zookeeper_address)
    cluster.start_broker()
    export = ("store", "export", "zookeeper", cluster.zookeeper_address, "--yes")
    client = open_client(cluster.service_url)
    assert first_of(client, TOPICS[1]) == sent[TOPICS[1]][MESSAGES // 2]
    assert [cluster.serves(topic) for topic in TOPICS] == [False, True]
    target = sent[TOPICS[0]][20]
    reset(store, TOPICS[0], target)
    run_toolkit(store, "namespaces", "set-message-ttl", "public/default", "-ttl", "7200")
    report = run_toolkit(store, *export)
    assert {node["path"].rpartition("/")[2] for node in report["nodes"]} == {SUBSCRIPTION, "default"}
    assert [cluster.serves(topic) for topic in TOPICS] == [False, True]
    assert first_of(client, TOPICS[0]) == target
    wait_until(lambda: cluster.get("namespaces/public/default/messageTTL") == 7200, "the broker sees the policy")
    client.close()
    reset(store, TOPICS[1], target := sent[TOPICS[1]][30])
    refused = run(store, *export)
    assert refused.returncode == 3
    assert f"persistent://{TOPICS[1]} ({cluster.service_url})" in refused.stderr
    run_toolkit(store, "store", "undo", "4")
    cluster.put("namespaces/public/default/unload")
    wait_until(lambda: not cluster.serves(TOPICS[1]), "nobody owns the topic's bundle")
    run_toolkit(store, "store", "refresh")
    reset(store, TOPICS[1], target)
    run_toolkit(store, *export)
    client = open_client(cluster.service_url)
    assert first_of(client, TOPICS[1]) == target
    client.close()


def test_a_cluster_goes_on_with_an_exported_snapshot(cluster: Cluster, tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    client = open_client(cluster.service_url)
    said = {topic: read_all(client, topic) for topic in TOPICS}
    assert all(len(rows) >= MESSAGES for rows in said.values())
    client.close()
    cluster.stop()
    import_it(cluster, store, cluster.zookeeper_data)
    target = said[TOPICS[1]][30][0]
    reset(store, TOPICS[1], target)
    report = run_toolkit(store, "store", "export", "zookeeper-snapshot", out)
    put_zookeeper(cluster, out / "version-2")
    cluster.start()
    client = open_client(cluster.service_url)
    assert {topic: read_all(client, topic) for topic in TOPICS} == said
    assert first_of(client, TOPICS[1]) == target
    for topic in TOPICS:
        (new,) = produce(client, topic, ["after"])
        assert new[0] >= report["nextLedgerId"]
        assert read_all(client, topic) == [*said[topic], (new, b"after")]
    client.close()


def consume(cluster: Cluster, client: pulsar.Client, topic: str, count: int) -> Place:
    """Acknowledge COUNT more messages, wait until bookies have that, and return the last one.

    A broker counts an acknowledgement when it comes; in the cursor's ledger, or in ZooKeeper, it is later.
    """

    def written() -> tuple[int, int]:
        cursor = cluster.get(f"persistent/{topic}/internalStats")["cursors"][SUBSCRIPTION]
        return cursor["cursorLedger"], cursor["cursorLedgerLastEntry"]

    consumer = client.subscribe(f"persistent://{topic}", SUBSCRIPTION)
    before, entry = backlog(cluster, topic), written()
    for _ in range(count):
        last = consumer.receive(RECEIVE_MS)
    consumer.acknowledge_cumulative(last)
    wait_until(lambda: backlog(cluster, topic) == before - count, "the acknowledgement")
    wait_until(lambda: written() not in (entry, (-1, -1)), "the entry in the cursor's ledger")
    consumer.close()
    return place(last)


def test_a_zookeeper_that_was_put_back_is_rolled_forward(cluster: Cluster, tmp_path: Path) -> None:
    """Its files of earlier under bookies that went on and were killed: every message that was confirmed is served, and by its topic."""
    store, early, late = tmp_path / "store", "public/default/early", "public/default/late"
    client = open_client(cluster.service_url)
    producer = client.create_producer(f"persistent://{early}", batching_enabled=False)
    for number in range(MESSAGES // 2):
        producer.send(f"early {number}".encode())
    client.subscribe(f"persistent://{early}", SUBSCRIPTION, initial_position=pulsar.InitialPosition.Earliest).close()
    consume(cluster, client, early, 30)
    shutil.copytree(cluster.zookeeper_data / "version-2", tmp_path / "version-2")
    for number in range(MESSAGES // 2, MESSAGES):
        producer.send(f"early {number}".encode())
    acknowledged = consume(cluster, client, early, 40)
    produce(client, late, [f"late {number}" for number in range(MESSAGES)])
    said = {topic: read_all(client, topic) for topic in (*TOPICS, early, late)}
    assert [data for _, data in said[early]] == [f"early {number}".encode() for number in range(MESSAGES)]
    cluster.kill()
    client.close()
    put_zookeeper(cluster, tmp_path / "version-2")
    import_it(cluster, store, cluster.zookeeper_data, code=1)  # it is older than the bookies
    report = run_toolkit(store, "store", "recover")
    assert report[0]["after"]["level"] == "B"
    run_toolkit(store, "store", "export", "zookeeper-snapshot", tmp_path / "out")
    put_zookeeper(cluster, tmp_path / "out" / "version-2")
    cluster.start()
    client = open_client(cluster.service_url)
    for topic in (*TOPICS, early):
        assert read_all(client, topic) == said[topic]
    places = [at for at, _ in said[early]]
    assert places[30] <= first_of(client, early) <= places[places.index(acknowledged) + 1]
    others = [row["topic"].removeprefix("persistent://") for row in report if "lost-and-found" in row.get("topic", "")]
    rows = [row for topic in others for row in read_all(client, topic)]
    assert {row for row in rows if row[1].startswith(b"late")} == {*said[late]}
    assert not [row for row in rows if row[1].startswith(b"early")]
    new = produce(client, early, ["after"])
    assert new[0][0] > max(ledger for rows in said.values() for (ledger, _), _ in rows)
    client.close()


def put_zookeeper(cluster: Cluster, files: Path) -> None:
    """Put FILES in the place of what the ZooKeeper server has, which does not run."""
    shutil.rmtree(cluster.zookeeper_data / "version-2")
    shutil.copytree(files, cluster.zookeeper_data / "version-2")


def test_topics_whose_nodes_are_gone_come_back(cluster: Cluster, tmp_path: Path) -> None:
    """``/managed-ledgers`` and ``/schemas`` are deleted by hand while no broker runs, and made again in the running ZooKeeper."""
    store, early = tmp_path / "store", "public/default/early"
    client = open_client(cluster.service_url)
    consume(cluster, client, early, 10)
    expected = first_of(client, early)
    said = {topic: read_all(client, topic) for topic in (*TOPICS, early)}
    client.close()
    cluster.broker.end(signal.SIGKILL)  # one that ends in order closes cursors and deletes their ledgers
    with cluster.zookeeper() as keeper:
        wait_until(lambda: not keeper.get_children("/loadbalance/brokers"), "the broker's session ends")
        for path in ("/managed-ledgers", "/schemas"):
            keeper.delete(path, recursive=True)
    import_it(cluster, store, cluster.zookeeper_address, code=1)  # it lists ledgers, and no topic
    report = run_toolkit(store, "store", "recover")
    assert report[0]["after"]["level"] == "A"
    run_toolkit(store, "store", "export", "zookeeper", cluster.zookeeper_address, "--yes")
    cluster.start_broker()
    client = open_client(cluster.service_url)
    assert {topic: read_all(client, topic) for topic in said} == said
    assert first_of(client, early) == expected
    client.close()
