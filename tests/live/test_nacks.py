"""What the simulator says of the clients' timers is what the real clients do: when each nacked message comes again."""

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pytest

from bench.nack_simulator import TimerResult, events_of, simulate
from tests.live.broker import BASE_SETTINGS, Broker
from tests.live.distribution import find_distribution
from tests.live.producing import RECEIVE_MS, Sending, open_client, send

pytestmark = pytest.mark.live

TOPIC = "public/default/nacked"
MESSAGES, DELAY_MS, SPACING_MS = 6, 3000, 700
BUCKET_MS = 256  # negativeAckPrecisionBitCnt's default, 8
SLACK_MS = 1000  # what is told apart is 1.5 s and more

Times = list[tuple[int, int]]  # nacked and delivered again, ms


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(find_distribution(), tmp_path_factory.mktemp("nacks") / "pulsar", BASE_SETTINGS) as running:
        running.start()
        for subscription in ("java", "python"):
            running.subscribe(TOPIC, subscription)
        client = open_client(running.service_url)
        send(client, Sending(TOPIC, "nacked", MESSAGES), 1)
        client.close()
        yield running


@contextmanager
def echoes(broker: Broker) -> Iterator[list[int]]:
    """How many ms messages take from a producer to a consumer meanwhile: what a busy machine adds to any delivery."""
    client = open_client(broker.service_url)
    consumer, producer = client.subscribe("public/default/echo", "echo"), client.create_producer("public/default/echo")
    found, stop = list[int](), threading.Event()

    def run() -> None:
        while not stop.wait(0.02):
            begin = time.monotonic()
            producer.send(b"echo")
            consumer.acknowledge(consumer.receive(RECEIVE_MS))
            found.append(int((time.monotonic() - begin) * 1000))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()
        client.close()


def in_python(broker: Broker) -> Times:
    client = open_client(broker.service_url)
    consumer = client.subscribe(
        TOPIC,
        "python",
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        negative_ack_redelivery_delay_ms=DELAY_MS,
    )
    found = [consumer.receive(RECEIVE_MS) for _ in range(MESSAGES)]
    nacked = {}
    for number, message in enumerate(found):
        if number:
            time.sleep(SPACING_MS / 1000)
        nacked[str(message.message_id())] = time.time_ns() // 1_000_000
        consumer.negative_acknowledge(message)
    times = []
    for _ in found:
        again = consumer.receive(60_000)
        times.append((nacked[str(again.message_id())], time.time_ns() // 1_000_000))
        consumer.acknowledge(again)
    client.close()
    return sorted(times)


def in_java(broker: Broker) -> Times:
    source = Path(__file__).with_name("NackTimes.java")
    words = (broker.service_url, TOPIC, MESSAGES, DELAY_MS, SPACING_MS)
    command = ["java", "-cp", f"{broker.distribution}/lib/*", str(source), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines() if line[:1].isdigit() and line.count(" ") == 2]
    return sorted((int(nacked), int(again)) for _, nacked, again in rows)


def simulated(times: Times, timer: str) -> TimerResult:
    start = times[0][0]
    events = events_of([(nacked - start, 1, number, DELAY_MS) for number, (nacked, _) in enumerate(times)])
    return {result.timer: result for result in simulate(events, 8)}[timer]


@pytest.mark.parametrize(("client", "timer"), [(in_python, "cpp"), (in_java, "merged")], ids=["python", "java"])
def test_redelivered_when_simulated(broker: Broker, client: object, timer: str) -> None:
    """Nacks 0.7 s apart arm the Python client's timer of a second anew, so the first comes 1.5 s late; Java's are in time."""
    assert callable(client)
    with echoes(broker) as found:
        times: Times = client(broker)
    assert len(times) == MESSAGES
    slack = range(-SLACK_MS, SLACK_MS + max(found))
    late = [again - nacked - DELAY_MS for nacked, again in times]
    said = simulated(times, timer)
    assert round(max(*late, 0) - said.late.max_ms) in slack, (late, said, slack)
    assert round(sum(max(ms, 0) for ms in late) / MESSAGES - said.late.mean_ms) in slack, (late, said, slack)
    # How early within a bucket is a matter of the client's clock at that moment; 5 ms are ours to take the time.
    assert -min(late) <= (BUCKET_MS - 1 if timer == "merged" else 0) + 5
