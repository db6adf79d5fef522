"""What a store is made of again beside the tables that people ask: its small databases, times of ledgers, records of metadata."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

import numpy as np

from store.db.bodies import is_body
from store.db.environment import Store, Txn
from store.db.files import find_log
from store.model.reader import NOTED, EntryReader, open_reader

STORE = "store"
"""In the place of a database: one row, which says what ``store.json`` did, and where the store is."""
KEPT = ("base", "changes", "copies", "damage", "delayed", "logs", "nacks", "owners", "state", STORE, "times")
"""The databases of the table ``rows``, in its order."""
Body = tuple[int, int, str, int, bytes]
"""Ledger, entry, the file, the offset of the record there, the record from its size field on."""


def iter_kept(txn: Txn) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield (database, key, value) of the store's small databases, as they are."""
    for database in KEPT:
        if database == STORE:
            yield STORE, b"", json.dumps(_about(txn.store)).encode()
        else:
            rows = ((key, bytes(value)) for key, value in txn.items(database) if not is_body(database, key))
            yield from ((database, *row) for row in rows)


def _about(store: Store) -> Mapping[str, object]:
    info = store.info
    return {"path": str(store.path.absolute()), "created": info.created_ms, "sources": info.sources, "kept": KEPT}


def iter_bodies(store: Store, read: Callable[[EntryReader], Iterable[object]]) -> Iterator[Body]:
    """Yield the entries of STORE that READ reads, which goes through all that metadata says, by ledger and entry."""
    with open_reader(store) as reader:  # what another transaction has read it does not read again
        places = _noted(reader, read)
        for ledger_id, entry_id, file_id, offset, size in places:
            record = reader.read_head(ledger_id, entry_id, (file_id, offset, size), 4 + size)
            log = find_log(reader.txn, file_id)
            assert log is not None  # the index named it when the entry was read
            yield ledger_id, entry_id, str(log.locate(store.path).absolute()), offset, record


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
