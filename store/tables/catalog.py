"""The tables that SQL can query by name: those of an open store, or those that ``store export tables`` wrote.

``StoreTables``: the tables of ``store.tables.schemas``; also each topic, partitioned topic, glob or namespace.
``ExportedTables``: those of one cluster, or of all clusters in a folder. pyarrow reads the files, on a disk or at a
URL, without the row groups and columns that a statement does not need. Each file is checked by its SHA-256 before its
first use, and its pages by their checksums whenever they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial
from itertools import islice
from threading import Lock
from typing import ClassVar

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.entry import ENTRY_HEADER_BYTES
from pulsar_admin.store.db.blocks import decode_times, ledger_key, ledger_of_key
from pulsar_admin.store.db.copies import has_copies, iter_copies
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import LogFile, find_log
from pulsar_admin.store.db.owners import find_lister
from pulsar_admin.store.engine.operation import stream_of
from pulsar_admin.store.errors import EntryNotFound, InvalidValue, NotFound, SourceNotFound, StoreError
from pulsar_admin.store.kernels.columns import UNFRAMED
from pulsar_admin.store.model.cursors import iter_ledger_parts
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.resources import find_cluster_name
from pulsar_admin.store.model.schemas import TopicSchemas, read_schemas
from pulsar_admin.store.model.topics import Topic, iter_all_topics, read_topic
from pulsar_admin.store.names import PARTITION_SUFFIX, SCALABLE, SEGMENT, TopicName, parse_owner, parse_topic
from pulsar_admin.store.scan import operations
from pulsar_admin.store.scan.arrow import column, nullable, texts_of
from pulsar_admin.store.scan.entries import EntryScan
from pulsar_admin.store.scan.places import EntryBatch, Part, Places, PlacesReader, doubtful
from pulsar_admin.store.scan.reducing import Reductions, Row
from pulsar_admin.store.scan.typed_values import Values
from pulsar_admin.store.tables.entries import NO_SEQUENCE, entry_keys, senders, with_topics
from pulsar_admin.store.tables.folder import Folder, Manifest, TableFile, read_manifest
from pulsar_admin.store.tables.parquet import check_file, explained, lacking, open_checked
from pulsar_admin.store.tables.rows import SMALL_TABLES, iter_table, tell_unseen
from pulsar_admin.store.tables.schemas import OF_TOPIC, TABLES, known_schema
from pulsar_admin.store.tables.split_sql import AddUp, Split
from pulsar_admin.store.tables.sql import (
    Database,
    MadeTable,
    Pruner,
    Seen,
    TopicsMeant,
    between,
    equal,
    iter_wanted,
    open_database,
)
from pulsar_admin.store.wording import counted

# -- entries ----------------------------------------------------------------------------------------------------------
# What the index names, once each: it says where entries lie, and files are read for the rest. Rows are those of
# ``store.tables.entries`` but for entries of which no whole record is left.

Extents = list[tuple[Part, str | None]]
"""The entries of ledgers, and their topics."""

ENTRIES = TABLES["entries"]
_INDEXED = {"cluster", "topic", "ledger_id", "entry_id", "offset", "size", "payload_bytes", "path", "bookie", "copies"}
_SENDERS = {"producer", "sequence_id"}
_ROUND_LEDGERS = 1024


class StoredEntries(Struct):
    """The table ``entries`` of a store, in order of ledger and entry. ``topics``: all names, ascending. Failures are
    added to ``problems``; ``seen`` counts what scans read."""

    asked: Callable[[], EntryReader]
    cluster: str | None
    topics: Callable[[], Sequence[str]]
    problems: list[StoreError] = field(default_factory=list)
    seen: Seen = field(default_factory=Seen)

    @property
    def reader(self) -> EntryReader:
        """A new reader of the snapshot for each scan."""
        return self.asked()

    def rows(self, columns: Collection[str], pruner: Pruner) -> Iterator[pa.RecordBatch]:
        """Yield the entries that may pass the filter."""
        names = [name for name in ENTRIES.names if name in columns]
        tell_unseen(self.reader.txn, _named(pruner, self.topics), self.problems.append)
        before = self.seen.read_bytes
        makes = _Columns(self.reader.txn, self.cluster, names)
        for extents in self._rounds(pruner):
            named = [pc.field("topic").is_null() if topic is None else equal("topic", topic) for _, topic in extents]
            parts = iter_wanted(self.reader.txn, [part for part, _ in extents], named, pruner, self.seen)
            makes.topics = {part[0]: topic for part, topic in extents}
            for places, batch in self._read(parts, set(names)):
                yield makes.batch(places, batch)
        if _INDEXED.issuperset(names):
            self.seen.read_bytes = before

    def _read(self, parts: Iterator[Part], names: set[str]) -> Iterator[tuple[Places, EntryBatch | None]]:
        """Yield places, and the entries read from there if the named columns need them."""
        scan = EntryScan(self.reader, parts, heads="digest_ok" not in names)
        if names <= _INDEXED:
            for places in scan.groups():
                yield places, None
                self.reader.advance(places.bytes)
            return
        yield from scan.placed()
        self.problems += scan.unreadable

    def _rounds(self, pruner: Pruner) -> Iterator[Extents]:
        """Yield the extents of ledgers with entries that may have rows in the result, several at a time."""
        found = _extents(self.reader.txn, self._ids(pruner))
        while some := list(islice(found, _ROUND_LEDGERS)):
            if pruner.passing([between("ledger_id", some[0][0][0], some[-1][0][0])]):
                yield some
            else:
                self.seen.ledgers += len(some)

    def _ids(self, pruner: Pruner) -> Iterator[int]:
        """Yield the ids of all ledgers, or of those of the topics that the filter allows, ascending."""
        if not pruner.names("topic") or pruner.passing([pc.field("topic").is_null()]):
            yield from (ledger_of_key(key) for key, _ in self.reader.txn.items("times"))
            return
        ids: set[int] = set()
        for name in pruner.chosen("topic", self.topics()):
            try:
                ids.update(read_topic(self.reader.txn, parse_owner(name)).ids)
            except StoreError as error:
                self.problems.append(error)
        yield from sorted(ids)


def _extents(txn: Txn, ids: Iterator[int]) -> Iterator[tuple[Part, str | None]]:
    for ledger_id in ids:
        row = txn.view("times", ledger_key(ledger_id))
        if row is not None:
            sums = decode_times(ledger_id, row).sums
            yield (ledger_id, sums.first_entry, sums.last_entry), find_lister(txn, ledger_id)


class _Columns:
    """Makes the named columns for entries; it has ledger id → topic of their ledgers."""

    def __init__(self, txn: Txn, cluster: str | None, names: list[str]) -> None:
        self._txn = txn
        self._cluster = cluster
        self._schema = pa.schema([ENTRIES.field(name) for name in names])
        self._logs: dict[int, LogFile] = {}
        self.topics: dict[int, str | None] = {}

    def batch(self, places: Places, batch: EntryBatch | None) -> pa.RecordBatch:
        """Return the rows of the entries at these places; if ``batch`` is given, only of the entries in it."""
        if batch is not None and len(batch) < len(places):
            places = places.take(
                np.isin(entry_keys(places.ledger_ids, places.entry_ids), entry_keys(batch.ledger_ids, batch.entry_ids))
            )
        made = [self._make(name, places, batch) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(made, schema=self._schema)

    def _make(self, name: str, places: Places, batch: EntryBatch | None) -> pa.Array:
        if name == "cluster":
            return pa.repeat(pa.scalar(self._cluster, pa.string()), len(places))
        if name == "topic":
            return texts_of(places.ledger_ids, self.topics.get)
        if name == "path":
            return texts_of(places.files, lambda number: self._log(number).place(self._txn.store.path))
        if name == "bookie":
            return texts_of(places.files, lambda number: self._log(number).bookie or None)
        if name == "copies":
            return column(self._copies(places))
        if name in _PLACES:
            return column(_PLACES[name](places).astype(ENTRIES.field(name).type.to_pandas_dtype()))
        assert batch is not None
        if name == "last_add_confirmed":
            return column(batch.rows["lac"].copy())
        return _sender(name, batch) if name in _SENDERS else operations.entry_column(name, batch.rows)

    def _log(self, number: int) -> LogFile:
        if number not in self._logs:
            found = find_log(self._txn, number)
            assert found is not None, f"file {number} of the index is not in the catalogue"
            self._logs[number] = found
        return self._logs[number]

    def _copies(self, places: Places) -> Array:
        """Return for each entry how many bookies have a whole record of it."""
        copies = np.ones(len(places), np.int16)
        if not has_copies(self._txn):
            return copies
        for ledger_id in np.unique(places.ledger_ids).tolist():
            of_ledger = places.ledger_ids == ledger_id
            entries = places.entry_ids[of_ledger]
            disks: dict[str, Array] = {}
            for number, ids in iter_copies(self._txn, ledger_id):
                there = np.isin(entries, np.fromiter(ids, np.int64, len(ids)))
                disk = self._log(number).disk
                disks[disk] = disks.get(disk, False) | there
            copies[of_ledger] = sum(disks.values(), np.zeros(len(entries), np.int16))
        return copies


_PLACES: dict[str, Callable[[Places], Array]] = {
    "ledger_id": lambda places: places.ledger_ids,
    "entry_id": lambda places: places.entry_ids,
    "offset": lambda places: places.offsets,
    "size": lambda places: places.sizes,
    "payload_bytes": lambda places: np.maximum(places.sizes.astype(np.int64) - ENTRY_HEADER_BYTES - places.digests, 0),
}


def _sender(name: str, batch: EntryBatch) -> pa.Array:
    ends = np.where(batch.rows["flags"] & UNFRAMED == 0, batch.ends, batch.starts)
    producers, sequences = senders(batch.data, batch.starts, ends)
    if name == "producer":
        return producers
    return nullable(np.where(sequences == NO_SEQUENCE, 0, sequences), sequences != NO_SEQUENCE)


MESSAGES = TABLES["messages"]
_OF_MESSAGES = tuple(name for name in MESSAGES.names if name not in ("cluster", *OF_TOPIC))
# -- messages ---------------------------------------------------------------------------------------------------------
# Entries found by the index, each for itself as in ``store.scan.operations``. Ledgers and blocks whose bounds a filter rules out
# are not read, columns that nobody asks for not decoded.

_ROUND_MESSAGE_LEDGERS = 4096  # whose topics and schemas are held, and sent, at once
_ENGINE_BYTES = 8 << 20  # this much is read here before an engine's processes have the first slice


class MessagesAt(Struct, operations.PlacesOperation, frozen=True):
    """Operation that makes packed message rows of a batch of entries, empty if the store's process must read them."""

    messages: operations.ReadMessages

    needs: ClassVar[tuple[str, ...]] = ("duckdb",)

    def values(self, places: Places, files: operations.PlainFiles) -> tuple[bytes]:
        entries = PlacesReader(files, False, None).read_places(places)
        problems: list[StoreError] = []
        rows = stream_of(self.messages.schema, self.messages.rows([entries], "", problems))
        return (b"" if problems or doubtful(entries, places).any() else rows.to_pybytes(),)


class MessageTable(Struct):
    """Messages of the topics that ``find`` returns, topics ascending. Values are JSON text, or have the type of
    ``schemas``.

    Failures are added to ``problems``; ``seen`` counts what scans read.
    """

    asked: Callable[[], EntryReader]
    cluster: str | None
    find: Callable[[], Sequence[str]]
    schemas: TopicSchemas | None = None  # of all topics, where values are typed
    problems: list[StoreError] = field(default_factory=list)
    seen: Seen = field(default_factory=Seen)
    is_unsplit: bool = False

    @property
    def reader(self) -> EntryReader:
        """A new reader of the snapshot for each scan."""
        return self.asked()

    @property
    def schema(self) -> pa.Schema:
        """The columns; raises Unsupported for values that have no type."""
        return pa.schema(
            [MESSAGES.field("cluster"), *self._read(_OF_MESSAGES, {}).schema, *map(MESSAGES.field, OF_TOPIC)]
        )

    def rows(self, columns: Collection[str], pruner: Pruner) -> Iterator[pa.RecordBatch]:
        """Yield the messages that may pass the filter."""
        names, schema = self._named(columns)
        for parts, topics in self._rounds(pruner):
            for batch in self._scan(self._read(names or ("ledger_id",), topics), parts):
                yield with_topics(batch, schema, self.cluster)

    def adding(self) -> MessageTable | None:
        """Return this table as one whose engine can aggregate messages where they are read; None without an engine."""
        return None if self.reader.engine is None else self

    def add_up(
        self, columns: Collection[str], pruner: Pruner, split: Split, finish: Callable[[pa.Table], None]
    ) -> bool:
        """Call ``finish`` with the partial results of a split statement, over messages that may pass the filter; return
        False if the unsplit statement has to run instead."""
        seen, problems = copy(self.seen), len(self.problems)
        with suppress(
            duckdb.Error, pa.ArrowException, MemoryError
        ):  # run again, the statement raises its own error, and may use the disk
            parts = self._parts_of(columns, pruner, split)
            if parts is not None:
                finish(parts)
                return True
        for name in Seen.__struct_fields__:
            setattr(self.seen, name, getattr(seen, name))
        del self.problems[problems:]
        return False

    def _parts_of(self, columns: Collection[str], pruner: Pruner, split: Split) -> pa.Table | None:
        rounds = [*self._rounds(pruner)]
        topics = {ledger_id: name for _, some in rounds for ledger_id, name in some.items()}
        is_shared = len(topics) < sum(len(some) for _, some in rounds)  # a ledger, of several topics
        self.is_unsplit = is_shared or "path" in columns
        if self.is_unsplit or self.seen.read_bytes < _ENGINE_BYTES:
            return None
        names, schema = self._named(columns)
        messages = self._read(names or ("ledger_id",), topics)
        scan = EntryScan(self.reader, [part for parts, _ in rounds for part in parts])
        add_up = AddUp(split, messages, schema, self.cluster)

        def again(places: Places) -> Row:
            return add_up.of(self._rows_here(messages, scan, places))

        row = Reductions(self.reader, [scan], add_up, again).row(0)
        self._tell(scan)
        return add_up.table([row])

    def _named(self, columns: Collection[str]) -> tuple[tuple[str, ...], pa.Schema]:
        """Return the names of the columns to read from messages, and the schema of all requested columns."""
        asked = [name for name in OF_TOPIC if name in columns]
        wanted = {*columns, "topic"} if asked else columns
        names = tuple(name for name in _OF_MESSAGES if name in wanted)
        schema = self.schema
        return names, pa.schema([schema.field(name) for name in MESSAGES.names if name in {"cluster", *names, *asked}])

    def _read(self, columns: tuple[str, ...], topics: dict[int, str]) -> operations.ReadMessages:
        """Return the operation that reads these columns of messages; ``topics``: ledger id → topic."""
        values = None
        if not {"value", "value_error"}.isdisjoint(columns):
            if self.schemas is not None:
                values = Values(dict.fromkeys(topics.values() or [""], self.schemas), typed=True)
            else:
                names = dict.fromkeys(topics.values())
                values = Values({name: read_schemas(self.reader, parse_owner(name)) for name in names})
        return operations.ReadMessages(operations.ScanOptions(topics=topics), columns, values=values)

    # -- which entries ------------------------------------------------------------------------------------------------

    def _rounds(self, pruner: Pruner) -> Iterator[tuple[list[Part], dict[int, str]]]:
        """Yield (parts of ledgers to read, ledger id → topic), several ledgers at a time."""
        parts: list[Part] = []
        topics: dict[int, str] = {}
        for name in pruner.chosen("topic", self._in_namespaces(pruner)):
            try:
                topic = read_topic(self.reader.txn, parse_owner(name))
            except StoreError as error:
                self.problems.append(error)
                continue
            for part in self._parts(topic, pruner):
                if part[0] not in topics and len(topics) == _ROUND_MESSAGE_LEDGERS:
                    yield parts, topics
                    parts, topics = [], {}
                parts.append(part)
                topics[part[0]] = name
        if parts:
            yield parts, topics

    def _in_namespaces(self, pruner: Pruner) -> Sequence[str]:
        """Return the topics of the namespaces that the filter allows."""
        names = self.find()
        if not pruner.names("tenant", "namespace"):
            return names
        spaces = list(dict.fromkeys(parse_owner(name).namespace for name in names))
        bounds = [equal("tenant", space.tenant) & equal("namespace", str(space)) for space in spaces]
        left = {spaces[place] for place in pruner.passing(bounds)}
        return [name for name in names if parse_owner(name).namespace in left]

    def _parts(self, topic: Topic, pruner: Pruner) -> Iterator[Part]:
        """Yield the parts of a topic's ledgers that may have rows in the result."""
        parts = list(iter_ledger_parts(topic, 0, topic.number_of_entries))
        names = [equal("topic", str(topic.name))] * len(parts)
        return iter_wanted(self.reader.txn, parts, names, pruner, self.seen)

    # -- their rows ---------------------------------------------------------------------------------------------------

    def _scan(self, messages: operations.ReadMessages, parts: Iterable[Part]) -> Iterator[pa.RecordBatch]:
        """Yield the messages of entries, read by the reader's engine if there is one and it pays."""
        if "path" in messages.columns:  # which is found by the entry
            messages = replace(messages, columns=(*dict.fromkeys([*messages.columns, "ledger_id", "entry_id"]),))
        scan = EntryScan(self.reader, parts)
        for places, row in self._packed(messages, scan):
            batches = iter(pa.ipc.open_stream(row)) if row else self._rows_here(messages, scan, places)
            for batch in batches:
                yield self._with_paths(batch, places) if "path" in messages.columns else batch
            self.reader.advance(places.bytes)
        self._tell(scan)

    def _tell(self, scan: EntryScan) -> None:
        """Add what a scan could not read to ``problems``."""
        self.problems += scan.unreadable
        if scan.missing:
            lost = counted(scan.missing, "entry is", "entries are")
            self.problems.append(EntryNotFound(f"{lost} in no imported file"))

    def _packed(self, messages: operations.ReadMessages, scan: EntryScan) -> Iterator[tuple[Places, bytes]]:
        """Yield (places, their packed rows), b"" for those that the engine did not make."""
        engine = self.reader.engine
        if engine is None or self.seen.read_bytes < _ENGINE_BYTES:
            yield from ((places, b"") for places in scan.groups())
            return
        self.seen.is_brought = self.is_unsplit
        for places, row in operations.run_places(engine, MessagesAt(messages), self.reader.files, scan.groups()):
            yield places, b"" if row is None else row["rows"]

    def _rows_here(
        self, messages: operations.ReadMessages, scan: EntryScan, places: Places
    ) -> Iterator[pa.RecordBatch]:
        for entries in scan.read_here(places):
            yield from messages.rows([entries], "", self.problems)

    def _with_paths(self, batch: pa.RecordBatch, places: Places) -> pa.RecordBatch:
        """Return a batch with the paths of the files that hold its messages."""
        ids = zip(places.ledger_ids.tolist(), places.entry_ids.tolist(), strict=True)
        files = dict(zip(ids, places.files.tolist(), strict=True))
        paths = {number: self.reader.files.path_of(number) for number in set(files.values())}
        ids = zip(batch.column("ledger_id").to_pylist(), batch.column("entry_id").to_pylist(), strict=True)
        found = pa.array([paths[files[position]] for position in ids], pa.string())
        return batch.set_column(batch.schema.get_field_index("path"), batch.schema.field("path"), found)


# -- all tables of a store --------------------------------------------------------------------------------------------

_BY_TOPIC = ("topics", "ledgers", "cursors")
"""Small tables whose rows are a topic's that there is, or no topic's."""
_SAME_SCHEMA_TOPICS = 1024  # of which the schemas are compared; of more, values are JSON text


def _named(pruner: Pruner, topics: Callable[[], Sequence[str]]) -> list[TopicName] | None:
    """Return those of the topics that the filter allows, None if it allows all, or rows without a topic."""
    if not pruner.names("topic") or pruner.passing([pc.field("topic").is_null()]):
        return None
    return [parse_owner(topic) for topic in pruner.chosen("topic", topics())]


class StoreTables:
    """The tables that SQL sees in one snapshot of a store; ``asked`` returns a new reader of the snapshot for each
    scan.

    ``problems``: what scans could not read. ``errors``: exceptions that ended a scan.
    """

    def __init__(self, asked: Callable[[], EntryReader], cluster: str | None) -> None:
        self._asked = asked
        self._cluster = cluster
        self._lock = Lock()
        self.problems: list[StoreError] = []
        self.errors: list[BaseException] = []
        self.seen: dict[str, Seen] = {}

    @property
    def brought(self) -> list[str]:
        """The tables whose rows other processes read and sent to this one, because the statement cannot be split."""
        return [name for name, seen in self.seen.items() if seen.is_brought]

    def told(self) -> list[str]:
        """Return a line per table on what the scans since the last call read and skipped, and reset the counts."""
        lines = [seen.text(name) for name, seen in self.seen.items() if seen.ledgers]
        for seen in self.seen.values():
            seen.clear()
        return lines

    @property
    def names(self) -> tuple[str, ...]:
        """The tables that every store has."""
        return ("messages", "entries", *SMALL_TABLES)

    def find(self, name: str) -> MadeTable | None:
        """Return the table of a name, None for an unknown one; raises StoreError for a topic whose metadata cannot be read."""
        if name == "messages":
            return self._messages(name, self._all_topics, None)
        if name == "entries":
            seen = self.seen.setdefault(name, Seen())
            table = StoredEntries(self._asked, self._cluster, self._every_topic, self.problems, seen)
            return MadeTable(ENTRIES, table.rows, self._lock, self.errors)
        if name in SMALL_TABLES:
            return MadeTable(TABLES[name], partial(self._small, name), self._lock, self.errors)
        try:
            topics = operations.named_topics(self._asked().txn, name)
        except (InvalidValue, NotFound):
            return None
        names = sorted(map(str, topics))
        return self._messages(name, lambda: names, self._common_schemas(topics))

    def _small(self, name: str, columns: Collection[str], pruner: Pruner) -> Iterator[pa.RecordBatch]:
        topics = _named(pruner, self._every_topic) if name in _BY_TOPIC else None
        yield from iter_table(self._asked(), name, self._cluster, self.problems.append, topics, columns)

    def topics_like(self, begin: str, most: int) -> list[str]:
        """Return at most ``most`` names of topics that, without their domain, begin with a text."""
        names = (str(topic).removeprefix("persistent://") for topic in iter_all_topics(self._asked().txn))
        return list(islice((name for name in names if name.startswith(begin)), most))

    def _every_topic(self) -> list[str]:
        return sorted(map(str, iter_all_topics(self._asked().txn)))

    def _all_topics(self) -> list[str]:
        return sorted(str(topic) for topic in iter_all_topics(self._asked().txn) if not topic.is_system)

    def _messages(self, name: str, topics: Callable[[], Sequence[str]], schemas: TopicSchemas | None) -> MadeTable:
        seen = self.seen.setdefault(name, Seen())
        table = MessageTable(self._asked, self._cluster, topics, schemas, self.problems, seen)
        try:
            schema = table.schema
        except StoreError:  # the definition has no type of Arrow: values are JSON text, or an error
            table = replace(table, schemas=None)
            schema = table.schema
        return MadeTable(schema, table.rows, self._lock, self.errors, table.adding)

    def _common_schemas(self, topics: Sequence[TopicName]) -> TopicSchemas | None:
        """Return the schemas that all these topics share; None if they have none, or different ones."""
        if len(topics) > _SAME_SCHEMA_TOPICS:
            return None
        found = [read_schemas(self._asked(), topic) for topic in topics]
        same = bool(found) and found[0].newest is not None and all(schemas == found[0] for schemas in found)
        return found[0] if same else None


_PARQUET = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)


@contextmanager
def open_sql(reader: EntryReader, problems: list[StoreError], now_ms: int) -> Iterator[Database]:
    """Open a database over the tables of a snapshot; what they cannot read is added to ``problems``."""
    tables = StoreTables(lambda: reader, find_cluster_name(reader.txn))
    try:
        with open_database(tables, now_ms=now_ms) as database:
            yield database
    finally:
        problems += tables.problems


class ExportedTables:
    """The exported tables in a folder, of one cluster or all. Raises SourceNotFound if nothing was exported there,
    NotFound, Corrupt."""

    def __init__(self, folder: Folder, cluster: str | None) -> None:
        self._folder, self._cluster = folder, cluster
        self._manifest: Manifest | None = None
        self.problems: list[StoreError] = []
        self.errors: list[BaseException] = []
        self._proven: set[str] = set()
        self.renew()

    def renew(self) -> bool:
        """Reload the folder's list of tables; return whether it has changed."""
        folder, cluster = self._folder, self._cluster
        manifest = read_manifest(folder)
        if manifest is None:
            raise SourceNotFound(
                f"{folder.place} has no tables",
                hint="create them with: pulsar-admin --store STORE store export tables DIR",
            )
        if cluster is not None and cluster not in manifest.clusters:
            there = ", ".join(manifest.clusters)
            raise NotFound(f"{folder.place} has no tables of {cluster!r}", hint=f"there are {there}", cluster=cluster)
        if manifest == self._manifest:
            return False
        self._manifest = manifest
        wanted = [manifest.clusters[name] for name in manifest.clusters if cluster in (None, name)]
        self._columns = next((one.columns for one in wanted if "messages" in one.tables), None)
        self._parts: dict[str, list[TableFile]] = {}
        for name in TABLES:
            if any(name in one.tables for one in wanted):
                self._parts[name] = [part for one in wanted for part in one.tables.get(name, ())]
        return True

    brought: ClassVar[tuple[str, ...]] = ()

    @property
    def incomplete(self) -> str:
        """Why one of the tables is incomplete, "" if all are complete."""
        clusters = self._manifest.clusters if self._manifest else {}
        wanted = (clusters[name] for name in clusters if self._cluster in (None, name))
        return next((reason for one in wanted for reason in one.incomplete.values()), "")

    @property
    def parts(self) -> list[TableFile]:
        """The files of all exported tables."""
        return [part for parts in self._parts.values() for part in parts]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the exported tables."""
        return (*self._parts,)

    def told(self) -> list[str]:
        """Return no lines: DuckDB does not report what it scanned of the files."""
        return []

    def topics_like(self, begin: str, most: int) -> list[str]:
        """Return no names: completing them would read the files."""
        return []

    def find(self, name: str) -> MadeTable | TopicsMeant | None:
        """Return the table with a name, or the topics that a topic, namespace or glob means; None if unknown."""
        if name in self._parts:
            parts = self._parts[name]
            schema = TABLES[name]
            if name == "messages" and self._columns is not None:
                schema = known_schema()
            for part in parts:
                if part.path in self._proven:
                    continue
                check_file(self._folder, part)
                missing = open_checked(self._folder, part, schema)
                # A file of an earlier version may lack the last columns.
                if missing != schema.names[len(schema) - len(missing) :]:
                    raise lacking(part, missing)
                self._proven.add(part.path)
            return MadeTable(schema, partial(self._rows, schema, parts), Lock(), self.errors)
        if name in TABLES or "messages" not in self._parts:
            return None
        condition = _condition_of(name)
        known = [table for table in ("topics", "messages") if table in self._parts]
        return None if condition is None else TopicsMeant(condition, known)

    def _rows(
        self, schema: pa.Schema, parts: Sequence[TableFile], columns: Collection[str], pruner: Pruner
    ) -> Iterator[pa.RecordBatch]:
        names = [name for name in schema.names if name in columns]
        for part in parts:
            system, path = self._folder.system_of(part.path)
            with explained(self._folder, part.path):
                yield from _PARQUET.make_fragment(path, system).to_batches(
                    schema=schema, columns=names, filter=pruner.condition
                )


def _condition_of(name: str) -> str | None:
    """Return the SQL condition for the messages of the topics that a name means, None if it names no topics."""
    plain = name.removeprefix("persistent://")
    if any(sign in name for sign in "*?["):
        return f"topic GLOB {_text(name)} OR topic GLOB {_text(f'persistent://{plain}')}"
    if plain.count("/") == 1:
        return f"starts_with(topic, {_text(f'persistent://{plain}/')})"
    try:
        topic = str(parse_topic(name))
    except InvalidValue:
        return None
    if topic.startswith(f"{SCALABLE}://"):
        return _begins(topic.replace(SCALABLE, SEGMENT, 1) + "/", "[^/]+")
    return f"topic = {_text(topic)} OR ({_begins(topic + PARTITION_SUFFIX, '[0-9]+')})"


def _begins(begin: str, rest: str) -> str:
    """Return the SQL condition that a topic begins with a text, and that the rest matches a regular expression."""
    part = _text(begin)
    return f"starts_with(topic, {part}) AND regexp_full_match(substr(topic, length({part}) + 1), {_text(rest)})"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
