"""Rows as lines of JSON, made column by column: what ``json.dumps`` writes of each row, without a call a row.

A column becomes texts of its values; the lines are these joined. Texts that JSON has to escape, and what is not a number or plain
text, are made by ``json`` itself.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_admin.store.scan.arrow import scalar, strings

Json = Any  # Any: a JSON value
_ESCAPED = r'["\\\x00-\x1f]'
_TEXT = pa.large_string()


def json_lines(topic: str, batch: pa.RecordBatch, quiet: Iterable[str]) -> str:
    """Return the rows of BATCH, each behind TOPIC, a line each; columns in QUIET are left out of a row where they are null."""
    lead = f'{{"topic":{compact(topic)}'
    parts: list[Any] = [scalar(lead, _TEXT)]  # Any: scalars and columns
    for field, column in zip(batch.schema, batch.columns, strict=True):
        key = f',"{field.name}":'
        texts = _texts(field.name, column)
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
    """Return the JSON of each value of COLUMN, null for null."""
    kind = column.type
    if name == "value":
        return _each(column, lambda text: compact(json.loads(text)))
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
    """Return maps as objects; those of a batch are mostly all empty."""
    ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]
    if ends[0] == ends[-1]:
        return pa.repeat(scalar("{}", _TEXT), len(column))
    return _each(column, lambda pairs: compact(dict(pairs)))


def _hex(column: pa.Array) -> pa.Array:
    """Return 20-byte digests in hex; a column without nulls, all of its buffer."""
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
    """Return VALUE as JSON without blanks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
