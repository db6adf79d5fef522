"""A store made of exported tables is the store that was exported: row by row, with its answers, its changes and their undo."""

import json
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pulsar_admin.store.db.environment import DATABASES, open_store
from pulsar_admin.store.transfer.imports import ImportOptions
from tests.conftest import Cli
from tests.stores import NOW_MS, import_standalone, imported
from tests.worlds import CLUSTER, scratch_copy

NOW = "2026-11-22T00:00:00Z"
NEED_NO_LOG = [
    "topics list public/default",
    "topics subscriptions public/default/plain",
    "topics stats public/default/plain",
    "schemas get public/default/json",
    "namespaces policies public/default",
    "ledgers list",
]


@pytest.fixture(scope="module")
def tables_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Tables of a world's state, written once; only to be read."""
    from pulsar_admin.cli import run

    @cache
    def written(world: str, state: str = "clean") -> Path:
        folder = tmp_path_factory.mktemp(world) / "tables"
        store = str(imported(world, state))
        assert run(["--store", store, "-q", "store", "export", "tables", str(folder), "--cluster", "c"]) == 0
        return folder

    return written


def load(cli: Cli, tables: Path, store: Path, *more: str) -> Path:
    cli.done("--store", store, "store", "import", "tables", tables, *more)
    return store


def rows_of(path: Path) -> dict[str, dict[bytes, bytes]]:
    with open_store(path) as store, store.read() as txn:
        return {name: {key: bytes(value) for key, value in txn.items(name)} for name in DATABASES}


@pytest.mark.parametrize(("world", "state"), [("small", "clean"), (CLUSTER, "crashed")])
def test_every_row_is_that_of_the_store(
    world: str, state: str, cli: Cli, tables_of: Callable[..., Path], tmp_path: Path
) -> None:
    expected, found = rows_of(imported(world, state)), rows_of(load(cli, tables_of(world, state), tmp_path / "s"))
    bodies = {key for key in found["state"] if key.startswith(b"body")}
    assert len(bodies) == sum(
        pq.read_metadata(path).num_rows for path in (tables_of(world, state) / "bodies").rglob("*.parquet")
    )
    found["state"] = {key: value for key, value in found["state"].items() if key not in bodies}
    assert found == expected
    info = json.loads((imported(world, state) / "store.json").read_text())
    assert json.loads((tmp_path / "s" / "store.json").read_text()) == info


@contextmanager
def without_logs(data: Path) -> Iterator[None]:
    data.rename(data.with_name("away"))
    yield
    data.with_name("away").rename(data)


def test_metadata_is_answered_without_logs_and_messages_where_they_lie(cli: Cli, tmp_path: Path) -> None:
    data, store, made = scratch_copy("small", "crashed", tmp_path), tmp_path / "store", tmp_path / "made"
    import_standalone(data, store, ImportOptions(now_ms=NOW_MS), lambda _: None)
    expected = {line: cli("--now", NOW, "--store", store, *line.split()) for line in NEED_NO_LOG}
    read = ("topics", "read", "public/default/plain", "--limit", "3", "-o", "json")
    messages = cli("--store", store, *read)
    assert cli("--store", store, "store", "export", "tables", tmp_path / "tables").exit_code == 0
    shutil.rmtree(store)
    with without_logs(data):
        done = cli("--store", made, "store", "import", "tables", tmp_path / "tables")
        assert (done.exit_code, "7 files of entries are not reachable" in done.stderr) == (0, True)
        for line, said in expected.items():
            assert cli("--now", NOW, "--store", made, *line.split()) == said, line
        cli("--store", made, *read).ends(1, f"{data}/bookkeeper/current/", "is gone")
        assert cli("--store", made, "store", "export", "tables", tmp_path / "again", "--only", "bodies").exit_code == 0
    assert cli("--store", made, *read) == messages
    (first,), (second,) = ((tmp_path / name / "bodies").rglob("*.parquet") for name in ("tables", "again"))
    assert pq.read_table(first).equals(pq.read_table(second))


def test_a_store_that_had_copied_its_logs_is_read_where_they_are(cli: Cli, tmp_path: Path) -> None:
    data, store = scratch_copy("small", "clean", tmp_path), tmp_path / "store"
    assert cli("--store", store, "store", "import", "standalone", data, "--copy").exit_code == 0
    assert cli("--store", store, "store", "export", "tables", tmp_path / "tables").exit_code == 0
    made = load(cli, tmp_path / "tables", tmp_path / "made")
    shutil.rmtree(data)
    read = ("topics", "read", "public/default/plain", "-o", "jsonl")
    assert cli("--store", made, *read) == cli("--store", store, *read)
    assert cli("--store", made, "store", "check", "--deep").exit_code == 0


# -- what is refused ---------------------------------------------------------------------------------------------------


def _said(cli: Cli, folder: Path, *more: str) -> tuple[int, str, str]:
    new = folder.parent / "new"
    error = cli("--store", new, "store", "import", "tables", folder, *more, "-o", "json")
    assert not new.exists()
    return error.exit_code, error.error["code"], error.error["message"]


@pytest.fixture
def folder(tables_of: Callable[..., Path], tmp_path: Path) -> Path:
    """A copy of the tables of ``small``, to be damaged."""
    return shutil.copytree(tables_of("small"), tmp_path / "tables")


def test_a_table_that_is_missing_is_named(cli: Cli, tmp_path: Path) -> None:
    words = ("store", "export", "tables", tmp_path / "tables", "--only", "topics,nodes,entries", "--cluster", "c")
    assert cli("--store", imported("small", "clean"), *words).exit_code == 0
    said = f"{tmp_path}/tables has no table rows and no bodies of the cluster c: a store is made of nodes, rows, bodies, entries"
    assert _said(cli, tmp_path / "tables") == (7, "unsupported", said)
    refused = cli("--store", tmp_path / "new", "store", "import", "tables", tmp_path / "tables")
    command = refused.stderr.partition("export them together: ")[2].strip()
    assert cli(*shlex.split(command)[1:]).exit_code == 0
    assert cli("--store", tmp_path / "new", "store", "import", "tables", tmp_path / "tables").exit_code == 0


def test_clusters_are_told_apart(cli: Cli, folder: Path) -> None:
    assert _said(cli, folder, "--cluster", "d") == (5, "not-found", f"{folder} has no tables of the cluster 'd'")
    words = ("store", "export", "tables", folder, "--cluster", "d")
    assert cli("--store", imported(CLUSTER, "clean"), *words).exit_code == 0
    assert _said(cli, folder)[::2] == (2, f"{folder} has tables of several clusters: c, d")
    made = load(cli, folder, folder.parent / "made", "--cluster", "d")
    assert rows_of(made)["tree"] == rows_of(imported(CLUSTER, "clean"))["tree"]


@pytest.mark.parametrize(
    ("text", "code", "word"),
    [
        ('{"tables": 9}', "unsupported", "has format 9, this version reads"),
        ('{"tables": 1, "clusters": {"c": 1}}', "unsupported", "an earlier version exported these tables"),
        ('{"tables": 2, "clusters": {"c": 1}}', "corrupt", "is damaged"),
        ("[" * 100_000, "corrupt", "is damaged"),
        ('{"tables": 2, "crc32c": "297bd0aa", "clusters": {}}', "source-not-found", "has no tables"),
    ],
)
def test_lists_that_cannot_be_read(text: str, code: str, word: str, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "tables.json").write_text(text)
    _, found, message = _said(cli, tmp_path / "tables")
    assert (found, word in message) == (code, True), message


def test_a_directory_without_tables(cli: Cli, tmp_path: Path) -> None:
    assert _said(cli, tmp_path)[:2] == (5, "source-not-found")
    assert _said(cli, tmp_path / "none")[:2] == (5, "source-not-found")


@pytest.mark.parametrize(
    "line", ["topics list public/default", "topics create public/default/new", "overview", "doctor", "store undo 1"]
)
def test_answering_of_tables_alone_has_left(line: str, cli: Cli, tables_of: Callable[..., Path]) -> None:
    found = cli("--tables", tables_of("small"), *line.split())
    assert (found.exit_code, found.stdout) == (2, "")
    assert "`--tables` left in 0.2 for all commands but `sql` and `store check`: see docs" in found.stderr


def test_store_and_tables_are_not_both_named(cli: Cli, tables_of: Callable[..., Path]) -> None:
    cli("--store", "x", "--tables", tables_of("small"), "sql", "select 1").ends(2, "name only one")
