"""A namespace: its topics, its policies, and plans that change them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pulsar_admin.api.plan import Plan, plan_of
from pulsar_admin.api.session import Session
from store.codec.delayedpolicy import IndexRules, default_tick_ms, parse_width_ms
from store.codec.policies import DelayedDelivery, JsonObject, Policies, decode_json_object
from store.errors import InvalidValue, NamespaceNotFound
from store.names import NamespaceName
from store.plans.delayed import (
    DelayedPolicy,
    find_rules,
    plan_disable,
    plan_enable,
    plan_remove_delivery,
    plan_set_delivery,
)
from store.plans.namespaces import plan_job
from store.plans.policies import PolicyJob, find_policies
from store.timespec import parse_duration_ms
from store.topics import iter_topics
from store.tree import find_node

Duration = timedelta | str
"""A length of time: a timedelta, or ``5m``, ``3h``, ``2d`` and whatever else the command line takes."""


class Namespace:
    """A namespace, with policies or topics. Changes are plans: ``Store.apply`` makes them; each raises MetadataCorrupt."""

    def __init__(self, session: Session, name: NamespaceName) -> None:
        self._session = session
        self._name = name

    @property
    def name(self) -> str:
        """The name, ``tenant/namespace``."""
        return str(self._name)

    def __repr__(self) -> str:
        return f"Namespace({self.name!r})"

    def topics(self, *, system: bool = False) -> tuple[str, ...]:
        """Return the names of its topics, partitions one by one; SYSTEM adds system topics."""
        with self._session.read() as txn:
            return tuple(str(name) for name in iter_topics(txn, self._name) if system or not name.is_system)

    def policies(self) -> Mapping[str, Any]:  # Any: JSON values
        """Return the stored policies with every key that they have, as upstream spells them.

        What they do not say, a broker's configuration does. Raises NamespaceNotFound where the namespace has topics alone, MetadataCorrupt.
        """
        with self._session.read() as txn:
            node = find_node(txn, self._name.policies_path)
        if node is None:
            raise NamespaceNotFound(f"namespace {self._name} has topics but no policies")
        return decode_json_object(node.value, node.path)

    def delayed_policy(self) -> DelayedPolicy:
        """Return what it says about delayed messages: ``delivery`` (Pulsar's policy), ``rules`` (widths of the index); None: unset."""
        with self._session.read() as txn:
            policies = find_policies(txn, self._name)
            delivery = None if policies is None else policies.delayed_delivery
            return DelayedPolicy(delivery, find_rules(txn, self._name))

    # -- plans --------------------------------------------------------------------------------------------------------

    def enable_delayed(self, granularity: str = "5m", tick: str | None = None) -> Plan:
        """Plan delaying messages, with an index partitioned by GRANULARITY of due time and ticks of TICK (default: 1s, or what fits).

        Raises InvalidValue, and Refused where the granularity would shrink: ``namespaces enable-delayed-message --split`` does that.
        """
        width_ms = parse_width_ms(granularity)
        rules = IndexRules(width_ms, default_tick_ms(width_ms) if tick is None else parse_width_ms(tick))
        with self._session.read() as txn:
            return plan_of(plan_enable(txn, self._name, rules, self._session.now_ms))

    def disable_delayed(self) -> Plan:
        """Plan delivering everything at once; the widths of the index stay."""
        with self._session.read() as txn:
            return plan_of(plan_disable(txn, self._name, self._session.now_ms))

    def set_delayed_delivery(self, *, active: bool, tick: Duration = "1s", max_delay: Duration = "0") -> Plan:
        """Plan setting Pulsar's own policy; MAX_DELAY 0 is none. Raises InvalidValue."""
        delivery = DelayedDelivery(active, _duration_ms(tick), _duration_ms(max_delay))
        with self._session.read() as txn:
            return plan_of(plan_set_delivery(txn, self._name, delivery, self._session.now_ms))

    def remove_delayed_delivery(self) -> Plan:
        """Plan removing both parts of the delayed policy: a broker's configuration counts again."""
        with self._session.read() as txn:
            return plan_of(plan_remove_delivery(txn, self._name, self._session.now_ms))

    def set_message_ttl(self, ttl: Duration | None) -> Plan:
        """Plan setting how long messages live, in whole seconds (0: for ever), or with None removing that. Raises InvalidValue."""
        seconds = None if ttl is None else _duration_ms(ttl) // 1000
        if seconds is not None and not 0 <= seconds < 2**31:
            raise InvalidValue(f"a TTL of {seconds} s: it must be 0 to {2**31 - 1}")
        return self._set("message-ttl", ttl is None, {"message_ttl_seconds": seconds}, _ttl)

    def _set(self, policy: str, removes: bool, values: dict[str, Any], shown: Any) -> Plan:  # Any: fields of Policies
        command = f"namespaces {'remove' if removes else 'set'}-{policy}"
        job = PolicyJob(command, lambda found: replace(found, **values), shown)
        with self._session.read() as txn:
            return plan_of(plan_job(txn, self._name, job, self._session.now_ms))


def _ttl(policies: Policies) -> JsonObject:
    return {"messageTTL": policies.message_ttl_seconds}


def _duration_ms(value: Duration) -> int:
    return parse_duration_ms(value) if isinstance(value, str) else value // timedelta(milliseconds=1)
