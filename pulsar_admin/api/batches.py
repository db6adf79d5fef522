"""Rows as Arrow batches, read when they are iterated over. Imports pyarrow: only what reads columns imports this."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pulsar_admin.api.session import Session
from store.errors import StoreError
from store.extras import require
from store.model.reader import EntryReader

if TYPE_CHECKING:
    import pandas as pd

Source = Callable[[EntryReader, list[StoreError]], Generator[pa.RecordBatch, None, None]]
"""What reads batches of one snapshot, and notes what it could not read."""


class Batches:
    """Rows with the columns of ``schema``; nothing is read before it is iterated over, and then a batch at a time.

    Each iteration reads a snapshot of its own. What could not be read is in ``problems`` of the last iteration, and a PartialData
    warning.
    """

    def __init__(self, session: Session, schema: pa.Schema, source: Source, limit: int | None = None) -> None:
        self._session = session
        self._source = source
        self._limit = limit
        self.schema = schema
        self.problems: tuple[StoreError, ...] = ()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield Arrow record batches of some thousand rows each; memory is bounded by one of them.

        Raises what its maker names.
        """
        problems: list[StoreError] = []
        try:
            with self._session.scan(problems) as reader, closing(self._source(reader, problems)) as batches:
                chosen = batches if self._limit is None else first_rows(batches, self._limit)
                yield from map(self._shown, filter(len, chosen))
        finally:
            self.problems = tuple(problems)

    def rows(self) -> Iterator[dict[str, Any]]:  # Any: each column's own type
        """Yield the rows as dictionaries, times as datetimes in UTC, properties as a dictionary."""
        for batch in self:
            yield from batch.to_pylist(maps_as_pydicts="lossy")

    def to_arrow(self) -> pa.Table:
        """Return all of them as one Arrow table."""
        return pa.Table.from_batches(self, self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """Return all of them as a pandas DataFrame; times are ``datetime64[us, UTC]``, properties dictionaries. Raises MissingComponent."""
        require("pandas", "to_pandas", instead="take to_arrow()")
        frame: pd.DataFrame = self.to_arrow().to_pandas(maps_as_pydicts="lossy")
        return frame

    def _shown(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


def first_rows(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """Yield the first LIMIT rows of BATCHES; nothing behind them is read."""
    left = limit
    if not left:
        return
    for batch in batches:
        yield batch.slice(0, left)
        left -= min(left, len(batch))
        if not left:
            return
