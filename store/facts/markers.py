"""Markers in a backlog: entries of brokers (replicated subscriptions, transactions) that no client gets."""

from __future__ import annotations

from store.codec.message import is_marker
from store.facts.chunks import read_header
from store.frozen import frozen
from store.model.extent import Intervals, iter_ledger_parts
from store.model.reader import EntryReader
from store.model.topics import Topic


@frozen
class Contents:
    """How many of ``entries`` are ``markers``; ``unread``: could not be read."""

    entries: int
    markers: int
    unread: int = 0


def has_marker_at_edges(reader: EntryReader, topic: Topic, pending: Intervals) -> bool:
    """Whether the first or the last entry of the backlog ``pending`` is a marker; reads these two."""
    edges = (read_header(reader, topic, rank) for rank in {pending[0][0], pending[-1][1] - 1})
    return any(header is not None and is_marker(header.metadata) for header in edges)


def read_contents(reader: EntryReader, topic: Topic, intervals: Intervals) -> Contents:
    """Count the markers among the entries of ``topic`` at the ranks ``intervals``; reads their headers.

    Upstream ``Markers.isServerOnlyMarker`` (4.0.8): a dispatcher acknowledges them for the consumer. Raises SourceChanged,
    EntryLogCorrupt.
    """
    from store.kernels.records import MARKER
    from store.scan.entries import EntryScan

    scan = EntryScan(
        reader, (part for start, end in intervals for part in iter_ledger_parts(topic, start, end)), heads=True
    )
    entries = markers = 0
    for batch in scan.batches():
        entries += len(batch.rows)
        markers += int((batch.rows["flags"] & MARKER != 0).sum())
    unread = scan.missing + len(scan.unreadable)
    return Contents(entries + unread, markers, unread)
