"""Fetches the files of bookies that an import reads from object stores and tar archives into a local directory.

These are entry logs, journals, and the small files that say to which bookie they belong. Databases are not fetched, so
the index stays unknown. A local file of the same size, and for an object the same time, is not fetched again. Entry
logs at a URL may stay there (``store.files.url_of``).
"""

import json
import lzma
import os
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from shutil import disk_usage
from typing import IO, NamedTuple

from msgspec.structs import replace

from pulsar_admin.store.codec.bookie import COOKIE_FILE, LAST_ID_FILE, LAST_MARK_FILE
from pulsar_admin.store.codec.entrylog import log_id_of
from pulsar_admin.store.db.bookies import iter_imported_bookies
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.files import iter_logs, put_log
from pulsar_admin.store.db.storeinfo import REMOTE
from pulsar_admin.store.db.unserved import put_journal_marks, read_journal_marks
from pulsar_admin.store.errors import DiskFull, EntryLogCorrupt, InvalidValue, SourceNotFound
from pulsar_admin.store.files import HEAD_BYTES, create_directory, create_file, remove_file, rename, replace_file
from pulsar_admin.store.scan.sources import iter_object, list_prefix
from pulsar_admin.store.secrets import hide_secrets
from pulsar_admin.store.urls import LISTED, fetched_from, is_url, read_bytes

_CHUNK_BYTES = 8 << 20
_NAMES_MAX_BYTES = 1 << 20
_READ_AT_ONCE = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)
_INDEXES = ("ledgers", "locations")
_SMALL = (COOKIE_FILE, LAST_ID_FILE, LAST_MARK_FILE)


class _Wanted(NamedTuple):
    """A file to fetch; ``folder``: its directory in an archive. A database directory has ``chunks`` None."""

    folder: str
    name: str
    size_bytes: int
    chunks: Iterator[bytes] | None
    url: str = ""
    mtime_ns: int = 0  # of an object


def fetch_bookie(text: str, into: Path | None, beginnings: Path | None = None) -> str:
    """Return a bookie's parts, ``[ID=]PART,PART``, with URLs and archives replaced by the directories they were fetched
    to, below ``into``.

    Without ``into``, only the beginnings of entry logs at URLs are fetched, below ``beginnings``. Raises InvalidValue
    if neither is possible, and for a URL with a password that the store would have to keep; SourceNotFound,
    MissingComponent, EntryLogCorrupt, NotWritable, DiskFull.
    """
    head, equals, rest = text.partition("=")
    is_named = bool(equals) and "/" not in head
    parts = (rest if is_named else text).split(",")
    if not any(map(_is_elsewhere, parts)):
        return text
    place = into or beginnings
    if place is None or (into is None and not all(is_url(part) for part in parts if _is_elsewhere(part))):
        raise InvalidValue(
            f"{hide_secrets(text)} is not a directory of this machine",
            hint="use --fetch-to DIR to say where to keep its files",
        )
    if into is None:
        for part in parts:
            _check_keeps_no_secret(part)
    paths = [path for part in parts for path in (_fetch(part, place, into is None) if _is_elsewhere(part) else [part])]
    return (head + "=" if is_named else "") + ",".join(paths)


def _is_elsewhere(part: str) -> bool:
    return is_url(part) or Path(part).is_file()


def _check_keeps_no_secret(part: str) -> None:
    base, _, query = part.partition("?")
    user, at, _ = base.partition("://")[2].partition("/")[0].rpartition("@")
    if (at and ":" in user) or hide_secrets(query) != query:
        raise InvalidValue(
            f"{hide_secrets(part)} has a password, and a store keeps the URLs that it reads",
            hint="set it in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), or copy the files: --fetch-to DIR",
        )


def _fetch(part: str, into: Path, in_place: bool) -> list[str]:
    """Fetch a part into directories below ``into``; return them. ``in_place``: of entry logs only the beginning."""
    folders: dict[Path, None] = {}
    found_at: set[Path] = set()
    is_any = False
    # With the query: servers of two places may have buckets and keys of the same names.
    place = into / _slug(hide_secrets(part) if is_url(part) else part)
    for member in _objects(part) if is_url(part) else _members(Path(part)):
        is_any = True
        if member.chunks is None:  # an empty directory in its place would be a lost database
            continue
        folder = place / _slug(member.folder)
        target = folder / member.name
        folders[folder] = None
        found_at.add(target)
        for directory in (*([into.parent] if in_place else []), into, place, folder):
            create_directory(directory, exist_ok=True)
        is_begun = in_place and log_id_of(member.name) is not None and member.size_bytes > HEAD_BYTES
        there = target.stat() if target.is_file() else None
        is_same = there is not None and there.st_size == member.size_bytes and member.mtime_ns in (0, there.st_mtime_ns)
        if member.name in _SMALL or not is_same:
            unfinished = target.with_name(f".{target.name}.unfinished")
            remove_file(unfinished)
            if is_begun:  # first: a beginning alone is no file
                replace_file(target.with_name(f".{target.name}.url"), member.url.encode())
            free_bytes = disk_usage(folder).free
            if (
                not is_begun and member.size_bytes > free_bytes
            ):  # a few bytes of an archive may stand for any number of zeros
                raise DiskFull(
                    f"{hide_secrets(part)}: {member.name} needs {member.size_bytes:,} bytes in {folder}, and {free_bytes:,} are free",
                    hint="name a directory on a larger disk: --fetch-to DIR",
                    path=str(folder),
                )
            with create_file(unfinished) as out:
                for chunk in [read_bytes(member.url, 0, HEAD_BYTES)] if is_begun else member.chunks:
                    out.write(chunk)
                if is_begun:
                    out.truncate(member.size_bytes)
            if member.mtime_ns:
                os.utime(unfinished, ns=(member.mtime_ns, member.mtime_ns))
            rename(unfinished, target)
    if not is_any:
        raise SourceNotFound(
            f"{hide_secrets(part)} holds no file of a bookie: expected files such as 0.log or 17f3a.txn, found none",
            hint="name the prefix or the archive of a ledger or journal directory",
            path=hide_secrets(part),
        )
    if folders:
        replace_file(place / LISTED, (part if in_place else hide_secrets(part)).encode())
    if in_place:
        for beside in place.glob("*/.*.url"):
            if (target := beside.with_name(beside.name[1 : -len(".url")])) not in found_at:
                remove_file(target)
                remove_file(beside)
    return [str(folder) for folder in folders]


def list_again(store: Store) -> None:
    """List the URLs of a store's bookies again: fetch the beginnings of new and changed logs, remove those of deleted
    logs.

    If the store was moved or copied, the paths of its beginnings are corrected first. Raises as ``fetch_bookie``.
    """
    beginnings = store.path.resolve() / REMOTE
    here = {
        path: beginnings.joinpath(*path.parts[-2:])
        for bookie in iter_imported_bookies(store.info)
        for path in bookie.directories
        if path.parent.parent.name == REMOTE
    }
    here = {path: now for path, now in here.items() if now.is_dir()}
    moved = {str(path): str(now) for path, now in here.items() if path != now}
    if moved:
        store.write(partial(_name_anew, moved=moved))
        text = json.dumps(store.info.sources)
        for path, now in moved.items():
            text = text.replace(json.dumps(path)[1:-1], json.dumps(now)[1:-1])
        store.update_info(sources=tuple(json.loads(text)))
    for url in sorted({fetched_from(now) for now in here.values()} - {""}):
        _fetch(url, beginnings, True)


def _name_anew(txn: Txn, moved: Mapping[str, str]) -> None:
    for log in [*iter_logs(txn)]:
        folder, slash, name = log.origin.rpartition("/")
        if folder in moved:
            put_log(txn, replace(log, origin=moved[folder] + slash + name))
    marks = read_journal_marks(txn) or {}
    if not moved.keys().isdisjoint(marks):
        put_journal_marks(txn, {moved.get(path, path): mark for path, mark in marks.items()})


def _is_wanted(name: str) -> bool:
    return log_id_of(name) is not None or name.endswith(".txn") or name.startswith(_SMALL)


def _slug(text: str) -> str:
    """Return a directory name for a text; it ends in a digest, so that similar texts get different names."""
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[-80:]
    return f"{readable}-{sha256(text.encode()).hexdigest()[:8]}".lstrip("-")


def _objects(url: str) -> Iterator[_Wanted]:
    """Yield the wanted objects at a prefix, or in its ``current``."""
    for listed in list_prefix(url):
        if listed.size_bytes is None:
            if listed.name in _INDEXES:
                yield _Wanted("", listed.name, 0, None)
        elif listed.size_bytes and _is_wanted(listed.name):
            yield _Wanted("", listed.name, listed.size_bytes, iter_object(listed.url), listed.url, listed.mtime_ns)


class _Member(tarfile.TarInfo):
    """A member of an archive: ``tarfile`` takes a header that is damaged, or not there, for the end, and reads long names at once."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Member":
        try:
            member = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if buf == bytes(tarfile.BLOCKSIZE):
                raise
            raise tarfile.ReadError(f"{error}, and no end of the archive before it") from error
        if member.type in _READ_AT_ONCE and member.size > _NAMES_MAX_BYTES:
            raise tarfile.ReadError(f"a header of {member.size} bytes")
        return member


def _members(archive: Path) -> Iterator[_Wanted]:
    """Yield the wanted members of a tar archive, compressed or not."""
    with _unpacking(archive):
        tar = tarfile.open(archive, tarinfo=_Member)  # noqa: SIM115 - it is closed below; its damage is reported here
    with tar:
        while True:
            with _unpacking(archive):
                member = tar.next()
                if member is not None and member.size < 0:  # it would be followed backwards, again and again
                    raise tarfile.ReadError(f"{member.name} has {member.size} bytes")
                stream = None if member is None else tar.extractfile(member) if member.isfile() else None
            if member is None:
                return
            folder, _, name = member.name.rstrip("/").rpartition("/")
            if folder.rpartition("/")[2] in _INDEXES:
                continue  # RocksDB's write-ahead logs are named like entry logs
            if stream is not None and member.size and _is_wanted(name):
                yield _Wanted(folder, name, member.size, _iter_member(archive, stream))
            elif member.isdir() and name in _INDEXES:
                yield _Wanted(folder, name, 0, None)


def _iter_member(archive: Path, stream: IO[bytes]) -> Iterator[bytes]:
    while True:
        with _unpacking(archive):
            chunk = stream.read(_CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


@contextmanager
def _unpacking(archive: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, EOFError, OSError, ValueError, RecursionError, zlib.error, lzma.LZMAError) as error:
        raise EntryLogCorrupt(
            f"{archive} cannot be unpacked: {error}",
            hint="name a directory, or a whole tar archive; files that were fetched are not fetched again",
            path=str(archive),
        ) from error
