"""The record of a scalable topic, JSON at ``/topics/TENANT/NAMESPACE/NAME``: the DAG of its segments, and its properties.

Upstream (5.0.1): ``ScalableTopicMetadata``, ``SegmentInfo``. A segment has the keys whose hash is in its range; a split or a merge seals
segments, makes others in their place, and counts the epoch up. A topic that was migrated has its former partitions as sealed segments
("legacy"), which are persistent topics.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter

from pulsar_admin.store.codec.policies import JsonObject, decode_json_object
from pulsar_admin.store.codec.strict_values import integer, text
from pulsar_admin.store.errors import InvalidValue, MetadataCorrupt, Unsupported
from pulsar_admin.store.names import LONG_MAX, PERSISTENT, SCALABLE, NamespaceName, TopicName, parse_topic
from pulsar_admin.store.wording import Answer

HASH_MAX = 0xFFFF
NEVER = -1
"""The epoch and the time of sealing of a segment that is not sealed."""


class SegmentState(StrEnum):
    """Whether producers may write to a segment."""

    ACTIVE = "ACTIVE"
    SEALED = "SEALED"


class Segment(Answer, frozen=True):
    """A segment: ``topic`` is the managed ledger that has its entries, a persistent topic where it is ``legacy``.

    Hashes are from ``start`` to ``end``, both included. ``sealed_epoch`` and ``sealed_ms`` are −1 while it is active.
    """

    segment_id: int
    topic: TopicName
    start: int
    end: int
    state: SegmentState
    parents: tuple[int, ...]
    children: tuple[int, ...]
    created_epoch: int
    sealed_epoch: int
    created_ms: int
    sealed_ms: int
    entry_buckets: int

    @property
    def is_active(self) -> bool:
        return self.state is SegmentState.ACTIVE

    @property
    def is_legacy(self) -> bool:
        return self.topic.domain == PERSISTENT


class ScalableTopic(Answer, frozen=True):
    """A decoded scalable topic: ``segments`` parents first, then by id; ``record``: the whole JSON."""

    JSON_HIDDEN = ("record",)

    topic: TopicName
    epoch: int
    next_segment_id: int
    segments: tuple[Segment, ...]
    properties: Mapping[str, str]
    deleted: bool
    record: JsonObject

    def iter_live(self) -> Iterator[tuple[int, tuple[Segment, ...]]]:
        """Yield each epoch with the segments that producers wrote to from then on, by their hashes."""
        came, went = defaultdict(list), defaultdict(list)
        for one in self.segments:
            if one.is_active or one.created_epoch < one.sealed_epoch:
                came[one.created_epoch].append(one)
                went[LONG_MAX if one.is_active else one.sealed_epoch].append(one)
        live: dict[int, Segment] = {}
        sealed = {one.sealed_epoch for one in self.segments if not one.is_active}
        for epoch in sorted({self.epoch, *sealed, *(one.created_epoch for one in self.segments)}):
            live |= {one.segment_id: one for one in came[epoch]}
            for one in went[epoch]:
                live.pop(one.segment_id, None)
            if 0 <= epoch <= self.epoch:
                yield epoch, tuple(sorted(live.values(), key=lambda one: (one.start, one.segment_id)))


def decode_scalable_topic(value: bytes, where: str, topic: TopicName) -> ScalableTopic:
    """Return the scalable ``topic`` of a record; raises MetadataCorrupt, and Unsupported for a state of segments of a newer version."""
    record = decode_json_object(value, where)
    try:
        rows = record.get("segments", {})
        if not isinstance(rows, dict):
            raise ValueError("segments: expected an object")
        segments = {one.segment_id: one for key, row in rows.items() for one in [_segment(key, row, where, topic)]}
        properties = record.get("properties") or {}
        if not isinstance(properties, dict):
            raise ValueError("properties: expected an object")
        return ScalableTopic(
            topic if topic.domain == SCALABLE else TopicName(topic.namespace, topic.local_name, SCALABLE),
            integer(record.get("epoch", 0), "epoch"),
            integer(record.get("nextSegmentId", 0), "nextSegmentId"),
            _parents_first(segments),
            {name: text(one, f"property {name}") for name, one in properties.items()},
            record.get("deleted") is True,
            record,
        )
    except (ValueError, InvalidValue) as error:
        raise MetadataCorrupt(f"{where}: {error}", where=where) from error


def unknown_scalable_keys(value: bytes, where: str) -> tuple[str, ...]:
    """Return the names of the parts of a record that are not known here; raises as ``decode_scalable_topic``."""
    topic = decode_scalable_topic(value, where, _ANY)
    return tuple(f"key {key}" for key in topic.record if key not in _KEYS)


_ANY = TopicName(NamespaceName("any", "any"), "any", SCALABLE)
_KEYS = frozenset(["autoScalePolicy", "deleted", "epoch", "nextSegmentId", "properties", "segments"])


def _segment(key: str, row: object, where: str, topic: TopicName) -> Segment:
    if not isinstance(row, dict):
        raise ValueError(f"segment {key}: expected an object")
    segment_id, hashes = integer(row.get("segmentId"), f"segmentId of {key}"), row.get("hashRange")
    if str(segment_id) != key or not isinstance(hashes, dict):
        raise ValueError(f"segment {key}: its id is {segment_id}, its hashes {type(hashes).__name__}")
    start = integer(hashes.get("start"), f"start of segment {key}", 0, HASH_MAX)
    end = integer(hashes.get("end"), f"end of segment {key}", start, HASH_MAX)
    state, legacy, splits = row.get("state"), row.get("legacyTopicName"), row.get("entryBucketSplits") or []
    if state not in (*SegmentState,):
        raise Unsupported(f"{where}: segment {key} has the state {state!r}", where=where)
    if not isinstance(splits, list):
        raise ValueError(f"entryBucketSplits of segment {key}: expected a list")
    name = TopicName(topic.namespace, topic.local_name, SCALABLE).segment(start, end, segment_id)
    if legacy is not None:
        name = parse_topic(text(legacy, "legacyTopicName"))
        if name.domain != PERSISTENT:  # a segment of another topic would be deleted with this one
            raise ValueError(f"legacyTopicName of segment {key}: {name} is no persistent topic")
    return Segment(
        segment_id,
        name,
        start,
        end,
        SegmentState(str(state)),
        _ids(row, "parentIds"),
        _ids(row, "childIds"),
        integer(row.get("createdAtEpoch"), f"createdAtEpoch of segment {key}"),
        integer(row.get("sealedAtEpoch", NEVER), f"sealedAtEpoch of segment {key}", NEVER),
        integer(row.get("createdAtMs", 0), f"createdAtMs of segment {key}", NEVER),
        integer(row.get("sealedAtMs", NEVER), f"sealedAtMs of segment {key}", NEVER),
        len(splits) + 1,
    )


def _ids(row: JsonObject, name: str) -> tuple[int, ...]:
    items = row.get(name) or []
    if not isinstance(items, list):
        raise ValueError(f"{name}: expected a list")
    return tuple(integer(one, name) for one in items)


def _parents_first(segments: Mapping[int, Segment]) -> tuple[Segment, ...]:
    """Return the segments by epoch and id, a parent before its children also where their epochs say otherwise."""

    def by_age(ids: Iterable[int]) -> list[int]:
        return sorted(ids, key=lambda one: (segments[one].created_epoch, one))

    left = TopologicalSorter({one: segments.keys() & segments[one].parents for one in segments})
    with suppress(CycleError):  # the rules tell of a circle
        left.prepare()
    ordered: list[int] = []
    while ready := by_age(left.get_ready()):
        ordered += ready
        left.done(*ready)
    ordered += by_age(segments.keys() - ordered)
    return tuple(segments[one] for one in ordered)
