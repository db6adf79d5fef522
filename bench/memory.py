"""Peak memory of every process of the bulk commands, on entries of 5 MB with one of 100 MB among them.

A process's peak is what the kernel notes of it (VmHWM), read while it runs; Java's processes are left out. A part of it are pages
of files, such as those of libraries, which the system shares and drops as it likes: what is anonymous (RssAnon) is looked at 100
times a second.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bench.data import WORK, Bench
from bench.measuring import ADMIN, Row

ENTRY_BYTES, LARGE_BYTES, ENTRIES = 5_000_000, 100_000_000, 120
TOPIC = "public/default/large"
GOAL_BYTES = 512 << 20
JAVA = ("JVM of the driver", "JVM of an executor")
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
        seconds, seen, _ = watch([ADMIN, "-q", "--store", store, *words])
        highest = [one for one in sorted(seen, reverse=True) if one.peak_bytes >= LEAST_BYTES and one.name not in JAVA]
        each = (f"{one.name} {one.peak_bytes >> 20} ({one.anonymous_bytes >> 20})" for one in highest)
        note = f"peak {highest[0].peak_bytes >> 20} MiB (anonymous): {', '.join(each)}"
        yield Row(
            f"memory: {what}, entries of 5 MB and one of 100 MB", seconds, 0.0, note=note, runs=1,
            goal=f"≤ {GOAL_BYTES >> 20} MiB a process",
        )  # fmt: skip
    shutil.rmtree(target, ignore_errors=True)


def large_store(entries: int) -> Path:
    """Return a store of one topic: ``entries`` entries of 5 MB, half of them before one of 100 MB."""
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


class Seen(NamedTuple):
    """What a process took, and what it is: the command itself, one of its own, Spark's Python or one of its JVMs."""

    peak_bytes: int
    anonymous_bytes: int
    processor_seconds: float
    name: str


def watch(
    command: Sequence[object],
    answer: Path = Path(os.devnull),
    every_s: float = _POLL_SECONDS,
    codes: Collection[int] = (0,),
) -> tuple[float, list[Seen], str]:
    """Run ``command`` to its end, its stdout in ``answer``; return its seconds, what it and every process below it took, and its stderr."""
    begin = time.perf_counter()
    words = [str(word) for word in command]
    found: dict[int, Seen] = {}
    with answer.open("wb") as out, subprocess.Popen(words, stdout=out, stderr=subprocess.PIPE) as process:
        while process.poll() is None:
            for pid in family(process.pid):
                with suppress(OSError):  # it ended
                    before, now = found.get(pid, Seen(0, 0, 0.0, "")), _seen(pid, process.pid)
                    found[pid] = Seen(*map(max, before[:3], now[:3]), now.name)
            time.sleep(every_s)
        assert process.stderr is not None
        said = process.stderr.read().decode(errors="replace")
    assert process.returncode in codes, f"{command}: {process.returncode} {said[-2000:]}"
    return time.perf_counter() - begin, list(found.values()), said


def _seen(pid: int, first: int) -> Seen:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    peak, anonymous = (int(status.get(name, "0").split()[0]) << 10 for name in ("VmHWM", "RssAnon"))
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return Seen(peak, anonymous, sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"), _name(pid, first))


def _name(pid: int, first: int) -> str:
    if pid == first:
        return "command"
    words = Path(f"/proc/{pid}/cmdline").read_bytes()
    # Not by the process's own name: what Java forks has a thread's, and Java's memory until it becomes Python.
    if Path(f"/proc/{pid}/exe").readlink().name == "java":
        return JAVA[b"CoarseGrainedExecutorBackend" in words]
    return "Spark's worker" if b"pyspark" in words else "process"


def family(pid: int) -> Iterator[int]:
    """Yield ``pid`` and every process below it."""
    yield pid
    try:
        tasks = [task / "children" for task in Path(f"/proc/{pid}/task").iterdir()]
        children = [int(child) for task in tasks for child in task.read_text().split()]
    except OSError:  # it ended
        return
    for child in children:
        yield from family(child)
