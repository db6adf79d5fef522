"""A namespace: its topics, its policies, and plans that change them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pulsar_admin.api.given import given_flags, given_text, whole_number
from pulsar_admin.api.namespace_resources import NamespaceResources
from pulsar_admin.api.plan import Plan, plan_of
from pulsar_admin.api.policies import PolicyPlans, policy_named
from pulsar_admin.api.session import Session, check_choice
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.model.partitions import iter_partitioned
from pulsar_admin.store.model.topics import check_namespace, iter_topic_texts
from pulsar_admin.store.names import NamespaceName, parse_topic
from pulsar_admin.store.timespec import format_duration_ms

if TYPE_CHECKING:
    from pulsar_admin.store.changes.policies import DelayedPolicy, PolicyJob
    from pulsar_admin.store.model.cursors import Cursor
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.model.topics import Topic

Domain = Literal["persistent", "non-persistent"]
Width = str | int
"""A width of time of the index of delayed messages: ``30s``, ``5m``, ``2w``, or milliseconds as an int."""


class Namespace(NamespaceResources, PolicyPlans):
    """A namespace, with policies or topics. Changes are plans: ``Store.apply`` makes them; each raises MetadataCorrupt."""

    _group = "namespaces"

    def __init__(self, session: Session, name: NamespaceName) -> None:
        self._session = session
        self._name = name

    @property
    def name(self) -> str:
        """The name, ``tenant/namespace``."""
        return str(self._name)

    def __repr__(self) -> str:
        return f"Namespace({self.name!r})"

    def topics(
        self, *, system: bool = False, bundle: str | None = None, domain: Domain = "persistent"
    ) -> tuple[str, ...]:
        """Return the names of its topics, partitions one by one; SYSTEM adds system topics. BUNDLE, ``0xLOW_0xHIGH``: those in it.

        Of the DOMAIN ``non-persistent`` none: nothing of such a topic is on disk. Raises InvalidValue.
        """
        given_flags(system=system)
        check_choice("domain", domain, Domain)
        with self._session.read() as txn:
            check_namespace(txn, self._name)
            within = self._within(bundle)
            return tuple(
                filter(within, iter_topic_texts(txn, self._name, system=system) if domain == "persistent" else ())
            )

    def partitioned_topics(self, *, system: bool = False) -> tuple[str, ...]:
        """Return the names of its partitioned topics, without partition numbers; SYSTEM adds system topics."""
        given_flags(system=system)
        with self._session.read() as txn:
            check_namespace(txn, self._name)
            return tuple(str(name) for name in iter_partitioned(txn, self._name) if system or not name.is_system)

    def bundle_range(self, topic: str) -> str:
        """Return the bundle, ``0xLOW_0xHIGH``, that the name of TOPIC hashes into; the topic need not be there.

        Raises InvalidValue (it is of another namespace), NamespaceNotFound, MetadataCorrupt.
        """
        from pulsar_admin.store.model.bundles import bundle_range

        name = parse_topic(given_text("topic", topic))
        if name.namespace != self._name:
            raise InvalidValue(f"{name} is not in the namespace {self._name}", value=topic)
        return self._session.ask(bundle_range, name)

    def policies(self) -> Mapping[str, Any]:  # Any: JSON values
        """Return the stored policies with every key that they have, as upstream spells them.

        What they do not say, a broker's configuration does. Raises NamespaceNotFound where the namespace has topics alone, MetadataCorrupt.
        """
        from pulsar_admin.store.changes.policies import read_policies_json

        return self._session.ask(read_policies_json, self._name)

    def delayed_policy(self) -> DelayedPolicy:
        """Return what it says about delayed messages: ``delivery`` (Pulsar's policy), ``rules`` (widths of the index); None: unset."""
        from pulsar_admin.store.changes.policies import DelayedPolicy, find_policies, find_rules

        with self._session.read() as txn:
            policies = find_policies(txn, self._name)
            delivery = None if policies is None else policies.delayed_delivery
            return DelayedPolicy(delivery, find_rules(txn, self._name))

    def policy(self, name: str) -> Any:  # Any: JSON
        """Return the policy NAME (``max-producers``: as commands call it) as stored, None: unset. Raises InvalidValue."""
        from pulsar_admin.store.policies.values import namespace_value

        with self._session.read() as txn:
            check_namespace(txn, self._name)
            return namespace_value(txn, self._name, policy_named(name))

    # -- plans of cursors ---------------------------------------------------------------------------------------------

    def clear_backlog(self, subscription: str | None = None, *, bundle: str | None = None) -> Plan:
        """Plan skipping what the subscriptions of all its topics, or of those in BUNDLE, or the one SUBSCRIPTION, have left.

        System topics and a broker's own cursors stay. What cannot be read is left out with a PartialData warning. Raises
        SubscriptionNotFound (there is none), Refused (SUBSCRIPTION is the broker's own), InvalidValue.
        """
        from pulsar_admin.store.changes.cursors import CursorMove, cleared, plan_moves

        with self._session.reader() as reader:
            cursors = self._cursors(reader, subscription, bundle, "topics clear-backlog")
            moves = [CursorMove(topic, cursor, cleared(topic, cursor.state)) for topic, cursor in cursors]
            return plan_of(plan_moves(reader, "namespaces clear-backlog", moves, self._session.clock_ms), reader.txn)

    def unsubscribe(self, subscription: str, *, bundle: str | None = None) -> Plan:
        """Plan removing SUBSCRIPTION from every topic that has it, or of those in BUNDLE; raises as ``clear_backlog``."""
        from pulsar_admin.store.changes.subscriptions import plan_unsubscribe

        return self._session.plan(
            lambda reader, now_ms: plan_unsubscribe(
                reader,
                "namespaces unsubscribe",
                self._cursors(reader, subscription, bundle, "topics unsubscribe"),
                now_ms,
            )
        )

    def _cursors(
        self, reader: EntryReader, subscription: str | None, bundle: str | None, of_topics: str
    ) -> list[tuple[Topic, Cursor]]:
        from pulsar_admin.store.model.cursors import iter_namespace_cursors

        within, fail = self._within(bundle), self._session.fail
        found = iter_namespace_cursors(reader, self._name, subscription, fail, within, of_topics)
        return list(self._session.each(found, lambda one: one))

    def _within(self, bundle: str | None) -> Callable[[object], bool]:
        """Return what says whether a topic is in BUNDLE, None: in any; raises InvalidValue."""
        if bundle is None:
            return lambda name: True
        from pulsar_admin.store.model.bundles import parse_bundle, topic_hash

        found = parse_bundle(self._name, given_text("bundle", bundle))
        return lambda name: found.holds(topic_hash(name))

    # -- plans of policies --------------------------------------------------------------------------------------------

    def enable_delayed(self, granularity: Width = "5m", tick: Width | None = None, *, split: bool = False) -> Plan:
        """Plan delaying messages, with an index partitioned by GRANULARITY of due time and ticks of TICK (default: 1s, or what fits).

        SPLIT cuts the partitions of indexes anew where the granularity shrinks. Raises InvalidValue, and without it Refused then. A
        PartialData warning says where the tick that fits is longer than 1s.
        """
        from pulsar_admin.store.changes.policies import plan_enable
        from pulsar_admin.store.db.delayed import iter_wide
        from pulsar_admin.store.db.delayed_rules import DEFAULT_RULES, SLOTS_MAX, IndexRules, default_tick_ms

        given_flags(split=split)
        width_ms, now_ms = _width_ms(granularity), self._session.clock_ms
        rules = IndexRules(width_ms, default_tick_ms(width_ms) if tick is None else _width_ms(tick))
        if tick is None and rules.tick_ms > DEFAULT_RULES.tick_ms:
            text = f"the tick is {format_duration_ms(rules.tick_ms)}: a partition has at most {SLOTS_MAX:,} of them"
            self._session.warn([text])
        with self._session.opened() as store, self._session.read() as txn:
            plan = plan_enable(txn, self._name, rules, now_ms, split=split)
            if not split or not any(True for _ in iter_wide(txn, self._name, rules)):
                return plan_of(plan, txn)
            from pulsar_admin.store.delayed.split import plan_split

            return plan_of(plan_split(store, self._name, rules, plan.txn_id, now_ms), txn)

    def disable_delayed(self) -> Plan:
        """Plan delivering everything at once; the widths of the index stay."""
        from pulsar_admin.store.changes.policies import plan_disable

        return self._session.plan_rows(plan_disable, self._name)

    def _plan_policy(self, job: PolicyJob) -> Plan:
        from pulsar_admin.store.changes.resources import plan_job

        return self._session.plan_rows(plan_job, self._name, job)


def _width_ms(value: Width) -> int:
    from pulsar_admin.store.db.delayed_rules import parse_width_ms

    return parse_width_ms(value) if isinstance(value, str) else whole_number("width", value)
