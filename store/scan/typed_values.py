"""Values as typed columns: the Arrow type of a topic's newest schema, and values turned into what such a column takes; and messages
under the names, types and meanings that the Spark connector gave their columns.

A record is a struct, a map a map, an array a list; a union of null and one type is that type; every other union, and a
recursive record, is JSON text. A time of day is text too (Spark before 4.1 has no type for it). AVRO values of older versions are
resolved to the newest; JSON has no such rule: absent fields are null.

The connector's (upstream: ``SchemaUtils`` and ``PulsarDeserializer`` of streamnative/pulsar-spark 3.4.1): columns of a value are the
fields of its record, or one column. All columns may be null here: data on a disk has null values and values that cannot be decoded, whose
columns are then null.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.avro import Schema, avro_decoder, named_schemas, parse_definition
from pulsar_admin.store.codec.value import Decode, Value, ValueSchema, decoder_of, json_text, key_bytes, plain
from pulsar_admin.store.errors import StoreError, Unsupported
from pulsar_admin.store.model.schemas import Encoded, PlainValues, TopicSchemas, ValueReader, key_and_value_bytes
from pulsar_admin.store.names import TopicName
from pulsar_admin.store.scan.arrow import numbers_of, strings
from pulsar_admin.store.timespec import MAX_TIME_MS

STAMP = pa.timestamp("us", tz="UTC")
LOCAL_STAMP = pa.timestamp("us")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_DIGITS = 38  # of Arrow's and Spark's decimals
_DIGITS = Context(prec=_MAX_DIGITS)
_MAX_COLUMNS = 1 << 16  # records that name one another twice double with each
Convert = Callable[[Value], Value]


class Shape(Struct, frozen=True):
    """A column: its Arrow type, and the function that converts a decoded value, not null, for pyarrow; it raises DECODE_ERRORS."""

    kind: pa.DataType
    convert: Convert


class TypedValues:
    """Values as a column of the type ``kind``, that of a topic's newest schema; keeps a decoder for each version.

    Raises Unsupported for a type that is not decoded, EntryCorrupt for a bad definition.
    """

    def __init__(self, newest: ValueSchema, shapes: type[Shapes] | None = None) -> None:
        """``shapes``: the columns for the parts of a value; ``Shapes`` by default."""
        shapes = shapes or Shapes
        if newest.type_name == "KEY_VALUE":
            self._parts = [_SchemaValues(part, shapes) for part in newest.key_and_value]
            names = zip(("key", "value"), self._parts, strict=True)
            self.kind = pa.struct([(name, part.shape.kind) for name, part in names])
        else:
            self._parts = [_SchemaValues(newest, shapes)]
            self.kind = self._parts[0].shape.kind
        self._newest = newest

    def value(self, schema: ValueSchema, message: Encoded) -> Value:
        """Return the value of a message written with this schema, as pyarrow takes it."""
        if schema.type_name != self._newest.type_name:
            raise ValueError(f"the newest version is {self._newest.type_name}")
        if schema.type_name != "KEY_VALUE":
            return self._parts[0].read(message.payload, schema)
        parts = zip(self._parts, key_and_value_bytes(schema, message), schema.key_and_value, strict=True)
        key, value = (None if data is None else part.read(data, written) for part, data, written in parts)
        return {"key": key, "value": value}


class VersionedValues:
    """Values as a column for all versions of a schema: records with the fields of every version, null where a version lacks one.

    ``kind``: the column's type; None if no version has columns. Where versions disagree, the wider number type, else
    JSON text.
    """

    def __init__(self, schemas: TopicSchemas) -> None:
        self._versions: list[tuple[ValueSchema, TypedValues]] = []
        self.kind: pa.DataType | None = None
        for _, schema in sorted(schemas.versions.items()):
            with suppress(StoreError):  # its values say why they are not decoded
                typed = TypedValues(schema)
                self._versions.append((schema, typed))
                self.kind = typed.kind if self.kind is None else _common(self.kind, typed.kind)

    def value(self, schema: ValueSchema, message: Encoded) -> Value:
        """Return the value of a message written with this schema, as pyarrow takes it; raises StoreError, DECODE_ERRORS."""
        typed = next((typed for version, typed in self._versions if version is schema), None) or TypedValues(schema)
        return _fitted(typed.kind, self.kind, typed.value(schema, message))


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return a type that can hold the values of both."""
    if one == other:
        return one
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        parts = {part.name: part.type for part in one}
        for part in other:
            parts[part.name] = _common(parts.get(part.name, part.type), part.type)
        return pa.struct([*parts.items()])
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_common(one.value_type, other.value_type))
    if pa.types.is_map(one) and pa.types.is_map(other):
        return pa.map_(pa.string(), _common(one.item_type, other.item_type))
    if any(is_number(one) and is_number(other) for is_number in (pa.types.is_integer, pa.types.is_floating)):
        return max(one, other, key=lambda kind: kind.bit_width)
    return pa.string()


def _fitted(kind: pa.DataType, common: pa.DataType, value: Value) -> Value:
    """Return a value of type ``kind`` converted to the type common to all versions."""
    if value is None or kind == common:
        return value
    if pa.types.is_struct(common):
        return {part.name: _fitted(part.type, common.field(part.name).type, value[part.name]) for part in kind}
    if pa.types.is_list(common):
        return [_fitted(kind.value_type, common.value_type, item) for item in value]
    if pa.types.is_map(common):
        return [(key, _fitted(kind.item_type, common.item_type, item)) for key, item in value]
    if pa.types.is_string(common):
        return json_text(plain(pa.scalar(value, kind).as_py(maps_as_pydicts="lossy")))
    return value


class _SchemaValues:
    """Values, or keys or values of pairs, of one schema."""

    def __init__(self, newest: ValueSchema, shapes: type[Shapes]) -> None:
        self._newest = newest
        if newest.type_name in ("AVRO", "JSON"):
            parsed = parse_definition(newest.definition)
            self.shape = shapes(named_schemas(parsed), is_json=newest.type_name == "JSON").of(parsed, ())
        else:
            decoder_of(newest)  # raises for a schema that cannot be decoded
            self.shape = shapes.primitive(newest.type_name)
        self._decoders: dict[bytes, Decode] = {}

    def read(self, data: bytes, written: ValueSchema) -> Value:
        """Return data of one version of the schema, as pyarrow takes it."""
        if written.type_name != self._newest.type_name:
            raise ValueError(f"the newest version is {self._newest.type_name}")
        if written.definition not in self._decoders:
            if written.type_name == "AVRO":
                decode = avro_decoder(written.definition, self._newest.definition)
            else:
                decode = decoder_of(written)
            self._decoders[written.definition] = decode
        value = self._decoders[written.definition](data)
        return None if value is None else self.shape.convert(value)


class Shapes:
    """Shapes of AVRO definitions, for values decoded from AVRO or parsed from JSON (``is_json``), and of primitive types."""

    def __init__(self, named: Mapping[str, Schema], *, is_json: bool) -> None:
        self._named = named
        self._leaves = self.leaves(is_json=is_json)
        self._columns = 0

    @classmethod
    def leaves(cls, *, is_json: bool) -> Mapping[str, Shape]:
        """Return the shapes of AVRO's primitive and logical types."""
        return _FROM_JSON if is_json else _FROM_AVRO

    @classmethod
    def primitive(cls, type_name: str) -> Shape:
        """Return the shape of a primitive schema."""
        return _PRIMITIVES.get(type_name, Shape(pa.string(), _same))

    def of(self, schema: Schema, around: tuple[str, ...]) -> Shape:
        """Return the shape of a schema inside the records named ``around``; raises Unsupported for too many nested ones."""
        self._columns += 1
        if self._columns > _MAX_COLUMNS:
            raise Unsupported(f"the schema makes more than {_MAX_COLUMNS} columns", hint="read its values as JSON")
        if isinstance(schema, list):
            held = [part for part in schema if part != "null"]
            return self.of(held[0], around) if len(held) == 1 else self.union(held, around)
        if isinstance(schema, str):
            if schema in around:
                return self.recursive(schema)
            if schema in self._named:
                return self.of(self._named[schema], around)
            return self._leaves.get(schema, _AS_JSON)
        compound = getattr(self, f"_{schema['type']}", None) if isinstance(schema["type"], str) else None
        if compound is not None:
            shape: Shape = compound(schema, around)
            return shape
        if schema["type"] in ("fixed", "bytes") and schema.get("logicalType") == "decimal":
            return _decimal(schema)
        name = schema.get("logicalType")
        return self._leaves[name] if name in self._leaves else self.of(schema["type"], around)

    def recursive(self, name: str) -> Shape:
        """Return the shape of a record inside itself; raises Unsupported if it cannot have one."""
        return _AS_JSON

    def union(self, held: list[Schema], around: tuple[str, ...]) -> Shape:
        """Return the shape of a union of several types, null not counted."""
        return _AS_JSON

    def _record(self, schema: Schema, around: tuple[str, ...]) -> Shape:
        inside = (*around, schema["name"])
        shapes = {part["name"]: self.of(part["type"], inside) for part in schema["fields"]}

        def convert(value: Value) -> Value:
            record = _expect(dict, value)
            return {name: _or_null(shape.convert, record.get(name)) for name, shape in shapes.items()}

        return Shape(pa.struct([(name, shape.kind) for name, shape in shapes.items()]), convert)

    def _array(self, schema: Schema, around: tuple[str, ...]) -> Shape:
        items = self.of(schema["items"], around)
        return Shape(
            pa.list_(items.kind), lambda value: [_or_null(items.convert, item) for item in _expect(list, value)]
        )

    def _map(self, schema: Schema, around: tuple[str, ...]) -> Shape:
        values = self.of(schema["values"], around)
        return Shape(
            pa.map_(pa.string(), values.kind),
            lambda value: [(_text(key), _or_null(values.convert, item)) for key, item in _expect(dict, value).items()],
        )

    def _enum(self, schema: Schema, around: tuple[str, ...]) -> Shape:
        return Shape(pa.string(), _text)

    def _fixed(self, schema: Schema, around: tuple[str, ...]) -> Shape:
        return _decimal(schema) if schema.get("logicalType") == "decimal" else self._leaves["bytes"]


def _or_null(convert: Convert, value: Value) -> Value:
    return None if value is None else convert(value)


def _expect(kind: type, value: Value) -> Value:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{str(value)[:40]!r} where the schema has {kind.__name__}")
    return value


def _text(value: Value) -> Value:
    _expect(str, value).encode()  # half of a surrogate pair is not text
    return value


def _integer(bits: int) -> Convert:
    def convert(value: Value) -> Value:
        if not -(1 << (bits - 1)) <= _expect(int, value) < 1 << (bits - 1):
            raise ValueError(f"{value} is not a number of {bits} bits")
        return value

    return convert


def _float(value: Value) -> Value:
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    return float(value if isinstance(value, float) else _expect(int, value))


def _stamp(unit_us: int) -> Convert:
    def convert(value: Value) -> Value:
        if isinstance(value, str):
            return datetime.fromisoformat(value)
        return _EPOCH + timedelta(microseconds=_expect(int, value) * unit_us)

    return convert


def _date(value: Value) -> Value:
    return date.fromisoformat(value) if isinstance(value, str) else date(1970, 1, 1) + timedelta(_expect(int, value))


def _decimal(schema: Schema) -> Shape:
    precision, scale = schema.get("precision"), schema.get("scale") or 0
    if not precision or precision > _MAX_DIGITS or scale > precision:
        return Shape(pa.string(), lambda value: str(plain(value)))
    step, limit = Decimal(1).scaleb(-scale), Decimal(10) ** (precision - scale)

    def convert(value: Value) -> Value:
        try:
            exact = value if isinstance(value, Decimal) else Decimal(str(value))
        except InvalidOperation as error:
            raise ValueError(f"{value!r} is not a decimal number") from error
        try:
            kept = exact.quantize(step, context=_DIGITS)
        except InvalidOperation as error:
            raise ValueError(f"{exact} has more than {precision} digits") from error
        if kept != exact or abs(kept) >= limit:
            raise ValueError(f"{exact} does not fit a decimal of {precision} digits, {scale} after the decimal point")
        return kept

    return Shape(pa.decimal128(precision, scale), convert)


def _same(value: Value) -> Value:
    return value


_AS_JSON = Shape(pa.string(), lambda value: json_text(plain(value)))
_FROM_AVRO = {
    "boolean": Shape(pa.bool_(), _same),
    "int": Shape(pa.int32(), _same),
    "long": Shape(pa.int64(), _same),
    "float": Shape(pa.float32(), _same),
    "double": Shape(pa.float64(), _same),
    "string": Shape(pa.string(), _same),
    "bytes": Shape(pa.binary(), _same),
    "timestamp-millis": Shape(STAMP, _same),
    "timestamp-micros": Shape(STAMP, _same),
    "local-timestamp-millis": Shape(LOCAL_STAMP, _same),
    "local-timestamp-micros": Shape(LOCAL_STAMP, _same),
    "date": Shape(pa.date32(), _same),
    "time-millis": Shape(pa.string(), plain),
    "time-micros": Shape(pa.string(), plain),
    "uuid": Shape(pa.string(), plain),
}
_FROM_JSON = _FROM_AVRO | {
    "boolean": Shape(pa.bool_(), lambda value: _expect(bool, value)),
    "int": Shape(pa.int32(), _integer(32)),
    "long": Shape(pa.int64(), _integer(64)),
    "float": Shape(pa.float32(), _float),
    "double": Shape(pa.float64(), _float),
    "string": Shape(pa.string(), _text),
    "bytes": Shape(pa.binary(), lambda value: b64decode(_expect(str, value), validate=True)),
    "timestamp-millis": Shape(STAMP, _stamp(1000)),
    "timestamp-micros": Shape(STAMP, _stamp(1)),
    "date": Shape(pa.date32(), _date),
    # A library's choice of text or number: kept as it is.
    "local-timestamp-millis": _AS_JSON,
    "local-timestamp-micros": _AS_JSON,
    "time-millis": _AS_JSON,
    "time-micros": _AS_JSON,
    "uuid": Shape(pa.string(), _text),
}


def _moment(value: Value) -> Value:
    """Return an instant's text, up to nanoseconds, as a datetime of microseconds."""
    return datetime.fromisoformat(value)  # which cuts digits beyond the sixth


_PRIMITIVES = {
    "BOOLEAN": Shape(pa.bool_(), _same),
    "INT8": Shape(pa.int8(), _same),
    "INT16": Shape(pa.int16(), _same),
    "INT32": Shape(pa.int32(), _same),
    "INT64": Shape(pa.int64(), _same),
    "FLOAT": Shape(pa.float32(), _same),
    "DOUBLE": Shape(pa.float64(), _same),
    "BYTES": Shape(pa.binary(), _same),
    "DATE": Shape(STAMP, _moment),
    "TIMESTAMP": Shape(STAMP, _moment),
    "INSTANT": Shape(STAMP, _moment),
    "LOCAL_DATE": Shape(pa.date32(), date.fromisoformat),
    "LOCAL_DATE_TIME": Shape(LOCAL_STAMP, _moment),
}


# -- value columns -----------------------------------------------------------------------------------------------------
# The columns ``value`` and ``value_error`` of messages: payloads decoded by their topics' schemas, which travel with the scan.


NEEDS = ("schemaVersion", "payload", "key", "keyEncoded", "nullValue", "encrypted", "chunks")
"""Columns of ``store.scan.messages`` that a value is made of, in the order of ``Encoded``."""


class Values(Struct, frozen=True):
    """What decoding needs: topic → its schemas. ``typed``: a column of the newest version's type, else JSON text.

    ``shapes``: the columns for the parts of a typed value.
    """

    schemas: Mapping[str, TopicSchemas] = field(default_factory=dict)
    typed: bool = False
    shapes: type[Shapes] = Shapes

    @property
    def kind(self) -> pa.DataType:
        """The type of column ``value``; raises Unsupported when the topics have no type in common, EntryCorrupt."""
        return TypedValues(self.newest, self.shapes).kind if self.typed else pa.string()

    @property
    def newest(self) -> ValueSchema:
        """The newest version of the schema that all topics share; raises Unsupported."""
        every = [*self.schemas.values()]
        newest = every[0].newest if every and all(schemas == every[0] for schemas in every) else None
        if newest is None:
            having = sum(schemas.newest is not None for schemas in every)
            raise Unsupported(
                f"a typed value needs one topic with a schema; there are {len(every)} topics, {having} with one",
                hint="name one topic, or take values as JSON text",
            )
        return newest


class ValueColumns:
    """Decodes the values of batches of messages; keeps the decoders. ``versioned``: into columns of all versions, of one topic."""

    def __init__(self, values: Values, versioned: VersionedValues | None = None) -> None:
        self._kind = values.kind if versioned is None else versioned.kind
        self._readers = {
            topic: ValueReader(
                schemas,
                versioned.value
                if versioned is not None
                else TypedValues(values.newest, values.shapes).value
                if values.typed
                else PlainValues().text,
            )
            for topic, schemas in values.schemas.items()
        }
        self._unknown = ValueReader(TopicSchemas(), PlainValues().text)

    def read(self, batch: pa.RecordBatch, topics: Sequence[str | None], *, whole: bool = False) -> dict[str, pa.Array]:
        """Return the value columns for a batch, which has the columns NEEDS; ``topics``: the topic of each row.

        ``whole``: chunks are joined; otherwise a row of a message in several chunks is one chunk.
        """
        rows = zip(*(batch.column(name).to_pylist() for name in NEEDS), strict=True)
        read = [
            self._readers.get(topic or "", self._unknown).read(Encoded._make((*row[:-1], not whole and row[-1] > 1)))
            for topic, row in zip(topics, rows, strict=True)
        ]
        values, errors = zip(*read, strict=True) if read else ((), ())
        column = strings(values, self._kind) if self._kind == pa.string() else pa.array(values, self._kind)
        return {"value": column, "value_error": strings(errors, pa.string())}


# -- connector shapes --------------------------------------------------------------------------------------------------
# Typed values as the Spark connector's columns: what differs from ``store.scan.typed_values``.
#
# Upstream: ``SchemaUtils.avro2SqlType`` and ``si2SqlType`` of streamnative/pulsar-spark 3.4.1. A time of day is its number, a union of
# several types a struct of ``member0``, ``member1`` …, a record inside itself is refused. Types that the connector refuses altogether
# (KEY_VALUE, INSTANT, LOCAL_DATE …) are as ``store.scan.typed_values`` decodes them.


_WIDER = ({"int", "long"}, {"float", "double"})
_KINDS: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (float,),
    "double": (float,),
    "string": (str,),
    "enum": (str,),
    "bytes": (bytes,),
    "fixed": (bytes,),
    "array": (list,),
    "map": (dict,),
    "record": (dict,),
}


class ConnectorShapes(Shapes):
    """Shapes of the Spark connector."""

    @classmethod
    def leaves(cls, *, is_json: bool) -> Mapping[str, Shape]:
        """Return the leaves of ``Shapes``, but times as AVRO's numbers."""
        leaves = super().leaves(is_json=is_json)
        day = {f"time-{unit}": Shape(kind, partial(_of_day, per_us)) for unit, kind, per_us in _UNITS}
        local = {f"local-timestamp-{unit}": Shape(pa.int64(), partial(_of_epoch, per_us)) for unit, _, per_us in _UNITS}
        return {**leaves, **day, **local}

    @classmethod
    def primitive(cls, type_name: str) -> Shape:
        """Return the primitive of ``Shapes``, but a DATE as a day."""
        shape = super().primitive(type_name)
        if type_name != "DATE":
            return shape
        return Shape(pa.date32(), lambda value: shape.convert(value).date())

    def recursive(self, name: str) -> Shape:
        """Raise Unsupported, as the connector does."""
        raise Unsupported(f"record {name} inside itself has no columns", hint="set allowDifferentTopicSchemas to true")

    def union(self, held: list[Schema], around: tuple[str, ...]) -> Shape:
        """Return int and long as long, float and double as double, otherwise a struct with a member for each type."""
        names = [part if isinstance(part, str) else "" for part in held]
        if set(names) in _WIDER:
            return self.of("long" if "long" in names else "double", around)
        members = [self.of(part, around) for part in held]
        kinds = [self._python_kinds(part) for part in held]

        def convert(value: Value) -> Value:
            for index, (member, kind) in enumerate(zip(members, kinds, strict=True)):
                # Python's True is an int too, and must not become the union's number.
                if kind == () or (isinstance(value, kind) and isinstance(value, bool) == (bool in kind)):
                    return {f"member{index}": member.convert(value)}
            raise ValueError(f"{value!r} fits no type of its union")

        return Shape(pa.struct([(f"member{index}", member.kind) for index, member in enumerate(members)]), convert)

    def _python_kinds(self, schema: Schema) -> tuple[type, ...]:
        """Return the Python types of decoded values of a schema; empty for a logical type's own."""
        if isinstance(schema, str):
            return _KINDS[schema] if schema in _KINDS else self._python_kinds(self._named[schema])
        return () if "logicalType" in schema else self._python_kinds(schema["type"])


def _of_day(per_us: int, value: Value) -> Value:
    if not isinstance(value, time):
        return value
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return (seconds * 1_000_000 + value.microsecond) // per_us


def _of_epoch(per_us: int, value: Value) -> Value:
    if not isinstance(value, datetime):
        return value
    gone = value.replace(tzinfo=UTC) - _EPOCH
    return ((gone.days * 86_400 + gone.seconds) * 1_000_000 + gone.microseconds) // per_us


_UNITS: tuple[tuple[str, pa.DataType, int], ...] = (("millis", pa.int32(), 1000), ("micros", pa.int64(), 1))


_PROPERTIES = pa.map_(pa.string(), pa.string())
_ID = ("ledgerId", "entryId", "batchIndex")
_SINGLE = "value"
"""What a value that is no record is called."""


class _Known(Struct, frozen=True):
    """One column: its type, the columns of ``store.scan.messages`` it is computed from, and how."""

    kind: pa.DataType
    needs: tuple[str, ...]
    make: Callable[[pa.RecordBatch, TopicName], pa.Array]


class KnownColumns(Struct, frozen=True):
    """The connector's columns of messages of one topic, whose schemas say what values are.

    ``raw``: the value is the payload's bytes, whatever the schema (the connector's
    ``allowDifferentTopicSchemas``). ``only``: these columns; empty: all.
    """

    topic: TopicName
    schemas: TopicSchemas = field(default_factory=TopicSchemas)
    raw: bool = False
    only: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns, the value's first; raises Unsupported, EntryCorrupt for a value without a type."""
        fields = [*self._value_fields.items()]
        fields += [(name, known.kind) for name, known in _COLUMNS.items()]
        names = [name for name, _ in fields]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise Unsupported(f"{self.topic}: {twice[0]} is a field of its values too", hint="read raw bytes")
        kinds = dict(fields)
        return pa.schema([(name, kinds[name]) for name in self.only or names])

    @property
    def needs(self) -> tuple[str, ...]:
        """The columns of ``store.scan.messages`` from which these columns are computed."""
        names = self.schema.names
        needs = [need for name in names for need in _COLUMNS.get(name, _NOTHING).needs]
        if any(name in names for name in self._value_fields):
            needs += NEEDS
        return tuple(dict.fromkeys(needs))

    def converter(self) -> Callable[[pa.RecordBatch], tuple[pa.RecordBatch, pa.Array]]:
        """Return the function that turns batches with the columns ``needs`` into batches of ``schema``, with the
        reasons for missing values."""
        schema, values = self.schema, self._values
        wanted = any(name in schema.names for name in self._value_fields)
        readers = ValueColumns(values) if values is not None and wanted else None

        def convert(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
            typed, errors = self._read(batch, readers) if wanted else ({}, pa.nulls(len(batch), pa.string()))
            columns = [
                typed[name] if name in typed else _COLUMNS[name].make(batch, self.topic) for name in schema.names
            ]
            return pa.RecordBatch.from_arrays(columns, schema=schema), errors

        return convert

    @property
    def _newest(self) -> ValueSchema | None:
        """The schema for decoding values; None: values are raw bytes."""
        newest = None if self.raw else self.schemas.newest
        return None if newest is None or newest.type_name in ("BYTES", "NONE") else newest

    @property
    def _values(self) -> Values | None:
        return None if self._newest is None else Values({str(self.topic): self.schemas}, True, ConnectorShapes)

    @property
    def _value_fields(self) -> Mapping[str, pa.DataType]:
        """The columns of values by name."""
        values = self._values
        if values is None:
            return {_SINGLE: pa.binary()}
        if not pa.types.is_struct(values.kind):
            return {_SINGLE: values.kind}
        return {part.name: part.type for part in values.kind}

    def _read(self, batch: pa.RecordBatch, readers: ValueColumns | None) -> tuple[dict[str, pa.Array], pa.Array]:
        """Return the columns of a batch's values, and the reasons for those that cannot be decoded."""
        names = [*self._value_fields]
        if readers is None:
            nothing = pc.or_(batch.column("encrypted"), batch.column("nullValue"))
            bytes_of = pc.if_else(nothing, pa.scalar(None, pa.binary()), batch.column("payload"))
            return {names[0]: bytes_of}, pa.nulls(len(batch), pa.string())
        at = batch.schema.names.index("schemaVersion")
        # A consumer decodes what was sent without a schema by the topic's newest.
        newest = pc.fill_null(batch.column(at), max(self.schemas.versions))
        decoded = readers.read(
            batch.set_column(at, "schemaVersion", newest), [str(self.topic)] * len(batch), whole=True
        )
        value = decoded["value"]
        flat = value.flatten() if pa.types.is_struct(value.type) else [value]
        return dict(zip(names, flat, strict=True)), decoded["value_error"]


# -- message ids ------------------------------------------------------------------------------------------------------

_LEDGER, _ENTRY, _PARTITION, _BATCH_INDEX, _BATCH_SIZE, _FIRST_CHUNK = 0x08, 0x10, 0x18, 0x20, 0x30, 0x3A
"""Tags of the fields of ``MessageIdData`` (PulsarApi.proto), all varints but the last."""
_LONGEST_VARINT = 10


def message_ids(batch: pa.RecordBatch, partition: int) -> pa.Array:
    """Return the ids of messages as ``MessageId.toByteArray`` of the Java client 4.0 has them: a serialized ``MessageIdData``.

    A message outside a batch has no batch index and batch size 0; a chunked message also names its first chunk (``ChunkMessageIdImpl``).
    """
    ledgers, entries, indexes, sizes = (
        numbers_of(batch.column(name))[0].astype(np.int64) for name in (*_ID, "batchSize")
    )
    of_partition = np.full(len(batch), partition, np.int64)
    fields = [
        (_LEDGER, ledgers, ledgers >= 0),
        (_ENTRY, entries, entries >= 0),
        (_PARTITION, of_partition, of_partition >= 0),
        (_BATCH_INDEX, indexes, indexes >= 0),
        (_BATCH_SIZE, sizes, sizes >= 0),
    ]
    ids = _packed(fields, len(batch))
    firsts = batch.column("firstChunk")
    if firsts.null_count == len(firsts):
        return ids
    pairs = zip(ids.to_pylist(), firsts.to_pylist(), strict=True)
    return pa.array([data + _nested(first, partition) for data, first in pairs], pa.binary())


def _packed(fields: list[tuple[int, Array, Array]], count: int) -> pa.Array:
    """Return protobuf messages for ``count`` rows from each field's tag, values, and mask of rows that have it."""
    data: list[Array] = []
    kept: list[Array] = []
    for tag, values, present in fields:
        data.append(np.full(count, tag, np.uint8))
        kept.append(present)
        rest, more = values.astype(np.uint64), present
        for _ in range(_LONGEST_VARINT):
            if not more.any():
                break
            following = rest >> np.uint64(7)
            data.append((rest & np.uint64(0x7F)).astype(np.uint8) | np.where(following > 0, 0x80, 0).astype(np.uint8))
            kept.append(more)
            rest, more = following, more & (following > 0)
    mask = np.stack(kept, axis=1)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(mask.sum(axis=1), out=offsets[1:])
    out = np.stack(data, axis=1)[mask]
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(out)])


def _nested(first: dict[str, int] | None, partition: int) -> bytes:
    if first is None:
        return b""
    row = [(_LEDGER, first["ledgerId"]), (_ENTRY, first["entryId"]), (_PARTITION, partition), (_BATCH_SIZE, 0)]
    fields = [(tag, np.array([value]), np.array([value >= 0])) for tag, value in row]
    data: bytes = _packed(fields, 1)[0].as_py()
    return bytes([_FIRST_CHUNK, len(data)]) + data


# -- columns ----------------------------------------------------------------------------------------------------------


def _stamps(name: str) -> Callable[[pa.RecordBatch, TopicName], pa.Array]:
    """Return the function that turns the named column into timestamps."""
    return lambda batch, topic: timestamps(batch.column(name))


def timestamps(times_ms: pa.Array) -> pa.Array:
    """Return times in ms as timestamps; 0 (no such time) and times out of range are null."""
    shown = pc.and_(pc.greater(times_ms, 0), pc.less_equal(times_ms, MAX_TIME_MS))
    return pc.multiply(pc.if_else(shown, times_ms, None), 1000).cast(STAMP)


def _key_bytes(batch: pa.RecordBatch, topic: TopicName) -> pa.Array:
    """Return keys as producers gave them; a key that says that it is base64, and is not, as it is there."""
    keys, encoded = batch.column("key"), batch.column("keyEncoded")
    if not encoded.true_count:
        return keys.cast(pa.binary())
    parts = []
    for key, is_base64 in zip(keys.to_pylist(), encoded.to_pylist(), strict=True):
        try:
            parts.append(key_bytes(key, is_base64))
        except ValueError:
            parts.append(key.encode())
    return pa.array(parts, pa.binary())


def _properties(batch: pa.RecordBatch, topic: TopicName) -> pa.Array:
    """Return properties; of a repeated name the last value counts."""
    pairs: list[list[tuple[str, str]]] = batch.column("properties").to_pylist()
    if all(len(dict(row)) == len(row) for row in pairs):
        return batch.column("properties")
    return pa.array([list(dict(row).items()) for row in pairs], _PROPERTIES)


_NOTHING = _Known(pa.null(), (), lambda batch, topic: pa.nulls(len(batch)))
_COLUMNS: Mapping[str, _Known] = {
    "__key": _Known(pa.binary(), ("key", "keyEncoded"), _key_bytes),
    "__topic": _Known(pa.string(), (), lambda batch, topic: pa.array([str(topic)] * len(batch), pa.string())),
    "__messageId": _Known(
        pa.binary(), (*_ID, "batchSize", "firstChunk"), lambda batch, topic: message_ids(batch, topic.partition_index)
    ),
    "__publishTime": _Known(STAMP, ("publishTime",), _stamps("publishTime")),
    "__eventTime": _Known(STAMP, ("eventTime",), _stamps("eventTime")),
    "__messageProperties": _Known(_PROPERTIES, ("properties",), _properties),
}
