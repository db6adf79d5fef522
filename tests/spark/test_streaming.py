"""``readStream.format("pulsar_entries")``: what a growing disk holds comes once, in batches, also behind restarts; errors are one line."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.growing import Bookie, ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamReader

pytestmark = pytest.mark.spark


def _stream(spark: SparkSession, folder: Path, **options: str) -> DataStreamReader:
    from store.scan.datasource import register

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
    bookie.write(ids(0, 500))
    bookie.flush()
    bookie.write(ids(500, 100))
    assert len(_run(stream, tmp_path / "out")) > 2
    bookie.flush(marks=False)
    bookie.kill(torn_bytes=77)
    bookie.start()
    bookie.write(ids(600, 50))
    assert len(_run(stream, tmp_path / "out")) == 1
    logs = [path for path in (tmp_path / "current").glob("*.log") if path.stat().st_size > 1500]  # the newest is empty
    newest = max(logs, key=lambda path: int(path.stem, 16))
    newest.write_bytes(newest.read_bytes()[:1500])
    with pytest.raises(PySparkException, match=r"log became shorter: expected \d+ bytes or more, found 1500; bring"):
        _run(stream, tmp_path / "out")
    rows = spark.read.parquet(str(tmp_path / "out" / "rows")).collect()
    assert Counter(map(tuple, rows)) == Counter(ids(0, 650))


def test_messages_as_the_batch_source_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    from tests.worlds import world

    logs = world("small") / "clean" / "bookkeeper" / "current"
    options = {"path": f"{logs}/*.log", "level": "messages", "columns": "ledger_id,entry_id,batch_index,key"}
    _run(_stream(spark, tmp_path, **options), tmp_path / "out")
    once = spark.read.format("pulsar_entries").options(**options).load().distinct()
    rows = spark.read.parquet(str(tmp_path / "out" / "rows"))
    assert rows.count() == once.count() > 1000
    assert rows.exceptAll(once).count() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxFilesPerTrigger": "2", "maxBytesPerTrigger": "1m"}, "exclude each other"),
        ({"maxFilePerTrigger": "1"}, "there is no option maxfilepertrigger; did you mean maxFilesPerTrigger"),
        ({"path": "/nowhere/current/*.log"}, "no entry log at /nowhere/current/"),
    ],
)
def test_wrong_options_are_one_line(spark: SparkSession, tmp_path: Path, options: dict[str, str], said: str) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match=said) as raised:
        _run(_stream(spark, tmp_path, **options), tmp_path / "out")
    assert "Traceback" not in str(raised.value)
