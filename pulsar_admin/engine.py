"""What runs bulk work, as the settings say: this process, processes, or Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pulsar_admin.config import java_home

if TYPE_CHECKING:
    import pyarrow as pa

    from pulsar_admin.config import Settings
    from store.scan.engine_scan import Engine
    from store.scan.local import FailedSlice, Finished
    from store.scan.operations import Operation
    from store.scan.slices import FileRange
    from store.scan.spark import SparkEngine

PROCESSES_PAY_BYTES = 256 << 20  # processes take a second to start
SPARK_PAYS_BYTES = 256 << 30  # minutes on one machine


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


@dataclass(slots=True)
class SparkOnDemand:
    """The Spark engine, started when it is first given slices: a JVM costs seconds."""

    settings: Settings
    stack: ExitStack
    failed: list[FailedSlice] = field(default_factory=list)
    _engine: SparkEngine | None = None

    @property
    def started(self) -> bool:
        """Whether there was anything to run."""
        return self._engine is not None

    def run(
        self, operation: Operation, pieces: Sequence[FileRange], finished: Finished
    ) -> Iterator[tuple[FileRange, pa.Table]]:
        """Yield (slice, its result); see ``SparkEngine.run``."""
        if not pieces:
            return
        if self._engine is None:
            self._engine = self.stack.enter_context(open_engine(self.settings))
            self._engine.failed = self.failed
        yield from self._engine.run(operation, pieces, finished)


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine (None: this process), and what to say about the choice."""

    engine: Engine | None = None
    advice: str = ""

    @property
    def unused(self) -> bool:
        """Whether Spark was asked for and there was nothing to scan."""
        return isinstance(self.engine, SparkOnDemand) and not self.engine.started


@contextmanager
def choose_engine(settings: Settings, size_bytes: int) -> Iterator[Choice]:
    """Choose what scans SIZE_BYTES, and close it at the end."""
    if settings.spark:
        with ExitStack() as stack:
            yield Choice(SparkOnDemand(settings, stack))
    elif settings.jobs > 1 or (settings.jobs == 0 and size_bytes >= PROCESSES_PAY_BYTES):
        from store.scan.local import LocalEngine

        yield Choice(LocalEngine(settings.jobs), _advice(size_bytes))
    else:
        yield Choice()


def _advice(size_bytes: int) -> str:
    if size_bytes < SPARK_PAYS_BYTES:
        return ""
    return f"{size_bytes >> 30:,} GiB to read: several machines would be faster, see --spark"
