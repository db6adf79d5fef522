"""``--redact`` of rows as Arrow batches; see ``store.model.redaction``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from store.model.redaction import redact, redact_value

_HIDE: Mapping[str, Callable[[Any], object]] = {  # Any: a value of the column
    "key": redact,
    "orderingKey": redact,
    "ordering_key": redact,
    "payload": redact,
    "properties": lambda pairs: [(name, redact(value)) for name, value in pairs],
    "value": lambda text: json.dumps(redact_value(json.loads(text))),
    "sha1": lambda digest: None,
}


def redact_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of SCHEMA as they are redacted: what was binary is text."""
    binary = {field.name for field in schema if pa.types.is_binary(field.type) and field.name != "sha1"}
    return pa.schema(
        [field.with_type(pa.string()) if field.name in binary & _HIDE.keys() else field for field in schema],
        schema.metadata,
    )


def redact_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return BATCH, messages in the columns of a dump or of a scan, with SHA-256 and length in place of what is hidden."""
    schema = redact_schema(batch.schema)
    columns = [
        _hidden(field, batch.column(field.name)) if field.name in _HIDE else batch.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _hidden(field: pa.Field, column: pa.Array) -> pa.Array:
    hide = _HIDE[field.name]
    return pa.array([None if value is None else hide(value) for value in column.to_pylist()], field.type)
