"""The locks of a store: file ``lock``, which its one writer holds, and LMDB's table of readers, ``meta/lock.mdb``.

Readers that cannot enter themselves in the table share the file. Neither holds between machines, and most network file systems do
not promise either between processes of one ("Do not use LMDB databases on remote filesystems", lmdb.h): no store is made there.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pulsar_admin.store import files
from pulsar_admin.store.errors import NotWritable, StoreBusy, StoreError, Unsupported

_AGAIN_SECONDS = 0.05
MOUNTINFO = Path("/proc/self/mountinfo")
NETWORK = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs"),
        *("nfs", "nfs4", "ocfs2", "orangefs", "smb2", "smb3", "smbfs"),
    }
)
_LOCAL_FUSE = frozenset({"fuseblk", "fuse.bindfs", "fuse.mergerfs", "fuse.fuse-overlayfs", "fuse.ntfs-3g", "fuse.zfs"})
_LMDB_PREFIXES = ("mdb09_", "mdb_")
"""What begins the names of LMDB 0.9's functions: py-lmdb from 3.0 on has those of LMDB 1.0 in the same library."""
_READ_ONLY, _NO_TLS = 0x20000, 0x200000  # MDB_RDONLY, MDB_NOTLS
_MODE = 0o600


@contextmanager
def writer_lock(path: Path, mode: int = files.PRIVATE_DIRECTORY, *, wait_ms: int = 0) -> Iterator[int]:
    """Hold the writer lock of a path, created with this mode if it does not exist, for the life of the block.

    Raises StoreBusy, Unsupported on a network file system.
    """
    check_local(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotWritable(f"cannot create a store at {path}: {error.strerror}", path=str(path)) from error
    files.create_directory(path, exist_ok=True, mode=mode)
    descriptor = take_writer_lock(path, wait_ms=wait_ms)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def take_writer_lock(path: Path, *, wait_ms: int = 0) -> int:
    """Take a path's writer lock and return its file descriptor; raises StoreBusy naming the holder after ``wait_ms``."""
    descriptor = files.open_lock_file(path / "lock")
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
        files.raise_write_error(error, path / "lock")
    return descriptor


def _what_holds(descriptor: int) -> str:
    """Return a text on which process holds a writer lock, and for what."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "written by " + (os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip() or "another process")
    return "read by processes that are not in its table of readers (meta/lock.mdb)"


def is_written_now(path: Path) -> bool:
    """Whether a process holds the writer lock of a path."""
    try:
        descriptor = files.open_regular(path / "lock")
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
        descriptor = files.open_regular(file)
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
        descriptor = files.open_lock_file(path / "lock")
    except StoreError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_network(kind: str) -> bool:
    """Whether a kind of file system, by the kernel's name, is on a network; for FUSE, all but those known to be local."""
    return kind in NETWORK or (kind.startswith("fuse") and kind not in _LOCAL_FUSE)


def check_local(path: Path) -> None:
    """Raise Unsupported if a path, or its nearest existing parent, is on a network file system."""
    there = path.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    device = there.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}".encode()
    try:
        lines = MOUNTINFO.read_bytes().splitlines()
    except OSError:
        return  # no Linux
    for line in lines:
        # "36 35 98:0 /root /mount/point options … - type source options", proc_pid_mountinfo(5)
        before, _, after = line.partition(b" - ")
        kind = after.partition(b" ")[0].decode("ascii", "replace")
        if before.split(b" ", 3)[2] == wanted and is_network(kind):
            raise Unsupported(
                f"{path} is on a network file system ({kind}): a store's index is mapped into memory and locked, which holds on one"
                " machine's own disk only",
                hint="keep the store on a local disk; the imported data may stay where it is",
                path=str(path),
                fileSystem=kind,
            )


def clear_dead_readers(directory: Path, library: str) -> None:
    """Free the slots of killed readers in an environment that this process has not open; ``library``: py-lmdb's own.

    A reader that is killed leaves its slot in the table. LMDB takes it for dead once somebody asks (``mdb_reader_check``), but py-lmdb
    asks only for an environment that is open, and to open one it takes a slot itself. So a full table is emptied by LMDB's own
    function, called directly: it holds the table's lock, and lets alone who is alive. Nothing happens if the library does not export it.
    """
    import ctypes  # hardly any table is full

    functions = ctypes.CDLL(library)
    prefix = next((name for name in _LMDB_PREFIXES if hasattr(functions, f"{name}reader_check")), None)
    if prefix is None:
        return
    create, open_, check, close = (
        getattr(functions, f"{prefix}{name}") for name in ("env_create", "env_open", "reader_check", "env_close")
    )
    close.restype = None
    environment, dead = ctypes.c_void_p(), ctypes.c_int()
    if create(ctypes.byref(environment)):
        return
    try:
        if not open_(environment, os.fsencode(directory), ctypes.c_uint(_READ_ONLY | _NO_TLS), ctypes.c_uint(_MODE)):
            check(environment, ctypes.byref(dead))
    finally:
        close(environment)
