"""A grid of simulations gives the same rows here and as one Spark job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.nacks.load import GeneratedLoad
from store.nacks.sweep import sweep_here, sweep_on_spark, sweep_points

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_spark_gives_the_rows_of_this_process(spark: SparkSession) -> None:
    load = GeneratedLoad(duration_ms=2000, batch_size=3, nacked=0.7, processing_ms=40, seed=5)
    points = sweep_points(load, (90.0, 333.3), (100, 700), (0, 8, 16))
    here = list(sweep_here(points))
    assert len(here) == 2 * 2 * 3 * 5
    assert sweep_on_spark(spark, points) == here
