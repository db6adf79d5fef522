"""When entries are to be delivered, as columns: the same function here, in processes and on Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from store.scan.places import Places, PlacesReader, doubtful
from store.scan.spread import PlacesOperation, PlainFiles


@dataclass(frozen=True)
class ReadDelays(PlacesOperation):
    """The delayed entries among those at given places, packed: one row per batch of places.

    ``rows``: which of them (i32), ``due_ms``: their times (i64); ``doubtful``: which are to be read again by who has the store.
    """

    COLUMNS = ("rows", "due_ms", "doubtful")

    def values(self, places: Places, files: PlainFiles) -> Iterable[bytes]:
        batch = PlacesReader(files, True, None).read_places(places)
        wrong = doubtful(batch, places)
        due = batch.rows["deliver_at_ms"]
        rows = np.flatnonzero((due > 0) & ~wrong)
        found = (rows.astype(np.int32), due[rows], np.flatnonzero(wrong).astype(np.int32))
        return (column.tobytes() for column in found)
