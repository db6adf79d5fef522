"""The scan alone: the product's scanner over entry logs in the page cache, beside ``cat`` of the same files, in turn.

``python -m bench.scan DIRECTORY [--runs N]`` prints JSON: seconds of each run. The compiled kernel is loaded before.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from pathlib import Path

import numpy as np

from bench.data import logs_of
from pulsar_admin.store.scan.files import FileScan, LedgerDigests, Slice

NO_LEDGERS: LedgerDigests = (np.zeros(0, np.int64), np.zeros(0, np.int16))


def scan(files: list[Path], ledgers: LedgerDigests, verify: bool) -> tuple[float, int]:
    """Seconds and records of one scan of ``files``."""
    begin, records = time.perf_counter(), 0
    for file in files:
        slices = Slice(str(file), "entry-log", 0, os.path.getsize(file))
        records += sum(len(batch) for batch in FileScan(slices, ledgers, verify).batches())
    return time.perf_counter() - begin, records


def cat(files: list[Path]) -> float:
    """Seconds of one ``cat`` of ``files`` to nowhere."""
    begin = time.perf_counter()
    subprocess.run(["cat", *map(str, files)], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def main() -> None:
    """Scan with and without checksums and cat, in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    files = logs_of(arguments.directory)
    _, records = scan(files, NO_LEDGERS, True)
    # Every ledger of a generated directory has CRC-32C digests; ids are those of its metadata, 1 and on.
    ledgers = np.arange(1, 100_000, dtype=np.int64), np.full(99_999, 4, np.int16)
    found: dict[str, list[float]] = {"plain": [], "verify": [], "cat": []}
    for _ in range(arguments.runs):
        found["plain"].append(scan(files, ledgers, False)[0])
        found["verify"].append(scan(files, ledgers, True)[0])
        found["cat"].append(cat(files))
    print(json.dumps({"records": records, "bytes": sum(map(os.path.getsize, files)), **found}))


if __name__ == "__main__":
    main()
