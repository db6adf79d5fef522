"""``store salvage`` of a bookie that has lost its index, and ``store clone`` of its cluster: 1,000,000 entries of 1 KB."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from bench.data import WORK, Bench
from bench.measuring import ADMIN, Row, run

ENTRIES = 1_000_000


def measure(bench: Bench) -> Iterator[Row]:
    """Both indexes made again, looked at and written; then everything as a new directory."""
    entries = bench.count(ENTRIES)
    source, work = bench.generated(entries), WORK / "salvage"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(source / "bookkeeper", work / "bookkeeper")
    for name in ("locations", "ledgers"):
        shutil.rmtree(work / "bookkeeper" / "current" / name)
    run(_words(work, "store", "import", "cluster", "--metadata", source / "metadata"))
    for what, option in (("dry run", "--dry-run"), ("both indexes made again", "--yes")):
        done = run(_words(work, "store", "salvage", work / "bookkeeper", option))
        note = f"peak {done.peak_bytes >> 20} MiB, {entries / done.seconds:,.0f} entries/s"
        yield Row(f"store salvage, {entries:,} entries, {what}", done.seconds, done.processor_seconds, note=note)
    shutil.rmtree(work)
    run(_words(work, "store", "import", "standalone", source))
    done = run(_words(work, "store", "clone", work / "clone"))
    note = f"peak {done.peak_bytes >> 20} MiB, {entries / done.seconds:,.0f} entries/s"
    yield Row(f"store clone, {entries:,} entries", done.seconds, done.processor_seconds, note=note)
    shutil.rmtree(work)


def _words(work: Path, *words: object) -> list[object]:
    return [ADMIN, "-q", "--store", work / "store", *words]
