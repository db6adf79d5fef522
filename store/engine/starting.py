"""Starts processes with pipes, which Ctrl-C does not reach. It imports little, so a process loads only what it runs."""

import multiprocessing
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from pulsar_admin.store.errors import NotWritable


def start_process(target: Callable[..., None], *arguments: object) -> tuple[Connection, Any]:
    """Start a process that runs ``target`` with one end of a pipe and the arguments; return the other end and the process.

    Raises NotWritable if none can be started: a limit of open files or of processes was met, or there is no place for a socket.
    """
    context = multiprocessing.get_context("forkserver")
    with ExitStack() as opened, _without_interrupts():
        try:
            ours, theirs = map(opened.enter_context, context.Pipe())
            process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
            process.start()
        except (OSError, EOFError) as error:  # EOFError: the server could not fork, and ended
            raise NotWritable(
                "processes cannot be started: "
                f"{error.strerror if isinstance(error, OSError) else 'the system does not allow it'}",
                hint="allow more open files and processes (ulimit -n, ulimit -u), or give --jobs 1",
            ) from error
        opened.pop_all()
    theirs.close()
    return ours, process


def fork_process(target: Callable[..., None]) -> tuple[Connection, Any]:
    """Do as ``start_process`` by forking, which is cheap; this process must have one thread and no open store."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def run() -> None:
        ours.close()  # else the copy would not see that this process ended
        target(theirs)

    process = context.Process(target=run, daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
    return ours, process


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start the server from which processes are forked with SIGINT blocked, which they inherit; SIGINT is delayed here
    meanwhile: of a process that is forked and gets no arguments, Python prints a traceback.

    Raises NotWritable if its socket cannot be made: a system allows about 100 bytes for a socket's path.
    """
    resource_tracker.ensure_running()  # it would unblock the signal
    before, came = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}), list[int]()
    is_main = threading.current_thread() is threading.main_thread()
    # Another thread, which does not block it, gets it for the main one.
    handler = signal.signal(signal.SIGINT, lambda number, frame: came.append(number)) if is_main else None
    try:
        try:
            forkserver.ensure_running()
        except OSError as error:
            where = tempfile.tempdir or "any directory"  # none that can be written
            raise NotWritable(
                f"processes cannot be started: no socket can be created below {where}: {error.strerror or error}",
                hint="set TMPDIR to a short path of a directory that can be written, such as /tmp, or give --jobs 1",
                path=where,
            ) from error
        yield
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if came:
            signal.raise_signal(signal.SIGINT)
