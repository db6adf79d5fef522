"""What a command makes of a Spark cluster: ``python -m bench.spark_jobs STORE [--slots N] [--conf KEY=VALUE …] -- COMMAND…``.

Says how many jobs and tasks it ran, how many tasks at once, how busy they were, and how many bytes came to the driver; "beyond" is
without 5 KB a task. Read from Spark's event log. With more slots than cores tasks at once still count, and times say nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.files import iter_logs

TASK_BYTES = 5_000


class Task(NamedTuple):
    """One task: ms, and the bytes of its answer."""

    begin: int
    end: int
    result_bytes: int


def read_events(lines: Iterable[str]) -> tuple[int, list[Task]]:
    """Return how many jobs there were, and their tasks."""
    jobs, tasks = 0, []
    for line in lines:
        event: dict[str, Any] = json.loads(line)
        jobs += event["Event"] == "SparkListenerJobStart"
        if event["Event"] == "SparkListenerTaskEnd":
            info, metrics = event["Task Info"], event.get("Task Metrics") or {}
            tasks.append(Task(info["Launch Time"], info["Finish Time"], metrics.get("Result Size", 0)))
    return jobs, tasks


def most_at_once(tasks: Iterable[Task]) -> int:
    """Return how many of the tasks ran at the same time at most."""
    steps = sorted(step for task in tasks for step in ((task.begin, 1), (task.end, -1)))
    running = most = 0
    for _, step in steps:
        running += step
        most = max(most, running)
    return most


def main() -> None:
    """Run the command, and print one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--conf", action="append", default=[], help="as --spark-conf")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    with open_store(arguments.store) as store, store.read() as txn:
        log_bytes = sum(log.locate(arguments.store).stat().st_size for log in iter_logs(txn))
    with tempfile.TemporaryDirectory() as folder:
        settings = ["spark.eventLog.enabled=true", f"spark.eventLog.dir={folder}", "spark.eventLog.compress=false"]
        words = [word for setting in (*settings, *arguments.conf) for word in ("--spark-conf", setting)]
        words += ["--spark", "--spark-master", f"local[{arguments.slots}]"]
        program = [sys.executable, "-m", "pulsar_admin", "--store", str(arguments.store), "-o", "json"]
        subprocess.run([*program, *arguments.command, *words], stdout=subprocess.DEVNULL, check=False)
        lines = [line for path in sorted(Path(folder).rglob("events_*")) for line in path.read_text().splitlines()]
    jobs, tasks = read_events(lines)
    came = sum(task.result_bytes for task in tasks)
    beyond = max(0, came - TASK_BYTES * len(tasks))
    busy = sum(task.end - task.begin for task in tasks) / 1000
    print(
        f"{' '.join(arguments.command)}: {jobs} jobs, {len(tasks)} tasks, {most_at_once(tasks)} at once, busy {busy:.0f} s, "
        f"{came / 1e6:.2f} MB to the driver, beyond {beyond / 1e6:.2f} MB ({beyond / log_bytes:.2%} of {log_bytes / 1e6:,.0f} MB)"
    )


if __name__ == "__main__":
    main()
