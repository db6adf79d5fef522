"""Entry logs and journals as files, without a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pulsar_admin.api.given import given_path
from store.reports.log_files import (
    LogRecord,
    LogSummary,
    LogVerdict,
    iter_log_records,
    log_paths,
    read_log_summary,
    verify_indexes,
    verify_log,
)


def log_files(path: Path | str) -> tuple[LogSummary, ...]:
    """Return what the name and header of the log PATH say, or of all logs and journals of a bookie's directory.

    Raises SourceNotFound, SourceChanged, EntryLogCorrupt.
    """
    return tuple(map(read_log_summary, log_paths(given_path("path", path))))


def log_records(path: Path | str, *, verify: bool = True) -> Iterator[LogRecord]:
    """Yield the records of one log or journal in file order, damaged bytes included; ``state`` is ``ok`` or what is wrong.

    VERIFY: their digests. Raises SourceNotFound, SourceChanged, EntryLogCorrupt.
    """
    for file in log_paths(given_path("path", path)):
        yield from iter_log_records(file, verify=verify)


def verify_logs(path: Path | str) -> tuple[LogVerdict, ...]:
    """Read the log PATH, or those of a bookie's directory and its ``.idx`` files, whole; return records, ``problems``, ``details`` of each.

    Raises SourceNotFound, SourceChanged, EntryLogCorrupt.
    """
    files = log_paths(given_path("path", path))
    return (*(verify_log(file, lambda size_bytes: None) for file in files), *verify_indexes(Path(path)))
