"""Who references a ledger, and whose its creator says it is."""

from __future__ import annotations

from collections.abc import Mapping

from store.codec.ledgermetadata import LedgerMetadata
from store.db.environment import Txn
from store.db.owners import Owner, find_owners
from store.errors import LedgerNotFound
from store.frozen import frozen
from store.model.ledgers import find_metadata, find_times


@frozen
class LedgerOwners:
    """Who references a ledger, and what its creator wrote into its custom metadata (text where it is text, else hex)."""

    ledger_id: int
    owners: tuple[Owner, ...]
    claims: Mapping[str, str]
    has_metadata: bool
    indexed_entries: int


def read_owners(txn: Txn, ledger_id: int) -> LedgerOwners:
    """Return who references LEDGER_ID and what it claims; raises LedgerNotFound when nothing here knows it.

    Three LMDB look-ups, whatever the store's size.
    """
    owners = find_owners(txn, ledger_id)
    metadata = find_metadata(txn, ledger_id)
    times = find_times(txn, ledger_id)
    if not owners and metadata is None and times is None:
        raise LedgerNotFound(
            f"ledger {ledger_id} is neither referenced, nor in the metadata, nor in any entry log",
            hint="list ledgers with: pulsar-admin ledgers list",
            ledgerId=ledger_id,
        )
    claims = {} if metadata is None else custom_text(metadata)
    return LedgerOwners(ledger_id, owners, claims, metadata is not None, times.sums.entries if times else 0)


def custom_text(metadata: LedgerMetadata) -> dict[str, str]:
    """Return a ledger's custom metadata with its values as text, those that are not text in hexadecimal."""
    return {key: _text(metadata.custom[key]) for key in sorted(metadata.custom)}


def _text(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value.hex()
    return text if text.isprintable() else value.hex()
