"""Isolation policies: which namespaces only some brokers serve (upstream ``NamespaceIsolationDataImpl``, 4.0.8)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pulsar_admin.store.codec.java import java_text
from pulsar_admin.store.codec.policies import JsonObject
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import ResourceNotFound
from pulsar_admin.store.model.resources import Fields, check_cluster, cluster_path, find_json

FAILOVER = Fields({"parameters": None, "policy_type": None}, {})
POLICY = Fields(
    {"namespaces": None, "primary": None, "secondary": None, "auto_failover_policy": None, "unload_scope": None},
    {"auto_failover_policy": FAILOVER.show},
)


def isolation_path(cluster: str) -> str:
    """Return the metadata path of a cluster's isolation policies."""
    return f"{cluster_path(cluster)}/namespaceIsolationPolicies"


def read_isolation(txn: Txn, cluster: str) -> JsonObject:
    """Return a cluster's isolation policies by name; raises ResourceNotFound, also where there never was one."""
    check_cluster(txn, cluster)
    found = find_json(txn, isolation_path(cluster))
    if found is None:
        raise ResourceNotFound(f"NamespaceIsolationPolicies for cluster {cluster} does not exist", cluster=cluster)
    return found


def read_isolation_policy(txn: Txn, cluster: str, name: str) -> JsonObject:
    """Return one isolation policy; raises ResourceNotFound."""
    found = read_isolation(txn, cluster)
    if name not in found:
        raise ResourceNotFound(f"Cannot find NamespaceIsolationPolicy {name} for cluster {cluster}", name=name)
    policy: JsonObject = found[name]
    return policy


def broker_isolation(txn: Txn, cluster: str, broker: str) -> JsonObject:
    """Return what isolation policies say of a broker, whether there is such a one or not; raises ResourceNotFound."""
    answer: JsonObject = {"brokerName": broker}
    namespaces: list[str] = []
    primary = False
    for name, policy in read_isolation(txn, cluster).items():
        is_primary = _matches(policy.get("primary") or (), broker)
        if is_primary or _matches(policy.get("secondary") or (), broker):
            namespaces += policy.get("namespaces") or ()
            answer["policyName"], primary = name, is_primary
    return {**answer, "namespaceRegex": namespaces, "primary": primary}


def isolation_text(policy: JsonObject) -> str:
    """Return an isolation policy as its toString writes it."""
    failover = policy.get("auto_failover_policy") or {}
    inner = f"policyType={java_text(failover.get('policy_type'))}, parameters={java_text(failover.get('parameters'))}"
    lists = ", ".join(f"{key}={java_text(policy.get(key))}" for key in ("namespaces", "primary", "secondary"))
    scope = java_text(policy.get("unload_scope"))
    data = f"autoFailoverPolicy=AutoFailoverPolicyDataImpl({inner}), unloadScope={scope}"
    return f"NamespaceIsolationDataImpl({lists}, {data})"


def is_expression(text: str) -> bool:
    """Whether TEXT is a regular expression; Java's, as far as Python's says."""
    try:
        re.compile(text)
    except re.error:
        return False
    return True


def _matches(expressions: Sequence[str], broker: str) -> bool:
    return any(is_expression(one) and re.fullmatch(one, broker) for one in expressions)
