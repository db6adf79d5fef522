"""The table messages of a store: entries found by its index, each for itself as in ``store.scan.message_rows``.

Ledgers and blocks whose bounds a filter rules out are not read, columns that nobody asks for not decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from store.errors import EntryNotFound, StoreError
from store.model.extent import iter_ledger_parts
from store.model.reader import EntryReader
from store.model.schemas import TopicSchemas, read_schemas
from store.model.topics import Topic, read_topic
from store.names import parse_owner
from store.scan.entries import EntryScan
from store.scan.message_rows import ReadMessages
from store.scan.operations import ScanOptions
from store.scan.places import Part, Places, PlacesReader, doubtful
from store.scan.spread import PlacesOperation, PlainFiles, run_places
from store.scan.typed_values import Values
from store.tables.pruned_parts import Seen, iter_wanted
from store.tables.pruning import Pruner, equal
from store.tables.schemas import TABLES
from store.wording import counted

MESSAGES = TABLES["messages"]
_ROUND_LEDGERS = 4096  # whose topics and schemas are held, and sent, at once
_ENGINE_BYTES = 8 << 20  # so much is read here before an engine's processes have the first slice


class MessagesAt(Struct, PlacesOperation, frozen=True):
    """Rows of messages at given places, packed, one row per batch of places; an empty one is read again where it is explained."""

    messages: ReadMessages

    def values(self, places: Places, files: PlainFiles) -> tuple[bytes]:
        entries = PlacesReader(files, False, None).read_places(places)
        problems: list[StoreError] = []
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.messages.schema) as stream:
            for batch in self.messages.rows([entries], "", problems):
                stream.write_batch(batch)
        return (b"" if problems or doubtful(entries, places).any() else sink.getvalue().to_pybytes(),)


class MessageTable(Struct):
    """Messages of the topics that ``find`` names, in ascending order. Values are JSON text, or of the type of ``schemas``.

    What cannot be read is added to PROBLEMS; SEEN is filled as scans go.
    """

    reader: EntryReader
    cluster: str | None
    find: Callable[[], Sequence[str]]
    schemas: TopicSchemas | None = None  # of all topics, where values are typed
    problems: list[StoreError] = field(default_factory=list)
    seen: Seen = field(default_factory=Seen)

    @property
    def schema(self) -> pa.Schema:
        """The columns; raises Unsupported for values that have no type."""
        return pa.schema([*self._own, *self._read(tuple(MESSAGES.names[1:]), {}).schema])

    @property
    def _own(self) -> list[pa.Field]:
        return [MESSAGES.field("cluster")]

    def rows(self, columns: Collection[str], pruner: Pruner) -> Iterator[pa.RecordBatch]:
        """Yield the messages that the filter may be true of."""
        names = tuple(name for name in MESSAGES.names if name in columns and name != "cluster")
        schema = pa.schema([self.schema.field(name) for name in MESSAGES.names if name in {"cluster", *names}])
        for parts, topics in self._rounds(pruner):
            messages = self._read(names or ("ledger_id",), topics)
            for batch in self._scan(messages, parts):
                yield self._named(batch, schema)

    def _named(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return BATCH with the columns of SCHEMA, the cluster's name among them."""
        cluster = pa.repeat(pa.scalar(self.cluster, pa.string()), len(batch))
        found = [cluster if name == "cluster" else batch.column(name) for name in schema.names]
        return pa.RecordBatch.from_arrays(found, schema=schema)

    def _read(self, columns: tuple[str, ...], topics: dict[int, str]) -> ReadMessages:
        """Return how messages of TOPICS, by their ledgers, are read."""
        values = None
        if not {"value", "value_error"}.isdisjoint(columns):
            if self.schemas is not None:
                values = Values(dict.fromkeys(topics.values() or [""], self.schemas), typed=True)
            else:
                names = dict.fromkeys(topics.values())
                values = Values({name: read_schemas(self.reader, parse_owner(name)) for name in names})
        return ReadMessages(ScanOptions(topics=topics), columns, values=values)

    # -- which entries ------------------------------------------------------------------------------------------------

    def _rounds(self, pruner: Pruner) -> Iterator[tuple[list[Part], dict[int, str]]]:
        """Yield parts to read, some ledgers at a time, and these ledgers' topics."""
        parts: list[Part] = []
        topics: dict[int, str] = {}
        for name in pruner.chosen("topic", self.find()):
            topic = self._topic(name)
            for part in () if topic is None else self._parts(topic, pruner):
                if part[0] not in topics and len(topics) == _ROUND_LEDGERS:
                    yield parts, topics
                    parts, topics = [], {}
                parts.append(part)
                topics[part[0]] = name
        if parts:
            yield parts, topics

    def _topic(self, name: str) -> Topic | None:
        try:
            return read_topic(self.reader.txn, parse_owner(name))
        except StoreError as error:
            self.problems.append(error)
            return None

    def _parts(self, topic: Topic, pruner: Pruner) -> Iterator[Part]:
        """Return the entries of TOPIC that may have a row."""
        parts = list(iter_ledger_parts(topic, 0, topic.number_of_entries))
        names = [equal("topic", str(topic.name))] * len(parts)
        return iter_wanted(self.reader.txn, parts, names, pruner, self.seen)

    # -- their rows ---------------------------------------------------------------------------------------------------

    def _scan(self, messages: ReadMessages, parts: Iterable[Part]) -> Iterator[pa.RecordBatch]:
        """Yield the messages of the entries of PARTS, by the reader's engine where there is one and it pays."""
        if "path" in messages.columns:  # which is found by the entry
            messages = replace(messages, columns=(*dict.fromkeys([*messages.columns, "ledger_id", "entry_id"]),))
        scan = EntryScan(self.reader, parts)
        for places, row in self._packed(messages, scan):
            batches = iter(pa.ipc.open_stream(row)) if row else self._rows_here(messages, scan, places)
            for batch in batches:
                yield self._with_paths(batch, places) if "path" in messages.columns else batch
            self.reader.advance(places.bytes)
        self.problems += scan.unreadable
        if scan.missing:
            lost = counted(scan.missing, "entry is", "entries are")
            self.problems.append(EntryNotFound(f"of what was to be read {lost} in no imported file"))

    def _packed(self, messages: ReadMessages, scan: EntryScan) -> Iterator[tuple[Places, bytes]]:
        """Yield places, and their rows where the engine made them."""
        engine = self.reader.engine
        if engine is None or self.seen.read_bytes < _ENGINE_BYTES:
            yield from ((places, b"") for places in scan.groups())
            return
        for places, row in run_places(engine, MessagesAt(messages), self.reader.files, scan.groups()):
            yield places, b"" if row is None else row["rows"]

    def _rows_here(self, messages: ReadMessages, scan: EntryScan, places: Places) -> Iterator[pa.RecordBatch]:
        for entries in scan.read_here(places):
            yield from messages.rows([entries], "", self.problems)

    def _with_paths(self, batch: pa.RecordBatch, places: Places) -> pa.RecordBatch:
        """Return BATCH with the paths of the files that its messages lie in."""
        ids = zip(places.ledger_ids.tolist(), places.entry_ids.tolist(), strict=True)
        files = dict(zip(ids, places.files.tolist(), strict=True))
        paths = {number: str(self.reader.files.path_of(number)) for number in set(files.values())}
        ids = zip(batch.column("ledger_id").to_pylist(), batch.column("entry_id").to_pylist(), strict=True)
        found = pa.array([paths[files[position]] for position in ids], pa.string())
        return batch.set_column(batch.schema.get_field_index("path"), batch.schema.field("path"), found)
