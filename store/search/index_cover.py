"""Which entries cover a message index, looked for in all of them: the first ones, and the next index above a gap."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.kernels.columns import BATCH, TRANSACTION, UNVERIFIED
from pulsar_admin.store.kernels.messages import HEAD, read_heads
from pulsar_admin.store.scan.places import EntryBatch
from pulsar_admin.store.scan.reducing import Reduction, Row


class Hit(Struct, frozen=True):
    """An entry that covers the index. ``entries``: how many there are to the end of its batch; ``is_verified``: its digest fits."""

    entries: int
    ledger_id: int
    entry_id: int
    first: int
    last: int
    batch: bool
    is_verified: bool


class Seen(NamedTuple):
    """What entries say: how many they are, whether one has an index, the first of those that cover the index, to the first that is
    verified, and the least index above it with its place (ledger id, entry id).
    """

    entries: int
    indexed: bool
    hits: tuple[Hit, ...]
    following: tuple[int, int, int] | None


class FindCover(Struct, Reduction, frozen=True):
    """Which entries cover a message index."""

    index: int

    COLUMNS: ClassVar[tuple[str, ...]] = ("seen",)

    def partial(self, batch: EntryBatch) -> Row:
        """Return the row of a batch."""
        heads = np.zeros(len(batch), HEAD)
        read_heads(batch.data, batch.starts, batch.ends, heads)
        flags, last = batch.rows["flags"], heads["broker_index"]
        batched = (flags & BATCH != 0) & (flags & TRANSACTION == 0)
        first = last - np.where(batched, batch.rows["messages"] - 1, 0)
        hits = [
            Hit(
                len(batch),
                int(batch.ledger_ids[at]),
                int(batch.entry_ids[at]),
                int(first[at]),
                int(last[at]),
                bool(batched[at]),
                bool(flags[at] & UNVERIFIED == 0),
            )
            for at in np.flatnonzero((last >= 0) & (first <= self.index) & (self.index <= last)).tolist()
        ]
        following = None
        above = np.flatnonzero(first > self.index)
        if len(above):
            at = int(above[first[above].argmin()])
            following = int(first[at]), int(batch.ledger_ids[at]), int(batch.entry_ids[at])
        return _row(Seen(len(batch), bool((last >= 0).any()), _to_verified(hits), following))

    def merge(self, rows: Sequence[Row]) -> Row:
        """Return the row of rows that follow each other."""
        entries, hits, following = 0, [], None
        seen = [*map(self.read, rows)]
        for one in seen:
            hits += [replace(hit, entries=entries + hit.entries) for hit in one.hits]
            entries += one.entries
            if one.following is not None and (following is None or one.following[0] < following[0]):
                following = one.following
        return _row(Seen(entries, any(one.indexed for one in seen), _to_verified(hits), following))

    def is_enough(self, row: Row) -> bool:
        """Whether there is an entry that is known to be right."""
        return any(hit.is_verified for hit in self.read(row).hits)

    def read(self, row: Row) -> Seen:
        """Return what a row says."""
        return msgspec.msgpack.decode(row["seen"], type=Seen)


def _row(seen: Seen) -> Row:
    return {"seen": msgspec.msgpack.encode(seen)}


def _to_verified(hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Return the hits to the first that is verified."""
    for place, hit in enumerate(hits):
        if hit.is_verified:
            return tuple(hits[: place + 1])
    return tuple(hits)
