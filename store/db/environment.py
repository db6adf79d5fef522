"""The store's LMDB environment: opening, transactions, the writer lock. The only module that imports lmdb.

A store is a directory: ``store.json`` (format, sources), ``meta/`` (one LMDB environment, the databases of ``DATABASES``),
``entries/`` (entry logs that were copied, linked or written by this toolkit) and ``lock`` (held by the one writer).
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import lmdb

from store.db.backups import back_up, damaged_store
from store.db.file import DATA_FILE, CommitRecord, is_as_committed, read_commit
from store.db.locks import may_register, take_reader_lock, take_writer_lock, try_reader_lock, writer_lock
from store.db.mounts import check_local
from store.db.storeinfo import (
    FORMAT_VERSION,
    StoreInfo,
    StoreState,
    check_new_store,
    check_state,
    read_store_info,
    walk_pages,
    write_store_info,
)
from store.errors import (
    DiskFailed,
    DiskFull,
    NotWritable,
    StoreBusy,
    StoreError,
)
from store.files import PRIVATE_DIRECTORY, create_directory, has_room, mode_below, remove_tree, reserve_file
from store.frozen import replace

if TYPE_CHECKING:
    from store.db.columns import EntryColumns

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
_FIRST_MAP_BYTES = 1 << 28
_PART_BYTES = 16 << 20
_MAX_READERS = 512
_READER_TABLE_BYTES = 9 << 12  # of lock.mdb, for _MAX_READERS
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_T = TypeVar("_T")


class Txn:
    """One LMDB transaction; keys and values are bytes, ``view`` alone hands out memory of the map.

    ``memo``: what read models keep of this snapshot, each under a key of its own.
    """

    __slots__ = ("_store", "_txn", "id", "memo")

    def __init__(self, store: Store, txn: lmdb.Transaction) -> None:
        self._store = store
        self._txn = txn
        self.id: int = txn.id()
        self.memo: dict[object, Any] = {}  # Any: each reader's own

    @property
    def store(self) -> Store:
        """The store that this is a transaction of."""
        return self._store

    @property
    def columns(self) -> EntryColumns | None:
        """What tells of entries without their files; None: the files do."""
        return None

    def get(self, database: str, key: bytes) -> bytes | None:
        value = self._txn.get(key, db=self._store.handle(database))
        return None if value is None else bytes(value)

    def view(self, database: str, key: bytes) -> memoryview | None:
        """Return the value without a copy. Valid only until the transaction ends: later it shows other data."""
        value = self._txn.get(key, db=self._store.handle(database))
        return None if value is None else memoryview(value)

    def put(self, database: str, key: bytes, value: bytes) -> None:
        self._txn.put(key, value, db=self._store.handle(database))

    def put_all(self, database: str, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Write ROWS of (key, value): several times as fast as one by one. What yields them may read meanwhile."""
        with self._txn.cursor(db=self._store.handle(database)) as cursor:
            cursor.putmulti(rows)

    def append(self, database: str, rows: list[tuple[bytes, bytes]]) -> None:
        """Write ROWS; where their keys rise above all that are there they fill its pages and cost no search."""
        with self._txn.cursor(db=self._store.handle(database)) as cursor:
            _, added = cursor.putmulti(rows, append=True)
            if added < len(rows):  # lmdb leaves out what is not in order, in silence
                cursor.putmulti(rows)

    def delete(self, database: str, key: bytes) -> bool:
        return bool(self._txn.delete(key, db=self._store.handle(database)))

    def items(
        self, database: str, prefix: bytes = b"", start: bytes | None = None
    ) -> Iterator[tuple[bytes, memoryview]]:
        """Yield (key, value view) in key order, from START (default: PREFIX), while keys begin with PREFIX."""
        with self._txn.cursor(db=self._store.handle(database)) as cursor:
            first = prefix if start is None else start
            if first and not cursor.set_range(first):
                return
            for found, value in cursor:
                key = bytes(found)
                if not key.startswith(prefix):
                    return
                yield key, memoryview(value)

    def keys(self, database: str, prefix: bytes) -> Iterator[bytes]:
        """Yield the keys that begin with PREFIX, in order."""
        with self._txn.cursor(db=self._store.handle(database)) as cursor:
            found = cursor.set_range(prefix)
            while found:
                key = bytes(cursor.key())
                if not key.startswith(prefix):
                    return
                yield key
                found = cursor.next()

    def parts(self, database: str, prefix: bytes, start: bytes, limit: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield (part of a key behind PREFIX up to a slash, the key), from the key START on; of those with one part and a slash the first.

        Keys whose part ends behind LIMIT bytes all come.
        """
        size = len(prefix)
        with self._txn.cursor(db=self._store.handle(database)) as cursor:
            found = cursor.set_range(start)
            while found:
                key = bytes(cursor.key())
                if not key.startswith(prefix):
                    return
                end = key.find(b"/", size, limit)
                if end < 0:
                    yield key[size:], key
                    found = cursor.next()
                else:
                    yield key[size:end], key
                    found = cursor.set_range(key[:end] + b"0")  # the byte behind the slash

    def last(self, database: str, prefix: bytes = b"") -> tuple[bytes, bytes] | None:
        """Return the last (key, value) whose key begins with PREFIX, or None."""
        with self._txn.cursor(db=self._store.handle(database)) as cursor:
            after = prefix.rstrip(b"\xff")
            after = after[:-1] + bytes([after[-1] + 1]) if after else b""
            found = (cursor.set_range(after) and cursor.prev()) if after else False
            if not found and not (after and cursor.key()):
                found = cursor.last()
            if not found or not bytes(cursor.key()).startswith(prefix):
                return None
            return bytes(cursor.key()), bytes(cursor.value())

    def count(self, database: str) -> int:
        """Return how many rows a database has; one that this store lacks, as it was made without it, has none."""
        if database in _LATER and not self._store.has(database):
            return 0
        return int(self._txn.stat(self._store.handle(database))["entries"])

    def clear(self, database: str) -> None:
        self._txn.drop(self._store.handle(database), delete=False)


class Store:
    """An open store. Reading needs no lock; writing holds ``lock`` for the life of the object, or the caller's for longer."""

    def __init__(self, path: Path, *, writable: bool, lock: int | None = None) -> None:
        self.path = path
        self.writable = writable
        self._handles: dict[str, Any] = {}  # Any: lmdb's opaque database handle
        self._env: lmdb.Environment | None = None
        self._record: CommitRecord | None = None
        self._failed: StoreError | None = None
        self._lock = take_writer_lock(path) if writable and lock is None else None
        try:
            self.info = read_store_info(path)  # under the lock: a writer finds no state that another one is changing
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        meta = self.path / "meta"
        if not (meta / DATA_FILE).is_file():
            raise damaged_store(self.path, f"{self.path} lacks {meta / DATA_FILE}")
        check_local(meta)
        # Who cannot enter itself in LMDB's table of readers gets its pages written over by any writer: those have to wait.
        registers = self.writable or may_register(self.path)
        if not registers:
            self._lock = take_reader_lock(self.path)
        if is_as_committed(meta):
            self._open_environment(registers=registers)
        elif self.writable or not registers:
            walk_pages(self.path)
            self._open_environment(registers=registers)
        else:
            self._open_walked()
        if self.writable:
            self._check_change()
            self._record = CommitRecord(meta)
            self._env_of().reader_check()  # readers that were killed keep every page they saw from being used again
            if not is_as_committed(meta):
                self._put_record()

    def _open_walked(self) -> None:
        """Open for reading what is not as its last commit left it: a writer is at work, was killed, or the file is another."""
        descriptor = try_reader_lock(self.path)
        if descriptor is None:  # what differs is what the writer does
            self._open_environment(registers=True)
            return
        try:
            if is_as_committed(self.path / "meta"):
                self._open_environment(registers=True)
                return
            walk_pages(self.path)
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
        with self.read() as txn:
            found = last_change(txn)
        if record is not None and found < record.change:
            raise damaged_store(self.path, f"{self.path} lost changes: expected {record.change}, found {found}")

    def _open_environment(self, *, registers: bool) -> None:
        data_bytes = (self.path / "meta" / DATA_FILE).stat().st_size
        if registers:
            reserve_file(self.path / "meta" / "lock.mdb", _READER_TABLE_BYTES)
        with _translated(self.path):
            env = self._env = lmdb.open(
                str(self.path / "meta"),
                create=False,
                max_dbs=len(DATABASES) + 4,
                max_readers=_MAX_READERS,
                map_size=max(_FIRST_MAP_BYTES, 1 << (2 * data_bytes - 1).bit_length() if data_bytes else 0),
                readonly=not self.writable,
                lock=registers,
            )
            try:
                self._open_databases(env)
            except lmdb.ReadersFullError:
                env.reader_check()
                self._open_databases(env)

    def _open_databases(self, env: lmdb.Environment) -> None:
        for name in DATABASES:
            try:
                self._handles[name] = env.open_db(name.encode(), create=self.writable)
            except lmdb.NotFoundError as error:
                if name in _LATER:
                    continue
                raise damaged_store(self.path, f"{self.path} lacks the database {name!r}") from error

    def _env_of(self) -> lmdb.Environment:
        assert self._env is not None
        return self._env

    def _put_record(self) -> None:
        """Record what was committed last, and the number of the last change with it."""
        if self._record is not None:
            with self.read() as txn:
                change = last_change(txn)
            self._record.put(change)

    def has(self, database: str) -> bool:
        return database in self._handles

    def handle(self, database: str) -> Any:  # Any: lmdb's opaque database handle
        return self._handles[database]

    @contextmanager
    def read(self) -> Iterator[Txn]:
        """Open a snapshot for reading."""
        with self._translated_once():
            env = self._env_of()
            try:
                txn = env.begin(buffers=True)
            except lmdb.MapResizedError:
                env.set_mapsize(0)
                txn = env.begin(buffers=True)
            except lmdb.ReadersFullError:
                env.reader_check()
                txn = env.begin(buffers=True)
            with txn:
                yield Txn(self, txn)

    def write(self, work: Callable[[Txn], _T]) -> _T:
        """Run WORK in one write transaction and commit; WORK runs again on a larger map when the map was full."""
        if not self.writable:
            raise NotWritable(f"{self.path} was opened for reading")
        env = self._env_of()
        while True:
            try:
                with (
                    self._translated_once(lmdb.MapFullError),
                    env.begin(write=True, buffers=True) as txn,
                ):
                    result = work(Txn(self, txn))
            except lmdb.MapFullError:
                env.reader_check()
                env.set_mapsize(env.info()["map_size"] * 2)
            else:
                self._put_record()
                return result

    def replace_all(self, database: str, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Make ROWS all of DATABASE, in transactions of a bounded size: LMDB keeps what one has written in memory.

        What is stopped leaves a part: for a store that is not ready. ROWS may not come from a transaction of this store.
        """
        source = iter(rows)
        self.write(lambda txn: txn.clear(database))
        while part := _take_part(source):
            self.write(lambda txn, part=part: txn.append(database, part))  # type: ignore[misc]  # binds this one

    @contextmanager
    def _translated_once(self, *passing: type[BaseException]) -> Iterator[None]:
        """Turn lmdb's errors into ours; after a commit that the disk refused, which ends LMDB's environment, that again."""
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
        """Replace ``store.json`` atomically with CHANGES applied."""
        self.info = replace(self.info, **changes)
        write_store_info(self.path, self.info)

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None
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


def _take_part(rows: Iterator[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the next of ROWS, as many as one transaction writes."""
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
    state: StoreState = StoreState.READY,
    sources: tuple[dict[str, Any], ...] = (),  # Any: JSON objects, see StoreInfo
    mode: int = PRIVATE_DIRECTORY,
    lock: int | None = None,
) -> None:
    """Make an empty store at PATH, its directories with MODE; raises what ``check_new_store`` raises, StoreBusy, NotWritable
    and DiskFull. LOCK is PATH's writer lock where the caller holds it: two processes never make one store."""
    if lock is None:
        check_new_store(path)
        with writer_lock(path, mode) as lock:
            create_store(path, now_ms=now_ms, state=state, sources=sources, mode=mode, lock=lock)
        return
    check_new_store(path)  # under the lock: another process may have made a store since the caller looked
    remove_tree(path / "meta")  # of a store whose making was stopped
    for name in ("entries", "meta"):
        create_directory(path / name, exist_ok=True, mode=mode)
    reserve_file(path / "meta" / "lock.mdb", _READER_TABLE_BYTES)
    with _translated(path):
        env = lmdb.open(
            str(path / "meta"),
            map_size=_FIRST_MAP_BYTES,
            max_dbs=len(DATABASES) + 4,
            max_readers=_MAX_READERS,
            mode=mode_below(path / "meta"),
        )
        with env.begin(write=True) as txn:
            for name in DATABASES:
                env.open_db(name.encode(), txn=txn)
        env.close()
    record = CommitRecord(path / "meta")
    record.put(0)
    record.close()
    write_store_info(path, StoreInfo(FORMAT_VERSION, now_ms, state, sources))


def open_store(
    path: Path, *, writable: bool = False, unindexed: bool = False, unfinished: bool = False, lock: int | None = None
) -> Store:
    """Open the store at PATH. Close it, or use it in ``with``. One without index is refused unless UNINDEXED, a half-done import
    unless UNFINISHED.

    LOCK is PATH's writer lock where the caller holds it, and goes on holding it.
    """
    info = read_store_info(path)
    if not unfinished:
        check_state(path, info, unindexed=unindexed)
    return Store(path, writable=writable, lock=lock)


@contextmanager
def _translated(path: Path, passing: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
    """Turn lmdb's errors into ours; PASSING goes through."""
    try:
        yield
    except passing:
        raise
    except lmdb.Error as error:
        text = str(error)
        failed = os.strerror(errno.EIO) in text
        # LMDB reports a write that was cut short, as on a full disk, as an I/O error, too.
        if any(os.strerror(number) in text for number in _FULL) or (failed and not has_room(path / "meta" / DATA_FILE)):
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
            raise StoreBusy(f"{path} is being read by {_MAX_READERS} processes", hint="wait for some to end") from error
        if any(os.strerror(number) in text for number in (errno.EACCES, errno.EROFS, errno.EPERM)):
            raise NotWritable(f"{path}/meta: {text}", path=str(path)) from error
        if isinstance(error, lmdb.ReadonlyError):
            raise NotWritable(f"{path} is open for reading only") from error
        if "already open in this process" in text:
            raise StoreBusy(
                f"{path} is open in this process already, and LMDB opens a store once in each",
                hint="use what opened it, or close it first",
                path=str(path),
            ) from error
        raise damaged_store(path, f"{path}/meta: {text}") from error
