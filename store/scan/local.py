"""The local engine: one process a core, each running whole slices; failed slices are tried again, then listed."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field

import pyarrow as pa

from store.errors import StoreError
from store.scan.operations import Operation
from store.scan.slices import FileRange

TRIES = 2
Finished = Callable[[FileRange], None]


@dataclass(slots=True)
class FailedSlice:
    """A slice that gave no result, and why."""

    piece: FileRange
    reason: str


@dataclass(slots=True)
class LocalEngine:
    """Runs operations on this machine. ``failed`` lists the slices without a result after a run."""

    jobs: int = 0  # 0: one a core
    failed: list[FailedSlice] = field(default_factory=list)

    @property
    def most_jobs(self) -> int:
        """Processes to use at most."""
        return self.jobs or len(os.sched_getaffinity(0))

    def run(
        self, operation: Operation, pieces: Sequence[FileRange], finished: Finished
    ) -> Iterator[tuple[FileRange, pa.Table]]:
        """Yield (slice, its result) as slices end; FINISHED is told each slice that ended, well or not."""
        jobs = min(self.most_jobs, len(pieces))
        if jobs <= 1:
            yield from self._run_here(operation, pieces, finished)
        else:
            yield from self._run_in_pool(operation, pieces, finished, jobs)

    def _run_here(
        self, operation: Operation, pieces: Sequence[FileRange], finished: Finished
    ) -> Iterator[tuple[FileRange, pa.Table]]:
        for piece in pieces:
            try:
                table = run_slice(operation, piece)
            except (StoreError, OSError) as error:
                self.failed.append(FailedSlice(piece, str(error)))
            else:
                yield piece, table
            finished(piece)

    def _run_in_pool(
        self, operation: Operation, pieces: Sequence[FileRange], finished: Finished, jobs: int
    ) -> Iterator[tuple[FileRange, pa.Table]]:
        waiting = [(piece, 1) for piece in reversed(pieces)]
        while waiting:  # a second time only after a process died and took the pool with it
            with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("forkserver")) as pool:
                yield from self._feed(pool, operation, waiting, finished)

    def _feed(
        self, pool: ProcessPoolExecutor, operation: Operation, waiting: list[tuple[FileRange, int]], finished: Finished
    ) -> Iterator[tuple[FileRange, pa.Table]]:
        """Run WAITING until it is empty, or until the pool breaks: what was running then waits again."""
        running: dict[Future[pa.Table], tuple[FileRange, int]] = {}
        try:
            while waiting or running:
                # Two a process: enough to keep it busy, few enough to bound what waits here.
                while waiting and len(running) < 2 * self.most_jobs:
                    running[pool.submit(run_slice, operation, waiting[-1][0])] = waiting[-1]
                    waiting.pop()  # not before: a broken pool refuses it
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    yield from self._settle(done, running.pop(done), waiting, finished)
        except BrokenProcessPool:
            waiting += running.values()
        except GeneratorExit:
            pool.shutdown(wait=True, cancel_futures=True)
            raise

    def _settle(
        self,
        done: Future[pa.Table],
        attempt: tuple[FileRange, int],
        waiting: list[tuple[FileRange, int]],
        finished: Finished,
    ) -> Iterator[tuple[FileRange, pa.Table]]:
        piece, tried = attempt
        try:
            table = done.result()
        except (StoreError, OSError, BrokenProcessPool) as error:
            if tried < TRIES:
                waiting.append((piece, tried + 1))
                return
            reason = "its process died (out of memory?)" if isinstance(error, BrokenProcessPool) else str(error)
            self.failed.append(FailedSlice(piece, reason))
        else:
            yield piece, table
        finished(piece)


def run_slice(operation: Operation, piece: FileRange) -> pa.Table:
    """Return the whole result of OPERATION on one slice."""
    return pa.Table.from_batches(operation.run(piece), schema=operation.schema)
