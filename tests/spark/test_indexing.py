"""Index rows whose blocks Spark's executors packed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pulsar_admin.store.engine.operation import Engine
from tests.test_indexing import MIB, IndexContract, here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


__all__ = ["here"]


@pytest.mark.spark
class TestSpark(IndexContract):
    slice_bytes = (MIB,)

    @pytest.fixture
    def engine(self, spark: SparkSession) -> Engine:
        from pulsar_admin.store.engine.spark import SparkEngine

        return SparkEngine(spark)

    @pytest.mark.parametrize(
        "made", ["generated", "flipped"]
    )  # what processes find of the others, executors send alike
    def test_rows_are_those_of_this_process(
        self, made: str, here: Path, engine: Engine | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        super().test_rows_are_those_of_this_process(made, here, engine, tmp_path, monkeypatch)
