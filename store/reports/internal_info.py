"""Read model of ``info-internal``: the metadata of a topic and its cursors as stored, in upstream's shape.

Keys and their order: upstream ``ManagedLedgerInfo`` (Pulsar 4.0.8). Ours alone: ``beginPublishTimestamp`` and
``endPublishTimestamp`` of a ledger (PIP-345), left out where no message is known, and ``publishTimestampsFrom``: derived from
its entries, or as stored (field, property) where none can be read.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from pulsar_admin.store.codec.cursor import cursor_info_text, decode_cursor_info
from pulsar_admin.store.codec.managedledger import LedgerInfo, decode_managed_ledger, managed_ledger_text
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import read_node
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.cursors import iter_cursor_names, read_topic_cursor
from pulsar_admin.store.model.publish_times import find_publish_times
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, TopicName, encode_name
from pulsar_admin.store.reports.internal_stats import Properties, iso_time
from pulsar_admin.store.wording import Answer, Sparse


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
