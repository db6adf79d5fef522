"""``pulsar_entries`` as any data source of Spark is used: paths, schemas, tables of the catalogue, errors, what explain shows."""

from __future__ import annotations

import json
import operator
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pulsar_admin as pa
from pulsar_admin.store.codec.logscan import Record, iter_records
from pulsar_admin.store.scan.datasource import register
from tests.connector import as_here, readings, written
from tests.shapes import PREFIX, logs, sent, store
from tests.spark.servers import bare_python
from tests.stores import imported
from tests.worlds import oracle, world

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Source:
    """``read.load(…)`` reads ``pulsar_entries`` with no option but those that are named."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def load(self, path: str | list[str] | None = None, *, schema: str | None = None, **options: str) -> DataFrame:
        return self._spark.read.load(path, "pulsar_entries", schema, **options)


@pytest.fixture
def read(spark: SparkSession) -> Source:
    from pulsar_admin.store.scan.datasource import register

    register(spark)
    return Source(spark)


@pytest.fixture(scope="module")
def bookies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two bookies' directories, with the same log each."""
    folder = tmp_path_factory.mktemp("bookies")
    for name in ("bookie-1", "bookie,2"):
        (folder / name / "current").mkdir(parents=True)
        shutil.copy(logs() / "0.log", folder / name / "current")
    return folder


def _message(run: Callable[[], Any]) -> str:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as raised:
        run()
    return str(raised.value)


def test_it_is_found_without_being_registered(spark: SparkSession, bookies: Path) -> None:
    log, other = bookies / "bookie-1" / "current" / "0.log", spark.newSession()
    other.sql(f'CREATE TEMPORARY VIEW found USING pulsar_entries OPTIONS (path "{log}")')
    places = [item.offset for item in iter_records(log.read_bytes(), "") if isinstance(item, Record)]
    assert [row[0] for row in other.sql("SELECT offset FROM found").collect()] == places


def test_a_list_of_paths(read: Source, bookies: Path) -> None:
    one, two = str(bookies / "bookie-1" / "current"), str(bookies / "bookie,2" / "current")
    frame = read.load([one, two, one])
    assert frame.count() == 2 * read.load(one).count() > 200
    assert {row[0] for row in frame.select("path").distinct().collect()} == {f"{one}/0.log", f"{two}/0.log"}


def test_a_schema_of_ones_own(read: Source) -> None:
    names = ["size", "ledger_id", "publish_time"]
    some = read.load(str(logs()), schema="size int, ledger_id long, publish_time timestamp")
    assert some.columns == names
    assert sorted(map(tuple, some.collect())) == sorted(map(tuple, read.load(str(logs())).select(*names).collect()))


def test_a_schema_may_name_what_is_read_on_demand(read: Source) -> None:
    options = {"level": "messages", "store": str(store()), "topics": "acme/shapes/int8"}
    rows = read.load(str(logs()), schema="payload binary, value string", **options).collect()
    values = sorted(json.loads(row["value"]) for row in rows if row["value"] is not None)
    assert values == sorted(row["value"] for row in sent("int8") if row.get("value") is not None)


def test_a_schema_that_is_wrong(read: Source) -> None:
    """One of them as Spark tells it."""
    from pyspark.sql.types import StructType

    from pulsar_admin.store.scan.datasource import PulsarEntries

    message = _message(read.load(str(logs()), schema="ledger_id string").collect)
    assert "column ledger_id is bigint, not string" in message
    assert "Traceback" not in message
    for schema, said in (
        ("ledger long", "there is no column ledger; did you mean ledger_id?"),
        ("key string", "there is no column key"),
        ("ledger_id long not null", "column ledger_id may be null"),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            PulsarEntries({"path": str(logs())}).reader(StructType.fromDDL(schema))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxFilesPerTrigger": "3"}, "option maxFilesPerTrigger works only with streams; l"),
        ({"maxBytesPerTrigger": "1m"}, "option maxBytesPerTrigger works only with streams"),
        ({"failOnDataLoss": "false"}, "option failOnDataLoss works only with streams; leave"),
        ({"path": ""}, "pulsar_entries: no entry logs are named; write .load("),
        (
            {"startTime": "2026-11-22", "endTime": "2026-11-21"},
            "the window of time ends before it begins: 2026-11-22T00:00:00.000Z to 2026-11-21T00:00:00.000Z; swap the two times",
        ),
        ({"columns": "size,size"}, "column size is named twice; name it once"),
        ({"maxBytesPerTrigger": "0"}, "option maxBytesPerTrigger: '0' is no size from 1 on"),
        (
            {"level": "messages", "columns": "value", "value": "none"},
            "option value is none, and columns name values; set value to json or typed",
        ),
        ({"payload": "true"}, "payloads need level messages; set option level to messages"),
    ],
    ids=str,
)
def test_wrong_options_are_one_line(options: dict[str, str], said: str) -> None:
    from pulsar_admin.store.scan.datasource import PulsarEntries

    def plan() -> None:
        source = PulsarEntries({"path": str(logs()), **options})
        source.reader(source.schema())

    with pytest.raises(ValueError, match=re.escape(said)) as raised:
        plan()
    assert len(str(raised.value).splitlines()) == 1


def test_errors_of_spark_are_one_line(read: Source, tmp_path: Path) -> None:
    """What is wrong with an option, with a path, and with a file that goes away before a task reads it."""
    for load, said in (
        (
            lambda: read.load(str(logs()), topik="a"),
            "pulsar_entries: there is no option topik; did you mean topics?",
        ),
        (lambda: read.load(str(tmp_path)).collect(), f"pulsar_entries: no entry log at {tmp_path}; name files"),
    ):
        message = _message(load)
        assert said in message
        assert "Traceback" not in message
        assert len(message.strip().splitlines()) <= 2  # Spark's SQLSTATE is the other one
    shutil.copy(logs() / "0.log", tmp_path)
    gone = read.load(str(tmp_path))
    planned = gone.rdd  # plans, reads nothing
    (tmp_path / "0.log").unlink()
    message = _message(planned.count)
    assert f"pulsar_entries: {tmp_path}/0.log: No such file or directory (on " in message
    assert "; every machine that reads has to see it: name a path that they share, or a URL" in message
    assert "datasource.py" not in message


def test_each_path_that_means_no_file_is_named(tmp_path: Path) -> None:
    """What is there is not the whole answer."""
    for missing in (f"{tmp_path}/9.log", f"{tmp_path}/*.txn"):
        with pytest.raises(ValueError, match=re.escape(f"pulsar_entries: no entry log at {missing}; name")):
            _read(_source_reader({"paths": json.dumps([str(logs()), missing])}))


@pytest.mark.parametrize("path", ["current/*.log", "./current/0.log", "{current,other}"])
@pytest.mark.parametrize("streams", [False, True])
def test_a_relative_path_is_read_where_it_was_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, *, streams: bool
) -> None:
    """Executors have working directories of their own."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from pulsar_admin.store.scan.datasource import PulsarEntries

    for name in ("driver/current", "driver/other", "executor"):
        (tmp_path / name).mkdir(parents=True)
    log = Path(shutil.copy(logs() / "0.log", tmp_path / "driver" / "current"))
    shutil.copy(log, tmp_path / "driver" / "other" / "1.log")
    monkeypatch.chdir(tmp_path / "driver")
    source = PulsarEntries({"path": path, "columns": "path"})
    if streams:
        stream = source.streamReader(source.schema())
        first = stream.initialOffset()
        reader, parts = stream, stream.partitions(first, stream.latestOffset(first, ReadAllAvailable()))
    else:
        reader = source.reader(source.schema())
        parts = reader.partitions()
    monkeypatch.chdir(tmp_path / "executor")
    found = {row["path"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()}
    assert {Path(one) for one in found} >= {log}
    assert len(found) == 1 + path.startswith("{")


def test_a_file_that_is_no_log_is_named(read: Source, tmp_path: Path) -> None:
    """Whatever its name is; a log whose header alone is lost is read, and a bookie's other files are not taken for logs."""
    shutil.copy(logs() / "0.log", tmp_path)

    def rows(path: str, **options: str) -> list[dict[str, Any]]:
        return _read(_source_reader({"path": path, "columns": "ledger_id,entry_id", **options}))

    expected = rows(str(tmp_path))
    (tmp_path / "lastMark").write_bytes(b"\1" * 16)
    assert rows(f"{tmp_path}/*") == expected != []
    for name, what, magic in (("7.log", "an entry log", "424b4c4f"), ("8.txn", "a journal", "424b4c47")):
        other = tmp_path / name
        other.write_bytes(b"PK\3\4" * 5000)
        said = f"pulsar_entries: {other} is not {what}: it starts with 504b0304, not {magic}"
        with pytest.raises(ValueError, match=re.escape(said)):
            rows(f"{tmp_path}/*")
        assert rows(f"{tmp_path}/*", ignoreCorruptFiles="true") == expected
        other.unlink()
    other.write_bytes(b"PK\3\4" * 5000)
    message = _message(read.load(f"{tmp_path}/*").collect)
    assert said in message
    assert "; exclude the file, or continue without it: option ignoreCorruptFiles=true" in message
    assert "datasource.py" not in message
    other.unlink()
    log = tmp_path / "0.log"
    log.write_bytes(b"\xff" * 1024 + log.read_bytes()[1024:])
    assert rows(str(log)) == expected


def test_paths_are_those_of_sparks_own_sources(spark: SparkSession, read: Source, tmp_path: Path) -> None:
    """Read beside ``binaryFile``, which lists with Hadoop's globs."""
    for name in ("a b", "c%20d", "e"):
        (tmp_path / name).mkdir()
        for log in ("0.log", "1.log", "2.log"):
            shutil.copy(logs() / "0.log", tmp_path / name / log)
    for pattern in ("*/[^0].log", "{c%20d/{0,2}.log,e/1.log}", "?%20d/[0-1].log"):
        for scheme in ("file:", "file://") if pattern[0] == "{" else ("",):
            theirs = spark.read.format("binaryFile").load(f"{scheme}{tmp_path}/{pattern}").select("path").collect()
            expected = {row[0].removeprefix("file:").replace("//", "/") for row in theirs}
            ours = read.load(f"{scheme}{tmp_path}/{pattern}", columns="path").collect()
            assert {row[0] for row in ours} == expected != set()


def test_damage_is_a_line_of_the_tasks_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from pulsar_admin.store.scan.datasource import PulsarEntries

    raw = bytearray((logs() / "0.log").read_bytes())
    raw[1024:1028] = b"\xff\xff\xff\xff"  # the size of the first record
    (tmp_path / "0.log").write_bytes(raw)
    source = PulsarEntries({"path": str(tmp_path)})
    reader = source.reader(source.schema())
    assert sum(batch.num_rows for piece in reader.partitions() for batch in reader.read(piece)) > 100  # type: ignore[union-attr]
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [f"{tmp_path}/0.log @ 0x400"]


@pytest.fixture
def tables(spark: SparkSession) -> Iterator[None]:
    yield
    for kind, name in (("VIEW", "v"), ("TABLE", "t"), ("TABLE", "u")):
        spark.sql(f"DROP {kind} IF EXISTS {name}")


@pytest.mark.usefixtures("tables")
def test_a_table_of_the_catalogue_is_read_again(spark: SparkSession, read: Source, bookies: Path) -> None:
    path = bookies / "bookie-1" / "current"
    options = f"level 'messages', path '{path}', store '{store()}', topics 'acme/shapes/int8'"
    expected = read.load(str(path), level="messages", store=str(store()), topics="acme/shapes/int8").count()
    assert expected > 0
    spark.sql(f"CREATE TABLE t USING pulsar_entries OPTIONS ({options})")
    found = spark.sql("SELECT topic, count(*) FROM t GROUP BY topic").collect()
    assert [tuple(row) for row in found] == [(f"{PREFIX}int8", expected)]
    assert spark.table("t").where("topic = 'nothing'").count() == 0
    assert spark.sql("SELECT * FROM t WITH (topics = 'acme/shapes/bool')").count() == len(
        [row for row in sent("bool") if row["topic"] == f"{PREFIX}bool"]
    )
    spark.sql(f"CREATE TEMPORARY VIEW v USING pulsar_entries OPTIONS ({options})")
    assert spark.table("v").count() == expected
    paths = json.dumps([str(path), str(bookies / "bookie,2" / "current")])
    spark.sql(f"CREATE TABLE u USING pulsar_entries OPTIONS (paths '{paths}')")
    assert spark.table("u").count() == 2 * read.load(str(path)).count()
    for name in "tu":
        spark.sql(f"DROP TABLE {name}")
    assert (path / "0.log").stat().st_size == (logs() / "0.log").stat().st_size


@pytest.mark.usefixtures("tables")
def test_writing_is_refused(spark: SparkSession, read: Source) -> None:
    spark.sql(f"CREATE TABLE t USING pulsar_entries OPTIONS (path '{logs()}')")
    message = _message(lambda: spark.sql("INSERT INTO t SELECT * FROM t"))
    assert "pulsar_entries: it only reads; write to a table or files of another format" in message
    assert "Traceback" not in message


@pytest.mark.usefixtures("tables")
def test_a_table_with_columns_of_its_own_says_how_it_is_read(spark: SparkSession, read: Source) -> None:
    spark.sql(f"CREATE TABLE t (size INT) USING pulsar_entries OPTIONS (path '{logs()}')")
    assert "SELECT … FROM t WITH (path = '…')" in _message(spark.table("t").collect)
    assert spark.sql(f"SELECT * FROM t WITH (path = '{logs()}')").count() == read.load(str(logs())).count()


def test_explain_shows_what_the_files_are_asked_for(spark: SparkSession, read: Source) -> None:
    """Filters that Spark does not apply again, and the columns that are read: those that a schema or ``columns`` names."""
    frame = read.load(str(logs()), schema="ledger_id long, publish_time timestamp, size int")
    question = "SELECT size FROM {frame} WHERE ledger_id = 3 AND publish_time >= timestamp '2026-11-01' AND size > 5"
    plan = str(spark.sql(f"EXPLAIN FORMATTED {question}", frame=frame).collect()[0][0])
    assert "BatchScan pulsar_entries" in plan
    pushed = next(line for line in plan.splitlines() if line.startswith("PushedFilters"))
    assert "EqualTo(ledger_id,3)" in pushed
    assert "GreaterThanOrEqual(publish_time," in pushed
    assert "size" not in pushed
    assert "ReadSchema: struct<ledger_id:bigint,publish_time:timestamp,size:int>" in plan


def test_a_ledger_that_is_in_no_file_plans_no_task(read: Source) -> None:
    sealed = str(world("small") / "clean" / "bookkeeper" / "current" / "0.log")
    frame = read.load(sealed, sliceBytes="1m")
    assert frame.rdd.getNumPartitions() == 7  # of 6.6 MiB
    nothing = frame.where("ledger_id = 999999")
    assert nothing.rdd.getNumPartitions() == 1  # Spark has one where there is none; it reads nothing
    assert nothing.count() == 0


# -- with a store ---------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("level", "column"),
    [
        ("entries", "broker_time"),
        ("messages", "publish_time"),
        pytest.param("entries", "publish_time", marks=pytest.mark.deep),
        pytest.param("messages", "broker_time", marks=pytest.mark.deep),
    ],
)
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


# -- jobs written for the Spark connector ---------------------------------------------------------------------------

TOPIC = "public/default/avro"


@pytest.fixture(scope="module")
def ported(spark: SparkSession) -> Iterator[SparkSession]:
    """A session whose settings name the store, so that a job changes the format's name alone."""
    spark.conf.set("spark.pulsar_entries.store", str(imported("small", "clean")))
    register(spark)
    yield spark
    spark.conf.unset("spark.pulsar_entries.store")
    register(spark)


def job(session: SparkSession, name: str) -> DataFrame:
    """A job as its author wrote it, but for NAME."""
    return (
        session.read.format(name)
        .option("service.url", "pulsar://broker:6650")
        .option("admin.url", "http://broker:8080")
        .option("predefinedSubscription", "nightly")
        .option("topic", TOPIC)
        .load()
    )


def test_a_job_with_the_formats_name_changed(ported: SparkSession) -> None:
    (one,) = [one for one in readings("small") if one["options"].get("topic") == TOPIC]
    frame = job(ported, "pulsar_entries")
    assert written(frame.toArrow().to_batches()) == as_here(one)
    assert frame.where("qty > 5 and __publishTime > '2026-11-21'").groupBy("item").count().count() > 0


def test_a_schema_of_some_of_the_columns(ported: SparkSession) -> None:
    read = ported.read.format("pulsar_entries").schema("__messageId BINARY, id BIGINT").option("topic", TOPIC)
    assert [row.id for row in read.load().collect()] == list(range(20))


def test_what_is_wrong_is_one_line(ported: SparkSession) -> None:
    read = ported.read.format("pulsar_entries").option("topic", TOPIC).option("startingOffsets", "latest")
    with pytest.raises(Exception, match=r"pulsar_entries: option startingOffsets: 'latest' can't be latest") as raised:
        read.load()
    assert "Traceback" not in str(raised.value)


# -- a store as data frames -----------------------------------------------------------------------------------------


def test_a_store_as_data_frames(spark: SparkSession) -> None:
    name = "public/default/batched"
    with pa.open_store(imported("small", "clean")) as store:
        tables = store.spark(spark)
        columns = ["ledger_id", "entry_id", "batch_index", "key"]
        rows = tables.messages(name, columns=columns).orderBy(*columns[:3]).collect()
        assert [[*row] for row in rows] == store.topic(name).messages(columns=columns).to_pandas().values.tolist()
        entries = tables.entries(name, columns=["messages"], since="2026-11-21T00:00:00Z").collect()
    recorded = oracle("small")["topics"][name]["messages"]
    assert [row[:3] for row in recorded] == [[*row][:3] for row in rows]
    assert sum(row.messages for row in entries) == len(recorded)


def test_a_session_on_this_machine_whose_python_is_another(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook's kernel: ``python3`` of PATH, which Spark starts, is not the Python that runs it."""
    monkeypatch.setattr(spark.sparkContext, "pythonExec", bare_python(tmp_path / "bare"))
    with pytest.raises(pa.StoreError, match=r"no numpy, pyarrow, .* in .*/bare/bin/python") as raised:
        pa.register(spark)
    assert f"set PYSPARK_PYTHON before it starts (here: {sys.executable})" in raised.value.hint


def test_a_store_as_data_frames_needs_no_registering(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors get what ``pa.register`` sends them, and a session that was stopped is told."""
    monkeypatch.setattr(spark.sparkContext, "_jsc", None)
    with pa.open_store(imported("small", "clean")) as store, pytest.raises(pa.Refused, match="session is stopped"):
        store.spark(spark)
