"""Measure the delayed message index: bytes a message, build, load of a partition, dispatch rate, memory while replaying.

``python -m bench.delayed [--messages N] [--entries N] [--json FILE]``. Shapes of due times, over an hour, a day and 30 days:
*fixed* (one delay for all: messages fall due in the order of publishing), *few* (each has one of four delays), *scattered* (uniformly
random, the worst there is). ``bound``: bytes a message below which no index of that tick can go; ``partitionBound``: none whose
partitions can be read one without the other. The index is built through the product's own writer into a fresh store; the scan of a
topic's entries in front of it is measured on a generated topic, ``delayed build`` run as a whole process, also on Spark.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.generate import generate
from bench.measuring import ADMIN, machine, run

TOPIC = "persistent://bench/delayed/topic"
NOW_MS = 1_795_260_000_000
ENTRIES_PER_LEDGER = 50_000
SPREADS = {"1h": 3_600_000, "1d": 86_400_000, "30d": 30 * 86_400_000}
SHAPES = ("fixed", "few", "scattered")
DELAYS_MS = (60_000, 300_000, 1_800_000, 3_600_000)  # of "few"
BUILD_GOAL_SECONDS, BYTES_GOAL, PEAK_GOAL_MIB = 60, 2, 512
Row = dict[str, Any]


def make_rows(shape: str, spread_ms: int, count: int) -> Any:
    """Return ``count`` messages in the order of the topic, due within ``spread_ms`` from now."""
    import numpy as np

    from pulsar_admin.store.db.delayed_entries import DelayedRows

    number = np.arange(count, dtype=np.int64)
    draw = np.random.default_rng(1)
    due = NOW_MS + (draw.integers(0, spread_ms, count) if shape == "scattered" else number * spread_ms // count)
    if shape == "few":
        due += np.array(DELAYS_MS)[draw.integers(0, len(DELAYS_MS), count)]
    return DelayedRows(due, 10 + number // ENTRIES_PER_LEDGER, number % ENTRIES_PER_LEDGER)


def measure(shape: str, spread: str, count: int, folder: Path) -> Row:
    """Build one index in this process, replay all of it, and measure."""
    from pulsar_admin.store.db.delayed import Index
    from pulsar_admin.store.db.delayed_rules import DEFAULT_RULES
    from pulsar_admin.store.db.environment import create_store, open_store
    from pulsar_admin.store.delayed.backlog import DelayScan
    from pulsar_admin.store.delayed.build import Draft, apply_draft
    from pulsar_admin.store.delayed.runs import SortedRuns, open_runs
    from pulsar_admin.store.model.reader import open_reader
    from pulsar_admin.store.names import Position, parse_topic

    rows = make_rows(shape, SPREADS[spread], count)
    create_store(folder / "store", now_ms=NOW_MS)
    with open_store(folder / "store", writable=True) as store, open_runs() as file:
        before = disk_bytes(folder / "store")
        begin = time.perf_counter()
        # What a build does once the topic's entries are read: in order, cut, encoded, written, indexed, all durable.
        new = Index(parse_topic(TOPIC), "s", DEFAULT_RULES, Position(0, 0), NOW_MS)
        with open_reader(store) as reader:
            draft = Draft(new, DelayScan(reader), reader.txn.id, SortedRuns(file, DEFAULT_RULES))
        for start in range(0, count, 1 << 15):  # as batches of entries come
            draft.writes.add(rows.take(slice(start, start + (1 << 15))))
        index = apply_draft(store, draft)
        build_seconds = time.perf_counter() - begin
        del rows, draft
        grown = disk_bytes(folder / "store") - before
        replayed = replay(store, index)
    ticks = SPREADS[spread] // DEFAULT_RULES.tick_ms
    return {
        "shape": shape,
        "spread": spread,
        "messages": count,
        "partitions": len(index.partitions),
        "bytesPerMessage": index.bytes / count,
        "storeBytesPerMessage": grown / count,
        "bound": {"fixed": 0.0, "few": math.log2(len(DELAYS_MS)) / 8, "scattered": math.log2(ticks) / 8}[shape],
        "partitionBound": partition_bound(ticks) if shape == "scattered" else 0.0,
        "buildSeconds": build_seconds,
        **replayed,
    }


def partition_bound(ticks: int) -> float:
    """Bytes that a message takes at least in a partition which says by itself which of all messages it holds, and when."""
    from pulsar_admin.store.db.delayed_rules import DEFAULT_RULES

    share = DEFAULT_RULES.slots / ticks
    which = -math.log2(share) - (1 - share) / share * math.log2(1 - share)
    return (which + math.log2(DEFAULT_RULES.slots)) / 8


def replay(store: Any, index: Any) -> Row:
    """Load one partition, then drive the wheel over everything."""
    from pulsar_admin.store.delayed.build import PartitionSource
    from pulsar_admin.store.delayed.waiting import TimeWheel
    from pulsar_admin.store.model.reader import open_reader

    with open_reader(store) as reader:
        source = PartitionSource(reader, index)
        middle = index.partitions[len(index.partitions) // 2]
        begin = time.perf_counter()
        loaded = len(source.load(middle.start_ms, middle.end_ms))
        load_seconds = time.perf_counter() - begin
        wheel = TimeWheel(index.rules, source)
        begin = time.perf_counter()
        given = most = 0
        for found in wheel.advance(2**62):
            given += len(found.rows)
            most = max(most, wheel.held)
        seconds = time.perf_counter() - begin
    assert given == index.messages
    return {
        "loadMessages": loaded,
        "loadSeconds": load_seconds,
        "dispatchPerSecond": given / seconds,
        "heldAtMost": most,
        "heldAtMostBytes": most * 24,
        "largestPartition": max(partition.messages for partition in index.partitions),
    }


def disk_bytes(folder: Path) -> int:
    """Bytes of the entry logs and of the pages that LMDB has written."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def measure_command(entries: int, folder: Path) -> Row:
    """``delayed build`` of a generated topic whose messages are all delayed: reading, sorting and writing, one process."""
    data, store = folder / "data", folder / "store"
    kind = ["--delayed", "100%", "--delay", "1m..1d", "--message-size", "100", "--subscriptions", "1", "--acked", "0%"]
    generate(data, "--entries", entries, *kind)
    run([ADMIN, "--store", store, "store", "import", "standalone", data])
    run([ADMIN, "--store", store, "delayed", "build", "--all-topics", "--dry-run"])  # compiles what is compiled once
    built = run([ADMIN, "--store", store, "delayed", "build", "--all-topics"])
    on_spark = run([ADMIN, "--store", store, "delayed", "build", "--all-topics", "--rebuild", "--spark"])
    listed = subprocess.run(
        [ADMIN, "--store", str(store), "delayed", "status", "--all-topics", "-o", "json"],
        check=True,
        capture_output=True,
        text=True,
    )
    rows = [row for row in json.loads(listed.stdout) if row["index"]]
    messages = sum(row["index"]["messages"] for row in rows)
    return {
        "entries": entries,
        "subscriptions": len(rows),
        "messages": messages,
        "seconds": built.seconds,
        "messagesPerSecond": messages / built.seconds if messages else 0.0,
        "peakBytes": built.peak_bytes,
        "sparkSeconds": on_spark.seconds,
    }


def one(text: str) -> None:
    """Measure one case in this process and print it."""
    shape, spread, count = text.split(",")
    with tempfile.TemporaryDirectory() as folder:
        row = measure(shape, spread, int(count), Path(folder))
    row["peakBytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--entries", type=int, default=10_000_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one")
    options = parser.parse_args()
    if options.one:
        one(options.one)
        return
    rows = []
    for shape in SHAPES:
        for spread in SPREADS:
            command = [sys.executable, "-m", "bench.delayed", "--one", f"{shape},{spread},{options.messages}"]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            rows.append(json.loads(done.stdout))
            show(rows[-1])
    with tempfile.TemporaryDirectory() as folder:
        command_row = measure_command(options.entries, Path(folder)) if options.entries else {}
    print(json.dumps(command_row, indent=1))
    if options.json:
        result = {"machine": machine(), "index": rows, "command": command_row}
        options.json.write_text(json.dumps(result, indent=1) + "\n")


def show(row: Row) -> None:
    """Print one case."""
    print(
        f"{row['shape']:<9} {row['spread']:>3}: {row['bytesPerMessage']:.3f} bytes a message (bound {row['bound']:.2f},"
        f" in partitions {row['partitionBound']:.2f}, goal"
        f" {BYTES_GOAL}; with catalogue and location index {row['storeBytesPerMessage']:.3f}), built in"
        f" {row['buildSeconds']:.1f} s (goal {BUILD_GOAL_SECONDS}), partition of {row['loadMessages']:,} loaded in"
        f" {row['loadSeconds'] * 1000:.1f} ms, {row['dispatchPerSecond']:,.0f} dispatched a second, at most"
        f" {row['heldAtMost']:,} messages held ({row['heldAtMostBytes'] / 2**20:.1f} MiB)",
        flush=True,
    )


if __name__ == "__main__":
    main()
