"""Stores as wholes through the Python interface: import, refresh, export, check, usage, dumps; ledgers and entry logs."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

import pulsar_admin as pa
from pulsar_admin.jsonify import to_json
from tests.conftest import Cli
from tests.stores import NOW_MS
from tests.worlds import oracle, world

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


def test_processes_read_the_same(source: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    pa.import_standalone(source, made, jobs=2)
    with pytest.raises(pa.InvalidValue):
        pa.open_store(made, jobs=-1)
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
    data = bytearray(found.read_bytes())
    data[place.offset + 60] ^= 0x40
    found.write_bytes(data)
    with pa.open_store(made) as store:
        problems = [finding for finding in store.check(deep=True) if finding.is_problem]
        assert problems
        with pytest.raises(pa.EntryCorrupt):
            store.ledger(ROWS[0][0]).read(3)


# -- ledgers, metadata, logs ------------------------------------------------------------------------------------------


def test_ledgers_and_who_they_belong_to(path: Path) -> None:
    expected = Counter(row[0] for row in ROWS)
    with pa.open_store(path) as store:
        rows = {row.ledger_id: row for row in store.ledger_rows(PLAIN)}
        assert {ledger_id: rows[ledger_id].entries for ledger_id in expected} == expected
        assert {owner.topic for owner in store.ledger(ROWS[0][0]).owners().owners} == {f"persistent://{PLAIN}"}
        assert len(list(store.ledger_rows())) == len(store.ledgers())
        assert expected.keys().isdisjoint(row.ledger_id for row in store.orphans())
        assert store.missing() == ()
        with pytest.raises(pa.LedgerNotFound):
            store.ledger(10**6).owners()


def test_metadata_nodes(path: Path) -> None:
    recorded = oracle("small")["namespaces"]["acme/delayed"]["policies"]["delayed_delivery_policies"]
    with pa.open_store(path) as store:
        assert {"acme", "public"} <= set(store.nodes("/managed-ledgers"))
        value = store.node("/admin/policies/acme/delayed").value
        assert f'"tickTime":{recorded["tickTime"]}'.encode() in value
        decoded = store.decoded("/admin/policies/acme/delayed")["value"]
        assert decoded["delayed_delivery_policies"] == recorded
        truth = store.decoded("/managed-ledgers/public/default/persistent/plain/half")["truth"]
        assert truth["markDeletePosition"] == str(store.topic(PLAIN).cursor("half").state().mark_delete)
        with pytest.raises(pa.PathNotFound):
            store.decoded("/nothing")


def test_logs_without_a_store(cli: Cli) -> None:
    directory = world("small") / "clean" / "bookkeeper"
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
