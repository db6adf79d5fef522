"""Records → runs: what the location and time index needs of them, and no more. Executors send runs, not records.

A run is the records of one batch that lie in one location block (``store.db.blocks``), in ascending order: where each lies,
and the sums and time bounds of all. Of a block of 1,024 entries that is about 8 KiB: an offset and a size each, a message count
only where an entry does not hold exactly one, a slot only where entries are missing between, a kind only where entries with and
without a broker time or a message header are mixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from store.aliases import Array
from store.db.blocks import BLOCK_BITS, BLOCK_ENTRIES
from store.frozen import NamedTuple
from store.kernels.blocks import RUN, sum_blocks
from store.kernels.records import BAD_DIGEST, HAS_BROKER_TIME, UNFRAMED

Records = np.ndarray[Any, np.dtype[np.void]]  # of store.kernels.records.RECORD

IS_UNFRAMED, HAS_BROKER = 1, 2  # bits of a kind
_DTYPES: tuple[Any, ...] = (RUN, "<u4", "<u4", "<u4", "<u2", "u1")  # of the columns of Runs, in their order


class Run(NamedTuple):
    """A row of RUN."""

    start: int
    end: int
    ledger_id: int
    block: int
    messages: int
    payload_bytes: int
    publish_min_ms: int
    publish_max_ms: int
    broker_min_ms: int
    broker_max_ms: int
    auto_min_ms: int
    auto_max_ms: int
    broker_count: int
    unframed: int
    others: int
    max_lac: int
    digest_bytes: int
    first_slot: int
    last_slot: int

    @property
    def length(self) -> int:
        return self.end - self.start

    @property
    def has_holes(self) -> bool:
        return self.last_slot - self.first_slot != self.length - 1


class Runs:
    """The runs of one batch. Columns: ``offsets`` and ``sizes`` of all records, one run after the other; ``counts``, ``slots``
    and ``kinds`` of those runs alone that need them."""

    __slots__ = ("counts", "kinds", "offsets", "rows", "sizes", "slots", "table")

    COLUMNS = ("table", "offsets", "sizes", "counts", "slots", "kinds")

    def __init__(self, table: Array, columns: tuple[Array, Array, Array, Array, Array]) -> None:
        self.table = table  # of RUN
        self.offsets, self.sizes, self.counts, self.slots, self.kinds = columns
        self.rows = [Run(*row) for row in table.tolist()]

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(column.nbytes for column in self.columns())

    def columns(self) -> tuple[Array, ...]:
        """Return the arrays in the order of COLUMNS; ``decode_runs`` makes the runs of their bytes again."""
        return tuple(getattr(self, name) for name in self.COLUMNS)

    def starts(self) -> list[tuple[int, int, int]]:
        """Return where each run's part of ``counts``, ``slots`` and ``kinds`` begins; what a run does not need has no part."""
        sizes = self.table["end"] - self.table["start"]
        parts = [np.where(needed, sizes, 0) for needed in _needs(self.table)]
        return list(zip(*((np.cumsum(part) - part).tolist() for part in parts), strict=True))


def decode_runs(columns: list[Any]) -> Runs:  # Any: buffers
    """Return the runs whose columns have the bytes COLUMNS, in the order of ``Runs.COLUMNS``."""
    table, *rest = (np.frombuffer(data, dtype) for data, dtype in zip(columns, _DTYPES, strict=True))
    return Runs(table, tuple(rest))  # type: ignore[arg-type]  # five


def pack_runs(records: Records, *, keep_first: bool) -> Runs:
    """Return the runs of RECORDS, those with a bad digest left out; of records of one entry the first counts, or the last."""
    table = _cut(records)
    if table is None:
        records = records[records["flags"] & BAD_DIGEST == 0]
        ledgers, lacs = _largest_lacs(records)
        records = _sorted(records, keep_first=keep_first)
        table = _cut(records)
        assert table is not None
        table["max_lac"] = lacs[np.searchsorted(ledgers, table["ledger_id"])]
    others, holes, mixed = (_of(needed, table) for needed in _needs(table))
    columns = (
        records["offset"].astype("<u4"),
        records["size"].astype("<u4"),
        # A batch that claims a negative number of messages has none.
        np.maximum(records["messages"][others], 0).astype("<u4"),
        (records["entry_id"][holes] & (BLOCK_ENTRIES - 1)).astype("<u2"),
        _kinds(records["flags"][mixed]),
    )
    return Runs(table, columns)


def _cut(records: Records) -> Array | None:
    """Return the runs of RECORDS as rows of RUN; None when a digest is bad or they do not ascend."""
    found = np.empty(len(records), RUN)
    count = sum_blocks(records, found, BLOCK_BITS)
    return None if count < 0 else found[:count].copy()


def _sorted(records: Records, *, keep_first: bool) -> Records:
    """Return RECORDS by ledger and entry, one for each entry: the first or the last of it."""
    if not len(records):
        return records
    order = np.lexsort((np.arange(len(records)), records["entry_id"], records["ledger_id"]))
    records = records[order]
    ledgers, entries = records["ledger_id"], records["entry_id"]
    differs = (ledgers[1:] != ledgers[:-1]) | (entries[1:] != entries[:-1])
    kept: Records = records[np.append(True, differs) if keep_first else np.append(differs, True)]
    return kept


def _largest_lacs(records: Records) -> tuple[Array, Array]:
    """Return (ledgers, ascending; the largest last-add-confirmed of each) of RECORDS."""
    ledgers, inverse = np.unique(records["ledger_id"], return_inverse=True)
    largest = np.full(len(ledgers), -1, np.int64)
    np.maximum.at(largest, inverse, records["lac"])
    return ledgers, largest


def _needs(table: Array) -> tuple[Array, Array, Array]:
    """Return which runs of TABLE need message counts, slots, kinds (bool each)."""
    sizes = table["end"] - table["start"]
    broker, unframed = table["broker_count"], table["unframed"]
    mixed = ((broker > 0) & (broker < sizes)) | ((unframed > 0) & (unframed < sizes))
    return table["others"] > 0, table["last_slot"] - table["first_slot"] != sizes - 1, mixed


def _of(needed: Array, table: Array) -> Any:  # Any: what an array of records is indexed with
    """Return which records belong to the NEEDED runs of TABLE."""
    return np.repeat(needed, table["end"] - table["start"]) if needed.any() else slice(0)


def _kinds(flags: Array) -> Array:
    unframed = np.where(flags & UNFRAMED != 0, IS_UNFRAMED, 0)
    kinds: Array = (unframed | np.where(flags & HAS_BROKER_TIME != 0, HAS_BROKER, 0)).astype("u1")
    return kinds
