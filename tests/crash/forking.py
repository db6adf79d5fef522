"""A process that runs command lines in children of its own and kills them at a step: ``python -m tests.crash.forking``.

It reads lines of JSON, [step, arguments], and answers each with the child's wait status. It opens no database itself: RocksDB's
threads, once they run, are missing in children, which then wait for them for ever.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STEPS = ("open", "replace", "unlink", "fsync", "mkdir", "rmdir", "chown", "fchown", "chmod", "fchmod")
"""Calls that change files, or make a change last; of ``open`` those that create."""

_open = os.open
KillAt = Callable[[int, list[str]], bool]


@contextmanager
def forking_server() -> Iterator[KillAt]:
    """Hand out a function that runs a command line, killed before the given step, and returns whether it died.

    Whoever did not die must have ended with exit code 0.
    """
    root = Path(__file__).resolve().parent.parent.parent
    command = [sys.executable, "-m", "tests.crash.forking"]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin
        assert server.stdout

        def kill_at(step: int, arguments: list[str]) -> bool:
            assert server.stdin
            assert server.stdout
            server.stdin.write(json.dumps([step, arguments]) + "\n")
            server.stdin.flush()
            status = json.loads(server.stdout.readline())
            if os.WIFSIGNALED(status):
                return True
            assert os.WEXITSTATUS(status) == 0
            return False

        yield kill_at
        server.stdin.close()


def _serve() -> None:

    import store.transfer.exports  # noqa: F401
    from pulsar_admin.cli import run

    for line in sys.stdin:
        step, arguments = json.loads(line)
        child = os.fork()
        if not child:
            os.dup2(2, 1)
            left = [step]
            for name in STEPS:
                setattr(os, name, _counting(getattr(os, name), left))
            os._exit(run(arguments))
        print(os.waitpid(child, 0)[1], flush=True)


def _counting(original: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    def counted(*arguments: Any, **options: Any) -> Any:
        if original is not _open or arguments[1] & os.O_CREAT:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)

    return counted


if __name__ == "__main__":
    _serve()
