"""The catalogue of a store's files: rows of new ones, copied or linked into the store where that is asked for; rows that go."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, assert_never

from pulsar_admin.store.codec.entrylog import HEADER_BYTES, decode_header
from pulsar_admin.store.db.bookies import decode_bookie
from pulsar_admin.store.db.copies import delete_copies
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.files import NOTHING_READ, FileMode, LogFile, delete_log, next_file_id, put_log
from pulsar_admin.store.db.storeinfo import StoreInfo
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.files import copy_file, link_file, open_file, remove_file, rename
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.sources.bookies import BookieFile, Stranger


def delete_logs(txn: Txn, logs: list[LogFile]) -> None:
    """Forget LOGS, their damage and what is known of their entries."""
    for log in logs:
        delete_log(txn, log.file_id)
    delete_copies(txn, {log.file_id for log in logs})


def file_modes(info: StoreInfo, files: Iterable[BookieFile]) -> dict[str, FileMode]:
    """Return bookie id → how its FILES come into the store; of an id that no source has, as those of the first source."""
    modes = {
        decode_bookie(row).bookie_id: _mode_of(source) for source in info.sources for row in source.get("bookies", ())
    }
    return {file.bookie_id: modes.get(file.bookie_id, _mode_of(info.sources[0])) for file in files}


def _mode_of(source: Mapping[str, Any]) -> FileMode:  # Any: JSON
    return FileMode(source.get("mode", FileMode.REFERENCED))


def catalogue_new(
    store: Store,
    files: Sequence[BookieFile],
    modes: Mapping[str, FileMode],
    strangers: Sequence[Stranger],
    vanished: Callable[[BookieFile], None],
) -> Iterator[LogFile]:
    """Yield the row of each of FILES, which the store does not know, copied or linked into it where MODES (by bookie) ask.

    They are catalogued in their order before any of their entries is indexed, as ids say which of two files is newer: those that
    stay where they are at once, a copy when it is made. VANISHED is told of each that is gone by then.
    """
    with store.read() as txn:
        first_id = next_file_id(txn)
    numbered = list(enumerate(files, first_id))
    reasons = {path: stranger.reason for stranger in strangers for path in stranger.bookie.directories}
    rows = (_find_row(store, file_id, file, modes[file.bookie_id], reasons, vanished) for file_id, file in numbered)
    found = (row for row in rows if row is not None)
    if all(modes[file.bookie_id] is FileMode.REFERENCED for file in files):
        logs = list(found)
        store.write(lambda txn: put_logs(txn, logs))
        yield from logs
        return
    placed = (_put(store, log) for log in found)
    # Links are made before the first file is read: what a running bookie deletes after that is still here.
    yield from placed if FileMode.COPIED in modes.values() else list(placed)


def _put(store: Store, log: LogFile) -> LogFile:
    store.write(partial(put_logs, logs=[log]))
    return log


def put_logs(txn: Txn, logs: Iterable[LogFile]) -> None:
    """Write the rows of LOGS."""
    for log in logs:
        put_log(txn, log)


def _find_row(
    store: Store,
    file_id: int,
    file: BookieFile,
    mode: FileMode,
    strangers: Mapping[Path, str],
    vanished: Callable[[BookieFile], None],
) -> LogFile | None:
    """Return the row of FILE, None where it is gone, or goes while it is looked at or copied: VANISHED is told."""
    try:
        return _new_row(store, file_id, file, mode, strangers)
    except (OSError, StoreError):
        if os.path.lexists(file.path):
            raise
        vanished(file)
        return None


def _new_row(store: Store, file_id: int, file: BookieFile, mode: FileMode, strangers: Mapping[Path, str]) -> LogFile:
    kind, number, path, bookie_id = file
    origin = path.resolve()
    placed = place(store, path, file_id, mode)
    here = store.path / placed
    # Of a copy: what was written to its origin meanwhile is in it or not.
    status = here.stat()
    return LogFile(
        file_id=file_id,
        path=str(placed),
        kind=kind,
        log_id=number,
        origin=str(origin),
        mode=mode,
        size_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        fingerprint=NOTHING_READ,
        next_offset=0,
        records=0,
        problems=0,
        torn=False,
        sealed=kind == FileKind.ENTRY_LOG and is_sealed(here),
        unfinished=True,
        stranger=strangers.get(path.parent, ""),
        bookie=bookie_id,
    )


def place(store: Store, path: Path, file_id: int, mode: FileMode) -> Path:
    """Copy or link the file into the store when MODE asks, in place of what is there; return the path for the catalogue."""
    if mode is FileMode.REFERENCED:
        return path.resolve()
    inside = Path("entries", f"{file_id}-{path.name}")
    unfinished = store.path / f"{inside}.unfinished"
    remove_file(unfinished)
    if mode is FileMode.LINKED:
        link_file(path.resolve(), unfinished)
    elif mode is FileMode.COPIED or mode is FileMode.OWN:
        status = path.stat()  # before it is copied: what is written meanwhile makes its time another than the copy's
        copy_file(path.resolve(), unfinished, leaves_cache=True)
        os.utime(unfinished, ns=(status.st_atime_ns, status.st_mtime_ns))
    else:
        assert_never(mode)
    rename(unfinished, store.path / inside)
    remove_file(unfinished)  # renaming onto another name of the same file leaves both
    return inside


def is_sealed(path: Path) -> bool:
    """Whether the entry log's header names a ledgers map."""
    with open_file(path) as file:
        head = os.pread(file.fileno(), HEADER_BYTES, 0)
    try:
        return 0 < decode_header(head, str(path)).ledgers_map_offset < path.stat().st_size
    except StoreError:
        return False
