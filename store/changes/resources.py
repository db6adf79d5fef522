"""Creating, changing and deleting metadata nodes that are one JSON object: tenants, clusters, failure domains, racks,
isolation policies, resource groups, quotas, namespaces with their bundles, and dynamic settings. Also parts of a
namespace's policies: properties, permissions, allowed clusters, and its local policies.

Upstream, of namespaces: ``NamespacesBase`` and ``PulsarAuthorizationProvider`` on ``Policies`` and ``LocalPolicies``
(Pulsar 4.0.8). Keys that a change does not concern stay unchanged.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from pulsar_admin.store.changes.plan import ChangeKind, ChangePart, Plan, check_new_path, delete_step, put_value_step
from pulsar_admin.store.changes.policies import (
    PolicyJob,
    conflict_warnings,
    plan_policies,
    plan_remove_delivery,
    plan_set_delivery,
    read_policies_json,
)
from pulsar_admin.store.codec.java import hash_order, java_integer, java_text
from pulsar_admin.store.codec.policies import (
    NEW_POLICIES,
    DelayedDelivery,
    JsonObject,
    decode_policies,
    encode_json_object,
)
from pulsar_admin.store.codec.strict_values import json_value
from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node, iter_children, iter_nodes
from pulsar_admin.store.errors import (
    AlreadyExists,
    InvalidValue,
    NeedsBroker,
    Refused,
    ResourceNotFound,
    TenantNotFound,
    TopicNotFound,
    reason_of,
)
from pulsar_admin.store.files import read_file
from pulsar_admin.store.model import resources
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import iter_namespaces
from pulsar_admin.store.names import INT_MAX, SCALABLE, NamespaceName, TopicName, is_allowed_name, shell_word
from pulsar_admin.store.policies.rules import check_peers
from pulsar_admin.store.wording import shortened


def _check_addressed(what: str, name: str, never: str = "") -> None:
    """Raise InvalidValue for a name that no request to a broker can have as a part of its address: an empty one, ``.``,
    ``..``, and one with ``never`` in it, where upstream does not encode it."""
    if name in ("", ".", "..") or (never and never in name):
        raise InvalidValue(f"brokers refuse {name!r} as the name of {what}", value=name)


class NodeChange(Struct, frozen=True):
    """The new value of a node, None to delete it. ``resource``: its name in reports, such as ``tenant acme``."""

    resource: str
    path: str
    after: JsonObject | None


def _plan_node(txn: Txn, command: str, resource: str, path: str, after: JsonObject | None, now_ms: int) -> Plan:
    """Plan the change of one node; the report uses the verb of ``command``. Raises MetadataCorrupt, InvalidValue."""
    verb = command.partition(" ")[2].partition("-")[0]
    return plan_nodes(txn, ChangeKind(command, f"{verb} {{place}}"), [NodeChange(resource, path, after)], now_ms)


def plan_nodes(
    txn: Txn, kind: ChangeKind, changes: Sequence[NodeChange], now_ms: int, warnings: Sequence[str] = ()
) -> Plan:
    """Plan the changes of several nodes as one; raises MetadataCorrupt."""
    steps: list[Step] = []
    parts = []
    for change in changes:
        before = resources.find_json(txn, change.path)
        parts.append(ChangePart(resource=change.resource, before=before, after=change.after))
        if before == change.after:
            continue
        if change.after is None:
            steps.append(delete_step(txn, change.path))
        else:
            if before is None:
                check_new_path(change.path)
            steps.append(put_value_step(txn, change.path, encode_json_object(change.after), now_ms))
    return Plan(kind, txn.id, tuple(steps), tuple(parts), warnings=tuple(warnings))


# -- tenants -----------------------------------------------------------------------------------------------------------
# Creating, changing and deleting tenants, with the checks of upstream's ``TenantsBase`` (4.0.8).


def plan_create_tenant(txn: Txn, tenant: str, roles: Sequence[str], clusters: Sequence[str], now_ms: int) -> Plan:
    """Plan creating a tenant; without ``clusters`` it may use all. Raises InvalidValue, Refused, AlreadyExists."""
    if not is_allowed_name(tenant):
        raise InvalidValue("Tenant name is not valid", value=tenant)
    allowed = clusters or resources.list_clusters(txn)
    _check_clusters(txn, allowed)
    if resources.find_json(txn, resources.tenant_path(tenant)) is not None:
        raise AlreadyExists("Tenant already exist", tenant=tenant)
    return _plan_tenant(txn, "tenants create", tenant, roles, allowed, now_ms)


def plan_update_tenant(txn: Txn, tenant: str, roles: Sequence[str], clusters: Sequence[str], now_ms: int) -> Plan:
    """Plan changing a tenant; without ``roles`` or ``clusters`` these stay. Raises TenantNotFound, InvalidValue, Refused."""
    stored = resources.read_tenant(txn, tenant)
    if clusters:
        _check_clusters(txn, clusters)
    shown = resources.TENANT.show(stored)
    return _plan_tenant(
        txn,
        "tenants update",
        tenant,
        roles or shown["adminRoles"],
        clusters or shown["allowedClusters"],
        now_ms,
    )


def check_tenant_deletable(txn: Txn, tenant: str, *, force: bool) -> list[NamespaceName]:
    """Return the namespaces of a tenant to delete; raises TenantNotFound, and Refused if there are any, unless ``force``."""
    if resources.find_json(txn, resources.tenant_path(tenant)) is None:
        raise TenantNotFound("Tenant doesn't exist", tenant=tenant)
    namespaces = list(iter_namespaces(txn, tenant))
    if namespaces and not force:
        names = ", ".join(map(str, namespaces[:3]))
        raise Refused(
            "The tenant still has active namespaces",
            hint=f"delete them first: {names}{', …' if len(namespaces) > 3 else ''}",
            tenant=tenant,
        )
    return namespaces


def _plan_tenant(
    txn: Txn, command: str, tenant: str, roles: Sequence[str], clusters: Sequence[str], now_ms: int
) -> Plan:
    if any(role != role.strip() for role in roles):
        raise InvalidValue("AdminRoles contains whitespace in the beginning or end.")
    path = resources.tenant_path(tenant)
    new = {"adminRoles": hash_order(roles), "allowedClusters": hash_order(clusters)}
    after = resources.TENANT.replace(resources.find_json(txn, path), new)
    return _plan_node(txn, command, f"tenant {tenant}", path, after, now_ms)


def _check_clusters(txn: Txn, clusters: Sequence[str]) -> None:
    if not clusters or any(not cluster.strip() for cluster in clusters):
        raise InvalidValue("Clusters cannot be empty or blank")
    known = resources.list_clusters(txn)
    if known and any(cluster not in (*known, resources.GLOBAL_CLUSTER) for cluster in clusters):  # none: not imported
        raise Refused("Clusters do not exist", hint=f"clusters: {', '.join(sorted(known))}")


# -- clusters ----------------------------------------------------------------------------------------------------------
# Making, changing and deleting clusters, their peers, migrations and failure domains (upstream ``ClustersBase``, 4.0.8).


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


def plan_create_cluster(txn: Txn, cluster: str, given: JsonObject, now_ms: int) -> Plan:
    """Plan creating a cluster with the settings ``given`` under upstream's keys; raises InvalidValue, AlreadyExists."""
    if not is_allowed_name(cluster):
        raise InvalidValue("Cluster name is not valid", value=cluster)
    _check_data(given)
    if resources.find_json(txn, resources.cluster_path(cluster)) is not None:
        raise AlreadyExists("Cluster already exists", cluster=cluster)
    return _plan_cluster(txn, "clusters create", cluster, resources.CLUSTER.replace(None, given), now_ms)


def plan_update_cluster(txn: Txn, cluster: str, given: JsonObject, now_ms: int) -> Plan:
    """Plan replacing a cluster's settings: those missing from ``given`` get defaults, including its peers.

    Raises ResourceNotFound, InvalidValue.
    """
    _check_data(given)
    after = resources.CLUSTER.replace(resources.read_cluster(txn, cluster), given)
    return _plan_cluster(txn, "clusters update", cluster, after, now_ms)


def plan_peers(txn: Txn, cluster: str, peers: Sequence[str], now_ms: int) -> Plan:
    """Plan setting a cluster's peers, or removing them; raises ResourceNotFound, Refused."""
    for peer in peers:
        if peer.lower() == cluster.lower():
            raise Refused(f"{cluster} itself can't be part of peer-list")
        if resources.find_json(txn, resources.cluster_path(peer)) is None:
            raise Refused(f"Peer cluster {peer} does not exist", cluster=peer)
    after = {key: value for key, value in resources.read_cluster(txn, cluster).items() if key != "peerClusterNames"}
    if peers:
        after["peerClusterNames"] = list(dict.fromkeys(peers))
    return _plan_cluster(txn, "clusters update-peer-clusters", cluster, after, now_ms)


def plan_delete_cluster(txn: Txn, cluster: str, now_ms: int) -> Plan:
    """Plan deleting a cluster and its empty list of isolation policies; raises ResourceNotFound, Refused."""
    resources.read_cluster(txn, cluster)
    isolation = resources.isolation_path(cluster)
    policies = resources.find_json(txn, isolation)
    if policies or _has_legacy_namespaces(txn, cluster):
        raise Refused("Cluster not empty", cluster=cluster)
    removed = [NodeChange(f"cluster {cluster}", resources.cluster_path(cluster), None)]
    if find_node(txn, resources.domains_path(cluster)) is not None:  # upstream looks there; RocksDB has no such node
        removed += [
            NodeChange(_domain(cluster, one), resources.domain_path(cluster, one), None)
            for one in resources.read_domains(txn, cluster)
        ]
    if policies is not None:
        removed.append(NodeChange(f"isolation policies of cluster {cluster}", isolation, None))
    return plan_nodes(txn, ChangeKind("clusters delete", "delete {first}"), removed, now_ms, list(_users(txn, cluster)))


def plan_migration(txn: Txn, cluster: str, migrated: bool, url: Mapping[str, str | None], now_ms: int) -> Plan:
    """Plan setting whether a cluster is migrated, and to which URL; as upstream, it need not exist.

    Raises InvalidValue.
    """
    given = {key: value for key, value in url.items() if value is not None}
    known = [key for key in resources.CLUSTER_URL.defaults if key != "empty"]
    if unknown := [key for key in given if key not in known]:
        raise InvalidValue(f"a migration has no {', '.join(unknown)}", hint=f"there are {', '.join(known)}")
    is_empty = set(given) == {"serviceUrl", "serviceUrlTls"}  # upstream's isEmpty, as ClusterPolicies.ClusterUrl has it
    if migrated and is_empty:
        raise InvalidValue("Cluster url must not be empty")
    stored = resources.CLUSTER_URL.replace(None, {**given, "empty": is_empty})
    path = resources.migration_path(cluster)
    after = resources.MIGRATION.replace(
        resources.find_json(txn, path), {"migrated": migrated, "migratedClusterUrl": stored}
    )
    return _plan_node(txn, "clusters update-cluster-migration", f"migration of cluster {cluster}", path, after, now_ms)


# -- failure domains --------------------------------------------------------------------------------------------------


def plan_domain(txn: Txn, command: str, cluster: str, domain: str, brokers: Sequence[str], now_ms: int) -> Plan:
    """Plan creating or replacing a failure domain; raises ResourceNotFound, and Refused for brokers of another domain."""
    resources.check_cluster(txn, cluster)
    _check_addressed("a failure domain", domain, "/")
    for name, other in resources.read_domains(txn, cluster).items():
        shared = [broker for broker in hash_order(other.get("brokers") or ()) if broker in brokers]
        if shared and name != domain:
            raise Refused(f"[{', '.join(shared)}] already exists in {name}", cluster=cluster, domain=name)
    path = resources.domain_path(cluster, domain)
    after = resources.DOMAIN.replace(resources.find_json(txn, path), {"brokers": hash_order(brokers) or None})
    return _plan_node(txn, command, _domain(cluster, domain), path, after, now_ms)


def plan_delete_domain(txn: Txn, cluster: str, domain: str, now_ms: int) -> Plan:
    """Plan deleting a failure domain; raises ResourceNotFound."""
    resources.check_cluster(txn, cluster)
    path = resources.domain_path(cluster, domain)
    if resources.find_json(txn, path) is None:
        raise ResourceNotFound(f"Domain-name {domain} or cluster {cluster} does not exist", domain=domain)
    return _plan_node(txn, "clusters delete-failure-domain", _domain(cluster, domain), path, None, now_ms)


# -- arguments --------------------------------------------------------------------------------------------------------


def read_cluster_file(path: Path) -> JsonObject:
    """Return the settings in a ``--cluster-config-file``: JSON, or YAML of ``key: value`` lines.

    Raises InvalidValue.
    """
    try:
        text = read_file(path).decode("utf-8", "replace")
    except OSError as error:
        raise InvalidValue(f"{path} cannot be read: {error.strerror or reason_of(error)}", path=str(path)) from error
    try:
        settings = json_value(text)
    except ValueError:
        settings = dict(_yaml_lines(text, path))
    if not isinstance(settings, dict):
        raise InvalidValue(f"{path}: expected keys of a cluster with their values")
    return {key: value for key, value in settings.items() if key in resources.CLUSTER.defaults and value is not None}


def _yaml_lines(text: str, path: Path) -> Iterator[tuple[str, Any]]:  # Any: JSON values
    # Without a YAML library, as upstream's keys (``ClusterDataImpl``) have texts and lists but for one, which can be given as JSON.
    for number, line in enumerate(text.splitlines(), 1):
        plain = re.sub(r"(^|\s)#.*", "", line).strip()
        if not plain or plain == "---":
            continue
        key, colon, value = plain.partition(":")
        if not colon or line[0].isspace() or plain.startswith("-"):
            raise InvalidValue(
                f"{path}, line {number}: {shortened(line, 60)!r} is not key: value", hint="write it as JSON"
            )
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
    # pulsar-admin (``CmdClusters.validateClusterData``) asks for the key store's parts only where TLS is on as well.
    if given.get("brokerClientTlsEnabled") and given.get("brokerClientTlsEnabledWithKeyStore"):
        filled = {**resources.CLUSTER.defaults, **given}
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
    return _plan_node(txn, command, f"cluster {cluster}", resources.cluster_path(cluster), after, now_ms)


def _domain(cluster: str, domain: str) -> str:
    return f"failure domain {domain} of cluster {cluster}"


def _has_legacy_namespaces(txn: Txn, cluster: str) -> bool:
    """Whether a namespace ``tenant/cluster/namespace`` exists, the only use of a cluster that upstream checks."""
    return any(
        next(iter_children(txn, f"{resources.TENANTS_PATH}/{tenant}/{cluster}"), None)
        for tenant in iter_children(txn, resources.TENANTS_PATH)
    )


def _users(txn: Txn, cluster: str) -> Iterator[str]:
    # A name without a value is no tenant: only paths below it exist.
    tenants = [
        one
        for one in iter_children(txn, resources.TENANTS_PATH)
        if resources.find_json(txn, f"{resources.TENANTS_PATH}/{one}") is not None
    ]
    allowing = [one for one in tenants if cluster in (resources.read_tenant(txn, one).get("allowedClusters") or ())]
    if allowing:
        yield f"tenants that may use it still name it: {', '.join(allowing)}"
    others = {
        one: resources.find_json(txn, resources.cluster_path(one)) or {}
        for one in iter_children(txn, "/admin/clusters")
    }
    peers = [one for one, data in others.items() if cluster in (data.get("peerClusterNames") or ())]
    if peers:
        yield f"clusters that it is a peer of still name it: {', '.join(peers)}"


# -- racks -------------------------------------------------------------------------------------------------------------
# Putting bookies into racks (upstream ``Bookies`` of admin v2, 4.0.8).


def plan_set_rack(txn: Txn, bookie: str, group: str, place: JsonObject, now_ms: int) -> Plan:
    """Plan moving a bookie into ``group`` with the rack and hostname in ``place``; raises InvalidValue."""
    if not bookie:
        raise InvalidValue("--bookie: it is empty")
    rack = str(place["rack"]).strip()
    if rack in ("", "/"):
        raise InvalidValue("rack name is invalid, it should not be null, empty or '/'")
    # A broker judges by its own placement policy: by default it is rack-aware and not region-aware.
    if "/" in rack.strip("/"):
        raise InvalidValue(
            "Bookie 'rack' parameter is invalid, When `RackawareEnsemblePlacementPolicy` is enabled, the rack name is not"
            " allowed to contain slash (`/`) except for the beginning and end of the rack name string. When"
            " `RegionawareEnsemblePlacementPolicy` is enabled, the rack name can only contain one slash (`/`) except for the"
            " beginning and end of the rack name string."
        )
    after = _without_rack(resources.read_racks(txn), bookie)
    after[group] = {**after.get(group, {}), bookie: resources.BOOKIE_RACK.replace(None, place)}
    return _plan_racks(txn, "bookies set-bookie-rack", bookie, after, now_ms)


def plan_delete_rack(txn: Txn, bookie: str, now_ms: int) -> Plan:
    """Plan removing a bookie from its rack; raises ResourceNotFound."""
    resources.read_rack(txn, bookie)
    after = {group: bookies for group, bookies in _without_rack(resources.read_racks(txn), bookie).items() if bookies}
    return _plan_racks(txn, "bookies delete-bookie-rack", bookie, after, now_ms)


def _without_rack(racks: JsonObject, bookie: str) -> JsonObject:
    return {
        group: {name: place for name, place in bookies.items() if name != bookie} for group, bookies in racks.items()
    }


def _plan_racks(txn: Txn, command: str, bookie: str, after: JsonObject, now_ms: int) -> Plan:
    return _plan_node(txn, command, f"rack of bookie {bookie}", resources.RACKS_PATH, after, now_ms)


# -- isolation ---------------------------------------------------------------------------------------------------------
# Setting and deleting isolation policies (upstream ``CmdNamespaceIsolationPolicy`` and ``ClustersBase``, 4.0.8).


_PARAMETERS = {"min_limit", "usage_threshold"}


def isolation_of(
    brokers: Mapping[str, Sequence[str]], failover: str, parameters: Mapping[str, str], scope: str | None
) -> JsonObject:
    """Return an isolation policy, checked as pulsar-admin and a broker do; ``brokers``: upstream's key → patterns.

    Raises InvalidValue.
    """
    lists = {key: [one for one in values if one] for key, values in brokers.items()}
    for key in ("namespaces", "primary"):
        if not lists[key]:
            # Upstream's text shows the namespaces for an empty ``primary`` too.
            raise InvalidValue(f"unable to parse {key} parameter list: {java_text(lists['namespaces'])}")
    if failover.lower() != "min_available":
        raise InvalidValue(f"Unknown auto failover policy type specified : {failover}")
    if set(parameters) != _PARAMETERS:
        raise InvalidValue(f"Unknown auto failover policy params specified : {java_text(dict(parameters))}")
    policy = {**lists, "auto_failover_policy": {"parameters": dict(parameters), "policy_type": "min_available"}}
    return policy if scope is None else {**policy, "unload_scope": scope}


def plan_set_isolation(txn: Txn, cluster: str, name: str, policy: JsonObject, now_ms: int) -> Plan:
    """Plan setting an isolation policy; raises ResourceNotFound, InvalidValue."""
    resources.check_cluster(txn, cluster)
    _check_addressed("an isolation policy", name, "/")
    expressions = [one for key in ("namespaces", "primary", "secondary") for one in policy[key]]
    numbers = policy["auto_failover_policy"]["parameters"].values()
    if None in (*map(resources.find_expression, expressions), *(java_integer(one, INT_MAX) for one in numbers)):
        # A broker's text goes on with the policy as JSON, which is the error's value here.
        shown = {**policy, "unload_scope": policy.get("unload_scope")}
        raise InvalidValue(f"Invalid format of input policy data. policy: {name}; data: {{", data=shown)
    policies = resources.find_json(txn, resources.isolation_path(cluster)) or {}
    after = {**policies, name: resources.ISOLATION_POLICY.replace(policies.get(name), policy)}
    return _plan_isolation(txn, "ns-isolation-policy set", cluster, name, after, now_ms)


def plan_delete_isolation(txn: Txn, cluster: str, name: str, now_ms: int) -> Plan:
    """Plan deleting an isolation policy, which need not exist; raises ResourceNotFound for the cluster."""
    resources.check_cluster(txn, cluster)
    after = {
        key: one
        for key, one in (resources.find_json(txn, resources.isolation_path(cluster)) or {}).items()
        if key != name
    }
    return _plan_isolation(txn, "ns-isolation-policy delete", cluster, name, after, now_ms)


def _plan_isolation(txn: Txn, command: str, cluster: str, name: str, after: JsonObject, now_ms: int) -> Plan:
    resource = f"isolation policy {name} of cluster {cluster}"
    return _plan_node(txn, command, resource, resources.isolation_path(cluster), after, now_ms)


# -- limits ------------------------------------------------------------------------------------------------------------
# Making, changing and deleting resource groups and quotas (upstream ``ResourceGroupsBase`` and ``ResourceQuotasBase``, 4.0.8).


RATES = {
    "publish_messages": "publishRateInMsgs",
    "publish_bytes": "publishRateInBytes",
    "dispatch_messages": "dispatchRateInMsgs",
    "dispatch_bytes": "dispatchRateInBytes",
}


def plan_group(txn: Txn, command: str, name: str, rates: Mapping[str, int | None], now_ms: int) -> Plan:
    """Plan creating or changing a resource group; None keeps a rate, or means −1 in a new group.

    Raises InvalidValue.
    """
    if unknown := rates.keys() - RATES.keys():
        raise InvalidValue(f"a resource group has no {', '.join(sorted(unknown))}", hint=f"rates: {', '.join(RATES)}")
    _check_addressed("a resource group", name, "/")
    path = resources.resource_group_path(name)
    stored = resources.find_json(txn, path)
    given = {RATES[key]: value for key, value in rates.items() if value is not None}
    after = resources.RESOURCE_GROUP.replace(stored, {**(stored or {}), **given})
    return _plan_node(txn, command, f"resource group {name}", path, after, now_ms)


def plan_delete_group(txn: Txn, name: str, now_ms: int) -> Plan:
    """Plan deleting a resource group; raises ResourceNotFound, Refused while namespaces are in it."""
    resources.read_resource_group(txn, name)
    # Namespaces: the node of a tenant, /admin/policies/TENANT, has no policies.
    paths = (node.path for node in iter_nodes(txn, f"{resources.TENANTS_PATH}/") if node.path.count("/") > 3)
    users = [path for path in paths if (resources.find_json(txn, path) or {}).get("resource_group_name") == name]
    if users:
        names = ", ".join(path.removeprefix(f"{resources.TENANTS_PATH}/") for path in users)
        raise Refused("ResourceGroup is in use", hint=f"by {names}", name=name)
    return _plan_node(
        txn, "resourcegroups delete", f"resource group {name}", resources.resource_group_path(name), None, now_ms
    )


def plan_quota(
    txn: Txn, namespace: NamespaceName | None, bundle_text: str | None, quota: resources.BundleQuota, now_ms: int
) -> Plan:
    """Plan setting the quota of a bundle, or the default quota if both ``namespace`` and ``bundle_text`` are None.

    Raises as ``store.model.resources.find_bundle``.
    """
    bundle = resources.find_bundle(txn, namespace, bundle_text)
    path = resources.bundle_quota_path(bundle)
    after = resources.BUNDLE_QUOTA.replace(resources.find_json(txn, path), to_builtins(quota))
    return _plan_node(txn, "resource-quotas set", _quota(bundle), path, after, now_ms)


def plan_reset_quota(txn: Txn, namespace: NamespaceName, bundle_text: str, now_ms: int) -> Plan:
    """Plan removing the quota of a bundle; raises ResourceNotFound if it has none, InvalidValue, NamespaceNotFound."""
    bundle = resources.read_bundle(txn, namespace, bundle_text)
    path = resources.bundle_quota_path(bundle)
    if resources.find_json(txn, path) is None:
        raise ResourceNotFound(f"path {path} not found.", hint="the default quota counts there already", path=path)
    return _plan_node(txn, "resource-quotas reset-namespace-bundle-quota", _quota(bundle), path, None, now_ms)


def _quota(bundle: resources.Bundle | None) -> str:
    return "default quota of bundles" if bundle is None else f"quota of bundle {bundle}"


# -- bundles -----------------------------------------------------------------------------------------------------------
# Making namespaces, and splitting their bundles (upstream ``NamespacesBase`` and ``NamespaceBundleSplitAlgorithm``, 4.0.8).


ALGORITHMS = (
    "range_equally_divide",
    "topic_count_equally_divide",
    "specified_positions_divide",
    "flow_or_qps_equally_divide",
)


_BUNDLES_MAX = 0xFFFFF // len('"0x00000000",')
"""Bundles whose bounds fit into a ZooKeeper node (the default of ``jute.maxbuffer``); brokers themselves take any number."""


def plan_create_namespace(
    reader: EntryReader, namespace: NamespaceName, clusters: Sequence[str], bundles: int, now_ms: int
) -> Plan:
    """Plan creating a namespace.

    Without ``clusters`` it has this cluster only; 0 ``bundles`` are four. Raises NamespaceNotFound, AlreadyExists,
    Refused.
    """
    if bundles < 0:
        raise InvalidValue("Invalid number of bundles. Number of bundles has to be in the range of (0, 2^32].")
    if bundles > _BUNDLES_MAX:
        raise InvalidValue(
            f"{bundles:,} bundles of {namespace}: expected at most {_BUNDLES_MAX:,}, which a ZooKeeper node holds by default"
        )
    if not is_allowed_name(namespace.namespace):
        raise InvalidValue(f"Invalid named entity: {namespace.namespace}", value=namespace.namespace)
    from pulsar_admin.store.changes.topics import warned_of_lost  # 20 ms, and only a new namespace needs it

    txn = reader.txn
    resources.read_tenant(txn, namespace.tenant)
    own = resources.current_cluster(txn)
    replicated = hash_order(clusters or ([] if namespace.cluster or own is None else [own]))
    in_name = [] if namespace.cluster in ("", resources.GLOBAL_CLUSTER) else [namespace.cluster]
    _check_tenant_clusters(txn, namespace, [*in_name, *replicated])
    if resources.find_json(txn, namespace.policies_path) is not None:
        raise AlreadyExists("Namespace already exists", namespace=str(namespace))
    even = resources.bundles_of(bundles or resources.DEFAULT_BUNDLES)
    allowed = [own] if replicated and own is not None and own not in replicated else []
    new = {"replication_clusters": replicated, "allowed_clusters": allowed, "bundles": even}
    policies = new_policies(new)
    shown = {"replication_clusters": replicated, "numBundles": even["numBundles"]}
    check_new_path(namespace.policies_path)
    step = put_value_step(txn, namespace.policies_path, encode_json_object(policies), now_ms)
    part = ChangePart(namespace=str(namespace), after=shown)
    return warned_of_lost(
        reader, Plan(ChangeKind("namespaces create", "create namespace {place}"), txn.id, (step,), (part,))
    )


def new_policies(given: JsonObject) -> JsonObject:
    """Return the policies that a broker creates for a namespace with the settings in ``given``."""
    return _with_deleter({**NEW_POLICIES, **given})


# -- splitting --------------------------------------------------------------------------------------------------------


def plan_split(
    txn: Txn,
    namespace: NamespaceName,
    text: str | None,
    bundle_type: str | None,
    algorithm: str,
    positions: Sequence[int],
    now_ms: int,
) -> Plan:
    """Plan splitting the bundle ``text``, or for ``bundle_type`` LARGEST the one with the most topics.

    ``algorithm`` is one of a broker's. Raises InvalidValue, NeedsBroker.
    """
    bundle = _choose_bundle(txn, namespace, text, bundle_type)
    if algorithm not in ALGORITHMS:
        raise InvalidValue(
            f"Unsupported namespace bundle split algorithm, supported algorithms are [{', '.join(ALGORITHMS)}]"
        )
    within = [
        at for at in sorted(set(_positions(txn, bundle, algorithm, positions))) if bundle.lower < at < bundle.upper
    ]
    before = resources.read_bundles(txn, namespace)
    bounds = sorted({*before["boundaries"], *map(resources.bound, within)})
    after = {"boundaries": bounds, "numBundles": len(bounds) - 1}
    part = ChangePart(namespace=str(namespace), before=before, after=after)
    steps = () if after == before else _split_steps(txn, namespace, after, now_ms)
    return Plan(ChangeKind.of("namespaces split-bundle"), txn.id, steps, (part,))


def _split_steps(txn: Txn, namespace: NamespaceName, bundles: JsonObject, now_ms: int) -> tuple[Step, ...]:
    policies = {**resources.read_policies(txn, namespace), "bundles": bundles}
    path = resources.local_policies_path(namespace)
    local = {"migrated": False, **(resources.find_json(txn, path) or {}), "bundles": bundles}
    values = ((namespace.policies_path, policies), (path, local))
    return tuple(put_value_step(txn, at, encode_json_object(value), now_ms) for at, value in values)


def _positions(txn: Txn, bundle: resources.Bundle, algorithm: str, positions: Sequence[int]) -> Sequence[int]:
    if algorithm == "range_equally_divide":
        return [(bundle.lower + bundle.upper) // 2]
    hashes = sorted(resources.bundle_topics(txn, bundle).values())
    if algorithm == "specified_positions_divide":
        if not positions:
            raise InvalidValue("With specified_positions_divide split algorithm, splitBoundaries must not be empty")
        return positions if len(hashes) > 1 else ()
    if algorithm == "topic_count_equally_divide":
        if len(hashes) < 2:
            return ()
        first, second = hashes[len(hashes) // 2 - 1], hashes[len(hashes) // 2]
        return [first + (second - first) // 2]
    raise NeedsBroker(
        f"{algorithm}: running brokers measure the flow of topics", hint=f"one of {', '.join(ALGORITHMS[:3])}"
    )


def _choose_bundle(txn: Txn, namespace: NamespaceName, text: str | None, kind: str | None) -> resources.Bundle:
    if text is not None and kind is not None:
        raise InvalidValue("--bundle and --bundle-type are mutually exclusive")
    resources.read_policies(txn, namespace, "Namespace not found")
    if text is not None:
        return resources.read_bundle(txn, namespace, text)
    if kind is None:
        raise InvalidValue("Must pass one of the params: --bundle / --bundle-type")
    if kind.upper() != "LARGEST":
        raise NeedsBroker(f"--bundle-type {kind}: running brokers measure the load of bundles", hint="name a --bundle")
    return max(resources.iter_bundles(txn, namespace), key=lambda bundle: len(resources.bundle_topics(txn, bundle)))


# -- dynamic config ----------------------------------------------------------------------------------------------------
# Setting and deleting dynamic settings of brokers (upstream ``BrokersBase`` and ``BrokerService``, 4.0.8).


_PACKAGE = "org.apache.pulsar.broker.loadbalance."
_LOAD_MANAGERS = (
    f"{_PACKAGE}NoopLoadManager",
    f"{_PACKAGE}impl.SimpleLoadManagerImpl",
    f"{_PACKAGE}impl.ModularLoadManagerImpl",
    f"{_PACKAGE}extensions.ExtensibleLoadManagerImpl",
)


def plan_set_setting(txn: Txn, name: str, value: str, now_ms: int) -> Plan:
    """Plan setting a dynamic setting, which a broker applies when it reads the node; raises Refused, InvalidValue."""
    _check(name, "update")
    if not value:
        raise InvalidValue(
            f"{name}: the value is empty",
            hint=f"to forget it: pulsar-admin brokers delete-dynamic-config -c {shell_word(name)}",
        )
    if name == "loadManagerClassName" and value not in _LOAD_MANAGERS:
        # The leading blank is upstream's.
        raise Refused(" Invalid dynamic-config value", hint=f"one of {', '.join(_LOAD_MANAGERS)}")
    return _plan_setting(
        txn,
        "brokers update-dynamic-config",
        {**resources.read_configuration(txn), name: value},
        now_ms,
    )


def plan_delete_setting(txn: Txn, name: str, now_ms: int) -> Plan:
    """Plan deleting a dynamic setting, so that the brokers' files apply again; raises Refused."""
    _check(name, "delete")
    left = {key: value for key, value in resources.read_configuration(txn).items() if key != name}
    return _plan_setting(txn, "brokers delete-dynamic-config", left, now_ms)


def _check(name: str, verb: str) -> None:
    if name not in resources.DYNAMIC_SETTINGS:
        raise Refused(f"Can't {verb} non-dynamic configuration", hint="see: pulsar-admin brokers list-dynamic-config")


def _plan_setting(txn: Txn, command: str, after: JsonObject, now_ms: int) -> Plan:
    return _plan_node(txn, command, "dynamic settings of brokers", resources.CONFIGURATION_PATH, after, now_ms)


# -- namespaces --------------------------------------------------------------------------------------------------------
# Jobs on the policies of a namespace: what they do to delayed messages is warned of.


def plan_job(txn: Txn, namespace: NamespaceName, job: PolicyJob, now_ms: int) -> Plan:
    """Plan a policy job on a namespace, with warnings about settings that drop delayed messages.

    Delayed delivery is planned together with the widths of the delayed-message index. Raises NamespaceNotFound,
    MetadataCorrupt, InvalidValue.
    """
    if job.policy.name == "delayed-delivery":
        if job.value is None:
            return plan_remove_delivery(txn, namespace, now_ms)
        tick_ms, active, max_ms = (job.value.get(key) for key in ("tickTime", "active", "maxDeliveryDelayInMillis"))
        return plan_set_delivery(txn, namespace, DelayedDelivery(active, tick_ms, max_ms or 0), now_ms)
    plan = plan_policies(txn, namespace, job, now_ms)
    if not plan.steps:
        return plan
    after = {**read_policies_json(txn, namespace), **(plan.parts[0].after or {})}
    policies = decode_policies(encode_json_object(after), str(namespace))
    delays = policies.delayed_delivery is not None and policies.delayed_delivery.active
    return replace(plan, warnings=conflict_warnings(policies)) if delays else plan


ACTIONS = ("produce", "consume", "functions", "sources", "sinks", "packages")


class Grant(Struct, frozen=True):
    """The actions to allow a role, replacing those it had; () removes the role. Raises InvalidValue."""

    role: str
    actions: Sequence[str] = ()

    def __post_init__(self) -> None:
        _check_addressed("a role", self.role)
        for action in self.actions:
            if action not in ACTIONS:
                raise InvalidValue(f"Illegal auth action '{action}'. Possible values: [{', '.join(ACTIONS)}]")


def plan_anti_affinity(txn: Txn, namespace: NamespaceName, group: str | None, now_ms: int) -> Plan:
    """Plan putting a namespace into an anti-affinity group, or out of its group if None.

    Raises MetadataCorrupt, InvalidValue.
    """
    if group is not None and not group.strip():
        raise InvalidValue("antiAffinityGroup can't be empty")
    command = f"namespaces {'delete' if group is None else 'set'}-anti-affinity-group"
    return _plan_local(txn, command, namespace, resources.ANTI_AFFINITY, group, now_ms)


def plan_bookie_affinity(
    txn: Txn, namespace: NamespaceName, primary: str | None, secondary: str | None, now_ms: int
) -> Plan:
    """Plan setting the bookie groups that store a namespace's data; ``primary`` None allows all bookies.

    Raises NamespaceNotFound, MetadataCorrupt.
    """
    resources.read_policies(txn, namespace, "Namespace not found")
    command = f"namespaces {'delete' if primary is None else 'set'}-bookie-affinity-group"
    groups = {"bookkeeperAffinityGroupPrimary": primary, "bookkeeperAffinityGroupSecondary": secondary}
    given = {key: group for key, group in groups.items() if group is not None} or None
    return _plan_local(txn, command, namespace, resources.BOOKIE_AFFINITY, given, now_ms)


def plan_migrated(txn: Txn, namespace: NamespaceName, migrated: bool, now_ms: int) -> Plan:
    """Plan setting whether a namespace is migrated; raises MetadataCorrupt."""
    return _plan_local(txn, "namespaces update-migration-state", namespace, "migrated", migrated, now_ms)


def _plan_local(txn: Txn, command: str, namespace: NamespaceName, key: str, value: object, now_ms: int) -> Plan:
    """Plan setting, or removing if ``value`` is None, a key of a namespace's local policies, creating them if missing."""
    path = resources.local_policies_path(namespace)
    stored = resources.find_json(txn, path)
    if stored is None:
        policies = resources.find_json(txn, namespace.policies_path) or {}
        stored = {
            "bundles": policies.get("bundles") or resources.bundles_of(resources.DEFAULT_BUNDLES),
            "migrated": False,
        }
    left = {name: one for name, one in stored.items() if name != key}
    after = left if value is None else {**stored, key: value}
    return _plan_key(txn, command, namespace, path, key, stored, after, now_ms)


def _plan_key(
    txn: Txn,
    command: str,
    namespace: NamespaceName,
    path: str,
    key: str,
    before: JsonObject,
    after: JsonObject,
    now_ms: int,
) -> Plan:
    """Plan setting the node at ``path`` to ``after``; the report shows only ``key``."""
    step = put_value_step(txn, path, encode_json_object(after), now_ms)
    steps = () if after == resources.find_json(txn, path) else (step,)
    part = ChangePart(namespace=str(namespace), before={key: before.get(key)}, after={key: after.get(key)})
    return Plan(ChangeKind.of(command), txn.id, steps, (part,))


# -- properties -------------------------------------------------------------------------------------------------------


CLEAR_PROPERTIES = "namespaces clear-properties"


def plan_properties(
    txn: Txn, command: str, namespace: NamespaceName, given: Mapping[str, str | None], now_ms: int
) -> Plan:
    """Plan setting properties of a namespace, removing those with value None; ``CLEAR_PROPERTIES`` removes all others too.

    Raises NamespaceNotFound.
    """
    found = resources.read_policies(txn, namespace)
    old = {} if command == CLEAR_PROPERTIES else found.get("properties") or {}
    new = old | {key: given[key] for key in hash_order(given)}
    after = {**found, "properties": {key: one for key, one in new.items() if one is not None}}
    return _plan_key(txn, command, namespace, namespace.policies_path, "properties", found, after, now_ms)


# -- permissions ------------------------------------------------------------------------------------------------------


def plan_permission(txn: Txn, command: str, namespace: NamespaceName, grant: Grant, now_ms: int) -> Plan:
    """Plan granting or revoking a role's permissions on a namespace; raises NamespaceNotFound."""
    found = resources.read_policies(txn, namespace, _NO_NAMESPACE)
    roles = _granted(_rights(found, "namespace_auth"), grant)
    return _plan_rights(txn, command, namespace, found, "namespace_auth", roles, now_ms)


def plan_topic_permission(txn: Txn, command: str, topic: TopicName, grant: Grant, now_ms: int) -> Plan:
    """Plan granting or revoking a role's permissions on a topic; raises TopicNotFound, NamespaceNotFound."""
    _check_topic(txn, topic)
    found = resources.read_policies(txn, topic.namespace, _NO_NAMESPACE)
    topics, name = _rights(found, "destination_auth"), str(topic)
    roles = _granted(topics.get(name) or {}, grant)
    left = {key: value for key, value in topics.items() if key != name}
    after = {**topics, name: roles} if roles else left
    return _plan_rights(txn, command, topic.namespace, found, "destination_auth", after, now_ms)


_NO_NAMESPACE = "Topic's namespace does not exist"


def _check_topic(txn: Txn, topic: TopicName) -> None:
    path = topic.scalable_path if topic.domain == SCALABLE else topic.partitioned_path
    if find_node(txn, topic.path) is None and find_node(txn, path) is None:
        raise TopicNotFound(f"Topic {topic} not found", topic=str(topic))


def _granted(roles: JsonObject, grant: Grant) -> JsonObject:
    if grant.actions:
        return {**roles, grant.role: [action for action in ACTIONS if action in grant.actions]}
    return {role: actions for role, actions in roles.items() if role != grant.role}


def _rights(policies: JsonObject, key: str) -> JsonObject:
    """Return the permissions under ``key`` of ``auth_policies``, {} if there are none."""
    rights: JsonObject = (policies.get("auth_policies") or {}).get(key) or {}
    return rights


def _plan_rights(
    txn: Txn, command: str, namespace: NamespaceName, found: JsonObject, key: str, rights: JsonObject, now_ms: int
) -> Plan:
    """Plan setting the permissions under ``key`` of ``auth_policies`` to ``rights``; ``found``: the present policies."""
    after = {**found, "auth_policies": {**(found.get("auth_policies") or {}), key: rights}}
    return _plan_key(txn, command, namespace, namespace.policies_path, "auth_policies", found, after, now_ms)


def plan_grant_subscription(
    txn: Txn, namespace: NamespaceName, subscription: str, roles: Sequence[str], now_ms: int
) -> Plan:
    """Plan restricting a subscription of a namespace to ``roles``; raises NamespaceNotFound, InvalidValue."""
    _check_addressed("a subscription", subscription)
    found = resources.read_policies(txn, namespace, "")
    after = {**_rights(found, _SUBSCRIPTIONS), subscription: hash_order(roles)}
    command = "namespaces grant-subscription-permission"
    return _plan_rights(txn, command, namespace, found, _SUBSCRIPTIONS, after, now_ms)


def plan_revoke_subscription(txn: Txn, namespace: NamespaceName, subscription: str, role: str, now_ms: int) -> Plan:
    """Plan revoking a role's access to a subscription; raises NamespaceNotFound, and ResourceNotFound if unrestricted."""
    found = resources.read_policies(txn, namespace)
    auth = _rights(found, _SUBSCRIPTIONS)
    if subscription not in auth:
        raise ResourceNotFound("couldn't find subscription", subscription=subscription)
    left = [one for one in auth[subscription] if one != role]
    others = {name: roles for name, roles in auth.items() if name != subscription}
    after = {**auth, subscription: left} if left else others
    command = "namespaces revoke-subscription-permission"
    return _plan_rights(txn, command, namespace, found, _SUBSCRIPTIONS, after, now_ms)


_SUBSCRIPTIONS = "subscription_auth_roles"


def read_permissions(txn: Txn, namespace: NamespaceName, topic: TopicName | None) -> dict[str, list[str]]:
    """Return role → allowed actions in a namespace, with ``topic`` also those on the topic.

    Raises NamespaceNotFound, MetadataCorrupt.
    """
    found = resources.read_policies(txn, namespace)
    permissions = {role: list(actions) for role, actions in _rights(found, "namespace_auth").items()}
    if topic is not None:
        for role, actions in (_rights(found, "destination_auth").get(str(topic)) or {}).items():
            permissions[role] = list(dict.fromkeys([*permissions.get(role, ()), *actions]))
    return permissions


def read_topic_permissions(txn: Txn, topic: TopicName) -> dict[str, list[str]]:
    """Return role → allowed actions on a topic and its namespace; raises TopicNotFound and as ``read_permissions``."""
    _check_topic(txn, topic)
    return read_permissions(txn, topic.namespace, topic)


def read_subscription_permissions(txn: Txn, namespace: NamespaceName) -> dict[str, list[str]]:
    """Return restricted subscription → roles that may use it; raises NamespaceNotFound, MetadataCorrupt."""
    auth = _rights(resources.read_policies(txn, namespace), _SUBSCRIPTIONS)
    return {name: hash_order(auth[name]) for name in hash_order(auth)}


# -- clusters ---------------------------------------------------------------------------------------------------------


def _check_tenant_clusters(txn: Txn, namespace: NamespaceName, clusters: Sequence[str]) -> None:
    """Raise Refused if the tenant may not use one of ``clusters``, NamespaceNotFound if the tenant does not exist."""
    allowed = resources.read_tenant(txn, namespace.tenant).get("allowedClusters") or ()
    for cluster in clusters:
        if cluster not in allowed:
            raise Refused(
                f"Cluster [{cluster}] is not in the list of allowed clusters list for tenant [{namespace.tenant}]",
                hint=f"see: pulsar-admin tenants get {shell_word(namespace.tenant)}",
            )


def _with_deleter(policies: JsonObject) -> JsonObject:
    """Return policies with ``clusterThatCanDeleteNamespace``, which a broker sets if the namespace has one cluster only."""
    clusters: Sequence[str] = policies.get("replication_clusters") or ()
    allowed: Sequence[str] = policies.get("allowed_clusters") or ()
    left = {key: value for key, value in policies.items() if key != _DELETER}
    return {**left, _DELETER: clusters[0]} if len(clusters) == 1 and len(allowed) < 2 else left


_DELETER = "clusterThatCanDeleteNamespace"


def plan_allowed_clusters(txn: Txn, namespace: NamespaceName, clusters: Sequence[str], now_ms: int) -> Plan:
    """Plan setting the clusters that a namespace may replicate to; raises NamespaceNotFound, Refused, InvalidValue."""
    _check_tenant_clusters(txn, namespace, hash_order(clusters))
    check_peers(txn, hash_order(clusters))
    found = resources.read_policies(txn, namespace)
    replicated = found.get("replication_clusters") or []
    if any(cluster not in clusters for cluster in replicated):
        raise Refused(
            f"Allowed clusters do not contain the replication cluster [{', '.join(hash_order(replicated))}]. Please remove"
            " the replication cluster if the cluster is not allowed for this namespace"
        )
    after = _with_deleter({**found, "allowed_clusters": hash_order(clusters)})
    command = "namespaces set-allowed-clusters"
    return _plan_key(txn, command, namespace, namespace.policies_path, "allowed_clusters", found, after, now_ms)
