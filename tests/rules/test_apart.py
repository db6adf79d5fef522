"""Metadata that has one part of a cluster: BookKeeper's without the brokers', and a BookKeeper that two Pulsars use."""

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.codec.zookeeper import ZooKeeperNode
from pulsar_admin.store.db.environment import open_store
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.sources.test_roots import of_cluster, write_files
from tests.stores import apply_values, imported
from tests.test_clusters import bookie, disks  # noqa: F401 - a fixture
from tests.worlds import CLUSTER, copy_tree, world

Json = Any  # a JSON value
Import = Callable[..., Path]


def standalone(tmp_path: Path) -> list[Any]:
    """A standalone's directory whose RocksDB has nothing but /ledgers."""
    copy_tree(world("small") / "clean", tmp_path / "source")
    with open_store(imported("small", "clean")) as store, store.read() as txn:
        keys = [key for key in txn.keys("tree", b"/") if not key.startswith(b"/ledgers")]
    apply_values(tmp_path / "source" / "metadata", dict.fromkeys(keys))
    return ["standalone", tmp_path / "source"]


def ensemble(tmp_path: Path) -> list[Any]:
    """The same of the files of a ZooKeeper with three bookies."""
    zookeeper = write_files(tmp_path / "zk", [node for node in of_cluster() if node.path.startswith("/ledgers")])
    return ["cluster", "--zookeeper", zookeeper]


@pytest.fixture(params=[("small", standalone), (CLUSTER, ensemble)], ids=["rocksdb", "zookeeper"])
def bare(request: pytest.FixtureRequest, tmp_path: Path, disks: Path, cli: Cli) -> tuple[str, Path]:  # noqa: F811
    name, make = request.param
    store = tmp_path / "s"
    words = make(tmp_path)
    if name == CLUSTER:
        words += [word for number in (1, 2, 3) for word in ("--bookie", bookie(disks, number))]
    done = cli("--store", store, "store", "import", *words, "-o", "json")
    assert (done.exit_code, done.json["findings"]) == (1, ["pulsar-metadata-absent"])
    return name, store


def orphans(cli: Cli, store: Path) -> Iterator[Json]:
    yield from cli("--store", store, "ledgers", "orphans", "-o", "jsonl").json_lines


def test_ledgers_alone_are_told_kept_and_cured(bare: tuple[str, Path], cli: Cli) -> None:
    name, store = bare
    listed = [
        row["ledgerId"] for row in orphans(cli, store) if row["reason"] not in ("deleted", "gone", "newer", "unlisted")
    ]
    assert {row["reason"] for row in orphans(cli, store) if row["ledgerId"] in listed} == {"unknown"}
    for one in listed:
        assert cli("--store", store, "ledgers", "delete", one, "--dry-run").exit_code == 3
    accepted = cli("--store", store, "ledgers", "delete", listed[0], "--accept-unknown-tree", "/managed-ledgers")
    assert (accepted.exit_code, "only copy" in accepted.stderr) == (3, True)
    found = cli("--store", store, "doctor", "-o", "jsonl").json_lines
    assert (found[0]["severity"], found[0]["code"]) == ("critical", "pulsar-metadata-absent")
    assert not [row for row in found if row["code"].startswith("leaked") or row["code"] == "ledgers-of-others"]
    assert cli("--store", store, *shlex.split(found[0]["mend"])[1:], "-y").exit_code == 0
    again = {row["code"] for row in cli("--store", store, "doctor", "-o", "jsonl").json_lines}
    assert not again & {"pulsar-metadata-absent", "topic-vanished"}
    topics = [
        set(cli.on(one, "topics list public/default").stdout.splitlines()) for one in (store, imported(name, "clean"))
    ]
    assert topics[0] >= {one for one in topics[1] if "-partition-" not in one and "parts" not in one} - {""}


def of_two_pulsars() -> list[ZooKeeperNode]:
    """The nodes of a cluster as those of two Pulsars on one BookKeeper: /a has the tenant public, /b has acme, /bk the ledgers."""

    def place(path: str) -> str:
        if path.startswith("/ledgers"):
            return path.replace("/ledgers", "/bk", 1)
        return ("/b" if "/acme" in path else "/a") + path

    nodes = [node._replace(path=place(node.path)) for node in of_cluster()]
    return [*nodes, *(node._replace(path=f"/b{node.path[2:]}") for node in nodes if node.path == "/a/admin/clusters")]


@deep_but_for((0,), ("chroot", "other"), [("/a", "/b"), ("/b", "/a")])
def test_ledgers_of_another_pulsar_on_the_same_bookkeeper_are_not_leaked(
    chroot: str,
    other: str,
    disks: Path,  # noqa: F811
    cli: Cli,
    tmp_path: Path,
) -> None:
    zookeeper, store = write_files(tmp_path / "zk", of_two_pulsars()), tmp_path / "s"
    bookies = [word for number in (1, 2, 3) for word in ("--bookie", bookie(disks, number))]
    words = ("store", "import", "cluster", "--zookeeper", zookeeper, "--chroot", chroot, *bookies)
    assert cli("--store", store, *words).exit_code == 0
    whole = imported(CLUSTER, "clean")
    of_other = {
        row["ledgerId"]
        for row in cli("--store", whole, "ledgers", "list", "-o", "jsonl").json_lines
        if any(("/acme/" in f"/{one['topic']}".replace("://", "/")) == (other == "/b") for one in row["owners"])
    }
    reasons = {row["ledgerId"]: row["reason"] for row in orphans(cli, store)}
    assert of_other
    assert {reasons[one] for one in of_other} == {"unknown"}
    found = cli("--store", store, "doctor", "-o", "jsonl").json_lines
    assert not [row for row in found if row["code"].startswith("leaked") or row["code"] == "topic-vanished"]
    (shared,) = (row for row in found if row["code"] == "bookkeeper-shared")
    assert (shared["severity"], shared["evidence"]["paths"]) == ("note", [other])
    for command in (("ledgers", "delete", min(of_other)), ("store", "recover", "--level", "A")):
        cli("--store", store, *command, "--dry-run").ends(3, f"--accept-unknown-tree {other}")
    assert f"at {chroot}, BookKeeper's root /bk" in cli("--store", store, "overview").stdout
    cli.done("--store", store, "store", "refresh")
    assert {row["reason"] for row in orphans(cli, store) if row["ledgerId"] in of_other} == {"unknown"}


def of_one_pulsar(tenant: str, *, has_ledgers: bool) -> list[ZooKeeperNode]:
    """The ZooKeeper of one of two Pulsars, with its tenant's nodes; BookKeeper's are in that of one of them."""
    other = {"public": "/acme", "acme": "/public"}[tenant]
    nodes = of_cluster()
    ledgers = [node for node in nodes if node.path.startswith("/ledgers")] if has_ledgers else []
    return [*(node for node in nodes if not node.path.startswith("/ledgers") and other not in node.path), *ledgers]


def import_with_bookies(cli: Cli, tmp_path: Path, disks: Path, nodes: list[ZooKeeperNode]) -> tuple[Path, Json]:  # noqa: F811
    store, zookeeper = tmp_path / "s", write_files(tmp_path / "zk", nodes)
    bookies = [word for number in (1, 2, 3) for word in ("--bookie", bookie(disks, number))]
    return store, cli("--store", store, "store", "import", "cluster", "--zookeeper", zookeeper, *bookies, "-o", "json")


def test_the_pulsar_with_bookkeepers_metadata_does_not_give_up_ledgers_of_the_one_without(
    disks: Path,  # noqa: F811
    cli: Cli,
    tmp_path: Path,
) -> None:
    """Two Pulsars with a ZooKeeper each on one BookKeeper: of the other's topics one cannot tell whether they are lost, and says both."""
    store, done = import_with_bookies(cli, tmp_path, disks, of_one_pulsar("public", has_ledgers=True))
    assert done.exit_code == 0
    reasons = {row["ledgerId"]: row["reason"] for row in orphans(cli, store)}
    assert set(reasons.values()) == {"unknown", "gone"}
    listed = [one for one, reason in reasons.items() if reason == "unknown"]
    for one in listed:
        assert cli("--store", store, "ledgers", "delete", one, "-y").exit_code == 3
    found = cli("--store", store, "doctor", "--each", "1000000", "-o", "jsonl").json_lines
    told = [row for row in found if row["code"] == "topic-vanished"]
    assert told
    assert all("/acme/" in row["where"] and "another Pulsar" in row["message"] for row in told)
    assert not [row for row in found if row["code"].startswith("leaked")]


@pytest.mark.parametrize("has_layout", [False, True], ids=["no BookKeeper", "a BookKeeper of its own"])
def test_the_pulsar_without_gives_up_no_ledger_of_its_own(
    has_layout: bool,
    disks: Path,  # noqa: F811
    cli: Cli,
    tmp_path: Path,
) -> None:
    nodes = of_one_pulsar("acme", has_ledgers=False)
    if has_layout:
        own = ("/ledgers", "/ledgers/LAYOUT", "/ledgers/INSTANCEID", "/ledgers/cookies", "/ledgers/available")
        nodes += [node for node in of_cluster() if node.path in own]
    store, done = import_with_bookies(cli, tmp_path, disks, nodes)
    assert done.exit_code == 1
    code = "bookie-unknown" if has_layout else "bookkeeper-metadata-absent"
    assert {code, "bookie-unknown"} <= {*done.json["findings"]}
    found = cli("--store", store, "doctor", "-o", "jsonl").json_lines
    leading = {row["code"] for row in found[: [row["code"] for row in found].index("ledger-without-metadata")]}
    assert {code, "bookie-unknown"} <= leading
    assert {row["reason"] for row in orphans(cli, store)} == {"newer" if has_layout else "unlisted"}
    missing = next(row for row in found if row["code"] == "ledger-missing")
    refused = cli("--store", store, *shlex.split(missing["mend"])[1:], "-y").ends(3, "--accept-unknown-tree /ledgers")
    looked = cli("--store", store, *shlex.split(refused.stderr.partition("see: ")[2].partition(";")[0])[1:])
    assert (looked.exit_code, code in looked.stdout or "bookie-unknown" in looked.stdout) == (1, True)
    accepted = ("--accept-unknown-tree", "/ledgers", "--dry-run")
    assert cli("--store", store, *shlex.split(missing["mend"])[1:], *accepted).exit_code == 0
