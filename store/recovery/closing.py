"""New metadata for a ledger that lost its own, from its entries and the bookies that have them: closed at its last readable entry.

Upstream: ``LedgerRecoveryOp`` finds a ledger's end (from the largest LAC on, as far as entries follow), ``RoundRobinDistributionSchedule``
puts entries on bookies (BookKeeper 4.17). ``close_ledger`` keeps the entries after a gap, and names for each entry the bookies that have
it; ``make_ledger`` closes a ledger of a topic that continues where a reader would stop, with the quorums of the topic's other ledgers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain, islice, permutations
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.changes.ledger_metadata import ack_quorum_like, find_ensembles, holders_of, read_bookies_of
from pulsar_admin.store.codec.claims import APPLICATION
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata, LedgerState, Segment, closed_over
from pulsar_admin.store.db.environment import Txn, once
from pulsar_admin.store.errors import Refused, StoreError
from pulsar_admin.store.model.coverage import read_disks, read_held
from pulsar_admin.store.model.ledgers import find_metadata, iter_entry_ids, iter_gaps, iter_indexed_ids, read_ledger
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.wording import counted, plural

if TYPE_CHECKING:
    from pulsar_admin.store.aliases import Array


_BITS = 62
"""The most bookies of one ledger for which a bit mask can hold an entry's bookies."""


class Closed(Struct, frozen=True):
    """A closed ledger. ``missing``: entries before its end that no bookie has; ``behind``: entries after it."""

    metadata: LedgerMetadata
    missing: int
    behind: int


def close_ledger(reader: EntryReader, ledger_id: int, custom: Mapping[str, bytes]) -> Closed:
    """Return closed metadata for a ledger with imported entries; raises Refused if the owner of a disk is unknown."""
    txn = reader.txn
    ledger = read_ledger(txn, ledger_id)
    assert ledger.sums is not None
    # The last add confirmed, from which a recovery finds the end, may be after every entry that is left.
    last = min(ledger.last_entry_id, ledger.sums.last_entry)
    write_quorum, segments = _ensembles(txn, read_bookies_of(txn, ledger_id), last)
    length, digest = _end_of(reader, ledger_id, last, ledger.sums.payload_bytes)
    metadata = closed_over(segments, write_quorum, last, length, custom, digest)
    here = ledger.sums.entries
    if last < ledger.sums.last_entry:
        here = sum(1 for entry_id in iter_entry_ids(txn, ledger_id) if entry_id <= last)
    return Closed(metadata, last + 1 - here, ledger.sums.entries - here)


def _end_of(reader: EntryReader, ledger_id: int, last: int, payload_bytes: int) -> tuple[int, DigestType]:
    """Return (payload bytes up to the last entry, which it says itself, digest type of a readable entry)."""
    length = None
    for entry_id in chain([last], iter_entry_ids(reader.txn, ledger_id)) if last >= 0 else ():
        try:
            entry = reader.read(ledger_id, entry_id)
        except StoreError:
            continue
        if entry_id == last:
            length = entry.length
        return payload_bytes if length is None else length, entry.digest_type or DigestType.CRC32C
    return payload_bytes if last >= 0 else 0, DigestType.CRC32C


# -- ensembles --------------------------------------------------------------------------------------------------------


ORDERS_MAX = 5_040
"""How many orders of bookies are tried for an ensemble: all orders of seven."""


class EnsembleFit(Struct, frozen=True):
    """Ensembles for a write quorum; ``deviating``: entries that have more or fewer copies."""

    write_quorum: int
    segments: tuple[Segment, ...]
    deviating: int


def _ensembles(txn: Txn, held: Mapping[str, Array], last: int) -> tuple[int, tuple[Segment, ...]]:
    """Return (write quorum, ensembles): each entry's bookies are those that have it, filled up with others if copies are missing.

    Entries may have fewer copies than the quorum, because bookies are gone, or more: ``bookkeeper shell recover`` copies a whole
    fragment to the replacing bookie, also entries that the replaced one never had. So neither the greatest nor the usual number of
    copies is the quorum, but the number that needs the fewest ensembles, and among those the number that most entries have.
    """
    few = _repeating(held, last)
    if few is not None:
        return few.write_quorum, few.segments
    holders = holders_of(held, last)
    if not any(holders):
        members = tuple(sorted(held))
        return len(members), (Segment(0, members),)
    best = sorted(explain_holders(holders), key=lambda fit: fit.deviating)
    # A few entries fit nearly every quorum.
    if len(best) > 1 and len(holders) < _ROUNDS * len(held):
        usual = _usual_quorum(txn)
        best = [fit for fit in best if fit.write_quorum == usual] or best
    if best:
        return best[0].write_quorum, best[0].segments
    # No round robin explains the holders: with a new ensemble wherever they change, clients find every entry.
    quorum = max(map(len, holders))
    whole_cluster, segments = sorted(held), list[Segment]()
    before: tuple[str, ...] = ()
    for entry, one in enumerate(holders):
        if not before or not one <= {*before}:
            # Filled up from the previous ensemble, so that few bookies change, as when one is replaced.
            others = (bookie for bookie in (*before, *whole_cluster) if bookie not in one)
            before = tuple([*sorted(one), *dict.fromkeys(others)][:quorum])
            segments.append(Segment(entry, before))
    return quorum, tuple(segments)


def explain_holders(holders: Sequence[frozenset[str]]) -> list[EnsembleFit]:
    """Return the shortest lists of ensembles whose round robin explains the holders, at most one per write quorum."""
    # Many short ledgers have the same holders: their explanation is cached.
    return [*(_explain_few(tuple(holders)) if len(holders) <= _FEW else _explain(holders))]


@lru_cache(maxsize=1024)
def _explain_few(holders: tuple[frozenset[str], ...]) -> list[EnsembleFit]:
    return _explain(holders)


def _explain(holders: Sequence[frozenset[str]]) -> list[EnsembleFit]:
    counts = Counter(map(len, holders))
    if len(counts) == 1:
        with suppress(Refused):
            return [EnsembleFit(*find_ensembles(0, _held_of(holders), len(holders) - 1, None), 0)]
        return []
    bookies = sorted({bookie for one in holders for bookie in one})
    fits, most = list[EnsembleFit](), SEGMENTS_MAX
    # The most frequent number of copies first: any other splits the ledger into as many ensembles as copies are missing.
    for quorum, entries in counts.most_common():
        sizes = range(quorum, len(bookies) + 1) if quorum else ()
        for size in sizes:
            segments = _round_robin(holders, quorum, size, bookies, most)
            if segments is not None and (len(segments) < most or quorum not in (fit.write_quorum for fit in fits)):
                most = len(segments)
                fits.append(EnsembleFit(quorum, segments, len(holders) - entries))
    best = {fit.write_quorum: fit for fit in reversed(fits) if len(fit.segments) == most}
    return sorted(best.values(), key=lambda fit: -fit.write_quorum)


_FEW = 16
"""For ledgers with at most this many entries, the explanation of their holders is cached."""
SEGMENTS_MAX = 100
"""The most ensembles of a ledger that are searched for: each replacement of a bookie adds one."""


def _held_of(holders: Sequence[frozenset[str]]) -> dict[str, Array]:
    import numpy as np

    held: dict[str, list[int]] = {}
    for entry, bookies in enumerate(holders):
        for bookie in bookies:
            held.setdefault(bookie, []).append(entry)
    return {bookie: np.array(entries, np.int64) for bookie, entries in held.items()}


def _round_robin(
    holders: Sequence[frozenset[str]], quorum: int, size: int, bookies: Sequence[str], most: int
) -> tuple[Segment, ...] | None:
    """Return at most ``most`` ensembles of ``size`` bookies that explain by round robin which bookies have each entry.

    Every bookie of an entry's write set must have it; if fewer than ``quorum`` bookies have it, all of these must be in
    the write set. None if no order of bookies that was tried fits.
    """
    segments: list[Segment] = []
    start = 0
    while start < len(holders):
        if len(segments) == most:
            return None
        before = segments[-1].members if segments else ()
        ahead = _AHEAD_ENTRIES
        while True:
            stop = min(start + ahead, len(holders))
            firsts: dict[tuple[int, frozenset[str]], int] = {}
            for entry in range(start, stop):
                firsts.setdefault((entry % size, holders[entry]), entry)
            best: tuple[int, int, tuple[str, ...]] = (start, 0, ())
            for order in islice(permutations(bookies, size), ORDERS_MAX):
                end = stop
                for (residue, having), first in firsts.items():
                    asked = {order[(residue + place) % size] for place in range(quorum)}
                    if not (asked <= having if len(having) >= quorum else having <= asked):
                        end = first
                        break
                kept = sum(one == two for one, two in zip(order, before, strict=False))
                if (end, kept) > best[:2]:
                    best = (end, kept, order)
            if best[0] < stop or stop == len(holders):
                break
            ahead *= 16  # the ensemble serves all of these: it may serve more
        if best[0] == start:
            return None
        segments.append(Segment(start, best[2]))
        start = best[0]
    return tuple(segments)


_AHEAD_ENTRIES = 64
"""How many entries are read ahead to find an ensemble's end: reading all would cost the whole ledger for each
ensemble."""
_ROUNDS = 3
"""If round robin passes over a ledger's bookies fewer times, the quorum of the cluster's other ledgers counts more."""


@once
def _usual_quorum(txn: Txn) -> int:
    """Return the write quorum of most ledgers that are long enough to show one, 0 if none is."""
    quorums, disks = Counter[int](), read_disks(txn)
    for ledger_id in iter_indexed_ids(txn):
        if quorums.total() >= _LEDGERS_MAX:
            break
        held = read_held(txn, ledger_id, disks)
        if held and "" not in held:
            last = min(int(max(entries[-1] for entries in held.values())), _SHOWING)
            if last + 1 >= _ROUNDS * len(held):
                fits = explain_holders(holders_of(held, last))
                quorums.update(fit.write_quorum for fit in sorted(fits, key=lambda fit: fit.deviating)[:1])
    return quorums.most_common(1)[0][0] if quorums else 0


_LEDGERS_MAX = 1_000
"""How many ledgers suffice to show a cluster's usual write quorum."""
_SHOWING = 100
"""How many entries of a longer ledger suffice to show its write quorum."""


def _repeating(held: Mapping[str, Array], last: int) -> EnsembleFit | None:
    """Return the ensemble that the first entries show, if all others repeat it: nearly every ledger is like that, and
    entries may be many."""
    import numpy as np

    # One bit a bookie in 64-bit numbers; a short ledger is as quick to judge entry by entry.
    if len(held) > _BITS or last < _BITS:
        return None
    codes = np.zeros(last + 1, np.int64)
    for bit, entries in enumerate(held.values()):
        codes[entries[entries <= last]] |= 1 << bit
    size = next((one for one in range(1, len(held) + 1) if (codes[one:] == codes[:-one]).all()), None)
    if size is None or not codes.all():
        return None
    fits = explain_holders(holders_of(held, 2 * size - 1))
    fits = [fit for fit in fits if len(fit.segments) == 1 and len(fit.segments[0].members) % size == 0]
    return min(fits, key=lambda fit: fit.deviating, default=None)


# -- before the first gap -------------------------------------------------------------------------------------------------


class MadeLedger(Struct, frozen=True):
    """A closed ledger. ``behind``: entries after a gap, which it does not include; ``astray``: entries with copies
    where round robin puts none."""

    ledger_id: int
    metadata: LedgerMetadata
    behind: int
    astray: int

    @property
    def entries(self) -> int:
        return self.metadata.last_entry_id + 1

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about entries that are lost or misplaced."""
        texts = []
        if self.behind:
            texts.append(
                f"ledger {self.ledger_id} ends before entry {self.entries}, which no file has:"
                f" {counted(self.behind, 'entry')} after it {plural(self.behind, 'is', 'are')} not restored"
            )
        if self.astray:
            texts.append(
                f"ledger {self.ledger_id}: {counted(self.astray, 'entry')} {plural(self.astray, 'is', 'are')} on "
                "other bookies than round robin gives, as happens when a bookie fails: autorecovery copies them again"
            )
        return tuple(texts)


def make_ledger(
    reader: EntryReader, ledger_id: int, custom: Mapping[str, bytes], sibling: LedgerMetadata | None
) -> MadeLedger:
    """Return a ledger closed at its last readable entry, with ``custom`` metadata; ``sibling`` is metadata with the same quorums.

    Raises Refused if entries are on a disk without a cookie, or if entry 0 is missing.
    """
    txn = reader.txn
    held = read_bookies_of(txn, ledger_id)
    end, behind = find_readable_end(reader, ledger_id)
    if end < 0:
        raise Refused(
            f"entry 0 of ledger {ledger_id} is in no file: no entry of the ledger can be served", ledgerId=ledger_id
        )
    # Its header has the ledger's length so far, which a closed ledger states.
    last = reader.read(ledger_id, end)
    own = find_metadata(txn, ledger_id)
    if own is not None:  # it was made, and no topic lists it yet
        closed = replace(own, state=LedgerState.CLOSED, last_entry_id=end, length=last.length)
        return MadeLedger(ledger_id, closed, behind, 0)
    write_quorum, segments, astray = fit_ensembles(ledger_id, held, end, sibling)
    claims, ack_quorum = {**APPLICATION, **custom}, ack_quorum_like(sibling, write_quorum)
    metadata = closed_over(segments, write_quorum, end, last.length, claims, last.digest_type, ack_quorum)
    return MadeLedger(ledger_id, metadata, behind, astray)


def find_readable_end(reader: EntryReader, ledger_id: int) -> tuple[int, int]:
    """Return (the last entry before the first gap, the number of imported entries after the gap)."""
    ledger = read_ledger(reader.txn, ledger_id)
    last = ledger.last_entry_id if ledger.sums is None else max(ledger.last_entry_id, ledger.sums.last_entry)
    gap = next(iter_gaps(reader.txn, ledger_id, last), None)
    end = last if gap is None else gap[0] - 1
    here = 0 if ledger.sums is None else ledger.sums.entries
    return end, max(here - end - 1, 0)


# -- ensembles that serve most entries --------------------------------------------------------------------------------


def fit_ensembles(
    ledger_id: int, held: Mapping[str, Array], last_entry_id: int, sibling: LedgerMetadata | None
) -> tuple[int, tuple[Segment, ...], int]:
    """Return (write quorum, ensembles, entries with fewer or other copies) so that clients find every entry on a bookie that has it.

    An entry that no bookie has counts as being on all of them: it does not matter where clients look for it.
    """
    import numpy as np

    nowhere = np.setdiff1d(np.arange(last_entry_id + 1), np.concatenate([np.empty(0, np.int64), *held.values()]))
    if len(nowhere):
        held = {bookie: np.union1d(entries, nowhere) for bookie, entries in held.items()}
    try:
        return *find_ensembles(ledger_id, held, last_entry_id, sibling), 0
    except Refused:
        return _closest(held, last_entry_id, sibling)


def _closest(
    held: Mapping[str, Array], last_entry_id: int, sibling: LedgerMetadata | None
) -> tuple[int, tuple[Segment, ...], int]:
    """Return the ensembles that serve most entries: before a crash copies are too few, around a failed bookie too
    many."""
    import numpy as np

    entries = np.arange(last_entry_id + 1)
    bookies = sorted({*held, *(sibling.segments[-1].members if sibling else ())})
    has = {
        bookie: np.isin(entries, held[bookie]) if bookie in held else np.zeros(len(entries), bool) for bookie in bookies
    }
    copies = np.sum([has[bookie] for bookie in bookies], axis=0)
    # Most entries have the full number of copies: only those around a failure or a crash have others.
    usual = int(np.bincount(copies).argmax()) if sibling is None else sibling.write_quorum
    sizes = range(usual, len(bookies) + 1) if sibling is None else [max(usual, sibling.ensemble_size)]
    fits = [_fit(bookies, has, min(size, len(bookies)), min(usual, len(bookies))) for size in sizes]
    segments, astray = min(fits, key=lambda fit: (len(fit[0]) + fit[1], len(fit[0][0].members)))
    return min(usual, len(bookies)), segments, astray


def _fit(
    bookies: Sequence[str], has: Mapping[str, Array], size: int, write_quorum: int
) -> tuple[tuple[Segment, ...], int]:
    """Return (ensembles of this size that serve every entry, how many entries have fewer or other copies than round robin gives)."""
    import numpy as np

    entries = np.arange(len(next(iter(has.values()))))
    segments: list[Segment] = []
    most = sorted(bookies, key=lambda bookie: -int(has[bookie].sum()))  # those that hold the most entries first
    astray = start = 0
    while start < len(entries):
        orders = islice(permutations(most, size), ORDERS_MAX)
        candidates = (_served(order, has, entries[start:], write_quorum) for order in orders)
        served, wrong, order = max(candidates, key=lambda one: (one[0], -one[1]))
        if not served:  # with many bookies not all orders are tried: put a holder where clients look for the entry
            holder = next(bookie for bookie in most if has[bookie][start])
            others = [bookie for bookie in most if bookie != holder][: size - 1]
            others.insert(start % size, holder)
            served, wrong, order = _served(tuple(others), has, entries[start:], write_quorum)
        segments.append(Segment(start, order))
        astray += wrong
        start += served
    return tuple(segments), astray


def _served(
    order: tuple[str, ...], has: Mapping[str, Array], entries: Array, write_quorum: int
) -> tuple[int, int, tuple[str, ...]]:
    """Return (how many entries from the first on have a copy where ``order`` puts it, how many of these have fewer or
    other copies, ``order``)."""
    import numpy as np

    copies = np.zeros(len(entries), np.int64)
    everywhere = np.sum([column[entries[0] :] for column in has.values()], axis=0)
    for place, bookie in enumerate(order):
        expected = (place - entries) % len(order) < write_quorum
        copies += has[bookie][entries[0] :] & expected
    lost = np.flatnonzero(copies == 0)
    served = int(lost[0]) if len(lost) else len(entries)
    wrong = (copies != write_quorum) | (everywhere != copies)
    return served, int(wrong[:served].sum()), order
