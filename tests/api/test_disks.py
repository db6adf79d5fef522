"""Python: clusters cloned, disks of bookies mended and freed, incidents bundled, clusters made, as the commands do it."""

from __future__ import annotations

from pathlib import Path

import pytest

import pulsar_admin as pa
from pulsar_admin.store.sources.rocksdb import open_for_reading
from tests.conftest import Cli
from tests.reclaiming import CURRENT, disk_bytes, entries, half_dead_bookie, listed_ledgers
from tests.stores import NOW_MS, imported
from tests.worlds import copy_tree, world

PARTS = "acme/orders/parts"


def test_a_clone_is_that_of_the_command(tmp_path: Path, cli: Cli) -> None:
    path, target, other = imported("small", "clean"), tmp_path / "data", tmp_path / "other"
    words = ("--topic", PARTS, "--cluster", "standalone=lab", "--boot-at", "/lab", "--bookie-id", "lab:3182")
    told = cli("--store", path, "store", "clone", other, *words, "--now", f"@{NOW_MS}", "-o", "json").json
    lab = {"topics": [PARTS], "cluster": "standalone=lab", "boot_at": "/lab", "bookie_id": "lab:3182"}
    with pa.open_store(path, now=NOW_MS) as store:
        shown = store.clone(target, **lab, dry_run=True)  # type: ignore[arg-type]
        assert not target.exists()
        done = store.clone(target, **lab)  # type: ignore[arg-type]
        assert done == {**shown, "dryRun": False} == {**told, "directory": str(target)}
        with pytest.raises(pa.AlreadyExists):
            store.clone(target)
        messages = [*store.topic(f"{PARTS}-partition-0").messages().rows()]
    assert messages
    written = {file.name: file.read_bytes() for file in (other / "bookkeeper" / "current").iterdir() if file.is_file()}
    assert any(name.endswith(".log") for name in written)
    for name, data in written.items():
        assert (target / "bookkeeper" / "current" / name).read_bytes() == data, name
    pa.import_standalone(target, tmp_path / "copy")
    with pa.open_store(tmp_path / "copy") as store:
        assert store.current_cluster() == "lab"
        assert [*store.topic(f"{PARTS}-partition-0").messages().rows()] == messages


def test_a_bookie_is_freed_as_by_the_command(tmp_path: Path, cli: Cli) -> None:
    data, other = half_dead_bookie(tmp_path / "data"), tmp_path / "other"
    copy_tree(data, other)
    words = "store", "reclaim", data / "bookkeeper", "--metadata", data / "metadata", "--below", "60"
    told = cli(*words, "--dry-run", "-o", "json").json
    with pytest.warns(pa.PartialData, match="not one topic"):
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
    with pytest.warns(pa.PartialData, match=r"7777\.log is passed over") as caught:
        result = pa.reclaim(str(other / "bookkeeper"), metadata=other / "metadata", below_percent=60)
    assert {Path(one.filename) for one in caught} == {Path(__file__)}
    assert (result.deleted_logs, result.moved_entries) == (done["deletedLogs"], done["movedEntries"])
    assert result.moved_entries > 0
    assert entries(other / CURRENT, alive) == before
    assert result.freed_bytes == taken - disk_bytes(other / CURRENT)


def test_a_bookie_is_salvaged_as_by_the_command(tmp_path: Path, cli: Cli) -> None:
    """Without its locations, it gets those that BookKeeper had written."""
    path, bookie = imported("small", "clean"), tmp_path / "bookkeeper"
    copy_tree(world("small") / "clean" / "bookkeeper", bookie)
    locations = bookie / "current" / "locations"
    with open_for_reading(locations) as pairs:
        written = dict(pairs)
    (locations / "CURRENT").unlink()
    told = cli("--store", path, "store", "salvage", bookie, "--dry-run", "-o", "json").json
    with pa.open_store(path) as store:
        assert store.salvage(str(bookie), dry_run=True) == told
        done = store.salvage(str(bookie))
        assert {**done, "dryRun": True, "kept": []} == told
        assert done["kept"] == [f"{locations}-before-salvage"]
        with open_for_reading(locations) as pairs:
            assert dict(pairs) == written
        assert not store.salvage(str(bookie))["needed"]


def test_an_incident_is_bundled_as_by_the_command(tmp_path: Path, cli: Cli) -> None:
    path, file, names = imported("small", "crashed"), tmp_path / "b", tmp_path / "b.names.json"
    made = cli("--store", path, "store", "bundle", file, "--now", f"@{NOW_MS}", "-o", "json").json
    checked = cli("--store", path, "store", "check", "-o", "jsonl").json_lines
    with pa.open_store(path, now=NOW_MS) as store:
        done = store.write_bundle(tmp_path / "c", names=names)
        topics = {name.rpartition("/")[2] for name in store.topics()}
        assert done == {**made, "bundle": str(tmp_path / "c")}
        assert sum(row["count"] for row in done["findings"]) == sum(row["severity"] != "summary" for row in checked) > 0
        with pytest.raises(pa.AlreadyExists):
            store.write_bundle(file)
    assert (tmp_path / "c").read_bytes() == file.read_bytes()
    there = ("--store", tmp_path / "told", "store", "import", "bundle", file)
    told = cli(*there, "--now", f"@{NOW_MS}", "-o", "json").json
    held = pa.import_bundle(tmp_path / "c", tmp_path / "here", now=NOW_MS)
    assert held == {**told, "store": str(tmp_path / "here")}
    assert held["sameFindings"] is True
    with pa.open_store(tmp_path / "here") as store:
        assert {name.rpartition("/")[2] for name in store.topics()}.isdisjoint(topics)
        assert len(store.topics()) == len(topics)
