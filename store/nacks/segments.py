"""Sealed negative acks: blocks of (bucket, ledger) rows with their bitmaps serialized, in a few sorted segments.

A live bitmap object costs about 600 bytes whatever it holds, which at 256 entries a bucket is more than the entries.
So all but the newest rows are kept as Roaring bytes in columns (20 bytes a row and the bitmap, 27 bytes for one run).
Segments are merged eight at a time, so there are few of them and a row is moved a logarithmic number of times.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from pulsar_admin.store.nacks.bitmaps import Bytes, Int64s, Uint32s, decode_groups, encode_groups, ranges
from pulsar_admin.store.nacks.rows import group_rows

BLOCK_ROWS = 4096
"""Rows of a block: a popped block is freed whole, so this bounds what lingers, and what one step may copy."""

NO_BUCKET = 1 << 63
"""Greater than every bucket: the head of nothing."""


class Block(Struct, frozen=True):
    """Rows strictly increasing by (bucket, ledger); ``lengths[i]`` bytes of ``bitmaps`` belong to row i."""

    buckets: Int64s
    ledgers: Int64s
    lengths: Uint32s
    bitmaps: Bytes

    @property
    def size_bytes(self) -> int:
        return self.buckets.nbytes + self.ledgers.nbytes + self.lengths.nbytes + self.bitmaps.nbytes


class Segment:
    """A sorted sequence of blocks that is only ever consumed from its front."""

    __slots__ = ("_blocks", "_byte", "_row", "head", "rows")

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._blocks = deque(block for block in blocks if len(block.buckets))
        self._row = 0
        self._byte = 0
        self.rows = sum(len(block.buckets) for block in self._blocks)
        self.head = NO_BUCKET
        self._find_head()

    @property
    def size_bytes(self) -> int:
        """Bytes of the columns and bitmaps still held."""
        return sum(block.size_bytes for block in self._blocks)

    def blocks(self) -> Iterator[Block]:
        """Yield what is left, without copying."""
        for index, block in enumerate(self._blocks):
            yield block if index or not self._row else self._part(block, len(block.buckets))[0]

    def pop_until(self, last_bucket: int) -> list[Block]:
        """Remove and return the rows whose bucket is LAST_BUCKET or earlier; nothing behind them is read."""
        popped = []
        while self.head <= last_bucket:
            block = self._blocks[0]
            stop = int(np.searchsorted(block.buckets, last_bucket, side="right"))
            part, end = self._part(block, stop)
            popped.append(part)
            self.rows -= stop - self._row
            if stop == len(block.buckets):
                self._blocks.popleft()
                stop, end = 0, 0
            self._row, self._byte = stop, end
            self._find_head()
        return popped

    def _part(self, block: Block, stop: int) -> tuple[Block, int]:
        rows = slice(self._row, stop)
        lengths = block.lengths[rows]
        end = self._byte + int(lengths.sum(dtype=np.int64))
        return Block(block.buckets[rows], block.ledgers[rows], lengths, block.bitmaps[self._byte : end]), end

    def _find_head(self) -> None:
        self.head = int(self._blocks[0].buckets[self._row]) if self._blocks else NO_BUCKET


def cut_blocks(rows: Block) -> Iterator[Block]:
    """Yield ROWS in blocks of ``BLOCK_ROWS``, as views."""
    byte = 0
    for start in range(0, len(rows.buckets), BLOCK_ROWS):
        cut = slice(start, start + BLOCK_ROWS)
        end = byte + int(rows.lengths[cut].sum(dtype=np.int64))
        yield Block(rows.buckets[cut], rows.ledgers[cut], rows.lengths[cut], rows.bitmaps[byte:end])
        byte = end


def encode_blocks(buckets: Int64s, ledgers: Int64s, starts: Int64s, entry_ids: Int64s) -> list[Block]:
    """Return the blocks of sorted rows: row i holds ``entry_ids[starts[i]:starts[i + 1]]``, strictly increasing."""
    blocks = []
    for first in range(0, len(buckets), BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, len(buckets))
        begin, end = int(starts[first]), int(starts[last])
        lengths, bitmaps = encode_groups(starts[first : last + 1] - begin, entry_ids[begin:end])
        blocks.append(Block(buckets[first:last].copy(), ledgers[first:last].copy(), lengths, bitmaps))
    return blocks


def join_blocks(blocks: Sequence[Block]) -> Block:
    """Return the rows of BLOCKS one after the other, copied."""
    if not blocks:
        none = np.empty(0, dtype=np.int64)
        return Block(none, none, none.astype(np.uint32), none.astype(np.uint8))
    return Block(
        np.concatenate([block.buckets for block in blocks]),
        np.concatenate([block.ledgers for block in blocks]),
        np.concatenate([block.lengths for block in blocks]),
        np.concatenate([block.bitmaps for block in blocks]),
    )


def merge_blocks(blocks: Sequence[Block]) -> list[Block]:
    """Return the union of BLOCKS, which may overlap in any way, as sorted blocks."""
    if _in_order(blocks):
        return list(blocks)
    rows = join_blocks(blocks)
    order = np.lexsort((rows.ledgers, rows.buckets))
    buckets, ledgers, lengths = rows.buckets[order], rows.ledgers[order], rows.lengths[order]
    offsets = (np.cumsum(rows.lengths, dtype=np.int64) - rows.lengths)[order]
    repeated = np.zeros(len(order) + 1, dtype=np.bool_)
    repeated[1:-1] = (buckets[1:] == buckets[:-1]) & (ledgers[1:] == ledgers[:-1])
    bitmaps = rows.bitmaps
    if repeated.any():
        shared = np.flatnonzero(repeated[:-1] | repeated[1:])
        keys: Int64s = np.cumsum(~repeated[:-1], dtype=np.int64)[shared]
        raw = _gather(bitmaps, offsets[shared], lengths[shared])
        new_lengths, united = _unite(keys, lengths[shared], raw)
        kept = np.flatnonzero(~repeated[:-1])
        buckets, ledgers, lengths, offsets = buckets[kept], ledgers[kept], lengths[kept], offsets[kept]
        targets = np.unique(keys) - 1
        lengths[targets] = new_lengths
        offsets[targets] = len(bitmaps) + np.cumsum(new_lengths, dtype=np.int64) - new_lengths
        bitmaps = np.concatenate((bitmaps, united))
    return _gather_blocks(buckets, ledgers, lengths, offsets, bitmaps)


def _in_order(blocks: Sequence[Block]) -> bool:
    """Whether each block begins behind the end of the one before, and none is far too small to stay by itself."""
    small = sum(len(block.buckets) < BLOCK_ROWS // 4 for block in blocks)
    if small > 1:
        return False
    return all(
        (int(left.buckets[-1]), int(left.ledgers[-1])) < (int(right.buckets[0]), int(right.ledgers[0]))
        for left, right in itertools.pairwise(blocks)
    )


def _unite(keys: Int64s, lengths: Uint32s, bitmaps: Bytes) -> tuple[Uint32s, Bytes]:
    """Return one bitmap per key: the union of those that carry it. KEYS do not decrease."""
    starts, entry_ids = decode_groups(lengths, bitmaps)
    owners = np.repeat(keys, np.diff(starts))
    _, _, starts, entry_ids = group_rows(owners, np.zeros_like(owners), entry_ids, 0)
    return encode_groups(starts, entry_ids)


def _gather(bitmaps: Bytes, offsets: Int64s, lengths: Uint32s) -> Bytes:
    return bitmaps[ranges(offsets, lengths.astype(np.int64))]


def _gather_blocks(buckets: Int64s, ledgers: Int64s, lengths: Uint32s, offsets: Int64s, bitmaps: Bytes) -> list[Block]:
    blocks = []
    for start in range(0, len(buckets), BLOCK_ROWS):
        cut = slice(start, start + BLOCK_ROWS)
        raw = _gather(bitmaps, offsets[cut], lengths[cut])
        blocks.append(Block(buckets[cut].copy(), ledgers[cut].copy(), lengths[cut].copy(), raw))
    return blocks
