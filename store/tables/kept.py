"""What answers from tables alone need beside the tables that people ask: a store's small databases, records that metadata lies in."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import numpy as np

from store.db.environment import Store, Txn
from store.model.reader import NOTED, EntryReader, open_reader

KEPT = ("copies", "damage", "delayed", "logs", "nacks", "owners", "state")
"""The databases of the table ``rows``, in its order; the last rows are ``STORE``."""
STORE = "store"
"""In the place of a database: one row, which says what ``store.json`` did, and where the store is."""
Body = tuple[int, int, str, int, bytes]
"""Ledger, entry, the file, the offset of the record there, the record from its size field on."""


def iter_kept(txn: Txn) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield (database, key, value) of the store's small databases, as they are."""
    for database in KEPT:
        for key, value in txn.items(database):
            yield database, key, bytes(value)
    info = txn.store.info
    about = {"path": str(txn.store.path.absolute()), "created": info.created_ms, "sources": info.sources}
    yield STORE, b"", json.dumps(about).encode()


def iter_bodies(store: Store, read: Callable[[EntryReader], Iterable[object]]) -> Iterator[Body]:
    """Yield the entries of STORE that READ reads, which goes through all that metadata says, by ledger and entry."""
    with open_reader(store) as reader:  # what another transaction has read it does not read again
        places = _noted(reader, read)
        for ledger_id, entry_id, file_id, offset, size in places:
            record = reader.files.read(file_id, offset, 4 + size)
            yield ledger_id, entry_id, str(reader.files.path_of(file_id)), offset, record


def _noted(reader: EntryReader, read: Callable[[EntryReader], Iterable[object]]) -> Iterator[list[int]]:
    places = array("q")
    noted: dict[tuple[int, int], tuple[int, int, int]] = {}
    reader.txn.memo[NOTED] = noted
    for _ in chain(read(reader), (None,)):  # what was read behind the last row counts, too
        for entry, place in noted.items():
            places.extend((*entry, *place))
        noted.clear()
    del reader.txn.memo[NOTED]
    rows = np.unique(np.frombuffer(places, np.int64).reshape(-1, 5), axis=0)
    return (row.tolist() for row in rows)
