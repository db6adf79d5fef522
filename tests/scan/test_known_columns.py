"""Messages under the Spark connector's names: its rows to the byte."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pulsar_admin.store.codec.value import ValueSchema
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.dump.job import Dumped, iter_batches
from pulsar_admin.store.dump.options import DumpOptions
from pulsar_admin.store.dump.tables import HELPERS
from pulsar_admin.store.errors import Unsupported
from pulsar_admin.store.kernels.columns import RECORD
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.schemas import TopicSchemas
from pulsar_admin.store.model.topics import read_topic, select_topics
from pulsar_admin.store.names import parse_topic, parse_topics
from pulsar_admin.store.scan.operations import entry_column
from pulsar_admin.store.scan.typed_values import ConnectorShapes, KnownColumns, TypedValues, message_ids
from pulsar_admin.store.timespec import MAX_TIME_MS
from tests.connector import Recorded, as_here, readings, written
from tests.stores import imported


def _batches(world: str, topics: str, *, payload: bool = False) -> Iterator[pa.RecordBatch]:
    options = DumpOptions(payload=payload, profile="pulsar-spark")
    with open_store(imported(world, "clean")) as opened, open_reader(opened) as reader:
        for name in select_topics(reader.txn, parse_topics(topics.split(","))):
            for batch in iter_batches(reader, read_topic(reader.txn, name), options, Dumped()):
                yield batch.drop_columns([helper.name for helper in HELPERS])


@pytest.mark.parametrize("world", ["small", "shapes"])
def test_rows_of_the_spark_connector(world: str) -> None:
    found = 0
    for one in readings(world):
        options = one["options"]
        if "endingOffsets" in options:
            continue
        topics, raw = options.get("topic", options.get("topics")), "allowDifferentTopicSchemas" in options
        made = [*_batches(world, topics, payload=raw)]
        _same_columns(made[0].schema, one)
        assert written(made) == as_here(one), options
        found += len(one["rows"])
    assert found == {"small": 3336, "shapes": 56}[world]


def _same_columns(found: pa.Schema, one: Recorded) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    kinds = [(field.name, field.dataType.simpleString()) for field in from_arrow_schema(found).fields]
    assert kinds == [(field.name, field.dataType.simpleString()) for field in StructType.fromJson(one["schema"])]


def test_message_ids_of_every_length() -> None:
    ids = [(0, 0, -1, 0), (127, 128, -1, 0), (2**63 - 1, 2**63 - 1, 2**31 - 1, 2**31 - 1), (300, 5, 0, 1)]
    columns = [pa.array(values) for values in zip(*ids, strict=True)]
    first = pa.struct([("ledgerId", pa.int64()), ("entryId", pa.int64())])
    batch = pa.record_batch(
        [*columns, pa.nulls(len(ids), first)], ["ledgerId", "entryId", "batchIndex", "batchSize", "firstChunk"]
    )
    from pulsar_admin.store.proto.pulsar_api_pb2 import MessageIdData  # protobuf's own reader

    for partition in (-1, 0, 70_000):
        for data, (ledger, entry, index, size) in zip(message_ids(batch, partition).to_pylist(), ids, strict=True):
            read = MessageIdData.FromString(data)
            assert read.IsInitialized()
            assert (read.ledgerId, read.entryId, read.partition) == (ledger, entry, partition)
            assert (read.batch_index, read.batch_size) == (index, size)


def _avro(*kinds: Any) -> ValueSchema:
    fields = [{"name": f"f{index}", "type": kind} for index, kind in enumerate(kinds)]
    return ValueSchema("AVRO", json.dumps({"type": "record", "name": "R", "fields": fields}).encode())


def test_unions_of_the_connector() -> None:
    schema = _avro(["int", "long"], ["null", "float", "double"], ["string", "null", "int"])
    assert str(TypedValues(schema, ConnectorShapes).kind) == (
        "struct<f0: int64, f1: double, f2: struct<member0: string, member1: int32>>"
    )


def test_a_record_inside_itself_has_no_columns() -> None:
    with pytest.raises(Unsupported, match="R inside itself"):
        TypedValues(_avro(["null", "R"]), ConnectorShapes)


def test_a_field_of_the_names_of_metadata() -> None:
    definition = {"type": "record", "name": "R", "fields": [{"name": "__topic", "type": "string"}]}
    schemas = TopicSchemas({0: ValueSchema("AVRO", json.dumps(definition).encode())})
    with pytest.raises(Unsupported, match="__topic"):
        _ = KnownColumns(parse_topic("t"), schemas).schema


def test_a_time_that_no_column_can_hold_is_none() -> None:
    """Time 0 is a time of publishing, and no time to be delivered at."""
    records = np.zeros(5, RECORD)
    for name, beginning in (("publish", 0), ("deliver_at", None)):
        records[f"{name}_ms"] = -1, 0, 1, MAX_TIME_MS, MAX_TIME_MS + 1
        times = entry_column(f"{name}_time", records).cast(pa.int64()).to_pylist()
        assert times == [None, beginning, 1000, MAX_TIME_MS * 1000, None]
