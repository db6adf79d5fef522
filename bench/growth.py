"""How the cost grows with entries, with their size, with topics and with ledgers: four sizes each, four commands.

Afterwards ``.benchmarks/growth.md`` has the tables and ``docs/images/growth.svg`` the curves (with ``--shrink`` they are only drawn
in ``.benchmarks``).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct, field

from bench.data import ROOT, TOPIC, WORK, Bench, logs_of, middle_time, size_of
from bench.measuring import ADMIN, Row, median, run

COMMANDS = ("import", "verify", "find-by-time", "stats-internal")
RUNS_MAX = 3
_TOPIC_ENTRIES = 100


class Point(Struct, frozen=True):
    """One cluster to measure: its name on the axis, entries of a topic, and what else ``bench.generate`` is told."""

    name: str
    entries: int
    options: tuple[str, ...]


class Growth(Struct):
    """Seconds of every command along one axis."""

    title: str
    points: list[str] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=lambda: {command: [] for command in COMMANDS})


def axes(bench: Bench) -> Mapping[str, list[Point]]:
    """Return what is measured: title → four points."""
    small = ("--message-size", "100")
    ledgers = [bench.count(count) for count in ("10", "1K", "30K", "300K")]
    return {
        "entries of 100 B": [
            Point(f"{count:,}", count, small) for count in map(bench.count, ("10K", "100K", "1M", "10M"))
        ],
        "bytes an entry, 10,000 entries": [
            Point(f"{size:,} B", bench.count("10K"), ("--message-size", str(size)))
            for size in (100, 1_000, 10_000, 100_000)
        ],
        f"topics of {_TOPIC_ENTRIES} entries of 1 KB": [
            Point(f"{count:,}", _TOPIC_ENTRIES, ("--topic", TOPIC, "--topics", str(count - 1)))
            for count in (max(bench.count(text), 2) for text in ("10", "100", "1K", "10K"))
        ],
        "ledgers of a topic, an entry in each": [
            Point(f"{count:,}", count, (*small, "--entries-per-ledger", "1")) for count in ledgers
        ],
    }


def measure(bench: Bench) -> Iterator[Row]:
    """Every point of every axis; then the tables and the plot."""
    runs = min(bench.runs, RUNS_MAX)
    found = []
    for title, points in axes(bench).items():
        growth = Growth(title)
        for point in points:
            source = bench.generated(point.entries, *point.options)
            growth.points.append(point.name)
            growth.bytes.append(size_of(logs_of(source)))
            yield from _point_rows(growth, point, source, runs)
        found.append(growth)
    (WORK / "growth.md").write_text("\n".join(map(table, found)))
    images = WORK if bench.shrink > 1 else ROOT / "docs" / "images"
    for form in ("svg", "png"):
        draw(found, images / f"growth.{form}")


def _point_rows(growth: Growth, point: Point, source: Path, runs: int) -> Iterator[Row]:
    store = WORK / "growth-store"
    shutil.rmtree(store, ignore_errors=True)
    commands: dict[str, list[object]] = {
        "import": ["store", "import", "standalone", source],
        "verify": ["logs", "verify", source / "bookkeeper" / "current"],
        "find-by-time": ["topics", "find-by-time", TOPIC, "--time", middle_time(point.entries)],
        "stats-internal": ["topics", "stats-internal", TOPIC],
    }
    for name, words in commands.items():
        taken = []
        for _ in range(runs + 1):
            if name == "import":
                shutil.rmtree(store, ignore_errors=True)
            taken.append(run([ADMIN, "-q", "--store", store, *words]))
        ours = median(taken[1:])
        growth.seconds[name].append(ours.seconds)
        note = f"{growth.bytes[-1] / 1e6:,.1f} MB of logs, peak {ours.peak_bytes >> 20} MiB"
        what = f"growth: {' '.join(map(str, words[:2]))}, {growth.title}: {point.name}"
        yield Row(what, ours.seconds, ours.processor_seconds, note=note, runs=runs)
    shutil.rmtree(store)


def table(growth: Growth) -> str:
    """Return one axis as a table of Markdown."""
    lines = [
        f"| {growth.title} | logs | store import | logs verify | find-by-time | stats-internal |",
        "|---|---|---|---|---|---|",
    ]
    for index, point in enumerate(growth.points):
        seconds = " | ".join(f"{growth.seconds[command][index]:.3f} s" for command in COMMANDS)
        lines.append(f"| {point} | {growth.bytes[index] / 1e6:,.1f} MB | {seconds} |")
    return "\n".join(lines) + "\n"


def draw(found: list[Growth], path: Path) -> None:
    """Draw every axis on logarithmic scales into ``path``."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(2, 2, figsize=(11, 8), layout="constrained")
    for axes_, growth in zip(grid.flat, found, strict=True):
        places = [int("".join(letter for letter in name if letter.isdigit())) for name in growth.points]
        for command, seconds in growth.seconds.items():
            axes_.loglog(places, seconds, marker="o", label=command)
        axes_.set_title(growth.title)
        axes_.set_ylabel("seconds, whole process")
        axes_.grid(visible=True, which="major", alpha=0.3)
    grid.flat[0].legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
