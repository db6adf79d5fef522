"""A Parquet file of a table: proven by its SHA-256 in the folder's list, read row group by row group."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from pulsar_admin.store.errors import (
    Corrupt,
    EntryLogCorrupt,
    SourceBusy,
    SourceChanged,
    SourceNotFound,
    StoreError,
    Unsupported,
)
from pulsar_admin.store.files import NotRegular
from pulsar_admin.store.tables.folder import Folder
from pulsar_admin.store.tables.manifest import NAME, Part, read_manifest

_READ_BYTES = 1 << 20
_SHOWN = 16  # digits of a digest


def check_file(folder: Folder, part: Part) -> None:
    """Raise unless PART is the file that was written: SourceNotFound, SourceBusy (exported again meanwhile), Corrupt."""
    digest = hashlib.sha256()
    with explained(folder, part.path), folder.open_input(part.path) as file:
        while data := file.read(_READ_BYTES):
            digest.update(data)
    found = digest.hexdigest()
    if found != part.sha256:
        raise Corrupt(
            f"{part.path} cannot be read: {NAME} has SHA-256 {part.sha256[:_SHOWN]}…, the file {found[:_SHOWN]}…",
            hint="export the tables again, or bring it back",
            path=part.path,
            expected=part.sha256,
            found=found,
        )


def read_groups(folder: Folder, part: Part, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the row groups of PART with the columns of SCHEMA; raises as ``open_checked``, and Unsupported for one that is missing."""
    with _opened(folder, part) as file:
        if missing := check_columns(part, file, schema):
            raise lacking(part, missing)
        for number in range(file.num_row_groups):
            yield file.read_row_group(number, columns=schema.names, use_threads=False)


def check_rows(folder: Folder, part: Part) -> None:
    """Raise unless PART has as many rows as the list says; raises as ``open_checked``."""
    open_checked(folder, part, pa.schema(()))


def open_checked(folder: Folder, part: Part, schema: pa.Schema) -> list[str]:
    """Return the columns of SCHEMA that PART lacks; raises SourceNotFound, SourceBusy, SourceChanged and Corrupt."""
    with _opened(folder, part) as file:
        return check_columns(part, file, schema)


@contextmanager
def _opened(folder: Folder, part: Part) -> Iterator[pq.ParquetFile]:
    with (
        explained(folder, part.path),
        folder.open_input(part.path) as source,
        pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True) as file,
    ):
        yield file


def lacking(part: Part, missing: Sequence[str]) -> Unsupported:
    """Return the error of PART, which lacks the columns MISSING."""
    return Unsupported(
        f"{part.path} has no column {', '.join(missing)}: an earlier version wrote it",
        hint="export the tables again",
        path=part.path,
    )


def check_columns(part: Part, file: pq.ParquetFile, schema: pa.Schema) -> list[str]:
    """Return the columns of SCHEMA that FILE lacks; raises SourceChanged for other rows than PART has, Corrupt for another type."""
    found = file.metadata.num_rows
    if found != part.rows:
        raise SourceChanged(
            f"{part.path}: expected {part.rows:,} rows, as {NAME} says, found {found:,}",
            hint="export the tables again; files of two exports are not mixed",
            path=part.path,
        )
    there = file.schema_arrow
    for name in schema.names:
        if name in there.names and there.field(name).type != schema.field(name).type:
            raise Corrupt(
                f"{part.path}, column {name}: expected {schema.field(name).type}, found {there.field(name).type}",
                hint="export the tables again",
                path=part.path,
            )
    return [name for name in schema.names if name not in there.names]


@contextmanager
def explained(folder: Folder, relative: str) -> Iterator[None]:
    """Say what is wrong with the file at RELATIVE of FOLDER while it is read; raises SourceNotFound, SourceBusy, Corrupt."""
    try:
        yield
    except (
        OSError,
        SourceNotFound,
        EntryLogCorrupt,
        UnicodeDecodeError,
        pa.ArrowException,
    ) as error:  # of names in a damaged footer, too
        raise _explanation(folder, relative, error) from error


def _explanation(folder: Folder, relative: str, error: Exception) -> StoreError:
    if not _is_named(folder, relative):
        return SourceBusy(f"the tables in {folder.place} were exported again while they were read", hint="run it again")
    hint = "export the tables again, or bring it back"
    if isinstance(error, FileNotFoundError | SourceNotFound):
        return SourceNotFound(f"{relative} is gone: {NAME} names it", hint=hint, path=relative)
    cause = error.__cause__ if isinstance(error, EntryLogCorrupt) and error.__cause__ is not None else error
    said = " ".join(str(cause.strerror if isinstance(cause, NotRegular) else cause).split())[:200]
    return Corrupt(f"{relative} cannot be read: {said}", hint=hint, path=relative)


def _is_named(folder: Folder, relative: str) -> bool:
    manifest = read_manifest(folder)
    clusters = () if manifest is None else manifest.clusters.values()
    return manifest is None or any(
        part.path == relative for one in clusters for parts in one.tables.values() for part in parts
    )
