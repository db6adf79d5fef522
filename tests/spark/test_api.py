"""A store as data frames, through the Python interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import pulsar_admin as pa
from tests.stores import imported
from tests.worlds import oracle

if TYPE_CHECKING:
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
