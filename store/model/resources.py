"""Nodes of metadata that hold one JSON object each: tenants, clusters and what belongs to them, bundles, racks, isolation policies,
resource groups, quotas and dynamic settings.

Upstream's classes (Pulsar 4.0.8): ``TenantInfoImpl``, ``ClusterDataImpl``, ``ClusterPoliciesImpl``, ``FailureDomainImpl``,
``NamespaceBundleFactory``, ``BookiesRackConfiguration``, ``NamespaceIsolationDataImpl``, ``ResourceGroup``, ``ResourceQuota``,
``ServiceConfiguration``. A broker keeps their keys in any order; pulsar-admin prints them in the order of the tables here, with these
defaults, and leaves out nulls.
"""

import json
import re
import warnings
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Generic, TypeVar

from msgspec import Struct, ValidationError, convert, field
from msgspec.structs import fields

from pulsar_admin.store.codec.java import hash_order, in_hash_map_order, java_record
from pulsar_admin.store.codec.ledgermetadata import COOKIES
from pulsar_admin.store.codec.policies import JsonObject, decode_json_object
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node, iter_children
from pulsar_admin.store.errors import (
    InvalidValue,
    MetadataCorrupt,
    NamespaceNotFound,
    ResourceNotFound,
    StoreError,
    TenantNotFound,
)
from pulsar_admin.store.model.topics import (
    check_namespace,
    expand_topic,
    iter_namespaces,
    iter_topic_texts,
    iter_topics,
)
from pulsar_admin.store.names import NamespaceName, TopicName
from pulsar_admin.store.wording import Answer, Sparse

TENANTS_PATH = "/admin/policies"
_CLUSTERS_PATH = "/admin/clusters"
GLOBAL_CLUSTER = "global"

Kind = TypeVar("Kind", bound=Answer)
Shown = Callable[[Any], Any]  # Any: JSON values, whose kinds a damaged node does not keep


class Fields(Struct, Generic[Kind], frozen=True):
    """The keys of a JSON object, called ``what`` in messages: the fields of ``kind``, in upstream's order. ``shown``: key → how its value
    is printed."""

    kind: type[Kind]
    what: str
    shown: Mapping[str, Shown] = {}

    @property
    def defaults(self) -> Mapping[str, Any]:  # Any: JSON values
        """Key → the value of a key that is not set; None: the key is left out."""
        return {one.encode_name: one.default for one in fields(self.kind)}

    def show(self, found: Mapping[str, Any]) -> JsonObject:
        """Return ``found`` as upstream prints it."""
        values = ((key, found.get(key), default) for key, default in self.defaults.items())
        full = ((key, default if value is None else value) for key, value, default in values)
        return {key: self.shown[key](value) if key in self.shown else value for key, value in full if value is not None}

    def record(self, found: Mapping[str, Any], name: str) -> Kind:
        """Return the object ``found``, called ``name``, as a record; raises MetadataCorrupt if a value is not of its type."""
        return record_of(self.kind, self.show(found), f"{self.what} {name}")

    def records(self, found: Mapping[str, Mapping[str, Any]]) -> dict[str, Kind]:
        """Return each of ``found`` as a record; raises as ``record``."""
        return {name: self.record(one, name) for name, one in found.items()}

    def replace(self, found: Mapping[str, Any] | None, new: Mapping[str, Any]) -> JsonObject:
        """Return the stored object with the new values and defaults; keys that upstream does not know stay."""
        defaults = self.defaults
        unknown = {key: value for key, value in (found or {}).items() if key not in defaults}
        full = {key: new.get(key, default) for key, default in defaults.items()}
        return {**{key: value for key, value in full.items() if value is not None}, **unknown}


def as_set(value: Any) -> Any:  # Any: a JSON value
    """Return a list of texts as Java's HashSet of them is printed."""
    return hash_order(value) if isinstance(value, list) and all(isinstance(one, str) for one in value) else value


class TenantInfo(Answer, frozen=True, rename="camel"):
    """A tenant: its admins, and the clusters that it may use."""

    admin_roles: tuple[str, ...] = ()
    allowed_clusters: tuple[str, ...] = ()


class FailureDomain(Sparse, frozen=True, rename="camel"):
    """The brokers of a failure domain; None: none are stored."""

    brokers: tuple[str, ...] | None = None


class ClusterSettings(Sparse, frozen=True, rename="camel"):
    """A cluster's URLs and the settings that clients need; None: not set. The fields are upstream's, in Python's spelling."""

    service_url: str | None = None
    service_url_tls: str | None = None
    broker_service_url: str | None = None
    broker_service_url_tls: str | None = None
    proxy_service_url: str | None = None
    authentication_plugin: str | None = None
    authentication_parameters: str | None = None
    proxy_protocol: str | None = None
    peer_cluster_names: tuple[str, ...] | None = None
    broker_client_tls_enabled: bool = False
    tls_allow_insecure_connection: bool = False
    broker_client_tls_enabled_with_key_store: bool = False
    broker_client_tls_trust_store_type: str = "JKS"
    broker_client_tls_trust_store: str | None = None
    broker_client_tls_trust_store_password: str | None = None
    broker_client_tls_key_store_type: str = "JKS"
    broker_client_tls_key_store: str | None = None
    broker_client_tls_key_store_password: str | None = None
    broker_client_trust_certs_file_path: str | None = None
    broker_client_key_file_path: str | None = None
    broker_client_certificate_file_path: str | None = None
    broker_client_ssl_factory_plugin: str = "org.apache.pulsar.common.util.DefaultPulsarSslFactory"
    broker_client_ssl_factory_plugin_params: str | None = None
    listener_name: str | None = None


class ClusterUrls(Sparse, frozen=True, rename="camel"):
    """The URLs of the cluster that another migrates to; None: not set."""

    service_url: str | None = None
    service_url_tls: str | None = None
    broker_service_url: str | None = None
    broker_service_url_tls: str | None = None
    empty: bool = False


class Migration(Sparse, frozen=True, rename="camel"):
    """Whether a cluster is migrated, and to where; None: not set."""

    migrated: bool = False
    migrated_cluster_url: ClusterUrls | None = None


class Bundles(Answer, frozen=True, rename="camel"):
    """The bundles of a namespace: their bounds, hashes in hexadecimal, one more than there are bundles."""

    boundaries: tuple[str, ...]
    num_bundles: int


class BookieRack(Sparse, frozen=True, rename="camel"):
    """Where a bookie is; None: not set."""

    rack: str | None = None
    hostname: str | None = None


class AutoFailover(Sparse, frozen=True):
    """When the secondary brokers of an isolation policy serve as well. ``parameters``: ``min_limit`` and ``usage_threshold``, texts."""

    parameters: Mapping[str, str] | None = None
    kind: str | None = field(name="policy_type", default=None)


class IsolationPolicy(Sparse, frozen=True):
    """Which namespaces only some brokers serve; all are regular expressions. ``unloads``: what brokers unload for it. None: not set."""

    namespaces: tuple[str, ...] | None = None
    primary: tuple[str, ...] | None = None
    secondary: tuple[str, ...] | None = None
    failover: AutoFailover | None = field(name="auto_failover_policy", default=None)
    unloads: str | None = field(name="unload_scope", default=None)


class BrokerIsolation(Sparse, frozen=True, rename="camel"):
    """What isolation policies record about a broker. ``policy_name``: the last policy that names it, None if none does."""

    broker_name: str
    policy_name: str | None = None
    namespace_regex: tuple[str, ...] = ()
    primary: bool = False


class ResourceGroup(Answer, frozen=True, rename="camel"):
    """Rates per second; −1: unlimited."""

    publish_rate_in_msgs: int = -1
    publish_rate_in_bytes: int = field(name="publishRateInBytes", default=-1)
    dispatch_rate_in_msgs: int = -1
    dispatch_rate_in_bytes: int = field(name="dispatchRateInBytes", default=-1)


class BundleQuota(Answer, frozen=True, rename="camel"):
    """The quota of a bundle: messages and bytes a second, ``memory`` in MB; ``dynamic``: a broker may calculate it anew."""

    msg_rate_in: int | float = 40.0
    msg_rate_out: int | float = 120.0
    bandwidth_in: int | float = 100000.0
    bandwidth_out: int | float = 300000.0
    memory: int | float = 80.0
    dynamic: bool = True


def record_of(kind: type[Kind], found: Mapping[str, Any], what: str) -> Kind:
    """Return ``found``, JSON as upstream prints it, as a record; raises MetadataCorrupt, naming ``what``, if a value is not of its type."""
    try:
        return convert(found, kind)
    except ValidationError as error:
        raise MetadataCorrupt(f"{what} is not as Pulsar stores it: {error}") from error


TENANT = Fields(TenantInfo, "tenant", {"adminRoles": as_set, "allowedClusters": as_set})
DOMAIN = Fields(FailureDomain, "failure domain", {"brokers": as_set})
CLUSTER = Fields(ClusterSettings, "cluster")
CLUSTER_URL = Fields(ClusterUrls, "the URLs of")
MIGRATION = Fields(Migration, "the migration of", {"migratedClusterUrl": CLUSTER_URL.show})


def find_json(txn: Txn, path: str) -> JsonObject | None:
    """Return the JSON object of a node, None if it does not exist or only has children. Raises MetadataCorrupt."""
    node = find_node(txn, path)
    return decode_json_object(node.value, path) if node and node.value else None


# -- tenants ----------------------------------------------------------------------------------------------------------


_TENANTS = "list the existing ones with: pulsar-admin tenants list"


def tenant_path(tenant: str) -> str:
    """Return the metadata path of a tenant."""
    return f"{TENANTS_PATH}/{tenant}"


def list_tenants(txn: Txn) -> list[str]:
    """Return the tenants in order."""
    return list(iter_children(txn, TENANTS_PATH))


def list_namespaces(txn: Txn, tenant: str) -> list[NamespaceName]:
    """Return the namespaces of ``tenant``, in order; raises TenantNotFound with upstream's words."""
    is_name = "/" not in tenant  # otherwise it would be the path of a namespace
    names = list(iter_namespaces(txn, tenant)) if tenant and is_name else []  # below no name are all tenants
    if not names and not (is_name and find_node(txn, tenant_path(tenant))):
        raise TenantNotFound("Tenant not found", hint=_TENANTS, tenant=tenant)
    return names


def read_tenant(txn: Txn, tenant: str) -> JsonObject:
    """Return a tenant as stored; raises TenantNotFound, MetadataCorrupt."""
    stored = None if "/" in tenant else find_json(txn, tenant_path(tenant))
    if stored is None:
        raise TenantNotFound("Tenant does not exist", hint=_TENANTS, tenant=tenant)
    return stored


# -- clusters ---------------------------------------------------------------------------------------------------------


def cluster_path(cluster: str) -> str:
    """Return the metadata path of a cluster."""
    return f"{_CLUSTERS_PATH}/{cluster}"


def migration_path(cluster: str) -> str:
    """Return the metadata path of a cluster's migration."""
    return f"{_CLUSTERS_PATH}/{cluster}/policies"


def domains_path(cluster: str) -> str:
    """Return the metadata path of the parent of a cluster's failure domains."""
    return f"{_CLUSTERS_PATH}/{cluster}/failureDomain"


def domain_path(cluster: str, domain: str) -> str:
    """Return the metadata path of a failure domain."""
    return f"{domains_path(cluster)}/{domain}"


def list_clusters(txn: Txn) -> list[str]:
    """Return the clusters in upstream's order; also those that only have a migration."""
    return hash_order(name for name in iter_children(txn, _CLUSTERS_PATH) if name != GLOBAL_CLUSTER)


def current_cluster(txn: Txn) -> str | None:
    """Return the cluster of the metadata: the only replication cluster of ``pulsar/system``, else of ``public/default``; else None."""
    for namespace in ("pulsar/system", "public/default"):
        clusters = (find_json(txn, f"{TENANTS_PATH}/{namespace}") or {}).get("replication_clusters")
        if isinstance(clusters, list) and len(clusters) == 1:
            return str(clusters[0])
    return None


def read_cluster(txn: Txn, cluster: str, error: str = "Cluster does not exist") -> JsonObject:
    """Return a cluster as stored; raises ResourceNotFound with upstream's words, MetadataCorrupt."""
    stored = find_json(txn, cluster_path(cluster))
    if stored is None:
        known = ", ".join(iter_children(txn, _CLUSTERS_PATH))
        raise ResourceNotFound(error, hint=f"clusters: {known}" if known else "", cluster=cluster)
    return stored


def read_migration(txn: Txn, cluster: str) -> JsonObject:
    """Return where a cluster migrates to; raises ResourceNotFound if that was never set, MetadataCorrupt."""
    stored = find_json(txn, migration_path(cluster))
    if stored is None:
        raise ResourceNotFound("Cluster does not exist", hint="this cluster has no migration", cluster=cluster)
    return stored


def read_domains(txn: Txn, cluster: str) -> dict[str, JsonObject]:
    """Return the failure domains of a cluster in upstream's order; raises MetadataCorrupt."""
    nodes = {name: find_json(txn, domain_path(cluster, name)) for name in iter_children(txn, domains_path(cluster))}
    return {name: domain for name in hash_order(nodes) if (domain := nodes[name]) is not None}


def read_domain(txn: Txn, cluster: str, domain: str) -> JsonObject:
    """Return one failure domain; raises ResourceNotFound, MetadataCorrupt."""
    check_cluster(txn, cluster)
    stored = find_json(txn, domain_path(cluster, domain))
    if stored is None:
        raise ResourceNotFound(f"Domain {domain} for cluster {cluster} does not exist", cluster=cluster, domain=domain)
    return stored


def read_peers(txn: Txn, cluster: str) -> list[str] | None:
    """Return the peers of a cluster, None if it has none; raises as ``read_cluster``."""
    peers: list[str] | None = as_set(read_cluster(txn, cluster).get("peerClusterNames"))
    return peers


def legacy_namespaces(txn: Txn, cluster: str, tenant: str) -> list[NamespaceName]:
    """Return a tenant's namespaces with the cluster in their names; raises ResourceNotFound, TenantNotFound."""
    read_cluster(txn, cluster)
    return [name for name in list_namespaces(txn, tenant) if name.cluster == cluster]


def anti_affinity_namespaces(txn: Txn, cluster: str, tenant: str, group: str) -> list[NamespaceName]:
    """Return a tenant's namespaces in an anti-affinity group; raises ResourceNotFound, TenantNotFound."""
    check_cluster(txn, cluster)
    names = list_namespaces(txn, tenant)
    return [name for name in names if find_local_policies(txn, name).get(ANTI_AFFINITY) == group]


def check_cluster(txn: Txn, cluster: str) -> None:
    """Raise ResourceNotFound for an unknown cluster, in the words of the resource that belongs to it."""
    read_cluster(txn, cluster, f"Cluster {cluster} does not exist.")


# -- bundles of a namespace: ranges of the hashes of its topics' names ------------------------------------------------


_LAST_HASH = 0xFFFFFFFF
DEFAULT_BUNDLES = 4
"""Of a namespace that is made without a number of them (``defaultNumberOfNamespaceBundles``)."""
_JAVA_NUMBER = re.compile(r"([+-]?)(0[xX]|#|0(?=.))?(.*)", re.DOTALL)


class Bundle(Struct, frozen=True):
    """A range of hashes; its end is excluded, unless it is the last hash."""

    namespace: NamespaceName
    lower: int
    upper: int

    @property
    def range(self) -> str:
        return f"{bound(self.lower)}_{bound(self.upper)}"

    def holds(self, value: int) -> bool:
        """Whether the hash ``value`` is in it."""
        return self.lower <= value < self.upper or value == self.upper == _LAST_HASH

    def __str__(self) -> str:
        return f"{self.namespace}/{self.range}"


def bound(number: int) -> str:
    """Return a bound of bundles as upstream writes it."""
    return f"0x{number:08x}"


def bundles_of(count: int) -> JsonObject:
    """Return ``count`` bundles of one size, as they are stored."""
    size = (_LAST_HASH + 1) // count
    bounds = [bound(size * number) for number in range(count)]
    return {"boundaries": [*bounds, bound(_LAST_HASH)], "numBundles": count}


def topic_hash(topic: object) -> int:
    """Return the hash of a topic's full name, which says what bundle it is in."""
    return zlib.crc32(str(topic).encode())


def bundle_data_path(namespace: NamespaceName) -> str:
    """Return the metadata path below which brokers keep what they measured of a namespace's bundles."""
    return f"/loadbalance/bundle-data/{namespace}"


def local_policies_path(namespace: NamespaceName) -> str:
    """Return the metadata path of a cluster's local policies of a namespace."""
    return f"/admin/local-policies/{namespace}"


def read_policies(txn: Txn, namespace: NamespaceName, error: str = "Namespace does not exist") -> JsonObject:
    """Return the stored policies of a namespace; raises NamespaceNotFound with upstream's words, MetadataCorrupt."""
    policies = find_json(txn, namespace.policies_path)
    if policies is None:
        raise NamespaceNotFound(error, namespace=str(namespace))
    return policies


def find_local_policies(txn: Txn, namespace: NamespaceName) -> JsonObject:
    """Return the local policies of a namespace, empty without such a node; raises MetadataCorrupt."""
    return find_json(txn, local_policies_path(namespace)) or {}


ANTI_AFFINITY, BOOKIE_AFFINITY = "namespaceAntiAffinityGroup", "bookieAffinityGroup"
"""Keys of local policies."""


def find_anti_affinity(txn: Txn, namespace: NamespaceName) -> str | None:
    """Return the anti-affinity group of a namespace, None if it is in none; raises MetadataCorrupt."""
    return find_local_policies(txn, namespace).get(ANTI_AFFINITY)


def find_bookie_affinity(txn: Txn, namespace: NamespaceName) -> JsonObject | None:
    """Return the groups of bookies that store a namespace's data, None for all bookies; raises NamespaceNotFound, MetadataCorrupt."""
    read_policies(txn, namespace, "Namespace not found")
    return find_local_policies(txn, namespace).get(BOOKIE_AFFINITY)


def read_bundles(txn: Txn, namespace: NamespaceName) -> JsonObject:
    """Return the bundles of a namespace: those in the cluster's local policies, else in its policies; raises NamespaceNotFound,
    MetadataCorrupt."""
    return _bundles_in(txn, namespace, read_policies(txn, namespace))


def _bundles_in(txn: Txn, namespace: NamespaceName, policies: JsonObject) -> JsonObject:
    bundles = find_local_policies(txn, namespace).get("bundles") or policies.get("bundles") or {}
    bounds = (bundles.get("boundaries") or []) if isinstance(bundles, dict) else None
    if not isinstance(bounds, list) or not all(re.fullmatch("0x[0-9a-fA-F]{1,8}", str(one)) for one in bounds):
        raise MetadataCorrupt(
            f"the bundles of {namespace}: expected boundaries such as 0x40000000, found {json.dumps(bundles)[:200]}",
            namespace=str(namespace),
        )
    return {"boundaries": bounds, "numBundles": bundles.get("numBundles", 0)}


def read_bundle(txn: Txn, namespace: NamespaceName, text: str) -> Bundle:
    """Return the bundle of a namespace that ``text`` (``LOWER_UPPER``) names; raises NamespaceNotFound, InvalidValue."""
    bounds = [int(one, 16) for one in read_bundles(txn, namespace)["boundaries"]]
    asked = parse_bundle(namespace, text)
    place = bisect_left(bounds, asked.lower)
    if place >= len(bounds) - 1 or bounds[place] != asked.lower:
        raise InvalidValue(f"Cannot find bundle {asked} in the bundles list", bundle=str(asked))
    if bounds[place + 1] != asked.upper:
        expected = Bundle(namespace, asked.lower, bounds[place + 1])
        raise InvalidValue(f"Invalid upper boundary for bundle {asked}. Expected upper boundary of {expected}")
    return asked


def iter_bundles(txn: Txn, namespace: NamespaceName) -> Iterator[Bundle]:
    """Yield the bundles of a namespace in order; raises NamespaceNotFound, MetadataCorrupt."""
    bounds = [int(one, 16) for one in read_bundles(txn, namespace)["boundaries"]]
    yield from (Bundle(namespace, lower, upper) for lower, upper in pairwise(bounds))


def bundle_topics(txn: Txn, bundle: Bundle) -> dict[str, int]:
    """Return the hashes of the persistent topics in ``bundle`` by their names, in upstream's order."""
    hashes = ((str(topic), topic_hash(topic)) for topic in iter_topics(txn, bundle.namespace))
    topics = {name: value for name, value in hashes if bundle.holds(value)}
    return in_hash_map_order(topics)


class BundleTopics(Answer, frozen=True):
    """The hashes of topics' names in a bundle, ``0xLOW_0xHIGH``."""

    namespace: str
    bundle: str
    topic_hash_positions: Mapping[str, int]


def read_bundle_topics(txn: Txn, namespace: NamespaceName, text: str, topics: Sequence[TopicName]) -> BundleTopics:
    """Return the hashes of topics, or of all if none is named, in a bundle; raises TopicNotFound, InvalidValue."""
    for topic in topics:
        check_inside(namespace, topic)
        expand_topic(txn, topic)
    bundle, named = read_bundle(txn, namespace, text), set(map(str, topics))
    hashes = bundle_topics(txn, bundle).items()
    meant = {name: one for name, one in hashes if not named or {name, name.rpartition("-partition-")[0]} & named}
    return BundleTopics(str(namespace), bundle.range, meant)


def check_inside(namespace: NamespaceName, topic: TopicName) -> None:
    """Raise InvalidValue for a topic of another namespace."""
    if topic.namespace != namespace:
        raise InvalidValue(f"{topic} is not in the namespace {namespace}", value=str(topic))


def within(namespace: NamespaceName, text: str | None) -> Callable[[object], bool]:
    """Return a predicate for topics of ``namespace``: whether they are in the bundle ``text`` (None: always true); raises InvalidValue."""
    if text is None:
        return lambda topic: True
    bundle = parse_bundle(namespace, text)
    return lambda topic: bundle.holds(topic_hash(topic))


def list_topic_names(txn: Txn, namespace: NamespaceName, text: str | None, system: bool) -> tuple[str, ...]:
    """Return the topics of a namespace, or of its bundle ``text``, none if it has no such bundle; ``system`` adds system topics.

    Raises NamespaceNotFound, InvalidValue, MetadataCorrupt.
    """
    check_namespace(txn, namespace)
    is_meant = within(namespace, text)
    if text is not None and parse_bundle(namespace, text) not in iter_bundles(txn, namespace):
        return ()
    return tuple(filter(is_meant, iter_topic_texts(txn, namespace, system=system)))


def bundle_range(txn: Txn, name: TopicName) -> str:
    """Return the range of the bundle that ``name`` is in, ``0xLOW_0xHIGH``; if no bundles are stored, the range of all hashes. Raises
    MetadataCorrupt."""
    bounds = _bundles_in(txn, name.namespace, find_json(txn, name.namespace.policies_path) or {})["boundaries"]
    texts = bounds if len(bounds) > 1 else bundles_of(1)["boundaries"]
    low, high = max(
        (pair for pair in pairwise(texts) if int(pair[0], 16) <= topic_hash(name)), default=(texts[0], texts[1])
    )
    return f"{low}_{high}"


def parse_bundle(namespace: NamespaceName, text: str) -> Bundle:
    """Parse ``LOWER_UPPER``, numbers as Java's Long.decode takes them; raises InvalidValue."""
    parts = text.split("_")
    if len(parts) < 2:
        raise InvalidValue(f"Invalid bundle range: {text}", hint="write LOWER_UPPER, such as 0x00000000_0x40000000")
    lower, upper = (_parse_bound(part) for part in parts[:2])
    if lower > upper:
        raise InvalidValue(f"Invalid range: [{lower}..{upper}{']' if upper == _LAST_HASH else ')'}")
    if lower == upper != _LAST_HASH:
        raise InvalidValue("Cannot create bundle object for an empty key range")
    return Bundle(namespace, lower, upper)


def _parse_bound(text: str) -> int:
    match = _JAVA_NUMBER.fullmatch(text)
    assert match is not None
    sign, prefix, digits = match.groups()
    radix = 10 if prefix is None else 8 if prefix == "0" else 16
    try:
        if not digits.isascii() or not digits.isalnum():
            raise ValueError(digits)
        return int(f"{sign}{digits}", radix)
    except ValueError as error:
        under = "" if radix == 10 else f" under radix {radix}"
        raise InvalidValue(f'For input string: "{digits}"{under}', hint="write LOWER_UPPER") from error


# -- bookies that there are, and the racks they were put into ---------------------------------------------------------


RACKS_PATH = "/bookies"
BOOKIE_RACK = Fields(BookieRack, "the rack of")


def list_bookies(txn: Txn) -> list[str]:
    """Return the bookies that have a cookie, whether they run or not."""
    return hash_order(iter_children(txn, COOKIES))


def read_racks(txn: Txn) -> JsonObject:
    """Return the bookies of each group, groups in order; raises MetadataCorrupt."""
    return dict(sorted((find_json(txn, RACKS_PATH) or {}).items()))


def read_rack(txn: Txn, bookie: str) -> JsonObject:
    """Return rack and hostname of a bookie; raises ResourceNotFound, MetadataCorrupt."""
    for bookies in read_racks(txn).values():
        if bookie in bookies:
            rack: JsonObject = bookies[bookie]
            return rack
    raise ResourceNotFound(f"Bookie rack placement configuration not found: {bookie}", bookie=bookie)


# -- isolation policies: which namespaces only some brokers serve -----------------------------------------------------


ISOLATION_POLICY = Fields(
    IsolationPolicy, "isolation policy", {"auto_failover_policy": Fields(AutoFailover, "the failover of").show}
)


def isolation_path(cluster: str) -> str:
    """Return the metadata path of a cluster's isolation policies."""
    return f"{cluster_path(cluster)}/namespaceIsolationPolicies"


def read_isolation(txn: Txn, cluster: str) -> JsonObject:
    """Return a cluster's isolation policies by name; raises ResourceNotFound, also if there never was one."""
    check_cluster(txn, cluster)
    policies = find_json(txn, isolation_path(cluster))
    if policies is None:
        raise ResourceNotFound(f"NamespaceIsolationPolicies for cluster {cluster} does not exist", cluster=cluster)
    return policies


def read_isolation_policy(txn: Txn, cluster: str, name: str) -> JsonObject:
    """Return one isolation policy; raises ResourceNotFound."""
    policies = read_isolation(txn, cluster)
    if name not in policies:
        raise ResourceNotFound(f"Cannot find NamespaceIsolationPolicy {name} for cluster {cluster}", name=name)
    policy: JsonObject = policies[name]
    return policy


def broker_isolation(txn: Txn, cluster: str, broker: str) -> JsonObject:
    """Return what isolation policies record about a broker, which need not exist; raises ResourceNotFound."""
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
    parts = {"policyType": failover.get("policy_type"), "parameters": failover.get("parameters")}
    shown = {key: policy.get(key) for key in ("namespaces", "primary", "secondary")}
    shown["autoFailoverPolicy"] = java_record("AutoFailoverPolicyDataImpl", parts)
    return java_record("NamespaceIsolationDataImpl", {**shown, "unloadScope": policy.get("unload_scope")})


_ESCAPED = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]", re.DOTALL)
_NOT_JAVA = re.compile(r"\{(?!\d+(?:,\d*)?\})|\(\?[P(]")
"""What Java refuses outside of classes and escapes: a brace that begins no count (one half of a pattern that was split at its
comma), and groups as only Python writes them."""


def find_expression(text: str) -> re.Pattern[str] | None:
    """Return a regular expression of Java as one of Python; None if Java refuses it, and for ``\\p`` and ``\\Q``."""
    if _NOT_JAVA.search(_ESCAPED.sub("", text)):
        return None
    try:
        with warnings.catch_warnings(action="ignore"):  # of [a&&b], which is an intersection to Java alone
            return re.compile(re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", text).replace(r"\z", r"\Z"))
    except re.error:
        return None


def _matches(expressions: Sequence[str], broker: str) -> bool:
    return any(found.fullmatch(broker) for one in expressions if (found := find_expression(one)) is not None)


# -- resource groups, and quotas of bundles ---------------------------------------------------------------------------


_RESOURCE_GROUPS_PATH = "/admin/resourcegroups"
RESOURCE_GROUP = Fields(ResourceGroup, "resource group")
BUNDLE_QUOTA = Fields(BundleQuota, "the quota of")
_QUOTAS = "/loadbalance/resource-quota"


def list_resource_groups(txn: Txn) -> list[str]:
    """Return the names of the resource groups in order."""
    return list(iter_children(txn, _RESOURCE_GROUPS_PATH))


def read_resource_group(txn: Txn, name: str) -> JsonObject:
    """Return a resource group; raises ResourceNotFound, MetadataCorrupt."""
    stored = find_json(txn, resource_group_path(name))
    if stored is None:
        known = ", ".join(list_resource_groups(txn))
        raise ResourceNotFound("ResourceGroup does not exist", hint=f"there are: {known}" if known else "", name=name)
    return stored


def resource_group_path(name: str) -> str:
    """Return the metadata path of a resource group."""
    return f"{_RESOURCE_GROUPS_PATH}/{name}"


def bundle_quota_path(bundle: Bundle | None) -> str:
    """Return the metadata path of the quota of a bundle; None: the default one."""
    return f"{_QUOTAS}/default" if bundle is None else f"{_QUOTAS}/{bundle}"


def find_bundle(txn: Txn, namespace: NamespaceName | None, text: str | None) -> Bundle | None:
    """Return the bundle ``text`` of ``namespace``, None if both are None; raises InvalidValue, NamespaceNotFound."""
    if namespace is None and text is None:
        return None
    if namespace is None or text is None:
        raise InvalidValue("namespace and bundle must be provided together.")
    return read_bundle(txn, namespace, text)


def read_bundle_quota(txn: Txn, namespace: NamespaceName | None, text: str | None) -> JsonObject:
    """Return the quota in force for a bundle: its own, else the default one, else the built-in one; raises as ``find_bundle``,
    MetadataCorrupt."""
    bundle = find_bundle(txn, namespace, text)
    own = None if bundle is None else find_json(txn, bundle_quota_path(bundle))
    return own or find_json(txn, bundle_quota_path(None)) or {}


# -- settings of brokers that may change while they run ---------------------------------------------------------------


CONFIGURATION_PATH = "/admin/configuration"

_DYNAMIC_NAMES = """
loadBalancerSheddingGracePeriodMinutes loadBalancerBandwithInResourceWeight loadBalancerBandwithOutResourceWeight
loadBalancerNamespaceBundleMaxBandwidthMbytes managedLedgerCursorResetLedgerCloseTimestampMaxClockSkewMillis
subscribeRatePeriodPerConsumerInSecond dispatchThrottlingRatePerSubscriptionInByte maxPublishRatePerTopicInBytes
autoSkipNonRecoverableData brokerPublisherThrottlingMaxByteRate dispatchThrottlingRateInMsg
supportedNamespaceBundleSplitAlgorithms loadBalancerAverageResourceUsageDifferenceThresholdPercentage
brokerDeleteInactiveTopicsFrequencySeconds loadBalancerAvgShedderHighThreshold loadBalancerLoadSheddingStrategy
loadBalancerBrokerMaxTopics loadBalancerMaxNumberOfBrokerSheddingPerCycle loadBalancerAutoBundleSplitEnabled
loadBalancerSheddingConditionHitCountThreshold loadBalancerSheddingEnabled loadBalancerDirectMemoryResourceWeight
loadBalancerSheddingBundlesWithPoliciesEnabled subscriptionTypesEnabled
subscriptionKeySharedUseClassicPersistentImplementation loadBalancerBrokerThresholdShedderPercentage
loadBalancerBandwidthOutResourceWeight loadBalancerNamespaceMaximumBundles
managedLedgerInactiveLedgerRolloverTimeSeconds forceDeleteNamespaceAllowed schemaLedgerForceRecovery
loadBalancerReportUpdateMaxIntervalMinutes dispatchThrottlingRatePerReplicatorInMsg
loadBalancerNamespaceBundleSplitConditionHitCountThreshold clientLibraryVersionCheckEnabled
maxMessagePublishBufferSizeInMB brokerShutdownTimeoutMs dispatcherMinReadBatchSize
subscriptionSharedUseClassicPersistentImplementation loadBalancerAvgShedderHitCountLowThreshold minUnloadMessage
minUnloadMessageThroughput brokerClientTlsEnabled loadBalancerBrokerLoadDataTTLInSeconds
brokerDeleteInactiveTopicsMaxInactiveDurationSeconds brokerDeleteInactivePartitionedTopicMetadataEnabled
keySharedUnblockingIntervalMs maxTopicsPerNamespace maxNumPartitionsPerPartitionedTopic
loadBalancerReportUpdateMinIntervalMillis dispatchThrottlingRatePerSubscriptionInMsg
loadBalancerServiceUnitStateMaxConcurrentOverrides superUserRoles transactionPendingAckBatchedWriteEnabled
brokerDeleteInactiveTopicsMode loadBalancerMsgRateDifferenceShedderThreshold dispatcherMaxReadSizeBytes
exposeBundlesMetricsInPrometheus subscriptionRedeliveryTrackerEnabled dispatchThrottlingRatePerTopicInByte
dispatchThrottlingRateRelativeToPublishRate maxNamespacesPerTenant strictlyVerifySubscriptionName
defaultNumberOfNamespaceBundles entryFiltersDirectory dispatcherPauseOnAckStatePersistentEnabled
loadBalancerAvgShedderLowThreshold loadBalancerHistoryResourcePercentage dispatchThrottlingOnBatchMessageEnabled
replicationStartAt bookkeeperUseV2WireProtocol keySharedLookAheadMsgInReplayThresholdPerConsumer
loadBalanceSheddingDelayInSeconds loadBalancerBandwidthInResourceWeight defaultNumPartitions managedLedgerCacheSizeMB
maxUnloadPercentage dispatcherReadFailureBackoffMandatoryStopTimeInMs allowOverrideEntryFilters
loadBalancerDistributeBundlesEvenlyEnabled dispatchThrottlingRatePerReplicatorInByte
dispatchThrottlingOnNonBacklogConsumerEnabled topicPublisherThrottlingTickTimeMillis unblockStuckSubscriptionEnabled
preciseDispatcherFlowControl maxConcurrentLookupRequest skipBrokerShutdownOnOOM managedLedgerCacheEvictionWatermark
httpRequestsFailOnUnknownPropertiesEnabled brokerPublisherThrottlingMaxMessageRate
loadBalancerNamespaceBundleMaxMsgRate replicationProducerQueueSize loadBalancerNamespaceBundleMaxSessions
loadBalancerTransferEnabled allowAutoTopicCreationType managedLedgerInactiveOffloadedLedgerEvictionTimeSeconds
managedLedgerMaxBacklogBetweenCursorsForCaching loadBalancerNamespaceBundleMaxTopics
loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold dispatcherMaxReadBatchSize
managedLedgerMinimumBacklogCursorsForCaching transactionLogBatchedWriteEnabled brokerClientAuthenticationPlugin
dispatcherReadFailureBackoffInitialTimeInMs subscribeThrottlingRatePerConsumer loadBalancerMemoryResourceWeight
topicFactoryClassName keySharedLookAheadMsgInReplayThresholdPerSubscription brokerClientAuthenticationParameters
loadBalancerReportUpdateThresholdPercentage subscriptionKeySharedEnable managedLedgerCacheEvictionTimeThresholdMillis
brokerDeleteInactiveTopicsEnabled loadBalancerAvgShedderHitCountHighThreshold configurationMetadataSyncEventTopic
managedLedgerMinimumBacklogEntriesForCaching maxPublishRatePerTopicInMessages maxUnloadBundleNumPerShedding
maxConcurrentTopicLoadRequest managedLedgerTraceTaskExecution loadBalancerDebugModeEnabled
resourceUsageTransportPublishIntervalInSecs loadBalancerAutoUnloadSplitBundlesEnabled
dispatcherEntryFilterRescheduledMessageDelay loadBalancerServiceUnitTableViewSyncer
defaultNamespaceBundleSplitAlgorithm dispatcherReadFailureBackoffMaxTimeInMs entryFilterNames
dispatcherMaxRoundRobinBatchSize loadBalancerBundleUnloadMinThroughputThreshold preferLaterVersions
loadBalancerMaxNumberOfBundlesInBundleLoadReport dispatchThrottlingRatePerTopicInMsg maxTenants
loadBalancerCPUResourceWeight allowAutoTopicCreation managedLedgerForceRecovery
loadBalancerMaxNumberOfBundlesToSplitPerCycle failureDomainsEnabled loadBalancerBrokerOverloadedThresholdPercentage
flowOrQpsDifferenceThresholdPercentage namespaceBundleUnloadingTimeoutMs dispatchThrottlingRateInByte
forceDeleteTenantAllowed isAllowAutoUpdateSchemaEnabled brokerPublisherThrottlingTickTimeMillis
loadBalancerBrokerLoadTargetStd allowAutoSubscriptionCreation loadBalancerSheddingIntervalMinutes
dispatcherDispatchMessagesInSubscriptionThread loadBalancerHostUsageCheckIntervalMinutes topicNameCacheMaxCapacity
loadManagerClassName metadataSyncEventTopic
"""
DYNAMIC_SETTINGS = tuple(_DYNAMIC_NAMES.split())
"""The fields that upstream marks as dynamic, in the order in which a broker names them."""


def read_configuration(txn: Txn) -> JsonObject:
    """Return the settings that were changed, as text by name; raises MetadataCorrupt."""
    return find_json(txn, CONFIGURATION_PATH) or {}


def find_cluster_name(txn: Txn) -> str | None:
    """Return the cluster that the metadata names: the only one listed, or that of ``pulsar/system``; None if there is neither."""
    listed = list_clusters(txn)
    try:
        return listed[0] if len(listed) == 1 else current_cluster(txn)
    except StoreError:  # of a namespace that is damaged: it says nothing
        return None
