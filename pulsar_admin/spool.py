"""Collecting the cells of a table until all rows are known, because any row may be the first with a value in a column."""

from __future__ import annotations

import marshal
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.columns import Column, render_cells
from pulsar_admin.store.files import raise_temporary_error

if TYPE_CHECKING:
    from typing import IO

_PAGE_ROWS = 1000
_HELD_BYTES = 64 << 20
"""How many bytes of rows stay in memory before they go to a temporary file; a row of subscriptions has 150 bytes."""
_NOTHING = (None, 0, "")


class PackedCells(Struct, frozen=True):
    """Pages of rows, the indexes of the columns that are empty in all of them, and the number of rows."""

    pages: tuple[bytes, ...]
    silent: tuple[int, ...]
    count: int


class CellSpool:
    """The cells of records, at most ``_HELD_BYTES`` in memory; ``bare``: see ``render_cell``."""

    def __init__(self, columns: Sequence[Column], *, bare: bool) -> None:
        self._columns, self.bare = tuple(columns), bare
        self._silent = [*range(len(columns))]
        self._rows: list[tuple[str, ...]] = []
        self._pages: list[bytes] = []
        self._held_bytes = 0
        self._file: IO[bytes] | None = None
        self._lengths: list[int] = []  # of the pages in the file
        self.count = 0

    def __enter__(self) -> CellSpool:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, records: Iterable[object]) -> None:
        """Add records. Raises DiskFull."""
        columns, bare, rest = self._columns, self.bare, iter(records)
        while found := [*islice(rest, _PAGE_ROWS)]:  # rendering by columns takes half the time of rendering by rows
            values = [column.values(found) for column in columns]
            self._silent = [index for index in self._silent if all(value in _NOTHING for value in values[index])]
            cells = [render_cells(each, column.kind, bare=bare) for column, each in zip(columns, values, strict=True)]
            self._rows += zip(*cells, strict=True)
            self.count += len(found)
            if len(self._rows) >= _PAGE_ROWS:
                self._pack()

    def _pack(self) -> None:
        page, self._rows = marshal.dumps(self._rows), []
        self._hold(page)

    def _hold(self, page: bytes) -> None:
        self._pages.append(page)
        self._held_bytes += len(page)
        if self._held_bytes <= _HELD_BYTES:
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="pulsar-admin-rows-")  # noqa: SIM115 — closed in __exit__
            self._file.write(b"".join(self._pages))
            self._file.flush()
        except OSError as error:
            raise_temporary_error(error)
        self._lengths += map(len, self._pages)
        self._pages, self._held_bytes = [], 0

    def packed(self) -> PackedCells:
        """Return all cells, for ``add_packed`` of a spool with the same columns."""
        assert self._file is None
        self._pack()
        return PackedCells(tuple(self._pages), tuple(self._silent), self.count)

    def add_packed(self, some: PackedCells) -> None:
        """Add the cells ``packed`` in another process. Raises DiskFull."""
        if self._rows:
            self._pack()
        self._silent = [index for index in self._silent if index in some.silent]
        self.count += some.count
        for page in some.pages:
            self._hold(page)

    def telling(self) -> tuple[Column, ...]:
        """Return the columns for ``rows`` that are not empty in all of them (see ``columns.telling``); values are cells."""
        return tuple(
            replace(column, getter=itemgetter(index), is_rendered=True)
            for index, column in enumerate(self._columns)
            if not self.count or index not in self._silent
        )

    def rows(self) -> Iterator[Sequence[str]]:
        """Yield the cells of every record in all columns; call it after the last ``add``."""
        place = 0
        for length in self._lengths:
            assert self._file is not None
            yield from _rows_in(os.pread(self._file.fileno(), length, place))
            place += length
        for page in self._pages:
            yield from _rows_in(page)
        yield from self._rows


def _rows_in(page: bytes) -> list[tuple[str, ...]]:
    found: Any = marshal.loads(page)
    return found  # type: ignore[no-any-return]
