"""Answers from tables alone: the broker's on the recorded worlds, the store's byte for byte, and without one log."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from store.db.environment import open_store
from store.model.reader import open_reader
from store.model.topics import read_topic
from store.names import Position, parse_topic
from store.search.by_time import find_first_at_or_after
from store.tables import entry_rows, sorted_rows
from store.tables.opened import open_tables
from store.transfer.imports import ImportOptions
from tests.conftest import Cli
from tests.stores import NOW_MS, import_standalone, imported
from tests.tables.writing import write_tables
from tests.test_search import ASKED, check_publish_times, check_rule_broker
from tests.worlds import CLUSTER, WORLD_NAMES, scratch_copy

NOW = "2026-11-22T00:00:00Z"
NEED_NO_LOG = [
    "topics list public/default",
    "topics find-by-time --all-topics --time @1795253000 -o jsonl",
    "topics find-by-time --all-topics --time @1795253000 --clock publish -o jsonl",
    "topics find-by-time --all-topics --time @1795253000 --clock broker --rule all-before -o jsonl",
    "topics skew --all-topics -o json",
    "topics timeline --all-topics -o json",
    "topics stats public/default/plain --get-earliest-time-in-backlog",
    "topics subscriptions public/default/plain",
    "topics describe public/default/plain",
    "ledgers list",
]
NEED_LOGS = [
    "topics find-by-time public/default/plain --time @1795089894 --clock event",
    "topics find-by-time --all-topics --time @1795253000 --rule broker -o jsonl",  # of a compacted topic
    "topics find-by-time --all-topics --time @1795253000 --clock event -o jsonl",
    "topics find-by-index public/default/plain --index 10",
    "topics read public/default/plain --limit 5",
    "topics dump public/default/plain -o jsonl",
    "store usage -o json",  # stats the files
    "doctor",
    "overview",
]


OF_SEVERAL_BOOKIES = [
    "topics find-by-time --all-topics --time @1795253000 -o jsonl",
    "topics skew --all-topics -o json",
    "ledgers list",
    "overview",
    "store usage",
]
MOST_GROUPS = 14
"""Of ten rows each: metadata, nodes and times of the topic's ledgers, and the three or four groups that one ledger's entries lie in."""


@pytest.fixture(scope="module")
def tables_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Tables of a world's clean state, written once; only to be read."""

    @cache
    def written(world: str) -> Path:
        return write_tables(imported(world, "clean"), tmp_path_factory.mktemp(world))

    return written


@pytest.mark.parametrize("world", [*WORLD_NAMES, CLUSTER])
def test_times_are_found_where_the_live_broker_found_them(world: str, tables_of: Callable[[str], Path]) -> None:
    with open_tables(str(tables_of(world))) as store, open_reader(store) as reader:
        assert check_rule_broker(reader, world) == ASKED[world]
        check_publish_times(reader, world)


@pytest.mark.parametrize(
    ("world", "line"),
    [*(("small", line) for line in (*NEED_NO_LOG, *NEED_LOGS)), *((CLUSTER, line) for line in OF_SEVERAL_BOOKIES)],
)
def test_commands_say_what_they_say_of_the_store(
    world: str, line: str, cli: Cli, tables_of: Callable[[str], Path]
) -> None:
    of_store = cli("--now", NOW, "--store", imported(world, "clean"), *line.split())
    assert cli("--now", NOW, "--tables", tables_of(world), *line.split()) == of_store
    assert of_store.stdout


def test_what_columns_tell_opens_no_log(cli: Cli, tmp_path: Path) -> None:
    data = scratch_copy("small", "crashed", tmp_path)
    import_standalone(data, tmp_path / "store", ImportOptions(now_ms=NOW_MS), lambda _: None)
    tables = write_tables(tmp_path / "store", tmp_path / "tables")
    backlogs = [
        f"topics analyze-backlog {topic} -s {name} -o json"
        for topic, subscriptions in _subscriptions(cli, tmp_path / "store")
        for name in subscriptions
    ]
    assert backlogs
    before = {line: cli("--now", NOW, "--tables", tables, *line.split()) for line in (*NEED_NO_LOG, *backlogs)}
    shutil.rmtree(data)
    shutil.rmtree(tmp_path / "store")
    for line, said in before.items():
        assert cli("--now", NOW, "--tables", tables, *line.split()) == said, line
    event = cli("--tables", tables, *f"{NEED_LOGS[0]} -o json".split())
    assert (event.exit_code, event.stdout, event.error["code"]) == (6, "", "source-changed"), event.stderr
    assert event.error["message"].startswith(f"{data}/bookkeeper/current/0.log is not reachable from here: the tables")
    read = cli("--tables", tables, "topics", "read", "public/default/plain", "-o", "json")
    assert (read.exit_code, read.stdout, read.stderr.count("is not reachable from here")) == (1, "[]\n", 2)


def _subscriptions(cli: Cli, store: Path) -> list[tuple[str, list[str]]]:
    names = cli("--store", store, "topics", "list", "public/default").stdout.split()
    return [(name, cli("--store", store, "topics", "subscriptions", name).stdout.split()) for name in names]


def test_rows_asked_for_here_and_there_answer_the_same(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = imported("small", "clean")
    tables = write_tables(store, tmp_path, rows_in_group=30)
    monkeypatch.setattr(sorted_rows, "_HELD_ROWS", 60)
    monkeypatch.setattr(entry_rows, "_HELD_ROWS", 60)
    monkeypatch.setattr(entry_rows, "_HELD_BYTES", 1000)
    for line in ("topics list public/default", "topics find-by-time --pattern acme/* --time @1795253000 -o jsonl"):
        of_store = cli("--now", NOW, "--store", store, *line.split())
        assert cli("--now", NOW, "--tables", tables, *line.split()) == of_store


@pytest.mark.parametrize("world", [*WORLD_NAMES, CLUSTER])
@pytest.mark.parametrize("database", ["entries", "times"])
def test_rows_of_the_index_are_those_of_the_store(database: str, world: str, tables_of: Callable[[str], Path]) -> None:
    """All in turn, those of each ledger, and each by its key."""
    with open_store(imported(world, "clean")) as store, store.read() as txn:
        expected = {key: bytes(value) for key, value in txn.items(database)}
    with open_tables(str(tables_of(world))) as tables, tables.read() as txn:
        assert {key: bytes(value) for key, value in txn.items(database)} == expected
        ledgers = sorted({key[:8] for key in expected})
        assert {key: bytes(value) for one in ledgers for key, value in txn.items(database, one)} == expected
        assert {key: txn.get(database, key) for key in expected} == expected
        assert txn.get(database, next(iter(expected))[:-1] + b"\xfe") is None
        assert [*txn.items(database, b"\x7f")] == []


@pytest.mark.parametrize(("rows_in_file", "least_groups", "most_groups"), [(1 << 30, 50, 400), (25, 10, 100)])
def test_a_question_reads_few_of_many_row_groups(
    rows_in_file: int, least_groups: int, most_groups: int, tmp_path: Path
) -> None:
    """The answers are those of going through all entries that the table has of the topic's ledgers."""
    tables = write_tables(imported("small", "clean"), tmp_path, rows_in_group=10, rows_in_file=rows_in_file)
    name = parse_topic("public/default/plain")
    with open_tables(str(tables)) as store, open_reader(store) as reader:
        ledgers = read_topic(reader.txn, name).ids
    rows = [row for path in tables.glob("entries/*/*.parquet") for row in pq.read_table(path).to_pylist()]
    times = {
        Position(row["ledger_id"], row["entry_id"]): round(
            (row["broker_time"] or row["publish_time"]).timestamp() * 1000
        )
        for row in sorted(rows, key=lambda row: (row["ledger_id"], row["entry_id"]))
        if row["ledger_id"] in ledgers
    }
    assert len({position.ledger_id for position in times}) > 5
    for time_ms in (0, *(each + more for each in [*times.values()][::29] for more in (0, 1)), 1795253004000):
        expected = next((position for position, each in times.items() if each >= time_ms), None)
        with open_tables(str(tables)) as store, open_reader(store) as reader:
            found = find_first_at_or_after(reader, read_topic(reader.txn, name), time_ms, "auto")
            count = store.found.count
            assert (found.position, count.groups <= MOST_GROUPS) == (expected, True), (time_ms, count)
            assert least_groups < count.of_groups < most_groups, (time_ms, count)
            assert found.ledgers_pruned == sum(
                max(each for position, each in times.items() if position.ledger_id == ledger_id) < time_ms
                for ledger_id in dict.fromkeys(position.ledger_id for position in times)
                if expected is None or ledger_id < expected.ledger_id
            )


def test_few_files_are_open_at_a_time(tmp_path: Path) -> None:
    tables = write_tables(imported("small", "clean"), tmp_path, rows_in_file=8)
    assert len([*tables.glob("entries/*/*.parquet")]) > 200
    before = len(os.listdir("/proc/self/fd"))
    with (
        open_tables(str(tables)) as found,
        open_store(imported("small", "clean")) as store,
        found.read() as txn,
        store.read() as other,
    ):
        blocks = {key: bytes(value) for key, value in txn.items("entries")}
        assert len(os.listdir("/proc/self/fd")) - before < 100
        assert blocks.keys() == {key for key, _ in other.items("entries")}
        assert all(txn.get("entries", key) == blocks[key] for key in [*blocks][::3])
        assert len(os.listdir("/proc/self/fd")) - before < 100


def test_a_file_whose_ledgers_are_not_as_listed(cli: Cli, folder: Path) -> None:
    tables = json.loads((folder / "tables.json").read_text())
    (part,) = tables["clusters"]["c"]["tables"]["entries"]
    first, last = part["ledgers"]
    part["ledgers"] = [0, last]
    tables.pop("crc32c", None)  # it is edited
    (folder / "tables.json").write_text(json.dumps(tables))
    error = cli("--tables", folder, "topics", "find-by-time", "public/default/plain", "--time", "2020-01-01T00:00:00Z")
    said = f"{part['path']}: expected ledgers 0 to {last}, as tables.json says, found {first} to {last}"
    assert (error.exit_code, error.stderr.splitlines()[0]) == (6, f"error: {said}")


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "topics create public/default/new",
        "topics reset-cursor public/default/plain -s sub --time 1h",
        "store refresh",
        "store check",
        "store undo 1",
    ],
)
def test_tables_are_not_changed(line: str, cli: Cli, tables_of: Callable[[str], Path]) -> None:
    found = cli("--tables", tables_of("small"), *line.split())
    assert found.exit_code == 3
    assert found.stderr.startswith(
        "error: this command needs a store; exported tables (--tables) only answer questions\n"
    )


def test_store_and_tables_are_not_both_named(cli: Cli, tables_of: Callable[[str], Path]) -> None:
    found = cli("--store", "x", "--tables", tables_of("small"), "tenants", "list")
    assert (found.exit_code, "name one" in found.stderr) == (2, True)


def _said(cli: Cli, folder: Path, *more: str) -> tuple[int, str, str]:
    error = cli("--tables", folder, *more, "topics", "list", "public/default", "-o", "json")
    return error.exit_code, error.error["code"], error.error["message"]


@pytest.fixture
def folder(tables_of: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of the tables of ``small``, to be damaged."""
    return shutil.copytree(tables_of("small"), tmp_path / "tables")


def test_tables_of_an_earlier_version_are_refused(cli: Cli, folder: Path) -> None:
    (path,) = (folder / "rows").rglob("*.parquet")
    rows = pq.read_table(path).to_pylist()
    about = json.loads(next(row["value"] for row in rows if row["database"] == "store"))
    about.pop("kept")
    older = [row for row in rows if row["database"] not in ("store", "times")]
    older.append({**rows[0], "database": "store", "key": b"", "value": json.dumps(about).encode()})
    pq.write_table(pa.Table.from_pylist(older, pq.read_schema(path)), path)
    tables = json.loads((folder / "tables.json").read_text())
    tables["clusters"]["c"]["tables"]["rows"][0]["rows"] = len(older)
    tables.pop("crc32c", None)  # it is edited
    (folder / "tables.json").write_text(json.dumps(tables))
    said = f"{folder} has no times of ledgers: an earlier version exported these tables"
    assert _said(cli, folder) == (7, "unsupported", said)


def test_clusters_are_told_apart(cli: Cli, folder: Path) -> None:
    assert _said(cli, folder, "--cluster", "d") == (5, "not-found", f"{folder} has no tables of the cluster 'd'")
    write_tables(imported(CLUSTER, "clean"), folder, "d")
    assert _said(cli, folder)[::2] == (2, f"{folder} has tables of several clusters: c, d")
    for cluster, world in (("c", "small"), ("d", CLUSTER)):
        of_store = cli("--store", imported(world, "clean"), "ledgers", "list")
        assert cli("--tables", folder, "--cluster", cluster, "ledgers", "list") == of_store


def test_tables_that_are_not_as_listed(cli: Cli, folder: Path) -> None:
    nodes = next((folder / "nodes").rglob("*.parquet"))
    relative = str(nodes.relative_to(folder))
    whole = nodes.read_bytes()
    rows = pq.read_table(nodes)
    pq.write_table(rows.slice(1), nodes)
    found = f"expected {len(rows)} rows, as tables.json says, found {len(rows) - 1}"
    assert _said(cli, folder) == (6, "source-changed", f"{relative}: {found}")
    pq.write_table(rows.drop_columns(["version"]), nodes)
    assert _said(cli, folder)[1:] == ("unsupported", f"{relative} has no column version: an earlier version wrote it")
    nodes.write_bytes(whole[: len(whole) // 2])
    assert _said(cli, folder)[:2] == (6, "corrupt")
    nodes.unlink()
    assert _said(cli, folder) == (5, "source-not-found", f"{relative} is gone: tables.json names it")


@pytest.mark.parametrize(
    ("text", "code", "word"),
    [
        ('{"tables": 2}', "unsupported", "has format 2, this version reads 1"),
        (
            '{"tables": 1, "clusters": {"c": {"identity": "", "store": "", "exportedMs": {}, "tables": {}}}}',
            "unsupported",
            "has no table",
        ),
        ('{"tables": 1, "clusters": {"c": 1}}', "corrupt", "is damaged"),
        ("[" * 100_000, "corrupt", "is damaged"),
        ('{"tables": 1, "clusters": {}}', "source-not-found", "has no tables"),
    ],
)
def test_lists_that_cannot_be_read(text: str, code: str, word: str, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "tables.json").write_text(text)
    _, found, message = _said(cli, tmp_path)
    assert (found, word in message) == (code, True), message


def test_a_directory_without_tables(cli: Cli, tmp_path: Path) -> None:
    assert _said(cli, tmp_path)[:2] == (5, "source-not-found")
    assert _said(cli, tmp_path / "none")[:2] == (5, "source-not-found")
