"""Policies of namespaces: a job on them, with what it warns of."""

from __future__ import annotations

from dataclasses import replace

from store.codec.policies import Policies
from store.meta import Txn
from store.names import NamespaceName
from store.plans.base import Plan
from store.plans.delayed import conflict_warnings
from store.plans.policies import PolicyJob, find_policies, plan_policies


def plan_job(txn: Txn, namespace: NamespaceName, job: PolicyJob, now_ms: int) -> Plan:
    """Plan JOB, with a warning where what it sets drops delayed messages; raises NamespaceNotFound, MetadataCorrupt."""
    plan = plan_policies(txn, namespace, job, now_ms)
    after = job.change(find_policies(txn, namespace) or Policies())
    if plan.steps and after.delayed_delivery is not None and after.delayed_delivery.active:
        plan = replace(plan, warnings=conflict_warnings(after))
    return plan
