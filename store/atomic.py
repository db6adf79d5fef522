"""The only module that opens files for writing: new bytes are durable before a name points at them.

``replace_file`` replaces a file atomically (temporary file beside it, fsync, rename, fsync of the directory): a crash
leaves the old or the new content. ``create_file`` opens a new output with O_EXCL: nothing is ever overwritten.
Operating system errors leave as ``DiskFull``, ``NotWritable`` or ``AlreadyExists`` with the path.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NoReturn

from store.errors import AlreadyExists, DiskFull, NotFound, NotWritable, Refused

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DENIED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_EXISTS = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR})


def raise_write_error(error: OSError, path: Path) -> NoReturn:
    """Raise the ``StoreError`` for ERROR that came from writing PATH; an error of no known kind is raised unchanged."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    facts: dict[str, object] = {"path": str(path), "errno": error.errno}
    if error.errno in _FULL:
        raise DiskFull(
            f"no space left writing {path}: {reason}", hint="free some space and run the command again", **facts
        ) from error
    if error.errno in _DENIED:
        raise NotWritable(
            f"cannot write {path}: {reason}", hint="check permissions and mount options", **facts
        ) from error
    if error.errno in _EXISTS:
        raise AlreadyExists(f"{path} exists already", hint="name a path that does not exist", **facts) from error
    if error.errno in {errno.ENOENT, errno.ENOTDIR}:
        raise NotFound(f"cannot write {path}: {reason}", hint="create its directory first", **facts) from error
    raise error


def replace_file(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace PATH with DATA, durably; on any error the old content stays and no temporary file is left."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with open(descriptor, "wb") as file:
                _write_durably(file, data)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        sync_directory(path.parent)
    except OSError as error:
        raise_write_error(error, path)


@contextmanager
def create_file(path: Path, *, mode: int = 0o644, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a new file at PATH for writing; durable when the block ends, gone when the block raises.

    DURABLE false leaves the disk its time: for what can be made again, such as generated data.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except OSError as error:
        raise_write_error(error, path)
    try:
        with open(descriptor, "wb") as file:
            yield file
            if durable:
                _write_durably(file, b"")
        if durable:
            sync_directory(path.parent)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(path)
        if isinstance(error, OSError):
            raise_write_error(error, path)
        raise


def create_directory(path: Path, *, exist_ok: bool = False, mode: int = 0o755) -> None:
    """Create the directory PATH (its parent must exist) durably; raises AlreadyExists unless EXIST_OK."""
    try:
        os.mkdir(path, mode)
    except OSError as error:
        if exist_ok and error.errno == errno.EEXIST and path.is_dir():
            return
        raise_write_error(error, path)
    try:
        sync_directory(path.parent)
    except OSError as error:
        raise_write_error(error, path)


def rename(source: Path, target: Path) -> None:
    """Move SOURCE onto TARGET atomically and durably (same file system)."""
    try:
        os.replace(source, target)
        sync_directory(target.parent)
        if source.parent != target.parent:
            sync_directory(source.parent)
    except OSError as error:
        raise_write_error(error, target)


def copy_file(source: Path, target: Path) -> None:
    """Copy SOURCE to the new file TARGET, durably; holes of a sparse file stay holes."""
    with open(source, "rb", buffering=0) as reader, create_file(target) as writer:
        while chunk := reader.read(1 << 20):
            if chunk.count(0) == len(chunk):
                writer.seek(len(chunk), os.SEEK_CUR)
            else:
                writer.write(chunk)
        writer.truncate()


def copy_tree(source: Path, target: Path) -> None:
    """Copy the directory SOURCE to the new directory TARGET, durably; modes (made writable) and times are kept."""
    create_directory(target)
    for entry in sorted(source.iterdir()):
        copy = target / entry.name
        if entry.is_dir():
            copy_tree(entry, copy)
        elif entry.is_file():
            copy_file(entry, copy)
            _copy_stat(entry, copy)
    _copy_stat(source, target)


def _copy_stat(source: Path, target: Path) -> None:
    import shutil

    shutil.copystat(source, target)
    target.chmod(target.stat().st_mode | stat.S_IWUSR)  # a copy of something read-only is still ours to change


def remove_tree(path: Path) -> None:
    """Remove the directory PATH and all in it; nothing there is fine."""
    import shutil  # 2.5 ms; every command loads this module

    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise_write_error(error, path)


def remove_file(path: Path) -> None:
    """Remove the file PATH; nothing there is fine."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise_write_error(error, path)


def link_file(source: Path, target: Path) -> None:
    """Give SOURCE the second name TARGET, which must not exist; raises Refused between file systems."""
    try:
        os.link(source, target)
        sync_directory(target.parent)
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise Refused(
                f"{source} cannot be linked into {target.parent}: another file system", hint="use --copy, or neither"
            ) from error
        raise_write_error(error, target)


def reserve_file(path: Path, size_bytes: int) -> None:
    """Give the file PATH (created when missing) real blocks for SIZE_BYTES; raises DiskFull. Its bytes are kept.

    Whoever maps a file with a hole into memory dies where the disk has no block for it.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(descriptor).st_blocks * 512 < size_bytes:
                os.posix_fallocate(descriptor, 0, size_bytes)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise_write_error(error, path)


def sync_file(path: Path) -> None:
    """Make the bytes of an existing file durable (for files that a library wrote)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise_write_error(error, path)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Make the names in directory PATH durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_lock_file(path: Path) -> int:
    """Open (creating it when missing) the file that a writer locks; returns its descriptor. Contents are kept."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise_write_error(error, path)


def _write_durably(file: BinaryIO, data: bytes) -> None:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())
