"""The lock of a store, file ``lock``: its one writer holds it, and readers that cannot enter themselves in LMDB's table share it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pulsar_admin.store.db.mounts import check_local
from pulsar_admin.store.errors import NotWritable, StoreBusy, StoreError
from pulsar_admin.store.files import (
    PRIVATE_DIRECTORY,
    create_directory,
    open_lock_file,
    open_regular,
    raise_write_error,
)

_AGAIN_SECONDS = 0.05


@contextmanager
def writer_lock(path: Path, mode: int = PRIVATE_DIRECTORY, *, wait_ms: int = 0) -> Iterator[int]:
    """Hold the writer lock of a path, created with this mode if it does not exist, for the life of the block.

    Raises StoreBusy, Unsupported on a network file system.
    """
    check_local(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotWritable(f"cannot make a store at {path}: {error.strerror}", path=str(path)) from error
    create_directory(path, exist_ok=True, mode=mode)
    descriptor = take_writer_lock(path, wait_ms=wait_ms)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def take_writer_lock(path: Path, *, wait_ms: int = 0) -> int:
    """Take a path's writer lock and return its file descriptor; raises StoreBusy naming the holder after ``wait_ms``."""
    descriptor = open_lock_file(path / "lock")
    last = time.monotonic() + wait_ms / 1000
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            left = last - time.monotonic()
            if left > 0:
                time.sleep(min(left, _AGAIN_SECONDS))
                continue
            doing = _what_holds(descriptor)
            os.close(descriptor)
            raise StoreBusy(
                f"{path} is being {doing}",
                hint="run the command again when it is done, or let it wait: --wait 30s",
                path=str(path),
            ) from error
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()}\n".encode(), 0)
    except OSError as error:
        os.close(descriptor)
        raise_write_error(error, path / "lock")
    return descriptor


def _what_holds(descriptor: int) -> str:
    """Return who holds a writer lock, and what for."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "written by " + (os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip() or "another process")
    return "read by processes that are not in its table of readers (meta/lock.mdb)"


def is_written_now(path: Path) -> bool:
    """Whether a process holds the writer lock of a path."""
    try:
        descriptor = open_regular(path / "lock")
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def may_register(path: Path) -> bool:
    """Whether this process may enter itself in LMDB's table of readers, ``meta/lock.mdb``, or create that."""
    table = path / "meta" / "lock.mdb"
    return os.access(table if table.exists() else table.parent, os.W_OK)


def take_reader_lock(path: Path, why: str = "this user may not write meta/lock.mdb") -> int | None:
    """Keep writers off a store for a reader that is not in LMDB's table of readers; return the lock's descriptor.

    ``why``: why it is not in the table, for processes that have to wait. None on a read-only file system without a
    lock file, where no process writes. Raises StoreBusy while a writer is active, NotWritable if the lock cannot be
    taken.
    """
    file = path / "lock"
    mend = f"let this user write {path}/meta/lock.mdb and read {file} (chmod, chgrp): it can then also read while another process writes"
    try:
        descriptor = open_regular(file)
    except FileNotFoundError as error:
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            return None
        raise NotWritable(f"{path} cannot be read safely: it has no lock file", hint=mend, path=str(file)) from error
    except OSError as error:
        raise NotWritable(f"{file} cannot be opened: {error.strerror}", hint=mend, path=str(file)) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError as error:
        doing = _what_holds(descriptor)
        os.close(descriptor)
        raise StoreBusy(
            f"{path} is being {doing}, and {why}: it would read half of a change",
            hint="wait for the writer to end" if "writers" in why else f"wait for the writer to end, or {mend}",
            path=str(path),
        ) from error
    return descriptor


def try_reader_lock(path: Path) -> int | None:
    """Return the descriptor of a path's lock, held so that no process writes; None while another holds it."""
    try:
        descriptor = open_lock_file(path / "lock")
    except StoreError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
