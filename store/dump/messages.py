"""The messages of a topic in its order, and those that a search finds, with those around them.

Few of them are read one by one, without the libraries that read columns. The matches of a search come from a scan by columns, their
neighbours are read one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from pulsar_admin.store.dump.options import DumpOptions
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.messages import Decoded, Message, MessageRow, ReadOptions, message_row, read_message
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position

if TYPE_CHECKING:
    import pyarrow as pa


class TopicMessages:
    """At most ``limit`` messages of a topic, those of the options' window; what cannot be read is added to ``problems``.

    They are read once, in one of its forms. ``count``: how many there were so far.
    """

    def __init__(
        self, reader: EntryReader, topic: Topic, options: DumpOptions, limit: int | None, problems: list[StoreError]
    ) -> None:
        self.reader, self.topic, self.options, self.limit, self.problems = reader, topic, options, limit, problems
        self.count = 0

    def is_few(self) -> bool:
        """Whether they are so few that they are read one by one."""
        from pulsar_admin.store.search.window import is_small

        return is_small(self.reader.txn, self.topic, self.options.window, self.limit)

    def each(self) -> Iterator[Message]:
        """Read them one by one, whatever the limit."""
        from pulsar_admin.store.search.window import iter_window

        wanted = ReadOptions(self.options.committed, self.options.markers)
        return iter_window(self.reader, self.topic, self.options.window, wanted, self.problems)

    def columns(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield them as batches of the columns that the options name, by the reader's engine where it has one."""
        from pulsar_admin.store.dump.reading import iter_columns

        return iter_columns(self.reader, self.topic, self.options, self.limit, self.problems)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield what ``columns`` does, and count the messages."""
        for batch in self.columns():
            self.count += len(batch)
            yield batch

    def rows(self) -> Iterator[MessageRow]:
        """Yield them as rows."""
        if self.is_few():
            name, payload = self.topic.name, self.options.payload
            for message, decoded in self.decoded():
                yield message_row(name, message, payload=payload, decoded=decoded)
            return
        from pulsar_admin.store.dump.reading import iter_rows

        for batch in self.batches():
            yield from iter_rows(self.topic.name, batch)

    def text(self, line_of: Callable[[MessageRow], str]) -> Iterator[str]:
        """Yield them as JSON lines, in the pieces of ``store.dump.tables.json_text``; ``line_of`` makes the lines of a few."""
        if self.is_few():
            yield from (f"{line_of(row)}\n" for row in self.rows())
            return
        from pulsar_admin.store.dump.tables import json_text

        for batch in self.batches():
            yield from json_text(str(self.topic.name), batch)

    def decoded(self) -> Iterator[tuple[Message, Decoded | None]]:
        """Yield them one by one with their values, None where the options ask for none."""
        decode: Callable[[Message], Decoded] | None = None
        if self.options.value:
            from pulsar_admin.store.model.schemas import value_decoder

            decode = value_decoder(self.reader, self.topic.name, None if self.options.lenient else self.problems)
        for message in islice(self.each(), self.limit):
            self.count += 1
            yield message, None if decode is None else decode(message)


class ViewMessages(TopicMessages):
    """The messages of a topic's compacted view, those with one of ``keys`` (none: all); raises MetadataCorrupt, EntryCorrupt."""

    def __init__(
        self,
        reader: EntryReader,
        topic: Topic,
        options: DumpOptions,
        keys: Collection[str],
        limit: int | None,
        problems: list[StoreError],
    ) -> None:
        from pulsar_admin.store.model.compacted_view import open_view

        super().__init__(reader, topic, replace(options, view=open_view(reader, topic, problems)), limit, problems)
        self.keys = keys

    def is_few(self) -> bool:
        from pulsar_admin.store.compaction.reading import view_extent
        from pulsar_admin.store.search.window import is_few

        extent = view_extent(self.reader.txn, self.topic, self.options.view)
        return is_few(extent, None if self.keys else self.limit)

    def each(self) -> Iterator[Message]:
        from pulsar_admin.store.compaction.reading import iter_view

        messages = iter_view(self.reader, self.topic, self.options.view, self.problems)
        return (message for message in messages if not self.keys or message.key in self.keys)

    def columns(self) -> Generator[pa.RecordBatch, None, None]:
        from pulsar_admin.store.dump.reading import iter_view_columns

        return iter_view_columns(self.reader, self.topic, self.options, self.keys, self.limit, self.problems)


class EntryMessage(TopicMessages):
    """The first message of the entry at a position; raises the entry's error, or NothingMatches if compaction removed every message."""

    def __init__(
        self, reader: EntryReader, topic: Topic, options: DumpOptions, position: Position, problems: list[StoreError]
    ) -> None:
        super().__init__(reader, topic, options, None, problems)
        self.message = read_message(reader, position)

    def is_few(self) -> bool:
        return True

    def each(self) -> Iterator[Message]:
        return iter((self.message,))


_WINDOW_MAX = 1 << 20  # entries before a match among which its neighbours are looked for at once


class FoundRow(MessageRow, frozen=True):
    """A message that was found, or, as ``context``, one beside it."""

    context: bool | None = None


class MatchingMessages(TopicMessages):
    """The messages that the match of the options looks for; as rows, with ``before`` messages before each and ``after`` after it."""

    def __init__(self, *asked: Any, before: int = 0, after: int = 0) -> None:  # Any: as of any messages of a topic
        super().__init__(*asked)
        self.before, self.after = before, after

    def is_few(self) -> bool:
        return False

    def columns(self) -> Generator[pa.RecordBatch, None, None]:
        from pulsar_admin.store.dump.reading import iter_matches

        return iter_matches(self.reader, self.topic, self.options, self.limit, self.problems)

    def rows(self) -> Iterator[FoundRow]:
        if not self.before and not self.after:
            yield from (FoundRow(**asdict(row)) for row in super().rows())
            return
        neighbours = _Neighbours(self.reader, self.topic, self.options, self.problems)
        last: Position | None = None
        left = 0  # messages still to show behind LAST
        for row in super().rows():
            here = Position(row.ledger_id, row.entry_id, row.batch_index)
            if last is not None:
                for beside in neighbours.behind(last, here, left):
                    yield beside
                    last = Position(beside.ledger_id, beside.entry_id, beside.batch_index)
            yield from neighbours.in_front(last, here, self.before)
            yield FoundRow(**asdict(row))
            last, left = here, self.after
        if last is not None:
            yield from neighbours.behind(last, None, left)


class _Neighbours:
    """Reads the messages beside others, whatever they are."""

    def __init__(self, reader: EntryReader, topic: Topic, options: DumpOptions, problems: list[StoreError]) -> None:
        from pulsar_admin.store.model.schemas import value_decoder

        self._reader = reader
        self._topic = topic
        self._options = options
        self._problems = problems
        self._decode = value_decoder(reader, topic.name) if options.value else None

    def behind(self, start: Position, stop: Position | None, count: int) -> Iterator[FoundRow]:
        """Yield the first ``count`` messages after ``start`` and before ``stop``."""
        messages = self._between(start, start.entry, stop) if count else iter(())
        yield from map(self._row, islice(messages, count))

    def in_front(self, start: Position | None, stop: Position, count: int) -> Iterator[FoundRow]:
        """Yield the last ``count`` messages after ``start`` and before ``stop``."""
        end = self._topic.rank(stop.entry)
        lowest = 0 if start is None else self._topic.rank(start.entry)
        entries, messages = count, list[Message]()
        first = end + 1
        while count and len(messages) < count and first > lowest:
            first = max(lowest, end - entries)
            messages = list(self._between(start, self._topic.at_rank(first), stop))
            entries = min(4 * entries, entries + _WINDOW_MAX)
        yield from map(self._row, messages[len(messages) - min(count, len(messages)) :])

    def _between(self, start: Position | None, first: Position, stop: Position | None) -> Iterator[Message]:
        """Yield the messages from the entry ``first`` on, after ``start`` and before ``stop``."""
        from pulsar_admin.store.model.messages import MessageReader

        options = ReadOptions(self._options.committed, whole=False)
        reader = MessageReader(self._reader, options, lambda: self._topic.iter_positions(first), self._problems)
        for message in reader.iter_messages(self._topic.iter_positions(first)):
            if stop is not None and message.position >= stop:
                return
            if start is None or message.position > start:
                yield message

    def _row(self, message: Message) -> FoundRow:
        decoded = None if self._decode is None else self._decode(message)
        row = message_row(self._topic.name, message, payload=self._options.payload, decoded=decoded)
        return FoundRow(**asdict(row), context=True)
