"""Python: disks of bookies are freed as the command does it."""

from __future__ import annotations

from pathlib import Path

import pytest

import pulsar_admin as pa
from tests.conftest import Cli
from tests.reclaiming import CURRENT, disk_bytes, entries, half_dead_bookie, listed_ledgers
from tests.worlds import copy_tree


def test_a_bookie_is_freed_as_by_the_command(tmp_path: Path, cli: Cli) -> None:
    data, other = half_dead_bookie(tmp_path / "data"), tmp_path / "other"
    copy_tree(data, other)
    words = "store", "reclaim", data / "bookkeeper", "--metadata", data / "metadata", "--below", "60"
    told = cli(*words, "--dry-run", "-o", "json").json
    with pytest.warns(pa.PartialData, match="but no topic"):
        pa.import_standalone(other, tmp_path / "store")
    with pa.open_store(tmp_path / "store") as store:
        by_store = pa.reclaim(str(data / "bookkeeper"), metadata=store, below_percent=60, dry_run=True)
        assert [(log.log, log.action) for log in by_store.logs] == [(row["log"], row["action"]) for row in told["logs"]]
    plan = pa.reclaim(str(other / "bookkeeper"), metadata=other / "metadata", below_percent=60, dry_run=True)
    assert plan.frees_bytes == told["freesBytes"] > 0
    assert f"{told['deletedLedgers']:,} ledgers" in plan.loses
    alive = listed_ledgers(other / "metadata")
    (other / CURRENT / "7777.log").write_bytes(b"no log")
    before, taken = entries(other / CURRENT, alive), disk_bytes(other / CURRENT)
    done = cli(*words, "--yes", "-o", "json").json
    with pytest.warns(pa.PartialData, match=r"7777\.log is skipped") as caught:
        result = pa.reclaim(str(other / "bookkeeper"), metadata=other / "metadata", below_percent=60)
    assert {Path(one.filename) for one in caught} == {Path(__file__)}
    assert (result.deleted_logs, result.moved_entries) == (done["deletedLogs"], done["movedEntries"])
    assert result.moved_entries > 0
    assert entries(other / CURRENT, alive) == before
    assert result.freed_bytes == taken - disk_bytes(other / CURRENT)
