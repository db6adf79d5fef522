"""The reference scan of an entry log's records: it classifies every byte after the header, and trusts none unchecked.

Source: record framing of ``EntryLogManagerBase`` and ``directentrylogger.DirectWriter``; BookKeeper's own scans
(``DefaultEntryLogger.scanEntryLog``, ``LogReaderScan``) step byte by byte over what they do not understand and can
lose their place. Record:

======  =======  ======================================================================================
offset  size     field
======  =======  ======================================================================================
0       4        size i32: bytes after this field
4       8        ledgerId i64
12      8        entryId i64
20      size-16  rest of the entry (lastAddConfirmed i64, length i64, digest, payload)
======  =======  ======================================================================================

Ledger -1 marks records without data: entry -2 a batch of the ledgers map, entry 0 the filler in a direct log's first block.

Rules, in this order, at each position:

1. A *framed* record has 32 <= size <= min(256 MiB, bytes left), ledger and entry >= 0, lastAddConfirmed >= -1 and
   length >= 0. It is believed, unless its digest does not prove it and a record that is proved starts inside it,
   or, where what follows is not a record or the lengths in its ledger's entries count fewer bytes, a good one (rule 4) starts
   there: then its size field is wrong, and its bytes are unreadable up to there. Where they count just its bytes, for a digest
   of known size, its size field is right.
2. Ledger -1 records are stepped over by their size, which a map's count must confirm, and filler that is zeros.
3. Bytes 0xF0 are the direct logger's padding up to the next byte that differs.
4. Zeros up to the end were never written. Zeros before other bytes are lost pages: the record after them starts at
   the first of x-3, x-2, x-1, x (x: first byte not zero) that is *good*: framed, and its digest is right, or a good
   end follows (end, framed record, start of padding) or its ledger counts just its payload, and no record with a right
   digest begins inside it.
5. Anything else is unreadable up to the next good record; when there is none, and the bytes could be the head of a
   record that goes beyond the end, they are a torn tail.

Time is linear in the bytes, whatever they are: ``proof`` bounds what digests cost, and a position is looked at once by each rule.
"""

import struct
from collections.abc import Iterator
from enum import StrEnum
from itertools import chain
from typing import Any, NamedTuple

from msgspec import Struct

from pulsar_admin.store.codec.buffer import Bytes, run_end, written_end
from pulsar_admin.store.codec.proof import Proofs
from pulsar_admin.store.errors import EntryLogCorrupt

HEADER_BYTES = 1024
MAX_RECORD_BYTES = 256 << 20
RUN_RECORDS = 4  # this many in a row are not an accident
_LARGE_BYTES = 1 << 20

_FRAME = struct.Struct(
    ">i"  # size
    "q"  #  ledgerId
    "q"  #  entryId
    "q"  #  lastAddConfirmed
    "q"  #  length
)
_SIZE_BYTES = 4
_LEAST_BODY_BYTES = _FRAME.size - _SIZE_BYTES
HEAD_BYTES = _FRAME.size
_PADDING = 0xF0
_FIRST_CHUNK_BYTES, _CHUNK_BYTES = 1 << 12, 1 << 18


class Record(NamedTuple):
    """Where one entry lies in its log; a tuple, not a record, because there is one per entry.

    ``offset`` is that of the size field (index locations point 4 bytes further), ``size`` counts the body after it.
    """

    offset: int
    size: int
    ledger_id: int
    entry_id: int

    @property
    def end(self) -> int:
        """Offset of the first byte after the record."""
        return self.offset + _SIZE_BYTES + self.size

    def body(self, view: bytes | memoryview) -> memoryview:
        """Return the record's body, which starts at its ledger id, as a view into the whole log."""
        return memoryview(view)[self.offset + _SIZE_BYTES : self.end]


class GapReason(StrEnum):
    """Why bytes hold no records; the first two are not damage."""

    PADDING = "padding"
    UNWRITTEN = "unwritten"
    ZEROS = "zeros"
    UNREADABLE = "unreadable"


class Gap(Struct, frozen=True):
    """``length`` bytes from ``offset`` on that hold no records."""

    offset: int
    length: int
    reason: GapReason


class TornTail(Struct, frozen=True):
    """The file ends inside a record: ``wanted`` bytes with its size field (4 if even that is cut), of which ``got`` exist."""

    offset: int
    wanted: int
    got: int


def iter_records(
    view: bytes | Bytes, where: str, start: int = HEADER_BYTES, end: int | None = None, proofs: Proofs | None = None
) -> Iterator[Record | Gap | TornTail]:
    """Yield the items of a whole log, from the record at ``start`` to ``end``, in ascending order, without overlap.

    Damage is yielded, not raised; only ``end`` beyond the view raises EntryLogCorrupt, naming ``where``. A record whose digest
    does not prove it is also yielded, unless one that is proved begins inside it. ``proofs``: of the view, kept from one call to the next.
    """
    data = memoryview(view) if isinstance(view, bytes) else view
    limit = len(data) if end is None else end
    if limit > len(data) or start < 0:
        raise EntryLogCorrupt(
            f"{where}: wanted {limit} bytes, got {len(data)}", where=where, wanted=limit, got=len(data)
        )
    return _iter_records(data, start, limit, proofs or Proofs(data))


def _iter_records(data: Bytes, pos: int, limit: int, proofs: Proofs) -> Iterator[Record | Gap | TornTail]:
    held: Record | None = None  # until what follows it is known
    while pos < limit:
        record = _frame(data, pos, limit)
        # Rule 1: what nothing proves is no record where a good one begins inside it.
        if held is not None and held.ledger_id >= 0 and not _is_proved(held, proofs, in_turn=True):
            body, good = held.offset + _SIZE_BYTES, None
            # A size that is wrong by the difference of two digests would be right for the other one.
            is_counted = len(proofs.digest_sizes(held.ledger_id)) == 1 and proofs.is_counted(body, held.end)
            is_too_long = proofs.is_too_long(body, held.end)
            proofs.note(body)
            if is_too_long or (record is None and not is_counted):
                good = find_good(data, held.offset + 1, held.end, proofs, limit)
            elif not is_counted:  # by chance its size may lead to another record's beginning
                good = find_proved(data, held.offset + 1, held.end, proofs)
            if good is not None:
                yield Gap(held.offset, good - held.offset, GapReason.UNREADABLE)
                held, pos = None, good
                continue
        if held is not None and held.ledger_id >= 0:
            yield held
        held = record
        if record is not None:
            pos = record.end
        else:
            explained, pos = _explain(data, pos, limit, proofs)
            yield explained
    if held is not None and held.ledger_id >= 0:
        yield held


def _frame(data: Bytes, pos: int, limit: int) -> Record | None:
    """Return the record framed at ``pos`` (rules 1 and 2), ledger -1 included."""
    left = limit - pos - _SIZE_BYTES
    if left < _LEAST_BODY_BYTES:
        return None
    size, ledger_id, entry_id, last_add_confirmed, length = _FRAME.unpack(data[pos : pos + _FRAME.size])
    if not _LEAST_BODY_BYTES <= size <= left or size > MAX_RECORD_BYTES:
        return None
    if ledger_id >= 0:
        if entry_id < 0 or last_add_confirmed < -1 or length < 0:
            return None
    elif ledger_id != -1 or not _is_sized(data, pos, size, entry_id):
        return None
    return Record(pos, size, ledger_id, entry_id)


def _is_sized(data: Bytes, pos: int, size: int, entry_id: int) -> bool:
    """Whether the content of a record of ledger -1 confirms its size."""
    if entry_id == -2:
        return size == 20 + 16 * int.from_bytes(data[pos + 20 : pos + 24], "big")
    end = pos + _SIZE_BYTES + size
    return entry_id == 0 and run_end(data, pos + 20, end, 0) == end


def _is_proved(record: Record, proofs: Proofs, *, in_turn: bool = False) -> bool:
    return proofs.digest_type(record.offset + _SIZE_BYTES, record.end, in_turn=in_turn) is not None


def _explain(data: Bytes, pos: int, limit: int, proofs: Proofs) -> tuple[Gap | TornTail, int]:
    """Return the item at ``pos``, where no record is framed, and the position after it (rules 3 to 5)."""
    if data[pos] == _PADDING:
        stop = run_end(data, pos, limit, _PADDING)
        return Gap(pos, stop - pos, GapReason.PADDING), stop
    if data[pos] == 0:
        stop = run_end(data, pos, limit, 0)
        if stop == limit:
            return Gap(pos, limit - pos, GapReason.UNWRITTEN), limit
        behind = find_good(data, max(pos + 1, stop - 3), stop + 1, proofs, limit)  # its first bytes may also be zeros
        if behind is not None:
            return Gap(pos, behind - pos, GapReason.ZEROS), behind
    proofs.note(pos + _SIZE_BYTES)
    good = find_good(data, pos + 1, limit, proofs, limit)
    if good is not None:
        return Gap(pos, good - pos, GapReason.UNREADABLE), good
    wanted = _torn_bytes(data, pos, limit)
    if wanted is not None:
        return TornTail(pos, wanted, limit - pos), limit
    stop = written_end(data, pos, limit)
    return Gap(pos, stop - pos, GapReason.UNREADABLE), stop


def find_good(data: Bytes, start: int, stop: int, proofs: Proofs, limit: int | None = None) -> int | None:
    """Return the first position from ``start`` to ``stop`` of a good record, or None; no record goes beyond ``limit``."""
    limit = len(data) if limit is None else limit
    # By chance, where one that its digest proves begins inside it: sizes stay plausible when shifted.
    followed: Record | None = None
    for pos in iter_candidates(data, start, limit, proofs):
        if pos >= (stop if followed is None else followed.end):
            break
        record = _frame(data, pos, limit)
        if record is None or record.ledger_id < 0:
            continue
        if _is_proved(record, proofs):
            return pos if pos < stop else None
        if followed is None and (
            _is_followed(data, record.end, limit) or proofs.is_counted(pos + _SIZE_BYTES, record.end)
        ):
            followed = record
    return None if followed is None else followed.offset


def find_proved(data: Bytes, start: int, stop: int, proofs: Proofs) -> int | None:
    """Return the first position from ``start`` to ``stop`` where a record begins that its digest proves, or None."""
    for pos in iter_candidates(data, start, min(stop + HEAD_BYTES - 1, len(data)), proofs):
        record = _frame(data, pos, len(data))
        if record is not None and record.ledger_id >= 0 and _is_proved(record, proofs):
            return pos
    return None


def find_record(data: Bytes, start: int, stop: int, proofs: Proofs | None = None) -> int | None:
    """Return the first position from ``start`` to ``stop`` where a record begins, in the middle of an undamaged log; None: nowhere.

    Its digest proves it; for an unknown digest type, the first one that starts a run of records counts.
    """
    proofs = proofs or Proofs(data)
    in_run = None
    # By chance a byte before a head looks like one that claims a hundred megabytes: what begins in such a head is tried first, as an entry
    # that its digest proves lies in the payload of another one, or in none.
    large: list[Record] = []
    for pos in chain(iter_candidates(data, start, min(stop + HEAD_BYTES, len(data)), proofs), [len(data)]):
        while large and pos >= large[0].offset + HEAD_BYTES:
            if _is_proved(first := large.pop(0), proofs):
                return first.offset
        if pos >= stop:
            continue
        record = _frame(data, pos, len(data))
        if record is None or record.ledger_id < 0:
            continue
        if record.size > _LARGE_BYTES:
            large.append(record)
        elif _is_proved(record, proofs):
            return pos
        if in_run is None and _starts_run(data, record):
            in_run = pos
    return in_run


def _starts_run(data: Bytes, record: Record) -> bool:
    """Whether RUN_RECORDS more entries follow a record without a gap."""
    end = record.end
    for _ in range(RUN_RECORDS):
        following = _frame(data, end, len(data))
        if following is None or following.ledger_id < 0:
            return False
        end = following.end
    return True


def iter_candidates(data: Bytes, start: int, limit: int, proofs: Proofs) -> Iterator[int]:
    """Yield the positions from ``start`` to ``limit`` where the bytes look like the head of a record (also of a journal's entry)."""
    base, size, written = start, _FIRST_CHUNK_BYTES, proofs.written_end(limit)
    end = min(written + HEAD_BYTES - 1, limit)  # a head may end with zeros, and does not begin with them alone
    while base < written:
        import numpy as np  # only damage is looked through

        # A chunk and what a head that begins in it takes: no position is in two of them.
        chunk = np.frombuffer(data[base : min(base + size + HEAD_BYTES - 1, end)], np.uint8)
        if len(chunk) >= HEAD_BYTES:
            yield from (base + place for place in _places_of_heads(chunk))
        base, size = base + size, min(4 * size, _CHUNK_BYTES)


def _places_of_heads(chunk: Any) -> list[int]:  # Any: an array of numpy's, which only damage needs
    """Return the positions in a chunk that may be the head of a record that fits into it.

    Narrower than rule 1, so that few positions need a closer look: no size below 32, entry id and lastAddConfirmed
    below 2^48, length below 2^56.
    """
    count = len(chunk) - HEAD_BYTES + 1
    at = {place: chunk[place : place + count] for place in (0, 1, 2, 3, 4, 12, 13, 28)}
    sized = at[0] | at[1] | at[2] | (at[3] & 0xE0)
    likely = ((sized != 0) & ((at[12] | at[13] | at[28]) == 0)).nonzero()[0]
    confirmed = chunk[likely + 20]
    good = (at[0][likely] <= 0x10) & (at[4][likely] <= 0x7F) & (confirmed == chunk[likely + 21])
    found: list[int] = likely[good & ((confirmed == 0) | (confirmed == 0xFF))].tolist()
    return found


def _is_followed(data: Bytes, pos: int, limit: int) -> bool:
    if pos == limit or _frame(data, pos, limit) is not None:
        return True
    # Only where padding starts: any wrong size is likely to end somewhere inside a long one.
    return data[pos] == _PADDING and data[pos - 1] != _PADDING


def _torn_bytes(data: Bytes, pos: int, limit: int) -> int | None:
    """Return how many bytes the record cut at ``limit`` wanted, None if the bytes at ``pos`` are not a record's head."""
    head = bytes(data[pos : min(limit, pos + _FRAME.size)])
    if len(head) < _SIZE_BYTES:
        return _SIZE_BYTES
    size = int.from_bytes(head[:_SIZE_BYTES], "big", signed=True)
    if not _LEAST_BODY_BYTES <= size <= MAX_RECORD_BYTES or pos + _SIZE_BYTES + size <= limit:
        return None
    # A field cut in its middle keeps its sign, so the same limits hold for its remaining part.
    ledger_id, entry_id, last_add_confirmed, length = (
        int.from_bytes(head[at : at + 8], "big", signed=True) for at in range(_SIZE_BYTES, _FRAME.size, 8)
    )
    is_entry = ledger_id >= 0 and entry_id >= 0 and last_add_confirmed >= -1 and length >= 0
    is_map = ledger_id == -1 and -2 <= entry_id <= 0
    return _SIZE_BYTES + size if is_entry or is_map else None
