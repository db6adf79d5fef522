"""A cluster that has lived: bookies that collected and compacted, one that was replaced, topics deleted, ZooKeeper with many snapshots.

``python -m tests.live.lived_recipe ARCHIVE [--seed N]`` records ``tests/golden/pulsar-4.0.8-lived.tar.xz``. ``clean/`` has what was left
after SIGKILL under load, ``old/`` a ZooKeeper and a bookie as they were earlier. ``oracle.json`` says what the real processes answered
that were started on ``clean`` again, and what they had said before of what was deleted.
"""

import argparse
import hashlib
import json
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]

from tests.live.broker import BROKER_METADATA, override, wait_until
from tests.live.cluster import DISKS, Cluster, Disks
from tests.live.compacting import Keyed
from tests.live.compacting import fill as fill_keyed
from tests.live.comparing import unacknowledged
from tests.live.producing import RECEIVE_MS, Consuming, Sending, consume, iter_messages, open_client, payload_of, send
from tests.live.recipe import SETTINGS, kill_while_writing, wait_until_settled
from tests.live.recording import pack
from tests.worlds import copy_tree

BROKER_SETTINGS = {
    **SETTINGS,
    **BROKER_METADATA,
    "forceDeleteNamespaceAllowed": "true",
    "managedLedgerMaxEntriesPerLedger": "40",
    "retentionCheckIntervalInSeconds": "3",
    "transactionCoordinatorEnabled": "true",
}
COLLECTING = {
    "gcWaitTime": "6000",
    "journalMaxBackups": "0",
    "journalMaxSizeMB": "2",
    "logSizeLimit": str(1 << 18),
    "majorCompactionInterval": "24",
    "majorCompactionThreshold": "0.8",
    "minorCompactionInterval": "12",
}
REST = {"gcWaitTime": "3600000", "majorCompactionInterval": "86400", "minorCompactionInterval": "7200"}
FOUR = (*DISKS, Disks(("journal",), ("ledgers0", "ledgers1")))
REPLACED, JOINS, OLD_COPY = 1, 3, 2
NAMESPACES = ("acme/app", "acme/short", "acme/early", "acme/late", "acme/orders")
MOVES = tuple(f"acme/app/moves-{number}" for number in range(4))
TICKS, KEYED, DELAYED, SCHEMA = "acme/app/ticks", Keyed("keyed", 200, 20, 5), "acme/app/delayed", "acme/app/schema"
EARLY, AGAIN, CLEARED, TRIMMED = "acme/app/early", "acme/app/again", "acme/app/cleared", "acme/short/trimmed"
LATE = ("acme/late/one", "acme/late/two")
_TRANSACTIONS = "acme/app/txn-in", "acme/app/txn-out"


class Life:
    """A running cluster, and what has been said of it so far."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.seed = seed
        self.random = random.Random(seed)
        self.client = open_client(cluster.service_url)
        self.said: dict[str, Any] = {"seed": seed, "moves": [], "deleted": {}, "marks": {}}

    def send(self, topic: str, name: str, messages: int, **options: Any) -> None:
        """Let a producer of that name send so many messages."""
        send(self.client, Sending(topic, name, messages, **options), self.seed)

    def move(self, times: int) -> None:
        """Move the cursors of MOVES forward and back and note where they stand, from when and until when they stood there."""
        for _ in range(times):
            begin_ms = _now_ms()
            done = {topic: self._move(topic) for topic in MOVES}
            wait_until_settled(self.cluster, MOVES)
            for topic in MOVES:
                cursor = self.cluster.get(f"persistent/{topic}/internalStats")["cursors"]["walker"]
                standing = [cursor[key] for key in ("markDeletePosition", "individuallyDeletedMessages")]
                ledger = [cursor[key] for key in ("cursorLedger", "cursorLedgerLastEntry")]
                self.said["moves"].append([topic, "walker", begin_ms, _now_ms(), *standing, *ledger, done[topic]])

    def _move(self, topic: str) -> str:
        stats = self.cluster.get(f"persistent/{topic}/stats?getPreciseBacklog=true")
        how = self.random.choice(("holes", "holes", "holes", "cumulative", "reset", "reset"))
        if stats["subscriptions"]["walker"]["msgBacklog"] < 40:
            how = "reset"
        messages = self.random.randint(10, 30)
        if how == "reset":
            # A broker writes the ranges that it had, too, and says that it has none: what it writes at the next message is right.
            internal = self.cluster.get(f"persistent/{topic}/internalStats")
            ledger = self.random.choice(internal["ledgers"][:3])
            place = {"ledgerId": ledger["ledgerId"], "entryId": self.random.randrange(ledger["entries"])}
            self.cluster.post(f"persistent/{topic}/subscription/walker/resetcursor", place)
            messages = 1
        kind, way = ("Shared", "holes") if how == "holes" else ("Exclusive", "cumulative")
        consume(self.client, Consuming(topic, "walker", kind, messages, way), self.random.randrange(1 << 30))
        return how

    def mark(self, name: str) -> None:
        """Note what the broker says of every topic now."""
        self.said["marks"][name] = {
            "ms": _now_ms(),
            "internal": {topic: self.cluster.get(f"persistent/{topic}/internalStats") for topic in self.topics()},
        }

    def topics(self) -> list[str]:
        """Every topic that is no system topic."""
        found = []
        for namespace in [name for name in NAMESPACES if name in self.cluster.get("namespaces/acme")]:
            found += [name.removeprefix("persistent://") for name in self.cluster.get(f"persistent/{namespace}")]
        return sorted(name for name in found if not name.rsplit("/", 1)[1].startswith("__"))

    def delete(self, topics: Sequence[str], path: str) -> None:
        """Delete TOPICS by one request, and note what was in them."""
        for topic in topics:
            self.said["deleted"][topic] = {
                "ms": _now_ms(),
                "rows": _read(self.client, topic),
                "internal": self.cluster.get(f"persistent/{topic}/internalStats"),
            }
        self.cluster.request("DELETE", f"{path}?force=true")

    @contextmanager
    def load(self) -> Iterator[None]:
        """A producer that sends a message every 50 ms meanwhile."""
        ended = threading.Event()

        def tick() -> None:
            client = open_client(self.cluster.service_url)
            producer = client.create_producer(f"persistent://{TICKS}", send_timeout_millis=240_000)
            rng = random.Random(self.seed)
            while not ended.wait(0.05):
                producer.send_async(payload_of(rng), lambda *_: None)
            producer.flush()
            client.close()

        thread = threading.Thread(target=tick)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def live_young(life: Life) -> None:
    """While bookies collect and compact: roll-overs, trims, moves, a compaction, transactions, deletes, a bookie replaced."""
    cluster = life.cluster
    cluster.put("tenants/acme", {"adminRoles": [], "allowedClusters": ["standalone"]})
    for namespace in NAMESPACES:
        bundles = {"numBundles": 1, "boundaries": ["0x00000000", "0xffffffff"]}
        cluster.put(f"namespaces/{namespace}", {"bundles": bundles})
    cluster.post("namespaces/acme/short/retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    cluster.put("persistent/acme/app/parts/partitions", 2)
    for topic in (*MOVES, AGAIN, CLEARED, TRIMMED):
        cluster.subscribe(topic, "walker")
    for topic in (EARLY, "acme/early/one", "acme/early/two"):
        life.send(topic, "early", 300)
    with life.load():
        for topic in MOVES:
            life.send(topic, "moving", 200)
        life.delete([EARLY], f"persistent/{EARLY}")
        life.delete(["acme/early/one", "acme/early/two"], "namespaces/acme/early")
        life.send("acme/app/orders", "orders", 250, event_times=True, keys=20)
        life.send("acme/app/batched", "batched", 900, batch=9, codec="LZ4", keys=20)
        life.send("acme/app/parts", "parts", 200, keys=30)
        life.send(TRIMMED, "trimmed", 210)
        consume(life.client, Consuming(TRIMMED, "walker", "Exclusive", 150, "cumulative"), life.seed)
        shared = pulsar.ConsumerType.Shared
        delayed = life.client.subscribe(f"persistent://{DELAYED}", "workers", shared)
        life.send(DELAYED, "delayed", 80, delay_ms=(600_000, 86_400_000))
        delayed.close()
        definition = '{"type":"record","name":"R","fields":[{"name":"v","type":"int"}]}'
        cluster.post(f"schemas/{SCHEMA}/schema", {"type": "JSON", "schema": definition, "properties": {}})
        life.send(SCHEMA, "schema", 30)
        cluster.post(f"persistent/{SCHEMA}/messageTTL?messageTTL=4321")
        fill_keyed(life.client, KEYED, life.seed, cluster.folder)
        cluster.put(f"persistent/{KEYED.topic}/compaction")
        compacted = f"persistent/{KEYED.topic}/compaction"
        wait_until(lambda: cluster.get(compacted)["status"] == "SUCCESS", "compaction")
        _transact(life)
        life.move(3)
        life.mark("collecting")
        _replace_bookie(life)
        life.move(3)
        life.send("acme/app/orders", "orders", 120)
    wait_until_settled(cluster, MOVES)
    life.mark("replaced")


def _transact(life: Life) -> None:
    life.send(_TRANSACTIONS[0], "in", 60)
    cluster, (incoming, outgoing) = life.cluster, (f"persistent://{topic}" for topic in _TRANSACTIONS)
    line = f"transaction -u {cluster.service_url} -au {cluster.web_url} --topics-c {incoming} --topics-p {outgoing} -ss perf -sp Earliest"
    line += " -ntxn 8 -nmp 4 -nmc 2 -txnRate 20 -time 10 -threads 1"
    for extra in ("", " -abort"):
        command = [str(cluster.distribution / "bin" / "pulsar-perf"), *f"{line}{extra}".split()]
        with (cluster.folder / "transactions.log").open("ab") as log:
            subprocess.run(command, stdout=log, stderr=log, timeout=240, check=False)


def _replace_bookie(life: Life) -> None:
    """Under load: one bookie joins, another one is killed, its ledgers are copied by BookKeeper's shell, its disks go."""
    cluster = life.cluster
    cluster.start_bookies(JOINS)
    gone = cluster.bookies[REPLACED]
    gone.daemon.end(signal.SIGKILL)
    with cluster.zookeeper() as keeper:
        wait_until(
            lambda: not keeper.exists(f"/ledgers/available/{gone.bookie_id}"), "the killed bookie's session ends"
        )
    life.said["recovered"] = gone.bookie_id
    cluster.shell(0, "recover", "-force", "-deleteCookie", gone.bookie_id)
    for directory in (*gone.journals, *gone.ledgers, *gone.indexes):
        shutil.rmtree(directory)


def live_old(life: Life, old: Path) -> None:
    """While nothing is collected: a topic made again, a namespace deleted, a backlog cleared, a copy of ZooKeeper's directory."""
    cluster = life.cluster
    with life.load():
        life.send(AGAIN, "again", 130)
        consume(life.client, Consuming(AGAIN, "walker", "Shared", 100, "holes"), life.seed)
        life.send(CLEARED, "cleared", 90)
        consume(life.client, Consuming(CLEARED, "walker", "Shared", 40, "holes"), life.seed)
        for topic in LATE:
            cluster.subscribe(topic, "walker")
            life.send(topic, "late", 110)
            consume(life.client, Consuming(topic, "walker", "Exclusive", 50, "cumulative"), life.seed)
        life.move(2)
        wait_until_settled(cluster, (*LATE, AGAIN, CLEARED))
        life.mark("whole")
        copy_tree(cluster.zookeeper_data, old / "zookeeper")
        life.delete([AGAIN], f"persistent/{AGAIN}")
        cluster.subscribe(AGAIN, "walker")
        life.send(AGAIN, "again", 60)
        life.delete(LATE, "namespaces/acme/late")
        life.said["cleared"] = _now_ms()
        cluster.post(f"persistent/{CLEARED}/subscription/walker/skip_all")
        life.move(2)
        life.send("acme/app/orders", "orders", 60)
    wait_until_settled(cluster, (*MOVES, CLEARED, AGAIN))
    life.mark("deleted")


def record(folder: Path, seed: int) -> dict[str, Any]:
    """Make the world in FOLDER; what was said."""
    with Cluster(folder / "cluster", BROKER_SETTINGS, ({**COLLECTING},) * len(FOUR), FOUR) as cluster:
        configuration = cluster.folder / "zookeeper.conf"
        configuration.write_text(
            override(configuration.read_text(), {"snapCount": "100", "autopurge.purgeInterval": "0"})
        )
        stay = [number for number in range(len(FOUR)) if number != REPLACED]
        old, clean = folder / "old", folder / "clean"
        cluster.start(*(number for number in range(len(FOUR)) if number != JOINS))
        life = Life(cluster, seed)
        live_young(life)
        life.client.close()
        cluster.stop()
        for number in stay:
            bookie = cluster.bookies[number]
            text = bookie.configuration.read_text()
            bookie.configuration.write_text(override(text, REST))
        _copy_bookie(cluster, OLD_COPY, old)
        cluster.start(*stay)
        life.client = open_client(cluster.service_url)
        live_old(life, old)
        life.client.close()

        life.said["confirmed"] = kill_while_writing(cluster, cluster.kill, folder / "confirmed.jsonl")
        copy_tree(cluster.zookeeper_data, clean / "zookeeper")
        for number in stay:
            _copy_bookie(cluster, number, clean)
        said = life.said
        said["bookies"] = {f"bookie{number}": cluster.bookies[number].bookie_id for number in stay}
        (folder / "said.json").write_text(json.dumps(said))
        cluster.start(*stay)
        life.client = open_client(cluster.service_url)
        # The first topic with transactions that a broker loads after a crash may not be served for a minute.
        said["rows"] = {topic: wait_until(partial(try_to_read, life.client, topic), topic) for topic in life.topics()}
        life.mark("again")
        for namespace in ("acme/app", "acme/short"):
            said.setdefault("policies", {})[namespace] = cluster.get(f"namespaces/{namespace}")
        said["unread"] = {topic: _unread(life, topic) for topic in (*MOVES, AGAIN, CLEARED)}
        life.client.close()
        cluster.stop()
    return said


def _read(client: pulsar.Client, topic: str) -> list[list[Any]]:
    """Every message of one topic: ledger, entry, batch index or -1, publish ms, key, size, SHA-1 of the payload, producer."""
    return [
        [
            *(message.message_id().ledger_id(), message.message_id().entry_id(), message.message_id().batch_index()),
            *(message.publish_timestamp(), message.partition_key(), len(message.data())),
            *(hashlib.sha1(message.data()).hexdigest(), message.producer_name()),
        ]
        for message in iter_messages(client, topic)
    ]


def try_to_read(client: pulsar.Client, topic: str) -> list[list[Any]] | None:
    """Return every message of one topic as readers get them; None if one does not come.

    Until a broker has read the topic's snapshot of aborted transactions, the client gets ``UnknownError``.
    """
    with suppress(pulsar.Timeout, pulsar.UnknownError):
        return _read(client, topic)
    return None


def _unread(life: Life, topic: str) -> list[list[int]]:
    """Every message that the subscription of TOPIC still gets: ledger, entry, batch index."""
    rows = life.said["rows"][topic]
    waiting = unacknowledged(rows, life.said["marks"]["again"]["internal"][topic]["cursors"]["walker"])
    consumer = life.client.subscribe(f"persistent://{topic}", "walker", pulsar.ConsumerType.Shared)
    found = [consumer.receive(RECEIVE_MS).message_id() for row in rows if (row[0], row[1]) in waiting]
    consumer.close()
    return sorted([place.ledger_id(), place.entry_id(), place.batch_index()] for place in found)


def _copy_bookie(cluster: Cluster, number: int, target: Path) -> None:
    """Copy a bookie's directories, and nothing beside them."""
    bookie = cluster.bookies[number]
    for directory in (*bookie.journals, *bookie.ledgers, *bookie.indexes):
        copy = target / directory.relative_to(cluster.folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy_tree(directory, copy)


def main() -> None:
    """Record from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--seed", type=int, default=41)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pulsar-lived-"))  # what fails is left to be looked at
    said = record(folder, arguments.seed)
    pack(folder, said, arguments.archive, ("clean", "old"))
    shutil.rmtree(folder)
    messages = sum(map(len, said["rows"].values()))
    print(
        f"{arguments.archive}: {arguments.archive.stat().st_size:,} bytes, {messages:,} messages, {len(said['moves'])} moves"
    )


if __name__ == "__main__":
    main()
