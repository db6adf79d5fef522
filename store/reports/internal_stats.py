"""Read models of ``stats-internal``, a topic's ledgers and cursors, and ``info-internal``, their metadata as stored, in upstream's shape.

Keys and their order: upstream ``PersistentTopicInternalStats`` and ``ManagedLedgerInfo`` (Pulsar 4.0.8). What only a running
broker knows has the value that a broker shows just after it loaded the topic; docs/what-a-store-knows.md lists it. Ours alone:
``beginPublishTimestamp`` and ``endPublishTimestamp`` of a ledger (PIP-345), left out where no message is known, and
``publishTimestampsFrom``: derived from its entries, or as stored (field, property) where none can be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from msgspec import field

from pulsar_admin.store.codec.cursor import cursor_info_text, decode_cursor_info
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata, LedgerState, ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, decode_managed_ledger, managed_ledger_text
from pulsar_admin.store.codec.policies import PartitionedTopic
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node, read_node
from pulsar_admin.store.errors import LedgerNotFound, MetadataCorrupt, NotSeen, StoreError
from pulsar_admin.store.model import topics
from pulsar_admin.store.model.broken_beside import unseen_position
from pulsar_admin.store.model.cursors import (
    COMPACTION_CURSOR,
    Cursor,
    CursorSource,
    backlog_entries,
    iter_cursor_names,
    range_text,
    read_cursor,
    read_topic_cursor,
)
from pulsar_admin.store.model.ledgers import find_metadata, read_ledger
from pulsar_admin.store.model.publish_times import find_publish_times
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, TopicName, decode_name, encode_name, in_hash_order
from pulsar_admin.store.wording import Answer, Sparse


class PartitionedInternalStats(Answer, frozen=True):
    """``metadata``: the number of partitions; ``partitions``: name → what ``stats-internal`` shows."""

    metadata: PartitionedTopic
    partitions: Mapping[str, InternalStats]


def read_partitioned_internals(
    reader: EntryReader, name: TopicName, metadata: bool, publish_times: bool, problems: list[StoreError]
) -> PartitionedInternalStats:
    """Return the internal statistics of the partitions that exist; see ``read_internal_stats``. Raises TopicNotFound."""
    existing = topics.existing_partitions(reader.txn, topics.check_partitioned(reader.txn, name))
    parts = {str(part): read_internal_stats(reader, part, metadata, publish_times, problems) for part in existing}
    return PartitionedInternalStats(topics.read_partitioned(reader.txn, name), parts)


NO_LEDGER = -1

_TIME_LIMIT_MS = 253_402_300_800_000  # the year 10000
Properties = Mapping[str, int]


class LedgerStats(Sparse, frozen=True):
    """One ledger: entries and payload bytes, −1 when they are not known."""

    ledger_id: int = NO_LEDGER
    entries: int = -1
    size_bytes: int = -1
    offloaded: bool = False
    metadata: str | None = None
    under_replicated: bool = False
    properties: Mapping[str, str] | None = None
    begin_publish_timestamp: int | None = None
    end_publish_timestamp: int | None = None
    publish_timestamps_from: str | None = None


class CursorStats(Answer, frozen=True):
    """One cursor where it really stands (``store.model.cursors``), read position and counters as just after loading."""

    mark_delete_position: str
    read_position: str
    waiting_read_op: bool = False
    pending_read_ops: int = 0
    messages_consumed_counter: int = 0
    cursor_ledger: int = NO_LEDGER
    cursor_ledger_last_entry: int = -1
    individually_deleted_messages: str = "[]"
    last_ledger_switch_timestamp: str | None = None
    state: str = "NoLedger"
    active: bool = False
    number_of_entries_since_first_not_acked_message: int = 1
    total_non_contiguous_deleted_messages_range: int = 0
    subscription_have_pending_read: bool = False
    subscription_have_pending_replay_read: bool = False
    properties: Properties = field(default_factory=dict)


class InternalStats(Answer, frozen=True):
    """``topics stats-internal``. Cursors are keyed by their encoded names; the open ledger is listed with 0 and 0."""

    entries_added_counter: int
    number_of_entries: int
    total_size_bytes: int
    current_ledger_entries: int
    current_ledger_size: int
    last_ledger_created_timestamp: str | None
    waiting_cursors_count: int
    pending_add_entries_count: int
    last_confirmed_entry: str
    state: str
    ledgers: tuple[LedgerStats, ...]
    cursors: Mapping[str, CursorStats]
    schema_ledgers: tuple[LedgerStats, ...]
    compacted_ledger: LedgerStats


def iso_time(time_ms: int) -> str:
    """Return a time as upstream's DateFormatter writes it in UTC: without the zeros at the end of its fraction."""
    if not 0 <= time_ms < _TIME_LIMIT_MS:
        return f"{time_ms}ms"
    whole = datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f"{time_ms % 1000:03d}".rstrip("0")
    return f"{whole}.{fraction}Z" if fraction else f"{whole}Z"


def read_internal_stats(
    reader: EntryReader, name: TopicName, metadata: bool, publish_times: bool, problems: list[StoreError]
) -> InternalStats:
    """Return the internal statistics of a topic; ``metadata`` adds each ledger's BookKeeper metadata as text.

    Without ``publish_times`` the keys that are ours alone are left out.

    A cursor, or a ledger beside the topic's own, that cannot be read is left out or −1, and reported in ``problems``.
    Raises TopicNotFound, MetadataCorrupt.
    """
    txn = reader.txn
    topic = topics.read_topic(txn, name)
    cursors = dict(iter_cursors(reader, topic, problems))
    current = topic.ledgers[-1] if topic.ledgers and topic.ledgers[-1].is_open else None
    schema = find_node(txn, name.schema_path)
    schema_ledgers: tuple[int, ...] = ()
    if schema is not None and schema.value:
        # Imported here: most topics have no schema.
        from pulsar_admin.store.codec.schema import decode_schema_locator

        schema_ledgers = decode_schema_locator(schema.value, schema.path).ledger_ids
    compaction = cursors.get(COMPACTION_CURSOR)
    compacted = compaction.state.properties.get(topics.COMPACTED_LEDGER, NO_LEDGER) if compaction else NO_LEDGER
    return InternalStats(
        entries_added_counter=0,
        number_of_entries=topic.number_of_entries,
        total_size_bytes=topic.total_size_bytes,
        current_ledger_entries=current.entries if current else 0,
        current_ledger_size=current.size_bytes if current else 0,
        last_ledger_created_timestamp=_created(txn, topic.ids[-1]) if topic.ids else None,
        waiting_cursors_count=0,
        pending_add_entries_count=0,
        last_confirmed_entry=str(topic.last_confirmed),
        state="LedgerOpened" if topic.managed.terminated is None else "Terminated",
        ledgers=tuple(_listed_ledger(txn, ledger, metadata, publish_times) for ledger in topic.ledgers),
        cursors={
            name: _cursor_stats(txn, topic, cursors[decode_name(name)])
            for name in in_hash_order(map(encode_name, cursors))
        },
        schema_ledgers=tuple(_other_ledger(txn, ledger, metadata, problems) for ledger in schema_ledgers),
        compacted_ledger=LedgerStats() if compacted < 0 else _other_ledger(txn, compacted, metadata, problems),
    )


def iter_cursors(reader: EntryReader, topic: topics.Topic, problems: list[StoreError]) -> Iterator[tuple[str, Cursor]]:
    """Yield (name, cursor) in name order; one that cannot be read, or lost its newest state, is reported in ``problems``."""
    for name in sorted(iter_cursor_names(reader.txn, topic.name)):
        try:
            cursor = read_cursor(reader.txn, reader, topic, name)
        except StoreError as error:
            problems.append(error)
            continue
        if unseen := unseen_position(reader.txn, cursor):
            problems.append(
                NotSeen(f"{topic.name}: {unseen}; shown is the newest one that is here, {cursor.mark_delete}")
            )
        elif cursor.skipped_entries or (
            cursor.source is CursorSource.FALLBACK and find_metadata(reader.txn, cursor.info.cursors_ledger_id) is None
        ):
            problems.append(_lost_state(topic, cursor))
        yield name, cursor


def _lost_state(topic: topics.Topic, cursor: Cursor) -> MetadataCorrupt:
    ledger_id = cursor.info.cursors_ledger_id
    if cursor.recoverable is not None:
        return MetadataCorrupt(
            f"{topic.name} {cursor.name}: BookKeeper's metadata of its cursor ledger {ledger_id} is gone: a broker starts it at "
            f"{cursor.mark_delete}, as shown; the ledger's entries still say {cursor.recoverable.mark_delete}",
            hint=f"read them with: pulsar-admin ledgers entries {ledger_id}",
            topic=str(topic.name),
            subscription=cursor.name,
            recoverable=str(cursor.recoverable.mark_delete),
        )
    reason = f"{cursor.skipped_entries} unreadable entries" if cursor.skipped_entries else "no such ledger"
    return MetadataCorrupt(
        f"{topic.name} {cursor.name}: its newest state is lost (cursor ledger {ledger_id}: {reason}); "
        f"shown is the one before, {cursor.mark_delete}",
        hint=f"see: pulsar-admin ledgers info {ledger_id}",
        topic=str(topic.name),
        subscription=cursor.name,
        ledgerId=ledger_id,
    )


def _listed_ledger(txn: Txn, ledger: topics.TopicLedger, metadata: bool, publish_times: bool) -> LedgerStats:
    times = find_publish_times(txn, ledger.info) if publish_times else None
    return LedgerStats(
        ledger.ledger_id,
        0 if ledger.is_open else ledger.entries,
        0 if ledger.is_open else ledger.size_bytes,
        ledger.info.offloaded,
        _metadata_text(txn, ledger.ledger_id) if metadata else None,
        properties=dict(ledger.info.properties) or None,
        begin_publish_timestamp=times and times.begin_ms,
        end_publish_timestamp=times and times.end_ms,
        publish_timestamps_from=times and times.source,
    )


def _other_ledger(txn: Txn, ledger_id: int, metadata: bool, problems: list[StoreError]) -> LedgerStats:
    """Return the numbers of a schema or compacted ledger, which the topic's own list does not have."""
    try:
        ledger = read_ledger(txn, ledger_id)
    except LedgerNotFound as error:
        problems.append(error)
        return LedgerStats(ledger_id)
    text = _metadata_text(txn, ledger_id) if metadata else None
    return LedgerStats(ledger_id, ledger.entries, ledger.size_bytes, False, text)


def _cursor_stats(txn: Txn, topic: topics.Topic, cursor: Cursor) -> CursorStats:
    state = cursor.state
    in_ledger = cursor.source is CursorSource.LEDGER
    ledger_id = cursor.info.cursors_ledger_id if in_ledger else NO_LEDGER
    return CursorStats(
        mark_delete_position=str(state.mark_delete),
        read_position=str(topic.next_valid(state.mark_delete)),
        messages_consumed_counter=-backlog_entries(topic, state),
        cursor_ledger=ledger_id,
        cursor_ledger_last_entry=read_ledger(txn, ledger_id).last_entry_id if in_ledger else -1,
        individually_deleted_messages=range_text(state.ranges),
        last_ledger_switch_timestamp=_created(txn, ledger_id) if in_ledger else None,
        state="Open" if in_ledger else "NoLedger",
        total_non_contiguous_deleted_messages_range=len(state.ranges),
        properties=dict(state.properties),
    )


def _created(txn: Txn, ledger_id: int) -> str | None:
    """Return when the ledger's metadata node was created, some milliseconds before the broker records it; None without a node."""
    node = find_node(txn, ledger_path(ledger_id))
    return None if node is None else iso_time(node.stat.created_ms)


def _metadata_text(txn: Txn, ledger_id: int) -> str | None:
    metadata = find_metadata(txn, ledger_id)
    return None if metadata is None else metadata_text(metadata)


def metadata_text(metadata: LedgerMetadata, *, with_password: bool = False) -> str:
    """Return a ledger's metadata as BookKeeper's ``LedgerMetadataImpl`` writes it: ``toSafeString``, or ``toString`` with its password."""
    from base64 import b64encode  # few ask for metadata

    from pulsar_admin.store.codec.java import in_hash_map_order

    def base64(value: bytes) -> str:
        return f"base64:{b64encode(value).decode()}"

    parts = [
        f"formatVersion={metadata.version}",
        f"ensembleSize={metadata.ensemble_size}",
        f"writeQuorumSize={metadata.write_quorum}",
        f"ackQuorumSize={metadata.ack_quorum}",
        f"state={metadata.state.name}",
    ]
    if metadata.state is LedgerState.CLOSED:
        parts += [f"length={metadata.length}", f"lastEntryId={metadata.last_entry_id}"]
    if metadata.password is not None:
        digest_type = metadata.digest_type or DigestType.CRC32  # what BookKeeper takes where none is named
        parts += [
            f"digestType={'MAC' if digest_type is DigestType.HMAC else digest_type.name}",
            f"password={base64(metadata.password) if with_password else 'OMITTED'}",
        ]
    ensembles = (f"{segment.first_entry_id}=[{', '.join(segment.members)}]" for segment in metadata.segments)
    fields = in_hash_map_order(metadata.custom) if with_password else metadata.custom
    custom = (f"{key}={base64(value)}" for key, value in fields.items())
    parts += [f"ensembles={{{', '.join(ensembles)}}}", f"customMetadata={{{', '.join(custom)}}}"]
    return f"LedgerMetadata{{{', '.join(parts)}}}"


# -- info-internal -----------------------------------------------------------------------------------------------------


class PositionInfo(Answer, frozen=True):
    """A position as ``info-internal`` writes it."""

    ledger_id: int
    entry_id: int


class RangeInfo(Answer, frozen=True):
    """Individually deleted entries: after ``start``, through ``end``."""

    start: PositionInfo = field(name="from")
    end: PositionInfo = field(name="to")


class LedgerInfoRow(Sparse, frozen=True):
    """One LedgerInfo of the stored value; entries and size are absent while it is open."""

    ledger_id: int
    entries: int | None = None
    size_bytes: int | None = None
    timestamp: int | None = None
    is_offloaded: bool = False
    offloaded_context_uuid: str | None = None
    begin_publish_timestamp: int | None = None
    end_publish_timestamp: int | None = None
    publish_timestamps_from: str | None = None


class CursorInfoRow(Sparse, frozen=True):
    """One ManagedCursorInfo as stored: its position is stale while ``cursors_ledger_id`` names a ledger."""

    version: int
    creation_date: str
    modification_date: str
    cursors_ledger_id: int
    mark_delete: PositionInfo | None = None
    individual_deleted_messages: tuple[RangeInfo, ...] | None = None
    properties: Properties | None = None


class InternalInfo(Sparse, frozen=True):
    """``topics info-internal``: the metadata nodes of a topic and of its cursors, decoded, nothing added up."""

    version: int
    creation_date: str
    modification_date: str
    ledgers: tuple[LedgerInfoRow, ...]
    terminated_position: PositionInfo | None = None
    cursors: Mapping[str, CursorInfoRow] = field(default_factory=dict)
    properties: Mapping[str, str] | None = None


def read_internal_info(txn: Txn, name: TopicName, publish_times: bool, problems: list[StoreError]) -> InternalInfo:
    """Return the metadata of a topic as stored; a cursor's value that cannot be decoded is reported in ``problems``.

    Without ``publish_times`` the keys that are ours alone are left out.

    Raises TopicNotFound, MetadataCorrupt.
    """
    topic = read_topic(txn, name)
    stored = read_node(txn, name.path)
    managed, terminated = decode_managed_ledger(stored.value, name.path, as_stored=True), topic.managed.terminated
    cursors: dict[str, CursorInfoRow] = {}
    for cursor in sorted(iter_cursor_names(txn, name)):
        node = read_node(txn, name.cursor_path(cursor))
        try:
            info = decode_cursor_info(node.value, node.path)
        except StoreError as error:
            problems.append(error)
            continue
        ranges = tuple(RangeInfo(_position_info(lower), _position_info(upper)) for lower, upper in info.ranges)
        cursors[encode_name(cursor)] = CursorInfoRow(
            node.stat.version,
            iso_time(node.stat.created_ms),
            iso_time(node.stat.modified_ms),
            info.cursors_ledger_id,
            _position_info(info.mark_delete) if info.mark_delete is not None else None,
            ranges or None,
            dict(info.properties) or None,
        )
    return InternalInfo(
        topic.stat.version,
        iso_time(topic.stat.created_ms),
        iso_time(topic.stat.modified_ms),
        tuple(_info_row(txn, info, publish_times) for info in managed.ledgers),
        _position_info(terminated) if terminated is not None else None,
        cursors,
        dict(sorted(managed.properties.items())) or None,
    )


def stored_topic_text(txn: Txn, name: TopicName) -> str:
    """Return the stored ManagedLedgerInfo of a topic in protobuf's text format; raises TopicNotFound, MetadataCorrupt."""
    read_topic(txn, name)
    return managed_ledger_text(read_node(txn, name.path).value, name.path)


def stored_cursor_text(reader: EntryReader, name: TopicName, subscription: str) -> str:
    """Return the stored ManagedCursorInfo of a subscription in protobuf's text format; raises as ``read_cursor``."""
    read_topic_cursor(reader, name, subscription)
    path = name.cursor_path(subscription)
    return cursor_info_text(read_node(reader.txn, path).value, path)


def _info_row(txn: Txn, info: LedgerInfo, publish_times: bool) -> LedgerInfoRow:
    times = find_publish_times(txn, info) if publish_times else None
    stored = bool(info.timestamp_ms or info.entries)
    return LedgerInfoRow(
        info.ledger_id,
        info.entries if stored else None,
        info.size_bytes if stored else None,
        info.timestamp_ms,
        info.offload_uuid is not None,
        info.offload_uuid,
        times and times.begin_ms,
        times and times.end_ms,
        times and times.source,
    )


def _position_info(position: Position) -> PositionInfo:
    return PositionInfo(position.ledger_id, position.entry_id)
