"""What bookies would delete, against a count over their RocksDB and entry logs that shares no code with the forecast."""

import os
import shutil
import struct
import tempfile
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pytest
import rocksdict
from msgspec.structs import replace
from pyroaring import BitMap64

from pulsar_admin.store.codec.bookie import Cookie, encode_cookie
from pulsar_admin.store.codec.dbledger import LedgerData, encode_ledgers_row
from pulsar_admin.store.codec.entrylog import EntryLogHeader, encode_header, encode_ledgers_map
from pulsar_admin.store.codec.journal import encode_header as encode_journal_header
from pulsar_admin.store.codec.ledgermetadata import ledger_id_of_path, ledger_path
from pulsar_admin.store.db.bookies import Bookie
from pulsar_admin.store.disks.trust import find_doubts
from pulsar_admin.store.errors import Unsupported
from pulsar_admin.store.facts.starts import Registered, Start, StartFact, find_layout_fact, iter_bookie_facts, refusal
from pulsar_admin.store.recovery.metadata_index import read_known
from pulsar_admin.store.recovery.preflight import LedgerShare, LogShare, read_preflight
from pulsar_admin.store.rules.judging import fault_of
from pulsar_admin.store.rules.starts import refusal_text
from pulsar_admin.store.sources.journals import iter_replayed_ledgers, read_replayed_entries
from pulsar_admin.store.sources.rocksdb import create_database
from tests.conftest import Cli
from tests.cures.curing import put_values
from tests.growing import record
from tests.stores import lived_bookie
from tests.worlds import CLUSTER, scratch_copy, world
from tests.zookeeper_files import read_zookeeper_nodes

BOOKIES = tuple(f"bookkeeper{number}" for number in range(3))


def rows_of(directory: Path, scratch: Path) -> dict[bytes, bytes]:
    """The rows of a RocksDB, by rocksdict itself on a copy."""
    copy = scratch / "-".join(directory.parts[-4:])
    shutil.copytree(directory, copy, dirs_exist_ok=True)
    database = rocksdict.Rdict(
        str(copy), rocksdict.Options(raw_mode=True), access_type=rocksdict.AccessType.read_only()
    )
    rows = dict(database.items())
    database.close()
    return rows


def listed(zookeeper: Path) -> set[int]:
    nodes = read_zookeeper_nodes(zookeeper, [])
    return {ledger_id for node in nodes if (ledger_id := ledger_id_of_path(node.path)) is not None}


def record_sizes(log: Path) -> dict[int, int]:
    """Ledger → bytes of its records: a walk over the log as ``DefaultEntryLogger.scanEntryLog`` does it."""
    data, found, pos = log.read_bytes(), dict[int, int](), 1024
    while pos + 12 <= len(data):
        size, ledger_id = struct.unpack_from(">iq", data, pos)
        if size <= 0:
            pos += 1
            continue
        if ledger_id >= 0:
            found[ledger_id] = found.get(ledger_id, 0) + 4 + size
        pos += 4 + size
    return found


def replayed_entries(current: Path) -> set[tuple[int, int]]:
    """What ``BookieImpl.readJournal`` puts into the bookie again: ledger and entry of each record behind ``lastMark``."""
    journal_id, offset = struct.unpack(">qq", (current / "lastMark").read_bytes())
    found = set[tuple[int, int]]()
    for journal in sorted(current.glob("*.txn")):
        data, number = journal.read_bytes(), int(journal.stem, 16)
        pos = max(offset, 512) if number == journal_id else 512
        while number >= journal_id and pos + 4 <= len(data) and (size := struct.unpack_from(">i", data, pos)[0]):
            if size == -256:
                pos += 8 + struct.unpack_from(">i", data, pos + 4)[0]
                continue
            found.add(struct.unpack_from(">qq", data, pos + 4))
            pos += 4 + size
    return found


def replayed(current: Path) -> set[int]:
    """Ledgers whose master key (entry −4096) comes into the index again."""
    return {ledger_id for ledger_id, entry_id in replayed_entries(current) if entry_id == -4096}


def preflight(cli: Cli, root: Path, *words: object) -> dict:  # type: ignore[type-arg]
    bookies = [word for name in BOOKIES for word in ("--bookie", root / name)]
    result = cli.done("store", "preflight", *bookies, *words, "-o", "json")
    return result.json  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("metadata", "disks"), [("clean", "clean"), ("clean", "crashed"), ("crashed", "crashed"), (None, "mutated")]
)
def test_as_counted(cli: Cli, tmp_path: Path, metadata: str | None, disks: str) -> None:
    root = world("cluster") / disks
    zookeeper = None if metadata is None else world("cluster") / metadata / "zookeeper"
    alive = set() if zookeeper is None else listed(zookeeper / "version-2")
    words = ["--no-metadata"] if zookeeper is None else ["--zookeeper", zookeeper]
    found = preflight(cli, root, *words)
    assert found["metadata"] == ("an empty metadata store" if zookeeper is None else str(zookeeper / "version-2"))
    every = set[int]()
    for name, row in zip(BOOKIES, found["bookies"], strict=True):
        current = root / name / "current"
        held = {struct.unpack(">q", key[:8])[0] for key in rows_of(current / "ledgers", tmp_path)}
        held = {ledger_id for ledger_id in held if ledger_id >= 0} | replayed(current)
        lost = held - alive
        every |= lost
        entries = sum(struct.unpack(">q", key[:8])[0] in lost for key in rows_of(current / "locations", tmp_path))
        logs = {log: record_sizes(log) for log in sorted(current.glob("*.log")) if log.stat().st_size}
        size = sum(sizes.get(ledger_id, 0) for sizes in logs.values() for ledger_id in lost)
        assert row["holds"]["ledgers"] == len(held)
        assert row["loses"] == {"ledgers": len(lost), "entries": entries, "bytes": size}
        dead = [log for log, sizes in logs.items() if not sizes.keys() & (held - lost)]
        assert row["logsAtOnce"] == {"logs": len(dead), "bytes": sum(log.stat().st_size for log in dead)}
    assert every
    assert found["loses"]["ledgers"] == len(every)
    reasons = {reason for row in found["bookies"] for reason in row["reasons"]}
    assert reasons <= {None: {"empty"}, "clean": {"unlisted", "newer"}, "crashed": {"unlisted"}}[metadata]
    assert ("newer" in reasons) == (metadata == "clean" and disks == "crashed")


def test_max_loss(cli: Cli) -> None:
    root = world("cluster") / "clean"
    words = ("store", "preflight", "--bookie", root / "bookkeeper0", "-o", "json")
    result = cli(*words, "--no-metadata", "--max-loss", "99.9%").ends(3)
    assert result.json["percent"] == 100.0
    assert "bk0test would lose 100.0 % of its bytes" in result.stderr
    assert cli(*words, "--no-metadata", "--max-loss", "100").exit_code == 0
    assert cli(*words, "--zookeeper", root / "zookeeper", "--max-loss", "50").exit_code == 0
    assert cli(*words, "--no-metadata", "--max-loss", "101").exit_code == 2


def test_what_is_in_a_log_that_cannot_be_read_is_not_lost(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        root = scratch_copy("cluster", "crashed", Path(folder))
        current = root / "bookkeeper0" / "current"
        zookeeper = scratch_copy("cluster", "clean", Path(folder, "before")) / "zookeeper"
        assert preflight(cli, root, "--zookeeper", zookeeper)["bookies"][0]["problems"] == []  # and all is imported
        for file in (current / "0.log", *current.glob("*.txn")):
            file.chmod(0)
        (current / "lastMark").write_bytes(b"x")
        try:
            if not user:
                os.seteuid(65534)  # root may read everything
            row = preflight(cli, root, "--zookeeper", zookeeper)["bookies"][0]
        finally:
            os.seteuid(user)
    assert row["percent"] == pytest.approx(100 * row["loses"]["ledgers"] / row["holds"]["ledgers"])
    assert {text.count(str(current)) for text in row["problems"] if "cannot be read: " in text} == {1}
    assert row["refuses"].endswith(" @ 0x0: Permission denied, at which a start fails")


def test_a_bookie_that_has_no_index_loses_its_logs(cli: Cli, tmp_path: Path) -> None:
    root = scratch_copy("cluster", "clean", tmp_path)
    for name in ("ledgers", "locations"):
        shutil.rmtree(root / "bookkeeper1" / "current" / name)
    rows = {row["bookie"]: row for row in preflight(cli, root, "--zookeeper", root / "zookeeper")["bookies"]}
    logs = [log for log in (root / "bookkeeper1" / "current").glob("*.log") if log.stat().st_size]
    sizes = [row for log in logs for row in record_sizes(log).items()]
    loses = {"ledgers": len(dict(sizes)), "entries": None, "bytes": sum(size for _, size in sizes)}
    assert rows["bk1test"]["loses"] == loses
    assert "and no index beside them" in rows["bk1test"]["problems"][0]
    assert rows["bk1test"]["percent"] == 100.0
    assert rows["bk1test"]["logsAtOnce"]["logs"] == len(logs)
    assert rows["bk1test"]["reasons"].keys() == {"noIndex"}
    assert rows["bk0test"]["reasons"].keys() == {"unlisted"}


def test_an_index_that_lost_its_rows(cli: Cli, tmp_path: Path) -> None:
    """All rows are in RocksDB's write-ahead log: without it the index is there and empty, and the logs go whatever the metadata lists."""
    root = scratch_copy("cluster", "clean", tmp_path)
    current = root / "bookkeeper1" / "current"
    (log,) = (current / "ledgers").glob("*.log")
    log.unlink()
    row = preflight(cli, root, "--zookeeper", root / "zookeeper")["bookies"][1]
    alive = listed(root / "zookeeper" / "version-2")
    there = {ledger_id for log in current.glob("*.log") if log.stat().st_size for ledger_id in record_sizes(log)}
    assert row["reasons"].keys() == {"notIndexed"}
    assert row["loses"]["ledgers"] == len(there & alive)
    assert row["percent"] == 100.0


_META = "org.apache.bookkeeper.meta"


@pytest.mark.parametrize(
    ("layout", "starts", "listed"),
    [
        (f"2\n{_META}.HierarchicalLedgerManagerFactory:1", True, [1, 2, 2**31]),
        ("1\nhierarchical:1\n", True, [1, 2, 2**31]),
        (f"2\n{_META}.LegacyHierarchicalLedgerManagerFactory:1", True, [1, 2]),
        (f"2\n{_META}.LongHierarchicalLedgerManagerFactory:1", True, [2**31]),
        (f"2\n{_META}.FlatLedgerManagerFactory:1", True, [3]),
        ("1\nflat:1", True, [3]),
        (f"2\n{_META}.HierarchicalLedgerManagerFactory:1\nmore", True, [1, 2, 2**31]),
        (f"2\n{_META}.HierarchicalLedgerManagerFactory:1 ", False, []),
        (f"2\n{_META}.HierarchicalLedgerManagerFactory:2", False, []),
        (f"2\n{_META}.HierarchicalLedgerManagerFaktory:1", False, []),
        (f"1\n{_META}.HierarchicalLedgerManagerFactory:1", False, []),
        ("2\nhierarchical:1", False, []),
        ("3\nhierarchical:1", False, []),
        ("\xff", False, []),
        ("", False, []),
    ],
)
def test_bookies_start_and_list_ledgers_by_the_layout(layout: str, starts: bool, listed: list[int]) -> None:
    """As ``AbstractZkLedgerManagerFactory.newLedgerManagerFactory`` and each class's own paths say."""
    paths = [*map(ledger_path, (1, 2, 2**31)), "/ledgers/L0000000003"]
    known = read_known("zk", [*((path, b"") for path in paths), ("/ledgers/LAYOUT", layout.encode("latin-1"))])
    fact = find_layout_fact(known.layout)
    is_pulsars = starts and listed == [1, 2, 2**31]
    assert fact is None if is_pulsars else fact is not None
    if fact is not None:
        assert fault_of(fact).starts is starts
        with pytest.raises(Unsupported, match="LAYOUT"):
            known.check_layout()
    if starts and not is_pulsars:
        assert known.ledgers.tolist() == listed


@pytest.mark.parametrize(
    ("layout", "percent", "says"),
    [
        ("2\norg.example.Ledgers:1", 0, "bk0test does not start\n  /ledgers/LAYOUT says '2 org.example.Ledgers:1'"),
        (f"2\n{_META}.FlatLedgerManagerFactory:1", 100, "bk0test starts\n  /ledgers/LAYOUT says '2 org.apache"),
    ],
)
@pytest.mark.usefixtures("damages_stores")
def test_another_layout_is_told_and_nothing_is_deleted_by_it(
    layout: str, percent: float, says: str, cli: Cli, tmp_path: Path
) -> None:
    root, store = scratch_copy("cluster", "clean", tmp_path), tmp_path / "store"
    words = [word for name in BOOKIES for word in ("--bookie", root / name)]
    cli.done("--store", store, "store", "import", "cluster", "--zookeeper", root / "zookeeper", *words)
    put_values(store, {"/ledgers/LAYOUT": layout.encode()})
    told = cli("--store", store, "store", "preflight")
    assert (told.exit_code, says in told.stdout) == (0, True)
    answer = cli("--store", store, "store", "preflight", "-o", "json").json
    assert {row["faults"][0]["code"] for row in answer["bookies"]} == {"bookkeeper-layout-unknown"}
    assert answer["percent"] >= percent
    found = {row["code"]: row for row in cli("--store", store, "doctor", "-o", "jsonl").json_lines}
    assert found["bookkeeper-layout-unknown"]["severity"] == "critical"
    assert cli("--store", store, "store", "cat", "/ledgers/LAYOUT", "--raw").exit_code == 0
    cli("--store", store, "store", "reclaim", root / BOOKIES[0], "--dry-run", "--force").ends(7, "/ledgers/LAYOUT")


def test_a_bookie_that_never_ran(cli: Cli, tmp_path: Path) -> None:
    """An init container asks before the first start, too; where the metadata knows the bookie a disk is missing."""
    zookeeper = world("cluster") / "clean" / "zookeeper"
    for name in ("journal", "ledgers"):
        (tmp_path / name / "lost+found").mkdir(parents=True)
    directories = f"{tmp_path}/journal,{tmp_path}/ledgers"
    words = ("store", "preflight", "--zookeeper", zookeeper)
    for bookie in (directories, f"bk9={directories}"):
        result = cli.done(*words, "--bookie", bookie, "--max-loss", "0", "-o", "json")
        assert result.json["bookies"] == []
    conf = tmp_path / "bookkeeper.conf"
    conf.write_text(f"journalDirectory={tmp_path}/none\nledgerDirectories={tmp_path}/ledgers\nbookieId=bk1test\n")
    result = cli(*words, "--bookie-conf", conf).ends(5, "the metadata knows bookie bk1test")
    assert cli(*words, "--bookie", tmp_path / "typo").exit_code == 5


def test_an_empty_metadata_store_under_the_bookies_of_a_store(cli: Cli, tmp_path: Path) -> None:
    root, store = (world("cluster") / "clean").resolve(), tmp_path / "store"
    bookies = [word for name in BOOKIES for word in ("--bookie", root / name)]
    cli.done("--store", store, "store", "import", "cluster", "--zookeeper", root / "zookeeper", *bookies)
    result = cli.done("--store", store, "store", "preflight", "--no-metadata", "-o", "json")
    assert result.json == preflight(cli, root, "--no-metadata")
    given = cli("--store", store, "store", "preflight", "--bookie", root / BOOKIES[0])
    assert given.exit_code == 2
    assert "name the metadata of these bookies" in given.stderr


@pytest.mark.parametrize("state", ["clean", "crashed"])
def test_an_entry_log_that_the_index_names_and_that_is_not_there_is_named(cli: Cli, tmp_path: Path, state: str) -> None:
    """The bookie starts, deletes nothing, and does not serve what the log had, but for what a start reads of journals."""
    root = scratch_copy("cluster", state, tmp_path)
    current = next(path for path in (root / BOOKIES[0]).rglob("current") if [*path.glob("*.log")])
    log = max(current.glob("*.log"), key=lambda path: path.stat().st_size)
    led = {
        struct.unpack(">qq", key)
        for key, value in rows_of(current / "locations", tmp_path).items()
        if len(key) == 16 and len(value) == 8 and struct.unpack(">q", value)[0] >> 32 == int(log.stem, 16)
    }
    stay = listed(root / "zookeeper" / "version-2")
    lost = {(ledger_id, entry_id) for ledger_id, entry_id in led - replayed_entries(current) if ledger_id in stay}
    assert lost
    zookeeper = ("--zookeeper", root / "zookeeper")
    assert "does not exist" not in str(preflight(cli, root, *zookeeper))
    log.unlink()
    bookies = [word for name in BOOKIES for word in ("--bookie", root / name)]
    answer = cli("store", "preflight", *bookies, *zookeeper, "-o", "json")
    (text,) = [text for row in answer.json["bookies"] for text in row["problems"] if "does not exist" in text]
    ledgers = {ledger_id for ledger_id, _ in lost}
    assert text.startswith(
        f"{log} does not exist, but the index leads {len(lost):,} entries of {len(ledgers)} ledgers to it: "
    )
    assert "does not exist" in answer.stderr


@pytest.mark.parametrize("database", ["ledgers", "locations"])
def test_a_bookie_whose_index_does_not_open_is_told_with_the_others(cli: Cli, tmp_path: Path, database: str) -> None:
    cluster, store = scratch_copy("cluster", "crashed", tmp_path), tmp_path / "store"
    current = cluster / "bookkeeper0" / "current"
    (current / database / "CURRENT").write_bytes(b"")
    words = [word for name in BOOKIES for word in ("--bookie", cluster / name)]
    cli.done("--store", store, "store", "import", "cluster", "--zookeeper", cluster / "zookeeper", *words)
    assert cli("--store", store, "store", "preflight", "--list").exit_code == 0
    said = cli("--store", store, "store", "preflight").stdout
    assert f"bk0test does not start\n  {current / database} does not open" in said
    assert "bk1test starts" in said
    assert f"store salvage bk0test={current.parent}\n" in said


def test_what_brokers_delete_is_told_on_a_damaged_newest_snapshot(cli: Cli, tmp_path: Path) -> None:
    """Older files reach its transaction: the forecast is the same."""
    folder = tmp_path / "zk" / "version-2"
    shutil.copytree(world("cluster") / "crashed" / "zookeeper" / "version-2", folder)
    words = ("store", "preflight", "--zookeeper", folder.parent, "--brokers", "-o", "json")
    sound = cli.done(*words)
    newest = max(folder.glob("snapshot.*"), key=lambda file: int(file.suffix[1:], 16))
    raw = newest.read_bytes()
    newest.write_bytes(raw[: len(raw) // 2] + b"\xff" * 8 + raw[len(raw) // 2 + 8 :])
    damaged = cli(*words)
    assert (damaged.exit_code, damaged.json["brokers"]) == (0, sound.json["brokers"])


COOKIE = Cookie(4, "b:3181", ("/journal",), ("/ledgers",), "instance-1")
_OF_NONE = replace(COOKIE, instance_id=None)


@pytest.mark.parametrize(
    "where", ["pulsar_admin.store.sources.zookeeper.iter_lost_ends", "pulsar_admin.store.facts.starts._log_facts"]
)
@pytest.mark.parametrize("gone", ["oldest snapshot", "oldest log"])
def test_files_that_a_running_zookeeper_purges_meanwhile_are_not_missed(
    where: str, gone: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go after they were listed; the answer is that of the files that stay."""
    root, zookeeper = world("lived") / "clean", tmp_path / "zookeeper"
    shutil.copytree(root / "zookeeper", zookeeper)
    kind = "snapshot" if gone == "oldest snapshot" else "log"
    oldest = min((zookeeper / "version-2").glob(f"{kind}.*"), key=lambda file: int(file.suffix[1:], 16))
    look = resolve_name(where)

    def purge(*arguments: object) -> object:
        oldest.unlink(missing_ok=True)
        return look(*arguments)

    monkeypatch.setattr(where, purge)
    words = [word for folder in sorted(root.glob("bookie*")) for word in ("--bookie", lived_bookie(folder))]
    found = cli("store", "preflight", "--zookeeper", zookeeper, *words, "-o", "json")
    assert not oldest.exists()
    monkeypatch.undo()
    expected = cli("store", "preflight", "--zookeeper", zookeeper, *words, "-o", "json")
    assert (found.exit_code, found.stdout) == (expected.exit_code, expected.stdout)


def a_bookie(tmp_path: Path, *cookies: Cookie | None) -> Bookie:
    """A bookie whose journal and ledger directories have COOKIES, None for none."""
    paths = [tmp_path / name / "current" for name in ("ledgers", "journal")]
    for path, cookie in zip(paths, cookies, strict=True):
        path.mkdir(parents=True)
        if cookie is not None:
            (path / "VERSION").write_bytes(encode_cookie(cookie))
    return Bookie(COOKIE.bookie_id, (paths[0],), (paths[1],))


@pytest.mark.parametrize(
    ("cookies", "instance_id", "registered", "said"),
    [
        ((COOKIE, COOKIE), "instance-1", {"b:3181": COOKIE}, ""),
        ((COOKIE, COOKIE), "instance-1", {"b:3181": None}, ""),
        ((None, None), "instance-1", {"b:3181": COOKIE}, "have no readable cookie"),
        ((None, COOKIE), "instance-1", {"b:3181": COOKIE}, "no readable cookie (VERSION) in {root}/ledgers/current"),
        ((COOKIE, None), "instance-1", {"b:3181": COOKIE}, "no readable cookie (VERSION) in {root}/journal/current"),
        ((COOKIE, COOKIE), "instance-2", {"b:3181": COOKIE}, "is instance-1, of the metadata instance-2"),
        ((COOKIE, COOKIE), "", {"b:3181": COOKIE}, "is instance-1, of the metadata none"),
        ((_OF_NONE, _OF_NONE), "instance-1", {"b:3181": COOKIE}, "is none, of the metadata instance-1"),
        ((COOKIE, COOKIE), "instance-1", {"c:3181": COOKIE}, "the metadata has no cookie of b:3181"),
        ((COOKIE, COOKIE), "instance-1", {"b:3181": replace(COOKIE, ledger_dirs=("/other",))}, "is not the one that"),
        ((COOKIE, COOKIE), "instance-1", {"b:3181": replace(COOKIE, journal_dirs=("/other",))}, "is not the one that"),
        ((COOKIE, COOKIE), "instance-1", {"b:3181": replace(COOKIE, index_dirs=("/other",))}, "is not the one that"),
        ((COOKIE, COOKIE), "instance-1", {"b:3181": replace(COOKIE, index_dirs=COOKIE.ledger_dirs)}, ""),
    ],
)
def test_a_bookie_starts_with_the_cookie_that_is_registered_and_no_other(
    cookies: tuple[Cookie | None, Cookie | None],
    instance_id: str,
    registered: dict[str, Cookie | None],
    said: str,
    tmp_path: Path,
) -> None:
    bookie = a_bookie(tmp_path, *cookies)
    found = refusal(Registered(instance_id, registered), bookie)
    text = "" if found is None else refusal_text(StartFact(Start.COOKIE_REFUSED, tmp_path, bookie, found))
    assert bool(text) == bool(said)
    assert said.format(root=tmp_path) in text


def test_a_journal_that_cannot_be_read_hides_none_after_it(tmp_path: Path) -> None:
    bookie = a_bookie(tmp_path, None, None)
    (folder,) = bookie.journal_dirs
    (folder / "1.txn").write_bytes(b"BKLG" + struct.pack(">i", 99))
    key = struct.pack(">qqi", 7, -0x1000, 1) + b"k"
    (folder / "2.txn").write_bytes(encode_journal_header(6) + len(key).to_bytes(4, "big") + key + record((7, 5)))
    problems: list[str] = []
    assert [*iter_replayed_ledgers(bookie, problems)] == [7]
    assert read_replayed_entries(bookie, [7, 8], problems) == {7: BitMap64([5]), 8: BitMap64()}
    assert [text.split(" cannot be read")[0] for text in problems] == [str(folder / "1.txn")] * 2
    (folder / "3.txn").write_bytes(b"BKLG" + struct.pack(">i", 99))
    told = [one for one in iter_bookie_facts(bookie, None, thorough=True) if one.kind is Start.JOURNAL_UNKNOWN]
    assert [one.where.name for one in told] == ["1.txn", "3.txn"]


def test_a_cookie_that_cannot_be_read_is_none(tmp_path: Path, cli: Cli) -> None:
    """As ``Cookie.readFromDirectory``: the bookie does not start. An import says how it goes on."""
    bookie = a_bookie(tmp_path, COOKIE, COOKIE)
    (bookie.ledger_dirs[0] / "VERSION").write_bytes(b"")
    (fact,) = iter_bookie_facts(bookie, Registered("instance-1", {"b:3181": COOKIE}), thorough=False)
    assert (fact.kind, fact.where) == (Start.COOKIE_MISSING, bookie.ledger_dirs[0])
    # The cookie of another cluster is no cure, even though a directory has none.
    (fact,) = iter_bookie_facts(bookie, Registered("instance-2", {"b:3181": COOKIE}), thorough=False)
    assert fact.kind is Start.COOKIE_REFUSED
    words = ("--zookeeper", world(CLUSTER) / "clean" / "zookeeper", "--bookie", tmp_path / "ledgers")
    refused = cli("--store", tmp_path / "s", "-o", "json", "store", "import", "cluster", *words)
    assert (refused.exit_code, "ID=DIR,DIR" in refused.error["hint"]) == (6, True)


def write_log(path: Path, kept: int, dead: int) -> None:
    """An entry log with so many records, of 100 bytes each, of ledger 1, and of ledger 2."""
    body = b"".join(
        record((ledger_id, entry_id), 60) for ledger_id, count in ((1, kept), (2, dead)) for entry_id in range(count)
    )
    sizes = {ledger_id: 100 * count for ledger_id, count in ((1, kept), (2, dead)) if count}
    assert len(body) == sum(sizes.values())
    path.write_bytes(encode_header(EntryLogHeader(1, 1024 + len(body), len(sizes))) + body + encode_ledgers_map(sizes))


def test_whether_metadata_is_believed(tmp_path: Path) -> None:
    """Before a bookie's unlisted ledgers are deleted; a cookie that is missing counts where there are none, too."""
    bookie, bare = a_bookie(tmp_path, COOKIE, COOKIE), read_known("zk", [(ledger_path(1), b"")], 3)
    known = replace(bare, cookies={COOKIE.bookie_id: COOKIE})
    for metadata, unlisted, said in (
        (known, [], None),
        (known, [2], None),
        (bare, [], "zk has no cookie of bookie b:3181: it may be a new one"),
        (replace(known, problems=("cut",)), [], "zk could not be read completely (cut)"),
        (known, [2, 3], "1 ledger of the bookie (3 to 3) is newer than the newest id that zk knows, 2"),
        (replace(known, next_id=None), [2, 3], "2 ledgers of the bookie (2 to 3) are newer than the newest id"),
        (replace(known, ledgers=np.zeros(0, np.int64)), [2], "zk lists no ledger at all, the bookie holds 1 ledger"),
    ):
        found = find_doubts(metadata, bookie, np.array(unlisted, np.int64))
        assert [said in doubt for doubt in found] == [True] * (said is not None), said


def test_which_collection_reaches_an_entry_log(tmp_path: Path) -> None:
    """Below 20 % in use minor compaction does, below 50 % major compaction (``bookkeeper.conf`` of Pulsar), with none left none."""
    bookie = a_bookie(tmp_path, COOKIE, COOKIE)
    (current,) = bookie.ledger_dirs
    for number, kept in enumerate((0, 1, 19, 20, 49, 50, 99, 100)):
        write_log(current / f"{number:x}.log", kept, 100 - kept)
    row = LedgerData(True, False, b"k" * 20)
    create_database(current / "ledgers", [encode_ledgers_row(ledger_id, row) for ledger_id in (1, 2)])
    known = read_known("zk", [(ledger_path(1), b"")], 3)
    (found,) = read_preflight(known, [bookie], None).bookies
    assert found.at_once == LogShare(1, (current / "0.log").stat().st_size)
    assert found.minor == LogShare(2, 9900 + 8100)
    assert found.major == LogShare(2, 8000 + 5100)
    assert found.kept == LogShare(2, 5000 + 100)
    assert found.holds == LedgerShare(2, 80_000)
    assert (found.loses.ledgers, found.loses.bytes) == (1, 46_200)


@pytest.mark.parametrize(
    ("nodes", "next_id", "instance_id", "reasons"),
    [
        ([], 3, "", {"empty": 2}),
        ([1], 3, "", {"unlisted": 1}),
        ([1], 2, "", {"newer": 1}),
        ([1], None, "", {"untold": 1}),
        ([1], 3, "instance-2", {"otherInstance": 1}),
        ([1], 3, "instance-1", {"unlisted": 1}),
        ([0], 2, "", {"newer": 1, "unlisted": 1}),
        ([7], 2, "", {"untold": 1, "unlisted": 1}),
        ([0, 7], 2, "", {"untold": 1, "unlisted": 1}),
        ([1, 2], 3, "", {}),
    ],
)
def test_why_ledgers_go(
    nodes: list[int], next_id: int | None, instance_id: str, reasons: dict[str, int], tmp_path: Path
) -> None:
    bookie = a_bookie(tmp_path, COOKIE, COOKIE)
    row = LedgerData(True, False, b"k" * 20)
    create_database(bookie.ledger_dirs[0] / "ledgers", [encode_ledgers_row(ledger_id, row) for ledger_id in (1, 2)])
    known = replace(read_known("zk", [(ledger_path(one), b"") for one in nodes], next_id), instance_id=instance_id)
    told = read_preflight(known, [bookie], None)
    (found,) = told.bookies
    assert {reason: share.ledgers for reason, share in found.reasons.items()} == reasons
    again = set() if next_id is None else {one for one in (*nodes, 1, 2) if one >= next_id}
    assert told.ids.twice == len(again)


def test_directories_for_the_index_alone_that_have_none_lost_it(tmp_path: Path) -> None:
    """As ``KeyValueStorageRocksDB``, which creates them empty; of ``InterleavedLedgerStorage`` there are files."""
    (tmp_path / "index").mkdir()
    bookie = replace(a_bookie(tmp_path, None, None), index_dirs=(tmp_path / "index",))
    (bookie.ledger_dirs[0] / "0.log").write_bytes(bytes(1024))
    kinds = [fact.kind for fact in iter_bookie_facts(bookie, None, thorough=False)]
    assert kinds == [Start.NO_LEDGERS, Start.NO_LOCATIONS]
    (tmp_path / "index" / "0").mkdir()
    assert [*iter_bookie_facts(bookie, None, thorough=False)] == []
