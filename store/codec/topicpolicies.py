"""The policies of one topic, read for a few fields.

Upstream: ``TopicPolicies`` (Pulsar 4.0.8): JSON of the metadata backend, and fields by name of an AVRO event. Delayed delivery is
three fields there, set and removed together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulsar_admin.store.codec.policies import (
    DelayedDelivery,
    Policies,
    decode_backlog_quota,
    decode_retention,
    field_of,
)

_ENABLED, _TICK, _MAX = "delayedDeliveryEnabled", "delayedDeliveryTickTimeMillis", "delayedDeliveryMaxDelayInMillis"


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
