"""What a newer Pulsar keeps below ``/managed-ledgers`` owns its ledgers: in a real 5.0.1, and in domains that nobody wrote yet."""

from pathlib import Path

import pytest

from pulsar_admin.store.codec.claims import BUCKET_TOPIC, COMPACTED_TOPIC
from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import find_node, iter_nodes
from pulsar_admin.store.model.ledger_owners import claimed_paths
from pulsar_admin.store.model.nodes import iter_other_ledgers
from pulsar_admin.store.names import Position
from pulsar_admin.store.recovery.metadata_index import read_known
from tests.conftest import Cli
from tests.cures.curing import put_values
from tests.stores import copied, imported, lose_nodes, narrow_copy, read_rows, values_of

WORLD = "scalable"


# -- a real 5.0.1 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [WORLD, "five"])
def test_no_tree_of_a_5_0_1_is_unknown(name: str, cli: Cli) -> None:
    """So nothing has to be accepted. ``tests/test_packages.py`` has one on ZooKeeper, with packages."""
    path = imported(name, "clean")
    assert cli("--store", path, "store", "info", "-o", "json").json["unknownTrees"] == []
    assert cli("--store", path, "store", "recover", "--level", "A", "--dry-run").exit_code == 0


@pytest.mark.parametrize(
    "node", ["/topics/acme/n/scal/tails/0", "/topics/acme/n/scal/segments/0/tail", "/txn/tail/1", "/txn-op/1_2/0"]
)
def test_what_a_later_pulsar_adds_beside_the_known_nodes_is_an_unknown_tree(
    node: str, tmp_path: Path, cli: Cli
) -> None:
    """8 was the ledger of a cursor: its metadata is made again, as of an orphan."""
    path = copied(WORLD, "clean", tmp_path)
    put_values(path, {ledger_path(8): values_of(path)[ledger_path(9)]})
    words = ("--store", path, "ledgers", "delete", 8, "--force", "--dry-run")
    assert cli(*words).exit_code == 0
    put_values(path, {node: b"{}"})
    root = f"/{node.split('/')[1]}"
    cli(*words).ends(3, f"({root})")
    assert cli(*words, "--accept-unknown-tree", root).exit_code == 0


# -- what nobody wrote yet --------------------------------------------------------------------------------------------


def managed(*ledgers: int) -> bytes:
    return encode_managed_ledger(ManagedLedger(tuple(LedgerInfo(one, 1, 1, 1) for one in ledgers)))


def cursor(ledger: int = -1, **more: object) -> bytes:
    return encode_cursor_info(CursorInfo(ledger, Position(900, 0), **more))  # type: ignore[arg-type]


PLANTED = {
    "/managed-ledgers/acme/n": b"",  # a directory of ZooKeeper's
    "/managed-ledgers/acme/n/segment": b"",
    "/managed-ledgers/acme/n/segment/x%2Fy/0000-ffff-0": managed(900, 901),
    "/managed-ledgers/acme/n/segment/x%2Fy/0000-ffff-0/q%2F1": cursor(
        902, cursor_properties={"#pulsar.internal.delayed.bucket_900_900": "903"}
    ),
    "/managed-ledgers/acme/n/segment/x%2Fy/0000-ffff-0/__compaction": cursor(properties={"CompactedTopicLedger": 904}),
    "/managed-ledgers/acme/n/segment/persistent/0000-ffff-1": managed(905),
    "/managed-ledgers/acme/n/segment/persistent/0000-ffff-1/q": cursor(906),
    "/managed-ledgers/acme/n/queue": managed(907),
    "/managed-ledgers/acme/n/queue/a": managed(908),
    "/managed-ledgers/acme/n/queue/a/b/c/d": managed(909),
    "/managed-ledgers/acme/n/queue/a/b/c/d/sub": cursor(910),
    "/managed-ledgers/acme/n/queue/a-b": managed(911),
}
NAMED = {
    900: ("managed-ledger", "segment://acme/n/x/y/0000-ffff-0", ""),
    901: ("managed-ledger", "segment://acme/n/x/y/0000-ffff-0", ""),
    902: ("cursor", "segment://acme/n/x/y/0000-ffff-0", "q/1"),
    903: ("delayed-bucket", "segment://acme/n/x/y/0000-ffff-0", "q/1"),
    904: ("compacted", "segment://acme/n/x/y/0000-ffff-0", ""),
    905: ("managed-ledger", "segment://acme/n/persistent/0000-ffff-1", ""),
    906: ("cursor", "segment://acme/n/persistent/0000-ffff-1", "q"),
    907: ("managed-ledger", "/managed-ledgers/acme/n/queue", ""),
    908: ("managed-ledger", "queue://acme/n/a", ""),
    909: ("managed-ledger", "queue://acme/n/a/b/c/d", ""),
    910: ("cursor", "queue://acme/n/a/b/c/d", "sub"),
    911: ("managed-ledger", "queue://acme/n/a-b", ""),
}


def test_a_domain_of_any_name_and_depth_owns_its_ledgers(tmp_path: Path, cli: Cli) -> None:
    path = narrow_copy(tmp_path)
    ask = (("topics", "list", "acme/n"), ("namespaces", "list", "acme"), ("topics", "list", "public/default"))
    before = [cli("--store", path, *words).stdout for words in ask]
    put_values(path, PLANTED)
    found = {row["ledgerId"]: row["owners"] for row in cli.rows(path, "ledgers missing")}
    assert {ledger: tuple(one.values()) for ledger, (one,) in found.items() if ledger >= 900} == NAMED
    known = read_rows(path, lambda txn: read_known("test", ((node.path, node.value) for node in iter_nodes(txn, "/"))))
    assert set(known.names.ledgers.tolist()) >= set(NAMED)
    assert [cli("--store", path, *words).stdout for words in ask] == before


def test_what_is_not_known_is_told_of_once(tmp_path: Path, cli: Cli) -> None:
    path = narrow_copy(tmp_path)
    queue = "/managed-ledgers/public/default/queue"
    policies = b'{"retention_policies":{},"aNewKey":1}'
    put_values(path, {f"{queue}/a": managed(9), "/tail/1": b"", "/admin/policies/public/new": policies})
    found = {row["code"]: row for row in cli("--store", path, "doctor", "-o", "jsonl").json_lines}
    assert found["other-managed-ledgers"]["evidence"]["path"] == queue
    assert found["unknown-tree"]["where"] == "/tail"
    assert found["unknown-value"]["evidence"]["unknown"] == ["key aNewKey"]


def test_a_namespace_with_them_is_not_empty(tmp_path: Path, cli: Cli) -> None:
    path = narrow_copy(tmp_path)
    assert cli("--store", path, "namespaces", "create", "public/new").exit_code == 0
    put_values(path, {"/managed-ledgers/public/new/segment/x/0000-ffff-0": managed(900)})
    for force in ((), ("--force",)):
        refused = cli("--store", path, "namespaces", "delete", "public/new", *force, "-y")
        assert (refused.exit_code, "segment://public/new/x/0000-ffff-0" in refused.stderr) == (3, True)
    refused = cli.on(path, "tenants delete public --force -y").ends(3, "segment://public/new/x/0000-ffff-0")


def test_a_bundle_has_them_without_their_names(tmp_path: Path, cli: Cli) -> None:
    path, bundle = imported(WORLD, "clean"), tmp_path / "b"
    assert cli("--store", path, "store", "bundle", bundle, "--names", tmp_path / "names.json").exit_code == 0
    there = tmp_path / "there"
    made = cli("--store", there, "store", "import", "bundle", bundle, "-o", "json")
    assert made.json["sameFindings"] is True
    rows = cli("--store", there, "store", "info", "-o", "json").json
    before = cli("--store", path, "store", "info", "-o", "json").json
    keys = ("topics", "subscriptions", "unknownTrees", "otherManagedLedgers")
    assert [rows[key] for key in keys] == [before[key] for key in keys]
    assert "scal" not in cli("--store", there, "store", "info").stdout


@pytest.mark.usefixtures("damages_stores")
def test_no_command_is_printed_that_newer_ledgers_are_refused_by(cli: Cli, tmp_path: Path) -> None:
    """Of a lost ledger of a segment, of one whose metadata is lost, and of a topic's own."""
    store = copied(WORLD, "clean", tmp_path)
    gone = {35: "segment://acme/n/b/0000-ffff-1", 26: "segment://acme/n/scal/0000-ffff-2"}
    for ledger in gone:
        lose_nodes(store, ledger_path(ledger))
    found = [row for row in cli("--store", store, "doctor", "-o", "jsonl").json_lines if row["severity"] == "critical"]
    told = {row["evidence"]["ledgerId"]: row["code"] for row in found}
    assert told == {35: "newer-ledger-missing", 26: "ledger-without-metadata"}
    for row in found:
        assert cli("--store", store, *row["mend"].split()[1:]).exit_code in (0, 1)
    printed = cli("--store", store, "ledgers", "missing").stderr
    assert "forget" not in printed
    assert "look: pulsar-admin" in printed
    for line in printed.splitlines():
        if ": pulsar-admin " in line:
            assert cli("--store", store, *line.split(": pulsar-admin ")[1].split()).exit_code in (0, 1)
    checked = cli("--store", store, "store", "check").stdout
    assert "ledgers forget 35" not in checked


@pytest.mark.usefixtures("damages_stores")
def test_a_schema_that_a_scalable_topic_has_stays(cli: Cli, tmp_path: Path) -> None:
    """``b`` was migrated: its segment goes on with the schema of its name. ``a`` was not."""
    store = copied(WORLD, "clean", tmp_path)
    with open_store(store) as opened, opened.read() as txn:
        schema = find_node(txn, "/schemas/acme/n/scal")
        assert schema is not None
    for name, stays in (("b", True), ("a", False)):
        put_values(store, {f"/schemas/acme/n/{name}": schema.value})
        for force in ((), ("--force",)):
            refused = cli("--store", store, "-o", "json", "schemas", "delete", f"acme/n/{name}", *force, "--dry-run")
            assert refused.exit_code == (3 if stays else 0)
            if stays:
                words = refused.error["hint"].partition("pulsar-admin ")[2].partition(";")[0].split()
                assert cli("--store", store, *words).exit_code == 0
        done = cli.done("--store", store, "topics", "delete", f"acme/n/{name}", "--force", "-y")
        assert ("the schema of persistent://acme/n/b stays" in done.stderr) is stays
        with open_store(store) as opened, opened.read() as txn:
            assert (find_node(txn, f"/schemas/acme/n/{name}") is not None) is stays
            assert find_node(txn, f"/managed-ledgers/acme/n/persistent/{name}") is None
    cli("--store", store, "schemas", "delete", "acme/n/scal", "--force", "-y").ends(3, "/topics/acme/n/scal")


def test_a_value_that_nobody_understands_hides_no_other_managed_ledger(cli: Cli, tmp_path: Path) -> None:
    path, root = narrow_copy(tmp_path), "/managed-ledgers/public/default/queue"
    asked, said = (
        ("store info", "overview --no-check"),
        "\n1 managed ledger of a newer Pulsar: 1 ledger, 1 entry, 1 byte",
    )
    assert [said.partition(":")[0] in cli.on(path, line).stdout for line in asked] == [False, False]
    assert not cli.on(path, "store info").stdout.endswith("\n\n")
    put_values(path, {f"{root}/a": b"\xff", f"{root}/b": managed(900)})
    assert [said in cli.on(path, line).stdout for line in asked] == [True, True]
    assert read_rows(path, lambda txn: [name.local_name for name in iter_other_ledgers(txn)]) == ["b"]


def test_a_claim_that_is_no_name_hides_no_other() -> None:
    claims = {COMPACTED_TOPIC: b"://", BUCKET_TOPIC: b"a/b/persistent/t"}
    assert [*claimed_paths(claims)] == ["/managed-ledgers/a/b/persistent/t"]


def test_nothing_is_called_leaked_or_lost(cli: Cli) -> None:
    path = imported(WORLD, "clean")
    assert cli("--store", path, "store", "check", "--deep").exit_code == 0
    found = {row["code"] for row in cli("--store", path, "doctor", "-o", "jsonl").json_lines}
    assert found == {"ledgers-gone", "dead-bytes-kept"}


@pytest.mark.parametrize(
    "ledger", [3, 4, 26, 27, 28, 31, 32, 33, 34, 35]
)  # of the world's nodes, by Pulsar's own protobuf
def test_no_ledger_of_a_segment_is_deleted_or_forgotten(ledger: int, cli: Cli) -> None:
    path = imported(WORLD, "clean")
    for words in (("delete", ledger, "--force"), ("forget", ledger, "--force")):
        cli("--store", path, "ledgers", *words, "--dry-run").ends(3, "segment://acme/n/")


def test_every_way_of_asking_agrees() -> None:
    """The owners of a store, and what a metadata store alone names."""
    with open_store(imported(WORLD, "clean")) as store, store.read() as txn:
        known = read_known("test", ((node.path, node.value) for node in iter_nodes(txn, "/")))
        owned = {int.from_bytes(key, "big", signed=True) for key, _ in txn.items("owners")}
    assert set(known.names.ledgers.tolist()) == owned
    assert known.unknown_trees == ()
