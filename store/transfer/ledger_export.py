"""Ledgers that this toolkit wrote, put into a bookie's directory as the bookie itself would have: a sealed entry log with its
ledgers map under a log id of its own, a row in ``ledgers``, a row in ``locations`` for every entry, ``lastId`` raised.

Source of the rules: ``DefaultEntryLogger``, ``EntryLoggerAllocator``, ``SingleDirectoryDbLedgerStorage`` (BookKeeper 4.16). The
entry log is durable before a row names it, the row in ``ledgers`` comes after all of ``locations``, and the metadata node that makes
the ledger known is written last, by the caller. The leftovers of a stopped export belong to no ledger: the next one continues with them,
or the bookie's garbage collection removes them.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from msgspec import Struct

from pulsar_admin.store.codec import dbledger
from pulsar_admin.store.codec.bookie import COOKIE_FILE, decode_cookie
from pulsar_admin.store.codec.digest import master_key
from pulsar_admin.store.codec.entry import decode_entry
from pulsar_admin.store.codec.entrylog import HEADER_BYTES, LOG_LIMIT_BYTES, SIZE_BYTES, log_file_name
from pulsar_admin.store.codec.rocksvalue import decode_counter
from pulsar_admin.store.db import own_ledgers
from pulsar_admin.store.db.entry_files import EntryFiles
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import Corrupt, MetadataCorrupt, NotFound, Unsupported
from pulsar_admin.store.files import open_file
from pulsar_admin.store.model.ledgers import Ledger, iter_blocks, read_ledger
from pulsar_admin.store.sources.layout import StandaloneDirectory
from pulsar_admin.store.sources.log_files import put_log, raise_last_id
from pulsar_admin.store.sources.rocksdb import apply_changes, open_ranges, read_values
from pulsar_admin.store.sources.rocksopen import Pairs
from pulsar_admin.store.sources.storage import DATABASES, Storage
from pulsar_admin.store.wording import Answer


class LedgerExported(Answer, frozen=True):
    """A ledger of an export. ``bookie``: the directory of the bookie, below the target's root."""

    ledger_id: int
    entries: int
    bytes: int
    bookie: str


class LedgerExport(Struct, frozen=True):
    """The ledgers of an export; ``sequence``: the next ledger id that the target will assign, None if it does not change."""

    ledgers: tuple[LedgerExported, ...] = ()
    sequence: int | None = None
    own: own_ledgers.OwnLedgers | None = None


def plan_ledger_export(
    txn: Txn, layout: StandaloneDirectory, ledger_ids: list[int], problems: list[str], written: int | None
) -> LedgerExport:
    """Plan writing ledgers into a layout; those that a bookie there already holds completely stay.

    Raises StalePlan if the target allocated one of our ids itself. Losses in the bookies' databases are added to
    ``problems``. ``written``: the sequence of an interrupted export; in a target with that value, all lower ids are
    ours.
    """
    if not ledger_ids and written is None:
        return LedgerExport()
    own = own_ledgers.find_own_ledgers(txn)
    raw = read_values(layout.metadata, [own_ledgers.SEQUENCE_KEY]).get(own_ledgers.SEQUENCE_KEY)
    where = str(layout.metadata)
    target = sequence = 0 if raw is None else decode_counter(raw, where)
    if own is not None and own.first_id < target == written:
        own = own_ledgers.OwnLedgers(target, own.next_id)
    elif not ledger_ids:
        return LedgerExport()
    if own is not None and max(ledger_ids, default=own.next_id) >= own.first_id:
        sequence = own_ledgers.sequence_after_export(own, target, where)
    if max(ledger_ids, default=-1) >= sequence:  # created again, and the target has an older state
        sequence = own_ledgers.largest_ledger_id(txn) + 1
    ledgers = [read_ledger(txn, ledger_id) for ledger_id in sorted(ledger_ids)]
    exported = []
    for current in layout.currents:
        here = [ledger for ledger in ledgers if _bookie_of(layout, ledger) == current]
        place = str(current.relative_to(layout.root))
        for ledger in not_held(txn, Storage(current, current), here, problems) if here else ():
            exported.append(LedgerExported(ledger.ledger_id, ledger.entries, ledger.size_bytes, place))
    return LedgerExport(tuple(exported), sequence if sequence != target else None, own)


def _bookie_of(layout: StandaloneDirectory, ledger: Ledger) -> Path:
    """Return the bookie that the ledger's metadata names, the first if no bookie has an id."""
    members = ledger.metadata.segments[0].members if ledger.metadata else ()
    for current in layout.currents:
        with suppress(OSError, MetadataCorrupt, Unsupported):
            cookie = decode_cookie((current / COOKIE_FILE).read_bytes(), str(current / COOKIE_FILE))
            if cookie.bookie_id in members:
                return current
    return layout.currents[0]


def not_held(txn: Txn, storage: Storage, ledgers: list[Ledger], problems: list[str]) -> Iterator[Ledger]:
    """Yield the ledgers that a storage does not hold completely; garbage collection removes one some time after its metadata."""
    for database in storage.databases:
        if not (database / "CURRENT").is_file():
            raise NotFound(
                f"{storage.index} has no RocksDB {database.name!r}: its bookie keeps no DbLedgerStorage, which export writes",
                path=str(database),
            )
    with (
        open_ranges(storage.index / "ledgers", problems) as ledgers_rows,
        open_ranges(storage.index / "locations", problems) as locations_rows,
    ):
        for ledger in ledgers:
            first, end = dbledger.ledger_key(ledger.ledger_id), dbledger.ledger_key(ledger.ledger_id + 1)
            pairs = locations_rows(first, end) if any(ledgers_rows(first, end)) else iter(())
            if not _holds(txn, storage, ledger, pairs):
                yield ledger


def _holds(txn: Txn, storage: Storage, ledger: Ledger, pairs: Pairs) -> bool:
    """Whether location rows lead to every entry of a ledger that the store knows, in the storage's logs, digests verified."""
    where = str(storage.index / "locations")
    rows = (dbledger.decode_location_row(key, value, where) for key, value in pairs)
    is_empty = True
    for _, entry_id, place in _iter_places(txn, (ledger.ledger_id,)):
        row = next((row for row in rows if row.entry_id >= entry_id), None)
        if row is None or row.entry_id != entry_id or not _is_entry(storage.logs, ledger, row, place[2]):
            return False
        is_empty = False
    return not is_empty


def _is_entry(current: Path, ledger: Ledger, row: dbledger.LocationRow, size_bytes: int) -> bool:
    path = current / log_file_name(row.log_id)
    digest_type, password = (ledger.metadata.digest_type, ledger.metadata.password) if ledger.metadata else (None, None)
    try:
        with open_file(path) as log:
            raw = os.pread(log.fileno(), SIZE_BYTES + size_bytes, row.pos - SIZE_BYTES)
        if int.from_bytes(raw[:SIZE_BYTES], "big") != size_bytes:
            return False
        entry = decode_entry(memoryview(raw)[SIZE_BYTES:], digest_type, where=str(path), password=password or b"")
    except (OSError, Corrupt):
        return False
    return (entry.ledger_id, entry.entry_id) == (row.ledger_id, row.entry_id)


def databases_of(export: LedgerExport, root: Path) -> list[Path]:
    """Return the bookies' databases that an export writes below ``root``."""
    return [root / bookie / name for bookie in _bookies(export) for name in DATABASES]


def _bookies(export: LedgerExport) -> list[str]:
    return list(dict.fromkeys(ledger.bookie for ledger in export.ledgers))


def apply_ledger_export(files: EntryFiles, txn: Txn, export: LedgerExport, root: Path, original: Path | None) -> None:
    """Write ledgers below ``root``, which is a copy of ``original`` or the source itself.

    Files that an interrupted export wrote are found and used: the same entry log, the same rows.
    """
    for bookie in _bookies(export):
        ids = tuple(ledger.ledger_id for ledger in export.ledgers if ledger.bookie == bookie)
        storage = Storage(root / bookie, root / bookie)
        write_to_storage(files, txn, ids, storage, None if original is None else original / bookie)


def write_to_storage(
    files: EntryFiles, txn: Txn, ledger_ids: tuple[int, ...], storage: Storage, original: Path | None = None
) -> None:
    """Write entry logs, then the rows of the entries, then those of the ledgers: the rows that make the bookie know them come last.

    ``original``: the directory of the databases from which the storage's were copied.
    """
    log_ids = [
        put_log((files.read_record(record.place) for record in records), storage.logs)
        for _, records in groupby(_place_records(txn, ledger_ids), key=lambda record: record.log_number)
    ]
    raise_last_id(storage.logs)
    data = dbledger.LedgerData(exists=True, fenced=False, master_key=master_key(b""))
    rows = [dbledger.encode_ledgers_row(ledger_id, data) for ledger_id in ledger_ids]
    for name, changes in (
        ("locations", lambda: (dbledger.encode_location_row(row) for row in _locations(txn, ledger_ids, log_ids))),
        ("ledgers", lambda: rows),
    ):
        apply_changes(storage.index / name, changes, None if original is None else original / name)


def _locations(txn: Txn, ledger_ids: tuple[int, ...], log_ids: list[int]) -> Iterator[dbledger.LocationRow]:
    for record in _place_records(txn, ledger_ids):
        position = record.position + SIZE_BYTES
        yield dbledger.LocationRow(record.ledger_id, record.entry_id, log_ids[record.log_number], position)


class _Record(Struct, frozen=True):
    """An entry of the store and the place of its record: ``position`` is that of its size field."""

    ledger_id: int
    entry_id: int
    place: tuple[int, int, int]
    log_number: int
    position: int


def _place_records(txn: Txn, ledger_ids: tuple[int, ...]) -> Iterator[_Record]:
    """Yield the entries of the ledgers, one log after the other from number 0 on; the same ones every time."""
    number, position = 0, HEADER_BYTES
    for ledger_id, entry_id, place in _iter_places(txn, ledger_ids):
        if position + SIZE_BYTES + place[2] > LOG_LIMIT_BYTES:
            number, position = number + 1, HEADER_BYTES
        yield _Record(ledger_id, entry_id, place, number, position)
        position += SIZE_BYTES + place[2]


def _iter_places(txn: Txn, ledger_ids: tuple[int, ...]) -> Iterator[tuple[int, int, tuple[int, int, int]]]:
    """Yield (ledger id, entry id, place) of every entry up to the ledgers' ends."""
    for ledger_id in ledger_ids:
        last = read_ledger(txn, ledger_id).last_entry_id
        for block in iter_blocks(txn, ledger_id):
            for index in range(block.index_of(last + 1)):
                yield ledger_id, block.entry_id(index), block.place(index)
