"""Nodes of metadata that hold one JSON object each: tenants, clusters and what belongs to them.

Upstream's classes (Pulsar 4.0.8): ``TenantInfoImpl``, ``ClusterDataImpl``, ``ClusterPoliciesImpl``, ``FailureDomainImpl``. A
broker keeps their keys in any order; pulsar-admin prints them in the order of the tables here, with these defaults, and
leaves out what is null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from pulsar_admin.store.codec.java import hash_order
from pulsar_admin.store.codec.policies import JsonObject, decode_json_object
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node, iter_children
from pulsar_admin.store.errors import NamespaceNotFound, ResourceNotFound
from pulsar_admin.store.model.topics import iter_namespaces
from pulsar_admin.store.names import NamespaceName

TENANTS_PATH = "/admin/policies"
CLUSTERS_PATH = "/admin/clusters"
GLOBAL_CLUSTER = "global"

Shown = Callable[[Any], Any]  # Any: JSON values, whose kinds a damaged node does not keep


class Fields(Struct, frozen=True):
    """The keys of a JSON object in upstream's order: their defaults (None: left out), and how some are shown."""

    defaults: Mapping[str, Any]  # Any: JSON values
    shown: Mapping[str, Shown]

    def show(self, found: Mapping[str, Any]) -> JsonObject:
        """Return FOUND as upstream prints it."""
        values = ((key, found.get(key)) for key in self.defaults)
        full = ((key, self.defaults[key] if value is None else value) for key, value in values)
        return {key: self.shown.get(key, _same)(value) for key, value in full if value is not None}

    def replace(self, found: Mapping[str, Any] | None, new: Mapping[str, Any]) -> JsonObject:
        """Return what is stored in place of FOUND to say NEW and the defaults: keys that upstream does not know stay."""
        unknown = {key: value for key, value in (found or {}).items() if key not in self.defaults}
        full = {key: new.get(key, default) for key, default in self.defaults.items()}
        return {**{key: value for key, value in full.items() if value is not None}, **unknown}


def _same(value: Any) -> Any:  # Any: a JSON value
    return value


def as_set(value: Any) -> Any:  # Any: a JSON value
    """Return a list of texts as Java's HashSet of them is printed."""
    return hash_order(value) if isinstance(value, list) and all(isinstance(one, str) for one in value) else value


TENANT = Fields({"adminRoles": [], "allowedClusters": []}, {"adminRoles": as_set, "allowedClusters": as_set})
DOMAIN = Fields({"brokers": None}, {"brokers": as_set})
CLUSTER = Fields(
    {
        "serviceUrl": None,
        "serviceUrlTls": None,
        "brokerServiceUrl": None,
        "brokerServiceUrlTls": None,
        "proxyServiceUrl": None,
        "authenticationPlugin": None,
        "authenticationParameters": None,
        "proxyProtocol": None,
        "peerClusterNames": None,
        "brokerClientTlsEnabled": False,
        "tlsAllowInsecureConnection": False,
        "brokerClientTlsEnabledWithKeyStore": False,
        "brokerClientTlsTrustStoreType": "JKS",
        "brokerClientTlsTrustStore": None,
        "brokerClientTlsTrustStorePassword": None,
        "brokerClientTlsKeyStoreType": "JKS",
        "brokerClientTlsKeyStore": None,
        "brokerClientTlsKeyStorePassword": None,
        "brokerClientTrustCertsFilePath": None,
        "brokerClientKeyFilePath": None,
        "brokerClientCertificateFilePath": None,
        "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
        "brokerClientSslFactoryPluginParams": None,
        "listenerName": None,
    },
    {},
)
CLUSTER_URL = Fields(
    {"serviceUrl": None, "serviceUrlTls": None, "brokerServiceUrl": None, "brokerServiceUrlTls": None, "empty": False},
    {},
)
MIGRATION = Fields({"migrated": False, "migratedClusterUrl": None}, {"migratedClusterUrl": CLUSTER_URL.show})


def find_json(txn: Txn, path: str) -> JsonObject | None:
    """Return the JSON object of the node at PATH, None where there is none, or one that only holds others. Raises MetadataCorrupt."""
    node = find_node(txn, path)
    return decode_json_object(node.value, path) if node and node.value else None


# -- tenants ----------------------------------------------------------------------------------------------------------


def tenant_path(tenant: str) -> str:
    """Return the metadata path of a tenant."""
    return f"{TENANTS_PATH}/{tenant}"


def list_tenants(txn: Txn) -> list[str]:
    """Return the tenants in order."""
    return list(iter_children(txn, TENANTS_PATH))


def list_namespaces(txn: Txn, tenant: str) -> list[NamespaceName]:
    """Return the namespaces of TENANT, in order; raises NamespaceNotFound with upstream's words where there is no such tenant."""
    names = list(iter_namespaces(txn, tenant))
    if not names and find_node(txn, tenant_path(tenant)) is None:
        raise NamespaceNotFound("Tenant not found", hint=f"tenants: {', '.join(list_tenants(txn))}", tenant=tenant)
    return names


def read_tenant(txn: Txn, tenant: str) -> JsonObject:
    """Return a tenant as stored; raises NamespaceNotFound, MetadataCorrupt."""
    found = find_json(txn, tenant_path(tenant))
    if found is None:
        raise NamespaceNotFound("Tenant does not exist", tenant=tenant)
    return found


# -- clusters ---------------------------------------------------------------------------------------------------------


def cluster_path(cluster: str) -> str:
    """Return the metadata path of a cluster."""
    return f"{CLUSTERS_PATH}/{cluster}"


def migration_path(cluster: str) -> str:
    """Return the metadata path of where a cluster migrates to."""
    return f"{CLUSTERS_PATH}/{cluster}/policies"


def domain_path(cluster: str, domain: str) -> str:
    """Return the metadata path of a failure domain; of an empty name, of all."""
    return f"{CLUSTERS_PATH}/{cluster}/failureDomain/{domain}".removesuffix("/")


def list_clusters(txn: Txn) -> list[str]:
    """Return the clusters in upstream's order; also those that only have a migration."""
    return hash_order(name for name in iter_children(txn, CLUSTERS_PATH) if name != GLOBAL_CLUSTER)


def current_cluster(txn: Txn) -> str | None:
    """Return the cluster that the metadata are of: the only one of ``pulsar/system`` or ``public/default``, which it made."""
    for namespace in ("pulsar/system", "public/default"):
        found = (find_json(txn, f"{TENANTS_PATH}/{namespace}") or {}).get("replication_clusters")
        if isinstance(found, list) and len(found) == 1:
            return str(found[0])
    return None


def read_cluster(txn: Txn, cluster: str, error: str = "Cluster does not exist") -> JsonObject:
    """Return a cluster as stored; raises ResourceNotFound with upstream's words, MetadataCorrupt."""
    found = find_json(txn, cluster_path(cluster))
    if found is None:
        known = ", ".join(iter_children(txn, CLUSTERS_PATH))
        raise ResourceNotFound(error, hint=f"clusters: {known}" if known else "", cluster=cluster)
    return found


def read_migration(txn: Txn, cluster: str) -> JsonObject:
    """Return where a cluster migrates to; raises ResourceNotFound where that was never set, MetadataCorrupt."""
    found = find_json(txn, migration_path(cluster))
    if found is None:
        raise ResourceNotFound(
            "Cluster does not exist", hint="no migration of this cluster was ever set", cluster=cluster
        )
    return found


def read_domains(txn: Txn, cluster: str) -> dict[str, JsonObject]:
    """Return the failure domains of a cluster in upstream's order; raises MetadataCorrupt."""
    found = {name: find_json(txn, domain_path(cluster, name)) for name in iter_children(txn, domain_path(cluster, ""))}
    return {name: domain for name in hash_order(found) if (domain := found[name]) is not None}


def read_domain(txn: Txn, cluster: str, domain: str) -> JsonObject:
    """Return one failure domain; raises ResourceNotFound, MetadataCorrupt."""
    check_cluster(txn, cluster)
    found = find_json(txn, domain_path(cluster, domain))
    if found is None:
        raise ResourceNotFound(f"Domain {domain} for cluster {cluster} does not exist", cluster=cluster, domain=domain)
    return found


def check_cluster(txn: Txn, cluster: str) -> None:
    """Raise ResourceNotFound where there is no such cluster, with the words of what belongs to one."""
    read_cluster(txn, cluster, f"Cluster {cluster} does not exist.")
