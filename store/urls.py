"""Files at URLs, read through pyarrow's file systems, and files of which only the beginning is stored on this machine.

A URL is anything that ``pyarrow.fs.FileSystem.from_uri`` opens (s3, gs, hdfs, file); its query, such as
``?region=…&endpoint_override=…``, is passed on. An import stores the beginning of an entry log at a URL
(``store.files.url_of``); all other bytes are read from the URL.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pulsar_admin.store import errors
from pulsar_admin.store.files import open_file, open_regular, read_file, url_of
from pulsar_admin.store.pace import PACE
from pulsar_admin.store.secrets import hide_secrets

_URL_SIGNS = ":/?[]@!$&'()*+,;=%"  # a key may have a #
_OF_HADOOP = ("hdfs", "viewfs")
_RETRY_S = 20
_TRIES = 5
_HADOOP = (
    "install Hadoop's client and Java; set JAVA_HOME, ARROW_LIBHDFS_DIR (where libhdfs.so is) and CLASSPATH=$(hadoop "
    "classpath --glob); or mount it (fuse, NFS gateway) and use that path"
)
_NO_CREDENTIALS = ("OAuth2", "redential", "ACCESS_DENIED", "ACCESS DENIED", "HTTP status 403", "INVALID_ACCESS_KEY_ID")
_UNREACHED = (  # a server, or what it says is its own trouble: what its disk holds is unknown then
    r"NETWORK_CONNECTION|ould not (connect|resolve)|HTTP status (code: )?(5\d\d|408|425|429)|Status\((UNAVAILABLE|DEADLINE_EXCEEDED):"
    r"|Azure Error: \[\w*\] (5\d\d|408|429) |AWS Error (INTERNAL_FAILURE|REQUEST_TIMEOUT|SERVICE_UNAVAILABLE|SLOW_DOWN|THROTTLING)"
    r"|HDFS connection failed"  # also without CLASSPATH; libhdfs says why on stderr
    r"|\[Errno 255\] HDFS list directory failed"
)
_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write s3://anonymous@… for a public bucket",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or run: gcloud auth application-default login; gs://anonymous@… if public",
    "abfs": "add a SAS token to the URL (abfs://…?sv=…&sig=…; an account's key there is ignored), or set AZURE_TENANT_ID, "
    "AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or run: az login; &credential_kind=anonymous for a public container",
}
_PARAMETERS = {
    "s3": "region, scheme, endpoint_override, tls_ca_file_path, tls_verify_certificates",
    "gs": "scheme, endpoint_override, retry_limit_seconds, project_id",
    "abfs": "blob_storage_authority, dfs_storage_authority, enable_tls (true, false), credential_kind (anonymous, environment), "
    "tenant_id, client_id and client_secret, or those of a SAS token",
}
"""The parameters that a URL may have after its ``?``."""


def is_url(path: str) -> bool:
    """Whether a path is a URL, to be opened by pyarrow's file systems."""
    return "://" in path


def shown_path(path: str) -> str:
    """Return a path for display and storage: a URL without user and password, and with *** for secrets in its query."""
    if not is_url(path):
        return path
    base, mark, query = path.partition("?")
    scheme, _, rest = base.partition("://")
    host, slash, behind = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{behind}{mark}{hide_secrets(query)}"


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turn errors of reading ``where`` into SourceNotFound, Unsupported, MissingComponent or EntryLogCorrupt."""
    from pyarrow import ArrowException

    where = hide_secrets(where)
    try:
        yield
    except FileNotFoundError as error:
        raise errors.SourceNotFound(f"{where} does not exist", hint="check the bucket and the path") from error
    except (OSError, ValueError, ArrowException) as error:
        cause = None if "://" in where else error  # which has the URL in its text, with key and secret
        raise _explained(where, hide_secrets(str(error))) from cause


def _explained(where: str, text: str) -> errors.StoreError:
    """Return a file system's error text as the cause in one line, with what to install or set."""
    scheme = where.partition("://")[0]
    said = errors.brief(text)
    if "Unrecognized filesystem type" in text:
        return errors.Unsupported(
            f"{where}: there is no file system {scheme}://", hint="there are s3, gs, abfs, hdfs and file"
        )
    if any(name in text for name in ("libjvm", "libhdfs")):
        return errors.MissingComponent(f"{where} needs Hadoop's native client: {said}", hint=_HADOOP)
    if any(word in text for word in _NO_CREDENTIALS):
        hint = _CREDENTIALS.get(_family(scheme), "check the credentials")
        return errors.MissingComponent(f"{where} cannot be opened without credentials: {said}", hint=hint)
    if re.search(_UNREACHED, text):
        hint = "check the address, and that its server runs"
        if scheme in _OF_HADOOP:
            hint += f"; or {_HADOOP}"
        return errors.MissingComponent(f"{where} cannot be reached: {said}", hint=hint)
    return errors.EntryLogCorrupt(f"{where} cannot be read: {said}", hint="check address and credentials", path=where)


def file_system_of(url: str) -> tuple[Any, str]:  # Any: pyarrow's FileSystem
    """Return the file system for ``url`` and the path in it; as in Hadoop, spaces and ``%20`` stand for themselves."""
    from pyarrow import fs

    base, mark, query = url.partition("?")
    scheme, _, rest = base.partition("://")
    host, slash, path = rest.partition("/")
    if scheme in _OF_HADOOP:
        return _hadoop(f"{scheme}://{host}/{mark}{query}"), f"/{path}"
    url = f"{scheme}://{host}{slash}{path.replace('%', '%25')}{mark}{query}"
    system, path = _parsed(url)
    if scheme == "s3":
        # What Arrow makes of a URL tries 31 times, each until its timeout of 3 s where a server does not answer.
        _, (options,) = system.__reduce__()
        system = fs.S3FileSystem(**options, retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_TRIES))
    return system, path


def _parsed(url: str) -> tuple[Any, str]:  # Any: pyarrow's FileSystem
    """Return the file system and the path that Arrow derives from ``url``; raises InvalidValue for one that Arrow
    refuses."""
    from pyarrow import ArrowInvalid, fs

    complete = url
    if _family(url.partition("://")[0]) == "gs" and "retry_limit_seconds=" not in url:
        complete += ("&" if "?" in url else "?") + f"retry_limit_seconds={_RETRY_S}"  # else it tries for 15 minutes
    try:
        return fs.FileSystem.from_uri(quote(complete, safe=_URL_SIGNS))  # type: ignore[no-any-return]
    except ArrowInvalid as error:
        said = hide_secrets(str(error))
        if "Unrecognized filesystem type" in said:
            raise
        known = _PARAMETERS.get(_family(url.partition("://")[0]))
        hint = f"after its ? may be {known}" if known else "check how the URL is written"
        # Not with its cause, which has the URL in its text, with key and secret.
        raise errors.InvalidValue(f"{hide_secrets(url)} cannot be read: {said}", hint=hint) from None


def _family(scheme: str) -> str:
    return {"abfss": "abfs", "gcs": "gs"}.get(scheme, scheme)


@lru_cache
def _hadoop(url: str) -> Any:  # Any: pyarrow's FileSystem
    """Return a Hadoop file system, kept for this process: when one is collected, the files that it opened are
    closed."""
    return _parsed(url)[0]


def info_of(system: Any, path: str) -> Any:  # Any: pyarrow's FileSystem and FileInfo
    """Return a file system's information on a path; raises OSError if it cannot be determined.

    If an HDFS name node does not answer, Arrow reports the path as not found; only a listing fails.
    """
    from pyarrow import fs

    info = system.get_file_info(path)
    if info.type == fs.FileType.NotFound:
        with suppress(FileNotFoundError):
            system.get_file_info(fs.FileSelector(path))
    return info


def read_bytes(path: str, start: int, count: int) -> bytes:
    """Return up to ``count`` bytes of a file or object from ``start`` on; raises StoreErrors for a URL, OSError for a file."""
    if not is_url(path):
        with open_file(path) as file:
            return os.pread(file.fileno(), count, start)
    with translated(path):
        system, inner = file_system_of(path)
        with system.open_input_file(inner) as stream:
            return bytes(stream.read_at(count, start))


def check_length(path: str, expected: int, found: int, hint: str) -> None:
    """Raise SourceChanged if fewer bytes were found than expected."""
    if found < expected:
        said = f"{path} became shorter: expected {expected} bytes or more, found {found}"
        raise errors.SourceChanged(said, hint=hint, path=path)


def file_info(path: str) -> tuple[int, float]:
    """Return the size in bytes and the modification time in seconds of a file or object; raises as ``read_bytes``."""
    if not is_url(path):
        info = os.stat(path)
        return info.st_size, info.st_mtime
    with translated(path):
        system, inner = file_system_of(path)
        attributes = info_of(system, inner)
        if attributes.type.name == "NotFound":
            raise FileNotFoundError(inner)
        return attributes.size or 0, (attributes.mtime_ns or 0) / 1e9


# -- bytes here and there ----------------------------------------------------------------------------------------------

_BLOCK_BYTES = 1 << 20
_BLOCKS = 32  # kept of all objects together

Opened = int | str
"""A file that is open for ``read_at``: the descriptor of a local one, or the URL of another."""


def place_of(path: Path | str) -> str:
    """Return where the bytes of a file are: its path, or its URL if only the beginning is on this machine."""
    return url_of(path) or str(path)


LISTED = ".url"
"""The file beside fetched directories of a bookie with the URL or archive they came from, without secrets."""


def fetched_from(directory: Path) -> str:
    """Return the URL or archive from which a directory was fetched (never its databases); "" if it was not fetched."""
    try:
        return read_file(directory.parent / LISTED).decode("utf-8", "replace")
    except OSError:
        return ""


def open_bytes(path: Path | str) -> Opened:
    """Open a file on this machine or at a URL for ``read_at``; raises OSError for a file on this machine."""
    place = place_of(path)
    return place if is_url(place) else open_regular(place)


def close_bytes(opened: Opened) -> None:
    """Close a file that ``open_bytes`` opened."""
    if isinstance(opened, int):
        os.close(opened)


def read_at(opened: Opened, length: int, offset: int) -> bytes:
    """Return up to ``length`` bytes at ``offset``; from a URL, whole blocks are read, and some of them are cached.

    Raises SourceChanged for an object that no longer exists, and as ``translated``; OSError for a file on this machine.
    """
    if isinstance(opened, int):
        return os.pread(opened, length, offset)
    try:
        raw = _read_range(opened, length, offset)
        if len(raw) < length:  # it may be longer now than when it was opened
            _read_block.cache_clear()
            _open.cache_clear()
            raw = _read_range(opened, length, offset)
    except errors.SourceNotFound as error:
        raise errors.SourceChanged(f"{shown_path(opened)} is gone", hint="restore the object") from error
    return raw


def read_into(opened: Opened, data: memoryview, offset: int) -> int:
    """Fill ``data`` from ``offset`` on, as ``read_at`` reads; return the number of bytes."""
    if isinstance(opened, int):
        return os.preadv(opened, [data], offset)
    raw = read_at(opened, len(data), offset)
    data[: len(raw)] = raw
    return len(raw)


def _read_range(url: str, length: int, offset: int) -> bytes:
    if length >= _BLOCK_BYTES:
        return _read(url, offset, length)
    first, last = offset // _BLOCK_BYTES, (offset + length - 1) // _BLOCK_BYTES
    raw = b"".join(_read_block(url, number) for number in range(first, last + 1))
    return raw[offset - first * _BLOCK_BYTES :][:length]


@lru_cache(_BLOCKS)
def _read_block(url: str, number: int) -> bytes:
    return _read(url, number * _BLOCK_BYTES, _BLOCK_BYTES)


def _read(url: str, start: int, count: int) -> bytes:
    with translated(url):
        raw = bytes(_open(url).read_at(count, start))
    PACE.take(len(raw))
    return raw


@lru_cache(_BLOCKS)
def _open(url: str) -> Any:  # Any: pyarrow's NativeFile
    system, path = file_system_of(url)
    return system.open_input_file(path)
