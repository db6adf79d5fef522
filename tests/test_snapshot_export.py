"""``store export zookeeper-snapshot``: every node of the store, on its parent, in a file that a server believes."""

import struct
import zlib
from io import BytesIO
from pathlib import Path

from pulsar_admin.store.codec.zookeeper import decode_snapshot
from pulsar_admin.store.db.files import METADATA_FILE_ID, Damage, put_damage
from pulsar_admin.store.db.tree import Node, iter_nodes
from pulsar_admin.store.sources.zookeeper import read_snapshot
from tests.conftest import Cli
from tests.stores import put_node, read_rows, write_rows
from tests.worlds import assert_unchanged
from tests.zookeeper_files import read_zookeeper_nodes

SKIP = ("topics", "skip", "public/default/plain", "-s", "half", "-n", "2")
COMPACT = ("compaction", "run", "acme/orders/compacted", "--format", "legacy", "--from-start")


def export(store: Path, target: Path, *options: str) -> tuple[object, ...]:
    return ("--store", store, "store", "export", "zookeeper-snapshot", target, "-o", "json", *options)


def tree_of(store: Path) -> dict[str, Node]:
    return read_rows(store, lambda txn: {node.path: node for node in iter_nodes(txn, "/")})


def test_every_node_and_its_parents(store: Path, tmp_path: Path, cli: Cli) -> None:
    """RocksDB keeps no parents; a path beyond LMDB's keys, one that sorts between a node and its children, a value of nothing."""
    long = "/managed-ledgers/" + "/".join(f"{part:0>250}" for part in "abc")
    for path in (long, f"{long}/d", "/ledgers-x", "/schemas/ü", "/schemas", "/zookeeper"):
        put_node(store, path, b"" if path == "/schemas" else path.encode())
    assert cli("--store", store, *SKIP).exit_code == 0
    report = cli(*export(store, tmp_path / "out")).json
    file = tmp_path / "out" / report["file"]
    tree = tree_of(store)
    snapshot = read_snapshot(file, "")
    found = {path: node for path, node in snapshot.nodes.items() if path in tree}
    assert {path: (node.data, node.version, node.created_ms, node.modified_ms) for path, node in found.items()} == {
        path: (node.value, node.stat.version, node.stat.created_ms, node.stat.modified_ms)
        for path, node in tree.items()
    }
    assert not any(node.ephemeral for node in snapshot.nodes.values())
    paths = list(snapshot.nodes)
    place = {path: number for number, path in enumerate(paths)}
    for path in paths:
        parent = path.rpartition("/")[0]
        assert not parent or place[parent] < place[path]
    made = snapshot.nodes.keys() - tree.keys()
    assert {path for path in made if not any(other.startswith(path + "/") for other in tree)} == {
        "/zookeeper",
        "/zookeeper/config",
        "/zookeeper/quota",
        "/ledgers/idgen",
    } - tree.keys()
    assert report["nodes"] == len(paths) + 1  # the root
    assert [change["action"] for change in report["changes"]] == ["update"]
    problems: list[str] = []
    assert {node.path for node in read_zookeeper_nodes(file.parent, problems)} == set(paths)
    assert not problems


def test_numbers_that_were_given_are_given_no_more(store: Path, tmp_path: Path, cli: Cli) -> None:
    """cversion is the number of the next sequential node (``PrepRequestProcessor``)."""
    put_node(store, "/counters/producer-name", b"")
    largest = max(int(path.rpartition("/L")[2]) for path in tree_of(store) if path.startswith("/ledgers/00/0000/L"))
    report = cli(*export(store, tmp_path / "out", "--now", "2026-11-23T00:00:00Z")).json
    raw = (tmp_path / "out" / report["file"]).read_bytes()
    assert cversion(raw, b"/ledgers/idgen") == report["nextLedgerId"] > largest + 65_536
    assert cversion(raw, b"/counters/producer-name") == 1_795_392_000
    assert cversion(raw, b"/ledgers/00/0000") == sum(
        path.startswith("/ledgers/00/0000/L") for path in decode_snapshot(BytesIO(raw), "snapshot").nodes
    )


def cversion(raw: bytes, path: bytes) -> int:
    """The fourth i32 of the stat behind the path and its value (``StatPersisted``)."""
    place = raw.index(struct.pack(">i", len(path)) + path) + 4 + len(path)
    (size,) = struct.unpack_from(">i", raw, place)
    return int(struct.unpack_from(">i", raw, place + 4 + size + 5 * 8 + 4)[0])


def test_the_seal_is_of_all_bytes(store: Path, tmp_path: Path, cli: Cli) -> None:
    """``SnapStream.sealStream``: Adler-32 as a long, and the path "/"."""
    report = cli(*export(store, tmp_path / "out")).json
    raw = (tmp_path / "out" / report["file"]).read_bytes()
    assert raw[:16] == b"ZKSN" + struct.pack(">iq", 2, -1)
    assert raw[-18:-13] == struct.pack(">i", 1) + b"/"
    assert raw[-13:] == struct.pack(">qi", zlib.adler32(raw[:-13]), 1) + b"/"


def test_what_is_refused(store: Path, tmp_path: Path, cli: Cli) -> None:
    target = tmp_path / "out"
    target.mkdir()
    with assert_unchanged(target):
        assert cli(*export(store, target)).error["code"] == "already-exists"
    target.rmdir()
    assert cli("--store", store, *COMPACT).exit_code == 0
    answer = cli(*export(store, target)).fails(3, "refused")
    assert "store export bookie" in answer.error["hint"]
    assert cli("--store", store, "store", "undo", "1").exit_code == 0
    damage = Damage(METADATA_FILE_ID, 5, 10, "/data/metadata /ledgers/00/0000/L0009: cut", -1, -1)
    write_rows(store, lambda txn: put_damage(txn, damage))
    answer = cli(*export(store, target)).fails(6, "metadata-corrupt", "L0009")
    assert not target.exists()
    assert cli(*export(store, target, "--force")).json["problems"] == [damage.reason]
    assert target.exists()
