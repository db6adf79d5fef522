"""``doctor --html`` on 10,000 topics of 50 entries, 2 subscriptions with holes each, a twentieth of the entries delayed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from bench.data import WORK, Bench
from bench.generate import generate
from bench.measuring import ADMIN, Row, median, run

TOPICS, ENTRIES = 10_000, 50


def measure(bench: Bench) -> Iterator[Row]:
    """The page beside the same findings as JSON, which is what it takes without the page."""
    topics = bench.count(str(TOPICS))
    data, store, page = WORK / f"page-{topics}", WORK / f"page-store-{topics}", WORK / f"page-{topics}.html"
    if not store.exists():
        shutil.rmtree(data, ignore_errors=True)
        shape = ["--subscriptions", 2, "--holes", 3, "--delayed", 5, "--entries-per-ledger", 20]
        kind = ["--topics", topics, "--entries", ENTRIES, "--message-size", "200..2000", *shape]
        generate(data, *kind)
        run([ADMIN, "-q", "--store", store, "store", "import", "standalone", data])
    doctor = [ADMIN, "-q", "--store", store, "doctor"]
    alone = median([run([*doctor, "-o", "json"]) for _ in range(bench.runs)])
    runs = []
    for _ in range(bench.runs):
        page.unlink(missing_ok=True)
        runs.append(run([*doctor, "--html", page]))
    made = median(runs)
    note = f"{page.stat().st_size:,} bytes, peak {made.peak_bytes >> 20} MiB"
    yield Row(
        f"doctor --html, {topics:,} topics",
        made.seconds,
        made.processor_seconds,
        peer="doctor -o json",
        peer_seconds=alone.seconds,
        peer_processor_seconds=alone.processor_seconds,
        note=note,
    )
