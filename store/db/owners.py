"""Which ledger belongs to whom: ledger id → references from the metadata (database ``owners``, derived by ``store.model.references``)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from store.db.blocks import ledger_key, ledger_of_key
from store.db.environment import Txn
from store.errors import IndexCorrupt, reason_of
from store.frozen import frozen


@frozen
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
