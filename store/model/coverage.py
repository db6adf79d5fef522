"""Which bookies that clients ask serve the entries of a ledger: those named by its metadata whose imported files have the entries.

A client asks the bookies of an entry's write set and no others; one serves what its index leads to in its entry logs, and what it reads of
its journals when it starts (``store.db.unserved``). So an entry is in one of four states, which this module alone tells apart:

============  =======================================================================================================
served        a bookie that clients ask has it
outside       a file has it, but no bookie that clients ask serves it: a salvage, or another ensemble, restores it
nowhere       no file has it, and every bookie that should have it is imported or lost
not imported  a bookie that should have it may run, and is not imported: its state is unknown
============  =======================================================================================================

It also tells which bookies were not imported or lack a journal, and where BookKeeper's recovery would close an unclosed ledger.

Row (database ``state``): ``bookies``, JSON {"imported": [ids], "absent": [ids], "unknown": [ids]}; there where they are known.
``unknown``: imported bookies that the imported metadata names neither in a cookie nor in an ensemble.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import astuple, replace

from pulsar_admin.store.codec.ledgermetadata import (
    COOKIES,
    LedgerMetadata,
    LedgerState,
    LoneLedger,
    decode_members,
    find_lone_ledger,
    ledger_id_of_path,
    ledger_path,
)
from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.db.blocks import HAS_AUTO, TIMES_BYTES, TIMES_VERSION, decode_sums, ledger_key
from pulsar_admin.store.db.bookies import iter_imported_bookies, iter_present_bookies
from pulsar_admin.store.db.copies import has_copies, iter_copies
from pulsar_admin.store.db.environment import Store, Txn, once
from pulsar_admin.store.db.files import DIFFERS, FileMode, iter_damage, iter_logs
from pulsar_admin.store.db.owners import Owner, find_owners
from pulsar_admin.store.db.tree import find_node, iter_children, iter_values, plain_value, tree_key
from pulsar_admin.store.db.unserved import (
    FAILING,
    UNSERVED,
    has_any_rows,
    has_rows,
    has_unserved,
    iter_rows,
    iter_unserved,
)
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.ledgers import (
    NOT_STAMPED,
    Ledger,
    LoneLedgers,
    WholeLedger,
    WholeLedgers,
    count_missing,
    find_metadata,
    find_whole,
    iter_blocks,
    iter_ledger_ids,
    iter_ledger_values,
    missing_ranges,
    read_ledger,
)
from pulsar_admin.store.names import INT_MAX, LONG_MAX, FileKind, shell_word
from pulsar_admin.store.wording import Answer, counted, listed, plural

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from pulsar_admin.store.aliases import Array


# -- which bookies should have an entry -------------------------------------------------------------------------------


class Stripe(Struct, frozen=True):
    """The entries ``first`` to ``last`` of one ensemble, both included. ``members``: bookie ids, each position's."""

    first: int
    last: int
    members: tuple[str, ...]
    write_quorum: int

    def write_set(self, entry_id: int) -> tuple[str, ...]:
        """Return the bookies to which entry ``entry_id`` is written, in the order in which clients read from them."""
        size = len(self.members)
        return tuple(self.members[(entry_id + place) % size] for place in range(self.write_quorum))

    def residues(self, bookie: str) -> tuple[int, ...]:
        """Return, ascending, the entry ids modulo the ensemble's size that are written to ``bookie``."""
        return _residues(self.members, self.write_quorum, bookie)

    def counts(self) -> list[int]:
        """Return how many of the entries have each id modulo the ensemble's size."""
        size = len(self.members)
        return [(self.last - residue) // size - (self.first - 1 - residue) // size for residue in range(size)]

    def count(self, bookie: str) -> int:
        """Return how many of the entries are written to ``bookie``."""
        counts = self.counts()
        return sum(counts[residue] for residue in self.residues(bookie))

    def holds(self, bookie: str, entry_ids: Array) -> Array:
        """Return which of ``entry_ids`` (i64) are of this stripe and written to ``bookie`` (bool each)."""
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
    """Yield the stripes of a ledger from ``first_entry_id`` to ``last_entry_id``, as far as its ensembles go."""
    starts = [segment.first_entry_id for segment in metadata.segments]
    for segment, end in zip(metadata.segments, [*starts[1:], last_entry_id + 1], strict=True):
        first, last = max(segment.first_entry_id, first_entry_id), min(end - 1, last_entry_id)
        if first <= last:
            yield Stripe(first, last, segment.members, metadata.write_quorum)


def write_set(metadata: LedgerMetadata, entry_id: int) -> tuple[str, ...]:
    """Return the bookies that should hold entry ``entry_id``, which may lie past the ledger's end."""
    starts = [segment.first_entry_id for segment in metadata.segments]
    segment = metadata.segments[max(bisect_right(starts, entry_id) - 1, 0)]
    return Stripe(entry_id, entry_id, segment.members, metadata.write_quorum).write_set(entry_id)


def ensemble_bookies(metadata: LedgerMetadata) -> tuple[str, ...]:
    """Return the bookies of every ensemble once, in the order they come up."""
    return tuple(dict.fromkeys(member for segment in metadata.segments for member in segment.members))


# -- which bookies are not imported -----------------------------------------------------------------------------------


_BOOKIES_ROW = b"bookies"
_JOURNAL_DISK, _JOURNAL = "the journal disk of ", "the journal of "
"""Whose directory was not given, or lacks its files."""
_LEDGERS = "/ledgers/"


class AbsentBookies(Struct, frozen=True):
    """Ids of the bookies that are imported, and of those that are not but may run: their entries are not seen."""

    imported: tuple[str, ...]
    absent: tuple[str, ...]

    def counts(self) -> str:
        """Return how many bookies are imported, of how many."""
        return f"{len(self.imported)} of {counted(len(self.imported) + len(self.absent), 'bookie')} imported"

    def text(self) -> str:
        """Return a sentence about the bookies that are not imported."""
        return f"{self.counts()}: entries that only {listed(self.absent, 5)} {plural(len(self.absent), 'has', 'have')} are not seen"

    def hint(self) -> str:
        """Return a hint with the command that imports them."""
        return bring_hint(self.absent)


def bring_hint(places: Sequence[str]) -> str:
    """Return a hint with the commands that import the first bookie and the first journal of some of ``unseen_places``."""
    firsts = {is_journal(place): place for place in reversed(places)}
    return "; ".join(f"{_bringing(firsts[kind])}: {bring_command(firsts[kind])}" for kind in sorted(firsts))


def _bringing(place: str) -> str:
    journal = "put its files (*.txn) back" if place.startswith(_JOURNAL) else "import the journal"
    return journal if is_journal(place) else "import its disks"


def bring_command(place: str) -> str:
    """Return the command that imports one of ``unseen_places``, a bookie or its journal."""
    if place.startswith(_JOURNAL):
        return "pulsar-admin store refresh"
    disks = "JOURNAL-DIR" if is_journal(place) else "DIR,DIR"
    return f"pulsar-admin store add bookie {shell_word(bookie_of(place))}=" + disks


def bookie_of(place: str) -> str:
    """Return the id of the bookie of one of ``unseen_places``."""
    return place.removeprefix(_JOURNAL_DISK).removeprefix(_JOURNAL)


def is_journal(place: str) -> bool:
    """Whether one of ``unseen_places`` is the journal of an imported bookie."""
    return place != bookie_of(place)


def find_absent_bookies(txn: Txn) -> AbsentBookies | None:
    """Return the bookies that were absent at the last import, refresh or addition; None for none, or if that is unknown."""
    imported, absent, _ = _split_bookies(txn)
    return AbsentBookies(imported, absent) if absent else None


def find_gone_bookies(txn: Txn) -> frozenset[str]:
    """Return the bookies that ledgers named at the last import, refresh or addition, without a cookie and not imported."""
    return frozenset(_split_bookies(txn)[2])


@once
def unseen_places(txn: Txn) -> Mapping[str, str]:
    """Return bookie id → what of it is not imported and may have entries: the bookie, or the journal of an imported one; sorted by that.

    As of the last import, refresh or addition.
    """
    kept = _read_bookies_row(txn)
    unlogged, disks = ((), ()) if kept is None else (kept.unlogged or (), kept.disks)
    journals = {bookie: f"{_JOURNAL_DISK if bookie in disks else _JOURNAL}{bookie}" for bookie in unlogged}
    places = journals | {bookie: bookie for bookie in absent_ids(txn)}
    return dict(sorted(places.items(), key=lambda item: item[1]))


def unseen_text(txn: Txn, what: str) -> str:
    """Return a sentence that the entries of ``unseen_places`` "are not" something; "" if there are none."""
    places = [*unseen_places(txn).values()]
    only = f"{listed(places, 5)} {plural(len(places), 'has', 'have')}"
    return f"entries that only {only}, not imported, are not {what}" if places else ""


def unseen_hint(txn: Txn) -> str:
    """Return a hint with the commands that import the first bookie and the first journal of ``unseen_places``."""
    return bring_hint([*unseen_places(txn).values()])


def absent_in(txn: Txn, members: Iterable[str]) -> tuple[str, ...]:
    """Return those of ``unseen_places`` that are of ``members``, in their order, each once."""
    unseen = unseen_places(txn)
    return tuple(unseen[bookie] for bookie in dict.fromkeys(members) if bookie in unseen)


@once
def _split_bookies(txn: Txn) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the ids of bookies that are imported, absent (not imported, but may run) and gone (without a cookie)."""
    kept = _read_bookies_row(txn)
    imported, named = ((), ()) if kept is None else kept[:2]
    cookies = {*iter_children(txn, COOKIES)} if named else set()
    gone = tuple(bookie for bookie in named if cookies and bookie not in cookies)
    absent = tuple(bookie for bookie in named if bookie not in gone)
    return (imported, absent, gone)


class _BookiesRow(NamedTuple):
    imported: tuple[str, ...]
    absent: tuple[str, ...]
    unknown: tuple[str, ...] | None
    unlogged: tuple[str, ...] | None  # None: a version wrote the row that did not look at journals
    disks: tuple[str, ...]  # those of ``unlogged`` of which a journal directory was not given
    flushed_ms: Mapping[str, int]  # of ``unlogged``: when the newest ledger in their index with an entry was created


@once
def _read_bookies_row(txn: Txn) -> _BookiesRow | None:
    """Return what the row says, None without one; raises IndexCorrupt."""

    def parse(row: Any) -> _BookiesRow:  # Any: JSON
        unknown, unlogged = (
            None if ids is None else _ids(ids) for ids in (row.get("unknown"), row.get("withoutJournal"))
        )
        disks = _ids(row.get("journalsNotGiven", []))
        flushed_ms = {str(bookie): int(ms) for bookie, ms in row.get("flushedMs", {}).items()}
        return _BookiesRow(_ids(row["imported"]), _ids(row["absent"]), unknown, unlogged, disks, flushed_ms)

    return txn.read_state(_BOOKIES_ROW, "bookies", parse)


def renamed_row(txn: Txn, old: str, new: str) -> Step | None:
    """Return the step that replaces the bookie id ``old`` by ``new`` in the row of bookies; None without a row."""
    row = txn.get("state", _BOOKIES_ROW)
    if row is None:
        return None
    fields = json.loads(row)
    flushed = {new if one == old else one: ms for one, ms in fields.pop("flushedMs", {}).items()}
    after: dict[str, Any] = {key: sorted({new if one == old else one for one in ids}) for key, ids in fields.items()}
    after["flushedMs"] = flushed
    return Step("state", _BOOKIES_ROW, row, json.dumps(after).encode())


def _ids(found: object) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError("it has no list of ids")
    return tuple(found)


def find_unknown_bookies(txn: Txn) -> tuple[str, ...] | None:
    """Return the imported bookies that the metadata names nowhere; None if that is unknown, as without metadata."""
    kept = _read_bookies_row(txn)
    return None if kept is None else kept[2]


def knows_no_bookie(txn: Txn) -> bool:
    """Whether metadata and bookies were imported, and the metadata names none of these bookies."""
    unknown = find_unknown_bookies(txn)
    return bool(unknown) and set(unknown or ()) == {*_split_bookies(txn)[0]}


def members_of(path: str, value: bytes) -> frozenset[str]:
    """Return the bookies in the ensembles of the ledger whose node at ``path`` has ``value``; none if it cannot be decoded, which ``store
    check`` reports."""
    try:
        return decode_members(value, path)
    except StoreError:
        return frozenset()


def index_absent_bookies(
    store: Store,
    txn: Txn,
    left_out: Collection[str],
    members: Collection[str] | None,
    without_journal: Mapping[str, bool],
    newest: Mapping[str, Collection[int]],
) -> None:
    """Find the absent bookies among those with cookies and in ledgers' ensembles, and write the row of bookies in ``txn``.

    If an imported bookie has no id, absent ones cannot be determined, and the row is deleted. ``left_out``: bookies of
    another cluster; ``members``: the sum of ``members_of`` for all ledgers, None: the tree is read for them;
    ``without_journal``: imported bookies a journal of which, needed by their start, was not imported → whether its directory was not given;
    ``newest``: these → the newest ledgers in their indexes, -1 for an index without any.
    """
    ids = [bookie.bookie_id for bookie in iter_present_bookies(txn)]
    imported = [bookie_id for bookie_id in ids if bookie_id not in left_out]
    if "" in imported:
        txn.delete("state", _BOOKIES_ROW)
        _forget_bookies(txn)
        return
    named = set(iter_children(txn, COOKIES))
    if members is None:
        for path, value in iter_values(txn, _LEDGERS):
            if ledger_id_of_path(path) is not None:
                named |= members_of(path, value)
    else:
        named.update(members)
    fields: dict[str, Any] = {"imported": sorted(imported), "absent": sorted(named.difference(imported))}
    if any(source["kind"] != "bookie" for source in store.info.sources):
        fields["unknown"] = sorted(set(imported) - named)
    fields["withoutJournal"] = sorted(without_journal.keys() & imported)
    fields["journalsNotGiven"] = [bookie_id for bookie_id in fields["withoutJournal"] if without_journal[bookie_id]]
    fields["flushedMs"] = {one: _flushed_ms(txn, ids) for one, ids in newest.items() if one in imported}
    txn.put("state", _BOOKIES_ROW, json.dumps(fields).encode())
    _forget_bookies(txn)


def _flushed_ms(txn: Txn, ledger_ids: Iterable[int]) -> int:
    """Return when the first of these ledgers was created (ms), -1 if any is not in the metadata."""
    nodes = (find_node(txn, ledger_path(ledger_id)) if ledger_id >= 0 else None for ledger_id in ledger_ids)
    return min((-1 if node is None else node.stat.created_ms for node in nodes), default=-1)


def _forget_bookies(txn: Txn) -> None:
    for asked in (_read_bookies_row, _split_bookies, unseen_places):
        txn.memo.pop(asked, None)


# -- which bookies have it --------------------------------------------------------------------------------------------


_SHORT_LEDGERS = "short ledgers"
"""Where in a transaction's memo the ids of the ledgers with too few copies are, once all were looked at."""


class Disks(Struct, frozen=True):
    """The bookies of the catalogued files. ``by_file``: file id → bookie id, "" if unknown; ``own``: files that this tool wrote;
    ``imported``: bookie ids; ``tells``: whether the store records which file has which entries; ``gone``: bookies that ledgers name,
    but that are neither imported nor members of the cluster."""

    by_file: Mapping[int, str]
    own: frozenset[int]
    imported: frozenset[str]
    tells: bool
    gone: frozenset[str]

    @property
    def unknown(self) -> tuple[str, str] | None:
        """Why the bookies of entries are unknown, and the command that finds them; None if they are known."""
        if not self.tells:
            return "this store does not know which file has which entries", "pulsar-admin store index --rebuild"
        if self.by_file and not self.imported:
            return "this store does not know which bookie its files belong to", "pulsar-admin store refresh"
        return None


class BookieCopies(Answer, frozen=True):
    """What one bookie serves of the entries that it should have: good records, damaged ones alone, none (``missing``, as far as is known).

    ``differing``: how many of ``held`` differ from the copy that this store reads. A bookie that is not imported has unknown copies,
    unless it is ``gone``: then all are missing. ``unserved``: how many of ``missing`` are in records that it does not serve after a start.
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
        """What the bookie lacks, in words; "" if it lacks nothing."""
        if not self.imported:
            return f"{self.bookie}: {'gone' if self.gone else 'not imported'}" if self.expected else ""
        counts = (
            (self.missing - self.unserved, "missing"),
            (self.unserved, "not served"),
            (self.damaged, "damaged"),
        )
        texts = ", ".join(f"{count:,} {what}" for count, what in counts if count)
        return f"{self.bookie}: {texts}" if texts else ""


class Coverage(Answer, frozen=True):
    """How many copies there are of a ledger's entries.

    ``on``: how many entries are on 0, 1, 2, … of the imported bookies that should have them. Counts of entries: ``unknown``: a bookie that
    is not imported should have them; ``short``: an imported or gone bookie should have them and does not; ``lost``: they are nowhere;
    ``outside``: only where clients do not read them. ``lowest``: the copies of the worst short entry, or the write quorum.
    """

    bookies: tuple[BookieCopies, ...]
    on: tuple[int, ...]
    unknown: int
    short: int
    lost: int
    lowest: int
    outside: int = 0

    def text(self, entries: int) -> str:
        """Return a sentence about the missing copies of a ledger with ``entries`` entries."""
        where = "; ".join(row.lacks for row in self.bookies if (row.imported or row.gone) and row.lacks)
        counts = ((self.lost, "on none"), (self.outside, "only where no client can read them"))
        lost = ", ".join(f"{counted(count, 'entry is', 'entries are')} {what}" for count, what in counts if count)
        return (
            f"{self.short:,} of its {counted(entries, 'entry')} {plural(self.short, 'lacks', 'lack')} a copy ({where});"
            f" {lost or ('each has another copy' if self.lowest else 'of some no copy was imported')}"
        )


@once
def read_disks(txn: Txn) -> Disks:
    """Return whose the catalogued files are."""
    logs = list(iter_logs(txn))
    info = txn.store.info
    there, whole = ({b.bookie_id for b in iter_imported_bookies(info, whole=only)} for only in (False, True))
    doubtful = {log.bookie for log in logs if log.stranger} | (there - whole)  # of some not all is there yet
    imported = (there | {log.bookie for log in logs}) - doubtful
    return Disks(
        {log.file_id: "" if log.stranger else log.bookie for log in logs if log.mode is not FileMode.OWN},
        frozenset(log.file_id for log in logs if log.mode is FileMode.OWN),
        frozenset(imported - {""}),
        has_copies(txn) or len({log.disk for log in logs if log.mode is not FileMode.OWN and log.records}) < 2,
        find_gone_bookies(txn),
    )


def find_lone_bookie(txn: Txn) -> str:
    """Return the bookie that all files are from and that the location index covers; "" if there are several, or if it is unknown."""
    disks = read_disks(txn)
    bookies = {*disks.by_file.values()}
    is_told = disks.tells and disks.imported and not has_copies(txn) and not disks.own
    return bookies.pop() if is_told and len(bookies) == 1 and bookies <= disks.imported else ""


def read_coverage(txn: Txn, ledger: Ledger, last_entry_id: int | None = None) -> Coverage | None:
    """Return how many copies there are of ``ledger``'s entries, to its end or ``last_entry_id``.

    None if it is unknown: for a ledger without metadata or written by this tool, or if the bookies of files are unknown.
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
    unlogged = disks.imported.intersection(unseen_places(txn))
    late = _unlogged_after(txn, ledger.ledger_id, ledger.metadata, unlogged) if unlogged else unlogged
    return count_copies(ledger.metadata, last, disks.imported, served, damaged, disks.gone, held, unlogged, late)


def _unlogged_after(txn: Txn, ledger_id: int, metadata: LedgerMetadata, unlogged: Set[str]) -> frozenset[str]:
    """Return those of the bookies without their journal that may have copies of a ledger there.

    They may if the ledger is open, or was closed after the newest ledger of which their index has an entry was created: with that entry a
    bookie flushed all that came before it (``SingleDirectoryDbLedgerStorage.flush``, 4.17).
    """
    kept, node = _read_bookies_row(txn), find_node(txn, ledger_path(ledger_id))
    if kept is None or node is None or metadata.state is not LedgerState.CLOSED:
        return frozenset(unlogged)
    return frozenset(one for one in unlogged if node.stat.modified_ms >= kept.flushed_ms.get(one, -1))


def _count_whole(metadata: LedgerMetadata, last: int, bitmaps: Mapping[str, BitMap64]) -> Coverage | None:
    """Return the coverage of a ledger if each of its bookies has exactly the entries that it should have, else None.

    Nearly all ledgers are like this, and ``count_copies`` takes five times as long."""
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
    """Return the entries below _PATTERN_ENTRIES whose ids modulo ``size`` are ``residues``."""
    from pyroaring import BitMap64

    entries = BitMap64()
    for residue in residues:
        entries |= BitMap64(range(residue, _PATTERN_ENTRIES, size))
    return entries


def _count_alone(txn: Txn, ledger: Ledger, metadata: LedgerMetadata, last: int) -> Coverage:
    """Return the coverage of a ledger of a cluster with one bookie, from the gaps in the location index. Loads no numpy."""
    (bookie,) = ensemble_bookies(metadata)
    gaps = [pair for pair in missing_ranges(txn, ledger) if pair[0] <= last]
    missing = sum(min(end, last) - start + 1 for start, end in gaps)
    rows = read_damaged(txn).get(ledger.ledger_id, ())
    bad = {entry for whose, entry, differs in rows if whose == bookie and not differs}
    damaged = sum(any(start <= entry <= min(end, last) for start, end in gaps) for entry in bad)
    outside = sum(entries.rank(last) for _, entries in iter_unserved(txn, ledger.ledger_id)) if last >= 0 else 0
    short = missing + outside
    copies = BookieCopies(bookie, True, last + 1, last + 1 - short, short - damaged, damaged, 0, unserved=outside)
    unknown = missing - damaged if bookie in unseen_places(txn) else 0
    on, short, missing = (short, last + 1 - short), short - unknown, missing - unknown
    return Coverage((copies,), on, unknown, short, missing, 0 if short else 1, outside)


def count_copies(
    metadata: LedgerMetadata,
    last_entry_id: int,
    imported: frozenset[str],
    served: Mapping[str, Array],
    damaged: Sequence[tuple[str, int, bool]] = (),
    gone: frozenset[str] = frozenset(),
    held: Mapping[str, Array] | None = None,
    unlogged: frozenset[str] = frozenset(),
    late: frozenset[str] = frozenset(),
) -> Coverage:
    """Return how many copies there are of the entries 0 to ``last_entry_id``.

    ``served``: bookie → ids of the entries it serves (i64, ascending, each once), ``held``: that its files have, None: the same;
    ``damaged``: (bookie, entry id, whether it only differs); ``gone``: bookies that serve nothing; ``unlogged``: imported ones whose
    journal, which is not imported, may have what no bookie has; ``late``: those whose journal may also have their copy of what others have.
    """
    import numpy as np

    nothing = np.empty(0, np.int64)
    held = served if held is None else held
    stripes = list(stripes_of(metadata, last_entry_id))
    rows, copies = [], [nothing]
    unsure: list[Array] = []
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
            unsure += [right, bad] if bookie in late else []
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
    entry_ids, counts = np.unique(np.concatenate(copies), return_counts=True)
    sure = counts.copy()
    for some in unsure:
        sure[np.isin(entry_ids, some)] -= 1
    on = np.bincount(counts, minlength=metadata.write_quorum + 1)[: metadata.write_quorum + 1]
    total = sum(stripe.last - stripe.first + 1 for stripe in stripes)
    on[0] = 0
    known = imported | gone
    unknown, short, lost, lowest = _shortfall(
        stripes, known, unlogged, late, entry_ids, counts, sure, metadata.write_quorum
    )
    outside = len(_outside(stripes, known, entry_ids, held))
    return Coverage(
        tuple(rows), (total - int(on.sum()), *on[1:].tolist()), unknown, short, lost - outside, lowest, outside
    )


def _outside(stripes: list[Stripe], known: frozenset[str], found: Array, held: Mapping[str, Array]) -> Array:
    """Return the ids (i64, ascending) of entries of ``stripes`` that files have (``held``), but that are not in ``found`` although all
    their bookies are ``known``."""
    import numpy as np

    unserved = np.setdiff1d(np.concatenate([np.empty(0, np.int64), *held.values()]), found)
    is_outside = np.zeros(len(unserved), bool)
    for stripe in stripes if len(unserved) else ():
        size = len(stripe.members)
        table = np.array([known.issuperset(stripe.write_set(residue)) for residue in range(size)])
        is_outside |= (unserved >= stripe.first) & (unserved <= stripe.last) & table[unserved % size]
    outside: Array = unserved[is_outside]
    return outside


def _written_to(stripes: list[Stripe], bookie: str, entry_ids: Array) -> Array:
    """Return those of ``entry_ids`` that ``bookie`` should have."""
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
    stripes: list[Stripe],
    known_bookies: frozenset[str],
    unlogged: frozenset[str],
    late: frozenset[str],
    found: Array,
    counts: Array,
    sure: Array,
    lowest: int,
) -> tuple[int, int, int, int]:
    """Return ``Coverage``'s unknown, short, lost plus outside, and lowest. ``found``, ``counts``: entries and their numbers of copies,
    ``sure``: without those on ``late`` bookies, less one for each damaged record there; ``lowest``: the copies of a complete entry."""
    import numpy as np

    unknown = short = lost = 0
    for stripe in stripes:
        size = len(stripe.members)
        known = np.array([sum(b in known_bookies for b in set(stripe.write_set(residue))) for residue in range(size)])
        whole = np.array([len(set(stripe.write_set(residue))) for residue in range(size)])
        entries = np.array(stripe.counts())
        inside = (found >= stripe.first) & (found <= stripe.last)
        residues, there = found[inside] % size, counts[inside]
        doubted = np.array([len(late.intersection(stripe.write_set(residue))) for residue in range(size)])
        none = entries - np.bincount(residues, minlength=size)
        logged = np.array([unlogged.isdisjoint(stripe.write_set(residue)) for residue in range(size)])
        unknown += int(entries[known < whole].sum()) + int(none[(known == whole) & ~logged].sum())
        few = sure[inside] < (known - doubted)[residues]
        unknown += int(((known == whole)[residues] & (there < known[residues]) & ~few).sum())
        short += int(none[(known > 0) & logged].sum()) + int(few.sum())
        lost += int(none[(known == whole) & logged].sum())
        if (none[(known > 0) & logged] > 0).any():
            lowest = 0
        elif few.any():
            lowest = min(lowest, int(there[few].min()))
    return unknown, short, lost, lowest


# -- what no client gets --------------------------------------------------------------------------------------------------


class UnservedEntries(Answer, frozen=True):
    """Entries that files have, but that none of the bookies which clients ask serves. ``ranges``: both ends included; ``bookies``: whose
    files have them; ``asked``: those of these bookies that clients ask, but that do not serve their records."""

    ranges: tuple[tuple[int, int], ...]
    bookies: tuple[str, ...]
    asked: tuple[str, ...]

    @property
    def entries(self) -> int:
        """How many entries the ranges have."""
        return sum(last - first + 1 for first, last in self.ranges)


def find_outside(txn: Txn, ledger: Ledger, *, closed: bool = True) -> UnservedEntries | None:
    """Return the entries up to ``ledger``'s end that files have and that clients do not get, None for none.

    ``closed`` False: no client can open the ledger, so none of its entries is readable."""
    disks, metadata = read_disks(txn), ledger.metadata
    if metadata is None or disks.unknown is not None or ledger.sums is None:
        return None
    short = txn.memo.get(_SHORT_LEDGERS)  # open ledgers: only their confirmed entries
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
    entry_ids = np.concatenate([np.empty(0, np.int64), *(right if closed else ())])
    known = disks.imported | disks.gone if closed else frozenset(ensemble_bookies(metadata))
    outside = _outside(stripes, known, entry_ids, held)
    if not len(outside):
        return None
    having = {bookie: np.intersect1d(entries, outside, assume_unique=True) for bookie, entries in held.items()}
    bookies = sorted(bookie for bookie, entries in having.items() if bookie and len(entries))
    asked = (bookie for bookie in bookies if len(_written_to(stripes, bookie, having[bookie])))
    return UnservedEntries(_ranges_of(outside), tuple(bookies), tuple(asked))


def lacking_of(txn: Txn, ledger: Ledger, bookie: str, entry_ids: Array) -> Array:
    """Return those of ``entry_ids`` (i64, ascending) up to ``ledger``'s end that ``bookie`` should serve, by the metadata, and does not."""
    import numpy as np

    disks, metadata = read_disks(txn), ledger.metadata
    held = read_held(txn, ledger.ledger_id, disks)
    if metadata is None or held is None:
        return np.empty(0, np.int64)
    should = _written_to(list(stripes_of(metadata, ledger.last_entry_id)), bookie, entry_ids)
    served = read_served(txn, ledger.ledger_id, disks, held).get(bookie, np.empty(0, np.int64))
    lacking: Array = np.setdiff1d(should, served, assume_unique=True)
    return lacking


def served_of(txn: Txn, ledger_id: int, bookie: str, entry_ids: Array) -> Array:
    """Return those of ``entry_ids`` (i64, ascending) that ``bookie`` serves, as far as this store knows."""
    import numpy as np

    disks = read_disks(txn)
    held = read_held(txn, ledger_id, disks)
    served = {} if held is None else read_served(txn, ledger_id, disks, held)
    served_ids: Array = np.intersect1d(entry_ids, served.get(bookie, np.empty(0, np.int64)), assume_unique=True)
    return served_ids


def served_elsewhere(txn: Txn, ledger: Ledger, bookie: str, entry_ids: Array) -> Array:
    """Return those of ``entry_ids`` (i64, ascending) up to ``ledger``'s end that bookies of it other than ``bookie`` serve."""
    import numpy as np

    disks, metadata = read_disks(txn), ledger.metadata
    held = read_held(txn, ledger.ledger_id, disks)
    elsewhere: Array = np.empty(0, np.int64)
    if metadata is None or held is None:
        return elsewhere
    stripes = list(stripes_of(metadata, ledger.last_entry_id))
    for other, served in read_served(txn, ledger.ledger_id, disks, held).items():
        if other != bookie:
            asked = _written_to(stripes, other, entry_ids)
            elsewhere = np.union1d(elsewhere, np.intersect1d(asked, served, assume_unique=True))
    return elsewhere


def _ranges_of(entry_ids: Array) -> tuple[tuple[int, int], ...]:
    """Return ``entry_ids`` (ascending) as ranges, both ends included."""
    import numpy as np

    if not len(entry_ids):
        return ()
    breaks = np.flatnonzero(np.diff(entry_ids) != 1)
    firsts, lasts = entry_ids[[0, *(breaks + 1).tolist()]], entry_ids[[*breaks.tolist(), len(entry_ids) - 1]]
    return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))


class EntryGap(Struct, frozen=True):
    """Entries ``first`` to ``last``, both included, that no file has. ``bookies``: bookies that should have them and are not imported;
    if there are none, the entries are lost."""

    first: int
    last: int
    bookies: tuple[str, ...]


def iter_entry_gaps(txn: Txn, ledger: Ledger, ranges: Sequence[tuple[int, int]]) -> Iterator[EntryGap]:
    """Yield ``ranges`` of ``ledger``'s entries, which no file has, split by the bookies that should have them. Striped gaps are many: read
    only as many as needed."""
    if ledger.metadata is None:
        return
    unseen = unseen_places(txn)
    for first, last in ranges:
        for stripe in stripes_of(ledger.metadata, last, first):
            yield from _split(stripe, unseen)


def count_unseen(txn: Txn, ledger: Ledger, ranges: Sequence[tuple[int, int]]) -> tuple[int, tuple[str, ...]]:
    """Return how many entries of ``ranges``, which no file has, ``unseen_places`` should have, and which of them."""
    unseen = unseen_places(txn)
    if ledger.metadata is None or unseen.keys().isdisjoint(ensemble_bookies(ledger.metadata)):
        return 0, ()
    stripes = [stripe for first, last in ranges for stripe in stripes_of(ledger.metadata, last, first)]
    count, bookies = 0, set[str]()
    for stripe in stripes:
        for residue, entries in enumerate(stripe.counts()):
            lacking = {unseen[bookie] for bookie in stripe.write_set(residue) if bookie in unseen} if entries else None
            if lacking:
                count += entries
                bookies |= lacking
    return count, tuple(sorted(bookies))


def absent_ids(txn: Txn) -> frozenset[str]:
    """Return the bookies that the metadata names, that may run and are not imported."""
    bookies = find_absent_bookies(txn)
    return frozenset(bookies.absent if bookies else ())


def absent_of(txn: Txn, ledger_id: int) -> tuple[str, ...]:
    """Return those of ``unseen_places`` that are of a ledger's ensembles: they may have its unreadable entries."""
    metadata = find_metadata(txn, ledger_id) if (unseen := unseen_places(txn)) else None
    members = () if metadata is None else ensemble_bookies(metadata)
    return tuple(sorted(unseen[bookie] for bookie in members if bookie in unseen))


def _split(stripe: Stripe, unseen: Mapping[str, str]) -> Iterator[EntryGap]:
    """Yield the entries of ``stripe`` in runs: those that ``unseen_places`` should have, and those that none of these should have."""
    size = len(stripe.members)
    lacking = [
        tuple(sorted(unseen[bookie] for bookie in stripe.write_set(residue) if bookie in unseen))
        for residue in range(size)
    ]
    if all(lacking) or not any(lacking):
        yield EntryGap(stripe.first, stripe.last, tuple(sorted({bookie for some in lacking for bookie in some})))
        return
    first = stripe.first
    while first <= stripe.last:
        last = first
        while last < stripe.last and bool(lacking[(last + 1) % size]) == bool(lacking[first % size]):
            last += 1
        yield EntryGap(
            first, last, tuple(sorted({b for entry_id in range(first, last + 1) for b in lacking[entry_id % size]}))
        )
        first = last + 1


def read_held(txn: Txn, ledger_id: int, disks: Disks) -> dict[str, Array] | None:
    """Return bookie → the entries that its files have (i64, ascending), None of a ledger that was written here."""
    import numpy as np

    if has_copies(txn):
        held = _read_bitmaps(txn, ledger_id, disks)
        if held is None:
            return None
        return {bookie: np.array(entries.to_array(), np.int64) for bookie, entries in held.items()}
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
    """Return bookie → what it serves of a ledger, of what it has by ``held`` (see ``read_held``)."""
    import numpy as np

    served = dict(held)
    for file_id, entries in iter_unserved(txn, ledger_id):
        bookie = disks.by_file.get(file_id, "")
        if bookie in served:
            away = np.array(entries.to_array(), np.int64)
            served[bookie] = np.setdiff1d(served[bookie], away, assume_unique=True)
    return served


def _read_bitmaps(txn: Txn, ledger_id: int, disks: Disks) -> dict[str, BitMap64] | None:
    held: dict[str, BitMap64] = {}
    for file_id, entries in iter_copies(txn, ledger_id):
        if file_id in disks.own:
            return None
        bookie = disks.by_file.get(file_id, "")
        held[bookie] = held[bookie] | entries if bookie in held else entries
    return held


@once
def read_damaged(txn: Txn) -> dict[int, list[tuple[str, int, bool]]]:
    """Return ledger → (bookie, entry, whether it only differs from another copy) of the damaged records."""
    disks, rows_by_ledger = read_disks(txn), dict[int, list[tuple[str, int, bool]]]()
    for damage in iter_damage(txn):
        if damage.ledger_id >= 0 and damage.file_id in disks.by_file:
            row = (disks.by_file[damage.file_id], damage.entry_id, damage.reason.startswith(DIFFERS))
            rows_by_ledger.setdefault(damage.ledger_id, []).append(row)
    return rows_by_ledger


def believable_end(last_entry_id: int, ensemble_size: int, records: int) -> int:
    """Return the highest entry id that ``records`` damaged records after the last good entry can have; their own ids prove nothing."""
    return last_entry_id + ensemble_size * records


# -- where nobody closed a ledger -------------------------------------------------------------------------------------


class OpenEnd(Answer, frozen=True):
    """Where BookKeeper's recovery would close a ledger, by the bookies imported.

    ``last_add_confirmed``: certainly acknowledged, up to there; ``kept``: up to there any recovery finds every entry;
    ``last_entry_id``: the farthest that one may get: entries between are dropped when the bookies without them answer first.
    ``verdict``: "final": nothing after it was acknowledged, if no disk is an old copy; "damaged": a recovery fails at the damaged entry
    after it, or, where there are ``bookies``, at their damaged last records; "gone": it fails, as ``bookies``, which are not of the
    cluster, do not answer; "open": ``bookies``, ``unseen_places``, may have more; "unknown": this store does not know which bookies
    have what.
    ``entries_beyond``: how many entries bookies have after the next one, which a recovery that ends there drops; where there are any of
    "final", ``bookies``, not imported, may have that next one. ``needs``: bookies, not imported, without which a recovery fails, since
    another one has a damaged record.
    """

    last_add_confirmed: int
    kept: int
    last_entry_id: int
    verdict: str
    bookies: tuple[str, ...] = ()
    entries_beyond: int = 0
    needs: tuple[str, ...] = ()


def read_open_end(txn: Txn, ledger: Ledger) -> OpenEnd | None:
    """Return where a recovery would close ``ledger``, None of one that is closed or has no metadata."""
    metadata = ledger.metadata
    if metadata is None or metadata.state is LedgerState.CLOSED:
        return None
    confirmed = max(metadata.segments[-1].first_entry_id - 1, ledger.sums.max_lac if ledger.sums else -1)
    disks = read_disks(txn)
    held = read_held(txn, ledger.ledger_id, disks) if disks.tells and disks.imported else None
    if held is None:
        unseen = () if disks.imported else absent_of(txn, ledger.ledger_id)
        return OpenEnd(confirmed, confirmed, ledger.last_entry_id, "open" if unseen else "unknown", unseen)
    claims: dict[str, set[int]] = {}
    for bookie, entry_id, _ in read_damaged(txn).get(ledger.ledger_id, ()):
        claims.setdefault(bookie, set()).add(entry_id)
    for file_id, failing in iter_rows(txn, FAILING, ledger.ledger_id):  # these it does not say that it lacks
        claims.setdefault(disks.by_file.get(file_id, ""), set()).update(one for one in failing if one > confirmed)
    served = read_served(txn, ledger.ledger_id, disks, held)
    unconfirmed = {bookie: set(entries[entries > confirmed].tolist()) for bookie, entries in served.items()}
    mute = set()
    for bookie, entry_ids in claims.items():
        end = believable_end(ledger.last_entry_id, len(metadata.segments[-1].members), len(entry_ids))
        last = int(served[bookie][-1]) if bookie in served and len(served[bookie]) else -1
        if any(last < entry_id <= end for entry_id in entry_ids):
            mute.add(bookie)
    # A bookie without its journal is asked like one that is not imported: it may have more.
    places = unseen_places(txn)
    found = find_open_end(metadata, confirmed, disks.imported - places.keys(), unconfirmed, claims, disks.gone, mute)
    bookies, needs = (tuple(places.get(bookie, bookie) for bookie in some) for some in (found.bookies, found.needs))
    return replace(found, bookies=bookies, needs=needs)


def find_open_end(
    metadata: LedgerMetadata,
    confirmed: int,
    imported: Collection[str],
    held: Mapping[str, Collection[int]],
    damaged: Mapping[str, Collection[int]],
    gone: Collection[str] = (),
    mute: Collection[str] = (),
) -> OpenEnd:
    """Return where a recovery that knows ``confirmed`` to be acknowledged would close a ledger.

    Upstream (BookKeeper 4.17): ``LedgerRecoveryOp`` reads one entry after the other from its whole write set; ``PendingReadOp`` ends it
    as soon as write quorum − ack quorum + 1 bookies said that they have none, even if another one would have answered with it. Before that
    ``ReadLastConfirmedOp`` asks the last ensemble for the last record of each, of which a damaged one is no answer, and fails where as many
    bookies as the ack quorum of any write set do not answer. ``held``, ``damaged``: bookie → entries after ``confirmed`` that it has a
    good, a bad record of; ``gone``: bookies that never answer; ``mute``: those whose last record is damaged.
    """
    enough = metadata.write_quorum - metadata.ack_quorum + 1
    anywhere = set().union(*held.values())
    kept = end = confirmed
    while end + 1 in anywhere:
        end += 1
        there = [bookie for bookie in write_set(metadata, end) if end in held.get(bookie, ())]
        claimed = [bookie for bookie in write_set(metadata, end) if bookie in gone or end in damaged.get(bookie, ())]
        if kept == end - 1 and there and metadata.write_quorum - len({*there, *claimed}) < enough:
            kept = end
    next_set = write_set(metadata, end + 1)
    silent = gone_quorum(metadata, {*gone, *mute})
    if silent:
        lost = tuple(bookie for bookie in silent if bookie in gone)
        return OpenEnd(confirmed, kept, end, "gone" if lost else "damaged", lost or silent)
    missing = [b for b in next_set if b in imported and end + 1 not in damaged.get(b, ())]
    absent = tuple(bookie for bookie in next_set if bookie not in imported and bookie not in gone)
    lacking = tuple(bookie for bookie in next_set if bookie in gone)
    verdict = "final" if len(missing) >= enough else "open" if absent else "gone" if lacking else "damaged"
    beyond = sum(1 for entry in anywhere if entry > end)
    bookies = {"open": absent, "gone": lacking, "final": absent if beyond else ()}.get(verdict, ())
    needs = absent if verdict == "open" and any(end + 1 in damaged.get(bookie, ()) for bookie in next_set) else ()
    others = {bookie for bookie in metadata.segments[-1].members if bookie not in imported}
    if mute and not gone_quorum(metadata, others):
        needs = (
            tuple(bookie for bookie in gone_quorum(metadata, {*others, *mute}) if bookie in others - {*gone}) or needs
        )
    return OpenEnd(confirmed, kept, end, verdict, bookies, beyond, needs)


def gone_quorum(metadata: LedgerMetadata, gone: Collection[str]) -> tuple[str, ...]:
    """Return the bookies of the last ensemble, of those that do not answer (``gone``), for which a recovery fails, none where enough do."""
    members = metadata.segments[-1].members
    sets = (write_set(metadata, metadata.segments[-1].first_entry_id + place) for place in range(len(members)))
    if any(sum(bookie in gone for bookie in one) >= metadata.ack_quorum for one in sets):
        return tuple(bookie for bookie in dict.fromkeys(members) if bookie in gone)
    return ()


def is_final(txn: Txn, ledger_id: int) -> bool:
    """Whether a ledger is known to be whole without damaged records: it is closed, or a recovery certainly keeps all its entries."""
    try:
        return find_whole(txn, ledger_id) is not None and ledger_id not in read_damaged(txn)
    except StoreError:
        return False


def read_confirmed(txn: Txn, ledger: Ledger) -> Coverage | None:
    """Return the coverage of the entries that were certainly acknowledged; later ones need not be on every bookie yet."""
    end = read_open_end(txn, ledger)
    return read_coverage(txn, ledger, None if end is None else end.last_add_confirmed)


class Shortfalls(Struct, frozen=True):
    """Copies of all ledgers: ``ledgers`` with entries that an imported or lost bookie lacks, though its journal may have them; open or
    unreadable ones (``others``); and by bookie that may run and is not imported, how many ledgers have entries on it (``absent``).
    """

    ledgers: frozenset[int]
    others: Set[int]
    absent: Mapping[str, int]

    def settles(self, ledger_id: int) -> bool:
        """Whether a ledger is closed, or final, and lacks no copy, as far as its bookies were imported."""
        return ledger_id not in self.ledgers and ledger_id not in self.others


@once
def read_shortfalls(txn: Txn) -> Shortfalls:
    """Return the shortfalls of all ledgers, computed once per transaction."""
    short, absent = set[int](), Counter[str]()
    lone, ledger_ids = _read_lone(txn)
    all_whole, damaged = _find_all_whole(txn, lone), None
    with suppress(StoreError):
        damaged = read_damaged(txn)
    others = {one for one in all_whole.iter_open() if damaged is None or one in damaged}  # as of ``is_final``
    whole_ids = all_whole.iter_ids()
    whole_id = next(whole_ids, None)
    for ledger_id in ledger_ids:
        if ledger_id == whole_id:
            whole_id = next(whole_ids, None)
            continue
        try:
            ledger = read_ledger(txn, ledger_id)
            coverage = read_confirmed(txn, ledger)
        except StoreError:
            others.add(ledger_id)  # `store check` tells why
            continue
        if ledger.metadata is None or ledger.metadata.state is not LedgerState.CLOSED:
            others.add(ledger_id)
        if coverage is not None:
            absent.update(r.bookie for r in coverage.bookies if r.expected and not r.imported and not r.gone)
            if coverage.short or any(row.missing for row in coverage.bookies):
                short.add(ledger_id)
    txn.memo.pop(LoneLedgers, None)  # nobody asks again
    txn.memo[_SHORT_LEDGERS] = ledgers = frozenset(short)
    txn.memo[WholeLedgers] = all_whole
    return Shortfalls(ledgers, others, absent)


def find_whole_ledgers(txn: Txn) -> None:
    """Check all ledgers, so that ``find_whole`` is quick for the many to come; errors are left to the code that reads the ledgers."""
    altered: list[bytes] = []
    with suppress(StoreError), txn.passing_altered(altered.append):
        read_shortfalls(txn)
    for key in (WholeLedgers, _SHORT_LEDGERS, read_shortfalls) if altered else ():
        txn.memo.pop(key, None)  # who asks for a row meets what was altered beside it


class _LedgersOneByOne(WholeLedgers):
    """``WholeLedgers`` that checks each ledger when it is looked up, or some ahead."""

    def __init__(self, txn: Txn) -> None:
        super().__init__()
        self._txn, self._bookie = txn, find_lone_bookie(txn)
        self._ahead, self._last = dict[int, WholeLedger | None](), dict[int, WholeLedger | None]()

    def find(self, ledger_id: int) -> WholeLedger | None:
        """Return a ledger, None if it is not known to be whole. The last one is cached, because the end of its topic is needed next."""
        if ledger_id in self._ahead:
            return self._ahead[ledger_id]
        if ledger_id not in self._last:
            self._last = self._look([ledger_id])
        return self._last[ledger_id]

    def look_ahead(self, ledger_ids: Iterable[int]) -> None:
        """Check the ledgers that are looked up next together, at half the cost."""
        self._ahead = self._look(ledger_ids)

    def _look(self, ledger_ids: Iterable[int]) -> dict[int, WholeLedger | None]:
        txn, found = self._txn, dict[int, WholeLedger | None].fromkeys(ledger_ids)
        ids = sorted(ledger_id for ledger_id in found if 0 <= ledger_id < INT_MAX)
        nodes = txn.some("tree", keys := [tree_key(ledger_path(ledger_id)) for ledger_id in ids])
        times = txn.some("times", [*map(ledger_key, ids)])
        for ledger_id, key in zip(ids, keys, strict=True):
            lone = find_lone_ledger(plain_value(nodes[key])) if key in nodes else None
            if lone is not None and lone.bookie == self._bookie:
                found[ledger_id] = _find_whole(
                    txn, ledger_id, lone, lambda one: times.get(key := ledger_key(one)) or txn.view("times", key)
                )
        return found


def look_at_ledgers_one_by_one(txn: Txn) -> None:
    """Make ``find_whole`` check single ledgers instead of all: for queries about some of very many."""
    if WholeLedgers not in txn.memo:
        txn.memo[WholeLedgers] = _LedgersOneByOne(txn)


def look_ahead(txn: Txn, ledger_ids: Iterable[int]) -> None:
    """After ``look_at_ledgers_one_by_one``, check the ledgers that are looked up next together; otherwise do nothing."""
    kept: WholeLedgers | None = txn.memo.get(WholeLedgers)
    if isinstance(kept, _LedgersOneByOne):
        kept.look_ahead(ledger_ids)


def _read_lone(txn: Txn) -> tuple[LoneLedgers, Iterable[int]]:
    """Return the ledgers whose only bookie is the one that all files are from, and the ids of all listed ledgers in the same order.

    Raises IndexCorrupt.
    """
    found, ledger_ids = LoneLedgers(find_lone_bookie(txn)), array("q")
    kept: LoneLedgers | None = txn.memo.get(LoneLedgers)
    if kept is not None:
        return kept, iter_ledger_ids(txn)
    for ledger_id, value in iter_ledger_values(txn):
        ledger_ids.append(ledger_id)
        lone = find_lone_ledger(value) if value else None
        if lone is not None:
            found.add(ledger_id, lone)
    return found, ledger_ids


_CHUNK_LEDGERS = 1024
_MANY_LEDGERS = 1 << 14
"""Of fewer each is looked at: numpy takes 70 ms to import."""
_EXACT = 1 << 61
"""Times below this can be subtracted in 64 bits."""


def _find_all_whole(txn: Txn, lone: LoneLedgers) -> WholeLedgers:
    """Return the ledgers that are whole by ``_find_whole``; if they are many, numpy recognizes nearly all at a third of the cost."""
    whole = WholeLedgers()
    is_many = len(lone) >= _MANY_LEDGERS and not any(has_any_rows(txn, kind) for kind in (UNSERVED, FAILING))
    for start in range(0, len(lone), _CHUNK_LEDGERS):
        some = lone.part(start, start + _CHUNK_LEDGERS)
        rows = txn.some("times", keys := [*map(ledger_key, some.ids)])

        def find(ledger_id: int, one: LoneLedger, rows: Mapping[bytes, bytes] = rows) -> WholeLedger | None:
            return _find_whole(
                txn, ledger_id, one, lambda _: rows.get(key := ledger_key(ledger_id)) or txn.view("times", key)
            )

        if is_many:
            _add_recognized(whole, some, [rows.get(key, b"") for key in keys], find)
            continue
        for ledger_id, one in some:
            found = find(ledger_id, one)
            if found is not None:
                whole.add(ledger_id, found)
    return whole


def _add_recognized(
    whole: WholeLedgers, some: LoneLedgers, rows: Sequence[bytes], find: Callable[[int, LoneLedger], WholeLedger | None]
) -> None:
    """Add the whole ledgers of ``some`` to ``whole``. ``rows``: their time rows; ``find``: checks an unusual ledger."""
    import numpy as np

    ids, last_entry_ids, lengths, closed = (np.frombuffer(column, column.typecode) for column in some.columns)
    sizes = np.fromiter(map(len, rows), np.int64, len(rows))
    words = np.frombuffer(b"".join([row[:TIMES_BYTES].ljust(TIMES_BYTES, b"\0") for row in rows]), "<i8")
    words = words.reshape(len(rows), -1).T
    entries, first, last, payload_bytes = words[[2, 3, 4, 6]]
    publish_min, publish_max, broker_min, broker_max, broker_count, unframed, max_lac = words[7:]
    version, has_auto, blocks = words[0] & 0xFFFF, words[0] >> 16 & 0xFFFF & HAS_AUTO, words[0] >> 32
    end = np.where(closed, last_entry_ids, last)
    is_whole = (version == TIMES_VERSION) & (sizes == TIMES_BYTES + 16 * blocks * (1 + has_auto))
    is_whole &= (entries == end + 1) & (first == 0) & (last == end) & (end >= max_lac)
    is_stamped = (publish_min <= publish_max) & (broker_count != 0) & (broker_count + unframed == entries)
    is_whole &= ~is_stamped | ((words[7:11] > -_EXACT) & (words[7:11] < _EXACT)).all(axis=0)
    off = np.where(is_stamped, np.maximum(publish_max - broker_max, broker_min - publish_min), NOT_STAMPED)
    columns = np.array([end + 1, np.where(closed, lengths, payload_bytes), closed, publish_min, publish_max, off])
    for at, (ledger_id, one) in enumerate(some) if not is_whole.all() else ():
        found = None if is_whole[at] else find(ledger_id, one)
        if found is not None:
            is_whole[at] = True
            columns[:, at] = (*astuple(found)[:-1], NOT_STAMPED if found.off_ms is None else found.off_ms)
    whole.extend(ids[is_whole], columns[:, is_whole])


def _find_whole(
    txn: Txn, ledger_id: int, found: LoneLedger, find_times: Callable[[int], bytes | memoryview | None]
) -> WholeLedger | None:
    """Return a ledger if its one bookie has and serves every entry, as is usual; else None."""
    if has_unserved(txn, ledger_id) or (not found.is_closed and has_rows(txn, FAILING, ledger_id)):
        return None
    try:
        row = find_times(ledger_id)
        sums = None if row is None else decode_sums(ledger_id, row)
    except StoreError:
        return None
    if sums is None:
        return WholeLedger(0, 0, found.is_closed) if found.last_entry_id < 0 and not found.length else None
    last = found.last_entry_id if found.is_closed else sums.last_entry
    if (sums.entries, sums.first_entry, sums.last_entry) != (last + 1, 0, last) or last < sums.max_lac:
        return None
    size_bytes, off_ms = found.length if found.is_closed else sums.payload_bytes, None
    smallest, largest = sums.publish_min_ms, sums.publish_max_ms
    if smallest <= largest and sums.is_stamped:
        off_ms = min(max(largest - sums.broker_max_ms, sums.broker_min_ms - smallest, -LONG_MAX), LONG_MAX)
    return WholeLedger(last + 1, size_bytes, found.is_closed, smallest, largest, off_ms)


# -- which bookies have no journal ------------------------------------------------------------------------------------


class AbsentJournals(Struct, frozen=True):
    """The directories where journals of bookies that have none would be, and how many ledgers are open or lack entries."""

    bookies: tuple[str, ...]
    ledgers: int
    disk: str = ""  # the id of the first bookie of which a journal directory was not given

    def text(self) -> str:
        """Return what may be missing, as a sentence."""
        return (
            f"no journal of {', '.join(self.bookies)}:"
            f" {counted(self.ledgers, 'ledger is open or lacks', 'ledgers are open or lack')} entries,"
            " and entries that only a journal has are not seen"
        )

    def hint(self) -> str:
        """Return a hint about how to import the journals."""
        first = (
            "import its journal directory" if self.disk else "copy the bookie's journal files (*.txn) there, then run"
        )
        return f"{first}: {self.command()}"

    def command(self) -> str:
        """Return the command of the hint."""
        return bring_command((_JOURNAL_DISK if self.disk else _JOURNAL) + self.disk)


def find_absent_journals(txn: Txn) -> AbsentJournals | None:
    """Return the imported bookies whose journal is one of ``unseen_places``; None if no entry can have been only there.

    A closed ledger with all its entries lacks nothing, with or without a journal. Where the row of bookies does not tell, as of one without
    an id, it is those of which no journal is catalogued.
    """
    kept, unseen, absent, disk = _read_bookies_row(txn), unseen_places(txn), [], ""
    logs = [] if kept is not None and kept.unlogged is not None else [(log.disk, log.kind) for log in iter_logs(txn)]
    journals, disks = {name for name, kind in logs if kind is FileKind.JOURNAL}, {name for name, _ in logs}
    for bookie in iter_present_bookies(txn, whole=True):
        names = {bookie.bookie_id, *map(str, bookie.directories)}
        # One of which no file is catalogued was left out as another cluster's.
        if bookie.bookie_id in unseen or (journals.isdisjoint(names) and not disks.isdisjoint(names)):
            is_given = bookie.journal_dirs and not unseen.get(bookie.bookie_id, "").startswith(_JOURNAL_DISK)
            absent.append(", ".join(map(str, bookie.journal_dirs)) if is_given else bookie.name)
            disk = disk or ("" if is_given else bookie.bookie_id)
    ledgers = sum(_may_lack_entries(txn, ledger_id) for ledger_id in iter_ledger_ids(txn)) if absent else 0
    return AbsentJournals(tuple(absent), ledgers, disk) if ledgers else None


def tells_journals(txn: Txn) -> bool:
    """Whether the row of bookies, if there is one, tells which lack a journal; an older version's does not."""
    kept = _read_bookies_row(txn)
    return kept is None or kept.unlogged is not None


def _may_lack_entries(txn: Txn, ledger_id: int) -> bool:
    try:
        ledger = read_ledger(txn, ledger_id)
    except StoreError:
        return True  # nobody knows its end
    if ledger.metadata is None:
        return False  # deleted
    return ledger.metadata.state is not LedgerState.CLOSED or count_missing(txn, ledger) > 0


class UnderReplicated(Answer, frozen=True):
    """A ledger with entries on too few bookies; ``short``, ``lowest``, ``lost`` and ``unknown`` are those of ``Coverage``.

    ``bookies``: those that lack, or may lack, entries.
    """

    ledger_id: int
    entries: int
    write_quorum: int
    short: int
    lowest: int
    lost: int
    unknown: int
    bookies: tuple[BookieCopies, ...]
    owners: tuple[Owner, ...]


def find_underreplicated(txn: Txn) -> list[UnderReplicated]:
    """Return the ledgers with entries on too few bookies, or perhaps: those that are lost first, then by how few copies there are."""
    rows = []
    for ledger_id in iter_ledger_ids(txn):
        try:
            ledger = read_ledger(txn, ledger_id)
            coverage = read_confirmed(txn, ledger)
        except StoreError:
            continue  # `ledgers missing` and `store check` name it
        if ledger.metadata is None or coverage is None or not (coverage.short or coverage.unknown):
            continue  # all are on enough, or nobody knows
        rows.append(
            UnderReplicated(
                ledger_id,
                ledger.entries,
                ledger.metadata.write_quorum,
                coverage.short,
                coverage.lowest,
                coverage.lost,
                coverage.unknown,
                tuple(row for row in coverage.bookies if row.lacks),
                find_owners(txn, ledger_id),
            )
        )
    return sorted(
        rows,
        key=lambda row: (
            -row.lost,
            row.lowest if row.short else row.write_quorum,
            -row.short,
            -row.unknown,
            row.ledger_id,
        ),
    )
