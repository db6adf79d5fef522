"""``sql``: queries on a store's tables and topics, run by DuckDB."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from pulsar_admin.commands.topics.moving import read_text
from pulsar_admin.context import FEW_MESSAGES, App, Lines, Result, Shown
from pulsar_admin.options import command, gather, picture_option, plot_option
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.errors import (
    BadSql,
    EntryCorrupt,
    LimitExceeded,
    MissingComponent,
    NotFound,
    Refused,
    SourceBusy,
    StoreNotFound,
)
from pulsar_admin.store.extras import require
from pulsar_admin.store.model.reader import EntryReader

if TYPE_CHECKING:
    from pulsar_admin.columns import Column
    from pulsar_admin.plot import Chart
    from pulsar_admin.sql_rows import Row
    from pulsar_admin.store.tables.catalog import ExportedTables, StoreTables
    from pulsar_admin.store.tables.sql import Answer, Database

TERMINAL_ROWS = 500


class AnswerOptions(Struct, frozen=True):
    """The options for showing results."""

    plot: bool
    png: Path | None
    svg: Path | None


@command(
    "sql",
    examples=[
        '"select topic, count(*) from messages group by topic order by 2 desc limit 5"',
        "'select value.item, sum(value.qty) from \"public/default/avro\" group by 1'",
        "\"select producer, max(publish_time) from messages where topic like '%/orders/%' group by 1\" -o csv",
    ],
    elsewhere=["", "-f questions.sql -o jsonl", "< questions.sql"],
    output="The rows of each statement. Instants are ISO 8601, bytes are hex; decimals with more than 15 digits, NaN and Infinity are "
    "text. Duplicate column names get a suffix (_1).",
    errors=[StoreNotFound, NotFound, BadSql, Refused, SourceBusy, EntryCorrupt, LimitExceeded, MissingComponent],
    uses=["spark", "tables", "tz"],
)
@click.argument("statement", required=False)
@click.option("-f", "--file", type=click.Path(path_type=Path, dir_okay=False), help="Statements from this file.")
@plot_option("Plot the result: labels from the first column, numbers from the others.")
@picture_option("png")
@picture_option("svg")
@gather(AnswerOptions)
def sql(app: App, options: AnswerOptions, statement: str | None, file: Path | None) -> Iterator[Shown]:
    """Query the store in SQL: a topic is a table, values are columns, and data that a condition rules out is not read.

    The tables are messages, or a topic's name in double quotes; partitioned topics, namespaces and globs are tables
    too. Without STATEMENT, statements come from stdin, on a terminal one at a time, each ending with a semicolon.
    It is read-only.
    """
    if statement is not None and file is not None:
        raise click.UsageError("give a STATEMENT or --file, not both")
    require("duckdb", "sql")
    with _opened(app) as asked:
        if statement is None and file is None and sys.stdin.isatty():
            from pulsar_admin.sql_shell import run_shell

            run_shell(app, asked.database, lambda text: app.show_all(asked.answer_now(text, options)))
        else:
            yield from asked.answer(read_text(file or Path("-")) if statement is None else statement, options)


@contextmanager
def _opened(app: App) -> Iterator[OpenQuery]:
    """Open a database on one snapshot of the store; data beyond memory is in a temporary directory, removed at the end."""
    from pulsar_admin.store.tables.sql import open_database

    with _tables_of(app) as (tables, reader):
        zone, now_ms = getattr(app.settings.tz, "key", None) or "UTC", app.now_ms if reader else app.settings.now_ms
        with open_database(tables, now_ms=now_ms, zone=zone, memory_bytes=app.settings.memory_bytes) as database:
            yield OpenQuery(app, reader, tables, database)


@contextmanager
def _tables_of(app: App) -> Iterator[tuple[StoreTables | ExportedTables, EntryReader | None]]:
    """Open the store's tables and the reader of its snapshot, or the tables of --tables without a reader."""
    if app.settings.tables is not None:
        from pulsar_admin.store.tables.catalog import ExportedTables
        from pulsar_admin.store.tables.folder import Folder

        tables = ExportedTables(Folder.of(app.settings.tables), app.settings.cluster)
        app.tell_incomplete_tables(tables.incomplete)
        yield tables, None
        return
    from pulsar_admin.store.model.resources import find_cluster_name
    from pulsar_admin.store.tables.catalog import StoreTables

    with app.session.reader() as reader:
        yield StoreTables(lambda: app.session.asked or reader, find_cluster_name(reader.txn)), reader


class OpenQuery(Struct, frozen=True):
    """A database on the tables of a snapshot of the store, or on those of --tables, which have no reader."""

    app: App
    reader: EntryReader | None
    tables: StoreTables | ExportedTables
    database: Database

    def answer_now(self, text: str, options: AnswerOptions) -> Iterator[Shown]:
        """Run statements like ``answer``, on the present state of exported tables; a store's snapshot stays the same."""
        from pulsar_admin.store.tables.catalog import ExportedTables

        if isinstance(self.tables, ExportedTables) and self.tables.renew():
            self.database.forget_tables()
        return self.answer(text, options)

    def answer(self, text: str, options: AnswerOptions) -> Iterator[Shown]:
        """Run the statements of ``text`` and yield their rows."""
        for statement in self.database.split(text):
            self.tables.problems.clear()
            with self._scanning():
                rest = yield from _shown(self.app, self.database.run(statement), options)
            yield from rest  # after the scan's progress has ended, which would be drawn into the rows
            for name in self.tables.brought:
                self.app.tell(
                    f"{name}: this statement cannot be split, so its columns of all messages were added up in this process"
                )
            for line in self.tables.told():
                self.app.note(line)
            self.app.report(self.tables.problems)

    def _scanning(self) -> AbstractContextManager[object]:
        if self.reader is None:
            return nullcontext()
        size = sum(log.size_bytes for log in iter_logs(self.reader.txn))
        return self.app.scan(self.reader, size, "sql", unused=FEW_MESSAGES)


def _shown(app: App, answer: Answer, options: AnswerOptions) -> Generator[Shown, None, Iterator[Shown]]:
    """Yield rows as they come, or return an iterator of what to show once all needed rows are read."""
    from pulsar_admin.sql_rows import chart_of, columns_of, json_rows, unique_names

    names = unique_names(answer.names)
    rows = json_rows(names, answer, app.settings.tz)
    columns = columns_of(names, answer.types)
    if options.plot or options.png or options.svg:
        return _plotted(chart_of(names, rows), options)
    if sys.stdout.isatty() and app.writes_table and app.query is None:
        return _first(app, list(islice(rows, TERMINAL_ROWS + 1)), columns)
    yield Result(rows=rows, columns=columns)
    return iter(())


def _first(app: App, rows: list[Row], columns: list[Column]) -> Iterator[Shown]:
    yield Result(rows=rows[:TERMINAL_ROWS], columns=columns)
    if len(rows) > TERMINAL_ROWS:
        app.tell(f"the first {TERMINAL_ROWS} rows; add a limit, or take all with -o csv or -o jsonl")


def _plotted(chart: Chart, options: AnswerOptions) -> Iterator[Shown]:
    from pulsar_admin.plot import bar_chart, line_chart, save_charts

    save_charts((options.png, options.svg), [chart])
    if options.plot:
        yield Lines((bar_chart if chart.bars else line_chart)(chart).splitlines(), "PLOT")
