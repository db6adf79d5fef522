"""The policies of namespaces and topics, one row each: upstream's names, where the value is stored, how options make
it, its check.

The commands of all groups that read, set, remove and check policies are made from these rows. Upstream (Pulsar 4.0.8):
``Policies``, ``TopicPolicies`` and the commands of ``namespaces``, ``topics`` and ``topicPolicies``.
"""

from collections.abc import Callable
from functools import cache
from math import isfinite
from typing import Any

from msgspec import Struct

from pulsar_admin.store.codec.java import java_split
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.names import INT_MAX, LONG_MAX
from pulsar_admin.store.policies import offload, rules
from pulsar_admin.store.policies.places import Entry, Inner, Member, OfSubscription, Parts, PerCluster, Place
from pulsar_admin.store.policies.rules import Check, Make, choice, fields, least


class Policy(Struct, frozen=True):
    """One policy. ``names``: upstream's names in all groups, the one used here first; ``what``: its noun, with the unit
    after a comma, or "whether …", from which ``pulsar_admin.lookup`` makes the commands' summaries.

    ``default``: the broker's default. ``unset`` and ``own_unset``: what upstream shows for a namespace and for a topic
    that does not set the policy. ``lists``: the group in which upstream prints one element per line. ``like``: an
    example of the stored JSON, if ``default`` and ``unset`` are None: a tuple lists the allowed values, a type means an
    optional value of that type.
    """

    names: str
    what: str
    namespace: Place | None
    topic: Place | None = None
    make: Make = rules.number
    check: Check | None = None
    default: Any = None
    unset: Any = None
    own_unset: Any = None
    answer: Callable[[Any], Any] | None = None
    lists: str = ""
    like: Any = None

    @property
    def name(self) -> str:
        """The first of the policy's names."""
        return self.names.split()[0]

    def check_kind(self, value: Any) -> None:
        """Raise InvalidValue for JSON that a broker cannot read as this policy: one such value makes all policies
        unreadable."""
        for key, one in value.items() if isinstance(value, dict) else ():
            most = LONG_MAX if key in _LONGS else INT_MAX
            if type(one) is int and not -most - 1 <= one <= most:
                raise InvalidValue(f"{self.name}: {key} {one}: {most} at most", value=value)
        like = next((one for one in (self.like, self.default, self.unset) if one is not None), None)
        if like is not None and not _fits(value, like):
            example = (
                f"one of {', '.join(map(repr, like))}"
                if isinstance(like, tuple)
                else f"JSON such as {_example(like)!r}"
            )
            raise InvalidValue(
                f"{self.name}: {value!r} is not what upstream stores", hint=f"give {example}", value=value
            )

    def shown(self, value: Any) -> Any:
        """Return ``value`` as upstream prints it: members in the order of its class, without nulls."""
        if self.answer is not None:
            return self.answer(value)
        if not isinstance(value, dict):
            return value
        order = [key for shape in _SHAPES if value.keys() <= {*shape} for key in shape] or list(value)
        return {key: value[key] for key in order if value.get(key) is not None}


_LONGS = frozenset(
    (
        *("retentionSizeInMB", "limit", "limitSize", "tickTime", "maxDeliveryDelayInMillis"),
        *("dispatchThrottlingRateInByte", "publishThrottlingRateInByte", "managedLedgerOffloadThresholdInBytes"),
        *("managedLedgerOffloadThresholdInSeconds", "managedLedgerOffloadDeletionLagInMillis"),
    )
)
"""The members of upstream's classes that have 64 bits (4.0.8, 5.0.1); other whole numbers have 32."""


def _fits(value: Any, like: Any) -> bool:
    if isinstance(like, dict):
        needed = {name for name, one in like.items() if not isinstance(one, type)}
        given = value.keys() if isinstance(value, dict) else None
        return (
            given is not None
            and needed <= given <= like.keys()
            and all(_fits(value[name], like[name]) for name in given)
        )
    if isinstance(like, list):
        return isinstance(value, list) and all(_fits(one, like[0] if like else "") for one in value)
    if isinstance(like, tuple):
        return isinstance(value, str | None) and value in like
    if isinstance(like, type):
        return value is None or (type(value) is like and (not isinstance(value, int) or abs(value) < 1 << 63))
    if isinstance(like, float):
        return type(value) in (int, float) and isfinite(value)
    return type(value) is type(like) and (type(value) is not int or abs(value) < 1 << 63)


def _example(like: Any) -> Any:
    if isinstance(like, dict):
        return {name: _example(one) for name, one in like.items() if not isinstance(one, type)} or {
            name: one() for name, one in like.items()
        }
    if isinstance(like, list):
        return [_example(one) for one in like]
    return like[0] if isinstance(like, tuple) else like


_RATE = ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte", "relativeToPublishRate", "ratePeriodInSecond")
_SHAPES = (
    ("retentionTimeInMinutes", "retentionSizeInMB"),
    ("tickTime", "active", "maxDeliveryDelayInMillis"),
    _RATE,
    ("publishThrottlingRateInMsg", "publishThrottlingRateInByte"),
    ("subscribeThrottlingRatePerConsumer", "ratePeriodInSecond"),
    ("inactiveTopicDeleteMode", "maxInactiveDurationSeconds", "deleteWhileInactive"),
    (
        "bookkeeperEnsemble",
        "bookkeeperWriteQuorum",
        "bookkeeperAckQuorum",
        "managedLedgerMaxMarkDeleteRate",
        "managedLedgerStorageClassName",
    ),
    ("allowAutoTopicCreation", "topicType", "defaultNumPartitions"),
)
"""Members of upstream's classes in the order that Jackson prints them in; AVRO keeps them by the alphabet."""
_DELIVERY = {
    "tickTime": "delayedDeliveryTickTimeMillis",
    "active": "delayedDeliveryEnabled",
    "maxDeliveryDelayInMillis": "delayedDeliveryMaxDelayInMillis",
}
_dispatch = fields(
    dispatchThrottlingRateInMsg="msg_dispatch_rate",
    dispatchThrottlingRateInByte="byte_dispatch_rate",
    relativeToPublishRate="relative_to_publish_rate",
    ratePeriodInSecond="dispatch_rate_period",
)
_publish = fields(publishThrottlingRateInMsg="msg_publish_rate", publishThrottlingRateInByte="byte_publish_rate")
_subscribe = fields(subscribeThrottlingRatePerConsumer="subscribe_rate", ratePeriodInSecond="subscribe_rate_period")
_NO_DISPATCH = dict(zip(_RATE, (0, 0, False, 1), strict=True))
_NO_SUBSCRIBE = {"subscribeThrottlingRatePerConsumer": 0, "ratePeriodInSecond": 30}
_INACTIVE = dict(zip(_SHAPES[5], ("delete_when_no_subscriptions", 60, True), strict=True))
_strategy = choice(*rules.STRATEGIES, words="Illegal schema compatibility strategy {}. Possible values: [{}]")
_OFFLOADS = "offload_policies"
_THRESHOLDS = ("managedLedgerOffloadThresholdInBytes", "managedLedgerOffloadThresholdInSeconds")
_NO_OFFLOAD = offload.NO_OFFLOAD | {"s3Driver": False, "gcsDriver": False, "fileSystemDriver": False}

POLICIES: tuple[Policy, ...] = (
    Policy(
        "message-ttl",
        "message TTL, in seconds",
        Member("message_ttl_in_seconds"),
        Member("messageTTLInSeconds"),
        rules.seconds,
        least("Invalid value for message TTL, message TTL must >= 0", "Invalid value for message TTL"),
        default=0,
    ),
    Policy(
        "retention",
        "retention, in minutes and MB",
        Member("retention_policies"),
        Member("retentionPolicies"),
        rules.retention,
        rules.check_retention,
        default={"retentionTimeInMinutes": 0, "retentionSizeInMB": 0},
    ),
    Policy(
        "backlog-quota backlog-quotas",
        "backlog quota, by type",
        Entry("backlog_quota_map", "type_"),
        Entry("backLogQuotaMap", "type_"),
        rules.backlog_quota,
        rules.check_quota,
        default=dict.fromkeys(rules.QUOTA_TYPES, rules.BROKER_QUOTA),
        answer=rules.quotas_answer,
        like=rules.BROKER_QUOTA | {"policy": rules.QUOTA_POLICIES},
    ),
    Policy(
        "delayed-delivery",
        "delayed delivery policy",
        Member("delayed_delivery_policies"),
        Parts("delayedDeliveryEnabled", _DELIVERY),
        rules.delivery,
        default={"tickTime": 1000, "active": True, "maxDeliveryDelayInMillis": 0},
        like={"tickTime": 1000, "active": True, "maxDeliveryDelayInMillis": int},  # 2.11 has no maximum
    ),
    Policy(
        "compaction-threshold",
        "compaction threshold, in bytes",
        Member("compaction_threshold"),
        Member("compactionThreshold"),
        rules.number,
        least("compactionThreshold must be 0 or more", "Invalid value for compactionThreshold", (1 << 63) - 1),
        default=0,
    ),
    Policy(
        "deduplication deduplication-enabled",
        "whether messages are deduplicated",
        Member("deduplicationEnabled"),
        Member("deduplicationEnabled"),
        rules.flag,
        like=True,
    ),
    Policy(
        "deduplication-snapshot-interval",
        "deduplication snapshot interval, in seconds",
        Member("deduplicationSnapshotIntervalSeconds"),
        Member("deduplicationSnapshotIntervalSeconds"),
        rules.number,
        least("interval must be greater than or equal to 0", "Invalid interval '{}'. "),
    ),
    Policy(
        "dispatch-rate",
        "dispatch rate",
        PerCluster("topicDispatchRate", "clusterDispatchRate"),
        Member("dispatchRate"),
        _dispatch,
        default=_NO_DISPATCH,
    ),
    Policy(
        "subscription-dispatch-rate",
        "subscription dispatch rate",
        PerCluster("subscriptionDispatchRate"),
        OfSubscription("subscriptionDispatchRate", "dispatchRate"),
        _dispatch,
        default=_NO_DISPATCH,
    ),
    Policy(
        "replicator-dispatch-rate",
        "replicator dispatch rate",
        PerCluster("replicatorDispatchRate"),
        Member("replicatorDispatchRate"),
        _dispatch,
        default=_NO_DISPATCH,
    ),
    Policy(
        "publish-rate",
        "publish rate",
        PerCluster("publishMaxMessageRate"),
        Member("publishRate"),
        _publish,
        like=dict.fromkeys(_SHAPES[3], 0),
    ),
    Policy(
        "subscribe-rate",
        "subscribe rate",
        PerCluster("clusterSubscribeRate"),
        Member("subscribeRate"),
        _subscribe,
        default=_NO_SUBSCRIBE,
    ),
    Policy(
        "inactive-topic-policies",
        "inactive-topic policy",
        Member("inactive_topic_policies"),
        Member("inactiveTopicPolicies"),
        rules.inactive,
        default=_INACTIVE,
        like=_INACTIVE | {"inactiveTopicDeleteMode": rules.DELETE_MODES},
    ),
    Policy(
        "max-producers max-producers-per-topic maxProducers",
        "producer limit",
        Member("max_producers_per_topic"),
        Member("maxProducerPerTopic"),
        rules.number,
        least("maxProducersPerTopic must be 0 or more", "maxProducers must be 0 or more"),
        default=0,
    ),
    Policy(
        "max-consumers max-consumers-per-topic",
        "consumer limit",
        Member("max_consumers_per_topic"),
        Member("maxConsumerPerTopic"),
        rules.number,
        least("maxConsumersPerTopic must be 0 or more", "maxConsumers must be 0 or more"),
        default=0,
    ),
    Policy(
        "max-consumers-per-subscription",
        "consumer limit per subscription",
        Member("max_consumers_per_subscription"),
        Member("maxConsumersPerSubscription"),
        rules.number,
        least("maxConsumersPerSubscription must be 0 or more", "Invalid value for maxConsumersPerSubscription"),
    ),
    Policy(
        "max-subscriptions-per-topic max-subscriptions",
        "subscription limit",
        Member("max_subscriptions_per_topic"),
        Member("maxSubscriptionsPerTopic"),
        rules.number,
        least("maxSubscriptionsPerTopic must be 0 or more"),
    ),
    Policy(
        "max-topics-per-namespace",
        "topic limit",
        Member("max_topics_per_namespace"),
        check=least("maxTopicsPerNamespace must be 0 or more"),
        unset=0,
    ),
    Policy(
        "max-unacked-messages-per-consumer max-unacked-messages-on-consumer",
        "limit of unacknowledged messages per consumer",
        Member("max_unacked_messages_per_consumer"),
        Member("maxUnackedMessagesOnConsumer"),
        rules.number,
        least("maxUnackedMessagesPerConsumer must be 0 or more", "maxUnackedNum must be 0 or more"),
        default=50_000,
    ),
    Policy(
        "max-unacked-messages-per-subscription max-unacked-messages-on-subscription",
        "limit of unacknowledged messages per subscription",
        Member("max_unacked_messages_per_subscription"),
        Member("maxUnackedMessagesOnSubscription"),
        rules.number,
        least("maxUnackedMessagesPerSubscription must be 0 or more", "maxUnackedNum must be 0 or more"),
        default=200_000,
    ),
    Policy(
        "max-message-size",
        "maximum message size, in bytes",
        None,
        Member("maxMessageSize"),
        rules.number,
        rules.check_message_size,
        like=0,
    ),
    Policy(
        "persistence",
        "persistence policies",
        Member("persistence"),
        Member("persistence"),
        rules.persistence,
        rules.check_persistence,
        like=dict.fromkeys(_SHAPES[6][:3], 1)
        | {"managedLedgerMaxMarkDeleteRate": 0.0, "managedLedgerStorageClassName": str},
    ),
    Policy(
        "offload-policies",
        "offload policies",
        Member(_OFFLOADS),
        Member("offloadPolicies"),
        offload.offload,
        offload.check_offload,
        answer=offload.offload_answer,
        like=offload.KINDS,
    ),
    Policy(
        "offload-deletion-lag",
        "offload deletion lag",
        Inner(_OFFLOADS, _NO_OFFLOAD, ("managedLedgerOffloadDeletionLagInMillis",)),
        make=offload.offload_lag,
        answer=offload.lag_answer,
        like={"managedLedgerOffloadDeletionLagInMillis": int},
    ),
    Policy(
        "offload-threshold",
        "offload thresholds",
        Inner(_OFFLOADS, _NO_OFFLOAD, _THRESHOLDS),
        make=offload.offload_threshold,
        answer=offload.threshold_answer,
        like=dict.fromkeys(_THRESHOLDS, int),
    ),
    Policy(
        "replication-clusters clusters",
        "replication clusters",
        Member("replication_clusters"),
        Member("replicationClusters"),
        rules.clusters,
        rules.check_clusters,
        unset=[],
        lists=rules.NAMESPACES,
    ),
    Policy(
        "subscription-types-enabled",
        "enabled subscription types",
        Member("subscription_types_enabled", []),
        Member("subscriptionTypesEnabled", []),
        rules.subscription_types,
        unset=[],
        like=[rules.SUBSCRIPTION_TYPES],
    ),
    Policy(
        "auto-subscription-creation",
        "whether subscriptions are created automatically",
        Member("autoSubscriptionCreationOverride"),
        Member("autoSubscriptionCreationOverride"),
        fields(allowAutoSubscriptionCreation="enable"),
        default={"allowAutoSubscriptionCreation": True},
    ),
    Policy(
        "auto-topic-creation",
        "whether topics are created automatically",
        Member("autoTopicCreationOverride"),
        make=rules.topic_creation,
        like={
            "allowAutoTopicCreation": True,
            "topicType": ("non-partitioned", "partitioned", None),
            "defaultNumPartitions": int,
        },
    ),
    Policy(
        "dispatcher-pause-on-ack-state-persistent",
        "whether dispatch pauses until acknowledgements are stored",
        Member("dispatcherPauseOnAckStatePersistentEnabled", False),
        Member("dispatcherPauseOnAckStatePersistentEnabled", False),
        lambda group, options: True,
        default=False,
        unset=False,
    ),
    Policy(
        "entry-filters entry-filters-per-topic",
        "entry filters",
        Member("entryFilters"),
        Member("entryFilters"),
        fields(entryFilterNames="entry_filters_name"),
        rules.check_filters,
        default={"entryFilterNames": ""},
    ),
    Policy(
        "schema-compatibility-strategy",
        "schema compatibility strategy",
        Member("schema_compatibility_strategy"),
        Member("schemaCompatibilityStrategy"),
        _strategy,
        default="FULL",
        unset="UNDEFINED",
        like=rules.STRATEGIES,
    ),
    Policy(
        "schema-autoupdate-strategy",
        "schema auto-update strategy",
        Member("schema_auto_update_compatibility_strategy"),
        make=rules.update_strategy,
        answer=lambda value: None if value is None else value.upper(),
        like=rules.UPDATE_STRATEGIES,
    ),
    Policy(
        "is-allow-auto-update-schema",
        "whether producers may register new schema versions",
        Member("is_allow_auto_update_schema"),
        make=rules.flag,
        unset=True,
    ),
    Policy(
        "schema-validation-enforce",
        "whether producers need a schema",
        Member("schema_validation_enforced"),
        Member("schemaValidationEnforced"),
        lambda group, options: (rules.enabled if "disable" not in options else rules.flag)(group, options),
        default=False,
        unset=False,
        own_unset=False,
    ),
    Policy(
        "subscription-auth-mode",
        "subscription authorization mode",
        Member("subscription_auth_mode"),
        make=rules.auth_mode,
        unset="None",
        like=("None", "Prefix"),
        answer='"{}"'.format,
    ),
    Policy(
        "encryption-required",
        "whether messages must be encrypted",
        Member("encryption_required"),
        make=rules.flag,
        unset=False,
    ),
    Policy(
        "subscription-expiration-time",
        "subscription expiration time, in minutes",
        Member("subscription_expiration_time_minutes"),
        Member("subscriptionExpirationTimeInMinutes"),
        check=least("Invalid value for subscription expiration time"),
    ),
    Policy(
        "allowed-topic-property-keys-for-metrics",
        "topic property keys that metrics may use as labels",
        Member("allowed_topic_property_keys_for_metrics"),
        make=lambda group, options: list(options["keys"]),
        like=[""],
    ),
    Policy("resource-group", "resource group", Member("resource_group_name"), check=rules.check_group, unset=""),
    Policy(
        "shadow-topics",
        "shadow topics",
        None,
        Member("shadowTopics"),
        lambda group, options: java_split(options["topics"]),
        rules.check_shadows,
        own_unset=[],
        like=[""],
        lists=rules.TOPICS,
    ),
)


@cache
def policies_by_name() -> dict[str, Policy]:
    """Return name → policy, for all names of every policy."""
    return {name: policy for policy in POLICIES for name in policy.names.split()}


def policy_named(name: str, group: str) -> Policy:
    """Return the policy with this name in ``group`` (``namespaces`` or ``topics``); raises InvalidValue for an unknown
    name."""

    def is_known(policy: Policy) -> bool:
        return (policy.namespace if group == rules.NAMESPACES else policy.topic) is not None

    policy = policies_by_name().get(name)
    if policy is None or not is_known(policy):
        names = ", ".join(one.name for one in POLICIES if is_known(one))
        raise InvalidValue(f"no policy of {group} is called {name}", hint=f"there are {names}", value=name)
    return policy
