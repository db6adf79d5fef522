"""Kill a process before the step of a number, of those that change files: for children of ``tests.crash.forking``."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pulsar_admin.store.transfer.exports  # noqa: F401 - once, not in each child

STEPS = ("open", "replace", "unlink", "fsync", "mkdir", "rmdir", "chown", "fchown", "chmod", "fchmod")
"""Calls that change files, or make a change last; of ``open`` those that create."""

_open = os.open


def prepare(step: int) -> None:
    """Kill this process before the STEP-th of its steps from now on."""
    left = [step]
    for name in STEPS:
        setattr(os, name, _counting(getattr(os, name), left))


def _counting(original: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    def counted(*arguments: Any, **options: Any) -> Any:
        if original is not _open or arguments[1] & os.O_CREAT:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)

    return counted
