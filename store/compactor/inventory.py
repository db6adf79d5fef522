"""Which entries phase two has to read: phase one keeps the places of the entries it saw and how many messages each holds.

Where all entries of a piece hold one message, as without batches, that costs nothing an entry; else four bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from store.compactor import kernel
from store.compactor.batches import MessageBatch
from store.scan.entries import Part

Array = np.ndarray[Any, Any]  # a column; its dtype is stated where it is made

_GAP_ENTRIES = 32  # fewer entries between two that are wanted are read as well: a part of its own costs more
WHOLE = (kernel.ENCRYPTED_BATCH, kernel.STRANGE, kernel.CHUNK)
"""Kinds of entries that phase two has to look at whatever is the latest."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Entries that were read together. ``runs``: (ledger, first entry, how many); ``counts``: u32 messages of each, None: 1.

    ``always``: bool, entries that are wanted whatever is the latest; None: none of them.
    """

    compacted: bool
    first_ordinal: int
    entries: int
    runs: tuple[Part, ...]
    counts: Array | None
    always: Array | None


class Inventory:
    """The entries of one compaction's source, in order."""

    def __init__(self, retain_keyless: bool) -> None:
        self._retain_keyless = retain_keyless
        self._pieces: list[_Piece] = []
        self.messages = 0

    def add(self, batch: MessageBatch) -> None:
        """Note the entries of BATCH, which come behind all those before."""
        counts = np.diff(batch.firsts).astype(np.uint32)
        always = np.isin(batch.rows["kind"], WHOLE)
        if self._retain_keyless:
            keyless = batch.slots["key_length"] < 0
            entries = np.repeat(np.arange(len(batch.rows)), counts)
            always[entries[keyless]] = True
        self._pieces.append(
            _Piece(
                batch.compacted,
                self.messages,
                len(batch.rows),
                _runs(batch.stored_ledgers, batch.stored_entries),
                None if bool((counts == 1).all()) else counts,
                always if bool(always.any()) else None,
            )
        )
        self.messages += len(batch.slots)

    def wanted(self, bits: Array, *, compacted: bool) -> Iterator[tuple[Part, Array]]:
        """Yield parts that hold all entries with a message in BITS, and the ordinal of the first message of each entry."""
        for piece in self._pieces:
            if piece.compacted == compacted:
                yield from _parts_of(piece, bits)


def _runs(ledgers: Array, entries: Array) -> tuple[Part, ...]:
    """Return runs of consecutive entries: (ledger, first entry, how many)."""
    if not len(entries):
        return ()
    cuts = np.flatnonzero((ledgers[1:] != ledgers[:-1]) | (entries[1:] != entries[:-1] + 1)) + 1
    starts, ends = [0, *cuts.tolist()], [*cuts.tolist(), len(entries)]
    return tuple(
        (int(ledgers[start]), int(entries[start]), end - start) for start, end in zip(starts, ends, strict=True)
    )


def _parts_of(piece: _Piece, bits: Array) -> Iterator[tuple[Part, Array]]:
    counts = np.ones(piece.entries, np.int64) if piece.counts is None else piece.counts.astype(np.int64)
    ends = np.cumsum(counts)
    ordinals = piece.first_ordinal + ends - counts
    set_before = np.concatenate([[0], np.cumsum(_unpacked(bits, piece.first_ordinal, int(ends[-1])))])
    wanted = set_before[ends] > set_before[ends - counts]
    if piece.always is not None:
        wanted |= piece.always
    at = 0
    for ledger_id, first, count in piece.runs:
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
