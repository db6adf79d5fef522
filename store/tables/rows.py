"""The rows of the small tables, made from a store's metadata and index, as bounded Arrow batches. ``entries`` and
``messages`` are made elsewhere, from files.

Every row has the name of the store's cluster. Ledgers are in order of their ids, each with its values in its topic's
list.
"""

import json
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from heapq import merge
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT
from pulsar_admin.store.codec.schema import decode_schema_locator
from pulsar_admin.store.db.blocks import ledger_of_key
from pulsar_admin.store.db.bodies import is_body
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.files import find_log
from pulsar_admin.store.db.owners import find_lister
from pulsar_admin.store.db.tree import find_node, iter_children, iter_nodes
from pulsar_admin.store.engine.slices import filled
from pulsar_admin.store.errors import (
    Corrupt,
    InvalidValue,
    LedgerNotFound,
    MetadataCorrupt,
    NotFound,
    NotSeen,
    SourceChanged,
    StoreError,
)
from pulsar_admin.store.model import cursors
from pulsar_admin.store.model.broken import find_broken
from pulsar_admin.store.model.counts import TopicCounts
from pulsar_admin.store.model.coverage import unseen_hint, unseen_text
from pulsar_admin.store.model.entry_times import read_entry_time
from pulsar_admin.store.model.ledgers import Ledger, iter_ledger_ids, read_ledger
from pulsar_admin.store.model.reader import NOTED, EntryReader, open_reader
from pulsar_admin.store.model.resources import cluster_path, find_cluster_name, list_clusters
from pulsar_admin.store.model.schemas import read_version
from pulsar_admin.store.model.topics import Topic, iter_all_namespaces, iter_all_topics, lacks_bookies, read_topic
from pulsar_admin.store.names import LONG_MAX, NamespaceName, Position, TopicName, decode_name
from pulsar_admin.store.policies.events import find_policy_events
from pulsar_admin.store.policies.in_force import GLOBAL_TOPIC, NAMESPACE, TOPIC, iter_stored
from pulsar_admin.store.policies.table import POLICIES
from pulsar_admin.store.policies.values import NOTHING, find_cluster, read_namespace_json
from pulsar_admin.store.scan.integer_rows import RUN_ROWS, SortedSpill
from pulsar_admin.store.tables.schemas import TABLES
from pulsar_admin.store.timespec import MAX_TIME_MS

STORE = "store"
"""In the place of a database: one row, which says what ``store.json`` did, and where the store is."""
KEPT = ("base", "changes", "copies", "damage", "delayed", "logs", "nacks", "owners", "state", STORE, "times")
"""The databases of the table ``rows``, in its order."""
Body = tuple[int, int, str, int, bytes]
"""Ledger, entry, the file, the offset of the record there, the record from its size field on."""


def iter_kept(txn: Txn) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield (database, key, value) of the rows in the store's small databases, unchanged."""
    for database in KEPT:
        if database == STORE:
            info, path = txn.store.info, str(txn.store.path.absolute())
            about = {"path": path, "created": info.created_ms, "sources": info.sources, "kept": KEPT}
            yield STORE, b"", json.dumps(about).encode()
        else:
            rows = ((key, bytes(value)) for key, value in txn.items(database) if not is_body(database, key))
            yield from ((database, *row) for row in rows)


def iter_bodies(store: Store, read: Callable[[EntryReader], Iterable[object]]) -> Iterator[Body]:
    """Yield, by ledger and entry, every entry that ``read`` reads: it is to read all metadata in entries."""
    with open_reader(store) as reader:  # what another transaction has read it does not read again
        found_at = array("q")
        entries_noted: dict[tuple[int, int], tuple[int, int, int]] = {}
        reader.txn.memo[NOTED] = entries_noted
        for _ in chain(read(reader), (None,)):  # reads after the last row also count
            for entry, place in entries_noted.items():
                found_at.extend((*entry, *place))
            entries_noted.clear()
        del reader.txn.memo[NOTED]
        rows = np.unique(np.frombuffer(found_at, np.int64).reshape(-1, 5), axis=0)
        for ledger_id, entry_id, file_id, offset, size in (row.tolist() for row in rows):
            record = reader.read_head(ledger_id, entry_id, (file_id, offset, size), 4 + size)
            log = find_log(reader.txn, file_id)
            assert log is not None  # the index named it when the entry was read
            yield ledger_id, entry_id, log.place(store.path), offset, record


Row = tuple[Any, ...]  # Any: a column's own type
Fail = Callable[[StoreError], None]
Topics = Sequence[TopicName] | None
"""The topics whose rows are wanted; None: all of the store."""

BATCH_WEIGHT = 8 << 20
_OLDEST = "oldest_publish_time"
_ROW_WEIGHT = 1000  # of a row that nothing long is in
_RANGE_WEIGHT = 200
_COUNTING = {"topics", "ledgers", "cursors"}
_SCOPES = {"local": TOPIC, "global": GLOBAL_TOPIC}

SMALL_TABLES = ("topics", "ledgers", "cursors", "policies", "schemas", "nodes", "rows", "bodies")
"""What ``iter_table`` makes, in the order in which they are of use."""


def iter_table(
    reader: EntryReader,
    table: str,
    cluster: str | None,
    fail: Fail,
    topics: Topics = None,
    columns: Collection[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield one of SMALL_TABLES, from one snapshot, as batches of some megabytes, with the cluster's name.

    ``topics`` restricts it if rows have a topic. Failures go to ``fail``, and their columns are null. Where ``columns`` are named, others
    that take reading entries are null.
    """
    schema = TABLES[table]
    if table in _COUNTING:
        tell_unseen(reader.txn, topics, fail)
    is_quick = table == "cursors" and columns is not None and _OLDEST not in columns
    made = ((cluster, *row) for row in (_cursor_rows if is_quick else _ROWS[table])(reader, fail, topics))
    for rows in filled(made, _weight_of, BATCH_WEIGHT):
        values = zip(zip(*rows, strict=True), schema, strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(column, field.type) for column, field in values], schema=schema)


def tell_unseen(txn: Txn, topics: Topics, fail: Fail) -> None:
    """Call ``fail`` once for what rows of the topics do not count, see ``not_counted``."""
    if text := not_counted(txn, topics):
        fail(NotSeen(f"{text}; {unseen_hint(txn)}"))


def not_counted(txn: Txn, topics: Topics = None) -> str:
    """Return a sentence about the bookies and journals that were not imported, if a ledger of the topics has, or may have, entries only
    there; otherwise ""."""
    if not lacks_bookies(txn):
        return ""
    read = (topic for _, topic in _iter_read(txn, topics, lambda error: None) if topic is not None)
    is_unseen = any(broken.not_seen() for topic in read for broken in find_broken(txn, topic))
    return unseen_text(txn, "counted") if is_unseen else ""


def _weight_of(row: Row) -> int:
    """Return about how many bytes a row takes in memory, without the name of its cluster."""
    long = [value for value in row[1:] if hasattr(value, "__len__")]
    return _ROW_WEIGHT + sum(len(one) * (_RANGE_WEIGHT if isinstance(one, list) else 1) for one in long)


def _micros(ms: int | None) -> int | None:
    """Return a time in the unit of the columns, None if a timestamp cannot hold it."""
    return ms * 1000 if ms is not None and 0 < ms <= MAX_TIME_MS else None


def _iter_read(txn: Txn, topics: Topics, fail: Fail) -> Iterator[tuple[TopicName, Topic | None]]:
    """Yield (name, topic) of the selected topics, None for a topic that cannot be read."""
    for name in iter_all_topics(txn) if topics is None else topics:
        try:
            yield name, read_topic(txn, name)
        except StoreError as error:
            fail(error)
            yield name, None


def _topic_rows(reader: EntryReader, fail: Fail, topics: Topics) -> Iterator[Row]:
    for name, topic in _iter_read(reader.txn, topics, fail):
        index = name.partition_index
        partition = (None, None) if index < 0 else (str(name.base), index)
        names = (str(name), name.namespace.tenant, str(name.namespace), *partition)
        subscriptions = TopicCounts().of(name, cursors.iter_cursor_names(reader.txn, name)).subscriptions
        if topic is None:
            yield (*names, None, None, None, subscriptions, None, None)
            continue
        managed = topic.managed
        entries, size_bytes = topic.number_of_entries, topic.total_size_bytes
        sums: tuple[int | None, int | None] = (entries, size_bytes)
        if max(entries, size_bytes) > LONG_MAX:
            fail(
                MetadataCorrupt(
                    f"{name}: its ledgers have {entries} entries of {size_bytes} bytes, which 64 bits cannot hold"
                )
            )
            sums = None, None
        counted = (len(topic.ledgers), *sums)
        yield (*names, *counted, subscriptions, managed.terminated is not None, list(managed.properties.items()))


def _ledger_rows(reader: EntryReader, fail: Fail, topics: Topics) -> Iterator[Row]:
    for row in iter_ledgers(reader.txn, fail, topics):
        ledger, listed = row.ledger, row.listed
        metadata = ledger.metadata if ledger else None
        sums = ledger.sums if ledger else None
        yield (
            row.topic,
            row.ledger_id,
            listed.place if listed else None,
            metadata.state.name if metadata else None,
            listed.entries if listed else ledger.entries if ledger else None,
            listed.size_bytes if listed else ledger.size_bytes if ledger else None,
            ledger.last_entry_id if ledger else None,
            _micros(listed.closed_ms if listed else None),
            _micros(metadata.ctime_ms if metadata else None),
            _micros(sums.begin_publish_ms if sums else None),
            _micros(sums.end_publish_ms if sums else None),
            list(metadata.segments[-1].members) if metadata and metadata.segments else None,
            *((metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) if metadata else (None,) * 3),
            listed is not None and listed.offloaded,
            list(listed.properties.items()) if listed else [],
        )


def _cursor_rows(reader: EntryReader, fail: Fail, topics: Topics, *, oldest: bool = False) -> Iterator[Row]:
    for name, topic in _iter_read(reader.txn, topics, fail):
        for subscription, node in cursors.iter_cursor_nodes(reader.txn, name):
            head = (str(name), subscription)
            try:
                cursor = None if topic is None else cursors.cursor_of(reader.txn, reader, topic, subscription, node)
            except StoreError as error:
                fail(error)
                cursor = None
            of_topic = (name.namespace.tenant, str(name.namespace))
            if topic is None or cursor is None:
                yield (*head, *[None] * 6, *of_topic, None, None)
                continue
            pending = cursors.pending_intervals(topic, cursor.state)
            size = cursors.extent_of(reader.txn, topic, pending).bytes
            time_ms = _publish_ms(reader, topic.at_rank(pending[0][0])) if oldest and pending else None
            yield (*head, *_standing(topic, cursor), *of_topic, size, _micros(time_ms))


def _publish_ms(reader: EntryReader, position: Position) -> int | None:
    """Return the publish time of an entry in ms, None if it cannot be read or is no message."""
    with suppress(NotFound, Corrupt, SourceChanged):
        return read_entry_time(reader, position, "publish")
    return None


def _standing(topic: Topic, cursor: cursors.Cursor) -> Row:
    state = cursor.state
    position = state.mark_delete
    ranges = [part for start, end in cursors.normal_ranges(topic, state) for part in _ledger_ranges(topic, start, end)]
    of_position = ((key, str(number)) for key, number in state.properties.items())
    properties = [*of_position, *cursor.info.cursor_properties.items()]
    return position.ledger_id, position.entry_id, cursors.backlog_entries(topic, state), ranges, properties, ranges


def _ledger_ranges(topic: Topic, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the entries of ranks ``start`` to ``end`` (excluded) as (ledger id, first entry, last entry)."""
    while start < end:
        index = bisect_right(topic.ranks, start) - 1
        stop = min(end, topic.ranks[index + 1])
        before = topic.ranks[index]
        yield topic.ids[index], start - before, stop - 1 - before
        start = stop


def _policy_rows(reader: EntryReader, fail: Fail, topics: Topics) -> Iterator[Row]:
    txn = reader.txn
    meant = None if topics is None else {name.base for name in topics}
    spaces = iter_all_namespaces(txn) if meant is None else dict.fromkeys(name.namespace for name in meant)
    for namespace in spaces:
        try:
            policies, cluster = read_namespace_json(txn, namespace), find_cluster(txn, namespace) or ""
            values = {one.name: one.namespace.read(policies, cluster, {}) for one in POLICIES if one.namespace}
            yield from _set_rows(NAMESPACE, str(namespace), values)
            names = [name for name in _with_policies(txn, namespace) if meant is None or name in meant]
            for name in sorted(names, key=str):
                for level, fields in iter_stored(txn, name):
                    values = {one.name: one.topic.read(dict(fields), "", {}) for one in POLICIES if one.topic}
                    yield from _set_rows(level, str(name), values)
        except StoreError as error:
            fail(error)


def _set_rows(level: str, name: str, values: dict[str, Any]) -> Iterator[Row]:  # Any: JSON values
    for policy, value in values.items():
        if value not in NOTHING:
            yield level, name, policy, json.dumps(value)


def _with_policies(txn: Txn, namespace: NamespaceName) -> set[TopicName]:
    """Return the base names of topics in a namespace that have policies of their own."""
    events = find_policy_events(txn, namespace)
    if events is not None:
        return {*events.local, *events.global_}
    paths = (f"/admin/topic-policies/{folder}/{namespace}/persistent" for folder in _SCOPES)
    return {TopicName(namespace, decode_name(child)) for path in paths for child in iter_children(txn, path)}


def _schema_rows(reader: EntryReader, fail: Fail, topics: Topics) -> Iterator[Row]:
    for path, name in _schema_paths(reader.txn, topics):
        try:
            node = find_node(reader.txn, path)
            locator = decode_schema_locator(node.value, path) if node is not None and node.value else None
        except StoreError as error:
            fail(error)
            continue
        listed = {item.version: item for item in (*locator.index, locator.newest)} if locator else {}
        for version, item in sorted(listed.items()):
            try:
                entry = read_version(reader, item)
            except StoreError as error:
                fail(error)
                yield name, version, None, None, None, None, None, None
                continue
            about = (entry.type_name, _micros(entry.timestamp_ms), entry.user, entry.deleted)
            yield name, version, *about, entry.definition, list(entry.properties.items())


def _schema_paths(txn: Txn, topics: Topics) -> Iterator[tuple[str, str]]:
    """Yield (metadata path of the schema, topic) of topics that may have a schema."""
    if topics is not None:
        yield from ((name.schema_path, str(name)) for name in dict.fromkeys(topic.base for topic in topics))
        return
    for node in iter_nodes(txn, "/schemas/"):
        parts = node.path.split("/")
        if len(parts) >= 5:
            yield node.path, f"persistent://{'/'.join(parts[2:-1])}/{decode_name(parts[-1])}"


def _node_rows(reader: EntryReader, fail: Fail, topics: Topics) -> Iterator[Row]:
    del fail, topics  # rows of the tree are read whole or not at all, and most belong to no topic
    for path, stat, value in iter_nodes(reader.txn, ""):
        yield path, value, stat.version, _micros(stat.created_ms), _micros(stat.modified_ms), stat.owner


def _database_rows(reader: EntryReader, fail: Fail, topics: Topics) -> Iterator[Row]:
    del fail, topics  # as they are, not understood
    yield from iter_kept(reader.txn)


def _body_rows(reader: EntryReader, fail: Fail, topics: Topics) -> Iterator[Row]:
    def read(own: EntryReader) -> Iterator[Row]:
        for rows in (_cursor_rows, _policy_rows, _schema_rows):
            yield from rows(own, lambda error: None, topics)  # told where these tables are made

    del fail
    yield from iter_bodies(reader.txn.store, read)


_ROWS: dict[str, Callable[[EntryReader, Fail, Topics], Iterator[Row]]] = {
    "topics": _topic_rows,
    "ledgers": _ledger_rows,
    "cursors": partial(_cursor_rows, oldest=True),
    "policies": _policy_rows,
    "schemas": _schema_rows,
    "nodes": _node_rows,
    "rows": _database_rows,
    "bodies": _body_rows,
}


_WIDTH = 6
_NONE: tuple[None, Iterator[tuple[int, ...]]] = (None, iter(()))


class _LedgerListing(NamedTuple):
    """A ledger as its topic lists it; for the open last ledger, with the numbers of its BookKeeper metadata."""

    place: int
    entries: int
    size_bytes: int
    closed_ms: int
    offloaded: bool
    properties: Mapping[str, str]


class LedgerFacts(NamedTuple):
    """A ledger. ``ledger`` None: no metadata or entries, or unreadable; ``listed`` None: no topic lists it."""

    ledger_id: int
    topic: str | None
    ledger: Ledger | None
    listed: _LedgerListing | None


def iter_ledgers(
    txn: Txn, fail: Callable[[StoreError], None], topics: Sequence[TopicName] | None, run_rows: int = RUN_ROWS
) -> Iterator[LedgerFacts]:
    """Yield every ledger that metadata, index or a topic knows, or those of some topics, ascending; failures go to ``fail``.

    Topics and nodes are read once each; ``run_rows`` rows of either are in memory, the others in temporary files.
    Raises DiskFull.
    """
    with SortedSpill(_WIDTH, run_rows) as spilled, SortedSpill(1, run_rows) as nodes:
        properties = _spill_lists(txn, fail, iter_all_topics(txn) if topics is None else topics, spilled)
        rows = groupby(spilled, itemgetter(0))
        at, of_it = next(rows, _NONE)
        for ledger_id in _all_ids(txn, nodes) if topics is None else _ids_of(txn, topics):
            while at is not None and at < ledger_id:  # a list that no index has
                at, of_it = next(rows, _NONE)
            listed = None
            if at == ledger_id:
                *_, (_, place, entries, size_bytes, closed_ms, offloaded) = of_it  # of several topics' the last one
                facts = (place, entries, size_bytes, closed_ms, bool(offloaded))
                listed = _LedgerListing(*facts, properties.get(ledger_id, {}))
            topic = ledger = None
            try:
                if listed is not None:
                    topic = find_lister(txn, ledger_id)
                ledger = read_ledger(txn, ledger_id)
            except LedgerNotFound:
                pass  # listed and gone, or in tiered storage alone: the list's row is what there is
            except StoreError as error:
                fail(error)
            yield LedgerFacts(ledger_id, topic, ledger, listed)


def _spill_lists(
    txn: Txn, fail: Callable[[StoreError], None], topics: Iterable[TopicName], spilled: SortedSpill
) -> dict[int, Mapping[str, str]]:
    """Add the ledgers that topics list to ``spilled``; return the properties of the few ledgers that have some."""
    properties: dict[int, Mapping[str, str]] = {}
    for name in topics:
        try:
            ledgers = read_topic(txn, name).ledgers
        except StoreError as error:
            fail(error)
            continue
        for place, ledger in enumerate(ledgers):
            info = ledger.info
            closed_ms, offloaded = info.timestamp_ms or 0, info.offloaded
            spilled.add(info.ledger_id, place, ledger.entries, ledger.size_bytes, closed_ms, offloaded)
            if info.properties:
                properties[info.ledger_id] = info.properties
    return properties


def _ids_of(txn: Txn, topics: Sequence[TopicName]) -> list[int]:
    found: set[int] = set()
    for name in topics:
        with suppress(StoreError):
            found.update(read_topic(txn, name).ids)
    return sorted(found)


def _all_ids(txn: Txn, nodes: SortedSpill) -> Iterator[int]:
    for ledger_id in iter_ledger_ids(txn):
        nodes.add(ledger_id)
    keyed: Any = ((ledger_of_key(key) for key, _ in txn.items(database)) for database in ("times", "owners"))
    return (ledger_id for ledger_id, _ in groupby(merge((ledger_id for (ledger_id,) in nodes), *keyed)))


def cluster_name(txn: Txn, given: str | None) -> str:
    """Return the given name, or the one in the metadata; raises InvalidValue if the metadata names none or several,
    and for an invalid name."""
    if given is not None and (not given or any(0xD800 <= ord(sign) <= 0xDFFF for sign in given)):
        raise InvalidValue(f"{given!r} is no name of a cluster", hint="name it in Unicode: --cluster NAME")
    cluster = find_cluster_name(txn) if given is None else given
    if cluster:
        return cluster
    listed = ", ".join(list_clusters(txn))
    raise InvalidValue(
        f"the metadata names several clusters: {listed}" if listed else "the metadata names no cluster",
        hint="name this one: --cluster NAME",
    )


def cluster_identity(txn: Txn) -> str:
    """Return a value that distinguishes the cluster from others of its name; a new copy of its metadata gives the same.

    BookKeeper's instance id; without one, the creation time of the cluster's node; without that, the store's.
    """
    instance = find_node(txn, f"{LEDGERS_ROOT}/INSTANCEID")
    if instance is not None and instance.value:
        return f"instance {instance.value.decode(errors='replace')}"
    made = [(node.stat.created_ms, name) for name in list_clusters(txn) if (node := find_node(txn, cluster_path(name)))]
    if made:
        created_ms, name = min(made)
        return f"cluster {name} made at {created_ms}"
    return f"store made at {txn.store.info.created_ms}"
