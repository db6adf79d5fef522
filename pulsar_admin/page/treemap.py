"""Who fills the disk as nested rectangles: tenant, namespace, topic; areas are bytes (squarified treemap, Bruls et al. 2000)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from pulsar_admin.columns import size_text
from pulsar_admin.page.markup import Markup, clipped, element, joined
from pulsar_admin.page.values import Share
from store.frozen import frozen
from store.wording import counted

TILES = 160
GROUPS = 24
_HEAD = 17
_CHARACTER = 6.4  # what a character of 11 px takes, about
_LABEL_WIDTH, _LABEL_HEIGHT = 34, 16


@frozen
class Box:
    """A rectangle of the picture."""

    x: float
    y: float
    width: float
    height: float

    def inside(self, head: float, gap: float) -> Box:
        """Return what is left of it below a head, within a gap."""
        return Box(self.x + gap, self.y + head, max(self.width - 2 * gap, 0), max(self.height - head - gap, 0))


def squarify(sizes: Sequence[float], box: Box) -> list[Box]:
    """Return a rectangle of BOX for each of SIZES, which are positive and descend, as near to squares as they go."""
    found: list[Box] = []
    scale = box.width * box.height / (sum(sizes) or 1)
    areas = [size * scale for size in sizes]
    while len(found) < len(areas):
        side = min(box.width, box.height)
        row = _best_row(areas[len(found) :], side)
        thick = sum(row) / side if side else 0
        at = 0.0
        for area in row:
            long = area / thick if thick else 0
            if box.width >= box.height:
                found.append(Box(box.x, box.y + at, thick, long))
            else:
                found.append(Box(box.x + at, box.y, long, thick))
            at += long
        if box.width >= box.height:
            box = Box(box.x + thick, box.y, max(box.width - thick, 0), box.height)
        else:
            box = Box(box.x, box.y + thick, box.width, max(box.height - thick, 0))
    return found


def _best_row(areas: Sequence[float], side: float) -> list[float]:
    row = [areas[0]]
    for area in areas[1:]:
        longer = [*row, area]
        if _worst(longer, side) > _worst(row, side):
            break
        row = longer
    return row


def _worst(row: Sequence[float], side: float) -> float:
    total = sum(row)
    if not total or not side:
        return float("inf")
    return max(side * side * max(row) / total**2, total**2 / (side * side * min(row)))


def treemap(shares: Sequence[Share], width: int, height: int, label: str) -> Markup:
    """Return the picture of SHARES, WIDTH units wide."""
    tenants = _grouped([share for share in shares if share.size_bytes], "tenant")
    body = joined(_tenant(name, rows, box) for (name, rows), box in _placed(tenants, Box(0, 0, width, height)))
    return element("svg", body, viewBox=f"0 0 {width} {height}", role="img", aria_label=label, class_="treemap")


def _placed(groups: Mapping[str, list[Share]], box: Box) -> Iterator[tuple[tuple[str, list[Share]], Box]]:
    rows = sorted(groups.items(), key=lambda item: -_bytes(item[1]))
    yield from zip(rows, squarify([_bytes(group) for _, group in rows], box), strict=True)


def _tenant(name: str, rows: list[Share], box: Box) -> Markup:
    head = _HEAD if box.height > 3 * _HEAD and box.width > 2 * _LABEL_WIDTH else 0
    spaces = _grouped(rows, "namespace")
    body = joined(_namespace(*group, place) for group, place in _placed(spaces, box.inside(head, 1)))
    return element("g", _frame(box, "tenant"), _label(name, box, "tenant-name") if head else None, body)


def _namespace(name: str, rows: list[Share], box: Box) -> Markup:
    head = _HEAD if box.height > 2.5 * _HEAD and box.width > 2 * _LABEL_WIDTH else 0
    tiles = joined(_tile(share, place) for share, place in _tiles(rows, box.inside(head, 1)))
    return element("g", _frame(box, "namespace"), _label(name, box, "namespace-name") if head else None, tiles)


def _tiles(rows: list[Share], box: Box) -> Iterator[tuple[Share, Box]]:
    ordered = sorted(rows, key=lambda share: -share.size_bytes)
    yield from zip(ordered, squarify([share.size_bytes for share in ordered], box), strict=True)


def _tile(share: Share, box: Box) -> Markup | None:
    if box.width < 0.5 or box.height < 0.5:
        return None
    shown = box.inside(0.5, 0.5)
    done = share.done_bytes / share.size_bytes
    below = Box(shown.x, shown.y + shown.height * (1 - done), shown.width, shown.height * done)
    return element(
        "g",
        element("title", _spoken(share)),
        _rect(shown, "tile"),
        _rect(below, "tile done") if done else None,
        _label(share.topic, box, "tile-name"),
        _second(share, box),
    )


def _spoken(share: Share) -> str:
    done = f", {size_text(share.done_bytes)} of it needed by no subscription" if share.done_bytes else ""
    return f"{clipped(f'{share.tenant}/{share.namespace}/{share.topic}')}: {size_text(share.size_bytes)}{done}"


def _rect(box: Box, name: str) -> Markup:
    return element("rect", x=box.x, y=box.y, width=box.width, height=box.height, class_=name)


def _frame(box: Box, name: str) -> Markup:
    return _rect(box.inside(0.5, 0.5), name)


def _label(name: str, box: Box, kind: str) -> Markup | None:
    """Return as much of NAME as fits at the top of BOX, None where nothing does."""
    room = int((box.width - 8) / _CHARACTER)
    if box.width < _LABEL_WIDTH or box.height < _LABEL_HEIGHT:
        return None
    shown = clipped(name, 200)
    shown = shown if len(shown) <= room else shown[: max(room - 1, 1)] + "…"
    return element("text", shown, x=box.x + 5, y=box.y + 13, class_=kind)


def _second(share: Share, box: Box) -> Markup | None:
    shown = size_text(share.size_bytes)
    if box.height < 2 * _LABEL_HEIGHT or box.width < len(shown) * _CHARACTER + 8:
        return None
    return element("text", shown, x=box.x + 5, y=box.y + 27, class_="tile-size")


def _bytes(shares: Sequence[Share]) -> int:
    return sum(share.size_bytes for share in shares)


def _grouped(shares: Sequence[Share], level: str) -> dict[str, list[Share]]:
    groups: dict[str, list[Share]] = defaultdict(list)
    for share in shares:
        groups[getattr(share, level)].append(share)
    return groups


# -- what is too small to be seen ---------------------------------------------------------------------------------------


def fold(shares: Sequence[Share]) -> list[Share]:
    """Return SHARES with all but the ``TILES`` largest put together by namespace, and those beyond ``GROUPS`` namespaces, too."""
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
    return [*kept, *(_together(*space, group) for space, group in rest.items())]


def _together(tenant: str, namespace: str, shares: Sequence[Share]) -> Share:
    topics, done = sum(share.topics for share in shares), sum(share.done_bytes for share in shares)
    return Share(tenant, namespace, counted(topics, "more topic"), _bytes(shares), done, topics)
