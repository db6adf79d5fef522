"""What `store preflight --brokers` says brokers delete, and what a real one deletes that loads every topic while no client connects."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.live.broker import BASE_SETTINGS, Broker, BrokerError, override, wait_until
from tests.live.conftest import run_toolkit
from tests.live.distribution import find_distribution
from tests.live.producing import RECEIVE_MS, open_client

pytestmark = pytest.mark.deep  # three minutes: an age limit is looked at each minute
ROLL = {"managedLedgerMaxEntriesPerLedger": "20"}
DELETES = {
    "brokerDeleteInactiveTopicsEnabled": "true",
    "brokerDeleteInactiveTopicsFrequencySeconds": "2",
    "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": "6",
    "defaultRetentionTimeInMinutes": "0",
    "defaultRetentionSizeInMB": "0",
    "retentionCheckIntervalInSeconds": "2",
    "messageExpiryCheckIntervalInMinutes": "1",
}
UNUSED, CONSUMED, BEHIND, HALF = (f"public/default/{name}" for name in ("unused", "consumed", "behind", "half"))
RETAINED, OLD = "kept/always/unused", "old/age/behind"
TOPICS = (UNUSED, CONSUMED, BEHIND, HALF, RETAINED, OLD)
MESSAGES = 70


def fill(broker: Broker) -> None:
    for namespace in ("kept/always", "old/age"):
        broker.put(f"tenants/{namespace.partition('/')[0]}", {"adminRoles": [], "allowedClusters": ["standalone"]})
        broker.put(f"namespaces/{namespace}", {})
    broker.post("namespaces/kept/always/retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    broker.post("namespaces/old/age/messageTTL", 20)
    client = open_client(broker.service_url)
    for topic, consumed in ((UNUSED, None), (CONSUMED, 70), (BEHIND, 0), (HALF, 45), (RETAINED, None), (OLD, 0)):
        name = f"persistent://{topic}"
        consumer = None if consumed is None else client.subscribe(name, "s")
        producer = client.create_producer(name, batching_enabled=False)
        for _ in range(MESSAGES):
            producer.send(bytes(500))
        for _ in range(consumed or 0):
            message = consumer.receive(RECEIVE_MS)
            consumer.acknowledge(message)
        producer.close()
    client.close()


def sizes(broker: Broker) -> dict[str, list[int]]:
    """The ledgers with entries of each topic that is there; asking loads it."""
    found: dict[str, list[int]] = {}
    for topic in TOPICS:
        try:
            stats = broker.get(f"persistent/{topic}/internalStats")
        except BrokerError:
            continue
        found[topic] = [row["ledgerId"] for row in stats["ledgers"] if row["entries"] > 0]
    return found


def test_brokers_delete_what_was_forecast(tmp_path: Path) -> None:
    with Broker(find_distribution(), tmp_path / "pulsar", {**BASE_SETTINGS, **ROLL}) as broker:
        broker.start()
        fill(broker)
        broker.stop()
        time.sleep(25)  # the TTL of the old namespace
        conf = tmp_path / "pulsar" / "standalone.conf"
        conf.write_text(override(conf.read_text(), DELETES))
        store = tmp_path / "store"
        run_toolkit(store, "store", "import", "standalone", broker.data)
        forecast = run_toolkit(store, "store", "preflight", "--broker-conf", conf)["brokers"]
        rows: dict[str, Any] = {row["topic"].removeprefix("persistent://"): row for row in forecast["rows"]}
        before = {
            topic: [row["ledgerId"] for row in run_toolkit(store, "topics", "stats-internal", topic)["ledgers"]]
            for topic in TOPICS
        }
        broker.start()
        expected = {
            topic: ids[rows[topic]["trimmedLedgers"] + rows[topic]["expiredLedgers"] :] if topic in rows else ids
            for topic, ids in before.items()
            if not (topic in rows and rows[topic]["inactive"])
        }
        assert {topic for topic in TOPICS if topic not in expected} == {UNUSED}
        assert rows[OLD]["expires"] == MESSAGES
        sizes(broker)
        last: list[object] = [None]

        def done() -> bool:
            last[0] = {topic: [one for one in ids if one in before[topic]] for topic, ids in sizes(broker).items()}
            return last[0] == expected

        try:
            wait_until(done, "the deletions", 120)
        except BrokerError:
            assert last[0] == expected
        time.sleep(10)
        assert done()
