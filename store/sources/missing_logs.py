"""Entries for which a bookie's index points to an entry log that does not exist: reading them fails with an error.

Upstream: ``SingleDirectoryDbLedgerStorage.doGetEntry``, ``InterleavedLedgerStorage.getEntry`` (BookKeeper 4.17): the index alone says where
an entry is. Garbage collection takes a ledger out of the index before it deletes a log, so that no row of a living ledger leads to one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from pulsar_admin.store.codec.dbledger import LocationRow, decode_location_row, ledger_key
from pulsar_admin.store.codec.entrylog import log_file_name
from pulsar_admin.store.codec.ledgerindex import decode_ledger_index_header, iter_index_rows, ledger_id_of_index
from pulsar_admin.store.db.bookies import Bookie
from pulsar_admin.store.files import read_file
from pulsar_admin.store.names import LONG_MAX
from pulsar_admin.store.sources.bookies import read_bookie_directory
from pulsar_admin.store.sources.rocksdb import is_rocksdb, open_ranges
from pulsar_admin.store.sources.storage import LOCATIONS, Storage, storages_of
from pulsar_admin.store.sources.storage import has_database as is_of_database

if TYPE_CHECKING:
    from pyroaring import BitMap64


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

    found: dict[Path, dict[int, BitMap64]] = {}
    for path, row in _iter_gone(bookie, ledgers):
        found.setdefault(path, {}).setdefault(row.ledger_id, BitMap64()).add(row.entry_id)
    return [MissingLog(path, entries, has_database(bookie)) for path, entries in sorted(found.items())]


def has_database(bookie: Bookie) -> bool:
    """Whether a bookie's index is that of DbLedgerStorage."""
    return any(map(is_of_database, bookie.index_dirs or bookie.ledger_dirs))


def _iter_gone(bookie: Bookie, ledgers: Collection[int]) -> Iterator[tuple[Path, LocationRow]]:
    if has_database(bookie):
        storages = storages_of(bookie)
        for number, storage in enumerate(storages):
            yield from _iter_gone_rows(storage, [one for one in sorted(ledgers) if one % len(storages) == number])
        return
    # Of the other storages a bookie has one sequence of logs over all its directories.
    logs = {log_id for path in bookie.ledger_dirs for log_id, _ in read_bookie_directory(path).logs}
    indexes = bookie.index_dirs or bookie.ledger_dirs
    for path in (path for index in indexes for path in index.glob("*/*/*.idx")):
        ledger_id = ledger_id_of_index(path.name)
        if ledger_id is not None and ledger_id in ledgers:
            data = read_file(path)
            decode_ledger_index_header(data, str(path))
            for row in iter_index_rows(data, ledger_id):
                if row.log_id not in logs:
                    yield bookie.ledger_dirs[0] / log_file_name(row.log_id), row


def _iter_gone_rows(storage: Storage, ledgers: list[int]) -> Iterator[tuple[Path, LocationRow]]:
    database = storage.index / LOCATIONS
    if not ledgers or not is_rocksdb(database):
        return
    logs = {log_id for log_id, _ in read_bookie_directory(storage.logs).logs}
    with open_ranges(database, []) as rows_between:
        for ledger_id in ledgers:
            end = ledger_key(ledger_id + 1) if ledger_id < LONG_MAX else b"\xff"
            for key, value in rows_between(ledger_key(ledger_id), end):
                row = decode_location_row(key, value, str(database))
                if row.log_id not in logs:
                    yield storage.logs / log_file_name(row.log_id), row
