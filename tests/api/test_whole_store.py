"""Stores as wholes through the Python interface: import, refresh, export, check, usage, dumps; ledgers and entry logs."""

import re
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

import pulsar_admin as pa
from pulsar_admin.jsonify import to_json
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.db.tree import tree_key
from tests.altering import flip
from tests.conftest import Cli
from tests.recovery.test_preflight import BOOKIES, listed, replayed, rows_of
from tests.stores import NOW_MS, copied, imported, write_rows
from tests.worlds import CLUSTER, oracle, world

PLAIN = "public/default/plain"
ROWS = oracle("small")["topics"][PLAIN]["messages"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A standalone directory that may change."""
    return Path(shutil.copytree(world("small") / "clean", tmp_path / "standalone", symlinks=True))


def sent() -> list[str]:
    return [row[8] for row in ROWS]


def received(store: pa.Store) -> list[str]:
    return [row["sha1"].hex() for row in store.topic(PLAIN).messages(columns=["sha1"]).rows()]


# -- import, refresh, export ------------------------------------------------------------------------------------------


def test_an_import_holds_what_was_sent(source: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    preview = pa.preview_import(source, made)
    assert not made.exists()
    result = pa.import_standalone(source, made, now=NOW_MS)
    assert (result.files, result.bytes, result.nodes) == (preview.files, preview.bytes, preview.nodes)
    assert (result.problems, result.checksums) == (0, True)
    with pa.open_store(made) as store:
        assert received(store) == sent()
        assert store.summary().sources[0]["path"] == str(source)
    with pytest.raises(pa.AlreadyExists):
        pa.import_standalone(source, made)
    with pytest.raises(pa.InvalidValue):
        pa.import_standalone(source, tmp_path / "other", mode="moved")  # type: ignore[arg-type]
    with pytest.raises(pa.NotFound):
        pa.import_standalone(tmp_path / "nowhere", tmp_path / "other")


@pytest.mark.deep
def test_processes_read_the_same(source: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    pa.import_standalone(source, made, jobs=2)
    with pa.open_store(made, jobs=2) as store:
        assert received(store) == sent()
        assert sum(store.topic(PLAIN).timeline().column("messages").to_pylist()) == len(ROWS)
        assert store.ledger(ROWS[0][0]).verify().problems == 0


def test_what_processes_cannot_read_is_warned_of(source: Path, tmp_path: Path) -> None:
    """A log that is gone since the import: the rest is there, and the gap is named."""
    made = tmp_path / "made"
    pa.import_standalone(source, made)
    for log in source.glob("bookkeeper*/current/*"):
        if log.suffix in (".log", ".txn"):
            log.unlink()
    with pytest.raises(pa.InvalidValue) as refused:
        pa.open_store(made, writable=True, jobs=-1)
    assert "jobs=-1" in str(refused.value)  # its frames, which lead to the store, are alive
    with pa.open_store(made, writable=True) as store:
        store.apply(store.create_namespace("acme/clock"))
        assert abs(store.changes()[-1].time_ms - time.time() * 1000) < 600_000
    for jobs in (1, 2):
        with pa.open_store(made, jobs=jobs) as store:
            messages = store.topic(PLAIN).messages(columns=["sha1"])
            with pytest.warns(pa.PartialData):
                assert messages.to_arrow().num_rows == 0
            assert messages.problems


def test_refresh_takes_over_what_the_broker_did(source: Path, tmp_path: Path) -> None:
    """The same directory after the live broker was told to move cursors: they stand where it put them."""
    made = tmp_path / "made"
    pa.import_standalone(source, made)
    shutil.rmtree(source)
    shutil.copytree(world("small") / "mutated", source, symlinks=True)
    recorded = next(row for row in oracle("small")["mutations"] if row["kind"] == "reset-cursor-position")
    with pa.open_store(made) as store, pytest.raises(pa.NotWritable):
        store.refresh()
    with pa.open_store(made, writable=True, now=NOW_MS) as store:
        cursor = store.topic(recorded["topic"]).cursor(recorded["subscription"])
        before = cursor.state().mark_delete
        assert store.preview_refresh().bytes > 0
        assert cursor.state().mark_delete == before
        result = store.refresh()
        assert result.nodes_updated > 0
        assert store.refresh().changes == 0
        assert [change.command for change in store.changes()] == ["store refresh"]
        assert str(cursor.state().mark_delete) != str(before)


def test_a_cluster_in_parts(tmp_path: Path) -> None:
    """Metadata and two bookies, the third one later: as the broker said; a part twice, and none, is refused."""
    disks = world("cluster") / "clean"
    bookies = [f"bk{number}test={disks}/bookkeeper{number}" for number in range(3)]
    with pytest.warns(pa.PartialData, match="2 of 3 bookies imported"):
        result = pa.import_cluster(tmp_path / "made", metadata=disks / "zookeeper", bookies=bookies[:2], now=NOW_MS)
    assert (result.problems, result.absent_bookies) == (0, ["bk2test"])
    with pa.open_store(tmp_path / "made", writable=True, now=NOW_MS) as store:
        (tmp_path / "bk2.conf").write_text(
            "ledgerDirectories=/bookkeeper2\njournalDirectory=/bookkeeper2\nbookieId=bk2test\n"
        )
        configured = [pa.read_bookie_conf(tmp_path / "bk2.conf", disks)]
        preview = store.preview_parts(bookies=configured)
        assert (preview.files, preview.dry_run, store.changes()) == (3, True, ())
        assert len(store.add_parts(bookies=configured).new_files) == 3
        assert [change.command for change in store.changes()] == ["store add"]
        rows = store.topic(PLAIN).messages(columns=["sha1"]).rows()
        assert [row["sha1"].hex() for row in rows] == [row[8] for row in oracle("cluster")["topics"][PLAIN]["messages"]]
        with pytest.raises(pa.Refused, match="bk2test"):
            store.add_parts(bookies=bookies[2:])
    with pytest.raises(pa.InvalidValue, match="no part"):
        pa.import_cluster(tmp_path / "other")


def test_an_iteration_keeps_rewriting_away(path: Path) -> None:
    """It reads the map that would grow."""
    with pa.open_store(path, writable=True) as store:
        rows = store.topic(PLAIN).messages().rows()
        next(rows)
        with pytest.raises(pa.Refused, match="iteration"):
            store.rebuild_index()
        rows.close()  # type: ignore[attr-defined]
        assert store.rebuild_index().changed_rows == 0


def test_an_export_has_the_changes(source: Path, tmp_path: Path) -> None:
    made, exported = tmp_path / "made", tmp_path / "exported"
    pa.import_standalone(source, made)
    with pa.open_store(made, writable=True, now=NOW_MS) as store:
        store.apply(store.topic(PLAIN).cursor("half").reset(to=pa.Position(29, 20)))
        moved = store.topic(PLAIN).cursor("half").state().mark_delete
        preview = store.export(exported, dry_run=True)
        assert not exported.exists()
        done = store.export(exported)
        assert done == replace(preview, dry_run=False)
        assert [node.action for node in done.nodes] == ["update"]
        with pytest.raises(pa.AlreadyExists):
            store.export(exported)
    pa.import_standalone(exported, tmp_path / "again")
    with pa.open_store(tmp_path / "again") as store:
        assert store.topic(PLAIN).cursor("half").state().mark_delete == moved


def test_an_empty_store(tmp_path: Path) -> None:
    pa.create_store(tmp_path / "empty")
    with pa.open_store(tmp_path / "empty") as store:
        assert (store.topics(), store.ledgers(), store.check()) == ((), (), ())
        with pytest.raises(pa.Refused):
            store.preview_refresh()
    with pytest.raises(pa.AlreadyExists):
        pa.create_store(tmp_path / "empty")


# -- check, usage, index ----------------------------------------------------------------------------------------------


def test_a_flipped_byte_is_found(source: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    pa.import_standalone(source, made)
    with pa.open_store(made) as store:
        assert all(not finding.is_problem for finding in store.check(deep=True))
        assert store.compare_index().changed_rows == 0
        place = next(row for row in store.ledger(ROWS[0][0]).entries(3, 3))
    assert place.file is not None
    assert place.offset is not None
    log = Path(place.file)
    found = log if log.is_absolute() else next(source.rglob(log.name))
    flip(found, place.offset + 60, 0x40)
    with pa.open_store(made) as store:
        problems = [finding for finding in store.check(deep=True) if finding.is_problem]
        assert problems
        with pytest.raises(pa.EntryCorrupt):
            store.ledger(ROWS[0][0]).read(3)


# -- ledgers, metadata, logs ------------------------------------------------------------------------------------------


def test_metadata_nodes(path: Path) -> None:
    recorded = oracle("small")["namespaces"]["acme/delayed"]["policies"]["delayed_delivery_policies"]
    with pa.open_store(path) as store:
        assert {"acme", "public"} <= set(store.nodes("/managed-ledgers"))
        value = store.node("/admin/policies/acme/delayed").value
        assert f'"tickTime":{recorded["tickTime"]}'.encode() in value
        decoded = store.decoded("/admin/policies/acme/delayed")
        assert decoded["value"]["delayed_delivery_policies"] == recorded
        node = store.node("/admin/policies/acme/delayed")
        told = (node.path, node.stat.version, node.stat.created_ms, node.stat.modified_ms, len(node.value))
        assert tuple(decoded[name] for name in ("path", "version", "created", "modified", "bytes")) == told
        cursor = store.decoded("/managed-ledgers/public/default/persistent/plain/holes")["value"]
        told = oracle("small")["topics"][PLAIN]["internal_stats"]["cursors"]["holes"]
        assert cursor["markDelete"] == told["markDeletePosition"]
        assert cursor["ranges"] == told["individuallyDeletedMessages"]
        truth = store.decoded("/managed-ledgers/public/default/persistent/plain/half")["truth"]
        assert truth["markDeletePosition"] == str(store.topic(PLAIN).cursor("half").state().mark_delete)
        with pytest.raises(pa.PathNotFound):
            store.decoded("/nothing")


def test_logs_without_a_store(cli: Cli, tmp_path: Path) -> None:
    directory = world("small") / "clean" / "bookkeeper"
    shutil.copytree(directory / "current", tmp_path / "a?b")
    assert cli("logs", "list", tmp_path / "a?b").stdout.splitlines()[1].split()[0] == "0.log"
    files = pa.log_files(directory)
    assert {file.kind for file in files} == {"entry-log", "journal"}
    records = Counter(
        (record.ledger_id, record.state)
        for file in files
        if file.kind == "entry-log"
        for record in pa.log_records(file.path)
        if record.entry_id >= 0
    )
    first = ROWS[0][0]
    assert records[first, "ok"] == sum(row[0] == first for row in ROWS)
    verdicts = pa.verify_logs(directory)
    assert [verdict.problems for verdict in verdicts] == [0] * len(files)
    assert to_json(verdicts) == cli("logs", "verify", directory, "-o", "json").json
    assert to_json(files) == cli("logs", "list", directory, "-o", "json").json
    log = next(file.path for file in files if file.kind == "entry-log")
    assert pa.verify_logs(log, jobs=2) == pa.verify_logs(log)
    assert list(pa.log_records(log, jobs=2)) == list(pa.log_records(log))


# -- dumps ------------------------------------------------------------------------------------------------------------

# -- lost ledgers and orphans ---------------------------------------------------------------------------------------


def test_lost_ledgers_are_mended(tmp_path: Path, damages_stores: None) -> None:
    path = copied("small", "clean", tmp_path)
    write_rows(path, lambda txn: txn.delete("tree", tree_key(ledger_path(18))))
    with pa.open_store(path, writable=True) as store:
        assert [row.ledger_id for row in store.missing()] == [18]
        assert [row.ledger_id for row in store.missing(9, 18)] == [18]
        assert store.missing(9) == ()
        for ask in (store.missing, store.topic("public/default/plain").forget_ledgers):
            with pytest.raises(pa.LedgerNotFound):
                ask(18, 99_999)
        assert store.ledger(18).info().lost == "no-metadata"
        topic = store.topic("public/default/plain")
        answers = (topic.stats, topic.internal_stats, topic.last_message_id, topic.cursor("never").analyze)
        for answer in answers:
            with pytest.warns(pa.PartialData) as caught:
                answer()
            assert re.search("plain: ledger 18: .* broker", str(caught[0].message))
        change = store.apply(store.ledger(18).restore())
        assert store.missing() == ()
        assert change.number is not None
        store.undo(change.number)
        with pytest.raises(pa.Refused, match="is complete"):
            store.forget_ledgers(18, 9)
        with pytest.raises(pa.LedgerNotFound, match="after the end of ledger 9"):
            store.extend_ledgers(9)
        store.apply(store.ledger(18).forget())
        assert store.missing() == ()
        assert 17 in [row.ledger_id for row in store.orphans()]
        store.apply(store.ledger(17).delete())
        assert store.ledger(17).info().state == "DELETED"


# -- disks of bookies -----------------------------------------------------------------------------------------------


# -- what would be lost, and earlier acknowledgements ---------------------------------------------------------------

FRESH, HOLES = "public/default/fresh", "crash-holes"


def test_what_bookies_would_delete_is_what_the_metadata_does_not_list(tmp_path: Path) -> None:
    root = world(CLUSTER) / "crashed"
    alive = listed(root / "zookeeper" / "version-2")
    with pa.open_store(imported(CLUSTER, "crashed")) as store:
        found = sorted((one.holds.ledgers, one.loses.ledgers) for one in store.preflight().bookies)
        emptied = store.preflight(empty=True)
        with pytest.raises(pa.InvalidValue, match="no topics"):
            store.preflight(empty=True, brokers=True)
    given = pa.preflight(metadata=root / "zookeeper", bookies=[str(root / name) for name in BOOKIES], brokers=True)
    assert sorted((one.holds.ledgers, one.loses.ledgers) for one in given.bookies) == found
    assert given.brokers is not None
    assert all(one.loses.ledgers == one.holds.ledgers for one in emptied.bookies)
    with pytest.raises(pa.InvalidValue, match="no topics"):
        pa.preflight(bookies=[str(root / name) for name in BOOKIES], brokers=True)
    counted = []
    for name in BOOKIES:
        current = root / name / "current"
        held = {int.from_bytes(key[:8], signed=True) for key in rows_of(current / "ledgers", tmp_path)}
        held = {ledger_id for ledger_id in held if ledger_id >= 0} | replayed(current)
        counted.append((len(held), len(held - alive)))
    assert found == sorted(counted)


def test_states_of_a_subscription_come_back_holes_included(tmp_path: Path) -> None:
    """What each state has acknowledged behind its mark-delete position, the consumer had sent."""
    sent = {(ledger, entry) for ledger, entry, _ in oracle(CLUSTER)["crash"]["acks_sent"][f"{FRESH} {HOLES}"]}
    with pa.open_store(copied(CLUSTER, "crashed", tmp_path), writable=True) as store:
        cursor = store.topic(FRESH).cursor(HOLES)
        states = {one.name: one for one in cursor.history()}
        before = cursor.state()
        assert [*states][-1] == "269:19"
        for one in states.values():
            for lower, upper in one.state.ranges:
                span = range(lower.entry_id + 1, upper.entry_id + 1)
                assert lower.ledger_id == upper.ledger_id
                assert {(upper.ledger_id, entry) for entry in span} <= sent
        wanted = states["269:12"].state
        number = store.apply(cursor.reset(as_of="269:12")).number
        assert (cursor.state().mark_delete, cursor.state().individually_deleted) == (
            wanted.mark_delete,
            tuple(wanted.ranges),
        )
        assert cursor.state() != before
        assert number is not None
        store.undo(number)
        assert cursor.state() == before
        with pytest.raises(pa.Refused, match=r"may have been at \d+ states, 269:\d+ to 269:12"):
            cursor.reset(as_of=1795253616300)
        assert not cursor.reset(as_of=1795253616300, if_unsure="oldest").changes_nothing
        with pytest.raises(pa.EntryNotFound, match="has no state 269:99"):
            cursor.reset(as_of="269:99")
        with pytest.raises(pa.SubscriptionNotFound):
            store.topic(FRESH).cursor("never-there").history()
