"""Peak memory of every process of the bulk commands, on entries of 5 MB with one of 100 MB among them.

A process's peak is what the kernel notes of it (VmHWM), read while it runs; Java's processes are left out.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.data import WORK, Bench
from bench.measuring import ADMIN, Row

ENTRY_BYTES, LARGE_BYTES, ENTRIES = 5_000_000, 100_000_000, 120
TOPIC = "public/default/large"
GOAL_BYTES = 512 << 20
LEAST_BYTES = 32 << 20  # processes below are not listed
_POLL_SECONDS = 0.01


def measure(bench: Bench) -> Iterator[Row]:
    """Every bulk command that reads payloads, here and on Spark."""
    store = large_store(max(ENTRIES // bench.shrink, 2))
    target = WORK / "large-dumped"
    dump: list[object] = ["topics", "dump", TOPIC, "--directory", target]
    commands: dict[str, list[object]] = {
        "logs verify": ["logs", "verify", store / "entries"],
        "ledgers verify": ["ledgers", "verify"],
        "store check --deep": ["store", "check", "--deep"],
        "store index --rebuild": ["store", "index", "--rebuild"],
        "topics dump": dump,
        "topics dump --payload": [*dump, "--payload"],
        "topics dump --level entries": [*dump, "--level", "entries"],
        "topics dump --payload --format jsonl": [*dump, "--payload", "--format", "jsonl"],
        "topics dump --level entries --format jsonl": [*dump, "--level", "entries", "--format", "jsonl"],
        "topics read --payload": ["topics", "read", TOPIC, "--payload", "-o", "jsonl"],
        "compaction run": ["compaction", "run", TOPIC, "--dry-run"],
    }
    on_spark = ["ledgers verify", *(what for what in commands if "--payload" in what and "dump" in what)]
    commands |= {f"{what} --spark": [*commands[what], "--spark"] for what in on_spark}
    for what, words in commands.items():
        shutil.rmtree(target, ignore_errors=True)
        seconds, peaks = watch([ADMIN, "-q", "--store", store, *words])
        highest = [(peak, name) for peak, name in sorted(peaks, reverse=True) if peak >= LEAST_BYTES]
        note = f"peak {highest[0][0] >> 20} MiB: {', '.join(f'{name} {peak >> 20}' for peak, name in highest)}"
        yield Row(
            f"memory: {what}, entries of 5 MB and one of 100 MB", seconds, 0.0, note=note, runs=1,
            goal=f"≤ {GOAL_BYTES >> 20} MiB a process",
        )  # fmt: skip
    shutil.rmtree(target, ignore_errors=True)


def large_store(entries: int) -> Path:
    """Return a store of one topic: ENTRIES entries of 5 MB, half of them before one of 100 MB."""
    store = WORK / f"large-entries-{entries}"
    if not store.exists():
        from tests.synthetic import Made, MadeTopic, make_store

        WORK.mkdir(exist_ok=True)
        draw = random.Random(1)  # nothing that compresses
        plain, large = draw.randbytes(ENTRY_BYTES), draw.randbytes(LARGE_BYTES)
        made = [Made(1_700_000_000_000 + number, payload=plain) for number in range(entries)]
        made.insert(entries // 2, Made(1_700_000_000_000 + entries // 2, payload=large))
        make_store(store, {TOPIC: MadeTopic([made])})
    return store


def watch(command: Sequence[object]) -> tuple[float, list[tuple[int, str]]]:
    """Run COMMAND to its end; return its seconds, and of it and every process below it the peak bytes and what it is."""
    begin = time.perf_counter()
    words = [str(word) for word in command]
    peaks: dict[int, tuple[int, str]] = {}
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        while process.poll() is None:
            for pid in _family(process.pid):
                peaks[pid] = max(peaks.get(pid, (0, "")), (_peak_bytes(pid), _name(pid, process.pid)))
            time.sleep(_POLL_SECONDS)
        assert process.stderr is not None
        said = process.stderr.read().decode(errors="replace")
    assert process.returncode == 0, f"{command}: {process.returncode} {said[-2000:]}"
    return time.perf_counter() - begin, list(peaks.values())


def _name(pid: int, first: int) -> str:
    """Return what the process is: the command itself, one of its own, or a Python process of Spark's."""
    if pid == first:
        return "command"
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it ended
        return ""
    return "Spark's worker" if b"pyspark" in words else "process"


def _family(pid: int) -> Iterator[int]:
    """Yield PID and every process below it but Java's."""
    try:
        # Not by its name: what Java forks has a thread's, and Java's memory until it becomes Python.
        if Path(f"/proc/{pid}/exe").readlink().name != "java":
            yield pid
        tasks = [task / "children" for task in Path(f"/proc/{pid}/task").iterdir()]
        children = [int(child) for task in tasks for child in task.read_text().split()]
    except OSError:  # it ended
        return
    for child in children:
        yield from _family(child)


def _peak_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it ended
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)
