"""Schemas and values: definitions as the broker's registry gave them, values as their producers sent them, and bad bytes."""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from decimal import Context, Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec import avro
from pulsar_admin.store.codec.avro import avro_decoder
from pulsar_admin.store.codec.schema import encode_schema_locator
from pulsar_admin.store.codec.value import ValueSchema, json_text, plain
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.errors import EntryCorrupt, Unsupported
from pulsar_admin.store.model.messages import MessageReader
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.schemas import (
    Encoded,
    PlainValues,
    TopicSchemas,
    ValueReader,
    encoded,
    find_locator,
    find_schema,
    parse_path_test,
    read_schemas,
    record_fields,
)
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import EARLIEST, Position, parse_topic
from pulsar_admin.store.scan.typed_values import TypedValues
from tests.shapes import PREFIX, TOPICS, schemas, sent, store
from tests.stores import copied, put_node, read_rows, read_store
from tests.worlds import oracle

NOT_DECODED = {
    "broken": "no value of its AVRO schema: it ends too early",
    "protobuf": "PROTOBUF_NATIVE are not decoded",
}


def _messages(topic: str) -> Iterator[tuple[list[int], Encoded]]:
    with open_store(store()) as opened, open_reader(opened) as reader:
        found = read_topic(reader.txn, parse_topic(topic))
        for message in MessageReader(reader).iter_messages(found.iter_positions(EARLIEST)):
            position = message.position
            yield [position.ledger_id, position.entry_id, position.batch_index], encoded(message)


def test_definitions_are_those_of_the_registry() -> None:
    """The broker's REST interface answered with every version."""
    registry = oracle("shapes")["schemas"]
    assert len(registry) == len(TOPICS)
    for topic, versions in registry.items():
        found = schemas(topic.removeprefix(PREFIX))
        assert not found.problems
        assert [(number, schema.type_name) for number, schema in found.versions.items()] == [
            (version["version"], version["type"]) for version in versions
        ]
        for version in versions:
            if version["type"] in ("AVRO", "JSON"):
                assert found.versions[version["version"]].definition.decode() == version["data"]
        assert found.newest == found.versions[len(versions) - 1]


@pytest.mark.parametrize("topic", TOPICS)
def test_values_are_those_that_were_sent(topic: str) -> None:
    reader = ValueReader(schemas(topic), PlainValues().value)
    expected = {tuple(row["id"]): row for row in sent(topic)}
    for position, message in _messages(PREFIX + topic):
        row = expected.pop(tuple(position))
        value, error = reader.read(message)
        assert value == row.get("value"), row
        reason = NOT_DECODED.get(row.get("why", ""))
        assert error is None if reason is None else reason in str(error)
    assert not expected


def test_a_version_that_is_lost_hides_no_later_one(tmp_path: Path, damages_stores: None) -> None:
    path, name = copied("shapes", "clean", tmp_path), parse_topic(f"{PREFIX}orders-avro")
    locator = read_rows(path, lambda txn: find_locator(txn, name))
    assert locator is not None
    first, *others = locator.index
    lost = replace(locator, index=(replace(first, position=Position(9_999, 0)), *others))
    put_node(path, name.schema_path, encode_schema_locator(lost))
    found = read_store(path, lambda reader: read_schemas(reader, name))
    assert (list(found.versions), list(found.problems)) == ([1, 2], [0])
    assert read_store(path, lambda reader: [find_schema(reader, name, n) is None for n in (0, 1, 9)]) == [
        True,
        False,
        True,
    ]


def test_a_json_value_is_the_text_that_was_sent() -> None:
    text = b'{ "a": 1.000, "b": [] }'
    schema = ValueSchema("JSON")
    assert PlainValues().text(schema, Encoded(0, text)) == text.decode()
    unclear = ValueReader(TopicSchemas({0: schema}), PlainValues().text).read(Encoded(0, b'{"a": NaN}'))
    assert unclear == (None, "no value of its JSON schema: NaN is not JSON")


def test_a_definition_that_is_no_json_has_no_fields() -> None:
    assert [
        record_fields(ValueSchema("JSON", text)) for text in (b"{", b"[" * 5000, b"\xff", b"[]", b'{"type":"record"}')
    ] == [{}] * 5


def test_no_value_and_why() -> None:
    reader = ValueReader(TopicSchemas({0: ValueSchema("INT8")}, {1: "entry 7:0 is gone"}), PlainValues().value)
    assert reader.read(Encoded(0, b"\x05")) == (5, None)
    assert reader.read(Encoded(None, b"\x05")) == (None, None)  # sent without a schema
    assert reader.read(Encoded(0, b"", null_value=True)) == (None, None)
    assert reader.read(Encoded(0, b"\x05", encrypted=True)) == (None, None)
    assert reader.read(Encoded(0, b"\x05", is_chunk=True)) == (None, "a chunk of a larger message")
    assert reader.read(Encoded(1, b"\x05")) == (None, "entry 7:0 is gone")
    assert reader.read(Encoded(2, b"\x05")) == (None, "schema version 2 is not in the store")
    value, error = reader.read(Encoded(0, b"\x05\x06"))
    assert value is None
    assert "no value of its INT8 schema" in str(error)


NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
EMPTY = {"type": "record", "name": "Empty", "fields": []}


def test_a_deep_value_is_refused_where_the_compiled_reader_would_overflow_the_stack() -> None:
    reader = ValueReader(TopicSchemas({0: ValueSchema("AVRO", json.dumps(NODE).encode())}), PlainValues().value)
    assert reader.read(Encoded(0, b"\x02\x02\x00")).value == {"next": {"next": {"next": None}}}
    for depth in (20_000, 2_000_000):
        assert "nested too deeply" in str(reader.read(Encoded(0, b"\x02" * depth + b"\x00")).error)


@pytest.mark.parametrize(
    "definition",
    [
        {"type": "array", "items": "null"},
        {"type": "array", "items": EMPTY},
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "a", "type": EMPTY},
                {"name": "b", "type": ["null", {"type": "array", "items": "Empty"}]},
            ],
        },
        {"type": "map", "values": {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}},
    ],
)
def test_an_array_whose_items_take_no_bytes_is_refused(definition: object) -> None:
    """Six bytes would claim 2**40 items."""
    with pytest.raises(EntryCorrupt, match="do not show its end"):
        avro_decoder(json.dumps(definition).encode())


def doubling(levels: int, leaf: str) -> bytes:
    """A definition of LEVELS records that hold the next one twice, the second time by its name."""

    def record(level: int) -> object:
        inner, name = (record(level + 1), f"R{level + 1}") if level < levels else (leaf, leaf)
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": name}]
        return {"type": "record", "name": f"R{level}", "fields": fields}

    return json.dumps(record(1)).encode()


def counted_calls(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[str]:
    """The calls of functions of the AVRO codec; more than 10,000 end the test."""
    calls: list[str] = []
    for name in names:
        function = getattr(avro, name)

        def counting(*arguments: object, _function: Callable[..., object] = function, _name: str = name) -> object:
            calls.append(_name)
            assert len(calls) <= 10_000
            return _function(*arguments)

        monkeypatch.setattr(avro, name, counting)
    return calls


@pytest.mark.parametrize("leaf", ["null", "boolean"])
def test_records_that_double_are_looked_at_once(leaf: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty levels are 2**60 visits for who follows every name."""
    calls = counted_calls(monkeypatch, "inner_schemas")
    if leaf == "null":
        with pytest.raises(EntryCorrupt, match=f"{2**61 - 1} values of no bytes"):
            avro_decoder(doubling(60, leaf))
    else:
        with pytest.raises(EOFError):
            avro_decoder(doubling(60, leaf))(b"\x01" * 100)
    assert 0 < len(calls) < 1000


def test_more_columns_than_anybody_reads_are_refused() -> None:
    flat = {"type": "record", "name": "R", "fields": [{"name": f"f{n}", "type": "boolean"} for n in range(65_536)]}
    with pytest.raises(Unsupported, match="more than 65536 columns"):
        TypedValues(ValueSchema("AVRO", json.dumps(flat).encode()))
    del flat["fields"][-1]
    assert TypedValues(ValueSchema("AVRO", json.dumps(flat).encode())).kind.num_fields == 65_535
    with pytest.raises(Unsupported, match="more than 65536 columns"):
        TypedValues(ValueSchema("AVRO", doubling(40, "boolean")))


@pytest.mark.parametrize("around", ["array", "map"])
def test_values_that_hardly_take_bytes_are_refused(around: str) -> None:
    """A kilobyte would be 2**20 values a byte."""
    item = {"type": "record", "name": "I", "fields": [{"name": "x", "type": json.loads(doubling(20, "null"))}]}
    item["fields"].append({"name": "y", "type": "boolean"})  # type: ignore[attr-defined]
    inner = "items" if around == "array" else "values"
    with pytest.raises(EntryCorrupt, match="do not show its end"):
        avro_decoder(json.dumps({"type": around, inner: item}).encode())


def test_a_record_inside_itself_that_takes_no_bytes_is_refused() -> None:
    fields = [{"name": name, "type": "R"} for name in "ab"]
    with pytest.raises(EntryCorrupt, match="inside itself"):
        avro_decoder(json.dumps({"type": "record", "name": "R", "fields": fields}).encode())


def test_a_long_decimal_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """In steps that each make few digits of bytes, and not in a time that grows with the square."""
    definition = {"type": "bytes", "logicalType": "decimal", "precision": 300_000, "scale": 3}
    number = -(7**100_000)
    data = number.to_bytes(35_200, "big", signed=True)
    length = bytes([0x80 | (2 * 35_200) & 0x7F, 0x80 | (2 * 35_200) >> 7 & 0x7F, (2 * 35_200) >> 14])
    sizes: list[int] = []

    def counting(value: int) -> Decimal:
        sizes.append(value.bit_length())
        return Decimal(value)

    monkeypatch.setattr(avro, "Decimal", counting)
    found = avro_decoder(json.dumps(definition).encode())(length + data)
    assert found == Decimal(number).scaleb(-3, Context(prec=300_000))
    assert max(sizes) <= 4096
    assert sum(sizes) <= 8 * 35_200 + len(sizes)


def test_an_older_value_is_resolved_to_the_newest_definition() -> None:
    older = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}).encode()
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "string", "default": "x"}]
    newer = json.dumps({"type": "record", "name": "R", "fields": fields}).encode()
    assert avro_decoder(older, newer)(b"\x54") == {"a": 42, "b": "x"}
    with pytest.raises(ValueError, match="newest"):
        avro_decoder(older, b'{"type":"record","name":"R","fields":[{"name":"c","type":"int"}]}')(b"\x54")


def test_what_json_cannot_say_is_text() -> None:
    assert plain([float("nan"), float("inf"), -float("inf"), b"\xff"]) == ["NaN", "Infinity", "-Infinity", "/w=="]
    assert b64decode("/w==") == b"\xff"
    assert json.loads(json_text("\ud800")) == "\ud800"
    json_text("\ud800").encode()


def test_paths_into_a_value() -> None:
    value = {"a": [2, {"b": "x"}, True, None], "x y": {"b": 3}, "b": "x"}
    holds = "$ | $.a | $.a[0]=2 | $.a[-1]=null | $.a[-4]=2 | $.a[1].b=x | $['x y'].b=3 | $[\"x y\"].b>=3 | $.a[*]=2 | $.*.b=3 | $.a[2]=true"
    fails = "$.c | $.a[4] | $.a[-5] | $.a[0]=3 | $.a[1]=2 | $.a[0]=true | $.a[2]=1 | $.b[0] | $.a.b | $.a[0]!=2 | $.b<1 | $.a[2]>0"
    orders = {"<": "3", "<=": "2 3", "=": "2", "!=": "1 3", ">=": "1 2", ">": "1"}
    for text in holds.split(" | "):
        assert parse_path_test(text).holds(value), text
    for text in fails.split(" | "):
        assert not parse_path_test(text).holds(value), text
    for sign, numbers in orders.items():
        assert [one for one in "123" if parse_path_test(f"$.a[0] {sign} {one}").holds(value)] == numbers.split()
        texts = [one for one in "wxy" if parse_path_test(f"$.b{sign}{one}").holds(value)]
        assert texts == ["wxy"[int(number) - 1] for number in numbers.split()]
