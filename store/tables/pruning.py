"""Which rows a filter can be true of, when all that is known are bounds of their columns: what cannot match is not read.

Arrow decides it, as it leaves out fragments of a dataset; where it cannot tell, rows are read and the filter is asked of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from store.scan.schemas import TIME
from store.timespec import MAX_TIME_MS

_FORMAT = ds.ParquetFileFormat()  # of files that are never opened: a fragment's bounds are all that is looked at
_FILES = fs.LocalFileSystem()
_GROUP = 64


class Pruner:
    """A filter of a scan over columns of SCHEMA; None: all rows."""

    def __init__(self, schema: pa.Schema, condition: pc.Expression | None) -> None:
        self._schema = schema
        self.condition = condition
        self._text = "" if condition is None else str(condition)

    def names(self, *columns: str) -> bool:
        """Whether the filter may be about one of COLUMNS; a text in it that only looks like a column's name counts as one."""
        return any(column in self._text for column in columns)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the filter may be about."""
        return frozenset(name for name in self._schema.names if self.names(name))

    def passing(self, bounds: Sequence[pc.Expression]) -> list[int]:
        """Return the places in BOUNDS, each true of some rows, of those that may have a row that the filter wants."""
        if self.condition is None:
            return list(range(len(bounds)))
        fragments = [
            _FORMAT.make_fragment(str(place), _FILES, partition_expression=bound) for place, bound in enumerate(bounds)
        ]
        dataset = ds.FileSystemDataset(fragments, self._schema, _FORMAT, _FILES)
        return [int(fragment.path) for fragment in dataset.get_fragments(filter=self.condition)]

    def chosen(self, column: str, values: Sequence[str]) -> Iterator[str]:
        """Yield those of VALUES, ascending texts, that COLUMN may have in a row that the filter wants."""
        if not self.names(column):
            yield from values
            return
        field = pc.field(column)
        groups = [values[low : low + _GROUP] for low in range(0, len(values), _GROUP)]
        for group in self.passing([(field >= group[0]) & (field <= group[-1]) for group in groups]):
            for place in self.passing([field == value for value in groups[group]]):
                yield groups[group][place]


def equal(column: str, value: int | str) -> pc.Expression:
    """Return that COLUMN is VALUE in every row."""
    return pc.field(column) == value


def between(column: str, low: int, high: int) -> pc.Expression:
    """Return that COLUMN, of numbers, is LOW to HIGH in every row."""
    return (pc.field(column) >= low) & (pc.field(column) <= high)


def times_between(column: str, low_ms: int, high_ms: int) -> pc.Expression:
    """Return that COLUMN, of times, is LOW_MS to HIGH_MS or null in every row; LOW_MS behind HIGH_MS: always null.

    A time that a broken clock wrote and no column can hold is null, so that bounds need not hold it either.
    """
    field = pc.field(column)
    if low_ms > high_ms:
        return field.is_null()
    low, high = (pa.scalar(min(max(time_ms, 0), MAX_TIME_MS) * 1000, TIME) for time_ms in (low_ms, high_ms))
    return ((field >= low) | field.is_null()) & ((field <= high) | field.is_null())
