"""What a store holds, in numbers."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec import field
from msgspec.structs import asdict

from pulsar_admin.store.db.blocks import decode_times, ledger_of_key
from pulsar_admin.store.db.entry_files import FileState, file_state
from pulsar_admin.store.db.environment import DATABASES
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.facts.managed_ledgers import OtherLedger, other_ledgers
from pulsar_admin.store.facts.topics import TopicFacts
from pulsar_admin.store.facts.trees import UnknownTree, unknown_trees
from pulsar_admin.store.model.copy_age import find_as_of
from pulsar_admin.store.model.counts import DiskBytes, TopicCounts, read_disk_bytes
from pulsar_admin.store.model.cursors import Cursor, CursorSource, iter_cursor_names
from pulsar_admin.store.model.ledgers import iter_ledger_ids
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import iter_all_topics, read_topic
from pulsar_admin.store.wording import Answer


class FileSummary(Answer, frozen=True):
    """One catalogued file and how it is now."""

    file_id: int
    path: str
    kind: str
    mode: str
    size_bytes: int
    records: int
    problems: int
    torn: bool
    sealed: bool
    state: FileState


class StoreSummary(Answer, frozen=True):
    """A store in numbers. ``entries``, ``messages`` and ``payload_bytes`` count what files of bookies have of all ledgers, those of
    cursors and lost topics included; the entries of an ``Overview`` are those that topics list.

    ``cursors``: where each cursor's truth is (``store.model.cursors.Cursor.source``, or "unreadable");
    ``unknown_trees``: trees of the metadata that no Pulsar known here writes; ``other_ledgers``: managed ledgers that are no topics here;
    ``as_of_ms``: the time of the copy, ``as_of_source``: its source, a key of ``store.model.copy_age.SAID_BY``, or None;
    ``row_digests``: whether its rows have digests; those of a store of format 1 get them with the next change.
    """

    SHOWN = ("state", "topics", "subscriptions", "ledgers", "entries", "messages", "payload_bytes")

    store: str
    format_version: int
    row_digests: bool
    created_ms: int
    as_of_ms: int | None = field(name="asOf")
    as_of_source: str | None
    state: str
    transaction: int
    sources: tuple[Mapping[str, Any], ...]  # Any: JSON, see store/transfer/imports.py
    topics: int
    system_topics: int
    subscriptions: int
    compactions: int
    unreadable_topics: int
    cursors: Mapping[str, int]
    ledgers: int
    indexed_ledgers: int
    entries: int
    messages: int
    payload_bytes: int
    damaged_places: int
    changes: int
    databases: Mapping[str, int]
    meta_bytes: int
    disk_bytes: DiskBytes = field(name="diskBytes")
    files: tuple[FileSummary, ...]
    unknown_trees: tuple[UnknownTree, ...]
    other_ledgers: tuple[OtherLedger, ...] = field(name="otherManagedLedgers")


def read_summary(reader: EntryReader) -> StoreSummary:
    """Return the summary of a store; a topic or cursor that cannot be read is counted, not raised."""
    txn, store = reader.txn, reader.txn.store
    sums = [decode_times(ledger_of_key(key), row).sums for key, row in txn.items("times")]
    topics, unreadable = TopicCounts(), 0
    cursors: Counter[str] = Counter()
    for name in iter_all_topics(txn):
        topics = topics.of(name, iter_cursor_names(txn, name))
        try:
            topic = read_topic(txn, name)
        except StoreError:
            unreadable += 1
            continue
        readings = TopicFacts(reader, topic, 0).cursor_readings
        cursors.update(one.source if isinstance(one, Cursor) else CursorSource.UNREADABLE for _, one in readings)
    of_log = FileSummary.__struct_fields__[:-1]
    files = tuple(
        FileSummary(**{name: getattr(log, name) for name in of_log}, state=file_state(log, store.path))
        for log in iter_logs(txn)
    )
    as_of = find_as_of(txn)
    return StoreSummary(
        store=str(store.path),
        format_version=store.info.format_version,
        row_digests=txn.has_digests,
        created_ms=store.info.created_ms,
        as_of_ms=None if as_of is None else as_of.time_ms,
        as_of_source=None if as_of is None else as_of.source,
        state=store.info.state,
        transaction=store.last_txn_id(),
        sources=store.info.sources,
        **asdict(topics),
        unreadable_topics=unreadable,
        cursors=dict(sorted(cursors.items())),
        ledgers=sum(1 for _ in iter_ledger_ids(txn)),
        indexed_ledgers=len(sums),
        entries=sum(row.entries for row in sums),
        messages=sum(row.messages for row in sums),
        payload_bytes=sum(row.payload_bytes for row in sums),
        damaged_places=sum(file.problems for file in files) + sum(1 for _ in txn.items("damage", bytes(4))),
        changes=txn.count("changes"),
        databases={name: txn.count(name) for name in DATABASES},
        meta_bytes=(store.path / "meta" / "data.mdb").stat().st_size,
        disk_bytes=read_disk_bytes(txn),
        files=files,
        unknown_trees=unknown_trees(txn),
        other_ledgers=other_ledgers(txn),
    )
