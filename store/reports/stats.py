"""Read model of ``stats`` and ``partitioned-stats``: backlogs and sizes of a topic in upstream's shape.

Keys, their order and the sums over partitions: upstream ``TopicStatsImpl``, ``SubscriptionStatsImpl`` and
``PersistentSubscription.getStats`` (Pulsar 4.0.8). What only a running broker knows has the value that a broker shows just
after it loaded the topic, or null; docs/what-a-store-knows.md lists it.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.codec.cursor import RangeColumns, Ranges
from pulsar_admin.store.codec.message import decode_message_entry
from pulsar_admin.store.codec.policies import PartitionedTopic
from pulsar_admin.store.codec.strict_values import parse_integer
from pulsar_admin.store.errors import EntryCorrupt, EntryNotFound, LedgerNotFound, MetadataCorrupt, StoreError
from pulsar_admin.store.model.cursors import (
    DEDUP_CURSOR,
    Cursor,
    backlog_entries,
    backlog_size_bytes,
    is_replicated,
    is_subscription,
)
from pulsar_admin.store.model.entry_times import read_entry_time
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, check_partitioned, existing_partitions, read_partitioned, read_topic
from pulsar_admin.store.names import Position, TopicName, in_hash_order
from pulsar_admin.store.policies.in_force import QuotaInForce, find_quotas
from pulsar_admin.store.reports.internal_stats import iter_cursors
from pulsar_admin.store.wording import Answer, Sparse

EPOCH_PROPERTY = "pulsar.topic.epoch"

_IN_BYTES = "delayedMessageIndexSizeInBytes"  # the suffix is part of upstream's key


class StatsOptions(Struct, frozen=True):
    """What to add. ``backlog_size``: bytes of each subscription's backlog, else −1; ``earliest_time``: reads one entry each.

    ``explained``: what only newer brokers say, see ``TopicStats.topic_creation_time_stamp``.
    """

    backlog_size: bool = True
    earliest_time: bool = False
    explained: bool = False


class SubscriptionStats(Answer, frozen=True):
    """One subscription; everything with a default is unknown offline unless ``read_topic_stats`` sets it."""

    msg_rate_out: float = 0.0
    msg_throughput_out: float = 0.0
    bytes_out_counter: int = 0
    msg_out_counter: int = 0
    msg_rate_redeliver: float = 0.0
    message_ack_rate: float = 0.0
    chunked_message_rate: float = 0.0
    msg_backlog: int = 0
    backlog_size: int = 0
    earliest_msg_publish_time_in_backlog: int = 0
    msg_backlog_no_delayed: int = 0
    blocked_subscription_on_unacked_msgs: bool = False
    msg_delayed: int = 0
    msg_in_replay: int = 0
    unacked_messages: int = 0
    type: str = "None"
    msg_rate_expired: float = 0.0
    total_msg_expired: int = 0
    last_expire_timestamp: int = 0
    last_consumed_flow_timestamp: int = 0
    last_consumed_timestamp: int = 0
    last_acked_timestamp: int = 0
    last_mark_delete_advanced_timestamp: int = 0
    consumers: tuple[object, ...] = ()
    is_durable: bool = True
    is_replicated: bool = False
    allow_out_of_order_delivery: bool = False
    consumers_after_mark_delete_position: Mapping[str, str] = field(default_factory=dict)
    draining_hashes_count: int = 0
    draining_hashes_cleared_total: int = 0
    draining_hashes_unacked_messages: int = 0
    non_contiguous_deleted_messages_ranges: int = 0
    non_contiguous_deleted_messages_ranges_serialized_size: int = 0
    delayed_message_index_size_in_bytes: int = field(default=0, name=_IN_BYTES)
    subscription_properties: Mapping[str, str] = field(default_factory=dict)
    filter_processed_msg_count: int = 0
    filter_accepted_msg_count: int = 0
    filter_rejected_msg_count: int = 0
    filter_rescheduled_msg_count: int = 0
    dispatch_throttled_msg_events_by_subscription_limit: int = 0
    dispatch_throttled_bytes_events_by_subscription_limit: int = 0
    dispatch_throttled_msg_events_by_topic_limit: int = 0
    dispatch_throttled_bytes_events_by_topic_limit: int = 0
    dispatch_throttled_msg_events_by_broker_limit: int = 0
    dispatch_throttled_bytes_events_by_broker_limit: int = 0
    durable: bool = True
    replicated: bool = False


class CompactionStats(Answer, frozen=True):
    """Counters of the compactor, which live in the broker's memory."""

    last_compaction_removed_event_count: int = 0
    last_compaction_succeed_timestamp: int = 0
    last_compaction_failed_timestamp: int = 0
    last_compaction_duration_time_in_mills: int = 0


class TopicStats(Sparse, frozen=True):
    """``topics stats``; everything with a default is unknown offline unless ``read_topic_stats`` sets it."""

    JSON_OPTIONAL = ("deduplication_status",)

    msg_rate_in: float = 0.0
    msg_throughput_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_out: float = 0.0
    bytes_in_counter: int = 0
    msg_in_counter: int = 0
    system_topic_bytes_in_counter: int = 0
    bytes_out_counter: int = 0
    msg_out_counter: int = 0
    bytes_out_internal_counter: int = 0
    average_msg_size: float = 0.0
    msg_chunk_published: bool = False
    storage_size: int = 0
    backlog_size: int = 0
    backlog_quota_limit_size: int = -1
    backlog_quota_limit_time: int = -1
    oldest_backlog_message_age_seconds: int = -1
    publish_rate_limited_times: int = 0
    earliest_msg_publish_time_in_backlogs: int = 0
    offloaded_storage_size: int = 0
    last_offload_ledger_id: int = 0
    last_offload_success_time_stamp: int = 0
    last_offload_failure_time_stamp: int = 0
    ongoing_txn_count: int = 0
    aborted_txn_count: int = 0
    committed_txn_count: int = 0
    publishers: tuple[object, ...] = ()
    waiting_publishers: int = 0
    subscriptions: Mapping[str, SubscriptionStats] = field(default_factory=dict)
    replication: Mapping[str, object] = field(default_factory=dict)
    deduplication_status: str | None = "Disabled"
    topic_epoch: int | None = None
    non_contiguous_deleted_messages_ranges: int = 0
    non_contiguous_deleted_messages_ranges_serialized_size: int = 0
    delayed_message_index_size_in_bytes: int = field(default=0, name=_IN_BYTES)
    compaction: CompactionStats = field(default_factory=CompactionStats)
    owner_broker: str | None = None
    topic_creation_time_stamp: int | None = None
    """PIP-431: when the topic's node was made, and when its last message was published (0: none is there)."""
    last_publish_time_stamp: int | None = None


class PartitionedTopicStats(TopicStats, frozen=True):
    """``topics partitioned-stats``: sums over the partitions and, when asked for, each of them by name."""

    metadata: PartitionedTopic = field(default_factory=lambda: PartitionedTopic(0))
    partitions: Mapping[str, TopicStats] = field(default_factory=dict)


def read_topic_stats(
    reader: EntryReader, name: TopicName, options: StatsOptions, problems: list[StoreError]
) -> TopicStats:
    """Return the statistics of a topic; a cursor or policies that cannot be read are left out and reported in ``problems``.

    Raises TopicNotFound, MetadataCorrupt.
    """
    topic = read_topic(reader.txn, name)
    cursors = dict(iter_cursors(reader, topic, problems))
    subscriptions = {
        name: _subscription_stats(reader, topic, cursors[name], options)
        for name in in_hash_order(name for name in cursors if is_subscription(name))
    }
    slowest = min((cursor.mark_delete for cursor in cursors.values()), default=None)
    quotas: dict[str, QuotaInForce] = {}
    try:
        quotas = find_quotas(reader.txn, name)
    except MetadataCorrupt as error:  # statistics do not hang on policies
        problems.append(error)
    sizes, ages = quotas.get("destination_storage"), quotas.get("message_age")
    epoch = topic.managed.properties.get(EPOCH_PROPERTY, "")
    last_publish_ms = 0  # also for an unreadable entry
    if options.explained:
        with suppress(EntryNotFound, LedgerNotFound, EntryCorrupt):
            last = topic.last_confirmed
            payload = reader.read(last.ledger_id, last.entry_id).payload
            last_publish_ms = decode_message_entry(payload, f"entry {last}").metadata.publish_time
    backlog_bytes = 0 if slowest is None else backlog_size_bytes(topic, slowest)
    earliest = _earliest_time(reader, topic, slowest) if options.earliest_time and slowest and backlog_bytes else 0
    return TopicStats(
        storage_size=topic.total_size_bytes,
        backlog_size=backlog_bytes,
        backlog_quota_limit_size=sizes.quota.limit_size_bytes if sizes else -1,
        backlog_quota_limit_time=ages.quota.limit_time_seconds if ages else -1,
        earliest_msg_publish_time_in_backlogs=earliest,
        offloaded_storage_size=sum(ledger.size_bytes for ledger in topic.ledgers if ledger.info.offloaded),
        subscriptions=subscriptions,
        deduplication_status="Enabled" if DEDUP_CURSOR in cursors else "Disabled",
        topic_epoch=parse_integer(epoch),
        **_sums(_RANGES, subscriptions.values()),
        topic_creation_time_stamp=topic.stat.created_ms if options.explained else None,
        last_publish_time_stamp=last_publish_ms if options.explained else None,
    )


def _subscription_stats(reader: EntryReader, topic: Topic, cursor: Cursor, options: StatsOptions) -> SubscriptionStats:
    backlog = backlog_entries(topic, cursor.state)
    earliest = 0
    if options.earliest_time:
        earliest = _earliest_time(reader, topic, cursor.mark_delete) if backlog else -1
    return SubscriptionStats(
        msg_backlog=backlog,
        backlog_size=backlog_size_bytes(topic, cursor.mark_delete) if options.backlog_size else -1,
        earliest_msg_publish_time_in_backlog=earliest,
        msg_backlog_no_delayed=backlog,
        is_replicated=is_replicated(cursor),
        non_contiguous_deleted_messages_ranges=len(cursor.state.ranges),
        non_contiguous_deleted_messages_ranges_serialized_size=ranges_size_bytes(cursor.state.ranges),
        subscription_properties=cursor.info.shown_properties,
        replicated=is_replicated(cursor),
    )


def _earliest_time(reader: EntryReader, topic: Topic, mark_delete: Position) -> int:
    """Return the broker's time of the entry after ``mark_delete``, −1 when that is the end or unreadable."""
    position = topic.next_valid(mark_delete)
    if not topic.is_entry(position):
        return -1
    try:
        time_ms = read_entry_time(reader, position, "auto")
    except StoreError:
        return -1
    return -1 if time_ms is None else time_ms


# -- sums over partitions ---------------------------------------------------------------------------------------------

_RANGES = ("non_contiguous_deleted_messages_ranges", "non_contiguous_deleted_messages_ranges_serialized_size")
_SUMMED = ("storage_size", "backlog_size", "offloaded_storage_size", *_RANGES)
_SUMMED_BY_SUBSCRIPTION = ("msg_backlog", "backlog_size", "msg_backlog_no_delayed", *_RANGES)


def _sums(
    names: Iterable[str], some: Collection[TopicStats] | Collection[SubscriptionStats]
) -> dict[str, Any]:  # Any: integers of a Struct
    return {name: sum(getattr(one, name) for one in some) for name in names}


def read_partitioned_stats(
    reader: EntryReader, name: TopicName, options: StatsOptions, per_partition: bool, problems: list[StoreError]
) -> PartitionedTopicStats:
    """Return the stats of the partitioned topic ``name``, summed over its partitions as upstream adds them up.

    ``per_partition`` also keeps the parts. Raises TopicNotFound, MetadataCorrupt.
    """
    existing = existing_partitions(reader.txn, check_partitioned(reader.txn, name))
    by_name = {str(part): read_topic_stats(reader, part, options, problems) for part in existing}
    metadata = read_partitioned(reader.txn, name)
    parts = tuple(by_name.values())
    subscriptions: dict[str, SubscriptionStats] = {}
    for subscription in in_hash_order(sorted({one for part in parts for one in part.subscriptions})):
        some = [part.subscriptions[subscription] for part in parts if subscription in part.subscriptions]
        replicated = any(one.is_replicated for one in some)
        subscriptions[subscription] = replace(
            some[0],
            **_sums(_SUMMED_BY_SUBSCRIPTION, some),
            earliest_msg_publish_time_in_backlog=_earliest(one.earliest_msg_publish_time_in_backlog for one in some),
            is_replicated=replicated,
            replicated=replicated,
        )
    return PartitionedTopicStats(
        **_sums(_SUMMED, parts),
        backlog_quota_limit_size=parts[-1].backlog_quota_limit_size if parts else -1,
        backlog_quota_limit_time=parts[-1].backlog_quota_limit_time if parts else -1,
        earliest_msg_publish_time_in_backlogs=_earliest(part.earliest_msg_publish_time_in_backlogs for part in parts),
        subscriptions=subscriptions,
        oldest_backlog_message_age_seconds=0,
        deduplication_status=None,
        metadata=metadata,
        partitions=by_name if per_partition else {},
    )


def _earliest(times: Iterable[int]) -> int:
    """Return the smallest known time; 0 and −1 mean unknown."""
    listed = list(times)
    return min((time for time in listed if time > 0), default=max(listed, default=0))


# -- sizes of stored ranges -------------------------------------------------------------------------------------------


def ranges_size_bytes(ranges: Ranges) -> int:
    """Return the bytes of ``ranges`` as MessageRange messages, as the broker counts them when it stores a cursor."""
    if not isinstance(ranges, RangeColumns):
        return sum(_nested_size(_position_size(lower)) + _nested_size(_position_size(upper)) for lower, upper in ranges)
    total = 0
    for ledger_id, bits in ranges.parts:
        edges, smaller = bits ^ bits.shift(1), 0  # each one more than the entry id of a range's end
        for size in range(1, 6):
            count = edges.rank(min(1 << 7 * size, 2**32 - 1))
            total += (count - smaller) * _nested_size(2 + _varint_size(ledger_id) + size)
            smaller = count
        if 0 in edges:
            total += _varint_size(-1) - 1
    return total


def _position_size(position: Position) -> int:
    return 2 + _varint_size(position.ledger_id) + _varint_size(position.entry_id)


def _nested_size(size: int) -> int:
    return 1 + _varint_size(size) + size


def _varint_size(value: int) -> int:
    return max((value & (2**64 - 1)).bit_length() + 6, 7) // 7
