"""The recorded world ``kinds``: storage and indexes of every kind, ledger metadata of every version, imported and verified."""

import struct
from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.worlds import copy_tree, oracle, world

DIRECTORIES = (
    ("ledgers0", "ledgers1", "index", "journal"),
    ("ledgers", "journal"),
    ("ledgers0", "ledgers1", "journal"),
)
KINDS = ("interleaved", "sorted", "direct")


def _imported(cli: Cli, tmp_path: Path, clean: Path, bookies: tuple[int, ...]) -> Path:
    store = tmp_path / "store"
    disks = [
        f"{KINDS[bookie]}={','.join(str(clean / f'bookie{bookie}' / name) for name in DIRECTORIES[bookie])}"
        for bookie in bookies
    ]
    given = [word for disk in disks for word in ("--bookie", disk)]
    cli.done("--store", store, "store", "import", "cluster", "--zookeeper", clean / "zookeeper", *given)
    return store


@deep_but_for((0, 3), "bookies", [(0,), (1,), (2,), (0, 1, 2)])
def test_every_kind_of_bookie_has_what_clients_read(bookies: tuple[int, ...], tmp_path: Path, cli: Cli) -> None:
    store = _imported(cli, tmp_path, world("kinds") / "clean", bookies)
    keys = ("ledgerId", "entryId", "batchIndex", "publishTime", "sha1", "producer")
    for topic, rows in oracle("kinds")["rows"].items():
        found = cli("--store", store, "topics", "read", topic, "-o", "jsonl").json_lines
        assert [[row[key] for key in keys] for row in found] == rows


@pytest.mark.parametrize("bookie", KINDS)
def test_records_are_where_bookkeepers_index_says(bookie: str, cli: Cli) -> None:
    number = KINDS.index(bookie)
    found: set[tuple[str, int, int, int]] = set()
    for name in DIRECTORIES[number]:
        for log in (world("kinds") / "clean" / f"bookie{number}" / name / "current").glob("*.log"):
            rows = cli("logs", "dump", log, "-o", "jsonl").json_lines if log.stat().st_size else []
            found |= {(log.name, row["offset"] + 4, row["ledgerId"], row["entryId"]) for row in rows}
    for ledger, rows in oracle("kinds")["index"][bookie].items():
        assert {(f"{log:x}.log", position, int(ledger), entry) for entry, log, position in rows} <= found


def test_ledger_metadata_of_every_version(tmp_path: Path, cli: Cli) -> None:
    store = _imported(cli, tmp_path, world("kinds") / "clean", (0,))
    for ledger, version in ((0, 1), (4, 2), (9, 3)):
        node = cli("--store", store, "store", "cat", f"/ledgers/00/0000/L{ledger:04}", "-o", "json").json
        assert node["value"]["version"] == version


def _slot(path: Path, entry: int, location: int | None) -> None:
    with path.open("r+b") as file:
        file.seek(1024 + 8 * entry)
        if location is None:
            file.truncate(1000)
        else:
            file.write(location.to_bytes(8, "big"))


def test_an_index_in_a_directory_of_its_own_is_followed_to_the_logs_of_all(tmp_path: Path, cli: Cli) -> None:
    clean = tmp_path / "clean"
    copy_tree(world("kinds") / "clean", clean)
    store = _imported(cli, tmp_path, clean, (0,))
    assert cli("--store", store, "store", "check", "--deep").exit_code == 0
    _slot(clean / "bookie0/index/current/0/1/1.idx", 3, 1028)
    found = cli("--store", store, "store", "check", "--deep", "-o", "json").json
    assert [row["where"] for row in found if row["code"] == "index-file-wrong"] == ["ledger 1"]


@pytest.mark.parametrize(
    ("location", "words"),
    [
        (1028, "entry 1:3: 0.log @ 0x400 is not one of its records"),
        (0x7FFFFFFF, "entry 1:3: 0.log @ 0x7ffffffb is not in the log"),
        (3, "entry 1:3: 0.log @ -0x1 is not in the log"),
        ((0xABC << 32) + 1028, "abc.log"),
        (None, "1024"),
    ],
)
def test_an_index_that_disagrees_with_its_log_is_named(
    location: int | None, words: str, tmp_path: Path, cli: Cli
) -> None:
    clean = tmp_path / "clean"
    copy_tree(world("kinds") / "clean", clean)
    store = _imported(cli, tmp_path, clean, (1,))
    _slot(clean / "bookie1/ledgers/current/0/1/1.idx", 3, location)
    found = cli("--store", store, "store", "check", "--deep", "-o", "json").ends(1)
    (row,) = [row for row in found.json if row["severity"] == "problem"]
    assert (row["code"], row["where"]) == ("index-file-wrong", "ledger 1")
    assert words in row["message"]
    verified = cli("logs", "verify", clean / "bookie1" / "ledgers", "-o", "json")
    (index,) = [row for row in verified.json if row["path"].endswith("/1.idx")]
    assert words in index["map"] + "".join(index["details"])
    assert cli("--store", store, "topics", "read", "public/default/version-1", "-o", "jsonl").exit_code == 0


def test_a_bookie_starts_with_a_damaged_header_of_an_idx_file(tmp_path: Path, cli: Cli) -> None:
    """A real one did (4.17.2): the first read of the ledger fails, and each flush ("Missing ledger signature")."""
    copy_tree(world("kinds") / "clean", tmp_path / "clean")
    store = _imported(cli, tmp_path, tmp_path / "clean", (1,))

    def faults() -> list[tuple[str, bool]]:
        (row,) = cli("--store", store, "-o", "json", "store", "preflight").json["bookies"]
        assert row["starts"]
        return [(fault["code"], fault["starts"]) for fault in row["faults"]]

    assert faults() == []
    index = min((tmp_path / "clean" / "bookie1").rglob("*.idx"))
    index.write_bytes(bytes(4) + index.read_bytes()[4:])
    assert faults() == [("index-file-wrong", True)]
    index.write_bytes(b"BKLE" + (5).to_bytes(4, "big") + index.read_bytes()[8:])
    assert faults() == [("index-file-wrong", True)]
    assert "header: index of version 5, known are 0 and 1" in cli("--store", store, "store", "preflight").stdout


def test_a_mark_of_journals_in_a_directory_of_their_own(tmp_path: Path, cli: Cli) -> None:
    """The shell prints a line a journal directory, from the greatest mark in the ledger directories, where alone marks are."""
    store = _imported(cli, tmp_path, world("kinds") / "clean", (2,))
    marks = [
        struct.unpack(">qq", (world("kinds") / "clean" / "bookie2" / name / "current" / "lastMark").read_bytes())
        for name in ("ledgers0", "ledgers1")
    ]
    journal_id, offset = max(marks)
    shown = cli("--store", store, "bookkeeper", "lastmark")
    assert shown.stdout == f"LastLogMark : Journal Id - {journal_id}({journal_id:x}.txn), Pos - {offset}\n"
