"""Messages of one topic by their places, in columns: what buckets and indexes say is looked up here, many rows at once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.db.delayed_entries import DelayedRows

Place = tuple[int, int]
"""(ledger, entry)."""
_ENTRY_BITS = 32  # no ledger of Pulsar is longer


class _Column:
    """Numbers of a column that grows in place: pieces put together at the end would need twice the memory."""

    def __init__(self) -> None:
        self._whole: Array = np.zeros(1 << 16, np.int64)
        self._count = 0

    @property
    def values(self) -> Array:
        """What was added, until more is."""
        return self._whole[: self._count]

    def append(self, more: Array) -> None:
        """Add MORE behind the rest."""
        end = self._count + len(more)
        if end > len(self._whole):
            self._whole.resize(end + end // 8, refcheck=False)
        self._whole[self._count : end] = more
        self._count = end


class Places(Struct, frozen=True):
    """Messages in order of their places, 16 bytes each. ``keys``: number of the ledger in ``ledger_ids`` << 32 | entry id."""

    ledger_ids: Array  # i64, ascending
    keys: Array  # i64, ascending
    times_ms: Array  # i64

    def __len__(self) -> int:
        return len(self.keys)

    @staticmethod
    def of(ledger_ids: Iterable[int], batches: Iterable[DelayedRows]) -> Places:
        """Return the messages of BATCHES, each once, which lie in LEDGER_IDS (ascending)."""
        ids = np.array(list(ledger_ids), np.int64)
        keys, times = _Column(), _Column()
        for rows in batches:
            keys.append(np.searchsorted(ids, rows.ledger_ids) << _ENTRY_BITS | rows.entry_ids)
            times.append(rows.times_ms)
        if np.any(keys.values[1:] < keys.values[:-1]):
            order = np.argsort(keys.values)
            return Places(ids, keys.values[order], times.values[order])
        return Places(ids, keys.values, times.values)

    def find(self, rows: DelayedRows) -> Array:
        """Return where each of ROWS is here, −1 where it is not."""
        if not len(self):
            return np.full(len(rows), -1, np.int64)
        numbers = np.minimum(np.searchsorted(self.ledger_ids, rows.ledger_ids), len(self.ledger_ids) - 1)
        is_key = (self.ledger_ids[numbers] == rows.ledger_ids) & (rows.entry_ids >> _ENTRY_BITS == 0)
        keys = numbers << _ENTRY_BITS | np.where(is_key, rows.entry_ids, 0)
        found = np.minimum(np.searchsorted(self.keys, keys), len(self) - 1)
        return np.where(is_key & (self.keys[found] == keys), found, -1)

    def between(self, first_ledger_id: int, last_ledger_id: int) -> slice:
        """Return where the messages of those ledgers are, both included."""
        numbers = np.array(
            [
                np.searchsorted(self.ledger_ids, first_ledger_id),
                np.searchsorted(self.ledger_ids, last_ledger_id, "right"),
            ]
        )
        low, high = np.searchsorted(self.keys, numbers << _ENTRY_BITS).tolist()
        return slice(low, high)

    def place(self, index: int) -> Place:
        """Return the place of one."""
        key = int(self.keys[index])
        return int(self.ledger_ids[key >> _ENTRY_BITS]), key & ((1 << _ENTRY_BITS) - 1)


def distinct(parts: Iterable[DelayedRows]) -> tuple[Array, Array]:
    """Return the different places of PARTS in order, as (ledger, entry) rows, and how often each occurs."""
    pairs = [np.stack((rows.ledger_ids, rows.entry_ids), axis=1) for rows in parts]
    whole = np.concatenate([np.zeros((0, 2), np.int64), *pairs])
    whole = whole[np.lexsort((whole[:, 1], whole[:, 0]))]
    firsts = np.flatnonzero(np.append(True, np.any(whole[1:] != whole[:-1], axis=1))[: len(whole)])
    return whole[firsts], np.diff(np.append(firsts, len(whole)))
