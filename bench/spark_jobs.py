"""What a command makes of a Spark cluster: ``python -m bench.spark_jobs STORE [--slots N] [--master URL] -- COMMAND…``.

Says how many jobs and tasks it ran, how many tasks at once, and how many bytes came to the driver, "beyond" without 5 KB a task (from
Spark's event log); what processes took; and whether the answer, or the files in ``{out}``, are those of this process, which runs
first. ``all``: each of ``COMMANDS``. The first run of a command compiles; ``--runs 2`` measures a second one.

The master is ``local[N]`` unless named: with more slots than cores tasks at once still count, and times say nothing. Only with
``local-cluster[2,1,1024]`` or a real cluster the driver's JVM runs no tasks; ``session`` is a session that does nothing, and COMMAND on a
store with few entries is what its start takes. ``scaling`` is the processor time of tasks with 1 to 16 slots.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shlex
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bench.memory import JAVA, Seen, watch
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.engine.spark import SparkEngine
from pulsar_admin.store.engine.spark_session import SparkOptions, open_session
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import read_topic, select_topics
from pulsar_admin.store.names import TopicSelection
from pulsar_admin.store.search.skew import SkewOfTopics, SkewOptions

TASK_BYTES = 5_000
SLOTS = (1, 2, 4, 8, 16)
EVENTS = {"enabled": "true", "compress": "false"}
SESSION = """
import sys
from pulsar_admin.store.engine.spark_session import SparkOptions, open_session
conf = tuple(tuple(word.split("=", 1)) for word in sys.argv[2:])
with open_session(SparkOptions(master=sys.argv[1], conf=conf)) as session:
    session.range(1).count()
"""
COMMANDS = (
    "topics skew --all-topics -o json",
    "ledgers verify -o json",
    "topics timeline --all-topics --bucket 1m -o json",
    "topics find-by-index {topic} --index 999999999999",
    "topics find-by-time {topic} --time 2030-01-01T00:00:00Z --clock event",
    "topics search --all-topics --key nobody -o jsonl",
    "topics read {topic} --start-time @1700000100000 --end-time @1700000200000 -o jsonl",
    "topics dump --all-topics --directory {out}",
    "topics expire {topic} -s sub-0 -t 2023-11-14T23:00:00Z --dry-run",
    "compaction read {topic} -o jsonl",
    "compaction run {topic} --dry-run -o json",
    "compaction verify {topic} -o json",
    "delayed build {topic} --dry-run -o json",
    "delayed histogram {topic} -o json",
    "store check --deep -o json",
    "store index -o json",
    "store export tables {out}",
    "store recover --level C --dry-run -o json",
    "doctor --deep -o json",
    "logs verify {logs} -o json",
    'sql -o jsonl "select topic, count(*), sum(size), min(publish_time) from messages group by topic order by topic"',
)


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


def answer_of(stdout: Path, written: Path) -> str:
    """Return a digest of what a command answered: of stdout without what differs from run to run, and of the files that it wrote.

    Of Parquet files it is of their rows: these are in more files where several processes write them, and tables have a number in
    their names.
    """
    text = re.sub(
        r'"(seconds|elapsed|durationMs|directory|target|path)": ?("[^"]*"|[\d.]+)|in [\d,]+ files?, [\d,]+ bytes',
        "",
        stdout.read_text(errors="replace"),
    )
    digest = hashlib.sha256(text.replace(str(written), "").encode())
    parts = sorted(written.rglob("part-*.parquet"))
    for folder, files in groupby(parts, lambda path: path.parent):
        rows = pa.concat_tables(pq.read_table(path, partitioning=None) for path in files).combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        digest.update(str(folder.relative_to(written)).encode() + sink.getvalue())
    names = {"_manifest.json", "tables.json"} if parts else set()
    for path in sorted(path for path in written.rglob("*") if path.is_file() and path.name not in names):
        if path not in parts:
            digest.update(str(path.relative_to(written)).encode() + path.read_bytes())
    return digest.hexdigest()


def processes_of(seen: Sequence[Seen]) -> str:
    """Return what processes took by kind: processor time, and the largest anonymous memory of one."""
    kinds: dict[str, list[Seen]] = {}
    for one in seen:
        kinds.setdefault(one.name, []).append(one)
    parts = []
    for name, ones in sorted(kinds.items()):
        memory = "" if name in JAVA else f" {max(one.anonymous_bytes for one in ones) >> 20} MiB"
        parts.append(
            f"{name}{f' × {len(ones)}' if len(ones) > 1 else ''} {sum(one.processor_seconds for one in ones):.1f} s{memory}"
        )
    return "; ".join(parts)


def measure_scaling(path: Path) -> None:
    """Print what tasks take of the processor for the clocks of all topics with more and more slots; their start is in a first run."""
    for slots in SLOTS:
        with tempfile.TemporaryDirectory() as folder, open_store(path) as store:
            conf = tuple((f"spark.eventLog.{name}", value) for name, value in (*EVENTS.items(), ("dir", folder)))
            with (
                open_session(SparkOptions(master=f"local[{slots}]", conf=conf)) as session,
                open_reader(store) as reader,
            ):
                engine = SparkEngine(session)
                topics = [
                    read_topic(reader.txn, name) for name in select_topics(reader.txn, TopicSelection(all_topics=True))
                ]
                taken = [0]
                for _ in range(3):
                    clocks = SkewOfTopics(reader.scanning_on(engine), topics, SkewOptions())
                    entries = sum(clocks.find(index).entries for index in range(len(topics)))
                    assert engine.read is not None
                    taken.append(engine.read.processor_ms)
            _, tasks = read_events(
                line for log in Path(folder).rglob("events_*") for line in log.read_text().splitlines()
            )
        start, *runs = [after - before for before, after in pairwise(taken)]
        print(
            f"{slots} slots: {entries:,} entries, {statistics.median(runs) / 1000:.2f} s of processor time ({min(runs) / 1000:.2f} to "
            f"{max(runs) / 1000:.2f}), the first run {start / 1000:.2f} s; {most_at_once(tasks)} tasks at once",
            flush=True,
        )


def main() -> None:
    """Run the commands, and print a line of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--master")
    parser.add_argument("--topic", default="public/default/fat")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--conf", action="append", default=[], help="as --spark-conf")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    if arguments.command == ["scaling"]:
        measure_scaling(arguments.store)
        return
    master = arguments.master or f"local[{arguments.slots}]"
    with open_store(arguments.store) as store, store.read() as txn:
        logs = [log.locate(arguments.store) for log in iter_logs(txn)]
    log_bytes = sum(log.stat().st_size for log in logs)
    settings = [f"spark.eventLog.{name}={value}" for name, value in EVENTS.items()] + arguments.conf
    for words in [shlex.split(text) for text in COMMANDS] if arguments.command == ["all"] else [arguments.command]:
        with tempfile.TemporaryDirectory() as folder:
            out, events, stdout = (Path(folder, name) for name in ("out", "events", "stdout"))
            if words == ["session"]:
                _, seen, _ = watch([sys.executable, "-c", SESSION, master, *arguments.conf], every_s=0.05)
                print(f"session: {processes_of(seen)}", flush=True)
                continue
            names = {"topic": arguments.topic, "out": str(out), "logs": str(logs[0].parent)}
            said = [word.format_map(names) if word.startswith("{") else word for word in words]
            program = [sys.executable, "-m", "pulsar_admin", "--store", arguments.store, *said, "--verbose"]
            on_spark = [word for text in settings for word in ("--spark-conf", text)]
            on_spark += ["--spark-conf", f"spark.eventLog.dir={events}", "--spark", "--spark-master", master]
            answers, lines = [], []
            for how in (["--jobs", "1"], *[on_spark] * arguments.runs):
                shutil.rmtree(out, ignore_errors=True)
                shutil.rmtree(events, ignore_errors=True)
                events.mkdir()
                seconds, seen, errors = watch([*program, *how], stdout, every_s=0.05, codes=(0, 1, 5))
                answers.append(answer_of(stdout, out))
                lines.append(f"{seconds:.1f} s: {processes_of(seen)}")
            found = [line for path in sorted(events.rglob("events_*")) for line in path.read_text().splitlines()]
        jobs, tasks = read_events(found)
        came = sum(task.result_bytes for task in tasks)
        beyond = max(0, came - TASK_BYTES * len(tasks))
        read = "".join(line.removeprefix("note: ") for line in errors.splitlines() if "Spark read" in line)
        print(
            f"{' '.join(words)}: {jobs} jobs, {len(tasks)} tasks, {most_at_once(tasks)} at once, "
            f"{came / 1e6:.2f} MB to the driver, beyond {beyond / 1e6:.2f} MB ({beyond / log_bytes:.3%} of {log_bytes / 1e6:,.0f} MB), "
            f"{'equal answers' if len({*answers}) == 1 else 'OTHER ANSWERS'}\n  here {lines[0]}\n  Spark {lines[-1]}\n  {read}",
            flush=True,
        )


if __name__ == "__main__":
    main()
