"""The ``locations`` of a ledger directory as columns: where the bookie finds each entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.entrylog import SIZE_BYTES
from pulsar_admin.store.errors import MetadataCorrupt, Refused
from pulsar_admin.store.sources.rocksdb import apply_changes
from pulsar_admin.store.sources.rocksopen import iter_pairs, open_links
from pulsar_admin.store.sources.storage import Storage

_PART_ROWS = 1 << 16
_LOG_ID_SHIFT = 32
_POSITION = (1 << 32) - 1
_LENGTHS = {16, 8}


class Places(NamedTuple):
    """Rows of the index: the entry, its log, and the offset there of the record's size field. Arrays of i64."""

    ledger_ids: Array
    entry_ids: Array
    log_ids: Array
    offsets: Array

    def where(self, mask: Array) -> Places:
        """Return the rows that MASK chooses."""
        return Places(*(column[mask] for column in self))


NOWHERE = Places(*(np.zeros(0, np.int64) for _ in Places._fields))
Find = Callable[[int, int], "tuple[int, int] | None"]
"""From ledger and entry id to (log id, offset of the record's size field), None where the index has no row."""


def join_places(parts: list[Places]) -> Places:
    """Return the rows of all PARTS."""
    return Places(*(np.concatenate(columns) for columns in zip(*parts, strict=True))) if parts else NOWHERE


def same_places(one: Places, other: Places) -> bool:
    """Return whether ONE and OTHER are the same rows, in any order; of an entry that OTHER has twice the last row counts."""
    return bool(np.array_equal(_by_entry(one), _by_entry(other)))


def _by_entry(places: Places) -> Array:
    ordered = places.where(np.lexsort((places.entry_ids, places.ledger_ids)))
    is_last = np.ones(len(ordered.ledger_ids), np.bool_)
    is_last[:-1] = (np.diff(ordered.ledger_ids) != 0) | (np.diff(ordered.entry_ids) != 0)
    found: Array = np.column_stack(ordered.where(is_last))
    return found


class Index:
    """An open ``locations``."""

    def __init__(self, database: Any, where: str) -> None:  # Any: rocksdict has no stubs
        self._database = database
        self._where = where

    def iter_places(self) -> Iterator[Places]:
        """Yield all rows in the order of ledgers and entries; raises MetadataCorrupt."""
        pairs = iter_pairs(self._database)
        while part := list(islice(pairs, _PART_ROWS)):
            raw = b"".join(chain.from_iterable(part))
            if len(raw) != 24 * len(part) or set(map(len, chain.from_iterable(part))) != _LENGTHS:
                raise MetadataCorrupt(
                    f"{self._where}: a row that is not a location: 16 and 8 bytes were expected", where=self._where
                )
            rows = np.frombuffer(raw, ">i8").reshape(-1, 3).astype(np.int64)
            yield Places(rows[:, 0], rows[:, 1], rows[:, 2] >> _LOG_ID_SHIFT, (rows[:, 2] & _POSITION) - SIZE_BYTES)

    def find(self, ledger_id: int, entry_id: int) -> tuple[int, int] | None:
        """Return the log and offset of an entry, None where there is no row."""
        value = self._database.get(np.array([ledger_id, entry_id], ">i8").tobytes())
        if value is None:
            return None
        location = int.from_bytes(value, "big")
        return location >> _LOG_ID_SHIFT, (location & _POSITION) - SIZE_BYTES


@contextmanager
def open_index(storage: Storage) -> Iterator[Index]:
    """Open the ``locations`` of STORAGE for reading; raises Refused for a damaged one: what it misses would look like garbage."""
    directory = storage.index / "locations"
    problems: list[str] = []
    with open_links(directory, problems) as database:
        if problems:
            raise Refused(
                f"the index of {storage.logs} is damaged: {problems[0]}",
                hint="make it again first: pulsar-admin store salvage ID=DIR,DIR",
                problems=problems,
            )
        yield Index(database, str(directory))


def apply_places(storage: Storage, places: Places) -> None:
    """Let ``locations`` of STORAGE name PLACES, all at once and durably, or stay as it is; raises MetadataCorrupt, DiskFull."""
    order = np.lexsort((places.entry_ids, places.ledger_ids))
    keys = np.column_stack([places.ledger_ids[order], places.entry_ids[order]]).astype(">i8").tobytes()
    locations = places.log_ids[order] << _LOG_ID_SHIFT | places.offsets[order] + SIZE_BYTES
    values = locations.astype(">i8").tobytes()

    def changes() -> Iterator[tuple[bytes, bytes | None]]:
        for row in range(len(order)):
            yield keys[16 * row : 16 * row + 16], values[8 * row : 8 * row + 8]

    apply_changes(storage.index / "locations", changes)
