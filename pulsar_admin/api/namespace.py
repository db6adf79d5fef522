"""A namespace: its topics, its policies, and what is stored of it beside them, and plans that change it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pulsar_admin.api.given import (
    given_flag,
    given_flags,
    given_items,
    given_properties,
    given_text,
    given_texts,
    whole_number,
)
from pulsar_admin.api.plan import Plan, plan_of
from pulsar_admin.api.planner import Planner
from pulsar_admin.api.policies import PolicyPlans, policy_named
from pulsar_admin.api.session import Session, check_choice
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.model.resources import (
    bundle_range,
    bundle_topics,
    find_local_policies,
    parse_bundle,
    read_bundle,
    read_bundles,
    read_policies,
    topic_hash,
)
from pulsar_admin.store.model.topics import Topic, check_namespace, iter_partitioned, iter_topic_texts
from pulsar_admin.store.names import NamespaceName, parse_topic
from pulsar_admin.store.timespec import format_duration_ms
from pulsar_admin.store.wording import Answer

if TYPE_CHECKING:
    from pulsar_admin.store.changes.plan import Plan as StorePlan
    from pulsar_admin.store.changes.policies import DelayedPolicy, PolicyJob
    from pulsar_admin.store.db.environment import Txn
    from pulsar_admin.store.model.cursors import Cursor
    from pulsar_admin.store.model.reader import EntryReader

Domain = Literal["persistent", "non-persistent"]
Width = str | int
"""A width of time of the index of delayed messages: ``30s``, ``5m``, ``2w``, or milliseconds as an int."""
Json = dict[str, Any]  # Any: JSON values, by upstream's keys
_NOT_FOUND = "Namespace not found"


class BundleTopics(Answer, frozen=True):
    """The hashes of topics' names in a bundle, ``0xLOW_0xHIGH``."""

    namespace: str
    bundle: str
    topic_hash_positions: Mapping[str, int]


class NamespaceResources(Planner):
    """The part of ``Namespace`` that asks for these and plans their changes; all raise NamespaceNotFound, MetadataCorrupt."""

    _session: Session
    _name: NamespaceName

    # -- bundles ------------------------------------------------------------------------------------------------------

    def bundles(self) -> Json:
        """Return the ``boundaries`` of its bundles, and ``numBundles``."""
        return self._session.ask(read_bundles, self._name)

    def split_bundle(
        self,
        bundle: str | None = None,
        *,
        bundle_type: str | None = None,
        algorithm: str = "range_equally_divide",
        boundaries: Iterable[int] = (),
    ) -> Plan:
        """Plan splitting BUNDLE, or that of BUNDLE_TYPE ``LARGEST``, the one with most topics.

        ALGORITHM: also ``topic_count_equally_divide``, and ``specified_positions_divide`` at BOUNDARIES, hashes. Raises InvalidValue,
        NeedsBroker (what only load decides).
        """
        from pulsar_admin.store.changes.resources import choose_bundle, plan_split

        text, kind = (
            None if one is None else given_text(what, one)
            for what, one in (("bundle", bundle), ("bundle_type", bundle_type))
        )
        name = given_text("algorithm", algorithm)

        def make(txn: Txn, now_ms: int) -> StorePlan:
            chosen = choose_bundle(txn, self._name, text, kind)
            places = [whole_number("boundary", one) for one in given_items("boundaries", boundaries)]
            return plan_split(txn, self._name, chosen, name, places, now_ms)

        return self._session.plan_rows(make)

    def topic_hashes(self, bundle: str, topics: Sequence[str] = ()) -> BundleTopics:
        """Return the hashes of its topics in BUNDLE, of all or of TOPICS, with their partitions; raises InvalidValue."""
        wanted = given_texts("topics", topics)
        with self._session.read() as txn:
            chosen = read_bundle(txn, self._name, given_text("bundle", bundle))
            found = bundle_topics(txn, chosen)
        bases = {name if "://" in name else f"persistent://{name}" for name in wanted}
        positions = {
            name: value
            for name, value in found.items()
            if not bases or name.rpartition("-partition-")[0] in bases or name in bases
        }
        return BundleTopics(str(self._name), chosen.range, positions)

    # -- properties ---------------------------------------------------------------------------------------------------

    def properties(self) -> Mapping[str, str]:
        """Return its properties."""
        return self._session.ask(read_policies, self._name).get("properties") or {}

    def set_property(self, key: str, value: str) -> Plan:
        """Plan setting the property KEY to VALUE."""
        given = {given_text("key", key): given_text("value", value)}
        return self._plan_properties("set-property", lambda found: {**found, **given})

    def set_properties(self, properties: Mapping[str, str]) -> Plan:
        """Plan setting PROPERTIES and keeping the others."""
        given = given_properties(properties)
        return self._plan_properties("set-properties", lambda found: {**found, **given})

    def remove_property(self, key: str) -> Plan:
        """Plan removing the property KEY."""
        gone = given_text("key", key)
        return self._plan_properties(
            "remove-property", lambda found: {name: one for name, one in found.items() if name != gone}
        )

    def clear_properties(self) -> Plan:
        """Plan removing all of its properties."""
        return self._plan_properties("clear-properties", lambda found: {})

    def _plan_properties(self, command: str, change: Callable[[Json], Json]) -> Plan:
        from pulsar_admin.store.changes.resources import plan_properties

        return self._session.plan_rows(plan_properties, f"namespaces {command}", self._name, change)

    # -- permissions --------------------------------------------------------------------------------------------------

    def permissions(self) -> Mapping[str, Sequence[str]]:
        """Return what each role may do on it."""
        from pulsar_admin.store.changes.resources import read_permissions

        return read_permissions(self._session.ask(read_policies, self._name))

    def grant_permission(self, role: str, actions: Sequence[str]) -> Plan:
        """Plan that ROLE may do ACTIONS (``produce``, ``consume`` …) in place of what it might; raises InvalidValue."""
        from pulsar_admin.store.changes.resources import Grant, check_actions, plan_permission

        grant = Grant(given_text("role", role), check_actions(given_texts("actions", actions)))
        return self._session.plan_rows(plan_permission, "namespaces grant-permission", self._name, grant)

    def revoke_permission(self, role: str) -> Plan:
        """Plan revoking the permissions of ROLE on it."""
        from pulsar_admin.store.changes.resources import Grant, plan_permission

        grant = Grant(given_text("role", role))
        return self._session.plan_rows(plan_permission, "namespaces revoke-permission", self._name, grant)

    def subscription_permissions(self) -> Mapping[str, Sequence[str]]:
        """Return the roles of each subscription that only some may use."""
        from pulsar_admin.store.changes.resources import read_subscription_permissions

        return read_subscription_permissions(self._session.ask(read_policies, self._name))

    def grant_subscription_permission(self, subscription: str, roles: Sequence[str]) -> Plan:
        """Plan that ROLES alone may use subscriptions with this name."""
        from pulsar_admin.store.changes.resources import plan_grant_subscription

        name, given = given_text("subscription", subscription), given_texts("roles", roles)
        return self._session.plan_rows(plan_grant_subscription, self._name, name, given)

    def revoke_subscription_permission(self, subscription: str, role: str) -> Plan:
        """Plan taking a subscription from ROLE; raises ResourceNotFound where nobody has it."""
        from pulsar_admin.store.changes.resources import plan_revoke_subscription

        given = given_text("subscription", subscription), given_text("role", role)
        return self._session.plan_rows(plan_revoke_subscription, self._name, *given)

    # -- clusters and affinity ----------------------------------------------------------------------------------------

    def allowed_clusters(self) -> Sequence[str]:
        """Return the clusters that it may replicate to; none: those of its tenant."""
        from pulsar_admin.store.codec.java import hash_order

        return hash_order(self._session.ask(read_policies, self._name).get("allowed_clusters") or ())

    def set_allowed_clusters(self, clusters: Sequence[str]) -> Plan:
        """Plan the CLUSTERS that it may replicate to; raises Refused."""
        from pulsar_admin.store.changes.resources import plan_allowed_clusters

        return self._session.plan_rows(plan_allowed_clusters, self._name, given_texts("clusters", clusters))

    def anti_affinity_group(self) -> str | None:
        """Return the group whose members brokers keep apart, None: it is in none."""
        with self._session.read() as txn:
            found: str | None = find_local_policies(txn, self._name).get("namespaceAntiAffinityGroup")
            return found

    def set_anti_affinity_group(self, group: str) -> Plan:
        """Plan that it is in GROUP."""
        return self._plan_local("set-anti-affinity-group", "namespaceAntiAffinityGroup", given_text("group", group))

    def delete_anti_affinity_group(self) -> Plan:
        """Plan that it is in no anti-affinity group."""
        return self._plan_local("delete-anti-affinity-group", "namespaceAntiAffinityGroup", None)

    def bookie_affinity_group(self) -> Mapping[str, str] | None:
        """Return the groups of bookies that keep its data, None: all do."""
        with self._session.read() as txn:
            read_policies(txn, self._name, _NOT_FOUND)
            found: Mapping[str, str] | None = find_local_policies(txn, self._name).get("bookieAffinityGroup")
            return found

    def set_bookie_affinity_group(self, primary: str, secondary: str | None = None) -> Plan:
        """Plan that bookies of PRIMARY groups, separated by commas, keep its data, and of SECONDARY ones where these are too few."""
        groups = {"bookkeeperAffinityGroupPrimary": primary, "bookkeeperAffinityGroupSecondary": secondary}
        given = {
            key: given_text("group", one) for key, one in groups.items() if one is not None or key.endswith("Primary")
        }
        return self._plan_bookies("set-bookie-affinity-group", given)

    def delete_bookie_affinity_group(self) -> Plan:
        """Plan that all bookies may keep its data."""
        return self._plan_bookies("delete-bookie-affinity-group", None)

    def set_migrated(self, migrated: bool) -> Plan:
        """Plan whether it is MIGRATED to the target of its cluster."""
        return self._plan_local("update-migration-state", "migrated", given_flag("migrated", migrated))

    def _plan_bookies(self, command: str, groups: Json | None) -> Plan:
        return self._plan_local(command, "bookieAffinityGroup", groups, error=_NOT_FOUND)

    def _plan_local(self, command: str, key: str, value: object, *, error: str | None = None) -> Plan:
        """Plan VALUE of KEY, of a namespace with policies where ERROR says what is wrong with any other."""
        from pulsar_admin.store.changes.resources import JsonJob, plan_local_json, put

        def make(txn: Txn, now_ms: int) -> StorePlan:
            if error is not None:
                read_policies(txn, self._name, error)
            return plan_local_json(txn, self._name, JsonJob(f"namespaces {command}", put(key, value), [key]), now_ms)

        return self._session.plan_rows(make)


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
            from pulsar_admin.store.delayed.build import plan_split

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
