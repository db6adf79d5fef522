"""Records scalable topics and version 5 transactions of Pulsar 5.0.1: ``tests/golden/pulsar-5.0.1-five.tar.xz``.

``python -m tests.live.recording_scalable ARCHIVE``: regular and scalable topics are created, filled, split, merged, consumed with holes by
queue and stream consumers, migrated and deleted; transactions are committed, aborted and left open. The broker is asked and stopped
(``clean/``), started again and killed while it is being written (``crashed/``).
"""

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]

from tests.live.broker import BASE_SETTINGS, BROKER_METADATA, Broker, BrokerError, free_port, wait_until
from tests.live.distribution import NEXT, find_distribution, find_java
from tests.live.producing import open_client
from tests.live.recording import pack
from tests.worlds import copy_tree

SETTINGS = {
    **BASE_SETTINGS,
    **BROKER_METADATA,
    "managedLedgerMaxEntriesPerLedger": "40",
    "logSizeLimit": str(1 << 20),
    "journalPreAllocSizeMB": "1",
    "journalMaxSizeMB": "4",
    "scalableTopicAutoScaleEnabled": "false",
    "transactionCoordinatorEnabled": "true",
    "transactionCoordinatorScalableTopicsEnabled": "true",
    "transactionCoordinatorScalableTopicsTimeoutSweepIntervalSeconds": "86400",
    "transactionCoordinatorScalableTopicsGcRetentionSeconds": "86400",
    "transactionCoordinatorScalableTopicsGcIntervalSeconds": "86400",
}
TOPICS = ("acme/five/orders", "acme/five/moved", "acme/five/paid")
_PROGRAM = Path(__file__).with_name("ScalableWorld.java")


class Client:
    """The program that uses the v5 client; ``transactions_seconds``: after which a broker may abort one."""

    def __init__(self, broker: Broker, transactions_seconds: int) -> None:
        java, jars = find_java() / "bin" / "java", broker.distribution / "lib" / "*"
        command = [java, "-Xmx400m", "-cp", jars, _PROGRAM, broker.service_url, transactions_seconds]
        self.process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr, text=True
        )

    def __call__(self, *words: object) -> Any:
        self.tell(*words)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("answer "):
                print(*words, line[:100].strip(), flush=True)
                return json.loads(line.removeprefix("answer "))
        raise BrokerError(f"no answer to {words}")

    def tell(self, *words: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def fill(broker: Broker, client: Client) -> None:
    """Make the topics and what is in them."""
    broker.put("tenants/acme", {"allowedClusters": ["standalone"]})
    broker.put("namespaces/acme/five", {})
    broker.put("scalable/acme/five/orders?numInitialSegments=2")
    for topic in ("gone", "paid"):
        broker.put(f"scalable/acme/five/{topic}?numInitialSegments=1")
    broker.put("persistent/acme/five/plain")
    broker.put("persistent/acme/five/moved")
    broker.subscribe("acme/five/plain", "s1")
    plain = open_client(broker.service_url)
    for topic in ("plain", "moved"):
        producer = plain.create_producer(f"persistent://acme/five/{topic}", schema=pulsar.schema.StringSchema())
        for number in range(50):
            producer.send(f"p{number}", partition_key=f"k{number % 17}")
    plain.close()
    orders = "acme/five/orders"
    client("queue", orders, "q", 0)
    client("stream", orders, "s", 0)
    client("send", orders, 0, 100)
    client("queue", orders, "q", 60)
    client("stream", orders, "s", 40)
    broker.post(f"scalable/{orders}/split/0")
    client("send", orders, 100, 100)
    broker.post(f"scalable/{orders}/merge/3/1")
    client("send", orders, 200, 100)
    client("queue", orders, "q", 120)
    client("stream", orders, "s", 100)
    client("send", "acme/five/gone", 0, 10)
    broker.request("DELETE", "scalable/acme/five/gone?force=true")
    broker.post("scalable/acme/five/moved/migrate")
    client("send", "acme/five/moved", 300, 60)
    client("queue", "acme/five/moved", "q", 30)
    paid = "acme/five/paid"
    client("send", paid, 0, 30)
    client("txn", paid, 1000, 5, "commit", "q1", 4)
    client("txn", paid, 1100, 5, "abort")  # with acknowledgements it never ends in 5.0.1
    client("txn", paid, 1200, 5, "open", "q3", 3)
    client("send", paid, 30, 10)


def ask(broker: Broker, client: Client) -> dict[str, Any]:
    """What the broker says of the topics, and what a queue consumer of a new subscription gets."""
    said: dict[str, Any] = {}
    for topic in TOPICS:
        said[topic] = {"rows": client("read", topic, "all"), "layout": broker.get(f"scalable/{topic}")}
        said[topic]["stats"] = broker.get(f"scalable/{topic}/stats")
    said["namespace"] = broker.get("scalable/acme/five")
    said["plain"] = broker.get("persistent/acme/five/plain/internalStats")
    return said


def record(folder: Path) -> dict[str, Any]:
    """Make the world in FOLDER: FOLDER/clean, FOLDER/crashed and what was said."""
    broker = Broker(find_distribution(NEXT), folder, SETTINGS)
    broker.bookie_port = free_port()
    client = None
    try:
        broker.start()
        client = Client(broker, 600)
        fill(broker, client)
        said: dict[str, Any] = {"version": broker.request("GET", "brokers/version").decode(), "conf": SETTINGS}
        said["topics"] = ask(broker, client)
        said["asked_ms"] = int(time.time() * 1000)
        client.end()
        broker.stop()
        copy_tree(broker.data, folder / "clean")
        broker.start()
        client = Client(broker, 600)
        confirmed: list[int] = []
        client.tell("write", "acme/five/orders", 5000)
        lines = client.process.stdout or ()
        reader = threading.Thread(
            target=lambda: confirmed.extend(int(line) for line in lines if line.strip().isdigit())
        )
        reader.start()
        wait_until(lambda: len(confirmed) > 150, "messages")
        broker.kill()
        client.end()
        reader.join()
        said["confirmed"] = len(confirmed)
        copy_tree(broker.data, folder / "crashed")
    finally:
        if client is not None:
            client.end()
        broker.kill()
    return said


def main() -> None:
    """Record from the command line."""
    archive = Path(sys.argv[1])
    folder = Path(tempfile.mkdtemp(prefix="pulsar-recording-"))
    try:
        said = record(folder / "pulsar")
        pack(folder / "pulsar", said, archive, ("clean", "crashed"))
    finally:
        shutil.rmtree(folder)
    print(f"{archive}: {archive.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
