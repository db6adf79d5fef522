"""Processes that run slices: each has a pipe to its parent, and ends when that is closed.

They never see Ctrl-C, which a terminal sends to everybody: who started them hears it, and ends them. A process that dies (out of
memory, killed) takes with it only what it was given.
"""

from __future__ import annotations

import signal
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import Any

from msgspec import Struct, field

from pulsar_admin.store.engine.memory import bound_process
from pulsar_admin.store.engine.operation import Operation
from pulsar_admin.store.engine.packed import Packed, pack_slice
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.engine.starting import start_process

Given = tuple[Operation | None, FileRange] | None
"""What a process is told: an operation where it is another than before, and a slice; None: there is no more."""
AHEAD = 2  # slices given to a process at once: enough to keep it busy, few enough to bound what waits there


class Task(Struct):
    """A slice to run; ``tried``: how often it was; ``alone``: a process that had it died."""

    piece: FileRange
    tried: int = 0
    alone: bool = False


class Worker(Struct):
    """One process, and what it was given, in the order in which its answers come."""

    connection: Connection
    process: Any  # Any: multiprocessing's process of the start method
    tasks: deque[Task] = field(default_factory=deque)
    _operation: Operation | None = None

    def can_take(self, task: Task) -> bool:
        """Whether TASK may be given to it now: one that is suspected of killing has a process for itself."""
        if not self.tasks:
            return True
        return len(self.tasks) < AHEAD and not task.alone and not self.tasks[0].alone

    def give(self, operation: Operation, task: Task) -> None:
        """Hand TASK over; raises OSError when the process is gone."""
        self.connection.send((None if operation is self._operation else operation, task.piece))
        self._operation = operation
        self.tasks.append(task)

    def answer(self) -> tuple[Task, Packed]:
        """Return the next task and its answer; raises EOFError or OSError when the process is gone."""
        reason, out_of_memory = self.connection.recv()
        result = self.connection.recv_bytes() if reason is None else None
        return self.tasks.popleft(), Packed(result, reason, out_of_memory)

    def end(self) -> str:
        """End the process at once, whatever it does; return how it ended, when it had ended by itself."""
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
    """Start a process that runs slices in MEMORY_BYTES."""
    return Worker(*start_process(_serve, memory_bytes))


def _serve(connection: Connection, memory_bytes: int | None) -> None:
    """Run what comes, until the pipe is closed. Two threads keep it moving while the other side is busy."""
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
    with suppress(EOFError, OSError):
        while True:
            tasks.put(connection.recv())
    tasks.put(None)  # nobody waits for an answer any more


def _send(connection: Connection, answers: SimpleQueue[Packed]) -> None:
    with suppress(OSError):
        while True:
            packed = answers.get()
            connection.send((packed.reason, packed.out_of_memory))
            if packed.result is not None:
                connection.send_bytes(packed.result)
