"""The ``pulsar_entries`` data source: the slices and operations of this package as partitions and columns of Spark.

Executors read entry logs only, never LMDB. Works with a classic session and with Spark Connect.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from store.scan.message_rows import MESSAGE_SCHEMA, ReadMessages
from store.scan.operations import ENTRY_SCHEMA, Operation, ReadEntries, ScanOptions
from store.scan.slices import Cut, FileRange, plan_slices
from store.scan.sources import source_files
from store.timespec import parse_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _Partition(InputPartition):
    """One slice."""

    def __init__(self, piece: FileRange) -> None:
        super().__init__(piece)


class PulsarEntries(DataSource):
    """``spark.read.format("pulsar_entries").option("path", "…/*.log").load()``; options: docs/howto/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "pulsar_entries"

    def schema(self) -> StructType:
        return from_arrow_schema(self._operation().schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self._operation(), self._pieces())

    def _operation(self) -> ReadEntries | ReadMessages:
        level = self.options.get("level", "entries")
        if level not in ("entries", "messages"):
            raise ValueError(f"pulsar_entries: level is {level!r}; there are entries and messages")
        names = (ENTRY_SCHEMA if level == "entries" else MESSAGE_SCHEMA).names
        columns = tuple(name.strip() for name in self.options.get("columns", "").split(",") if name.strip())
        if set(columns) - set(names):
            raise ValueError(f"pulsar_entries: no column {sorted(set(columns) - set(names))}; there are {names}")
        if level == "messages":
            return ReadMessages(self._scan_options(), columns, _is_set(self.options.get("payload", "false")))
        return ReadEntries(self._scan_options(), columns)

    def _scan_options(self) -> ScanOptions:
        topics = {int(ledger): topic for ledger, topic in json.loads(self.options.get("topics", "{}")).items()}
        return ScanOptions(
            verify=_is_set(self.options.get("checksums", "true")),
            topics=topics,
            only_topics=bool(topics),
            ledgers=tuple(int(ledger) for ledger in self.options.get("ledgers", "").split(",") if ledger.strip()),
            start_ms=_milliseconds(self.options.get("startTime")),
            end_ms=_milliseconds(self.options.get("endTime")),
        )

    def _pieces(self) -> list[FileRange]:
        if "path" not in self.options:
            raise ValueError(
                'pulsar_entries: name entry logs with .option("path", "/pulsar/data/bookkeeper/current/*.log")'
            )
        return plan_slices(
            source_files(self.options["path"]), Cut(int(self.options.get("sliceBytes", Cut().slice_bytes)))
        )


class _Reader(DataSourceReader):
    def __init__(self, operation: Operation, pieces: Sequence[FileRange]) -> None:
        self._operation = operation
        self._pieces = pieces

    def partitions(self) -> Sequence[InputPartition]:
        return [_Partition(piece) for piece in self._pieces]

    def read(self, partition: InputPartition) -> Iterator[Any]:  # Any: pyspark's stub allows tuples or Arrow batches
        yield from self._operation.run(partition.value)


def _is_set(text: str) -> bool:
    return text.strip().lower() not in ("false", "0", "no")


def _milliseconds(text: str | None) -> int | None:
    """Return a time as every command takes it (``2026-11-21``, ``@1795253000``), or epoch milliseconds, in ms."""
    if text is None or text.strip().lstrip("-").isdigit():
        return None if text is None else int(text)
    return parse_time(text, now_ms=int(time.time() * 1000), tz=UTC)


def register(session: SparkSession) -> None:
    """Make ``pulsar_entries`` known to SESSION."""
    session.dataSource.register(PulsarEntries)
