"""The delayed messages of a topic, from the topic's own entries: who waits, and since when nobody has to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from store.codec.delayedindex import Array, DelayedRows, join_rows, sorted_rows
from store.cursors import COMPACTION_CURSOR, Cursor, is_subscription, iter_cursor_names, read_cursor
from store.delayed.directory import Part
from store.extent import Intervals, iter_ledger_parts
from store.ledgers import EntryReader
from store.names import Position
from store.scan.delay_kernel import add_relative_delays
from store.scan.entries import EntryBatch, EntryScan
from store.scan.kernel import UNFRAMED
from store.topics import Topic


@dataclass(slots=True)
class DelayScan:
    """One run over parts of a topic. After ``rows``: how many entries were read, lie in no file, or are damaged."""

    reader: EntryReader
    entries: int = 0
    missing: int = 0
    unreadable: int = 0

    def rows(self, parts: Iterable[Part], tick_ms: int = 1) -> DelayedRows:
        """Return the delayed messages in PARTS in order, with the times they are to be delivered at, rounded down to TICK_MS."""
        found = [
            DelayedRows(rows.times_ms // tick_ms * tick_ms, rows.ledger_ids, rows.entry_ids)
            for rows in self.batches(parts)
        ]
        return join_rows(found) if len(found) != 1 else found[0].floored(tick_ms)

    def batches(self, parts: Iterable[Part]) -> Iterator[DelayedRows]:
        """Yield the same batch by batch."""
        scan = EntryScan(self.reader, parts, heads=True)
        for batch in scan.batches():
            self.entries += len(batch)
            due = due_times(batch)
            chosen = due > 0
            if chosen.any():
                yield sorted_rows(due[chosen], batch.ledger_ids[chosen], batch.entry_ids[chosen])
        self.missing += scan.missing
        self.unreadable += len(scan.unreadable)


def due_times(batch: EntryBatch) -> Array:
    """Return when each entry is to be delivered, in ms; 0 or below: at once."""
    rows = batch.rows
    due = rows["deliver_at_ms"].copy()
    starts = batch.offsets + 4 + 32 + rows["digest_bytes"]
    ends = batch.offsets + 4 + batch.held
    plain = np.flatnonzero((due == 0) & (rows["flags"] & UNFRAMED == 0))
    if len(plain):
        found = np.zeros(len(plain), np.int64)
        publish = np.ascontiguousarray(rows["publish_ms"][plain])
        add_relative_delays(batch.data, starts[plain], ends[plain], publish, found)
        due[plain] = found
    return due


def candidates(reader: EntryReader, topic: Topic) -> list[Cursor]:
    """Return the cursors of TOPIC that may delay: all but the broker's own. Whether one is Shared is written nowhere at rest."""
    names = sorted(name for name in iter_cursor_names(reader.txn, topic.name) if is_candidate(name))
    return [read_cursor(reader.txn, reader, topic, name) for name in names]


def is_candidate(cursor: str) -> bool:
    """Whether CURSOR may be a subscription that delays."""
    return is_subscription(cursor) and cursor != COMPACTION_CURSOR


def parts_of(topic: Topic, intervals: Intervals) -> tuple[Part, ...]:
    """Return INTERVALS of ranks as parts of ledgers: they stay right when the topic loses its first ledgers."""
    return tuple(part for start, end in intervals for part in iter_ledger_parts(topic, start, end))


def intervals_of(topic: Topic, parts: Iterable[Part]) -> Intervals:
    """Return PARTS as intervals of ranks; what the topic no longer lists is left out."""
    merged: list[tuple[int, int]] = []
    for ledger_id, first, last in parts:
        if topic.ledger(ledger_id) is None:
            continue
        start, end = topic.rank(Position(ledger_id, first)), topic.rank(Position(ledger_id, last + 1))
        if merged and merged[-1][1] == start:
            merged[-1] = merged[-1][0], end
        elif end > start:
            merged.append((start, end))
    return tuple(merged)


def is_within(topic: Topic, rows: DelayedRows, intervals: Intervals) -> Array:
    """Return which ROWS lie in INTERVALS of ranks of TOPIC, as a mask."""
    ids = np.array([*topic.ids, -1], np.int64)
    places = np.searchsorted(ids[:-1], rows.ledger_ids)
    listed = ids[np.minimum(places, len(ids) - 1)] == rows.ledger_ids
    ranks = np.array(topic.ranks, np.int64)[np.minimum(places, len(topic.ranks) - 1)] + rows.entry_ids
    edges = np.array(intervals, np.int64).reshape(-1)
    inside: Array = listed & (np.searchsorted(edges, ranks, side="right") % 2 == 1)
    return inside
