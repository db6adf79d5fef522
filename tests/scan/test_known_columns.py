"""Messages under other tools' names: the Spark connector's rows to the byte, Trino's and Lakehouse's by their own definitions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from store.codec.value import ValueSchema
from store.db.environment import open_store
from store.dump.columns import HELPERS
from store.dump.job import Dumped, iter_batches
from store.dump.options import DumpOptions
from store.errors import Unsupported
from store.model.reader import open_reader
from store.model.schemas import TopicSchemas
from store.model.topics import read_topic, select_topics
from store.names import parse_topic, parse_topics
from store.scan.known_columns import KnownColumns, message_ids
from store.scan.profiles import PROFILES, Profile
from store.scan.typed_values import ConnectorShapes, TypedValues
from tests.connector import Recorded, as_here, readings, written
from tests.stores import imported
from tests.worlds import oracle


def _batches(world: str, topics: str, profile: Profile, *, payload: bool = False) -> Iterator[pa.RecordBatch]:
    options = DumpOptions(payload=payload, profile=profile)
    with open_store(imported(world, "clean")) as opened, open_reader(opened) as reader:
        for name in select_topics(reader.txn, parse_topics(topics.split(","))):
            for batch in iter_batches(reader, read_topic(reader.txn, name), options, Dumped(), lambda count: None):
                yield batch.drop_columns([helper.name for helper in HELPERS])


@pytest.mark.parametrize("world", ["small", "shapes"])
def test_rows_of_the_spark_connector(world: str) -> None:
    found = 0
    for one in readings(world):
        options = one["options"]
        if "endingOffsets" in options:
            continue
        topics, raw = options.get("topic", options.get("topics")), "allowDifferentTopicSchemas" in options
        made = [*_batches(world, topics, "pulsar-spark", payload=raw)]
        _same_columns(made[0].schema, one)
        assert written(made) == as_here(one), options
        found += len(one["rows"])
    assert found == {"small": 3336, "shapes": 56}[world]


def _same_columns(found: pa.Schema, one: Recorded) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    kinds = [(field.name, field.dataType.simpleString()) for field in from_arrow_schema(found).fields]
    assert kinds == [(field.name, field.dataType.simpleString()) for field in StructType.fromJson(one["schema"])]


def test_columns_of_trino() -> None:
    rows = [row for batch in _batches("small", "acme/orders/parts", "trino") for row in batch.to_pylist()]
    sent = [
        row for part in range(3) for row in oracle("small")["topics"][f"acme/orders/parts-partition-{part}"]["messages"]
    ]
    found = [
        (
            row["__message_id__"],
            int(row["__publish_time__"].timestamp() * 1000),
            row["__key__"],
            row["__producer_name__"],
        )
        for row in rows
    ]
    assert found == [(f"({row[0]},{row[1]},{max(row[2], 0)})", row[3], row[5], row[10]) for row in sent]
    assert [row["__partition__"] for row in rows] == [0] * 56 + [1] * 66 + [2] * 58
    properties = [row["__properties__"] for batch in _batches("small", "plain", "trino") for row in batch.to_pylist()]
    assert list(map(json.loads, properties)) == [
        row[9] for row in oracle("small")["topics"]["public/default/plain"]["messages"]
    ]


def test_columns_of_lakehouse_tables() -> None:
    rows = [
        row for batch in _batches("small", "batched", "lakehouse") for row in batch.to_pylist(maps_as_pydicts="strict")
    ]
    for row, sent in zip(rows, oracle("small")["topics"]["public/default/batched"]["messages"], strict=True):
        assert row["__key"] == (None if sent[5] is None else sent[5].encode())
        assert row["__meta"] == {
            "__messageOffset": f"{sent[0]}:{sent[1]}:-1:{sent[2]}",
            "__publishTime": sent[3],
            "__eventTime": sent[4] or None,
            "__schemaVersion": None,
            "__properties": sent[9],
        }


@pytest.mark.parametrize(
    ("topic", "columns"),
    [("kv-inline", {"__key.tenant", "__key.shard", "name", "amount"}), ("int32", {"__value__"})],
)
def test_values_of_trino(topic: str, columns: set[str]) -> None:
    (batch,) = _batches("shapes", f"acme/shapes/{topic}", "trino")
    assert {name for name in batch.schema.names if not name.endswith("__") or name == "__value__"} == columns


def test_message_ids_of_every_length() -> None:
    ids = [(0, 0, -1, 0), (127, 128, -1, 0), (2**63 - 1, 2**63 - 1, 2**31 - 1, 2**31 - 1), (300, 5, 0, 1)]
    columns = [pa.array(values) for values in zip(*ids, strict=True)]
    first = pa.struct([("ledgerId", pa.int64()), ("entryId", pa.int64())])
    batch = pa.record_batch(
        [*columns, pa.nulls(len(ids), first)], ["ledgerId", "entryId", "batchIndex", "batchSize", "firstChunk"]
    )
    from store.proto.pulsar_api_pb2 import MessageIdData  # protobuf's own reader

    for partition in (-1, 0, 70_000):
        for data, (ledger, entry, index, size) in zip(message_ids(batch, partition).to_pylist(), ids, strict=True):
            read = MessageIdData.FromString(data)
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


@pytest.mark.parametrize("profile", PROFILES)
def test_a_field_of_the_names_of_metadata(profile: Profile) -> None:
    name = {"pulsar-spark": "__topic", "trino": "__key__", "lakehouse": "__meta"}[profile]
    definition = {"type": "record", "name": "R", "fields": [{"name": name, "type": "string"}]}
    schemas = TopicSchemas({0: ValueSchema("AVRO", json.dumps(definition).encode())})
    with pytest.raises(Unsupported, match=name):
        _ = KnownColumns(profile, parse_topic("t"), schemas).schema
