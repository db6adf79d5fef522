"""How the screens over all topics grow: topics of 2 ledgers and 2 subscriptions with holes, 20 entries each.

Afterwards ``.benchmarks/screens.md`` has the table: seconds on the clock, processor time a topic, and the most anonymous memory.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence

from bench.data import WORK, Bench
from bench.generate import generate
from bench.measuring import ADMIN, Row, run
from bench.topics import watch

SIZES = ("2K", "20K", "200K")
SCREENS: dict[str, Sequence[str]] = {
    "doctor": ["doctor", "--fail-on", "critical"],
    "overview": ["overview", "--check"],
    "metrics": ["metrics", "--check"],
    "subscriptions, quick": ["topics", "subscriptions", "--all-topics", "--table", "--quick"],
    "subscriptions": ["topics", "subscriptions", "--all-topics", "--table"],
}
_SHAPE = [
    "--entries",
    "20",
    "--entries-per-ledger",
    "10",
    "--subscriptions",
    "2",
    "--holes",
    "2",
    "--message-size",
    "100",
]


def measure(bench: Bench) -> Iterator[Row]:
    """Every screen at every size; then the table."""
    lines = [f"| topics | {' | '.join(SCREENS)} |", f"|{'---|' * (1 + len(SCREENS))}"]
    for count in map(bench.count, SIZES):
        data, store = WORK / f"screens-{count}", WORK / f"screens-store-{count}"
        if not store.exists():
            shutil.rmtree(data, ignore_errors=True)
            generate(data, "--topics", count - 1, *_SHAPE)
            run([ADMIN, "-q", "--store", store, "store", "import", "standalone", data])
        cells = []
        for name, words in SCREENS.items():
            seconds, processor, anonymous = watch([ADMIN, "-q", "--store", store, *words])
            cells.append(f"{seconds:.1f} s, {processor / count * 1000:.2f} ms a topic, {anonymous >> 20} MiB")
            note = f"{processor / count * 1000:.3f} ms a topic, anonymous {anonymous >> 20} MiB"
            yield Row(f"{name}, {count:,} topics", seconds, processor, note=note, runs=1)
        lines.append(f"| {count:,} | {' | '.join(cells)} |")
        (WORK / "screens.md").write_text("\n".join(lines) + "\n")
