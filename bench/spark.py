"""Spark's rate beside the local engine's, on the same cores: ``python -m bench.spark LOG…``, medians of three runs.

The session's start is not counted; the first run of each engine warms it up.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time

from store.scan.engine_scan import Engine
from store.scan.local import LocalEngine
from store.scan.operations import ReadEntries, ScanOptions
from store.scan.slices import Cut, plan_slices
from store.scan.sources import source_files
from store.scan.spark import SparkEngine
from store.scan.spark_session import SparkOptions, open_session

RUNS = 3
COLUMNS = ("ledger_id", "entry_id", "publish_time", "messages")


def measure(engine: Engine, files: list[tuple[str, int, int]], slices: int) -> tuple[float, int]:
    """Return (median seconds, entries) of a scan with checksums, four columns of each entry brought here."""
    pieces = plan_slices(files, Cut(slices=slices))
    operation = ReadEntries(ScanOptions(), COLUMNS)
    seconds = []
    for _ in range(RUNS + 1):
        started = time.monotonic()
        entries = sum(len(table) for _, table in engine.run(operation, pieces, lambda _: None))
        seconds.append(time.monotonic() - started)
    return statistics.median(seconds[1:]), entries


def main() -> None:
    """Print one JSON line for 1, 2 and 4 slices a core."""
    files = source_files(",".join(sys.argv[1:]))
    size_bytes = sum(size for _, _, size in files)
    cores = len(os.sched_getaffinity(0))
    started = time.monotonic()
    with open_session(SparkOptions(master=f"local[{cores}]")) as session:
        start = time.monotonic() - started
        for slices in (cores, 2 * cores, 4 * cores):
            local, entries = measure(LocalEngine(cores), files, slices)
            spark, _ = measure(SparkEngine(session), files, slices)
            row = {
                "bytes": size_bytes,
                "entries": entries,
                "cores": cores,
                "slices": slices,
                "sessionStartSeconds": round(start, 1),
                "localSeconds": round(local, 2),
                "sparkSeconds": round(spark, 2),
                "sparkRateOfLocal": round(local / spark, 2),
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
