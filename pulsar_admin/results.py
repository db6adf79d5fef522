"""Writing the answer of a running command in the requested format, and notes on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click
from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.config import Settings, colors_text, default_pager
from pulsar_admin.store.errors import InvalidValue, StoreError
from pulsar_admin.typable import typable

if TYPE_CHECKING:
    from pulsar_admin.columns import Column
    from pulsar_admin.output import Pager, Plain, Style, Writer
    from pulsar_admin.query import Query
    from pulsar_admin.store.names import TopicName

_WIDTH = 100
"""The most columns that a line of sentences takes."""
_EMPTY = "the list is empty"

Row = TypeVar("Row")


class Table(Struct, frozen=True):
    """A table that is a part of a screen."""

    rows: Iterable[object]
    columns: Sequence[Column]
    total: bool = False


class Result(Struct, frozen=True):
    """A command's answer, which ``Results.render`` writes in the requested format; commands do not ask for the
    format.

    Formats in ``documents`` use ``value``, those in ``texts`` the ``screen`` (a function of the line width), all
    others ``rows``, which also replace the screen if there is a query such as --where. Without rows, ``columns`` are
    the value's; ``csv`` are those of CSV, and ``json_rows`` the rows of JSON, if different. Functions are only called
    if their result is written. ``terminal`` replaces the default format on a terminal, not in a pipe. ``live`` is
    described at ``output.Style``; ``plain`` is the value's text, or a function that returns it; ``notes`` are written
    after everything else.
    """

    value: object = None
    rows: Iterable[object] | Callable[[], Iterable[object]] | None = None
    columns: Sequence[Column] = ()
    screen: Callable[[int], Iterable[str | Table]] | None = None
    documents: Collection[str | None] = ("json",)
    texts: Collection[str | None] = (None, "plain")
    terminal: Callable[[int], Iterable[str | Table]] | None = None
    csv: Sequence[Column] = ()
    json_rows: Callable[[], Iterable[object]] | None = None
    live: bool = False
    plain: Plain | None = None
    notes: Iterable[str] = ()


class Printed(Struct, frozen=True):
    """The output of upstream's command of this name (``CmdBase.print``, 4.0.8): a text unchanged, a list as one element
    per line, anything else as pretty JSON; None is ``null``. With ``-o`` it is written like a ``Result``.

    A set (``is_set``) is one line of JSON. A map with ``as_map``, Java's toString of a value, is one ``key    value``
    per line. Text that upstream prints after a change (``of_change``) is only written without ``-o``, which prints the
    change's report. ``document`` is the value for ``-o`` if different. ``head`` are lines before the value.
    """

    value: object
    is_set: bool = False
    as_map: Callable[[Any], str] | None = None  # Any: JSON values
    of_change: bool = False
    document: object = None
    head: Iterable[str] = ()


class Lines(Struct, frozen=True):
    """Lines that are written as they are produced. ``header`` is their column in CSV and tables; ``as_text`` does not
    escape them."""

    lines: Iterable[str]
    header: str = "NAME"
    as_text: bool = False


class Bytes(Struct, frozen=True):
    """Exact bytes, for ``--raw``; there is no other format."""

    value: bytes


Shown = Result | Printed | Lines | Bytes
Answer = Shown | Iterator[Shown]
"""A command's return value. A command yields if its rows are read while they are written, or if it has work to do after that."""


class _MetBy:
    """Raises an error of its block inside a command's generator, at the ``yield``."""

    def __init__(self, answer: Generator[Shown]) -> None:
        self._answer = answer

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self._answer.throw(error)


class Results:
    """Writes a command's answer to stdout, and warnings and notes to stderr."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._writer: Writer | None = None
        self._pager: Pager | None = None
        self._failed: list[StoreError] = []
        self._empty = ""
        """The note about an empty list."""
        self._said: set[str] = set()
        self._problems = 0
        self.topics: set[TopicName] = set()
        """Those that the command chose."""
        self._asked = False
        """Whether a list of rows was written, which --where, --sort and their kind apply to."""

    def show_all(self, answer: Answer) -> None:
        """Write a command's answer.

        If a command yields, errors of writing are raised in it, so that its blocks are left.
        """
        if not isinstance(answer, Generator):
            self.render(answer)  # type: ignore[arg-type]  # mypy knows no more of iterators
            return
        for shown in answer:
            with _MetBy(answer):
                self.render(shown)

    def render(self, shown: Shown) -> None:
        """Write a part of a command's answer in the requested format."""
        match shown:
            case Printed():
                self._print(shown)
            case Bytes(value):
                if self.settings.output is not None:
                    raise InvalidValue("--raw writes bytes: it has no output format", hint="leave out -o, or use --hex")
                stream = self.writer.stream
                stream.flush()
                stream.buffer.write(value)
                stream.buffer.flush()
            case Lines(lines, header, as_text=True) if self.settings.output is None:
                self._write_lines(lines)
            case Lines(lines, header):
                from pulsar_admin.columns import Column
                from pulsar_admin.output import emit_lines

                self._emit_asked(lines, self._style((Column(header, str),), None), emit_lines)
            case Result():
                self._render_result(shown)

    def _render_result(self, result: Result) -> None:
        form = self.settings.output
        rows = result.rows if result.json_rows is None or not self.writes_json else result.json_rows
        is_asked = self.query is not None or self.settings.total or bool(self.settings.fail_if)
        columns = result.csv if form == "csv" and result.csv else result.columns
        screen = result.screen if form in result.texts else None
        if result.terminal is not None and self.in_terminal:
            screen = result.terminal
        if screen is not None and not is_asked:
            from shutil import get_terminal_size  # 2 ms, with all formats of archives, and most answers are no screen

            from pulsar_admin import output

            width = min(get_terminal_size().columns, _WIDTH) if self.writer.stream.isatty() else _WIDTH
            for part in screen(width):
                if isinstance(part, Table):
                    self.emit_table(part.rows, part.columns, total=part.total)
                else:
                    output.write_screen(self.writer, part, self.settings.color, folds=form is None)
        elif rows is None or (result.value is not None and form in result.documents):
            self.emit(
                result.value() if callable(result.value) else result.value,
                columns if rows is None else (),
                result.plain,
            )
        else:
            self.emit_rows(rows() if callable(rows) else rows, columns, live=result.live)
        for note in result.notes:
            self.tell(note)

    def emit(self, result: object, columns: Sequence[Column] = (), plain: Plain | None = None) -> None:
        """Write a result in the requested format.

        A record or mapping is a document (default: JSON, or the text of ``plain``), a sequence of strings is lines,
        any other sequence is records (default: a table of ``columns``). None writes nothing.
        """
        from pulsar_admin import output

        if result is None:
            return
        if isinstance(result, (str, int, float)):
            plain = plain or str(result)
        elif isinstance(result, (list, tuple)) and not hasattr(result, "_fields"):
            self._emit_sequence(result, columns, plain)
            return
        elif self.settings.query is not None:
            self._emit_asked_object(result, columns)
            return
        style = self._style(columns, plain)
        if plain is None and self.in_terminal and not self.is_upstreams():
            style = replace(style, format="table", columns=())
        output.emit_document(self.writer, result, style)

    def is_upstreams(self) -> bool:
        """Whether upstream has a command of the typed name: then upstream's output is printed, and a change's report on
        stderr."""
        from pulsar_admin.upstream_list import upstream_commands

        return click.get_current_context().command_path.partition(" ")[2] in upstream_commands()

    def _emit_asked_object(self, result: object, columns: Sequence[Column]) -> None:
        """Write one object as the only row of ``columns`` if there are any, otherwise the keys that the query selects."""
        from pulsar_admin import output
        from pulsar_admin.query import choose_keys

        query = self.settings.query
        if columns and self.settings.output in ("table", "csv"):
            self.emit_rows([result], columns)
        elif query is not None and query.asks_keys:
            self._asked = True
            output.emit_document(self._output, choose_keys(query, result), self._style((), None))
        else:
            self._refuse_asked()

    def _emit_sequence(self, result: Sequence[object], columns: Sequence[Column], plain: Plain | None) -> None:
        if result and all(isinstance(item, str) for item in result):
            from pulsar_admin.columns import Column
            from pulsar_admin.output import emit_lines

            style = self._style(columns or (Column("NAME", str),), plain)
            self._emit_asked((str(item) for item in result), style, emit_lines)
        else:
            self.emit_rows(result, columns, plain)

    def _print(self, printed: Printed) -> None:
        """Write a value as described at ``Printed``."""
        from pulsar_admin.jsonify import dump_json, to_json

        value, form = printed.value, self.settings.output
        if printed.of_change and form is not None:
            return
        if form is not None and printed.document is not None:
            self.emit(printed.document)
            return
        if form is None:
            self._write_lines(printed.head)
        if isinstance(value, Mapping) and printed.as_map is not None:
            text = printed.as_map
            lines = None if form else "".join(f"{key}    {text(one)}\n" for key, one in value.items())
            self.emit(value, plain=lines)
            self._empty = "" if form or value or printed.of_change else _EMPTY
            return
        asked = form is not None or (self.settings.query is not None and not (printed.is_set and form is None))
        if asked and not isinstance(value, (type(None), bool, int, float, str)):
            self.emit(value)
            return
        parts = value if isinstance(value, (list, tuple)) and form is None and not printed.is_set else [value]
        is_text = form in (None, "plain", "table", "csv") and not (printed.is_set and form is None)
        self._empty = "" if parts or printed.of_change else _EMPTY
        for part in parts:
            as_it_is = part if isinstance(part, str) and is_text else dump_json(to_json(part), pretty=True)
            self.writer.write(f"{as_it_is}\n")

    def _write_lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.writer.write(f"{line}\n")

    @property
    def writes_json(self) -> bool:
        """Whether the format is JSON, which can contain more than a table."""
        return self.settings.output in ("json", "jsonl")

    @property
    def writes_table(self) -> bool:
        """Whether the format of rows is a table for people."""
        return self.settings.output in (None, "table")

    @property
    def writes_text(self) -> bool:
        """Whether an answer that has a screen is written as text."""
        return self.settings.output in (None, "plain")

    def emit_rows(
        self, rows: Iterable[object], columns: Sequence[Column], plain: Plain | None = None, *, live: bool = False
    ) -> None:
        """Write records as they are produced, with bounded memory; default: a table of ``columns``. ``live``: see ``output.Style``."""
        from pulsar_admin.output import emit_records

        self._emit_asked(rows, replace(self._style(columns, plain), live=live), emit_records)

    @property
    def in_terminal(self) -> bool:
        """Whether the answer is for a person: stdout is a terminal, and no format is requested."""
        return self.settings.output is None and sys.stdout.isatty()

    def emit_table(self, rows: Iterable[object], columns: Sequence[Column], *, total: bool) -> None:
        """Write a table that is a part of a text, whatever the requested format."""
        from pulsar_admin.output import Style, emit_records

        emit_records(self.writer, rows, Style(None, self.settings.color, tuple(columns), total=total))

    def _emit_asked(self, rows: Iterable[object], style: Style, emit: Callable[[Writer, Any, Style], None]) -> None:
        """Write the queried rows with ``emit``."""
        from pulsar_admin.output import Counted, asked_of

        read = Counted(rows)
        asked = asked_of(read, style)
        shown = Counted(asked.rows)
        self._asked = True
        emit(self._output, shown, asked.style)
        if self.settings.fail_if and bool(shown.count) == (self.settings.fail_if == "any"):
            self.problems(1)
        if not (shown.count or self.settings.output in ("json", "jsonl", "csv")):
            self._empty = f"no row of {read.count:,} matches --where" if read.count else _EMPTY

    def check_asked(self) -> None:
        """After the command, raise UsageError for options on rows if it wrote no rows, and print a note about an empty
        list."""
        if not self._asked:
            self._refuse_asked()
        if self._empty and not self._went_wrong():  # else something was said already
            self.tell(self._empty)

    def take_top(self) -> int | None:
        """Return --top for a command that applies it itself to an answer without rows; raises UsageError for other row
        options."""
        query = self.settings.query
        if query is None or self.settings.output not in (None, "plain", "json"):
            return None
        if query.where or query.sort or query.columns:
            self._refuse_asked()
        self._asked = True
        self.settings = replace(self.settings, query=None)
        return query.top

    def problems(self, count: int) -> None:
        """Count problems found in the data: with any, the exit code is 1."""
        self._problems += count

    def counting(self, rows: Iterable[Row], problems: Callable[[Row], int]) -> Iterator[Row]:
        """Yield rows, counting the ``problems`` of each."""
        for row in rows:
            self.problems(problems(row))
            yield row

    def _went_wrong(self) -> bool:
        return bool(self._failed)

    def _refuse_asked(self) -> None:
        """Raise UsageError if an option on rows is given."""
        query = self.settings.query
        given = [("--total", self.settings.total), (f"--fail-if-{self.settings.fail_if}", self.settings.fail_if)]
        options = [*([query.options] if query is not None else ()), *(option for option, is_given in given if is_given)]
        if not options:
            return
        text = f"{', '.join(options)}: this command does not write a list of rows (with -o table it may)"
        raise click.UsageError(text, click.get_current_context())

    def _style(self, columns: Sequence[Column], plain: Plain | None) -> Style:
        from pulsar_admin.output import Style

        given = self.settings
        return Style(given.output, given.color, tuple(columns), plain, self.query, total=given.total)

    @property
    def query(self) -> Query | None:
        """The query on rows."""
        return self.settings.query

    @property
    def writer(self) -> Writer:
        """The writer for results other than rows; commands with a text form of their own write to it."""
        self._refuse_asked()
        return self._output

    @property
    def _output(self) -> Writer:
        if self._writer is None:
            from pulsar_admin.output import Writer

            self._writer = Writer(self._open_pager())
        return self._writer

    def _open_pager(self) -> TextIO | None:
        """Return the stream of the pager, if one is requested and stdout is a terminal; None: output goes to stdout."""
        if self.settings.pager is None or not sys.stdout.isatty():
            return None
        from pulsar_admin.output import Pager

        try:
            self._pager = Pager(self.settings.pager)
        except (OSError, ValueError, IndexError) as error:
            self.warn(f"--pager: cannot run {self.settings.pager!r}: {error}; set PAGER to an installed program")
            return None
        return self._pager.stream

    def page(self) -> None:
        """From now on show text that is longer than the terminal in the pager, if there is one."""
        from shutil import which

        if self.settings.pager is None and os.isatty(1) and which(default_pager().split()[0]):
            self.settings = replace(self.settings, pager=default_pager())

    def close_pager(self) -> None:
        """Wait until the user leaves the pager, if there is one."""
        if self._pager is not None:
            self._pager.close()
            self._pager = None

    def warn(self, text: str) -> None:
        """Warn on stderr; --quiet silences it."""
        self._say("warning", text)

    def note(self, text: str) -> None:
        """Print a note on stderr with --verbose."""
        if self.settings.verbose:
            self.tell(text)

    def tell(self, text: str) -> None:
        """Print a note on stderr; --quiet silences it."""
        self._say("note", text)

    def _say(self, kind: str, text: str) -> None:
        if self.settings.quiet or text in self._said:
            return
        self._said.add(text)
        from pulsar_admin.jsonify import dump_json
        from pulsar_admin.store.secrets import hide_secrets
        from pulsar_admin.visible import clean_text, wrapped, write_error

        text = typable(hide_secrets(text))
        as_json = self.writes_json
        if as_json:
            write_error(dump_json({kind: {"message": text}}, pretty=False))
        else:
            write_error(wrapped(f"{kind}: {clean_text(text)}"), colored=colors_text(self.settings.color))
