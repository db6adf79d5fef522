"""The files that a local path or a URL means, and the bytes of a slice of one.

A local file is a path, a directory of logs, or a glob of either. A URL is anything that ``pyarrow.fs.FileSystem.from_uri`` opens (s3,
gs, hdfs, file): of an object, a prefix, or a glob of either. A query, such as ``?region=…&endpoint_override=…``, is kept.
Globs are Hadoop's, which Spark's users know: ``{a,b}`` is one of several, ``[^a]`` is not one of these.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path
from stat import S_ISDIR
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pulsar_admin.store import errors
from pulsar_admin.store.codec.bookie import COOKIE_FILE, LAST_MARK_FILE
from pulsar_admin.store.codec.entrylog import log_id_of
from pulsar_admin.store.pace import PACE
from pulsar_admin.store.secrets import hide_secrets
from pulsar_admin.store.urls import check_length, file_system_of, info_of, is_url, translated

if TYPE_CHECKING:
    from pulsar_admin.store.engine.slices import FileRange

READ_AHEAD_BYTES = 1 << 20  # behind a slice's end: its last record may reach over it
_REQUEST_BYTES = 8 << 20
_BESIDE = (COOKIE_FILE, LAST_MARK_FILE)  # what a glob of a bookie's directory meets
_ALTERNATIVES_MAX = 10_000
_FILE_URL = re.compile(r"^file:(//)?(?=/(?!/))")
_BRACES = re.compile(r"\{([^{}]*)\}")  # inside of which are none


def plain_path(path: str) -> str:
    """Return the local path of a ``file:/…`` or ``file:///…`` URL, other paths unchanged; escapes are not decoded."""
    return _FILE_URL.sub("", path)


def absolute_path(path: str) -> str:
    """Return a URL or path in a form that a process with another working directory also finds."""
    return path if is_url(path) else os.path.join(os.getcwd(), path)


def source_files(paths: str | Sequence[str], *, recursive: bool = False) -> list[tuple[str, int, int]]:
    """Return (path or URL, −1, bytes) of the files at one path or several separated by commas, each once, without empty ones.

    ``recursive``: a directory includes the logs in its subdirectories. Raises SourceNotFound, also if only one of the
    paths has no file.
    """
    parts = split_paths(paths) if isinstance(paths, str) else paths
    each = [
        {
            path: size
            for one in alternatives(part)
            for path, size in (_list_url(one, recursive) if is_url(one) else _list_local(one, recursive))
        }
        for part in parts
    ]
    empty = [part for part, files in zip(parts, each, strict=True) if not files]
    if empty or not parts:
        raise errors.SourceNotFound(
            f"no entry log at {', '.join(map(hide_secrets, empty))}",
            hint="name files, a directory that holds N.log files, or a glob",
        )
    sizes = {path: size for files in each for path, size in files.items()}
    return [(path, -1, size) for path, size in sizes.items() if size]


def split_paths(text: str) -> list[str]:
    """Return the paths that commas separate; commas in braces belong to a glob."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def alternatives(pattern: str) -> list[str]:
    """Return the Python globs that a glob with braces means, one for each alternative; raises InvalidValue."""
    if os.path.exists(pattern):  # its name has braces
        return [pattern]
    patterns = [pattern.replace("[^", "[!")]
    while any(braces := [_BRACES.search(one) for one in patterns]):
        patterns = [
            one if inner is None else one[: inner.start()] + choice + one[inner.end() :]
            for one, inner in zip(patterns, braces, strict=True)
            for choice in ([""] if inner is None else inner[1].split(","))
        ]
        if len(patterns) > _ALTERNATIVES_MAX:
            raise errors.InvalidValue(
                f"{pattern} means more than {_ALTERNATIVES_MAX:,} globs", hint="write * in place of some of its braces"
            )
    return [*dict.fromkeys(patterns)]


def _list_local(part: str, recursive: bool) -> Iterator[tuple[str, int]]:
    matched = (name for name in sorted(glob(part)) if not os.path.basename(name).startswith(_BESIDE))
    for name in [part] if os.path.exists(part) else matched:
        info = os.stat(name)
        if not S_ISDIR(info.st_mode):
            yield name, info.st_size
            continue
        for path in _local_logs(Path(name), recursive):
            yield path, os.stat(path).st_size


def _local_logs(folder: Path, recursive: bool) -> Iterator[str]:
    inside = sorted(folder.iterdir())
    if any(_is_rocksdb(path.name) and path.is_file() for path in inside):
        return
    yield from (str(path) for path in inside if log_id_of(path.name) is not None)
    for path in inside if recursive else ():
        if path.is_dir():
            yield from _local_logs(path, recursive)


def _is_rocksdb(name: str) -> bool:
    """Whether a file name occurs in every RocksDB, whose write-ahead logs have names like entry logs."""
    return name == "CURRENT"


def _list_url(part: str, recursive: bool) -> list[tuple[str, int]]:
    """Return the objects that a URL means: the object itself, the logs at a prefix, or the matches of its last parts."""
    from pyarrow import fs

    base, mark, query = part.partition("?")
    # The path up to its first part with glob characters, and the parts from there on.
    scheme, _, rest = base.rstrip("/").partition("://")
    parts = rest.split("/")
    globs = (index for index, name in enumerate(parts) if index and any(sign in name for sign in "*["))
    first = next(globs, len(parts))
    folder, names = f"{scheme}://{'/'.join(parts[:first])}", parts[first:]
    with translated(part):
        system, root = file_system_of(folder + mark + query)
        infos = [info_of(system, root)]
        for name in names:
            folders = [info.path for info in infos if info.type == fs.FileType.Directory]
            infos = [info for path in folders for info in _list_at(system, path) if fnmatchcase(info.base_name, name)]
            infos = [info for info in infos if not info.base_name.startswith(_BESIDE)]
        sizes = {info.path: info.size for info in infos if info.type == fs.FileType.File}
        for info in infos:
            if info.type == fs.FileType.Directory:
                logs = [log for log in _list_at(system, info.path, recursive=recursive) if log.is_file]
                databases = {os.path.dirname(log.path) for log in logs if _is_rocksdb(log.base_name)}
                sizes |= {
                    log.path: log.size
                    for log in logs
                    if log_id_of(log.base_name) is not None and os.path.dirname(log.path) not in databases
                }
    return sorted((f"{folder}{path[len(root) :]}{mark}{query}", size) for path, size in sizes.items())


def _list_at(system: Any, path: str, *, recursive: bool = False) -> list[Any]:  # Any: pyarrow's
    from pyarrow import fs

    # Object stores have no folders: a prefix without objects is no error here, ``source_files`` names all that are empty.
    infos: list[Any] = system.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=recursive))
    return infos


class ListedObject(NamedTuple):
    """An object at a prefix; ``size_bytes`` None for a prefix below it."""

    name: str
    url: str
    size_bytes: int | None
    mtime_ns: int


def list_prefix(url: str) -> list[ListedObject]:
    """Return the objects directly below ``url``, or below its ``current``; raises SourceNotFound and as ``translated``."""
    from pyarrow import fs

    with translated(url):
        system, path = file_system_of(url)
        infos = system.get_file_info(fs.FileSelector(path))
        inner = next((info.path for info in infos if info.base_name == "current" and not info.is_file), None)
        if inner is not None:
            infos = system.get_file_info(fs.FileSelector(inner))
        base, mark, query = url.partition("?")
        base, root = base.rstrip("/"), len(path.rstrip("/"))
        return [
            ListedObject(
                info.base_name,
                f"{base}{info.path[root:]}{mark}{query}",
                info.size if info.is_file else None,
                info.mtime_ns or 0,
            )
            for info in infos
        ]


def iter_object(url: str) -> Iterator[bytes]:
    """Yield the bytes of an object, one request after the other."""
    with translated(url):
        system, path = file_system_of(url)
        stream = system.open_input_stream(path)
    with stream:
        while True:
            with translated(url):
                chunk = stream.read(_REQUEST_BYTES)
            # The yield stands outside: an error of the caller's is not the object's.
            if not chunk:
                return
            yield bytes(chunk)


class SliceSource(Protocol):
    """A slice's bytes, as a local file at ``path`` complete up to ``end``; ``size_bytes``: of the source."""

    path: str
    end: int
    size_bytes: int

    def extend(self, end: int) -> None:
        """Make the bytes complete up to ``end``."""


class _LocalFile:
    """A whole local file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.end = self.size_bytes = os.stat(path).st_size

    def extend(self, end: int) -> None:
        """Do nothing: a local file is complete."""


class _Fetched:
    """Bytes of an object in memory, as a local file with the same offsets; ``path`` opens it.

    The file is sparse before ``start``. ``end`` grows with ``extend``; ``size_bytes`` is the whole object's.
    """

    def __init__(self, piece: FileRange, file: Any, size_bytes: int, back_bytes: int) -> None:
        self._file = file  # Any: pyarrow's NativeFile
        self._url = piece.path
        self.size_bytes = size_bytes
        self.end = max(piece.start - back_bytes, 0) if piece.seek else piece.start
        self._descriptor = os.memfd_create("slice")
        self.path = f"/proc/self/fd/{self._descriptor}"
        self.extend(min(piece.end + READ_AHEAD_BYTES, size_bytes))

    def extend(self, end: int) -> None:
        """Read on to ``end``; raises SourceChanged for an object that is shorter than announced."""
        end = min(end, self.size_bytes)
        while self.end < end:
            with translated(self._url):
                raw = self._file.read_at(min(_REQUEST_BYTES, end - self.end), self.end)
            if not raw:
                raise errors.SourceChanged(
                    f"{hide_secrets(self._url)} is truncated: expected {self.size_bytes} bytes, found {self.end}",
                    hint="copy the file there again",
                    path=hide_secrets(self._url),
                )
            PACE.take(len(raw))
            self.end += os.pwrite(self._descriptor, raw, self.end)

    def close(self) -> None:
        os.close(self._descriptor)


@contextmanager
def open_source(piece: FileRange, back_bytes: int = 0) -> Iterator[SliceSource]:
    """Open a slice's bytes: a local file, or the bytes of a URL (and so many before it, where it was cut), read into memory.

    Raises SourceChanged, SourceNotFound, EntryLogCorrupt; OSError for a local file.
    """
    if is_url(piece.path):
        with _fetch(piece, back_bytes) as fetched:
            yield fetched
    else:
        yield _LocalFile(piece.path)


@contextmanager
def _fetch(piece: FileRange, back_bytes: int) -> Iterator[_Fetched]:
    with translated(piece.path):
        system, path = file_system_of(piece.path)
        file = system.open_input_file(path)
        size_bytes = file.size()
    with file:
        if piece.limit >= 0:
            size_bytes = min(size_bytes, piece.limit)
        check_length(hide_secrets(piece.path), piece.end, size_bytes, "copy the file there again")
        fetched = _Fetched(piece, file, size_bytes, back_bytes)
        try:
            yield fetched
        finally:
            fetched.close()
