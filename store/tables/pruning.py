"""Which rows a filter can be true of, when all that is known are bounds of their columns: what cannot match is not read.

Arrow decides it, as it leaves out fragments of a dataset; where it cannot tell, rows are read and the filter is asked of each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from msgspec import Struct
from pyarrow import fs

from pulsar_admin.store.db.blocks import Block, LedgerSums
from pulsar_admin.store.db.clocks import block_max, block_min
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.model.ledgers import find_times, iter_blocks
from pulsar_admin.store.scan.places import Part
from pulsar_admin.store.scan.schemas import TIME
from pulsar_admin.store.timespec import MAX_TIME_MS
from pulsar_admin.store.wording import counted

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


_TIMES = ("publish_time", "broker_time")


class Seen(Struct):
    """What a scan read, of what there is: the rest its filter left out."""

    ledgers: int = 0
    read_ledgers: int = 0
    bytes: int = 0
    read_bytes: int = 0

    def text(self, name: str) -> str:
        """Return it in words, for table NAME."""
        ledgers = f"{self.read_ledgers:,} of {counted(self.ledgers, 'ledger')}"
        return f"{name}: read {ledgers}, {self.read_bytes:,} of {counted(self.bytes, 'byte')}"

    def clear(self) -> None:
        """Begin anew."""
        self.ledgers = self.read_ledgers = self.bytes = self.read_bytes = 0


def iter_wanted(
    txn: Txn, parts: Sequence[Part], topics: Sequence[pc.Expression], pruner: Pruner, seen: Seen
) -> Iterator[Part]:
    """Yield PARTS, ledger by ledger, or block by block where the filter is about what blocks know. TOPICS: of each part's topic.

    SEEN is filled on the way.
    """
    rows = [find_times(txn, ledger_id) for ledger_id, _, _ in parts]
    sums = [None if row is None else row.sums for row in rows]
    del rows  # views of the map
    seen.ledgers += len(parts)
    seen.bytes += sum(found.payload_bytes for found in sums if found is not None)
    bounds = [topic & _bounds_of(part, found) for topic, part, found in zip(topics, parts, sums, strict=True)]
    in_blocks = pruner.names("entry_id", *_TIMES)
    for place in pruner.passing(bounds):
        found = sums[place]
        seen.read_ledgers += 1
        if in_blocks and found is not None:
            yield from _blocks(txn, parts[place], pruner, seen)
        else:
            seen.read_bytes += 0 if found is None else found.payload_bytes
            yield parts[place]


def _blocks(txn: Txn, part: Part, pruner: Pruner, seen: Seen) -> Iterator[Part]:
    """Yield the blocks of PART that may have a row, those that follow one another as one."""
    ledger_id, first, last = part
    ids, sizes, bounds = [], [], []
    for block in iter_blocks(txn, ledger_id, first):
        low, high = block.index_of(first), block.index_of(last + 1)
        if high > low:
            ids.append((block.entry_id(low), block.entry_id(high - 1)))
            sizes.append(block.header.payload_bytes)
            bounds.append(_bounds_of_block(block, *ids[-1]))
    run: Part | None = None
    before = -2
    for place in pruner.passing(bounds):
        seen.read_bytes += sizes[place]
        if run is not None and place != before + 1:
            yield run
            run = None
        run = (ledger_id, ids[place][0] if run is None else run[1], ids[place][1])
        before = place
    if run is not None:
        yield run


def _bounds_of(part: Part, sums: LedgerSums | None) -> pc.Expression:
    """Return what is true of the rows of a ledger."""
    ledger_id, first, last = part
    bounds = equal("ledger_id", ledger_id) & between("entry_id", first, last)
    if sums is None:
        return bounds
    publish = times_between("publish_time", sums.publish_min_ms, sums.publish_max_ms)
    return bounds & publish & times_between("broker_time", sums.broker_min_ms, sums.broker_max_ms)


def _bounds_of_block(block: Block, first: int, last: int) -> pc.Expression:
    publish = times_between("publish_time", block_min(block, "publish"), block_max(block, "publish"))
    broker = times_between("broker_time", block_min(block, "broker"), block_max(block, "broker"))
    return between("entry_id", first, last) & publish & broker
