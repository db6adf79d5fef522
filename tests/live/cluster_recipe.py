"""What is in a live cluster, and what its broker said before its processes ended.

``python -m tests.live.cluster_recipe FOLDER [--seed N]`` makes one by hand.
"""

import argparse
import json
import re
import signal
import time
from pathlib import Path
from typing import Any

from msgspec import Struct

from pulsar_admin.store.codec.ledgermetadata import decode_ledger_metadata, ledger_id_of_path
from pulsar_admin.store.proto import managed_ledger_pb2
from tests.live import recipe
from tests.live.cluster import Cluster
from tests.live.compacting import Keyed, compact
from tests.live.compacting import fill as fill_keyed
from tests.live.producing import open_client

COMPACTED = Keyed("compacted", 120, 15, 5)
SCHEMA_TOPIC = "public/default/with-schema"
SCHEMA = '{"type":"record","name":"Reading","fields":[{"name":"value","type":"int"}]}'
POLICY_TOPIC = recipe.STEADY
POLICY_SECONDS = 4321
KILLED_BOOKIE = 1


class ClusterWorld(Struct, frozen=True):
    """A cluster whose processes have ended, and what was said before, as ``recipe.World`` has it."""

    cluster: Cluster
    said: dict[str, Any]
    seed: int


def make_cluster_world(folder: Path, seed: int, probes: int) -> ClusterWorld:
    """Start, fill, ask and end a cluster in FOLDER: broker and one bookie with SIGKILL, in the midst of a producer's work."""
    with Cluster(folder, recipe.SETTINGS) as cluster:
        cluster.start()
        recipe.fill(cluster, seed)
        _fill_more(cluster, seed)
        recipe.wait_until_settled(cluster)
        said = recipe.ask(cluster)
        said["probes"] = recipe.probe_times(cluster, said["rows"], seed, probes)

        def kill() -> None:
            cluster.broker.end(signal.SIGKILL)
            cluster.bookies[KILLED_BOOKIE].daemon.end(signal.SIGKILL)

        said["confirmed"] = recipe.kill_while_writing(cluster, kill, folder / "confirmed.jsonl")
        said["ledgers"] = read_ledgers(cluster)
        said["unlisted"] = _unlisted_of(cluster, said["ledgers"])
        cluster.stop()
    (folder / "said.json").write_text(json.dumps(said))
    return ClusterWorld(cluster, said, seed)


def read_ledgers(cluster: Cluster) -> dict[str, str]:
    """The metadata of every ledger as the running ZooKeeper has it: path to hexadecimal bytes."""
    found, left = {}, ["/ledgers"]
    with cluster.zookeeper() as client:
        while left:
            path = left.pop()
            left += [f"{path}/{name}" for name in client.get_children(path)]
            if re.fullmatch(r".*/L[0-9]+", path):
                found[path] = client.get(path)[0].hex()
    return {path: value for path, value in sorted(found.items()) if value}


def _unlisted_of(cluster: Cluster, ledgers: dict[str, str]) -> list[int]:
    """The ledgers of the interrupted topic that its list has not: a broker makes a ledger first and lists it later."""
    persistence_name = recipe.INTERRUPTED.replace("orders/", "orders/persistent/")
    with cluster.zookeeper() as client:
        value, _ = client.get(f"/managed-ledgers/{persistence_name}")
    listed = {info.ledgerId for info in managed_ledger_pb2.ManagedLedgerInfo.FromString(value).ledgerInfo}
    found = {
        ledger_id_of_path(path)
        for path, metadata in ledgers.items()
        if decode_ledger_metadata(bytes.fromhex(metadata), path).custom.get("pulsar/managed-ledger")
        == persistence_name.encode()
    }
    return sorted(ledger_id for ledger_id in found - listed if ledger_id is not None)


def _fill_more(cluster: Cluster, seed: int) -> None:
    """What only a whole cluster has to keep: a compacted topic, a schema, a policy of one topic."""
    client = open_client(cluster.service_url)
    fill_keyed(client, COMPACTED, seed, cluster.folder)
    assert compact(cluster, COMPACTED.topic) == "SUCCESS"
    cluster.post(f"schemas/{SCHEMA_TOPIC}/schema", {"type": "JSON", "schema": SCHEMA, "properties": {}})
    producer = client.create_producer(f"persistent://{SCHEMA_TOPIC}")
    for value in range(30):
        producer.send(json.dumps({"value": value}).encode())
    client.close()
    cluster.post(f"persistent/{POLICY_TOPIC}/messageTTL?messageTTL={POLICY_SECONDS}")


def main() -> None:
    """Make one from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--probes", type=int, default=500)
    arguments = parser.parse_args()
    begin = time.monotonic()
    world = make_cluster_world(arguments.folder.absolute(), arguments.seed, arguments.probes)
    messages = {topic: len(rows) for topic, rows in world.said["rows"].items()}
    print(json.dumps({"seconds": round(time.monotonic() - begin, 1), "messages": messages}, indent=2))


if __name__ == "__main__":
    main()
