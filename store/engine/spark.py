"""The Spark engine: the slices and operations of this package, run by executors.

Executors read entry logs only, never LMDB. Works with a classic session and with Spark Connect.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Struct, field
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema

from pulsar_admin.store.engine.counts import Read
from pulsar_admin.store.engine.operation import (
    PACKED,
    FailedSlice,
    Finished,
    Operation,
    Packed,
    Reducing,
    Results,
    reduced_schema,
    rows_of,
    split_reduced,
    unpack_slice,
)
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.engine.spark_session import core_count, is_connect, job_error, name_jobs, text_of
from pulsar_admin.store.engine.workers import needs_of, prepare_workers, sending, spill_directories, wait_for
from pulsar_admin.store.errors import LimitExceeded, MissingComponent

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession


JOB_SLICES = 4  # results come a job at a time: few, so that progress moves
JOBS_IN_FLIGHT = 16  # results that wait on the driver, and are lost if it is killed; more on a large cluster, fewer if they are large
WAITING_BYTES = 256 << 20  # of answers: so many jobs may be more
_JOBS_MAX = 1024
_CLUSTER_SLOTS = 16  # slices are cut for at least this many if not all executors are known
_WORKERS_LACK = (
    "make sure that executors reach the server, and give them the credentials, or JAVA_HOME, ARROW_LIBHDFS_DIR and "
    "CLASSPATH, that are set here: --spark-conf spark.executorEnv.NAME=value"
)
Answers = list[tuple[FileRange, Packed]]


class SparkEngine(Struct):
    """Runs operations as Spark jobs; ``failed`` lists the slices without a result after a run.

    ``memory_bytes`` bounds the Python processes of executors. ``about``: the topic or store that is read, for Spark's
    UI.
    """

    session: SparkSession
    memory_bytes: int | None = None
    failed: list[FailedSlice] = field(default_factory=list)
    about: str = ""
    _sums: list[Accumulator[int]] | None = None

    @property
    def merges(self) -> bool:
        """True: executors merge."""
        return True

    def meet(self, pieces: Sequence[FileRange]) -> None:
        """Check that the executors can read slices; raises as ``prepare_workers``."""
        prepare_workers(self.session, pieces)

    def run(self, operation: Operation, pieces: Sequence[FileRange], finished: Finished) -> Results:
        """Yield (slice, its result) as small jobs end; ``finished`` is called for each slice that ends or fails.

        A slice that failed, or killed its executor, is tried once more in a job of its own. Raises as
        ``prepare_workers``, MissingComponent (an executor lacks a library for a URL), Refused (Spark gave up the job).
        """
        prepare_workers(self.session, pieces, needs_of(operation))
        before = len(self.failed)
        again: list[FileRange] = []
        for piece, packed in self._run_jobs(operation, pieces, JOB_SLICES):
            if packed.lacking:
                raise MissingComponent(f"on a Spark worker: {packed.reason}", hint=_WORKERS_LACK)
            if packed.result is None:
                again.append(piece)
            else:
                yield piece, unpack_slice(operation, packed.result)
                finished(piece)
        for piece, packed in self._run_jobs(operation, again, 1):
            if packed.result is None:
                self.failed.append(FailedSlice(piece, packed.reason or "", packed.out_of_memory))
            else:
                yield piece, unpack_slice(operation, packed.result)
            finished(piece)
        unread = [failed.piece for failed in self.failed[before:] if not failed.out_of_memory]
        if unread:
            prepare_workers(self.session, unread, again=True)

    @property
    def read(self) -> Read | None:
        """The counts of completed tasks, repetitions included; None for Spark Connect, which has none."""
        return Read(*(total.value for total in self._counting())) if self._counting() else None

    def _counting(self) -> list[Accumulator[int]]:
        """Return the accumulators to which tasks add, one per field of ``Read``."""
        if self._sums is None:
            count = 0 if is_connect(self.session) else len(Read._fields)
            self._sums = [self.session.sparkContext.accumulator(0) for _ in range(count)]
        return self._sums

    @property
    def slots(self) -> int:
        """The number of cores; on clusters, where executors come and go, at least ``_CLUSTER_SLOTS``."""
        cores = core_count(self.session)
        is_local = cores and (self.session.conf.get("spark.master") or "").startswith("local")
        return cores if is_local else max(cores, _CLUSTER_SLOTS)

    def reduce(
        self, operation: Reducing, pieces: Sequence[FileRange], finished: Finished, merged_by: Mapping[str, int]
    ) -> Iterator[pa.Table]:
        """Yield the rows of all slices, merged by executors, as one job; slices without rows are run once more, as ``run`` does."""
        if not pieces:
            return
        prepare_workers(self.session, pieces, needs_of(operation))
        packed = [pickle.dumps(piece) for piece in pieces]  # a task opens its own alone
        memory_bytes, schema, sums = self.memory_bytes, reduced_schema(operation), self._counting()

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pulsar_admin.store.engine.counts import counted_by
            from pulsar_admin.store.engine.memory import bound_process, keep_loaded
            from pulsar_admin.store.engine.operation import reduce_slice

            if memory_bytes is not None:
                bound_process(memory_bytes)
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    with counted_by(sums):
                        rows = reduce_slice(operation, index, pickle.loads(packed[index]))
                    yield from rows.to_batches()
            keep_loaded()

        def merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pulsar_admin.store.engine.operation import merge_reduced

            yield from merge_reduced(operation, pa.Table.from_batches(batches, schema)).to_batches()

        columns = from_arrow_schema(schema)
        with sending(self.session):
            frame = self.session.range(0, len(pieces), 1, len(pieces)).mapInArrow(work, columns)
            for name, values in merged_by.items():
                frame = frame.repartition(max(1, min(values, self.slots)), name).mapInArrow(merge, columns)
        rest = deque(pieces)
        again = pieces
        try:
            rows, failures = split_reduced(operation, self._collect(operation, frame, rest, finished))
        except LimitExceeded:  # a worker died, again and again: small jobs show of which slice
            pass
        else:
            again = [pieces[index] for index in failures["slice"].to_pylist()]
            yield rows
        for _, table in self.run(operation, again, lambda _: None):
            yield table
        while rest:
            finished(rest.popleft())

    def _collect(self, operation: Reducing, frame: DataFrame, rest: deque[FileRange], finished: Finished) -> pa.Table:
        """Run a frame's job and return its rows. For each task that ends, a slice is removed from ``rest`` and passed
        to ``finished``; interrupting cancels the job."""
        tasks = len(rest)

        def tell() -> None:
            for _ in range(len(rest) - tasks + self._ended_tasks(tasks)):
                finished(rest.popleft())

        pool = ThreadPoolExecutor(1)
        pool.submit(name_jobs, self.session, operation, list(rest), self.about).result()  # of the one thread
        job = pool.submit(frame.toArrow)
        try:
            wait_for(self.session, [job], tell)
            return job.result()
        except (PySparkException, Py4JError) as error:
            raise job_error(text_of(error), spill_directories(self.session)) from None
        finally:
            if not job.done():
                self.session.interruptAll()
            pool.shutdown(wait=False, cancel_futures=True)

    def _ended_tasks(self, tasks: int) -> int:
        """Return how many tasks have ended of the running stage with ``tasks`` tasks; 0 if Spark does not report it."""
        if not core_count(self.session):
            return 0
        tracker = self.session.sparkContext.statusTracker()
        stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
        return max((stage.numCompletedTasks for stage in stages if stage and stage.numTasks == tasks), default=0)

    def _run_jobs(
        self, operation: Operation, pieces: Sequence[FileRange], size: int
    ) -> Iterator[tuple[FileRange, Packed]]:
        """Yield (slice, its result), ``size`` slices per job, several jobs at once; interrupting cancels them."""
        waiting = deque(pieces[start : start + size] for start in range(0, len(pieces), size))
        running: set[Future[Answers]] = set()
        self._counting()  # before threads do: each would count by sums of its own
        pool = ThreadPoolExecutor(_JOBS_MAX)
        most_bytes = WAITING_BYTES  # in the answer of a job
        try:
            while waiting or running:
                # Two slices for each core, as executors come and go, while answers as large as the largest so far fit; a few more jobs
                # where the answers of these are small.
                cores, room = core_count(self.session), WAITING_BYTES // max(most_bytes, 1)
                few = cores * 2 // JOB_SLICES + 2 if cores else JOBS_IN_FLIGHT
                limit = max(min(few, room, _JOBS_MAX), min(max(few, room // 4), JOBS_IN_FLIGHT))
                while waiting and len(running) < limit:
                    group = waiting.popleft()
                    # The frame is made by this thread, which alone writes to stderr.
                    running.add(pool.submit(self._run_job, operation, group, self._frame(operation, group)))
                wait_for(self.session, running)
                done = {job for job in running if job.done()}
                running -= done
                sizes = [sum(len(packed.result or b"") for _, packed in job.result()) for job in done]
                most_bytes = max(sizes if most_bytes == WAITING_BYTES else [most_bytes, *sizes])
                for job in done:
                    # Each is freed when the next is asked for.
                    answers = job.result()
                    while answers:
                        yield answers.pop(0)
        finally:
            if running:
                self.session.interruptAll()
            pool.shutdown(wait=False, cancel_futures=True)

    def _frame(self, operation: Operation, group: Sequence[FileRange]) -> DataFrame:
        """Return a frame whose rows are the results of a group's slices; raises DiskFull."""
        memory_bytes, sums = self.memory_bytes, self._counting()  # what the function below uses travels to executors

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pulsar_admin.store.engine.counts import counted_by
            from pulsar_admin.store.engine.memory import bound_process, keep_loaded
            from pulsar_admin.store.engine.operation import pack_slice, row_of

            if memory_bytes is not None:
                bound_process(memory_bytes)
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    with counted_by(sums):
                        row = row_of(index, pack_slice(operation, group[index], "lz4"))
                    yield row
            keep_loaded()

        with sending(self.session):
            return self.session.range(0, len(group), 1, len(group)).mapInArrow(work, from_arrow_schema(PACKED))

    def _run_job(self, operation: Operation, group: Sequence[FileRange], frame: DataFrame) -> Answers:
        """Run a group's job; return (slice, its result) for each, failures for all if workers died."""
        name_jobs(self.session, operation, group, self.about)
        try:
            answers = frame.toArrow().to_batches()
        except (PySparkException, Py4JError) as error:
            failure = job_error(text_of(error), spill_directories(self.session))
            if isinstance(failure, LimitExceeded):
                short = bool(failure.context.get("out_of_memory"))
                return [(piece, Packed(None, failure.message, short)) for piece in group]
            raise failure from None
        return [(group[index], packed) for batch in answers for index, packed in rows_of(batch)]
