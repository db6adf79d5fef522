"""Creating and deleting scalable topics in the metadata, as a broker's controller does.

Upstream (5.0.1): ``ScalableTopics.createScalableTopic`` and ``deleteScalableTopic``, ``ScalableTopicController.createInitialMetadata``. A
segment that is created here has no ledger yet: a broker creates one when it loads the segment.
"""

import json
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from pulsar_admin.store.changes.deleting import plan_delete
from pulsar_admin.store.changes.plan import ChangeKind, ChangePart, DeletedPart, Plan, delete_step, put_value_step
from pulsar_admin.store.changes.topics import warned_of_lost
from pulsar_admin.store.codec.java import in_hash_map_order
from pulsar_admin.store.codec.scalable import HASH_MAX, NEVER
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node, iter_children, iter_nodes
from pulsar_admin.store.errors import AlreadyExists, InvalidValue, Refused
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.scalable import read_scalable
from pulsar_admin.store.model.topics import check_namespace, list_partitions
from pulsar_admin.store.names import PERSISTENT, TopicName, shell_word
from pulsar_admin.store.wording import listed, plural

_BUCKETS = 4
"""``scalableTopicEntryBuckets`` of broker.conf that the segments of a new topic share: the default, as recorded data have it."""
_HASHES = HASH_MAX + 1
_SHOWN = 5
_SEGMENTS_MAX = 10_000  # each is two nodes; a broker splits up to 64 by itself
_CREATE = ChangeKind("scalable-topics create", "create scalable topic {place}")
_DELETE = ChangeKind("scalable-topics delete", "delete scalable topic {first}")
Json = dict[str, Any]  # Any: JSON


def plan_create_scalable(
    reader: EntryReader, name: TopicName, segments: int, properties: Mapping[str, str], now_ms: int
) -> Plan:
    """Plan creating a scalable topic of ``segments`` segments; raises AlreadyExists, NamespaceNotFound, InvalidValue."""
    if not 1 <= segments <= _SEGMENTS_MAX:
        raise InvalidValue(
            "numInitialSegments must be >= 1"
            if segments < 1
            else f"{segments} segments: at most {_SEGMENTS_MAX} can be created",
            value=segments,
        )
    txn = reader.txn
    check_namespace(txn, name.namespace)
    regular = _regular(name)
    if find_node(txn, name.scalable_path) is not None:
        raise AlreadyExists(
            f"Scalable topic already exists: {name}",
            hint=f"see it with: pulsar-admin scalable-topics get-metadata {shell_word(name)}",
            topic=str(name),
        )
    width, kept = _HASHES // segments, in_hash_map_order(properties)
    ends = [HASH_MAX if one == segments - 1 else (one + 1) * width - 1 for one in range(segments)]
    rows = {str(one): _active(one, one * width, end, segments, now_ms) for one, end in enumerate(ends)}
    record = {"epoch": 0, "nextSegmentId": segments, "segments": rows, "properties": kept, "deleted": False}
    steps = [put_value_step(txn, name.scalable_path, json.dumps(record, separators=(",", ":")).encode(), now_ms)]
    for one, end in enumerate(ends):
        path = name.segment(one * width, end, one).path
        if find_node(txn, path) is None:
            steps.append(put_value_step(txn, path, b"", now_ms, whole_topic=True))
    warnings: tuple[str, ...] = ()
    if _is_there(txn, regular):
        warnings = (
            f"{regular} stays beside it, as with a broker of 5.0.1: `scalable-topics migrate` turns it into a "
            "scalable one",
        )
    made = [name.segment(one * width, end, one).path for one, end in enumerate(ends)]
    folder = made[0].rpartition("/")[0]
    left = [one for one in iter_children(txn, folder) if f"{folder}/{one}" not in made]
    if left:
        warnings += (
            f"{plural(len(left), 'segment')} {listed(left, _SHOWN)} {plural(len(left), 'exists', 'exist')} without a record of the topic, "
            f"and the new record does not list {plural(len(left), 'it', 'them')}: no client gets "
            f"{plural(len(left), 'its', 'their')} messages; see: pulsar-admin doctor --code segment-unlisted",
        )
    part = ChangePart(topic=str(name), after={"segments": segments, "properties": kept}, warnings=warnings)
    return warned_of_lost(reader, Plan(_CREATE, txn.id, tuple(steps), (part,)))


def _regular(name: TopicName) -> TopicName:
    """Return the persistent topic of the same name, which shares the schema."""
    return TopicName(name.namespace, name.local_name, PERSISTENT)


def _is_there(txn: Txn, regular: TopicName) -> bool:
    paths = (regular.path, regular.partitioned_path)
    return any(find_node(txn, path) is not None for path in paths) or bool(list_partitions(txn, regular))


def _active(segment_id: int, start: int, end: int, segments: int, now_ms: int) -> Json:
    """Return a new active segment with upstream's keys in order (``SegmentInfo``, ``EntryBucketSplits.equalWidth``)."""
    buckets = min(max(1, _BUCKETS // segments), _HASHES)
    return {
        "segmentId": segment_id,
        "hashRange": {"start": start, "end": end},
        "state": "ACTIVE",
        "parentIds": [],
        "childIds": [],
        "createdAtEpoch": 0,
        "sealedAtEpoch": NEVER,
        "createdAtMs": now_ms,
        "sealedAtMs": NEVER,
        "entryBucketSplits": [_HASHES * one // buckets for one in range(1, buckets)],
        "sealed": False,
        "active": True,
        "root": True,
        "leaf": True,
        "legacy": False,
    }


def plan_delete_scalable(reader: EntryReader, name: TopicName, force: bool, now_ms: int) -> Plan:
    """Plan deleting a scalable topic with its segments, their cursors and ledgers, and its schema.

    A persistent topic of the same name stays, and with it the schema of both. With ``force``, unreadable nodes are deleted too (a broker
    asks for ``force`` only while consumers are connected). Raises TopicNotFound, MetadataCorrupt, and Refused for a migrated topic: the
    original topics are deleted by their own names first.
    """
    txn = reader.txn
    record = read_scalable(txn, name)
    legacy = [one.topic for one in record.segments if one.is_legacy and find_node(txn, one.topic.path) is not None]
    if legacy:
        raise Refused(
            f"{name} was migrated from {legacy[0].base}, whose messages it still has",
            hint=f"delete that first: pulsar-admin topics delete {shell_word(legacy[0])}",
            topic=str(name),
        )
    segments = [one.topic for one in record.segments if find_node(txn, one.topic.path) is not None]
    regular = _regular(name)
    bases = [] if _is_there(txn, regular) else [regular]
    plan = plan_delete(reader, _DELETE, segments, bases, now_ms, force=force, whole_topic=True)
    subscriptions = sorted({one for part in plan.parts for one in (part.before or {}).get("subscriptions", ())})
    paths = [node.path for node in iter_nodes(txn, f"{name.scalable_path}/")]
    steps = [delete_step(txn, path) for path in (*paths, name.scalable_path)]
    part = DeletedPart(topic=str(name), before={"segments": len(record.segments), "subscriptions": subscriptions})
    return replace(plan, steps=(*plan.steps, *steps), parts=(part, *plan.parts))
