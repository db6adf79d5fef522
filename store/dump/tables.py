"""Dumped rows: the columns of both levels, as Arrow batches and as JSON lines, and their days. Format: docs/formats/dump.md.

Each column is converted to the JSON texts of its values, and joining these gives the lines. The ``json`` module
converts values that are neither numbers nor plain text, and text that needs escaping.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.value import json_text as json_text_of
from pulsar_admin.store.codec.value import plain
from pulsar_admin.store.db.clocks import Clock
from pulsar_admin.store.kernels.columns import HAS_BROKER_TIME, UNFRAMED
from pulsar_admin.store.kernels.messages import HEAD, read_heads
from pulsar_admin.store.kernels.sha1 import sha1_spans
from pulsar_admin.store.model.schemas import TopicSchemas
from pulsar_admin.store.names import LONG_MIN
from pulsar_admin.store.scan.arrow import column, nullable, numbers_of, scalar, spans_array, strings
from pulsar_admin.store.scan.integer_rows import runs_of
from pulsar_admin.store.scan.messages import UNDECIDED, Match, message_schema, schema_of
from pulsar_admin.store.scan.places import EntryBatch
from pulsar_admin.store.scan.typed_values import NEEDS, KnownColumns, ValueColumns, Values, VersionedValues

_VALUE_FIELDS = (("schemaVersion", pa.int64()), ("value", pa.string()), ("valueError", pa.string()))
HELPERS = (
    pa.field("publishTime", pa.int64()),
    pa.field("brokerTime", pa.int64()),
    pa.field("valueError", pa.string()),
)
"""Hidden columns after another tool's: a row's times, which determine its day, and why it has no value."""
Finish = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class DumpColumns(Struct, frozen=True):
    """The columns to make of a topic's messages. ``schemas``: decode values by them, to JSON text or, if ``typed``, to
    a column with the fields of all versions. ``markers``: markers are rows.

    ``compacted``: the entries are those of a compacted ledger. ``only``: these columns, which need no schema; empty:
    all. ``match``: only matching messages and those that cannot be judged, which the column UNDECIDED marks. ``known``:
    another tool's columns instead, and HELPERS.
    """

    payload: bool = False
    schemas: TopicSchemas | None = None
    markers: bool = False
    only: tuple[str, ...] = ()
    compacted: bool = False
    match: Match | None = None
    known: KnownColumns | None = None
    typed: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns of a dump."""
        if self.known is not None:
            return pa.schema([*self.known.schema, *HELPERS])
        schema = schema_of(self.only) if self.only else self._whole_schema
        return schema if self.match is None else schema.append(pa.field(UNDECIDED, pa.bool_()))

    @property
    def _whole_schema(self) -> pa.Schema:
        fields = list(message_schema(payload=self.payload, markers=self.markers))
        if self.schemas is not None:
            kinds = dict(_VALUE_FIELDS) | ({"value": VersionedValues(self.schemas).kind} if self.typed else {})
            fields += [pa.field(*field) for field in kinds.items()]
        return pa.schema(fields)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of ``store.scan.messages`` from which these columns are computed."""
        if self.known is not None:
            return (*self.known.needs, "publishTime", "brokerTime")
        names = self.only or message_schema(payload=self.payload, markers=self.markers).names
        if self.schemas is not None:
            names = (*names, *NEEDS)
        return (*names, *(self.match.needs if self.match else ()))

    def screened(self, entries: EntryBatch) -> EntryBatch:
        """Return the entries without those that cannot contain a match."""
        return entries if self.match is None or self.compacted else self.match.screened(entries)

    def unwrap(self, entries: EntryBatch) -> EntryBatch:
        """Return the entries or, of a compacted ledger, the topic's entries in them."""
        if not self.compacted:
            return entries
        from pulsar_admin.store.compaction.entries import unwrapped

        return unwrapped(entries)

    def finisher(self) -> Finish:
        """Return a function that converts batches with the columns ``names`` to batches of ``schema``."""
        if self.known is not None:
            return self._known_finisher(self.known)
        if self.schemas is None and self.match is None:
            return lambda batches: iter(batches)
        read, typed = self._values(), self._typed()
        schema, match = self.schema, self.match

        def finish(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if match is not None:
                    batch = batch.filter(column(match.mask(batch)))
                made = read(batch)
                if match is not None:
                    passed, undecided = match.settle(batch, made.get("value"), made.get("valueError"))
                    made[UNDECIDED] = column(undecided)
                made |= typed(batch)
                columns = [made[name] if name in made else batch.column(name) for name in schema.names]
                whole = pa.RecordBatch.from_arrays(columns, schema=schema)
                yield whole if match is None else whole.filter(column(passed | undecided))

        return finish

    def _known_finisher(self, known: KnownColumns) -> Finish:
        convert, schema = known.converter(), self.schema

        def finish(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                made, errors = convert(batch)
                columns = [*made.columns, batch.column("publishTime"), batch.column("brokerTime"), errors]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

        return finish

    def _values(self) -> Callable[[pa.RecordBatch], dict[str, pa.Array]]:
        """Return a function from a batch to its columns ``value`` (JSON text) and ``valueError``, if needed."""
        if self.schemas is None or (self.typed and not (self.match is not None and self.match.needs_value)):
            return lambda batch: {}
        return _values_by(ValueColumns(Values({"": self.schemas})))

    def _typed(self) -> Callable[[pa.RecordBatch], dict[str, pa.Array]]:
        """Return a function from a batch to its columns ``value`` (typed) and ``valueError``, if ``typed``."""
        if self.schemas is None or not self.typed:
            return lambda batch: {}
        return _values_by(ValueColumns(Values({"": self.schemas}), VersionedValues(self.schemas)))


def _values_by(values: ValueColumns) -> Callable[[pa.RecordBatch], dict[str, pa.Array]]:
    def read(batch: pa.RecordBatch) -> dict[str, pa.Array]:
        typed = values.read(batch, [""] * len(batch), whole=True)
        return {"value": typed["value"], "valueError": typed["value_error"]}

    return read


Json = Any  # Any: a JSON value
_ESCAPED = r'["\\\x00-\x1f]'
_TEXT = pa.large_string()


def json_lines(topic: str, batch: pa.RecordBatch, quiet: Iterable[str]) -> str:
    """Return a batch's rows as JSON lines that begin with the topic; nulls of columns in ``quiet`` are left out."""
    lead = f'{{"topic":{compact(topic)}'
    parts: list[Any] = [scalar(lead, _TEXT)]  # Any: scalars and columns
    for field, cells in zip(batch.schema, batch.columns, strict=True):
        key = f',"{field.name}":'
        texts = _texts(field.name, cells)
        if field.name not in quiet:
            parts += [scalar(key, _TEXT), pc.fill_null(texts, scalar("null", _TEXT))]
        elif texts.null_count < len(texts):
            there = pc.binary_join_element_wise(scalar(key, _TEXT), texts, scalar("", _TEXT))
            parts.append(pc.fill_null(there, scalar("", _TEXT)))
    lines = pc.binary_join_element_wise(*parts, scalar("}\n", _TEXT), scalar("", _TEXT))
    _, ends, data = lines.buffers()
    first, last = np.frombuffer(ends, np.int64)[[lines.offset, lines.offset + len(lines)]].tolist()
    return str(memoryview(data)[first:last], "utf-8")


def _texts(name: str, column: pa.Array) -> pa.Array:
    """Return the JSON of each value of a column, null for null."""
    kind = column.type
    if name == "value":
        return _each(column, lambda text: json_text_of(json.loads(text)))
    if name == "sha1":
        return _hex(column)
    if pa.types.is_map(kind):
        return _maps(column)
    if pa.types.is_dictionary(kind):
        return _texts(name, column.dictionary).take(column.indices)
    if pa.types.is_boolean(kind):
        return pc.if_else(column, scalar("true", _TEXT), scalar("false", _TEXT))
    if pa.types.is_integer(kind):
        return column.cast(_TEXT)
    if pa.types.is_binary(kind):
        return _each(column, lambda value: f'"{b64encode(value).decode()}"')
    if pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
        return _each(column, compact)
    quote = scalar('"', _TEXT)
    return pc.binary_join_element_wise(quote, column.cast(_TEXT), quote, scalar("", _TEXT))


def _each(column: pa.Array, text_of: Callable[[Any], str]) -> pa.Array:  # Any: a value of the column
    return strings([None if value is None else text_of(value) for value in column.to_pylist()], _TEXT)


def _maps(column: pa.Array) -> pa.Array:
    """Return maps as objects; usually all maps of a batch are empty."""
    ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]
    if ends[0] == ends[-1]:
        return pa.repeat(scalar("{}", _TEXT), len(column))
    return _each(column, lambda pairs: compact(dict(pairs)))


def _hex(column: pa.Array) -> pa.Array:
    """Return 20-byte digests as JSON texts in hex; without nulls, all are converted at once."""
    if column.null_count:
        return _each(column, lambda value: f'"{value.hex()}"')
    width = column.type.byte_width
    data = np.frombuffer(column.buffers()[1], np.uint8)[column.offset * width :][: len(column) * width]
    texts = np.full((len(column), 2 * width + 2), ord('"'), np.uint8)
    texts[:, 1:-1] = _HEX[data].reshape(len(column), 2 * width)
    offsets = np.arange(len(column) + 1, dtype=np.int64) * (2 * width + 2)
    return pa.Array.from_buffers(_TEXT, len(column), [None, pa.py_buffer(offsets), pa.py_buffer(texts)])


_HEX = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8).reshape(256, 2)


def compact(value: Json) -> str:
    """Return a value as JSON without blanks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


DAY_MS = 86_400_000
LINES = 1 << 12  # in one piece of JSON text
NO_DAY = LONG_MIN
PIECE_BYTES = (
    3 << 20
)  # of a payload in one piece of JSON text; a multiple of three, so that base64 goes on without padding
ENTRY_SCHEMA = pa.schema(
    [
        pa.field("ledgerId", pa.int64()),
        pa.field("entryId", pa.int64()),
        pa.field("publishTime", pa.int64()),
        pa.field("brokerTime", pa.int64()),
        pa.field("brokerIndex", pa.int64()),
        pa.field("messages", pa.int32()),
        pa.field("ledgerTimestamp", pa.int64()),
        pa.field("size", pa.int64()),
        pa.field("sha1", pa.binary(20)),
        pa.field("payload", pa.binary()),
    ]
)
"""Columns of level ``entries``. ``ledgerTimestamp``: when the ledger was closed, null while it is open."""

# Members of JSON that are left out while they say nothing, as in ``topics read``; three of them say it by a word or a number.
_NOTHING = {"encrypted": False, "nullValue": False, "chunks": 1}
_QUIET = {
    "brokerIndex",
    "deliverAtTime",
    "markerType",
    "transaction",
    "schemaVersion",
    "value",
    "valueError",
    *_NOTHING,
}


class EntryColumns(Struct, frozen=True):
    """For rows of level ``entries``. ``closed_ms``: by ledger (None: open); ``stripped``: without broker metadata."""

    closed_ms: Mapping[int, int | None]
    stripped: bool


def entry_batch(entries: EntryBatch, columns_of: EntryColumns) -> pa.RecordBatch:
    """Return entries as rows of level ``entries``."""
    starts = entries.starts
    sizes = entries.ends - starts
    heads = np.zeros(len(entries), HEAD)
    read_heads(entries.data, starts, starts + sizes, heads)
    framed = entries.rows["flags"] & UNFRAMED == 0
    stamped, broker_index = entries.rows["flags"] & HAS_BROKER_TIME != 0, heads["broker_index"]
    if columns_of.stripped:
        fronts = np.where(framed, heads["front_end"], starts)
        starts, sizes = fronts, sizes - (fronts - starts)
        stamped, broker_index = np.zeros_like(stamped), np.full_like(broker_index, -1)
    times = [columns_of.closed_ms[ledger_id] for ledger_id in entries.ledger_ids.tolist()]
    columns = [
        column(entries.ledger_ids),
        column(entries.entry_ids),
        nullable(entries.rows["publish_ms"], framed),
        nullable(entries.rows["broker_ms"], stamped),
        nullable(broker_index, broker_index >= 0),
        column(entries.rows["messages"]),
        nullable(
            np.array([time or 0 for time in times], np.int64), np.array([time is not None for time in times], bool)
        ),
        column(sizes),
        pa.Array.from_buffers(
            pa.binary(20), len(entries), [None, pa.py_buffer(sha1_spans(entries.data, starts, sizes))]
        ),
        spans_array(entries.data, starts, sizes, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA)


def days_of(batch: pa.RecordBatch, clock: Clock) -> Array:
    """Return the day (since 1970, UTC) of each row on a clock; NO_DAY where it has no time there."""
    publish, published = numbers_of(batch.column("publishTime"))
    broker, stamped = numbers_of(batch.column("brokerTime"))
    times, present = {
        "publish": (publish, published),
        "broker": (broker, stamped),
        "auto": (np.where(stamped, broker, publish), stamped | published),
    }[clock]
    days: Array = np.where(present, times // DAY_MS, NO_DAY)
    return days


def split_by_day(batch: pa.RecordBatch, clock: Clock) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (day, its rows in order) of a batch."""
    days = days_of(batch, clock)
    if len(days) and (days == days[0]).all():
        yield int(days[0]), batch
        return
    order = np.argsort(days, kind="stable")
    batch, days = batch.take(column(order)), days[order]
    for start, end in runs_of(days):
        yield int(days[start]), batch.slice(start, end - start)


def day_name(day: int) -> str:
    """Return YYYY-MM-DD; a day that no calendar holds stays ``day<n>``, rows without a time get Hive's name for null."""
    if day == NO_DAY:
        return "__HIVE_DEFAULT_PARTITION__"
    if not -719162 <= day <= 2932896:
        return f"day{day}"
    return str(np.datetime64(day, "D"))


def json_text(topic: str, batch: pa.RecordBatch) -> Iterator[str]:
    """Yield the rows of a batch as ``topics read -o jsonl`` writes them: bytes in base64, digests in hex.

    A piece of text is lines; a line with a large payload comes in several pieces, of which only the last ends with a newline.
    """
    if "payload" not in batch.schema.names or not _large_values(batch.column("payload")):
        for start in range(0, len(batch), LINES):
            part = batch.slice(start, LINES)
            yield json_lines(
                topic,
                pa.RecordBatch.from_arrays(list(map(_spoken, part.schema, part.columns)), schema=part.schema),
                _QUIET,
            )
        return
    columns = json_columns(batch)
    for values in zip(*columns.values(), strict=True):
        row: dict[str, Any] = {"topic": topic}  # Any: JSON values
        row.update(
            (name, value)
            for name, value in zip(columns, values, strict=True)
            if value is not None or name not in _QUIET
        )
        if isinstance(row.get("payload"), pa.Buffer):
            yield from _pieces(row)
        else:
            yield compact(row) + "\n"


def known_text(batch: pa.RecordBatch) -> Iterator[str]:
    """Yield rows under another tool's names as JSON lines: bytes in base64, times as text, HELPERS left out."""
    shown = batch.drop_columns([helper.name for helper in HELPERS if helper.name in batch.schema.names])
    for start in range(0, len(shown), LINES):
        for row in shown.slice(start, LINES).to_pylist(maps_as_pydicts="lossy"):
            yield json_text_of(plain(row)) + "\n"


def whole_lines(pieces: Iterable[str]) -> Iterator[str]:
    """Put the pieces of ``json_text`` together to lines, without their newlines."""
    line: list[str] = []
    for piece in pieces:
        line.append(piece)
        if piece.endswith("\n"):
            yield from "".join(line)[:-1].split("\n")
            line.clear()


def _pieces(row: dict[str, Any]) -> Iterator[str]:  # Any: JSON values
    """Yield the line of a row whose payload is a buffer: as one text it would be in memory several times."""
    names = list(row)
    at = names.index("payload")
    yield compact({name: row[name] for name in names[:at]})[:-1] + ',"payload":"'
    payload = memoryview(row["payload"])
    for start in range(0, len(payload), PIECE_BYTES):
        yield b64encode(payload[start : start + PIECE_BYTES]).decode()
    rest = compact({name: row[name] for name in names[at + 1 :]})
    yield ('",' if len(rest) > len("{}") else '"') + rest[1:] + "\n"


def json_columns(batch: pa.RecordBatch) -> dict[str, list[Any]]:  # Any: JSON values
    """Return column → JSON values, None for omitted defaults; large payloads as buffers, not yet base64."""
    return {field.name: _json_values(field, batch.column(index)) for index, field in enumerate(batch.schema)}


def _json_values(field: pa.Field, column: pa.Array) -> list[Any]:  # Any: JSON values
    column = _spoken(field, column)
    if field.name == "payload" and (large := _large_values(column)):
        return large
    values: list[Any] = column.to_pylist()
    if field.name == "sha1":
        return [None if value is None else value.hex() for value in values]
    if field.name == "value":
        return [None if value is None else json.loads(value) for value in values]
    if field.name == "properties":
        return [dict(value) for value in values]
    if pa.types.is_binary(field.type):
        return [None if value is None else b64encode(value).decode() for value in values]
    return values


def _spoken(field: pa.Field, column: pa.Array) -> pa.Array:
    """Return a column with null in place of the default that the JSON omits, such as one chunk."""
    if field.name not in _NOTHING:
        return column
    nothing = scalar(_NOTHING[field.name], field.type)
    return pc.if_else(pc.equal(column, nothing), scalar(None, field.type), column)


def _large_values(column: pa.Array) -> list[pa.Buffer]:
    """Return the values of a binary column as buffers, not copied; an empty list if it has nulls or all are small."""
    if not len(column) or column.null_count:
        return []
    _, ends, data = column.buffers()
    offsets = np.frombuffer(ends, np.int32)[column.offset :][: len(column) + 1]
    if np.diff(offsets).max() <= PIECE_BYTES:
        return []
    return [data.slice(start, end - start) for start, end in pairwise(offsets.tolist())]
