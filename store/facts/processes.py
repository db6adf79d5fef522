"""Spreading work on many topics over processes.

LMDB environments do not survive a fork: each process opens the store again, and answers only from the transaction that this process
reads.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from pickle import dumps
from threading import active_count
from typing import Any, Generic, Self, TypeVar

from msgspec import Struct

from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.file import DATA_FILE
from pulsar_admin.store.errors import NotWritable, StoreError
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.pace import PACE

Part = TypeVar("Part")
Result = TypeVar("Result")
MANY_NODES = 400_000
"""Metadata nodes from which on a process is worth what it takes to start, 0.3 s of processor time."""
FORKED_BYTES = range(12 << 20, 32 << 20)
"""Sizes of a store's database, of some 6,000 to 16,000 topics, at which one is worth it that was forked before the store was opened: it
saves a quarter of the time, which costs a third of processor time more. For more topics, 0.2 ms of that a topic would be too little."""
_READY: list[tuple[Connection, Any]] = []  # Any: of multiprocessing
_AHEAD = 2  # parts given to a process at once: it never waits for the next one


def processes_that_pay(txn: Txn, most: int) -> int:
    """Return how many processes to use for a pass over all topics, at most ``most`` (0: one per core); 0 if only this one is to be used."""
    most = most or len(os.sched_getaffinity(0))
    is_small = not txn.is_snapshot or txn.count("tree") < MANY_NODES
    return 0 if most < 2 or is_small or PACE.is_limited else most


def others_that_pay(txn: Txn, most: int) -> int:
    """Return how many of ``processes_that_pay`` to run besides this process, which works too; at least those already started."""
    return max(processes_that_pay(txn, most) - 1, len(_READY))


@contextmanager
def process_ready(path: Path, most: int) -> Iterator[None]:
    """Start a process for the first ``Spread`` in this block if the store at ``path``, not open yet, is of a size where that pays."""
    size_bytes = 0
    with suppress(OSError):
        size_bytes = (path / "meta" / DATA_FILE).stat().st_size
    cores = most or len(os.sched_getaffinity(0))
    if size_bytes in FORKED_BYTES and cores > 1 and active_count() == 1 and not PACE.is_limited:
        from pulsar_admin.store.engine.starting import fork_process  # of few stores

        with suppress(OSError):
            _READY.append(fork_process(_serve))
    try:
        yield
    finally:
        while _READY:
            _end(*_READY.pop())


class Spread(Generic[Part, Result]):
    """Does ``work`` on each of ``parts`` in ``processes`` other processes, and yields what it returns in the order of ``parts``::

        with Spread(reader, work, parts, processes_that_pay(reader.txn, most)) as results:
            for result in results: ...

    ``work`` is a module-level function (no lambda, no method). It gets a reader of the same snapshot, without the contents of this one's
    ``txn.memo`` and without keys, and a part. Parts and results are pickled: give each process several parts of a second or so, and return
    sums rather than rows. The processes work from the beginning of the block on, a few parts ahead of the caller; each gets ``first`` parts
    at the beginning. Instead of waiting, this process does a part itself. The processes end with the block, however it ends. Only this
    process gets Ctrl-C. A part must be small: while this process waits for room in the pipe, it takes no answers.

    This process does a part, when its turn comes, if no other does: with ``processes`` 0; if a process was killed or cannot be started; if
    one finds another transaction than that of ``reader``, or another file (the program changed its directory, or the store was replaced);
    and if ``work`` raises a StoreError, which is then raised here.
    """

    def __init__(
        self,
        reader: EntryReader,
        work: Callable[[EntryReader, Part], Result],
        parts: Sequence[Part],
        processes: int,
        first: int = _AHEAD,
    ) -> None:
        self._reader, self._work, self._parts = reader, work, list(parts)
        self._processes, self._first = processes, first
        self._team: list[_Helper] = []
        self._next = 0
        """The first part that no process was given."""
        self._done: dict[int, Result] = {}

    def __enter__(self) -> Self:
        self.extend(())
        return self

    def extend(self, parts: Iterable[Part]) -> None:
        """Add parts, while the processes work on earlier ones."""
        self._parts += parts
        txn = self._reader.txn
        with suppress(NotWritable):  # none can be started: all is done here
            while len(self._team) < min(self._processes, len(self._parts)):
                self._team.append(_Helper(txn.store.path, _snapshot_of(txn), self._work))
        self._hand_out(0, self._first)

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """End the processes, and free their memory."""
        for helper in self._team:
            helper.kill()
        self._team.clear()

    def __iter__(self) -> Iterator[Result]:
        for index, part in enumerate(self._parts):
            self._hand_out(index)
            while index not in self._done and any(index in helper.given for helper in self._team):
                is_answered = any(helper.given and helper.connection.poll() for helper in self._team)
                if is_answered or not self._work_ahead(index):
                    self._hear()
            yield self._done.pop(index) if index in self._done else self._work(self._reader, part)

    def _work_ahead(self, asked: int) -> bool:
        """Work on the next unassigned part instead of waiting, if it comes soon after the part ``asked``; return whether it does."""
        index = self._next
        if index >= self._end_of_near(asked):
            return False
        self._next += 1
        with suppress(StoreError):  # it is raised when the part is asked for
            self._done[index] = self._work(self._reader, self._parts[index])
        return True

    def _end_of_near(self, asked: int) -> int:
        return min(len(self._parts), asked + self._first * len(self._team) + 2)

    def _hand_out(self, asked: int, ahead: int = _AHEAD) -> None:
        """Send parts to the processes that have fewer than ``ahead``, up to a few parts after the part ``asked``."""
        self._next = max(self._next, asked if not self._team else self._next)
        for helper in [*self._team] * ahead:
            if self._next < self._end_of_near(asked) and helper in self._team and len(helper.given) < ahead:
                try:
                    helper.give(self._next, self._parts[self._next])
                except OSError:
                    self._lose(helper)
                else:
                    self._next += 1

    def _hear(self) -> None:
        """Wait for an answer from any process, and collect all that have arrived."""
        by_pipe = {id(helper.connection): helper for helper in self._team if helper.given}
        for connection in wait([helper.connection for helper in by_pipe.values()]):
            helper = by_pipe[id(connection)]
            try:
                is_answer, result = helper.connection.recv()
            except (EOFError, OSError):
                self._lose(helper)
                continue
            index = helper.given.popleft()
            if is_answer:
                self._done[index] = result

    def _lose(self, helper: _Helper) -> None:
        self._team.remove(helper)
        helper.kill()


class _Snapshot(Struct, frozen=True):
    """A store's file and its transaction number, which alone proves nothing: all fresh imports have the same one."""

    file: tuple[int, int]
    transaction: int


def _snapshot_of(txn: Txn) -> _Snapshot:
    return _Snapshot(txn.store.file, txn.id)


class _Helper:
    """A process, and the indexes of the parts sent to it and not answered yet, in order."""

    def __init__(self, path: Path, expected: _Snapshot, work: Callable[..., object]) -> None:
        from pulsar_admin.store.engine.starting import start_process  # of few stores

        self.connection, self._process = _READY.pop() if _READY else start_process(_serve)
        self.connection.send((path, expected, work))
        self.given = deque[int]()

    def give(self, index: int, part: object) -> None:
        """Hand a part over; raises OSError when the process is gone."""
        self.connection.send(part)
        self.given.append(index)

    def kill(self) -> None:
        """End the process at once."""
        _end(self.connection, self._process)


def _end(connection: Connection, process: Any) -> None:  # Any: of multiprocessing
    process.kill()
    process.join()
    connection.close()


def _serve(connection: Connection) -> None:
    """Run in a process: receive the store and the function, then answer every part that is sent until the pipe is closed."""
    from concurrent.futures import ThreadPoolExecutor  # who asks needs none

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    path: Path
    expected: _Snapshot
    work: Callable[[EntryReader, Any], object]  # Any: parts and answers are the caller's own
    try:
        path, expected, work = connection.recv()
    except (EOFError, OSError):
        return
    with (
        ThreadPoolExecutor(1) as sender,
        suppress(EOFError, OSError, MemoryError, StoreError),
        open_store(path) as store,
        open_reader(store) as reader,
    ):
        while True:
            part = connection.recv()
            answer: tuple[bool, object] = False, None
            if _snapshot_of(reader.txn) == expected:
                with suppress(StoreError):
                    answer = True, work(reader, part)
            # While this waits for who asked, who does a part, the next one is done here.
            sender.submit(_send, connection, dumps(answer))


def _send(connection: Connection, answer: bytes) -> None:
    """Send an answer; if that fails, kill this process, because its parent would wait for the answer forever."""
    try:
        connection.send_bytes(answer)
    except (OSError, MemoryError):
        signal.raise_signal(signal.SIGKILL)
