"""Writing the location and time index: runs of scanned records → rows. Layout: ``store.codec.index``.

Imports numpy; only import, refresh and bulk commands load it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

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
from store.scan.runs import HAS_BROKER, IS_UNFRAMED, Records, Run, Runs, pack_runs

Array = np.ndarray[Any, Any]  # a column; its dtype is stated where it is made


class Indexer:
    """Indexes records within TXN: ``add`` or ``merge`` every batch of any catalogued file, then ``finish``.

    Where an entry has several records the same one wins whatever the order of scans: an entry log's before a journal's,
    that of the newest log and of the oldest journal, the last in a log and the first in a journal. Records with a bad digest
    are left out. Two records of an entry have the same payload, so the sums of those that came first stay.
    """

    def __init__(self, txn: Txn, journals: Collection[int] = ()) -> None:
        """JOURNALS: ids of files that are journals and not in the catalogue yet."""
        self._txn = txn
        self._journals = frozenset(journals) | {log.file_id for log in iter_logs(txn) if log.kind == "journal"}
        self._lacs: dict[int, int] = {}

    def add(self, records: Records, file_id: int) -> None:
        """Index one batch of the file FILE_ID."""
        self.merge(pack_runs(records, keep_first=file_id in self._journals), file_id)

    def merge(self, runs: Runs, file_id: int) -> None:
        """Index the runs of one batch of the file FILE_ID."""
        for run, starts in zip(runs.rows, runs.starts(), strict=True):
            self._lacs[run.ledger_id] = max(run.max_lac, self._lacs.get(run.ledger_id, -1))
            key = block_key(run.ledger_id, run.block)
            part = _Part(runs, run, starts, file_id)
            before = self._txn.get("entries", key)
            value = part.pack() if before is None else _merge(Block(key, before), before, part, self._journals)
            if value is not None:
                self._txn.put("entries", key, value)

    def finish(self) -> None:
        """Write the time rows of every ledger that got records."""
        index_ledger_times(self._txn, self._lacs)


class _Part:
    """One run of RUNS: records of a block that lie in the file FILE_ID. STARTS: where its optional columns begin."""

    __slots__ = ("_runs", "_starts", "file_id", "offsets", "run", "sizes")

    def __init__(self, runs: Runs, run: Run, starts: tuple[int, int, int], file_id: int) -> None:
        self.run = run
        self.file_id = file_id
        self.offsets = runs.offsets[run.start : run.end]
        self.sizes = runs.sizes[run.start : run.end]
        self._runs = runs
        self._starts = starts

    def counts(self) -> Array:
        """Return the messages of each record (u32)."""
        if not self.run.others:
            return np.ones(self.run.length, "<u4")
        start = self._starts[0]
        return self._runs.counts[start : start + self.run.length]

    def slots(self) -> Array:
        """Return the slot of each record (u16)."""
        if not self.run.has_holes:
            return np.arange(self.run.first_slot, self.run.last_slot + 1, dtype="<u2")
        start = self._starts[1]
        return self._runs.slots[start : start + self.run.length]

    def kinds(self) -> Array:
        """Return the kind of each record: bits of ``store.scan.runs``."""
        run, start = self.run, self._starts[2]
        if 0 < run.unframed < run.length or 0 < run.broker_count < run.length:
            return self._runs.kinds[start : start + run.length]
        kind = (IS_UNFRAMED if run.unframed else 0) | (HAS_BROKER if run.broker_count else 0)
        return np.full(run.length, kind, "u1")

    def pack(self) -> bytes:
        """Return the location block of these records alone."""
        run = self.run
        flags = (SLOTS if run.has_holes else 0) | (MESSAGES if run.others else 0)
        header = BlockHeader(
            run.length,
            flags,
            self.file_id,
            run.messages,
            run.payload_bytes,
            run.publish_min_ms,
            run.publish_max_ms,
            run.broker_min_ms,
            run.broker_max_ms,
            run.auto_min_ms,
            run.auto_max_ms,
            run.broker_count,
            run.digest_bytes,
            run.unframed,
            run.first_slot,
        )
        parts = [header.pack(), self.offsets.tobytes(), self.sizes.tobytes()]
        if flags & MESSAGES:
            parts.append(self.counts().tobytes())
        if flags & SLOTS:
            parts.append(self.slots().tobytes())
        return b"".join(parts)


def _append(block: Block, value: bytes, part: _Part) -> bytes | None:
    """Return block VALUE with the records of PART behind its own; None unless that is all it takes.

    This is what the end of every batch of a scan meets: the rest of a block whose beginning was in the batch before.
    """
    run, header = part.run, block.header
    follows = run.first_slot == header.first_slot + header.count
    if header.flags or run.others or run.has_holes or header.file_id != part.file_id or not follows:
        return None
    grown = _joined(header, run, (run.broker_count, run.unframed))
    grown = replace(
        grown,
        count=header.count + run.length,
        messages=header.messages + run.messages,
        payload_bytes=header.payload_bytes + run.payload_bytes,
    )
    offsets = BLOCK_HEADER.size
    sizes = offsets + 4 * header.count
    return b"".join((grown.pack(), value[offsets:sizes], part.offsets.tobytes(), value[sizes:], part.sizes.tobytes()))


def _joined(header: BlockHeader, run: Run, added: tuple[int, int]) -> BlockHeader:
    """Return HEADER with the time bounds of RUN, and ADDED entries with a broker time and without a message header."""
    return replace(
        header,
        publish_min_ms=min(header.publish_min_ms, run.publish_min_ms),
        publish_max_ms=max(header.publish_max_ms, run.publish_max_ms),
        broker_min_ms=min(header.broker_min_ms, run.broker_min_ms),
        broker_max_ms=max(header.broker_max_ms, run.broker_max_ms),
        auto_min_ms=min(header.auto_min_ms, run.auto_min_ms),
        auto_max_ms=max(header.auto_max_ms, run.auto_max_ms),
        broker_count=header.broker_count + added[0],
        unframed=header.unframed + added[1],
    )


def _merge(block: Block, value: bytes, part: _Part, journals: frozenset[int]) -> bytes | None:
    """Return the existing BLOCK, whose bytes are VALUE, with the records of PART; None when none of them changes it."""
    grown = _append(block, value, part)
    if grown is not None:
        return grown
    header = block.header
    there = np.zeros(BLOCK_ENTRIES, bool)
    offsets = np.zeros(BLOCK_ENTRIES, "<u4")
    sizes, messages, files = offsets.copy(), offsets.copy(), offsets.copy()
    slots = np.asarray(block.slots(), "<u2")
    there[slots] = True
    files[slots], offsets[slots], sizes[slots] = block.files(), block.offsets(), block.sizes()
    messages[slots] = block.message_counts()
    new_slots = part.slots()
    fresh = ~there[new_slots]
    wins = fresh | _wins(part.file_id, files[new_slots], journals)
    if not wins.any():
        return None
    if fresh.any():
        kinds = part.kinds()[fresh]
        added = int(np.count_nonzero(kinds & HAS_BROKER)), int(np.count_nonzero(kinds & IS_UNFRAMED))
        header = _joined(header, part.run, added)
    new_slots = new_slots[wins]
    there[new_slots] = True
    offsets[new_slots], sizes[new_slots] = part.offsets[wins], part.sizes[wins]
    messages[new_slots], files[new_slots] = part.counts()[wins], part.file_id
    return _pack_merged(header, (there, offsets, sizes, messages, files))


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
