"""Operations, engines, progress, and the form in which a process or executor returns the result of a slice: bytes."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.errors import LimitExceeded, MissingComponent, SliceFailed, StoreError
from pulsar_admin.store.secrets import hide_url

Finished = Callable[[FileRange], None]
Results = Iterator[tuple[FileRange, pa.Table]]


class Operation(Protocol):
    """Picklable work on one slice."""

    @property
    def schema(self) -> pa.Schema:
        """The columns that ``run`` yields."""

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield the result for one slice, in batches of bounded size."""


class Reducing(Operation, Protocol):
    """Picklable work on slices whose rows are merged afterwards, in this process or on executors."""

    def merge(self, table: pa.Table) -> pa.Table:
        """Return the rows of a table, those that belong together merged into fewer."""


class FailedSlice(Struct, frozen=True):
    """A slice that gave no result, and why."""

    piece: FileRange
    reason: str
    out_of_memory: bool = False

    def error(self) -> StoreError:
        """Return the error to report: SliceFailed, or LimitExceeded if memory was too small."""
        piece = self.piece
        path = hide_url(piece.path)
        where = f"{path}, bytes {piece.start:,} to {piece.end:,}"
        facts = {"path": path, "start": piece.start, "end": piece.end, "reason": self.reason}
        if self.out_of_memory:
            hint = "give --memory more, or run fewer --jobs"
            return LimitExceeded(f"{where} needs more memory: {self.reason}", hint=hint, **facts)
        hint = "the rest of the result is complete; restore the file, or run the same command again"
        return SliceFailed(f"{where} could not be read: {self.reason}", hint=hint, **facts)


class Engine(Protocol):
    """What runs slices: ``LocalEngine`` or ``SparkEngine``."""

    failed: list[FailedSlice]

    @property
    def memory_bytes(self) -> int | None:
        """The bytes that each of the engine's processes may use; None: no limit."""

    @property
    def slots(self) -> int:
        """How many slices it runs at once."""

    @property
    def merges(self) -> bool:
        """Whether the engine's processes merge rows in ``reduce``."""

    def meet(self, pieces: Sequence[FileRange]) -> None:
        """Raise an error unless the engine's processes can start and read the files; for use before long work."""

    def run(self, operation: Operation, pieces: Sequence[FileRange], finished: Finished) -> Results:
        """Yield (slice, its result) in any order."""

    def reduce(
        self, operation: Reducing, pieces: Sequence[FileRange], finished: Finished, merged_by: Mapping[str, int]
    ) -> Iterator[pa.Table]:
        """Yield the rows of all slices in any order, perhaps merged already.

        ``merged_by``: column → about how many values it has; rows with equal values in a column are merged, for one
        column after the other.
        """


class Packed(NamedTuple):
    """The Arrow IPC stream of a result (bytes or an Arrow buffer), or why it failed.

    ``out_of_memory``: it failed for lack of memory; ``lacking``: because the machine lacks a client library or
    credentials.
    """

    result: bytes | pa.Buffer | None
    reason: str | None = None
    out_of_memory: bool = False
    lacking: bool = False


PACKED = pa.schema(
    [
        ("slice", pa.int64()),
        ("result", pa.binary()),
        ("reason", pa.string()),
        ("out_of_memory", pa.bool_()),
        ("lacking", pa.bool_()),
    ]
)
"""An answer as a row, for an engine that knows only rows."""


EXPECTED = (StoreError, OSError, MemoryError, SystemError)
"""What a slice may raise: also numpy's and Arrow's out of memory; SystemError: numba's, when it compiles."""


def pack_slice(operation: Operation, piece: FileRange, compression: str | None = None) -> Packed:
    """Run an operation on a slice and return its result, or why it failed."""
    try:
        table = pa.Table.from_batches(operation.run(piece), schema=operation.schema)
        return Packed(stream_of(table.schema, table.to_batches(), compression))
    except EXPECTED as error:
        return failed(error)


def stream_of(schema: pa.Schema, batches: Iterable[pa.RecordBatch], compression: str | None = None) -> pa.Buffer:
    """Return batches in Arrow's IPC stream format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return sink.getvalue()


def failed(error: Exception) -> Packed:
    """Return a ``Packed`` that says why a slice has no result."""
    if isinstance(error, (MemoryError, SystemError)):
        return Packed(None, f"out of memory: {error}" if str(error) else "out of memory", True)
    if isinstance(error, MissingComponent):
        return Packed(None, f"{error} (on {os.uname().nodename})", lacking=True)
    return Packed(None, str(error))


def unpack_slice(operation: Operation, result: bytes | pa.Buffer) -> pa.Table:
    """Return the table in a result, whose memory it uses where nothing is compressed."""
    return pa.ipc.open_stream(result).read_all() if result else operation.schema.empty_table()


def row_of(index: int, packed: Packed) -> pa.RecordBatch:
    """Return the answer of the slice with this index as a row of ``PACKED``; the result's memory is used, not copied.

    From buffers: ``pyarrow.array`` imports pandas where it is installed, which takes longer than many a slice.
    """
    result, reason = packed.result, packed.reason
    columns = [
        _value(pa.int64(), np.array([index])),
        pa.nulls(1, pa.binary()) if result is None else _value(pa.binary(), *_bytes(result)),
        pa.nulls(1, pa.string()) if reason is None else _value(pa.string(), *_bytes(reason.encode())),
        _value(pa.bool_(), bytes([packed.out_of_memory])),
        _value(pa.bool_(), bytes([packed.lacking])),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=PACKED)


def _value(kind: pa.DataType, *buffers: object) -> pa.Array:
    return pa.Array.from_buffers(kind, 1, [None, *map(pa.py_buffer, buffers)])


def _bytes(data: bytes | pa.Buffer) -> tuple[object, object]:
    return np.array([0, len(data)], np.int32), data


def rows_of(batch: pa.RecordBatch) -> Iterator[tuple[int, Packed]]:
    """Yield (slice, its answer) of rows of ``PACKED``; results use the memory of the batch."""
    index, result, *rest = batch.columns
    for row in range(len(batch)):
        yield index[row].as_py(), Packed(result[row].as_buffer(), *(column[row].as_py() for column in rest))


# -- rows that are merged -----------------------------------------------------------------------------------------------

_FAILURE = pa.schema([("slice", pa.int64()), ("reason", pa.string()), ("out_of_memory", pa.bool_())])


def reduced_schema(operation: Reducing) -> pa.Schema:
    """Return the columns of an operation's rows, and those of the rows that name a failed slice and the reason."""
    return pa.unify_schemas([operation.schema, _FAILURE])


def reduce_slice(operation: Reducing, index: int, piece: FileRange) -> pa.Table:
    """Return a slice's rows with the columns of ``reduced_schema``, or one row with its index and why it failed."""
    try:
        return _widened(operation, pa.Table.from_batches(operation.run(piece), schema=operation.schema))
    except EXPECTED as error:
        _, reason, out_of_memory, _ = failed(error)
        row = {"slice": index, "reason": reason, "out_of_memory": out_of_memory}
        return pa.Table.from_pylist([row], schema=reduced_schema(operation))


def merge_reduced(operation: Reducing, table: pa.Table) -> pa.Table:
    """Return a table of ``reduce_slice`` with the operation's rows merged; rows of failed slices stay as they are."""
    rows, failures = split_reduced(operation, table)
    return pa.concat_tables([_widened(operation, operation.merge(rows)), failures])


def split_reduced(operation: Reducing, table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return (the operation's own rows, the rows of failed slices)."""
    is_failure = table["reason"].is_valid()
    rows = table.filter(pc.invert(is_failure)).select(operation.schema.names).cast(operation.schema)
    return rows, table.filter(is_failure)


def _widened(operation: Reducing, table: pa.Table) -> pa.Table:
    table = table.combine_chunks()  # it travels batch by batch, and there may be one for each row
    for field in _FAILURE:
        table = table.append_column(field, pa.nulls(len(table), field.type))
    return table.cast(reduced_schema(operation))
