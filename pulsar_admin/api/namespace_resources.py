"""What is stored of a namespace that is no policy: bundles, properties, permissions, clusters, affinity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pulsar_admin.api.given import given_flag, given_items, given_properties, given_text, given_texts, whole_number
from pulsar_admin.api.plan import Plan
from pulsar_admin.api.request import Planner
from pulsar_admin.api.session import Session
from pulsar_admin.store.model.bundles import find_local_policies, read_policies
from pulsar_admin.store.names import NamespaceName

if TYPE_CHECKING:
    from pulsar_admin.store.changes.plan import Plan as StorePlan
    from pulsar_admin.store.db.environment import Txn

Json = dict[str, Any]  # Any: JSON values, by upstream's keys
_NOT_FOUND = "Namespace not found"


class BundleTopics(Struct, frozen=True):
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
        from pulsar_admin.store.model.bundles import read_bundles

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
        from pulsar_admin.store.model.bundles import bundle_topics, read_bundle

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
        from pulsar_admin.store.changes.namespace_json import plan_properties

        return self._session.plan_rows(plan_properties, f"namespaces {command}", self._name, change)

    # -- permissions --------------------------------------------------------------------------------------------------

    def permissions(self) -> Mapping[str, Sequence[str]]:
        """Return what each role may do on it."""
        from pulsar_admin.store.changes.namespace_json import read_permissions

        return read_permissions(self._session.ask(read_policies, self._name))

    def grant_permission(self, role: str, actions: Sequence[str]) -> Plan:
        """Plan that ROLE may do ACTIONS (``produce``, ``consume`` …) in place of what it might; raises InvalidValue."""
        from pulsar_admin.store.changes.namespace_json import Grant, check_actions, plan_permission

        grant = Grant(given_text("role", role), check_actions(given_texts("actions", actions)))
        return self._session.plan_rows(plan_permission, "namespaces grant-permission", self._name, grant)

    def revoke_permission(self, role: str) -> Plan:
        """Plan revoking the permissions of ROLE on it."""
        from pulsar_admin.store.changes.namespace_json import Grant, plan_permission

        grant = Grant(given_text("role", role))
        return self._session.plan_rows(plan_permission, "namespaces revoke-permission", self._name, grant)

    def subscription_permissions(self) -> Mapping[str, Sequence[str]]:
        """Return the roles of each subscription that only some may use."""
        from pulsar_admin.store.changes.namespace_json import read_subscription_permissions

        return read_subscription_permissions(self._session.ask(read_policies, self._name))

    def grant_subscription_permission(self, subscription: str, roles: Sequence[str]) -> Plan:
        """Plan that ROLES alone may use subscriptions with this name."""
        from pulsar_admin.store.changes.namespace_json import plan_grant_subscription

        name, given = given_text("subscription", subscription), given_texts("roles", roles)
        return self._session.plan_rows(plan_grant_subscription, self._name, name, given)

    def revoke_subscription_permission(self, subscription: str, role: str) -> Plan:
        """Plan taking a subscription from ROLE; raises ResourceNotFound where nobody has it."""
        from pulsar_admin.store.changes.namespace_json import plan_revoke_subscription

        given = given_text("subscription", subscription), given_text("role", role)
        return self._session.plan_rows(plan_revoke_subscription, self._name, *given)

    # -- clusters and affinity ----------------------------------------------------------------------------------------

    def allowed_clusters(self) -> Sequence[str]:
        """Return the clusters that it may replicate to; none: those of its tenant."""
        from pulsar_admin.store.codec.java import hash_order

        return hash_order(self._session.ask(read_policies, self._name).get("allowed_clusters") or ())

    def set_allowed_clusters(self, clusters: Sequence[str]) -> Plan:
        """Plan the CLUSTERS that it may replicate to; raises Refused."""
        from pulsar_admin.store.changes.namespace_json import plan_allowed_clusters

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
        from pulsar_admin.store.changes.namespace_json import JsonJob, plan_local_json, put

        def make(txn: Txn, now_ms: int) -> StorePlan:
            if error is not None:
                read_policies(txn, self._name, error)
            return plan_local_json(txn, self._name, JsonJob(f"namespaces {command}", put(key, value), [key]), now_ms)

        return self._session.plan_rows(make)
