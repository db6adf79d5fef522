"""The files of exported tables as DuckDB opens them: proven bytes of those alone that ``tables.json`` names, on a disk or at a URL."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from functools import cache
from io import BytesIO
from typing import Any

import fsspec
import pyarrow.parquet as pq

from store.errors import Refused
from store.tables.folder import Folder
from store.tables.proven import ProvenFile
from store.tables.schemas import TABLES

_PROTOCOL = "tables"


class ProvenFiles(fsspec.AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The files at PATHS of FOLDER, and for the name of each table one without rows. What reading raises is added to ERRORS."""

    protocol = _PROTOCOL
    cachable = False  # of one statement's folder

    def __init__(self, folder: Folder, paths: Collection[str], errors: list[BaseException]) -> None:
        super().__init__()
        self._folder, self._paths, self._errors = folder, frozenset(paths), errors

    @property
    def addresses(self) -> list[str]:
        """What DuckDB may open."""
        return [self.address(path) for path in (*self._paths, *TABLES)]

    def address(self, path: str) -> str:
        """Return what PATH is called in SQL."""
        return f"{_PROTOCOL}://{path}"

    def open(self, path: str, mode: str = "rb", **_: Any) -> Any:  # Any: fsspec's options, a file
        """Open the file at an address."""
        relative = _relative(path)
        try:
            if relative in self._paths:
                return _NotedFile(self._folder, relative, self._errors)
            return BytesIO(_without_rows(relative))
        except BaseException as error:
            self._errors.append(error)
            raise

    def size(self, path: str) -> int | None:
        """Return the bytes of the file at an address."""
        relative = _relative(path)
        return self._folder.size(relative) if relative in self._paths else len(_without_rows(relative))

    def glob(self, path: str, **_: Any) -> list[str]:  # Any: fsspec's options
        """Return PATH: a name is no pattern."""
        return [path]

    def modified(self, path: str) -> datetime:
        """Return one time for all: no file is ever written twice under a name."""
        return datetime.fromtimestamp(0, UTC)


class _NotedFile(ProvenFile):
    def __init__(self, folder: Folder, relative: str, errors: list[BaseException]) -> None:
        super().__init__(folder, relative)
        self._errors = errors

    def read(self, size: int = -1) -> bytes:
        try:
            return super().read(size)
        except BaseException as error:
            self._errors.append(error)  # DuckDB's words of it are a traceback
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
