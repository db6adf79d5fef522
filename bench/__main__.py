"""Measure the toolkit beside its peers: ``python -m bench [--only NAMES] [--runs N] [--shrink N] [--peers FOLDER]``.

Every figure is a median of whole processes, run in turn with what it is compared with, on generated data that is kept in
``.benchmarks`` between runs. ``peers`` starts a real Pulsar in FOLDER and runs its own tools in turn with the toolkit.
``--shrink 100`` divides every count by 100, to try a bench out. Results are printed as they come and kept in
``.benchmarks/results-NAME.json``.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.data import WORK, Bench
from bench.measuring import Row, machine

MEASURES = {
    "cold": "bench.cold:measure",
    "large": "bench.cold:measure_large",
    "metadata": "bench.cold:measure_metadata",
    "scan": "bench.bulk:measure_scan",
    "import": "bench.bulk:measure_import",
    "import10m": "bench.bulk:measure_many",
    "cluster": "bench.three_bookies:measure",
    "generate": "bench.bulk:measure_generate",
    "growth": "bench.growth:measure",
    "topics": "bench.topics:measure",
    "screens": "bench.screens:measure",
    "ledgers": "bench.million_ledgers:measure",
    "spark": "bench.spark:measure",
    "memory": "bench.memory:measure",
    "search": "bench.search:measure",
    "sql": "bench.sql:measure",
    "dump": "bench.hooks:measure_dump",
    "delayed": "bench.hooks:measure_delayed",
    "compaction": "bench.hooks:measure_compaction",
    "preflight": "bench.preflight:measure",
    "reclaim": "bench.reclaim:measure",
    "salvage": "bench.salvage:measure",
    "history": "bench.history:measure",
    "page": "bench.page:measure",
    "tables": "bench.tables:measure",
    "tables-driver": "bench.tables:measure_driver",
    "tables-ledgers": "bench.tables:measure_ledgers",
    "peers": "bench.beside:measure",
}


def render(row: Row) -> str:
    """One line of text."""
    processor = f"  cpu {row.processor_seconds:7.3f} s" if row.processor_seconds else ""
    ratio = f"  {row.ratio:8.2f} × {row.peer} ({row.peer_seconds:.3f} s)" if row.ratio is not None else ""
    if row.processor_ratio is not None:
        ratio += f", processor time {row.processor_ratio:.2f} ×"
    goal = f"  goal {row.goal}" if row.goal else ""
    return f"{row.what:<64}{row.seconds:9.3f} s{processor}{ratio}{goal}  {row.note}"


def run_one(name: str, bench: Bench) -> None:
    """Measure ``name``, print as it goes, keep the results."""
    module, _, function = MEASURES[name].partition(":")
    measure: Callable[[Bench], Iterator[Row]] = getattr(importlib.import_module(module), function)
    about = machine()
    rows = []
    WORK.mkdir(exist_ok=True)
    print(f"-- {name}", flush=True)
    for row in measure(bench):
        rows.append(row.as_json())
        print(render(row), flush=True)
    about["loadAverageAfter"] = machine()["loadAverageBefore"]
    found = {"machine": about, "shrink": bench.shrink, "rows": rows}
    (WORK / f"results-{name}.json").write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")


def main() -> None:
    """Run the benches named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help=f"of {','.join(MEASURES)}; without it all, peers only with --peers")
    parser.add_argument("--sizes", default="10K,100K,1M", help="entries of the generated topics")
    parser.add_argument("--logs", default="1M,4M", help="entries of the sets of logs to scan")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--shrink", type=int, default=1, help="divide every count by this")
    parser.add_argument("--peers", type=Path, help="folder for a real Pulsar's data (10 GB)")
    arguments = parser.parse_args()
    split = {name: tuple(getattr(arguments, name).split(",")) for name in ("sizes", "logs")}
    bench = Bench(arguments.runs, split["sizes"], split["logs"], arguments.peers, arguments.shrink)
    every = [name for name in MEASURES if name != "peers" or arguments.peers]
    names = arguments.only.split(",") if arguments.only else every
    unknown = set(names) - set(MEASURES)
    if unknown:
        parser.error(f"no bench is called {', '.join(sorted(unknown))}; there are {', '.join(MEASURES)}")
    if "peers" in names and arguments.peers is None:
        parser.error("peers needs --peers FOLDER")
    print(json.dumps(machine()), flush=True)
    for name in names:
        run_one(name, bench)


if __name__ == "__main__":
    main()
