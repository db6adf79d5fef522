"""The index of a bookie destroyed in every way, and made again: rows equal to those that BookKeeper had written."""

import ctypes
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from pyroaring import BitMap64

from pulsar_admin.store.codec import journal
from pulsar_admin.store.codec.bookie import LogMark, decode_last_id, decode_last_mark, encode_last_mark
from pulsar_admin.store.codec.dbledger import LedgerData, decode_ledgers_row, decode_location_row, encode_ledgers_row
from pulsar_admin.store.codec.digest import DigestType, master_key
from pulsar_admin.store.codec.entry import decode_entry
from pulsar_admin.store.codec.entrylog import log_file_name
from pulsar_admin.store.codec.ledgerindex import decode_ledger_index_header
from pulsar_admin.store.codec.ledgermetadata import (
    LedgerState,
    Segment,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_path,
)
from pulsar_admin.store.db.bookies import iter_imported_bookies
from pulsar_admin.store.db.entry_files import EntryFiles
from pulsar_admin.store.db.environment import create_store, open_store
from pulsar_admin.store.db.tree import Node, put_nodes
from pulsar_admin.store.disks import switching
from pulsar_admin.store.disks.journals import JournalSurvey, survey_journals
from pulsar_admin.store.disks.logs import Entries
from pulsar_admin.store.disks.salvage import (
    BookieLedgers,
    FilePlace,
    OldLedgers,
    Witnesses,
    _rows_of_others,
    apply_salvage,
    make_rows,
    plan_salvage,
    read_listed,
    read_missing,
)
from pulsar_admin.store.errors import InvalidValue, SourceBusy, StalePlan, StoreError
from pulsar_admin.store.model.ledgers import iter_ledger_ids, sorted_ledger_ids
from pulsar_admin.store.sources import log_files
from pulsar_admin.store.sources.cluster import make_layout, open_metadata
from pulsar_admin.store.sources.given_bookies import find_bookie, parse_bookie
from pulsar_admin.store.sources.rocksdb import create_database
from pulsar_admin.store.transfer.imports import ImportOptions, import_layout
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.locking import locked
from tests.stores import NOW_MS, apply_values, imported, read_rows, rocksdb_rows
from tests.synthetic import ledger_node
from tests.worlds import copy_tree, digest_of, world

Rows = dict[bytes, bytes]


class Killed(Exception):
    """In the place of the end of the process."""


def _index(bookie: Path) -> dict[str, Rows]:
    return {
        f"{database.parent.parent.name}/{database.name}": rocksdb_rows(database)
        for name in ("ledgers", "locations")
        for database in sorted(bookie.glob(f"**/current/{name}"))
    }


@pytest.fixture
def bookie(tmp_path: Path) -> Path:
    """One of three bookies that were killed: entries that only journals have, a fenced ledger, deleted ledgers."""
    copy_tree(world("cluster") / "crashed" / "bookkeeper0", tmp_path / "bookkeeper0")
    return tmp_path / "bookkeeper0"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of ZooKeeper and all three."""
    cluster, store = world("cluster") / "crashed", tmp_path_factory.mktemp("salvage") / "store"
    bookies = [parse_bookie(str(cluster / f"bookkeeper{number}")) for number in range(3)]
    layout = make_layout(open_metadata(str(cluster / "zookeeper")), bookies)
    import_layout(layout, store, ImportOptions(now_ms=NOW_MS), lambda _: None)
    return store


@pytest.fixture
def salvage(store: Path, bookie: Path, cli: Cli) -> Callable[..., Any]:
    """Shows, then salvages bookie 0; what was shown is what is done."""

    def run(*words: object) -> Any:
        named = words or (bookie,)
        shown = cli.done("--store", store, "store", "salvage", *named, "--dry-run", "-o", "json")
        done = cli.done("--store", store, "store", "salvage", *named, "--yes", "-o", "json")
        assert {**done.json, "dryRun": True, "kept": []} == shown.json
        again = cli("--store", store, "store", "salvage", *named, "--dry-run", "-o", "json").json
        assert not again["needed"], again
        return done.json

    return run


def test_a_bookie_without_fault_is_left_alone(bookie: Path, salvage: Callable[..., Any]) -> None:
    before = digest_of(bookie)
    report = salvage()
    assert not report["needed"]
    assert report["directories"][0]["locations"]["right"] == report["directories"][0]["entries"]
    assert digest_of(bookie) == before


def _gone(database: Path) -> None:
    shutil.rmtree(database)


def _empty(database: Path) -> None:
    """As a bookie makes it that starts without."""
    shutil.rmtree(database)
    create_database(database, ())


def _no_manifest(database: Path) -> None:
    (database / "CURRENT").unlink()


def _damaged(database: Path) -> None:
    for file in database.glob("*.sst"):
        data = bytearray(file.read_bytes())
        data[len(data) // 3] ^= 0xFF
        file.write_bytes(data)


def _rebuilt_by_upstream(database: Path) -> None:
    """What ``LedgersIndexRebuildOp`` writes."""
    bad = encode_ledgers_row(0, LedgerData(True, True, b""))[1]
    ids = list(rocksdb_rows(database))
    shutil.rmtree(database)
    create_database(database, ((key + bytes(8), bad) for key in ids))


_BOTH = "locations", "ledgers"
_CASES = [
    (_damaged, _BOTH),
    (_no_manifest, _BOTH),
    (_empty, ("locations",)),
    (_gone, ("ledgers",)),
    (_rebuilt_by_upstream, ("ledgers",)),
]


@pytest.mark.parametrize(("destroy", "lost"), _CASES)
def test_rows_are_those_that_bookkeeper_had(
    bookie: Path, salvage: Callable[..., Any], destroy: Callable[[Path], None], lost: tuple[str, ...]
) -> None:
    before = _index(bookie)
    assert sum(decode_ledgers_row(*row, "")[1].fenced for row in before["bookkeeper0/ledgers"].items()) == 1
    for name in lost:
        destroy(bookie / "current" / name)
    report = salvage()
    assert report["needed"]
    after = _index(bookie)
    assert after == before
    if destroy is not _gone:
        assert [Path(path).name for path in report["kept"]] == [
            f"{name}-before-salvage"
            for name in ("locations", "ledgers")
            if (bookie / "current" / f"{name}-before-salvage").exists()
        ]


def _entries(current: Path) -> dict[tuple[int, int], bytes]:
    """Every entry that the index leads to, read as a bookie reads it, its digest verified: the payload, which all copies share."""
    found = {}
    for key, value in rocksdb_rows(current / "locations").items():
        row = decode_location_row(key, value, "locations")
        with (current / log_file_name(row.log_id)).open("rb") as log:
            log.seek(row.pos - 4)
            body = log.read(int.from_bytes(log.read(4), "big"))
        entry = decode_entry(body, None, where=current.name)
        assert (entry.ledger_id, entry.entry_id) == (row.ledger_id, row.entry_id)
        found[entry.ledger_id, entry.entry_id] = bytes(entry.payload)
    return found


def test_ledgers_that_upstreams_rebuild_fenced_are_as_before(tmp_path: Path, cli: Cli) -> None:
    """``rebuild-db-ledgers-index`` ran on this bookie; each of three has all ledgers, and on the others none is fenced."""
    copy_tree(world("kinds") / "clean", tmp_path / "kinds")
    kinds, store = tmp_path / "kinds", tmp_path / "store"
    bookies = [",".join(map(str, sorted((kinds / f"bookie{number}").iterdir()))) for number in range(3)]
    layout = make_layout(open_metadata(str(kinds / "zookeeper")), [parse_bookie(text) for text in bookies])
    import_layout(layout, store, ImportOptions(now_ms=NOW_MS), lambda _: None)
    headers = {
        int(file.stem, 16): decode_ledger_index_header(file.read_bytes(), file.name)
        for file in sorted((kinds / "bookie0" / "index").rglob("*.idx"))
    }
    before = [_entries(kinds / "bookie2" / name / "current") for name in ("ledgers0", "ledgers1")]

    report = cli("--store", store, "store", "salvage", bookies[2], "--yes", "-o", "json").json
    assert [row["ledgers"]["fenced"] for row in report["directories"]] == [0, 0]
    for number, current in enumerate(kinds / "bookie2" / name / "current" for name in ("ledgers0", "ledgers1")):
        assert _entries(current) == before[number]
        rows = dict(
            decode_ledgers_row(*row, "") for row in rocksdb_rows(current / "ledgers").items() if row[0][0] < 0x80
        )
        assert {len(key) for key in rocksdb_rows(current / "ledgers")} == {8}
        assert all(ledger_id % 2 == number for ledger_id in rows)
        assert {key for key in headers if key % 2 == number} <= rows.keys()
        for ledger_id, row in rows.items():
            assert (row.fenced, row.master_key) == (False, master_key(b""))
            header = headers.get(ledger_id)
            assert header is None or (header.fenced, header.master_key) == (row.fenced, row.master_key)
    assert not cli("--store", store, "store", "salvage", bookies[2], "--dry-run", "-o", "json").json["needed"]


def test_a_bookie_that_runs_and_one_with_a_directory_missing_are_refused(tmp_path: Path, store: Path, cli: Cli) -> None:
    copy_tree(world("cluster") / "crashed" / "bookkeeper0", tmp_path / "bookie")
    before = digest_of(tmp_path / "bookie")
    with locked(tmp_path / "bookie" / "current" / "ledgers" / "LOCK"):
        done = cli("--store", store, "store", "salvage", tmp_path / "bookie", "--yes")
    assert done.exit_code != 0
    assert "is in use by process" in done.stderr
    assert digest_of(tmp_path / "bookie") == before
    cookie = tmp_path / "bookie" / "current" / "VERSION"
    data = cookie.read_bytes()
    for old, new, text in (
        (b'"1\\t/', b'"2\\t/other\\t/', "its cookie names 2"),
        (b'journalDir: "', b'journalDir: "/other,', "1 journal directory given, its cookie names 2"),
    ):
        cookie.write_bytes(data.replace(old, new))
        assert cookie.read_bytes() != data
        assert text in cli("--store", store, "store", "salvage", tmp_path / "bookie", "--dry-run").stderr
    cookie.write_bytes(data)
    index = tmp_path / "index"
    (index / "current").mkdir(parents=True)
    for name in ("ledgers", "locations"):
        (tmp_path / "bookie" / "current" / name).rename(index / "current" / name)
    conf = tmp_path / "bookkeeper.conf"
    conf.write_text(
        f"ledgerDirectories={tmp_path}/bookie\njournalDirectories={tmp_path}/bookie\nindexDirectories={index}\n"
    )
    lost = cli("--store", store, "store", "salvage", "--bookie-conf", conf, "--dry-run", "-o", "json").json["cookies"]
    assert lost == [f"{index}/current/VERSION"]
    left = index / "current" / "VERSION.salvaging"
    left.write_bytes(data[:9])  # by one that was killed while it wrote
    assert cli("--store", store, "store", "salvage", "--bookie-conf", conf, "--yes").exit_code == 0
    assert (index / "current" / "VERSION").read_bytes() == data
    assert not left.exists()
    shutil.rmtree(index)
    (index / "current").mkdir(parents=True)
    unmounted = cli("--store", store, "store", "salvage", "--bookie-conf", conf, "--dry-run")
    assert unmounted.exit_code == 3
    assert f"{index}/current has no cookie" in unmounted.stderr


def test_a_second_salvage_meanwhile_is_refused(bookie: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Databases that are gone have no lock that could tell one of the other."""
    before, begin, told = _index(bookie), switching.begin, []
    for name in _BOTH:
        _gone(bookie / "current" / name)
    with open_store(store) as opened:
        one, other = (plan_salvage(opened, find_bookie(parse_bookie(str(bookie)))) for _ in range(2))

        def meanwhile(database: Path) -> Path:
            monkeypatch.setattr(switching, "begin", begin)
            with pytest.raises(SourceBusy, match="in use by another process") as refused:
                apply_salvage(opened, other)
            told.append(refused.value)
            return begin(database)

        monkeypatch.setattr(switching, "begin", meanwhile)
        assert (apply_salvage(opened, one).kept, len(told)) == ((), 1)
        with pytest.raises(StalePlan):
            apply_salvage(opened, other)
    assert _index(bookie) == before
    assert not [path.name for path in (bookie / "current").iterdir() if "salvag" in path.name]


@pytest.mark.parametrize("stopped", [("ledgers",), _BOTH], ids=str)
def test_what_a_stopped_salvage_leaves_to_rename_is_told(
    bookie: Path, store: Path, cli: Cli, stopped: tuple[str, ...]
) -> None:
    current = bookie / "current"
    for name in _BOTH:
        _empty(current / name)
    words = "--store", store, "store", "salvage", bookie, "--yes"
    assert cli(*words).exit_code == 0
    for name in stopped:  # as of a process killed between the two renames
        (current / f"{name}-before-salvage").rename(current / f"{name}.salvaging")
        (current / name / "MADE-BY-PULSAR-ADMIN").touch()
    told = cli(*words)
    kept = [current / f"{name}-before-salvage" for name in sorted(stopped)]
    assert [line for line in told.stdout.splitlines() if line.startswith("kept")] == [f"kept: {path}" for path in kept]
    assert told.stdout.splitlines()[-1] == "the salvage that was stopped is done; next: start the bookie"
    assert all(path.is_dir() for path in kept)
    assert cli(*words).stdout.splitlines()[-1] == "nothing is wrong, nothing was written"


def test_an_exchange_of_two_renames_that_is_stopped_between_them_loses_no_fence(
    bookie: Path, store: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems without RENAME_EXCHANGE: the old index, which alone knows of a fence, has another name then."""
    ledgers = bookie / "current" / "ledgers"
    rows = rocksdb_rows(ledgers)
    key, other = [key for key, row in rows.items() if not decode_ledgers_row(key, row, "")[1].fenced][:2]
    ledger_id, row = decode_ledgers_row(key, rows[key], "")
    rows[key] = encode_ledgers_row(ledger_id, replace(row, fenced=True))[1]
    shutil.rmtree(ledgers)
    create_database(ledgers, [*rows.items(), (other + bytes(8), rows[other])])

    def rename(source: Path, target: Path) -> None:
        if target == ledgers:
            raise Killed
        os.rename(source, target)

    with monkeypatch.context() as patched, open_store(store) as opened:
        plan = plan_salvage(opened, find_bookie(parse_bookie(str(bookie))))
        patched.setattr(switching, "_exchange", lambda *_: False)
        patched.setattr("pulsar_admin.store.files.rename", rename)
        with pytest.raises(Killed):
            apply_salvage(opened, plan)
    assert not ledgers.exists()
    words = "--store", store, "store", "salvage", bookie, "--yes"
    cli(*words).ends(4, "run the command again")
    assert cli(*words).stdout.splitlines()[-1] == "nothing is wrong, nothing was written"
    assert rocksdb_rows(ledgers) == rows
    assert [path.name for path in ledgers.parent.iterdir() if "salvag" in path.name] == ["ledgers-before-salvage"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EACCES, errno.EIO])
def test_only_a_file_system_without_exchange_is_done_without(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(renameat2=lambda *_: -1))
    monkeypatch.setattr(ctypes, "get_errno", lambda: number)
    if number in (errno.EACCES, errno.EIO):
        with pytest.raises(StoreError):
            switching._exchange(tmp_path, tmp_path / "other")
    else:
        assert not switching._exchange(tmp_path, tmp_path / "other")


def test_a_salvage_stopped_behind_its_log_leaves_no_id_to_give_again(
    bookie: Path, store: Path, salvage: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log counts as there when it runs again; ``lastId`` is above it all the same."""
    current = bookie / "current"
    for file in (current / "0.log", min(current.glob("*.txn"))):
        file.unlink()

    def killed(*_: object) -> None:
        raise Killed

    logs = set(current.glob("*.log"))
    with monkeypatch.context() as patched, open_store(store) as opened:
        plan = plan_salvage(opened, find_bookie(parse_bookie(str(bookie))))
        patched.setattr(log_files, "raise_last_id", killed)
        with pytest.raises(Killed):
            apply_salvage(opened, plan)
    (log,) = set(current.glob("*.log")) - logs
    assert decode_last_id((current / "lastId").read_bytes(), "") < int(log.stem, 16)
    salvage()
    assert decode_last_id((current / "lastId").read_bytes(), "") == int(log.stem, 16)


_NOT_A_DIRECTORY = "it is not a directory"


@deep_but_for(
    (1, 2, 3, 6),
    ("name", "leads", "reason"),
    [
        ("locations.salvaging", "nothing", _NOT_A_DIRECTORY),
        ("locations.salvaging", "file", _NOT_A_DIRECTORY),
        ("locations.salvaging", "directory", ""),
        ("locations-before-salvage", "nothing", ""),
        ("locations-before-salvage", "file", ""),
        ("locations", "nothing", _NOT_A_DIRECTORY),
        ("locations", "file", _NOT_A_DIRECTORY),
    ],
)
def test_links_that_have_a_name_of_a_salvage_stay_or_are_in_its_way(
    bookie: Path, store: Path, cli: Cli, name: str, leads: str, reason: str
) -> None:
    current, before = bookie / "current", _index(bookie)
    (bookie / "directory").mkdir()
    (bookie / "file").touch()
    for database in _BOTH:
        _empty(current / database)
    if name == "locations":
        _gone(current / name)
    (current / name).symlink_to(bookie / leads)
    untouched = digest_of(bookie)
    done = cli("--store", store, "store", "salvage", bookie, "--yes")
    assert (done.exit_code, reason in done.stderr) == (3 if reason else 0, True)
    if reason:
        assert digest_of(bookie) == untouched
    else:
        assert _index(bookie) == before
        assert [path.readlink() for path in current.iterdir() if path.is_symlink()] == [bookie / leads]


def test_a_database_that_was_being_made_goes_before_what_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one that is stopped there leaves a part of it that is kept as the old database."""
    made, removed, unlink = switching.begin(tmp_path / "ledgers"), [], os.unlink
    mark = next(made.iterdir()).name
    for name in ("A", "CURRENT", "zzz"):
        (made / name).touch()
    (made / mark).unlink()
    (made / mark).touch()  # now the last to be made, which some file systems list first
    monkeypatch.setattr(os, "unlink", lambda path, **where: (removed.append(Path(path).name), unlink(path, **where)))
    assert switching.clear_unfinished(tmp_path / "ledgers") is None
    monkeypatch.undo()
    assert removed.index(mark) > max(map(removed.index, ("A", "CURRENT", "zzz")))
    assert not any(tmp_path.iterdir())


def test_a_row_that_is_none_hides_no_row_after_it(bookie: Path, store: Path, cli: Cli) -> None:
    words = ("--store", store, "store", "salvage", bookie, "--dry-run", "-o", "json")
    right = cli(*words).json["directories"][0]["locations"]["right"]
    apply_values(bookie / "current" / "locations", {b"\0": b"\0"})
    locations = cli(*words).json["directories"][0]["locations"]
    assert (locations["right"], right > 100) == (right, True)
    assert "1 row of an unknown format" in locations["problem"]


def test_a_damaged_record_is_replaced_by_another_bookies(bookie: Path, salvage: Callable[..., Any]) -> None:
    current = bookie / "current"
    before, log = _entries(current), current / "0.log"
    rows = [decode_location_row(*row, "") for row in rocksdb_rows(current / "locations").items()]
    victims = [row for row in rows if row.log_id == 0 and row.ledger_id % 7 == 3][::5]
    data = bytearray(log.read_bytes())
    for row in victims:
        data[row.pos + 40] ^= 0x40
    log.write_bytes(data)
    (current / "locations" / "CURRENT").unlink()
    report = salvage()["directories"][0]
    assert report["damagedEntries"] == len(victims) > 5
    assert report["added"]["fromJournals"] + report["added"]["fromOtherBookies"] == len(victims)
    assert _entries(current) == before


def _replayed(bookie: Path) -> tuple[Path, list[journal.JournalEntry]]:
    """The last journal, and its entries, all behind the mark."""
    *_, path = sorted((bookie / "current").glob("*.txn"))
    mark = decode_last_mark((bookie / "current" / "lastMark").read_bytes(), "")
    assert int(path.stem, 16) > mark.journal_id
    return path, [
        item for item in journal.iter_records(path.read_bytes(), "") if isinstance(item, journal.JournalEntry)
    ]


_POISONS = {
    "a negative length": b"\xff\xff\xff\x05",
    "too short": b"\0\0\0\x0a" + bytes(10),
    "a key without its bytes": b"\0\0\0\x14" + bytes(8) + b"\xff" * 6 + b"\xf0\0" + b"\0\0\1\0",
    "another key": b"",
}


@pytest.mark.parametrize("poison", _POISONS.values(), ids=_POISONS)
def test_a_poisoned_journal_is_cut_and_what_stood_behind_is_kept(
    bookie: Path, salvage: Callable[..., Any], poison: bytes
) -> None:
    before = _entries(bookie / "current")
    path, items = _replayed(bookie)
    data, half = path.read_bytes(), len(items) // 2
    victim = items[half]
    if not poison:  # a second master key of the victim's ledger
        key = (-0x1000).to_bytes(8, "big", signed=True) + b"\0\0\0\x14"
        body = victim.ledger_id.to_bytes(8, "big") + key
        assert body + master_key(b"") in data[: victim.offset]
        poison = b"\0\0\0\x28" + body + b"k" * 20
    path.write_bytes(data[: victim.offset] + poison + data[victim.offset + len(poison) :])
    poisoned = path.read_bytes()
    report = salvage()

    (stop,) = report["journals"]["stops"]
    assert (stop["path"], stop["offset"]) == (str(path), victim.offset)
    assert items[half - 1].offset < stop["cutAt"] <= victim.offset
    assert path.read_bytes() == poisoned[: stop["cutAt"]]
    (kept,) = path.parent.glob("*.txn-from-*")
    assert kept.read_bytes() == poisoned[stop["cutAt"] :].rstrip(b"\0")
    after = _entries(bookie / "current")
    behind = {(item.ledger_id, item.entry_id): item for item in items[half + 1 :]}
    replayed = {(item.ledger_id, item.entry_id) for item in items[:half]}
    assert after.keys() >= before.keys() | behind.keys()
    assert not after.keys() & (replayed - before.keys() - behind.keys()), "a start replays them"
    assert {key: after[key] for key in before} == before
    for key, item in behind.items():
        assert after[key] == bytes(decode_entry(bytes(item.body(data)), None, where="").payload)
    added = report["directories"][0]["added"]
    assert added["fromJournals"] + added["fromOtherBookies"] == len(after) - len(before)
    assert added["fromOtherBookies"] == len(after.keys() - before.keys() - behind.keys()) <= 1


def test_a_damaged_entry_at_which_a_cut_is_made_is_not_replayed(bookie: Path) -> None:
    """A start replays what is in front of the cut; an entry at it is lost with it, and another bookie's is taken."""
    path, items = _replayed(bookie)
    data, last, victim = bytearray(path.read_bytes()), items[-2], items[-1]
    damaged = (last.ledger_id, last.entry_id)
    data[victim.offset - 1] ^= 1  # the last byte of its payload
    data[victim.offset : victim.offset + 4] = b"\xff\xff\xff\x05"
    path.write_bytes(data)
    survey = survey_journals(find_bookie(parse_bookie(str(bookie))), Entries(), ())
    assert [(stop.offset, stop.cut_at) for stop in survey.stops] == [(victim.offset, last.offset)]
    replayed = {(ledger_id, entry_id) for ledger_id, ids in survey.replayed for entry_id in ids}
    before = {(item.ledger_id, item.entry_id) for item in items[:-2]}
    assert (before <= replayed, damaged in replayed) == (True, damaged in before)
    assert damaged not in before


def test_entries_of_a_lost_log_come_from_other_bookies(bookie: Path, store: Path, salvage: Callable[..., Any]) -> None:
    current = bookie / "current"
    before, index = _entries(current), _index(bookie)
    for file in (current / "0.log", min(current.glob("*.txn"))):
        file.unlink()
    (current / "lastId").write_bytes(b"zz\n")  # a bookie then takes the largest id of its logs
    report = salvage()
    newest = max(int(log.stem, 16) for log in current.glob("*.log"))
    assert (current / "lastId").read_bytes() == b"%x\n" % newest
    added, locations = report["directories"][0]["added"], report["directories"][0]["locations"]
    after = _entries(current)
    assert after.items() <= before.items()
    assert (locations["logGone"], added["fromOtherBookies"]) == (1958, len(after) - 19)
    listed = read_rows(store, lambda txn: set(iter_ledger_ids(txn)))
    assert {key for key in before if key[0] in listed} <= after.keys()
    assert rocksdb_rows(current / "ledgers") == index["bookkeeper0/ledgers"]


def test_databases_are_of_a_form_that_old_bookies_read(bookie: Path, salvage: Callable[..., Any]) -> None:
    """RocksDB of BookKeeper 4.14 knows tables up to format version 5, and no checksum newer than xxHash (rocksdb/table/format.cc: the
    footer of 53 bytes begins with the kind of checksum and ends with the version and a magic number)."""
    for name in _BOTH:
        _gone(bookie / "current" / name)
    salvage()
    tables = [file for name in _BOTH for file in (bookie / "current" / name).glob("*.sst")]
    assert len(tables) >= 2
    for table in tables:
        footer = table.read_bytes()[-53:]
        assert footer[-8:] == (0x88E241B785F4CFF7).to_bytes(8, "little")
        assert (footer[0], int.from_bytes(footer[-12:-8], "little")) == (2, 5)


def _witnesses(*, fenced_elsewhere: bool = False, newest: bool = True, in_recovery: bool = False) -> Witnesses:
    key = master_key(b"")
    others = {7: LedgerData(True, True, key)} if fenced_elsewhere else {}
    listed = BookieLedgers({7}, [7], {7} if newest else set(), {7} if in_recovery else set(), {7: key})
    return Witnesses(JournalSurvey(), listed, others)


@pytest.mark.parametrize("name", ["ledgers", "locations"])
def test_a_row_that_is_none_hides_none_after_it(name: str, bookie: Path, salvage: Callable[..., Any]) -> None:
    database = bookie / "current" / name
    rows = rocksdb_rows(database)
    shutil.rmtree(database)
    create_database(database, sorted([*rows.items(), (bytes(7), b"x")]))  # the first
    (found,) = salvage()["directories"]
    said = {"ledgers": "size of a key: expected [8, 16], found 7", "locations": "1 row of an unknown format"}
    assert said[name] in found[name]["problem"]
    assert rocksdb_rows(database) == rows


@pytest.mark.parametrize(
    ("old", "known", "by"),
    [
        (OldLedgers(problem="gone"), _witnesses(), ""),
        (OldLedgers(problem="gone"), _witnesses(fenced_elsewhere=True), "other bookies"),
        (OldLedgers(problem="gone"), _witnesses(fenced_elsewhere=True, newest=False), ""),
        (OldLedgers(problem="gone"), _witnesses(in_recovery=True), "metadata"),
        (OldLedgers({7: LedgerData(True, True, b"k")}), _witnesses(), "old index"),
        (OldLedgers({7: LedgerData(True, False, b"k")}), _witnesses(fenced_elsewhere=True), ""),
        (OldLedgers({7: LedgerData(True, True, b"")}), _witnesses(), ""),
        (OldLedgers({7: LedgerData(True, True, b"k")}, unproven={7}), _witnesses(), ""),
        (
            OldLedgers({7: LedgerData(True, True, b"k")}, unproven={7}, earlier={7: LedgerData(True, True, b"k")}),
            _witnesses(),
            "old index",
        ),
    ],
)
def test_a_ledger_is_fenced_where_a_witness_says_so(old: OldLedgers, known: Witnesses, by: str) -> None:
    made = make_rows({7}, old, known)
    assert (made.rows[7].fenced, list(made.fences)) == (bool(by), [by] if by else [])
    assert made.rows[7].master_key in (b"k", master_key(b""))


def test_every_ledger_in_the_index_of_another_bookie_is_known(store: Path, bookie: Path) -> None:
    indexes = [world("cluster") / f"crashed/bookkeeper{number}/current/ledgers" for number in (1, 2)]
    ids = {int.from_bytes(key) for index in indexes for key in rocksdb_rows(index) if len(key) == 8}
    rows = read_rows(store, lambda txn: _rows_of_others(txn, find_bookie(parse_bookie(str(bookie)))))
    assert rows.keys() == ids
    assert {ledger_id % 2 for ledger_id in ids} == {0, 1}


def _walked(bookie: Path, mark: LogMark) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Entries that a start reads behind MARK, and those that journals have in front of it."""
    behind, before = set(), set()
    for path in (bookie / "current").glob("*.txn"):
        for item in journal.iter_records(path.read_bytes(), ""):
            if isinstance(item, journal.JournalEntry):
                is_read = (int(path.stem, 16), item.offset) >= (mark.journal_id, mark.offset)
                (behind if is_read else before).add((item.ledger_id, item.entry_id))
    return behind, before - behind


@deep_but_for(
    (0, 2, 3, 5),
    ("at", "where"),
    [(-1, "first"), (0, "middle"), (1, "behind"), (2, "first"), (2, "middle"), (3, "first")],
)
def test_journals_are_read_from_the_one_that_the_mark_points_into(bookie: Path, at: int, where: str) -> None:
    """The bookie has three journals: the mark is in one of them, or in one that was before or is behind them all."""
    journals = sorted((bookie / "current").glob("*.txn"))
    offset = 0
    if 0 <= at < 3:
        items = [item for item in journal.iter_records(journals[at].read_bytes(), "") if hasattr(item, "offset")]
        offset = {"first": 0, "middle": items[len(items) // 2].offset, "behind": 16 << 20}[where] if items else 0
    mark = LogMark(int(journals[0].stem, 16) + at, offset)
    (bookie / "current" / "lastMark").write_bytes(encode_last_mark(mark))
    behind, before = _walked(bookie, mark)
    survey = survey_journals(find_bookie(parse_bookie(str(bookie))), Entries(), ())
    assert {(ledger_id, entry_id) for ledger_id, ids in survey.replayed for entry_id in ids} == behind
    assert {(ledger_id, entry_id) for ledger_id, places in survey.only_here.items() for entry_id in places} == before
    assert (survey.files, survey.stops, len(survey.missing)) == (3, [], at in (-1, 3))


def test_ledgers_in_recovery_are_known_behind_one_that_cannot_be_read(tmp_path: Path) -> None:
    store, me = tmp_path / "store", "127.0.0.1:3181"
    create_store(store, now_ms=NOW_MS)
    usual = ledger_node(1, 5, 100)
    metadata = decode_ledger_metadata(usual.value, "")

    def node(ledger_id: int, **changes: object) -> Node:
        return Node(ledger_path(ledger_id), usual.stat, encode_ledger_metadata(replace(metadata, **changes)))

    other, later = Segment(0, ("other:3181",)), Segment(2, ("other:3181",))
    nodes = [
        Node(ledger_path(0), usual.stat, b"damaged"),
        node(1, state=LedgerState.IN_RECOVERY, digest_type=DigestType.HMAC),
        node(2, state=LedgerState.OPEN, segments=(other,)),
        Node(ledger_path(3), usual.stat, b""),
        node(4, state=LedgerState.IN_RECOVERY, segments=(metadata.segments[0], later), digest_type=DigestType.DUMMY),
        node(5, state=LedgerState.CLOSED, digest_type=DigestType.CRC32, password=b"secret"),
    ]
    with open_store(store, writable=True) as opened:
        opened.write(lambda txn: put_nodes(txn, nodes))
        with opened.read() as txn:
            listed = read_listed(txn, me)
    assert (listed.ledgers, listed.mine, listed.newest) == ({0, 1, 2, 3, 4, 5}, [1, 4, 5], {1, 5})
    assert (listed.in_recovery, listed.unproven) == ({1, 4}, {1, 4})
    empty = master_key(b"")
    assert listed.keys == {1: empty, 2: empty, 4: empty, 5: master_key(b"secret")}


@pytest.mark.parametrize(("suffix", "version", "known"), [("log", 7, "0 and 1"), ("txn", 9, "1 to 6")])
def test_a_file_of_a_version_that_is_not_known_is_named_and_stays(
    suffix: str, version: int, known: str, tmp_path: Path, cli: Cli
) -> None:
    """Where its entries are is unknown: rows that lead there must not be taken for wrong, and nothing of it be cut."""
    copy_tree(world("cluster") / "crashed", source := tmp_path / "all")
    bookie = source / "bookkeeper0"
    path = max(bookie.rglob(f"*.{suffix}"), key=lambda one: one.stat().st_size)
    path.write_bytes(path.read_bytes()[:4] + version.to_bytes(4, "big") + path.read_bytes()[8:])
    what = f"{'journal' if suffix == 'txn' else 'entry log'} version {version}, known are {known}"
    disks = [word for number in range(3) for word in ("--bookie", source / f"bookkeeper{number}")]
    told = cli("--store", tmp_path / "s", "store", "import", "cluster", "--zookeeper", source / "zookeeper", *disks)
    assert f"{path}: 1 damaged place (header: {what})" in told.stderr

    before = digest_of(bookie)
    refused = cli("--store", tmp_path / "s", "store", "salvage", bookie, "--yes")
    assert refused.exit_code == 7, refused.stdout
    assert f"{path}: {what}\nhint: a newer BookKeeper wrote it" in refused.stderr
    assert digest_of(bookie) == before
    found = {row["code"]: row for row in cli("--store", tmp_path / "s", "-o", "json", "doctor", "--deep").json}
    assert what in found["file-damaged"]["message"]
    if suffix == "txn":
        row = found["bookie-journal-damaged"]
        assert row["mend"] == f"pulsar-admin logs verify {path}"
        assert what in cli(*row["mend"].split()[1:]).stdout


def test_a_master_key_of_zeros_is_none() -> None:
    from pulsar_admin.store.codec.dbledger import LedgerData
    from pulsar_admin.store.disks.salvage import OldLedgers

    old = OldLedgers(rows={1: LedgerData(True, False, b"\1" * 20)})
    assert not old.lacks_keys
    old.rows[2] = LedgerData(True, False, bytes(20))
    assert old.lacks_keys


def test_entries_that_another_directory_keeps_are_seen_after_one_without() -> None:
    from pulsar_admin.store.disks.salvage import _check_order

    def survey(strays: int) -> Any:
        return SimpleNamespace(strays=strays, storage=SimpleNamespace(logs="l0"))

    _check_order([survey(0), survey(0)])
    with pytest.raises(InvalidValue, match="holds 1 entry of ledgers"):
        _check_order([survey(0), survey(1)])


def test_a_damaged_copy_at_another_bookie_hides_no_other() -> None:
    with open_store(imported("cluster", "clean")) as store, store.read() as txn, EntryFiles(store, txn) as files:
        (bookie, *_), wanted = iter_imported_bookies(store.info), BitMap64(range(9))
        ledger_id = next(
            one for one in sorted_ledger_ids(txn) if len([*read_missing(txn, files, bookie.bookie_id, one, wanted)]) > 3
        )
        whole = [*read_missing(txn, files, bookie.bookie_id, ledger_id, wanted)]
        bad = iter([True])

        def read(place: FilePlace) -> memoryview:
            body = files.read_record(place)
            return memoryview(bytes(body)[:-1]) if next(bad, False) else body

        one_bad = SimpleNamespace(read_record=read, name=files.name)
        assert [*read_missing(txn, one_bad, bookie.bookie_id, ledger_id, wanted)] == whole[1:]  # type: ignore[arg-type]
