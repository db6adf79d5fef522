"""One Spark session a run: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, chdir
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on this machine, opened as the tool opens it, where a module called ``store`` lies that nobody may import."""
    from pulsar_admin.store.engine.spark_session import SparkOptions, open_session

    folder = tmp_path_factory.mktemp("spark")
    (folder / "pulsar_admin.py").write_text("raise ImportError('the wrong package')\n")
    conf = (("spark.sql.warehouse.dir", str(folder / "warehouse")), ("spark.sql.shuffle.partitions", "2"))
    with ExitStack() as stack:
        with chdir(folder):  # the JVM's and its workers' for good
            session = stack.enter_context(open_session(SparkOptions(master="local[2]", conf=conf)))
        yield session
