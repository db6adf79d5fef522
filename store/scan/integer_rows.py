"""Rows of 64-bit integers in bounded memory: summed by their leading columns, or sorted, on disk if there are many.

This is the one external sort: sorted runs, written to a temporary file column by column, and merged, or searched, as they are read.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import IO, Any

import numpy as np
from msgspec import Struct

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.files import raise_temporary_error

Rows = np.ndarray[Any, Any]  # i64, two dimensions
Columns = tuple[Array, ...]  # of rows, all of one length


def runs_of(*columns: Array) -> Iterator[tuple[int, int]]:
    """Yield (first row, row after the last) of each run of rows that are equal in these columns."""
    if len(columns[0]):
        changes = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
        yield from pairwise([0, *(np.flatnonzero(changes) + 1).tolist(), len(columns[0])])


# -- sums --------------------------------------------------------------------------------------------------------------


def _grouped(rows: Rows, keys: int) -> Rows:
    """Return rows sorted by their first ``keys`` columns, one for each distinct key, the other columns summed."""
    if not len(rows):
        return rows
    rows = rows[np.lexsort(tuple(rows[:, column] for column in reversed(range(keys))))]
    starts = np.flatnonzero(np.append(True, (rows[1:, :keys] != rows[:-1, :keys]).any(axis=1)))
    summed: Rows = np.column_stack([rows[starts, :keys], np.add.reduceat(rows[:, keys:], starts)])
    return summed


class Sums:
    """Rows that are summed by their first ``keys`` columns as they come, in memory bounded by the number of distinct keys."""

    def __init__(self, keys: int, columns: int) -> None:
        self._keys = keys
        self._rows: Rows = np.zeros((0, keys + columns), np.int64)
        self._pending: list[Rows] = []
        self._pending_rows = 0

    def add(self, *columns: Rows | int) -> None:
        """Add rows given as columns; a single number stands for a constant column."""
        rows: Rows = np.column_stack(np.broadcast_arrays(*(np.atleast_1d(np.asarray(c, np.int64)) for c in columns)))
        self._pending.append(rows)
        self._pending_rows += len(rows)
        # Not before as many came as are held: so each row is sorted again only a logarithmic number of times.
        if self._pending_rows > max(1 << 18, len(self._rows)):
            self.rows()

    def __len__(self) -> int:
        """The number of rows in memory: at least the number of distinct keys."""
        return len(self._rows) + self._pending_rows

    def rows(self) -> Rows:
        """Return the sums so far, in key order."""
        if self._pending:
            self._rows = _grouped(np.concatenate([self._rows, *self._pending]), self._keys)
            self._pending, self._pending_rows = [], 0
        return self._rows

    def replace(self, rows: Rows) -> None:
        """Continue from these rows, in any order, instead of the current ones."""
        self._rows, self._pending, self._pending_rows = _grouped(rows, self._keys), [], 0


# -- sorted runs -------------------------------------------------------------------------------------------------------

RUN_ROWS = 1 << 20
_COLUMN_BYTES = 8
_LEAST_READ_ROWS = 256  # of each run while runs are merged: of a thousand runs they are some megabytes


class SortedRun(Struct, frozen=True):
    """Rows in the order of their first column: in memory, or as ``width`` consecutive columns in a file."""

    rows: int
    held: Columns = ()
    descriptor: int = -1
    offset: int = 0
    width: int = 0
    kind: np.dtype[Any] = np.dtype(np.int64)

    def read(self, start: int, end: int) -> Columns:
        """Return rows ``start`` to ``end`` (excluded)."""
        if self.held:
            return tuple(column[start:end] for column in self.held)
        return tuple(self._read(column, start, end) for column in range(self.width))

    def first_at(self, value: int) -> int:
        """Return the index of the first row whose first column is at least ``value``, the number of rows if none is."""
        return bisect_left(range(self.rows), value, key=self.first_of)

    def first_of(self, row: int) -> int:
        """Return the first column of a row."""
        return int(self.held[0][row] if self.held else self._read(0, row, row + 1)[0])

    def _read(self, column: int, start: int, end: int) -> Array:
        place = self.offset + (column * self.rows + start) * _COLUMN_BYTES
        return np.frombuffer(os.pread(self.descriptor, (end - start) * _COLUMN_BYTES, place), self.kind)


class RunFile:
    """Keeps sorted runs: up to ``held_rows`` rows in memory, the others in an unnamed temporary file. Use in ``with``."""

    def __init__(self, held_rows: int = 0) -> None:
        self._room = held_rows
        self._file: IO[bytes] | None = None
        self._end = 0

    def keep(self, rows: int, columns: Iterable[Array]) -> SortedRun:
        """Keep a run of rows, whose columns have one 64-bit type and are sorted by the first; raises DiskFull."""
        if rows <= self._room:
            self._room -= rows
            return SortedRun(rows, tuple(columns))
        try:
            if self._file is None:
                import tempfile  # few sorts are that large

                self._file = tempfile.TemporaryFile(prefix="pulsar-admin-sort-")  # noqa: SIM115 — closed in __exit__
            offset, width, kind = self._end, 0, np.dtype(np.int64)
            for column in columns:  # one after the other: made when its turn comes, it is in memory no longer
                width, kind = width + 1, column.dtype
                descriptor = self._file.fileno()
                raw = np.ascontiguousarray(column).view(np.uint8).data
                while raw:
                    written = os.pwrite(descriptor, raw, self._end)
                    self._end += written
                    raw = raw[written:]
        except OSError as error:
            raise_temporary_error(error)
        return SortedRun(rows, (), self._file.fileno(), offset, width, kind)

    def __enter__(self) -> RunFile:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()


def merged(
    runs: Sequence[SortedRun], keys: int, sort: Callable[[list[Columns]], Columns], held_rows: int
) -> Iterator[Columns]:
    """Yield the rows of several runs in blocks, in the order of their first ``keys`` columns, one row for each distinct key.

    ``sort`` merges parts of several runs. The rows in memory are about ``held_rows`` over all runs.
    """
    fronts = [_Front(run, max(held_rows // len(runs), _LEAST_READ_ROWS)) for run in runs]
    while fronts := [front for front in fronts if front.fill()]:
        # No row that is still unread sorts before the smallest of the last rows in memory.
        bounds = [front.last(keys) for front in fronts if not front.is_final]
        bound = min(bounds, default=None)
        parts = [rows for rows in (front.take(bound) for front in fronts) if len(rows[0])]
        yield parts[0] if len(parts) == 1 else sort(parts)


class _Front:
    """The part of a run that is in memory; each read fetches a fixed number of rows."""

    def __init__(self, run: SortedRun, rows: int) -> None:
        self._run = run
        self._read_rows = rows
        self._next = 0
        self._held: Columns = ()

    def fill(self) -> bool:
        """Read the next rows if none are in memory; return False at the end of the run."""
        if not self._held or not len(self._held[0]):
            end = min(self._next + self._read_rows, self._run.rows)
            self._held, self._next = self._run.read(self._next, end), end
        return len(self._held[0]) > 0

    @property
    def is_final(self) -> bool:
        return self._next == self._run.rows

    def last(self, keys: int) -> tuple[int, ...]:
        return tuple(int(column[-1]) for column in self._held[:keys])

    def take(self, bound: tuple[int, ...] | None) -> Columns:
        """Remove and return the rows up to ``bound``; None: all."""
        low, high = 0, len(self._held[0])
        for column, value in zip(self._held, bound or (), strict=False):
            part = column[low:high]
            high = low + int(np.searchsorted(part, value, side="right"))
            low += int(np.searchsorted(part, value, side="left"))
        taken = tuple(column[:high] for column in self._held)
        self._held = tuple(column[high:] for column in self._held)
        return taken


class SortedSpill:
    """Rows of ``width`` signed numbers, sorted by the first; rows with equal first numbers keep the order in which they were added.

    ``run_rows`` of them are in memory, the others in a temporary file. Use in ``with``.
    """

    def __init__(self, width: int, run_rows: int) -> None:
        self._width, self._most = width, run_rows * width
        self._held = array("q")
        self._rows = 0
        self._file = RunFile()
        self._runs: list[SortedRun] = []

    def add(self, *row: int) -> None:
        """Add a row; raises DiskFull."""
        self._held.extend(row)
        if len(self._held) >= self._most:
            self._keep()

    def _keep(self) -> None:
        rows = np.frombuffer(self._held, np.int64).reshape(-1, self._width)
        order = np.argsort(rows[:, 0], kind="stable")
        columns = (rows[order, 0], self._rows + order, *(rows[order, column] for column in range(1, self._width)))
        self._runs.append(self._file.keep(len(rows), columns))
        self._rows += len(rows)
        self._held = array("q")

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        """Yield every row; no row may be added afterwards."""
        if self._held:
            self._keep()
        for first, _, *others in merged(self._runs, 2, _by_first_two, 1 << 15):
            yield from zip(*(column.tolist() for column in (first, *others)), strict=True)

    def __enter__(self) -> SortedSpill:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.__exit__(*error)


def _by_first_two(parts: list[Columns]) -> Columns:
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.lexsort((columns[1], columns[0]))
    return tuple(column[order] for column in columns)
