"""Geometry of strips, bars, shares and the treemap. All but the treemap stretch to any width, so their texts are in HTML.

The treemap shows disk usage: tenants, namespaces and topics are nested rectangles whose areas are bytes (squarified,
Bruls et al. 2000).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from msgspec import Struct

from pulsar_admin.columns import size_text, time_text
from pulsar_admin.page.texts import clipped
from pulsar_admin.page.values import Share
from pulsar_admin.store.reports.cursor_timeline import STATES, Cell, Strip
from pulsar_admin.store.wording import counted

TILES = 160
GROUPS = 24
_HEAD = 17
_HEADS_MIN = {"tenant": 3, "namespace": 2.5}
"""How many heads high a box is that has one."""
_CHARACTER = 6.4  # what a character of 11 px takes, about
_LABEL_WIDTH, _LABEL_HEIGHT = 34, 16


class Box(NamedTuple):
    """A rectangle in a picture."""

    x: float
    y: float
    width: float
    height: float

    def inside(self, head: float, gap: float) -> Box:
        """Return the box's area below a head, within a gap."""
        return Box(self.x + gap, self.y + head, max(self.width - 2 * gap, 0), max(self.height - head - gap, 0))


def squarify(sizes: Sequence[float], box: Box) -> list[Box]:
    """Return a rectangle of the box for each of the positive, descending sizes, as square as possible."""
    boxes: list[Box] = []
    scale = box.width * box.height / (sum(sizes) or 1)
    areas = [size * scale for size in sizes]
    while len(boxes) < len(areas):
        side = min(box.width, box.height)
        left = areas[len(boxes) :]
        row = [left[0]]
        for following in left[1:]:
            longer = [*row, following]
            if _worst(longer, side) > _worst(row, side):
                break
            row = longer
        thick = sum(row) / side if side else 0
        at = 0.0
        for area in row:
            long = area / thick if thick else 0
            if box.width >= box.height:
                boxes.append(Box(box.x, box.y + at, thick, long))
            else:
                boxes.append(Box(box.x + at, box.y, long, thick))
            at += long
        if box.width >= box.height:
            box = Box(box.x + thick, box.y, max(box.width - thick, 0), box.height)
        else:
            box = Box(box.x, box.y + thick, box.width, max(box.height - thick, 0))
    return boxes


def _worst(row: Sequence[float], side: float) -> float:
    total = sum(row)
    if not total or not side:
        return float("inf")
    return max(side * side * max(row) / total**2, total**2 / (side * side * min(row)))


def treemap(shares: Sequence[Share], width: int, height: int) -> list[Group]:
    """Return the groups of a treemap, ``width`` units wide: tenants, their namespaces, their topics."""
    return _placed([share for share in shares if share.size_bytes], ("tenant", "namespace"), Box(0, 0, width, height))


def _placed(shares: list[Share], levels: Sequence[str], box: Box) -> list[Group]:
    """Return shares placed in a box, by levels of names."""
    if not levels:
        ordered = sorted(shares, key=lambda share: -share.size_bytes)
        boxes = squarify([share.size_bytes for share in ordered], box)
        tiles = map(_tile, ordered, boxes)
        return [tile for tile in tiles if tile is not None]
    level, *below = levels
    by_name: dict[str, list[Share]] = defaultdict(list)
    for share in shares:
        by_name[getattr(share, level)].append(share)
    groups = sorted(by_name.items(), key=lambda item: -_bytes(item[1]))
    made = []
    for (name, rows), place in zip(groups, squarify([_bytes(rows) for _, rows in groups], box), strict=True):
        has_head = place.height > _HEADS_MIN[level] * _HEAD and place.width > 2 * _LABEL_WIDTH
        label = _label(name, place, f"{level}-name") if has_head else []
        children = _placed(rows, below, place.inside(_HEAD if has_head else 0, 1))
        made.append(Group("", [Rect(*place.inside(0.5, 0.5), level)], label, children))
    return made


def _tile(share: Share, box: Box) -> Group | None:
    if box.width < 0.5 or box.height < 0.5:
        return None
    shown = box.inside(0.5, 0.5)
    done = share.done_bytes / share.size_bytes
    below = Box(shown.x, shown.y + shown.height * (1 - done), shown.width, shown.height * done)
    size = size_text(share.size_bytes)
    title = f"{clipped(f'{share.tenant}/{share.namespace}/{share.topic}')}: {size}"
    title += f", {size_text(share.done_bytes)} needed by no subscription" if share.done_bytes else ""
    texts = _label(share.topic, box, "tile-name")
    if box.height >= 2 * _LABEL_HEIGHT and box.width >= len(size) * _CHARACTER + 8:
        texts.append((box.x + 5, box.y + 27, "tile-size", size))
    return Group(title, [Rect(*shown, "tile"), *([Rect(*below, "tile done")] if done else [])], texts)


def _label(name: str, box: Box, kind: str) -> list[tuple[float, float, str, str]]:
    """Return the text element (x, y, class, text) with as much of a name as fits at the top of a box; [] if nothing fits."""
    room = int((box.width - 8) / _CHARACTER)
    if box.width < _LABEL_WIDTH or box.height < _LABEL_HEIGHT:
        return []
    shown = clipped(name, 200)
    return [(box.x + 5, box.y + 13, kind, shown if len(shown) <= room else shown[: max(room - 1, 1)] + "…")]


def _bytes(shares: Sequence[Share]) -> int:
    return sum(share.size_bytes for share in shares)


# -- merging small shares -----------------------------------------------------------------------------------------------


def fold(shares: Sequence[Share]) -> list[Share]:
    """Return shares with all but the ``TILES`` largest merged by namespace, and namespaces beyond ``GROUPS`` merged."""
    sizes: dict[tuple[str, str], int] = defaultdict(int)
    for share in shares:
        sizes[share.tenant, share.namespace] += share.size_bytes
    shown = set(sorted(sizes, key=lambda space: -sizes[space])[:GROUPS])
    tenants = {tenant for tenant, _ in shown}
    kept: list[Share] = []
    rest: dict[tuple[str, str], list[Share]] = defaultdict(list)
    for share in sorted(shares, key=lambda share: -share.size_bytes):
        space = share.tenant, share.namespace
        if space in shown and len(kept) < TILES and share.topics == 1:
            kept.append(share)
        elif space in shown:
            rest[space].append(share)
        else:
            rest[(share.tenant, "other namespaces") if share.tenant in tenants else ("other tenants", "")].append(share)
    for (tenant, namespace), group in rest.items():
        topics, done = sum(share.topics for share in group), sum(share.done_bytes for share in group)
        kept.append(Share(tenant, namespace, counted(topics, "more topic"), _bytes(group), done, topics))
    return kept


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
    """Rectangles and the texts (x, y, class, text) over them, with one title."""

    title: str
    rects: Sequence[Rect]
    texts: Sequence[tuple[float, float, str, str]] = ()
    children: Sequence[Group] = ()


def blocks(state: str, x: float = 0, y: float = 0, width: float = 22, height: float = 14) -> list[Rect]:
    """Return rectangles in the colour and hatching of a state; the default size is that of the legend."""
    over = [Rect(x, y, width, height, "over", f"url(#hatch-{state})")] if state in HATCHINGS else []
    return [Rect(x, y, width, height, f"state {state}"), *over]


def strip_parts(value: Strip) -> Iterator[Group]:
    """Yield a strip's parts: neighbouring cells of one state joined; mixed cells stacked by the number of entries per
    state."""
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
    """Return the state of all entries of a cell, None if they differ."""
    return next((state for state, count in zip(STATES, cell.counts, strict=True) if count == cell.entries), None)


def strip_label(value: Strip) -> str:
    """Return a description of a strip as text."""
    spoken = "; ".join(f"{value.count(state):,} {STATE_NAMES[state]}" for state in STATES if value.count(state))
    return f"{value.entries:,} entries: {spoken}"


def ledger_marks(value: Strip) -> str:
    """Return the SVG path below a strip that marks each ledger's start."""
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
    """Values in consecutive buckets of time, including empty ones."""

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
