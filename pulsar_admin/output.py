"""Writing results as JSON, JSON lines, CSV, plain text or a table. Only this module and progress import rich.

A result is a document (one object), records (a sequence or stream of objects) or lines (texts). The default format is
pulsar-admin's: lines as they are, a document as pretty JSON; records are a table.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO, assert_never, cast

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.columns import GAP, Column, derived_columns, is_message_id, kind_of, render_cell
from pulsar_admin.config import Form, colors_text
from pulsar_admin.errors import PipeClosed
from pulsar_admin.jsonify import dump_json, to_json
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.visible import TONES, clean_document, clean_lines, clean_text, painted, wrapped

if TYPE_CHECKING:
    from rich.console import Console

    from pulsar_admin.query import Query
    from pulsar_admin.table_layout import Layout, Rows


PAGE_ROWS = 1000
_LIVE_SECONDS = 1.0
"""Rows of a streamed table that are laid out together; memory stays bounded by them."""
_UNLIMITED = 1_000_000
_MOST_LETTERS = 1000
"""Letters of a cell that a terminal shows: a key or a value may have megabytes."""
_MOST_NAMED = 10
_SCREEN_ROWS = 20
_LINES_AT_ONCE = 1 << 12

Plain = str | Callable[[Any], str]  # Any: the result's own type


class Style(Struct, frozen=True):
    """How a result is written: format (None: its default), color, and the command's own text and columns.

    With ``live``, slow results are shown as they arrive; a table, whose column widths depend on its cells, page by
    page.
    """

    format: Form | None = None
    color: str = "auto"
    columns: tuple[Column, ...] = ()
    plain: Plain | None = None
    query: Query | None = None
    live: bool = False
    total: bool = False


class Asked(Struct, frozen=True):
    """The rows to write, and how."""

    rows: Iterable[Any]  # Any: the records' own type
    style: Style


class Counted:
    """An iterable of rows that counts the rows it yields."""

    def __init__(self, rows: Iterable[object]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[object]:
        for row in self._rows:
            self.count += 1
            yield row


def asked_of(rows: Iterable[object], style: Style) -> Asked:
    """Return the rows that the style's query selects, and the style with its columns; raises InvalidValue for an
    unknown column."""
    if style.query is None:
        return Asked(rows, style)
    from pulsar_admin.query import choose_rows  # most runs ask for nothing

    chosen = choose_rows(style.query, rows, style.columns, style.format)
    plain = None if style.query.columns else style.plain
    return Asked(chosen.rows, replace(style, columns=chosen.columns, plain=plain))


class Writer:
    """Writes to a stream, by default the current stdout; a reader that closed the pipe raises PipeClosed.

    Invisible characters are escaped, except line breaks and tabs.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._given = stream

    @property
    def stream(self) -> TextIO:
        return self._given or sys.stdout

    def write(self, text: str, *, styled: bool = False) -> None:
        """Write a text; a ``styled`` one contains our own escape sequences and is already cleaned."""
        text = text if styled else clean_lines(text)
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
    """Write one object; default: the command's own text if it has one, otherwise pulsar-admin's pretty JSON."""
    form: Form = style.format or ("plain" if style.plain is not None else "json")
    if form == "json":
        writer.write(dump_json(document, pretty=True) + "\n")
    elif form == "plain":
        write_screen(writer, _ended(_document_text(document, style.plain)), style.color, folds=style.format is None)
    elif form == "table" and not style.columns:
        told = told_fields(to_json(document)) if writer.stream.isatty() else None
        columns = TOLD if told else (TOLD[0], Column("VALUE", lambda pair: _value_text(*pair)))
        said = [(key, value) for key, value in told or () if "." not in key or value not in NOTHING]
        is_cut = told is not None and len(said) < len(told) > _SCREEN_ROWS
        _emit_table(
            writer, said if is_cut else told or _leaves(to_json(document)), Style("table", style.color, columns)
        )
        if is_cut:
            writer.write("\nParts that say nothing (0, -1, false) are left out; -o json has all.\n")
    else:
        emit_records(writer, [document], style)


def emit_lines(writer: Writer, lines: Iterable[str], style: Style) -> None:
    """Write texts, one per line; in CSV and tables they are one column with a header."""
    if style.format in (None, "plain") and not style.total:
        source = iter(lines)
        while some := list(islice(source, _LINES_AT_ONCE)):
            text = "".join(some)
            writer.write("\n".join(some if text.isprintable() else map(clean_text, some)) + "\n")
        return
    header = style.columns[0].header if style.columns else "NAME"
    columns = (Column(header, lambda line: line),)
    emit_records(writer, lines, Style(style.format, style.color, columns, total=style.total))


def emit_records(writer: Writer, records: Iterable[object], style: Style) -> None:
    """Write records as they come; default: a table."""
    form: Form = style.format or "table"
    records = _flushed(writer, records) if style.live else records
    if style.total and form != "table":
        raise InvalidValue("--total: only a table has a line of totals", hint="-o json and -o csv have rows alone")
    match form:
        case "json":
            _emit_json_array(writer, records)
        case "jsonl":
            for record in records:
                writer.write(dump_json(record, pretty=False) + "\n")
        case "csv":
            _emit_csv(writer, records, style.columns)
        case "plain":
            for record in records:
                writer.write(_ended(_record_text(record, style)))
        case "table":
            _emit_table(writer, records, style)
        case _:
            assert_never(form)


def _flushed(writer: Writer, records: Iterable[object]) -> Iterator[object]:
    """Yield records, flushing the output after a record if the last flush was a second ago."""
    last = monotonic()
    for record in records:
        yield record
        if monotonic() - last >= _LIVE_SECONDS:
            writer.flush()
            last = monotonic()


def write_screen(writer: Writer, text: str, color: str, *, folds: bool) -> None:
    """Write a text for people, on a terminal in color and with its long lines folded, if it ``folds``."""
    if folds:
        text = wrapped(clean_lines(text), writer.stream)
    if writer.stream.isatty() and colors_text(color):
        writer.write(painted(text), styled=True)
    else:
        writer.write(text)


# -- text formats -----------------------------------------------------------------------------------------------------


def _document_text(document: object, plain: Plain | None) -> str:
    if plain is not None:
        return plain if isinstance(plain, str) else plain(clean_document(document))
    value = to_json(document)
    if isinstance(value, dict):
        return "\n".join(f"{clean_text(key)}    {_value_text(key, item)}" for key, item in value.items())
    return render_cell(value)


def _value_text(key: str, value: object) -> str:
    return render_cell(value, kind_of(key, value))


def _told_text(key: str, value: object) -> str:
    """Return a JSON value as people read it."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(map(clean_text, value))
    if (
        isinstance(value, int)
        and value >= 0
        and re.search("(?i)(?<!quorum|semble)(size|bytes)$", key)
        and not isinstance(value, bool)
    ):
        return render_cell(value, "size")
    return _value_text(key, value)


TOLD = (Column("FIELD", lambda pair: pair[0]), Column("VALUE", lambda pair: _told_text(*pair), "prose"))
"""The columns of ``told_fields``."""
NOTHING = (0, -1, False, "None", None)
"""What counters, rates and flags say of nothing."""


def _record_text(record: object, style: Style) -> str:
    if callable(style.plain):
        return style.plain(clean_document(record))
    return "\t".join(column.cell(record, bare=True) for column in style.columns or derived_columns(record))


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _leaves(value: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield (dotted key, leaf) of a JSON object."""
    if not isinstance(value, dict) or not value or is_message_id(value):
        yield prefix or "value", value
        return
    for key, item in value.items():
        yield from _leaves(item, f"{prefix}.{key}" if prefix else str(key))


def told_fields(document: object) -> list[tuple[str, object]]:
    """Return the leaves of a JSON object for people, as rows of ``TOLD``, without empty ones; lists of objects are
    expanded."""
    rows = []
    for key, value in _leaves(document):
        if isinstance(value, list) and any(isinstance(one, (dict, list)) for one in value):
            for index, one in enumerate(value):
                rows += [(f"{key}.{index}.{inner}", leaf) for inner, leaf in told_fields(one)]
        elif value not in (None, "", [], {}):
            rows.append((key, value))
    return rows


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
    columns, records = _chosen(columns, records)
    if columns:
        rows.writerow([column.header for column in columns])
    for record in records:
        rows.writerow([column.cell(record, bare=True) for column in columns])


def _chosen(columns: Sequence[Column], records: Iterable[object]) -> tuple[Sequence[Column], Iterator[object]]:
    """Return the columns to write, by default derived from the first record, with one-line headers; and all records."""
    stream = iter(records)
    first = list(islice(stream, 1))
    columns = [
        column if column.header.isprintable() else replace(column, header=clean_text(column.header))
        for column in columns or (derived_columns(first[0]) if first else ())
    ]
    return columns, chain(first, stream)


# -- tables -----------------------------------------------------------------------------------------------------------


def _emit_table(writer: Writer, records: Iterable[object], style: Style) -> None:
    columns, stream = _chosen(style.columns, records)
    if not columns:
        return
    chunks: Iterator[Sequence[object]] = iter(lambda: list(islice(stream, PAGE_ROWS)), [])
    console = _console(writer, style.color) if writer.stream.isatty() or style.color == "always" else None
    sums = _Sums(columns) if style.total else None
    if console is None:
        _write_table(writer, columns, _pages(chunks, columns, sums))
    else:
        columns = [column.in_terminal for column in columns]
        paints = style.color == "always" or (style.color != "never" and console.color_system is not None)
        _write_in_terminal(writer, console, columns, _pages(chunks, columns, sums), paints=paints)


class _Sums:
    """Sums the columns that have ``sums`` set, for the last line of a table."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._sums: list[float | None] = [0 if column.sums else None for column in columns]
        if not any(column.sums for column in columns):
            raise InvalidValue("--total: no column of this list adds up", hint="leave it out, or show other --columns")

    def add(self, columns: Sequence[Column], record: object) -> None:
        for n, column in enumerate(columns):
            value, old = column.value(record), self._sums[n]
            if old is not None and isinstance(value, (int, float)):
                self._sums[n] = old + value

    def cells(self, columns: Sequence[Column]) -> list[str]:
        pairs = zip(self._sums, columns, strict=True)
        cells = ["" if value is None else render_cell(value, column.kind) for value, column in pairs]
        return ["TOTAL" if self._sums[0] is None else cells[0], *cells[1:]]


class _Page(Struct, frozen=True):
    """The cells of some rows, and their tones if a column has any."""

    cells: Rows
    tones: Rows = ()


def _pages(records: Iterable[Sequence[object]], columns: Sequence[Column], sums: _Sums | None) -> Iterator[_Page]:
    toned = any(column.tone for column in columns)
    last: _Page | None = None  # held back: the sums are to be as wide as it is
    for page in records:
        if last is not None:
            yield last
        cells = [[column.cell(record) for column in columns] for record in page]
        last = _Page(cells, [[column.tone_of(record) for column in columns] for record in page] if toned else ())
        if sums is None:
            yield last
            last = None
            continue
        for record in page:
            sums.add(columns, record)
    if sums is not None:
        last = last or _Page(())
        yield _Page([*last.cells, sums.cells(columns)], [*last.tones, [""] * len(columns)] if toned else ())


def _write_table(writer: Writer, columns: Sequence[Column], pages: Iterable[_Page]) -> None:
    """Write a table for a pipe: nothing is cut or folded.

    A cell that is wider than its column's padding shifts the rest of its own row only.
    """
    widths = [_width(column.header) for column in columns]
    rights = [column.is_right for column in columns]
    header: Rows = [[column.header for column in columns]]
    for page in pages:
        cells = zip(*page.cells, strict=True) if page.cells else [()] * len(columns)
        widest = [_widest(some, column.padded) for some, column in zip(cells, columns, strict=True)]
        widths = [max(pair) for pair in zip(widths, widest, strict=True)]
        writer.write(_render_lines([*header, *page.cells], widths, rights))
        header = []
    if header:
        writer.write(_render_lines(header, widths, rights))


def _widest(cells: Sequence[str], most: int | None) -> int:
    """Return the width of the widest cell that is at most ``most`` wide; None: of all cells."""
    width = len if "".join(cells).isascii() else _width
    if most is None:
        return max(map(width, cells), default=0)
    return max((one for one in map(width, cells) if one <= most), default=0)


def _console(writer: Writer, color: str) -> Console:
    """Return a rich console of the terminal's width, or of unlimited width for color in a pipe."""
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


def _width(text: str) -> int:
    """Return the number of terminal columns of a text."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _render_lines(
    rows: Iterable[Sequence[str]], widths: Sequence[int], rights: Sequence[bool], tones: Rows = ()
) -> str:
    if rights and not rights[-1]:  # one cell may be megabytes wide, and what would pad the others is stripped
        widths = [*widths[:-1], 0]
    if not tones:
        rows = list(rows)
        if "".join(chain.from_iterable(rows)).isascii():  # as wide as it is long
            form = (" " * GAP).join(
                f"%{'' if right else '-'}{width}s" for width, right in zip(widths, rights, strict=True)
            )
            return "".join([(form % tuple(row)).rstrip() + "\n" for row in rows])
    lines = []
    for number, row in enumerate(rows):
        pads = [" " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
        if tones:
            row = [_painted(cell, tone) for cell, tone in zip(row, tones[number], strict=True)]
        cells = (pad + cell if right else cell + pad for cell, pad, right in zip(row, pads, rights, strict=True))
        lines.append((" " * GAP).join(cells).rstrip() + "\n")
    return "".join(lines)


def _painted(cell: str, tone: str) -> str:
    """Return a cell, cleaned, in the color of its tone; it is written to the terminal without further cleaning."""
    text = clean_text(cell)
    return f"\x1b[{TONES[tone]}m{text}\x1b[0m" if text and tone else text


def _write_in_terminal(
    writer: Writer, console: Console, columns: Sequence[Column], pages: Iterable[_Page], *, paints: bool
) -> None:
    """Write a table that fits the terminal; if even its narrowest form does not, write records one below the other."""
    from pulsar_admin.table_layout import choose_layout, fold  # 2 ms, and only a terminal needs them

    layout: Layout | None = None
    left_out: dict[str, None] = {}
    wrote = is_cut = False
    most = _MOST_LETTERS if console.width < _UNLIMITED else sys.maxsize
    for page in chain(pages, [_Page(())]):
        if not page.cells and wrote:
            break
        wrote = True
        rows = page.cells
        if any(len(cell) > most for row in rows for cell in row):
            is_cut = True
            rows = [[cell if len(cell) <= most else f"{cell[:most]} …" for cell in row] for row in rows]
        if layout is None or not layout.fits(columns, rows, _width):
            layout = choose_layout(columns, rows, console.width, _width)
            if layout is not None:
                header = _folded(layout, columns, [_headers(layout, columns)], bottom=True)
                writer.write(_bold(console, clean_lines(header)), styled=True)
                left_out.update(dict.fromkeys(layout.left_out))
        if layout is None:
            writer.write(_render_blocks(columns, rows, console.width))
        else:
            tones = page.tones if paints else ()
            writer.write(_folded(layout, columns, map(layout.cells, rows), tones=tones), styled=bool(tones))
    names = [*left_out]
    more = [f"{len(names) - _MOST_NAMED:,} more"] if len(names) > _MOST_NAMED + 1 else []
    told = (
        [f"({', '.join([*(names[:_MOST_NAMED] if more else names), *more])}: in a wider terminal, or with -o json)"]
        if names
        else []
    )
    told += [f"Cells of more than {most:,} characters are cut; -o json has them whole."] if is_cut else []
    for text in told:
        writer.write("\n".join(fold(text, console.width, _width)) + "\n")


def _headers(layout: Layout, columns: Sequence[Column]) -> list[str]:
    return [columns[index].header for index in layout.indices]


def _bold(console: Console, text: str) -> str:
    from rich.text import Text

    with console.capture() as capture:
        for line in text.splitlines():
            console.print(Text(line, style="bold"), crop=False, no_wrap=True, overflow="ignore")
    return capture.get()


def _folded(
    layout: Layout, columns: Sequence[Column], rows: Iterable[Sequence[str]], *, bottom: bool = False, tones: Rows = ()
) -> str:
    """Return rows in the layout's widths; wider cells are folded downwards or, with ``bottom``, upwards."""
    from pulsar_admin.table_layout import fold

    rights = [columns[index].is_right for index in layout.indices]
    lines: list[Sequence[str]] = []
    painted: list[Sequence[str]] = []
    for number, row in enumerate(rows):
        cells = [fold(cell, width, _width) for cell, width in zip(row, layout.widths, strict=True)]
        height = max(map(len, cells))
        blanks = ([""] * (height - len(cell)) for cell in cells)
        padded = (blank + cell if bottom else cell + blank for cell, blank in zip(cells, blanks, strict=True))
        lines += zip(*padded, strict=True)
        if tones:
            painted += [[tones[number][index] for index in layout.indices]] * height
    return _render_lines(lines, layout.widths, rights, painted)


def _render_blocks(columns: Sequence[Column], rows: Rows, room: int) -> str:
    """Return records one below the other, for terminals too narrow for the table."""
    from pulsar_admin.table_layout import fold

    indent = min(max(_width(column.header) for column in columns) + GAP, room // 2)
    lines: list[str] = []
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            header = fold(column.header, room, _width) or [""]
            values = fold(cell, room - indent, _width) or [""]
            blank = indent - _width(header[-1])
            if blank >= GAP:
                header[-1] += " " * blank + values.pop(0)
            lines += (line.rstrip() for line in (*header, *(" " * indent + value for value in values)))
        lines.append("")
    return "".join(f"{line}\n" for line in lines)


class Pager:
    """The running pager of ``--pager``, as a stream for output that still counts as a terminal."""

    encoding = "utf-8"

    def __init__(self, command: str) -> None:
        """Start the pager; raises OSError and ValueError if it cannot be started."""
        import shlex
        import subprocess

        self._process = subprocess.Popen(
            shlex.split(command), stdin=subprocess.PIPE, encoding=self.encoding, errors="backslashreplace"
        )
        assert self._process.stdin is not None
        self._stdin = self._process.stdin

    @property
    def stream(self) -> TextIO:
        """The stream to write to."""
        return cast(TextIO, self)

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return self._stdin.write(text)

    def flush(self) -> None:
        self._stdin.flush()

    def fileno(self) -> int:
        return self._stdin.fileno()

    def close(self) -> None:
        """Wait until the user leaves the pager, which handles Ctrl-C itself."""
        with suppress(BrokenPipeError):
            self._stdin.close()
        while self._process.returncode is None:
            with suppress(KeyboardInterrupt):
                self._process.wait()

    def __getattr__(self, name: str) -> Any:  # Any: whatever else a stream has
        return getattr(self._stdin, name)
