"""Trees of the metadata that this version does not know: named, kept, and refused by what destroys because nothing references a ledger."""

from pathlib import Path

import pytest

from pulsar_admin import Refused, reclaim
from pulsar_admin.store.codec.rocksvalue import NodeStat, encode_value
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import read_node
from tests.conftest import Cli
from tests.cures.curing import put_values
from tests.reclaiming import half_dead_bookie
from tests.stores import apply_values, lose_nodes, narrow_copy

_STAT = NodeStat(0, 0, 1, 1, False)
_NODES = {  # of a Pulsar 5 and of one after it, of Kafka, of nobody known, and what a 4.x cluster has beside what a standalone has
    "/topics/acme/n/scal/controller": b"",
    "/topics/acme/n/scal/tails": b"",
    "/topics/acme/n/scal/tails/0": b"{}",
    "/txn/tc/parallelism": b"16",
    "/txn/tail": b"1",
    "/brokers/ids/0": b"{}",
    "/widgets": b"",
    "/pulsar/functions": b"",
    "/pulsar": b"",
    "/zookeeper/quota": b"",
    "/stream/storage": b"",
    "/service_unit_state/acme/n/0x00000000_0xffffffff": b"{}",
}
_UNKNOWN = ("/brokers", "/topics", "/txn", "/widgets")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = narrow_copy(tmp_path)
    put_values(path, _NODES)
    return path


def accepting(*trees: str) -> list[str]:
    return [word for tree in trees for word in ("--accept-unknown-tree", tree)]


@pytest.mark.parametrize(
    "words",
    [("ledgers", "delete", "20"), ("ledgers", "forget", "9", "--force"), ("store", "recover", "--level", "A")],
    ids=" ".join,
)
def test_what_destroys_refuses_until_each_is_accepted(store: Path, cli: Cli, words: tuple[str, ...]) -> None:
    for accepted in ((), ("/topics",), ("/topics", "/txn/", "/brokers")):
        refused = cli("--store", store, *words, "--dry-run", *accepting(*accepted))
        left = [tree for tree in _UNKNOWN if tree not in {one.rstrip("/") for one in accepted}]
        assert refused.exit_code == 3
        assert " ".join(accepting(*left)) in refused.stderr
        assert not any(f"--accept-unknown-tree {tree}" in refused.stderr for tree in _UNKNOWN if tree not in left)
    passed = cli("--store", store, *words, "--dry-run", *accepting(*_UNKNOWN))
    assert passed.exit_code in (0, 5), passed.stderr  # ledger 20 is not in this store: asked for, and not found
    assert "accept-unknown-tree" not in passed.stderr


def test_ledgers_without_any_topic_are_not_deleted_unless_that_is_accepted(
    tmp_path: Path, cli: Cli, damages_stores: None
) -> None:
    path = narrow_copy(tmp_path)
    lose_nodes(path, "/managed-ledgers/")
    asked = ("--store", path, "ledgers", "delete", "9", "--force", "--dry-run")
    cli(*asked).ends(3, "has no /managed-ledgers: their owners are elsewhere, or lost")
    assert cli(*asked, *accepting("/managed-ledgers")).exit_code == 0


def test_force_accepts_no_tree(store: Path, cli: Cli) -> None:
    assert cli("--store", store, "ledgers", "delete", "20", "--force").exit_code == 3


def test_a_plan_is_asked_again_when_it_is_applied(tmp_path: Path, cli: Cli) -> None:
    path, plan = narrow_copy(tmp_path), tmp_path / "forget.plan"
    assert cli("--store", path, "ledgers", "forget", "9", "--force", "--plan", plan).exit_code == 0
    put_values(path, _NODES)
    refused = cli("--store", path, "apply", plan)
    assert refused.exit_code in (3, 4), refused.stderr  # the store changed, too


def test_each_is_named_by_doctor_and_check(store: Path, cli: Cli) -> None:
    found = cli("--store", store, "doctor", "--code", "unknown-tree", "-o", "jsonl").json_lines
    assert {row["where"]: row["message"] for row in found} == {
        "/brokers": "1 tree of another program (Kafka): 1 node, kept as they are",
        "/topics": "1 tree of a newer Pulsar: 2 nodes, kept as they are",
        "/txn": "1 tree of a newer Pulsar: 1 node, kept as they are",
        "/widgets": "1 tree of a newer Pulsar or another program: 1 node, kept as they are",
    }
    checked = cli("--store", store, "store", "check", "-o", "jsonl").json_lines
    assert [row["where"] for row in checked if row["code"] == "unknown-tree"] == [*_UNKNOWN]


def test_disks_are_not_reclaimed_by_metadata_with_unknown_trees(tmp_path: Path, cli: Cli) -> None:
    data = half_dead_bookie(tmp_path / "data")
    rows: dict[bytes, bytes | None] = {name.encode(): encode_value(_STAT, value) for name, value in _NODES.items()}
    apply_values(data / "metadata", rows)
    words = ("store", "reclaim", data / "bookkeeper", "--metadata", data / "metadata", "--dry-run")
    cli(*words).ends(3, " ".join(accepting(*_UNKNOWN)))
    assert cli(*words, *accepting(*_UNKNOWN)).exit_code == 0
    with pytest.raises(Refused, match="/brokers"):
        reclaim(str(data / "bookkeeper"), metadata=data / "metadata", dry_run=True, accept_unknown_tree=["/topics"])


def test_info_and_overview_name_them(store: Path, cli: Cli) -> None:
    words = (
        "1 tree of a newer Pulsar or another program: 1 node, kept as they are (/widgets); "
        "1 tree of another program (Kafka): 1 node, kept as they are (/brokers)"
    )
    for command in (("store", "info"), ("overview",)):
        text = cli("--store", store, *command).stdout
        assert "2 trees of a newer Pulsar: 3 nodes, kept as they are (/topics, /txn)" in text
        assert words in text
        found = cli("--store", store, *command, "-o", "json").json["unknownTrees"]
        assert {row["path"]: row["nodes"] for row in found} == {"/brokers": 1, "/topics": 2, "/txn": 1, "/widgets": 1}


def test_topics_that_are_known_change_as_ever(store: Path, cli: Cli) -> None:
    """And what is not known stays as it was, byte for byte."""
    topic = "public/default/plain"
    for words in (("reset-cursor", topic, "-s", "half", "-m", "earliest"), ("terminate", topic), ("truncate", topic)):
        cli.done("--store", store, "topics", *words)
    with open_store(store) as opened, opened.read() as txn:
        assert {path: read_node(txn, path).value for path in _NODES} == _NODES
