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
8-byte row written later.
"""

import struct

from msgspec import Struct

from pulsar_admin.store.codec.entrylog import decode_location, encode_location
from pulsar_admin.store.codec.protobuf import parse_protobuf
from pulsar_admin.store.errors import MetadataCorrupt
from pulsar_admin.store.proto.bookkeeper_pb2 import LedgerData as LedgerDataMessage

_PAIR = struct.Struct(
    ">q"  # ledgerId
    "q"  #  entryId
)
_LONG = struct.Struct(">q")
FLAGS_KEY = _LONG.pack(-0xEEFD)
"""The row of ``ledgers`` that is of no ledger."""


class LocationRow(Struct, frozen=True):
    """Where an entry lies: ``pos`` points past the record's size field. Valid inside one ledger directory only."""

    ledger_id: int
    entry_id: int
    log_id: int
    pos: int


class LedgerData(Struct, frozen=True):
    """A bookie's record of a ledger; with ``limbo``, an absent entry may have been written all the same."""

    exists: bool
    fenced: bool
    master_key: bytes
    explicit_lac: bytes | None = None
    limbo: bool | None = None


def decode_location_row(key: bytes, value: bytes, where: str) -> LocationRow:
    """Return a row of ``locations``; raises MetadataCorrupt."""
    if len(key) != _PAIR.size or len(value) != _LONG.size:
        raise MetadataCorrupt.expected(where, "key and value sizes", [_PAIR.size, _LONG.size], [len(key), len(value)])
    ledger_id, entry_id = _PAIR.unpack(key)
    log_id, pos = decode_location(_LONG.unpack(value)[0])
    if ledger_id < 0 or entry_id < 0 or log_id < 0:
        raise MetadataCorrupt.expected(where, "ledger, entry and log", ">= 0", [ledger_id, entry_id, log_id])
    return LocationRow(ledger_id, entry_id, log_id, pos)


def ledger_key(ledger_id: int) -> bytes:
    """Return the prefix of the keys of all rows of a ledger, in both databases."""
    return _LONG.pack(ledger_id)


def encode_location_row(row: LocationRow) -> tuple[bytes, bytes]:
    """Return key and value of a location row."""
    return _PAIR.pack(row.ledger_id, row.entry_id), _LONG.pack(encode_location(row.log_id, row.pos))


def encode_ledgers_row(ledger_id: int, data: LedgerData) -> tuple[bytes, bytes]:
    """Return key and value of a ledger's row."""
    message = LedgerDataMessage(
        exists=data.exists,
        fenced=data.fenced,
        masterKey=data.master_key,
        explicitLac=data.explicit_lac,
        limbo=data.limbo,
    )
    return _LONG.pack(ledger_id), message.SerializeToString()


def decode_ledgers_row(key: bytes, value: bytes, where: str) -> tuple[int, LedgerData]:
    """Return (ledger id, decoded value) of a row of ``ledgers``; raises MetadataCorrupt."""
    if len(key) not in (_LONG.size, _PAIR.size):
        raise MetadataCorrupt.expected(where, "size of a key", [_LONG.size, _PAIR.size], len(key))
    message = parse_protobuf(LedgerDataMessage, value, where, MetadataCorrupt)
    lac = message.explicitLac if message.HasField("explicitLac") else None
    limbo = message.limbo if message.HasField("limbo") else None
    return _LONG.unpack_from(key)[0], LedgerData(message.exists, message.fenced, message.masterKey, lac, limbo)
