"""What a store knows as columns: tables, SQL over them, data frames of Spark. Imports neither pyarrow nor pyspark before they are asked."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from pulsar_admin.api.given import given_flags, given_spark, given_text
from pulsar_admin.api.messages import Batches
from pulsar_admin.api.session import Session, Time

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from pulsar_admin.store.errors import StoreError
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.tables.sql import Database


class Columns:
    """The part of ``Store`` that gives rows as columns."""

    _session: Session

    def spark(self, session: SparkSession) -> SparkTables:
        """Return the store's messages and entries as data frames of a Spark SESSION, which reads the entry logs themselves."""

        return SparkTables(self._session, session)

    def table(self, name: str) -> Batches:
        """Return a table of what the store knows as Arrow batches: topics, ledgers, cursors, policies, schemas or nodes.

        Columns and names are those of the files that ``store export tables`` writes. Raises InvalidValue for another name.
        """

        return table_of(self._session, name)

    def sql(self, statement: str) -> Batches:
        """Return the rows of one SELECT as Arrow batches, by DuckDB; ``docs/howto/sql.md`` has its tables. Each iteration runs it anew.

        Raises BadSql, Refused for a statement that does more than read, MissingComponent.
        """

        return rows_of(self._session, given_text("statement", statement))


def table_of(session: Session, name: str) -> Batches:
    """Return the table NAME; raises InvalidValue."""
    from pulsar_admin.store.errors import InvalidValue
    from pulsar_admin.store.tables.rows import SMALL_TABLES, find_cluster_name, iter_table
    from pulsar_admin.store.tables.schemas import TABLES

    if name not in SMALL_TABLES:
        raise InvalidValue(f"there is no table {name!r}", hint=f"tables: {', '.join(SMALL_TABLES)}", table=name)

    def source(reader: EntryReader, problems: list[StoreError]) -> Generator[pa.RecordBatch, None, None]:
        yield from iter_table(reader, name, find_cluster_name(reader.txn), problems.append)

    return Batches(session, lambda: TABLES[name], source)


def rows_of(session: Session, statement: str) -> Batches:
    """Return the rows of one SELECT; raises BadSql, Refused, MissingComponent."""
    from pulsar_admin.store.errors import InvalidValue
    from pulsar_admin.store.extras import require

    require("duckdb", "sql")
    with session.reader() as reader, _opened(reader, []) as database:
        statements = database.split(statement)
        if len(statements) != 1:
            raise InvalidValue(f"{len(statements)} statements where one is wanted", hint="ask one after the other")
        schema = database.schema(statements[0])

    def source(reader: EntryReader, problems: list[StoreError]) -> Generator[pa.RecordBatch, None, None]:
        with _opened(reader, problems) as database:
            yield from database.batches(statements[0])

    return Batches(session, lambda: schema, source)


@contextmanager
def _opened(reader: EntryReader, problems: list[StoreError]) -> Iterator[Database]:
    """Open what asks the tables of a snapshot; what they could not read is added to PROBLEMS."""
    from pulsar_admin.store.tables.catalog import StoreTables
    from pulsar_admin.store.tables.rows import find_cluster_name
    from pulsar_admin.store.tables.sql import Database

    with TemporaryDirectory(prefix="pulsar-admin-") as spill:
        tables = StoreTables(reader, find_cluster_name(reader.txn))
        database = Database(tables, spill=spill)
        try:
            yield database
        finally:
            database.close()
            problems += tables.problems


_MESSAGE_IDS = ("ledger_id", "entry_id", "batch_index")
_ENTRY_IDS = ("ledger_id", "entry_id")


def register(spark: SparkSession) -> None:
    """Make the data source ``pulsar_entries`` known to SPARK, a session of any kind, whose executors get our packages if they have none.

    Filters are pushed down to it from then on. Raises MissingComponent, which names what the Python of the executors lacks; Refused for
    a session that was stopped.
    """
    from pulsar_admin.store.engine.spark import probe_worker
    from pulsar_admin.store.engine.spark_session import has_executors, is_stopped, ship_code
    from pulsar_admin.store.errors import Refused
    from pulsar_admin.store.scan import datasource

    given_spark(spark)
    if is_stopped(spark):
        raise Refused("the Spark session is stopped", hint="start another: SparkSession.builder.getOrCreate()")
    if has_executors(spark):
        worker = probe_worker(spark)
        if worker is not None and worker.lacking is not None:
            raise worker.lacking
        if worker is None or not worker.has_our_code:
            ship_code(spark)
    datasource.push_filters(spark)
    datasource.register(spark)


class SparkTables:
    """Messages and entries of topics as data frames (docs/howto/spark.md has their columns).

    Executors read the entry logs where the catalogue of the store names them: they must see the same paths. A name of a topic may be
    a glob (``acme/orders/*``) or a namespace; none means all but the system's. An entry that lies in a journal and in a log, or on
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
        """Return one row per message; SINCE and UNTIL choose entries by broker time where they carry one, else by publish time.

        COLUMNS: only these; PAYLOAD: also payloads; VALUE: also values, as JSON text or typed by the newest schema.
        """
        given_flags(payload=payload)
        options = {"level": "messages", "payload": str(payload).lower(), "value": value, **self._window(since, until)}
        return self._load(topics, columns, _MESSAGE_IDS, options)

    def entries(
        self, *topics: str, columns: Sequence[str] = (), since: Time | None = None, until: Time | None = None
    ) -> DataFrame:
        """Return one row an entry: ledger, times, sizes, digest."""
        return self._load(topics, columns, _ENTRY_IDS, {"level": "entries", **self._window(since, until)})

    def _window(self, since: Time | None, until: Time | None) -> dict[str, str]:
        times = {"startTime": since, "endTime": until}
        return {name: str(self._session.time_ms(time)) for name, time in times.items() if time is not None}

    def _load(
        self, topics: Sequence[str], columns: Sequence[str], ids: Sequence[str], options: dict[str, str]
    ) -> DataFrame:
        from pulsar_admin.store.db.files import iter_logs

        root = self._session.path.absolute()
        with self._session.read() as txn:
            paths = [str(log.locate(root)) for log in iter_logs(txn)]
        if columns:
            options["columns"] = ",".join(dict.fromkeys([*columns, *ids]))
        options |= {"path": ",".join(paths), "store": str(root), "topics": ",".join(topics)}
        frame = self._spark.read.format("pulsar_entries").options(**options).load().dropDuplicates([*ids])
        return frame.select(*columns) if columns else frame
