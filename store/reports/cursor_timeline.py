"""A subscription as a strip over its topic's entries: acknowledged, unacknowledged, delayed and lost entries in few cells.

Cells are intervals of ranks (``store.model.topics.Topic.rank``), so that ledgers that were trimmed take no room. Each entry is
in one state: lost (no broker can read it) before all others, delayed (unacknowledged, due later) before unacknowledged.
"""

import numpy as np
from msgspec import Struct

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.facts.topics import SubscriptionFacts
from pulsar_admin.store.model.cursors import Intervals, iter_ledger_parts, subtract
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position
from pulsar_admin.store.scan.entries import EntryScan

CELLS = 240
STATES = ("acknowledged", "one-by-one", "unacknowledged", "delayed", "lost")
"""In the order of ``Cell.counts``; one-by-one: after the mark-delete, upstream's individually deleted messages."""


class Cell(Struct, frozen=True):
    """Entries that lie together, first and last among them, and how many are in each of ``STATES``."""

    first: Position
    last: Position
    counts: tuple[int, ...]

    @property
    def entries(self) -> int:
        """How many entries the cell stands for."""
        return sum(self.counts)


class Strip(Struct, frozen=True):
    """One subscription. ``backlog_entries``: lost ones too; ``ledger_starts``: ranks at which ledgers begin; ``delays_read``: whether
    delayed entries were looked for.
    """

    topic: str
    subscription: str
    mark_delete: Position
    source: str
    backlog_entries: int
    cells: tuple[Cell, ...]
    ledger_starts: tuple[int, ...]
    delays_read: bool

    @property
    def entries(self) -> int:
        """How many entries the topic has."""
        return sum(cell.entries for cell in self.cells)

    def count(self, state: str) -> int:
        """Return how many entries are in ``state``."""
        index = STATES.index(state)
        return sum(cell.counts[index] for cell in self.cells)


def delayed_ranks(reader: EntryReader, topic: Topic, intervals: Intervals, now_ms: int) -> tuple[Array, Array]:
    """Return (ranks, due times in ms) of the entries in ``intervals`` that are due after ``now_ms``; reads their headers."""
    parts = (part for start, end in intervals for part in iter_ledger_parts(topic, start, end))
    before = np.array(topic.ranks[:-1], np.int64)
    ids = np.array(topic.ids, np.int64)
    ranks, times = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for batch in EntryScan(reader, parts, heads=True).batches():
        due = batch.rows["deliver_at_ms"].astype(np.int64)
        later = due > now_ms
        ranks.append(before[np.searchsorted(ids, batch.ledger_ids[later])] + batch.entry_ids[later])
        times.append(due[later])
    return np.concatenate(ranks), np.concatenate(times)


def make_strip(facts: SubscriptionFacts, delayed: Array | None, cells: int = CELLS) -> Strip:
    """Return a subscription's strip. ``delayed``: ranks of the entries that are not due yet, None if they were not read."""
    topic, cursor, lost = facts.of.topic, facts.cursor, facts.of.lost
    entries = topic.number_of_entries
    edges = np.unique(np.linspace(0, entries, min(cells, entries) + 1).astype(np.int64))
    waiting = np.zeros(max(len(edges) - 1, 0), np.int64)
    if delayed is not None and len(edges) > 1:
        waiting = np.histogram(delayed, edges)[0]
    start = topic.place(cursor.state.mark_delete)
    columns = (  # one for each of STATES
        _covered(subtract(((0, start),) if start else (), lost), edges),
        _covered(subtract(facts.acknowledged, lost), edges),
        _covered(subtract(facts.pending, lost), edges) - waiting,
        waiting,
        _covered(lost, edges),
    )
    counts = np.stack(columns, axis=1).astype(np.int64)
    return Strip(
        topic=str(topic.name),
        subscription=cursor.name,
        mark_delete=cursor.mark_delete,
        source=cursor.source,
        backlog_entries=facts.pending_entries,
        cells=tuple(
            Cell(topic.at_rank(start), topic.at_rank(end - 1), tuple(row))
            for start, end, row in zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
        ),
        ledger_starts=tuple(dict.fromkeys(topic.ranks[:-1])),
        delays_read=delayed is not None,
    )


def _covered(intervals: Intervals, edges: Array) -> Array:
    """Return how many ranks of ``intervals`` lie in each cell between ``edges``."""
    bounds = np.array(intervals, np.int64).reshape(-1, 2)
    ends = np.concatenate([[0], bounds[:, 1]])
    totals = np.concatenate([[0], np.cumsum(bounds[:, 1] - bounds[:, 0])])
    index = np.searchsorted(bounds[:, 0], edges, "left")
    counted: Array = np.diff(totals[index] - np.maximum(ends[index] - edges, 0))
    return counted
