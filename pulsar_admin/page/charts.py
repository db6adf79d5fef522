"""Geometry of strips, bars and shares. They stretch to any width, so all text stands beside them in HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from msgspec import Struct

from pulsar_admin.columns import size_text, time_text
from pulsar_admin.store.reports.cursor_timeline import STATES, Cell, Strip

STATE_NAMES = {
    "acknowledged": "acknowledged",
    "one-by-one": "acknowledged one by one",
    "unacknowledged": "unacknowledged",
    "delayed": "delayed, not yet due",
    "lost": "lost: no client gets it",
}
HATCHINGS = {"one-by-one": "M0 6L6 0", "delayed": "M2 3h2", "lost": "M0 0L6 6M0 6L6 0", "dead": "M0 6L6 0"}
"""By which states are told apart without colour."""
WIDTH = 1000
_STRIP_HEIGHT = 26
_LEDGERS_MAX = 100  # more marks are a grey bar
_BARS_HEIGHT = 64


class Rect(NamedTuple):
    """A rectangle and its class."""

    x: float
    y: float
    width: float
    height: float
    name: str
    fill: str = ""


class Group(NamedTuple):
    """Rectangles, and texts (x, y, class, text) over them, that have a title together."""

    title: str
    rects: Sequence[Rect]
    texts: Sequence[tuple[float, float, str, str]] = ()
    children: Sequence[Group] = ()


def blocks(state: str, x: float = 0, y: float = 0, width: float = 22, height: float = 14) -> list[Rect]:
    """Return a rectangle in the colour and hatching of a state, by default one of the legend."""
    over = [Rect(x, y, width, height, "over", f"url(#hatch-{state})")] if state in HATCHINGS else []
    return [Rect(x, y, width, height, f"state {state}"), *over]


def strip_parts(value: Strip) -> Iterator[Group]:
    """Yield a strip's parts: cells in one state joined, others stacked by how many entries are in each state."""
    at = 0
    for state, group in groupby(value.cells, key=_only_state):
        cells = list(group)
        for part in [cells] if state else [[cell] for cell in cells]:
            count = sum(cell.entries for cell in part)
            x, width, below = at * WIDTH / value.entries, count * WIDTH / value.entries, float(_STRIP_HEIGHT)
            rects: list[Rect] = []
            told = []
            for one, entries in zip(STATES, map(sum, zip(*(cell.counts for cell in part), strict=True)), strict=True):
                height = _STRIP_HEIGHT * entries / count
                below -= height
                if entries:
                    rects += blocks(one, x, below, width, height)
                    told.append(f"{entries:,} {'entries ' if state else ''}{STATE_NAMES[one]}")
            yield Group(f"{part[0].first} to {part[-1].last}: {', '.join(told)}", rects)
            at += count


def _only_state(cell: Cell) -> str | None:
    """Return the state of all entries of a cell, None if there are several."""
    return next((state for state, count in zip(STATES, cell.counts, strict=True) if count == cell.entries), None)


def strip_label(value: Strip) -> str:
    """Return a description of a strip in words."""
    spoken = "; ".join(f"{value.count(state):,} {STATE_NAMES[state]}" for state in STATES if value.count(state))
    return f"{value.entries:,} entries: {spoken}"


def ledger_marks(value: Strip) -> str:
    """Return the path below a strip with a mark at each ledger's start."""
    marks = value.ledger_starts if len(value.ledger_starts) <= _LEDGERS_MAX else ()
    path = "".join(f"M{rank * WIDTH / value.entries:.1f} {_STRIP_HEIGHT}v5" for rank in marks)
    return f"M0 {_STRIP_HEIGHT + 0.5}H{WIDTH}{path}"


def shares(parts: Sequence[tuple[str, int]]) -> Iterator[tuple[float, float, str]]:
    """Yield x, width and name of parts (name, bytes) of a whole, side by side."""
    total, at = sum(size for _, size in parts), 0.0
    for name, size in parts:
        yield at, WIDTH * size / total, name
        at += WIDTH * size / total


class Bars(Struct, frozen=True):
    """Values in buckets of time, all of them, empty ones too."""

    start_ms: int
    width_ms: int
    counts: Sequence[int]
    unit: str  # messages, bytes or entries


def amount(count: float, unit: str) -> str:
    """Return a count with its unit as text."""
    return size_text(count) if unit == "bytes" else f"{count:,.0f} {unit}"


def bars(value: Bars) -> Iterator[Group]:
    """Yield a bar for each bucket that is not empty."""
    most = max(value.counts, default=0) or 1
    width = WIDTH / max(len(value.counts), 1)
    for index, count in enumerate(value.counts):
        if count:
            height = max(_BARS_HEIGHT * count / most, 1.0)
            rect = Rect((index + 0.08) * width, _BARS_HEIGHT - height, width * 0.84, height, f"bar {value.unit}")
            yield Group(f"{time_text(value.start_ms + index * value.width_ms)}: {amount(count, value.unit)}", [rect])
