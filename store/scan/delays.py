"""When entries are to be delivered, as columns: the same function here, in processes and on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from store.engine.slices import FileRange
from store.scan.arrow import packed_row
from store.scan.places import PlacesReader, doubtful
from store.scan.spread import iter_batches

_SCHEMA = pa.schema([(name, pa.binary()) for name in ("rows", "due_ms", "doubtful")])


@dataclass(frozen=True)
class ReadDelays:
    """The delayed entries among those at given places, packed: one row per batch of places.

    ``rows``: which of them (i32), ``due_ms``: their times (i64); ``doubtful``: which are to be read again by who has the store.
    """

    @property
    def schema(self) -> pa.Schema:
        return _SCHEMA

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield one row per batch of places."""
        for places, files in iter_batches(piece):
            batch = PlacesReader(files, True, None).read_places(places)
            wrong = doubtful(batch, places)
            due = batch.rows["deliver_at_ms"]
            rows = np.flatnonzero((due > 0) & ~wrong)
            found = (rows.astype(np.int32), due[rows], np.flatnonzero(wrong).astype(np.int32))
            yield packed_row(_SCHEMA, *(column.tobytes() for column in found))
