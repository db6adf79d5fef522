"""The catalogue of a store's files: compared with the source's present files, extended by new ones (copied or linked
into the store if asked for), rid of missing ones."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, assert_never

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.entrylog import HEADER_BYTES, decode_header
from pulsar_admin.store.db.blocks import Block, ledger_key
from pulsar_admin.store.db.bookies import decode_bookie, read_renamed
from pulsar_admin.store.db.copies import delete_copies
from pulsar_admin.store.db.entry_files import FileState, path_state
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.files import NOTHING_READ, FileMode, LogFile, delete_log, iter_logs, next_file_id, put_log
from pulsar_admin.store.db.storeinfo import StoreInfo
from pulsar_admin.store.errors import InvalidValue, StoreError
from pulsar_admin.store.files import copy_file, link_file, open_file, remove_file, rename, url_of
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.sources.bookies import BookieFile, Stranger, files_of, find_strangers, size_of
from pulsar_admin.store.sources.layout import Layout
from pulsar_admin.store.urls import shown_path
from pulsar_admin.store.wording import counted, plural


class Survey(Struct, frozen=True):
    """The present files of a source, compared with the catalogue.

    ``grown``: including files whose scan was stopped; ``gone``: missing files, with the number of entries that the
    index has in each; ``named``: rows without a bookie id, from an older version, with that id added; ``unreadable``:
    files that exist and cannot be opened or read, such as without permission: nobody knows that their entries are lost.
    """

    new: tuple[BookieFile, ...]
    grown: tuple[LogFile, ...]
    changed: tuple[LogFile, ...]
    gone: tuple[tuple[LogFile, int], ...]
    strangers: tuple[Stranger, ...]
    named: tuple[LogFile, ...] = ()
    unreadable: tuple[LogFile, ...] = ()

    def unreadable_texts(self) -> Iterator[str]:
        """Yield a sentence on each unreadable file."""
        return (f"{log.origin} exists but cannot be read: the store keeps what it has of it" for log in self.unreadable)

    def bytes(self) -> int:
        """Return how many bytes there are to read, for a progress display."""
        return sum(size_of(file.path) for file in self.new) + sum(
            max((size_of(Path(log.origin)) or log.size_bytes) - log.next_offset, 0) for log in self.grown
        )


def survey_files(store: Store, layout: Layout, nodes: Mapping[bytes, bytes | None] = MappingProxyType({})) -> Survey:
    """Compare the files of a layout with the store's catalogue; reads no entries.

    ``nodes``: rows of the metadata to use instead of the store's.
    """
    with store.read() as txn:
        known = {log.origin: log for log in iter_logs(txn) if log.origin}
        strangers = find_strangers(txn.with_rows("tree", nodes) if nodes else txn, layout.bookies)
        files = {str(file.path.resolve()): file for file in files_of(layout.bookies, strangers)}
        named = {
            origin: replace(log, bookie=files[origin].bookie_id)
            for origin, log in known.items()
            if origin in files and not log.bookie and files[origin].bookie_id
        }
        known |= named
        states = {origin: path_state(log, Path(origin)) for origin, log in known.items()}
        for origin, log in known.items():
            if states[origin] is FileState.MISSING:  # a copy inside the store outlives its origin
                here = path_state(log, log.locate(store.path))
                states[origin] = here if here.is_lost else FileState.SAME
        lost = [log for origin, log in known.items() if states[origin] is FileState.MISSING]
        held = _held_entries(txn, {log.file_id for log in lost})
    return Survey(
        tuple(file for origin, file in files.items() if origin not in known),
        tuple(
            log
            for origin, log in known.items()
            if states[origin] is FileState.GROWN or (log.unfinished and states[origin] is FileState.SAME)
        ),
        tuple(log for origin, log in known.items() if states[origin] is FileState.CHANGED),
        tuple((log, held[log.file_id]) for log in lost),
        tuple(strangers),
        tuple(named.values()),
        tuple(log for origin, log in known.items() if states[origin] is FileState.UNREADABLE),
    )


def iter_gone_texts(txn: Txn, ledgers: Collection[int]) -> Iterator[str]:
    """Yield a sentence on each missing file, with the number of its indexed entries, of these ledgers or of all."""
    store = txn.store.path
    paths = {
        log.file_id: log.locate(store)
        for log in iter_logs(txn)
        if path_state(log, log.locate(store)) is FileState.MISSING
    }
    held = _held_entries(txn, set(paths), ledgers)
    for file_id, count in held.items():
        if count:
            entries = f"its {counted(count, 'entry')} {plural(count, 'is', 'are')} not counted as missing"
            again = "to look for copies in other files: pulsar-admin store refresh"
            yield f"{paths[file_id]} is gone: {entries}; {again}"


def _held_entries(txn: Txn, file_ids: set[int], ledgers: Collection[int] = ()) -> dict[int, int]:
    """Return how many entries of the index, of these ledgers or of all, are in each of the files."""
    held = dict.fromkeys(file_ids, 0)
    if not held:
        return held
    parts = [txn.items("entries", ledger_key(ledger_id)) for ledger_id in ledgers] or [txn.items("entries")]
    for key, value in chain.from_iterable(parts):
        block = Block(key, value)
        files = block.files()
        if isinstance(files, int):
            if files in held:
                held[files] += len(block)
        else:
            for file_id in file_ids.intersection(files):
                held[file_id] += files.tolist().count(file_id)
    return held


def delete_logs(txn: Txn, logs: list[LogFile]) -> None:
    """Delete files from the catalogue, with their damage and the facts about their entries."""
    for log in logs:
        delete_log(txn, log.file_id)
    delete_copies(txn, {log.file_id for log in logs})


def file_modes(info: StoreInfo, files: Iterable[BookieFile]) -> dict[str, FileMode]:
    """Return, by bookie id, whether its files are referenced, copied or linked; a new id as those of the first
    source."""
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
    """Yield the row of each new file, after copying or linking it into the store if its bookie's mode asks for that.

    Files are catalogued in order before any entry is indexed, because their ids say which of two files is newer: files
    that stay in place all at once, a copied file when it is complete. ``vanished`` is called for each missing file.
    """
    with store.read() as txn:
        first_id, renamed = next_file_id(txn), read_renamed(txn)
    numbered = list(enumerate(files, first_id))
    reasons = {path: stranger.reason for stranger in strangers for path in stranger.bookie.directories}
    rows = (_find_row(store, file_id, file, modes[file.bookie_id], reasons, vanished) for file_id, file in numbered)
    new_logs = (replace(row, bookie=renamed.get(row.bookie, row.bookie)) for row in rows if row is not None)
    if all(modes[file.bookie_id] is FileMode.REFERENCED for file in files):
        logs = list(new_logs)
        store.write(lambda txn: put_logs(txn, logs))
        yield from logs
        return
    placed = (_put(store, log) for log in new_logs)
    # Links are made before the first file is read: what a running bookie deletes after that is still here.
    yield from placed if FileMode.COPIED in modes.values() else list(placed)


def _put(store: Store, log: LogFile) -> LogFile:
    store.write(partial(put_logs, logs=[log]))
    return log


def put_logs(txn: Txn, logs: Iterable[LogFile]) -> None:
    """Write the rows of files."""
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
    """Return the row of a file; if it was deleted before it was read or copied, call ``vanished`` and return None."""
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
    """Copy or link a file into the store if the mode asks, replacing an older copy; return the path for the catalogue."""
    if mode is FileMode.REFERENCED:
        whole, root = path.resolve(), store.path.resolve()
        return whole.relative_to(root) if whole.is_relative_to(root) else whole
    if url := url_of(path):
        raise InvalidValue(
            f"{shown_path(url)} stays where it is: only files of this machine are linked or copied into a store",
            hint="import it with --fetch-to DIR, or without --copy and --link",
        )
    inside = Path("entries", f"{file_id}-{path.name}")
    unfinished = store.path / f"{inside}.unfinished"
    remove_file(unfinished)
    if mode is FileMode.LINKED:
        link_file(path.resolve(), unfinished)
    elif mode is FileMode.COPIED or mode is FileMode.OWN:
        status = path.stat()  # before it is copied: a file that is written meanwhile gets another time than the copy
        copy_file(path.resolve(), unfinished, leaves_cache=True)
        os.utime(unfinished, ns=(status.st_atime_ns, status.st_mtime_ns))
    else:
        assert_never(mode)
    rename(unfinished, store.path / inside)
    remove_file(unfinished)  # renaming onto another name of the same file leaves both
    return inside


def is_sealed(path: Path) -> bool:
    """Whether the entry log's header names a ledgers map."""
    with open_file(path, head_only=True) as file:
        head = os.pread(file.fileno(), HEADER_BYTES, 0)
    try:
        return 0 < decode_header(head, str(path)).ledgers_map_offset < path.stat().st_size
    except StoreError:
        return False
