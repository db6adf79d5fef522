"""Where BookKeeper's recovery would close a ledger that nobody closed, by the bookies imported."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from store.codec.ledgermetadata import LedgerMetadata, LedgerState
from store.db.environment import Txn
from store.frozen import frozen
from store.model.coverage import Coverage, read_coverage, read_damaged, read_disks, read_held
from store.model.ledgers import Ledger
from store.model.placement import write_set


@frozen
class OpenEnd:
    """Where BookKeeper's recovery would close a ledger, by the bookies imported.

    ``last_add_confirmed``: certainly acknowledged, up to there; ``kept``: up to there any recovery finds every entry;
    ``last_entry_id``: the farthest that one may get: entries between are dropped when the bookies without them answer first.
    ``verdict``: "final": nothing behind was acknowledged; "damaged": a recovery fails at the damaged entry behind; "open": ``bookies``,
    which are not imported, may have more; "unknown": this store does not know which bookies have what.
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
    found = {bookie: set(entries[entries > confirmed].tolist()) for bookie, entries in held.items()}
    return find_open_end(metadata, confirmed, disks.imported, found, claims)


def find_open_end(
    metadata: LedgerMetadata,
    confirmed: int,
    imported: Collection[str],
    held: Mapping[str, Collection[int]],
    damaged: Mapping[str, Collection[int]],
) -> OpenEnd:
    """Return where a recovery that knows CONFIRMED to be acknowledged would close a ledger.

    Upstream (BookKeeper 4.17): ``LedgerRecoveryOp`` reads one entry after the other from its whole write set; ``PendingReadOp`` ends it
    as soon as write quorum − ack quorum + 1 bookies said that they have none, even if another one would have answered with it.
    HELD, DAMAGED: bookie → entries behind CONFIRMED that it has a good, a bad record of.
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
    missing = [b for b in behind if b in imported and end + 1 not in damaged.get(b, ())]
    absent = tuple(bookie for bookie in behind if bookie not in imported)
    verdict = "final" if len(missing) >= enough else "open" if absent else "damaged"
    return OpenEnd(confirmed, kept, end, verdict, absent if verdict == "open" else ())


def read_confirmed(txn: Txn, ledger: Ledger) -> Coverage | None:
    """Return the coverage of the entries that were acknowledged for certain: what was in flight need not be on every bookie yet."""
    end = read_open_end(txn, ledger)
    return read_coverage(txn, ledger, None if end is None else end.last_add_confirmed)
