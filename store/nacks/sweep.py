"""A grid of simulations: here one after the other, or as one Spark job. The rows are the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import product
from typing import TYPE_CHECKING

from store.nacks.load import GeneratedLoad
from store.nacks.simulate import SweepRow, simulate_point, sweep_loads

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Point = tuple[GeneratedLoad, int]


def sweep_points(
    load: GeneratedLoad, rates: Iterable[float], delays_ms: Iterable[int], precisions: Iterable[int]
) -> list[Point]:
    """Return the grid: LOAD at every rate, with every delay and precision."""
    return list(product(sweep_loads(load, rates, delays_ms), precisions))


def sweep_here(points: Iterable[Point]) -> Iterator[SweepRow]:
    """Yield the rows of every point, in order."""
    for load, bits in points:
        yield from simulate_point(load, bits)


def sweep_on_spark(session: SparkSession, points: Sequence[Point]) -> list[SweepRow]:
    """Return the same rows; every point is one task of one job. Works with Spark Connect too."""
    import json

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        from store.nacks.sweep import sweep_here

        for batch in batches:
            for index in batch.column(0).to_pylist():
                found = json.dumps([asdict(row) for row in sweep_here([points[index]])])
                yield pyarrow.RecordBatch.from_pydict({"point": [index], "result": [found]})

    frame = session.range(0, len(points), 1, len(points)).mapInArrow(work, "point long, result string")
    found = sorted(frame.toArrow().to_pylist(), key=lambda row: row["point"])
    # JSON's numbers are Python's own: floats come back bit for bit.
    return [SweepRow(**row) for group in found for row in json.loads(group["result"])]
