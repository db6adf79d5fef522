"""The table ``messages`` with other tools' columns: the rows that the Spark connector read, and those of ``topics dump``."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pulsar_admin
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.dump.job import Dumped, iter_batches
from pulsar_admin.store.dump.options import DumpOptions
from pulsar_admin.store.dump.tables import HELPERS
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import iter_topics, read_topic
from pulsar_admin.store.names import EARLIEST, parse_topic
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageIdData
from pulsar_admin.store.tables.schemas import known_schema
from tests.conftest import Cli
from tests.stores import imported
from tests.tables.test_export import table_of
from tests.worlds import CLUSTER, scratch_copy


def _export(cli: Cli, store: Path, folder: Path, *words: str) -> Any:
    return cli("--store", store, "store", "export", "tables", folder, *words, "-o", "json")


def _dumped(store: Path) -> pa.Table:
    """What ``topics dump --payload`` has of all topics, in the order of their names, as the table has it."""
    found = []
    with open_store(store) as opened, open_reader(opened) as reader:
        for name in iter_topics(reader.txn):
            options, topic = DumpOptions(payload=True, profile="pulsar-spark"), read_topic(reader.txn, name)
            for batch in () if name.is_system else iter_batches(reader, topic, options, Dumped()):
                made = pa.Table.from_batches([batch]).drop_columns([helper.name for helper in HELPERS])
                made = made.add_column(0, "topic", pa.array([str(name)] * len(made)))
                found.append(made.add_column(0, "cluster", pa.array(["c"] * len(made))))
    return pa.concat_tables(found)


@pytest.mark.parametrize("world", ["shapes", CLUSTER])
def test_rows_of_a_dump(world: str, tmp_path: Path, cli: Cli) -> None:
    store = imported(world, "clean")
    words = ("--only", "messages", "--cluster", "c", "--columns", "pulsar-spark")
    done = _export(cli, store, tmp_path / "t", *words)
    assert done.exit_code == 0, done.stderr
    found, expected = table_of(tmp_path / "t", "messages"), _dumped(store)
    assert found.schema.names == known_schema().names
    assert len(found) > 50
    assert found.to_pylist() == expected.to_pylist()


def test_a_folder_has_messages_with_one_set_of_columns(tmp_path: Path, cli: Cli) -> None:
    store, folder = imported("small", "clean"), tmp_path / "t"
    east, west = (("--cluster", name) for name in ("east", "west"))
    assert _export(cli, store, folder, *east, "--only", "messages", "--columns", "pulsar-spark").exit_code == 0
    before = (folder / "tables.json").read_bytes()
    refused = _export(cli, store, folder, *west, "--messages")
    assert refused.exit_code == 3
    assert "has messages of east with the columns of pulsar-spark" in refused.stderr
    assert "--columns pulsar-spark" in refused.stderr
    assert (folder / "tables.json").read_bytes() == before
    assert _export(cli, store, folder, *west, "--only", "topics").exit_code == 0
    assert _export(cli, store, folder, *east, "--only", "topics").exit_code == 0
    counts = "select cluster, count(__key) > 0 has from messages group by 1"
    assert cli("--tables", folder, "sql", counts, "-o", "json").json == [{"cluster": "east", "has": True}]
    assert _export(cli, store, folder, *east, "--only", "messages").exit_code == 0  # the only cluster with messages
    assert "columns" not in json.loads((folder / "tables.json").read_text())["clusters"]["east"]
    assert cli("--tables", folder, "sql", "select count(ledger_id) from messages").exit_code == 0


def test_what_is_refused_in_one_line(tmp_path: Path, cli: Cli) -> None:
    store = imported("small", "clean")
    for words, said in (
        (("--columns", "pulsar-spark"), "add --messages"),
        (("--messages", "--columns", "pulsar-spark", "--iceberg"), "other columns are for Parquet files alone"),
        (("--messages", "--columns", "presto"), "'presto' is not"),
        (("--messages", "--columns", "trino"), "`--columns trino` left in 0.2: see docs/formats/dump.md"),
        (("--messages", "--columns", "lakehouse"), "`--columns lakehouse` left in 0.2: see docs/formats/dump.md"),
    ):
        refused = _export(cli, store, tmp_path / "t", *words)
        assert refused.exit_code == 2
        assert said in refused.stderr
        assert not (tmp_path / "t").exists()
    with pulsar_admin.open_store(store) as opened:
        with pytest.raises(InvalidValue, match="of the table messages"):
            opened.export_tables(tmp_path / "t", columns="pulsar-spark")
        with pytest.raises(InvalidValue, match="'presto' is not one of"):
            opened.export_tables(tmp_path / "t", messages=True, columns="presto")  # type: ignore[arg-type]


def test_a_damaged_name_of_columns_is_named(tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "t"
    words = ("--only", "messages", "--columns", "pulsar-spark")
    assert _export(cli, imported("small", "clean"), folder, *words).exit_code == 0
    listed = folder / "tables.json"
    for wrong in ('"presto"', "7", "[]"):
        listed.write_text(listed.read_text().replace('"columns": "pulsar-spark"', f'"columns": {wrong}'))
        cli("--tables", folder, "sql", "select 1 from messages").ends(6, "columns: expected one of pulsar-spark")
        listed.write_text(listed.read_text().replace(f'"columns": {wrong}', '"columns": "pulsar-spark"'))


def test_what_cannot_be_read_is_told_and_the_rest_is_there(tmp_path: Path, cli: Cli) -> None:
    source, store = scratch_copy("small", "clean", tmp_path), tmp_path / "store"
    assert cli("--store", store, "store", "import", "standalone", source).exit_code == 0
    words = ("--only", "messages", "--columns", "pulsar-spark")
    assert _export(cli, store, tmp_path / "whole", *words).exit_code == 0
    with open_store(store) as opened, open_reader(opened) as reader:
        position = next(read_topic(reader.txn, parse_topic("public/default/plain")).iter_positions(EARLIEST))
        payload = bytes(reader.read(position.ledger_id, position.entry_id).payload)
    logs = [log for log in source.rglob("*.log") if payload in log.read_bytes()]
    for log in logs:
        data = bytearray(log.read_bytes())
        data[data.index(payload) + len(payload) - 1] ^= 1
        log.write_bytes(data)
    done = _export(cli, store, tmp_path / "damaged", *words)
    assert done.exit_code == 1
    assert "1 entry cannot be read" in done.stderr
    whole, damaged = (table_of(tmp_path / name, "messages") for name in ("whole", "damaged"))
    ids = [MessageIdData.FromString(one) for one in whole["__messageId"].to_pylist()]  # protobuf's own reader
    kept = [(one.ledgerId, one.entryId) != (position.ledger_id, position.entry_id) for one in ids]
    assert damaged.equals(whole.filter(pa.array(kept)))
    assert len(damaged) == len(whole) - 1
    for log in logs:
        log.rename(log.with_suffix(".away"))
    done = _export(cli, store, tmp_path / "damaged", *words)
    assert done.exit_code == 1
    assert "acme/iot/skewed: 183 entries are in no imported file" in done.stderr
    assert len(table_of(tmp_path / "damaged", "messages")) <= len(whole) - 183
