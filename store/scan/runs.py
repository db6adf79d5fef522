"""Records → runs, which have only what the location and time index needs. Executors send runs, not records.

A run has the records of one batch in one location block (``store.db.blocks``), in ascending order: the place of each, and the sums
and time bounds of all. For a block of 1,024 entries it takes about 8 KiB: an offset and a size per entry; a message count only if an
entry does not have exactly one message; a slot only if entries are missing in between; a kind only if entries with and without a broker
time or a message header are mixed.
"""

from typing import Any, NamedTuple

import numpy as np

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.db.blocks import BLOCK_BITS, BLOCK_ENTRIES
from pulsar_admin.store.kernels.columns import BAD_DIGEST, HAS_BROKER_TIME, UNFRAMED
from pulsar_admin.store.names import LONG_MAX, LONG_MIN

Records = np.ndarray[Any, np.dtype[np.void]]  # of store.kernels.records.RECORD

RUN = np.dtype(
    [
        ("start", np.int64),
        ("end", np.int64),
        ("ledger_id", np.int64),
        ("block", np.int64),
        ("messages", np.int64),
        ("payload_bytes", np.int64),
        ("publish_min_ms", np.int64),
        ("publish_max_ms", np.int64),
        ("broker_min_ms", np.int64),
        ("broker_max_ms", np.int64),
        ("auto_min_ms", np.int64),
        ("auto_max_ms", np.int64),
        ("broker_count", np.int64),
        ("unframed", np.int64),
        ("others", np.int64),  # records that do not hold exactly one message
        ("max_lac", np.int64),
        ("digest_bytes", np.int64),  # of the first record
        ("first_slot", np.int64),  # entry id & 1023
        ("last_slot", np.int64),
    ]
)

IS_UNFRAMED, HAS_BROKER = 1, 2  # bits of a kind
_DTYPES: tuple[Any, ...] = (RUN, "<u4", "<u4", "<u4", "<u2", "u1")  # of the columns of Runs, in their order


class Run(NamedTuple):
    """A row of ``RUN``."""

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
    def sums(self) -> tuple[int, ...]:
        """``messages`` to ``broker_count``, which the header of a location block has in the same order."""
        return self[4:13]

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
        """Return the arrays in the order of ``COLUMNS``; ``decode_runs`` is the inverse."""
        return tuple(getattr(self, name) for name in self.COLUMNS)

    def starts(self) -> list[tuple[int, int, int]]:
        """Return where each run's part of ``counts``, ``slots`` and ``kinds`` begins; optional columns that a run does
        not need have no part."""
        sizes = self.table["end"] - self.table["start"]
        parts = [np.where(needed, sizes, 0) for needed in _needs(self.table)]
        return list(zip(*((np.cumsum(part) - part).tolist() for part in parts), strict=True))


def decode_runs(columns: list[Any]) -> Runs:  # Any: buffers
    """Return runs from the bytes of their columns, in the order of ``Runs.COLUMNS``."""
    table, *rest = (np.frombuffer(data, dtype) for data, dtype in zip(columns, _DTYPES, strict=True))
    return Runs(table, tuple(rest))  # type: ignore[arg-type]  # five


def pack_runs(records: Records, *, keep_first: bool) -> Runs:
    """Return records as runs, without those whose digest is bad; of several records of one entry the first or the last counts."""
    table = _cut(records)
    if table is None:  # damaged, out of order, or an entry twice
        # Of all copies, also of those that are dropped below: any of them may know the newest.
        records = records[records["flags"] & BAD_DIGEST == 0]
        ledgers, inverse = np.unique(records["ledger_id"], return_inverse=True)
        lacs = np.full(len(ledgers), -1, np.int64)
        np.maximum.at(lacs, inverse, records["lac"])
        records = _sorted(records, keep_first=keep_first)
        table = _cut(records)
        assert table is not None
        table["max_lac"] = lacs[np.searchsorted(ledgers, table["ledger_id"])]
    others, holes, mixed = (_of(needed, table) for needed in _needs(table))
    flags = records["flags"][mixed]
    unframed = np.where(flags & UNFRAMED != 0, IS_UNFRAMED, 0)
    kinds: Array = (unframed | np.where(flags & HAS_BROKER_TIME != 0, HAS_BROKER, 0)).astype("u1")
    columns = (
        records["offset"].astype("<u4"),
        records["size"].astype("<u4"),
        # A batch that claims a negative number of messages has none.
        np.maximum(records["messages"][others], 0).astype("<u4"),
        (records["entry_id"][holes] & (BLOCK_ENTRIES - 1)).astype("<u2"),
        kinds,
    )
    return Runs(table, columns)


def _cut(rows: Records) -> Array | None:
    """Return sorted rows as runs, one for each block of BLOCK_ENTRIES ids.

    None: a digest is bad, or the rows are not strictly ascending by (ledger, entry).
    """
    count, flags, ledgers, entries = len(rows), rows["flags"], rows["ledger_id"], rows["entry_id"]
    same = ledgers[1:] == ledgers[:-1]
    ascends = np.where(same, entries[1:] > entries[:-1], ledgers[1:] > ledgers[:-1])
    if (flags & BAD_DIGEST).any() or not ascends.all():
        return None
    blocks, slots = entries >> BLOCK_BITS, entries & (BLOCK_ENTRIES - 1)
    starts = np.flatnonzero(np.append(True, ~same | (blocks[1:] != blocks[:-1]))[:count])
    ends = np.append(starts[1:], count)[: len(starts)]
    made = np.empty(len(starts), RUN)
    made["start"], made["end"], made["last_slot"] = starts, ends, slots[ends - 1]
    firsts = {"ledger_id": ledgers, "block": blocks, "digest_bytes": rows["digest_bytes"], "first_slot": slots}
    for name, column in firsts.items():
        made[name] = column[starts]
    messages = np.maximum(rows["messages"], 0)  # a batch that claims a negative number has none
    payloads = np.maximum(rows["size"].astype(np.int64) - 32 - rows["digest_bytes"], 0)
    has_broker, is_unframed = flags & HAS_BROKER_TIME != 0, flags & UNFRAMED != 0
    sums = {"messages": messages, "others": messages != 1, "payload_bytes": payloads, "broker_count": has_broker}
    for name, column in {**sums, "unframed": is_unframed}.items():
        made[name] = np.add.reduceat(column, starts, dtype=np.int64)
    made["max_lac"] = np.maximum(np.maximum.reduceat(rows["lac"], starts), -1)
    auto_ms = np.where(has_broker, rows["broker_ms"], rows["publish_ms"])
    clocks = {"broker": (rows["broker_ms"], has_broker), "publish": (rows["publish_ms"], ~is_unframed)}
    for name, (times_ms, counts) in {**clocks, "auto": (auto_ms, ~is_unframed)}.items():
        made[f"{name}_min_ms"] = np.minimum.reduceat(np.where(counts, times_ms, LONG_MAX), starts)
        made[f"{name}_max_ms"] = np.maximum.reduceat(np.where(counts, times_ms, LONG_MIN), starts)
    return made


def _sorted(records: Records, *, keep_first: bool) -> Records:
    """Return records sorted by ledger and entry, one for each entry: its first or its last record."""
    if not len(records):
        return records
    order = np.lexsort((np.arange(len(records)), records["entry_id"], records["ledger_id"]))
    records = records[order]
    ledgers, entries = records["ledger_id"], records["entry_id"]
    differs = (ledgers[1:] != ledgers[:-1]) | (entries[1:] != entries[:-1])
    kept: Records = records[np.append(True, differs) if keep_first else np.append(differs, True)]
    return kept


def _needs(table: Array) -> tuple[Array, Array, Array]:
    """Return masks of the runs that need message counts, slots, kinds (bool each)."""
    sizes = table["end"] - table["start"]
    broker, unframed = table["broker_count"], table["unframed"]
    mixed = ((broker > 0) & (broker < sizes)) | ((unframed > 0) & (unframed < sizes))
    return table["others"] > 0, table["last_slot"] - table["first_slot"] != sizes - 1, mixed


def _of(needed: Array, table: Array) -> Any:  # Any: what an array of records is indexed with
    """Return a mask of the records that belong to the selected runs of a table."""
    return np.repeat(needed, table["end"] - table["start"]) if needed.any() else slice(0)
