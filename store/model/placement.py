"""Which bookies should hold which entries of a ledger, by its metadata alone.

Upstream: ``RoundRobinDistributionSchedule.getWriteSet`` and ``LedgerMetadataUtils`` of BookKeeper 4.17: entry e of an ensemble of E
bookies is on those at e mod E, (e + 1) mod E, … as many as the write quorum, whatever the ensemble's first entry is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata

if TYPE_CHECKING:
    from pulsar_admin.store.aliases import Array


class Stripe(Struct, frozen=True):
    """The entries ``first`` to ``last`` of one ensemble, both included. ``members``: bookie ids, each position's."""

    first: int
    last: int
    members: tuple[str, ...]
    write_quorum: int

    def write_set(self, entry_id: int) -> tuple[str, ...]:
        """Return the bookies that entry ENTRY_ID is written to, in the order they are asked in."""
        size = len(self.members)
        return tuple(self.members[(entry_id + place) % size] for place in range(self.write_quorum))

    def residues(self, bookie: str) -> tuple[int, ...]:
        """Return which entry ids modulo the ensemble's size BOOKIE is written, ascending."""
        return _residues(self.members, self.write_quorum, bookie)

    def counts(self) -> list[int]:
        """Return how many of the entries have each id modulo the ensemble's size."""
        size = len(self.members)
        return [(self.last - residue) // size - (self.first - 1 - residue) // size for residue in range(size)]

    def count(self, bookie: str) -> int:
        """Return how many of the entries BOOKIE is written."""
        counts = self.counts()
        return sum(counts[residue] for residue in self.residues(bookie))

    def holds(self, bookie: str, entry_ids: Array) -> Array:
        """Return which of ENTRY_IDS (i64) are of this stripe and written to BOOKIE (bool each)."""
        import numpy as np

        table = np.zeros(len(self.members), bool)
        table[list(self.residues(bookie))] = True
        of_bookie: Array = (entry_ids >= self.first) & (entry_ids <= self.last) & table[entry_ids % len(self.members)]
        return of_bookie


@lru_cache(1024)
def _residues(members: tuple[str, ...], write_quorum: int, bookie: str) -> tuple[int, ...]:
    size = len(members)
    places = [place for place, member in enumerate(members) if member == bookie]
    return tuple(residue for residue in range(size) if any((place - residue) % size < write_quorum for place in places))


def stripes_of(metadata: LedgerMetadata, last_entry_id: int, first_entry_id: int = 0) -> Iterator[Stripe]:
    """Yield the stripes of a ledger from FIRST_ENTRY_ID to LAST_ENTRY_ID, as far as its ensembles go."""
    starts = [segment.first_entry_id for segment in metadata.segments]
    for segment, end in zip(metadata.segments, [*starts[1:], last_entry_id + 1], strict=True):
        first, last = max(segment.first_entry_id, first_entry_id), min(end - 1, last_entry_id)
        if first <= last:
            yield Stripe(first, last, segment.members, metadata.write_quorum)


def write_set(metadata: LedgerMetadata, entry_id: int) -> tuple[str, ...]:
    """Return the bookies that should hold entry ENTRY_ID, which may lie behind the ledger's end."""
    starts = [segment.first_entry_id for segment in metadata.segments]
    segment = metadata.segments[max(bisect_right(starts, entry_id) - 1, 0)]
    return Stripe(entry_id, entry_id, segment.members, metadata.write_quorum).write_set(entry_id)


def ensemble_bookies(metadata: LedgerMetadata) -> tuple[str, ...]:
    """Return the bookies of every ensemble once, in the order they come up."""
    return tuple(dict.fromkeys(member for segment in metadata.segments for member in segment.members))
