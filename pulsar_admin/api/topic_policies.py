"""The policies of several topics, as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pulsar_admin.api.plan import Plan, plan_of
from pulsar_admin.api.policies import PolicyPlans, policy_named
from pulsar_admin.api.session import Session
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.model.topics import select_topics
from pulsar_admin.store.names import TopicName, TopicSelection

if TYPE_CHECKING:
    from pulsar_admin.store.changes.policies import PolicyJob
    from pulsar_admin.store.db.environment import Txn


class PolicyValue(Struct, frozen=True):
    """What a topic has of a policy, JSON as upstream stores it, and where that is set: ``source`` is None where it is not."""

    topic: str
    policy: str
    value: Any
    source: str | None


class TopicPolicies(PolicyPlans):
    """The policies of several topics, each as a whole. Changes are plans of all of them: ``Store.apply`` makes them.

    All raise TopicNotFound, MetadataCorrupt, and InvalidValue for a partition; plans also Refused (a system topic).
    """

    _group = "topics"

    def __init__(self, session: Session, selection: TopicSelection) -> None:
        self._session = session
        self._selection = selection

    def values(self, name: str, **options: Any) -> tuple[PolicyValue, ...]:
        """Return what the topics have of the policy NAME: their own, or (``applied=True``) what is in force.

        ``subscription``: of this one alone; ``global_=True``: own policies that all clusters share. Raises InvalidValue.
        """
        from pulsar_admin.store.policies.values import sourced_value

        policy = policy_named(name)
        with self._session.read() as txn:
            names = self._names(txn)
            return tuple(PolicyValue(str(one), name, *sourced_value(txn, one, policy, options)) for one in names)

    def answers(self, name: str, **options: Any) -> tuple[Any, ...]:
        """Return the ``values`` alone; ``applied=True``: as upstream's brokers answer, which know no policies of all clusters."""
        from pulsar_admin.store.policies.values import applied_value, own_value

        policy = policy_named(name)
        read = applied_value if options.get("applied") else own_value
        with self._session.read() as txn:
            return tuple(read(txn, one, policy, options) for one in self._names(txn))

    def remove_policies(self) -> Plan:
        """Plan removing all policies, those that all clusters share, too, also of topics that are not there any more."""
        from pulsar_admin.store.changes.topic_policies import plan_delete

        with self._session.read() as txn:
            names = self._selection.topics or self._names(txn)
            now_ms, broker = self._session.clock_ms, self._session.interceptors
            return plan_of(plan_delete(txn, "topicPolicies delete", names, now_ms, broker), txn)

    def _plan_policy(self, job: PolicyJob) -> Plan:
        from pulsar_admin.store.changes.topic_policies import plan_changes

        broker = self._session.interceptors
        return self._session.plan(
            lambda reader, now_ms: plan_changes(reader.txn, self._names(reader.txn), job, now_ms, broker)
        )

    def _names(self, txn: Txn) -> list[TopicName]:
        for name in self._selection.topics:
            if name != name.base:
                raise InvalidValue("Not allowed to set/get topic policy for a partition", value=str(name))
        return list(dict.fromkeys(name.base for name in select_topics(txn, self._selection)))
