"""A Spark stream that follows a growing bookie; the bookie and the query are killed (SIGKILL) in turn, again and again.

``python -m bench.streaming [--kills 10] [--rate 2000]`` prints, at the end, how many entries the journals hold, how many rows the
sink has, how many are lost and how many doubled. The bookie is that of ``tests/growing.py``; a real one: ``tests/live/test_streaming.py``.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.growing import Bookie

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".benchmarks" / "streaming"
LOG_BYTES = 1 << 20


def follow(paths: str, out: str, *, once: bool) -> None:
    """Follow ``paths`` until killed, or ``once``, into ``rows`` of ``out``, with the checkpoint beside them."""
    from pulsar_admin.store.engine.spark_session import SparkOptions, open_session
    from pulsar_admin.store.scan.datasource import register

    with open_session(SparkOptions(master="local[2]")) as spark:
        register(spark)
        source = spark.readStream.format("pulsar_entries").option("path", paths).option("maxFilesPerTrigger", "20")
        rows = source.option("columns", "ledger_id,entry_id,path,offset,digest_ok").load()
        sink = rows.writeStream.format("parquet").option("checkpointLocation", f"{out}/checkpoint")
        sink = sink.trigger(availableNow=True) if once else sink.trigger(processingTime="1 second")
        sink.start(f"{out}/rows").awaitTermination()


def committed(out: Path) -> list[dict[str, object]]:
    """Return the rows of the files that the sink committed, as Spark's own readers do."""
    import pyarrow.parquet as pq

    files: dict[str, None] = {}
    log = out / "rows" / "_spark_metadata"
    names = sorted((path for path in log.glob("[0-9]*")), key=lambda path: int(path.name.split(".")[0]))
    compacted = [path for path in names if path.name.endswith(".compact")]
    first = int(compacted[-1].name.split(".")[0]) if compacted else 0
    for path in names:
        number = int(path.name.split(".")[0])
        if number < first or (number == first and compacted and path != compacted[-1]):
            continue
        for line in path.read_text().splitlines()[1:]:
            files[json.loads(line)["path"].removeprefix("file://")] = None
    return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]


def main() -> None:
    """Kill and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rate", type=int, default=2000)
    parser.add_argument("--follow", help="internal: follow these paths")
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args()
    if given.follow:
        follow(given.follow, str(given.out), once=given.once)
        return
    sys.exit(kill_and_compare(given.out, given.kills, given.rate))


def kill_and_compare(out: Path, kills: int, rate: int) -> int:
    """Kill bookie and query ``kills`` times each; return the exit code."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    disk = out / "bookie"
    paths = f"{disk}/current/*.log,{disk}/current/*.txn"
    write = [sys.executable, "-m", "tests.growing", str(disk), str(rate), str(LOG_BYTES)]
    query = [sys.executable, "-m", "bench.streaming", "--out", str(out), "--follow", paths]
    draw = random.Random(20)
    writer = subprocess.Popen(write, cwd=ROOT)
    for number in range(kills):
        reader = _start(query, out)
        before = batches(out)
        begun = time.monotonic()
        while batches(out) < before + 2 and reader.poll() is None and time.monotonic() < begun + 180:
            time.sleep(draw.random())
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        time.sleep(draw.random())
        writer = subprocess.Popen(write, cwd=ROOT)
        time.sleep(2 * draw.random())
        if reader.poll() is not None:
            writer.kill()
            return _said(out)
        _kill_group(reader)
        print(f"kill {number + 1}: {batches(out)} batches committed", flush=True)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    last = _start([*query, "--once"], out)
    return _said(out) if last.wait() else _compare(out, disk)


def _said(out: Path) -> int:
    """Print what a query that ended by itself said; return the exit code."""
    print((out / "query.log").read_text()[-3000:])
    return 1


def _start(command: list[str], out: Path) -> subprocess.Popen[bytes]:
    with (out / "query.log").open("ab") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the query's driver, its JVM and its workers at once."""
    import os

    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def batches(out: Path) -> int:
    """Return how many batches of the query were committed."""
    return len([path for path in (out / "checkpoint" / "commits").glob("[0-9]*") if path.name.isdigit()])


def _compare(out: Path, disk: Path) -> int:
    from tests.growing import Bookie

    written = Counter(Bookie.everything(_at(disk)))
    rows = Counter((row["ledger_id"], row["entry_id"]) for row in committed(out))
    lost = written.keys() - rows.keys()
    doubled = [entry for entry, times in rows.items() if times > 1]
    strange = rows.keys() - written.keys()
    offsets = sorted((path.stat().st_size for path in (out / "checkpoint" / "offsets").glob("[0-9]*")), reverse=True)
    print(f"entries in journals {len(written)}, rows {rows.total()}, batches {batches(out)}")
    print(f"logs {len(list((disk / 'current').glob('*.log')))}, largest offset {offsets[0]} bytes")
    print(f"lost {len(lost)}, doubled {len(doubled)}, in no journal {len(strange)}")
    return int(bool(lost or doubled or strange))


def _at(disk: Path) -> Bookie:
    from tests.growing import Bookie

    bookie = Bookie.__new__(Bookie)  # to look only: a start would write
    bookie.current = disk / "current"
    return bookie


if __name__ == "__main__":
    main()
