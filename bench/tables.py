"""``store export tables`` beside the local index build and ``cat``; one executor of Spark and two; the driver's memory by
entries.

The tables hold what the index holds and more, and are made without it: what can be compared is the time for the same bytes.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.data import WORK, Bench, logs_of, size_of
from bench.measuring import ADMIN, Row, Run, median, run
from bench.memory import JAVA, watch

TARGET = WORK / "tables"
_SIZES = ("1M", "4M", "16M")
_LEDGERS = ("250K", "1M", "4M")
_PARTS = ("command", *JAVA, "Spark's worker")
_EXECUTORS = ("local-cluster[1,1,1536]", "local-cluster[2,1,1536]")


def measure(bench: Bench) -> Iterator[Row]:
    """The sets of ``--logs``, entries of 1 KB: index, tables in one process and in two, ``cat``."""
    for text in bench.logs:
        entries = bench.count(text)
        data = bench.generated(entries)
        logs = logs_of(data)
        store = bench.imported(entries)
        megabytes = size_of(logs) / 1e6
        peer = median([run(["cat", *logs]) for _ in range(bench.runs)])
        subjects = {
            "store import (the local index)": [
                ADMIN,
                "-q",
                "--store",
                WORK / "scratch",
                "store",
                "import",
                "standalone",
                data,
            ],
            "tables, here": export(store, "--jobs", "1"),
            "tables, --jobs 2": export(store, "--jobs", "2"),
        }
        for what, command in subjects.items():
            done = median([_fresh(command) for _ in range(bench.runs)])
            size = (
                f", {sum(file.stat().st_size for file in TARGET.rglob('*.parquet')) / 1e6:,.0f} MB written"
                if TARGET.exists()
                else ""
            )
            note = f"{megabytes / done.seconds:,.0f} MB/s, {entries / done.seconds:,.0f} entries/s{size}"
            yield Row(
                f"{what}: {entries:,} entries of 1 KB", done.seconds, done.processor_seconds, "cat", peer.seconds, note=note,
                runs=bench.runs, peer_processor_seconds=peer.processor_seconds,
            )  # fmt: skip
    entries = bench.count(bench.logs[0])
    store, megabytes = bench.imported(entries), size_of(logs_of(bench.generated(entries))) / 1e6
    for master in _EXECUTORS:
        for number in range(bench.runs):
            shutil.rmtree(TARGET, ignore_errors=True)
            seconds, seen, _ = watch(export(store, "--spark-master", master))
            each = {name: sum(one.processor_seconds for one in seen if one.name == name) for name in _PARTS}
            note = f"{megabytes / seconds:,.0f} MB/s; processor time: "
            note += ", ".join(f"{name} {amount:.1f} s" for name, amount in each.items())
            what = f"tables, {master}, run {number + 1}: {entries:,} entries of 1 KB"
            yield Row(what, seconds, sum(each.values()), note=note, runs=1)


def measure_driver(bench: Bench) -> Iterator[Row]:
    """Peaks of the process that hands out slices, and of those that work them, on entries of 100 B."""
    for text in _SIZES:
        entries = bench.count(text)
        store = WORK / f"store-small-{entries}"
        if not store.exists():
            data = bench.generated(entries, "--message-size", "100")
            run([ADMIN, "-q", "--store", store, "store", "import", "standalone", data])
        for words in (("--jobs", "2"), ("--spark-master", "local[2]")):
            shutil.rmtree(TARGET, ignore_errors=True)
            seconds, seen, _ = watch(export(store, *words))
            driver = next(one for one in seen if one.name == "command")
            others = [one for one in seen if one.name in ("process", "Spark's worker")]
            note = f"driver {driver.peak_bytes >> 20} MiB, the others at most {max(others).peak_bytes >> 20} MiB, anonymous "
            note += f"{driver.anonymous_bytes >> 20} and {max(one.anonymous_bytes for one in others) >> 20} MiB"
            yield Row(
                f"tables, {' '.join(words)}: {entries:,} entries of 100 B", seconds, 0.0, goal="flat", note=note, runs=1
            )


def measure_ledgers(bench: Bench) -> Iterator[Row]:
    """The metadata of very many ledgers: their table, and the tree as it is, which the driver writes alone."""
    for text in _LEDGERS:
        ledgers = bench.count(text)
        store = WORK / f"store-ledgers-{ledgers}"
        if not store.exists():
            run([sys.executable, "-m", "bench.many_ledgers", store, "--ledgers", str(ledgers)])
        for table in ("ledgers", "nodes", "rows"):
            shutil.rmtree(TARGET, ignore_errors=True)
            seconds, seen, _ = watch(export(store, "--cluster", "many", "--only", table))
            written = sum(file.stat().st_size for file in TARGET.rglob("*.parquet"))
            note = f"{ledgers / seconds:,.0f} ledgers/s, peak {seen[0].peak_bytes >> 20} MiB, {written / ledgers:,.1f} B a ledger"
            yield Row(f"table {table}: {ledgers:,} ledgers", seconds, 0.0, goal="linear", note=note, runs=1)


def export(store: Path, *words: str) -> list[object]:
    """Return the command that writes all tables of ``store``."""
    return [ADMIN, "-q", "--store", store, "store", "export", "tables", TARGET, *words]


def _fresh(command: list[object]) -> Run:
    """Run ``command`` where nothing was written before."""
    for path in (TARGET, WORK / "scratch"):
        shutil.rmtree(path, ignore_errors=True)
    return run(command)
