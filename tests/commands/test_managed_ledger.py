"""``managed-ledger``: what ``pulsar-managed-ledger-admin`` of Pulsar 4.0.8 printed and wrote on the same nodes.

The script's own functions ran on the nodes of the world ``small``, clean, served in the place of a ZooKeeper; digests are the
beginnings of SHA-256 of what it wrote.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import find_node
from tests.conftest import Cli
from tests.stores import copied

PLAIN = "public/default/persistent/plain"
HALF = """\
cursorsLedgerId: -1
markDeleteLedgerId: 29
markDeleteEntryId: 24
lastActive: 1795253012014

"""


def _digest(store: Path, path: str) -> str:
    with open_store(store) as opened, opened.read() as txn:
        node = find_node(txn, path)
        return sha256(node.value).hexdigest()[:16]


def test_messages_are_printed_as_the_script_prints_them(cli: Cli, demo_store: Path) -> None:
    printed = cli("--store", demo_store, "managed-ledger", "print-managed-ledger", "-zk", "x:1", "-mlp", PLAIN).stdout
    assert printed.startswith(
        "ledgerInfo {\n  ledgerId: 9\n  entries: 25\n  size: 3987\n  timestamp: 1795252993134\n}\n"
    )
    assert len(printed) == 1098
    half = cli(
        "--store", demo_store, "managed-ledger", "print-cursor", "--managedLedgerPath", PLAIN, "--cursorName", "half"
    )
    assert half.stdout == HALF
    holes = cli("--store", demo_store, "managed-ledger", "print-cursor", "-mlp", PLAIN, "-cn", "holes")
    assert len(holes.stdout) == 6067


def test_changes_write_what_the_script_wrote(cli: Cli, demo_copy: Path) -> None:
    store, path = demo_copy / "pulsar-store", f"/managed-ledgers/{PLAIN}"
    before = _digest(store, path)
    command = ("--store", store, "managed-ledger")
    removed = cli(*command, "delete-managed-ledger-ids", "-mlp", PLAIN, "-lid", "9,21")
    assert removed.stdout.startswith(f"Updated {path} with value\nledgerInfo {{\n  ledgerId: 18\n")
    assert _digest(store, path) == "be30b8c405252127"
    assert cli("--store", store, "store", "undo", "1").exit_code == 0
    assert _digest(store, path) == before
    moved = cli(*command, "update-mark-delete-cursor", "-mlp", PLAIN, "-cn", "holes", "-cm", "9:6")
    assert moved.stdout.startswith(f"Updated {path}/holes with value \ncursorsLedgerId: -1\nmarkDeleteLedgerId: 9\n")
    assert "undo: pulsar-admin store undo 3" in moved.stderr
    assert _digest(store, f"{path}/holes") == "ddea76915d2e175b"


def test_a_position_in_a_cursor_ledger_moves_too(cli: Cli, tmp_path: Path) -> None:
    store = copied("small", "crashed", tmp_path)
    cursors = (f"{topic}/{cursor}" for topic in _topics(cli, store) for cursor in _subscriptions(cli, store, topic))
    topic, _, cursor = next(
        found for found in cursors if _printed(cli, store, found)[0] != "cursorsLedgerId: -1"
    ).rpartition("/")
    ledgers = cli("--store", store, "-o", "json", "topics", "stats-internal", topic).json["ledgers"]
    position = f"{ledgers[0]['ledgerId']}:0"
    words = ("update-mark-delete-cursor", "-mlp", _path(topic), "-cn", cursor, "-cm", position)
    moved = cli("--store", store, "managed-ledger", *words)
    assert "where pulsar-managed-ledger-admin would have left it" in moved.stderr
    assert _printed(cli, store, f"{topic}/{cursor}")[:3] == [
        "cursorsLedgerId: -1",
        f"markDeleteLedgerId: {ledgers[0]['ledgerId']}",
        "markDeleteEntryId: 0",
    ]
    shown = cli("--store", store, "-o", "json", "topics", "stats-internal", topic).json["cursors"][cursor]
    assert shown["markDeletePosition"] == position


def _topics(cli: Cli, store: Path) -> list[str]:
    return cli("--store", store, "topics", "list", "public/default").stdout.split()


def _subscriptions(cli: Cli, store: Path, topic: str) -> list[str]:
    return cli("--store", store, "topics", "subscriptions", topic).stdout.split()


def _path(topic: str) -> str:
    tenant, namespace, name = topic.removeprefix("persistent://").split("/", 2)
    return f"{tenant}/{namespace}/persistent/{name.replace('%', '%25')}"


def _printed(cli: Cli, store: Path, cursor: str) -> list[str]:
    topic, _, name = cursor.rpartition("/")
    words = ("print-cursor", "-mlp", _path(topic), "-cn", name)
    return cli("--store", store, "managed-ledger", *words).stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("print-managed-ledger -mlp public/default/plain", 2),
        ("print-managed-ledger -mlp public/default/persistent/absent", 5),
        ("print-managed-ledger", 2),
        (f"print-cursor -mlp {PLAIN}", 2),
        (f"print-cursor -mlp {PLAIN} -cn absent", 5),
        (f"delete-managed-ledger-ids -mlp {PLAIN}", 2),
        (f"delete-managed-ledger-ids -mlp {PLAIN} -lid 9,x", 2),
        (f"delete-managed-ledger-ids -mlp {PLAIN} -lid 9,10", 5),
        (f"update-mark-delete-cursor -mlp {PLAIN} -cn half", 2),
        (f"update-mark-delete-cursor -mlp {PLAIN} -cn half -cm 9", 2),
        (f"update-mark-delete-cursor -mlp {PLAIN} -cn half -cm 10:0", 5),
    ],
)
def test_what_cannot_be_meant_is_refused(cli: Cli, demo_store: Path, words: str, code: int) -> None:
    result = cli("--store", demo_store, "managed-ledger", *words.split())
    assert (result.exit_code, result.stdout) == (code, "")
