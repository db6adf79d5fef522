"""A table that is made when it is read, as what DuckDB takes for a dataset of Arrow's: it names columns and a filter, and gets rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from store.tables.pruning import Pruner

Rows = Callable[[Collection[str], Pruner], Iterable[pa.RecordBatch]]
"""What reads a table: batches with at least the columns named; rows that the pruner says cannot match may be left out."""


class MadeTable(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A table of SCHEMA that ROWS reads anew for each scan. LOCK: scans of one snapshot take turns, whatever threads ask.

    ERRORS: what a scan raised, which DuckDB would tell as a text with a traceback.
    """

    def __init__(self, schema: pa.Schema, rows: Rows, lock: Lock, errors: list[BaseException]) -> None:
        # Not Dataset's own, which forbids it: nothing of Arrow's is in it, DuckDB looks at ``schema`` and ``scanner`` alone.
        self._schema = schema
        self._rows = rows
        self._lock = lock
        self._errors = errors

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._schema

    def scanner(
        self, columns: list[str] | None = None, filter: pc.Expression | None = None, **_: Any
    ) -> _Scan:  # Any: Arrow's options
        """Return the rows that FILTER is true of, with COLUMNS."""
        names = self._schema.names if columns is None else columns
        return _Scan(pa.schema([self._schema.field(name) for name in names]), self._batches(names, filter))

    def _batches(self, names: list[str], condition: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        pruner = Pruner(self._schema, condition)
        batches = iter(self._rows({*names} | pruner.columns, pruner))
        while (batch := self._next(batches)) is not None:
            chosen = batch if condition is None else batch.filter(condition)
            yield chosen.select(names)
            del batch, chosen  # not kept while the next is read

    def _next(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        with self._lock:
            try:
                return next(batches, None)
            except BaseException as error:
                self._errors.append(error)
                raise


class _Scan:
    """What DuckDB asks for its stream of batches, once."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self._schema = schema
        self._batches = batches

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the stream."""
        return pa.RecordBatchReader.from_batches(self._schema, self._batches)
