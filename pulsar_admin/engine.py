"""Choosing the engine for bulk work by the settings: this process, several processes, or Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

import click

from pulsar_admin.config import Settings, java_home
from pulsar_admin.store.errors import NotOnWorkers, StoreError
from pulsar_admin.store.wording import counted

if TYPE_CHECKING:
    import logging

    import pyarrow as pa

    from pulsar_admin.results import Results
    from pulsar_admin.store.engine.local import LocalEngine
    from pulsar_admin.store.engine.operation import Engine, FailedSlice, Finished, Operation, Reducing
    from pulsar_admin.store.engine.slices import FileRange
    from pulsar_admin.store.engine.spark import SparkEngine

PROCESSES_PAY_BYTES = 4 << 30  # processes take a second or two to start, in which one reads a gigabyte
CORE_BYTES_PER_SECOND = 600 << 20
"""What a core scans with checksums, results brought back (docs/benchmarks.md, "Spark beside processes")."""
SPARK_PAYS_SECONDS = 300
"""A session takes 5 to 20 s to start, its executors as long: below minutes there is nothing to gain."""


@contextmanager
def open_engine(settings: Settings) -> Iterator[SparkEngine]:
    """Open the configured Spark engine; raises MissingComponent (no Java, no pyspark), Refused (no such master)."""
    from pulsar_admin.store.engine.spark_session import SparkOptions, open_session

    command = click.get_current_context(silent=True)
    options = SparkOptions(
        name="pulsar-admin" if command is None else command.command_path,
        master=settings.spark_master,
        remote=settings.spark_remote,
        conf=settings.spark_conf,
        jobs=settings.jobs,
        memory_bytes=settings.memory_bytes,
        java_home=java_home(),
        verbose=settings.verbose,
    )
    with open_session(options) as session:
        from pulsar_admin.store.engine.spark import SparkEngine

        yield SparkEngine(session, settings.memory_bytes)


class SparkOnDemand:
    """The Spark engine, started for the first slices only, because a JVM takes seconds.

    ``failed``: slices without a result. ``broken``: the error if Spark did not start, or gave up a job. ``results``
    receives warnings, for example that files are read here because workers do not see them
    (``--spark-local-fallback``).
    """

    def __init__(self, settings: Settings, stack: ExitStack, failed: list[FailedSlice], results: Results) -> None:
        self.settings = settings
        self.stack = stack
        self.failed = failed
        self.results = results
        self.started_s = 0.0
        self.given_bytes = 0  # of slices
        self.broken: StoreError | None = None
        self._engine: SparkEngine | LocalEngine | None = None

    @property
    def memory_bytes(self) -> int | None:
        """The memory that a scanning process may use."""
        return self.settings.memory_bytes

    @property
    def started(self) -> bool:
        """Whether Spark was started, as there were slices to run."""
        return self._engine is not None

    @property
    def slots(self) -> int:
        """The number of slices that run at the same time."""
        return self._open().slots

    @property
    def merges(self) -> bool:
        """Whether rows of ``reduce`` are merged in the processes that produce them."""
        return self._open().merges

    def meet(self, pieces: Sequence[FileRange]) -> None:
        """Start Spark, and check that its executors can read the slices."""
        there, _ = self._apart(pieces)
        if there:
            with self._noting():
                self._open_for(there).meet(there)

    def run(
        self, operation: Operation, pieces: Sequence[FileRange], finished: Finished
    ) -> Iterator[tuple[FileRange, pa.Table]]:
        """Yield (slice, its result); see ``SparkEngine.run``."""
        there, copies = self._apart(pieces)
        if there:
            with self._noting():
                self.given_bytes += sum(piece.bytes for piece in there)
                yield from self._open_for(there).run(operation, there, finished)
        yield from self._here().run(operation, copies, finished)

    def reduce(
        self, operation: Reducing, pieces: Sequence[FileRange], finished: Finished, merged_by: Mapping[str, int]
    ) -> Iterator[pa.Table]:
        """Yield the rows of all slices; see ``SparkEngine.reduce``."""
        there, copies = self._apart(pieces)
        if there:
            with self._noting():
                self.given_bytes += sum(piece.bytes for piece in there)
                yield from self._open_for(there).reduce(operation, there, finished, merged_by)
        yield from self._here().reduce(operation, copies, finished, merged_by)

    def _apart(self, pieces: Sequence[FileRange]) -> tuple[list[FileRange], list[FileRange]]:
        """Return the slices for Spark, and those of remote files, such as journals, that are cached in the store's directory.

        Executors need not see that directory.
        """
        from pulsar_admin.store.db.storeinfo import REMOTE
        from pulsar_admin.store.engine.slices import files_of

        folders = tuple(f"{path / REMOTE}/" for path in (self.settings.store.absolute(), self.settings.store.resolve()))
        parts: tuple[list[FileRange], list[FileRange]] = [], []
        for piece in pieces:
            parts[any(path.startswith(folders) for path in files_of(piece))].append(piece)
        return parts

    def _here(self) -> LocalEngine:
        from pulsar_admin.store.engine.local import LocalEngine

        return LocalEngine(1, self.settings.memory_bytes, self.failed)

    def _open_for(self, pieces: Sequence[FileRange]) -> SparkEngine | LocalEngine:
        """Return the engine for slices; with ``--spark-local-fallback`` a local one, once a worker does not see a file."""
        engine = self._open()
        if not self.settings.spark_local_fallback:
            return engine
        from pulsar_admin.store.engine.local import LocalEngine
        from pulsar_admin.store.engine.spark import SparkEngine
        from pulsar_admin.store.engine.workers import prepare_workers

        try:
            if isinstance(engine, SparkEngine):
                prepare_workers(engine.session, pieces)
        except NotOnWorkers as error:
            self.results.warn(f"{error.message}: read on this machine instead")
            here = LocalEngine(self.settings.jobs, self.settings.memory_bytes, self.failed)
            self._engine = engine = self.stack.enter_context(here)
        return engine

    def _open(self) -> SparkEngine | LocalEngine:
        with self._noting():
            if self._engine is None:
                self.started_s = time.monotonic()
                spark = self._engine = self.stack.enter_context(open_engine(self.settings))
                spark.failed = self.failed
                topics = self.results.topics
                spark.about = str(*topics) if len(topics) == 1 else counted(len(topics), "topic") if topics else ""
                self.stack.callback(self._tell_read, spark)
                from logging import getLogger  # with Spark, which has it

                log = getLogger("pulsar_admin.store.engine.workers")
                log.addFilter(self._say)
                self.stack.callback(log.removeFilter, self._say)
            return self._engine

    def _tell_read(self, engine: SparkEngine) -> None:
        if self.broken is None and (read := engine.read) is not None:
            sums = f"{counted(read.entries, 'entry', 'entries')}, {read.bytes:,} bytes, {counted(read.bad_digests, 'bad digest')}"
            self.results.note(f"Spark read {sums}, in {read.processor_ms / 1000:.1f} s of processor time")

    def _say(self, record: logging.LogRecord) -> bool:
        """Print a log record as a warning; return False, so that logging drops it."""
        self.results.warn(record.getMessage())
        return False

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Record an error that ends the block as ``broken``."""
        try:
            yield
        except StoreError as error:
            self.broken = error
            raise


class Choice(NamedTuple):
    """An engine (None: this process), and advice about the choice."""

    engine: Engine | None = None
    advice: str = ""

    @property
    def broken(self) -> StoreError | None:
        """The error after which the engine cannot run anything."""
        return self.engine.broken if isinstance(self.engine, SparkOnDemand) else None

    @property
    def unused(self) -> bool:
        """Whether Spark was requested but there was nothing to scan."""
        return isinstance(self.engine, SparkOnDemand) and not self.engine.started


@contextmanager
def choose_engine(settings: Settings, size_bytes: int, failed: list[FailedSlice], results: Results) -> Iterator[Choice]:
    """Choose the engine for scanning ``size_bytes``, and close it at the end; slices without a result are added to ``failed``.

    ``results``: see ``SparkOnDemand``. Raises LimitExceeded if ``--memory`` is too small to scan anything.
    """
    with ExitStack() as stack:
        if settings.memory_bytes is not None:
            from pulsar_admin.store.engine.memory import bounded, check_memory

            check_memory(settings.memory_bytes)
        if settings.spark:
            engine = SparkOnDemand(settings, stack, failed, results)
            yield Choice(engine)
            read_bytes = min(size_bytes, engine.given_bytes)  # less where an interrupted command goes on
            if engine.started and (note := spark_note(read_bytes, time.monotonic() - engine.started_s)):
                results.tell(note)
            return
        if settings.memory_bytes is not None:
            stack.enter_context(bounded(settings.memory_bytes))
        if settings.jobs > 1 or (settings.jobs == 0 and size_bytes >= PROCESSES_PAY_BYTES):
            from pulsar_admin.store.engine.local import LocalEngine

            processes = stack.enter_context(LocalEngine(settings.jobs, settings.memory_bytes, failed))
            yield Choice(processes, spark_advice(size_bytes, processes.slots))
        else:
            yield Choice()


def spark_advice(size_bytes: int, cores: int) -> str:
    """Return advice if Spark on several machines would be much faster than this machine's ``cores``, else empty."""
    here_s = size_bytes / (CORE_BYTES_PER_SECOND * cores)
    if here_s < SPARK_PAYS_SECONDS:
        return ""
    return (
        f"{size_bytes >> 30:,} GiB to read, about {round(here_s / 60):,} minutes on {cores} cores here (from a cached file; a "
        "disk may be slower): a Spark cluster that reads the same files divides that by its machines, see --spark-master"
    )


def spark_note(size_bytes: int, spark_s: float) -> str:
    """Return a note if one process here reads ``size_bytes`` in less time than Spark took, else empty."""
    here_s = 1 + size_bytes / CORE_BYTES_PER_SECOND
    if not size_bytes or here_s >= spark_s:
        return ""
    return f"Spark took {spark_s:.0f} s to start and to read {size_bytes / 1e6:,.0f} MB; without --spark it is about {here_s:.0f} s"
