"""Entries of a topic as columns: places from the location index, bytes read in large runs, headers decoded by the kernel.

Nothing here makes an object an entry. Whoever needs more than the kernel knows works on ``EntryBatch.data`` with the offsets of
the batch (``store.scan.message_kernel``), and asks the ordinary readers about the few entries that are out of the ordinary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from store.codec.digest import DIGEST_SIZE, DigestType
from store.codec.index import Block
from store.errors import EntryCorrupt, EntryLogCorrupt
from store.ledgers import EntryReader, iter_blocks
from store.scan import kernel
from store.scan.kernel import BAD_DIGEST, UNFRAMED

Array = np.ndarray[Any, Any]  # a column; its dtype is stated where it is made
Part = tuple[int, int, int]
"""Entries of one ledger: (ledger id, first entry, last entry)."""

BATCH_BYTES = 8 << 20
BATCH_ENTRIES = 1 << 15
HEAD_BYTES = 512  # holds broker metadata and message metadata of nearly every entry
_LARGE_BYTES = 4096  # entries of this size and more are read head by head where heads are enough
_GAP_BYTES = 1 << 14  # what lies between two records is read as well when it is no more than this
_ENTRY_HEADER_BYTES = 32


@dataclass(slots=True)
class EntryBatch:
    """Entries in topic order. ``rows``: RECORD columns of each; ``data[offsets[i]:]`` begins with its size field.

    With ``heads`` only the first bytes of large entries are in ``data``: their metadata is complete, their payload is not.
    """

    ledger_ids: Array  # i64
    entry_ids: Array  # i64
    data: Array  # u8
    offsets: Array  # i64, into ``data``
    held: Array  # i64, bytes of the record's body that are in ``data``
    rows: Array  # kernel.RECORD

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def payload_bytes(self) -> Array:
        """Payload bytes of each entry, as LedgerInfo.size counts them."""
        sizes: Array = self.rows["size"].astype(np.int64) - _ENTRY_HEADER_BYTES - self.rows["digest_bytes"]
        return np.maximum(sizes, 0)

    def take(self, mask: Array) -> EntryBatch:
        """Return the entries where MASK is true; ``data`` is shared."""
        return EntryBatch(
            self.ledger_ids[mask],
            self.entry_ids[mask],
            self.data,
            self.offsets[mask],
            self.held[mask],
            self.rows[mask],
        )


@dataclass(slots=True)
class EntryScan:
    """One run over parts of a topic. After ``batches``: entries in no imported file, and entries that are damaged now."""

    reader: EntryReader
    parts: Iterable[Part]
    heads: bool = False
    batch_bytes: int = BATCH_BYTES
    missing: int = 0
    unreadable: list[EntryCorrupt | EntryLogCorrupt] = field(default_factory=list)

    def batches(self) -> Iterator[EntryBatch]:
        """Yield the entries in the order of the parts, in bounded memory."""
        pending: list[_Places] = []
        held_bytes = entries = 0
        for places in self._places():
            pending.append(places)
            held_bytes += int(places.sizes.sum(dtype=np.int64))
            entries += len(places.sizes)
            if held_bytes >= self.batch_bytes or entries >= BATCH_ENTRIES:
                yield self._read(pending)
                pending, held_bytes, entries = [], 0, 0
        if pending:
            yield self._read(pending)

    def _places(self) -> Iterator[_Places]:
        for ledger_id, first, last in self.parts:
            expected = last - first + 1
            for block in iter_blocks(self.reader.txn, ledger_id, first):
                low, high = block.index_of(first), block.index_of(last + 1)
                if high == 0:
                    break
                if high > low:
                    expected -= high - low
                    yield from _split(_Places.of(block, low, high), self.batch_bytes)
            self.missing += expected

    def _read(self, pending: list[_Places]) -> EntryBatch:
        places = _Places(*(np.concatenate([getattr(p, name) for p in pending]) for name in _Places.__slots__))
        batch = self._read_places(places)
        cut = (batch.rows["flags"] & UNFRAMED != 0) & (batch.held < places.sizes)
        if cut.any():
            self._read_whole(batch, places, np.flatnonzero(cut))
        return self._without_damaged(batch, places)

    def _read_places(self, places: _Places, *, whole: bool = False) -> EntryBatch:
        held = places.sizes.astype(np.int64)
        verify = True
        if self.heads and not whole and int(held.mean()) >= _LARGE_BYTES:
            held = np.minimum(held, _ENTRY_HEADER_BYTES + places.digests + HEAD_BYTES)
            verify = False  # the digest covers what is not read
        data, offsets = self._load(places, held)
        rows = np.zeros(len(held), kernel.RECORD)
        ledgers, first = np.unique(places.ledger_ids, return_index=True)
        known = (ledgers, places.digests[first].astype(np.int16))
        kernel.read_bodies(data, offsets, held, known, verify, rows)
        rows["size"] = places.sizes
        return EntryBatch(places.ledger_ids, places.entry_ids, data, offsets, held, rows)

    def _load(self, places: _Places, held: Array) -> tuple[Array, Array]:
        """Read the records' first 4 + HELD bytes; return (bytes, offset of each record in them)."""
        order = np.lexsort((places.offsets, places.files))
        files, starts = places.files[order], places.offsets[order].astype(np.int64)
        ends = starts + 4 + held[order]
        gaps = starts[1:] - ends[:-1]
        cuts = np.flatnonzero((files[1:] != files[:-1]) | (gaps < 0) | (gaps > _GAP_BYTES)) + 1
        firsts = np.append(0, cuts)
        lasts = np.append(cuts, len(order)) - 1
        lengths = ends[lasts] - starts[firsts]
        bases = np.cumsum(lengths) - lengths
        data = np.empty(int(lengths.sum()), np.uint8)
        for run, base in enumerate(bases.tolist()):
            raw = self.reader.files.read(int(files[firsts[run]]), int(starts[firsts[run]]), int(lengths[run]))
            data[base : base + len(raw)] = np.frombuffer(raw, np.uint8)
        runs = np.repeat(np.arange(len(firsts)), lasts - firsts + 1)
        offsets = np.empty(len(order), np.int64)
        offsets[order] = starts - starts[firsts][runs] + bases[runs]
        return data, offsets

    def _read_whole(self, batch: EntryBatch, places: _Places, indexes: Array) -> None:
        """Replace the entries at INDEXES, of which too little was read, in BATCH."""
        whole = self._read_places(_Places(*(getattr(places, name)[indexes] for name in _Places.__slots__)), whole=True)
        batch.offsets[indexes] = whole.offsets + len(batch.data)
        batch.held[indexes] = whole.held
        batch.rows[indexes] = whole.rows
        batch.data = np.concatenate([batch.data, whole.data])

    def _without_damaged(self, batch: EntryBatch, places: _Places) -> EntryBatch:
        """Leave out entries that are no longer what was imported, and note why."""
        rows = batch.rows
        size_field = batch.data[batch.offsets[:, None] + np.arange(4)].view(">i4")[:, 0]
        wrong = (rows["ledger_id"] != batch.ledger_ids) | (rows["entry_id"] != batch.entry_ids)
        wrong |= (size_field != places.sizes) | (rows["flags"] & BAD_DIGEST != 0)
        wrong |= places.digests == DIGEST_SIZE[DigestType.HMAC]  # the kernel cannot verify them
        for index in np.flatnonzero(wrong).tolist():
            place = (int(places.files[index]), int(places.offsets[index]), int(places.sizes[index]))
            try:
                self.reader.read_at(int(batch.ledger_ids[index]), int(batch.entry_ids[index]), place)
            except (EntryCorrupt, EntryLogCorrupt) as error:
                self.unreadable.append(error)
            else:
                wrong[index] = False
        return batch.take(~wrong) if wrong.any() else batch


@dataclass(slots=True)
class _Places:
    """Where entries lie, as columns."""

    ledger_ids: Array  # i64
    entry_ids: Array  # i64
    files: Array  # u32
    offsets: Array  # u32
    sizes: Array  # u32
    digests: Array  # i64, bytes of the digest

    @staticmethod
    def of(block: Block, low: int, high: int) -> _Places:
        """Return the places of entries LOW to HIGH (excluded) of BLOCK, copied out of the map."""
        count = high - low
        files = block.files()
        slots = np.asarray(block.slots()[low:high], np.int64)
        return _Places(
            np.full(count, block.ledger_id, np.int64),
            block.entry_id(low) - slots[0] + slots,
            np.full(count, files, np.uint32) if isinstance(files, int) else np.array(files[low:high], np.uint32),
            np.array(block.offsets()[low:high], np.uint32),
            np.array(block.sizes()[low:high], np.uint32),
            np.full(count, block.header.digest_bytes, np.int64),
        )


def _split(places: _Places, batch_bytes: int) -> Iterator[_Places]:
    """Cut one block's places where their entries pass BATCH_BYTES: a block may hold gigabytes."""
    total = np.cumsum(places.sizes, dtype=np.int64)
    if int(total[-1]) <= 2 * batch_bytes:
        yield places
        return
    groups = (total - places.sizes) // batch_bytes
    cuts = np.flatnonzero(groups[1:] != groups[:-1]) + 1
    for low, high in zip(np.append(0, cuts), np.append(cuts, len(groups)), strict=True):
        yield _Places(*(getattr(places, name)[low:high] for name in _Places.__slots__))
