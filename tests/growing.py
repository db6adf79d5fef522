"""A disk that grows as a bookie's does: journal first, logs at a flush, then lastMark; killed, it writes again what lies behind the mark.

Source: ``Journal``, ``SingleDirectoryDbLedgerStorage``, ``DefaultEntryLogger`` of BookKeeper 4.16. A program, too:
``python -m tests.growing FOLDER RATE LOG_BYTES [JOURNAL_BYTES ENTRY_BYTES]`` writes RATE entries a second until it is killed, and goes
on after them. With JOURNAL_BYTES it rolls journals of that size, deletes those that lastMark is past and compacts old logs; the file
FOLDER/acked has how many entries are acknowledged.
"""

import fcntl
import os
import random
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from msgspec import Struct, field

from pulsar_admin.store.codec.bookie import LogMark, encode_last_mark
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.entry import Entry
from pulsar_admin.store.codec.entrylog import EntryLogHeader, encode_header, encode_ledgers_map, log_file_name
from pulsar_admin.store.codec.journal import PADDED_HEADER_BYTES
from pulsar_admin.store.codec.journal import encode_header as encode_journal_header
from pulsar_admin.store.codec.logscan import Record, iter_records
from tests.encoders import encode_entry

Id = tuple[int, int]
LEDGERS = 7
ALIGNMENT = 512


def record(entry: Id, size_bytes: int = 200) -> bytes:
    """Return the record of ENTRY, in a log and in a journal; its bytes follow from its id."""
    payload = random.Random(hash(entry)).randbytes(size_bytes)
    body = encode_entry(Entry(*entry, entry[1] - 1, 0, DigestType.CRC32C, memoryview(payload)))
    return len(body).to_bytes(4, "big") + body


class Bookie(Struct, dict=True):
    """Writes into FOLDER/current; a log is sealed after LOG_BYTES. With JOURNAL_BYTES a journal has that size from its beginning, and
    is deleted when lastMark is past it."""

    folder: Path
    log_bytes: int = 64 << 10
    journal: int = 1000
    journal_bytes: int = 0
    entry_bytes: int = 200
    memory: list[Id] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.current = self.folder / "current"
        self.current.mkdir(parents=True, exist_ok=True)
        self.start()

    def start(self) -> None:
        """Begin a new journal and a new log, and write once more what the journals hold behind lastMark."""
        self.memory = []
        self.marked = self.mark()
        journals = sorted(int(path.stem, 16) for path in self.current.glob("*.txn"))
        self.memory = [
            entry
            for journal in journals
            for at, entry in self.journaled(journal)
            if LogMark(journal, at) >= self.marked
        ]
        self.journal = max([self.journal - 1, *journals])
        self._open_journal()
        self._open_log()
        self.flush()

    def _open_journal(self) -> None:
        """Begin the next journal."""
        self.journal += 1
        header = encode_journal_header(6)
        self.place = len(header)
        (self.current / f"{self.journal:x}.txn").write_bytes(header.ljust(self.journal_bytes, b"\0"))

    def mark(self) -> LogMark:
        """Return lastMark, the beginning where there is none."""
        path = self.current / "lastMark"
        raw = path.read_bytes() if path.exists() else bytes(16)
        return LogMark(int.from_bytes(raw[:8], "big"), int.from_bytes(raw[8:], "big"))

    def journaled(self, journal: int) -> Iterator[tuple[int, Id]]:
        """Yield place and id of each whole entry of JOURNAL."""
        raw = (self.current / f"{journal:x}.txn").read_bytes()
        at = PADDED_HEADER_BYTES
        while at + 4 <= len(raw):
            size = int.from_bytes(raw[at : at + 4], "big", signed=True)
            if size == -0x100:
                at += 8 + int.from_bytes(raw[at + 4 : at + 8], "big")
                continue
            if size <= 0 or at + 4 + size > len(raw):
                return
            yield at, (int.from_bytes(raw[at + 4 : at + 12], "big"), int.from_bytes(raw[at + 12 : at + 20], "big"))
            at += 4 + size

    def everything(self) -> list[Id]:
        """Return what all journals hold."""
        journals = [int(path.stem, 16) for path in self.current.glob("*.txn")]
        return [entry for journal in journals for _, entry in self.journaled(journal)]

    def _open_log(self) -> None:
        self.log_id = max([-1, *(int(path.stem, 16) for path in self.current.glob("*.log"))]) + 1
        self.sizes: dict[int, int] = {}
        self.log = os.open(self.current / log_file_name(self.log_id), os.O_RDWR | os.O_CREAT | os.O_EXCL)
        os.write(self.log, encode_header(EntryLogHeader(1, 0, 0)))

    def write(self, entries: list[Id], *, pieces: int = 1) -> None:
        """Append ENTRIES to the journal, padded, in PIECES, and keep them in memory."""
        raw = b"".join(record(entry, self.entry_bytes) for entry in entries)
        if self.journal_bytes and self.place + len(raw) > self.journal_bytes:
            self._open_journal()
        left = -(self.place + len(raw) + 8) % ALIGNMENT
        raw += (-0x100).to_bytes(4, "big", signed=True) + left.to_bytes(4, "big") + bytes(left)
        with (self.current / f"{self.journal:x}.txn").open("r+b", buffering=0) as file:
            for piece in range(pieces):
                start, end = len(raw) * piece // pieces, len(raw) * (piece + 1) // pieces
                os.pwrite(file.fileno(), raw[start:end], self.place + start)
        self.place += len(raw)
        self.memory += entries

    def flush(self, *, marks: bool = True, pieces: int = 1) -> None:
        """Write memory to the log, sorted, a part of a record at a time, and move lastMark; sealing a log that is full."""
        mark = LogMark(self.journal, self.place)
        for entry in sorted(self.memory):
            raw = record(entry, self.entry_bytes)
            for piece in range(pieces):
                os.write(self.log, raw[len(raw) * piece // pieces : len(raw) * (piece + 1) // pieces])
            self.sizes[entry[0]] = self.sizes.get(entry[0], 0) + len(raw)
            if os.fstat(self.log).st_size >= self.log_bytes:
                self.roll()
        self.memory = []
        if marks:
            self.set_mark(mark)
            if self.journal_bytes:
                self.delete_journals()

    def delete_journals(self) -> None:
        """Delete the journals that lastMark is past."""
        for path in self.current.glob("*.txn"):
            if int(path.stem, 16) < self.mark().journal_id:
                path.unlink()

    def compact(self) -> None:
        """Copy the entries of the oldest log into the open one, then delete it."""
        oldest = min(self.current.glob("*.log"), key=lambda path: int(path.stem, 16))
        if int(oldest.stem, 16) == self.log_id:
            return
        entries = [
            (item.ledger_id, item.entry_id)
            for item in iter_records(oldest.read_bytes(), "")
            if isinstance(item, Record)
        ]
        kept, self.memory = self.memory, entries
        self.flush(marks=False)
        self.memory = kept
        oldest.unlink()

    def set_mark(self, mark: LogMark) -> None:
        """Write lastMark, whole."""
        path = self.current / "lastMark.new"
        path.write_bytes(encode_last_mark(mark))
        path.rename(self.current / "lastMark")

    def roll(self) -> None:
        """Seal the log and begin the next."""
        place = os.fstat(self.log).st_size
        os.write(self.log, encode_ledgers_map(self.sizes))
        os.pwrite(self.log, encode_header(EntryLogHeader(1, place, len(self.sizes))), 0)
        os.close(self.log)
        self._open_log()

    def kill(self, torn_bytes: int = 0) -> None:
        """Lose memory, and leave TORN_BYTES of a record at the end of the log, and the log that was made ahead."""
        os.write(self.log, record((1, 1 << 20))[:torn_bytes])
        os.close(self.log)
        (self.current / log_file_name(self.log_id + 1)).touch()


def ids(first: int, count: int) -> list[Id]:
    """Return COUNT entries from the FIRST on, over all ledgers in turn."""
    return [(number % LEDGERS, number // LEDGERS) for number in range(first, first + count)]


def main(folder: str, rate: str, log_bytes: str, journal_bytes: str = "0", entry_bytes: str = "200") -> None:
    """Write until killed, holding the lock of a database as a bookie does."""
    bookie = Bookie(Path(folder), int(log_bytes), journal_bytes=int(journal_bytes), entry_bytes=int(entry_bytes))
    (bookie.current / "locations").mkdir(exist_ok=True)
    lock = (bookie.current / "locations" / "LOCK").open("w")
    fcntl.lockf(lock, fcntl.LOCK_EX)
    number = 1 + max((entry * LEDGERS + ledger for ledger, entry in bookie.everything()), default=-1)
    for beat in count():
        bookie.write(ids(number, int(rate) // 20), pieces=3)
        number += int(rate) // 20
        (bookie.folder / "acked.new").write_text(str(number))
        (bookie.folder / "acked.new").rename(bookie.folder / "acked")
        if beat % 7 == 6:
            bookie.flush(marks=beat % 14 == 13, pieces=3)
        if bookie.journal_bytes and beat % 21 == 20:
            bookie.compact()
        time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
