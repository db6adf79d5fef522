"""Where in a ZooKeeper's tree a cluster is: found in its files and in a running ensemble, kept, and written back to."""

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from pulsar_admin.store.codec.zookeeper import SnapshotNode, ZooKeeperNode, iter_snapshot
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.storeinfo import read_store_info
from pulsar_admin.store.db.tree import iter_nodes
from pulsar_admin.store.errors import SourceNotFound
from pulsar_admin.store.history.servers import find_servers
from pulsar_admin.store.sources.bookieconf import read_bookie_conf
from pulsar_admin.store.sources.roots import WHOLE, Roots
from pulsar_admin.store.sources.zookeeper import read_snapshot
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.fake_zookeeper import FakeZooKeeper, Znode
from tests.test_clusters import bookie, disks  # noqa: F401 - a fixture
from tests.worlds import assert_unchanged, world
from tests.zookeeper_files import read_zookeeper_nodes

ZXID = 7 << 32  # of a new leader's first transaction, which is in no log
KAFKA = [ZooKeeperNode(path, b"broker", 3, 1_000, 2_000, False, 1) for path in ("/brokers", "/brokers/ids")]
KAFKA += [ZooKeeperNode("/brokers/change_0000000041", b"", 0, 1_000, 2_000, False, 1)]

CHANGE = ("namespaces", "set-message-ttl", "acme/iot", "--messageTTL", "100")

Move = Callable[[str], str]


def below(chroot: str) -> Move:
    return lambda path: chroot + path


def ledgers_at(root: str) -> Move:
    return lambda path: root + path.removeprefix("/ledgers") if f"{path}/".startswith("/ledgers/") else path


def of_cluster() -> list[ZooKeeperNode]:
    """The nodes of a recorded cluster, without ZooKeeper's own."""
    nodes = read_zookeeper_nodes(world("cluster") / "clean" / "zookeeper" / "version-2", [])
    return [node for node in nodes if not f"{node.path}/".startswith("/zookeeper/")]


def made(path: str) -> int:
    """How many nodes were ever made below PATH: as many as ledgers got an id."""
    return 1_000 if path.endswith("/idgen") else 0


def write_files(folder: Path, nodes: Iterable[ZooKeeperNode]) -> Path:
    """Write NODES and what lies above them as a server's snapshot below FOLDER; return its dataDir."""
    known = {node.path: node for node in nodes}
    parents = {path[:at] for path in known for at in range(1, len(path)) if path[at] == "/"} - known.keys()
    paths = sorted(["", *known, *parents])
    (folder / "version-2").mkdir(parents=True)
    with open(folder / "version-2" / f"snapshot.{ZXID:x}", "wb") as file:
        for part in iter_snapshot(
            (
                SnapshotNode(path, node.data, node.version, made(path), node.created_ms, node.modified_ms)
                if (node := known.get(path)) is not None
                else SnapshotNode(path, b"", 0, 0, 1, 1)
                for path in paths
            ),
            ZXID,
        ):
            file.write(part)
    return folder


def moved(move: Move) -> list[ZooKeeperNode]:
    return [node._replace(path=move(node.path)) for node in of_cluster()]


Content = dict[str, tuple[bytes, int, int, int]]


def tree(store: Path) -> Content:
    """What a store has of each node, without ZooKeeper's own."""
    with open_store(store) as opened, opened.read() as txn:
        nodes = [node for node in iter_nodes(txn, "/") if not node.path.startswith("/zookeeper")]
    return {node.path: (node.value, node.stat.version, node.stat.created_ms, node.stat.modified_ms) for node in nodes}


@pytest.fixture(scope="module")
def plain() -> Content:
    """The same of the recorded files, whose cluster is at the root."""
    return {node.path: (node.data, node.version, node.created_ms, node.modified_ms) for node in of_cluster()}


PLACES = [
    pytest.param(below("/pulsar-prod"), Roots("/pulsar-prod", "/pulsar-prod/ledgers"), id="chroot"),
    pytest.param(below("/a/b"), Roots("/a/b", "/a/b/ledgers"), id="deep"),
    pytest.param(ledgers_at("/bookkeeper/ledgers"), Roots("", "/bookkeeper/ledgers"), id="ledgers apart"),
    pytest.param(
        lambda path: ledgers_at("/bk")(path) if path.startswith("/ledgers") else f"/p{path}",
        Roots("/p", "/bk"),
        id="both",
    ),
]


def test_paths_go_in_and_out_again() -> None:
    for _, roots in (place.values for place in PLACES):
        for path in ("/ledgers", "/ledgers/00/0000/L0001", "/admin/clusters", "/ledgers-x", "/managed-ledgers/a/b"):
            outer = roots.outer(path)
            assert (roots.inner(outer), WHOLE.inner(path), WHOLE.outer(path)) == (path, path, path)
        assert roots.inner(roots.chroot or "/bookkeeper") is None
    assert Roots("/a", "/a/ledgers").inner("/ab/c") is None
    assert Roots("", "/bk/ledgers").inner("/ledgers/LAYOUT") is None  # of nobody any more


@deep_but_for((0, 3), ("move", "roots"), PLACES)
def test_a_cluster_below_a_path_is_found_and_goes_back_there(
    move: Move, roots: Roots, plain: Content, tmp_path: Path, cli: Cli
) -> None:
    zookeeper = write_files(tmp_path / "zk", [*moved(move), *KAFKA] if roots.chroot else moved(move))
    store, out = tmp_path / "s", tmp_path / "out"
    with assert_unchanged(zookeeper):
        answer = cli("--store", store, "store", "import", "cluster", "--zookeeper", zookeeper)
        assert (answer.exit_code, roots.ledgers in answer.stderr or roots.chroot in answer.stderr) == (0, True)
        assert tree(store) == plain
        info = read_store_info(store).sources[0]
        assert Roots(info.get("chroot", ""), info.get("ledgersRoot", info.get("chroot", "") + "/ledgers")) == roots
        assert (roots.chroot or roots.ledgers) in cli("--store", store, "store", "info").stdout
        refreshed = cli("--store", store, "store", "refresh", "-o", "json").json
        assert [refreshed[f"nodes{what}"] for what in ("Added", "Updated", "Removed")] == [0, 0, 0]
        assert cli("--store", store, *CHANGE).exit_code == 0
        report = cli("--store", store, "store", "export", "zookeeper-snapshot", out, "-o", "json").json
    before = read_snapshot(zookeeper / "version-2" / f"snapshot.{ZXID:x}", "").nodes
    after = read_snapshot(out / report["file"], "").nodes
    (change,) = report["changes"]
    changed = roots.outer(change["path"])
    assert {path for path in before if after[path][1:5] != before[path][1:5] and before[path].data} == {changed}
    assert not [
        path for path in after.keys() - before.keys() if not path.startswith(("/zookeeper", roots.outer("/ledgers")))
    ]
    cli.done("--store", tmp_path / "again", "store", "import", "cluster", "--zookeeper", out)
    assert [key for key, row in tree(tmp_path / "again").items() if plain.get(key) != row and key in plain] == [
        change["path"]
    ]


def test_what_others_have_survives_an_export_or_it_is_refused(tmp_path: Path, cli: Cli) -> None:
    zookeeper = write_files(tmp_path / "zk", [*moved(below("/p")), *KAFKA])
    store = tmp_path / "s"
    assert cli("--store", store, "store", "import", "cluster", "--zookeeper", zookeeper).exit_code == 0
    assert not [key for key in tree(store) if key.startswith("/brokers")]
    report = cli("--store", store, "store", "export", "zookeeper-snapshot", tmp_path / "out", "-o", "json").json
    nodes = read_snapshot(tmp_path / "out" / report["file"], "").nodes
    assert [nodes[node.path][:5] for node in KAFKA] == [node[:5] for node in KAFKA]
    assert report["nodesOutside"] == len(KAFKA) + 1  # and /p
    shutil.rmtree(zookeeper)
    refused = cli("--store", store, "store", "export", "zookeeper-snapshot", tmp_path / "alone")
    assert (refused.exit_code, (tmp_path / "alone").exists()) == (5, False)
    forced = cli("--store", store, "store", "export", "zookeeper-snapshot", tmp_path / "alone", "--force", "-o", "json")
    assert forced.exit_code == 0
    assert "/p/admin/clusters" in read_snapshot(tmp_path / "alone" / forced.json["file"], "").nodes


def test_of_several_one_is_chosen(plain: Content, tmp_path: Path, cli: Cli) -> None:
    """Each command that an error names can be typed, and does it."""
    zookeeper = write_files(tmp_path / "zk", [*moved(below("/prod")), *moved(below("/test")), *of_cluster()])
    words = ("--store", tmp_path / "s", "store", "import", "cluster", "--zookeeper", zookeeper)
    refused = cli(*words, "-o", "json").ends(3)
    assert not (tmp_path / "s").exists()
    hint = json.loads(refused.stderr)["error"]["hint"]
    lines = [line.removesuffix(", or:").split() for line in hint.partition(": ")[2].split("pulsar-admin ") if line]
    assert [line[-1].rstrip(",") for line in (line if line[-1] != "or:" else line[:-1] for line in lines)] == [
        "/",
        "/prod",
        "/test",
    ]
    for number, chroot in enumerate(("/", "/prod", "/test")):
        store = tmp_path / f"s{number}"
        assert cli("--store", store, *words[2:], "--chroot", chroot).exit_code == 0
        assert tree(store).keys() >= plain.keys()
    for option in ("--chroot", "--ledgers-root"):
        cli(*words, option, "/nowhere").ends(5, "no cluster at /nowhere: it has /, /prod")
    assert cli(*words, "--chroot", "no path").exit_code == 2


def test_the_configuration_of_a_bookie_chooses(disks: Path, tmp_path: Path, cli: Cli) -> None:  # noqa: F811
    zookeeper = write_files(tmp_path / "zk", [*moved(below("/prod")), *moved(below("/test"))])
    directories = bookie(disks, 1).split(",")
    conf = tmp_path / "bookkeeper.conf"
    for uri in ("zk+hierarchical://zk1:2181;zk2:2181/test/ledgers", "metadata-store:zk:zk1:2181/test/ledgers"):
        conf.write_text(
            f"journalDirectories={directories[-1]}\nledgerDirectories={directories[0]}\nmetadataServiceUri={uri}\n"
        )
        assert read_bookie_conf(conf).metadata_root == "/test/ledgers"
    store = tmp_path / "s"
    answer = cli("--store", store, "store", "import", "cluster", "--zookeeper", zookeeper, "--bookie-conf", conf)
    assert read_store_info(store).sources[0]["chroot"] == "/test", answer.stderr
    conf.write_text(
        conf.read_text().partition("metadataServiceUri")[0] + "zkServers=zk1:2181/prod\nzkLedgersRootPath=/ledgers\n"
    )
    assert read_bookie_conf(conf).metadata_root == "/prod/ledgers"


@pytest.mark.parametrize("nodes", [[], KAFKA])
def test_metadata_of_no_cluster_is_refused(nodes: list[ZooKeeperNode], tmp_path: Path, cli: Cli) -> None:
    zookeeper = write_files(tmp_path / "zk", nodes)
    answer = cli("--store", tmp_path / "s", "store", "import", "cluster", "--zookeeper", zookeeper)
    assert (answer.exit_code, (tmp_path / "s").exists()) == (5, False)
    assert "no metadata of Pulsar or BookKeeper" in answer.stderr
    with FakeZooKeeper({node.path: Znode(node.data) for node in nodes}) as server:
        answer = cli("--store", tmp_path / "s", "store", "import", "cluster", "--zookeeper", server.address)
    assert (answer.exit_code, "no metadata of Pulsar or BookKeeper" in answer.stderr) == (5, True)
    # History is read of such files as well, but for a cluster that was asked for.
    assert [server.roots for server in find_servers((), [str(zookeeper)])] == [WHOLE]
    with pytest.raises(SourceNotFound):
        find_servers((), [str(zookeeper)], "/pulsar")


@deep_but_for((0, 3), ("move", "roots"), PLACES)
def test_a_running_ensemble_is_read_and_written_as_its_files(
    move: Move, roots: Roots, plain: Content, tmp_path: Path, cli: Cli
) -> None:
    nodes = {
        node.path: Znode(node.data, node.version, created_ms=node.created_ms, modified_ms=node.modified_ms)
        for node in moved(move)
    }
    parents = {path[:at] for path in nodes for at in range(1, len(path)) if path[at] == "/"}
    store = tmp_path / "s"
    with FakeZooKeeper({**{path: Znode(b"") for path in sorted(parents)}, **nodes}) as server:
        cli.done("--store", store, "store", "import", "cluster", "--zookeeper", server.address)
        assert {key: row for key, row in tree(store).items() if key in plain} == plain
        assert cli("--store", store, *CHANGE).exit_code == 0
        written = cli.done("--store", store, "store", "export", "zookeeper", server.address, "-o", "json", "--yes")
        (node,) = written.json["nodes"]
        outer = roots.outer(node["path"])
        assert server.nodes[outer].version == nodes[outer].version + 1
        assert cli("--store", store, "store", "refresh", "-o", "json").json["nodesAdded"] == 0


def test_history_and_the_past_have_the_clusters_paths(tmp_path: Path, cli: Cli) -> None:
    zookeeper = write_files(tmp_path / "zk", [*moved(below("/p")), *KAFKA])
    rows = cli("--store", tmp_path / "none", "store", "history", "--all", "--zookeeper", zookeeper, "-o", "json").json
    paths = {row["path"] for row in rows}
    assert "/admin/clusters" in paths
    assert not [path for path in paths if path.startswith(("/p/", "/brokers"))]
