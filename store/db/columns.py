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
        """Yield (publish, broker) time in ms of each entry of BLOCK; None for one that is no message."""

    def is_before(self, ledger_id: int, time_ms: int, clock: str) -> bool:
        """Whether entries of a ledger are there and all are earlier on CLOCK, as bounds of theirs tell; False where they do not."""

    def extent(self, ledger_id: int) -> tuple[int, int, int] | None:
        """Return (entries that are there, first, last) of a ledger, None where none is."""

    def batches(self, parts: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, Any]]:  # Any: numpy's columns
        """Yield (entries that no file holds, columns) of PARTS: (ledger id, first entry, last entry)."""
