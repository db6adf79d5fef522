"""Spark's rate beside the local engine's on the same cores and slices: a first scan, with checksums.

Two operations: what an index needs of every slice (``store import``, ``refresh``, ``index``; a few bytes an entry come back), and
four columns of every entry (32 bytes come back).

The local engine is measured whole, with the start of its processes, and with its processes already there; Spark after its
session is up, its Python workers warm. All medians; both engines run in turn in one process.

What slices cost whatever their size is measured with as many slices of a few records, and what is left is the rate a byte.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from bench.data import Bench, logs_of, size_of
from bench.measuring import Row
from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.engine.operation import Engine, Operation
from pulsar_admin.store.engine.slices import Cut, FileRange, plan_slices
from pulsar_admin.store.index.scan import ScanRuns
from pulsar_admin.store.scan.operations import ReadEntries, ScanOptions
from pulsar_admin.store.scan.sources import source_files

SLICES_A_CORE = (1, 2, 4)
FEW_BYTES = 4096
OPERATIONS: dict[str, Operation] = {
    "for an index": ScanRuns(ScanOptions().digests, verify=True),
    "four columns": ReadEntries(ScanOptions(), ("ledger_id", "entry_id", "publish_time", "messages")),
}


def measure(bench: Bench) -> Iterator[Row]:
    """The largest set of logs, cut into 1, 2 and 4 slices a core: a rate, not what a job costs whatever its size."""
    from pulsar_admin.store.engine.spark import SparkEngine
    from pulsar_admin.store.engine.spark_session import SparkOptions, open_session

    logs = logs_of(bench.generated(bench.count(bench.logs[-1])))
    cores = len(os.sched_getaffinity(0))
    begin = time.perf_counter()
    with open_session(SparkOptions(master=f"local[{cores}]")) as session:
        start = time.perf_counter() - begin
        for what in OPERATIONS:
            for slices in SLICES_A_CORE:
                yield from _rows(what, logs, slices, cores, SparkEngine(session), bench.runs)
    yield Row("Spark: start of the session", start, 0.0, runs=1)


def _rows(scan: str, logs: list[Path], slices: int, cores: int, spark: Engine, runs: int) -> Iterator[Row]:
    operation = OPERATIONS[scan]
    files = source_files(",".join(map(str, logs)))
    pieces = plan_slices(files, Cut(slices=slices * cores))
    few = [replace(piece, end=min(piece.end, piece.start + FEW_BYTES)) for piece in pieces]
    seconds: dict[str, list[float]] = {"whole": [], "warm": [], "warm few": [], "spark": [], "spark few": []}
    for _ in range(runs + 1):
        with LocalEngine(cores) as local:
            seconds["whole"].append(_seconds(local, operation, pieces))
            seconds["warm"].append(_seconds(local, operation, pieces))
            seconds["warm few"].append(_seconds(local, operation, few))
        seconds["spark"].append(_seconds(spark, operation, pieces))
        seconds["spark few"].append(_seconds(spark, operation, few))
    medians = {what: statistics.median(taken[1:]) for what, taken in seconds.items()}
    ours, fixed, megabytes = medians["spark"], medians["spark few"], size_of(logs) / 1e6
    what = f"Spark, {scan}: {slices} slices a core"
    for peer, theirs in (("processes there", medians["warm"]), ("with their start", medians["whole"])):
        note = f"{theirs / ours:.0%} of the local rate; {megabytes / ours:,.0f} MB/s"
        yield Row(what, ours, 0.0, f"local engine, {peer}", theirs, "≥ 70 % of the rate", note, runs)
    bytes_alone, their_bytes = ours - fixed, medians["warm"] - medians["warm few"]
    note = f"fixed cost of {len(pieces)} slices; without it {megabytes / bytes_alone:,.0f} MB/s, "
    note += f"{their_bytes / bytes_alone:.0%} of the local rate without its own"
    yield Row(f"{what}, a few records each", fixed, 0.0, "local engine", medians["warm few"], note=note, runs=runs)


def _seconds(engine: Engine, operation: Operation, pieces: list[FileRange]) -> float:
    """Return the seconds of one scan, its results brought here."""
    begin = time.perf_counter()
    ended = sum(1 for _ in engine.run(operation, pieces, lambda _: None))
    assert ended == len(pieces), f"{len(pieces) - ended} slices failed"
    return time.perf_counter() - begin
