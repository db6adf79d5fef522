"""Benches that have a module of their own, as rows of ``python -m bench``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import compaction, delayed, dump
from bench.data import ROOT, Bench
from bench.measuring import Row

MESSAGES, DELAYED, DELAYED_ENTRIES = 1_000_000, 10_000_000, 10_000_000


def measure_dump(bench: Bench) -> Iterator[Row]:
    """``topics dump`` and ``topics load``."""
    yield from dump.measure(bench.count(MESSAGES), bench.runs)


def measure_compaction(bench: Bench) -> Iterator[Row]:
    """``compaction last-id`` and ``run``; beside a real broker where ``PULSAR_DIST`` names Pulsar's distribution."""
    yield from compaction.measure(bench.runs, [str(bench.count(MESSAGES))], broker="PULSAR_DIST" in os.environ)


def measure_delayed(bench: Bench) -> Iterator[Row]:
    """The delayed index: built in a process of its own, one for each shape of due times; then ``delayed build``."""
    count = bench.count(DELAYED)
    for shape in delayed.SHAPES:
        for spread in delayed.SPREADS:
            command = [sys.executable, "-m", "bench.delayed", "--one", f"{shape},{spread},{count}"]
            row = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
            note = (
                f"{row['bytesPerMessage']:.3f} bytes a message (bound {row['bound']:.2f}), {row['partitions']} partitions,"
                f" one of {row['loadMessages']:,} loaded in {row['loadSeconds'] * 1000:.1f} ms,"
                f" {row['dispatchPerSecond']:,.0f} dispatched/s, {row['heldAtMost']:,} held at most"
            )
            yield Row(
                f"delayed index, {count:,} messages, {shape} over {spread}", row["buildSeconds"], row["buildSeconds"],
                goal=f"≤ {delayed.BUILD_GOAL_SECONDS} s, ≤ {delayed.BYTES_GOAL} bytes a message", note=note, runs=1,
            )  # fmt: skip
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        row = delayed.measure_command(bench.count(DELAYED_ENTRIES), Path(folder))
    note = f"{row['messages']:,} messages, {row['messagesPerSecond']:,.0f}/s, peak {row['peakBytes'] >> 20} MiB"
    goal = f"≤ {delayed.BUILD_GOAL_SECONDS} s, ≤ {delayed.PEAK_GOAL_MIB} MiB a process"
    yield Row(f"delayed build, {row['entries']:,} entries", row["seconds"], 0.0, goal=goal, note=note, runs=1)
    what = f"delayed build --spark, {row['entries']:,} entries"
    yield Row(what, row["sparkSeconds"], 0.0, goal="", note="with the start of Spark", runs=1)
