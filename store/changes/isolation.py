"""Setting and deleting isolation policies (upstream ``CmdNamespaceIsolationPolicy`` and ``ClustersBase``, 4.0.8)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from store.changes.plan import Plan
from store.changes.resources import NodeChange, plan_node
from store.codec.java import java_text
from store.codec.policies import JsonObject
from store.db.environment import Txn
from store.errors import InvalidValue
from store.model.isolation import POLICY, is_expression, isolation_path
from store.model.resources import check_cluster, find_json

_PARAMETERS = {"min_limit", "usage_threshold"}
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)


def isolation_of(
    brokers: Mapping[str, Sequence[str]], failover: str, parameters: Mapping[str, str], scope: str | None
) -> JsonObject:
    """Return a policy of BROKERS, lists by upstream's keys, checked as pulsar-admin and a broker check it; raises InvalidValue."""
    lists = {key: [one for one in values if one] for key, values in brokers.items()}
    for key in ("namespaces", "primary"):
        if not lists[key]:
            raise InvalidValue(f"unable to parse {key} parameter list: {java_text(lists['namespaces'])}")
    if failover.lower() != "min_available":
        raise InvalidValue(f"Unknown auto failover policy type specified : {failover}")
    if set(parameters) != _PARAMETERS:
        raise InvalidValue(f"Unknown auto failover policy params specified : {java_text(dict(parameters))}")
    policy = {**lists, "auto_failover_policy": {"parameters": dict(parameters), "policy_type": "min_available"}}
    return policy if scope is None else {**policy, "unload_scope": scope}


def plan_set(txn: Txn, cluster: str, name: str, policy: JsonObject, now_ms: int) -> Plan:
    """Plan setting an isolation policy; raises ResourceNotFound, InvalidValue."""
    check_cluster(txn, cluster)
    expressions = [one for key in ("namespaces", "primary", "secondary") for one in policy[key]]
    numbers = policy["auto_failover_policy"]["parameters"].values()
    if not all(map(is_expression, expressions)) or not all(map(_INTEGER.fullmatch, numbers)):
        shown = {**policy, "unload_scope": policy.get("unload_scope")}
        raise InvalidValue(f"Invalid format of input policy data. policy: {name}; data: {{", data=shown)
    found = find_json(txn, isolation_path(cluster)) or {}
    after = {**found, name: POLICY.replace(found.get(name), policy)}
    return _plan(txn, "ns-isolation-policy set", cluster, name, after, now_ms)


def plan_delete(txn: Txn, cluster: str, name: str, now_ms: int) -> Plan:
    """Plan deleting an isolation policy, of a name that there need not be; raises ResourceNotFound for the cluster."""
    check_cluster(txn, cluster)
    after = {key: one for key, one in (find_json(txn, isolation_path(cluster)) or {}).items() if key != name}
    return _plan(txn, "ns-isolation-policy delete", cluster, name, after, now_ms)


def _plan(txn: Txn, command: str, cluster: str, name: str, after: JsonObject, now_ms: int) -> Plan:
    change = NodeChange(f"isolation policy {name} of cluster {cluster}", isolation_path(cluster), after)
    return plan_node(txn, command, change, now_ms)
