"""SQL over a store: what a condition rules out is not read, and no answer changes by that."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from store.db.environment import open_store
from store.model.ledgers import open_reader
from store.tables.catalog import StoreTables
from store.tables.sql import Database
from tests.stores import imported
from tests.tables.statements import Statements

_TABLES = ("messages", "ledgers", "cursors", "topics", '"public/default/*"', '"public/default/avro"', '"acme/iot/*"')


class Both:
    """The tables of a store, and the same read whole into DuckDB's own."""

    def __init__(self, tables: StoreTables) -> None:
        self.tables = tables
        self.made = Database(tables)
        self.whole = duckdb.connect(":memory:")
        self.whole.execute("SET TimeZone = 'UTC'")
        for name in _TABLES:
            found = tables.find(name.strip('"'))
            assert found is not None
            self.whole.register("found", found)
            self.whole.execute(f"create table {name} as from found")

    def rows(self, statement: str) -> tuple[list[str], list[str]]:
        """Return the rows of STATEMENT as both have them."""
        (checked,) = self.made.split(statement)
        return sorted(map(repr, self.made.run(checked))), sorted(map(repr, self.whole.execute(statement).fetchall()))


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    with open_store(imported("small", "clean")) as store, open_reader(store) as reader:
        found = Both(StoreTables(reader, "standalone"))
        yield found
        found.made.close()
        found.whole.close()


def times_of(both: Both) -> list[str]:
    quantiles = "select unnest(quantile_disc({}, [0, 0.1, 0.4, 0.6, 0.9, 1])) from messages"
    times = [
        row[0]
        for name in ("publish_time", "broker_time")
        for row in both.whole.execute(quantiles.format(name)).fetchall()
    ]
    return [*map(str, times), "1970-01-01 00:00:00+00", "9999-12-31 00:00:00+00"]


@pytest.mark.parametrize("seed", range(3))
def test_what_is_not_read_changes_no_answer(both: Both, seed: int) -> None:
    statements = Statements(seed, times_of(both))
    for _ in range(20):
        statement = statements.make()
        made, whole = both.rows(statement)
        assert made == whole, statement
