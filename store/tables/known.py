"""Entries that a table has already: they are not added again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from store.errors import Corrupt
from store.tables.folder import Folder
from store.tables.manifest import Part

Array = np.ndarray[Any, Any]  # a column; its dtype is stated where it is made

_KEYS = ["ledger_id", "entry_id"]
_ROW = "row"


def new_rows(folder: Folder, ledgers: Array, entries: Array, known: Sequence[Part]) -> Array:
    """Return the numbers (i64, ascending) of the pairs of LEDGERS (sorted) and ENTRIES, i64, that are in none of the files KNOWN.

    Memory: the pairs, and those of one known file that lie between the same ledgers.
    """
    if not len(ledgers):
        return np.zeros(0, np.int64)
    left = pa.table([ledgers, entries, np.arange(len(ledgers))], [*_KEYS, _ROW])
    low, high = int(ledgers[0]), int(ledgers[-1])
    for part in known:
        if part.ledgers is None or part.ledgers[0] > high or part.ledgers[1] < low:
            continue
        with folder.open_input(part.path) as file:
            left = left.join(_keys_between(file, folder.at(part.path), low, high), _KEYS, join_type="left anti")
    return np.sort(left[_ROW].to_numpy())


def _keys_between(file: Any, where: str, low: int, high: int) -> pa.Table:  # Any: a file of pyarrow
    from pyarrow import parquet

    between = [("ledger_id", ">=", low), ("ledger_id", "<=", high)]
    try:
        return parquet.read_table(file, columns=_KEYS, filters=between)
    except (OSError, pa.ArrowException) as error:
        said = " ".join(str(error).split())[:200]
        raise Corrupt(
            f"{where}, which the table has entries in, cannot be read: {said}",
            hint="bring the file back, or export to another directory and catalogue; nothing was written",
            path=where,
        ) from error
