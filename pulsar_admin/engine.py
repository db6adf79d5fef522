"""Which engine runs bulk work: this machine, or Spark when asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pulsar_admin.config import java_home

if TYPE_CHECKING:
    from pulsar_admin.config import Settings
    from store.scan.local import LocalEngine
    from store.scan.spark import SparkEngine


@contextmanager
def open_engine(settings: Settings) -> Iterator[LocalEngine | SparkEngine]:
    """Open the engine that SETTINGS name; raises MissingComponent (no Java, no pyspark), Refused (no such master)."""
    if not settings.spark:
        from store.scan.local import LocalEngine

        yield LocalEngine(settings.jobs)
        return
    from store.scan.spark_session import SparkOptions, open_session

    options = SparkOptions(
        settings.spark_master, settings.spark_remote, settings.spark_conf, settings.jobs, java_home()
    )
    with open_session(options) as session:
        from store.scan.spark import SparkEngine

        yield SparkEngine(session)
