"""The local engine: one process a core, each running whole slices; failed slices are tried again, then listed."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from types import TracebackType

from msgspec import Struct, field

from pulsar_admin.store.engine.operation import FailedSlice, Finished, Operation, Results
from pulsar_admin.store.engine.packed import Packed, pack_slice, unpack_slice
from pulsar_admin.store.engine.processes import AHEAD, Task, Worker, start_worker
from pulsar_admin.store.engine.slices import FileRange

TRIES = 2


class LocalEngine(Struct):
    """Runs operations on this machine. ``failed`` lists the slices without a result after a run.

    Its processes stay for the next run, until ``close`` or the end of the ``with`` block.
    """

    jobs: int = 0  # 0: one a core
    memory_bytes: int | None = None  # of each process
    failed: list[FailedSlice] = field(default_factory=list)
    _idle: list[Worker] = field(default_factory=list)
    _busy: list[Worker] = field(default_factory=list)

    @property
    def most_jobs(self) -> int:
        """Processes to use at most."""
        return self.jobs or len(os.sched_getaffinity(0))

    def run(self, operation: Operation, pieces: Sequence[FileRange], finished: Finished) -> Results:
        """Yield (slice, its result) as slices end; FINISHED is told each slice that ended, well or not."""
        jobs = min(self.most_jobs, len(pieces))
        if jobs <= 1:
            yield from self._run_here(operation, pieces, finished)
        else:
            yield from self._run_in_processes(operation, pieces, finished, jobs)

    def close(self) -> None:
        """End its processes, also those at work."""
        for worker in self._idle + self._busy:
            worker.kill()
        self._idle.clear()
        self._busy.clear()

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run_here(self, operation: Operation, pieces: Sequence[FileRange], finished: Finished) -> Results:
        for piece in pieces:
            packed = pack_slice(operation, piece)
            if packed.result is None:
                packed = pack_slice(operation, piece)
            yield from self._settle(operation, piece, packed)
            finished(piece)

    def _settle(self, operation: Operation, piece: FileRange, packed: Packed) -> Results:
        if packed.result is None:
            self.failed.append(FailedSlice(piece, packed.reason or "", packed.out_of_memory))
        else:
            yield piece, unpack_slice(operation, packed.result)

    def _run_in_processes(
        self, operation: Operation, pieces: Sequence[FileRange], finished: Finished, jobs: int
    ) -> Results:
        waiting = deque(Task(piece) for piece in pieces)
        team: list[Worker] = []
        try:
            while waiting or any(worker.tasks for worker in team):
                self._hand_out(operation, waiting, team, jobs)
                for task, packed in self._hear(team, waiting):
                    yield from self._settle(operation, task.piece, packed)
                    finished(task.piece)
        finally:
            self._release(team)

    def _hand_out(self, operation: Operation, waiting: deque[Task], team: list[Worker], jobs: int) -> None:
        """Give WAITING to the processes of TEAM that can take more, one after the other."""
        while len(team) < min(jobs, len(waiting)):
            team.append(self._idle.pop() if self._idle else start_worker(self.memory_bytes))
            self._busy.append(team[-1])
        for worker in team * AHEAD:
            if waiting and worker in team and worker.can_take(waiting[0]):
                self._give(worker, operation, waiting, team)

    def _give(self, worker: Worker, operation: Operation, waiting: deque[Task], team: list[Worker]) -> None:
        try:
            worker.give(operation, waiting[0])
        except OSError:  # it died; of what it has, its pipe tells
            if not worker.tasks:
                self._lose(worker, team, waiting)
        else:
            waiting.popleft()

    def _hear(self, team: list[Worker], waiting: deque[Task]) -> Iterator[tuple[Task, Packed]]:
        """Yield what TEAM ended, with the answers, except what is tried again."""
        by_pipe = {id(worker.connection): worker for worker in team if worker.tasks}
        for connection in wait([worker.connection for worker in by_pipe.values()]):
            worker = by_pipe[id(connection)]
            try:
                task, packed = worker.answer()
            except (EOFError, OSError):
                yield from self._lose(worker, team, waiting)
                continue
            task.tried += 1
            if packed.result is None and task.tried < TRIES:
                waiting.append(task)
            else:
                yield task, packed

    def _lose(self, worker: Worker, team: list[Worker], waiting: deque[Task]) -> list[tuple[Task, Packed]]:
        """Drop a process that died. What it had is tried again, each alone; return what was alone in it: that is its fault."""
        team.remove(worker)
        self._busy.remove(worker)
        reason = worker.end()
        lost = [(task, Packed(None, reason)) for task in worker.tasks if task.alone]
        waiting.extend(Task(task.piece, task.tried + 1, alone=True) for task in worker.tasks if not task.alone)
        return lost

    def _release(self, team: list[Worker]) -> None:
        """Keep the processes of TEAM that have nothing to do; end those that still run what nobody waits for."""
        for worker in [worker for worker in team if worker in self._busy]:
            self._busy.remove(worker)
            if worker.tasks:
                worker.kill()
            else:
                self._idle.append(worker)
