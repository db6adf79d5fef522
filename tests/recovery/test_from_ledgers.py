"""``store recover`` at level A: what real Pulsars wrote of topics, taken away and made again from their ledgers, is what it was."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.codec.cursor import CursorState
from pulsar_admin.store.codec.managedledger import decode_managed_ledger
from pulsar_admin.store.codec.schema import decode_schema_locator
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import find_node, iter_nodes, read_node
from pulsar_admin.store.model.cursors import Cursor, read_cursors
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.topics import COMPACTED_LEDGER, Topic, iter_topics, read_topic
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.recovery.evidence import iter_schema_entries
from pulsar_admin.store.recovery.from_ledgers import HOLDING
from tests.conftest import Cli
from tests.stores import copied, imported, lose_nodes, read_rows, read_store, write_rows
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.worlds import CLUSTER

OWN = {"__compaction", "__pending_ack_state", "transaction.subscription"}
LOST = ("/managed-ledgers", "/schemas", "/admin")


def topics_of(reader: EntryReader) -> dict[str, Topic]:
    return {str(name): read_topic(reader.txn, name) for name in iter_topics(reader.txn)}


def recovered(name: str, state: str, tmp_path: Path, cli: Cli, *options: Any) -> Path:
    store = copied(name, state, tmp_path)
    assert lose_nodes(store, *LOST)
    assert cli("--store", store, "store", "recover", "--cluster", "standalone", *options).exit_code == 0
    return store


def values(reader: EntryReader, prefix: str) -> dict[str, bytes]:
    return {node.path: node.value for node in iter_nodes(reader.txn, prefix) if node.value}


def versions(reader: EntryReader) -> dict[str, list[tuple[int, bytes]]]:
    """Of two ledgers that registrations at once left either may be named: they say the same."""
    found = {path: decode_schema_locator(value, path) for path, value in values(reader, "/schemas/").items()}
    return {
        path: [(one.version, one.hash) for one in (*locator.index, locator.newest)] for path, locator in found.items()
    }


def shape(topic: Topic) -> list[tuple[int, int, int]]:
    return [(one.ledger_id, one.entries, one.size_bytes) for one in topic.ledgers]


@pytest.mark.parametrize(
    ("name", "state"),
    [("small", "mutated"), ("small", "crashed"), ("nometa", "clean"), (CLUSTER, "clean"), (CLUSTER, "crashed")],
)
def test_topics_ledgers_and_schemas_are_what_they_were(name: str, state: str, tmp_path: Path, cli: Cli) -> None:
    store = recovered(name, state, tmp_path, cli)
    with (
        open_store(imported(name, state)) as original,
        open_reader(original) as was,
        open_store(store) as again,
        open_reader(again) as now,
    ):
        before, after = topics_of(was), topics_of(now)
        assert before.keys() == after.keys()
        for topic, there in before.items():
            assert shape(after[topic]) == shape(there), topic
            for old, new in zip(there.ledgers, after[topic].ledgers, strict=True):
                # when a broker saw the ledger closed: when its metadata says so, a reload may be much later
                assert bool(old.info.timestamp_ms) == bool(new.info.timestamp_ms)
                assert (new.info.timestamp_ms or 0) <= (old.info.timestamp_ms or 0)
        assert versions(now) == versions(was)
        parts = "/admin/partitioned-topics/acme"
        assert values(now, parts) == values(was, parts) != {}
        check_cursors(was, now, before, after)


def test_cursors_whose_nodes_are_left_stay_as_they_are(tmp_path: Path, cli: Cli) -> None:
    """The nodes of topics alone are lost."""
    store = copied(CLUSTER, "crashed", tmp_path)
    topics = read_rows(store, lambda txn: [name.path for name in iter_topics(txn) if find_node(txn, name.path)])

    def work(txn: Txn) -> None:
        for path in topics:
            txn.delete("tree", path.encode())

    with open_store(store, writable=True) as opened, open_reader(opened) as reader:
        before = values(reader, "/managed-ledgers/")
        opened.write(work)
    assert cli("--store", store, "store", "recover", "--level", "A", "--cluster", "standalone").exit_code == 0
    after = read_store(store, lambda reader: values(reader, "/managed-ledgers/"))
    left = {path: value for path, value in before.items() if path not in topics}
    assert len(left) > 20
    assert left.items() <= after.items()


def check_cursors(was: EntryReader, now: EntryReader, before: dict[str, Topic], after: dict[str, Topic]) -> None:
    """Those that cursor ledgers or compacted ledgers tell of; one whose node was written since stands further back."""
    told = 0
    for topic, there in before.items():
        old, new = read_cursors(was.txn, was, there), read_cursors(now.txn, now, after[topic])
        holding = new.pop(HOLDING, None)
        assert new.keys() <= old.keys()
        if holding is not None:
            assert after[topic].place(holding.mark_delete) == 0
        else:
            assert new.keys() - {"__compaction"} or not after[topic].number_of_entries or parse_topic(topic).is_system
        for name, cursor in new.items():
            if name in OWN and cursor.info.cursors_ledger_id < 0 and COMPACTED_LEDGER not in cursor.state.properties:
                assert after[topic].place(cursor.mark_delete) == 0
                continue
            told += 1
            assert cursor.state == old[name].state or is_behind(after[topic], cursor.state, old[name]), (topic, name)
            if cursor.state == old[name].state:
                assert cursor.info.cursor_properties == old[name].info.cursor_properties
    assert told >= 8


def is_behind(topic: Topic, state: CursorState, cursor: Cursor) -> bool:
    left_over = cursor.info.cursors_ledger_id < 0
    return left_over and topic.place(state.mark_delete) < topic.place(cursor.state.mark_delete)


@pytest.mark.parametrize("name", ["small", CLUSTER])
def test_with_an_earlier_state_everything_comes_back(name: str, tmp_path: Path, cli: Cli) -> None:
    """Of then, as here nothing happened since: every node but sizes of lists is the same, byte by byte."""
    earlier = Path(shutil.copytree(imported(name, "crashed"), tmp_path / "earlier"))
    store = recovered(name, "crashed", tmp_path, cli, "--earlier", earlier)
    with (
        open_store(imported(name, "crashed")) as original,
        open_reader(original) as was,
        open_store(store) as again,
        open_reader(again) as now,
    ):
        for prefix in ("/schemas/", "/admin/"):
            assert values(now, prefix) == values(was, prefix)
        before, after = topics_of(was), topics_of(now)
        for topic, there in before.items():
            assert shape(after[topic]) == shape(there)
            assert after[topic].managed.properties == there.managed.properties
            old, new = read_cursors(was.txn, was, there), read_cursors(now.txn, now, after[topic])
            assert {name: (one.state, one.info.cursor_properties) for name, one in old.items()} == {
                name: (one.state, one.info.cursor_properties) for name, one in new.items()
            }


def test_what_is_there_stays(store: Path, cli: Cli) -> None:
    """One topic is lost: it alone is written, where that is asked for, and undo takes it away again."""
    assert lose_nodes(store, "/managed-ledgers/public/default/persistent/plain")
    report = cli("--store", store, "store", "recover", "-o", "json").json
    assert report["change"] is None
    assert (
        "persistent://public/default/plain. A broker deletes a topic's ledgers before its node" in report["warnings"][1]
    )
    lines = cli("--store", store, "store", "recover", "--level", "A", "-o", "jsonl").stdout.splitlines()
    assert {json.loads(line).get("topic") for line in lines} == {None, "persistent://public/default/plain"}
    with open_store(store) as again, open_reader(again) as now:
        path = parse_topic("public/default/plain").path
        node = find_node(now.txn, path)
        assert decode_managed_ledger(node.value, path).properties == {"index": "299"}
    assert cli("--store", store, "store", "recover", "-o", "json").json["change"] is None
    assert cli("--store", store, "store", "undo", "1").exit_code == 0
    assert read_rows(store, lambda txn: find_node(txn, path)) is None


def test_versions_of_schemas_are_read_behind_what_is_none(tmp_path: Path) -> None:
    with open_store(imported("small", "clean")) as store, open_reader(store) as reader:
        node = read_node(reader.txn, parse_topic("public/default/avro").schema_path)
        place = decode_schema_locator(node.value, node.path).newest.position
        payload = bytes(reader.read(place.ledger_id, place.entry_id).payload)
        (expected,) = [*iter_schema_entries(reader, [place.ledger_id])]
    entries = [Made(CREATED_MS, raw=raw) for raw in (b"\xff", payload, b"", payload)]
    path = make_store(tmp_path / "s", {"a/b/t": MadeTopic([entries])})
    found = read_store(path, lambda reader: [*iter_schema_entries(reader, [10])])
    assert (expected[0], found) == (place, [(Position(10, at), expected[1]) for at in (1, 3)])


def test_an_unknown_layout_is_refused(tmp_path: Path, cli: Cli) -> None:
    store = copied(CLUSTER, "clean", tmp_path)

    def work(txn: Any) -> None:
        node = find_node(txn, "/ledgers/LAYOUT")
        from pulsar_admin.store.db.tree import row_of

        txn.put("tree", *row_of(node._replace(value=node.value.replace(b":1", b":2"))))

    write_rows(store, work)
    result = cli("--store", store, "store", "recover")
    assert result.exit_code != 0
    assert "HierarchicalLedgerManagerFactory:1, found" in result.stderr
