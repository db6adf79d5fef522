"""An ensemble of three real ZooKeeper servers that lose each other: the tree as of any moment is what a client read then."""

import random
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError

from pulsar_admin.store.errors import NothingMatches
from pulsar_admin.store.history.as_of import Moment, read_tree_at
from pulsar_admin.store.history.versions import Version, iter_versions
from pulsar_admin.store.sources.zookeeper import Gap, ServerFiles
from tests.live.broker import free_port, wait_until
from tests.live.distribution import find_distribution
from tests.live.zookeeper import ZooKeeper, nodes_of

pytestmark = pytest.mark.live

Nodes = dict[str, tuple[bytes, int]]


class Read(NamedTuple):
    """What a client read, behind the newest transaction that its server had seen."""

    zxid: int
    time_ms: int
    nodes: Nodes


class Ensemble:
    """Three servers with snapshots every 40 transactions or so, logs apart from them."""

    def __init__(self, folder: Path) -> None:
        ports = [(free_port(), free_port()) for _ in range(3)]
        peers = {f"server.{n}": f"127.0.0.1:{a}:{b}" for n, (a, b) in enumerate(ports, 1)}
        settings = {"initLimit": "10", "syncLimit": "5", "tickTime": "500", **peers}
        jvm = ("-Dzookeeper.snapCount=40", "-Dzookeeper.preAllocSize=64")
        self.servers = []
        for number in range(1, 4):
            home = folder / f"zk{number}"
            logs = {"dataLogDir": str(home / "logs")}
            server = ZooKeeper(find_distribution(), home, settings | logs, jvm, main="quorum.QuorumPeerMain")
            (home / "myid").write_text(str(number))
            self.servers.append(server)
        self.files = tuple(
            ServerFiles(server.folder / "version-2", server.folder / "logs" / "version-2") for server in self.servers
        )
        for server in self.servers:
            server.launch()
        wait_until(lambda: self.leader() is not None, "the ensemble has a leader")

    @property
    def address(self) -> str:
        return ",".join(server.address for server in self.servers)

    def leader(self) -> ZooKeeper | None:
        return next((server for server in self.servers if "Mode: leader" in _ask(server)), None)

    def stop(self) -> None:
        for server in self.servers:
            server.stop()


def _ask(server: ZooKeeper) -> str:
    try:
        with socket.create_connection(("127.0.0.1", server.port), 2) as asked:
            asked.sendall(b"srvr")
            return b"".join(iter(lambda: asked.recv(4096), b"")).decode()
    except OSError:
        return ""


class Writer:
    """Writes at random and keeps what it reads."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._random = random.Random(418)
        self.client = KazooClient(ensemble.address, timeout=6)
        self.client.start(timeout=60)
        self.reads: list[Read] = []
        self._paths = [f"/t{number}" for number in range(12)]

    def write(self, rounds: int) -> None:
        for _ in range(rounds):
            for _ in range(8):
                self._retry(self._one)
            self._retry(self._read)

    def _retry(self, call: Callable[[], None]) -> None:
        """Servers are killed meanwhile; what was done and not answered is done again, or not: it is read afterwards."""

        def done() -> bool:
            try:
                call()
            except KazooException:
                return False
            return True

        wait_until(done, "the ensemble answers")

    def _one(self) -> None:
        path = self._random.choice(self._paths)
        value = self._random.randbytes(self._random.randrange(40))
        kind = self._random.randrange(5)
        if kind == 0 and self.client.exists(path) is not None:
            self.client.delete(path, recursive=True)
        elif kind == 1:
            self.client.create(f"{path}/child-", value, sequence=True, makepath=True)
        elif kind == 2:
            self.client.create(f"/e-{path[1:]}-", value, ephemeral=True, sequence=True)
        elif kind == 3:
            with self.client.transaction() as made:
                made.create(f"/m-{self._random.getrandbits(60)}", value)
                made.delete("/none") if self._random.random() < 0.3 else made.create(
                    f"/n-{self._random.getrandbits(60)}"
                )
        else:
            try:
                self.client.set(path, value)
            except NoNodeError:
                self.client.create(path, value)

    def _read(self) -> None:
        self.client.sync("/")
        nodes = nodes_of(self.client)
        zxid = self.client.last_zxid
        self.client.sync("/")
        if self.client.last_zxid == zxid and nodes_of(self.client) == nodes:
            self.reads.append(Read(zxid, _behind_now(), nodes))


def _behind_now() -> int:
    """The time in ms, returned in a later one, so that the next transaction has a later time."""
    now_ms = int(time.time() * 1000)
    while int(time.time() * 1000) <= now_ms:
        pass
    return now_ms


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[ServerFiles, ...], list[Read]]:
    ensemble = Ensemble(tmp_path_factory.mktemp("ensemble"))
    try:
        writer = Writer(ensemble)
        writer.write(8)
        follower = next(server for server in ensemble.servers if server is not ensemble.leader())
        follower.stop()
        writer.write(12)
        follower.launch()
        wait_until(lambda: "Mode: follower" in _ask(follower), "the follower is back")
        leader = ensemble.leader()
        leader.stop()
        writer.write(8)
        leader.launch()
        writer.write(4)
        writer.client.stop()
        writer.client.close()
    finally:
        ensemble.stop()
    return ensemble.files, writer.reads


def _then(files: tuple[ServerFiles, ...], moment: Moment, problems: list[str]) -> Nodes:
    tree = read_tree_at(files, moment, problems)
    return {node.path: (node.data, node.version) for node in tree.persistent()}


def test_the_tree_as_of_every_read(world: tuple[tuple[ServerFiles, ...], list[Read]]) -> None:
    files, reads = world
    problems: list[str] = []
    assert len(reads) > 20
    assert len({read.zxid >> 32 for read in reads}) > 1  # the leader's death began another epoch
    snapshots = sum(1 for server in files for _ in server.snapshots.glob("snapshot.*"))
    assert snapshots > 6
    for read in reads:
        assert _then(files, Moment(zxid=read.zxid), problems) == read.nodes, hex(read.zxid)
        assert _then(files, Moment(time_ms=read.time_ms), problems) == read.nodes, hex(read.zxid)
    assert problems == []


def test_one_server_tells_what_it_missed(world: tuple[tuple[ServerFiles, ...], list[Read]]) -> None:
    files, reads = world
    right = 0
    for server in files:
        for read in reads:
            problems: list[str] = []
            try:
                found = _then((server,), Moment(zxid=read.zxid), problems)
            except NothingMatches:
                continue
            assert found == read.nodes or problems
            right += found == read.nodes
    assert right > len(reads)


def test_versions_lead_to_what_was_read(world: tuple[tuple[ServerFiles, ...], list[Read]]) -> None:
    files, reads = world
    found = list(iter_versions(files))
    assert not any(isinstance(item, Gap) for item in found)
    versions = [item for item in found if isinstance(item, Version)]
    assert [item.zxid for item in versions] == sorted(item.zxid for item in versions)
    ephemeral = {item.path for item in versions if item.ephemeral}
    for read in reads:
        tree: Nodes = {}
        for item in versions:
            if item.zxid <= read.zxid and item.path not in ephemeral and item.path != "/":
                if item.value is None:
                    tree.pop(item.path, None)
                else:
                    tree[item.path] = item.value, item.version or 0
        assert tree == read.nodes, hex(read.zxid)
