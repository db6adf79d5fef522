"""A cluster below a path of ZooKeeper's tree, beside another program: its files are imported, and its ZooKeeper starts on the export."""

import shutil
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.live.cluster import DISKS, Cluster
from tests.live.conftest import import_cluster, run_toolkit
from tests.live.producing import open_client
from tests.live.test_cluster_back import SUBSCRIPTION, first_of, produce, read_all
from tests.live.zookeeper import nodes_of

pytestmark = pytest.mark.live
CHROOT = "/pulsar-prod/eu"
TOPIC = "public/default/one"
MESSAGES = 30
ONE_BOOKIE = {
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
}
KAFKA = {"/brokers/ids": b"", "/brokers/topics/orders": b'{"partitions":{}}'}


def nodes(cluster: Cluster) -> dict[str, tuple[bytes, int]]:
    """Every node of the whole tree, with the value and version."""
    client = KazooClient(cluster.zookeeper_address)
    client.start()
    try:
        return nodes_of(client)
    finally:
        client.stop()
        client.close()


def test_there_and_back_below_a_chroot(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster", ONE_BOOKIE, ({},), DISKS[:1], CHROOT) as cluster:
        store, out = tmp_path / "store", tmp_path / "out"
        cluster.start()
        client = KazooClient(cluster.zookeeper_address)
        client.start()
        for path, value in KAFKA.items():
            client.create(path, value, makepath=True)
        client.stop()
        client.close()
        cluster.subscribe(TOPIC, SUBSCRIPTION)
        speaker = open_client(cluster.service_url)
        sent = produce(speaker, TOPIC, [f"message {number}" for number in range(MESSAGES)])
        speaker.close()
        cluster.stop_broker()
        cluster.stop_bookies()
        live = nodes(cluster)
        cluster.stop_zookeeper()
        import_cluster(cluster, store, cluster.zookeeper_data)
        assert run_toolkit(store, "store", "info")["sources"][0]["chroot"] == CHROOT
        assert run_toolkit(store, "topics", "stats-internal", TOPIC)["numberOfEntries"] == MESSAGES
        assert [row for row in run_toolkit(store, "doctor") if row["severity"] == "critical"] == []
        target = sent[MESSAGES // 2]
        run_toolkit(store, "topics", "reset-cursor", TOPIC, "-s", SUBSCRIPTION, "-m", f"{target[0]}:{target[1]}")
        run_toolkit(store, "store", "export", "zookeeper-snapshot", out)
        shutil.rmtree(cluster.zookeeper_data / "version-2")
        shutil.copytree(out / "version-2", cluster.zookeeper_data / "version-2")
        cluster.start_zookeeper()
        back = nodes(cluster)
        assert {path: back.get(path, (None,))[0] for path in KAFKA} == KAFKA
        assert {path for path in back if not path.startswith(("/zookeeper", "/brokers", "/pulsar-prod"))} == set()
        cursor = f"{CHROOT}/managed-ledgers/public/default/persistent/one/{SUBSCRIPTION}"
        changed = {path for path in live if back.get(path) != live[path] and not path.startswith("/zookeeper")}
        assert changed == {cursor}
        cluster.start_bookies()
        cluster.start_broker()
        speaker = open_client(cluster.service_url)
        assert [data for _, data in read_all(speaker, TOPIC)] == [b"message %d" % number for number in range(MESSAGES)]
        assert first_of(speaker, TOPIC) == sent[MESSAGES // 2]
        produce(speaker, TOPIC, ["after"])  # a ledger of a new id
        speaker.close()
