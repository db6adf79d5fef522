"""When entries were written, according to the journals and the entry logs of the bookies.

A journal has the entries of all ledgers in the order in which they arrived, and messages carry the time at which their broker
received them (``broker_timestamp``). So an entry arrived after the broker had every message before it, and no later than the first
message after it arrived. The journal itself shows how long messages travel: some later ones are older than earlier ones.

Autorecovery writes old entries, which say nothing about when the entries before them arrived. So a message that is older than one before
it, or than the bookie's first journal, which is named by its time (``Journal``, BookKeeper 4.17), does not bound the entries before it.

In an entry log, each flush appends its entries, sorted: an entry arrived before the messages of the next flush. Whether it arrived after
those of the previous flush is not certain: garbage collection may have copied it there from a log that was deleted.

These cases cannot be recognized, and make bounds wrong: an old message when the bookie had received few others; a copy of the entry itself
when no journal has its first record any more; a flush that ends while garbage collection writes to the same log; brokers' clocks that
differ.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pulsar_admin.store.codec import journal
from pulsar_admin.store.codec.digest import DIGEST_SIZE
from pulsar_admin.store.codec.entry import ENTRY_HEADER_BYTES, find_digest_type
from pulsar_admin.store.codec.message import decode_entry_times
from pulsar_admin.store.db.blocks import Block, ledger_key
from pulsar_admin.store.db.copies import has_copies, iter_copies
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import LogFile, iter_logs
from pulsar_admin.store.errors import EntryCorrupt, EntryLogCorrupt, JournalCorrupt, SourceChanged, Unsupported
from pulsar_admin.store.files import open_file
from pulsar_admin.store.names import FileKind

if TYPE_CHECKING:
    from pulsar_admin.store.aliases import Array
    from pulsar_admin.store.scan.files import FileBytes

_AROUND = 64  # entries before and after one whose times bound it
_ON_THE_WAY_MS = 100  # assumed as the least time from the broker to the bookie, if the journal shows less
_WAITED_MS = 1_000  # the same for logs, which do not show it: a message has its time before it waits for a new ledger


class WriteTime(NamedTuple):
    """When a bookie got an entry, by its neighbours in ``file``, a journal or an entry log; None: not known."""

    not_before_ms: int | None
    not_after_ms: int | None
    file: str

    @property
    def place(self) -> str:
        """The name of the file, and its kind."""
        return f"{'journal' if self.file.endswith('.txn') else 'entry log'} {self.file}"


Ids = tuple[int, int]
WriteTimes = Mapping[Ids, WriteTime]


def journals_of(txn: Txn) -> dict[Path, int]:
    """Return the catalogued journals, and the bytes of each."""
    logs = (log for log in iter_logs(txn) if log.kind is FileKind.JOURNAL)
    return {log.locate(txn.store.path): log.size_bytes for log in logs}


def read_flush_times(
    logs: Mapping[LogFile, frozenset[Ids]], store_path: Path, advance: Callable[[int], None]
) -> WriteTimes:
    """Return before which flushes of their logs entries were written; ``advance`` gets the bytes read."""
    times_of: dict[Ids, list[WriteTime]] = {}
    folders: dict[Path, list[LogFile]] = {}
    for log in logs:
        folders.setdefault(log.locate(store_path).parent, []).append(log)
    for folder in folders.values():
        flushes = _Flushes()
        for log in sorted(folder, key=lambda log: log.log_id):
            with suppress(OSError, EntryLogCorrupt, SourceChanged):
                flushes.read(log.locate(store_path), logs[log])
            advance(log.size_bytes)
        for ids, time in flushes.times.items():
            times_of.setdefault(ids, []).append(time)
    return {ids: min(times, key=lambda time: time.not_after_ms or inf) for ids, times in times_of.items()}


def read_write_times(
    journals: Mapping[Path, int], ledgers: Collection[int], advance: Callable[[int], None]
) -> WriteTimes:
    """Return when the entries of these ledgers were written, as far as journals say; ``advance`` gets the bytes read."""
    times_of: dict[Ids, list[WriteTime]] = {}
    for path, size_bytes in journals.items():
        # A journal that is gone by now, or damaged from some place on, says nothing there.
        with suppress(OSError, JournalCorrupt, SourceChanged, Unsupported):
            for ids, time in _times_in(path, ledgers):
                times_of.setdefault(ids, []).append(time)
        advance(size_bytes)
    return {ids: _together(times) for ids, times in times_of.items()}


def _times_in(path: Path, ledgers: Collection[int]) -> Iterator[tuple[Ids, WriteTime]]:
    from pulsar_admin.store.scan.files import FileBytes  # numpy: no command imports it that does not ask

    before: deque[journal.JournalEntry] = deque(maxlen=_AROUND)
    waiting: deque[tuple[Ids, tuple[journal.JournalEntry, ...], list[journal.JournalEntry]]] = deque()
    begun_ms = journal.journal_id_of(path.name) or 0
    with open_file(path) as file:
        data = FileBytes(file, path.stat().st_size)
        times = _BrokerTimes(data)
        try:
            for item in journal.iter_records(data, str(path)):
                if not isinstance(item, journal.JournalEntry):
                    continue
                if item.ledger_id in ledgers:
                    waiting.append(((item.ledger_id, item.entry_id), tuple(before), []))
                    continue
                before.append(item)
                for _, _, after in waiting:
                    after.append(item)
                while waiting and len(waiting[0][2]) == _AROUND:
                    ids, earlier, later = waiting.popleft()
                    yield ids, _between(times.of(earlier), times.of(later), begun_ms, path.name)
        finally:
            rest = [(ids, times.of(earlier), times.of(later)) for ids, earlier, later in waiting]
    yield from ((ids, _between(earlier, later, begun_ms, path.name)) for ids, earlier, later in rest)


class _BrokerTimes:
    """Reads the brokers' times of entries in a journal, each once."""

    def __init__(self, data: FileBytes) -> None:
        self._data = data
        self._found: dict[int, int | None] = {}

    def of(self, entries: Iterable[journal.JournalEntry]) -> list[int]:
        """Return the times of those entries that have one, in their order."""
        times = (self._time(entry) for entry in entries)
        return [time for time in times if time is not None]

    def _time(self, entry: journal.JournalEntry) -> int | None:
        if entry.offset not in self._found:
            body = bytes(self._data[entry.offset + 4 : entry.offset + 4 + entry.size])
            kind = find_digest_type(body)
            self._found[entry.offset] = None
            if kind is not None:
                with suppress(EntryCorrupt):
                    _, self._found[entry.offset] = decode_entry_times(body[ENTRY_HEADER_BYTES + DIGEST_SIZE[kind] :])
        return self._found[entry.offset]


def _between(before: Sequence[int], after: Sequence[int], begun_ms: int, file: str) -> WriteTime:
    late = newest = 0
    for time in (*before, *after):
        newest = max(newest, time)
        late = max(late, newest - time)
    low = max(before, default=None)
    behind = next((time for time in after if time >= max(begun_ms, low or 0)), None)
    return WriteTime(low, None if behind is None else behind + max(late, _ON_THE_WAY_MS), file)


def _together(times: Sequence[WriteTime]) -> WriteTime:
    """Return the time bounds that all copies of an entry share, ignoring copies made later, when a bookie was
    replaced."""
    ends = [time.not_after_ms for time in times if time.not_after_ms is not None]
    first = [time for time in times if not ends or (time.not_before_ms or 0) <= min(ends)]
    lows = [time.not_before_ms for time in first if time.not_before_ms is not None]
    highs = [time.not_after_ms for time in first if time.not_after_ms is not None]
    return WriteTime(min(lows, default=None), max(highs, default=None), first[0].file)


# -- flushes of entry logs --------------------------------------------------------------------------------------------


def logs_of(txn: Txn, ledgers: Collection[int]) -> dict[LogFile, frozenset[Ids]]:
    """Return the catalogued entry logs that have entries of these ledgers, and which."""
    ids_of_log: dict[int, set[Ids]] = {}
    for ledger_id in ledgers:
        if has_copies(txn):
            for file_id, entries in iter_copies(txn, ledger_id):
                ids_of_log.setdefault(file_id, set()).update((ledger_id, entry_id) for entry_id in entries)
        else:
            for block in (Block(key, value) for key, value in txn.items("entries", ledger_key(ledger_id))):
                for index in range(len(block)):
                    ids_of_log.setdefault(block.place(index)[0], set()).add((ledger_id, block.entry_id(index)))
    logs = {log: ids_of_log[log.file_id] for log in iter_logs(txn) if log.file_id in ids_of_log}
    return {log: frozenset(ids) for log, ids in logs.items() if log.kind is not FileKind.JOURNAL}


class _Flushes:
    """The flushes to one directory, in the order of its logs; of several copies of an entry the first counts.

    A bookie writes the entries since the last flush sorted by ledger and entry, so a flush begins where the order restarts. It may
    continue in the next log.

    Messages newer than all before them count as new. If the log with the newest messages was deleted, garbage collection may have
    copied them after a younger entry, and the log of a single ledger (``entryLogPerLedgerEnabled``) is written beside later ones. So an
    entry is bounded only if its own log had new messages before it, or in its flush.
    """

    def __init__(self) -> None:
        self.times: dict[Ids, WriteTime] = {}
        self._newest = -1
        self._is_new = False
        self._last = (-1, -1)
        self._flushed: list[Ids] = []
        self._waiting: list[Ids] = []

    def read(self, path: Path, asked: Collection[Ids]) -> None:
        """Read a log, and find when the ``asked`` entries (ledger, entry) in it were written."""
        import numpy as np  # no command imports it that does not ask

        from pulsar_admin.store.scan.files import FileScan, LedgerDigests, Slice, has_good_digest

        scan = FileScan(Slice(str(path), FileKind.ENTRY_LOG, 0, path.stat().st_size), LedgerDigests.of({}))
        columns = ["ledger_id", "entry_id", "broker_ms"]
        batches = [rows[has_good_digest(rows)][columns] for rows in scan.batches()]
        if not sum(map(len, batches)):
            return
        ledgers, entries, times = (np.concatenate([rows[name] for rows in batches]) for name in columns)
        begins = (np.diff(ledgers) < 0) | ((np.diff(ledgers) == 0) & (np.diff(entries) <= 0))
        starts = np.concatenate(([0], np.flatnonzero(begins) + 1))
        goes_on = (int(ledgers[0]), int(entries[0])) > self._last
        self._last = int(ledgers[-1]), int(entries[-1])
        wanted: dict[int, list[Ids]] = {}
        self._is_new = False
        for row in np.flatnonzero(np.isin(ledgers, sorted({ledger_id for ledger_id, _ in asked}))).tolist():
            ids = int(ledgers[row]), int(entries[row])
            wanted.setdefault(int(np.searchsorted(starts, row, "right")) - 1, []).append(ids)
        for flush, (start, end) in enumerate(zip(starts.tolist(), [*starts[1:].tolist(), len(times)], strict=True)):
            if flush or not goes_on:
                self._waiting += self._flushed
                self._flushed.clear()
            self._take(wanted.get(flush, ()), times[start:end], path.name)

    def _take(self, asked: Collection[Ids], times: Array, file: str) -> None:
        """Process the part of a flush that is in a log: its ``asked`` entries, and the broker times of its messages."""
        # Copies that garbage collection or autorecovery wrote are older than what was written before them, and what a start replays of
        # the journal is no newer.
        new = times[times > self._newest]
        if len(new):
            for ids in self._waiting:
                self.times[ids] = self.times[ids]._replace(not_after_ms=int(new.min()) + _WAITED_MS)
            self._waiting.clear()
            self._newest, self._is_new = int(new.max()), True
        for ids in asked:
            if ids not in self.times:
                self.times[ids] = WriteTime(None, None, file)
                if self._is_new:
                    self._flushed.append(ids)
