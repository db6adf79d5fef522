"""A process that runs command lines in children of its own, each disturbed in its own way: ``python -m tests.crash.forking``.

It imports the tool once. Its one argument names a module here with a function ``prepare(setting)``; it reads lines of JSON,
[setting, arguments], and for each forks a child that prepares itself, then runs the command line; it answers with the child's
wait status. It opens no database itself: RocksDB's threads, once they run, are missing in children, which then wait for them
for ever.
"""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
RunChild = Callable[[Any, list[str]], int]
"""Takes a setting and the arguments of a command line; returns the exit code, negative for the signal that killed it."""


@contextmanager
def forking_server(module: str) -> Iterator[RunChild]:
    """Hand out a function that runs a command line in a child that the MODULE of this package prepared."""
    command = [sys.executable, "-P", "-m", "tests.crash.forking", module]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin
        assert server.stdout

        def run_child(setting: Any, arguments: list[str]) -> int:
            assert server.stdin
            assert server.stdout
            server.stdin.write(json.dumps([setting, arguments]) + "\n")
            server.stdin.flush()
            return os.waitstatus_to_exitcode(json.loads(server.stdout.readline()))

        yield run_child
        server.stdin.close()


def _serve(module: str) -> None:
    prepare = importlib.import_module(f"tests.crash.{module}").prepare
    from pulsar_admin.cli import run
    from tests.warming import import_commands, load_kernels

    import_commands()
    if module == "slices":  # whose children scan
        load_kernels()
    for line in sys.stdin:
        setting, arguments = json.loads(line)
        child = os.fork()
        if not child:
            os.dup2(2, 1)
            prepare(setting)
            os._exit(run(arguments))
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
