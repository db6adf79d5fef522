"""What of a metadata node's value this version does not know: fields, keys, versions and codecs of a newer one. Kept, never judged.

A value that cannot be read because it is damaged is no such value: its decoder raises Corrupt.
"""

from __future__ import annotations

from collections.abc import Callable

from pulsar_admin.store.codec.cursor import unknown_cursor_fields
from pulsar_admin.store.codec.ledgermetadata import unknown_ledger_fields
from pulsar_admin.store.codec.managedledger import unknown_managed_ledger_fields
from pulsar_admin.store.codec.policies import decode_json_object
from pulsar_admin.store.codec.schema import unknown_locator_fields
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import Corrupt, StoreError, Unsupported
from pulsar_admin.store.model.managed_nodes import managed_node
from pulsar_admin.store.model.structures import structure_of
from pulsar_admin.store.names import PERSISTENT

_CLUSTER_DEPTH = 3  # /admin/clusters/NAME; below it lie failure domains and policies
KEYS = {
    "ClusterData": """
        authenticationParameters authenticationPlugin brokerClientCertificateFilePath brokerClientKeyFilePath brokerClientSslFactoryPlugin
        brokerClientSslFactoryPluginParams brokerClientTlsEnabled brokerClientTlsEnabledWithKeyStore brokerClientTlsKeyStore
        brokerClientTlsKeyStorePassword brokerClientTlsKeyStoreType brokerClientTlsTrustStore brokerClientTlsTrustStorePassword
        brokerClientTlsTrustStoreType brokerClientTrustCertsFilePath brokerServiceUrl brokerServiceUrlTls listenerName migrated
        migratedClusterUrl peerClusterNames proxyProtocol proxyServiceUrl serviceUrl serviceUrlTls tlsAllowInsecureConnection
        """,
    "LocalPolicies": "bookieAffinityGroup bundles migrated namespaceAntiAffinityGroup",
    "PartitionedTopicMetadata": "deleted partitions properties",
    "Policies": """
        allowed_clusters allowed_topic_property_keys_for_metrics auth_policies autoSubscriptionCreationOverride
        autoTopicCreationOverride backlog_quota_map bundles clusterDispatchRate clusterSubscribeRate clusterThatCanDeleteNamespace
        compaction_threshold deduplicationEnabled deduplicationSnapshotIntervalSeconds delayed_delivery_policies deleted
        dispatcherPauseOnAckStatePersistentEnabled encryption_required entryFilters inactive_topic_policies
        is_allow_auto_update_schema latency_stats_sample_rate max_consumers_per_subscription max_consumers_per_topic
        max_producers_per_topic max_subscriptions_per_topic max_topics_per_namespace max_unacked_messages_per_consumer
        max_unacked_messages_per_subscription message_ttl_in_seconds migrated offload_deletion_lag_ms offload_policies
        offload_threshold offload_threshold_in_seconds persistence properties publishMaxMessageRate replication_clusters
        replicatorDispatchRate resource_group_name retention_policies schema_auto_update_compatibility_strategy
        schema_compatibility_strategy schema_validation_enforced subscriptionDispatchRate subscription_auth_mode
        subscription_expiration_time_minutes subscription_types_enabled topicDispatchRate
        """,
    "TenantInfo": "adminRoles allowedClusters",
}
"""The members of upstream's classes of these names, Pulsar 2.11 to 4.2; what lies inside of them is not looked at."""
_KNOWN_KEYS = {name: frozenset(keys.split()) for name, keys in KEYS.items()}
_UNKNOWN: dict[str, Callable[[bytes, str], tuple[str, ...]]] = {
    "LedgerMetadata": unknown_ledger_fields,
    "ManagedCursorInfo": unknown_cursor_fields,
    "ManagedLedgerInfo": unknown_managed_ledger_fields,
    "SchemaLocator": unknown_locator_fields,
}


_OTHER = "value below /managed-ledgers"


def unknown_in(path: str, value: bytes) -> tuple[str, tuple[str, ...]]:
    """Return (structure, what of it is not known here, by name) of the node at PATH with VALUE.

    The second is empty where all is known, and where the value is damaged.
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
    """Return the structure of the node at PATH where that is easily seen, as for nearly all of the millions that there may be; else ""."""
    parts = path.split("/", 7)
    if parts[1] == "managed-ledgers" and 6 <= len(parts) <= 7 and parts[4] == PERSISTENT:
        return "ManagedLedgerInfo" if len(parts) == 6 else "ManagedCursorInfo"
    if parts[1] == "ledgers" and len(parts) == 5 and parts[2].isdigit() and parts[4][:1] == "L":
        return "LedgerMetadata"
    return ""


def is_known(path: str, value: bytes) -> bool:
    """Whether all that the node at PATH says with VALUE is known here; a damaged value says what nobody knows."""
    structure = structure_of(path, value)
    if structure is None or unknown_in(path, value)[1]:
        return False
    try:
        structure[1](value, path)
    except StoreError:
        return False
    return True


def is_known_node(txn: Txn, path: str) -> bool:
    """Whether the node at PATH is there and ``is_known``."""
    node = find_node(txn, path)
    return node is not None and is_known(path, node.value)
