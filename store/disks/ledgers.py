"""The ledgers that a bookie has, by its index."""

from __future__ import annotations

import numpy as np

from store.frozen import frozen
from store.recovery.known import Array
from store.sources.rocksdb import open_for_reading
from store.sources.storage import Storage

_KEY_BYTES = 8


@frozen
class Ledgers:
    """A set of ledger ids: ``ids`` ascend."""

    ids: Array

    def has(self, ledger_ids: Array) -> Array:
        """Return which of LEDGER_IDS are in it."""
        if not len(self.ids):
            return np.zeros(len(ledger_ids), np.bool_)
        at = np.minimum(np.searchsorted(self.ids, ledger_ids), len(self.ids) - 1)
        found: Array = self.ids[at] == ledger_ids
        return found


def read_held(storage: Storage) -> Array:
    """Return the ledgers in the database ``ledgers`` of STORAGE (upstream ``LedgerMetadataIndex``), in no order."""
    with open_for_reading(storage.index / "ledgers") as rows:
        # Rows of ``rebuild-db-ledgers-index`` have longer keys, and flags a negative one.
        keys = (int.from_bytes(key[:_KEY_BYTES], "big", signed=True) for key, _ in rows if len(key) >= _KEY_BYTES)
        return np.fromiter((key for key in keys if key >= 0), np.int64)
