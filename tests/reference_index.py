"""The location index by brute force: a dictionary filled record by record with the reference readers of ``store.codec``."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from pulsar_admin.store.codec import journal
from pulsar_admin.store.codec.entry import decode_entry
from pulsar_admin.store.codec.logscan import Record, iter_records
from pulsar_admin.store.codec.message import decode_message_entry, message_count
from pulsar_admin.store.db.blocks import Block, LedgerSums, decode_times, ledger_of_key
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.files import LogFile, iter_logs
from pulsar_admin.store.errors import EntryCorrupt

Place = tuple[int, int, int, int]  # file id, offset of the size field, size, messages
Times = tuple[int, int, int, int, int]  # entries, messages, first entry, last entry, largest publish time (-1: none)


def reference_index(logs: Iterable[LogFile], store: Path) -> dict[tuple[int, int], tuple[Place, int]]:
    """Return (ledger, entry) → (place, publish time, −1 for what is not a message) of the undamaged files LOGS.

    Where an entry has several records a log's counts before a journal's, that of the newest log, that of the oldest journal.
    """
    found: dict[tuple[int, int], tuple[tuple[int, ...], Place, int]] = {}
    for log in logs:
        for offset, body in bodies(log, log.locate(store).read_bytes()):
            entry = decode_entry(body, None, where="reference")
            messages, publish_ms = _message(entry.payload)
            rank = (0, -log.file_id, -offset) if log.kind == "journal" else (1, log.file_id, offset)
            key = entry.ledger_id, entry.entry_id
            if key not in found or rank > found[key][0]:
                found[key] = rank, (log.file_id, offset, len(body), messages), publish_ms
    return {key: value[1:] for key, value in found.items()}


def bodies(log: LogFile, data: bytes) -> Iterator[tuple[int, memoryview]]:
    """Yield (offset, body) of every record in DATA, the bytes of the file LOG."""
    if not data:
        return
    items = journal.iter_records(data, "journal") if log.kind == "journal" else iter_records(data, "log")
    for item in items:
        if isinstance(item, (Record, journal.JournalEntry)):
            yield item.offset, item.body(data)


def _message(payload: memoryview) -> tuple[int, int]:
    try:
        metadata = decode_message_entry(payload, "reference", verify=False).metadata
    except EntryCorrupt:
        return 1, -1
    return message_count(metadata), metadata.publish_time


def assert_index_is_right(path: Path) -> None:
    """Compare the whole location index of the store at PATH, and the sums of its ledgers, with the reference."""
    with open_store(path) as store, store.read() as txn:
        expected = reference_index(iter_logs(txn), path)
        places = {
            (block.ledger_id, block.entry_id(index)): (*block.place(index), block.messages(index))
            for block in (Block(key, bytes(value)) for key, value in txn.items("entries"))
            for index in range(len(block))
        }
        sums = {ledger_of_key(key): decode_times(ledger_of_key(key), row).sums for key, row in txn.items("times")}
    assert places == {key: place for key, (place, _) in expected.items()}
    assert {ledger: _found(s) for ledger, s in sums.items()} == _times_of(expected)


def _found(sums: LedgerSums) -> Times:
    end = sums.end_publish_ms
    return sums.entries, sums.messages, sums.first_entry, sums.last_entry, -1 if end is None else end


def _times_of(expected: dict[tuple[int, int], tuple[Place, int]]) -> dict[int, Times]:
    ledgers: dict[int, list[tuple[int, Place, int]]] = {}
    for (ledger_id, entry_id), (place, publish_ms) in expected.items():
        ledgers.setdefault(ledger_id, []).append((entry_id, place, publish_ms))
    return {
        ledger_id: (
            len(rows),
            sum(place[3] for _, place, _ in rows),
            min(row[0] for row in rows),
            max(row[0] for row in rows),
            max(row[2] for row in rows),
        )
        for ledger_id, rows in ledgers.items()
    }
