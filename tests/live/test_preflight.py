"""What `store preflight` says bookies will delete, and what they delete: three real bookies, each on metadata of another kind.

One starts on the right metadata, one on those of some minutes ago, one on a cluster's that was initialized anew and whose cookie was
"repaired"; each is a chroot of one ZooKeeper. What is in an index is read by rocksdict alone.
"""

import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import rocksdict

from pulsar_admin.store.codec.ledgermetadata import ledger_id_of_path
from tests.live.broker import override, wait_until
from tests.live.cluster import Bookie, Cluster
from tests.live.conftest import run_toolkit
from tests.live.on_disk import copy_at_rest, iter_records
from tests.live.producing import open_client
from tests.live.zookeeper import nodes_of

pytestmark = pytest.mark.live
SETTINGS = {"managedLedgerMaxEntriesPerLedger": "20", "managedLedgerMinLedgerRolloverTimeMinutes": "0"}
GC_MS = 1000
TOPICS = ("public/default/kept", "public/default/deleted", "public/default/young")
RIGHT, OLDER, EMPTY = range(3)
ROOTS = ("/right", "/older", "/empty")
Tree = dict[str, tuple[bytes, int]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    late = {"flushInterval": "3600000"}  # nothing of the first bookie is in its index when it is killed
    with Cluster(tmp_path_factory.mktemp("preflight"), SETTINGS, (late, {}, {})) as cluster:
        cluster.start()
        yield cluster


def produce(cluster: Cluster, topic: str, messages: int) -> None:
    client = open_client(cluster.service_url)
    producer = client.create_producer(f"persistent://{topic}", batching_enabled=False)
    for number in range(messages):
        producer.send_async(bytes(400) + b"%d" % number, lambda *_: None)
    producer.flush()
    client.close()


def journaled(bookie: Bookie) -> set[int]:
    """The ledgers of the records in the bookie's journals."""
    files = [file for path in bookie.journals for file in (path / "current").glob("*.txn")]
    return {record.entry[0] for file in files for record in iter_records(file) if record.entry[0] >= 0}


def indexed(bookie: Bookie, scratch: Path) -> set[int]:
    """The ledgers in the bookie's index, which may run."""
    found = set[int]()
    for number, directory in enumerate(bookie.indexes or bookie.ledgers):
        copy = scratch / f"{bookie.folder.name}-{number}-{time.time_ns()}"
        copy_at_rest(directory / "current" / "ledgers", copy)
        options = rocksdict.Options(raw_mode=True)
        database = rocksdict.Rdict(str(copy), options, access_type=rocksdict.AccessType.read_only())
        found |= {int.from_bytes(key[:8], "big", signed=True) for key, _ in database.items()}
        database.close()
        shutil.rmtree(copy)
    return {ledger_id for ledger_id in found if ledger_id >= 0}


def logs_of(bookie: Bookie) -> set[Path]:
    return {log for path in bookie.ledgers for log in (path / "current").glob("*.log") if log.stat().st_size}


def put_tree(cluster: Cluster, root: str, tree: Tree) -> None:
    with cluster.zookeeper() as client:
        for path, (value, _) in sorted(tree.items()):
            if not path.startswith("/zookeeper"):
                client.create(root + path, value, makepath=True)
        client.ensure_path(f"{root}/ledgers/available")


def point_to(cluster: Cluster, number: int) -> Bookie:
    """Let a bookie use its chroot, and collect garbage soon."""
    bookie = cluster.bookies[number]
    settings = {
        "zkServers": cluster.zookeeper_address + ROOTS[number],
        "gcWaitTime": str(GC_MS),
        "flushInterval": "1000",
    }
    bookie.configuration.write_text(override(bookie.configuration.read_text(), settings))
    return bookie


def preflight(cluster: Cluster, number: int, *words: str, code: int = 0) -> list[dict]:  # type: ignore[type-arg]
    """The answer of an init container: the bookie's configuration, and the ensemble that it would start on."""
    bookie = cluster.bookies[number]
    parts = ("--zookeeper", cluster.zookeeper_address + ROOTS[number], "--bookie-conf", bookie.configuration)
    return run_toolkit(cluster.folder / "no-store", "store", "preflight", *parts, *words, code=code)  # type: ignore[no-any-return]


def ledgers_of(tree: Tree) -> set[int]:
    return {ledger_id for path in tree if (ledger_id := ledger_id_of_path(path)) is not None}


def test_bookies_delete_what_was_forecast(cluster: Cluster, tmp_path: Path) -> None:
    for topic in TOPICS[:2]:
        produce(cluster, topic, 110)
    with cluster.zookeeper() as client:
        older = nodes_of(client)
    produce(cluster, TOPICS[2], 110)
    cluster.request("DELETE", f"persistent/{TOPICS[1]}?force=true")
    cluster.stop_broker()
    cluster.bookies[RIGHT].daemon.end(signal.SIGKILL)
    cluster.stop_bookies()
    with cluster.zookeeper() as client:
        right = nodes_of(client)
    assert ledgers_of(older) - ledgers_of(right)
    assert ledgers_of(right) - ledgers_of(older)
    bookies = [point_to(cluster, number) for number in range(3)]
    put_tree(cluster, ROOTS[RIGHT], right)
    put_tree(cluster, ROOTS[OLDER], older)
    keys = ("/ledgers/LAYOUT", "/ledgers/INSTANCEID")
    put_tree(cluster, ROOTS[EMPTY], {key: right[key] for key in keys if key in right})

    # As it is the third does not start: its cookie is not in that metadata.
    row = preflight(cluster, EMPTY)["bookies"][0]  # type: ignore[call-overload]
    assert "no cookie" in row["refuses"]
    cookie = f"/ledgers/cookies/{bookies[EMPTY].bookie_id}"
    put_tree(cluster, ROOTS[EMPTY], {cookie: right[cookie]})

    before = [indexed(bookie, tmp_path) for bookie in bookies]
    logs = [logs_of(bookie) for bookie in bookies]
    lists = [preflight(cluster, number, "--list") for number in range(3)]
    sums = [preflight(cluster, number) for number in range(3)]
    preflight(cluster, EMPTY, "--max-loss", "99", code=3)
    forecast = [{row["ledgerId"] for row in rows} for rows in lists]
    stay = [journaled(bookies[RIGHT]) & ledgers_of(right), before[OLDER] & ledgers_of(older), set[int]()]
    assert [before[number] - forecast[number] for number in (OLDER, EMPTY)] == stay[OLDER:]
    assert forecast[EMPTY] == before[EMPTY]
    assert forecast[OLDER]
    assert forecast[RIGHT]
    assert not before[RIGHT]  # all of it is in the journal
    assert not forecast[RIGHT] & ledgers_of(right)
    for number in range(3):
        assert sums[number]["bookies"][0]["refuses"] == ""  # type: ignore[call-overload]

    for bookie in bookies:
        cluster.launch_bookie(bookie)
    for number in range(3):
        # The first one replays its journals, collects what came of that, and deletes logs of which nothing is left.
        wait_until(lambda: indexed(bookies[number], tmp_path) == stay[number], "its collection")  # noqa: B023
        deleted = sums[number]["bookies"][0]["logsAtOnce"]["logs"]  # type: ignore[call-overload]
        wait_until(lambda: sum(not log.exists() for log in logs[number]) == deleted, "its logs to go")  # noqa: B023
    time.sleep(4 * GC_MS / 1000)  # and no more than that
    cluster.stop_bookies()
    assert [indexed(bookie, tmp_path) for bookie in bookies] == stay
    row = sums[RIGHT]["bookies"][0]  # type: ignore[call-overload]
    assert len(stay[RIGHT]) == row["holds"]["ledgers"] - row["loses"]["ledgers"] > 0
    assert len(forecast[RIGHT]) == row["loses"]["ledgers"]
    for number in range(3):
        gone = {log for log in logs[number] if not log.exists()}
        assert len(gone) == sums[number]["bookies"][0]["logsAtOnce"]["logs"]  # type: ignore[call-overload]
    assert logs[EMPTY]
    assert not any(log.exists() for log in logs[EMPTY])
