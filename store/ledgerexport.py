"""Ledgers that this toolkit wrote, put into a bookie's directory as the bookie itself would have: a sealed entry log with its
ledgers map under a log id of its own, a row in ``ledgers``, a row in ``locations`` for every entry, ``lastId`` raised.

Source of the rules: ``DefaultEntryLogger``, ``EntryLoggerAllocator``, ``SingleDirectoryDbLedgerStorage`` (BookKeeper 4.16). The
entry log is durable before a row names it; the metadata node that makes the ledger known is written last, by the caller. What a
stopped export leaves behind belongs to no ledger, and the bookie's garbage collection removes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path

from store.atomic import create_file, replace_file
from store.codec.bookie import COOKIE_FILE, LAST_ID_FILE, decode_cookie, decode_last_id, encode_last_id
from store.codec.dbledger import LedgerData, LedgerRow, LocationRow, encode_ledgers_row, encode_location_row
from store.codec.digest import master_key
from store.codec.entrylog import (
    CURRENT_VERSION,
    HEADER_BYTES,
    EntryLogHeader,
    encode_header,
    encode_ledgers_map,
    log_file_name,
    log_id_of,
)
from store.codec.rocksvalue import decode_counter
from store.entrylogs import EntryFiles
from store.errors import MetadataCorrupt, NotFound, Unsupported
from store.ledgerids import SEQUENCE_KEY, OwnLedgers, find_own_ledgers, sequence_after_export
from store.ledgers import Ledger, iter_blocks, read_ledger
from store.meta import Txn
from store.sources.layout import BookieDirectory, StandaloneLayout
from store.sources.rocksdb import apply_values, read_values

LOG_LIMIT_BYTES = 1 << 30
_ROWS_AT_ONCE = 50_000
_SIZE_BYTES = 4


@dataclass(frozen=True, slots=True)
class ExportedLedger:
    """A ledger to put into the bookie at ``bookie``, the ``current`` directory below the target's root."""

    ledger_id: int
    entries: int
    size_bytes: int
    bookie: str

    def report(self) -> dict[str, int | str]:
        """Return it as JSON."""
        return {
            "ledgerId": self.ledger_id,
            "entries": self.entries,
            "bytes": self.size_bytes,
            "bookie": self.bookie,
        }


@dataclass(frozen=True, slots=True)
class LedgerExport:
    """The ledgers of an export; ``sequence``: the next ledger id that the target is to give, None when it stays."""

    ledgers: tuple[ExportedLedger, ...] = ()
    sequence: int | None = None
    own: OwnLedgers | None = None


def plan_ledger_export(txn: Txn, layout: StandaloneLayout, ledger_ids: list[int]) -> LedgerExport:
    """Plan putting the ledgers LEDGER_IDS into LAYOUT; what a bookie there still holds, deleted and brought back, stays.

    Raises StalePlan when the target has given one of our ids itself.
    """
    if not ledger_ids:
        return LedgerExport()
    own = find_own_ledgers(txn)
    raw = read_values(layout.metadata, [SEQUENCE_KEY]).get(SEQUENCE_KEY)
    where = str(layout.metadata)
    target = sequence = 0 if raw is None else decode_counter(raw, where)
    if own is not None and max(ledger_ids) >= own.first_id:
        sequence = sequence_after_export(own, target, where)
    found = []
    for ledger_id in ledger_ids:
        ledger = read_ledger(txn, ledger_id)
        bookie = _bookie_of(layout, ledger)
        if not _holds(bookie, ledger_id):
            place = str(bookie.path.relative_to(layout.root))
            found.append(ExportedLedger(ledger_id, ledger.entries, ledger.size_bytes, place))
    return LedgerExport(tuple(found), sequence if sequence != target else None, own)


def _bookie_of(layout: StandaloneLayout, ledger: Ledger) -> BookieDirectory:
    """Return the bookie that the ledger's metadata names, the first where none of them says who it is."""
    members = ledger.metadata.segments[0].members if ledger.metadata else ()
    for bookie in layout.bookies:
        with suppress(OSError, MetadataCorrupt, Unsupported):
            cookie = decode_cookie((bookie.path / COOKIE_FILE).read_bytes(), str(bookie.path / COOKIE_FILE))
            if cookie.bookie_id in members:
                return bookie
    return layout.bookies[0]


def _holds(bookie: BookieDirectory, ledger_id: int) -> bool:
    """Whether the bookie has the ledger; garbage collection takes it away some time after its metadata is deleted."""
    for name in ("ledgers", "locations"):
        if not (bookie.path / name / "CURRENT").is_file():
            raise NotFound(
                f"{bookie.path} has no RocksDB {name!r}: its bookie keeps no DbLedgerStorage, which export writes",
                path=str(bookie.path / name),
            )
    key = encode_ledgers_row(LedgerRow(ledger_id, LedgerData(True, False, b"")))[0]
    return bool(read_values(bookie.path / "ledgers", [key]))


def apply_ledger_export(files: EntryFiles, txn: Txn, export: LedgerExport, root: Path) -> tuple[str, ...]:
    """Write the ledgers of EXPORT below ROOT; return the names of the entry logs written."""
    names: list[str] = []
    for directory in dict.fromkeys(ledger.bookie for ledger in export.ledgers):
        ids = tuple(ledger.ledger_id for ledger in export.ledgers if ledger.bookie == directory)
        names += _apply_to_bookie(files, txn, ids, root / directory)
    return tuple(names)


def _apply_to_bookie(files: EntryFiles, txn: Txn, ledger_ids: tuple[int, ...], current: Path) -> list[str]:
    newest = _newest_log_id(current)
    first_log_id, names = newest + 1, []
    for log_id, records in groupby(_place_records(txn, ledger_ids, first_log_id), key=lambda record: record.log_id):
        _write_log(files, records, current / log_file_name(log_id))
        names.append(log_file_name(log_id))
        newest = log_id
    if names:
        replace_file(current / LAST_ID_FILE, encode_last_id(newest))
    data = LedgerData(exists=True, fenced=False, master_key=master_key(b""))
    apply_values(current / "ledgers", dict(encode_ledgers_row(LedgerRow(ledger_id, data)) for ledger_id in ledger_ids))
    records = _place_records(txn, ledger_ids, first_log_id)
    while rows := [encode_location_row(record.location) for record in islice(records, _ROWS_AT_ONCE)]:
        apply_values(current / "locations", dict(rows))
    return names


@dataclass(frozen=True, slots=True)
class _Record:
    """An entry of the store and where its record goes: ``position`` is that of its size field."""

    ledger_id: int
    entry_id: int
    place: tuple[int, int, int]
    log_id: int
    position: int

    @property
    def location(self) -> LocationRow:
        return LocationRow(self.ledger_id, self.entry_id, self.log_id, self.position + _SIZE_BYTES)


def _place_records(txn: Txn, ledger_ids: tuple[int, ...], log_id: int) -> Iterator[_Record]:
    """Yield the entries of the ledgers, one log after the other from LOG_ID on; the same ones every time."""
    position = HEADER_BYTES
    for ledger_id, entry_id, place in _iter_places(txn, ledger_ids):
        if position + _SIZE_BYTES + place[2] > LOG_LIMIT_BYTES:
            log_id, position = log_id + 1, HEADER_BYTES
        yield _Record(ledger_id, entry_id, place, log_id, position)
        position += _SIZE_BYTES + place[2]


def _iter_places(txn: Txn, ledger_ids: tuple[int, ...]) -> Iterator[tuple[int, int, tuple[int, int, int]]]:
    """Yield (ledger id, entry id, place) of every entry up to the ledgers' ends."""
    for ledger_id in ledger_ids:
        last = read_ledger(txn, ledger_id).last_entry_id
        for block in iter_blocks(txn, ledger_id):
            for index in range(block.index_of(last + 1)):
                yield ledger_id, block.entry_id(index), block.place(index)


def _write_log(files: EntryFiles, records: Iterable[_Record], path: Path) -> None:
    """Write one sealed entry log: the records as they are, their digests with them, behind them the ledgers map."""
    sizes: dict[int, int] = {}
    with create_file(path) as file:
        file.write(encode_header(EntryLogHeader(CURRENT_VERSION, 0, 0)))
        for record in records:
            body = files.read_record(record.place)
            file.write(len(body).to_bytes(_SIZE_BYTES, "big"))
            file.write(body)
            sizes[record.ledger_id] = sizes.get(record.ledger_id, 0) + _SIZE_BYTES + len(body)
        end = file.tell()
        file.write(encode_ledgers_map(sizes))
        file.seek(0)
        file.write(encode_header(EntryLogHeader(CURRENT_VERSION, end, len(sizes))))


def _newest_log_id(current: Path) -> int:
    """Return the largest log id that is in use or was given by the bookie; −1 for a new one."""
    ids = [log_id for log_id in (log_id_of(file.name) for file in current.iterdir()) if log_id is not None]
    path = current / LAST_ID_FILE
    with suppress(FileNotFoundError):
        ids.append(decode_last_id(path.read_bytes(), str(path)))
    return max(ids, default=-1)
