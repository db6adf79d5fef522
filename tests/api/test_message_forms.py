"""A message has one form: rows, records, Arrow and pandas agree, few or many, and values are what the schemas say."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow
import pytest

import pulsar_admin as pa
from pulsar_admin.api.messages import COLUMNS
from pulsar_admin.store.codec.value import ValueSchema
from pulsar_admin.store.model.schemas import Encoded, TopicSchemas, ValueReader
from pulsar_admin.store.scan.typed_values import VersionedValues
from tests.stores import NOW_MS, imported
from tests.worlds import oracle

_WHOLE = (*COLUMNS, "topic", "payload", "marker_type")


@pytest.fixture(scope="module")
def store() -> Iterator[pa.Store]:
    with pa.open_store(imported("small", "clean"), now=NOW_MS) as opened:
        yield opened


@pytest.mark.parametrize("name", sorted(oracle("small")["topics"]))
def test_rows_records_and_columns_agree_few_or_many(
    store: pa.Store, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = store.topic(name).messages(columns=_WHOLE, markers=True, uncommitted=True)
    table = messages.to_arrow().to_pylist(maps_as_pydicts="lossy")
    for small in (0, 1 << 20):
        monkeypatch.setattr("pulsar_admin.store.search.window.SMALL_MESSAGES", small)
        rows = list(messages.rows())
        assert rows == table
        assert [[getattr(one, column) for column in _WHOLE] for one in messages.records()] == [
            [*row.values()] for row in rows
        ]


def test_records_and_frame_agree(store: pa.Store) -> None:
    messages = store.topic("public/default/avro").messages(columns=["publish_time", "event_time", "payload", "value"])
    frame = messages.to_pandas()
    for record, row in zip(messages.records(), frame.to_dict("records"), strict=True):
        assert record.publish_time == row["publish_time"].to_pydatetime()
        assert (record.payload, record.value) == (row["payload"], row["value"])
        assert isinstance(record.value["id"], int)
    assert str(frame.event_time.dtype) == "datetime64[us, UTC]"
    assert frame.event_time.isna().all() == all(one.event_time is None for one in messages.records())


def test_what_was_not_asked_for_is_absent(store: pa.Store) -> None:
    (record,) = store.topic("public/default/avro").messages(columns=["value"], limit=1).records()
    assert repr(record) == "MessageRecord(len(value)=3)"
    assert not hasattr(record, "payload")
    with pytest.raises(AttributeError, match=r"'key' was not asked for: columns=\['value'\]"):
        print(record.key)
    with pytest.raises(AttributeError):
        record.value = None  # type: ignore[misc]
    assert copy.deepcopy(record) == record


def test_values_are_what_was_sent(store: pa.Store) -> None:
    name = "persistent://public/default/avro"
    messages = store.topic(name).messages(columns=["value"])
    kind = messages.schema.field("value").type
    assert pyarrow.types.is_struct(kind)
    assert [row["value"] for row in messages.rows()] == [
        row["value"] for row in oracle("small")["sent"] if row["topic"] == name
    ]


def test_values_of_topics_with_different_schemas_are_json_text(store: pa.Store) -> None:
    columns = ["topic", "value"]
    both = store.search("public/default/avro", "public/default/plain", columns=columns)
    assert both.schema.field("value").type == pyarrow.string()
    typed = [row["value"] for row in store.search("public/default/avro", columns=columns).rows()]
    texts = [row["value"] for row in both.rows() if row["topic"].endswith("/avro")]
    assert list(map(json.loads, texts)) == typed


def test_a_search_in_values_finds_typed_ones(store: pa.Store) -> None:
    rows = store.topic("public/default/avro").search(json_paths=["$.id>=18"], columns=["value"]).rows()
    assert [row["value"]["id"] for row in rows] == [18, 19]


def _schema(kind: str, *fields: tuple[str, Any]) -> ValueSchema:
    named = [{"name": name, "type": of} for name, of in fields]
    return ValueSchema(kind, json.dumps({"type": "record", "name": "R", "fields": named}).encode())


def _read(schemas: dict[int, ValueSchema], *payloads: tuple[int, bytes]) -> list[Any]:
    found = TopicSchemas(schemas)
    versioned = VersionedValues(found)
    reader = ValueReader(found, versioned.value)
    decoded = [reader.read(Encoded(version, payload)) for version, payload in payloads]
    assert [one.error for one in decoded] == [None] * len(decoded)
    kept: list[Any] = pyarrow.array([one.value for one in decoded], versioned.kind).to_pylist(maps_as_pydicts="lossy")
    return kept


def test_values_of_several_versions_have_the_fields_of_all() -> None:
    """One that a version took away, one that it added without a default, one inside a record, one that became wider."""
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}
    wider = {**inner, "fields": [*inner["fields"], {"name": "y", "type": "string"}]}
    schemas = {
        0: _schema("AVRO", ("gone", "int"), ("n", "int"), ("in", {"type": "array", "items": inner})),
        1: _schema("AVRO", ("n", "long"), ("in", {"type": "array", "items": wider}), ("new", "string")),
    }
    old, new = b"\x02\x04\x02\x06\x00", b"\x04\x02\x06\x02z\x00\x02w"
    assert _read(schemas, (0, old), (1, new)) == [
        {"gone": 1, "n": 2, "in": [{"x": 3, "y": None}], "new": None},
        {"gone": None, "n": 2, "in": [{"x": 3, "y": "z"}], "new": "w"},
    ]


def test_where_versions_disagree_values_are_json_text() -> None:
    times = {"type": "map", "values": {"type": "long", "logicalType": "timestamp-millis"}}
    schemas = {0: _schema("JSON", ("a", "int"), ("m", times)), 1: _schema("JSON", ("a", "string"), ("m", "string"))}
    rows = _read(schemas, (0, b'{"a": 7, "m": {"k": 1}}'), (1, b'{"a": "b", "m": "c"}'))
    at = datetime.fromtimestamp(0.001, UTC)
    assert [rows[0]["a"], *map(datetime.fromisoformat, json.loads(rows[0]["m"]).values())] == ["7", at]
    assert rows[1] == {"a": "b", "m": "c"}


def test_a_version_of_another_type_is_json_text_beside_it() -> None:
    schemas = {0: ValueSchema("STRING"), 1: _schema("JSON", ("a", "int")), 2: ValueSchema("PROTOBUF_NATIVE", b"{")}
    assert _read(schemas, (0, b"x"), (1, b'{"a": 1}')) == ["x", '{"a":1}']
