"""``store recover --level C``: what reading the evidence of every entry takes on each engine, and what the rest does.

``python -m bench.recover STORE [--runs N] [--spark]`` prints JSON; STORE is one of bookies alone, without metadata. Spark is
measured after its session is up and its workers are warm; each run reads every entry's head anew, from the page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from contextlib import ExitStack
from pathlib import Path

from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.engine.operation import Engine
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.recovery.chains import find_chains
from pulsar_admin.store.recovery.evidence import LedgerEvidence, iter_unlisted, read_evidence, unlisted_bytes
from pulsar_admin.store.recovery.from_bookies import GivenNames, find_ledgers, plan_from_bookies
from pulsar_admin.store.recovery.from_ledgers import Sources


def read(reader: EntryReader, engine: Engine | None, runs: int) -> tuple[float, list[LedgerEvidence]]:
    """The median of ``runs`` readings on ``engine``, the first one left out, and what was found."""
    reader.engine = engine
    seconds = []
    found: list[LedgerEvidence] = []
    for _ in range(runs + 1):
        begin = time.perf_counter()
        found = list(read_evidence(reader, iter_unlisted(reader.txn)))
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[1:]), found


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--spark", action="store_true")
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    with ExitStack() as stack:
        reader = stack.enter_context(open_reader(stack.enter_context(open_store(arguments.store))))
        size = unlisted_bytes(reader.txn)
        engines: dict[str, Engine | None] = {"one process": None, f"{cores} processes": LocalEngine(cores)}
        if arguments.spark:
            from pulsar_admin.store.engine.spark import SparkEngine
            from pulsar_admin.store.engine.spark_session import SparkOptions, open_session

            session = stack.enter_context(open_session(SparkOptions(master=f"local[{cores}]")))
            engines["Spark"] = SparkEngine(session)
        out: dict[str, object] = {"bytes": size, "loadAverage": os.getloadavg()[0]}
        evidence: list[LedgerEvidence] = []
        for name, engine in engines.items():
            seconds, evidence = read(reader, engine, arguments.runs)
            out[name] = {"seconds": round(seconds, 3), "megabytesPerSecond": round(size / seconds / 1e6)}
        reader.engine = None
        begin = time.perf_counter()
        chains = find_chains(evidence)
        out["chains"] = {"ledgers": len(evidence), "groups": len(chains.groups), "seconds": _since(begin)}
        found = find_ledgers(reader, GivenNames({}, {}))
        begin = time.perf_counter()
        plan = plan_from_bookies(Sources(reader, 0, cluster="bench"), found)
        out["plan"] = {"steps": len(plan.steps), "seconds": _since(begin)}
    out["entries"] = sum(one.entries for one in evidence)
    print(json.dumps(out, indent=1))


def _since(begin: float) -> float:
    return round(time.perf_counter() - begin, 3)


if __name__ == "__main__":
    main()
