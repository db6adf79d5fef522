"""Whose directory is whose, and in which order the files of a bookie were written."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec.bookie import Cookie, LogMark, encode_cookie, encode_last_mark
from pulsar_admin.store.codec.entrylog import CURRENT_VERSION, EntryLogHeader, encode_header
from pulsar_admin.store.codec.journal import LATEST_VERSION
from pulsar_admin.store.codec.journal import encode_header as encode_journal_header
from pulsar_admin.store.codec.ledgermetadata import INSTANCE_ID
from pulsar_admin.store.db.bookies import Bookie, decode_bookie, encode_bookie
from pulsar_admin.store.db.files import METADATA_FILE_ID, WHOLE_METADATA, Damage, put_damage
from pulsar_admin.store.errors import InvalidValue, Refused, SourceNotFound
from pulsar_admin.store.facts import Unknown
from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.sources.bookieconf import read_bookie_conf
from pulsar_admin.store.sources.bookies import find_strangers, group_directories
from pulsar_admin.store.sources.given_bookies import GivenBookie, find_bookie, parse_bookie
from pulsar_admin.store.sources.journals import without_journal
from pulsar_admin.store.sources.layout import read_standalone_layout
from pulsar_admin.store.sources.nodes import MetadataDirectory
from pulsar_admin.store.sources.roots import Wanted
from pulsar_admin.store.sources.storage import storages_of
from tests.stores import copied, lose_nodes, put_node, read_rows, read_store, write_rows
from tests.worlds import CLUSTER, world

COOKIE = '4\nbookieHost: "{}"\njournalDir: "/j"\nledgerDirs: "2\\t/l0\\t/l1"\n'


def _directory(path: Path, bookie_id: str, *names: str) -> Path:
    path.mkdir(parents=True)
    (path / "VERSION").write_text(COOKIE.format(bookie_id))
    for name in names:
        (path / name).write_bytes(b"x")
    return path


def test_directories_of_one_bookie_are_grouped_by_its_cookie(tmp_path: Path) -> None:
    paths = [_directory(tmp_path / name, bookie) for name, bookie in (("a", "bk1"), ("b", "bk2"), ("c", "bk1"))]
    assert [(one.bookie_id, one.directories) for one in group_directories(paths)] == [
        ("bk1", (paths[0], paths[2])),
        ("bk2", (paths[1],)),
    ]


def test_a_bookie_that_ensembles_name_is_not_foreign(tmp_path: Path, damages_stores: None) -> None:
    """Whatever node comes before their ledgers: one of no ledger, one that cannot be decoded."""
    store = copied(CLUSTER, "clean", tmp_path)
    lose_nodes(store, "/ledgers/cookies/bk1test")
    for path in ("/ledgers/-", "/ledgers/00/0000/L0000"):
        put_node(store, path, b"\xff")
    bookies = group_directories(world(CLUSTER) / "clean" / f"bookkeeper{number}" / "current" for number in (0, 1))
    found = read_rows(store, lambda txn: find_strangers(txn, bookies))
    assert [(one.bookie.bookie_id, one.is_foreign) for one in found] == [("bk1test", False)]


def test_a_bookie_that_lost_metadata_may_have_named_is_not_foreign(tmp_path: Path, damages_stores: None) -> None:
    store = copied(CLUSTER, "clean", tmp_path)
    newer = _directory(tmp_path / "newer", "bk1test")
    (newer / "VERSION").write_text(f'{COOKIE.format("bk1test")}instanceId: "i"\n')
    bookies = group_directories([world(CLUSTER) / "clean" / "bookkeeper0" / "current", newer])
    lost = Damage(METADATA_FILE_ID, WHOLE_METADATA, 1, "log.1: this part and everything after it are lost", -1, -1)

    def are_foreign() -> list[bool]:
        return read_rows(store, lambda txn: [one.is_foreign for one in find_strangers(txn, bookies)])

    lose_nodes(store, "/ledgers/cookies/bk1test", "/ledgers/00/")
    put_node(store, INSTANCE_ID, b"i")
    assert are_foreign() == [False]
    lose_nodes(store, INSTANCE_ID)
    write_rows(
        store, lambda txn: txn.put("state", b"bookies", b'{"imported": [], "absent": [], "unknown": ["bk1test"]}')
    )
    assert are_foreign() == [True]
    assert read_store(store, lambda reader: ClusterFacts(reader).unknown_bookies) == ("bk1test",)
    write_rows(store, lambda txn: put_damage(txn, lost))
    assert are_foreign() == [False]
    assert isinstance(read_store(store, lambda reader: ClusterFacts(reader).unknown_bookies), Unknown)
    put_node(store, "/ledgers/cookies/bk2test", f'{COOKIE.format("bk2test")}instanceId: "j"\n'.encode())
    assert are_foreign() == [True]  # the instance id is lost, but not in this cookie


def test_rows_of_store_json(tmp_path: Path) -> None:
    bookie = Bookie("bk1", (tmp_path / "l0", tmp_path / "l1"), (tmp_path / "j",), ())
    assert decode_bookie(encode_bookie(bookie)) == bookie
    assert decode_bookie("/data/bookkeeper/current").directories == (Path("/data/bookkeeper/current"),)


DIRECTORIES = "ledgerDirectories = /l0, /l1,\njournalDirectories=/j0\n"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", {}),
        ("advertisedAddress = h \n", {"fallback_id": "h:3181"}),
        ("advertisedAddress=h\nbookiePort=1\nbookieId= b \n", {"fallback_id": "h:1", "bookie_id": "b"}),
        ("bookiePort=1\n", {}),
        ("journalDirectory=/other\nindexDirectories=/i\n", {"index_dirs": (Path("/i"),)}),
        ("metadataServiceUri=zk+hierarchical://h:2181/ledgers/\n", {"metadata_root": "/ledgers"}),
        ("metadataServiceUri=metadata-store:zk:h:1,g:1/a/b\nzkServers=h:1/p\n", {"metadata_root": "/a/b"}),
        ("metadataServiceUri=metadata-store:etcd://h:1\nzkServers=h:1/p/\n", {"metadata_root": "/p/ledgers"}),
        ("zkServers=h:1,g:1\n", {}),
        ("zkServers=h:1\nzkLedgersRootPath=/x/\n", {"metadata_root": "/x"}),
        ("zkServers=h:1/p\nzkLedgersRootPath=/x\n", {"metadata_root": "/p/x"}),
    ],
)
def test_what_a_configuration_says(more: str, said: dict[str, object], tmp_path: Path) -> None:
    conf = tmp_path / "bk.conf"
    conf.write_text(DIRECTORIES + more)
    usual = GivenBookie(str(conf), "", (), (Path("/l0"), Path("/l1")), (Path("/j0"),))
    assert read_bookie_conf(conf) == replace(usual, **said)
    moved = read_bookie_conf(conf, Path("/copy"))
    assert (moved.ledger_dirs, moved.journal_dirs) == ((Path("/copy/l0"), Path("/copy/l1")), (Path("/copy/j0"),))


def test_a_configuration_names_directories_of_both_kinds(tmp_path: Path) -> None:
    conf = tmp_path / "bk.conf"
    conf.write_text("ledgerDirectories=/l\njournalDirectory=/j\n")
    assert read_bookie_conf(conf).journal_dirs == (Path("/j"),)
    for text, missing in (
        ("journalDirectory=/j", "ledgerDirectories"),
        ("ledgerDirectories=/l", "journalDirectories or"),
    ):
        conf.write_text(text)
        with pytest.raises(InvalidValue, match=f"sets no {missing}"):
            read_bookie_conf(conf)


def test_what_a_bookie_is_given_as() -> None:
    for text, bookie_id, directories in (("a=/x,/y", "a", "/x /y"), ("/x", "", "/x"), ("/a=b,c", "", "/a=b c")):
        assert parse_bookie(text) == GivenBookie(text, bookie_id, tuple(map(Path, directories.split())))
    for text in ("", ",", "a=", "a=,", "=/x", "=x"):
        with pytest.raises(InvalidValue, match="names no bookie"):
            parse_bookie(text)


def test_what_holds_neither_log_nor_journal_is_no_bookie(tmp_path: Path) -> None:
    for name, files in (("none", ()), ("log", ("0.log",)), ("journal", ("a.txn",)), ("both", ("0.log", "a.txn"))):
        given = GivenBookie(name, "", (_directory(tmp_path / name, "bk1", "other", *files),))
        with (
            nullcontext() if files else pytest.raises(SourceNotFound, match="no entry log and no journal of bookie bk1")
        ):
            assert find_bookie(given).bookie_id == "bk1"
    (tmp_path / "root" / "bookkeeper" / "current").mkdir(parents=True)
    (tmp_path / "root" / "metadata").symlink_to(world("small") / "clean" / "metadata")
    with pytest.raises(SourceNotFound, match="current holds no entry log and no journal"):
        read_standalone_layout(tmp_path / "root")


def test_the_tree_of_a_rocksdb_has_no_other_root() -> None:
    metadata = MetadataDirectory(world("small") / "clean" / "metadata")
    assert metadata.rooted(Wanted()) == metadata
    for wanted in (Wanted(chroot="/x"), Wanted(ledgers="/x")):
        with pytest.raises(Refused, match="is a RocksDB, whose tree is one cluster's"):
            metadata.rooted(wanted)


def test_directories_have_what_they_are_said_to_be_for(tmp_path: Path) -> None:
    log, journal = _directory(tmp_path / "l", "bk1", "0.log"), _directory(tmp_path / "j", "bk1", "a.txn")
    both = _directory(tmp_path / "b", "bk1", "1.log", "b.txn")
    for ledgers, journals, wrong in (
        ((log,), (journal,), ""),
        ((log, both), (both,), ""),
        ((log,), (both,), ""),
        ((log, journal), (both,), "ledger directory, but it holds 1 journal"),
        ((both,), (log,), "journal directory, but it holds 1 entry log"),
    ):
        given = GivenBookie("conf", "", (), ledgers, journals)
        if not wrong:
            assert find_bookie(given).ledger_dirs == ledgers
            continue
        with pytest.raises(InvalidValue, match=wrong):
            find_bookie(given)
    more = [_directory(tmp_path / name, "bk1", "2.log") for name in ("m", "n")]
    assert find_bookie(GivenBookie("x", "bk1", (log, more[0]))).bookie_id == "bk1"
    for given, wrong in (
        (GivenBookie("x", "bk2", (log,)), "said to be bookie bk2, but its cookie"),
        (GivenBookie("x", "bk1", (log, *more)), "3 ledger directories given for bookie bk1"),
        (GivenBookie("x", "", (log, _directory(tmp_path / "o", "bk2", "3.log"))), "belong to different bookies"),
    ):
        with pytest.raises(Refused, match=wrong):
            find_bookie(given)
    (log / "VERSION").unlink()
    with pytest.raises(InvalidValue, match="no directory has a cookie"):
        find_bookie(GivenBookie("conf", "", (), (log,)))
    assert find_bookie(GivenBookie("conf", "", (), (log,), fallback_id="h:1")).bookie_id == "h:1"
    assert find_bookie(GivenBookie("conf", "own", (), (log,), fallback_id="h:1")).bookie_id == "own"


# -- directories in which only a cookie is left -------------------------------------------------------------------------

_HELD = {
    "ledgers": ("0.log", encode_header(EntryLogHeader(CURRENT_VERSION, 0, 0))),
    "index": ("locations/CURRENT", b"MANIFEST-000005"),
    "journal": ("17f3a.txn", encode_journal_header(LATEST_VERSION)),
}


@pytest.mark.parametrize(
    "names",
    [
        ("ledgers0", "ledgers1", "index0", "index1", "journal"),  # copied under their own names
        ("ledgers0", "ledgers1", "index0", "disk-b", "journal"),  # one renamed: by what the cookie names more of
    ],
)
@pytest.mark.parametrize("emptied", [(), (3,), (4,), (2, 3), (1, 3, 4)])
def test_a_directory_that_lost_its_files_is_what_its_cookie_says(
    names: tuple[str, ...], emptied: tuple[int, ...], tmp_path: Path
) -> None:
    cookie = Cookie(5, "b:3181", ("/bk/journal",), ("/bk/ledgers0", "/bk/ledgers1"), "i", ("/bk/index0", "/bk/index1"))
    kinds = ("ledgers", "ledgers", "index", "index", "journal")
    paths = [tmp_path / name / "current" for name in names]
    for number, (path, kind) in enumerate(zip(paths, kinds, strict=True)):
        path.mkdir(parents=True)
        (path / "VERSION").write_bytes(encode_cookie(cookie))
        if number not in emptied:
            name, held = _HELD[kind]
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_bytes(held)
    given = parse_bookie(",".join(str(path.parent) for path in paths))
    found = find_bookie(given)
    assert (found.ledger_dirs, found.index_dirs, found.journal_dirs) == (
        tuple(paths[:2]),
        tuple(paths[2:4]),
        tuple(paths[4:]),
    )
    # An index in the ledger directories is one that this bookie never opens.
    with pytest.raises(InvalidValue, match="0 index directories given, its cookie names 2"):
        storages_of(replace(found, index_dirs=()))


def test_directories_of_which_nothing_tells_what_they_were_for_are_refused(tmp_path: Path) -> None:
    cookie = Cookie(5, "b:3181", ("/bk/journal",), ("/bk/ledgers",), "i", ("/bk/index",))
    for name in ("ledgers", "one", "two"):
        path = tmp_path / name / "current"
        path.mkdir(parents=True)
        (path / "VERSION").write_bytes(encode_cookie(cookie))
    (tmp_path / "ledgers" / "current" / "0.log").write_bytes(_HELD["ledgers"][1])
    with pytest.raises(Refused) as raised:
        find_bookie(parse_bookie(",".join(str(tmp_path / name) for name in ("ledgers", "one", "two"))))
    assert "ledger directories given for bookie b:3181" in raised.value.message
    assert "--bookie-conf FILE" in raised.value.hint


@pytest.mark.parametrize("index_dirs", [("/bk/ledgers",), None])
def test_one_directory_too_many_is_no_index_directory_of_a_bookie_that_has_none_apart(
    index_dirs: tuple[str, ...] | None, tmp_path: Path
) -> None:
    cookie = Cookie(5, "b:3181", ("/bk/journal",), ("/bk/ledgers",), "i", index_dirs)
    for name, kind in (("ledgers", "ledgers"), ("journal", "journal"), ("old", "")):
        path = tmp_path / name / "current"
        path.mkdir(parents=True)
        (path / "VERSION").write_bytes(encode_cookie(cookie))
        if kind:
            (path / _HELD[kind][0]).write_bytes(_HELD[kind][1])
    (storage,) = storages_of(find_bookie(parse_bookie(f"{tmp_path / 'ledgers'},{tmp_path / 'journal'}")))
    assert storage.index == storage.logs
    with pytest.raises(Refused, match="2 ledger directories given for bookie b:3181"):
        find_bookie(parse_bookie(",".join(str(tmp_path / name) for name in ("ledgers", "journal", "old"))))


def test_a_directory_that_is_deleted_while_a_bookie_is_looked_for_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    listed = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("gone"):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(SourceNotFound, match="is not a bookie's directory"):
        find_bookie(parse_bookie(str(tmp_path)))


def test_ledgers_of_a_bookie_begin_at_0(monkeypatch: pytest.MonkeyPatch) -> None:
    from pulsar_admin.store.sources import index_places

    keys = [number.to_bytes(8, "big", signed=True) for number in (0, -1, 5)]
    rows = [(key, b"") for key in (*keys, b"short", keys[2] + b"longer")]
    monkeypatch.setattr(index_places, "open_for_reading", lambda *_, **__: nullcontext(rows))
    assert index_places.read_ledger_ids(Path(), []).tolist() == [0, 5, 5]


def test_a_journal_that_is_not_here_or_is_lost(tmp_path: Path) -> None:
    """With a log but no journal it is not here; a mark that was put aside, and empty directories, say that it is lost."""
    bookie = Bookie("b:1", (tmp_path / "ledgers",), (tmp_path / "journal",))
    for directory in bookie.directories:
        directory.mkdir()
    assert without_journal([bookie]) == {}
    (tmp_path / "ledgers" / "0.log").write_bytes(b"x")
    assert without_journal([bookie]) == {"b:1": False}
    (tmp_path / "journal" / "1f.txn").touch()
    assert without_journal([bookie]) == {}
    (tmp_path / "ledgers" / "lastMark").write_bytes(encode_last_mark(LogMark(0x20, 512)))
    assert without_journal([bookie]) == {"b:1": False}
    (tmp_path / "ledgers" / "lastMark").rename(tmp_path / "ledgers" / "lastMark-before-salvage")
    (tmp_path / "journal" / "1f.txn").unlink()
    assert without_journal([bookie]) == {}
