"""Which entries phase two has to read: phase one keeps the places of the entries it saw and how many messages each holds.

Where all entries of a piece hold one message, as without batches, that costs nothing an entry; else four bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.compaction.facts import EntryFacts
from pulsar_admin.store.scan.places import Part

_GAP_ENTRIES = 32  # fewer entries between two that are wanted are read as well: a part of its own costs more


class Inventory:
    """The entries of one compaction's source, in order."""

    def __init__(self) -> None:
        self._pieces: list[tuple[bool, int, EntryFacts]] = []  # of a compacted ledger?, ordinal of the first message
        self.messages = 0

    def add(self, facts: EntryFacts, *, compacted: bool) -> None:
        """Note entries, which come behind all those before."""
        self._pieces.append((compacted, self.messages, facts))
        self.messages += facts.messages

    def wanted(self, bits: Array, *, compacted: bool) -> Iterator[tuple[Part, Array]]:
        """Yield parts that hold all entries with a message in BITS, and the ordinal of the first message of each entry."""
        for is_compacted, first, facts in self._pieces:
            if is_compacted == compacted and facts.entries:
                yield from _parts_of(facts, first, bits)


def _parts_of(facts: EntryFacts, first_ordinal: int, bits: Array) -> Iterator[tuple[Part, Array]]:
    counts = np.ones(facts.entries, np.int64) if facts.counts is None else facts.counts.astype(np.int64)
    ends = np.cumsum(counts)
    ordinals = first_ordinal + ends - counts
    set_before = np.concatenate([[0], np.cumsum(_unpacked(bits, first_ordinal, int(ends[-1])))])
    wanted = set_before[ends] > set_before[ends - counts]
    if facts.always is not None:
        wanted |= facts.always
    at = 0
    for ledger_id, first, count in facts.runs:
        chosen = np.flatnonzero(wanted[at : at + count])
        if len(chosen):
            cuts = np.flatnonzero(np.diff(chosen) > _GAP_ENTRIES) + 1
            lows, highs = chosen[np.append(0, cuts)].tolist(), chosen[np.append(cuts - 1, len(chosen) - 1)].tolist()
            for low, high in zip(lows, highs, strict=True):
                yield (ledger_id, first + low, first + high), ordinals[at + low : at + high + 1]
        at += count


def _unpacked(bits: Array, start: int, count: int) -> Array:
    """Return COUNT of the packed BITS from bit START on, one a byte."""
    low = start >> 3
    packed = bits[low : (start + count + 7) >> 3]
    found: Array = np.unpackbits(packed, bitorder="little")[start - (low << 3) :][:count]
    return found
