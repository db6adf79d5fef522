"""Result → json, jsonl, csv, plain text or a table. The only module (with progress and plots) that imports rich.

One result in every format: a document (one object), records (a sequence or stream of objects), lines (texts). The
default mirrors pulsar-admin: lines as they are, a document as pretty JSON; records are a table.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TextIO

from pulsar_admin.columns import Column, clean_text, derived_columns, is_message_id, render_cell
from pulsar_admin.errors import PipeClosed
from pulsar_admin.jsonify import dump_json, to_json

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Column", "Style", "Writer", "emit_document", "emit_lines", "emit_records"]

PAGE_ROWS = 1000
"""Rows of a streamed table that are laid out together; memory stays bounded by them."""
_FOLD_WIDTH = 16
_GAP = 2
_UNLIMITED = 1_000_000

Plain = str | Callable[[Any], str]  # Any: the result's own type


@dataclass(frozen=True, slots=True)
class Style:
    """How a result is wanted: format (None: its default), color, and what the command knows of its text and columns."""

    format: str | None = None
    color: str = "auto"
    columns: tuple[Column, ...] = ()
    plain: Plain | None = None


class Writer:
    """Writes to STREAM, or to whatever stdout is at that moment; a reader who went away becomes PipeClosed."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._given = stream

    @property
    def stream(self) -> TextIO:
        return self._given or sys.stdout

    def write(self, text: str) -> None:
        try:
            self.stream.write(text)
        except BrokenPipeError as error:
            raise PipeClosed from error
        except UnicodeEncodeError:
            encoding = self.stream.encoding or "ascii"
            self.stream.write(text.encode(encoding, "backslashreplace").decode(encoding))

    def flush(self) -> None:
        try:
            self.stream.flush()
        except BrokenPipeError as error:
            raise PipeClosed from error


# -- the three shapes -------------------------------------------------------------------------------------------------


def emit_document(writer: Writer, document: object, style: Style) -> None:
    """Write one object; default: the text of a command that has one, else pulsar-admin's pretty JSON."""
    form = style.format or ("plain" if style.plain is not None else "json")
    if form == "json":
        writer.write(dump_json(document, pretty=True) + "\n")
    elif form == "plain":
        writer.write(_ended(_document_text(document, style.plain)))
    elif form == "table" and not style.columns:
        columns = (Column("FIELD", lambda pair: pair[0]), Column("VALUE", lambda pair: pair[1]))
        _emit_table(writer, _leaves(to_json(document)), Style("table", style.color, columns))
    else:
        emit_records(writer, [document], style)


def emit_lines(writer: Writer, lines: Iterable[str], style: Style) -> None:
    """Write texts, one a line; in CSV and tables they stand under one header."""
    if style.format in (None, "plain"):
        for line in lines:
            writer.write(clean_text(line) + "\n")
        return
    header = style.columns[0].header if style.columns else "NAME"
    emit_records(writer, lines, Style(style.format, style.color, (Column(header, lambda line: line),)))


def emit_records(writer: Writer, records: Iterable[object], style: Style) -> None:
    """Write records as they come; default: a table."""
    form = style.format or "table"
    if form == "json":
        _emit_json_array(writer, records)
    elif form == "jsonl":
        for record in records:
            writer.write(dump_json(record, pretty=False) + "\n")
    elif form == "csv":
        _emit_csv(writer, records, style.columns)
    elif form == "plain":
        for record in records:
            writer.write(_ended(_record_text(record, style)))
    else:
        _emit_table(writer, records, style)


# -- text formats -----------------------------------------------------------------------------------------------------


def _document_text(document: object, plain: Plain | None) -> str:
    if plain is not None:
        return plain if isinstance(plain, str) else plain(document)
    value = to_json(document)
    if isinstance(value, dict):
        return "\n".join(f"{clean_text(key)}    {render_cell(item)}" for key, item in value.items())
    return render_cell(value)


def _record_text(record: object, style: Style) -> str:
    if callable(style.plain):
        return style.plain(record)
    return "\t".join(column.cell(record) for column in style.columns or derived_columns(record))


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _leaves(value: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield (dotted key, leaf) of a JSON object."""
    if not isinstance(value, dict) or not value or is_message_id(value):
        yield prefix or "value", value
        return
    for key, item in value.items():
        yield from _leaves(item, f"{prefix}.{key}" if prefix else str(key))


def _emit_json_array(writer: Writer, records: Iterable[object]) -> None:
    opening = "["
    for record in records:
        writer.write(f"{opening}\n  " + dump_json(record, pretty=True).replace("\n", "\n  "))
        opening = ","
    writer.write("[]\n" if opening == "[" else "\n]\n")


def _emit_csv(writer: Writer, records: Iterable[object], columns: Sequence[Column]) -> None:
    # Imported here: only this format needs it.
    import csv

    rows = csv.writer(writer, lineterminator="\n")
    first, records = _peeked(records)
    columns = columns or (derived_columns(first[0]) if first else ())
    if columns:
        rows.writerow([column.header for column in columns])
    for record in records:
        rows.writerow([column.cell(record) for column in columns])


def _peeked(records: Iterable[object]) -> tuple[list[object], Iterator[object]]:
    """Return the first record, if any, and all of them."""
    stream = iter(records)
    first = list(itertools.islice(stream, 1))
    return first, itertools.chain(first, stream)


# -- tables -----------------------------------------------------------------------------------------------------------


def _emit_table(writer: Writer, records: Iterable[object], style: Style) -> None:
    first, records = _peeked(records)
    columns = style.columns or (derived_columns(first[0]) if first else ())
    if not columns:
        return
    console = _console(writer, style.color) if writer.stream.isatty() or style.color == "always" else None
    widths = [0] * len(columns)
    stream = iter(records)
    page = list(itertools.islice(stream, PAGE_ROWS))
    header = True
    while page or header:
        rows = [[column.cell(record) for column in columns] for record in page]
        widths = _widths(columns, rows, widths)
        shown = [[column.header for column in columns], *rows] if header else rows
        if console is None:
            writer.write(_render_lines(columns, shown, widths))
        else:
            writer.write(_render_page(console, columns, rows, widths, header=header))
        page = list(itertools.islice(stream, PAGE_ROWS))
        header = False


def _console(writer: Writer, color: str) -> Console:
    """Return a rich console of the terminal's width, or, colored in a pipe, of no limit."""
    from rich.console import Console

    return Console(
        file=writer.stream,
        width=None if writer.stream.isatty() else _UNLIMITED,
        force_terminal=color != "never",
        no_color=color == "never",
        highlight=False,
        emoji=False,
        markup=False,
    )


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], least: Sequence[int]) -> list[int]:
    found = [max((_width(row[index]) for row in rows), default=0) for index in range(len(columns))]
    return [max(_width(column.header), *pair) for column, *pair in zip(columns, found, least, strict=True)]


def _width(text: str) -> int:
    """Return how many terminal columns TEXT takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _is_right(column: Column) -> bool:
    return column.kind in ("number", "duration")


def _render_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> str:
    """Return a table for a pipe: nothing is cut or folded, and no row costs more than its padding."""
    rights = [_is_right(column) for column in columns]
    lines = []
    for row in rows:
        pads = [" " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
        cells = (pad + cell if right else cell + pad for cell, pad, right in zip(row, pads, rights, strict=True))
        lines.append((" " * _GAP).join(cells).rstrip() + "\n")
    return "".join(lines)


def _render_page(
    console: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]], widths: Sequence[int], *, header: bool
) -> str:
    room = console.width - _GAP * (len(columns) - 1)
    least = [
        width if column.kind != "text" else min(width, _FOLD_WIDTH)
        for column, width in zip(columns, widths, strict=True)
    ]
    if sum(least) > room:
        return _render_blocks(columns, rows)
    with console.capture() as capture:
        console.print(_rich_table(columns, rows, _fitted(columns, widths, room), header=header), crop=False)
    return "".join(line.rstrip() + "\n" for line in capture.get().splitlines())


def _fitted(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """Shrink the widest text columns until the table has ROOM; numbers and times are never folded."""
    fitted = [min(width, room) for width in widths]
    while sum(fitted) > room:
        texts = [index for index, column in enumerate(columns) if column.kind == "text"]
        widest = max(texts, key=lambda index: fitted[index])
        fitted[widest] -= 1
    return fitted


def _rich_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], widths: Sequence[int], *, header: bool
) -> Any:  # Any: rich's Table, imported only here
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), show_header=header, header_style="bold")
    for column, width in zip(columns, widths, strict=True):
        justify: Literal["right", "left"] = "right" if _is_right(column) else "left"
        table.add_column(Text(column.header), justify=justify, width=width, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _render_blocks(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """Return records one below the other, for terminals too narrow for the table."""
    indent = max(len(column.header) for column in columns)
    blocks = (
        "".join(f"{column.header:<{indent}}  {cell}".rstrip() + "\n" for column, cell in zip(columns, row, strict=True))
        for row in rows
    )
    return "".join(block + "\n" for block in blocks)
