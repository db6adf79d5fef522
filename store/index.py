"""Writing the location and time index: columns of scanned records → rows. Layout: ``store.codec.index``.

Imports numpy; only import, refresh and bulk commands load it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from store.catalog import iter_logs
from store.codec.index import (
    BLOCK_BITS,
    BLOCK_ENTRIES,
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
from store.scan.kernel import BAD_DIGEST, HAS_BROKER_TIME, UNFRAMED

Records = np.ndarray[Any, np.dtype[np.void]]  # of store.scan.kernel.RECORD
Array = np.ndarray[Any, Any]  # a column; its dtype is stated where it is made


class Indexer:
    """Indexes the records of one file within TXN: ``add`` every batch, then ``finish``."""

    def __init__(self, txn: Txn, file_id: int, *, is_journal: bool) -> None:
        self._txn = txn
        self._file_id = file_id
        journals = {log.file_id for log in iter_logs(txn) if log.kind == "journal"}
        self._journals = frozenset(journals | {file_id} if is_journal else journals)
        self._lacs: dict[int, int] = {}

    def add(self, records: Records) -> None:
        """Index one batch."""
        index_records(self._txn, self._file_id, records, self._journals)
        for ledger_id, lac in largest_lacs(records).items():
            self._lacs[ledger_id] = max(lac, self._lacs.get(ledger_id, -1))

    def finish(self) -> None:
        """Write the time rows of every ledger that got records."""
        index_ledger_times(self._txn, self._lacs)


def index_records(txn: Txn, file_id: int, records: Records, journals: frozenset[int] = frozenset()) -> int:
    """Add RECORDS of file FILE_ID to the location index; return how many entries were not there before.

    Where an entry has several records the same one wins whatever the order of scans: an entry log's before a journal's (the
    files in JOURNALS), that of the newest log and of the oldest journal, the last in a log and the first in a journal.
    Records with a bad digest are left out. ``index_ledger_times`` must follow.
    """
    good = records[records["flags"] & BAD_DIGEST == 0]
    if not len(good):
        return 0
    ledgers = good["ledger_id"]
    same_ledger = ledgers[1:] == ledgers[:-1]
    ascending = (ledgers[1:] > ledgers[:-1]) | (same_ledger & (good["entry_id"][1:] > good["entry_id"][:-1]))
    if not ascending.all():
        good = _sorted(good, keep_first=file_id in journals)
        ledgers = good["ledger_id"]
    blocks = good["entry_id"] >> BLOCK_BITS
    starts = np.flatnonzero(np.append(True, (ledgers[1:] != ledgers[:-1]) | (blocks[1:] != blocks[:-1])))
    runs = _Runs(good, starts)
    ends = np.append(starts[1:], len(good))
    new = 0
    for run, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        key = block_key(int(ledgers[start]), int(blocks[start]))
        before = txn.get("entries", key)
        if before is None:
            txn.put("entries", key, runs.block(run, start, end, file_id))
            new += end - start
        else:
            new += _merge(txn, (key, before), good[start:end], file_id, journals)
    return new


def _sorted(records: Records, *, keep_first: bool) -> Records:
    """Return RECORDS by ledger and entry, one for each entry: the first or the last of it."""
    order = np.lexsort((np.arange(len(records)), records["entry_id"], records["ledger_id"]))
    records = records[order]
    ledgers, entries = records["ledger_id"], records["entry_id"]
    differs = (ledgers[1:] != ledgers[:-1]) | (entries[1:] != entries[:-1])
    kept: Records = records[np.append(True, differs) if keep_first else np.append(differs, True)]
    return kept


class _Runs:
    """The records of one batch, cut into blocks, with the sums of every block computed at once."""

    def __init__(self, records: Records, starts: Array) -> None:
        framed = records["flags"] & UNFRAMED == 0
        broker = records["flags"] & HAS_BROKER_TIME != 0
        payload = np.maximum(records["size"].astype(np.int64) - 32 - records["digest_bytes"], 0)
        messages = _message_counts(records)
        self.records = records
        self.messages = np.add.reduceat(messages.astype(np.int64), starts).tolist()
        self.all_single = np.logical_and.reduceat(messages == 1, starts).tolist()
        self.payload_bytes = np.add.reduceat(payload, starts).tolist()
        self.publish_min = np.minimum.reduceat(np.where(framed, records["publish_ms"], NO_MIN), starts).tolist()
        self.publish_max = np.maximum.reduceat(np.where(framed, records["publish_ms"], NO_MAX), starts).tolist()
        self.broker_min = np.minimum.reduceat(np.where(broker, records["broker_ms"], NO_MIN), starts).tolist()
        self.broker_max = np.maximum.reduceat(np.where(broker, records["broker_ms"], NO_MAX), starts).tolist()
        auto = np.where(broker, records["broker_ms"], records["publish_ms"])
        self.auto_min = np.minimum.reduceat(np.where(framed, auto, NO_MIN), starts).tolist()
        self.auto_max = np.maximum.reduceat(np.where(framed, auto, NO_MAX), starts).tolist()
        self.broker_count = np.add.reduceat(broker.astype(np.int64), starts).tolist()
        self.unframed = np.add.reduceat((~framed).astype(np.int64), starts).tolist()
        self.offsets = records["offset"].astype("<u4")
        self.sizes = records["size"].astype("<u4")
        self.slots = (records["entry_id"] & (BLOCK_ENTRIES - 1)).astype("<u2")
        self.message_counts = messages

    def block(self, run: int, start: int, end: int, file_id: int) -> bytes:
        """Return the location block of records[start:end], which all lie in FILE_ID."""
        count = end - start
        first, last = int(self.slots[start]), int(self.slots[end - 1])
        flags = (SLOTS if last - first != count - 1 else 0) | (0 if self.all_single[run] else MESSAGES)
        header = BlockHeader(
            count,
            flags,
            file_id,
            self.messages[run],
            self.payload_bytes[run],
            self.publish_min[run],
            self.publish_max[run],
            self.broker_min[run],
            self.broker_max[run],
            self.auto_min[run],
            self.auto_max[run],
            self.broker_count[run],
            int(self.records["digest_bytes"][start]),
            self.unframed[run],
            first,
        )
        parts = [header.pack(), self.offsets[start:end].tobytes(), self.sizes[start:end].tobytes()]
        if flags & MESSAGES:
            parts.append(self.message_counts[start:end].tobytes())
        if flags & SLOTS:
            parts.append(self.slots[start:end].tobytes())
        return b"".join(parts)


def _message_counts(records: Records) -> Array:
    """Return the messages of each record as u32; a batch that claims a negative number has none."""
    counts: Array = np.maximum(records["messages"], 0).astype("<u4")
    return counts


def _merge(txn: Txn, row: tuple[bytes, bytes], records: Records, file_id: int, journals: frozenset[int]) -> int:
    """Merge RECORDS (one block, ascending) into the existing block ROW; return the number of new entries."""
    key, value = row
    block = Block(key, value)
    header = block.header
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
        return 0
    records, new_slots, fresh = records[wins], new_slots[wins], fresh[wins]
    there[new_slots] = True
    offsets[new_slots], sizes[new_slots] = records["offset"], records["size"]
    messages[new_slots], files[new_slots] = _message_counts(records), file_id
    added = _Runs(records[fresh], np.zeros(1, np.int64)) if fresh.any() else None
    txn.put("entries", key, _pack_merged(header, added, (there, offsets, sizes, messages, files)))
    return int(fresh.sum())


def _wins(file_id: int, others: Array, journals: frozenset[int]) -> Array:
    """Whether a record of file FILE_ID takes the place of one in each of the files OTHERS; rule: ``index_records``."""
    is_journal: Array = np.isin(others, np.array(sorted(journals), "<u4"))
    if file_id in journals:
        return is_journal & (others > file_id)
    return is_journal | (others <= file_id)


def _pack_merged(header: BlockHeader, added: _Runs | None, columns: tuple[Array, Array, Array, Array, Array]) -> bytes:
    there, offsets, sizes, messages, files = columns
    slots = np.flatnonzero(there).astype("<u2")
    count = len(slots)
    one_file = bool((files[slots] == files[slots[0]]).all())
    total_messages = int(messages[slots].sum(dtype=np.int64))
    flags = SLOTS if int(slots[-1]) - int(slots[0]) != count - 1 else 0
    flags |= (0 if (messages[slots] == 1).all() else MESSAGES) | (0 if one_file else FILES)
    payload_bytes = int(np.maximum(sizes[slots].astype(np.int64) - 32 - header.digest_bytes, 0).sum())
    merged = BlockHeader(
        count,
        flags,
        int(files[slots[0]]),
        total_messages,
        payload_bytes,
        min(header.publish_min_ms, added.publish_min[0]) if added else header.publish_min_ms,
        max(header.publish_max_ms, added.publish_max[0]) if added else header.publish_max_ms,
        min(header.broker_min_ms, added.broker_min[0]) if added else header.broker_min_ms,
        max(header.broker_max_ms, added.broker_max[0]) if added else header.broker_max_ms,
        min(header.auto_min_ms, added.auto_min[0]) if added else header.auto_min_ms,
        max(header.auto_max_ms, added.auto_max[0]) if added else header.auto_max_ms,
        header.broker_count + (added.broker_count[0] if added else 0),
        header.digest_bytes,
        header.unframed + (added.unframed[0] if added else 0),
        int(slots[0]),
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
    """Return ledger → largest last-add-confirmed among RECORDS with a good digest."""
    good = records[records["flags"] & BAD_DIGEST == 0]
    if not len(good):
        return {}
    ledgers, inverse = np.unique(good["ledger_id"], return_inverse=True)
    largest = np.full(len(ledgers), -1, np.int64)
    np.maximum.at(largest, inverse, good["lac"])
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
