"""Messages of a topic as Arrow batches: entries taken apart by the kernel, the unusual ones by the ordinary reader.

Columns are those of ``store.model.message_row``, in upstream's spelling; keys of JSON that are base64 or hex there are bytes here, and
what is left out there is null, false or 1 here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from hashlib import sha1
from itertools import compress, pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.buffer import signed
from pulsar_admin.store.codec.compression import fills, may_fill
from pulsar_admin.store.kernels.messages import (
    BATCHED,
    HEAD,
    MESSAGE,
    NO_MESSAGE,
    PROPERTY,
    SLOW,
    WHOLE,
    count_messages,
    explode,
    read_heads,
)
from pulsar_admin.store.kernels.producers import number_spans
from pulsar_admin.store.kernels.records import HAS_BROKER_TIME
from pulsar_admin.store.kernels.sha1 import sha1_spans
from pulsar_admin.store.model.message_row import marker_name
from pulsar_admin.store.model.messages import Message, MessageReader
from pulsar_admin.store.names import Position
from pulsar_admin.store.scan.arrow import column, constant, nullable, spans_array
from pulsar_admin.store.scan.places import EntryBatch

Make = Callable[[], pa.Array]

PLAIN_BYTES_MAX = 16 << 20  # of payloads decompressed at once
_PROPERTIES = pa.map_(pa.string(), pa.string())
_FIELDS = (
    ("ledgerId", pa.int64()),
    ("entryId", pa.int64()),
    ("batchIndex", pa.int32()),
    ("publishTime", pa.int64()),
    ("brokerTime", pa.int64()),
    ("eventTime", pa.int64()),
    ("key", pa.string()),
    ("orderingKey", pa.binary()),
    ("producer", pa.dictionary(pa.int32(), pa.string())),
    ("sequenceId", pa.int64()),
    ("properties", _PROPERTIES),
    ("size", pa.int64()),
    ("sha1", pa.binary(20)),
    ("payload", pa.binary()),
    ("brokerIndex", pa.int64()),
    ("deliverAtTime", pa.int64()),
    ("encrypted", pa.bool_()),
    ("nullValue", pa.bool_()),
    ("chunks", pa.int32()),
    ("markerType", pa.string()),
    ("transaction", pa.string()),
)
_SCAN_FIELDS = (
    ("schemaVersion", pa.int64()),
    ("keyEncoded", pa.bool_()),
    ("sealedBatch", pa.bool_()),
    ("batchSize", pa.int32()),  # 0: the message is no batch's
    ("firstChunk", pa.struct([("ledgerId", pa.int64()), ("entryId", pa.int64())])),
    ("offset", pa.int64()),
)


def message_schema(*, payload: bool, markers: bool = False) -> pa.Schema:
    """Return the columns of messages, with or without their payloads; with those of MARKERS, which are rows only then."""
    hidden = {"payload": not payload, "markerType": not markers}
    return pa.schema([pa.field(*column) for column in _FIELDS if not hidden.get(column[0])])


def schema_of(names: Collection[str]) -> pa.Schema:
    """Return the columns NAMES, those of scans among them, in their usual order."""
    return pa.schema([pa.field(*column) for column in (*_FIELDS, *_SCAN_FIELDS) if column[0] in names])


class Keep(Protocol):
    """Says by a few columns which messages are wanted, before the others are made."""

    @property
    def needs(self) -> frozenset[str]:
        """The columns to look at."""

    def mask(self, batch: pa.RecordBatch) -> Array:
        """Return which rows of BATCH are wanted."""


class MessageColumns:
    """Turns batches of entries, given in topic order, into batches of messages; problems go to ``reader.errors``.

    ``names``: only these columns; empty: those of ``message_schema``. ``unwrap``: from what the reader reads to what has messages.
    """

    def __init__(
        self,
        reader: MessageReader,
        payload: bool = False,
        names: Collection[str] = (),
        unwrap: Callable[[EntryBatch], EntryBatch] = lambda entries: entries,
        keep: Keep | None = None,
    ) -> None:
        self.reader, self.payload, self.names, self.unwrap, self.keep = reader, payload, names, unwrap, keep
        self.schema = schema_of(names) if names else message_schema(payload=payload)

    def convert(self, entries: EntryBatch) -> Iterator[pa.RecordBatch]:
        """Yield the messages of ENTRIES in order."""
        for run, batch in message_runs(self.unwrap(entries), self.schema, self.keep):
            if batch is None:
                ids = zip(entries.ledger_ids[run].tolist(), entries.entry_ids[run].tolist(), strict=True)
                yield from self.read_slowly([Position(*position) for position in ids])
            else:
                yield batch

    def read_slowly(self, positions: Sequence[Position]) -> Iterator[pa.RecordBatch]:
        """Yield the messages of the entries at POSITIONS as the ordinary reader sees them."""
        found = list(self.reader.iter_messages(positions))
        if found:
            yield _slow_batch(found, self.schema)


def message_runs(
    entries: EntryBatch, schema: pa.Schema, keep: Keep | None = None
) -> Iterator[tuple[slice, pa.RecordBatch | None]]:
    """Yield (entries, their messages) run by run; None for those that the ordinary reader has to read, all of them.

    Of the others KEEP says which are wanted. Only what the columns of SCHEMA need is decompressed and decoded. Markers are
    rows where it has their type.
    """
    heads = np.zeros(len(entries), HEAD)
    starts = entries.offsets + 4 + 32 + entries.rows["digest_bytes"]
    read_heads(entries.data, starts, entries.offsets + 4 + entries.held, heads)
    if "markerType" in schema.names:
        heads["kind"][heads["kind"] == NO_MESSAGE] = SLOW
    for low, high in _parts(heads):
        part = np.zeros(len(entries), bool)
        part[low:high] = True
        for run, batch in _part_runs(entries.take(part), heads[low:high], schema, keep):
            yield slice(low + run.start, low + run.stop), batch


def _part_runs(
    entries: EntryBatch, heads: Array, schema: pa.Schema, keep: Keep | None
) -> Iterator[tuple[slice, pa.RecordBatch | None]]:
    data = _decompressed(entries, heads, bodies=not {"payload", "sha1"}.isdisjoint(schema.names))
    messages = np.zeros(len(heads), np.int64)
    properties = np.zeros(len(heads), np.int64)
    count_messages(data, heads, messages, properties)
    slow = heads["kind"] == SLOW
    edges = [0, *(np.flatnonzero(slow[1:] != slow[:-1]) + 1).tolist(), len(heads)]
    for run in (slice(low, high) for low, high in pairwise(edges) if high > low):
        count = int(messages[run].sum())
        if slow[run.start]:
            yield run, None
        elif count:
            yield run, _fast(_Part(entries, heads, data, run), (count, int(properties[run].sum())), schema, keep)


def _fast(part: _Part, counts: tuple[int, int], schema: pa.Schema, keep: Keep | None) -> pa.RecordBatch | None:
    """Return the messages of PART; None when a text in it is not UTF-8: the ordinary reader says which."""
    messages, pairs = np.zeros(counts[0], MESSAGE), np.zeros(counts[1], PROPERTY)
    explode(part.data, part.heads, messages, pairs)
    try:
        if keep is not None:
            wanted = keep.mask(_record_batch(part, messages, pairs, schema_of(keep.needs)))
            pairs = pairs[np.repeat(wanted, messages["properties"])]
            messages = messages[wanted]
        return _record_batch(part, messages, pairs, schema)
    except pa.ArrowInvalid:
        return None


def _record_batch(part: _Part, messages: Array, pairs: Array, schema: pa.Schema) -> pa.RecordBatch:
    columns = _entry_columns(part, messages) | _message_columns(part.data, messages, pairs)
    return pa.RecordBatch.from_arrays([columns[name]() for name in schema.names], schema=schema)


class _Part:
    """A run of entries that the kernel can take apart."""

    def __init__(self, entries: EntryBatch, heads: Array, data: Array, run: slice) -> None:
        self.ledger_ids, self.entry_ids, self.rows = entries.ledger_ids[run], entries.entry_ids[run], entries.rows[run]
        self.heads = heads[run]
        self.data = data


def _parts(heads: Array) -> Iterator[tuple[int, int]]:
    """Cut a batch where its decompressed payloads pass ``PLAIN_BYTES_MAX``."""
    sizes = np.where(heads["compression"] != 0, np.maximum(heads["uncompressed_size"], 0), 0)
    groups = (np.cumsum(sizes) - sizes) // PLAIN_BYTES_MAX
    yield from pairwise([0, *(np.flatnonzero(groups[1:] != groups[:-1]) + 1).tolist(), len(heads)])


def _decompressed(entries: EntryBatch, heads: Array, *, bodies: bool) -> Array:
    """Return the bytes of ENTRIES followed by the decompressed payloads, at which HEADS point then.

    Without BODIES, of batches alone: what is not a batch has then the size that its metadata says, and no bytes.
    """
    is_compressed = (heads["compression"] != 0) & (heads["kind"] <= BATCHED)
    if not bodies:
        whole = is_compressed & (heads["kind"] == WHOLE)
        heads["body_end"][whole] = heads["body_start"][whole] + heads["uncompressed_size"][whole]
        is_compressed &= ~whole
    compressed = np.flatnonzero(is_compressed)
    if not len(compressed):
        return entries.data
    kinds, starts, ends, sizes = (
        heads[name][compressed].tolist() for name in ("compression", "body_start", "body_end", "uncompressed_size")
    )
    view = memoryview(entries.data.data)
    stored = [view[start:end] for start, end in zip(starts, ends, strict=True)]
    possible = list(map(may_fill, kinds, stored, sizes))
    data = np.empty(len(entries.data) + sum(compress(sizes, possible)), np.uint8)
    data[: len(entries.data)] = entries.data
    plain, at = memoryview(data.data), len(entries.data)
    places = []
    for kind, body, size, may in zip(kinds, stored, sizes, possible, strict=True):
        is_whole = may and fills(kind, body, plain[at : at + size])
        places.append(at if is_whole else -1)
        at += size if is_whole else 0
    found = np.array(places)
    heads["kind"][compressed[found < 0]] = SLOW  # read again, and explained, by the ordinary reader
    good = compressed[found >= 0]
    heads["body_start"][good] = found[found >= 0]
    heads["body_end"][good] = found[found >= 0] + heads["uncompressed_size"][good]
    return data[:at]


def _entry_columns(part: _Part, messages: Array) -> dict[str, Make]:
    """Return what makes the columns that the messages of an entry share."""
    entry, batch_index = messages["entry"], messages["batch_index"]
    single = len(entry) == len(part.rows) and bool((batch_index < 0).all())

    def of(values: Array) -> Array:
        taken: Array = values if single else values[entry]
        return taken

    def broker_index() -> pa.Array:
        index = of(part.heads["broker_index"])
        from_last = np.where(batch_index < 0, 0, of(part.heads["messages"]) - 1 - batch_index)
        return nullable(index - from_last, index >= 0)

    def optional(values: Array, nothing: int) -> pa.Array:
        return nullable(of(values), of(values) != nothing)

    return {
        "ledgerId": lambda: column(of(part.ledger_ids)),
        "entryId": lambda: column(of(part.entry_ids)),
        "publishTime": lambda: column(of(part.rows["publish_ms"])),
        "brokerTime": lambda: nullable(of(part.rows["broker_ms"]), of(part.rows["flags"]) & HAS_BROKER_TIME != 0),
        "producer": lambda: _producers(part, of),
        "brokerIndex": broker_index,
        "deliverAtTime": lambda: optional(part.rows["deliver_at_ms"], 0),
        "encrypted": lambda: constant(False, pa.bool_(), len(entry)),
        "sealedBatch": lambda: constant(False, pa.bool_(), len(entry)),
        "batchSize": lambda: column(np.where(batch_index < 0, 0, of(part.heads["messages"])).astype(np.int32)),
        "chunks": lambda: constant(1, pa.int32(), len(entry)),
        "firstChunk": lambda: pa.nulls(len(entry), dict(_SCAN_FIELDS)["firstChunk"]),
        "markerType": lambda: constant(None, pa.string(), len(entry)),
        "transaction": lambda: constant(None, pa.string(), len(entry)),
        "schemaVersion": lambda: optional(part.heads["schema_version"], -1),
        "offset": lambda: column(of(part.rows["offset"])),
    }


def _producers(part: _Part, of: Callable[[Array], Array]) -> pa.DictionaryArray:
    spans = np.column_stack([part.heads["producer_start"], part.heads["producer_size"]])
    numbers, firsts = np.empty(len(spans), np.int32), np.empty(len(spans), np.int32)
    table = np.full(1 << (2 * len(spans)).bit_length(), -1, np.int32)
    count = number_spans(part.data, spans, numbers, firsts, table)
    named = spans[firsts[:count]]
    names = spans_array(part.data, named[:, 0], named[:, 1], pa.string())
    return pa.DictionaryArray.from_arrays(column(of(numbers)), names)


def _message_columns(data: Array, messages: Array, pairs: Array) -> dict[str, Make]:
    """Return what makes the columns that each message has of its own."""

    def spans(name: str, kind: pa.DataType) -> pa.Array:
        return spans_array(data, messages[name + "_start"], messages[name + "_size"], kind)

    return {
        "batchIndex": lambda: column(messages["batch_index"]),
        "eventTime": lambda: column(messages["event_ms"]),
        "key": lambda: spans("key", pa.string()),
        "orderingKey": lambda: spans("ordering", pa.binary()),
        "sequenceId": lambda: column(messages["sequence_id"]),
        "properties": lambda: _properties(data, messages, pairs),
        "size": lambda: column(messages["body_size"]),
        "sha1": lambda: _digests(data, messages),
        "payload": lambda: spans("body", pa.binary()),
        "nullValue": lambda: column(messages["null_value"] != 0),
        "keyEncoded": lambda: column(messages["key_encoded"] != 0),
    }


def _properties(data: Array, messages: Array, pairs: Array) -> pa.Array:
    offsets = np.zeros(len(messages) + 1, np.int32)
    np.cumsum(messages["properties"], out=offsets[1:])
    names = spans_array(data, pairs["key_start"], pairs["key_size"], pa.string())
    values = spans_array(data, pairs["value_start"], pairs["value_size"], pa.string())
    return pa.MapArray.from_arrays(column(offsets), names, values)


def _digests(data: Array, messages: Array) -> pa.Array:
    digests = sha1_spans(data, messages["body_start"], messages["body_size"])
    return pa.Array.from_buffers(pa.binary(20), len(messages), [None, pa.py_buffer(digests)])


def _slow_batch(messages: Sequence[Message], schema: pa.Schema) -> pa.RecordBatch:
    rows = [_slow_row(message) for message in messages]
    return pa.RecordBatch.from_arrays(
        [pa.array([row[column.name] for row in rows], column.type) for column in schema], schema=schema
    )


def _slow_row(message: Message) -> dict[str, Any]:  # Any: column values
    body = bytes(message.payload)
    return {
        "ledgerId": message.position.ledger_id,
        "entryId": message.position.entry_id,
        "batchIndex": message.position.batch_index,
        "publishTime": signed(message.publish_ms),
        "brokerTime": None if message.broker_ms is None else signed(message.broker_ms),
        "eventTime": signed(message.event_ms),
        "key": message.key,
        "orderingKey": message.ordering_key,
        "producer": message.producer,
        "sequenceId": signed(message.sequence_id),
        "properties": list(message.properties.items()),
        "size": len(body),
        "sha1": sha1(body, usedforsecurity=False).digest(),
        "payload": body,
        "brokerIndex": None if message.broker_index is None else signed(message.broker_index),
        "deliverAtTime": message.deliver_at_ms or None,
        "encrypted": message.encrypted,
        "sealedBatch": message.encrypted and message.batch_size > 0,
        "nullValue": message.null_value,
        "batchSize": message.batch_size,
        "chunks": message.chunks,
        "firstChunk": None
        if message.first_chunk is None
        else {"ledgerId": message.first_chunk.ledger_id, "entryId": message.first_chunk.entry_id},
        "markerType": marker_name(message.marker_type),
        "schemaVersion": message.schema_number,
        "keyEncoded": message.key_encoded,
        "transaction": None if message.transaction is None else f"{message.transaction[0]}:{message.transaction[1]}",
        "offset": None,
    }
