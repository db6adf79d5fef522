"""On which of the bookies that clients ask for them the entries of a ledger are: named by its metadata, served by the files imported.

A client asks the bookies of an entry's write set and no others; one serves what its index leads to in its entry logs, and what it reads of
its journals when it starts (``store.db.unserved``). So an entry is in one of four states, which this module alone tells apart:

============  =======================================================================================================
served        a bookie that clients ask has it
outside       a file has it, and no bookie that clients ask serves it: a salvage, or another ensemble, brings it back
nowhere       no file has it, and every bookie that should have it is here or gone
not imported  a bookie that should have it may run, and is not imported: nobody knows
============  =======================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata, LedgerState
from pulsar_admin.store.db.bookies import iter_imported_bookies
from pulsar_admin.store.db.copies import has_copies, iter_copies
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import DIFFERS, FileMode, iter_damage, iter_logs
from pulsar_admin.store.db.unserved import has_unserved, iter_unserved
from pulsar_admin.store.model.absent_bookies import find_absent_bookies, find_gone_bookies
from pulsar_admin.store.model.ledgers import Ledger, find_metadata, iter_blocks, missing_ranges
from pulsar_admin.store.model.placement import Stripe, ensemble_bookies, stripes_of
from pulsar_admin.store.wording import counted, plural

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from pulsar_admin.store.aliases import Array


SHORT_LEDGERS = "short ledgers"
"""Where in a transaction's memo the ids of the ledgers with too few copies are, once all were looked at."""


class Disks(Struct, frozen=True):
    """Whose the imported files are. ``by_file``: file id → bookie id, "" where nothing proves one; ``own``: files written here;
    ``imported``: bookie ids; ``tells``: whether this store knows which file has which entries; ``gone``: bookies that ledgers name, and
    that are neither here nor of the cluster."""

    by_file: Mapping[int, str]
    own: frozenset[int]
    imported: frozenset[str]
    tells: bool
    gone: frozenset[str]

    @property
    def unknown(self) -> tuple[str, str] | None:
        """Why nobody knows on which bookies entries are, and the command that finds it out; None: it is known."""
        if not self.tells:
            return "this store does not know which file has which entries", "pulsar-admin store index --rebuild"
        if self.by_file and not self.imported:
            return "this store does not know whose disks its files are from", "pulsar-admin store refresh"
        return None


class BookieCopies(Struct, frozen=True):
    """What one bookie serves of the entries that it should have: good records, damaged ones alone, none (``missing``, as far as is known).

    ``differing``: of those held, the ones with other bytes than the copy that is read here. Not imported: nobody knows, unless it is
    ``gone``: then all are missing. ``unserved``: of those missing, the ones in records that no start makes it serve.
    """

    bookie: str
    imported: bool
    expected: int
    held: int
    missing: int
    damaged: int
    differing: int
    gone: bool = False
    unserved: int = 0

    @property
    def lacks(self) -> str:
        """What it lacks, for a person; "" when nothing."""
        if not self.imported:
            return f"{self.bookie}: {'gone' if self.gone else 'not imported'}" if self.expected else ""
        counts = (
            (self.missing - self.unserved, "missing"),
            (self.unserved, "not served"),
            (self.damaged, "damaged"),
        )
        found = ", ".join(f"{count:,} {what}" for count, what in counts if count)
        return f"{self.bookie}: {found}" if found else ""


class Coverage(Struct, frozen=True):
    """How many copies there are of a ledger's entries.

    ``on``: entries on 0, 1, 2, … of the bookies that should have them, those imported; ``unknown``: entries that a bookie which is not
    imported should have; ``short``: that an imported one, or one that is gone, should have and has not; ``lost``: that are nowhere;
    ``outside``: that are outside what clients ask; ``lowest``: copies of the worst of the short ones, the write quorum where none is.
    """

    bookies: tuple[BookieCopies, ...]
    on: tuple[int, ...]
    unknown: int
    short: int
    lost: int
    lowest: int
    outside: int = 0

    def text(self, entries: int) -> str:
        """Return what is short of a ledger's ENTRIES as a sentence."""
        where = "; ".join(row.lacks for row in self.bookies if (row.imported or row.gone) and row.lacks)
        counts = ((self.lost, "on none"), (self.outside, "only where no client asks for them"))
        lost = ", ".join(f"{counted(count, 'entry is', 'entries are')} {what}" for count, what in counts if count)
        return (
            f"{self.short:,} of its {counted(entries, 'entry')} {plural(self.short, 'lacks', 'lack')} a copy ({where});"
            f" {lost or 'each has another copy'}"
        )


def read_disks(txn: Txn) -> Disks:
    """Return whose the catalogued files are."""
    if Disks not in txn.memo:
        logs = list(iter_logs(txn))
        info = txn.store.info
        there, whole = ({b.bookie_id for b in iter_imported_bookies(info, whole=only)} for only in (False, True))
        doubtful = {log.bookie for log in logs if log.stranger} | (there - whole)  # of some not all is there yet
        imported = (there | {log.bookie for log in logs}) - doubtful
        txn.memo[Disks] = Disks(
            {log.file_id: "" if log.stranger else log.bookie for log in logs if log.mode is not FileMode.OWN},
            frozenset(log.file_id for log in logs if log.mode is FileMode.OWN),
            frozenset(imported - {""}),
            has_copies(txn) or len({log.disk for log in logs if log.mode is not FileMode.OWN and log.records}) < 2,
            find_gone_bookies(txn),
        )
    disks: Disks = txn.memo[Disks]
    return disks


def find_lone_bookie(txn: Txn) -> str:
    """Return the one bookie that all files are from, and that the location index tells of; "" where there are several, or none is known."""
    disks = read_disks(txn)
    bookies = {*disks.by_file.values()}
    is_told = disks.tells and disks.imported and not has_copies(txn) and not disks.own
    return bookies.pop() if is_told and len(bookies) == 1 and bookies <= disks.imported else ""


def read_coverage(txn: Txn, ledger: Ledger, last_entry_id: int | None = None) -> Coverage | None:
    """Return how many copies there are of LEDGER's entries, to its end or LAST_ENTRY_ID.

    None where nothing tells: a ledger without metadata, one written here, a store that does not know whose its files are.
    """
    disks = read_disks(txn)
    if ledger.metadata is None or not disks.tells or not disks.imported:
        return None
    last = ledger.last_entry_id if last_entry_id is None else last_entry_id
    ensemble = {*ensemble_bookies(ledger.metadata)}
    if not has_copies(txn) and not disks.own and len(ensemble) == 1 and {*disks.by_file.values()} == ensemble:
        return _count_alone(txn, ledger, ledger.metadata, last)
    damaged = read_damaged(txn).get(ledger.ledger_id, ())
    is_plain = has_copies(txn) and not damaged and not has_unserved(txn, ledger.ledger_id)
    bitmaps = _read_bitmaps(txn, ledger.ledger_id, disks) if is_plain else None
    if bitmaps is not None and disks.imported.issuperset(ensemble_bookies(ledger.metadata)):
        whole = _count_whole(ledger.metadata, last, bitmaps)
        if whole is not None:
            return whole
    held = read_held(txn, ledger.ledger_id, disks)
    served = None if held is None else read_served(txn, ledger.ledger_id, disks, held)
    if held is None or served is None:
        return None
    return count_copies(ledger.metadata, last, disks.imported, served, damaged, disks.gone, held)


def _count_whole(metadata: LedgerMetadata, last: int, bitmaps: Mapping[str, BitMap64]) -> Coverage | None:
    """Return the coverage of a ledger whose every entry is where it should be, and nothing else; None of any other: nearly all
    ledgers are such, and this takes a fifth of the time."""
    first_entry_id, members = metadata.segments[0]
    if len(metadata.segments) > 1 or first_entry_id or last >= _PATTERN_ENTRIES or len(set(members)) < len(members):
        return None
    stripe = Stripe(0, last, members, metadata.write_quorum)
    counts = {bookie: stripe.count(bookie) for bookie in members}
    for bookie, count in counts.items():
        entries = bitmaps.get(bookie, ())
        if len(entries) != count:
            return None
        if entries and (entries.max() > last or not entries.issubset(_pattern(stripe.residues(bookie), len(members)))):
            return None
    rows = tuple(BookieCopies(bookie, True, count, count, 0, 0, 0) for bookie, count in counts.items())
    on = (0,) * metadata.write_quorum + (last + 1,)
    return Coverage(rows, on, 0, 0, 0, metadata.write_quorum)


_PATTERN_ENTRIES = (
    1 << 17
)  # a managed ledger has 50,000 entries at most, unless its broker's configuration says otherwise


@lru_cache(64)
def _pattern(residues: tuple[int, ...], size: int) -> BitMap64:
    """Return the entries below _PATTERN_ENTRIES whose ids modulo SIZE are RESIDUES."""
    from pyroaring import BitMap64

    entries = BitMap64()
    for residue in residues:
        entries |= BitMap64(range(residue, _PATTERN_ENTRIES, size))
    return entries


def _count_alone(txn: Txn, ledger: Ledger, metadata: LedgerMetadata, last: int) -> Coverage:
    """Return the coverage where one bookie is all there is: what the location index lacks. Loads no numpy."""
    (bookie,) = ensemble_bookies(metadata)
    gaps = [pair for pair in missing_ranges(txn, ledger) if pair[0] <= last]
    missing = sum(min(end, last) - start + 1 for start, end in gaps)
    rows = read_damaged(txn).get(ledger.ledger_id, ())
    bad = {entry for whose, entry, differs in rows if whose == bookie and not differs}
    damaged = sum(any(start <= entry <= min(end, last) for start, end in gaps) for entry in bad)
    outside = sum(entries.rank(last) for _, entries in iter_unserved(txn, ledger.ledger_id)) if last >= 0 else 0
    short = missing + outside
    copies = BookieCopies(bookie, True, last + 1, last + 1 - short, short - damaged, damaged, 0, unserved=outside)
    return Coverage((copies,), (short, last + 1 - short), 0, short, missing, 0 if short else 1, outside)


def count_copies(
    metadata: LedgerMetadata,
    last_entry_id: int,
    imported: frozenset[str],
    served: Mapping[str, Array],
    damaged: Sequence[tuple[str, int, bool]] = (),
    gone: frozenset[str] = frozenset(),
    held: Mapping[str, Array] | None = None,
) -> Coverage:
    """Return how many copies there are of the entries 0 to LAST_ENTRY_ID.

    SERVED: bookie → ids of the entries it serves (i64, ascending, each once), HELD: that its files have, None: the same; DAMAGED: (bookie,
    entry id, whether it only differs); GONE: bookies of which nobody gets anything.
    """
    import numpy as np

    nothing = np.empty(0, np.int64)
    held = served if held is None else held
    stripes = list(stripes_of(metadata, last_entry_id))
    rows, copies = [], [nothing]
    for bookie in ensemble_bookies(metadata):
        expected = sum(stripe.count(bookie) for stripe in stripes)
        right = _written_to(stripes, bookie, served.get(bookie, nothing))
        bad = np.array(
            sorted({entry for whose, entry, differs in damaged if whose == bookie and not differs}), np.int64
        )
        other = np.array(sorted({entry for whose, entry, differs in damaged if whose == bookie and differs}), np.int64)
        bad = np.setdiff1d(_written_to(stripes, bookie, bad), right, assume_unique=True)
        differing = len(np.intersect1d(other, right, assume_unique=True))
        unserved = np.setdiff1d(_written_to(stripes, bookie, held.get(bookie, nothing)), right, assume_unique=True)
        if bookie in imported:
            copies.append(right)
        missing = expected - len(right) - len(bad) if bookie in imported or bookie in gone else 0
        rows.append(
            BookieCopies(
                bookie,
                bookie in imported,
                expected,
                len(right),
                missing,
                len(bad),
                differing,
                bookie in gone,
                len(np.setdiff1d(unserved, bad, assume_unique=True)),
            )
        )
    found, counts = np.unique(np.concatenate(copies), return_counts=True)
    on = np.bincount(counts, minlength=metadata.write_quorum + 1)[: metadata.write_quorum + 1]
    total = sum(stripe.last - stripe.first + 1 for stripe in stripes)
    on[0] = 0
    known = imported | gone
    unknown, short, lost, lowest = _shortfall(stripes, known, found, counts, metadata.write_quorum)
    outside = len(_outside(stripes, known, found, held))
    return Coverage(
        tuple(rows),
        (total - int(on.sum()), *on[1:].tolist()),
        unknown,
        short,
        lost - outside,
        lowest,
        outside,
    )


def _outside(stripes: list[Stripe], known: frozenset[str], found: Array, held: Mapping[str, Array]) -> Array:
    """Return the entries of STRIPES that a file has (HELD), none of them in FOUND, whose every bookie is KNOWN: ids, i64, ascending."""
    import numpy as np

    left = np.setdiff1d(np.concatenate([np.empty(0, np.int64), *held.values()]), found)
    told = np.zeros(len(left), bool)
    for stripe in stripes if len(left) else ():
        size = len(stripe.members)
        table = np.array([known.issuperset(stripe.write_set(residue)) for residue in range(size)])
        told |= (left >= stripe.first) & (left <= stripe.last) & table[left % size]
    outside: Array = left[told]
    return outside


def _written_to(stripes: list[Stripe], bookie: str, entry_ids: Array) -> Array:
    """Return those of ENTRY_IDS that BOOKIE should have."""
    import numpy as np

    if not len(entry_ids):
        return entry_ids
    should = np.zeros(len(entry_ids), bool)
    for stripe in stripes:
        if bookie in stripe.members:
            should |= stripe.holds(bookie, entry_ids)
    right: Array = entry_ids[should]
    return right


def _shortfall(
    stripes: list[Stripe], known_bookies: frozenset[str], found: Array, counts: Array, lowest: int
) -> tuple[int, int, int, int]:
    """Return (unknown, short, lost or outside, lowest) of ``Coverage``; FOUND: entries with as many copies as COUNTS says; LOWEST: of a
    whole one."""
    import numpy as np

    unknown = short = lost = 0
    for stripe in stripes:
        size = len(stripe.members)
        known = np.array([sum(b in known_bookies for b in set(stripe.write_set(residue))) for residue in range(size)])
        whole = np.array([len(set(stripe.write_set(residue))) for residue in range(size)])
        entries = np.array(stripe.counts())
        inside = (found >= stripe.first) & (found <= stripe.last)
        residues, there = found[inside] % size, counts[inside]
        none = entries - np.bincount(residues, minlength=size)
        unknown += int(entries[known < whole].sum())
        few = there < known[residues]
        short += int(none[known > 0].sum()) + int(few.sum())
        lost += int(none[known == whole].sum())
        if (none[known > 0] > 0).any():
            lowest = 0
        elif few.any():
            lowest = min(lowest, int(there[few].min()))
    return unknown, short, lost, lowest


# -- what no client gets --------------------------------------------------------------------------------------------------


class Outside(Struct, frozen=True):
    """Entries that files have and that no bookie serves which clients ask: ``ranges``, both ends included. ``bookies``: whose files have
    them; ``asked``: those of these that clients ask, which have them in records that they do not serve."""

    ranges: tuple[tuple[int, int], ...]
    bookies: tuple[str, ...]
    asked: tuple[str, ...]

    @property
    def entries(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)


def find_outside(txn: Txn, ledger: Ledger, *, closed: bool = True) -> Outside | None:
    """Return the entries up to LEDGER's end that are outside what clients ask, None where none is. Not CLOSED: no client can open it, and
    all of its entries are outside."""
    disks, metadata = read_disks(txn), ledger.metadata
    if metadata is None or disks.unknown is not None or ledger.sums is None:
        return None
    short = txn.memo.get(SHORT_LEDGERS)  # of those that are open it looks at what is confirmed alone
    if short is not None and metadata.state is LedgerState.CLOSED and ledger.ledger_id not in short:
        return None
    if closed and not has_copies(txn) and not has_unserved(txn, ledger.ledger_id) and not disks.own:
        ensemble = {*ensemble_bookies(metadata)}
        if len(ensemble) == 1 and ensemble == {*disks.by_file.values()}:
            return None
    coverage = read_coverage(txn, ledger)
    held = read_held(txn, ledger.ledger_id, disks) if coverage and (coverage.outside or not closed) else None
    if held is None:
        return None
    import numpy as np

    stripes = list(stripes_of(metadata, ledger.last_entry_id))
    served = read_served(txn, ledger.ledger_id, disks, held)
    right = [_written_to(stripes, bookie, entries) for bookie, entries in served.items() if bookie in disks.imported]
    found = np.concatenate([np.empty(0, np.int64), *(right if closed else ())])
    known = disks.imported | disks.gone if closed else frozenset(ensemble_bookies(metadata))
    outside = _outside(stripes, known, found, held)
    if not len(outside):
        return None
    having = {bookie: np.intersect1d(entries, outside, assume_unique=True) for bookie, entries in held.items()}
    bookies = sorted(bookie for bookie, entries in having.items() if bookie and len(entries))
    asked = (bookie for bookie in bookies if len(_written_to(stripes, bookie, having[bookie])))
    return Outside(_ranges_of(outside), tuple(bookies), tuple(asked))


def lacking_of(txn: Txn, ledger: Ledger, bookie: str, entry_ids: Array) -> Array:
    """Return those of ENTRY_IDS (i64, ascending) up to LEDGER's end that BOOKIE should serve, by the metadata, and does not."""
    import numpy as np

    disks, metadata = read_disks(txn), ledger.metadata
    held = read_held(txn, ledger.ledger_id, disks)
    if metadata is None or held is None:
        return np.empty(0, np.int64)
    should = _written_to(list(stripes_of(metadata, ledger.last_entry_id)), bookie, entry_ids)
    served = read_served(txn, ledger.ledger_id, disks, held).get(bookie, np.empty(0, np.int64))
    lacking: Array = np.setdiff1d(should, served, assume_unique=True)
    return lacking


def served_elsewhere(txn: Txn, ledger: Ledger, bookie: str, entry_ids: Array) -> Array:
    """Return those of ENTRY_IDS (i64, ascending) up to LEDGER's end that clients get of another of its bookies than BOOKIE."""
    import numpy as np

    disks, metadata = read_disks(txn), ledger.metadata
    held = read_held(txn, ledger.ledger_id, disks)
    found: Array = np.empty(0, np.int64)
    if metadata is None or held is None:
        return found
    stripes = list(stripes_of(metadata, ledger.last_entry_id))
    for other, served in read_served(txn, ledger.ledger_id, disks, held).items():
        if other != bookie:
            asked = _written_to(stripes, other, entry_ids)
            found = np.union1d(found, np.intersect1d(asked, served, assume_unique=True))
    return found


def _ranges_of(entry_ids: Array) -> tuple[tuple[int, int], ...]:
    """Return ENTRY_IDS (ascending) as ranges, both ends included."""
    import numpy as np

    if not len(entry_ids):
        return ()
    breaks = np.flatnonzero(np.diff(entry_ids) != 1)
    firsts, lasts = entry_ids[[0, *(breaks + 1).tolist()]], entry_ids[[*breaks.tolist(), len(entry_ids) - 1]]
    return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))


class Gap(Struct, frozen=True):
    """Entries ``first`` to ``last``, both included, that no file has. ``bookies``: those not imported that should have them; where
    there are none, the entries are lost."""

    first: int
    last: int
    bookies: tuple[str, ...]


def iter_entry_gaps(txn: Txn, ledger: Ledger, ranges: Sequence[tuple[int, int]]) -> Iterator[Gap]:
    """Yield RANGES, which no file has of LEDGER's entries, by who should have them; take as many as are needed: striped gaps are many."""
    if ledger.metadata is None:
        return
    absent = absent_ids(txn)
    for first, last in ranges:
        for stripe in stripes_of(ledger.metadata, last, first):
            yield from _split(stripe, absent)


def count_unseen(txn: Txn, ledger: Ledger, ranges: Sequence[tuple[int, int]]) -> tuple[int, tuple[str, ...]]:
    """Return how many entries of RANGES, which no file has, bookies should have that are not imported, and which bookies."""
    absent = absent_ids(txn)
    if ledger.metadata is None or absent.isdisjoint(ensemble_bookies(ledger.metadata)):
        return 0, ()
    stripes = [stripe for first, last in ranges for stripe in stripes_of(ledger.metadata, last, first)]
    count, bookies = 0, set[str]()
    for stripe in stripes:
        for residue, entries in enumerate(stripe.counts()):
            lacking = absent.intersection(stripe.write_set(residue)) if entries else None
            if lacking:
                count += entries
                bookies |= lacking
    return count, tuple(sorted(bookies))


def absent_ids(txn: Txn) -> frozenset[str]:
    """Return the bookies that the metadata names, that may run and are not imported."""
    found = find_absent_bookies(txn)
    return frozenset(found.absent if found else ())


def absent_of(txn: Txn, ledger_id: int) -> tuple[str, ...]:
    """Return the bookies of a ledger's ensembles that are not imported: what cannot be read of it may be there."""
    metadata = find_metadata(txn, ledger_id) if (absent := absent_ids(txn)) else None
    return tuple(sorted(absent.intersection(ensemble_bookies(metadata)))) if metadata is not None else ()


def _split(stripe: Stripe, absent: frozenset[str]) -> Iterator[Gap]:
    """Yield the entries of STRIPE in runs that ABSENT bookies should have, or none of them."""
    size = len(stripe.members)
    lacking = [tuple(sorted(absent.intersection(stripe.write_set(residue)))) for residue in range(size)]
    if all(lacking) or not any(lacking):
        yield Gap(stripe.first, stripe.last, tuple(sorted({bookie for some in lacking for bookie in some})))
        return
    first = stripe.first
    while first <= stripe.last:
        last = first
        while last < stripe.last and bool(lacking[(last + 1) % size]) == bool(lacking[first % size]):
            last += 1
        yield Gap(
            first, last, tuple(sorted({b for entry_id in range(first, last + 1) for b in lacking[entry_id % size]}))
        )
        first = last + 1


def read_held(txn: Txn, ledger_id: int, disks: Disks) -> dict[str, Array] | None:
    """Return bookie → the entries that its files have (i64, ascending), None of a ledger that was written here."""
    import numpy as np

    if has_copies(txn):
        found = _read_bitmaps(txn, ledger_id, disks)
        if found is None:
            return None
        return {bookie: np.array(entries.to_array(), np.int64) for bookie, entries in found.items()}
    parts = [np.empty(0, np.int64)]
    bookie = ""  # of one bookie only, or there were copies
    for block in iter_blocks(txn, ledger_id):
        column, slots = block.files(), block.slots()
        files = {column} if isinstance(column, int) else {*column}
        if not disks.own.isdisjoint(files):
            return None
        bookie = disks.by_file.get(next(iter(files)), "")
        parts.append(block.entry_id(0) - slots[0] + np.array(slots, np.int64))
    return {bookie: np.concatenate(parts)}


def read_served(txn: Txn, ledger_id: int, disks: Disks, held: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return bookie → what it serves of a ledger, of what it has by HELD (see ``read_held``)."""
    import numpy as np

    served = dict(held)
    for file_id, entries in iter_unserved(txn, ledger_id):
        bookie = disks.by_file.get(file_id, "")
        if bookie in served:
            away = np.array(entries.to_array(), np.int64)
            served[bookie] = np.setdiff1d(served[bookie], away, assume_unique=True)
    return served


def _read_bitmaps(txn: Txn, ledger_id: int, disks: Disks) -> dict[str, BitMap64] | None:
    found: dict[str, BitMap64] = {}
    for file_id, entries in iter_copies(txn, ledger_id):
        if file_id in disks.own:
            return None
        bookie = disks.by_file.get(file_id, "")
        found[bookie] = found[bookie] | entries if bookie in found else entries
    return found


def read_damaged(txn: Txn) -> dict[int, list[tuple[str, int, bool]]]:
    """Return ledger → (bookie, entry, whether it only differs from another copy) of the records that are not as they should be."""
    if read_damaged not in txn.memo:
        disks, found = read_disks(txn), dict[int, list[tuple[str, int, bool]]]()
        for damage in iter_damage(txn):
            if damage.ledger_id >= 0 and damage.file_id in disks.by_file:
                row = (disks.by_file[damage.file_id], damage.entry_id, damage.reason.startswith(DIFFERS))
                found.setdefault(damage.ledger_id, []).append(row)
        txn.memo[read_damaged] = found
    damaged: dict[int, list[tuple[str, int, bool]]] = txn.memo[read_damaged]
    return damaged
