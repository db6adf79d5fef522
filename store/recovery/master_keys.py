"""Which ledgers have a password, by the master keys that bookies keep: Pulsar gives none (``managedLedgerPassword``), others may.

Upstream: ``MacDigestManager.genDigest("ledger", password)``, DbLedgerStorage's ``LedgerMetadataIndex`` (BookKeeper 4.17). Indexes in
``.idx`` files are not asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from pulsar_admin.store.codec.dbledger import decode_ledgers_row
from pulsar_admin.store.codec.digest import master_key
from pulsar_admin.store.db.bookies import iter_imported_bookies
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import MetadataCorrupt, StoreError
from pulsar_admin.store.sources.rocksdb import is_rocksdb, open_for_reading


class MasterKeys(Struct, frozen=True):
    """``agree``: rows of bookies' indexes with the key of no password; ``locked``: ledgers with another one."""

    agree: int
    locked: tuple[int, ...]


def read_master_keys(txn: Txn) -> MasterKeys:
    """Return what the indexes of the imported bookies say; one that cannot be read says nothing."""
    none, agree, locked = master_key(b""), 0, set[int]()
    for database in _databases(txn):
        for ledger_id, key in _iter_keys(database):
            agree += key == none
            if key != none:
                locked.add(ledger_id)
    return MasterKeys(agree, tuple(sorted(locked)))


def _iter_keys(database: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (ledger, master key) of the rows that have one."""
    with suppress(StoreError), open_for_reading(database, []) as rows:
        yield from (found for key, value in rows if (found := _key_of(key, value)) is not None)


def _key_of(key: bytes, value: bytes) -> tuple[int, bytes] | None:
    """Return ledger and master key of a row; None without one: flags have a negative id, a rebuilt index empty keys."""
    try:
        ledger_id, row = decode_ledgers_row(key, value, "ledgers")
    except MetadataCorrupt:
        return None
    return (ledger_id, row.master_key) if ledger_id >= 0 and any(row.master_key) else None


def _databases(txn: Txn) -> Iterator[Path]:
    for bookie in iter_imported_bookies(txn.store.info):
        for directory in bookie.index_dirs or bookie.ledger_dirs:
            if is_rocksdb(directory / "ledgers"):
                yield directory / "ledgers"
