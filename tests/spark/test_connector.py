"""Jobs written for the Spark connector run with the format's name changed; tests/scan/test_connector_reads.py has what they read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pulsar_admin.store.scan.datasource import register
from tests.connector import as_here, readings, written
from tests.stores import imported

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
