"""Records that metadata lies in (of cursor ledgers and of schemas), in a store that was made of tables: its logs may lie elsewhere.

Row (database ``state``): key ``body``, ledger id i64, entry id i64, big-endian; value the record from its size field on.
"""

import struct

from pulsar_admin.store.db.environment import Txn

PREFIX = b"body"
_KEY = struct.Struct(">4sqq")


def body_key(ledger_id: int, entry_id: int) -> bytes:
    """Return the key of an entry's record."""
    return _KEY.pack(PREFIX, ledger_id, entry_id)


def is_body(database: str, key: bytes) -> bool:
    """Whether a key of a database is that of such a record."""
    return database == "state" and key.startswith(PREFIX)


def has_bodies(txn: Txn) -> bool:
    """Whether the store has any such record: most stores have none."""
    return next(txn.keys("state", PREFIX), None) is not None


def find_body(txn: Txn, ledger_id: int, entry_id: int) -> bytes | None:
    """Return the record of an entry, None if the store has no copy."""
    return txn.get("state", body_key(ledger_id, entry_id))
