"""A bookie whose disk has no free byte, and which therefore turned read-only: reclaimed while it is stopped, it takes writes again, and a
consumer gets every message of the topics that are left."""

import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]
import pytest

from tests.live.broker import wait_until
from tests.live.cluster import Cluster, Disks
from tests.live.conftest import run_toolkit
from tests.live.producing import open_client, read_payloads

pytestmark = pytest.mark.live
DISK_BYTES = 128 << 20
LOG_BYTES = 4 << 20
MESSAGE_BYTES = 4000
ONE_COPY = {f"managedLedgerDefault{name}": "1" for name in ("AckQuorum", "EnsembleSize", "WriteQuorum")}
BOOKIE = {
    "diskCheckInterval": "500",
    "diskUsageThreshold": "0.95",
    "diskUsageWarnThreshold": "0.94",
    "diskUsageLwmThreshold": "0.94",
    "logSizeLimit": str(LOG_BYTES),
    "minUsableSizeForEntryLogCreation": "1",
    "entryLogFilePreallocationEnabled": "false",
}
_ROOT = [] if os.geteuid() == 0 else ["sudo", "-n"]


@contextmanager
def small_disk(directory: Path) -> Iterator[None]:
    """A file system of its own of ``DISK_BYTES`` at DIRECTORY."""
    options = f"size={DISK_BYTES},mode=777"
    subprocess.run([*_ROOT, "mount", "-t", "tmpfs", "-o", options, "tmpfs", directory], check=True)
    try:
        yield
    finally:
        subprocess.run([*_ROOT, "umount", "-l", directory], check=True)


def free_bytes(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def fill(file: Path) -> None:
    """Leave no free byte on the disk of FILE, which a bookie may use meanwhile."""
    with file.open("wb") as filler:
        while free := free_bytes(file.parent):
            with suppress(OSError):
                os.posix_fallocate(filler.fileno(), os.fstat(filler.fileno()).st_size, free)


def produce(client: pulsar.Client, topics: list[str], count: int, rng: random.Random) -> dict[str, list[bytes]]:
    """Messages to all TOPICS in turn, so that each entry log has some of each."""
    producers = {
        topic: client.create_producer(f"persistent://{topic}", batching_enabled=False, block_if_queue_full=True)
        for topic in topics
    }
    sent: dict[str, list[bytes]] = {topic: [] for topic in topics}
    refused: list[object] = []

    def confirmed(result: object, _: object) -> None:
        if result != pulsar.Result.Ok:
            refused.append(result)

    for _ in range(count):
        for topic, producer in producers.items():
            sent[topic].append(rng.randbytes(MESSAGE_BYTES))
            producer.send_async(sent[topic][-1], confirmed)
    for producer in producers.values():
        producer.flush()
        producer.close()
    assert not refused
    return sent


def is_writable(cluster: Cluster) -> bool:
    with cluster.zookeeper() as client:
        return cluster.bookies[0].bookie_id in client.get_children("/ledgers/available")


def test_a_bookie_with_no_free_byte_takes_writes_again(tmp_path: Path) -> None:
    disks = [Disks(("journal",), ("ledgers",), ("index",))]  # RocksDB takes 72 MiB ahead for a write-ahead log
    cluster = Cluster(tmp_path / "cluster", ONE_COPY, [BOOKIE], disks)
    ledgers = cluster.bookies[0].ledgers[0]
    with small_disk(ledgers):
        try:
            _run(cluster, ledgers, tmp_path / "scratch")
        finally:
            cluster.kill()


def _run(cluster: Cluster, ledgers: Path, scratch: Path) -> None:
    rng = random.Random(18)
    cluster.start()
    client = open_client(cluster.service_url)
    early = [f"public/default/early-{name}" for name in "ab"]
    mixed = [f"public/default/mixed-{name}" for name in "abcde"]
    produce(client, early, 1500, rng)
    sent = produce(client, mixed, 1500, rng)
    for topic in (*early, *mixed[:3]):
        cluster.request("DELETE", f"persistent/{topic}?force=true")
        sent.pop(topic, None)
    sent |= produce(client, ["public/default/after"], 50, rng)
    client.close()
    # A start writes anew what is behind the last checkpoint, which would take the room that is made below: it does so here.
    cluster.stop_bookies()
    cluster.start_bookies()
    fill(ledgers / "filler")
    wait_until(lambda: not is_writable(cluster), "the bookie to turn read-only")
    cluster.stop_broker()
    cluster.stop_bookies()
    fill(ledgers / "filler too")
    current = ledgers / "current"
    words = ("store", "reclaim", "--bookie-conf", cluster.bookies[0].configuration)
    metadata = ("--zookeeper", cluster.zookeeper_address)
    forecast = run_toolkit(scratch, *words, *metadata, "--dry-run")
    mixed_logs = [row["log"] for row in forecast["logs"] if row["action"] == "compact"]
    broken = current / mixed_logs[len(mixed_logs) // 2]
    before_damage = damage(broken)
    done = run_toolkit(scratch, *words, *metadata, "--yes", code=1)
    passed = {Path(row["log"]).name: row["reason"] for row in done["passedOver"]}
    assert passed.pop(broken.name).startswith("digest mismatch")
    # A start that replayed much wrote entries twice: of one that is damaged where the index names it, another log has the good copy.
    assert all(", which cannot be read where the index points" in reason for reason in passed.values())
    assert len(passed) <= 1
    broken.write_bytes(before_damage)
    skipped = sum(row["freesBytes"] for row in forecast["logs"] if row["log"] in {broken.name, *passed})
    free = free_bytes(ledgers)
    print(f"forecast {forecast['freesBytes']:,}, of that passed over {skipped:,}; freed {free:,}, {done}")
    # Entries that the start wrote twice live in one log alone, which its ledgers map does not tell: more is freed then.
    assert -0.01 < free / (forecast["freesBytes"] - skipped) - 1 < 0.05

    again = run_toolkit(scratch, *words, *metadata, "--yes")
    assert again["compactedLogs"] + again["deletedLogs"] == 1 + len(passed)
    assert -0.01 < free_bytes(ledgers) / forecast["freesBytes"] - 1 < 0.05

    cluster.start_bookies()
    wait_until(lambda: is_writable(cluster), "the bookie to be writable")
    cluster.start_broker()
    client = open_client(cluster.service_url)
    for topic, messages in sent.items():
        assert read_payloads(client, topic) == messages
    more = produce(client, ["public/default/more"], 200, rng)
    assert read_payloads(client, "public/default/more") == more["public/default/more"]
    client.close()


def damage(log: Path) -> bytes:
    """Flip a bit in the middle of LOG; return what it held."""
    data = log.read_bytes()
    with log.open("r+b") as file:
        file.seek(len(data) // 2)
        file.write(bytes([data[len(data) // 2] ^ 1]))
    return data
