"""What is in a backlog, by the headers of its entries: which are no message by themselves, and which wait for their time.

No message are markers of brokers (replicated subscriptions, transactions), which no client gets, and chunks, which consumers join; a
backlog may begin in the middle of a chunked message whose first chunk is acknowledged, or gone. Tried on Pulsar 4.0.8 and 4.2.4: the
client drops chunks without the first one of their message and never acknowledges them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.message import EntryHeader, decode_message_entry, is_chunk, is_marker
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.cursors import (
    Cursor,
    Extent,
    Intervals,
    RankColumns,
    count_ranks,
    extent_of,
    iter_ledger_parts,
    union,
)
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position
from pulsar_admin.store.policies.in_force import find_message_ttl
from pulsar_admin.store.wording import Answer

# -- delayed messages -------------------------------------------------------------------------------------------------


class NotDue(Answer, frozen=True):
    """The entries of a backlog that wait for their time: how many, and when the first and the last of them are due.

    ``unread``: entries that could not be read.
    """

    entries: int
    next_due_ms: int | None
    last_due_ms: int | None
    unread: int = 0


class TtlConflict(Answer, frozen=True):
    """Delayed messages that the TTL drops before they are due: how many, and those due first."""

    ttl_seconds: int
    source: str
    messages: int
    first: tuple[Position, ...]


def find_ttl_conflict(reader: EntryReader, topic: Topic, cursor: Cursor) -> TtlConflict | None:
    """Return what the TTL in force drops of ``cursor``'s backlog before it is due; None without a TTL.

    An entry expires when its publish time (broker time where it has one) is more than the TTL ago.
    """
    ttl = find_message_ttl(reader.txn, topic.name)
    if ttl is None or ttl.seconds <= 0:
        return None
    from pulsar_admin.store.search.before_due import expiring_before_due  # numpy

    early = expiring_before_due(reader, topic, cursor, ttl.seconds * 1000)
    return TtlConflict(ttl.seconds, ttl.source, early.messages, tuple(one.position for one in early.first))


# -- chunked messages -------------------------------------------------------------------------------------------------


_LOOK = 1_000
"""Entries among which chunks of one message are looked for: other producers' may lie between them."""


class CutMessage(Struct, frozen=True):
    """A message of ``total`` chunks of which a backlog has those from ``chunk`` (counted from 0) on, at ``position``.

    ``first``: where its first chunk is, None where it is gone or too far away. ``left``: entries at the backlog's beginning that are of
    it; 0 where others are before it.
    """

    position: Position
    chunk: int
    total: int
    producer: str
    first: Position | None
    left: int


def find_cut(reader: EntryReader, topic: Topic, pending: Intervals) -> CutMessage | None:
    """Return the chunked message that the beginning of the backlog ``pending`` of ``topic`` cuts; reads two entries where it cuts none."""
    if not pending:
        return None
    start = pending[0][0]
    edges = (read_header(reader, topic, rank) for rank in (start, start - 1) if rank >= 0)
    if not any(header is not None and is_chunk(header.metadata) for header in edges):
        return None
    begun = set[str]()
    for rank in islice(_ranks(pending), _LOOK):
        header = read_header(reader, topic, rank)
        if header is None or not is_chunk(header.metadata):
            continue
        metadata = header.metadata
        if not metadata.chunk_id:
            begun.add(metadata.uuid)
        elif metadata.uuid not in begun:
            first = None
            for before in range(rank - 1, max(rank - _LOOK, 0) - 1, -1):
                header = read_header(reader, topic, before)
                if header is not None and header.metadata.uuid == metadata.uuid and not header.metadata.chunk_id:
                    first = topic.at_rank(before)
                    break
            left = 0  # chunks of the message at the backlog's beginning
            for one in _ranks(pending):
                header = read_header(reader, topic, one)
                if header is None or header.metadata.uuid != metadata.uuid:
                    break
                left += 1
            return CutMessage(
                topic.at_rank(rank),
                metadata.chunk_id,
                metadata.num_chunks_from_msg,
                metadata.producer_name,
                first,
                left,
            )
    return None


def _ranks(pending: Intervals) -> Iterator[int]:
    for start, end in pending:
        yield from range(start, end)


def read_header(reader: EntryReader, topic: Topic, rank: int) -> EntryHeader | None:
    """Return the header of an entry; None of one that is lost or damaged, which is told of the topic, or is no message."""
    position = topic.at_rank(rank)
    try:
        return decode_message_entry(reader.read(position.ledger_id, position.entry_id).payload, f"entry {position}")
    except StoreError:
        return None


# -- all headers ------------------------------------------------------------------------------------------------------


_FEW = 10_000
"""Entries whose headers are read to count their messages."""


class Contents(Struct, frozen=True):
    """How many of ``entries`` are ``markers``, or ``parts``: chunks but the last one of their message. ``due``: delayed ones whose time
    has come, ``not_due``: those that wait for it, whether or not delays are enabled. ``messages``: as the index counts them, each marker
    and part as one; None where some entries could not be read. ``first_publish_ms``: when the first of them was published, None where
    nobody looked."""

    entries: int
    messages: int | None
    markers: int
    parts: int
    due: int
    not_due: NotDue
    first_publish_ms: int | None = None


def has_marker_at_edges(reader: EntryReader, topic: Topic, pending: Intervals) -> bool:
    """Whether the first or the last entry of the backlog ``pending`` is a marker; reads these two."""
    edges = (read_header(reader, topic, rank) for rank in {pending[0][0], pending[-1][1] - 1})
    return any(header is not None and is_marker(header.metadata) for header in edges)


def read_contents(reader: EntryReader, topic: Topic, intervals: Intervals, now_ms: int) -> Contents:
    """Count markers, parts of messages and what is due at ``now_ms`` among the entries of ``topic`` at the ranks ``intervals``.

    Reads all headers of them.

    Upstream ``Markers.isServerOnlyMarker`` (4.0.8): a dispatcher acknowledges them for the consumer. Raises SourceChanged,
    EntryLogCorrupt.
    """
    import numpy as np

    from pulsar_admin.store.scan.entries import EntryScan

    # Of very many intervals all is read between the first and the last: to find the place of each costs more than what it saves.
    whole = isinstance(intervals, RankColumns) and (
        intervals[-1][1] - intervals[0][0] - count_ranks(intervals) < 8 * len(intervals)
    )
    spans = ((intervals[0][0], intervals[-1][1]),) if whole else intervals
    scan = EntryScan(
        reader, (part for start, end in spans for part in iter_ledger_parts(topic, start, end)), heads=True
    )
    edges = np.fromiter(chain.from_iterable(intervals), np.int64) if whole else None
    ids, ranks = np.array(topic.ids), np.array(topic.ranks)
    entries = messages = markers = parts = delayed = waiting = 0
    times: list[int] = []
    for batch in scan.batches():
        if edges is not None:
            places = ranks[np.searchsorted(ids, batch.ledger_ids)] + batch.entry_ids
            batch = batch.take(np.searchsorted(edges, places, "right") % 2 == 1)
        entries += len(batch.rows)
        messages += int(np.maximum(batch.rows["messages"], 0).sum(dtype=np.int64))
        markers += int(batch.are_markers.sum())
        due_ms = batch.rows["deliver_at_ms"]
        delayed += int((due_ms > 0).sum())
        due_ms = due_ms[due_ms > now_ms]
        if len(due_ms):
            waiting += len(due_ms)
            times += [int(due_ms.min()), int(due_ms.max())]
        for index in np.flatnonzero(batch.are_chunks).tolist():
            position = Position(int(batch.ledger_ids[index]), int(batch.entry_ids[index]))
            header = read_header(reader, topic, topic.rank(position))
            parts += header is not None and header.metadata.chunk_id + 1 < header.metadata.num_chunks_from_msg
    unread = scan.missing + len(scan.unreadable)
    if whole and unread:  # some of it may be acknowledged
        return read_contents(reader, topic, tuple(intervals), now_ms)
    not_due = NotDue(waiting, min(times, default=None), max(times, default=None), unread)
    return Contents(entries + unread, None if unread else messages, markers, parts, delayed - waiting, not_due)


def read_each_contents(
    reader: EntryReader, wanted: Sequence[tuple[Topic, Intervals]], now_ms: int
) -> Sequence[Contents] | None:
    """Return ``read_contents`` of each of ``wanted``, backlogs of which several may be of one topic, in a row.

    All headers are read at once, each once: of many small backlogs in a tenth of the time. None where not all of them can be read.
    """
    import numpy as np

    from pulsar_admin.store.scan.entries import EntryScan

    whole: dict[int, tuple[Topic, list[Intervals]]] = {}
    for topic, intervals in wanted:
        whole.setdefault(id(topic), (topic, []))[1].append(intervals)
    parts = [
        part
        for topic, some in whole.values()
        for start, end in union(chain.from_iterable(some))
        for part in iter_ledger_parts(topic, start, end)
    ]
    scan = EntryScan(reader, iter(parts), heads=True)
    # Of entries that say something, and where an entry is missing of all: those that were read.
    entry_ids: dict[int, list[int]] = {}
    said: dict[int, list[tuple[bool, bool, int, int]]] = {}
    batches, count, published = [], 0, []
    for batch in scan.batches():
        said_here = batch.are_markers, batch.are_chunks, batch.rows["deliver_at_ms"], batch.rows["messages"]
        batches.append((batch.ledger_ids, batch.entry_ids, *said_here))
        published.append(np.where(batch.are_messages, batch.rows["publish_ms"], -1))
        count += len(batch)
    if scan.unreadable or count + scan.missing != sum(last - first + 1 for _, first, last in parts):
        return None
    firsts = iter([None] * len(wanted))
    if not scan.missing and batches:
        times_ms = np.concatenate(published)[_first_places(whole, wanted)]
        firsts = iter([None if one < 0 else one for one in times_ms.tolist()])
    for columns in batches:
        tells = columns[2] | columns[3] | (columns[4] > 0) | (columns[5] != 1) | bool(scan.missing)
        rows = zip(*(column[tells].tolist() for column in columns), strict=True)
        for ledger_id, entry_id, marker, part, due_ms, in_batch in rows:
            entry_ids.setdefault(ledger_id, []).append(entry_id)
            said.setdefault(ledger_id, []).append((marker, part, due_ms, in_batch))
    found = []
    for topic, intervals in wanted:
        entries = sum(end - start for start, end in intervals)
        if not scan.missing and entry_ids.keys().isdisjoint(topic.ids):
            found.append(Contents(entries, entries, 0, 0, 0, NotDue(0, None, None), next(firsts)))
            continue
        read = more_messages = markers = chunks = delayed = 0
        times: list[int] = []
        for start, end in intervals:
            for ledger_id, first, last in iter_ledger_parts(topic, start, end):
                here = entry_ids.get(ledger_id, [])
                low, high = bisect_left(here, first), bisect_left(here, last + 1)
                read += high - low if scan.missing else last + 1 - first
                told = said.get(ledger_id, [])[low:high]
                for entry_id, (marker, part, due_ms, in_batch) in zip(here[low:high], told, strict=True):
                    more_messages += max(in_batch, 0) - 1
                    markers += marker
                    delayed += due_ms > 0
                    if due_ms > now_ms:
                        times.append(due_ms)
                    if part:
                        header = read_header(reader, topic, topic.rank(Position(ledger_id, entry_id)))
                        chunks += (
                            header is not None and header.metadata.chunk_id + 1 < header.metadata.num_chunks_from_msg
                        )
        not_due = NotDue(len(times), min(times, default=None), max(times, default=None), entries - read)
        messages = entries + more_messages if read == entries else None
        found.append(Contents(entries, messages, markers, chunks, delayed - len(times), not_due, next(firsts)))
    return found


def _first_places(
    whole: Mapping[int, tuple[Topic, list[Intervals]]], wanted: Sequence[tuple[Topic, Intervals]]
) -> list[int]:
    """Return at which place the first entry of each of ``wanted`` is, where those of ``whole`` topics are read one after the other."""
    places: dict[tuple[int, int], int] = {}
    before = 0
    for key, (_, some) in whole.items():
        firsts = sorted({intervals[0][0] for intervals in some})
        for start, end in union(chain.from_iterable(some)):
            places.update(((key, rank), before + rank - start) for rank in firsts if start <= rank < end)
            before += end - start
    return [places[id(topic), intervals[0][0]] for topic, intervals in wanted]


def extent_of_messages(reader: EntryReader, topic: Topic, intervals: Intervals) -> Extent:
    """Return how much lies in ``intervals``; of few entries markers are no messages, and the chunks of one message are one.

    The index counts both as one each; its count stands where neither the first nor the last entry is a marker or a chunk, and for what
    cannot be read.
    """
    extent = extent_of(reader.txn, topic, intervals)
    if not 0 < extent.entries <= _FEW:
        return extent
    edges = [read_header(reader, topic, rank) for rank in sorted({intervals[0][0], intervals[-1][1] - 1})]
    heads = [header.metadata for header in edges if header is not None]
    if not any(is_marker(metadata) or metadata.num_chunks_from_msg > 1 for metadata in heads):
        return extent
    try:
        found = read_contents(reader, topic, intervals, 0)
    except StoreError:
        return extent
    return replace(extent, messages=extent.messages - found.markers - found.parts)
