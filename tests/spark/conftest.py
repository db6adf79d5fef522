"""One Spark session a run: it takes seconds to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pulsar_admin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on this machine, opened as the tool opens it, where a module called ``store`` lies that nobody may import."""
    from pulsar_admin.store.engine.spark_session import SparkOptions, open_session

    folder = tmp_path_factory.mktemp("spark")
    (folder / "pulsar_admin.py").write_text("raise ImportError('the wrong package')\n")
    conf = (("spark.sql.warehouse.dir", str(folder / "warehouse")), ("spark.sql.shuffle.partitions", "2"))
    # As a wheel has it: Spark looks for sources once, on the path of its workers.
    (folder / "wheel").mkdir()
    (folder / "wheel" / "pyspark_pulsar.py").symlink_to(Path(pulsar_admin.__path__[0], "pyspark_pulsar.py").resolve())
    with ExitStack() as stack:
        environment = stack.enter_context(pytest.MonkeyPatch.context())
        environment.setenv("PYTHONPATH", str(folder / "wheel"), prepend=os.pathsep)
        with chdir(folder):  # the JVM's and its workers' for good
            session = stack.enter_context(open_session(SparkOptions(master="local[2]", conf=conf)))
        yield session


@pytest.fixture
def on_spark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make ``--spark`` use the session of the run, where one is asked for; holds a number for each time that Spark was opened."""
    opened: list[int] = []

    @contextmanager
    def open_engine(settings: object) -> Iterator[object]:
        from pulsar_admin.store.engine.spark import SparkEngine

        session = request.getfixturevalue("spark")
        opened.append(1)
        yield SparkEngine(session)

    monkeypatch.setattr("pulsar_admin.engine.open_engine", open_engine)
    monkeypatch.setattr("pulsar_admin.engine.spark_note", lambda *_: "")  # it depends on time
    return opened
