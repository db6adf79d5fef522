"""``clusters``: their settings, peers, migrations and failure domains."""

from typing import Any

from pulsar_admin.context import App, Printed, Shown
from pulsar_admin.jsonify import to_json
from pulsar_admin.store import errors
from pulsar_admin.store.codec.java import java_record, java_split
from pulsar_admin.upstream import mirrored

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
    "url": "URL of its web service (http).",
    "url_secure": "URL of its web service (https).",
    "broker_url": "URL of its brokers (pulsar).",
    "broker_url_secure": "URL of its brokers (pulsar+ssl).",
    "cluster_config_file": "Read the other options from this file: JSON, or lines of key: value.",
    "peer_clusters": "Names, separated by commas; an empty text for none.",
    "broker_list": "Brokers of the domain, separated by commas.",
    "domain_name": "The failure domain.",
    "migrated": "It is migrated; without this it is not.",
    "all_": "Also every tenant, namespace and topic.",
}
_READS: Any = {"errors": [errors.ResourceNotFound, errors.MetadataCorrupt]}  # Any: keywords of click
_SETS: Any = {"changes": True, "helps": _HELPS}


def _given(options: dict[str, Any]) -> dict[str, Any]:  # Any: JSON values
    """Return the settings in a cluster command's options under upstream's keys."""
    return {_KEYS[name]: value for name, value in options.items() if value is not None and value is not False}


def _names(text: str | None) -> list[str]:
    return java_split(text) if text and text.strip() else []


@mirrored("clusters list", "", helps=_HELPS, output="Names, one per line.", errors=[errors.StoreNotFound])
def list_all(app: App, current: bool) -> Shown:
    """List the clusters."""
    with app.session.read():
        names, own = app.resources.clusters(), app.resources.current_cluster()
    return Printed([f"{name}(*)" if current and name == own else name for name in names])


@mirrored("clusters get", "standalone", **_READS)
def get(app: App, cluster: str) -> Shown:
    """Show the URLs and settings of a cluster."""
    return Printed(app.resources.cluster(cluster).settings())


@mirrored(
    "clusters create",
    "west --url http://west:8080 --broker-url pulsar://west:6650 --dry-run",
    errors=[errors.InvalidValue, errors.AlreadyExists],
    **_SETS,
)
def create(app: App, cluster: str, cluster_config_file: str | None, **options: object) -> None:
    """Add a cluster."""
    app.change(app.resources.create_cluster(cluster, _given(options), file=cluster_config_file or None))


@mirrored(
    "clusters update",
    "standalone --url http://new:8080 --dry-run",
    errors=[errors.ResourceNotFound, errors.InvalidValue],
    **_SETS,
)
def update(app: App, cluster: str, cluster_config_file: str | None, **options: object) -> None:
    """Replace the settings of a cluster: options that are not given are cleared, including its peers."""
    app.change(app.resources.cluster(cluster).update(_given(options), file=cluster_config_file or None))


@mirrored("clusters delete", "standalone --dry-run", errors=[errors.ResourceNotFound, errors.Refused], **_SETS)
def delete(app: App, cluster: str, all: bool) -> None:
    """Delete a cluster; tenants and namespaces may still name it."""
    app.change(app.resources.cluster(cluster).delete(everything=all))


# -- peers and migration ----------------------------------------------------------------------------------------------


@mirrored("clusters get-peer-clusters", elsewhere=["west"], **_READS)
def get_peer_clusters(app: App, cluster: str) -> Shown:
    """Show a cluster's peers; null if it has none."""
    return Printed(app.resources.cluster(cluster).peers(), is_set=True)


@mirrored(
    "clusters update-peer-clusters",
    'standalone --peer-clusters "" --dry-run',
    errors=[errors.ResourceNotFound, errors.Refused],
    **_SETS,
)
def update_peer_clusters(app: App, cluster: str, peer_clusters: str) -> None:
    """Set the peers of a cluster."""
    app.change(app.resources.cluster(cluster).set_peers(_names(peer_clusters)))


@mirrored("clusters get-cluster-migration", elsewhere=["west"], **_READS)
def get_cluster_migration(app: App, cluster: str) -> Shown:
    """Show whether a cluster is migrated, and to where."""
    return Printed(app.resources.cluster(cluster).migration())


@mirrored(
    "clusters update-cluster-migration",
    "standalone --migrated --broker-url pulsar://b --dry-run",
    errors=[errors.InvalidValue],
    **_SETS,
)
def update_cluster_migration(app: App, cluster: str, migrated: bool, **options: str | None) -> None:
    """Set whether a cluster is migrated, and to where."""
    urls = {_KEYS[name]: value for name, value in options.items()}
    app.change(app.resources.cluster(cluster).set_migration(migrated=migrated, urls=urls))


# -- failure domains --------------------------------------------------------------------------------------------------


@mirrored("clusters list-failure-domains", elsewhere=["standalone"], **_READS)
def list_failure_domains(app: App, cluster: str) -> Shown:
    """List the failure domains of a cluster with their brokers."""
    domains = app.resources.cluster(cluster).failure_domains()
    return Printed(domains, as_map=lambda found: java_record("FailureDomainImpl", {"brokers": to_json(found.brokers)}))


@mirrored("clusters get-failure-domain", elsewhere=["standalone --domain-name rack-1"], helps=_HELPS, **_READS)
def get_failure_domain(app: App, cluster: str, domain_name: str) -> Shown:
    """Show the brokers of a failure domain."""
    return Printed(app.resources.cluster(cluster).failure_domain(domain_name))


_DOMAIN: Any = {**_SETS, "errors": [errors.ResourceNotFound, errors.Refused]}  # Any: keywords of click
_EXAMPLE = "standalone --domain-name rack-1 --broker-list broker-1:8080 --dry-run"


@mirrored("clusters create-failure-domain", _EXAMPLE, **_DOMAIN)
def create_failure_domain(app: App, cluster: str, domain_name: str, broker_list: str | None) -> None:
    """Create a failure domain of a cluster, or replace its brokers."""
    cluster_api = app.resources.cluster(cluster)
    app.change(cluster_api.create_failure_domain(domain_name, _names(broker_list)))


@mirrored("clusters update-failure-domain", _EXAMPLE, **_DOMAIN)
def update_failure_domain(app: App, cluster: str, domain_name: str, broker_list: str | None) -> None:
    """Replace the brokers of a failure domain; it is created if it does not exist."""
    cluster_api = app.resources.cluster(cluster)
    app.change(cluster_api.update_failure_domain(domain_name, _names(broker_list)))


@mirrored("clusters delete-failure-domain", elsewhere=["standalone --domain-name rack-1"], **_DOMAIN)
def delete_failure_domain(app: App, cluster: str, domain_name: str) -> None:
    """Delete a failure domain of a cluster."""
    app.change(app.resources.cluster(cluster).delete_failure_domain(domain_name))
