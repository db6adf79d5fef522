"""``ledgers``: every ledger of the recorded worlds, and ledgers that lost something."""

from __future__ import annotations

from pathlib import Path

from pulsar_admin.store.db.blocks import ledger_key
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import tree_key
from tests.conftest import Cli
from tests.stores import copied, imported
from tests.worlds import oracle, scratch_copy

PLAIN = "persistent://public/default/plain"


def test_list_agrees_with_the_broker(cli: Cli) -> None:
    rows = {
        row["ledgerId"]: row for row in cli("--store", imported("small", "clean"), "ledgers", "list", "-o", "json").json
    }
    for topic, answers in oracle("small")["topics"].items():
        for listed in answers["internal_stats"]["ledgers"]:
            row = rows[listed["ledgerId"]]
            assert f"persistent://{topic}" in {owner["topic"] for owner in row["owners"]}
            if listed["entries"]:  # an open ledger has no count there
                assert (row["entries"], row["size"], row["missingEntries"]) == (listed["entries"], listed["size"], 0)
    assert list(rows) == sorted(rows)
    assert {row["state"] for row in rows.values()} == {"CLOSED", "GONE"}


def test_list_of_one_topic(cli: Cli) -> None:
    rows = cli(
        "--store", imported("small", "clean"), "ledgers", "list", "--topic", "default/plain", "-o", "jsonl"
    ).json_lines
    assert rows[0]["ledgerId"] == 9
    assert {owner["topic"] for row in rows for owner in row["owners"]} == {PLAIN}


def test_info(cli: Cli) -> None:
    document = cli("--store", imported("small", "clean"), "ledgers", "info", "9").json
    assert (document["state"], document["entries"], document["size"], document["lastEntryId"]) == (
        "CLOSED",
        25,
        3987,
        24,
    )
    assert document["metadata"]["customMetadata"]["pulsar/managed-ledger"] == "public/default/persistent/plain"
    assert document["metadata"]["digestType"] == "CRC32C"
    assert [Path(file).name for file in document["files"]] == ["0.log"]
    assert document["indexed"]["entriesWithBrokerTime"] == 25
    several = cli("--store", imported("small", "clean"), "ledgers", "info", "9", "99999", "-o", "json")
    assert several.exit_code == 1
    assert [row["ledgerId"] for row in several.json] == [9]


def test_entries(cli: Cli) -> None:
    store = imported("small", "clean")
    rows = cli("--store", store, "ledgers", "entries", "9", "-o", "json").json
    published = {row[1]: row[3] for row in oracle("small")["topics"]["public/default/plain"]["messages"] if row[0] == 9}
    assert {row["entryId"]: row["publishTime"] for row in rows} == published
    assert {row["state"] for row in rows} == {"ok"}
    part = cli(
        "--store", store, "ledgers", "entries", "9", "--from", "3", "--to", "7", "--limit", "4", "-o", "json"
    ).json
    assert [row["entryId"] for row in part] == [3, 4, 5, 6]
    assert (
        cli("--store", store, "ledgers", "entries", "9", "--from", "20", "--to", "21", "-o", "json").json == rows[20:22]
    )


def test_entries_of_a_compacted_ledger_have_the_times_of_what_they_hold(cli: Cli) -> None:
    """As the broker gave them to a reader with read-compacted; these have no tail behind the horizon."""
    recorded = oracle("small")["topics"]["acme/orders/compacted"]["compacted_messages"]
    wanted = {(ledger_id, entry_id): publish_ms for ledger_id, entry_id, _, publish_ms, *_ in recorded}
    store = imported("small", "clean")
    status = cli("--store", store, "compaction", "status", "acme/orders/compacted", "-o", "json").json
    rows = cli("--store", store, "ledgers", "entries", status["ledger"]["ledgerId"], "-o", "json").json
    assert [row["publishTime"] for row in rows] == [wanted[place] for place in sorted(wanted)]


def test_entries_of_a_cursor_ledger_have_no_time(cli: Cli) -> None:
    rows = cli("--store", imported("small", "clean"), "ledgers", "entries", "113", "-o", "json").json
    assert [(row["state"], row["publishTime"]) for row in rows] == [("ok", None), ("ok", None)]


def test_orphans(cli: Cli) -> None:
    rows = cli("--store", imported("small", "clean"), "ledgers", "orphans", "-o", "json").json
    unreferenced = {row["ledgerId"]: row["claims"] for row in rows if row["reason"] == "unreferenced"}
    # Schema ledgers of a lost race, and cursor ledgers whose cursors were closed cleanly.
    assert set(unreferenced) == {17, 20, 53, 69, 102, 111, 113}
    assert unreferenced[113]["pulsar/cursor"] == "holes"
    assert all(row["entries"] > 0 for row in rows if row["reason"] == "gone")


def test_missing_metadata_and_ledgers(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    path = copied("small", "clean", tmp_path)
    with open_store(path, writable=True) as store:
        store.write(lambda txn: txn.delete("tree", tree_key("/ledgers/00/0000/L0009")))
        store.write(lambda txn: txn.delete("tree", tree_key("/ledgers/00/0000/L0018")))
        store.write(lambda txn: (txn.delete("entries", ledger_key(18) + bytes(8)), txn.delete("times", ledger_key(18))))
    answer = cli("--store", path, "ledgers", "missing", "-o", "json")
    assert answer.exit_code == 1
    assert [(row["ledgerId"], row["reason"]) for row in answer.json] == [(9, "no-metadata"), (18, "no-ledger")]
    assert cli("--store", path, "ledgers", "missing", "10", "-o", "json").json == []


def damaged_source(tmp_path: Path) -> Path:
    """A world in which the record of entry 9:2 is overwritten in every file that holds it."""
    source = scratch_copy("small", "clean", tmp_path)
    log = source / "bookkeeper/current/0.log"
    data = bytearray(log.read_bytes())
    offset = 143_400  # entry 9:2
    body = bytes(data[offset + 4 : offset + 4 + 162])
    data[offset + 60] ^= 1
    log.write_bytes(data)
    (journal,) = (source / "bookkeeper/current").glob("*.txn")
    copy = bytearray(journal.read_bytes())
    copy[copy.index(body) + 56] ^= 1
    journal.write_bytes(copy)
    return source


def test_lost_and_damaged_entries(tmp_path: Path, cli: Cli) -> None:
    """The lost one is missing, named, and all others are read."""
    source = damaged_source(tmp_path)
    path = tmp_path / "s"
    assert cli("--store", path, "store", "import", "standalone", source).exit_code == 1
    missing = cli("--store", path, "ledgers", "missing", "-o", "json")
    assert missing.exit_code == 1
    (row,) = missing.json
    assert (row["ledgerId"], row["reason"], row["missingEntries"], row["ranges"]) == (9, "entries", 1, [[2, 2]])
    verified = cli("--store", path, "ledgers", "verify", "9", "-o", "json")
    assert verified.exit_code == 1
    assert (verified.json[0]["entries"], verified.json[0]["missingEntries"]) == (24, 1)
    entries = cli("--store", path, "ledgers", "entries", "9", "-o", "json")
    assert entries.exit_code == 1
    assert [row["entryId"] for row in entries.json if row["state"] == "missing"] == [2]
    assert len(entries.json) == 25


def test_verify_everything(cli: Cli) -> None:
    answer = cli("--store", imported("nometa", "crashed"), "ledgers", "verify", "-o", "json")
    assert answer.exit_code == 0
    assert sum(row["entries"] for row in answer.json) == 6902
    assert all((row["damagedEntries"], row["unverified"], row["metadataProblems"]) == (0, 0, []) for row in answer.json)


def test_verify_finds_what_rotted_since_import(tmp_path: Path, cli: Cli) -> None:
    source = scratch_copy("small", "clean", tmp_path)
    path = tmp_path / "s"
    cli("--store", path, "store", "import", "standalone", source)
    log = source / "bookkeeper/current/0.log"
    data = bytearray(log.read_bytes())
    data[143_400 + 60] ^= 1
    log.write_bytes(data)
    answer = cli("--store", path, "ledgers", "verify", "9", "10", "-o", "json")
    assert answer.exit_code == 1
    assert [row["damagedEntries"] for row in answer.json] == [1, 0]
    assert answer.json[0]["damaged"][0][0] == 2
    assert "digest" in answer.json[0]["damaged"][0][1]


def test_entries_whose_file_is_gone_are_not_told_as_there(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """Named with their number, for all ledgers and for some; a journal that holds nothing alone is nobody's loss."""
    source = scratch_copy("small", "clean", tmp_path)
    path = tmp_path / "s"
    assert cli("--store", path, "store", "import", "standalone", source).exit_code == 0
    (journal,) = (source / "bookkeeper/current").glob("*.txn")
    journal.rename(tmp_path / "journal")
    answer = cli("--store", path, "ledgers", "missing", "-o", "json")
    assert (answer.exit_code, answer.json, answer.stderr) == (0, [], "")
    (source / "bookkeeper/current/0.log").unlink()
    for ledgers, said in (((), "1,087 entries of it are"), (("73",), ""), (("8", "9"), " of it are not counted")):
        answer = cli("--store", path, "ledgers", "missing", *ledgers)
        assert answer.exit_code == (1 if said else 0)
        assert said in answer.stderr
        assert ("pulsar-admin store refresh" in answer.stderr) == bool(said)


def test_what_cannot_be_read_of_a_file_is_said_once(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    source = scratch_copy("small", "clean", tmp_path)
    path = tmp_path / "s"
    assert cli("--store", path, "store", "import", "standalone", source).exit_code == 0
    (source / "bookkeeper/current/0.log").unlink()
    answer = cli("--store", path, "topics", "read", "public/default/plain")
    (line,) = answer.stderr.splitlines()
    assert (answer.exit_code, "(300 problems; " in line, "pulsar-admin store refresh" in line) == (1, True, True)
