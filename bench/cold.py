"""Cold processes that ask the index, beside an interpreter that imports click."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.data import ROOT, TOPIC, WORK, Bench, middle_time
from bench.measuring import ADMIN, CLICK, Row, side_by_side

GOAL = "≤ 0.100 s and ≤ 2.0 × the peer's processor time"
CLICK_NAME = 'python -c "import click"'
LARGE, LEDGERS, OWNERS = "100M", 30_000, 3_000_000


def measure(bench: Bench) -> Iterator[Row]:
    """Questions on the largest generated topic."""
    entries = bench.count(bench.sizes[-1])
    store = bench.imported(entries)
    commands = {
        "--help": [],
        f"topics find-by-time, {entries:,} entries": ["topics", "find-by-time", TOPIC, "--time", middle_time(entries)],
        f"topics stats-internal, {entries:,} entries": ["topics", "stats-internal", TOPIC],
        f"compaction last-id, {entries:,} entries": ["compaction", "last-id", TOPIC],
    }
    for what, words in commands.items():
        command = [ADMIN, "--store", store, *words] if words else [ADMIN, "--help"]
        yield _row(f"cold: {what}", command, bench.runs, GOAL)


def _row(what: str, command: Sequence[object], runs: int, goal: str, note: str = "") -> Row:
    ours, theirs = side_by_side(command, CLICK, runs)
    note = note or f"{ours.peak_bytes >> 20} MiB"
    return Row(
        what,
        ours.seconds,
        ours.processor_seconds,
        CLICK_NAME,
        theirs.seconds,
        goal,
        note,
        runs,
        peer_processor_seconds=theirs.processor_seconds,
    )


def measure_large(bench: Bench) -> Iterator[Row]:
    """The time search on a topic of which only the index exists: the answers are checked, then timed."""
    folder = bench.index_only(bench.count(LARGE))
    plan = json.loads((folder / "questions.json").read_text())
    words = [ADMIN, "--store", folder / "store", "-o", "json", "topics", "find-by-time", plan["topic"], "--time"]
    read = 0
    for question in plan["questions"]:
        said = subprocess.run([*map(str, words), f"@{question['time']}"], capture_output=True, text=True, check=True)
        answer = json.loads(said.stdout)
        assert [answer["position"]["ledgerId"], answer["position"]["entryId"]] == question["position"], said.stdout
        read = max(read, answer["entriesRead"])
    what = f"cold: topics find-by-time, {plan['entries']:,} entries"
    note = f"{len(plan['questions'])} answers right, at most {read} headers read"
    yield _row(what, [*words, f"@{plan['questions'][0]['time']}"], bench.runs, GOAL, note)


def measure_metadata(bench: Bench) -> Iterator[Row]:
    """The metadata of a topic of many ledgers, and who owns a ledger among very many."""
    ledgers, owners = bench.count(LEDGERS), bench.count(OWNERS)
    command = [ADMIN, "--store", ledgers_store(ledgers, 1), "topics", "stats-internal", "public/default/many-0"]
    yield _row(f"cold: topics stats-internal, a topic of {ledgers:,} ledgers", command, bench.runs, "≤ 0.500 s")
    command = [ADMIN, "--store", ledgers_store(owners, max(owners // 3000, 1)), "ledgers", "info", str(owners // 2)]
    yield _row(f"cold: ledgers info (who owns it), among {owners:,}", command, bench.runs, "≤ 0.100 s")


def ledgers_store(ledgers: int, topics: int) -> Path:
    """Return a store of the metadata of ``topics`` topics with ``ledgers`` ledgers in all."""
    store = WORK / f"ledgers-{ledgers}-of-{topics}"
    if not store.exists():
        WORK.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "bench.many_ledgers", str(store), "--ledgers", str(ledgers)]
        subprocess.run([*command, "--topics", str(topics)], cwd=ROOT, check=True)
    return store
