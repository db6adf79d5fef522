"""Which entries of which ledgers: a bitmap a ledger, so that hundreds of millions fit into memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
from pyroaring import BitMap64

from pulsar_admin.store.aliases import Array

_NONE = BitMap64()


class Entries:
    """Entries by ledger."""

    def __init__(self) -> None:
        self.by_ledger: dict[int, BitMap64] = {}

    def __len__(self) -> int:
        return sum(map(len, self.by_ledger.values()))

    def __iter__(self) -> Iterator[tuple[int, BitMap64]]:
        return iter(sorted(self.by_ledger.items()))

    def of(self, ledger_id: int) -> BitMap64:
        """Return those of a ledger, not to be changed."""
        return self.by_ledger.get(ledger_id, _NONE)

    def add(self, ledger_id: int, entry_id: int) -> None:
        """Add one."""
        self.by_ledger.setdefault(ledger_id, BitMap64()).add(entry_id)

    def add_columns(self, ledger_ids: Array, entry_ids: Array) -> None:
        """Add many (i64 each)."""
        if not len(ledger_ids):
            return
        order = np.argsort(ledger_ids, kind="stable")
        ledgers, entries = ledger_ids[order], entry_ids[order].astype("<u8")
        starts = np.flatnonzero(np.diff(ledgers, prepend=-1))
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(ledgers)], strict=True):
            mine = self.by_ledger.setdefault(int(ledgers[start]), BitMap64())
            mine.update(array("Q", entries[start:end].tobytes()))
