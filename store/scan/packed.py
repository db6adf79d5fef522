"""A slice's result as bytes: what a process or an executor sends to whoever asked."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from store.errors import StoreError
from store.scan.operations import Operation
from store.scan.slices import FileRange


class Packed(NamedTuple):
    """The Arrow IPC stream of a result, or why there is none; ``out_of_memory``: that was why."""

    result: bytes | None
    reason: str | None = None
    out_of_memory: bool = False


def pack_slice(operation: Operation, piece: FileRange, compression: str | None = None) -> Packed:
    """Run OPERATION on PIECE and return its result, or why there is none."""
    try:
        table = pa.Table.from_batches(operation.run(piece), schema=operation.schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
            writer.write_table(table)
        del table
        return Packed(sink.getvalue().to_pybytes())
    except (StoreError, OSError) as error:
        return Packed(None, str(error))
    except MemoryError as error:  # numpy's and Arrow's too
        return Packed(None, f"out of memory: {error}" if str(error) else "out of memory", True)


def unpack_slice(operation: Operation, result: bytes) -> pa.Table:
    """Return the table in RESULT."""
    return pa.ipc.open_stream(result).read_all() if result else operation.schema.empty_table()
