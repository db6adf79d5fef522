"""What the real clients do to a live world: seeded producers, readers and acknowledging consumers.

``python -m tests.live.producing SERVICE_URL TOPIC`` writes to TOPIC until it is killed, one JSON line
``[ledger, entry, batch index, SHA-1]`` for every message the broker confirmed.
"""

import datetime
import hashlib
import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]
from msgspec import Struct

RECEIVE_MS = 60_000  # only what never comes takes it
SILENCE_MS = 2000


class Sending(Struct, frozen=True):
    """One producer's work on one topic."""

    topic: str
    producer: str
    messages: int
    batch: int = 0  # messages a batch; 0 sends each alone
    codec: str = "NONE"
    keys: int = 0  # distinct partition keys; 0 sends none
    event_times: bool = False
    delay_ms: tuple[int, int] | None = None  # range of deliver-after
    pace_ms: int = 0  # least time between two messages, so that publish times differ


class Consuming(Struct, frozen=True):
    """One consumer's work: ``cumulative`` acknowledges once; ``holes`` about every second message, ``runs`` in runs."""

    topic: str
    subscription: str
    kind: str  # a name of pulsar.ConsumerType
    messages: int
    acknowledge: str


def open_client(service_url: str) -> pulsar.Client:
    """A client that prints nothing but errors."""
    return pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def payload_of(rng: random.Random) -> bytes:
    """Between 20 and 400 bytes, compressible as real payloads are."""
    return rng.randbytes(rng.randint(10, 40)) * rng.randint(2, 10)


def send(client: pulsar.Client, sending: Sending, seed: int) -> None:
    """Publish all of it and wait for the broker's confirmation of each message."""
    rng = random.Random(f"{seed} {sending.topic} {sending.producer}")
    producer = client.create_producer(
        f"persistent://{sending.topic}",
        producer_name=sending.producer,
        batching_enabled=sending.batch > 0,
        batching_max_messages=sending.batch or 1000,
        batching_max_publish_delay_ms=20,
        compression_type=getattr(pulsar.CompressionType, sending.codec),
        block_if_queue_full=True,
    )
    results: list[object] = []
    for number in range(sending.messages):
        producer.send_async(payload_of(rng), lambda result, _: results.append(result), **_options(sending, rng, number))
        if sending.pace_ms:
            time.sleep(sending.pace_ms / 1000)
    producer.flush()
    producer.close()
    assert results == [pulsar.Result.Ok] * sending.messages, f"{sending}: {set(results)}"


def _options(sending: Sending, rng: random.Random, number: int) -> dict[str, Any]:
    options: dict[str, Any] = {"properties": {"number": str(number), "producer": sending.producer}}
    if sending.keys:
        options["partition_key"] = f"key-{rng.randrange(sending.keys):03}"
    if sending.event_times:
        options["event_timestamp"] = int(time.time() * 1000) - rng.randrange(86_400_000)
    if sending.delay_ms:
        options["deliver_after"] = datetime.timedelta(milliseconds=rng.randint(*sending.delay_ms))
    return options


def consume(client: pulsar.Client, consuming: Consuming, seed: int) -> None:
    """Receive that many messages and acknowledge them in that way."""
    rng = random.Random(f"{seed} {consuming.topic} {consuming.subscription}")
    consumer = client.subscribe(
        f"persistent://{consuming.topic}",
        consuming.subscription,
        getattr(pulsar.ConsumerType, consuming.kind),
        initial_position=pulsar.InitialPosition.Earliest,
        batch_index_ack_enabled=True,
    )
    message = None
    turn = {"cumulative": 0.0, "holes": 0.5, "runs": 0.1}[consuming.acknowledge]
    acknowledging = False
    for _ in range(consuming.messages):
        message = consumer.receive(RECEIVE_MS)
        acknowledging ^= rng.random() < turn
        if acknowledging:
            consumer.acknowledge(message)
    if consuming.acknowledge == "cumulative" and message is not None:
        consumer.acknowledge_cumulative(message)
    consumer.close()  # sends the acknowledgements that were grouped


def iter_messages(client: pulsar.Client, topic: str) -> Iterator[pulsar.Message]:
    """Every message of one topic, as a reader from its beginning gets them."""
    reader = client.create_reader(f"persistent://{topic}", pulsar.MessageId.earliest)
    while reader.has_message_available():
        yield reader.read_next(RECEIVE_MS)
    reader.close()


def read_rows(client: pulsar.Client, topic: str) -> list[list[Any]]:
    """Every message of one topic: ledger, entry, batch index or -1, publish ms, SHA-1 of the payload, producer."""
    rows = []
    for message in iter_messages(client, topic):
        row = _row(message.message_id(), message.data())
        rows.append([*row[:3], message.publish_timestamp(), row[3], message.producer_name()])
    return rows


def read_payloads(client: pulsar.Client, topic: str) -> list[bytes]:
    """The payload of every message of one topic."""
    return [message.data() for message in iter_messages(client, topic)]


def receive_first(client: pulsar.Client, topic: str, subscription: str, *, comes: bool = True) -> list[Any] | None:
    """The first message a consumer of that subscription gets, not acknowledged: ledger, entry, batch index, SHA-1.

    The batch index is -1 outside batches. None when nothing comes: within two seconds where COMES says that nothing should.
    """
    consumer = client.subscribe(f"persistent://{topic}", subscription, pulsar.ConsumerType.Exclusive)
    try:
        message = consumer.receive(RECEIVE_MS if comes else SILENCE_MS)
    except pulsar.Timeout:
        return None
    finally:
        consumer.close()
    return _row(message.message_id(), message.data())


def _row(position: pulsar.MessageId, payload: bytes) -> list[Any]:
    return [position.ledger_id(), position.entry_id(), position.batch_index(), hashlib.sha1(payload).hexdigest()]


def write_until_killed(service_url: str, topic: str) -> None:
    """Publish batches and print each confirmed message, so that a killer of the broker knows what must be there."""
    rng = random.Random(topic)
    producer = open_client(service_url).create_producer(
        f"persistent://{topic}", batching_enabled=True, batching_max_messages=7, block_if_queue_full=True
    )
    lock = threading.Lock()

    def confirm(payload: bytes) -> Any:
        def confirmed(result: object, position: pulsar.MessageId) -> None:
            if result == pulsar.Result.Ok:
                with lock:
                    print(json.dumps(_row(position, payload)), flush=True)

        return confirmed

    while True:
        payload = payload_of(rng)
        producer.send_async(payload, confirm(payload))
        time.sleep(0.001)


if __name__ == "__main__":
    write_until_killed(sys.argv[1], sys.argv[2])
