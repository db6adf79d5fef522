"""Measure ``sql`` over generated messages beside the same question over Parquet of them by DuckDB alone.

``python -m bench.sql [--messages N] [--runs N]``. Whole processes; medians.
"""

from __future__ import annotations

import argparse
import sys

from bench.dump import WORK, _store
from bench.measuring import ADMIN, Run, median, run

LAYOUT = "batches of 100, 128 B, LZ4"
KEYS = "select key, count(*) n, max(publish_time) last from {} group by key order by n desc, key limit 10"
ONE = "select count(*) from {} where ledger_id = -1"


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    store = _store(LAYOUT, given.messages)
    parquet = WORK / f"sql-{given.messages}.parquet"
    if not parquet.exists():
        code = (
            "import pulsar_admin as pa, pyarrow.parquet as pq\n"
            f"with pa.open_store({str(store)!r}) as store:\n"
            " rows = store.sql('select ledger_id, entry_id, key, publish_time, size from messages')\n"
            f" with pq.ParquetWriter({str(parquet)!r}, rows.schema, compression='zstd') as writer:\n"
            "  [writer.write_batch(batch) for batch in rows]\n"
        )
        run([sys.executable, "-c", code])
    for name, question in (("keys", KEYS), ("nothing", ONE)):
        here = _median(given.runs, [ADMIN, "-q", "--store", store, "sql", question.format("messages")])
        two = _median(given.runs, [ADMIN, "-q", "--store", store, "--jobs", "2", "sql", question.format("messages")])
        alone = f"import duckdb; print(duckdb.sql({question.format(repr(str(parquet)))!r}).fetchall())"
        peer = _median(given.runs, [sys.executable, "-c", alone])
        for what, taken in (("sql", here), ("sql --jobs 2", two), ("DuckDB, Parquet", peer)):
            print(
                f"{name:8} {what:16} {taken.seconds:8.2f} s  cpu {taken.processor_seconds:8.2f} s  peak {taken.peak_bytes >> 20} MiB",
                flush=True,
            )


def _median(runs: int, words: list[object]) -> Run:
    return median([run(words) for _ in range(runs)])


if __name__ == "__main__":
    main()
