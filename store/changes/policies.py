"""Changing policies, of a namespace here: every key this toolkit does not know stays as it is (upstream ``Policies``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from store.changes.plan import ChangePart, Plan, Step, put_value_step
from store.codec.policies import (
    JsonObject,
    Policies,
    decode_json_object,
    decode_namespace_json,
    decode_policies,
    encode_json_object,
    encode_policies,
)
from store.db.environment import Txn
from store.db.tree import Node, find_node
from store.errors import NamespaceNotFound, Refused
from store.model.topics import check_namespace
from store.names import NamespaceName
from store.policies.places import Entry, Options, PerCluster, Place
from store.policies.rules import NAMESPACES, Scope
from store.policies.table import Policy, policies_by_name
from store.policies.values import find_cluster

Change = Callable[[Policies], Policies]


class PolicyJob(Struct, frozen=True):
    """Setting a policy, or with a VALUE of None removing it. ``command``: upstream's; ``options``: what names a part of it."""

    command: str
    policy: Policy
    value: Any = None
    options: Options = field(default_factory=dict)

    @property
    def group(self) -> str:
        """Upstream's group: ``namespaces``, ``topics`` or ``topicPolicies``."""
        return self.command.partition(" ")[0]

    @property
    def is_global(self) -> bool:
        """Whether it is of all clusters."""
        return bool(self.options.get("global_"))

    @property
    def place(self) -> Place:
        """Where the value lies."""
        place = self.policy.namespace if self.group == NAMESPACES else self.policy.topic
        assert place is not None
        return place

    def changed(self, scope: Scope) -> JsonObject:
        """Return what SCOPE has with the value in it; raises InvalidValue for what upstream refuses."""
        check = self.policy.check
        if check is not None and (self.value is not None or isinstance(self.place, Entry)):
            check(scope, self.value, self.options)
        return self.place.write(scope.found, self.value, scope.cluster, self.options)

    def shown(self, found: JsonObject) -> JsonObject:
        """Return the members of FOUND that this concerns."""
        return {member: found.get(member) for member in self.place.members}


def policy_job(command: str, name: str, options: Options) -> PolicyJob:
    """Return the job of COMMAND on the policy NAME, its value made of OPTIONS and of its verb; raises InvalidValue."""
    policy, (group, _, words) = policies_by_name()[name], command.partition(" ")
    verb = words.partition("-")[0]
    if verb in ("enable", "disable"):  # what another command's option does
        options = {**options, "enable": verb == "enable", "disable": verb == "disable"}
    value = None if verb in ("remove", "clear") else policy.make(group, options)
    return PolicyJob(command, policy, value, options)


class PolicyChange(Struct, frozen=True):
    """What a namespace's policies were and become. ``steps`` is empty when they stay."""

    before: Policies
    after: Policies
    steps: tuple[Step, ...]


def find_policies(txn: Txn, namespace: NamespaceName) -> Policies | None:
    """Return the policies of NAMESPACE, None when it has no node; raises MetadataCorrupt."""
    node = find_node(txn, namespace.policies_path)
    return None if node is None else decode_policies(node.value, node.path)


def read_policies_json(txn: Txn, namespace: NamespaceName) -> JsonObject:
    """Return the policies of NAMESPACE as stored, every key that they have; raises NamespaceNotFound, MetadataCorrupt."""
    node = _policies_node(txn, namespace)
    return decode_namespace_json(node.value, node.path)


def shown_policies(txn: Txn, namespace: NamespaceName) -> JsonObject:
    """Return the policies of NAMESPACE as upstream's ``getNamespacePolicies`` (4.0.8) answers; raises as ``read_policies_json``.

    Bundles are those of the local policies; ``is_allow_auto_update_schema`` is the configuration's default where nothing is set.
    """
    found = read_policies_json(txn, namespace)
    local = find_node(txn, f"/admin/local-policies/{namespace}")
    if local is not None and local.value and (bundles := decode_json_object(local.value, local.path).get("bundles")):
        found["bundles"] = bundles
    if found.get("is_allow_auto_update_schema") is not None:
        return found
    shown: JsonObject = {}
    for key, value in found.items():
        shown[key] = value
        if key == "schema_compatibility_strategy":
            shown["is_allow_auto_update_schema"] = True
    return shown


def change_policies(txn: Txn, namespace: NamespaceName, change: Change, now_ms: int) -> PolicyChange:
    """Return what CHANGE makes of the policies of NAMESPACE; raises NamespaceNotFound, MetadataCorrupt."""
    node = _policies_node(txn, namespace)
    before = decode_policies(node.value, node.path)
    after = change(before)
    if after == before:
        return PolicyChange(before, after, ())
    step = put_value_step(txn, namespace.policies_path, encode_policies(after, node.value), now_ms)
    return PolicyChange(before, after, (step,))


def plan_policies(txn: Txn, namespace: NamespaceName, job: PolicyJob, now_ms: int) -> Plan:
    """Plan JOB on the policies of NAMESPACE; raises NamespaceNotFound, MetadataCorrupt, InvalidValue."""
    found = read_policies_json(txn, namespace)
    cluster = find_cluster(txn, namespace)
    if cluster is None and isinstance(job.place, PerCluster):
        raise unknown_cluster(txn, namespace)
    after = job.changed(Scope(job.group, txn, namespace, cluster or "", found, found))
    steps = () if after == found else (put_value_step(txn, namespace.policies_path, encode_json_object(after), now_ms),)
    part = ChangePart(namespace=str(namespace), before=job.shown(found), after=job.shown(after))
    return Plan(job.command, txn.id, steps, (part,))


def unknown_cluster(txn: Txn, namespace: NamespaceName) -> Refused:
    """Return the error of a store that does not say which cluster it comes from."""
    return Refused(
        f"which cluster {namespace} is in is ambiguous: the store knows several, or none",
        hint="set a policy of one of its topics with a live broker once; its event tells",
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
