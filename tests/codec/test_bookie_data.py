"""The BookKeeper codecs on what a real bookie wrote, against BookKeeper's own index and metadata."""

from collections import defaultdict
from pathlib import Path

import pytest
from rocksdict import AccessType, Options, Rdict

from pulsar_admin.store.codec import entrylog, logscan
from pulsar_admin.store.codec.bookie import decode_cookie, decode_last_id, encode_cookie, encode_last_mark
from pulsar_admin.store.codec.dbledger import LedgerData, decode_location_row, encode_ledgers_row
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.entry import Entry, decode_entry
from pulsar_admin.store.codec.journal import Fence, JournalEntry, MasterKey, Padding, journal_id_of
from pulsar_admin.store.codec.journal import iter_records as iter_journal
from pulsar_admin.store.codec.ledgermetadata import (
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_id_of_path,
    ledger_path,
)
from pulsar_admin.store.codec.rocksvalue import decode_value
from tests.codec.bookkeeper_vectors import EMPTY_PASSWORD_KEY
from tests.decoders import decode_last_mark, decode_ledgers_row
from tests.encoders import encode_entry
from tests.worlds import STATES, copy_tree, world

WORLDS = ("small", "nometa")
COPIES = [(name, state) for name in WORLDS for state in STATES]

pytestmark = pytest.mark.parametrize(("name", "state"), COPIES)


def _current(name: str, state: str) -> Path:
    return world(name) / state / "bookkeeper" / "current"


def _logs(name: str, state: str) -> dict[int, bytes]:
    found = {entrylog.log_id_of(path.name): path.read_bytes() for path in _current(name, state).glob("*.log")}
    return {log_id: data for log_id, data in found.items() if log_id is not None and data}


def _journals(name: str, state: str) -> dict[int, bytes]:
    found = {journal_id_of(path.name): path.read_bytes() for path in _current(name, state).glob("*.txn")}
    return {journal_id: data for journal_id, data in found.items() if journal_id is not None}


def _rows(database: Path, scratch: Path) -> list[tuple[bytes, bytes]]:
    """Every row of a RocksDB, its write-ahead log included, read from a copy."""
    copy_tree(database, scratch / "copy")
    access = AccessType.secondary(str(scratch / "secondary"))
    rows = Rdict(str(scratch / "copy"), Options(raw_mode=True), access_type=access)
    found = list(rows.items())
    rows.close()
    # Raw mode: keys and values are bytes, whatever the library's types promise.
    return [(key, value) for key, value in found if isinstance(key, bytes) and isinstance(value, bytes)]


def _metadata(name: str, state: str, scratch: Path) -> dict[int, bytes]:
    nodes = _rows(world(name) / state / "metadata", scratch)
    ids = {ledger_id_of_path(key.decode()): value for key, value in nodes if key.startswith(b"/ledgers/")}
    return {ledger: decode_value(value, f"ledger {ledger}")[1] for ledger, value in ids.items() if ledger is not None}


def _entries(name: str, state: str) -> dict[int, dict[int, Entry]]:
    """Ledger -> entry id -> entry of all logs and journals, every digest checked."""
    ledgers: dict[int, dict[int, Entry]] = defaultdict(dict)
    for data in _logs(name, state).values():
        for item in logscan.iter_records(data, "log"):
            assert isinstance(item, logscan.Record)
            ledgers[item.ledger_id][item.entry_id] = decode_entry(item.body(data), None, where="log")
    for data in _journals(name, state).values():
        for record in iter_journal(data, "journal"):
            if isinstance(record, JournalEntry):
                entry = decode_entry(record.body(data), None, where="journal")
                ledgers[record.ledger_id].setdefault(record.entry_id, entry)
    return ledgers


def test_every_location_row_names_its_record(name: str, state: str, tmp_path: Path) -> None:
    records = {
        (log_id, item.offset + 4): (item.ledger_id, item.entry_id)
        for log_id, data in _logs(name, state).items()
        for item in logscan.iter_records(data, "log")
        if isinstance(item, logscan.Record)
    }
    rows = [decode_location_row(*row, "locations") for row in _rows(_current(name, state) / "locations", tmp_path)]
    assert len(rows) > 2500
    assert [row for row in rows if records.get((row.log_id, row.pos)) != (row.ledger_id, row.entry_id)] == []
    # No entry without a row: nothing was lost in between.
    assert {(row.ledger_id, row.entry_id) for row in rows} == set(records.values())


def test_logs_are_clean_and_headers_and_maps_agree_with_the_records(name: str, state: str) -> None:
    sealed = 0
    for log_id, data in _logs(name, state).items():
        items = list(logscan.iter_records(data, "log"))
        assert all(isinstance(item, logscan.Record) for item in items)
        header = entrylog.decode_header(data, entrylog.log_file_name(log_id))
        if not header.has_map:
            continue
        sealed += 1
        sizes: dict[int, int] = defaultdict(int)
        for item in items:
            assert isinstance(item, logscan.Record)
            sizes[item.ledger_id] += 4 + item.size
        assert entrylog.decode_ledgers_map(data, header, "log") == sizes
    assert sealed == 1


def test_no_digest_is_bad_and_lengths_add_up(name: str, state: str) -> None:
    checked = 0
    for entries in _entries(name, state).values():
        for entry_id, entry in entries.items():
            before = entries[entry_id - 1].length if entry_id else 0
            assert entry.length == before + len(entry.payload)
            assert -1 <= entry.last_add_confirmed < entry_id
            checked += 1
    assert checked > 2500


def test_entries_encode_to_the_same_bytes(name: str, state: str) -> None:
    for data in _logs(name, state).values():
        for item in logscan.iter_records(data, "log"):
            assert isinstance(item, logscan.Record)
            assert encode_entry(decode_entry(item.body(data), None, where="log")) == item.body(data)


def test_journals_end_cleanly_and_repeat_the_logs(name: str, state: str) -> None:
    in_logs = {
        (item.ledger_id, item.entry_id): bytes(item.body(data))
        for data in _logs(name, state).values()
        for item in logscan.iter_records(data, "log")
        if isinstance(item, logscan.Record)
    }
    only_in_journal = 0
    for data in _journals(name, state).values():
        assert data[:8] == b"BKLG\x00\x00\x00\x06"
        for record in iter_journal(data, "journal"):
            assert isinstance(record, JournalEntry | MasterKey | Fence | Padding)
            if isinstance(record, Padding):
                assert (record.offset + record.length) % 512 == 0
            elif isinstance(record, MasterKey):
                assert record.key == EMPTY_PASSWORD_KEY
            elif isinstance(record, JournalEntry):
                body = in_logs.get((record.ledger_id, record.entry_id))
                assert body is None or body == record.body(data)
                only_in_journal += body is None
    assert (only_in_journal > 500) == (state == "crashed")


def test_closed_ledgers_end_where_their_metadata_says(name: str, state: str, tmp_path: Path) -> None:
    ledgers = _entries(name, state)
    closed = 0
    for ledger_id, value in _metadata(name, state, tmp_path).items():
        metadata = decode_ledger_metadata(value, f"ledger {ledger_id}")
        entries = ledgers.get(ledger_id, {})
        assert (metadata.digest_type, metadata.password) in [(DigestType.CRC32C, b""), (DigestType.CRC32, b"")]
        assert {entry.digest_type for entry in entries.values()} <= {metadata.digest_type}
        if metadata.state is LedgerState.CLOSED:
            closed += 1
            assert sorted(entries) == list(range(metadata.last_entry_id + 1))
            assert metadata.length == (entries[metadata.last_entry_id].length if entries else 0)
    assert closed > 80


def test_metadata_encodes_to_the_same_value(name: str, state: str, tmp_path: Path) -> None:
    for ledger_id, value in _metadata(name, state, tmp_path).items():
        metadata: LedgerMetadata = decode_ledger_metadata(value, ledger_path(ledger_id))
        assert encode_ledger_metadata(metadata) == encode_ledger_metadata(metadata, value) == value


def test_ledger_rows(name: str, state: str, tmp_path: Path) -> None:
    stored = list(_rows(_current(name, state) / "ledgers", tmp_path))
    rows = dict(decode_ledgers_row(*row) for row in stored)
    assert [encode_ledgers_row(*row) for row in rows.items()] == stored
    assert len(rows) > 100
    for data in rows.values():
        assert data == LedgerData(True, data.fenced, EMPTY_PASSWORD_KEY, data.explicit_lac, data.limbo)
    fenced = {
        record.ledger_id
        for data in _journals(name, state).values()
        for record in iter_journal(data, "journal")
        if isinstance(record, Fence)
    }
    assert {ledger_id for ledger_id in fenced if ledger_id in rows and not rows[ledger_id].fenced} == set()


def test_small_files(name: str, state: str) -> None:
    current = _current(name, state)
    version = (current / "VERSION").read_bytes()
    cookie = decode_cookie(version, "VERSION")
    made_in = {"small": "/pulsar/data/bookkeeper", "nometa": "/pulsar-n/data/bookkeeper"}[name]
    assert cookie.ledger_dirs == cookie.journal_dirs == (made_in,)
    assert encode_cookie(cookie) == version
    mark = decode_last_mark((current / "lastMark").read_bytes())
    journals = _journals(name, state)
    assert 512 <= mark.offset <= len(journals[mark.journal_id])
    assert encode_last_mark(mark) == (current / "lastMark").read_bytes()
    ids = [entrylog.log_id_of(path.name) for path in current.glob("*.log")]
    assert decode_last_id((current / "lastId").read_bytes(), "lastId") == max(log_id or 0 for log_id in ids)
