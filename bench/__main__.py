"""Measure the toolkit beside its peers: ``python -m bench [--only NAMES] [--sizes 10K,1M] [--runs N] [--peers FOLDER]``.

Every figure is a median of whole processes, run in turn with what it is compared with, on generated data that is kept in
``.benchmarks`` between runs. ``--peers FOLDER`` adds Pulsar's own tools, measured by ``python -m tests.live.peers FOLDER`` on a
real topic of 1,000,000 entries there. Results go to ``.benchmarks/results.json`` too.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.measuring import ADMIN, CLICK, Row, machine, median, run, side_by_side
from store.generate.spec import parse_count

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".benchmarks"
TOPIC = "public/default/generated"
LARGE = "100M"


@dataclass(frozen=True, slots=True)
class Bench:
    """What to measure with: generated directories and stores, made when first asked for."""

    runs: int
    sizes: tuple[str, ...]
    peers: Path | None

    def generated(self, size: str, *options: str) -> Path:
        """A generated topic of SIZE entries of 1 KB with broker metadata."""
        target = WORK / "-".join(["generated", size, *(option.strip("-") for option in options)])
        if not target.exists():
            WORK.mkdir(exist_ok=True)
            words = ["store", "generate", target, "--entries", size, "--interceptors", "timestamp,index"]
            run([ADMIN, "-q", *words, "--subscriptions", "2", "--holes", "20", *options])
        return target

    def imported(self, size: str) -> Path:
        """The store of that topic."""
        target = WORK / f"store-{size}"
        if not target.exists():
            run([ADMIN, "-q", "--store", target, "store", "import", "standalone", self.generated(size)])
        return target

    def large(self) -> Path:
        """A store of LARGE entries of which only the index exists."""
        target = WORK / f"index-only-{LARGE}"
        if not target.exists():
            subprocess.run([sys.executable, "-m", "bench.index_only", target, "--entries", LARGE], cwd=ROOT, check=True)
        return target


def middle_time(entries: int) -> str:
    """The time of the entry in the middle of a generated topic: one a millisecond."""
    return f"@{1_700_000_000_000 + entries // 2}"


def measure_cold(bench: Bench) -> Iterator[Row]:
    """Cold processes on the largest generated topic, beside an interpreter that imports click."""
    size = bench.sizes[-1]
    store = bench.imported(size)
    entries = parse_count(size)
    commands = {
        "--help": [],
        f"topics find-by-time, {entries:,} entries": ["find-by-time", TOPIC, "--time", middle_time(entries)],
        f"topics stats-internal, {entries:,} entries": ["stats-internal", TOPIC],
    }
    for what, words in commands.items():
        command = [ADMIN, "--store", store, "topics", *words] if words else [ADMIN, "--help"]
        ours, theirs = side_by_side(command, CLICK, bench.runs)
        yield Row(
            f"cold: {what}", ours.seconds, ours.processor_seconds, 'python -c "import click"', theirs.seconds,
            "≤ 0.100 s and ≤ 4 × the peer", f"{ours.peak_bytes >> 20} MiB", bench.runs,
        )  # fmt: skip


def measure_large(bench: Bench) -> Iterator[Row]:
    """The time search on a topic of which only the index exists: the answers are checked, then timed."""
    folder = bench.large()
    plan = json.loads((folder / "questions.json").read_text())
    words = [ADMIN, "--store", folder / "store", "-o", "json", "topics", "find-by-time", plan["topic"], "--time"]
    read = 0
    for question in plan["questions"]:
        said = subprocess.run(
            [*map(str, words), f"@{question['time']}"], capture_output=True, text=True, check=True
        ).stdout
        answer = json.loads(said)
        assert [answer["position"]["ledgerId"], answer["position"]["entryId"]] == question["position"], said
        read = max(read, answer["entriesRead"])
    command = [*words, f"@{plan['questions'][0]['time']}"]
    ours, theirs = side_by_side(command, CLICK, bench.runs)
    yield Row(
        f"cold: topics find-by-time, {plan['entries']:,} entries", ours.seconds, ours.processor_seconds,
        'python -c "import click"', theirs.seconds, "≤ 0.100 s and ≤ 4 × the peer",
        f"{len(plan['questions'])} answers right, at most {read} headers read", bench.runs,
    )  # fmt: skip


def measure_import(bench: Bench) -> Iterator[Row]:
    """``store import`` as a whole process at several sizes, beside ``cat`` of the same logs."""
    for size in bench.sizes:
        source = bench.generated(size)
        yield _import_row(bench, source, f"store import, {parse_count(size):,} entries of 1 KB", parse_count(size))


def _import_row(bench: Bench, source: Path, what: str, entries: int) -> Row:
    from bench.scan import logs_of

    files = logs_of(source)
    store = WORK / "import"
    command = [ADMIN, "-q", "--store", store, "store", "import", "standalone", source]
    runs, cats = [], []
    for _ in range(bench.runs + 1):
        shutil.rmtree(store, ignore_errors=True)
        runs.append(run(command))
        cats.append(run(["cat", *files]))
    shutil.rmtree(store)
    ours, theirs = median(runs[1:]), median(cats[1:])
    size_bytes = sum(file.stat().st_size for file in files)
    note = (
        f"{entries / ours.seconds:,.0f} entries/s, {size_bytes / ours.seconds / 1e6:,.0f} MB/s,"
        f" peak {ours.peak_bytes >> 20} MiB"
    )
    return Row(what, ours.seconds, ours.processor_seconds, "cat of the logs", theirs.seconds, "", note, bench.runs)


def measure_scan(bench: Bench) -> Iterator[Row]:
    """The scan alone, with every checksum and with none, beside ``cat``."""
    for size in bench.sizes:
        command = [sys.executable, "-m", "bench.scan", str(bench.generated(size)), "--runs", str(bench.runs)]
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        found = json.loads(said)
        peer = statistics.median(found["cat"])
        for kind, text, goal in (("plain", "no checksums", "≤ 2 × cat"), ("verify", "every checksum", "≤ 4 × cat")):
            seconds = statistics.median(found[kind])
            note = f"{found['records'] / seconds:,.0f} entries/s, {found['bytes'] / seconds / 1e6:,.0f} MB/s"
            yield Row(
                f"scan alone, {text}, {found['records']:,} entries", seconds, seconds, "cat of the logs", peer, goal, note,
                bench.runs,
            )  # fmt: skip


_KINDS = {
    "1 KB": [],
    "1 KB, all metadata": [
        "--interceptors", "timestamp,index", "--keys", "1000", "--producers", "20", "--clocks", "steady,slow,jumping",
        "--delayed", "2", "--event-time", "--subscriptions", "5", "--holes", "1000",
    ],
    "batches of 10 × 100 B, no codec": ["--batch", "10", "--message-size", "100"],
    "batches of 10 × 100 B, LZ4 and ZSTD": ["--batch", "10", "--message-size", "100", "--codecs", "lz4,zstd"],
}  # fmt: skip


def measure_generate(bench: Bench) -> Iterator[Row]:
    """``store generate`` as a whole process, in memory where there is /dev/shm: its own speed, not the disk's."""
    size = bench.sizes[-1]
    shared = Path("/dev/shm")
    target = (shared if shared.is_dir() else WORK) / "pulsar-admin-bench"
    for kind, options in _KINDS.items():
        runs = []
        for _ in range(max(bench.runs // 2, 1) + 1):
            shutil.rmtree(target, ignore_errors=True)
            runs.append(run([ADMIN, "-q", "store", "generate", target, "--entries", size, *options]))
        ours = median(runs[1:])
        size_bytes = sum(path.stat().st_size for path in (target / "bookkeeper" / "current").glob("*.log"))
        shutil.rmtree(target)
        entries = parse_count(size)
        note = (
            f"{entries / ours.seconds:,.0f} entries/s, {size_bytes / ours.seconds / 1e6:,.0f} MB/s,"
            f" peak {ours.peak_bytes >> 20} MiB"
        )
        yield Row(
            f"store generate, {entries:,} entries: {kind}", ours.seconds, ours.processor_seconds,
            goal="≥ 300,000 entries/s", note=note, runs=len(runs) - 1,
        )  # fmt: skip


def measure_peers(bench: Bench) -> Iterator[Row]:
    """The same jobs on a real Pulsar's topic, beside Pulsar's own tools as they were measured there."""
    if bench.peers is None:
        return
    numbers = json.loads((bench.peers / "peers.json").read_text())
    source = bench.peers / "data"
    ours = _import_row(bench, source, "index of a real log as a whole process", numbers["entries"])
    for peer, goal in (
        ("bookkeeper shell rebuild-db-ledger-locations-index", "≥ 8 × faster"),
        ("bookkeeper shell readlog", "≥ 20 × faster"),
    ):
        yield _beside(ours, peer, numbers[peer], goal)
    store = WORK / "store-of-peers"
    shutil.rmtree(store, ignore_errors=True)
    run([ADMIN, "-q", "--store", store, "store", "import", "standalone", source])
    topic = "public/default/million"
    stats = json.loads(_said([ADMIN, "--store", str(store), "-o", "json", "topics", "stats-internal", topic]))
    begin, end = (stats["ledgers"][0][key] for key in ("beginPublishTimestamp", "endPublishTimestamp"))
    for peer, words in (
        ("pulsar-admin topics get-message-id", ["topics", "find-by-time", topic, "--time", f"@{(begin + end) // 2}"]),
        ("pulsar-admin topics stats-internal", ["topics", "stats-internal", topic]),
        ("pulsar-admin --help", ["--help"]),
    ):
        taken, _ = side_by_side([ADMIN, "--store", store, *words], CLICK, bench.runs)
        row = Row(" ".join(words[:2]), taken.seconds, taken.processor_seconds, runs=bench.runs)
        yield _beside(row, peer, numbers[peer], "≥ 40 × faster" if "topics" in peer else "")


def _beside(row: Row, peer: str, seconds: float, goal: str) -> Row:
    note = f"{seconds / row.seconds:,.1f} × faster"
    return Row(row.what, row.seconds, row.processor_seconds, peer, seconds, goal, note, row.runs)


def _said(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


MEASURES: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "cold": measure_cold,
    "large": measure_large,
    "scan": measure_scan,
    "import": measure_import,
    "generate": measure_generate,
    "peers": measure_peers,
}


def render(row: Row) -> str:
    """One line of text."""
    ratio = f"  {row.ratio:8.2f} × {row.peer} ({row.peer_seconds:.3f} s)" if row.ratio is not None else ""
    goal = f"  goal {row.goal}" if row.goal else ""
    return f"{row.what:<64}{row.seconds:9.3f} s  cpu {row.processor_seconds:7.3f} s{ratio}{goal}  {row.note}"


def main() -> None:
    """Measure, print as it goes, keep the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(MEASURES), help=f"of {', '.join(MEASURES)}")
    parser.add_argument("--sizes", default="10K,100K,1M", help="entries of the generated topics")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--peers", type=Path, help="folder of tests.live.peers")
    arguments = parser.parse_args()
    bench = Bench(arguments.runs, tuple(arguments.sizes.split(",")), arguments.peers)
    about: dict[str, Any] = machine()
    print(json.dumps(about), flush=True)
    rows = []
    for name in arguments.only.split(","):
        for row in MEASURES[name](bench):
            rows.append(row.as_json())
            print(render(row), flush=True)
    WORK.mkdir(exist_ok=True)
    about["loadAverageAfter"] = machine()["loadAverageBefore"]
    (WORK / "results.json").write_text(
        json.dumps({"machine": about, "rows": rows}, indent=2, ensure_ascii=False) + "\n"
    )


if __name__ == "__main__":
    main()
