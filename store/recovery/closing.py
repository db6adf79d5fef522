"""The metadata of a ledger of which bookies alone know: where its entries lie, and where BookKeeper's recovery would end it.

Upstream: ``LedgerRecoveryOp`` (from the largest LAC on, as far as entries follow), ``RoundRobinDistributionSchedule`` (BookKeeper 4.17).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from pulsar_admin.store.changes.restoring import find_ensembles, holders_of, read_bookies_of
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata, Segment, closed_over
from pulsar_admin.store.db.blocks import LedgerSums
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import Refused, StoreError
from pulsar_admin.store.model.ledgers import iter_entry_ids, read_ledger
from pulsar_admin.store.model.reader import EntryReader

if TYPE_CHECKING:
    from pulsar_admin.store.aliases import Array


_BITS = 62
"""Bookies that one ledger has at most, to be told apart by the bits of a number."""


class Closed(Struct, frozen=True):
    """A ledger as it is closed. ``missing``: entries before its end that no bookie has; ``behind``: entries that lie behind it."""

    metadata: LedgerMetadata
    missing: int
    behind: int


def close_ledger(reader: EntryReader, ledger_id: int, custom: Mapping[str, bytes]) -> Closed:
    """Return the metadata of LEDGER_ID, which has entries here; raises Refused where nobody knows whose the disks are."""
    txn = reader.txn
    ledger = read_ledger(txn, ledger_id)
    assert ledger.sums is not None
    last = min(ledger.last_entry_id, ledger.sums.last_entry)
    write_quorum, segments = _ensembles(ledger_id, read_bookies_of(txn, ledger_id), last)
    length, digest = _end_of(reader, ledger_id, last, ledger.sums.payload_bytes)
    metadata = closed_over(segments, write_quorum, last, length, custom, digest)
    here = _count_to(txn, ledger_id, ledger.sums, last)
    return Closed(metadata, last + 1 - here, ledger.sums.entries - here)


def _count_to(txn: Txn, ledger_id: int, sums: LedgerSums, last: int) -> int:
    """Return how many entries up to LAST are here."""
    if last == sums.last_entry:
        return sums.entries
    return sum(1 for entry_id in iter_entry_ids(txn, ledger_id) if entry_id <= last)


def _end_of(reader: EntryReader, ledger_id: int, last: int, payload_bytes: int) -> tuple[int, DigestType]:
    """Return (payload bytes up to the last entry, which it says itself, digest type of a readable entry)."""
    length = None
    for entry_id in (last, *iter_entry_ids(reader.txn, ledger_id)) if last >= 0 else ():
        try:
            entry = reader.read(ledger_id, entry_id)
        except StoreError:
            continue
        if entry_id == last:
            length = entry.length
        return payload_bytes if length is None else length, entry.digest_type or DigestType.CRC32C
    return payload_bytes if last >= 0 else 0, DigestType.CRC32C


# -- ensembles --------------------------------------------------------------------------------------------------------


def _ensembles(ledger_id: int, held: Mapping[str, Array], last: int) -> tuple[int, tuple[Segment, ...]]:
    """Return (write quorum, ensembles) of which every entry's bookies are those that hold it, and others where copies are missing."""
    few = _repeating(ledger_id, held, last)
    if few is not None:
        return few
    holders = holders_of(held, last)
    quorum = max((len(one) for one in holders), default=0)
    if not quorum:
        members = tuple(sorted(held))
        return len(members), (Segment(0, members),)
    fits: list[tuple[Segment, ...]] = []
    for size in range(quorum, len(held) + 1):
        whole = _completed(holders, quorum, size)
        if whole is not None:
            with suppress(Refused):
                fits.append(find_ensembles(ledger_id, _held_of(whole), last, None)[1])
    if fits:
        return quorum, min(fits, key=len)  # the first of those with as few ensembles
    # No round robin explains it. An ensemble wherever the holders change: what was there is found, whatever else is asked for.
    return quorum, tuple(_patchwork(holders, quorum, sorted(held)))


def _repeating(ledger_id: int, held: Mapping[str, Array], last: int) -> tuple[int, tuple[Segment, ...]] | None:
    """Return what the first entries say, where all others repeat them: so are nearly all ledgers, and entries may be many."""
    import numpy as np

    if len(held) > _BITS or last < _BITS:
        return None
    codes = np.zeros(last + 1, np.int64)
    for bit, entries in enumerate(held.values()):
        codes[entries[entries <= last]] |= 1 << bit
    size = next((one for one in range(1, len(held) + 1) if (codes[one:] == codes[:-one]).all()), None)
    if size is None or not codes.all():
        return None
    first = {bookie: entries[entries < 2 * size] for bookie, entries in held.items()}
    try:
        quorum, segments = find_ensembles(ledger_id, first, 2 * size - 1, None)
    except Refused:
        return None
    return (quorum, segments) if len(segments) == 1 and len(segments[0].members) % size == 0 else None


def _completed(holders: list[frozenset[str]], quorum: int, size: int) -> list[frozenset[str]] | None:
    """Return HOLDERS with those of entries of the same place of an ensemble of SIZE, where copies are missing; None: they do not fit."""
    if all(len(one) == quorum for one in holders):
        return holders
    out = list(holders)
    for start in range(min(size, len(holders))):
        before = next((one for one in holders[start::size] if len(one) == quorum), None)
        for entry in range(start, len(holders), size):
            if len(holders[entry]) == quorum:
                before = holders[entry]
            elif before is None or not holders[entry] <= before:
                return None
            else:
                out[entry] = before
    return out


def _held_of(holders: list[frozenset[str]]) -> dict[str, Array]:
    import numpy as np

    found: dict[str, list[int]] = {}
    for entry, bookies in enumerate(holders):
        for bookie in bookies:
            found.setdefault(bookie, []).append(entry)
    return {bookie: np.array(entries, np.int64) for bookie, entries in found.items()}


def _patchwork(holders: list[frozenset[str]], quorum: int, bookies: list[str]) -> Iterator[Segment]:
    before: tuple[str, ...] = ()
    for entry, one in enumerate(holders):
        if not before or not one <= {*before}:
            others = (bookie for bookie in (*before, *bookies) if bookie not in one)
            filled = [*sorted(one), *dict.fromkeys(others)][:quorum]
            before = tuple(filled)
            yield Segment(entry, before)
