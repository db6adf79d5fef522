"""Read model of ``scalable-topics get-metadata``, ``stats`` and ``segment-stats``: upstream's keys in their order.

Upstream (5.0.1): the admin client's ``ScalableTopicMetadata``, ``ScalableTopicStats`` and ``SegmentTopicStats``.
What only a controller knows is left out (its broker, what it decides, its last operation) or 0 (rates, consumers).
"""

from collections.abc import Mapping
from typing import Any

from pulsar_admin.store.codec.policies import decode_json_object
from pulsar_admin.store.codec.scalable import ScalableTopic, Segment
from pulsar_admin.store.codec.strict_values import kind_of
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import Node, find_node, iter_children
from pulsar_admin.store.errors import MetadataCorrupt, StoreError, TopicNotFound
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.scalable import iter_scalable, read_scalable
from pulsar_admin.store.model.topics import check_namespace, read_topic
from pulsar_admin.store.names import NamespaceName, TopicName, in_hash_order, shell_word
from pulsar_admin.store.reports.internal_stats import iso_time
from pulsar_admin.store.reports.stats import StatsOptions, SubscriptionStats, TopicStats, read_topic_stats

Json = dict[str, Any]  # Any: JSON
_SEGMENT = (
    *("segmentId", "hashRange", "state", "parentIds", "childIds", "createdAtEpoch", "sealedAtEpoch"),
    *("legacyTopicName", "entryBucketSplits", "sealed", "active", "legacy"),
)
_NO_RATES = {"msgRateIn": 0.0, "byteRateIn": 0.0, "msgRateOut": 0.0, "byteRateOut": 0.0}


def list_scalable(txn: Txn, namespace: NamespaceName, properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the scalable topics of ``namespace`` that have all of ``properties``; raises NamespaceNotFound, MetadataCorrupt."""
    check_namespace(txn, namespace)
    names = iter_scalable(txn, namespace)
    if properties:
        names = (name for name in names if properties.items() <= read_scalable(txn, name).properties.items())
    return tuple(map(str, names))


def metadata_json(found: ScalableTopic) -> Json:
    """Return the record of a scalable topic as pulsar-admin shows it."""
    record = found.record
    segments = {
        key: {name: row[name] for name in _SEGMENT if row.get(name) is not None}
        for key, row in sorted(record.get("segments", {}).items(), key=lambda item: int(item[0]))
    }
    shown = {
        "epoch": found.epoch,
        "nextSegmentId": found.next_segment_id,
        "segments": segments,
        "properties": found.properties,
    }
    policy = record.get("autoScalePolicy")
    return shown if policy is None else {**shown, "autoScalePolicy": policy}


def read_scalable_stats(reader: EntryReader, name: TopicName, problems: list[StoreError]) -> Json:
    """Return the stats of a scalable topic; segments that cannot be read have no sums, and go into ``problems``. Raises TopicNotFound,
    MetadataCorrupt.
    """
    record = read_scalable(reader.txn, name)
    stats: dict[int, TopicStats] = {}
    ends: dict[int, bool] = {}
    for segment in record.segments:
        try:
            stats[segment.segment_id] = read_topic_stats(reader, segment.topic, StatsOptions(), problems)
            ends[segment.segment_id] = read_topic(reader.txn, segment.topic).managed.terminated is not None
        except StoreError as error:
            problems.append(error)
    by_id = sorted(record.segments, key=lambda one: one.segment_id)
    return {
        "autoScale": _scaled(record),
        "layout": {
            "epoch": record.epoch,
            "segments": {one.segment_id: _layout_segment(reader.txn, name, one, ends, problems) for one in by_id},
        },
        **_NO_RATES,
        "averageMsgSize": 0.0,
        "storageSize": sum(one.storage_size for one in stats.values()),
        "backlogSize": sum(one.backlog_size for one in stats.values()),
        "producers": [],
        "subscriptions": _subscriptions(reader, name, stats),
    }


def _layout_segment(
    txn: Txn, name: TopicName, segment: Segment, ends: Mapping[int, bool], problems: list[StoreError]
) -> Json:
    shown: Json = {"name": str(segment.topic), "state": segment.state.value}
    shown |= {"parentIds": list(segment.parents)} if segment.parents else {}
    shown |= {"childIds": list(segment.children)} if segment.children else {}
    shown |= {"createdAt": _time(segment.created_ms)}
    shown |= {} if segment.is_active else {"sealedAt": _time(segment.sealed_ms)}
    node = find_node(txn, f"{name.scalable_path}/segments/{segment.segment_id}/load")
    if node is not None:
        try:
            shown["load"] = _rates(node)
        except MetadataCorrupt as error:
            problems.append(error)
    shown |= {"terminated": ends[segment.segment_id]} if segment.segment_id in ends else {}
    return {**shown, "entryBuckets": segment.entry_buckets}


def _rates(node: Node) -> Json:
    record = decode_json_object(node.value, node.path)
    rates = {key: record.get(key, 0.0) for key in _NO_RATES}
    for key, rate in rates.items():
        if type(rate) not in (int, float):
            raise MetadataCorrupt(f"{node.path}: {key}: expected a number, found {kind_of(rate)}", where=node.path)
    return rates


def _scaled(found: ScalableTopic) -> Json:
    """Return when segments were last split, merged and rebucketed (a migration counts), by upstream's keys: creation of the results."""
    times: dict[str, int] = {}
    by_id = {one.segment_id: one for one in found.segments}
    for one in found.segments:
        parents = [by_id[parent] for parent in one.parents if parent in by_id]
        if not parents:
            continue
        is_same = [(parent.start, parent.end) for parent in parents] == [(one.start, one.end)]
        key = "lastMergeAt" if len(parents) > 1 else "lastRebucketAt" if is_same else "lastSplitAt"
        times[key] = max(times.get(key, 0), one.created_ms)
    return {key: _time(times[key]) for key in ("lastSplitAt", "lastMergeAt", "lastRebucketAt") if key in times}


def _subscriptions(reader: EntryReader, name: TopicName, stats: Mapping[int, TopicStats]) -> Json:
    """Return the subscriptions; those with ordered consumers come first, because a controller keeps nodes only for these."""
    txn, root = reader.txn, f"{name.scalable_path}/subscriptions"
    streams = list(iter_children(txn, root))
    there = {one for row in stats.values() for one in row.subscriptions}
    others = in_hash_order(sorted(there.difference(streams)))
    shown = {}
    for subscription in (*(one for one in streams if one in there), *others):
        of_it = {
            number: row.subscriptions[subscription]
            for number, row in sorted(stats.items())
            if subscription in row.subscriptions
        }
        consumers = iter_children(txn, f"{root}/{subscription}/consumers")
        shown[subscription] = {
            "type": "STREAM" if subscription in streams else "QUEUE",
            "msgBacklog": sum(one.msg_backlog for one in of_it.values()),
            "backlogSize": sum(one.backlog_size for one in of_it.values()),
            "unackedMessages": 0,
            **_OUT,
            "msgRateRedeliver": 0.0,
            "messageAckRate": 0.0,
            "uncoveredSegmentIds": [number for number in sorted(stats) if number not in of_it],
            "segments": {number: _on_segment(one) for number, one in of_it.items()},
            "consumers": [{"consumerName": one, "connected": False} for one in consumers],
        }
    return shown


_OUT = {"msgRateOut": 0.0, "byteRateOut": 0.0}


def _on_segment(one: SubscriptionStats) -> Json:
    sizes = {"msgBacklog": one.msg_backlog, "backlogSize": one.backlog_size, "unackedMessages": 0}
    return {**sizes, **_OUT, "blocked": False, "drainingBuckets": 0, "consumerCount": 0}


def read_segment_stats(reader: EntryReader, name: TopicName, problems: list[StoreError]) -> Json:
    """Return the stats of a segment; raises TopicNotFound, MetadataCorrupt."""
    listed = {one.topic for one in read_scalable(reader.txn, name).segments}
    if name not in listed:
        raise TopicNotFound(
            f"Segment {name} not found in scalable topic {name.whole}",
            hint=f"see: pulsar-admin scalable-topics get-metadata {shell_word(name.whole)}",
            topic=str(name),
        )
    topic, stats = read_topic(reader.txn, name), read_topic_stats(reader, name, StatsOptions(), problems)
    return {
        "terminated": topic.managed.terminated is not None,
        **_NO_RATES,
        "averageMsgSize": 0.0,
        "storageSize": stats.storage_size,
        "backlogSize": stats.backlog_size,
        "offloadedStorageSize": stats.offloaded_storage_size,
        "oldestBacklogMessageAgeSeconds": stats.oldest_backlog_message_age_seconds,
        "waitingPublishers": 0,
        "topicCreationTime": iso_time(topic.stat.created_ms),
        "producers": [],
        "subscriptions": {subscription: _of_segment(one) for subscription, one in stats.subscriptions.items()},
    }


def _of_segment(one: SubscriptionStats) -> Json:
    return {
        "type": one.type,
        **_OUT,
        "msgRateRedeliver": 0.0,
        "messageAckRate": 0.0,
        "msgBacklog": one.msg_backlog,
        "backlogSize": one.backlog_size,
        "unackedMessages": one.unacked_messages,
        "drainingBuckets": 0,
        "oldestBacklogMessageAgeSeconds": -1,
        "blockedSubscriptionOnUnackedMsgs": False,
        "consumers": [],
    }


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else iso_time(time_ms)
