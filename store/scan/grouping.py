"""Rows of integers summed by their leading columns: what bulk counts keep instead of one object a row."""

from __future__ import annotations

from typing import Any

import numpy as np

Rows = np.ndarray[Any, Any]  # i64, two dimensions


def grouped(rows: Rows, keys: int) -> Rows:
    """Return ROWS in the order of their first KEYS columns, one for each different key, the other columns summed."""
    if not len(rows):
        return rows
    rows = rows[np.lexsort(tuple(rows[:, column] for column in reversed(range(keys))))]
    starts = np.flatnonzero(np.append(True, (rows[1:, :keys] != rows[:-1, :keys]).any(axis=1)))
    summed: Rows = np.column_stack([rows[starts, :keys], np.add.reduceat(rows[:, keys:], starts)])
    return summed


class Sums:
    """Rows that are summed by their first KEYS columns as they come, in memory bounded by the number of different keys."""

    def __init__(self, keys: int, columns: int) -> None:
        self._keys = keys
        self._rows: Rows = np.zeros((0, keys + columns), np.int64)
        self._pending: list[Rows] = []
        self._pending_rows = 0

    def add(self, *columns: Rows | int) -> None:
        """Add rows given as columns; a number stands for a column of it."""
        rows: Rows = np.column_stack(np.broadcast_arrays(*(np.atleast_1d(np.asarray(c, np.int64)) for c in columns)))
        self._pending.append(rows)
        self._pending_rows += len(rows)
        if self._pending_rows > max(1 << 18, len(self._rows)):
            self.rows()

    def __len__(self) -> int:
        """How many rows are held: never fewer than there are different keys."""
        return len(self._rows) + self._pending_rows

    def rows(self) -> Rows:
        """Return the sums so far, in key order."""
        if self._pending:
            self._rows = grouped(np.concatenate([self._rows, *self._pending]), self._keys)
            self._pending, self._pending_rows = [], 0
        return self._rows

    def replace(self, rows: Rows) -> None:
        """Go on from ROWS, which need no order."""
        self._rows, self._pending, self._pending_rows = grouped(rows, self._keys), [], 0


def ledger_sizes(batch: Rows) -> tuple[Rows, Rows]:
    """Return (ledgers, ascending; bytes of the records of each, with their size fields) of BATCH."""
    ledgers, inverse = np.unique(batch["ledger_id"], return_inverse=True)
    return ledgers, np.bincount(inverse, batch["size"].astype(np.int64) + 4).astype(np.int64)
