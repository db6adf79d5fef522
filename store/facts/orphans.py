"""Ledgers that nothing references, and what they claim to be."""

from collections.abc import Collection, Iterator

from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.own_ledgers import find_own_ledgers
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.facts.unlisted import Unlisted, UnlistedLedgers
from pulsar_admin.store.model.ledger_owners import all_owners, custom_text, indexed_ids, loose_of
from pulsar_admin.store.model.ledgers import find_metadata, find_times, iter_indexed_ids, merge_ids, sorted_ledger_ids
from pulsar_admin.store.wording import Answer

LEAKED_INDEX = "leaked-index"
UNREFERENCED = "unreferenced"
"""Why a ledger with metadata is an orphan."""
UNKNOWN = "unknown"
"""Why one may be none: what it says to be of is not in this metadata, and nothing shows that it was deleted."""


class Orphan(Answer, frozen=True):
    """An unreferenced ledger: "unreferenced" (it has metadata), "unknown" (its owner is not in this metadata), "deleted", "gone",
    "newer" or "unlisted" (entries alone, see ``store.facts.unlisted``) or "leaked-index" (this store wrote it: part of a delayed message
    index that was recreated, or of a change that was undone). ``claims``: its custom metadata."""

    ledger_id: int
    reason: str
    entries: int
    size_bytes: int
    claims: dict[str, str]


def iter_all_ledger_ids(txn: Txn) -> Iterator[int]:
    """Return every ledger id in the metadata or the index once, ascending."""
    return merge_ids(sorted_ledger_ids(txn), iter_indexed_ids(txn))


def iter_orphans(txn: Txn, foreign: Collection[int] = ()) -> Iterator[Orphan]:
    """Yield the ledgers that no topic, cursor, schema, compaction or delayed index owns, by id; ``foreign``: as of ``find_vanished``."""
    unlisted, own = UnlistedLedgers(txn), find_own_ledgers(txn)
    for ledger_id in merge_ids(loose_of(txn, sorted_ledger_ids(txn)), loose_of(txn, indexed_ids(txn))):
        if ledger_id in unlisted.indexes or all_owners(txn, ledger_id):
            continue
        try:
            metadata = find_metadata(txn, ledger_id)
            claims = {} if metadata is None else custom_text(metadata)
            reason = str(unlisted.why_by_logs(ledger_id)) if metadata is None else UNREFERENCED
            if ledger_id in foreign:
                reason = UNKNOWN
        except StoreError:
            claims, reason = {}, UNREFERENCED
        times = find_times(txn, ledger_id)
        entries, size_bytes = (times.sums.entries, times.sums.payload_bytes) if times else (0, 0)
        # Entries of what this toolkit writes alone are no messages: those of indexes of delayed messages and of compacted views.
        is_own = own is not None and own.first_id <= ledger_id < own.next_id
        if reason == Unlisted.DELETED and is_own and times is not None and times.sums.unframed == entries:
            reason = LEAKED_INDEX
        yield Orphan(ledger_id, reason, entries, size_bytes, claims)
