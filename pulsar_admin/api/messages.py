"""Messages of topics: searching them, reading them as Arrow columns, by SQL or with Spark, and writing them to files.

Imports pyarrow and pyspark only when columns are requested.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack

from pulsar_admin import arguments
from pulsar_admin.api.session import Session
from pulsar_admin.arguments import Checked, Clock, Count, Duration, Place, Time
from pulsar_admin.jsonify import dump_json
from pulsar_admin.later import later, laters
from pulsar_admin.store.db.clocks import check_clock
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.dump.messages import COLUMNS, MessageQuery, MessageRecord, SelectedMessages, Shown
from pulsar_admin.store.dump.options import DumpOptions, Level
from pulsar_admin.store.errors import InvalidValue, StoreError
from pulsar_admin.store.extras import require
from pulsar_admin.store.model.messages import MessageRow, Window
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.resources import find_cluster_name
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Profile, TopicName, parse_topics
from pulsar_admin.store.wording import bracketed, counted, listed, schema_html

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from pulsar_admin.store.dump import job as dumping
    from pulsar_admin.store.reports import timeline as timelines
    from pulsar_admin.store.scan import datasource, reducing
    from pulsar_admin.store.scan import messages as scan_messages
    from pulsar_admin.store.search import skew as skews
    from pulsar_admin.store.tables import catalog, rows, schemas
else:
    dumping = later("pulsar_admin.store.dump.job")
    timelines = later("pulsar_admin.store.reports.timeline")
    datasource, scan_messages, reducing = laters("pulsar_admin.store.scan", "datasource messages reducing")
    skews = later("pulsar_admin.store.search.skew")
    catalog, rows, schemas = laters("pulsar_admin.store.tables", "catalog rows schemas")


Item = TypeVar("Item")
Found = TypeVar("Found")
BatchSource = Callable[[EntryReader, list[StoreError]], Generator[Item, None, None]]
"""What reads items of one snapshot, and notes what it could not read."""


class Batches(Checked):
    """Rows with the columns of ``schema``, read during iteration, a batch at a time.

    Each iteration reads a snapshot of its own. Unreadable data is listed in ``problems`` of the last iteration, with a
    PartialData warning.
    """

    def __init__(self, session: Session, schema: Callable[[], pa.Schema], source: BatchSource[pa.RecordBatch]) -> None:
        self._session = session
        self._schema = schema
        self._source = source
        self.problems: tuple[StoreError, ...] = ()

    def __repr__(self) -> str:
        return bracketed(f"rows of {listed(self.schema.names, 5)}")

    def _repr_html_(self) -> str:
        """Return the columns, for a notebook: nothing is read before it is iterated over."""
        types = ((field.name, str(field.type)) for field in self.schema)
        return schema_html(f"{self!r}; to_pandas() reads them", types)

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._schema()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield Arrow record batches of some thousand rows, one in memory at a time. Raises as the method that returned them."""
        return self._read(self._source)

    def rows(self) -> Iterator[dict[str, Any]]:  # Any: each column's own type
        """Yield the rows as dictionaries, times as datetimes in UTC, properties as a dictionary."""
        for batch in self:
            yield from batch.to_pylist(maps_as_pydicts="lossy")

    def to_arrow(self) -> pa.Table:
        """Return all of them as one Arrow table."""
        import pyarrow as pa

        batches = [*self]
        return pa.Table.from_batches(batches, batches[0].schema if batches else self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """Return all of them as a pandas DataFrame; times are ``datetime64[us, UTC]``, properties dictionaries. Raises MissingComponent."""
        require("pandas", "to_pandas", instead="take to_arrow()")
        frame: pd.DataFrame = self.to_arrow().to_pandas(maps_as_pydicts="lossy")
        return frame

    def _read(self, source: BatchSource[Item]) -> Iterator[Item]:
        problems: list[StoreError] = []
        try:
            with self._session.scan(problems) as reader, closing(source(reader, problems)) as batches:
                yield from batches
        finally:
            self.problems = tuple(problems)


Choose = Callable[[Txn], Iterable[TopicName]]
"""Names topics of a snapshot."""


class Messages(Batches):
    """Messages of a topic, as one of its methods selected them; they are read during iteration, a batch at a time.

    Columns are those of ``schema``: ids and sizes integers, times ``timestamp[us, UTC]`` (null if absent), ``key`` and ``producer``
    strings, ``properties`` a map, ``payload``, ``sha1`` and ``ordering_key`` bytes. ``value`` has the type of the topic's schema, a record
    the fields of all its versions; JSON text if topics have different schemas. Each iteration reads a snapshot of its own. Unreadable
    messages are left out, listed in ``problems`` of the last iteration, and give a PartialData warning.
    """

    def __init__(self, session: Session, names: Choose, query: MessageQuery, where: str = "") -> None:
        super().__init__(session, self._read_schema, lambda *how: self._noted(*how).batches())
        self._names = names
        self._query = query
        self._where = where

    def __repr__(self) -> str:
        asked = {name: getattr(self._query, name) for name in ("subscription", "limit", "keys")}
        words = [f"{name}={value!r}" for name, value in asked.items() if value not in (None, ())]
        return bracketed(f"messages of {', '.join((self._where, *words))}: {listed(self._query.columns, 5)}")

    def rows(self) -> Iterator[dict[str, Any]]:  # Any: each column's own type
        """Yield rows as dictionaries: times as datetimes in UTC (None if absent), bytes as bytes, values by their schema, records
        as dictionaries. A few messages without values are read without pyarrow.
        """
        return self._read_by(SelectedMessages.rows)

    def records(self) -> Iterator[MessageRecord]:
        """Yield the same as ``rows``, as objects with an attribute for each column."""
        return (MessageRecord(**row) for row in self.rows())

    def json_rows(self) -> Iterator[MessageRow]:
        """Yield objects with the fields that ``topics read -o json`` shows: times in ms, bytes in base64, values as in JSON.

        Of the columns only ``payload``, ``value`` and ``marker_type`` matter, and are None unless requested. A few
        messages are read without pyarrow.
        """
        return self._read_by(SelectedMessages.json_rows)

    def json_lines(self) -> Iterator[str]:
        """Yield ``json_rows`` as JSON lines, in pieces of text with many lines, or with a part of a long one."""
        return self._read_by(lambda selected: selected.json_lines(partial(dump_json, pretty=False)))

    def as_admin_shows(self) -> Iterator[Shown]:
        """Yield them one by one, with topic and value, as upstream's admin client shows them: see ``store.model.messages``."""
        return self._read_by(SelectedMessages.as_admin_shows)

    def _read_by(self, form: Callable[[SelectedMessages], Generator[Item, None, None]]) -> Iterator[Item]:
        return self._read(lambda reader, problems: form(self._noted(reader, problems)))

    def _noted(self, reader: EntryReader, problems: list[StoreError]) -> SelectedMessages:
        """Return the messages, with a warning if a position lies beyond all ledgers."""
        selected = self._selected(reader, problems)
        self._session.warn(selected.outside())
        return selected

    def _selected(self, reader: EntryReader, problems: list[StoreError]) -> SelectedMessages:
        names = [*dict.fromkeys(self._names(reader.txn))]
        return SelectedMessages(self._query, reader, names, self._session.each, problems)

    def _read_schema(self) -> pa.Schema:
        with self._session.reader() as reader:
            return self._selected(reader, []).schema()


def messages_of(session: Session, names: Choose, query: MessageQuery, where: str = "topics") -> Messages:
    """Return the messages of topics, which a ``repr`` calls ``where``, one topic after the other; raises InvalidValue."""
    for what, value in (("subscription", query.subscription), ("key", query.window.key)):
        if value is not None:
            arguments.given_text(what, value)
    query.check()
    return Messages(session, names, query, where)


def chosen_columns(columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns, by default the usual ones."""
    return COLUMNS if columns is None else tuple(columns)


Most = int | None
"""How many messages at most; None: all. The query checks it."""


class WantedMessages(TypedDict, total=False):
    """Keywords of ``search``; a message must satisfy all.

    ``keys``: one of them; ``properties``: name → value, None for any. ``texts`` (one of them) and ``regex`` (RE2) are searched in the
    payload, with ``in_value`` also in the decoded value, with ``ignore_case`` in any case. ``json_paths``: all must hold in the decoded
    value, as ``$.order.id=42``. Times, positions, ``limit``, ``columns`` and ``uncommitted`` are those of ``Topic.messages``.
    """

    keys: Collection[str]
    key_prefix: str | None
    properties: Mapping[str, str | None]
    producer: str | None
    sequence_id: Count | None
    texts: Collection[str]
    regex: str | None
    ignore_case: bool
    in_value: bool
    json_paths: Collection[str]
    since: Time | None
    until: Time | None
    start: Place
    end: Place
    clock: Clock
    limit: Most
    columns: Sequence[str] | None
    uncommitted: bool


def _window(session: Session, wanted: Mapping[str, Any]) -> Window:  # Any: what callers give
    """Return the times and positions among keywords."""
    bounds = (wanted.get(name) for name in ("since", "until", "start", "end"))
    return session.window(*bounds, clock=wanted.get("clock", "auto"))


def search_of(session: Session, names: Choose, wanted: WantedMessages, where: str = "topics") -> Messages:
    """Return the messages of topics that match the search; raises InvalidValue, also for an unknown keyword."""
    arguments.check_keywords(wanted, WantedMessages)
    query = MessageQuery(
        _window(session, wanted),
        chosen_columns(wanted.get("columns")),
        limit=wanted.get("limit"),
        uncommitted=wanted.get("uncommitted", False),
        match=scan_messages.match_of(wanted),
    )
    return messages_of(session, names, query, where)


def each_of_topics(
    session: Session,
    names: Sequence[TopicName],
    ask: Callable[[EntryReader, Sequence[Topic]], reducing.OfTopics[Found]],
    unread: Callable[[Found], tuple[int, int]],
) -> Iterator[Found]:
    """Yield the result of ``ask`` for each topic; an engine reads all topics in one job.

    ``unread``: how many of its entries are in no imported file, and how many are damaged. Raises TopicNotFound.
    """

    def find(name: TopicName) -> Found:
        found = every.find(name)
        missing, damaged = unread(found)
        if missing:  # no problem of the data
            session.warn([f"{name}: {counted(missing, 'entry is', 'entries are')} in no imported file"])
        if damaged:
            session.partial([f"{name}: {counted(damaged, 'entry is', 'entries are')} damaged and skipped"])
        return found

    with session.scan() as reader:
        every = reducing.AskedTogether(reader, names if reader.engine is not None else (), ask)
        yield from session.each(names, find)


def skews_of(
    session: Session, names: Sequence[TopicName], tolerance: Duration, clock: Literal["publish", "broker"]
) -> Iterator[skews.TopicSkew]:
    """Yield ``Topic.skew`` of each topic."""
    options = skews.SkewOptions(check_clock(clock), arguments.duration_ms(tolerance), session.now_ms)
    return each_of_topics(
        session, names, partial(skews.SkewOfTopics, options=options), attrgetter("missing", "unreadable")
    )


def timelines_of(
    session: Session, names: Sequence[TopicName], options: timelines.TimelineOptions
) -> Iterator[timelines.Timeline]:
    """Yield the amounts of each topic by time of arrival; raises TopicNotFound, LimitExceeded."""
    ask = partial(timelines.TimelineOfTopics, options=options)
    return each_of_topics(session, names, ask, attrgetter("missing_entries", "unreadable_entries"))


class Columns(Checked):
    """The part of ``Store`` that gives rows as columns."""

    _session: Session

    def spark(self, session: SparkSession) -> SparkTables:
        """Return the store's messages and entries as data frames of a Spark session, which reads the entry logs itself."""
        return SparkTables(self._session, session)

    def table(self, name: str) -> Batches:
        """Return one of the store's tables as Arrow batches: topics, ledgers, cursors, policies, schemas or nodes.

        Columns and names are those of the files that ``store export tables`` writes. Raises InvalidValue for another name.
        """
        if name not in rows.SMALL_TABLES:
            raise InvalidValue(
                f"there is no table {name!r}", hint=f"tables: {', '.join(rows.SMALL_TABLES)}", table=name
            )

        def source(reader: EntryReader, problems: list[StoreError]) -> Generator[pa.RecordBatch, None, None]:
            yield from rows.iter_table(reader, name, find_cluster_name(reader.txn), problems.append)

        return Batches(self._session, lambda: schemas.TABLES[name], source)

    def sql(self, statement: str) -> Batches:
        """Return the rows of one SELECT as Arrow batches, by DuckDB; ``docs/howto/sql.md`` has its tables. Each iteration runs it again.

        Raises BadSql, Refused for a statement that does more than read, InvalidValue for several, MissingComponent.
        """
        require("duckdb", "sql")
        with self._session.reader() as reader, catalog.open_sql(reader, [], self._session.now_ms) as database:
            only = database.only(statement)
            schema = database.schema(only)

        def source(reader: EntryReader, problems: list[StoreError]) -> Generator[pa.RecordBatch, None, None]:
            with catalog.open_sql(reader, problems, self._session.now_ms) as database:
                yield from database.batches(only)

        return Batches(self._session, lambda: schema, source)


@arguments.checked
def register(spark: SparkSession) -> None:
    """Register the data source ``pulsar_entries`` with a Spark session of any kind, filters pushed down to it.

    Executors without our packages get them. Raises MissingComponent, which names what the executors' Python lacks;
    Refused for a stopped session.
    """
    datasource.offer(spark)


class SparkTables(Checked):
    """Messages and entries of topics as data frames (docs/howto/spark.md has their columns).

    Executors read the entry logs at the paths in the store, so they must see the same paths. A topic name may be a glob
    (``acme/orders/*``) or a namespace; without a name, all but system topics are read. An entry in a journal and in a log, or on
    two bookies, is one row. Raises SourceNotFound, MissingComponent.
    """

    def __init__(self, session: Session, spark: SparkSession) -> None:
        register(spark)
        self._session = session
        self._spark = spark

    def messages(
        self,
        *topics: str,
        columns: Sequence[str] = (),
        payload: bool = False,
        value: Literal["none", "json", "typed"] = "none",
        since: Time | None = None,
        until: Time | None = None,
    ) -> DataFrame:
        """Return one row per message; ``since`` and ``until`` select entries by broker time, by publish time if they have none.

        ``columns`` restricts the columns; ``payload`` adds payloads; ``value`` adds values, as JSON text or typed by the newest schema.
        """
        return self._load("messages", topics, columns, since, until, payload=str(payload).lower(), value=value)

    def entries(
        self, *topics: str, columns: Sequence[str] = (), since: Time | None = None, until: Time | None = None
    ) -> DataFrame:
        """Return one row per entry: ledger, times, sizes, digest."""
        return self._load("entries", topics, columns, since, until)

    def _load(
        self, level: Level, topics: Sequence[str], columns: Sequence[str], *times: Time | None, **options: str
    ) -> DataFrame:
        bounds = zip(("startTime", "endTime"), times, strict=True)
        options |= {name: str(self._session.time_ms(time)) for name, time in bounds if time is not None}
        return self._session.ask(datasource.frame_of, self._spark, level, topics, columns, options)


Format = Literal["parquet", "jsonl"]


class DumpWanted(TypedDict, total=False):
    """Keywords of ``dump``: topics that match ``pattern``; messages, or by ``level`` entries as exact bytes for ``load``.

    Times from ``since`` (included) to ``until`` (excluded) on ``clock``, positions from ``start`` to ``end`` (both included). ``payload``,
    ``value`` and ``redact`` concern messages; so does ``columns``, which takes names and types of another tool, decoded values included,
    as bytes with ``payload``. ``stripped`` writes entries without broker metadata, as a client receives them.
    """

    pattern: str | None
    level: Level
    since: Time | None
    until: Time | None
    start: Place | None
    end: Place | None
    clock: Literal["auto", "publish", "broker"]
    payload: bool
    value: bool
    redact: bool
    columns: Profile | None
    stripped: bool


class Dumps(Checked):
    """The part of ``Store`` that writes topics as files and lines; all methods raise InvalidValue, TopicNotFound.

    Unreadable data and broken ledgers are left out, with a PartialData warning.
    """

    _session: Session

    def dump(
        self, directory: Path | str, *topics: str, form: Format = "parquet", **wanted: Unpack[DumpWanted]
    ) -> dumping.DumpReport:
        """Write messages or entries of topics (default: all) into files of a new directory; ``DumpWanted`` has the selection.

        Files are split by topic and by day on the clock. Raises AlreadyExists, DiskFull.
        """
        with self._dumping(topics, wanted) as (reader, listed, options):
            report, problems = dumping.dump_directory(reader, listed, Path(directory), form, options)
        self._session.partial(problems)
        return report

    def dump_lines(self, *topics: str, **wanted: Unpack[DumpWanted]) -> Iterator[str]:
        """Yield what ``dump`` writes as JSON lines, in pieces of text with many lines, or with a part of a long one."""
        dumped = dumping.Dumped()
        with self._dumping(topics, wanted) as (reader, listed, options):
            yield from dumping.dump_text(reader, listed, options, dumped)
        self._session.partial(dumped.problems)

    def dump_size(self, *topics: str, **wanted: Unpack[DumpWanted]) -> dumping.DumpSize:
        """Return how much ``dump`` reads: topics, entries, messages, bytes between the positions, ignoring times."""
        options = _options(self._session, wanted)
        with self._session.reader() as reader:
            return dumping.preview_dump(reader, self._listed(reader, topics, wanted), options)

    @contextmanager
    def _dumping(
        self, topics: Sequence[str], wanted: DumpWanted
    ) -> Iterator[tuple[EntryReader, list[Topic], DumpOptions]]:
        options = _options(self._session, wanted)
        with self._session.reader() as reader:
            listed = self._listed(reader, topics, wanted)
            size_bytes = dumping.preview_dump(reader, listed, options).bytes
            with self._session.scanning(reader, size_bytes, "dump") as scanning:
                yield scanning, listed, options

    def _listed(self, reader: EntryReader, topics: Sequence[str], wanted: DumpWanted) -> list[Topic]:
        return list(self._session.read_topics(reader, parse_topics(topics, wanted.get("pattern"))))


def _options(session: Session, wanted: Mapping[str, Any]) -> DumpOptions:  # Any: what callers give
    arguments.check_keywords(wanted, DumpWanted)
    check_clock(wanted.get("clock", "auto"))
    given = {name: value for name, value in wanted.items() if name in DumpOptions.__struct_fields__}
    return DumpOptions(window=_window(session, wanted), profile=wanted.get("columns"), **given)
