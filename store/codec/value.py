"""Decodes the value of a message by its schema: bytes → JSON values.

Upstream: the schemas of ``org.apache.pulsar.client.impl.schema`` (Pulsar 4.0.8); AVRO is decoded by fastavro. Not decoded: both
PROTOBUF types. Numbers are big-endian; times are text as Java prints them, bytes are base64, a decimal is its digits as text,
NaN and the infinities are those words.
"""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock_time
from decimal import Decimal
from functools import cached_property, partial
from typing import Any
from uuid import UUID

from msgspec import Struct, field

from pulsar_admin.store.codec.avro import avro_decoder
from pulsar_admin.store.codec.schema import SchemaEntry
from pulsar_admin.store.errors import EntryCorrupt, StoreError, Unsupported, reason_of

Value = Any  # what JSON can say, or what _plain turns into it: a schema decides
Decode = Callable[[bytes], Value]

DECODE_ERRORS = (ValueError, EOFError, struct.error, LookupError, TypeError, ArithmeticError, RecursionError)
"""What bytes that are no such value make struct, json and fastavro raise."""
_EPOCH = datetime(1970, 1, 1)
_DAY_NANOS = 86_400 * 10**9


class ValueSchema(Struct, frozen=True, dict=True):
    """One version of a topic's schema; ``type_name`` is upstream's SchemaType."""

    type_name: str
    definition: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_separated(self) -> bool:
        """Whether the key of a KEY_VALUE is the message's key."""
        return self.type_name == "KEY_VALUE" and self.properties.get("kv.encoding.type") == "SEPARATED"

    @cached_property
    def key_and_value(self) -> tuple[ValueSchema, ValueSchema]:
        """The two schemas of a KEY_VALUE (``KeyValueSchemaInfo``); raises EntryCorrupt."""
        try:
            key, value = (
                ValueSchema(
                    self.properties.get(f"{part}.schema.type", "BYTES"),
                    definition or b"",
                    dict(json.loads(self.properties.get(f"{part}.schema.properties") or "{}")),
                )
                for part, definition in zip(("key", "value"), split_pair(self.definition), strict=True)
            )
        except DECODE_ERRORS as error:
            raise EntryCorrupt(f"the definition of a KEY_VALUE schema: {reason_of(error)}") from error
        return key, value


def value_schema(entry: SchemaEntry) -> ValueSchema:
    """Return those parts of a schema version that determine how values are encoded."""
    return ValueSchema(entry.type_name, entry.definition, entry.properties)


def split_pair(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Return the two parts of ``i32 n | n bytes | i32 m | m bytes``; a length of −1 is null. Raises ValueError, struct.error."""
    parts: list[bytes | None] = []
    at = 0
    for _ in range(2):
        (size,) = struct.unpack_from(">i", data, at)
        at += 4
        if size < -1 or size > len(data) - at:
            raise ValueError(f"a part of {size} bytes in {len(data)} bytes")
        parts.append(None if size < 0 else data[at : at + size])
        at += max(size, 0)
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes after its two parts")
    return parts[0], parts[1]


def join_pair(key: bytes, value: bytes) -> bytes:
    """Return two parts as ``split_pair`` reads them."""
    return b"".join(struct.pack(">i", len(part)) + part for part in (key, value))


def decoder_of(schema: ValueSchema) -> Decode:
    """Return a decoder for values of a schema, KEY_VALUE excepted; raises Unsupported for a type that is not decoded.

    The decoder raises DECODE_ERRORS for bytes that are not such a value.
    """
    if schema.type_name == "AVRO":
        return avro_decoder(schema.definition)
    if schema.type_name == "JSON":
        return _json
    decoder = _PRIMITIVES.get(schema.type_name)
    if decoder is None:
        raise Unsupported(f"values of schema type {schema.type_name} are not decoded", hint="read their payload")
    return decoder


def json_text(value: Value) -> str:
    """Return a value of JSON's own types as JSON."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can only say in its escaped form
        return json.dumps(value, separators=(",", ":"))
    return text


def plain(value: Value) -> Value:
    """Return a value converted to JSON's own types."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, float) and value - value != 0:
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, (str, int, float)):
        return value
    return _TEXTS[type(value)](value)


def key_bytes(key: str | None, is_base64: bool) -> bytes | None:
    """Return the bytes of a message's key; raises ValueError if ``is_base64`` and the key is not base64."""
    if key is None or not is_base64:
        return None if key is None else key.encode()
    try:
        return b64decode(key, validate=True)
    except Base64Error as error:
        raise ValueError(f"its key is not base64: {reason_of(error)}") from error


def undecodable(schema: ValueSchema, error: Exception) -> str:
    """Return in one line why a value of a schema could not be decoded."""
    if isinstance(error, StoreError):
        return error.message
    return f"no value of its {schema.type_name} schema: {reason_of(error)}"


# -- values of a single kind ------------------------------------------------------------------------------------------


def _unpack(form: str, data: bytes) -> tuple[Any, ...]:  # Any: numbers, as the form says
    return struct.unpack(form, data)


def _number(form: str, data: bytes) -> Value:
    return _unpack(form, data)[0]


def _fraction(nanos: int) -> str:
    """Return 0, 3, 6 or 9 digits, as Java prints them."""
    if not nanos:
        return ""
    digits = f"{nanos:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return "." + digits


def _date_time(seconds: int, nanos: int) -> str:
    """Return a local date and time; raises OverflowError beyond the years 1 to 9999."""
    return (_EPOCH + timedelta(seconds=seconds)).isoformat() + _fraction(nanos)


def _instant(data: bytes) -> Value:
    seconds, nanos = _unpack(">qi", data)
    if not 0 <= nanos < 10**9:
        raise ValueError(f"{nanos} ns of a second")
    return _date_time(seconds, nanos) + "Z"


def _milliseconds(data: bytes) -> Value:
    seconds, ms = divmod(_number(">q", data), 1000)
    return _date_time(seconds, ms * 10**6) + "Z"


def _time_of_day(nanos: int) -> str:
    if not 0 <= nanos < _DAY_NANOS:
        raise ValueError(f"{nanos} ns of a day")
    seconds, rest = divmod(nanos, 10**9)
    return (_EPOCH + timedelta(seconds=seconds)).time().isoformat() + _fraction(rest)


def _day(days: int) -> str:
    return (_EPOCH + timedelta(days=days)).date().isoformat()


def _json(data: bytes) -> Value:
    return json.loads(data.decode(), parse_constant=_no_constant)


def _no_constant(word: str) -> Value:
    raise ValueError(f"{word} is not JSON")


_PRIMITIVES: dict[str, Decode] = {
    "STRING": bytes.decode,
    "BYTES": bytes,
    "BOOLEAN": lambda data: _number(">b", data) != 0,
    "INT8": partial(_number, ">b"),
    "INT16": partial(_number, ">h"),
    "INT32": partial(_number, ">i"),
    "INT64": partial(_number, ">q"),
    "FLOAT": partial(_number, ">f"),
    "DOUBLE": partial(_number, ">d"),
    "DATE": _milliseconds,  # java.util.Date: an instant
    "TIMESTAMP": _milliseconds,
    "TIME": lambda data: _time_of_day(_number(">q", data) % 86_400_000 * 10**6),  # java.sql.Time may carry a date
    "INSTANT": _instant,
    "LOCAL_DATE": lambda data: _day(_number(">q", data)),
    "LOCAL_TIME": lambda data: _time_of_day(_number(">q", data)),
    "LOCAL_DATE_TIME": lambda data: f"{_day(_unpack('>qq', data)[0])}T{_time_of_day(_unpack('>qq', data)[1])}",
}


def _stamp(value: datetime) -> str:
    local = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    return _date_time((local - _EPOCH) // timedelta(seconds=1), value.microsecond * 1000) + (
        "Z" if value.tzinfo else ""
    )


_TEXTS: dict[type, Callable[[Any], str]] = {  # Any: a value of the key's type
    bytes: lambda value: b64encode(value).decode(),
    datetime: _stamp,
    date: date.isoformat,
    clock_time: lambda value: value.replace(microsecond=0).isoformat() + _fraction(value.microsecond * 1000),
    Decimal: str,
    UUID: str,
}
