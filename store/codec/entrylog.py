"""Entry logs: header, ledgers map, record locations and file names. Scanning them is ``iter_records`` (``logscan``).

Source: ``DefaultEntryLogger``, ``EntryLoggerAllocator``, ``EntryLogManagerBase``, ``EntryLogMetadata`` and, for logs
written with ``dbStorage_directIOEntryLogger``, ``directentrylogger.Header`` and ``LogMetadata``; BookKeeper 4.14 to
4.18.

Header, 1024 bytes (the direct logger's is one block of 4096 whose first record carries older readers over the rest):

======  ====  =========================================================================================
offset  size  field
======  ====  =========================================================================================
0       4     magic ``BKLO``
4       4     version i32: 0 (no ledgers map) or 1
8       8     ledgersMapOffset i64: 0 until the log is sealed; garbage is possible before 4.16.7 and 4.17.2
16      4     ledgersCount i32: ledgers in all batches of the map
20      1004  unused; may be garbage
======  ====  =========================================================================================

Ledgers map, at ledgersMapOffset, a chain of ordinary records:

======  ====  =========================================================================================
offset  size  field
======  ====  =========================================================================================
0       4     size i32 = 20 + 16 n
4       8     -1
12      8     -2
20      4     n i32, 1 to 10000
24      16 n  n times (ledgerId i64, bytes i64: sum of 4 + size of the ledger's records in this log)
======  ====  =========================================================================================

Header and map are hints: a clean stop does not seal the newest log, and records are the truth.
"""

import re
import struct
from collections.abc import Mapping
from itertools import islice

from msgspec import Struct

from pulsar_admin.store.codec.buffer import Reader
from pulsar_admin.store.codec.logscan import HEADER_BYTES as HEADER_BYTES
from pulsar_admin.store.errors import EntryLogCorrupt, Unsupported

MAGIC = b"BKLO"
CURRENT_VERSION = 1
MAP_BATCH_LEDGERS = 10_000
LOG_LIMIT_BYTES = 1 << 30
"""BookKeeper's logSizeLimit: a log rolls before a record that would pass it."""
MAP_OFFSET_PLACE, MAP_OFFSET_BYTES = 8, 8
"""Where a header has its ledgersMapOffset."""
SIZE_BYTES = 4
"""The size field before each record."""

_HEADER = struct.Struct(
    ">4s"  # magic              b"BKLO"
    "i"  #   version            0 or 1
    "q"  #   ledgersMapOffset   a hint: 0 or garbage until the log is sealed
    "i"  #   ledgersCount
)
_MAP_HEAD = struct.Struct(
    ">i"  # size
    "q"  #  ledgerId  -1
    "q"  #  entryId   -2
    "i"  #  n
)
_MAP_ROW = struct.Struct(
    ">q"  # ledgerId
    "q"  #  bytes
)
_MAP_BODY_HEAD_BYTES = _MAP_HEAD.size - 4
_PADDING = 0xF0

_LOG_NAME = re.compile(r"([0-9a-fA-F]{1,16})\.log")


class EntryLogHeader(Struct, frozen=True):
    """The used fields of an entry log's header; ``ledgers_map_offset`` is in bytes from the start of the file."""

    version: int
    ledgers_map_offset: int
    ledgers_count: int

    @property
    def has_map(self) -> bool:
        """Whether the header claims a ledgers map; only ``decode_ledgers_map`` tells whether it is one."""
        return self.version >= 1 and self.ledgers_map_offset != 0


def decode_header(view: bytes | memoryview, where: str) -> EntryLogHeader:
    """Return the header at the start of an entry log.

    Raises EntryLogCorrupt if it is cut or lacks the magic, Unsupported for an unknown version. A log of 0 bytes is not
    damaged (BookKeeper preallocates the next log): decode a header only if it has bytes.
    """
    reader = Reader(view, where, EntryLogCorrupt)
    magic, version, offset, count = _HEADER.unpack(reader.take(HEADER_BYTES)[: _HEADER.size])
    if magic != MAGIC:
        raise EntryLogCorrupt(
            f"{where}: starts with {magic.hex()}, not {MAGIC.hex()} ({MAGIC.decode()})",
            where=where,
            expected=MAGIC.hex(),
            found=magic.hex(),
        )
    if not 0 <= version <= CURRENT_VERSION:
        raise Unsupported(
            f"{where}: entry log version {version}, known are 0 and 1",
            hint="a newer BookKeeper wrote it, or its header is damaged: do not delete it; a newer version of this toolkit may know it",
            where=where,
            version=version,
        )
    return EntryLogHeader(version, offset, count)


def encode_header(header: EntryLogHeader) -> bytes:
    """Return the 1024 bytes of a header, unused bytes zero."""
    packed = _HEADER.pack(MAGIC, header.version, header.ledgers_map_offset, header.ledgers_count)
    return packed.ljust(HEADER_BYTES, b"\0")


def decode_ledgers_map(view: bytes | memoryview, header: EntryLogHeader, where: str) -> dict[int, int]:
    """Return ledger id → bytes from the map to which a log's header points; ``view`` is the whole log.

    The map is believed only if it passes every check of BookKeeper (version, offset, ids, sizes, count) and the
    offset, ids and byte counts are possible; raises EntryLogCorrupt otherwise, also if there is no map: scan the log
    then.
    """
    offset = header.ledgers_map_offset
    if not header.has_map or not HEADER_BYTES <= offset < len(view):
        raise _map_error(where, "no ledgers map in the header", f"{HEADER_BYTES} <= offset < {len(view)}", offset)
    data = memoryview(view)
    sizes: dict[int, int] = {}
    while offset < len(data):
        head = bytes(data[offset : offset + 4])
        # Zeros of a preallocated tail, or the direct logger's padding, which is negative as a size.
        if head[0] == _PADDING or head.count(0) == len(head):
            break
        offset = _decode_map_batch(data, offset, where, sizes)
    if header.ledgers_count <= 0 or len(sizes) != header.ledgers_count:
        raise _map_error(where, "ledgers map and header disagree", header.ledgers_count, len(sizes))
    return sizes


def decode_trusted_map(view: bytes | memoryview, header: EntryLogHeader) -> dict[int, int] | None:
    """Return the ledger id → bytes that a bookie's garbage collection takes from a log, None where it reads the records instead.

    ``DefaultEntryLogger.extractEntryLogMetadataFromIndex`` checks less than ``decode_ledgers_map``: a size may be 0, or that of the last
    batch too large. For an offset without a map and a count of 0, bookies before 4.16.7 and 4.17.2 take the log for an empty one.
    """
    offset = header.ledgers_map_offset
    if not header.has_map or offset < 0:
        return None
    data = memoryview(view)
    sizes: dict[int, int] = {}
    while offset < len(data):
        head = bytes(data[offset : offset + _MAP_HEAD.size])
        size = int.from_bytes(head[:SIZE_BYTES], "big", signed=True)
        if size <= 0 and len(head) >= SIZE_BYTES:
            break
        rows = data[offset + _MAP_HEAD.size : offset + SIZE_BYTES + size]
        if len(head) < _MAP_HEAD.size:
            return None
        _, ledger_id, entry_id, count = _MAP_HEAD.unpack(head)
        if (ledger_id, entry_id) != (-1, -2) or len(rows) != _MAP_ROW.size * max(count, 0):
            return None
        for ledger, size_bytes in _MAP_ROW.iter_unpack(rows):
            sizes[ledger] = sizes.get(ledger, 0) + size_bytes
            if ledger < 0 or sizes[ledger] < 0:
                return None
        offset += SIZE_BYTES + size
    return sizes if len(sizes) == header.ledgers_count else None


def encode_ledgers_map(sizes: Mapping[int, int]) -> bytes:
    """Return the map records for ledger id → bytes, 10000 ledgers per record."""
    rows = iter(sizes.items())
    parts: list[bytes] = []
    while batch := list(islice(rows, MAP_BATCH_LEDGERS)):
        parts.append(_MAP_HEAD.pack(_MAP_BODY_HEAD_BYTES + _MAP_ROW.size * len(batch), -1, -2, len(batch)))
        parts.extend(_MAP_ROW.pack(ledger_id, size_bytes) for ledger_id, size_bytes in batch)
    return b"".join(parts)


def encode_location(log_id: int, pos: int) -> int:
    """Return the index value for a byte position in a log; the position is after the size field, at the record's ledger id."""
    return log_id << 32 | pos


def decode_location(value: int) -> tuple[int, int]:
    """Return (log id, pos) of an index value; the record's size field is at pos - 4."""
    return value >> 32, value & 0xFFFFFFFF


def log_file_name(log_id: int) -> str:
    """Return the file name of an entry log: lower-case hex without padding."""
    return f"{log_id:x}.log"


def log_id_of(name: str) -> int | None:
    """Return the log id in a file name, None for other files.

    Ask only about files directly in a bookie's ``current``: RocksDB's write-ahead files match as well.
    """
    match = _LOG_NAME.fullmatch(name)
    return int(match[1], 16) if match else None


def _decode_map_batch(data: memoryview, offset: int, where: str, sizes: dict[int, int]) -> int:
    """Add one batch to ``sizes`` and return the offset after it."""
    if len(data) - offset < _MAP_HEAD.size:
        raise _map_error(where, f"ledgers map is cut @ {offset:#x}", _MAP_HEAD.size, len(data) - offset)
    size, ledger_id, entry_id, count = _MAP_HEAD.unpack_from(data, offset)
    if (ledger_id, entry_id) != (-1, -2):
        raise _map_error(where, f"no ledgers map @ {offset:#x}", [-1, -2], [ledger_id, entry_id])
    end: int = offset + 4 + size
    wanted = _MAP_BODY_HEAD_BYTES + _MAP_ROW.size * count
    if not 1 <= count <= MAP_BATCH_LEDGERS or size != wanted or end > len(data):
        raise _map_error(where, f"ledgers map @ {offset:#x} has {count} ledgers", wanted, size)
    for ledger, size_bytes in _MAP_ROW.iter_unpack(data[offset + _MAP_HEAD.size : end]):
        if ledger < 0 or size_bytes <= 0 or ledger in sizes:
            raise _map_error(where, f"ledgers map @ {offset:#x}", "new ledger >= 0, bytes > 0", [ledger, size_bytes])
        sizes[ledger] = size_bytes
    return end


def _map_error(where: str, what: str, expected: object, found: object) -> EntryLogCorrupt:
    return EntryLogCorrupt(
        f"{where}: {what}: expected {expected}, found {found}", where=where, expected=expected, found=found
    )
