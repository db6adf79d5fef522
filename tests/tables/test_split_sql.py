"""Statements that are added up where messages are read: the answer of DuckDB alone, for all that is split, and what is not."""

import json
from collections.abc import Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import pyarrow as pa
import pytest

from pulsar_admin.store.codec.message import encode_message_entry
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.errors import BadSql
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata
from pulsar_admin.store.scan.entries import EntryScan
from pulsar_admin.store.tables import sql
from pulsar_admin.store.tables.catalog import MessageTable, StoreTables
from pulsar_admin.store.tables.split_sql import ROWS, AddUp, Split, connect, split_statement
from pulsar_admin.store.tables.sql import Database
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store

KEYS = (
    *(
        "topic",
        "key",
        "namespace",
        "batch_index, key",
        "upper(key)",
        "size % 3",
        "event_time",
        "topic, event_time is null",
    ),
    *(
        "case when size > 60 then 'large' when key is null then null else 'small' end",
        "date_trunc('minute', publish_time)",
    ),
)
"""What is grouped by."""
SUMS = (
    *("count(*)", "count(key)", "count(*) filter (where size > 50)", "sum(size)", "sum(sequence_id) + 1", "avg(size)"),
    *("sum(size * 1.25)", "avg(sequence_id - 9000000000)", "min(key)", "max(publish_time)", "min(event_time)"),
    *("max(size) - min(size)", "sum(size)::double / count(*)", "max(octet_length(payload))", "sum((key is null)::int)"),
    "sum(size) filter (where false)",
)
WHERE = ("", "where size > 55", "where key is null", "where topic like '%busy'", "where publish_time > now()")
SPLIT = [
    "select count(*) from messages",
    "select distinct topic, key from messages order by all",
    "select distinct key k from messages where size > 50 order by k desc nulls first limit 3",
    "select key, count(*) n, sum(size) from messages m where m.size > 50 group by m.key having n > 2 order by key",
    "select topic, count(*) as n from messages group by 1 having sum(size) > 100 order by count(*) desc, topic limit 2 offset 1",
    "select topic, entry_id, size from messages order by size desc, topic, entry_id limit 5",
    "select entry_id + 1, topic from messages where key is not null order by publish_time, ledger_id, 1 limit 4 offset 3",
    'select count(*), count(*), max(key) from "public/default/busy"',
    "select min(publish_time) < max(publish_time) from messages",
    "select key, max(properties['n']) from messages group by all order by all",
    "select count(*) from messages having count(*) > 1000000",
    "select topic, mean(size), count(*) from messages group by topic order by avg(size), 1",
]
WHOLE = [
    "select count(distinct key) from messages",
    "select median(size) from messages",
    "select sum(size::double), avg(size::float) from messages",
    "select avg(hash(key)) from messages",
    "select topic, count(*) from messages group by rollup (topic) order by all",
    "select upper(topic) as topic, count(*) from messages group by topic order by 1",
    "select key, row_number() over (order by key nulls last) from (select distinct key from messages) order by all",
    "select key, rank() over (order by count(*)) from messages group by key order by all",
    "select count(*) from messages where size > (select min(size) from messages)",
    "with m as (select * from messages) select count(*) from m",
    "select count(*) from messages a, messages b where a.key = b.key",
    "select string_agg(key, ',' order by key) from messages",
    "select min(key, 2) from messages",
    "select count(*) from messages union all select 1",
    "select topic, size from messages order by size, topic, entry_id limit 20000",
    "select count(*) from messages m(a) where a is null",
    "select key from messages order by ledger_id, entry_id offset 2",
    "select key collate nocase, count(*) from messages group by all order by all",
    "select alias(count(*)), typeof(min(size::hugeint)) from messages",
    "select max(size::hugeint) % 7 from messages",
    "select now(), count(*) from messages where length(topic) < 0 group by all",
    "select key _g0, topic _g1, count(*) from messages group by topic, key having _g0 = 'k1' order by all",
]
"""Statements that add something up, or look like it, and are read whole."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Messages with keys and without, times that are the same, and a topic that has none."""
    draw = Random(39)

    def entries(count: int) -> list[Made]:
        made = []
        for number in range(count):
            metadata = MessageMetadata(producer_name="p", sequence_id=draw.randrange(1 << 40))
            metadata.publish_time = CREATED_MS + draw.randrange(4) * 60_000
            if number % 3:
                metadata.partition_key = f"k{draw.randrange(5)}"
            if number % 4 == 0:
                metadata.event_time = CREATED_MS + draw.randrange(3)
            metadata.properties.add(key="n", value=str(number))
            raw = encode_message_entry(metadata, draw.randbytes(draw.randrange(40, 70)), broker=None)
            made.append(Made(metadata.publish_time, raw=raw))
        return made

    topics: dict[str, list[list[Made]]] = {
        "busy": [entries(60), entries(50)],
        "one": [entries(1)],
        "other": [entries(25)],
        "empty": [[]],
    }
    named = {f"public/default/{name}": MadeTopic(ledgers) for name, ledgers in topics.items()}
    return make_store(tmp_path_factory.mktemp("split") / "store", named)


class Both:
    """A database that adds up some entries at a time, and parts of parts (of ``tables``), and one that reads all rows.

    ``splits``: what statements were made of.
    """

    def __init__(self, whole: Database, parts: Database, tables: StoreTables) -> None:
        self.whole, self.parts, self.tables = whole, parts, tables
        self.splits: list[Split | None] = []
        self.added: list[bool] = []

    @property
    def is_split(self) -> bool:
        """Whether the last statement was split and its answer is of parts."""
        return [*map(bool, self.splits)] == [True] and self.added == [True]

    def answers(self, statement: str) -> tuple[Any, Any]:
        """Return names, types and rows of both."""
        (checked,) = self.whole.split(statement)
        self.splits.clear()
        self.added.clear()
        self.tables.told()
        found = [
            (answer.names, answer.types, [*answer]) for answer in (one.run(checked) for one in (self.whole, self.parts))
        ]
        return found[0], found[1]


@pytest.fixture(scope="module")
def both(path: Path) -> Iterator[Both]:
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        open_store(path) as store,
        open_reader(store) as alone,
        open_reader(store, LocalEngine(1)) as reader,
    ):
        monkeypatch.setattr("pulsar_admin.store.tables.catalog._ENGINE_BYTES", 0)
        monkeypatch.setattr("pulsar_admin.store.tables.catalog.EntryScan", partial(EntryScan, batch_bytes=2_000))
        monkeypatch.setattr("pulsar_admin.store.scan.reducing._TOGETHER", 3)
        whole, parts = StoreTables(lambda: alone, "c"), StoreTables(lambda: reader, "c")
        made = [Database(tables, now_ms=CREATED_MS + 90_000) for tables in (whole, parts)]
        found = Both(made[0], made[1], parts)

        def noted(*asked: Any) -> Split | None:
            found.splits.append(split_statement(*asked))
            return found.splits[-1]

        add_up = MessageTable.add_up

        def added(table: MessageTable, *asked: Any) -> bool:
            found.added.append(add_up(table, *asked))
            return found.added[-1]

        monkeypatch.setattr(sql, "split_statement", noted)
        monkeypatch.setattr(MessageTable, "add_up", added)
        yield found
        for one in made:
            one.close()


def test_groups(both: Both) -> None:
    """All sums by all keys, in an order that leaves nothing open."""
    for key, where in zip(KEYS, cycle(WHERE[:4])):
        whole, parts = both.answers(
            f"select {key}, {', '.join(SUMS)} from messages {where} group by {key} order by {key}"
        )
        assert parts == whole
        assert both.is_split, key
        assert whole[2]


def test_sums(both: Both) -> None:
    """Of all messages, of some, and of none."""
    for where in (*WHERE, "where false"):
        whole, parts = both.answers(f"select {', '.join(SUMS)} from messages {where}")
        assert parts == whole
        assert both.is_split is (where in WHERE), where  # of nothing, no table is asked


def test_statements_that_are_split(both: Both) -> None:
    for statement in SPLIT:
        whole, parts = both.answers(statement)
        assert parts == whole, statement
        assert both.is_split, statement
        assert not both.tables.brought


def test_statements_that_are_not(both: Both) -> None:
    for statement in WHOLE:
        both.tables.told()
        whole, parts = both.answers(statement)
        assert parts == whole, statement
        assert not any(both.splits), statement
        assert both.tables.brought, statement
    nothing = "select topic t, size from messages order by t desc, size, entry_id limit 0"
    assert both.answers(nothing) == ((("t", "size"), ("VARCHAR", "BIGINT"), []),) * 2
    assert not both.tables.brought


def test_an_alias_is_a_column_only_under_its_own_name() -> None:
    """A field of the value that is called as a column: an order by that name is of the field."""
    statement = f"SELECT value.key AS key FROM {ROWS} ORDER BY key LIMIT 1"
    with connect(CREATED_MS, "UTC", {}) as connection:
        connection.register(ROWS, pa.table({"key": ["a", "b"], "value": [{"key": 2}, {"key": 1}]}))
        (text,) = connection.execute("SELECT json_serialize_sql(?)", [statement]).fetchall()[0]
        described = connection.sql(statement)
        assert described.fetchall() == [(1,)]
        assert split_statement(connection, json.loads(text), described, CREATED_MS, "UTC") is None


def test_parts_that_do_not_fit_into_memory_are_not_made(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> NoReturn:
        raise MemoryError

    monkeypatch.setattr(AddUp, "merge", full)
    whole, parts = both.answers(SPLIT[1])
    assert parts == whole
    assert both.added == [False]


def test_what_is_left_open_is_one_of_the_answers(both: Both) -> None:
    """Rows without an order, and ties."""
    whole, parts = both.answers("select key, count(*) from messages group by key")
    assert sorted(parts[2], key=repr) == sorted(whole[2], key=repr)
    _, (_, _, rows) = both.answers("select publish_time, entry_id from messages order by 1 limit 3")
    assert len({time for time, _ in rows}) == 1
    assert len({*rows}) == 3


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("select sum(cast('x' || key as int)) from messages", "Could not convert string 'xk"),
        ("select sum(size)::tinyint from messages", r"value is out of range .* source column sum\(size\)$"),
    ],
)
def test_an_error_is_that_of_the_statement(both: Both, statement: str, message: str) -> None:
    """Of rows, and of what they add up to."""
    both.splits.clear()
    both.tables.told()
    for database in (both.whole, both.parts):
        with pytest.raises(BadSql, match=message):
            [*database.run(statement)]
    assert both.tables.seen["messages"].ledgers == 4  # those with messages, not each of them twice
    assert both.splits
    assert all(both.splits)
