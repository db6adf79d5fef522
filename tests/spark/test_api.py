"""A store as data frames, through the Python interface."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

import pulsar_admin as pa
from tests.spark.servers import bare_python
from tests.stores import imported
from tests.worlds import oracle

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


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
