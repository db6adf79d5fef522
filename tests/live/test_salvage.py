"""A bookie with a record in its journal at which it does not start, and without its index: salvaged, it has the rows that it had, starts,
and serves every message. So does one whose journals are gone, once ``lastMark`` is put aside, and one that gets another id."""

import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pulsar_admin.store.codec.dbledger import decode_ledgers_row
from pulsar_admin.store.sources.rocksdb import open_for_reading
from tests.live.broker import wait_until
from tests.live.cluster import Cluster, Disks
from tests.live.conftest import run_toolkit
from tests.live.on_disk import written_bytes
from tests.live.producing import open_client, read_payloads

pytestmark = pytest.mark.live
ONE_COPY = {f"managedLedgerDefault{name}": "1" for name in ("AckQuorum", "EnsembleSize", "WriteQuorum")}
DISKS = Disks(("wal0", "wal1"), ("ledgers0", "ledgers1"), ("index0", "index1"), bookie_id="bookie-s.example")
TOPICS = [f"public/default/salvaged-{name}" for name in "abc"]
Rows = dict[bytes, bytes]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster", ONE_COPY, [{}], [DISKS]) as cluster:
        cluster.start()
        yield cluster


def produce(cluster: Cluster, rng: random.Random, sent: dict[str, list[bytes]]) -> None:
    client = open_client(cluster.service_url)
    for topic in TOPICS:
        producer = client.create_producer(f"persistent://{topic}", batching_enabled=False)
        for _ in range(150):
            sent.setdefault(topic, []).append(rng.randbytes(rng.randrange(10, 900)))
            producer.send(sent[topic][-1])
        producer.close()
    client.close()


def index_rows(cluster: Cluster) -> dict[str, Rows]:
    found = {}
    for index in cluster.bookies[0].indexes:
        for name in ("ledgers", "locations"):
            with open_for_reading(index / "current" / name) as pairs:
                found[f"{index.name}/{name}"] = dict(pairs)
    return found


def start_of(cluster: Cluster, store: Path) -> tuple[bool, set[str]]:
    """Whether the bookie starts, as preflight says, and the codes of what its start meets."""
    metadata = ("--zookeeper", cluster.zookeeper_address)
    found = run_toolkit(store, "store", "preflight", *metadata, "--bookie-conf", cluster.bookies[0].configuration)
    (row,) = found["bookies"]
    return row["starts"], {fault["code"] for fault in row["faults"]}


def poison(file: Path) -> None:
    """Put a negative length behind the last record, and the padding that may follow it."""
    end = written_bytes(file)
    with file.open("r+b") as out:
        out.seek(end)
        out.write(b"\xff\xff\xff\x05")


def test_a_salvaged_bookie_has_its_rows_and_serves_every_message(cluster: Cluster, tmp_path: Path) -> None:
    rng, sent = random.Random(18), dict[str, list[bytes]]()
    bookie = cluster.bookies[0]
    produce(cluster, rng, sent)
    cluster.broker.end(signal.SIGKILL)
    cluster.start_broker()  # which recovers open ledgers: it fences them
    produce(cluster, rng, sent)
    cluster.broker.end(signal.SIGKILL)
    bookie.daemon.end(signal.SIGTERM)  # of one that is killed the index lags: a fence may be in the journal alone
    newest = [max((path / "current").glob("*.txn")) for path in bookie.journals]
    poison(newest[1])
    cluster.launch_bookie(bookie)
    wait_until(
        lambda: b"Invalid record found with negative length" in bookie.daemon.log.read_bytes(), "the failing start"
    )
    bookie.daemon.end(signal.SIGKILL)

    before = index_rows(cluster)
    fenced = [
        ledger_id
        for name, rows in before.items()
        for ledger_id, row in (decode_ledgers_row(*pair, "") for pair in rows.items() if name.endswith("/ledgers"))
        if row.fenced
    ]
    assert len(fenced) >= len(TOPICS)
    shutil.rmtree(bookie.indexes[0] / "current" / "locations")
    shutil.rmtree(bookie.indexes[0] / "current" / "ledgers")
    for name in ("locations", "ledgers"):
        (bookie.indexes[1] / "current" / name / "CURRENT").unlink()

    store = tmp_path / "store"
    run_toolkit(store, "store", "import", "cluster", "--zookeeper", cluster.zookeeper_address)
    words = ("store", "salvage", "--bookie-conf", bookie.configuration)
    codes = {"bookie-journal-damaged", "bookie-index-missing", "bookie-index-unreadable"}
    assert start_of(cluster, store) == (False, codes)
    shown = run_toolkit(store, *words, "--dry-run")
    done = run_toolkit(store, *words, "--yes")
    assert {**done, "dryRun": True, "kept": []} == shown
    assert [stop["path"] for stop in done["journals"]["stops"]] == [str(newest[1])]
    after = index_rows(cluster)
    changed = {
        (name, key.hex())
        for name in before
        for key in before[name].keys() | after[name].keys()
        if before[name].get(key) != after[name].get(key)
    }
    assert not changed, sorted(changed)
    assert "fail" not in cluster.shell(0, "localconsistencycheck").lower()
    assert start_of(cluster, store) == (True, set())

    cluster.start_bookies(0)
    cluster.start_broker()
    client = open_client(cluster.service_url)
    assert {topic: read_payloads(client, topic) for topic in TOPICS} == sent
    client.close()
    produce(cluster, rng, sent)

    cluster.broker.end(signal.SIGKILL)
    bookie.daemon.end(signal.SIGTERM)  # everything is in its entry logs
    cookie = bookie.indexes[1] / "current" / "VERSION"
    text = cookie.read_bytes()
    cookie.unlink()
    assert start_of(cluster, store) == (False, {"bookie-cookie-missing"})
    cluster.launch_bookie(bookie)
    wait_until(lambda: b"There are directories without a cookie" in bookie.daemon.log.read_bytes(), "the failing start")
    bookie.daemon.end(signal.SIGKILL)
    assert run_toolkit(store, *words, "--yes")["cookies"] == [str(cookie)]
    assert cookie.read_bytes() == text
    assert start_of(cluster, store) == (True, set())

    for journal in (file for path in bookie.journals for file in (path / "current").glob("*.txn")):
        journal.unlink()
    assert start_of(cluster, store) == (False, {"bookie-journal-missing"})
    cluster.launch_bookie(bookie)
    wait_until(lambda: b"Recovery log" in bookie.daemon.log.read_bytes(), "the failing start")
    bookie.daemon.end(signal.SIGKILL)
    assert len(run_toolkit(store, *words, "--yes")["journals"]["marks"]) == len(bookie.journals) * len(bookie.ledgers)
    assert start_of(cluster, store) == (True, set())
    cluster.start_bookies(0)
    cluster.start_broker()
    client = open_client(cluster.service_url)
    assert {topic: read_payloads(client, topic) for topic in TOPICS} == sent
    client.close()

    cluster.broker.end(signal.SIGTERM)  # of one that is killed the session stays, and its topics are refused
    bookie.daemon.end(signal.SIGTERM)
    renamed, confs = tmp_path / "renamed", ("--bookie-conf", bookie.configuration)
    run_toolkit(renamed, "store", "import", "cluster", "--zookeeper", cluster.zookeeper_address, *confs)
    run_toolkit(renamed, "bookies", "rename", bookie.bookie_id, "bookie-t.example")
    bookie.configuration.write_text(bookie.configuration.read_text().replace(bookie.bookie_id, "bookie-t.example"))
    bookie.bookie_id = "bookie-t.example"
    cookies = run_toolkit(renamed, "store", "export", "bookie", *confs, "--yes")["cookies"]
    assert len(cookies) == len(bookie.journals) + len(bookie.ledgers) + len(bookie.indexes)
    run_toolkit(renamed, "store", "export", "zookeeper", cluster.zookeeper_address, "--yes")
    assert start_of(cluster, store) == (True, set())
    cluster.start_bookies(0)
    cluster.start_broker()
    client = open_client(cluster.service_url)
    assert {topic: read_payloads(client, topic) for topic in TOPICS} == sent
    client.close()
    produce(cluster, rng, sent)
