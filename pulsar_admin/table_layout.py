"""Fitting a table into a terminal: folding, shortening and leaving out columns.

In this order, as far as necessary: columns without values are left out, headers are folded, ``persistent://`` is left
out and times lose their milliseconds, prose is folded once between words, columns are left out in the order of
``Column.drop``, those of zeros first. A row stays one line, and no name is folded while a column can be left out. As a
last resort, prose is folded on any number of lines, then names, then within words. Pipes, wide terminals and other formats show
everything.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from pulsar_admin.columns import GAP, Column

_FOLD_WIDTH = 16
_PIECE_WIDTH = 30
_TIGHT_WIDTH = 9
_FEW_LINES = 2
_ZEROS = ("", "0", "0 B", "0s")
PROSE = ("prose",)
TEXTS = ("prose", "text")
_PREFIX = re.compile(r"(?<![\w-])persistent://")
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)")
_WORDS = re.compile(r"\S+\s*|\s+")
_PIECES = re.compile(r"[^/,|-]*[/,|-]*")

Measure = Callable[[str], int]
Rows = Sequence[Sequence[str]]


class _Manner(Struct, frozen=True):
    """How a table is narrowed; ``dropped`` is the number of columns that are left out."""

    short_times: bool
    fold_width: int
    """How narrow a text may become; 0: not folded."""
    folded: tuple[str, ...]
    """The kinds of columns that are folded."""
    lines: int
    """On how many lines a text may stand; 0: any."""
    dropped: int


class Layout(Struct, frozen=True):
    """What a page of a table shows in a terminal: the columns' indices and widths, and what becomes of their cells."""

    indices: tuple[int, ...]
    widths: tuple[int, ...]
    short: bool
    short_times: bool
    left_out: tuple[str, ...]

    def cells(self, row: Sequence[str]) -> list[str]:
        """Return the shown cells of a row, shortened."""
        return [_shortened(row[index], self.short, self.short_times) for index in self.indices]

    def fits(self, columns: Sequence[Column], rows: Rows, measure: Measure) -> bool:
        """Return whether the layout also suits further rows: their numbers fit and no hidden column has a value."""
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
    every = tuple(n for n, column in enumerate(columns) if not column.sparse or any(row[n] for row in rows))
    widths = [max(measure(columns[n].header), _widest(rows, n, measure)) for n in every]
    if sum(widths) + GAP * (len(every) - 1) <= room:
        return Layout(every, tuple(widths), False, False, ())
    filled = [n for n in every if any(row[n] for row in rows)] or list(every)
    says = {n: any(row[n] not in _ZEROS for row in rows) for n in filled}
    droppable = sorted((n for n in filled if columns[n].drop), key=lambda n: (says[n], columns[n].drop))
    for manner in _manners(len(droppable)):
        gone = droppable[: manner.dropped]
        indices = tuple(n for n in filled if n not in gone)
        names = tuple(columns[n].header for n in sorted(gone))
        layout = Layout(indices, (), True, manner.short_times, names)
        found = _fitted([columns[n] for n in indices], [layout.cells(row) for row in rows], room, manner, measure)
        if found is not None:
            return Layout(indices, found, True, manner.short_times, names)
    return None


def _manners(droppable: int) -> Iterator[_Manner]:
    folds, times = (0, _FOLD_WIDTH), (False, True)
    for dropped, fold_width, short_times in itertools.product(range(droppable + 1), folds, times):
        yield _Manner(short_times, fold_width, PROSE, _FEW_LINES, dropped)
    for kinds, lines in ((PROSE, 0), (TEXTS, _FEW_LINES), (TEXTS, 0)):
        yield _Manner(True, _FOLD_WIDTH, kinds, lines, droppable)
    yield _Manner(True, _TIGHT_WIDTH, TEXTS, 0, droppable)


def _fitted(
    columns: Sequence[Column], rows: Rows, room: int, manner: _Manner, measure: Measure
) -> tuple[int, ...] | None:
    """Return the columns' widths, the widest texts shrunk as far as the table needs and may; None where it has no room."""
    widths = [
        max(_longest_piece(column.header, measure), _widest(rows, n, measure)) for n, column in enumerate(columns)
    ]
    least = list(widths)
    for n, column in enumerate(columns):
        if manner.fold_width and column.kind in manner.folded:
            header = _longest_piece(column.header, measure) if manner.fold_width == _TIGHT_WIDTH else 0
            least[n] = min(widths[n], max(header, _least(rows, n, manner.fold_width, measure)))
    room -= GAP * (len(columns) - 1)
    if sum(least) > room:
        return None
    over = sum(widths) - room
    while over > 0:
        widest = max((n for n in range(len(widths)) if widths[n] > least[n]), key=lambda n: widths[n])
        widths[widest] -= 1
        over -= 1
    if manner.lines and any(
        len(fold(cell, width, measure)) > manner.lines for row in rows for cell, width in zip(row, widths, strict=True)
    ):
        return None
    return tuple(widths)


def _least(rows: Rows, index: int, fold_width: int, measure: Measure) -> int:
    if fold_width == _TIGHT_WIDTH:
        return fold_width
    longest = max((_longest_piece(row[index], measure) for row in rows), default=0)
    return max(fold_width, min(longest, _PIECE_WIDTH))


def _widest(rows: Rows, index: int, measure: Measure) -> int:
    return max((measure(row[index]) for row in rows), default=0)


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
