"""``store import standalone`` against the recorded worlds: every byte of metadata, every entry, every mode, every stop."""

import csv
import errno
import gzip
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import rocksdict

import pulsar_admin as pa
from pulsar_admin.store.codec.ledgermetadata import COOKIES, ledger_path
from pulsar_admin.store.codec.rocksvalue import NodeStat, encode_value
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.db.storeinfo import check_new_store
from pulsar_admin.store.db.tree import find_node, iter_nodes
from pulsar_admin.store.errors import AlreadyExists, Unsupported
from pulsar_admin.store.model.ledgers import find_place
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import parse_topic
from pulsar_admin.store.recovery.rolling import _is_gone
from pulsar_admin.store.transfer import cataloguing
from pulsar_admin.store.transfer import imports as importer
from pulsar_admin.store.transfer.exports import plan_export
from pulsar_admin.store.transfer.imports import ImportOptions
from tests.conftest import Cli
from tests.cures.curing import diagnoses, run_printed
from tests.deep import deep_but_for
from tests.locking import locked
from tests.stores import apply_values, import_standalone, imported, lose_nodes, put_node, read_rows, write_rows
from tests.worlds import GOLDEN, STATES, WORLD_NAMES, assert_unchanged, copy_tree, scratch_copy, unpack, world
from tests.zookeeper_files import read_zookeeper_nodes

WORLDS = [(name, state) for name in WORLD_NAMES for state in STATES]


def import_into(path: Path, source: Path, mode: str = "referenced") -> importer.ImportResult:
    return import_standalone(source, path, ImportOptions(mode, now_ms=1), lambda count: None)


def rows_of(path: Path, *databases: str) -> dict[str, list[tuple[bytes, bytes]]]:
    with open_store(path) as store, store.read() as txn:
        return {name: [(key, bytes(value)) for key, value in txn.items(name)] for name in databases}


# -- what is in the store ---------------------------------------------------------------------------------------------


def read_rocksdb(directory: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield the pairs of a RocksDB, read on a copy by the library alone."""
    with tempfile.TemporaryDirectory() as folder:
        copy_tree(directory, Path(folder, "copy"))
        database = rocksdict.Rdict(
            str(Path(folder, "copy")), rocksdict.Options(raw_mode=True), access_type=rocksdict.AccessType.read_only()
        )
        yield from database.items()
        database.close()


@pytest.mark.parametrize(("name", "state"), WORLDS)
def test_metadata_is_kept_byte_by_byte(name: str, state: str) -> None:
    expected = {}
    for key, raw in read_rocksdb(world(name) / state / "metadata"):
        # Header: size i32, format i32, version, owner, created, modified i64, ephemeral u8.
        if key.startswith(b"/") and raw[40] == 0:
            stat = NodeStat(*(int.from_bytes(raw[at : at + 8], "big") for at in (8, 16, 24, 32)), False)
            expected[key.decode()] = (stat, raw[41:])
    with open_store(imported(name, state)) as store, store.read() as txn:
        assert {node.path: (node.stat, node.value) for node in iter_nodes(txn, "/")} == expected


def test_an_import_reads_no_ledgers_that_it_has_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be millions of them."""
    read: list[str] = []
    original = Txn.items

    def noting(self: Txn, database: str, prefix: bytes = b"", start: bytes | None = None) -> Iterator[Any]:
        for key, value in original(self, database, prefix, start):
            if database == "tree" and key.startswith((b"/ledgers/00/", b"/managed-ledgers/")):
                read.append(key.decode())
            yield key, value

    monkeypatch.setattr(Txn, "items", noting)
    assert import_into(tmp_path / "new", world("small") / "clean").nodes > 200
    assert len(read) < 10


@pytest.mark.parametrize("state", ["clean", "crashed"])
def test_places_are_those_of_bookkeepers_readlog(state: str) -> None:
    with gzip.open(GOLDEN / "readlog-small.csv.gz", "rt", newline="") as stream:
        golden = [row for row in csv.DictReader(stream) if row["state"] == state]
    # An entry may be in two logs; the newer counts.
    expected = {
        (int(row["ledger"]), int(row["entry"])): (row["log"], int(row["ByteOffset"]), int(row["EntrySize"]))
        for row in golden
    }
    with open_store(imported("small", state)) as store, store.read() as txn:
        names = {log.file_id: Path(log.path).name for log in iter_logs(txn)}
        places = {key: find_place(txn, *key) for key in expected}
    assert {key: (names[place[0]], *place[1:]) for key, place in places.items() if place} == expected


# -- how ---------------------------------------------------------------------------------------------------------------


def test_result_and_source_unchanged(tmp_path: Path, cli: Cli) -> None:
    source = world("small") / "clean"
    with assert_unchanged(source):
        answer = cli("--store", tmp_path / "s", "store", "import", "standalone", source, "-o", "json")
    assert (answer.exit_code, answer.stderr) == (0, "")
    document = answer.json
    assert (document["nodes"], document["files"], document["records"], document["entries"]) == (245, 3, 5135, 2566)
    assert (document["problems"], document["undecodableValues"], document["checksums"]) == (0, 0, True)
    text = cli("--store", tmp_path / "t", "store", "import", "standalone", source, "--no-checksums").stdout
    assert "metadata nodes      245" in text
    assert "NOT verified" in text
    assert rows_of(tmp_path / "s", "entries", "times") == rows_of(tmp_path / "t", "entries", "times")


# -- stopped, locked, refused -----------------------------------------------------------------------------------------


def test_interrupted(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cataloguing.place

    def interrupted(*arguments: Any) -> Any:
        if list((tmp_path / "s").glob("meta/data.mdb")) and seen:
            raise KeyboardInterrupt
        seen.append(1)
        return before(*arguments)

    seen: list[int] = []
    monkeypatch.setattr(cataloguing, "place", interrupted)
    stopped = cli("--store", tmp_path / "s", "store", "import", "standalone", world("small") / "clean")
    assert stopped.exit_code == 130
    assert "the same command continues" in stopped.stderr
    monkeypatch.setattr(cataloguing, "place", before)
    assert cli("--store", tmp_path / "s", "store", "import", "standalone", world("small") / "clean").exit_code == 0


def test_a_source_in_use_is_read_and_said(tmp_path: Path, cli: Cli) -> None:
    """A process holds the lock of its RocksDB, as a running Pulsar does."""
    source = scratch_copy("small", "clean", tmp_path)
    (source / "metadata" / "LOCK").touch()
    with locked(source / "metadata" / "LOCK") as process_id, assert_unchanged(source):
        answer = cli("--store", tmp_path / "s", "store", "import", "standalone", source, "-o", "json")
    assert answer.exit_code == 0
    assert answer.json["sourceInUseBy"] == process_id
    (line,) = answer.stderr.splitlines()
    assert f"process {process_id} has" in json.loads(line)["warning"]["message"]


def test_links_need_one_file_system(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: Any) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", link)
    command = f"store import standalone {world('small') / 'clean'} --link -o json"
    answer = cli.on(tmp_path / "s", command).fails(3, "refused")
    assert "--copy" in answer.error["hint"]


def test_never_into_something_else(tmp_path: Path, cli: Cli) -> None:
    source = world("small") / "clean"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("x")
    (tmp_path / "begun" / "entries").mkdir(parents=True)
    (tmp_path / "begun" / ".store.json.1.tmp").touch()
    check_new_store(tmp_path / "begun")
    for foreign in ("entries/own-1.log", "store.json.1.tmp", ".store.json.1"):
        (tmp_path / "begun" / foreign).touch()
        with pytest.raises(AlreadyExists):
            check_new_store(tmp_path / "begun")
        (tmp_path / "begun" / foreign).unlink()
    for path in (tmp_path / "full", imported("small", "clean"), source / "store", source):
        answer = cli("--store", path, "store", "import", "standalone", source, "-o", "json")
        assert (answer.exit_code, answer.error["code"]) == (3, "already-exists"), path
        assert answer.error["hint"]
    assert (tmp_path / "full" / "precious").read_text() == "x"
    assert not (source / "store").exists()


# -- not a Pulsar directory -------------------------------------------------------------------------------------------


def _without(name: str) -> Callable[[Path], object]:
    return lambda source: (source / name).rename(source.parent / "away")


def _without_logs(source: Path) -> None:
    for file in (source / "bookkeeper/current").iterdir():
        if file.is_file():
            file.unlink()


def _empty_zookeeper(source: Path) -> None:
    _without("metadata")(source)
    (source / "zookeeper" / "version-2").mkdir(parents=True)


def _file_for_metadata(source: Path) -> None:
    _without("metadata")(source)
    (source / "metadata").write_bytes(b"")


def _one_above(source: Path) -> None:
    source.rename(source.parent / "data")
    source.mkdir()
    (source.parent / "data").rename(source / "data")


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        (_without("metadata/CURRENT"), "half a Pulsar directory: expected the metadata store", "copy the whole data"),
        (_without("bookkeeper/current"), "half a Pulsar directory: expected a bookie", "copy the whole data directory"),
        (_empty_zookeeper, "half a Pulsar directory", ""),
        (_file_for_metadata, "metadata, found a file", "copy the whole data directory"),
        (_without_logs, "holds no entry log and no journal", ""),
        (shutil.rmtree, "", ""),
        (lambda source: (shutil.rmtree(source), (source / "etc").mkdir(parents=True)), "", ""),
        (_one_above, "", "/data"),
    ],
    ids=[
        "no CURRENT",
        "no bookie",
        "empty ZooKeeper",
        "a file",
        "no logs",
        "nothing",
        "another directory",
        "one above",
    ],
)
def test_what_is_no_pulsar_directory(
    change: Callable[[Path], object], message: str, hint: str, tmp_path: Path, cli: Cli
) -> None:
    source = scratch_copy("small", "clean", tmp_path)
    change(source)
    answer = cli("--store", tmp_path / "s", "store", "import", "standalone", source, "-o", "json").fails(
        5, "source-not-found", str(source), message
    )
    assert answer.error["hint"]
    assert hint in answer.error["hint"]
    assert not (tmp_path / "s").exists()


def test_store_import_knows_what_a_directory_is(tmp_path: Path, cli: Cli) -> None:
    source = world("small") / "clean"
    assert cli("--store", tmp_path / "s", "store", "import", source).exit_code == 0
    for place, line in (
        (tmp_path / "s", f"pulsar-admin --store {tmp_path / 's'} overview"),
        (source / "bookkeeper", f"store import cluster --bookie 127.0.0.1:34299={source / 'bookkeeper'}"),
        (tmp_path / "s" / "store.json", f"store import bundle {tmp_path / 's' / 'store.json'}"),
    ):
        refused = cli("--store", tmp_path / "n", "store", "import", place).ends(5)
        assert refused.stderr.endswith(f"{line}\n")


def test_metadata_in_zookeeper(tmp_path: Path) -> None:
    """The tree is ZooKeeper's, byte for byte; nothing can be exported there."""
    source = scratch_copy("small", "clean", tmp_path)
    (source / "metadata").rename(tmp_path / "away")
    unpack(GOLDEN / "zookeeper-version-2.tar.xz", source / "zookeeper")
    import_into(tmp_path / "s", source)
    wanted = {node.path: node for node in read_zookeeper_nodes(source / "zookeeper" / "version-2", [])}
    found = read_rows(tmp_path / "s", lambda txn: {node.path: node for node in iter_nodes(txn, "/")})
    assert {path: (node.value, node.stat.version) for path, node in found.items()} == {
        path: (node.data, node.version) for path, node in wanted.items()
    }
    with open_store(tmp_path / "s") as store, pytest.raises(Unsupported, match="ZooKeeper"):
        plan_export(store, tmp_path / "out", in_place=False)


# -- odd metadata -----------------------------------------------------------------------------------------------------


@pytest.fixture
def odd_source(tmp_path: Path) -> Path:
    """A data directory whose metadata store has values and paths that are hard to keep."""
    source = scratch_copy("small", "clean", tmp_path)
    database = rocksdict.Rdict(str(source / "metadata"), rocksdict.Options(raw_mode=True))
    stat = NodeStat(3, 1, 1_700_000_000_000, 1_700_000_000_001, False)
    long_path = "/managed-ledgers/public/default/persistent/" + "x" * 600
    for path in (
        long_path,
        f"{long_path}/sub",
        f"{long_path}/sub2",
        long_path + "y",
        "/" + "ä" * 300,
        "/" + "z" * 499,
        "/" + "z" * 500,
    ):
        database[path.encode()] = encode_value(stat, path[-5:].encode())
    database[b"/no-utf8-\xff\xfe"] = encode_value(stat, b"v")
    database[b"/short"] = b"\x00" * 40
    database[b"/format-9"] = encode_value(stat, b"v").replace(b"\x00\x00\x00\x01", b"\x00\x00\x00\x09", 1)
    database[b"/header"] = (2**31 - 1).to_bytes(4, "big") + encode_value(stat, b"v")[4:]
    database[b"/" + b"p" * 70_000] = encode_value(stat, b"v")
    database.close()
    (source / "metadata" / "rocksdict-config.json").unlink()
    return source


def test_long_paths_are_found_and_listed_once(odd_source: Path, tmp_path: Path, cli: Cli) -> None:
    cli("--store", tmp_path / "s", "store", "import", "standalone", odd_source)
    name = "x" * 600
    listed = cli.on(tmp_path / "s", "store ls /managed-ledgers/public/default/persistent").stdout.splitlines()
    assert listed.count(name) == 1
    assert listed.count(name + "y") == 1
    assert listed.count("plain") == 1
    below = cli("--store", tmp_path / "s", "store", "ls", f"/managed-ledgers/public/default/persistent/{name}")
    assert sorted(below.stdout.splitlines()) == ["sub", "sub2"]
    with open_store(tmp_path / "s") as store, store.read() as txn:
        node = find_node(txn, f"/managed-ledgers/public/default/persistent/{name}/sub")
        assert node.value == b"x/sub"[-5:]
        assert find_node(txn, "/" + "z" * 500) is not None
        assert find_node(txn, "/" + "z" * 501) is None


# -- who may read what ------------------------------------------------------------------------------------------------


def _modes(path: Path) -> set[tuple[bool, int]]:
    return {(found.is_dir(), found.stat().st_mode & 0o777) for found in (path, *path.rglob("*"))}


@deep_but_for(
    (0, 3, 4),
    ("what", "mode", "directory", "file"),
    [
        ("", 0o755, 0o755, 0o644),
        ("", 0o700, 0o700, 0o600),
        ("", 0o750, 0o750, 0o640),
        ("metadata", 0o750, 0o750, 0o640),
        ("metadata/CURRENT", 0o600, 0o700, 0o600),
        ("bookkeeper/current/0.log", 0o640, 0o750, 0o640),
    ],
)
def test_a_store_lets_in_whom_its_source_lets_in(
    what: str, mode: int, directory: int, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    umask = os.umask(0o022)
    try:
        with tempfile.TemporaryDirectory() as folder:
            top = Path(folder)
            top.chmod(0o755)
            source = scratch_copy("small", "clean", top)
            for found in (source, *source.rglob("*")):
                found.chmod(0o755 if found.is_dir() else 0o644)
            (source / what).chmod(mode)
            import_standalone(source, top / "s", ImportOptions("copied", now_ms=1), lambda count: None)
            copies = {found.stat().st_mode & 0o777 for found in (top / "s" / "entries").iterdir()}
            ours = {(found.is_dir(), found.stat().st_mode & 0o777) for found in (top / "s").glob("[!e]*")}
            inside = {(found.is_dir(), found.stat().st_mode & 0o777) for found in (top / "s" / "meta").iterdir()}
            assert ours | inside | _modes(top / "s" / "meta") == {(True, directory), (False, file)}
            assert (top / "s").stat().st_mode & 0o777 == directory
            assert copies == ({0o644, mode} if what.endswith(".log") else {0o644})
    finally:
        os.umask(umask)


def test_a_lock_of_the_source_that_is_a_fifo(tmp_path: Path, cli: Cli) -> None:
    source = scratch_copy("small", "clean", tmp_path)
    (source / "metadata" / "LOCK").unlink(missing_ok=True)
    os.mkfifo(source / "metadata" / "LOCK")
    answer = cli("--store", tmp_path / "s", "store", "import", "standalone", source, "-o", "json")
    assert (answer.exit_code, answer.json["sourceInUseBy"]) == (0, None)


_LOST = {"entries-missing", "copies-missing", "cursor-ledger-lost"}
_TERMINATE = "topics terminate public/default/fresh --dry-run"


def test_an_import_without_journals_says_what_may_be_missing(tmp_path: Path, cli: Cli, whole_cli: Cli) -> None:
    """After a crash, entries that no checkpoint had brought into an entry log were in the journals only."""
    source = scratch_copy("small", "crashed", tmp_path)
    current = source / "bookkeeper" / "current"
    away = [journal.rename(tmp_path / journal.name) for journal in current.glob("*.txn")]
    done = cli("--store", tmp_path / "s", "store", "import", "standalone", source, "-o", "json")
    assert (done.exit_code, done.json["withoutJournal"]) == (1, [str(current)])
    assert done.json["entries"] < 3346
    assert any("no journal of" in line for line in done.stderr.splitlines())
    check = cli("--store", tmp_path / "s", "store", "check", "-o", "json")
    (finding,) = [row for row in check.json if row["code"] == "journal-absent"]
    assert (finding["severity"], check.exit_code) == ("problem", 1)
    assert not _LOST & {row["code"] for row in check.json}
    told, *_ = [row for row in diagnoses(whole_cli, tmp_path / "s") if row["code"] == "entries-not-seen"]
    assert told["mend"] == f"pulsar-admin --store {tmp_path}/s store refresh"
    expire = "topics expire-messages public/default/fresh -s crash-holes -t 1"
    whole_cli.on(tmp_path / "s", expire).ends(
        3, "put its files (*.txn) back: pulsar-admin", "--force drops them anyway"
    )
    told = whole_cli.on(tmp_path / "s", "topics clear-backlog public/default/fresh -s crash-holes --dry-run").stdout
    assert "of ledger 272 from entry 0 on; that stays in the backlog" in told
    for change, fate in (
        ("create-subscription public/default/fresh -s new", "stays in the backlog"),
        ("delete public/default/fresh --force", "is deleted too"),
    ):
        told = whole_cli.on(tmp_path / "s", f"topics {change} --dry-run").stdout
        assert f"of ledger 272 from entry 0 on; that {fate}" in told
    whole_cli.on(tmp_path / "s", _TERMINATE).ends(3, "ends is unknown: the journal of", "of ledger 272 from entry 0 on")
    told = "policies of public/default are unknown: what ledger 227 may have from entry 0 on not seen"
    whole_cli.on(tmp_path / "s", "topicPolicies get-retention public/default/plain").ends(6, told, "store refresh")
    told = whole_cli.on(tmp_path / "s", "topics why public/default/fresh -s crash-holes").ends(1).stdout
    assert (
        f"$ pulsar-admin --store {tmp_path}/s store refresh"
        in told.partition("TTL and the quotas in force are unknown")[2]
    )
    not_cloned = "entries that only the journal of 127.0.0.1:34299 has, not imported, are not cloned; put its files"
    assert not_cloned in whole_cli.on(tmp_path / "s", f"store clone {tmp_path}/clone --dry-run").ends(0).stderr
    with pa.open_store(tmp_path / "s") as opened, pytest.warns(pa.PartialData, match=not_cloned):
        opened.clone(tmp_path / "clone", dry_run=True)
    for journal in away:
        journal.rename(current / journal.name)
    (told,) = [row for row in diagnoses(whole_cli, tmp_path / "s") if row["code"] == "journal-absent"]
    run_printed(whole_cli, told["mend"])
    assert cli("--store", tmp_path / "s", "store", "info", "-o", "json").json["entries"] == 3346
    check = cli("--store", tmp_path / "s", "store", "check", "-o", "json")
    assert [row for row in check.json if row["code"] == "journal-absent"] == []


def _without_journals(tmp_path: Path) -> Path:
    source = scratch_copy("small", "crashed", tmp_path)
    for journal in (source / "bookkeeper" / "current").glob("*.txn"):
        journal.unlink()
    return source


def test_a_recovery_says_that_a_journal_may_have_more(tmp_path: Path, cli: Cli) -> None:
    store, disks = tmp_path / "s", _without_journals(tmp_path) / "bookkeeper"
    cli("--store", store, "store", "import", "cluster", "--bookie", disks)
    told = cli("--store", store, "store", "recover", "--dry-run").stdout
    assert (
        "entries that only the journal disk of 127.0.0.1:34299 has are not seen: the rebuilt metadata ends ledgers"
        in told
    )
    assert "import the journal: pulsar-admin" in told


def test_of_a_ledger_that_a_journal_may_have_nothing_is_forgotten(tmp_path: Path, cli: Cli) -> None:
    store, back = tmp_path / "s", "pulsar-admin store refresh"
    cli("--store", store, "store", "import", "standalone", _without_journals(tmp_path))

    def hint(verb: str) -> str:
        return str(cli("--store", store, "ledgers", verb, 229, "-o", "json").error["hint"])

    put_back = f"put its files (*.txn) back: {back}"
    assert hint("forget").startswith(put_back)
    with open_store(store) as opened, opened.read() as txn:
        listed = read_topic(txn, parse_topic("public/default/fresh")).ledger(229)
        assert listed is not None
        assert not _is_gone(txn, listed)
    lose_nodes(store, ledger_path(229))
    assert hint("forget").startswith(put_back)
    assert put_back in hint("restore")
    (row,) = cli.rows(store, "ledgers missing 229")
    assert (row["cure"], row["absent"]) == (back, ["the journal of 127.0.0.1:34299"])
    assert "no-ledger: import the journal of 127.0.0.1" in cli("--store", store, "ledgers", "missing", 229).stderr
    (row,) = (row for row in cli.rows(store, "store check") if row["context"].get("ledgerId") == 229)
    assert (row["code"], row["hint"]) == ("ledger-without-metadata", put_back)
    put_node(store, f"{COOKIES}/a:3181", b"")  # another bookie, which has no policies
    row = read_rows(store, lambda txn: json.loads(txn.get("state", b"bookies") or b"")) | {"absent": ["a:3181"]}
    write_rows(store, lambda txn: txn.put("state", b"bookies", json.dumps(row).encode()))
    why = cli("--store", store, "topics", "why", "public/default/fresh", "-s", "crash-holes", "-o", "json").json
    assert [reason["command"] for reason in why["reasons"] if reason["code"] == "ttl-unknown"] == [back]


def test_without_a_journal_a_bookie_of_no_cookie_is_told_of(tmp_path: Path, cli: Cli) -> None:
    source = _without_journals(tmp_path)
    (source / "bookkeeper" / "current" / "VERSION").unlink()
    done = cli("--store", tmp_path / "s", "store", "import", "standalone", source)
    assert f"no journal of {source}/bookkeeper/current: 47 ledgers are open or lack entries" in done.ends(1).stderr


def test_a_refresh_looks_for_the_journals_that_an_older_version_did_not_look_for(tmp_path: Path, cli: Cli) -> None:
    store = tmp_path / "s"
    cli("--store", store, "store", "import", "standalone", _without_journals(tmp_path)).ends(1)
    with open_store(store, writable=True) as opened:
        row = json.dumps({"imported": ["127.0.0.1:34299"], "absent": [], "unknown": []}).encode()
        opened.write(lambda txn: txn.put("state", b"bookies", row))

    def codes() -> set[str]:
        return {row["code"] for row in cli.rows(store, "store check")}

    assert {"journal-absent", "entries-missing"} <= codes()
    cli("--store", store, "store", "refresh")
    assert codes() >= {"journal-absent", "entries-not-seen"}
    assert not _LOST & codes()


def test_journals_that_are_gone_for_good_are_known_to_be_lost_after_a_salvage(tmp_path: Path, whole_cli: Cli) -> None:
    source, store = _without_journals(tmp_path), tmp_path / "s"
    whole_cli("--store", store, "store", "import", "standalone", source)
    (told,) = [row for row in diagnoses(whole_cli, store) if row["code"] == "bookie-journal-missing"]
    run_printed(whole_cli, f"{told['mend']} --yes")
    whole_cli("--store", store, "store", "refresh")
    assert {row["code"] for row in whole_cli.rows(store, "store check")} >= _LOST
    assert "none -> 270:24" in whole_cli.on(store, _TERMINATE).ends(0).stdout


def test_a_ledger_of_a_newer_version_is_imported(tmp_path: Path) -> None:
    source = scratch_copy("small", "clean", tmp_path)
    with open_store(imported("small", "clean")) as store, store.read() as txn:
        path = next(node.path for node in iter_nodes(txn, "/ledgers/00/"))
        value = find_node(txn, path).value.replace(b"Version\t3\n", b"Version\t4\n")  # type: ignore[union-attr]
    apply_values(source / "metadata", {path.encode(): encode_value(NodeStat(0, 0, 1, 1, False), value)})
    import_into(tmp_path / "new", source)
    with open_store(tmp_path / "new") as store, store.read() as txn:
        assert find_node(txn, path).value == value  # type: ignore[union-attr]
