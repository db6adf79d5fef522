"""Schemas from Python: a plan writes what the command writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pulsar_admin as pa
from tests.commands.changing import rows_of
from tests.conftest import Cli
from tests.stores import NOW_MS

AVRO = "public/default/avro"
PLAIN = "public/default/plain"
NEW = {
    "type": "AVRO",
    "schema": '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}',
    "properties": {"owner": "billing"},
}


def test_a_schema_is_uploaded_and_deleted(path: Path, cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "order.json"
    file.write_text(json.dumps(NEW))
    before = rows_of(path, "tree")
    now = ("--store", path, "--now", f"@{NOW_MS}")
    uploaded = cli(*now, "schemas", "upload", PLAIN, "-f", file, "--dry-run", "-o", "json").json
    with pa.open_store(path, writable=True, now=NOW_MS) as store:
        topic = store.topic(PLAIN)
        plan = topic.upload_schema(NEW)
        assert plan.preview().documents()[0] == topic.upload_schema(file).preview().documents()[0] == uploaded
        number = store.apply(plan).number
        found = topic.schema()
        assert (found.version, found.type, found.definition, found.timestamp_ms, dict(found.properties)) == (
            (0, "AVRO", NEW["schema"].encode(), NOW_MS, NEW["properties"])  # type: ignore[attr-defined]
        )
        assert topic.upload_schema(NEW).changes_nothing
        topic.check_schema(NEW)
        with pytest.raises(pa.Refused, match="Incompatible schema"):
            topic.check_schema({"type": "STRING"})
        with pytest.raises(pa.Refused, match="Incompatible schema"):
            topic.upload_schema({"type": "STRING"})
        deleted = store.apply(topic.delete_schema()).number
        assert topic.schemas() == ()
        assert deleted is not None
        store.undo(deleted)
        assert topic.schemas() == (found,)
        plan = topic.delete_schema(force=True)
    gone = cli(*now, "schemas", "delete", PLAIN, "-f", "--dry-run", "-o", "json").json
    assert plan.preview().documents()[0] == gone
    with pa.open_store(path, writable=True, now=NOW_MS) as store:
        change = store.apply(store.topic(PLAIN).delete_schema(force=True))
        assert store.topic(PLAIN).schema_locator() is None
        assert change.number is not None
        store.undo(change.number)
        assert store.topic(PLAIN).schema().definition == found.definition
        assert number is not None
        store.undo(deleted + 1)
        store.undo(deleted)
        store.undo(number)
    assert rows_of(path, "tree") == before


@pytest.mark.parametrize(
    "text",
    [
        '{"type": ["AVRO"]}',
        '{"type": "BYTES", "schema": "\\ud800"}',
        '{"type": "STRING", "properties": {"a": "\\ud800"}}',
        '{"type": "STRING", "properties": {"\\ud800": "a"}}',
        '{"type": "AVRO", "schema": "\\ud800"}',
    ],
)
def test_a_file_without_text_is_no_schema(path: Path, cli: Cli, tmp_path: Path, text: str) -> None:
    file = tmp_path / "schema.json"
    file.write_text(text)
    for command in ("upload", "compatibility"):
        done = cli("--store", path, "schemas", command, PLAIN, "-f", file, "-o", "json")
        assert (done.exit_code, done.error["code"]) == (2, "invalid-value")
    with pa.open_store(path) as store, pytest.raises(pa.InvalidValue):
        store.topic(PLAIN).upload_schema(file)
