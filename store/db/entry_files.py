"""Reading records from catalogued files, at places the location index names."""

from __future__ import annotations

import os
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from pulsar_admin.store import errors
from pulsar_admin.store.codec.entry import RECORD_MAX_BYTES
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.files import LogFile, find_log, fingerprint
from pulsar_admin.store.files import open_regular
from pulsar_admin.store.urls import Opened, close_bytes, file_info, is_url, read_at, shown_path
from pulsar_admin.store.wording import counted


class FileState(StrEnum):
    """How a catalogued file is now."""

    SAME = "same"
    GROWN = "grown"
    """Grown, or written to after the imported part."""
    CHANGED = "changed"
    """Another file, or shorter."""
    MISSING = "missing"
    UNREADABLE = "unreadable"

    @property
    def holds_the_imported(self) -> bool:
        """Whether the file still has all the bytes that were imported."""
        return self in (FileState.SAME, FileState.GROWN)

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be read."""
        return self in (FileState.MISSING, FileState.UNREADABLE)


class EntryFiles:
    """The files of one store, opened when first read and checked against the catalogue then.

    Reads with pread: a file that is cut while it is read gives an error, where a map would kill the process.
    """

    def __init__(self, store: Store, txn: Txn) -> None:
        self._store = store
        self._txn = txn
        self._open: dict[int, tuple[Opened, LogFile]] = {}
        self._logs: dict[int, LogFile] = {}
        self._failed: dict[int, errors.StoreError] = {}
        """Why objects cannot be read: they are not asked for again, since each request to a server that is gone takes seconds."""

    def read_record(self, place: tuple[int, int, int]) -> memoryview:
        """Return the body (from its ledger id on) of the record at (file id, offset of the size field, size)."""
        file_id, offset, size = place
        raw = self.read(file_id, offset, 4 + size)
        found = int.from_bytes(raw[:4], "big", signed=True)
        if found != size:
            if self._store.info.is_bundled:
                hint = "this store comes from an incident bundle, which contains no entries"
            else:
                hint = "the file changed since import; run: pulsar-admin store check --deep"
            raise errors.EntryLogCorrupt(
                f"{self.name(file_id)} @ {offset:#x}: expected a record of {size} bytes, found {found}",
                hint=hint,
                path=self.name(file_id),
                offset=offset,
            )
        return memoryview(raw)[4:]

    def read(self, file_id: int, offset: int, length: int) -> bytes:
        """Return ``length`` bytes at ``offset``; raises SourceChanged if the file is gone, cut, or not the imported one."""
        if length > RECORD_MAX_BYTES:
            raise errors.IndexCorrupt(
                f"the index claims a record of {length} bytes", hint="pulsar-admin store index --rebuild"
            )
        opened, log = self._opened(file_id)
        try:
            raw = os.pread(opened, length, offset) if isinstance(opened, int) else read_at(opened, length, offset)
        except OSError as error:
            raise errors.EntryLogCorrupt(
                f"{log.path} @ {offset:#x}: the disk cannot read it: {error.strerror}",
                hint="copy what can be read from that disk and import the copy",
                path=log.path,
                offset=offset,
            ) from error
        except errors.StoreError as error:  # of an object
            self._failed[file_id] = error
            raise
        if len(raw) < length:
            raise errors.SourceChanged(
                f"{log.path} @ {offset:#x}: expected {length} bytes, found {len(raw)}",
                hint="the file was cut since import: restore it, or run: pulsar-admin store refresh",
                path=log.path,
            )
        return raw

    def name(self, file_id: int) -> str:
        """Return the path of a file for messages."""
        return self._log(file_id).path

    def path_of(self, file_id: int) -> str:
        """Return the absolute path of a file, or the URL of its bytes, after checking that it is the imported one; valid in processes
        with another working directory."""
        return self._opened(file_id)[1].place(self._store.path)

    def find_path(self, file_id: int) -> str | None:
        """Return as ``path_of``, but None for a file that is gone, was replaced or cannot be read."""
        with suppress(errors.SourceChanged, errors.NotWritable):
            return self.path_of(file_id)
        return None

    def _opened(self, file_id: int) -> tuple[Opened, LogFile]:
        if file_id in self._failed:
            raise self._failed[file_id]
        opened = self._open.get(file_id)
        if opened is None:
            opened = self._open[file_id] = self._open_file(file_id)
        return opened

    def _log(self, file_id: int) -> LogFile:
        log = self._logs.get(file_id) or find_log(self._txn, file_id)
        if log is None:
            raise errors.IndexCorrupt(
                f"the index names file {file_id}, which is not catalogued", hint="pulsar-admin store index --rebuild"
            )
        self._logs[file_id] = log
        return log

    def _open_file(self, file_id: int) -> tuple[Opened, LogFile]:
        log = self._log(file_id)
        path = log.locate(self._store.path)
        try:
            descriptor = open_regular(path)
        except FileNotFoundError as error:
            raise errors.SourceChanged(
                f"{path} is gone; it held {counted(log.records, 'record')} when it was imported",
                hint="restore the file, or read its entries from other files: pulsar-admin store refresh",
                path=str(path),
            ) from error
        except OSError as error:
            raise errors.NotWritable(f"cannot read {path}: {error.strerror}", path=str(path)) from error
        try:
            check_unchanged(descriptor, log)
        except errors.SourceChanged:
            os.close(descriptor)
            raise
        place = log.place(self._store.path)
        if not is_url(place):
            return descriptor, log
        os.close(descriptor)
        said, hint = f"{shown_path(place)} is ", "restore the object"
        try:
            state = _asked_state(log, place)
            if state.holds_the_imported:
                return place, log
            said += state
        except errors.SourceNotFound:
            said += FileState.MISSING
        except errors.StoreError as error:
            said, hint = error.message, error.hint
        self._failed[file_id] = errors.SourceChanged(
            f"{said}; it held {counted(log.records, 'record')} when it was imported", hint=hint, path=shown_path(place)
        )
        raise self._failed[file_id]

    def close(self) -> None:
        for opened, _ in self._open.values():
            close_bytes(opened)
        self._open.clear()

    def __enter__(self) -> EntryFiles:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def check_unchanged(descriptor: int, log: LogFile) -> bool:
    """Return whether the open file may have grown since the import; raises SourceChanged if it is another file or shorter."""
    status = os.fstat(descriptor)
    if status.st_size == log.size_bytes and status.st_mtime_ns == log.mtime_ns:
        return False
    if status.st_size < log.next_offset:
        raise errors.SourceChanged(
            f"{log.path} became shorter since import: expected {log.size_bytes} bytes, found {status.st_size}",
            hint="restore the file, or run: pulsar-admin store refresh",
            path=log.path,
        )
    found = fingerprint(descriptor, log.next_offset)
    if found != log.fingerprint:
        raise errors.SourceChanged(
            f"{log.path} is not the file that was imported: expected fingerprint {log.fingerprint}, found {found}",
            hint="restore the file, or accept the current one: pulsar-admin store refresh --forget",
            path=log.path,
        )
    return True


def file_state(log: LogFile, store_path: Path, *, asks: bool = False) -> FileState:
    """Return the current state of a catalogued file; ``asks``: also request the state of objects at URLs."""
    state = path_state(log, log.locate(store_path))
    place = log.place(store_path) if asks else ""
    return _object_state(log, place) if state is FileState.SAME and is_url(place) else state


def _object_state(log: LogFile, url: str) -> FileState:
    try:
        return _asked_state(log, url)
    except errors.SourceNotFound:
        return FileState.MISSING
    except errors.StoreError:
        return FileState.UNREADABLE


def _asked_state(log: LogFile, url: str) -> FileState:
    """Return the state of an object that exists; raises as ``file_info``."""
    size_bytes, changed_s = file_info(url)
    if size_bytes < log.size_bytes:
        return FileState.CHANGED
    if size_bytes == log.size_bytes and int(changed_s) == log.mtime_ns // 10**9:  # an object store may tell no more
        return FileState.SAME
    return FileState.GROWN if fingerprint(url, log.next_offset) == log.fingerprint else FileState.CHANGED


def path_state(log: LogFile, path: Path) -> FileState:
    """Return the state of a catalogued file at a path."""
    try:
        descriptor = open_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        return FileState.MISSING
    except OSError:
        return FileState.UNREADABLE
    try:
        return FileState.GROWN if check_unchanged(descriptor, log) else FileState.SAME
    except errors.SourceChanged:
        return FileState.CHANGED
    except OSError:
        return FileState.UNREADABLE
    finally:
        os.close(descriptor)
