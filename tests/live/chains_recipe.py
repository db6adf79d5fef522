"""Topics that are hard to tell apart by their entries: names of producers that several topics have, numbers that coincide.

``python -m tests.live.chains_recipe ARCHIVE`` records ``tests/golden/pulsar-4.0.8-chains.tar.xz``: what is left of three bookies, and
``oracle.json`` with ``topics``, topic → its ledgers in order. A topic that was deleted and made again is two: ``NAME`` and ``NAME#1``.
Each topic is there twice: in ``public/default`` nobody consumes, in ``public/consumed`` a subscription acknowledges what comes.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]
from msgspec import Struct, field

from tests.live.broker import wait_until
from tests.live.cluster import Cluster
from tests.live.producing import RECEIVE_MS, open_client
from tests.live.recording import pack
from tests.live.wire import Stamped, StampingProducer
from tests.worlds import copy_tree

LEDGER = 20  # entries
SETTINGS = {
    "managedLedgerMaxEntriesPerLedger": str(LEDGER),
    "managedLedgerMaxUnackedRangesToPersistInMetadataStore": "5",
    "managedLedgerCursorPositionFlushSeconds": "1",
    "managedLedgerDefaultMarkDeleteRateLimit": "100",
    "systemTopicEnabled": "false",
    "topicLevelPoliciesEnabled": "false",
}
BOOKIE_SETTINGS = {"journalPreAllocSizeMB": "1", "logSizeLimit": str(1 << 20)}
ALONE, CONSUMED = NAMESPACES = ("public/default", "public/consumed")


class Writer(Struct):
    """Writes entries that say of themselves what they are told to, into topics of one namespace."""

    cluster: Cluster
    namespace: str
    stack: ExitStack
    client: pulsar.Client | None  # of what consumes
    topics: set[str] = field(default_factory=set)
    producers: dict[tuple[str, str], StampingProducer] = field(default_factory=dict)

    def send(self, topic: str, name: str, sequence_id: int, messages: int = 1, replicated_from: str = "") -> None:
        """Write one entry: MESSAGES of producer NAME from SEQUENCE_ID on."""
        key = topic, name
        if key not in self.producers:
            self.open(topic)
            self.producers[key] = StampingProducer(self.cluster.port, f"{self.namespace}/{topic}", name)
            self.stack.callback(self.producers[key].close)
        payloads = tuple(b"%s %d" % (topic.encode(), sequence_id + number) for number in range(messages))
        now_ms = int(time.time() * 1000)
        self.producers[key].send(Stamped(now_ms, payloads, messages > 1, sequence_id, replicated_from))

    def open(self, topic: str) -> None:
        """Have the broker serve TOPIC, and what consumes begin."""
        if topic in self.topics:
            return
        self.topics.add(topic)
        self.cluster.put(f"persistent/{self.namespace}/{topic}")
        if self.client is not None:
            consumer = self.client.subscribe(
                f"persistent://{self.namespace}/{topic}",
                "worker",
                pulsar.ConsumerType.Shared,
                message_listener=lambda consumer, message: consumer.acknowledge(message),
            )
            self.stack.callback(consumer.close)


def fill(cluster: Cluster, namespaces: Sequence[str]) -> dict[str, list[int]]:
    """Write it all into NAMESPACES; topic → ledgers with entries, and the one that is open."""
    found: dict[str, list[int]] = {}
    for namespace in {*namespaces} - {ALONE}:
        cluster.put(f"namespaces/{namespace}")
    client = open_client(cluster.service_url)
    for namespace in namespaces:
        with ExitStack() as stack:
            writer = Writer(cluster, namespace, stack, client if namespace == CONSUMED else None)
            for step in (_blocks, _turns, _lockstep, _replicated, _restarted, _days, _deduplicated, _batches):
                step(writer)
            time.sleep(1.5)  # cursors are flushed each second
        found |= _recreated(cluster, client, namespace)
    _ordinary(cluster, client)
    client.close()
    for namespace in namespaces:
        for name in cluster.get(f"persistent/{namespace}"):
            topic = name.removeprefix("persistent://")
            found[topic] = _ledgers(cluster, topic)
    return found


def _ledgers(cluster: Cluster, topic: str) -> list[int]:
    ledgers = cluster.get(f"persistent/{topic}/internalStats")["ledgers"]
    return [one["ledgerId"] for one in ledgers if one["entries"] > 0 or one is ledgers[-1]]


def _blocks(writer: Writer) -> None:
    """One counter of the application over two topics, in blocks that end where ledgers end."""
    for block in range(6):
        for number in range(LEDGER):
            writer.send(f"blocks-{block % 2}", "counting", block * LEDGER + number)


def _turns(writer: Writer) -> None:
    """One counter of the application over two topics in turns."""
    for number in range(4 * LEDGER):
        writer.send(f"turns-{number % 2}", "alternating", number)


def _lockstep(writer: Writer) -> None:
    """Partitions of one producer, all with its name, each with numbers of its own; and two producers that go in step."""
    for number in range(2 * LEDGER + 5):
        for topic in range(3):
            writer.send(f"step-{topic}", "standalone-0-7777", number)
            writer.send(f"pair-{topic}", "left" if number % 2 else "right", number // 2)


def _replicated(writer: Writer) -> None:
    """What another cluster's producer sent, and one of that name here, which goes on where that ends."""
    for number in range(2 * LEDGER):
        writer.send("from-west", "west-0-1", number, replicated_from="west")
    for number in range(2 * LEDGER, 4 * LEDGER):
        writer.send("like-west", "west-0-1", number)


def _restarted(writer: Writer) -> None:
    """A producer that begins at 0 again in every ledger, and its namesake."""
    for _ in range(3):
        for topic in range(2):
            for number in range(LEDGER):
                writer.send(f"restarted-{topic}", "again", number)


def _days(writer: Writer) -> None:
    """A topic a day, and a counter that goes on."""
    for day in range(3):
        for number in range(LEDGER):
            writer.send(f"day-{day}", "daily", day * LEDGER + number)


def _deduplicated(writer: Writer) -> None:
    """Two topics with deduplication and producers of one name; what is sent again is not written again."""
    for topic in ("once-0", "once-1", "alone"):
        writer.open(topic)
    writer.cluster.post(f"namespaces/{writer.namespace}/deduplication", True)
    for number in range(3 * LEDGER):
        for topic in range(2):
            writer.send(f"once-{topic}", "source", number)
            if number % 7 == topic:
                writer.send(f"once-{topic}", "source", number)
    for number in range(2 * LEDGER):
        writer.send("alone", "source-of-one", number)
    writer.cluster.post(f"namespaces/{writer.namespace}/deduplication", False)


def _batches(writer: Writer) -> None:
    """Batches of several sizes, on two topics of which one counts on where the other ends."""
    at = 0
    for topic in range(2):
        for number in range(2 * LEDGER):
            size = 1 + number % 5
            writer.send(f"batches-{topic}", "packing", at, size)
            at += size


def _recreated(cluster: Cluster, client: pulsar.Client, namespace: str) -> dict[str, list[int]]:
    """A topic that is deleted and made again under its name, whose producer counts on."""
    found = {}
    topic = f"{namespace}/recreated"
    for life in range(2):
        with ExitStack() as stack:
            writer = Writer(cluster, namespace, stack, client if namespace == CONSUMED else None)
            for number in range(2 * LEDGER):
                writer.send("recreated", "survivor", life * 2 * LEDGER + number)
            time.sleep(1.5)
        if life == 0:
            found[f"{topic}#1"] = _ledgers(cluster, topic)
            wait_until(lambda: not cluster.get(f"persistent/{topic}/stats")["publishers"], "the producer is gone")
            cluster.request("DELETE", f"persistent/{topic}?force=true")
    return found


ORDINARY = 4


def _ordinary(cluster: Cluster, client: pulsar.Client) -> None:
    """Topics as most are: producers with the names that brokers gave, consumers that acknowledge."""
    producers = [
        client.create_producer(f"persistent://{ALONE}/ordinary-{number}", batching_enabled=False)
        for number in range(ORDINARY)
    ]
    for number in range(5 * LEDGER + 3):
        for topic, producer in enumerate(producers):
            producer.send_async(b"ordinary %d %d" % (topic, number), None)
    for producer in producers:
        producer.flush()
    for topic in range(2):
        consumer = client.subscribe(
            f"persistent://{ALONE}/ordinary-{topic}",
            "worker",
            pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        for number in range(4 * LEDGER):
            message = consumer.receive(RECEIVE_MS)
            if number % 3 or number < LEDGER:
                consumer.acknowledge(message)
        consumer.close()
    time.sleep(1.5)  # cursors are flushed each second


def made(folder: Path, namespaces: Sequence[str] = NAMESPACES) -> Iterator[tuple[Cluster, dict[str, list[int]]]]:
    """A cluster in FOLDER that was filled, running, and its topics' ledgers; killed at the end."""
    with Cluster(folder, SETTINGS, ({**BOOKIE_SETTINGS},) * 3) as cluster:
        cluster.start()
        yield cluster, fill(cluster, namespaces)


def main() -> None:
    """Record from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    archive = parser.parse_args().archive
    folder = Path(tempfile.mkdtemp(prefix="pulsar-recording-"))
    try:
        said: dict[str, Any] = {}
        for cluster, topics in made(folder / "cluster"):
            said |= {"topics": topics, "bookies": [bookie.bookie_id for bookie in cluster.bookies]}
            cluster.stop_broker()
            cluster.stop_bookies()
        for bookie in cluster.bookies:
            copy_tree(bookie.folder, folder / "clean" / bookie.folder.name)
        for log in (folder / "clean").glob("bookie*/*.*"):
            log.unlink()
        pack(folder, said, archive)
    finally:
        shutil.rmtree(folder)
    print(f"{archive}: {archive.stat().st_size:,} bytes, {json.dumps(said['topics'])}")


if __name__ == "__main__":
    main()
