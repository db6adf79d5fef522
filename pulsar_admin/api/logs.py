"""Entry logs and journals as files, without a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pulsar_admin.api.given import given_flags, given_path
from pulsar_admin.store.reports.log_files import (
    LogRecord,
    LogSummary,
    LogVerdict,
    iter_log_records,
    log_paths,
    read_log_summary,
    verify_indexes,
    verify_log,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pulsar_admin.api.session import Caller


def log_files(path: Path | str) -> tuple[LogSummary, ...]:
    """Return what the name and header of the log PATH say, or of all logs and journals of a bookie's directory.

    Raises SourceNotFound, SourceChanged, EntryLogCorrupt.
    """
    return tuple(map(read_log_summary, log_paths(given_path("path", path))))


def log_records(
    path: Path | str, *, verify: bool = True, jobs: int = 1, spark: SparkSession | None = None
) -> Iterator[LogRecord]:
    """Yield the records of one log or journal in file order, damaged bytes included; ``state`` is ``ok`` or what is wrong.

    VERIFY: their digests. JOBS and SPARK: as of ``open_store``. Raises SourceNotFound, SourceChanged, EntryLogCorrupt, InvalidValue.
    """
    from pulsar_admin.api.session import Caller  # here: logs need no store

    given_flags(verify=verify)
    return records_of(Caller(jobs=jobs, spark=spark), given_path("path", path), verify=verify)


def verify_logs(path: Path | str, *, jobs: int = 1, spark: SparkSession | None = None) -> tuple[LogVerdict, ...]:
    """Read the log PATH, or those of a bookie's directory and its ``.idx`` files, whole; return records, ``problems``, ``details`` of each.

    JOBS and SPARK: as of ``open_store``. Raises SourceNotFound, SourceChanged, EntryLogCorrupt, InvalidValue.
    """
    from pulsar_admin.api.session import Caller

    return tuple(verdicts_of(Caller(jobs=jobs, spark=spark), given_path("path", path)))


def records_of(caller: Caller, path: Path, *, verify: bool) -> Iterator[LogRecord]:
    """Yield the records of the logs at PATH for CALLER."""
    for file in log_paths(path):
        with caller.engine([], _size_of(file)) as engine:
            yield from iter_log_records(file, verify=verify, engine=engine)


def verdicts_of(caller: Caller, path: Path) -> Iterator[LogVerdict]:
    """Yield what is wrong with each of the logs at PATH, and with indexes beside them, for CALLER."""
    files = log_paths(path)
    total = sum(map(_size_of, files))
    with caller.engine([], total) as engine, caller.progress(total, "bytes", "verify") as advance:
        yield from (verify_log(file, advance, engine) for file in files)
        yield from verify_indexes(path)


def _size_of(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0
