"""The files of exported tables as DuckDB opens them: proven bytes of those alone that ``tables.json`` names, on a disk or at a URL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache, partial
from io import BytesIO
from typing import Any

import fsspec
import pyarrow.parquet as pq

from store.errors import Refused
from store.tables.folder import Folder
from store.tables.groups import explained
from store.tables.proven import ProvenFile
from store.tables.schemas import TABLES

_PROTOCOL = "tables"


class ProvenFiles(fsspec.AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The files at ``paths`` of FOLDER, and for the name of each table one without rows. What reading raises is added to ERRORS."""

    protocol = _PROTOCOL
    cachable = False  # of one statement's folder

    def __init__(self, folder: Folder, errors: list[BaseException]) -> None:
        super().__init__()
        self.paths: frozenset[str] = frozenset()
        self._folder, self._errors = folder, errors

    @property
    def home(self) -> str:
        """Where DuckDB may open files."""
        return self.address("")

    def address(self, path: str) -> str:
        """Return what PATH is called in SQL."""
        return f"{_PROTOCOL}://{path}"

    def open(self, path: str, mode: str = "rb", **_: Any) -> Any:  # Any: fsspec's options, a file
        """Open the file at an address."""
        relative = _relative(path)
        with _noting(self._folder, relative, self._errors):
            if relative in self.paths:
                return _NotedFile(self._folder, relative, self._errors)
            return BytesIO(_without_rows(relative))

    def size(self, path: str) -> int:
        """Return the bytes of the file at an address."""
        relative = _relative(path)
        if relative not in self.paths:
            return len(_without_rows(relative))
        with _noting(self._folder, relative, self._errors):
            size = self._folder.size(relative)
            if size is None:
                raise FileNotFoundError(relative)
            return size

    def glob(self, path: str, **_: Any) -> list[str]:  # Any: fsspec's options
        """Return PATH: a name is no pattern."""
        return [path]

    def modified(self, path: str) -> datetime:
        """Return one time for all: no file is ever written twice under a name."""
        return datetime.fromtimestamp(0, UTC)


class _NotedFile(ProvenFile):
    def __init__(self, folder: Folder, relative: str, errors: list[BaseException]) -> None:
        super().__init__(folder, relative)
        self._noting = partial(_noting, folder, relative, errors)

    def read(self, size: int = -1) -> bytes:
        with self._noting():
            return super().read(size)


@contextmanager
def _noting(folder: Folder, relative: str, errors: list[BaseException]) -> Iterator[None]:
    """Add to ERRORS what is wrong with a file: DuckDB's words of it are a traceback."""
    try:
        with explained(folder, relative):
            yield
    except BaseException as error:
        errors.append(error)
        raise


def _relative(address: str) -> str:
    return address.removeprefix(f"{_PROTOCOL}://")


@cache
def _without_rows(table: str) -> bytes:
    if table not in TABLES:
        raise Refused(f"{table}: a statement here reads no files")
    made = BytesIO()
    pq.write_table(TABLES[table].empty_table(), made, store_schema=False)
    return made.getvalue()
