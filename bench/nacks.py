"""Measure the tracker of negative acks: bytes an entry, rates, and what ``due`` costs beside what is not due.

``python -m bench.nacks [--json FILE] [--quick] [--pulsar PULSAR_HOME] [--plot FILE]``. Resident bytes are the difference of a fresh
process's RSS before and after, the allocator's free memory given back both times. With --pulsar the same load goes
through the structures upstream had and has, on Java (bench/peers/NackStructures.java).
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pulsar_admin.store.nacks.tracker import NegativeAcksTracker

NOW_MS = 1_700_000_000_000
DELAY_MS = 3_600_000
ENTRIES_PER_LEDGER = 50_000
BITS = (0, 8, 10, 16)
SEED = {
    "HashMap": {1_000_000: 178 * 2**20 / 1e6, 10_000_000: 1132 * 2**20 / 1e7},
    "ConcurrentLongLongPairHashMap": {1_000_000: 64 * 2**20 / 1e6, 10_000_000: 512 * 2**20 / 1e7},
}
Row = dict[str, Any]


def batches(entries: int, acknowledged_every: int, size: int = 10_000) -> Iterator[tuple[Any, Any, Any]]:
    """Yield ledger ids, entry ids and times of one entry a millisecond, some left out."""
    import numpy as np

    for first in range(0, entries, size):
        number = np.arange(first, min(first + size, entries), dtype=np.int64)
        if acknowledged_every:
            number = number[number % acknowledged_every != 0]
        yield 10 + number // ENTRIES_PER_LEDGER, number % ENTRIES_PER_LEDGER, NOW_MS + number


def resident_bytes() -> int:
    """RSS of this process after the allocator gave its free memory back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure_size(entries: int, acknowledged_every: int, bits: int) -> Row:
    """Fill one tracker in this process, in the steps a consumer would, and measure it."""
    from pulsar_admin.store.nacks.tracker import NegativeAcksTracker

    def fill(count: int) -> NegativeAcksTracker:
        tracker = NegativeAcksTracker(bits)
        for ledgers, ids, times in batches(count, acknowledged_every):
            tracker.add_many(ledgers, ids, DELAY_MS, now_ms=times)
        return tracker

    fill(200_000).to_bytes()
    before = resident_bytes()
    tracker = fill(entries)
    resident = resident_bytes() - before
    held, count, serialized = tracker.size_bytes, len(tracker), len(tracker.to_bytes())
    return {
        "entries": count,
        "stored": entries,
        "acknowledgedEvery": acknowledged_every,
        "bits": bits,
        "serializedPerEntry": serialized / count,
        "residentPerEntry": resident / count,
        "columnsPerEntry": held / count,
    }


def sizes(totals: tuple[int, ...]) -> list[Row]:
    """Measure every combination, each in a process of its own."""
    rows = []
    for total in totals:
        for acknowledged_every in (0, 10):
            for bits in BITS:
                command = [sys.executable, "-m", "bench.nacks", "--one", f"{total},{acknowledged_every},{bits}"]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                rows.append(json.loads(done.stdout))
    return rows


def seconds(action: Callable[[], object], repeat: int = 3) -> float:
    """Median wall time of ``action``."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


class Rates:
    """Adds and pops a second of one load: entry i at millisecond i."""

    def __init__(self, total: int) -> None:
        import numpy as np

        self.total = total
        self.ledgers, self.ids, self.times = map(np.concatenate, zip(*batches(total, 0), strict=True))
        self.fixed = np.full(total, DELAY_MS)
        self.random = np.random.RandomState(1).randint(0, DELAY_MS, total)
        self.order = np.random.RandomState(2).permutation(total)

    def bulk(self, bits: int, delays: Any, order: Any = slice(None), size: int = 0) -> NegativeAcksTracker:
        """Track everything, ``size`` entries a call (0: all at once)."""
        from pulsar_admin.store.nacks.tracker import NegativeAcksTracker

        tracker = NegativeAcksTracker(bits)
        ledgers, ids, times = self.ledgers[order], self.ids[order], self.times[order]
        for first in range(0, self.total, size or self.total):
            cut = slice(first, first + (size or self.total))
            tracker.add_many(ledgers[cut], ids[cut], delays[cut], now_ms=times[cut])
        return tracker

    def single(self, bits: int, count: int) -> None:
        """Track ``count`` entries one by one."""
        from pulsar_admin.store.nacks.tracker import NegativeAcksTracker
        from pulsar_admin.store.names import Position

        tracker = NegativeAcksTracker(bits)
        for number in range(count):
            tracker.add(Position(10, number), DELAY_MS, now_ms=NOW_MS + number)

    def measure(self, bits: int) -> Row:
        """Return entries a second of everything the tracker does in bulk."""
        from pulsar_admin.store.nacks.tracker import NegativeAcksTracker

        serialized = self.bulk(bits, self.fixed).to_bytes()
        loaded = [NegativeAcksTracker.from_bytes(serialized) for _ in range(3)]
        kept = NegativeAcksTracker.from_bytes(serialized)
        actions: dict[str, Callable[[], object]] = {
            "addManyInOrder": lambda: self.bulk(bits, self.fixed),
            "addManyShuffled": lambda: self.bulk(bits, self.fixed, self.order),
            "addManyRandomDelays": lambda: self.bulk(bits, self.random),
            "addManyOf10000": lambda: self.bulk(bits, self.fixed, size=10_000),
            "addManyOf10000RandomDelays": lambda: self.bulk(bits, self.random, size=10_000),
            "popToArrays": lambda: loaded.pop().due(2**62).arrays(),
            "load": lambda: NegativeAcksTracker.from_bytes(serialized),
            "save": lambda: kept.to_bytes(),
        }
        rates: Row = {name: self.total / seconds(action) for name, action in actions.items()}
        return {"bits": bits} | rates | {"add": 100_000 / seconds(lambda: self.single(bits, 100_000))}


def due_costs(totals: tuple[int, ...]) -> list[Row]:
    """Microseconds of one ``due`` while ``totals`` entries wait for later: with nothing due, and one bucket of 256."""
    import numpy as np

    from pulsar_admin.store.nacks.tracker import NegativeAcksTracker

    rows = []
    for total in totals:
        tracker = NegativeAcksTracker(8)
        for ledgers, ids, times in batches(total, 0, size=1_000_000):
            tracker.add_many(ledgers, ids, DELAY_MS, now_ms=times)
        bucket = np.arange(256, dtype=np.int64)
        nothing, something = [], []
        for round_number in range(500):
            start = time.perf_counter()
            found = tracker.due(NOW_MS)
            nothing.append(time.perf_counter() - start)
            assert not found
            tracker.add_many(np.ones_like(bucket), bucket, 0, now_ms=np.full(256, round_number * 256))
            start = time.perf_counter()
            found = tracker.due(NOW_MS)
            something.append(time.perf_counter() - start)
            assert found
        rows.append(
            {
                "pending": total,
                "nothingDueMicroseconds": statistics.median(nothing) * 1e6,
                "oneBucketDueMicroseconds": statistics.median(something) * 1e6,
            }
        )
    return rows


def kept_due_costs(totals: tuple[int, ...]) -> list[Row]:
    """The same of ``nacks due`` on a store: rows of 256 entries, with nothing due and with one row due."""
    from pyroaring import BitMap64

    from pulsar_admin.store.db.environment import Txn, create_store, open_store
    from pulsar_admin.store.db.nacks import (
        TrackerRow,
        bucket_key,
        encode_bucket_row,
        encode_tracker_row,
        iter_due,
        iter_trackers,
        tracker_key,
    )

    tracker = TrackerRow("persistent://public/default/t", "s", 8, 1)

    def fill(txn: Txn, total: int) -> None:
        txn.put("nacks", tracker_key(tracker.id), encode_tracker_row(tracker))
        for first in range(0, total, 256):
            key = bucket_key(tracker.id, NOW_MS + DELAY_MS + first, 10 + first // ENTRIES_PER_LEDGER)
            entry_ids = BitMap64(range(first % ENTRIES_PER_LEDGER, first % ENTRIES_PER_LEDGER + 256))
            txn.put("nacks", key, encode_bucket_row(key, entry_ids))

    rows = []
    for total in totals:
        with tempfile.TemporaryDirectory() as folder:
            create_store(Path(folder, "store"), now_ms=0)
            with open_store(Path(folder, "store"), writable=True) as store:
                store.write(lambda txn, total=total: fill(txn, total))
                with store.read() as txn:
                    cases = {"nothing": NOW_MS, "oneRow": NOW_MS + DELAY_MS}
                    found = {
                        name: seconds(lambda now=now: list(iter_due(txn, iter_trackers(txn), now)), 500)
                        for name, now in cases.items()
                    }
        rows.append(
            {
                "pending": total,
                "nothingDueMicroseconds": found["nothing"] * 1e6,
                "oneRowDueMicroseconds": found["oneRow"] * 1e6,
            }
        )
    return rows


def plot_due(path: Path, report: dict[str, list[Row]]) -> None:
    """Draw what ``due`` costs over what is pending into the new file ``path``."""
    from pulsar_admin.plot import Chart, line_chart, save_charts

    labels = [f"{row['pending']:,}" for row in report["due"]]
    series = {
        "tracker, nothing due": [row["nothingDueMicroseconds"] for row in report["due"]],
        "tracker, 256 entries due": [row["oneBucketDueMicroseconds"] for row in report["due"]],
        "store, nothing due": [row["nothingDueMicroseconds"] for row in report["keptDue"]],
        "store, 256 entries due": [row["oneRowDueMicroseconds"] for row in report["keptDue"]],
    }
    chart = Chart("one due() over the entries that are not due yet", labels, series, "microseconds")
    print(line_chart(chart))
    save_charts([path], [chart])


def peers(pulsar_home: Path, totals: tuple[int, ...]) -> list[Row]:
    """The same loads in upstream's structures."""
    source = Path(__file__).parent / "peers" / "NackStructures.java"
    rows = []
    for total in totals:
        for acknowledged_every in (0, 10):
            command = [
                "java",
                "-Xmx9g",
                "-cp",
                f"{pulsar_home}/lib/*",
                str(source),
                str(total),
                str(acknowledged_every),
            ]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            rows += [row | {"stored": total, "acknowledgedEvery": acknowledged_every} for row in lines]
    return rows


def seed_formula(stored: int, acknowledged_every: int, bits: int) -> float:
    """Bytes an entry by PIP-393's conclusion."""
    per_bucket = 2**bits * (1 - 1 / acknowledged_every if acknowledged_every else 1)
    return 4.0 if per_bucket < 4096 else 8192 / min(per_bucket, ENTRIES_PER_LEDGER)


def print_report(report: dict[str, list[Row]]) -> None:
    """Write the tables to stdout."""
    print("bytes an entry, one entry a ms                      PIP-393 | before      PIP-393")
    print("   stored  acked     bits   serialized     resident |  HashMap   pair map  formula   upstream (Java)")
    java = {(r["stored"], r["acknowledgedEvery"], r["bits"]): r["bytesPerEntry"] for r in report["peers"]}
    for row in report["sizes"]:
        key = (row["stored"], row["acknowledgedEvery"], row["bits"])
        acked = f"1 in {row['acknowledgedEvery']}" if row["acknowledgedEvery"] else "none"
        upstream = f"{java[key]:10.3f}" if key in java else ""
        old = "".join(f" {SEED[name][row['stored']]:9.1f}" for name in SEED)
        print(
            f"{row['stored']:>9,}  {acked:>7} {row['bits']:>6} {row['serializedPerEntry']:>12.4f} "
            f"{row['residentPerEntry']:>12.4f} |{old} {seed_formula(*key):>9.3f} {upstream}"
        )
    print("\nmillions a second")
    for row in report["rates"]:
        cells = "  ".join(f"{name} {value / 1e6:.2f}" for name, value in row.items() if name != "bits")
        print(f"  bits {row['bits']:>2}: {cells}")
    print("\none due(): microseconds     tracker                          store")
    print("     pending   nothing due   256 entries due   nothing due   256 entries due")
    for row, kept in zip(report["due"], report["keptDue"], strict=True):
        print(
            f"{row['pending']:>12,} {row['nothingDueMicroseconds']:>13.2f} {row['oneBucketDueMicroseconds']:>17.2f}"
            f" {kept['nothingDueMicroseconds']:>13.2f} {kept['oneRowDueMicroseconds']:>17.2f}"
        )


def main() -> None:
    """Run everything, or one size measurement in a child process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="one million entries only")
    parser.add_argument("--pulsar", type=Path)
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the cost of due() only, into a new .png or .svg"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        total, acknowledged_every, bits = map(int, options.one.split(","))
        print(json.dumps(measure_size(total, acknowledged_every, bits)))
        return
    totals = (1_000_000,) if options.quick else (1_000_000, 10_000_000)
    pending = tuple(10**power for power in range(3, 7 if options.quick else 8))
    if options.plot:
        plot_due(options.plot, {"due": due_costs(pending), "keptDue": kept_due_costs(pending)})
        return
    rates = Rates(1_000_000)
    report = {
        "sizes": sizes(totals),
        "rates": [rates.measure(bits) for bits in BITS],
        "due": due_costs(pending),
        "keptDue": kept_due_costs(pending),
        "peers": peers(options.pulsar, totals) if options.pulsar else [],
    }
    print_report(report)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
