"""Finds, among all entries of a topic, the first ones that cover a message index, and the next index after a gap."""

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
    """An entry that covers the index. ``entries``: how many were read to the end of its scan batch; ``is_verified``: by its digest."""

    entries: int
    ledger_id: int
    entry_id: int
    first: int
    last: int
    batch: bool
    is_verified: bool


class Seen(NamedTuple):
    """The result for some entries. ``entries``: how many; ``indexed``: whether one has an index; ``hits``: those that cover the index, up
    to the first verified one; ``following``: the least greater index, with its ledger id and entry id.
    """

    entries: int
    indexed: bool
    hits: tuple[Hit, ...]
    following: tuple[int, int, int] | None


class FindCover(Struct, Reduction, frozen=True):
    """Finds the entries that cover the message index ``index``."""

    index: int

    COLUMNS: ClassVar[tuple[str, ...]] = ("seen",)

    def partial(self, batch: EntryBatch) -> Row:
        """Return the row for the entries of a batch."""
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
        """Return one row for successive ``rows``."""
        entries, hits, following = 0, [], None
        seen = [*map(self.read, rows)]
        for one in seen:
            hits += [replace(hit, entries=entries + hit.entries) for hit in one.hits]
            entries += one.entries
            if one.following is not None and (following is None or one.following[0] < following[0]):
                following = one.following
        return _row(Seen(entries, any(one.indexed for one in seen), _to_verified(hits), following))

    def is_enough(self, row: Row) -> bool:
        """Whether a verified entry covers the index, so that no later entry need be read."""
        return any(hit.is_verified for hit in self.read(row).hits)

    def read(self, row: Row) -> Seen:
        """Return the decoded row."""
        return msgspec.msgpack.decode(row["seen"], type=Seen)


def _row(seen: Seen) -> Row:
    return {"seen": msgspec.msgpack.encode(seen)}


def _to_verified(hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Return the hits up to and including the first verified one."""
    for place, hit in enumerate(hits):
        if hit.is_verified:
            return tuple(hits[: place + 1])
    return tuple(hits)
