"""Making, changing and deleting clusters, their peers, migrations and failure domains (upstream ``ClustersBase``, 4.0.8)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from store.changes.plan import Plan
from store.changes.resources import NodeChange, plan_nodes
from store.codec.java import hash_order
from store.codec.policies import JsonObject
from store.db.environment import Txn
from store.db.tree import find_node, iter_children
from store.errors import AlreadyExists, InvalidValue, Refused, ResourceNotFound, reason_of
from store.files import read_file
from store.model.isolation import isolation_path
from store.model.resources import (
    CLUSTER,
    CLUSTER_URL,
    DOMAIN,
    MIGRATION,
    TENANTS_PATH,
    check_cluster,
    cluster_path,
    domain_path,
    find_json,
    migration_path,
    read_cluster,
    read_domains,
    read_tenant,
)
from store.names import is_allowed_name

_URLS = (
    ("serviceUrl", ("http",), "service url, example: http://pulsar.example.com:8080"),
    ("serviceUrlTls", ("https",), "service tls url, example: https://pulsar.example.com:8443"),
    ("brokerServiceUrl", ("pulsar",), "broker service url, example: pulsar://pulsar.example.com:6650"),
    ("brokerServiceUrlTls", ("pulsar+ssl",), "broker service tls url, example: pulsar+ssl://pulsar.example.com:6651"),
    (
        "proxyServiceUrl",
        ("pulsar", "pulsar+ssl"),
        "proxy service url, example: pulsar+ssl://ats-proxy.example.com:4443 or pulsar://ats-proxy.example.com:4080",
    ),
)
_REST_OF_URI = re.compile(r"(?!//(?:[?#]|$))(?:[\w\-.!~*'();/?:@&=+$,\[\]#]|%[0-9a-fA-F]{2})+")
_TRUST_STORE = ("brokerClientTlsTrustStoreType", "brokerClientTlsTrustStore", "brokerClientTlsTrustStorePassword")


def plan_create(txn: Txn, cluster: str, given: JsonObject, now_ms: int) -> Plan:
    """Plan making CLUSTER of what was GIVEN, by upstream's keys; raises InvalidValue, AlreadyExists."""
    if not is_allowed_name(cluster):
        raise InvalidValue("Cluster name is not valid", value=cluster)
    _check_data(given)
    if find_json(txn, cluster_path(cluster)) is not None:
        raise AlreadyExists("Cluster already exists", cluster=cluster)
    return _plan_cluster(txn, "clusters create", cluster, CLUSTER.replace(None, given), now_ms)


def plan_update(txn: Txn, cluster: str, given: JsonObject, now_ms: int) -> Plan:
    """Plan replacing the data of CLUSTER: what is not GIVEN gets its default, peers too. Raises ResourceNotFound, InvalidValue."""
    _check_data(given)
    after = CLUSTER.replace(read_cluster(txn, cluster), given)
    return _plan_cluster(txn, "clusters update", cluster, after, now_ms)


def plan_peers(txn: Txn, cluster: str, peers: Sequence[str], now_ms: int) -> Plan:
    """Plan setting the peers of CLUSTER, none for none; raises ResourceNotFound, Refused."""
    for peer in peers:
        if peer.lower() == cluster.lower():
            raise Refused(f"{cluster} itself can't be part of peer-list")
        if find_json(txn, cluster_path(peer)) is None:
            raise Refused(f"Peer cluster {peer} does not exist", cluster=peer)
    after = {key: value for key, value in read_cluster(txn, cluster).items() if key != "peerClusterNames"}
    if peers:
        after["peerClusterNames"] = list(dict.fromkeys(peers))
    return _plan_cluster(txn, "clusters update-peer-clusters", cluster, after, now_ms)


def plan_delete(txn: Txn, cluster: str, now_ms: int) -> Plan:
    """Plan deleting CLUSTER and an empty list of isolation policies; raises ResourceNotFound, Refused."""
    read_cluster(txn, cluster)
    isolation = isolation_path(cluster)
    policies = find_json(txn, isolation)
    if policies or _has_legacy_namespaces(txn, cluster):
        raise Refused("Cluster not empty", cluster=cluster)
    removed = [NodeChange(f"cluster {cluster}", cluster_path(cluster), None)]
    if find_node(txn, domain_path(cluster, "")) is not None:  # upstream looks there; RocksDB has no such node
        removed += [
            NodeChange(_domain(cluster, one), domain_path(cluster, one), None) for one in read_domains(txn, cluster)
        ]
    if policies is not None:
        removed.append(NodeChange(f"isolation policies of cluster {cluster}", isolation, None))
    return plan_nodes(txn, "clusters delete", removed, now_ms, list(_users(txn, cluster)))


def plan_migration(txn: Txn, cluster: str, migrated: bool, url: Mapping[str, str | None], now_ms: int) -> Plan:
    """Plan saying whether and where to CLUSTER is migrated, as upstream also of a cluster that is not there. Raises InvalidValue."""
    given = {key: value for key, value in url.items() if value is not None}
    is_empty = set(given) == {"serviceUrl", "serviceUrlTls"}  # upstream's isEmpty, as ClusterPolicies.ClusterUrl has it
    if migrated and is_empty:
        raise InvalidValue("Cluster url must not be empty")
    stored = CLUSTER_URL.replace(None, {**given, "empty": is_empty})
    path = migration_path(cluster)
    after = MIGRATION.replace(find_json(txn, path), {"migrated": migrated, "migratedClusterUrl": stored})
    change = NodeChange(f"migration of cluster {cluster}", path, after)
    return plan_nodes(txn, "clusters update-cluster-migration", [change], now_ms)


# -- failure domains --------------------------------------------------------------------------------------------------


def plan_domain(txn: Txn, command: str, cluster: str, domain: str, brokers: Sequence[str], now_ms: int) -> Plan:
    """Plan making or replacing a failure domain; raises ResourceNotFound, and Refused for brokers of another domain."""
    check_cluster(txn, cluster)
    for name, other in read_domains(txn, cluster).items():
        shared = [broker for broker in hash_order(other.get("brokers") or ()) if broker in brokers]
        if shared and name != domain:
            raise Refused(f"[{', '.join(shared)}] already exists in {name}", cluster=cluster, domain=name)
    path = domain_path(cluster, domain)
    after = DOMAIN.replace(find_json(txn, path), {"brokers": hash_order(brokers) or None})
    return plan_nodes(txn, command, [NodeChange(_domain(cluster, domain), path, after)], now_ms)


def plan_delete_domain(txn: Txn, cluster: str, domain: str, now_ms: int) -> Plan:
    """Plan deleting a failure domain; raises ResourceNotFound."""
    check_cluster(txn, cluster)
    path = domain_path(cluster, domain)
    if find_json(txn, path) is None:
        raise ResourceNotFound(f"Domain-name {domain} or cluster {cluster} does not exist", domain=domain)
    change = NodeChange(_domain(cluster, domain), path, None)
    return plan_nodes(txn, "clusters delete-failure-domain", [change], now_ms)


# -- what is given ----------------------------------------------------------------------------------------------------


def read_cluster_file(path: Path) -> JsonObject:
    """Return upstream's keys in a file of ``--cluster-config-file``: JSON, or YAML of ``key: value`` lines. Raises InvalidValue."""
    try:
        text = read_file(path).decode("utf-8", "replace")
    except OSError as error:
        raise InvalidValue(f"{path} cannot be read: {error.strerror or reason_of(error)}", path=str(path)) from error
    try:
        found = json.loads(text)
    except ValueError:
        found = dict(_yaml_lines(text, path))
    if not isinstance(found, dict):
        raise InvalidValue(f"{path}: expected keys of a cluster with their values")
    return {key: value for key, value in found.items() if key in CLUSTER.defaults and value is not None}


def _yaml_lines(text: str, path: Path) -> Iterator[tuple[str, Any]]:  # Any: JSON values
    for number, line in enumerate(text.splitlines(), 1):
        plain = re.sub(r"(^|\s)#.*", "", line).strip()
        if not plain or plain == "---":
            continue
        key, colon, value = plain.partition(":")
        if not colon or line[0].isspace() or plain.startswith("-"):
            raise InvalidValue(f"{path}, line {number}: {line!r} is not key: value", hint="write it as JSON")
        yield key.strip(), _yaml_value(value.strip())


def _yaml_value(text: str) -> Any:  # Any: a JSON value
    if text in ("", "~", "null"):
        return None
    if text[0] in "\"'" and text[-1] == text[0] and len(text) > 1:
        return text[1:-1]
    if text.startswith("[") and text.endswith("]"):
        return [_yaml_value(part.strip()) for part in text[1:-1].split(",") if part.strip()]
    return {"true": True, "false": False}.get(text, text)


def _check_data(given: JsonObject) -> None:
    if given.get("brokerClientTlsEnabled") and given.get("brokerClientTlsEnabledWithKeyStore"):
        filled = {**CLUSTER.defaults, **given}
        if not all(isinstance(filled[key], str) and filled[key].strip() for key in _TRUST_STORE):
            raise InvalidValue(
                "You must specify tls-trust-store-type, tls-trust-store and tls-trust-store-pwd"
                " when enable tls-enable-keystore"
            )
    for key, schemes, example in _URLS:
        if given.get(key) and not (isinstance(given[key], str) and _is_uri(given[key], schemes)):
            raise InvalidValue(f"Illegal {example}", value=given[key])


def _is_uri(text: str, schemes: Sequence[str]) -> bool:
    scheme, colon, rest = text.partition(":")
    return bool(colon) and scheme in schemes and _REST_OF_URI.fullmatch(rest) is not None


# -- what there is ----------------------------------------------------------------------------------------------------


def _plan_cluster(txn: Txn, command: str, cluster: str, after: JsonObject, now_ms: int) -> Plan:
    return plan_nodes(txn, command, [NodeChange(f"cluster {cluster}", cluster_path(cluster), after)], now_ms)


def _domain(cluster: str, domain: str) -> str:
    return f"failure domain {domain} of cluster {cluster}"


def _has_legacy_namespaces(txn: Txn, cluster: str) -> bool:
    """Whether a tenant has a ``tenant/cluster/namespace``: upstream looks for no other use of a cluster."""
    return any(
        next(iter_children(txn, f"{TENANTS_PATH}/{tenant}/{cluster}"), None)
        for tenant in iter_children(txn, TENANTS_PATH)
    )


def _users(txn: Txn, cluster: str) -> Iterator[str]:
    tenants = [one for one in iter_children(txn, TENANTS_PATH) if find_json(txn, f"{TENANTS_PATH}/{one}") is not None]
    allowing = [one for one in tenants if cluster in (read_tenant(txn, one).get("allowedClusters") or ())]
    if allowing:
        yield f"tenants that may use it still name it: {', '.join(allowing)}"
    others = {one: find_json(txn, cluster_path(one)) or {} for one in iter_children(txn, "/admin/clusters")}
    peers = [one for one, found in others.items() if cluster in (found.get("peerClusterNames") or ())]
    if peers:
        yield f"clusters that it is a peer of still name it: {', '.join(peers)}"
