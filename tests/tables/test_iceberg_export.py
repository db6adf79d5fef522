"""``store export tables --iceberg`` on worlds: the same rows as a reader of the files finds, once each, whatever runs were killed."""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import pulsar_admin as pa
from pulsar_admin.cli import run
from pulsar_admin.store.tables import iceberg
from tests.conftest import Cli
from tests.stores import imported
from tests.tables.test_export import held
from tests.worlds import oracle, world

SMALL = "small"


@contextmanager
def asked(folder: Path, table: str) -> Iterator[Any]:
    """DuckDB with a view of TABLE, as pyiceberg scans it."""
    from pyiceberg.catalog import load_catalog  # it takes a second, of each process that collects tests

    catalog = load_catalog("pulsar", uri=f"sqlite:///{folder}/catalog.db")
    with catalog.load_table(f"pulsar.{table}").scan().to_duckdb("rows") as connection:
        yield connection
    catalog.close()


def rows_of(folder: Path, table: str, query: str) -> list[tuple[Any, ...]]:
    with asked(folder, table) as connection:
        found: list[tuple[Any, ...]] = connection.execute(query).fetchall()
        return found


def exported(cli: Cli, state: str, folder: Path, *words: str) -> dict[str, Any]:
    """Rows before and after of each table, as the command says."""
    done = cli.done(
        "--store", imported(SMALL, state), "store", "export", "tables", folder, "--iceberg", *words, "-o", "json"
    )
    assert done.stderr == ""
    return {one["table"]: (one["rowsBefore"], one["rows"]) for one in done.json["tables"]}


def test_a_cluster_as_time_goes_by_beside_another(cli: Cli, tmp_path: Path) -> None:
    """``mutated`` is ``clean`` some changes later: a second export of a cluster replaces the first, and leaves the others."""
    folder = tmp_path / "fleet"
    before, after = (set(held(world(SMALL) / state)) for state in ("clean", "mutated"))
    exported(cli, "clean", folder, "--only", "topics,entries")
    said = exported(cli, "mutated", folder, "--only", "topics,entries")
    assert said["entries"] == (len(before), len(after))
    again = exported(cli, "mutated", folder, "--only", "entries")
    assert again == {"entries": (len(after), len(after))}, "nothing is doubled"
    with pa.open_store(imported(SMALL, "clean")) as store:
        done = store.export_tables(folder, cluster="other", iceberg=True, only=["topics", "entries"])
    assert {one.table: one.rows_before for one in done.tables}["entries"] == 0
    keys = "select cluster, count(*), count(distinct (ledger_id, entry_id)) from rows group by 1 order by 1"
    now = len(after)
    assert rows_of(folder, "entries", keys) == [("other", len(before), len(before)), ("standalone", now, now)]
    found = rows_of(folder, "topics", "select topic, partitioned_topic from rows where cluster = 'other'")
    assert {name for row in found for name in row} >= {f"persistent://{name}" for name in oracle(SMALL)["topics"]}


@pytest.mark.parametrize("table", ["cursors", "entries"])
def test_a_run_that_was_killed_is_completed_by_the_next(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """Killed in front of the commit of TABLE: those before it have theirs, and the next run leaves nothing doubled."""
    only = ("--only", "topics,cursors,entries")
    folder = tmp_path / "fleet"
    with monkeypatch.context() as killed:
        commit = iceberg.commit

        def stopped(warehouse: Any, change: Any) -> Any:
            if change.table == table:
                raise KeyboardInterrupt
            return commit(warehouse, change)

        killed.setattr(iceberg, "commit", stopped)
        words = ("--store", imported(SMALL, "clean"), "store", "export", "tables", folder, "--iceberg", *only)
        assert cli(*words).exit_code == 130
    expected = len(held(world(SMALL) / "clean"))
    assert exported(cli, "clean", folder, *only)["entries"] == (0, expected)
    assert exported(cli, "clean", folder, "--only", "entries")["entries"] == (expected, expected)


def test_what_is_refused_writes_nothing(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    words = ("--store", imported(SMALL, "clean"), "store", "export", "tables", folder)
    assert cli(*words, "--only", "topics").exit_code == 0
    cli(*words, "--iceberg").ends(3, "tables.json")
    assert not (folder / "catalog.db").exists()
    cli(*words, "--catalog", "nowhere").ends(2, "hint: add --iceberg")


def test_a_catalogue_that_is_read_only_is_named_and_leaves_nothing(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    exported(cli, "clean", folder, "--only", "topics,entries")
    before = sorted(path for path in folder.rglob("*.parquet"))
    catalog = f"sqlite:///file:{folder}/catalog.db?mode=ro&uri=true"
    words = ("--store", imported(SMALL, "mutated"), "store", "export", "tables", folder, "--iceberg")
    for only in ("topics", "entries"):
        done = cli(*words, "--only", only, "--catalog", catalog)
        assert (done.exit_code, done.stdout) == (3, "")
        assert f"pulsar.{only} cannot be written: the catalogue is read-only: " in done.stderr
    assert sorted(path for path in folder.rglob("*.parquet")) == before
    said = exported(cli, "mutated", folder, "--only", "topics,entries")
    assert said["entries"][1] > said["entries"][0]


def _run_command(words: list[str]) -> None:
    sys.exit(run(words))


def test_two_runs_of_one_cluster_and_one_of_another_at_once(tmp_path: Path) -> None:
    """Some are refused and come after the other; what is there is once there."""
    folder = tmp_path / "fleet"
    folder.mkdir()
    runs = [("clean", "eu"), ("mutated", "eu"), ("mutated", "us")]
    asked = []
    for state, cluster in runs:
        words = ["--store", imported(SMALL, state), "store", "export", "tables", folder, "--iceberg"]
        words += ["--only", "topics,entries", "--catalog", f"sqlite:///{folder}/catalog.db?timeout=0.1"]
        asked.append([*map(str, words), "-q", "--cluster", cluster])
    others = [get_context("forkserver").Process(target=_run_command, args=(words,)) for words in asked[:2]]
    for one in others:
        one.start()
    here = run(asked[2])
    for one in others:
        one.join(60)
    codes = [*(one.exitcode for one in others), here]
    assert {*codes} <= {0, 4}
    for words, code in zip(asked, codes, strict=True):
        assert code == 0 or run(words) == 0
    once = "select count(*) - count(distinct (cluster, ledger_id, entry_id)) from rows"
    assert rows_of(folder, "entries", once) == [(0,)]
    entries = len(held(world(SMALL) / "mutated"))
    assert rows_of(folder, "entries", "select count(*) from rows where cluster = 'us'") == [(entries,)]


def test_a_catalogue_that_another_process_writes_is_busy(tmp_path: Path, cli: Cli) -> None:
    catalog = f"sqlite:///{tmp_path}/catalog.db?timeout=0.1"
    words = ("--store", imported(SMALL, "clean"), "store", "export", "tables", tmp_path, "--only", "topics")
    words += ("--iceberg", "--catalog", catalog)
    with closing(sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)) as other:
        other.execute("begin exclusive")
        busy = cli(*words)
        other.execute("rollback")
    assert busy.exit_code == 4
    assert "database is locked" in busy.stderr
    assert cli(*words).exit_code == 0
