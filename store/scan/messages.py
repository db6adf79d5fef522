"""Messages of a topic as Arrow batches: entries split by the kernel, unusual ones by the ordinary reader; and the search among
them.

Columns are those of ``store.model.messages``, in upstream's spelling; JSON keys in base64 or hex are bytes here, and
absent keys are null, false or 1. A ``Match`` is plain data that travels to executors: entries whose bytes cannot have a
match are dropped before they are split; messages are selected by columns, values one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import sha1
from itertools import compress, starmap
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.buffer import signed
from pulsar_admin.store.codec.compression import fills, may_fill
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.kernels.columns import CHUNK, COMPRESSED, ENCRYPTED, HAS_BROKER_TIME, TRANSACTION, UNFRAMED
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
from pulsar_admin.store.kernels.sha1 import sha1_spans
from pulsar_admin.store.model.messages import Message, MessageReader, marker_name
from pulsar_admin.store.model.schemas import PathTest, parse_path_test
from pulsar_admin.store.names import Position
from pulsar_admin.store.scan.arrow import bools_of, column, constant, nullable, numbers_of, scalar, spans_array, strings
from pulsar_admin.store.scan.integer_rows import runs_of
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
    """Return the columns of messages, with or without payloads; with the columns of markers if these are rows as well."""
    hidden = {"payload": not payload, "markerType": not markers}
    return pa.schema([pa.field(*column) for column in _FIELDS if not hidden.get(column[0])])


def schema_of(names: Collection[str]) -> pa.Schema:
    """Return the named columns, including those of scans, in their usual order."""
    return pa.schema([pa.field(*column) for column in (*_FIELDS, *_SCAN_FIELDS) if column[0] in names])


class Keep(Protocol):
    """Selects messages by a few of their columns, before the remaining columns are built."""

    @property
    def needs(self) -> frozenset[str]:
        """The columns that ``mask`` reads."""

    def mask(self, batch: pa.RecordBatch) -> Array:
        """Return a mask of the wanted rows."""


class MessageColumns:
    """Turns batches of entries, given in topic order, into batches of messages; problems go to ``reader.errors``.

    ``names``: only these columns; empty: those of ``message_schema``. ``unwrap``: converts the entries read into those
    that hold the messages.
    """

    def __init__(
        self,
        reader: MessageReader,
        names: Collection[str],
        unwrap: Callable[[EntryBatch], EntryBatch] = lambda entries: entries,
        keep: Keep | None = None,
    ) -> None:
        self.reader, self.names, self.unwrap, self.keep = reader, names, unwrap, keep
        self.schema = schema_of(names) if names else message_schema(payload=False)

    def convert(self, entries: EntryBatch) -> Iterator[pa.RecordBatch]:
        """Yield the messages of entries in order."""
        for run, batch in message_runs(self.unwrap(entries), self.schema, self.keep):
            if batch is None:  # chunks, encryption, transactions, damage: too rare for a kernel
                ids = zip(entries.ledger_ids[run].tolist(), entries.entry_ids[run].tolist(), strict=True)
                yield from self.read_slowly([Position(*position) for position in ids])
            else:
                yield batch

    def read_slowly(self, positions: Sequence[Position]) -> Iterator[pa.RecordBatch]:
        """Yield the messages of the entries at these positions as the ordinary reader decodes them."""
        messages = list(self.reader.iter_messages(positions))
        if messages:
            rows = [_slow_row(message) for message in messages]
            yield pa.RecordBatch.from_arrays(
                [pa.array([row[column.name] for row in rows], column.type) for column in self.schema],
                schema=self.schema,
            )


def message_runs(
    entries: EntryBatch, schema: pa.Schema, keep: Keep | None
) -> Iterator[tuple[slice, pa.RecordBatch | None]]:
    """Yield (entries, their messages) run by run; messages None: the ordinary reader must read these entries.

    ``keep`` selects the wanted entries. Only data that the schema's columns need is decompressed and decoded. Markers
    are rows if the schema has their type.
    """
    heads = np.zeros(len(entries), HEAD)
    read_heads(entries.data, entries.starts, entries.ends, heads)
    if "markerType" in schema.names:
        heads["kind"][heads["kind"] == NO_MESSAGE] = SLOW
    # Cut where the decompressed payloads of a part pass the limit.
    sizes = np.where(heads["compression"] != 0, np.maximum(heads["uncompressed_size"], 0), 0)
    groups = (np.cumsum(sizes) - sizes) // PLAIN_BYTES_MAX
    for low, high in runs_of(groups):
        for run, batch in _part_runs(entries.take(np.s_[low:high]), heads[low:high], schema, keep):
            yield slice(low + run.start, low + run.stop), batch


def _part_runs(
    entries: EntryBatch, heads: Array, schema: pa.Schema, keep: Keep | None
) -> Iterator[tuple[slice, pa.RecordBatch | None]]:
    # Sizes are in the metadata: only these columns need what a single message holds.
    data = _decompressed(entries, heads, bodies=not {"payload", "sha1"}.isdisjoint(schema.names))
    messages = np.zeros(len(heads), np.int64)
    properties = np.zeros(len(heads), np.int64)
    count_messages(data, heads, messages, properties)
    slow = heads["kind"] == SLOW
    # Runs of one kind keep the topic's order, and the kernel takes as many entries at once as there are.
    for run in starmap(slice, runs_of(slow)):
        count = int(messages[run].sum())
        if slow[run.start]:
            yield run, None
        elif count:
            yield run, _fast(_KernelRun(entries, heads, data, run), (count, int(properties[run].sum())), schema, keep)


def _fast(part: _KernelRun, counts: tuple[int, int], schema: pa.Schema, keep: Keep | None) -> pa.RecordBatch | None:
    """Return the messages of a part; None if a text is not UTF-8: the ordinary reader reports which."""
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


def _record_batch(part: _KernelRun, messages: Array, pairs: Array, schema: pa.Schema) -> pa.RecordBatch:
    columns = _entry_columns(part, messages) | _message_columns(part.data, messages, pairs)
    return pa.RecordBatch.from_arrays([columns[name]() for name in schema.names], schema=schema)


class _KernelRun:
    """A run of entries that the kernel can split into messages."""

    def __init__(self, entries: EntryBatch, heads: Array, data: Array, run: slice) -> None:
        self.ledger_ids, self.entry_ids, self.rows = entries.ledger_ids[run], entries.entry_ids[run], entries.rows[run]
        self.heads = heads[run]
        self.data = data


def _decompressed(entries: EntryBatch, heads: Array, *, bodies: bool) -> Array:
    """Return the bytes of the entries followed by the decompressed payloads, to which ``heads`` point then.

    Without ``bodies`` only batches are decompressed; other entries get the size from their metadata, and no bytes.
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
    bounds = np.array(places)
    heads["kind"][compressed[bounds < 0]] = SLOW  # read again, and explained, by the ordinary reader
    good = compressed[bounds >= 0]
    heads["body_start"][good] = bounds[bounds >= 0]
    heads["body_end"][good] = bounds[bounds >= 0] + heads["uncompressed_size"][good]
    return data[:at]


def _entry_columns(part: _KernelRun, messages: Array) -> dict[str, Make]:
    """Return the functions that make the columns that all messages of an entry share."""
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


def _producers(part: _KernelRun, of: Callable[[Array], Array]) -> pa.DictionaryArray:
    spans = np.column_stack([part.heads["producer_start"], part.heads["producer_size"]])
    numbers, firsts = np.empty(len(spans), np.int32), np.empty(len(spans), np.int32)
    table = np.full(1 << (2 * len(spans)).bit_length(), -1, np.int32)
    count = number_spans(part.data, spans, numbers, firsts, table)
    named = spans[firsts[:count]]
    names = spans_array(part.data, named[:, 0], named[:, 1], pa.string())
    return pa.DictionaryArray.from_arrays(column(of(numbers)), names)


def _message_columns(data: Array, messages: Array, pairs: Array) -> dict[str, Make]:
    """Return the functions that make the columns that differ between messages."""

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
        "sha1": lambda: pa.Array.from_buffers(
            pa.binary(20),
            len(messages),
            [None, pa.py_buffer(sha1_spans(data, messages["body_start"], messages["body_size"]))],
        ),
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


UNDECIDED = "undecided"
"""The column for messages that cannot be matched: they are encrypted, or their value cannot be decoded."""
_NEEDLES = 4  # each is a pass over the bytes
_OPAQUE = UNFRAMED | COMPRESSED | ENCRYPTED | CHUNK | TRANSACTION
"""Entries whose bytes do not show their content, or that are a part of a larger message."""


class Match(Struct, frozen=True):
    """What a message must match; all given conditions must hold, and one of ``keys`` and one of ``texts``.

    ``properties``: (name, value or None for any value). ``texts`` and ``regex`` are searched for in the payload, with
    ``in_value`` also in the decoded value's JSON; ``ignore_case`` applies to both. ``paths``: tests on the decoded
    value.
    """

    keys: tuple[str, ...] = ()
    key_prefix: str | None = None
    properties: tuple[tuple[str, str | None], ...] = ()
    producer: str | None = None
    sequence_id: int | None = None
    texts: tuple[str, ...] = ()
    regex: str | None = None
    ignore_case: bool = False
    in_value: bool = False
    paths: tuple[PathTest, ...] = ()

    def check(self) -> Match:
        """Return the match itself; raises InvalidValue for an invalid expression, and if it looks for nothing."""
        # Neither an empty text is looked for, nor one that is not UTF-8, which no key, name or value can
        # contain.
        for given in (*self.keys, *self.texts, self.key_prefix, self.regex):
            if given == "":
                raise InvalidValue("an empty text is in every message", hint="leave the option out")
        said = [
            *self.keys,
            self.key_prefix,
            self.producer,
            self.regex,
            *(text for pair in self.properties for text in pair),
        ]
        said += self.texts if self.in_value or self.ignore_case else ()
        for text in said:
            try:
                (text or "").encode()
            except UnicodeEncodeError as error:
                hint = "--text alone, without --value and -i, takes any bytes"
                raise InvalidValue(f"{text!r} is not text in UTF-8", hint=hint, value=text) from error
        if self.regex is not None:
            try:
                pc.match_substring_regex(b"", self._pattern(self.regex))
                if not self.regex.isascii():
                    re.compile(self.regex)
            except (pa.ArrowInvalid, re.error) as error:
                text = str(error).partition(": ")[2] or str(error)
                hint = "look-around and back references are not supported: the syntax is that of RE2"
                raise InvalidValue(f"not a regular expression: {self.regex!r}: {text}", hint=hint) from error
        return self

    @property
    def needs(self) -> frozenset[str]:
        """The columns of messages that ``mask`` reads."""
        names = {"encrypted", "sealedBatch"}
        names |= {"key"} if self.keys or self.key_prefix is not None else set()
        names |= {"properties"} if self.properties else set()
        names |= {"producer"} if self.producer is not None else set()
        names |= {"sequenceId"} if self.sequence_id is not None else set()
        return frozenset(names | ({"payload"} if self._has_text or self.paths else set()))

    @property
    def needs_value(self) -> bool:
        """Whether values are to be decoded."""
        return bool(self.paths) or (self.in_value and self._has_text)

    @property
    def _has_text(self) -> bool:
        return bool(self.texts) or self.regex is not None

    # -- entries ------------------------------------------------------------------------------------------------------

    @property
    def _needles(self) -> tuple[bytes, ...]:
        """Byte strings one of which is literally in every entry with a match; empty: any entry may have a match."""
        if self.texts and not self.ignore_case and not self.in_value:
            needles: tuple[str, ...] = self.texts
        elif self.keys:
            needles = self.keys
        else:
            value = max((value or name for name, value in self.properties), key=len, default=None)
            needles = tuple(text for text in (value or self.key_prefix or self.producer,) if text)
        return tuple(map(_bytes, needles)) if len(needles) <= _NEEDLES else ()

    def screened(self, entries: EntryBatch) -> EntryBatch:
        """Return the entries without those whose raw bytes already exclude a match."""
        if not self._needles or not len(entries):
            return entries
        hits = np.concatenate(
            [np.fromiter(_iter_places(entries.data.tobytes(), needle), np.int64) for needle in self._needles]
        )
        # A hit between two entries, where a gap was read too, keeps the one before it: ``mask`` decides, this only saves work.
        order = np.argsort(entries.offsets)
        starts = entries.offsets[order]
        owners = np.searchsorted(starts, hits, "right") - 1
        kept = np.zeros(len(entries), bool)
        kept[order[owners[owners >= 0]]] = True
        return entries.take(kept | (entries.rows["flags"] & _OPAQUE != 0))

    # -- messages -----------------------------------------------------------------------------------------------------

    def mask(self, batch: pa.RecordBatch) -> Array:
        """Return a mask of the messages that may match, judged by everything but their values; the batch has the columns ``needs``."""
        sealed = bools_of(batch.column("sealedBatch"))
        of_entry = self._test(batch, "producer", self.producer)
        of_message = self._test(batch, "sequenceId", self.sequence_id)
        if self.keys:
            of_message &= bools_of(pc.is_in(batch.column("key"), strings(self.keys, pa.string())))
        if self.key_prefix is not None:
            of_message &= bools_of(pc.starts_with(batch.column("key"), self.key_prefix))
        for name, value in self.properties:
            pairs = batch.column("properties")
            same = pc.equal(pairs.keys, scalar(name, pairs.keys.type))
            same = same if value is None else pc.and_(same, pc.equal(pairs.items, scalar(value, pairs.items.type)))
            before = np.append(0, np.cumsum(bools_of(same)))
            offsets, _ = numbers_of(pairs.offsets)
            has_it: Array = before[offsets[1:]] > before[offsets[:-1]]
            of_message &= has_it
        if self._has_text and not self.in_value:
            of_message &= self._finds(batch.column("payload")) | bools_of(batch.column("encrypted"))
        candidates: Array = of_entry & (of_message | sealed)
        return candidates

    def _test(self, batch: pa.RecordBatch, name: str, wanted: object) -> Array:
        if wanted is None:
            return np.ones(len(batch), bool)
        column = batch.column(name)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        return bools_of(pc.equal(column.cast(kind), wanted))

    def settle(self, batch: pa.RecordBatch, values: pa.Array | None, errors: pa.Array | None) -> tuple[Array, Array]:
        """Return masks of the messages that match, and of those that cannot be judged, among the ones whose ``mask`` is true.

        ``values`` and ``errors``: the decoded values, if ``needs_value``.
        """
        sealed, encrypted = bools_of(batch.column("sealedBatch")), bools_of(batch.column("encrypted"))
        asks_content = self._has_text or bool(self.paths)
        # A sealed batch shows its producer, but nothing of a single message.
        asks_message = bool(self.keys or self.key_prefix or self.properties or self.sequence_id is not None)
        undecided: Array = (encrypted & asks_content) | (sealed & (asks_message or self._has_text))
        if values is None or errors is None:
            return ~undecided, undecided
        matches = np.ones(len(batch), bool)
        if self._has_text and self.in_value:
            matches &= self._finds(batch.column("payload")) | self._finds(values)
        failed = bools_of(pc.is_valid(errors))
        if self.paths:
            held = [self._holds(*pair) for pair in zip(values.to_pylist(), batch.column("payload"), strict=True)]
            matches &= np.array(held, bool)
        undecided |= failed & ~matches
        return matches & ~undecided, undecided

    def _holds(self, text: str | None, payload: pa.Scalar) -> bool:
        """Whether the value's JSON text, or without one the payload if it is JSON, passes every test of a path."""
        try:
            value = json.loads(payload.as_py() if text is None else text)
        except (ValueError, RecursionError):  # no JSON, or nested so deeply that Python cannot read it
            return False
        return all(test.holds(value) for test in self.paths)

    def _finds(self, column: pa.Array) -> Array:
        """Return a mask of the texts or bytes in which one of the searched texts and the expression occur."""
        matches = np.zeros(len(column), bool) if self.texts else np.ones(len(column), bool)
        for text in self.texts:
            if self.ignore_case:
                matches |= self._matches(column, re.escape(text))
            else:
                matches |= bools_of(pc.match_substring(column, _bytes(text)))
        if self.regex is not None:
            matches &= self._matches(column, self.regex)
        return matches

    def _matches(self, column: pa.Array, pattern: str) -> Array:
        if pattern.isascii():
            return bools_of(pc.match_substring_regex(column, self._pattern(pattern)))
        # RE2 takes bytes for Latin-1: a letter beyond ASCII would be several.
        find = re.compile(pattern, re.IGNORECASE if self.ignore_case else 0).search
        values = column.to_pylist()
        texts = (value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values)
        return np.array([text is not None and find(text) is not None for text in texts], bool)

    def _pattern(self, pattern: str) -> str:
        return f"(?i){pattern}" if self.ignore_case else pattern


def match_of(wanted: Mapping[str, Any]) -> Match:  # Any: each keyword's own
    """Return the match of the keywords of ``Store.search``; raises InvalidValue."""
    for name in ("keys", "properties", "texts", "json_paths"):
        if name in wanted and not wanted[name]:
            raise InvalidValue(f"{name} is empty: leave it out to take every message, or there is nothing to look for")
    criteria: dict[str, Any] = {name: one for name, one in wanted.items() if name in Match.__struct_fields__}
    criteria |= {name: tuple(criteria[name]) for name in ("keys", "texts") if name in criteria}
    paths = tuple(map(parse_path_test, wanted.get("json_paths", ())))
    return Match(**criteria | {"properties": tuple(wanted.get("properties", {}).items()), "paths": paths}).check()


def _bytes(text: str) -> bytes:
    """Return a text as the bytes that were typed: bytes that are not UTF-8 on a command line are surrogates in Python."""
    return text.encode("utf-8", "surrogateescape")


def _iter_places(data: bytes, needle: bytes) -> Iterator[int]:
    at = data.find(needle)
    while at >= 0:
        yield at
        at = data.find(needle, at + 1)
