"""Fitting a table into a terminal: folding, shortening and leaving out columns.

In this order, as far as necessary: columns without values are left out, headers are folded, ``persistent://`` is
removed and times lose their milliseconds, prose is folded once between words, columns are left out in the order of
``Column.drop``, those of zeros first. Otherwise a row stays one line, and no name is folded while a column can be left
out. As a last resort, prose is folded to any number of lines, then names, then single words. Pipes, wide terminals and
other formats show everything.
"""

import itertools
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from msgspec import Struct

from pulsar_admin.columns import GAP, Column

_FOLD_WIDTH = 16
_PIECE_WIDTH = 30
_TIGHT_WIDTH = 9
_FEW_LINES = 2
_ZEROS = ("", "0", "0 B", "0s")
PROSE = ("prose",)
TEXTS = ("prose", "text", "names")
_PREFIX = re.compile(r"(?<![\w-])persistent://")
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)")
_WORDS = re.compile(r"\S+\s*|\s+")
_PIECES = re.compile(r"[^/,|-]*[/,|-]*")

Measure = Callable[[str], int]
Rows = Sequence[Sequence[str]]


class _Manner(Struct, frozen=True):
    """One way of narrowing a table; ``dropped``: the number of columns that are left out."""

    short_times: bool
    fold_width: int
    """How narrow a text may become; 0: not folded."""
    folded: tuple[str, ...]
    """The kinds of columns that are folded."""
    lines: int
    """On how many lines a text may stand; 0: any."""
    dropped: int


class Layout(Struct, frozen=True):
    """The layout of a page of a table in a terminal: indices and widths of the shown columns, and how cells are shortened."""

    indices: tuple[int, ...]
    widths: tuple[int, ...]
    short: bool
    short_times: bool
    left_out: tuple[str, ...]

    def cells(self, row: Sequence[str]) -> list[str]:
        """Return the shown cells of a row, shortened."""
        return [_shortened(row[index], self.short, self.short_times) for index in self.indices]

    def fits(self, columns: Sequence[Column], rows: Rows, measure: Measure) -> bool:
        """Return whether the layout also works for further rows: their numbers fit, and no hidden column has a value."""
        hidden = [n for n, column in enumerate(columns) if n not in self.indices and column.header not in self.left_out]
        if any(row[n] for row in rows for n in hidden):
            return False
        kinds = [columns[index].kind for index in self.indices]
        return all(
            kind in TEXTS or measure(cell) <= width
            for row in rows
            for cell, kind, width in zip(self.cells(row), kinds, self.widths, strict=True)
        )


def choose_layout(columns: Sequence[Column], rows: Rows, room: int, measure: Measure) -> Layout | None:
    """Return a layout of the table for ``room`` terminal columns; None if it cannot fit."""
    shown = (n for n, column in enumerate(columns) if not column.sparse or any(row[n] for row in rows))
    every = tuple(shown) or tuple(range(len(columns)))
    widths = [max(measure(cell) for cell in (columns[n].header, *(row[n] for row in rows))) for n in every]
    if sum(widths) + GAP * (len(every) - 1) <= room:
        return Layout(every, tuple(widths), False, False, ())
    filled = [n for n in every if any(row[n] for row in rows)] or list(every)
    says = {n: any(row[n] not in _ZEROS for row in rows) for n in filled}
    droppable = sorted((n for n in filled if columns[n].drop), key=lambda n: (says[n], columns[n].drop))
    droppable = droppable[: len(filled) - 1]

    @cache
    def sizes(n: int, short_times: bool, fold_width: int) -> tuple[int, int]:
        """Return the full and the minimum width of column ``n``."""
        cells = [_shortened(row[n], True, short_times) for row in rows]
        header = _longest_piece(columns[n].header, measure)
        width = max([header, *map(measure, cells)])
        if fold_width == _TIGHT_WIDTH:
            return width, min(width, max(header, fold_width))
        longest = max((_longest_piece(cell, measure) for cell in cells), default=0) if fold_width else 0
        return width, min(width, max(fold_width, min(longest, _PIECE_WIDTH))) if fold_width else width

    for manner in _manners(len(droppable)):
        gone = frozenset(droppable[: manner.dropped])
        indices = tuple(n for n in filled if n not in gone)
        widths_of = [
            sizes(n, manner.short_times, manner.fold_width if columns[n].kind in manner.folded else 0) for n in indices
        ]
        left = room - GAP * (len(indices) - 1)
        if sum(least for _, least in widths_of) > left:
            continue
        names = tuple(columns[n].header for n in sorted(gone))
        layout = Layout(indices, _shrunk(widths_of, left), True, manner.short_times, names)
        if not manner.lines or all(
            len(fold(cell, width, measure)) <= manner.lines
            for row in rows
            for cell, width in zip(layout.cells(row), layout.widths, strict=True)
        ):
            return layout
    return None


def _manners(droppable: int) -> Iterator[_Manner]:
    folds, times = (0, _FOLD_WIDTH), (False, True)
    for dropped, fold_width, short_times in itertools.product(range(droppable + 1), folds, times):
        yield _Manner(short_times, fold_width, PROSE, _FEW_LINES, dropped)
    for kinds, lines in ((PROSE, 0), (TEXTS, _FEW_LINES), (TEXTS, 0)):
        yield _Manner(True, _FOLD_WIDTH, kinds, lines, droppable)
    yield _Manner(True, _TIGHT_WIDTH, TEXTS, 0, droppable)


def _shrunk(sizes: Sequence[tuple[int, int]], room: int) -> tuple[int, ...]:
    """Return widths with a sum of at most ``room``: the widest are reduced, none below its minimum."""

    def below(most: int) -> list[int]:
        return [min(width, max(least, most)) for width, least in sizes]

    widest = max((width for width, _ in sizes), default=0)
    most = bisect_left(range(widest), True, key=lambda most: sum(below(most)) > room)
    widths = below(most)
    for n, (_, least) in enumerate(sizes):
        if sum(widths) > room and widths[n] == most > least:
            widths[n] -= 1
    return tuple(widths)


def _longest_piece(text: str, measure: Measure) -> int:
    """Return the width of the longest part of a text that stays unbroken if it fits."""
    if _TIME.fullmatch(text):
        return measure(text)
    return max(measure(piece.rstrip()) for word in _WORDS.findall(text) or [""] for piece in _PIECES.findall(word))


def _shortened(cell: str, short: bool, short_times: bool) -> str:
    if short and "persistent://" in cell:
        cell = _PREFIX.sub("", cell)
    if short_times and cell[4:5] == "-":
        match = _TIME.fullmatch(cell)
        return match[1] + match[2] if match else cell
    return cell


def fold(text: str, width: int, measure: Measure) -> list[str]:
    """Return a text as lines of at most ``width``, broken between words, within long words after ``/,|-``."""
    if measure(text) <= width:
        return [text]
    lines, line = [], ""
    for piece in _iter_pieces(text, width, measure):
        if measure((line + piece).rstrip()) <= width:
            line += piece
            continue
        if line:
            lines.append(line.rstrip())
        line = piece
        while measure(line.rstrip()) > width:
            cut = _cut(line, width, measure)
            lines.append(line[:cut])
            line = line[cut:]
    return [*lines, line.rstrip()] if line.strip() else lines


def _iter_pieces(text: str, width: int, measure: Measure) -> Iterator[str]:
    for word in _WORDS.findall(text):
        yield from [word] if measure(word.rstrip()) <= width else _PIECES.findall(word)


def _cut(text: str, width: int, measure: Measure) -> int:
    """Return how many characters of a text, at least one, fit into ``width``."""
    cut = min(len(text), width)
    while cut > 1 and measure(text[:cut]) > width:
        cut -= 1
    return max(cut, 1)
