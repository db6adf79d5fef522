"""``store.json``: a store's format, state and sources; checks of new stores' paths, and of a store's pages."""

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import Any, assert_never

from msgspec import Struct

from pulsar_admin.store import errors
from pulsar_admin.store.db.backups import keep_hint
from pulsar_admin.store.db.file import DATA_FILE, RECORD_FILE, check_file
from pulsar_admin.store.db.locks import try_reader_lock
from pulsar_admin.store.db.rows import DERIVED, NAME_ENDING, cure_of
from pulsar_admin.store.files import read_file, replace_file

FORMAT_VERSION = 2
"""2: rows have digests. 1: a store of before; its rows get theirs, and it this number, with the next change."""
REMOTE = "remote"
"""The directory in a store for small files of bookies' disks at URLs, and for the first bytes of their logs."""


_SHOWN = 40


class StoreState(StrEnum):
    """How complete a store is. UNINDEXED: metadata and catalogue but no index; tables can be exported."""

    READY = "ready"
    IMPORTING = "importing"  # until an import has run to its end
    UNINDEXED = "unindexed"


class StoreInfo(Struct, frozen=True):
    """``store.json``: format version, creation time, and the imported sources."""

    format_version: int
    created_ms: int
    state: StoreState
    sources: tuple[dict[str, Any], ...]  # Any: JSON objects, one a source; shape in store/transfer/imports.py

    @property
    def is_bundled(self) -> bool:
        """Whether the store comes from an incident bundle, which contains no entries."""
        return any(source.get("bundle") for source in self.sources)


def read_store_info(path: Path) -> StoreInfo:
    """Read ``store.json``; raises StoreNotFound, Unsupported or IndexCorrupt."""
    file = path / "store.json"
    try:
        fields = json.loads(read_file(file))
        sources = tuple({**source} for source in fields["sources"])
        info = StoreInfo(fields["formatVersion"], int(fields["created"]), StoreState(fields["state"]), sources)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise errors.StoreNotFound(
            f"{path} is not a store (no store.json there)",
            hint="create one with: pulsar-admin store import standalone DIR; or name another with --store",
            path=str(path),
        ) from error
    except OSError as error:
        raise errors.NotWritable(f"{file} cannot be read: {error.strerror}", path=str(file)) from error
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise errors.IndexCorrupt(
            f"{file} is damaged: {errors.reason_of(error)}",
            hint=f"keep {path}, its changes are in meta: put a copy of store.json in place,"
            " or the one of a store imported from the same directory",
            path=str(path),
        ) from error
    if type(info.format_version) is not int or info.format_version < 1:
        raise errors.IndexCorrupt(
            f"{file} is damaged: formatVersion is {json.dumps(info.format_version)[:_SHOWN]}, expected a whole number from 1 to"
            f" {FORMAT_VERSION}",
            hint=f"put a copy of store.json in place, or look in {path}/meta: with databases named NAME{NAME_ENDING} it is 2, else 1",
            path=str(path),
        )
    if info.format_version > FORMAT_VERSION:
        raise errors.Unsupported(
            f"{path} has store format {info.format_version}, this toolkit knows up to {FORMAT_VERSION}",
            hint="use the toolkit that wrote it",
        )
    return info


def check_state(path: Path, info: StoreInfo, *, unindexed: bool) -> None:
    """Raise Refused for a store whose import was interrupted, or, unless ``unindexed``, made no index."""
    if info.state is StoreState.UNINDEXED and not unindexed:
        raise errors.Refused(
            f"{path} was imported without an index: it knows its files and none of their entries",
            hint="export tables: pulsar-admin store export tables DIR; or run the same `store import` without --no-index",
            path=str(path),
        )
    if info.state is StoreState.IMPORTING:
        raise errors.Refused(
            f"the import into {path} did not run to its end",
            hint="run the same `store import` command again: it continues where it stopped",
            path=str(path),
        )
    if info.state is not StoreState.READY and info.state is not StoreState.UNINDEXED:
        assert_never(info.state)


def write_store_info(path: Path, info: StoreInfo) -> None:
    """Write ``store.json`` of a store, durably."""
    document = {
        "formatVersion": info.format_version,
        "created": info.created_ms,
        "state": info.state,
        "sources": list(info.sources),
    }
    replace_file(path / "store.json", json.dumps(document, indent=2).encode() + b"\n")


def check_new_store(path: Path) -> None:
    """Raise AlreadyExists unless a store can be created at a path: nothing, an empty directory, or a store whose
    creation was interrupted before it had a ``store.json``."""
    if (path.exists() or path.is_symlink()) and (
        not path.is_dir() or any(not is_leftover(entry) for entry in path.iterdir())
    ):
        raise errors.AlreadyExists(f"{path} exists", hint="name a new directory with --store", path=str(path))


def is_leftover(entry: Path) -> bool:
    """Return whether a stopped creation of a store may have left this file or directory, and it contains nothing."""
    if entry.name == "entries":
        return entry.is_dir() and not any(entry.iterdir())
    if entry.name == "meta":
        return entry.is_dir() and {file.name for file in entry.iterdir()} <= {DATA_FILE, "lock.mdb", RECORD_FILE}
    if entry.name in ("lock", REMOTE):
        return True
    return entry.name.startswith(".store.json.") and entry.name.endswith(".tmp")


def walk_pages(path: Path) -> int | None:
    """Walk a store's pages while no process writes; return their transaction; raises IndexCorrupt, with a hint."""
    try:
        return check_file(path / "meta")
    except errors.IndexCorrupt as error:
        raise damaged_pages(path, error) from error


def damaged_pages(path: Path, error: errors.IndexCorrupt) -> errors.IndexCorrupt:
    """Return an error about a store's pages with a hint: to rebuild, if only derived databases are damaged."""
    message = f"{path / 'meta' / DATA_FILE} is damaged: {error.message}"
    database = str(error.context.get("database", "")).removesuffix(NAME_ENDING)
    return errors.IndexCorrupt(
        message, hint=cure_of(path, database) if database in DERIVED else keep_hint(path), path=str(path)
    )


def check_pages(path: Path) -> int | None:
    """Walk the pages of a store before LMDB opens it, whatever its last commit says; raises IndexCorrupt.

    Returns their transaction, None if the walk is skipped because a writer is active: for ``Store.walked``.
    """
    read_store_info(path)
    descriptor = try_reader_lock(path)
    if descriptor is None or not (path / "meta" / DATA_FILE).is_file():
        return None  # opening the store tells which file is missing
    try:
        return walk_pages(path)
    finally:
        os.close(descriptor)
