"""Records what Pulsar 5.0.1 does with cursors, and what its v5 client gets of an export: ``tests/golden/changes-5.0.1.json``.

``python -m tests.live.recording_changes FILE``: subscriptions of the recorded world ``five`` are moved by the toolkit's commands, a broker
starts on the export and serves what is left; then it moves cursors itself.
"""

import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]

import pulsar_admin
from pulsar_admin.store.codec.rocksvalue import decode_value, encode_value
from pulsar_admin.store.sources.rocksdb import read_values
from tests.live.broker import Broker, free_port, wait_until
from tests.live.conftest import run_toolkit
from tests.live.distribution import NEXT, find_distribution
from tests.live.producing import open_client
from tests.live.recording_scalable import SETTINGS, Client
from tests.stores import apply_values
from tests.worlds import copy_tree, oracle, world

WORLD = "five"
ORDERS, MOVED, PLAIN = "acme/five/orders", "acme/five/moved", "acme/five/plain"
HALF_MS = sorted(row[3] for row in oracle(WORLD)["topics"][ORDERS]["rows"])[150]
CHANGES = (
    f"topics create-subscription topic://{ORDERS} -s fresh -m earliest",
    f"topics reset-cursor topic://{ORDERS} -s all -t @{HALF_MS}",
    f"topics skip topic://{ORDERS} -s q -n 5",
    f"topics create-subscription segment://{ORDERS}/4000-ffff-4 -s s -m earliest",
    f"topics reset-cursor topic://{ORDERS} -s s -m earliest",
    f"topics expire persistent://{MOVED} -s all -p 9:20",
    f"topics clear-backlog persistent://{MOVED} -s q",
    f"topics skip segment://{MOVED}/0000-ffff-1 -s q -n 7",
)
READ = ((ORDERS, "fresh"), (ORDERS, "all"), (ORDERS, "q"), (ORDERS, "s"), (MOVED, "all"), (MOVED, "q"))
STREAMS = ((ORDERS, "s"),)
_COOKIE = b"/ledgers/cookies/bk-0"


def left(store: Path, topic: str, subscription: str) -> list[str]:
    """Return the values that the toolkit says a subscription still gets."""
    with pulsar_admin.open_store(store) as opened:
        rows = opened.topic(f"topic://{topic}").messages(subscription=subscription, columns=["value"]).rows()
        return [row["value"] for row in rows]


def read(client: Client, topic: str, subscription: str, expected: int) -> list[str]:
    """Return the values that a v5 consumer of a subscription gets."""
    word = "follow" if (topic, subscription) in STREAMS else "read"
    return [row[2] for row in client(word, topic, subscription, expected)]


def moved(data: Path) -> None:
    """Say in the bookie's cookie, on its disk and in the metadata, that it is at DATA."""
    version = data / "bookkeeper" / "current" / "VERSION"
    version.chmod(0o644)
    was = re.search(rb'journalDir: "(.*)/bookkeeper"', version.read_bytes())
    raw = read_values(data / "metadata", [_COOKIE])[_COOKIE]
    assert was is not None
    assert raw is not None
    version.write_bytes(version.read_bytes().replace(was[1], str(data).encode()))
    stat, value = decode_value(raw, "cookie")
    apply_values(data / "metadata", {_COOKIE: encode_value(stat, value.replace(was[1], str(data).encode()))})


def start_on_export(folder: Path, changes: tuple[str, ...] = CHANGES) -> tuple[Path, Broker]:
    """Return a store of the world with the changes made, and a broker that runs on its export."""
    source, store = folder / "source", folder / "store"
    copy_tree(world(WORLD) / "clean", source)
    run_toolkit(store, "store", "import", "standalone", source)
    for line in changes:
        run_toolkit(store, *line.split(), "--yes")
    broker = Broker(find_distribution(NEXT), folder / "pulsar", SETTINGS)
    broker.bookie_port = free_port()
    run_toolkit(store, "store", "export", "standalone", broker.data)
    moved(broker.data)
    broker.start()
    return store, broker


def mutations(broker: Broker) -> Iterator[dict[str, Any]]:
    """Move cursors, and yield each request with the cursor before and after."""
    client = open_client(broker.service_url)
    reader = client.create_reader(f"persistent://{PLAIN}", pulsar.MessageId.earliest)
    times = [reader.read_next(10_000).publish_timestamp() for _ in range(50)]
    reader.close()
    age_s = int(time.time() - times[-1] / 1000)

    def place(ledger: int, entry: int) -> dict[str, int]:
        return {"ledgerId": ledger, "entryId": entry, "partitionIndex": -1, "batchIndex": -1}

    asked: list[tuple[str, str, Any]] = [
        *(("reset-cursor-time", f"resetcursor/{time_ms}", None) for time_ms in (times[0] - 1000, times[17], times[44])),
        *(("reset-cursor-position", "resetcursor", place(*at)) for at in ((7, 12), (14, 3))),
        *(("expire-time", f"expireMessages/{age}", None) for age in (age_s + 3600, age_s // 2)),
        *(("expire-position", "expireMessages", place(*at)) for at in ((7, 30), (14, 5))),
        *(("skip", f"skip/{count}", None) for count in (7, 45)),
        ("skip-all", "skip_all", None),
    ]
    for number, (kind, path, body) in enumerate(asked):
        name = f"m{number}"
        broker.subscribe(PLAIN, name)
        consumer = client.subscribe(f"persistent://{PLAIN}", name, pulsar.ConsumerType.Shared)
        for turn in range(35):
            message = consumer.receive(10_000)
            if turn % 5 in (2, 3):
                consumer.acknowledge(message)
        consumer.close()

        def cursor(name: str = name) -> Any:
            said = broker.get(f"persistent/{PLAIN}/internalStats")["cursors"][name]
            return {key: said[key] for key in ("markDeletePosition", "individuallyDeletedMessages")}

        wait_until(lambda: cursor()["individuallyDeletedMessages"].count("(") == 7, "acknowledgements")
        before = cursor()
        row = {"kind": kind, "topic": PLAIN, "subscription": name, "path": path, "body": body}
        row["at_ms"] = int(time.time() * 1000)
        broker.post(f"persistent/{PLAIN}/subscription/{name}/{path}", body)
        if kind != "expire-time" or "m5" not in name:
            wait_until(lambda: cursor() != before or None, f"{name} {kind}", 20)  # noqa: B023
        time.sleep(1)
        yield row | {"before": before, "after": cursor()}
    client.close()


def of_segments(broker: Broker, topic: str) -> dict[str, dict[str, int]]:
    """Return the backlog of each subscription in each segment."""
    told = broker.get(f"scalable/{topic}/stats")["subscriptions"]
    return {
        name: {number: segment["msgBacklog"] for number, segment in one["segments"].items()}
        for name, one in told.items()
    }


def record(folder: Path) -> dict[str, Any]:
    """Return all that is recorded."""
    store, broker = start_on_export(folder)
    client = None
    try:
        client = Client(broker, 600)
        said: dict[str, Any] = {"version": broker.request("GET", "brokers/version").decode(), "changes": CHANGES}
        said["read"] = [[*one, read(client, *one, len(left(store, *one)))] for one in READ]
        client.end()
        said["mutations"] = [*mutations(broker)]
        broker.put(f"scalable/{ORDERS}/subscriptions/w?type=QUEUE")
        for kind, path in (("seek", f"seek?timestamp={HALF_MS}"), ("clear-backlog", "skip-all")):
            broker.post(f"scalable/{ORDERS}/subscriptions/w/{path}")
            time.sleep(1)
            after = of_segments(broker, ORDERS)["w"]
            said["mutations"].append({"kind": kind, "topic": ORDERS, "subscription": "w", "path": path, "after": after})
    finally:
        if client is not None:
            client.end()
        broker.kill()
    return said


if __name__ == "__main__":
    place = Path(tempfile.mkdtemp(prefix="pulsar-recording-"))
    try:
        Path(sys.argv[1]).write_text(json.dumps(record(place), separators=(",", ":")) + "\n")
    finally:
        shutil.rmtree(place)
