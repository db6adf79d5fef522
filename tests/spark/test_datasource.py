"""``pulsar_entries`` with a store: topics by name, decoded values, filters pushed down, times in any session time zone."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.shapes import PREFIX, logs, sent, store
from tests.worlds import world

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def load(spark: SparkSession) -> Iterator[Callable[..., DataFrame]]:
    """Reads with options; the session's time zone is New York's."""
    from pulsar_admin.store.scan.datasource import register

    register(spark)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    everything = spark.read.format("pulsar_entries").option("path", str(logs() / "*.log"))
    yield lambda **options: everything.options(**options).load()
    spark.conf.set("spark.sql.session.timeZone", zone or "UTC")


@pytest.mark.parametrize(
    ("topics", "names"),
    [(f"{PREFIX}int8, acme/shapes/bool", ["bool", "int8"]), ("acme/shapes/orders-*", ["orders-avro", "orders-json"])],
)
def test_topics_by_name(load: Callable[..., DataFrame], topics: str, names: list[str]) -> None:
    rows = load(store=str(store()), topics=topics).groupBy("topic").sum("messages").collect()
    assert {row[0]: row[1] for row in rows} == {PREFIX + name: len(sent(name)) for name in names}


def test_values_of_a_namespace(load: Callable[..., DataFrame]) -> None:
    frame = load(store=str(store()), topics="acme/shapes", level="messages", value="json")
    assert frame.columns[-2:] == ["value", "value_error"]
    expected = {(row["topic"], *row["id"]): row.get("value") for row in sent()}
    rows = frame.select("topic", "ledger_id", "entry_id", "batch_index", "value").collect()
    assert {tuple(row[:4]): None if row[4] is None else json.loads(row[4]) for row in rows} == expected
    assert frame.where("value_error is not null").count() == sum(
        row.get("why") in ("broken", "protobuf") for row in sent()
    )


def test_a_typed_value_is_a_struct(load: Callable[..., DataFrame]) -> None:
    frame = load(store=str(store()), topics="acme/shapes/everything", level="messages", columns="value", value="typed")
    kind = frame.schema["value"].dataType.simpleString()
    assert "at:timestamp,big:bigint,colour:string,counts:map<string,bigint>,day:date" in kind
    assert "price:decimal(9,2)" in kind
    row = frame.selectExpr("sum(value.price)", "max(unix_micros(value.at))", "max(size(value.lines))").first()
    rows = [row["value"] for row in sent("everything")]
    assert str(row[0]) == f"{sum(float(value['price']) for value in rows):.2f}"
    assert row[1] == max(datetime.fromisoformat(value["at"]).timestamp() for value in rows) * 1e6
    assert row[2] == max(len(value["lines"]) for value in rows)


def test_times_do_not_depend_on_the_session_time_zone(load: Callable[..., DataFrame]) -> None:
    frame = load(store=str(store()), topics="acme/shapes/orders-avro", level="messages")
    events = {row[0] for row in frame.selectExpr("unix_millis(event_time)").collect()}
    assert events == {1_795_000_000_000 + row["i"] for row in sent("orders-avro")}
    shown = frame.selectExpr("date_format(min(event_time), 'yyyy-MM-dd HH:mm')").first()
    assert shown[0] == "2026-11-18 06:06"  # 1795000000 in New York


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"topics": "acme/shapes/int8"}, "need a store"),
        ({"level": "messages", "value": "json"}, "a store"),
        ({"value": "json", "store": "s"}, "level messages"),
        ({"level": "messages", "value": "xml"}, "none, json, typed"),
    ],
)
def test_wrong_options_are_explained(options: dict[str, str], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        _reader(**{"store": "", **options})


# -- filters ----------------------------------------------------------------------------------------------------------


def _reader(**options: str) -> Any:  # Any: the reader with pushFilters
    return _source_reader({"path": str(logs()), "store": str(store()), **options})


def _source_reader(options: dict[str, str]) -> Any:  # Any: the reader with pushFilters
    from pulsar_admin.store.scan.datasource import FilteredEntries

    source = FilteredEntries(options)
    return source.reader(source.schema())


def _read(reader: Any) -> list[dict[str, Any]]:
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_pushed_filters_leave_out_what_they_exclude_and_nothing_else() -> None:
    """Those that Spark does not get back are exact; it gets back what this does not understand."""
    from pyspark.sql.datasource import EqualNullSafe, EqualTo, In, IsNotNull, Not, StringContains

    everything = _read(_reader())
    ledgers = sorted({row["ledger_id"] for row in everything})
    one, two = ledgers[0], ledgers[1]
    name = next(row["topic"] for row in everything if row["ledger_id"] == two)
    cases: list[tuple[Any, Any, Callable[[dict[str, Any]], bool]]] = [
        ([EqualTo(("ledger_id",), one), IsNotNull(("ledger_id",))], [], lambda row: row["ledger_id"] == one),
        ([EqualNullSafe(("ledger_id",), one)], [], lambda row: row["ledger_id"] == one),
        (
            [In(("ledger_id",), (one, two, None)), EqualTo(("topic",), name), IsNotNull(("topic",))],
            [],
            lambda row: row["topic"] == name and row["ledger_id"] == two,
        ),
        ([EqualTo(("ledger_id",), one), EqualTo(("ledger_id",), two)], [], lambda row: False),
        ([EqualTo(("topic",), "nothing")], [], lambda row: False),
    ]
    not_ours = [
        Not(EqualTo(("ledger_id",), one)),
        StringContains(("topic",), "x"),
        IsNotNull(("topic",)),
        EqualTo(("ledger_id", "x"), 1),
        EqualNullSafe(("topic",), None),
    ]
    for filters, left, holds in [*cases, (not_ours, not_ours, lambda row: True)]:
        reader = _reader()
        assert list(reader.pushFilters(filters)) == left
        assert _read(reader) == [row for row in everything if holds(row)], filters


@pytest.mark.parametrize("level", ["entries", "messages"])
@pytest.mark.parametrize("column", ["publish_time", "broker_time"])
def test_pushed_times_are_exact(level: str, column: str) -> None:
    """Beside, at and behind a millisecond, of every comparison; rows without such a time are none."""
    from pyspark.sql import datasource as spark_filters

    path = str(world("small") / "clean" / "bookkeeper" / "current" / "*.log")
    options = {"path": path, "level": level, "columns": f"ledger_id,entry_id,{column}"}
    everything = _read(_source_reader(options))
    times = sorted(row[column] for row in everything if row[column] is not None)
    assert len(times) > 1000
    middle = times[len(times) // 2]
    for kind, holds in (
        ("GreaterThan", operator.gt),
        ("GreaterThanOrEqual", operator.ge),
        ("LessThan", operator.lt),
        ("LessThanOrEqual", operator.le),
        ("EqualTo", operator.eq),
    ):
        for at in (middle, middle + timedelta(microseconds=1), middle - timedelta(microseconds=1)):
            reader = _source_reader(options)
            assert list(reader.pushFilters([getattr(spark_filters, kind)((column,), at)])) == []
            expected = [row for row in everything if row[column] is not None and holds(row[column], at)]
            assert _read(reader) == expected, (kind, at)


def test_spark_pushes_its_filters(spark: SparkSession) -> None:
    from pulsar_admin.store.scan.datasource import PUSHDOWN, FilteredEntries, register

    filters = f"publish_time >= timestamp '{datetime.now(UTC) + timedelta(days=9999):%Y-%m-%d}' and ledger_id = 3"

    class Telling(FilteredEntries):
        """Fails with what it was told to leave out."""

        @classmethod
        def name(cls) -> str:
            return "telling"

        def reader(self, schema: Any) -> Any:
            reader: Any = super().reader(schema)
            push = reader.pushFilters

            def tell(conditions: Any) -> Any:
                push(conditions)
                options = reader._operation.options
                raise ValueError(f"left: {options.ledgers} {sorted(options.between)}")

            reader.pushFilters = tell
            return reader

    frame = spark.read.option("path", str(logs()))
    before = spark.conf.get(PUSHDOWN)
    try:
        spark.conf.set(PUSHDOWN, "true")
        register(spark)
        assert frame.format("pulsar_entries").load().where("ledger_id = 3").count() > 0
        assert frame.format("pulsar_entries").load().where(filters).count() == 0
        spark.dataSource.register(Telling)
        with pytest.raises(Exception, match=r"left: \(3,\) \['publish_ms'\]"):
            frame.format("telling").load().where(filters).count()
        spark.conf.set(PUSHDOWN, "false")
        register(spark)
        assert frame.format("pulsar_entries").load().where("ledger_id = 3").count() > 0
    finally:
        spark.conf.set(PUSHDOWN, before or "false")
        register(spark)
