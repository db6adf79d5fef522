"""SQL over a store: what a condition rules out is not read, and no answer changes by that."""

from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import NoReturn

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pulsar_admin
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.errors import BadSql, InvalidValue, Refused, SourceChanged
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.names import LONG_MAX, parse_topic
from pulsar_admin.store.tables.catalog import StoreTables
from pulsar_admin.store.tables.sql import Database, MadeTable, Pruner
from tests.conftest import Cli
from tests.stores import copied, imported, put_node
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.tables.statements import OF_ENTRIES, Statements

_TABLES = (
    "messages",
    "entries",
    "ledgers",
    "cursors",
    "topics",
    '"public/default/*"',
    '"public/default/avro"',
    '"acme/iot/*"',
)


class Both:
    """The tables of a store, and the same read whole into DuckDB's own."""

    def __init__(self, tables: StoreTables) -> None:
        self.tables = tables
        self.made = Database(tables, now_ms=0)
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
        found = Both(StoreTables(lambda: reader, "standalone"))
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


def test_what_is_not_read_changes_no_answer(both: Both) -> None:
    statements = Statements(0, times_of(both))
    for _ in range(20):
        statement = statements.make()
        made, whole = both.rows(statement)
        assert made == whole, statement


def test_entries_that_are_not_read_change_no_answer(both: Both) -> None:
    statements = Statements(7, times_of(both), OF_ENTRIES)
    for columns in ("topic, ledger_id, entry_id, copies", "producer, publish_time, digest_ok", "count(*)") * 4:
        statement = f"select {columns} from entries where {statements.condition('')}"
        made, whole = both.rows(statement)
        assert made == whole, statement


def test_nothing_but_rows_is_written(both: Both) -> None:
    """DuckDB's bar, which its module for Python turns on, would go to stdout."""
    setting = "SELECT value FROM duckdb_settings() WHERE name = 'enable_progress_bar'"
    assert both.made._connection.execute(setting).fetchall() == [("false",)]


def test_rows_in_python(demo_store: Path) -> None:
    with pulsar_admin.open_store(demo_store) as store:
        found = store.sql(
            'select value.item, publish_time, payload from "public/default/avro" where entry_id = 0 order by batch_index'
        )
        assert found.schema.names == ["item", "publish_time", "payload"]
        rows = [*found.rows()]
        assert [row["item"] for row in rows[:3]] == ["item-0", "item-1", "item-2"]
        assert found.to_arrow().num_rows == len(rows)
        for row in store.sql("select distinct topic, tenant, namespace from messages").rows():
            assert (row["tenant"], row["namespace"]) == (
                row["namespace"].split("/")[0],
                row["topic"].rpartition("/")[0][13:],
            )
        assert store.sql("select 1 as a limit 0").to_arrow().to_pylist() == []
        with pytest.raises(BadSql):
            store.sql("selec 1")
        with pytest.raises(BadSql):
            store.sql("select cast(key as int) from messages where key <> ''").to_arrow()
        with pytest.raises(Refused):
            store.sql("copy messages to 'x'")
        with pytest.raises(InvalidValue):
            store.sql("select 1; select 2")


def test_a_file_that_cannot_be_read_is_told_as_ever(tmp_path: Path) -> None:
    """What a scan raises comes out as it is, not as DuckDB's words about a stream."""
    path = copied("small", "clean", tmp_path)
    with open_store(path) as store, open_reader(store) as reader:
        tables = StoreTables(lambda: reader, None)
        database = Database(tables, now_ms=0)

        def broken(*_: object) -> NoReturn:
            raise SourceChanged("the file is gone")

        reader.files.read = broken  # type: ignore[method-assign]
        with pytest.raises(SourceChanged, match="the file is gone"):
            [*database.run("select count(key) from messages")]
        with pytest.raises(SourceChanged, match="the file is gone"):
            [*database.batches("select key from messages")]
        database.close()


class Spelled:
    """Two topics whose names are one to DuckDB."""

    names = ("messages",)
    errors: list[BaseException] = []  # noqa: RUF012 - nobody adds any

    def find(self, name: str) -> MadeTable:
        schema = pa.schema([("name", pa.string())])
        return MadeTable(schema, lambda columns, pruner: [pa.record_batch([[name]], schema)], Lock(), self.errors)

    def topics_like(self, begin: str, most: int) -> list[str]:
        return []


def test_a_filter_chooses_of_many_values() -> None:
    """Sixty-four are looked at together: every value that passes is chosen, at the ends of those and between."""
    values, tenant = [f"t{number:03}" for number in range(150)], pc.field("tenant")
    schema = pa.schema([("tenant", pa.string()), ("entries", pa.int64())])
    cases: list[tuple[pc.Expression | None, list[str]]] = [(None, values), (pc.field("entries") > 5, values)]
    cases += [(tenant == value, [value]) for value in values]
    cases += [(tenant >= value, values[number:]) for number, value in enumerate(values) if number % 64 in (0, 1, 63)]
    for condition, expected in cases:
        assert [*Pruner(schema, condition).chosen("tenant", values)] == expected


def test_names_in_another_case() -> None:
    """DuckDB takes names for the same that Pulsar does not."""
    database = Database(Spelled(), now_ms=0)
    for name, shown in (("MESSAGES", "messages"), ("a/b/x", "a/b/x"), ("a/b/X", "a/b/X"), ("a/b/x", "a/b/x")):
        assert [*database.run(f'select name from "{name}"')] == [(shown,)]
    with pytest.raises(BadSql, match="case"):
        database.run('select * from "a/b/x" union all select * from "a/b/X"')
    database.close()


ODD = ("select", 'o\'reilly "and" sons; drop table x --', "größe-☃", "messages", "100%", "a.b.c", "Robert');--")


def test_topics_of_odd_names_are_tables(tmp_path: Path) -> None:
    """Words of SQL, quotes and other scripts: in double quotes each is a table, and one name never means another."""
    made = {f"public/default/{name}": MadeTopic([[Made(CREATED_MS)] * (number + 1)]) for number, name in enumerate(ODD)}
    with pulsar_admin.open_store(make_store(tmp_path / "store", made)) as store:
        for number, name in enumerate(ODD):
            quoted = name.replace('"', '""')
            text = f"persistent://public/default/{name}".replace("'", "''")
            asked = (
                f'"public/default/{quoted}"',
                f'"persistent://public/default/{quoted}"',
                f"messages where topic = '{text}'",
            )
            found = store.sql("select " + ", ".join(f"(select count(*) from {one})" for one in asked)).to_arrow()
            assert [column.to_pylist() for column in found] == [[number + 1]] * 3, name
        assert store.sql("select distinct topic from messages").to_arrow().num_rows == len(ODD)
        assert store.sql('select 1 as "sel""ect", 2 as "größe ☃"').schema.names == ['sel"ect', "größe ☃"]
        with pytest.raises(BadSql):
            store.sql("select count(*) from public/default/select")


def test_sums_beyond_64_bits_are_null_and_told(tmp_path: Path, cli: Cli) -> None:
    path = make_store(tmp_path / "s", {"public/default/a": MadeTopic([[Made(CREATED_MS)]])})
    ledgers = tuple(LedgerInfo(20 + number, LONG_MAX, LONG_MAX, CREATED_MS) for number in range(2))
    put_node(path, parse_topic("public/default/b").path, encode_managed_ledger(ManagedLedger(ledgers)))
    answer = cli("--store", path, "sql", "select ledgers, entries, size from topics order by topic", "-o", "json")
    answer.ends(1, "public/default/b: its ledgers have 18446744073709551614 entries")
    assert answer.json[1] == {"ledgers": 2, "entries": None, "size": None}
