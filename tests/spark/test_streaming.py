"""``readStream.format("pulsar_entries")``: what a growing disk holds comes once, in batches, also behind restarts; errors are one line."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.growing import Bookie, ids
from tests.spark.servers import s3_bucket
from tests.stores import imported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamReader


def _stream(spark: SparkSession, folder: Path, **options: str) -> DataStreamReader:
    from pulsar_admin.store.scan.datasource import register

    register(spark)
    path = f"{folder}/current/*.log,{folder}/current/*.txn"
    return spark.readStream.format("pulsar_entries").options(**{"path": path, **options})


def _run(stream: DataStreamReader, out: Path) -> list[dict[str, Any]]:
    """Run until nothing is new; return the progress of each batch that read something."""
    query = (
        stream.load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(out / "rows"))
    )
    try:
        assert query.awaitTermination(600)
        return [dict(progress) for progress in query.recentProgress if progress["numInputRows"]]
    finally:
        query.stop()


def test_each_entry_comes_once_over_restarts(spark: SparkSession, tmp_path: Path) -> None:
    """The bookie writes, seals, is killed and replays; the query goes on at its checkpoint. A log that shrinks ends it."""
    from pyspark.errors import PySparkException

    bookie = Bookie(tmp_path, log_bytes=20_000)
    stream = _stream(spark, tmp_path, maxFilesPerTrigger="3", columns="ledger_id,entry_id")
    bookie.write(ids(0, 250))
    bookie.flush()
    bookie.write(ids(250, 100))
    assert len(_run(stream, tmp_path / "out")) > 1
    bookie.flush(marks=False)
    bookie.kill(torn_bytes=77)
    bookie.start()
    bookie.write(ids(350, 50))
    assert len(_run(stream, tmp_path / "out")) == 1
    logs = [path for path in (tmp_path / "current").glob("*.log") if path.stat().st_size > 1500]  # the newest is empty
    newest = max(logs, key=lambda path: int(path.stem, 16))
    newest.write_bytes(newest.read_bytes()[:1500])
    with pytest.raises(PySparkException, match=r"log became shorter: expected \d+ bytes or more, found 1500; restore"):
        _run(stream, tmp_path / "out")
    rows = spark.read.parquet(str(tmp_path / "out" / "rows")).collect()
    assert Counter(map(tuple, rows)) == Counter(ids(0, 400))


def test_messages_as_the_batch_source_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    from tests.worlds import world

    logs = world("small") / "clean" / "bookkeeper" / "current"
    options = {"path": f"{logs}/*.log", "level": "messages", "columns": "ledger_id,entry_id,batch_index,key"}
    _run(_stream(spark, tmp_path, **options), tmp_path / "out")
    once = set(map(tuple, spark.read.format("pulsar_entries").options(**options).load().collect()))
    rows = [*map(tuple, spark.read.parquet(str(tmp_path / "out" / "rows")).collect())]
    assert len(rows) == len(once) > 1000
    assert set(rows) == once


def test_wrong_options_are_one_line(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from pulsar_admin.store.scan.datasource import PulsarEntries

    said, store = "a stream cannot be of topics", imported("small", "clean")
    with pytest.raises(PySparkException, match=said) as raised:
        _run(_stream(spark, tmp_path, topics="public/default/avro", store=str(store)), tmp_path / "out")
    assert "Traceback" not in str(raised.value)
    (line,) = [line for line in str(raised.value).splitlines() if "pulsar_entries: " in line]
    assert said in line
    source = PulsarEntries({"path": "/nowhere/current/*.log"})
    reader = source.streamReader(source.schema())
    with pytest.raises(ValueError, match=r"^pulsar_entries: no entry log at /nowhere/current/"):
        reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


def test_a_log_that_shrinks_under_a_running_stream(spark: SparkSession, tmp_path: Path) -> None:
    """The query ends with the file, what was expected and what to do; with failOnDataLoss=false it goes on with what comes."""
    from pyspark.errors import PySparkException

    bookie = Bookie(tmp_path)
    bookie.write(ids(0, 100))
    bookie.flush()
    log = tmp_path / "current" / "0.log"
    size = log.stat().st_size
    out = tmp_path / "out"
    write = _stream(spark, tmp_path, columns="ledger_id,entry_id").load().writeStream.format("parquet")
    query = write.option("checkpointLocation", str(out / "checkpoint")).start(str(out / "rows"))
    try:
        query.processAllAvailable()
        log.write_bytes(log.read_bytes()[:5000])
        with pytest.raises(PySparkException) as raised:
            query.awaitTermination(600)
    finally:
        query.stop()
    said = f"pulsar_entries: {log} became shorter: expected {size} bytes or more, found 5000; restore the file, or continue"
    assert said in str(raised.value)
    assert "option failOnDataLoss=false" in str(raised.value)
    assert "Traceback" not in str(raised.value)
    bookie.kill()
    bookie.start()
    bookie.write(ids(100, 50))
    bookie.flush()
    _run(_stream(spark, tmp_path, columns="ledger_id,entry_id", failOnDataLoss="false"), out)
    rows = spark.read.parquet(str(out / "rows")).collect()
    assert Counter(map(tuple, rows)) == Counter(ids(0, 150))


def test_a_task_that_does_not_see_a_log_of_the_stream(tmp_path: Path) -> None:
    """As an executor of another machine, whose disk is another one: planned here, read where the file is not."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from pulsar_admin.store.scan.datasource import PulsarEntries

    bookie = Bookie(tmp_path)
    bookie.memory = ids(0, 30)
    bookie.flush()
    source = PulsarEntries({"path": f"{tmp_path}/current/*.log"})
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    (part,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    assert sum(len(batch) for batch in reader.read(part)) == 30
    (tmp_path / "current").rename(tmp_path / "elsewhere")
    with pytest.raises(
        ValueError, match=rf"^pulsar_entries: {tmp_path}/current/0.log: No such file .*a path that they"
    ):
        list(reader.read(part))


def test_objects_that_arrive_in_a_bucket(spark: SparkSession, tmp_path: Path) -> None:
    """Under a running query and between two, in any order, the newest cut anywhere and put there again longer."""
    from pyarrow import fs

    from pulsar_admin.store.scan.datasource import register

    bookie = Bookie(tmp_path / "bookie", log_bytes=20_000)
    bookie.memory = ids(0, 600)
    bookie.flush()
    logs = sorted(bookie.current.glob("*.log"), key=lambda path: int(path.stem, 16))
    *sealed, newest = [path for path in logs if path.stat().st_size > 1500]
    assert len(sealed) > 3
    register(spark)
    url = s3_bucket("grows")
    system, _ = fs.FileSystem.from_uri(url.format("x"))

    def put(path: Path, size: int | None = None) -> None:
        with system.open_output_stream(f"grows/current/{path.name}") as out:
            out.write(path.read_bytes()[:size])

    put(sealed[2])
    options = {"path": url.format("current/*.log"), "columns": "ledger_id,entry_id,path", "sliceBytes": "10000"}
    stream = spark.readStream.format("pulsar_entries").options(**options)
    rows = stream.load().writeStream.format("parquet")
    query = rows.option("checkpointLocation", str(tmp_path / "out" / "checkpoint")).start(
        str(tmp_path / "out" / "rows")
    )
    try:
        query.processAllAvailable()
        put(sealed[0])
        put(newest, newest.stat().st_size // 2)
        query.processAllAvailable()
        put(sealed[1])
        query.processAllAvailable()
    finally:
        query.stop()
    some = spark.read.parquet(str(tmp_path / "out" / "rows")).count()
    for path in (newest, *sealed[3:]):
        put(path)
    _run(stream, tmp_path / "out")
    followed = spark.read.parquet(str(tmp_path / "out" / "rows"))
    assert Counter(map(tuple, followed.select("ledger_id", "entry_id").collect())) == Counter(ids(0, 600))
    assert 0 < some < 600
    paths = {row[0].partition("?")[0] for row in followed.select("path").distinct().collect()}
    assert paths == {f"s3://grows/current/{path.name}" for path in (*sealed, newest)}
    kept = [path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert kept
    assert not any(b"secret" in data for data in kept), "the key of the bucket"
