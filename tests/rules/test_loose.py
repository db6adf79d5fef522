"""What one pass over many rows keeps of ledgers and topics: as one look at each row says."""

import random
from array import array
from pathlib import Path

import pytest

from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.blocks import ledger_key
from pulsar_admin.store.db.environment import Txn, create_store, open_store
from pulsar_admin.store.db.owners import is_listed, is_topics_alone
from pulsar_admin.store.db.tree import Node, find_node, iter_children, put_nodes
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.facts.values import iter_unusual
from pulsar_admin.store.model import ledger_owners, references, topics
from pulsar_admin.store.model.coverage import read_shortfalls
from pulsar_admin.store.model.ledger_owners import indexed_ids, iter_loose_owners, loose_of
from pulsar_admin.store.model.ledgers import find_whole, iter_indexed_ids, sorted_ledger_ids
from pulsar_admin.store.model.topics import count_topics, iter_headless, iter_topics
from pulsar_admin.store.names import parse_namespace
from tests.altering import alter, raw_rows
from tests.stores import copied, imported, read_rows, write_rows
from tests.worlds import STATES


def _compare(path: Path) -> tuple[int, int]:
    """Compare all, and return how many ledgers are loose, and how many are not."""
    with open_store(path) as store, store.read() as txn:
        for ledger_ids in (sorted_ledger_ids(txn), indexed_ids(txn), array("q"), array("q", [5, 7_000_000_000])):
            assert loose_of(txn, ledger_ids) == [one for one in ledger_ids if not is_listed(txn, one)]
        assert [*indexed_ids(txn)] == [*iter_indexed_ids(txn)]
        found = list(iter_loose_owners(txn))
        assert found == [(key, row) for key, row in txn.items("owners") if not is_topics_alone(row)]
        return len(loose_of(txn, sorted_ledger_ids(txn))), len(sorted_ledger_ids(txn))


@pytest.mark.parametrize("chunk", [1 << 16, 3])
@pytest.mark.parametrize("state", STATES)
def test_loose_ledgers_of_recorded_worlds(state: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_owners, "_CHUNK_LEDGERS", chunk)
    some, all_of_them = _compare(imported("small", state))
    assert 0 < some < all_of_them


@pytest.mark.usefixtures("damages_stores")
def test_loose_ledgers_beside_damaged_owners(store: Path) -> None:
    write_rows(store, _damage)
    some, _ = _compare(store)
    assert some > 20


def _damage(txn: Txn) -> None:
    draw = random.Random(1)
    rows = list(txn.items("owners"))
    for key, row in draw.sample(rows, 30):
        txn.put("owners", key, draw.choice((row[:-1], row + row, b"[]", row.replace(b"e", b"\\"), b"")))
    for key, _ in draw.sample(rows, 10):
        txn.delete("owners", key)
    txn.put("owners", ledger_key(-5), rows[0][1])


def test_a_key_that_is_none_leaves_all_ledgers_to_be_looked_at(tmp_path: Path) -> None:
    expected = read_rows(imported("small", "clean"), lambda txn: {*iter_indexed_ids(txn)})
    path = copied("small", "clean", tmp_path)
    with open_store(path, writable=True) as store:
        store.write(lambda txn: txn.put("times", b"short", b""))
        with store.read() as txn:
            with pytest.raises(StoreError):
                indexed_ids(txn)
            assert {*ledger_owners.find_loose_indexed(txn)} == expected
        store.write(lambda txn: txn.delete("times", b"short"))


@pytest.mark.parametrize("state", STATES)
def test_a_pass_over_all_nodes_leaves_what_a_look_at_all_ledgers_finds(state: str) -> None:
    found = []
    for is_after in (False, True):
        with open_store(imported("small", state)) as store, store.read() as txn:
            if is_after:
                list(iter_unusual(txn))
            ids = sorted_ledger_ids(txn)
            found.append((read_shortfalls(txn), [find_whole(txn, one) for one in ids]))
    assert found[0] == found[1]
    assert any(found[0][1])


@pytest.mark.parametrize("state", STATES)
def test_names_are_kept_as_they_are_listed(state: str) -> None:
    with open_store(imported("small", state)) as store, store.read() as txn:
        listed = list(iter_topics(txn))
        assert txn.memo
        kept = list(iter_topics(txn))
        assert [*iter_headless(txn)] == [one for one in kept if find_node(txn, one.path) is None]
        txn.memo.clear()
        assert list(iter_topics(txn)) == kept == listed
        assert count_topics(txn) == len(listed)
        assert [*iter_topics(txn, containing="-partition-")] == [one for one in kept if "-partition-" in one.local_name]


@pytest.mark.parametrize("run", [2, 1 << 14])
def test_names_that_others_lie_between_are_listed_once(
    run: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "_RUN_NAMES", run)
    draw, namespace = random.Random(3), parse_namespace("a/b")
    root, stat = f"{namespace.managed_ledgers_path}/", NodeStat(0, 0, 0, 0, False)
    names = {"".join(draw.choices("ab-", k=draw.choice([1, 2, 4, 368, 369, 400]))) for _ in range(200)}
    below = {f"{name}/{cursor}" for name in names for cursor in draw.sample(["c", "-", "c" * 400], 2)}
    headless = {name for name in names if draw.random() < 0.2}
    create_store(tmp_path / "store", now_ms=0)
    with open_store(tmp_path / "store", writable=True) as store:
        nodes = [Node(root + name, stat, b"x") for name in (names - headless) | below]
        store.write(lambda txn: put_nodes(txn, nodes))
        with store.read() as txn:
            assert sorted(iter_children(txn, root)) == sorted(names)
            for _ in range(2):  # the second time as they are kept
                assert [one.local_name for one in iter_topics(txn, namespace)] == sorted(names)
            assert {one.local_name for one in iter_headless(txn)} == headless


@pytest.mark.parametrize("many", [0, 1 << 40])
@pytest.mark.parametrize("state", STATES)
def test_references_come_in_the_order_of_the_rows(state: str, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "_MANY", many)
    with open_store(imported("small", state)) as store, store.read() as txn:
        assert [*references.find_references(store, txn).rows()] == [*txn.items("owners")]


@pytest.mark.usefixtures("damages_stores")
def test_altered_rows_are_found_by_their_keys(tmp_path: Path) -> None:
    path = copied("small", "clean", tmp_path)
    rows = [row for row in raw_rows(path) if row.database in ("tree", "owners")]
    chosen = random.Random(2).sample(rows, 3)
    for row in chosen:
        alter(path, row, len(row.value) // 2, 3)
    with open_store(path) as store, store.read() as txn:
        found = {(database, key) for database in ("tree", "owners", "times") for key in txn.find_altered(database)}
    assert found == {(row.database, row.key) for row in chosen}
