"""Writing the location and time index: columns of scanned records → rows. Layout: ``store.codec.index``.

Imports numpy; only import, refresh and bulk commands load it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from store.catalog import iter_logs
from store.codec.index import (
    BLOCK_BITS,
    BLOCK_ENTRIES,
    BLOCK_HEADER,
    FILES,
    MESSAGES,
    NO_MAX,
    NO_MIN,
    SLOTS,
    Block,
    BlockHeader,
    LedgerSums,
    block_key,
    block_of_key,
    decode_times,
    encode_times,
    ledger_key,
)
from store.meta import Txn
from store.scan.blocks import RUN, sum_blocks
from store.scan.kernel import BAD_DIGEST

Records = np.ndarray[Any, np.dtype[np.void]]  # of store.scan.kernel.RECORD
Array = np.ndarray[Any, Any]  # a column; its dtype is stated where it is made


class Indexer:
    """Indexes the records of one file within TXN: ``add`` every batch, then ``finish``.

    Where an entry has several records the same one wins whatever the order of scans: an entry log's before a journal's,
    that of the newest log and of the oldest journal, the last in a log and the first in a journal. Records with a bad digest
    are left out.
    """

    def __init__(self, txn: Txn, file_id: int, *, is_journal: bool) -> None:
        self._txn = txn
        self._file_id = file_id
        journals = {log.file_id for log in iter_logs(txn) if log.kind == "journal"}
        self._journals = frozenset(journals | {file_id} if is_journal else journals)
        self._lacs: dict[int, int] = {}

    def add(self, records: Records) -> None:
        """Index one batch."""
        runs = _Runs(records)
        if not runs.in_order:
            records = records[records["flags"] & BAD_DIGEST == 0]
            self._note_lacs(largest_lacs(records).items())
            runs = _Runs(_sorted(records, keep_first=self._file_id in self._journals))
        self._note_lacs((run.ledger_id, run.max_lac) for run in runs.rows)
        for run in runs.rows:
            key = block_key(run.ledger_id, run.block)
            before = self._txn.get("entries", key)
            if before is None:
                self._txn.put("entries", key, runs.block(run, self._file_id))
            else:
                _merge(self._txn, (key, before), (runs, run), self._file_id, self._journals)

    def _note_lacs(self, lacs: Iterable[tuple[int, int]]) -> None:
        for ledger_id, lac in lacs:
            self._lacs[ledger_id] = max(lac, self._lacs.get(ledger_id, -1))

    def finish(self) -> None:
        """Write the time rows of every ledger that got records."""
        index_ledger_times(self._txn, self._lacs)


def _sorted(records: Records, *, keep_first: bool) -> Records:
    """Return RECORDS by ledger and entry, one for each entry: the first or the last of it."""
    if not len(records):
        return records
    order = np.lexsort((np.arange(len(records)), records["entry_id"], records["ledger_id"]))
    records = records[order]
    ledgers, entries = records["ledger_id"], records["entry_id"]
    differs = (ledgers[1:] != ledgers[:-1]) | (entries[1:] != entries[:-1])
    kept: Records = records[np.append(True, differs) if keep_first else np.append(differs, True)]
    return kept


class _Run(NamedTuple):
    """A row of RUN."""

    start: int
    end: int
    ledger_id: int
    block: int
    messages: int
    payload_bytes: int
    publish_min_ms: int
    publish_max_ms: int
    broker_min_ms: int
    broker_max_ms: int
    auto_min_ms: int
    auto_max_ms: int
    broker_count: int
    unframed: int
    others: int
    max_lac: int


class _Runs:
    """The records of one batch, cut into blocks, with the sums of every block computed at once.

    ``in_order`` is false when some have a bad digest or they do not ascend: then there are no ``rows``.
    """

    def __init__(self, records: Records) -> None:
        found = np.empty(len(records), RUN)
        count = sum_blocks(records, found)
        self.in_order = count >= 0
        self.rows = [_Run(*row) for row in found[: max(count, 0)].tolist()]
        self.records = records
        if self.in_order:
            self.offsets = records["offset"].astype("<u4")
            self.sizes = records["size"].astype("<u4")
            self.slots = (records["entry_id"] & (BLOCK_ENTRIES - 1)).astype("<u2")

    def block(self, run: _Run, file_id: int) -> bytes:
        """Return the location block of RUN, whose records all lie in FILE_ID."""
        part = slice(run.start, run.end)
        first, last = int(self.slots[run.start]), int(self.slots[run.end - 1])
        flags = (SLOTS if last - first != run.end - run.start - 1 else 0) | (MESSAGES if run.others else 0)
        header = _header(run, flags, file_id, int(self.records["digest_bytes"][run.start]), first)
        parts = [header.pack(), self.offsets[part].tobytes(), self.sizes[part].tobytes()]
        if flags & MESSAGES:
            parts.append(_message_counts(self.records[part]).tobytes())
        if flags & SLOTS:
            parts.append(self.slots[part].tobytes())
        return b"".join(parts)


def _header(run: _Run, flags: int, file_id: int, digest_bytes: int, first_slot: int) -> BlockHeader:
    return BlockHeader(
        run.end - run.start,
        flags,
        file_id,
        run.messages,
        run.payload_bytes,
        run.publish_min_ms,
        run.publish_max_ms,
        run.broker_min_ms,
        run.broker_max_ms,
        run.auto_min_ms,
        run.auto_max_ms,
        run.broker_count,
        digest_bytes,
        run.unframed,
        first_slot,
    )


def _message_counts(records: Records) -> Array:
    """Return the messages of each record as u32; a batch that claims a negative number has none."""
    counts: Array = np.maximum(records["messages"], 0).astype("<u4")
    return counts


def _append(block: Block, value: bytes, added: tuple[_Runs, _Run], file_id: int) -> bytes | None:
    """Return block VALUE with the records of ADDED behind its own; None unless that is all it takes.

    This is what the end of every batch of a scan meets: the rest of a block whose beginning was in the batch before.
    """
    (runs, run), header = added, block.header
    follows = int(runs.slots[run.start]) == header.first_slot + header.count
    dense = int(runs.slots[run.end - 1]) - int(runs.slots[run.start]) == run.end - run.start - 1
    if header.flags or run.others or header.file_id != file_id or not (follows and dense):
        return None
    grown = _joined(header, run)
    offsets = BLOCK_HEADER.size
    sizes = offsets + 4 * header.count
    part = slice(run.start, run.end)
    new_offsets, new_sizes = runs.offsets[part].tobytes(), runs.sizes[part].tobytes()
    return b"".join((grown.pack(), value[offsets:sizes], new_offsets, value[sizes:], new_sizes))


def _joined(header: BlockHeader, run: _Run) -> BlockHeader:
    """Return the header of a block whose records are followed by those of RUN."""
    return replace(
        header,
        count=header.count + run.end - run.start,
        messages=header.messages + run.messages,
        payload_bytes=header.payload_bytes + run.payload_bytes,
        publish_min_ms=min(header.publish_min_ms, run.publish_min_ms),
        publish_max_ms=max(header.publish_max_ms, run.publish_max_ms),
        broker_min_ms=min(header.broker_min_ms, run.broker_min_ms),
        broker_max_ms=max(header.broker_max_ms, run.broker_max_ms),
        auto_min_ms=min(header.auto_min_ms, run.auto_min_ms),
        auto_max_ms=max(header.auto_max_ms, run.auto_max_ms),
        broker_count=header.broker_count + run.broker_count,
        unframed=header.unframed + run.unframed,
    )


def _merge(
    txn: Txn, row: tuple[bytes, bytes], added: tuple[_Runs, _Run], file_id: int, journals: frozenset[int]
) -> None:
    """Merge the records of ADDED (one block, ascending) into the existing block ROW."""
    (runs, run), (key, value) = added, row
    block = Block(key, value)
    grown = _append(block, value, added, file_id)
    if grown is not None:
        txn.put("entries", key, grown)
        return
    records, header = runs.records[run.start : run.end], block.header
    there = np.zeros(BLOCK_ENTRIES, bool)
    offsets = np.zeros(BLOCK_ENTRIES, "<u4")
    sizes, messages, files = offsets.copy(), offsets.copy(), offsets.copy()
    slots = np.asarray(block.slots(), "<u2")
    there[slots] = True
    files[slots], offsets[slots], sizes[slots] = block.files(), block.offsets(), block.sizes()
    messages[slots] = block.message_counts()
    new_slots = (records["entry_id"] & (BLOCK_ENTRIES - 1)).astype("<u2")
    fresh = ~there[new_slots]
    wins = fresh | _wins(file_id, files[new_slots], journals)
    if not wins.any():
        return
    records, new_slots, fresh = records[wins], new_slots[wins], fresh[wins]
    there[new_slots] = True
    offsets[new_slots], sizes[new_slots] = records["offset"], records["size"]
    messages[new_slots], files[new_slots] = _message_counts(records), file_id
    (only_fresh,) = _Runs(records[fresh]).rows if fresh.any() else (None,)
    joined = header if only_fresh is None else _joined(header, only_fresh)
    txn.put("entries", key, _pack_merged(joined, (there, offsets, sizes, messages, files)))


def _wins(file_id: int, others: Array, journals: frozenset[int]) -> Array:
    """Whether a record of file FILE_ID takes the place of one in each of the files OTHERS; rule: ``Indexer``."""
    is_journal: Array = np.isin(others, np.array(sorted(journals), "<u4"))
    if file_id in journals:
        return is_journal & (others > file_id)
    return is_journal | (others <= file_id)


def _pack_merged(joined: BlockHeader, columns: tuple[Array, Array, Array, Array, Array]) -> bytes:
    """Return a block of COLUMNS; JOINED has its times, the rest of the header is counted."""
    there, offsets, sizes, messages, files = columns
    slots = np.flatnonzero(there).astype("<u2")
    count = len(slots)
    one_file = bool((files[slots] == files[slots[0]]).all())
    flags = SLOTS if int(slots[-1]) - int(slots[0]) != count - 1 else 0
    flags |= (0 if (messages[slots] == 1).all() else MESSAGES) | (0 if one_file else FILES)
    merged = replace(
        joined,
        count=count,
        flags=flags,
        file_id=int(files[slots[0]]),
        messages=int(messages[slots].sum(dtype=np.int64)),
        payload_bytes=int(np.maximum(sizes[slots].astype(np.int64) - 32 - joined.digest_bytes, 0).sum()),
        first_slot=int(slots[0]),
    )
    parts = [merged.pack(), offsets[slots].tobytes(), sizes[slots].tobytes()]
    if flags & MESSAGES:
        parts.append(messages[slots].tobytes())
    if flags & FILES:
        parts.append(files[slots].tobytes())
    if flags & SLOTS:
        parts.append(slots.tobytes())
    return b"".join(parts)


def largest_lacs(records: Records) -> dict[int, int]:
    """Return ledger → largest last-add-confirmed among RECORDS."""
    ledgers, inverse = np.unique(records["ledger_id"], return_inverse=True)
    largest = np.full(len(ledgers), -1, np.int64)
    np.maximum.at(largest, inverse, records["lac"])
    return dict(zip(ledgers.tolist(), largest.tolist(), strict=True))


def index_ledger_times(txn: Txn, lacs: dict[int, int]) -> None:
    """Write the time rows of the ledgers in LACS (ledger → largest LAC seen now) from their location blocks."""
    for ledger_id, lac in lacs.items():
        key = ledger_key(ledger_id)
        before = txn.view("times", key)
        if before is not None:
            lac = max(lac, decode_times(ledger_id, before).sums.max_lac)
        rows = [(block_of_key(block)[1], *_ends(Block(block, value))) for block, value in txn.items("entries", key)]
        if rows:
            txn.put("times", key, _times_row(rows, lac))


def _ends(block: Block) -> tuple[BlockHeader, int]:
    """Return the block's header and last slot."""
    return block.header, block.slots()[-1]


def _times_row(blocks: list[tuple[int, BlockHeader, int]], lac: int) -> bytes:
    """Return the time row of BLOCKS: (number, header, last slot) in ascending order."""
    first_block, (last_block, _, last_slot) = blocks[0][0], blocks[-1]
    headers = [header for _, header, _ in blocks]
    sums = LedgerSums(
        first_block,
        sum(h.count for h in headers),
        (first_block << BLOCK_BITS) + blocks[0][1].first_slot,
        (last_block << BLOCK_BITS) + last_slot,
        sum(h.messages for h in headers),
        sum(h.payload_bytes for h in headers),
        min(h.publish_min_ms for h in headers),
        max(h.publish_max_ms for h in headers),
        min(h.broker_min_ms for h in headers),
        max(h.broker_max_ms for h in headers),
        sum(h.broker_count for h in headers),
        sum(h.unframed for h in headers),
        lac,
    )
    places = np.array([number - first_block for number, _, _ in blocks])
    columns = _running(places, [(h.publish_min_ms, h.publish_max_ms) for h in headers])
    if sums.broker_count:
        columns += _running(places, [(h.auto_min_ms, h.auto_max_ms) for h in headers])
    return encode_times(sums, columns)


def _running(places: Array, bounds: list[tuple[int, int]]) -> list[bytes]:
    """Return the running maximum (through) and minimum (from here on) columns; empty blocks repeat their neighbour."""
    smallest = np.full(int(places[-1]) + 1, NO_MIN, "<i8")
    largest = np.full(int(places[-1]) + 1, NO_MAX, "<i8")
    smallest[places] = [low for low, _ in bounds]
    largest[places] = [high for _, high in bounds]
    return [np.maximum.accumulate(largest).tobytes(), np.minimum.accumulate(smallest[::-1])[::-1].tobytes()]
