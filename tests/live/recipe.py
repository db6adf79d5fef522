"""A small live world: what is in it, how it is filled, and what its broker said before it ended.

``python -m tests.live.recipe FOLDER [--seed N] [--broker-metadata] [--kill]`` makes one by hand.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.live.broker import BASE_SETTINGS, BROKER_METADATA, Admin, Broker, wait_until
from tests.live.distribution import find_distribution
from tests.live.on_disk import wait_until_written
from tests.live.producing import Consuming, Sending, consume, open_client, payload_of, read_rows, send
from tests.live.wire import Stamped, StampingProducer

SETTINGS = {
    **BASE_SETTINGS,
    "managedLedgerMaxEntriesPerLedger": "25",
    # more than 5 unacknowledged ranges belong in the cursor ledger, and positions go to disk each second
    "managedLedgerMaxUnackedRangesToPersistInMetadataStore": "5",
    "managedLedgerCursorPositionFlushSeconds": "1",
    "managedLedgerDefaultMarkDeleteRateLimit": "100",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "delayedDeliveryTrackerFactoryClassName": "org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory",
    "delayedDeliveryMinIndexCountPerBucket": "20",
    "logSizeLimit": str(1 << 17),
    "flushInterval": "2000",  # ms: most entries reach the logs, the last ones are only in the journal after a kill
    "dbStorage_writeCacheMaxSizeMb": "32",
    "dbStorage_readAheadCacheMaxSizeMb": "32",
    "managedLedgerCacheSizeMB": "64",
}

PLAIN, BATCHED, STEADY = "acme/orders/plain", "acme/orders/batched", "acme/orders/steady"
PARTITIONED = "acme/orders/parts"
DELAYED = "acme/delayed/reminders"
SKEWED, SKEWED_BATCHED = "acme/iot/skewed", "acme/iot/skewed-batched"
INTERRUPTED = "acme/orders/interrupted"  # being written when a world is killed
NAMESPACES = ("acme/orders", "acme/delayed", "acme/iot", "public/default")

SENDINGS = (
    *(
        Sending(PLAIN, f"plain-{codec.lower()}", 100, codec=codec, keys=20, pace_ms=1)
        for codec in ("NONE", "LZ4", "ZSTD")
    ),
    Sending(BATCHED, "batched-snappy", 400, batch=10, codec="SNAPPY", keys=30),
    Sending(BATCHED, "batched-zlib", 400, batch=7, codec="ZLib", keys=30, event_times=True),
    Sending(STEADY, "steady", 200, event_times=True, pace_ms=4),
    Sending(PARTITIONED, "parts", 150, batch=5, keys=40),
    Sending(DELAYED, "reminders", 80, delay_ms=(600_000, 86_400_000)),
    Sending(DELAYED, "now", 10),
)
CONSUMINGS = (
    Consuming(PLAIN, "cumulative", "Exclusive", 90, "cumulative"),
    Consuming(PLAIN, "holes", "Shared", 160, "holes"),
    Consuming(PLAIN, "reset-cursor-ledger", "Exclusive", 110, "cumulative"),
    Consuming(PLAIN, "reset-holes", "Shared", 200, "holes"),
    Consuming(BATCHED, "batch-holes", "Shared", 500, "runs"),
    Consuming(BATCHED, "fail/over:1", "Failover", 123, "cumulative"),
    Consuming(STEADY, "reset-time", "Exclusive", 150, "cumulative"),
    Consuming(STEADY, "keys", "KeyShared", 60, "holes"),
    Consuming(PARTITIONED, "parts", "Shared", 60, "runs"),
    Consuming(SKEWED, "holes", "Shared", 90, "holes"),
    Consuming(SKEWED_BATCHED, "cumulative", "Exclusive", 120, "cumulative"),
)
UNTOUCHED = ((PLAIN, "new"), (STEADY, "new"), (BATCHED, "new"), (SKEWED, "new"), (DELAYED, "workers"))
_CLOCKS_MS = {"on-time": 0, "fast-clock": 7_200_000, "slow-clock": -259_200_000, "far-future": 77_760_000_000}


class World(Struct, frozen=True):
    """A world whose broker has ended: the broker to start again, and what it said before."""

    broker: Broker
    said: dict[str, Any]  # ask() below, plus "probes" and "confirmed"
    seed: int


def make_world(folder: Path, seed: int, broker_metadata: bool, kill: bool, probes: int) -> World:
    """Start, fill, ask and end one world in ``folder``; ``said.json`` beside its data holds the answers."""
    with Broker(find_distribution(), folder, SETTINGS | (BROKER_METADATA if broker_metadata else {})) as broker:
        broker.start()
        fill(broker, seed)
        said = ask(broker)
        said["probes"] = probe_times(broker, said["rows"], seed, probes)
        said["confirmed"] = kill_while_writing(broker, broker.kill, folder / "confirmed.jsonl") if kill else []
        broker.stop()
    (folder / "said.json").write_text(json.dumps(said))
    return World(broker, said, seed)


def fill(broker: Admin, seed: int) -> None:
    """Topics, subscriptions, messages and acknowledgements; returns when every cursor is on disk."""
    broker.put("tenants/acme", {"adminRoles": [], "allowedClusters": ["standalone"]})
    for namespace in NAMESPACES[:3]:
        broker.put(
            f"namespaces/{namespace}", {"bundles": {"numBundles": 1, "boundaries": ["0x00000000", "0xffffffff"]}}
        )
    broker.post("namespaces/acme/orders/messageTTL", 86_400)
    broker.put(f"persistent/{PARTITIONED}/partitions", 2)
    for topic, subscription in [*((c.topic, c.subscription) for c in CONSUMINGS), *UNTOUCHED]:
        broker.subscribe(topic, subscription)
    client = open_client(broker.service_url)
    consumer = client.subscribe(f"persistent://{DELAYED}", "workers", _shared())  # makes the broker build buckets
    with ThreadPoolExecutor(len(SENDINGS) + 2) as pool:
        jobs = [pool.submit(send, client, sending, seed) for sending in SENDINGS]
        jobs += [pool.submit(send_skewed, broker, topic, seed) for topic in (SKEWED, SKEWED_BATCHED)]
        for job in jobs:
            job.result()
        list(pool.map(lambda consuming: consume(client, consuming, seed), CONSUMINGS))
    consumer.close()
    client.close()
    wait_until_settled(broker)


def _shared() -> Any:
    import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]

    return pulsar.ConsumerType.Shared


def send_skewed(broker: Admin, topic: str, seed: int) -> None:
    """200 entries from producers whose clocks disagree, one of which jumps both ways, some times equal."""
    rng = random.Random(f"{seed} {topic}")
    producers = {name: StampingProducer(broker.port, topic, name) for name in [*_CLOCKS_MS, "jumping"]}
    weights = [30, 20, 20, 1, 10]
    clock = int(time.time() * 1000)
    for _ in range(200):
        name = rng.choices(list(producers), weights)[0]
        clock += rng.choice((0, 0, 1, 5, 40, 900))
        skew = rng.randint(-3_600_000, 3_600_000) if name == "jumping" else _CLOCKS_MS[name]
        count = rng.randint(1, 6) if topic == SKEWED_BATCHED else 1
        payloads = tuple(payload_of(rng) for _ in range(count))
        producers[name].send(Stamped(clock + skew, payloads, batched=topic == SKEWED_BATCHED))
    for producer in producers.values():
        producer.close()


def topics_of(broker: Admin) -> list[str]:
    """Every persistent topic of the world's namespaces, partitions one by one, system topics left out."""
    names = [name for namespace in NAMESPACES for name in broker.get(f"persistent/{namespace}")]
    plain = [name.removeprefix("persistent://") for name in names]
    return sorted(name for name in plain if not name.rsplit("/", 1)[1].startswith("__"))


def wait_until_settled(broker: Admin, topics: Sequence[str] = ()) -> None:
    """Return when no cursor of TOPICS, or of all, has moved for three flush intervals, and all are on disk."""
    seen: tuple[float, object] = (time.monotonic(), None)

    def settled() -> bool:
        nonlocal seen
        keys = ("markDeletePosition", "individuallyDeletedMessages", "cursorLedger", "cursorLedgerLastEntry")
        stats = [broker.get(f"persistent/{topic}/internalStats")["cursors"] for topic in topics or topics_of(broker)]
        now = [[(name, [cursor[key] for key in keys]) for name, cursor in cursors.items()] for cursors in stats]
        if now != seen[1]:
            seen = (time.monotonic(), now)
        return time.monotonic() - seen[0] > 3

    wait_until(settled, "cursors at rest")
    wait_until_written(broker, topics or topics_of(broker))


def ask(broker: Admin) -> dict[str, Any]:
    """What the broker and a reader say about every topic and namespace; loads every topic."""
    client = open_client(broker.service_url)
    said: dict[str, Any] = {"rows": {}, "stats": {}, "internal": {}, "info": {}, "policies": {}}
    for topic in topics_of(broker):
        path = f"persistent/{topic}"
        said["stats"][topic] = broker.get(f"{path}/stats?getPreciseBacklog=true&subscriptionBacklogSize=true")
        said["internal"][topic] = broker.get(f"{path}/internalStats")
        said["info"][topic] = broker.get(f"{path}/internal-info")
        said["rows"][topic] = read_rows(client, topic)
    for namespace in NAMESPACES:
        said["policies"][namespace] = broker.get(f"namespaces/{namespace}")
    client.close()
    return said


def probe_times(broker: Admin, rows: dict[str, list[list[Any]]], seed: int, count: int) -> list[list[Any]]:
    """``count`` fresh questions ``[topic, time ms, [ledger, entry]]`` answered by ``GET messageid/<ms>``."""
    rng = random.Random(f"{seed} probes")
    probes = []
    topics = [topic for topic, found in sorted(rows.items()) if found]
    for number in range(count):
        topic = topics[number % len(topics)]
        times = [row[3] for row in rows[topic]]
        near = rng.choice(times) + rng.choice((-1, 0, 0, 1))
        moment = rng.choice((near, near, near, rng.randint(min(times) - 1000, max(times) + 1000)))
        answer = broker.get(f"persistent/{topic}/messageid/{moment}")
        probes.append([topic, moment, [answer["ledgerId"], answer["entryId"]]])
    return probes


def kill_while_writing(broker: Admin, kill: Callable[[], None], lines: Path) -> list[list[Any]]:
    """``kill`` in the middle of a producer's work, which goes to LINES; the messages that were confirmed to it."""
    writer = [sys.executable, "-m", "tests.live.producing", broker.service_url, INTERRUPTED]
    with lines.open("wb") as out:
        process = subprocess.Popen(writer, stdout=out, stderr=subprocess.DEVNULL, cwd=Path(__file__).parents[2])
        try:
            wait_until(lambda: lines.read_bytes().count(b"\n") > 300, "300 confirmed messages")
            kill()
        finally:
            process.kill()
            process.wait()
    # the last line may be cut: its writer was killed too
    return [json.loads(line) for line in lines.read_text().splitlines(keepends=True) if line.endswith("]\n")]


def main() -> None:
    """Make one world from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--probes", type=int, default=500)
    parser.add_argument("--broker-metadata", action="store_true")
    parser.add_argument("--kill", action="store_true")
    arguments = parser.parse_args()
    begin = time.monotonic()
    world = make_world(
        arguments.folder.absolute(), arguments.seed, arguments.broker_metadata, arguments.kill, arguments.probes
    )
    messages = {topic: len(rows) for topic, rows in world.said["rows"].items()}
    print(json.dumps({"seconds": round(time.monotonic() - begin, 1), "messages": messages}, indent=2))


if __name__ == "__main__":
    main()
