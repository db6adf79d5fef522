"""Making a policy's JSON from the options of its command, and refusing what upstream refuses, with its messages.

Upstream (Pulsar 4.0.8): ``CmdNamespaces``, ``CmdTopics``, ``CmdTopicPolicies``; ``NamespacesBase``,
``PersistentTopicsBase``, ``OffloadPoliciesImpl``, ``BacklogQuotaImpl``. In options, times are in milliseconds and sizes
in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pulsar_admin.store.codec.java import hash_order, java_split
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.names import INT_MAX, NamespaceName, TopicName, parse_topic
from pulsar_admin.store.policies.places import Json, Options

if TYPE_CHECKING:
    from pulsar_admin.store.db.environment import Txn
    from pulsar_admin.store.db.tree import Node

NAMESPACES, TOPICS, TOPIC_POLICIES = "namespaces", "topics", "topicPolicies"
QUOTA_TYPES = ("destination_storage", "message_age")
QUOTA_POLICIES = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
BROKER_QUOTA: Json = {"limit": -1, "limitSize": -1, "limitTime": -1, "policy": QUOTA_POLICIES[0]}
STRATEGIES = (
    "UNDEFINED",
    "ALWAYS_INCOMPATIBLE",
    "ALWAYS_COMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
)
UPDATE_STRATEGIES = (
    "Full",
    "Backward",
    "Forward",
    "AutoUpdateDisabled",
    "AlwaysCompatible",
    "BackwardTransitive",
    "ForwardTransitive",
    "FullTransitive",
)
DELETE_MODES = ("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up")
SUBSCRIPTION_TYPES = ("Exclusive", "Shared", "Failover", "Key_Shared")
_ENSEMBLE_MAX = 5  # default managedLedgerMaxEnsembleSize in broker.conf
_MESSAGE_MAX_BYTES = 5 << 20  # default maxMessageSize in broker.conf


class Scope(Struct, frozen=True):
    """The policies that a command of upstream's ``group`` changes (``found``), and those of the namespace as stored.

    ``cluster``: the one of the store's data, empty if unknown.
    """

    group: str
    txn: Txn
    namespace: NamespaceName
    cluster: str
    found: Json
    namespace_policies: Json

    @property
    def of_topic(self) -> bool:
        """Whether the policies to change are a topic's."""
        return self.group != NAMESPACES


Make = Callable[[str, Options], Any]
Check = Callable[[Scope, Any, Options], None]
_SHARED = {"global_", "applied", "subscription"}


# -- values -----------------------------------------------------------------------------------------------------------


def number(group: str, options: Options) -> Any:
    """Return the value of the command's one option of its own, whatever its type."""
    (value,) = (value for name, value in options.items() if name not in _SHARED)
    return value


def seconds(group: str, options: Options) -> int:
    """Return the command's one option, a time, in seconds."""
    return seconds_of(number(group, options))


def seconds_of(time_ms: int) -> int:
    """Return an option's milliseconds as seconds; -1, upstream's default, stays -1. Raises InvalidValue for a fraction."""
    if time_ms % 1000 and time_ms != -1:  # a TTL of 0.5 s would be stored as 0, which is none
        raise InvalidValue(f"{time_ms} ms: this policy has whole seconds", value=time_ms)
    return time_ms if time_ms == -1 else time_ms // 1000


def flag(group: str, options: Options) -> bool:
    """Return whether ``--enable`` was given; raises InvalidValue for both or neither of ``--enable`` and ``--disable``."""
    return _one_of(options, "enable", "disable", "--enable or --disable")


def _one_of(options: Options, on: str, off: str, words: str) -> bool:
    if options[on] == options[off]:
        raise InvalidValue(f"Need to specify either {words}")
    return bool(options[on])


def enabled(group: str, options: Options) -> bool:
    """Return whether ``--enable`` was given."""
    return bool(options["enable"])


def fields(**names: str) -> Make:
    """Return a function that makes an object of the options: ``names`` are member → option.

    A group that lacks the option gets false.
    """
    return lambda group, options: {key: options.get(name, False) for key, name in names.items()}


def choice(*values: str, words: str) -> Make:
    """Return a function that takes the one option, one of ``values`` in any case.

    It raises InvalidValue with ``words``, where ``{}`` stands for the given text and for ``values``.
    """

    def make(group: str, options: Options) -> str:
        given = number(group, options) or ""
        if given.upper() not in values:
            raise InvalidValue(words.format(given.upper(), ", ".join(values)))
        return str(given.upper())

    return make


def retention(group: str, options: Options) -> Json:
    """Return ``RetentionPolicies``: whole minutes and MB, rounded towards 0; -1 is infinite."""
    time_s, size = seconds_of(options["time"]), options["size"]
    return {"retentionTimeInMinutes": _towards_zero(time_s, 60), "retentionSizeInMB": _towards_zero(size, 1 << 20)}


def _towards_zero(limit: int, unit: int) -> int:
    return -1 if limit == -1 else -(-limit // unit) if limit < 0 else limit // unit


def backlog_quota(group: str, options: Options) -> Json:
    """Return a ``BacklogQuotaImpl``; raises InvalidValue."""
    kind, policy, limit, time_ms = (options[name] for name in ("type_", "policy", "limit", "limit_time"))
    if policy not in QUOTA_POLICIES:
        raise InvalidValue(
            f"Invalid retention policy type '{policy}'. Valid options are: [{', '.join(QUOTA_POLICIES)}]"
        )
    check_quota_type(kind)
    by_size = kind == QUOTA_TYPES[0]
    if group != TOPICS:  # takes the limit of its type alone
        if (limit if by_size else time_ms) is None:
            raise InvalidValue(f"Quota type of '{kind}' needs a {'size' if by_size else 'time'} limit")
        limit, time_ms = (limit, None) if by_size else (None, time_ms)
    size, time_s = -1 if limit is None else limit, -1 if time_ms is None else seconds_of(time_ms)
    return {"limit": size, "limitSize": size, "limitTime": time_s, "policy": policy}


def check_quota_type(kind: str) -> None:
    """Raise InvalidValue for an unknown quota type."""
    if kind not in QUOTA_TYPES:
        raise InvalidValue(f"Invalid backlog quota type '{kind}'. Valid options are: [{', '.join(QUOTA_TYPES)}]")


def delivery(group: str, options: Options) -> Json:
    """Return ``DelayedDeliveryPolicies``; raises InvalidValue as ``flag``."""
    active = flag(group, options)
    return {"tickTime": options["time"], "active": active, "maxDeliveryDelayInMillis": options["max_delay"]}


def inactive(group: str, options: Options) -> Json:
    """Return ``InactiveTopicPolicies``; raises InvalidValue."""
    on, off = "enable_delete_while_inactive", "disable_delete_while_inactive"
    deletes = _one_of(options, on, off, "enable-delete-while-inactive or disable-delete-while-inactive")
    mode = options["delete_mode"]
    if mode not in DELETE_MODES:
        raise InvalidValue(f"delete mode can only be set to {' or '.join(DELETE_MODES)}")
    age = seconds_of(options["max_inactive_duration"])
    return {"inactiveTopicDeleteMode": mode, "maxInactiveDurationSeconds": age, "deleteWhileInactive": deletes}


def persistence(group: str, options: Options) -> Json:
    """Return ``PersistencePolicies``; raises InvalidValue."""
    quorums = [options[f"bookkeeper_{name}"] for name in ("ensemble", "write_quorum", "ack_quorum")]
    rate, storage = options["ml_mark_delete_max_rate"], options["ml_storage_class"]
    if min(quorums) <= 0:
        raise InvalidValue(
            "[--bookkeeper-ensemble], [--bookkeeper-write-quorum] and [--bookkeeper-ack-quorum] must greater than 0."
        )
    if rate < 0:
        raise InvalidValue("[--ml-mark-delete-max-rate] cannot less than 0.")
    names = ("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum")
    value = {**dict(zip(names, quorums, strict=True)), "managedLedgerMaxMarkDeleteRate": float(rate)}
    return value if storage is None else {**value, "managedLedgerStorageClassName": storage}


def topic_creation(group: str, options: Options) -> Json:
    """Return ``AutoTopicCreationOverrideImpl``; raises InvalidValue."""
    allows, kind, partitions = flag(group, options), options["type_"].lower(), options["num_partitions"]
    if allows and kind not in ("partitioned", "non-partitioned"):
        raise InvalidValue("Must specify type of topic to be created. Possible values: (partitioned, non-partitioned)")
    if allows and kind == "partitioned" and not (partitions or 0) > 0:
        raise InvalidValue("Must specify num-partitions or num-partitions > 0 for partitioned topic type.")
    if allows and kind != "partitioned" and partitions is not None:
        detail = "[defaultNumPartitions] is not allowed to be set when the type is non-partition."
        raise InvalidValue(f"Invalid configuration for autoTopicCreationOverride. the detail is {detail}")
    value = {"allowAutoTopicCreation": allows, "topicType": kind}
    return value if partitions is None else {**value, "defaultNumPartitions": partitions}


def update_strategy(group: str, options: Options) -> str:
    """Return a ``SchemaAutoUpdateCompatibilityStrategy``; raises InvalidValue."""
    kinds = {"FULL": "Full", "BACKWARD": "Backward", "FORWARD": "Forward", "NONE": "AlwaysCompatible"}
    named = kinds.get((options["compatibility"] or "").upper())
    if options["disabled"]:
        return "AutoUpdateDisabled"
    if named is None:
        raise InvalidValue("Either --compatibility or --disabled must be specified")
    return named


def auth_mode(group: str, options: Options) -> str:
    """Return a ``SubscriptionAuthMode``; raises InvalidValue."""
    mode: str = options["subscription_auth_mode"]
    if mode not in ("None", "Prefix"):
        raise InvalidValue(f"No enum constant org.apache.pulsar.common.policies.data.SubscriptionAuthMode.{mode}")
    return mode


def subscription_types(group: str, options: Options) -> list[str]:
    """Return the subscription types that are allowed; raises InvalidValue for an unknown one."""
    for name in options["types"]:
        if name not in SUBSCRIPTION_TYPES:
            raise InvalidValue(f"Illegal subscription type {name}. Possible values: [{', '.join(SUBSCRIPTION_TYPES)}].")
    return hash_order(options["types"]) if group == NAMESPACES else list(dict.fromkeys(options["types"]))


def clusters(group: str, options: Options) -> list[str]:
    """Return the named clusters: for a topic the list as given, for a namespace in the order of a Java HashSet."""
    names = java_split(options["clusters"])
    return hash_order(names) if group == NAMESPACES else names


def quotas_answer(value: Json | None) -> dict[str, str]:
    """Return quota type → backlog quota as upstream prints it."""
    names = ("limit", "limitSize", "limitTime", "policy")
    return {
        kind: f"BacklogQuotaImpl({', '.join(f'{name}={quota.get(name)}' for name in names)})"
        for kind, quota in (value or {}).items()
    }


# -- refusals ---------------------------------------------------------------------------------------------------------


def least(namespaces: str, topics: str | None = None, most: int = INT_MAX) -> Check:
    """Return a check that a number is from 0 to ``most``; its messages are ``namespaces``, or ``topics`` for a topic's
    policies."""

    def check(scope: Scope, value: int, options: Options) -> None:
        if type(value) is not int or not 0 <= value <= most:
            raise InvalidValue(((topics if scope.of_topic else None) or namespaces).format(value), value=value)

    return check


def _exceeds(quota: Json | None, kept: Json) -> bool:
    """Return whether a backlog quota reaches the retention ``kept``, the rule of ``AdminResource.checkBacklogQuota``."""
    allowed: dict[str, int] = {**(BROKER_QUOTA if quota is None else quota)}
    minutes, megabytes = kept.get("retentionTimeInMinutes") or 0, kept.get("retentionSizeInMB") or 0
    if megabytes > 0 and allowed.get("limitSize", allowed.get("limit", 0)) >= megabytes << 20:
        return True
    return bool(minutes > 0 and allowed.get("limitTime", -1) >= minutes * 60)


def check_retention(scope: Scope, value: Json, options: Options) -> None:
    """Raise InvalidValue if just one limit is 0, one is below -1, or the retention does not exceed the backlog quotas."""
    for what, key in (("time", "retentionTimeInMinutes"), ("size", "retentionSizeInMB")):
        if value[key] < -1:
            raise InvalidValue(f"Invalid retention policy: {what} limit must be >= -1")
    if (value["retentionTimeInMinutes"] == 0) != (value["retentionSizeInMB"] == 0):
        raise InvalidValue(
            "Invalid retention policy: Setting a single time or size limit to 0 is invalid when one of the limits has a "
            "non-zero value. Use the value of -1 instead of 0 to ignore a specific limit. "
            "To disable retention both limits must be set to 0."
        )
    quotas = scope.namespace_policies.get("backlog_quota_map") or {}
    if not scope.of_topic:
        if quotas and _exceeds(quotas.get(QUOTA_TYPES[0]), value):
            raise InvalidValue("Retention Quota must exceed configured backlog quota for namespace.")
        return
    own = scope.found.get("backLogQuotaMap") or {}
    if any(_exceeds(own.get(kind) or quotas.get(kind), value) for kind in QUOTA_TYPES):
        raise InvalidValue(
            "Retention Quota must exceed configured backlog quota for topic. Please increase retention quota and retry"
        )


def check_quota(scope: Scope, value: Json | None, options: Options) -> None:
    """Raise InvalidValue for an unknown quota type, or a quota that reaches the retention."""
    check_quota_type(options["type_"])
    kept = scope.namespace_policies.get("retention_policies")
    if scope.of_topic:
        kept = scope.found.get("retentionPolicies") or kept
    elif value is None:
        return
    elif options["type_"] != QUOTA_TYPES[0]:
        value = None  # for a namespace, upstream compares the size quota only: here the broker's default
    if kept is not None and _exceeds(value, kept):
        kind = "topic" if scope.of_topic else "namespace"
        raise InvalidValue(
            f"Backlog Quota exceeds configured retention quota for {kind}. Please increase retention quota and retry"
        )


def check_persistence(scope: Scope, value: Json, options: Options) -> None:
    """Raise InvalidValue unless ensemble >= write quorum >= ack quorum, and for an ensemble above the broker's default
    limit."""
    ensemble, write, ack = (value[f"bookkeeper{name}"] for name in ("Ensemble", "WriteQuorum", "AckQuorum"))
    if ensemble > _ENSEMBLE_MAX:
        raise InvalidValue(f"Bookkeeper-Ensemble must be <= {_ENSEMBLE_MAX} and > 0.", value=ensemble)
    if not ensemble >= write >= ack:
        raise InvalidValue(f"Bookkeeper Ensemble ({ensemble}) >= WriteQuorum ({write}) >= AckQuorum ({ack})")


def check_message_size(scope: Scope, value: int, options: Options) -> None:
    """Raise InvalidValue for a size below 0 or above the broker's default limit."""
    if not 0 <= value <= _MESSAGE_MAX_BYTES:
        raise InvalidValue(
            "topic-level maxMessageSize must be greater than or equal to 0 "
            "and must be smaller than that in the broker-level"
        )


def check_clusters(scope: Scope, value: list[str], options: Options) -> None:
    """Raise InvalidValue for a cluster that does not exist or the tenant may not use, and for a topic without its own."""
    from pulsar_admin.store.db.tree import iter_children

    if not value:
        raise InvalidValue("ClusterIds should not be null or empty")
    if "global" in value:
        raise InvalidValue("Cannot specify global in the list of replication clusters")
    if scope.of_topic and options.get("global_"):
        of_namespace = scope.namespace_policies.get("replication_clusters") or ()
        if len(of_namespace) < 2:
            raise InvalidValue(
                "Please do not use the global topic level policy when namespace-level replication is not enabled, because"
                " the global level policy relies on namespace-level replication"
            )
        if not set(value) <= set(of_namespace):
            raise InvalidValue(
                "The policies at the global topic level will only be copied to the clusters included in the namespace level"
                " replication. Therefore, please do not set the policies including other clusters"
            )
    elif scope.of_topic and scope.cluster and scope.cluster not in value:
        raise InvalidValue("Can not remove local cluster from the local topic-level replication clusters policy")
    allowed = () if scope.of_topic else scope.namespace_policies.get("allowed_clusters") or ()
    if outside := [name for name in value if allowed and name not in allowed]:
        raise InvalidValue(
            f"Cluster [{outside[0]}] is not in the list of allowed clusters list for namespace [{scope.namespace}]"
        )
    known = set(iter_children(scope.txn, "/admin/clusters"))
    for name in value:
        if known and name not in known:  # a copy without any cluster does not say which ones exist
            raise InvalidValue(f"Invalid cluster id: {name}")
        _check_tenant(scope, name)
    check_peers(scope.txn, value)


def check_peers(txn: Txn, clusters: Sequence[str]) -> None:
    """Raise InvalidValue if one of the ``clusters`` of a namespace or topic is a peer of another."""
    from pulsar_admin.store.model.resources import cluster_path, find_json

    for name in clusters:
        peers = (find_json(txn, cluster_path(name)) or {}).get("peerClusterNames") or ()
        if both := [peer for peer in peers if peer in clusters]:
            raise InvalidValue(
                f"{name}'s peer-clusters [{', '.join(both)}] can't be part of replication-clusters [{', '.join(clusters)}]"
            )


def _node(scope: Scope, path: str) -> Node | None:
    from pulsar_admin.store.db.tree import find_node  # helps of policies read no store

    return find_node(scope.txn, path)


def _check_tenant(scope: Scope, cluster: str) -> None:
    from pulsar_admin.store.codec.policies import decode_json_object

    node = _node(scope, f"/admin/policies/{scope.namespace.tenant}")
    allowed = None if node is None else decode_json_object(node.value, node.path).get("allowedClusters")
    if allowed is not None and cluster not in allowed:
        raise InvalidValue(
            f"Cluster [{cluster}] is not in the list of allowed clusters list for tenant [{scope.namespace.tenant}]"
        )


def check_filters(scope: Scope, value: Json, options: Options) -> None:
    """Raise InvalidValue without a filter name; a store does not show which filters brokers have."""
    if not any(name.strip() for name in value["entryFilterNames"].split(",")):
        raise InvalidValue("entryFilterNames can't be empty. To remove entry filters use the remove method.")


def check_group(scope: Scope, value: str, options: Options) -> None:
    """Raise InvalidValue for a resource group that does not exist."""
    if _node(scope, f"/admin/resourcegroups/{value}") is None:
        raise InvalidValue("ResourceGroup does not exist")


def check_shadows(scope: Scope, value: list[str], options: Options) -> None:
    """Raise InvalidValue for shadow topics that do not exist."""
    for text in value:
        try:
            name: TopicName = parse_topic(text)
        except InvalidValue as error:
            raise InvalidValue(f"Invalid shadow topic name: {text}") from error
        if _node(scope, name.path) is None and _node(scope, name.partitioned_path) is None:
            raise InvalidValue(f"Shadow topic [{text}] not exists.")
