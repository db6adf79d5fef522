"""What bulk work does with a slice: the same functions on every engine, yielding bounded Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.codec import entrylog, journal
from pulsar_admin.store.codec.entrylog import HEADER_BYTES
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.errors import EntryLogCorrupt
from pulsar_admin.store.kernels import records as kernel
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan.arrow import column, nullable
from pulsar_admin.store.scan.files import FileScan, LedgerDigests, Problem, Slice
from pulsar_admin.store.scan.schemas import ENTRY_SCHEMA, FLAGS, INVERTED, TIME
from pulsar_admin.store.scan.sources import Source, is_url, open_source, read_bytes, shown_path
from pulsar_admin.store.timespec import MAX_TIME_MS

Records = np.ndarray[Any, np.dtype[np.void]]
_THERE = {"publish_ms": (kernel.UNFRAMED, 0), "broker_ms": (kernel.HAS_BROKER_TIME, kernel.HAS_BROKER_TIME)}
"""What flags say of an entry that has such a time."""


class ScanOptions(Struct, frozen=True):
    """How to scan. ``digests``: (sorted ledger ids, digest bytes) where known; ``topics``: ledger id → topic, also the filter
    when ``only_topics``; times in ms, end excluded, on the clock ``auto``; ``between``: column of times → ms, both included.

    ``needs_logs``: a file that is neither an entry log nor a journal is an error, not damage.
    """

    digests: LedgerDigests = field(default_factory=lambda: LedgerDigests.of({}))
    verify: bool = True
    topics: Mapping[int, str] = field(default_factory=dict)
    only_topics: bool = False
    ledgers: Sequence[int] = ()
    start_ms: int | None = None
    end_ms: int | None = None
    between: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    needs_logs: bool = False


def scan_records(piece: FileRange, options: ScanOptions, problems: list[Problem], source: Source) -> Iterator[Records]:
    """Yield the records of a slice, whose bytes are SOURCE, that pass the filters; damage goes to PROBLEMS.

    Raises EntryLogCorrupt, Unsupported for a file that is no log, as the options say.
    """
    limit = -1 if is_url(piece.path) else piece.limit  # of an object no more is fetched
    part = Slice(source.path, piece.kind, piece.start, min(piece.end, source.size_bytes), piece.seek, limit)
    wanted = np.array(sorted(options.ledgers or (options.topics if options.only_topics else ())), np.int64)
    is_log = piece.start > 0 or not options.needs_logs
    for batch in _scan(part, options, problems, source):
        is_log, chosen = True, batch
        if len(wanted) or options.only_topics:
            chosen = chosen[np.isin(chosen["ledger_id"], wanted)]
        if options.start_ms is not None or options.end_ms is not None:
            chosen = chosen[_in_time(chosen, options.start_ms, options.end_ms)]
        for name, (low, high) in options.between.items():
            chosen = chosen[_between(chosen, name, low, high)]
        if len(chosen):
            yield chosen
    if not is_log:
        check_is_log(shown_path(piece.path), piece.kind, read_bytes(source.path, 0, HEADER_BYTES))


def check_is_log(path: str, kind: FileKind, head: bytes) -> None:
    """Raise EntryLogCorrupt or Unsupported where HEAD, the first bytes of a file without a record, is not what a log begins with.

    Zeros, and a header that is cut, are those of a file that was just made.
    """
    is_journal = kind == FileKind.JOURNAL
    magic, what = (journal.MAGIC, "a journal") if is_journal else (entrylog.MAGIC, "an entry log")
    if not any(head) or (len(head) < HEADER_BYTES and head[: len(magic)] == magic[: len(head)]):
        return
    if head.startswith(magic):
        (journal if is_journal else entrylog).decode_header(head, path)
        return
    found, expected = head[: len(magic)].hex(), f"{magic.hex()} ({magic.decode()})"
    raise EntryLogCorrupt(
        f"{path} is not {what}: it starts with {found}, not {expected}, and no record is in it",
        hint="leave it out, or go on without it: option ignoreCorruptFiles=true",
        path=path,
    )


def _scan(part: Slice, options: ScanOptions, problems: list[Problem], source: Source) -> Iterator[Records]:
    """Yield all records of a slice; where its last one reaches over what was fetched, more is fetched."""
    last_offset = -1
    while True:
        scan = FileScan(part, options.digests, options.verify)
        for batch in scan.batches():
            fresh = batch[batch["offset"] > last_offset]
            if len(fresh):
                last_offset = int(fresh["offset"][-1])
                yield fresh
        nothing = part.seek and not scan.records and not scan.is_inside
        if source.end >= source.size_bytes or not (nothing or scan.torn or scan.next_offset >= source.end):
            problems += scan.problems
            return
        source.extend(part.end + 2 * (source.end - part.end))
        if not nothing:
            problems += [problem for problem in scan.problems if problem.offset < scan.resume_offset]
            part = replace(part, start=scan.resume_offset, seek=False)


def automatic_times(records: Records) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return each record's time on the automatic clock: broker time where there is one, else publish time."""
    return np.where(records["flags"] & kernel.HAS_BROKER_TIME != 0, records["broker_ms"], records["publish_ms"])


def _in_time(records: Records, start_ms: int | None, end_ms: int | None) -> np.ndarray[Any, np.dtype[np.bool_]]:
    times = automatic_times(records)
    inside: np.ndarray[Any, np.dtype[np.bool_]] = records["flags"] & kernel.UNFRAMED == 0
    if start_ms is not None:
        inside &= times >= start_ms
    if end_ms is not None:
        inside &= times < end_ms
    return inside


def _between(records: Records, name: str, low: int, high: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    flag, wanted = _THERE[name]
    inside: np.ndarray[Any, np.dtype[np.bool_]] = records["flags"] & flag == wanted
    return inside & (records[name] >= low) & (records[name] <= high)


class ReadEntries(Struct, frozen=True):
    """One row an entry; ``columns`` prunes (empty: all)."""

    options: ScanOptions = field(default_factory=ScanOptions)
    columns: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        names = self.columns or tuple(ENTRY_SCHEMA.names)
        return pa.schema([ENTRY_SCHEMA.field(name) for name in names])

    def run(self, piece: FileRange, damage: list[Problem] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the entries in file order; damage goes to DAMAGE."""
        schema = self.schema
        with open_source(piece) as source:
            for records in scan_records(piece, self.options, [] if damage is None else damage, source):
                columns = [self._column(name, records, piece) for name in schema.names]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _column(self, name: str, records: Records, piece: FileRange) -> pa.Array:
        if name == "path":
            return pa.array([shown_path(piece.path)]).take(pa.array(np.zeros(len(records), np.int32)))
        if name == "topic":
            return self._topics(records)
        return entry_column(name, records)

    def _topics(self, records: Records) -> pa.Array:
        ledgers, places = np.unique(records["ledger_id"], return_inverse=True)
        names = pa.array([self.options.topics.get(ledger_id) for ledger_id in ledgers.tolist()], pa.string())
        return names.take(pa.array(places))


def entry_column(name: str, records: Records) -> pa.Array:
    """Return the column NAME of ENTRY_SCHEMA, one that RECORDS alone tell."""
    if name in FLAGS:
        is_set = records["flags"] & FLAGS[name] != 0
        return column(~is_set if name in INVERTED else is_set)
    if name == "payload_bytes":
        return column(np.maximum(records["size"] - 32 - records["digest_bytes"], 0).astype(np.int32))
    if name in _TIME_COLUMNS:
        return _time_column(records, name)
    return column(records[name].astype(ENTRY_SCHEMA.field(name).type.to_pandas_dtype()))


_TIME_COLUMNS = {
    "publish_time": ("publish_ms", *_THERE["publish_ms"]),
    "broker_time": ("broker_ms", *_THERE["broker_ms"]),
    "deliver_at_time": ("deliver_at_ms", 0, 0),
}


def _time_column(records: Records, name: str) -> pa.Array:
    source, flag, wanted = _TIME_COLUMNS[name]
    values = records[source]
    there = (records["flags"] & flag) == wanted if flag else values != 0
    there &= (values >= 0) & (values <= MAX_TIME_MS)
    return nullable(np.where(there, values, 0) * 1000, there).view(TIME)
