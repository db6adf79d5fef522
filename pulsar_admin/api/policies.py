"""Plans that change policies: the same for a namespace and for a topic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from pulsar_admin.api.plan import Plan
from pulsar_admin.api.session import Duration, check_choice, duration_ms
from store.changes.namespaces import (
    check_ttl,
    quotas_json,
    retention_of,
    retention_or_null_json,
    ttl_json,
    with_quota,
    without_quota,
)
from store.changes.policies import PolicyJob
from store.codec.policies import JsonObject, Policies
from store.timespec import parse_size_bytes

QuotaKind = Literal["destination_storage", "message_age"]
QuotaPolicy = Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"]
Shown = Callable[[Policies], JsonObject]


class PolicyPlans(ABC):
    """What has policies. Where a topic sets none, those of its namespace count, else a broker's configuration."""

    _group: str
    _least_ttl: int

    @abstractmethod
    def _plan_policy(self, job: PolicyJob) -> Plan:
        """Return the plan of JOB here."""

    def set_message_ttl(self, ttl: Duration | None) -> Plan:
        """Plan setting how long messages live, in whole seconds, or with None removing that; of a namespace 0 is for ever.

        Raises InvalidValue.
        """
        seconds = None if ttl is None else check_ttl(duration_ms(ttl), self._least_ttl)
        return self._set("message-ttl", ttl is None, {"message_ttl_seconds": seconds}, _ttl)

    def set_retention(self, *, time: Duration | None, size: int | str | None) -> Plan:
        """Plan retaining what every subscription has consumed for TIME and up to SIZE (bytes, or ``10G``); None: without limit.

        Kept in whole minutes and MB, rounded down. Raises InvalidValue.
        """
        retention = retention_of(-1 if time is None else duration_ms(time), _size_bytes(size))
        return self._set("retention", False, {"retention": retention}, _retention)

    def remove_retention(self) -> Plan:
        """Plan removing the retention: what is set above counts again."""
        return self._set("retention", True, {"retention": None}, _retention)

    def set_backlog_quota(
        self,
        policy: QuotaPolicy,
        *,
        size: int | str | None = None,
        time: Duration | None = None,
        kind: QuotaKind = "destination_storage",
    ) -> Plan:
        """Plan setting the backlog quota KIND: what happens beyond SIZE (bytes, or ``10G``) or TIME; None: none. Raises InvalidValue."""
        check_choice("policy", policy, QuotaPolicy)
        check_choice("kind", kind, QuotaKind)
        limits = _size_bytes(size), -1 if time is None else duration_ms(time)
        return self._job("set-backlog-quota", lambda found: with_quota(found, kind, *limits, policy), quotas_json)

    def remove_backlog_quota(self, kind: QuotaKind = "destination_storage") -> Plan:
        """Plan removing the backlog quota KIND."""
        return self._job("remove-backlog-quota", lambda found: without_quota(found, kind), quotas_json)

    def _set(self, policy: str, removes: bool, values: dict[str, Any], shown: Shown) -> Plan:  # Any: fields of Policies
        return self._job(f"{'remove' if removes else 'set'}-{policy}", lambda found: replace(found, **values), shown)

    def _job(self, name: str, change: Callable[[Policies], Policies], shown: Shown) -> Plan:
        return self._plan_policy(PolicyJob(f"{self._group} {name}", change, shown))


def _ttl(policies: Policies) -> JsonObject:
    return ttl_json(policies.message_ttl_seconds)


def _retention(policies: Policies) -> JsonObject:
    return retention_or_null_json(policies.retention)


def _size_bytes(value: int | str | None) -> int:
    if value is None:
        return -1
    return parse_size_bytes(value) if isinstance(value, str) else value
