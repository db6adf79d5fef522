"""``ledgers forget``: what is left of every backlog is what it was without the ledger; undo brings every byte back."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.codec.managedledger import decode_managed_ledger
from pulsar_admin.store.codec.schema import IndexEntry, SchemaLocator, decode_schema_locator, encode_schema_locator
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import Node, find_node, put_nodes, read_node, tree_key
from pulsar_admin.store.model.cursors import iter_backlog, iter_cursor_names, read_cursor
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.references import index_owners
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, parse_topic
from tests.commands.changing import check_undo, rows_of
from tests.compaction.entries import PUBLISH_MS, Batch, Slot, compacted, entry
from tests.conftest import Cli
from tests.stores import copied
from tests.synthetic import Made, MadeCompacted, MadeTopic, make_store

PLAIN = "public/default/plain"
AVRO = parse_topic("public/default/avro")


def backlogs(path: Path, topic: str) -> dict[str, list[Position]]:
    with open_store(path) as store, open_reader(store) as reader:
        found = read_topic(reader.txn, parse_topic(topic))
        names = iter_cursor_names(reader.txn, found.name)
        cursors = [read_cursor(reader.txn, reader, found, name) for name in names]
        return {cursor.name: list(iter_backlog(found, cursor.state)) for cursor in cursors}


def ledgers_of(path: Path, topic: str) -> list[int]:
    with open_store(path) as store, store.read() as txn:
        node = read_node(txn, parse_topic(topic).path)
        return [info.ledger_id for info in decode_managed_ledger(node.value, "test").ledgers]


@pytest.mark.parametrize("topic", [PLAIN, "public/default/batched", "acme/iot/skewed"])
@pytest.mark.parametrize("state", ["clean", "crashed"])
def test_what_is_left_is_what_it_was(topic: str, state: str, tmp_path: Path, cli: Cli) -> None:
    path = copied("small", state, tmp_path)
    rows, ids, before = rows_of(path), ledgers_of(path, topic), backlogs(path, topic)
    for change, gone in enumerate([{ids[0]}, {ids[len(ids) // 2]}, {ids[-1]}, set(ids[1::2]), set(ids)]):
        done = cli("--store", path, "ledgers", "forget", *sorted(gone), "--force")
        assert done.exit_code == 0, done.stderr
        assert ledgers_of(path, topic) == [one for one in ids if one not in gone]
        expected = {name: [one for one in left if one.ledger_id not in gone] for name, left in before.items()}
        assert backlogs(path, topic) == expected
        with open_store(path) as store, store.read() as txn:
            assert not any(find_node(txn, ledger_path(one)) for one in gone)
        check_undo(cli, path, 2 * change + 1, rows)


def test_a_cursor_in_it_stands_in_front_of_the_next(tmp_path: Path, cli: Cli) -> None:
    """As ``ManagedLedgerImpl.maybeUpdateCursorBeforeTrimmingConsumedLedger`` leaves it; what is acknowledged elsewhere stays."""
    path = copied("small", "clean", tmp_path)
    topic = parse_topic(PLAIN)
    at = Position
    ranges = ((at(18, 6), at(18, 9)), (at(21, -1), at(21, 4)), (at(21, 7), at(22, 2)), (at(22, 5), at(22, 6)))
    info = CursorInfo(-1, at(18, 3), ranges, {at(18, 5): (1,), at(22, 8): (3,)}, {"p": 1}, {"key": "value"})

    def put(txn: Txn) -> None:
        node = read_node(txn, topic.cursor_path("half"))
        put_nodes(txn, [Node(node.path, node.stat, encode_cursor_info(info))])

    with open_store(path, writable=True) as store:
        store.write(put)
    cli("--store", path, "ledgers", "forget", "18", "--force")
    with open_store(path) as store, open_reader(store) as reader:
        cursor = read_cursor(reader.txn, reader, read_topic(reader.txn, topic), "half")
    assert cursor.mark_delete == at(21, 4), "in front of 21, and over what is acknowledged there"
    assert cursor.state.ranges == (ranges[2], ranges[3])
    assert (dict(cursor.state.batch_deletes), dict(cursor.state.properties)) == ({at(22, 8): (3,)}, {"p": 1})
    assert dict(cursor.info.cursor_properties) == {"key": "value"}


def test_whole_and_unreferenced_ledgers_are_refused(tmp_path: Path, cli: Cli) -> None:
    path = copied("small", "clean", tmp_path)
    for ledger, code, text in (
        (9, 3, "ledger 9 is complete"),
        (17, 3, "nothing references ledger 17"),
        (987_654, 5, "neither referenced"),
    ):
        answer = cli("--store", path, "ledgers", "forget", ledger)
        assert (answer.exit_code, text in answer.stderr) == (code, True)


def test_a_lost_compacted_ledger(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """The cursor stands at the beginning again and names no ledger: the next compaction reads all there is."""
    raw = entry(Batch([Slot("k", b"v")], alone=True))
    made = MadeCompacted(77, [compacted(10, number, raw) for number in range(3)], Position(10, 4))
    path = make_store(
        tmp_path / "s", {"public/default/t": MadeTopic([[Made(PUBLISH_MS, raw=raw)] * 10], compacted=made)}
    )
    with open_store(path, writable=True) as store:
        store.write(lambda txn: txn.delete("tree", tree_key(ledger_path(77))))
    done = cli("--store", path, "ledgers", "forget", "77")
    assert "the compacted view in ledger 77 is lost" in done.stdout
    internal = cli("--store", path, "topics", "info-internal", "public/default/t", "-o", "json").json
    assert internal["cursors"]["__compaction"].get("properties", {}) == {}
    assert len(backlogs(path, "public/default/t")["__compaction"]) == 10
    assert cli("--store", path, "compaction", "read", "public/default/t").exit_code == 0


@pytest.mark.parametrize("lost", [0, -1])
def test_a_lost_schema_version(lost: int, tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """No number that messages may carry is given to another schema."""
    path = copied("small", "clean", tmp_path)

    def put(txn: Txn) -> SchemaLocator:
        """Make three versions of it: ledgers 17 and 20 hold schemas that nothing references."""
        node = read_node(txn, AVRO.schema_path)
        (first,) = decode_schema_locator(node.value, "test").index
        more = [IndexEntry(number, Position(ledger, 0), b"h") for number, ledger in ((1, 17), (2, 20))]
        made = SchemaLocator(more[-1], (first, *more))
        put_nodes(txn, [Node(node.path, node.stat, encode_schema_locator(made))])
        index_owners(store, txn)
        return made

    with open_store(path, writable=True) as store:
        before = store.write(put)
    gone = before.index[lost]
    with open_store(path, writable=True) as store:
        store.write(lambda txn: txn.delete("tree", tree_key(ledger_path(gone.position.ledger_id))))
    done = cli("--store", path, "ledgers", "forget", gone.position.ledger_id)
    assert f"lost: version {gone.version} of the schema" in done.stdout
    with open_store(path) as store, store.read() as txn:
        after = decode_schema_locator(read_node(txn, AVRO.schema_path).value, "test")
    left = [item for item in before.index if item is not gone]
    if lost == 0:
        assert (after.index, after.newest) == (tuple(left), before.newest)
    else:
        assert after.index[:-1] == tuple(left)
        assert after.newest == after.index[-1]
        assert (after.newest.version, after.newest.position) == (gone.version + 1, left[-1].position)


def test_all_versions_of_a_schema(tmp_path: Path, cli: Cli) -> None:
    path = copied("small", "clean", tmp_path)
    with open_store(path) as store, store.read() as txn:
        ids = decode_schema_locator(read_node(txn, AVRO.schema_path).value, "test").ledger_ids
    done = cli("--store", path, "ledgers", "forget", *ids, "--force")
    assert "no version is left" in done.stdout
    with open_store(path) as store, store.read() as txn:
        assert find_node(txn, AVRO.schema_path) is None


def test_lost_events_name_the_topics_whose_policies_they_were(tmp_path: Path, cli: Cli) -> None:
    path = copied("small", "clean", tmp_path)
    for topic, seconds in ((PLAIN, 100), ("public/default/batched", 200)):
        assert cli("--store", path, "topics", "set-message-ttl", topic, "-t", seconds).exit_code == 0
    events = "public/default/__change_events"
    done = cli("--store", path, "ledgers", "forget", *ledgers_of(path, events), "--force")
    assert done.exit_code == 0, done.stderr
    for topic in (PLAIN, "public/default/batched"):
        assert f"persistent://{topic}" in done.stdout
        assert cli("--store", path, "topics", "get-message-ttl", topic).stdout.strip() == "null"
