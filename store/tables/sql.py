"""SQL by DuckDB over tables whose rows are made when a statement reads them. Statements only read, and cannot name
files.

Allowed is one SELECT at a time (including ``WITH``, ``FROM``, ``VALUES``, ``DESCRIBE``, ``SUMMARIZE``, ``SHOW``), or
EXPLAIN of one. Allowed table functions are those of ``_FUNCTIONS``: others read files, change settings, or run
statements that are not checked.

A scan of such a table (``MadeTable``) reads only rows that may pass the filter, by known bounds of their columns. Arrow
decides that, in the way it skips fragments of a dataset; rows that it cannot exclude are read, and the filter is
evaluated for each.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, NoReturn, Protocol, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from msgspec import Struct
from pyarrow import fs

from pulsar_admin.store.db.blocks import LedgerSums
from pulsar_admin.store.db.clocks import block_max, block_min
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import BadSql, DiskFull, InvalidValue, LimitExceeded, NotFound, Refused, Unsupported
from pulsar_admin.store.model.ledgers import find_times, iter_blocks
from pulsar_admin.store.names import parse_owner, parse_topic
from pulsar_admin.store.scan.places import Part
from pulsar_admin.store.scan.schemas import TIME
from pulsar_admin.store.tables.split_sql import PARTS, ROWS, Config, Split, adds_up, connect, nodes_of, split_statement
from pulsar_admin.store.timespec import MAX_TIME_MS
from pulsar_admin.store.wording import counted

_COLUMNS = ("topic", "partitioned_topic")
_COMPARISONS = ("COMPARE_EQUAL", "COMPARE_NOTEQUAL", "COMPARE_IN", "COMPARE_NOT_IN")
_RENAMING = ("alias", "aliases", "column_name_alias")


@contextmanager
def open_database(tables: Tables, **how: Any) -> Iterator[Database]:  # Any: as Database takes it
    """Open a database over tables; larger data goes to a directory, which is removed at the end."""
    with TemporaryDirectory(prefix="pulsar-admin-") as spill, closing(Database(tables, spill=spill, **how)) as database:
        yield database


def check_topics(tree: Any) -> None:  # Any: JSON
    """Raise NotFound if a statement compares a column of topics with a short name, which no row has.

    If a statement names a column of its own ``topic``, that one is compared.
    """
    nodes = list(nodes_of(tree))
    if any(_lower(name) in _COLUMNS for node in nodes for key in _RENAMING for name in _listed(node.get(key))):
        return
    for node in nodes:
        sides = node.get("children") or [node.get("left") or {}, node.get("right") or {}]
        if node.get("type") in _COMPARISONS and any(map(_is_of_topics, sides)):
            for text in filter(None, map(_text_of, sides)):
                _check_name(text)


def _is_of_topics(side: dict[str, Any]) -> bool:  # Any: JSON
    return _lower((side.get("column_names") or [""])[-1]) in _COLUMNS


def _check_name(text: str) -> None:
    if "://" in text or text.count("/") != 2:
        return
    try:
        full = str(parse_topic(text))
    except InvalidValue:
        return
    raise NotFound(
        f"no row has the topic {text!r}: topics have their full names here", hint=f"write '{full}'", topic=full
    )


def _text_of(node: Any) -> str | None:  # Any: JSON
    """Return the text of a literal node, None for another node; DuckDB 1 and 2 serialize it differently."""
    if not isinstance(node, dict) or node.get("class") != "CONSTANT":
        return None
    found = (node.get("literal") or {}).get("text") or (node.get("value") or {}).get("value")
    return found if isinstance(found, str) else None


def _listed(value: Any) -> list[Any]:  # Any: JSON
    return value if isinstance(value, list) else [value]


def _lower(name: Any) -> str:  # Any: JSON
    return name.lower() if isinstance(name, str) else ""


ROWS_AT_ONCE = 2048
_T = TypeVar("_T")
_WORDS_MAX = 100
_BATCH_ROWS = 1 << 16
_FUNCTIONS = frozenset(
    [
        *("range", "generate_series", "unnest", "repeat", "repeat_row", "summary", "json_each", "json_tree"),
        *("histogram", "histogram_values", "pg_timezone_names", "icu_calendar_names", "pragma_version"),
        *("duckdb_columns", "duckdb_tables", "duckdb_views", "duckdb_functions", "duckdb_keywords", "duckdb_types"),
    ]
)
_EXPLAIN = re.compile(r"\s*explain(\s+analyze)?\s*(?=[\s(])(\((\s*format\s+\w+\s*|\s*analyze\s*|,)*\))?", re.I)
_SCHEMAS = re.compile(r"(describe|desc|summarize)\s+(schemas|\"schemas\")\s*;?$", re.I)  # DuckDB would list its own


class TopicsMeant(Struct, frozen=True):
    """Topics selected by a SQL condition on the column ``topic``; a table of this name lists the existing ones."""

    condition: str
    tables: Sequence[str]


class Tables(Protocol):
    """The tables that a database can query: ``StoreTables``, ``ExportedTables``."""

    errors: list[BaseException]
    """What scans raised, the first first."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the tables, apart from topics, namespaces and globs."""

    def find(self, name: str) -> MadeTable | TopicsMeant | None:
        """Return the table with a name, or the topics that it means; None for an unknown name."""

    def topics_like(self, begin: str, most: int) -> list[str]:
        """Return at most ``most`` names of topics that begin with a text."""


class Database:
    """An in-memory DuckDB. ``now_ms``: the result of ``now()`` and ``current_date``; ``zone``: for times without a
    zone, and for display.

    Data beyond ``memory_bytes`` goes to the directory ``spill``, which DuckDB creates and removes; without it such a
    statement fails.
    """

    def __init__(
        self, tables: Tables, *, now_ms: int, zone: str = "UTC", memory_bytes: int | None = None, spill: str = ""
    ) -> None:
        self._tables = tables
        self._known: dict[str, str] = {}  # by what DuckDB takes for the same name
        self._made: dict[str, MadeTable] = {}
        self._when = now_ms, zone
        self._config: Config = {"temp_directory": spill}
        if memory_bytes is not None:
            self._config["memory_limit"] = f"{memory_bytes}B"
        self._connection = connect(now_ms, zone, self._config)
        self._of_parts: duckdb.DuckDBPyConnection | None = None

    def close(self) -> None:
        """Close the database and drop its data."""
        self._connection.close()
        if self._of_parts is not None:
            self._of_parts.close()

    def forget_tables(self) -> None:
        """Drop the known tables, so that the next statement looks its tables up again."""
        for name in self._known.values():
            quoted = name.replace('"', '""')
            self._connection.execute(f'DROP VIEW "{quoted}"')
        self._known.clear()
        self._made.clear()

    def split(self, text: str) -> list[str]:
        """Return the statements in a text; raises BadSql for invalid SQL, Refused if one does more than read."""
        if not _is_unicode(text):
            raise BadSql("the statement is not UTF-8", hint="write it in UTF-8; other bytes as a blob: '\\xFF'::blob")
        try:
            statements = self._connection.extract_statements(text)
        except duckdb.Error as error:
            _raise(error)
        if not statements:
            raise BadSql(
                "there is no statement: the text is empty", hint="ask something: pulsar-admin sql 'show tables'"
            )
        for statement in statements:
            if statement.type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
                kind = statement.type.name.replace("_", " ")
                hint = _HOW_TO_PIVOT if kind == "MULTI" else _WHAT_IS_ALLOWED
                raise Refused(f"{kind}: a statement here may only read", hint=hint, statement=statement.query.strip())
        return [_SCHEMAS.sub(r"\1 FROM schemas", statement.query.strip()) for statement in statements]

    def only(self, text: str) -> str:
        """Return the single statement in a text; raises as ``split``, and InvalidValue for several."""
        statements = self.split(text)
        if len(statements) != 1:
            raise InvalidValue(f"{len(statements)} statements instead of one", hint="ask one after the other")
        return statements[0]

    def is_open(self, text: str) -> bool:
        """Whether a text may continue: no semicolon ends it, or the last one is inside a quoted text."""
        if not text.rstrip().endswith(";"):
            return True
        if not _is_unicode(text):
            return False
        try:
            self._connection.extract_statements(text)
        except duckdb.Error as error:
            return "unterminated" in str(error)
        return False

    def words(self, begin: str) -> list[str]:
        """Return candidates for completing a word: tables, topics, columns of tables queried before."""
        if "/" in begin:
            return self._tables.topics_like(begin, _WORDS_MAX)
        rows = self._connection.execute(
            "SELECT DISTINCT column_name FROM duckdb_columns() WHERE NOT internal"
        ).fetchall()
        return [*self._tables.names, *(str(row[0]) for row in rows)]

    def run(self, statement: str) -> Answer:
        """Run one statement of ``split``; its rows come as they are asked for. Raises BadSql, Refused, and the errors of scans."""
        try:
            connection, asked = self._added_up(statement)
            return Answer(self, self.waiting(lambda: connection.execute(asked)))
        except (duckdb.Error, RuntimeError) as error:
            self.fail(error)

    def schema(self, statement: str) -> pa.Schema:
        """Return the columns of one statement of ``split``, which is not run."""
        self._make_tables(statement)
        return self._query(self._connection, statement).limit(0).to_arrow_table().schema

    def batches(self, statement: str) -> Iterator[pa.RecordBatch]:
        """Run one statement of ``split``; yield its rows as they come."""
        try:
            connection, asked = self._added_up(statement)
            found = self.waiting(lambda: self._query(connection, asked).to_arrow_reader(_BATCH_ROWS))
            while (batch := self.waiting(lambda: next(found, None))) is not None:
                yield batch
        except (duckdb.Error, RuntimeError, pa.ArrowException) as error:
            self.fail(error)

    def _query(self, connection: duckdb.DuckDBPyConnection, statement: str) -> Any:  # Any: DuckDB's relation
        try:
            return connection.sql(statement)
        except (duckdb.Error, RuntimeError) as error:
            self.fail(error)

    def _added_up(self, statement: str) -> tuple[duckdb.DuckDBPyConnection, str]:
        """Return (connection, statement) for a statement's answer: those of its final part if it was split and its
        table's engine computed the partial results, else the connection over the tables and the statement itself."""
        tree = self._make_tables(statement)
        self._tables.errors.clear()
        adding = {name: one for name, table in self._made.items() if (one := table.adding()) is not None}
        for one in adding.values():
            one.is_unsplit = tree is not None and adds_up(tree)
        found = None if tree is None else tree["statements"][0]["node"].get("from_table")
        name = _lower(found["table_name"]) if found and found["type"] == "BASE_TABLE" else ""
        if tree is None or name not in adding:
            return self._connection, statement
        asked: list[tuple[Collection[str], Pruner]] = []

        def rows(columns: Collection[str], pruner: Pruner) -> Iterable[pa.RecordBatch]:
            asked.append((columns, pruner))
            return ()

        self._of_parts = self._of_parts or connect(*self._when, self._config)
        self._of_parts.register(ROWS, MadeTable(self._made[name].schema, rows, Lock(), []))
        with suppress(duckdb.Error):  # unchanged, the statement raises DuckDB's own error
            split = split_statement(self._of_parts, tree, self._connection.sql(statement), *self._when)
            if split is None:
                return self._connection, statement
            adding[name].is_unsplit = False
            asked.clear()
            self._of_parts.execute(split.partial).fetchall()
            if len(asked) == 1 and adding[name].add_up(*asked[0], split, partial(self._finish, split.finish)):
                return self._of_parts, split.finish
        return self._connection, statement

    def _finish(self, statement: str, parts: pa.Table) -> None:
        """Register the partial results as PARTS, and run the final statement once to raise its errors."""
        assert self._of_parts is not None
        self._of_parts.register(PARTS, parts)
        found = self._of_parts.sql(statement)
        self.waiting(lambda: deque(found.to_arrow_reader(_BATCH_ROWS), 0))

    def waiting(self, work: Callable[[], _T]) -> _T:
        """Return the result of ``work``, run in another thread: inside DuckDB, the main thread receives no Ctrl-C."""
        with ThreadPoolExecutor(1) as one:
            future = one.submit(work)
            try:
                return future.result()
            except KeyboardInterrupt:
                for connection in (self._connection, self._of_parts):
                    if connection is not None:
                        connection.interrupt()
                raise

    def fail(self, error: Exception) -> NoReturn:
        """Raise our error for an error of DuckDB."""
        if self._tables.errors:  # DuckDB's own message is a traceback
            raise self._tables.errors[0] from None
        _raise(error)

    def _make_tables(self, statement: str) -> dict[str, Any] | None:  # Any: JSON
        """Create the tables that a statement names, and return it as DuckDB parses it, None for EXPLAIN.

        Raises Refused for functions that do more than read, NotFound for short names.
        """
        match = _EXPLAIN.match(statement)
        text = statement[match.end() :] if match else statement
        tree = json.loads(self._connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()[0][0])
        if tree["error"]:
            raise BadSql(str(tree.get("error_message")), hint=_WHAT_IS_ALLOWED)
        check_topics(tree)
        named: dict[str, str] = {}
        for node in nodes_of(tree):
            if node.get("type") == "SHOW_REF" and not node.get("query"):
                self._make_all()
            elif node.get("type") == "TABLE_FUNCTION":
                name = str(node["function"]["function_name"])
                if name.lower().startswith("duckdb_"):
                    self._make_all()
                if name.lower() not in _FUNCTIONS:
                    raise Refused(
                        f"{name}(…): a statement here reads no files and calls only {', '.join(sorted(_FUNCTIONS))}"
                    )
            elif node.get("type") == "BASE_TABLE" and not node["schema_name"]:
                name = str(node["table_name"])
                if "/" in name and named.setdefault(name.lower(), name) != name:
                    hint = "ask messages where topic = …"
                    raise BadSql(
                        f"{name} and {named[name.lower()]}: names of tables differ by more than case", hint=hint
                    )
                self._make(name)
        return None if match else tree

    def _make_all(self) -> None:
        for name in self._tables.names:
            self._make(name)

    def _make(self, name: str) -> None:
        name = name.lower() if name.lower() in self._tables.names else name
        if self._known.get(name.lower()) == name:
            return
        table = self._tables.find(name)
        if isinstance(table, TopicsMeant):
            # One of the meant topics exists, with messages or without; system topics have none in tables.
            for known in table.tables:
                self._make(known)
            topics = (topic for known in table.tables for topic in self._topics(known, table.condition))
            if not any(not parse_owner(topic).is_system for topic in topics):
                return
            quoted = name.replace('"', '""')
            try:
                query = f"SELECT * FROM messages WHERE {table.condition}"
                self._connection.execute(f'CREATE OR REPLACE VIEW "{quoted}" AS {query}')
            except duckdb.Error as error:
                self.fail(error)
        elif table is not None:
            self._connection.register(name, table)
            self._made[name.lower()] = table
        if table is not None:
            self._known[name.lower()] = name

    def _topics(self, table: str, condition: str) -> Iterator[str]:
        try:
            found = self._connection.execute(f"SELECT DISTINCT topic FROM {table} WHERE {condition}")
            yield from (row[0] for row in iter(found.fetchone, None))
        except duckdb.Error as error:
            self.fail(error)


class Answer:
    """A statement's result, whose rows are read on iteration. ``names`` and ``types`` (DuckDB's): of columns."""

    def __init__(self, database: Database, result: Any) -> None:  # Any: DuckDB's connection
        self._database = database
        self._result = result
        described: Sequence[Any] = result.description or ()
        self.names = tuple(str(column[0]) for column in described)
        self.types = tuple(str(column[1]) for column in described)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:  # Any: a column's own type
        """Yield the rows; raises as ``Database.run``."""
        while True:
            try:
                rows = self._database.waiting(lambda: self._result.fetchmany(ROWS_AT_ONCE))
            except (duckdb.Error, RuntimeError) as error:
                self._database.fail(error)
            if not rows:
                return
            yield from rows


_WHAT_IS_A_TABLE = (
    'a topic is a table, in double quotes: "public/default/orders"; show tables lists the others; '
    "exported tables have topics and messages if `--messages` was given"
)
_HOW_TO_PIVOT = "PIVOT names its columns: select * from (pivot TABLE on COLUMN in ('a', 'b') using count(*))"
_WHAT_IS_ALLOWED = "write a SELECT, or WITH, FROM, VALUES, DESCRIBE, SUMMARIZE, SHOW TABLES, EXPLAIN"


def _is_unicode(text: str) -> bool:
    """Whether a text can be encoded as UTF-8: invalid bytes of a command line are surrogates in Python."""
    return not any(0xD800 <= ord(sign) <= 0xDFFF for sign in text)


def _raise(error: Exception) -> NoReturn:
    """Raise our error for an error of DuckDB."""
    text = str(error).strip()
    message, _, rest = text.partition("\n")
    if isinstance(error, duckdb.InterruptException) or message == "Query interrupted":  # of Ctrl-C, as a RuntimeError
        raise KeyboardInterrupt from None
    if isinstance(error, duckdb.OutOfMemoryException):
        raise LimitExceeded(message, hint="give --memory more, or ask for fewer columns and rows") from None
    if isinstance(error, duckdb.IOException):  # of what does not fit into memory: it opens no other file
        raise DiskFull(message, hint="free some space for temporary files, or give --memory more") from None
    if isinstance(error, duckdb.PermissionException):
        raise Refused(f"{message}; a statement here reads no files", hint=_WHAT_IS_ALLOWED) from None
    if isinstance(error, (duckdb.InternalException, duckdb.FatalException)):
        raise Unsupported(
            f"DuckDB {duckdb.__version__} failed: {message}", hint="write the question another way"
        ) from None
    if isinstance(error, duckdb.CatalogException) and message.startswith("Catalog Error: Table"):
        rest = re.sub(r"^Did you mean .*\n", "", rest)  # it knows no topics
        raise BadSql(message, hint=_WHAT_IS_A_TABLE, excerpt=rest.strip("\n")) from None
    hint = _WHAT_IS_A_TABLE if 'at or near "/"' in message else ""
    raise BadSql(message, hint=hint, excerpt=rest.strip("\n")) from None


_FORMAT = ds.ParquetFileFormat()  # of files that are never opened: a fragment's bounds are all that is looked at
_FILES = fs.LocalFileSystem()
_GROUP = 64


class Pruner:
    """Evaluates the filter of a scan (None: all rows) over known bounds of columns."""

    def __init__(self, schema: pa.Schema, condition: pc.Expression | None) -> None:
        self._schema = schema
        self.condition = condition
        self._text = "" if condition is None else str(condition)

    def names(self, *columns: str) -> bool:
        """Whether the filter may involve one of the columns; a text that only looks like a column's name counts as one."""
        return any(column in self._text for column in columns)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the filter may involve."""
        return frozenset(name for name in self._schema.names if self.names(name))

    def passing(self, bounds: Sequence[pc.Expression]) -> list[int]:
        """Return the indexes of the bounds within which a row may pass the filter."""
        if self.condition is None:
            return list(range(len(bounds)))
        fragments = [
            _FORMAT.make_fragment(str(place), _FILES, partition_expression=bound) for place, bound in enumerate(bounds)
        ]
        dataset = ds.FileSystemDataset(fragments, self._schema, _FORMAT, _FILES)
        return [int(fragment.path) for fragment in dataset.get_fragments(filter=self.condition)]

    def chosen(self, column: str, values: Sequence[str]) -> Iterator[str]:
        """Yield those of ``values``, ascending texts, that a column may have in a row that passes the filter."""
        if not self.names(column):
            yield from values
            return
        field = pc.field(column)
        groups = [values[low : low + _GROUP] for low in range(0, len(values), _GROUP)]
        for group in self.passing([(field >= group[0]) & (field <= group[-1]) for group in groups]):
            for place in self.passing([field == value for value in groups[group]]):
                yield groups[group][place]


def equal(column: str, value: int | str) -> pc.Expression:
    """Return the bound that a column has this value in every row."""
    return pc.field(column) == value


def between(column: str, low: int, high: int) -> pc.Expression:
    """Return the bound that a numeric column is from ``low`` to ``high`` (included) in every row."""
    return (pc.field(column) >= low) & (pc.field(column) <= high)


def _times_between(column: str, low_ms: int, high_ms: int) -> pc.Expression:
    """Return the bound that a column of times is ``low_ms`` to ``high_ms`` or null in every row; ``low_ms`` after
    ``high_ms``: always null.

    A time of a broken clock that no column can hold is null, so the bounds need not include it.
    """
    field = pc.field(column)
    if low_ms > high_ms:
        return field.is_null()
    low, high = (pa.scalar(min(max(time_ms, 0), MAX_TIME_MS) * 1000, TIME) for time_ms in (low_ms, high_ms))
    return ((field >= low) | field.is_null()) & ((field <= high) | field.is_null())


Rows = Callable[[Collection[str], Pruner], Iterable[pa.RecordBatch]]
"""What reads a table: batches with at least the columns named; rows that the pruner says cannot match may be left out."""


class Adding(Protocol):
    """A table whose engine can run a split statement. ``is_unsplit``: the statement looks splittable but is not."""

    is_unsplit: bool

    def add_up(
        self, columns: Collection[str], pruner: Pruner, split: Split, finish: Callable[[pa.Table], None]
    ) -> bool:
        """Call ``finish`` with the partial results of a split statement, over rows that may pass the filter; return
        False if the unsplit statement has to run instead."""


class MadeTable(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A table whose rows are read anew for each scan. ``lock``: scans of one snapshot take turns in all threads.

    ``errors``: exceptions of scans, which DuckDB would report as a text with a traceback. ``adding`` returns the table
    as one whose engine can run split statements, or None.
    """

    def __init__(
        self,
        schema: pa.Schema,
        rows: Rows,
        lock: Lock,
        errors: list[BaseException],
        adding: Callable[[], Adding | None] = lambda: None,
    ) -> None:
        # Not Dataset's own, which forbids it: nothing of Arrow's is in it, DuckDB looks at ``schema`` and ``scanner`` alone.
        self._schema = schema
        self._rows = rows
        self._lock = lock
        self._errors = errors
        self.adding = adding

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._schema

    def scanner(
        self, columns: list[str] | None = None, filter: pc.Expression | None = None, **_: Any
    ) -> _Scan:  # Any: Arrow's options
        """Return the rows that pass a filter, with these columns."""
        names = self._schema.names if columns is None else columns
        return _Scan(pa.schema([self._schema.field(name) for name in names]), self._batches(names, filter))

    def _batches(self, names: list[str], condition: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        pruner = Pruner(self._schema, condition)
        batches = iter(self._rows({*names} | pruner.columns, pruner))
        while (batch := self._next(batches)) is not None:
            chosen = batch if condition is None else batch.filter(condition)
            yield chosen.select(names)
            del batch, chosen  # not kept while the next is read

    def _next(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        with self._lock:
            try:
                return next(batches, None)
            except BaseException as error:
                self._errors.append(error)
                raise


class _Scan:
    """The scan that DuckDB requests; it reads the stream of batches once."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self._schema = schema
        self._batches = batches

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the batches as a stream."""
        return pa.RecordBatchReader.from_batches(self._schema, self._batches)


_TIMES = ("publish_time", "broker_time")


class Seen(Struct):
    """How much of a table's data its scans read; filters excluded the rest."""

    ledgers: int = 0
    read_ledgers: int = 0
    bytes: int = 0
    read_bytes: int = 0
    is_brought: bool = False  # a sum's rows came from other processes to be added up here

    def text(self, name: str) -> str:
        """Return a sentence on what was scanned of the table ``name``."""
        ledgers = f"{self.read_ledgers:,} of {counted(self.ledgers, 'ledger')}"
        return f"{name}: read {ledgers}, {self.read_bytes:,} of {counted(self.bytes, 'byte')}"

    def clear(self) -> None:
        """Reset the counts."""
        self.ledgers = self.read_ledgers = self.bytes = self.read_bytes = 0
        self.is_brought = False


def iter_wanted(
    txn: Txn, parts: Sequence[Part], topics: Sequence[pc.Expression], pruner: Pruner, seen: Seen
) -> Iterator[Part]:
    """Yield parts, ledger by ledger, or block by block if the filter involves columns known per block. ``topics``: of each part.

    ``seen`` is filled on the way.
    """
    rows = [find_times(txn, ledger_id) for ledger_id, _, _ in parts]
    sums = [None if row is None else row.sums for row in rows]
    del rows  # views of the map
    seen.ledgers += len(parts)
    seen.bytes += sum(found.payload_bytes for found in sums if found is not None)
    bounds = [topic & _bounds_of(part, found) for topic, part, found in zip(topics, parts, sums, strict=True)]
    in_blocks = pruner.names("entry_id", *_TIMES)
    for place in pruner.passing(bounds):
        found = sums[place]
        seen.read_ledgers += 1
        if in_blocks and found is not None:
            yield from _blocks(txn, parts[place], pruner, seen)
        else:
            seen.read_bytes += 0 if found is None else found.payload_bytes
            yield parts[place]


def _blocks(txn: Txn, part: Part, pruner: Pruner, seen: Seen) -> Iterator[Part]:
    """Yield the blocks of a part that may have a row, consecutive ones as one."""
    ledger_id, first, last = part
    ids, sizes, bounds = [], [], []
    for block in iter_blocks(txn, ledger_id, first):
        low, high = block.index_of(first), block.index_of(last + 1)
        if high > low:
            ids.append((block.entry_id(low), block.entry_id(high - 1)))
            sizes.append(block.header.payload_bytes)
            publish = _times_between("publish_time", block_min(block, "publish"), block_max(block, "publish"))
            broker = _times_between("broker_time", block_min(block, "broker"), block_max(block, "broker"))
            bounds.append(between("entry_id", *ids[-1]) & publish & broker)
    run: Part | None = None
    before = -2
    for place in pruner.passing(bounds):
        seen.read_bytes += sizes[place]
        if run is not None and place != before + 1:
            yield run
            run = None
        run = (ledger_id, ids[place][0] if run is None else run[1], ids[place][1])
        before = place
    if run is not None:
        yield run


def _bounds_of(part: Part, sums: LedgerSums | None) -> pc.Expression:
    """Return the bounds that hold for all rows of a ledger."""
    ledger_id, first, last = part
    bounds = equal("ledger_id", ledger_id) & between("entry_id", first, last)
    if sums is None:
        return bounds
    publish = _times_between("publish_time", sums.publish_min_ms, sums.publish_max_ms)
    return bounds & publish & _times_between("broker_time", sums.broker_min_ms, sums.broker_max_ms)
