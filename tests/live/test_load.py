"""Entries loaded offline and exported: real readers get them from the real broker, which then goes on behind them."""

import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pytest
from msgspec import Struct

from pulsar_admin.store.model.publish_times import BEGIN, END
from tests.live.broker import BASE_SETTINGS, BROKER_METADATA, Broker
from tests.live.conftest import run_toolkit
from tests.live.distribution import find_distribution
from tests.live.producing import RECEIVE_MS, Sending, open_client, send

pytestmark = pytest.mark.live

SETTINGS = {**BASE_SETTINGS, **BROKER_METADATA, "managedLedgerMaxEntriesPerLedger": "25"}
SINGLE, BATCHED = "public/default/single", "public/default/batched"
COPY, STAMPED = "public/default/copy", "public/default/stamped"

Row = tuple[int, int, int, str, str]  # ledger, entry, batch index, key, SHA-1


class Loaded(Struct, frozen=True):
    """A broker started on an export, the store it came from, and what ``topics read`` says of every topic."""

    broker: Broker
    store: Path
    rows: dict[str, list[Row]]


def _toolkit_rows(store: Path, topic: str) -> list[Row]:
    command = [sys.executable, "-m", "pulsar_admin", "--store", str(store), "-o", "jsonl", "topics", "read", topic]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in finished.stdout.splitlines()]
    return [(row["ledgerId"], row["entryId"], row["batchIndex"], row["key"] or "", row["sha1"]) for row in rows]


def _real_rows(client: Any, topic: str) -> list[Row]:  # Any: pulsar.Client
    reader = client.create_reader(f"persistent://{topic}", pulsar.MessageId.earliest)
    rows = []
    while reader.has_message_available():
        message = reader.read_next(RECEIVE_MS)
        place, digest = message.message_id(), hashlib.sha1(message.data()).hexdigest()
        rows.append((place.ledger_id(), place.entry_id(), place.batch_index(), message.partition_key(), digest))
    reader.close()
    return rows


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """Dumps of two topics, loaded behind one of them, into a new topic, and into one with broker metadata of ours."""
    seed = time.time_ns() % 1_000_000
    print(f"\nseed {seed}")
    folder = tmp_path_factory.mktemp("load")
    with Broker(find_distribution(), folder / "pulsar", SETTINGS) as broker:
        broker.start()
        yield _load(broker, folder, seed)


def _load(broker: Broker, folder: Path, seed: int) -> Loaded:
    client = open_client(broker.service_url)
    send(client, Sending(SINGLE, "one", 90, keys=7), seed)
    send(client, Sending(BATCHED, "two", 400, batch=8, codec="LZ4", keys=5), seed)
    broker.subscribe(SINGLE, "waits")
    client.close()
    broker.stop()

    store = folder / "store"
    run_toolkit(store, "store", "import", "standalone", broker.data)
    for topic, name in ((SINGLE, "a"), (BATCHED, "b")):
        run_toolkit(store, "topics", "dump", topic, "--level", "entries", "--directory", folder / name)
    run_toolkit(store, "topics", "load", folder / "a")
    run_toolkit(store, "topics", "load", folder / "b", "--topic", COPY)
    run_toolkit(store, "topics", "load", folder / "b", "--topic", STAMPED, "--interceptors", "timestamp,index")
    rows = {topic: _toolkit_rows(store, topic) for topic in (SINGLE, BATCHED, COPY, STAMPED)}
    run_toolkit(store, "store", "export", "standalone", folder / "exported", "--annotate")
    # A bookie's cookie holds its directory: the copy starts where the data was made.
    shutil.rmtree(broker.data)
    shutil.move(folder / "exported", broker.data)
    broker.start()
    return Loaded(broker, store, rows)


def test_real_readers_get_every_entry(loaded: Loaded) -> None:
    assert [len(rows) for rows in loaded.rows.values()] == [180, 400, 400, 400]
    client = open_client(loaded.broker.service_url)
    for topic, rows in loaded.rows.items():
        assert _real_rows(client, topic) == rows, topic
    assert [row[3:] for row in loaded.rows[SINGLE][90:]] == [row[3:] for row in loaded.rows[SINGLE][:90]]
    client.close()


def test_the_broker_counts_what_the_toolkit_counts(loaded: Loaded) -> None:
    for topic in loaded.rows:
        stats = loaded.broker.get(f"persistent/{topic}/internalStats")
        ours = run_toolkit(loaded.store, "topics", "stats-internal", topic)
        assert (stats["numberOfEntries"], stats["totalSize"]) == (ours["numberOfEntries"], ours["totalSize"])
    backlog = loaded.broker.get(f"persistent/{SINGLE}/stats")["subscriptions"]["waits"]["msgBacklog"]
    assert backlog == 180


def test_the_broker_goes_on_behind_them(loaded: Loaded) -> None:
    """New ledgers get larger ids, indexes go on, and after another import everything is in its place."""
    client = open_client(loaded.broker.service_url)
    for topic, rows in loaded.rows.items():
        last = max(row[0] for row in rows)
        producer = client.create_producer(f"persistent://{topic}")
        sent = [producer.send(f"new {number}".encode()) for number in range(30)]
        producer.close()
        assert all(message_id.ledger_id() > last for message_id in sent), topic
        assert _real_rows(client, topic)[: len(rows)] == rows
    client.close()
    loaded.broker.stop()
    again = loaded.store.parent / "again"
    run_toolkit(again, "store", "import", "standalone", loaded.broker.data)
    problems = [row for row in run_toolkit(again, "store", "check", "--deep") if row["severity"] == "problem"]
    assert problems == []
    for topic, rows in loaded.rows.items():
        found = _toolkit_rows(again, topic)
        assert found[: len(rows)] == rows
        assert len(found) == len(rows) + 30
        # The broker kept the properties that --annotate wrote, through changes of its own.
        listed = {
            ledger["ledgerId"]: ledger for ledger in run_toolkit(again, "topics", "stats-internal", topic)["ledgers"]
        }
        kept = [
            listed[ledger_id]["properties"]
            for ledger_id in {row[0] for row in rows}
            if listed[ledger_id].get("properties")
        ]
        assert kept
        assert all({BEGIN, END} <= set(properties) for properties in kept)
    index = run_toolkit(again, "topics", "find-by-index", STAMPED, "--index", 400)
    assert index["position"]["ledgerId"] > max(row[0] for row in loaded.rows[STAMPED])
