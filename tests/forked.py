"""Command lines in children of this process: as processes of their own, which need not import everything again."""

import os
import sys
from collections.abc import Callable, Sequence

from pulsar_admin.cli import run
from pulsar_admin.errors import BUG


def start_line(arguments: Sequence[str], streams: Sequence[int], prepare: Callable[[], object]) -> int:
    """Run a command line in a child, on STREAMS (stdin, stdout, stderr) and after PREPARE; return its process id."""
    child = os.fork()
    if child:
        return child
    code = BUG
    try:
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        with (
            open(0, closefd=False) as sys.stdin,
            open(1, "w", closefd=False) as sys.stdout,
            open(2, "w", buffering=1, errors="backslashreplace", closefd=False) as sys.stderr,
        ):
            prepare()
            code = run(arguments)
    finally:
        os._exit(code)
