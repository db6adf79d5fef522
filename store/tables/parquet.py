"""Files of tables: Parquet, zstd, with statistics, by which readers skip row groups. A file is checked by the SHA-256
in the folder's list before it is read, row group by row group.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pulsar_admin.store import errors
from pulsar_admin.store.files import NotRegular
from pulsar_admin.store.tables.folder import NAME, Folder, TableFile, read_manifest
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
    """The file object that pyarrow writes to: passes bytes on, and counts them and their SHA-256."""

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
        """Do nothing: the underlying file is closed by its opener."""

    def close(self) -> None:
        self.closed = True


def write_part(
    folder: Folder, relative: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], incomplete: str = ""
) -> TableFile:
    """Write batches into a new file; raises DiskFull, NotWritable, NotFound, and then the file does not exist.

    ``incomplete``: why the underlying store was incomplete; the file itself says so, as key ``INCOMPLETE`` of its
    metadata.
    """
    import pyarrow.compute as pc

    rows = 0
    bounds: list[tuple[int, int]] = []
    with folder.create(relative) as out:
        sink = _Sink(out)
        with pq.ParquetWriter(
            sink,
            schema,
            compression="zstd",
            write_statistics=[name for name in schema.names if name not in _LARGE or schema is TABLES["rows"]],
            write_page_checksum=True,
            store_schema=False,
        ) as writer:
            for table in _groups(schema, batches):
                writer.write_table(table, row_group_size=GROUP_ROWS)
                rows += len(table)
                if "ledger_id" in table.schema.names and len(table):
                    edges = pc.min_max(table.column("ledger_id")).as_py()
                    bounds.append((edges["min"], edges["max"]))
            writer.add_key_value_metadata({INCOMPLETE: incomplete} if incomplete else {})
    ledgers = (min(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else None
    return TableFile(relative, rows, sink.size_bytes, sink.sha256, ledgers)


def write_parts(
    folder: Folder, stem: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch], *, incomplete: str = ""
) -> Iterator[TableFile]:
    """Write batches into files ``stem``-00000.parquet and so on, each of about ``PART_BYTES`` in memory; no file if there are no rows.

    ``incomplete``: as in ``write_part``.
    """
    number = 0
    while (first := next(batches, None)) is not None:
        rows = _portion(first, batches)
        yield write_part(folder, f"{stem}-{number:05d}.parquet", schema, rows, incomplete)
        number += 1


def _portion(first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    held = first.nbytes
    yield first
    while held < PART_BYTES and (batch := next(batches, None)) is not None:
        held += batch.nbytes
        yield batch


def _groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield batches joined to row groups."""
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


_READ_BYTES = 1 << 20
_SHOWN = 16  # digits of a digest


def check_file(folder: Folder, part: TableFile) -> None:
    """Raise unless a file is the one that was written: SourceNotFound, SourceBusy (exported again meanwhile), Corrupt."""
    digest = hashlib.sha256()
    with explained(folder, part.path), folder.open_input(part.path) as file:
        while data := file.read(_READ_BYTES):
            digest.update(data)
    found = digest.hexdigest()
    if found != part.sha256:
        raise errors.Corrupt(
            f"{part.path} cannot be read: {NAME} has SHA-256 {part.sha256[:_SHOWN]}…, the file {found[:_SHOWN]}…",
            hint="export the tables again, or restore the file",
            path=part.path,
            expected=part.sha256,
            found=found,
        )


def read_groups(folder: Folder, part: TableFile, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the row groups of a file with the columns of a schema; raises as ``open_checked``, and Unsupported for a missing column."""
    with _opened(folder, part) as file:
        if missing := check_columns(part, file, schema):
            raise lacking(part, missing)
        for number in range(file.num_row_groups):
            yield file.read_row_group(number, columns=schema.names, use_threads=False)


def check_rows(folder: Folder, part: TableFile) -> None:
    """Raise unless a file has as many rows as the manifest says; raises as ``open_checked``."""
    open_checked(folder, part, pa.schema(()))


def open_checked(folder: Folder, part: TableFile, schema: pa.Schema) -> list[str]:
    """Return the columns of a schema that a file lacks; raises SourceNotFound, SourceBusy, SourceChanged and Corrupt."""
    with _opened(folder, part) as file:
        return check_columns(part, file, schema)


@contextmanager
def _opened(folder: Folder, part: TableFile) -> Iterator[pq.ParquetFile]:
    with (
        explained(folder, part.path),
        folder.open_input(part.path) as source,
        pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True) as file,
    ):
        yield file


def lacking(part: TableFile, missing: Sequence[str]) -> errors.Unsupported:
    """Return the error for a file that lacks columns."""
    return errors.Unsupported(
        f"{part.path} has no column {', '.join(missing)}: an earlier version wrote it",
        hint="export the tables again",
        path=part.path,
    )


def check_columns(part: TableFile, file: pq.ParquetFile, schema: pa.Schema) -> list[str]:
    """Return the columns of a schema that a file lacks; raises SourceChanged for a wrong number of rows, Corrupt for another type."""
    found = file.metadata.num_rows
    if found != part.rows:
        raise errors.SourceChanged(
            f"{part.path}: expected {part.rows:,} rows, as {NAME} says, found {found:,}",
            hint="export the tables again; files of two exports are not mixed",
            path=part.path,
        )
    there = file.schema_arrow
    for name in schema.names:
        if name in there.names and there.field(name).type != schema.field(name).type:
            raise errors.Corrupt(
                f"{part.path}, column {name}: expected {schema.field(name).type}, found {there.field(name).type}",
                hint="export the tables again",
                path=part.path,
            )
    return [name for name in schema.names if name not in there.names]


@contextmanager
def explained(folder: Folder, relative: str) -> Iterator[None]:
    """Turn errors of reading a file of the folder into SourceNotFound, SourceBusy, Corrupt."""
    try:
        yield
    except (
        OSError,
        errors.SourceNotFound,
        errors.EntryLogCorrupt,
        UnicodeDecodeError,
        pa.ArrowException,
    ) as error:  # also for names in a damaged footer
        raise _explanation(folder, relative, error) from error


def _explanation(folder: Folder, relative: str, error: Exception) -> errors.StoreError:
    manifest = read_manifest(folder)
    clusters = () if manifest is None else manifest.clusters.values()
    is_named = manifest is None or any(
        part.path == relative for one in clusters for parts in one.tables.values() for part in parts
    )
    if not is_named:
        return errors.SourceBusy(
            f"the tables in {folder.place} were exported again while they were read", hint="run it again"
        )
    hint = "export the tables again, or restore the file"
    if isinstance(error, FileNotFoundError | errors.SourceNotFound):
        return errors.SourceNotFound(f"{relative} is gone: {NAME} names it", hint=hint, path=relative)
    cause = error.__cause__ if isinstance(error, errors.EntryLogCorrupt) and error.__cause__ is not None else error
    said = errors.brief(cause.strerror if isinstance(cause, NotRegular) else cause)
    return errors.Corrupt(f"{relative} cannot be read: {said}", hint=hint, path=relative)
