"""One Spark session a run: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on this machine, opened as the tool opens it."""
    from store.engine.spark_session import SparkOptions, open_session

    warehouse = ("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    with open_session(SparkOptions(master="local[2]", conf=(warehouse,))) as session:
        yield session
