"""Bulk commands as whole processes: import, verification, generation; and the scan alone, beside ``cat`` of the same logs."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.data import ROOT, WORK, Bench, logs_of, size_of
from bench.measuring import ADMIN, Row, median, run

MANY = "10M"
CAT = "cat of the logs"


def measure_scan(bench: Bench) -> Iterator[Row]:
    """The scan alone, with every checksum and with none, and a whole process that verifies, beside ``cat``."""
    for size in bench.logs:
        source = bench.generated(bench.count(size))
        command = [sys.executable, "-m", "bench.scan", str(source), "--runs", str(bench.runs)]
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        found = json.loads(said)
        peer = statistics.median(found["cat"])
        what = f"{found['records']:,} entries, {found['bytes'] / 1e9:,.2f} GB"
        for kind, text, goal in (("plain", "no checksums", "≤ 2 × cat"), ("verify", "every checksum", "≤ 4 × cat")):
            seconds = statistics.median(found[kind])
            note = f"{found['records'] / seconds:,.0f} entries/s, {found['bytes'] / seconds / 1e6:,.0f} MB/s"
            yield Row(f"scan alone, {text}, {what}", seconds, seconds, CAT, peer, goal, note, bench.runs)
        files = logs_of(source)
        row = beside_cat([ADMIN, "-q", "logs", "verify", files[0].parent], files, found["records"], bench.runs)
        yield Row(f"logs verify, whole process, {what}", *row)


def measure_import(bench: Bench) -> Iterator[Row]:
    """``store import`` at several sizes."""
    for size in bench.sizes:
        yield import_row(bench.generated(bench.count(size)), bench.count(size), bench.runs, "of 1 KB")


def measure_many(bench: Bench) -> Iterator[Row]:
    """``store import`` of very many small entries."""
    entries = bench.count(MANY)
    yield import_row(bench.generated(entries, "--message-size", "100"), entries, 1, "of 100 B")


def import_row(source: Path, entries: int, runs: int, kind: str) -> Row:
    """Return the row of importing ``source``, which has ``entries`` entries, into a new store."""
    store = WORK / "import"
    command = [ADMIN, "-q", "--store", store, "store", "import", "standalone", source]
    row = beside_cat(command, logs_of(source), entries, runs, store)
    return Row(f"store import, {entries:,} entries {kind}", *row)


def beside_cat(
    command: Sequence[object], files: list[Path], entries: int, runs: int, fresh: Path | None = None
) -> tuple[float, float, str, float, str, str, int]:
    """Run ``command``, which reads ``files``, in turn with ``cat``; ``fresh`` is removed before each run. Return a row without its name."""
    pairs = []
    for _ in range(runs + 1):
        if fresh is not None:
            shutil.rmtree(fresh, ignore_errors=True)
        pairs.append((run(command), run(["cat", *files])))
    if fresh is not None:
        shutil.rmtree(fresh)
    ours, theirs = median([pair[0] for pair in pairs[1:]]), median([pair[1] for pair in pairs[1:]])
    size_bytes = size_of(files)
    note = f"{entries / ours.seconds:,.0f} entries/s, {size_bytes / ours.seconds / 1e6:,.0f} MB/s"
    note += f", peak {ours.peak_bytes >> 20} MiB"
    return ours.seconds, ours.processor_seconds, CAT, theirs.seconds, "", note, runs


_KINDS = {
    "1 KB": [],
    "1 KB, all metadata": [
        "--interceptors", "timestamp,index", "--keys", "1000", "--producers", "20", "--clocks", "steady,slow,jumping",
        "--delayed", "2", "--event-time", "--subscriptions", "5", "--holes", "1000",
    ],
    "batches of 10 × 100 B, no codec": ["--batch", "10", "--message-size", "100"],
    "batches of 10 × 100 B, LZ4 and ZSTD": ["--batch", "10", "--message-size", "100", "--codecs", "lz4,zstd"],
}  # fmt: skip


def measure_generate(bench: Bench) -> Iterator[Row]:
    """``python -m bench.generate`` as a whole process, in memory where there is /dev/shm: its own speed, not the disk's."""
    entries = bench.count(bench.sizes[-1])
    shared = Path("/dev/shm")
    target = (shared if shared.is_dir() else WORK) / "pulsar-admin-bench"
    for kind, options in _KINDS.items():
        runs = []
        for _ in range(max(bench.runs // 2, 1) + 1):
            shutil.rmtree(target, ignore_errors=True)
            runs.append(run([sys.executable, "-m", "bench.generate", target, "--entries", entries, *options]))
        ours = median(runs[1:])
        size_bytes = size_of(logs_of(target))
        shutil.rmtree(target)
        note = (
            f"{entries / ours.seconds:,.0f} entries/s, {size_bytes / ours.seconds / 1e6:,.0f} MB/s,"
            f" peak {ours.peak_bytes >> 20} MiB"
        )
        yield Row(
            f"bench.generate, {entries:,} entries: {kind}", ours.seconds, ours.processor_seconds,
            goal="≥ 300,000 entries/s", note=note, runs=len(runs) - 1,
        )  # fmt: skip
