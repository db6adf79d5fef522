"""What a read with the Spark connector's options is: topics, their schemas and pieces, from a store. Runs on the driver.

Upstream: ``PulsarHelper`` and ``PulsarRelation`` of streamnative/pulsar-spark 3.4.1. Times are the broker's, as a seek by time knows
them: broker time where an entry has one, else publish time. Where the connector waits for ever, for a first message behind the
topic's end, there is none here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from warnings import warn

import numpy as np

from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.errors import (
    EntryNotFound,
    InvalidValue,
    NotWritable,
    SourceChanged,
    TopicNotFound,
    Unsupported,
)
from pulsar_admin.store.model.extent import iter_ledger_parts
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.schemas import read_schemas
from pulsar_admin.store.model.topics import Topic, expand_topic, iter_topics, read_topic
from pulsar_admin.store.model.window import Window
from pulsar_admin.store.names import (
    EARLIEST,
    LATEST,
    FileKind,
    NamespaceName,
    Position,
    TopicName,
    parse_namespace,
    parse_topic,
    shell_word,
)
from pulsar_admin.store.scan.entries import EntryScan, WindowScan
from pulsar_admin.store.scan.known_columns import KnownColumns
from pulsar_admin.store.scan.places import BATCH_BYTES, Places
from pulsar_admin.store.scan.source_options import ConnectorRead, Place, pattern_namespace, pattern_topics
from pulsar_admin.store.scan.topic_pieces import ReadTopicPieces, TopicPiece, nearest
from pulsar_admin.store.wording import counted

LOOK_BACK_ENTRIES = 1024
"""In front of a piece, where the first chunks of its messages may be."""
_BATCHES = 4  # a piece has at least so many, and by two of them it may be larger than was asked for
_TRANSACTIONS = "__transaction_buffer_snapshot"
"""A namespace has this topic when a transaction wrote to one of its topics (``SystemTopicNames``, Pulsar 4.0.8)."""


@contextmanager
def _opened(read: ConnectorRead) -> Iterator[EntryReader]:
    with open_store(Path(read.store)) as opened, open_reader(opened) as reader:
        yield reader


def topics_operation(read: ConnectorRead, only: tuple[str, ...] = ()) -> ReadTopicPieces:
    """Return what reads the topics; ONLY: these columns. Raises InvalidValue for topics of unlike schemas, as the connector does."""
    with _opened(read) as reader:
        columns = {
            str(topic): KnownColumns(topic, read_schemas(reader, topic), read.raw, only)
            for topic in _chosen(reader.txn, read)
        }
    newest = [known.schemas.newest for known in columns.values()]
    if not read.raw and any(schema != newest[0] for schema in newest):
        raise InvalidValue(
            f"the {len(newest)} topics do not share one schema",
            hint="set allowDifferentTopicSchemas to true, and column value has their bytes",
        )
    operation = ReadTopicPieces(columns, read.fail)
    try:
        _ = operation.schema
    except Unsupported as error:
        raise Unsupported(
            error.message, hint="set allowDifferentTopicSchemas to true, and column value has the bytes"
        ) from error
    return operation


def plan_topic_pieces(read: ConnectorRead) -> list[TopicPiece]:
    """Return the pieces of the topics; what is lost ends it (EntryNotFound, SourceChanged) or is warned of, as READ says."""
    with _opened(read) as reader:
        topics = _chosen(reader.txn, read)
        _check_named(read, topics)
        transactional = {
            namespace: has_transactions(reader.txn, namespace)
            for namespace in dict.fromkeys(topic.namespace for topic in topics)
        }
        return [
            piece
            for topic in topics
            for piece in iter_pieces(
                reader,
                read_topic(reader.txn, topic),
                read,
                whole=transactional[topic.namespace],
                lost=partial(_report, topic, fail=read.fail),
            )
        ]


def _chosen(txn: Txn, read: ConnectorRead) -> list[TopicName]:
    if read.kind == "topicsPattern":
        namespace = parse_namespace(pattern_namespace(read.text))
        there = [topic for topic in iter_topics(txn, namespace) if not topic.is_system]
        found: Iterable[TopicName] = pattern_topics(read.text, there)
    else:
        names = [name.strip() for name in read.text.split(",") if name.strip()]
        found = [topic for name in names for topic in expand_topic(txn, parse_topic(name))]
    chosen = [*dict.fromkeys(found)]
    if not chosen:
        raise TopicNotFound(f"no topic is {read.kind} {read.text!r}", hint="list them: pulsar-admin topics list")
    return chosen


def _check_named(read: ConnectorRead, topics: list[TopicName]) -> None:
    """Raise InvalidValue for an offset or time of a topic that is not read."""
    known = {str(topic) for topic in topics}
    for places in (read.start, read.end):
        for name in places.each or ():
            if name not in known:
                raise InvalidValue(
                    f"an offset or time is of {name}, which is not read",
                    hint="name a topic that is; of partitions, each",
                )


def has_transactions(txn: Txn, namespace: NamespaceName) -> bool:
    """Whether a transaction may have written to topics of NAMESPACE."""
    return any(topic.local_name.startswith(_TRANSACTIONS) for topic in iter_topics(txn, namespace))


def iter_pieces(
    reader: EntryReader, topic: Topic, read: ConnectorRead, *, whole: bool, lost: Callable[[int], None]
) -> Iterator[TopicPiece]:
    """Yield the pieces of TOPIC; WHOLE: one, which knows what lies behind it. LOST is told of entries in no file."""
    low, high = _ranks(reader, topic, read)
    batch_bytes = min(read.slice_bytes // _BATCHES, BATCH_BYTES)
    scan = EntryScan(reader, iter_ledger_parts(topic, low, high), batch_bytes=batch_bytes)
    behind = EntryScan(reader, iter_ledger_parts(topic, high, topic.number_of_entries) if whole else ())
    after = tuple(behind.groups())
    gone = 0
    seen: tuple[Places, ...] = ()
    paths = _Paths(reader, fail=read.fail)
    runs = [*_runs((places for places in scan.groups()), None if whole else read.slice_bytes)]
    for run in runs:
        batches = [kept for places in run if len(kept := paths.readable(places))]
        gone += sum(map(len, run)) - sum(map(len, batches))
        if batches:
            is_whole = whole or (len(runs) == 1 and high == topic.number_of_entries)
            yield paths.piece(str(topic.name), batches, before=seen, after=after, is_whole=is_whole)
        seen = nearest([*seen, *batches], LOOK_BACK_ENTRIES)
    lost(scan.missing + gone)


def _runs(groups: Iterator[Places], target_bytes: int | None) -> Iterator[list[Places]]:
    run: list[Places] = []
    for places in groups:
        run.append(places)
        if target_bytes is not None and sum(places.bytes for places in run) >= target_bytes:
            yield run
            run = []
    if run:
        yield run


def _report(topic: TopicName, lost: int, *, fail: bool) -> None:
    if not lost:
        return
    said = f"{topic}: {counted(lost, 'entry is', 'entries are')} in no file that is there"
    if fail:
        raise EntryNotFound(
            f"{said}; failOnDataLoss is true",
            hint=f"which ones: pulsar-admin topics dump {shell_word(topic)} --directory DIR",
        )
    warn(f"pulsar_entries: {said}, and passed over, as failOnDataLoss is false", stacklevel=2)


class _Paths:
    """The files of pieces, each looked for once; a file that is gone or another one ends it, or its entries are left out."""

    def __init__(self, reader: EntryReader, *, fail: bool) -> None:
        self._files = reader.files
        self._fail = fail
        self._known: dict[int, str | None] = {}

    def readable(self, places: Places) -> Places:
        """Return those of PLACES whose files are there."""
        ids = [file_id for file_id in np.unique(places.files).tolist() if self._path(file_id) is not None]
        mask = np.isin(places.files, ids)
        return places if mask.all() else places.take(mask)

    def _path(self, file_id: int) -> str | None:
        if file_id not in self._known:
            try:
                self._known[file_id] = str(self._files.path_of(file_id))
            except (SourceChanged, NotWritable):
                if self._fail:
                    raise
                self._known[file_id] = None
        return self._known[file_id]

    def piece(
        self,
        topic: str,
        batches: list[Places],
        *,
        before: tuple[Places, ...],
        after: tuple[Places, ...],
        is_whole: bool,
    ) -> TopicPiece:
        after = tuple(kept for places in after if len(kept := self.readable(places)))
        ids = np.unique(np.concatenate([places.files for places in (*batches, *before, *after)])).tolist()
        files = {file_id: path for file_id in ids if (path := self._path(file_id)) is not None}
        first, size_bytes = int(batches[0].offsets[0]), sum(places.bytes for places in batches)
        return TopicPiece(
            files[int(batches[0].files[0])],
            FileKind.ENTRY_LOG,
            int(batches[0].files[0]),
            first,
            first + size_bytes,
            batches=batches,
            files=files,
            topic=topic,
            before=before,
            after=after,
            is_whole=is_whole,
        )


def _ranks(reader: EntryReader, topic: Topic, read: ConnectorRead) -> tuple[int, int]:
    """Return the ranks (half-open) of the entries between start and end, that of the end included.

    As in the connector nothing lies between a start and an end that are the same entry.
    """
    entries = topic.number_of_entries
    start, end = read.start.of(topic.name), read.end.of(topic.name)
    first = 0 if start in (None, EARLIEST) else _rank(reader, topic, start)
    last = entries if end in (None, LATEST) else _rank(reader, topic, end)
    if first > last:
        said = f"{topic.name}: the end, {topic.at_rank(last)}, lies in front of the start, {topic.at_rank(first)}"
        if read.fail:
            raise InvalidValue(said, hint="swap them, or set failOnDataLoss to false: then nothing is read")
        warn(f"pulsar_entries: {said}: nothing of it is read, as failOnDataLoss is false", stacklevel=2)
        return first, first
    if first == last and start not in (None, EARLIEST):
        return first, first
    return first, min(last + 1, entries)


def _rank(reader: EntryReader, topic: Topic, place: Place | None) -> int:
    """Return the rank of the first entry at or behind PLACE."""
    if place == LATEST:
        return max(topic.number_of_entries - 1, 0)
    if place == EARLIEST:
        return 0
    if isinstance(place, Position):
        return topic.rank(place)
    assert place is not None
    for batch in WindowScan(reader, topic, Window(start_ms=place)).batches():
        return topic.rank(Position(int(batch.ledger_ids[0]), int(batch.entry_ids[0])))
    return topic.number_of_entries
