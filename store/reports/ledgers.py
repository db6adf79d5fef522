"""Every ledger the store knows: listed in the metadata, present in entry logs, or referenced; which entries and copies are missing."""

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.owners import Owner, iter_owners
from pulsar_admin.store.errors import NothingMatches, StoreError
from pulsar_admin.store.facts.orphans import iter_all_ledger_ids
from pulsar_admin.store.facts.unlisted import UnlistedLedgers
from pulsar_admin.store.model.broken import NO_METADATA, NOT_SEEN, Missing, find_missing
from pulsar_admin.store.model.coverage import bring_command
from pulsar_admin.store.model.ledger_owners import LedgerOwners, read_owners
from pulsar_admin.store.model.ledgers import (
    count_missing,
    find_metadata,
    find_times,
    is_in_tiered_storage,
    merge_ids,
    read_ledger,
    sorted_ledger_ids,
)
from pulsar_admin.store.wording import Answer

INDEX = "INDEX"
UNREADABLE = "UNREADABLE"
_RECORD_BYTES = 36  # around a payload: the entry's header and its usual digest


class LedgerRow(Answer, frozen=True):
    """One ledger in a list. ``state``: upstream's, "UNREADABLE" with metadata that is damaged, of which only the index tells entries and
    bytes, "INDEX" for a ledger of a delayed message index, which no broker knows; without metadata, ``store.facts.unlisted`` says why:
    "DELETED", "GONE", "NEWER" or "UNLISTED"."""

    ledger_id: int
    state: str
    entries: int | None
    indexed_entries: int
    missing_entries: int | None
    size_bytes: int | None
    messages: int
    begin_publish_timestamp: int | None
    end_publish_timestamp: int | None
    owners: tuple[Owner, ...]


def iter_ledger_rows(txn: Txn, word: str, fail: Callable[[StoreError], None]) -> Iterator[LedgerRow]:
    """Yield the rows of all ledgers whose owner's name contains ``word`` (empty: of all); what cannot be read goes to ``fail``.

    Raises NothingMatches at the end if no ledger has such an owner.
    """
    unlisted, is_empty = UnlistedLedgers(txn), bool(word)
    for ledger_id in iter_all_ledger_ids(txn):
        try:
            row = _ledger_row(txn, ledger_id, unlisted)
        except StoreError as error:
            fail(error)
            continue
        if not word or any(word in owner.topic for owner in row.owners):
            is_empty = False
            yield row
    if is_empty:
        raise NothingMatches(
            f"no ledger has an owner whose name contains {word!r}",
            hint="list all with: pulsar-admin ledgers list",
            text=word,
        )


def _ledger_row(txn: Txn, ledger_id: int, unlisted: UnlistedLedgers) -> LedgerRow:
    times = find_times(txn, ledger_id)
    sums = times.sums if times else None
    state, missing = UNREADABLE, None
    entries, size_bytes = (sums.entries, sums.payload_bytes) if sums else (None, None)
    try:
        ledger = read_ledger(txn, ledger_id)
    except StoreError:
        pass
    else:
        state = ledger_state(txn, ledger_id, unlisted)
        entries, missing, size_bytes = ledger.entries, count_missing(txn, ledger), ledger.size_bytes
    return LedgerRow(
        ledger_id,
        state,
        entries,
        sums.entries if sums else 0,
        missing,
        size_bytes,
        sums.messages if sums else 0,
        sums.begin_publish_ms if sums else None,
        sums.end_publish_ms if sums else None,
        unlisted.owners(ledger_id),
    )


def ledger_state(txn: Txn, ledger_id: int, unlisted: UnlistedLedgers) -> str:
    """Return the state of a ledger as lists name it, see ``LedgerRow``."""
    try:
        metadata = find_metadata(txn, ledger_id)
    except StoreError:
        return UNREADABLE
    if metadata is not None:
        return metadata.state.name
    return INDEX if ledger_id in unlisted.indexes else unlisted.why_by_logs(ledger_id).name


def read_stated_owners(txn: Txn, ledger_id: int) -> LedgerOwners:
    """Return who owns ``ledger_id``, what it claims and its state; raises LedgerNotFound."""
    return replace(read_owners(txn, ledger_id), state=ledger_state(txn, ledger_id, UnlistedLedgers(txn)))


def indexed_bytes(txn: Txn, ledgers: Iterable[int]) -> int:
    """Return how many bytes a reading of all indexed entries of ``ledgers`` reads."""
    sums = [times.sums for times in (find_times(txn, ledger_id) for ledger_id in ledgers) if times is not None]
    return sum(one.payload_bytes + one.entries * _RECORD_BYTES for one in sums)


def read_missing(txn: Txn, ledger_id: int) -> Missing | None:
    """Return the missing entries of a ledger, None in tiered storage; raises LedgerNotFound for one that the store does not know."""
    read_owners(txn, ledger_id)
    return _find_missing(txn, ledger_id)


def iter_missing(txn: Txn) -> Iterator[Missing]:
    """Yield the missing entries of every ledger that is listed or referenced, by id; offloaded ledgers are elsewhere."""
    listed = sorted_ledger_ids(txn)
    referenced = (ledger_id for ledger_id, _ in iter_owners(txn))
    found = (_find_missing(txn, ledger_id) for ledger_id in merge_ids(listed, referenced))
    yield from (missing for missing in found if missing is not None)


def _find_missing(txn: Txn, ledger_id: int) -> Missing | None:
    """Return ``find_missing`` of a ledger, with the command that rebuilds lost metadata or adds a bookie that was not imported.

    None for a ledger in tiered storage, which has all its entries."""
    missing = find_missing(txn, ledger_id)
    if missing is None or is_in_tiered_storage(txn, ledger_id):
        return None
    if missing.reason == NO_METADATA and missing.owners and not missing.cure and missing.may_be_restored:
        return replace(missing, cure=f"pulsar-admin ledgers restore {ledger_id}")
    if missing.reason == NOT_SEEN and missing.bookies:
        return replace(missing, cure=bring_command(missing.bookies[0]))
    return missing
