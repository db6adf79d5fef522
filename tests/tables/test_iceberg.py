"""Tables as Iceberg tables, from Parquet files made here: what pyiceberg and DuckDB read of them, and what is refused."""

import datetime
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulsar_admin.store.errors import DiskFull, InvalidValue, Refused, SourceNotFound, StalePlan
from pulsar_admin.store.tables import iceberg
from pulsar_admin.store.tables.iceberg import Commit, Warehouse, commit, find_rows, open_warehouse
from pulsar_admin.store.tables.schemas import TABLES

LONG = "pulsar-cluster-of-the-north-1-ü"  # longer than the bounds that Iceberg keeps of strings
NOON = datetime.datetime(2024, 1, 2, 12, 0, 0, 123456, tzinfo=datetime.UTC)


def value_of(kind: pa.DataType, number: int) -> Any:  # Any: the column's own type
    """Return a value of type KIND that differs by NUMBER."""
    if pa.types.is_struct(kind):
        return {field.name: value_of(field.type, number) for field in kind}
    if pa.types.is_list(kind):
        return [value_of(kind.value_type, number)]
    if pa.types.is_map(kind):
        return [("key", f"value {number}")]
    if pa.types.is_timestamp(kind):
        return NOON + datetime.timedelta(microseconds=number)
    if pa.types.is_boolean(kind):
        return bool(number % 2)
    if pa.types.is_binary(kind):
        return b"\xff\0" + bytes([number % 256])
    return f"text {number}" if pa.types.is_string(kind) else number


def rows_of(table: str, cluster: str, numbers: Sequence[int]) -> pa.Table:
    """Return a row a number, every column filled; ``entry_id`` is the number."""
    columns = [
        pa.array(
            [cluster if field.name == "cluster" else value_of(field.type, number) for number in numbers], field.type
        )
        for field in TABLES[table]
    ]
    rows = pa.Table.from_arrays(columns, schema=TABLES[table])
    if "ledger_id" in rows.column_names:
        at = rows.column_names.index("ledger_id")
        rows = rows.set_column(at, "ledger_id", pa.array([number // 100 for number in numbers], pa.int64()))
    return rows


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    made = open_warehouse(str(tmp_path / "tables"))
    yield made
    made.catalog.close()


def write(warehouse: Warehouse, table: str, cluster: str, name: str, rows: pa.Table) -> str:
    path = f"{warehouse.location(table)}/data/{name}.parquet"
    file = Path(path.removeprefix("file://"))
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file, compression="zstd")
    return path


def replaced(warehouse: Warehouse, table: str, cluster: str, name: str, numbers: Sequence[int]) -> iceberg.Committed:
    path = write(warehouse, table, cluster, name, rows_of(table, cluster, numbers))
    return commit(warehouse, Commit(table, cluster, f"the one in the {cluster}", [path]))


def check(warehouse: Warehouse, *tables: str) -> None:
    for name in tables or TABLES:
        find_rows(warehouse, name, "north", "the one in the north")


def read(warehouse: Warehouse, table: str, where: str = "True") -> list[dict[str, Any]]:
    """Return rows, read by pyiceberg with a catalogue that it opens anew."""
    from pyiceberg.catalog import load_catalog  # here and below: a second, for each process that collects tests

    other = load_catalog("pulsar", uri=f"sqlite:///{warehouse.root.removeprefix('file://')}/catalog.db")
    try:
        found: list[dict[str, Any]] = other.load_table(f"pulsar.{table}").scan(row_filter=where).to_arrow().to_pylist()
        return found
    finally:
        other.close()


@pytest.mark.parametrize("table", TABLES)
def test_every_table_reads_back_as_written(warehouse: Warehouse, table: str) -> None:
    """Maps, lists of structs, bytes and microseconds, by the reader of pyiceberg and through DuckDB."""
    written = rows_of(table, LONG, [1, 102]).to_pylist()
    replaced(warehouse, table, LONG, "one", [1, 102])
    replaced(warehouse, table, "south", "two", [7])
    assert read(warehouse, table, f"cluster = '{LONG}'") == written
    scan = warehouse.catalog.load_table(f"pulsar.{table}").scan()
    counts = scan.to_duckdb("rows").execute("select cluster, count(*) from rows group by 1 order by 1").fetchall()
    assert counts == [(LONG, 2), ("south", 1)]


def test_rows_of_a_cluster_are_replaced_in_one_commit(warehouse: Warehouse) -> None:
    replaced(warehouse, "topics", "north", "one", range(5))
    replaced(warehouse, "topics", "south", "two", range(3))
    said = replaced(warehouse, "topics", "north", "three", range(4))
    assert (said.rows_before, said.rows_after) == (5, 4)
    counted = [row["cluster"] for row in read(warehouse, "topics")]
    assert sorted(counted) == ["north"] * 4 + ["south"] * 3
    snapshots = warehouse.catalog.load_table("pulsar.topics").snapshots()
    assert [one.summary.operation.value for one in snapshots] == ["append", "append", "delete", "append"]
    assert len(list(Path(warehouse.root.removeprefix("file://")).glob("topics/metadata/*.metadata.json"))) == 3
    assert commit(warehouse, Commit("topics", "north", "the one in the north", [])).rows_after == 0
    assert {row["cluster"] for row in read(warehouse, "topics")} == {"south"}


def grown(monkeypatch: pytest.MonkeyPatch, table: str, *fields: pa.Field) -> None:
    """Add columns to TABLE, or change one."""
    schema = TABLES[table]
    for field in fields:
        at = schema.get_field_index(field.name)
        schema = schema.append(field) if at < 0 else schema.set(at, field)
    monkeypatch.setattr(iceberg, "TABLES", {**TABLES, table: schema})
    monkeypatch.setitem(globals(), "TABLES", {**TABLES, table: schema})


def test_a_column_of_another_type_is_refused_by_name(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(warehouse, "topics", "north", "one", [1])
    grown(monkeypatch, "topics", pa.field("size", pa.string()))
    with pytest.raises(Refused, match=r"pulsar\.topics cannot be written: .*size"):
        replaced(warehouse, "topics", "north", "two", [1, 2])
    monkeypatch.undo()
    assert read(warehouse, "topics") == rows_of("topics", "north", [1]).to_pylist()


def test_a_table_of_others_is_refused_by_name(warehouse: Warehouse) -> None:
    warehouse.catalog.create_namespace("pulsar")
    warehouse.catalog.create_table("pulsar.topics", schema=TABLES["topics"])
    with pytest.raises(Refused, match=r"pulsar\.topics was not made by store export tables"):
        check(warehouse)


def test_another_cluster_of_the_same_name_is_refused(warehouse: Warehouse) -> None:
    replaced(warehouse, "topics", "north", "one", [1])
    said = r"pulsar\.topics has rows of another cluster 'north': that is the one in the north, this one is"
    with pytest.raises(Refused, match=said):
        find_rows(warehouse, "topics", "north", "the one at the pole")


def test_a_commit_in_between_is_told_and_nothing_is_doubled(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(warehouse, "topics", "south", "one", [1])
    rows, between = iceberg._rows, [1]

    def overtaken(table: Any, cluster: str) -> int:
        if between and between.pop():
            monkeypatch.setattr(iceberg, "_rows", rows)
            replaced(warehouse, "topics", "north", "two", [1, 2])
        return rows(table, cluster)

    monkeypatch.setattr(iceberg, "_rows", overtaken)
    with pytest.raises(StalePlan, match="another run has written topics meanwhile: nothing was added"):
        replaced(warehouse, "topics", "north", "three", [1, 2, 3])
    assert sorted(row["cluster"] for row in read(warehouse, "topics")) == ["north", "north", "south"]


def test_a_catalogue_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFound, match="the Iceberg catalogue nowhere cannot be opened"):
        open_warehouse(str(tmp_path), "nowhere")
    with pytest.raises(SourceNotFound, match=r"http://127\.0\.0\.1:9"):
        open_warehouse(str(tmp_path), "http://127.0.0.1:9")
    with pytest.raises(Refused, match="no room for a catalogue of SQLite"):
        open_warehouse("s3://bucket/tables")
    with pytest.raises(InvalidValue, match="#"):
        open_warehouse(str(tmp_path / "a#b"))
    (tmp_path / "catalog.db").write_bytes(b"no database" * 1000)
    with pytest.raises(SourceNotFound, match="not a database"):
        open_warehouse(str(tmp_path))


def test_a_disk_without_space_is_told_as_such(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """What SQLite and pyiceberg said on a small tmpfs."""
    from sqlalchemy.exc import OperationalError

    for error in (
        OperationalError("INSERT INTO iceberg_tables", {}, sqlite3.OperationalError("database or disk is full")),
        OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device"),
    ):
        monkeypatch.setattr(iceberg, "_new_table", Mock(side_effect=error))
        with pytest.raises(DiskFull, match=r"pulsar\.topics cannot be written: .*(disk is full|No space left)"):
            replaced(warehouse, "topics", "north", "one", [1])
