"""Policies: the values that commands and the Python interface set, as upstream keeps and shows them, and jobs on namespaces."""

from __future__ import annotations

from dataclasses import replace

from store.changes.delayed import conflict_warnings
from store.changes.plan import Plan
from store.changes.policies import PolicyJob, find_policies, plan_policies
from store.codec.policies import (
    BacklogQuota,
    DelayedDelivery,
    JsonObject,
    Policies,
    Retention,
    backlog_quota_json,
    delayed_delivery_json,
    retention_json,
)
from store.db.environment import Txn
from store.errors import InvalidValue
from store.names import INT_MAX, LONG_MAX, NamespaceName

QUOTA_TYPES = ("destination_storage", "message_age")
QUOTA_POLICIES = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
_NO_DELIVERY = {"tickTime": None, "active": None, "maxDeliveryDelayInMillis": None}
_NO_RETENTION = {"retentionTimeInMinutes": None, "retentionSizeInMB": None}


def plan_job(txn: Txn, namespace: NamespaceName, job: PolicyJob, now_ms: int) -> Plan:
    """Plan JOB, with a warning where what it sets drops delayed messages; raises NamespaceNotFound, MetadataCorrupt."""
    plan = plan_policies(txn, namespace, job, now_ms)
    after = job.change(find_policies(txn, namespace) or Policies())
    if plan.steps and after.delayed_delivery is not None and after.delayed_delivery.active:
        plan = replace(plan, warnings=conflict_warnings(after))
    return plan


# -- JSON -------------------------------------------------------------------------------------------------------------


def ttl_json(seconds: int | None) -> JsonObject:
    """Return the message TTL, null where it is not set."""
    return {"messageTTL": seconds}


def delivery_json(delivery: DelayedDelivery | None) -> JsonObject:
    """Return delayed delivery with upstream's keys, null where it is not set."""
    return dict(_NO_DELIVERY) if delivery is None else delayed_delivery_json(delivery)


def retention_or_null_json(retention: Retention | None) -> JsonObject:
    """Return the retention with upstream's keys, null where it is not set."""
    return dict(_NO_RETENTION) if retention is None else retention_json(retention)


def quotas_json(policies: Policies) -> JsonObject:
    """Return the backlog quotas by upstream's types, null where one is not set."""
    quotas = policies.backlog_quotas
    return {
        kind: None if kind not in quotas else backlog_quota_json(quotas[kind])
        for kind in dict.fromkeys((*QUOTA_TYPES, *quotas))
    }


# -- values -----------------------------------------------------------------------------------------------------------


def check_ttl(ttl_ms: int, least: int) -> int:
    """Return a TTL in seconds; raises InvalidValue when it is below LEAST or no 32-bit integer."""
    seconds = ttl_ms // 1000
    if not least <= seconds <= INT_MAX:
        raise InvalidValue(f"a TTL of {seconds} s: it must be {least} to {INT_MAX}", value=seconds)
    return seconds


def retention_of(time_ms: int, size_bytes: int) -> Retention:
    """Return the policy in upstream's units, rounded down as upstream does; below 0: unlimited. Raises InvalidValue out of range."""
    minutes = -1 if time_ms < 0 else time_ms // 60_000
    megabytes = -1 if size_bytes < 0 else size_bytes >> 20
    if max(minutes, megabytes) > INT_MAX:
        raise InvalidValue(f"{minutes} minutes and {megabytes} MB: {INT_MAX} at most")
    return Retention(minutes, megabytes)


def with_quota(policies: Policies, kind: str, limit_bytes: int, limit_time_ms: int, policy: str) -> Policies:
    """Return POLICIES with a backlog quota, limits below 0: none; raises InvalidValue for a time out of range."""
    seconds = -1 if limit_time_ms < 0 else limit_time_ms // 1000
    if seconds > INT_MAX:
        raise InvalidValue(f"{seconds} seconds: {INT_MAX} at most")
    quota = BacklogQuota(max(limit_bytes, -1), seconds, policy)
    return replace(policies, backlog_quotas={**policies.backlog_quotas, kind: quota})


def without_quota(policies: Policies, kind: str) -> Policies:
    """Return POLICIES without the backlog quota KIND."""
    return replace(
        policies, backlog_quotas={key: quota for key, quota in policies.backlog_quotas.items() if key != kind}
    )


def delivery_of(active: bool, tick_ms: int, max_delay_ms: int) -> DelayedDelivery:
    """Return the policy of delayed messages; raises InvalidValue for times out of range."""
    if not 0 < tick_ms <= LONG_MAX or not 0 <= max_delay_ms <= LONG_MAX:
        raise InvalidValue(
            f"tick {tick_ms} ms must be above 0, maximum delay {max_delay_ms} ms 0 or more",
            hint="a maximum delay of 0 is none",
        )
    return DelayedDelivery(active, tick_ms, max_delay_ms)
