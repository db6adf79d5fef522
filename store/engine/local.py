"""The local engine: one process per core, each running whole slices; failed slices are tried again, then listed.

Each process has a pipe to its parent, and ends when the pipe is closed. A terminal sends Ctrl-C to all processes: these
ignore it, and the parent ends them. If a process dies (out of memory, killed), only the slices given to it are
affected.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from pulsar_admin.store.engine.memory import bound_process
from pulsar_admin.store.engine.operation import (
    FailedSlice,
    Finished,
    Operation,
    Packed,
    Reducing,
    Results,
    pack_slice,
    unpack_slice,
)
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.engine.starting import start_process

if TYPE_CHECKING:
    import pyarrow as pa

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
    def slots(self) -> int:
        """The maximum number of processes."""
        return self.jobs or len(os.sched_getaffinity(0))

    @property
    def merges(self) -> bool:
        """False: the caller merges the rows."""
        return False

    def meet(self, pieces: Sequence[FileRange]) -> None:
        """Do nothing: local processes can read every file that this one can."""

    def run(self, operation: Operation, pieces: Sequence[FileRange], finished: Finished) -> Results:
        """Yield (slice, its result) as slices end; ``finished`` is called for each slice that ends or fails.

        If another run uses all processes, the slices run in this one.
        """
        jobs = min(self.slots - len(self._busy), len(pieces))
        if jobs <= 1:
            for piece in pieces:
                packed = pack_slice(operation, piece)
                if packed.result is None:
                    packed = pack_slice(operation, piece)
                yield from self._settle(operation, piece, packed)
                finished(piece)
        else:
            yield from self._run_in_processes(operation, pieces, finished, jobs)

    def reduce(
        self, operation: Reducing, pieces: Sequence[FileRange], finished: Finished, merged_by: Mapping[str, int]
    ) -> Iterator[pa.Table]:
        """Yield the rows of all slices, not merged."""
        for _, table in self.run(operation, pieces, finished):
            yield table
            del table  # the consumer of its rows frees it

    def close(self) -> None:
        """End the engine's processes, also busy ones."""
        for worker in self._idle + self._busy:
            worker.kill()
        self._idle.clear()
        self._busy.clear()

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

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
            # What has nothing to do stays for the next run; what nobody waits for ends.
            for worker in [worker for worker in team if worker in self._busy]:
                self._busy.remove(worker)
                if worker.tasks:
                    worker.kill()
                else:
                    self._idle.append(worker)

    def _hand_out(self, operation: Operation, waiting: deque[Task], team: list[Worker], jobs: int) -> None:
        """Give waiting slices to processes with room for more, in turn."""
        while len(team) < min(jobs, len(waiting)):
            team.append(self._idle.pop() if self._idle else start_worker(self.memory_bytes))
            self._busy.append(team[-1])
        for worker in team * AHEAD:
            if waiting and worker in team and worker.can_take(waiting[0]):
                try:
                    worker.give(operation, waiting[0])
                except OSError:  # it died; of what it has, its pipe tells
                    if not worker.tasks:
                        self._lose(worker, team, waiting)
                else:
                    waiting.popleft()

    def _hear(self, team: list[Worker], waiting: deque[Task]) -> Iterator[tuple[Task, Packed]]:
        """Wait for results; yield (slice, its result), and put slices to be retried back into ``waiting``."""
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
        """Drop a process that died. Its slices are retried, each in a process of its own; return the failure of a slice
        that already was alone in the process."""
        team.remove(worker)
        self._busy.remove(worker)
        reason = worker.end()
        lost = [(task, Packed(None, reason)) for task in worker.tasks if task.alone]
        waiting.extend(Task(task.piece, task.tried + 1, alone=True) for task in worker.tasks if not task.alone)
        return lost


Given = tuple[Operation | None, FileRange] | None
"""What a process is told: an operation where it is another than before, and a slice; None: there is no more."""
AHEAD = 2  # slices given to a process at once: enough to keep it busy, few enough to bound what waits there


class Task(Struct):
    """A slice to run; ``tried``: number of attempts so far; ``alone``: run it alone, as a process with it died."""

    piece: FileRange
    tried: int = 0
    alone: bool = False


class Worker(Struct):
    """One process, and the tasks given to it, in the order of its answers."""

    connection: Connection
    process: Any  # Any: multiprocessing's process of the start method
    tasks: deque[Task] = field(default_factory=deque)
    _operation: Operation | None = None

    def can_take(self, task: Task) -> bool:
        """Whether a task may be given to this process now; one that may have killed a process gets its own."""
        if not self.tasks:
            return True
        return len(self.tasks) < AHEAD and not task.alone and not self.tasks[0].alone

    def give(self, operation: Operation, task: Task) -> None:
        """Hand a task over; raises OSError when the process is gone."""
        self.connection.send((None if operation is self._operation else operation, task.piece))
        self._operation = operation
        self.tasks.append(task)

    def answer(self) -> tuple[Task, Packed]:
        """Return the next task and its answer; raises EOFError or OSError when the process is gone."""
        reason, out_of_memory = self.connection.recv()
        result = self.connection.recv_bytes() if reason is None else None
        return self.tasks.popleft(), Packed(result, reason, out_of_memory)

    def end(self) -> str:
        """Kill the process if it runs; return how it ended if it had ended by itself."""
        self.connection.close()
        self.process.join(0.5)  # a process that died is not always reaped when its pipe is closed
        code = self.process.exitcode
        self.process.kill()
        self.process.join()
        if code is not None and code < 0:
            return f"its process was killed by {signal.Signals(-code).name} (out of memory?)"
        return f"its process ended with exit code {code}"

    def kill(self) -> None:
        """End the process at once."""
        self.process.kill()
        self.process.join()
        self.connection.close()


def start_worker(memory_bytes: int | None) -> Worker:
    """Start a process that runs slices in this much memory."""
    return Worker(*start_process(_serve, memory_bytes))


def _serve(connection: Connection, memory_bytes: int | None) -> None:
    """Run the tasks that arrive until the pipe is closed. Two threads read and write it while a task runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if memory_bytes is not None:
        bound_process(memory_bytes)
    tasks: SimpleQueue[Given] = SimpleQueue()
    answers: SimpleQueue[Packed] = SimpleQueue()
    Thread(target=_receive, args=(connection, tasks), daemon=True).start()
    Thread(target=_send, args=(connection, answers), daemon=True).start()
    operation: Operation | None = None
    while (task := tasks.get()) is not None:
        changed, piece = task
        operation = operation if changed is None else changed
        assert operation is not None
        answers.put(pack_slice(operation, piece))


def _receive(connection: Connection, tasks: SimpleQueue[Given]) -> None:
    with suppress(EOFError, OSError, MemoryError):
        while True:
            tasks.put(connection.recv())
    tasks.put(None)  # nobody waits for an answer any more


def _send(connection: Connection, answers: SimpleQueue[Packed]) -> None:
    try:
        while True:
            packed = answers.get()
            connection.send((packed.reason, packed.out_of_memory))
            if packed.result is not None:
                connection.send_bytes(packed.result)
    except (OSError, MemoryError):
        signal.raise_signal(signal.SIGKILL)  # who asked would wait for the answer without end
