"""Messages that a search finds, with those around them: matches come from a scan by columns, neighbours are read one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any

from store.dump.job import DumpOptions
from store.dump.reading import iter_matches, iter_rows
from store.errors import StoreError
from store.frozen import frozen
from store.model.message_row import MessageRow, message_row, redacted
from store.model.messages import Message, MessageReader, ReadOptions
from store.model.reader import EntryReader
from store.model.topics import Topic
from store.names import Position

_WINDOW_MAX = 1 << 20  # entries in front of a match among which its neighbours are looked for at once


@frozen
class FoundRow(MessageRow):
    """A message that was found, or, as ``context``, one beside it."""

    context: bool | None = field(default=None, metadata={"json_optional": True})


@dataclass(frozen=True, slots=True)
class Shown:
    """How many messages to show in front of a match and behind it; ``redact``: as ``store.model.message_row.redacted`` leaves them."""

    before: int = 0
    after: int = 0
    redact: bool = False


def iter_found(
    reader: EntryReader,
    topic: Topic,
    options: DumpOptions,
    limit: int | None,
    shown: Shown,
    problems: list[StoreError],
) -> Iterator[FoundRow]:
    """Yield the first LIMIT messages of TOPIC that the match of OPTIONS looks for, in topic order, with neighbours as SHOWN."""
    batches = iter_matches(reader, topic, options, limit, problems)
    matches = (row for batch in batches for row in iter_rows(topic.name, batch, redact=shown.redact))
    if not shown.before and not shown.after:
        yield from (_found(row) for row in matches)
        return
    neighbours = _Neighbours(reader, topic, options, problems, shown)
    last: Position | None = None
    left = 0  # messages still to show behind LAST
    for row in matches:
        here = Position(row.ledger_id, row.entry_id, row.batch_index)
        if last is not None:
            for beside in neighbours.behind(last, here, left):
                yield beside
                last = Position(beside.ledger_id, beside.entry_id, beside.batch_index)
        yield from neighbours.in_front(last, here, shown.before)
        yield _found(row)
        last, left = here, shown.after
    if last is not None:
        yield from neighbours.behind(last, None, left)


def _found(row: MessageRow) -> FoundRow:
    return FoundRow(**_members(row))


def _members(row: MessageRow) -> dict[str, Any]:  # Any: each field's own type
    return {each.name: getattr(row, each.name) for each in fields(row)}


class _Neighbours:
    """Reads the messages beside others, whatever they are."""

    def __init__(
        self, reader: EntryReader, topic: Topic, options: DumpOptions, problems: list[StoreError], shown: Shown
    ) -> None:
        self._reader = reader
        self._topic = topic
        self._options = options
        self._problems = problems
        self._redact = shown.redact
        self._decode = self._decoder() if options.value else None

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
        row = redacted(row) if self._redact else row
        return FoundRow(**_members(row), context=True)

    def _decoder(self) -> Callable[[Message], Any]:  # Any: Decoded, imported when values are wanted
        from store.model.schemas import PlainValues, ValueReader, encoded, read_schemas

        values = ValueReader(read_schemas(self._reader, self._topic.name), PlainValues().value)
        return lambda message: values.read(encoded(message))
