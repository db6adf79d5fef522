"""Rows of DbLedgerStorage's two RocksDB databases, ``locations`` and ``ledgers``.

Source: ``EntryLocationIndex``, ``LedgerMetadataIndex``, ``SingleDirectoryDbLedgerStorage``, ``LedgersIndexRebuildOp``;
BookKeeper 4.14 to 4.18.

=============  ===============================================  =======================================
database       key                                              value
=============  ===============================================  =======================================
locations      ledgerId i64, entryId i64                        location i64 = logId << 32 | pos
ledgers        ledgerId i64 >= 0                                LedgerData protobuf
ledgers        ledgerId i64 >= 0, 8 zero bytes                  the same, stale (below)
ledgers        i64 -0xEEFD, in the first ledger directory only  storage flags i64
=============  ===============================================  =======================================

``rebuild-db-ledgers-index`` writes 16-byte keys. BookKeeper reads the first 8 bytes only, so such a row overrides the
8-byte row written later; ``newest_rows`` prefers the 8-byte row.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from store.codec.entrylog import decode_location, encode_location
from store.codec.protobuf import parse_protobuf
from store.errors import MetadataCorrupt
from store.proto.bookkeeper_pb2 import LedgerData as LedgerDataMessage

STORAGE_FLAGS_KEY_ID = -0xEEFD
NEEDS_INTEGRITY_CHECK = 1

_PAIR = struct.Struct(
    ">q"  # ledgerId
    "q"  #  entryId
)
_LONG = struct.Struct(">q")
_LONG_KEY_TAIL = bytes(8)


@dataclass(frozen=True, slots=True)
class LocationRow:
    """Where an entry lies: ``pos`` points past the record's size field. Valid inside one ledger directory only."""

    ledger_id: int
    entry_id: int
    log_id: int
    pos: int


@dataclass(frozen=True, slots=True)
class LedgerData:
    """What a bookie keeps about a ledger; ``limbo`` means that an absent entry proves nothing."""

    exists: bool
    fenced: bool
    master_key: bytes
    explicit_lac: bytes | None = None
    limbo: bool | None = None


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """A row of ``ledgers``; ``is_long_key`` marks the 16-byte keys of ``rebuild-db-ledgers-index``."""

    ledger_id: int
    data: LedgerData
    is_long_key: bool = False


@dataclass(frozen=True, slots=True)
class StorageFlags:
    """The storage flags row of ``ledgers``."""

    value: int

    @property
    def needs_integrity_check(self) -> bool:
        """Whether the bookie found its data suspect and wants it checked."""
        return bool(self.value & NEEDS_INTEGRITY_CHECK)


def decode_location_row(key: bytes, value: bytes, where: str) -> LocationRow:
    """Return a row of ``locations``; raises MetadataCorrupt."""
    if len(key) != _PAIR.size or len(value) != _LONG.size:
        raise _corrupt(where, "key and value sizes", [_PAIR.size, _LONG.size], [len(key), len(value)])
    ledger_id, entry_id = _PAIR.unpack(key)
    log_id, pos = decode_location(_LONG.unpack(value)[0])
    if ledger_id < 0 or entry_id < 0 or log_id < 0:
        raise _corrupt(where, "ledger, entry and log", ">= 0", [ledger_id, entry_id, log_id])
    return LocationRow(ledger_id, entry_id, log_id, pos)


def ledger_key(ledger_id: int) -> bytes:
    """Return what the keys of all rows of a ledger begin with, in both databases."""
    return _LONG.pack(ledger_id)


def encode_location_row(row: LocationRow) -> tuple[bytes, bytes]:
    """Return key and value of ROW."""
    return _PAIR.pack(row.ledger_id, row.entry_id), _LONG.pack(encode_location(row.log_id, row.pos))


def decode_ledgers_row(key: bytes, value: bytes, where: str) -> LedgerRow | StorageFlags:
    """Return a row of ``ledgers``, of either key length, or the storage flags; raises MetadataCorrupt."""
    if len(key) not in (_LONG.size, _PAIR.size):
        raise _corrupt(where, "key size", [_LONG.size, _PAIR.size], len(key))
    ledger_id = _LONG.unpack_from(key)[0]
    is_long_key = len(key) == _PAIR.size
    if ledger_id == STORAGE_FLAGS_KEY_ID and not is_long_key:
        if len(value) != _LONG.size:
            raise _corrupt(where, "size of the storage flags", _LONG.size, len(value))
        return StorageFlags(_LONG.unpack(value)[0])
    if ledger_id < 0 or (is_long_key and key[_LONG.size :] != _LONG_KEY_TAIL):
        raise _corrupt(where, "key", "ledger id >= 0, then nothing or 8 zero bytes", key.hex())
    return LedgerRow(ledger_id, decode_ledger_data(value, f"{where}: ledger {ledger_id}"), is_long_key)


def encode_ledgers_row(row: LedgerRow | StorageFlags) -> tuple[bytes, bytes]:
    """Return key and value of ROW."""
    if isinstance(row, StorageFlags):
        return _LONG.pack(STORAGE_FLAGS_KEY_ID), _LONG.pack(row.value)
    key = _LONG.pack(row.ledger_id)
    return key + _LONG_KEY_TAIL if row.is_long_key else key, encode_ledger_data(row.data)


def newest_rows(rows: Iterable[LedgerRow | StorageFlags]) -> dict[int, LedgerData]:
    """Return ledger id -> data, the row with the 8-byte key winning over the 16-byte one; flags are left out."""
    newest: dict[int, LedgerRow] = {}
    for row in rows:
        if isinstance(row, LedgerRow) and (row.ledger_id not in newest or not row.is_long_key):
            newest[row.ledger_id] = row
    return {ledger_id: row.data for ledger_id, row in newest.items()}


def decode_ledger_data(value: bytes, where: str) -> LedgerData:
    """Return the LedgerData in VALUE; raises MetadataCorrupt."""
    message = parse_protobuf(LedgerDataMessage, value, where, MetadataCorrupt)
    return LedgerData(
        exists=message.exists,
        fenced=message.fenced,
        master_key=message.masterKey,
        explicit_lac=message.explicitLac if message.HasField("explicitLac") else None,
        limbo=message.limbo if message.HasField("limbo") else None,
    )


def encode_ledger_data(data: LedgerData) -> bytes:
    """Return the bytes of DATA."""
    message = LedgerDataMessage(
        exists=data.exists,
        fenced=data.fenced,
        masterKey=data.master_key,
        explicitLac=data.explicit_lac,
        limbo=data.limbo,
    )
    return message.SerializeToString()


def _corrupt(where: str, what: str, expected: object, found: object) -> MetadataCorrupt:
    return MetadataCorrupt(
        f"{where}: {what}: expected {expected}, found {found}", where=where, expected=expected, found=found
    )
