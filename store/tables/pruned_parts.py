"""Which entries of ledgers a scan reads: those of ledgers and blocks whose bounds the index knows and a filter does not rule out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow.compute as pc
from msgspec import Struct

from store.db.blocks import Block, LedgerSums
from store.db.clocks import block_max, block_min
from store.db.environment import Txn
from store.model.ledgers import find_times, iter_blocks
from store.scan.places import Part
from store.tables.pruning import Pruner, between, equal, times_between
from store.wording import counted

_TIMES = ("publish_time", "broker_time")


class Seen(Struct):
    """What a scan read, of what there is: the rest its filter left out."""

    ledgers: int = 0
    read_ledgers: int = 0
    bytes: int = 0
    read_bytes: int = 0

    def text(self, name: str) -> str:
        """Return it in words, for table NAME."""
        ledgers = f"{self.read_ledgers:,} of {counted(self.ledgers, 'ledger')}"
        return f"{name}: read {ledgers}, {self.read_bytes:,} of {counted(self.bytes, 'byte')}"

    def clear(self) -> None:
        """Begin anew."""
        self.ledgers = self.read_ledgers = self.bytes = self.read_bytes = 0


def iter_wanted(
    txn: Txn, parts: Sequence[Part], topics: Sequence[pc.Expression], pruner: Pruner, seen: Seen
) -> Iterator[Part]:
    """Yield PARTS, ledger by ledger, or block by block where the filter is about what blocks know. TOPICS: of each part's topic.

    SEEN is filled on the way.
    """
    rows = [find_times(txn, ledger_id) for ledger_id, _, _ in parts]
    sums = [None if row is None else row.sums for row in rows]
    del rows  # views of the map
    seen.ledgers += len(parts)
    seen.bytes += sum(found.payload_bytes for found in sums if found is not None)
    bounds = [topic & _bounds_of(part, found) for topic, part, found in zip(topics, parts, sums, strict=True)]
    in_blocks = pruner.names("entry_id", *_TIMES)
    for place in pruner.passing(bounds):
        found = sums[place]
        seen.read_ledgers += 1
        if in_blocks and found is not None:
            yield from _blocks(txn, parts[place], pruner, seen)
        else:
            seen.read_bytes += 0 if found is None else found.payload_bytes
            yield parts[place]


def _blocks(txn: Txn, part: Part, pruner: Pruner, seen: Seen) -> Iterator[Part]:
    """Yield the blocks of PART that may have a row, those that follow one another as one."""
    ledger_id, first, last = part
    ids, sizes, bounds = [], [], []
    for block in iter_blocks(txn, ledger_id, first):
        low, high = block.index_of(first), block.index_of(last + 1)
        if high > low:
            ids.append((block.entry_id(low), block.entry_id(high - 1)))
            sizes.append(block.header.payload_bytes)
            bounds.append(_bounds_of_block(block, *ids[-1]))
    run: Part | None = None
    before = -2
    for place in pruner.passing(bounds):
        seen.read_bytes += sizes[place]
        if run is not None and place != before + 1:
            yield run
            run = None
        run = (ledger_id, ids[place][0] if run is None else run[1], ids[place][1])
        before = place
    if run is not None:
        yield run


def _bounds_of(part: Part, sums: LedgerSums | None) -> pc.Expression:
    """Return what is true of the rows of a ledger."""
    ledger_id, first, last = part
    bounds = equal("ledger_id", ledger_id) & between("entry_id", first, last)
    if sums is None:
        return bounds
    publish = times_between("publish_time", sums.publish_min_ms, sums.publish_max_ms)
    return bounds & publish & times_between("broker_time", sums.broker_min_ms, sums.broker_max_ms)


def _bounds_of_block(block: Block, first: int, last: int) -> pc.Expression:
    publish = times_between("publish_time", block_min(block, "publish"), block_max(block, "publish"))
    broker = times_between("broker_time", block_min(block, "broker"), block_max(block, "broker"))
    return between("entry_id", first, last) & publish & broker
