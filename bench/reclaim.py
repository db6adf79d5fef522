"""``store reclaim`` of a bookie on whose disks every third ledger lives: the forecast, and the work."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from bench.data import WORK, Bench, logs_of, size_of
from bench.measuring import ADMIN, Row, median, run
from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT, ledger_id_of_path
from pulsar_admin.store.names import MANAGED_LEDGERS
from pulsar_admin.store.sources.rocksdb import apply_changes, open_for_reading

ENTRIES = 1_000_000
OPTIONS = ("--topics", "3", "--entries-per-ledger", "1000", "--log-size-limit", "64m")


def measure(bench: Bench) -> Iterator[Row]:
    """The forecast; garbage collection and compaction."""
    folder = made(bench, bench.count(ENTRIES) // 4)
    size = size_of(logs_of(folder))
    words = [ADMIN, "-q", "store", "reclaim", folder / "bookkeeper", "--metadata", folder / "metadata", "--below", "60"]
    what = f"of {size / 1e9:.1f} GB in {len(logs_of(folder))} logs"
    runs = median([run([*words, "--dry-run"]) for _ in range(bench.runs)])
    yield Row(f"store reclaim --dry-run {what}", runs.seconds, runs.processor_seconds)
    copy = WORK / "reclaimed"
    done = []
    for _ in range(bench.runs):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        work = [ADMIN, "-q", "store", "reclaim", copy / "bookkeeper", "--metadata", copy / "metadata"]
        done.append(run([*work, "--below", "60", "--yes"]))
    left = size_of(logs_of(copy))
    shutil.rmtree(copy)
    runs = median(done)
    note = f"{left / 1e9:.2f} GB left, peak {runs.peak_bytes >> 20} MiB, {size / runs.seconds / 1e6:,.0f} MB/s of logs"
    yield Row(f"store reclaim {what}", runs.seconds, runs.processor_seconds, note=note)


def made(bench: Bench, entries: int) -> Path:
    """Return a directory whose metadata lists every third ledger, and the newest."""
    target = WORK / f"reclaim-{entries}"
    if not target.exists():
        shutil.copytree(bench.generated(entries, *OPTIONS), target)
        with open_for_reading(target / "metadata") as rows:
            keys = [key for key, _ in rows if key.startswith(b"/")]
        ledgers = [key for key in keys if ledger_id_of_path(key.decode()) is not None]
        dead = {key for number, key in enumerate(sorted(ledgers)[:-1]) if number % 3}
        names = {key for key in keys if key.startswith(MANAGED_LEDGERS.encode())}
        assert all(key.startswith(LEDGERS_ROOT.encode()) for key in dead)
        apply_changes(target / "metadata", lambda: ((key, None) for key in sorted(dead | names)))
    return target
