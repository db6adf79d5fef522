"""Reading a live ensemble: addresses, logins, and what happens when it moves or drops the reader."""

import random
from pathlib import Path

import pytest

from pulsar_admin.store.db.tree import Node
from pulsar_admin.store.errors import InvalidValue, Refused, SourceChanged, SourceNotFound
from pulsar_admin.store.sources.cluster import open_metadata
from pulsar_admin.store.sources.ensemble import Client, LiveEnsemble, is_address, parse_address, read_client
from tests.deep import deep_but_for
from tests.fake_zookeeper import FakeZooKeeper, Znode

LOGIN = Client(timeout_seconds=5)


def _many(count: int = 2_000) -> dict[str, Znode]:
    folders = {f"/ledgers/{folder:02}": Znode(b"") for folder in range(count // 100)}
    leaves = {f"/ledgers/{leaf % len(folders):02}/L{leaf:04}": Znode(b"v%d" % leaf, leaf % 5) for leaf in range(count)}
    return {"/ledgers": Znode(b""), **folders, **leaves}


def _read(server: FakeZooKeeper, chroot: str = "") -> dict[str, tuple[bytes, int]]:
    ensemble = LiveEnsemble(parse_address(server.address + chroot), LOGIN)
    nodes = (node for node in ensemble.nodes([]) if isinstance(node, Node))
    return {node.path: (node.value, node.stat.version) for node in nodes}


def _served(server: FakeZooKeeper) -> dict[str, tuple[bytes, int]]:
    return {path: (node.value, node.version) for path, node in server.nodes.items() if path != "/" and node.owner <= 0}


def test_every_node_is_read_but_those_of_sessions() -> None:
    nodes = {**_many(), "/loadbalance": Znode(b""), "/loadbalance/broker": Znode(b"{}", owner=0x1000_0000)}
    nodes |= {"/container": Znode(b"c", owner=-(2**63)), "/ttl": Znode(b"t", owner=-(2**56) + 1000)}
    with FakeZooKeeper(nodes) as server:
        found = _read(server)
        assert found == _served(server)
    assert len(found) == len(nodes) - 2  # without the root and the broker's
    assert len(server.requests) < 100  # many reads a request
    assert 14 not in server.requests


def test_a_chroot_is_the_root() -> None:
    nodes = {"/a": Znode(b""), "/a/b": Znode(b"root"), "/a/b/x": Znode(b"1"), "/a/bc": Znode(b"no"), "/z": Znode(b"no")}
    with FakeZooKeeper(nodes) as server:
        assert _read(server, "/a/b") == {"/x": (b"1", 0)}
        assert _read(server, "/a/b/") == {"/x": (b"1", 0)}
        with pytest.raises(SourceNotFound, match="/nowhere"):
            _read(server, "/nowhere")


def test_what_moved_is_read_again_until_nothing_does() -> None:
    """Another client creates, sets and deletes between the requests, before and behind the place of the reading."""
    draw = random.Random(7)

    def before(server: FakeZooKeeper, number: int, _kind: int) -> None:
        if 4 < number < 60:
            for path in draw.sample(sorted(server.nodes), 5):
                if path.count("/") == 3:
                    draw.choice((lambda: server.put(path, b"new"), lambda: server.delete(path)))()  # noqa: B023
            server.put(f"/ledgers/{draw.randrange(20):02}/N{number}", b"born")

    with FakeZooKeeper(_many(), before) as server:
        found = _read(server)
        assert found == _served(server)
    assert sum(value == b"born" for value, _ in found.values()) > 10


def test_an_ensemble_that_never_rests_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulsar_admin.store.sources.ensemble._ROUNDS", 3)
    with (
        FakeZooKeeper(_many(100), lambda server, number, _: server.put("/ledgers/00/L0000", b"%d" % number)) as server,
        pytest.raises(SourceChanged, match="faster than it can be read"),
    ):
        _read(server)


@deep_but_for((0, 2, 5), "at", [2, 3, 4, 5, 8, 11, 14, 17])
def test_a_connection_that_drops_ends_the_reading(at: int) -> None:
    with FakeZooKeeper(_many(), lambda server, number, _: number >= at) as server:
        ensemble = LiveEnsemble(parse_address(server.address), LOGIN)
        nodes = ensemble.nodes([])
        with pytest.raises(SourceNotFound, match="connection was lost"):
            next(nodes)
    assert ensemble.zxid == 0


def test_a_node_that_may_not_be_read_is_named() -> None:
    with (
        FakeZooKeeper(_many(100), unreadable=frozenset({"/ledgers/00/L0007"})) as server,
        pytest.raises(Refused, match="/ledgers/00/L0007"),
    ):
        _read(server)


@pytest.mark.parametrize("text", ["zookeeper", "/data/zookeeper", "zk1", "zk1:2181,zk2", "zk1:99999", "a b:1", ""])
def test_what_is_no_address(text: str) -> None:
    assert not is_address(text) or text == "zk1:99999"
    with pytest.raises(InvalidValue):
        parse_address(text)


def test_how_to_log_in_is_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "client.toml"
    (tmp_path / "secret").write_text("s3cret\n")
    file.write_text('user = "admin"\npassword-file = "secret"\nca = "/tls/ca.pem"\nverify-hostname = false\n')
    login = read_client(file)
    assert (login.scheme, login.user, login.password, login.ca) == ("digest", "admin", "s3cret", "/tls/ca.pem")
    assert not login.verify_hostname
    for text in ('sheme = "digest"', "user = 5", 'scheme = "plain"', "[x]\n", "not toml"):
        file.write_text(text)
        with pytest.raises(InvalidValue, match=r"client\.toml"):
            read_client(file)


def test_any_part_of_tls_turns_it_on() -> None:
    from pulsar_admin.store.sources.ensemble import _login_arguments

    assert "use_ssl" not in _login_arguments(Client())
    for login in (Client(ca="ca"), Client(certificate="certificate"), Client(key="key")):
        assert _login_arguments(login)["use_ssl"] is True
    files = Client(ca="a", certificate="c", key="k", key_password="p", verify_hostname=False)
    expected = {
        "use_ssl": True,
        "ca": "a",
        "certfile": "c",
        "keyfile": "k",
        "keyfile_password": "p",
        "check_hostname": False,
    }
    assert _login_arguments(files) == expected
    assert _login_arguments(Client("digest", "u", "s")) == {"auth_data": [("digest", "u:s")]}


def test_an_ensemble_that_gave_no_ledger_id() -> None:
    with FakeZooKeeper({}) as server:
        assert LiveEnsemble(parse_address(server.address), Client(timeout_seconds=5)).next_ledger_id() is None


def test_a_file_is_no_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("zk:2181").touch()
    with pytest.raises(SourceNotFound, match="neither a directory nor"):
        open_metadata("zk:2181")
