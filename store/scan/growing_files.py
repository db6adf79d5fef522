"""Files that grow, as they are found: which there are, whose they are, what they begin with, whether anything is appended to them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from glob import glob
from hashlib import sha256

from store.codec.bookie import COOKIE_FILE, decode_cookie
from store.codec.entrylog import HEADER_BYTES, decode_header, decode_ledgers_map
from store.errors import EntryLogCorrupt, InvalidValue, SourceNotFound, Unsupported
from store.scan.offsets import Listed, id_of
from store.scan.sources import alternatives, file_info, is_url, read_bytes, shown_path, source_files

STALE_S = 3600
_FIRST_BYTES = 2048
_MAP_ROW_BYTES, _MAP_HEAD_BYTES, _MAP_LEDGERS = 16, 24, 10_000
_MAP_MAX_LEDGERS = 1 << 24


def list_files(paths: Sequence[str], *, recursive: bool = False) -> list[Listed]:
    """Return the logs and journals at PATHS that are not empty; raises SourceNotFound where there is not even a folder."""
    found: dict[str, int] = {}
    for one in paths:
        try:
            found.update({path: size for path, _, size in source_files([one], recursive=recursive)})
        except SourceNotFound:
            if not (is_url(one) or any(glob(part) or glob(os.path.dirname(part)) for part in alternatives(one))):
                raise
            # Nothing yet.
    return [listed_at(path, size) for path, size in found.items()]


def listed_at(path: str, size_bytes: int) -> Listed:
    """Return the file at PATH; raises InvalidValue for one that is no log by its name."""
    folder, _, name = shown_path(path).partition("?")[0].rpartition("/")
    try:
        return Listed(path, folder, name, id_of(name), size_bytes)
    except ValueError:
        raise InvalidValue(
            f"{path} is called neither as an entry log nor as a journal",
            hint="a stream follows files N.log and N.txn, N a hexadecimal number: name .../current/*.log",
            path=path,
        ) from None


def first_digest(path: str, end: int) -> str:
    """Return a digest of up to 2 KiB behind the header of a file that was read up to END: what follows may grow."""
    count = max(min(end, HEADER_BYTES + _FIRST_BYTES) - HEADER_BYTES, 0)
    return sha256(read_bytes(path, HEADER_BYTES, count)).hexdigest()[:16]


def read_beside(file: Listed, name: str) -> bytes | None:
    """Return a small file in the folder of FILE, None where there is none."""
    base, mark, query = file.path.partition("?")
    try:
        return read_bytes(f"{base.rpartition('/')[0]}/{name}{mark}{query}", 0, 1 << 16)
    except (FileNotFoundError, SourceNotFound):
        return None


def bookie_of(file: Listed) -> str | None:
    """Return the id of the bookie whose disk FILE is on, as the folder's cookie says it; raises MetadataCorrupt."""
    raw = read_beside(file, COOKIE_FILE)
    return None if raw is None else decode_cookie(raw, f"{file.folder}/{COOKIE_FILE}").bookie_id


def has_map(file: Listed) -> bool:
    """Whether the log FILE was sealed: its header names a ledgers map, and that is one."""
    try:
        header = decode_header(read_bytes(file.path, 0, HEADER_BYTES), file.path)
        offset, count = header.ledgers_map_offset, header.ledgers_count
        if not (header.has_map and HEADER_BYTES <= offset < file.size_bytes and 0 < count <= _MAP_MAX_LEDGERS):
            return False
        size_bytes = _MAP_ROW_BYTES * count + _MAP_HEAD_BYTES * (count // _MAP_LEDGERS + 1)
        # Of a log only the header and the map matter; the map is put right behind the header.
        view = bytes(HEADER_BYTES) + read_bytes(file.path, offset, size_bytes)
        decode_ledgers_map(view, replace(header, ledgers_map_offset=HEADER_BYTES), file.path)
    except (EntryLogCorrupt, Unsupported):
        return False
    return True


def is_stale(file: Listed, newest: Listed) -> bool:
    """Whether FILE was last written an hour before the NEWEST log of its folder."""
    return file_info(newest.path)[1] - file_info(file.path)[1] >= STALE_S
