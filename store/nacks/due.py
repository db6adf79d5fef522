"""What came due: the rows a tracker gave up, in order of (bucket, ledger, entry)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from pyroaring import BitMap64

from pulsar_admin.store.nacks.bitmaps import Int64s, decode_bitmap, decode_groups
from pulsar_admin.store.nacks.segments import Block, join_blocks
from pulsar_admin.store.names import Position


class DueGroup(NamedTuple):
    """The entries of one ledger that are due in one bucket."""

    bucket_ms: int
    ledger_id: int
    entry_ids: BitMap64


class DueNacks(Struct, frozen=True):
    """Whole buckets, each (bucket, ledger) once. Iterating yields groups; bitmaps are made one at a time.

    ``partition_index`` is the tracker's (−2 = unknown, as upstream's placeholder).
    """

    partition_index: int
    blocks: Sequence[Block] = ()
    groups: Sequence[DueGroup] = ()

    def __bool__(self) -> bool:
        return bool(self.blocks or self.groups)

    def __iter__(self) -> Iterator[DueGroup]:
        yield from self.groups
        for block in self.blocks:
            ends = np.cumsum(block.lengths, dtype=np.int64).tolist()
            begin = 0
            for bucket, ledger, end in zip(block.buckets.tolist(), block.ledgers.tolist(), ends, strict=True):
                yield DueGroup(bucket, ledger, decode_bitmap(block.bitmaps[begin:end].tobytes()))
                begin = end

    def positions(self) -> Iterator[Position]:
        """Yield every entry; one that is due in several buckets comes several times."""
        for group in self:
            for entry_id in group.entry_ids:
                yield Position(group.ledger_id, entry_id)

    def arrays(self) -> tuple[Int64s, Int64s, Int64s]:
        """Return the columns bucket (ms), ledger id and entry id, one row an entry."""
        if self.groups:
            sizes = [len(group.entry_ids) for group in self.groups]
            buckets = np.repeat(np.array([group.bucket_ms for group in self.groups], dtype=np.int64), sizes)
            ledgers = np.repeat(np.array([group.ledger_id for group in self.groups], dtype=np.int64), sizes)
            live = [np.frombuffer(group.entry_ids.to_array(), dtype=np.int64) for group in self.groups]
            return buckets, ledgers, np.concatenate(live)
        parts = [_columns(block) for block in self.blocks] or [_columns(join_blocks(()))]
        buckets, ledgers, entry_ids = (np.concatenate(column) for column in zip(*parts, strict=True))
        return buckets, ledgers, entry_ids

    @property
    def entry_count(self) -> int:
        """Entries to redeliver, counted once per bucket."""
        counted = sum(len(_columns(block)[2]) for block in self.blocks)
        return counted + sum(len(group.entry_ids) for group in self.groups)


def _columns(block: Block) -> tuple[Int64s, Int64s, Int64s]:
    starts, entry_ids = decode_groups(block.lengths, block.bitmaps)
    counts = np.diff(starts)
    return np.repeat(block.buckets, counts), np.repeat(block.ledgers, counts), entry_ids
