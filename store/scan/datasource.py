"""The ``pulsar_entries`` data source: the slices and operations of this package as partitions and columns of Spark.

Executors read entry logs only, never LMDB: what a store knows, ledgers' topics and schemas, the driver reads once and sends along.
Works with a classic session and with Spark Connect.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from store.codec.given import parse_integer
from store.engine.slices import Cut, FileRange, plan_slices
from store.scan.message_rows import MESSAGE_SCHEMA, ReadMessages
from store.scan.operations import ENTRY_SCHEMA, ReadEntries, ScanOptions
from store.scan.sources import source_files
from store.scan.value_columns import Values
from store.timespec import MAX_TIME_MS, parse_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import Filter

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""The session setting, since Spark 4.1, without which a reader may not have ``pushFilters``."""
_NO_LEDGER = (-1,)
_TIMES = {"publish_time": "publish_ms", "broker_time": "broker_ms"}
_VALUE = {"value", "value_error"}


class _Partition(InputPartition):
    """One slice."""

    def __init__(self, piece: FileRange) -> None:
        super().__init__(piece)


class PulsarEntries(DataSource):
    """``spark.read.format("pulsar_entries").option("path", "…/*.log").load()``; options: docs/howto/spark.md."""

    _known: ReadEntries | ReadMessages | None = None

    @classmethod
    def name(cls) -> str:
        return "pulsar_entries"

    def schema(self) -> StructType:
        return from_arrow_schema(self._operation().schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self._operation(), self._pieces())

    def _operation(self) -> ReadEntries | ReadMessages:
        if self._known is None:  # once: it travels with this object, and opens the store
            self._known = self._read_options()
        return self._known

    def _read_options(self) -> ReadEntries | ReadMessages:
        level = self.options.get("level", "entries")
        if level not in ("entries", "messages"):
            raise ValueError(f"pulsar_entries: level is {level!r}; there are entries and messages")
        names = (ENTRY_SCHEMA if level == "entries" else MESSAGE_SCHEMA).names
        columns = _listed(self.options.get("columns", ""))
        if set(columns) - set(names):
            raise ValueError(f"pulsar_entries: no column {sorted(set(columns) - set(names))}; there are {names}")
        form = self.options.get("value", "json" if _VALUE & set(columns) else "none")
        if form not in ("none", "json", "typed"):
            raise ValueError(f"pulsar_entries: value is {form!r}; there are none, json and typed")
        if form != "none" and (level == "entries" or "store" not in self.options):
            raise ValueError("pulsar_entries: values need level messages, and a store (option store) for their schemas")
        if form == "typed" and _is_set(self.options.get("redact", "false")):
            raise ValueError("pulsar_entries: redact shows no typed values; there is json")
        scan, schemas = self._scan_options(schemas=form != "none")
        if level == "entries":
            return ReadEntries(scan, columns)
        values = None if form == "none" else Values(schemas, form == "typed")
        hidden = _is_set(self.options.get("redact", "false"))
        return ReadMessages(scan, columns, _is_set(self.options.get("payload", "false")), values, hidden)

    def _scan_options(self, *, schemas: bool) -> tuple[ScanOptions, dict[str, Any]]:
        named = self.options.get("topics", "")
        found: dict[str, Any] = {}
        if named.lstrip().startswith("{"):
            topics = {int(ledger): topic for ledger, topic in json.loads(named).items()}
        elif "store" in self.options:
            from store.scan.ledgertopics import read_topics  # which imports LMDB: executors have no need of it

            topics, found = read_topics(self.options["store"], _listed(named), schemas=schemas)
        elif named:
            raise ValueError("pulsar_entries: names of topics need a store (option store) that knows their ledgers")
        else:
            topics = {}
        options = ScanOptions(
            verify=_is_set(self.options.get("checksums", "true")),
            topics=topics,
            only_topics=bool(topics) or "store" in self.options,
            ledgers=tuple(int(ledger) for ledger in _listed(self.options.get("ledgers", ""))),
            start_ms=_milliseconds(self.options.get("startTime")),
            end_ms=_milliseconds(self.options.get("endTime")),
        )
        return options, found

    def _pieces(self) -> list[FileRange]:
        if "path" not in self.options:
            raise ValueError(
                'pulsar_entries: name entry logs with .option("path", "/pulsar/data/bookkeeper/current/*.log")'
            )
        return plan_slices(
            source_files(self.options["path"]), Cut(int(self.options.get("sliceBytes", Cut().slice_bytes)))
        )


class _Reader(DataSourceReader):
    def __init__(self, operation: ReadEntries | ReadMessages, pieces: Sequence[FileRange]) -> None:
        self._operation = operation
        self._pieces = pieces

    def partitions(self) -> Sequence[InputPartition]:
        return [_Partition(piece) for piece in self._pieces]

    def read(self, partition: InputPartition) -> Iterator[Any]:  # Any: pyspark's stub allows tuples or Arrow batches
        yield from self._operation.run(partition.value)


class FilteredEntries(PulsarEntries):
    """The data source where the session lets filters be pushed down."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return _FilteringReader(self._operation(), self._pieces())


class _FilteringReader(_Reader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Leave out entries that FILTERS on ledgers, topics and entries' times exclude; Spark applies all of them again."""
        options = self._operation.options
        for condition in filters:
            options = _narrowed(options, condition)
        self._operation = replace(self._operation, options=options)
        return filters


def _narrowed(options: ScanOptions, condition: Filter) -> ScanOptions:
    """Return OPTIONS without entries for which CONDITION is not true; with all of them where that is not known here."""
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    value = getattr(condition, "value", None)
    kind = type(condition).__name__
    name = attribute[0] if len(attribute) == 1 else ""
    if kind in ("EqualTo", "EqualNullSafe", "In") and value is not None:
        wanted = set(value) if kind == "In" else {value}
        if name == "ledger_id":
            return _only(options, {ledger for ledger in wanted if ledger is not None})
        if name == "topic" and None not in wanted:
            return _only(options, {ledger for ledger, topic in options.topics.items() if topic in wanted})
    if name in _TIMES and isinstance(value, datetime) and value.tzinfo is not None:
        at = int(value.timestamp() * 1000)
        low, high = options.between.get(_TIMES[name], (0, MAX_TIME_MS))
        if kind in ("GreaterThan", "GreaterThanOrEqual", "EqualTo"):
            low = max(low, at - 1)
        if kind in ("LessThan", "LessThanOrEqual", "EqualTo"):
            high = min(high, at + 1)
        return replace(options, between={**options.between, _TIMES[name]: (low, high)})
    return options


def _only(options: ScanOptions, ledgers: set[int]) -> ScanOptions:
    """Return OPTIONS with those of its ledgers alone that are in LEDGERS."""
    if options.ledgers or options.only_topics:
        ledgers &= set(options.ledgers or options.topics)
    return replace(options, ledgers=tuple(sorted(ledgers)) or _NO_LEDGER)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _is_set(text: str) -> bool:
    return text.strip().lower() not in ("false", "0", "no")


def _milliseconds(text: str | None) -> int | None:
    """Return a time as every command takes it (``2026-11-21``, ``@1795253000``), or epoch milliseconds, in ms."""
    if text is None:
        return None
    number = parse_integer(text.strip().removeprefix("-"))
    if number is not None:
        return -number if text.strip().startswith("-") else number
    return parse_time(text, now_ms=int(time.time() * 1000), tz=UTC)


def register(session: SparkSession) -> None:
    """Make ``pulsar_entries`` known to SESSION; filters are pushed down where it is set to (``PUSHDOWN``)."""
    pushed = session.conf.get(PUSHDOWN, "false") == "true" and hasattr(DataSourceReader, "pushFilters")
    session.dataSource.register(FilteredEntries if pushed else PulsarEntries)
