"""Ledgers written by this toolkit in an exported directory: what a bookie needs to serve them, byte by byte."""

from pathlib import Path

import pytest

from pulsar_admin.store.codec.dbledger import decode_location_row
from pulsar_admin.store.codec.entry import decode_entry
from pulsar_admin.store.codec.entrylog import decode_header, decode_ledgers_map, log_file_name
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.codec.logscan import Record, iter_records
from pulsar_admin.store.codec.rocksvalue import decode_counter, encode_counter
from pulsar_admin.store.db.own_ledgers import SEQUENCE_KEY
from pulsar_admin.store.sources.rocksdb import read_values
from tests.conftest import Cli
from tests.decoders import decode_ledgers_row
from tests.stores import apply_values, copied, read_rows, rocksdb_rows
from tests.worlds import assert_unchanged, scratch_copy, world

BATCHED, SINGLE = "acme/orders/compacted", "acme/orders/compacted-single"


@pytest.fixture
def store(tmp_path: Path, cli: Cli) -> Path:
    """A store with two compacted ledgers of its own."""
    path = copied("small", "clean", tmp_path)
    for topic in (BATCHED, SINGLE):
        assert cli("--store", path, "compaction", "run", topic, "--format", "legacy", "--from-start").exit_code == 0
    return path


def _ledgers(cli: Cli, store: Path) -> list[int]:
    return [cli.json(store, f"compaction status {topic}")["ledger"]["ledgerId"] for topic in (BATCHED, SINGLE)]


def _entries(current: Path, ledgers: list[int], limit_bytes: int) -> dict[int, list[int]]:
    """Return the entries of LEDGERS that rows of the index lead to, each in a log that is no longer than its limit."""
    found: dict[int, list[int]] = {ledger_id: [] for ledger_id in ledgers}
    for key, value in rocksdb_rows(current / "locations").items():
        row = decode_location_row(key, value, "locations")
        if row.ledger_id in found:
            data = (current / log_file_name(row.log_id)).read_bytes()
            size = int.from_bytes(data[row.pos - 4 : row.pos], "big")
            assert row.pos + size <= limit_bytes
            entry = decode_entry(data[row.pos : row.pos + size], None, where="")
            assert (entry.ledger_id, entry.entry_id) == (row.ledger_id, row.entry_id)
            found[row.ledger_id].append(row.entry_id)
    return {ledger_id: sorted(entries) for ledger_id, entries in found.items()}


def test_what_a_bookie_needs(store: Path, tmp_path: Path, cli: Cli) -> None:
    source, target = world("small") / "clean", tmp_path / "exported"
    ledgers = _ledgers(cli, store)
    with assert_unchanged(source):
        report = cli("--store", store, "store", "export", "standalone", target, "-o", "json").json
    assert [row["ledgerId"] for row in report["ledgers"]] == ledgers
    before, after = source / "bookkeeper" / "current", target / "bookkeeper" / "current"
    newest = int((before / "lastId").read_text(), 16)
    assert (after / "lastId").read_text() == f"{newest + 1:x}\n"
    log = after / log_file_name(newest + 1)
    assert {path.name for path in after.iterdir()} == {path.name for path in before.iterdir()} | {log.name}

    data = log.read_bytes()
    header = decode_header(data, log.name)
    sizes = decode_ledgers_map(data, header, log.name)
    records = list(iter_records(memoryview(data)[: header.ledgers_map_offset], log.name, 1024))
    assert all(isinstance(item, Record) for item in records)
    assert list(sizes) == ledgers
    assert sum(sizes.values()) == header.ledgers_map_offset - 1024

    found = _entries(after, ledgers, header.ledgers_map_offset)
    assert found == {row["ledgerId"]: list(range(row["entries"])) for row in report["ledgers"]}
    assert {row["ledgerId"]: row["bytes"] for row in report["ledgers"]} == {
        ledger_id: size - len(found[ledger_id]) * (4 + 32 + 8) for ledger_id, size in sizes.items()
    }

    rows = dict(decode_ledgers_row(key, value) for key, value in rocksdb_rows(after / "ledgers").items())
    theirs = rows[91]  # the compacted ledger that the broker wrote
    for ledger_id in ledgers:
        assert (rows[ledger_id].exists, rows[ledger_id].fenced) == (True, False)
        assert rows[ledger_id].master_key == theirs.master_key
    assert read_values(target / "metadata", [SEQUENCE_KEY]) == {SEQUENCE_KEY: encode_counter(max(ledgers) + 1)}


def test_ids_go_on_above_a_ledger_that_was_made_again(tmp_path: Path, cli: Cli) -> None:
    """As in metadata of an older state: its sequence would give the ids of entries on the disks again."""
    data = scratch_copy("small", "clean", tmp_path)
    store, target = tmp_path / "store", tmp_path / "exported"
    apply_values(data / "metadata", {SEQUENCE_KEY: encode_counter(18), ledger_path(18).encode(): None})
    cli("--store", store, "store", "import", "standalone", data)
    assert cli("--store", store, "ledgers", "restore", "18").exit_code == 0
    assert cli("--store", store, "store", "export", "standalone", target).exit_code == 0
    largest = read_rows(store, lambda txn: max(int.from_bytes(key, "big") for key, _ in txn.items("times")))
    raw = read_values(target / "metadata", [SEQUENCE_KEY])
    assert decode_counter(raw[SEQUENCE_KEY], "sequence") > largest > 18


def test_entry_logs_that_are_full_are_followed_by_the_next_number(
    store: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row leads to its entry in the log that has it; no log is longer than its limit."""
    limit_bytes = 4096
    monkeypatch.setattr("pulsar_admin.store.transfer.ledger_export.LOG_LIMIT_BYTES", limit_bytes)
    before = world("small") / "clean" / "bookkeeper" / "current"
    ledgers, target = _ledgers(cli, store), tmp_path / "exported"
    report = cli("--store", store, "store", "export", "standalone", target, "-o", "json").json
    after, newest = target / "bookkeeper" / "current", int((before / "lastId").read_text(), 16)
    made = sorted({path.name for path in after.glob("*.log")} - {path.name for path in before.glob("*.log")})
    assert len(made) > 2
    assert made == sorted(log_file_name(newest + 1 + number) for number in range(len(made)))
    assert int((after / "lastId").read_text(), 16) == newest + len(made)
    found = _entries(after, ledgers, limit_bytes)
    assert found == {row["ledgerId"]: list(range(row["entries"])) for row in report["ledgers"]}
    first, again = (after / made[0]).read_bytes(), tmp_path / "again"
    full_bytes = int.from_bytes(first[8:16], "big")  # where its records end
    monkeypatch.setattr("pulsar_admin.store.transfer.ledger_export.LOG_LIMIT_BYTES", full_bytes)
    assert cli("--store", store, "store", "export", "standalone", again).exit_code == 0
    assert (again / "bookkeeper" / "current" / made[0]).read_bytes() == first


def test_in_place_twice(tmp_path: Path, cli: Cli) -> None:
    """Each export brings what is new since the last; an undone ledger goes again."""
    data = scratch_copy("small", "clean", tmp_path)
    store = tmp_path / "store"
    cli("--store", store, "store", "import", "standalone", data)
    export = ("--store", store, "store", "export", "standalone", data, "--in-place", "--yes", "-o", "json")
    first = cli("--store", store, "compaction", "run", BATCHED, "--from-start", "-o", "json").json
    assert [row["ledgerId"] for row in cli(*export).json["ledgers"]] == [first["after"]["compactedLedger"]]
    assert cli(*export).json["ledgers"] == []
    second = cli("--store", store, "compaction", "run", SINGLE, "--from-start", "-o", "json").json
    assert [row["ledgerId"] for row in cli(*export).json["ledgers"]] == [second["after"]["compactedLedger"]]
    cli("--store", store, "store", "undo", first["change"])
    report = cli(*export).json
    assert report["ledgers"] == []
    assert {row["action"] for row in report["nodes"] if row["path"].startswith("/ledgers")} == {"delete", "create"}
    again = tmp_path / "again"
    assert cli("--store", again, "store", "import", "standalone", data).exit_code == 0
    for topic in (BATCHED, SINGLE):
        answers = [cli("--store", path, "compaction", "read", topic, "-o", "jsonl").stdout for path in (store, again)]
        assert answers[0] == answers[1]
