"""Spark for bulk work, as the settings describe it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pulsar_admin.config import java_home

if TYPE_CHECKING:
    from pulsar_admin.config import Settings
    from store.scan.spark import SparkEngine


@contextmanager
def open_engine(settings: Settings) -> Iterator[SparkEngine]:
    """Open the Spark engine that SETTINGS name; raises MissingComponent (no Java, no pyspark), Refused (no such master)."""
    from store.scan.spark_session import SparkOptions, open_session

    options = SparkOptions(
        master=settings.spark_master,
        remote=settings.spark_remote,
        conf=settings.spark_conf,
        jobs=settings.jobs,
        java_home=java_home(),
        verbose=settings.verbose,
    )
    with open_session(options) as session:
        from store.scan.spark import SparkEngine

        yield SparkEngine(session)
