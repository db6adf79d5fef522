"""Does it start? Each fault on copies of recorded disks, told as a real BookKeeper 4.17.2 and ZooKeeper 3.9.4 met it, and mended.

What each start said is in docs/runbooks/bookie-does-not-start.md and zookeeper-does-not-start.md.
"""

import shlex
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import adler32

import pytest

from pulsar_admin.store.db.bookies import Bookie
from pulsar_admin.store.facts import starts as facts_of_starts
from pulsar_admin.store.facts.starts import Start, StartFact, _is_emptied, _log_facts, iter_server_facts
from pulsar_admin.store.rules.judging import StartFault, fault_of
from pulsar_admin.store.rules.starts import evidence_of
from pulsar_admin.store.sources.journals import Frame, find_stop, iter_replayed_ledgers, read_replayed_entries
from pulsar_admin.store.sources.zookeeper import ServerFiles
from pulsar_admin.store.transfer.imports import ImportOptions
from tests.altering import flip
from tests.conftest import Cli
from tests.history.files import unpack_zookeeper
from tests.recovery.test_recreated import go_on
from tests.stores import NOW_MS, import_standalone
from tests.worlds import CLUSTER, copy_tree, scratch_copy, world

Json = Any  # a JSON value


def faults_of(folder: Path, *, thorough: bool = True) -> list[StartFault]:
    """What the start of a ZooKeeper server meets in a folder, as preflight tells it."""
    return [fault_of(one) for one in iter_server_facts(ServerFiles(folder, folder), thorough=thorough)]


@pytest.mark.parametrize("kind", [Start.JOURNAL_DAMAGED, Start.JOURNAL_SKIPPED, Start.NO_JOURNAL])
def test_no_salvage_is_printed_for_a_bookie_with_idx_files(kind: Start, tmp_path: Path) -> None:
    bookie = Bookie("b", (tmp_path,), (tmp_path,))
    fact = StartFact(kind, tmp_path / "1.txn", bookie, {"offset": 1, "why": "zeros", "journal": 1, "given": False})
    (tmp_path / "0" / "0").mkdir(parents=True)
    (tmp_path / "0" / "0" / "1.idx").write_bytes(b"")
    evidence = evidence_of(fact)
    assert evidence.mend is not None  # the rule's own is a salvage
    assert "store salvage" not in f"{evidence.mend}{evidence.sentence}"


def starts(cli: Cli, store: Path) -> dict[str, tuple[bool, list[str]]]:
    """Bookie → whether preflight says that it starts, and the codes of what its start meets."""
    found = cli("--store", store, "-o", "json", "store", "preflight").json
    return {row["bookie"]: (row["starts"], [fault["code"] for fault in row["faults"]]) for row in found["bookies"]}


def check_sentences(cli: Cli, store: Path, *options: str) -> None:
    """Fail unless the doctor tells what preflight does, in the same words and with the same command."""
    rows = cli("--store", store, "-o", "json", "store", "preflight").json["bookies"]
    faults = {(fault["code"], fault["where"], fault["text"], fault["cure"]) for row in rows for fault in row["faults"]}
    found = cli("--store", store, "-o", "json", "doctor", *options).json
    assert faults
    assert faults <= {(row["code"], row["where"], row["message"], row["mend"]) for row in found}


@pytest.fixture
def disks(tmp_path: Path) -> tuple[Path, Path]:
    """Disks of three bookies, and a store that was imported of them."""
    source, store = scratch_copy(CLUSTER, "crashed", tmp_path), tmp_path / "store"
    import_standalone(source, store, ImportOptions(now_ms=NOW_MS), lambda _: None)
    return source, store


@pytest.mark.usefixtures("damages_stores")
def test_indexes_and_journals_of_bookies(cli: Cli, tmp_path: Path, disks: tuple[Path, Path]) -> None:
    source, store = disks
    currents = [source / f"bookkeeper{number}" / "current" for number in range(3)]
    assert starts(cli, store) == {f"bk{number}test": (True, []) for number in range(3)}
    whole = cli("--store", store, "store", "preflight").stdout
    assert "bk0test starts: no problem found\n" in whole
    assert "ZooKeeper starts: no problem found\n" in whole

    (currents[0] / "ledgers" / "CURRENT").write_bytes(b"")
    for journal in currents[1].glob("*.txn"):
        journal.unlink()
    shutil.rmtree(currents[2] / "locations")
    planted = {
        "bk0test": (False, ["bookie-index-unreadable"]),
        "bk1test": (False, ["bookie-journal-missing"]),
        "bk2test": (True, ["bookie-index-missing"]),
    }
    assert starts(cli, store) == planted
    check_sentences(cli, store)
    shown = cli("--store", store, "store", "preflight").stdout
    assert (
        f"bk0test does not start\n  {currents[0] / 'ledgers'} does not open: CURRENT file does not end with newline\n"
        in shown
    )
    assert "bk1test does not start\n  lastMark names journal " in shown
    assert " is missing\n    next: pulsar-admin store salvage bk1test=" in shown
    assert "bk2test starts\n" in shown

    told = {row["code"]: row for row in cli("--store", store, "-o", "json", "doctor").json}
    lost = {
        "bookie-index-unreadable": "1 index of bookie bk0test rebuilt; the old one is kept",
        "bookie-journal-missing": "1 mark of a missing journal put aside; the old one is kept",
        "bookie-index-missing": "1 index of bookie bk2test rebuilt; the old one is kept",
    }
    for code in lost:
        words = shlex.split(told[code]["mend"])
        assert words[:3] == ["pulsar-admin", "store", "salvage"]
        assert lost[code] in cli("--store", store, *words[1:]).stderr
        done = cli.done("--store", store, "-o", "json", *words[1:], "--yes")
        assert done.json["needed"]
        if code == "bookie-journal-missing":
            assert done.json["journals"]["marks"] == [str(currents[1] / "lastMark")]
            assert done.json["journals"]["unsure"] > 0
            assert f"{currents[1] / 'lastMark'}-before-salvage" in done.json["kept"]
    assert starts(cli, store) == {f"bk{number}test": (True, []) for number in range(3)}

    journal_id, offset = struct.unpack(">qq", (currents[2] / "lastMark").read_bytes())
    with (currents[2] / f"{journal_id:x}.txn").open("r+b") as file:
        file.seek(max(offset, 512))
        file.write(b"\xff\xff\xff\x05")
    assert starts(cli, store)["bk2test"] == (False, ["bookie-journal-damaged"])
    check_sentences(cli, store, "--deep")
    told = {row["code"]: row for row in cli("--store", store, "-o", "json", "doctor", "--deep").json}
    assert f" @ {max(offset, 512):#x}: a record of -251 bytes" in told["bookie-journal-damaged"]["message"]
    words = shlex.split(told["bookie-journal-damaged"]["mend"])[1:]
    assert "1 journal cut; the old one is kept" in cli("--store", store, *words).stderr
    assert cli("--store", store, *words, "--yes").exit_code == 0
    assert starts(cli, store)["bk2test"] == (True, [])


_ADD, _KEY = struct.pack(">qqq", 7, 0, -1) + b"x", struct.pack(">qqi", 7, -0x1000, 2) + b"ab"


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


@pytest.mark.parametrize(
    ("end", "length", "said"),
    [
        (b"", 0, ""),
        (bytes(9), 0, ""),
        *((framed(_ADD)[:size], 0, "") for size in range(1, 4 + len(_ADD))),
        (b"\xff\xff\xff\0" + struct.pack(">i", 5) + bytes(5), 13, ""),
        (b"\xff\xff\xff\0" + struct.pack(">i", 5) + bytes(4), 0, ""),
        (b"\xff\xff\xff\0" + bytes(3), 0, ""),
        (b"\xff\xff\xff\0" + bytes(4), 8, ""),
        (b"\xff\xff\xff\0" + bytes(4) + framed(_ADD), 8 + 4 + len(_ADD), ""),
        (b"\xff\xff\xff\0" + struct.pack(">i", -5), 0, "padding of -5 bytes"),
        (b"\xff\xff\xff\0" + struct.pack(">i", -5) + framed(_ADD), 0, "padding of -5 bytes"),
        (struct.pack(">i", -1) + framed(_ADD), 0, "a record of -1 bytes"),
        (framed(_ADD[:15], _ADD), 0, "a record of 15 bytes"),
        (framed(_ADD[:16], _ADD), 0, "an entry of 16 bytes"),
        (framed(_ADD[:23], _ADD), 0, "an entry of 23 bytes"),
        (framed(_ADD[:24], _ADD), 4 + 24 + 4 + len(_ADD), ""),
        (framed(_KEY), 4 + len(_KEY), ""),
        (framed(_KEY[:19]), 0, "-1 bytes in record -0x1000"),
        (framed(_KEY[:-1]), 0, "2 bytes in record -0x1000"),
        (framed(_KEY[:-1] + b"c"), 0, "another master key of ledger 7"),
        (framed(struct.pack(">qq", 7, -0x2000)), 20, ""),
        (framed(struct.pack(">qqi", 7, -0x8000, 16) + bytes(16)), 40, ""),
        (framed(struct.pack(">qqi", 7, -0x8000, 15) + bytes(15)), 0, "an explicit LAC of 15 bytes"),
        (framed(struct.pack(">qq", 7, -0x3000)), 20, ""),
    ],
)
def test_where_a_replay_ends_and_why_it_fails_there(end: bytes, length: int, said: str) -> None:
    """Behind a ledger's key and an entry, as ``Journal.replay`` and ``BookieImpl.readJournal`` read them (4.17)."""
    before = framed(_KEY, _ADD)
    frames: list[Frame] = []
    assert find_stop(before + end, 0, 6, {}, frames.append) == (len(before) + length, said)
    assert frames[1] == (4 + len(_KEY), len(_ADD))


@pytest.mark.parametrize(("version", "header"), [(4, 8), (6, 512)])
def test_what_a_start_reads_is_after_the_mark(version: int, header: int, tmp_path: Path) -> None:
    """Of the journal of the mark what follows its offset, of later ones all, up to what is no record; of earlier ones nothing."""
    padding = b"\xff\xff\xff\0" + struct.pack(">i", 3) + bytes(3) if version > 4 else b""
    parts = {number: [struct.pack(">qqq", number, entry, -1) + b"x" for entry in range(3)] for number in (8, 9, 10)}
    for number, bodies in parts.items():
        data = (b"BKLG" + struct.pack(">i", version)).ljust(header, b"\0") + framed(*bodies[:2]) + padding
        data += framed(_KEY, struct.pack(">qq", number, -0x2000), bodies[2]) + (
            framed(_ADD)[:-1] if number < 10 else bytes(4)
        )
        (tmp_path / f"{number:x}.txn").write_bytes(data)
    problems: list[str] = []
    bookie = Bookie("b:1", (tmp_path,), (tmp_path,))
    for mark, left in (((9, 0), 3), ((9, header), 3), ((9, header + 29), 2), ((9, header + 58), 1), ((0, 0), None)):
        (tmp_path / "lastMark").write_bytes(struct.pack(">qq", *mark))
        found = read_replayed_entries(bookie, [8, 9, 10, 11], problems)
        entries = [[], list(range(3 - left, 3)), [0, 1, 2], []] if left else [[0, 1, 2]] * 3 + [[]]
        assert [list(found[ledger]) for ledger in (8, 9, 10, 11)] == entries
        assert [*iter_replayed_ledgers(bookie, problems)] == [7] * (2 if left else 3)
    (tmp_path / "a.txn").write_bytes(b"BKLG" + struct.pack(">i", 99))
    assert [*read_replayed_entries(bookie, [9, 10], problems)[9]] == [0, 1, 2]
    assert [problem.partition(" ")[0] for problem in problems] == [str(tmp_path / "a.txn")]


@pytest.mark.usefixtures("damages_stores")
def test_an_index_that_opens_and_cannot_be_read_whole(cli: Cli, tmp_path: Path, disks: tuple[Path, Path]) -> None:
    """Its bookie starts, and fails to read the rows of the block that is damaged."""
    source, store = disks
    tables = (source / "bookkeeper0" / "current" / "locations").glob("*.sst")
    flip(max(tables, key=lambda path: path.stat().st_size), 20, 0xFF)
    assert starts(cli, store)["bk0test"] == (True, ["bookie-index-unreadable"])
    assert "bookie-index-unreadable" not in cli("--store", store, "doctor").stdout
    told = {row["code"]: row for row in cli("--store", store, "-o", "json", "doctor", "--deep").json}
    assert "opens, but a part cannot be read" in told["bookie-index-unreadable"]["message"]
    words = shlex.split(told["bookie-index-unreadable"]["mend"])
    assert cli("--store", store, *words[1:], "--yes").exit_code == 0
    assert starts(cli, store)["bk0test"] == (True, [])


def test_what_compares_the_places_of_a_database_reads_every_block_of_it(
    cli: Cli, disks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a deep check reads the rows of a large database once; that of ledgers has few."""
    read, why_unreadable = list[str](), facts_of_starts._why_unreadable

    def watched(database: Path) -> tuple[str, bool]:
        read.append(database.name)
        return why_unreadable(database)

    monkeypatch.setattr(facts_of_starts, "_why_unreadable", watched)
    assert "bookie-index-unreadable" not in cli("--store", disks[1], "doctor", "--deep").stdout
    assert read == ["ledgers"] * 3


def test_cookies_of_bookies(cli: Cli, tmp_path: Path, disks: tuple[Path, Path], damages_stores: None) -> None:
    source, store = disks
    cookies = [source / f"bookkeeper{number}" / "current" / "VERSION" for number in range(3)]
    other = cookies[0].read_bytes()
    assert b"/pulsar-c4/" in other
    cookies[0].write_bytes(other.replace(b"/pulsar-c4/", b"/pulsar-c5/"))
    kept = cookies[1].read_bytes()
    cookies[1].unlink()
    found = cli("--store", store, "-o", "json", "store", "preflight").json
    assert [row["starts"] for row in found["bookies"]] == [False, False, True]
    codes = [[fault["code"] for fault in row["faults"]] for row in found["bookies"]]
    assert codes == [["bookie-cookie-refused"], ["bookie-cookie-missing"], []]
    check_sentences(cli, store)
    told = {row["code"]: row["severity"] for row in cli("--store", store, "-o", "json", "doctor").json}
    assert {told["bookie-cookie-refused"], told["bookie-cookie-missing"]} == {"critical"}
    cookies[0].write_bytes(other)
    # No other directory of it has one, but the metadata has.
    (told,) = cli("--store", store, "-o", "json", "doctor", "--code", "bookie-cookie-missing").json
    assert cli("--store", store, *shlex.split(told["mend"])[1:]).stdout.encode() == kept
    cookies[1].write_bytes(kept)
    assert starts(cli, store) == {f"bk{number}test": (True, []) for number in range(3)}


def test_the_only_cookie_of_a_standalone_is_in_the_metadata(cli: Cli, tmp_path: Path) -> None:
    source, store = scratch_copy("shapes", "clean", tmp_path), tmp_path / "store"
    cookie = source / "bookkeeper" / "current" / "VERSION"
    kept = cookie.read_text()
    cookie.write_bytes(b"")
    cli.done("--store", store, "store", "import", "standalone", source)
    (told,) = cli.on(store, "doctor --code bookie-cookie-missing -o json").json
    assert cli.done("--store", store, *shlex.split(told["mend"])[1:]).stdout == kept
    check_sentences(cli, store)


def test_journals_that_were_lost_before_the_import_are_missed(cli: Cli, tmp_path: Path) -> None:
    source, store = scratch_copy(CLUSTER, "clean", tmp_path), tmp_path / "store"
    for journal in (source / "bookkeeper0" / "current").glob("*.txn"):
        journal.unlink()
    cli.on(store, f"store import cluster --zookeeper {source / 'zookeeper'} --bookie {source / 'bookkeeper0'}").ends(1)
    assert starts(cli, store) == {"bk0test": (False, ["bookie-journal-missing"])}
    check_sentences(cli, store)
    (told,) = cli.on(store, "doctor --code bookie-journal-missing -o json").json
    assert told["mend"] == "pulsar-admin store add bookie bk0test=JOURNAL-DIR"
    salvage = told["message"].partition("if it is lost for good: pulsar-admin ")[2]
    cli.done("--store", store, *shlex.split(salvage), "--yes")
    assert starts(cli, store) == {"bk0test": (True, [])}


@pytest.mark.parametrize(
    ("name", "code", "mend"),
    [
        ("VERSION", "bookie-cookie-missing", "store cat /ledgers/cookies/sorted --raw"),
        ("*.txn", "bookie-journal-missing", "bookkeeper lastmark"),
    ],
)
def test_no_salvage_is_printed_for_a_bookie_that_it_refuses(
    name: str, code: str, mend: str, cli: Cli, tmp_path: Path
) -> None:
    copy_tree(world("kinds") / "clean", tmp_path / "kinds")
    disks = tmp_path / "kinds" / "bookie1"
    given = f"sorted={disks / 'journal'},{disks / 'ledgers'}"
    store = tmp_path / "store"
    cli.on(store, f"store import cluster --zookeeper {tmp_path / 'kinds' / 'zookeeper'} --bookie {given}").ends(0)
    for file in (disks / "journal" / "current").glob(name):
        file.unlink()
    cli.on(store, f"store salvage {given} --dry-run").ends(7, "has .idx files")
    (told,) = cli.on(store, f"doctor --code {code} -o json").json
    assert told["mend"] == f"pulsar-admin {mend}"
    cli.on(store, mend.replace(" --raw", "")).ends(0)
    check_sentences(cli, store)


# -- ZooKeeper: what its own FileTxnSnapLog.restore did with the same files is beside each ------------------------------


def cut(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


def without_snapshots(folder: Path) -> None:
    for file in folder.glob("snapshot.*"):
        file.unlink()


def without_whole_snapshots(folder: Path) -> None:
    for file in folder.glob("snapshot.*"):
        cut(file, file.stat().st_size - 100)


def beside_old_snapshot(folder: Path) -> None:
    """The newest snapshot is cut, and purging took the logs that lead to it."""
    cut(folder / "snapshot.481", 5000)
    (folder / "log.35e").unlink()
    (folder / "log.1").unlink()


Plant = Callable[[Path], object]


def zeros_inside(folder: Path) -> None:
    """A sector of the log was lost: what is after it is whole."""
    log = folder / "log.482"
    data = log.read_bytes()
    log.write_bytes(data[:512] + bytes(512) + data[1024:])


def without_middle_log(folder: Path) -> None:
    (folder / "snapshot.481").unlink()
    (folder / "log.35e").unlink()


def with_length(length: int) -> Plant:
    """The beginning of a record of this length follows the last one, and nothing else."""

    def plant(folder: Path) -> None:
        log = folder / "log.482"
        log.write_bytes(log.read_bytes().rstrip(b"\0") + struct.pack(">qi", 1, length))

    return plant


def with_epochs(current: str | None, accepted: str | None) -> Plant:
    """The last transaction of the recorded server is of epoch 0; a real server of an ensemble was asked for each."""

    def plant(folder: Path) -> None:
        for name, text in (("currentEpoch", current), ("acceptedEpoch", accepted)):
            if text is not None:
                (folder / name).write_text(text)

    return plant


SERVERS: list[tuple[Plant, list[tuple[str, bool]]]] = [
    (lambda folder: None, []),
    (lambda folder: (folder / "log.ffff").write_bytes(b""), []),  # forgiven
    (lambda folder: cut(folder / "log.482", 0), []),  # forgiven, too: it ends with 0x481
    (
        lambda folder: (folder / "log.ffff").write_bytes(b"ZKLG\0\0\0\2\0\0"),
        [("zookeeper-log-unreadable", False)],
    ),  # EOFException
    (
        lambda folder: (folder / "log.ffff").write_bytes(bytes(100)),
        [("zookeeper-log-unreadable", False)],
    ),  # invalid magic number
    (lambda folder: flip(folder / "log.482", 60, 0xFF), [("zookeeper-log-unreadable", False)]),  # CRC check failed
    (
        lambda folder: flip(folder / "log.35e", 60, 0xFF),
        [("zookeeper-log-unreadable", False)],
    ),  # before the snapshot, and read
    (lambda folder: cut(folder / "log.482", 1000), []),  # the end of the log
    (zeros_inside, [("zookeeper-log-unreadable", True)]),  # its end, too
    (lambda folder: (folder / "snapshot.481").unlink(), []),
    (without_middle_log, [("metadata-incomplete", True)]),
    (with_length(-1), [("zookeeper-log-unreadable", False)]),  # NullPointerException
    (with_length(2 * 0xFFFFF), []),
    (with_length(2 * 0xFFFFF + 1), [("zookeeper-record-too-large", False)]),  # Unreasonable length
    (with_length(0x7FFFFFFF), [("zookeeper-log-unreadable", False)]),
    (without_snapshots, [("zookeeper-snapshot-missing", False)]),  # No snapshot found, but there are log entries
    (without_whole_snapshots, [("zookeeper-snapshot-damaged", False)]),
    (lambda folder: cut(folder / "snapshot.481", 5000), [("zookeeper-snapshot-damaged", True)]),  # from snapshot.35d
    (lambda folder: flip(folder / "snapshot.481", 3000, 0xFF), [("zookeeper-snapshot-damaged", True)]),
    (beside_old_snapshot, [("zookeeper-snapshot-damaged", True)]),
    (with_epochs("1", "1"), []),
    (with_epochs("1\n", "2"), []),
    (with_epochs(None, "0"), []),
    (with_epochs("0", None), []),
    (with_epochs("2", "1"), [("zookeeper-epochs-refused", False)]),
    (with_epochs("-1", "1"), [("zookeeper-epochs-refused", False)]),
    (with_epochs("", "1"), [("zookeeper-epochs-refused", False)]),
    (with_epochs("1", "x"), [("zookeeper-epochs-refused", False)]),
    (lambda folder: go_on(folder, [("/large", bytes(2 * 0xFFFFF - 78))]), []),
    (
        lambda folder: go_on(folder, [("/large", bytes(2 * 0xFFFFF - 77))]),
        [("zookeeper-record-too-large", False)],
    ),  # Unreasonable length: twice jute.maxbuffer, of which 78 bytes are around the value
]


@pytest.mark.parametrize(("plant", "codes"), SERVERS)
def test_a_server(tmp_path: Path, plant: Plant, codes: list[tuple[str, bool]]) -> None:
    folder = unpack_zookeeper(tmp_path)
    plant(folder)
    found = faults_of(folder)
    assert [(fault.code, fault.starts) for fault in found] == codes
    if plant is beside_old_snapshot:
        assert (
            "forgets what came after it, because those logs are missing: the first one begins at 0x482" in found[0].text
        )


def test_the_longest_transaction_says_what_to_set(tmp_path: Path) -> None:
    """ZooKeeper took such a file with 1500100, and with the default it did not."""
    folder = unpack_zookeeper(tmp_path)
    go_on(folder, [("/large", bytes(3_000_000))])
    (fault,) = faults_of(folder, thorough=False)
    # The record has 78 bytes around the value.
    assert "-Djute.maxbuffer=1500039 or more; bin/pulsar sets 10485760, which is enough" in fault.text


@pytest.mark.parametrize(
    ("plant", "code"),
    [
        (without_snapshots, "zookeeper-snapshot-missing"),
        (lambda folder: cut(folder / "snapshot.481", 5000), "zookeeper-snapshot-damaged"),
        (lambda folder: go_on(folder, [("/large", bytes(3_000_000))]), "zookeeper-record-too-large"),
        (lambda folder: (folder / "log.ffff").write_bytes(b"ZKLG"), "zookeeper-log-unreadable"),
        (with_epochs("2", "1"), "zookeeper-epochs-refused"),
    ],
)
@pytest.mark.usefixtures("damages_stores")
def test_a_snapshot_of_the_store_mends_a_server(cli: Cli, tmp_path: Path, plant: Plant, code: str) -> None:
    server, store, made = tmp_path / "zookeeper", tmp_path / "store", tmp_path / "made"
    server.mkdir()
    plant(unpack_zookeeper(server))
    assert cli("--store", store, "store", "import", "cluster", "--zookeeper", server).exit_code in (0, 1)
    told = {row["code"]: row for row in cli("--store", store, "-o", "json", "doctor").json}
    mend = told[code]["mend"]
    assert mend == "pulsar-admin store export zookeeper-snapshot DIR"
    done = cli("--store", store, *shlex.split(mend.replace("DIR", str(made)))[1:], "--yes")
    if code == "zookeeper-log-unreadable":  # what stood in it is lost: that is confirmed apart
        assert done.exit_code == 6
        assert cli("--store", store, "store", "export", "zookeeper-snapshot", made, "--force", "--yes").exit_code == 1
    else:
        assert done.exit_code == 0, done.stderr
    (version_2,) = made.rglob("version-2")
    assert not faults_of(version_2)


def test_starts_of_servers_at_their_bounds(tmp_path: Path) -> None:
    """An index with nothing but a cookie is emptied; ZooKeeper reads records of twice ``jute.maxbuffer``, and none longer."""
    for name, files, expected in (
        ("a", [], True),
        ("b", ["VERSION"], True),
        ("c", ["VERSION", "x"], False),
        ("d", ["x"], False),
    ):
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).touch()
        assert _is_emptied([tmp_path / name]) == expected
    for size, long in ((2 * 0xFFFFF, []), (2 * 0xFFFFF + 1, [tmp_path / "log.1"])):
        record = struct.pack(">qi", adler32(bytes(size)), size) + bytes(size) + b"B"
        (tmp_path / "log.1").write_bytes(b"ZKLG" + bytes(12) + record)
        assert [one.where for one in _log_facts([tmp_path / "log.1"], 0)] == long
