"""The messages of a slice of a file, without a store: level ``messages`` of the data source.

Every entry stands for itself: batches are exploded, a chunk is a row of its own, messages of open and aborted transactions are
rows too, markers and entries that are not messages are left out. So the rows do not depend on how files are cut.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.codec.digest import DIGEST_SIZE
from pulsar_admin.store.codec.entry import Entry, decode_entry
from pulsar_admin.store.codec.message import is_chunk, is_marker
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.kernels.records import BAD_DIGEST, UNFRAMED
from pulsar_admin.store.model.messages import ENTRY_ERRORS, Message, MessageReader, explode
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.redaction import redact, redact_value
from pulsar_admin.store.names import Position
from pulsar_admin.store.scan.files import Problem
from pulsar_admin.store.scan.messages import MessageColumns
from pulsar_admin.store.scan.operations import ScanOptions, scan_records
from pulsar_admin.store.scan.places import BATCH_BYTES, BATCH_ENTRIES, EntryBatch, Places, PlacesReader
from pulsar_admin.store.scan.schemas import MESSAGE_SCHEMA, TIME
from pulsar_admin.store.scan.sources import Source, open_source, shown_path
from pulsar_admin.store.scan.spread import PlainFiles
from pulsar_admin.store.scan.typed_values import NEEDS, ValueColumns, Values
from pulsar_admin.store.timespec import MAX_TIME_MS

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
    """One row per message; ``columns`` prunes: what no column needs is neither decompressed nor decoded.

    Without ``columns``: all, the payload with ``payload``, the value and why there is none with ``values``.
    """

    options: ScanOptions = field(default_factory=ScanOptions)
    columns: tuple[str, ...] = ()
    payload: bool = False
    values: Values | None = None
    redact: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns; raises Unsupported, EntryCorrupt for a value that has no type."""
        return redact_schema(self._plain_schema) if self.redact else self._plain_schema

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
        """Yield the messages in file order; damage goes to DAMAGE."""
        with open_source(piece) as source, closing(PlainFiles({0: source.path})) as files:
            entries = self._entries(piece, source, files, [] if damage is None else damage)
            yield from self.rows(entries, shown_path(piece.path), [])

    def rows(self, batches: Iterable[EntryBatch], path: str, problems: list[StoreError]) -> Iterator[pa.RecordBatch]:
        """Yield the messages of entries in the file PATH; what cannot be taken apart is told to PROBLEMS."""
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
        self, piece: FileRange, source: Source, files: PlainFiles, problems: list[Problem]
    ) -> Iterator[EntryBatch]:
        for records in scan_records(piece, self.options, problems, source):
            good = records[records["flags"] & (UNFRAMED | BAD_DIGEST) == 0]
            total = np.cumsum(good["size"], dtype=np.int64)
            groups = np.maximum(total // BATCH_BYTES, np.arange(len(good)) // BATCH_ENTRIES)
            for part in np.split(good, np.flatnonzero(np.diff(groups)) + 1):
                if len(part):
                    yield PlacesReader(files, False, None).read_places(_places(part))

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
        ledgers, places = np.unique(batch.column("ledgerId").to_numpy(), return_inverse=True)
        topics = pa.array([self.options.topics.get(ledger_id) for ledger_id in ledgers.tolist()], pa.string())
        return topics.take(pa.array(places))


def _places(records: np.ndarray[Any, np.dtype[np.void]]) -> Places:
    return Places(
        records["ledger_id"].copy(),
        records["entry_id"].copy(),
        np.zeros(len(records), np.uint32),
        records["offset"].astype(np.uint32),
        records["size"].astype(np.uint32),
        records["digest_bytes"].astype(np.int64),
    )


def timestamps(column: pa.Array) -> pa.Array:
    """Return ms as timestamps; 0 (no such time) and what cannot be shown are null."""
    shown = pc.and_(pc.greater(column, 0), pc.less_equal(column, MAX_TIME_MS))
    return pc.multiply(pc.if_else(shown, column, None), 1000).cast(TIME)


class _Bodies(EntryReader):
    """Gives the entries of one batch to the ordinary reader."""

    def __init__(self, entries: EntryBatch) -> None:
        self._entries = entries
        ids = zip(entries.ledger_ids.tolist(), entries.entry_ids.tolist(), strict=True)
        self._rows = {position: row for row, position in enumerate(ids)}

    def offsets(self, batch: pa.RecordBatch) -> pa.Array:
        """Return column ``offset`` of BATCH, messages; the ordinary reader left it out of what it read."""
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
    """Every entry for itself; ``chunks`` of a chunk: how many its message has."""

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


def redact_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of SCHEMA as they are redacted: what was binary is text."""
    binary = {field.name for field in schema if pa.types.is_binary(field.type) and field.name != "sha1"}
    return pa.schema(
        [field.with_type(pa.string()) if field.name in binary & _HIDE.keys() else field for field in schema],
        schema.metadata,
    )


def redact_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return BATCH, messages in the columns of a dump or of a scan, with SHA-256 and length in place of what is hidden."""
    schema = redact_schema(batch.schema)
    columns = [
        _hidden(field, batch.column(field.name)) if field.name in _HIDE else batch.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _hidden(field: pa.Field, column: pa.Array) -> pa.Array:
    hide = _HIDE[field.name]
    return pa.array([None if value is None else hide(value) for value in column.to_pylist()], field.type)
