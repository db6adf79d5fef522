"""The store's LMDB environment: opening, transactions, the writer lock. The only module that imports lmdb.

A store is a directory: ``store.json`` (format, sources), ``meta/`` (one LMDB environment, the databases of ``DATABASES``),
``entries/`` (entry logs that were copied, linked or written by this toolkit) and ``lock`` (held by the one writer).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from store.atomic import (
    PRIVATE_DIRECTORY,
    create_directory,
    mode_below,
    open_lock_file,
    read_file,
    remove_tree,
    replace_file,
    reserve_file,
)
from store.errors import (
    AlreadyExists,
    DiskFull,
    IndexCorrupt,
    NotWritable,
    Refused,
    StoreBusy,
    StoreNotFound,
    Unsupported,
)

FORMAT_VERSION = 1
DATABASES = ("tree", "base", "logs", "entries", "times", "owners", "damage", "delayed", "nacks", "changes", "state")
_FIRST_MAP_BYTES = 1 << 28
_MAX_READERS = 512
_READER_TABLE_BYTES = 9 << 12  # of lock.mdb, for _MAX_READERS
# LMDB reports a write that was cut short, as on a full disk, as an I/O error.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """``store.json``: format version, creation time and what was imported from where."""

    format_version: int
    created_ms: int
    state: str  # "ready", or "importing" until an import has run to its end
    sources: tuple[dict[str, Any], ...]  # Any: JSON objects, one a source; shape in store/importer.py


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

    def delete(self, database: str, key: bytes) -> bool:
        return bool(self._txn.delete(key, db=self._store.handle(database)))

    def items(
        self, database: str, prefix: bytes = b"", start: bytes | None = None
    ) -> Iterator[tuple[bytes, memoryview]]:
        """Yield (key, value view) in key order, from START (default: PREFIX), while keys begin with PREFIX."""
        with self._txn.cursor(db=self._store.handle(database)) as cursor:
            first = prefix if start is None else start
            found = cursor.set_range(first) if first else cursor.first()
            while found:
                key = bytes(cursor.key())
                if not key.startswith(prefix):
                    return
                yield key, memoryview(cursor.value())
                found = cursor.next()

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
        return int(self._txn.stat(self._store.handle(database))["entries"])

    def clear(self, database: str) -> None:
        self._txn.drop(self._store.handle(database), delete=False)


class Store:
    """An open store. Reading needs no lock; writing holds ``lock`` for the life of the object, or the caller's for longer."""

    def __init__(self, path: Path, *, writable: bool, lock: int | None = None) -> None:
        self.path = path
        self.writable = writable
        self._handles: dict[str, Any] = {}  # Any: lmdb's opaque database handle
        self._lock = take_writer_lock(path) if writable and lock is None else None
        try:
            self.info = read_store_info(path)  # under the lock: a writer finds no state that another one is changing
            self._env = self._open_environment()
        except BaseException:
            self.close()
            raise

    def _open_environment(self) -> lmdb.Environment:
        options: dict[str, Any] = {
            "create": False,
            "max_dbs": len(DATABASES) + 4,
            "subdir": True,
            "max_readers": _MAX_READERS,
        }
        data = self.path / "meta" / "data.mdb"
        if not data.is_file():
            raise IndexCorrupt(f"{self.path} lacks {data}", hint="import again into a new store", path=str(data))
        data_bytes = data.stat().st_size
        options["map_size"] = max(_FIRST_MAP_BYTES, 1 << (2 * data_bytes - 1).bit_length() if data_bytes else 0)
        # A read-only disk has no room for LMDB's reader table; nobody can write there either.
        lock = self.writable or _is_writable(self.path / "meta" / "lock.mdb")
        if lock:
            reserve_file(self.path / "meta" / "lock.mdb", _READER_TABLE_BYTES)
        with _translated(self.path):
            env = lmdb.open(str(self.path / "meta"), readonly=not self.writable, lock=lock, **options)
            self._env = env
            for name in DATABASES:
                try:
                    self._handles[name] = env.open_db(name.encode(), create=self.writable)
                except lmdb.NotFoundError as error:
                    raise IndexCorrupt(
                        f"{self.path} lacks the database {name!r}", hint="import again into a new store"
                    ) from error
        return env

    def handle(self, database: str) -> Any:  # Any: lmdb's opaque database handle
        return self._handles[database]

    @contextmanager
    def read(self) -> Iterator[Txn]:
        """Open a snapshot for reading."""
        with _translated(self.path):
            try:
                txn = self._env.begin(buffers=True)
            except lmdb.MapResizedError:
                self._env.set_mapsize(0)
                txn = self._env.begin(buffers=True)
            with txn:
                yield Txn(self, txn)

    def write(self, work: Callable[[Txn], _T]) -> _T:
        """Run WORK in one write transaction and commit; WORK runs again on a larger map when the map was full."""
        if not self.writable:
            raise NotWritable(f"{self.path} was opened for reading")
        while True:
            try:
                with (
                    _translated(self.path, passing=lmdb.MapFullError),
                    self._env.begin(write=True, buffers=True) as txn,
                ):
                    return work(Txn(self, txn))
            except lmdb.MapFullError:
                self._env.set_mapsize(self._env.info()["map_size"] * 2)

    def last_txn_id(self) -> int:
        return int(self._env.info()["last_txnid"])

    def update_info(self, **changes: Any) -> None:  # Any: JSON values of StoreInfo's fields
        """Replace ``store.json`` atomically with CHANGES applied."""
        values = {field: getattr(self.info, field) for field in StoreInfo.__slots__} | changes
        self.info = StoreInfo(**values)
        _write_info(self.path, self.info)

    def close(self) -> None:
        env = getattr(self, "_env", None)
        if env is not None:
            env.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_writable(path: Path) -> bool:
    """Whether the file PATH may be written or, when it is not there, be made."""
    return os.access(path if path.exists() else path.parent, os.W_OK)


def read_store_info(path: Path) -> StoreInfo:
    """Read ``store.json``; raises StoreNotFound, Unsupported or IndexCorrupt."""
    file = path / "store.json"
    try:
        fields = json.loads(read_file(file))
        sources = tuple({**source} for source in fields["sources"])
        info = StoreInfo(int(fields["formatVersion"]), int(fields["created"]), str(fields["state"]), sources)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreNotFound(
            f"{path} is not a store (no store.json there)",
            hint="make one with: pulsar-admin --store DIR store import standalone DATA, or name another with --store",
            path=str(path),
        ) from error
    except OSError as error:
        raise NotWritable(f"{file} cannot be read: {error.strerror}", path=str(file)) from error
    except (ValueError, KeyError, TypeError) as error:
        raise IndexCorrupt(f"{file} is damaged: {error}", hint="import again into a new store") from error
    if info.format_version > FORMAT_VERSION:
        raise Unsupported(
            f"{path} has store format {info.format_version}, this toolkit knows up to {FORMAT_VERSION}",
            hint="use the toolkit that wrote it",
        )
    return info


def _write_info(path: Path, info: StoreInfo) -> None:
    document = {
        "formatVersion": info.format_version,
        "created": info.created_ms,
        "state": info.state,
        "sources": list(info.sources),
    }
    replace_file(path / "store.json", json.dumps(document, indent=2).encode() + b"\n")


def check_new_store(path: Path) -> None:
    """Raise AlreadyExists unless a store can be made at PATH: nothing there, an empty directory, or a store whose making
    was stopped before it had a ``store.json``."""
    if (path.exists() or path.is_symlink()) and (
        not path.is_dir() or any(not _is_leftover(entry) for entry in path.iterdir())
    ):
        raise AlreadyExists(f"{path} exists", hint="name a new directory with --store", path=str(path))


def _is_leftover(entry: Path) -> bool:
    if entry.name == "entries":
        return entry.is_dir() and not any(entry.iterdir())
    if entry.name == "meta":
        return entry.is_dir() and {file.name for file in entry.iterdir()} <= {"data.mdb", "lock.mdb"}
    if entry.name == "lock":
        return True
    return entry.name.startswith(".store.json.") and entry.name.endswith(".tmp")


def create_store(
    path: Path,
    *,
    now_ms: int,
    state: str = "ready",
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
    _write_info(path, StoreInfo(FORMAT_VERSION, now_ms, state, sources))


def open_store(path: Path, *, writable: bool = False, unfinished: bool = False, lock: int | None = None) -> Store:
    """Open the store at PATH. A half-done import is refused unless UNFINISHED. Close it, or use it in ``with``.

    LOCK is PATH's writer lock where the caller holds it, and goes on holding it.
    """
    info = read_store_info(path)
    if info.state == "importing" and not unfinished:
        raise Refused(
            f"the import into {path} did not run to its end",
            hint="run the same `store import` command again: it goes on where it was",
            path=str(path),
        )
    return Store(path, writable=writable, lock=lock)


@contextmanager
def writer_lock(path: Path, mode: int = PRIVATE_DIRECTORY) -> Iterator[int]:
    """Hold the writer lock of PATH, which is made with MODE when it is not there, for the life of the block; raises StoreBusy."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotWritable(f"cannot make a store at {path}: {error.strerror}", path=str(path)) from error
    create_directory(path, exist_ok=True, mode=mode)
    descriptor = take_writer_lock(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def take_writer_lock(path: Path) -> int:
    """Take PATH's writer lock and return its file descriptor; raises StoreBusy naming the holder."""
    descriptor = open_lock_file(path / "lock")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip() or "another process"
        os.close(descriptor)
        raise StoreBusy(
            f"{path} is being written by {holder}",
            hint="wait for it to end, then run the command again",
            path=str(path),
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()}\n".encode(), 0)
    return descriptor


@contextmanager
def _translated(path: Path, passing: type[BaseException] | tuple[type[BaseException], ...] = ()) -> Iterator[None]:
    """Turn lmdb's errors into ours; PASSING goes through."""
    try:
        yield
    except passing:
        raise
    except lmdb.Error as error:
        text = str(error)
        if any(os.strerror(number) in text for number in _FULL):
            raise DiskFull(
                f"no space left for {path}/meta: {text}", hint="free space, then run it again: nothing changed"
            ) from error
        if any(os.strerror(number) in text for number in (errno.EACCES, errno.EROFS, errno.EPERM)):
            raise NotWritable(f"{path}/meta: {text}", path=str(path)) from error
        if isinstance(error, lmdb.ReadonlyError):
            raise NotWritable(f"{path} is open for reading only") from error
        raise IndexCorrupt(f"{path}/meta: {text}", hint="import again into a new store", path=str(path)) from error
