"""Ledgers compacted offline and exported: the real broker serves them, real readers get what ``compaction read`` says."""

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from tests.live.broker import BASE_SETTINGS, BROKER_METADATA, Broker
from tests.live.compacting import TOPICS, Keyed, compact, fill, last_message_id, read_apart
from tests.live.conftest import run_toolkit
from tests.live.distribution import NEWER, VERSION, find_distribution
from tests.live.producing import open_client
from tests.worlds import world

pytestmark = pytest.mark.live

KEYS = world("small") / "keys"
SETTINGS = {**BASE_SETTINGS, **BROKER_METADATA, "managedLedgerMaxEntriesPerLedger": "25"}
# 4.2.4 decompresses a batch without listed indexes, but takes the flags from the compressed payload: no last message id
# (``PulsarTopicCompactionService.getLastMessagePosition``).
UNREADABLE: dict[str, tuple[str, ...]] = {VERSION: (), NEWER: ("legacy-lz4",)}
BEFORE = ("batched-none", "single", "batched-zlib")  # compacted by the broker before: their old ledgers are replaced


class Exported(Struct, frozen=True):
    """A broker started on an export, and what ``compaction read`` and ``last-id`` said of every topic before."""

    broker: Broker
    version: str
    rows: dict[str, list[list[Any]]]
    last_ids: dict[str, tuple[int, int, int]]
    reports: dict[str, dict[str, Any]]


def toolkit_rows(store: Path, topic: str) -> list[list[Any]]:
    """``compaction read`` as ``tests.live.compacting`` writes it."""
    command = [sys.executable, "-m", "pulsar_admin", "--store", str(store), "-o", "jsonl", "compaction", "read", topic]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in finished.stdout.splitlines()]
    return [
        [row["ledgerId"], row["entryId"], row["batchIndex"], row["key"] or "", row["sha1"], row["size"]] for row in rows
    ]


def _make(broker: Broker, store: Path, version: str, seed: int) -> Exported:
    broker.start()
    client = open_client(broker.service_url)
    broker.put("persistent/public/default/parts/partitions", 2)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda keyed: fill(client, keyed, seed, KEYS), TOPICS))
    for name in BEFORE:
        assert compact(broker, f"public/default/{name}") == "SUCCESS"
        fill(client, next(keyed for keyed in TOPICS if keyed.name == name), seed + 1, KEYS)
    client.close()
    broker.stop()

    run_toolkit(store, "store", "import", "standalone", broker.data)
    reports, rows = {}, {}
    for keyed in TOPICS:
        reports[keyed.name] = run_toolkit(store, "compaction", "run", keyed.topic, "--format", keyed.form)
        rows[keyed.name] = toolkit_rows(store, keyed.topic)
    topics = [keyed.topic for keyed in TOPICS]
    assert sum(row["problems"] for row in run_toolkit(store, "compaction", "verify", *topics)) == 0
    found = run_toolkit(store, "compaction", "last-id", *topics)
    last_ids = {
        keyed.name: (row["ledgerId"], row["entryId"], row["batchIndex"])
        for keyed, row in zip(TOPICS, found, strict=True)
    }
    exported = run_toolkit(store, "store", "export", "standalone", broker.data, "--in-place", "--yes")
    assert len(exported["ledgers"]) == len(TOPICS)
    broker.start()
    return Exported(broker, version, rows, last_ids, reports)


@pytest.fixture(scope="module", params=[VERSION, NEWER])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    seed = time.time_ns() % 1_000_000
    print(f"\nseed {seed}")
    folder = tmp_path_factory.mktemp(request.param)
    with Broker(find_distribution(request.param), folder / "pulsar", SETTINGS) as broker:
        yield _make(broker, folder / "store", request.param, seed)


def _readable(exported: Exported) -> list[Keyed]:
    """The topics whose compacted view this broker can serve and its clients can read."""
    return [
        keyed
        for keyed in TOPICS
        if not keyed.encrypted and keyed.form != "reduced" and keyed.name not in UNREADABLE[exported.version]
    ]


def test_real_readers_get_what_the_toolkit_reads(exported: Exported) -> None:
    """Every topic whose view the broker can serve at all, message by message; and its compacted ledger is ours."""
    for keyed in _readable(exported):
        stats = exported.broker.get(f"persistent/{keyed.topic}/internalStats")
        report = exported.reports[keyed.name]
        assert stats["compactedLedger"]["ledgerId"] == report["after"]["compactedLedger"]
        assert stats["compactedLedger"]["entries"] == report["entries"]
        assert stats["compactedLedger"]["size"] == report["bytes"]
        assert read_apart(exported.broker.service_url, keyed.topic) == exported.rows[keyed.name], keyed.name
    assert sum(map(len, exported.rows.values())) > 150


def test_broker_gives_the_same_last_ids(exported: Exported) -> None:
    client = open_client(exported.broker.service_url)
    for keyed in _readable(exported):
        expected = exported.last_ids[keyed.name]
        if exported.version == VERSION and expected == (-1, -1, 0):
            expected = (-1, -1, -1)  # where nothing is left; the proposal and brokers since say 0
        assert last_message_id(client, keyed.topic) == expected, keyed.name
    client.close()


def test_encrypted_view(exported: Exported) -> None:
    """4.0.8 cannot tell its last message: its reader fails, having got none, some or all before (see the next test)."""
    rows = read_apart(exported.broker.service_url, "public/default/secret", KEYS)
    secret = next(keyed for keyed in TOPICS if keyed.encrypted)
    assert len(exported.rows["secret"]) == secret.messages // secret.batch
    assert exported.last_ids["secret"][2] == secret.batch - 1
    if exported.version == VERSION:
        assert rows.pop() == ["Pulsar error: BrokerMetadataError"]
    else:
        assert tuple(rows[-1][:3]) == exported.last_ids["secret"]
        assert len(rows) == secret.messages
    entries = [row[:2] for row in exported.rows["secret"]]
    assert [row[:3] for row in rows] == [[*entries[at // secret.batch], at % secret.batch] for at in range(len(rows))]


def test_compressed_legacy_batch_in_the_end(exported: Exported) -> None:
    """Why ``upgrade`` matters to a cluster of 4.2: its own readers fail on what 4.0 left behind.

    They fail when they ask for the last message id, which a client does only when no message waits in its queue: it may have got some,
    or all, before.
    """
    for name in UNREADABLE[exported.version]:
        *served, failure = read_apart(exported.broker.service_url, f"public/default/{name}")
        assert failure == ["Pulsar error: BrokerMetadataError"]
        assert served == exported.rows[name][: len(served)]


def test_broker_goes_on_from_our_ledger(exported: Exported) -> None:
    """It compacts again: what it reads as its own earlier compaction is ours."""
    client = open_client(exported.broker.service_url)
    for keyed in _readable(exported):
        producer = client.create_producer(f"persistent://{keyed.topic}")
        producer.send(b"the newest", partition_key="key-00")
        producer.close()
        assert compact(exported.broker, keyed.topic) == "SUCCESS", keyed.name
        expected = {row[3]: row[4] for row in exported.rows[keyed.name]}
        expected["key-00"] = hashlib.sha1(b"the newest").hexdigest()
        rows = read_apart(exported.broker.service_url, keyed.topic)
        assert {row[3]: row[4] for row in rows} == expected, keyed.name
    client.close()


def test_reduced_batches(exported: Exported) -> None:
    """Messages alone are the same bytes in every format and are read; batches without placeholders are not read well by these clients.

    The client expects as many messages as the batch had: it reads behind the last one, and dies there or does not. It counts those
    it gets from 0, so that their batch indexes are wrong; the messages are the right ones.
    """
    for keyed in TOPICS:
        if keyed.form == "reduced":
            rows = read_apart(exported.broker.service_url, keyed.topic)
            failed = bool(rows) and len(rows[-1]) <= 2
            print(f"reduced, {exported.version}, {keyed.name}: {rows[-1] if failed else 'read'}")
            expected = exported.rows[keyed.name]
            if keyed.batch:
                rows = [row[:2] + row[3:] for row in rows if len(row) > 2]
                expected = [row[:2] + row[3:] for row in expected][: len(rows) if failed else None]
            assert rows == expected, keyed.name
