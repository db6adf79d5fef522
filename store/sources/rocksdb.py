"""Reading and writing the RocksDB of Pulsar's standalone metadata store (upstream ``RocksdbMetadataStore``, 4.0.8).

Reading goes through a scratch directory of links: rocksdict drops ``rocksdict-config.json`` where it opens, and the source
must stay byte-identical, even while a running Pulsar holds its lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from store.atomic import open_regular, rename
from store.errors import MetadataCorrupt, NotWritable, SourceBusy, SourceNotFound, StoreError

_CONFIG_FILE = "rocksdict-config.json"
# struct flock of Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi")
_BATCH_ROWS = 10_000


def locked_by(directory: Path) -> int | None:
    """Return the process id that holds the RocksDB LOCK of DIRECTORY, or None. Opens the file for reading only."""
    try:
        descriptor = open_regular(directory / "LOCK")
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


@contextmanager
def open_for_reading(directory: Path, problems: list[str] | None = None) -> Iterator[Iterator[tuple[bytes, bytes]]]:
    """Open the RocksDB in DIRECTORY and hand out its (key, value) pairs in key order; nothing is written there.

    What can be read of a write-ahead log that is cut or damaged is read, and told in PROBLEMS; a damaged or missing table raises
    MetadataCorrupt. (A secondary instance would take a missing table for an empty database.)
    """
    import rocksdict  # 30 ms; only import and export need it

    if not (directory / "CURRENT").is_file():
        raise SourceNotFound(f"{directory} is no RocksDB: it has no CURRENT", path=str(directory))
    with tempfile.TemporaryDirectory(prefix="pulsar-admin-") as scratch:
        links = Path(scratch, "links")
        links.mkdir()
        for file in directory.iterdir():
            if file.is_file() and file.name != _CONFIG_FILE:
                (links / file.name).symlink_to(file.resolve())
        options = _options_that_open(links, directory, [] if problems is None else problems)
        with _open(links, options, rocksdict.AccessType.read_only(), directory) as database:
            yield _pairs(database)


def _options_that_open(links: Path, shown: Path, problems: list[str]) -> Any:  # Any: rocksdict has no stubs
    """Return options with the strictest treatment of the write-ahead log under which the database opens."""
    import rocksdict

    modes = rocksdict.DBRecoveryMode
    first: MetadataCorrupt | None = None
    for mode in (modes.absolute_consistency(), modes.skip_any_corrupted_record()):
        options = rocksdict.Options(raw_mode=True)
        options.set_wal_recovery_mode(mode)
        try:
            with _open(links, options, rocksdict.AccessType.read_only(), shown):
                pass
        except MetadataCorrupt as error:
            first = first or error
            continue
        if first is not None:
            problems.append(
                f"{first.message}; its write-ahead log was read as far as it goes: the last changes may be lost"
            )
        return options
    assert first is not None
    raise first


def _pairs(database: Any) -> Iterator[tuple[bytes, bytes]]:  # Any: rocksdict has no stubs
    """Yield all pairs; unlike the library's own ``items`` this does not end in silence at a damaged block."""
    position = database.iter()
    position.seek_to_first()
    while position.valid():
        yield position.key(), position.value()
        position.next()
    position.status()


@contextmanager
def _open(path: Path, options: Any, access: Any, shown: Path) -> Iterator[Any]:  # Any: rocksdict has no stubs
    import rocksdict

    with _translated(shown):
        database = rocksdict.Rdict(str(path), options, access_type=access)
        try:
            yield database
        finally:
            database.close()


@contextmanager
def _translated(directory: Path) -> Iterator[None]:
    try:
        yield
    except (StoreError, GeneratorExit):
        raise
    except Exception as error:
        # rocksdict raises bare Exception for every error of RocksDB; anything of another type is not its.
        if type(error) is not Exception:
            raise
        raise MetadataCorrupt(
            f"{directory}: RocksDB cannot read it: {error}",
            hint="copy the directory again, with all its files, while Pulsar is stopped",
            path=str(directory),
        ) from error


def read_values(directory: Path, keys: list[bytes]) -> dict[bytes, bytes]:
    """Return the values of KEYS that exist in the RocksDB of DIRECTORY."""
    wanted = set(keys)
    with open_for_reading(directory) as items:
        return {key: value for key, value in items if key in wanted}


def apply_values(directory: Path, changes: Mapping[bytes, bytes | None]) -> None:
    """Write CHANGES (None deletes) into the RocksDB of DIRECTORY in one synced batch, in a form Pulsar 4.0.8 opens.

    Raises SourceBusy when a process holds its lock, NotWritable when it may not be written.
    """
    import rocksdict

    holder = locked_by(directory)
    if holder is not None:
        raise SourceBusy(
            f"{directory} is in use by process {holder}",
            hint="stop Pulsar, then run the command again",
            processId=holder,
        )
    if not os.access(directory, os.W_OK):
        raise NotWritable(f"{directory} may not be written", hint="check its permissions", path=str(directory))
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(False)
    table = rocksdict.BlockBasedOptions()
    table.set_format_version(5)  # Pulsar 4.0.8's RocksDB cannot read what newer ones write by default
    options.set_block_based_table_factory(table)
    had_config = (directory / _CONFIG_FILE).exists()
    with _open(directory, options, rocksdict.AccessType.read_write(), directory) as database:
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in changes.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        synced = rocksdict.WriteOptions()
        synced.sync = True
        database.write(batch, synced)
        database.flush()
    if not had_config:
        (directory / _CONFIG_FILE).unlink(missing_ok=True)


def create_database(directory: Path, rows: Iterable[tuple[bytes, bytes]], log: Path | None = None) -> None:
    """Make a new RocksDB at DIRECTORY with ROWS, in a form Pulsar 4.0.8 opens.

    LOG is a file in RocksDB's write-ahead format (sequence numbers from 1 on) that the database takes in as its own; the file
    is gone then.
    """
    import rocksdict

    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    table = rocksdict.BlockBasedOptions()
    table.set_format_version(5)
    options.set_block_based_table_factory(table)
    access = rocksdict.AccessType.read_write()
    with _open(directory, options, access, directory) as database:
        _put_all(database, rows)
    if log is not None:
        (newest,) = directory.glob("*.log")
        rename(log, newest)
        with _open(directory, options, access, directory):
            pass  # opening takes the log in
    for name in (_CONFIG_FILE, *(file.name for file in directory.glob("LOG*") if file.name != "LOCK")):
        (directory / name).unlink(missing_ok=True)


def _put_all(database: Any, rows: Iterable[tuple[bytes, bytes]]) -> None:  # Any: rocksdict has no stubs
    import rocksdict

    pairs = iter(rows)
    while part := list(islice(pairs, _BATCH_ROWS)):
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in part:
            batch.put(key, value)
        database.write(batch)
    database.flush()
