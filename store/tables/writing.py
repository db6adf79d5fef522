"""Files of tables: Parquet, zstd, with the statistics by which readers leave row groups out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pulsar_admin.store.tables.folder import Folder
from pulsar_admin.store.tables.manifest import Part
from pulsar_admin.store.tables.schemas import TABLES

GROUP_ROWS = 1 << 15
"""Few: a question on one ledger reads a row group."""
GROUP_BYTES = 32 << 20
INCOMPLETE = "pulsar-admin.incomplete"
"""A key of what describes tables: why the metadata that they were made of were not whole."""
PART_BYTES = 256 << 20  # of Arrow's columns; a file is a fraction of it
_LARGE = frozenset(["payload", "value", "value_error", "data", "record", "key", "ordering_key", "__key"])
"""Columns without statistics: these are copies of the least and the greatest value."""


class _Sink:
    """What pyarrow writes a file to: passes bytes on to OUT, and counts them and their SHA-256."""

    def __init__(self, out: Any) -> None:  # Any: a stream of pyarrow
        self._out = out
        self._digest = hashlib.sha256()
        self.size_bytes = 0
        self.closed = False

    def write(self, data: Any) -> int:  # Any: bytes, or a buffer
        self._out.write(data)
        self._digest.update(data)
        size = memoryview(data).nbytes
        self.size_bytes += size
        return size

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def tell(self) -> int:
        return self.size_bytes

    def flush(self) -> None:
        """Do nothing: OUT is closed by who opened it."""

    def close(self) -> None:
        self.closed = True


def write_part(
    folder: Folder, relative: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], incomplete: str = ""
) -> Part:
    """Write BATCHES into the new file RELATIVE of FOLDER; raises DiskFull, NotWritable, NotFound, and then it is not there.

    INCOMPLETE: why the metadata that they were made of were not whole; the file says it itself, as key ``INCOMPLETE`` of its metadata.
    """
    rows = 0
    bounds: list[tuple[int, int]] = []
    with folder.create(relative) as out:
        sink = _Sink(out)
        with _open_parquet(sink, schema) as writer:
            for table in _groups(schema, batches):
                writer.write_table(table, row_group_size=GROUP_ROWS)
                rows += len(table)
                bounds += _ledger_bounds(table)
            writer.add_key_value_metadata({INCOMPLETE: incomplete} if incomplete else {})
    ledgers = (min(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else None
    return Part(relative, rows, sink.size_bytes, sink.sha256, ledgers)


def _open_parquet(sink: Any, schema: pa.Schema) -> Any:  # Any: pyarrow has no types
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        write_statistics=[name for name in schema.names if name not in _LARGE or schema is TABLES["rows"]],
        write_page_checksum=True,
        store_schema=False,
    )


def write_parts(
    folder: Folder,
    stem: str,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    part_bytes: int = PART_BYTES,
    *,
    incomplete: str = "",
) -> Iterator[Part]:
    """Write BATCHES into files STEM-00000.parquet and so on, each of about PART_BYTES in memory; none for no rows.

    INCOMPLETE: as of ``write_part``.
    """
    number = 0
    while (first := next(batches, None)) is not None:
        rows = _portion(first, batches, part_bytes)
        yield write_part(folder, f"{stem}-{number:05d}.parquet", schema, rows, incomplete)
        number += 1


def _portion(first: pa.RecordBatch, batches: Iterator[pa.RecordBatch], most_bytes: int) -> Iterator[pa.RecordBatch]:
    held = first.nbytes
    yield first
    while held < most_bytes and (batch := next(batches, None)) is not None:
        held += batch.nbytes
        yield batch


def _groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield BATCHES joined to row groups."""
    waiting: list[pa.RecordBatch] = []
    rows = held = 0
    for batch in batches:
        waiting.append(batch)
        rows, held = rows + len(batch), held + batch.nbytes
        if rows >= GROUP_ROWS or held >= GROUP_BYTES:
            yield pa.Table.from_batches(waiting, schema)
            waiting, rows, held = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema)


def _ledger_bounds(table: pa.Table) -> Iterator[tuple[int, int]]:
    import pyarrow.compute as pc

    if "ledger_id" in table.schema.names and len(table):
        found = pc.min_max(table.column("ledger_id")).as_py()
        yield found["min"], found["max"]
