"""Row groups of Parquet files whose rows are sorted by a key: which of them may hold one, and what was read of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from store.errors import Corrupt, EntryLogCorrupt, SourceBusy, SourceChanged, SourceNotFound, StoreError, Unsupported
from store.names import LONG_MAX
from store.tables.folder import Folder
from store.tables.manifest import NAME, Part, read_manifest
from store.tables.proven import ProvenFile

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Bounds = tuple[Any, Any]  # Any: of one type, by column
_HELD_FILES = 64
_HELD_GROUPS = 4096


@dataclass(slots=True)
class ReadCount:
    """What was read of tables, and how many row groups those have that were opened."""

    groups: int = 0
    bytes: int = 0
    of_groups: int = 0
    errors: list[StoreError] = field(default_factory=list)
    """What is wrong with the files, which some questions take for damage of what they ask about."""

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Remember an error that the block raises."""
        try:
            yield
        except StoreError as error:
            if error.message not in {known.message for known in self.errors}:
                self.errors.append(error)
            raise


class Files:
    """The files of tables in FOLDER, of which few are open at a time."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._held: Kept[str, pq.ParquetFile] = Kept(_HELD_FILES, lambda file: 1)

    def open(self, relative: str, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
        """Return the file at RELATIVE; METADATA, where known, is not read again. Raises SourceNotFound, Corrupt."""

        def opened(where: str) -> pq.ParquetFile:
            file = ProvenFile(self.folder, where)
            source, known = pa.PythonFile(file, "r"), metadata or file.metadata
            return pq.ParquetFile(source, metadata=known, pre_buffer=False, page_checksum_verification=True)

        with explained(self.folder, relative):
            return self._held.get(relative, opened)


class Opened:
    """A file of a table that has the rows that the folder's list says."""

    def __init__(self, files: Files, part: Part, count: ReadCount) -> None:
        self._files = files
        self.relative, self.count = part.path, count
        file = files.open(part.path)
        self.metadata, self._schema = file.metadata, file.schema_arrow
        schema = self.metadata.schema
        self.places = {schema.column(place).path: place for place in range(self.metadata.num_columns)}
        found = self.metadata.num_rows
        if found != part.rows:
            raise SourceChanged(
                f"{part.path}: expected {part.rows:,} rows, as {NAME} says, found {found:,}",
                hint="export the tables again; files of two exports are not mixed",
                path=part.path,
            )

    def check(self, schema: pa.Schema) -> None:
        """Raise Unsupported where a column of SCHEMA is not there, Corrupt where one has another type."""
        missing = self.missing(schema)
        if missing:
            raise Unsupported(
                f"{self.relative} has no column {', '.join(missing)}: an earlier version wrote it",
                hint="export the tables again",
                path=self.relative,
            )

    def missing(self, schema: pa.Schema) -> list[str]:
        """Return the columns of SCHEMA that are not there; raises Corrupt where one has another type."""
        there = self._schema
        for name in set(schema.names) & set(there.names):
            expected, found = schema.field(name).type, there.field(name).type
            if found != expected:
                raise Corrupt(
                    f"{self.relative}, column {name}: expected {expected}, found {found}",
                    hint="export the tables again",
                    path=self.relative,
                )
        return [name for name in schema.names if name not in there.names]

    def groups(self, keys: Sequence[str]) -> Iterator[Group]:
        """Yield the row groups with the bounds of KEYS."""
        for number in range(self.metadata.num_row_groups):
            if self.metadata.row_group(number).num_rows:
                yield Group(self, number, keys)

    def read(self, number: int, columns: Sequence[str]) -> pa.Table:
        """Return COLUMNS of the row group NUMBER; raises Corrupt."""
        with self.count.noting(), explained(self._files.folder, self.relative):
            file = self._files.open(self.relative, self.metadata)
            return file.read_row_group(number, columns=list(columns), use_threads=False)


class Group:
    """One row group. ``bounds``: least and largest value of each key."""

    __slots__ = ("_facts", "_is_read", "_number", "_part", "bounds", "rows")

    def __init__(self, part: Opened, number: int, keys: Sequence[str]) -> None:
        self._part, self._number = part, number
        self._is_read = False
        self._facts = part.metadata.row_group(number)
        self.rows: int = self._facts.num_rows
        self.bounds: tuple[Bounds, ...] = tuple(self._bounds(key) for key in keys)
        part.count.of_groups += 1

    def _column(self, name: str) -> pq.ColumnChunkMetaData:
        return self._facts.column(self._part.places[name])

    def _bounds(self, key: str) -> Bounds:
        found = self._column(key).statistics
        if found is not None and found.has_min_max:
            return found.min, found.max
        column = self.read([key]).column(0)
        return column[0].as_py(), column[-1].as_py()

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Return COLUMNS of these rows; raises Corrupt."""
        self._part.count.groups += not self._is_read
        self._is_read = True
        self._part.count.bytes += sum(self._column(name).total_compressed_size for name in columns)
        return self._part.read(self._number, columns)


class LedgerGroups:
    """Row groups of files that follow one another by ledger; a file is opened when it may have a ledger that is asked for.

    PARTS are in the order of their entries where one ledger fills several; OPENED gives the row groups of one.
    """

    def __init__(self, parts: Sequence[Part], opened: Callable[[Part], list[Group]], count: ReadCount) -> None:
        bounds = [(part.ledgers or (0, LONG_MAX), part) for part in parts if part.rows]
        bounds.sort(key=lambda item: item[0])
        self._firsts = [first for (first, _), _ in bounds]
        self._lasts = [last for (_, last), _ in bounds]
        self._parts = [part for _, part in bounds]
        self._opened, self._count = opened, count
        self._held: Kept[int, list[Group]] = Kept(_HELD_GROUPS, len)
        self._last: tuple[int, list[Group]] = (-1, [])

    def of(self, ledger_id: int) -> list[Group]:
        """Return those that may have entries of a ledger, in their order."""
        if self._last[0] != ledger_id:
            numbers = range(bisect_left(self._lasts, ledger_id), bisect_right(self._firsts, ledger_id))
            groups = [group for number in numbers for group in self._held.get(number, self._open)]
            self._last = ledger_id, [one for one in groups if one.bounds[0][0] <= ledger_id <= one.bounds[0][1]]
        return self._last[1]

    def since(self, ledger_id: int) -> Iterator[Group]:
        """Yield those of a ledger and of all behind it, in their order; none is held."""
        for number in range(bisect_left(self._lasts, ledger_id), len(self._parts)):
            yield from (group for group in self._open(number) if group.bounds[0][1] >= ledger_id)

    def _open(self, number: int) -> list[Group]:
        with self._count.noting():
            groups, part = self._opened(self._parts[number]), self._parts[number]
            found = min(one.bounds[0][0] for one in groups), max(one.bounds[0][1] for one in groups)
            if part.ledgers is not None and found != part.ledgers:
                raise SourceChanged(
                    f"{part.path}: expected ledgers {part.ledgers[0]} to {part.ledgers[1]}, as {NAME} says, found"
                    f" {found[0]} to {found[1]}",
                    hint="export the tables again; files of two exports are not mixed",
                    path=part.path,
                )
        return sorted(groups, key=lambda group: group.bounds)


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
    said = " ".join(str(cause).split())[:200]
    return Corrupt(f"{relative} cannot be read: {said}", hint=hint, path=relative)


def _is_named(folder: Folder, relative: str) -> bool:
    manifest = read_manifest(folder)
    clusters = () if manifest is None else manifest.clusters.values()
    return manifest is None or any(
        part.path == relative for one in clusters for parts in one.tables.values() for part in parts
    )


class Kept(Generic[Key, Value]):
    """What was made last, up to LIMIT in the sum of SIZE_OF."""

    def __init__(self, limit: int, size_of: Callable[[Value], int]) -> None:
        self._limit, self._size_of = limit, size_of
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._size = 0
        self.misses = 0

    def get(self, key: Key, make: Callable[[Key], Value]) -> Value:
        """Return the value of KEY; MAKE makes one that is not there any more."""
        if key in self._values:
            self._values.move_to_end(key)
            return self._values[key]
        self.misses += 1
        value = self._values[key] = make(key)
        self._size += self._size_of(value)
        while self._size > self._limit and len(self._values) > 1:
            self._size -= self._size_of(self._values.popitem(last=False)[1])
        return value
