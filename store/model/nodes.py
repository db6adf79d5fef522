"""The only place that decides what a metadata node is: below ``/managed-ledgers`` a managed ledger or a cursor, elsewhere by its path.
Decodes its value, to show it or to check that it can be read, and finds the parts of it that this version does not know.

Persistent topics and their cursors are known by their paths. Pulsar 5.0 keeps the segments of scalable topics beside them
(``T/NS/segment/TOPIC/RANGE-ID``), and a later one may have other domains of any depth: there a value that decodes says what it is.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from pulsar_admin.store import names
from pulsar_admin.store.codec.bookie import decode_cookie
from pulsar_admin.store.codec.cursor import decode_cursor_head, decode_cursor_info, unknown_cursor_fields
from pulsar_admin.store.codec.ledgermetadata import decode_ledger_metadata, ledger_id_of_path, unknown_ledger_fields
from pulsar_admin.store.codec.managedledger import (
    decode_ledger_ids,
    decode_managed_ledger,
    unknown_managed_ledger_fields,
)
from pulsar_admin.store.codec.packages import decode_log_segment, stream_of_path, unknown_segment
from pulsar_admin.store.codec.policies import check_partitioned_topic, check_policies, decode_json_object
from pulsar_admin.store.codec.scalable import decode_scalable_topic, unknown_scalable_keys
from pulsar_admin.store.codec.schema import decode_schema_locator, unknown_locator_fields
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node, iter_children, iter_values
from pulsar_admin.store.errors import Corrupt, MetadataCorrupt, StoreError, Unsupported


class ManagedNode(NamedTuple):
    """A managed ledger (``cursor`` None), or one of its cursors by its name in clear.

    ``ledger``: its name where its path has the parts of one; ``text``: the name as it is shown, else the path.
    """

    ledger: names.TopicName | None
    cursor: str | None
    text: str

    @property
    def is_topic(self) -> bool:
        """Whether the node belongs to a persistent topic, which this version reads."""
        return self.ledger is not None and self.ledger.domain == names.PERSISTENT


def managed_node(path: str, value: bytes) -> ManagedNode | None:
    """Return what the node at ``path`` with ``value`` is, None where it is neither a managed ledger nor a cursor.

    Of domains other than ``persistent`` a value without its cursor ledger's id, which every ManagedCursorInfo has, is a ManagedLedgerInfo;
    nodes without a value are there for those below them, but for segments that no broker has loaded.

    Raises what the decoders raise for a value of another domain that is neither.
    """
    if not path.startswith(f"{names.MANAGED_LEDGERS}/"):
        return None
    parent, _, component = path.rpartition("/")
    topic = names.topic_of_path(path)
    if topic is not None:
        return ManagedNode(topic, None, str(topic))
    topic = names.topic_of_path(parent)
    if topic is not None:
        return ManagedNode(topic, names.decode_name(component), str(topic))
    if not value:
        segment = names.managed_ledger_of_path(path)  # one that no broker has loaded yet
        return _other(path, None) if segment is not None and segment.domain == names.SEGMENT else None
    if is_cursor(value, path):
        return _other(parent, names.decode_name(component))
    decode_ledger_ids(value, path)
    return _other(path, None)


def _other(path: str, cursor: str | None) -> ManagedNode:
    name = names.managed_ledger_of_path(path)
    return ManagedNode(name, cursor, str(name) if name is not None else path)


def is_cursor(value: bytes, path: str) -> bool:
    """Whether ``value`` is a ManagedCursorInfo."""
    try:
        decode_cursor_head(value, path)
    except MetadataCorrupt:
        return False
    return True


def _iter_other_nodes(txn: Txn, namespace: names.NamespaceName | None) -> Iterator[tuple[str, bytes]]:
    """Yield (path, value) of the nodes of domains other than ``persistent``, of ``namespace`` or of all; one seek where there are none."""
    spaces = _namespace_roots(txn) if namespace is None else (f"{names.MANAGED_LEDGERS}/{namespace}",)
    for space in spaces:
        for domain in iter_children(txn, space):
            if domain != names.PERSISTENT:
                node = find_node(txn, f"{space}/{domain}")
                if node is not None:
                    yield node.path, node.value
                yield from iter_values(txn, f"{space}/{domain}/")


def _namespace_roots(txn: Txn) -> Iterator[str]:
    for tenant in iter_children(txn, names.MANAGED_LEDGERS):
        for name in iter_children(txn, f"{names.MANAGED_LEDGERS}/{tenant}"):
            yield f"{names.MANAGED_LEDGERS}/{tenant}/{name}"


def iter_other_ledgers(txn: Txn, namespace: names.NamespaceName | None = None) -> Iterator[names.TopicName]:
    """Yield the names of managed ledgers that are not persistent topics, by path; other nodes are left out."""
    for path, value in _iter_other_nodes(txn, namespace):
        try:
            node = managed_node(path, value)
        except StoreError:
            continue
        if node is not None and node.cursor is None and node.ledger is not None and not node.is_topic:
            yield node.ledger


def iter_segments(txn: Txn) -> Iterator[names.TopicName]:
    """Yield the segments of scalable topics that have a managed ledger, by path."""
    return (name for name in iter_other_ledgers(txn) if name.domain == names.SEGMENT)


def other_path(txn: Txn, base: names.TopicName) -> str:
    """Return the path of a newer Pulsar's topic node that shares the name, and so the schema, of ``base``; "" for
    none.

    Upstream 5.0.1: a scalable topic has a node in ``/topics`` and its segments below their domain, also after a
    migration from ``base``.
    """
    space, component = f"{names.MANAGED_LEDGERS}/{base.namespace}", base.path.rpartition("/")[2]
    domains = (f"{space}/{domain}" for domain in iter_children(txn, space) if domain != names.PERSISTENT)
    for path in (f"{root}/{component}" for root in (f"{names.SCALABLE_TOPICS}/{base.namespace}", *domains)):
        if find_node(txn, path) is not None or next(iter_children(txn, path), None) is not None:
            return path
    return ""


def iter_other_cursors(txn: Txn, ledger: names.TopicName) -> Iterator[str]:
    """Yield the names of the cursors of the managed ``ledger`` of another domain, in clear.

    Below such a ledger there may be other nodes, which are left out; below a segment brokers write only cursors."""
    for component in iter_children(txn, ledger.path):
        node = find_node(txn, f"{ledger.path}/{component}")
        is_segment = ledger.domain == names.SEGMENT
        if node is not None and (is_segment or (node.value and is_cursor(node.value, node.path))):
            yield names.decode_name(component)


# -- what the value at a path is --------------------------------------------------------------------------------------


Decode = Callable[[bytes, str], object]
_SCALABLE_DEPTH = 4

_MANAGED_LEDGER: tuple[str, Decode] = ("ManagedLedgerInfo", decode_managed_ledger)
_CURSOR: tuple[str, Decode] = ("ManagedCursorInfo", decode_cursor_info)
_SCALABLE: tuple[str, Decode] = (
    "ScalableTopicMetadata",
    lambda value, where: decode_scalable_topic(value, where, _scalable_of_path(where)),
)

_BY_PREFIX: tuple[tuple[str, int, str, Decode], ...] = (
    ("/ledgers/cookies/", 1, "Cookie", lambda value, where: decode_cookie(value, where)),
    ("/schemas/", 3, "SchemaLocator", decode_schema_locator),
    ("/admin/partitioned-topics/", 4, "PartitionedTopicMetadata", check_partitioned_topic),
    ("/admin/policies/", 1, "Policies", check_policies),
    ("/admin/local-policies/", 2, "LocalPolicies", decode_json_object),
    ("/admin/clusters/", 1, "ClusterData", decode_json_object),
)
"""Prefix, how many names come after it at least, and what lies there: nodes above hold nothing in ZooKeeper."""


def _scalable_of_path(path: str) -> names.TopicName:
    _, _, tenant, namespace, component = path.split("/")
    return names.TopicName(names.NamespaceName(tenant, namespace), names.decode_name(component), names.SCALABLE)


def structure_of(path: str, value: bytes = b"") -> tuple[str, Decode] | None:
    """Return (upstream's name, decoder) of the value at the metadata ``path``, or None where nothing is known.

    ``value``: what lies there, which tells managed ledgers from cursors in domains of a newer Pulsar.
    """
    try:
        managed = managed_node(path, value)
    except StoreError:
        return None
    if managed is not None:
        return _MANAGED_LEDGER if managed.cursor is None else _CURSOR
    if ledger_id_of_path(path) is not None:
        return "LedgerMetadata", decode_ledger_metadata
    if value and path.startswith(f"{names.SCALABLE_TOPICS}/") and path.count("/") == _SCALABLE_DEPTH:
        return _SCALABLE
    if path.startswith("/pulsar/") and stream_of_path(path) is not None:
        return "LogSegmentMetadata", decode_log_segment
    for prefix, depth, name, decode in _BY_PREFIX:
        if path.startswith(prefix) and path.count("/", len(prefix)) >= depth - 1:
            is_tenant = name == "Policies" and path.count("/") == 3
            return ("TenantInfo", decode_json_object) if is_tenant else (name, decode)
    return None


def cursor_of_path(path: str) -> tuple[names.TopicName, str] | None:
    """Return (topic, cursor in clear) of the ManagedCursorInfo at ``path``, or None for any other path."""
    parent, _, component = path.rpartition("/")
    topic = names.topic_of_path(parent)
    return None if topic is None else (topic, names.decode_name(component))


def decode_structure(path: str, value: bytes) -> tuple[str, object]:
    """Return (name, decoded value) of the node at ``path``.

    Other values are ("empty", None), ("JSON", object), ("text", str) or ("binary", bytes). Raises what the decoder raises.
    """
    known = structure_of(path, value)
    if known is not None:
        name, decode = known
        return name, decode(value, path)
    return _guess(value)


def _guess(value: bytes) -> tuple[str, object]:
    import json

    if not value:
        return "empty", None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "binary", value
    try:
        return "JSON", json.loads(text)
    except (ValueError, RecursionError):
        return ("text", text) if text.isprintable() or "\n" in text else ("binary", value)


# -- fields, keys, versions and codecs of a newer version: kept, never judged -----------------------------------------


_CLUSTER_DEPTH = 3  # /admin/clusters/NAME; below it lie failure domains and policies
_KEYS = {
    "ClusterData": """
        authenticationParameters authenticationPlugin brokerClientCertificateFilePath brokerClientKeyFilePath
        brokerClientSslFactoryPlugin brokerClientSslFactoryPluginParams brokerClientTlsFactoryClassName brokerClientTlsFactoryConfig
        brokerClientTlsEnabled brokerClientTlsEnabledWithKeyStore brokerClientTlsKeyStore brokerClientTlsKeyStorePassword
        brokerClientTlsKeyStoreType brokerClientTlsTrustStore brokerClientTlsTrustStorePassword brokerClientTlsTrustStoreType
        brokerClientTrustCertsFilePath brokerServiceUrl brokerServiceUrlTls listenerName migrated migratedClusterUrl
        peerClusterNames proxyProtocol proxyServiceUrl serviceUrl serviceUrlTls tlsAllowInsecureConnection
        """,
    "LocalPolicies": "bookieAffinityGroup bundles migrated namespaceAntiAffinityGroup",
    "PartitionedTopicMetadata": "deleted partitions properties",
    "Policies": """
        allowed_clusters allowed_topic_property_keys_for_metrics auth_policies autoSubscriptionCreationOverride
        autoTopicCreationOverride backlog_quota_map bundles clusterDispatchRate clusterSubscribeRate clusterThatCanDeleteNamespace
        compaction_threshold deduplicationEnabled deduplicationSnapshotIntervalSeconds delayed_delivery_policies deleted
        dispatcherPauseOnAckStatePersistentEnabled encryption_required entryFilters inactive_topic_policies
        is_allow_auto_update_schema is_allow_auto_update_schema_with_replicator latency_stats_sample_rate
        max_consumers_per_subscription max_consumers_per_topic max_producers_per_topic max_subscriptions_per_topic
        max_topics_per_namespace max_unacked_messages_per_consumer max_unacked_messages_per_subscription message_ttl_in_seconds
        migrated offload_deletion_lag_ms offload_policies offload_threshold offload_threshold_in_seconds persistence properties
        publishMaxMessageRate replication_clusters replicatorDispatchRate resource_group_name retention_policies
        schema_auto_update_compatibility_strategy schema_compatibility_strategy schema_validation_enforced subscriptionDispatchRate
        subscription_auth_mode scalableTopicAutoScalePolicy subscription_expiration_time_minutes subscription_types_enabled
        topicDispatchRate
        """,
    "TenantInfo": "adminRoles allowedClusters",
}
"""The members of upstream's classes of these names, Pulsar 2.11 to 5.0; what lies inside of them is not looked at."""
_KNOWN_KEYS = {name: frozenset(keys.split()) for name, keys in _KEYS.items()}
_UNKNOWN: dict[str, Callable[[bytes, str], tuple[str, ...]]] = {
    "LedgerMetadata": unknown_ledger_fields,
    "LogSegmentMetadata": unknown_segment,
    "ManagedCursorInfo": unknown_cursor_fields,
    "ManagedLedgerInfo": unknown_managed_ledger_fields,
    "ScalableTopicMetadata": unknown_scalable_keys,
    "SchemaLocator": unknown_locator_fields,
}


_OTHER = "value below /managed-ledgers"


def unknown_in(path: str, value: bytes) -> tuple[str, tuple[str, ...]]:
    """Return (structure, names of its unknown parts) of a node.

    The second is empty if all parts are known, and if the value is damaged.
    """
    if not value:
        return "", ()
    try:
        return _look(path, value)
    except Unsupported as error:
        known = structure_of(path)
        return _OTHER if known is None else known[0], (error.message.removeprefix(": "),)
    except StoreError:
        return "", ()


def _look(path: str, value: bytes) -> tuple[str, tuple[str, ...]]:
    name = _usual_structure(path)
    if not name:
        try:
            managed_node(path, value)
        except Corrupt:
            return _OTHER, ("its form",)  # of a domain that is not known: nothing says that it is damaged
        known = structure_of(path, value)
        if known is None:
            return "", ()
        name = known[0]
    if name in _UNKNOWN:
        return name, _UNKNOWN[name](value, "")
    keys = None if name == "ClusterData" and path.count("/") > _CLUSTER_DEPTH else _KNOWN_KEYS.get(name)
    return name, () if keys is None else tuple(f"key {key}" for key in decode_json_object(value, "") if key not in keys)


def _usual_structure(path: str) -> str:
    """Return the structure of the node at ``path`` if its path is of a usual form, as nearly all of the possible millions are; else ""."""
    parts = path.split("/", 7)
    if parts[1] == "managed-ledgers" and 6 <= len(parts) <= 7 and parts[4] == names.PERSISTENT:
        return "ManagedLedgerInfo" if len(parts) == 6 else "ManagedCursorInfo"
    if parts[1] == "ledgers" and len(parts) == 5 and parts[2].isdigit() and parts[4][:1] == "L":
        return "LedgerMetadata"
    return ""


def is_known(path: str, value: bytes) -> bool:
    """Whether the node at ``path`` with ``value`` has nothing unknown; a damaged value counts as unknown."""
    structure = structure_of(path, value)
    if structure is None or unknown_in(path, value)[1]:
        return False
    try:
        structure[1](value, path)
    except StoreError:
        return False
    return True


def is_known_node(txn: Txn, path: str) -> bool:
    """Whether the node at ``path`` is there and ``is_known``."""
    node = find_node(txn, path)
    return node is not None and is_known(path, node.value)
