"""SQL over tables that were exported: the rows of the store, of several clusters side by side, by files of the folder alone."""

import json
from hashlib import sha256
from pathlib import Path
from shutil import copytree

import pyarrow.parquet as pq
import pytest

import pulsar_admin
from pulsar_admin.store.errors import Corrupt
from tests.altering import flip
from tests.conftest import Cli
from tests.recovery.test_extend import LEDGER, TOPIC, shorten
from tests.stores import copied, imported
from tests.tables.test_bad_tables import write_list
from tests.worlds import CLUSTER, oracle


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two clusters of one store, each with its messages."""
    from pulsar_admin.cli import run

    path = tmp_path_factory.mktemp("exported") / "tables"
    store = str(imported("small", "clean"))
    for name in ("east", "west"):
        assert run(["--store", store, "-q", "store", "export", "tables", str(path), "--cluster", name]) == 0
    manifest = json.loads((path / "tables.json").read_text())
    with pulsar_admin.open_store(store) as opened:
        messages = opened.sql("select * exclude (value), value::varchar as value from messages").to_arrow()
    for name, found in manifest["clusters"].items():
        (path / f"messages-{name}.parquet").parent.mkdir(exist_ok=True)
        pq.write_table(messages, path / f"messages-{name}.parquet")
        size = (path / f"messages-{name}.parquet").stat().st_size
        digest = sha256((path / f"messages-{name}.parquet").read_bytes()).hexdigest()
        part = {"path": f"messages-{name}.parquet", "rows": len(messages), "bytes": size, "sha256": digest}
        found["tables"]["messages"] = [{**part, "ledgers": None}]
    write_list(path, manifest)
    return path


STATEMENTS = (
    "select * exclude (cluster) from ledgers order by ledger_id",
    "select * exclude (cluster) from cursors order by all",
    "select topic, version, type, time from schemas order by all",
    "select count(*), min(publish_time) from \"acme/orders/parts\" where publish_time > '2026-11-21'",
    "select count(*), max(ledger_id) from \"public/default/*\" where topic <> 'persistent://public/default/plain'",
)


def test_the_rows_are_those_of_the_store(folder: Path, cli: Cli) -> None:
    for statement in STATEMENTS:
        of_store = cli("--store", imported("small", "clean"), "sql", statement, "-o", "json")
        of_tables = cli.done("--tables", folder, "--cluster", "east", "sql", statement, "-o", "json")
        assert of_tables.json == of_store.json, statement
        assert of_store.json, statement


def test_other_files_are_not_read(folder: Path, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("a\n42\n")
    link = folder / "link.csv"
    link.unlink(missing_ok=True)
    link.symlink_to(tmp_path / "other.csv")
    for statement in (
        f"from '{tmp_path / 'other.csv'}'",
        f"from '{folder}/../other.csv'",
        f"from '{folder}/tables.json'",
        f"from '{folder}/link.csv'",
        f"select * from topics where topic in (select a::text from '{folder}/link.csv')",
        "copy ledgers to 'x.parquet'",
    ):
        found = cli("--tables", folder, "sql", statement)
        assert found.exit_code in (2, 3)
        assert found.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.csv"]
    link.unlink()


def test_what_is_not_there_is_named(folder: Path, cli: Cli, tmp_path: Path) -> None:
    assert "there are east, west" in cli("--tables", folder, "--cluster", "north", "sql", "select 1").stderr
    assert "has no tables" in cli("--tables", tmp_path, "sql", "select 1").stderr
    assert "if `--messages` was given" in cli("--tables", folder, "sql", "from nothing").stderr
    (folder / "messages-west.parquet").rename(folder / "gone")
    try:
        cli("--tables", folder, "sql", "select count(*) from messages").ends(5, "messages-west.parquet is gone")
    finally:
        (folder / "gone").rename(folder / "messages-west.parquet")


def test_a_bad_file_beside_a_good_one_is_refused_each_time(folder: Path, tmp_path: Path) -> None:
    from pulsar_admin.store.tables.catalog import ExportedTables
    from pulsar_admin.store.tables.folder import Folder

    copytree(folder, tmp_path / "tables")
    flip(tmp_path / "tables" / "messages-west.parquet", 1000)
    tables = ExportedTables(Folder.of(str(tmp_path / "tables")), None)
    for _ in range(2):
        with pytest.raises(Corrupt, match=r"messages-west\.parquet cannot be read"):
            tables.find("messages")


def test_tables_that_are_exported_again_while_they_are_read(cli: Cli, tmp_path: Path) -> None:
    """No rows of two exports, and no word of damage; asked once more, a shell answers of the new ones."""
    from pulsar_admin.store.errors import SourceBusy
    from pulsar_admin.store.tables.catalog import ExportedTables
    from pulsar_admin.store.tables.folder import Folder
    from pulsar_admin.store.tables.sql import Database

    store, folder = copied("small", "clean", tmp_path), tmp_path / "tables"

    def export() -> None:
        with pulsar_admin.open_store(store) as opened:
            opened.export_tables(folder, messages=True)

    export()
    tables = ExportedTables(Folder.of(str(folder)), None)
    database = Database(tables, now_ms=0)
    asked = (
        "select count(*) from topics",
        "select count(*) from cursors join entries using (topic)",
        'select count(*) from "public/default/plain"',
    )
    before = [[*database.run(statement)] for statement in asked]
    assert not tables.renew()
    assert cli("--store", store, "topics", "delete", "public/default/chunked", "--force", "--yes").exit_code == 0
    export()
    for statement in asked:
        with pytest.raises(SourceBusy, match="were exported again while they were read"):
            [*database.run(statement)]
    assert tables.renew()
    database.forget_tables()
    after = [[*database.run(statement)] for statement in asked]
    assert after[0] == [(before[0][0][0] - 1,)]
    assert after[2] == before[2]
    nodes = next((folder / "nodes").rglob("*.parquet"))
    nodes.unlink()
    found = cli("--tables", folder, "sql", "select count(*) from nodes")
    assert (found.exit_code, found.stderr.splitlines()[0][-28:]) == (5, "is gone: tables.json names it"[-28:])
    database.close()


MISTYPED = ("messagez", "public/default/typo", "public/typo", "public/default/typo*", "typo.csv")


@pytest.mark.parametrize("name", [*MISTYPED, "public/default/__transaction_buffer_snapshot", "public/default/__*"])
def test_a_topic_that_is_not_there_is_no_empty_table(name: str, folder: Path, cli: Cli) -> None:
    found = cli("--tables", folder, "sql", f'select count(*) from "{name}"')
    assert found.exit_code in (2, 3)
    assert name in found.stderr


def test_a_table_that_was_not_exported_is_no_topic(cli: Cli, tmp_path: Path) -> None:
    store = imported("small", "clean")
    assert cli("--store", store, "store", "export", "tables", tmp_path, "--only", "topics,messages").exit_code == 0
    assert cli("--tables", tmp_path, "sql", "select * from cursors").ends(2).stdout == ""
    assert cli("--tables", tmp_path, "sql", 'select count(*) n from "acme/iot"', "-o", "json").json[0]["n"]


def test_messages_end_where_their_ledgers_do(cli: Cli, tmp_path: Path) -> None:
    """What lies behind a ledger's recorded end no broker delivers: it is an entry, and no message of the topic."""
    store = copied(CLUSTER, "crashed", tmp_path)
    shorten(store, 36)
    sent = {tuple(row["id"][:2]) for row in oracle(CLUSTER)["sent"] if row["topic"].endswith(TOPIC)}
    assert (LEDGER, 39) in sent
    assert cli("--store", store, "store", "export", "tables", tmp_path / "tables", "--messages").exit_code == 0
    for source in (("--store", store), ("--tables", tmp_path / "tables")):
        rows = cli(*source, "sql", f'select ledger_id, entry_id from "{TOPIC}"', "-o", "json").json
        found = {(row["ledger_id"], row["entry_id"]) for row in rows}
        assert found <= sent
        assert {entry_id for ledger_id, entry_id in found if ledger_id == LEDGER} == {*range(37)}
        there = cli(*source, "sql", f"select count(*) n from entries where ledger_id = {LEDGER}", "-o", "json").json
        assert there == [{"n": 40}]
