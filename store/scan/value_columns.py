"""The columns ``value`` and ``value_error`` of messages: payloads decoded by their topics' schemas, which travel with the scan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from store.codec.value import ValueSchema
from store.errors import Unsupported
from store.model.schemas import Encoded, PlainValues, TopicSchemas, ValueReader
from store.scan.arrow import strings
from store.scan.typed_values import Shapes, TypedValues

NEEDS = ("schemaVersion", "payload", "key", "keyEncoded", "nullValue", "encrypted", "chunks")
"""Columns of ``store.scan.messages`` that a value is made of, in the order of ``Encoded``."""


@dataclass(frozen=True)
class Values:
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
