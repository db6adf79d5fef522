"""Which ledger belongs to whom: ledger id → references from the metadata (database ``owners``, derived by ``store.model.references``)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from store.codec.ledgermetadata import LedgerMetadata
from store.db.blocks import ledger_key, ledger_of_key
from store.db.environment import Txn
from store.errors import IndexCorrupt, LedgerNotFound, reason_of
from store.model.ledgers import find_metadata, find_times


@dataclass(frozen=True, slots=True)
class Owner:
    """One reference to a ledger. ``kind``: managed-ledger, cursor, compacted, schema or delayed-bucket;
    delayed-index where an index of delayed messages, which is ours alone, holds the ledger."""

    kind: str
    topic: str
    cursor: str = ""


def find_owners(txn: Txn, ledger_id: int) -> tuple[Owner, ...]:
    """Return who references LEDGER_ID; empty when nobody does. Raises IndexCorrupt."""
    row = txn.get("owners", ledger_key(ledger_id))
    return () if row is None else _decode_owners(ledger_id, row)


def iter_owners(txn: Txn) -> Iterator[tuple[int, tuple[Owner, ...]]]:
    """Yield (ledger id, who references it) for every referenced ledger, in id order; raises IndexCorrupt."""
    for key, row in txn.items("owners"):
        ledger_id = ledger_of_key(key)
        yield ledger_id, _decode_owners(ledger_id, bytes(row))


def _decode_owners(ledger_id: int, row: bytes) -> tuple[Owner, ...]:
    try:
        return tuple(Owner(**fields) for fields in json.loads(row))
    except (ValueError, TypeError, RecursionError) as error:
        raise IndexCorrupt(
            f"the owners row of ledger {ledger_id} is damaged: {reason_of(error)}",
            hint="pulsar-admin store index --rebuild",
            ledgerId=ledger_id,
        ) from error


@dataclass(frozen=True, slots=True)
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
    """Return a ledger's custom metadata with its values as text, those that are no text in hexadecimal."""
    return {key: _text(metadata.custom[key]) for key in sorted(metadata.custom)}


def _text(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value.hex()
    return text if text.isprintable() else value.hex()


def put_owners(txn: Txn, ledger_id: int, owners: tuple[Owner, ...]) -> None:
    """Set who references LEDGER_ID; nobody removes the row."""
    if owners:
        txn.put("owners", ledger_key(ledger_id), encode_owners(owners))
    else:
        txn.delete("owners", ledger_key(ledger_id))


def encode_owners(owners: Iterable[Owner]) -> bytes:
    """Return the row of a ledger that OWNERS reference."""
    rows = [{"kind": owner.kind, "topic": owner.topic, "cursor": owner.cursor} for owner in owners]
    return json.dumps(rows).encode()
