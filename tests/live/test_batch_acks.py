"""What ``batch-acks`` says of a subscription is what brokers do: one before 5.0 delivers a batch whole that was acknowledged in part."""

from pathlib import Path

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pytest

from tests.live.broker import BASE_SETTINGS, Broker, free_port
from tests.live.conftest import run_toolkit
from tests.live.distribution import NEXT, VERSION, find_distribution
from tests.live.producing import RECEIVE_MS, SILENCE_MS, open_client

pytestmark = pytest.mark.live

TOPIC, SUBSCRIPTION, BATCH, ACKNOWLEDGED = "public/default/batches", "s", 10, 3
SETTINGS = {**BASE_SETTINGS, "acknowledgmentAtBatchIndexLevelEnabled": "true"}


def receive(broker: Broker, acknowledge: int = 0) -> int:
    """Return how many messages a consumer gets, the first of which it acknowledges."""
    client = open_client(broker.service_url)
    options = {"consumer_type": pulsar.ConsumerType.Shared, "batch_index_ack_enabled": True}
    consumer = client.subscribe(f"persistent://{TOPIC}", SUBSCRIPTION, **options)
    count, limit_ms = 0, RECEIVE_MS
    try:
        while True:
            message = consumer.receive(limit_ms)
            count, limit_ms = count + 1, SILENCE_MS
            if count <= acknowledge:
                consumer.acknowledge(message)
    except pulsar.Timeout:
        return count
    finally:
        client.close()


def fill(broker: Broker) -> None:
    client = open_client(broker.service_url)
    producer = client.create_producer(
        f"persistent://{TOPIC}",
        batching_enabled=True,
        batching_max_messages=BATCH,
        batching_max_publish_delay_ms=60_000,
    )
    for number in range(BATCH):
        producer.send_async(b"%d" % number, lambda result, position: None)
    producer.flush()
    client.close()


@pytest.mark.parametrize("version", [VERSION, NEXT])
def test_a_batch_acknowledged_in_part_comes_again_where_that_is_told(version: str, tmp_path: Path) -> None:
    broker = Broker(find_distribution(version), tmp_path / "pulsar", SETTINGS)
    broker.bookie_port = free_port()
    broker.start()
    try:
        broker.subscribe(TOPIC, SUBSCRIPTION)
        fill(broker)
        assert receive(broker, ACKNOWLEDGED) == BATCH
        assert receive(broker) == BATCH - ACKNOWLEDGED
        broker.stop()
        run_toolkit(tmp_path / "store", "store", "import", "standalone", broker.data)
        found = run_toolkit(tmp_path / "store", "topics", "why", TOPIC, "-s", SUBSCRIPTION)
        is_told = "batch-acks" in {reason["code"] for reason in found["reasons"]}
        broker.start()
        again = receive(broker)
    finally:
        broker.kill()
    assert (is_told, again) == ((True, BATCH) if version == VERSION else (False, BATCH - ACKNOWLEDGED))
