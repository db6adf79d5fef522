"""``ledgers delete``: the metadata of orphans alone; ``ledgers restore`` from the command line, with undo."""

from __future__ import annotations

from pathlib import Path

from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import Node, put_nodes, read_node, tree_key
from tests.commands.changing import check_undo, rows_of
from tests.conftest import Cli
from tests.stores import copied

ORPHANS = {17, 20, 53, 69, 102, 111, 113}
"""Of the world ``small``, clean: schema ledgers of lost races, cursor ledgers of cursors that were closed."""


def put_value(path: Path, node: str, value: bytes) -> None:
    def put(txn: Txn) -> None:
        put_nodes(txn, [Node(node, read_node(txn, node).stat, value)])

    with open_store(path, writable=True) as store:
        store.write(put)


def test_orphans_are_deleted_from_their_own_list(tmp_path: Path, cli: Cli) -> None:
    path = copied("small", "clean", tmp_path)
    before, file = rows_of(path), tmp_path / "orphans.jsonl"
    file.write_text(cli("--store", path, "ledgers", "orphans", "-o", "jsonl").stdout)
    done = cli("--store", path, "ledgers", "delete", "--from-file", file, "-o", "json")
    assert done.exit_code == 0, done.stderr
    after = rows_of(path)
    gone = set(before["tree"]) - set(after["tree"])
    assert gone == {tree_key(ledger_path(one)) for one in ORPHANS}
    assert after == {"tree": {k: v for k, v in before["tree"].items() if k not in gone}, "owners": before["owners"]}
    check_undo(cli, path, 1, before)


def test_what_is_referenced_stays(tmp_path: Path, cli: Cli) -> None:
    """One of each kind: a topic's, a schema's, a compacted view's, a delayed bucket's; nothing of a list with one of them goes."""
    path = copied("small", "clean", tmp_path)
    before = rows_of(path)
    for ledger in (9, 15, 85, 108):
        answer = cli("--store", path, "ledgers", "delete", "17", ledger)
        assert (answer.exit_code, f"ledger {ledger} is referenced: " in answer.stderr) == (3, True)
    assert cli("--store", path, "ledgers", "delete", "99999").exit_code == 5
    file = tmp_path / "ids"
    file.write_text("17\nseventeen\n")
    answer = cli("--store", path, "ledgers", "delete", "--from-file", file)
    assert (answer.exit_code, "line 2: no ledger id: 'seventeen'" in answer.stderr) == (2, True)
    assert rows_of(path) == before


def test_what_cannot_be_read_could_reference_it(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    path = copied("small", "clean", tmp_path)
    put_value(path, "/managed-ledgers/public/default/persistent/plain", b"\xff\xff")
    refused = cli("--store", path, "ledgers", "delete", "17")
    assert (refused.exit_code, "what references ledgers cannot be read whole" in refused.stderr) == (3, True)
    assert cli("--store", path, "ledgers", "delete", "17", "--force").exit_code == 0


def test_ledgers_of_other_programs_stay(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """Metadata without ``application=pulsar``: packages of functions keep such ledgers, which nodes of their own list."""
    from msgspec.structs import replace

    from pulsar_admin.store.codec.ledgermetadata import decode_ledger_metadata, encode_ledger_metadata

    path = copied("small", "clean", tmp_path)
    with open_store(path) as store, store.read() as txn:
        metadata = decode_ledger_metadata(read_node(txn, ledger_path(17)).value, "test")
    put_value(path, ledger_path(17), encode_ledger_metadata(replace(metadata, custom={})))
    refused = cli("--store", path, "ledgers", "delete", "17")
    assert (refused.exit_code, "other programs may use it" in refused.stderr) == (3, True)
    assert cli("--store", path, "ledgers", "delete", "17", "--force").exit_code == 0


def test_restoring_brings_the_same_bytes_and_is_undone(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """The node has the value that Pulsar wrote, but for the order of its custom metadata."""
    path = copied("small", "clean", tmp_path)
    with open_store(path) as store, store.read() as txn:
        value = read_node(txn, ledger_path(18)).value
    with open_store(path, writable=True) as store:
        store.write(lambda txn: txn.delete("tree", tree_key(ledger_path(18))))
    before = rows_of(path)
    for words in (("9",), ("17",), ("90",)):
        assert cli("--store", path, "ledgers", "restore", *words).exit_code == 3
    assert cli("--store", path, "ledgers", "restore", "99999").exit_code == 5
    assert cli("--store", path, "ledgers", "restore", "18").exit_code == 0
    with open_store(path) as store, store.read() as txn:
        assert sorted(read_node(txn, ledger_path(18)).value) == sorted(value)
    assert cli("--store", path, "topics", "stats", "public/default/plain").exit_code == 0
    check_undo(cli, path, 1, before)
