"""Messages under the names that the Spark connector gave their columns: names, types and meanings.

Upstream: ``SchemaUtils`` and ``PulsarDeserializer`` of streamnative/pulsar-spark 3.4.1.

Columns of a value: the fields of its record, or one column. All columns may be null here: data on a disk has values that nobody
can decode, and null values; a value's columns are null then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.value import ValueSchema, key_bytes
from pulsar_admin.store.errors import Unsupported
from pulsar_admin.store.model.schemas import TopicSchemas
from pulsar_admin.store.names import TopicName
from pulsar_admin.store.scan.arrow import numbers_of
from pulsar_admin.store.scan.typed_values import NEEDS, STAMP, ConnectorShapes, ValueColumns, Values
from pulsar_admin.store.timespec import MAX_TIME_MS

_PROPERTIES = pa.map_(pa.string(), pa.string())
_ID = ("ledgerId", "entryId", "batchIndex")
_SINGLE = "value"
"""What a value that is no record is called."""


class _Known(Struct, frozen=True):
    """One column: its type, the columns of ``store.scan.messages`` that it is made of, and how."""

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
        """The columns of ``store.scan.messages`` that all this is made of."""
        names = self.schema.names
        found = [need for name in names for need in _COLUMNS.get(name, _NOTHING).needs]
        if any(name in names for name in self._value_fields):
            found += NEEDS
        return tuple(dict.fromkeys(found))

    def converter(self) -> Callable[[pa.RecordBatch], tuple[pa.RecordBatch, pa.Array]]:
        """Return what makes batches with the columns ``needs`` batches of ``schema``, and says why values are not there."""
        schema, values = self.schema, self._values
        wanted = any(name in schema.names for name in self._value_fields)
        readers = ValueColumns(values) if values is not None and wanted else None

        def convert(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
            found, errors = self._read(batch, readers) if wanted else ({}, pa.nulls(len(batch), pa.string()))
            columns = [
                found[name] if name in found else _COLUMNS[name].make(batch, self.topic) for name in schema.names
            ]
            return pa.RecordBatch.from_arrays(columns, schema=schema), errors

        return convert

    @property
    def _newest(self) -> ValueSchema | None:
        """The schema that values are read by; None: they are bytes."""
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
        """Return the columns of the values of BATCH, and why there are none."""
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

    A message that is no batch's has no batch index and batch size 0; one of chunks also names its first (``ChunkMessageIdImpl``).
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
    """Return the protobuf messages of COUNT rows: tag, values, and which rows have the field."""
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
    """Return what makes times of the column NAME; 0 is no time."""
    return lambda batch, topic: pc.multiply(_times(batch.column(name)), 1000).cast(STAMP)


def _times(values: pa.Array) -> pa.Array:
    shown = pc.and_(pc.greater(values, 0), pc.less_equal(values, MAX_TIME_MS))
    return pc.if_else(shown, values, pa.scalar(None, pa.int64()))


def _key_bytes(batch: pa.RecordBatch, topic: TopicName) -> pa.Array:
    """Return keys as producers gave them; a key that says that it is base64, and is not, as it is there."""
    keys, encoded = batch.column("key"), batch.column("keyEncoded")
    if not encoded.true_count:
        return keys.cast(pa.binary())
    found = []
    for key, is_base64 in zip(keys.to_pylist(), encoded.to_pylist(), strict=True):
        try:
            found.append(key_bytes(key, is_base64))
        except ValueError:
            found.append(key.encode())
    return pa.array(found, pa.binary())


def _pairs(batch: pa.RecordBatch) -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = batch.column("properties").to_pylist()
    return found


def _properties(batch: pa.RecordBatch, topic: TopicName) -> pa.Array:
    """Return properties, a name that is there twice once: its last value counts."""
    pairs = _pairs(batch)
    if all(len(dict(row)) == len(row) for row in pairs):
        return batch.column("properties")
    return pa.array([list(dict(row).items()) for row in pairs], _PROPERTIES)


_NOTHING = _Known(pa.null(), (), lambda batch, topic: pa.nulls(len(batch)))
_COLUMNS: Mapping[str, _Known] = {
    "__key": _Known(pa.binary(), ("key", "keyEncoded"), _key_bytes),
    "__topic": _Known(pa.string(), (), lambda batch, topic: pa.array([str(topic)] * len(batch), pa.string())),
    "__messageId": _Known(
        pa.binary(),
        (*_ID, "batchSize", "firstChunk"),
        lambda batch, topic: message_ids(batch, topic.partition_index),
    ),
    "__publishTime": _Known(STAMP, ("publishTime",), _stamps("publishTime")),
    "__eventTime": _Known(STAMP, ("eventTime",), _stamps("eventTime")),
    "__messageProperties": _Known(_PROPERTIES, ("properties",), _properties),
}
