"""Plans that change policies: the same for a namespace and for a topic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pulsar_admin.api.given import Duration, duration_ms, given_flags, given_text, whole_number
from pulsar_admin.api.request import Planner
from pulsar_admin.api.session import check_choice
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.names import LONG_MAX

if TYPE_CHECKING:
    from pulsar_admin.api.plan import Plan
    from pulsar_admin.store.changes.policies import PolicyJob
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
        """Plan removing the policy NAME: what is set above counts again. Raises InvalidValue."""
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
        """Plan removing the retention: what is set above counts again."""
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
        """Plan removing the policy of delayed messages (of a namespace with the widths of our index): what is set above counts again."""
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
