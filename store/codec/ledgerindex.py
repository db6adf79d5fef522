"""The ``.idx`` file of a ledger: SortedLedgerStorage and InterleavedLedgerStorage use it instead of DbLedgerStorage's
rows.

Source: ``FileInfo``, ``LedgerEntryPage``, ``IndexPersistenceMgr``; BookKeeper 4.14 to 4.18.

========  ====  =======================================================================================
offset    size  field
========  ====  =======================================================================================
0         4     magic ``BKLE``
4         4     version i32: 0 or 1
8         4     k i32: length of the master key
12        k     master key
12+k      4     state bits i32: 1 = fenced
16+k      4     version 1 only: n i32, length of the explicit LAC: 0, or at least 16
20+k      n     version 1 only: explicit LAC: ledgerId i64, lac i64, digest
1024+8e   8     location i64 of entry e = logId << 32 | pos; 0: not on this bookie
========  ====  =======================================================================================

Pages are written whole and holes are zeros; a last slot that is cut counts as 0. The file may lag behind its logs.
"""

import re
import struct
from collections.abc import Iterator

from msgspec import Struct

from pulsar_admin.store.codec.buffer import Reader
from pulsar_admin.store.codec.dbledger import LocationRow
from pulsar_admin.store.codec.entrylog import decode_location
from pulsar_admin.store.errors import MetadataCorrupt, Unsupported

HEADER_BYTES = 1024
MAGIC = b"BKLE"
_CURRENT_VERSION = 1
_LAC_MIN_BYTES = 16
_FENCED = 1
_LONG = struct.Struct(">q")
_NAME = re.compile(r"([0-9a-f]{1,16})\.idx")


class LedgerIndexHeader(Struct, frozen=True):
    """The header of a ``.idx`` file; ``explicit_lac`` None where its version has none."""

    version: int
    master_key: bytes
    fenced: bool
    explicit_lac: bytes | None


def ledger_id_of_index(name: str) -> int | None:
    """Return the ledger id in the name of a ``.idx`` file, None for other files."""
    match = _NAME.fullmatch(name)
    return int(match[1], 16) if match else None


def decode_ledger_index_header(view: bytes | memoryview, where: str) -> LedgerIndexHeader:
    """Return the header of an index; raises MetadataCorrupt, and Unsupported for an unknown version."""
    reader = Reader(Reader(view, where, MetadataCorrupt).take(HEADER_BYTES), where, MetadataCorrupt)
    magic, version = bytes(reader.take(len(MAGIC))), reader.i32()
    if magic != MAGIC:
        raise MetadataCorrupt.expected(where, "magic", MAGIC.hex(), magic.hex())
    if not 0 <= version <= _CURRENT_VERSION:
        raise Unsupported(f"{where}: index of version {version}, known are 0 and 1", where=where, version=version)
    master_key = bytes(reader.take(_length(reader, where, "length of the master key")))
    state = reader.i32()
    explicit_lac = None
    if version:
        size = _length(reader, where, "length of the explicit LAC")
        if 0 < size < _LAC_MIN_BYTES:
            raise MetadataCorrupt.expected(
                where, "length of the explicit LAC", f"0, or at least {_LAC_MIN_BYTES}", size
            )
        explicit_lac = bytes(reader.take(size))
    return LedgerIndexHeader(version, master_key, bool(state & _FENCED), explicit_lac)


def iter_index_rows(view: bytes | memoryview, ledger_id: int) -> Iterator[LocationRow]:
    """Yield the places of a ledger's entries in its index, in the order of their ids."""
    slots = memoryview(view)[HEADER_BYTES:]
    whole = slots[: len(slots) // _LONG.size * _LONG.size]
    for entry_id, (location,) in enumerate(_LONG.iter_unpack(whole)):
        if location:
            yield LocationRow(ledger_id, entry_id, *decode_location(location))


def _length(reader: Reader, where: str, what: str) -> int:
    size = reader.i32()
    if not 0 <= size <= HEADER_BYTES:
        raise MetadataCorrupt.expected(where, what, f"0 to {HEADER_BYTES}", size)
    return size
