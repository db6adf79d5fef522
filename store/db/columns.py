"""What is known of entries without the files they lie in: of a store that is made of tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from store.db.blocks import Block


class EntryColumns(Protocol):
    """The columns of entries, and the few records that metadata lies in."""

    def record(self, ledger_id: int, entry_id: int) -> bytes | None:
        """Return the record of an entry that is kept whole, from its size field on; None for any other."""

    def times(self, block: Block) -> Iterator[tuple[int, int | None] | None]:
        """Yield (publish, broker) time in ms of each entry of BLOCK; None for one that is not a message."""

    def batches(self, parts: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, Any]]:  # Any: numpy's columns
        """Yield (entries that no file holds, columns) of PARTS: (ledger id, first entry, last entry)."""
