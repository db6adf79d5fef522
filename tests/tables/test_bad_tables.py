"""Tables that are damaged, or of several times or programs: one line says which and what to do, and nothing is changed."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulsar_admin.store.errors import NotWritable
from pulsar_admin.store.tables.folder import Folder
from tests.altering import flip
from tests.conftest import Cli, CliResult
from tests.stores import imported


def ask(cli: Cli, folder: Path | str, *words: object) -> CliResult:
    """What says of the tables in FOLDER: a statement of ``sql``, or with no WORDS a store made of them."""
    new = Path(tempfile.mkdtemp()) / "new"
    done = cli("--tables", folder, *words) if words else cli("--store", new, "store", "import", "tables", folder)
    assert done.exit_code == 0 or not new.exists()
    return done


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All tables of ``small``, only to be read."""
    from pulsar_admin.cli import run

    folder = tmp_path_factory.mktemp("exported") / "tables"
    assert run(["--store", str(imported("small", "clean")), "-q", "store", "export", "tables", str(folder)]) == 0
    return folder


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    """A copy of them, to be damaged."""
    return shutil.copytree(exported, tmp_path / "tables")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(done: CliResult, exit_code: int, *words: str) -> None:
    """One line of an error with WORDS, and one of what to do."""
    error, hint = done.stderr.splitlines()
    assert (done.exit_code, done.stdout) == (exit_code, ""), done.stderr
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    assert [word for word in words if word not in error] == [], error


# -- tables.json -------------------------------------------------------------------------------------------------------

Edit = Callable[[dict[str, Any]], object]


def in_cluster(*names: str | int, value: object = None) -> Edit:
    """Set what NAMES lead to; None: remove it."""

    def edit(found: dict[str, Any]) -> None:
        place: Any = found["clusters"]["standalone"]
        for name in names[:-1]:
            place = place[name]
        if value is None:
            del place[names[-1]]
        else:
            place[names[-1]] = value

    return edit


PART = ("tables", "entries", 0)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (in_cluster("store"), "clusters.standalone.store: expected a text, found nothing"),
        (in_cluster("exportedMs"), "clusters.standalone.exportedMs: expected an object, found nothing"),
        (in_cluster("exportedMs", "nodes", value="x"), 'exportedMs.nodes: expected a whole number, found "x"'),
        (in_cluster("tables", value=[1]), "clusters.standalone.tables: expected an object, found [1]"),
        (in_cluster(*PART, value=[1]), "tables.entries[0]: expected an object, found [1]"),
        (in_cluster(*PART, "rows"), "tables.entries[0].rows: expected a whole number, found nothing"),
        (in_cluster(*PART, "bytes", value=True), "tables.entries[0].bytes: expected a whole number, found true"),
        (in_cluster(*PART, "sha256"), "tables.entries[0].sha256: expected a text, found nothing"),
        (in_cluster(*PART, "path", value="../x"), "tables.entries[0].path: expected a file of this directory, found '../x'"),
        (in_cluster(*PART, "ledgers", value=[1]), "tables.entries[0].ledgers: expected two ids, the least first, found [1]"),
        (in_cluster(*PART, "ledgers", value=["a", "b"]), 'tables.entries[0].ledgers: expected a whole number, found "a"'),
        (lambda found: found.pop("clusters"), "clusters: expected an object, found nothing"),
        (lambda found: found.update(tables="1"), 'tables: expected a whole number, found "1"'),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_list_is_named_to_all_who_read_it(edit: Edit, said: str, cli: Cli, folder: Path) -> None:
    path = folder / "tables.json"
    found = json.loads(path.read_text())
    edit(found)
    path.write_text(json.dumps(found))
    before = contents(folder)
    for words in ((), ("sql", "select count(*) from entries")):
        refused(ask(cli, folder, *words), 6, str(path), "is damaged", said)
    store = imported("small", "clean")
    refused(cli("--store", store, "store", "export", "tables", folder, "--only", "topics"), 6, str(path), said)
    assert contents(folder) == before


def test_a_list_that_is_cut_off_is_named(cli: Cli, folder: Path) -> None:
    path = folder / "tables.json"
    whole = path.read_bytes()
    for size in (0, 1, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:size])
        refused(ask(cli, folder), 6, f"{path} is damaged: it is not JSON at line")


@pytest.mark.parametrize(
    "edit",
    [
        in_cluster(*PART, "ledgers", value=[63, 175]),
        in_cluster("tables", "entries", value=[]),
        in_cluster("exportedMs", "topics", value=1),
        in_cluster("store", value="elsewhere"),
    ],
)
def test_a_list_that_is_whole_but_changed_is_named(edit: Edit, cli: Cli, folder: Path) -> None:
    path = folder / "tables.json"
    found = json.loads(path.read_text())
    edit(found)
    path.write_text(json.dumps(found))
    for words in ((), ("sql", "select count(*) from entries")):
        refused(ask(cli, folder, *words), 6, f"{path} is damaged: checksum of its clusters: expected ")


# -- files -------------------------------------------------------------------------------------------------------------


def part_of(folder: Path, table: str) -> tuple[Path, str]:
    (path,) = (folder / table).rglob("*.parquet")
    return path, str(path.relative_to(folder))


def write_list(folder: Path, found: dict[str, Any]) -> None:
    """Write the list FOUND with the checksum of what is in it."""
    text = json.dumps(found["clusters"], sort_keys=True, separators=(",", ":"))
    found["crc32c"] = f"{google_crc32c.value(text.encode()):08x}"
    (folder / "tables.json").write_text(json.dumps(found))


def rewritten(folder: Path, table: str, rows: pa.Table) -> str:
    """Put ROWS in the place of the table's file, as another version would have written them."""
    path, name = part_of(folder, table)
    path.unlink()
    pq.write_table(rows, path)
    found = json.loads((folder / "tables.json").read_text())
    found["clusters"]["standalone"]["tables"][table][0]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    write_list(folder, found)
    return name


@pytest.mark.parametrize("table", ["nodes", "entries"])
def test_files_that_cannot_be_read_are_named(table: str, cli: Cli, folder: Path) -> None:
    path, name = part_of(folder, table)
    whole = path.read_bytes()
    asked = ((), ("sql", f"select count(*) from {table}"))
    for found in (whole[: len(whole) // 2], b"", b"no Parquet" * 100):
        path.write_bytes(found)
        for words in asked:
            refused(ask(cli, folder, *words), 6, name, "cannot be read: ")
    path.unlink()
    for words in asked:
        refused(ask(cli, folder, *words), 5, f"{name} is gone: tables.json names it")


def test_a_directory_in_the_place_of_a_file_is_named(cli: Cli, folder: Path) -> None:
    path, name = part_of(folder, "entries")
    path.unlink()
    path.mkdir()
    refused(ask(cli, folder), 6, f"{name} cannot be read: it is a directory, not a regular file")


def test_a_flipped_bit_of_a_page_is_no_answer(cli: Cli, folder: Path) -> None:
    path, name = part_of(folder, "entries")
    facts = pq.read_metadata(path).row_group(0)
    column = next(facts.column(n) for n in range(facts.num_columns) if facts.column(n).path_in_schema == "entry_id")
    flip(path, (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size // 2)
    asked = ("sql", "select max(entry_id) from entries")
    for done in (ask(cli, folder), ask(cli, folder, *asked), ask(cli, f"file://{folder}", *asked)):
        refused(done, 6, f"{name} cannot be read: tables.json has SHA-256 ")


@pytest.mark.parametrize("table", ["bodies", "entries"])
def test_one_changed_byte_is_named(table: str, cli: Cli, folder: Path) -> None:
    """Of pages, their headers, the footer and the ends, whoever reads the file."""
    path, name = part_of(folder, table)
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for place in (0, 4, footer // 2, footer - 1, footer, (footer + len(whole)) // 2, len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        for words in ((), ("sql", f"select count(*) from {table}")):
            refused(ask(cli, folder, *words), 6, f"{name} cannot be read: tables.json has SHA-256 ")
        checked = cli("--tables", folder, "store", "check", "-o", "json")
        assert [(row["severity"], row["where"]) for row in checked.json] == [
            ("problem", name),
            ("summary", str(folder)),
        ]
        assert (checked.exit_code, checked.json[0]["code"]) == (1, "corrupt")
    path.write_bytes(whole)
    checked = cli("--tables", folder, "store", "check", "-o", "json")
    assert (checked.exit_code, checked.json[0]["message"]) == (0, "0 problems in 9 files of tables, every byte read")


@pytest.mark.parametrize(("table", "column"), [("rows", "key"), ("entries", "ledger_id")])
def test_columns_of_another_type_are_named(table: str, column: str, cli: Cli, folder: Path) -> None:
    rows = pq.read_table(part_of(folder, table)[0])
    place, found = rows.schema.get_field_index(column), pa.array(["x"] * len(rows))
    name = rewritten(folder, table, rows.set_column(place, column, found))
    expected = f"{name}, column {column}: expected {rows.schema.field(column).type}, found string"
    for words in ((), ("sql", f"select count(*) from {table}")):
        refused(ask(cli, folder, *words), 6, expected)


def test_columns_that_are_not_there_are_named_or_null(cli: Cli, folder: Path) -> None:
    """A version only ever adds columns at the end: without the last ones it is an older export, which SQL still reads."""
    rows = pq.read_table(part_of(folder, "entries")[0])
    statement = ("sql", "select count(*) as n, count(last_add_confirmed) as known from entries", "-o", "json")
    name = rewritten(folder, "entries", rows.drop_columns(["last_add_confirmed"]))
    refused(ask(cli, folder), 7, f"{name} has no column last_add_confirmed: an earlier version wrote it")
    assert cli("--tables", folder, *statement).json == [{"n": len(rows), "known": 0}]
    name = rewritten(folder, "entries", rows.drop_columns(["offset"]))
    for words in ((), statement[:2]):
        refused(ask(cli, folder, *words), 7, f"{name} has no column offset")


def test_a_file_that_only_the_entries_name_is_named(cli: Cli, folder: Path) -> None:
    rows = pq.read_table(part_of(folder, "entries")[0])
    paths = pa.array(["/elsewhere/7.log", *rows["path"].to_pylist()[1:]], rows.schema.field("path").type)
    rewritten(folder, "entries", rows.set_column(rows.schema.get_field_index("path"), rows.schema.field("path"), paths))
    refused(ask(cli, folder), 6, "the table entries names /elsewhere/7.log, which the table rows does not know")


def forged(folder: Path, edit: Edit) -> None:
    """EDIT the list as one who knows how: with a checksum that fits."""
    found = json.loads((folder / "tables.json").read_text())
    edit(found)
    write_list(folder, found)


def test_a_file_that_is_listed_twice_is_not_read_twice(cli: Cli, folder: Path) -> None:
    forged(folder, lambda found: (parts := found["clusters"]["standalone"]["tables"]["entries"]).append(parts[0]))
    for words in ((), ("sql", "select count(*) from entries"), ("store", "check")):
        refused(ask(cli, folder, *words), 6, "tables.entries: a file is there twice")


def test_a_check_compares_rows_as_readers_do(cli: Cli, folder: Path) -> None:
    forged(folder, in_cluster(*PART, "rows", value=7))
    refused(ask(cli, folder), 6, "expected 7 rows, as tables.json says, found ")
    done = ask(cli, folder, "store", "check", "-o", "json")
    assert done.exit_code == 1
    assert [row["code"] for row in done.json] == ["source-changed", "checked"]


def test_a_fifo_in_the_place_of_a_file_is_named_at_once(cli: Cli, folder: Path) -> None:
    path, name = part_of(folder, "entries")
    path.unlink()
    os.mkfifo(path)
    for words in ((), ("sql", "select count(*) from entries")):
        refused(ask(cli, folder, *words), 6, f"{name} cannot be read: it is a FIFO, not a regular file")
    assert ask(cli, folder, "store", "check").exit_code == 1


# -- of several times --------------------------------------------------------------------------------------------------


def test_tables_of_different_times_are_not_mixed(cli: Cli, tmp_path: Path) -> None:
    def export(state: str, day: int, *only: str) -> None:
        now = f"2026-11-{day}T00:00:00Z"
        store = imported("small", state)
        cli.done("--now", now, "--store", store, "store", "export", "tables", tmp_path / "t", *only)

    export("clean", 21)
    assert ask(cli, tmp_path / "t").exit_code == 0
    export("mutated", 22, "--only", "nodes")
    times = "nodes at 2026-11-22T00:00:00.000Z; rows, bodies, entries at 2026-11-21T00:00:00.000Z"
    found = ask(cli, tmp_path / "t")
    refused(found, 6, f"{tmp_path / 't'} has tables of standalone that were exported at different times", times)
    export("mutated", 23, "--only", found.stderr.splitlines()[1].rpartition(" ")[2])
    assert ask(cli, tmp_path / "t").exit_code == 0
    export("mutated", 24, "--only", "topics,cursors")  # which no store is made of
    assert ask(cli, tmp_path / "t").exit_code == 0


# -- Iceberg -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Iceberg tables, each test's own files put back after it."""
    from pulsar_admin.cli import run

    folder = tmp_path_factory.mktemp("fleet") / "tables"
    store = str(imported("small", "clean"))
    assert run(["--store", store, "-q", "store", "export", "tables", str(folder), "--iceberg"]) == 0
    return folder


@pytest.mark.parametrize(
    ("pattern", "exit_code", "said"),
    [
        ("entries/metadata/*.avro", 6, "the files of the Iceberg table pulsar.entries cannot be listed: "),
        ("entries/metadata/*.metadata.json", 5, "the Iceberg table pulsar.entries cannot be opened: "),
    ],
)
def test_a_run_on_damaged_iceberg_tables_adds_nothing(
    pattern: str, exit_code: int, said: str, cli: Cli, fleet: Path
) -> None:
    whole = {path: path.read_bytes() for path in fleet.glob(pattern)}
    assert whole
    for path in whole:
        path.write_bytes(b"damaged")
    before = contents(fleet)
    words = ("--store", imported("small", "clean"), "store", "export", "tables", fleet, "--iceberg")
    refused(cli(*words), exit_code, said)
    assert contents(fleet) == before
    for path, data in whole.items():
        path.write_bytes(data)
    assert cli(*words, "--only", "entries").exit_code == 0


def test_a_file_of_tables_that_cannot_be_read_is_not_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> int:
        raise PermissionError(13, "Permission denied")

    assert Folder(str(tmp_path)).read("manifest.json") is None
    monkeypatch.setattr("pulsar_admin.store.files.open_regular", refuse)
    with pytest.raises(NotWritable, match=r"cannot read .*Permission denied"):
        Folder(str(tmp_path)).read("manifest.json")
