"""Values as typed columns: the Arrow type of a topic's newest schema, and values turned into what such a column takes.

A record is a struct, a map a map, an array a list; a union with null is what it holds besides; every other union, and a record
inside itself, is JSON text. A time of day is text too (Spark before 4.1 has no type for it). AVRO values of older versions are
resolved to the newest; JSON knows no such rule: what the text leaves out is null.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from functools import partial

import pyarrow as pa
from msgspec import Struct, field

from pulsar_admin.store.codec.avro import Schema, avro_decoder, named_schemas, parse_definition
from pulsar_admin.store.codec.value import Decode, Value, ValueSchema, decoder_of, json_text, plain
from pulsar_admin.store.errors import Unsupported
from pulsar_admin.store.model.schemas import Encoded, PlainValues, TopicSchemas, ValueReader, key_and_value_bytes
from pulsar_admin.store.scan.arrow import strings

STAMP = pa.timestamp("us", tz="UTC")
LOCAL_STAMP = pa.timestamp("us")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_DIGITS = 38  # of Arrow's and Spark's decimals
_DIGITS = Context(prec=_MAX_DIGITS)
_MAX_COLUMNS = 1 << 16  # records that name one another twice double with each
Convert = Callable[[Value], Value]


class Shape(Struct, frozen=True):
    """A column: its Arrow type, and what turns a decoded value, not null, into what pyarrow takes; raises DECODE_ERRORS."""

    kind: pa.DataType
    convert: Convert


class TypedValues:
    """Values as a column of the type ``kind``, that of a topic's newest schema; keeps a decoder for each version.

    Raises Unsupported for a type that is not decoded, EntryCorrupt for a bad definition.
    """

    def __init__(self, newest: ValueSchema, shapes: type[Shapes] | None = None) -> None:
        """SHAPES: which columns the parts of a value become; ``Shapes`` unless said."""
        shapes = shapes or Shapes
        if newest.type_name == "KEY_VALUE":
            self._parts = [_Part(part, shapes) for part in newest.key_and_value]
            names = zip(("key", "value"), self._parts, strict=True)
            self.kind = pa.struct([(name, part.shape.kind) for name, part in names])
        else:
            self._parts = [_Part(newest, shapes)]
            self.kind = self._parts[0].shape.kind
        self._newest = newest

    def value(self, schema: ValueSchema, message: Encoded) -> Value:
        """Return the value of MESSAGE, written with SCHEMA, as pyarrow takes it."""
        if schema.type_name != self._newest.type_name:
            raise ValueError(f"the newest version is {self._newest.type_name}")
        if schema.type_name != "KEY_VALUE":
            return self._parts[0].read(message.payload, schema)
        found = zip(self._parts, key_and_value_bytes(schema, message), schema.key_and_value, strict=True)
        key, value = (None if data is None else part.read(data, written) for part, data, written in found)
        return {"key": key, "value": value}


class _Part:
    """Values, or keys or values of pairs, of one schema."""

    def __init__(self, newest: ValueSchema, shapes: type[Shapes]) -> None:
        self._newest = newest
        self.shape = _shape(newest, shapes)
        self._decoders: dict[bytes, Decode] = {}

    def read(self, data: bytes, written: ValueSchema) -> Value:
        """Return DATA, of a version WRITTEN of the schema, as pyarrow takes it."""
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


def _shape(schema: ValueSchema, shapes: type[Shapes]) -> Shape:
    if schema.type_name in ("AVRO", "JSON"):
        parsed = parse_definition(schema.definition)
        return shapes(named_schemas(parsed), is_json=schema.type_name == "JSON").of(parsed, ())
    decoder_of(schema)  # raises for what is not decoded
    return shapes.primitive(schema.type_name)


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
        """Return the shape of SCHEMA inside the records named AROUND; raises Unsupported where there are too many."""
        self._columns += 1
        if self._columns > _MAX_COLUMNS:
            raise Unsupported(f"the schema makes more than {_MAX_COLUMNS} columns", hint="read its values as JSON")
        if isinstance(schema, list):
            return self._union(schema, around)
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
        """Return the shape of record NAME inside itself; raises Unsupported where it can have none."""
        return _AS_JSON

    def union(self, held: list[Schema], around: tuple[str, ...]) -> Shape:
        """Return the shape of a union of HELD, several types, null left out."""
        return _AS_JSON

    def _union(self, schema: list[Schema], around: tuple[str, ...]) -> Shape:
        held = [part for part in schema if part != "null"]
        return self.of(held[0], around) if len(held) == 1 else self.union(held, around)

    def _record(self, schema: Schema, around: tuple[str, ...]) -> Shape:
        inside = (*around, schema["name"])
        shapes = {part["name"]: self.of(part["type"], inside) for part in schema["fields"]}

        def convert(value: Value) -> Value:
            found = _expect(dict, value)
            return {name: _or_null(shape.convert, found.get(name)) for name, shape in shapes.items()}

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
            raise ValueError(f"{exact} is not a decimal of {precision} digits, {scale} of them behind the point")
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
    """What to decode with: topic → its schemas. ``typed``: as a column of their newest version's type, else as JSON text.

    ``shapes``: which columns the parts of a typed value become.
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
        found = [*self.schemas.values()]
        newest = found[0].newest if found and all(schemas == found[0] for schemas in found) else None
        if newest is None:
            having = sum(schemas.newest is not None for schemas in found)
            raise Unsupported(
                f"a typed value needs one topic with a schema; there are {len(found)} topics, {having} with one",
                hint="name one topic, or take values as JSON text",
            )
        return newest


class ValueColumns:
    """Decodes the values of batches of messages; keeps the decoders."""

    def __init__(self, values: Values) -> None:
        self._kind = values.kind
        self._readers = {topic: _reader(schemas, values) for topic, schemas in values.schemas.items()}
        self._unknown = ValueReader(TopicSchemas(), PlainValues().text)

    def read(self, batch: pa.RecordBatch, topics: Sequence[str | None], *, whole: bool = False) -> dict[str, pa.Array]:
        """Return the columns for BATCH, which has the columns NEEDS; TOPICS names the topic of each row.

        WHOLE: chunks are joined, else a row of several is one of them.
        """
        rows = zip(*(batch.column(name).to_pylist() for name in NEEDS), strict=True)
        found = [
            self._readers.get(topic or "", self._unknown).read(Encoded._make((*row[:-1], not whole and row[-1] > 1)))
            for topic, row in zip(topics, rows, strict=True)
        ]
        values, errors = zip(*found, strict=True) if found else ((), ())
        column = strings(values, self._kind) if self._kind == pa.string() else pa.array(values, self._kind)
        return {"value": column, "value_error": strings(errors, pa.string())}


def _reader(schemas: TopicSchemas, values: Values) -> ValueReader:
    return ValueReader(schemas, TypedValues(values.newest, values.shapes).value if values.typed else PlainValues().text)


# -- connector shapes --------------------------------------------------------------------------------------------------
# Typed values as the Spark connector's columns: what differs from ``store.scan.typed_values``.
#
# Upstream: ``SchemaUtils.avro2SqlType`` and ``si2SqlType`` of streamnative/pulsar-spark 3.4.1. A time of day is its number, a union of
# several types a struct of ``member0``, ``member1`` …, a record inside itself is refused. Types that the connector refuses altogether
# (KEY_VALUE, INSTANT, LOCAL_DATE …) are here what ``store.scan.typed_values`` makes of them.


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
        """Return those of ``Shapes``, times as the numbers that AVRO has."""
        found = super().leaves(is_json=is_json)
        day = {f"time-{unit}": Shape(kind, partial(_of_day, per_us)) for unit, kind, per_us in _UNITS}
        local = {f"local-timestamp-{unit}": Shape(pa.int64(), partial(_of_epoch, per_us)) for unit, _, per_us in _UNITS}
        return {**found, **day, **local}

    @classmethod
    def primitive(cls, type_name: str) -> Shape:
        """Return that of ``Shapes``; a DATE is a day."""
        found = super().primitive(type_name)
        if type_name != "DATE":
            return found
        return Shape(pa.date32(), lambda value: found.convert(value).date())

    def recursive(self, name: str) -> Shape:
        """Raise Unsupported, as the connector does."""
        raise Unsupported(f"record {name} inside itself has no columns", hint="set allowDifferentTopicSchemas to true")

    def union(self, held: list[Schema], around: tuple[str, ...]) -> Shape:
        """Return int and long as long, float and double as double, else a struct with a member a type."""
        names = [part if isinstance(part, str) else "" for part in held]
        if set(names) in _WIDER:
            return self.of("long" if "long" in names else "double", around)
        members = [self.of(part, around) for part in held]
        kinds = [self._python_kinds(part) for part in held]

        def convert(value: Value) -> Value:
            for index, (member, kind) in enumerate(zip(members, kinds, strict=True)):
                if kind == () or (isinstance(value, kind) and isinstance(value, bool) == (bool in kind)):
                    return {f"member{index}": member.convert(value)}
            raise ValueError(f"{value!r} is of no type of its union")

        return Shape(pa.struct([(f"member{index}", member.kind) for index, member in enumerate(members)]), convert)

    def _python_kinds(self, schema: Schema) -> tuple[type, ...]:
        """Return what decoded values of SCHEMA are; nothing: a logical type's own."""
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
