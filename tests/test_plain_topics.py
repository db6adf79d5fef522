"""What the pass over all nodes keeps of plain topics is what their nodes say one by one."""

from collections import deque
from pathlib import Path

import pytest

from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.codec.managedledger import SHADOW_SOURCE, LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.environment import create_store, open_store
from pulsar_admin.store.db.tree import Node, put_nodes
from pulsar_admin.store.facts.values import find_plain_nodes, iter_unusual
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import iter_topics
from pulsar_admin.store.names import Position
from tests.stores import imported, write_rows

ROOT = "/managed-ledgers/t/n/persistent"
CURSOR = encode_cursor_info(CursorInfo(-1, Position(7, -1)))
IN_A_LEDGER = encode_cursor_info(CursorInfo(9, None))
LEDGERS = encode_managed_ledger(ManagedLedger((LedgerInfo(7),)))
NODES = {
    "plain": LEDGERS,
    "plain/s": CURSOR,
    "plain-1": LEDGERS,  # its key is between those of a topic and its cursor
    "plain-1/s": CURSOR,
    "plain-1/u": IN_A_LEDGER,
    "compacted": LEDGERS,
    "compacted/__compaction": CURSOR,
    "encoded": LEDGERS,
    "encoded/a%2Fb": CURSOR,
    "long": LEDGERS,
    "long/" + 600 * "s": CURSOR,
    "deep": LEDGERS,
    "deep/s/below": CURSOR,
    "unread": LEDGERS,
    "unread/s": b"\xff",
    "empty": b"",
    "shadow": encode_managed_ledger(
        ManagedLedger((LedgerInfo(7),), properties={SHADOW_SOURCE: "persistent://t/n/plain"})
    ),
    "shadow/s": CURSOR,
}


def compared(store_path: Path) -> tuple[dict[str, object], dict[str, object]]:
    """Return what is found of each topic without the pass, and after it."""
    with open_store(store_path) as store, open_reader(store) as reader:
        txn = reader.txn
        paths = [name.path for name in iter_topics(txn)]
        alone = {path: find_plain_nodes(txn, path) for path in paths}
        deque(iter_unusual(txn), 0)
        return alone, {path: find_plain_nodes(txn, path) for path in paths}


@pytest.mark.parametrize(
    ("world", "state"), [("small", "clean"), ("small", "crashed"), ("cluster", "clean"), ("shapes", "clean")]
)
def test_of_recorded_topics(world: str, state: str) -> None:
    alone, kept = compared(imported(world, state))
    assert kept == alone
    assert any(alone.values())


def test_of_topics_with_more_to_say(tmp_path: Path) -> None:
    path = tmp_path / "store"
    create_store(path, now_ms=0)
    stat = NodeStat(0, 1, 0, 0, False)
    write_rows(path, lambda txn: put_nodes(txn, [Node(f"{ROOT}/{name}", stat, value) for name, value in NODES.items()]))
    alone, kept = compared(path)
    assert kept == alone
    assert [name for name, found in alone.items() if found] == [f"{ROOT}/plain"]


def test_nothing_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(imported("small", "clean")) as store, open_reader(store) as reader:
        txn = reader.txn
        name = next(name for name in iter_topics(txn) if find_plain_nodes(txn, name.path))
        deque(iter_unusual(txn), 0)
        monkeypatch.setattr("pulsar_admin.store.facts.values.find_plain_ledgers", None)
        assert find_plain_nodes(txn, name.path)
