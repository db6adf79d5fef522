"""Reading the compacted view as a reader with read-compacted does, searching it by time, and finding keys that only it has.

Such a reader gets the entries of the compacted ledger, then the topic's entries after the last of them and after the
horizon (upstream ``CompactedTopicImpl.asyncReadEntriesOrWait``). Messages that were compacted out are skipped, as by
Java clients.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial

from msgspec import Struct, field

from pulsar_admin.store.codec.compactedentry import decode_compacted_entry
from pulsar_admin.store.codec.message import EntryHeader, decode_message_entry
from pulsar_admin.store.compaction.heads import find_topic_end, lacking_is_corrupt, rank_after, read_compacted_head
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import ENTRY_UNREADABLE, StoreError
from pulsar_admin.store.model.compacted_view import CompactedView, find_compacted_view, read_compacted_entry
from pulsar_admin.store.model.cursors import Extent, extent_of
from pulsar_admin.store.model.ledgers import find_times
from pulsar_admin.store.model.messages import ENTRY_ERRORS, Message, MessageReader, ReadOptions
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import Position, TopicName
from pulsar_admin.store.wording import Answer


class CompactedReader(MessageReader):
    """Reads messages of a compacted ledger: entries are requested by their ids there, messages have their topic's
    positions."""

    last: Position | None = None  # the original position of the newest entry read so far

    def read_header(self, position: Position) -> EntryHeader:
        where = f"compacted ledger entry {position}"
        entry = decode_compacted_entry(self.reader.read(position.ledger_id, position.entry_id).payload, where)
        header = decode_message_entry(entry.headers_and_payload, where)
        self.last = entry.position
        return header

    def _visible(self, header: EntryHeader, position: Position, ahead: Iterable[Position]) -> Iterator[Message]:
        assert self.last is not None  # its header was read
        return super()._visible(header, self.last, ahead)


def iter_view(
    reader: EntryReader, topic: Topic, view: CompactedView | None, problems: list[StoreError]
) -> Iterator[Message]:
    """Yield the messages that a reader with read-compacted gets of a topic; failures are added to ``problems``.

    ``view`` None: the topic was never compacted, and is read completely.
    """
    last = None
    if view is not None:
        compacted = CompactedReader(reader, ReadOptions(committed=False), errors=problems)
        entry_ids = range(view.last_entry_id + 1)
        yield from compacted.iter_messages(Position(view.ledger_id, entry_id) for entry_id in entry_ids)
        last = compacted.last
    first, stop = behind_view(reader, topic, view, last)
    markers = partial(map, topic.at_rank, range(first, topic.number_of_entries))
    behind = MessageReader(reader, ReadOptions(), markers, problems)
    yield from behind.iter_messages(map(topic.at_rank, range(first, stop)))


def behind_view(
    reader: EntryReader, topic: Topic, view: CompactedView | None, last: Position | None
) -> tuple[int, int]:
    """Return the ranks (start, end exclusive) of the topic's entries that a reader gets after the view.

    ``last``: the position of the newest entry that it could read from the view.
    """
    floor = None if view is None else max(view.horizon, last or view.horizon)
    try:
        end = find_topic_end(reader, topic, floor).head
    except ENTRY_UNREADABLE:  # all entries then: reading them reports it
        return rank_after(topic, floor), topic.number_of_entries
    return rank_after(topic, floor), 0 if end is None else topic.rank(end.position) + 1


def last_of_view(reader: EntryReader, view: CompactedView) -> Position | None:
    """Return the original position of the newest readable entry of a view's ledger."""
    for entry_id in range(view.last_entry_id, -1, -1):
        with suppress(*ENTRY_ERRORS):
            return read_compacted_entry(reader, view, entry_id).position
    return None


def view_extent(txn: Txn, topic: Topic, view: CompactedView | None) -> Extent:
    """Return an estimate, from the index, of what a reader with read-compacted gets from a topic."""
    behind = extent_of(
        txn, topic, [(rank_after(topic, None if view is None else view.horizon), topic.number_of_entries)]
    )
    times = None if view is None else find_times(txn, view.ledger_id)
    return (
        behind if times is None else behind + Extent(times.sums.entries, times.sums.messages, times.sums.payload_bytes)
    )


def views_bytes(reader: EntryReader, names: Iterable[TopicName]) -> int:
    """Return about how many bytes readers get from the topics' views; an unreadable one counts 0 and is reported on
    reading."""
    total = 0
    for name in names:
        with suppress(StoreError):
            topic = read_topic(reader.txn, name)
            total += view_extent(reader.txn, topic, find_compacted_view(reader, topic)).bytes
    return total


class FoundInView(Answer, frozen=True):
    """The result of a time search in a compacted ledger; ``position`` None: no entry is at or after the time."""

    position: Position | None
    publish_ms: int | None = field(name="entryTime")
    entries_read: int


def find_in_view(reader: EntryReader, view: CompactedView, time_ms: int) -> FoundInView:
    """Return the first compacted entry published at or after ``time_ms``, exact even if clocks run backwards.

    Reads heads from the first entry on: publish times of a compacted ledger are in no index. Raises EntryCorrupt.
    """
    for entry_id in range(view.last_entry_id + 1):
        head = read_published(reader, view, entry_id)
        if head[1] >= time_ms:
            return FoundInView(head[0], head[1], entry_id + 1)
    return FoundInView(None, None, view.last_entry_id + 1)


def bisect_view(reader: EntryReader, view: CompactedView, time_ms: int) -> FoundInView:
    """Return the result of upstream's ``findEntryByPublishTime``, a bisection that assumes ascending publish times."""
    low, high, read = 0, view.last_entry_id, 0
    first: tuple[Position, int] | None = None
    while low <= high:
        middle = (low + high) // 2
        head = read_published(reader, view, middle)
        read += 1
        if head[1] >= time_ms:
            first, high = head, middle - 1
        else:
            low = middle + 1
    return FoundInView(None, None, read) if first is None else FoundInView(*first, read)


def read_published(reader: EntryReader, view: CompactedView, entry_id: int) -> tuple[Position, int]:
    """Return the original position and the publish time of one entry of a view's ledger; raises EntryCorrupt."""
    with lacking_is_corrupt():
        head = read_compacted_head(reader, view, entry_id)
    return head.position, head.metadata.publish_time


_READ_MAX = 20_000
"""The most entries of a topic and its view that ``find_dropped_keys`` reads."""


class DroppedKeys(Struct, frozen=True):
    """Keys that readers would lose. ``of_view``: only the compacted ledger still has their latest message; ``gone``: no
    ledger would have it."""

    of_view: tuple[str, ...]
    gone: tuple[str, ...]


def find_dropped_keys(reader: EntryReader, topic: Topic, view: CompactedView, kept: int) -> DroppedKeys | None:
    """Return the keys that readers lose without the view and the entries below rank ``kept``; None if too many to read."""
    horizon = topic.place(view.horizon)
    if view.last_entry_id + 1 + topic.number_of_entries - min(horizon, kept) > _READ_MAX:
        return None
    compacted = CompactedReader(reader, ReadOptions(committed=False))
    entries = (Position(view.ledger_id, entry_id) for entry_id in range(view.last_entry_id + 1))
    of_view = _latest(compacted.iter_messages(entries))
    plain = MessageReader(reader)
    left = _latest(plain.iter_messages(map(topic.at_rank, range(kept, topic.number_of_entries))))
    plain = MessageReader(reader)
    gone = _latest(plain.iter_messages(map(topic.at_rank, range(horizon, kept))))
    return DroppedKeys(
        tuple(key for key, is_null in of_view.items() if not is_null and key not in gone and key not in left),
        tuple(key for key, is_null in gone.items() if not is_null and key not in left),
    )


def _latest(messages: Iterable[Message]) -> dict[str, bool]:
    """Return key → whether the key's latest message deletes it."""
    deleted: dict[str, bool] = {}
    for message in messages:
        if message.key is not None:
            deleted[message.key] = message.null_value or not message.payload
    return deleted
