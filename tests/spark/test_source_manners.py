"""``pulsar_entries`` as any data source of Spark is used: paths, schemas, tables of the catalogue, errors, what explain shows."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.shapes import PREFIX, logs, sent, store
from tests.worlds import world

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


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


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("ledger_id string", "column ledger_id is bigint, not string"),
        ("ledger long", "there is no column ledger; did you mean ledger_id?"),
        ("key string", "there is no column key"),
        ("ledger_id long not null", "column ledger_id may be null"),
    ],
)
def test_a_schema_that_is_wrong(read: Source, schema: str, said: str) -> None:
    message = _message(read.load(str(logs()), schema=schema).collect)
    assert said in message
    assert "Traceback" not in message


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxFilesPerTrigger": "3"}, "option maxFilesPerTrigger is of streams; l"),
        ({"maxBytesPerTrigger": "1m"}, "option maxBytesPerTrigger is of streams"),
        ({"failOnDataLoss": "false"}, "option failOnDataLoss is of streams; leave"),
        ({"path": ""}, "pulsar_entries: no entry logs are named; write .load("),
        (
            {"startTime": "2026-11-22", "endTime": "2026-11-21"},
            "the window of time ends before it begins: 2026-11-22T00:00:00.000Z to 2026-11-21T00:00:00.000Z; swap start and end",
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
        (lambda: read.load(str(logs()), topik="a"), "pulsar_entries: there is no option topik; did you mean topics?"),
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


def test_each_path_that_means_no_file_is_named(read: Source, tmp_path: Path) -> None:
    """What is there is not the whole answer."""
    for missing in (f"{tmp_path}/9.log", f"{tmp_path}/*.txn"):
        assert f"pulsar_entries: no entry log at {missing}; name" in _message(read.load([str(logs()), missing]).collect)


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
    expected = read.load(str(tmp_path)).count()
    (tmp_path / "lastMark").write_bytes(b"\1" * 16)
    assert read.load(f"{tmp_path}/*").count() == expected > 0
    for name, what, magic in (("7.log", "an entry log", "424b4c4f"), ("8.txn", "a journal", "424b4c47")):
        other = tmp_path / name
        other.write_bytes(b"PK\3\4" * 5000)
        message = _message(read.load(f"{tmp_path}/*").collect)
        assert f"pulsar_entries: {other} is not {what}: it starts with 504b0304, not {magic}" in message
        assert "; exclude the file, or continue without it: option ignoreCorruptFiles=true" in message
        assert "datasource.py" not in message
        assert read.load(f"{tmp_path}/*", ignoreCorruptFiles="true").count() == expected
        other.unlink()
    log = tmp_path / "0.log"
    log.write_bytes(b"\xff" * 1024 + log.read_bytes()[1024:])
    assert read.load(str(log)).count() == expected


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
