"""Rows as Arrow batches, read when they are iterated over. Imports pyarrow when it is asked for columns."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from pulsar_admin.api.session import Session
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.reader import EntryReader

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Item = TypeVar("Item")
Source = Callable[[EntryReader, list[StoreError]], Generator[Item, None, None]]
"""What reads items of one snapshot, and notes what it could not read."""


class Batches:
    """Rows with the columns of ``schema``; nothing is read before it is iterated over, and then a batch at a time.

    Each iteration reads a snapshot of its own. What could not be read is in ``problems`` of the last iteration, and a PartialData
    warning.
    """

    def __init__(self, session: Session, schema: Callable[[], pa.Schema], source: Source[pa.RecordBatch]) -> None:
        self._session = session
        self._schema = schema
        self._source = source
        self.problems: tuple[StoreError, ...] = ()

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._schema()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield Arrow record batches of some thousand rows each; memory is bounded by one of them.

        Raises what its maker names.
        """
        return self._read(self._source)

    def rows(self) -> Iterator[dict[str, Any]]:  # Any: each column's own type
        """Yield the rows as dictionaries, times as datetimes in UTC, properties as a dictionary."""
        for batch in self:
            yield from batch.to_pylist(maps_as_pydicts="lossy")

    def to_arrow(self) -> pa.Table:
        """Return all of them as one Arrow table."""
        import pyarrow as pa

        return pa.Table.from_batches(self, self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """Return all of them as a pandas DataFrame; times are ``datetime64[us, UTC]``, properties dictionaries. Raises MissingComponent."""
        from pulsar_admin.store.extras import require

        require("pandas", "to_pandas", instead="take to_arrow()")
        frame: pd.DataFrame = self.to_arrow().to_pandas(maps_as_pydicts="lossy")
        return frame

    def _read(self, source: Source[Item]) -> Iterator[Item]:
        problems: list[StoreError] = []
        try:
            with self._session.scan(problems) as reader, closing(source(reader, problems)) as found:
                yield from found
        finally:
            self.problems = tuple(problems)


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
