"""Where BookKeeper's recovery would close a ledger that nobody closed, by the bookies imported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Set
from contextlib import suppress

from msgspec import Struct

from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata, LedgerState, LoneLedger, find_lone_ledger
from pulsar_admin.store.db.blocks import decode_sums, ledger_key
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.unserved import has_unserved
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.coverage import (
    SHORT_LEDGERS,
    Coverage,
    find_lone_bookie,
    read_coverage,
    read_damaged,
    read_disks,
    read_held,
    read_served,
)
from pulsar_admin.store.model.ledgers import (
    Ledger,
    LoneLedgers,
    WholeLedger,
    WholeLedgers,
    find_whole,
    iter_ledger_ids,
    iter_ledger_values,
    read_ledger,
)
from pulsar_admin.store.model.placement import write_set
from pulsar_admin.store.names import LONG_MAX


class OpenEnd(Struct, frozen=True):
    """Where BookKeeper's recovery would close a ledger, by the bookies imported.

    ``last_add_confirmed``: certainly acknowledged, up to there; ``kept``: up to there any recovery finds every entry;
    ``last_entry_id``: the farthest that one may get: entries between are dropped when the bookies without them answer first.
    ``verdict``: "final": nothing behind was acknowledged; "damaged": a recovery fails at the damaged entry behind; "gone": it fails, as
    ``bookies``, which are not of the cluster, do not answer; "open": ``bookies``, which are not imported, may have more; "unknown": this
    store does not know which bookies have what.
    """

    last_add_confirmed: int
    kept: int
    last_entry_id: int
    verdict: str
    bookies: tuple[str, ...] = ()


def read_open_end(txn: Txn, ledger: Ledger) -> OpenEnd | None:
    """Return where a recovery would close LEDGER, None of one that is closed or has no metadata."""
    metadata = ledger.metadata
    if metadata is None or metadata.state is LedgerState.CLOSED:
        return None
    confirmed = max(metadata.segments[-1].first_entry_id - 1, ledger.sums.max_lac if ledger.sums else -1)
    disks = read_disks(txn)
    held = read_held(txn, ledger.ledger_id, disks) if disks.tells and disks.imported else None
    if held is None:
        return OpenEnd(confirmed, confirmed, ledger.last_entry_id, "unknown")
    claims: dict[str, set[int]] = {}
    for bookie, entry_id, _ in read_damaged(txn).get(ledger.ledger_id, ()):
        claims.setdefault(bookie, set()).add(entry_id)
    served = read_served(txn, ledger.ledger_id, disks, held)
    found = {bookie: set(entries[entries > confirmed].tolist()) for bookie, entries in served.items()}
    return find_open_end(metadata, confirmed, disks.imported, found, claims, disks.gone)


def find_open_end(
    metadata: LedgerMetadata,
    confirmed: int,
    imported: Collection[str],
    held: Mapping[str, Collection[int]],
    damaged: Mapping[str, Collection[int]],
    gone: Collection[str] = (),
) -> OpenEnd:
    """Return where a recovery that knows CONFIRMED to be acknowledged would close a ledger.

    Upstream (BookKeeper 4.17): ``LedgerRecoveryOp`` reads one entry after the other from its whole write set; ``PendingReadOp`` ends it
    as soon as write quorum − ack quorum + 1 bookies said that they have none, even if another one would have answered with it. Before that
    ``ReadLastConfirmedOp`` asks the last ensemble, and fails where as many bookies as the ack quorum of any write set do not answer.
    HELD, DAMAGED: bookie → entries behind CONFIRMED that it has a good, a bad record of; GONE: bookies that never answer.
    """
    enough = metadata.write_quorum - metadata.ack_quorum + 1
    anywhere = set().union(*held.values())
    kept = end = confirmed
    while end + 1 in anywhere:
        end += 1
        there = [bookie for bookie in write_set(metadata, end) if end in held.get(bookie, ())]
        claimed = [bookie for bookie in write_set(metadata, end) if end in damaged.get(bookie, ())]
        if kept == end - 1 and there and metadata.write_quorum - len({*there, *claimed}) < enough:
            kept = end
    behind = write_set(metadata, end + 1)
    silent = gone_quorum(metadata, gone)
    if silent:
        return OpenEnd(confirmed, kept, end, "gone", silent)
    missing = [b for b in behind if b in imported and end + 1 not in damaged.get(b, ())]
    absent = tuple(bookie for bookie in behind if bookie not in imported and bookie not in gone)
    lacking = tuple(bookie for bookie in behind if bookie in gone)
    verdict = "final" if len(missing) >= enough else "open" if absent else "gone" if lacking else "damaged"
    return OpenEnd(confirmed, kept, end, verdict, {"open": absent, "gone": lacking}.get(verdict, ()))


def gone_quorum(metadata: LedgerMetadata, gone: Collection[str]) -> tuple[str, ...]:
    """Return the GONE bookies of the last ensemble for which a recovery fails, none where enough others answer."""
    members = metadata.segments[-1].members
    sets = (write_set(metadata, metadata.segments[-1].first_entry_id + place) for place in range(len(members)))
    if any(sum(bookie in gone for bookie in one) >= metadata.ack_quorum for one in sets):
        return tuple(bookie for bookie in dict.fromkeys(members) if bookie in gone)
    return ()


def is_final(txn: Txn, ledger_id: int) -> bool:
    """Whether a ledger is whole, as far as is known, and ``read_open_end`` has it closed, or closed behind its last entry for certain."""
    try:
        return find_whole(txn, ledger_id) is not None and ledger_id not in read_damaged(txn)
    except StoreError:
        return False


def read_confirmed(txn: Txn, ledger: Ledger) -> Coverage | None:
    """Return the coverage of the entries that were acknowledged for certain: what was in flight need not be on every bookie yet."""
    end = read_open_end(txn, ledger)
    return read_coverage(txn, ledger, None if end is None else end.last_add_confirmed)


class Shortfalls(Struct, frozen=True):
    """What one look at the copies of all ledgers found: the ``ledgers`` with entries of which a bookie that is here or gone lacks a copy;
    those that are not closed, or that cannot be read (``others``); of each bookie that may run and is not imported how many ledgers have
    entries on it (``absent``)."""

    ledgers: frozenset[int]
    others: Set[int]
    absent: Mapping[str, int]

    def settles(self, ledger_id: int) -> bool:
        """Whether a ledger is closed and lacks no copy, as far as its bookies are here."""
        return ledger_id not in self.ledgers and ledger_id not in self.others


def read_shortfalls(txn: Txn) -> Shortfalls:
    """Look at the copies of all ledgers, once in a transaction."""
    if read_shortfalls not in txn.memo:
        short, others, absent = set[int](), set[int](), Counter[str]()
        all_whole, bookie = WholeLedgers(), find_lone_bookie(txn)
        times = _TimeRows(txn)
        for ledger_id, lone in _iter_lone(txn):
            if (
                lone is not None
                and lone.bookie == bookie
                and (whole := _find_whole(txn, ledger_id, lone, times)) is not None
            ):
                all_whole.add(ledger_id, whole)
                if not whole.is_closed:
                    others.add(ledger_id)
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
                if coverage.short:
                    short.add(ledger_id)
        txn.memo[SHORT_LEDGERS] = ledgers = frozenset(short)
        txn.memo[WholeLedgers] = all_whole
        txn.memo[read_shortfalls] = Shortfalls(ledgers, others, absent)
    found: Shortfalls = txn.memo[read_shortfalls]
    return found


def find_whole_ledgers(txn: Txn) -> None:
    """Look at all ledgers, so that ``find_whole`` tells of each of the many that are asked for next; what cannot be read is told there."""
    altered: list[bytes] = []
    with suppress(StoreError), txn.passing_altered(altered.append):
        read_shortfalls(txn)
    for key in (WholeLedgers, SHORT_LEDGERS, read_shortfalls) if altered else ():
        txn.memo.pop(key, None)  # who asks for a row meets what was altered beside it


def _iter_lone(txn: Txn) -> Iterator[tuple[int, LoneLedger | None]]:
    """Yield each ledger of the metadata, and what that says of it where one bookie has it alone."""
    kept: LoneLedgers | None = txn.memo.get(LoneLedgers)
    if kept is None:
        yield from (
            (ledger_id, find_lone_ledger(value) if value else None) for ledger_id, value in iter_ledger_values(txn)
        )
        return
    rows = iter(kept)
    ahead = next(rows, None)
    for ledger_id in iter_ledger_ids(txn):
        if ahead is not None and ahead[0] == ledger_id:
            yield ahead
            ahead = next(rows, None)
        else:
            yield ledger_id, None


class _TimeRows:
    """The time rows of ledgers, most of which are asked for in the order of their keys."""

    def __init__(self, txn: Txn) -> None:
        self._txn = txn
        self._rows = txn.items("times") if LoneLedgers in txn.memo else iter(())
        self._row: tuple[bytes, bytes] | None = (b"", b"")

    def find(self, ledger_id: int) -> bytes | memoryview | None:
        """Return the row of a ledger; raises IndexCorrupt."""
        key = ledger_key(ledger_id)
        while self._row is not None and self._row[0] < key:
            self._row = next(self._rows, None)
        if self._row is not None and self._row[0] == key:
            return self._row[1]
        return self._txn.view("times", key)  # one that was altered, or of a ledger before the last


def _find_whole(txn: Txn, ledger_id: int, found: LoneLedger, times: _TimeRows) -> WholeLedger | None:
    """Return what a ledger has whose one bookie has every entry and serves it, as most are; None of any other."""
    if has_unserved(txn, ledger_id):
        return None
    try:
        row = times.find(ledger_id)
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
