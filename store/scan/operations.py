"""The operations of bulk work on a slice: the same functions on every engine, yielding bounded Arrow batches.

- ``ReadEntries``, ``ReadMessages``: entries and messages of a slice of a file, without a store. Every entry stands for itself: batches
  are exploded, a chunk is a row of its own, messages of open and aborted transactions are rows too, markers and entries that are not
  messages are left out. So the rows do not depend on how files are cut.
- ``ReadHeads``, ``ReadDelays`` and every other ``PlacesOperation``: entries of a topic. This process takes their places from the index;
  an executor gets files and offsets, and never sees the store. It returns columns and each entry's bytes up to the end of its
  metadata; entries that are wrong or unreadable there are read again here, and explained as usual.
- ``topics_option``: which topic each ledger belongs to, and the topics' schemas, for scans that see no store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec import entrylog, journal
from pulsar_admin.store.codec.digest import DIGEST_SIZE
from pulsar_admin.store.codec.entry import Entry, decode_entry
from pulsar_admin.store.codec.entrylog import HEADER_BYTES
from pulsar_admin.store.codec.message import is_chunk, is_marker
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.engine.memory import slice_bytes
from pulsar_admin.store.engine.operation import Engine, Operation
from pulsar_admin.store.engine.slices import SLICE_BYTES, FileRange, filled
from pulsar_admin.store.errors import EntryLogCorrupt, NotWritable, SourceChanged, StoreError
from pulsar_admin.store.kernels.columns import BAD_DIGEST, HAS_BROKER_TIME, RECORD, UNFRAMED
from pulsar_admin.store.kernels.wire import find_metadata_ends
from pulsar_admin.store.model.messages import ENTRY_ERRORS, Message, MessageReader, explode
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.redaction import redact, redact_value
from pulsar_admin.store.model.schemas import TopicSchemas, read_schemas
from pulsar_admin.store.model.topics import read_topic, select_topics
from pulsar_admin.store.names import FileKind, Position, TopicName, TopicSelection, parse_topic
from pulsar_admin.store.scan.arrow import column, nullable, numbers_of, packed_rows, texts_of
from pulsar_admin.store.scan.files import LOOK_BACK_BYTES, FileScan, LedgerDigests, Problem, Slice
from pulsar_admin.store.scan.messages import MessageColumns
from pulsar_admin.store.scan.places import EntryBatch, Places, PlacesReader, doubtful, read_at_once, record_times
from pulsar_admin.store.scan.schemas import ENTRY_SCHEMA, FLAGS, INVERTED, MESSAGE_SCHEMA, TIME
from pulsar_admin.store.scan.sources import SliceSource, open_source
from pulsar_admin.store.scan.typed_values import NEEDS, ValueColumns, Values, timestamps
from pulsar_admin.store.timespec import MAX_TIME_MS
from pulsar_admin.store.urls import Opened, close_bytes, is_url, open_bytes, read_at, read_bytes, read_into, shown_path

Records = np.ndarray[Any, np.dtype[np.void]]
_THERE = {"publish_ms": (UNFRAMED, 0), "broker_ms": (HAS_BROKER_TIME, HAS_BROKER_TIME)}
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


def _scan_records(
    piece: FileRange, options: ScanOptions, problems: list[Problem], source: SliceSource
) -> Iterator[Records]:
    """Yield the records of a slice that pass the filters; damage is added to ``problems``.

    Raises EntryLogCorrupt or Unsupported for a file that is not a log, depending on the options.
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
            times_ms, known = record_times(chosen, "auto")
            start_ms = -inf if options.start_ms is None else options.start_ms
            end_ms = inf if options.end_ms is None else options.end_ms
            chosen = chosen[known & (times_ms >= start_ms) & (times_ms < end_ms)]
        for name, (low, high) in options.between.items():
            flag, expected = _THERE[name]
            inside: np.ndarray[Any, np.dtype[np.bool_]] = chosen["flags"] & flag == expected
            chosen = chosen[inside & (chosen[name] >= low) & (chosen[name] <= high)]
        if len(chosen):
            yield chosen
    if not is_log:
        check_is_log(shown_path(piece.path), piece.kind, read_bytes(source.path, 0, HEADER_BYTES))


def check_is_log(path: str, kind: FileKind, head: bytes) -> None:
    """Raise EntryLogCorrupt or Unsupported if a file without records does not begin like a log.

    Zeros, and a header that is cut, occur in a file that was just created.
    """
    is_journal = kind == FileKind.JOURNAL
    magic, what = (journal.MAGIC, "a journal") if is_journal else (entrylog.MAGIC, "an entry log")
    if not any(head) or (len(head) < HEADER_BYTES and head[: len(magic)] == magic[: len(head)]):
        return
    if head.startswith(magic):
        (journal if is_journal else entrylog).decode_header(head, path)
        return
    magic_found, expected = head[: len(magic)].hex(), f"{magic.hex()} ({magic.decode()})"
    raise EntryLogCorrupt(
        f"{path} is not {what}: it starts with {magic_found}, not {expected}, and no record is in it",
        hint="exclude the file, or continue without it: option ignoreCorruptFiles=true",
        path=path,
    )


def _scan(part: Slice, options: ScanOptions, problems: list[Problem], source: SliceSource) -> Iterator[Records]:
    """Yield all records of a slice; if the last one reaches beyond the fetched bytes, more are fetched."""
    last_offset = -1
    while True:
        scan = FileScan(part, options.digests, options.verify, is_alone=True)
        for batch in scan.batches():
            fresh = batch[batch["offset"] > last_offset]
            if len(fresh):
                last_offset = int(fresh["offset"][-1])
                yield fresh
        if source.end >= source.size_bytes or not scan.reaches(source.end):
            problems += scan.problems
            return
        # Doubled each time: a record of 256 MiB is whole after eight tries.
        source.extend(part.end + 2 * (source.end - part.end))
        if scan.records or scan.is_inside or not part.seek:
            problems += [problem for problem in scan.problems if problem.offset < scan.resume_offset]
            part = replace(part, start=scan.resume_offset, seek=False)


class ReadEntries(Struct, frozen=True):
    """One row per entry; ``columns`` prunes (empty: all)."""

    options: ScanOptions = field(default_factory=ScanOptions)
    columns: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        names = self.columns or tuple(ENTRY_SCHEMA.names)
        return pa.schema([ENTRY_SCHEMA.field(name) for name in names])

    def run(self, piece: FileRange, damage: list[Problem] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the entries in file order; damage is added to ``damage``."""
        schema = self.schema
        with open_source(piece, LOOK_BACK_BYTES) as source:
            for records in _scan_records(piece, self.options, [] if damage is None else damage, source):
                columns = [self._column(name, records, piece) for name in schema.names]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _column(self, name: str, records: Records, piece: FileRange) -> pa.Array:
        if name == "path":
            return pa.repeat(shown_path(piece.path), len(records))
        if name == "topic":
            return texts_of(records["ledger_id"], self.options.topics.get)
        return entry_column(name, records)


def entry_column(name: str, records: Records) -> pa.Array:
    """Return one column of ENTRY_SCHEMA that follows from the records alone."""
    if name in FLAGS:
        is_set = records["flags"] & FLAGS[name] != 0
        return column(~is_set if name in INVERTED else is_set)
    if name == "payload_bytes":
        return column(np.maximum(records["size"] - 32 - records["digest_bytes"], 0).astype(np.int32))
    if name in _TIME_COLUMNS:
        source, flag, wanted = _TIME_COLUMNS[name]
        values = records[source]
        there = records["flags"] & flag == wanted if flag else values != 0
        # A time after the year 9999 has no datetime: it is null, as an absent one.
        there &= (values >= 0) & (values <= MAX_TIME_MS)
        return nullable(np.where(there, values, 0) * 1000, there).view(TIME)
    return column(records[name].astype(ENTRY_SCHEMA.field(name).type.to_pandas_dtype()))


_TIME_COLUMNS = {
    "publish_time": ("publish_ms", *_THERE["publish_ms"]),
    "broker_time": ("broker_ms", *_THERE["broker_ms"]),
    "deliver_at_time": ("deliver_at_ms", 0, 0),
}


_TIMES = {
    "publish_time": "publishTime",
    "broker_time": "brokerTime",
    "event_time": "eventTime",
    "deliver_at_time": "deliverAtTime",
}
_SOURCES = {
    "ledger_id": "ledgerId",
    "entry_id": "entryId",
    "batch_index": "batchIndex",
    "ordering_key": "orderingKey",
    "sequence_id": "sequenceId",
    "broker_index": "brokerIndex",
    "null_value": "nullValue",
    "schema_version": "schemaVersion",
}
_ON_DEMAND = ("payload", "value", "value_error")


class ReadMessages(Struct, frozen=True):
    """One row per message; ``columns`` prunes: data that no column needs is neither decompressed nor decoded.

    Without ``columns``: all, the payload if ``payload``, and the value, or the reason why it cannot be decoded, if
    ``values``.
    """

    options: ScanOptions = field(default_factory=ScanOptions)
    columns: tuple[str, ...] = ()
    payload: bool = False
    values: Values | None = None
    redact: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns; raises Unsupported, EntryCorrupt for a value that has no type."""
        return _redact_schema(self._plain_schema) if self.redact else self._plain_schema

    @property
    def _plain_schema(self) -> pa.Schema:
        hidden = [*_ON_DEMAND] if self.values is None else ["payload"]
        if self.payload:
            hidden.remove("payload")
        names = self.columns or [name for name in MESSAGE_SCHEMA.names if name not in hidden]
        fields = [MESSAGE_SCHEMA.field(name) for name in names]
        kind = pa.string() if self.values is None or "value" not in names else self.values.kind
        return pa.schema([field.with_type(kind) if field.name == "value" else field for field in fields])

    def run(self, piece: FileRange, damage: list[Problem] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the messages in file order; damage is added to ``damage``."""
        with open_source(piece, LOOK_BACK_BYTES) as source, closing(PlainFiles({0: source.path})) as files:
            entries = self._entries(piece, source, files, [] if damage is None else damage)
            yield from self.rows(entries, shown_path(piece.path), [])

    def rows(self, batches: Iterable[EntryBatch], path: str, problems: list[StoreError]) -> Iterator[pa.RecordBatch]:
        """Yield the messages of entries in a file; entries that cannot be decoded are added to ``problems``."""
        schema = self._plain_schema
        values = None
        names = {"ledgerId", *(_TIMES.get(name, _SOURCES.get(name, name)) for name in schema.names)}
        if not {"value", "value_error"}.isdisjoint(schema.names):
            values = ValueColumns(self.values or Values())
            names.update(NEEDS)
        if "offset" in names:
            names.add("entryId")
        for entries in batches:
            bodies = _Bodies(entries)
            reader = MessageColumns(_SliceReader(bodies, errors=problems), names=names)
            for batch in reader.convert(entries):
                decoded = {"offset": bodies.offsets(batch)} if "offset" in names else {}
                decoded |= {} if values is None else values.read(batch, self._topics(batch).to_pylist())
                columns = [
                    decoded[name] if name in decoded else self._column(name, batch, path) for name in schema.names
                ]
                made = pa.RecordBatch.from_arrays(columns, schema=schema)
                yield redact_batch(made) if self.redact else made

    def _entries(
        self, piece: FileRange, source: SliceSource, files: PlainFiles, problems: list[Problem]
    ) -> Iterator[EntryBatch]:
        for records in _scan_records(piece, self.options, problems, source):
            good = records[records["flags"] & (UNFRAMED | BAD_DIGEST) == 0]
            for part in read_at_once(good["size"]):
                # Copied: the scan's next batch overwrites them.
                places = Places.of_records(good[part], np.zeros(len(good[part])))
                yield PlacesReader(files, False, None).read_places(places)

    def _column(self, name: str, batch: pa.RecordBatch, path: str) -> pa.Array:
        kind = MESSAGE_SCHEMA.field(name).type
        if name == "path":
            return pa.repeat(pa.scalar(path, kind), len(batch))
        if name == "topic":
            return self._topics(batch)
        if name in _TIMES:
            return timestamps(batch.column(_TIMES[name]))
        return batch.column(_SOURCES.get(name, name)).cast(kind)

    def _topics(self, batch: pa.RecordBatch) -> pa.Array:
        return texts_of(numbers_of(batch.column("ledgerId"))[0], self.options.topics.get)


class _Bodies(EntryReader):
    """Access to one batch's entries by position, for the ordinary reader."""

    def __init__(self, entries: EntryBatch) -> None:
        self._entries = entries

    @cached_property
    def _rows(self) -> dict[tuple[int, int], int]:
        """Position → row, computed on first use, because few batches need it."""
        ids = zip(self._entries.ledger_ids.tolist(), self._entries.entry_ids.tolist(), strict=True)
        return {position: row for row, position in enumerate(ids)}

    def offsets(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the column ``offset`` of a batch of messages, which the ordinary reader does not fill."""
        known = batch.column("offset")
        if not known.null_count:
            return known
        ids = zip(batch.column("ledgerId").to_pylist(), batch.column("entryId").to_pylist(), strict=True)
        return pa.array([int(self._entries.rows["offset"][self._rows[position]]) for position in ids], known.type)

    def read(self, ledger_id: int, entry_id: int) -> Entry:
        row = self._rows[ledger_id, entry_id]
        start = int(self._entries.offsets[row]) + 4
        body = memoryview(self._entries.data.data)[start : start + int(self._entries.held[row])]
        kinds = {size: kind for kind, size in DIGEST_SIZE.items()}
        kind = kinds[int(self._entries.rows["digest_bytes"][row])]
        return decode_entry(body, kind, where=f"entry {ledger_id}:{entry_id}", verify=False)


class _SliceReader(MessageReader):
    """Decodes each entry without its neighbours; a chunk's ``chunks`` is the number of chunks of its message."""

    def iter_messages(self, positions: Iterable[Position]) -> Iterator[Message]:
        for position in positions:
            try:
                header = self.read_header(position)
                if is_chunk(header.metadata):
                    chunk = next(explode(header, position))
                    yield replace(chunk, chunks=header.metadata.num_chunks_from_msg)
                elif not is_marker(header.metadata):
                    yield from explode(header, position)
            except ENTRY_ERRORS as error:
                self.errors.append(error)


# -- redacted ----------------------------------------------------------------------------------------------------------
# ``--redact`` of rows as Arrow batches; see ``store.model.redaction``.


_HIDE: Mapping[str, Callable[[Any], object]] = {  # Any: a value of the column
    "key": redact,
    "orderingKey": redact,
    "ordering_key": redact,
    "payload": redact,
    "properties": lambda pairs: [(name, redact(value)) for name, value in pairs],
    "value": lambda text: json.dumps(redact_value(json.loads(text))),
    "sha1": lambda digest: None,
}


def _redact_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns after redaction: binary ones become text."""
    binary = {field.name for field in schema if pa.types.is_binary(field.type) and field.name != "sha1"}
    return pa.schema(
        [field.with_type(pa.string()) if field.name in binary & _HIDE.keys() else field for field in schema],
        schema.metadata,
    )


def redact_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of messages, in the columns of a dump or a scan, with SHA-256 and length in the place of hidden data."""
    schema = _redact_schema(batch.schema)
    columns = [
        _hidden(field, batch.column(field.name)) if field.name in _HIDE else batch.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _hidden(field: pa.Field, column: pa.Array) -> pa.Array:
    hide = _HIDE[field.name]
    return pa.array([None if value is None else hide(value) for value in column.to_pylist()], field.type)


PIECE_BYTES = SLICE_BYTES
ROUND_ENTRIES = 1 << 20  # handed to the engine at once: they bound what waits on the driver
_TOGETHER_BYTES = 1 << 16  # of rows: a batch of Arrow's takes half a kilobyte beside them


class EntryPlaces(FileRange, frozen=True, eq=False):
    """One slice of entries: their places in batches, and the files that hold them."""

    batches: Sequence[Places] = ()
    files: dict[int, str] = field(default_factory=dict)


class PlainFiles:
    """Files by id and path, read without a store; as ``EntryFiles`` reads them."""

    def __init__(self, paths: dict[int, str]) -> None:
        self._paths = paths
        self._open: dict[int, Opened] = {}

    def read(self, file_id: int, offset: int, length: int) -> bytes:
        """Return ``length`` bytes at ``offset``; raises SourceChanged for a file that is gone or cut."""
        try:
            raw = read_at(self._opened(file_id), length, offset)
        except OSError as error:
            raise self._unreadable(file_id, offset, error) from error
        if len(raw) < length:
            raise self._cut(file_id, offset, length, len(raw))
        return raw

    def read_into(self, data: memoryview, file_id: int, offset: int) -> None:
        """Fill memory with the bytes at ``offset``; raises as ``read``."""
        try:
            length = read_into(self._opened(file_id), data, offset)
        except OSError as error:
            raise self._unreadable(file_id, offset, error) from error
        if length < len(data):
            raise self._cut(file_id, offset, len(data), length)

    def _opened(self, file_id: int) -> Opened:
        opened = self._open.get(file_id)
        if opened is None:
            opened = self._open[file_id] = open_bytes(self._paths[file_id])
        return opened

    def _unreadable(self, file_id: int, offset: int, error: OSError) -> StoreError:
        path = self._paths[file_id]
        if isinstance(error, FileNotFoundError):
            return SourceChanged(f"{path} is gone", hint="restore the file", path=path)
        return EntryLogCorrupt(f"{path} @ {offset:#x}: {error.strerror}", path=path, offset=offset)

    def _cut(self, file_id: int, offset: int, expected: int, found: int) -> StoreError:
        path = self._paths[file_id]
        return SourceChanged(f"{path} @ {offset:#x}: expected {expected} bytes, found {found}", path=path)

    def close(self) -> None:
        for opened in self._open.values():
            close_bytes(opened)


def iter_batches(piece: FileRange) -> Iterator[tuple[Places, PlainFiles]]:
    """Yield the places of each batch of a slice, with the open files; the files are closed at the end."""
    assert isinstance(piece, EntryPlaces)
    files = PlainFiles(piece.files)
    try:
        for places in piece.batches:
            yield places, files
    finally:
        files.close()


class PlacesOperation:
    """Makes one packed row, with the columns ``COLUMNS``, of each batch of entries at given places."""

    __slots__ = ()
    COLUMNS: ClassVar[tuple[str, ...]] = ("rows",)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, pa.binary()) for name in self.COLUMNS])

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield one row per batch of places, small ones together."""
        waiting: list[tuple[bytes, ...]] = []
        waiting_bytes = 0
        for places, files in iter_batches(piece):
            row = tuple(self.values(places, files))
            row_bytes = sum(map(len, row))
            if waiting and waiting_bytes + row_bytes > _TOGETHER_BYTES:
                yield packed_rows(self.schema, waiting)
                waiting, waiting_bytes = [], 0
            waiting.append(row)
            waiting_bytes += row_bytes
        if waiting:
            yield packed_rows(self.schema, waiting)

    def values(self, places: Places, files: PlainFiles) -> Iterable[bytes]:
        """Return the row for the entries at these places."""
        raise AssertionError


class ReadHeads(Struct, PlacesOperation, frozen=True):
    """The rows of the entries at given places, and their bytes up to the payload: one row per batch."""

    COLUMNS = ("rows", "data", "offsets", "held")

    def values(self, places: Places, files: PlainFiles) -> Iterable[bytes]:
        batch = PlacesReader(files, True, None).read_places(places)
        return (part.tobytes() for part in _heads_only(batch))


def _heads_only(batch: EntryBatch) -> tuple[Array, ...]:
    """Return (rows, data, offsets, held) with each entry cut where its metadata ends."""
    starts, ends = batch.starts, batch.ends
    metadata_ends = np.empty_like(starts)
    find_metadata_ends(batch.data, starts, ends, metadata_ends)
    sizes = np.where(metadata_ends < 0, ends, metadata_ends) - batch.offsets
    offsets = np.cumsum(sizes) - sizes
    within = np.arange(int(sizes.sum())) - np.repeat(offsets, sizes)
    return batch.rows, batch.data[np.repeat(batch.offsets, sizes) + within], offsets, sizes - 4


def read_heads(engine: Engine, files: Any, groups: Iterable[Places]) -> Iterator[tuple[Places, EntryBatch | None]]:
    """Yield (places, their entries up to the payload) in order; None for entries that the engine could not read."""
    for places, row in run_places(engine, ReadHeads(), files, groups):
        if row is None:
            yield places, None
            continue
        rows = np.frombuffer(row["rows"], RECORD).copy()
        offsets, held = np.frombuffer(row["offsets"], np.int64), np.frombuffer(row["held"], np.int64)
        data = np.frombuffer(row["data"], np.uint8)
        yield places, EntryBatch(places.ledger_ids, places.entry_ids, data, offsets, held, rows)


def run_places(
    engine: Engine,
    operation: Operation,
    files: Any,
    groups: Iterable[Places],
    weight: Callable[[Places], int] = len,
    piece_bytes: int = PIECE_BYTES,
    beside: str = "",
) -> Iterator[tuple[Places, dict[str, bytes] | None]]:  # Any: EntryFiles, or what has its ``path_of``
    """Yield (places, the operation's row for them) of every group, in order; None if the engine failed twice.

    ``weight``: about how many entries' heads a group's row takes on the driver. ``piece_bytes``: bytes of entries per
    slice. ``beside``: another file that the process of a slice must be able to read.
    """
    groups_of_pieces = filled(groups, lambda places: places.bytes, min(piece_bytes, slice_bytes(engine.memory_bytes)))
    pieces = (_piece(files, batches, beside) for batches in groups_of_pieces)
    for some in filled(pieces, lambda piece: sum(map(weight, piece.batches)), ROUND_ENTRIES):
        yield from _run_round(engine, operation, some)


def _piece(files: Any, batches: list[Places], beside: str) -> EntryPlaces:
    ids = np.unique(np.concatenate([places.files for places in batches])).tolist()
    first = int(batches[0].offsets[0])
    kind, end = FileKind.ENTRY_LOG, first + sum(places.bytes for places in batches)
    try:
        paths = {file_id: files.path_of(file_id) for file_id in ids}
    except (SourceChanged, NotWritable) as error:
        # No executor gets it: who reads it here finds the same and says so.
        return EntryPlaces(str(error.context.get("path")), kind, ids[0], first, end, batches=batches)
    there = paths | {-1: beside} if beside else paths
    return EntryPlaces(paths[ids[0]], kind, ids[0], first, end, batches=batches, files=there)


def _run_round(
    engine: Engine, operation: Operation, pieces: list[EntryPlaces]
) -> Iterator[tuple[Places, dict[str, bytes] | None]]:
    order = {id(piece): index for index, piece in enumerate(pieces)}
    early: dict[int, pa.Table] = {}
    due = 0
    for piece, table in engine.run(operation, [piece for piece in pieces if piece.files], lambda _: None):
        early[order[id(piece)]] = table
        del table  # the consumer of its rows frees it
        while due in early:
            yield from zip(pieces[due].batches, _rows_of(early.pop(due)), strict=True)
            due += 1
    # What an executor could not give is read again here, and explained, or listed by who reads it.
    engine.failed[:] = [failed for failed in engine.failed if id(failed.piece) not in order]
    for index in range(due, len(pieces)):
        rows = _rows_of(early.pop(index)) if index in early else [None] * len(pieces[index].batches)
        yield from zip(pieces[index].batches, rows, strict=True)


def _rows_of(table: pa.Table) -> Iterator[dict[str, bytes]]:
    """Yield the rows one by one: converted to Python's bytes, each is in memory twice."""
    for batch in table.to_batches(max_chunksize=1):
        yield from batch.to_pylist()


# -- delays ------------------------------------------------------------------------------------------------------------
# When entries are to be delivered, as columns: the same function here, in processes and on Spark.


class ReadDelays(Struct, PlacesOperation, frozen=True):
    """The delayed entries among those at given places, packed: one row per batch of places.

    ``rows``: their indexes in the batch (i32); ``due_ms``: their delivery times (i64); ``doubtful``: those that the
    process with the store must read again.
    """

    COLUMNS = ("rows", "due_ms", "doubtful")

    def values(self, places: Places, files: PlainFiles) -> Iterable[bytes]:
        batch = PlacesReader(files, True, None).read_places(places)
        wrong = doubtful(batch, places)
        due = batch.rows["deliver_at_ms"]
        rows = np.flatnonzero((due > 0) & ~wrong)
        packed = (rows.astype(np.int32), due[rows], np.flatnonzero(wrong).astype(np.int32))
        return (column.tobytes() for column in packed)


def topics_option(store: Path | str, topics: Sequence[str] = (), *, pattern: str | None = None) -> str:
    """Return the option ``topics`` of ``pulsar_entries``: JSON, ledger id → topic.

    For all topics of a store, the named ones, or those that match a pattern. Raises StoreNotFound, TopicNotFound.
    """
    return json.dumps(read_topics(store, topics if pattern is None else (*topics, pattern))[0])


def read_topics(
    store: Path | str, names: Sequence[str] = (), *, schemas: bool = False
) -> tuple[dict[int, str], dict[str, TopicSchemas]]:
    """Return ledger id → topic, and topic → schemas (empty unless ``schemas``), as a store has them.

    ``names`` are topics, globs or namespaces; empty: all topics but system topics. Raises StoreNotFound,
    TopicNotFound.
    """
    with open_store(Path(store)) as opened, open_reader(opened) as reader:
        chosen = dict.fromkeys(topic for name in names or ("*",) for topic in named_topics(reader.txn, name))
        ledgers = {ledger: str(topic) for topic in chosen for ledger in read_topic(reader.txn, topic).ids}
        return ledgers, {str(topic): read_schemas(reader, topic) for topic in chosen} if schemas else {}


def named_topics(txn: Txn, name: str) -> tuple[TopicName, ...]:
    """Return the topics that a name means: a topic, its partitions, the matches of a glob, or a namespace. Raises
    TopicNotFound, InvalidValue."""
    if name.removeprefix("persistent://").count("/") == 1:
        name = f"{name}/*"
    if any(sign in name for sign in "*?["):
        return select_topics(txn, TopicSelection(pattern=name))
    return select_topics(txn, TopicSelection((parse_topic(name),)))
