"""Plan files forged with a text editor, and the audit log forged in the store: what is shown is what is done, or nothing is."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from store.changes.plan import read_change
from store.codec.cursor import decode_cursor_info, encode_cursor_info
from store.db.environment import Txn, open_store
from store.db.tree import Node, decode_node, encode_node, tree_key
from tests.commands.changing import rows_of
from tests.conftest import Cli
from tests.stores import NOW_MS, copied

Json = dict[str, Any]  # Any: JSON
TOPIC = "public/default/plain"
NOW = f"@{NOW_MS}"

PLANNED: dict[str, tuple[str, ...]] = {
    "reset": ("topics", "reset-cursor", TOPIC, "-s", "half", "-m", "9:3"),
    "reset several": ("topics", "reset-cursor", "--all-topics", "-s", "half", "-m", "earliest"),
    "skip": ("topics", "skip", TOPIC, "-s", "half", "-n", "2"),
    "clear": ("topics", "clear-backlog", TOPIC, "-s", "half"),
    "unsubscribe": ("topics", "unsubscribe", TOPIC, "-s", "half"),
    "create": ("topics", "create-subscription", TOPIC, "-s", "new one", "-m", "9:3", "-r", "-p", "a=b"),
    "expire": ("topics", "expire", TOPIC, "-s", "half", "-t", "1"),
    "namespace clear": ("namespaces", "clear-backlog", "public/default"),
    "namespace unsubscribe": ("namespaces", "unsubscribe", "public/default", "-s", "half"),
    "delay": ("namespaces", "enable-delayed-message", "public/default", "-p", "10m"),
    "delivery": ("namespaces", "set-delayed-delivery", "public/default", "-e", "-t", "2s"),
    "ttl": ("namespaces", "set-message-ttl", "public/default", "-ttl", "3600"),
    "retention": ("namespaces", "set-retention", "public/default", "-t", "2h", "-s", "1G"),
    "nacks": ("nacks", "add", TOPIC, "-s", "half", "--delay", "10s", "9:1", "9:2"),
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return copied("small", "clean", tmp_path)


def _plan(cli: Cli, store: Path, name: str = "reset") -> tuple[Path, Json]:
    file = store.parent / "a.plan"
    done = cli("--store", store, "--now", NOW, *PLANNED[name], "--plan", file)
    assert done.exit_code == 0, done.stderr
    assert file.stat().st_mode & 0o077 == 0
    return file, json.loads(file.read_bytes())


def _apply(cli: Cli, store: Path, file: Path, fields: Json, *options: str) -> Any:  # Any: CliResult
    file.write_text(json.dumps(fields))
    return cli("--store", store, "--now", NOW, "apply", file, "-o", "json", *options)


@pytest.mark.parametrize("name", PLANNED)
def test_a_plan_does_what_its_command_does(name: str, cli: Cli, store: Path, tmp_path: Path) -> None:
    """The same rows, and where, whose, before and after are the command's own."""
    (tmp_path / "other").mkdir()
    other = copied("small", "clean", tmp_path / "other")
    file, fields = _plan(cli, store, name)
    direct = cli("--store", other, "--now", NOW, *PLANNED[name], "-o", "json").json
    applied = _apply(cli, store, file, fields).json
    assert rows_of(store, "tree", "owners", "nacks", "delayed") == rows_of(other, "tree", "owners", "nacks", "delayed")
    told = {_whose(row): row for row in _listed(direct)}
    for row in _listed(applied):
        if "namespace" not in row:  # policies: every key that differs, not the command's choice of them
            same = ("before", "after", "entries", "messages", "bytes", "replayed", "skipped", "deletable")
            assert {key: row.get(key) for key in same} == {key: told[_whose(row)].get(key) for key in same}


def _listed(document: Any) -> list[Json]:  # Any: JSON
    return document if isinstance(document, list) else [document]


def _whose(row: Json) -> tuple[object, ...]:
    return row.get("topic"), row.get("subscription"), row.get("namespace")


def test_what_is_shown_comes_from_the_steps(cli: Cli, store: Path) -> None:
    """The issue's attack: reports, warnings and the name say something harmless."""
    file, fields = _plan(cli, store)
    honest = _apply(cli, store, file, fields, "--dry-run").json
    forged = json.loads(json.dumps(fields))
    forged["reports"] = [{"topic": "nothing", "subscription": "nobody", "before": 1, "after": 1, "entries": 0}]
    forged["warnings"], forged["loses"] = ["all is well"], ""
    assert _apply(cli, store, file, forged, "--dry-run").json == honest
    assert honest["before"]["markDeletePosition"] != honest["after"]["markDeletePosition"]
    assert _apply(cli, store, file, forged).exit_code == 0
    with open_store(store) as opened, opened.read() as txn:
        assert read_change(txn, 1).reports[0]["subscription"] == "half"


def _step(database: str, key: bytes, before: bytes | None, after: bytes | None) -> list[str | None]:
    return [database, *(None if raw is None else base64.b64encode(raw).decode() for raw in (key, before, after))]


def _any_row(txn: Txn, database: str) -> tuple[bytes, bytes]:
    key, value = next(txn.items(database))
    return key, bytes(value)


@pytest.mark.parametrize(
    "database", ["tree", "base", "logs", "entries", "times", "owners", "damage", "delayed", "nacks", "changes", "state"]
)
@pytest.mark.parametrize("how", ["delete", "replace", "add"])
def test_no_row_of_ours_is_written_by_a_plan(database: str, how: str, cli: Cli, store: Path) -> None:
    assert cli("--store", store, *PLANNED["skip"]).exit_code == 0
    file, fields = _plan(cli, store)
    with open_store(store) as opened, opened.read() as txn:
        empty = next(txn.items(database), None) is None
        key, value = (b"\x00key", b"") if empty else _any_row(txn, database)
    if how == "add" or empty:
        fields["steps"].append(_step(database, key + b"\xff", None, b"forged"))
    else:
        fields["steps"].append(_step(database, key, value, None if how == "delete" else value + b"x"))
    before = rows_of(store, "tree", "changes", database)
    done = _apply(cli, store, file, fields)
    assert (done.exit_code, done.error["code"]) == (2, "invalid-value"), done.stderr
    assert rows_of(store, "tree", "changes", database) == before


@pytest.mark.parametrize(
    "path", ["/ledgers/00/0000/L0009", "/managed-ledgers/public/default/persistent/plain", "/admin/clusters/x"]
)
def test_no_other_node_is_written_by_a_plan(path: str, cli: Cli, store: Path) -> None:
    file, fields = _plan(cli, store)
    with open_store(store) as opened, opened.read() as txn:
        row = txn.get("tree", tree_key(path))
    fields["steps"] = [_step("tree", tree_key(path), row, None if row is not None else b"\0" * 40)]
    assert _apply(cli, store, file, fields).exit_code == 2


def _changed_cursor(change: Callable[[Node], Node]) -> Callable[[Json], None]:
    def work(fields: Json) -> None:
        database, key, before, after = fields["steps"][0]
        raw = base64.b64decode(key)
        node = decode_node(raw, base64.b64decode(after))
        fields["steps"][0] = [database, key, before, base64.b64encode(encode_node(change(node))).decode()]

    return work


def _properties(node: Node) -> Node:
    info = decode_cursor_info(node.value, node.path)
    return node._replace(value=encode_cursor_info(replace(info, properties={"CompactedTopicLedger": 7}), node.value))


def _doubled(fields: Json) -> None:
    database, key, before, after = fields["steps"][0]
    fields["steps"] += [[database, key, after, before], [database, key, before, after]]


FORGERIES: dict[str, Callable[[Json], object]] = {
    "another version": _changed_cursor(lambda node: node._replace(stat=node.stat._replace(version=9))),
    "another creation": _changed_cursor(lambda node: node._replace(stat=node.stat._replace(created_ms=1))),
    "properties": _changed_cursor(_properties),
    "unknown bytes": _changed_cursor(lambda node: node._replace(value=node.value + b"\x9a\x06\x01x")),
    "no cursor": _changed_cursor(lambda node: node._replace(value=b"\xff\xff")),
    "a row twice": _doubled,
    "no command": lambda fields: fields.update(command="rm -rf"),
    "an escape": lambda fields: fields.update(command="topics skip\x1b[2J"),
    "undoes nothing": lambda fields: fields.update(undoes=99),
    "undoes another": lambda fields: fields.update(undoes=1),
    "infinite": lambda fields: fields.update(transaction=math.inf),
    "infinite inside": lambda fields: fields["reports"][0].update(entries=math.nan),
    "huge": lambda fields: fields.update(transaction=10**400),
    "negative": lambda fields: fields.update(transaction=-1),
    "true": lambda fields: fields.update(transaction=True),
    "a fraction": lambda fields: fields.update(transaction=fields["transaction"] + 0.0),
    "deep": lambda fields: fields["reports"].append(json.loads("[" * 500 + "]" * 500)),
    "a surrogate": lambda fields: fields.update(command="topics \ud800"),
    "steps of text": lambda fields: fields.update(steps="steps"),
    "a step of numbers": lambda fields: fields.update(steps=[[1, 2, 3, 4]]),
    "a step of lists": lambda fields: fields.update(steps=[[["tree"], [], [], []]]),
    "a step of nothing": lambda fields: fields["steps"].append(["tree", "L3g=", None, None]),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_plans(name: str, cli: Cli, store: Path) -> None:
    assert cli("--store", store, *PLANNED["ttl"]).exit_code == 0
    file, fields = _plan(cli, store)
    FORGERIES[name](fields)
    before = rows_of(store, "tree", "changes", "state")
    done = _apply(cli, store, file, fields)
    assert done.exit_code in (2, 4, 5), done.stderr
    assert rows_of(store, "tree", "changes", "state") == before
    assert cli("--store", store, "store", "log").exit_code == 0


@pytest.mark.parametrize("reports", [[], [{}], [{"entries": "x"}], [{"topic": [1]}], [{"skipped": 1}] * 3])
def test_reports_of_any_shape_are_not_believed(reports: list[Json], cli: Cli, store: Path) -> None:
    """One of these ended as a bug, after the commit."""
    file, fields = _plan(cli, store)
    done = _apply(cli, store, file, {**fields, "reports": reports})
    assert done.exit_code == 0
    assert (done.json["subscription"], done.json["change"]) == ("half", 1)


def test_an_undo_is_planned_as_it_is(cli: Cli, store: Path) -> None:
    before = rows_of(store)
    assert cli("--store", store, *PLANNED["skip"]).exit_code == 0
    file = store.parent / "undo.plan"
    assert cli("--store", store, "store", "undo", 1, "--plan", file).exit_code == 0
    fields = json.loads(file.read_bytes())
    assert _apply(cli, store, file, {**fields, "undoes": None}).exit_code == 2
    assert _apply(cli, store, file, {**fields, "steps": []}).exit_code == 2
    assert _apply(cli, store, file, fields).exit_code == 0
    assert rows_of(store) == before


# -- the audit log ----------------------------------------------------------------------------------------------------


def _findings(cli: Cli, store: Path) -> set[str]:
    rows = [json.loads(line) for line in cli("--store", store, "store", "check", "-o", "jsonl").stdout.splitlines()]
    return {row["code"] for row in rows if "code" in row and row["code"].startswith("changes-")}


@pytest.fixture
def changed(cli: Cli, store: Path) -> Path:
    for name in ("skip", "ttl", "clear"):
        assert cli("--store", store, *PLANNED[name]).exit_code == 0
    assert cli("--store", store, "store", "undo", 3).exit_code == 0
    assert _findings(cli, store) == set()
    return store


def _key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _edited(number: int) -> Callable[[Txn], object]:
    def edit(txn: Txn) -> None:
        fields = json.loads(zlib.decompress(txn.get("changes", _key(number)) or b""))
        fields["command"] = "topics peek"
        txn.put("changes", _key(number), zlib.compress(json.dumps(fields).encode()))

    return edit


def _moved(txn: Txn) -> None:
    first, second = (txn.get("changes", _key(number)) or b"" for number in (1, 2))
    txn.put("changes", _key(1), second)
    txn.put("changes", _key(2), first)


def _added(txn: Txn) -> None:
    txn.put("changes", _key(5), txn.get("changes", _key(4)) or b"")


AUDIT_FORGERIES: dict[str, Callable[[Txn], object]] = {
    "the first edited": _edited(1),
    "one in the middle edited": _edited(2),
    "the last edited": _edited(4),
    "the first removed": lambda txn: txn.delete("changes", _key(1)),
    "one in the middle removed": lambda txn: txn.delete("changes", _key(2)),
    "the last removed": lambda txn: txn.delete("changes", _key(4)),
    "all removed": lambda txn: txn.clear("changes"),
    "two exchanged": _moved,
    "one added": _added,
    "the head removed": lambda txn: txn.delete("state", b"changes-head"),
}


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("name", AUDIT_FORGERIES)
def test_forged_audit_logs(name: str, cli: Cli, changed: Path) -> None:
    with open_store(changed, writable=True) as opened:
        opened.write(AUDIT_FORGERIES[name])
    assert "changes-altered" in _findings(cli, changed)


@pytest.mark.usefixtures("damages_stores")
def test_a_forged_change_is_not_undone(cli: Cli, changed: Path) -> None:
    with open_store(changed, writable=True) as opened:
        opened.write(_edited(2))
    before = rows_of(changed, "tree", "changes")
    done = cli("--store", changed, "store", "undo", 2, "-o", "json")
    assert (done.exit_code, done.error["code"]) == (6, "index-corrupt")
    assert rows_of(changed, "tree", "changes") == before
    assert cli("--store", changed, "store", "undo", 1).exit_code == 0  # whose own record is whole


@pytest.mark.usefixtures("damages_stores")
def test_a_chain_begins_where_it_begins(cli: Cli, store: Path) -> None:
    """A store of before the chain: its records count, and are sealed by the next change."""
    for name in ("skip", "ttl"):
        assert cli("--store", store, *PLANNED[name]).exit_code == 0

    def unchained(txn: Txn) -> None:
        for key, row in list(txn.items("changes")):
            fields = json.loads(zlib.decompress(row))
            del fields["previous"]
            txn.put("changes", key, zlib.compress(json.dumps(fields).encode()))
        txn.delete("state", b"changes-head")

    with open_store(store, writable=True) as opened:
        opened.write(unchained)
    assert _findings(cli, store) == set()
    assert cli("--store", store, "store", "undo", 2).exit_code == 0
    assert _findings(cli, store) == set()
    for number in (1, 2):
        with open_store(store, writable=True) as opened:
            kept = opened.write(lambda txn, number=number: txn.get("changes", _key(number)))
            opened.write(_edited(number))
        assert _findings(cli, store) == {"changes-altered"}
        with open_store(store, writable=True) as opened:
            opened.write(lambda txn, number=number, kept=kept: txn.put("changes", _key(number), kept or b""))
    assert _findings(cli, store) == set()


def test_nacks_are_popped_when_they_are_due(cli: Cli, store: Path) -> None:
    assert cli("--store", store, "--now", NOW, *PLANNED["nacks"]).exit_code == 0
    file = store.parent / "pop.plan"
    later = f"@{NOW_MS + 20_000}"
    assert cli("--store", store, "--now", later, "nacks", "due", "--pop", "--plan", file).exit_code == 0
    assert cli("--store", store, "--now", NOW, "apply", file).exit_code == 2  # by the clock of then, none is
    done = cli("--store", store, "--now", later, "apply", file, "-o", "json")
    assert (done.exit_code, done.json["entries"], done.json["after"]["nextDeadline"]) == (0, 2, None)


def test_a_plan_without_steps_writes_nothing(cli: Cli, store: Path, tmp_path: Path) -> None:
    """It says so, as its command does, and the store's transaction stays where it was."""
    file = tmp_path / "a.plan"
    stays = ("topics", "reset-cursor", TOPIC, "-s", "reset-me", "-m", "earliest")
    assert cli("--store", store, *stays, "--plan", file).exit_code == 0
    with open_store(store) as opened, opened.read() as txn:
        before = txn.id
    for options in ((), ("--dry-run",)):
        told = cli("--store", store, "apply", file, *options)
        assert (told.exit_code, "nothing to change" in told.stdout) == (0, True)
    assert cli("--store", store, "apply", file, "-o", "json").json["change"] is None
    with open_store(store) as opened, opened.read() as txn:
        assert txn.id == before
    assert cli("--store", store, "store", "log", "-o", "json").json == []


@pytest.mark.parametrize(
    "words",
    [
        ("set-retention", "public/default", "-s", "10G", "-t", "3d"),
        ("set-message-ttl", "public/default", "-ttl", "3600"),
        ("set-backlog-quota", "public/default", "-l", "10G", "-p", "producer_request_hold"),
        ("set-delayed-delivery", "acme/delayed", "-e", "-t", "5s"),
        ("enable-delayed-message", "acme/delayed", "-p", "10m"),
        ("enable-delayed-message", "acme/delayed", "-p", "10m", "-t", "2s"),
    ],
)
def test_policies_are_reported_as_by_their_command(words: tuple[str, ...], cli: Cli, demo_copy: Path) -> None:
    store, file = demo_copy / "pulsar-store", demo_copy / "a.plan"
    shown = cli("--store", store, "namespaces", *words, "--plan", file, "-o", "json").json
    assert cli("--store", store, "apply", file, "--dry-run", "-o", "json").json == shown
