"""Changing the policies of a namespace; keys that this toolkit does not know stay unchanged (upstream ``Policies``)."""

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.changes.plan import ChangeKind, ChangePart, DelayedPart, Plan, put_value_step
from pulsar_admin.store.codec.policies import (
    EVICTION,
    DelayedDelivery,
    JsonObject,
    Policies,
    decode_json_object,
    decode_namespace_json,
    decode_policies,
    encode_json_object,
    encode_policies,
)
from pulsar_admin.store.db import delayed_rules
from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import Node, find_node
from pulsar_admin.store.errors import MetadataCorrupt, NamespaceNotFound, Refused
from pulsar_admin.store.model.topics import check_namespace
from pulsar_admin.store.names import NamespaceName
from pulsar_admin.store.policies.in_force import iter_own_policies
from pulsar_admin.store.policies.places import Entry, Options, PerCluster, Place
from pulsar_admin.store.policies.rules import NAMESPACES, Scope
from pulsar_admin.store.policies.table import Policy, policies_by_name
from pulsar_admin.store.policies.values import find_cluster
from pulsar_admin.store.wording import Answer, counted

Change = Callable[[Policies], Policies]


class PolicyJob(Struct, frozen=True):
    """The job of setting one policy, or of removing it if ``value`` is None.

    ``command`` is upstream's; ``options`` select an item of the policy. Raises InvalidValue for JSON of another kind.
    """

    command: str
    policy: Policy
    value: Any = None
    options: Options = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.value is not None:
            self.policy.check_kind(self.value)

    @property
    def group(self) -> str:
        """Upstream's group: ``namespaces``, ``topics`` or ``topicPolicies``."""
        return self.command.partition(" ")[0]

    @property
    def kind(self) -> ChangeKind:
        """The kind of change, named by the command: upstream names policies in words, such as ``message-ttl``."""
        return ChangeKind.of(self.command)

    @property
    def is_global(self) -> bool:
        """Whether the job concerns the policies for all clusters."""
        return bool(self.options.get("global_"))

    @property
    def place(self) -> Place:
        """Where the policy is stored in the policies that the command changes."""
        place = self.policy.namespace if self.group == NAMESPACES else self.policy.topic
        assert place is not None
        return place

    def changed(self, scope: Scope) -> JsonObject:
        """Return the policies of ``scope`` with the value set; raises InvalidValue for a value that upstream refuses."""
        check = self.policy.check
        if check is not None and (self.value is not None or isinstance(self.place, Entry)):
            check(scope, self.value, self.options)
        return self.place.write(scope.found, self.value, scope.cluster, self.options)

    def shown(self, found: JsonObject) -> JsonObject:
        """Return the members of the policies ``found`` in which the policy is stored."""
        return {member: found.get(member) for member in self.place.members}


def policy_job(command: str, name: str, options: Options) -> PolicyJob:
    """Return the job of ``command`` with ``options`` on the policy ``name``; raises InvalidValue."""
    policy, (group, _, words) = policies_by_name()[name], command.partition(" ")
    verb = words.partition("-")[0]
    if verb in ("enable", "disable"):  # a command here, an option of other commands
        options = {**options, "enable": verb == "enable", "disable": verb == "disable"}
    value = None if verb in ("remove", "clear") else policy.make(group, options)
    return PolicyJob(command, policy, value, options)


class PolicyChange(Struct, frozen=True):
    """A namespace's policies before and after a change. ``steps`` is empty if they stay the same."""

    before: Policies
    after: Policies
    steps: tuple[Step, ...]


def read_policies_json(txn: Txn, namespace: NamespaceName) -> JsonObject:
    """Return the policies of a namespace with all stored keys; raises NamespaceNotFound, MetadataCorrupt."""
    node = _policies_node(txn, namespace)
    return decode_namespace_json(node.value, node.path)


def shown_policies(txn: Txn, namespace: NamespaceName) -> JsonObject:
    """Return the policies that upstream's ``getNamespacePolicies`` (4.0.8) returns; raises as ``read_policies_json``.

    Bundles come from the local policies; an unset ``is_allow_auto_update_schema`` has the configuration's default.
    """
    policies = read_policies_json(txn, namespace)
    local = find_node(txn, f"/admin/local-policies/{namespace}")
    if local is not None and local.value and (bundles := decode_json_object(local.value, local.path).get("bundles")):
        policies["bundles"] = bundles
    if policies.get("is_allow_auto_update_schema") is not None:
        return policies
    shown: JsonObject = {}
    for key, value in policies.items():  # keys are in the order of upstream's class Policies
        shown[key] = value
        if key == "schema_compatibility_strategy":
            shown["is_allow_auto_update_schema"] = True
    return shown


def change_policies(txn: Txn, namespace: NamespaceName, change: Change, now_ms: int) -> PolicyChange:
    """Return the namespace's policies before and after the function ``change``; raises NamespaceNotFound, MetadataCorrupt."""
    node = _policies_node(txn, namespace)
    before = decode_policies(node.value, node.path)
    after = change(before)
    if after == before:
        return PolicyChange(before, after, ())
    step = put_value_step(txn, namespace.policies_path, encode_policies(after, node.value), now_ms)
    return PolicyChange(before, after, (step,))


def plan_policies(txn: Txn, namespace: NamespaceName, job: PolicyJob, now_ms: int) -> Plan:
    """Plan a policy job on a namespace; raises NamespaceNotFound, MetadataCorrupt, InvalidValue."""
    old = read_policies_json(txn, namespace)
    cluster = find_cluster(txn, namespace)
    if cluster is None and isinstance(job.place, PerCluster):
        raise unknown_cluster(namespace)
    after = job.changed(Scope(job.group, txn, namespace, cluster or "", old, old))
    steps = () if after == old else (put_value_step(txn, namespace.policies_path, encode_json_object(after), now_ms),)
    part = ChangePart(namespace=str(namespace), before=job.shown(old), after=job.shown(after))
    return Plan(job.kind, txn.id, steps, (part,))


def unknown_cluster(namespace: NamespaceName) -> Refused:
    """Return the error of a store that does not say which cluster it comes from."""
    return Refused(
        f"the cluster of {namespace} is ambiguous: the store knows several, or none",
        hint="set a policy of one of its topics with a live broker once; its event shows it",
        namespace=str(namespace),
    )


def _policies_node(txn: Txn, namespace: NamespaceName) -> Node:
    check_namespace(txn, namespace)
    node = find_node(txn, namespace.policies_path)
    if node is None:
        raise NamespaceNotFound(
            f"namespace {namespace} has topics but no policies",
            hint="its node is lost, or was never copied",
            namespace=str(namespace),
        )
    return node


# -- delayed -----------------------------------------------------------------------------------------------------------
# Delayed delivery of a namespace: Pulsar's own policy and, beside it, how our index is partitioned; both change in one step.
#
# Upstream: ``DelayedDeliveryPolicies`` (active, tickTime, maxDeliveryDelayInMillis). The granularity is ours alone: a broker has none.


class DelayedPolicy(Answer, frozen=True):
    """A namespace's policy for delays: Pulsar's own, and the widths of this toolkit's index (None: the defaults)."""

    delivery: DelayedDelivery | None
    rules: delayed_rules.IndexRules | None

    def as_json(self) -> dict[str, Any]:  # Any: JSON values
        """Return both parts with upstream's keys, times in ms; null if a part is not set."""
        delivery = self.delivery
        return {
            "active": None if delivery is None else delivery.active,
            "tickTime": None if delivery is None else delivery.tick_time_ms,
            "maxDeliveryDelayInMillis": None if delivery is None else delivery.max_delay_ms,
            "timePartitionGranularity": None if self.rules is None else self.rules.granularity_ms,
            "tickDuration": None if self.rules is None else self.rules.tick_ms,
        }


def find_rules(txn: Txn, namespace: NamespaceName) -> delayed_rules.IndexRules | None:
    """Return the widths of the namespace's delayed-message index, None if they were never set; raises IndexCorrupt, Unsupported."""
    row = txn.get("delayed", delayed_rules.rules_key(str(namespace)))
    return None if row is None else delayed_rules.decode_rules(row, str(namespace))


def read_delayed_policy(txn: Txn, namespace: NamespaceName) -> DelayedPolicy:
    """Return a namespace's policy for delays; raises MetadataCorrupt, IndexCorrupt, Unsupported."""
    node = find_node(txn, namespace.policies_path)
    delivery = None if node is None else decode_policies(node.value, node.path).delayed_delivery
    return DelayedPolicy(delivery, find_rules(txn, namespace))


def plan_enable(
    txn: Txn, namespace: NamespaceName, rules: delayed_rules.IndexRules, now_ms: int, *, split: bool = False
) -> Plan:
    """Plan enabling delayed delivery with the given index widths.

    Raises InvalidValue, and Refused for a smaller granularity without ``split``.
    """
    delayed_rules.check_rules(rules)
    before = find_rules(txn, namespace)
    if before is not None:
        delayed_rules.check_growth(before, rules, split=split)

    def enable(policies: Policies) -> Policies:
        kept = 0 if policies.delayed_delivery is None else policies.delayed_delivery.max_delay_ms
        return replace(policies, delayed_delivery=DelayedDelivery(True, rules.tick_ms, kept))

    kind = ChangeKind("namespaces enable-delayed-message", "enable delayed messages of {place}")
    return _plan(txn, kind, namespace, enable, (before, rules), now_ms)


def plan_disable(txn: Txn, namespace: NamespaceName, now_ms: int) -> Plan:
    """Plan disabling delayed delivery; the index widths stay for enabling it later."""
    rules = find_rules(txn, namespace)

    def disable(policies: Policies) -> Policies:
        delivery = policies.delayed_delivery or DelayedDelivery(False, (rules or delayed_rules.DEFAULT_RULES).tick_ms)
        return replace(policies, delayed_delivery=replace(delivery, active=False))

    kind = ChangeKind("namespaces disable-delayed-message", "disable delayed messages of {place}")
    return _plan(txn, kind, namespace, disable, (rules, rules), now_ms)


def plan_set_delivery(txn: Txn, namespace: NamespaceName, delivery: DelayedDelivery, now_ms: int) -> Plan:
    """Plan setting Pulsar's policy as ``set-delayed-delivery`` does; the index gets the same tick.

    Raises InvalidValue for a tick that does not fit the index widths: 0 or below, or longer than the granularity.
    """
    before = find_rules(txn, namespace)
    after = None if before is None else replace(before, tick_ms=delivery.tick_time_ms)
    if after is not None:
        delayed_rules.check_rules(after)
    kind = ChangeKind.of("namespaces set-delayed-delivery")
    changed = partial(replace, delayed_delivery=delivery)
    return _plan(txn, kind, namespace, changed, (before, after), now_ms)


def plan_remove_delivery(txn: Txn, namespace: NamespaceName, now_ms: int) -> Plan:
    """Plan removing Pulsar's policy and the index widths: the broker's configuration applies again."""
    rules = find_rules(txn, namespace)
    kind = ChangeKind.of("namespaces remove-delayed-delivery")
    return _plan(txn, kind, namespace, partial(replace, delayed_delivery=None), (rules, None), now_ms)


def _plan(
    txn: Txn,
    kind: ChangeKind,
    namespace: NamespaceName,
    change: Callable[[Policies], Policies],
    rules: tuple[delayed_rules.IndexRules | None, delayed_rules.IndexRules | None],
    now_ms: int,
) -> Plan:
    changed = change_policies(txn, namespace, change, now_ms)
    steps = (*changed.steps, *plan_rules(txn, namespace, rules[1]))
    part = DelayedPart(
        namespace=str(namespace),
        before=DelayedPolicy(changed.before.delayed_delivery, rules[0]).as_json(),
        after=DelayedPolicy(changed.after.delayed_delivery, rules[1]).as_json(),
    )
    return Plan(kind, txn.id, steps, (part,), warnings=delivery_warnings(txn, namespace, changed.after))


def plan_rules(txn: Txn, namespace: NamespaceName, rules: delayed_rules.IndexRules | None) -> tuple[Step, ...]:
    """Return the step that sets or removes the namespace's index widths; () if they are unchanged."""
    key = delayed_rules.rules_key(str(namespace))
    row, wanted = txn.get("delayed", key), None if rules is None else delayed_rules.encode_rules(rules)
    return () if row == wanted else (Step("delayed", key, row, wanted),)


def delivery_warnings(txn: Txn, namespace: NamespaceName, policies: Policies) -> tuple[str, ...]:
    """Return warnings about namespace and topic settings that drop delayed messages before they are due."""
    delivery = policies.delayed_delivery
    if delivery is None or not delivery.active:
        return ()
    return (*conflict_warnings(policies), *_topic_warnings(txn, namespace))


def _topic_warnings(txn: Txn, namespace: NamespaceName) -> tuple[str, ...]:
    """Return warnings about the topics' own settings that drop delayed messages before they are due."""
    try:
        own = list(iter_own_policies(txn, namespace))
    except MetadataCorrupt as error:
        return (f"whether topics have a TTL or quota of their own is unknown: {error.message}",)
    lived = [(policies.message_ttl_seconds, name) for name, policies in own if policies.message_ttl_seconds]
    texts = []
    if lived:
        seconds, name = min(lived)
        have = counted(len(lived), "topic has a message TTL of its own", "topics have a message TTL of their own")
        texts.append(f"{have}, the shortest {name} with {seconds} s")
    evicting = [
        name for name, policies in own if any(quota.policy == EVICTION for quota in policies.backlog_quotas.values())
    ]
    if evicting:
        have = counted(
            len(evicting), "topic has a backlog quota of its own", "topics have a backlog quota of their own"
        )
        texts.append(f"{have} with the policy {EVICTION}: {evicting[0]}")
    return tuple(texts)


def conflict_warnings(policies: Policies) -> tuple[str, ...]:
    """Return warnings about policies that drop delayed messages early: a TTL, or a backlog quota that evicts."""
    texts = []
    if policies.message_ttl_seconds:
        texts.append(
            f"the message TTL of {policies.message_ttl_seconds} s drops messages that are delayed for longer before they are due"
        )
    for kind, quota in policies.backlog_quotas.items():
        if quota.policy == EVICTION:
            texts.append(
                f"the backlog quota {kind} has the policy {EVICTION}: it drops delayed messages like any others"
            )
    return tuple(texts)
