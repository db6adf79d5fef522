"""The records of an entry log that must stay: those of live ledgers that the index points to, or that nothing points to.

BookKeeper's compaction takes every record of a live ledger (``EntryLogCompactor``, 4.17) and lets the index name the copy. Here a record
is left behind if the index leads to a good one of the same entry in another log: it is a second copy, from a journal replay or an
interrupted compaction. A damaged log is left as it is.

They are put together in new entry logs, byte for byte, in BookKeeper's format: header, records, ledgers map (``DefaultEntryLogger``,
``TransactionalEntryLogCompactor``, 4.17). Until a log is complete and was read back, it has the name that upstream's compaction gives it,
``<id>.log.compacting``, which bookies ignore.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from msgspec import Struct

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec import entrylog
from pulsar_admin.store.codec.entry import RECORD_MAX_BYTES, find_digest_type
from pulsar_admin.store.codec.entrylog import SIZE_BYTES, log_file_name
from pulsar_admin.store.errors import EntryLogCorrupt, MetadataCorrupt, Refused, StoreError
from pulsar_admin.store.files import create_file, open_file, remove_file
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.recovery.metadata_index import is_among
from pulsar_admin.store.scan.files import FileScan, LedgerDigests, Slice
from pulsar_admin.store.sources.rocksdb import Changes, apply_changes, new_files_bytes
from pulsar_admin.store.sources.rocksopen import iter_pairs, open_links
from pulsar_admin.store.sources.storage import Storage

# -- the index: ``locations`` of a ledger directory as columns --------------------------------------------------------


_PART_ROWS = 1 << 16
_LOG_ID_SHIFT = 32
_POSITION = (1 << 32) - 1
_LENGTHS = {16, 8}  # of keys (ledger, entry) and of values (log, position in it): other rows would be misread


class IndexRows(NamedTuple):
    """Rows of the index: the entry, its log, and the offset there of the record's size field. Arrays of i64."""

    ledger_ids: Array
    entry_ids: Array
    log_ids: Array
    offsets: Array

    def where(self, mask: Array) -> IndexRows:
        """Return the rows that a mask selects."""
        return IndexRows(*(column[mask] for column in self))


NOWHERE = IndexRows(*(np.zeros(0, np.int64) for _ in IndexRows._fields))
Find = Callable[[int, int], "tuple[int, int] | None"]
"""(ledger id, entry id) → (log id, offset of the record's size field), None if the index has no row."""


def join_places(parts: list[IndexRows]) -> IndexRows:
    """Return the rows of all parts as one."""
    return IndexRows(*(np.concatenate(columns) for columns in zip(*parts, strict=True))) if parts else NOWHERE


def same_places(one: IndexRows, other: IndexRows) -> bool:
    """Whether two sets of rows are equal, in any order; if ``other`` has an entry twice, its last row counts."""
    return bool(np.array_equal(_by_entry(one), _by_entry(other)))


def _by_entry(places: IndexRows) -> Array:
    ordered = places.where(np.lexsort((places.entry_ids, places.ledger_ids)))
    is_last = np.ones(len(ordered.ledger_ids), np.bool_)
    is_last[:-1] = (np.diff(ordered.ledger_ids) != 0) | (np.diff(ordered.entry_ids) != 0)
    last_rows: Array = np.column_stack(ordered.where(is_last))
    return last_rows


class LocationsIndex:
    """An open ``locations`` database."""

    def __init__(self, database: Any, where: str) -> None:  # Any: rocksdict has no stubs
        self._database = database
        self._where = where

    def iter_places(self) -> Iterator[IndexRows]:
        """Yield all rows in the order of ledgers and entries; raises MetadataCorrupt."""
        pairs = iter_pairs(self._database)
        while part := list(islice(pairs, _PART_ROWS)):
            raw = b"".join(chain.from_iterable(part))
            if len(raw) != 24 * len(part) or set(map(len, chain.from_iterable(part))) != _LENGTHS:
                raise MetadataCorrupt(
                    f"{self._where}: a row that is not a location: 16 and 8 bytes were expected", where=self._where
                )
            rows = np.frombuffer(raw, ">i8").reshape(-1, 3).astype(np.int64)
            yield IndexRows(rows[:, 0], rows[:, 1], rows[:, 2] >> _LOG_ID_SHIFT, (rows[:, 2] & _POSITION) - SIZE_BYTES)

    def find(self, ledger_id: int, entry_id: int) -> tuple[int, int] | None:
        """Return the log and offset of an entry, None if it has no row."""
        value = self._database.get(np.array([ledger_id, entry_id], ">i8").tobytes())
        if value is None:
            return None
        location = int.from_bytes(value, "big")
        return location >> _LOG_ID_SHIFT, (location & _POSITION) - SIZE_BYTES


@contextmanager
def open_index(storage: Storage) -> Iterator[LocationsIndex]:
    """Open the ``locations`` database of a storage for reading; raises Refused if it is damaged: its missing rows
    would look like garbage."""
    directory = storage.index / "locations"
    problems: list[str] = []
    with open_links(directory, problems) as database:
        if problems:
            raise Refused(
                f"the index of {storage.logs} is damaged: {problems[0]}",
                hint="rebuild it first: pulsar-admin store salvage ID=DIR,DIR",
                problems=problems,
            )
        yield LocationsIndex(database, str(directory))


def apply_places(storage: Storage, places: IndexRows) -> None:
    """Point ``locations`` to new places, all at once and durably, or not at all; raises MetadataCorrupt, DiskFull."""
    apply_changes(storage.index / "locations", _changes_of(places))


def measure_places(storage: Storage, places: IndexRows) -> list[int]:
    """Return the sizes of the files that ``apply_places`` would add to ``locations``; raises DiskFailed, DiskFull, NotWritable."""
    return new_files_bytes(storage.index / "locations", _changes_of(places))


def _changes_of(places: IndexRows) -> Changes:
    order = np.lexsort((places.entry_ids, places.ledger_ids))
    keys = np.column_stack([places.ledger_ids[order], places.entry_ids[order]]).astype(">i8").tobytes()
    locations = places.log_ids[order] << _LOG_ID_SHIFT | places.offsets[order] + SIZE_BYTES
    values = locations.astype(">i8").tobytes()

    def changes() -> Iterator[tuple[bytes, bytes | None]]:
        for row in range(len(order)):
            yield keys[16 * row : 16 * row + 16], values[8 * row : 8 * row + 8]

    return changes


# -- live records -----------------------------------------------------------------------------------------------------


_NAMES = ("ledger_id", "entry_id", "offset", "size")
_KEPT = np.dtype([(name, np.int64) for name in _NAMES])
_HEAD_BYTES = 32


class LiveRecords(Struct, frozen=True):
    """The records to keep of the log at ``path``, in its order; ``sizes`` count the size field.

    ``copies``: how many other records have their entry elsewhere; ``dead_ledgers``: those whose records may be deleted. ``damage``: why
    the log must be left as it is, "" if it is sound.
    """

    path: Path
    ledger_ids: Array
    entry_ids: Array
    offsets: Array
    sizes: Array
    copies: int = 0
    dead_ledgers: int = 0
    damage: str = ""

    @property
    def bytes(self) -> int:
        """Their bytes, size fields included."""
        return int(self.sizes.sum())


def read_live(path: Path, alive: Array, here: IndexRows, find: Find, advance: Callable[[int], None]) -> LiveRecords:
    """Return the records of a log that must stay, every digest verified; ``here``: rows of the index that point into this log.

    ``advance`` gets the bytes read.
    """
    try:
        records, dead, damage = _scan(path, alive, advance)
    except StoreError as error:
        return _damaged(path, error.message)
    if damage:
        return _damaged(path, damage)
    wanted = here.where(is_among(alive, here.ledger_ids))
    rows, missing = _rows_at(records, wanted)
    if missing.any():
        row = int(np.flatnonzero(missing)[0])
        entry = f"{wanted.ledger_ids[row]}:{wanted.entry_ids[row]}"
        return _damaged(path, f"the index names entry {entry} at {int(wanted.offsets[row]):#x}, which does not exist")
    keep = np.zeros(len(records), np.bool_)
    keep[rows] = True
    others = np.flatnonzero(~keep).tolist()
    unnamed: dict[tuple[int, int], int] = {}
    for row in others:
        ids = int(records["ledger_id"][row]), int(records["entry_id"][row])
        place = find(*ids)
        if place is None:
            unnamed[ids] = row  # the last one counts
        elif not _is_good(path, place, ids):
            entry = f"{ids[0]}:{ids[1]}"
            return _damaged(path, f"this log also has entry {entry}, which cannot be read where the index points")
    # A record without a row in the index may not have been flushed to it yet; BookKeeper's compaction keeps those too.
    keep[list(unnamed.values())] = True
    ledger_ids, entry_ids, offsets, sizes = (records[name][keep] for name in _NAMES)
    return LiveRecords(path, ledger_ids, entry_ids, offsets, sizes + SIZE_BYTES, len(others) - len(unnamed), dead)


def _rows_at(records: Any, wanted: IndexRows) -> tuple[Array, Array]:  # Any: structured arrays
    """Return the records at the wanted places, and the wanted places without a record."""
    if not len(records):
        return np.zeros(0, np.int64), np.ones(len(wanted.offsets), np.bool_)
    rows = np.minimum(np.searchsorted(records["offset"], wanted.offsets), len(records) - 1)
    placed = records[rows]
    is_there = (placed["offset"] == wanted.offsets) & (placed["ledger_id"] == wanted.ledger_ids)
    return rows, ~(is_there & (placed["entry_id"] == wanted.entry_ids))


def _scan(path: Path, alive: Array, advance: Callable[[int], None]) -> tuple[Any, int, str]:
    """Return (the records of live ledgers in a log, the number of its other ledgers, the damage)."""
    nothing_known = LedgerDigests.of({})
    size = path.stat().st_size
    scan = FileScan(Slice(str(path), FileKind.ENTRY_LOG, 0, size), nothing_known, verify=True)
    parts, dead, before = [], set[int](), 0
    for batch in scan.batches():
        is_alive = is_among(alive, batch["ledger_id"])
        live = batch[is_alive]
        dead.update(np.unique(batch["ledger_id"][~is_alive]).tolist())
        kept = np.empty(len(live), _KEPT)
        for name in _NAMES:
            kept[name] = live[name]
        parts.append(kept)
        advance(scan.next_offset - before)
        before = scan.next_offset
    advance(max(size - before, 0))
    # The end of a log that a crash cut is in the journal, which is replayed.
    wrong = next((one for one in scan.problems if not (scan.torn and one.offset + one.length_bytes >= size)), None)
    records = np.concatenate(parts) if parts else np.zeros(0, _KEPT)
    return records, len(dead), "" if wrong is None else f"{wrong.reason} @ {wrong.offset:#x}"


def _is_good(path: Path, place: tuple[int, int], entry: tuple[int, int]) -> bool:
    """Whether the log that a place names, in the same directory, has the entry there with a good digest."""
    log_id, offset = place
    try:
        with open_file(path.with_name(log_file_name(log_id))) as file:
            size = int.from_bytes(os.pread(file.fileno(), SIZE_BYTES, offset), "big")
            if not _HEAD_BYTES <= size <= RECORD_MAX_BYTES:
                return False
            body = os.pread(file.fileno(), size, offset + SIZE_BYTES)
    except OSError:
        return False
    ids = (int.from_bytes(body[:8], "big"), int.from_bytes(body[8:16], "big"))
    return len(body) == size and ids == entry and find_digest_type(body) is not None


def _damaged(path: Path, reason: str) -> LiveRecords:
    nothing = np.zeros(0, np.int64)
    return LiveRecords(path, nothing, nothing, nothing, nothing, damage=reason)


# -- new logs ----------------------------------------------------------------------------------------------------------


COMPACTING = ".compacting"
_WINDOW_BYTES = 4 << 20


class NewLog(Struct, frozen=True):
    """A log written under its unfinished name; ``places``: of its records, in order; ``digest``: of all their bytes."""

    log_id: int
    unfinished: Path
    places: IndexRows
    end: int
    digest: bytes

    @property
    def path(self) -> Path:
        """The name that the finished log gets."""
        return self.unfinished.with_name(entrylog.log_file_name(self.log_id))


class LogCompactor:
    """Appends records to new logs of a directory, numbered from ``first_id`` on, and reads each log back.

    Use in ``with``: the new logs are deleted if the block raises.
    """

    def __init__(self, directory: Path, first_id: int, like: os.stat_result) -> None:
        self._directory = directory
        self._next_id = first_id
        self._like = like
        self._stack: ExitStack | None = None
        self._file: BinaryIO
        self._position = 0
        self._digest = blake2b(digest_size=16)
        self._parts: list[IndexRows] = []
        self._sizes: dict[int, int] = {}
        self.logs: list[NewLog] = []

    def add(self, live: LiveRecords) -> None:
        """Append the live records of a log, with a new log when one is full."""
        ends = np.cumsum(live.sizes)
        done = 0
        with open_file(live.path) as source:
            while done < len(ends):
                if self._stack is None:
                    unfinished = self._directory / f"{entrylog.log_file_name(self._next_id)}{COMPACTING}"
                    self._stack = ExitStack()
                    self._file = self._stack.enter_context(create_file(unfinished, like=self._like))
                    self._file.write(entrylog.encode_header(entrylog.EntryLogHeader(entrylog.CURRENT_VERSION, 0, 0)))
                    self._position, self._sizes, self._parts = entrylog.HEADER_BYTES, {}, []
                    self._digest = blake2b(digest_size=16)
                    self._unfinished = unfinished
                written = int(ends[done - 1]) if done else 0
                fits = int(np.searchsorted(ends, written + entrylog.LOG_LIMIT_BYTES - self._position, "right"))
                if fits == done:  # an empty log holds every record
                    self._seal()
                    continue
                self._append(source, live, slice(done, fits))
                done = fits

    def _append(self, source: BinaryIO, live: LiveRecords, rows: slice) -> None:
        offsets, sizes, ledger_ids = live.offsets[rows], live.sizes[rows], live.ledger_ids[rows]
        new = self._position + np.cumsum(sizes) - sizes
        for chunk in _iter_chunks(source, offsets, sizes):
            self._file.write(chunk)
            self._digest.update(chunk)
        self._position += int(sizes.sum())
        self._parts.append(IndexRows(ledger_ids, live.entry_ids[rows], np.full(len(new), self._next_id, np.int64), new))
        distinct, inverse = np.unique(ledger_ids, return_inverse=True)
        sums = np.bincount(inverse, sizes).astype(np.int64)
        for ledger_id, size in zip(distinct.tolist(), sums.tolist(), strict=True):
            self._sizes[ledger_id] = self._sizes.get(ledger_id, 0) + size

    def _seal(self) -> None:
        """Write the ledgers map and the header that names it, make the log durable and read it back."""
        assert self._stack is not None
        end = self._position
        # The header names the map only now that it is written: without one, as after a kill, a log is scanned.
        self._file.write(entrylog.encode_ledgers_map(self._sizes))
        self._file.seek(0)
        self._file.write(
            entrylog.encode_header(entrylog.EntryLogHeader(entrylog.CURRENT_VERSION, end, len(self._sizes)))
        )
        self._stack.close()
        self._stack = None
        log = NewLog(self._next_id, self._unfinished, join_places(self._parts), end, self._digest.digest())
        self.logs.append(log)
        self._next_id += 1
        check_written(log)

    def finish(self) -> None:
        """Seal the last log."""
        if self._stack is not None:
            self._seal()

    def __enter__(self) -> LogCompactor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is None:
            return
        if self._stack is not None:
            self._stack.__exit__(kind, error, trace)  # create_file removes its file
        for log in self.logs:
            remove_file(log.unfinished)


def _iter_chunks(source: BinaryIO, offsets: Array, sizes: Array) -> Iterator[bytes]:
    """Yield the bytes of the records at these ascending offsets, with few reads; raises EntryLogCorrupt if the file ends before them."""
    breaks = np.flatnonzero(offsets[1:] != offsets[:-1] + sizes[:-1]) + 1
    starts = offsets[np.append(0, breaks)].tolist()
    lasts = np.append(breaks, len(offsets)) - 1
    ends = (offsets[lasts] + sizes[lasts]).tolist()
    run = 0
    while run < len(starts):
        last = run
        # Gaps between neighbouring runs are read along: one read of a window costs less than a read for each run.
        while last + 1 < len(starts) and ends[last + 1] - starts[run] <= _WINDOW_BYTES:
            last += 1
        if last > run:
            window = memoryview(_read(source, starts[run], ends[last]))
            base = starts[run]
            yield b"".join(
                window[start - base : end - base]
                for start, end in zip(starts[run : last + 1], ends[run : last + 1], strict=True)
            )
        else:
            for start in range(starts[run], ends[run], _WINDOW_BYTES):
                yield _read(source, start, min(start + _WINDOW_BYTES, ends[run]))
        run = last + 1


def _read(source: BinaryIO, start: int, end: int) -> bytes:
    data = os.pread(source.fileno(), end - start, start)
    if len(data) != end - start:
        raise EntryLogCorrupt(f"{source.name} @ {start:#x}: wanted {end - start} bytes, got {len(data)}")
    return data


def check_written(log: NewLog) -> None:
    """Read a new log back: it must have the same bytes, with the same entries in the same places, every digest right.

    Raises EntryLogCorrupt.
    """
    path = log.unfinished
    # Each digest type is found by trying, so the check needs no metadata, which may be wrong.
    nothing_known = LedgerDigests.of({})
    scan = FileScan(Slice(str(path), FileKind.ENTRY_LOG, 0, path.stat().st_size), nothing_known, verify=True)
    at = 0
    same = True
    for batch in scan.batches():
        end = at + len(batch)
        same &= end <= len(log.places.offsets) and all(
            bool((batch[name] == column[at:end]).all())
            for name, column in (
                ("ledger_id", log.places.ledger_ids),
                ("entry_id", log.places.entry_ids),
                ("offset", log.places.offsets),
            )
        )
        at = end
    if scan.problems or not same or at != len(log.places.offsets) or _digest_of(path, log.end) != log.digest:
        reason = scan.problems[0].reason if scan.problems else "other bytes than were written"
        raise EntryLogCorrupt(
            f"{path} does not read back: {reason}",
            hint="see the kernel's messages (dmesg); the old logs are as they were",
        )


def _digest_of(path: Path, end: int) -> bytes:
    digest = blake2b(digest_size=16)
    with open_file(path) as file:
        for start in range(entrylog.HEADER_BYTES, end, _WINDOW_BYTES):
            digest.update(_read(file, start, min(start + _WINDOW_BYTES, end)))
    return digest.digest()


def bytes_of_logs(records: Iterable[int], ledgers: int) -> int:
    """Return about how many bytes new logs with these records (bytes per part) and this number of ledgers take."""
    total = sum(records)
    logs = -(-total // (entrylog.LOG_LIMIT_BYTES - entrylog.HEADER_BYTES)) if total else 0
    return total + logs * entrylog.HEADER_BYTES + 16 * ledgers + 24 * logs
