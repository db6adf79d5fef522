"""The messages of a topic in its order: few of them are read one by one, without the libraries that read columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pulsar_admin.store.dump.options import DumpOptions
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.messages import Decoded, Message, MessageRow, ReadOptions, message_row, read_message
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position

if TYPE_CHECKING:
    import pyarrow as pa


class TopicMessages:
    """At most LIMIT messages of TOPIC, those of the window of OPTIONS; what cannot be read is added to PROBLEMS.

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
        """Yield them as JSON lines, in the pieces of ``store.dump.tables.json_text``; LINE_OF makes that of a few."""
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

            decode = value_decoder(self.reader, self.topic.name, self.problems)
        for message in islice(self.each(), self.limit):
            self.count += 1
            yield message, None if decode is None else decode(message)


class ViewMessages(TopicMessages):
    """The messages of a topic's compacted view, those with one of KEYS (none: all); raises MetadataCorrupt, EntryCorrupt."""

    def __init__(
        self,
        reader: EntryReader,
        topic: Topic,
        options: DumpOptions,
        keys: Collection[str],
        limit: int | None,
        problems: list[StoreError],
    ) -> None:
        from pulsar_admin.store.compaction.view import open_view

        super().__init__(reader, topic, replace(options, view=open_view(reader, topic, problems)), limit, problems)
        self.keys = keys

    def is_few(self) -> bool:
        from pulsar_admin.store.compaction.reading import view_extent
        from pulsar_admin.store.search.window import is_few

        extent = view_extent(self.reader.txn, self.topic, self.options.view)
        return is_few(extent, None if self.keys else self.limit)

    def each(self) -> Iterator[Message]:
        from pulsar_admin.store.compaction.reading import iter_view

        found = iter_view(self.reader, self.topic, self.options.view, self.problems)
        return (message for message in found if not self.keys or message.key in self.keys)

    def columns(self) -> Generator[pa.RecordBatch, None, None]:
        from pulsar_admin.store.dump.reading import iter_view_columns

        return iter_view_columns(self.reader, self.topic, self.options, self.keys, self.limit, self.problems)


class EntryMessage(TopicMessages):
    """The first message of the entry at POSITION; raises what is wrong with it, NothingMatches: compaction took all of them."""

    def __init__(
        self, reader: EntryReader, topic: Topic, options: DumpOptions, position: Position, problems: list[StoreError]
    ) -> None:
        super().__init__(reader, topic, options, None, problems)
        self.message = read_message(reader, position)

    def is_few(self) -> bool:
        return True

    def each(self) -> Iterator[Message]:
        return iter((self.message,))
