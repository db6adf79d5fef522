"""``store export tables``: every entry of the files once, found here by a reader of its own; whole, or not at all."""

import hashlib
import os
import struct
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pulsar_admin
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import iter_nodes, put_nodes
from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.errors import DiskFull
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.references import index_owners
from pulsar_admin.store.names import parse_topic
from pulsar_admin.store.tables import making, parquet
from pulsar_admin.store.tables.folder import Folder, read_manifest
from pulsar_admin.store.tables.making import Making, make_entries
from pulsar_admin.store.tables.parquet import write_parts
from pulsar_admin.store.tables.rows import iter_table
from pulsar_admin.store.tables.schemas import TABLES
from tests.conftest import Cli
from tests.stores import imported
from tests.worlds import CLUSTER, asked_topics, scratch_copy, world

Entry = tuple[int, int]
_WORLDS = ("small", CLUSTER)


def entries_of_log(data: bytes) -> Iterator[tuple[int, Entry]]:
    """Offset, ledger and entry of every record of an entry log: a size, then as many bytes (BookKeeper's ``EntryLogger``)."""
    at = 1024
    while at + 4 <= len(data):
        (size,) = struct.unpack_from(">i", data, at)
        if size <= 0 or at + 4 + size > len(data):
            return
        ledger, entry = struct.unpack_from(">qq", data, at + 4)
        if ledger >= 0:  # -1: a part of the log's map of ledgers
            yield at, (ledger, entry)
        at += 4 + size


def entries_of_journal(data: bytes) -> Iterator[tuple[int, Entry]]:
    """The same of a journal of version 5 or 6: -0x100 begins a padding, what has a negative entry id is no entry."""
    at = 512
    while at + 4 <= len(data):
        (size,) = struct.unpack_from(">i", data, at)
        if size == -0x100:
            at += 8 + struct.unpack_from(">i", data, at + 4)[0]
            continue
        if size <= 0 or at + 4 + size > len(data):
            return
        ledger, entry = struct.unpack_from(">qq", data, at + 4)
        if entry >= 0:
            yield at, (ledger, entry)
        at += 4 + size


@cache
def held(root: Path) -> dict[Entry, set[str]]:
    """The bookies (directories) that have each entry, in a log or a journal."""
    found: dict[Entry, set[str]] = defaultdict(set)
    for file in sorted(root.rglob("*")):
        if file.parent.name == "current" and file.suffix in (".log", ".txn"):
            read = entries_of_log if file.suffix == ".log" else entries_of_journal
            for _, key in read(file.read_bytes()):
                found[key].add(str(file.parent))
    return found


def table_of(folder: Path, name: str) -> pa.Table:
    """The rows that the manifest names, in the order of its files."""
    manifest = read_manifest(Folder.of(str(folder)))
    paths = [part.path for one in manifest.clusters.values() for part in one.tables[name]]
    found = pa.concat_tables(pq.ParquetFile(folder / path).read() for path in paths)
    there = {str(path.relative_to(folder)) for path in folder.glob(f"{name}/*/*")}
    assert there == set(paths), "readers that know no manifest see the same files"
    return found


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Exports of two worlds, only to be read."""
    from pulsar_admin.cli import run

    found = {}
    for name in _WORLDS:
        found[name] = tmp_path_factory.mktemp("tables") / name
        assert (
            run(["--store", str(imported(name, "crashed")), "-q", "store", "export", "tables", str(found[name])]) == 0
        )
    return found


@pytest.mark.parametrize("name", _WORLDS)
def test_every_entry_of_the_files_is_there_once_in_order_with_its_copies(exports: dict[str, Path], name: str) -> None:
    expected = held(world(name) / "crashed")
    found = table_of(exports[name], "entries")
    keys = list(zip(found["ledger_id"].to_pylist(), found["entry_id"].to_pylist(), strict=True))
    assert keys == sorted(expected)
    assert found["copies"].to_pylist() == [len(expected[key]) for key in keys]
    assert (max(map(len, expected.values())) > 1) == (name == CLUSTER)
    assert all(found["digest_ok"].to_pylist())


@pytest.mark.parametrize("name", _WORLDS)
def test_a_store_asked_in_sql_has_the_same_entries(exports: dict[str, Path], name: str) -> None:
    """Columns that the index knows, and those that a file is read for, alone and together."""
    expected = table_of(exports[name], "entries")
    with pulsar_admin.open_store(imported(name, "crashed")) as store:
        for columns in (expected.schema.names, ["path", "copies"], ["producer", "broker_time"]):
            quoted = ", ".join(f'"{name}"' for name in columns)
            found = store.sql(f"select {quoted} from entries order by ledger_id, entry_id").to_arrow()
            assert found.to_pylist() == expected.select(columns).to_pylist()


@pytest.mark.parametrize("name", _WORLDS)
def test_each_row_says_where_its_entry_lies(exports: dict[str, Path], name: str) -> None:
    rows = table_of(exports[name], "entries").select(["path", "offset", "size", "ledger_id", "entry_id"]).to_pylist()
    files = {path: Path(path).read_bytes() for path in {row["path"] for row in rows}}
    for path, offset, size, *key in (row.values() for row in rows):
        assert list(struct.unpack_from(">iqq", files[path], offset)) == [size, *key]


def test_times_producers_and_sequence_ids_are_those_that_a_client_read(exports: dict[str, Path]) -> None:
    rows = table_of(exports["small"], "entries").to_pylist()
    found = {(row["ledger_id"], row["entry_id"]): row for row in rows}
    compared = 0
    for said in asked_topics("small").values():
        for ledger, entry, _, publish_ms, *_, producer in said["messages"]:
            row = found.get((ledger, entry))
            if row is not None:
                assert (row["producer"], int(row["publish_time"].timestamp() * 1000 + 0.5)) == (producer, publish_ms)
                compared += 1
    assert compared > 1000
    plain = [row for row in rows if row["topic"] == "persistent://public/default/plain"]
    by_producer: dict[str, list[int]] = defaultdict(list)
    for row in plain:
        by_producer[row["producer"]].append(row["sequence_id"])
    assert all(numbers == sorted(numbers) for numbers in by_producer.values())


def made(store: Path, folder: Path, engine: Any = None, **sizes: int) -> tuple[pa.Table, list[int]]:  # Any: an engine
    """The entries as ``make_entries`` writes them into FOLDER, and the rows of each file."""
    folder.mkdir()
    (folder / "staging").mkdir()
    with open_store(store) as opened, open_reader(opened) as reader:
        how = Making(Folder.of(str(folder)), "staging", "c", "token", engine, **sizes)  # type: ignore[arg-type]
        rows = iter_table(reader, "ledgers", "c", lambda error: None)
        ledgers = tuple(write_parts(how.folder, "ledgers", TABLES["ledgers"], rows))
        parts = make_entries(reader.txn, how, ledgers).parts
    tables = [pq.ParquetFile(folder / part.path).read() for part in parts]
    assert [len(table) for table in tables] == [part.rows for part in parts]
    return pa.concat_tables(tables), [part.rows for part in parts]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """The entries of a world that has copies of entries, beside all that one bookie has, made at once."""
    found, files = made(imported(CLUSTER, "crashed"), tmp_path_factory.mktemp("made") / "whole")
    assert len(files) == 1
    return found


def test_how_finely_it_is_cut_and_what_runs_it_changes_nothing(whole: pa.Table, tmp_path: Path) -> None:
    with LocalEngine(2) as engine:
        sizes = {"range_entries": 300, "slice_bytes": 300_000}
        fine, files = made(imported(CLUSTER, "crashed"), tmp_path / "fine", engine, **sizes)
    assert fine.equals(whole)
    assert len(files) >= len(whole) // 300 > 5
    assert max(files) <= 301, "a topic that has most of the entries is cut, too"


def test_a_range_that_is_larger_than_planned_is_made_in_passes(
    whole: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "FinishEntries", partial(making.FinishEntries, most_rows=500))
    parts, files = made(imported(CLUSTER, "crashed"), tmp_path / "parts")
    assert parts.equals(whole)
    assert len(files) > 5
    assert max(files) < 1000


def test_another_cluster_of_the_same_name_is_refused_by_its_identity(tmp_path: Path, cli: Cli) -> None:
    arguments = ("store", "export", "tables", tmp_path / "tables", "--only", "topics")
    assert cli("--store", imported("small", "clean"), *arguments).exit_code == 0
    before = (tmp_path / "tables" / "tables.json").read_bytes()
    refused = cli("--store", imported("nometa", "clean"), *arguments).ends(3)
    instances = [b"df0d0a12-4906-401f-a364-f0dec27a8e10".decode(), b"8bc75838-1ba0-414e-b789-d1edafc2ffdc".decode()]
    assert all(instance in refused.stderr for instance in instances), "/ledgers/INSTANCEID of the two worlds"
    assert "choose another --cluster name" in refused.stderr
    assert (tmp_path / "tables" / "tables.json").read_bytes() == before


def test_what_a_killed_export_left_is_named_and_removed(tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "tables"
    arguments = ("--store", imported("small", "clean"), *f"store export tables {folder} --only topics -o json".split())
    assert cli(*arguments).exit_code == 0
    (folder / "_staging-standalone-0123abcd" / "entries").mkdir(parents=True)
    (folder / "topics" / "cluster=standalone" / "part-0123abcd-00000.parquet").write_bytes(
        b"named, and tables.json was not"
    )
    (folder / "_staging-other-0123abcd").mkdir()
    again = cli.done(*arguments)
    left = ["_staging-standalone-0123abcd", "topics/cluster=standalone/part-0123abcd-00000.parquet"]
    assert again.json["removed"] == left
    assert len(table_of(folder, "topics")) == 40
    assert sorted(path.name for path in folder.glob("_staging*")) == ["_staging-other-0123abcd"], "another cluster's"


def test_a_disk_that_fills_up_leaves_the_tables_as_they_were(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tables"
    store = imported("small", "clean")
    assert cli("--store", store, "store", "export", "tables", folder).exit_code == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    write = parquet.write_part

    def full(target: Folder, relative: str, *rest: Any) -> Any:  # Any: of write_part
        if "/entries/" in relative:
            raise DiskFull(f"no space left writing {target.at(relative)}")
        return write(target, relative, *rest)

    monkeypatch.setattr("pulsar_admin.store.tables.entries.write_part", full)
    cli("--store", store, "store", "export", "tables", folder).ends(8, "no space left")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.deep)])
def test_a_file_that_is_gone_is_named_and_nothing_is_written(tmp_path: Path, cli: Cli, jobs: str) -> None:
    source, store = scratch_copy("small", "clean", tmp_path), tmp_path / "store"
    assert cli("--store", store, "-q", "store", "import", "standalone", source).exit_code == 0
    log = source / "bookkeeper" / "current" / "0.log"
    log.rename(log.with_suffix(".away"))
    cli("--store", store, "store", "export", "tables", tmp_path / "tables", "--jobs", jobs).ends(6, f"{log} is gone")
    assert [path.name for path in (tmp_path / "tables").iterdir() if not path.name.startswith(".")] == []
    log.with_suffix(".away").rename(log)
    assert cli("--store", store, "store", "export", "tables", tmp_path / "tables", "--jobs", jobs).exit_code == 0


def test_tables_that_are_not_there_are_refused(tmp_path: Path, cli: Cli) -> None:
    said = cli("--store", imported("small", "clean"), "store", "export", "tables", tmp_path / "t", "--only", "topic")
    assert said.exit_code == 2
    assert "topics, ledgers, cursors" in said.stderr
    assert not (tmp_path / "t").exists()


def test_a_directory_without_a_name_is_not_this_one(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for more in ((), ("--iceberg",)):
        done = cli("--store", imported("small", "clean"), "store", "export", "tables", "", "--only", "topics", *more)
        assert (done.exit_code, "it has no name" in done.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


def _export_by_processes(tmp_path: Path, temporary: Path) -> subprocess.CompletedProcess[str]:
    store = str(imported("small", "clean"))
    command = ["--store", store, "store", "export", "tables", str(tmp_path / "t"), "--jobs", "2"]
    command += ["--only", "topics,entries"]
    more = os.environ | {"TMPDIR": str(temporary)}
    return subprocess.run([sys.executable, "-m", "pulsar_admin", *command], env=more, capture_output=True, text=True)


def test_processes_leave_nothing_in_the_temporary_directory(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:  # the path of a socket in it has to be short
        assert _export_by_processes(tmp_path, Path(temporary)).returncode == 0
        assert os.listdir(temporary) == []


def test_a_temporary_directory_with_a_long_path(tmp_path: Path) -> None:
    temporary = tmp_path / ("long" * 25)
    temporary.mkdir()
    done = _export_by_processes(tmp_path, temporary)
    error, hint = [line for line in done.stderr.splitlines() if line.startswith(("error", "hint"))]
    said = f"error: processes cannot be started: no socket can be created below {temporary}: AF_UNIX path too long"
    assert (error, "set TMPDIR to a short path" in hint) == (said, True)
    assert "Traceback" not in done.stderr
    assert not [name for name in os.listdir(tmp_path / "t") if not name.startswith(".")]


@pytest.mark.parametrize("name", _WORLDS)
def test_messages_are_those_that_a_client_read_each_once(name: str, tmp_path: Path, cli: Cli) -> None:
    arguments = ("store", "export", "tables", tmp_path / "t", "--only", "messages", "--payload", "-o", "json")
    done = cli("--store", imported(name, "clean"), *arguments)
    assert (done.exit_code, [row["table"] for row in done.json["tables"]]) == (0, ["messages"])
    rows = table_of(tmp_path / "t", "messages").to_pylist()
    found = {(row["ledger_id"], row["entry_id"], row["batch_index"]): row for row in rows}
    assert len(found) == len(rows) == done.json["tables"][0]["rows"]
    assert list(found) == sorted(found)
    files = {path: Path(path).read_bytes() for path in {row["path"] for row in rows}}
    compared = values = 0
    for topic, said in asked_topics(name).items():
        for ledger, entry, batch, publish_ms, _, key, _, size, sha1, properties, producer in said["messages"]:
            row = found.get((ledger, entry, batch))
            if row is None or row["encrypted"] or hashlib.sha1(row["payload"]).hexdigest() != sha1:
                continue  # a chunk, or encrypted: what a client makes of entries that stand here for themselves
            assert (row["topic"], row["producer"], row["key"] or "") == (str(parse_topic(topic)), producer, key or "")
            assert int(row["publish_time"].timestamp() * 1000 + 0.5) == publish_ms
            assert row["size"] == size
            assert dict(row["properties"]) == properties
            data = files[row["path"]]
            assert data[row["offset"] + 4 : row["offset"] + 20] == ledger.to_bytes(8) + entry.to_bytes(8)
            compared += 1
            values += row["value"] is not None and row["value"].startswith("{")
    assert compared > 1000
    assert values > 10


@pytest.mark.parametrize("how", [[], ["--columns", "pulsar-spark"], ["--iceberg"]])
def test_a_topic_whose_name_is_empty(how: list[str], store: Path, tmp_path: Path, cli: Cli) -> None:
    """Nobody can name it, and its messages are there all the same."""
    plain = parse_topic("public/default/plain")
    empty = plain.path.removesuffix("plain")

    def rename(txn: Txn) -> None:
        for node in [*iter_nodes(txn, plain.path)]:
            if node.path == plain.path or node.path.startswith(f"{plain.path}/"):
                txn.delete("tree", node.path.encode())
                put_nodes(txn, [node._replace(path=node.path.replace(plain.path, empty))])

    with open_store(store, writable=True) as opened:
        opened.write(rename)
        opened.write(lambda txn: index_owners(opened, txn))
    made = cli("--store", store, "store", "export", "tables", tmp_path / "tables", "--messages", *how, "-o", "json")
    assert "invalid topic name" not in made.stderr
    assert made.exit_code in (0, 1)
    count = "select count(*) n from messages where topic = 'persistent://public/default/'"
    if not how:
        assert cli("--tables", tmp_path / "tables", "sql", count, "-o", "json").json == [{"n": 300}]
    assert cli("--store", store, "sql", count, "-o", "json").json == [{"n": 300}]


def test_of_another_state_of_the_same_cluster_the_newer_export_counts(tmp_path: Path, cli: Cli) -> None:
    for state in ("clean", "crashed"):
        arguments = ("store", "export", "tables", tmp_path / "tables", "--only", "entries")
        assert cli("--store", imported("small", state), *arguments).exit_code == 0
    assert len(table_of(tmp_path / "tables", "entries")) == len(held(world("small") / "crashed"))
