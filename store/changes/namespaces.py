"""Jobs on the policies of a namespace: what they do to delayed messages is warned of."""

from __future__ import annotations

from dataclasses import replace

from store.changes.delayed import conflict_warnings, plan_remove_delivery, plan_set_delivery
from store.changes.plan import Plan
from store.changes.policies import PolicyJob, plan_policies, read_policies_json
from store.codec.policies import DelayedDelivery, decode_policies, encode_json_object
from store.db.environment import Txn
from store.names import NamespaceName


def plan_job(txn: Txn, namespace: NamespaceName, job: PolicyJob, now_ms: int) -> Plan:
    """Plan JOB, with a warning where what it sets drops delayed messages.

    Delayed delivery is planned with the widths of our index. Raises NamespaceNotFound, MetadataCorrupt, InvalidValue.
    """
    if job.policy.name == "delayed-delivery":
        if job.value is None:
            return plan_remove_delivery(txn, namespace, now_ms)
        tick_ms, active, max_ms = (job.value[key] for key in ("tickTime", "active", "maxDeliveryDelayInMillis"))
        return plan_set_delivery(txn, namespace, DelayedDelivery(active, tick_ms, max_ms), now_ms)
    plan = plan_policies(txn, namespace, job, now_ms)
    if not plan.steps:
        return plan
    after = {**read_policies_json(txn, namespace), **(plan.parts[0].after or {})}
    policies = decode_policies(encode_json_object(after), str(namespace))
    delays = policies.delayed_delivery is not None and policies.delayed_delivery.active
    return replace(plan, warnings=conflict_warnings(policies)) if delays else plan
