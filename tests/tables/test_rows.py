"""The small tables against what the live broker answered, and against the metadata as they lie in the source."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
from msgspec.structs import replace

import pulsar_admin as pa
from pulsar_admin.store.codec.schema import SchemaLocator, decode_schema_locator, encode_schema_locator
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import read_node
from pulsar_admin.store.errors import InvalidValue, MetadataCorrupt, StoreError
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.tables.entries import senders
from pulsar_admin.store.tables.rows import iter_ledgers
from tests.conftest import Cli
from tests.stores import copied, imported, put_node, read_rows
from tests.worlds import CLUSTER, WORLD_NAMES, asked_topics, oracle, world

WORLDS = (*WORLD_NAMES, CLUSTER)
_HOLE = re.compile(r"\((-?\d+):(-?\d+)\.\.(\d+):(\d+)\]")


def rows_of(store: Path, table: str) -> list[dict[str, Any]]:  # Any: each column's own type
    with pa.open_store(store) as opened:
        return list(opened.table(table).rows())


def full(name: str) -> str:
    return str(parse_topic(name))


@pytest.mark.parametrize("world", WORLDS)
def test_topics_and_ledgers_are_those_of_internal_stats(world: str) -> None:
    store = imported(world, "clean")
    topics = {row["topic"]: row for row in rows_of(store, "topics")}
    ledgers = rows_of(store, "ledgers")
    assert [row["ledger_id"] for row in ledgers] == sorted({row["ledger_id"] for row in ledgers})
    compared = 0
    for name, said in asked_topics(world).items():
        stats, topic = said["internal_stats"], topics[full(name)]
        assert (topic["entries"], topic["size"]) == (stats["numberOfEntries"], stats["totalSize"]), name
        own = sorted((row for row in ledgers if row["topic"] == full(name)), key=lambda row: row["place"])
        assert [row["place"] for row in own] == list(range(topic["ledgers"]))
        asked = stats["ledgers"]
        assert [row["ledger_id"] for row in own][: len(asked)] == [ledger["ledgerId"] for ledger in asked]
        assert not any(row["entries"] for row in own[len(asked) :]), (
            "made when the topic was loaded again, while it stopped"
        )
        for row, ledger in zip(own, asked[:-1], strict=False):
            assert (row["entries"], row["size"]) == (ledger["entries"], ledger["size"])
            text = ledger["metadata"]
            assert f"ensembleSize={row['ensemble_size']}, writeQuorumSize={row['write_quorum']}" in text
            assert f"state={row['state']}, " in text
            assert f"lastEntryId={row['last_entry_id']}, " in text
            assert "[" + ", ".join(row["ensemble"]) + "]" in text
            compared += 1
    assert compared > 30


@pytest.mark.parametrize("world", WORLDS)
def test_cursors_stand_where_the_broker_said_with_their_holes(world: str) -> None:
    cursors = {(row["topic"], row["subscription"]): row for row in rows_of(imported(world, "clean"), "cursors")}
    holes = 0
    for name, said in asked_topics(world).items():
        for subscription, cursor in said["internal_stats"]["cursors"].items():
            row = cursors[full(name), unquote(subscription)]
            assert f"{row['mark_delete_ledger_id']}:{row['mark_delete_entry_id']}" == cursor["markDeletePosition"]
            expected = [tuple(map(int, found)) for found in _HOLE.findall(cursor["individuallyDeletedMessages"])]
            assert all(before == behind for before, _, behind, _ in expected)
            shown = [tuple(acked.values()) for acked in row["acked_ranges"]]
            assert row["holes"] == row["acked_ranges"]
            assert shown == [(ledger, first + 1, last) for ledger, first, _, last in expected]
            stats = said["stats"]["subscriptions"].get(subscription)
            assert stats is None or row["backlog_entries"] == stats["msgBacklog"], (name, subscription)
            holes += len(shown)
    assert holes > 10


def test_policies_are_those_that_the_namespace_stores() -> None:
    rows = rows_of(imported("small", "clean"), "policies")
    for name, said in oracle("small")["namespaces"].items():
        found = {row["policy"]: json.loads(row["value"]) for row in rows if row["name"] == name}
        kept = said["policies"]
        assert found.get("retention") == kept.get("retention_policies")
        assert found.get("message-ttl") == kept.get("message_ttl_in_seconds")
        assert found.get("max-producers-per-topic") == kept.get("max_producers_per_topic")
    assert {row["level"] for row in rows_of(imported("policies", "clean"), "policies")} >= {"namespace", "topic"}


def test_what_cannot_be_read_is_counted_and_the_rest_is_there(store: Path, damages_stores: None) -> None:
    whole = len(rows_of(store, "topics"))
    put_node(store, "/managed-ledgers/public/default/persistent/plain", b"\xff\xff")
    found = {}
    with pa.open_store(store) as again:
        for table in ("topics", "ledgers", "cursors"):
            found[table] = again.table(table)
            with pytest.warns(pa.PartialData):
                list(found[table])
        with pytest.warns(pa.PartialData):
            rows = list(found["topics"].rows())
    assert len(rows) == whole
    (plain,) = [row for row in rows if row["topic"] == "persistent://public/default/plain"]
    assert (plain["entries"], plain["subscriptions"]) == (None, 5)
    assert isinstance(found["topics"].problems[0], MetadataCorrupt)


@pytest.mark.parametrize(("imported_bookies", "code"), [(2, 0), (1, 1)])
def test_tables_say_that_bookies_are_not_imported_where_their_entries_are_not_counted(
    imported_bookies: int, code: int, cli: Cli, tmp_path: Path
) -> None:
    """Each entry is on two of the three bookies: without one of these, all are counted."""
    disks = world("cluster") / "clean"
    named = [f"--bookie=bk{number}test={disks}/bookkeeper{number}" for number in range(imported_bookies)]
    cli("--store", tmp_path / "s", "store", "import", "cluster", "--metadata", disks / "zookeeper", *named)
    questions = [("sql", f"select count(*) from {table}") for table in ("topics", "ledgers", "cursors", "entries")]
    for line in (*questions, ("store", "export", "tables", tmp_path / "tables", "--only", "ledgers")):
        told = cli("--store", tmp_path / "s", *line).ends(code).stderr
        only = "entries that only bk1test and bk2test have, not imported, are not counted"
        assert (f"{only}; import its disks: pulsar-admin" in told) == bool(code), line
    told = cli("--tables", tmp_path / "tables", "sql", "select count(*) from ledgers").ends(code).stderr
    assert (f"an incomplete store, so this answer may be incomplete or out of date: {only}" in told) == bool(code)


def test_another_table_is_refused_with_those_there_are() -> None:
    with pa.open_store(imported("small", "clean")) as opened, pytest.raises(InvalidValue, match="no table 'topic'"):
        opened.table("topic")


@pytest.mark.parametrize("world", WORLDS)
def test_ledgers_sorted_on_disk_are_the_same(world: str) -> None:
    """Runs of three rows give what one run gives, which the test above compares with the broker's answers."""
    with open_store(imported(world, "clean")) as store, store.read() as txn:
        several, one = (list(iter_ledgers(txn, _unexpected, None, rows)) for rows in (3, 1 << 20))
    assert len(one) > 30
    assert [row._replace(ledger=None) for row in several] == [row._replace(ledger=None) for row in one]


def _unexpected(error: StoreError) -> None:
    raise error


def test_a_schema_that_cannot_be_read_hides_no_other(cli: Cli, tmp_path: Path, damages_stores: None) -> None:
    """One topic's node; and of another's two versions the first, whose ledger is lost."""
    store, path = copied("small", "clean", tmp_path), parse_topic("public/default/avro").schema_path
    question = "select topic, version, type is null unread from schemas order by 1, 2"
    before = cli("--store", store, "sql", question, "-o", "json").json
    first = parse_topic(before[0]["topic"])
    value = read_rows(store, lambda txn: read_node(txn, path).value)
    found = decode_schema_locator(value, path).newest
    moved = SchemaLocator(
        replace(found, version=1), (replace(found, position=Position(1_000_000, 0)), replace(found, version=1))
    )
    put_node(store, first.schema_path, b"\xff\xff")
    put_node(store, path, encode_schema_locator(moved, value))
    answer = cli("--store", store, "sql", question, "-o", "json")
    avro = [{"topic": "persistent://public/default/avro", "version": at, "unread": at == 0} for at in (0, 1)]
    others = [row for row in before[1:] if row["topic"] != avro[0]["topic"]]
    assert (answer.exit_code, answer.json) == (1, sorted(others + avro, key=lambda row: (row["topic"], row["version"])))


def test_producers_that_are_no_text_and_empty_ones() -> None:
    # The size of MessageMetadata, then its fields 1, 2 and 3.
    first, second = b"\0\0\0\x07\x0a\x01\xff\x10\x05\x18\x01", b"\0\0\0\x06\x0a\x00\x10\x06\x18\x01"
    data = np.frombuffer(first + second, np.uint8)
    producers, sequences = senders(data, np.array([0, len(first)]), np.array([len(first), len(data)]))
    assert (producers.to_pylist(), sequences.tolist()) == (["\ufffd", ""], [5, 6])
