"""The policies of one topic, read for a few fields and changed with all the others as they were.

Upstream: ``TopicPolicies`` (Pulsar 4.0.8): JSON of the metadata backend, and fields by name of an AVRO event. Delayed delivery is
three fields there, set and removed together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from store.codec.policies import (
    DelayedDelivery,
    JsonObject,
    Policies,
    backlog_quota_json,
    decode_backlog_quota,
    decode_retention,
    field_of,
    retention_json,
)

_ENABLED, _TICK, _MAX = "delayedDeliveryEnabled", "delayedDeliveryTickTimeMillis", "delayedDeliveryMaxDelayInMillis"


def decode_topic_policies(found: Mapping[str, Any], where: str) -> Policies:  # Any: fields by name
    """Return the policies in FOUND; raises MetadataCorrupt for a field of another type than upstream's."""
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


def change_topic_policies(found: Mapping[str, Any], before: Policies, after: Policies) -> JsonObject:
    """Return FOUND, which says BEFORE, as it says AFTER: every other field stays."""
    changed: JsonObject = dict(found)
    if after.delayed_delivery != before.delayed_delivery:
        delivery = after.delayed_delivery
        changed[_ENABLED] = None if delivery is None else delivery.active
        changed[_TICK] = None if delivery is None else delivery.tick_time_ms
        changed[_MAX] = None if delivery is None else delivery.max_delay_ms
    if after.message_ttl_seconds != before.message_ttl_seconds:
        changed["messageTTLInSeconds"] = after.message_ttl_seconds
    if after.retention != before.retention:
        changed["retentionPolicies"] = None if after.retention is None else retention_json(after.retention)
    if after.backlog_quotas != before.backlog_quotas:
        kept = {
            key: value for key, value in (found.get("backLogQuotaMap") or {}).items() if key in after.backlog_quotas
        }
        for kind, quota in after.backlog_quotas.items():
            if quota != before.backlog_quotas.get(kind):
                kept[kind] = backlog_quota_json(quota)
        changed["backLogQuotaMap"] = kept
    return changed
