"""The ``pulsar_entries`` data source: the slices and operations of this package as partitions and columns of Spark.

Executors read only entry logs, never LMDB: the driver reads the ledgers' topics and schemas from the store once, and sends them along.
Works with a classic session and with Spark Connect.

``spark.readStream.format("pulsar_entries")`` gives entry logs and journals that grow as a stream of micro-batches. Source:
``pyspark.sql.datasource.DataSourceStreamReader`` and ``pyspark.sql.streaming.python_streaming_source_runner`` of Spark 4.3. The
driver's part runs in one Python process per query, ``read`` on the executors. ``store.scan.following`` decides what comes next.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from socket import gethostname
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pyarrow as pa
from msgspec.structs import replace
from pyspark.errors import PySparkException
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructField, StructType

from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.engine.operation import Operation
from pulsar_admin.store.engine.slices import Cut, FileRange, plan_slices
from pulsar_admin.store.engine.spark_session import hide_traceback, is_stopped
from pulsar_admin.store.errors import InvalidValue, Refused, StoreError, Unsupported
from pulsar_admin.store.model.messages import check_times
from pulsar_admin.store.scan import source_options
from pulsar_admin.store.scan.files import Problem
from pulsar_admin.store.scan.following import FIRST, Followed, Follower, FoundFile, Limit, Offset
from pulsar_admin.store.scan.ledgers_map import Files, wanted_files
from pulsar_admin.store.scan.operations import ReadEntries, ReadMessages, ScanOptions
from pulsar_admin.store.scan.schemas import ENTRY_SCHEMA, MESSAGE_SCHEMA
from pulsar_admin.store.scan.sources import absolute_path, source_files
from pulsar_admin.store.scan.typed_values import Values
from pulsar_admin.store.secrets import hide_secrets
from pulsar_admin.store.timespec import MAX_TIME_MS
from pulsar_admin.store.urls import shown_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import Filter

    from pulsar_admin.store.db.environment import Txn
    from pulsar_admin.store.scan.topic_reads import ReadTopicPieces, TopicPiece


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""The session setting, since Spark 4.1, without which a reader may not have ``pushFilters``."""
KNOWN = source_options.OPTIONS
_KEPT = "pulsar_entries"
_NO_LEDGER = (-1,)
_TIMES = {"publish_time": "publish_ms", "broker_time": "broker_ms"}
_VALUE = {"value", "value_error"}


class PulsarEntries(DataSource):
    """``spark.read.format("pulsar_entries").load("…/*.log")``; options: docs/howto/spark.md."""

    defaults: Mapping[str, str] = {}
    """What the session says of options that are not given, of reads with the Spark connector's options."""
    _known: ReadEntries | ReadMessages | None = None
    _topics: ReadTopicPieces | None = None

    @classmethod
    def name(cls) -> str:
        return "pulsar_entries"

    def schema(self) -> StructType:
        """Return the columns. For a table of a catalogue they also carry its options: Spark passes those only once."""
        schema = _in_one_line(lambda: from_arrow_schema(self._columns()))
        if not source_options.is_catalogue(self.options):
            return schema
        first, *others = schema.fields
        kept = {_KEPT: source_options.table_options(self.options)}
        return StructType([StructField(first.name, first.dataType, first.nullable, kept), *others])

    def reader(self, schema: StructType) -> DataSourceReader:
        return _in_one_line(lambda: self._topic_reader(schema) or _Reader(*self._read(schema)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            values = read_stream_options(self.options)
            return stream_reader(self._asked(schema, values), values)
        except StoreError as error:
            return _RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return _in_one_line(_refuse_writing)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return _in_one_line(_refuse_writing)

    def _read(self, schema: StructType) -> tuple[ReadEntries | ReadMessages, Files, dict[str, Any]]:
        """Return the operation that reads the columns of a schema (the user's or ours), its files, and the options."""
        values = source_options.read_options({**_kept_options(schema), **self.options}, KNOWN)
        source_options.refuse_stream_options(values)
        return self._asked(schema, values), _files(values), values

    def _asked(self, schema: StructType, values: dict[str, Any]) -> ReadEntries | ReadMessages:
        operation = self._known
        if operation is None or schema.names != operation.schema.names:
            operation = _operation(values, tuple(schema.names))
        _check_columns(schema, from_arrow_schema(operation.schema))
        return operation

    def _topic_reader(self, schema: StructType) -> _TopicReader | None:
        """Return the reader of topics where the options are those of the Spark connector, else None."""
        given = {**_kept_options(schema), **self.options}
        if not source_options.is_connector_read(given):
            return None
        from pulsar_admin.store.scan.topic_reads import plan_topic_pieces, topics_operation  # few reads are such

        read = source_options.read_connector_options(given, self.defaults, warns=self._topics is None)
        operation = self._topics or topics_operation(read)
        if schema.names != operation.schema.names:
            _check_names(schema.names, operation.schema.names)
            operation = topics_operation(read, tuple(schema.names))
        _check_columns(schema, from_arrow_schema(operation.schema))
        return _TopicReader(operation, plan_topic_pieces(read))

    def _columns(self) -> pa.Schema:
        if not source_options.is_connector_read(self.options):
            return self._operation().schema
        from pulsar_admin.store.scan.topic_reads import topics_operation  # as above

        self._topics = topics_operation(source_options.read_connector_options(self.options, self.defaults))
        return self._topics.schema

    def _operation(self) -> ReadEntries | ReadMessages:
        if self._known is None:  # once: it travels with this object, and opens the store
            values = source_options.read_options(self.options, KNOWN)
            self._known = _operation(values, values["columns"])
        return self._known


def _refuse_writing() -> NoReturn:
    raise Unsupported("it only reads", hint="write to a table or files of another format")


def read_stream_options(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a stream; raises InvalidValue, also for those of the Spark connector."""
    if source_options.is_connector_read(given):
        raise InvalidValue(
            f"option {', '.join(source_options.connector_names(given))}: the Pulsar connector's options work only with batch reads here",
            hint="a stream follows files: name them with path, and leave the connector's options out",
        )
    return source_options.read_options(given, KNOWN)


def _kept_options(schema: StructType) -> dict[str, str]:
    """Return the options that a table was created with."""
    kept = next((field.metadata[_KEPT] for field in schema.fields if _KEPT in field.metadata), "{}")
    return dict(json.loads(kept))


def _operation(values: dict[str, Any], columns: tuple[str, ...]) -> ReadEntries | ReadMessages:
    level, redact = values["level"], values["redact"]
    _check_names(columns, (ENTRY_SCHEMA if level == "entries" else MESSAGE_SCHEMA).names)
    if values["value"] == "none" and _VALUE & set(columns):
        raise InvalidValue("option value is none, and columns name values", hint="set value to json or typed")
    form = values["value"] or ("json" if _VALUE & set(columns) else "none")
    if form != "none" and (level == "entries" or not values["store"]):
        raise InvalidValue("values need level messages, and a store (option store) for their schemas")
    if form == "typed" and redact:
        raise InvalidValue("redact shows no typed values", hint="there is value json")
    if level == "entries" and values["payload"]:
        raise InvalidValue("payloads need level messages", hint="set option level to messages, or leave payload out")
    scan, schemas = _scan_options(values, schemas=form != "none")
    if level == "entries":
        return ReadEntries(scan, columns)
    return ReadMessages(
        scan, columns, values["payload"], None if form == "none" else Values(schemas, form == "typed"), redact
    )


def _check_names(columns: Iterable[str], names: Sequence[str]) -> None:
    seen = set()
    for column in columns:
        if column in seen:
            raise InvalidValue(f"column {column} is named twice", hint="name it once")
        seen.add(column)
        if column not in names:
            raise InvalidValue(f"there is no column {column}", hint=source_options.did_you_mean(column, names))


def _check_columns(asked: StructType, found: StructType) -> None:
    """Raise InvalidValue if a column of the user's schema has another type than the data source gives it."""
    for ask, have in zip(asked.fields, found.fields, strict=True):
        if ask.dataType != have.dataType:
            raise InvalidValue(
                f"column {ask.name} is {have.dataType.simpleString()}, not {ask.dataType.simpleString()}",
                hint=f"name it {have.dataType.simpleString()} in the schema, and cast it afterwards",
            )
        if not ask.nullable:
            raise InvalidValue(f"column {ask.name} may be null", hint="leave NOT NULL out of the schema")


def _scan_options(values: dict[str, Any], *, schemas: bool) -> tuple[ScanOptions, dict[str, Any]]:
    named, store = values["topics"], values["store"]
    written_with: dict[str, Any] = {}
    if named.startswith("{"):
        try:
            topics = {int(ledger): str(topic) for ledger, topic in json.loads(named).items()}
        except ValueError:
            raise InvalidValue(
                "option topics: is no JSON object of ledger id → topic",
                hint="store.scan.operations.topics_option makes it",
            ) from None
    elif store:
        from pulsar_admin.store.scan.operations import read_topics  # which imports LMDB: executors have no need of it

        names = tuple(name.strip() for name in named.split(",") if name.strip())
        topics, written_with = read_topics(store, names, schemas=schemas)
    elif named:
        raise InvalidValue("names of topics need a store (option store) that knows their ledgers")
    else:
        topics = {}
    check_times(values["startTime"], values["endTime"])
    only_topics = bool(topics) or bool(store)
    ledgers = tuple(ledger for ledger in values["ledgers"] if ledger in topics or not only_topics)
    options = ScanOptions(
        verify=values["checksums"],
        topics=topics,
        only_topics=only_topics,
        ledgers=ledgers or (_NO_LEDGER if values["ledgers"] else ()),
        start_ms=values["startTime"],
        end_ms=values["endTime"],
        needs_logs=not values["ignoreCorruptFiles"],
    )
    return options, written_with


def _files(values: dict[str, Any]) -> Files:
    files = source_files(source_options.paths_of(values), recursive=values["recursiveFileLookup"])
    return [(absolute_path(path), file_id, size) for path, file_id, size in files]


class _TaskReader(DataSourceReader):
    """Runs an operation on the slice of a task."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation

    def read(self, partition: InputPartition) -> Iterator[Any]:  # Any: pyspark's stub allows tuples or Arrow batches
        if partition.value is None:  # Spark makes one where we return none
            return
        damage: list[Problem] = []
        batches = _in_one_line(lambda: self._run(partition.value, damage))
        while (batch := _in_one_line(lambda: next(batches, None))) is not None:
            yield batch
        _log_damage(partition.value.path, damage)

    def _run(self, piece: FileRange, damage: list[Problem]) -> Iterator[pa.RecordBatch]:
        return self._operation.run(piece)


class _TopicReader(_TaskReader):
    """Reads topics as a consumer does."""

    def __init__(self, operation: ReadTopicPieces, pieces: Sequence[TopicPiece]) -> None:
        super().__init__(operation)
        self._pieces = pieces

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pieces": []}  # it travels with every task, which has a piece of its own

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(piece) for piece in self._pieces]


class _Reader(_TaskReader):
    _operation: ReadEntries | ReadMessages

    def __init__(self, operation: ReadEntries | ReadMessages, files: Files, values: dict[str, Any]) -> None:
        super().__init__(operation)
        self._files = files
        self._store = "" if values["topics"].startswith("{") else values["store"]
        self._cut = Cut(values["sliceBytes"])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": []}  # it travels with every task, which has a slice of its own

    def _run(self, piece: FileRange, damage: list[Problem]) -> Iterator[pa.RecordBatch]:
        return self._operation.run(piece, damage)

    def partitions(self) -> Sequence[InputPartition]:
        """Return one slice per task; no task for files in which no row can pass the filters."""
        files = _in_one_line(lambda: wanted_files(self._files, self._operation.options, self._store))
        return [InputPartition(piece) for piece in plan_slices(files, self._cut)]


class FilteredEntries(PulsarEntries):
    """The data source where the session lets filters be pushed down."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return _in_one_line(lambda: self._topic_reader(schema) or _FilteringReader(*self._read(schema)))


class _FilteringReader(_Reader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow the read by filters on ledgers, topics and times of entries; return the filters that Spark must still apply."""
        done = {"ledger_id"}  # columns that are never null
        left = []
        for condition in filters:
            options = self._narrowed(_column_of(condition), type(condition).__name__, getattr(condition, "value", None))
            if options is None:
                left.append(condition)
            else:
                self._operation = replace(self._operation, options=options)
                done.add(_column_of(condition))
        return [one for one in left if type(one).__name__ != "IsNotNull" or _column_of(one) not in done]

    def _narrowed(self, column: str, kind: str, value: Any) -> ScanOptions | None:  # Any: a literal
        """Return options that read exactly the rows for which the comparison with a column is true; None if only Spark can apply it."""
        options = self._operation.options
        if value is not None and kind in ("EqualTo", "EqualNullSafe", "In"):
            wanted = set(value) if kind == "In" else {value}
            if column == "ledger_id":
                return _only(options, wanted - {None})
            if column == "topic":
                return _only(options, {ledger for ledger, topic in options.topics.items() if topic in wanted})
        if column in _TIMES and kind in _BOUNDS and isinstance(value, datetime) and value.tzinfo is not None:
            name = _TIMES[column]
            # 0 is a time of entries, and none of messages.
            nothing = (0 if isinstance(self._operation, ReadEntries) else 1, MAX_TIME_MS)
            low, high = options.between.get(name, nothing)
            least, most = _BOUNDS[kind]((value - _EPOCH) // timedelta(microseconds=1))
            return replace(options, between={**options.between, name: (max(low, least), min(high, most))})
        return None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BOUNDS: dict[str, Callable[[int], tuple[int, int]]] = {  # µs → the ms for which it is true, both included
    "GreaterThan": lambda at: (at // 1000 + 1, MAX_TIME_MS),
    "GreaterThanOrEqual": lambda at: (-(-at // 1000), MAX_TIME_MS),
    "LessThan": lambda at: (0, -(-at // 1000) - 1),
    "LessThanOrEqual": lambda at: (0, at // 1000),
    "EqualTo": lambda at: (-(-at // 1000), at // 1000),
}


def _column_of(condition: Filter) -> str:
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    return attribute[0] if len(attribute) == 1 else ""


def _only(options: ScanOptions, ledgers: set[int]) -> ScanOptions:
    """Return the options restricted to these ledgers."""
    if options.ledgers or options.only_topics:
        ledgers &= set(options.ledgers or options.topics)
    return replace(options, ledgers=tuple(sorted(ledgers)) or _NO_LEDGER)


def offer(session: SparkSession) -> None:
    """Send our packages to executors that lack them, and register ``pulsar_entries`` in a session, with filters pushed down; if the
    session refuses that setting, Spark applies the filters. Raises MissingComponent, and Refused for a stopped session.
    """
    from pulsar_admin.store.engine.workers import prepare_workers  # executors, which import this module, send nothing

    if is_stopped(session):
        raise Refused("the Spark session is stopped", hint="start another: SparkSession.builder.getOrCreate()")
    prepare_workers(session)
    with suppress(PySparkException):
        session.conf.set(PUSHDOWN, "true")
    register(session)


def register(session: SparkSession) -> None:
    """Register ``pulsar_entries`` in a session; filters are pushed down if the session is set to (``PUSHDOWN``)."""
    pushed = session.conf.get(PUSHDOWN, "false") == "true" and hasattr(DataSourceReader, "pushFilters")
    base = FilteredEntries if pushed else PulsarEntries
    said = {
        name.removeprefix(source_options.CONF).lower(): text
        for name, text in session.conf.getAll.items()
        if name.startswith(source_options.CONF)
    }
    session.dataSource.register(type(base.__name__, (base,), {"defaults": said}) if said else base)


def frame_of(
    txn: Txn,
    session: SparkSession,
    level: str,
    topics: Sequence[str],
    columns: Sequence[str],
    options: Mapping[str, str],
) -> DataFrame:
    """Return messages or entries of topics in a store, one row each, as a frame; ``columns``: none for all."""
    root = txn.store.path.absolute()
    ids = ["ledger_id", "entry_id", *(["batch_index"] if level == "messages" else [])]
    named = {"columns": ",".join(dict.fromkeys([*columns, *ids]))} if columns else {}
    paths = ",".join(log.place(root) for log in iter_logs(txn))
    named |= {"level": level, "path": paths, "store": str(root), "topics": ",".join(topics)}
    frame = session.read.format("pulsar_entries").options(**options, **named).load().dropDuplicates(ids)
    return frame.select(*columns) if columns else frame


MAX_FILES = 1000
"""``maxFilesPerTrigger`` where nothing else is said: an offset names each file that its batch read."""
_TRIES = 3
_T = TypeVar("_T")


def stream_reader(operation: ReadEntries | ReadMessages, values: Mapping[str, Any]) -> _EntryStreamReader:
    """Return the stream reader for the given options; raises InvalidValue."""
    files, size_bytes = values["maxFilesPerTrigger"], values["maxBytesPerTrigger"]
    if files and size_bytes:
        raise InvalidValue("maxFilesPerTrigger and maxBytesPerTrigger exclude each other", hint="give one of them")
    if values["topics"] and not values["topics"].startswith("{"):
        raise InvalidValue(
            "a stream cannot be of topics: no store knows the ledgers that they will have",
            hint="give option store alone, and filter by column topic",
        )
    followed = Followed(
        source_options.paths_of(values),
        fails=values["failOnDataLoss"],
        verify=values["checksums"],
        slice_bytes=values["sliceBytes"],
        recursive=values["recursiveFileLookup"],
        needs_logs=not values["ignoreCorruptFiles"],
    )
    if values["store"]:  # which knows the topics of ledgers so far, and no more than that
        operation = replace(operation, options=replace(operation.options, only_topics=False))
    return _EntryStreamReader(
        operation, followed, ReadMaxBytes(size_bytes) if size_bytes else ReadMaxFiles(files or MAX_FILES)
    )


class _RefusedStream(DataSourceStreamReader):
    """Raises its error at the first call: Spark 4.3 turns one in ``streamReader`` into an UnboundLocalError."""

    def __init__(self, error: StoreError) -> None:
        self._error = error

    def getDefaultReadLimit(self) -> ReadLimit:
        return _in_one_line(self._refuse)

    def read(self, partition: InputPartition) -> Iterator[Any]:  # Any: as pyspark's
        raise AssertionError("it has no partitions")

    def _refuse(self) -> ReadLimit:
        raise self._error


class _EntryStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads followed files, in batches of a limited size."""

    def __init__(self, operation: ReadEntries | ReadMessages, followed: Followed, limit: ReadLimit) -> None:
        self._operation = operation
        self._followed = followed
        self._limit = limit
        self._follower: Follower | None = None
        self._there: list[FoundFile] | None = None

    def __getstate__(self) -> dict[str, Any]:  # Any: pickle's protocol
        # Executors need to read only.
        return {**self.__dict__, "_follower": None, "_there": None}

    def initialOffset(self) -> Offset:
        return FIRST

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._limit

    def prepareForTriggerAvailableNow(self) -> None:
        # Spark calls this once, before the first batch: such a query ends with the files of that moment.
        self._there = self._ask(lambda follower: follower.files())

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        wanted = Limit()
        if isinstance(limit, ReadMaxFiles):
            wanted = Limit(files=limit.max_files)
        elif isinstance(limit, ReadMaxBytes):
            wanted = Limit(size_bytes=limit.max_bytes)
        elif not isinstance(limit, ReadAllAvailable):
            raise ValueError(f"pulsar_entries: a stream cannot be limited by {type(limit).__name__}")
        return self._ask(lambda follower: follower.latest(start, wanted, self._there))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        tasks = self._ask(lambda follower: follower.plan(start, end))
        # The driver's working directory is not the executors'.
        there = [tuple(replace(piece, path=absolute_path(piece.path)) for piece in pieces) for pieces in tasks]
        return [InputPartition(pieces) for pieces in there]

    def read(self, partition: InputPartition) -> Iterator[Any]:  # Any: pyspark's stub allows tuples or Arrow batches
        for piece in partition.value or ():
            problems: list[Problem] = []
            rows = self._operation.run(piece, problems)
            while (batch := _in_one_line(lambda rows=rows: next(rows, None))) is not None:  # type: ignore[misc]
                yield batch
            _log_damage(piece.path, problems)

    def _ask(self, question: Callable[[Follower], _T]) -> _T:
        """Return the result of a call; it is repeated once if a file was deleted meanwhile."""
        follower = self._follower = self._follower or Follower(self._followed)
        for _ in range(_TRIES):
            try:
                return _in_one_line(lambda: question(follower), passing=FileNotFoundError)
            except FileNotFoundError:
                continue
        return _in_one_line(lambda: question(follower))


# -- source errors -----------------------------------------------------------------------------------------------------
# Damage and errors of the data source: one line of the error that Spark raises, or of a task's log.


_SHOWN = 20
_log = logging.getLogger("pulsar_entries")


def _log_damage(path: str, problems: Sequence[Problem]) -> None:
    """Write to the task's log which bytes of a file are not good records."""
    path = shown_path(path)
    for problem in problems[:_SHOWN]:
        _log.warning("%s @ %#x: %d bytes: %s", path, problem.offset, problem.length_bytes, problem.reason)
    if len(problems) > _SHOWN:
        _log.warning("%s: %d more places are damaged", path, len(problems) - _SHOWN)


def _in_one_line(work: Callable[[], _T], *, passing: type[OSError] | tuple[()] = ()) -> _T:
    """Return the result of ``work``; errors of options and files become one line in the error that Spark raises.

    ``passing``: an error class that the caller handles.
    """
    try:
        return work()
    except passing:
        raise
    except StoreError as error:
        hint = error.hint.replace("with --store", "with the option store")  # a command's
        said = "; ".join(filter(None, [error.message, hint]))
    except OSError as error:
        said = f"{error.filename}: {error.strerror} (on {gethostname()})"
        if isinstance(error, FileNotFoundError | PermissionError):
            said += "; every machine that reads has to see it: name a path that they share, or a URL"
    hide_traceback()
    raise ValueError(f"pulsar_entries: {hide_secrets(said)}")
