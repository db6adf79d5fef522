"""Sorting any number of delayed messages in bounded memory, and splitting them into partitions when they are read."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
from msgspec import Struct, field

from pulsar_admin.store.db.delayed_entries import ENTRY_MESSAGES_MAX, DelayedRows, join_rows, no_rows, sorted_rows
from pulsar_admin.store.db.delayed_rules import IndexRules
from pulsar_admin.store.scan.integer_rows import Columns, RunFile, SortedRun, merged, runs_of

RUN_ROWS = 1 << 20
MEMORY_ROWS = 1 << 20  # of all runs together, before they go to disk


def open_runs() -> RunFile:
    """Return the temporary file for runs, to be used in a ``with`` block."""
    return RunFile(MEMORY_ROWS)


class SortedRuns(Struct):
    """Rows that are added in any order and read in order: all of them, or those due in a given time
    (``WaitingMessages``).

    ``counts``: partition start in ms → number of rows, for partitions of the rules' granularity.
    """

    file: RunFile
    rules: IndexRules
    counts: Counter[int] = field(default_factory=Counter)
    _runs: list[SortedRun] = field(default_factory=list)
    _pending: list[DelayedRows] = field(default_factory=list)
    _pending_rows: int = 0

    def __len__(self) -> int:
        return self.counts.total()

    def add(self, rows: DelayedRows) -> None:
        """Add rows, rounding their times down to the tick; raises DiskFull."""
        if not len(rows):
            return
        tick_ms = self.rules.tick_ms
        floored = DelayedRows(rows.times_ms // tick_ms * tick_ms, rows.ledger_ids, rows.entry_ids)
        starts, counts = np.unique(floored.times_ms // self.rules.granularity_ms, return_counts=True)
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            self.counts[start * self.rules.granularity_ms] += count
        self._pending.append(floored)
        self._pending_rows += len(rows)
        if self._pending_rows >= RUN_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the rows added since the last flush as a new sorted run."""
        if self._pending:
            pending, self._pending, self._pending_rows = self._pending, [], 0
            columns = zip(*((part.times_ms, part.ledger_ids, part.entry_ids) for part in pending), strict=True)
            rows = sorted_rows(*(np.concatenate(column) for column in columns))
            self._runs.append(self.file.keep(len(rows), (rows.times_ms, rows.ledger_ids, rows.entry_ids)))

    def load(self, start_ms: int, end_ms: int) -> DelayedRows:
        """Return the messages due from ``start_ms`` to ``end_ms`` (excluded), in order."""
        self.flush()
        return join_rows([DelayedRows(*run.read(run.first_at(start_ms), run.first_at(end_ms))) for run in self._runs])

    def next_time_ms(self, start_ms: int) -> int | None:
        """Return the due time of the first message at or after ``start_ms``, None without one."""
        self.flush()
        firsts = ((run, run.first_at(start_ms)) for run in self._runs)
        return min((run.first_of(row) for run, row in firsts if row < run.rows), default=None)

    def pieces(self) -> Iterator[tuple[int, DelayedRows]]:
        """Yield (partition start, rows) in order; a partition in pieces of ``ENTRY_MESSAGES_MAX`` rows, except the last."""
        self.flush()
        at, held = 0, no_rows()
        for chunk in merged(self._runs, 3, _in_order, MEMORY_ROWS):
            for start, rows in cut(DelayedRows(*chunk), self.rules.granularity_ms):
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
    """Yield (start, rows) of each partition of ``width_ms`` that has rows, in time order."""
    starts = rows.times_ms // width_ms
    for low, high in runs_of(starts):
        yield int(starts[low]) * width_ms, rows.take(slice(low, high))


def _behind(first: DelayedRows, then: DelayedRows) -> DelayedRows:
    if not len(first):
        return then
    pairs = ((getattr(first, name), getattr(then, name)) for name in DelayedRows.__match_args__)
    return DelayedRows(*(np.concatenate(pair) for pair in pairs))


def _in_order(parts: list[Columns]) -> Columns:
    rows = join_rows([DelayedRows(*part) for part in parts])
    return rows.times_ms, rows.ledger_ids, rows.entry_ids
