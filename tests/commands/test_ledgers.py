"""``ledgers``: every ledger of the recorded worlds, and ledgers that lost something."""

from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import (
    closed_ledger,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_path,
)
from pulsar_admin.store.codec.managedledger import decode_managed_ledger, encode_managed_ledger
from pulsar_admin.store.codec.schema import IndexEntry, SchemaLocator, decode_schema_locator, encode_schema_locator
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import Node, find_node, put_nodes, read_node, tree_key
from pulsar_admin.store.model.cursors import iter_backlog, iter_cursor_names, read_cursor
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.references import index_owners
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, parse_topic
from tests.altering import flip
from tests.commands.changing import check_undo, rows_of
from tests.compaction.entries import PUBLISH_MS, Batch, Slot, compacted, entry
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.stores import change_value, copied, imported, lose_nodes, put_node, read_rows, read_store
from tests.synthetic import Made, MadeCompacted, MadeTopic, make_store
from tests.worlds import oracle, scratch_copy

PLAIN = "public/default/plain"


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_ledger_in_tiered_storage_is_not_missing(is_deleted: bool, cli: Cli, tmp_path: Path) -> None:
    """Whether or not the broker has deleted it in BookKeeper already, asked for it or for all."""
    store, path = copied("small", "clean", tmp_path), parse_topic("public/default/plain").path

    def offloaded(value: bytes) -> bytes:
        managed = decode_managed_ledger(value, path)
        first = replace(
            managed.ledgers[0], offloaded=True, offload_uuid=str(UUID(int=7)), bookkeeper_deleted=is_deleted
        )
        return encode_managed_ledger(replace(managed, ledgers=(first, *managed.ledgers[1:])), value)

    change_value(store, path, offloaded)
    lose_nodes(store, ledger_path(9))
    assert [cli.rows(store, f"ledgers missing{one}") for one in ("", " 9")] == [[], []]


def test_list_agrees_with_the_broker(cli: Cli) -> None:
    rows = {row["ledgerId"]: row for row in cli.json(imported("small", "clean"), "ledgers list")}
    for topic, answers in oracle("small")["topics"].items():
        for listed in answers["internal_stats"]["ledgers"]:
            row = rows[listed["ledgerId"]]
            assert f"persistent://{topic}" in {owner["topic"] for owner in row["owners"]}
            if listed["entries"]:  # an open ledger has no count there
                assert (row["entries"], row["size"], row["missingEntries"]) == (listed["entries"], listed["size"], 0)
            times = {said[1]: said[3] for said in answers["messages"] if said[0] == row["ledgerId"]}
            if times and len(times) == row["entries"]:  # no markers among them
                published = row["beginPublishTimestamp"], row["endPublishTimestamp"]
                assert published == (min(times.values()), max(times.values()))
    assert list(rows) == sorted(rows)
    assert {row["state"] for row in rows.values()} == {"CLOSED", "GONE"}


def test_info(cli: Cli) -> None:
    document = cli.on(imported("small", "clean"), "ledgers info 9").json
    assert (document["state"], document["entries"], document["size"]) == ("CLOSED", 25, 3987)
    assert document["metadata"]["customMetadata"]["pulsar/managed-ledger"] == "public/default/persistent/plain"
    assert document["metadata"]["digestType"] == "CRC32C"
    assert [Path(file).name for file in document["files"]] == ["0.log"]
    assert document["indexed"]["entriesWithBrokerTime"] == 25
    several = cli.on(imported("small", "clean"), "ledgers info 9 99999 -o json").ends(1)
    assert [row["ledgerId"] for row in several.json] == [9]


def test_entries(cli: Cli) -> None:
    store = imported("small", "clean")
    rows = cli.json(store, "ledgers entries 9")
    published = {row[1]: row[3] for row in oracle("small")["topics"]["public/default/plain"]["messages"] if row[0] == 9}
    assert {row["entryId"]: row["publishTime"] for row in rows} == published
    assert {row["state"] for row in rows} == {"ok"}
    part = cli.json(store, "ledgers entries 9 --from 3 --to 7 --limit 4")
    assert [row["entryId"] for row in part] == [3, 4, 5, 6]
    assert cli.json(store, "ledgers entries 9 --from 20 --to 21") == rows[20:22]


def test_entries_of_a_compacted_ledger_have_the_times_of_what_they_hold(cli: Cli) -> None:
    """As the broker gave them to a reader with read-compacted; these have no tail behind the horizon."""
    recorded = oracle("small")["topics"]["acme/orders/compacted"]["compacted_messages"]
    wanted = {(ledger_id, entry_id): publish_ms for ledger_id, entry_id, _, publish_ms, *_ in recorded}
    store = imported("small", "clean")
    status = cli.json(store, "compaction status acme/orders/compacted")
    rows = cli("--store", store, "ledgers", "entries", status["ledger"]["ledgerId"], "-o", "json").json
    assert [row["publishTime"] for row in rows] == [wanted[place] for place in sorted(wanted)]


def test_entries_of_a_cursor_ledger_have_no_time(cli: Cli) -> None:
    rows = cli.json(imported("small", "clean"), "ledgers entries 113")
    assert [(row["state"], row["publishTime"]) for row in rows] == [("ok", None), ("ok", None)]


def test_orphans(cli: Cli) -> None:
    rows = cli.json(imported("small", "clean"), "ledgers orphans")
    unreferenced = {row["ledgerId"]: row["claims"] for row in rows if row["reason"] == "unreferenced"}
    # Schema ledgers of a lost race, and cursor ledgers whose cursors were closed cleanly.
    assert set(unreferenced) == {17, 20, 53, 69, 102, 111, 113}
    assert unreferenced[113]["pulsar/cursor"] == "holes"
    assert all(row["entries"] > 0 for row in rows if row["reason"] == "gone")


def damaged_source(tmp_path: Path) -> Path:
    """A world in which the record of entry 9:2 is overwritten in every file that holds it."""
    source = scratch_copy("small", "clean", tmp_path)
    log = source / "bookkeeper/current/0.log"
    data = bytearray(log.read_bytes())
    offset = 143_400  # entry 9:2
    body = bytes(data[offset + 4 : offset + 4 + 162])
    data[offset + 60] ^= 1
    log.write_bytes(data)
    (journal,) = (source / "bookkeeper/current").glob("*.txn")
    copy = bytearray(journal.read_bytes())
    copy[copy.index(body) + 56] ^= 1
    journal.write_bytes(copy)
    return source


def test_lost_and_damaged_entries(tmp_path: Path, cli: Cli) -> None:
    """The lost one is missing, named, and all others are read."""
    source = damaged_source(tmp_path)
    path = tmp_path / "s"
    assert cli.on(path, f"store import standalone {source}").exit_code == 1
    missing = cli.on(path, "ledgers missing -o json").ends(1)
    (row,) = missing.json
    assert (row["ledgerId"], row["reason"], row["missingEntries"], row["ranges"]) == (9, "entries", 1, [[2, 2]])
    verified = cli.on(path, "ledgers verify 9 -o json").ends(1)
    assert (verified.json[0]["entries"], verified.json[0]["missingEntries"]) == (24, 1)
    change_value(
        path,
        ledger_path(10),
        lambda value: encode_ledger_metadata(replace(decode_ledger_metadata(value, ""), length=7)),
    )
    (problem,) = cli.on(path, "ledgers verify 10 -o json").ends(1).json[0]["metadataProblems"]
    listed = [row for said in oracle("small")["topics"].values() for row in said["internal_stats"]["ledgers"]]
    (size,) = [row["size"] for row in listed if row["ledgerId"] == 10]
    assert problem == f"the metadata says 7 payload bytes, the last entry {size}"
    entries = cli.on(path, "ledgers entries 9 -o json").ends(1)
    assert [row["entryId"] for row in entries.json if row["state"] == "missing"] == [2]
    assert len(entries.json) == 25


def test_verify_everything(cli: Cli) -> None:
    answer = cli.done("--store", imported("nometa", "crashed"), "ledgers", "verify", "-o", "json")
    assert sum(row["entries"] for row in answer.json) == 6902
    assert all((row["damagedEntries"], row["unverified"], row["metadataProblems"]) == (0, 0, []) for row in answer.json)


def test_verify_finds_what_rotted_since_import(tmp_path: Path, cli: Cli) -> None:
    source = scratch_copy("small", "clean", tmp_path)
    path = tmp_path / "s"
    cli.on(path, f"store import standalone {source}")
    log = source / "bookkeeper/current/0.log"
    flip(log, 143_400 + 60)
    answer = cli.on(path, "ledgers verify 9 10 -o json").ends(1)
    assert [row["damagedEntries"] for row in answer.json] == [1, 0]
    assert answer.json[0]["damaged"][0][0] == 2
    assert "digest" in answer.json[0]["damaged"][0][1]


def test_entries_whose_file_is_gone_are_not_told_as_there(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """Named with their number, for all ledgers and for some; a journal that holds nothing alone is nobody's loss."""
    source = scratch_copy("small", "clean", tmp_path)
    path = tmp_path / "s"
    assert cli.on(path, f"store import standalone {source}").exit_code == 0
    (journal,) = (source / "bookkeeper/current").glob("*.txn")
    journal.rename(tmp_path / "journal")
    answer = cli.on(path, "ledgers missing -o json")
    assert (answer.exit_code, answer.json, answer.stderr) == (0, [], "")
    (source / "bookkeeper/current/0.log").unlink()
    for ledgers, said in (((), "its 1,087 entries are"), (("73",), ""), (("8", "9"), " are not counted as")):
        answer = cli("--store", path, "ledgers", "missing", *ledgers)
        assert answer.exit_code == (1 if said else 0)
        assert said in answer.stderr
        assert ("pulsar-admin store refresh" in answer.stderr) == bool(said)


def test_what_cannot_be_read_of_a_file_is_said_once(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    source = scratch_copy("small", "clean", tmp_path)
    path = tmp_path / "s"
    assert cli.on(path, f"store import standalone {source}").exit_code == 0
    (source / "bookkeeper/current/0.log").unlink()
    answer = cli.on(path, "topics read public/default/plain")
    (line,) = answer.stderr.splitlines()
    assert (answer.exit_code, "(300 problems; " in line, "pulsar-admin store refresh" in line) == (1, True, True)


# -- ledgers delete, and restore with undo --------------------------------------------------------------------------

ORPHANS = {17, 20, 53, 69, 102, 111, 113}
"""Of the world ``small``, clean: schema ledgers of lost races, cursor ledgers of cursors that were closed."""


def test_orphans_are_deleted_from_their_own_list(store: Path, tmp_path: Path, cli: Cli) -> None:
    before, file = rows_of(store), tmp_path / "orphans.jsonl"
    file.write_text(cli.on(store, "ledgers orphans -o jsonl").stdout)
    cli.done("--store", store, *f"ledgers delete --from-file {file} -o json".split())
    after = rows_of(store)
    gone = set(before["tree"]) - set(after["tree"])
    assert gone == {tree_key(ledger_path(one)) for one in ORPHANS}
    assert after == {"tree": {k: v for k, v in before["tree"].items() if k not in gone}, "owners": before["owners"]}
    check_undo(cli, store, 1, before)


def test_what_is_referenced_stays(store: Path, tmp_path: Path, cli: Cli) -> None:
    """One of each kind: a topic's, a schema's, a compacted view's, a delayed bucket's; nothing of a list with one of them goes."""
    before = rows_of(store)
    for ledger in (9, 15, 85, 108):
        cli.on(store, f"ledgers delete 17 {ledger}").ends(3, f"ledger {ledger} is referenced: ")
    assert cli.on(store, "ledgers delete 99999").exit_code == 5
    file = tmp_path / "ids"
    file.write_text("\n17\nseventeen\n")
    cli.on(store, f"ledgers delete --from-file {file}").ends(2, "line 3: no ledger id: 'seventeen'")
    assert rows_of(store) == before


def test_ledgers_of_other_programs_stay(store: Path, cli: Cli, damages_stores: None) -> None:
    """Metadata without ``application=pulsar``: packages of functions keep such ledgers, which nodes of their own list."""
    pulsars, topics = {"application": b"pulsar"}, {"pulsar/managed-ledger": b"a/b/persistent/c"}
    for custom, is_others in (({}, True), (pulsars, True), (topics, True), (pulsars | topics, False)):
        put_node(store, ledger_path(17), encode_ledger_metadata(closed_ledger("b:1", 0, 0, custom)))
        refused = cli.on(store, "ledgers delete 17 --dry-run").ends(3, "--force deletes")
        assert ("other programs may use it" in refused.stderr) == is_others, custom
    assert cli.on(store, "ledgers delete 17 --force").exit_code == 0


def test_what_cannot_be_read_could_reference_it(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    path = copied("small", "clean", tmp_path)
    put_node(path, "/managed-ledgers/acme/delayed/persistent/reminders", b"\xff\xff")
    cli.on(path, "ledgers delete 17").ends(3, "what references ledgers cannot be read whole")
    with open_store(path, writable=True) as store:  # not by the derived rows, but by a topic behind it
        store.write(lambda txn: [txn.delete("owners", key) for key in [*txn.keys("owners", (9).to_bytes(8, "big"))]])
    cli.on(path, "ledgers delete 9 --force").ends(3, "ledger 9 is referenced: ")
    assert cli.on(path, "ledgers delete 17 --force").exit_code == 0


def test_restoring_brings_the_same_bytes_and_is_undone(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """The node has the value that Pulsar wrote, but for the order of its custom metadata."""
    path = copied("small", "clean", tmp_path)
    value = read_rows(path, lambda txn: read_node(txn, ledger_path(18)).value)
    lose_nodes(path, ledger_path(18))
    before = rows_of(path)
    for words in (("9",), ("17",), ("90",)):
        assert cli("--store", path, "ledgers", "restore", *words).exit_code == 3
    assert cli.on(path, "ledgers restore 99999").exit_code == 5
    assert cli.on(path, "ledgers restore 18").exit_code == 0
    with open_store(path) as store, store.read() as txn:
        assert sorted(read_node(txn, ledger_path(18)).value) == sorted(value)
    assert cli.on(path, "topics stats public/default/plain").exit_code == 0
    check_undo(cli, path, 1, before)


# -- ledgers forget: what is left of every backlog is what it was without the ledger --------------------------------

AVRO = parse_topic("public/default/avro")
TEN = "public/default/ten"


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
@deep_but_for((1,), "state", ["clean", "crashed"])
def test_what_is_left_is_what_it_was(topic: str, state: str, tmp_path: Path, cli: Cli) -> None:
    path = copied("small", state, tmp_path)
    rows, ids, before = rows_of(path), ledgers_of(path, topic), backlogs(path, topic)
    for change, gone in enumerate([{ids[0]}, {ids[len(ids) // 2]}, {ids[-1]}, set(ids[1::2]), set(ids)]):
        cli.done("--store", path, "ledgers", "forget", *sorted(gone), "--force")
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
    cli.on(path, "ledgers forget 18 --force")
    cursor = read_store(path, lambda reader: read_cursor(reader.txn, reader, read_topic(reader.txn, topic), "half"))
    assert cursor.mark_delete == at(21, 4), "in front of 21, and over what is acknowledged there"
    assert cursor.state.ranges == (ranges[2], ranges[3])
    assert (dict(cursor.state.batch_deletes), dict(cursor.state.properties)) == ({at(22, 8): (3,)}, {"p": 1})
    assert dict(cursor.info.cursor_properties) == {"key": "value"}


def test_whole_and_unreferenced_ledgers_are_refused(store: Path, cli: Cli) -> None:
    for ledger, code, text in (
        (9, 3, "ledger 9 is complete"),
        (17, 3, "nothing references ledger 17"),
        (987_654, 5, "neither referenced"),
    ):
        answer = cli.on(store, f"ledgers forget {ledger}")
        assert (answer.exit_code, text in answer.stderr) == (code, True)


def test_a_lost_compacted_ledger(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """The cursor stands at the beginning again and names no ledger: the next compaction reads all there is."""
    raw = entry(Batch([Slot("k", b"v")], alone=True))
    made = MadeCompacted(77, [compacted(10, number, raw) for number in range(3)], Position(10, 4))
    path = make_store(tmp_path / "s", {TEN: MadeTopic([[Made(PUBLISH_MS, raw=raw)] * 10], compacted=made)})
    lose_nodes(path, ledger_path(77))
    done = cli.on(path, "ledgers forget 77")
    assert "the compacted view in ledger 77 is lost" in done.stdout
    internal = cli.json(path, f"topics info-internal {TEN}")
    assert internal["cursors"]["__compaction"].get("properties", {}) == {}
    assert len(backlogs(path, TEN)["__compaction"]) == 10
    assert cli.on(path, f"compaction read {TEN}").exit_code == 0


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
    lose_nodes(path, ledger_path(gone.position.ledger_id))
    done = cli.on(path, f"ledgers forget {gone.position.ledger_id}")
    assert f"lost: version {gone.version} of the schema" in done.stdout
    after = read_rows(path, lambda txn: decode_schema_locator(read_node(txn, AVRO.schema_path).value, "test"))
    left = [item for item in before.index if item is not gone]
    if lost == 0:
        assert (after.index, after.newest) == (tuple(left), before.newest)
    else:
        assert after.index[:-1] == tuple(left)
        assert after.newest == after.index[-1]
        assert (after.newest.version, after.newest.position) == (gone.version + 1, left[-1].position)


def test_all_versions_of_a_schema(tmp_path: Path, cli: Cli) -> None:
    path = copied("small", "clean", tmp_path)
    ids = read_rows(path, lambda txn: decode_schema_locator(read_node(txn, AVRO.schema_path).value, "test").ledger_ids)
    done = cli("--store", path, "ledgers", "forget", *ids, "--force")
    assert "no version is left" in done.stdout
    with open_store(path) as store, store.read() as txn:
        assert find_node(txn, AVRO.schema_path) is None


def test_lost_events_name_the_topics_whose_policies_they_were(store: Path, cli: Cli) -> None:
    for topic, seconds in ((PLAIN, 100), ("public/default/batched", 200)):
        assert cli.on(store, f"topics set-message-ttl {topic} -t {seconds}").exit_code == 0
    events = "public/default/__change_events"
    done = cli.done("--store", store, "ledgers", "forget", *ledgers_of(store, events), "--force")
    for topic in (PLAIN, "public/default/batched"):
        assert f"persistent://{topic}" in done.stdout
        assert cli.on(store, f"topics get-message-ttl {topic}").stdout.strip() == "null"
