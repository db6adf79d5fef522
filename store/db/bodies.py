"""Entries that contain metadata (of cursor and schema ledgers), kept in a store made from tables, whose logs may be
elsewhere.

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
    """Whether a key of a database is that of an entry's record kept here."""
    return database == "state" and key.startswith(PREFIX)


def has_bodies(txn: Txn) -> bool:
    """Whether the store keeps any entry's record; most stores keep none."""
    return next(txn.keys("state", PREFIX), None) is not None


def find_body(txn: Txn, ledger_id: int, entry_id: int) -> bytes | None:
    """Return the record of an entry, None if the store has no copy."""
    return txn.get("state", body_key(ledger_id, entry_id))
