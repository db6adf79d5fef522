"""The tables of an open store by name: those of ``store.tables.schemas``, and each topic, partitioned topic, glob or namespace."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import islice
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from store.errors import InvalidValue, NotFound, StoreError
from store.model.reader import EntryReader
from store.model.schemas import TopicSchemas, read_schemas
from store.model.topics import iter_topics
from store.names import TopicName, parse_owner
from store.scan.ledgertopics import named_topics
from store.tables.dataset import MadeTable
from store.tables.messages import MessageTable
from store.tables.pruned_parts import Seen
from store.tables.pruning import Pruner
from store.tables.rows import SMALL_TABLES, iter_table
from store.tables.schemas import TABLES
from store.tables.stored_entries import ENTRIES, StoredEntries

_BY_TOPIC = ("topics", "ledgers", "cursors")
"""Small tables whose rows are a topic's that there is, or no topic's."""
_SAME_SCHEMA_TOPICS = 1024  # of which the schemas are compared; of more, values are JSON text


class StoreTables:
    """What SQL finds in one snapshot of a store.

    ``problems``: what scans could not read. ``errors``: what they raised.
    """

    def __init__(self, reader: EntryReader, cluster: str | None) -> None:
        self._reader = reader
        self._cluster = cluster
        self._lock = Lock()
        self.problems: list[StoreError] = []
        self.errors: list[BaseException] = []
        self.seen: dict[str, Seen] = {}

    def told(self) -> list[str]:
        """Return what the scans since the last call read and left out, a line a table, and begin anew."""
        lines = [seen.text(name) for name, seen in self.seen.items() if seen.ledgers]
        for seen in self.seen.values():
            seen.clear()
        return lines

    @property
    def names(self) -> tuple[str, ...]:
        """The tables that every store has."""
        return ("messages", "entries", *SMALL_TABLES)

    def find(self, name: str) -> MadeTable | None:
        """Return the table NAME, None where there is none; raises StoreError for a topic whose metadata cannot be read."""
        if name == "messages":
            return self._messages(name, self._all_topics, None)
        if name == "entries":
            seen = self.seen.setdefault(name, Seen())
            table = StoredEntries(self._reader, self._cluster, self._every_topic, self.problems, seen)
            return MadeTable(ENTRIES, table.rows, self._lock, self.errors)
        if name in SMALL_TABLES:
            return MadeTable(TABLES[name], partial(self._small, name), self._lock, self.errors)
        try:
            topics = named_topics(self._reader.txn, name)
        except (InvalidValue, NotFound):
            return None
        names = sorted(map(str, topics))
        return self._messages(name, lambda: names, self._common_schemas(topics))

    def _small(self, name: str, columns: Collection[str], pruner: Pruner) -> Iterator[pa.RecordBatch]:
        topics = None
        if name in _BY_TOPIC and pruner.names("topic") and not pruner.passing([pc.field("topic").is_null()]):
            topics = [parse_owner(topic) for topic in pruner.chosen("topic", self._every_topic())]
        yield from iter_table(self._reader, name, self._cluster, self.problems.append, topics)

    def topics_like(self, begin: str, most: int) -> list[str]:
        """Return names of topics that begin with BEGIN, MOST at most, without their domain."""
        names = (str(topic).removeprefix("persistent://") for topic in iter_topics(self._reader.txn))
        return list(islice((name for name in names if name.startswith(begin)), most))

    def _every_topic(self) -> list[str]:
        return sorted(map(str, iter_topics(self._reader.txn)))

    def _all_topics(self) -> list[str]:
        return sorted(str(topic) for topic in iter_topics(self._reader.txn) if not topic.is_system)

    def _messages(self, name: str, topics: Callable[[], Sequence[str]], schemas: TopicSchemas | None) -> MadeTable:
        seen = self.seen.setdefault(name, Seen())
        table = MessageTable(self._reader, self._cluster, topics, schemas, self.problems, seen)
        try:
            schema = table.schema
        except StoreError:  # of a definition that makes no type: values are JSON text, or say what is wrong
            table = replace(table, schemas=None)
            schema = table.schema
        return MadeTable(schema, table.rows, self._lock, self.errors)

    def _common_schemas(self, topics: Sequence[TopicName]) -> TopicSchemas | None:
        """Return the schemas that all TOPICS have; None where they have none, or not the same."""
        if len(topics) > _SAME_SCHEMA_TOPICS:
            return None
        found = [read_schemas(self._reader, topic) for topic in topics]
        same = bool(found) and found[0].newest is not None and all(schemas == found[0] for schemas in found)
        return found[0] if same else None
