"""Entries that a table has already: they are not added again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from store.aliases import Array
from store.errors import Corrupt
from store.tables.folder import Folder
from store.tables.manifest import Part
from store.tables.proven import ProvenFile

_KEYS = ["ledger_id", "entry_id"]
_ROW = "row"


def entry_keys(ledgers: Array, entries: Array) -> Array:
    """Return the pairs of LEDGERS and ENTRIES as one column, which can be compared and searched."""
    keys = np.empty(len(ledgers), [("ledger", np.int64), ("entry", np.int64)])
    keys["ledger"], keys["entry"] = ledgers, entries
    return keys


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
        left = left.join(_keys_between(folder, part.path, low, high), _KEYS, join_type="left anti")
    return np.sort(left[_ROW].to_numpy())


def _keys_between(folder: Folder, relative: str, low: int, high: int) -> pa.Table:
    try:
        with closing(ProvenFile(folder, relative)) as proven:
            file = pq.ParquetFile(pa.PythonFile(proven, "r"), metadata=proven.metadata, pre_buffer=False)
            groups = [number for number in range(file.num_row_groups) if _overlaps(file, number, low, high)]
            return file.read_row_groups(groups, columns=_KEYS, use_threads=False)
    except (OSError, pa.ArrowException, Corrupt) as error:
        said = " ".join(str(error).split())[:200]
        raise Corrupt(
            f"{folder.at(relative)}, which the table has entries in, cannot be read: {said}",
            hint="bring the file back, or export to another directory and catalogue; nothing was written",
            path=folder.at(relative),
        ) from error


def _overlaps(file: Any, group: int, low: int, high: int) -> bool:  # Any: pyarrow's ParquetFile
    """Whether the row group may have ledgers from LOW to HIGH; who wrote it need not have kept statistics."""
    found = file.metadata.row_group(group).column(file.schema_arrow.names.index("ledger_id")).statistics
    return found is None or not found.has_min_max or (found.max >= low and found.min <= high)
