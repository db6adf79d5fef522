"""A slice's result as bytes: what an executor sends to the driver."""

from __future__ import annotations

import pyarrow as pa

from store.errors import StoreError
from store.scan.operations import Operation
from store.scan.slices import FileRange


def pack_slice(operation: Operation, piece: FileRange) -> tuple[str | None, bytes | None]:
    """Return (why there is no result, Arrow IPC stream of the result): one of them is None."""
    try:
        table = pa.Table.from_batches(operation.run(piece), schema=operation.schema)
    except (StoreError, OSError) as error:
        return str(error), None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return None, sink.getvalue().to_pybytes()
