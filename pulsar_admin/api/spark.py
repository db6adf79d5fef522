"""A store's messages and entries as data frames of Spark, read from the entry logs by the executors. Imports pyspark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pulsar_admin.api.given import given_flags, given_spark
from pulsar_admin.api.session import Session, Time
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.engine.spark_session import has_executors, is_stopped, ship_code
from pulsar_admin.store.engine.spark_workers import probe_worker
from pulsar_admin.store.errors import Refused
from pulsar_admin.store.scan import datasource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MESSAGE_IDS = ("ledger_id", "entry_id", "batch_index")
_ENTRY_IDS = ("ledger_id", "entry_id")


def register(spark: SparkSession) -> None:
    """Make the data source ``pulsar_entries`` known to SPARK, a session of any kind, whose executors get our packages if they have none.

    Filters are pushed down to it from then on. Raises MissingComponent, which names what the Python of the executors lacks; Refused for
    a session that was stopped.
    """
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
        root = self._session.path.absolute()
        with self._session.read() as txn:
            paths = [str(log.locate(root)) for log in iter_logs(txn)]
        if columns:
            options["columns"] = ",".join(dict.fromkeys([*columns, *ids]))
        options |= {"path": ",".join(paths), "store": str(root), "topics": ",".join(topics)}
        frame = self._spark.read.format("pulsar_entries").options(**options).load().dropDuplicates([*ids])
        return frame.select(*columns) if columns else frame
