"""JSON of namespaces and partitioned topics, read for a few fields and rewritten with all the others as they were.

The policies of one topic (``TopicPolicies``: JSON of the metadata backend, and fields by name of an AVRO event) are only read.
Upstream: ``Policies``, ``RetentionPolicies``, ``DelayedDeliveryPolicies``, ``BacklogQuotaImpl`` and
``PartitionedTopicMetadata`` (Pulsar 4.0.8), written by Jackson: no blanks, no keys for null.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import field

from pulsar_admin.store.codec.strict_values import finite, kind_of
from pulsar_admin.store.errors import MetadataCorrupt
from pulsar_admin.store.names import INT_MAX
from pulsar_admin.store.wording import Answer, Sparse

JsonObject = dict[str, Any]  # whatever the broker wrote: kept, not understood
ValueT = TypeVar("ValueT")
EVICTION = "consumer_backlog_eviction"
"""The policy of a backlog quota that drops messages."""


class DelayedDelivery(Answer, frozen=True):
    """``delayed_delivery_policies``; a maximum delay of 0 means no maximum."""

    active: bool
    tick_time_ms: int
    max_delay_ms: int = 0


class Retention(Answer, frozen=True):
    """``retention_policies`` in upstream's own units; −1 is infinite."""

    time_minutes: int
    size_mb: int


class BacklogQuota(Answer, frozen=True):
    """One value of ``backlog_quota_map``; −1 means no limit."""

    limit_size_bytes: int
    limit_time_seconds: int
    policy: str


class Policies(Answer, frozen=True):
    """The policies of a namespace or a topic that this toolkit reads or changes; None = not set.

    ``backlog_quotas`` is keyed by upstream's type, ``destination_storage`` or ``message_age``.
    """

    delayed_delivery: DelayedDelivery | None = None
    message_ttl_seconds: int | None = None
    retention: Retention | None = None
    backlog_quotas: Mapping[str, BacklogQuota] = field(default_factory=dict)


class PartitionedTopic(Sparse, frozen=True):
    """The value at ``/admin/partitioned-topics/…``."""

    partitions: int
    deleted: bool = False
    properties: Mapping[str, str] | None = None


NEW_POLICIES: JsonObject = {
    "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
    "replication_clusters": [],
    "allowed_clusters": [],
    "bundles": {},
    "backlog_quota_map": {},
    "clusterDispatchRate": {},
    "topicDispatchRate": {},
    "subscriptionDispatchRate": {},
    "replicatorDispatchRate": {},
    "clusterSubscribeRate": {},
    "publishMaxMessageRate": {},
    "latency_stats_sample_rate": {},
    "deleted": False,
    "encryption_required": False,
    "subscription_auth_mode": "None",
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
    "schema_compatibility_strategy": "UNDEFINED",
    "schema_validation_enforced": False,
    "subscription_types_enabled": [],
    "properties": {},
    "migrated": False,
}
"""What a broker writes of a namespace that has no policies yet."""


def decode_json_object(value: bytes, where: str) -> JsonObject:
    """Return a JSON object with its keys in their order; raises MetadataCorrupt."""
    try:
        document = json.loads(value, parse_float=finite, parse_constant=finite)
    except (ValueError, RecursionError) as cause:
        raise MetadataCorrupt(f"{where} is not JSON: {cause}", where=where, found=bytes(value[:32]).hex()) from cause
    if not isinstance(document, dict):
        raise MetadataCorrupt(
            f"{where}: expected a JSON object, found {kind_of(document)}", where=where, found=type(document).__name__
        )
    return document


_OBJECTS = (
    "auth_policies",
    "backlog_quota_map",
    "clusterDispatchRate",
    "topicDispatchRate",
    "subscriptionDispatchRate",
    "replicatorDispatchRate",
    "clusterSubscribeRate",
    "publishMaxMessageRate",
    "offload_policies",
    "retention_policies",
    "persistence",
    "delayed_delivery_policies",
    "inactive_topic_policies",
    "autoTopicCreationOverride",
    "autoSubscriptionCreationOverride",
    "entryFilters",
    "properties",
    "bundles",
)
_LISTS = ("replication_clusters", "allowed_clusters", "subscription_types_enabled")


def decode_namespace_json(value: bytes, where: str) -> JsonObject:
    """Return ``Policies`` as stored; raises MetadataCorrupt, also if a member is not the object or list that upstream has there."""
    fields = decode_json_object(value, where)
    for members, kind, words in ((_OBJECTS, dict, "an object"), (_LISTS, list, "an array")):
        for member in members:
            if not isinstance(fields.get(member), kind | None):
                raise MetadataCorrupt(
                    f"{where}: {member}: expected {words}, found {kind_of(fields[member])}", where=where, found=member
                )
    for kind, quota in (fields.get("backlog_quota_map") or {}).items():
        if not isinstance(quota, dict):
            raise MetadataCorrupt(
                f"{where}: backlog_quota_map: {kind}: expected an object, found {kind_of(quota)}",
                where=where,
                found=kind,
            )
    return fields


def check_policies(value: bytes, where: str) -> JsonObject:
    """Return ``Policies`` as stored; raises MetadataCorrupt, also if a member is of another kind than upstream's."""
    fields = decode_namespace_json(value, where)
    _policies(fields, where)
    return fields


def check_partitioned_topic(value: bytes, where: str) -> JsonObject:
    """Return ``PartitionedTopicMetadata`` as stored; raises MetadataCorrupt, also if a member is of another kind than upstream's."""
    fields = decode_json_object(value, where)
    _partitioned_topic(fields, where)
    return fields


def encode_json_object(found: JsonObject) -> bytes:
    """Return a JSON object as Jackson writes it: UTF-8, no blanks."""
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can spell and UTF-8 cannot
        return json.dumps(found, separators=(",", ":"), allow_nan=False).encode()


def decode_policies(value: bytes, where: str) -> Policies:
    """Return the policies of a namespace; raises MetadataCorrupt."""
    return _policies(decode_json_object(value, where), where)


def encode_policies(policies: Policies, base: bytes = b"") -> bytes:
    """Return policies as a value to store in place of ``base``: every other key stays, in its place.

    If nothing changes, ``base`` itself is returned. Raises MetadataCorrupt if ``base`` is not a JSON object.
    """
    document = decode_json_object(base, "value to replace") if base else {}
    before = _policies(document, "value to replace")
    if base and before == policies:
        return base
    if policies.delayed_delivery != before.delayed_delivery:
        _put(document, "delayed_delivery_policies", policies.delayed_delivery, delayed_delivery_json)
    if policies.message_ttl_seconds != before.message_ttl_seconds:
        _put(document, "message_ttl_in_seconds", policies.message_ttl_seconds, None)
    if policies.retention != before.retention:
        _put(document, "retention_policies", policies.retention, retention_json)
    if policies.backlog_quotas != before.backlog_quotas:
        quotas = document["backlog_quota_map"] = document.get("backlog_quota_map") or {}
        for kind in {**before.backlog_quotas, **policies.backlog_quotas}:
            if policies.backlog_quotas.get(kind) != before.backlog_quotas.get(kind):
                _put(quotas, kind, policies.backlog_quotas.get(kind), backlog_quota_json)
    return encode_json_object(document)


def decode_partitioned_topic(value: bytes, where: str) -> PartitionedTopic:
    """Return the metadata of a partitioned topic; raises MetadataCorrupt."""
    return _partitioned_topic(decode_json_object(value, where), where)


def encode_partitioned_topic(topic: PartitionedTopic, base: bytes = b"") -> bytes:
    """Return a value to store in place of ``base``, whose other keys stay; raises MetadataCorrupt."""
    stored = decode_json_object(base, "value to replace") if base else {}
    if base and _partitioned_topic(stored, "value to replace") == topic:
        return base
    stored |= {"partitions": topic.partitions, "deleted": topic.deleted}
    if topic.properties or "properties" in stored:
        stored["properties"] = dict(topic.properties or {})
    return encode_json_object(stored)


def _put(found: JsonObject, key: str, value: ValueT | None, to_json: Callable[[ValueT], JsonObject] | None) -> None:
    """Set, update in place or (for None) remove one key."""
    if value is None:
        found.pop(key, None)
    elif to_json is None:
        found[key] = value
    elif isinstance(found.get(key), dict):
        found[key].update(to_json(value))
    else:
        found[key] = to_json(value)


def _policies(found: JsonObject, where: str) -> Policies:
    delayed = field_of(found, "delayed_delivery_policies", dict, None, where)
    retention = field_of(found, "retention_policies", dict, None, where)
    quotas = field_of(found, "backlog_quota_map", dict, None, where) or {}
    return Policies(
        _delayed_delivery(delayed, where) if delayed is not None else None,
        field_of(found, "message_ttl_in_seconds", int, None, where),
        decode_retention(retention, where) if retention is not None else None,
        {kind: decode_backlog_quota(quotas, kind, where) for kind in quotas if quotas[kind] is not None},
    )


def _delayed_delivery(found: JsonObject, where: str) -> DelayedDelivery:
    return DelayedDelivery(
        field_of(found, "active", bool, False, where),
        field_of(found, "tickTime", int, 0, where),
        field_of(found, "maxDeliveryDelayInMillis", int, 0, where),
    )


def delayed_delivery_json(value: DelayedDelivery) -> JsonObject:
    """Return ``DelayedDeliveryPolicies`` as JSON."""
    return {"tickTime": value.tick_time_ms, "active": value.active, "maxDeliveryDelayInMillis": value.max_delay_ms}


def decode_retention(found: JsonObject, where: str) -> Retention:
    """Return the ``RetentionPolicies`` in a JSON object; raises MetadataCorrupt."""
    return Retention(
        field_of(found, "retentionTimeInMinutes", int, 0, where), field_of(found, "retentionSizeInMB", int, 0, where)
    )


def retention_json(value: Retention) -> JsonObject:
    """Return ``RetentionPolicies`` as JSON."""
    return {"retentionTimeInMinutes": value.time_minutes, "retentionSizeInMB": value.size_mb}


def decode_backlog_quota(quotas: JsonObject, kind: str, where: str) -> BacklogQuota:
    """Return the ``BacklogQuotaImpl`` of one type in a map of quotas; raises MetadataCorrupt."""
    found = field_of(quotas, kind, dict, {}, where)
    # "limit" is the name before 2.9.1; newer brokers write both and read limitSize first.
    limit = field_of(found, "limit", int, 0, where)
    return BacklogQuota(
        field_of(found, "limitSize", int, limit, where),
        field_of(found, "limitTime", int, 0, where),
        field_of(found, "policy", str, "", where),
    )


def backlog_quota_json(value: BacklogQuota) -> JsonObject:
    """Return ``BacklogQuotaImpl`` as JSON, with both names of the size limit."""
    size = value.limit_size_bytes
    return {"limit": size, "limitSize": size, "limitTime": value.limit_time_seconds, "policy": value.policy}


def _partitioned_topic(found: JsonObject, where: str) -> PartitionedTopic:
    properties = field_of(found, "properties", dict, None, where)
    partitions = field_of(found, "partitions", int, 0, where)
    if abs(partitions) > INT_MAX:
        raise MetadataCorrupt(f"{where}: no Java int holds {partitions:,} partitions", where=where, found=partitions)
    return PartitionedTopic(
        partitions,
        field_of(found, "deleted", bool, False, where),
        None if properties is None else {key: field_of(properties, key, str, "", where) for key in properties},
    )


_KINDS: dict[type, str] = {int: "a number", str: "a text", bool: "true or false", dict: "an object", list: "a list"}


def field_of(found: JsonObject, key: str, kind: type, default: Any, where: str) -> Any:  # Any: a KIND, or DEFAULT
    """Return a field of exactly this kind, or the default if it is absent or null; raises MetadataCorrupt."""
    value = found.get(key)
    if value is None:
        return default
    if type(value) is not kind:
        raise MetadataCorrupt(
            f"{where}: {key} is {kind_of(value)}, expected {_KINDS[kind]}",
            where=where,
            key=key,
            expected=kind.__name__,
            found=type(value).__name__,
        )
    return value


_ENABLED, _TICK, _MAX = "delayedDeliveryEnabled", "delayedDeliveryTickTimeMillis", "delayedDeliveryMaxDelayInMillis"
"""Delayed delivery is three fields of a topic's policies, set and removed together."""


def decode_topic_policies(found: Mapping[str, Any], where: str) -> Policies:  # Any: fields by name
    """Return decoded topic policies; raises MetadataCorrupt for a field of another type than upstream's."""
    fields = dict(found)
    enabled, tick_ms = field_of(fields, _ENABLED, bool, None, where), field_of(fields, _TICK, int, None, where)
    delivery = None
    if enabled is not None and tick_ms is not None:
        delivery = DelayedDelivery(enabled, tick_ms, field_of(fields, _MAX, int, 0, where))
    retention = field_of(fields, "retentionPolicies", dict, None, where)
    quotas = field_of(fields, "backLogQuotaMap", dict, None, where) or {}
    return Policies(
        delivery,
        field_of(fields, "messageTTLInSeconds", int, None, where),
        None if retention is None else decode_retention(retention, where),
        {kind: decode_backlog_quota(quotas, kind, where) for kind in quotas if quotas[kind] is not None},
    )
