"""Collects which entries each file holds while it is indexed, for ``store.db.copies``."""

from array import array
from collections.abc import Iterable, Iterator

import numpy as np
from pyroaring import BitMap64

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.db.blocks import Block
from pulsar_admin.store.db.copies import add_copies, begin_copies, has_copies
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import FileMode, LogFile, iter_logs


class HeldEntries:
    """Collects entry ids by ledger and file, in memory until the transaction writes them."""

    def __init__(self) -> None:
        self._entries: dict[tuple[int, int], BitMap64] = {}

    def __iter__(self) -> Iterator[tuple[int, int, BitMap64]]:
        return ((*key, entries) for key, entries in self._entries.items())

    def add_range(self, ledger_id: int, file_id: int, first: int, end: int) -> None:
        """Add the entries from ``first`` to ``end`` (excluded)."""
        self._of(ledger_id, file_id).add_range(first, end)

    def add(self, ledger_id: int, file_id: int, entry_ids: Array) -> None:
        """Add entry ids, of any integer type."""
        self._of(ledger_id, file_id).update(array("Q", entry_ids.astype("<u8").tobytes()))

    def _of(self, ledger_id: int, file_id: int) -> BitMap64:
        return self._entries.setdefault((ledger_id, file_id), BitMap64())


def note_copies(txn: Txn, logs: Iterable[LogFile]) -> None:
    """Begin to record copies as soon as the catalogue and the new logs come from more than one bookie.

    The copies of a bookie imported before are taken from the location index. A store of several bookies from a version
    that recorded no copies has none until its index is rebuilt.
    """
    if has_copies(txn) or len(_bookies(logs)) < 2:
        return
    if len(_bookies(log for log in iter_logs(txn) if log.records)) > 1:
        return
    held = HeldEntries()
    for key, value in txn.items("entries"):
        hold(held, Block(key, value))
    begin_copies(txn, taken_over=any(held))
    add_copies(txn, held)


def _bookies(logs: Iterable[LogFile]) -> set[str]:
    return {log.disk for log in logs if log.mode is not FileMode.OWN}


def hold(held: HeldEntries, block: Block) -> None:
    """Add the entries of a block to the held ones."""
    first, slots, column = block.entry_id(0), block.slots(), block.files()
    if isinstance(column, int) and isinstance(slots, range):
        held.add_range(block.ledger_id, column, first, first + len(slots))
        return
    entry_ids = first - slots[0] + np.array(slots, np.int64)
    files = np.broadcast_to(np.asarray(column), len(entry_ids))
    for file_id in np.unique(files).tolist():
        held.add(block.ledger_id, file_id, entry_ids[files == file_id])
