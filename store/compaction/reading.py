"""The compacted view message by message, as a reader with read-compacted gets it, and the search in it by time.

Such a reader gets the entries of the compacted ledger, then goes on in the topic behind the last of them and behind the horizon
(upstream ``CompactedTopicImpl.asyncReadEntriesOrWait``). Messages that compaction took out are left out, as Java clients do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from store.codec.message import EntryHeader
from store.compaction.heads import read_compacted_head
from store.compaction.tail import find_topic_end, rank_behind
from store.compaction.view import CompactedView, iter_compacted_entries
from store.errors import EntryCorrupt, EntryNotFound, StoreError
from store.ledgers import EntryReader
from store.messages import Message, MessageReader, ReadOptions
from store.names import Position
from store.topics import Topic


class _CompactedReader(MessageReader):
    """Reads the messages of a compacted ledger's entries, each under its original position."""

    current: EntryHeader
    last: Position | None = None  # the newest entry given out so far

    def iter_view(self, view: CompactedView) -> Iterator[Message]:
        """Yield the messages of VIEW's ledger in order; an entry that cannot be read is noted and passed over."""
        yield from self.iter_messages(self._iter_positions(view))

    def _iter_positions(self, view: CompactedView) -> Iterator[Position]:
        unreadable: list[EntryCorrupt | EntryNotFound] = []
        for entry in iter_compacted_entries(self.reader, view, unreadable):
            self.current, self.last = entry.header, entry.position
            yield entry.position
        self.errors.extend(unreadable)

    def read_header(self, position: Position) -> EntryHeader:
        return self.current


def iter_view(
    reader: EntryReader, topic: Topic, view: CompactedView | None, problems: list[StoreError]
) -> Iterator[Message]:
    """Yield the messages that a reader with read-compacted gets of TOPIC; what cannot be read is added to PROBLEMS.

    VIEW None: the topic was never compacted, and all of it is read.
    """
    last = None if view is None else view.horizon
    if view is not None:
        compacted = _CompactedReader(reader, ReadOptions(committed=False), errors=problems)
        yield from compacted.iter_view(view)
        last = max(view.horizon, compacted.last or view.horizon)
    first, stop = rank_behind(topic, last), _readable_end(reader, topic, last)
    markers = partial(map, topic.at_rank, range(first, topic.number_of_entries))
    behind = MessageReader(reader, ReadOptions(), markers, problems)
    yield from behind.iter_messages(map(topic.at_rank, range(first, stop)))


def _readable_end(reader: EntryReader, topic: Topic, floor: Position | None) -> int:
    """Return the rank behind the last entry that readers get; all of them when the end cannot be read, which reading reports."""
    try:
        end = find_topic_end(reader, topic, floor).head
    except (EntryCorrupt, EntryNotFound):
        return topic.number_of_entries
    return 0 if end is None else topic.rank(end.position) + 1


@dataclass(frozen=True, slots=True)
class FoundInView:
    """Where a time search in a compacted ledger ended; ``position`` None: nothing there is at or after the time."""

    position: Position | None
    publish_ms: int | None
    entries_read: int


def find_in_view(reader: EntryReader, view: CompactedView, time_ms: int) -> FoundInView:
    """Return the first compacted entry published at or after TIME_MS, exact on clocks that run backwards.

    Reads heads from the first entry on: publish times of a compacted ledger are in no index. Raises EntryCorrupt.
    """
    for entry_id in range(view.last_entry_id + 1):
        head = _head(reader, view, entry_id)
        if head[1] >= time_ms:
            return FoundInView(head[0], head[1], entry_id + 1)
    return FoundInView(None, None, view.last_entry_id + 1)


def bisect_view(reader: EntryReader, view: CompactedView, time_ms: int) -> FoundInView:
    """Return what upstream's ``findEntryByPublishTime`` does: a bisection that takes publish times to ascend."""
    low, high, read = 0, view.last_entry_id, 0
    found: tuple[Position, int] | None = None
    while low <= high:
        middle = (low + high) // 2
        head = _head(reader, view, middle)
        read += 1
        if head[1] >= time_ms:
            found, high = head, middle - 1
        else:
            low = middle + 1
    return FoundInView(None, None, read) if found is None else FoundInView(*found, read)


def _head(reader: EntryReader, view: CompactedView, entry_id: int) -> tuple[Position, int]:
    try:
        head = read_compacted_head(reader, view, entry_id)
    except EntryNotFound as error:
        raise EntryCorrupt(error.message, hint=error.hint, **error.context) from error
    return head.position, head.metadata.publish_time
