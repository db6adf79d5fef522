"""The store's LMDB environment: opening, transactions, the writer lock. The only module that imports lmdb.

A store is a directory: ``store.json`` (format, sources), ``meta/`` (one LMDB environment, the databases of ``DATABASES``),
``entries/`` (entry logs that were copied, linked or written by this toolkit) and ``lock`` (held by the one writer).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from heapq import merge
from itertools import islice
from operator import itemgetter
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, cast

import lmdb
from msgspec.structs import replace

from pulsar_admin.store import files
from pulsar_admin.store.db import locks, storeinfo
from pulsar_admin.store.db.backups import back_up, damaged_store
from pulsar_admin.store.db.file import DATA_FILE, CommitRecord, is_as_committed, read_commit
from pulsar_admin.store.db.rows import DIGEST_BYTES, NAME_ENDING, WHOLE, altered_row, crc32c, sealed
from pulsar_admin.store.errors import (
    DiskFailed,
    DiskFull,
    IndexCorrupt,
    NotWritable,
    Refused,
    StoreBusy,
    StoreError,
    reason_of,
)

DATABASES = (
    "tree",
    "base",
    "logs",
    "entries",
    "times",
    "copies",
    "owners",
    "damage",
    "delayed",
    "nacks",
    "changes",
    "state",
)
_LATER = ("copies",)  # stores of before have none until they are opened for writing
_MAX_DATABASES = 2 * len(DATABASES)  # under both names, while rows get their digests
_FIRST_MAP_BYTES = 1 << 28
_PART_BYTES = 16 << 20
_MAX_READERS = 512
_READER_TABLE_BYTES = 9 << 12  # of lock.mdb, for _MAX_READERS
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_STEPS = 8  # rows that cost less to step over than to search for the row after them
_T = TypeVar("_T")


_Read = TypeVar("_Read", bound=Callable[..., Any])  # Any: any arguments, and any answer


def once(read: _Read) -> _Read:
    """Decorate a function of a transaction, or of a reader that has one as ``txn``, to cache its results in the
    transaction's ``memo``. The key is the decorated function or, if it has further arguments, a tuple of both."""

    @wraps(read)
    def kept(source: Any, *args: object) -> object:  # Any: a Txn, or what has one
        memo, key = getattr(source, "txn", source).memo, (kept, *args) if args else kept
        if key not in memo:
            memo[key] = read(source, *args)
        return memo[key]

    return cast(_Read, kept)


class Txn:
    """One LMDB transaction; keys and values are bytes, copied from the map: for rows of usual size a view would cost more.

    Every row is verified by its digest before it is used, and so is the *absence* of a row: the rows on both sides of
    its place are verified, because one of them may be that row with an altered key. The same holds for the limits of a
    range of rows with a prefix, and for rows of which only keys are read. A wrong digest raises IndexCorrupt; where
    that is suppressed for one of many rows, the transaction still ends with it: no answer is given, and nothing
    committed, that an altered row may have changed.

    ``memo``: what read models keep of this snapshot, each under its own key. ``is_snapshot``: nothing changes in it,
    so they may keep what they read of rows; otherwise what they keep is compared with the rows, or dropped with the
    changes.
    """

    __slots__ = ("_handles", "_met", "_on_altered", "_store", "_txn", "id", "is_snapshot", "memo")

    def __init__(
        self,
        store: Store,
        txn: lmdb.Transaction,
        handles: Mapping[str, Any],  # Any: lmdb's own
        *,
        is_snapshot: bool = False,
    ) -> None:
        self._store = store
        self._txn = txn
        self._handles = handles
        self.id: int = txn.id()
        self.is_snapshot = is_snapshot
        self.memo: dict[object, Any] = {}  # Any: each reader's own
        self._on_altered: Callable[[bytes], None] | None = None
        self._met: IndexCorrupt | None = None

    @property
    def store(self) -> Store:
        """The store that this is a transaction of."""
        return self._store

    @property
    def has_digests(self) -> bool:
        """Whether rows have digests: those of a store of format 1 get them with its next change."""
        return True

    def with_rows(self, database: str, rows: Mapping[bytes, bytes | None]) -> Txn:
        """Return a read-only view of this snapshot with other values for rows of one database (None: no row)."""
        return _RowsReplaced(self, database, rows)

    @contextmanager
    def passing_altered(self, told: Callable[[bytes], None] = lambda key: None) -> Iterator[None]:
        """Let passes continue over altered rows for the life of the block; ``told`` gets their keys. Reading such a
        row alone still raises.

        For checks, which report these rows, and for repairs, which write them anew.
        """
        before, self._on_altered = self._on_altered, told
        try:
            yield
        finally:
            self._on_altered = before

    @contextmanager
    def noting_altered(self, noted: list[bytes]) -> Iterator[None]:
        """Collect the keys of altered rows over which passes continue for the life of the block: results kept of such
        a pass are incomplete."""
        told = self._on_altered
        if told is None:  # they raise
            yield
            return

        def note(key: bytes) -> None:
            noted.append(key)
            told(key)

        with self.passing_altered(note):
            yield

    def get(self, database: str, key: bytes) -> bytes | None:
        value = self.view(database, key)
        return None if value is None else bytes(value)

    def read_state(self, key: bytes, what: str, parse: Callable[[Any], _T]) -> _T | None:  # Any: JSON
        """Return what ``parse`` makes of the JSON of a row of ``state``, None without it; raises IndexCorrupt, which names ``what``."""
        row = self.get("state", key)
        try:
            return None if row is None else parse(json.loads(row))
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise damaged_store(self.store.path, f"the row of {what} is damaged: {reason_of(error)}") from error

    def view(self, database: str, key: bytes) -> memoryview | None:
        """Return the value, which may be large, in one copy."""
        row: Any = self._txn.get(key, db=self._handles[database])  # Any: lmdb's stubs say memoryview as well as bytes
        if row is None:
            self._check_absent(database, key)
            return None
        return self._proven(database, key, row)

    def some(self, database: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return key → value for those ``keys`` with an unaltered row; the caller reads the others one by one."""
        with self._cursor(database) as cursor:
            rows = cursor.getmulti(keys)
        if not self.has_digests:
            return dict(rows)
        return {key: row[:-DIGEST_BYTES] for key, row in rows if crc32c(key + row) == WHOLE}

    def put(self, database: str, key: bytes, value: bytes) -> None:
        self._txn.put(key, sealed(key, value), db=self._handles[database])

    def put_or_delete(self, database: str, key: bytes, value: bytes | None) -> None:
        """Write a row, or with None for its value delete it."""
        if value is None:
            self.delete(database, key)
        else:
            self.put(database, key, value)

    def put_all(self, database: str, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Write rows (key, value): several times as fast as one by one. Their generator may read meanwhile."""
        with self._cursor(database) as cursor:
            cursor.putmulti((key, sealed(key, value)) for key, value in rows)

    def append(self, database: str, rows: list[tuple[bytes, bytes]]) -> None:
        """Write rows; if their keys are above all existing ones, they fill pages in order and cost no search."""
        whole = [(key, sealed(key, value)) for key, value in rows]
        with self._cursor(database) as cursor:
            _, added = cursor.putmulti(whole, append=True)
            if added < len(whole):  # lmdb silently leaves out rows that are not in order
                cursor.putmulti(whole)

    def delete(self, database: str, key: bytes) -> bool:
        return bool(self._txn.delete(key, db=self._handles[database]))

    def items(self, database: str, prefix: bytes = b"", start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) in key order, from ``start`` (default: the prefix), while keys begin with the prefix."""
        with self._cursor(database) as cursor:
            if not self._seek(cursor, database, prefix if start is None else start):
                return
            has_digests = self.has_digests
            for key, row in cursor:  # of millions: no call for each
                if has_digests and crc32c(key + row) != WHOLE:
                    self._tell_altered(database, key)
                elif not key.startswith(prefix):
                    return
                else:
                    yield key, row[:-DIGEST_BYTES] if has_digests else row

    def find_altered(self, database: str) -> list[bytes]:
        """Return the keys of the altered rows of a database without reporting them; empty if rows have no digests."""
        if not self.has_digests:
            return []
        with self._cursor(database) as cursor:
            if not cursor.first():
                return []
            return [key for key, row in cursor if crc32c(key + row) != WHOLE]  # of millions: half the time of ``items``

    def keys(self, database: str, prefix: bytes) -> Iterator[bytes]:
        """Yield the keys that begin with a prefix, in order."""
        return (key for key, _ in self.items(database, prefix))

    def every(self, database: str, step: int) -> list[bytes]:
        """Return each ``step``-th key of a database, in order, but those of altered rows: to cut a pass over all into parts."""
        with self._cursor(database) as cursor:
            rows = islice(cursor, step, None, step)  # of millions
            return [key for key, row in rows if not self.has_digests or crc32c(key + row) == WHOLE]

    def parts(self, database: str, prefix: bytes, start: bytes, limit: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield (part of a key between the prefix and the next slash, key), from the key ``start`` on; one key, the first, per part.

        A part is repeated if keys of other parts lie between its own (``x``, ``x-1``, ``x/y``). Keys whose part ends
        beyond ``limit`` bytes are all yielded.
        """
        size, has_digests = len(prefix), self.has_digests
        with self._cursor(database) as cursor:
            is_there = self._seek(cursor, database, start)
            while is_there:
                inside, steps = b"", 0  # the part that was yielded last, with a slash; how many of its rows were passed
                for key, row in cursor:
                    if has_digests and crc32c(key + row) != WHOLE:
                        self._tell_altered(database, key)
                    elif inside and key.startswith(inside):
                        steps += 1
                        if steps == _STEPS:
                            break
                    elif not key.startswith(prefix):
                        return
                    elif (end := key.find(b"/", size, limit)) >= 0:
                        inside, steps = key[: end + 1], 0
                        yield key[size:end], key
                    else:
                        inside, steps = key + b"/" if len(key) < limit else b"", 0
                        yield key[size:], key
                else:
                    return
                is_there = self._seek(cursor, database, inside[:-1] + b"0")  # the byte behind the slash

    def last(self, database: str, prefix: bytes = b"") -> tuple[bytes, bytes] | None:
        """Return the last (key, value) whose key begins with a prefix, or None."""
        with self._cursor(database) as cursor:
            after = prefix.rstrip(b"\xff")
            after = after[:-1] + bytes([after[-1] + 1]) if after else b""
            if after and self._seek(cursor, database, after):
                self._passed(database, cursor.key(), cursor.value())
                is_there = cursor.prev()
            else:
                is_there = cursor.last()
            while is_there:
                key = cursor.key()
                value = self._passed(database, key, cursor.value())
                if not key.startswith(prefix):
                    return None
                if value is not None:
                    return key, value
                is_there = cursor.prev()
            return None

    def count(self, database: str) -> int:
        """Return how many rows a database has; 0 for one that did not exist when this store was created."""
        if database in _LATER and database not in self._handles:
            return 0
        return int(self._txn.stat(self._handles[database])["entries"])

    def clear(self, database: str) -> None:
        self._txn.drop(self._handles[database], delete=False)

    def _cursor(self, database: str) -> Any:  # Any: lmdb's stubs say memoryview as well as bytes
        return self._txn.cursor(db=self._handles[database])

    def _proven(self, database: str, key: bytes, row: bytes) -> memoryview:
        """Return the value in a row; raises IndexCorrupt unless it is what was written under this key."""
        if crc32c(key + row) != WHOLE:
            raise self._altered(database, key)
        return memoryview(row)[:-DIGEST_BYTES]

    def _passed(self, database: str, key: bytes, row: bytes) -> bytes | None:
        """Return the value in a row that a pass reads; None for an altered one, whose key ``on_altered`` gets."""
        if crc32c(key + row) != WHOLE:
            self._tell_altered(database, key)
            return None
        return row[:-DIGEST_BYTES]

    def _tell_altered(self, database: str, key: bytes, *what: str) -> None:
        if self._on_altered is None:
            raise self._altered(database, key, *what)
        self._on_altered(key)

    def _altered(self, database: str, key: bytes, *what: str) -> IndexCorrupt:
        error = altered_row(self._store.path, database, key, *what)
        if self._on_altered is None and self._met is None:
            self._met = error
        return error

    @property
    def passes_altered(self) -> bool:
        """Whether passes now continue over altered rows, because a caller reports them."""
        return self._on_altered is not None

    def check_met(self) -> None:
        """Raise the IndexCorrupt of the first altered row that was read, except for those a caller let passes skip."""
        if self._met is not None:
            raise self._met

    def _seek(self, cursor: Any, database: str, key: bytes) -> bool:
        """Go to the first row from a key on and return whether there is one; the row before it is verified, as it may
        be that row with an altered key."""
        if not key:
            return bool(cursor.first())
        is_there = bool(cursor.set_range(key))
        if is_there and (after := cursor.key()) <= key:
            if after < key:  # a page above names a greater key than the first row below it
                self._tell_altered(database, after, "it is not in the order of keys")
                while is_there and cursor.key() < key:
                    is_there = bool(cursor.next())
            return is_there
        if cursor.prev() if is_there else cursor.last():
            before = cursor.key()
            self._passed(database, before, cursor.value())
            if before >= key:  # a page above names another key than the rows below it
                self._tell_altered(database, before, "it is not in the order of keys")
            return is_there and bool(cursor.next())
        return is_there and bool(cursor.first())

    def _check_absent(self, database: str, key: bytes) -> None:
        """Verify the rows around the place of a key that was not found."""
        with self._cursor(database) as cursor:
            if self._seek(cursor, database, key):
                after = cursor.key()
                self._passed(database, after, cursor.value())
                if after <= key:
                    self._tell_altered(database, after, "it is not in the order of keys")


class UndigestedTxn(Txn):
    """A read-only transaction of a store of format 1, whose rows have no digests and so are not verified."""

    __slots__ = ()

    @property
    def has_digests(self) -> bool:
        return False

    def _proven(self, database: str, key: bytes, row: bytes) -> memoryview:
        return memoryview(row)

    def _passed(self, database: str, key: bytes, row: bytes) -> bytes:
        return row

    def _check_absent(self, database: str, key: bytes) -> None:
        """Do nothing: without digests an altered row cannot be detected."""


class _RowsReplaced(Txn):
    """A snapshot in which some rows of one database have other values, or are absent."""

    __slots__ = ("_database", "_keys", "_rows")

    def __init__(self, txn: Txn, database: str, rows: Mapping[bytes, bytes | None]) -> None:
        super().__init__(txn._store, txn._txn, txn._handles, is_snapshot=True)
        self._database = database
        self._rows = rows
        self._keys = sorted(key for key, value in rows.items() if value is not None)

    def _tell_altered(self, database: str, key: bytes, *what: str) -> None:
        if database != self._database or key not in self._rows:
            super()._tell_altered(database, key, *what)

    def view(self, database: str, key: bytes) -> memoryview | None:
        if database != self._database or key not in self._rows:
            return super().view(database, key)
        value = self._rows[key]
        return None if value is None else memoryview(value)

    def some(self, database: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        if database != self._database:
            return super().some(database, keys)
        return {key: bytes(value) for key in keys if (value := self.view(database, key)) is not None}

    def items(self, database: str, prefix: bytes = b"", start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        rows = super().items(database, prefix, start)
        if database != self._database:
            return rows
        own = (key for key in self._keys if key.startswith(prefix) and (start is None or key >= start))
        kept = ((key, value) for key, value in rows if key not in self._rows)
        return merge(kept, ((key, value) for key in own if (value := self._rows[key]) is not None))

    def parts(self, database: str, prefix: bytes, start: bytes, limit: int) -> Iterator[tuple[bytes, bytes]]:
        if database != self._database:
            yield from super().parts(database, prefix, start, limit)
            return
        size, last = len(prefix), None
        for key in self.keys(database, prefix):
            if key >= start:
                end = key.find(b"/", size, limit)
                part = key[size:] if end < 0 else key[size:end]
                if part != last:
                    yield part, key
                last = part if end >= 0 or len(key) < limit else None

    def last(self, database: str, prefix: bytes = b"") -> tuple[bytes, bytes] | None:
        if database != self._database:
            return super().last(database, prefix)
        return max(self.items(database, prefix), key=itemgetter(0), default=None)

    def count(self, database: str) -> int:
        return sum(1 for _ in self.items(database)) if database == self._database else super().count(database)


class Store:
    """An open store. Reading needs no lock; writing holds ``lock`` for the life of the object, or the caller's for longer."""

    def __init__(self, path: Path, *, writable: bool, lock: int | None = None) -> None:
        self.path = path
        self.writable = writable
        self.walked: int | None = None
        """The transaction whose pages were walked before this was opened: a check need not do it again."""
        self.file = 0, 0
        """The device and the number of the file that is open: the path may lead to another store by now."""
        self._handles: dict[str, Any] = {}  # Any: lmdb's opaque database handles
        self._has_digests = True
        self._env: lmdb.Environment | None = None
        self._record: CommitRecord | None = None
        self._failed: StoreError | None = None
        self._lock = locks.take_writer_lock(path) if writable and lock is None else None
        try:
            self.info = storeinfo.read_store_info(
                path
            )  # under the lock: a writer finds no state that another one is changing
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        meta = self.path / "meta"
        if not (meta / DATA_FILE).is_file():
            raise damaged_store(self.path, f"{self.path} lacks {meta / DATA_FILE}")
        locks.check_local(meta)
        # Who cannot enter itself in LMDB's table of readers gets its pages written over by any writer: those have to wait.
        registers = self.writable or locks.may_register(self.path)
        if not registers:
            self._lock = locks.take_reader_lock(self.path)
        if is_as_committed(meta):
            self._open_environment(registers=registers)
        elif self.writable or not registers:
            storeinfo.walk_pages(self.path)
            self._open_environment(registers=registers)
        else:
            self._open_walked()
        if self.writable:
            self._check_change()
            self._record = CommitRecord(meta)
            if not is_as_committed(meta):
                self._put_record()

    def _open_walked(self) -> None:
        """Open for reading an environment that is not as its last commit left it: a writer is active or was killed, or
        the file was replaced."""
        descriptor = locks.try_reader_lock(self.path)
        if descriptor is None:  # what differs is what the writer does
            self._open_environment(registers=True)
            return
        try:
            if is_as_committed(self.path / "meta"):
                self._open_environment(registers=True)
                return
            storeinfo.walk_pages(self.path)
            self._open_environment(registers=True)
            self._check_change()
            # The next reader need not walk again. Another reader that does the same, and a disk that is full, leave it to that.
            with suppress(BlockingIOError, StoreError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._record = CommitRecord(self.path / "meta")
                self._put_record()
        finally:
            os.close(descriptor)
            if self._record is not None:
                self._record.close()
                self._record = None

    def _check_change(self) -> None:
        """Raise IndexCorrupt when the audit log has not the last change that was committed."""
        record = read_commit(self.path / "meta")
        found = self._last_change()
        if record is not None and found is not None and found < record.change:
            raise damaged_store(self.path, f"{self.path} lost changes: expected {record.change}, found {found}")

    def _open_environment(self, *, registers: bool) -> None:
        status = (self.path / "meta" / DATA_FILE).stat()
        self.file, data_bytes = (status.st_dev, status.st_ino), status.st_size
        if registers:
            files.reserve_file(self.path / "meta" / "lock.mdb", _READER_TABLE_BYTES)
        map_bytes = max(_FIRST_MAP_BYTES, 1 << (2 * data_bytes - 1).bit_length() if data_bytes else 0)
        with _translated(self.path):
            try:
                self._open_lmdb(map_bytes, registers=registers)
            except lmdb.ReadersFullError:
                self._open_full(map_bytes)

    def _open_lmdb(self, map_bytes: int, *, registers: bool) -> None:
        env = self._env = lmdb.open(
            str(self.path / "meta"),
            create=False,
            max_dbs=_MAX_DATABASES,
            max_readers=_MAX_READERS,
            map_size=map_bytes,
            readonly=not self.writable,
            lock=registers,
        )
        if registers:
            env.reader_check()  # readers that were killed keep their slots, and every page they saw from being used again
        self._open_databases(env)

    def _open_full(self, map_bytes: int) -> None:
        """Open an environment whose table of readers is full, after freeing the slots of killed readers.

        If it is full of living readers, a reader takes the lock against writers instead of a slot, like a reader that
        may not write the table; for a writer, ReadersFullError is raised.
        """
        self._close_environment()
        library = getattr(sys.modules.get("lmdb.cpython"), "__file__", None)
        if library is not None:
            locks.clear_dead_readers(self.path / "meta", library)
        try:
            self._open_lmdb(map_bytes, registers=True)
        except lmdb.ReadersFullError:
            if self.writable:
                raise
            self._close_environment()
            if self._lock is None:
                self._lock = locks.take_reader_lock(self.path, "all reader slots are taken")
            self._open_lmdb(map_bytes, registers=False)

    def _close_environment(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None

    def _open_databases(self, env: lmdb.Environment) -> None:
        """Open the databases by their names in the newest state; the names show whether rows have digests."""
        with env.begin() as txn, txn.cursor() as cursor:
            names = {bytes(name).decode("utf-8", "replace") for name in cursor.iternext(values=False)}
        self._has_digests = names.isdisjoint(DATABASES)
        ending = NAME_ENDING if self._has_digests else ""
        handles = {}
        for name in DATABASES:
            if name + ending in names or (name in _LATER and self.writable and self._has_digests):
                handles[name] = env.open_db((name + ending).encode(), create=self.writable)
            elif name not in _LATER:
                raise damaged_store(self.path, f"{self.path} lacks the database {name!r}")
        self._handles = handles

    def _env_of(self) -> lmdb.Environment:
        assert self._env is not None
        return self._env

    def _put_record(self) -> None:
        """Record the state of the last commit, and the number of the last change."""
        if self._record is not None and (change := self._last_change()) is not None:
            self._record.put(change)

    def _last_change(self) -> int | None:
        """Return the number of the last change; None if its row was altered (reading that change raises the error)."""
        try:
            with self.read() as txn:
                return last_change(txn)
        except IndexCorrupt:
            return None

    @property
    def has_digests(self) -> bool:
        """Whether rows have digests, in the state opened or written last."""
        return self._has_digests

    @contextmanager
    def read(self) -> Iterator[Txn]:
        """Open a snapshot for reading."""
        with self._translated_once(), self._begin() as txn:
            opened = (Txn if self._has_digests else UndigestedTxn)(self, txn, self._handles, is_snapshot=True)
            yield opened
            opened.check_met()

    def _begin(self) -> lmdb.Transaction:
        env = self._env_of()
        try:
            txn = env.begin()
        except lmdb.MapResizedError:
            env.set_mapsize(0)
            txn = env.begin()
        except lmdb.ReadersFullError:
            env.reader_check()
            txn = env.begin()
        if not self._has_digests and txn.get(DATABASES[0].encode()) is None:  # another process gave rows their digests
            txn.abort()
            self._open_databases(env)
            txn = env.begin()
        return txn

    def write(self, work: Callable[[Txn], _T]) -> _T:
        """Run ``work`` in one write transaction and commit; it runs again on a larger map if the map was full.

        In a store of format 1 rows first get their digests, in transactions of a bounded size, which count as part of
        ``work``.
        """
        if not self.writable:
            raise NotWritable(f"{self.path} was opened for reading")
        if self._has_digests:
            return self._commit(lambda env: self._write_once(env, work))
        # First: what cannot read rows with digests must refuse the store by its number, not change rows that are copied already.
        self.update_info(format_version=storeinfo.FORMAT_VERSION)
        before = self.last_txn_id()
        while self._commit(self._copy_with_digests):
            pass
        return self._commit(lambda env: self._write_digests(env, work, before + 1))

    def _commit(self, write: Callable[[lmdb.Environment], _T]) -> _T:
        env = self._env_of()
        while True:
            try:
                with self._translated_once(lmdb.MapFullError):
                    result = write(env)
            except lmdb.MapFullError:
                env.reader_check()
                env.set_mapsize(env.info()["map_size"] * 2)
            else:
                self._put_record()
                return result

    def add_digests(self) -> None:
        """Give rows of a store of format 1 their digests, which its first change would."""
        if not self._has_digests:
            self.write(lambda txn: None)

    def _write_once(self, env: lmdb.Environment, work: Callable[[Txn], _T]) -> _T:
        with env.begin(write=True) as txn:
            opened = Txn(self, txn, self._handles)
            result = work(opened)
            opened.check_met()
            return result

    def _copy_with_digests(self, env: lmdb.Environment) -> bool:
        """Copy the next rows with their digests into databases of other names; return whether there may be more.

        They are not read before the old ones are dropped, and the old ones do not change: an interrupted copy
        continues after its last row.
        """
        size_bytes = 0
        with env.begin(write=True) as txn:
            for name, old in self._handles.items():
                new = env.open_db((name + NAME_ENDING).encode(), txn=txn)
                with txn.cursor(db=old) as rows, txn.cursor(db=new) as cursor:
                    if not _go_behind(rows, cursor.key() if cursor.last() else None):
                        continue
                    part = _take_part((key, sealed(key, value)) for key, value in rows)
                    if cursor.putmulti(part, append=True) != (len(part), len(part)):
                        raise damaged_store(self.path, f"the rows of {name} in {self.path}/meta are not in order")
                size_bytes += sum(len(key) + len(value) for key, value in part)
                if size_bytes >= _PART_BYTES:
                    return True
        return False

    def _write_digests(self, env: lmdb.Environment, work: Callable[[Txn], _T], txn_id: int) -> _T:
        """Run ``work`` on the databases in which every row has its digest, and drop the old ones, all or nothing.

        For ``work`` it is the transaction ``txn_id``: the copies before it changed nothing on which a plan depends.
        """
        try:
            with env.begin(write=True) as txn:
                handles = {name: env.open_db((name + NAME_ENDING).encode(), txn=txn) for name in DATABASES}
                new = Txn(self, txn, handles)
                new.id = txn_id
                for name, old in self._handles.items():
                    if new.count(name) != txn.stat(old)["entries"]:
                        raise damaged_store(self.path, f"the rows of {name} in {self.path}/meta are not in order")
                result = work(new)
                new.check_met()
                for old in self._handles.values():
                    txn.drop(old, delete=True)
        except BaseException:
            with suppress(lmdb.Error):
                self._open_databases(env)  # LMDB forgets the names of what was dropped, also where that was taken back
            raise
        self._open_databases(env)
        return result

    def replace_all(self, database: str, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Replace all rows of a database, in transactions of a bounded size: LMDB keeps the pages that a transaction wrote in memory.

        An interruption leaves a part: only for a store that is not ready. The rows may not come from a transaction of
        this store.
        """
        source = iter(rows)
        self.write(lambda txn: txn.clear(database))
        while part := _take_part(source):
            self.write(lambda txn, part=part: txn.append(database, part))  # type: ignore[misc]  # binds this one

    @contextmanager
    def _translated_once(self, *passing: type[BaseException]) -> Iterator[None]:
        """Turn lmdb's errors into ours; after a commit that the disk refused, which ends LMDB's environment, raise that error again."""
        try:
            with _translated(self.path, (lmdb.PanicError, *passing)):
                yield
        except lmdb.PanicError as error:
            if self._failed is not None:
                raise self._failed from error
            raise damaged_store(self.path, f"{self.path}/meta: {error}") from error
        except (DiskFull, DiskFailed) as error:
            self._failed = error
            raise

    def last_txn_id(self) -> int:
        return int(self._env_of().info()["last_txnid"])

    def back_up(self) -> Path:
        """Copy the environment of a store open for writing, see ``store.db.backups.back_up``."""
        return back_up(self.path, self.last_txn_id())

    def update_info(self, **changes: Any) -> None:  # Any: JSON values of StoreInfo's fields
        """Replace ``store.json`` atomically with some fields changed."""
        self.info = replace(self.info, **changes)
        storeinfo.write_store_info(self.path, self.info)

    def close(self) -> None:
        self._close_environment()
        if self._record is not None:
            self._record.close()
            self._record = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _go_behind(rows: Any, key: bytes | None) -> bool:  # Any: lmdb's cursor
    """Move a cursor to the first row after a key (None: to the first row); return whether such a row exists."""
    if key is None:
        return bool(rows.first())
    return bool(rows.set_range(key)) and (rows.key() != key or bool(rows.next()))


def _take_part(rows: Iterator[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the next rows, as many as one transaction writes."""
    part, size_bytes = [], 0
    for row in rows:
        part.append(row)
        size_bytes += len(row[0]) + len(row[1])
        if size_bytes >= _PART_BYTES:
            break
    return part


def last_change(txn: Txn) -> int:
    """Return the number of the last change in the audit log, 0 before the first one."""
    last = txn.last("changes")
    return 0 if last is None else int.from_bytes(last[0], "big")


def create_store(
    path: Path,
    *,
    now_ms: int,
    state: storeinfo.StoreState = storeinfo.StoreState.READY,
    sources: tuple[dict[str, Any], ...] = (),  # Any: JSON objects, see StoreInfo
    mode: int = files.PRIVATE_DIRECTORY,
    lock: int | None = None,
) -> None:
    """Create an empty store, its directories with this mode; raises as ``check_new_store``, StoreBusy, NotWritable and DiskFull.

    ``lock``: the path's writer lock, if the caller holds it: two processes never create one store.
    """
    if lock is None:
        storeinfo.check_new_store(path)
        with locks.writer_lock(path, mode) as held:
            create_store(path, now_ms=now_ms, state=state, sources=sources, mode=mode, lock=held)
        return
    storeinfo.check_new_store(path)  # under the lock: another process may have made a store since the caller looked
    for name in ("entries", "meta"):
        files.remove_tree(path / name)  # of a store whose making was stopped: it may have another mode
        files.create_directory(path / name, mode=mode)
    files.reserve_file(path / "meta" / "lock.mdb", _READER_TABLE_BYTES)
    with _translated(path):
        env = lmdb.open(
            str(path / "meta"),
            map_size=_FIRST_MAP_BYTES,
            max_dbs=_MAX_DATABASES,
            max_readers=_MAX_READERS,
            mode=files.mode_below(path / "meta"),
        )
        with env.begin(write=True) as txn:
            for name in DATABASES:
                env.open_db((name + NAME_ENDING).encode(), txn=txn)
        env.close()
    record = CommitRecord(path / "meta")
    record.put(0)
    record.close()
    storeinfo.write_store_info(path, storeinfo.StoreInfo(storeinfo.FORMAT_VERSION, now_ms, state, sources))


def open_store(
    path: Path, *, writable: bool = False, unindexed: bool = False, unfinished: bool = False, lock: int | None = None
) -> Store:
    """Open a store. Close it, or use it in ``with``. A store without index is refused unless ``unindexed``, a
    half-done import unless ``unfinished``.

    ``lock``: the path's writer lock, if the caller holds it and continues to hold it.
    """
    info = storeinfo.read_store_info(path)
    if not unfinished:
        storeinfo.check_state(path, info, unindexed=unindexed)
    return Store(path, writable=writable, lock=lock)


class SharedStore:
    """An open store that several threads and iterations share (None: there is nothing to share, and no call may
    follow).

    An iteration in progress keeps LMDB's map open: reading the map after the file has shrunk would kill the process. So ``close``
    refuses new work, and the last reader closes the map.
    """

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._lock = Lock()
        self._users = 0
        self._closed = False

    @contextmanager
    def opened(self, *, unindexed: bool = False) -> Iterator[Store]:
        """Hold the store open while it is used; raises Refused when it was closed, and, unless ``unindexed``, has no index."""
        store = self._store
        assert store is not None
        with self._lock:
            if self._closed:
                raise Refused(f"{store.path} was closed", hint="open it again: pulsar_admin.open_store")
            storeinfo.check_state(store.path, store.info, unindexed=unindexed)
            self._users += 1
        try:
            yield store
        finally:
            with self._lock:
                self._users -= 1
                ends = self._closed and not self._users
            if ends:
                store.close()

    @contextmanager
    def writing(self, *, beside_readers: bool = False) -> Iterator[Store]:
        """Hold the store for work that writes; raises NotWritable, StoreBusy, and Refused while this process reads it.

        LMDB's map may grow when much is written, which readers would not survive; ``beside_readers`` is for one small transaction.
        """
        with self.opened() as store:
            if not store.writable:
                raise NotWritable(
                    f"{store.path} was opened for reading",
                    hint="open it with open_store(…, writable=True)",
                    path=str(store.path),
                )
            if self._users > 1 and not beside_readers:
                raise Refused(f"an iteration still reads {store.path}", hint="end it first, or close its generator")
            yield store

    def close(self) -> None:
        """Refuse new work, and close the store when its last reader is done."""
        with self._lock:
            ends = not self._closed and not self._users
            self._closed = True
        if ends and self._store is not None:
            self._store.close()


@contextmanager
def _translated(path: Path, passing: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
    """Turn lmdb's errors into ours, except the class ``passing``."""
    try:
        yield
    except passing:
        raise
    except lmdb.Error as error:
        text = str(error)
        failed = os.strerror(errno.EIO) in text
        # LMDB reports a write that was cut short, as on a full disk, also as an I/O error.
        if any(os.strerror(number) in text for number in _FULL) or (
            failed and not files.has_room(path / "meta" / DATA_FILE)
        ):
            raise DiskFull(
                f"no space left for {path}/meta: {text}", hint="free space, then run it again: nothing changed"
            ) from error
        if failed:
            raise DiskFailed(
                f"{path}/meta: the disk failed: {text}",
                hint="see the kernel's messages (dmesg); nothing changed: move the store to a disk that works",
                path=str(path),
            ) from error
        if isinstance(error, lmdb.ReadersFullError):
            raise StoreBusy(
                f"{path} is being read by as many processes as its table of readers has places",
                hint="wait for some to end",
            ) from error
        if any(os.strerror(number) in text for number in (errno.EACCES, errno.EROFS, errno.EPERM)):
            raise NotWritable(f"{path}/meta: {text}", path=str(path)) from error
        if isinstance(error, lmdb.ReadonlyError):
            raise NotWritable(f"{path} is open for reading only") from error
        if "already open in this process" in text:
            raise StoreBusy(
                f"{path} is open in this process already, and LMDB opens a store once in each",
                hint="use what opened it, or close it first and end the iterations over it",
                path=str(path),
            ) from error
        raise damaged_store(path, f"{path}/meta: {text}") from error
