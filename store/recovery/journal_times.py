"""When entries were written, by the journals of the bookies.

A journal has the entries of all ledgers in the order in which they came, and messages carry the time at which their broker
got them (``broker_timestamp``). So an entry came after the broker had every message before it, and no later than the first one
behind it came. How long messages are on the way shows in the journal itself: later ones are older than earlier ones.

Autorecovery writes entries that are old. They tell nothing of when those before them came: a message that is older than one before
it, or than the journals of the bookie, whose first is named by its time (``Journal``, BookKeeper 4.17), is none of those behind.

What cannot be seen: an old message where the bookie got few others before, a copy of the entry itself where no journal has its first
writing any more, and that brokers' clocks differ. Bounds are wrong then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pulsar_admin.store.codec import journal
from pulsar_admin.store.codec.digest import DIGEST_SIZE
from pulsar_admin.store.codec.entry import ENTRY_HEADER_BYTES, find_digest_type
from pulsar_admin.store.codec.message import decode_entry_times
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.errors import EntryCorrupt, JournalCorrupt, SourceChanged, Unsupported
from pulsar_admin.store.files import open_file
from pulsar_admin.store.names import FileKind

if TYPE_CHECKING:
    from pulsar_admin.store.scan.files import FileBytes

_AROUND = 64  # entries before and behind whose times are looked at
_ON_THE_WAY_MS = 100  # from the broker to the bookie at least assumed, where the journal shows less


class WriteTime(NamedTuple):
    """When a bookie got an entry, by its neighbours in the journal ``file``; None: not known."""

    not_before_ms: int | None
    not_after_ms: int | None
    file: str


Ids = tuple[int, int]
WriteTimes = Mapping[Ids, WriteTime]


def journals_of(txn: Txn) -> dict[Path, int]:
    """Return the catalogued journals, and the bytes of each."""
    logs = (log for log in iter_logs(txn) if log.kind is FileKind.JOURNAL)
    return {log.locate(txn.store.path): log.size_bytes for log in logs}


def read_write_times(
    journals: Mapping[Path, int], ledgers: Collection[int], advance: Callable[[int], None]
) -> WriteTimes:
    """Return when the entries of these ledgers were written, as far as journals say; ``advance`` gets the bytes read."""
    found: dict[Ids, list[WriteTime]] = {}
    for path, size_bytes in journals.items():
        # A journal that is gone by now, or damaged from some place on, says nothing there.
        with suppress(OSError, JournalCorrupt, SourceChanged, Unsupported):
            for ids, time in _times_in(path, ledgers):
                found.setdefault(ids, []).append(time)
        advance(size_bytes)
    return {ids: _together(times) for ids, times in found.items()}


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
        found = (self._time(entry) for entry in entries)
        return [time for time in found if time is not None]

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
    """Return what the copies of an entry say together; those that were made later, as of a bookie that was replaced, count for nothing."""
    ends = [time.not_after_ms for time in times if time.not_after_ms is not None]
    first = [time for time in times if not ends or (time.not_before_ms or 0) <= min(ends)]
    lows = [time.not_before_ms for time in first if time.not_before_ms is not None]
    highs = [time.not_after_ms for time in first if time.not_after_ms is not None]
    return WriteTime(min(lows, default=None), max(highs, default=None), first[0].file)
