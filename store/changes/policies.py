"""Changing the policies of a namespace: every key this toolkit does not know stays as it is (upstream ``Policies``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from store.changes.plan import Plan, Step, put_value_step
from store.changes.report import ChangePart
from store.codec.policies import JsonObject, Policies, decode_json_object, decode_policies, encode_policies
from store.db.environment import Txn
from store.db.tree import Node, find_node
from store.errors import NamespaceNotFound
from store.model.topics import check_namespace
from store.names import NamespaceName

Change = Callable[[Policies], Policies]


@dataclass(frozen=True, slots=True)
class PolicyJob:
    """What to do with policies: the command's name, the change, and the part of them that reports show."""

    command: str
    change: Change
    shown: Callable[[Policies], JsonObject]


@dataclass(frozen=True, slots=True)
class PolicyChange:
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
    return decode_json_object(node.value, node.path)


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
    """Plan JOB on the policies of NAMESPACE; raises NamespaceNotFound, MetadataCorrupt."""
    changed = change_policies(txn, namespace, job.change, now_ms)
    before, after = job.shown(changed.before), job.shown(changed.after)
    part = ChangePart(namespace=str(namespace), before=before, after=after)
    return Plan(job.command, txn.id, changed.steps, (part,))


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
