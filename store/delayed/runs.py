"""Rows of any number put in order in bounded memory: sorted runs, on disk when they are many, merged as they are read."""

from __future__ import annotations

import os
import sys
import tempfile
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from msgspec import Struct, field

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.db.delayed_entries import ENTRY_MESSAGES_MAX, DelayedRows, join_rows, no_rows, sorted_rows
from pulsar_admin.store.db.delayed_rules import IndexRules
from pulsar_admin.store.files import raise_write_error

RUN_ROWS = 1 << 20
MEMORY_ROWS = 1 << 20  # of all runs together, before they go to disk
_LEAST_READ_ROWS = 1 << 12
_COLUMN_BYTES = 8


@contextmanager
def open_runs() -> Iterator[RunFile]:
    """Open where runs are kept while the block lasts."""
    with tempfile.TemporaryFile() as file:
        yield RunFile(file.fileno())


class RunFile(Struct):
    """Keeps runs: in memory, and behind ``MEMORY_ROWS`` in a temporary file without a name."""

    descriptor: int
    _end: int = 0
    _held: int = 0

    def keep(self, rows: DelayedRows) -> Run:
        """Keep ROWS, which are in order; raises DiskFull."""
        if self._held + len(rows) <= MEMORY_ROWS:
            self._held += len(rows)
            return Run(len(rows), held=rows)
        run = Run(len(rows), self.descriptor, self._end)
        for column in (rows.times_ms, rows.ledger_ids, rows.entry_ids):
            self._write(np.ascontiguousarray(column, np.int64).data.cast("B"))
        return run

    def _write(self, raw: memoryview) -> None:
        try:
            while raw:
                written = os.pwrite(self.descriptor, raw, self._end)
                self._end += written
                raw = raw[written:]
        except OSError as error:
            raise_write_error(error, Path(tempfile.gettempdir()))


class Run(Struct, frozen=True):
    """Rows in order: in memory, or three columns one behind the other in a file."""

    rows: int
    descriptor: int = -1
    offset: int = 0
    held: DelayedRows | None = None

    def read(self, start: int, end: int) -> DelayedRows:
        """Return rows START to END (excluded)."""
        if self.held is not None:
            return self.held.take(slice(start, end))
        columns = [
            np.frombuffer(self._bytes((number * self.rows + start) * _COLUMN_BYTES, end - start), np.int64)
            for number in range(3)
        ]
        return DelayedRows(*columns)

    def time_at(self, row: int) -> int:
        """Return when ROW is due."""
        if self.held is not None:
            return int(self.held.times_ms[row])
        return int.from_bytes(self._bytes(row * _COLUMN_BYTES, 1), sys.byteorder, signed=True)

    def first_at(self, time_ms: int) -> int:
        """Return the first row that is due at TIME_MS or later, the number of rows when none is."""
        return bisect_left(range(self.rows), time_ms, key=self.time_at)

    def _bytes(self, offset: int, count: int) -> bytes:
        return os.pread(self.descriptor, count * _COLUMN_BYTES, self.offset + offset)


class SortedRuns(Struct):
    """Rows given in any order, given back in order: all of them, or as a time wheel's source those of some time.

    ``counts``: partition start → rows, by the rules' granularity.
    """

    file: RunFile
    rules: IndexRules
    counts: Counter[int] = field(default_factory=Counter)
    _runs: list[Run] = field(default_factory=list)
    _pending: list[DelayedRows] = field(default_factory=list)
    _pending_rows: int = 0

    def __len__(self) -> int:
        return self.counts.total()

    def add(self, rows: DelayedRows) -> None:
        """Take ROWS, with their times rounded down to the tick; raises DiskFull."""
        if not len(rows):
            return
        tick_ms = self.rules.tick_ms
        floored = DelayedRows(rows.times_ms // tick_ms * tick_ms, rows.ledger_ids, rows.entry_ids)
        starts, found = np.unique(floored.times_ms // self.rules.granularity_ms, return_counts=True)
        for start, count in zip(starts.tolist(), found.tolist(), strict=True):
            self.counts[start * self.rules.granularity_ms] += count
        self._pending.append(floored)
        self._pending_rows += len(rows)
        if self._pending_rows >= RUN_ROWS:
            self.flush()

    def flush(self) -> None:
        """Put what was added since the last run into a run of its own."""
        if self._pending:
            pending, self._pending, self._pending_rows = self._pending, [], 0
            columns = zip(*((part.times_ms, part.ledger_ids, part.entry_ids) for part in pending), strict=True)
            self._runs.append(self.file.keep(sorted_rows(*(np.concatenate(column) for column in columns))))

    def load(self, start_ms: int, end_ms: int) -> DelayedRows:
        """Return what is due from START_MS on, before END_MS, in order."""
        self.flush()
        return join_rows([run.read(run.first_at(start_ms), run.first_at(end_ms)) for run in self._runs])

    def next_time_ms(self, start_ms: int) -> int | None:
        """Return when the first message due at START_MS or later is due, None when there is none."""
        self.flush()
        found = ((run, run.first_at(start_ms)) for run in self._runs)
        return min((run.time_at(row) for run, row in found if row < run.rows), default=None)

    def pieces(self) -> Iterator[tuple[int, DelayedRows]]:
        """Yield (partition start, rows) in order; a large partition in pieces of ``ENTRY_MESSAGES_MAX``, its last one smaller."""
        self.flush()
        at, held = 0, no_rows()
        for chunk in merged(self._runs):
            for start, rows in cut(chunk, self.rules.granularity_ms):
                if start != at and len(held):
                    yield at, held
                    held = no_rows()
                at, held = start, _behind(held, rows)
                while len(held) >= ENTRY_MESSAGES_MAX:
                    yield at, held.take(slice(0, ENTRY_MESSAGES_MAX))
                    held = held.take(slice(ENTRY_MESSAGES_MAX, None))
        if len(held):
            yield at, held


def cut(rows: DelayedRows, width_ms: int) -> Iterator[tuple[int, DelayedRows]]:
    """Yield (start, rows) of each partition that has any, in time order."""
    if not len(rows):
        return
    starts = rows.times_ms // width_ms
    edges = np.flatnonzero(np.append(True, starts[1:] != starts[:-1]))
    ends = np.append(edges[1:], len(rows))
    for low, high in zip(edges.tolist(), ends.tolist(), strict=True):
        yield int(starts[low]) * width_ms, rows.take(slice(low, high))


def _behind(first: DelayedRows, then: DelayedRows) -> DelayedRows:
    if not len(first):
        return then
    pairs = ((getattr(first, name), getattr(then, name)) for name in DelayedRows.__match_args__)
    return DelayedRows(*(np.concatenate(pair) for pair in pairs))


# -- merging ----------------------------------------------------------------------------------------------------------

Place = tuple[int, int, int]
"""(time, ledger, entry)."""


def merged(runs: list[Run]) -> Iterator[DelayedRows]:
    """Yield the rows of RUNS in order, some at a time; in memory are about ``MEMORY_ROWS`` of them."""
    heads = [_Head(run, max(MEMORY_ROWS // len(runs), _LEAST_READ_ROWS)) for run in runs]
    while heads := [head for head in heads if head.fill()]:
        # Up to the first end of what is in memory, nothing that is still to be read comes in between.
        bounds = [head.last for head in heads if not head.is_final]
        bound = min(bounds, default=None)
        yield join_rows([rows for rows in (head.take(bound) for head in heads) if len(rows)])


class _Head:
    """The rows at the front of a run that are in memory."""

    def __init__(self, run: Run, rows: int) -> None:
        self._run = run
        self._read_rows = rows
        self._next = 0
        self._rows = no_rows()

    def fill(self) -> bool:
        """Read on when nothing is left in memory; False: the run is over."""
        if not len(self._rows):
            end = min(self._next + self._read_rows, self._run.rows)
            self._rows, self._next = self._run.read(self._next, end), end
        return len(self._rows) > 0

    @property
    def is_final(self) -> bool:
        return self._next == self._run.rows

    @property
    def last(self) -> Place:
        return int(self._rows.times_ms[-1]), int(self._rows.ledger_ids[-1]), int(self._rows.entry_ids[-1])

    def take(self, bound: Place | None) -> DelayedRows:
        """Take the rows up to BOUND; None: all."""
        count = len(self._rows) if bound is None else _count_up_to(self._rows, bound)
        taken, self._rows = self._rows.take(slice(0, count)), self._rows.take(slice(count, None))
        return taken


def _count_up_to(rows: DelayedRows, bound: Place) -> int:
    low, high = 0, len(rows)
    columns: tuple[Array, ...] = (rows.times_ms, rows.ledger_ids, rows.entry_ids)
    for column, value in zip(columns, bound, strict=True):
        part = column[low:high]
        high = low + int(np.searchsorted(part, value, side="right"))
        low += int(np.searchsorted(part, value, side="left"))
    return high
