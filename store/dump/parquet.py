"""Parquet files of a dump; what is large in one is written by a process of its own.

Arrow's writer copies a value into a page's values and these into the page. Where entries are read, decoded and handed out as
well, a value of 100 MB three times is too much for one process.
"""

from __future__ import annotations

from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

DUMP_FORMAT = 1
GROUP_ROWS = 1 << 17
_DICTIONARIES = [
    "batchIndex",
    "key",
    "producer",
    "properties.key_value.key",
    "deliverAtTime",
    "publishTime",
    "brokerTime",
]
_DICTIONARIES += ["encrypted", "nullValue", "chunks", "transaction", "messages", "ledgerTimestamp", "ledgerId"]


def named_schema(schema: pa.Schema, topic: str) -> pa.Schema:
    """Return a schema as the files have it: they name their topic."""
    return schema.with_metadata({"topic": topic, "dump": str(DUMP_FORMAT)})


def open_parquet(path: Path, schema: pa.Schema, *, compressed: bool = True) -> Any:  # Any: pyarrow has no types
    """Open a file to which Arrow writes itself: on its way through Python's file every page would be copied."""
    return pq.ParquetWriter(
        str(path),
        schema,
        compression="zstd" if compressed else "none",
        compression_level=1 if compressed else None,
        use_dictionary=[name for name in _DICTIONARIES if name.partition(".")[0] in schema.names],
        # A payload's statistics are copies of the least and the greatest.
        write_statistics=[name for name in schema.names if name != "payload"],
        write_page_checksum=True,
        store_schema=False,
    )


def write_apart(path: Path, table: pa.Table) -> None:
    """Write a table to a file, not compressed, in a process that ends with it. Raises OSError and MemoryError as writing here would."""
    from pulsar_admin.store.engine.starting import start_process  # no other format needs it

    connection, process = start_process(_write, str(path))
    try:
        with (
            suppress(BrokenPipeError),  # it ended: what it says tells why
            _file_of(connection, "wb") as pipe,
            pa.ipc.new_stream(pipe, table.schema) as stream,
        ):
            stream.write_table(table)
        error = connection.recv()
    except (EOFError, ConnectionResetError) as ended:
        raise MemoryError(f"the process that writes {path} was killed") from ended
    finally:
        connection.close()
        process.join()
    if error is not None:
        raise error


def _write(connection: Connection, path: str) -> None:
    """Write the table that comes on a connection to a file, and answer with the error or None."""
    with _file_of(connection, "rb") as pipe, pa.ipc.open_stream(pipe) as stream:
        table = stream.read_all()
    try:
        with open_parquet(Path(path), table.schema, compressed=False) as writer:
            writer.write_table(table, row_group_size=GROUP_ROWS)
    except (OSError, MemoryError) as error:
        connection.send(error)
    else:
        connection.send(None)


def _file_of(connection: Connection, mode: str) -> IO[bytes]:
    return open(connection.fileno(), mode, closefd=False)
