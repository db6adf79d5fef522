"""Plans that change policies: the same for a namespace and for topics, and the policies of several topics as one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pulsar_admin.api.given import Duration, duration_ms, given_flags, given_text, whole_number
from pulsar_admin.api.plan import Plan, plan_of
from pulsar_admin.api.planner import Planner
from pulsar_admin.api.session import Session, check_choice
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.model.topics import select_topics
from pulsar_admin.store.names import LONG_MAX, TopicName, TopicSelection
from pulsar_admin.store.wording import Answer

if TYPE_CHECKING:
    from pulsar_admin.store.changes.policies import PolicyJob
    from pulsar_admin.store.db.environment import Txn
    from pulsar_admin.store.policies.places import Options
    from pulsar_admin.store.policies.table import Policy


QuotaKind = Literal["destination_storage", "message_age"]
QuotaPolicy = Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"]


class PolicyPlans(Planner, ABC):
    """What has policies. Where a topic sets none, those of its namespace count, else a broker's configuration."""

    _group: str

    @abstractmethod
    def _plan_policy(self, job: PolicyJob) -> Plan:
        """Return the plan of JOB here."""

    def set_policy(self, name: str, value: Any) -> Plan:  # Any: JSON
        """Plan setting the policy NAME to VALUE, JSON as upstream stores it; raises InvalidValue for what upstream refuses."""
        from pulsar_admin.store.changes.policies import PolicyJob

        return self._plan_policy(PolicyJob(f"{self._group} set-{name}", policy_named(name), value))

    def remove_policy(self, name: str) -> Plan:
        """Plan removing the policy ``name``: the namespace's or the broker's applies again. Raises InvalidValue."""
        from pulsar_admin.store.changes.policies import PolicyJob

        return self._plan_policy(PolicyJob(f"{self._group} remove-{name}", policy_named(name)))

    def set_message_ttl(self, ttl: Duration | None) -> Plan:
        """Plan setting how long messages live, in whole seconds, 0: for ever; or with None removing that. Raises InvalidValue."""
        return self.remove_policy("message-ttl") if ttl is None else self._set("message-ttl", {"ttl": duration_ms(ttl)})

    def set_retention(self, *, time: Duration | None, size: int | str | None) -> Plan:
        """Plan retaining what every subscription has consumed for TIME and up to SIZE (bytes, or ``10G``); None: without limit.

        Kept in whole minutes and MB, rounded down. Raises InvalidValue.
        """
        return self._set("retention", {"time": -1 if time is None else duration_ms(time), "size": _size_bytes(size)})

    def remove_retention(self) -> Plan:
        """Plan removing the retention: the namespace's or the broker's applies again."""
        return self.remove_policy("retention")

    def set_backlog_quota(
        self,
        policy: QuotaPolicy,
        *,
        size: int | str | None = None,
        time: Duration | None = None,
        kind: QuotaKind = "destination_storage",
    ) -> Plan:
        """Plan setting the backlog quota KIND: what happens beyond SIZE (bytes, or ``10G``) or TIME; None: none. Raises InvalidValue."""
        check_choice("policy", policy, QuotaPolicy)
        check_choice("kind", kind, QuotaKind)
        limits = {
            "limit": None if size is None else _size_bytes(size),
            "limit_time": None if time is None else duration_ms(time),
        }
        return self._set("backlog-quota", {**limits, "policy": policy, "type_": kind})

    def remove_backlog_quota(self, kind: QuotaKind = "destination_storage") -> Plan:
        """Plan removing the backlog quota KIND."""
        return self.plan_policy(f"{self._group} remove-backlog-quota", "backlog-quota", {"type_": kind})

    def set_delayed_delivery(self, *, active: bool, tick: Duration = "1s", max_delay: Duration = "0") -> Plan:
        """Plan setting the policy of delayed messages; MAX_DELAY 0 is none. Raises InvalidValue."""
        given_flags(active=active)
        times = {"time": duration_ms(tick), "max_delay": duration_ms(max_delay)}
        return self._set("delayed-delivery", {"enable": active, "disable": not active, **times})

    def remove_delayed_delivery(self) -> Plan:
        """Plan removing the delayed delivery policy: the namespace's or the broker's applies again.

        For a namespace, the widths of the delayed-message index are removed as well.
        """
        return self.remove_policy("delayed-delivery")

    def plan_policy(self, command: str, name: str, options: Options) -> Plan:
        """Plan what the command line's COMMAND (``topics set-retention``) does to the policy NAME with OPTIONS.

        They are upstream's by their longest names in snake case, times in ms and sizes in bytes. Raises InvalidValue.
        """
        from pulsar_admin.store.changes.policies import policy_job

        policy_named(name)
        _check_options(given_text("command", command), options)
        try:
            job = policy_job(command, name, options)
        except (
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:  # the command line requires what is missing
            raise InvalidValue(
                f"{command} does not take {options!r}", hint=f"see: pulsar-admin {command} --help"
            ) from error
        return self._plan_policy(job)

    def _set(self, name: str, options: Options) -> Plan:
        from pulsar_admin.store.changes.policies import policy_job

        return self._plan_policy(policy_job(f"{self._group} set-{name}", name, options))


_KINDS: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "double": (int, float),
    "List": (list, tuple),
    **dict.fromkeys(("int", "Integer", "long", "Long"), (int,)),
}
"""What values of upstream's options are, by their types in Java; of all others: texts, and what the command line makes of them."""


def _check_options(command: str, options: Options) -> None:
    """Raise InvalidValue for what are no options of COMMAND, or not of their kind."""
    from pulsar_admin.upstream_list import name_of, upstream_commands

    row = upstream_commands().get(command)
    if row is None:
        raise InvalidValue(f"{command} is no command of pulsar-admin", value=command)
    kinds = {name_of(option["names"]): _KINDS.get(option["type"], (str, int)) for option in row.get("options", ())}
    for name, value in options.items():
        if name not in kinds:
            raise InvalidValue(f"{command} has no option {name!r}", hint=f"it has: {', '.join(kinds)}", value=name)
        is_flag = isinstance(value, bool)
        if value is not None and (not isinstance(value, kinds[name]) or is_flag != (kinds[name] == (bool,))):
            raise InvalidValue(
                f"{command} does not take {value!r} as {name}", hint=f"see: pulsar-admin {command} --help"
            )


def policy_named(name: str) -> Policy:
    """Return the policy NAME; raises InvalidValue for one that is not there."""
    from pulsar_admin.store.policies.table import policies_by_name

    found = policies_by_name().get(given_text("policy", name))
    if found is None:
        raise InvalidValue(f"no policy is called {name}", value=name)
    return found


def _size_bytes(value: int | str | None) -> int:
    from pulsar_admin.store.timespec import parse_size_bytes

    if value is None:
        return -1
    return parse_size_bytes(value) if isinstance(value, str) else whole_number("size", value, -1, LONG_MAX)


class PolicyValue(Answer, frozen=True):
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
