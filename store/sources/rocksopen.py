"""A RocksDB opened without touching it: in a scratch directory of links to its files.

RocksDB drops files where it opens, and some damage of a log puts it into an endless loop (``store.codec.rockslog``). So it opens a
directory of links, and in the place of a damaged log it finds a copy of the log's whole records.
"""

from __future__ import annotations

import errno
import os
import re
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pulsar_admin.store.codec.rockslog import Flaw, encode_log, encode_put, is_plain_log, iter_log_records
from pulsar_admin.store.errors import MetadataCorrupt, NotWritable, SourceNotFound, StoreError
from pulsar_admin.store.files import (
    copy_file,
    create_file,
    link_by_name,
    raise_read_error,
    raise_write_error,
    remove_file,
    scratch_directory,
    writing,
)
from pulsar_admin.store.wording import counted

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Pairs = Iterator[tuple[bytes, bytes]]

CONFIG_FILE = "rocksdict-config.json"
"""A file that rocksdict creates where it opens a database."""

UNREAD_CHANGES = "a server that opens the database loses the changes there, and all later ones"
"""Part of the sentence on a damaged write-ahead log."""

_SCRATCH = re.compile(r"[^\s:]*/pulsar-admin-[^/]+/files")
_BATCH_HEAD = struct.Struct(
    "<Q"  # sequence number of the first change
    "I"  #  how many changes
)
_TRIES = 5
_SALVAGE_SECONDS = 120.0
_NOT_TAKEN = frozenset({CONFIG_FILE, "LOCK"})
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ESTALE, errno.EROFS, errno.EACCES)


@contextmanager
def open_links(
    directory: Path, problems: list[str], *, to_damage: bool = False
) -> Iterator[Any]:  # Any: rocksdict has no stubs
    """Open a RocksDB for reading through links to its files; losses are added to ``problems``.

    ``to_damage``: only what its server finds, which reads a write-ahead log up to the first damaged record, and no later
    log (``kPointInTimeRecovery``, RocksDB's default).

    A process that has it open replaces files, and appends to them, while they are linked and read: that looks like
    damage. So if anything is wrong and the files have changed meanwhile, they are linked and read again. Once it is
    open, RocksDB has all files open as well.
    """
    with ExitStack() as stack:
        for left in reversed(range(_TRIES)):
            before = file_states(directory)
            linked: list[str] = []
            with ExitStack() as attempt:
                try:
                    links = attempt.enter_context(database_directory())
                    link_files(directory, links, linked, to_damage=to_damage)
                    database = attempt.enter_context(_open_strictly(links, directory, linked))
                except (MetadataCorrupt, NotWritable):
                    if left and file_states(directory) != before:
                        continue
                    raise
                if linked and left and file_states(directory) != before:
                    continue
                stack.push(attempt.pop_all())
                break
        problems += linked
        yield database


def file_states(directory: Path) -> dict[str, tuple[int, int] | None]:
    """Return the size and modification time (ns) of each file in a directory."""
    states: dict[str, tuple[int, int] | None] = {}
    with suppress(FileNotFoundError):
        for name in os.listdir(directory):
            states[name] = None
            with suppress(FileNotFoundError):
                status = os.stat(directory / name)
                states[name] = status.st_size, status.st_mtime_ns
    return states


@contextmanager
def database_directory() -> Iterator[Path]:
    """Hand out an empty directory that is gone afterwards; raises DiskFull, NotWritable."""
    with scratch_directory() as scratch:
        inside = scratch / "files"  # its name is fixed: RocksDB's messages show it
        with writing(inside):
            inside.mkdir()
        yield inside


def link_files(
    directory: Path,
    links: Path,
    problems: list[str],
    tables: frozenset[str] | None = None,
    *,
    to_damage: bool = False,
) -> None:
    """Fill a directory with links to a RocksDB's files; of a damaged log the complete records are copied, with a text in ``problems``.

    With ``tables``, for a database that is to be written: only those tables, and copies of all other files.
    ``to_damage``: as in ``open_links``.
    """
    if not (directory / "CURRENT").is_file():
        raise SourceNotFound(f"{directory} is not a RocksDB: it has no CURRENT", path=str(directory))
    try:
        manifest = (directory / "CURRENT").read_bytes().strip().decode("utf-8", "replace")
        files = [file for file in sorted(directory.iterdir()) if file.name not in _NOT_TAKEN and file.is_file()]
    except OSError as error:
        raise_read_error(error, directory)
    damaged: dict[Path, Counter[Flaw]] = {}
    for file in files:
        flaws = _count_flaws(file) if file.suffix == ".log" or file.name == manifest else Counter()
        if file.name == manifest and flaws:
            if flaws[Flaw.DAMAGED]:
                raise _corrupt(directory, f"{manifest} is damaged")
            problems.append(
                f"{directory}: {manifest} ends within a record: that change of its files is lost, and any after it"
            )
            _write_whole_records(file, links)
        elif flaws:
            damaged[file] = flaws
        elif tables is None:
            link_by_name(file.resolve(), links / file.name)
        elif file.suffix != ".sst":
            copy_file(file, links / file.name, durable=False)
        elif file.name in tables:
            link_by_name(file.resolve(), links / file.name)
    for file in _replayed(links, list(damaged), directory):
        its_flaws = damaged[file]
        if not its_flaws[Flaw.DAMAGED]:
            text = f"{file}: the write-ahead log ends within a record: that change is lost, and any after it"
        else:
            places = counted(its_flaws[Flaw.DAMAGED], "damaged place")
            text = f"{file}: {places} in the write-ahead log: {UNREAD_CHANGES}"
            text += "" if to_damage else ", which were read here"
        problems.append(text)
        _write_whole_records(file, links, to_damage=to_damage)
        if to_damage and its_flaws[Flaw.DAMAGED]:
            for later in (one for one in files if one.suffix == ".log" and one.name > file.name):
                remove_file(links / later.name)
            break


def has_log_damage(database: Path) -> bool:
    """Whether a damaged record is in a write-ahead log of a database, also in one whose changes RocksDB has written to tables."""
    return any(_count_flaws(log)[Flaw.DAMAGED] for log in database.glob("*.log"))


def _count_flaws(log: Path) -> Counter[Flaw]:
    try:
        with open(log, "rb") as file:
            records = iter_log_records(file) if is_plain_log(file) else iter(())
            return Counter(record for record in records if isinstance(record, Flaw))
    except OSError as error:
        raise_read_error(error, log)


def _write_whole_records(log: Path, links: Path, *, to_damage: bool = False) -> None:
    with open(log, "rb") as file, create_file(links / log.name, durable=False) as out:
        records = iter_log_records(file)
        if to_damage:
            records = takewhile(lambda record: isinstance(record, bytes), records)
        out.writelines(encode_log(record for record in records if isinstance(record, bytes)))


def _replayed(links: Path, logs: list[Path], shown: Path) -> list[Path]:
    """Return the write-ahead logs that RocksDB would replay: determined by opening it with a log of one pair in the place of each."""
    if not logs:
        return []
    for log in logs:
        with create_file(links / log.name, durable=False) as out:
            out.writelines(encode_log([encode_put(_probe_key(log), b"")]))
    with _open_strictly(links, shown, []) as database:
        replayed = [log for log in logs if database.get(_probe_key(log)) is not None]
    for log in logs:
        remove_file(links / log.name)
    return replayed


def _probe_key(log: Path) -> bytes:
    return b"\0pulsar-admin " + os.fsencode(log.name)[:100]


@contextmanager
def _open_strictly(links: Path, shown: Path, problems: list[str]) -> Iterator[Any]:  # Any: rocksdict has no stubs
    """Open with the strictest treatment of the write-ahead log under which the database opens."""
    import rocksdict  # 30 ms; only import and export need it

    modes = rocksdict.DBRecoveryMode
    first: MetadataCorrupt | None = None
    for mode in (modes.absolute_consistency(), modes.skip_any_corrupted_record()):
        options = rocksdict.Options(raw_mode=True)
        options.set_wal_recovery_mode(mode)
        with ExitStack() as stack:
            try:
                database = stack.enter_context(open_database(links, options, rocksdict.AccessType.read_only(), shown))
            except MetadataCorrupt as error:
                first = first or error
                continue
            if first is not None:
                problems.append(
                    f"{first.message}; its write-ahead log was read as far as it goes: the last changes may be lost"
                )
            yield database
            return
    assert first is not None
    raise first


def iter_pairs(database: Any, first: bytes = b"") -> Pairs:  # Any: rocksdict has no stubs
    """Yield the pairs from a key on; unlike the library's own ``items``, a damaged block raises instead of silently ending them."""
    position = database.iter()
    position.seek(first)
    while position.valid():
        yield position.key(), position.value()
        position.next()
    position.status()


def check_pairs(database: Any) -> None:  # Any: rocksdict has no stubs
    """Read a database to its end, which raises for a damaged block."""
    position = database.iter()
    position.seek_to_first()
    while position.valid():
        position.next()
    position.status()


def salvage_pairs(directory: Path, problems: list[str]) -> list[tuple[bytes, bytes]]:
    """Return all readable pairs of a RocksDB, in key order; damage is added to ``problems``.

    Without its own list of tables (MANIFEST) RocksDB makes one of all tables that exist: deleted rows may be among
    them.
    """
    try:
        with open_links(directory, problems) as database:
            return _read_both_ways(database, directory, problems)
    except (MetadataCorrupt, SourceNotFound) as error:
        problems.append(error.message)
    with database_directory() as links, suppress(MetadataCorrupt):
        _repair_links(directory, links)
        with _open_strictly(links, directory, problems) as database:
            return _read_both_ways(database, directory, problems)
    return []


def salvage_in_child(directory: Path) -> Salvaged:
    """Return the readable pairs of a damaged RocksDB, read by another process: damage may crash RocksDB, or make it loop.

    The pairs of its own files are completed by RocksDB's repair of a copy, from all tables and logs that exist. Raises
    MetadataCorrupt.
    """
    import multiprocessing  # 10 ms, and few databases are damaged

    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_salvage_into, args=(sender, str(directory)), daemon=True)
    process.start()
    sender.close()
    salvaged: Salvaged | None = None
    try:
        with suppress(EOFError):
            salvaged = receiver.recv() if receiver.poll(_SALVAGE_SECONDS) else None
    finally:
        process.kill()
        process.join()
        receiver.close()
    if salvaged is None or not salvaged.pairs:
        raise _corrupt(directory, "nothing can be salvaged")
    return salvaged


def logged_changes(directory: Path) -> int:
    """Return how many changes a RocksDB ever had, if its write-ahead logs have every one of them, else 0.

    Each record begins with the sequence number of its first change and their number; the first change has 1. A table
    with a higher number than the newest log may come from a log that is gone. Raises StoreErrors for files that cannot
    be read.
    """
    logs = sorted(path for path in directory.glob("*.log") if path.stem.isdecimal())
    tables = [int(path.stem) for path in directory.glob("*.sst") if path.stem.isdecimal()]
    if not logs or max(tables, default=0) > int(logs[-1].stem):
        return 0
    following = 1
    for log in logs:
        if _count_flaws(log):
            return 0
        with open(log, "rb") as file:
            for record in iter_log_records(file):
                if isinstance(record, Flaw) or len(record) < _BATCH_HEAD.size:
                    return 0
                first, count = _BATCH_HEAD.unpack_from(record)
                if first != following:
                    return 0
                following += count
    return following - 1


class Salvaged(NamedTuple):
    """The readable pairs of a damaged database in key order, its damage, and the tables whose pairs are missing."""

    pairs: list[tuple[bytes, bytes]]
    problem: str
    lost_tables: list[str]


def _salvage_into(sender: Connection, directory: str) -> None:
    with suppress(StoreError, BrokenPipeError):
        sender.send(_salvage(Path(directory)))
    sender.close()


def _salvage(directory: Path) -> Salvaged:
    problems: list[str] = []
    rows: dict[bytes, bytes] | None = None
    with suppress(MetadataCorrupt, SourceNotFound), open_links(directory, problems) as database:
        problems.clear()
        rows = dict(_read_both_ways(database, directory, problems))
        if not problems:
            return Salvaged(sorted(rows.items()), "", [])
    with database_directory() as links:
        _repair_links(directory, links)
        lost = sorted(file.name for file in (links / "lost").glob("*.sst")) if (links / "lost").is_dir() else []
        with _open_strictly(links, directory, []) as database:
            repaired = dict(_read_both_ways(database, directory, problems))
    return Salvaged(sorted((repaired | (rows or {})).items()), "; ".join(problems), lost)


def _read_both_ways(database: Any, shown: Path, problems: list[str]) -> list[tuple[bytes, bytes]]:  # Any: no stubs
    """Return the pairs up to the first damaged block and those after the last."""
    rows: dict[bytes, bytes] = {}
    try:
        with _translated(shown):
            rows.update(iter_pairs(database))
            return list(rows.items())
    except MetadataCorrupt as error:
        problems.append(error.message)
    with suppress(MetadataCorrupt), _translated(shown):
        position = database.iter()
        position.seek_to_last()
        while position.valid() and position.key() not in rows:
            rows[position.key()] = position.value()
            position.prev()
    return sorted(rows.items())


def _repair_links(directory: Path, links: Path) -> None:
    import rocksdict

    for file in sorted(directory.iterdir()):
        if file.suffix == ".sst" and file.is_file():
            link_by_name(file.resolve(), links / file.name)
        elif file.suffix == ".log" and file.is_file():
            _write_whole_records(file, links)
    with _translated(directory):
        rocksdict.Rdict.repair(str(links), rocksdict.Options(raw_mode=True))


@contextmanager
def open_database(path: Path, options: Any, access: Any, shown: Path) -> Iterator[Any]:  # Any: rocksdict has no stubs
    """Open a RocksDB; errors name ``shown``. Raises MetadataCorrupt, DiskFull, DiskFailed, NotWritable."""
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
        # rocksdict raises bare Exception for every error of RocksDB and an OSError that is text alone for its own file.
        if type(error) is not Exception and not (isinstance(error, OSError) and error.errno is None):
            raise
        first: BaseException | None = error
        while first is not None:  # closing after an error tells less: "Writer has previous error"
            _raise_disk_error(str(first), directory)
            first = first.__context__
        raise _corrupt(directory, _SCRATCH.sub(lambda _: str(directory), str(error))) from error


def _raise_disk_error(text: str, directory: Path) -> None:
    """Raise DiskFull, DiskFailed or NotWritable if RocksDB's message says so."""
    for number in _DISK_ERRORS:
        if os.strerror(number) in text:
            named = re.search(r": (/[^:]*)", text)
            raise_write_error(OSError(number, os.strerror(number)), Path(named[1]) if named else directory)


def _corrupt(directory: Path, text: str) -> MetadataCorrupt:
    return MetadataCorrupt(
        f"{directory}: RocksDB cannot read it: {text}",
        hint="copy the directory again, with all its files, while Pulsar is stopped",
        path=str(directory),
    )
