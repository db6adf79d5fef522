"""Where the index of a stopped bookie leads: which entries it points to, and which rows lead to no record of their entry.

Upstream (BookKeeper 4.17): ``SingleDirectoryDbLedgerStorage.doGetEntry``, ``InterleavedLedgerStorage.getEntry``. The index alone says
where an entry is: one without a row is ``Bookie.NoEntryException``, whatever the logs hold. Rows are written before the mark from which a
start reads journals moves on, and garbage collection takes a ledger out of the index before it deletes a log: no row of a living ledger
leads to a log that does not exist. ``DefaultEntryLogger.readEntry`` compares the ids before what it reads, and throws where a row leads
to other bytes.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from hashlib import blake2b
from itertools import chain, islice, pairwise, repeat
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.dbledger import LocationRow, decode_location_row, ledger_key
from pulsar_admin.store.codec.entrylog import log_file_name
from pulsar_admin.store.codec.ledgerindex import (
    HEADER_BYTES,
    decode_ledger_index_header,
    iter_index_rows,
    ledger_id_of_index,
)
from pulsar_admin.store.db.bookies import Bookie, merge_bookies
from pulsar_admin.store.db.files import DIFFERS, Damage, LogFile
from pulsar_admin.store.errors import InvalidValue, MetadataCorrupt, StoreError
from pulsar_admin.store.files import open_regular, read_file
from pulsar_admin.store.names import LONG_MAX, FileKind
from pulsar_admin.store.sources.bookies import read_bookie_directory
from pulsar_admin.store.sources.rocksdb import is_rocksdb, open_for_reading, open_ranges
from pulsar_admin.store.sources.rocksopen import file_states, open_links
from pulsar_admin.store.sources.storage import DATABASES, LEDGERS, LOCATIONS, Storage, lost_locations, storages_of
from pulsar_admin.store.sources.storage import has_database as is_of_database

if TYPE_CHECKING:
    from pyroaring import BitMap64

_KEY_BYTES = 16
_LEDGER_BYTES = 8
_ROW_BYTES = 24
_SLOT_BYTES = 8
_SIZE_BYTES = 4
_HEAD_BYTES = _SIZE_BYTES + 16
_CHUNK_KEYS = 1 << 12  # rows at a time, which stay in the processor's cache
_CHUNKS = 32  # chunks whose rows are looked up in logs together
_RANGE_BYTES = 8 << 20  # of tables in one range: about a million rows
_MIXERS = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # those of SplitMix64
_WINDOW_BYTES = 4 << 20
_IN_MEMORY = ("active-mem-table", "imm-mem-tables")
Logs = Mapping[int, Path]


class ScannedLog(Struct, frozen=True):
    """The result of scanning an entry log of this size and time.

    There is no good record in the ``damaged`` stretches (first, end of offsets), nor from ``end`` on.
    """

    size_bytes: int
    mtime_ns: int
    end: int
    damaged: Sequence[tuple[int, int]]


Scanned = Mapping[Path, ScannedLog]
"""Resolved path of a log → the result of its scan."""


def scanned_logs(logs: Iterable[LogFile], damage: Iterable[Damage]) -> Scanned:
    """Return the scan results of those files that are entry logs, with their ``damage``; none of a scan that was
    stopped."""
    by_id = {log.file_id: log for log in logs if log.kind == FileKind.ENTRY_LOG and not log.unfinished}
    damaged: dict[int, list[tuple[int, int]]] = {}
    for one in damage:
        if one.file_id in by_id and one.offset < by_id[one.file_id].next_offset and not one.reason.startswith(DIFFERS):
            damaged.setdefault(one.file_id, []).append((one.offset, one.offset + one.length_bytes))
    return {
        Path(log.origin).resolve(): ScannedLog(log.size_bytes, log.mtime_ns, log.next_offset, damaged.get(file_id, ()))
        for file_id, log in by_id.items()
    }


def read_located(
    bookie: Bookie, ledgers: Iterable[int], records: int, scanned: Scanned, failing: dict[int, BitMap64]
) -> dict[int, BitMap64] | None:
    """Return ledger → entries that the bookie's index points to, for these ledgers and each in the index.

    ``failing`` gets the entries whose rows lead to a missing log, beyond the end of one, or to bytes that are no good
    record: the bookie answers with an error for them, even if an older log has a good record.

    Returns None if the index is not imported or incomplete, or if reading it is needless, because it got as many rows
    as its entry logs have ``records`` and no row was ever deleted. A lost database has no rows: a bookie that starts
    creates an empty one in its place (``KeyValueStorageRocksDB``). Raises StoreError, OSError if it cannot be read.
    """
    indexes = bookie.indexes
    databases = [path for index in indexes if is_rocksdb(path := index / LOCATIONS)]
    lost = sum(map(lost_locations, indexes))
    if not databases and not lost:
        return _read_files(bookie, ledgers, scanned, failing)
    if len(databases) + lost < len(indexes):
        return None
    before = {storage.index / LOCATIONS: _list_logs([storage.logs]) for storage in _given_storages(bookie)}
    with ExitStack() as stack:
        problems: list[str] = []
        opened = [stack.enter_context(open_links(database, problems, to_damage=True)) for database in databases]
        if not problems and not lost and sum(map(_count_rows, opened)) == records:
            return None
        from pyroaring import BitMap64  # 15 ms

        located = {ledger_id: BitMap64() for ledger_id in ledgers}
        sound = [_sound_places(before[database], scanned) for database in databases]
        return located if all(map(_read_rows, opened, sound, repeat(located), repeat(failing))) else None


def _given_storages(bookie: Bookie) -> list[Storage]:
    """Return the storages of a bookie, even if not all of its directories were given."""
    indexes = bookie.indexes
    try:
        return storages_of(bookie)
    except InvalidValue:
        if len(indexes) != len(bookie.ledger_dirs):
            raise
        return list(map(Storage, bookie.ledger_dirs, indexes))


def _list_logs(directories: Iterable[Path]) -> dict[int, Path]:
    return {log_id: path for directory in directories for log_id, path in read_bookie_directory(directory).logs}


def _sound_places(before: Logs, scanned: Scanned) -> Array:
    """Return the stretches (first, end) of locations where good records may be: i64 (n, 2), ascending.

    Call it after opening the index: a running bookie flushes a log before it writes the rows that lead there, and
    deletes a log after those rows. ``before``: the logs listed before the index was opened.
    """
    import numpy as np

    logs = {**before, **_list_logs({path.parent for path in before.values()})}
    rows: list[tuple[int, int]] = []
    for log_id, path in sorted(logs.items()):
        first, known = log_id << 32, scanned.get(path.resolve())
        end = start = first + _SIZE_BYTES
        try:
            status = path.stat()
        except FileNotFoundError:
            end += 1 << 31
            known = None
        else:
            is_same = known is not None and (status.st_size, status.st_mtime_ns) == (known.size_bytes, known.mtime_ns)
            end += known.end if known is not None and is_same else status.st_size
        for low, high in () if known is None else known.damaged:
            rows.append((start, first + _SIZE_BYTES + low))
            start = first + _SIZE_BYTES + high
        rows.append((start, end))
    return np.array([row for row in rows if row[0] < row[1]], np.int64).reshape(-1, 2)


def _are_inside(numbers: Array, stretches: Array) -> Array:
    """Return a mask of the numbers that lie in one of the ascending ``stretches`` (first, end)."""
    import numpy as np

    if not len(stretches):
        return np.zeros(len(numbers), bool)
    before = np.searchsorted(stretches[:, 0], numbers, "right") - 1
    are: Array = (before >= 0) & (numbers < stretches[before, 1])
    return are


def _count_rows(opened: Any) -> float:  # Any: rocksdict has no stubs
    """Return how many rows were put into an open database; NaN if some were deleted again."""
    tables = opened.live_files()
    deletions = sum(table["num_deletions"] for table in tables)
    deletions += sum(opened.property_int_value(f"rocksdb.num-deletes-{one}") for one in _IN_MEMORY)
    in_memory = sum(opened.property_int_value(f"rocksdb.num-entries-{one}") for one in _IN_MEMORY)
    return nan if deletions else sum(table["num_entries"] for table in tables) + in_memory


def _read_files(
    bookie: Bookie, ledgers: Iterable[int], scanned: Scanned, failing: dict[int, BitMap64]
) -> dict[int, BitMap64] | None:
    """Return ledger → entries in ``.idx`` files, None without such files; unsound locations go into ``failing``."""
    import numpy as np
    from pyroaring import BitMap64

    before = _list_logs(bookie.ledger_dirs)
    sound, doubted = _sound_places(before, scanned), list[tuple[int, Array, Array]]()
    located = {ledger_id: BitMap64() for ledger_id in ledgers}
    is_there = False
    for ledger_id, path in iter_index_files(bookie.indexes):
        entries, slots, is_there = located.setdefault(ledger_id, BitMap64()), _read_index(path)[HEADER_BYTES:], True
        rows = np.frombuffer(slots[: len(slots) // _SLOT_BYTES * _SLOT_BYTES], ">i8")
        are_sound = _are_inside(rows, sound)
        entries.update(array("Q", np.flatnonzero(are_sound).astype("<u8").tobytes()))
        ids = np.flatnonzero((rows != 0) & ~are_sound)
        if len(ids):
            doubted.append((ledger_id, ids, rows[ids]))
    sound = _sound_places(before, scanned) if doubted else sound  # a running bookie wrote logs meanwhile
    for ledger_id, ids, rows in doubted:
        are_sound = _are_inside(rows, sound)
        for where, some in ((located, ids[are_sound]), (failing, ids[~are_sound])):
            where.setdefault(ledger_id, BitMap64()).update(array("Q", some.astype("<u8").tobytes()))
    return located if is_there else None


def iter_index_files(indexes: Iterable[Path]) -> Iterator[tuple[int, Path]]:
    """Yield (ledger, path) of each ``.idx`` file below the ``current`` directories, which is at ``<g>/<p>/<hex ledger>.idx``."""
    for path in (path for index in indexes for path in sorted(index.glob("*/*/*.idx"))):
        ledger_id = ledger_id_of_index(path.name)
        if ledger_id is not None:
            yield ledger_id, path


def _read_index(path: Path) -> bytes:
    data = read_file(path)
    decode_ledger_index_header(data, str(path))
    return data


def _join(items: Iterator[tuple[bytes, bytes]], count: int) -> bytes:
    """Return the bytes of the next ``count`` keys and values, one after the other, or a single byte if one has an
    unexpected size.

    Without that check, keys and values of other sizes could add up to whole rows.
    """
    parts = [*chain.from_iterable(islice(items, count))]
    are_known = {*map(len, parts[::2])} <= {_KEY_BYTES} and {*map(len, parts[1::2])} <= {_SLOT_BYTES}
    return b"".join(parts) if are_known else b"?"


def _read_rows(
    opened: Any,  # rocksdict has no stubs
    sound: Array,
    found: dict[int, BitMap64],
    failing: dict[int, BitMap64],
) -> bool:
    """Add the entries of an open database whose locations are sound to ``found``, others to ``failing``.

    Returns whether every row could be read.
    """
    import numpy as np
    from pyroaring import BitMap64

    items, last = iter(opened.items()), b""
    while chunk := _join(items, _CHUNK_KEYS):
        if len(chunk) % _ROW_BYTES:
            return False
        last = chunk[-_ROW_BYTES:-_SLOT_BYTES]
        rows = np.frombuffer(chunk, ">i8").reshape(-1, 3).astype(np.int64)
        rows = rows[(rows[:, :2] >= 0).all(axis=1)]  # negative ids are no entry's
        are_sound = _are_inside(rows[:, 2], sound)
        starts = np.flatnonzero(np.diff(rows[:, 0], prepend=-1)).tolist()
        for start, end in pairwise([*starts, len(rows)]):
            entries = found.setdefault(int(rows[start, 0]), BitMap64())
            ids = rows[start:end, 1][are_sound[start:end]]
            if len(ids) and int(ids[-1]) - int(ids[0]) == len(ids) - 1:
                entries.add_range(int(ids[0]), int(ids[-1]) + 1)
            else:
                entries.update(array("Q", ids.astype("<u8").tobytes()))
        wrong = rows[~are_sound]
        _put_rows(wrong, set(wrong[:, 0].tolist()), failing)
    return _is_last(opened, last, b"", b"")


def _is_last(opened: Any, last: bytes, first: bytes, end: bytes) -> bool:  # Any: rocksdict has no stubs
    """Whether ``last`` is the last key from ``first`` up to, but not including, ``end`` (empty: unbounded); empty: no
    key is there.

    At a damaged block, RocksDB's iteration ends without an error, which this detects; RocksDB may also raise one here.
    """
    position = opened.iter()
    position.seek_for_prev(end or b"\xff" * (_KEY_BYTES + 1))
    if position.valid() and position.key() == end:
        position.prev()
    position.status()
    there: bytes = position.key() if position.valid() else b""
    return there == last if last else not there or there < first


def index_state(bookie: Bookie) -> str:
    """Return a digest of the names, sizes and times of a bookie's index files: it changes whenever one is written."""
    indexes, digest = bookie.indexes, blake2b(digest_size=8)
    databases = (index / name for index in indexes for name in DATABASES if is_rocksdb(index / name))
    files = (path for database in databases for path in database.iterdir())
    for path in sorted([*files, *(path for _, path in iter_index_files(indexes))]):
        status = os.stat(path)
        digest.update(f"{path}\0{status.st_size} {status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


# -- logs that do not exist -------------------------------------------------------------------------------------------


class MissingLog(Struct, frozen=True):
    """A missing entry log, its path, and the entries for which the index points there: ledger → entries.

    ``is_database``: whether the index is DbLedgerStorage's.
    """

    path: Path
    entries: dict[int, BitMap64]
    is_database: bool


def read_missing_logs(bookie: Bookie, ledgers: Collection[int]) -> list[MissingLog]:
    """Return, by number, the logs that a bookie's index names for entries of these ledgers and that do not exist.

    Raises SourceNotFound, InvalidValue, MetadataCorrupt, OSError for disks that are not available, or an index that
    cannot be read.
    """
    from pyroaring import BitMap64

    missing: dict[Path, dict[int, BitMap64]] = {}
    for path, row in _iter_gone(bookie, ledgers):
        missing.setdefault(path, {}).setdefault(row.ledger_id, BitMap64()).add(row.entry_id)
    return [MissingLog(path, entries, has_database(bookie)) for path, entries in sorted(missing.items())]


def has_database(bookie: Bookie) -> bool:
    """Whether a bookie's index is that of DbLedgerStorage."""
    return any(map(is_of_database, bookie.indexes))


def _iter_gone(bookie: Bookie, ledgers: Collection[int]) -> Iterator[tuple[Path, LocationRow]]:
    if has_database(bookie):
        storages = storages_of(bookie)
        for number, storage in enumerate(storages):
            yield from _iter_gone_rows(storage, [one for one in sorted(ledgers) if one % len(storages) == number])
        return
    # Of the other storages a bookie has one sequence of logs over all its directories.
    logs = {log_id for path in bookie.ledger_dirs for log_id, _ in read_bookie_directory(path).logs}
    for ledger_id, path in iter_index_files(bookie.indexes):
        for row in iter_index_rows(_read_index(path), ledger_id) if ledger_id in ledgers else ():
            if row.log_id not in logs:
                yield bookie.ledger_dirs[0] / log_file_name(row.log_id), row


def _key_after(ledger_id: int) -> bytes:
    """Return a key after all keys of a ledger and before those of the next."""
    return ledger_key(ledger_id + 1) if ledger_id < LONG_MAX else b"\xff"


def _iter_gone_rows(storage: Storage, ledgers: list[int]) -> Iterator[tuple[Path, LocationRow]]:
    database = storage.index / LOCATIONS
    if not ledgers or not is_rocksdb(database):
        return
    logs = {log_id for log_id, _ in read_bookie_directory(storage.logs).logs}
    with open_ranges(database, []) as rows_between:
        for ledger_id in ledgers:
            for key, value in rows_between(ledger_key(ledger_id), _key_after(ledger_id)):
                row = decode_location_row(key, value, str(database))
                if row.log_id not in logs:
                    yield storage.logs / log_file_name(row.log_id), row


# -- sums of rows -----------------------------------------------------------------------------------------------------


def cut_database(database: Path) -> list[tuple[bytes, bytes]]:
    """Return key ranges (first, end) that cut a ``locations`` database into similar parts; an empty end is
    unbounded."""
    edges, size_bytes = [b""], 0
    with open_links(database, []) as opened:
        tables = sorted((table["start_key"], table["size"]) for table in opened.live_files())
    for key, table_bytes in tables:
        if size_bytes >= _RANGE_BYTES:
            edges.append(key)
            size_bytes = 0
        size_bytes += table_bytes
    return [*pairwise([*edges, b""])]


def database_state(database: Path) -> str:
    """Return a digest of the names, sizes and times of a database's files: it changes whenever one is written."""
    return blake2b(repr(sorted(file_states(database).items())).encode(), digest_size=8).hexdigest()


def sum_places(ledgers: Array, entries: Array, places: Array) -> tuple[Array, Array]:
    """Return (ledger ids, ascending; for each ledger the sum over its rows, of entry and location, in any order), i64;
    the sums of parts add up.

    Damage hardly leaves a sum unchanged: rows are mixed as by SplitMix64 before they are added.
    """
    import numpy as np

    first, second, third = (np.uint64(one) for one in _MIXERS)
    mixed = entries.astype(np.uint64) * first + places.astype(np.uint64) * third
    for shift, mixer in ((30, second), (27, third), (31, np.uint64(1))):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * mixer
    return _sum_by(ledgers, mixed.view(np.int64))


def _sum_by(ledgers: Array, values: Array) -> tuple[Array, Array]:
    import numpy as np

    order = np.argsort(ledgers, kind="stable")
    ids = ledgers[order]
    starts = np.flatnonzero(np.diff(ids, prepend=-1))
    return ids[starts], np.add.reduceat(values[order], starts) if len(starts) else starts


def read_place_sums(database: Path, first: bytes, end: bytes) -> tuple[Array, Array]:
    """Return ``sum_places`` of the rows of a ``locations`` database from key ``first`` up to ``end``, not included.

    Raises MetadataCorrupt, OSError.
    """
    import numpy as np

    ledgers, sums = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    with open_links(database, []) as opened:
        for rows in _iter_range(opened, first, end):
            ids, values = sum_places(*rows[rows[:, 0] >= 0].T)  # negative ids are no ledger's
            ledgers.append(ids)
            sums.append(values)
    return _sum_by(np.concatenate(ledgers), np.concatenate(sums))


# -- other bytes than the entry ---------------------------------------------------------------------------------------


def read_misled(
    bookie: Bookie,
    ledgers: Collection[int],
    scanned: Scanned,
    gone: dict[int, BitMap64] | None = None,
    are_proven: Callable[[Logs, Array], Array] | None = None,
    read: set[Path] | None = None,
    astray: Mapping[Path, Collection[int]] = {},
) -> dict[int, BitMap64]:
    """Return ledger → entries for which the bookie's index points to other bytes in an existing log. Bytes where a scan
    found damage do not count, as they may have been the entry.

    ``gone`` gets ledger → entries that the index points to in a missing log. ``are_proven`` returns a mask of rows
    (ledger, entry, location) known to lead to their record, for which logs are not read. ``read`` gets the databases of
    which every block was read. ``astray``: databases that were read elsewhere → the ledgers whose rows are in doubt;
    only those rows are read.

    Raises StoreError, OSError if the disks are not available, or the index cannot be read.
    """
    import numpy as np

    misled: dict[int, BitMap64] = {}
    doubts = {database: sorted({*astray[database]} & {*ledgers}) for database in astray}
    for logs, rows in _iter_rows(bookie, set() if read is None else read, doubts):
        if are_proven is not None:
            rows = rows[~are_proven(logs, rows)]
        ids = rows[:, 2] >> 32
        parts = [_wrong_in(logs[one], rows[ids == one], scanned) for one in np.unique(ids).tolist() if one in logs]
        _put_rows(np.concatenate([np.zeros((0, 3), np.int64), *parts]), ledgers, misled)
        if gone is not None:
            _put_rows(rows[~np.isin(ids, [*logs])], ledgers, gone)
    return misled


def _put_rows(rows: Array, ledgers: Collection[int], found: dict[int, BitMap64]) -> None:
    from pyroaring import BitMap64

    for ledger_id in {*rows[:, 0].tolist()} & {*ledgers}:
        entries = rows[rows[:, 0] == ledger_id, 1]
        found.setdefault(ledger_id, BitMap64()).update(array("Q", entries.astype("<u8").tobytes()))


def _iter_rows(bookie: Bookie, read: set[Path], doubts: Mapping[Path, Sequence[int]]) -> Iterator[tuple[Logs, Array]]:
    """Yield (entry logs by id, rows of ledger, entry and location) of the index, part by part; see ``read_misled``."""
    import numpy as np

    if has_database(bookie):
        for storage in storages_of(bookie):
            if is_rocksdb(storage.index / LOCATIONS):
                logs, database = dict(read_bookie_directory(storage.logs).logs), storage.index / LOCATIONS
                ranges = [(b"", b"")]
                if database in doubts:
                    ranges = [(ledger_key(one), _key_after(one)) for one in doubts[database]]
                    if not ranges:
                        read.add(database)
                        continue
                with open_links(database, []) as opened, suppress(MetadataCorrupt):  # others tell of it
                    for rows in chain.from_iterable(_iter_range(opened, *edges) for edges in ranges):
                        yield logs, rows
                    read.add(database)
        return
    logs = {log_id: path for directory in bookie.ledger_dirs for log_id, path in read_bookie_directory(directory).logs}
    for ledger_id, path in iter_index_files(bookie.indexes):
        index_rows = iter_index_rows(_read_index(path), ledger_id)
        of_file = [(ledger_id, row.entry_id, row.log_id << 32 | row.pos) for row in index_rows]
        yield logs, np.array(of_file, np.int64).reshape(-1, 3)


def _iter_range(opened: Any, first: bytes, end: bytes) -> Iterator[Array]:  # Any: rocksdict has no stubs
    """Yield the rows (ledger, entry, location) of an open ``locations`` database from key ``first`` up to ``end`` (not
    included; empty: unbounded), in batches.

    Raises MetadataCorrupt for rows of another form, and if not every row can be read.
    """
    import numpy as np
    import rocksdict

    options, last = rocksdict.ReadOptions(), b""
    if end:
        options.set_iterate_upper_bound(end)
    items = iter(opened.items(from_key=first or None, read_opt=options))
    while any(chunks := [_join(items, _CHUNK_KEYS) for _ in range(_CHUNKS)]):
        if any(len(chunk) % _ROW_BYTES for chunk in chunks):
            raise MetadataCorrupt("rows of another form")
        chunk = b"".join(chunks)
        last = chunk[-_ROW_BYTES:-_SLOT_BYTES]
        yield np.frombuffer(chunk, ">i8").reshape(-1, 3).astype(np.int64)
    if not _is_last(opened, last, first, end):
        raise MetadataCorrupt("a block cannot be read")


def _wrong_in(path: Path, rows: Array, scanned: Scanned) -> Array:
    import numpy as np

    known = scanned.get(path.resolve())
    if known is not None and known.damaged:
        rows = rows[~_are_inside(rows[:, 2] & 0xFFFFFFFF, np.array(known.damaged) + _SIZE_BYTES)]
    rows = rows[np.argsort(rows[:, 2], kind="stable")]
    starts = (rows[:, 2] & 0xFFFFFFFF) - _SIZE_BYTES
    good = np.zeros(len(rows), bool)
    with open(open_regular(path), "rb") as file:
        at = int(np.searchsorted(starts, 0))
        while at < len(rows):
            begin = int(starts[at])
            data = np.frombuffer(os.pread(file.fileno(), _WINDOW_BYTES, begin), np.uint8)
            end = int(np.searchsorted(starts, begin + len(data) - _HEAD_BYTES, "right"))
            if end <= at:
                break  # past the end of the log
            heads = data[(starts[at:end] - begin)[:, None] + np.arange(_SIZE_BYTES, _HEAD_BYTES)]
            good[at:end] = (np.ascontiguousarray(heads).view(">i8") == rows[at:end, :2]).all(axis=1)
            at = end
    return rows[~good]


def read_ledger_ids(database: Path, problems: list[str], *, to_damage: bool = False) -> Array:
    """Return the ledger ids in a bookie's ``ledgers`` database (upstream ``LedgerMetadataIndex``), unordered; see ``open_for_reading``."""
    import numpy as np

    with open_for_reading(database, problems, to_damage=to_damage) as rows:
        # Rows of ``rebuild-db-ledgers-index`` have longer keys, and flags a negative one.
        keys = (int.from_bytes(key[:_LEDGER_BYTES], "big", signed=True) for key, _ in rows if len(key) >= _LEDGER_BYTES)
        return np.fromiter((key for key in keys if key >= 0), np.int64)


def read_newest_ledgers(
    bookies: Iterable[Bookie], ids: Collection[str], is_known: Callable[[int], bool]
) -> dict[str, list[int]]:
    """Return bookie of ``ids`` → by ledger directory, the newest known ledger of which an entry is in its index, -1 for none; without
    bookies of which not every index can be read."""
    newest = {}
    for bookie in merge_bookies(bookies):
        if bookie.bookie_id in ids:
            with suppress(StoreError, OSError):
                newest[bookie.bookie_id] = [_newest_in(one.index / LOCATIONS, is_known) for one in storages_of(bookie)]
    return newest


def _newest_in(database: Path, is_known: Callable[[int], bool]) -> int:
    if not is_rocksdb(database):
        return -1
    with open_links(database, [], to_damage=True) as opened:
        position, ledger_id = opened.iter(), LONG_MAX
        while True:
            position.seek_for_prev(ledger_key(ledger_id))  # before its entries, whose keys are longer
            position.status()
            if not position.valid():
                return -1
            ledger_id = int.from_bytes(position.key()[:_LEDGER_BYTES], "big")
            if is_known(ledger_id):
                return ledger_id


def read_known_ledgers(bookie: Bookie) -> Array | None:
    """Return the ledger ids in the `ledgers` databases beside a bookie's `locations`, unordered; a missing one has no rows, as a start
    creates it. None if not every index was imported, or is in `.idx` files. Raises MetadataCorrupt, OSError."""
    import numpy as np

    indexes = bookie.indexes
    if not indexes or not all(is_rocksdb(index / LOCATIONS) for index in indexes):
        return None
    databases = [path for index in indexes if is_rocksdb(path := index / LEDGERS)]
    return np.concatenate([np.zeros(0, np.int64), *(read_ledger_ids(path, [], to_damage=True) for path in databases)])
