"""Strips and bars as inline SVG. They stretch to any width, so all text stands beside them in HTML."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from pulsar_admin.columns import size_text, time_text
from pulsar_admin.page.markup import Markup, element, joined
from store.frozen import frozen
from store.reports.strips import STATES, Cell, Strip

STATE_NAMES = {
    "acknowledged": "acknowledged",
    "one-by-one": "acknowledged one by one",
    "unacknowledged": "unacknowledged",
    "delayed": "delayed, not yet due",
    "lost": "lost: no client gets it",
}
_WIDTH = 1000
_STRIP_HEIGHT = 26
_LEDGERS_MAX = 100  # more marks are a grey bar
Part = tuple[str, int]
"""Name and bytes of a part of a whole."""
_BARS_HEIGHT = 64


def patterns() -> Markup:
    """Return the hatchings by which states are told apart without colour; other pictures of the page refer to them."""
    lines = {
        "one-by-one": "M0 6L6 0",
        "delayed": "M2 3h2",
        "lost": "M0 0L6 6M0 6L6 0",
        "dead": "M0 6L6 0",
    }
    made = (
        element(
            "pattern",
            element("path", d=path, class_="hatching"),
            id=f"hatch-{name}",
            width=6,
            height=6,
            patternUnits="userSpaceOnUse",
        )
        for name, path in lines.items()
    )
    return element("svg", element("defs", joined(made)), width=0, height=0, aria_hidden="true", class_="patterns")


def legend() -> Markup:
    """Return what the colours and hatchings of strips mean."""
    items = (
        element(
            "li",
            element("svg", *_block(0, 0, 22, 14, state), width=22, height=14, aria_hidden="true"),
            STATE_NAMES[state],
        )
        for state in STATES
    )
    return element("ul", joined(items), class_="legend")


def strip(value: Strip) -> Markup:
    """Return VALUE as a strip; cells that are all in one state are drawn together."""
    entries = value.entries
    parts: list[Markup] = []
    at = 0
    for state, group in groupby(value.cells, key=_only_state):
        cells = list(group)
        if state is None:
            for cell in cells:
                parts.append(_mixed(cell, at, entries))
                at += cell.entries
            continue
        count = sum(cell.entries for cell in cells)
        place = _range(cells[0], cells[-1])
        parts.append(_titled(f"{place}: {count:,} entries {STATE_NAMES[state]}", *_run(at, count, entries, state)))
        at += count
    spoken = "; ".join(f"{value.count(state):,} {STATE_NAMES[state]}" for state in STATES if value.count(state))
    return element(
        "svg",
        joined(parts),
        _ledger_marks(value),
        viewBox=f"0 0 {_WIDTH} {_STRIP_HEIGHT + 5}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{entries:,} entries: {spoken}",
        class_="strip",
    )


def _only_state(cell: Cell) -> str | None:
    """Return the state that all entries of CELL are in, None when they are in several."""
    return next((state for state, count in zip(STATES, cell.counts, strict=True) if count == cell.entries), None)


def _range(first: Cell, last: Cell) -> str:
    return f"{first.first} to {last.last}"


def _titled(title: str, *children: object) -> Markup:
    return element("g", element("title", title), *children)


def _run(at: int, count: int, entries: int, state: str) -> list[Markup]:
    return _block(at * _WIDTH / entries, 0, count * _WIDTH / entries, _STRIP_HEIGHT, state)


def _block(x: float, y: float, width: float, height: float, state: str) -> list[Markup]:
    made = [element("rect", x=x, y=y, width=width, height=height, class_=f"state {state}")]
    if state not in ("acknowledged", "unacknowledged"):
        made.append(element("rect", x=x, y=y, width=width, height=height, fill=f"url(#hatch-{state})", class_="over"))
    return made


def _mixed(cell: Cell, at: int, entries: int) -> Markup:
    """Return a cell of entries in several states: stacked, from the bottom, by how many there are of each."""
    x, width = at * _WIDTH / entries, cell.entries * _WIDTH / entries
    below = float(_STRIP_HEIGHT)
    made: list[Markup] = []
    for state, count in zip(STATES, cell.counts, strict=True):
        height = _STRIP_HEIGHT * count / cell.entries
        below -= height
        if count:
            made += _block(x, below, width, height, state)
    told = ", ".join(
        f"{count:,} {STATE_NAMES[state]}" for state, count in zip(STATES, cell.counts, strict=True) if count
    )
    return _titled(f"{_range(cell, cell)}: {told}", *made)


def _ledger_marks(value: Strip) -> Markup:
    marks = value.ledger_starts if len(value.ledger_starts) <= _LEDGERS_MAX else ()
    path = "".join(f"M{rank * _WIDTH / value.entries:.1f} {_STRIP_HEIGHT}v5" for rank in marks)
    return element("path", d=f"M0 {_STRIP_HEIGHT + 0.5}H{_WIDTH}{path}", class_="ledgers")


# -- shares of a whole --------------------------------------------------------------------------------------------------


def share_bar(parts: Sequence[Part], label: str) -> Markup:
    """Return PARTS of a whole side by side."""
    total = sum(size for _, size in parts)
    made: list[Markup] = []
    at = 0.0
    for name, size in parts:
        made += share_of_bar(at, _WIDTH * size / total, name)
        at += _WIDTH * size / total
    return element(
        "svg",
        joined(made),
        viewBox=f"0 0 {_WIDTH} 14",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
        class_="share-bar",
    )


def share_of_bar(x: float, width: float, name: str) -> list[Markup]:
    """Return one part, from X on; what is dead is hatched."""
    made = [element("rect", x=x, width=width, height=14, class_=f"share {name}")]
    return [*made, element("rect", x=x, width=width, height=14, class_="hatch")] if name == "dead" else made


# -- bars over time -----------------------------------------------------------------------------------------------------


@frozen
class Bars:
    """Values in buckets of time, all of them, empty ones too."""

    start_ms: int
    width_ms: int
    counts: Sequence[int]
    unit: str  # messages, bytes or entries


def amount(count: float, unit: str) -> str:
    """Return COUNT of UNIT as text."""
    return size_text(count) if unit == "bytes" else f"{count:,.0f} {unit}"


def bars(value: Bars, label: str) -> Markup:
    """Return VALUE as bars above a line."""
    most = max(value.counts, default=0) or 1
    width = _WIDTH / max(len(value.counts), 1)
    made = (
        _titled(
            f"{time_text(value.start_ms + index * value.width_ms)}: {amount(count, value.unit)}",
            _bar(index * width, width, _BARS_HEIGHT * count / most, value.unit),
        )
        for index, count in enumerate(value.counts)
        if count
    )
    return element(
        "svg",
        joined(made),
        element("path", d=f"M0 {_BARS_HEIGHT}H{_WIDTH}", class_="axis"),
        viewBox=f"0 0 {_WIDTH} {_BARS_HEIGHT + 1}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
        class_="bars",
    )


def _bar(x: float, width: float, height: float, unit: str) -> Markup:
    shown = max(height, 1.0)
    return element(
        "rect",
        x=x + width * 0.08,
        y=_BARS_HEIGHT - shown,
        width=width * 0.84,
        height=shown,
        class_=f"bar {unit}",
    )
