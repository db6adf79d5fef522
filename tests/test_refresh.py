"""``store refresh`` and ``store index``: recorded states of one cluster one after the other, files that grow, vanish and change."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pulsar_admin.store.changes.plan import ChangeKind, ChangePart, Plan, apply_plan, put_value_step
from pulsar_admin.store.codec.managedledger import decode_managed_ledger
from pulsar_admin.store.db.blocks import Block
from pulsar_admin.store.db.bookies import Bookie, encode_bookie, iter_imported_bookies
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.files import iter_damage, iter_logs, put_log
from pulsar_admin.store.db.storeinfo import REMOTE
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.db.unserved import put_journal_marks, read_journal_marks
from pulsar_admin.store.transfer.fetching import list_again
from pulsar_admin.store.transfer.imports import ImportOptions
from pulsar_admin.store.transfer.refresh import RefreshOptions, RefreshResult, refresh_store
from tests.altering import alter, raw_rows
from tests.conftest import Cli
from tests.stores import copied, import_standalone, imported, in_store, read_rows, write_rows
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.worlds import assert_unchanged, copy_tree, scratch_copy, world

DATABASES = ("tree", "entries", "times", "owners", "damage")
PLAIN = "/managed-ledgers/public/default/persistent/plain"


def contents_of(path: Path) -> dict[str, Any]:
    """Return what a store holds, with the names of files in place of their ids, which follow the order they were met in."""
    with open_store(path) as store, store.read() as txn:
        names = {log.file_id: Path(log.origin).name for log in iter_logs(txn)}
        found: dict[str, Any] = {
            name: [(key, bytes(value)) for key, value in txn.items(name)] for name in ("tree", "times", "owners")
        }
        blocks = [Block(key, bytes(value)) for key, value in txn.items("entries")]
        found["places"] = {
            (block.ledger_id, block.entry_id(index)): (
                names[block.place(index)[0]],
                *block.place(index)[1:],
                block.messages(index),
            )
            for block in blocks
            for index in range(len(block))
        }
        found["damage"] = [(names[damage.file_id], damage.offset) for damage in iter_damage(txn)]
        found["files"] = sorted(
            (names[log.file_id], log.records, log.problems, log.torn, log.next_offset) for log in iter_logs(txn)
        )
        return found


def rows_of(path: Path, *names: str) -> dict[str, list[tuple[bytes, bytes]]]:
    with open_store(path) as store, store.read() as txn:
        return {name: [(key, bytes(value)) for key, value in txn.items(name)] for name in names or DATABASES}


def refresh(path: Path, *, forget: bool = False) -> RefreshResult:
    return in_store(path, lambda store: refresh_store(store, RefreshOptions(forget=forget, now_ms=5)))


def make(source: Path, path: Path, mode: str = "referenced") -> Path:
    import_standalone(source, path, ImportOptions(mode, now_ms=1), lambda count: None)
    return path


def become(source: Path, other: Path) -> None:
    """Let the data directory SOURCE be what OTHER is."""
    shutil.rmtree(source)
    copy_tree(other, source)


@pytest.mark.parametrize("mode", ["referenced", "linked", "copied"])
def test_one_cluster_over_time(mode: str, tmp_path: Path, cli: Cli) -> None:
    """Clean, then mutated by its broker, then crashed: the refreshed store is the one a new import makes."""
    source = scratch_copy("small", "clean", tmp_path)
    path = make(source, tmp_path / "s", mode)
    for state, new_files in (("mutated", 2), ("crashed", 2)):
        become(source, world("small") / state)
        with assert_unchanged(source):
            result = refresh(path)
        assert (result.problems, result.lost, result.conflicts) == (0, {}, [])
        assert len(result.new_files) == new_files
        assert contents_of(path) == contents_of(imported("small", state))
    assert cli("--store", path, "store", "check", "--deep").exit_code == 0
    again = refresh(path)
    assert (again.changes, again.bytes) == (0, 0)
    assert len(cli("--store", path, "store", "log", "-o", "json").json) == 2


def test_files_that_grow(tmp_path: Path, cli: Cli) -> None:
    """Logs and journal cut at many places, then whole again: the same rows as an import of the whole."""
    whole = world("small") / "crashed"
    for number, share in enumerate((0.0, 0.501, 0.999)):
        source = tmp_path / f"source{number}"
        copy_tree(whole, source)
        for file in (source / "bookkeeper/current").iterdir():
            if file.suffix == ".log" and file.stat().st_size:
                with file.open("r+b") as stream:
                    stream.truncate(int(file.stat().st_size * share) or 1)
            elif file.suffix == ".txn":
                data = file.read_bytes()
                written = int(len(data.rstrip(b"\0")) * share)
                file.write_bytes(data[:written] + bytes(len(data) - written))
        path = make(source, tmp_path / f"s{number}")
        before = len(contents_of(path)["places"])
        become(source, whole)
        result = refresh(path)
        assert result.problems == 0
        assert len(result.grown_files) >= 1
        assert result.bytes < sum(
            file.stat().st_size for file in (source / "bookkeeper/current").iterdir() if file.is_file()
        )
        assert contents_of(path) == contents_of(imported("small", "crashed")), share
        (report,) = cli.json(path, "store log")[-1]["reports"]
        assert (report["before"], report["after"]) == (
            {"entries": before},
            {"entries": len(contents_of(path)["places"])},
        )
        assert cli("--store", path, "store", "check", "--deep").exit_code == 0


def test_a_vanished_log_is_named_and_forgotten_only_when_told(tmp_path: Path, cli: Cli) -> None:
    source = scratch_copy("small", "clean", tmp_path)
    path = make(source, tmp_path / "s")
    before = rows_of(path, "entries", "times")
    (source / "bookkeeper/current/0.log").unlink()
    answer = cli("--store", path, "store", "refresh", "-o", "json").ends(1)
    assert (answer.json["lost"], answer.json["elsewhere"]) == ({}, {str(source / "bookkeeper/current/0.log"): 1087})
    told = cli("--store", path, "store", "refresh")
    assert "LOST" not in told.stdout
    assert "pulsar-admin store refresh --forget" in told.stderr
    assert rows_of(path, "entries", "times") == before
    forgotten = cli("--store", path, "store", "refresh", "--forget", "-o", "json")
    # The journal still holds them, in front of its mark: no start of the bookie reads them there.
    assert (forgotten.exit_code, forgotten.json["underReplicated"]) == (1, 64)
    assert (forgotten.json["lost"], forgotten.json["elsewhere"]) == ({}, answer.json["elsewhere"])
    expected = make(source, tmp_path / "fresh")
    assert rows_of(path, "entries", "times").keys() == rows_of(expected, "entries", "times").keys()
    assert [key for key, _ in rows_of(path, "entries")["entries"]] == [
        key for key, _ in rows_of(expected, "entries")["entries"]
    ]
    assert forgotten.json["entries"] == cli("--store", expected, "store", "info", "-o", "json").json["entries"]
    assert read_rows(path, lambda txn: [log.log_id for log in iter_logs(txn) if log.kind == "entry-log"]) == [1]
    source.rename(tmp_path / "elsewhere")
    cli.on(path, "store refresh --dry-run").ends(5, f"{source} is gone")


@pytest.mark.parametrize("is_cut_before", [True, False], ids=["cut before the import", "changed since"])
def test_lost_is_what_no_other_file_has(is_cut_before: bool, tmp_path: Path, cli: Cli) -> None:
    """The journal has a part of the entries whose log is gone: the others are lost, as a new import says."""
    source = scratch_copy("small", "clean", tmp_path)
    log = source / "bookkeeper/current/0.log"
    (journal,) = log.parent.glob("*.txn")
    path = tmp_path / "s"
    if not is_cut_before:
        make(source, path)
    with journal.open("r+b") as file:
        file.truncate(len(journal.read_bytes().rstrip(b"\0")) // 4)
    if is_cut_before:
        make(source, path)
    log.unlink()
    left = cli("--store", make(source, tmp_path / "fresh"), "store", "info", "-o", "json").json["entries"]
    lost, elsewhere = {str(log): 2566 - left}, {str(log): 1087 - (2566 - left)}
    assert 0 < 2566 - left < 1087
    before = rows_of(path)
    preview = cli("--store", path, "store", "refresh", "--dry-run", "-o", "json").json
    assert (preview["lost"], preview["elsewhere"], rows_of(path)) == (lost, elsewhere, before)
    for result in (refresh(path), refresh(path, forget=True)):
        assert (result.lost, result.elsewhere) == (lost, elsewhere)
    assert result.entries == left
    again = refresh(path)
    assert (again.lost, again.elsewhere, again.entries) == ({}, {}, left)


def test_a_changed_log_is_read_anew_only_when_told(tmp_path: Path, cli: Cli) -> None:
    source = scratch_copy("small", "clean", tmp_path)
    path = make(source, tmp_path / "s")
    current = source / "bookkeeper/current"
    shutil.copyfile(current / "0.log", current / "1.log")
    answer = cli("--store", path, "store", "refresh", "-o", "json")
    assert (answer.exit_code, answer.json["changedFiles"]) == (1, [str(current / "1.log")])
    assert cli("--store", path, "store", "refresh", "--forget").exit_code == 0
    assert rows_of(path, "entries", "times", "owners") == rows_of(
        make(source, tmp_path / "fresh"), "entries", "times", "owners"
    )
    assert cli("--store", path, "store", "index").exit_code == 0


def test_metadata_changed_here_stays_and_conflicts_are_named(tmp_path: Path) -> None:
    source = scratch_copy("small", "clean", tmp_path)
    path = make(source, tmp_path / "s")
    nodes = {
        f"{PLAIN}/half": b"ours",  # the broker changes it, too
        "/admin/policies/public/default": b"{}",  # it does not
        "/new/node": b"ours",
    }
    with open_store(path, writable=True) as store:
        with store.read() as txn:
            steps = tuple(put_value_step(txn, node, value, 7) for node, value in nodes.items())
            plan = Plan(ChangeKind("test", "test"), txn.id, steps, (ChangePart(),))
        apply_plan(store, plan, 7)
    become(source, world("small") / "mutated")
    theirs = read_rows(imported("small", "mutated"), lambda txn: find_node(txn, f"{PLAIN}/half"))
    old = read_rows(imported("small", "clean"), lambda txn: find_node(txn, f"{PLAIN}/half"))
    result = refresh(path)
    assert result.conflicts == ([f"{PLAIN}/half"] if theirs.value != old.value else [])
    assert result.problems == len(result.conflicts)
    with open_store(path) as store, store.read() as txn:
        for node, value in nodes.items():
            found = find_node(txn, node)
            assert found.value == value
        managed = find_node(txn, PLAIN)
        assert decode_managed_ledger(managed.value, PLAIN)


@pytest.mark.parametrize("state", ["clean", "mutated", "crashed"])
def test_a_rebuilt_index_is_the_imported_one(state: str, tmp_path: Path, cli: Cli) -> None:
    path = Path(shutil.copytree(imported("nometa", state), tmp_path / "s"))
    compared = cli("--store", path, "store", "index", "-o", "json").json
    assert (compared["changedRows"], compared["dryRun"]) == (0, True)
    rebuilt = cli("--store", path, "store", "index", "--rebuild", "-o", "json").json
    assert (rebuilt["changedRows"], rebuilt["problems"], rebuilt["dryRun"]) == (0, 0, False)
    assert rows_of(path) == rows_of(imported("nometa", state))
    assert [file.name for file in path.iterdir() if "unfinished" in file.name] == []


def test_a_store_that_was_moved_names_its_files_of_urls_where_they_are(tmp_path: Path) -> None:
    """Of its bookies, logs and journals' marks; directories of the disk stay, and so does one that is not in the store."""
    old = make_store(tmp_path / 'an "ä"', {"a/b/t": MadeTopic([[Made(CREATED_MS)]])})
    parts = [old / REMOTE / "s3-place" / name for name in ("0-current", "0-current-2", "gone")]
    for path in parts[:2]:
        path.mkdir(parents=True)
    disk = tmp_path / "disk" / "current"
    bookie = Bookie("b:1", (parts[0], disk), (parts[1], parts[2]))
    with open_store(old, writable=True) as store:
        store.update_info(sources=({"bookies": [encode_bookie(bookie)]},))
        with store.read() as txn:
            (log,) = iter_logs(txn)
        store.write(lambda txn: put_log(txn, replace(log, origin=f"{parts[0]}/0.log")))
        store.write(lambda txn: put_journal_marks(txn, {str(parts[1]): (1, 2), str(disk): (3, 4)}))
    new = old.rename(tmp_path / "new")
    with open_store(new, writable=True) as store:
        list_again(store)
        moved = [new / path.relative_to(old) for path in parts]
        (told,) = iter_imported_bookies(store.info)
        assert told == Bookie("b:1", (moved[0], disk), (moved[1], parts[2]))
        with store.read() as txn:
            assert [log.origin for log in iter_logs(txn)] == [f"{moved[0]}/0.log"]
            assert read_journal_marks(txn) == {str(moved[1]): (1, 2), str(disk): (3, 4)}


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("is_altered", [True, False], ids=["a bit of it", "no list"])
def test_a_damaged_row_of_bookies_is_written_again(is_altered: bool, tmp_path: Path, cli: Cli) -> None:
    path = copied("small", "clean", tmp_path)
    (row,) = (row for row in raw_rows(path) if (row.database, row.key) == ("state", b"bookies"))
    if is_altered:
        alter(path, row, 5, 1)
        cli("--store", path, "topics", "stats", "public/default/plain").ends(6, "'bookies'", "store refresh")
    else:
        write_rows(path, lambda txn: txn.put("state", b"bookies", b'{"imported": 7}'))
    assert "it was written again from the source" in cli("--store", path, "store", "refresh").stderr
    assert row in [*raw_rows(path)]


def test_what_exists_and_cannot_be_read_is_not_forgotten(tmp_path: Path, cli: Cli) -> None:
    source = scratch_copy("small", "clean", tmp_path)
    path = make(source, tmp_path / "s")
    (journal,) = (source / "bookkeeper" / "current").glob("*.txn")
    before = contents_of(path)
    for file in (journal, source / "bookkeeper" / "current" / "1.log"):
        file.rename(tmp_path / file.name)
        os.mkfifo(file)  # unlike a file without permission, it cannot be read by root either
    for how in (["--dry-run"], [], ["--forget"]):
        answer = cli("--store", path, "store", "refresh", *how).ends(1, f"{journal} exists but cannot be read")
        assert not {"forgotten", "gone", "LOST"} & {line.split()[0] for line in answer.stdout.splitlines()}
    assert contents_of(path) == before
    (tmp_path / journal.name).rename(journal)
    (source / "bookkeeper" / "current" / "0.log").unlink()
    refused = cli("--store", path, "store", "refresh", "--forget").ends(6, "look at the permissions")
    assert "--forget" not in refused.stderr
