"""``spark.readStream.format("pulsar_entries")``: entry logs and journals that grow, as a stream of micro-batches.

Source: ``pyspark.sql.datasource.DataSourceStreamReader`` and ``pyspark.sql.streaming.python_streaming_source_runner`` of Spark 4.3. The
driver's part runs in one Python process a query, ``read`` on the executors. What comes next is for ``store.scan.following`` to say.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from socket import gethostname
from typing import Any, TypeVar

from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from pulsar_admin.store.engine.secrets import hide_secrets
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.engine.spark_session import hide_traceback
from pulsar_admin.store.errors import InvalidValue, StoreError
from pulsar_admin.store.scan.files import Problem
from pulsar_admin.store.scan.following import Followed, Follower, Limit
from pulsar_admin.store.scan.message_rows import ReadMessages
from pulsar_admin.store.scan.offsets import FIRST, Listed, Offset
from pulsar_admin.store.scan.operations import ReadEntries
from pulsar_admin.store.scan.source_options import paths_of
from pulsar_admin.store.scan.sources import absolute_path, shown_path

MAX_FILES = 1000
"""``maxFilesPerTrigger`` where nothing else is said: an offset names each file that its batch read."""
_TRIES = 3
_T = TypeVar("_T")


def stream_reader(operation: ReadEntries | ReadMessages, values: Mapping[str, Any]) -> EntryStreamReader:
    """Return the reader that the options VALUES ask for; raises InvalidValue."""
    files, size_bytes = values["maxFilesPerTrigger"], values["maxBytesPerTrigger"]
    if files and size_bytes:
        raise InvalidValue("maxFilesPerTrigger and maxBytesPerTrigger exclude each other", hint="give one of them")
    if values["topics"] and not values["topics"].startswith("{"):
        raise InvalidValue(
            "a stream cannot be of topics: no store knows the ledgers that they will have",
            hint="give option store alone, and filter by column topic",
        )
    followed = Followed(
        paths_of(values),
        fails=values["failOnDataLoss"],
        verify=values["checksums"],
        slice_bytes=values["sliceBytes"],
        recursive=values["recursiveFileLookup"],
        needs_logs=not values["ignoreCorruptFiles"],
    )
    if values["store"]:  # which knows the topics of ledgers so far, and no more than that
        operation = replace(operation, options=replace(operation.options, only_topics=False))
    return EntryStreamReader(
        operation, followed, ReadMaxBytes(size_bytes) if size_bytes else ReadMaxFiles(files or MAX_FILES)
    )


class RefusedStream(DataSourceStreamReader):
    """Raises ERROR when it is first asked: what ``streamReader`` raises, Spark 4.3 tells as an UnboundLocalError of its own."""

    def __init__(self, error: StoreError) -> None:
        self._error = error

    def getDefaultReadLimit(self) -> ReadLimit:
        return in_one_line(self._refuse)

    def read(self, partition: InputPartition) -> Iterator[Any]:  # Any: as pyspark's
        raise AssertionError("it has no partitions")

    def _refuse(self) -> ReadLimit:
        raise self._error


class _Task(InputPartition):
    """Pieces of files that one task reads."""

    def __init__(self, pieces: tuple[FileRange, ...]) -> None:
        super().__init__(pieces)


class EntryStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is FOLLOWED, in batches of LIMIT."""

    def __init__(self, operation: ReadEntries | ReadMessages, followed: Followed, limit: ReadLimit) -> None:
        self._operation = operation
        self._followed = followed
        self._limit = limit
        self._follower: Follower | None = None
        self._there: list[Listed] | None = None

    def __getstate__(self) -> dict[str, Any]:  # Any: pickle's protocol
        # Executors need to read only.
        return {**self.__dict__, "_follower": None, "_there": None}

    def initialOffset(self) -> Offset:
        return FIRST

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._limit

    def prepareForTriggerAvailableNow(self) -> None:
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
        return [_Task(tuple(replace(piece, path=absolute_path(piece.path)) for piece in pieces)) for pieces in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:  # Any: pyspark's stub allows tuples or Arrow batches
        for piece in partition.value or ():
            problems: list[Problem] = []
            rows = self._operation.run(piece, problems)
            while (batch := in_one_line(lambda rows=rows: next(rows, None))) is not None:  # type: ignore[misc]
                yield batch
            log_damage(piece.path, problems)

    def _ask(self, question: Callable[[Follower], _T]) -> _T:
        """Return the answer to QUESTION; what is asked of a file that is deleted meanwhile is asked once more."""
        follower = self._follower = self._follower or Follower(self._followed)
        for _ in range(_TRIES):
            try:
                return in_one_line(lambda: question(follower), passing=FileNotFoundError)
            except FileNotFoundError:
                continue
        return in_one_line(lambda: question(follower))


# -- source errors -----------------------------------------------------------------------------------------------------
# What is wrong with what the data source reads: one line of the error that Spark raises, or of a task's log.


_SHOWN = 20
_log = logging.getLogger("pulsar_entries")


def log_damage(path: str, problems: Sequence[Problem]) -> None:
    """Say in the task's log which bytes of the file at PATH are no good records."""
    path = shown_path(path)
    for problem in problems[:_SHOWN]:
        _log.warning("%s @ %#x: %d bytes: %s", path, problem.offset, problem.length_bytes, problem.reason)
    if len(problems) > _SHOWN:
        _log.warning("%s: %d more places are damaged", path, len(problems) - _SHOWN)


def in_one_line(work: Callable[[], _T], *, passing: type[OSError] | tuple[()] = ()) -> _T:
    """Return what WORK returns; what is wrong with an option or a file becomes one line of the error that Spark raises.

    PASSING: an error that the caller deals with.
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
