"""The only module that opens files for writing: new bytes are durable before a name points at them.

``replace_file`` replaces a file atomically (temporary file beside it, fsync, rename, fsync of the directory): a crash
leaves the old or the new content. ``create_file`` opens a new output with O_EXCL: nothing is ever overwritten.
Operating system errors leave as ``DiskFull``, ``NotWritable``, ``AlreadyExists`` or ``DiskFailed`` with the path.

New files and directories are accessible to their owner only (0600, 0700) unless the caller names a mode; a copy has its
source's mode. ``open_regular`` opens files whose kind is unknown, and does not hang on a FIFO.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO, NoReturn

from pulsar_admin.store.errors import AlreadyExists, DiskFailed, DiskFull, NotFound, NotWritable, Refused, StoreBusy

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DENIED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_EXISTS = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR})
_FAILED = frozenset({errno.EIO, errno.ESTALE})
PRIVATE_FILE = 0o600
_ROOM_BYTES = 1 << 20
PRIVATE_DIRECTORY = 0o700


class NotRegular(OSError):
    """The path is not a regular file but a FIFO, a device, a directory or a socket."""


_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def open_regular(path: Path | str, flags: int = os.O_RDONLY, mode: int = PRIVATE_FILE) -> int:
    """Open a regular file and return its descriptor; never waits. Raises OSError, ``NotRegular`` for anything else.

    A plain ``open`` of a FIFO waits for its other end, possibly without end.
    """
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise NotRegular(errno.EINVAL, "it is a socket, not a regular file", str(path)) from error
        raise
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        raise NotRegular(errno.EINVAL, f"it is {_KINDS.get(kind, 'something else')}, not a regular file", str(path))
    return descriptor


def why_no_file(path: Path) -> str:
    """Return why an existing path is not readable as a file, such as "it is a FIFO, not a regular file"; "" if it
    is."""
    link = f"it is a link to {os.readlink(path)}, and that is" if path.is_symlink() else "it is"
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except OSError:
        return f"{link} not there"
    return "" if kind == stat.S_IFREG else f"{link} {_KINDS.get(kind, 'something else')}, not a regular file"


def open_file(path: Path | str, *, head_only: bool = False) -> BinaryIO:
    """Open a regular file for reading, unbuffered; raises what ``open_regular`` raises.

    A file whose bytes are at a URL raises ``NotRegular``, unless only its first ``HEAD_BYTES`` are read
    (``head_only``).
    """
    if not head_only and (url := url_of(path)):
        raise NotRegular(errno.EREMOTE, f"its bytes are at {url}: for this, import it with --fetch-to DIR", str(path))
    return open(open_regular(path), "rb", buffering=0)


HEAD_BYTES = 4096
"""How much of a file at a URL an import keeps here, at the beginning of a sparse file of the same size."""


def url_of(path: Path | str) -> str:
    """Return the URL where the bytes of a file are, "" for a local file: an import writes the URL beside the file, as ``.NAME.url``."""
    folder, name = os.path.split(path)
    try:
        with open(open_regular(os.path.join(folder, f".{name}.url")), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def read_file(path: Path) -> bytes:
    """Return the bytes of the regular file ``path``; raises what ``open_regular`` raises."""
    with open_file(path) as file:
        return file.read()


def mode_below(directory: Path) -> int:
    """Return the mode for a new file in ``directory``: those who may enter the directory may read the file."""
    return PRIVATE_FILE | (stat.S_IMODE(directory.stat().st_mode) & 0o066)


def raise_write_error(error: OSError, path: Path) -> NoReturn:
    """Raise the ``StoreError`` for an error from writing ``path``; an error of an unknown kind is raised unchanged."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    facts: dict[str, object] = {"path": str(path), "errno": error.errno}
    if error.errno in _FULL:
        raise DiskFull(
            f"no space left writing {path}: {reason}", hint="free some space and run the command again", **facts
        ) from error
    if error.errno in _FAILED:
        raise DiskFailed(
            f"{path}: the disk failed: {reason}",
            hint="see the kernel's messages (dmesg); the old state stays, run the command again on a disk that works",
            **facts,
        ) from error
    if isinstance(error, NotRegular):
        raise NotWritable(
            f"cannot write {path}: {error.strerror}", hint="move the existing files away", **facts
        ) from error
    if error.errno in _DENIED:
        raise NotWritable(
            f"cannot write {path}: {reason}", hint="check permissions and mount options", **facts
        ) from error
    if error.errno in _EXISTS:
        raise AlreadyExists(f"{path} exists already", hint="name a path that does not exist", **facts) from error
    if error.errno == errno.ENAMETOOLONG:
        raise Refused(f"cannot write {path}: {reason}", hint="name a shorter one", **facts) from error
    if error.errno in {errno.ENOENT, errno.ENOTDIR}:
        raise NotFound(f"cannot write {path}: {reason}", hint="create its directory first", **facts) from error
    raise error


def raise_temporary_error(error: OSError) -> NoReturn:
    """Raise the ``StoreError`` for an error from writing a temporary file."""
    import tempfile  # 4 ms

    if tempfile.tempdir is None:  # it found none
        raise NotWritable(
            "no directory of temporary files can be written", hint="set TMPDIR to a directory that can be written"
        ) from error
    raise_write_error(error, Path(error.filename or tempfile.tempdir))


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors from writing ``path`` within the block into ``StoreError``s."""
    try:
        yield
    except OSError as error:
        raise_write_error(error, path)


def raise_read_error(error: OSError, path: Path) -> NoReturn:
    """Raise the ``StoreError`` for an error from reading ``path``."""
    if error.errno in _FAILED:
        raise_write_error(error, path)
    raise NotWritable(f"cannot read {path}: {error.strerror}", hint="check its permissions", path=str(path)) from error


def replace_file(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Replace the content of a file durably; on any error the old content stays and no temporary file is left.

    Anything but a regular file, such as /dev/stdout, is written in place. ``mode`` is by default that of the replaced
    file, for a new one the one that its directory grants.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        if path.exists() and not path.is_file():
            raise NotRegular(errno.EINVAL, "it is not a regular file", str(path))
        if mode is None:
            mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else mode_below(path.parent)
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


@contextmanager
def create_file(
    path: Path, *, mode: int = PRIVATE_FILE, durable: bool = True, like: os.stat_result | None = None
) -> Iterator[BinaryIO]:
    """Open a new file at ``path`` for writing; it is durable when the block ends, and removed if the block raises.

    ``durable`` false does not wait for the disk, for files such as generated data. With ``like`` the file gets that
    file's owner, group and mode, and until it is complete only its owner may read it.
    """
    with writing(path):
        descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode if like is None else PRIVATE_FILE
        )
    try:
        with open(descriptor, "wb") as file:
            yield file
            if like is not None:
                keep_owner(descriptor, like)
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


def write_new_file(path: Path, data: bytes, before: Callable[[], object] = lambda: None) -> None:
    """Create the file ``path`` with ``data``, durably, completely or not at all; raises AlreadyExists, and StoreBusy if
    another process is creating it.

    It is written under a temporary name beside ``path``, where leftovers of a killed process are overwritten.
    ``before`` is called just before the file gets its final name.
    """
    unfinished = _unfinished(path)
    with writing(path):
        _check_free(path)
        with open(open_regular(unfinished, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW), "wb") as file:
            _lock(file.fileno(), unfinished)
            _write_and_name(file, data, (unfinished, path), before)
        sync_directory(path.parent)


@contextmanager
def alone_at(path: Path) -> Iterator[None]:
    """Lock ``path`` against other callers of this function while it is read and replaced; raises StoreBusy,
    NotWritable."""
    unfinished = _unfinished(path)
    with open(open_lock_file(unfinished), "wb") as file:
        _lock(file.fileno(), unfinished)
        try:
            yield
        finally:
            remove_file(unfinished)


def _unfinished(path: Path) -> Path:
    """Return the temporary name beside ``path`` for an incomplete file; raises AlreadyExists if ``path`` has no name
    (``.``, ``/``)."""
    if not path.name:
        raise_write_error(OSError(errno.EEXIST, os.strerror(errno.EEXIST)), path)
    return path.with_name(f".{path.name}.pulsar-admin")


def _write_and_name(file: BinaryIO, data: bytes, names: tuple[Path, Path], before: Callable[[], object]) -> None:
    """Write ``data`` into the locked ``file``, call ``before``, and rename the file from the first of ``names`` to the
    second; on any error it is removed."""
    unfinished, path = names
    try:
        file.truncate(0)
        _write_durably(file, data)
        before()
        _check_free(path)
        os.replace(unfinished, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(unfinished)
        raise


def _check_free(path: Path) -> None:
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def replace_like(path: Path, data: bytes, beside: str, like: Path | None = None) -> None:
    """Replace the file ``path`` with ``data``, durably; owner, group and mode stay, or are those of ``like``.

    The data is first written to the file ``beside`` in the same directory. As that name is fixed, the next call
    replaces what a killed process left there.
    """
    temporary = path.with_name(beside)
    remove_file(temporary)
    with create_file(temporary, like=(like or path).stat()) as file:
        file.write(data)
    rename(temporary, path)


def check_new(path: Path, hint: str = "name a new directory") -> None:
    """Raise AlreadyExists if anything exists at ``path``, even a dangling link."""
    if path.exists() or path.is_symlink():
        raise AlreadyExists(f"{path} exists", hint=hint, path=str(path))


def check_may_write_for(path: Path) -> None:
    """Raise Refused unless this process may give new files beside ``path`` the owner and group of ``path``."""
    like = path.stat()
    if os.geteuid() and (like.st_uid != os.geteuid() or like.st_gid not in {os.getegid(), *os.getgroups()}):
        raise Refused(
            f"{path} belongs to user {like.st_uid}, group {like.st_gid}: user {os.geteuid()} cannot write files that stay theirs",
            hint="run the command as that user, or as root, which gives them the new files",
            path=str(path),
        )


def keep_owner(descriptor: int, like: os.stat_result) -> None:
    """Give an open file the owner, group and mode of ``like``; raises OSError if the operating system refuses."""
    os.fchown(descriptor, like.st_uid, like.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(like.st_mode))


def create_directory(path: Path, *, exist_ok: bool = False, mode: int = PRIVATE_DIRECTORY) -> None:
    """Create the directory ``path`` (its parent must exist) durably; raises AlreadyExists unless ``exist_ok``."""
    try:
        os.mkdir(path, mode)
    except OSError as error:
        if exist_ok and error.errno == errno.EEXIST and path.is_dir():
            return
        raise_write_error(error, path)
    with writing(path):
        sync_directory(path.parent)


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Hand out a new directory: it is renamed to ``path`` when the block ends, and removed if the block raises.

    Leftovers of a killed process are removed. Raises StoreBusy if another process is creating ``path``, AlreadyExists
    if it exists at the end.
    """
    unfinished = _unfinished(path)
    create_directory(unfinished, exist_ok=True)
    try:
        descriptor = os.open(unfinished, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:  # another process also created it, and is done
        raise _busy(unfinished) from None
    try:
        _lock(descriptor, unfinished)
        remove_tree(unfinished / "files")
        try:
            yield unfinished / "files"
            if path.exists():
                raise_write_error(OSError(errno.EEXIST, os.strerror(errno.EEXIST)), path)
            rename(unfinished / "files", path)
        finally:
            remove_tree(unfinished)
    finally:
        os.close(descriptor)


_SCRATCH = "pulsar-admin-scratch-"


class Scratch:
    """A new directory among the temporary files; ``close`` removes it.

    It is locked until then, so that the next process that creates one can recognize and remove those of killed
    processes. Raises DiskFull, NotWritable.
    """

    def __init__(self) -> None:
        import tempfile  # 4 ms

        try:
            _remove_left_scratch(tempfile.gettempdir())
            self.path, self._descriptor = self._make()
        except OSError as error:
            raise_temporary_error(error)

    def _make(self) -> tuple[Path, int]:
        import tempfile

        while True:
            path = Path(tempfile.mkdtemp(prefix=_SCRATCH))
            with suppress(FileNotFoundError, StoreBusy):  # another process saw it before it was locked, and removes it
                descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    _lock(descriptor, path)
                except StoreBusy:
                    os.close(descriptor)
                    raise
                except OSError:  # a file system without locks: nobody removes what is left there
                    pass
                return path, descriptor

    def close(self) -> None:
        """Remove the directory; content that cannot be removed now is left to the next process."""
        import shutil

        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._descriptor)


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Hand out the path of a ``Scratch``."""
    scratch = Scratch()
    try:
        yield scratch.path
    finally:
        scratch.close()


@cache
def _remove_left_scratch(directory: str) -> None:
    """Remove this user's scratch directories below ``directory`` that no process has locked."""
    with suppress(OSError):
        for name in os.listdir(directory):
            if name.startswith(_SCRATCH):
                _remove_if_left(os.path.join(directory, name))


def _remove_if_left(path: str) -> None:
    import fcntl
    import shutil

    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    """Lock the open file or directory at ``path``; raises StoreBusy if another process has locked or removed it."""
    import fcntl

    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return
    raise _busy(path)


def _busy(path: Path) -> StoreBusy:
    return StoreBusy(f"another process is writing {path}", hint="wait until it ends, or name another file")


def rename(source: Path, target: Path) -> None:
    """Move ``source`` onto ``target`` atomically and durably (same file system)."""
    with writing(target):
        os.replace(source, target)
        sync_directory(target.parent)
        if source.parent != target.parent:
            sync_directory(source.parent)


def cut_file(path: Path, size_bytes: int) -> None:
    """Truncate the file ``path`` to ``size_bytes``, durably."""
    with writing(path):
        descriptor = open_regular(path, os.O_WRONLY)
        try:
            os.ftruncate(descriptor, size_bytes)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_at(path: Path, offset: int, data: bytes) -> None:
    """Write ``data`` into the file ``path`` at ``offset``; durable after ``sync_file``."""
    with writing(path):
        descriptor = open_regular(path, os.O_WRONLY)
        with open(descriptor, "wb") as file:
            file.seek(offset)
            file.write(data)


def sync_file(path: Path) -> None:
    """Make the bytes written to the file ``path`` durable."""
    with writing(path):
        descriptor = open_regular(path)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def copy_file(
    source: Path, target: Path, *, durable: bool = True, like: os.stat_result | None = None, leaves_cache: bool = False
) -> None:
    """Copy ``source`` to the new file ``target`` with its mode; holes of a sparse file stay holes.

    ``durable``, ``like``: as in ``create_file``. ``leaves_cache``: pages of ``source`` that only this copy brought into
    the page cache are evicted again.
    """
    from pulsar_admin.store.pace import PACE, ColdPages  # commands that only read never copy

    with (
        _open_to_copy(source) as reader,
        create_file(target, mode=_mode_of_copy(reader.fileno()), durable=durable, like=like) as writer,
    ):
        cold = ColdPages(reader.fileno(), 0, os.fstat(reader.fileno()).st_size) if leaves_cache else None
        while chunk := reader.read(min(1 << 20, PACE.step_bytes)):
            PACE.take(len(chunk))
            if chunk.count(0) == len(chunk):
                writer.seek(len(chunk), os.SEEK_CUR)
            else:
                writer.write(chunk)
        writer.truncate()
        if cold is not None:
            cold.drop_all()


def _mode_of_copy(descriptor: int) -> int:
    """Return the mode of a copy: the source's permissions to read and write, and always the owner's."""
    return PRIVATE_FILE | (stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o666)


def _open_to_copy(source: Path) -> BinaryIO:
    try:
        return open_file(source)
    except OSError as error:
        raise_read_error(error, source)


def check_copyable(source: Path) -> None:
    """Raise Refused when a symbolic link is anywhere in the directory ``source``, NotWritable when a part cannot be read."""
    for entry in _entries(source):
        if entry.is_symlink():
            raise Refused(
                f"{entry} is a symbolic link, to {os.readlink(entry)}: it may lead outside the copied directory, or in a circle",
                hint="replace the link by its target and import that; or write with --in-place",
                path=str(entry),
            )
        if entry.is_dir():
            check_copyable(entry)


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError as error:
        raise_read_error(error, directory)


def copy_tree(source: Path, target: Path) -> None:
    """Copy a directory to the new directory ``target``, durably, with owners, modes (always writable to the owner) and
    times.

    Until the copy is complete, only its owner can enter ``target``. A user who may not change owners owns the copy.
    Links are not followed, and special files are left out: see ``check_copyable``.
    """
    create_directory(target)
    for entry in _entries(source):
        copy = target / entry.name
        if entry.is_symlink():
            continue
        if entry.is_dir():
            copy_tree(entry, copy)
        elif entry.is_file():
            copy_file(entry, copy)
            _copy_stat(entry, copy)
    _copy_stat(source, target)


def _copy_stat(source: Path, target: Path) -> None:
    import shutil

    like = source.stat()
    mode = stat.S_IMODE(like.st_mode) | stat.S_IWUSR  # a copy of something read-only is still ours to change
    try:
        os.chown(target, -1, like.st_gid)
        os.chown(target, like.st_uid, -1)
    except PermissionError:
        if target.stat().st_gid != like.st_gid:
            mode &= ~stat.S_IRWXG | mode << 3  # another group may do what everybody may
    except OSError as error:
        raise_write_error(error, target)
    shutil.copystat(source, target)
    target.chmod(mode)


def remove_tree(path: Path) -> None:
    """Remove a directory with all its content; no error if it does not exist."""
    import shutil  # 2.5 ms; every command loads this module

    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise_write_error(error, path)


def remove_file(path: Path) -> None:
    """Remove a file; no error if it does not exist."""
    with writing(path):
        path.unlink(missing_ok=True)


def link_file(source: Path, target: Path) -> None:
    """Give ``source`` the second name ``target``, which must not exist; raises Refused between file systems."""
    try:
        os.link(source, target)
        sync_directory(target.parent)
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise Refused(
                f"{source} cannot be linked into {target.parent}: another file system", hint="use --copy, or neither"
            ) from error
        raise_write_error(error, target)


def link_by_name(source: Path, link: Path) -> None:
    """Make ``link`` a symbolic link to ``source``."""
    with writing(link):
        link.symlink_to(source)


def reserve_file(path: Path, size_bytes: int) -> None:
    """Allocate disk blocks for ``size_bytes`` of the file ``path`` (created if missing), keeping its bytes; raises
    DiskFull.

    A process that maps a file with a hole is killed if the disk has no block for it.
    """
    with writing(path):
        descriptor = open_regular(path, os.O_RDWR | os.O_CREAT, mode_below(path.parent))
        try:
            if os.fstat(descriptor).st_blocks * 512 < size_bytes:
                os.posix_fallocate(descriptor, 0, size_bytes)
        finally:
            os.close(descriptor)


def has_room(path: Path) -> bool:
    """Whether the file ``path`` can grow: its disk has room, and no limit on the size of files is reached."""
    import resource

    disk = os.statvfs(path.parent)
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    is_below = limit_bytes == resource.RLIM_INFINITY or path.stat().st_size + _ROOM_BYTES < limit_bytes
    return disk.f_bavail * disk.f_frsize > _ROOM_BYTES and is_below


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_lock_file(path: Path, *, create: bool = True) -> int:
    """Open the file that a writer locks, keeping its content, and ``create`` it if missing; return its descriptor."""
    try:
        return open_regular(path, os.O_RDWR | (os.O_CREAT if create else 0), mode_below(path.parent))
    except IsADirectoryError:
        raise_write_error(NotRegular(errno.EINVAL, "it is a directory, not a regular file", str(path)), path)
    except OSError as error:
        raise_write_error(error, path)


def _write_durably(file: BinaryIO, data: bytes) -> None:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())
