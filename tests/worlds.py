"""The recorded Pulsar worlds of tests/golden, unpacked once per machine, and guards that a tree did not change.

A world is a folder with ``clean/``, ``mutated/`` and ``crashed/`` (data directories of one standalone Pulsar in three
states), ``keys/`` (key pair of its encrypted topics) and ``oracle.json`` (what the live broker answered);
``tests/golden/README.md`` says what wrote them. Unpacked worlds are shared by all tests and read-only: take a
``scratch_copy`` to write.
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any

import google_crc32c

GOLDEN = Path(__file__).resolve().parent / "golden"
CACHE = Path(__file__).resolve().parent.parent / ".cache" / "worlds"
WORLD_NAMES = ("small", "nometa")
CLUSTER = "cluster"  # of ZooKeeper and three bookies
TRIMMED = "acme/secure/compacted-secret"
"""The topic that lost the ledgers that the broker was asked of, when it was loaded again."""
RELOADED = {CLUSTER, "small-newest"}
"""Worlds of which clients had the broker load topics again while it stopped: an answer behind the end is in the next ledger."""
STATES = ("clean", "mutated", "crashed")

_CHUNK_BYTES = 1 << 20
_ZEROS = bytes(_CHUNK_BYTES)
_STEADY_NS = 100_000_000
"""A file that was not written for this long has another change time once it is written again."""
_digests: dict[tuple[int, int, int, int], bytes] = {}  # by device, inode, size and change time


@cache
def world(name: str) -> Path:
    """The folder of a world, ``small`` for one; unpacks it when no other test run on this machine has."""
    (archive,) = GOLDEN.glob(f"pulsar-*-{name}.tar.xz")
    with archive.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()[:12]
    folder = CACHE / f"{name}-{digest}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be at it: it takes seconds
        if not folder.is_dir():
            _unpack(archive, folder)
    return folder


_oracles: dict[str, dict[str, Any]] = {}


def _read_oracle(name: str) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads((world(name) / "oracle.json").read_text())
    return answers


def oracle(name: str) -> dict[str, Any]:
    """The world's ``oracle.json``, shared by all tests of a process: what its live broker answered. Copy what you change."""
    if name not in _oracles:
        _oracles[name] = _read_oracle(name)
    return _oracles[name]


def changed_oracles() -> list[str]:
    """Return the worlds whose answers a test of this process changed."""
    return [name for name, answers in _oracles.items() if answers != _read_oracle(name)]


def asked_topics(name: str) -> dict[str, Any]:
    """Return what the broker answered of the topics that are in the world's clean state as they were then."""
    topics = oracle(name)["topics"]
    return {topic: answers for topic, answers in topics.items() if name not in RELOADED or topic != TRIMMED}


def scratch_copy(name: str, state: str, tmp_path: Path) -> Path:
    """Copy one state of a world to ``tmp_path/<name>-<state>``: writable, same modification times, holes kept."""
    source, target = world(name) / state, tmp_path / f"{name}-{state}"
    copy_tree(source, target)
    return target


def copy_tree(source: Path, target: Path) -> None:
    """Copy a tree of folders and regular files; every copied file is writable and as sparse as it can be."""
    target.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        if path.is_dir():
            copy_tree(path, target / path.name)
        else:
            _copy_written(path, target / path.name)
            _copy_times(path, target / path.name)
    _copy_times(source, target)


def digest_of(path: Path) -> str:
    """A digest over every name, every byte and every modification time of a file or a whole tree."""
    digest = hashlib.blake2b(digest_size=16)
    for found in [path, *sorted(path.rglob("*"))]:
        status = found.lstat()
        digest.update(f"{found.relative_to(path)}\0{status.st_mode:o} {status.st_mtime_ns}\0".encode())
        if found.is_symlink():
            digest.update(os.fsencode(found.readlink()))
        elif found.is_file():
            digest.update(b"%d\0" % status.st_size)
            digest.update(digest_of_file(found))
    return digest.hexdigest()


def digest_of_file(path: Path) -> bytes:
    """A digest over the bytes of a file, which are read once for as long as it has the same change time, which nobody can set."""
    status = path.stat()
    key = (status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)
    if key in _digests:
        return _digests[key]
    crc = 0  # twenty times as fast as a hash
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            crc = google_crc32c.extend(crc, chunk)
    digest = b"%d %d" % (status.st_size, crc)
    if abs(time.time_ns() - status.st_ctime_ns) > _STEADY_NS:
        _digests[key] = digest
    return digest


@contextmanager
def assert_unchanged(path: Path) -> Iterator[None]:
    """Fail unless the tree at ``path`` has the same names, bytes and modification times after the block as before."""
    before = digest_of(path)
    yield
    assert digest_of(path) == before, f"{path} was changed"


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive of ours into a folder."""
    with tarfile.open(archive) as tar:
        # Not ``filter="data"``: Python 3.11.2, which Debian 12 has, knows no such parameter.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(folder)


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack beside the target and rename, so that whoever comes after a killed run sees all of a world or nothing."""
    scratch = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=folder.parent))
    try:
        with tarfile.open(archive) as tar:
            _extract(tar, scratch)
        (inner,) = scratch.iterdir()
        inner.rename(folder)
    finally:
        shutil.rmtree(scratch)


def _extract(tar: tarfile.TarFile, scratch: Path) -> None:
    folders = []
    for member in tar:
        target = (scratch / member.name).resolve()
        assert target.is_relative_to(scratch.resolve()), f"{member.name} leaves the archive"
        stream = tar.extractfile(member)
        if stream is None:
            assert member.isdir(), f"{member.name} is neither a folder nor a file"
            target.mkdir()
            folders.append((target, member.mtime))
            continue
        with target.open("wb") as out:
            _copy_sparse(stream, out)
        target.chmod(0o444)
        os.utime(target, (member.mtime, member.mtime))
    for target, mtime in folders:  # last: creating a file sets its folder's time
        os.utime(target, (mtime, mtime))


def _copy_sparse(stream: IO[bytes], out: IO[bytes]) -> None:
    """Copy, leaving holes where whole chunks are zero: a journal is 16 MiB of which most is preallocated."""
    while chunk := stream.read(_CHUNK_BYTES):
        if chunk == _ZEROS[: len(chunk)]:
            out.seek(len(chunk), os.SEEK_CUR)
        else:
            out.write(chunk)
    out.truncate()


def _copy_written(source: Path, target: Path) -> None:
    """Copy what was written of a large file, and leave the rest a hole: of a journal of 16 MiB most is preallocated.

    A small one may be reserved on purpose, as LMDB's table of readers.
    """
    with source.open("rb") as stream, target.open("wb") as out:
        size = os.fstat(stream.fileno()).st_size
        if size <= _CHUNK_BYTES:
            out.write(stream.read())
            return
        out.truncate(size)
        end = 0
        while end < size:
            try:
                start = os.lseek(stream.fileno(), end, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return  # only a hole is left
            end = os.lseek(stream.fileno(), start, os.SEEK_HOLE)
            stream.seek(start)
            out.seek(start)
            out.write(stream.read(end - start))


def _copy_times(source: Path, target: Path) -> None:
    status = source.stat()
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
