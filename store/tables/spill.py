"""Rows of numbers sorted on disk, for what a store may have a thousand million of."""

from __future__ import annotations

import os
import tempfile
from array import array
from collections.abc import Iterator
from heapq import merge
from operator import itemgetter
from pathlib import Path
from types import TracebackType

import numpy as np

from store.files import raise_write_error

RUN_ROWS = 1 << 20
_READ_ROWS = 256
"""So many rows of each run are held while runs are merged: a thousand runs are some tens of megabytes."""


class SortedSpill:
    """Rows of WIDTH signed 64-bit numbers, sorted by the first; those with the same first come in the order they were added.

    RUN_ROWS of them are in memory; each such run is sorted and lies in a temporary file, and reading merges the runs.
    """

    def __init__(self, width: int, run_rows: int = RUN_ROWS) -> None:
        self._width, self._most = width, run_rows * width
        self._held = array("q")
        self._file = tempfile.TemporaryFile(prefix="pulsar-admin-sort-")  # noqa: SIM115 — closed in __exit__
        self._runs: list[tuple[int, int]] = []  # first row, end

    def add(self, *row: int) -> None:
        """Take a row. Raises DiskFull."""
        self._held.extend(row)
        if len(self._held) >= self._most:
            self._spill()

    def _spill(self) -> None:
        rows = np.frombuffer(self._held, np.int64).reshape(-1, self._width)
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        start = self._runs[-1][1] if self._runs else 0
        try:
            self._file.write(rows.tobytes())
            self._file.flush()
        except OSError as error:
            raise_write_error(error, Path(tempfile.gettempdir()))
        self._runs.append((start, start + len(rows)))
        self._held = array("q")

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        """Yield every row; none may be added after."""
        if self._held:
            self._spill()
        return merge(*(self._read(start, end) for start, end in self._runs), key=itemgetter(0))

    def _read(self, start: int, end: int) -> Iterator[tuple[int, ...]]:
        row_bytes = 8 * self._width
        for first in range(start, end, _READ_ROWS):
            count = min(_READ_ROWS, end - first)
            raw = os.pread(self._file.fileno(), count * row_bytes, first * row_bytes)
            yield from map(tuple, np.frombuffer(raw, np.int64).reshape(count, self._width).tolist())

    def __enter__(self) -> SortedSpill:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
