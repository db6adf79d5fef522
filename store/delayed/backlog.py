"""The delayed messages of a topic, read from the topic's entries."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pulsar_admin.store.codec.message import decode_message_entry, deliver_at_ms
from pulsar_admin.store.db.delayed import Part
from pulsar_admin.store.db.delayed_entries import DelayedRows, join_rows
from pulsar_admin.store.errors import Corrupt, NotFound
from pulsar_admin.store.model.cursors import Intervals, union
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position

if TYPE_CHECKING:
    from pulsar_admin.store.scan.places import Places


_ONE_BY_ONE_MAX = 1000


class DelayScan:
    """A scan of parts of a topic for delayed messages, which counts the entries read, missing from all files, and damaged."""

    def __init__(self, reader: EntryReader, parts: Iterable[Part] = ()) -> None:
        from pulsar_admin.store.scan.entries import EntryScan

        self.entry_scan = EntryScan(reader, parts, heads=True)
        self.entries = 0

    @property
    def missing(self) -> int:
        """Entries in no imported file."""
        return self.entry_scan.missing

    @property
    def unreadable(self) -> int:
        """Entries that are damaged."""
        return len(self.entry_scan.unreadable)

    def take(self, places: Places) -> DelayedRows:
        """Return the delayed messages among the entries at ``places``, read in this process; damaged entries are counted."""
        batch = self.entry_scan.without_damaged(self.entry_scan.read_places(places), places)
        self.entries += len(batch)
        due = batch.rows["deliver_at_ms"]
        chosen = due > 0
        return DelayedRows(due[chosen], batch.ledger_ids[chosen], batch.entry_ids[chosen])

    def take_found(self, places: Places, row: dict[str, bytes]) -> DelayedRows:
        """Return ``take(places)`` from the result ``row`` of ``ReadDelays``; entries that it doubts are read again here."""
        chosen = np.frombuffer(row["rows"], np.int32)
        self.entries += len(places)
        rows = DelayedRows(np.frombuffer(row["due_ms"], np.int64), places.ledger_ids[chosen], places.entry_ids[chosen])
        again = np.frombuffer(row["doubtful"], np.int32)
        if not len(again):
            return rows
        self.entries -= len(again)
        return join_rows([rows, self.take(places.take(again))])


def read_due_times(reader: EntryReader, rows: DelayedRows) -> dict[tuple[int, int], int]:
    """Return (ledger id, entry id) → ``deliverAtTime`` in the entry, in ms; lost and damaged entries are left out.

    A few entries are read one by one, which avoids importing numba.
    """
    places = list(zip(rows.ledger_ids.tolist(), rows.entry_ids.tolist(), strict=True))
    if len(places) > _ONE_BY_ONE_MAX:
        scan = DelayScan(reader, ((ledger_id, entry_id, entry_id) for ledger_id, entry_id in sorted(places)))
        joined = join_rows([rows for _, rows in read_delayed([scan])])
        columns = zip(joined.ledger_ids.tolist(), joined.entry_ids.tolist(), joined.times_ms.tolist(), strict=True)
        return {(ledger_id, entry_id): time_ms for ledger_id, entry_id, time_ms in columns}
    times = {}
    for place in places:
        try:
            header = decode_message_entry(reader.read(*place).payload, f"{place[0]}:{place[1]}")
        except (Corrupt, NotFound):
            continue
        times[place] = deliver_at_ms(header.metadata)
    return times


def read_delayed(scans: Sequence[DelayScan]) -> Iterator[tuple[DelayScan, DelayedRows]]:
    """Yield (scan, unsorted delayed messages) for each batch of each scan in turn; an engine reads for all scans in one
    job."""
    engine = scans[0].entry_scan.reader.engine if scans else None
    if engine is None:
        yield from ((scan, scan.take(places)) for scan in scans for places in scan.entry_scan.groups())
        return
    from pulsar_admin.store.scan.operations import ReadDelays, run_places

    owners: deque[DelayScan] = deque()

    def groups() -> Iterator[Places]:
        for scan in scans:
            for places in scan.entry_scan.groups():
                owners.append(scan)
                yield places

    files = scans[0].entry_scan.reader.files
    for places, row in run_places(engine, ReadDelays(), files, groups(), lambda places: len(places) // 2):
        scan = owners.popleft()
        yield scan, scan.take(places) if row is None else scan.take_found(places, row)


def intervals_of(topic: Topic, parts: Iterable[Part]) -> Intervals:
    """Return ``parts`` (ledger, first, last entry) as intervals of ranks, without ledgers that the topic no longer lists."""
    return union(
        (topic.rank(Position(ledger_id, first)), topic.rank(Position(ledger_id, last + 1)))
        for ledger_id, first, last in parts
        if topic.ledger(ledger_id) is not None
    )
