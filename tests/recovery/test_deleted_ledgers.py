"""``ledgers restore --deleted``: every ledger that a real broker deleted comes back with every entry that the bookies still hold."""

from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.recovery.written import deleted_ledgers, entries_of
from tests.stores import copied
from tests.worlds import CLUSTER, world


@pytest.fixture(scope="module")
def expected() -> dict[int, dict[int, bytes]]:
    """The deleted ledgers that have entries on a bookie, read without our code."""
    crashed = world(CLUSTER) / "crashed"
    entries = entries_of([crashed / f"bookkeeper{number}" for number in range(3)])
    deleted = deleted_ledgers(crashed / "zookeeper" / "version-2")
    return {ledger_id: entries[ledger_id] for ledger_id in deleted & entries.keys()}


def test_all_of_them_come_back(cli: Cli, tmp_path: Path, expected: dict[int, dict[int, bytes]]) -> None:
    assert (len(expected), sum(map(len, expected.values()))) == (54, 678)
    store = copied(CLUSTER, "crashed", tmp_path)
    tried = cli("--store", store, "ledgers", "restore", "--deleted", "--dry-run")
    assert "54 deleted ledgers of 678 entries are restored, 54 complete" in tried.stdout + tried.stderr
    cli("--store", store, "ledgers", "restore", "--deleted")
    states = {row["ledgerId"]: row for row in cli("--store", store, "ledgers", "list", "-o", "jsonl").json_lines}
    for ledger_id, entries in expected.items():
        assert states[ledger_id]["state"] == "CLOSED"
        rows = cli("--store", store, "ledgers", "entries", str(ledger_id), "-o", "jsonl").json_lines
        assert [row["entryId"] for row in rows] == sorted(entries) == list(range(len(entries)))
    assert not {row["state"] for row in states.values()} & {"DELETED", "GONE"}
    assert cli("--store", store, "ledgers", "verify", *map(str, expected)).exit_code == 0
    cli("--store", store, "store", "undo", "1")
    rows = cli("--store", store, "ledgers", "orphans", "-o", "jsonl").json_lines
    assert {row["ledgerId"] for row in rows if row["reason"] == "deleted"} == set(expected)


def test_what_is_not_deleted_is_refused(cli: Cli, tmp_path: Path) -> None:
    store = copied(CLUSTER, "crashed", tmp_path)
    alive = next(row["ledgerId"] for row in cli.rows(store, "ledgers list") if row["owners"])
    result = cli("--store", store, "-o", "json", "ledgers", "restore", "--deleted", str(alive)).fails(3, "refused")
    result = cli("--store", store, "-o", "json", "ledgers", "restore", "--deleted", "987654").ends(5)
    assert "--zookeeper DIR" in result.error["hint"]
