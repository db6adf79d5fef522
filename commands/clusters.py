"""``clusters``: what is known of them, their peers, migrations and failure domains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pulsar_admin.context import App
from pulsar_admin.upstream import mirrored
from store.changes.clusters import (
    plan_create,
    plan_delete,
    plan_delete_domain,
    plan_domain,
    plan_migration,
    plan_peers,
    plan_update,
    read_cluster_file,
)
from store.codec.java import java_split, java_text
from store.errors import AlreadyExists, InvalidValue, MetadataCorrupt, Refused, ResourceNotFound, StoreNotFound
from store.model.resources import (
    CLUSTER,
    DOMAIN,
    MIGRATION,
    as_set,
    current_cluster,
    list_clusters,
    read_cluster,
    read_domain,
    read_domains,
    read_migration,
)

_KEYS = {
    "url": "serviceUrl",
    "url_secure": "serviceUrlTls",
    "service_url": "serviceUrl",
    "service_url_secure": "serviceUrlTls",
    "broker_url": "brokerServiceUrl",
    "broker_url_secure": "brokerServiceUrlTls",
    "proxy_url": "proxyServiceUrl",
    "auth_plugin": "authenticationPlugin",
    "auth_parameters": "authenticationParameters",
    "proxy_protocol": "proxyProtocol",
    "tls_enable": "brokerClientTlsEnabled",
    "tls_allow_insecure": "tlsAllowInsecureConnection",
    "tls_enable_keystore": "brokerClientTlsEnabledWithKeyStore",
    "tls_trust_store_type": "brokerClientTlsTrustStoreType",
    "tls_trust_store": "brokerClientTlsTrustStore",
    "tls_trust_store_pwd": "brokerClientTlsTrustStorePassword",
    "tls_key_store_type": "brokerClientTlsKeyStoreType",
    "tls_key_store": "brokerClientTlsKeyStore",
    "tls_key_store_pwd": "brokerClientTlsKeyStorePassword",
    "tls_trust_certs_filepath": "brokerClientTrustCertsFilePath",
    "tls_key_filepath": "brokerClientKeyFilePath",
    "tls_certs_filepath": "brokerClientCertificateFilePath",
    "tls_factory_plugin": "brokerClientSslFactoryPlugin",
    "tls_factory_plugin_params": "brokerClientSslFactoryPluginParams",
    "listener_name": "listenerName",
}
_HELPS = {
    "current": "Mark the cluster that made pulsar/system or public/default.",
    "url": "Of its web service, http.",
    "url_secure": "Of its web service, https.",
    "broker_url": "Of its brokers, pulsar.",
    "broker_url_secure": "Of its brokers, pulsar+ssl.",
    "cluster_config_file": "Read what the other options do not say from this file: JSON, or lines of key: value.",
    "peer_clusters": "Names, separated by commas; an empty text for none.",
    "broker_list": "Brokers of the domain, separated by commas.",
    "domain_name": "The failure domain.",
    "migrated": "It is migrated; without this it is not.",
    "all_": "Also every tenant, namespace and topic.",
}
_READS: Any = {"errors": [ResourceNotFound, MetadataCorrupt]}  # Any: keywords of click


def _given(options: dict[str, Any], file: str | None) -> dict[str, Any]:  # Any: JSON values
    """Return what options of a cluster say, by upstream's keys, over what FILE says."""
    said = {_KEYS[name]: value for name, value in options.items() if value is not None and value is not False}
    return {**(read_cluster_file(Path(file)) if file else {}), **said}


def _names(text: str | None) -> list[str]:
    return java_split(text) if text and text.strip() else []


@mirrored(
    "clusters list",
    helps=_HELPS,
    examples=["pulsar-admin clusters list"],
    output="Names, one a line.",
    errors=[StoreNotFound],
)
def list_all(app: App, current: bool) -> None:
    """List the clusters."""
    with app.session.read() as txn:
        names, own = list_clusters(txn), current_cluster(txn)
    app.answer([f"{name}(*)" if current and name == own else name for name in names])


@mirrored("clusters get", examples=["pulsar-admin clusters get standalone"], **_READS)
def get(app: App, cluster: str) -> None:
    """Show the URLs and settings of a cluster."""
    with app.session.read() as txn:
        app.answer(CLUSTER.show(read_cluster(txn, cluster)))


@mirrored(
    "clusters create",
    changes=True,
    writes_first=True,
    helps=_HELPS,
    examples=["pulsar-admin clusters create west --url http://west:8080 --broker-url pulsar://west:6650 --dry-run"],
    errors=[InvalidValue, AlreadyExists],
)
def create(app: App, cluster: str, cluster_config_file: str | None, **options: object) -> None:
    """Add a cluster."""
    app.change(app.session.plan_rows(plan_create, cluster, _given(options, cluster_config_file)))


@mirrored(
    "clusters update",
    changes=True,
    writes_first=True,
    helps=_HELPS,
    examples=["pulsar-admin clusters update standalone --url http://new:8080 --dry-run"],
    errors=[ResourceNotFound, InvalidValue],
)
def update(app: App, cluster: str, cluster_config_file: str | None, **options: object) -> None:
    """Replace the settings of a cluster: options that are not given are cleared, including its peers."""
    app.change(app.session.plan_rows(plan_update, cluster, _given(options, cluster_config_file)))


@mirrored(
    "clusters delete",
    changes=True,
    writes_first=True,
    helps=_HELPS,
    examples=["pulsar-admin clusters delete standalone --dry-run"],
    errors=[ResourceNotFound, Refused],
)
def delete(app: App, cluster: str, all: bool) -> None:
    """Delete a cluster; tenants and namespaces may still name it."""
    from store.changes.deleting import plan_delete_all

    app.change(app.session.plan(plan_delete_all, cluster) if all else app.session.plan_rows(plan_delete, cluster))


# -- peers and migration ----------------------------------------------------------------------------------------------


@mirrored(
    "clusters get-peer-clusters", examples=[], elsewhere=["pulsar-admin clusters get-peer-clusters west"], **_READS
)
def get_peers(app: App, cluster: str) -> None:
    """Show the peers of a cluster, null where it has none."""
    with app.session.read() as txn:
        app.answer_json(as_set(read_cluster(txn, cluster).get("peerClusterNames")))


@mirrored(
    "clusters update-peer-clusters",
    changes=True,
    writes_first=True,
    helps=_HELPS,
    examples=['pulsar-admin clusters update-peer-clusters standalone --peer-clusters "" --dry-run'],
    errors=[ResourceNotFound, Refused],
)
def update_peers(app: App, cluster: str, peer_clusters: str) -> None:
    """Set the peers of a cluster."""
    app.change(app.session.plan_rows(plan_peers, cluster, _names(peer_clusters)))


@mirrored(
    "clusters get-cluster-migration",
    examples=[],
    elsewhere=["pulsar-admin clusters get-cluster-migration west"],
    **_READS,
)
def get_migration(app: App, cluster: str) -> None:
    """Show whether a cluster is migrated, and to where."""
    with app.session.read() as txn:
        app.answer(MIGRATION.show(read_migration(txn, cluster)))


@mirrored(
    "clusters update-cluster-migration",
    changes=True,
    writes_first=True,
    helps=_HELPS,
    examples=["pulsar-admin clusters update-cluster-migration standalone --migrated --broker-url pulsar://b --dry-run"],
    errors=[InvalidValue],
)
def update_migration(app: App, cluster: str, migrated: bool, **options: str | None) -> None:
    """Set whether a cluster is migrated, and to where."""
    url = {_KEYS[name]: value for name, value in options.items()}
    app.change(app.session.plan_rows(plan_migration, cluster, migrated, url))


# -- failure domains --------------------------------------------------------------------------------------------------


@mirrored(
    "clusters list-failure-domains",
    examples=[],
    elsewhere=["pulsar-admin clusters list-failure-domains standalone"],
    **_READS,
)
def list_domains(app: App, cluster: str) -> None:
    """List the failure domains of a cluster with their brokers."""
    with app.session.read() as txn:
        domains = {name: DOMAIN.show(found) for name, found in read_domains(txn, cluster).items()}
    app.answer_map(domains, lambda found: f"FailureDomainImpl(brokers={java_text(found.get('brokers'))})")


@mirrored(
    "clusters get-failure-domain",
    helps=_HELPS,
    examples=[],
    elsewhere=["pulsar-admin clusters get-failure-domain standalone --domain-name rack-1"],
    **_READS,
)
def get_domain(app: App, cluster: str, domain_name: str) -> None:
    """Show the brokers of a failure domain."""
    with app.session.read() as txn:
        app.answer(DOMAIN.show(read_domain(txn, cluster, domain_name)))


_DOMAIN: Any = {
    "changes": True,
    "writes_first": True,
    "helps": _HELPS,
    "errors": [ResourceNotFound, Refused],
}  # Any: keywords of click
_EXAMPLE = "pulsar-admin clusters {} standalone --domain-name rack-1 --broker-list broker-1:8080 --dry-run"


def _set_domain(app: App, command: str, cluster: str, domain: str, brokers: str | None) -> None:
    app.change(app.session.plan_rows(plan_domain, command, cluster, domain, _names(brokers)))


@mirrored("clusters create-failure-domain", examples=[_EXAMPLE.format("create-failure-domain")], **_DOMAIN)
def create_domain(app: App, cluster: str, domain_name: str, broker_list: str | None) -> None:
    """Create a failure domain of a cluster, or replace its brokers."""
    _set_domain(app, "clusters create-failure-domain", cluster, domain_name, broker_list)


@mirrored("clusters update-failure-domain", examples=[_EXAMPLE.format("update-failure-domain")], **_DOMAIN)
def update_domain(app: App, cluster: str, domain_name: str, broker_list: str | None) -> None:
    """Replace the brokers of a failure domain; it is created if it does not exist."""
    _set_domain(app, "clusters update-failure-domain", cluster, domain_name, broker_list)


@mirrored(
    "clusters delete-failure-domain",
    examples=[],
    elsewhere=["pulsar-admin clusters delete-failure-domain standalone --domain-name rack-1"],
    **_DOMAIN,
)
def delete_domain(app: App, cluster: str, domain_name: str) -> None:
    """Delete a failure domain of a cluster."""
    app.change(app.session.plan_rows(plan_delete_domain, cluster, domain_name))
