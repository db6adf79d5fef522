"""``logs`` against BookKeeper's own readlog, and on damaged, torn, sealed and foreign files."""

import csv
import gzip
import os
from pathlib import Path

import pytest

from pulsar_admin.store.codec import entrylog
from pulsar_admin.store.engine.slices import Cut
from pulsar_admin.store.scan.ledgers_map import read_map_bytes
from tests.altering import flip
from tests.conftest import Cli
from tests.scan.test_files import entry_record
from tests.worlds import GOLDEN, assert_unchanged, scratch_copy, world

LOGS = [("clean", "0.log"), ("clean", "1.log"), ("crashed", "3.log"), ("crashed", "5.log")]


@pytest.mark.parametrize(("state", "name"), LOGS)
def test_dump_equals_readlog(state: str, name: str, cli: Cli) -> None:
    with gzip.open(GOLDEN / "readlog-small.csv.gz", "rt", newline="") as stream:
        golden = [row for row in csv.DictReader(stream) if (row["state"], row["log"]) == (state, name)]
    expected = [tuple(int(row[key]) for key in ("ledger", "entry", "ByteOffset", "EntrySize")) for row in golden]
    path = world("small") / state / "bookkeeper/current" / name
    with assert_unchanged(path):
        answer = cli("logs", "dump", path, "-o", "jsonl")
    assert answer.exit_code == 0
    rows = answer.json_lines
    assert [(row["ledgerId"], row["entryId"], row["offset"], row["size"]) for row in rows] == expected
    assert {row["state"] for row in rows} == {"ok"}
    assert {row["digestType"] for row in rows} <= {"CRC32C", "CRC32"}


def test_dump_shows_damage_in_its_place(tmp_path: Path, cli: Cli) -> None:
    parts = [entry_record(3, entry_id) for entry_id in range(6)]
    bad = bytearray(parts[2])
    bad[-1] ^= 1
    path = tmp_path / "0.log"
    path.write_bytes(
        entrylog.encode_header(entrylog.EntryLogHeader(1, 0, 0))
        + b"".join((*parts[:2], bytes(bad), parts[3], b"\x07" * 99, *parts[4:], parts[0][:20]))
    )
    answer = cli("logs", "dump", path, "-o", "jsonl").ends(1)
    rows = answer.json_lines
    assert [row["state"].split(":")[0] for row in rows] == [
        *["ok"] * 2,
        "bad",
        "ok",
        "unreadable bytes",
        *["ok"] * 2,
        "torn tail",
    ]
    assert [row["entryId"] for row in rows] == [0, 1, 2, 3, -1, 4, 5, -1]
    assert [row["offset"] for row in rows] == sorted(row["offset"] for row in rows)
    assert (rows[4]["size"], rows[7]["size"]) == (99, 20)


def test_a_bad_header_is_told_of_its_file_alone(tmp_path: Path, cli: Cli) -> None:
    good = (world("small") / "crashed/bookkeeper/current/3.log").read_bytes()
    for name, data in (
        ("0.log", b"XKLO" + good[4:]),
        ("1.log", good[:7] + b"\x09" + good[8:]),
        ("2.log", good[:99]),
        ("3.log", good),
    ):
        (tmp_path / name).write_bytes(data)
    rows = {Path(row["path"]).name: row for row in cli("logs", "list", tmp_path, "-o", "json").json}
    assert [name for name, row in rows.items() if row["header"] == "ok"] == ["3.log"]
    assert ("BKLO" in rows["0.log"]["header"], "version" in rows["1.log"]["header"]) == (True, True)
    assert {(row["version"], row["sealed"]) for name, row in rows.items() if name != "3.log"} == {(None, False)}


def test_verify_recorded(cli: Cli) -> None:
    folder = world("small") / "crashed/bookkeeper/current"
    with assert_unchanged(folder):
        answer = cli("logs", "verify", folder, "-o", "json")
    assert answer.exit_code == 0
    rows = {Path(row["path"]).name: row for row in answer.json}
    assert {name: row["records"] for name, row in rows.items() if name.endswith(".log")} == {
        "0.log": 1087, "1.log": 1479, "3.log": 28, "5.log": 1,
    }  # fmt: skip
    assert (rows["0.log"]["map"], rows["1.log"]["map"]) == ("ok", "absent")
    assert all((row["problems"], row["torn"]) == (0, False) for row in rows.values())


def test_verify_finds_a_lying_map(tmp_path: Path, cli: Cli) -> None:
    records = entry_record(1, 0) + entry_record(2, 0)
    head_bytes, true = 1024, len(entry_record(1, 0))
    for sizes, good in (
        ({1: true, 2: true}, True),
        ({1: true, 2: true + 1}, False),
        ({1: true}, False),
        ({1: true, 9: true}, False),
    ):
        path = tmp_path / "0.log"
        header = entrylog.encode_header(entrylog.EntryLogHeader(1, head_bytes + len(records), len(sizes)))
        path.write_bytes(header + records + entrylog.encode_ledgers_map(sizes))
        answer = cli("logs", "verify", path, "-o", "json")
        (row,) = answer.json
        assert (answer.exit_code, row["map"] == "ok") == (0 if good else 1, good), sizes


def test_verify_finds_a_flipped_bit(tmp_path: Path, cli: Cli) -> None:
    source = scratch_copy("small", "clean", tmp_path)
    log = source / "bookkeeper/current/0.log"
    flip(log, 143_010 + 100, 4)  # the payload of entry 9:0
    answer = cli("logs", "verify", log, "-o", "json")
    (row,) = answer.json
    assert (answer.exit_code, row["problems"], row["records"]) == (1, 1, 1087)
    assert "digest mismatch, entry 9:0" in row["details"][0]
    assert cli("logs", "dump", log).exit_code == 1


def test_dump_wants_one_file(cli: Cli) -> None:
    cli("logs", "dump", world("small") / "clean/bookkeeper/current", "-o", "json").fails(2, "invalid-value")


def test_not_a_bookie(tmp_path: Path, cli: Cli) -> None:
    for command in ("list", "verify"):
        cli("logs", command, tmp_path, "-o", "json").fails(5, "source-not-found", "found none")


@pytest.mark.parametrize("words", [("dump", "-o", "csv"), ("verify", "-o", "json")])
def test_slices_say_what_one_scan_says(
    words: tuple[str, ...], tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of good, torn and damaged files, cut where records, damage and the file's end are not."""
    whole = (world("small") / "clean/bookkeeper/current/1.log").read_bytes()
    damaged = bytearray(whole)
    for at in range(5_000, len(damaged), 70_001):
        damaged[at] ^= 0x20
    damaged[300_000:310_000] = bytes(10_000)
    (journal,) = (world("small") / "clean/bookkeeper/current").glob("*.txn")
    files = {
        "0.log": whole,
        "1.log": bytes(damaged),
        "2.log": whole[:400_001],
        "3.log": journal.read_bytes(),
        "4.log": b"",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    monkeypatch.setattr("pulsar_admin.store.index.scan.cut_for", lambda memory_bytes: Cut(90_000))
    for name in files:
        command = ("logs", words[0], tmp_path / name, *words[1:])
        here, sliced = cli(*command), cli(*command, "--jobs", "2")
        assert (sliced.exit_code, sliced.stdout, sliced.stderr) == (here.exit_code, here.stdout, here.stderr), name
        assert here.exit_code == (name in ("1.log", "2.log"))


def test_a_ledgers_map_is_read_and_not_mapped(tmp_path: Path) -> None:
    """A log that is cut while its map is looked at gives another answer; a mapped one would kill the process."""
    log = next(file for file in sorted((world("small") / "clean" / "bookkeeper" / "current").glob("*.log")))
    copy = tmp_path / "0.log"
    copy.write_bytes(log.read_bytes())
    head = copy.read_bytes()[: entrylog.HEADER_BYTES]
    header = entrylog.decode_header(head, "0.log")
    whole = entrylog.decode_ledgers_map(copy.read_bytes(), header, "0.log")
    view = read_map_bytes(copy, header)
    os.truncate(copy, 100)
    assert entrylog.decode_ledgers_map(view, header, "0.log") == whole
    assert bytes(view[entrylog.HEADER_BYTES : entrylog.HEADER_BYTES + 100]) == bytes(100)
