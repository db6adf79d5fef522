"""``store import cluster`` and ``store add``: a recorded cluster's disks under other names, in parts, and what cannot be one cluster's."""

import json
import re
import shlex
import shutil
import tarfile
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec.bookie import decode_cookie, encode_cookie
from pulsar_admin.store.codec.dbledger import ledger_key
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.entry import Entry
from pulsar_admin.store.codec.ledgermetadata import closed_ledger, encode_ledger_metadata, ledger_path
from pulsar_admin.store.db.blocks import Block
from pulsar_admin.store.db.bookies import Bookie
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.export_intent import put_exported_zxid
from pulsar_admin.store.db.files import LogFile, iter_logs
from pulsar_admin.store.db.storeinfo import read_store_info
from pulsar_admin.store.errors import MissingComponent, SourceNotFound
from pulsar_admin.store.index import build
from pulsar_admin.store.model.coverage import unseen_places
from pulsar_admin.store.scan.sources import ListedObject
from pulsar_admin.store.sources.index_places import read_newest_ledgers
from tests.conftest import Cli, CliResult
from tests.encoders import encode_entry
from tests.fake_zookeeper import FakeZooKeeper, Znode
from tests.reading_zookeeper import transactions_of
from tests.stores import apply_values, read_store, rocksdb_rows
from tests.worlds import copy_tree, digest_of, world

IDS = ("bk0test", "bk1test", "bk2test")
METADATA_FREE = ("tree", "owners", "times", "damage")


def disks_of(state: str, target: Path) -> Path:
    """Lay the cluster out as operators have it: ``bk1/{ledgers0,journal0}`` …, ``zk``."""
    for number in range(3):
        current = world("cluster") / state / f"bookkeeper{number}" / "current"
        for name in ("ledgers0", "journal0"):
            (target / f"bk{number + 1}" / name).mkdir(parents=True)
            shutil.copy(current / "VERSION", target / f"bk{number + 1}" / name)
        for file in current.iterdir():
            place = target / f"bk{number + 1}" / ("journal0" if file.suffix == ".txn" else "ledgers0") / file.name
            if not place.exists():
                place.symlink_to(file)
    (target / "zk").symlink_to(world("cluster") / state / "zookeeper")
    return target


@pytest.fixture
def disks(tmp_path: Path) -> Path:
    return disks_of("clean", tmp_path / "disks")


def bookie(disks: Path, number: int) -> str:
    return f"{disks}/bk{number}/ledgers0,{disks}/bk{number}/journal0"


def content(path: Path) -> dict[str, Any]:
    """What a store has; a place by the bookie and the name of its file, whatever its id and directory."""
    with open_store(path) as store, store.read() as txn:
        found: dict[str, Any] = {
            name: {bytes(key): bytes(value) for key, value in txn.items(name)} for name in METADATA_FREE
        }
        logs = {log.file_id: log for log in iter_logs(txn)}
        found["logs"] = {_name(log): (log.kind, log.log_id, log.records, log.problems) for log in logs.values()}
        found["entries"] = places = {}
        for key, value in txn.items("entries"):
            block = Block(key, value)
            for index in range(len(block)):
                file_id, offset, size = block.place(index)
                places[bytes(key), block.entry_id(index)] = (_name(logs[file_id]), offset, size)
    return found


def _name(log: LogFile) -> tuple[str, str]:
    return log.bookie, Path(log.origin).name


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The content of the store that ``import standalone`` makes of the cluster in one directory."""
    from pulsar_admin.store.transfer.imports import ImportOptions
    from tests.stores import import_standalone

    made: dict[str, Any] = {}

    def of(state: str) -> dict[str, Any]:
        if state not in made:
            path = tmp_path_factory.mktemp("whole") / state
            import_standalone(world("cluster") / state, path, ImportOptions(now_ms=1), lambda _: None)
            made[state] = content(path)
        found: dict[str, Any] = made[state]
        return found

    return of


# -- what is in the store ---------------------------------------------------------------------------------------------


# -- several directories of one bookie --------------------------------------------------------------------------------

COOKIE = '4\nbookieHost: "bk1"\njournalDir: "/j"\nledgerDirs: "2\\t/l0\\t/l1"\ninstanceId: "one"\n'


def made_bookie(folder: Path, cookie: str = COOKIE) -> Path:
    for name in ("l0", "l1", "j"):
        (folder / name).mkdir(parents=True)
        (folder / name / "VERSION").write_text(cookie)
    return folder


def read(path: Path, ledger_id: int, entry_id: int) -> bytes:
    return read_store(path, lambda reader: bytes(reader.read(ledger_id, entry_id).payload))


def test_metadata_that_comes_later_says_how_entries_are_read(tmp_path: Path, cli: Cli) -> None:
    """Without it no entry of these digests is proven: DUMMY's has none, and of HMAC nobody knows the password."""
    folder = made_bookie(tmp_path / "bk")
    nodes = {path: Znode(b"") for path in ("/ledgers", "/ledgers/00", "/ledgers/00/0000")}
    raw = bytearray(b"BKLO" + (1).to_bytes(4, "big") + bytes(1016))
    for ledger_id, kind in ((3, DigestType.CRC32C), (4, DigestType.DUMMY), (5, DigestType.HMAC)):
        for entry_id in range(3):
            entry = Entry(ledger_id, entry_id, entry_id - 1, 10, kind, memoryview(b"payload of a kind"))
            body = encode_entry(entry, b"secret")
            raw += len(body).to_bytes(4, "big") + body
        metadata = replace(closed_ledger("bk1", 3, 51, {}, kind), password=b"secret")
        nodes[ledger_path(ledger_id)] = Znode(encode_ledger_metadata(metadata))
    (folder / "l0" / "0.log").write_bytes(raw)
    with FakeZooKeeper(nodes) as server:
        words = ("--zookeeper", server.address, "--bookie", f"{folder}/l0,{folder}/l1")
        whole = cli("--store", tmp_path / "whole", "store", "import", "cluster", *words)
        assert whole.exit_code == 1, whole.stdout + whole.stderr  # ledgers alone: no topic names them
        answer = cli("--store", tmp_path / "s", "store", "import", "cluster", *words[2:], "-o", "json")
        assert (answer.exit_code, answer.json["entries"] < 9) == (1, True)
        answer = cli("--store", tmp_path / "s", "store", "add", "zookeeper", server.address, "-o", "json")
    assert (answer.exit_code, answer.json["entriesBefore"], answer.json["entries"]) == (1, 3, 9)
    assert content(tmp_path / "s") == content(tmp_path / "whole")
    assert len(content(tmp_path / "s")["entries"]) == 9
    rows = cli.json(tmp_path / "s", "ledgers verify")
    assert [(row["ledgerId"], row["entries"], row["unverified"]) for row in rows] == [(3, 3, 0), (4, 3, 3), (5, 3, 0)]


# -- what cannot be ---------------------------------------------------------------------------------------------------


def _other_instance(disks: Path) -> None:
    for number, instance in ((1, "one"), (2, "two")):
        for name in ("ledgers0", "journal0"):
            file = disks / f"bk{number}" / name / "VERSION"
            file.write_text(file.read_text() + f'instanceId: "{instance}"\n')


def _only_a_cookie(disks: Path) -> None:
    (disks / "empty").mkdir()
    shutil.copy(disks / "bk1" / "ledgers0" / "VERSION", disks / "empty")


def _no_id(disks: Path) -> None:
    for name in ("ledgers0", "journal0"):
        (disks / "bk1" / name / "VERSION").unlink()


def _conf(text: str) -> Callable[[Path], object]:
    return lambda disks: (disks / "bk.conf").write_bytes(text.encode("latin-1"))


BK1, BK2 = (f"{{disks}}/bk{number}/ledgers0,{{disks}}/bk{number}/journal0" for number in (1, 2))
CONF = "--bookie-conf {disks}/bk.conf --root {disks}/bk1"
BAD: dict[str, tuple[Callable[[Path], object], str, int, str]] = {
    "other instance": (
        _other_instance, f"--bookie {BK1} --bookie {BK2}", 3,
        "to different clusters, by the instance ids .*bk0test .*one; bk1test .*two",
    ),
    "one id twice": (
        lambda disks: copy_tree(disks / "bk1", disks / "copy"), f"--bookie {BK1} --bookie {{disks}}/copy/ledgers0", 3,
        "both claim to be bookie bk0test",
    ),
    "twice": (lambda _: None, f"--bookie {BK1},{{disks}}/bk1/ledgers0", 3, "bk1/ledgers0 is given twice"),
    "twice by a link": (
        lambda disks: (disks / "other").symlink_to(disks / "bk1" / "ledgers0"), f"--bookie {BK1},{{disks}}/other", 3,
        "other is given twice, also as .*bk1/ledgers0",
    ),
    "no logs": (
        lambda disks: (disks / "empty").mkdir(), f"--bookie {BK1},{{disks}}/empty", 5, "empty is not a bookie's directory"
    ),
    "only a cookie": (
        _only_a_cookie, "--bookie {disks}/empty", 5, "no entry log and no journal of bookie bk0test"
    ),
    "too many": (
        lambda disks: copy_tree(disks / "bk1" / "ledgers0", disks / "copy"), f"--bookie {BK1},{{disks}}/copy", 3,
        "2 ledger directories given for bookie bk0test: .*its cookie names 1",
    ),
    "ledgers as journal": (
        _conf("ledgerDirectories=/journal0\njournalDirectories=/ledgers0\n"), CONF, 2,
        "is said to be a ledger directory, but it holds 1 journal and no entry log|is said to be a journal",
    ),
    "no directories": (_conf("bookiePort=3181\n"), CONF, 2, "sets no ledgerDirectories"),
    "unreadable conf": (_conf("\xff\xfe\0"), "--bookie-conf {disks}/bk.conf", 2, "is not UTF-8"),
    "other id in conf": (
        _conf("bookieId=bk9\nledgerDirectories=/ledgers0\njournalDirectory=/journal0\n"), CONF, 3,
        "said to be bookie bk9, but its cookie .* is that of bk0test",
    ),
    "unknown version": (
        lambda disks: (disks / "bk1" / "ledgers0" / "VERSION").write_text("9\n"), f"--bookie {BK1}", 7,
        "cookie layout version 9, known are 3 to 5",
    ),
    "no id": (_no_id, f"--bookie {BK1}", 2, "no directory has a cookie"),
    "two bookies as one": (
        lambda _: None, f"--bookie {BK1},{{disks}}/bk2/ledgers0", 3,
        "belong to different bookies: the cookie .* of bk0test .* of bk1test",
    ),
}  # fmt: skip


def damaged(case: str, disks: Path) -> list[str]:
    """Make the disks those of CASE; return the words that name them."""
    damage, words, _, _ = BAD[case]
    damage(disks)
    return words.format(disks=disks).split()


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_a_clusters_disks_is_named_and_makes_no_store(
    case: str, disks: Path, tmp_path: Path, cli: Cli
) -> None:
    words, (_, _, exit_code, text) = damaged(case, disks), BAD[case]
    answer = cli("--store", tmp_path / "s", "store", "import", "cluster", "--zookeeper", disks / "zk", *words)
    assert (answer.exit_code, answer.stdout) == (exit_code, "")
    assert re.search(text, answer.stderr), answer.stderr
    assert not (tmp_path / "s").exists()


def test_bookies_of_another_cluster_are_not_added(tmp_path: Path, cli: Cli) -> None:
    """Neither to metadata, nor metadata to them; and not a bookie that is there already."""
    small, other, path = world("small") / "clean", world("nometa") / "clean", tmp_path / "s"
    assert cli("--store", path, "store", "import", "cluster", "--metadata", small / "metadata").exit_code == 0
    answer = cli("--store", path, "store", "add", "bookie", other / "bookkeeper").ends(3)
    instance = decode_cookie((other / "bookkeeper/current/VERSION").read_bytes(), "VERSION").instance_id
    assert f"belongs to another cluster: its instance id is {instance}" in answer.stderr
    assert len(read_store_info(path).sources) == 1
    assert cli("--store", tmp_path / "b", "store", "import", "cluster", "--bookie", other / "bookkeeper").exit_code == 0
    answer = cli("--store", tmp_path / "b", "store", "add", "zookeeper", small / "metadata")
    assert (answer.exit_code, "belongs to another cluster" in answer.stderr) == (3, True)
    shutil.copytree(path, tmp_path / "unverified")
    words = ("store", "add", "bookie", small / "bookkeeper", "-o", "json")
    assert cli.done("--store", path, *words).json["checksums"] is True
    assert cli.done("--store", tmp_path / "unverified", *words, "--no-checksums").json["checksums"] is False
    answer = cli("--store", path, "store", "add", "bookie", small / "bookkeeper").ends(3, "the store has bookie")


def _with_cookie(disks: Path, number: int, old: str, new: str) -> str:
    """Change the cookies of a bookie's directories; return what names them."""
    for name in ("ledgers0", "journal0"):
        cookie = disks / f"bk{number}" / name / "VERSION"
        cookie.write_text(cookie.read_text().replace(old, new))
    return bookie(disks, number)


def test_a_bookie_that_the_metadata_does_not_know_is_not_added(disks: Path, tmp_path: Path, cli: Cli) -> None:
    """It would be a source for ever. At an import it is left out: it is not counted, and nobody asks for its journal."""
    path, words = tmp_path / "s", ("--zookeeper", disks / "zk", "--bookie", bookie(disks, 1))
    assert cli("--store", path, "store", "import", "cluster", *words).exit_code == 0
    before, unknown = digest_of(path / "store.json"), _with_cookie(disks, 2, "bk1test", "bk9test")
    for option in ((), ("--dry-run",)):
        answer = cli("--store", path, "store", "add", "bookie", unknown, *option)
        assert (answer.exit_code, "has no cookie of its bookie bk9test" in answer.stderr) == (3, True)
    assert digest_of(path / "store.json") == before
    answer = cli("--store", tmp_path / "t", "store", "import", "cluster", *words, "--bookie", unknown)
    assert answer.exit_code == 1
    assert "1 of 3 bookies imported" in answer.stderr
    assert "no journal" not in answer.stderr


def test_a_stopped_import_of_other_parts_is_named(disks: Path, tmp_path: Path, cli: Cli) -> None:
    """One that could read nothing of its metadata is begun again with the right one."""
    path = tmp_path / "s"
    words = ("--store", path, "store", "import", "cluster", "--bookie", bookie(disks, 1))
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "CURRENT").write_bytes(b"no RocksDB")
    assert cli(*words, "--metadata", tmp_path / "metadata").exit_code == 6
    for other in ("notes", "meta/data.mdb"):  # somebody else's file, and a damaged one
        before = (path / other).read_bytes() if (path / other).exists() else b""
        (path / other).write_bytes(b"")
        cli(*words, "--zookeeper", disks / "zk").ends(3, "that was stopped")
        (path / other).write_bytes(before)
        (path / "notes").unlink(missing_ok=True)
    (path / "entries").rmdir()
    assert cli(*words, "--zookeeper", disks / "zk", "--no-index").exit_code == 0
    cli(*words, "--metadata", tmp_path / "metadata").ends(3, "that was stopped")
    cli(*words, "--zookeeper", disks / "zk").ends(0)
    assert content(path)["tree"]


def _of_cluster(disks: Path, third: str) -> tuple[Any, ...]:
    parts = (bookie(disks, 1), bookie(disks, 2), third)
    return ("cluster", "--zookeeper", disks / "zk", *(word for part in parts for word in ("--bookie", part)))


@pytest.mark.parametrize("is_named_again", [pytest.param(False, marks=pytest.mark.deep), True])
def test_a_journal_directory_that_was_forgotten_comes_later(
    is_named_again: bool, whole: Any, tmp_path: Path, cli: Cli
) -> None:
    disks, path = disks_of("crashed", tmp_path / "disks"), tmp_path / "s"
    answer = cli("--store", path, "store", "import", *_of_cluster(disks, f"{disks}/bk3/ledgers0"))
    assert "bookie bk2test: 0 of 1 journal directories given" in answer.stderr
    assert "import them: pulsar-admin store add bookie bk2test=DIR" in answer.stderr
    assert content(path)["logs"] != whole("crashed")["logs"]
    rest = bookie(disks, 3) if is_named_again else f"bk2test={disks}/bk3/journal0"
    answer = cli("--store", path, "store", "add", "bookie", rest)
    assert (answer.exit_code, "not seen" in answer.stderr) == (0, False)
    assert content(path) == whole("crashed")
    assert "bookie-journal-missing" not in {row["code"] for row in cli.rows(path, "doctor")}
    assert cli("--store", path, "store", "refresh").exit_code == 0
    assert content(path) == whole("crashed")
    answer = cli("--store", path, "store", "add", "bookie", rest).ends(3, "the store has bookie bk2test")


def test_without_any_journal_the_cure_of_what_is_not_seen_adds_one(tmp_path: Path, cli: Cli) -> None:
    disks, path = disks_of("crashed", tmp_path / "disks"), tmp_path / "s"
    words = [word for number in (1, 2, 3) for word in ("--bookie", f"{disks}/bk{number}/ledgers0")]
    cli("--store", path, "store", "import", "cluster", "--zookeeper", disks / "zk", *words).ends(1)
    rows = cli.rows(path, "doctor")
    for code in ("entries-not-seen", "journal-absent", "bookie-journal-missing"):
        told, *_ = (row["mend"] for row in rows if row["code"] == code)
        assert told == "pulsar-admin store add bookie bk0test=JOURNAL-DIR"
    cli("--store", path, "bookies", "rename", "bk1test", "other", "--yes").ends(0)
    (told,) = (row["message"] for row in cli.rows(path, "doctor") if row["code"] == "journal-absent")
    assert "no journal of bk0test, other, bk2test: 42 ledgers" in told
    told = cli("--store", path, "ledgers", "underreplicated").ends(1).stderr
    assert "0 with too few copies, 920 that a bookie or journal which is not imported may have" in told
    cli("--store", path, "store", "add", "bookie", f"other={disks}/bk2/journal0").ends(0)
    (told,) = (row["message"] for row in cli.rows(path, "doctor") if row["code"] == "journal-absent")
    assert "no journal of bk0test, bk2test: " in told


def test_a_bookie_and_the_journal_of_another_are_both_named(tmp_path: Path, cli: Cli) -> None:
    disks, path = disks_of("crashed", tmp_path / "disks"), tmp_path / "s"
    words = ("--bookie", bookie(disks, 1), "--bookie", f"{disks}/bk2/ledgers0")
    cli("--store", path, "store", "import", "cluster", "--zookeeper", disks / "zk", *words).ends(1)
    told = cli("--store", path, "topics", "stats", "public/default/plain").stderr
    assert "plain: bk2test, the journal disk of bk1test not imported: entries 1, 4, 7" in told
    assert re.search(
        r"its disks: \S+ .*store add bookie bk2test=DIR,DIR; import the journal: .*bk1test=JOURNAL-DIR", told
    )


def test_of_a_bookie_without_its_journal_old_copies_are_lost_and_new_ones_unknown(tmp_path: Path, cli: Cli) -> None:
    """Its log of the first 60 ledgers is gone; what was written since the last start, from ledger 261 on, was only in its journal."""
    disks, path = disks_of("crashed", tmp_path / "disks"), tmp_path / "s"
    (disks / "bk2" / "ledgers0" / "0.log").unlink()
    parts = (bookie(disks, 1), f"{disks}/bk2/ledgers0", bookie(disks, 3))
    words = [word for part in parts for word in ("--bookie", part)]
    cli("--store", path, "store", "import", "cluster", "--zookeeper", disks / "zk", *words).ends(1)
    rows = cli.rows(path, "ledgers underreplicated")
    short, unknown = ({row["ledgerId"] for row in rows if row[what]} for what in ("short", "unknown"))
    assert (len(short), max(short) <= 60) == (35, True)
    assert (len({one for one in unknown if one >= 261}), short & unknown) == (27, set())


def test_a_ledger_that_came_during_a_flush_does_not_say_that_earlier_ones_were_flushed(
    tmp_path: Path, cli: Cli
) -> None:
    """A flush writes the list of ledgers last, with those that came meanwhile, of which it writes no entry."""
    disks = disks_of("crashed", tmp_path / "disks")
    own, parts = disks / "bk2" / "ledgers0", ("--bookie", bookie(disks, 1), "--bookie", f"{disks}/bk2/ledgers0")

    def import_unknown(path: Path) -> list[dict[str, Any]]:
        cli("--store", path, "store", "import", "cluster", "--zookeeper", disks / "zk", *parts).ends(1)
        return [row for row in cli.rows(path, "ledgers underreplicated") if row["unknown"]]

    before, database = import_unknown(tmp_path / "s"), (own / "ledgers").resolve()
    newest = max(int(row["ledgerId"]) for row in cli.rows(tmp_path / "s", "ledgers list"))
    (own / "ledgers").unlink()
    copy_tree(database, own / "ledgers")
    apply_values(own / "ledgers", {ledger_key(newest): max(rocksdb_rows(database).items())[1]})
    assert import_unknown(tmp_path / "late") == before


def test_of_each_directory_the_newest_ledger_with_an_entry_counts(tmp_path: Path) -> None:
    """Each directory is flushed on its own, and ledgers that the metadata does not know have no time."""
    source = world("cluster") / "crashed" / "bookkeeper1" / "current"
    places = [tmp_path / name / "current" for name in ("a", "b")]
    cookie = decode_cookie((source / "VERSION").read_bytes(), "")
    rows = rocksdb_rows(source / "locations")
    ids = sorted({int.from_bytes(key[:8], "big") for key in rows})
    for place in places:
        copy_tree(source / "locations", place / "locations")
        (place / "VERSION").write_bytes(
            encode_cookie(replace(cookie, ledger_dirs=tuple(str(one.parent) for one in places)))
        )
    apply_values(places[1] / "locations", {key: None for key in rows if key >= ledger_key(ids[5])})
    one = Bookie("bk1test", tuple(places), ())
    assert read_newest_ledgers([one], {"bk1test"}, lambda _: True) == {"bk1test": [ids[-1], ids[4]]}
    assert read_newest_ledgers([one], {"bk1test"}, {ids[3], ids[7]}.__contains__) == {"bk1test": [ids[7], ids[3]]}
    assert read_newest_ledgers([one], {"bk1test"}, lambda _: False) == {"bk1test": [-1, -1]}


def test_journal_directories_of_one_bookie_come_one_after_the_other_in_any_order(tmp_path: Path, cli: Cli) -> None:
    disks, path = world("chains") / "clean" / "bookie1", tmp_path / "s"

    def unseen() -> list[str]:
        with open_store(path) as store, store.read() as txn:
            return [*unseen_places(txn).values()]

    cli("--store", path, "store", "import", "cluster", "--bookie", f"{disks}/hdd0/bk,{disks}/hdd1/bk").ends(0)
    for drive in ("ssd1", "ssd0"):
        assert unseen() == ["the journal disk of bookie-b.example"]
        cli("--store", path, "store", "add", "bookie", f"bookie-b.example={disks}/{drive}/wal").ends(0)
    assert unseen() == []


def test_an_old_copy_of_a_directory_is_not_added_to_its_bookie(disks: Path, tmp_path: Path, cli: Cli) -> None:
    path, old = tmp_path / "s", tmp_path / "old"
    assert cli("--store", path, "store", "import", *_of_cluster(disks, f"{disks}/bk3/ledgers0")).exit_code == 1
    copy_tree(disks / "bk3" / "ledgers0", old)
    before = content(path), digest_of(path / "store.json")
    cli("--store", path, "store", "add", "bookie", old).ends(3, "2 ledger directories given for bookie bk2test")
    assert (content(path), digest_of(path / "store.json")) == before


def test_the_directory_above_a_bookies_names_those_in_it(disks: Path, tmp_path: Path, cli: Cli) -> None:
    there = (disks / "bk1").rename(disks / "o'b")
    answer = cli("--store", tmp_path / "s", "store", "import", "cluster", "--bookie", there)
    hint = f"name the directories in it: {shlex.quote(f'{there}/journal0,{there}/ledgers0')}"
    assert (answer.exit_code, hint in answer.stderr) == (5, True)


def test_an_addition_that_was_stopped_goes_on(
    whole: Any, disks: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the same command, and what is half there does not keep the store from being read."""
    path = tmp_path / "s"
    words = ("--bookie", bookie(disks, 1), "--bookie", bookie(disks, 2))
    assert cli("--store", path, "store", "import", "cluster", "--zookeeper", disks / "zk", *words).exit_code == 0
    with monkeypatch.context() as patch:
        patch.setattr(build._Group, "commit", lambda group: (_ for _ in ()).throw(KeyboardInterrupt))
        assert cli("--store", path, "store", "add", "bookie", bookie(disks, 3)).exit_code == 130
    (added,) = (source["path"] for source in read_store_info(path).sources if "unfinished" in source)
    told = cli("--store", path, "store", "check", "-o", "json").json
    assert [row["context"]["sources"] for row in told if row["code"] == "refresh-unfinished"] == [[added]]
    assert cli("--store", path, "topics", "list", "public/default").exit_code == 0
    rows = cli("--store", path, "ledgers", "underreplicated", "-o", "json").json
    assert rows
    assert {row["short"] for row in rows} == {0}
    _only_the_stop_is_a_problem(cli("--store", path, "store", "check"))
    assert cli("--store", path, "store", "add", "bookie", bookie(disks, 3)).exit_code == 0
    assert content(path) == whole("clean")
    assert not any("unfinished" in source for source in read_store_info(path).sources)


def _only_the_stop_is_a_problem(checked: CliResult) -> None:
    assert checked.exit_code == 1
    assert [line.split()[1] for line in checked.stdout.splitlines() if line.startswith("problem")] == [
        "refresh-unfinished"
    ]


def test_a_second_bookie_of_which_nothing_is_indexed_yet(
    disks: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are catalogued: what it has is not known, and the first one's entries count as before."""
    path = tmp_path / "s"
    words = ("--zookeeper", disks / "zk", "--bookie", bookie(disks, 1))
    assert cli("--store", path, "store", "import", "cluster", *words).exit_code == 0
    before = cli("--store", path, "ledgers", "underreplicated", "-o", "json").json
    with monkeypatch.context() as patch:
        patch.setattr(build._Group, "commit", lambda group: (_ for _ in ()).throw(KeyboardInterrupt))
        assert cli("--store", path, "store", "add", "bookie", bookie(disks, 2), bookie(disks, 3)).exit_code == 130
    answer = cli("--store", path, "ledgers", "underreplicated", "-o", "json")
    assert (answer.json, "warning" in answer.stderr) == (before, False)
    _only_the_stop_is_a_problem(cli("--store", path, "store", "check"))
    assert cli("--store", path, "store", "refresh").exit_code == 0


def test_a_disk_that_is_lost_for_good(disks: Path, tmp_path: Path, cli: Cli) -> None:
    """An entry log that is gone is said to leave too few copies; the bookie stays a known one, whose copies are missing."""
    path = tmp_path / "s"
    shutil.copytree(disks / "bk2", disks / "real")
    shutil.copytree(disks / "zk", disks / "zk2")
    words = [word for name in ("bk1", "real", "bk3") for word in ("--bookie", f"{disks}/{name}/ledgers0")]
    cli("--store", path, "store", "import", "cluster", "--zookeeper", disks / "zk2", *words)
    before = content(path)
    shutil.rmtree(disks / "real")
    answer = cli("--store", path, "store", "refresh")
    assert (answer.exit_code, f"{disks}/real/ledgers0 of bookie bk1test is gone" in answer.stderr) == (5, True)
    assert "create an empty directory there" in answer.stderr
    assert content(path) == before
    (disks / "real/ledgers0").mkdir(parents=True)
    (disks / "zk2").rename(disks / "away")
    cli("--store", path, "store", "refresh").ends(
        5, "zk2/version-2 is not a metadata store", "hint: restore the directory"
    )
    (disks / "away").rename(disks / "zk2")
    answer = cli("--store", path, "store", "refresh", "--forget").ends(1)
    rows = cli("--store", path, "ledgers", "underreplicated", "-o", "json").json
    assert f"entry logs are gone, and {len(rows)} ledgers have entries on fewer bookies" in answer.stderr
    assert "bookies imported" not in answer.stderr
    assert {found["bookie"] for row in rows for found in row["bookies"]} == {"bk1test"}


def test_the_old_command_says_the_new_line(disks: Path, tmp_path: Path, cli: Cli) -> None:
    (disks / "a host/data").mkdir(parents=True)
    (disks / "bk2").rename(disks / "a host/data/bk2")
    answer = cli("--store", tmp_path / "s", "store", "import", "standalone", disks).ends(5)
    line = next(line for line in answer.stderr.splitlines() if "store import cluster" in line).partition(
        "pulsar-admin "
    )[2]
    words = ["--store", str(tmp_path / "s"), *shlex.split(line)[2:]]
    assert cli(*words, "-q").exit_code == 0
    assert {name for name, _ in content(tmp_path / "s")["logs"]} == set(IDS)


@pytest.mark.parametrize("order", [("data", "logs"), ("logs", "data")])
def test_logs_of_zookeeper_in_a_directory_of_their_own(
    order: tuple[str, str], whole: Any, tmp_path: Path, cli: Cli
) -> None:
    """``dataDir`` and ``dataLogDir``; without the logs the tree is what the first snapshot has."""
    for file in (world("cluster") / "mutated" / "zookeeper" / "version-2").iterdir():
        folder = tmp_path / ("logs" if file.name.startswith("log.") else "data") / "version-2"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder)
    path, place = tmp_path / "s", ",".join(str(tmp_path / name) for name in order)
    assert cli("--store", path, "store", "import", "cluster", "--zookeeper", place).exit_code == 0
    assert content(path)["tree"] == whole("mutated")["tree"]
    assert cli("--store", path, "store", "refresh", "-o", "json").json["nodesUpdated"] == 0
    source = read_store_info(path).sources[0]
    assert [source["path"], source["logs"]] == [f"{tmp_path}/{name}/version-2" for name in ("data", "logs")]
    newest = max(zxid for zxid, _ in transactions_of(tmp_path / "logs" / "version-2"))
    for exported, code in ((newest, 0), (newest + 1, 3)):
        with open_store(path, writable=True) as store:
            store.write(partial(put_exported_zxid, zxid=exported))
        assert cli("--store", path, "store", "refresh").exit_code == code


# -- a running ensemble -----------------------------------------------------------------------------------------------


# -- disks elsewhere --------------------------------------------------------------------------------------------------


def test_disks_in_archives(whole: Any, disks: Path, tmp_path: Path, cli: Cli) -> None:
    """Each of a whole bookie, with its databases; a second run fetches nothing but the small files again."""
    words: list[object] = []
    packings: list[tuple[str, Any]] = [("tar", {}), ("tar.xz", {"preset": 0}), ("tar", {})]  # Any: options of tarfile
    for number, (suffix, packing) in enumerate(packings, 1):
        archive = tmp_path / f"bk{number}.{suffix}"
        with tarfile.open(archive, f"w{suffix[3:].replace('.', ':')}", dereference=True, **packing) as tar:
            tar.add(disks / f"bk{number}", f"./bk{number}")
        words += ["--bookie", f"{IDS[number - 1]}={archive}"]
    path, kept = tmp_path / "s", tmp_path / "kept"
    words += ["--fetch-to", kept]
    assert cli("--store", path, "store", "import", "cluster", "--zookeeper", disks / "zk", *words).exit_code == 0
    assert content(path) == whole("clean")
    assert not [file for file in kept.rglob("*") if file.suffix in (".sst", ".unfinished")]
    before = {file: file.stat().st_ino for file in kept.rglob("*.log")}
    assert len(before) == 5
    assert cli("--store", tmp_path / "again", "store", "import", "cluster", *words).exit_code == 0
    assert {file: file.stat().st_ino for file in kept.rglob("*.log")} == before


@pytest.mark.parametrize("fetches", [True, False])
def test_disks_at_urls(
    fetches: bool, whole: Any, disks: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, words = tmp_path / "s", ["--fetch-to", tmp_path / "kept"] if fetches else []
    places = [
        ",".join(f"file://{disks}/bk{number}/{name}" for name in ("ledgers0", "journal0")) for number in (1, 2, 3)
    ]
    for place in places[:2]:
        words += ["--bookie", place]
    assert cli("--store", path, "store", "import", "cluster", *words).exit_code == 0
    assert cli("--store", path, "store", "add", "bookie", places[2], *words[: 2 * fetches]).exit_code == 0
    assert cli("--store", path, "store", "add", "zookeeper", disks / "zk").exit_code == 0
    assert content(path) == whole("clean")
    assert cli("--store", path, "store", "check", "--deep").exit_code == 0
    here = tmp_path / "here"
    words = [word for number in (1, 2, 3) for word in ("--bookie", bookie(disks, number))]
    assert cli("--store", here, "store", "import", "cluster", "--zookeeper", disks / "zk", *words).exit_code == 0
    usages = [cli("--store", one, "store", "usage", "-o", "json") for one in (path, here)]
    assert usages[0].json == usages[1].json != []
    # What a start deletes is in a bookie's databases, which are not fetched.
    cli("--store", path, "store", "preflight").ends(3, f"was not fetched from file://{disks}/bk")
    if not fetches:
        (log,) = [*path.glob("remote/*bk1-ledgers0*/*/0.log")]
        read = cli("--store", path, "bookkeeper", "readlog", log)
        assert (read.exit_code, f"/0.log are at file://{disks}/bk1/ledgers0/0.log" in read.stderr) == (3, True)
        asked: list[str] = []

        def gone(url: str) -> tuple[int, float]:
            asked.append(url)
            raise SourceNotFound(url)

        monkeypatch.setattr("pulsar_admin.store.db.entry_files.file_info", gone)
        assert cli("--store", path, "topics", "read", "public/default/plain").exit_code != 0
        assert len(asked) == len({*asked}) > 1  # not again for every entry: a server that is gone answers after seconds

        def refused(url: str) -> tuple[int, float]:
            raise MissingComponent(f"{url} cannot be opened without credentials", hint="set the key")

        monkeypatch.setattr("pulsar_admin.store.db.entry_files.file_info", refused)
        read = cli("--store", path, "topics", "read", "public/default/plain")
        assert "; set the key)" in read.stderr  # and nothing of an object to restore
        found = cli("--store", path, "doctor", "--code", "cursor-unreadable", "-o", "json").json
        assert [shlex.split(row["mend"])[-2:] for row in found] == [["store", "refresh"]]  # no reset


def test_disks_that_cannot_be_fetched(disks: Path, tmp_path: Path, cli: Cli) -> None:
    archive = tmp_path / "bk1.tar"
    with tarfile.open(archive, "w", dereference=True) as tar:
        tar.add(disks / "bk1", "bk1")
    cut, other, kept = tmp_path / "cut.tar", tmp_path / "other.tar", ("--fetch-to", tmp_path / "kept")
    cut.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    other.write_bytes(b"no archive")
    command = ("--store", tmp_path / "s", "store", "import", "cluster", "--bookie")
    for words, text in (
        ((archive,), "is not a directory of this machine.*--fetch-to"),
        ((cut, *kept), "cut.tar cannot be unpacked"),
        ((other, *kept), "other.tar cannot be unpacked"),
        ((f"file://{tmp_path}/none", *kept), "none does not exist"),
        ((f"file://{disks}/bk1", *kept), "holds no file of a bookie"),
        ((archive, *kept, "--dry-run"), "a dry run downloads nothing"),
    ):
        answer = cli(*command, *words)
        assert answer.exit_code in (2, 5, 6)
        assert re.search(text, answer.stderr, re.DOTALL), answer.stderr
        assert not (tmp_path / "s").exists()


def _header(size_bytes: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    header = tarfile.TarInfo("bk1/current/1.log")
    header.size, header.type = size_bytes, kind
    return header.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    ("rest", "exit_code", "said"),
    [
        (b"", 6, "empty header"),
        (_header(0)[:300], 6, "truncated header"),
        (b"?" + _header(0)[1:], 6, "bad checksum"),
        (_header(-512), 6, "1.log has -512 bytes"),
        (_header(1 << 80, tarfile.XHDTYPE), 6, f"a header of {1 << 80} bytes"),
        (_header(5, tarfile.GNUTYPE_LONGNAME).ljust(1024, b"x") * 1000, 6, "recursion"),
        (_header(1 << 60), 8, "1,152,921,504,606,846,976 bytes in .*--fetch-to"),
    ],
)
def test_an_archive_with_a_wrong_header_is_not_taken_for_a_shorter_one(
    rest: bytes, exit_code: int, said: str, tmp_path: Path, cli: Cli
) -> None:
    archive = tmp_path / "bk1.tar"
    archive.write_bytes(_header(1024) + b"BKLO\0\0\0\1".ljust(1024, b"\0") + rest)
    words = ("--bookie", f"bk1={archive}", "--fetch-to", tmp_path / "kept")
    answer = cli("--store", tmp_path / "s", "store", "import", "cluster", *words)
    assert answer.exit_code == exit_code
    assert re.search(said, answer.stderr, re.DOTALL)
    assert not (tmp_path / "s").exists()


def test_of_a_bookie_in_doubt_nothing_is_said_to_be_missing(disks: Path, tmp_path: Path, cli: Cli) -> None:
    path, doubtful = tmp_path / "s", _with_cookie(disks, 2, "/pulsar-c4/data/bookkeeper1", "/elsewhere")
    words = [word for number in (1, 3) for word in ("--bookie", bookie(disks, number))]
    words += ["--zookeeper", disks / "zk", "--bookie", doubtful]
    assert cli("--store", path, "store", "import", "cluster", *words).exit_code == 1
    rows = json.loads(cli("--store", path, "ledgers", "underreplicated", "-o", "json").stdout)
    assert {row["short"] for row in rows} == {0}
    assert {(found["bookie"], found["imported"], found["missing"]) for row in rows for found in row["bookies"]} == {
        ("bk1test", False, 0)
    }
    assert "copies-missing" not in cli("--store", path, "store", "check").stdout


@pytest.mark.parametrize("case", ["other instance", "one id twice", "unknown version", "no logs"])
def test_what_cannot_be_added_leaves_the_store_as_it_is(case: str, disks: Path, tmp_path: Path, cli: Cli) -> None:
    path, parts = tmp_path / "s", ("--zookeeper", disks / "zk", "--bookie", bookie(disks, 3))
    assert cli("--store", path, "store", "import", "cluster", *parts).exit_code == 0
    words = [word for word in damaged(case, disks) if word != "--bookie"]
    before = content(path), digest_of(path / "store.json")
    answer = cli("--store", path, "store", "add", "bookie", *words)
    assert answer.exit_code in (3, 5, 7)
    assert (content(path), digest_of(path / "store.json")) == before


def test_an_index_that_is_a_prefix_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pulsar_admin.store.transfer import fetching

    listed = [
        ListedObject("other", "o", None, 0),
        ListedObject("locations", "l", None, 0),
        ListedObject("0.log", "0", 0, 0),
    ]
    monkeypatch.setattr(fetching, "list_prefix", lambda url: listed)
    assert [(one.name, one.size_bytes) for one in fetching._objects("s3://x")] == [("locations", 0)]
    with tarfile.open(tmp_path / "a.tar", "w") as tar:  # a write-ahead log of RocksDB is no entry log
        for name in ("current/ledgers/000007.log", "current/0.log"):
            member = tarfile.TarInfo(name)
            member.size = 1
            tar.addfile(member, BytesIO(b"x"))
    assert [(one.folder, one.name) for one in fetching._members(tmp_path / "a.tar")] == [("current", "0.log")]
