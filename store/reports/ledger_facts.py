"""Read model of ``ledgers info``: everything known about one ledger. Imports little, because the command is typed by hand."""

from msgspec import field

from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata
from pulsar_admin.store.db.blocks import LedgerSums
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import find_log
from pulsar_admin.store.db.owners import Owner, find_owners
from pulsar_admin.store.errors import LedgerNotFound, StoreError
from pulsar_admin.store.model.broken import find_missing
from pulsar_admin.store.model.coverage import Coverage, OpenEnd, read_coverage, read_open_end
from pulsar_admin.store.model.ledger_owners import all_owners
from pulsar_admin.store.model.ledgers import is_in_tiered_storage, iter_blocks, missing_ranges, read_past_damage
from pulsar_admin.store.wording import Answer

LOST, OFFLOADED, UNKNOWN = "LOST", "OFFLOADED", "UNKNOWN"


class LedgerFacts(Answer, frozen=True):
    """Everything known about one ledger. ``metadata`` and ``sums`` (from the index) are None if they do not exist.

    ``state``: that of a ``LedgerRow``, or of a referenced ledger without metadata and without an entry in any file: ``LOST``,
    ``UNKNOWN`` where bookies that were not imported may have it, or only a shadow topic names it, whose broker lists its source's
    ledgers; ``OFFLOADED`` where its topic says that it is in tiered storage.
    ``missing``: ids of entries that no file holds, as ranges with both ends included; ``lost``: what
    ``ledgers missing`` says of it; ``files``: those with its entries. ``coverage``: on how many bookies its entries are,
    None where nothing tells; ``open_end``: where a recovery would close it, None when it is closed.
    """

    ledger_id: int
    state: str
    last_entry_id: int
    entries: int
    size_bytes: int
    metadata: LedgerMetadata | None
    sums: LedgerSums | None = field(name="indexed")
    missing: tuple[tuple[int, int], ...]
    lost: str | None
    files: tuple[str, ...]
    coverage: Coverage | None
    open_end: OpenEnd | None
    owners: tuple[Owner, ...]


def read_ledger_facts(txn: Txn, ledger_id: int, problems: list[StoreError]) -> LedgerFacts:
    """Return everything known about a ledger; raises LedgerNotFound, IndexCorrupt, MetadataCorrupt for one without entries.

    ``problems`` gets the error of damaged metadata of a ledger with entries.
    """
    try:
        view, ledger, damage = read_past_damage(txn, ledger_id)
        problems += [] if damage is None else [damage]
    except LedgerNotFound:
        owners = find_owners(txn, ledger_id)
        if not owners:
            raise
        is_away = is_in_tiered_storage(txn, ledger_id)
        gone = None if is_away else find_missing(txn, ledger_id)
        state = OFFLOADED if is_away else UNKNOWN if gone is None or gone.absent else LOST
        reason = None if gone is None else gone.reason
        return LedgerFacts(ledger_id, state, -1, 0, 0, None, None, (), reason, (), None, None, owners)
    index: Owner | None = None
    if txn.count("delayed"):  # the index of delayed messages that it is a part of
        from pulsar_admin.store.db.delayed import find_index_ledgers

        index = find_index_ledgers(txn).get(ledger_id)
    if ledger.metadata is not None:
        state = ledger.metadata.state.name
    else:
        from pulsar_admin.store.facts.unlisted import UnlistedLedgers
        from pulsar_admin.store.reports.ledgers import ledger_state

        state = ledger_state(txn, ledger_id, UnlistedLedgers(txn))
    owners = all_owners(txn, ledger_id)
    missing, lost = missing_ranges(txn, ledger) if ledger.metadata else (), find_missing(txn, ledger_id)
    file_ids: set[int] = set()
    for block in iter_blocks(txn, ledger_id):
        column = block.files()
        file_ids.update((column,) if isinstance(column, int) else column)
    return LedgerFacts(
        ledger_id=ledger_id,
        state=state,
        last_entry_id=ledger.last_entry_id,
        entries=ledger.entries,
        size_bytes=ledger.size_bytes,
        metadata=ledger.metadata,
        sums=ledger.sums,
        missing=missing,
        lost=lost.reason if lost is not None and (index is None or ledger.metadata) else None,
        files=tuple(log.path for file_id in sorted(file_ids) if (log := find_log(txn, file_id)) is not None),
        coverage=read_coverage(view, ledger),
        open_end=read_open_end(view, ledger),
        owners=owners if index is None else (index,),
    )
