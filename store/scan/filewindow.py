"""A part of a file in memory, moved along by the reader of the file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from store.errors import SourceChanged
from store.pace import PACE, ColdPages

WINDOW_BYTES = 8 << 20


class FileWindow:
    """A part of a file in memory: ``data`` are its bytes from ``base`` on; records that begin behind ``stop`` are not wanted."""

    def __init__(self, file: Any, stop: int, file_bytes: int, cold: ColdPages | None = None) -> None:
        """COLD: what of the file is dropped from the page cache when the window moves on."""
        self._cold = cold
        self.file = file
        self.stop = stop
        self.file_bytes = file_bytes
        self.base = 0
        self.read_bytes = 0  # also those read again
        self._buffer = np.empty(WINDOW_BYTES, np.uint8)
        self.data = self._buffer[:0]

    def move_to(self, offset: int) -> None:
        """Make OFFSET lie in the window, reading on unless it already does."""
        if not self.base <= offset < self.base + len(self.data):
            self._fill(offset)

    def widen(self, offset: int) -> None:
        """Read from OFFSET on; a second time at the same place reads twice as much."""
        if offset == self.base and len(self.data) == len(self._buffer):
            self._buffer = np.empty(2 * len(self._buffer), np.uint8)
        self._fill(offset)

    def cover(self, start: int, end: int) -> None:
        """Make the bytes from START to END lie in the window."""
        if self.base <= start and end <= self.base + len(self.data):
            return
        if end - start > len(self._buffer):
            self._buffer = np.empty(end - start, np.uint8)
        self._fill(start)

    def _fill(self, offset: int) -> None:
        if self._cold is not None:
            self._cold.drop(self.base, min(self.base + len(self.data), offset))
        wanted = min(len(self._buffer), self.file_bytes - offset)
        read_into(memoryview(self._buffer.data)[:wanted], self.file, offset)
        self.read_bytes += wanted
        self.base, self.data = offset, self._buffer[:wanted]


def read_into(view: memoryview, file: Any, offset: int) -> None:
    """Fill VIEW with the bytes of FILE from OFFSET on; raises SourceChanged when there are not so many any more."""
    got = 0
    while got < len(view):
        count = os.preadv(file.fileno(), [view[got : got + PACE.step_bytes]], offset + got)
        PACE.take(count)
        if count == 0:
            raise SourceChanged(
                f"{file.name} became shorter while it was read: wanted bytes up to {offset + len(view)}, found {offset + got}",
                hint="run it again when nothing writes there",
            )
        got += count


def close_together(places: Iterator[tuple[int, int]], most: int) -> Iterator[list[tuple[int, int]]]:
    """Yield PLACES in lists of MOST at most that fit into a window, but for a record that is larger."""
    found: list[tuple[int, int]] = []
    for offset, size in places:
        if found and (len(found) == most or offset + 4 + size > found[0][0] + WINDOW_BYTES):
            yield found
            found = []
        found.append((offset, size))
    if found:
        yield found
