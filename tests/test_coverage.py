"""On which bookies entries are: a recorded cluster of three (E 3, Qw 2, Qa 2), against its files read record by record."""

import json
import shlex
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import pulsar_admin as pa
from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.entry import Entry, decode_entry
from pulsar_admin.store.codec.ledgermetadata import (
    LedgerMetadata,
    LedgerState,
    Segment,
    closed_ledger,
    encode_ledger_metadata,
    ledger_path,
)
from pulsar_admin.store.db.copies import has_copies, iter_all_copies
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.files import LogFile, iter_logs
from pulsar_admin.store.db.tree import read_node
from pulsar_admin.store.model import coverage
from pulsar_admin.store.model.coverage import (
    count_unseen,
    iter_entry_gaps,
    read_coverage,
    read_disks,
    read_held,
    read_open_end,
)
from pulsar_admin.store.model.ledgers import Ledger, find_metadata, iter_ledger_ids, missing_ranges, read_ledger
from pulsar_admin.store.names import Position, parse_topic
from tests.conftest import Cli
from tests.cures.curing import diagnoses, put_values, run_printed
from tests.deep import deep_but_for
from tests.encoders import encode_entry
from tests.reference_index import bodies
from tests.stores import copied, imported, lose_nodes, put_back, put_node, read_rows, write_rows
from tests.test_placement import upstream_write_set
from tests.worlds import CLUSTER, copy_tree, oracle, world

STATES = ("clean", "mutated", "crashed")
BOOKIES = ("bk0test", "bk1test", "bk2test")
Held = dict[tuple[str, int], set[int]]  # (bookie, ledger) → entries


def held_by(logs: Iterable[LogFile]) -> Held:
    """Every record of LOGS; a bookie's name is that in its cookie, its directory is ``bookkeeper0`` and so on."""
    found: Held = defaultdict(set)
    for log in logs:
        bookie = f"bk{Path(log.origin).parent.parent.name[-1]}test"
        for _, body in bodies(log, Path(log.origin).read_bytes()):
            found[bookie, int.from_bytes(body[:8], "big")].add(int.from_bytes(body[8:16], "big"))
    return found


def copied_entries(txn: Txn) -> Held:
    """What the rows say."""
    bookies = {log.file_id: log.bookie for log in iter_logs(txn)}
    found: Held = defaultdict(set)
    for ledger_id, file_id, entries in iter_all_copies(txn):
        found[bookies[file_id], ledger_id] |= set(entries)
    return found


def assert_coverage_is_right(txn: Txn, held: Held, imported_bookies: Iterable[str] = BOOKIES) -> int:
    """Compare what is said of every ledger with HELD, one entry at a time; return how many entries are short."""
    there, short = set(imported_bookies), 0
    for ledger_id in iter_ledger_ids(txn):
        ledger = read_ledger(txn, ledger_id)
        found, metadata = read_coverage(txn, ledger), ledger.metadata
        assert metadata is not None
        on = [0, 0, 0]
        counts = {row.bookie: [0, 0] for row in found.bookies}
        for entry in range(ledger.last_entry_id + 1):
            write_set = upstream_write_set(metadata, entry)
            having = [bookie for bookie in write_set if bookie in there and entry in held.get((bookie, ledger_id), ())]
            on[len(having)] += 1
            short += len(having) < len(there.intersection(write_set))
            for bookie in write_set:
                counts[bookie][0] += 1
                counts[bookie][1] += bookie in having
        assert list(found.on) == on, ledger_id
        assert {row.bookie: [row.expected, row.held] for row in found.bookies} == counts, ledger_id
    return short


@deep_but_for((1,), "state", STATES)
def test_a_sound_cluster_lacks_no_copy(state: str, cli: Cli) -> None:
    path = imported("cluster", state)
    answer = cli("--store", path, "ledgers", "underreplicated", "-o", "json")
    assert (answer.exit_code, answer.json, answer.stderr) == (0, [], "")
    checked = cli("--store", path, "store", "check", "-o", "json")
    assert (checked.exit_code, {row["severity"] for row in checked.json}) == (0, {"note", "summary"})


def test_rows_and_coverage_are_those_of_the_files() -> None:
    with open_store(imported("cluster", "crashed")) as store, store.read() as txn:
        held = held_by(iter_logs(txn))
        assert has_copies(txn)
        assert copied_entries(txn) == held
        assert assert_coverage_is_right(txn, held) == 1  # one was in flight when the cluster was killed


@pytest.mark.parametrize(("world_name", "entries"), [("small", 25), ("nometa", 60)])
def test_one_bookie_needs_no_rows(world_name: str, entries: int, cli: Cli) -> None:
    path = imported(world_name, "crashed")
    with open_store(path) as store, store.read() as txn:
        assert not has_copies(txn)
        assert txn.count("copies") == 0
    assert cli("--store", path, "ledgers", "underreplicated", "-o", "json").json == []
    (row,) = cli("--store", path, "ledgers", "info", 9, "-o", "json").json["coverage"]["bookies"]
    assert (row["expected"], row["held"], row["missing"]) == (entries, entries, 0)


# -- a disk that lost something -------------------------------------------------------------------------------------------


@pytest.fixture
def disks(tmp_path: Path) -> Path:
    """The clean cluster, to take parts of it away."""
    return _linked(tmp_path / "cluster", "clean")


def _linked(path: Path, state: str) -> Path:
    path.mkdir()
    for part in (world("cluster") / state).iterdir():
        (path / part.name).symlink_to(part)
    return path


def _own(disks: Path, name: str) -> Path:
    """Return the ``current`` of bookie NAME, copied to be changed."""
    if (disks / name).is_symlink():
        source = (disks / name).resolve()
        (disks / name).unlink()
        copy_tree(source, disks / name)
    return disks / name / "current"


def _import(source: Path, path: Path, cli: Cli) -> Path:
    assert cli("--store", path, "store", "import", "standalone", source, "-q").exit_code in (0, 1)
    return path


def _lose_a_log(disks: Path) -> Path:
    """Take the entry log with the most records of ``bookkeeper1`` away, and its journal, which has them, too, for good."""
    current = _own(disks, "bookkeeper1")
    for journal in current.glob("*.txn"):
        journal.unlink()
    (current / "lastMark").rename(current / "lastMark-before-salvage")
    log = max(current.glob("*.log"), key=lambda path: path.stat().st_size)
    log.unlink()
    return log


def test_a_removed_entry_log_of_one_bookie(disks: Path, tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """Nothing is lost: another bookie has a copy of everything. It is named all the same, entry by entry."""
    _lose_a_log(disks)
    path = _import(disks, tmp_path / "s", cli)
    with open_store(path) as store, store.read() as txn:
        held = held_by(iter_logs(txn))
        assert copied_entries(txn) == held
        short = assert_coverage_is_right(txn, held)
    assert short > 500
    answer = cli("--store", path, "ledgers", "underreplicated", "-o", "json").ends(1)
    assert sum(row["short"] for row in answer.json) == short
    assert {(row["lowest"], row["lost"], row["unknown"]) for row in answer.json} == {(1, 0, 0)}
    assert {bookie["bookie"] for row in answer.json for bookie in row["bookies"]} == {"bk1test"}
    shown = [row["short"] for row in answer.json]
    assert shown == sorted(shown, reverse=True)
    with pa.open_store(path) as opened:
        assert [(row.ledger_id, row.short) for row in opened.underreplicated()] == [
            (row["ledgerId"], row["short"]) for row in answer.json
        ]
    rows = [row for row in cli("--store", path, "store", "check", "-o", "json").json if row["code"] == "copies-missing"]
    assert {row["context"]["ledgerId"]: row["context"]["bookies"] for row in rows} == {
        row["ledgerId"]: {"bk1test": row["short"]} for row in answer.json
    }
    assert all(row["severity"] == "problem" and "each has another copy" in row["message"] for row in rows)
    first = min(row["ledgerId"] for row in answer.json)
    put_node(path, ledger_path(first), b"\xff\xff")  # metadata that cannot be read hides no ledger behind it
    rest = cli("--store", path, "ledgers", "underreplicated", "-o", "json").json
    assert rest == [row for row in answer.json if row["ledgerId"] != first]


def test_what_a_lost_log_had_may_be_on_a_bookie_that_was_not_imported(
    disks: Path, tmp_path: Path, cli: Cli, damages_stores: None
) -> None:
    _lose_a_log(disks)
    path, words = tmp_path / "s", [word for number in (0, 1) for word in ("--bookie", disks / f"bookkeeper{number}")]
    cli("--store", path, "store", "import", "cluster", "--zookeeper", disks / "zookeeper", *words)
    (row,) = diagnoses(cli, path, "--code", "entry-log-missing")
    assert row["evidence"]["elsewhere"] + 321 == row["evidence"]["entries"] == 640
    assert (row["severity"], row["evidence"]["nowhere"]) == ("warning", 0)
    assert "321 may be on bookies or in journals that are not imported" in row["message"]
    lowest = {row["ledgerId"]: row["lowest"] for row in cli.rows(path, "ledgers underreplicated")}
    rows = [row for row in cli.rows(path, "store check") if row["code"] == "copies-missing"]
    told = {row["context"]["ledgerId"]: "; of some no copy was imported" in row["message"] for row in rows}
    assert {*told.values()} == {True, False}
    assert all(is_told == (lowest[ledger_id] == 0) for ledger_id, is_told in told.items())


def test_a_log_that_goes_after_the_import(disks: Path, tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """Refresh forgets a file whose entries other files have, and says of which bookies they are no more."""
    _own(disks, "bookkeeper1")
    path = _import(disks, tmp_path / "s", cli)
    assert cli("--store", path, "ledgers", "underreplicated", "-o", "json").json == []
    _lose_a_log(disks)
    cli("--store", path, "store", "refresh", "--forget", "-q")
    with open_store(path) as store, store.read() as txn:
        held = held_by(iter_logs(txn))
        assert copied_entries(txn) == held
        short = assert_coverage_is_right(txn, held)
    found = cli("--store", path, "ledgers", "underreplicated", "-o", "json").json
    assert sum(row["short"] for row in found) == short > 500


def _change_a_record(disks: Path, change: Callable[[Entry], bytes]) -> Entry:
    """Put what CHANGE makes of a record of ``bookkeeper2``'s log in its place; the bookie's journal, which has it, too, goes."""
    for journal in _own(disks, "bookkeeper2").glob("*.txn"):
        journal.unlink()
    with open_store(imported("cluster", "clean")) as store, store.read() as txn:
        log = next(
            log for log in iter_logs(txn) if "bookkeeper2" in log.path and log.kind == "entry-log" and log.records
        )
        listed = set(iter_ledger_ids(txn))
        records = [(at, bytes(body)) for at, body in bodies(log, Path(log.path).read_bytes())]
    at, body = next((at, body) for at, body in records[5:] if int.from_bytes(body[:8], "big") in listed)
    entry = decode_entry(body, DigestType.CRC32C, where="test")
    place = Path(log.path).resolve().relative_to((world("cluster") / "clean").resolve())
    with (disks / place).open("r+b") as file:
        file.seek(at + 4)
        changed = change(entry)
        assert len(changed) == len(body)
        assert changed != body
        file.write(changed)
    return entry


def test_a_bit_flipped_in_one_copy(disks: Path, tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """Covered by the other bookie's copy: a note, and no entry is missing."""

    def flip(entry: Entry) -> bytes:
        body = bytearray(encode_entry(entry))
        body[34] ^= 4  # of the digest
        return bytes(body)

    ledger_id = _change_a_record(disks, flip).ledger_id
    path = _import(disks, tmp_path / "s", cli)
    info = cli("--store", path, "ledgers", "info", ledger_id, "-o", "json").json
    assert info["missing"] == []
    (row,) = (row for row in info["coverage"]["bookies"] if row["bookie"] == "bk2test")
    assert (row["expected"] - row["held"], row["missing"], row["damaged"]) == (1, 0, 1)
    (found,) = (row for row in cli.json(path, "store check") if row["code"] == "copies-damaged")
    context = {"ledgerId": ledger_id, "bookies": {"bk2test": 1}, "severity": "note"}
    assert (found["severity"], found["context"]) == ("note", context)
    assert "bk2test: 1 damaged" in found["message"]
    assert "each has another copy" in found["message"]


def test_a_copy_with_other_bytes(disks: Path, tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """Its digest is right: nothing proves which copy is; one is named with ledger and bookie, neither is missing."""

    def rewrite(entry: Entry) -> bytes:
        payload = bytearray(entry.payload)
        payload[-1] ^= 1
        return encode_entry(replace(entry, payload=memoryview(bytes(payload))))

    entry = _change_a_record(disks, rewrite)
    path = _import(disks, tmp_path / "s", cli)
    coverage = cli("--store", path, "ledgers", "info", entry.ledger_id, "-o", "json").json["coverage"]
    differing = {row["bookie"]: row["differing"] for row in coverage["bookies"]}
    assert (sum(differing.values()), coverage["underReplicated"]) == (1, 0)
    rows = [row for row in cli("--store", path, "store", "check", "-o", "json").json if row["code"] == "copies-differ"]
    assert rows  # one for each file of the bookie that has the entry
    for row in rows:
        assert (row["context"]["ledgerId"], differing[row["context"]["bookie"]]) == (entry.ledger_id, 1)
        assert f"1 entry of ledger {entry.ledger_id} in it, of bookie" in row["message"]


def test_engines_find_the_same_copies(tmp_path: Path, cli: Cli) -> None:
    source, path = world("cluster") / "clean", tmp_path / "s"
    cli("--store", path, "store", "import", "standalone", source, "--jobs", "2", "-q")
    with (
        open_store(path) as store,
        store.read() as txn,
        open_store(imported("cluster", "clean")) as other,
        other.read() as there,
    ):
        assert list(iter_all_copies(txn)) == list(iter_all_copies(there))


@deep_but_for((1,), "absent", [("bk1test",), ("bk0test", "bk2test")])
@pytest.mark.usefixtures("damages_stores")
def test_bookies_that_were_not_imported(absent: tuple[str, ...], disks: Path, tmp_path: Path, cli: Cli) -> None:
    """What they should have is unknown, never lost."""
    for bookie in absent:
        (disks / f"bookkeeper{bookie[2]}").unlink()
    path = _import(disks, tmp_path / "s", cli)
    there = [bookie for bookie in BOOKIES if bookie not in absent]
    with open_store(path) as store, store.read() as txn:
        held = held_by(iter_logs(txn))
        assert has_copies(txn) == (len(there) > 1)
        assert assert_coverage_is_right(txn, held, there) == 0
        unseen = 0
        for ledger_id in iter_ledger_ids(txn):
            ledger = read_ledger(txn, ledger_id)
            gaps = list(iter_entry_gaps(txn, ledger, missing_ranges(txn, ledger)))
            seen = {entry for bookie in there for entry in held.get((bookie, ledger_id), ())}
            expected = [entry for entry in range(ledger.last_entry_id + 1) if entry not in seen]
            assert [entry for gap in gaps for entry in range(gap.first, gap.last + 1)] == expected
            assert all(set(gap.bookies) <= set(absent) and gap.bookies for gap in gaps)
            assert count_unseen(txn, ledger, missing_ranges(txn, ledger))[0] == len(expected)
            unseen += len(expected)
    assert (unseen > 500) == (len(there) == 1)
    answer = cli("--store", path, "ledgers", "underreplicated", "-o", "json").ends(1)
    assert {(row["short"], row["lost"]) for row in answer.json} == {(0, 0)}
    notes = {row["context"]["bookie"] for row in cli.json(path, "store check") if row["code"] == "bookie-not-imported"}
    assert notes == set(absent)


@pytest.fixture
def one_of_three(disks: Path, tmp_path: Path, cli: Cli, damages_stores: None) -> Path:
    """A store of bk0test alone: of each ensemble's entries a third is on the other two."""
    for name in ("bookkeeper1", "bookkeeper2"):
        (disks / name).unlink()
    return _import(disks, tmp_path / "s", cli)


@deep_but_for(
    (0, 1),
    "words",
    [
        "topics stats public/default/plain",
        "topics read public/default/plain -n 1",
        "topics reset-cursor public/default/plain -s half -m earliest --dry-run",
        "topics analyze-backlog public/default/plain -s half",
    ],
)
def test_answers_name_what_is_not_seen(words: str, one_of_three: Path, cli: Cli) -> None:
    """Ledger 8 of ``plain`` is on bk1test, bk0test, bk2test in this order: entries 1, 4, 7 … are on bk0test and bk2test, 2, 5 … not."""
    answer = cli("--store", one_of_three, *words.split())
    assert answer.exit_code == 1
    assert "1 of 3 bookies imported: entries 2, 5, 8 and 10 more of ledger 8 not seen" in answer.stderr
    assert "store add bookie bk1test=DIR,DIR" in answer.stderr
    assert "lost" not in answer.stderr


def test_two_of_three_see_every_entry(disks: Path, tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    (disks / "bookkeeper1").unlink()
    path = _import(disks, tmp_path / "s", cli)
    answer = cli("--store", path, "topics", "stats", "--all-topics", "-o", "jsonl")
    assert (answer.exit_code, answer.stderr) == (0, "")
    sound = cli("--store", imported("cluster", "clean"), "topics", "stats", "--all-topics", "-o", "jsonl")
    assert answer.stdout == sound.stdout


def test_what_the_only_bookie_holds_is_what_its_files_have(one_of_three: Path) -> None:
    """Also of ledgers whose first entry it never had."""
    with open_store(one_of_three) as store, store.read() as txn:
        disks, files = read_disks(txn), held_by(iter_logs(txn))
        for bookie, ledger_id in files:
            held = read_held(txn, ledger_id, disks)
            assert held is not None
            assert {*held[bookie].tolist()} == files[bookie, ledger_id]
    assert any(0 not in entries for entries in files.values())


def test_what_is_not_seen_is_not_called_lost(one_of_three: Path, cli: Cli) -> None:
    run = ("--store", one_of_three)
    missing = cli(*run, "ledgers", "missing", "-o", "json")
    assert (missing.exit_code, {row["reason"] for row in missing.json}) == (1, {"not-imported"})
    assert {row["cure"] for row in missing.json} == {"pulsar-admin store add bookie bk1test=DIR,DIR"}
    info = cli(*run, "ledgers", "info", 8, "-o", "json").json
    assert (info["lost"], info["missing"][:2], info["coverage"]["lost"]) == ("not-imported", [[2, 2], [5, 5]], 0)
    read = cli(*run, "topics", "get-message-by-id", "public/default/plain", "-l", 8, "-e", 5)
    assert "entry 8:5 is not seen: bk1test, bk2test, which may have it, are not imported" in read.stderr
    forget = cli(*run, "ledgers", "forget", 8, "--dry-run")
    assert forget.exit_code == 3
    assert "13 entries of ledger 8 may be on bk1test, bk2test, which are not imported" in forget.stderr
    codes = {row["code"]: row["severity"] for row in cli(*run, "store", "check", "-o", "json").json}
    assert codes["entries-not-seen"] == "note"
    assert "entries-missing" not in codes


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize(
    ("owner", "code"),
    [("public/default/plain", "ledger-without-metadata"), ("schema", "schema-ledger-without-metadata")],
)
def test_a_ledger_without_metadata_or_entries_may_be_on_bookies_that_were_not_imported(
    owner: str, code: str, tmp_path: Path, cli: Cli
) -> None:
    """Nothing gives it up: not the finding's command, nor ``ledgers forget``, nor a hint."""
    run = ("--store", tmp_path / "s")
    zookeeper = world(CLUSTER) / "clean" / "zookeeper"
    assert cli(*run, "store", "import", "cluster", "--zookeeper", zookeeper).exit_code == 0
    listed = cli(*run, "topics", "stats-internal", "public/default/avro" if owner == "schema" else owner).json
    ledger_id = listed["schemaLedgers" if owner == "schema" else "ledgers"][0]["ledgerId"]
    lose_nodes(tmp_path / "s", ledger_path(ledger_id))
    rows = cli(*run, "doctor", "-o", "jsonl").json_lines
    (row,) = [row for row in rows if row["evidence"].get("ledgerId") == ledger_id]
    assert (row["code"], row["severity"], "lost" in row["message"]) == (code, "critical", False)
    assert row["mend"].endswith("store add bookie bk0test=DIR,DIR")
    for words in (("restore", ledger_id), ("missing", ledger_id)):
        answer = cli(*run, "ledgers", *words)
        assert answer.exit_code != 0
        assert "store add bookie bk0test=DIR,DIR" in answer.stderr
        assert "forget" not in answer.stderr
    info = cli(*run, "ledgers", "info", ledger_id, "-o", "json")
    assert (info.exit_code, info.json["state"], info.json["lost"]) == (1, "UNKNOWN", "no-ledger")
    refused = cli(*run, "ledgers", "forget", ledger_id, "-o", "json")
    assert (refused.exit_code, refused.error["code"]) == (3, "refused")
    assert "bk0test, bk1test, bk2test, which are not imported, may have entries of it" in refused.error["message"]
    assert cli(*run, "ledgers", "forget", ledger_id, "--force").exit_code in (0, 1)


@pytest.mark.usefixtures("damages_stores")
def test_a_ledger_is_not_restored_without_what_bookies_that_were_not_imported_may_have(
    tmp_path: Path, cli: Cli
) -> None:
    """bk2test has the first two of three entries of these: a list, a compacted view, a cursor; and fewer copies than there are."""
    run, clean = ("--store", tmp_path / "s"), world(CLUSTER) / "clean"
    words = ("--zookeeper", clean / "zookeeper", "--bookie", clean / "bookkeeper2")
    assert cli(*run, "store", "import", "cluster", *words).exit_code == 0
    lost = {
        65: "ledger-without-metadata",
        76: "compacted-ledger-without-metadata",
        99: "cursor-ledger-without-metadata",
    }
    lose_nodes(tmp_path / "s", *map(ledger_path, lost))
    rows = {row["evidence"].get("ledgerId"): row for row in cli(*run, "doctor", "-o", "jsonl").json_lines}
    bring = "pulsar-admin store add bookie bk0test=DIR,DIR"
    assert {one: (rows[one]["code"], rows[one]["mend"]) for one in lost} == {one: (lost[one], bring) for one in lost}
    assert {row["cure"] for row in cli(*run, "ledgers", "missing", *lost, "-o", "jsonl").json_lines} == {bring}
    for ledger_id in lost:
        for verb in ("restore", "forget"):
            refused = cli(*run, "ledgers", verb, ledger_id, "-o", "json")
            assert (refused.exit_code, bring in refused.error["hint"]) == (3, True)
    put_back(tmp_path / "s", clean / "zookeeper", 0x1E0)
    first = cli(*run, "store", "recover", "--dry-run", "-o", "jsonl").json_lines[0]
    assert (first["after"]["level"], bring in first["warnings"][0]) == ("B", True)


def test_a_compacted_ledger_that_is_not_seen_lacks_no_message(one_of_three: Path, cli: Cli) -> None:
    """Nothing is known of a view of which two thirds were not imported."""
    result = cli.on(one_of_three, "compaction verify acme/orders/compacted-single -o json")
    result.fails(6, "not-seen", "may be on bk1test and bk2test, not imported")


def test_delayed_messages_and_buckets_that_are_not_seen_are_not_called_lost(one_of_three: Path, cli: Cli) -> None:
    rows = cli.json(one_of_three, "delayed verify acme/delayed/reminders")
    assert {one["kind"] for row in rows for one in row["findings"]} == {"waiting-not-seen", "bucket-not-seen"}
    (workers,) = (row for row in rows if row["subscription"] == "workers")
    assert 0 < workers["outside"] < workers["waiting"]  # what is not of the bucket's ledgers


def test_a_cursor_whose_ledger_is_not_seen_is_not_called_lost(tmp_path: Path, cli: Cli) -> None:
    run = ("--store", tmp_path / "s")
    zookeeper = world(CLUSTER) / "clean" / "zookeeper"
    assert cli(*run, "store", "import", "cluster", "--zookeeper", zookeeper).exit_code == 0
    of_cursors = [row for row in cli(*run, "store", "check", "-o", "json").json if "subscription" in row["where"]]
    assert [(row["severity"], row["code"]) for row in of_cursors] == [("note", "entries-not-seen")]
    words = ("acme/delayed/reminders", "-s", "workers")
    why = cli("-q", *run, "topics", "why", *words, "-o", "json").json
    assert "cursor-lost" not in [reason["code"] for reason in why["reasons"]]
    first = next(reason for reason in why["reasons"] if "cursorLedger" in reason["evidence"])
    assert (first["code"], first["evidence"]["bookies"]) == ("not-imported", ["bk0test", "bk1test", "bk2test"])
    moved = cli(*run, "topics", "reset-cursor", *words, "-m", "earliest", "--dry-run")
    assert "the position of workers is unknown" in moved.stdout + moved.stderr
    for told in (
        "subscriptions T --table",
        "describe T",
        "analyze-backlog T -s workers",
        "peek-messages T -s workers",
        "stats T",
    ):
        shown = cli(*run, "topics", *told.replace("T", words[0], 1).split())
        assert "the position of workers is unknown" in shown.ends(1).stderr
    removed = cli(*run, "topics", "unsubscribe", *words, "--dry-run")
    assert "the position of workers is unknown" in removed.stdout
    topic = parse_topic(words[0])
    quota = {"limitSize": 1, "limitTime": -1, "policy": "consumer_backlog_eviction"}
    policies = json.dumps({"backlog_quota_map": {"destination_storage": quota}}).encode()
    put_values(tmp_path / "s", {topic.namespace.policies_path: policies})
    over = ("doctor", "--code", "backlog-over-quota", "-o", "jsonl")
    assert [row["where"] for row in cli(*run, *over).json_lines] == [f"{topic} audit"]
    lose_nodes(tmp_path / "s", topic.cursor_path("audit"))
    assert cli(*run, *over).json_lines == []
    compacted = parse_topic("acme/orders/compacted")
    put_values(
        tmp_path / "s", {compacted.cursor_path("__compaction"): encode_cursor_info(CursorInfo(99, Position(66, -1)))}
    )
    (view,) = cli(*run, "doctor", "--code", "compacted-view-unfit", "-o", "jsonl").json_lines
    assert "may still be referenced" in view["message"]
    status = cli(*run, "compaction", "status", compacted, "-o", "json").json
    assert ["the position of __compaction is unknown" in one for one in status["problems"]] == [True]
    plain = parse_topic("public/default/plain")
    ends = dict.fromkeys(("never", "half", "reset-me", "expire-me", "holes"), (-1, Position(151, -1)))
    for ledger_id, found in ((-1, 1), (99, 0)):
        cursors = {**ends, "__compaction": (ledger_id, Position(8, -1))}
        put_values(
            tmp_path / "s",
            {plain.cursor_path(name): encode_cursor_info(CursorInfo(*at)) for name, at in cursors.items()},
        )
        assert len(cli(*run, "doctor", "--code", "compaction-stale", "-o", "jsonl").json_lines) == found
    bookies = first["evidence"]["bookies"]
    row = json.dumps({"imported": bookies, "absent": [], "withoutJournal": bookies}).encode()
    write_rows(tmp_path / "s", lambda txn: txn.put("state", b"bookies", row))
    (view,) = cli(*run, "doctor", "--code", "compacted-view-unfit", "-o", "jsonl").json_lines
    assert view["mend"] == "pulsar-admin store refresh"
    key = cli(*run, "compaction", "explain", "acme/orders/compacted", "--key", "k0003")
    assert (key.exit_code, "no message has the key" in key.stderr) == (1, False)


@pytest.mark.parametrize(("imported_", "may_go_on"), [((0,), True), ((0, 2), False)])
def test_an_open_cursor_ledger_may_go_on_where_its_next_entry_would_be(
    imported_: Sequence[int], may_go_on: bool, tmp_path: Path, cli: Cli
) -> None:
    """It has 19 entries here; the next one would be on the other two bookies, and was acknowledged by none of both or by both."""
    source, run = world(CLUSTER) / "crashed", ("--store", tmp_path / "s")
    given = [word for number in imported_ for word in ("--bookie", source / f"bookkeeper{number}")]
    assert cli(*run, "store", "import", "cluster", "--zookeeper", source / "zookeeper", *given).exit_code == 0
    asked = ("topics", "why", "public/default/plain", "-s", "crash-holes", "-o", "json")
    told = [one["evidence"].get("cursorLedger") for one in cli(*run, *asked).json["reasons"]]
    assert (271 in told) is may_go_on
    found = cli(*run, "doctor", "--each", 1000, "--code", "entries-not-seen", "-o", "jsonl").json_lines
    assert any("'crash-holes'" in row["where"] for row in found) is may_go_on


def test_a_compacted_ledger_that_an_unseen_cursor_may_name(tmp_path: Path, cli: Cli) -> None:
    store, topic = copied(CLUSTER, "clean", tmp_path), parse_topic("acme/orders/compacted")
    run, names = ("--store", store), ("bk7", "bk8", "bk9")
    (view,) = cli(*run, "compaction", "status", topic, "-o", "jsonl").json_lines
    cookie = read_rows(store, lambda txn: read_node(txn, "/ledgers/cookies/bk0test").value)
    like = read_rows(store, lambda txn: find_metadata(txn, 65))
    assert like is not None
    unseen = replace(like, segments=(Segment(0, names),))
    values = {f"/ledgers/cookies/{name}": cookie.replace(b"bk0test", name.encode()) for name in names}
    values[ledger_path(150)] = encode_ledger_metadata(unseen)
    values[topic.cursor_path("__compaction")] = encode_cursor_info(CursorInfo(150, Position(66, -1)))
    put_values(store, values)
    with open_store(store, writable=True) as opened:
        opened.write(lambda txn: coverage.index_absent_bookies(opened, txn, (), None, {}, {}))
    rows = cli(*run, "doctor", "--each", 1000, "-o", "jsonl").json_lines
    assert [row["severity"] for row in rows if row["where"] == str(topic)] == ["note"]
    for words in (("run", topic), ("attach", topic, view["ledger"]["ledgerId"])):
        shown = cli(*run, "compaction", *words, "--dry-run")
        assert "the position of __compaction is unknown" in shown.stdout + shown.stderr


def test_what_bookies_may_have_of_open_ledgers_is_unknown_without_any_of_them(tmp_path: Path, cli: Cli) -> None:
    """Events of topic policies too: no topic has none, and no broker is said to refuse the topic."""
    run, topic = ("--store", tmp_path / "s"), "public/default/plain"
    assert (
        cli(*run, "store", "import", "cluster", "--zookeeper", world(CLUSTER) / "crashed" / "zookeeper").exit_code == 0
    )
    read = cli(*run, "topics", "read", "acme/orders/fresh-batched")
    assert "what ledger 263 may have from entry 0 on not seen" in read.ends(1).stderr
    empty = cli("-q", *run, "topics", "why", "acme/orders/fresh-batched", "-s", "crash-batch").stdout
    assert "no backlog here: the topic is empty; part of the topic was not imported." in empty
    assert "more may be written there, from 263:0 on" in " ".join(empty.split())
    ttl = cli(*run, "topics", "get-message-ttl", topic, "-o", "json").fails(6, "metadata-corrupt").error
    assert "what ledger 249 may have from entry 0 on not seen" in ttl["message"]
    assert "store add bookie bk0test=DIR,DIR" in ttl["hint"]
    why = cli(*run, "topics", "why", topic, "-s", "half", "-o", "json").json
    reasons = {one["code"]: one for one in why["reasons"]}
    assert (why["held"], "policies-unreadable" in reasons) == (False, False)
    assert "bk0test=DIR,DIR" in reasons["ttl-unknown"]["command"]


def test_a_compacted_view_whose_rest_was_not_imported_is_not_called_lost(one_of_three: Path, cli: Cli) -> None:
    topic, run = "persistent://acme/orders/compacted-single", ("--store", one_of_three)
    (problem,) = cli(*run, "compaction", "status", topic, "-o", "json").json["problems"]
    assert "lost" not in problem
    assert problem.endswith("not imported")
    assert cli(*run, "topics", "truncate", topic, "-y").exit_code in (0, 1)
    rows = cli(*run, "doctor", "--each", 1000, "-o", "jsonl").json_lines
    (row,) = [row for row in rows if row["code"] == "compacted-view-unfit"]
    assert (row["severity"], "cannot be attached again" in row["message"]) == ("note", False)
    assert "store add bookie bk" in row["mend"]


def test_bookies_that_come_later(disks: Path, one_of_three: Path, cli: Cli) -> None:
    """What the index of the first one had is counted for it; the commands that are printed bring them."""
    run = ("--store", one_of_three, "doctor", "--each", 1000, "-o", "jsonl")
    rows = [row for row in cli(*run).json_lines if "DIR" in row["mend"]]
    assert {row["code"] for row in rows} == {"entries-not-seen", "bookie-not-imported"}
    unseen = [row for row in rows if row["code"] == "entries-not-seen"]
    assert all(f" on {row['evidence']['bookie']}" in row["message"] for row in unseen)
    for number in (1, 2):
        added = world("cluster") / "clean" / f"bookkeeper{number}"
        command = next(row["mend"] for row in rows if f"add bookie bk{number}test=DIR" in row["mend"])
        assert cli("--store", one_of_three, *shlex.split(command.replace("DIR", str(added)))[1:], "-q").exit_code == 0
    assert not {row["code"] for row in cli(*run).json_lines} & {"entries-not-seen", "bookie-not-imported"}
    with open_store(one_of_three) as store, store.read() as txn:
        held = held_by(iter_logs(txn))
        assert copied_entries(txn) == held
        assert assert_coverage_is_right(txn, held) == 0
    assert cli("--store", one_of_three, "ledgers", "underreplicated", "-o", "json").json == []
    assert cli("--store", one_of_three, "store", "check", "--deep").exit_code == 0


def test_no_bookie_holds_a_ledger_that_was_written_here(tmp_path: Path, cli: Cli) -> None:
    path = copied(CLUSTER, "clean", tmp_path)
    cli.done("--store", path, "topics", "set-message-ttl", "public/default/plain", "-t", "60", "-o", "json")
    with open_store(path) as store, store.read() as txn:
        written = max(iter_ledger_ids(txn))
        assert read_held(txn, written, read_disks(txn)) is None
        assert read_held(txn, 9, read_disks(txn)).keys() <= {*BOOKIES}


DERIVED_DAMAGE: dict[str, set[str]] = {
    "gone": set(),
    "no such file": {"copies-without-file"},
    "a short key": {"copies-row-damaged"},
}
"""What is told of a row of copies beside ``index-differs``."""


# -- our own rows ---------------------------------------------------------------------------------------------------------


@deep_but_for((0, 2), "damage", DERIVED_DAMAGE)
@pytest.mark.usefixtures("damages_stores")
def test_damage_of_our_rows_is_found_and_healed(damage: str, tmp_path: Path, cli: Cli, whole_cli: Cli) -> None:
    path = Path(shutil.copytree(imported("cluster", "clean"), tmp_path / "s"))
    with open_store(path, writable=True) as store:
        with store.read() as txn:
            rows = [(key, bytes(value)) for key, value in txn.items("copies")]
        key, value = next(row for row in rows if row[0][:8] == (8).to_bytes(8, "big"))

        def work(txn: Txn) -> None:
            if damage == "gone":
                txn.delete("copies", key)
            else:
                txn.put("copies", key[:8] + (b"\0\0\1\0" if damage == "no such file" else b"x"), value)

        store.write(work)
    for words in ("ledgers info 8", "ledgers underreplicated", "topics stats public/default/plain", "store check"):
        assert cli("--store", path, *words.split()).exit_code in (0, 1, 6)
    found = [row for row in diagnoses(whole_cli, path, "--deep") if row["code"].startswith(("copies-", "index-"))]
    assert {row["code"] for row in found} == {"index-differs"} | DERIVED_DAMAGE[damage]
    for command in {row["mend"] for row in found}:
        run_printed(whole_cli, command)
    assert cli("--store", path, "store", "check", "--deep").exit_code == 0
    assert cli("--store", path, "ledgers", "underreplicated", "-o", "json").json == []


# -- older stores ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("damages_stores")
def test_a_store_of_before_says_that_it_does_not_know(tmp_path: Path, cli: Cli, whole_cli: Cli) -> None:
    path = tmp_path / "s"
    shutil.copytree(imported("cluster", "clean"), path)

    def forget(txn: Txn) -> None:
        txn.clear("copies")
        txn.delete("state", b"copies")

    write_rows(path, forget)
    assert cli("--store", path, "ledgers", "info", 8, "-o", "json").json["coverage"] is None
    answer = cli("--store", path, "ledgers", "underreplicated", "-o", "json")
    assert (answer.exit_code, answer.json) == (1, [])
    assert "store index --rebuild" in answer.stderr
    (told,) = [row for row in diagnoses(whole_cli, path, "--deep") if row["code"] == "copies-unknown"]
    run_printed(whole_cli, told["mend"])
    with (
        open_store(path) as store,
        store.read() as txn,
        open_store(imported("cluster", "clean")) as other,
        other.read() as fresh,
    ):
        assert copied_entries(txn) == copied_entries(fresh)
    assert cli("--store", path, "ledgers", "underreplicated", "-o", "json").exit_code == 0


def test_a_store_that_does_not_know_whose_disks_it_has(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """As of an older version: its rows have no bookie, its ``store.json`` the bookies' directories alone."""
    path = Path(shutil.copytree(imported("cluster", "clean"), tmp_path / "s"))
    with open_store(path, writable=True) as store:
        with store.read() as txn:
            logs = list(iter_logs(txn))

        def forget(txn: Txn) -> None:
            for key, row in list(txn.items("logs")):
                fields = json.loads(bytes(row))
                assert fields.pop("bookie")
                txn.put("logs", bytes(key), json.dumps(fields).encode())

        store.write(forget)
        (source,) = store.info.sources
        store.update_info(sources=(source | {"bookies": [row["ledgers"][0] for row in source["bookies"]]},))
    answer = cli("--store", path, "ledgers", "underreplicated", "-o", "json")
    assert (answer.exit_code, answer.json) == (1, [])
    assert "which bookie its files belong to: pulsar-admin store refresh" in answer.stderr
    assert "copies-unknown" in {row["code"] for row in cli("--store", path, "store", "check", "-o", "json").json}
    assert cli("--store", path, "store", "refresh", "-q").exit_code == 0
    assert cli("--store", path, "ledgers", "underreplicated", "-o", "json").exit_code == 0
    with open_store(path) as store, store.read() as txn:
        assert [(log.bookie, log.path) for log in iter_logs(txn)] == [(log.bookie, log.path) for log in logs]
        assert store.info.sources[0]["bookies"] == source["bookies"]


# -- the end of ledgers that nobody closed --------------------------------------------------------------------------------


def test_everything_acknowledged_before_the_crash_is_found() -> None:
    """``oracle.json``: crash: what the producers were told. A recovery keeps all of it, whichever bookie answers first."""
    acknowledged = {
        (row["id"][0], row["id"][1]) for rows in _acknowledged().values() for row in rows if row["res"] == "Result.Ok"
    }
    ends: dict[int, Any] = {}
    with open_store(imported("cluster", "crashed")) as store, store.read() as txn:
        for ledger_id in {ledger_id for ledger_id, _ in acknowledged}:
            ledger = read_ledger(txn, ledger_id)
            ends[ledger_id] = (ledger.last_entry_id, read_open_end(txn, ledger))
    assert len(acknowledged) > 500
    assert sum(end is not None for _, end in ends.values()) == 2
    for ledger_id, entry_id in acknowledged:
        last, end = ends[ledger_id]
        assert entry_id <= (last if end is None else end.kept)
    assert {end.verdict for _, end in ends.values() if end is not None} == {"final"}


def _acknowledged() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = oracle("cluster")["crash"]["acknowledged_to_producer"]
    return found


def test_an_open_ledger_without_the_bookies_that_may_have_more(tmp_path: Path, cli: Cli) -> None:
    """One bookie of three: of the next entry's two bookies one or both were not imported, and both may be needed to say no."""
    disks = _linked(tmp_path / "cluster", "crashed")
    for name in ("bookkeeper0", "bookkeeper2"):
        (disks / name).unlink()
    path = _import(disks, tmp_path / "s", cli)
    verdicts: dict[str, int] = defaultdict(int)
    with open_store(path) as store, store.read() as txn:
        for ledger_id in iter_ledger_ids(txn):
            ledger = read_ledger(txn, ledger_id)
            end = read_open_end(txn, ledger)
            if end is not None:
                verdicts[end.verdict] += 1
                behind = upstream_write_set(_metadata(ledger), end.last_entry_id + 1)
                assert end.verdict == ("final" if "bk1test" in behind else "open")
                assert ledger.metadata.state is not LedgerState.CLOSED
    assert verdicts["final"] > 0
    assert verdicts["open"] > 0


def _metadata(ledger: Ledger) -> LedgerMetadata:
    assert ledger.metadata is not None
    return ledger.metadata


def test_of_a_gap_each_run_of_entries_names_the_absent_bookies_that_should_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Entry n is written to bookies n and n + 1 of three, of which the last was not imported."""
    monkeypatch.setattr(coverage, "unseen_places", lambda txn: {"c:3181": "c:3181"})
    made = closed_ledger("a:3181", 5, 50, {})
    segment = Segment(0, ("a:3181", "b:3181", "c:3181"))
    metadata = replace(made, ensemble_size=3, write_quorum=2, segments=(segment,))
    found = coverage.iter_entry_gaps(None, Ledger(1, metadata, None, 4, 50), [(0, 4)])
    absent = ("c:3181",)
    assert [(gap.first, gap.last, gap.bookies) for gap in found] == [
        (0, 0, ()),
        (1, 2, absent),
        (3, 3, ()),
        (4, 4, absent),
    ]
