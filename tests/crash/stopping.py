"""A process of ours that stops (SIGSTOP) at a chosen step on a directory, while another one works there."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

_EVENTS = frozenset(
    {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.listdir", "fcntl.flock"}
)


class Stopped:
    """WORK in a child that stops before its NUMBER-th step (from 0) below FOLDER; ``ended`` when it had no such step."""

    def __init__(self, work: Callable[[], int], folder: Path, number: int) -> None:
        self._process_id = os.fork()
        if self._process_id == 0:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            _stop_at(folder, number)
            os._exit(work())
        _, self._status = os.waitpid(self._process_id, os.WUNTRACED)

    @property
    def ended(self) -> bool:
        return not os.WIFSTOPPED(self._status)

    def go_on(self) -> int:
        """Let the child run to its end; return its exit code, negative for the signal that killed it."""
        if not self.ended:
            os.kill(self._process_id, signal.SIGCONT)
            _, self._status = os.waitpid(self._process_id, 0)
        return os.waitstatus_to_exitcode(self._status)


def _stop_at(folder: Path, number: int) -> None:
    """Stop this process before its NUMBER-th step below FOLDER that makes, opens, names, locks or removes something."""
    left = number

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event not in _EVENTS:
            return
        place = arguments[0]
        if event != "fcntl.flock" and not (isinstance(place, (str, bytes, Path)) and _is_below(place, folder)):
            return
        left -= 1
        if left == -1:
            os.kill(os.getpid(), signal.SIGSTOP)

    sys.addaudithook(watch)


def _is_below(place: str | bytes | Path, folder: Path) -> bool:
    return Path(os.fsdecode(place)).is_relative_to(folder)
