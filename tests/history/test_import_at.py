"""``store import … --at``: the tree of the store is the tree as it then was, by a replay in the test of what ZooKeeper's classes read."""

import shutil
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import iter_values
from tests.conftest import Cli
from tests.history.files import said_by_zookeeper
from tests.worlds import world


@pytest.fixture(scope="module")
def cluster() -> Path:
    return world("cluster") / "crashed"


def _values(store: Path) -> dict[str, bytes]:
    with open_store(store) as opened, opened.read() as txn:
        return {path: value for path, value in iter_values(txn, "/") if not path.startswith("/zookeeper")}


def values_as_of(zxid: int) -> dict[str, bytes]:
    """The persistent nodes behind transaction ZXID, replayed without ours."""
    said = said_by_zookeeper()
    failed = {item.zxid for item in said if item.kind == "14/-1"}
    tree: dict[str, tuple[bytes, bool]] = {}
    for item in said:
        if item.zxid > zxid or item.zxid in failed or not item.path:
            continue
        kind = item.kind.rpartition("/")[2]
        if kind in ("2", "-11"):
            for path in item.path.split():
                tree.pop(path, None)
        else:
            ephemeral = tree[item.path][1] if kind == "5" else item.version == "ephemeral"
            tree[item.path] = item.data, ephemeral
    return {path: data for path, (data, ephemeral) in tree.items() if not ephemeral}


def test_a_standalone_directory_with_zookeeper(cli: Cli, cluster: Path, tmp_path: Path) -> None:
    source = tmp_path / "standalone"
    shutil.copytree(cluster / "bookkeeper0", source / "bookkeeper0")
    (source / "zookeeper").symlink_to(cluster / "zookeeper")
    time = next(item.time_ms for item in said_by_zookeeper() if item.zxid == 0x200)
    local = datetime.fromtimestamp(time / 1000, ZoneInfo("Europe/Berlin")).isoformat(timespec="milliseconds")[:-6]
    words = ("--tz", "Europe/Berlin", "store", "import", "standalone", source, "--at", local)
    assert cli("--store", tmp_path / "store", *words).exit_code == 1  # the tree is older than the bookies
    assert _values(tmp_path / "store") == values_as_of(0x200)
    assert cli("--store", tmp_path / "store", "store", "refresh").exit_code in (0, 1)
    assert _values(tmp_path / "store") == values_as_of(0x200)


def test_what_cannot_be_then(cli: Cli, cluster: Path, tmp_path: Path) -> None:
    small = world("small") / "clean"
    for words, exit_code, text in (
        (("standalone", small, "--at", "-1h"), 3, "transaction logs of ZooKeeper alone"),
        (("cluster", "--zookeeper", cluster / "zookeeper", "--at", "@1"), 5, "logs begin with transaction 0x1"),
        (("cluster", "--zookeeper", cluster / "zookeeper", "--at", "0x9999"), 5, "newest transaction here is 0x517"),
        (("cluster", "--zookeeper", cluster / "zookeeper", "--at", "0x0"), 5, "logs begin with transaction 0x1"),
    ):
        found = cli("--store", tmp_path / "none", "store", "import", *words)
        assert (found.exit_code, text in found.stderr) == (exit_code, True), found.stderr
        assert not (tmp_path / "none").exists()
