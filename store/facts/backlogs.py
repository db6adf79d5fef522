"""The contents of a backlog by the headers of its entries: markers and chunks, which are not a message by themselves, and delayed entries.

Markers of brokers (replicated subscriptions, transactions) are never delivered, and chunks are joined by consumers; a
backlog may begin in the middle of a chunked message whose first chunk is acknowledged or deleted. Tried on Pulsar 4.0.8, 4.2.4
and 5.0.1: clients drop chunks without the first one of their message. Java's acknowledges those published a minute ago,
``pulsar-client`` 3.13 never does. Of a shared subscription brokers before 5.0 do not deliver them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.message import EntryHeader, decode_message_entry, is_chunk, is_marker
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model import cursors
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position
from pulsar_admin.store.wording import Answer

# -- delayed messages -------------------------------------------------------------------------------------------------


class NotDue(Answer, frozen=True):
    """The entries of a backlog that are not due yet: how many, and when the first and the last of them are due.

    ``unread``: entries that could not be read.
    """

    entries: int
    next_due_ms: int | None
    last_due_ms: int | None
    unread: int = 0


# -- chunked messages -------------------------------------------------------------------------------------------------


_LOOK = 1_000
"""Entries before and after a place among which chunks of one message are looked for: other producers' may lie between them."""
_EDGE = 2
"""Entries on each side of an acknowledged range of which one has to be a chunk: another producer's may be the next one."""
_KEPT = 100_000
"""Chunks of a topic that are remembered."""
_HOLES = 5
"""Gaps between acknowledged entries whose edges are looked at."""
_PARTIAL = 100
"""Messages of which not all chunks are in a backlog that are looked at: a producer may not have ended them."""


class CutMessage(Struct, frozen=True):
    """A message of ``total`` chunks, of which some are acknowledged (``acknowledged``, numbers from 0) and others are in a backlog, the
    first of them at ``position``, with the number ``chunk``.

    ``first``: the position of its first chunk, None if that ``is_gone`` or was not found. ``whole_from``: the last place from which on
    this message and those interleaved with it are complete, with no backlog before it. ``left``: entries at the backlog's beginning that
    belong to messages whose first chunk is gone; 0 if other entries are before them.
    """

    position: Position
    chunk: int
    total: int
    producer: str
    acknowledged: tuple[int, ...]
    first: Position | None
    is_gone: bool
    whole_from: Position | None
    left: int


def find_cut(
    reader: EntryReader, topic: Topic, pending: cursors.Intervals, contents: Contents | None = None
) -> CutMessage | None:
    """Return the first chunked message that the backlog ``pending`` of ``topic`` has only in part, or None, after reading few entries.

    Without ``contents``, only the ends of the pending ranges are read.
    """
    chunks = _chunks_of(reader, topic)
    if contents is not None:
        return _find_cut_at(chunks, pending, contents.partial) if contents.partial else None
    for index, (start, end) in enumerate(islice(pending, _HOLES)):
        edges = (start, end) if index + 1 < len(pending) else (start,)
        if any(chunks.at(rank) for edge in edges for rank in range(edge - _EDGE, edge + _EDGE)):
            cut = _find_cut_at(chunks, pending, edges)
            if cut is not None:
                return cut
    return None


def _chunks_of(reader: EntryReader, topic: Topic) -> _Chunks:
    """Return the chunks of a topic; those of the last topic are cached, as many subscriptions begin at the same entries."""
    kept: _Chunks | None = reader.txn.memo.get(_chunks_of)
    if kept is None or kept.topic is not topic:
        kept = reader.txn.memo[_chunks_of] = _Chunks(reader, topic)
    return kept


class _Chunk(NamedTuple):
    """A chunk of the message ``uuid``: which of how many, counted from 0."""

    uuid: str
    number: int
    total: int
    producer: str

    @property
    def is_last(self) -> bool:
        return self.number + 1 >= self.total


class _Chunks:
    """The chunks and markers among the entries of a topic."""

    def __init__(self, reader: EntryReader, topic: Topic) -> None:
        self.topic = topic
        self._reader = reader
        self._read: dict[int, tuple[bool, _Chunk | None]] = {}
        self._unread: set[int] = set()

    def at(self, rank: int) -> _Chunk | None:
        """Return the chunk at a rank; None if the entry is no chunk or cannot be read."""
        return self._look(rank)[1]

    def is_marker(self, rank: int) -> bool:
        """Whether there is a marker at a rank."""
        return self._look(rank)[0]

    def _look(self, rank: int) -> tuple[bool, _Chunk | None]:
        if rank not in self._read:
            if len(self._read) >= _KEPT:
                self._read.clear()
            header = read_header(self._reader, self.topic, rank) if 0 <= rank < self.topic.number_of_entries else None
            chunk = None
            if header is None:
                self._unread.add(rank)
            elif is_chunk(header.metadata):
                said = header.metadata
                chunk = _Chunk(said.uuid, said.chunk_id, said.num_chunks_from_msg, said.producer_name)
            self._read[rank] = header is not None and is_marker(header.metadata), chunk
        return self._read[rank]

    def around(self, rank: int) -> Mapping[str, Mapping[int, int]]:
        """Return message → chunk number → rank, for the chunks from ``rank`` on and earlier ones of the same messages.

        The key is the message's uuid, for the first one that has it: a producer that starts anew without deduplication uses uuids
        again. A message that is complete before ``rank`` is left out: its later chunks were sent again, and consumers drop them."""
        chunks: dict[str, dict[int, int]] = {}
        keys: dict[str, str] = {}
        for place in range(rank, min(self.topic.number_of_entries, rank + _LOOK)):
            chunk = self.at(place)
            if chunk is not None:
                if chunk.uuid not in keys or not chunk.number:
                    keys[chunk.uuid] = f"{chunk.uuid} {place}" if chunk.uuid in keys else chunk.uuid
                chunks.setdefault(keys[chunk.uuid], {}).setdefault(chunk.number, place)
        begun = {uuid for uuid, ranks in chunks.items() if 0 not in ranks}
        for place in range(rank - 1, max(0, rank - _LOOK) - 1, -1):
            if not begun:
                break
            chunk = self.at(place)
            if chunk is not None and chunk.uuid in begun and chunk.is_last:  # complete before: these are sent again
                begun.remove(chunk.uuid)
                del chunks[chunk.uuid]
            elif chunk is not None and chunk.uuid in begun:
                chunks[chunk.uuid].setdefault(chunk.number, place)
                if not chunk.number:
                    begun.remove(chunk.uuid)
        return chunks

    def is_read(self, start: int, end: int) -> bool:
        """Whether all entries from ``start`` to ``end`` (excluded) were read."""
        return start >= 0 and self._unread.isdisjoint(range(start, end))

    def whole_from(self, rank: int) -> int:
        """Return the last rank up to ``rank`` that is inside no message."""
        while True:
            inside = [
                ranks[0]
                for ranks in self.around(rank).values()
                if 0 in ranks and ranks[0] < rank <= max(ranks.values())
            ]
            if not inside:
                return rank
            rank = min(inside)


def _find_cut_at(chunks: _Chunks, pending: cursors.Intervals, edges: Sequence[int]) -> CutMessage | None:
    def is_pending(rank: int) -> bool:
        index = bisect_right(pending, rank, key=lambda one: one[0]) - 1
        return index >= 0 and rank < pending[index][1]

    gone, cut = set[str](), list[tuple[int, str, Mapping[int, int]]]()
    for edge in edges:
        for uuid, ranks in chunks.around(edge).items():
            here, lowest = [rank for rank in ranks.values() if is_pending(rank)], min(ranks.values())
            if 0 not in ranks:
                if edge <= _LOOK and chunks.is_read(0, lowest):
                    gone.add(uuid)
                elif lowest > pending[0][0] and not chunks.is_read(max(pending[0][0], edge - _LOOK), lowest):
                    continue  # its first chunk may be in the backlog: what cannot be read of that is told
            if here and (len(here) < len(ranks) or 0 not in ranks):
                cut.append((min(here), uuid, ranks))
    if not cut:
        return None
    rank, uuid, ranks = min(cut)
    chunk, topic, start = chunks.at(rank), chunks.topic, pending[0][0]
    assert chunk is not None
    done = {number for number, place in ranks.items() if not is_pending(place)} | set(range(min(ranks)))
    first = topic.at_rank(ranks[0]) if 0 in ranks else None
    whole_from = None if first is None else topic.at_rank(chunks.whole_from(min(start, ranks[0])))
    left = 0
    for place in _ranks(pending):
        other = chunks.at(place)
        if other is None or other.uuid not in gone or not other.number:
            break
        left += 1
    return CutMessage(
        topic.at_rank(rank),
        chunk.number,
        chunk.total,
        chunk.producer,
        tuple(sorted(done)),
        first,
        uuid in gone,
        whole_from,
        left if uuid in gone else 0,
    )


def _ranks(pending: cursors.Intervals) -> Iterator[int]:
    for start, end in pending:
        yield from range(start, end)


def read_header(reader: EntryReader, topic: Topic, rank: int) -> EntryHeader | None:
    """Return the header of an entry; None if it is lost or damaged (the topic has a finding for that) or is not a message."""
    position = topic.at_rank(rank)
    try:
        return decode_message_entry(reader.read(position.ledger_id, position.entry_id).payload, f"entry {position}")
    except StoreError:
        return None


# -- all headers ------------------------------------------------------------------------------------------------------


_FEW = 10_000
"""Entries whose headers are read to count their messages."""
_ALONE = 200
"""Up to this many entries in all, headers are read one by one: what reads many at once takes longer to import."""
_LOOKS = 1_000
"""So often all of them are read, each in about a millisecond."""


class Contents(Struct, frozen=True):
    """How many of ``entries`` are ``markers``, or ``parts``: chunks without the last one of their message. ``due``: delayed entries whose
    time has come; ``not_due``: those whose time has not, whether or not delays are enabled. ``messages``: as the index counts them, each
    marker and part as one; None if some entries could not be read. ``first_publish_ms``: publish time of the first entry, None if it was
    not read. ``partial``: for the first messages that have chunks outside of the entries, the rank of their first chunk here."""

    entries: int
    messages: int | None
    markers: int
    parts: int
    due: int
    not_due: NotDue
    first_publish_ms: int | None = None
    partial: tuple[int, ...] = ()


def may_be_markers(reader: EntryReader, topic: Topic, pending: cursors.Intervals) -> bool:
    """Whether one of a few entries of the backlog ``pending`` is a marker; reads at most five, the first and the last among them."""
    ranks = set[int]()
    for quarter in range(5):
        start, end = pending[(len(pending) - 1) * quarter // 4]
        ranks.add(start + (end - start - 1) * quarter // 4)
    return any(map(_chunks_of(reader, topic).is_marker, ranks))


def read_contents(reader: EntryReader, topic: Topic, intervals: cursors.Intervals, now_ms: int) -> Contents:
    """Count markers, chunks and messages due at ``now_ms`` among the entries of ``topic`` at the ranks ``intervals``; reads all headers.

    Upstream ``Markers.isServerOnlyMarker`` (4.0.8): a dispatcher acknowledges them for the consumer. Raises SourceChanged,
    EntryLogCorrupt.
    """
    import numpy as np

    from pulsar_admin.store.scan.entries import EntryScan

    # Of very many intervals all is read between the first and the last: to find the place of each costs more than what it saves.
    whole = isinstance(intervals, cursors.RankBits) and (
        intervals[-1][1] - intervals[0][0] - cursors.count_ranks(intervals) < 8 * len(intervals)
    )
    spans = ((intervals[0][0], intervals[-1][1]),) if whole else intervals
    scan = EntryScan(
        reader, (part for start, end in spans for part in cursors.iter_ledger_parts(topic, start, end)), heads=True
    )
    asked = None
    if isinstance(intervals, cursors.RankBits) and whole:
        start, end = spans[0]
        asked = np.zeros(end - start, np.bool_)
        asked[np.frombuffer(intervals.bits.to_array(), np.uint32) - start] = True
    ids, ranks, chunks = np.array(topic.ids), np.array(topic.ranks), _chunks_of(reader, topic)
    entries = messages = markers = parts = delayed = waiting = 0
    times: list[int] = []
    begun: dict[str, tuple[int, set[int]]] = {}
    ended: list[int] = []
    for batch in scan.batches():
        chosen = np.ones(len(batch), np.bool_)
        if asked is not None:
            chosen = asked[ranks[np.searchsorted(ids, batch.ledger_ids)] + batch.entry_ids - start]
        entries += int(np.count_nonzero(chosen))
        counts = np.where(batch.are_markers, 1, np.maximum(batch.rows["messages"], 0))
        messages += int(counts.sum(dtype=np.int64, where=chosen))
        markers += int(np.count_nonzero(batch.are_markers & chosen))
        due_ms = batch.rows["deliver_at_ms"][chosen & (batch.rows["deliver_at_ms"] > 0)]
        delayed += len(due_ms)
        due_ms = due_ms[due_ms > now_ms]
        if len(due_ms):
            waiting += len(due_ms)
            times += [int(due_ms.min()), int(due_ms.max())]
        for index in np.flatnonzero(batch.are_chunks & chosen).tolist():
            position = Position(int(batch.ledger_ids[index]), int(batch.entry_ids[index]))
            rank = topic.rank(position)
            chunk = chunks.at(rank)
            if chunk is not None:
                parts += not chunk.is_last
                if not chunk.number and chunk.uuid in begun:
                    ended.append(begun.pop(chunk.uuid)[0])
                _, numbers = begun.setdefault(chunk.uuid, (rank, set()))
                numbers.add(chunk.number)
                if len(numbers) == chunk.total:
                    del begun[chunk.uuid]
    unread = scan.missing + len(scan.unreadable)
    if whole and unread:  # an unread entry may be acknowledged in part
        return read_contents(reader, topic, tuple(intervals), now_ms)
    not_due = NotDue(waiting, min(times, default=None), max(times, default=None), unread)
    partial = sorted([*ended, *(rank for rank, _ in begun.values())])[:_PARTIAL]
    counted = None if unread else messages
    return Contents(entries + unread, counted, markers, parts, delayed - waiting, not_due, partial=tuple(partial))


def read_each_contents(
    reader: EntryReader, wanted: Sequence[tuple[Topic, cursors.Intervals]], now_ms: int
) -> Sequence[Contents] | None:
    """Return ``read_contents`` for each of ``wanted``; neighbouring backlogs may be of one topic.

    All headers are read together, each once, which takes a tenth of the time for many small backlogs. None if any is unreadable.
    """
    import numpy as np

    from pulsar_admin.store.scan.entries import EntryScan

    whole: dict[int, tuple[Topic, list[cursors.Intervals]]] = {}
    for topic, intervals in wanted:
        whole.setdefault(id(topic), (topic, []))[1].append(intervals)
    parts = [
        part
        for topic, some in whole.values()
        for start, end in cursors.union(chain.from_iterable(some))
        for part in cursors.iter_ledger_parts(topic, start, end)
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
    contents = []
    for topic, intervals in wanted:
        entries = sum(end - start for start, end in intervals)
        if not scan.missing and entry_ids.keys().isdisjoint(topic.ids):
            contents.append(Contents(entries, entries, 0, 0, 0, NotDue(0, None, None), next(firsts)))
            continue
        read, told = 0, list[tuple[bool, bool, int, int]]()
        for start, end in intervals:
            for ledger_id, first, last in cursors.iter_ledger_parts(topic, start, end):
                here = entry_ids.get(ledger_id, [])
                low, high = bisect_left(here, first), bisect_left(here, last + 1)
                read += high - low if scan.missing else last + 1 - first
                told += said.get(ledger_id, [])[low:high]
        markers, are_chunks, due_ms, messages = zip(*told, strict=True) if told else ((), (), (), ())
        if any(are_chunks):  # which belong together takes a look at each
            contents.append(replace(read_contents(reader, topic, intervals, now_ms), first_publish_ms=next(firsts)))
            continue
        waiting = [one for one in due_ms if one > now_ms]
        not_due = NotDue(len(waiting), min(waiting, default=None), max(waiting, default=None), entries - read)
        more = sum(max(one, 0) - 1 for one, is_marker_here in zip(messages, markers, strict=True) if not is_marker_here)
        counted = entries + more if read == entries else None
        due = sum(0 < one <= now_ms for one in due_ms)
        contents.append(Contents(entries, counted, sum(markers), 0, due, not_due, next(firsts)))
    return contents


def _first_places(
    whole: Mapping[int, tuple[Topic, list[cursors.Intervals]]], wanted: Sequence[tuple[Topic, cursors.Intervals]]
) -> list[int]:
    """Return, for each of ``wanted``, the index of its first entry among all entries of ``whole``, which are read topic by topic."""
    places: dict[tuple[int, int], int] = {}
    before = 0
    for key, (_, some) in whole.items():
        firsts = sorted({intervals[0][0] for intervals in some})
        for start, end in cursors.union(chain.from_iterable(some)):
            places.update(((key, rank), before + rank - start) for rank in firsts if start <= rank < end)
            before += end - start
    return [places[id(topic), intervals[0][0]] for topic, intervals in wanted]


def extent_of_messages(
    reader: EntryReader, topic: Topic, intervals: cursors.Intervals, *, at_ends: bool = False
) -> cursors.Extent:
    """Return the extent of ``intervals``; if the entries are few, markers do not count as messages, and a message's chunks count as one.

    For many or unreadable entries the index's count is used, in which each marker and chunk is a message. With ``at_ends``, and after
    many calls, it is also used for few entries if neither the first nor the last is a marker or a chunk, which reads two entries.
    """
    extent = cursors.extent_of(reader.txn, topic, intervals)
    if not 0 < extent.entries <= _FEW:
        return extent
    looks, alone = reader.txn.memo.get(extent_of_messages, (0, _ALONE))
    at_ends |= looks >= _LOOKS
    is_alone = extent.entries <= alone
    reader.txn.memo[extent_of_messages] = looks + 1, alone - extent.entries if is_alone else alone
    if at_ends or is_alone:
        ends = (intervals[0][0], intervals[-1][1] - 1)
        ranks = chain(*(range(*one) for one in intervals)) if is_alone else ends
        heads = (read_header(reader, topic, rank) for rank in ranks)
        if not any(
            head is not None and (is_marker(head.metadata) or head.metadata.num_chunks_from_msg > 1) for head in heads
        ):
            return extent
    try:
        contents = read_contents(reader, topic, intervals, 0)
    except StoreError:
        return extent
    counted = extent.messages if contents.messages is None else contents.messages
    return replace(extent, messages=counted - contents.markers - contents.parts)
