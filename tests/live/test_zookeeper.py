"""A real ZooKeeper server: what is read of it while it runs, and while other clients write."""

import os
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from kazoo.security import make_acl, make_digest_acl

from pulsar_admin.config import environment_variables
from pulsar_admin.store.codec.ledgermetadata import decode_ledger_metadata, ledger_id_of_path
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import Node, iter_nodes
from pulsar_admin.store.errors import Refused, SourceBusy, SourceNotFound
from pulsar_admin.store.sources.ensemble import (
    Client,
    LiveEnsemble,
    Transaction,
    Write,
    ledger_sequence,
    open_session,
    parse_address,
    raise_ledger_sequence,
    read_client,
)
from tests.live.broker import free_port
from tests.live.conftest import run_toolkit
from tests.live.distribution import find_distribution
from tests.live.zookeeper import ZooKeeper, nodes_of
from tests.worlds import scratch_copy
from tests.zookeeper_files import read_zookeeper_nodes

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


def persistent(ensemble: LiveEnsemble) -> Iterator[Node]:
    return (item for item in ensemble.nodes([]) if isinstance(item, Node))


def read(server: ZooKeeper, chroot: str = "", login: Client = Client()) -> dict[str, tuple[bytes, int]]:  # noqa: B008
    ensemble = LiveEnsemble(parse_address(server.address + chroot), login)
    return {node.path: (node.value, node.stat.version) for node in persistent(ensemble)}


def test_live_and_at_rest_are_one_tree(server: ZooKeeper) -> None:
    """kazoo reads it node by node; the directory it runs on holds the same, with the same times."""
    ensemble = LiveEnsemble(parse_address(server.address), Client())
    live = {node.path: node for node in persistent(ensemble)}
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
        stop, written = threading.Event(), threading.Semaphore(0)

        def write() -> None:
            turn = 0
            while not stop.is_set():
                turn += 1
                for path in places:
                    client.set(path, b"%d" % turn)
                    written.release()
                    client.create(f"/turn/b{turn}-{path[-3:]}", b"%d" % turn)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            seen = []
            for _ in range(5):
                seen.append(read(server))
                while written.acquire(blocking=False):
                    pass
                assert written.acquire(timeout=60)  # it moves on before the next one
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


def _openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


def test_login_by_certificate(tmp_path: Path) -> None:
    """A server that takes nobody without a certificate, on its port for TLS; the file says which, and what to believe."""
    request = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost")
    name = ("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    _openssl(*request, *name, "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem")
    both = tmp_path / "both.pem"
    both.write_bytes((tmp_path / "key.pem").read_bytes() + (tmp_path / "cert.pem").read_bytes())
    port = free_port()
    settings = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": str(port),
        "ssl.keyStore.location": str(both),
        "ssl.trustStore.location": str(tmp_path / "cert.pem"),
        "ssl.clientAuth": "need",
    }
    server = ZooKeeper(find_distribution(), tmp_path / "server", settings)
    server.start()
    file = tmp_path / "client.toml"
    file.write_text(f'ca = "{tmp_path}/cert.pem"\ncertificate = "{tmp_path}/cert.pem"\nkey = "{tmp_path}/key.pem"\n')
    address = parse_address(f"localhost:{port}")
    assert {node.path for node in persistent(LiveEnsemble(address, read_client(file)))} == read(server).keys()
    for text in (f'ca = "{tmp_path}/cert.pem"\ntimeout-seconds = 3\n', "timeout-seconds = 3\n"):
        file.write_text(text)
        with pytest.raises(SourceNotFound, match="no ZooKeeper answers"):
            list(LiveEnsemble(address, read_client(file)).nodes([]))
    server.stop()


def test_login_by_sasl(tmp_path: Path) -> None:
    """DIGEST-MD5, as servers of Pulsar's are set up for it: a node of the user's alone is read with the password and with no other."""
    (tmp_path / "jaas.conf").write_text(
        'Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_admin="s3cret"; };'
    )
    provider = {"authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    jvm = [f"-Djava.security.auth.login.config={tmp_path}/jaas.conf"]
    server = ZooKeeper(find_distribution(), tmp_path / "server", provider, jvm)
    server.start()
    with server.client() as client:
        client.create("/secret", b"x", acl=[make_acl("sasl", "admin", read=True)])
    (tmp_path / "password").write_text("s3cret\n")
    file = tmp_path / "client.toml"
    file.write_text('scheme = "sasl"\nuser = "admin"\npassword-file = "password"\n')
    assert read(server, login=read_client(file))["/secret"] == (b"x", 0)
    with pytest.raises(Refused, match="/secret"):
        read(server)
    with pytest.raises((Refused, SourceNotFound)):
        read(server, login=Client(scheme="sasl", user="admin", password="other", timeout_seconds=5))
    server.stop()


# -- the way back -----------------------------------------------------------------------------------------------------

CHANGES = (
    "topics skip public/default/plain -s half -n 3",
    "topics create-subscription public/default/plain -s made -m earliest",
    "topics unsubscribe public/default/plain -s never",
    "topics create public/default/fresh",
    "namespaces create acme/new",
    "tenants update acme --admin-roles ops,dev",
)
PLAIN = "/managed-ledgers/public/default/persistent/plain"


class Changed(NamedTuple):
    """A running ensemble, and a store of its files with changes."""

    server: ZooKeeper
    store: Path


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Changed]:
    """The recorded cluster's ensemble, running, and a store of its files with changes."""
    source = scratch_copy("cluster", "clean", tmp_path)
    server = ZooKeeper(find_distribution(), tmp_path / "server")
    shutil.copytree(source / "zookeeper" / "version-2", tmp_path / "server" / "version-2")
    store = tmp_path / "store"
    run_toolkit(store, "store", "import", "standalone", source)
    for line in CHANGES:
        run_toolkit(store, *line.split())
    server.start()
    yield Changed(server, store)
    server.stop()


def run(store: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A command that may fail."""
    command = [sys.executable, "-m", "pulsar_admin", "--store", str(store), *map(str, arguments)]
    environment = {key: value for key, value in os.environ.items() if key not in environment_variables()}
    return subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)


def values_of(store: Path) -> dict[str, bytes]:
    with open_store(store) as opened, opened.read() as txn:
        return {node.path: node.value for node in iter_nodes(txn, "/")}


def test_changes_reach_the_ensemble_in_one_transaction(cluster: Changed) -> None:
    server, store = cluster
    with server.client() as client:
        before = nodes_of(client)
        report = run_toolkit(store, "store", "export", "zookeeper", server.address, "--yes")
        after = nodes_of(client)
        assert {path: value for path, (value, _) in after.items()} == values_of(store)
        changed = {path: node["action"] for node in report["nodes"] for path in [node["path"]]}
        assert changed == {
            path: "create" if path not in before else "delete" if path not in after else "update"
            for path in before.keys() | after.keys()
            if before.get(path) != after.get(path)
        }
        assert len(changed) >= 6
        zxids = {client.exists(path).mzxid for path, action in changed.items() if action != "delete"}
        assert zxids == {int(report["zxid"], 16)}
        assert run_toolkit(store, "store", "export", "zookeeper", server.address, "--yes")["nodes"] == []
        assert nodes_of(client) == after


def test_older_files_take_nothing_back(cluster: Changed, tmp_path: Path) -> None:
    """The store's source is a copy made before the export: a refresh of it is refused, one of a new copy finds nothing."""
    server, store = cluster
    run_toolkit(store, "store", "export", "zookeeper", server.address, "--yes")
    before = values_of(store)
    answer = run(store, "store", "refresh")
    assert answer.returncode == 3
    assert "this store has exported" in answer.stderr
    assert values_of(store) == before
    source = tmp_path / "cluster-clean" / "zookeeper" / "version-2"
    shutil.rmtree(source)
    shutil.copytree(server.folder / "version-2", source)
    refreshed = run_toolkit(store, "store", "refresh")
    assert [refreshed[f"nodes{what}"] for what in ("Added", "Updated", "Removed")] == [0, 0, 0]
    assert refreshed["conflicts"] == []
    assert values_of(store) == before


def test_one_node_that_moved_refuses_the_whole(cluster: Changed) -> None:
    server, store = cluster
    with server.client() as client:
        value, _ = client.get(f"{PLAIN}/half")
        client.set(f"{PLAIN}/half", value)  # the same value, another version
        before = nodes_of(client)
        answer = run(store, "store", "export", "zookeeper", server.address, "--yes")
        assert answer.returncode == 4
        assert f"{PLAIN}/half is no longer as imported: expected version 3" in answer.stderr
        assert nodes_of(client) == before


def test_a_bundle_with_an_owner_refuses_the_whole(cluster: Changed) -> None:
    server, store = cluster
    with server.client() as client:
        bundle = "/namespace/public/default/0xc0000000_0xffffffff"  # CRC-32 of the topic's name: 0xdd337939
        owner = b'{"nativeUrl":"pulsar://broker-7:6650"}'
        client.create(bundle, owner, ephemeral=True, makepath=True)
        before = nodes_of(client)
        answer = run(store, "store", "export", "zookeeper", server.address, "--yes")
        assert answer.returncode == 3
        assert "persistent://public/default/plain (pulsar://broker-7:6650)" in answer.stderr
        assert nodes_of(client) == before
        client.delete(bundle)
        assert run(store, "store", "export", "zookeeper", server.address, "--yes").returncode == 0


def test_ledger_ids_go_on_behind_ours(server: ZooKeeper) -> None:
    """What a broker does for an id: a sequential node below idgen, whose number it is."""
    with server.client() as client, open_session(parse_address(server.address), Client()) as session:

        def give() -> int:
            path = client.create("/ledgers/idgen/ID-", b"", ephemeral=True, sequence=True)
            client.delete(path)
            return int(path.rpartition("-")[2])

        first = give()
        assert ledger_sequence(session) == first + 1
        held = client.create("/ledgers/idgen/ID-", b"", ephemeral=True, sequence=True)
        assert ledger_sequence(session) == first + 2
        raise_ledger_sequence(session, first + 70_000)
        assert give() == first + 70_000
        raise_ledger_sequence(session, 5)
        assert give() == first + 70_001
        assert client.get_children("/ledgers/idgen") == [held.rpartition("/")[2]]


def test_a_server_refuses_what_is_longer_than_its_buffer(tmp_path: Path) -> None:
    """Its limit is that of ours: a request of just that size is taken, one of a byte more ends the connection."""
    server = ZooKeeper(find_distribution(), tmp_path)
    server.start()
    with open_session(parse_address(server.address), Client(timeout_seconds=5)) as session:

        def transaction(extra: int) -> Transaction:
            made = Transaction(session, [Write("/big", b"", None)])
            value = b"x" * (1_048_575 - made.size_bytes + extra)
            return Transaction(session, [Write("/big", value, None)])

        assert transaction(0).size_bytes == 1_048_575
        with pytest.raises(SourceBusy):
            transaction(1).commit()
    with open_session(parse_address(server.address), Client(timeout_seconds=5)) as session:
        assert session.find_nodes(["/big"]) == {}
        transaction(0).commit()
        assert len(session.find_nodes(["/big"])["/big"].value) > 1_000_000
    server.stop()


@pytest.mark.parametrize("name", ["cluster", "small"])
def test_a_server_starts_on_a_snapshot(name: str, tmp_path: Path) -> None:
    """Of ZooKeeper's own metadata, and of a standalone's RocksDB: every node as it is in the store, and new ids above the old ones."""
    store, out = tmp_path / "store", tmp_path / "out"
    run_toolkit(store, "store", "import", "standalone", scratch_copy(name, "mutated", tmp_path))
    run_toolkit(store, *CHANGES[0].split())
    report = run_toolkit(store, "store", "export", "zookeeper-snapshot", out)
    server = ZooKeeper(find_distribution(), out)
    server.start()
    with server.client() as client, open_store(store) as opened, opened.read() as txn:
        live = nodes_of(client)
        tree = {node.path: (node.value, node.stat.version) for node in iter_nodes(txn, "/")}
        tree.pop("/zookeeper/config", None)
        assert {path: node for path, node in live.items() if path in tree} == tree
        made = live.keys() - tree.keys() - {"/zookeeper", "/zookeeper/config", "/zookeeper/quota", "/ledgers/idgen"}
        assert all(any(other.startswith(path + "/") for other in tree) for path in made)
        assert len(live) + 1 == report["nodes"]
        for node in iter_nodes(txn, "/ledgers/"):
            stat = client.exists(node.path)
            assert (stat.ctime, stat.mtime) == (node.stat.created_ms, node.stat.modified_ms)
        new = client.create("/ledgers/idgen/ID-", b"", ephemeral=True, sequence=True)
        assert int(new.rpartition("-")[2]) == report["nextLedgerId"]
        client.create("/after", b"1")
    server.stop()
    server.start()  # on the snapshot, the log behind it, and what it writes at a start
    with server.client() as client:
        assert client.get("/after")[0] == b"1"
        assert nodes_of(client).keys() == live.keys() | {"/after"}
    server.stop()
    problems: list[str] = []
    assert {node.path for node in read_zookeeper_nodes(out / "version-2", problems)} == live.keys() | {"/after"}
    assert not problems


def test_there_and_back_with_a_live_ensemble(tmp_path: Path) -> None:
    """Imported of the ensemble itself: behind an export there is nothing to export, and a refresh finds nothing new."""
    source = scratch_copy("cluster", "clean", tmp_path)
    server = ZooKeeper(find_distribution(), tmp_path / "server")
    shutil.copytree(source / "zookeeper" / "version-2", tmp_path / "server" / "version-2")
    server.start()
    store = tmp_path / "store"
    bookies = [word for number in range(3) for word in ("--bookie", source / f"bookkeeper{number}")]
    run_toolkit(store, "store", "import", "cluster", "--zookeeper", server.address, *bookies)
    for line in (*CHANGES, CHANGES[0]):
        run_toolkit(store, *line.split())
    for changed in (True, False):
        report = run_toolkit(store, "store", "export", "zookeeper", server.address, "--yes")
        assert bool(report["nodes"]) == changed
        refreshed = run_toolkit(store, "store", "refresh")
        counts = [refreshed[f"nodes{what}"] for what in ("Added", "Updated", "Removed")]
        assert (counts, refreshed["conflicts"]) == ([0, 0, 0], [])
    with server.client() as client:
        client.set(f"{PLAIN}/half", client.get(f"{PLAIN}/half")[0])  # a broker goes on
        assert run_toolkit(store, "store", "refresh")["nodesUpdated"] == 1
        run_toolkit(store, "store", "undo", "6")
        run_toolkit(store, "store", "export", "zookeeper", server.address, "--yes")
        assert {path: value for path, (value, _) in nodes_of(client).items()} == values_of(store)
    server.stop()


def test_a_ledger_of_ours_reaches_bookies_and_the_ensemble(cluster: Changed, tmp_path: Path) -> None:
    """Compacted offline: refused until bookies have the entries; then its metadata names them, and new ids go on behind it."""
    server, store = cluster
    export = ("store", "export", "zookeeper", server.address, "--yes")
    run_toolkit(store, "compaction", "run", "acme/orders/compacted", "--from-start")
    refused = run(store, *export)
    assert refused.returncode == 3
    assert "store export bookie" in refused.stderr
    source = tmp_path / "cluster-clean"
    bookies = [f"bk{number}test={source}/bookkeeper{number}" for number in range(3)]
    placed = run_toolkit(store, "store", "export", "bookie", *bookies, "--yes")
    report = run_toolkit(store, *export)
    created = [node["path"] for node in report["nodes"] if node["action"] == "create"]
    (path,) = (path for path in created if path.startswith("/ledgers/"))
    with server.client() as client:
        raw = decode_ledger_metadata(client.get(path)[0], path)
        assert set(raw.segments[0].members) <= {f"bk{number}test" for number in range(3)}
        assert str(ledger_id_of_path(path)) in str(placed)
        new = client.create("/ledgers/idgen/ID-", b"", ephemeral=True, sequence=True)
        assert int(new.rpartition("-")[2]) == report["nextLedgerId"] == (ledger_id_of_path(path) or 0) + 1
        client.delete(new)
    assert run_toolkit(store, *export)["nodes"] == []
