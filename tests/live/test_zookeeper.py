"""A real ZooKeeper server: what is read of it while it runs, and while other clients write."""

from __future__ import annotations

import shutil
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.security import make_digest_acl

from store.errors import Refused
from store.sources.ensemble import Client, LiveEnsemble, parse_address
from store.sources.zookeeper import read_zookeeper_nodes
from tests.live.distribution import find_distribution
from tests.live.zookeeper import ZooKeeper, nodes_of

pytestmark = pytest.mark.live
GOLDEN = Path(__file__).parent.parent / "golden" / "zookeeper-version-2.tar.xz"


def unpack(folder: Path) -> Path:
    """The recorded ``version-2``, in FOLDER."""
    (folder / "version-2").mkdir(parents=True)
    with tarfile.open(GOLDEN) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                with open(folder / "version-2" / Path(member.name).name, "wb") as out:
                    shutil.copyfileobj(file, out)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    server = ZooKeeper(find_distribution(), unpack(tmp_path_factory.mktemp("ensemble")))
    server.start()
    yield server
    server.stop()


def read(server: ZooKeeper, chroot: str = "", login: Client = Client()) -> dict[str, tuple[bytes, int]]:  # noqa: B008
    ensemble = LiveEnsemble(parse_address(server.address + chroot), login)
    return {node.path: (node.value, node.stat.version) for node in ensemble.nodes([])}


def test_live_and_at_rest_are_one_tree(server: ZooKeeper) -> None:
    """kazoo reads it node by node; the directory it runs on holds the same, with the same times."""
    ensemble = LiveEnsemble(parse_address(server.address), Client())
    live = {node.path: node for node in ensemble.nodes([])}
    with server.client() as client:
        assert {path: (node.value, node.stat.version) for path, node in live.items()} == nodes_of(client)
    at_rest = {node.path: node for node in read_zookeeper_nodes(server.folder / "version-2", [])}
    assert live.keys() == at_rest.keys()
    for path, node in live.items():
        times = node.stat.created_ms, node.stat.modified_ms
        assert (node.value, times) == (at_rest[path].data, (at_rest[path].created_ms, at_rest[path].modified_ms))
    assert len(live) > 300
    assert ensemble.zxid > 0x481
    assert read(server, "/managed-ledgers") == {
        path.removeprefix("/managed-ledgers"): (node.value, node.stat.version)
        for path, node in live.items()
        if path.startswith("/managed-ledgers/")
    }


def test_nodes_are_of_one_moment_while_others_write(server: ZooKeeper) -> None:
    """A writer sets forty nodes round and round to the number of the round: at any moment a part has N, the rest N − 1, in order."""
    with server.client() as client:
        client.create("/turn", b"")
        for i in range(3_000):
            client.create_async(f"/turn/other{i:04}", b"x" * 50)
        places = [f"/turn/{'az'[i % 2]}{i:02}" for i in range(40)]  # before and behind the others
        for path in places:
            client.create(path, b"0")
        stop = threading.Event()

        def write() -> None:
            turn = 0
            while not stop.is_set():
                turn += 1
                for path in places:
                    client.set(path, b"%d" % turn)
                    client.create(f"/turn/b{turn}-{path[-3:]}", b"%d" % turn)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            seen = [read(server) for _ in range(5)]
        finally:
            stop.set()
            writer.join()
        client.delete("/turn", recursive=True)
    rounds = set()
    for nodes in seen:
        turns = [int(nodes[path][0]) for path in places]
        assert turns == sorted(turns, reverse=True)
        assert turns[0] - turns[-1] <= 1
        last = places[sum(turn == turns[0] for turn in turns) - 1]
        born = {path.removeprefix("/turn/b") for path in nodes if path.startswith("/turn/b")}
        expected = {f"{turn}-{path[-3:]}" for path, at in zip(places, turns, strict=True) for turn in range(1, at + 1)}
        assert born in (expected, expected - {f"{turns[0]}-{last[-3:]}"})
        rounds.add((turns[0], last))
    assert len(rounds) == 5  # it moved, each time


def test_a_node_of_another_user_needs_a_login(server: ZooKeeper) -> None:
    with server.client() as client:
        client.create("/secret", b"x", acl=[make_digest_acl("admin", "s3cret", all=True)])
        with pytest.raises(Refused, match="/secret"):
            read(server)
        login = Client(scheme="digest", user="admin", password="s3cret")
        assert read(server, login=login)["/secret"] == (b"x", 0)
        client.add_auth("digest", "admin:s3cret")
        client.delete("/secret")
