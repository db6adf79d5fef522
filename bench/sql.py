"""``sql`` over generated messages beside the same question over Parquet of them by DuckDB alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from bench.data import WORK, Bench
from bench.dump import stored_messages
from bench.measuring import ADMIN, Row, Run, median, run

MESSAGES = 10_000_000
LAYOUT = "batches of 100, 128 B, LZ4"
QUESTIONS = {
    "the ten keys with most messages, and their last times": (
        "select key, count(*) n, max(publish_time) last from {} group by key order by n desc, key limit 10"
    ),
    "a ledger that there is not": "select count(*) from {} where ledger_id = -1",
}


def measure(bench: Bench) -> Iterator[Row]:
    """Each question here, in one process and in two, and of DuckDB alone; in turn."""
    messages = bench.count(MESSAGES)
    store = stored_messages(LAYOUT, messages)
    parquet = _parquet(store, messages)
    for name, question in QUESTIONS.items():
        asked = [ADMIN, "-q", "--store", store, "--jobs"]
        alone = f"import duckdb; print(duckdb.sql({question.format(repr(str(parquet)))!r}).fetchall())"
        commands: list[list[object]] = [[*asked, jobs, "sql", question.format("messages")] for jobs in (1, 2)]
        commands.append([sys.executable, "-c", alone])
        rounds = [[run(command) for command in commands] for _ in range(bench.runs + 1)][1:]
        *here, peer = (median(runs) for runs in zip(*rounds, strict=True))
        for jobs, taken in enumerate(here, 1):
            yield _row(f"sql --jobs {jobs}, {messages:,} messages: {name}", taken, peer, bench.runs)


def _row(what: str, taken: Run, peer: Run, runs: int) -> Row:
    return Row(
        what,
        taken.seconds,
        taken.processor_seconds,
        peer="DuckDB over Parquet",
        peer_seconds=peer.seconds,
        peer_processor_seconds=peer.processor_seconds,
        note=f"peak {taken.peak_bytes >> 20} MiB, DuckDB {peer.peak_bytes >> 20} MiB",
        runs=runs,
    )


def _parquet(store: Path, messages: int) -> Path:
    """Return what the questions need of the messages as one file of Parquet, made when first asked for."""
    target = WORK / f"sql-{messages}.parquet"
    if not target.exists():
        code = (
            "import pulsar_admin as pa, pyarrow.parquet as pq\n"
            f"with pa.open_store({str(store)!r}) as store:\n"
            " rows = store.sql('select ledger_id, entry_id, key, publish_time, size from messages')\n"
            f" with pq.ParquetWriter({str(target)!r}, rows.schema, compression='zstd') as writer:\n"
            "  [writer.write_batch(batch) for batch in rows]\n"
        )
        run([sys.executable, "-c", code])
    return target
