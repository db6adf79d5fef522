"""Values of AVRO definitions, decoded by fastavro, and nothing that makes it run away with a few bytes.

An array of values that take no bytes may claim any length. A record inside itself may be nested as deep as there are bytes:
fastavro's compiled reader then overflows the C stack and takes the process with it, its Python one raises RecursionError.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any

from store.errors import EntryCorrupt

Schema = Any  # a parsed definition: a name, a dict or, for a union, a list


def avro_decoder(writer: bytes, reader: bytes | None = None) -> Callable[[bytes], Any]:  # Any: the definition decides
    """Return what decodes values of the AVRO definition WRITER, resolved to READER; raises EntryCorrupt for a bad definition.

    Logical types become Python's. The decoder raises ValueError, EOFError, LookupError, TypeError, ArithmeticError or
    RecursionError.
    """
    written = parse_definition(writer)
    try:
        claims_nothing = _claims_nothing(written, named_schemas(written))
        is_recursive = _is_recursive(written, ())
    except RecursionError as error:
        raise EntryCorrupt("the AVRO definition of a schema is nested too deeply") from error
    if claims_nothing:
        raise EntryCorrupt("an array of values without bytes: its bytes do not tell where it ends")
    return partial(_decode, written, None if reader is None else parse_definition(reader), is_recursive)


def avro_encoder(definition: bytes) -> Callable[[Any], bytes]:  # Any: the definition decides
    """Return what encodes values of an AVRO DEFINITION; raises EntryCorrupt for a bad one.

    The encoder raises what a decoder does. Fields that the definition does not know are left out.
    """
    return partial(_encode, parse_definition(definition))


def parse_definition(definition: bytes) -> Schema:
    """Return an AVRO definition as fastavro takes it: names in full, each defined once; raises EntryCorrupt."""
    from fastavro.schema import SchemaParseException, parse_schema

    try:
        return parse_schema(json.loads(definition))
    except (SchemaParseException, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise EntryCorrupt(f"the AVRO definition of a schema: {type(error).__name__}: {error}") from error


def _decode(writer: Schema, reader: Schema, is_recursive: bool, data: bytes) -> Any:  # Any: the definition decides
    from fastavro import _read_py, schemaless_reader
    from fastavro.read import SchemaResolutionError

    stream = BytesIO(data)
    decode = _read_py.schemaless_reader if is_recursive else schemaless_reader
    try:
        value = decode(stream, writer, reader)
    except SchemaResolutionError as error:
        raise ValueError(f"it does not fit the newest version: {error}") from error
    if stream.tell() != len(data):
        raise ValueError(f"{len(data) - stream.tell()} bytes behind the value")
    return value


def _encode(schema: Schema, value: Any) -> bytes:  # Any: the definition decides
    from fastavro import schemaless_writer

    out = BytesIO()
    schemaless_writer(out, schema, value)
    return out.getvalue()


def inner_schemas(schema: Schema) -> list[Schema]:
    """Return the schemas that SCHEMA is made of."""
    if isinstance(schema, list):
        return schema
    if not isinstance(schema, dict):
        return []
    inner = [schema[name] for name in ("items", "values") if name in schema]
    inner += [part["type"] for part in schema.get("fields", ())]
    return inner + ([schema["type"]] if isinstance(schema["type"], (dict, list)) else [])


def named_schemas(schema: Schema) -> dict[str, Schema]:
    """Return the records, enums and fixed of SCHEMA by their names."""
    found = {schema["name"]: schema} if isinstance(schema, dict) and "name" in schema else {}
    for part in inner_schemas(schema):
        found |= named_schemas(part)
    return found


def _claims_nothing(schema: Schema, named: dict[str, Schema]) -> bool:
    """Whether SCHEMA has an array of values that take no bytes."""
    if isinstance(schema, dict) and schema["type"] == "array" and not _takes_bytes(schema["items"], named):
        return True
    return any(_claims_nothing(part, named) for part in inner_schemas(schema))


def _takes_bytes(schema: Schema, named: dict[str, Schema]) -> bool:
    """Whether every value of SCHEMA takes a byte at least."""
    if isinstance(schema, str) and schema in named:
        rest = {name: part for name, part in named.items() if name != schema}
        return _takes_bytes(named[schema], rest)
    if not isinstance(schema, dict):
        return isinstance(schema, list) or schema in _WITH_BYTES
    if schema["type"] in ("record", "error"):
        return any(_takes_bytes(part["type"], named) for part in schema["fields"])
    if schema["type"] == "fixed":
        return bool(schema["size"])
    return schema["type"] in ("array", "map", "enum") or _takes_bytes(schema["type"], named)


_WITH_BYTES = ("boolean", "int", "long", "float", "double", "bytes", "string")


def _is_recursive(schema: Schema, around: tuple[str, ...]) -> bool:
    """Whether SCHEMA, inside the records named AROUND, holds one of them again."""
    if isinstance(schema, str):
        return schema in around
    if isinstance(schema, dict) and "name" in schema:
        around = (*around, schema["name"])
    return any(_is_recursive(part, around) for part in inner_schemas(schema))
