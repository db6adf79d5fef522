"""What SQL sees of a store is what ``store export tables`` writes: every table, column by column, types and values, by DuckDB alone."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from msgspec import Struct

from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.resources import find_cluster_name
from pulsar_admin.store.tables.catalog import StoreTables
from pulsar_admin.store.tables.sql import Database
from tests.stores import imported
from tests.worlds import CLUSTER

TABLES = ("topics", "ledgers", "cursors", "policies", "schemas", "entries", "messages", "nodes", "rows", "bodies")


class Sides(Struct):
    """A store that is asked in SQL, and the files of its export."""

    world: str
    database: Database
    folder: Path
    plain: duckdb.DuckDBPyConnection

    def files_of(self, table: str) -> str:
        """What DuckDB reads where no tool of ours is."""
        return f"read_parquet('{self.folder}/{table}/*/*.parquet', union_by_name = true, hive_partitioning = false)"


@pytest.fixture(scope="module", params=[("small", "crashed"), (CLUSTER, "clean")], ids=str)
def sides(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    from pulsar_admin.cli import run

    store = imported(*request.param)
    folder = tmp_path_factory.mktemp("same") / "tables"
    assert run(["--store", str(store), "-q", "store", "export", "tables", str(folder), "--messages", "--payload"]) == 0
    with open_store(store) as opened, open_reader(opened) as reader:
        database = Database(StoreTables(lambda: reader, find_cluster_name(reader.txn)), now_ms=0)
        plain = duckdb.connect(":memory:")
        plain.execute("SET TimeZone = 'UTC'")
        yield Sides(request.param[0], database, folder, plain)
        database.close()
        plain.close()


def test_a_table_is_the_same(sides: Sides) -> None:
    for table in TABLES:
        (statement,) = sides.database.split(f"describe {table}")
        columns = [*sides.database.run(statement)]
        described = sides.plain.execute(f"describe from {sides.files_of(table)}").fetchall()
        assert [row[:2] for row in columns] == [row[:2] for row in described], table
        found = Counter(map(repr, sides.database.run(f"from {table}")))
        expected = Counter(map(repr, sides.plain.execute(f"from {sides.files_of(table)}").fetchall()))
        assert found == expected, table
        assert found.total() > 0, table


def test_a_column_alone_is_the_same(sides: Sides) -> None:
    """What is read for one column is not what is read for all. Messages are of one bookie, the other tables of three."""
    tables = {"acme/*": f"{sides.files_of('messages')} where topic like 'persistent://acme/%'"}
    if sides.world != "small":
        tables = {table: sides.files_of(table) for table in ("entries", "ledgers", "cursors")}
    for table, files in tables.items():
        for name, *_ in [*sides.database.run(f'describe "{table}"')]:
            found = Counter(map(repr, sides.database.run(f'select "{name}" from "{table}"')))
            assert found == Counter(map(repr, sides.plain.execute(f'select "{name}" from {files}').fetchall())), name
            assert found.total() > 0
