"""The pager for output, if ``--pager`` asks for one and stdout is a terminal."""

from __future__ import annotations

import shlex
import subprocess
from contextlib import suppress
from typing import Any, TextIO, cast


class Pager:
    """The running pager as the stream that output goes to; it is the terminal still."""

    encoding = "utf-8"

    def __init__(self, command: str) -> None:
        """Start the pager; raises OSError and ValueError if it cannot be started."""
        self._process = subprocess.Popen(
            shlex.split(command), stdin=subprocess.PIPE, encoding=self.encoding, errors="backslashreplace"
        )
        assert self._process.stdin is not None
        self._stdin = self._process.stdin

    @property
    def stream(self) -> TextIO:
        """The stream to write to."""
        return cast(TextIO, self)

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return self._stdin.write(text)

    def flush(self) -> None:
        self._stdin.flush()

    def fileno(self) -> int:
        return self._stdin.fileno()

    def close(self) -> None:
        """Wait until the user has left the pager; Ctrl-C is the pager's."""
        with suppress(BrokenPipeError):
            self._stdin.close()
        while self._process.returncode is None:
            with suppress(KeyboardInterrupt):
                self._process.wait()

    def __getattr__(self, name: str) -> Any:  # Any: whatever else a stream has
        return getattr(self._stdin, name)
