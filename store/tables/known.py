"""Entries that a table has already: they are not added again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

_KEYS = ["ledger_id", "entry_id"]
_ROW = "row"

Open = Callable[[str], pa.NativeFile]


def only_new(table: pa.Table, known: Sequence[str], open_file: Open) -> pa.Table:
    """Return the rows of TABLE, in their order, whose entries are in none of the Parquet files KNOWN, which OPEN_FILE opens.

    Memory: TABLE and the keys of the known rows of its ledgers.
    """
    from pyarrow import parquet

    if not len(table):
        return table
    low, high = pc.min_max(table["ledger_id"]).as_py().values()
    between = [("ledger_id", ">=", low), ("ledger_id", "<=", high)]
    left = table.select(_KEYS).append_column(_ROW, pa.array(range(len(table)), pa.int64()))
    for path in known:
        with open_file(path) as file:
            there = parquet.read_table(file, columns=_KEYS, filters=between)
        left = left.join(there, _KEYS, join_type="left anti")
    return table if len(left) == len(table) else table.take(left[_ROW].combine_chunks().sort())
