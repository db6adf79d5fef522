"""Typed values as the Spark connector's columns: what differs from ``store.scan.typed_values``.

Upstream: ``SchemaUtils.avro2SqlType`` and ``si2SqlType`` of streamnative/pulsar-spark 3.4.1. A time of day is its number, a union of
several types a struct of ``member0``, ``member1`` …, a record inside itself is refused. Types that the connector refuses altogether
(KEY_VALUE, INSTANT, LOCAL_DATE …) are here what ``store.scan.typed_values`` makes of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, time
from functools import partial

import pyarrow as pa

from store.codec.avro import Schema
from store.codec.value import Value
from store.errors import Unsupported
from store.scan.typed_values import Shape, Shapes

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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
