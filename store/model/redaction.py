"""Replaces payloads, keys, property values and decoded values for ``--redact``: by SHA-256 and length.

Equal contents stay recognizable as equal, also from one run to the next. The digest of a value that can be guessed, such as a short
key, can be found by trying: redaction hides contents from a reader of the output, not from someone who looks for a known value.
"""

import hmac
import json
import re
from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from pulsar_admin.store.names import EVENTS, PENDING_ACK_SUFFIX, decode_name, encode_name, is_encoded

_PROPERTIES = frozenset({"properties", "cursorProperties", "subscriptionProperties"})
"""Keys of JSON under which metadata has what users name and fill as they like."""


def redact(value: bytes | str) -> str:
    """Return the text to show for ``value``."""
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return f"sha256:{sha256(data).hexdigest()}:{len(data)}"


def redact_value(value: object) -> str:
    """Return the JSON value to show for a decoded ``value``."""
    return redact(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


def hide_secrets_in(value: Any) -> Any:  # Any: JSON values
    """Return JSON with the digests of secrets in their place: members such as ``s3ManagedLedgerOffloadCredentialSecret``."""
    if isinstance(value, list):
        return [hide_secrets_in(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: redact(item) if key.lower().endswith("secret") and isinstance(item, str) else hide_secrets_in(item)
        for key, item in value.items()
    }


def redact_metadata(value: Any) -> Any:  # Any: JSON values
    """Return JSON of metadata with the texts of properties redacted, wherever they stand; numbers, which are positions, stay."""
    if isinstance(value, list):
        return [redact_metadata(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _redact_texts(item) if key in _PROPERTIES and isinstance(item, dict) else redact_metadata(item)
        for key, item in value.items()
    }


def _redact_texts(properties: dict[str, Any]) -> dict[str, Any]:  # Any: JSON values
    return {name: redact(value) if isinstance(value, str) else value for name, value in properties.items()}


# -- stable stand-ins for names ---------------------------------------------------------------------------------------


SALT_BYTES = 32
_DIGITS = 12
_BOUND = re.compile(r"0x[0-9a-f]{8}")
_BOUNDS = "boundaries"
_DOMAINS = ("persistent", "non-persistent", "segment")
_SEGMENT = re.compile(r"[0-9a-f]{4}-[0-9a-f]{4}-\d{1,19}")
"""What a segment of a scalable topic is called: hashes and a number."""
_LOG_FILE = re.compile(r"[0-9a-f]{1,16}\.(log|txn|idx)")
_PARTITION = re.compile(r"(.*)(-partition-[0-9]{1,9})", re.DOTALL)
_SYSTEM_TOPICS = frozenset(
    [
        EVENTS,
        "__transaction_buffer_snapshot",
        "__transaction_buffer_snapshot_segments",
        "__transaction_buffer_snapshot_indexes",
        "transaction_coordinator_assign",
    ]
)
_TRANSACTION_LOG = re.compile(r"__transaction_log_[0-9]{1,9}")
_REPLICATOR = "pulsar.repl."
NAMES = frozenset(
    [
        "persistent",
        "non-persistent",
        "segment",
        "public",
        "default",
        "pulsar",
        "system",
        "current",
        "__compaction",
        "pulsar.dedup",
    ]
)
"""Names that every cluster has."""
_WORDS = (
    # of files and store.json
    "bookkeeper metadata zookeeper version-2 ledgers journal global"
    # custom metadata of ledgers
    " application component managed-ledger compacted-ledger delayed-index-bucket schema pulsar/managed-ledger pulsar/cursor"
    " pulsar/compactedTopic pulsar/compactedTo pulsar/schemaId pulsar/delayedIndexBucketKey pulsar/delayedIndexTopic"
    " pulsar/delayedIndexCursor"
    # properties of cursors and ledgers
    " CompactedTopicLedger pulsar.replicated.subscription index beginPublishTimestamp endPublishTimestamp PULSAR.SHADOW_SOURCE"
    # store.json and rows of ours
    " kind path standalone cluster bookie rocksdb imported mode checksums referenced linked copied own bookies id journals indexes"
    " strangers logs zxid absent first next ensemble offload"
    # ClusterData, TenantInfo, Policies, LocalPolicies, PartitionedTopicMetadata and what is in them
    " active adminRoles allowedClusters allowed_clusters antiAffinityGroup auth_policies autoSubscriptionCreationOverride"
    " autoTopicCreationOverride allowAutoTopicCreation allowAutoSubscriptionCreation topicType defaultNumPartitions partitioned"
    " non-partitioned backlog_quota_map bookieAffinityGroup boundaries brokerClientTlsEnabled brokerClientTlsEnabledWithKeyStore"
    " brokerClientTlsKeyStoreType brokerClientTlsTrustStoreType brokerClientSslFactoryPlugin JKS brokerServiceUrl"
    " brokerServiceUrlTls bundles clusterDispatchRate clusterSubscribeRate clusterThatCanDeleteNamespace compaction_threshold"
    " compactionThreshold deduplicationEnabled deduplicationSnapshotIntervalSeconds delayed_delivery_policies deleted"
    " destination_auth destination_storage message_age limit limitSize limitTime policy producer_exception"
    " producer_request_hold consumer_backlog_eviction dispatchThrottlingRateInMsg dispatchThrottlingRateInByte"
    " relativeToPublishRate ratePeriodInSecond publishThrottlingRateInMsg publishThrottlingRateInByte"
    " subscribeThrottlingRatePerConsumer encryption_required entryFilters entryFilterNames inactive_topic_policies"
    " inactiveTopicDeleteMode maxInactiveDurationSeconds deleteWhileInactive delete_when_no_subscriptions"
    " delete_when_subscriptions_caught_up is_allow_auto_update_schema is_allow_auto_update_schema_with_replicator"
    " scalableTopicAutoScalePolicy brokerClientTlsFactoryClassName latency_stats_sample_rate maxDeliveryDelayInMillis"
    " max_consumers_per_subscription max_consumers_per_topic max_producers_per_topic max_subscriptions_per_topic"
    " max_topics_per_namespace max_unacked_messages_per_consumer max_unacked_messages_per_subscription message_ttl_in_seconds"
    " migrated namespace_auth numBundles offload_deletion_lag_ms offload_policies offload_threshold"
    " offload_threshold_in_seconds partitions persistence bookkeeperEnsemble bookkeeperWriteQuorum bookkeeperAckQuorum"
    " managedLedgerMaxMarkDeleteRate properties proxyProtocol publishMaxMessageRate replication_clusters"
    " replicatorDispatchRate resource_group_name retentionSizeInMB retentionTimeInMinutes retention_policies"
    " schema_auto_update_compatibility_strategy schema_compatibility_strategy schema_validation_enforced serviceUrl"
    " serviceUrlTls subscriptionDispatchRate subscription_auth_mode subscription_auth_roles"
    " subscription_expiration_time_minutes subscription_types_enabled tickTime tlsAllowInsecureConnection topicDispatchRate"
    " authenticationParameters authenticationPlugin brokerClientCertificateFilePath brokerClientKeyFilePath"
    " brokerClientSslFactoryPluginParams brokerClientTlsFactoryConfig brokerClientTlsKeyStore brokerClientTlsKeyStorePassword"
    " brokerClientTlsTrustStore brokerClientTlsTrustStorePassword brokerClientTrustCertsFilePath listenerName migratedClusterUrl"
    " peerClusterNames proxyServiceUrl namespaceAntiAffinityGroup allowed_topic_property_keys_for_metrics"
    " dispatcherPauseOnAckStatePersistentEnabled"
    " topic_auto_creation None Prefix UNDEFINED ALWAYS_COMPATIBLE ALWAYS_INCOMPATIBLE BACKWARD BACKWARD_TRANSITIVE FORWARD"
    " FORWARD_TRANSITIVE FULL FULL_TRANSITIVE Full AutoUpdateDisabled Backward Forward AlwaysCompatible Exclusive Shared"
    " Failover Key_Shared produce consume functions sources sinks packages"
    # segments of scalable topics
    " segmentId hashRange start end state ACTIVE SEALED legacyTopicName entryBucketSplits parentIds childIds createdAtEpoch"
    " sealedAtEpoch createdAtMs sealedAtMs"
)
WORDS = NAMES | frozenset(_WORDS.split())
"""Words of Pulsar's and of this toolkit's: fields, and values that are one of a few."""


class Pseudonyms:
    """Creates pseudonyms with a salt, and remembers the original of each."""

    def __init__(self, salt: bytes, names: Mapping[str, str] = MappingProxyType({})) -> None:
        self.salt = salt
        self.names = dict(names)

    def _digest(self, text: str | bytes) -> str:
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        return hmac.new(self.salt, data, sha256).hexdigest()

    def whole(self, text: str) -> str:
        """Return the pseudonym of ``text``, whatever it is."""
        if not text:
            return ""
        pseudonym = f"x{self._digest(text)[:_DIGITS]}"
        self.names[pseudonym] = text
        return pseudonym

    def word(self, text: str) -> str:
        """Return ``text`` if it is a word of Pulsar's own, else its pseudonym."""
        return text if text in WORDS else self.whole(text)

    def same_length(self, text: str) -> str:
        """Return a pseudonym of ``text`` with as many bytes, for names in binary data whose offsets must not change."""
        if text in WORDS:
            return text
        size = len(text.encode("utf-8", "surrogatepass"))
        pseudonym = (f"x{self._digest(text)}" * (size // 65 + 1))[:size]
        self.names[pseudonym] = text
        return pseudonym

    def digest(self, data: bytes) -> bytes:
        """Return a pseudonym of a digest of up to 32 bytes, with the same length."""
        return bytes.fromhex(self._digest(data))[: len(data)]

    def local(self, name: str) -> str:
        """Return the pseudonym of a topic's, cursor's, tenant's or namespace's ``name``; parts that brokers choose themselves stay."""
        partition = _PARTITION.fullmatch(name)
        if partition is not None:
            return self.local(partition[1]) + partition[2]
        if name.endswith(PENDING_ACK_SUFFIX):
            return self.whole(name.removesuffix(PENDING_ACK_SUFFIX)) + PENDING_ACK_SUFFIX
        if name.startswith(_REPLICATOR):
            return _REPLICATOR + self.whole(name.removeprefix(_REPLICATOR))
        if name in NAMES or name in _SYSTEM_TOPICS or _TRANSACTION_LOG.fullmatch(name) or _SEGMENT.fullmatch(name):
            return name
        return self.whole(name)

    def component(self, text: str, *, encodes: bool = True) -> str:
        """Return the pseudonym of one part of a metadata path. ``encodes``: a part that is not as ``encode_name`` writes it gets a
        pseudonym that is not so either."""
        pseudonym = encode_name(self.local(decode_name(text)))
        return f"{pseudonym}~" if encodes and not is_encoded(text) else pseudonym

    def path(self, path: str) -> str:
        """Return the pseudonym of a path of metadata or directories, part by part, so that paths below it keep it as their beginning.

        Names of topics and cursors are encoded; of tenants and namespaces, such as ``pulsar/HOST:PORT``, they are not.
        """
        parts = path.split("/")
        first_encoded = next((at for at, part in enumerate(parts) if part in _DOMAINS), len(parts))
        return "/".join(
            self.component(part, encodes=at > first_encoded) if part else "" for at, part in enumerate(parts)
        )

    def file(self, path: str) -> str:
        """Return the pseudonym of the path of a bookie's entry log, journal or index; the file's name, a number, stays."""
        directory, slash, name = path.rpartition("/")
        if not _LOG_FILE.fullmatch(name):
            return self.path(path)
        return f"{self.path(directory)}{slash}{name}"

    def text(self, text: str) -> str:
        """Return the pseudonym of ``text``, which may be a topic's name or a path."""
        scheme, colon, rest = text.partition("://")
        if colon and scheme in WORDS:
            return f"{scheme}://{'/'.join(map(self.local, rest.split('/')))}"
        if colon:
            return self.whole(text)
        return self.path(text) if "/" in text and text not in WORDS else self.word(text)

    def json(self, value: Any) -> Any:  # Any: JSON values
        """Return JSON with every text, and every key, that is not a word of Pulsar's replaced; a number under such a key is 0."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.json(item) for item in value]
        if isinstance(value, dict):
            return {self.text(key): self._member(key, item) for key, item in value.items()}
        return value

    def _member(self, key: str, value: Any) -> Any:  # Any: JSON values
        if key == _BOUNDS and isinstance(value, list):
            return [one if isinstance(one, str) and _BOUND.fullmatch(one) else self.json(one) for one in value]
        if key not in WORDS and isinstance(value, (int, float)) and not isinstance(value, bool):
            return 0
        return self.json(value)
