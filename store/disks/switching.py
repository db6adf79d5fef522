"""Exchanging a bookie's database for a new one by one rename; the old one is kept beside it.

``X.salvaging`` is the unfinished new database, marked by a file. When it is complete, it and ``X`` exchange their names (``renameat2``),
and the old database becomes ``X-before-salvage``. Wherever the process is stopped, ``X`` is the old database or the new one.
"""

import ctypes
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from pulsar_admin.store import files
from pulsar_admin.store.codec.bookie import COOKIE_FILE, PUT_ASIDE
from pulsar_admin.store.sources.rocksdb import take_lock

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_MARK = "MADE-BY-PULSAR-ADMIN"


@contextmanager
def hold(index: Path) -> Iterator[None]:
    """Lock an index against other salvages, because lost databases have no lock of their own; raises SourceBusy, NotWritable."""
    cookie = index / COOKIE_FILE
    descriptor = files.open_lock_file(
        cookie, create=False
    )  # never written; NFS locks only files that are open for writing
    try:
        take_lock(fcntl.flock, descriptor, cookie)
        yield
    finally:
        os.close(descriptor)


def clear_unfinished(database: Path) -> Path | None:
    """Finish the exchange of a database that an interrupted process began, and remove its unfinished files.

    Returns the path of an old database that only now got its final name. Raises NotWritable if something else has one
    of the names.
    """
    beside, kept = unfinished(database), None
    for path in (beside, database):
        if os.path.lexists(path) and not path.is_dir():
            files.raise_write_error(files.NotRegular(errno.EINVAL, "it is not a directory", str(path)), path)
    files.remove_file(beside.with_name(f"{beside.name}.rows"))
    if beside.is_dir():
        names = {file.name for file in beside.iterdir()}
        if names and _MARK not in names and not os.path.lexists(database):  # whole, and stopped between two renames
            files.rename(beside, database)
        elif beside.is_symlink() or (names and _MARK not in names):  # DATABASE before the exchange
            kept = _kept(database)
            files.rename(beside, kept)
        else:
            # Last goes the mark of a database that was being made: a process stopped here leaves nothing that looks
            # like an old one.
            for file in beside.iterdir():
                if file.name != _MARK:
                    files.remove_file(file)
            files.remove_tree(beside)
    files.remove_file(database / _MARK)
    return kept


def is_unfinished(database: Path) -> bool:
    """Whether a process that built this database anew was interrupted."""
    return unfinished(database).is_dir() or (database / _MARK).exists()


def unfinished(database: Path) -> Path:
    """Return the path where a new database is built."""
    return database.with_name(f"{database.name}.salvaging")


def begin(database: Path) -> Path:
    """Return a new directory in which the replacement of a database is built."""
    clear_unfinished(database)
    beside = unfinished(database)
    files.create_directory(beside)
    with files.create_file(beside / _MARK):
        pass
    return beside


def switch(database: Path) -> Path | None:
    """Put a finished new database in the place of the old one; return the path of the old one, None if there was none."""
    beside, kept = unfinished(database), None
    if database.is_dir():
        kept = _kept(database)
        if _exchange(database, beside):
            files.rename(beside, kept)
        else:  # a file system without exchange: a bookie that starts between these two makes an empty index, and this is run again
            files.remove_file(beside / _MARK)
            with files.writing(beside):
                files.sync_directory(beside)
            files.rename(database, kept)
            files.rename(beside, database)
    else:
        files.rename(beside, database)
    files.remove_file(database / _MARK)
    return kept


def put_aside(file: Path) -> Path:
    """Rename a file to a name under which old files are kept; return its new path."""
    kept = _kept(file)
    files.rename(file, kept)
    return kept


def _kept(database: Path) -> Path:
    name = f"{database.name}{PUT_ASIDE}"
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(path for path in map(database.with_name, names) if not os.path.lexists(path))


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two paths in one directory, atomically and durably; return False if the file system cannot."""
    swap = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if swap is None:
        return False
    if swap(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        if number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            return False
        files.raise_write_error(OSError(number, os.strerror(number)), one)
    with files.writing(one):
        files.sync_directory(one.parent)
    return True


def give_tree(path: Path, like: os.stat_result) -> None:
    """Give a directory and its content the owner and group of another directory, and read permission to those who may enter that one."""
    mode = stat.S_IMODE(like.st_mode)
    with files.writing(path):
        for folder, _, names in os.walk(path):
            for name in names:
                os.chown(os.path.join(folder, name), like.st_uid, like.st_gid)
                os.chmod(os.path.join(folder, name), files.PRIVATE_FILE | mode & 0o066)
            os.chown(folder, like.st_uid, like.st_gid)
            os.chmod(folder, files.PRIVATE_DIRECTORY | mode)
