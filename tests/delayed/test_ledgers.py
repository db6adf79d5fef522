"""Ledgers of an index are named as what they are; those that no directory names any more are told apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.db.environment import open_store
from tests.conftest import Cli
from tests.delayed.world import TOPIC, build, index_of
from tests.stores import copied


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return copied("small", "clean", tmp_path)


def rows(cli: Cli, path: Path, *words: str) -> list[Any]:
    result = cli("--store", path, *words, "-o", "jsonl")
    assert result.exit_code in (0, 1), result.stderr
    return result.json_lines


def findings(cli: Cli, path: Path) -> list[Any]:
    return [row for row in rows(cli, path, "store", "check") if row["severity"] != "summary"]


def test_ledgers_of_an_index_are_named(cli: Cli, path: Path) -> None:
    orphans, checked = rows(cli, path, "ledgers", "orphans"), findings(cli, path)
    usage = rows(cli, path, "store", "usage")
    with open_store(path, writable=True) as store:
        build(store, "workers")
        mine = set(index_of(store, "workers").ledger_ids)
    assert len(mine) > 50
    assert rows(cli, path, "ledgers", "orphans") == orphans
    assert findings(cli, path) == checked
    (used,) = [row for row in rows(cli, path, "store", "usage") if row not in usage]
    assert (used["owner"], used["kind"], used["ledgers"]) == (TOPIC, "delayed-index", len(mine))
    (log,) = [row for row in rows(cli, path, "store", "usage", "--by", "log") if "/own-" in row["path"]]
    assert (log["dead"], log["freed"], log["keptFor"]) == (0, False, [TOPIC])
    listed = {row["ledgerId"]: row for row in rows(cli, path, "ledgers", "list")}
    for ledger_id in mine:
        assert listed[ledger_id]["state"] == "INDEX"
        assert listed[ledger_id]["owners"] == [{"kind": "delayed-index", "topic": TOPIC, "cursor": "workers"}]
    document = cli("--store", path, "ledgers", "info", min(mine), "-o", "json").json
    assert (document["state"], document["owners"]) == ("INDEX", listed[min(mine)]["owners"])


def test_leaked_ledgers_are_told_apart(cli: Cli, path: Path) -> None:
    """What a rebuild leaves behind: in entry files, in no directory."""
    orphans = rows(cli, path, "ledgers", "orphans")
    with open_store(path, writable=True) as store:
        build(store, "workers")
        before = set(index_of(store, "workers").ledger_ids)
        build(store, "workers", rebuild=True)
        after = set(index_of(store, "workers").ledger_ids)
    assert not before & after
    leaked = [row for row in rows(cli, path, "ledgers", "orphans") if row not in orphans]
    assert {row["ledgerId"] for row in leaked} == before
    assert {row["reason"] for row in leaked} == {"leaked-index"}
    told = [row for row in rows(cli, path, "doctor") if row["code"] == "leaked-index"]
    assert [row["evidence"]["ledgers"] for row in told] == [len(before)]
