"""A topic and a namespace deleted through the real ``pulsar-admin`` come back: every message, every subscription where it stood.

The topic is created again under its name before that, as by a client that was still connected.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pytest

from tests.live.broker import wait_until
from tests.live.cluster import Cluster
from tests.live.conftest import run_toolkit
from tests.live.producing import RECEIVE_MS, open_client
from tests.live.recipe import SETTINGS, wait_until_settled

pytestmark = pytest.mark.live
MESSAGES = 60
GONE = "public/default/gone"
NAMESPACE = "acme/dead"
TOPICS = (GONE, f"{NAMESPACE}/plain", f"{NAMESPACE}/parts-partition-0", f"{NAMESPACE}/parts-partition-1")
TTL_SECONDS = 86_400
Message = tuple[int, int, bytes]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("undelete"), SETTINGS | {"forceDeleteNamespaceAllowed": "true"}) as cluster:
        cluster.start()
        yield cluster


def admin(cluster: Cluster, *words: str) -> None:
    """Run the real ``pulsar-admin``."""
    program = cluster.distribution / "bin" / "pulsar-admin"
    subprocess.run([str(program), "--admin-url", cluster.web_url, *words], check=True, capture_output=True)


def fill(client: pulsar.Client, topic: str) -> list[Message]:
    """Messages, and two subscriptions: one with holes, one that has acknowledged the first twenty."""
    name = f"persistent://{topic}"
    first = pulsar.InitialPosition.Earliest
    shared = pulsar.ConsumerType.Shared
    consumers = [client.subscribe(name, word, shared, initial_position=first) for word in ("holes", "twenty")]
    producer = client.create_producer(name, batching_enabled=False, schema=pulsar.schema.StringSchema())
    places = [producer.send(f"{topic} {number}") for number in range(MESSAGES)]
    producer.close()
    for consumer in consumers:
        received = [consumer.receive(RECEIVE_MS) for _ in range(MESSAGES)]
        is_twenty = consumer.subscription_name() == "twenty"
        for number, message in enumerate(received):
            if number < 20 if is_twenty else number < 5 or number % 3 == 0:
                consumer.acknowledge(message)
    return [(place.ledger_id(), place.entry_id(), f"{topic} {number}".encode()) for number, place in enumerate(places)]


def read_all(client: pulsar.Client, topic: str) -> list[Message]:
    reader = client.create_reader(f"persistent://{topic}", pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        message = reader.read_next(RECEIVE_MS)
        found.append((message.message_id().ledger_id(), message.message_id().entry_id(), message.data()))
    reader.close()
    return found


def positions(cluster: Cluster, topic: str) -> dict[str, tuple[str, str]]:
    """What the broker says of every subscription: its position and what it acknowledged behind it."""
    cursors: dict[str, Any] = cluster.get(f"persistent/{topic}/internalStats")["cursors"]
    return {
        name: (cursor["markDeletePosition"], cursor["individuallyDeletedMessages"])
        for name, cursor in cursors.items()
        if name in ("holes", "twenty")
    }


def test_they_come_back(cluster: Cluster, tmp_path: Path) -> None:
    store = tmp_path / "store"
    cluster.put("tenants/acme", {"adminRoles": [], "allowedClusters": ["standalone"]})
    cluster.put(f"namespaces/{NAMESPACE}")
    cluster.put(f"persistent/{NAMESPACE}/parts/partitions", 2)
    cluster.post(f"namespaces/{NAMESPACE}/messageTTL", TTL_SECONDS)
    client = open_client(cluster.service_url)
    sent = {topic: fill(client, topic) for topic in TOPICS}
    # A position goes to its cursor ledger each second.
    acknowledged = [f"{ledger}:{entry}" for ledger, entry, _ in sent[TOPICS[-1]][19:20]]
    wait_until(lambda: positions(cluster, TOPICS[-1])["twenty"][0] in acknowledged, "the acknowledgements")
    client.close()
    wait_until_settled(cluster, TOPICS)
    said = {topic: positions(cluster, topic) for topic in TOPICS}
    schema = cluster.get("schemas/public/default/gone/schema")
    admin(cluster, "topics", "delete", "-f", GONE)
    admin(cluster, "namespaces", "delete", "-f", NAMESPACE)
    assert NAMESPACE not in cluster.get("namespaces/acme")
    client = open_client(cluster.service_url)
    name = f"persistent://{GONE}"
    client.subscribe(
        name, "twenty", pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
    ).close()
    producer = client.create_producer(name, batching_enabled=False, schema=pulsar.schema.StringSchema())
    place = producer.send("again")
    client.close()
    again = (place.ledger_id(), place.entry_id(), b"again")
    assert again[0] > max(ledger for ledger, _, _ in sent[GONE])
    # Of a namespace that it serves a broker would not notice that a topic is back. One that starts serves neither; until then its
    # own reader of ``__change_events`` may have come back to a bundle of the deleted one.
    cluster.stop_broker()
    cluster.start_broker()
    wait_until(lambda: not any(map(cluster.serves, TOPICS)), "nobody owns a topic's bundle")
    confs = [word for bookie in cluster.bookies for word in ("--bookie-conf", bookie.configuration)]
    run_toolkit(store, "store", "import", "cluster", "--zookeeper", cluster.zookeeper_address, *confs)
    history = ("--zookeeper", cluster.zookeeper_data)
    gone = {row["topic"]: row for row in run_toolkit(store, "topics", "undelete", *history)}
    assert gone[name]["deleted"] < gone[name]["recreated"]
    run_toolkit(store, "topics", "undelete", GONE, "--in-place", *history)
    sent[GONE].append(again)
    run_toolkit(store, "topics", "undelete", "--namespace", NAMESPACE, "--in-place", *history)
    run_toolkit(store, "store", "export", "zookeeper", cluster.zookeeper_address, "--yes")
    client = open_client(cluster.service_url)
    for topic in TOPICS:
        assert read_all(client, topic) == sent[topic]
        assert positions(cluster, topic) == said[topic]
    assert cluster.get(f"namespaces/{NAMESPACE}/messageTTL") == TTL_SECONDS
    assert cluster.get(f"persistent/{NAMESPACE}/parts/partitions")["partitions"] == 2
    assert cluster.get("schemas/public/default/gone/schema")["data"] == schema["data"]
    consumer = client.subscribe(f"persistent://{GONE}", "twenty", pulsar.ConsumerType.Shared)
    assert consumer.receive(RECEIVE_MS).data() == sent[GONE][20][2]
    consumer.close()
    # And goes on: what is sent now comes behind the old messages.
    producer = client.create_producer(f"persistent://{GONE}", schema=pulsar.schema.StringSchema())
    producer.send("new")
    assert [data for _, _, data in read_all(client, GONE)] == [data for _, _, data in sent[GONE]] + [b"new"]
    client.close()
