"""Messages that a search finds, with those around them: matches come from a scan by columns, neighbours are read one by one."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any, ClassVar

import pyarrow as pa
from msgspec.structs import asdict

from pulsar_admin.store.dump.messages import TopicMessages
from pulsar_admin.store.dump.options import DumpOptions
from pulsar_admin.store.dump.reading import iter_matches
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.messages import Message, MessageReader, MessageRow, ReadOptions, message_row
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.schemas import value_decoder
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position

_WINDOW_MAX = 1 << 20  # entries in front of a match among which its neighbours are looked for at once


class FoundRow(MessageRow, frozen=True):
    """A message that was found, or, as ``context``, one beside it."""

    JSON_OPTIONAL: ClassVar[tuple[str, ...]] = (*MessageRow.JSON_OPTIONAL, "context")

    context: bool | None = None


class MatchingMessages(TopicMessages):
    """The messages that the match of the options looks for; as rows with BEFORE messages in front of each and AFTER behind it."""

    def __init__(self, *asked: Any, before: int = 0, after: int = 0) -> None:  # Any: as of any messages of a topic
        super().__init__(*asked)
        self.before, self.after = before, after

    def is_few(self) -> bool:
        return False

    def columns(self) -> Generator[pa.RecordBatch, None, None]:
        return iter_matches(self.reader, self.topic, self.options, self.limit, self.problems)

    def rows(self) -> Iterator[FoundRow]:
        if not self.before and not self.after:
            yield from map(_found, super().rows())
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
            yield _found(row)
            last, left = here, self.after
        if last is not None:
            yield from neighbours.behind(last, None, left)


def _found(row: MessageRow) -> FoundRow:
    return FoundRow(**_members(row))


def _members(row: MessageRow) -> dict[str, Any]:  # Any: each field's own type
    return asdict(row)


class _Neighbours:
    """Reads the messages beside others, whatever they are."""

    def __init__(self, reader: EntryReader, topic: Topic, options: DumpOptions, problems: list[StoreError]) -> None:
        self._reader = reader
        self._topic = topic
        self._options = options
        self._problems = problems
        self._decode = value_decoder(reader, topic.name) if options.value else None

    def behind(self, start: Position, stop: Position | None, count: int) -> Iterator[FoundRow]:
        """Yield the first COUNT messages behind START and in front of STOP."""
        found = self._between(start, start.entry, stop) if count else iter(())
        yield from map(self._row, islice(found, count))

    def in_front(self, start: Position | None, stop: Position, count: int) -> Iterator[FoundRow]:
        """Yield the last COUNT messages behind START and in front of STOP."""
        end = self._topic.rank(stop.entry)
        lowest = 0 if start is None else self._topic.rank(start.entry)
        entries, found = count, list[Message]()
        first = end + 1
        while count and len(found) < count and first > lowest:
            first = max(lowest, end - entries)
            found = list(self._between(start, self._topic.at_rank(first), stop))
            entries = min(4 * entries, entries + _WINDOW_MAX)
        yield from map(self._row, found[len(found) - min(count, len(found)) :])

    def _between(self, start: Position | None, first: Position, stop: Position | None) -> Iterator[Message]:
        """Yield the messages from the entry FIRST on, behind START and in front of STOP."""
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
        return FoundRow(**_members(row), context=True)
