"""The Spark engine: the slices and operations of this package, run by executors.

Executors read entry logs only, never LMDB. Works with a classic session and with Spark Connect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema

from store.scan.datasource import register
from store.scan.local import FailedSlice, Finished
from store.scan.operations import Operation
from store.scan.slices import FileRange
from store.scan.spark_errors import job_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkEngine", "register"]

GROUP_SLICES = 64  # slices a job: what is in flight on the driver, and what is lost when the job is killed


@dataclass(slots=True)
class SparkEngine:
    """Runs operations as Spark jobs; ``failed`` lists the slices without a result after a run."""

    session: SparkSession
    failed: list[FailedSlice] = field(default_factory=list)

    def run(
        self, operation: Operation, pieces: Sequence[FileRange], finished: Finished
    ) -> Iterator[tuple[FileRange, pa.Table]]:
        """Yield (slice, its result), a group of slices at a time; FINISHED is told each slice that ended, well or not.

        A slice that gave no result is tried twice. Raises MissingComponent (a worker lacks a package), LimitExceeded (workers
        die), Refused (Spark gave the job up).
        """
        again: list[FileRange] = []
        for group in _batched([*pieces], GROUP_SLICES):
            for piece, table, reason in _run_group(self.session, operation, group):
                if reason:
                    again.append(piece)
                else:
                    yield piece, table
                    finished(piece)
        for group in _batched(again, GROUP_SLICES):
            for piece, table, reason in _run_group(self.session, operation, group):
                if reason:
                    self.failed.append(FailedSlice(piece, reason))
                else:
                    yield piece, table
                finished(piece)


def _batched(pieces: Sequence[FileRange], size: int) -> Iterator[Sequence[FileRange]]:
    """Yield PIECES, SIZE at a time."""
    return (pieces[start : start + size] for start in range(0, len(pieces), size))


def _run_group(
    session: SparkSession, operation: Operation, group: Sequence[FileRange]
) -> Iterator[tuple[FileRange, pa.Table, str]]:
    schema = operation.schema
    packed = pa.schema([("slice", pa.int64()), ("reason", pa.string()), ("result", pa.binary())])

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from store.scan.packed import pack_slice

        for batch in batches:
            for index in batch.column(0).to_pylist():
                reason, result = pack_slice(operation, group[index])
                yield pa.RecordBatch.from_arrays([[index], [reason], [result]], schema=packed)

    frame = session.range(0, len(group), 1, len(group)).mapInArrow(work, from_arrow_schema(packed))
    try:
        rows = frame.toArrow().to_pylist()
    except (PySparkException, Py4JError) as error:
        raise job_error(str(error)) from error
    for row in rows:
        table = pa.ipc.open_stream(row["result"]).read_all() if row["result"] else schema.empty_table()
        yield group[row["slice"]], table, row["reason"] or ""
