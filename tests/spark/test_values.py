"""Decoded values as columns: on every engine what the producers sent, as JSON text and typed; nothing decoded that no column needs."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pulsar_admin.store.codec.compression import fills
from pulsar_admin.store.codec.value import ValueSchema
from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.engine.operation import Engine
from pulsar_admin.store.engine.slices import Cut, plan_slices
from pulsar_admin.store.errors import StoreError, Unsupported
from pulsar_admin.store.model.schemas import Encoded, TopicSchemas, ValueReader
from pulsar_admin.store.scan.operations import ReadMessages, ScanOptions, read_topics
from pulsar_admin.store.scan.schemas import MESSAGE_SCHEMA
from pulsar_admin.store.scan.sources import source_files
from pulsar_admin.store.scan.typed_values import TypedValues, Values
from tests.shapes import PREFIX, TOPICS, logs, sent, store
from tests.worlds import oracle, world

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[dict[str, Any]]


def _operation(*topics: str, columns: tuple[str, ...] = (), typed: bool = False) -> ReadMessages:
    ledgers, schemas = read_topics(store(), topics, schemas=True)
    return ReadMessages(ScanOptions(topics=ledgers, only_topics=True), columns, values=Values(schemas, typed))


def _rows(engine: Engine, operation: ReadMessages, cut: Cut | None = None) -> Rows:
    pieces = plan_slices(source_files([str(logs() / "0.log")]), cut or Cut())
    found = dict(engine.run(operation, pieces, lambda _: None))
    assert not engine.failed
    return [row for piece in pieces for row in found[piece].to_pylist()]


class ValuesContract:
    """What every engine does alike; subclasses hand it over as the fixture ``engine``."""

    def test_messages_are_those_that_were_sent(self, engine: Engine) -> None:
        expected = {(row["topic"], *row["id"]): row for row in sent()}
        for row in _rows(engine, _operation("acme/shapes"), Cut(10_000)):
            was = expected.pop((row["topic"], row["ledger_id"], row["entry_id"], row["batch_index"]))
            assert (None if row["value"] is None else json.loads(row["value"])) == was.get("value"), was
            assert (row["value_error"] is not None) == (was.get("why") in ("broken", "protobuf"))
            assert (row["schema_version"] is None) == (was.get("why") == "no schema")
            assert dict(row["properties"]) == {"i": str(was["i"])}
            assert row["event_time"] == datetime.fromtimestamp(1_795_000_000 + was["i"] / 1000, UTC)
            assert row["encrypted"] == (was.get("why") == "encrypted")
            if "key" in was:
                assert row["key"] == was["key"]
        assert not expected

    def test_a_typed_column_is_the_newest_definition(self, engine: Engine) -> None:
        operation = _operation("acme/shapes/orders-avro", columns=("entry_id", "value", "value_error"), typed=True)
        fields = [("id", pa.int64()), ("item", pa.string()), ("qty", pa.int32()), ("note", pa.string())]
        assert operation.schema.field("value").type == pa.struct(fields)
        rows = {row["entry_id"]: row for row in _rows(engine, operation)}
        singles = [row for row in sent("orders-avro") if row["id"][2] < 0]
        assert len(singles) > 10
        for row in singles:
            value = None if row["value"] is None else {"qty": 7, "note": None, **row["value"]}
            assert rows[row["id"][1]]["value"] == value


class TestLocalEngineAlone(ValuesContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return LocalEngine(1)


@pytest.mark.spark
class TestSparkEngine(ValuesContract):
    @pytest.fixture
    def engine(self, spark: SparkSession) -> Engine:
        from pulsar_admin.store.engine.spark import SparkEngine

        return SparkEngine(spark)


def _typed(topic: str) -> Rows:
    operation = _operation(PREFIX + topic, columns=("value", "value_error"), typed=True)
    rows = _rows(LocalEngine(1), operation)
    assert all(row["value_error"] is None for row in rows)
    return [row["value"] for row in rows]


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)  # which keeps microseconds of nanoseconds


# What makes of the JSON that was sent the value of a typed column; the others are the same.
_TYPES: dict[str, tuple[pa.DataType, Callable[[Any], Any]]] = {
    "bool": (pa.bool_(), bool),
    "int8": (pa.int8(), int),
    "int16": (pa.int16(), int),
    "int32": (pa.int32(), int),
    "int64": (pa.int64(), int),
    "float": (pa.float32(), float),
    "string": (pa.string(), str),
    "date": (pa.timestamp("us", "UTC"), _instant),
    "timestamp": (pa.timestamp("us", "UTC"), _instant),
    "instant": (pa.timestamp("us", "UTC"), _instant),
    "local-date": (pa.date32(), date.fromisoformat),
    "local-time": (pa.string(), str),
    "local-date-time": (pa.timestamp("us"), _instant),
    "time": (pa.string(), str),
}


@pytest.mark.parametrize("topic", _TYPES)
def test_a_primitive_is_a_column_of_its_type(topic: str) -> None:
    kind, make = _TYPES[topic]
    assert _operation(PREFIX + topic, columns=("value",), typed=True).schema.field("value").type == kind
    assert _typed(topic) == [make(row["value"]) for row in sent(topic)]


def test_a_double_that_is_no_number() -> None:
    assert str(_typed("double")) == str([-1.5, 1e300, 0.1, float("nan")])


def test_a_record_with_everything() -> None:
    from base64 import b64decode

    expected = []
    for row in sent("everything"):
        value = dict(row["value"])
        value |= {"raw": b64decode(value["raw"]), "price": Decimal(value["price"]), "at": _instant(value["at"])}
        value |= {"day": date.fromisoformat(value["day"]), "counts": [*value["counts"].items()]}
        expected.append(value)
    assert _typed("everything") == expected


def test_json_text_as_a_record() -> None:
    from base64 import b64decode

    nothing = {"name": None, "flag": None}
    expected = [
        nothing | row["value"] | {"raw": b64decode(row["value"]["raw"]), "tags": [("a", "b")]} for row in sent("plain")
    ]
    assert _typed("plain") == expected


@pytest.mark.parametrize("topic", ["kv-inline", "kv-separated"])
def test_pairs(topic: str) -> None:
    assert _typed(topic) == [row["value"] for row in sent(topic)]


def test_topics_without_a_type_in_common() -> None:
    for names in (("acme/shapes/int8", "acme/shapes/int16"), ("acme/shapes/protobuf-native",)):
        with pytest.raises(Unsupported):
            _ = _operation(*names, columns=("value",), typed=True).schema


_JSON_FIELDS = [
    {"name": "i", "type": "int"},
    {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
    {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "u", "type": ["null", "int", "string"]},
    {"name": "s", "type": "string"},
    {"name": "f", "type": "double"},
]
_JSON = ValueSchema("JSON", json.dumps({"type": "record", "name": "R", "fields": _JSON_FIELDS}).encode())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"i": 5, "d": 12.5, "t": 1795000000001, "u": "x", "s": "y", "f": 1}', None),
        ('{"i": 2147483648}', "32 bits"),
        ('{"i": true}', "where the schema has int"),
        ('{"i": "5"}', "where the schema has int"),
        ('{"d": 123.45}', "4 digits"),
        ('{"d": "x"}', "not a decimal"),
        ('{"s": "\\ud800"}', "half of a surrogate pair"),
        ('{"f": "x"}', "where the schema has int"),
        ("[]", "where the schema has dict"),
        ("{", "not JSON"),
    ],
)
def test_json_that_does_not_fit_its_schema(text: str, expected: str | None) -> None:
    value, error = ValueReader(TopicSchemas({0: _JSON}), TypedValues(_JSON).value).read(Encoded(0, text.encode()))
    if expected is None:
        assert error is None
        at = datetime.fromtimestamp(1_795_000_000.001, UTC)
        assert value == {"i": 5, "d": Decimal("12.50"), "t": at, "u": '"x"', "s": "y", "f": 1.0}
        pa.array([value], TypedValues(_JSON).kind)
    else:
        assert value is None
        assert expected in str(error)


def test_a_version_of_another_type() -> None:
    schemas = TopicSchemas({0: ValueSchema("INT8"), 1: ValueSchema("STRING")})
    reader = ValueReader(schemas, TypedValues(ValueSchema("STRING")).value)
    assert reader.read(Encoded(1, b"x")).value == "x"
    assert "the newest version is STRING" in str(reader.read(Encoded(0, b"x")).error)


def test_a_record_inside_itself_is_json_text() -> None:
    node = {
        "type": "record",
        "name": "N",
        "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "N"]}],
    }
    schema = ValueSchema("AVRO", json.dumps(node).encode())
    typed = TypedValues(schema)
    assert typed.kind == pa.struct([("v", pa.int32()), ("next", pa.string())])
    assert typed.value(schema, Encoded(0, b"\x02\x02\x04\x00")) == {"v": 1, "next": '{"v":2,"next":null}'}


# -- what no column needs ---------------------------------------------------------------------------------------------

_CODECS = "acme/orders/codecs"  # every codec, batched and not


def _codecs(columns: tuple[str, ...]) -> Rows:
    recorded = oracle("small")["topics"][_CODECS]["internal_stats"]["ledgers"]
    files = source_files([str(log) for log in (world("small") / "clean" / "bookkeeper" / "current").glob("*.log")])
    operation = ReadMessages(ScanOptions(ledgers=tuple(row["ledgerId"] for row in recorded)), columns)
    return [row for piece in plan_slices(files, Cut()) for batch in operation.run(piece) for row in batch.to_pylist()]


def test_payloads_that_no_column_needs_are_not_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of batches they are: keys, properties and event times lie inside."""
    whole, decompressed = _codecs(("entry_id", "batch_index", "size", "key", "payload")), []

    def count(*args: Any, **options: Any) -> Any:
        decompressed.append(args)
        return fills(*args, **options)

    monkeypatch.setattr("pulsar_admin.store.scan.messages.fills", count)
    found = _codecs(("entry_id", "batch_index", "size", "key"))
    batches = {row["entry_id"] for row in found if row["batch_index"] >= 0}
    assert found == [{name: row[name] for name in found[0]} for row in whole]
    assert [len(row["payload"]) for row in whole] == [row["size"] for row in found]
    without = len(decompressed)
    _codecs(("payload",))
    assert len(decompressed) - without > without
    assert without <= len(batches)


@pytest.mark.parametrize("name", [name for name in MESSAGE_SCHEMA.names if not name.startswith("value")])
def test_a_column_alone_is_what_it_is_among_all(name: str) -> None:
    every = tuple(column for column in MESSAGE_SCHEMA.names if not column.startswith("value"))
    operation = ReadMessages(ScanOptions(), every)
    alone = ReadMessages(ScanOptions(), (name,))
    assert [row[name] for row in _rows(LocalEngine(1), operation)] == [
        row[name] for row in _rows(LocalEngine(1), alone)
    ]


def test_a_topic_that_is_not_there() -> None:
    with pytest.raises(StoreError, match="nothing"):
        read_topics(store(), ["acme/nothing"])
    assert len(read_topics(store())[0]) >= len(TOPICS)
