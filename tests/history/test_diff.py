"""``store diff`` against trees replayed from what ZooKeeper's own classes read, and cursors as the broker had them."""

from itertools import permutations
from pathlib import Path

import pytest

from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.history.differences import (
    Difference,
    Side,
    _changed,
    _side_of,
    known_position,
)
from pulsar_admin.store.history.words import entries_between
from pulsar_admin.store.names import Position
from tests.conftest import Cli
from tests.history.test_import_at import values_as_of
from tests.stores import copied, imported
from tests.test_bounds import UNREADABLE

FIRST, LAST = 0x250, 0x35D


def test_two_moments(cli: Cli, unpacked: Path, tmp_path: Path) -> None:
    line = f"store diff --from {FIRST:#x} --to {LAST:#x} --zookeeper {unpacked} --all -o json".split()
    rows = cli("--store", tmp_path / "none", *line).json
    before, after = values_as_of(FIRST), values_as_of(LAST)
    differing = {path for path in {*before, *after} if before.get(path) != after.get(path)}
    shown = {node["path"]: node for row in rows for node in row["nodes"]}
    assert set(shown) == differing
    assert sum(len(row["nodes"]) for row in rows) == len(differing) > 150
    usual = cli("--store", tmp_path / "none", *(word for word in line if word != "--all")).json
    assert [row for row in usual if row["kind"] == "topic"] == [row for row in rows if row["kind"] == "topic"]
    for path, node in shown.items():
        expected = "created" if path not in before else "deleted" if path not in after else "changed"
        assert node["change"] == expected
    topics = {path for path in differing if path.startswith("/managed-ledgers/") and path.count("/") == 5}
    named = {row["name"]: row["change"] for row in rows if row["kind"] == "topic"}
    for path in topics:
        _, _, tenant, namespace, _, local = path.split("/")
        name = f"persistent://{tenant}/{namespace}/{local}".replace("%25", "%")
        assert named[name] == shown[path]["change"]
    (plain,) = (row for row in rows if row["name"] == "persistent://public/default/plain")
    assert plain["what"][0] == "ledger 47 closed with 15 entries (3,045 bytes); rolled over to ledger 151"
    assert plain["subscriptions"]["expire-me"] == "mark-delete 47:14 → 8:-1, 375 entries back"  # 9 × 40 + 15


def test_two_stores(cli: Cli, tmp_path: Path) -> None:
    """A cursor that was moved in one of them, and nothing else; the same store twice is no difference."""
    clean, moved = imported("small", "clean"), copied("small", "clean", tmp_path)
    assert cli("store", "diff", clean, moved, "-o", "json").json == []
    assert cli("--store", moved, "topics", "skip", "public/default/plain", "-s", "half", "-n", "7").exit_code == 0
    (row,) = cli("store", "diff", clean, moved, "-o", "json").json
    assert (row["kind"], row["name"], row["change"]) == ("topic", "persistent://public/default/plain", "changed")
    (text,) = row["subscriptions"].values()
    assert text.endswith(", 7 entries on")
    assert (
        cli("store", "diff", moved, clean, "-o", "json").json[0]["subscriptions"]["half"].endswith(", 7 entries back")
    )
    assert cli("--store", moved, "topics", "delete", "public/default/json", "--yes").exit_code == 0
    rows = cli("store", "diff", clean, moved, "-o", "json").json
    assert [row["change"] for row in rows if row["name"] == "persistent://public/default/json"] == ["deleted"]


def test_entries_of_a_ledger_that_one_side_lists_as_open_are_counted() -> None:
    topic, cursor = "/managed-ledgers/a/b/persistent/t", "/managed-ledgers/a/b/persistent/t/s"
    lists = [
        encode_managed_ledger(
            ManagedLedger(ledgers=tuple(LedgerInfo(3 + place, one) for place, one in enumerate(entries)))
        )
        for entries in ((10, 4, 0), (10, 0, 0))
    ]
    moved = (encode_cursor_info(CursorInfo(-1, Position(*one))) for one in ((3, 8), (5, -1)))
    node = Difference(cursor, *moved)
    assert known_position(cursor, b"\xff") is None
    at = encode_cursor_info(CursorInfo(-1, Position(3, 8)))
    assert _side_of(UNREADABLE).position(cursor, at) == Position(3, 8)  # its topic cannot be read
    for one, other in (*permutations(lists), (b"\xff", lists[0])):
        sides = Side({topic: one}.get, known_position), Side({topic: other}.get, known_position)
        (said,) = _changed("topic", "a/b/t", [node], sides).subscriptions.values()
        assert said == "mark-delete 3:8 → 5:-1, 5 entries on"


@pytest.mark.parametrize("words", [(), ("one",), ("one", "./one"), ("one", "two", "--from", "0x1"), ("--to", "0x1")])
def test_what_is_no_question(words: tuple[str, ...], cli: Cli) -> None:
    assert cli("store", "diff", *words).exit_code == 2


def test_entries_between_positions() -> None:
    ledgers = [LedgerInfo(3, 10, 1), LedgerInfo(5, 4, 1), LedgerInfo(9, 0, 0)]
    counts = ((3, 10), (5, 4), (9, 6))
    every = [Position(ledger_id, entry) for ledger_id, count in counts for entry in range(count)]
    for low in range(len(every)):
        for high in range(len(every)):
            assert entries_between(ledgers, every[low], every[high]) == high - low
