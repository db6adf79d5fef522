"""Reading and writing the RocksDB of Pulsar's standalone metadata store (upstream ``RocksdbMetadataStore``, 4.0.8) and of bookies.

RocksDB itself never opens a directory of Pulsar's. It drops files where it opens, its default recovery stops at a damaged record of
a write-ahead log and then deletes the log, and some damage puts it into an endless loop. So it is given a scratch directory: links
to the files, and of a damaged log a copy of its whole records (``store.codec.rockslog``).

Writing goes on in such a directory too. The result of RocksDB is read back and compared with the rows before and the
changes; then the new tables and MANIFEST are put beside the old files and the name in ``CURRENT`` is replaced, which is RocksDB's own
way from one state to the next. A process stopped before that leaves the old state, and files that RocksDB removes at its next
start, as it does with the replaced ones.
"""

import errno
import fcntl
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from heapq import merge
from itertools import groupby, islice, takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from pulsar_admin.store import files
from pulsar_admin.store.errors import MetadataCorrupt, NotWritable, Refused, SourceBusy
from pulsar_admin.store.sources import rocksopen

Changes = Callable[[], Iterable[tuple[bytes, bytes | None]]]
"""Returns (key, value) pairs in key order, value None to delete; the same ones at every call."""

# struct flock of Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi")
_LENGTHS = struct.Struct("<II")
_BATCH_ROWS = 10_000


def is_rocksdb(directory: Path) -> bool:
    """Whether a directory is a RocksDB."""
    return (directory / "CURRENT").is_file()


def locked_by(directory: Path) -> int | None:
    """Return the process id that holds a RocksDB's LOCK, or None. Opens the file for reading only."""
    try:
        descriptor = files.open_regular(directory / "LOCK")
    except OSError:
        return None
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOLCK):  # a file system without locks
            return None
        raise
    finally:
        os.close(descriptor)
    kind, _, _, _, process_id = _FLOCK.unpack(answer)
    return None if kind == fcntl.F_UNLCK else int(process_id)


def check_unlocked(directory: Path) -> None:
    """Raise SourceBusy if a process holds a RocksDB's LOCK."""
    holder = locked_by(directory)
    if holder is not None:
        raise SourceBusy(
            f"{directory} is in use by process {holder}",
            hint="stop Pulsar, then run the command again",
            processId=holder,
        )


@contextmanager
def lock_database(directory: Path) -> Iterator[None]:
    """Hold the lock that RocksDB itself takes, so that no broker or bookie starts on the directory; raises SourceBusy, NotWritable.

    Locks of fcntl are released when any descriptor of the file is closed: nothing within the block may open and close
    the file LOCK.
    """
    check_unlocked(directory)
    if not os.access(directory, os.W_OK):
        raise NotWritable(f"{directory} may not be written", hint="check its permissions", path=str(directory))
    is_new = not (directory / "LOCK").exists()
    descriptor = files.open_lock_file(directory / "LOCK")
    try:
        if is_new:
            files.keep_owner(descriptor, (directory / "CURRENT").stat())
        take_lock(fcntl.lockf, descriptor, directory / "LOCK")
        yield
    finally:
        os.close(descriptor)


def take_lock(take: Callable[[int, int], object], descriptor: int, path: Path) -> None:
    """Lock an open file with ``take``, a function of fcntl; raises SourceBusy. A file system without locks is used without."""
    try:
        take(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise SourceBusy(
                f"{path.parent} is in use by another process", hint="wait for it, then run the command again"
            ) from error
        if error.errno not in (errno.EINVAL, errno.ENOLCK):  # a file system without locks
            files.raise_write_error(error, path)


# -- reading ----------------------------------------------------------------------------------------------------------


@contextmanager
def open_for_reading(
    directory: Path, problems: list[str] | None = None, *, to_damage: bool = False
) -> Iterator[Iterator[tuple[bytes, bytes]]]:
    """Open a RocksDB and return its (key, value) pairs in key order; nothing is written in its directory.

    A write-ahead log that is cut or damaged is read as far as possible and added to ``problems``; a damaged or missing
    table raises MetadataCorrupt. (A secondary instance would take a missing table for an empty database.) ``to_damage``:
    as in ``open_links``.
    """
    with rocksopen.open_links(directory, [] if problems is None else problems, to_damage=to_damage) as database:
        yield rocksopen.iter_pairs(database)


# -- writing ----------------------------------------------------------------------------------------------------------


def read_values(directory: Path, keys: list[bytes]) -> dict[bytes, bytes]:
    """Return the values of those keys that exist in a RocksDB."""
    wanted = set(keys)
    with open_for_reading(directory) as items:
        return {key: value for key, value in items if key in wanted}


@contextmanager
def open_ranges(directory: Path, problems: list[str]) -> Iterator[Callable[[bytes, bytes], rocksopen.Pairs]]:
    """Open a RocksDB and return a function that gives the pairs from one key up to another (excluded)."""
    with rocksopen.open_links(directory, problems) as database:
        yield lambda first, end: takewhile(lambda pair: pair[0] < end, rocksopen.iter_pairs(database, first))


def apply_changes(directory: Path, changes: Changes, original: Path | None = None) -> None:
    """Write changes into a RocksDB, all at once and durably, or leave it unchanged.

    The result is read back and must be the pairs of before (in ``original``, of which the directory is a copy) with
    the changes. A damaged database is refused (Refused), except for a copy, which gets everything readable of its
    original. The caller makes sure that no process has it open. Raises MetadataCorrupt if RocksDB returns other data
    than was written.
    """
    problems: list[str] = []
    with rocksopen.open_links(original or directory, problems) as database:
        tables = _tables_of(database)
        expected = _digest(_changed(rocksopen.iter_pairs(database), changes()))
    if problems and original is None:
        raise damaged_in_place(problems)
    with _changed_copy(directory, tables, changes) as work:
        _check_rows(work, directory, expected)
        with _switched(work, directory):
            _check_rows(directory, directory, expected)


def new_files_bytes(directory: Path, changes: Changes) -> list[int]:
    """Return the sizes of the files that ``apply_changes`` would put into the directory, which is only read."""
    with rocksopen.open_links(directory, []) as database:
        tables = _tables_of(database)
    with _changed_copy(directory, tables, changes) as work:
        return [file.stat().st_size for file in _new_files(work)]


def _tables_of(database: Any) -> frozenset[str]:  # Any: rocksdict has no stubs
    return frozenset(table["name"].lstrip("/") for table in database.live_files())


@contextmanager
def _changed_copy(directory: Path, tables: frozenset[str], changes: Changes) -> Iterator[Path]:
    """Hand out a scratch directory with links to the tables of a RocksDB, and its changes in new ones."""
    import rocksdict

    with rocksopen.database_directory() as work:
        rocksopen.link_files(directory, work, [], tables)
        with rocksopen.open_database(
            work, _options_for_writing(), rocksdict.AccessType.read_write(), directory
        ) as database:
            _put_all(database, changes())
        yield work


def _new_files(work: Path) -> list[Path]:
    """Return the files that RocksDB created in a directory of links: tables, and last the manifest."""
    made = sorted(file for file in work.glob("*.sst") if not file.is_symlink())
    return [*made, work / (work / "CURRENT").read_text().strip()]


def damaged_in_place(problems: list[str]) -> Refused:
    """Return the error for a damaged database that was to be written."""
    return Refused(
        f"nothing is written into a damaged database: {'; '.join(problems)}",
        hint="export to a copy: it gets everything readable",
        problems=problems,
    )


def _changed(pairs: Iterator[tuple[bytes, bytes]], changes: Iterable[tuple[bytes, bytes | None]]) -> rocksopen.Pairs:
    """Yield pairs with changes applied, both in key order."""
    both = merge(((key, 0, value) for key, value in pairs), ((key, 1, value) for key, value in changes))
    for key, versions in groupby(both, key=itemgetter(0)):
        *_, (_, _, value) = versions
        if value is not None:
            yield key, value


class _RowsDigest(NamedTuple):
    """The number of rows and a digest of them all."""

    rows: int
    digest: str


def _digest(pairs: rocksopen.Pairs) -> _RowsDigest:
    digest, count = blake2b(digest_size=16), 0
    for key, value in pairs:
        digest.update(b"".join((_LENGTHS.pack(len(key), len(value)), key, value)))
        count += 1
    return _RowsDigest(count, digest.hexdigest())


def _check_rows(database: Path, shown: Path, expected: _RowsDigest) -> None:
    problems: list[str] = []
    with open_for_reading(database, problems) as pairs:
        found = _digest(pairs)
    if problems or found != expected:
        raise MetadataCorrupt(
            f"{shown}: RocksDB wrote {found.rows:,} rows with digest {found.digest}, expected {expected.rows:,} with {expected.digest}",
            hint="the files are as they were; please report it",
            problems=problems,
        )


def _options_for_writing(*, is_large: bool = False) -> Any:  # Any: rocksdict has no stubs
    """As upstream's ``KeyValueStorageRocksDB`` (BookKeeper 4.17) has them, so that older bookies can read it."""
    import rocksdict

    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(False)
    # Writing stops at the first damaged record, with an error, before any row is dropped.
    options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.absolute_consistency())
    table = rocksdict.BlockBasedOptions()
    table.set_format_version(5)  # Pulsar 4.0.8's RocksDB cannot read what newer ones write by default
    table.set_checksum_type(rocksdict.ChecksumType.xxhash())
    if is_large:
        options.set_compression_type(rocksdict.DBCompressionType.lz4())
        table.set_block_size(64 << 10)
        table.set_bloom_filter(10, False)
    options.set_block_based_table_factory(table)
    return options


@contextmanager
def _switched(work: Path, directory: Path) -> Iterator[None]:
    """Move the files that RocksDB made in ``work`` into the directory and name them in CURRENT; the old state is
    restored if the block raises."""
    current = directory / "CURRENT"
    before, like = current.read_bytes(), current.stat()
    placed: list[Path] = []
    for left in directory.glob("*.dbtmp"):  # beside CURRENT when an export was stopped; RocksDB removes it too
        files.remove_file(left)
    try:
        for file in _new_files(work):
            files.remove_file(directory / file.name)  # left by an export that was stopped: CURRENT never named it
            placed.append(directory / file.name)
            files.copy_file(file, directory / file.name, like=like)
        _name_state(current, (work / "CURRENT").read_bytes())
        yield
    except BaseException:
        if current.read_bytes() != before:
            _name_state(current, before)
        for file in placed:
            files.remove_file(file)
        raise


def _name_state(current: Path, text: bytes) -> None:
    """Replace CURRENT; the temporary file has RocksDB's own name for it, which RocksDB removes when it finds it."""
    files.replace_like(current, text, f"{text.strip().decode().rpartition('-')[2]}.dbtmp")


def create_database(
    directory: Path, rows: Iterable[tuple[bytes, bytes]], log: Path | None = None, *, is_large: bool = False
) -> None:
    """Create a RocksDB with these rows, in a form Pulsar 4.0.8 opens; ``is_large``: as BookKeeper creates ``locations``.

    ``log`` is a file in RocksDB's write-ahead format (sequence numbers from 1 on) that the database takes over; the
    file is gone then.
    """
    import rocksdict

    options = _options_for_writing(is_large=is_large)
    options.create_if_missing(True)
    access = rocksdict.AccessType.read_write()
    with rocksopen.open_database(directory, options, access, directory) as database:
        _put_all(database, rows)
    if log is not None:
        (newest,) = directory.glob("*.log")
        files.rename(log, newest)
        with rocksopen.open_database(directory, options, access, directory):
            pass  # opening replays the log
    for name in (rocksopen.CONFIG_FILE, *(file.name for file in directory.glob("LOG*") if file.name != "LOCK")):
        (directory / name).unlink(missing_ok=True)


def _put_all(database: Any, rows: Iterable[tuple[bytes, bytes | None]]) -> None:  # Any: rocksdict has no stubs
    """Write rows (None deletes) and flush them into tables, durably."""
    import rocksdict

    pairs = iter(rows)
    while part := list(islice(pairs, _BATCH_ROWS)):
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in part:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        database.write(batch)
    database.flush()
