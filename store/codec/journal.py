"""Bookie journals: header and records; clean end, torn tail and damage are distinguished.

Source: ``Journal``, ``JournalChannel``, ``BookieImpl``, ``LedgerDescriptor``, ``LogMark``; BookKeeper 4.14 to 4.18.

======  =====================  ========================================================================
version header                 adds
======  =====================  ========================================================================
1       none                   (the file does not start with the magic)
2 3 4   8 bytes                magic ``BKLG``, version i32; 3: master-key records, 4: fence records
5 6     512 bytes              the same 8, then zeros; 5: padding records, 6: explicit LAC records
======  =====================  ========================================================================

Record:

======  ====  =========================================================================================
offset  size  field
======  ====  =========================================================================================
0       4     len i32
4       len   body: an entry (``entry``), or ledgerId i64, entryId i64 and:
              entryId -0x1000 master key: n i32, n bytes; -0x2000 fence: nothing;
              -0x8000 explicit LAC: n i32, n bytes
======  ====  =========================================================================================

Padding (version 5 and up): i32 -0x100, L i32, L zero bytes. Files are extended ahead of use, so a journal normally
ends in zeros, after a clean stop as well. No record has a checksum: decode entries with their digest checked.
"""

import struct
from collections.abc import Iterator

from msgspec import Struct

from pulsar_admin.store.codec.buffer import Bytes, run_end, written_end
from pulsar_admin.store.codec.entry import ENTRY_HEADER_BYTES
from pulsar_admin.store.codec.logscan import TornTail as TornTail
from pulsar_admin.store.codec.proof import Proofs
from pulsar_admin.store.errors import JournalCorrupt, Unsupported

MAGIC = b"BKLG"
LATEST_VERSION = 6
FIRST_PADDED_VERSION = 5
PADDED_HEADER_BYTES = 512

PADDING_MARK = -0x100
MASTER_KEY_ENTRY_ID = -0x1000
FENCE_ENTRY_ID = -0x2000
EXPLICIT_LAC_ENTRY_ID = -0x8000

_HEADER = struct.Struct(
    ">4s"  # magic    b"BKLG"
    "i"  #   version  2 to 6
)
_LEN = struct.Struct(">i")
_PAIR = struct.Struct(">ii")
_IDS = struct.Struct(
    ">q"  # ledgerId
    "q"  #  entryId
)


class JournalHeader(Struct, frozen=True):
    """Format version of a journal and the offset of its first record."""

    version: int
    header_bytes: int


class JournalEntry(Struct, frozen=True):
    """An entry: ``offset`` is that of the len field, ``size`` counts the body after it."""

    offset: int
    size: int
    ledger_id: int
    entry_id: int

    def body(self, view: bytes | memoryview) -> memoryview:
        """Return the entry's body as a view into the whole journal."""
        return memoryview(view)[self.offset + 4 : self.offset + 4 + self.size]


class MasterKey(Struct, frozen=True):
    """A ledger's master key, written before its first entry on this bookie."""

    offset: int
    ledger_id: int
    key: bytes


class Fence(Struct, frozen=True):
    """The ledger was fenced: no writer may add to it any more."""

    offset: int
    ledger_id: int


class ExplicitLac(Struct, frozen=True):
    """A ledger's explicit LAC, still in its buffer: ledgerId i64, lastAddConfirmed i64, the digest of these 16 bytes."""

    offset: int
    ledger_id: int
    buffer: bytes


class UnknownRecord(Struct, frozen=True):
    """A record with a negative entry id that BookKeeper skips."""

    offset: int
    size: int
    ledger_id: int
    entry_id: int


class Padding(Struct, frozen=True):
    """Filler up to the next alignment block; ``length`` includes its 8 bytes of head."""

    offset: int
    length: int


class Leftover(Struct, frozen=True):
    """First to last non-zero byte after the zero that ends the journal: lost pages, or a reused file.

    BookKeeper never reads them. A record there starts up to 3 bytes before ``offset``.
    """

    offset: int
    length: int


JournalItem = JournalEntry | MasterKey | Fence | ExplicitLac | UnknownRecord | Padding | TornTail | Leftover


def decode_header(view: bytes | Bytes, where: str) -> JournalHeader:
    """Return the header at the start of a journal; raises Unsupported for an unknown version.

    A file without the magic is version 1, which has no header. A file cut in its header has no records, and the offset
    of the first is beyond its end.
    """
    head = bytes(view[: _HEADER.size])
    if len(head) < _HEADER.size or not head.startswith(MAGIC):
        is_cut = len(head) < _HEADER.size and bool(head) and (head.startswith(MAGIC) or MAGIC.startswith(head))
        return JournalHeader(1, _HEADER.size if is_cut else 0)
    version: int = _HEADER.unpack(head)[1]
    if not 2 <= version <= LATEST_VERSION:
        raise Unsupported(
            f"{where}: journal version {version}, known are 1 to 6",
            hint="a newer BookKeeper wrote it, or its header is damaged: do not delete it; start the bookie with the BookKeeper that"
            " wrote it, or use a newer pulsar-admin",
            where=where,
            version=version,
        )
    return JournalHeader(version, _HEADER.size if version < FIRST_PADDED_VERSION else PADDED_HEADER_BYTES)


def encode_header(version: int) -> bytes:
    """Return the header bytes of a journal version 1 to 6."""
    if version == 1:
        return b""
    packed = _HEADER.pack(MAGIC, version)
    return packed if version < FIRST_PADDED_VERSION else packed.ljust(PADDED_HEADER_BYTES, b"\0")


def iter_records(
    view: bytes | Bytes, where: str, start: int | None = None, proofs: Proofs | None = None
) -> Iterator[JournalItem]:
    """Yield the records of a whole journal, from the record at ``start`` on (None: after the header).

    A clean end (nothing or zeros after the last record) yields nothing more; a record cut by the end of the file or by
    its zero tail yields TornTail and ends. Raises JournalCorrupt, with ``offset`` in its context, at any other bytes;
    everything before them has been yielded. Raises Unsupported for an unknown version, but not with ``start``, when
    the version was checked before. ``proofs``: of the view, kept from one call to the next.
    """
    data = memoryview(view) if isinstance(view, bytes) else view
    proofs = proofs or Proofs(data)
    if start is None or start <= 0:
        header = decode_header(data, where)
        pos, padded = header.header_bytes, header.version >= FIRST_PADDED_VERSION
    else:
        # A journal of a version that nobody knows may have padding.
        magic, version = _HEADER.unpack(data[: _HEADER.size]) if len(data) >= _HEADER.size else (b"", 0)
        pos, padded = start, magic == MAGIC and not 0 < version < FIRST_PADDED_VERSION
    limit = len(data)
    item: JournalItem
    while limit - pos >= _LEN.size:
        size = _LEN.unpack(data[pos : pos + _LEN.size])[0]
        if size == 0:
            break
        if size == PADDING_MARK and padded:
            item, pos = _padding(data, pos, where)
        elif size < _IDS.size:
            raise _corrupt(where, pos, "length of a record", f">= {_IDS.size}", size)
        elif pos + _LEN.size + size > limit:
            item, pos = TornTail(pos, _LEN.size + size, limit - pos), limit
        else:
            item = _record(data, pos, size, where, proofs)
            pos = limit if isinstance(item, TornTail) else pos + _LEN.size + size
        yield item
    # No record begins at ``pos``; zeros up to the end are the end of a journal that was extended ahead of use.
    written = run_end(data, pos, limit, 0)
    if written < limit and limit - pos < _LEN.size:
        yield TornTail(pos, _LEN.size, limit - pos)
    elif written < limit:
        yield Leftover(written, written_end(data, written, limit) - written)


def journal_id_of(name: str) -> int | None:
    """Return the journal id in a file name, None for other files; the first id of a bookie is a time in ms."""
    stem, dot, suffix = name.rpartition(".")
    if not dot or suffix != "txn" or not 1 <= len(stem) <= 16 or not set(stem) <= set("0123456789abcdefABCDEF"):
        return None
    return int(stem, 16)


def _padding(data: Bytes, pos: int, where: str) -> tuple[Padding | TornTail, int]:
    limit = len(data)
    if limit - pos < _PAIR.size:
        return TornTail(pos, _PAIR.size, limit - pos), limit
    length = _PAIR.unpack(data[pos : pos + _PAIR.size])[1]
    if length < 0:
        raise _corrupt(where, pos, "length of padding", ">= 0", length)
    end = pos + _PAIR.size + length
    # A wrong length must not swallow records: padding is zeros.
    stop = run_end(data, pos + _PAIR.size, min(end, limit), 0)
    if stop < min(end, limit):
        raise _corrupt(where, pos, f"padding @ {stop:#x}", 0, data[stop])
    if end > limit:
        return TornTail(pos, end - pos, limit - pos), limit
    return Padding(pos, end - pos), end


def _record(data: Bytes, pos: int, size: int, where: str, proofs: Proofs) -> JournalItem:
    body = data[pos + _LEN.size : pos + _LEN.size + size]
    ledger_id, entry_id = _IDS.unpack_from(body)
    if ledger_id < 0:
        raise _corrupt(where, pos, "ledger id", ">= 0", ledger_id)
    if entry_id >= 0:
        if size < ENTRY_HEADER_BYTES:
            raise _corrupt(where, pos, "length of an entry", f">= {ENTRY_HEADER_BYTES}", size)
        return _torn_by_zeros(data, pos, body, proofs) or JournalEntry(pos, size, ledger_id, entry_id)
    if entry_id == FENCE_ENTRY_ID:
        if size != _IDS.size:
            raise _corrupt(where, pos, "length of a fence record", _IDS.size, size)
        return Fence(pos, ledger_id)
    if entry_id in (MASTER_KEY_ENTRY_ID, EXPLICIT_LAC_ENTRY_ID):
        # The n bytes after the ids and the n of a meta record.
        start = _IDS.size + _LEN.size
        count = _LEN.unpack_from(body, _IDS.size)[0] if len(body) >= start else -1
        if count != len(body) - start:
            raise _corrupt(where, pos, "count in a meta record", len(body) - start, count)
        value = bytes(body[start:])
        if entry_id == MASTER_KEY_ENTRY_ID:
            return MasterKey(pos, ledger_id, value)
        return ExplicitLac(pos, ledger_id, value)
    return UnknownRecord(pos, size, ledger_id, entry_id)


def _torn_by_zeros(data: Bytes, pos: int, body: memoryview, proofs: Proofs) -> TornTail | None:
    """Return a TornTail if the entry at ``pos`` reaches into the zeros that end the file and its digest is wrong."""
    end = pos + _LEN.size + len(body)
    if body[-1] != 0 or run_end(data, end, min(end + _LEN.size, len(data)), 0) < min(end + _LEN.size, len(data)):
        return None
    if end < proofs.written_end(len(data)) or proofs.digest_type(pos + _LEN.size, end) is not None:
        return None
    return TornTail(pos, end - pos, _LEN.size + len(bytes(body).rstrip(b"\0")))


def _corrupt(where: str, offset: int, what: str, expected: object, found: object) -> JournalCorrupt:
    return JournalCorrupt(
        f"{where} @ {offset:#x}: {what}: expected {expected}, found {found}",
        where=where,
        offset=offset,
        expected=expected,
        found=found,
    )
