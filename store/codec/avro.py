"""Decodes values of AVRO definitions with fastavro, with limits: a few bytes could otherwise expand without end.

An array of values that take no bytes may claim any length, and records that each contain the next one twice double the
number of values: thirty of them make 2³⁰ values from no byte. A definition is accepted only if B bytes of data can hold
at most VALUES_PER_BYTE × B values more than the definition has bytes; checking it takes time linear in its size.

A record inside itself may be nested as deeply as there are bytes: fastavro's compiled reader then overflows the C
stack, which kills the process; its Python reader raises RecursionError.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, Inexact
from functools import partial
from io import BytesIO
from typing import Any

from pulsar_admin.store.codec.strict_values import levels
from pulsar_admin.store.errors import EntryCorrupt, reason_of
from pulsar_admin.store.wording import counted

Schema = Any  # a parsed definition: a name, a dict or, for a union, a list

DEPTH_MAX = 300
"""How deep lists and objects of a definition may lie in each other, whatever the stack of an interpreter; a record in a record is three."""
VALUES_PER_BYTE = 16
"""Values, also nulls and records, that a byte may stand for: a field that may be null is two in one byte."""

_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Inexact])
_PLAIN_BITS = 4096  # so far the quadratic way is the faster


def avro_decoder(writer: bytes, reader: bytes | None = None) -> Callable[[bytes], Any]:  # Any: the definition decides
    """Return a decoder for values of an AVRO definition, resolved to the definition ``reader``; raises EntryCorrupt for a bad one.

    Logical types become Python's. The decoder raises ValueError, EOFError, LookupError, TypeError, ArithmeticError or
    RecursionError.
    """
    written = parse_definition(writer)
    unpaid = _Values(named_schemas(written)).unpaid(written)
    is_recursive = _is_recursive(written, set())
    if unpaid > len(writer):
        raise EntryCorrupt(f"the AVRO definition of a schema: its records make {unpaid} values of no bytes")
    # fastavro's own way to read decimals takes a minute for half a megabyte.
    from fastavro.read import LOGICAL_READERS

    LOGICAL_READERS["bytes-decimal"] = LOGICAL_READERS["fixed-decimal"] = _decimal
    return partial(_decode, written, None if reader is None else parse_definition(reader), is_recursive)


def avro_encoder(definition: bytes) -> Callable[[Any], bytes]:  # Any: the definition decides
    """Return an encoder for values of an AVRO definition; raises EntryCorrupt for a bad one.

    The encoder raises the errors of a decoder. Fields that the definition lacks are dropped.
    """
    return partial(_encode, parse_definition(definition))


def parse_definition(definition: bytes) -> Schema:
    """Return an AVRO definition in fastavro's form: full names, each defined once; raises EntryCorrupt."""
    from fastavro.schema import SchemaParseException, parse_schema

    try:
        schema = json.loads(definition)
        if isinstance(schema, dict):
            schema.pop("__fastavro_parsed", None)  # fastavro would believe it
        deque(levels(schema, DEPTH_MAX), 0)
        parsed = parse_schema(schema, _ignore_default_error=True)  # as Pulsar: its parsers do not validate defaults
        for part in _all_schemas(parsed):
            if isinstance(part, dict):
                # fastavro lets names pass that are not text, and logical types that are none.
                for named in (part, *part.get("fields", ())):
                    name = named.get("name", "")
                    if not isinstance(name, str):
                        raise ValueError(f"the name {name!r} is not text")
                    name.encode()  # half of a surrogate pair names nothing
                if not isinstance(part.get("logicalType", ""), str):
                    del part["logicalType"]
    except (*_NO_DEFINITION, SchemaParseException) as error:
        raise EntryCorrupt(f"the AVRO definition of a schema: {reason_of(error)}") from error
    return parsed


def find_flaw(definition: bytes) -> str | None:
    """Return why AVRO of Java refuses a definition that ``parse_definition`` takes; None if it takes it as well.

    Brokers differ in what they take in names: this takes a ``$`` as 4.2 does, and any namespace as 4.0 does.
    """
    whole = json.loads(definition)
    if not named_schemas(parse_definition(definition)).keys().isdisjoint(_PRIMITIVES):
        return "a name is that of a primitive type"
    try:
        parts = [*_all_schemas(whole)]
    except _NO_DEFINITION:
        return "items, values or a type are no schema"
    for part in parts:
        if isinstance(part, list):
            kinds = [one["type"] if isinstance(one, dict) else one for one in part if not _is_named(one)]
            if any(isinstance(one, list) for one in part) or len({*map(json.dumps, kinds)}) < len(kinds):
                return "a union has a union in it, or a type twice"
        elif _is_named(part):
            fields, aliases, name = part.get("fields"), part.get("aliases", []), part["name"]
            if not isinstance(aliases, list) or not all(
                _is_name(str(one).rpartition(".")[2]) for one in (name, *aliases)
            ):
                return f"{name!r}, or an alias of it, is no name"
            if part["type"] == "fixed" and not (type(part.get("size")) is int and part["size"] >= 0):
                return f"the size of {name} is not 0 or more"
            if part["type"] in ("record", "error") and not isinstance(fields, list):
                return f"the record {name} has no fields"
            names = [field["name"] for field in fields or ()]
            if not all(map(_is_name, names)) or len({*names}) < len(names):
                return f"a field of {name} has no valid name, or that of another"
            if any(str(field.get("order", "ignore")).lower() not in _ORDERS for field in fields or ()):
                return f"the order of a field of {name} is none of {', '.join(_ORDERS)}"
    return None


_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_ORDERS = ("ascending", "descending", "ignore")


def _is_named(part: Schema) -> bool:
    return isinstance(part, dict) and part["type"] in ("record", "error", "enum", "fixed")


def _is_name(name: str) -> bool:
    # As Java's isLetter and isDigit: an expression's \w has superscripts, too.
    return not name[:1].isdecimal() and all(one.isalpha() or one.isdecimal() or one in "_$" for one in name or " ")


_NO_DEFINITION = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


def _decode(writer: Schema, reader: Schema, is_recursive: bool, data: bytes) -> Any:  # Any: the definition decides
    from fastavro import _read_py, schemaless_reader
    from fastavro.read import SchemaResolutionError

    stream = BytesIO(data)
    decode = _read_py.schemaless_reader if is_recursive else schemaless_reader
    try:
        value = decode(stream, writer, reader)
    except SchemaResolutionError as error:
        raise ValueError(f"it does not fit the newest version: {reason_of(error)}") from error
    if stream.tell() != len(data):
        raise ValueError(f"{counted(len(data) - stream.tell(), 'byte')} after the value")
    return value


def _encode(schema: Schema, value: Any) -> bytes:  # Any: the definition decides
    from fastavro import schemaless_writer

    out = BytesIO()
    schemaless_writer(out, schema, value)
    return out.getvalue()


def inner_schemas(schema: Schema) -> list[Schema]:
    """Return the schemas directly inside a schema."""
    if isinstance(schema, list):
        return schema
    if not isinstance(schema, dict):
        return []
    inner = [schema[name] for name in ("items", "values") if name in schema]
    inner += [part["type"] for part in schema.get("fields", ())]
    return inner + ([schema["type"]] if isinstance(schema["type"], (dict, list)) else [])


def named_schemas(schema: Schema) -> dict[str, Schema]:
    """Return the records, enums and fixed types of a schema by their names."""
    return {part["name"]: part for part in _all_schemas(schema) if isinstance(part, dict) and "name" in part}


def _all_schemas(schema: Schema) -> Iterator[Schema]:
    """Yield a schema and all schemas inside it."""
    left = [schema]
    while left:
        part = left.pop()
        yield part
        left += inner_schemas(part)


class _Values:
    """Computes how many values data of a definition can expand to; each named schema is examined once."""

    def __init__(self, named: dict[str, Schema]) -> None:
        self._named = named
        self._unpaid: dict[str, int | None] = {}  # None: being looked at
        self._inside_itself: set[str] = set()

    def unpaid(self, schema: Schema) -> int:
        """Return the largest number of values in a value of this schema, less VALUES_PER_BYTE for each byte that it takes.

        Raises EntryCorrupt if there is no limit: in an array or map whose values take no bytes, or a record of such
        inside itself.
        """
        if isinstance(schema, list):
            return 1 - VALUES_PER_BYTE + max(map(self.unpaid, schema), default=0)
        if isinstance(schema, dict):
            return self._of_named(schema) if "name" in schema else self._of(schema)
        return self._of_named(self._named[schema]) if schema in self._named else 1 - VALUES_PER_BYTE * _LEAST[schema]

    def _of_named(self, schema: Schema) -> int:
        name: str = schema["name"]
        if name not in self._unpaid:
            self._unpaid[name] = None
            self._unpaid[name] = size = self._of(schema)
            if name in self._inside_itself and size > 0:
                raise EntryCorrupt(f"a record {name} inside itself: its bytes do not show its end")
        known = self._unpaid[name]
        if known is None:  # where a record inside itself is paid for, none is what it adds at most
            self._inside_itself.add(name)
            return 0
        return known

    def _of(self, schema: Schema) -> int:
        kind = schema["type"]
        if kind in ("record", "error"):
            return 1 + sum(self.unpaid(part["type"]) for part in schema["fields"])
        if kind in ("array", "map"):
            key = 1 - VALUES_PER_BYTE if kind == "map" else 0
            if key + self.unpaid(schema["items" if kind == "array" else "values"]) > 0:
                raise EntryCorrupt(f"the {kind} of values without bytes: its bytes do not show its end")
            return 1 - VALUES_PER_BYTE
        if kind == "fixed":
            if not isinstance(schema["size"], int) or schema["size"] < 0:
                raise EntryCorrupt(f"a fixed of {schema['size']!r} bytes")
            return 1 - VALUES_PER_BYTE * schema["size"]
        return 1 - VALUES_PER_BYTE if kind == "enum" else self.unpaid(kind)


_LEAST = dict.fromkeys(("boolean", "int", "long", "bytes", "string"), 1) | {"null": 0, "float": 4, "double": 8}


def _is_recursive(schema: Schema, around: set[str]) -> bool:
    """Whether a schema, inside of the records named ``around``, contains one of them again."""
    if isinstance(schema, str):
        return schema in around
    if not isinstance(schema, dict) or "name" not in schema:
        return any(_is_recursive(part, around) for part in inner_schemas(schema))
    around.add(schema["name"])
    found = any(_is_recursive(part, around) for part in inner_schemas(schema))
    around.discard(schema["name"])
    return found


def _decimal(data: bytes, writer: Schema, reader: Schema) -> Decimal:
    context = Context(prec=writer["precision"])
    number = _in_digits(int.from_bytes(data, "big", signed=True))
    return context.create_decimal(number).scaleb(-writer.get("scale", 0), context)


def _in_digits(number: int) -> Decimal:
    """Return an integer as a Decimal, by halves: in nearly linear time, as ``decimal`` multiplies fast."""
    bits = number.bit_length()
    if bits <= _PLAIN_BITS:
        return Decimal(number)
    low = bits // 2
    high = number >> low
    return _EXACT.fma(_in_digits(high), _EXACT.power(2, low), _in_digits(number - (high << low)))
