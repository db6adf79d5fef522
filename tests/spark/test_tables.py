"""The tables that executors write: the rows of one process, what an executor does not see, and a store of objects as target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest

import pulsar_admin as pa
from pulsar_admin.store.engine.slices import plan_slices
from pulsar_admin.store.engine.spark import SparkEngine
from pulsar_admin.store.errors import SourceNotFound
from pulsar_admin.store.scan.sources import source_files
from pulsar_admin.store.tables.entries import UNSEEN, Edges, StageEntries
from pulsar_admin.store.tables.folder import Folder, read_manifest
from pulsar_admin.store.tables.making import Making, run_pieces
from tests.spark.servers import s3_bucket
from tests.stores import imported, narrow
from tests.tables.test_export import made, table_of
from tests.worlds import CLUSTER, world

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_writes_the_rows_of_this_process(spark: SparkSession, tmp_path: Path) -> None:
    store = imported(CLUSTER, "crashed")
    here, _ = made(store, tmp_path / "here")
    there, files = made(store, tmp_path / "there", SparkEngine(spark), range_entries=500, slice_bytes=1 << 20)
    assert there.equals(here)
    assert len(files) > 5


def test_spark_reads_the_tables_with_their_partition(spark: SparkSession, tmp_path: Path) -> None:
    for name, cluster in ((CLUSTER, "eu-1"), ("small", "us")):
        with pa.open_store(imported(name, "clean")) as store:
            store.export_tables(tmp_path / "tables", cluster=cluster, only=("topics", "entries"))
    rows = spark.read.parquet(str(tmp_path / "tables" / "entries")).groupBy("cluster").count().collect()
    entries = table_of(tmp_path / "tables", "entries")["cluster"].to_pylist()
    assert {row["cluster"]: row["count"] for row in rows} == {name: entries.count(name) for name in ("eu-1", "us")}


def test_an_executor_that_does_not_see_the_folder_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """What a driver makes of an executor that looks at another disk: the folder is not there for it."""
    how = Making(Folder.of(str(tmp_path / "elsewhere")), "staging", "c", "token", SparkEngine(spark))
    stage = StageEntries(how.folder, how.staging, Edges(np.zeros(0, np.int64), np.zeros(0, np.int64)))
    log = world("small") / "clean" / "bookkeeper" / "current" / "0.log"
    with pytest.raises(SourceNotFound, match=r"does not see .*elsewhere") as raised:
        list(run_pieces(how, stage, plan_slices(source_files([str(log)])), lambda piece: None))
    assert raised.value.hint == UNSEEN


def test_tables_in_a_store_of_objects_are_those_of_a_directory(tmp_path: Path) -> None:
    url, only = s3_bucket("fleet"), ("topics", "entries")
    for place, jobs in ((tmp_path / "tables", 1), (url.format("tables"), 1), (url.format("tables"), 2)):
        with pa.open_store(narrow(), jobs=jobs) as store:
            done = store.export_tables(place, only=only)
    folder = Folder.of(url.format("tables"))
    manifest = read_manifest(folder)
    assert done.removed == ()
    for name, parts in manifest.clusters["standalone"].tables.items():
        with folder.open_input(parts[0].path) as file:
            assert pq.ParquetFile(file).read().equals(table_of(tmp_path / "tables", name)), name
    names = folder.names()
    assert [name for name in names if name.startswith("_staging")] == []
    assert len(folder.names("entries/cluster=standalone")) == 1
