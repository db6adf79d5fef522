"""Compares a bookie's ``.idx`` files with its entry logs.

Source: ``IndexPersistenceMgr``, ``InterleavedLedgerStorage.localConsistencyCheck``; BookKeeper 4.17. An index may lag behind the logs,
so an entry that it lacks is not damage; where it names a record, that record must be the entry's.
"""

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from msgspec import Struct

from pulsar_admin.store.codec.dbledger import LocationRow
from pulsar_admin.store.codec.entrylog import HEADER_BYTES, log_file_name
from pulsar_admin.store.codec.ledgerindex import decode_ledger_index_header, iter_index_rows
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.files import open_file
from pulsar_admin.store.sources.index_places import iter_index_files

_SIZE_BYTES = 4
_RECORD_HEAD = struct.Struct(
    ">i"  # size
    "q"  #  ledgerId
    "q"  #  entryId
)


class IndexVerdict(Struct, frozen=True):
    """The result for one ``.idx`` file: its entries, its problems, and the log ids it names that do not exist."""

    path: Path
    ledger_id: int
    entries: int
    problems: tuple[str, ...]
    absent_logs: tuple[int, ...]


def verify_indexes(directories: Iterable[Path], logs: Mapping[int, Path]) -> Iterator[IndexVerdict]:
    """Compare the ``.idx`` files below ``directories`` with the entry logs of their bookie, by log id."""
    yield from (_verify(ledger_id, path, logs) for ledger_id, path in iter_index_files(directories))


def _verify(ledger_id: int, path: Path, logs: Mapping[int, Path]) -> IndexVerdict:
    rows: list[LocationRow] = []
    problems: list[str] = []
    try:
        with open_file(path) as file:
            data = file.read()
        decode_ledger_index_header(data, str(path))
        rows = list(iter_index_rows(data, ledger_id))
        problems += (f"{path}: entry {ledger_id}:{entry_id}: {problem}" for entry_id, problem in _problems(rows, logs))
    except StoreError as error:
        problems.append(error.message)
    except OSError as error:
        problems.append(f"{path} or a log that it names cannot be read: {error.strerror}")
    absent = {row.log_id for row in rows if row.log_id not in logs}
    return IndexVerdict(path, ledger_id, len(rows), tuple(problems), tuple(sorted(absent)))


def _problems(rows: Iterable[LocationRow], logs: Mapping[int, Path]) -> Iterator[tuple[int, str]]:
    """Yield the entries whose place in the logs is wrong, with the problem."""
    with ExitStack() as opened:
        files: dict[int, IO[bytes]] = {}
        for row in (row for row in rows if row.log_id in logs):
            if row.log_id not in files:
                files[row.log_id] = opened.enter_context(open_file(logs[row.log_id]))
            if problem := _problem(row, files[row.log_id]):
                yield row.entry_id, problem


def _problem(row: LocationRow, log: IO[bytes]) -> str:
    """Return why the place that a row names has no complete record of the row's entry, "" if it has one."""
    offset = row.pos - _SIZE_BYTES
    name = f"{log_file_name(row.log_id)} @ {offset:#x}"
    head = os.pread(log.fileno(), _RECORD_HEAD.size, offset) if offset >= HEADER_BYTES else b""
    if len(head) < _RECORD_HEAD.size:
        return f"{name} is not in the log"
    size, ledger_id, entry_id = _RECORD_HEAD.unpack(head)
    if (ledger_id, entry_id) != (row.ledger_id, row.entry_id):
        return f"{name} is not one of its records"
    if size < 0 or offset + _SIZE_BYTES + size > os.fstat(log.fileno()).st_size:
        return f"{name} is a record that is cut"
    return ""
