"""When entries are to be delivered, as columns: the same function here, in processes and on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from store.scan.arrow import packed_row
from store.scan.delay_kernel import add_relative_delays
from store.scan.entries import Array, EntryBatch, EntryScan, doubtful
from store.scan.kernel import UNFRAMED
from store.scan.slices import FileRange
from store.scan.spread import iter_batches

_SCHEMA = pa.schema([(name, pa.binary()) for name in ("rows", "due_ms", "doubtful")])


def due_times(batch: EntryBatch) -> Array:
    """Return when each entry is to be delivered, in ms; 0 or below: at once."""
    rows = batch.rows
    due = rows["deliver_at_ms"].copy()
    starts = batch.offsets + 4 + 32 + rows["digest_bytes"]
    ends = batch.offsets + 4 + batch.held
    plain = np.flatnonzero((due == 0) & (rows["flags"] & UNFRAMED == 0))
    if len(plain):
        found = np.zeros(len(plain), np.int64)
        publish = np.ascontiguousarray(rows["publish_ms"][plain])
        add_relative_delays(batch.data, starts[plain], ends[plain], publish, found)
        due[plain] = found
    return due


@dataclass(frozen=True)
class ReadDelays:
    """The delayed entries among those at given places, packed: one row a batch of places.

    ``rows``: which of them (i32), ``due_ms``: their times (i64); ``doubtful``: which are to be read again by who has the store.
    """

    @property
    def schema(self) -> pa.Schema:
        return _SCHEMA

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield one row a batch of places."""
        for places, files in iter_batches(piece):
            batch = EntryScan.of_files(files, heads=True, digests=None).read_places(places)
            wrong = doubtful(batch, places)
            due = due_times(batch)
            rows = np.flatnonzero((due > 0) & ~wrong)
            found = (rows.astype(np.int32), due[rows], np.flatnonzero(wrong).astype(np.int32))
            yield packed_row(_SCHEMA, *(column.tobytes() for column in found))
