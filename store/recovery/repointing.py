"""``ledgers restore --to-bookies``: ledgers whose metadata names bookies that do not have their entries name those that do.

Upstream: a client asks the bookies of an entry's write set and no others (``PendingReadOp``); autorecovery and ``bookkeeper shell recover``
put other bookies into an ensemble in the same way, once they have copied its entries there (``LedgerFragmentReplicator``, BookKeeper 4.17).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, permutations
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.changes.plan import ChangePart, Plan, Step, put_value_step
from pulsar_admin.store.codec.ledgermetadata import (
    LedgerMetadata,
    LedgerState,
    Segment,
    encode_ledger_metadata,
    ledger_path,
)
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import read_node
from pulsar_admin.store.errors import LedgerNotFound, Refused
from pulsar_admin.store.model.absent_bookies import absent_in
from pulsar_admin.store.model.broken import (
    GONE,
    NO_METADATA,
    NOT_SERVED,
    find_missing,
    find_thinned,
    iter_thinned,
    iter_unreadable,
)
from pulsar_admin.store.model.coverage import Disks, read_coverage, read_disks, read_held, read_served
from pulsar_admin.store.model.ledgers import Ledger, read_ledger
from pulsar_admin.store.model.open_end import gone_quorum
from pulsar_admin.store.model.placement import stripes_of
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import shell_word
from pulsar_admin.store.recovery.closing import fit_ensembles
from pulsar_admin.store.wording import counted, listed, plural

if TYPE_CHECKING:
    from pulsar_admin.store.aliases import Array

COMMAND = "ledgers restore"
_ORDERS = 5_040
"""Orders of bookies that are tried for an ensemble: those of seven."""
_ENSEMBLES_MORE = 8
"""An ensemble of the ledger's size serves where it takes no more than so many new ones; else one that fits what the bookies have."""


def plan_repoint(reader: EntryReader, ledger_ids: Sequence[int], now_ms: int) -> Plan:
    """Plan that LEDGER_IDS, or all that need it, name the bookies that have their entries; one that nobody can close is closed.

    Raises LedgerNotFound, and Refused for a ledger that no other bookie would serve better.
    """
    txn, disks = reader.txn, read_disks(reader.txn)
    if disks.unknown is not None:
        raise Refused(disks.unknown[0], hint=disks.unknown[1])
    named = list(dict.fromkeys(ledger_ids))
    for ledger_id in named:
        _check(txn, ledger_id)
    chosen = named or _all_astray(txn)
    if not chosen:
        raise LedgerNotFound(
            "no ledger names bookies that are gone, or lack its entries, while others that are here have them",
            hint="see what is lost with: pulsar-admin ledgers missing",
        )
    steps: list[Step] = []
    parts: list[ChangePart] = []
    for ledger_id in chosen:
        found = _repointed(reader, disks, ledger_id)
        node = read_node(txn, ledger_path(ledger_id))
        if found.after != found.before:
            steps.append(put_value_step(txn, node.path, encode_ledger_metadata(found.after, node.value), now_ms))
            parts.append(_part(found, ledger_id))
    return Plan(COMMAND, txn.id, tuple(steps), tuple(parts), warnings=tuple(_warnings(parts)))


def _all_astray(txn: Txn) -> list[int]:
    astray = {missing.ledger_id for missing in iter_unreadable(txn) if missing.is_astray}
    thinned = {found.ledger_id for found in iter_thinned(txn) if found.spare}
    return sorted(astray | thinned)


def _check(txn: Txn, ledger_id: int) -> None:
    read_ledger(txn, ledger_id)
    missing, thinned = find_missing(txn, ledger_id), find_thinned(txn, ledger_id)
    if (missing is not None and missing.is_astray) or (thinned is not None and thinned.spare):
        return
    hint = f"see what is here of it with: pulsar-admin ledgers info {ledger_id}"
    if missing is None:
        text = f"ledger {ledger_id} is served by the bookies that its metadata names"
    elif missing.reason == NO_METADATA:
        text, hint = f"ledger {ledger_id} has no metadata", f"make it again: pulsar-admin ledgers restore {ledger_id}"
    elif missing.reason == GONE:
        text = f"no bookie that is here has an entry of ledger {ledger_id}"
        hint = f"take it out of what references it: pulsar-admin ledgers forget {ledger_id}"
    elif missing.reason == NOT_SERVED:
        text = f"ledger {ledger_id} names the bookies that have its entries, in records that they do not serve"
        hint = "put them back: pulsar-admin store salvage ID=DIR,DIR"
    else:
        text = f"no bookie that is here has what lacks of ledger {ledger_id}"
    raise Refused(text, hint=hint, ledgerId=ledger_id)


class _Repointed(Struct, frozen=True):
    before: LedgerMetadata
    after: LedgerMetadata
    nowhere: int


def _repointed(reader: EntryReader, disks: Disks, ledger_id: int) -> _Repointed:
    txn, ledger = reader.txn, read_ledger(reader.txn, ledger_id)
    metadata, held = ledger.metadata, read_held(txn, ledger.ledger_id, disks)
    assert metadata is not None
    assert held is not None
    served = {
        bookie: entries[entries <= ledger.last_entry_id]
        for bookie, entries in read_served(txn, ledger.ledger_id, disks, held).items()
        if bookie in disks.imported
    }
    is_closed = metadata.state is LedgerState.CLOSED or not gone_quorum(metadata, disks.gone)
    if not is_closed:
        _check_seen(txn, ledger, metadata)
    write_quorum, segments = name_bookies(metadata, ledger.last_entry_id, served, disks.imported, disks.gone)
    after = replace(
        metadata,
        segments=segments,
        write_quorum=write_quorum,
        ack_quorum=min(metadata.ack_quorum, write_quorum),
        ensemble_size=len(segments[0].members),
    )
    if not is_closed:
        end = _served_end(after, ledger.last_entry_id, served)
        if end < 0:
            raise Refused(
                f"no bookie that is here serves entry 0 of ledger {ledger.ledger_id}",
                hint=f"see where its entries are: pulsar-admin ledgers info {ledger.ledger_id}",
                ledgerId=ledger.ledger_id,
            )
        length = reader.read(ledger.ledger_id, end).length
        after = replace(after, state=LedgerState.CLOSED, last_entry_id=end, length=length)
        after = replace(after, segments=tuple(one for one in segments if one.first_entry_id <= end))
    left = read_coverage(txn, replace(ledger, metadata=after, last_entry_id=after.last_entry_id))
    return _Repointed(metadata, after, 0 if left is None else left.lost + left.outside)


def _check_seen(txn: Txn, ledger: Ledger, metadata: LedgerMetadata) -> None:
    """Raise Refused where a bookie that may run, and is not imported, may have more of a ledger that is to be closed."""
    absent = absent_in(txn, metadata.segments[-1].members)
    if absent:
        raise Refused(
            f"ledger {ledger.ledger_id} was never closed, and {', '.join(absent)}, which {plural(len(absent), 'is', 'are')} not imported,"
            " may have more of it",
            hint=f"bring the disks: pulsar-admin store add bookie {shell_word(absent[0])}=DIR,DIR",
            ledgerId=ledger.ledger_id,
        )


def _served_end(metadata: LedgerMetadata, last_entry_id: int, served: Mapping[str, Array]) -> int:
    """Return the last entry that the bookies which METADATA names serve together with all in front of it; −1: not even the first."""
    import numpy as np

    found = [np.empty(0, np.int64)]
    for stripe in stripes_of(metadata, last_entry_id):
        found += [served[one][stripe.holds(one, served[one])] for one in set(stripe.members) if one in served]
    ids = np.unique(np.concatenate(found))
    gaps = np.flatnonzero(ids != np.arange(len(ids)))
    return int(gaps[0]) - 1 if len(gaps) else len(ids) - 1


# -- ensembles --------------------------------------------------------------------------------------------------------


def name_bookies(
    metadata: LedgerMetadata,
    last_entry_id: int,
    served: Mapping[str, Array],
    imported: frozenset[str],
    gone: frozenset[str],
) -> tuple[int, tuple[Segment, ...]]:
    """Return (write quorum, ensembles) in which bookies that serve entries take the places of those that do not.

    SERVED: bookie → ids of the entries it serves (i64, ascending). A member of an ensemble keeps its place where it serves an entry of it,
    or may run and is not imported. A place that nobody fills keeps the bookie that is GONE, so that autorecovery sees what is missing.
    """
    import numpy as np

    segments: list[Segment] = []
    starts = [segment.first_entry_id for segment in metadata.segments]
    for segment, end in zip(metadata.segments, [*starts[1:], last_entry_id + 1], strict=True):
        inside = {
            bookie: entries[(entries >= segment.first_entry_id) & (entries < end)] for bookie, entries in served.items()
        }
        for one in _name_in(segment, metadata.write_quorum, inside, imported, gone):
            if not segments or segments[-1].members != one.members:
                segments.append(one)
    everything = np.unique(np.concatenate([np.empty(0, np.int64), *served.values()]))
    if len(segments) <= len(metadata.segments) + _ENSEMBLES_MORE or len(everything) <= last_entry_id:
        return metadata.write_quorum, tuple(segments)
    write_quorum, found, _ = fit_ensembles(-1, served, last_entry_id, None)
    return write_quorum, found


def _name_in(
    segment: Segment,
    write_quorum: int,
    served: Mapping[str, Array],
    imported: frozenset[str],
    gone: frozenset[str],
) -> Iterator[Segment]:
    """Yield the ensembles that take the place of SEGMENT, of which bookies serve the entries SERVED."""
    import numpy as np

    entries = np.unique(np.concatenate([np.empty(0, np.int64), *served.values()]))
    size = len(segment.members)
    has = {bookie: np.isin(entries, found, assume_unique=True) for bookie, found in served.items()}
    asked = [(place - entries) % size < write_quorum for place in range(size)]
    kept = {
        place: bookie
        for place, bookie in enumerate(segment.members)
        if (bookie in has and (has[bookie] & asked[place]).any()) or (bookie not in imported and bookie not in gone)
    }
    free = [place for place in range(size) if place not in kept]
    others = sorted(
        (one for one in has if one not in kept.values() and has[one].any()), key=lambda one: -has[one].sum()
    )
    start, first = 0, segment.first_entry_id
    while start < len(entries) or first == segment.first_entry_id:
        best: tuple[int, int, int, tuple[str, ...]] | None = None
        spare: list[str | None] = [*others, *([None] * len(free))]  # None: the place stays as it is
        for chosen in islice(permutations(spare, len(free)), _ORDERS) if free else [()]:
            members = list(segment.members)
            for place, bookie in zip(free, chosen, strict=True):
                members[place] = bookie or members[place]
            if len(set(members)) < len(members) and len(set(segment.members)) == len(members):
                continue
            counts = np.zeros(len(entries) - start, np.int64)
            for place, bookie in enumerate(members):
                if bookie in has:
                    counts += (has[bookie] & asked[place])[start:]
            lost = np.flatnonzero(counts == 0)
            prefix = int(lost[0]) if len(lost) else len(counts)
            rank = (prefix, int(counts[:prefix].sum()), chosen.count(None), tuple(members))
            best = rank if best is None or rank[:3] > best[:3] else best
            if prefix == len(counts) and (counts == write_quorum).all():
                break
        assert best is not None
        yield Segment(first, best[3])
        start += max(best[0], 1)
        first = int(entries[start]) if start < len(entries) else -1


# -- what is said -----------------------------------------------------------------------------------------------------


def _part(found: _Repointed, ledger_id: int) -> ChangePart:
    warnings = []
    if found.nowhere:
        warnings.append(
            f"{counted(found.nowhere, 'entry')} of ledger {ledger_id} {plural(found.nowhere, 'is', 'are')} on no bookie that is here"
        )
    if found.before.state is not found.after.state:
        warnings.append(
            f"ledger {ledger_id} is closed at its last entry that is here, {found.after.last_entry_id}: what bookies that are gone may have"
            " had behind it is lost"
        )
    return ChangePart(
        resource=f"ledger {ledger_id}",
        before=_shown(found.before),
        after=_shown(found.after),
        warnings=tuple(warnings),
    )


def _shown(metadata: LedgerMetadata) -> dict[str, object]:
    return {
        "state": metadata.state.name,
        "entries": metadata.last_entry_id + 1,
        "writeQuorum": metadata.write_quorum,
        "ensembles": {str(segment.first_entry_id): list(segment.members) for segment in metadata.segments},
    }


def _warnings(parts: Sequence[ChangePart]) -> Iterator[str]:
    bookies = sorted({one for part in parts if part.after for some in part.after["ensembles"].values() for one in some})
    yield f"{counted(len(parts), 'ledger')} {plural(len(parts), 'names', 'name')} {listed(bookies)} from the export on"
