"""Measure ``topics dump`` and ``topics load``: whole processes on 1,000,000 generated messages, alone and in batches.

``python -m bench.dump [--messages N] [--runs N] [--json FILE]``. Medians; seconds of processor time stand beside those on the clock,
since other work on the machine changes only the latter. Rates are messages (entries for load) a second on the clock.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from bench.generate import generate
from bench.measuring import ADMIN, Row, Run, machine, median, run

WORK = Path(__file__).resolve().parent.parent / ".benchmarks"
BATCH = 100
LAYOUTS = {
    "alone, 128 B": ("1", ["--message-size", "128"]),
    "alone, 1 KB": ("1", ["--message-size", "1024"]),
    "batches of 100, 128 B, LZ4": (str(BATCH), ["--message-size", "128", "--batch", str(BATCH), "--codecs", "lz4"]),
}
GOAL = "≥ 500,000 messages/s"


def stored_messages(layout: str, messages: int) -> Path:
    """Return the store of a generated topic, made when first asked for."""
    share, options = LAYOUTS[layout]
    name = "".join(letter if letter.isalnum() else "-" for letter in f"dump-{messages}-{layout}")
    source, store = WORK / name, WORK / f"{name}-store"
    if not store.exists():
        WORK.mkdir(exist_ok=True)
        shutil.rmtree(source, ignore_errors=True)
        generate(source, "--entries", messages // int(share), "--keys", "10000", *options, "--producers", "4")
        run([ADMIN, "-q", "--store", store, "store", "import", "standalone", source])
    return store


def _dump(store: Path, what: str, messages: int, runs: int, *options: str) -> Row:
    target = WORK / "dumped"
    done = []
    for _ in range(runs + 1):
        shutil.rmtree(target, ignore_errors=True)
        done.append(
            run([ADMIN, "-q", "--store", store, "topics", "dump", "--all-topics", "--directory", target, *options])
        )
    return _row(what, median(done[1:]), messages, GOAL if "--level" not in options else "", runs)


def _load(messages: int, runs: int) -> Row:
    """Load what is in ``dumped`` into an empty store."""
    store = WORK / "loaded"
    done = []
    for _ in range(runs + 1):
        shutil.rmtree(store, ignore_errors=True)
        run([ADMIN, "-q", "--store", store, "store", "init"])
        done.append(run([ADMIN, "-q", "--store", store, "topics", "load", WORK / "dumped"]))
    shutil.rmtree(store)
    return _row("topics load, Parquet", median(done[1:]), messages, "", runs)


def _row(what: str, taken: Run, messages: int, goal: str, runs: int) -> Row:
    note = f"{messages / taken.seconds:,.0f}/s on the clock, {messages / taken.processor_seconds:,.0f}/s of processor time,"
    return Row(
        what,
        taken.seconds,
        taken.processor_seconds,
        goal=goal,
        note=f"{note} peak {taken.peak_bytes >> 20} MiB",
        runs=runs,
    )


def measure(messages: int, runs: int) -> Iterator[Row]:
    """Yield every row."""
    for layout in LAYOUTS:
        store = stored_messages(layout, messages)
        yield _dump(store, f"topics dump, {messages:,} messages {layout}", messages, runs)
        yield _dump(store, f"topics dump --payload, {messages:,} messages {layout}", messages, runs, "--payload")
    yield _dump(
        stored_messages("alone, 128 B", messages),
        f"topics dump --level entries, {messages:,}",
        messages,
        runs,
        "--level",
        "entries",
    )
    yield _load(messages, runs)
    shutil.rmtree(WORK / "dumped")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    about = machine()
    print(json.dumps(about), flush=True)
    rows = []
    for row in measure(arguments.messages, arguments.runs):
        rows.append(row.as_json())
        print(
            f"{row.what:<64}{row.seconds:8.3f} s  cpu {row.processor_seconds:7.3f} s  {row.goal}  {row.note}",
            flush=True,
        )
    print(json.dumps({"loadAverageAfter": machine()["loadAverageBefore"]}))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": about, "rows": rows}, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
