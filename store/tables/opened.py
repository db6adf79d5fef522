"""A store for reading that is made of tables alone: what commands ask of it comes from the row groups that hold the answer."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from store.db.environment import Store, Txn, create_store, open_store
from store.db.files import LogFile, iter_logs
from store.db.storeinfo import FORMAT_VERSION, StoreInfo, StoreState
from store.errors import StoreError, Unsupported
from store.tables.entry_rows import COLUMNS, KEYS, Bodies, EntryTable
from store.tables.found import Found, find_tables
from store.tables.groups import Group
from store.tables.kept import KEPT, STORE
from store.tables.sorted_rows import (
    NODE_COLUMNS,
    BlockRows,
    NoRows,
    Rows,
    SortedRows,
    SpilledRows,
    kept_rows,
    node_rows,
)
from store.wording import counted


class TablesTxn(Txn):
    """One look into tables: they do not change."""

    __slots__ = ("_tables",)

    def __init__(self, store: TablesStore) -> None:
        self._store = store
        self._tables = store
        self.id = 0
        self.is_snapshot = True
        self.memo = {}
        self._on_altered = self._met = None

    @property
    def columns(self) -> EntryTable:
        return self._tables.entries

    def get(self, database: str, key: bytes) -> bytes | None:
        return self._tables.rows(database).get(key)

    def view(self, database: str, key: bytes) -> memoryview | None:
        value = self.get(database, key)
        return None if value is None else memoryview(value)

    def items(self, database: str, prefix: bytes = b"", start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        for key, value in self._tables.rows(database).seek(prefix, prefix if start is None else start):
            if not key.startswith(prefix):
                return
            yield key, value

    def keys(self, database: str, prefix: bytes) -> Iterator[bytes]:
        return (key for key, _ in self.items(database, prefix))

    def parts(self, database: str, prefix: bytes, start: bytes, limit: int) -> Iterator[tuple[bytes, bytes]]:
        size = len(prefix)
        while (found := next(self._tables.rows(database).seek(prefix, start), None)) is not None:
            key = found[0]
            if not key.startswith(prefix):
                return
            end = key.find(b"/", size, limit)
            yield (key[size:] if end < 0 else key[size:end]), key
            start = key + b"\0" if end < 0 else key[:end] + b"0"

    def last(self, database: str, prefix: bytes = b"") -> tuple[bytes, bytes] | None:
        found = deque(self.items(database, prefix), 1)
        return None if not found else found[0]

    def count(self, database: str) -> int:
        return self._tables.rows(database).count()


class TablesStore(Store):
    """A store of the tables of one cluster; nothing can be written to it."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self.writable = False
        self._rows: dict[str, Rows] = {}
        self._stack = ExitStack()
        about = json.loads(self._kept(STORE).get(b"") or b"{}")
        if "times" not in about.get("kept", ()):
            raise Unsupported(
                f"{found.place} has no times of ledgers: an earlier version exported these tables",
                hint="export them again: pulsar-admin store export tables DIR",
            )
        self.path = Path(about["path"])
        self.info = StoreInfo(FORMAT_VERSION, about["created"], StoreState.READY, tuple(about["sources"]))

    @contextmanager
    def read(self) -> Iterator[Txn]:
        yield TablesTxn(self)

    def last_txn_id(self) -> int:
        return 0

    def close(self) -> None:
        self._stack.close()

    @cached_property
    def entries(self) -> EntryTable:
        """The table ``entries``, with the catalogue's numbers of files."""
        groups = self.found.ledger_groups("entries", KEYS, COLUMNS)
        bodies = Bodies(self.found.ledger_groups("bodies", KEYS, ("record",)))
        with self.read() as txn:
            return EntryTable(groups, bodies, {str(self._place(log)): log.file_id for log in iter_logs(txn)})

    def _place(self, log: LogFile) -> Path:
        return Path(os.path.abspath(log.locate(self.path)))

    def rows(self, database: str) -> Rows:
        """Return the rows of DATABASE; those that are asked for here and there are written into a store in a temporary directory."""
        found = self._rows.get(database)
        if found is None:
            found = self._rows[database] = self._found(database)
        if isinstance(found, SortedRows) and found.is_scattered:
            found = self._rows[database] = self._spilled(database, found)
        return found

    def _found(self, database: str) -> Rows:
        if database == "tree":
            return node_rows(self.found.groups("nodes", ("path",), NODE_COLUMNS))
        if database == "entries":
            return BlockRows(self.entries)
        if database in KEPT:
            return self._kept(database)
        return NoRows()

    def _kept(self, database: str) -> SortedRows:
        return kept_rows(self._kept_groups, database)

    @cached_property
    def _kept_groups(self) -> list[Group]:
        return self.found.groups("rows", ("database", "key"), ("value",))

    def _spilled(self, database: str, rows: SortedRows) -> SpilledRows:
        path = Path(self._stack.enter_context(TemporaryDirectory(prefix="pulsar-admin-tables-"))) / "store"
        create_store(path, now_ms=self.info.created_ms)
        store = self._stack.enter_context(open_store(path, writable=True))
        store.replace_all(database, rows.all())
        return SpilledRows(self._stack.enter_context(store.read()), database)


def open_tables(place: str, cluster: str | None = None) -> TablesStore:
    """Open the tables at PLACE, a directory or a URL, as a store for reading: of CLUSTER, or of the only one there."""
    return TablesStore(find_tables(place, cluster))


def read_text(store: Store) -> str:
    """Return what was read of the tables that STORE is made of, in words."""
    assert isinstance(store, TablesStore)
    count = store.found.count
    groups = f"{count.groups:,} of {counted(count.of_groups, 'row group')}"
    return f"read {groups} of the tables opened, {counted(count.bytes, 'byte')}"


def damage_of(store: Store) -> tuple[StoreError, ...]:
    """Return what was wrong with the files that were read of the tables that STORE is made of."""
    assert isinstance(store, TablesStore)
    return (*store.found.count.errors,)
